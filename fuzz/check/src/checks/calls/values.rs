//! Values of calls that are no statements of programs: conversions between all types, functions of
//! floats, products of matrices, and the ways to read a tensor, against formulas over elements.

use gradiff::graph::target::FUNCTIONS;
use gradiff::graph::{Constant, DType, Op, Target, UOp};
use gradiff::kernel::Strategy;
use gradiff::{Engine, Error, Tensor};
use gradiff_eval::{Elements, graph, linear, scalar};

use super::{Draw, OF_ENGINE, rows};
use crate::backends::refusal::Refusal;
use crate::blame::Crate;
use crate::models::stages::{self, Configuration, Level};

/// The requirement on an element.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    /// These bits; if they are a NaN, any NaN.
    Bits(Constant),
    /// A value, and the largest error allowed; infinities and NaN are required as they are.
    Near(f64, f64),
    /// No requirement.
    Free,
}

impl Wanted {
    fn is_met(self, found: Constant) -> bool {
        let value = scalar::to_float(found);
        match self {
            Wanted::Free => true,
            Wanted::Bits(wanted) => {
                let is_nan = |x: Constant| scalar::to_float(x).is_some_and(f64::is_nan);
                found.bits() == wanted.bits() || is_nan(found) && is_nan(wanted)
            }
            Wanted::Near(wanted, off) => value.is_some_and(|value| {
                value == wanted
                    || value.is_nan() && wanted.is_nan()
                    || wanted.is_finite() && value.is_finite() && (value - wanted).abs() <= off
            }),
        }
    }
}

fn element(dtype: DType, bytes: &[u8]) -> Constant {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    Constant::from_bits(dtype, u64::from_le_bytes(word))
}

pub(super) fn bytes_of(elements: &[Constant]) -> Vec<u8> {
    let bytes = |x: &Constant| x.bits().to_le_bytes().into_iter().take(x.dtype().size_bytes());
    elements.iter().flat_map(bytes).collect()
}

/// An engine on a device in process, at times without optimisations.
fn engine(draw: &mut Draw) -> Engine {
    let device = draw.pick(&["interp", "jit"]);
    engine_on(device, draw)
}

/// An engine on this device in process, at times without optimisations.
pub(super) fn engine_on(device: &str, draw: &mut Draw) -> Engine {
    let mut engine = Engine::new(device).expect("it needs nothing");
    if draw.one_in(3) {
        engine.kernel.opts = Strategy::None;
    }
    engine
}

/// Returns the first element that is not as required, as an error. One that is undefined or was
/// never written meets no requirement.
fn wrong(found: &[Option<Constant>], wanted: &[Wanted]) -> Result<(), String> {
    let mut pairs = found.iter().zip(wanted).enumerate();
    let is_wrong = |found: &Option<Constant>, wanted: &Wanted| match found {
        None => !matches!(wanted, Wanted::Free),
        Some(found) => !wanted.is_met(*found),
    };
    let wrong = pairs.find(|(_, (found, wanted))| is_wrong(found, wanted));
    match wrong {
        Some((at, (found, wanted))) => {
            Err(format!("element {at} is {found:?}, expected {wanted:?}"))
        }
        None if found.len() != wanted.len() => Err(format!("there are {} elements", found.len())),
        None => Ok(()),
    }
}

/// Checks the elements that the kernels for a target without functions evaluate to, which has sums
/// and products in place of them.
fn compare_expanded(label: &str, x: &Tensor, wanted: &[Wanted]) -> Result<(), String> {
    let target = Target { unsupported: FUNCTIONS, ..Target::default() };
    let configuration =
        Configuration { schedule: Default::default(), kernel: Default::default(), target };
    let schedule = stages::scheduled(std::slice::from_ref(x), &configuration)?;
    let run = &mut |ast: &UOp, memories: &mut [Elements]| {
        let kernel = stages::lowered(ast, &configuration)?;
        linear::run(&kernel, memories)
    };
    let found = stages::run(&schedule, &mut Level::Run(run))?;
    wrong(&found[0], wanted).map_err(|problem| {
        format!("{label} without functions: {problem} {OF_ENGINE}{})", Crate::Kernel)
    })
}

/// Checks the elements of a tensor: those that its graph evaluates to, and those that an engine
/// computes.
pub(super) fn compare(
    draw: &mut Draw,
    label: &str,
    x: &Tensor,
    wanted: &[Wanted],
) -> Result<(), String> {
    let in_graph = graph::evaluate(&[x.uop()], &mut stages::contents)?;
    wrong(&in_graph[0], wanted).map_err(|problem| format!("{label}: its graph: {problem}"))?;
    Ok(compare_computed(&engine(draw), label, x, wanted)?)
}

