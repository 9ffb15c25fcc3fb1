//! Interval arithmetic of the engine: the interval of an op holds the results of all operands in
//! given intervals, by the scalar meanings of this crate.

use gradiff::graph::interval::Interval;
use gradiff::graph::interval::{binary, unary};
use gradiff::graph::{Constant, DType, Op};
use gradiff_eval::scalar;

use super::Draw;

/// Number of intervals of a check, and before a crate is blamed.
const INTERVALS: usize = 60;
const INTERVALS_OF_BLAME: usize = 20_000;
/// Number of pairs of operands for each interval, besides the corners.
const PAIRS: usize = 6;

/// Binary ops of integers.
const OPS: [Op; 16] = [
    Op::Add,
    Op::Sub,
    Op::Mul,
    Op::CDiv,
    Op::CMod,
    Op::FloorDiv,
    Op::FloorMod,
    Op::Max,
    Op::Min,
    Op::CmpLt,
    Op::CmpNe,
    Op::And,
    Op::Or,
    Op::Xor,
    Op::Shl,
    Op::Shr,
];

/// Checks drawn intervals.
pub(super) fn intervals(draw: &mut Draw) -> Result<(), String> {
    (0..INTERVALS).try_for_each(|_| interval(draw))
}

/// The first wrong interval among many: if there is one, nothing that relies on intervals can be
/// judged.
pub(crate) fn wrong_interval() -> Option<String> {
    let mut draw = Draw::new(0);
    (0..INTERVALS_OF_BLAME).find_map(|_| match crate::catch(|| interval(&mut draw)) {
        Ok(checked) => checked.err(),
        Err(panic) => Some(panic),
    })
}

fn interval(draw: &mut Draw) -> Result<(), String> {
    let dtype = draw.pick(&[DType::I8, DType::U8, DType::I32, DType::U64]);
    let (x, y) = (drawn(draw, dtype), drawn(draw, dtype));
    if draw.one_in(8) {
        return loops(x, dtype);
    }
    let op = draw.pick(&OPS);
    let to = if matches!(op, Op::CmpLt | Op::CmpNe) { DType::Bool } else { dtype };
    let Some(found) = binary(op, dtype, x, y) else { return Ok(()) };
    let (least, greatest) = range(to);
    // The interval is that of the exact result, and the value wraps.
    if found.0 < least || greatest < found.1 {
        return Ok(());
    }
    let corners = [(x.0, y.0), (x.0, y.1), (x.1, y.0), (x.1, y.1)];
    let mut pairs = corners.to_vec();
    pairs.extend((0..PAIRS).map(|_| (within(draw, x), within(draw, y))));
    for (left, right) in pairs {
        let operands: Option<Vec<Constant>> =
            [left, right].into_iter().map(|value| scalar::int(dtype, value)).collect();
        let value = operands.and_then(|operands| scalar::evaluate(op, to, &operands));
        let Some(value) = value.and_then(scalar::to_int) else {
            return Err(format!(
                "{op} of {dtype} in {x:?} and {y:?} is said to be in {found:?}, but of {left} and \
                 {right} it is undefined"
            ));
        };
        if value < found.0 || found.1 < value {
            return Err(format!(
                "{op} of {dtype} in {x:?} and {y:?} is said to be in {found:?}, but of {left} and \
                 {right} it is {value}"
            ));
        }
    }
    Ok(())
}

/// Checks the interval of the counter of a loop whose end is in an interval.
fn loops(end: Interval, dtype: DType) -> Result<(), String> {
    let Some((least, greatest)) = unary(Op::Range, dtype, dtype, end) else { return Ok(()) };
    if 0 < end.1 && (0 < least || greatest < end.1 - 1) {
        return Err(format!("a counter below {end:?} is said to be in {least} to {greatest}"));
    }
    Ok(())
}

/// An interval of values of a type, mostly of small numbers or next to its ends.
fn drawn(draw: &mut Draw, dtype: DType) -> Interval {
    let (least, greatest) = range(dtype);
    let mut end = || match draw.below(5) {
        0 => least + draw.below(3) as i128,
        1 => greatest - draw.below(3) as i128,
        2 => i128::from(draw.bits() as i64).clamp(least, greatest),
        _ => (draw.below(24) as i128 - 8).clamp(least, greatest),
    };
    let (x, y) = (end(), end());
    (x.min(y), x.max(y))
}

fn within(draw: &mut Draw, (least, greatest): Interval) -> i128 {
    least + i128::from(draw.bits()) % (greatest - least + 1)
}

/// The least and the greatest value of a type.
fn range(dtype: DType) -> Interval {
    let bits = scalar::bits(dtype);
    match dtype {
        DType::Bool => (0, 1),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        }
        _ => (0, (1 << bits) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_interval_is_wrong() {
        assert_eq!(wrong_interval(), None);
    }
}
