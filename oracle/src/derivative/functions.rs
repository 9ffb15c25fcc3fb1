//! Derivatives of elementwise functions: a row for each, a formula of scalars, so that derivatives
//! have derivatives. Where a function has no derivative, the row says which number stands for it.

use std::cmp::Ordering;

use gradiff_corpus::{BinaryOp, Method, UnaryOp};

use super::scalars::{Function, Id, Scalars, WIDE};
use crate::arithmetic::{self, neg, order};
use crate::cell::{Cell, Reason};
use crate::methods::elementwise::{magnitude, whole_cell};
use crate::methods::{activation, elementary};
use crate::transcendental;

/// Roundings that an engine's formula of a function may have: 4 ulps.
const ROUNDINGS: f64 = 8.0;
/// The factors of `selu`, tinygrad's.
const SELU_GAMMA: f64 = 1.0507;
const SELU_ALPHA: f64 = 1.67326;

/// Returns the value of a function that occurs in formulas.
///
/// # Panics
/// If it does not.
pub(super) fn value(function: Function, sources: &[Cell]) -> Cell {
    let x = sources[0];
    match function {
        Function::Unary(UnaryOp::Sqrt) => arithmetic::sqrt(WIDE, x),
        Function::Unary(UnaryOp::Sin) => transcendental::sin(WIDE, x),
        Function::Binary(BinaryOp::Div) => arithmetic::div(WIDE, x, sources[1]),
        Function::Binary(BinaryOp::Pow) if is_exactly(sources[1], 1.0) => x,
        Function::Binary(BinaryOp::Pow) => transcendental::pow(WIDE, x, sources[1]),
        Function::Method(Method::Abs) => magnitude(x),
        Function::Method(Method::Trunc) => whole_cell(x, f64::trunc),
        Function::Method(Method::Exp) => elementary::exp(WIDE, x),
        Function::Method(Method::Log) => elementary::log(WIDE, x),
        Function::Method(Method::Cos) => elementary::cos(WIDE, x),
        Function::Method(Method::Sinh) => elementary::sinh(WIDE, x),
        Function::Method(Method::Cosh) => elementary::cosh(WIDE, x),
        Function::Method(Method::Tanh) => elementary::tanh(WIDE, x),
        Function::Method(Method::Sigmoid) => activation::exact_sigmoid(WIDE, x),
        Function::Method(Method::Softplus) => activation::log_of_power_and_one(WIDE, x),
        _ => panic!("{function:?} occurs in no formula"),
    }
}

/// Returns the magnitude, if it is larger than the function's, that its error is relative to.
pub(super) fn scale(function: Function) -> f64 {
    match function {
        Function::Unary(UnaryOp::Sin) | Function::Method(Method::Cos) => 1.0,
        _ => 0.0,
    }
}

/// Returns the roundings of a function that occurs in formulas.
pub(super) fn roundings(function: Function, value: Cell) -> f64 {
    match (function, value) {
        (Function::Binary(BinaryOp::Pow), Cell::Real(real)) if real.hi != 0.0 => {
            ROUNDINGS * (1.0 + real.hi.abs().log2().abs())
        }
        (Function::Unary(UnaryOp::Sqrt) | Function::Binary(BinaryOp::Div), _) => 1.0,
        (Function::Method(Method::Abs | Method::Trunc), _) => 0.0,
        _ => ROUNDINGS,
    }
}

/// Returns the magnitudes of the derivatives of a function that occurs in formulas.
pub(super) fn slopes(function: Function, sources: &[Cell], value: Cell) -> [f64; 2] {
    let center = |cell: Option<&Cell>| match cell {
        Some(Cell::Real(real)) => real.hi.abs(),
        _ => 0.0,
    };
    let (x, y, value) = (center(sources.first()), center(sources.get(1)), center(Some(&value)));
    let first = match function {
        Function::Unary(UnaryOp::Sqrt) => 0.5 / value,
        Function::Binary(BinaryOp::Div) => return [1.0 / y, value / y],
        Function::Binary(BinaryOp::Pow) if x == 0.0 => 1.0,
        Function::Binary(BinaryOp::Pow) => return [y * value / x, value * x.ln().abs()],
        Function::Method(Method::Trunc) => 0.0,
        Function::Method(Method::Exp) => value,
        Function::Method(Method::Log) => 1.0 / x,
        Function::Method(Method::Sinh) => x.cosh(),
        Function::Method(Method::Cosh) => x.sinh(),
        Function::Method(Method::Tanh) => (1.0 - value * value).max(0.0),
        Function::Method(Method::Sigmoid) => value * (1.0 - value),
        _ => 1.0,
    };
    [first, 0.0]
}

