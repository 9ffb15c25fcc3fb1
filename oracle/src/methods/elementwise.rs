//! Elementwise functions whose results are exact, or rounded once.

use std::cmp::Ordering;
use std::rc::Rc;

use gradiff_corpus::{DType, Shape, literal_bits};

use super::Call;
use crate::arithmetic::{self, neg, propagated, round_result, rounding_error, size_of, with_sign};
use crate::cast::cast;
use crate::cell::{Cell, Real, Reason};
use crate::format::{format, pow2};
use crate::infer::{self, Check, count, promote};
use crate::integer;
use crate::movement::broadcast_positions;
use crate::value::Value;

/// Relative error of a quotient, or of a remainder, that is computed here.
const QUOTIENT: f64 = pow2(-50);

/// Applies a function to each element of a source of floats.
pub(super) fn float(call: Call<'_>, f: impl Fn(DType, Cell) -> Cell) -> Check<Value> {
    let x = call.srcs[0];
    require(x.dtype.is_float(), x.dtype, "floats")?;
    Ok(x.map(x.dtype, |cell| f(x.dtype, cell)))
}

/// Applies a function to each element of a source of floats or integers: `f` to a float, `int` to
/// the value of an integer, whose result wraps.
fn number(
    call: Call<'_>,
    int: impl Fn(i128) -> i128,
    f: impl Fn(DType, Cell) -> Cell,
) -> Check<Value> {
    let x = call.srcs[0];
    let dtype = x.dtype;
    require(dtype != DType::Bool, dtype, "integers and floats")?;
    Ok(x.map(dtype, |cell| match cell {
        Cell::Int(bits) => Cell::Int(integer::wrap(dtype, int(integer::value(dtype, bits)))),
        Cell::Unspecified(_) => cell,
        _ => f(dtype, cell),
    }))
}

pub(super) fn require(is_met: bool, dtype: DType, allowed: &str) -> Check<()> {
    match is_met {
        true => Ok(()),
        false => Err(format!("{} is not allowed: it takes {allowed}", dtype.name())),
    }
}

/// Returns an argument as an element of the dtype.
pub(crate) fn literal(dtype: DType, call: Call<'_>, number: usize) -> Check<Cell> {
    let literal = call.args.number(number);
    let bits = literal_bits(dtype, &literal)
        .ok_or_else(|| format!("{literal:?} is not representable in {}", dtype.name()))?;
    Ok(Cell::from_bits(dtype, bits))
}

/// Returns the dtype in which a function of floats is computed.
pub(crate) fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Computes in the wide dtype: `f` of that dtype and of x. The result is rounded once.
pub(super) fn widely(dtype: DType, x: Cell, f: impl Fn(DType, Cell) -> Cell) -> Cell {
    cast(wide(dtype), dtype, f(wide(dtype), cast(dtype, wide(dtype), x)))
}

/// `|x|`.
pub(super) fn abs(call: Call<'_>) -> Check<Value> {
    number(call, i128::abs, |_, x| magnitude(x))
}

/// The magnitude of a float, whose zeros are positive.
pub(crate) fn magnitude(x: Cell) -> Cell {
    match x {
        Cell::Real(real) if !real.is_exact() && real.may_be_zero() => {
            Cell::Real(Real::up_to(real.magnitude())).positive()
        }
        Cell::Real(real) => {
            let lo = if real.hi < 0.0 { -real.lo } else { real.lo };
            Cell::Real(Real { hi: real.hi.abs(), lo, ..real.leaf() }).positive()
        }
        Cell::Inf { overflowed, .. } => Cell::Inf { negative: false, overflowed },
        Cell::Nan(_) => Cell::nan(),
        Cell::Int(_) | Cell::Unspecified(_) => x,
    }
}

/// -1, 0 or 1.
pub(super) fn sign(call: Call<'_>) -> Check<Value> {
    number(call, i128::signum, |_, x| match x {
        Cell::Real(real) if real.is_zero() => Cell::exact(0.0),
        Cell::Real(real) if real.may_be_zero() => Cell::Unspecified(Reason::Straddle),
        Cell::Real(Real { hi, .. }) => Cell::exact(hi.signum()),
        Cell::Inf { negative, .. } => Cell::exact(if negative { -1.0 } else { 1.0 }),
        _ => Cell::nan(),
    })
}

