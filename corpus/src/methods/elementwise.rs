//! Typing of elementwise functions. A number takes the dtype of the first source.

use super::Args;
use super::reduction::wide;
use crate::geometry::broadcast;
use crate::{DType, TensorType, literal_bits, promote};

/// The type of a function of integers and floats: that of the source.
pub(super) fn number(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    check(srcs[0].dtype != DType::Bool, srcs[0].dtype, "integers and floats")?;
    numbers(srcs[0].dtype, args)?;
    Ok(srcs[0].clone())
}

/// The type of a function of floats: that of the source.
pub(super) fn float(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    check(srcs[0].dtype.is_float(), srcs[0].dtype, "floats")?;
    numbers(srcs[0].dtype, args)?;
    Ok(srcs[0].clone())
}

/// The type of a function of floats with a parameter that must be finite and above 0.
pub(super) fn float_scaled(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    let found = float(srcs, args)?;
    let bits = literal_bits(found.dtype, &args.number(0)).unwrap_or(0);
    let value = crate::element::float_value(found.dtype, bits);
    match 0.0 < value && value.is_finite() {
        true => Ok(found),
        false => Err(format!("a parameter of {value}: it must be finite and above 0")),
    }
}

/// `isnan`, `isinf` and `isfinite`: bool, in the shape of the source.
pub(super) fn predicate(srcs: &[&TensorType], _: Args<'_>) -> Result<TensorType, String> {
    Ok(TensorType { dtype: DType::Bool, shape: srcs[0].shape.clone() })
}

/// The type of a function of several sources of floats: promoted from left to right, broadcast.
pub(super) fn floats(srcs: &[&TensorType], _: Args<'_>) -> Result<TensorType, String> {
    let (mut dtype, mut shape) = (srcs[0].dtype, srcs[0].shape.clone());
    for src in srcs {
        check(src.dtype.is_float(), src.dtype, "floats")?;
        dtype = promote(dtype, src.dtype);
        broadcast("sources", &mut shape, &src.shape)?;
    }
    Ok(TensorType { dtype, shape })
}

/// `isclose`: bool, in the broadcast shape of two sources of floats.
pub(super) fn close(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    let TensorType { dtype, shape } = floats(srcs, args)?;
    for number in [args.number(0), args.number(1)] {
        literal_bits(wide(dtype), &number)
            .ok_or_else(|| format!("{number} is not representable in {}", wide(dtype).name()))?;
    }
    Ok(TensorType { dtype: DType::Bool, shape })
}

/// `masked_fill`: the type of the value, broadcast with the mask.
pub(super) fn masked(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    check(srcs[1].dtype == DType::Bool, srcs[1].dtype, "a mask of bool")?;
    numbers(srcs[0].dtype, args)?;
    let mut shape = srcs[0].shape.clone();
    broadcast("value and mask", &mut shape, &srcs[1].shape)?;
    Ok(TensorType { dtype: srcs[0].dtype, shape })
}

fn check(is_allowed: bool, dtype: DType, allowed: &str) -> Result<(), String> {
    match is_allowed {
        true => Ok(()),
        false => Err(format!("a source of {}: it takes {allowed}", dtype.name())),
    }
}

/// Checks that every argument, all of which are numbers, is representable.
fn numbers(dtype: DType, args: Args<'_>) -> Result<(), String> {
    for number in 0..args.0.len() {
        let literal = args.number(number);
        literal_bits(dtype, &literal)
            .ok_or_else(|| format!("{literal:?} is not representable in {}", dtype.name()))?;
    }
    Ok(())
}
