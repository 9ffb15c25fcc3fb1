//! exp2, log2, sin, pow and exp without a library, against others: in f32 against the system's
//! functions of f64, on every 1009th float and around all that are special; in f64 against a table
//! of values to twice as many bits (`f64_functions.txt`, made by `f64_functions.py` with mpmath).
//!
//! `GRADIFF_STEP=1 cargo test --release -p gradiff --test transcendental -- --nocapture` tries all
//! floats, with and without fused sums; half an hour. `GRADIFF_TABLE` names another table.

// Helpers of tests are tests, too; the lint does not see it in this kind of crate.
#![allow(clippy::unwrap_used)]

use gradiff::kernel::{FUNCTIONS, Strategy, Target};
use gradiff::rewrite::Mode;
use gradiff::{DType, Engine, Error, Tensor};

/// The most ulps that the head of `transcendental.rs` in the kernel room says; of pow for each
/// doubling of its result as well.
const STATED: [(&str, f64, f64); 5] = [
    ("exp2", 1.3, 2.0),
    ("log2", 1.9, 2.0),
    ("sin", 1.9, 2.0),
    ("pow", 2.0, 2.0),
    ("exp", 1.2, 1.2),
];

/// How many floats go through a kernel at once.
const CHUNK: usize = 1 << 20;

fn stated(name: &str) -> (f64, f64) {
    let row = STATED.iter().find(|(known, ..)| *known == name).unwrap();
    (row.1, row.2)
}

/// The devices that are here, with and without sums in one op, that have no functions.
fn engines() -> Vec<(String, Engine)> {
    let mut engines = Vec::new();
    for (device, mulacc) in [("jit", false), ("jit", true), ("c", false), ("c", true)] {
        let Ok(mut engine) = Engine::new(device) else {
            println!("skipped: no device {device}");
            continue;
        };
        engine.kernel.opts = Strategy::Heuristic;
        let own = Target::of(device);
        engine.target = Target { unsupported: FUNCTIONS, mulacc, fma: mulacc && own.fma, ..own };
        engines.push((format!("{device}, {}", if mulacc { "fused" } else { "plain" }), engine));
    }
    engines
}

/// How far a value is off, in ulps of f32 or f64 at the exact value `high + low`.
fn error_ulp(value: f64, high: f64, low: f64, is_f32: bool) -> f64 {
    let nearest = if is_f32 { f64::from(high as f32) } else { high };
    if value.is_nan() || nearest.is_nan() {
        return if value.is_nan() == nearest.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if value.is_infinite() || nearest.is_infinite() {
        return if value == nearest { 0.0 } else { f64::INFINITY };
    }
    if value == 0.0 && nearest == 0.0 && value.is_sign_negative() != nearest.is_sign_negative() {
        return f64::INFINITY;
    }
    let (least, bits) = if is_f32 { (-126, 23) } else { (-1022, 52) };
    let biased = (high.abs().to_bits() >> 52) as i32;
    let exponent = (biased - 1023).max(least) - bits;
    // In steps: the unit of the smallest numbers is one of them.
    let scale = |x: f64| x * 2f64.powi(-exponent / 2) * 2f64.powi(-exponent - -exponent / 2);
    (scale(value - high) - scale(low)).abs()
}

fn run<T: gradiff::Element>(
    engine: &Engine,
    x: &[T],
    op: impl Fn(&Tensor) -> Result<Tensor, Error>,
) -> Vec<u8> {
    let tensor = Tensor::from_slice(&[x.len() as i64], x).unwrap();
    op(&tensor).unwrap().to_bytes(engine).unwrap()
}

fn f32s(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
}

fn f64s(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()))
}

/// Bits of floats: those around special ones, and every so-manieth of all.
fn inputs() -> impl Iterator<Item = u32> {
    let step = std::env::var("GRADIFF_STEP").map_or(1009, |step| step.parse().unwrap());
    inputs_around_special().chain((0..=u32::MAX).step_by(step))
}

/// Bits of floats: what is special, each power of two and what lies around it, half and whole
/// numbers, and the floats next to multiples of a quarter turn.
fn inputs_around_special() -> impl Iterator<Item = u32> {
    let around = |bits: u32| (0..32u32).map(move |by| bits.wrapping_add(by).wrapping_sub(16));
    let powers = (0..512u32).map(|exponent| exponent << 23);
    let halves = (-400..400).map(|number| (number as f32 / 2.0).to_bits());
    let turns = (1..4000).map(|turn| (f64::from(turn) * std::f64::consts::FRAC_PI_2) as f32);
    powers.chain(halves).chain(turns.map(f32::to_bits)).flat_map(around)
}

