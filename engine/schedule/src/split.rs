//! Pass "split": divides long reductions to few elements into two, so that all multiprocessors of a
//! device with thread groups work on them: a group computes each element of a kernel's output.
//!
//! The longest reduced axis becomes two; the first kernel reduces all but the outer one of them,
//! the second kernel the outer one. The second one reduces the results of blocks, so floats
//! are summed in another order. If the axis has no suitable divisor, a few last elements, which
//! fill no block, are reduced by themselves.

use gradiff_graph::target::Thresholds;
use gradiff_graph::{Arg, Dims, Op, UOp};

use crate::realize::index_of_gather;
use crate::tuning::{BUSY_GROUPS, GROUPS, GROUPS_MIN};
use crate::views::base_and_tracker;
use crate::{shape_of, size_of};

/// Returns the reduction in two steps; `None` if it is short, or its output has many elements.
pub(crate) fn split(new: &UOp, thresholds: &Thresholds) -> Option<UOp> {
    let (Op::ReduceAxis, Arg::Reduce(op, axes)) = (new.op(), new.arg()) else { return None };
    let source = &new.src()[0];
    let shape = shape_of(source);
    let outputs = size_of(new).max(1);
    let reduced = size_of(source) / outputs;
    // A gather is one load, however long its table is.
    if reduced < thresholds.split_elements || index_of_gather(new).is_some() {
        return None;
    }
    let axis = axes.iter().map(|axis| *axis as usize).max_by_key(|axis| shape[*axis])?;
    let is_long = |count: i64| thresholds.split_elements <= reduced / count && !is_chosen(source);
    let count = count_of(shape[axis], outputs, is_long)?;
    let length = shape[axis] / count;
    let sizes = |outer: i64, inner: i64| -> Dims {
        let (before, after) = (&shape[..axis], &shape[axis + 1..]);
        before.iter().copied().chain([outer, inner]).chain(after.iter().copied()).collect()
    };
    let node = |op, source: UOp, arg| UOp::new(op, source.dtype(), [source], arg);
    let part = |start: i64, end: i64| {
        let whole = shape.iter().enumerate();
        let pairs = whole.map(|(at, size)| if at == axis { (start, end) } else { (0, *size) });
        node(Op::Shrink, source.clone(), Arg::Pairs(pairs.collect()))
    };
    let divided = count * length;
    let has_rest = divided < shape[axis];
    let parts = if has_rest { part(0, divided) } else { source.clone() };
    let parts = node(Op::Reshape, parts, Arg::Dims(sizes(count, length)));
    let moved = |reduced: &i64| if axis as i64 <= *reduced { reduced + 1 } else { *reduced };
    let inner = axes.iter().map(moved).collect();
    let parts = node(Op::ReduceAxis, parts, Arg::Reduce(*op, inner));
    let parts = node(Op::Contiguous, parts, Arg::None);
    let outer = std::iter::once(axis as i64).collect();
    let whole = node(Op::ReduceAxis, parts, Arg::Reduce(*op, outer));
    let whole = node(Op::Reshape, whole, Arg::Dims(Dims::from_slice(shape_of(new))));
    if !has_rest {
        return Some(whole);
    }
    let rest = part(divided, shape[axis]);
    let is_single = axes.iter().all(|axis| shape_of(&rest)[*axis as usize] == 1);
    let rest = match is_single {
        true => rest,
        false => node(Op::ReduceAxis, rest, Arg::Reduce(*op, axes.clone())),
    };
    Some(UOp::binary(*op, whole, rest))
}

/// Returns the number of blocks of an axis: the largest divisor, if that gives enough groups for
/// each element of the output or short blocks; else the number for which a block and what is left
/// are shortest together. `None` if the axis is not divided.
fn count_of(size: i64, outputs: i64, is_long: impl Fn(i64) -> bool) -> Option<i64> {
    let limit = GROUPS / outputs;
    let divisor = (GROUPS_MIN..=limit).rev().find(|count| size % count == 0);
    let groups = divisor.unwrap_or(1);
    if BUSY_GROUPS <= groups * outputs || !is_long(groups) {
        return divisor;
    }
    let cost = |count: &i64| (size / count + size % count, -count);
    (GROUPS_MIN..=limit.min(size)).min_by_key(cost)
}

/// Returns whether elements are chosen by their positions, as those of a gather are: a kernel loads
/// one of them.
fn is_chosen(value: &UOp) -> bool {
    let condition = value.src().first().filter(|_| value.op() == Op::Where);
    let is_counter = |side: &UOp| base_and_tracker(side).0.op() == Op::Iota;
    let is_equality = |condition: &&UOp| condition.op() == Op::CmpNe;
    condition.filter(is_equality).is_some_and(|found| found.src().iter().any(is_counter))
}