/// Returns the derivative of a function, which gives `result`, with respect to source `number`.
pub(super) fn partial(
    scalars: &mut Scalars,
    function: Function,
    sources: &[Id],
    result: Id,
    number: usize,
) -> Id {
    // Outside of its domain a function has no derivative. Sums are finite differences of infinities
    // too, so their derivatives stay.
    let is_sum = matches!(function, Function::Binary(BinaryOp::Add | BinaryOp::Sub));
    match scalars.cell(result) {
        Cell::Nan(_) if !is_sum => return scalars.unspecified(Reason::Derivative),
        Cell::Unspecified(reason) if !is_sum => return scalars.unspecified(reason),
        _ => {}
    }
    let found = match function {
        Function::Unary(op) => Ok(unary(scalars, op, sources[0], result)),
        Function::Binary(op) => binary(scalars, op, [sources[0], sources[1]], result, number),
        Function::Method(method) => self::method(scalars, method, sources, result, number),
    };
    found.unwrap_or_else(|reason| scalars.unspecified(reason))
}

fn unary(s: &mut Scalars, op: UnaryOp, x: Id, result: Id) -> Id {
    match op {
        UnaryOp::Neg => Id::MINUS_ONE,
        UnaryOp::Exp2 => {
            let scale = s.constant(std::f64::consts::LN_2);
            s.mul(result, scale)
        }
        UnaryOp::Log2 => inverse_of_scaled(s, x, std::f64::consts::LN_2),
        UnaryOp::Sin => s.method(Method::Cos, x),
        UnaryOp::Sqrt => {
            let half = s.exact(0.5);
            s.div(half, result)
        }
        UnaryOp::Recip => {
            let square = s.mul(result, result);
            s.neg(square)
        }
        UnaryOp::Not => Id::ZERO,
    }
}

/// `1 / (x * scale)`.
fn inverse_of_scaled(s: &mut Scalars, x: Id, scale: f64) -> Id {
    let scale = s.constant(scale);
    let product = s.mul(x, scale);
    s.div(Id::ONE, product)
}

fn binary(
    s: &mut Scalars,
    op: BinaryOp,
    [x, y]: [Id; 2],
    result: Id,
    number: usize,
) -> Result<Id, Reason> {
    Ok(match (op, number) {
        (BinaryOp::Add, _) | (BinaryOp::Sub, 0) => Id::ONE,
        (BinaryOp::Sub, _) => Id::MINUS_ONE,
        (BinaryOp::Mul, 0) => y,
        (BinaryOp::Mul, _) => x,
        (BinaryOp::Div, 0) => s.div(Id::ONE, y),
        (BinaryOp::Div, _) => {
            let quotient = s.div(result, y);
            s.neg(quotient)
        }
        (BinaryOp::Pow, 0) if is_exactly(s.cell(y), 0.0) => Id::ZERO,
        (BinaryOp::Pow, 0) => {
            let less = s.sub(y, Id::ONE);
            let power = s.call(Function::Binary(BinaryOp::Pow), &[x, less]);
            s.mul(y, power)
        }
        (BinaryOp::Pow, _) => {
            let is_zero = is_exactly(s.cell(x), 0.0);
            if is_zero && at_most(s, Id::ZERO, y)? {
                Id::ZERO
            } else {
                let log = s.method(Method::Log, x);
                s.mul(result, log)
            }
        }
        (BinaryOp::Max | BinaryOp::Min, _) => {
            let shares = shares(s, &[x, y], op == BinaryOp::Max);
            s.exact(shares[number]?)
        }
        _ => Id::ZERO,
    })
}

