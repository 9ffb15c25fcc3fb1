//! Constants: a dtype and a bit pattern. Equality is by bits, so constants can be interned.

use crate::DType;

/// An element of known value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Constant {
    dtype: DType,
    bits: u64,
}

impl Constant {
    /// Makes the element with this bit pattern (zero-extended); bits beyond the dtype's size are
    /// ignored.
    pub fn from_bits(dtype: DType, bits: u64) -> Constant {
        assert!(dtype != DType::Void, "a constant is not void");
        let bits = match dtype.size_bytes() {
            _ if dtype == DType::Bool => u64::from(bits & 0xff != 0),
            8 => bits,
            size => bits & ((1 << (8 * size)) - 1),
        };
        Constant { dtype, bits }
    }

    /// Converts an integer: wrapped to an integer dtype, `!= 0` for bool, rounded for floats.
    pub fn int(dtype: DType, value: i128) -> Constant {
        match dtype {
            DType::Bool => Constant::from_bits(dtype, u64::from(value != 0)),
            // Rounding to odd in f64 first avoids double rounding: f64 has more than two bits more
            // than these formats.
            DType::F16 | DType::BF16 | DType::F32 => Constant::float(dtype, to_f64_odd(value)),
            DType::F64 => Constant::float(dtype, value as f64),
            _ => Constant::from_bits(dtype, value as u64),
        }
    }

    /// Converts a number to a float dtype, rounded to nearest even.
    ///
    /// # Panics
    /// If `dtype` is not a float type.
    pub fn float(dtype: DType, value: f64) -> Constant {
        let bits = match dtype {
            DType::F16 => u64::from(half::f16::from_f32_const(to_f32_odd(value)).to_bits()),
            DType::BF16 => u64::from(half::bf16::from_f32_const(to_f32_odd(value)).to_bits()),
            DType::F32 => u64::from((value as f32).to_bits()),
            DType::F64 => value.to_bits(),
            _ => panic!("a float constant needs a float dtype, not {dtype}"),
        };
        Constant { dtype, bits }
    }

    /// Makes a bool.
    pub fn bool(value: bool) -> Constant {
        Constant { dtype: DType::Bool, bits: u64::from(value) }
    }

    /// Returns the zero of this dtype; `false` for bool.
    pub fn zero(dtype: DType) -> Constant {
        Constant::from_bits(dtype, 0)
    }

    /// Returns the one of this dtype; `true` for bool.
    pub fn one(dtype: DType) -> Constant {
        Constant::int(dtype, 1)
    }

    /// Returns the smallest value, the identity of max; `-inf` for floats.
    pub fn smallest(dtype: DType) -> Constant {
        match dtype.int_range() {
            Some((low, _)) => Constant::int(dtype, low),
            None => Constant::float(dtype, f64::NEG_INFINITY),
        }
    }

    /// Returns the element's type.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// Returns the bit pattern, zero-extended.
    pub fn bits(self) -> u64 {
        self.bits
    }

    /// Returns the value of an integer or bool constant; `None` for floats.
    pub fn to_int(self) -> Option<i128> {
        if self.dtype.is_signed() {
            let shift = 64 - self.dtype.bits();
            return Some(i128::from(((self.bits << shift) as i64) >> shift));
        }
        (!self.dtype.is_float()).then_some(i128::from(self.bits))
    }

    /// Returns the exact value of a float constant; `None` for integers and bool.
    pub fn to_float(self) -> Option<f64> {
        match self.dtype {
            DType::F16 => Some(half::f16::from_bits(self.bits as u16).to_f64()),
            DType::BF16 => Some(half::bf16::from_bits(self.bits as u16).to_f64()),
            DType::F32 => Some(f64::from(f32::from_bits(self.bits as u32))),
            DType::F64 => Some(f64::from_bits(self.bits)),
            _ => None,
        }
    }

    /// Returns whether this is `true`.
    pub fn is_true(self) -> bool {
        self.dtype == DType::Bool && self.bits == 1
    }
}

/// Converts to f64, rounding to odd: the last bit is 1 if the result is inexact. A later rounding
/// to 51 bits or fewer then gives the correctly rounded result.
fn to_f64_odd(value: i128) -> f64 {
    let nearest = value as f64;
    let back = nearest as i128;
    if back == value || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    let toward_value = (back < value) == (nearest >= 0.0);
    f64::from_bits(if toward_value { nearest.to_bits() + 1 } else { nearest.to_bits() - 1 })
}

/// Converts to f32, rounding to odd, so that a later rounding to a 16-bit float gives the correctly
/// rounded result. The `half` crate's own conversion from f64 ignores the low 32 bits.
fn to_f32_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    if back == value || value.is_nan() || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    // The bit pattern before infinity is that of the largest number, whose last bit is 1.
    let is_away = back.abs() < value.abs();
    f32::from_bits(if is_away { nearest.to_bits() + 1 } else { nearest.to_bits() - 1 })
}

impl std::fmt::Display for Constant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.dtype, self.to_int(), self.to_float()) {
            (DType::Bool, ..) => f.write_str(if self.is_true() { "true" } else { "false" }),
            (_, Some(value), _) => write!(f, "{value}"),
            (DType::F32, ..) => write!(f, "{:?}", f32::from_bits(self.bits as u32)),
            (_, _, Some(value)) => write!(f, "{value:?}"),
            (_, None, None) => unreachable!("a constant is an integer, a bool or a float"),
        }
    }
}

impl std::fmt::Debug for Constant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{self}", self.dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn int_wraps_at_the_width_of_its_dtype() {
        assert_eq!(Constant::int(DType::U8, 256 + 7).to_int(), Some(7));
        assert_eq!(Constant::int(DType::I8, 200).to_int(), Some(-56));
        assert_eq!(Constant::int(DType::I64, -1).to_int(), Some(-1));
        assert_eq!(Constant::int(DType::U64, -1).to_int(), Some((1 << 64) - 1));
    }

    #[test]
    fn int_to_float_rounds_once() {
        // 2^24 + 1 + 2^-38, times 2^38: rounding to f64 first would give a tie.
        let value = (1i128 << 62) + (1i128 << 38) + 1;
        let once = Constant::int(DType::F32, value).to_float();
        assert_eq!(once, Some((value as f32) as f64));
        assert_eq!(Constant::int(DType::F32, -value).to_float(), once.map(|x| -x));
    }
}
