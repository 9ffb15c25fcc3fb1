//! Methods whose element at each position is a reduction of the elements so far.

use gradiff_corpus::ReduceOp;

use super::Call;
use crate::cell::Cell;
use crate::infer::{Check, reduced, resolve_axis};
use crate::movement::for_each_index;
use crate::reduce::Running;
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
    let new = || Running::new(op, call.sums, x.dtype);
    let next = |line: &mut Running, cell| {
        line.push(cell);
        line.result()
    };
    let cells = along_lines(x, call.args.int(0), new, next)?;
    Ok(Value::new(reduced(op, x.dtype), x.shape.clone(), cells))
}

/// Returns for each element what `next` makes of it and of the state of its line along an axis,
/// which is `new` before the first element.
pub(super) fn along_lines<S>(
    x: &Value,
    axis: i64,
    new: impl Fn() -> S,
    mut next: impl FnMut(&mut S, Cell) -> Cell,
) -> Check<Vec<Cell>> {
    let axis = resolve_axis(axis, x.shape.len())?;
    let stride: usize = x.shape[axis + 1..].iter().product();
    let mut lines: Vec<S> = Vec::with_capacity(stride);
    let mut cells = Vec::with_capacity(x.cells.len());
    for_each_index(&x.shape, |index| {
        let line = cells.len() % stride;
        if index[axis] == 0 && line == 0 {
            lines.clear();
        }
        if index[axis] == 0 {
            lines.push(new());
        }
        let cell = x.cells[cells.len()];
        cells.push(next(&mut lines[line], cell));
    });
    Ok(cells)
}
