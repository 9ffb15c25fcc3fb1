//! The families of ops that languages and devices need not support.

/// A family of ops that a language or a device does not support, so that its table applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legalization {
    /// Arithmetic of 16-bit floats.
    Half,
    /// Multiply-add of integers.
    MulAcc,
    /// The reciprocal.
    Recip,
    /// Division that rounds down.
    Floor,
    /// Division by 0 that gives some value, and by -1 that wraps.
    Division,
    /// Shifts by any amount.
    Shift,
    /// Maximum and minimum of f32 and f64 that propagate NaN.
    Maximum,
    /// Arithmetic of integers of 8 and 16 bits that wraps.
    Narrow,
}
