//! The functions and types that a text uses, found by their names and written out in the order in
//! which they need each other; and the functions over single values that the languages of C's
//! family share.

use std::collections::BTreeSet;

use gradiff_graph::{DType, Op};

use crate::scalar::{Words, as_unsigned};

/// The definitions of all words of a text that `definition` knows, and of what those use.
pub(crate) fn collect(text: &str, definition: &dyn Fn(&str) -> Option<String>) -> String {
    let mut found = Found { seen: BTreeSet::new(), out: String::new(), definition };
    found.need_all(text);
    found.out
}

struct Found<'a> {
    seen: BTreeSet<String>,
    out: String,
    definition: &'a dyn Fn(&str) -> Option<String>,
}

impl Found<'_> {
    fn need_all(&mut self, text: &str) {
        for word in text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()) {
            if word.len() < 4 || self.seen.contains(word) {
                continue;
            }
            self.seen.insert(word.to_string());
            if let Some(definition) = (self.definition)(word) {
                self.need_all(&definition);
                self.out.push_str(&definition);
            }
        }
    }
}

/// The parts of a word like `max_f32x4`: what it does, the type of a lane, how many.
pub(crate) fn parse_vector(word: &str) -> Option<(&str, DType, u8)> {
    let (function, kind) = word.rsplit_once('_')?;
    let (dtype, lanes) = kind.split_once('x')?;
    Some((function, DType::from_name(dtype)?, lanes.parse().ok()?))
}

/// A function of the family: total, no division traps, no conversion is undefined.
pub(crate) fn function(words: &Words, name: &str) -> Option<String> {
    let (first, last) = name.rsplit_once('_')?;
    let (kind, parameters, body) = match (first.split_once('_'), DType::from_name(last)) {
        (None, Some(dtype)) => of_one_type(words, first, dtype)?,
        (Some((to, "from")), Some(from)) => conversion(words, DType::from_name(to)?, from)?,
        (Some((from, "to")), Some(to)) => conversion(words, to, DType::from_name(from)?)?,
        (Some((to, "odd")), Some(from)) => rounding(words, DType::from_name(to)?, from)?,
        _ => return None,
    };
    Some(format!("{}{kind} {name}({parameters}) {{\n{body}}}\n", words.function))
}

