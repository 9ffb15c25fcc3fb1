//! The four floating-point formats: their limits, and rounding to them in integer arithmetic. An
//! f64 represents every finite number of every format exactly. Knows nothing of cells.

use gradiff_corpus::DType;

/// The parameters of a binary floating-point format.
#[derive(Debug)]
pub(crate) struct Format {
    /// Significant bits, the hidden one included.
    pub(crate) precision: i32,
    /// Exponent of the smallest normal number.
    pub(crate) exponent_min: i32,
    /// Exponent of the largest finite number.
    pub(crate) exponent_max: i32,
    /// Unit roundoff: half the distance from 1 to the next number.
    pub(crate) unit: f64,
    /// Maximum absolute error of a rounding near zero: half the smallest subnormal number.
    pub(crate) floor: f64,
    /// The smallest subnormal number: near zero, the absolute error of an approximation for each of
    /// its ulps.
    pub(crate) least: f64,
    /// Smallest magnitude that rounds to infinity. Infinity for f64, whose overflows show in the
    /// oracle's own f64 arithmetic.
    pub(crate) overflow: f64,
}

// f16 and bf16 may be rounded to f32 first, f32 to f64, and centers are rounded to f64: see
// `rounding_unit`.
static F16: Format = Format::new(11, -14, 15, [0.5005, 1.0]);
static BF16: Format = Format::new(8, -126, 127, [0.5005, 1.0]);
static F32: Format = Format::new(24, -126, 127, [0.5 + pow2(-27), 1.0]);
// The oracle's own f64 products lose digits below 2^-1074, so the floor is wider here.
static F64: Format = Format::new(53, -1022, 1023, [8.0, 8.0]);

/// Returns the format of a float dtype.
///
/// # Panics
/// If the dtype is not a float dtype.
pub(crate) fn format(dtype: DType) -> &'static Format {
    match dtype {
        DType::F16 => &F16,
        DType::BF16 => &BF16,
        DType::F32 => &F32,
        DType::F64 => &F64,
        _ => panic!("{} is not a float dtype", dtype.name()),
    }
}

/// `2^exponent` for exponents from -1074 to 1023.
pub(crate) const fn pow2(exponent: i32) -> f64 {
    assert!(-1074 <= exponent && exponent <= 1023);
    if exponent < -1022 {
        f64::from_bits(1 << (exponent + 1074))
    } else {
        f64::from_bits(((exponent + 1023) as u64) << 52)
    }
}

