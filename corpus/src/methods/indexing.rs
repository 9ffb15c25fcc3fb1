//! Typing of methods with indices.

use super::{Args, Typed, axis, size};
use crate::{DType, TensorType, geometry};

fn check_index(index: &TensorType) -> Result<(), String> {
    match index.dtype.is_int() {
        true => Ok(()),
        false => Err(format!("the index is {}, it must be of integers", index.dtype.name())),
    }
}

pub(super) fn one_hot(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    check_index(srcs[0])?;
    let mut shape = srcs[0].shape.clone();
    shape.push(size(args.int(0))?);
    Ok(TensorType { dtype: DType::I32, shape })
}

pub(super) fn index_select(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let (mut found, index) = (srcs[0].clone(), srcs[1]);
    check_index(index)?;
    let at = axis(args.int(0), found.shape.len())?;
    let [count] = index.shape[..] else {
        return Err(format!("the index has shape {:?}, it must have one axis", index.shape));
    };
    found.shape[at] = count;
    Ok(found)
}

/// The type of a tensor after elements of a source are written at indices.
pub(super) fn scatter(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let [x, index, src] = srcs[..] else { return Err(format!("{} sources", srcs.len())) };
    check_index(index)?;
    let rank = x.shape.len();
    let at = axis(args.int(0), rank)?;
    let fits = index.shape.len() == rank
        && (0..rank).all(|i| i == at || index.shape[i] == x.shape[i])
        && src.shape == index.shape
        && src.dtype == x.dtype;
    match fits {
        true => Ok(x.clone()),
        false => Err(format!("{src:?} at {:?} of {x:?} along axis {at}", index.shape)),
    }
}

pub(super) fn scatter_reduce(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let dtype = srcs[0].dtype;
    let is_taken = match args.word(1) {
        "mean" => dtype.is_float(),
        "sum" | "prod" => dtype != DType::Bool,
        _ => true,
    };
    match is_taken {
        true => scatter(srcs, args),
        false => Err(format!("it does not take {} for {}", dtype.name(), args.word(1))),
    }
}

pub(super) fn scatter_add(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    match srcs[0].dtype {
        DType::Bool => Err("it does not take bool".to_string()),
        _ => scatter(srcs, args),
    }
}

/// The type of the elements that a mask selects.
pub(super) fn masked_select(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let (x, mask) = (srcs[0], srcs[1]);
    if mask.dtype != DType::Bool {
        return Err(format!("a mask of {}, it must be of bool", mask.dtype.name()));
    }
    let mut shape = x.shape.clone();
    geometry::broadcast("value and mask", &mut shape, &mask.shape)?;
    geometry::check_size(&shape)?;
    Ok(TensorType { dtype: x.dtype, shape: vec![size(args.int(0))?] })
}

/// The type of the indices of elements.
pub(super) fn nonzero(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    i32::try_from(args.int(1)).map_err(|_| format!("{} is not an i32", args.int(1)))?;
    Ok(TensorType { dtype: DType::I32, shape: vec![size(args.int(0))?, srcs[0].shape.len()] })
}