fn method(
    s: &mut Scalars,
    method: Method,
    sources: &[Id],
    y: Id,
    number: usize,
) -> Result<Id, Reason> {
    let x = sources[0];
    let second = sources.get(1).copied().unwrap_or(Id::ZERO);
    Ok(match method {
        // 0 at 0.
        Method::Abs => match compare(s, x, Id::ZERO)? {
            Ordering::Less => Id::MINUS_ONE,
            Ordering::Equal => Id::ZERO,
            Ordering::Greater => Id::ONE,
        },
        Method::Square => s.add(x, x),
        // 1 within the bounds and at them.
        Method::Clamp => {
            let is_inside = !(below(s, x, second)? || below(s, sources[2], x)?);
            if is_inside { Id::ONE } else { Id::ZERO }
        }
        // 0 at the bounds.
        Method::HardTanh => strictly_between(s, x, second, sources[2])?,
        Method::Relu6 => {
            let end = s.exact(6.0);
            strictly_between(s, x, Id::ZERO, end)?
        }
        Method::HardSigmoid => {
            let (low, high) = (s.exact(-3.0), s.exact(3.0));
            let inside = strictly_between(s, x, low, high)?;
            let slope = s.constant(1.0 / 6.0);
            if inside == Id::ONE { slope } else { Id::ZERO }
        }
        // The branches meet at -3, but not at 3, where the derivative is 1.
        Method::HardSwish => {
            let (low, high) = (s.exact(-3.0), s.exact(3.0));
            if at_most(s, x, low)? {
                Id::ZERO
            } else if at_most(s, high, x)? {
                Id::ONE
            } else {
                let (third, half) = (s.constant(1.0 / 3.0), s.exact(0.5));
                s.terms(&[(x, third), (half, Id::ONE)])
            }
        }
        // At 0 the derivative is that below.
        Method::Relu => {
            if below(s, Id::ZERO, x)? {
                Id::ONE
            } else {
                Id::ZERO
            }
        }
        Method::LeakyRelu => {
            if below(s, Id::ZERO, x)? {
                Id::ONE
            } else {
                second
            }
        }
        Method::Elu => {
            if below(s, Id::ZERO, x)? {
                Id::ONE
            } else {
                s.add(y, second)
            }
        }
        Method::Celu => {
            if below(s, Id::ZERO, x)? {
                Id::ONE
            } else {
                let quotient = s.div(y, second);
                s.add(quotient, Id::ONE)
            }
        }
        Method::Selu => {
            if below(s, Id::ZERO, x)? {
                s.constant(SELU_GAMMA)
            } else {
                let scale = s.constant(SELU_GAMMA * SELU_ALPHA);
                s.add(y, scale)
            }
        }
        Method::CopySign => match number {
            0 => {
                let magnitude_slope = match compare(s, x, Id::ZERO)? {
                    Ordering::Less => -1.0,
                    Ordering::Equal => 0.0,
                    Ordering::Greater => 1.0,
                };
                s.exact(magnitude_slope * sign_of(s.cell(second))?)
            }
            _ => Id::ZERO,
        },
        Method::Lerp => match number {
            0 => s.sub(Id::ONE, sources[2]),
            1 => sources[2],
            _ => s.sub(second, x),
        },
        Method::Fmod => match number {
            0 => Id::ONE,
            _ => {
                let quotient = s.div(x, second);
                let whole = s.method(Method::Trunc, quotient);
                s.neg(whole)
            }
        },
        Method::LogAddExp => {
            let exponent = s.sub(sources[number], y);
            s.method(Method::Exp, exponent)
        }
        _ => smooth(s, method, x, second, y),
    })
}

