//! Typing of new sizes of axes.

use super::reduction::check_float;
use super::{Args, size};
use crate::TensorType;

/// The type of a source with new sizes of its last axes.
pub(super) fn interpolate(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    let TensorType { dtype, shape } = srcs[0];
    let (sizes, mode) = (args.ints(0), args.word(1));
    if sizes.is_empty() || shape.len() < sizes.len() {
        return Err(format!("{} sizes for {} axes", sizes.len(), shape.len()));
    }
    match mode {
        "linear" => check_float(*dtype)?,
        _ if args.flag(2) => return Err(format!("align_corners with {mode}: linear takes it")),
        _ => {}
    }
    let outer = shape.len() - sizes.len();
    if sizes.contains(&0) || shape[outer..].contains(&0) {
        return Err(format!("{:?} to {sizes:?}: sizes must be 1 or more", &shape[outer..]));
    }
    let mut found = shape.clone();
    for (at, number) in sizes.iter().enumerate() {
        found[outer + at] = size(*number)?;
    }
    Ok(TensorType { dtype: *dtype, shape: found })
}
