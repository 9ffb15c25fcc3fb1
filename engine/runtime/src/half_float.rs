//! Correctly rounded conversions to 16-bit floats, to nearest even.
//!
//! The conversions from f64 of the crate `half` use only the upper 32 bits (or go through f32), so
//! a value very near a tie is rounded to the wrong side. Here wide values are first rounded to odd.

use half::{bf16, f16};

/// Rounds to odd: an inexact result has its last bit set, so that a later rounding to fewer bits is
/// not a double rounding.
pub(crate) fn f32_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let bits = nearest.to_bits();
    if f64::from(nearest) == value || value.is_nan() || bits & 1 == 1 {
        return nearest;
    }
    let is_below = f64::from(nearest).abs() < value.abs();
    f32::from_bits(if is_below { bits + 1 } else { bits - 1 })
}

/// As [`f32_odd`], from an integer to f64.
pub(crate) fn f64_odd_i64(value: i64) -> f64 {
    if value.unsigned_abs() < 1 << 53 {
        return value as f64;
    }
    ((value & !2047) | if value & 2047 != 0 { 2048 } else { 0 }) as f64
}

/// As [`f64_odd_i64`], for unsigned integers.
pub(crate) fn f64_odd_u64(value: u64) -> f64 {
    if value < 1 << 53 {
        return value as f64;
    }
    ((value & !2047) | if value & 2047 != 0 { 2048 } else { 0 }) as f64
}

/// The bits of the nearest binary16.
pub(crate) fn f16_from_f64(value: f64) -> u16 {
    f16::from_f32(f32_odd(value)).to_bits()
}

/// The bits of the nearest bfloat16.
pub(crate) fn bf16_from_f64(value: f64) -> u16 {
    bf16::from_f32(f32_odd(value)).to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f16_from_f64_near_a_tie_rounds_to_nearest() {
        let tie = 1.0 + f64::from_bits(0x3f40_0000_0000_0000); // 1 + 2^-11
        assert_eq!(f16_from_f64(tie), 0x3c00);
        assert_eq!(f16_from_f64(f64::from_bits(tie.to_bits() + 1)), 0x3c01);
        assert_eq!(f16_from_f64(f64::from_bits(tie.to_bits() - 1)), 0x3c00);
        assert_eq!(f16_from_f64(65520.0), 0x7c00);
        assert_eq!(f16_from_f64(f64::from_bits(65520.0f64.to_bits() - 1)), 0x7bff);
        assert_eq!(f16_from_f64(f64::MIN_POSITIVE), 0);
        assert_eq!(f16_from_f64(2f64.powi(-25)), 0);
        assert_eq!(f16_from_f64(f64::from_bits(2f64.powi(-25).to_bits() + 1)), 1);
    }

    #[test]
    fn f64_odd_preserves_the_side_of_a_tie() {
        // bf16 keeps 8 bits: 2^62 + 2^54 is a tie, one more is not.
        let tie = (1i64 << 62) + (1 << 54);
        let bf16_of = |value: i64| bf16_from_f64(f64_odd_i64(value));
        assert_eq!(bf16_of(tie) + 1, bf16_of(tie + 1));
        assert_eq!(bf16_of(tie - 1), bf16_of(tie));
        assert_eq!(bf16_of(-tie - 1), bf16_of(tie + 1) | 0x8000);
        assert_eq!(bf16_from_f64(f64_odd_u64(tie as u64 + 1)), bf16_of(tie + 1));
    }
}
