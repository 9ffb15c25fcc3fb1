//! Pass `cache-inputs`: caches a reduction's input (TVM's `cache_write`).
//!
//! If the input of a reduction is a costly value of each element of a row, and a later loop over
//! the same row computes the same value again, the reduction stores it into an array of the thread,
//! and the later loop loads it.
//!
//! ```text
//! s = sum over r of exp2(x[r])              s = sum over r of (t[r] = exp2(x[r]))
//! y[q] = exp2(x[q]) / s                     y[q] = t[q] / s,  after the loop of s
//! ```
//!
//! The second source of a load is the node after which it runs: in the loop of the reduction the
//! store of the same iteration, in later loops the reduction.

use gradiff_graph::target::Thresholds;
use gradiff_graph::{Arg, AxisKind, DType, Local, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::Error;
use crate::cached_rows::{array_of, cache_stores, row_ranges_of};
use crate::context::Context;
use crate::free::Free;
use crate::nodes::map_nodes;
use crate::opt::tuning::ARRAYS_MAX;
use crate::transcendental::uops;

/// Caches up to [`ARRAYS_MAX`] inputs of reductions. Devices with groups use local arrays to share
/// values among threads instead, so nothing is cached for them.
pub(crate) fn cache_inputs(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let mut root = root.clone();
    if ctx.target.groups.is_some() {
        return Ok(root);
    }
    for number in 0..ARRAYS_MAX {
        match cache_input(&root, number, &ctx.target.thresholds)? {
            Some(cached) => root = cached,
            None => break,
        }
    }
    Ok(root)
}

/// Returns the kernel with one more array; `None` if no value is worth one.
fn cache_input(root: &UOp, number: usize, thresholds: &Thresholds) -> Result<Option<UOp>, Error> {
    let total_cost = root.toposort().iter().map(cost).sum::<i64>();
    if total_cost < 2 * thresholds.cache_min_additions {
        return Ok(None);
    }
    let free = Free::of(root)?;
    let reductions: Vec<&UOp> = free.nodes.iter().filter(|node| node.op() == Op::Reduce).collect();
    let ranges_of = |reduction: &UOp| {
        reduction.src()[1..].iter().fold(0, |bits, range| bits | free.of_node(range))
    };
    let reduced = reductions.iter().fold(0, |bits, reduction| bits | ranges_of(reduction));
    for reduction in reductions.iter().filter(|node| free.of_node(node) & reduced == 0) {
        let ranges = &reduction.src()[1..];
        let row = Row { free: &free, ranges, bits: ranges_of(reduction), reduced };
        let Some(size) = row.size().filter(|_| row.may_recur()) else { continue };
        let before: FxHashSet<UOp> = reduction.toposort().into_iter().collect();
        // Only the whole input is cached: a part of it may not be computed in all iterations, as
        // where a gate is closed, and later loops load every element.
        let value = &reduction.src()[0];
        let is_cached = value.op() == Op::Load && value.src()[0].src()[0].op() == Op::DefineLocal;
        let bytes = size.saturating_mul(value.dtype().size_bytes() as i64);
        if is_cached
            || thresholds.cache_row_bytes < bytes
            || !row.is_worth_caching(value, thresholds)
        {
            continue;
        }
        let candidates = free.nodes.iter().filter(|node| !before.contains(node));
        let matches: FxHashMap<UOp, Counters> = candidates
            .filter_map(|node| Some((node.clone(), row.match_expression(value, node)?)))
            .collect();
        if !matches.is_empty() {
            let array = Local { number, size_elements: size };
            return row.cached(root, reduction, &matches, array).map(Some);
        }
    }
    Ok(None)
}

/// The counter of a later loop for each range of a row.
type Counters = SmallVec<[UOp; 2]>;

/// The loops of a reduction.
struct Row<'a> {
    free: &'a Free,
    ranges: &'a [UOp],
    bits: u64,
    /// The ranges of all reductions, one bit each.
    reduced: u64,
}