/// The derivatives of functions that have one everywhere in their domain; 0 for those that are
/// constant almost everywhere.
fn smooth(s: &mut Scalars, method: Method, x: Id, second: Id, y: Id) -> Id {
    match method {
        Method::SoftSign => {
            let size = s.method(Method::Abs, x);
            let whole = s.add(Id::ONE, size);
            let square = s.mul(whole, whole);
            s.div(Id::ONE, square)
        }
        Method::Exp => y,
        Method::Log => s.div(Id::ONE, x),
        Method::Log10 => inverse_of_scaled(s, x, std::f64::consts::LN_10),
        Method::Rsqrt => {
            let half = s.exact(-0.5);
            let quotient = s.div(y, x);
            s.mul(half, quotient)
        }
        Method::Sigmoid => logistic_slope(s, y),
        Method::Tanh => one_less_square(s, y),
        Method::Silu => gated(s, x, x, Id::ONE),
        Method::QuickGelu => {
            let scale = s.constant(1.702);
            let argument = s.mul(x, scale);
            gated(s, x, argument, scale)
        }
        Method::Gelu => {
            let scale = s.constant(2.0 * (2.0 / std::f64::consts::PI).sqrt());
            let (cubic, thrice) = (s.constant(0.044715), s.constant(3.0 * 0.044715));
            let square = s.mul(x, x);
            let factor = s.terms(&[(square, cubic), (Id::ONE, Id::ONE)]);
            let product = s.mul(x, factor);
            let argument = s.mul(scale, product);
            let growth = s.terms(&[(square, thrice), (Id::ONE, Id::ONE)]);
            let slope = s.mul(scale, growth);
            gated(s, x, argument, slope)
        }
        Method::Mish => {
            let softplus = s.method(Method::Softplus, x);
            let gate = s.method(Method::Tanh, softplus);
            let slope = one_less_square(s, gate);
            let sigmoid = s.method(Method::Sigmoid, x);
            let scaled = s.mul(x, slope);
            s.terms(&[(gate, Id::ONE), (scaled, sigmoid)])
        }
        Method::Softplus => {
            let scaled = if second == Id::ZERO { x } else { s.mul(x, second) };
            s.method(Method::Sigmoid, scaled)
        }
        Method::LogSigmoid => {
            let sigmoid = s.method(Method::Sigmoid, x);
            s.sub(Id::ONE, sigmoid)
        }
        Method::Cos => {
            let sine = s.call(Function::Unary(UnaryOp::Sin), &[x]);
            s.neg(sine)
        }
        Method::Tan => s.terms(&[(y, y), (Id::ONE, Id::ONE)]),
        Method::Sinh => s.method(Method::Cosh, x),
        Method::Cosh => s.method(Method::Sinh, x),
        Method::Asinh => inverse_root(s, &[(x, x), (Id::ONE, Id::ONE)]),
        Method::Acosh => inverse_root(s, &[(x, x), (Id::MINUS_ONE, Id::ONE)]),
        Method::Asin => {
            let square = s.mul(x, x);
            inverse_root(s, &[(Id::ONE, Id::ONE), (square, Id::MINUS_ONE)])
        }
        Method::Acos => {
            let square = s.mul(x, x);
            let found = inverse_root(s, &[(Id::ONE, Id::ONE), (square, Id::MINUS_ONE)]);
            s.neg(found)
        }
        Method::Atanh => {
            let rest = one_less_square(s, x);
            s.div(Id::ONE, rest)
        }
        Method::Atan => {
            let sum = s.terms(&[(x, x), (Id::ONE, Id::ONE)]);
            s.div(Id::ONE, sum)
        }
        Method::Erf => {
            let scale = s.constant(std::f64::consts::FRAC_2_SQRT_PI);
            let square = s.mul(x, x);
            let exponent = s.neg(square);
            let power = s.method(Method::Exp, exponent);
            s.mul(scale, power)
        }
        _ => Id::ZERO,
    }
}

/// `1 - y * y`.
fn one_less_square(s: &mut Scalars, y: Id) -> Id {
    let square = s.mul(y, y);
    s.sub(Id::ONE, square)
}

/// `y * (1 - y)`.
fn logistic_slope(s: &mut Scalars, y: Id) -> Id {
    let rest = s.sub(Id::ONE, y);
    s.mul(y, rest)
}

/// `1 / sqrt(sum of pairs)`.
fn inverse_root(s: &mut Scalars, pairs: &[(Id, Id)]) -> Id {
    let sum = s.terms(pairs);
    let root = s.call(Function::Unary(UnaryOp::Sqrt), &[sum]);
    s.div(Id::ONE, root)
}

/// The derivative of `x * sigmoid(argument)`, where `slope` is that of the argument.
fn gated(s: &mut Scalars, x: Id, argument: Id, slope: Id) -> Id {
    let gate = s.method(Method::Sigmoid, argument);
    let change = logistic_slope(s, gate);
    let growth = s.mul(change, slope);
    s.terms(&[(gate, Id::ONE), (x, growth)])
}

