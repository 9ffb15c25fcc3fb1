//! Typing of methods that reduce axes.

use super::{Args, axes, axis};
use crate::element::float_value;
use crate::{DType, Literal, Shape, TensorType, literal_bits};

/// The type of the largest or smallest element along axes that are not empty.
pub(super) fn extreme(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    let TensorType { dtype, shape } = srcs[0];
    let axes = axes(args.ints(0), shape.len())?;
    if let Some(axis) = axes.iter().find(|axis| shape[**axis] == 0) {
        return Err(format!("axis {axis} of shape {shape:?} is empty"));
    }
    Ok(TensorType { dtype: *dtype, shape: reduced(shape, &axes, args.flag(1)) })
}

/// Returns the shape without these axes, or with size 1 there if they are kept.
pub(super) fn reduced(shape: &[usize], axes: &[usize], keepdim: bool) -> Shape {
    let size = |(axis, size): (usize, &usize)| match axes.contains(&axis) {
        true => keepdim.then_some(1),
        false => Some(*size),
    };
    shape.iter().enumerate().filter_map(size).collect()
}

/// The type of a statistic of floats along axes.
pub(super) fn float(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    let TensorType { dtype, shape } = srcs[0];
    check_float(*dtype)?;
    let axes = axes(args.ints(0), shape.len())?;
    Ok(TensorType { dtype: *dtype, shape: reduced(shape, &axes, args.flag(1)) })
}

/// The type of floats that are normalised along axes.
pub(super) fn normalized(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    let dtype = srcs[0].dtype;
    check_float(dtype)?;
    axes(args.ints(0), srcs[0].shape.len())?;
    check_eps(dtype, &args.number(1))?;
    Ok(srcs[0].clone())
}

/// The type of the floats along an axis that get a norm of 1.
pub(super) fn of_norm_1(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    let found = float_axis_at(srcs, args.int(1))?;
    let p = wide_value(found.dtype, &args.number(0));
    if !p.is_some_and(|p| 0.0 < p && p.is_finite()) {
        return Err(format!("p is {}: it must be finite and positive", args.number(0)));
    }
    check_eps(found.dtype, &args.number(2))?;
    Ok(found)
}

fn check_eps(dtype: DType, eps: &Literal) -> Result<(), String> {
    match wide_value(dtype, eps).is_some_and(|eps| 0.0 <= eps && eps.is_finite()) {
        true => Ok(()),
        false => Err(format!("eps is {eps}: it must be finite and not negative")),
    }
}

/// Returns a number as the dtype in which a function of floats is computed.
fn wide_value(dtype: DType, number: &Literal) -> Option<f64> {
    literal_bits(wide(dtype), number).map(|bits| float_value(wide(dtype), bits))
}

/// The type of a function of the floats along an axis: that of the source.
pub(super) fn float_axis(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    float_axis_at(srcs, args.int(0))
}

fn float_axis_at(srcs: &[&TensorType], number: i64) -> Result<TensorType, String> {
    check_float(srcs[0].dtype)?;
    axis(number, srcs[0].shape.len())?;
    Ok(srcs[0].clone())
}

/// Returns the dtype in which a function of floats is computed.
pub(super) fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

pub(super) fn check_float(dtype: DType) -> Result<(), String> {
    match dtype.is_float() {
        true => Ok(()),
        false => Err(format!("a source of {}: it takes floats", dtype.name())),
    }
}
