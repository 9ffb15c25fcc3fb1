//! Conversions between numbers of all formats, exact and rounded once.

use super::types::{Class, Type};

/// The value of a register.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Nan,
    Infinite {
        is_negative: bool,
    },
    /// `±magnitude * 2^exponent`.
    Finite {
        is_negative: bool,
        magnitude: u64,
        exponent: i32,
    },
}

/// Roundings of a number that has too many digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// To the nearest, ties to even: `.rn`.
    Nearest,
    /// To the nearest, ties away from zero: `.rna`.
    NearestAway,
    /// Toward zero: `.rz`.
    Zero,
}

/// Fraction and exponent bits of a float type.
fn format(kind: Type) -> Option<(u32, u32)> {
    Some(match kind.name {
        "f16" => (10, 5),
        "bf16" => (7, 8),
        // Its 19 bits are the upper ones of a word.
        "tf32" => (10, 8),
        "f32" => (23, 8),
        "f64" => (52, 11),
        _ => return None,
    })
}

/// The bits of a narrow integer as a number of 64 bits.
pub(super) fn extended(bits: u64, kind: Type) -> u64 {
    let shift = 64 - kind.bits;
    match kind.class {
        Class::Signed => ((bits << shift) as i64 >> shift) as u64,
        _ => bits << shift >> shift,
    }
}

/// The number that the bits of a type represent.
pub(super) fn decode(bits: u64, kind: Type) -> Number {
    let Some((digits, exponents)) = format(kind) else {
        let value = extended(bits, kind);
        let is_negative = kind.class == Class::Signed && (value as i64) < 0;
        let magnitude = if is_negative { value.wrapping_neg() } else { value };
        return Number::Finite { is_negative, magnitude, exponent: 0 };
    };
    let bits = if kind.name == "tf32" { bits >> 13 } else { bits };
    let is_negative = bits >> (digits + exponents) & 1 == 1;
    let field = (bits >> digits & ((1 << exponents) - 1)) as i32;
    let fraction = bits & ((1 << digits) - 1);
    let top = (1 << exponents) - 1;
    match field {
        _ if field == top && fraction != 0 => Number::Nan,
        _ if field == top => Number::Infinite { is_negative },
        _ => {
            let hidden = u64::from(field != 0) << digits;
            let exponent = field.max(1) - (1 << (exponents - 1)) + 1 - digits as i32;
            Number::Finite { is_negative, magnitude: fraction | hidden, exponent }
        }
    }
}

/// The bits of a number in a float type, rounded; 0 if the type is no float.
pub(super) fn encode(number: Number, kind: Type, rounding: Rounding) -> u64 {
    let Some((digits, exponents)) = format(kind) else { return 0 };
    let infinity = ((1u64 << exponents) - 1) << digits;
    let sign = |is_negative: bool| u64::from(is_negative) << (digits + exponents);
    let bits = match number {
        Number::Nan => infinity | 1 << (digits - 1),
        Number::Infinite { is_negative } => sign(is_negative) | infinity,
        Number::Finite { is_negative, magnitude: 0, .. } => sign(is_negative),
        Number::Finite { is_negative, magnitude, exponent } => {
            let min_exponent = 2 - (1 << (exponents - 1));
            let top = magnitude.ilog2() as i32 + exponent;
            let unit = top.max(min_exponent) - digits as i32;
            let count = rounded(magnitude, unit - exponent, rounding);
            // A carry out of the fraction increments the exponent, which is right.
            let field =
                ((unit + digits as i32 - min_exponent) as u64).min(1 << exponents) << digits;
            let maximum = if rounding == Rounding::Zero { infinity - 1 } else { infinity };
            sign(is_negative) | (field + count).min(maximum)
        }
    };
    if kind.name == "tf32" { bits << 13 } else { bits }
}

/// `magnitude / 2^shift` as a whole number.
fn rounded(magnitude: u64, shift: i32, rounding: Rounding) -> u64 {
    if shift <= 0 {
        return magnitude << -shift;
    }
    let (magnitude, shift) = (u128::from(magnitude), shift.min(127));
    let (whole, remainder) = ((magnitude >> shift) as u64, magnitude % (1 << shift));
    let half = 1 << (shift - 1);
    let is_up = match rounding {
        Rounding::Nearest => half < remainder || remainder == half && whole % 2 == 1,
        Rounding::NearestAway => half <= remainder,
        Rounding::Zero => false,
    };
    whole + u64::from(is_up)
}

/// The bits of a number in an integer type: truncated toward zero, then clamped to the type. NaN
/// gives 0, or the highest bit alone if source or result have 64 bits.
pub(super) fn truncated(number: Number, from: Type, to: Type) -> u64 {
    let (low, high) = match to.class {
        Class::Signed => (-1i128 << (to.bits - 1), (1i128 << (to.bits - 1)) - 1),
        _ => (0, (1i128 << to.bits) - 1),
    };
    let value = match number {
        Number::Nan if from.bits == 64 || to.bits == 64 => 1 << (to.bits - 1),
        Number::Nan => 0,
        Number::Infinite { is_negative } => {
            if is_negative {
                low
            } else {
                high
            }
        }
        Number::Finite { is_negative, magnitude, exponent } => {
            let magnitude = i128::from(magnitude);
            let size = match exponent {
                ..0 => magnitude >> (-exponent).min(127),
                0..63 => magnitude << exponent,
                _ => {
                    if magnitude == 0 {
                        0
                    } else {
                        i128::MAX
                    }
                }
            };
            (if is_negative { -size } else { size }).clamp(low, high)
        }
    };
    value as u64 & (u64::MAX >> (64 - to.bits))
}
