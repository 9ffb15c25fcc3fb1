//! Typing of methods that compare elements with each other.

use super::reduction::reduced;
use super::{Args, Typed, axes, axis, size};
use crate::{DType, TensorType};

/// The type of the elements along an axis in order.
pub(super) fn sorted(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    axis(args.int(0), srcs[0].shape.len())?;
    Ok(srcs[0].clone())
}

/// The type of positions along an axis in the order of the elements.
pub(super) fn positions(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    Ok(TensorType { dtype: DType::I32, ..sorted(srcs, args)? })
}

/// The type of the first elements in order.
pub(super) fn first(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let mut found = sorted(srcs, Args(&args.0[1..]))?;
    let at = axis(args.int(1), found.shape.len())?;
    let count = size(args.int(0))?;
    if found.shape[at] < count {
        return Err(format!("{count} of {} elements", found.shape[at]));
    }
    found.shape[at] = count;
    Ok(found)
}

/// The type of the positions of the first elements in order.
pub(super) fn first_positions(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    Ok(TensorType { dtype: DType::I32, ..first(srcs, args)? })
}

/// The type of the position of an element along an axis that is not empty.
pub(super) fn position(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let shape = &srcs[0].shape;
    let at = axis(args.int(0), shape.len())?;
    if shape[at] == 0 {
        return Err(format!("axis {at} of shape {shape:?} is empty"));
    }
    Ok(TensorType { dtype: DType::I32, shape: reduced(shape, &[at], args.flag(1)) })
}

/// The type of a truth of the elements along axes.
pub(super) fn truth(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let shape = &srcs[0].shape;
    let axes = axes(args.ints(0), shape.len())?;
    Ok(TensorType { dtype: DType::Bool, shape: reduced(shape, &axes, args.flag(1)) })
}

/// The type of a number of elements along axes.
pub(super) fn number(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    Ok(TensorType { dtype: DType::I32, ..truth(srcs, args)? })
}
