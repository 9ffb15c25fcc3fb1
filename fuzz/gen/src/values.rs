//! Classes of special values, by their bits: ties of roundings, NaN, infinities, signed zeros,
//! subnormals, ends of ranges.

use gradiff_corpus::DType;

/// Returns the layout of a float type: significant bits (the leading one included) and bits of the
/// exponent.
pub(crate) fn layout(dtype: DType) -> (u32, u32) {
    match dtype {
        DType::F16 => (11, 5),
        DType::BF16 => (8, 8),
        DType::F32 => (24, 8),
        _ => (53, 11),
    }
}

/// The classes that a value is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds {
    /// Exactly halfway between two neighbours of a narrower float type.
    pub(crate) is_halfway: bool,
    pub(crate) is_nan: bool,
    pub(crate) is_infinite: bool,
    pub(crate) is_negative_zero: bool,
    pub(crate) is_subnormal: bool,
    /// An integer with a magnitude of 2^31 or more.
    pub(crate) is_beyond: bool,
}

/// Classifies the value with these bits.
pub(crate) fn kinds(dtype: DType, bits: u64) -> Kinds {
    let mut kinds = Kinds::default();
    if dtype == DType::Bool {
        return kinds;
    }
    if dtype.is_int() {
        let unused = 64 - 8 * dtype.size_bytes() as u32;
        let magnitude = match dtype.is_signed() {
            true => ((bits << unused) as i64 >> unused).unsigned_abs(),
            false => bits,
        };
        kinds.is_beyond = magnitude >= 1 << 31;
        kinds.is_halfway = is_halfway(magnitude, &[11, 8, 24, 53]);
        return kinds;
    }
    let (precision, exponent_bits) = layout(dtype);
    let mantissa = bits & ((1 << (precision - 1)) - 1);
    let exponent = bits >> (precision - 1) & ((1 << exponent_bits) - 1);
    let is_special = exponent == (1 << exponent_bits) - 1;
    kinds.is_nan = is_special && mantissa != 0;
    kinds.is_infinite = is_special && mantissa == 0;
    kinds.is_subnormal = exponent == 0 && mantissa != 0;
    kinds.is_negative_zero = bits == 1 << (precision + exponent_bits - 1);
    if exponent != 0 && !is_special {
        let narrower: &[u32] = match dtype {
            DType::F64 => &[24, 11, 8],
            DType::F32 => &[11, 8],
            DType::F16 => &[8],
            _ => &[],
        };
        kinds.is_halfway = is_halfway(1 << (precision - 1) | mantissa, narrower);
    }
    kinds
}

/// Returns whether the number has one significant bit more than one of these precisions.
fn is_halfway(number: u64, precisions: &[u32]) -> bool {
    if number == 0 {
        return false;
    }
    let significant = 64 - number.leading_zeros() - number.trailing_zeros();
    precisions.iter().any(|precision| significant == precision + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halfway_numbers_are_recognised() {
        let halfway = |dtype, bits| kinds(dtype, bits).is_halfway;
        assert!(halfway(DType::I32, (1 << 24) + 1) && halfway(DType::U64, (1 << 53) + 1));
        assert!(halfway(DType::I32, u64::from((-(1_i32 << 24) - 1) as u32)));
        assert!(!halfway(DType::I32, 3) && !halfway(DType::I64, 1 << 60));
        assert!(halfway(DType::F64, (1.0 + 2f64.powi(-24)).to_bits()));
        assert!(halfway(DType::F32, u64::from((1.0 + 2f32.powi(-8)).to_bits())));
        assert!(!halfway(DType::F32, u64::from(1.5f32.to_bits())));
    }

    #[test]
    fn kinds_of_floats_are_told_apart() {
        assert!(kinds(DType::F32, 0x7fc0_0001).is_nan && kinds(DType::BF16, 0xff80).is_infinite);
        assert!(kinds(DType::F16, 0x8000).is_negative_zero && kinds(DType::F64, 1).is_subnormal);
        assert!(kinds(DType::I64, 1 << 63).is_beyond && !kinds(DType::I32, 0x7fff_ffff).is_beyond);
    }
}