/// Returns the magnitude `m` and the exponent `e` with `|value| = m * 2^e`; for finite values only.
pub(crate) fn decompose(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let field = (bits >> 52 & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    if field == 0 { (fraction, -1074) } else { (fraction | 1 << 52, field - 1075) }
}

/// Returns the exponent of the lowest set bit of a finite value; `None` for zero, which is on every
/// grid.
pub(crate) fn lowest_bit(value: f64) -> Option<i32> {
    let (magnitude, exponent) = decompose(value);
    (magnitude != 0).then(|| magnitude.trailing_zeros() as i32 + exponent)
}

/// Returns `floor(log2(|value|))` of a finite value other than zero.
pub(crate) fn highest_bit(value: f64) -> i32 {
    let (magnitude, exponent) = decompose(value);
    63 - magnitude.leading_zeros() as i32 + exponent
}

impl Format {
    /// `near_zero` are `floor` and `least`, in smallest subnormal numbers.
    const fn new(
        precision: i32,
        exponent_min: i32,
        exponent_max: i32,
        near_zero: [f64; 2],
    ) -> Format {
        let (top, quantum) = (pow2(exponent_max), pow2(exponent_min - precision + 1));
        Format {
            precision,
            exponent_min,
            exponent_max,
            unit: pow2(-precision),
            floor: quantum * near_zero[0],
            least: quantum * near_zero[1],
            overflow: if precision == 53 {
                f64::INFINITY
            } else {
                top + (top - top * pow2(-precision))
            },
        }
    }

    /// Returns the exponent of the smallest subnormal, of which every number is a multiple.
    pub(crate) fn quantum_min(&self) -> i32 {
        self.exponent_min - self.precision + 1
    }

    /// Returns whether a finite value is a number of this format.
    pub(crate) fn holds(&self, value: f64) -> bool {
        let Some(lowest) = lowest_bit(value) else { return true };
        let highest = highest_bit(value);
        highest <= self.exponent_max
            && lowest >= self.quantum_min().max(highest - self.precision + 1)
    }

    /// Returns whether every partial sum of numbers is a number of this format, if they are
    /// multiples of `2^grid` and their magnitudes add up to `mass`.
    pub(crate) fn holds_sums(&self, mass: f64, grid: i32) -> bool {
        let limit = (grid + self.precision).min(self.exponent_max + 1);
        // A mass above the limit may be rounded to the limit in f64, but never below it.
        mass == 0.0 || ((-1074..=1023).contains(&limit) && mass < pow2(limit))
    }

    /// Returns the bit pattern of infinity.
    fn infinity_bits(&self) -> u64 {
        ((self.exponent_max - self.exponent_min + 2) as u64) << (self.precision - 1)
    }

    fn sign_bit(&self) -> u64 {
        match self.precision {
            53 => 1 << 63,
            24 => 1 << 31,
            _ => 1 << 15,
        }
    }

    /// Returns the number nearest to `±magnitude * 2^exponent`, ties to even, as a bit pattern.
    pub(crate) fn round(&self, negative: bool, magnitude: u64, exponent: i32) -> u64 {
        let sign = if negative { self.sign_bit() } else { 0 };
        if magnitude == 0 {
            return sign;
        }
        let highest = 63 - magnitude.leading_zeros() as i32 + exponent;
        let quantum = (highest - self.precision + 1).max(self.quantum_min());
        let shift = quantum - exponent;
        let rounded = if shift <= 0 {
            magnitude << -shift
        } else if shift > 65 {
            0
        } else {
            let wide = u128::from(magnitude);
            let (kept, half) = (wide >> shift, 1u128 << (shift - 1));
            let rest = wide & ((1u128 << shift) - 1);
            (kept + u128::from(rest > half || (rest == half && kept & 1 == 1))) as u64
        };
        // The hidden bit carries into the exponent field, as does a mantissa that rounds up.
        let field = ((quantum - self.quantum_min()) as u64) << (self.precision - 1);
        sign | (rounded + field).min(self.infinity_bits())
    }
}

/// Returns the number nearest to `value`, ties to even, as a bit pattern; NaN becomes the quiet
/// NaN.
pub(crate) fn encode(dtype: DType, value: f64) -> u64 {
    let format = format(dtype);
    let negative = value.is_sign_negative();
    if value.is_nan() {
        format.infinity_bits() | 1 << (format.precision - 2)
    } else if value.is_infinite() {
        format.infinity_bits() | if negative { format.sign_bit() } else { 0 }
    } else {
        let (magnitude, exponent) = decompose(value);
        format.round(negative, magnitude, exponent)
    }
}

/// Returns the exact value of a bit pattern; every NaN pattern gives a NaN.
pub(crate) fn decode(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::F64 => return f64::from_bits(bits),
        DType::F32 => return f64::from(f32::from_bits(bits as u32)),
        _ => {}
    }
    let format = format(dtype);
    let sign = if bits & format.sign_bit() != 0 { -1.0 } else { 1.0 };
    let body = bits & (format.sign_bit() - 1);
    let field = (body >> (format.precision - 1)) as i32;
    let fraction = (body & ((1 << (format.precision - 1)) - 1)) as f64;
    if body > format.infinity_bits() {
        f64::NAN
    } else if body == format.infinity_bits() {
        sign * f64::INFINITY
    } else if field == 0 {
        sign * fraction * pow2(format.quantum_min())
    } else {
        let hidden = pow2(format.precision - 1);
        sign * (fraction + hidden) * pow2(format.quantum_min() + field - 1)
    }
}

