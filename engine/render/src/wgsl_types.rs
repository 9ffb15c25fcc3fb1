//! The types of WGSL, which has words of 32 bits and, by an extension, f16. Smaller types lie in
//! words: a variable or element holds an integer as the value that it is, extended to 32 bits, and
//! a 16-bit float that the language lacks as its bits. i64, u64 and f64 are not there.
//!
//! Casts are functions where they are more than a word. How f32 is rounded to what the language
//! lacks is not left to it, as it leaves that open: such floats are made bit by bit.

use gradiff_graph::{Constant, DType};

use crate::helpers::inside;
use crate::scalar::is_half;

/// The types that a dialect has.
#[derive(Clone, Copy)]
pub(crate) struct Types {
    /// What an f16 is held in.
    f16: DType,
}

/// Those of a device with the extension of f16.
pub(crate) const WITH_F16: Types = Types { f16: DType::F16 };

/// Those of every device.
pub(crate) const CORE: Types = Types { f16: DType::U32 };

/// Each other type, and the one that variables have which hold it.
const HELD: &[(DType, DType)] = &[
    (DType::Bool, DType::Bool),
    (DType::I8, DType::I32),
    (DType::U8, DType::U32),
    (DType::I16, DType::I32),
    (DType::U16, DType::U32),
    (DType::I32, DType::I32),
    (DType::U32, DType::U32),
    (DType::BF16, DType::U32),
    (DType::F32, DType::F32),
];

impl Types {
    /// The type of variables that hold this one.
    pub(crate) fn held(self, dtype: DType) -> Option<DType> {
        if dtype == DType::F16 {
            return Some(self.f16);
        }
        HELD.iter().find(|(known, _)| *known == dtype).map(|(_, held)| *held)
    }

    /// Whether it is a type of the language, of which there are vectors.
    pub(crate) fn is_own(self, dtype: DType) -> bool {
        self.held(dtype) == Some(dtype)
    }

    /// Whether it is a float that is held as its bits.
    pub(crate) fn is_bits(self, dtype: DType) -> bool {
        is_half(dtype) && !self.is_own(dtype)
    }

    /// A constant of exactly these bits.
    pub(crate) fn constant(self, value: Constant) -> Option<String> {
        let (dtype, bits, float) = (value.dtype(), value.bits(), value.to_float());
        let is_plain = float.is_some_and(|float| float.is_finite());
        Some(match dtype {
            DType::Bool => value.is_true().to_string(),
            DType::I32 if value == Constant::smallest(DType::I32) => "i32(-2147483648)".into(),
            // A literal below the normal numbers may be taken for 0.
            DType::F32 if is_plain && (bits & 0x7f80_0000 != 0 || bits == 0) => format!("{value}f"),
            DType::F32 => format!("f32_from_bits({bits:#x}u)"),
            _ if self.is_bits(dtype) => format!("{bits:#x}u/*{value}*/"),
            DType::F16 if is_plain && (bits & 0x7c00 != 0 || bits == 0) => format!("{value}h"),
            DType::F16 => {
                let wide = Constant::float(DType::F32, float?);
                format!("f16(f32_from_bits({:#x}u))", wide.bits())
            }
            _ => match self.held(dtype)? {
                DType::I32 => value.to_int()?.to_string(),
                _ => format!("{bits}u"),
            },
        })
    }

    /// A value as another type.
    pub(crate) fn cast(self, from: DType, to: DType, x: &str) -> Option<String> {
        let (held, kind) = (self.held(from)?, self.held(to)?);
        let is_inside = range(to).is_some_and(|(low, high)| {
            range(from).is_some_and(|(least, most)| low <= least && most <= high)
        });
        Some(match (from, to) {
            _ if from == to => x.to_string(),
            // Of either sign.
            (_, DType::Bool) if self.is_bits(from) => format!("(({x}&0x7fffu)!=0u)"),
            (_, DType::Bool) if from.is_float() => {
                differs(x, &self.constant(Constant::zero(from))?)
            }
            (_, DType::Bool) => format!("({x}!={})", self.constant(Constant::zero(from))?),
            _ if self.is_bits(from) => self.cast(DType::F32, to, &format!("{from}_to_f32({x})"))?,
            (DType::F16, _) if to != DType::F32 => {
                self.cast(DType::F32, to, &format!("f32({x})"))?
            }
            (DType::I32 | DType::U32, DType::BF16) => {
                format!("bf16_from_f32(f32_odd_{from}({x}))")
            }
            // What f32 does not hold exactly is infinite in f16.
            _ if is_half(to) && from != DType::F32 => {
                self.cast(DType::F32, to, &format!("f32({x})"))?
            }
            (DType::F32, _) if self.is_bits(to) || to.is_int() => format!("{to}_from_f32({x})"),
            _ if is_inside && held == kind => x.to_string(),
            _ if is_inside || self.is_own(to) => format!("{kind}({x})"),
            _ if held == kind => self.cut_back(to, x)?,
            _ => self.cut_back(to, &format!("{kind}({x})"))?,
        })
    }

