//! Static analysis of the elements of a value: bounds, a binary grid, a bound of the rounding
//! error, whether NaN or infinities may occur.
//!
//! From it the generator decides which ops give well-defined results. The bounds are conservative
//! estimates; the oracle alone decides what the results are.

use gradiff_corpus::{DType, Distribution, Literal};

use crate::values::layout;

/// The grid of a value whose elements are multiples of no known power of two.
pub(crate) const ROUGH: i32 = i32::MIN;

/// Properties that hold for all elements of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fact {
    /// Lower bound of the finite elements.
    pub(crate) lo: f64,
    /// Upper bound of the finite elements.
    pub(crate) hi: f64,
    /// Distance from zero: a lower bound of the magnitudes; 0 if an element may be zero.
    pub(crate) away: f64,
    /// Elements are multiples of 2^grid, or `ROUGH`.
    pub(crate) grid: i32,
    /// Bound of the error; 0 if every element is known to the bit.
    pub(crate) err: f64,
    /// Elements may be NaN or infinite.
    pub(crate) special: bool,
    /// Floats are unchanged data, so that NaN payloads are known, too.
    pub(crate) raw: bool,
    /// An element may be undefined, so the value must not be used again.
    pub(crate) poison: bool,
}

/// The results that a lane allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Results may be rounded.
    pub(crate) inexact: bool,
    /// Arithmetic may meet NaN and infinities.
    pub(crate) special: bool,
    /// Integers may wrap.
    pub(crate) wrap: bool,
    /// Inexact elements may be compared and converted to integers, if they are far from a tie;
    /// with `special`, computed extremes may be sources of further arithmetic.
    pub(crate) decide: bool,
}

impl Fact {
    /// Exact numbers from `lo` to `hi` that are multiples of `2^grid`.
    pub(crate) fn exact(lo: f64, hi: f64, grid: i32) -> Fact {
        let mut fact =
            Fact { lo, hi, away: 0.0, grid, err: 0.0, special: false, raw: false, poison: false };
        fact.away = fact.away_by_bounds();
        fact
    }

    /// Truth values.
    pub(crate) const BOOL: Fact = Fact {
        lo: 0.0,
        hi: 1.0,
        away: 0.0,
        grid: 0,
        err: 0.0,
        special: false,
        raw: false,
        poison: false,
    };

    /// Any value of an integer type.
    pub(crate) fn whole(dtype: DType) -> Fact {
        let (lo, hi) = range(dtype);
        Fact::exact(lo, hi, 0)
    }

    /// Any bit pattern of a float type, known to the bit.
    pub(crate) fn patterns(dtype: DType) -> Fact {
        let max = largest(dtype);
        Fact { special: true, raw: true, ..Fact::exact(-max, max, ROUGH) }
    }

    /// Returns the largest magnitude of the finite elements.
    pub(crate) fn magnitude(&self) -> f64 {
        self.lo.abs().max(self.hi.abs())
    }

    /// Returns the lower bound of the magnitudes that follows from `lo` and `hi` alone.
    pub(crate) fn away_by_bounds(&self) -> f64 {
        if self.lo > 0.0 {
            self.lo
        } else if self.hi < 0.0 {
            -self.hi
        } else {
            0.0
        }
    }

    /// Returns the fact that holds for the elements of both values.
    pub(crate) fn join(&self, other: &Fact) -> Fact {
        Fact {
            lo: self.lo.min(other.lo),
            hi: self.hi.max(other.hi),
            away: self.away.min(other.away),
            grid: self.grid.min(other.grid),
            err: self.err.max(other.err),
            special: self.special || other.special,
            raw: (self.raw || !self.special) && (other.raw || !other.special),
            poison: self.poison || other.poison,
        }
    }
}

/// Smallest and largest value of an integer type or bool, rounded outward to f64.
pub(crate) fn range(dtype: DType) -> (f64, f64) {
    let bits = 8 * dtype.size_bytes() as i32;
    match dtype {
        DType::Bool => (0.0, 1.0),
        _ if dtype.is_signed() => (-power(bits - 1), power(bits - 1) - 1.0),
        _ => (0.0, power(bits) - 1.0),
    }
}

/// 2^exponent.
pub(crate) fn power(exponent: i32) -> f64 {
    // `powi` takes the reciprocal of 2^1074, which is infinite.
    2.0_f64.powi(exponent / 2) * 2.0_f64.powi(exponent - exponent / 2)
}

