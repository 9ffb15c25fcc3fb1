//! The types of WGSL: bool and types of 32 bits and, as extensions, f16 and types of 64 bits (the
//! latter are naga's own). Smaller types are represented in 32 bits: integers are sign- or
//! zero-extended, and a 16-bit float that the dialect does not have is held as its bits.
//!
//! A cast that takes more than a conversion is a helper function. WGSL does not specify how f32 is
//! rounded to a smaller type, so a 16-bit float that is held as its bits is rounded by integer
//! arithmetic.

use gradiff_graph::{Constant, DType};

use crate::code::{Code, code};
use crate::helpers::in_range;

/// The types of a dialect.
#[derive(Clone, Copy)]
pub(crate) struct Types {
    /// The type that represents f16.
    f16: DType,
    /// True if there are i64, u64 and f64.
    has_wide: bool,
}

/// The types of a device with the extensions.
pub(crate) const EXTENDED: Types = Types { f16: DType::F16, has_wide: true };

/// The types that every device has.
pub(crate) const CORE: Types = Types { f16: DType::U32, has_wide: false };

/// Each type but f16, and the type that represents it.
const REPRESENTATIONS: &[(DType, DType)] = &[
    (DType::Bool, DType::Bool),
    (DType::I8, DType::I32),
    (DType::U8, DType::U32),
    (DType::I16, DType::I32),
    (DType::U16, DType::U32),
    (DType::I32, DType::I32),
    (DType::U32, DType::U32),
    (DType::BF16, DType::U32),
    (DType::F32, DType::F32),
    (DType::I64, DType::I64),
    (DType::U64, DType::U64),
    (DType::F64, DType::F64),
];

/// The name of a type that the language has.
pub(crate) fn type_name(dtype: DType) -> Code {
    if dtype == DType::F16 { Code::helper("f16") } else { dtype.name().into() }
}

impl Types {
    /// The type of the variables that represent a type; `None` if the dialect cannot represent it.
    pub(crate) fn representation(self, dtype: DType) -> Option<DType> {
        if dtype == DType::F16 {
            return Some(self.f16);
        }
        let row = REPRESENTATIONS.iter().find(|(represented, _)| *represented == dtype)?;
        Some(row.1).filter(|representation| representation.bits() <= 32 || self.has_wide)
    }

    /// Returns whether the dialect has the type itself, and so vectors of it.
    pub(crate) fn is_native(self, dtype: DType) -> bool {
        self.representation(dtype) == Some(dtype)
    }

    /// Returns whether the type is a float that is held as its bits.
    pub(crate) fn is_float_as_bits(self, dtype: DType) -> bool {
        dtype.is_half() && !self.is_native(dtype)
    }

    /// The text of a constant, which has exactly its bits.
    pub(crate) fn constant(self, value: Constant) -> Option<Code> {
        let (dtype, bits, float) = (value.dtype(), value.bits(), value.to_float());
        let is_finite = float.is_some_and(|float| float.is_finite());
        let from_bits = |value: Constant, suffix: &str| {
            let bits = format!("{:#x}{suffix}", value.bits()).into();
            Code::call(format!("{}_from_bits", value.dtype()), &[&bits])
        };
        let text = match dtype {
            DType::Bool => value.is_true().to_string(),
            DType::I32 if value == Constant::smallest(DType::I32) => "i32(-2147483648)".into(),
            DType::I64 if value == Constant::smallest(DType::I64) => {
                "(-9223372036854775807li-1li)".into()
            }
            DType::I64 => format!("{value}li"),
            DType::U64 => format!("{value}lu"),
            DType::F64 if is_finite && (bits & 0x7ff0_0000_0000_0000 != 0 || bits == 0) => {
                format!("{value}lf")
            }
            DType::F64 => return Some(from_bits(value, "lu")),
            // A subnormal literal may be flushed to 0.
            DType::F32 if is_finite && (bits & 0x7f80_0000 != 0 || bits == 0) => {
                format!("{value}f")
            }
            DType::F32 => return Some(from_bits(value, "u")),
            _ if self.is_float_as_bits(dtype) => format!("{bits:#x}u/*{value}*/"),
            // A literal has to be enabled as its type.
            DType::F16 if is_finite && (bits & 0x7c00 != 0 || bits == 0) => {
                return Some(Code { text: format!("{value}h"), ..type_name(dtype) });
            }
            DType::F16 => {
                let wide = from_bits(Constant::float(DType::F32, float?), "u");
                return Some(code!("{}({})", type_name(dtype), wide));
            }
            _ => match self.representation(dtype)? {
                DType::I32 => value.to_int()?.to_string(),
                _ => format!("{bits}u"),
            },
        };
        Some(text.into())
    }

