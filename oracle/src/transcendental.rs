//! Float ops that libraries do not round correctly: exp2, log2, sin, pow. The table of the errors
//! that devices may have is here.

use gradiff_corpus::DType;

use crate::arithmetic::{limited, propagated, round_result, rounding_error, size_of, with_sign};
use crate::cell::{Cell, Real, Reason};
use crate::format::{Format, format, pow2};
use crate::infer::accumulator;

/// Error in ulps that a device may have, for every transcendental op. f16 and bf16 are computed in
/// f32 with this error and then rounded once.
const ULPS: f64 = 4.0;
/// Additional ulps of `pow` for each doubling of its result: `exp2(y * log2(x))` rounds the
/// exponent, and an error of the exponent is multiplied by the result.
const POW_ULPS_PER_EXPONENT: f64 = 4.0;
/// Additional ulps for f64, whose center is computed by the system's math library.
const CENTER_ULPS: f64 = 1.0;
/// Largest error in smallest subnormal numbers, where that is not relative to a result.
const NEAR_ZERO_ULPS: f64 = 8.0;
/// From this argument on, the error of sin may be in ulps of 1 instead of its result, because the
/// argument is reduced by a rounded multiple of pi.
const SIN_REDUCED: f64 = 2.0;

/// Returns the absolute error of `ulps` at magnitude `size`, in the format that the op is computed
/// in.
fn approximation_error(format: &Format, ulps: f64, size: f64) -> f64 {
    let (unit, center_ulps) = match format.precision {
        53 => (format.unit, CENTER_ULPS),
        _ => (pow2(-24), 0.0),
    };
    // An ulp is at most two units of the magnitude.
    (ulps + center_ulps) * 2.0 * unit * size
}

/// Returns the result of an op with the center `value`, the error `inherited` from its sources, and
/// an error of its own of `ulps` at the larger of its magnitude and `scale`.
pub(crate) fn approximate_result(
    dtype: DType,
    value: f64,
    inherited: f64,
    ulps: f64,
    scale: f64,
) -> Cell {
    let (format, wide) = (format(dtype), format(accumulator(dtype)));
    let size = (value.abs() + inherited).max(scale);
    let radius = inherited + approximation_error(format, ulps, size);
    // The ulps of a power are relative to its exponent, which near zero means nothing.
    let near_zero = ulps.min(NEAR_ZERO_ULPS) * wide.least;
    // f16 and bf16 have the error of f32, near zero too, and are rounded once.
    let rounding = match format.precision < 24 {
        true => rounding_error(format, size_of(value, 0.0, radius + near_zero)),
        false => 0.0,
    };
    round_result(format, Real::ball(value, 0.0, radius), rounding + near_zero, false)
}

/// `2^x`.
pub(crate) fn exp2(dtype: DType, x: Cell) -> Cell {
    let real = match x {
        Cell::Real(real) => real,
        _ => {
            return propagated(&[x]).unwrap_or(match x {
                Cell::Inf { negative: true, .. } => Cell::zero(Some(false)),
                _ => x,
            });
        }
    };
    let center = real.hi + real.lo;
    let value = center.exp2();
    if value.is_infinite() {
        // The result overflows in every format, unless the bound of x is huge.
        let is_certain = real.lower() >= 1025.0;
        return if is_certain || real.is_exact() {
            Cell::Inf { negative: false, overflowed: true }
        } else {
            Cell::Unspecified(Reason::Overflow)
        };
    }
    let spread = if real.is_exact() { 0.0 } else { real.upper() - center };
    let inherited = value * (spread * std::f64::consts::LN_2).exp_m1();
    approximate_result(dtype, value, inherited, ULPS, 0.0).positive()
}

