//! Single elements: conversion of literals to bit patterns, and exact decimal text.
//!
//! Knows the layouts of the float formats and rounds to them; does no arithmetic.

use crate::{DType, Literal};
use std::fmt;

/// Returns the bit pattern (zero-extended) of `literal` as an element of `dtype`.
///
/// Floats are rounded once to nearest even, from the exact value of the literal; every NaN becomes
/// the positive quiet NaN without payload. Returns `None` if the literal is not representable: see
/// [`Literal`].
pub fn literal_bits(dtype: DType, literal: &Literal) -> Option<u64> {
    match literal {
        Literal::Bool(value) => (dtype == DType::Bool).then_some(u64::from(*value)),
        Literal::Int(value) if dtype.is_int() => int_bits(dtype, *value),
        Literal::Int(value) if dtype.is_float() && INT_LITERALS.contains(value) => {
            Some(float_from_int(dtype, *value))
        }
        Literal::Float(value) if dtype.is_float() => Some(float_bits(dtype, *value)),
        Literal::Int(_) | Literal::Float(_) => None,
    }
}

/// The range of integer literals.
pub(crate) const INT_LITERALS: std::ops::RangeInclusive<i128> = i64::MIN as i128..=u64::MAX as i128;

/// Returns the mask of the bits of an element of `dtype`.
pub(crate) fn mask(dtype: DType) -> u64 {
    u64::MAX >> (64 - 8 * dtype.size_bytes())
}

fn int_bits(dtype: DType, value: i128) -> Option<u64> {
    let (min, max) = int_range(dtype);
    (min <= value && value <= max).then_some(value as u64 & mask(dtype))
}

/// Returns the smallest and largest value of an integer dtype.
pub(crate) fn int_range(dtype: DType) -> (i128, i128) {
    let bits = 8 * dtype.size_bytes();
    if dtype.is_signed() {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    }
}

/// Returns the number of significant bits (the leading one included) and of exponent bits of a
/// float dtype.
pub(crate) fn float_layout(dtype: DType) -> (u32, u32) {
    match dtype {
        DType::F16 => (11, 5),
        DType::BF16 => (8, 8),
        DType::F32 => (24, 8),
        DType::F64 => (53, 11),
        _ => unreachable!("{} is not a float dtype", dtype.name()),
    }
}

fn quiet_nan(dtype: DType) -> u64 {
    let (precision, exponent_bits) = float_layout(dtype);
    ((1 << (exponent_bits + 1)) - 1) << (precision - 2)
}

fn float_from_int(dtype: DType, value: i128) -> u64 {
    match dtype {
        DType::F64 => (value as f64).to_bits(),
        DType::F32 => u64::from((value as f32).to_bits()),
        // Rounded to odd in 53 bits first, so that the second rounding is correct.
        _ => {
            let magnitude = value.unsigned_abs();
            let spare = 128u32.saturating_sub(magnitude.leading_zeros() + 53);
            let sticky = u128::from(magnitude & ((1 << spare) - 1) != 0);
            let odd = (((magnitude >> spare) | sticky) << spare) as f64;
            float_bits(dtype, if value < 0 { -odd } else { odd })
        }
    }
}

/// Rounds `value` once, to nearest even, to a float dtype.
pub(crate) fn float_bits(dtype: DType, value: f64) -> u64 {
    if value.is_nan() {
        return quiet_nan(dtype);
    }
    match dtype {
        DType::F64 => value.to_bits(),
        DType::F32 => u64::from((value as f32).to_bits()),
        _ => small_float_bits(dtype, value),
    }
}

/// Rounds to a 16-bit float by integer arithmetic on the f64 pattern. Neither `half` (which
/// converts to f32 first, or drops low bits) nor a cast rounds only once.
fn small_float_bits(dtype: DType, value: f64) -> u64 {
    let (precision, exponent_bits) = float_layout(dtype);
    let bits = value.to_bits();
    let sign = (bits >> 63) << (precision + exponent_bits - 1);
    let infinity = ((1u64 << exponent_bits) - 1) << (precision - 1);
    let smallest_exponent = 2 - (1i64 << (exponent_bits - 1));
    let exponent = (bits >> 52 & 0x7ff) as i64 - 1023;
    if exponent == 1024 {
        return sign | infinity;
    }
    let fraction = bits & ((1 << 52) - 1);
    // An f64 subnormal is far below half of the smallest subnormal of the dtype, and stays so with
    // the leading one that it does not have.
    let significand = fraction | 1 << 52;
    let below = (smallest_exponent - exponent).max(0);
    let dropped = 53 - i64::from(precision) + below;
    if 54 < dropped {
        return sign;
    }
    let kept = significand >> dropped;
    let rest = significand & ((1 << dropped) - 1);
    let half = 1u64 << (dropped - 1);
    let carry = u64::from(half < rest || (rest == half && kept & 1 == 1));
    // A carry out of the significand increments the exponent, and the largest one to infinity.
    let biased = if 0 < below { 0 } else { (exponent - smallest_exponent) as u64 };
    let magnitude = (biased << (precision - 1)) + kept + carry;
    sign | magnitude.min(infinity)
}

