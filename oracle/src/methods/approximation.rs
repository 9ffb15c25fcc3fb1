//! Functions that an engine approximates: from a function of real numbers and the error that it may
//! have, the set of legal results. Knows no particular function.

use gradiff_corpus::DType;

use crate::arithmetic::undefined;
use crate::cell::{Cell, Real, Reason};
use crate::format::{format, pow2};
use crate::transcendental::{approximate_result, limited_wave};

/// Additional ulps for f64, in which the oracle computes the centers, too.
const F64_ULPS: f64 = 4.0;
/// Error of a center relative to its magnitude, where it is compared with another one.
const CENTER: f64 = pow2(-50);
/// Distance from the minimum of a function beyond which its derivative has one sign, whatever the
/// error of the position that is stated for the minimum.
const NEAR_TURN: f64 = 0.01;

/// The error that an approximation may have: so many ulps of its result or, where that is larger,
/// of `scale`.
#[derive(Clone, Copy)]
pub(super) struct Error {
    pub(super) ulps: f64,
    pub(super) scale: f64,
}

impl Error {
    /// An error of so many ulps of the result.
    pub(super) const fn ulps(ulps: f64) -> Error {
        Error { ulps, scale: 0.0 }
    }
}

/// Returns `f(x)` for a function that is monotone, with the bounds that it has at the ends of those
/// of x. Where `f` is NaN, x is outside of the domain; where it is infinite, it overflows.
pub(super) fn monotone(dtype: DType, x: Cell, error: Error, f: impl Fn(f64) -> f64) -> Cell {
    monotone_with(dtype, x, error, f, |_| 0.0)
}

/// As [`monotone`]. `extra` of x is an absolute error in addition to `error`.
pub(super) fn monotone_with(
    dtype: DType,
    x: Cell,
    error: Error,
    f: impl Fn(f64) -> f64,
    extra: impl Fn(f64) -> f64,
) -> Cell {
    approximate(dtype, x, error, &f, |real, value| spread_at_ends(real, value, &f), extra)
}

/// Returns `f(x)` for a function that falls up to about `turn` and rises from there on, and whose
/// derivative is at most `slope` in magnitude. `extra` is as in [`monotone_with`].
pub(super) fn turning(
    dtype: DType,
    x: Cell,
    error: Error,
    (turn, slope): (f64, f64),
    f: impl Fn(f64) -> f64,
    extra: impl Fn(f64) -> f64,
) -> Cell {
    let spread = |real: &Real, value: f64| match real.upper() < turn - NEAR_TURN
        || turn + NEAR_TURN < real.lower()
    {
        true => spread_at_ends(real, value, &f),
        false => slope * (real.radius + real.lo.abs()),
    };
    approximate(dtype, x, error, &f, spread, extra)
}

/// Returns `f(x)` for a function between -1 and 1 whose derivative is, too.
pub(super) fn wave(dtype: DType, x: Cell, error: Error, f: impl Fn(f64) -> f64) -> Cell {
    let spread = |real: &Real, _: f64| (real.radius + real.lo.abs()).min(2.0);
    limited_wave(dtype, approximate(dtype, x, error, &f, spread, |_| 0.0))
}

/// Returns the larger of the distances of `f` at the ends of the bounds from its value.
fn spread_at_ends(real: &Real, value: f64, f: impl Fn(f64) -> f64) -> f64 {
    let (low, high) = (f(real.lower()), f(real.upper()));
    (value - low).abs().max((high - value).abs())
}

/// Returns the result with the center `value`, the error `inherited` and one of its own.
pub(super) fn result(dtype: DType, value: f64, inherited: f64, error: Error) -> Cell {
    let ulps = error.ulps + if dtype == DType::F64 { F64_ULPS } else { 0.0 };
    approximate_result(dtype, value, inherited, ulps, error.scale)
}

/// Returns `f(x)`, where `spread` gives from an inexact x and the center the error inherited.
fn approximate(
    dtype: DType,
    x: Cell,
    error: Error,
    f: &impl Fn(f64) -> f64,
    spread: impl Fn(&Real, f64) -> f64,
    extra: impl Fn(f64) -> f64,
) -> Cell {
    if let Some(cell) = undefined(&[x]) {
        return cell;
    }
    let real = match x {
        Cell::Real(real) => real,
        Cell::Inf { negative, overflowed } => {
            let end = if negative { f64::NEG_INFINITY } else { f64::INFINITY };
            if overflowed {
                return beyond(dtype, end, error, f, extra);
            }
            let value = f(end);
            return match value == 0.0 {
                true => Cell::zero(Some(value.is_sign_negative())),
                false => at_point(dtype, value, 0.0, error, false),
            };
        }
        Cell::Int(_) | Cell::Nan(_) | Cell::Unspecified(_) => panic!("{x:?} is not a float"),
    };
    let value = f(real.hi);
    if real.is_zero() && value == 0.0 {
        // An odd function keeps the sign of a zero.
        let is_known = !real.is_sign_free() || f(0.0).to_bits() == f(-0.0).to_bits();
        return Cell::zero(is_known.then_some(value.is_sign_negative()));
    }
    if real.is_exact() {
        return at_point(dtype, value, extra(real.hi), error, true);
    }
    let ends = [f(real.lower()), f(real.upper())];
    match ends.iter().filter(|end| end.is_nan()).count() {
        0 if !value.is_nan() => {}
        2 if value.is_nan() => return Cell::nan(),
        _ => return Cell::Unspecified(Reason::Straddle),
    }
    if ends.iter().any(|end| end.is_infinite()) {
        return Cell::Unspecified(Reason::Overflow);
    }
    let extra = extra(real.lower()).max(extra(real.upper()));
    result(dtype, value, spread(&real, value) + extra + CENTER * value.abs(), error)
}

