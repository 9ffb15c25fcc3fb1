//! Definitions of the helpers that a file uses, in dependency order. Here are also the scalar
//! helpers that the C-like languages share.

use std::collections::BTreeSet;

use gradiff_graph::{DType, Op};

use crate::code::{Code, Helpers, code};
use crate::scalar::ScalarSyntax;

/// The definitions of helpers and of all that they depend on.
pub(crate) struct Definitions {
    definition: fn(&str) -> Option<Code>,
    names: BTreeSet<String>,
    /// The definitions, dependencies first.
    pub(crate) text: String,
}

impl Definitions {
    /// Collects the definitions of helpers. `definition` gives that of a name.
    ///
    /// # Panics
    /// If a helper has no definition.
    pub(crate) fn of(helpers: &Helpers, definition: fn(&str) -> Option<Code>) -> Definitions {
        let mut definitions =
            Definitions { definition, names: BTreeSet::new(), text: String::new() };
        definitions.add(helpers);
        definitions
    }

    fn add(&mut self, helpers: &Helpers) {
        for name in helpers.iter() {
            if self.names.insert(name.to_string()) {
                let code = (self.definition)(name);
                let code = code.unwrap_or_else(|| panic!("helper {name} has no definition"));
                self.add(&code.helpers);
                self.text.push_str(&code.text);
            }
        }
    }

