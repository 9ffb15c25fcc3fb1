//! What is known of all elements of a value before anything is computed: bounds, a binary grid, a
//! bound of the rounding error, whether NaN or infinities may occur.
//!
//! From it the generator decides which ops give results with one meaning. The bounds are estimates
//! that err on the careful side; the oracle alone says what the results are.

use gradiff_corpus::{DType, Distribution, Literal};

/// Finite elements are multiples of no known power of two.
pub(crate) const ROUGH: i32 = i32::MIN;

/// What is known of all elements of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fact {
    /// Lower bound of the finite elements.
    pub(crate) lo: f64,
    /// Upper bound of the finite elements.
    pub(crate) hi: f64,
    /// Lower bound of the magnitudes; 0 if an element may be zero.
    pub(crate) away: f64,
    /// Elements are multiples of 2^grid, or `ROUGH`.
    pub(crate) grid: i32,
    /// Bound of the error; 0 if every element is known to the bit.
    pub(crate) err: f64,
    /// Elements may be NaN or infinite.
    pub(crate) special: bool,
    /// A float came straight from data: NaN payloads are known, too.
    pub(crate) raw: bool,
    /// An element may be undefined: not to be used again.
    pub(crate) poison: bool,
}

/// What a lane puts up with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Results may be rounded.
    pub(crate) inexact: bool,
    /// Arithmetic on NaN and infinities.
    pub(crate) special: bool,
    /// Integers may wrap.
    pub(crate) wrap: bool,
    /// Inexact elements may be compared and converted to integers, if they are far from a tie;
    /// with `special`, computed extremes may be computed with further.
    pub(crate) decide: bool,
}

impl Fact {
    /// Exact numbers from `lo` to `hi` that are multiples of 2^grid.
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
        let most = largest(dtype);
        Fact { special: true, raw: true, ..Fact::exact(-most, most, ROUGH) }
    }

    /// Largest magnitude of the finite elements.
    pub(crate) fn magnitude(&self) -> f64 {
        self.lo.abs().max(self.hi.abs())
    }

    /// Lower bound of magnitudes that follows from `lo` and `hi` alone.
    pub(crate) fn away_by_bounds(&self) -> f64 {
        if self.lo > 0.0 {
            self.lo
        } else if self.hi < 0.0 {
            -self.hi
        } else {
            0.0
        }
    }

    /// What holds of both.
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
    2.0_f64.powi(exponent)
}

/// Significant bits of a float type.
pub(crate) fn mantissa_bits(dtype: DType) -> i32 {
    match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F32 => 24,
        _ => 53,
    }
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

/// Magnitude that results stay below, so that nothing overflows by way of rounding.
fn limit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => power(13),
        DType::BF16 | DType::F32 => power(60),
        _ => power(200),
    }
}

/// What is known of a result with these bounds once it is rounded (floats) or wrapped (integers)
/// to `dtype`. `None` if the policy does not allow that, the value may overflow, or the error
/// says nothing any more. `steps` counts roundings; 0 demands none unless the grid is too fine.
pub(crate) fn settle(dtype: DType, mut fact: Fact, steps: f64, policy: Policy) -> Option<Fact> {
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
        fact.err = if steps > 0.0 { f64::MAX } else { fact.err };
        return (policy.special).then_some(fact);
    }
    let magnitude = fact.magnitude();
    if limit(dtype) < magnitude {
        return None;
    }
    let fits = fact.grid != ROUGH
        && fact.grid >= least_exponent(dtype)
        && magnitude <= power(mantissa_bits(dtype) + fact.grid);
    if fact.err == 0.0 && (fits || steps == 0.0) {
        return Some(fact);
    }
    fact.err += steps * magnitude * power(-mantissa_bits(dtype)) + power(least_exponent(dtype));
    fact.grid = ROUGH;
    fact.away = if fact.away > fact.err { fact.away - fact.err } else { 0.0 };
    let useful = fact.err <= 0.125 * magnitude.max(power(-12));
    (policy.inexact && useful).then_some(fact)
}

/// What is known after conversion; `None` if it may be undefined or undecided.
pub(crate) fn cast(fact: &Fact, from: DType, to: DType, policy: Policy) -> Option<Fact> {
    if from == to {
        return Some(*fact);
    }
    if !from.is_float() && !to.is_float() {
        return match to {
            DType::Bool => Some(Fact::BOOL),
            _ => settle(to, *fact, 0.0, Policy { wrap: true, ..policy }),
        };
    }
    if to.is_float() {
        if fact.err == 0.0 {
            return exact_cast(fact, to, policy);
        }
        let widens = from.is_float()
            && mantissa_bits(from) <= mantissa_bits(to)
            && least_exponent(from) >= least_exponent(to);
        return settle(to, *fact, if widens { 0.0 } else { 1.0 }, policy);
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
    settle(to, Fact::exact(low, high, 0), 0.0, Policy { wrap: true, ..policy })
}

/// A conversion rounds for certain, so that exact elements stay exact. Multiples of a power of two
/// stay such, since rounding only ever makes a grid coarser.
fn exact_cast(fact: &Fact, to: DType, policy: Policy) -> Option<Fact> {
    let overflows = largest(to) < fact.magnitude();
    if fact.special || overflows {
        let most = largest(to);
        let (lo, hi) = (fact.lo.clamp(-most, most), fact.hi.clamp(-most, most));
        let settled = Fact { lo, hi, away: 0.0, special: true, raw: false, ..*fact };
        return policy.special.then_some(settled);
    }
    let (unit, least) = (power(1 - mantissa_bits(to)), power(least_exponent(to)));
    let fits = fact.grid != ROUGH
        && fact.grid >= least_exponent(to)
        && fact.magnitude() <= power(mantissa_bits(to) + fact.grid);
    if fits {
        return Some(Fact { raw: false, ..*fact });
    }
    let out = |bound: f64| bound.abs() * unit + least;
    let away = if fact.away > least { fact.away * (1.0 - unit) } else { 0.0 };
    // Rounding keeps the sign.
    let lo = fact.lo - if fact.lo == 0.0 { 0.0 } else { out(fact.lo) };
    let hi = fact.hi + if fact.hi == 0.0 { 0.0 } else { out(fact.hi) };
    let lo = if fact.lo > 0.0 { lo.max(0.0) } else { lo };
    let hi = if fact.hi < 0.0 { hi.min(0.0) } else { hi };
    Some(Fact { lo, hi, away, raw: false, ..*fact })
}

/// Whether comparisons and conversions to integers are decided for (nearly) every element.
pub(crate) fn decided(fact: &Fact, policy: Policy) -> bool {
    fact.err == 0.0
        || (policy.decide && !fact.special && fact.err <= power(-12) * (fact.hi - fact.lo))
}

/// What is known of a literal in a place of this type.
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

/// The grid of a fraction that every float type holds as it is.
fn short_grid(value: f64) -> i32 {
    (-24..0)
        .find(|grid| {
            let multiple = value * power(-grid);
            multiple.fract() == 0.0 && multiple.abs() <= power(8)
        })
        .unwrap_or(ROUGH)
}

/// What is known of seeded data.
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

/// What is known of 0, 1, 2, ... up to `count` elements.
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
