//! Methods that move elements.

use super::Call;
use crate::infer::{Check, resolve_axes};
use crate::movement::{for_each_index, position};
use crate::value::Value;

/// Rotates elements along axes.
pub(super) fn roll(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let (shifts, axes) = (call.args.ints(0), resolve_axes(call.args.ints(1), x.shape.len())?);
    if shifts.len() != axes.len() {
        return Err(format!("{} shifts for {} axes", shifts.len(), axes.len()));
    }
    let mut positions = Vec::with_capacity(x.cells.len());
    for_each_index(&x.shape, |index| {
        let mut source = index.to_vec();
        for (axis, shift) in axes.iter().zip(shifts) {
            let size = x.shape[*axis] as i128;
            source[*axis] = (index[*axis] as i128 - i128::from(*shift)).rem_euclid(size) as usize;
        }
        positions.push(position(&source, &x.shape));
    });
    Ok(x.moved((x.shape.clone(), positions)))
}
