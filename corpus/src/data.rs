//! Raw data: arrays of bit patterns, and the random generator that fills inputs.
//!
//! The generator is part of the case format: its output for a seed never changes (a golden test
//! pins it), so that the program file of a finding is enough to reproduce it.

use crate::element::{float_bits, float_layout, int_range, mask};
use crate::{DType, Distribution, Fill, Shape, format_element};
use std::fmt;

/// A tensor's elements as bit patterns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Array {
    /// Element type.
    pub dtype: DType,
    /// Sizes of the axes, outermost first.
    pub shape: Shape,
    /// The elements' bit patterns, row-major, zero-extended to 64 bits; a bool is 0 or 1.
    pub bits: Vec<u64>,
}

impl Array {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.bits.len()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// Returns the elements as in memory: little endian, `dtype.size_bytes()` each.
    pub fn to_bytes(&self) -> Vec<u8> {
        let size_bytes = self.dtype.size_bytes();
        let mut bytes = Vec::with_capacity(self.bits.len() * size_bytes);
        for bits in &self.bits {
            bytes.extend_from_slice(&bits.to_le_bytes()[..size_bytes]);
        }
        bytes
    }

    /// Creates the array from the bytes of [`Array::to_bytes`]. Returns `None` if `shape` is not
    /// legal in a program, if the number of bytes is not that of its elements, or if a bool is
    /// neither 0 nor 1.
    pub fn from_bytes(dtype: DType, shape: Shape, bytes: &[u8]) -> Option<Array> {
        let size_bytes = dtype.size_bytes();
        let count = crate::geometry::check_size(&shape).ok()?;
        if count.checked_mul(size_bytes)? != bytes.len() {
            return None;
        }
        let element = |chunk: &[u8]| {
            let mut padded = [0; 8];
            padded[..size_bytes].copy_from_slice(chunk);
            u64::from_le_bytes(padded)
        };
        let bits: Vec<u64> = bytes.chunks_exact(size_bytes).map(element).collect();
        let valid = dtype != DType::Bool || bits.iter().all(|bits| *bits <= 1);
        valid.then_some(Array { dtype, shape, bits })
    }
}

impl fmt::Display for Array {
    /// Prints nested lists as Python does: `[[1, 2], [3, 4]]`; a scalar without brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut elements = self.bits.iter();
        write_nested(f, self.dtype, &self.shape, &mut elements)
    }
}

fn write_nested(
    f: &mut fmt::Formatter<'_>,
    dtype: DType,
    shape: &[usize],
    elements: &mut std::slice::Iter<'_, u64>,
) -> fmt::Result {
    let Some((size, inner)) = shape.split_first() else {
        return match elements.next() {
            Some(bits) => write!(f, "{}", format_element(dtype, *bits)),
            None => write!(f, "?"),
        };
    };
    write!(f, "[")?;
    for index in 0..*size {
        if 0 < index {
            write!(f, ", ")?;
        }
        write_nested(f, dtype, inner, elements)?;
    }
    write!(f, "]")
}

/// Returns the data that `fill` describes; they never change.
///
/// Element `i` of seeded data comes from a 64-bit draw: output `i` of SplitMix64 started at the
/// seed. A draw is mapped to a number below `n` by the high half of its product with `n`. Explicit
/// data are truncated to the size of `shape`, or extended with zeros.
pub fn fill(dtype: DType, shape: &[usize], fill: &Fill) -> Array {
    let count: usize = shape.iter().product();
    let bits = match fill {
        Fill::Iota => (0..count).map(|index| iota_element(dtype, index as u64)).collect(),
        Fill::Seeded { seed, distribution } => (0..count)
            .map(|index| seeded_element(dtype, *distribution, splitmix64(*seed, index as u64)))
            .collect(),
        Fill::Explicit(bits) => {
            let mut bits = bits.clone();
            bits.resize(count, 0);
            bits
        }
    };
    Array { dtype, shape: shape.to_vec(), bits }
}

fn iota_element(dtype: DType, index: u64) -> u64 {
    if dtype == DType::Bool {
        index % 2
    } else if dtype.is_float() {
        // Exact: an index is far below 2^53.
        float_bits(dtype, index as f64)
    } else {
        index & mask(dtype)
    }
}

/// Returns output `index` of SplitMix64 (Steele, Lea and Flood 2014) started at `seed`.
pub fn splitmix64(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Maps `draw` to a number from `min` to `max`, both inclusive.
fn between(draw: u64, min: i64, max: i64) -> i64 {
    let count = (max - min + 1) as u128;
    min + ((u128::from(draw) * count) >> 64) as i64
}

fn seeded_element(dtype: DType, distribution: Distribution, draw: u64) -> u64 {
    if dtype == DType::Bool {
        draw >> 63
    } else if dtype.is_float() {
        seeded_float(dtype, distribution, draw)
    } else {
        seeded_int(dtype, distribution, draw)
    }
}

fn seeded_int(dtype: DType, distribution: Distribution, draw: u64) -> u64 {
    let up_to = |max: i64| {
        let shift = if dtype.is_signed() { 0 } else { max };
        between(draw, -max, max) + shift
    };
    let value = match distribution {
        Distribution::Small | Distribution::Dyadic => up_to(4),
        Distribution::Positive => between(draw, 1, 4),
        Distribution::Unit => up_to(100),
        Distribution::Wide => draw as i64,
        Distribution::Special => {
            let (min, max) = int_range(dtype);
            let values = [min, min + 1, max - 1, max, 0, 1, 2, -1, -2];
            values[between(draw, 0, values.len() as i64 - 1) as usize] as i64
        }
    };
    value as u64 & mask(dtype)
}

fn seeded_float(dtype: DType, distribution: Distribution, draw: u64) -> u64 {
    let (precision, exponent_bits) = float_layout(dtype);
    let value = match distribution {
        Distribution::Small => between(draw, -4, 4) as f64,
        Distribution::Positive => between(draw, 1, 4) as f64,
        Distribution::Dyadic => between(draw, -32, 32) as f64 / 8.0,
        Distribution::Unit => {
            // Odd multiples of 2^-precision: exact, never 0, never 1.
            let odd = 2 * (draw >> (64 - precision)) as i64 + 1 - (1 << precision);
            odd as f64 / (1u64 << precision) as f64
        }
        Distribution::Wide => {
            let exponent = (((draw >> 52) & 0x7ff) * 24) >> 11;
            let mantissa = (draw & ((1 << 52) - 1)) >> (53 - precision) << (53 - precision);
            f64::from_bits(draw >> 63 << 63 | (exponent + 1023 - 12) << 52 | mantissa)
        }
        Distribution::Special => {
            let sign = 1u64 << (precision + exponent_bits - 1);
            let infinity = ((1u64 << exponent_bits) - 1) << (precision - 1);
            let (nan, largest) = (float_bits(dtype, f64::NAN), infinity - 1);
            let magnitudes = [0, 1, float_bits(dtype, 1.0), largest, infinity];
            return match between(draw, 0, 10) as usize {
                10 => nan,
                choice => magnitudes[choice / 2] | (sign * (choice as u64 % 2)),
            };
        }
    };
    float_bits(dtype, value)
}
