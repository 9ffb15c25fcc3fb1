//! Methods whose element at each position is a reduction of the elements so far.

use gradiff_corpus::ReduceOp;

use super::Call;
use crate::cell::Cell;
use crate::infer::{Check, reduced, resolve_axis};
use crate::movement::for_each_index;
use crate::reduce::reduce;
use crate::value::Value;

/// The running sums along an axis.
pub(super) fn sum(call: Call<'_>) -> Check<Value> {
    running(call, ReduceOp::Sum)
}

/// The running products along an axis.
pub(super) fn product(call: Call<'_>) -> Check<Value> {
    running(call, ReduceOp::Prod)
}

/// The largest elements so far along an axis.
pub(super) fn largest(call: Call<'_>) -> Check<Value> {
    running(call, ReduceOp::Max)
}

fn running(call: Call<'_>, op: ReduceOp) -> Check<Value> {
    let x = call.srcs[0];
    let axis = resolve_axis(call.args.int(0), x.shape.len())?;
    let stride: usize = x.shape[axis + 1..].iter().product();
    let mut cells = Vec::with_capacity(x.cells.len());
    for_each_index(&x.shape, |index| {
        let count = index[axis] + 1;
        let first = cells.len() - index[axis] * stride;
        let so_far: Vec<Cell> = (0..count).map(|i| x.cells[first + i * stride]).collect();
        cells.push(reduce(op, call.sums, x.dtype, &so_far));
    });
    Ok(Value::new(reduced(op, x.dtype), x.shape.clone(), cells))
}