    /// Renders a cast.
    pub(crate) fn cast(self, from: DType, to: DType, x: &Code) -> Option<Code> {
        let (source, kind) = (self.representation(from)?, self.representation(to)?);
        let fits = range(to).is_some_and(|(to_min, to_max)| {
            range(from).is_some_and(|(min, max)| to_min <= min && max <= to_max)
        });
        let f32 = |x: &Code| code!("f32({})", x);
        let helper = |name: String| Code::call(name, &[x]);
        let convert = |to: DType| match (source, to) {
            (DType::I32, DType::I64) => helper("i64_from_i32".into()),
            _ => code!("{}({})", type_name(to), x),
        };
        Some(match (from, to) {
            _ if from == to => x.clone(),
            // The sign is masked: -0.0 is false as well.
            (_, DType::Bool) if self.is_float_as_bits(from) => code!("(({}&0x7fffu)!=0u)", x),
            (_, DType::Bool) if from.is_float() => {
                not_equal(x, &self.constant(Constant::zero(from))?)
            }
            (_, DType::Bool) => code!("({}!={})", x, self.constant(Constant::zero(from))?),
            _ if self.is_float_as_bits(from) => {
                self.cast(DType::F32, to, &helper(format!("{from}_to_f32")))?
            }
            (DType::F16, _) if to != DType::F32 => self.cast(DType::F32, to, &f32(x))?,
            (DType::I32 | DType::U32 | DType::I64 | DType::U64, DType::BF16)
            | (DType::F64, DType::F16 | DType::BF16) => {
                self.cast(DType::F32, to, &helper(format!("f32_odd_{from}")))?
            }
            // Integers that are not exact in f32 are infinite in f16.
            _ if to.is_half() && from != DType::F32 => self.cast(DType::F32, to, &f32(x))?,
            (DType::F32, _) if self.is_float_as_bits(to) => helper(format!("{to}_from_f32")),
            (DType::F32 | DType::F64, _) if to.is_int() => helper(format!("{to}_from_{from}")),
            (DType::I64 | DType::U64, DType::F64) => helper(format!("f64_from_{from}")),
            // naga extends by the sign of the target, not of the source: widen first, then change
            // the sign.
            _ if changes_sign_and_widens(source, kind) => {
                let wide = if source.is_signed() { DType::I64 } else { DType::U64 };
                code!("{}({})", type_name(kind), convert(wide))
            }
            _ if fits && source == kind => x.clone(),
            _ if fits || self.is_native(to) => convert(kind),
            // Truncated to the width of the type, and extended again.
            _ if source == kind => helper(format!("{to}_from_{kind}")),
            _ => Code::call(format!("{to}_from_{kind}"), &[&code!("{}({})", type_name(kind), x)]),
        })
    }

    /// Renders a bit cast.
    pub(crate) fn bitcast(self, from: DType, to: DType, x: &Code) -> Option<Code> {
        if from == to {
            return Some(x.clone());
        }
        if from.bits() != to.bits() || [from, to].contains(&DType::Bool) {
            return None;
        }
        if from.bits() >= 32 {
            self.representation(from).and(self.representation(to))?;
            return Some(code!("bitcast<{to}>({})", x));
        }
        let unsigned = if from.bits() == 8 { DType::U8 } else { DType::U16 };
        let bits = match from {
            DType::F16 if self.is_native(from) => {
                Code::call("f16_from_f32", &[&code!("f32({})", x)])
            }
            _ if from.is_float() => x.clone(),
            _ => self.cast(from, unsigned, x)?,
        };
        Some(match to {
            DType::F16 if self.is_native(to) => {
                code!("{}({})", type_name(to), Code::call("f16_to_f32", &[&bits]))
            }
            _ if to.is_float() => bits,
            _ => self.cast(unsigned, to, &bits)?,
        })
    }
}

/// Returns whether a cast goes from an integer to one of the other signedness with more bits.
fn changes_sign_and_widens(from: DType, to: DType) -> bool {
    let changes_sign = from.is_int() && to.is_int() && from.is_signed() != to.is_signed();
    changes_sign && from.bits() < to.bits()
}

