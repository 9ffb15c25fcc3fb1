//! A loop of a kernel: its range, and what runs in it.

use gradiff_graph::target::Thresholds;
use gradiff_graph::{Arg, Axis, AxisKind, DType, Op, UOp};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::Error;
use crate::cached_rows::row_ranges;
use crate::error::malformed;
use crate::free::Free;
use crate::scatter::ordered_ranges;

/// A loop of a lowered kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The range.
    pub range: UOp,
    /// Its kind and number.
    pub axis: Axis,
    /// The trip count.
    pub size: i64,
    /// True if a reduction runs over it.
    pub is_reduced: bool,
    /// True if a store is inside it.
    pub is_output: bool,
    /// True if all stores are inside it.
    pub is_in_each_store: bool,
    /// True if a reduction over it is inside a loop of another reduction.
    pub is_nested: bool,
    /// The number and the type of each reduction over it.
    pub reductions: SmallVec<[(usize, DType); 2]>,
    /// True if its iterations may update the same element; they keep their order.
    pub is_ordered: bool,
    /// The most parts, equal and contiguous, no two of which store the same element.
    pub(super) separate_parts: i64,
    /// True if each of its iterations caches a row of its own.
    pub(super) has_cached_rows: bool,
    /// Its bit in sets of loops.
    pub(super) bit: u64,
    /// The loops (bits) that some node depends on, or runs inside of, together with it.
    pub(super) related: u64,
}

impl Loop {
    /// Returns whether no node depends on both loops, or is reduced in one of them and depends on
    /// the other, so that neither has to be inside the other.
    pub(super) fn is_independent(&self, other: &Loop) -> bool {
        self.related & other.bit == 0
    }
}

/// Returns the local arrays in which so many threads exchange the partial results of a reduction.
pub(super) fn array_count(threads: i64, thresholds: &Thresholds) -> i64 {
    if thresholds.twice_reduced_threads <= threads { 2 } else { 1 }
}

/// Returns the loops of a lowered kernel in the order of [`Loops::list`](super::Loops::list).
///
/// # Errors
/// If the end of a range is not constant.
pub(super) fn list(root: &UOp, free: &Free) -> Result<Vec<Loop>, Error> {
    let bits = |node: &UOp| free.of_node(node);
    let outputs = root.src().iter().fold(0, |set, store| set | bits(store));
    let reductions: Vec<&UOp> = free.nodes.iter().filter(|node| node.op() == Op::Reduce).collect();
    let reduced = reductions.iter().fold(0, |set, reduction| set | free.of_loops(reduction));
    let (cached_rows, ordered) = (row_ranges(free), ordered_ranges(free));
    let repeated = repeated_stores(free);
    // The sink computes nothing: stores are independent. A reduction runs inside the loops that its
    // result depends on, also if its value is the same in all of its own iterations.
    let inside = |node: &UOp| match node.op() {
        Op::Reduce => bits(node) | free.of_loops(node),
        _ => bits(node),
    };
    let mut together: Vec<u64> =
        free.nodes.iter().filter(|node| node.op() != Op::Sink).map(inside).collect();
    together.sort_unstable();
    together.dedup();
    let loop_of = |range: &UOp| {
        let (Some(size), Arg::Axis(axis)) = (range.trip_count(), range.arg()) else {
            return Err(malformed("a range without an end or a number"));
        };
        let bit = bits(range);
        let over_it = reductions
            .iter()
            .enumerate()
            .filter(|(_, reduction)| free.of_loops(reduction) & bit != 0);
        Ok(Loop {
            range: range.clone(),
            axis: *axis,
            size,
            is_reduced: reduced & bit != 0,
            is_output: outputs & bit != 0,
            is_in_each_store: root.src().iter().all(|store| bits(store) & bit != 0),
            is_nested: over_it.clone().any(|(_, reduction)| bits(reduction) & reduced != 0),
            reductions: over_it.map(|(number, reduction)| (number, reduction.dtype())).collect(),
            is_ordered: ordered & bit != 0,
            separate_parts: separate_parts(&repeated, bit),
            has_cached_rows: cached_rows & bit != 0,
            bit,
            related: together
                .iter()
                .filter(|set| *set & bit != 0)
                .fold(bit, |related, set| related | set),
        })
    };
    let mut list: Vec<Loop> = free.ranges().map(loop_of).collect::<Result<_, Error>>()?;
    list.sort_by_key(|info| (info.axis.kind != AxisKind::Loop, !info.is_output, info.axis));
    Ok(list)
}

/// Iterations that store an element again: those of the last of the blocks that
/// [`OptOp::Overlap`](super::OptOp::Overlap) makes, and of the block before it.
struct Repeated {
    /// The loops (bits) that the iterations are those of.
    loops: u64,
    /// The number of blocks, if no iteration was added to them since.
    blocks: Option<i64>,
}

/// Returns the most parts of a loop, given its bit, that store no element twice.
fn separate_parts(repeated: &[Repeated], bit: u64) -> i64 {
    let mut of_loop = repeated.iter().filter(|repeated| repeated.loops & bit != 0);
    match (of_loop.next(), of_loop.next()) {
        (None, _) => i64::MAX,
        // The last two blocks must be in one part.
        (Some(Repeated { blocks: Some(blocks), .. }), None) => blocks / 2,
        _ => 1,
    }
}

/// Finds the stores of blocks shifted inwards, whose indices are clamped by `min`.
fn repeated_stores(free: &Free) -> Vec<Repeated> {
    let mut indices: FxHashSet<&UOp> = FxHashSet::default();
    let mut repeated = Vec::new();
    for node in free.nodes.iter().rev() {
        match node.op() {
            Op::Store => indices.extend(node.src()[0].src().get(1)),
            _ if !indices.contains(node) => {}
            Op::Min => {
                let loops = free.of_node(node);
                repeated.push(Repeated { loops, blocks: blocks_of(node, free) });
            }
            _ => indices.extend(node.src()),
        }
    }
    repeated
}

/// Returns the number of blocks whose starts are `min(block * amount, last)`, if the ranges that
/// they depend on have as many iterations as the blocks together.
fn blocks_of(min: &UOp, free: &Free) -> Option<i64> {
    let number = |node: &UOp| i64::try_from(node.as_int()?).ok();
    let [start, last] = min.src() else { return None };
    let (Op::Mul, [_, amount]) = (start.op(), start.src()) else { return None };
    let (amount, last) = (number(amount)?, number(last)?);
    let blocks = 1 + last.checked_add(amount - 1)? / amount;
    let is_inside = |range: &&UOp| free.of_node(range) & free.of_node(min) != 0;
    let mut sizes = free.ranges().filter(is_inside).map(|range| number(&range.src()[0]));
    let iterations = sizes.try_fold(1i64, |product, size| product.checked_mul(size?))?;
    (Some(iterations) == blocks.checked_mul(amount)).then_some(blocks)
}