/// Significant bits of a float type.
pub(crate) fn mantissa_bits(dtype: DType) -> i32 {
    layout(dtype).0 as i32
}

/// Exponent of the smallest subnormal of a float type.
pub(crate) fn least_exponent(dtype: DType) -> i32 {
    match dtype {
        DType::F16 => -24,
        DType::BF16 => -133,
        DType::F32 => -149,
        _ => -1074,
    }
}

/// Largest finite value of a float type.
pub(crate) fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 3.389e38,
        DType::F32 => f32::MAX as f64,
        _ => f64::MAX,
    }
}

/// Maximum magnitude of results, far enough from overflow that roundings do not cause it.
fn limit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => power(13),
        DType::BF16 | DType::F32 => power(60),
        _ => power(200),
    }
}

/// Fact of a result after it is rounded (floats) or wrapped (integers) to `dtype`, from the fact
/// before. `roundings` counts the roundings; with 0 there is one only if the grid is too fine.
///
/// Returns `None` if the policy does not allow it, if the value may overflow, or if the error
/// bound is useless.
pub(crate) fn round_or_wrap(
    dtype: DType,
    mut fact: Fact,
    roundings: f64,
    policy: Policy,
) -> Option<Fact> {
    fact.raw = false;
    if !dtype.is_float() {
        let (lo, hi) = range(dtype);
        fact.grid = 0;
        fact.err = 0.0;
        if lo <= fact.lo && fact.hi <= hi && fact.magnitude() <= power(53) {
            return Some(fact);
        }
        let within = lo <= fact.lo && fact.hi <= hi && fact.magnitude() < power(62);
        let away = if within { fact.away } else { 0.0 };
        return (policy.wrap || within).then(|| Fact { away, ..Fact::whole(dtype) });
    }
    if fact.special {
        fact.err = if roundings > 0.0 { f64::MAX } else { fact.err };
        return (policy.special).then_some(fact);
    }
    let magnitude = fact.magnitude();
    if limit(dtype) < magnitude {
        return None;
    }
    let fits = fact.grid != ROUGH
        && fact.grid >= least_exponent(dtype)
        && magnitude <= power(mantissa_bits(dtype) + fact.grid);
    if fact.err == 0.0 && (fits || roundings == 0.0) {
        return Some(fact);
    }
    fact.err += roundings * magnitude * power(-mantissa_bits(dtype)) + power(least_exponent(dtype));
    fact.grid = ROUGH;
    fact.away = if fact.away > fact.err { fact.away - fact.err } else { 0.0 };
    let useful = fact.err <= 0.125 * magnitude.max(power(-12));
    (policy.inexact && useful).then_some(fact)
}

/// Fact of a converted value; `None` if an element may be undefined or undecided.
pub(crate) fn cast(fact: &Fact, from: DType, to: DType, policy: Policy) -> Option<Fact> {
    if from == to {
        return Some(*fact);
    }
    if !from.is_float() && !to.is_float() {
        return match to {
            DType::Bool => Some(Fact::BOOL),
            _ => round_or_wrap(to, *fact, 0.0, Policy { wrap: true, ..policy }),
        };
    }
    if to.is_float() {
        if fact.err == 0.0 {
            return exact_cast(fact, to, policy);
        }
        let widens = from.is_float()
            && mantissa_bits(from) <= mantissa_bits(to)
            && least_exponent(from) >= least_exponent(to);
        return round_or_wrap(to, *fact, if widens { 0.0 } else { 1.0 }, policy);
    }
    if !decided(fact, policy) {
        return None;
    }
    if to == DType::Bool {
        return Some(Fact::BOOL);
    }
    let (lo, hi) = range(to);
    let (low, high) = ((fact.lo - fact.err).trunc(), (fact.hi + fact.err).trunc());
    let fits = !fact.special && lo <= low && high <= hi && (fact.err == 0.0 || high < hi);
    if !fits || (fact.err != 0.0 && fact.magnitude() >= power(53)) {
        return None;
    }
    round_or_wrap(to, Fact::exact(low, high, 0), 0.0, Policy { wrap: true, ..policy })
}

