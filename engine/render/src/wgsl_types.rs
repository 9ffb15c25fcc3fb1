//! The types of WGSL, which has words of 32 bits and, by extensions, f16 and types of 64 bits
//! (those are naga's own). Smaller types lie in words: a variable or element holds an integer as
//! the value that it is, extended to 32 bits, and a 16-bit float that the language lacks as its
//! bits.
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
    /// Whether there are i64, u64 and f64.
    has_wide: bool,
}

/// Those of a device with the extensions.
pub(crate) const EXTENDED: Types = Types { f16: DType::F16, has_wide: true };

/// Those of every device.
pub(crate) const CORE: Types = Types { f16: DType::U32, has_wide: false };

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
    (DType::I64, DType::I64),
    (DType::U64, DType::U64),
    (DType::F64, DType::F64),
];

impl Types {
    /// The type of variables that hold this one.
    pub(crate) fn held(self, dtype: DType) -> Option<DType> {
        if dtype == DType::F16 {
            return Some(self.f16);
        }
        let found = HELD.iter().find(|(known, _)| *known == dtype);
        found.map(|(_, held)| *held).filter(|held| held.bits() <= 32 || self.has_wide)
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
            DType::I64 if value == Constant::smallest(DType::I64) => {
                "(-9223372036854775807li-1li)".into()
            }
            DType::I64 => format!("{value}li"),
            DType::U64 => format!("{value}lu"),
            DType::F64 if is_plain && (bits & 0x7ff0_0000_0000_0000 != 0 || bits == 0) => {
                format!("{value}lf")
            }
            DType::F64 => format!("f64_from_bits({bits:#x}lu)"),
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
        let longer = |to: DType| match (held, to) {
            (DType::I32, DType::I64) => format!("i64_from_i32({x})"),
            _ => format!("{to}({x})"),
        };
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
            (DType::I32 | DType::U32 | DType::I64 | DType::U64, DType::BF16)
            | (DType::F64, DType::F16 | DType::BF16) => {
                self.cast(DType::F32, to, &format!("f32_odd_{from}({x})"))?
            }
            // What f32 does not hold exactly is infinite in f16.
            _ if is_half(to) && from != DType::F32 => {
                self.cast(DType::F32, to, &format!("f32({x})"))?
            }
            (DType::F32, _) if self.is_bits(to) => format!("{to}_from_f32({x})"),
            (DType::F32 | DType::F64, _) if to.is_int() => format!("{to}_from_{from}({x})"),
            (DType::I64 | DType::U64, DType::F64) => format!("f64_from_{from}({x})"),
            // naga extends by what comes out, not by what goes in: first the width, then the sign.
            _ if is_turned_and_longer(held, kind) => {
                let wide = if held.is_signed() { DType::I64 } else { DType::U64 };
                format!("{kind}({})", longer(wide))
            }
            _ if is_inside && held == kind => x.to_string(),
            _ if is_inside || self.is_own(to) => longer(kind),
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
        if from.bits() >= 32 {
            self.held(from).and(self.held(to))?;
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

/// Whether an integer becomes one of the other sign with more bits.
fn is_turned_and_longer(from: DType, to: DType) -> bool {
    let is_turned = from.is_int() && to.is_int() && from.is_signed() != to.is_signed();
    is_turned && from.bits() < to.bits()
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
    // Functions of f16 are for those that are held as bits.
    let types = Types { has_wide: true, ..CORE };
    let (kind, held) = (types.held(to)?, types.held(from)?);
    let body = match (from, to) {
        (DType::F32 | DType::F64, _) if to.is_int() => {
            let zero = types.constant(Constant::zero(kind))?;
            format!("  return select({zero}, {kind}(x), {});\n", inside(from, to, "&&"))
        }
        (DType::I32, DType::I64) => I64_FROM_I32.into(),
        (DType::I64, DType::F64) => F64_FROM_I64.into(),
        (DType::U64, DType::F64) => F64_FROM_U64.into(),
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

/// Where `i64(x)` is compared with what is a literal on one way there, llvmpipe of Mesa 22.3 answers
/// as if the smallest i32 were 2^31.
const I64_FROM_I32: &str = "  return i64(u64(bitcast<u32>(x) ^ 0x80000000u)) - 2147483648li;
";

/// By halves, whose sum alone is rounded. Of `f32(f64(x))` Mesa's compiler makes one conversion, with
/// one rounding where there are two.
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

/// To f32 such that a later rounding to fewer bits is the only one that counts.
fn rounding_to_odd(from: DType) -> Option<(DType, DType, String)> {
    let body = match from {
        DType::I32 => F32_ODD_I32,
        DType::U32 => F32_ODD_U32,
        DType::I64 => F32_ODD_I64,
        DType::U64 => F32_ODD_U64,
        DType::F64 => F32_ODD_F64,
        _ => return None,
    };
    Some((DType::F32, from, body.into()))
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

/// The upper 32 of the digits, the last one set for those behind. No loop: over a kernel with 80 of
/// them llvmpipe's compiler takes half a minute.
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
