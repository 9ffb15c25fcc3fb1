//! Elementary functions and the error function.

use gradiff_corpus::DType;

use super::Call;
use super::approximation::{Error, monotone, result, wave};
use super::elementwise::{each, widely};
use crate::arithmetic::{self, propagated};
use crate::cell::{Cell, Real, Reason};
use crate::format::pow2;
use crate::infer::Check;
use crate::transcendental;
use crate::value::Value;

/// From here on, the inverse hyperbolic functions are `log(2x)`, and formulas with x^2 overflow.
const FAR: f64 = 1e100;
const FOUR: Error = Error::ulps(4.0);
const FIVE: Error = Error::ulps(5.0);

/// `e^x`.
pub(crate) fn exp(dtype: DType, x: Cell) -> Cell {
    monotone(dtype, x, Error::ulps(2.0), f64::exp).positive()
}

/// The natural logarithm.
pub(crate) fn log(dtype: DType, x: Cell) -> Cell {
    logarithm(dtype, x, f64::ln)
}

/// The logarithm to base 10.
pub(super) fn log10(dtype: DType, x: Cell) -> Cell {
    logarithm(dtype, x, f64::log10)
}

fn logarithm(dtype: DType, x: Cell, f: fn(f64) -> f64) -> Cell {
    match x {
        Cell::Real(real) if real.is_zero() => Cell::infinity(true),
        Cell::Real(real) if real.lower() <= 0.0 && 0.0 <= real.upper() => {
            Cell::Unspecified(Reason::Straddle)
        }
        _ => monotone(dtype, x, Error::ulps(3.0), f),
    }
}

/// `1 / sqrt(x)`.
pub(super) fn rsqrt(dtype: DType, x: Cell) -> Cell {
    widely(dtype, x, |dtype, x| {
        arithmetic::div(dtype, Cell::exact(1.0), arithmetic::sqrt(dtype, x))
    })
}

/// The cosine.
pub(crate) fn cos(dtype: DType, x: Cell) -> Cell {
    wave(dtype, x, Error { ulps: 6.0, scale: 1.0 }, f64::cos)
}

/// The tangent, the quotient of sine and cosine.
pub(super) fn tan(dtype: DType, x: Cell) -> Cell {
    widely(dtype, x, |dtype, x| {
        arithmetic::div(dtype, transcendental::sin(dtype, x), cos(dtype, x))
    })
}

/// The hyperbolic sine.
pub(crate) fn sinh(dtype: DType, x: Cell) -> Cell {
    monotone(dtype, x, FOUR, f64::sinh)
}

/// The hyperbolic cosine, which is that of the magnitude.
pub(crate) fn cosh(dtype: DType, x: Cell) -> Cell {
    match x {
        Cell::Real(real) if real.may_be_zero() && !real.is_zero() => {
            let end = real.magnitude();
            if end > 80.0 {
                return Cell::Unspecified(Reason::Overflow);
            }
            result(dtype, 1.0, end.cosh() - 1.0, FOUR)
        }
        _ => monotone(dtype, x, FOUR, f64::cosh),
    }
}

/// The hyperbolic tangent.
pub(crate) fn tanh(dtype: DType, x: Cell) -> Cell {
    monotone(dtype, x, FOUR, f64::tanh)
}

/// The inverse of sinh.
pub(super) fn asinh(dtype: DType, x: Cell) -> Cell {
    monotone(dtype, x, FIVE, |x| match x.abs() > FAR {
        true => (x.abs().ln() + std::f64::consts::LN_2).copysign(x),
        false => x.asinh(),
    })
}

/// The inverse of cosh; NaN below 1.
pub(super) fn acosh(dtype: DType, x: Cell) -> Cell {
    monotone(dtype, x, FIVE, |x| {
        let above = x - 1.0;
        if x < 1.0 {
            f64::NAN
        } else if x > FAR {
            x.ln() + std::f64::consts::LN_2
        } else {
            (above + (above * (above + 2.0)).sqrt()).ln_1p()
        }
    })
}

/// The inverse of tanh; an infinity at -1 and 1, NaN beyond.
pub(super) fn atanh(dtype: DType, x: Cell) -> Cell {
    match x {
        Cell::Real(real) if real.is_exact() && real.hi.abs() == 1.0 => {
            Cell::infinity(real.hi < 0.0)
        }
        Cell::Real(real) if real.is_exact() || real.magnitude() < 1.0 => {
            monotone(dtype, x, FIVE, |x| x.abs().atanh().copysign(x))
        }
        Cell::Real(real) if real.lower() > 1.0 || real.upper() < -1.0 => Cell::nan(),
        Cell::Real(_) => Cell::Unspecified(Reason::Straddle),
        Cell::Int(_) | Cell::Inf { .. } | Cell::Nan(_) | Cell::Unspecified(_) => {
            propagated(&[x]).unwrap_or(Cell::nan())
        }
    }
}