/// Returns the exact value of an element of a float dtype.
pub fn float_value(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::F64 => f64::from_bits(bits),
        DType::F32 => f64::from(f32::from_bits(bits as u32)),
        _ => {
            let (precision, exponent_bits) = float_layout(dtype);
            let negative = bits >> (precision + exponent_bits - 1) & 1 == 1;
            let exponent = bits >> (precision - 1) & ((1 << exponent_bits) - 1);
            let fraction = bits & ((1 << (precision - 1)) - 1);
            let bias = (1i32 << (exponent_bits - 1)) - 1;
            let power = |exponent: i32| f64::from_bits(((exponent + 1023) as u64) << 52);
            let scale = exponent.max(1) as i32 - bias - (precision as i32 - 1);
            let magnitude = if exponent == (1 << exponent_bits) - 1 {
                if fraction == 0 { f64::INFINITY } else { f64::NAN }
            } else {
                let leading = u64::from(exponent != 0) << (precision - 1);
                (fraction | leading) as f64 * power(scale)
            };
            if negative { -magnitude } else { magnitude }
        }
    }
}

/// Returns the exact text of an element: `true`, `-3`, the shortest decimal that is parsed to the
/// same bits, `nan` for the positive quiet NaN without payload, `bits:0x...` for any other NaN.
///
/// ```
/// use gradiff_corpus::{DType, format_element};
/// assert_eq!(format_element(DType::I8, 0xff), "-1");
/// assert_eq!(format_element(DType::F16, 0x2e66), "0.1");
/// assert_eq!(format_element(DType::F32, 0xffc00000), "bits:0xffc00000");
/// ```
pub fn format_element(dtype: DType, bits: u64) -> String {
    match dtype {
        DType::Bool => if bits == 0 { "false" } else { "true" }.to_string(),
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => format_float(dtype, bits),
        _ => int_value(dtype, bits).to_string(),
    }
}

/// Returns the value of an element of an integer dtype.
pub(crate) fn int_value(dtype: DType, bits: u64) -> i128 {
    let unused = 64 - 8 * dtype.size_bytes() as u32;
    if dtype.is_signed() {
        i128::from((bits << unused) as i64 >> unused)
    } else {
        i128::from(bits & mask(dtype))
    }
}

fn format_float(dtype: DType, bits: u64) -> String {
    let value = float_value(dtype, bits);
    if value.is_nan() {
        return if bits == quiet_nan(dtype) { "nan".into() } else { format!("bits:{bits:#x}") };
    }
    match dtype {
        DType::F64 => format!("{value:?}"),
        DType::F32 => format!("{:?}", f32::from_bits(bits as u32)),
        _ => shortest_small(dtype, bits, value),
    }
}

/// Returns the shortest decimal of a 16-bit float. Five significant digits distinguish all f16 and
/// bf16 values, so the search is short.
fn shortest_small(dtype: DType, bits: u64, value: f64) -> String {
    for digits in 0..5 {
        let text = format!("{value:.digits$e}");
        let short: f64 = text.parse().unwrap_or(f64::NAN);
        if float_bits(dtype, short) == bits {
            return format!("{short:?}");
        }
    }
    format!("{value:?}")
}

/// Parses an element of `dtype`: the inverse of [`format_element`], which accepts integers as
/// floats, too.
pub(crate) fn parse_element(dtype: DType, text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("bits:0x") {
        let bits = u64::from_str_radix(digits, 16).ok()?;
        let limit = if dtype == DType::Bool { 1 } else { mask(dtype) };
        return (bits <= limit).then_some(bits);
    }
    let literal = parse_literal(text)?;
    match (dtype, literal) {
        // Parsed as f32 directly: converting to f64 first could round twice.
        (DType::F32, Literal::Float(value)) if value.is_finite() => {
            Some(u64::from(text.parse::<f32>().ok()?.to_bits()))
        }
        _ => literal_bits(dtype, &literal),
    }
}

/// Parses a literal: `true`, `-3`, `2.5`, `1e-7`, `nan`, `inf`, `-inf`, `nan:0x...`.
pub(crate) fn parse_literal(text: &str) -> Option<Literal> {
    match text {
        "true" => return Some(Literal::Bool(true)),
        "false" => return Some(Literal::Bool(false)),
        "nan" => return Some(Literal::Float(f64::from_bits(quiet_nan(DType::F64)))),
        "inf" => return Some(Literal::Float(f64::INFINITY)),
        "-inf" => return Some(Literal::Float(f64::NEG_INFINITY)),
        _ => {}
    }
    if let Some(digits) = text.strip_prefix("nan:0x") {
        let value = f64::from_bits(u64::from_str_radix(digits, 16).ok()?);
        return value.is_nan().then_some(Literal::Float(value));
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let value = text.parse::<i128>().ok()?;
        return INT_LITERALS.contains(&value).then_some(Literal::Int(value));
    }
    text.parse::<f64>().ok().filter(|value| value.is_finite()).map(Literal::Float)
}

impl fmt::Display for Literal {
    /// Prints the literal in the text form; floats always have a point or an exponent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Bool(value) => write!(f, "{value}"),
            Literal::Int(value) => write!(f, "{value}"),
            Literal::Float(value) if value.is_nan() => match value.to_bits() {
                bits if bits == quiet_nan(DType::F64) => write!(f, "nan"),
                bits => write!(f, "nan:{bits:#x}"),
            },
            Literal::Float(value) => write!(f, "{value:?}"),
        }
    }
}
