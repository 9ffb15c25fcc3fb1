//! Typing of methods that create tensors; they have no sources.

use super::{Args, Typed, size};
use crate::element::{float_bits, float_value};
use crate::{DType, Literal, TensorType, literal_bits};

fn check_float(dtype: DType) -> Result<(), String> {
    match dtype.is_float() {
        true => Ok(()),
        false => Err(format!("it does not make {}, only floats", dtype.name())),
    }
}

/// Returns the largest finite number of a float dtype.
fn largest(dtype: DType) -> f64 {
    float_value(dtype, float_bits(dtype, f64::INFINITY) - 1)
}

pub(super) fn linspace(_: &[&TensorType], args: Args<'_>) -> Typed {
    let dtype = args.dtype(0);
    check_float(dtype)?;
    let end = |number: Literal| {
        let value = literal_bits(dtype, &number).map(|bits| float_value(dtype, bits));
        value.filter(|value| value.is_finite()).ok_or_else(|| format!("{number} is no end"))
    };
    let (start, stop) = (end(args.number(1))?, end(args.number(2))?);
    if largest(dtype) < (stop - start).abs() {
        return Err(format!("{start} to {stop}: the difference overflows {}", dtype.name()));
    }
    Ok(TensorType { dtype, shape: vec![size(args.int(3))?] })
}

pub(super) fn arange(_: &[&TensorType], args: Args<'_>) -> Typed {
    let dtype = args.dtype(0);
    check_float(dtype)?;
    let value = |number: Literal| {
        let value = match number {
            Literal::Bool(_) => None,
            Literal::Int(value) => Some(value as f64),
            Literal::Float(value) => Some(value),
        };
        value.filter(|value| value.is_finite()).ok_or_else(|| format!("{number} is not finite"))
    };
    let [start, stop, step] = [1, 2, 3].map(|number| value(args.number(number)));
    let (start, stop, step) = (start?, stop?, step?);
    let count = ((stop - start) / step).ceil().max(0.0);
    let end = start.abs() + count * step.abs();
    let is_finite = end <= largest(dtype);
    if step == 0.0 || !is_finite || (crate::MAX_ELEMENTS as f64) < count {
        return Err(format!("{start} to {stop} by {step} in {}", dtype.name()));
    }
    Ok(TensorType { dtype, shape: vec![count as usize] })
}

/// The type of a matrix: a dtype, the number of rows, that of columns.
pub(super) fn matrix(_: &[&TensorType], args: Args<'_>) -> Typed {
    Ok(TensorType { dtype: args.dtype(0), shape: vec![size(args.int(1))?, size(args.int(2))?] })
}
