//! Facts of results from facts of sources: one function per kind of op.
//!
//! `None` means that the lane's policy does not allow the op on these sources, because results
//! would be undefined, undecided or without meaning.

use gradiff_corpus::{BinaryOp, DType, ReduceOp, UnaryOp};

use crate::fact::{Fact, Policy, ROUGH, cast, decided, power, range, settle};

/// The result of an elementwise function of one source.
pub(crate) fn unary(op: UnaryOp, x: &Fact, dtype: DType, policy: Policy) -> Option<Fact> {
    if x.special {
        return unary_special(op, x, policy);
    }
    let rough = |lo: f64, hi: f64, err: f64, ulps: f64| {
        let fact = Fact { err, ..Fact::exact(lo, hi, ROUGH) };
        settle(dtype, fact, ulps, policy)
    };
    match op {
        UnaryOp::Neg => {
            let fact = Fact { lo: -x.hi, hi: -x.lo, ..*x };
            settle(dtype, fact, 0.0, Policy { wrap: true, inexact: true, ..policy })
                .map(|settled| Fact { err: x.err, ..settled })
        }
        UnaryOp::Not => {
            let (lo, hi) = range(dtype);
            let fact = if dtype.is_signed() {
                Fact::exact(-1.0 - x.hi, -1.0 - x.lo, 0)
            } else {
                Fact::exact((hi - x.hi).max(lo), (hi - x.lo).min(hi), 0)
            };
            settle(dtype, fact, 0.0, Policy { wrap: true, ..policy })
        }
        UnaryOp::Exp2 => {
            let most = if dtype == DType::F16 { 8.0 } else { 30.0 };
            let fits = x.magnitude() <= most && x.err < 0.25;
            let top = x.hi.exp2();
            let found = fits.then(|| rough(x.lo.exp2(), top, x.err * top, 8.0)).flatten();
            found.map(|fact| Fact { away: x.lo.exp2() * 0.5, ..fact })
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
        UnaryOp::Recip => recip(x).and_then(|fact| settle(dtype, fact, 1.0, policy)),
    }
}

/// `1 / x` before rounding, if `x` is away from 0.
fn recip(x: &Fact) -> Option<Fact> {
    if x.away <= 0.0 || x.away < 4.0 * x.err {
        return None;
    }
    let most = 1.0 / x.away;
    let lo = if x.lo > 0.0 { 1.0 / x.hi } else { -most };
    let hi = if x.hi < 0.0 { 1.0 / x.lo } else { most };
    let err = 2.0 * x.err * most * most;
    Some(Fact { away: 1.0 / x.magnitude(), err, ..Fact::exact(lo, hi, ROUGH) })
}

/// NaN, infinities and extremes: one rounding op at most on the way from data.
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

/// The result of an elementwise function of two sources of one dtype.
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
            let sum = Fact { err: x.err.max(y.err), ..x.join(y) };
            decided(&sum, policy).then_some(Fact::BOOL)
        }
        And | Or | Xor if dtype == DType::Bool => Some(Fact::BOOL),
        Max | Min if x.special || y.special => Some(Fact { raw: false, ..x.join(y) }),
        _ if x.special || y.special => binary_special(op, x, y, policy),
        Max | Min => Some(Fact { raw: false, ..extremum(op, x, y) }),
        Add | Sub => {
            let minus = Fact { lo: -y.hi, hi: -y.lo, ..*y };
            let y = if op == Sub { &minus } else { y };
            let bounds = Fact::exact(x.lo + y.lo, x.hi + y.hi, x.grid.min(y.grid));
            settle(dtype, Fact { err: x.err + y.err, ..bounds }, 1.0, policy)
        }
        Mul => settle(dtype, product(x, y), 1.0, policy),
        Div => settle(dtype, product(x, &recip(y)?), 2.0, policy),
        Pow => pow(x, y).and_then(|fact| settle(dtype, fact, 16.0, policy)),
        CDiv | CMod | FloorDiv | FloorMod => divide(op, x, y, dtype),
        And | Or | Xor => Some(bitwise(op, x, y, dtype)),
        Shl | Shr => shift(op, x, y, dtype, policy),
        Threefry => Some(Fact::whole(dtype)),
    }
}