/// `x * x`.
pub(super) fn square(call: Call<'_>) -> Check<Value> {
    let float = |dtype, x| arithmetic::mul(dtype, x, x).not_negative();
    number(call, |x| x.wrapping_mul(x), float)
}

/// The greater of x and the first argument, and the lesser of that and the second one.
pub(super) fn clamp(call: Call<'_>) -> Check<Value> {
    let dtype = call.srcs[0].dtype;
    let (min, max) = (literal(dtype, call, 0)?, literal(dtype, call, 1)?);
    let value = |cell| match cell {
        Cell::Int(bits) => integer::value(dtype, bits),
        _ => 0,
    };
    number(call, |x| x.max(value(min)).min(value(max)), |_, x| between(x, min, max))
}

/// [`clamp`] of floats.
pub(super) fn clamp_floats(call: Call<'_>) -> Check<Value> {
    let dtype = call.srcs[0].dtype;
    require(dtype.is_float(), dtype, "floats")?;
    clamp(call)
}

/// The lesser of `max` and the greater of x and `min`.
pub(super) fn between(x: Cell, min: Cell, max: Cell) -> Cell {
    neg(arithmetic::max(neg(arithmetic::max(x, min)), neg(max)))
}

/// The greater of x and 0.
pub(super) fn relu(call: Call<'_>) -> Check<Value> {
    number(call, |x| x.max(0), |_, x| arithmetic::max(x, Cell::exact(0.0)))
}

/// A rounding to integers, which `f` gives for a float.
pub(super) fn whole(call: Call<'_>, f: fn(f64) -> f64) -> Check<Value> {
    number(call, |x| x, |_, x| whole_cell(x, f))
}

pub(crate) fn whole_cell(x: Cell, f: fn(f64) -> f64) -> Cell {
    let Cell::Real(real) = x else { return propagated(&[x]).unwrap_or(x) };
    let (low, high) = (f(real.lower()), f(real.upper()));
    if low != high {
        Cell::Unspecified(Reason::Straddle)
    } else if low == 0.0 {
        Cell::zero(real.sign())
    } else {
        Cell::exact(low)
    }
}

/// The classes that predicates tell apart.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Class {
    Nan,
    Infinite,
    Finite,
}

/// True where the element is of a class.
pub(super) fn is(call: Call<'_>, class: Class) -> Check<Value> {
    Ok(call.srcs[0].map(DType::Bool, |x| match x {
        Cell::Unspecified(_) => x,
        Cell::Nan(_) => Cell::bool(class == Class::Nan),
        // In a wider type the number would be finite.
        Cell::Inf { overflowed: true, .. } if class != Class::Nan => {
            Cell::Unspecified(Reason::Overflow)
        }
        Cell::Inf { .. } => Cell::bool(class == Class::Infinite),
        Cell::Int(_) | Cell::Real(_) => Cell::bool(class == Class::Finite),
    }))
}

/// The magnitude of x with the sign of y.
pub(super) fn copysign(call: Call<'_>) -> Check<Value> {
    each(call, |_, cells| signed(cells[0], cells[1]))
}

fn signed(x: Cell, y: Cell) -> Cell {
    for cell in [x, y] {
        match cell {
            Cell::Unspecified(_) => return cell,
            Cell::Nan(_) => return Cell::nan(),
            Cell::Int(_) | Cell::Real(_) | Cell::Inf { .. } => {}
        }
    }
    let negative = match y {
        Cell::Real(real) => real.sign(),
        Cell::Inf { negative, .. } => Some(negative),
        Cell::Int(_) | Cell::Nan(_) | Cell::Unspecified(_) => None,
    };
    let size = magnitude(x);
    match (negative, size) {
        (Some(true), _) => neg(size),
        (Some(false), _) => size,
        (None, Cell::Real(real)) if real.is_zero() => Cell::zero(None),
        (None, _) => Cell::Unspecified(match y {
            Cell::Real(real) if real.is_zero() => Reason::ZeroSign,
            _ => Reason::Straddle,
        }),
    }
}