/// Checks the elements of a tensor that an engine computes.
pub(super) fn compare_computed(
    engine: &Engine,
    label: &str,
    x: &Tensor,
    wanted: &[Wanted],
) -> Result<(), Refusal> {
    let graph = [x.uop()];
    let report = |problem: String| {
        let (schedule, kernel) = (engine.schedule, engine.kernel.clone());
        let configuration = stages::Configuration { schedule, kernel, target: engine.target };
        let is_right = |found: &Elements| wrong(found, wanted).is_ok();
        let crate_name = match graph::evaluate(&graph, &mut stages::contents) {
            Ok(found) if !is_right(&found[0]) => Crate::Tensor,
            _ => crate::blame::crate_of_graph(&graph[0], &configuration, &is_right),
        };
        format!("{label} on {}: {problem} {OF_ENGINE}{crate_name})", engine.device.name())
    };
    let read = || engine.realize(&[x]).and_then(|()| x.to_bytes());
    let bytes = match crate::catch(read).map_err(&report)? {
        Err(error) if !error.is_environment() => return Err(report(error.to_string()).into()),
        bytes => bytes.map_err(|error| Refusal::from(error).at(label))?,
    };
    let size = x.dtype().size_bytes();
    let found = bytes.chunks_exact(size).map(|bytes| Some(element(x.dtype(), bytes)));
    let found: Vec<Option<Constant>> = found.collect();
    Ok(wrong(&found, wanted).map_err(report)?)
}

pub(super) fn dtypes() -> Vec<DType> {
    DType::ALL.into_iter().filter(|dtype| *dtype != DType::Void).collect()
}

/// A value of a type near the points where conversions change their result.
pub(super) fn special(draw: &mut Draw, dtype: DType) -> Constant {
    if dtype == DType::Bool {
        return Constant::from_bits(dtype, draw.below(2) as u64);
    }
    if !dtype.is_float() {
        let bits = draw.pick(&[0, 1, 7, 8, 11, 15, 16, 24, 31, 32, 53, 58, 62, 63, 64]);
        // With a lower bit set as well it is halfway between two floats, or a little off that.
        let tie = draw.pick(&[0, 8, 9, 11, 12, 24, 25, 53, 54]);
        let below = if 0 < tie && tie <= bits { 1_i128 << (bits - tie) } else { 0 };
        let near = draw.pick(&[1, -1]) * ((1_i128 << bits) + below) + draw.pick(&[0, 1, -1, 3]);
        return scalar::int(dtype, near).expect("it is an integer's type");
    }
    let ends = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, 1e-40, 6e-8];
    let value = match draw.below(6) {
        5 => draw.near_tie(),
        // The ends of integer types, and values that truncate to them.
        4 => {
            let end = 2f64.powi(draw.pick(&[7, 8, 15, 16, 31, 32, 63, 64]));
            let whole = end + draw.pick(&[0.0, -1.0, -0.5, 1.0, -1.5]);
            draw.pick(&[1.0, -1.0]) * whole
        }
        0 => draw.pick(&ends),
        // Halfway between two values of a narrower type, or nearly.
        1 => {
            let digits = draw.pick(&[8, 11, 24]);
            let whole =
                f64::from(1 << digits) + draw.below(4) as f64 + draw.pick(&[0.5, 0.499, 0.501]);
            draw.pick(&[1.0, -1.0]) * whole * 2f64.powi(draw.pick(&[0, -24, 5, -30]))
        }
        2 => draw.below(600) as f64 - 300.5,
        _ => f64::from_bits(draw.bits() >> 2),
    };
    scalar::float(dtype, value).expect("it is a float's type")
}

/// The value converted to another type; as a bool, whether it is not 0.
pub(super) fn converted(x: Constant, to: DType) -> Option<Constant> {
    let zero = scalar::zero(x.dtype());
    match to {
        _ if x.dtype() == to => Some(x),
        DType::Bool => scalar::evaluate(Op::CmpNe, to, &[x, zero]),
        _ => scalar::evaluate(Op::Cast, to, &[x]),
    }
}

