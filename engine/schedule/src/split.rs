//! Pass "split": divides long reductions to few elements into two, so that all multiprocessors of a
//! device with thread groups work on them: a group computes each element of a kernel's output.
//!
//! The longest reduced axis becomes two; the first kernel reduces all but the outer one of them,
//! the second kernel the outer one. The second one reduces the results of blocks, so floats
//! are summed in another order.

use gradiff_graph::target::Thresholds;
use gradiff_graph::{Arg, Dims, Op, UOp};

use crate::tuning::{GROUPS, GROUPS_MIN};
use crate::{shape_of, size_of};

/// Returns the reduction in two steps; `None` if it is short, or its output has many elements.
pub(crate) fn split(new: &UOp, thresholds: &Thresholds) -> Option<UOp> {
    let (Op::ReduceAxis, Arg::Reduce(op, axes)) = (new.op(), new.arg()) else { return None };
    let shape = shape_of(&new.src()[0]);
    let outputs = size_of(new).max(1);
    if size_of(&new.src()[0]) / outputs < thresholds.split_elements {
        return None;
    }
    let axis = axes.iter().map(|axis| *axis as usize).max_by_key(|axis| shape[*axis])?;
    let count = (GROUPS_MIN..=GROUPS / outputs).rev().find(|count| shape[axis] % count == 0)?;
    let sizes = |outer: i64, inner: i64| -> Dims {
        let (before, after) = (&shape[..axis], &shape[axis + 1..]);
        before.iter().copied().chain([outer, inner]).chain(after.iter().copied()).collect()
    };
    let node = |op, source: UOp, arg| UOp::new(op, source.dtype(), [source], arg);
    let split = sizes(count, shape[axis] / count);
    let parts = node(Op::Reshape, new.src()[0].clone(), Arg::Dims(split));
    let moved = |reduced: &i64| if axis as i64 <= *reduced { reduced + 1 } else { *reduced };
    let inner = axes.iter().map(moved).collect();
    let parts = node(Op::ReduceAxis, parts, Arg::Reduce(*op, inner));
    let parts = node(Op::Contiguous, parts, Arg::None);
    let outer = std::iter::once(axis as i64).collect();
    let whole = node(Op::ReduceAxis, parts, Arg::Reduce(*op, outer));
    Some(node(Op::Reshape, whole, Arg::Dims(Dims::from_slice(shape_of(new)))))
}