/// The range of an integer type or of bool.
fn range(dtype: DType) -> Option<(i128, i128)> {
    if dtype == DType::Bool { Some((0, 1)) } else { dtype.int_range() }
}

/// Inequality of floats. naga's `!=` is false if an operand is NaN.
pub(crate) fn not_equal(x: &Code, y: &Code) -> Code {
    code!("(!({}=={}))", x, y)
}

/// Returns the definition of the helper of this name, if it is a conversion.
pub(crate) fn definition(word: &str) -> Option<Code> {
    let (first, last) = word.rsplit_once('_')?;
    let last = DType::from_name(last)?;
    let (kind, from, body) = match first.rsplit_once('_')? {
        (to, "from") => conversion(DType::from_name(to)?, last)?,
        (from, "to") => conversion(last, DType::from_name(from)?)?,
        ("f32", "odd") => rounding_to_odd(last)?,
        _ => return None,
    };
    let (from, kind) = (type_name(from), type_name(kind));
    Some(code!("fn {word}(x: {from}) -> {kind} {{\n{body}}}\n"; from, kind, body))
}

/// The helper that converts one type to another: the representations of its result and of its
/// parameter, and its body. A float is truncated toward zero to an integer, and gives 0 if it is
/// out of range.
fn conversion(to: DType, from: DType) -> Option<(DType, DType, Code)> {
    // The helpers take and give f16 as its bits.
    let types = Types { has_wide: true, ..CORE };
    let (kind, parameter) = (types.representation(to)?, types.representation(from)?);
    let body = match (from, to) {
        (DType::F32 | DType::F64, _) if to.is_int() => {
            let zero = types.constant(Constant::zero(kind))?;
            let in_range = in_range(from, to, "&&");
            code!("  return select({}, {}(x), {in_range});\n", zero, type_name(kind))
        }
        (DType::I32, DType::I64) => I64_FROM_I32.into(),
        (DType::I64, DType::F64) => F64_FROM_I64.into(),
        (DType::U64, DType::F64) => F64_FROM_U64.into(),
        _ if from.is_int() && to.is_int() && kind == from => match to.is_signed() {
            true => format!("  return (x << {0}u) >> {0}u;\n", 32 - to.bits()).into(),
            false => format!("  return x & {:#x}u;\n", (1u32 << to.bits()) - 1).into(),
        },
        (DType::BF16, DType::F32) => {
            Code::naming("  return f32_from_bits(x << 16u);\n", &["f32_from_bits"])
        }
        (DType::F32, DType::BF16) => BF16_FROM_F32.into(),
        (DType::F16, DType::F32) => Code::naming(F16_TO_F32, &["f32_from_bits"]),
        (DType::F32, DType::F16) => F16_FROM_F32.into(),
        _ => return None,
    };
    Some((kind, parameter, body))
}

/// Not `i64(x)`: if that is compared with a value that is a literal on one path, llvmpipe of Mesa
/// 22.3 takes the smallest i32 for 2^31.
const I64_FROM_I32: &str = "  return i64(u64(bitcast<u32>(x) ^ 0x80000000u)) - 2147483648li;
";

/// Converts two halves exactly; only their sum is rounded. `f64(x)` would not do: Mesa's compiler
/// merges the two conversions of `f32(f64(x))` into one, with one rounding instead of two.
const F64_FROM_I64: &str = "  let low = f64(u32(bitcast<u64>(x) & 4294967295lu));
  return f64(i32(x >> 32u)) * 4294967296.0lf + low;
";

const F64_FROM_U64: &str = "  let low = f64(u32(x & 4294967295lu));
  return f64(u32(x >> 32u)) * 4294967296.0lf + low;
";

const BF16_FROM_F32: &str = "  let bits = bitcast<u32>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return (bits >> 16u) | 0x40u; }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
";

const F16_TO_F32: &str = "  let sign = (x & 0x8000u) << 16u;
  let exponent = (x >> 10u) & 31u;
  let fraction = x & 1023u;
  if (exponent == 31u) { return f32_from_bits(sign | 0x7f800000u | (fraction << 13u)); }
  if (exponent != 0u) {
    return f32_from_bits(sign | ((exponent + 112u) << 23u) | (fraction << 13u));
  }
  return f32_from_bits(sign | bitcast<u32>(f32(fraction) * 0x1p-24f));
