//! An element of a product of matrices by a tensor core.

use gradiff_graph::tensor_core::{Coordinates, TensorCore};
use gradiff_graph::{Constant, DType};

use crate::scalar;

/// The element of C at these coordinates: `start` plus the products along k, each added in f32.
/// `operand` gives the element of A (0) or B (1) at its coordinates. `None` if one is undefined.
/// `is_rounded` says whether a tensor core of tf32 rounds its operands.
pub(crate) fn element(
    core: &TensorCore,
    [row, column, _]: Coordinates,
    start: Constant,
    is_rounded: bool,
    operand: &dyn Fn(usize, Coordinates) -> Option<Constant>,
) -> Option<Constant> {
    let rounded = |x: f64| if is_rounded { round_tf32(x) } else { x };
    let mut sum = scalar::to_float(start)? as f32;
    for k in 0..core.sizes[2] {
        let left = rounded(scalar::to_float(operand(0, [row, 0, k])?)?);
        let right = rounded(scalar::to_float(operand(1, [0, column, k])?)?);
        // Products of 24 bits by 24 are exact in f64.
        sum = (f64::from(sum) + left * right) as f32;
    }
    scalar::float(DType::F32, sum.into())
}

/// The value rounded to 10 bits of fraction, ties away from zero.
fn round_tf32(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = value.abs().log2().floor().max(-126.0) as i32;
    let unit = 2f64.powi(exponent - 10);
    f64::from(((value / unit).round() * unit) as f32)
}