    /// An integer of the width of the word that holds this type, as this type.
    pub(crate) fn cut_back(self, dtype: DType, x: &str) -> Option<String> {
        match self.is_own(dtype) {
            true => Some(x.to_string()),
            false => Some(format!("{dtype}_from_{}({x})", self.held(dtype)?)),
        }
    }

    /// The same bits as another type.
    pub(crate) fn bitcast(self, from: DType, to: DType, x: &str) -> Option<String> {
        if from == to {
            return Some(x.to_string());
        }
        if from.bits() != to.bits() || [from, to].contains(&DType::Bool) {
            return None;
        }
        if from.bits() == 32 {
            return Some(format!("bitcast<{to}>({x})"));
        }
        let unsigned = if from.bits() == 8 { DType::U8 } else { DType::U16 };
        let bits = match from {
            DType::F16 if self.is_own(from) => format!("f16_from_f32(f32({x}))"),
            _ if from.is_float() => x.to_string(),
            _ => self.cast(from, unsigned, x)?,
        };
        Some(match to {
            DType::F16 if self.is_own(to) => format!("f16(f16_to_f32({bits}))"),
            _ if to.is_float() => bits,
            _ => self.cast(unsigned, to, &bits)?,
        })
    }
}

/// The range of an integer, or of a bool.
fn range(dtype: DType) -> Option<(i128, i128)> {
    if dtype == DType::Bool { Some((0, 1)) } else { dtype.int_range() }
}

/// Whether two floats differ. naga's `!=` is false where one is NaN.
pub(crate) fn differs(x: &str, y: &str) -> String {
    format!("(!({x}=={y}))")
}

/// The function of this name, if it is a conversion.
pub(crate) fn definition(word: &str) -> Option<String> {
    let (first, last) = word.rsplit_once('_')?;
    let last = DType::from_name(last)?;
    let (kind, from, body) = match first.rsplit_once('_')? {
        (to, "from") => conversion(DType::from_name(to)?, last)?,
        (from, "to") => conversion(last, DType::from_name(from)?)?,
        ("f32", "odd") => rounding_to_odd(last)?,
        _ => return None,
    };
    Some(format!("fn {word}(x: {from}) -> {kind} {{\n{body}}}\n"))
}

/// What comes out, what goes in, both as they are held, and the statements. From a float to an
/// integer: cut toward zero, 0 where the range is left.
fn conversion(to: DType, from: DType) -> Option<(DType, DType, String)> {
    let (kind, held) = (CORE.held(to)?, CORE.held(from)?);
    let body = match (from, to) {
        (DType::F32, _) if to.is_int() => {
            let zero = CORE.constant(Constant::zero(kind))?;
            format!("  return select({zero}, {kind}(x), {});\n", inside(from, to, "&&"))
        }
        _ if from.is_int() && to.is_int() && kind == from => match to.is_signed() {
            true => format!("  return (x << {0}u) >> {0}u;\n", 32 - to.bits()),
            false => format!("  return x & {:#x}u;\n", (1u32 << to.bits()) - 1),
        },
        (DType::BF16, DType::F32) => "  return f32_from_bits(x << 16u);\n".into(),
        (DType::F32, DType::BF16) => BF16_FROM_F32.into(),
        (DType::F16, DType::F32) => F16_TO_F32.into(),
        (DType::F32, DType::F16) => F16_FROM_F32.into(),
        _ => return None,
    };
    Some((kind, held, body))
}

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

/// 65520 and more are infinite. Below 2^-14 all steps are 2^-24: the digits move to the right.
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

/// From an integer to f32 such that a later rounding to fewer bits is the only one that counts.
fn rounding_to_odd(from: DType) -> Option<(DType, DType, String)> {
    let (u, is_exact) = match from {
        DType::I32 => ("", "-16777216 < x && x < 16777216"),
        DType::U32 => ("u", "x < 16777216u"),
        _ => return None,
    };
    let body = format!(
        "  if ({is_exact}) {{ return f32(x); }}\n  \
         return f32((x & ~255{u}) | select(0{u}, 256{u}, (x & 255{u}) != 0{u}));\n"
    );
    Some((DType::F32, from, body))
}