/// Fact of converted exact elements. A conversion always rounds, so exact elements stay exact.
/// Multiples of a power of two stay such, since rounding only makes a grid coarser.
fn exact_cast(fact: &Fact, to: DType, policy: Policy) -> Option<Fact> {
    let overflows = largest(to) < fact.magnitude();
    if fact.special || overflows {
        let max = largest(to);
        let (lo, hi) = (fact.lo.clamp(-max, max), fact.hi.clamp(-max, max));
        let clamped = Fact { lo, hi, away: 0.0, special: true, raw: false, ..*fact };
        return policy.special.then_some(clamped);
    }
    let (unit, least) = (power(1 - mantissa_bits(to)), power(least_exponent(to)));
    let fits = fact.grid != ROUGH
        && fact.grid >= least_exponent(to)
        && fact.magnitude() <= power(mantissa_bits(to) + fact.grid);
    if fits {
        return Some(Fact { raw: false, ..*fact });
    }
    let max_error = |bound: f64| bound.abs() * unit + least;
    let away = if fact.away > least { fact.away * (1.0 - unit) } else { 0.0 };
    // Rounding keeps the sign.
    let lo = fact.lo - if fact.lo == 0.0 { 0.0 } else { max_error(fact.lo) };
    let hi = fact.hi + if fact.hi == 0.0 { 0.0 } else { max_error(fact.hi) };
    let lo = if fact.lo > 0.0 { lo.max(0.0) } else { lo };
    let hi = if fact.hi < 0.0 { hi.min(0.0) } else { hi };
    Some(Fact { lo, hi, away, raw: false, ..*fact })
}

/// Returns whether comparisons and conversions to integers are decided for (nearly) every element.
pub(crate) fn decided(fact: &Fact, policy: Policy) -> bool {
    fact.err == 0.0
        || (policy.decide && !fact.special && fact.err <= power(-12) * (fact.hi - fact.lo))
}

/// Fact of a literal that is used as this dtype.
pub(crate) fn of_literal(dtype: DType, literal: &Literal) -> Fact {
    let value = match literal {
        Literal::Bool(value) => f64::from(u8::from(*value)),
        Literal::Int(value) => *value as f64,
        Literal::Float(value) => *value,
    };
    if !value.is_finite() {
        return Fact { special: true, ..Fact::exact(0.0, 0.0, ROUGH) };
    }
    let grid = if !dtype.is_float() || value.fract() == 0.0 { 0 } else { short_grid(value) };
    Fact::exact(value, value, grid)
}

/// Returns the grid of a fraction that every float type represents exactly, else `ROUGH`.
fn short_grid(value: f64) -> i32 {
    (-24..0)
        .find(|grid| {
            let multiple = value * power(-grid);
            multiple.fract() == 0.0 && multiple.abs() <= power(8)
        })
        .unwrap_or(ROUGH)
}

/// Fact of seeded data.
pub(crate) fn of_distribution(dtype: DType, distribution: Distribution) -> Fact {
    if dtype == DType::Bool {
        return Fact::BOOL;
    }
    let float = dtype.is_float();
    let signed = float || dtype.is_signed();
    let small = if signed { Fact::exact(-4.0, 4.0, 0) } else { Fact::exact(0.0, 8.0, 0) };
    let fact = match distribution {
        Distribution::Small => small,
        Distribution::Positive => Fact::exact(1.0, 4.0, 0),
        Distribution::Dyadic if float => Fact::exact(-4.0, 4.0, -3),
        Distribution::Dyadic => small,
        Distribution::Unit if float => Fact::exact(-1.0, 1.0, ROUGH),
        Distribution::Unit if signed => Fact::exact(-100.0, 100.0, 0),
        Distribution::Unit => Fact::exact(0.0, 200.0, 0),
        Distribution::Wide if float => {
            Fact { away: power(-12), ..Fact::exact(-4097.0, 4097.0, ROUGH) }
        }
        Distribution::Special if float => Fact::patterns(dtype),
        Distribution::Wide | Distribution::Special => Fact::whole(dtype),
    };
    Fact { raw: true, ..fact }
}

/// Fact of the elements 0, 1, 2, ..., `count` in number.
pub(crate) fn of_iota(dtype: DType, count: usize) -> Fact {
    let last = count.saturating_sub(1) as f64;
    if dtype == DType::Bool {
        return Fact::BOOL;
    }
    if !dtype.is_float() && range(dtype).1 < last {
        return Fact::whole(dtype);
    }
    Fact { raw: true, ..Fact::exact(0.0, last.max(1.0), 0) }
}