";

/// Values from 65520 round to infinity. Below 2^-14 the spacing is 2^-24: the mantissa is shifted
/// right.
const F16_FROM_F32: &str = "  let bits = bitcast<u32>(x);
  let sign = (bits >> 16u) & 0x8000u;
  let m = bits & 0x7fffffffu;
  if (m > 0x7f800000u) { return sign | 0x7e00u | ((m >> 13u) & 1023u); }
  if (m >= 0x477ff000u) { return sign | 0x7c00u; }
  if (m >= 0x38800000u) {
    return sign | ((m - 0x38000000u + 0xfffu + ((m >> 13u) & 1u)) >> 13u);
  }
  let digits = (m & 0x7fffffu) | 0x800000u;
  let places = min(126u - (m >> 23u), 25u);
  return sign | ((digits + (1u << (places - 1u)) - 1u + ((digits >> places) & 1u)) >> places);
";

/// The helper that converts a type to f32, rounded to odd, so that a later rounding to fewer bits
/// gives the same as a single rounding: its result, its parameter and its body.
fn rounding_to_odd(from: DType) -> Option<(DType, DType, Code)> {
    let body = match from {
        DType::I32 => F32_ODD_I32.into(),
        DType::U32 => F32_ODD_U32.into(),
        DType::I64 => Code::naming(F32_ODD_I64, &["f32_odd_u64"]),
        DType::U64 => Code::naming(F32_ODD_U64, &["f32_odd_u32"]),
        DType::F64 => Code::naming(F32_ODD_F64, &["is_nan_f64", "f32_from_bits"]),
        _ => return None,
    };
    Some((DType::F32, from, body))
}

const F32_ODD_I32: &str = "  if (-16777216 < x && x < 16777216) { return f32(x); }
  return f32((x & ~255) | select(0, 256, (x & 255) != 0));
";

const F32_ODD_U32: &str = "  if (x < 16777216u) { return f32(x); }
  return f32((x & ~255u) | select(0u, 256u, (x & 255u) != 0u));
";

const F32_ODD_I64: &str = "  let size = f32_odd_u64(bitcast<u64>(select(x, -x, x < 0li)));
  return select(size, -size, x < 0li);
";

/// Rounds the upper 32 significant bits, of which the last one is sticky. Without a loop, since
/// llvmpipe takes half a minute to compile a kernel with 80 loops.
const F32_ODD_U64: &str = "  let high = u32(x >> 32u);
  if (high == 0u) { return f32_odd_u32(u32(x & 4294967295lu)); }
  let zeros = countLeadingZeros(high);
  let digits = x << zeros;
  let upper = u32(digits >> 32u) | select(0u, 1u, (digits & 4294967295lu) != 0lu);
  return f32_odd_u32(upper) * bitcast<f32>((159u - zeros) << 23u);
";

const F32_ODD_F64: &str = "  let nearest = f32(x);
  let bits = bitcast<u32>(nearest);
  if (f64(nearest) == x || is_nan_f64(x) || (bits & 1u) != 0u) { return nearest; }
  return f32_from_bits(select(bits - 1u, bits + 1u, abs(f64(nearest)) < abs(x)));
";

#[cfg(test)]
mod tests {
    use super::*;

    /// All exponents, with fractions of no bit, of one bit and of all bits.
    #[test]
    fn float_literals_are_normal_or_zero() {
        for (dtype, fraction_bits) in [(DType::F16, 10), (DType::F32, 23), (DType::F64, 52)] {
            let infinity = Constant::float(dtype, f64::INFINITY).bits() >> fraction_bits;
            let single = (0..fraction_bits).map(|bit| 1 << bit);
            let fractions: Vec<u64> = single.chain([0, (1 << fraction_bits) - 1]).collect();
            for (exponent, fraction) in
                (0..=infinity).flat_map(|exponent| fractions.iter().map(move |f| (exponent, *f)))
            {
                for sign in [0, 1 << (dtype.bits() - 1)] {
                    let bits = sign | exponent << fraction_bits | fraction;
                    let text = EXTENDED.constant(Constant::from_bits(dtype, bits)).unwrap().text;
                    let is_literal = !text.contains("from_bits");
                    let is_normal = 0 < exponent && exponent < infinity;
                    assert_eq!(is_literal, is_normal || bits == 0, "{dtype} {bits:#x}: {text}");
                }
            }
        }
    }
}
