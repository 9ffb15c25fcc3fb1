//! Typing of methods that run along an axis.

use super::{Args, axis};
use crate::{DType, TensorType};

/// The type of running sums and products: the shape of the source, the dtype of its sum.
pub(super) fn accumulated(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    let TensorType { dtype, shape } = same(srcs, args)?;
    let dtype = match dtype {
        DType::Bool | DType::I8 | DType::I16 => DType::I32,
        DType::U8 | DType::U16 => DType::U32,
        dtype => dtype,
    };
    Ok(TensorType { dtype, shape })
}

/// The type of a running selection: that of the source.
pub(super) fn same(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    axis(args.int(0), srcs[0].shape.len())?;
    Ok(srcs[0].clone())
}
