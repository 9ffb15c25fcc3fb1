//! Closeness of floats at one point of a proof.

use gradiff_eval::point::Tape;
use gradiff_eval::scalar;
use gradiff_graph::{DType, Op};

use super::encode::float_shape;

/// Returns whether any float on the tape is NaN or infinite.
pub(super) fn has_special(tape: &Tape) -> bool {
    let mut floats = tape.values().iter().filter_map(|value| scalar::to_float(value.element()?));
    floats.any(|value| !value.is_finite())
}

/// The last node in f64 without rounding in between, and the largest magnitude of a node: exact for
/// sums and products of few f16. `None` for other ops.
fn exact(tape: &Tape) -> Option<(f64, f64)> {
    let mut values: Vec<f64> = Vec::new();
    let mut largest = 0f64;
    for (position, node) in tape.nodes().iter().enumerate() {
        let at = |number: usize| values[tape.src(position)[number]];
        let value = match node.op() {
            Op::Add => at(0) + at(1),
            Op::Sub => at(0) - at(1),
            Op::Mul => at(0) * at(1),
            Op::Neg => -at(0),
            Op::Cast if node.dtype().is_float() && node.src()[0].dtype().is_float() => at(0),
            _ if node.src().is_empty() => scalar::to_float(tape.values()[position].element()?)?,
            _ => return None,
        };
        largest = largest.max(value.abs());
        values.push(value);
    }
    values.last().map(|value| (*value, largest))
}

/// Returns whether `after` is within `count` units in the last place of the exact result, or of the
/// left side's, which is itself rounded, if the exact one cannot be computed.
pub(super) fn is_within_ulps(
    left: &Tape,
    dtype: DType,
    count: u32,
    (before, after): (f64, f64),
) -> bool {
    let Some((exact, magnitude)) = exact(left) else {
        let allowed = || f64::from(count + 1) * unit(dtype, before);
        return before == after
            || before.is_nan() && after.is_nan()
            || before.is_finite() && (before - after).abs() <= allowed();
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
    2f64.powi(exponent.max(least)) * 2f64.powi(1 - mantissa as i32)
}

fn largest(dtype: DType) -> f64 {
    let (exponent_bits, mantissa) = float_shape(dtype);
    let exponent = (1 << (exponent_bits - 1)) - 1;
    (2.0 - 2f64.powi(1 - mantissa as i32)) * 2f64.powi(exponent)
}
