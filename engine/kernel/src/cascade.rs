//! Pass `cascade`: makes a sum of many floats a sum of sums (cascade summation). The number of
//! additions into an accumulator is bounded, so the rounding error of a sum grows with the
//! logarithm of its length.
//!
//! ```text
//! s = sum over r < 16384 of x[r]       s = sum over o < 64 of (sum over i < 256 of x[o*256 + i])
//! ```
//!
//! Elements are read in the same order as before. A range whose size has no suitable divisor is
//! split into a part that has one and a remainder, each with a copy of the value.

use gradiff_graph::{Arg, AxisKind, Op, Sources, UOp};
use gradiff_rewrite::{Mode, substitute};

use crate::Error;
use crate::context::Context;
use crate::free::{Free, MAX_RANGES};
use crate::nodes::{map_nodes, number, range as range_of, reduce_arg};

/// Splits all long sums of floats; none in strict mode, in which sums keep their order.
pub(crate) fn cascade(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let limit = ctx.target.thresholds.accumulator_additions;
    let order = root.toposort();
    let is_long = |node: &UOp| is_float_sum(node) && additions(&node.src()[1..]) > limit;
    if ctx.options.rewrite.mode == Mode::Strict || !order.iter().any(is_long) {
        return Ok(root.clone());
    }
    ctx.is_divided = true;
    let free = Free::of(root)?;
    let first = free.ranges().map(number).max().map_or(0, |number| number + 1);
    let mut sums = Sums { limit, next: first, left: MAX_RANGES - free.ranges().count() };
    let shared = shared_ranges(root, &free);
    let root = map_nodes(&order, |old, node| {
        let [value, ranges @ ..] = node.src() else { return Ok(node) };
        if !is_long(old) {
            return Ok(node);
        }
        // The ranges of this sum alone give way to the new ones.
        let kept = (shared & free.of_loops(old)).count_ones() as usize;
        let Some(left) = sums.left.checked_sub(kept) else { return Ok(node) };
        sums.left = left;
        Ok(sums.with_new_ranges(&node, value, ranges))
    })?;
    with_consecutive_numbers(&root, first)
}

/// Returns the ranges (bits) of several reductions, or of a reduction and a store.
fn shared_ranges(root: &UOp, free: &Free) -> u64 {
    let stored = root.src().iter().fold(0, |bits, store| bits | free.of_node(store));
    let reductions = free.nodes.iter().filter(|node| node.op() == Op::Reduce);
    let (_, shared) = reductions.fold((stored, 0), |(seen, shared), reduction| {
        let ranges = free.of_loops(reduction);
        (seen | ranges, shared | seen & ranges)
    });
    shared
}

/// Renumbers the ranges from number `first` on consecutively.
fn with_consecutive_numbers(root: &UOp, first: i64) -> Result<UOp, Error> {
    let order = root.toposort();
    let is_new = |node: &UOp| node.op() == Op::Range && first <= number(node);
    let mut new: Vec<i64> = order.iter().filter(|node| is_new(node)).map(number).collect();
    new.sort_unstable();
    new.dedup();
    map_nodes(&order, |_, node| match (node.arg(), new.binary_search(&number(&node))) {
        (Arg::Axis(axis), Ok(at)) if is_new(&node) => {
            Ok(range_of(trip_count(&node), node.dtype(), axis.kind, first + at as i64))
        }
        _ => Ok(node),
    })
}

fn is_float_sum(node: &UOp) -> bool {
    node.dtype().is_float()
        && matches!((node.op(), node.arg()), (Op::Reduce, Arg::Reduce(Op::Add, _)))
}

/// Returns the number of additions into an accumulator over these ranges.
fn additions(ranges: &[UOp]) -> i64 {
    ranges.iter().map(trip_count).fold(1, i64::saturating_mul)
}

/// Returns the trip count of a range; 1 for a constant that replaced a range of one iteration.
fn trip_count(range: &UOp) -> i64 {
    range.trip_count().unwrap_or(1)
}

/// Returns the kind of a range; `None` for a constant that replaced a range of one iteration.
fn kind(range: &UOp) -> Option<AxisKind> {
    match range.arg() {
        Arg::Axis(axis) => Some(axis.kind),
        _ => None,
    }
}

