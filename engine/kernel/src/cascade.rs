//! Pass `cascade`: a sum of many floats is a sum of sums, so that no accumulator takes more than a
//! bounded number of additions, and the rounding error of a long sum grows with its logarithm.
//!
//! ```text
//! s = sum over r < 16384 of x[r]       s = sum over o < 64 of (sum over i < 256 of x[o*256 + i])
//! ```
//!
//! Elements are read in the order in which they were read before. A range whose size has no
//! suitable divisor is divided into a part that has one and the rest, each with a copy of the
//! value.

use gradiff_graph::{Arg, AxisKind, Op, Sources, UOp};
use gradiff_rewrite::{Mode, substitute};

use crate::Error;
use crate::linearize::{MAX_RANGES, folding};
use crate::opt::range as range_of;
use crate::pass::Context;
use crate::shape::map_nodes;

/// The pass. See the head of this file. In strict mode a sum keeps its order.
pub(crate) fn cascade(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let limit = ctx.target.thresholds.accumulator_additions;
    let order = root.toposort();
    let is_long = |node: &UOp| is_float_sum(node) && additions(&node.src()[1..]) > limit;
    if ctx.options.rewrite.mode == Mode::Strict || !order.iter().any(is_long) {
        return Ok(root.clone());
    }
    ctx.is_divided = true;
    let ranges = || order.iter().filter(|node| node.op() == Op::Range);
    let first = ranges().map(number).max().map_or(0, |number| number + 1);
    let left = MAX_RANGES.saturating_sub(ranges().count());
    let mut sums = Sums { limit, next: first, left };
    let root = map_nodes(&order, |old, node| match node.src() {
        [value, ranges @ ..] if is_long(old) => Ok(sums.with_new_ranges(&node, value, ranges)),
        _ => Ok(node),
    })?;
    with_consecutive_numbers(&root, first)
}

/// The number of a range.
fn number(range: &UOp) -> i64 {
    match range.arg() {
        Arg::Axis(axis) => axis.number,
        _ => 0,
    }
}

/// The kernel with its ranges from number `first` on numbered in a row.
fn with_consecutive_numbers(root: &UOp, first: i64) -> Result<UOp, Error> {
    let order = root.toposort();
    let is_new = |node: &UOp| node.op() == Op::Range && first <= number(node);
    let mut new: Vec<i64> = order.iter().filter(|node| is_new(node)).map(number).collect();
    new.sort_unstable();
    new.dedup();
    map_nodes(&order, |_, node| match (node.arg(), new.binary_search(&number(&node))) {
        (Arg::Axis(axis), Ok(at)) if is_new(&node) => {
            Ok(range_of(size(&node), node.dtype(), axis.kind, first + at as i64))
        }
        _ => Ok(node),
    })
}

fn is_float_sum(node: &UOp) -> bool {
    node.dtype().is_float()
        && matches!((node.op(), node.arg()), (Op::Reduce, Arg::Reduce(Op::Add, _)))
}

/// The additions into an accumulator over these ranges.
fn additions(ranges: &[UOp]) -> i64 {
    ranges.iter().map(size).fold(1, i64::saturating_mul)
}

/// The size of a range; 1 for what stands in the place of a range of one iteration.
fn size(range: &UOp) -> i64 {
    let end = if range.op() == Op::Range { range.src()[0].as_int() } else { None };
    end.map_or(1, |end| i64::try_from(end).unwrap_or(i64::MAX))
}

/// The kind of a range; none of what stands in the place of a range of one iteration.
fn kind(range: &UOp) -> Option<AxisKind> {
    match range.arg() {
        Arg::Axis(axis) => Some(axis.kind),
        _ => None,
    }
}

/// Numbers for the ranges that one range is divided into, again and again.
const NUMBERS: i64 = 64;