/// Returns `f` of a number that overflowed: of one from the smallest that does to the infinity
/// `end`.
fn beyond(
    dtype: DType,
    end: f64,
    error: Error,
    f: &impl Fn(f64) -> f64,
    extra: impl Fn(f64) -> f64,
) -> Cell {
    let least = format(dtype).overflow.min(f64::MAX).copysign(end);
    let spread = (f(end) - f(least)).abs();
    match spread.is_finite() {
        true => result(dtype, f(end), spread + extra(end).max(extra(least)), error),
        false => Cell::Unspecified(Reason::Overflow),
    }
}

/// Returns the result at an exact argument, or at an infinity.
fn at_point(dtype: DType, value: f64, extra: f64, error: Error, overflowed: bool) -> Cell {
    if value.is_nan() {
        Cell::nan()
    } else if value.is_infinite() {
        Cell::Inf { negative: value < 0.0, overflowed }
    } else {
        result(dtype, value, extra, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: Error = Error::ulps(1.0);

    fn contains(cell: Cell, value: f64) -> bool {
        matches!(cell, Cell::Real(real) if real.lower() <= value && value <= real.upper())
    }

    #[test]
    fn bounds_of_a_monotone_function_are_those_at_the_ends() {
        let ball = Cell::Real(Real::ball(1.0, 0.0, 0.5));
        let cell = monotone(DType::F32, ball, ERROR, f64::exp);
        assert!(contains(cell, 0.5f64.exp()) && contains(cell, 1.5f64.exp()));
        assert!(!contains(cell, 1.6f64.exp()));
        let cell = wave(DType::F32, ball, ERROR, f64::cos);
        assert!(contains(cell, 0.5f64.cos()) && contains(cell, 1.5f64.cos()));
        assert!(!contains(cell, 1.1));
        let wide = Cell::Real(Real::ball(1e9, 0.0, 1e6));
        let cell = wave(DType::F16, wide, ERROR, f64::cos);
        assert!(contains(cell, 1.0) && contains(cell, -1.0) && !contains(cell, 1.001));
    }

    #[test]
    fn bounds_of_a_function_with_a_minimum_are_those_of_its_side() {
        let square = |center, radius| {
            let x = Cell::Real(Real::ball(center, 0.0, radius));
            turning(DType::F32, x, ERROR, (0.0, 8.0), |x| x * x, |_| 0.0)
        };
        for center in [2.0, -2.0] {
            assert!(contains(square(center, 0.5), 2.25) && contains(square(center, 0.5), 6.25));
            assert!(!contains(square(center, 0.5), 6.5));
        }
        assert!(contains(square(0.0, 1.0), 1.0) && contains(square(0.0, 1.0), 0.0));
    }

    #[test]
    fn domains_zeros_and_infinities_are_told_apart() {
        let log = |x| monotone(DType::F32, x, ERROR, f64::ln);
        assert!(matches!(log(Cell::exact(-1.0)), Cell::Nan(None)));
        let straddling = Cell::Real(Real::ball(1.0, 0.0, 2.0));
        assert_eq!(log(straddling), Cell::Unspecified(Reason::Straddle));
        let sinh = |x| monotone(DType::F32, x, ERROR, f64::sinh);
        assert_eq!(sinh(Cell::exact(-0.0)).bits(DType::F32), Some(0x8000_0000));
        assert_eq!(sinh(Cell::zero(None)), Cell::zero(None));
        assert!(matches!(sinh(Cell::exact(-1e4)), Cell::Inf { negative: true, .. }));
        assert_eq!(sinh(Cell::infinity(true)), Cell::infinity(true));
        assert!(contains(monotone(DType::F32, Cell::infinity(false), ERROR, f64::tanh), 1.0));
    }

    #[test]
    fn a_function_of_an_overflowed_number_is_known_where_it_hardly_varies() {
        let overflowed = |negative| Cell::Inf { negative, overflowed: true };
        let of = |x, f: fn(f64) -> f64| monotone(DType::F16, x, ERROR, f);
        let tanh = of(overflowed(true), f64::tanh);
        assert!(contains(tanh, -1.0) && !contains(tanh, -0.99));
        // From that of 65520 on.
        let atan = of(overflowed(false), f64::atan);
        assert!(contains(atan, 65520f64.atan()) && !contains(atan, 1.56));
        let varying: [fn(f64) -> f64; 3] = [f64::exp, f64::asinh, f64::cos];
        for f in varying {
            assert_eq!(of(overflowed(false), f), Cell::Unspecified(Reason::Overflow));
        }
    }
}
