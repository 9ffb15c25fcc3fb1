//! Methods that create tensors.

use gradiff_corpus::{DType, Literal, literal_bits};

use super::Call;
use crate::arithmetic::{round_result, rounding_error, rounding_unit, size_of};
use crate::cell::{Cell, Real};
use crate::format::{decode, encode, format};
use crate::infer::{Check, accumulator, limit};
use crate::movement::for_each_index;
use crate::value::Value;

/// Bound of the error of a point of a line, in roundings of the sum of its terms' magnitudes: those
/// of the step (twice in f64), of the product and of the sum. The terms of the mean of the ends are
/// no larger.
const POINT_ROUNDINGS: f64 = 4.0;

fn natural(number: i64) -> Check<usize> {
    number.try_into().map_err(|_| format!("{number} is negative"))
}

fn check_float(dtype: DType) -> Check<()> {
    match dtype.is_float() {
        true => Ok(()),
        false => Err(format!("it makes floats, not {}", dtype.name())),
    }
}

fn largest(dtype: DType) -> f64 {
    decode(dtype, encode(dtype, f64::INFINITY) - 1)
}

/// Returns the sum and its error.
fn sum(a: f64, b: f64) -> (f64, f64) {
    let total = a + b;
    let second = total - a;
    (total, (a - (total - second)) + (b - second))
}

/// Returns the product and its error.
fn product(a: f64, b: f64) -> (f64, f64) {
    (a * b, a.mul_add(b, -(a * b)))
}

/// The element of a line whose exact value is `hi + lo`, computed with terms up to `size` in the
/// accumulator of the dtype, and then rounded to it.
fn point(dtype: DType, hi: f64, lo: f64, size: f64) -> Cell {
    let (wide, narrow) = (format(accumulator(dtype)), format(dtype));
    let error = POINT_ROUNDINGS * rounding_unit(wide) * size + wide.least;
    let lo_used = if dtype == DType::F64 { lo } else { 0.0 };
    let error = if dtype == DType::F64 { error } else { error + lo.abs() };
    let rounding = match accumulator(dtype) == dtype {
        true => 0.0,
        false => rounding_error(narrow, size_of(hi, 0.0, error)),
    };
    round_result(narrow, Real::ball(hi, lo_used, error), rounding, false)
}

/// A number that is certain, but for the sign of zero.
fn certain(value: f64) -> Cell {
    if value == 0.0 { Cell::zero(None) } else { Cell::exact(value) }
}

/// Equidistant numbers: `((count - 1 - i) * start + i * stop) / (count - 1)`.
pub(super) fn linspace(call: Call<'_>) -> Check<Value> {
    let dtype = call.args.dtype(0);
    check_float(dtype)?;
    let end = |number| {
        let literal = call.args.number(number);
        let bits = literal_bits(dtype, &literal);
        let value = bits.map(|bits| decode(dtype, bits)).filter(|value| value.is_finite());
        value.ok_or_else(|| format!("{literal:?} is no finite {}", dtype.name()))
    };
    let (start, stop) = (end(1)?, end(2)?);
    if (stop - start).abs() > largest(dtype) {
        return Err(format!("the distance from {start} to {stop} is too large"));
    }
    let shape = limit(vec![natural(call.args.int(3))?])?;
    let count = shape[0];
    // Products of large numbers would overflow here.
    let scale = if start.abs().max(stop.abs()) > 1e200 { 2f64.powi(-64) } else { 1.0 };
    let at = |i: usize| {
        if i == 0 {
            return certain(start);
        }
        if i == count - 1 {
            return certain(stop);
        }
        let last = (count - 1) as f64;
        let (a, a_error) = product((count - 1 - i) as f64, start * scale);
        let (b, b_error) = product(i as f64, stop * scale);
        let (total, error) = sum(a, b);
        let rest = error + (a_error + b_error);
        let hi = (total + rest) / last;
        let lo = ((-hi).mul_add(last, total) + rest) / last;
        // A point is computed from the start or, if it is nearer to the stop, perhaps from there.
        let from =
            |end: f64, points: usize| end.abs() + points as f64 * ((stop - start).abs() / last);
        let size = match 2 * i < count - 1 {
            true => from(start, i),
            false => from(start, i).max(from(stop, count - 1 - i)),
        };
        point(dtype, hi / scale, lo / scale, size.min(f64::MAX))
    };
    let cells = (0..count).map(at).collect();
    Ok(Value::new(dtype, shape, cells))
}

/// The numbers `start + i * step` below `stop`, or above it if the step is negative.
pub(super) fn arange(call: Call<'_>) -> Check<Value> {
    let dtype = call.args.dtype(0);
    check_float(dtype)?;
    let value = |number| match call.args.number(number) {
        Literal::Int(value) => Ok(value as f64),
        Literal::Float(value) if value.is_finite() => Ok(value),
        literal => Err(format!("{literal:?} is no finite number")),
    };
    let (start, stop, step) = (value(1)?, value(2)?, value(3)?);
    let count = ((stop - start) / step).ceil().max(0.0);
    let fits = start.abs() + count * step.abs() <= largest(dtype);
    if step == 0.0 || !fits || count > 1e9 {
        return Err(format!("no numbers of {} from {start} to {stop} by {step}", dtype.name()));
    }
    let shape = limit(vec![count as usize])?;
    let (narrow, wide) = (format(dtype), format(accumulator(dtype)));
    let at = |i: usize| {
        let (scaled, scaled_error) = product(i as f64, step);
        let (total, total_error) = sum(start, scaled);
        let parts = [start, step, scaled, total];
        let is_exact = scaled_error == 0.0
            && total_error == 0.0
            && parts.iter().all(|part| wide.holds(*part))
            && narrow.holds(total);
        if is_exact {
            return certain(total);
        }
        let (hi, lo) = sum(total, total_error + scaled_error);
        point(dtype, hi, lo, start.abs() + scaled.abs())
    };
    let cells = (0..shape[0]).map(at).collect();
    Ok(Value::new(dtype, shape, cells))
}

/// A matrix of ones where `is_one(row, column)`, and zeros.
fn matrix(call: Call<'_>, is_one: impl Fn(i128, i128) -> bool) -> Check<Value> {
    let dtype = call.args.dtype(0);
    let shape = limit(vec![natural(call.args.int(1))?, natural(call.args.int(2))?])?;
    let [zero, unit] = [0, 1].map(|number| match dtype {
        DType::Bool => Cell::bool(number == 1),
        _ if dtype.is_float() => Cell::exact(f64::from(number)),
        _ => Cell::Int(number as u64),
    });
    let mut cells = Vec::new();
    for_each_index(&shape, |index| {
        cells.push(if is_one(index[0] as i128, index[1] as i128) { unit } else { zero });
    });
    Ok(Value::new(dtype, shape, cells))
}

pub(super) fn eye(call: Call<'_>) -> Check<Value> {
    matrix(call, |row, column| row == column)
}

pub(super) fn tri(call: Call<'_>) -> Check<Value> {
    let diagonal = i128::from(call.args.int(3));
    matrix(call, |row, column| column <= row + diagonal)
}
