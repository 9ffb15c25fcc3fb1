//! Typing of methods that reduce axes.

use super::{Args, axes};
use crate::{Shape, TensorType};

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
