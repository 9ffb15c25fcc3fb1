//! Interval analysis: the smallest and largest value an integer or bool node can take.
//!
//! Sound with wrapping known: where the exact interval leaves the dtype's range, the answer is the
//! whole range. Undefined values (a division by zero) are left out, as rules may choose them.

use std::rc::Rc;

use gradiff_graph::{Arg, DType, Interval, Op, UOp};
use rustc_hash::FxHashMap;

use crate::sum::Sum;

/// The interval of nodes that have no integer value.
const ANYTHING: Interval = (i128::MIN, i128::MAX);

/// Limit of the depth of recursion; below it a node has the dtype's range.
const DEPTH_LIMIT: u32 = 256;

/// Limit of the nested readings of sums; each starts at depth 0.
const SUMS_LIMIT: u32 = 4;

/// The smallest and largest value of an integer or bool node, both included; sound with respect
/// to wrapping, not always tight. For nodes of other types, the range of `i128`.
pub fn bounds(uop: &UOp) -> Interval {
    Bounds::default().of(uop)
}

/// Intervals of nodes, cached from one call to the next.
#[derive(Default)]
pub struct Bounds {
    known: FxHashMap<UOp, Interval>,
    /// The node that was last read as a sum: the rules of an op ask for the same one in turn.
    sum: Option<(UOp, Rc<Sum>)>,
    /// Depth of the nested readings of sums.
    sums: u32,
}

impl Bounds {
    /// Returns what [`bounds`] returns.
    pub fn of(&mut self, uop: &UOp) -> Interval {
        self.at_depth(uop, 0)
    }

    /// The node read as a sum; `None` if it has too many terms.
    pub(crate) fn sum(&mut self, uop: &UOp) -> Option<Rc<Sum>> {
        if let Some((known, sum)) = &self.sum
            && known == uop
        {
            return Some(Rc::clone(sum));
        }
        let sum = Rc::new(Sum::read(uop)?);
        self.sum = Some((uop.clone(), Rc::clone(&sum)));
        Some(sum)
    }

    fn at_depth(&mut self, uop: &UOp, depth: u32) -> Interval {
        let Some(range) = uop.dtype().int_range() else { return ANYTHING };
        match (uop.op(), uop.arg()) {
            (_, Arg::Const(value)) => {
                let value = value.to_int().unwrap_or_default();
                return (value, value);
            }
            (_, Arg::Var(variable)) => {
                let (min, max) = (i128::from(variable.min), i128::from(variable.max));
                return within(range, min, max);
            }
            _ => {}
        }
        if depth == DEPTH_LIMIT {
            return range;
        }
        if let Some(known) = self.known.get(uop) {
            return *known;
        }
        let interval = self.compute(uop, range, depth + 1);
        assert!(interval.0 <= interval.1, "an empty interval {interval:?} for {uop:?}");
        self.known.insert(uop.clone(), interval);
        interval
    }

    fn compute(&mut self, uop: &UOp, range: Interval, depth: u32) -> Interval {
        if uop.op() == Op::Where {
            let x = self.at_depth(&uop.src()[1], depth);
            let y = self.at_depth(&uop.src()[2], depth);
            return match self.at_depth(&uop.src()[0], depth) {
                (1, _) => x,
                (_, 0) => y,
                _ => (x.0.min(y.0), x.1.max(y.1)),
            };
        }
        let exact = match uop.src() {
            [x] => {
                let interval = self.at_depth(x, depth);
                unary(uop.op(), x.dtype(), uop.dtype(), interval)
            }
            [x, y] if x.dtype().int_range().is_some() && uop.op().is_elementwise() => {
                let left = self.at_depth(x, depth);
                // A node is neither less than itself nor different from itself.
                if x == y && uop.op().is_comparison() {
                    return (0, 0);
                }
                let right = self.at_depth(y, depth);
                binary(uop.op(), x.dtype(), left, right)
            }
            [x, y, z] if uop.op() == Op::MulAcc && x.dtype().is_int() => {
                let (x, y) = (self.at_depth(x, depth), self.at_depth(y, depth));
                let z = self.at_depth(z, depth);
                corners(x, y, i128::checked_mul).and_then(|product| sum(product, z))
            }
            [_, ..] if uop.op() == Op::Reduce => reduce(uop, self, depth),
            _ => None,
        };
        let is_inside = |(min, max): Interval| range.0 <= min && max <= range.1;
        match exact {
            // Parts of a sum may wrap where the whole does not.
            Some(exact) if is_sum(uop) && !is_inside(exact) && self.sums < SUMS_LIMIT => {
                self.sums += 1;
                let whole = Sum::read(uop).and_then(|sum| sum.interval(self));
                self.sums -= 1;
                whole.unwrap_or_else(|| within(range, exact.0, exact.1))
            }
            Some((min, max)) => within(range, min, max),
            None => range,
        }
    }
}

