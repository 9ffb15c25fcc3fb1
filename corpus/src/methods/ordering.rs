//! Typing of methods that compare elements with each other.

use super::reduction::reduced;
use super::{Args, Typed, axes, axis, size};
use crate::{DType, TensorType};

/// `sort`: the elements of the source in another order.
pub(super) fn sorted(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    axis(args.int(0), srcs[0].shape.len())?;
    Ok(srcs[0].clone())
}

/// `argsort`: positions along an axis.
pub(super) fn positions(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    Ok(TensorType { dtype: DType::I32, ..sorted(srcs, args)? })
}

/// `topk`: the first `k` elements along an axis.
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

/// `topk_indices`: the positions of the elements of `topk`.
pub(super) fn first_positions(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    Ok(TensorType { dtype: DType::I32, ..first(srcs, args)? })
}

/// `argmax` and `argmin`: a position for each row along an axis, which may not be empty.
pub(super) fn position(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let shape = &srcs[0].shape;
    let at = axis(args.int(0), shape.len())?;
    if shape[at] == 0 {
        return Err(format!("axis {at} of shape {shape:?} is empty"));
    }
    Ok(TensorType { dtype: DType::I32, shape: reduced(shape, &[at], args.flag(1)) })
}

/// `any` and `all`: a bool for the elements along axes.
pub(super) fn truth(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let shape = &srcs[0].shape;
    let axes = axes(args.ints(0), shape.len())?;
    Ok(TensorType { dtype: DType::Bool, shape: reduced(shape, &axes, args.flag(1)) })
}

/// `count_nonzero`: a count for the elements along axes.
pub(super) fn number(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    Ok(TensorType { dtype: DType::I32, ..truth(srcs, args)? })
}