/// Numbers that are reserved for the ranges into which one range is split repeatedly.
const NUMBERS: i64 = 64;

/// Builds sums of sums.
struct Sums {
    /// Most additions into one accumulator.
    limit: i64,
    /// The number of the next new range.
    next: i64,
    /// The number of ranges that the kernel may still get.
    left: usize,
}

impl Sums {
    /// Returns the sum that replaces the reduction `like`, over new loops. Their numbers grow
    /// inward, with gaps for the loops into which they are split.
    fn with_new_ranges(&mut self, like: &UOp, value: &UOp, ranges: &[UOp]) -> UOp {
        let (mut value, mut ranges) = (value.clone(), ranges.to_vec());
        for range in &mut ranges {
            let Some(kind) = kind(range) else { continue };
            self.next += NUMBERS;
            let new = range_of(trip_count(range), range.dtype(), kind, self.next - 1);
            value = substitute(&value, range, &new);
            *range = new;
        }
        self.sum(like, &value, &ranges)
    }

    /// Returns the sum of `value` over `ranges`, outermost first, that replaces the reduction
    /// `like`.
    fn sum(&mut self, like: &UOp, value: &UOp, ranges: &[UOp]) -> UOp {
        let (mut inner, mut at) = (1i64, ranges.len());
        while 0 < at && inner.saturating_mul(trip_count(&ranges[at - 1])) <= self.limit {
            at -= 1;
            inner *= trip_count(&ranges[at]);
        }
        let Some((split, outer)) = ranges[..at].split_last() else {
            return reduce(like, value, ranges);
        };
        let factor_limit = self.limit / inner;
        let count = trip_count(split);
        let divisor = (factor_limit / 4..=factor_limit)
            .rev()
            .find(|factor| 1 < *factor && count % factor == 0);
        // A remainder has its own copies of all ranges.
        let more = if divisor.is_some() { 1 } else { ranges.len() };
        // Below 4 the accumulator has enough additions without a part of the next range.
        let kind = kind(split).filter(|_| 4 <= factor_limit && more <= self.left);
        let Some(kind) = kind else {
            let at = if at == ranges.len() { at - 1 } else { at };
            let inner = reduce(like, value, &ranges[at..]);
            return self.sum(like, &inner, &ranges[..at]);
        };
        self.left -= more;
        if let Some(factor) = divisor {
            let new = |size, number| range_of(size, split.dtype(), kind, number);
            let outer_range = new(count / factor, number(split) - 1);
            let inner_range = new(factor, number(split));
            let start = UOp::binary(Op::Mul, outer_range.clone(), UOp::int(split.dtype(), factor));
            let value = substitute(value, split, &UOp::binary(Op::Add, start, inner_range.clone()));
            let inner: Vec<UOp> =
                std::iter::once(inner_range).chain(ranges[at..].to_vec()).collect();
            let inner = reduce(like, &value, &inner);
            let outer: Vec<UOp> = outer.iter().cloned().chain([outer_range]).collect();
            return self.sum(like, &inner, &outer);
        }
        let mut unit = 1 << factor_limit.ilog2();
        while unit <= count / 2 / (1 << self.limit.ilog2()) {
            unit <<= self.limit.ilog2();
        }
        let whole = count / unit * unit;
        let mut part = |first: i64, size: i64| {
            let inner_range = range_of(size, split.dtype(), kind, number(split));
            let first = UOp::int(split.dtype(), first);
            let value = substitute(value, split, &UOp::binary(Op::Add, inner_range.clone(), first));
            let ranges =
                outer.iter().cloned().chain([inner_range]).chain(ranges[at..].iter().cloned());
            self.with_new_ranges(like, &value, &ranges.collect::<Vec<_>>())
        };
        let (main, remainder) = (part(0, whole), part(whole, count - whole));
        UOp::binary(Op::Add, main, remainder)
    }
}

/// Makes a reduction like another, of this value over these ranges.
fn reduce(like: &UOp, value: &UOp, ranges: &[UOp]) -> UOp {
    let Arg::Reduce(op, _) = like.arg() else { return value.clone() };
    if ranges.is_empty() {
        return value.clone();
    }
    let src: Sources = std::iter::once(value).chain(ranges).cloned().collect();
    UOp::new(Op::Reduce, like.dtype(), src, reduce_arg(*op))
}