fn is_sum(uop: &UOp) -> bool {
    uop.dtype().is_int() && matches!(uop.op(), Op::Add | Op::Sub)
}

/// Returns the interval if it lies in the dtype's range, else the range: values wrap.
fn within(range: Interval, min: i128, max: i128) -> Interval {
    let is_inside = range.0 <= min && max <= range.1;
    if is_inside { (min, max) } else { range }
}

/// The exact interval of a unary op, before wrapping; `None` if nothing is known.
pub(crate) fn unary(op: Op, from: DType, to: DType, x: Interval) -> Option<Interval> {
    match op {
        Op::Neg => Some((x.1.checked_neg()?, x.0.checked_neg()?)),
        Op::Cast if to == DType::Bool && from.int_range().is_some() => {
            let has_zero = x.0 <= 0 && 0 <= x.1;
            Some((i128::from(!has_zero), i128::from(x != (0, 0))))
        }
        Op::Cast if from.int_range().is_some() => Some(x),
        Op::Bitcast if from.int_range().is_some() => {
            let (low, high) = to.int_range()?;
            (low <= x.0 && x.1 <= high).then_some(x)
        }
        // A loop counter starts at 0; a loop that never runs has no value.
        Op::Range => Some((0, (x.1 - 1).max(0))),
        _ => None,
    }
}

/// The exact interval of a binary op over integers or bool, before wrapping.
pub(crate) fn binary(op: Op, dtype: DType, x: Interval, y: Interval) -> Option<Interval> {
    if dtype == DType::Bool && matches!(op, Op::Add | Op::Sub | Op::Mul) {
        return None;
    }
    match op {
        Op::Add => sum(x, y),
        Op::Sub => Some((x.0.checked_sub(y.1)?, x.1.checked_sub(y.0)?)),
        Op::Mul => corners(x, y, i128::checked_mul),
        Op::CDiv => divided(x, y, |x, y| x / y),
        Op::FloorDiv => divided(x, y, floor_div),
        Op::CMod if y == (0, 0) => None,
        Op::CMod => {
            let largest = y.0.abs().max(y.1.abs()) - 1;
            let (min, max) = (x.0.min(0).max(-largest), x.1.max(0).min(largest));
            if 0 <= x.0 && x.1 < y.0 { Some(x) } else { Some((min, max)) }
        }
        Op::FloorMod => Some(floor_mod(x, y)),
        Op::Max => Some((x.0.max(y.0), x.1.max(y.1))),
        Op::Min => Some((x.0.min(y.0), x.1.min(y.1))),
        Op::CmpLt => Some((i128::from(x.1 < y.0), i128::from(x.0 < y.1))),
        Op::CmpNe => {
            let never_same = x.1 < y.0 || y.1 < x.0;
            let always_same = x.0 == x.1 && x == y;
            Some((i128::from(never_same), i128::from(!always_same)))
        }
        Op::And if dtype == DType::Bool => Some((x.0.min(y.0), x.1.min(y.1))),
        Op::Or if dtype == DType::Bool => Some((x.0.max(y.0), x.1.max(y.1))),
        Op::Xor if dtype == DType::Bool => binary(Op::CmpNe, dtype, x, y),
        Op::And => Some(bitwise_and(x, y)),
        Op::Or => Some(bitwise_or(x, y)),
        Op::Xor => {
            let limit = limit_of(x, y);
            let is_positive = 0 <= x.0 && 0 <= y.0 || x.1 < 0 && y.1 < 0;
            Some((if is_positive { 0 } else { -limit }, limit - 1))
        }
        Op::Shl | Op::Shr => {
            // Other amounts are undefined.
            let y = (y.0.max(0), y.1.min(i128::from(dtype.bits()) - 1));
            match op {
                _ if y.1 < y.0 => None,
                Op::Shl => corners(x, (1 << y.0, 1 << y.1), i128::checked_mul),
                _ => corners(x, y, |x, y| Some(x >> y)),
            }
        }
        _ => None,
    }
}

