//! Interval arithmetic: the interval of a uop from those of its sources.

use crate::{Arg, Instruction, Op};

/// Least and greatest value, both included.
pub type Interval = (i128, i128);

/// Returns the interval of an integer uop before it wraps to its type, from those of its sources by
/// number; `None` if it is unknown.
pub fn unwrapped(uop: &Instruction, of: &dyn Fn(usize) -> Option<Interval>) -> Option<Interval> {
    let corners = |value: fn(i128, i128) -> i128| {
        let (x, y) = (of(0)?, of(1)?);
        let values = [value(x.0, y.0), value(x.0, y.1), value(x.1, y.0), value(x.1, y.1)];
        Some((*values.iter().min()?, *values.iter().max()?))
    };
    match (uop.op, &uop.arg) {
        (Op::Const, Arg::Const(value)) => value.to_int().map(|value| (value, value)),
        (Op::DefineVar, Arg::Var(variable)) => Some((variable.min.into(), variable.max.into())),
        (Op::Range, _) => of(0).map(|(_, end)| (0, (end - 1).max(0))),
        (Op::Cast | Op::Vectorize, _) if uop.src.len() == 1 => of(0),
        (Op::Add, _) => corners(|x, y| x + y),
        (Op::Sub, _) => corners(|x, y| x - y),
        // Two values of 64 bits have a product of less than 128.
        (Op::Mul, _) => corners(|x, y| x.saturating_mul(y)),
        (Op::Neg, _) => of(0).map(|(low, high)| (-high, -low)),
        (Op::Shl, _) if is_amount(uop, of(1)) => corners(|x, y| x.saturating_mul(1 << y)),
        (Op::Shr, _) if is_amount(uop, of(1)) => corners(|x, y| x >> y),
        (Op::Max, _) => of(0).zip(of(1)).map(|(x, y)| (x.0.max(y.0), x.1.max(y.1))),
        (Op::Min, _) => of(0).zip(of(1)).map(|(x, y)| (x.0.min(y.0), x.1.min(y.1))),
        (Op::Where, _) => of(1).zip(of(2)).map(|(x, y)| (x.0.min(y.0), x.1.max(y.1))),
        (Op::CDiv | Op::FloorDiv, _) if of(0)?.0 >= 0 && of(1)?.0 > 0 => corners(|x, y| x / y),
        (Op::CMod | Op::FloorMod, _) if of(0)?.0 >= 0 && of(1)?.0 > 0 => {
            Some((0, of(0)?.1.min(of(1)?.1 - 1)))
        }
        (Op::And, _) if of(0)?.0 >= 0 && of(1)?.0 >= 0 => Some((0, of(0)?.1.min(of(1)?.1))),
        _ => None,
    }
}

/// Returns whether a shift amount is less than the number of bits. Other shifts are undefined:
/// devices may give any result.
fn is_amount(uop: &Instruction, amount: Option<Interval>) -> bool {
    amount.is_some_and(|(low, high)| 0 <= low && high < i128::from(uop.dtype.bits()))
}