type Function = (&'static str, fn(&Tensor) -> Result<Tensor, Error>, fn(f64) -> f64);

const UNARY: [Function; 4] = [
    ("exp2", Tensor::exp2, f64::exp2),
    ("log2", Tensor::log2, f64::log2),
    ("sin", Tensor::sin, f64::sin),
    ("exp", Tensor::exp, f64::exp),
];

#[test]
fn functions_of_f32_are_as_close_as_they_say() {
    check_f32(&engines(), &UNARY, inputs);
}

/// The functions are as close in f32 as the table says, on all engines.
fn check_f32<I: Iterator<Item = u32>>(
    engines: &[(String, Engine)],
    functions: &[Function],
    inputs: impl Fn() -> I,
) {
    for (name, op, exact) in functions {
        let mut worst = vec![(0.0, 0); engines.len()];
        let mut inputs = inputs().peekable();
        while inputs.peek().is_some() {
            let mut bits: Vec<u32> = inputs.by_ref().take(CHUNK).collect();
            bits.resize(CHUNK.min(bits.len().next_multiple_of(64)), 0);
            let x: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits)).collect();
            let exact: Vec<f64> = x.iter().map(|x| exact((*x).into())).collect();
            for ((_, engine), worst) in engines.iter().zip(&mut worst) {
                let values = run(engine, &x, op);
                for ((value, exact), bits) in f32s(&values).zip(&exact).zip(&bits) {
                    let is_nearest = value.to_bits() == (*exact as f32).to_bits();
                    if is_nearest && 0.5 <= worst.0 {
                        continue;
                    }
                    let error = error_ulp(value.into(), *exact, 0.0, true);
                    if error > worst.0 {
                        *worst = (error, *bits);
                    }
                }
            }
        }
        for ((engine, _), (error, bits)) in engines.iter().zip(worst) {
            let x = f32::from_bits(bits);
            println!("{name} of f32 on {engine}: {error:.4} ulp at {x:e} ({bits:#010x})");
            assert!(error < stated(name).0, "{name} on {engine}: {error} ulp at {x:e}");
        }
    }
}

/// The rows of one function: bits of the argument, the value and what rounding has cut off it.
fn table(name: &str) -> Vec<[f64; 3]> {
    let text = match std::env::var("GRADIFF_TABLE") {
        Ok(path) => std::fs::read_to_string(path).unwrap(),
        Err(_) => include_str!("f64_functions.txt").to_owned(),
    };
    let rows = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let float = |word: &str| f64::from_bits(u64::from_str_radix(word, 16).unwrap());
    let row = |row: &str| {
        let words: Vec<f64> = row.split_whitespace().map(float).collect();
        <[f64; 3]>::try_from(words).unwrap()
    };
    rows.map(row).collect()
}

#[test]
fn functions_of_f64_are_as_close_as_they_say() {
    check_f64(&engines(), &UNARY);
}

/// The functions are as close in f64 as the table says, on all engines.
fn check_f64(engines: &[(String, Engine)], functions: &[Function]) {
    for (engine_name, engine) in engines {
        for (name, op, _) in functions {
            let rows = table(name);
            assert!(rows.len() > 100, "{name}: {} rows", rows.len());
            let mut x: Vec<f64> = rows.iter().map(|row| row[0]).collect();
            x.resize(x.len().next_multiple_of(64), 0.0);
            let mut worst = (0.0, 0.0);
            for (value, [x, high, low]) in f64s(&run(engine, &x, op)).zip(rows) {
                let error = error_ulp(value, high, low, false);
                if error > worst.0 {
                    worst = (error, x);
                }
            }
            let (error, x) = worst;
            println!("{name} of f64 on {engine_name}: {error:.4} ulp at {x:e}");
            assert!(error < stated(name).1, "{name} on {engine_name}: {error} ulp at {x:e}");
        }
    }
}

/// The devices that are here with what functions they have: optimised, not so, in strict mode, and
/// each op in a kernel of its own.
fn engines_with_functions() -> Vec<(String, Engine)> {
    let mut engines = Vec::new();
    for device in ["interp", "jit", "c"] {
        for way in ["optimised", "plain", "strict", "unfused"] {
            let Ok(mut engine) = Engine::new(device) else {
                println!("skipped: no device {device}");
                continue;
            };
            match way {
                "plain" => engine.kernel.opts = Strategy::None,
                "strict" => engine.kernel.rewrite.mode = Mode::Strict,
                "unfused" => engine.schedule.fuse = false,
                _ => {}
            }
            engines.push((format!("{device}, {way}"), engine));
        }
    }
    engines
}

#[test]
fn exp_is_as_close_on_devices_that_have_functions() {
    let engines = engines_with_functions();
    let exp = &UNARY[3..];
    // Where results are finite, and beyond.
    let results = (-1100..=900).map(|number| (number as f32 / 10.0).to_bits());
    let inputs = || inputs_around_special().chain(results.clone());
    check_f32(&engines, exp, inputs);
    check_f64(&engines, exp);
}

