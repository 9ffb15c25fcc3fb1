//! Typing of methods that reduce axes.

use super::{Args, axes, axis};
use crate::element::float_value;
use crate::{DType, Shape, TensorType, literal_bits};

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
    let bits = literal_bits(wide(dtype), &args.number(1));
    let eps = bits.map(|bits| float_value(wide(dtype), bits));
    match eps.is_some_and(|eps| 0.0 <= eps && eps.is_finite()) {
        true => Ok(srcs[0].clone()),
        false => Err(format!("eps is {}: it must be finite and not negative", args.number(1))),
    }
}

/// The type of a function of the floats along an axis: that of the source.
pub(super) fn float_axis(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    check_float(srcs[0].dtype)?;
    axis(args.int(0), srcs[0].shape.len())?;
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
