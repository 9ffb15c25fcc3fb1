//! Derivatives of elementwise functions: a row for each, a formula of scalars, so that derivatives
//! have derivatives. Where a function has no derivative, the row says which number stands for it.
//! The rows of methods are in `activations`, `elementary` and `kinks`.

use gradiff_corpus::{BinaryOp, Method, UnaryOp};

use super::decisions::{at_most, is_exactly, shares};
use super::scalars::{Function, Id, Scalars, WIDE};
use super::{activations, elementary as rows, kinks};
use crate::arithmetic;
use crate::cell::{Cell, Reason};
use crate::methods::elementwise::{magnitude, whole_cell};
use crate::methods::{activation, elementary};
use crate::transcendental;

/// Roundings that an engine's formula of a function may have: 4 ulps.
const ROUNDINGS: f64 = 8.0;

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
    let result = match function {
        Function::Unary(UnaryOp::Exp2 | UnaryOp::Sqrt | UnaryOp::Recip)
        | Function::Binary(BinaryOp::Div | BinaryOp::Pow)
        | Function::Method(_) => scalars.rounded_or_not(result),
        _ => result,
    };
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
        UnaryOp::Log2 => rows::inverse_of_scaled(s, x, std::f64::consts::LN_2),
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
    result: Id,
    number: usize,
) -> Result<Id, Reason> {
    let x = sources[0];
    let second = sources.get(1).copied();
    Ok(match method {
        Method::Lerp => match number {
            0 => s.sub(Id::ONE, sources[2]),
            1 => sources[2],
            _ => s.sub(sources[1], x),
        },
        Method::BinaryCrossEntropyLogits if number == 0 => {
            let share = s.method(Method::Sigmoid, x);
            s.sub(share, sources[1])
        }
        Method::BinaryCrossEntropyLogits => s.neg(x),
        Method::BinaryCrossEntropy if number == 0 => {
            let (rest, complement) = (s.sub(Id::ONE, sources[1]), s.sub(Id::ONE, x));
            let (first, second) = (s.div(sources[1], x), s.div(rest, complement));
            s.sub(second, first)
        }
        Method::BinaryCrossEntropy => {
            let complement = s.sub(Id::ONE, x);
            let (first, second) = (s.method(Method::Log, x), s.method(Method::Log, complement));
            s.sub(second, first)
        }
        Method::LogAddExp => {
            let exponent = s.sub(sources[number], result);
            s.method(Method::Exp, exponent)
        }
        _ => {
            let kinked = kinks::partial(s, method, sources, result, number)?;
            let found = kinked.or_else(|| activations::slope(s, method, x, second, result));
            found.unwrap_or_else(|| rows::slope(s, method, x, result))
        }
    })
}