impl Row<'_> {
    /// Returns its number of elements; `None` if a source is not a range of constant size.
    fn size(&self) -> Option<i64> {
        self.ranges.iter().try_fold(1i64, |size, range| size.checked_mul(range.trip_count()?))
    }

    /// Returns whether each of its ranges has the size of some other range, so that there may be
    /// another loop over the row.
    fn may_recur(&self) -> bool {
        let is_outside = |range: &UOp| !self.ranges.contains(range);
        let outside: Vec<&UOp> = self.free.ranges().filter(|range| is_outside(range)).collect();
        let recurs = |range: &UOp| outside.iter().any(|candidate| candidate.src() == range.src());
        self.ranges.iter().all(recurs)
    }

    /// Returns whether a value differs from element to element, is computed once for each of them,
    /// not in the loop of another reduction, and is costly.
    fn is_worth_caching(&self, value: &UOp, thresholds: &Thresholds) -> bool {
        let varies = |node: &UOp| self.free.of_node(node) & self.bits;
        let is_data = !matches!(value.dtype(), DType::Bool | DType::Void);
        let is_of_row = self.free.of_node(value) & self.reduced == self.bits;
        if !is_data || !is_of_row || value.op() == Op::Reduce {
            return false;
        }
        let nodes = value.toposort();
        let costs = nodes.iter().filter(|node| varies(node) != 0).map(cost);
        thresholds.cache_min_additions <= costs.sum::<i64>()
    }

    /// Matches a value with another node that may differ from it in the ranges of the row only;
    /// returns the ranges that the node has in their place.
    fn match_expression(&self, value: &UOp, node: &UOp) -> Option<Counters> {
        let mut counters: SmallVec<[Option<UOp>; 2]> = SmallVec::from_elem(None, self.ranges.len());
        let mut pending = vec![(value, node)];
        let mut seen: FxHashSet<(&UOp, &UOp)> = FxHashSet::default();
        while let Some((left, right)) = pending.pop() {
            if let Some(at) = self.ranges.iter().position(|range| range == left) {
                let is_contradiction = counters[at].as_ref().is_some_and(|known| known != right);
                let is_used = counters.iter().flatten().any(|known| known == right);
                let is_new = counters[at].is_none();
                let is_alike = right.op() == Op::Range && right.src() == left.src();
                if is_contradiction || is_new && is_used || !is_alike || right == left {
                    return None;
                }
                counters[at] = Some(right.clone());
                continue;
            }
            if left == right {
                if self.free.of_node(left) & self.bits != 0 {
                    return None;
                }
                continue;
            }
            let is_alike = left.op() == right.op()
                && left.dtype() == right.dtype()
                && left.arg() == right.arg()
                && left.src().len() == right.src().len();
            if !is_alike {
                return None;
            }
            if seen.insert((left, right)) {
                pending.extend(left.src().iter().zip(right.src()));
            }
        }
        counters.into_iter().collect()
    }

    /// Returns the kernel in which the reduction stores its input and the matches are loads.
    fn cached(
        &self,
        root: &UOp,
        reduction: &UOp,
        matches: &FxHashMap<UOp, Counters>,
        local: Local,
    ) -> Result<UOp, Error> {
        let value = &reduction.src()[0];
        let dtype = value.dtype();
        let array = UOp::new(Op::DefineLocal, dtype, [], Arg::Local(local));
        let address = |counters: &[UOp]| {
            let index = self.index(counters);
            UOp::new(Op::Index, dtype, [array.clone(), index], Arg::None)
        };
        let load_after = |counters: &[UOp], after: UOp| {
            UOp::new(Op::Load, dtype, [address(counters), after], Arg::None)
        };
        let store = [address(self.ranges), value.clone()];
        let store = UOp::new(Op::Store, DType::Void, store, Arg::None);
        let stored = load_after(self.ranges, store);
        let ranges = reduction.src()[1..].iter().cloned();
        let storing = reduction.with_src(std::iter::once(stored).chain(ranges));
        map_nodes(&root.toposort(), |old, node| {
            if old == reduction {
                return Ok(storing.clone());
            }
            Ok(matches.get(old).map_or(node, |counters| load_after(counters, storing.clone())))
        })
    }

    /// Returns the row-major index of the element at these counters.
    fn index(&self, counters: &[UOp]) -> UOp {
        let mut pairs = counters.iter().zip(self.ranges);
        let (first, _) = pairs.next().expect("a reduction has ranges");
        pairs.fold(first.clone(), |index, (counter, range)| {
            let scaled = UOp::binary(Op::Mul, index, range.src()[0].clone());
            UOp::binary(Op::Add, scaled, counter.clone())
        })
    }
}

/// Estimates the cost of an op, in additions.
fn cost(node: &UOp) -> i64 {
    match uops(node) {
        0 => node.op().row().cost,
        count => count,
    }
}

/// Makes each cache array larger by the upcast ranges that select its row, so that rows computed
/// at once do not share memory.
pub(crate) fn privatize_rows(root: &UOp) -> Result<UOp, Error> {
    let order = root.toposort();
    let free = Free::of(root)?;
    let is_upcast =
        |range: &&UOp| matches!(range.arg(), Arg::Axis(axis) if axis.kind == AxisKind::Upcast);
    let upcast: Vec<&UOp> = free.ranges().filter(is_upcast).collect();
    let upcast_of: FxHashMap<UOp, Vec<&UOp>> = cache_stores(&free)
        .map(|store| {
            let row = row_ranges_of(store, &free);
            let selects_row = |range: &&UOp| row & free.of_node(range) != 0;
            (array_of(store).clone(), upcast.iter().copied().filter(selects_row).collect())
        })
        .collect();
    let count = |range: &UOp| range.trip_count().unwrap_or(1);
    map_nodes(&order, |old, node| match (old.op(), old.arg()) {
        (Op::DefineLocal, Arg::Local(local)) => {
            let copies = upcast_of[old].iter().map(|range| count(range)).product::<i64>();
            let size_elements = local.size_elements * copies;
            let arg = Arg::Local(Local { size_elements, ..*local });
            Ok(UOp::new(Op::DefineLocal, old.dtype(), [], arg))
        }
        (Op::Index, _) if let Arg::Local(local) = old.src()[0].arg() => {
            let dtype = old.src()[1].dtype();
            let mut size = local.size_elements;
            let mut index = node.src()[1].clone();
            for range in &upcast_of[&old.src()[0]] {
                let start = UOp::binary(Op::Mul, (*range).clone(), UOp::int(dtype, size));
                index = UOp::binary(Op::Add, start, index);
                size *= count(range);
            }
            let src = node.src().iter().enumerate();
            Ok(node.with_src(
                src.map(|(at, source)| if at == 1 { index.clone() } else { source.clone() }),
            ))
        }
        _ => Ok(node),
    })
}
