//! Interval arithmetic: the interval of an op from those of its operands, over unbounded integers.
//!
//! Every interval analysis of the engine calls these functions. The analyses differ in the
//! intervals that they know of leaves, and in the interval that they give a value that may wrap.

use crate::op::Class;
use crate::{Arg, DType, Op};

/// The smallest and the largest value, both included.
pub type Interval = (i128, i128);

/// Returns the interval of an integer node before it wraps to its dtype. `operand` gives the
/// interval of the operand with this index. `None` if the interval is unknown, or if the op is
/// undefined for some operands, where devices may give any result.
pub fn unwrapped(
    (op, dtype, arg): (Op, DType, &Arg),
    operand: &dyn Fn(usize) -> Option<Interval>,
) -> Option<Interval> {
    match (op, arg) {
        (Op::Const, Arg::Const(value)) => value.to_int().map(|value| (value, value)),
        (Op::DefineVar, Arg::Var(variable)) => Some((variable.min.into(), variable.max.into())),
        (Op::Cast, _) => operand(0),
        (Op::Range | Op::Neg, _) => unary(op, dtype, dtype, operand(0)?),
        (Op::Where, _) => Some(hull(operand(1)?, operand(2)?)),
        (Op::MulAcc, _) => {
            let product = binary(Op::Mul, dtype, operand(0)?, operand(1)?)?;
            binary(Op::Add, dtype, product, operand(2)?)
        }
        _ if op.class() == Class::Binary => binary(op, dtype, operand(0)?, operand(1)?),
        _ => None,
    }
}

/// Returns whether a binary op is defined for all second operands in the interval.
fn is_defined(op: Op, dtype: DType, y: Interval) -> bool {
    match op {
        Op::CDiv | Op::CMod | Op::FloorDiv | Op::FloorMod => 0 < y.0 || y.1 < 0,
        Op::Shl | Op::Shr => 0 <= y.0 && y.1 < i128::from(dtype.bits()),
        _ => true,
    }
}

/// Returns the smallest interval that contains both intervals.
pub fn hull(x: Interval, y: Interval) -> Interval {
    (x.0.min(y.0), x.1.max(y.1))
}

/// Returns an interval that contains every value of a unary op, before it wraps, for an operand of
/// dtype `from` and a result of dtype `to`; `None` if none is known.
pub fn unary(op: Op, from: DType, to: DType, x: Interval) -> Option<Interval> {
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

/// Returns an interval that contains every value of a binary op over integers or bool, before it
/// wraps; `None` if none is known, or if the op is undefined for some operands, as a division by 0
/// is: devices may give any result there. `dtype` is that of the operands.
pub fn binary(op: Op, dtype: DType, x: Interval, y: Interval) -> Option<Interval> {
    let is_arithmetic = matches!(op, Op::Add | Op::Sub | Op::Mul);
    if dtype == DType::Bool && is_arithmetic || !is_defined(op, dtype, y) {
        return None;
    }
    match op {
        Op::Add => sum(x, y),
        Op::Sub => Some((x.0.checked_sub(y.1)?, x.1.checked_sub(y.0)?)),
        Op::Mul => corners(x, y, i128::checked_mul),
        // A division is monotone in a divisor of one sign.
        Op::CDiv => corners(x, y, |x, y| Some(x / y)),
        Op::FloorDiv => corners(x, y, |x, y| Some(floor_div(x, y))),
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
        Op::Shl => corners(x, (1 << y.0, 1 << y.1), i128::checked_mul),
        Op::Shr => corners(x, y, |x, y| Some(x >> y)),
        _ => None,
    }
}

/// The smallest power of two p such that `-p <= value < p` for each value of both intervals.
fn limit_of(x: Interval, y: Interval) -> i128 {
    let bits = |value: i128| 128 - (if value < 0 { !value } else { value }).leading_zeros();
    1 << [x.0, x.1, y.0, y.1].map(bits).into_iter().max().unwrap_or(0).min(126)
}

/// Interval of a bitwise and. A bit of the result, the sign bit included, is set if it is set in
/// both operands.
fn bitwise_and(x: Interval, y: Interval) -> Interval {
    match (0 <= x.0, 0 <= y.0) {
        (true, true) => (0, x.1.min(y.1)),
        (true, false) => (0, x.1),
        (false, true) => (0, y.1),
        (false, false) => (-limit_of(x, y), x.1.max(y.1)),
    }
}

/// Interval of a bitwise or. A bit of the result, the sign bit included, is set if it is set in
/// either operand.
fn bitwise_or(x: Interval, y: Interval) -> Interval {
    let least = if 0 <= x.0 && 0 <= y.0 { x.0.max(y.0) } else { x.0.min(y.0) };
    let may_be_positive = 0 <= x.1 && 0 <= y.1;
    let positive = limit_of((0, x.1.max(0)), (0, y.1.max(0))) - 1;
    (least, if may_be_positive { positive } else { -1 })
}

/// Interval of `x + y`; `None` if an end exceeds 128 bits.
fn sum(x: Interval, y: Interval) -> Option<Interval> {
    Some((x.0.checked_add(y.0)?, x.1.checked_add(y.1)?))
}

/// Interval of a function that is monotone in each operand, so that its extremes are at the ends of
/// the operands; `None` if the function gives none at one of them.
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

/// Interval of `x` modulo `y` with the sign of `y`, which is the same for all its values.
fn floor_mod(x: Interval, y: Interval) -> Interval {
    if y.0 == y.1 && floor_div(x.0, y.0) == floor_div(x.1, y.0) {
        let base = y.0 * floor_div(x.0, y.0);
        return (x.0 - base, x.1 - base);
    }
    if 0 < y.0 && 0 <= x.0 {
        return (if x.1 < y.0 { x.0 } else { 0 }, x.1.min(y.1 - 1));
    }
    // The result has the divisor's sign and is smaller than it.
    ((y.0 + 1).min(0), (y.1 - 1).max(0))
}

/// `x / y` rounded down; `y` is not 0.
pub fn floor_div(x: i128, y: i128) -> i128 {
    let quotient = x / y;
    if x % y != 0 && (x < 0) != (y < 0) { quotient - 1 } else { quotient }
}

/// `x` modulo `y` with the sign of `y`, which is not 0.
pub fn floor_rem(x: i128, y: i128) -> i128 {
    x - y * floor_div(x, y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Constant, evaluate};

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
                    let Some(observed) = observed(op, dtype, x, y) else {
                        let interval = binary(op, dtype, x, y);
                        assert_eq!(interval, None, "{op:?} {dtype} {x:?} {y:?} is undefined");
                        continue;
                    };
                    let to = if op.is_comparison() { DType::Bool } else { dtype };
                    let range = to.int_range().expect("discrete");
                    let interval = binary(op, dtype, x, y);
                    let interval = interval
                        .filter(|(min, max)| range.0 <= *min && *max <= range.1)
                        .unwrap_or(range);
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

    /// The smallest and the largest value at the points tried; `None` if some are undefined.
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
            let value = evaluate(op, to, &[x, y]).and_then(Constant::to_int)?;
            let (min, max) = interval.unwrap_or((value, value));
            interval = Some((min.min(value), max.max(value)));
        }
        interval
    }
}