/// `log2(x)`; NaN below zero, -inf at zero.
pub(crate) fn log2(dtype: DType, x: Cell) -> Cell {
    let real = match x {
        Cell::Real(real) => real,
        _ => {
            return propagated(&[x]).unwrap_or(match x {
                Cell::Inf { negative: true, .. } => Cell::nan(),
                _ => x,
            });
        }
    };
    if real.is_zero() {
        return Cell::infinity(true);
    }
    if real.upper() < 0.0 {
        return Cell::nan();
    }
    if real.lower() <= 0.0 {
        return Cell::Unspecified(Reason::Straddle);
    }
    let value = real.hi.log2();
    let spread = if real.is_exact() { 0.0 } else { real.hi - real.lower() };
    let inherited = -(-spread / real.hi).ln_1p() * std::f64::consts::LOG2_E;
    approximate_result(dtype, value, inherited, ULPS, 0.0)
}

/// `sin(x)`, x in radians; NaN for infinities.
pub(crate) fn sin(dtype: DType, x: Cell) -> Cell {
    let real = match x {
        Cell::Real(real) => real,
        _ => return propagated(&[x]).unwrap_or(Cell::nan()),
    };
    if real.is_zero() {
        return Cell::Real(real.leaf());
    }
    let spread = if real.is_exact() { 0.0 } else { (real.radius + real.lo.abs()).min(2.0) };
    let scale = if real.magnitude() < SIN_REDUCED { 0.0 } else { 1.0 };
    limited_wave(dtype, approximate_result(dtype, real.hi.sin(), spread, ULPS, scale))
}

/// Narrows the bounds of a sine or cosine to -1 and 1, but for the error of an approximation.
pub(crate) fn limited_wave(dtype: DType, x: Cell) -> Cell {
    let unit = if dtype == DType::F64 { pow2(-53) } else { pow2(-24) };
    let limit = 1.0 + 32.0 * unit;
    limited(x, -limit, limit)
}

/// `x^y` with the special cases of C's pow.
pub(crate) fn pow(dtype: DType, x: Cell, y: Cell) -> Cell {
    if let Some(cell) = [x, y].into_iter().find(|cell| matches!(cell, Cell::Unspecified(_))) {
        return cell;
    }
    let is_exactly =
        |cell, value| matches!(cell, Cell::Real(real) if real.is_exact() && real.hi == value);
    if is_exactly(y, 0.0) || is_exactly(x, 1.0) {
        return Cell::exact(1.0);
    }
    let may_be = |cell, value| match cell {
        Cell::Real(real) => real.lower() <= value && value <= real.upper(),
        _ => false,
    };
    if matches!(x, Cell::Nan(_)) || matches!(y, Cell::Nan(_)) {
        let may_be_one = may_be(y, 0.0) || may_be(x, 1.0);
        return if may_be_one { Cell::Unspecified(Reason::Straddle) } else { Cell::nan() };
    }
    if let Some(cell) = propagated(&[x, y]) {
        return cell;
    }
    match (point(x), point(y)) {
        (Some(x_value), Some(y_value)) => {
            let is_sign_free = matches!(x, Cell::Real(real) if real.is_sign_free());
            pow_points(dtype, x_value, y_value, is_sign_free)
        }
        _ => pow_of_limits(x, y).unwrap_or_else(|| pow_balls(dtype, x, y)),
    }
}

/// `x^y` where one of them is 0 or an infinity, and the bounds of the second one tell which limit
/// the power is; `None` if they do not.
fn pow_of_limits(x: Cell, y: Cell) -> Option<Cell> {
    let limit = |is_infinite| match is_infinite {
        true => Cell::infinity(false),
        false => Cell::zero(Some(false)),
    };
    match (x, y) {
        (Cell::Real(base), Cell::Inf { negative, .. }) => {
            let least = base.lower().abs().min(base.upper().abs());
            let is_above = !base.may_be_zero() && 1.0 < least;
            (is_above || base.magnitude() < 1.0).then(|| limit(is_above != negative))
        }
        (_, Cell::Real(y)) if !y.may_be_zero() => {
            let base = point(x).filter(|base| *base == 0.0 || base.is_infinite())?;
            // Odd powers have the sign of the base.
            let is_plus = base == f64::INFINITY
                || matches!(x, Cell::Real(real) if real.sign() == Some(false));
            let may_be_odd = y.lower().ceil() <= y.upper();
            let is_infinite = base.is_infinite() != (y.hi < 0.0);
            (is_plus || !may_be_odd).then(|| limit(is_infinite))
        }
        _ => None,
    }
}