/// Returns whether a bit pattern of a float dtype is NaN.
pub(crate) fn is_nan_bits(dtype: DType, bits: u64) -> bool {
    let format = format(dtype);
    bits & (format.sign_bit() - 1) > format.infinity_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the decoding of all 2^16 patterns with `theirs`, the `half` crate.
    fn check_all_patterns(dtype: DType, theirs: fn(u16) -> f64) {
        for pattern in 0..=u16::MAX {
            let (ours, theirs) = (decode(dtype, pattern.into()), theirs(pattern));
            assert_eq!(ours.is_nan(), theirs.is_nan(), "{pattern:#06x}");
            assert_eq!(is_nan_bits(dtype, pattern.into()), theirs.is_nan());
            if !ours.is_nan() {
                assert_eq!(ours.to_bits(), theirs.to_bits(), "{pattern:#06x}");
                assert_eq!(encode(dtype, ours), u64::from(pattern), "{pattern:#06x}");
            }
            if ours.is_finite() {
                assert!(format(dtype).holds(ours), "{pattern:#06x}");
            }
        }
    }

    /// Checks the rounding of the midpoints of all neighbours, and of the f64 and f32 next to them.
    /// The `half` crate is compared for f32 only: its conversion from f64 drops the low half of the
    /// mantissa.
    fn check_roundings(dtype: DType, theirs: fn(f32) -> u16) {
        let infinity = format(dtype).infinity_bits();
        let sign = format(dtype).sign_bit();
        for pattern in 0..infinity {
            let low = decode(dtype, pattern);
            let high = if pattern + 1 == infinity {
                2.0 * low - decode(dtype, pattern - 1)
            } else {
                decode(dtype, pattern + 1)
            };
            let middle = low + (high - low) / 2.0;
            let even = pattern + (pattern & 1);
            for (value, expected) in [
                (low, pattern),
                (low.next_up(), pattern),
                (middle.next_down(), pattern),
                (middle, even),
                (middle.next_up(), pattern + 1),
                (high.next_down(), pattern + 1),
            ] {
                assert_eq!(encode(dtype, value), expected, "{value:e}");
                assert_eq!(encode(dtype, -value), expected | sign, "-{value:e}");
            }
            let tie = middle as f32;
            for value in [tie, tie.next_down(), tie.next_up(), -tie] {
                let ours = encode(dtype, value.into());
                assert_eq!(ours, u64::from(theirs(value)), "{value:e}");
            }
        }
        for value in [f32::MAX, f32::MIN_POSITIVE, 1e-45, f32::INFINITY, -1e30, 65519.99] {
            assert_eq!(encode(dtype, value.into()), u64::from(theirs(value)), "{value:e}");
        }
        assert_eq!(encode(dtype, f64::MAX), infinity);
        assert_eq!(encode(dtype, -5e-324), sign);
    }

    #[test]
    fn f16_all_patterns_and_roundings_equal_half() {
        check_all_patterns(DType::F16, |bits| half::f16::from_bits(bits).to_f64());
        check_roundings(DType::F16, |value| half::f16::from_f32(value).to_bits());
    }

    #[test]
    fn bf16_all_patterns_and_roundings_equal_half() {
        check_all_patterns(DType::BF16, |bits| half::bf16::from_bits(bits).to_f64());
        check_roundings(DType::BF16, |value| half::bf16::from_f32(value).to_bits());
    }

    #[test]
    fn f32_and_f64_round_as_the_machine_does() {
        let mut state = 1u64;
        for _ in 0..1_000_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let single = f32::from_bits((state >> 32) as u32);
            let value = f64::from(single) * (1.0 + (state >> 40) as f64 * 2f64.powi(-49));
            if !value.is_nan() {
                assert_eq!(encode(DType::F32, value), u64::from((value as f32).to_bits()));
                assert_eq!(encode(DType::F64, value), value.to_bits());
            }
        }
        let tie = 1.0 + 2f64.powi(-24);
        assert_eq!(encode(DType::F32, tie), 0x3f80_0000);
        assert_eq!(encode(DType::F32, tie.next_up()), 0x3f80_0001);
        assert_eq!(encode(DType::F32, 2f64.powi(-150)), 0);
        assert_eq!(encode(DType::F32, 2f64.powi(-150).next_up()), 1);
        let overflow = format(DType::F32).overflow;
        assert_eq!(encode(DType::F32, overflow), 0x7f80_0000);
        assert_eq!(encode(DType::F32, overflow.next_down()), 0x7f7f_ffff);
    }

    #[test]
    fn integers_round_once() {
        // Slightly above a tie of bf16; rounded to f64 first it would become the tie.
        let value = (1u64 << 63) + (1 << 55) + 1;
        let bits = format(DType::BF16).round(false, value, 0);
        assert_eq!(decode(DType::BF16, bits), 2f64.powi(63) * (1.0 + 2f64.powi(-7)));
    }

    #[test]
    fn holds_checks_precision_and_range() {
        let format = format(DType::F16);
        assert!(format.holds(65504.0) && format.holds(pow2(-24)) && format.holds(0.0));
        assert!(!format.holds(65520.0) && !format.holds(pow2(-25)) && !format.holds(2049.0));
        assert!(!format.holds(pow2(-24) * 1.5) && !format.holds(65536.0));
        assert!(format.holds_sums(2047.0, 0) && !format.holds_sums(2048.0, 0));
    }
}