#[test]
fn exp_of_short_floats_is_the_nearest_one() {
    let bits: Vec<u16> = (0..=u16::MAX).collect();
    for (name, engine) in engines_with_functions() {
        for dtype in [DType::F16, DType::BF16] {
            let x = Tensor::from_slice(&[1 << 16], &bits).unwrap().bitcast(dtype).unwrap();
            let wide = |x: &Tensor| f32_vec(&x.cast(DType::F32).unwrap(), &engine);
            let values = wide(&x.exp().unwrap());
            let numbers = wide(&x);
            for (value, x) in values.into_iter().zip(numbers) {
                let exact = f64::from(x).exp();
                // A unit in the last place of the result; half of it, but for what f32 rounds.
                let (digits, least) = if dtype == DType::F16 { (10, -14) } else { (7, -126) };
                let exponent = exact.log2().floor().clamp(f64::from(least), 1e4);
                let ulp = (exponent - f64::from(digits)).exp2();
                let is_near = (f64::from(value) - exact).abs() <= 0.501 * ulp;
                let most = if dtype == DType::F16 { 65504.0 } else { f64::from(f32::MAX) };
                let is_over = most < exact && value == f32::INFINITY;
                let is_nan = x.is_nan() && value.is_nan();
                assert!(is_near || is_over || is_nan, "exp of {dtype} {x:e} on {name}: {value:e}");
            }
        }
    }
}

fn f32_vec(x: &Tensor, engine: &Engine) -> Vec<f32> {
    x.to_vec(engine).unwrap()
}

/// Dice for pairs, some of them of whole, halved or special numbers.
fn pairs(count: usize) -> (Vec<f64>, Vec<f64>) {
    const SPECIAL: [f64; 13] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -2.5,
        3.0,
        -3.0,
        16777217.0,
        1e-40,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut dice = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 16
    };
    let mut x = Vec::with_capacity(count);
    let mut y = Vec::with_capacity(count);
    for at in 0..count {
        let square = SPECIAL.len() * SPECIAL.len();
        let pair = match (at < square, dice() % 4) {
            (true, _) => (SPECIAL[at / SPECIAL.len()], SPECIAL[at % SPECIAL.len()]),
            (_, 0) => ((dice() % 41) as f64 - 20.0, (dice() % 41) as f64 - 20.0),
            (_, 1) => (f64::from(f32::from_bits(dice() as u32)), (dice() % 17) as f64 / 4.0 - 2.0),
            _ => {
                let (x, y) = (dice() % 65536, dice() % 65536);
                (x as f64 / 4096.0, y as f64 / 2048.0 - 16.0)
            }
        };
        x.push(f64::from(pair.0 as f32));
        y.push(f64::from(pair.1 as f32));
    }
    (x, y)
}

#[test]
fn powers_are_as_close_as_they_say_and_special_as_in_c() {
    let (x, y) = pairs(1 << 18);
    let (x32, y32): (Vec<f32>, Vec<f32>) =
        x.iter().zip(&y).map(|(x, y)| (*x as f32, *y as f32)).unzip();
    for (name, engine) in engines() {
        let of = |values: &mut dyn Iterator<Item = f64>, is_f32: bool| {
            let mut worst = (0.0, 0.0, 0.0);
            for (value, (x, y)) in values.zip(x.iter().zip(&y)) {
                let exact = x.powf(*y);
                let range = if is_f32 { 149.0 } else { 1074.0 };
                let doublings = exact.abs().log2().abs().min(range);
                let doublings = if doublings.is_nan() { 0.0 } else { doublings };
                let (start, each) = stated("pow");
                let error = error_ulp(value, exact, 0.0, is_f32) / (start + each * doublings);
                if error > worst.0 {
                    worst = (error, *x, *y);
                }
            }
            let (error, x, y) = worst;
            let bits = if is_f32 { 32 } else { 64 };
            println!("pow of f{bits} on {name}: {error:.4} of what is allowed at {x:e}, {y:e}");
            assert!(error < 1.0, "pow of f{bits} on {name}: {error} at {x:e}, {y:e}");
        };
        let y_of = |y: &[f32]| Tensor::from_slice(&[y.len() as i64], y).unwrap();
        let values = run(&engine, &x32, |x| x.pow(y_of(&y32)));
        of(&mut f32s(&values).map(f64::from), true);
        let wide = Tensor::from_slice(&[y.len() as i64], &y).unwrap();
        let values = run(&engine, &x, |x| x.pow(&wide));
        of(&mut f64s(&values), false);
    }
}