/// The smallest power of two p with `-p <= value < p` for each value of both intervals.
fn limit_of(x: Interval, y: Interval) -> i128 {
    let bits = |value: i128| 128 - (if value < 0 { !value } else { value }).leading_zeros();
    1 << [x.0, x.1, y.0, y.1].map(bits).into_iter().max().unwrap_or(0).min(126)
}

/// Interval of a bitwise and: a bit is set if both sides have it, the sign bit as well.
fn bitwise_and(x: Interval, y: Interval) -> Interval {
    match (0 <= x.0, 0 <= y.0) {
        (true, true) => (0, x.1.min(y.1)),
        (true, false) => (0, x.1),
        (false, true) => (0, y.1),
        (false, false) => (-limit_of(x, y), x.1.max(y.1)),
    }
}

/// Interval of a bitwise or: a bit is set if one side has it, the sign bit as well.
fn bitwise_or(x: Interval, y: Interval) -> Interval {
    let least = if 0 <= x.0 && 0 <= y.0 { x.0.max(y.0) } else { x.0.min(y.0) };
    let may_be_positive = 0 <= x.1 && 0 <= y.1;
    let positive = limit_of((0, x.1.max(0)), (0, y.1.max(0))) - 1;
    (least, if may_be_positive { positive } else { -1 })
}

fn sum(x: Interval, y: Interval) -> Option<Interval> {
    Some((x.0.checked_add(y.0)?, x.1.checked_add(y.1)?))
}

/// Interval of a function that is monotone in each operand: its extremes lie at the corners.
fn corners(
    x: Interval,
    y: Interval,
    function: impl Fn(i128, i128) -> Option<i128>,
) -> Option<Interval> {
    let first = function(x.0, y.0)?;
    let mut interval = (first, first);
    for value in [function(x.0, y.1)?, function(x.1, y.0)?, function(x.1, y.1)?] {
        interval = (interval.0.min(value), interval.1.max(value));
    }
    Some(interval)
}

/// Interval of a division by `y` without 0: each sign of the divisor has its own corners.
fn divided(x: Interval, y: Interval, divide: impl Fn(i128, i128) -> i128) -> Option<Interval> {
    let divide = |x, y| Some(divide(x, y));
    let negative = (y.0 < 0).then(|| corners(x, (y.0, y.1.min(-1)), divide)).flatten();
    let positive = (0 < y.1).then(|| corners(x, (y.0.max(1), y.1), divide)).flatten();
    match (negative, positive) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (negative, positive) => negative.or(positive),
    }
}

fn floor_mod(x: Interval, y: Interval) -> Interval {
    if y.0 == y.1 && y.0 != 0 && floor_div(x.0, y.0) == floor_div(x.1, y.0) {
        let base = y.0 * floor_div(x.0, y.0);
        return (x.0 - base, x.1 - base);
    }
    if 0 < y.0 && 0 <= x.0 {
        return (if x.1 < y.0 { x.0 } else { 0 }, x.1.min(y.1 - 1));
    }
    // The result has the divisor's sign and is smaller than it.
    ((y.0 + 1).min(0), (y.1 - 1).max(0))
}

fn reduce(uop: &UOp, bounds: &mut Bounds, depth: u32) -> Option<Interval> {
    let Arg::Reduce(op, _) = uop.arg() else { return None };
    let value = bounds.at_depth(&uop.src()[0], depth);
    let mut count = 1i128;
    let is_counted = |range: &UOp| range.src().first().is_some_and(|end| end.as_int() > Some(0));
    let is_maybe_empty = !uop.src()[1..].iter().all(is_counted);
    for range in &uop.src()[1..] {
        let last = bounds.at_depth(range, depth).1;
        count = count.checked_mul(last.checked_add(1)?)?;
    }
    match op {
        // An empty reduction gives 0.
        Op::Add => {
            let ends = (value.0.checked_mul(count)?, value.1.checked_mul(count)?);
            Some((ends.0.min(0), ends.1.max(0)))
        }
        // The maximum of an empty reduction is the smallest value of the dtype.
        Op::Max if !is_maybe_empty => Some(value),
        _ => None,
    }
}