/// A number where the mask is true, else x.
pub(super) fn masked_fill(call: Call<'_>) -> Check<Value> {
    let (x, mask) = (call.srcs[0], call.srcs[1]);
    require(mask.dtype == DType::Bool, mask.dtype, "a mask of bool")?;
    let value = literal(x.dtype, call, 0)?;
    let shape = infer::broadcast(&x.shape, &mask.shape)?;
    let (values, masks) = (spread(x, &shape), spread(mask, &shape));
    let cells = values.iter().zip(masks.iter()).map(|(x, mask)| match mask {
        Cell::Int(0) => *x,
        Cell::Int(_) => value,
        _ => *mask,
    });
    Ok(Value::new(x.dtype, shape, cells.collect()))
}

/// `x + (y - x) * weight`.
pub(super) fn lerp(call: Call<'_>) -> Check<Value> {
    each(call, |dtype, cells| {
        let [x, y, weight] = [0, 1, 2].map(|i| cast(dtype, wide(dtype), cells[i]));
        let difference = arithmetic::add(wide(dtype), y, neg(x));
        let part = arithmetic::mul(wide(dtype), difference, weight);
        cast(wide(dtype), dtype, arithmetic::add(wide(dtype), x, part))
    })
}

/// The remainder of a division whose quotient is truncated.
pub(super) fn fmod(call: Call<'_>) -> Check<Value> {
    each(call, |dtype, cells| remainder(dtype, cells[0], cells[1]))
}

fn remainder(dtype: DType, x: Cell, y: Cell) -> Cell {
    if let Some(cell) = propagated(&[x, y]) {
        return cell;
    }
    match (x, y) {
        (Cell::Real(x), Cell::Inf { .. }) => Cell::Real(x.leaf()),
        (Cell::Real(_), Cell::Real(y)) if y.is_zero() => Cell::nan(),
        (Cell::Real(x), Cell::Real(y)) if x.is_exact() && y.is_exact() => {
            // The remainder of f64 is exact.
            match x.hi % y.hi {
                0.0 => Cell::zero(x.sign()),
                rest => Cell::exact(rest),
            }
        }
        (Cell::Real(x), Cell::Real(y)) if x.magnitude() < magnitude_from(y) => Cell::Real(x.leaf()),
        (Cell::Real(x), Cell::Real(y)) => match whole_quotient(x, y) {
            Some(quotient) => remainder_of_quotient(dtype, x, y, quotient),
            None => Cell::Unspecified(Reason::Straddle),
        },
        _ => Cell::nan(),
    }
}

/// Returns the truncated quotient of all numbers within the bounds; `None` if there are several. It
/// is monotone in each number, so that its extremes are at the ends.
fn whole_quotient(x: Real, y: Real) -> Option<f64> {
    if y.may_be_zero() {
        return None;
    }
    let [x_ends, y_ends] = [x, y].map(|real| [real.lower(), real.upper()]);
    let quotients = x_ends.iter().flat_map(|x| y_ends.map(|y| x / y));
    let mut wholes = quotients.flat_map(|quotient| {
        [1.0 - QUOTIENT, 1.0 + QUOTIENT].map(|factor| (quotient * factor).trunc())
    });
    let first = wholes.next().filter(|whole| whole.is_finite())?;
    wholes.all(|whole| whole == first).then_some(first)
}

/// `x - quotient * y`, of numbers of the dtype exactly, of others rounded once. It has the error of
/// x, and so many times that of y.
fn remainder_of_quotient(dtype: DType, x: Real, y: Real, quotient: f64) -> Cell {
    let format = format(dtype);
    let (hi, lo) = ((-quotient).mul_add(y.hi, x.hi), x.lo - quotient * y.lo);
    let center = hi + lo;
    let inherited = x.radius + quotient.abs() * y.radius;
    let radius = inherited + QUOTIENT * (hi.abs() + lo.abs());
    let rounding = rounding_error(format, size_of(center, 0.0, radius));
    let real = Real::ball(center, 0.0, radius);
    with_sign(x.sign(), round_result(format, real, rounding, false))
}

