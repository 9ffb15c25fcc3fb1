//! Transfer functions of the static analysis: the fact of a result from those of its sources.
//!
//! `None` means that the lane's policy does not allow the op on these sources, because the result
//! may be undefined or undecided, or its error bound useless.

use gradiff_corpus::{BinaryOp, DType, ReduceOp, UnaryOp};

use crate::fact::{Fact, Policy, ROUGH, cast, decided, power, range, round_or_wrap};

/// Fact of an elementwise function of one source.
pub(crate) fn unary(op: UnaryOp, x: &Fact, dtype: DType, policy: Policy) -> Option<Fact> {
    if x.special {
        return unary_special(op, x, policy);
    }
    let rough = |lo: f64, hi: f64, err: f64, ulps: f64| {
        let fact = Fact { err, ..Fact::exact(lo, hi, ROUGH) };
        round_or_wrap(dtype, fact, ulps, policy)
    };
    match op {
        UnaryOp::Neg => {
            let fact = Fact { lo: -x.hi, hi: -x.lo, ..*x };
            round_or_wrap(dtype, fact, 0.0, Policy { wrap: true, inexact: true, ..policy })
                .map(|negated| Fact { err: x.err, ..negated })
        }
        UnaryOp::Not => {
            let (lo, hi) = range(dtype);
            let fact = if dtype.is_signed() {
                Fact::exact(-1.0 - x.hi, -1.0 - x.lo, 0)
            } else {
                Fact::exact((hi - x.hi).max(lo), (hi - x.lo).min(hi), 0)
            };
            round_or_wrap(dtype, fact, 0.0, Policy { wrap: true, ..policy })
        }
        UnaryOp::Exp2 => {
            let max_exponent = if dtype == DType::F16 { 8.0 } else { 30.0 };
            let fits = x.magnitude() <= max_exponent && x.err < 0.25;
            let top = x.hi.exp2();
            let fact = fits.then(|| rough(x.lo.exp2(), top, x.err * top, 8.0)).flatten();
            fact.map(|fact| Fact { away: x.lo.exp2() * 0.5, ..fact })
        }
        UnaryOp::Log2 => {
            let fits = x.lo > 0.0 && 4.0 * x.err < x.lo;
            let bits = |value: f64| value.log2();
            let err = 4.0 * x.err / x.lo;
            fits.then(|| rough(bits(x.lo) - 1.0, bits(x.hi) + 1.0, err, 8.0)).flatten()
        }
        UnaryOp::Sin => {
            let fits = x.magnitude() <= 64.0 && x.err < 0.125;
            fits.then(|| rough(-1.0, 1.0, x.err, 8.0)).flatten()
        }
        UnaryOp::Sqrt => {
            let fits = x.lo >= 0.0 && (x.err == 0.0 || 4.0 * x.err < x.lo);
            let err = if x.err == 0.0 { 0.0 } else { x.err / x.lo.sqrt() };
            fits.then(|| rough(x.lo.sqrt(), x.hi.sqrt(), err, 1.0)).flatten()
        }
        UnaryOp::Recip => recip(x).and_then(|fact| round_or_wrap(dtype, fact, 1.0, policy)),
    }
}

/// Fact of `1 / x` before rounding, if `x` is away from 0.
fn recip(x: &Fact) -> Option<Fact> {
    if x.away <= 0.0 || x.away < 4.0 * x.err {
        return None;
    }
    let max = 1.0 / x.away;
    let lo = if x.lo > 0.0 { 1.0 / x.hi } else { -max };
    let hi = if x.hi < 0.0 { 1.0 / x.lo } else { max };
    let err = 2.0 * x.err * max * max;
    Some(Fact { away: 1.0 / x.magnitude(), err, ..Fact::exact(lo, hi, ROUGH) })
}

/// Fact of a function of NaN, infinities and extremes. At most one op on the way from data may
/// round, unless the policy decides inexact elements.
fn unary_special(op: UnaryOp, x: &Fact, policy: Policy) -> Option<Fact> {
    let fact = Fact { raw: false, lo: -x.magnitude(), hi: x.magnitude(), ..*x };
    match op {
        UnaryOp::Neg => Some(fact),
        _ if !policy.special || (x.err != 0.0 && !policy.decide) => None,
        // The sine of a large number has no agreed precision.
        UnaryOp::Sin => None,
        _ => Some(Fact { err: f64::MAX, away: 0.0, grid: ROUGH, ..fact }),
    }
}