/// `x / y` rounded down; `y` is not 0.
pub(crate) fn floor_div(x: i128, y: i128) -> i128 {
    let quotient = x / y;
    if x % y != 0 && (x < 0) != (y < 0) { quotient - 1 } else { quotient }
}

/// `x` modulo `y` with the sign of `y`, which is not 0.
pub(crate) fn floor_rem(x: i128, y: i128) -> i128 {
    x - y * floor_div(x, y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradiff_graph::{Constant, evaluate};

    /// Every interval between these ends is tried against every other.
    const ENDS: [i128; 12] = [-128, -127, -9, -4, -1, 0, 1, 2, 7, 100, 127, 255];

    #[test]
    fn intervals_hold_all_values_of_each_op() {
        let ops = [
            (Op::Add, 60),
            (Op::Sub, 60),
            (Op::Mul, 40),
            (Op::CDiv, 70),
            (Op::CMod, 70),
            (Op::FloorDiv, 70),
            (Op::FloorMod, 60),
            (Op::Max, 90),
            (Op::Min, 90),
            (Op::CmpLt, 95),
            (Op::CmpNe, 94),
            (Op::And, 50),
            (Op::Or, 50),
            (Op::Xor, 40),
            (Op::Shl, 25),
            (Op::Shr, 90),
        ];
        for (op, exact_percent) in ops {
            let (mut exact, mut total) = (0, 0);
            for dtype in [DType::I8, DType::U8, DType::Bool] {
                let is_bitwise = matches!(op, Op::And | Op::Or | Op::Xor);
                let is_for_bool = is_bitwise || op.is_comparison();
                if dtype == DType::Bool && !is_for_bool {
                    continue;
                }
                for (x, y) in pairs(dtype) {
                    let Some(observed) = observed(op, dtype, x, y) else { continue };
                    let to = if op.is_comparison() { DType::Bool } else { dtype };
                    let range = to.int_range().expect("discrete");
                    let interval = binary(op, dtype, x, y);
                    let interval = interval.map_or(range, |(min, max)| within(range, min, max));
                    let is_sound = interval.0 <= observed.0 && observed.1 <= interval.1;
                    let case = format!("{op:?} {dtype} {x:?} {y:?}");
                    assert!(is_sound, "{case}: {interval:?} does not contain {observed:?}");
                    total += 1;
                    exact += i32::from(interval == observed);
                }
            }
            let is_tight = exact_percent * total <= exact * 100;
            assert!(is_tight, "{op:?}: {exact} of {total} are exact");
        }
    }

    fn pairs(dtype: DType) -> Vec<(Interval, Interval)> {
        let (low, high) = dtype.int_range().expect("discrete");
        let ends: Vec<i128> = ENDS.into_iter().filter(|end| low <= *end && *end <= high).collect();
        let pairs = |count: usize| (0..count * count).map(move |at| (at / count, at % count));
        let spans = pairs(ends.len()).filter(|(min, max)| min <= max);
        let intervals: Vec<Interval> = spans.map(|(min, max)| (ends[min], ends[max])).collect();
        pairs(intervals.len()).map(|(x, y)| (intervals[x], intervals[y])).collect()
    }

    /// The smallest and the largest value at the points tried; `None` if all are undefined.
    fn observed(op: Op, dtype: DType, x: Interval, y: Interval) -> Option<Interval> {
        let points = |(min, max): Interval| {
            let is_tried = move |value: &i128| {
                max - min < 12 || value - min < 3 || max - value < 3 || value.abs() < 3
            };
            (min..=max).filter(is_tried).map(move |value| Constant::int(dtype, value))
        };
        let to = if op.is_comparison() { DType::Bool } else { dtype };
        let mut interval: Option<Interval> = None;
        for (x, y) in points(x).flat_map(|x| points(y).map(move |y| (x, y))) {
            let Some(value) = evaluate(op, to, &[x, y]).and_then(Constant::to_int) else {
                continue;
            };
            let (min, max) = interval.unwrap_or((value, value));
            interval = Some((min.min(value), max.max(value)));
        }
        interval
    }
}