/// Makes sums of sums.
struct Sums {
    /// The most additions into one accumulator.
    limit: i64,
    /// The number of the next new range.
    next: i64,
    /// How many more ranges the kernel may have.
    left: usize,
}

impl Sums {
    /// The sum in the place of the reduction `like`, over new loops, whose numbers grow inward and
    /// leave room for those that they are divided into.
    fn with_new_ranges(&mut self, like: &UOp, value: &UOp, ranges: &[UOp]) -> UOp {
        let (mut value, mut ranges) = (value.clone(), ranges.to_vec());
        for range in &mut ranges {
            let Some(kind) = kind(range) else { continue };
            self.next += NUMBERS;
            self.left = self.left.saturating_sub(1);
            let new = range_of(size(range), range.dtype(), kind, self.next - 1);
            value = substitute(&value, range, &new);
            *range = new;
        }
        self.sum(like, &value, &ranges)
    }

    /// The sum of `value` over `ranges`, outermost first, in the place of the reduction `like`.
    fn sum(&mut self, like: &UOp, value: &UOp, ranges: &[UOp]) -> UOp {
        let (mut inner, mut at) = (1i64, ranges.len());
        while 0 < at && inner.saturating_mul(size(&ranges[at - 1])) <= self.limit {
            at -= 1;
            inner *= size(&ranges[at]);
        }
        let Some((divided, outer)) = ranges[..at].split_last() else {
            return reduce(like, value, ranges);
        };
        let room = self.limit / inner;
        // Enough additions for one accumulator without a part of the next range.
        let kind = kind(divided).filter(|_| 4 <= room && 4 <= self.left);
        let Some(kind) = kind else {
            let at = if at == ranges.len() { at - 1 } else { at };
            let inner = reduce(like, value, &ranges[at..]);
            return self.sum(like, &inner, &ranges[..at]);
        };
        let count = size(divided);
        let divisor = (room / 4..=room).rev().find(|amount| 1 < *amount && count % amount == 0);
        if let Some(amount) = divisor {
            self.left = self.left.saturating_sub(1);
            let new = |size, number| range_of(size, divided.dtype(), kind, number);
            let block = new(count / amount, number(divided) - 1);
            let step = new(amount, number(divided));
            let start = UOp::binary(Op::Mul, block.clone(), UOp::int(divided.dtype(), amount));
            let value = substitute(value, divided, &UOp::binary(Op::Add, start, step.clone()));
            let inner: Vec<UOp> = std::iter::once(step).chain(ranges[at..].to_vec()).collect();
            let inner = reduce(like, &value, &inner);
            let outer: Vec<UOp> = outer.iter().cloned().chain([block]).collect();
            return self.sum(like, &inner, &outer);
        }
        let mut unit = 1 << room.ilog2();
        while unit <= count / 2 / (1 << self.limit.ilog2()) {
            unit <<= self.limit.ilog2();
        }
        let whole = count / unit * unit;
        let mut part = |first: i64, size: i64| {
            let step = range_of(size, divided.dtype(), kind, number(divided));
            let first = UOp::int(divided.dtype(), first);
            let value = substitute(value, divided, &UOp::binary(Op::Add, step.clone(), first));
            let ranges = outer.iter().cloned().chain([step]).chain(ranges[at..].iter().cloned());
            self.with_new_ranges(like, &value, &ranges.collect::<Vec<_>>())
        };
        let (whole, rest) = (part(0, whole), part(whole, count - whole));
        UOp::binary(Op::Add, whole, rest)
    }
}

/// A reduction like another, of this value over these ranges.
fn reduce(like: &UOp, value: &UOp, ranges: &[UOp]) -> UOp {
    let Arg::Reduce(op, _) = like.arg() else { return value.clone() };
    if ranges.is_empty() {
        return value.clone();
    }
    let src: Sources = std::iter::once(value).chain(ranges).cloned().collect();
    UOp::new(Op::Reduce, like.dtype(), src, folding(*op))
}
