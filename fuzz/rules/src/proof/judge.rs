//! Checks that the right side is as the claim promises, at one point.

use gradiff_graph::{Constant, DType};
use gradiff_rewrite::Claim;

use super::encode::float_shape;
use super::value::{Cell, Tape};

/// Checks a point at which both tapes have been run. Any right side is correct where the left side
/// is undefined or the claim says nothing.
pub(super) fn is_as_claimed(claim: Claim, left: &Tape, before: &Cell, after: &Cell) -> bool {
    match (before, after) {
        (Cell::Undefined, _) => true,
        _ if claim == Claim::Finite && left.has_special() => true,
        (Cell::Scalar(x), Cell::Scalar(y)) => match (x.to_float(), y.to_float()) {
            (Some(first), Some(second)) => floats(claim, left, (*x, first), (*y, second)),
            _ => x == y,
        },
        _ => before == after,
    }
}

fn floats(
    claim: Claim,
    left: &Tape,
    (x, first): (Constant, f64),
    (y, second): (Constant, f64),
) -> bool {
    match claim {
        Claim::Ulp(count) => is_near(count, left, y.dtype(), first, second),
        _ if first.is_nan() => second.is_nan(),
        Claim::Value => first == second,
        _ => x == y,
    }
}

/// Returns whether `after` is within `count` units in the last place of the exact result, or of the
/// left side's, which is itself rounded, if the exact one cannot be computed.
fn is_near(count: u32, left: &Tape, dtype: DType, before: f64, after: f64) -> bool {
    let Some((exact, magnitude)) = left.exact() else {
        return (before - after).abs() <= f64::from(count + 1) * unit(dtype, before)
            || before == after
            || before.is_nan() && after.is_nan();
    };
    if exact.is_nan() || after.is_nan() {
        return exact.is_nan() && after.is_nan();
    }
    if exact.is_infinite() {
        return exact == after;
    }
    // The rounding errors of f64 itself.
    let slack = 4.0 * f64::EPSILON * magnitude;
    let allowed = f64::from(count) * unit(dtype, exact) + slack;
    if after.is_infinite() {
        let largest = largest(dtype);
        return exact.signum() == after.signum() && largest - exact.abs() < allowed;
    }
    (exact - after).abs() <= allowed
}

/// The distance between neighbouring values of the dtype at `value`.
fn unit(dtype: DType, value: f64) -> f64 {
    let (exponent_bits, mantissa) = float_shape(dtype);
    let least = 2 - (1 << (exponent_bits - 1));
    let exponent = if value == 0.0 { least } else { value.abs().log2().floor() as i32 };
    2f64.powi(exponent.max(least) - (mantissa as i32 - 1))
}

fn largest(dtype: DType) -> f64 {
    let (exponent_bits, mantissa) = float_shape(dtype);
    let exponent = (1 << (exponent_bits - 1)) - 1;
    (2.0 - 2f64.powi(1 - mantissa as i32)) * 2f64.powi(exponent)
}