/// The smallest magnitude within the bounds.
fn magnitude_from(x: Real) -> f64 {
    if x.may_be_zero() { 0.0 } else { x.lower().abs().min(x.upper().abs()) }
}

/// True where the distance of x and y is at most `atol + rtol * |y|`, computed in the wide dtype.
pub(super) fn is_close(call: Call<'_>) -> Check<Value> {
    let equal_nan = call.args.flag(2);
    let dtype = call.srcs.iter().map(|src| src.dtype).reduce(promote).unwrap_or(DType::F32);
    let (rtol, atol) = (literal(wide(dtype), call, 0)?, literal(wide(dtype), call, 1)?);
    let found = each(call, |dtype, cells| {
        let [x, y] = [0, 1].map(|i| cast(dtype, wide(dtype), cells[i]));
        match close(wide(dtype), [x, y], [rtol, atol], equal_nan) {
            Ok(is_close) => Cell::bool(is_close),
            Err(reason) => Cell::Unspecified(reason),
        }
    })?;
    Ok(found.map(DType::Bool, |cell| cell))
}

fn close(
    dtype: DType,
    [x, y]: [Cell; 2],
    [rtol, atol]: [Cell; 2],
    equal_nan: bool,
) -> Result<bool, Reason> {
    for cell in [x, y] {
        match cell {
            Cell::Unspecified(reason) => return Err(reason),
            // In a wider type the number would be finite.
            Cell::Inf { overflowed: true, .. } => return Err(Reason::Overflow),
            Cell::Int(_) | Cell::Real(_) | Cell::Inf { .. } | Cell::Nan(_) => {}
        }
    }
    match (x, y) {
        (Cell::Nan(_), Cell::Nan(_)) => Ok(equal_nan),
        (Cell::Nan(_), _) | (_, Cell::Nan(_)) => Ok(false),
        (Cell::Inf { negative: x, .. }, Cell::Inf { negative: y, .. }) => Ok(x == y),
        (Cell::Inf { .. }, _) | (_, Cell::Inf { .. }) => Ok(false),
        _ => {
            let distance = magnitude(arithmetic::add(dtype, x, neg(y)));
            let limit = arithmetic::mul(dtype, rtol, magnitude(y));
            let limit = arithmetic::add(dtype, atol, limit);
            Ok(arithmetic::order(distance, limit)?.is_some_and(Ordering::is_le))
        }
    }
}

/// Applies a function to the elements of sources of floats, promoted from left to right, broadcast.
pub(super) fn each(call: Call<'_>, f: impl Fn(DType, &[Cell]) -> Cell) -> Check<Value> {
    let (mut dtype, mut shape) = (call.srcs[0].dtype, Shape::new());
    for src in call.srcs {
        require(src.dtype.is_float(), src.dtype, "floats")?;
        dtype = promote(dtype, src.dtype);
        shape = infer::broadcast(&shape, &src.shape)?;
    }
    let promoted =
        |src: &&Value| spread(&src.map(dtype, |cell| cast(src.dtype, dtype, cell)), &shape);
    let sources: Vec<Rc<Vec<Cell>>> = call.srcs.iter().map(promoted).collect();
    let cells = (0..count(&shape)).map(|at| {
        let cells: Vec<Cell> = sources.iter().map(|source| source[at]).collect();
        f(dtype, &cells)
    });
    Ok(Value::new(dtype, shape.clone(), cells.collect()))
}

/// The elements of a value, broadcast to a shape.
fn spread(src: &Value, shape: &[usize]) -> Rc<Vec<Cell>> {
    if src.shape == shape {
        return src.cells.clone();
    }
    let positions = broadcast_positions(&src.shape, shape);
    Rc::new(positions.into_iter().map(|at| src.cells[at]).collect())
}