/// Fact of an elementwise function of two sources of one dtype.
pub(crate) fn binary(
    op: BinaryOp,
    x: &Fact,
    y: &Fact,
    dtype: DType,
    policy: Policy,
) -> Option<Fact> {
    use BinaryOp::*;
    match op {
        CmpLt | CmpNe | CmpEq => {
            let joined = Fact { err: x.err.max(y.err), ..x.join(y) };
            decided(&joined, policy).then_some(Fact::BOOL)
        }
        And | Or | Xor if dtype == DType::Bool => Some(Fact::BOOL),
        Max | Min if x.special || y.special => Some(Fact { raw: false, ..x.join(y) }),
        _ if x.special || y.special => binary_special(op, x, y, policy),
        Max | Min => Some(Fact { raw: false, ..extremum(op, x, y) }),
        Add | Sub => {
            let minus = Fact { lo: -y.hi, hi: -y.lo, ..*y };
            let y = if op == Sub { &minus } else { y };
            let bounds = Fact::exact(x.lo + y.lo, x.hi + y.hi, x.grid.min(y.grid));
            round_or_wrap(dtype, Fact { err: x.err + y.err, ..bounds }, 1.0, policy)
        }
        Mul => round_or_wrap(dtype, product(x, y), 1.0, policy),
        Div => round_or_wrap(dtype, product(x, &recip(y)?), 2.0, policy),
        Pow => pow(x, y).and_then(|fact| round_or_wrap(dtype, fact, 16.0, policy)),
        CDiv | CMod | FloorDiv | FloorMod => divide(op, x, y, dtype),
        And | Or | Xor => Some(bitwise(op, x, y, dtype)),
        Shl | Shr => shift(op, x, y, dtype, policy),
        Threefry => Some(Fact::whole(dtype)),
    }
}

fn binary_special(op: BinaryOp, x: &Fact, y: &Fact, policy: Policy) -> Option<Fact> {
    let is_exact = (x.err == 0.0 && y.err == 0.0) || policy.decide;
    let allowed = policy.special && is_exact && op != BinaryOp::Pow;
    let joined = x.join(y);
    let bounds = Fact::exact(-joined.magnitude(), joined.magnitude(), ROUGH);
    allowed.then_some(Fact { special: true, err: f64::MAX, ..bounds })
}

fn extremum(op: BinaryOp, x: &Fact, y: &Fact) -> Fact {
    let (lo, hi) = if op == BinaryOp::Max {
        (x.lo.max(y.lo), x.hi.max(y.hi))
    } else {
        (x.lo.min(y.lo), x.hi.min(y.hi))
    };
    let joined = x.join(y);
    let mut fact = Fact { lo, hi, ..joined };
    fact.away = joined.away.max(fact.away_by_bounds());
    fact
}

/// Fact of `x * y` before rounding.
fn product(x: &Fact, y: &Fact) -> Fact {
    let corners = [x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi];
    let lo = corners.into_iter().fold(f64::MAX, f64::min);
    let hi = corners.into_iter().fold(f64::MIN, f64::max);
    let grid = if x.grid == ROUGH || y.grid == ROUGH { ROUGH } else { x.grid + y.grid };
    let err = x.err * y.magnitude() + y.err * x.magnitude() + x.err * y.err;
    Fact { away: x.away * y.away, err, ..Fact::exact(lo, hi, grid) }
}

/// Fact of `x^y` before rounding, for a positive base and a small exponent.
fn pow(x: &Fact, y: &Fact) -> Option<Fact> {
    let fits = x.lo >= power(-3) && x.hi <= 16.0 && y.magnitude() <= 4.0;
    if !fits || x.err > 0.01 * x.lo || y.err > 0.01 {
        return None;
    }
    let corners = [x.lo.powf(y.lo), x.lo.powf(y.hi), x.hi.powf(y.lo), x.hi.powf(y.hi), 1.0];
    let lo = corners.into_iter().fold(f64::MAX, f64::min);
    let hi = corners.into_iter().fold(f64::MIN, f64::max);
    let err = hi * (5.0 * x.err / x.lo + 4.0 * y.err);
    Some(Fact { err, ..Fact::exact(lo, hi, ROUGH) })
}

/// Fact of `e^x`, computed by `pow`, which may be off by some ulps for each doubling.
pub(crate) fn exp(x: &Fact, dtype: DType, policy: Policy) -> Option<Fact> {
    if x.special || 30.0 < x.magnitude() || 0.25 < x.err {
        return None;
    }
    let (lo, hi) = (x.lo.exp(), x.hi.exp());
    let bounds = Fact::exact(lo, hi, ROUGH);
    let fact = Fact { err: 1.5 * hi * x.err, away: 0.5 * lo, ..bounds };
    round_or_wrap(dtype, fact, 256.0, policy)
}