/// Checks a chain of conversions, of data or of a constant, alone or fused with other ops.
pub(super) fn conversions(draw: &mut Draw) -> Result<(), String> {
    let dtypes = dtypes();
    let from = draw.pick(&dtypes);
    let count = if draw.one_in(2) { 5 } else { 16 };
    let constant = draw.one_in(4).then(|| special(draw, from));
    let elements: Vec<Constant> =
        (0..count).map(|_| constant.unwrap_or_else(|| special(draw, from))).collect();
    let shape = [count as i64];
    let tensor = |shape: &[i64], elements: &[Constant]| match constant {
        Some(value) => {
            let scalar = Tensor::from_uop(gradiff::UOp::constant(value))?;
            scalar.reshape(&[1])?.expand(shape)
        }
        None => Tensor::from_bytes(from, shape, &bytes_of(elements)),
    };
    let refused = |error: Error| format!("a conversion is refused: {error}");
    let mut x = tensor(&shape, &elements).map_err(refused)?;
    let mut wanted: Vec<Option<Constant>> = elements.into_iter().map(Some).collect();
    let mut label = format!("{from} of {wanted:?}");
    for _ in 0..1 + draw.below(3) {
        let dtype = x.dtype();
        match draw.below(6) {
            0 if dtype != DType::Bool => {
                x = x.neg().map_err(refused)?;
                wanted = map(&wanted, |x| scalar::evaluate(Op::Neg, dtype, &[x]));
                label += ", negated";
            }
            1 => {
                x = x.cmpne(&x).map_err(refused)?;
                wanted = map(&wanted, |x| scalar::evaluate(Op::CmpNe, DType::Bool, &[x, x]));
                label += ", compared with itself";
            }
            _ => {
                let to = draw.pick(&dtypes);
                x = x.cast(to).map_err(refused)?;
                wanted = map(&wanted, |x| converted(x, to));
                label += &format!(", as {to}");
            }
        }
        if draw.one_in(6) {
            x = x.contiguous();
        }
    }
    let wanted: Vec<Wanted> =
        wanted.into_iter().map(|x| x.map_or(Wanted::Free, Wanted::Bits)).collect();
    compare(draw, &label, &x, &wanted)
}

fn map(
    elements: &[Option<Constant>],
    op: impl Fn(Constant) -> Option<Constant>,
) -> Vec<Option<Constant>> {
    elements.iter().map(|x| x.and_then(&op)).collect()
}

/// Drawn numbers, rounded to a type.
fn numbers(draw: &mut Draw, dtype: DType, count: usize) -> Vec<f64> {
    let number = |_| {
        let value = (draw.below(400) as f64 - 200.0) / draw.pick(&[1.0, 16.0, 64.0]);
        let rounded = scalar::float(dtype, value).and_then(scalar::to_float);
        rounded.expect("it is a float's type")
    };
    (0..count).map(number).collect()
}

/// A tensor of these numbers, which are integers if it is not of floats.
pub(super) fn tensor_of(dtype: DType, shape: &[i64], numbers: &[f64]) -> Result<Tensor, Error> {
    let elements: Vec<Constant> = numbers.iter().map(|value| number(dtype, *value)).collect();
    Tensor::from_bytes(dtype, shape, &bytes_of(&elements))
}

/// The element of this value, which is an integer if it is not of a float type.
pub(super) fn number(dtype: DType, value: f64) -> Constant {
    let float = scalar::float(dtype, value);
    float.or_else(|| scalar::int(dtype, value as i128)).expect("it has numbers")
}

/// A tensor of these integers.
pub(super) fn integers_of(
    dtype: DType,
    shape: &[usize],
    numbers: &[i128],
) -> Result<Tensor, Error> {
    let element = |number: &i128| scalar::number(dtype, *number).expect("it has numbers");
    let elements: Vec<Constant> = numbers.iter().map(element).collect();
    Tensor::from_bytes(dtype, &rows::sizes(shape), &bytes_of(&elements))
}

/// The requirement that elements are these integers.
pub(super) fn exactly(dtype: DType, numbers: &[i128]) -> Vec<Wanted> {
    numbers.iter().map(|number| bits(dtype, *number)).collect()
}

/// The value with the error that a function of floats is allowed here: some units in the last place
/// of the larger of the value and of `scale`, the magnitude of its parts.
fn near(dtype: DType, value: f64, scale: f64) -> Wanted {
    let digits = match dtype {
        DType::BF16 => 8,
        DType::F16 => 11,
        DType::F32 => 24,
        // Some devices compute in f32: constants of the formulas are f64, but exp2 and log2 need
        // not be exact to the last digits.
        _ => 40,
    };
    let unit = 2f64.powi(1 - digits);
    let tiny = if dtype == DType::F16 { 2f64.powi(-22) } else { 1e-36 };
    // A value beyond the largest f16 may be infinite.
    match dtype {
        DType::F16 if 60_000.0 < value.abs() || 60_000.0 < scale => Wanted::Free,
        _ => Wanted::Near(value, 16.0 * unit * value.abs().max(scale) + tiny),
    }
}