fn binary_special(op: BinaryOp, x: &Fact, y: &Fact, policy: Policy) -> Option<Fact> {
    let exact = (x.err == 0.0 && y.err == 0.0) || policy.decide;
    let allowed = policy.special && exact && op != BinaryOp::Pow;
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

/// `x * y` before rounding.
fn product(x: &Fact, y: &Fact) -> Fact {
    let corners = [x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi];
    let lo = corners.into_iter().fold(f64::MAX, f64::min);
    let hi = corners.into_iter().fold(f64::MIN, f64::max);
    let grid = if x.grid == ROUGH || y.grid == ROUGH { ROUGH } else { x.grid + y.grid };
    let err = x.err * y.magnitude() + y.err * x.magnitude() + x.err * y.err;
    Fact { away: x.away * y.away, err, ..Fact::exact(lo, hi, grid) }
}

/// `x^y` before rounding, for a positive base and a small exponent.
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

/// `e^x`, written as a power, which may be off by some units for each doubling.
pub(crate) fn exp(x: &Fact, dtype: DType, policy: Policy) -> Option<Fact> {
    if x.special || 30.0 < x.magnitude() || 0.25 < x.err {
        return None;
    }
    let (lo, hi) = (x.lo.exp(), x.hi.exp());
    let bounds = Fact::exact(lo, hi, ROUGH);
    let fact = Fact { err: 1.5 * hi * x.err, away: 0.5 * lo, ..bounds };
    settle(dtype, fact, 256.0, policy)
}

/// Integer quotients and remainders; the divisor must be away from 0.
fn divide(op: BinaryOp, x: &Fact, y: &Fact, dtype: DType) -> Option<Fact> {
    if y.away < 1.0 {
        return None;
    }
    let (most, divisor) = (x.magnitude(), y.magnitude());
    let fact = match op {
        BinaryOp::CDiv | BinaryOp::FloorDiv if x.lo >= 0.0 && y.lo > 0.0 => {
            Fact::exact(0.0, x.hi, 0)
        }
        BinaryOp::CDiv | BinaryOp::FloorDiv => Fact::exact(-most, most, 0),
        BinaryOp::FloorMod if y.lo > 0.0 => Fact::exact(0.0, y.hi - 1.0, 0),
        BinaryOp::CMod if x.lo >= 0.0 => Fact::exact(0.0, divisor - 1.0, 0),
        _ => Fact::exact(1.0 - divisor, divisor - 1.0, 0),
    };
    let wrap = Policy { inexact: false, special: false, wrap: true, decide: false };
    settle(dtype, fact, 0.0, wrap)
}

fn bitwise(op: BinaryOp, x: &Fact, y: &Fact, dtype: DType) -> Fact {
    let most = x.magnitude().max(y.magnitude()).max(1.0);
    if most >= power(52) {
        return Fact::whole(dtype);
    }
    let span = power(most.log2().floor() as i32 + 1) - 1.0;
    if x.lo < 0.0 || y.lo < 0.0 {
        return Fact::exact(-span - 1.0, span, 0);
    }
    let hi = if op == BinaryOp::And { x.hi.min(y.hi) } else { span };
    let lo = if op == BinaryOp::Or { x.lo.max(y.lo) } else { 0.0 };
    Fact::exact(lo, hi, 0)
}

/// Shifts; the amount must lie in 0..bits.
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
    settle(dtype, fact, 0.0, policy)
}

/// `x * y + z` of one dtype; rounded in between or not.
pub(crate) fn mulacc(x: &Fact, y: &Fact, z: &Fact, dtype: DType, policy: Policy) -> Option<Fact> {
    let scaled = binary(BinaryOp::Mul, x, y, dtype, policy)?;
    if scaled.special {
        // The product's rounding may or may not show.
        return None;
    }
    binary(BinaryOp::Add, &scaled, z, dtype, policy)
}

/// A reduction of `count` elements each; `dtype` is the source's, `to` the result's.
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
    let most = x.magnitude();
    let fact = match op {
        ReduceOp::Sum => Fact {
            err: x.err * terms,
            ..Fact::exact((x.lo * terms).min(x.lo), (x.hi * terms).max(x.hi), x.grid)
        },
        _ => {
            let top = most.powf(terms).max(most);
            let lo = if x.lo >= 0.0 { 0.0 } else { -top };
            let grid = if x.grid == ROUGH { ROUGH } else { x.grid.saturating_mul(count as i32) };
            // Rough factors near zero: the error relative to the largest product is enough.
            let err = x.err * terms * most.powf(terms - 1.0).max(1.0);
            Fact { away: x.away.powf(terms), err, ..Fact::exact(lo, top, grid) }
        }
    };
    let steps = if count == 1 { 0.0 } else { terms };
    if count == 1 && to.is_float() {
        return Some(Fact { raw: false, ..*x });
    }
    settle(to, fact, steps, policy)
}

/// The largest of `count` elements; of none the smallest value of the type.
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