/// Fact of integer quotients and remainders; the divisor must be away from 0.
fn divide(op: BinaryOp, x: &Fact, y: &Fact, dtype: DType) -> Option<Fact> {
    if y.away < 1.0 {
        return None;
    }
    let (dividend, divisor) = (x.magnitude(), y.magnitude());
    let fact = match op {
        BinaryOp::CDiv | BinaryOp::FloorDiv if x.lo >= 0.0 && y.lo > 0.0 => {
            Fact::exact(0.0, x.hi, 0)
        }
        BinaryOp::CDiv | BinaryOp::FloorDiv => Fact::exact(-dividend, dividend, 0),
        BinaryOp::FloorMod if y.lo > 0.0 => Fact::exact(0.0, y.hi - 1.0, 0),
        BinaryOp::CMod if x.lo >= 0.0 => Fact::exact(0.0, divisor - 1.0, 0),
        _ => Fact::exact(1.0 - divisor, divisor - 1.0, 0),
    };
    let wrap = Policy { inexact: false, special: false, wrap: true, decide: false };
    round_or_wrap(dtype, fact, 0.0, wrap)
}

fn bitwise(op: BinaryOp, x: &Fact, y: &Fact, dtype: DType) -> Fact {
    let max = x.magnitude().max(y.magnitude()).max(1.0);
    if max >= power(52) {
        return Fact::whole(dtype);
    }
    let span = power(max.log2().floor() as i32 + 1) - 1.0;
    if x.lo < 0.0 || y.lo < 0.0 {
        return Fact::exact(-span - 1.0, span, 0);
    }
    let hi = if op == BinaryOp::And { x.hi.min(y.hi) } else { span };
    let lo = if op == BinaryOp::Or { x.lo.max(y.lo) } else { 0.0 };
    Fact::exact(lo, hi, 0)
}

/// Fact of shifts; the amount must be in 0..bits.
fn shift(op: BinaryOp, x: &Fact, y: &Fact, dtype: DType, policy: Policy) -> Option<Fact> {
    let bits = 8.0 * dtype.size_bytes() as f64;
    if y.lo < 0.0 || bits <= y.hi {
        return None;
    }
    if op == BinaryOp::Shr {
        return Some(Fact::exact(x.lo.min(0.0), x.hi.max(0.0), 0));
    }
    let scale = y.hi.exp2();
    let fact = Fact::exact((x.lo * scale).min(x.lo), (x.hi * scale).max(x.hi), 0);
    round_or_wrap(dtype, fact, 0.0, policy)
}

/// Fact of `x * y + z`, all of one dtype, with or without a rounding of the product.
pub(crate) fn mulacc(x: &Fact, y: &Fact, z: &Fact, dtype: DType, policy: Policy) -> Option<Fact> {
    let scaled = binary(BinaryOp::Mul, x, y, dtype, policy)?;
    if scaled.special {
        // The result may depend on whether the product is rounded.
        return None;
    }
    binary(BinaryOp::Add, &scaled, z, dtype, policy)
}

/// Fact of a reduction over `count` elements; `dtype` is the source's, `to` the result's.
pub(crate) fn reduce(
    op: ReduceOp,
    x: &Fact,
    count: usize,
    dtype: DType,
    to: DType,
    policy: Policy,
) -> Option<Fact> {
    if op == ReduceOp::Max {
        return max(x, count, dtype);
    }
    let x = &cast(x, dtype, to, policy)?;
    let terms = count as f64;
    if count == 0 {
        let identity = if op == ReduceOp::Sum { 0.0 } else { 1.0 };
        return Some(Fact::exact(identity, identity, 0));
    }
    if x.special {
        // The order of the terms decides whether an intermediate result overflows.
        let err = if count == 1 { x.err } else { f64::MAX };
        let allowed = policy.special && (count == 1 || (policy.decide && x.err == 0.0));
        return allowed.then_some(Fact { raw: false, err, away: 0.0, ..*x });
    }
    let factor = x.magnitude();
    let fact = match op {
        ReduceOp::Sum => Fact {
            err: x.err * terms,
            ..Fact::exact((x.lo * terms).min(x.lo), (x.hi * terms).max(x.hi), x.grid)
        },
        _ => {
            let top = factor.powf(terms).max(factor);
            let lo = if x.lo >= 0.0 { 0.0 } else { -top };
            let grid = if x.grid == ROUGH { ROUGH } else { x.grid.saturating_mul(count as i32) };
            // Rough factors near zero: the error relative to the largest product is enough.
            let err = x.err * terms * factor.powf(terms - 1.0).max(1.0);
            Fact { away: x.away.powf(terms), err, ..Fact::exact(lo, top, grid) }
        }
    };
    let roundings = if count == 1 { 0.0 } else { terms };
    if count == 1 && to.is_float() {
        return Some(Fact { raw: false, ..*x });
    }
    round_or_wrap(to, fact, roundings, policy)
}

/// Fact of the largest of `count` elements; without elements, the smallest value of the dtype.
fn max(x: &Fact, count: usize, dtype: DType) -> Option<Fact> {
    if count > 0 {
        return Some(Fact { raw: false, ..*x });
    }
    if dtype.is_float() {
        return Some(Fact { special: true, ..Fact::exact(0.0, 0.0, ROUGH) });
    }
    let (lo, _) = range(dtype);
    Some(Fact::exact(lo, lo, 0))
}