/// The inverse of sin; NaN beyond -1 and 1.
pub(super) fn asin(dtype: DType, x: Cell) -> Cell {
    monotone(dtype, x, FOUR, f64::asin)
}

/// The inverse of cos; NaN beyond -1 and 1.
pub(super) fn acos(dtype: DType, x: Cell) -> Cell {
    monotone(dtype, x, FOUR, f64::acos)
}

/// The inverse of tan.
pub(super) fn atan(dtype: DType, x: Cell) -> Cell {
    monotone(dtype, x, FOUR, f64::atan)
}

/// The error function.
pub(super) fn erf(dtype: DType, x: Cell) -> Cell {
    monotone(dtype, x, FOUR, error_function)
}

/// `2/sqrt(pi)` times the integral of `e^(-t^2)` from 0 to x.
fn error_function(x: f64) -> f64 {
    match x.abs() {
        0.0 => x,
        size if size < 2.0 => near_error_function(x),
        size => (1.0 - far_complement(size)).copysign(x),
    }
}

/// The series `2/sqrt(pi) * e^(-x^2) * sum of (2 x^2)^n * x / (1 * 3 * ... * (2n + 1))`, whose
/// terms have one sign.
fn near_error_function(x: f64) -> f64 {
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > sum.abs() * 2f64.powi(-60) {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    let square = x * x;
    let rest = x.mul_add(x, -square);
    std::f64::consts::FRAC_2_SQRT_PI * (-square).exp() * (1.0 - rest) * sum
}

/// `1 - erf(x)` for x from 2: `e^(-x^2)/sqrt(pi)` over the continued fraction
/// `x + (1/2)/(x + (2/2)/(x + (3/2)/(x + ...)))`.
fn far_complement(x: f64) -> f64 {
    let fraction = (1..200).rev().fold(x, |below, n| x + f64::from(n) / 2.0 / below);
    (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI / 2.0 / fraction
}

/// `log(e^x + e^y)`.
pub(super) fn logaddexp(call: Call<'_>) -> Check<Value> {
    each(call, |dtype, cells| log_of_sum(dtype, cells[0], cells[1]))
}

fn log_of_sum(dtype: DType, x: Cell, y: Cell) -> Cell {
    if let Some(cell) = propagated(&[x, y]) {
        return cell;
    }
    let part = |cell| match cell {
        Cell::Real(Real { hi, lo, radius, .. }) => (hi, radius + lo.abs()),
        Cell::Inf { negative: true, .. } => (f64::NEG_INFINITY, 0.0),
        _ => (f64::INFINITY, 0.0),
    };
    let ((a, a_radius), (b, b_radius)) = (part(x), part(y));
    let larger = a.max(b);
    if larger.is_infinite() {
        return Cell::infinity(larger < 0.0);
    }
    let value = larger + (-(a - b).abs()).exp().ln_1p();
    // The error of each counts as much as its power does, so at most the larger of them.
    let rest = |errors: f64| {
        let power = |x: f64, radius: f64| (x - larger + errors * radius).exp();
        (power(a, a_radius) + power(b, b_radius)).ln()
    };
    let inherited = (rest(1.0) - rest(0.0)).max(rest(0.0) - rest(-1.0)) + pow2(-50);
    let inherited = inherited.min(a_radius.max(b_radius));
    result(dtype, value, inherited, Error { ulps: 4.0, scale: larger.abs().max(1.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_function_has_known_values() {
        // Abramowitz and Stegun, table 7.1, and DLMF 7.6.
        for (x, expected) in [
            (0.5, 0.5204998778130465),
            (1.0, 0.8427007929497149),
            (2.0, 0.9953222650189527),
            (3.0, 0.9999779095030014),
            (1e-10, 1.1283791670955126e-10),
        ] {
            let found = error_function(x);
            assert!((found - expected).abs() <= 4e-16 * expected, "{x}: {found}");
            assert_eq!(error_function(-x), -found);
        }
        let (below, above) = (error_function(2f64.next_down()), error_function(2.0));
        assert!((below - above).abs() < 4e-16, "{below} {above}");
        assert_eq!(error_function(f64::INFINITY), 1.0);
        assert!(error_function(f64::NAN).is_nan());
    }
}