/// Returns the value of an exact number or an infinity.
fn point(cell: Cell) -> Option<f64> {
    match cell {
        Cell::Real(real) => real.is_exact().then_some(real.hi),
        Cell::Inf { negative, .. } => {
            Some(if negative { f64::NEG_INFINITY } else { f64::INFINITY })
        }
        Cell::Int(_) | Cell::Nan(_) | Cell::Unspecified(_) => None,
    }
}

fn is_odd(y: f64) -> bool {
    y % 2.0 == 1.0 || y % 2.0 == -1.0
}

fn pow_ulps(value: f64) -> f64 {
    let exponent = if value == 0.0 { 1100.0 } else { value.abs().log2().abs() };
    ULPS + POW_ULPS_PER_EXPONENT * exponent
}

fn pow_points(dtype: DType, x: f64, y: f64, x_sign_free: bool) -> Cell {
    let value = x.powf(y);
    if x_sign_free && is_odd(y) {
        return if y > 0.0 { Cell::zero(None) } else { Cell::Unspecified(Reason::ZeroSign) };
    }
    if value.is_nan() {
        return Cell::nan();
    }
    if x == 0.0 || x.is_infinite() || y.is_infinite() {
        return if value == 0.0 {
            Cell::zero(Some(value.is_sign_negative()))
        } else if value.is_infinite() {
            Cell::infinity(value < 0.0)
        } else {
            Cell::exact(value)
        };
    }
    if value.is_infinite() {
        return Cell::Inf { negative: value < 0.0, overflowed: true };
    }
    let cell = approximate_result(dtype, value, 0.0, pow_ulps(value), 0.0);
    with_sign(Some(value.is_sign_negative()), cell)
}

/// `x^y` of inexact numbers. For `x > 0` the function is monotone in each argument, so its extremes
/// are at the corners of the bounds.
fn pow_balls(dtype: DType, x: Cell, y: Cell) -> Cell {
    let (Cell::Real(x), Cell::Real(y)) = (x, y) else {
        return Cell::Unspecified(Reason::Straddle);
    };
    let negative = x.upper() < 0.0;
    if x.may_be_zero() && y.is_exact() && 0.0 < y.hi {
        return pow_around_zero(dtype, x, y.hi);
    }
    if x.may_be_zero() || (negative && !y.is_exact()) {
        return Cell::Unspecified(Reason::Straddle);
    }
    if negative && y.hi.fract() != 0.0 {
        return Cell::nan();
    }
    let sign = if negative && is_odd(y.hi) { -1.0 } else { 1.0 };
    let (mut min, mut max) = (f64::INFINITY, 0.0f64);
    for x in [x.lower().abs(), x.upper().abs()] {
        for y in [y.lower(), y.upper()] {
            let corner = x.powf(y);
            min = min.min(corner);
            max = max.max(corner);
        }
    }
    if !max.is_finite() {
        return Cell::Unspecified(Reason::Overflow);
    }
    let value = (x.hi + x.lo).abs().powf(y.hi + y.lo);
    // The corners have the error of the math library, too.
    let inherited = (max - value).max(value - min).max(0.0) + max * pow2(-51);
    let ulps = pow_ulps(max).max(pow_ulps(value));
    with_sign(Some(sign < 0.0), approximate_result(dtype, sign * value, inherited, ulps, 0.0))
}

