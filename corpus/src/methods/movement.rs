//! Typing of methods that move elements.

use super::{Args, axes};
use crate::TensorType;

/// The type of rotated elements: that of the source.
pub(super) fn roll(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    let (shifts, list) = (args.ints(0), args.ints(1));
    axes(list, srcs[0].shape.len())?;
    match shifts.len() == list.len() {
        true => Ok(srcs[0].clone()),
        false => Err(format!("{} shifts for {} axes", shifts.len(), list.len())),
    }
}