/// Checks functions of each element.
pub(super) fn functions(draw: &mut Draw) -> Result<(), String> {
    type Function = (&'static str, fn(&Tensor) -> Result<Tensor, Error>, fn(f64) -> f64);
    let rows: [Function; 4] = [
        ("exp", Tensor::exp, f64::exp),
        ("log", Tensor::log, f64::ln),
        ("sigmoid", Tensor::sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
        ("relu", Tensor::relu, |x| x.max(0.0)),
    ];
    let dtype = draw.pick(&[DType::F32, DType::F64, DType::F16, DType::BF16]);
    let (name, call, formula) = draw.pick(&rows);
    let mut values = numbers(draw, dtype, 6);
    // Beyond 20, e^x is near the ends of the types.
    values.iter_mut().filter(|x| 20.0 < x.abs()).for_each(|x| *x = x.signum() * 2.5);
    let x = tensor_of(dtype, &[6], &values).and_then(|x| call(&x));
    let x = x.map_err(|error| error.to_string())?;
    let wanted: Vec<Wanted> = values
        .iter()
        .map(|x| match name {
            "relu" => near(dtype, formula(*x), 0.0),
            // Near 1 the error of the logarithm is that of its factors.
            "log" => near(dtype, formula(*x), 1.0 / 16.0),
            // An error of the exponent is multiplied by the result.
            _ => near(dtype, formula(*x), formula(*x) * (x.abs() + 1.0)),
        })
        .collect();
    compare(draw, &format!("{name} of {dtype} {values:?}"), &x, &wanted)
}

/// The largest finite number of a type of floats.
pub(super) fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 255.0 * 2f64.powi(120),
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}

/// A number of any magnitude of a type, half of the time within 2^-40..2^40.
fn of_any_magnitude(draw: &mut Draw, dtype: DType) -> f64 {
    let largest = largest(dtype);
    let special = [largest, 0.0, f64::INFINITY, f64::NAN, 1.0, 0.5];
    let exponent = match draw.below(8) {
        0 => None,
        1..=4 => Some(draw.below(80) as i32 - 40),
        _ => Some(draw.below(2 * largest.log2() as usize) as i32 - largest.log2() as i32),
    };
    let magnitude = match exponent {
        None => draw.pick(&special),
        Some(exponent) => (1.0 + draw.below(1 << 16) as f64 / 65536.0) * 2f64.powi(exponent),
    };
    let value = if draw.one_in(3) { -magnitude } else { magnitude };
    scalar::float(dtype, value).and_then(scalar::to_float).expect("it is a float's type")
}

/// A number near a multiple of pi: the result is the difference, with all its digits.
fn near_zero_of_sine(draw: &mut Draw, dtype: DType) -> f64 {
    let digits = 4 + draw.below(12);
    let value = draw.below(1 << digits) as f64 * std::f64::consts::PI;
    let rounded = scalar::float(dtype, value).and_then(scalar::to_float);
    rounded.expect("it is a float's type")
}

/// The requirement on 2^x, up to the ends of the type. For any x the oracle allows 4 ulps of f32 or
/// 5 of f64, and one rounding to 16 bits; here 16 are allowed, as in `near`. Subnormal numbers are
/// not flushed. So near to the largest number that the error reaches it, any result is right.
fn power_of_two(dtype: DType, x: f64) -> Wanted {
    let value = x.exp2();
    let (digits, least) = match dtype {
        DType::F16 => (11, 2f64.powi(-24)),
        DType::BF16 => (8, 2f64.powi(-133)),
        DType::F32 => (24, 2f64.powi(-149)),
        // As in `near`.
        _ => (40, f64::from_bits(1)),
    };
    let unit = 2f64.powi(1 - digits);
    let rounding = if digits < 24 { unit } else { 0.0 };
    let off = value * (16.0 * unit.min(2f64.powi(-23)) + rounding) + 2.0 * least;
    let largest = largest(dtype);
    match () {
        () if !x.is_finite() => Wanted::Near(value, 0.0),
        () if value + off <= largest => Wanted::Near(value, off),
        () if largest.log2() + 1.0 <= x => Wanted::Near(f64::INFINITY, 0.0),
        () => Wanted::Free,
    }
}

/// Checks functions of numbers of all magnitudes, of which some change their formula at a limit.
pub(super) fn functions_of_all_magnitudes(draw: &mut Draw) -> Result<(), String> {
    type Function = (&'static str, fn(&Tensor) -> Result<Tensor, Error>, fn(f64) -> f64);
    // The largest numbers overflow in the formulas of the library.
    let doubled = |x: f64| x.ln() + std::f64::consts::LN_2;
    let rows: [Function; 9] = [
        ("sin", Tensor::sin, f64::sin),
        ("sqrt", Tensor::sqrt, f64::sqrt),
        ("rsqrt", Tensor::rsqrt, |x| 1.0 / x.sqrt()),
        ("exp2", Tensor::exp2, f64::exp2),
        ("log2", Tensor::log2, f64::log2),
        ("tanh", Tensor::tanh, f64::tanh),
        ("atanh", Tensor::atanh, f64::atanh),
        ("asinh", Tensor::asinh, f64::asinh),
        ("acosh", Tensor::acosh, f64::acosh),
    ];
    let dtype = draw.pick(&[DType::F32, DType::F64, DType::F64, DType::F16, DType::BF16]);
    let (name, call, formula) = draw.pick(&rows);
    // Sine is reduced by a multiple of pi/2, with a carry for few numbers.
    let count = if name == "sin" { 64 } else { 6 };
    let values = (0..count).map(|_| match name {
        "sin" if draw.one_in(2) => near_zero_of_sine(draw, dtype),
        _ => of_any_magnitude(draw, dtype),
    });
    let values: Vec<f64> = values.collect();
    let x = tensor_of(dtype, &[count], &values).and_then(|x| call(&x));
    let x = x.map_err(|error| error.to_string())?;
    let wanted = |x: &f64| {
        let value = match name {
            "asinh" if 1e8 < x.abs() => doubled(x.abs()).copysign(*x),
            "acosh" if 1e8 < *x => doubled(*x),
            _ => formula(*x),
        };
        let rounded = scalar::float(dtype, value).and_then(scalar::to_float);
        match name {
            "exp2" => power_of_two(dtype, *x),
            _ if !value.is_finite() => Wanted::Near(value, 0.0),
            _ if rounded.is_some_and(f64::is_finite) => near(dtype, value, 0.0),
            _ => Wanted::Free,
        }
    };
    let wanted: Vec<Wanted> = values.iter().map(wanted).collect();
    let label = format!("{name} of {dtype} {values:?}");
    compare_expanded(&label, &x, &wanted)?;
    compare(draw, &label, &x, &wanted)
}

/// Checks powers of numbers and exponents at which C's `pow` changes: signs, odd and even integers
/// beyond the digits of the type, zeros, infinities and NaN.
pub(super) fn powers(draw: &mut Draw) -> Result<(), String> {
    let dtype = draw.pick(&[DType::F32, DType::F64]);
    let digits = if dtype == DType::F32 { 24 } else { 53 };
    let rounded =
        |value: f64| scalar::float(dtype, value).and_then(scalar::to_float).expect("a float");
    let special = |draw: &mut Draw| {
        draw.pick(&[0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.5, -0.5])
    };
    let count = 6;
    let bases: Vec<f64> = (0..count)
        .map(|_| match draw.below(3) {
            0 => special(draw),
            _ => rounded((draw.below(64) as f64 - 32.0) / 8.0),
        })
        .collect();
    let exponents: Vec<f64> = (0..count)
        .map(|_| match draw.below(4) {
            0 => special(draw),
            1 => (draw.below(17) as f64 - 8.0) / draw.pick(&[1.0, 2.0]),
            _ => {
                // Integers with about as many digits as the type has.
                let power =
                    2f64.powi(draw.pick(&[1, 8, digits - 2, digits - 1, digits, digits + 1]));
                let sign = draw.pick(&[1.0, -1.0]);
                rounded(sign * (power + draw.below(7) as f64 - 3.0))
            }
        })
        .collect();
    let [x, y] = [&bases, &exponents].map(|values| tensor_of(dtype, &[count], values));
    let power = x.and_then(|x| x.pow(&y?)).map_err(|error| error.to_string())?;
    let largest = if dtype == DType::F32 { 1e37 } else { 1e300 };
    let wanted: Vec<Wanted> = bases
        .iter()
        .zip(&exponents)
        .map(|(x, y)| {
            let value = x.powf(*y);
            let is_finite = value == 0.0 || (1.0 / largest..largest).contains(&value.abs());
            let is_exact = matches!(x.abs(), 0.0 | 1.0) || x.is_infinite() || value.is_nan();
            match is_exact || *y == 0.0 || y.is_infinite() {
                true => Wanted::Near(value, 0.0),
                // Near the ends of the type the result may be 0 or infinite.
                false if !is_finite || value == 0.0 => Wanted::Free,
                false => near(dtype, value, value.abs() * (1.0 + value.abs().log2().abs())),
            }
        })
        .collect();
    compare(draw, &format!("{dtype} {bases:?} to the power of {exponents:?}"), &power, &wanted)
}

/// Checks functions of the rows or columns of a matrix: softmax, its logarithm, means.
pub(super) fn rows_of_numbers(draw: &mut Draw) -> Result<(), String> {
    let dtype = draw.pick(&[DType::F32, DType::F64, DType::F16, DType::BF16]);
    let (rows, columns) = (1 + draw.below(3), 1 + draw.below(5));
    let mut values = numbers(draw, dtype, rows * columns);
    values.iter_mut().filter(|x| 8.0 < x.abs()).for_each(|x| *x = x.signum() * 1.5);
    let axis = draw.below(2);
    // The row or column of an element.
    let line = |at: usize| -> Vec<f64> {
        match axis {
            0 => (0..rows).map(|row| values[row * columns + at % columns]).collect(),
            _ => values[at / columns * columns..][..columns].to_vec(),
        }
    };
    let shape = [rows as i64, columns as i64];
    let x = tensor_of(dtype, &shape, &values).map_err(|error| error.to_string())?;
    let function = draw.below(4);
    let call = match function {
        0 => x.softmax(axis as i64),
        1 => x.log_softmax(axis as i64),
        2 => x.mean(axis as i64),
        _ => x.mean(..),
    };
    let call = call.map_err(|error| error.to_string())?;
    let total = |line: &[f64]| line.iter().map(|x| x.exp()).sum::<f64>();
    let mean = |line: &[f64]| line.iter().sum::<f64>() / line.len() as f64;
    let largest = |line: &[f64]| line.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    let each = |formula: &dyn Fn(f64, &[f64]) -> f64| -> Vec<Wanted> {
        let near = |at: usize| near(dtype, formula(values[at], &line(at)), 1.0);
        (0..values.len()).map(near).collect()
    };
    let (name, wanted) = match function {
        0 => ("softmax", each(&|x, line| x.exp() / total(line))),
        1 => ("log_softmax", {
            let near = |at: usize| {
                let value = values[at] - total(&line(at)).ln();
                near(dtype, value, 1.0 + largest(&values))
            };
            (0..values.len()).map(near).collect()
        }),
        2 => {
            let lines = if axis == 0 { 0..columns } else { 0..rows };
            let first = |number: usize| if axis == 0 { number } else { number * columns };
            let near = |number: usize| {
                let line = line(first(number));
                near(dtype, mean(&line), largest(&line) * line.len() as f64)
            };
            ("mean", lines.map(near).collect())
        }
        _ => {
            let scale = largest(&values) * values.len() as f64;
            ("mean of all", vec![near(dtype, mean(&values), scale)])
        }
    };
    let label = format!("{name} along axis {axis} of {dtype} {shape:?} {values:?}");
    compare(draw, &label, &call, &wanted)
}

/// A tensor of small integers, consecutive in row-major order.
struct Grid {
    tensor: Tensor,
    shape: Vec<usize>,
    values: Vec<i128>,
}

fn grid(draw: &mut Draw, dtype: DType, shape: Vec<usize>) -> Result<Grid, Error> {
    let first = draw.below(5) as i128;
    let count: usize = shape.iter().product();
    let values: Vec<i128> = (0..count as i128).map(|at| at + first).collect();
    Ok(Grid { tensor: integers_of(dtype, &shape, &values)?, shape, values })
}

fn bits(dtype: DType, value: i128) -> Wanted {
    Wanted::Bits(scalar::number(dtype, value).expect("it has numbers"))
}

/// Checks calls that move integers or make them.
pub(super) fn integers(draw: &mut Draw) -> Result<(), String> {
    let dtype = draw.pick(&[DType::I32, DType::U8, DType::I64, DType::U16, DType::I8]);
    let [b, m, n] = [0; 3].map(|_| 1 + draw.below(3));
    let x = grid(draw, dtype, vec![b, m, n]).map_err(|error| error.to_string())?;
    let at = |b: usize, i: usize, j: usize| x.values[(b * m + i) * n + j];
    let (name, tensor, wanted): (&str, Result<Tensor, Error>, Vec<i128>) = match draw.below(5) {
        0 => {
            let from = (0..b * n * m).map(|flat| at(flat / (n * m), flat % m, flat / m % n));
            ("transpose", x.tensor.transpose(-2, 2), from.collect())
        }
        1 => {
            let axis = draw.below(4);
            let unsqueezed = x.tensor.unsqueeze(axis as i64);
            ("squeeze", unsqueezed.and_then(|x| x.squeeze(axis as i64)), x.values.clone())
        }
        2 => {
            let (value, count) = (draw.below(2) as i128, b * m * n);
            let shape = [b as i64, m as i64, n as i64];
            let make = if value == 0 { Tensor::zeros } else { Tensor::ones };
            ("zeros or ones", make(dtype, &shape), vec![value; count])
        }
        3 => {
            let [start, step] = [0; 2].map(|_| draw.pick(&[0, 1, -1, 5, -300, i64::MAX]));
            let each = (0..b * m * n).map(|i| i128::from(start) + i as i128 * i128::from(step));
            let tensor = Tensor::arange(dtype, start, step, (b * m * n) as i64);
            ("arange", tensor, each.collect())
        }
        _ => return matmul(draw, &x),
    };
    let tensor = tensor.map_err(|error| format!("{name}: {error}"))?;
    let label = format!("{name} of {dtype} {:?}", x.shape);
    compare(draw, &label, &tensor, &exactly(dtype, &wanted))
}

/// Checks the product of matrices with one matrix, or with as many.
fn matmul(draw: &mut Draw, x: &Grid) -> Result<(), String> {
    let dtype = x.tensor.dtype();
    let [b, m, k] = x.shape[..] else { return Ok(()) };
    let n = 1 + draw.below(3);
    let is_one = draw.one_in(2);
    let outer = if is_one { 1 } else { b };
    let y = grid(draw, dtype, vec![outer, k, n]).map_err(|error| error.to_string())?;
    let right = if is_one && draw.one_in(2) { y.tensor.squeeze(0) } else { Ok(y.tensor.clone()) };
    let product = right.and_then(|right| x.tensor.matmul(&right)).map_err(|e| e.to_string())?;
    let (sum, size) = (product.dtype(), k);
    let element = |flat: usize| {
        let (b, i, j) = (flat / (m * n), flat / n % m, flat % n);
        // Products are of the narrow type, sums of the wide one.
        let term = |at: usize| {
            let product =
                x.values[(b * m + i) * size + at] * y.values[((b % outer) * size + at) * n + j];
            scalar::int(dtype, product).and_then(scalar::to_int).unwrap_or(0)
        };
        bits(sum, (0..size).map(term).sum())
    };
    let wanted: Vec<Wanted> = (0..b * m * n).map(element).collect();
    let label = format!("matmul of {dtype} {:?} and {:?}", x.shape, y.shape);
    compare(draw, &label, &product, &wanted)
}

/// Reads a tensor as bytes, as elements, as an array and as text.
pub(super) fn readings(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let rank = draw.below(4);
    let shape: Vec<usize> = (0..rank).map(|_| draw.pick(&[2, 1, 3, 4, 2, 0])).collect();
    let sizes: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
    let count: usize = shape.iter().product();
    let values: Vec<i32> = (0..count).map(|_| draw.bits() as i32 >> draw.below(32)).collect();
    let engine = engine(draw);
    let base = Tensor::from_slice(&sizes, &values).map_err(problem)?;
    let is_lazy = draw.one_in(2);
    let x = if is_lazy { base.neg().map_err(problem)? } else { base };
    let wanted: Vec<i32> = match is_lazy {
        true => values.iter().map(|value| value.wrapping_neg()).collect(),
        false => values,
    };
    let label = format!("i32{shape:?}");
    let (rank, elements) = (x.rank(), x.size_elements());
    if rank != shape.len() || elements != count as i64 {
        return Err(format!("{label} has {rank} axes and {elements} elements"));
    }
    // Otherwise the read computes it, on the default device.
    if draw.one_in(2) {
        engine.realize(&[&x]).map_err(problem)?;
    } else if is_lazy && draw.one_in(2) {
        // Realised together with others, and with itself.
        let sum = x.add(1).map_err(problem)?;
        engine.realize(&[&sum, &x, &x]).map_err(problem)?;
        let found = sum.to_bytes().map_err(problem)?;
        let incremented = |value: &i32| value.wrapping_add(1).to_le_bytes();
        if found != wanted.iter().flat_map(incremented).collect::<Vec<u8>>() {
            return Err(format!("{label} plus 1 is {found:?}"));
        }
    }
    let wrong =
        |how: &str, found: String| Err(format!("{label} {how} is {found}, expected {wanted:?}"));
    let read = |how: usize| -> Result<(), String> {
        match how {
            0 => {
                let found = x.to_vec::<i32>().map_err(problem)?;
                if found != wanted { wrong("as elements", format!("{found:?}")) } else { Ok(()) }
            }
            1 => {
                let found = x.to_ndarray::<i32>().map_err(problem)?;
                let elements: Vec<i32> = found.iter().copied().collect();
                let is_right = found.shape() == shape && elements == wanted;
                if is_right { Ok(()) } else { wrong("as an array", format!("{found:?}")) }
            }
            2 => {
                let found = x.to_text().map_err(problem)?;
                let is_right = found == nested(&shape, &mut wanted.iter());
                if is_right { Ok(()) } else { wrong("as text", found) }
            }
            _ => {
                let found = x.to_bytes().map_err(problem)?;
                let bytes: Vec<u8> = wanted.iter().flat_map(|value| value.to_le_bytes()).collect();
                if found == bytes { Ok(()) } else { wrong("as bytes", format!("{found:?}")) }
            }
        }
    };
    read(draw.below(4))?;
    read(draw.below(4))
}

/// The elements as text, in nested lists.
fn nested(shape: &[usize], elements: &mut std::slice::Iter<'_, i32>) -> String {
    let Some((size, inner)) = shape.split_first() else {
        return elements.next().map_or(String::new(), i32::to_string);
    };
    let lists: Vec<String> = (0..*size).map(|_| nested(inner, elements)).collect();
    format!("[{}]", lists.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinities_are_required_as_they_are() {
        let infinity = f64::INFINITY;
        let meets = |found: f64, wanted: Wanted| {
            wanted.is_met(scalar::float(DType::F32, found).expect("a float"))
        };
        assert!(meets(infinity, Wanted::Near(infinity, 0.0)));
        assert!(meets(1.5, Wanted::Near(1.0, 0.5)) && !meets(1.6, Wanted::Near(1.0, 0.5)));
        for found in [1.0, -infinity, f64::NAN] {
            assert!(!meets(found, Wanted::Near(infinity, infinity)), "{found}");
        }
        assert!(!meets(infinity, Wanted::Near(1.0, infinity)));
    }

    #[test]
    fn powers_of_two_are_required_up_to_the_ends_of_types() {
        let meets = |dtype: DType, x: f64, found: f64| {
            power_of_two(dtype, x).is_met(scalar::float(dtype, found).expect("a float"))
        };
        let infinity = f64::INFINITY;
        // The last number of each row is wrong.
        for (dtype, x, found) in [
            (DType::F32, 100.0, [2f64.powi(100), 2f64.powi(100) * 1.01]),
            (DType::F32, -140.0, [2f64.powi(-140), 0.0]),
            (DType::F32, 129.0, [infinity, f64::from(f32::MAX)]),
            (DType::F16, 15.5, [15.5f64.exp2(), 15.5f64.exp2() * 1.01]),
            (DType::F16, -20.0, [2f64.powi(-20), 0.0]),
            (DType::BF16, 100.0, [2f64.powi(100), 2f64.powi(100) * 1.02]),
            (DType::F64, -700.0, [2f64.powi(-700), 2f64.powi(-701)]),
            (DType::F64, 1025.0, [infinity, f64::MAX]),
            (DType::F64, f64::NEG_INFINITY, [0.0, 1e-300]),
        ] {
            assert!(meets(dtype, x, found[0]), "{dtype} {x}");
            assert!(!meets(dtype, x, found[1]), "{dtype} {x}");
        }
        assert!(power_of_two(DType::F32, f64::NAN).is_met(Constant::float(DType::F32, f64::NAN)));
    }

    #[test]
    fn tensors_are_blamed_for_graphs_of_wrong_elements() {
        let x = integers_of(DType::I32, &[2], &[1, 2]).and_then(|x| x.add(1)).expect("it is legal");
        let engine = engine_on("interp", &mut Draw::new(0));
        let checked = compare_computed(&engine, "x", &x, &exactly(DType::I32, &[2, 4]));
        let problem = String::from(checked.expect_err("the last element is 3"));
        assert_eq!(super::super::crate_of_calls(&problem), Crate::Tensor, "{problem}");
    }

    #[test]
    fn undefined_elements_are_wrong_where_a_value_is_required() {
        let number = scalar::int(DType::I32, 1).expect("an integer");
        assert!(wrong(&[Some(number)], &[Wanted::Bits(number)]).is_ok());
        assert!(wrong(&[None], &[Wanted::Free]).is_ok());
        for wanted in [Wanted::Bits(number), Wanted::Near(1.0, 0.5)] {
            assert!(wrong(&[None], &[wanted]).is_err(), "{wanted:?}");
        }
    }
}