/// `x^y` for y above 0, where x may be 0.
fn pow_around_zero(dtype: DType, x: Real, y: f64) -> Cell {
    let is_whole = y.fract() == 0.0;
    let [low, high] = [x.lower(), x.upper()];
    if low < 0.0 && !is_whole {
        return Cell::Unspecified(Reason::Straddle);
    }
    let (low, high) = match is_odd(y) || 0.0 <= low {
        true => (low.powf(y), high.powf(y)),
        false => (0.0, x.magnitude().powf(y)),
    };
    let largest = high.max(-low);
    if !largest.is_finite() {
        return Cell::Unspecified(Reason::Overflow);
    }
    // The error of a power p is that of p * (1 + |log2(p)|). The second part is at most 0.54 below
    // 1, and rises up to 0.36.
    let ulps = if largest > 0.36 {
        pow_ulps(largest).max(ULPS + POW_ULPS_PER_EXPONENT * 0.54 / largest)
    } else {
        pow_ulps(largest)
    };
    let (center, half) = (low / 2.0 + high / 2.0, high / 2.0 - low / 2.0);
    let inherited = half + largest * pow2(-50);
    let cell = approximate_result(dtype, center, inherited, ulps, largest);
    if 0.0 <= low { cell.not_negative() } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(value: f64) -> Cell {
        Cell::from_bits(DType::F64, value.to_bits())
    }

    fn bits(cell: Cell) -> Option<f64> {
        cell.bits(DType::F64).map(f64::from_bits)
    }

    fn contains(cell: Cell, value: f64) -> bool {
        matches!(cell, Cell::Real(real) if real.lower() <= value && value <= real.upper())
    }

    #[test]
    fn special_arguments_follow_c() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        for dtype in [DType::F16, DType::F32, DType::F64] {
            for (x, y) in [(nan, 0.0), (1.0, nan), (inf, -0.0), (1.0, -inf), (-1.0, inf)] {
                assert_eq!(bits(pow(dtype, cell(x), cell(y))), Some(1.0), "{x} {y}");
            }
            for (x, y, expected) in [
                (-0.0, -3.0, -inf),
                (0.0, -2.0, inf),
                (-inf, 3.0, -inf),
                (-inf, 2.0, inf),
                (0.5, -inf, inf),
                (2.0, inf, inf),
            ] {
                assert_eq!(bits(pow(dtype, cell(x), cell(y))), Some(expected), "{x} {y}");
            }
            assert!(matches!(pow(dtype, cell(-2.0), cell(0.5)), Cell::Nan(None)));
            assert!(matches!(pow(dtype, cell(nan), cell(2.0)), Cell::Nan(None)));
            assert!(contains(pow(dtype, cell(-2.0), cell(3.0)), -8.0));
            assert_eq!(bits(log2(dtype, cell(0.0))), Some(-inf));
            assert!(matches!(log2(dtype, cell(-1.0)), Cell::Nan(None)));
            assert_eq!(bits(exp2(dtype, cell(-inf))), Some(0.0));
            assert_eq!(bits(exp2(dtype, cell(inf))), Some(inf));
            assert!(matches!(sin(dtype, cell(inf)), Cell::Nan(None)));
            assert_eq!(bits(sin(dtype, cell(-0.0))).map(f64::to_bits), Some((-0.0f64).to_bits()));
            assert!(contains(exp2(dtype, cell(3.0)), 8.0));
        }
    }

    #[test]
    fn overflow_near_the_threshold_is_unspecified() {
        assert!(matches!(exp2(DType::F16, cell(16.0)), Cell::Inf { overflowed: true, .. }));
        assert!(contains(exp2(DType::F16, cell(15.0)), 32768.0));
        assert!(matches!(exp2(DType::F64, cell(1024.0)), Cell::Inf { overflowed: true, .. }));
        let edge = 128.0f64.next_down();
        assert_eq!(exp2(DType::F32, cell(edge)), Cell::Unspecified(Reason::Overflow));
        assert!(contains(exp2(DType::F32, cell(-149.0)), pow2(-149)));
    }

    #[test]
    fn single_precision_libraries_are_within_the_bound() {
        let mut state = 7u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let x = (state >> 40) as f32 / 65536.0 - 128.0;
            let real = cell(x.into());
            assert!(contains(exp2(DType::F32, real), x.exp2().into()), "exp2 {x}");
            assert!(contains(sin(DType::F32, real), x.sin().into()), "sin {x}");
            if x > 0.0 {
                assert!(contains(log2(DType::F32, real), x.log2().into()), "log2 {x}");
                let power = pow(DType::F32, real, cell(2.5));
                assert!(contains(power, (2.5 * x.log2()).exp2().into()), "pow {x}");
            }
        }
    }

    #[test]
    fn powers_of_numbers_around_zero_have_bounds() {
        let power = |x: Real, y: f64| match pow(DType::F32, Cell::Real(x), cell(y)) {
            Cell::Real(real) => (real.lower(), real.upper()),
            cell => panic!("{cell:?}"),
        };
        let x = Real::ball(1e-8, 0.0, 1e-7);
        let (low, high) = power(x, 2.0);
        assert!(low == 0.0 && (1.21e-14..1.22e-14).contains(&high), "{low} {high}");
        let (low, high) = power(x, 3.0);
        assert!((-7.4e-22..=-7.29e-22).contains(&low), "{low}");
        assert!((1.331e-21..1.34e-21).contains(&high), "{high}");
        let (low, high) = power(Real::up_to(4.0), 0.5);
        assert!(low == 0.0 && (2.0..2.001).contains(&high), "{low} {high}");
        let straddle = Cell::Unspecified(Reason::Straddle);
        assert_eq!(pow(DType::F32, Cell::Real(x), cell(0.5)), straddle);
        assert_eq!(pow(DType::F32, Cell::Real(x), cell(-2.0)), straddle);
    }

    #[test]
    fn powers_of_limits_are_known_for_computed_numbers() {
        let ball = |center| Cell::Real(Real::ball(center, 0.0, 1e-7));
        let (zero, inf) = (Cell::zero(Some(false)), Cell::infinity(false));
        for (x, y, expected) in [
            (cell(0.0), ball(0.45), zero),
            (cell(0.0), ball(-0.45), inf),
            (cell(-0.0), ball(2.5), zero),
            (inf, ball(0.45), inf),
            (inf, ball(-0.45), zero),
            (ball(0.45), inf, zero),
            (ball(-2.5), inf, inf),
            (ball(0.45), Cell::infinity(true), inf),
        ] {
            assert_eq!(pow(DType::F32, x, y), expected, "{x:?} {y:?}");
        }
        let straddle = Cell::Unspecified(Reason::Straddle);
        for (x, y) in [(cell(-0.0), ball(3.0)), (cell(0.0), ball(0.0)), (ball(1.0), inf)] {
            assert_eq!(pow(DType::F32, x, y), straddle, "{x:?} {y:?}");
        }
    }

    #[test]
    fn small_powers_of_halves_are_rounded_once() {
        // e^-10 is 761.69 of the least f16, in f32 within 2e-5 of that.
        let least = pow2(-24);
        let power = approximate_result(DType::F16, (-10f64).exp(), 0.0, 2.0, 0.0);
        assert!(contains(power, 762.0 * least));
        assert!(!contains(power, 761.0 * least) && !contains(power, 763.0 * least));
    }

    #[test]
    fn powers_near_zero_are_a_few_subnormal_numbers_off() {
        let power = pow(DType::F32, cell(1e-30), cell(2.0));
        assert!(contains(power, 0.0) && contains(power, 1e-44));
        assert!(!contains(power, 2e-44) && !contains(power, -1e-45));
    }

    #[test]
    fn bounds_grow_with_the_argument_and_stay_small() {
        let ball = Cell::Real(Real::ball(3.0, 0.0, 0.01));
        for (cell, low, high) in [
            (exp2(DType::F32, ball), 2.99f64.exp2(), 3.01f64.exp2()),
            (log2(DType::F32, ball), 2.99f64.log2(), 3.01f64.log2()),
            (pow(DType::F32, ball, cell(2.0)), 2.99 * 2.99, 3.01 * 3.01),
        ] {
            assert!(contains(cell, low) && contains(cell, high));
            assert!(!contains(cell, low * 0.99) && !contains(cell, high * 1.01));
        }
        assert!(contains(sin(DType::F32, ball), 2.99f64.sin()));
        assert!(!contains(sin(DType::F32, cell(3.0)), 3.0f64.sin() * (1.0 + 2e-5)));
    }
}
