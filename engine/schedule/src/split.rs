//! Pass "split": divides reductions in two, the second of which reduces the results of blocks, so
//! floats are summed in another order.
//!
//! On a device with thread groups those of many elements to few, so that all its multiprocessors
//! work: a group computes each element of a kernel's output. On a CPU long sums of products, such
//! as the gradient of the weights of a convolution, so that the operands of a block stay in a cache
//! while they are read for one element of the output after the other.
//!
//! One of the reduced axes becomes two; the first kernel reduces all but the outer one of them, the
//! second kernel the outer one. If the axis has no suitable divisor, a few last elements, which
//! fill no block, are reduced by themselves.

use gradiff_graph::target::Thresholds;
use gradiff_graph::{Arg, Dims, Op, Pairs, UOp};

use crate::pack::is_invariant;
use crate::realize::index_of_gather;
use crate::tuning::{BUSY_GROUPS, GROUPS, GROUPS_MIN};
use crate::views::base_and_tracker;
use crate::{Options, Split, shape_of, size_of};

/// Returns the reduction in two steps; `None` if that is no gain.
pub(crate) fn split(new: &UOp, options: &Options) -> Option<UOp> {
    let (Op::ReduceAxis, Arg::Reduce(..)) = (new.op(), new.arg()) else { return None };
    let (axis, count) = match options.split {
        Split::Never => None,
        Split::FewOutputs => blocks_of_few_outputs(new, &options.thresholds),
        Split::Products => blocks_of_products(new, &options.thresholds),
    }?;
    Some(in_blocks(new, axis, count))
}

/// Returns an axis and the number of its blocks, if the reduction is long and its output has few
/// elements.
fn blocks_of_few_outputs(new: &UOp, thresholds: &Thresholds) -> Option<(usize, i64)> {
    let Arg::Reduce(_, axes) = new.arg() else { return None };
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
    Some((axis, count_of(shape[axis], outputs, is_long)?))
}

/// Returns an axis of both operands of a long sum of products and the number of its blocks, if
/// both exceed a cache, are read often, and have more elements than the results of all blocks.
fn blocks_of_products(new: &UOp, thresholds: &Thresholds) -> Option<(usize, i64)> {
    let Arg::Reduce(Op::Add, axes) = new.arg() else { return None };
    let product = &new.src()[0];
    let shape = shape_of(product);
    let [x, y] = product.src() else { return None };
    if product.op() != Op::Mul || [x, y].iter().any(|factor| shape_of(factor) != shape) {
        return None;
    }
    let (products, outputs) = (size_of(product), size_of(new).max(1));
    let sizes = [x, y].map(|factor| size_of(&base_and_tracker(factor).0));
    let elements: i64 = sizes.iter().sum();
    let is_large = sizes.iter().all(|size| thresholds.split_operand_elements < *size);
    let is_read_often = thresholds.split_reads <= products / elements.max(1);
    let least = products / outputs / thresholds.split_products;
    if !is_large || !is_read_often || least < 2 {
        return None;
    }
    let is_varying = |axis: &usize| [x, y].iter().all(|factor| !is_invariant(factor, *axis));
    let axis = axes.iter().map(|axis| *axis as usize).find(is_varying)?;
    let size = shape[axis];
    // Twice as many blocks at most, if fewer elements are left then.
    let limit = (2 * least).min(size).min(elements / (2 * outputs));
    (least..=limit).min_by_key(|count| (size % count, *count)).map(|count| (axis, count))
}

/// Returns a reduction that reduces this many blocks of an axis, then their results.
fn in_blocks(new: &UOp, axis: usize, count: i64) -> UOp {
    let Arg::Reduce(op, axes) = new.arg() else { return new.clone() };
    let source = &new.src()[0];
    let shape = shape_of(source);
    let length = shape[axis] / count;
    let sizes = |outer: i64, inner: i64| -> Dims {
        let (before, after) = (&shape[..axis], &shape[axis + 1..]);
        before.iter().copied().chain([outer, inner]).chain(after.iter().copied()).collect()
    };
    let node = |op, source: UOp, arg| UOp::new(op, source.dtype(), [source], arg);
    // The factors of a product are moved one by one, so that it stays one.
    let moved = |source: &UOp, movement: &dyn Fn(UOp) -> UOp| match source.op() {
        Op::Mul => source.with_src(source.src().iter().cloned().map(movement)),
        _ => movement(source.clone()),
    };
    let part = |source: &UOp, start: i64, end: i64| {
        let whole = shape.iter().enumerate();
        let pairs = whole.map(|(at, size)| if at == axis { (start, end) } else { (0, *size) });
        let bounds: Pairs = pairs.collect();
        moved(source, &|factor| node(Op::Shrink, factor, Arg::Pairs(bounds.clone())))
    };
    let divided = count * length;
    let has_rest = divided < shape[axis];
    let parts = if has_rest { part(source, 0, divided) } else { source.clone() };
    let parts = moved(&parts, &|factor| node(Op::Reshape, factor, Arg::Dims(sizes(count, length))));
    let inner = |reduced: &i64| if axis as i64 <= *reduced { reduced + 1 } else { *reduced };
    let inner = axes.iter().map(inner).collect();
    let parts = node(Op::ReduceAxis, parts, Arg::Reduce(*op, inner));
    let parts = node(Op::Contiguous, parts, Arg::None);
    let outer = std::iter::once(axis as i64).collect();
    let whole = node(Op::ReduceAxis, parts, Arg::Reduce(*op, outer));
    let whole = node(Op::Reshape, whole, Arg::Dims(Dims::from_slice(shape_of(new))));
    if !has_rest {
        return whole;
    }
    let rest = part(source, divided, shape[axis]);
    let is_single = axes.iter().all(|axis| shape_of(&rest)[*axis as usize] == 1);
    let rest = match is_single {
        true => rest,
        false => node(Op::ReduceAxis, rest, Arg::Reduce(*op, axes.clone())),
    };
    UOp::binary(*op, whole, rest)
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