fn is_exactly(cell: Cell, value: f64) -> bool {
    matches!(cell, Cell::Real(real) if real.is_exact() && real.hi == value)
}

/// Compares two scalars.
fn compare(s: &Scalars, a: Id, b: Id) -> Result<Ordering, Reason> {
    order(s.cell(a), s.cell(b))?.ok_or(Reason::Derivative)
}

/// Returns whether `a` is less than `b`.
fn below(s: &Scalars, a: Id, b: Id) -> Result<bool, Reason> {
    decide(s, a, b, |a, b| a < b, || Ok(compare(s, a, b)? == Ordering::Less))
}

/// Returns whether `a` is at most `b`.
fn at_most(s: &Scalars, a: Id, b: Id) -> Result<bool, Reason> {
    decide(s, a, b, |a, b| a <= b, || Ok(compare(s, a, b)? != Ordering::Greater))
}

/// Decides a comparison that holds for all numbers within the bounds, or for none; else by `exact`.
fn decide(
    s: &Scalars,
    a: Id,
    b: Id,
    holds: fn(f64, f64) -> bool,
    exact: impl Fn() -> Result<bool, Reason>,
) -> Result<bool, Reason> {
    if let (Cell::Real(a), Cell::Real(b)) = (s.cell(a), s.cell(b)) {
        let always = holds(a.upper(), b.lower());
        let ever = holds(a.lower(), b.upper());
        if always == ever {
            return Ok(always);
        }
    }
    exact()
}

/// 1 between two bounds, else 0.
fn strictly_between(s: &Scalars, x: Id, low: Id, high: Id) -> Result<Id, Reason> {
    let is_inside = below(s, low, x)? && below(s, x, high)?;
    Ok(if is_inside { Id::ONE } else { Id::ZERO })
}

/// -1 or 1, as the sign bit says.
fn sign_of(cell: Cell) -> Result<f64, Reason> {
    let negative = match cell {
        Cell::Real(real) => real.sign(),
        Cell::Inf { negative, .. } => Some(negative),
        Cell::Unspecified(reason) => return Err(reason),
        Cell::Int(_) | Cell::Nan(_) => return Err(Reason::Derivative),
    };
    match negative {
        Some(true) => Ok(-1.0),
        Some(false) => Ok(1.0),
        None if is_exactly(cell, 0.0) => Err(Reason::ZeroSign),
        None => Err(Reason::Straddle),
    }
}

/// Returns the derivative of the largest element of a group, or of the smallest, with respect to
/// each element. Elements that equal the extreme share it equally.
pub(super) fn shares(s: &Scalars, group: &[Id], is_largest: bool) -> Vec<Result<f64, Reason>> {
    let cells: Vec<Cell> =
        group.iter().map(|id| if is_largest { s.cell(*id) } else { neg(s.cell(*id)) }).collect();
    let undefined = cells.iter().find_map(|cell| match cell {
        Cell::Unspecified(reason) => Some(*reason),
        Cell::Nan(_) => Some(Reason::Derivative),
        _ => None,
    });
    if let Some(reason) = undefined {
        return vec![Err(reason); group.len()];
    }
    let lower = |at: &usize| match cells[*at] {
        Cell::Real(real) => real.lower(),
        Cell::Inf { negative: true, .. } => f64::NEG_INFINITY,
        _ => f64::INFINITY,
    };
    let Some(best) = (0..group.len()).max_by(|a, b| lower(a).total_cmp(&lower(b))) else {
        return Vec::new();
    };
    // An element whose bounds overlap those of the best one may be the extreme.
    let standing = |at: usize| match group[at] == group[best] {
        true => Ok(true),
        false => match order(cells[at], cells[best]) {
            Ok(order) => Ok(order == Some(Ordering::Equal)),
            Err(reason) => Err(reason),
        },
    };
    let standings: Vec<Result<bool, Reason>> = (0..group.len()).map(standing).collect();
    let doubt = standings.iter().find_map(|standing| standing.err());
    let count = standings.iter().filter(|standing| **standing == Ok(true)).count();
    let share = |standing: Result<bool, Reason>| match (standing, doubt) {
        (Ok(false), _) => Ok(0.0),
        (_, Some(reason)) => Err(reason),
        _ => Ok(1.0 / count as f64),
    };
    standings.into_iter().map(share).collect()
}