    /// The names of the helpers, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Returns whether the helper of this name is among them.
    pub(crate) fn contain(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

/// Splits a name like `max_f32x4` into function, lane type and number of lanes.
pub(crate) fn parse_vector(word: &str) -> Option<(&str, DType, u8)> {
    let (function, kind) = word.rsplit_once('_')?;
    let (dtype, lanes) = kind.split_once('x')?;
    Some((function, DType::from_name(dtype)?, lanes.parse().ok()?))
}

/// Returns the definition of a scalar helper of the C-like languages. No conversion is undefined.
pub(crate) fn function(syntax: &ScalarSyntax, name: &str) -> Option<Code> {
    let (first, last) = name.rsplit_once('_')?;
    let (kind, parameters, body) = match (first.split_once('_'), DType::from_name(last)) {
        (None, Some(dtype)) => arithmetic(syntax, first, dtype)?,
        (Some((to, "from")), Some(from)) => conversion(syntax, DType::from_name(to)?, from)?,
        (Some((from, "to")), Some(to)) => conversion(syntax, to, DType::from_name(from)?)?,
        (Some((to, "odd")), Some(from)) => rounding(syntax, DType::from_name(to)?, from)?,
        _ => return None,
    };
    let start = syntax.function;
    Some(code!("{start}{kind} {name}({parameters}) {{\n{body}}}\n"; kind, parameters, body))
}

/// Return type, parameters and body.
type Function = (Code, Code, Code);

/// Maximum and minimum of integers, and multiply-add.
fn arithmetic(syntax: &ScalarSyntax, name: &str, dtype: DType) -> Option<Function> {
    let t = (syntax.type_name)(dtype);
    let op = Op::from_name(name)?;
    let body = match (op, dtype.is_float()) {
        (Op::Max, false) => "  return x < y ? y : x;\n".into(),
        (Op::Min, false) => "  return y < x ? y : x;\n".into(),
        (Op::MulAcc, true) => (syntax.fma_body)(dtype).into(),
        _ => return None,
    };
    let mut parameters = code!("{t} x, {t} y"; t);
    if op == Op::MulAcc {
        parameters.push(&code!(", {t} z"; t));
    }
    Some((t, parameters, body))
}

/// Conversions. Floats are truncated toward zero to integers, and give 0 if out of range. 16-bit
/// floats are represented by their bits.
fn conversion(syntax: &ScalarSyntax, to: DType, from: DType) -> Option<Function> {
    let (t, s) = ((syntax.type_name)(to), (syntax.type_name)(from));
    let u32 = (syntax.type_name)(DType::U32);
    let (f32_bits, f32_from_bits) = (Code::helper("f32_bits"), Code::helper("f32_from_bits"));
    let body = match (from, to) {
        (DType::F32 | DType::F64, _) if to.is_int() => {
            code!("  return {} ? ({})x : 0;\n", in_range(from, to, "&&"), t)
        }
        (DType::F16, DType::F32) => code!(
            "  {u32} sign = ({u32})(x & 0x8000u) << 16, exponent = x >> 10 & 31u, \
             fraction = x & 1023u;\n  \
             if (exponent == 31u) return {f32_from_bits}(sign | 0x7f800000u | fraction << 13);\n  \
             if (exponent != 0u) return {f32_from_bits}(sign | (exponent + 112u) << 23 | \
             fraction << 13);\n  \
             return {f32_from_bits}(sign | {f32_bits}((float)fraction * 0x1p-24f));\n";
            u32, f32_from_bits, f32_bits
        ),
        // Values from 65520 round to infinity. Below 2^-14 f16 has a spacing of 2^-24, which is
        // that of f32 at 0.5: adding 0.5 rounds.
        (DType::F32, DType::F16) => code!(
            "  {u32} bits = {f32_bits}(x), sign = bits >> 16 & 0x8000u, m = bits & 0x7fffffffu;\n  \
             if (m > 0x7f800000u) return ({t})(sign | 0x7e00u | (m >> 13 & 1023u));\n  \
             if (m >= 0x477ff000u) return ({t})(sign | 0x7c00u);\n  \
             if (m < 0x38800000u)\n    \
             return ({t})(sign | ({f32_bits}({f32_from_bits}(m) + 0.5f) - 0x3f000000u));\n  \
             return ({t})(sign | (m - 0x38000000u + 0xfffu + (m >> 13 & 1u)) >> 13);\n";
            u32, f32_bits, t, f32_from_bits
        ),
        (DType::BF16, DType::F32) => {
            code!("  return {f32_from_bits}(({u32})x << 16);\n"; f32_from_bits, u32)
        }
        (DType::F32, DType::BF16) => code!(
            "  {u32} bits = {f32_bits}(x);\n  \
             if (x != x) return ({t})(bits >> 16 | 0x40u);\n  \
             return ({t})((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);\n";
            u32, f32_bits, t
        ),
        (DType::F64, DType::F16 | DType::BF16) => {
            let from_f32 = Code::helper(format!("{to}_from_f32"));
            let f32_odd_f64 = Code::helper("f32_odd_f64");
            code!("  return {from_f32}({f32_odd_f64}(x));\n"; from_f32, f32_odd_f64)
        }
        _ => return None,
    };
    Some((t, code!("{s} x"; s), body))
}

/// Condition that a float `x`, truncated toward zero, is in the range of an integer type. `and` is
/// the operator that joins the two bounds.
pub(crate) fn in_range(from: DType, to: DType, and: &str) -> String {
    let f = if from == DType::F32 { "f" } else { "" };
    let bits = to.bits() - u32::from(to.is_signed());
    // The smallest value minus 1 is a float only if the mantissa has enough bits.
    let is_lower_bound_exact = bits < if from == DType::F32 { 24 } else { 53 };
    let lower_bound = match (to.is_signed(), is_lower_bound_exact) {
        (false, _) => format!("x > -1.0{f}"),
        (true, true) => format!("x > -{}.0{f}", (1u64 << bits) + 1),
        (true, false) => format!("x >= -0x1p{bits}{f}"),
    };
    format!("({lower_bound}) {and} (x < 0x1p{bits}{f})")
}

/// Conversions that round to odd, so that a later rounding to fewer bits is not a double rounding.
fn rounding(syntax: &ScalarSyntax, to: DType, from: DType) -> Option<Function> {
    let (t, s) = ((syntax.type_name)(to), (syntax.type_name)(from));
    let (u32, u64) = ((syntax.type_name)(DType::U32), (syntax.type_name)(DType::U64));
    let (f64, i64) = ((syntax.type_name)(DType::F64), (syntax.type_name)(DType::I64));
    let (f32_bits, f32_from_bits) = (Code::helper("f32_bits"), Code::helper("f32_from_bits"));
    let body = match (to, from) {
        (DType::F32, DType::F64) => code!(
            "  float nearest = (float)x;\n  {u32} bits = {f32_bits}(nearest);\n  \
             if (({f64})nearest == x || x != x || (bits & 1u)) return nearest;\n  \
             return {f32_from_bits}(fabs(({f64})nearest) < fabs(x) ? bits + 1u : bits - 1u);\n";
            u32, f32_bits, f64, f32_from_bits
        ),
        (DType::F64, DType::I64) => code!(
            "  if (-(({i64})1 << 53) < x && x < (({i64})1 << 53)) return ({f64})x;\n  \
             return ({f64})((x & ~({i64})2047) | (x & 2047 ? 2048 : 0));\n";
            i64, f64
        ),
        (DType::F64, DType::U64) => code!(
            "  if (x < ({u64})1 << 53) return ({f64})x;\n  \
             return ({f64})((x & ~({u64})2047) | (x & 2047u ? 2048u : 0u));\n";
            u64, f64
        ),
        (DType::F32, DType::U64) => code!(
            "  {u64} rest = 0;\n  float scale = 1.0f;\n  \
             for (; x >> 24; x >>= 8) {{ rest |= x & 255u; scale *= 256.0f; }}\n  \
             return (float)(x | (rest != 0 ? 1u : 0u)) * scale;\n";
            u64
        ),
        (DType::F32, DType::I64) => {
            let odd = Code::helper("f32_odd_u64");
            code!("  return x < 0 ? -{odd}(({u64})0 - ({u64})x) : {odd}(({u64})x);\n"; odd, u64)
        }
        _ => return None,
    };
    Some((t, code!("{s} x"; s), body))
}