type Function = (&'static str, String, String);

/// Division: a divisor of 0 gives some value; the smallest value by -1 wraps. The larger and the
/// smaller one: NaN if either is. Product and sum.
fn of_one_type(words: &Words, name: &str, dtype: DType) -> Option<Function> {
    let t = (words.type_name)(dtype);
    let (op, id) = (Op::from_name(name)?, dtype.name());
    let (is_float, is_signed) = (dtype.is_float(), dtype.is_signed());
    let body = match (op, is_float) {
        (Op::CDiv, false) if is_signed => {
            let u = (words.type_name)(as_unsigned(dtype));
            format!("  return y == -1 ? ({t})(({u})0 - ({u})x) : y ? ({t})(x / y) : 0;\n")
        }
        (Op::CDiv, false) => format!("  return y ? ({t})(x / y) : 0;\n"),
        (Op::CMod, false) if is_signed => {
            format!("  return y == -1 || y == 0 ? 0 : ({t})(x % y);\n")
        }
        (Op::CMod, false) => format!("  return y ? ({t})(x % y) : 0;\n"),
        (Op::FloorDiv, false) => format!(
            "  {t} quotient = cdiv_{id}(x, y), rest = cmod_{id}(x, y);\n  \
             return rest != 0 && (rest ^ y) < 0 ? ({t})(quotient - 1) : quotient;\n"
        ),
        (Op::FloorMod, false) => format!(
            "  {t} rest = cmod_{id}(x, y);\n  \
             return rest != 0 && (rest ^ y) < 0 ? ({t})(rest + y) : rest;\n"
        ),
        (Op::Max, false) => "  return x < y ? y : x;\n".into(),
        (Op::Min, false) => "  return y < x ? y : x;\n".into(),
        (Op::Max, true) => "  return x > y || x != x ? x : y;\n".into(),
        (Op::Min, true) => "  return x < y || x != x ? x : y;\n".into(),
        (Op::MulAcc, true) => (words.fused)(dtype),
        _ => return None,
    };
    let third = if op == Op::MulAcc { format!(", {t} z") } else { String::new() };
    Some((t, format!("{t} x, {t} y{third}"), body))
}

/// From a float to an integer: cut toward zero, 0 where the range is left. 16-bit floats: their
/// bits.
fn conversion(words: &Words, to: DType, from: DType) -> Option<Function> {
    let (t, s) = ((words.type_name)(to), (words.type_name)(from));
    let u32 = (words.type_name)(DType::U32);
    let body = match (from, to) {
        (DType::F32 | DType::F64, _) if to.is_int() => {
            format!("  return {} ? ({t})x : 0;\n", inside(from, to, "&&"))
        }
        (DType::F16, DType::F32) => format!(
            "  {u32} sign = ({u32})(x & 0x8000u) << 16, exponent = x >> 10 & 31u, \
             fraction = x & 1023u;\n  \
             if (exponent == 31u) return f32_from_bits(sign | 0x7f800000u | fraction << 13);\n  \
             if (exponent != 0u) return f32_from_bits(sign | (exponent + 112u) << 23 | \
             fraction << 13);\n  \
             return f32_from_bits(sign | f32_bits((float)fraction * 0x1p-24f));\n"
        ),
        // 65520 and more are infinite. Below 2^-14: neighbours of 0.5 are 2^-24 apart, as these
        // are.
        (DType::F32, DType::F16) => format!(
            "  {u32} bits = f32_bits(x), sign = bits >> 16 & 0x8000u, m = bits & 0x7fffffffu;\n  \
             if (m > 0x7f800000u) return ({t})(sign | 0x7e00u | (m >> 13 & 1023u));\n  \
             if (m >= 0x477ff000u) return ({t})(sign | 0x7c00u);\n  \
             if (m < 0x38800000u)\n    \
             return ({t})(sign | (f32_bits(f32_from_bits(m) + 0.5f) - 0x3f000000u));\n  \
             return ({t})(sign | (m - 0x38000000u + 0xfffu + (m >> 13 & 1u)) >> 13);\n"
        ),
        (DType::BF16, DType::F32) => format!("  return f32_from_bits(({u32})x << 16);\n"),
        (DType::F32, DType::BF16) => format!(
            "  {u32} bits = f32_bits(x);\n  \
             if (x != x) return ({t})(bits >> 16 | 0x40u);\n  \
             return ({t})((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);\n"
        ),
        (DType::F64, DType::F16 | DType::BF16) => {
            format!("  return {}_from_f32(f32_odd_f64(x));\n", to.name())
        }
        _ => return None,
    };
    Some((t, format!("{s} x"), body))
}

/// Whether a float x lies in the range of an integer type after it is cut toward zero.
pub(crate) fn inside(from: DType, to: DType, and: &str) -> String {
    let f = if from == DType::F32 { "f" } else { "" };
    let bits = to.bits() - u32::from(to.is_signed());
    // One below the smallest value is a float only where there are bits enough.
    let is_exact = bits < if from == DType::F32 { 24 } else { 53 };
    let above = match (to.is_signed(), is_exact) {
        (false, _) => format!("x > -1.0{f}"),
        (true, true) => format!("x > -{}.0{f}", (1u64 << bits) + 1),
        (true, false) => format!("x >= -0x1p{bits}{f}"),
    };
    format!("({above}) {and} (x < 0x1p{bits}{f})")
}

/// Rounding to odd: a later rounding to fewer bits is the only one that counts.
fn rounding(words: &Words, to: DType, from: DType) -> Option<Function> {
    let (t, s) = ((words.type_name)(to), (words.type_name)(from));
    let (u32, u64) = ((words.type_name)(DType::U32), (words.type_name)(DType::U64));
    let i64 = (words.type_name)(DType::I64);
    let body = match (to, from) {
        (DType::F32, DType::F64) => format!(
            "  float nearest = (float)x;\n  {u32} bits = f32_bits(nearest);\n  \
             if ((double)nearest == x || x != x || (bits & 1u)) return nearest;\n  \
             return f32_from_bits(fabs((double)nearest) < fabs(x) ? bits + 1u : bits - 1u);\n"
        ),
        (DType::F64, DType::I64) => format!(
            "  if (-(({i64})1 << 53) < x && x < (({i64})1 << 53)) return (double)x;\n  \
             return (double)((x & ~({i64})2047) | (x & 2047 ? 2048 : 0));\n"
        ),
        (DType::F64, DType::U64) => format!(
            "  if (x < ({u64})1 << 53) return (double)x;\n  \
             return (double)((x & ~({u64})2047) | (x & 2047u ? 2048u : 0u));\n"
        ),
        (DType::F32, DType::U64) => format!(
            "  {u64} rest = 0;\n  float scale = 1.0f;\n  \
             for (; x >> 24; x >>= 8) {{ rest |= x & 255u; scale *= 256.0f; }}\n  \
             return (float)(x | (rest != 0 ? 1u : 0u)) * scale;\n"
        ),
        (DType::F32, DType::I64) => {
            format!("  return x < 0 ? -f32_odd_u64(({u64})0 - ({u64})x) : f32_odd_u64(({u64})x);\n")
        }
        _ => return None,
    };
    Some((t, format!("{s} x"), body))
}
