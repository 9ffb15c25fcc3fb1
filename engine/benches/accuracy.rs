//! Errors of sums of floats by device, dtype, length and kind of data, in ulps of the sum of
//! magnitudes.
//!
//! `cargo bench -p gradiff --bench accuracy`; with `-- 28` up to 2^28 elements instead of 2^22.
//! Kernels are optimised by the heuristic, which is the default; `plain` is without optimisations.

use gradiff::graph::{Constant, DType};
use gradiff::{Engine, Tensor, keepdim};

/// The default of the maximal number of elements, as a power of two.
const DEFAULT_POWER: u32 = 22;
/// The maximal number of elements on the interpreter, as a power of two.
const INTERPRETER_POWER: u32 = 20;

/// A kind of data.
#[derive(Clone, Copy, PartialEq)]
enum Data {
    /// A repeated number, for which all rounding errors have the same sign.
    Constant,
    /// Numbers from 0 to 1.
    Positive,
    /// Numbers from -1 to 1.
    Mixed,
}

impl Data {
    const ALL: [(Data, &str); 3] =
        [(Data::Constant, "constant"), (Data::Positive, "0 to 1"), (Data::Mixed, "-1 to 1")];

    /// The element at a position. 16-bit floats are scaled, so that their sum is in range.
    fn element(self, position: u64, dtype: DType) -> Constant {
        let random = position.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let random = (random ^ random >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40;
        let unit = random as f64 / (1u64 << 24) as f64;
        let value = match self {
            Data::Constant => 0.13,
            Data::Positive => unit,
            Data::Mixed => 2.0 * unit - 1.0,
        };
        let scale = if dtype.size_bytes() == 2 { 1.0 / 64.0 } else { 1.0 };
        Constant::float(dtype, value * scale)
    }
}

/// The number of fraction bits of the exact sums, which are fixed-point integers.
const SCALE: i32 = 70;

/// A sum to compute.
struct Case {
    dtype: DType,
    bytes: Vec<u8>,
    count: u64,
    exact: f64,
    magnitudes: f64,
}

impl Case {
    fn new(data: Data, dtype: DType, count: u64) -> Case {
        let mut bytes = Vec::with_capacity(count as usize * dtype.size_bytes());
        let (mut exact, mut magnitudes) = (0i128, 0i128);
        for position in 0..count {
            let value = data.element(position, dtype);
            bytes.extend_from_slice(&value.bits().to_le_bytes()[..dtype.size_bytes()]);
            let number = value.to_float().expect("a float");
            // Exact: no element has more fraction bits.
            let scaled = (number * 2f64.powi(SCALE)) as i128;
            (exact, magnitudes) = (exact + scaled, magnitudes + scaled.abs());
        }
        let number = |sum: i128| sum as f64 / 2f64.powi(SCALE);
        Case { dtype, bytes, count, exact: number(exact), magnitudes: number(magnitudes) }
    }

    /// The error of the sum of all elements on an engine, in ulps.
    fn error(&self, engine: &Engine) -> Result<f64, String> {
        let tensor = Tensor::from_bytes(self.dtype, &[self.count as i64], &self.bytes);
        let sum =
            tensor.and_then(|tensor| tensor.sum(keepdim(0))).map_err(|error| error.to_string())?;
        let bytes = engine.realize(&[&sum]).and_then(|()| sum.to_bytes());
        let bytes = bytes.map_err(|error| error.to_string())?;
        let mut bits = [0; 8];
        bits[..bytes.len()].copy_from_slice(&bytes);
        let found = Constant::from_bits(self.dtype, u64::from_le_bytes(bits));
        let found = found.to_float().ok_or("no float")?;
        let digits = match self.dtype {
            DType::F64 => 52,
            DType::F32 => 23,
            DType::F16 => 10,
            _ => 7,
        };
        let unit = 2f64.powi(self.magnitudes.log2().floor() as i32 - digits);
        Ok((found - self.exact).abs() / unit)
    }
}

fn main() {
    let max_power =
        std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(DEFAULT_POWER);
    let mut engines: Vec<(String, Engine)> = Vec::new();
    for name in ["interp", "jit", "c", "opencl", "wgpu", "cuda"] {
        match Engine::new(name) {
            Ok(engine) => engines.push((name.to_string(), engine)),
            Err(error) => println!("without {name}: {error}"),
        }
    }
    for name in ["jit", "c"] {
        if let Ok(mut engine) = Engine::new(name) {
            engine.kernel.opts = gradiff::kernel::Strategy::None;
            engines.push((format!("{name} plain"), engine));
        }
    }
    print!("{:5} {:9} {:>11}", "dtype", "data", "elements");
    engines.iter().for_each(|(name, _)| print!(" {name:>9}"));
    println!();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for (data, word) in Data::ALL {
            for (power, extra) in [(8, 0), (10, 0), (14, 0), (20, 0), (20, 7), (24, 0), (28, 0)] {
                if max_power < power || dtype.size_bytes() == 2 && 20 < power {
                    continue;
                }
                let case = Case::new(data, dtype, (1 << power) + extra);
                print!("{dtype:5} {word:9} {:>11}", case.count);
                for (name, engine) in &engines {
                    if name == "interp" && INTERPRETER_POWER < power {
                        print!(" {:>9}", "-");
                        continue;
                    }
                    match case.error(engine) {
                        Ok(error) => print!(" {error:>9.1}"),
                        Err(_) => print!(" {:>9}", "refused"),
                    }
                }
                println!();
            }
        }
    }
}
