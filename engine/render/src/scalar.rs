//! Scalar expressions in the C-like languages: a table from op to text that keeps the meaning of
//! the op. Narrow arithmetic, which these languages promote to `int`, is truncated again; no shift
//! and no division is undefined. Helpers like `max_f32` are defined in each language's prelude.

use gradiff_graph::{DType, Op};

use crate::dialect::{Alu, Value};

/// The scalar syntax in which the C-like languages differ.
pub(crate) struct ScalarSyntax {
    /// The name of an element type.
    pub(crate) type_name: fn(DType) -> &'static str,
    /// The suffix of math functions of f32.
    pub(crate) f32_suffix: &'static str,
    /// The qualifiers before the return type of a function.
    pub(crate) function: &'static str,
    /// True if signed arithmetic of 32 and 64 bits wraps; if not, it is done in unsigned types.
    pub(crate) wraps: bool,
    /// The float type through which casts between integers and floats go: f64 for all, or f32 for
    /// all but those of f64.
    pub(crate) conversion_type: DType,
    /// Returns whether the language has this 16-bit float type, with operators and casts.
    pub(crate) is_native: fn(DType) -> bool,
    /// The body of the helper for multiply-add.
    pub(crate) fma_body: fn(DType) -> String,
}

impl ScalarSyntax {
    /// Renders a scalar elementwise op.
    pub(crate) fn alu(&self, alu: &Alu) -> Option<String> {
        let (src, from) = (alu.texts(), alu.from());
        Some(match alu.op {
            Op::Cast => self.cast(from, alu.dtype, src[0]),
            Op::Bitcast => self.bitcast(from, alu.dtype, src[0])?,
            Op::Where => format!("({}?{}:{})", src[0], src[1], src[2]),
            op => match from {
                DType::Bool => bool_op(op, &src)?,
                DType::F16 | DType::BF16 => self.half_op(op, from, &src)?,
                DType::F32 | DType::F64 => self.float_op(op, from, &src)?,
                _ => self.int_op(alu)?,
            },
        })
    }

    /// Renders an op of a 16-bit float, computed in f32 and rounded. If the language has the type,
    /// sums, products and comparisons use it directly, which gives the same result.
    fn half_op(&self, op: Op, dtype: DType, src: &[&str]) -> Option<String> {
        let is_simple = matches!(op, Op::Neg | Op::Add | Op::Sub | Op::Mul) || op.is_comparison();
        if (self.is_native)(dtype) && is_simple {
            return self.float_op(op, dtype, src);
        }
        let wide: Vec<String> = src.iter().map(|source| self.half_to_f32(dtype, source)).collect();
        let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
        let text = self.float_op(op, DType::F32, &wide)?;
        Some(if op.is_comparison() { text } else { self.f32_to_half(dtype, &text) })
    }

    /// Converts a 16-bit float to f32.
    fn half_to_f32(&self, dtype: DType, x: &str) -> String {
        match (self.is_native)(dtype) {
            true => format!("((float){x})"),
            false => format!("{}_to_f32({x})", dtype.name()),
        }
    }

    /// Rounds an f32 to a 16-bit float.
    fn f32_to_half(&self, dtype: DType, x: &str) -> String {
        match (self.is_native)(dtype) {
            true => format!("(({}){x})", (self.type_name)(dtype)),
            false => format!("{}_from_f32({x})", dtype.name()),
        }
    }

    fn float_op(&self, op: Op, dtype: DType, src: &[&str]) -> Option<String> {
        let suffix = if dtype == DType::F32 { self.f32_suffix } else { "" };
        let infix = |sign: &str| format!("({}{sign}{})", src[0], parenthesized(src[1]));
        let call = |function: &str| format!("{function}{suffix}({})", src.join(", "));
        let helper = |function: &str| format!("{function}_{}({})", dtype.name(), src.join(", "));
        Some(match op {
            Op::Neg => format!("(-{})", parenthesized(src[0])),
            Op::Exp2 => call("exp2"),
            Op::Log2 => call("log2"),
            Op::Sin => call("sin"),
            Op::Sqrt => call("sqrt"),
            Op::Pow => call("pow"),
            Op::Recip => format!("({}/{})", one_literal(dtype), src[0]),
            Op::Add => infix("+"),
            Op::Sub => infix("-"),
            Op::Mul => infix("*"),
            Op::FDiv => infix("/"),
            Op::CmpLt => infix("<"),
            Op::CmpNe => infix("!="),
            Op::Max => helper("max"),
            Op::Min => helper("min"),
            Op::MulAcc => helper("mulacc"),
            _ => return None,
        })
    }

    fn int_op(&self, alu: &Alu) -> Option<String> {
        let (op, dtype, src) = (alu.op, alu.from(), &alu.texts()[..]);
        let divisor = alu.src.get(1).and_then(Value::known_int);
        let is_unsigned = alu.may_wrap && !self.wraps && dtype.is_signed() && dtype.bits() >= 32;
        if is_unsigned && let Some(text) = self.via_unsigned(op, dtype, src) {
            return Some(text);
        }
        let kind = (self.type_name)(dtype);
        let infix = |sign: &str| format!("({}{sign}{})", src[0], parenthesized(src[1]));
        let helper = |function: &str| format!("{function}_{}({})", dtype.name(), src.join(", "));
        let is_plain_divisor = divisor.is_some_and(|divisor| divisor != 0 && divisor != -1);
        let is_floor_trunc = !dtype.is_signed();
        Some(match op {
            Op::Neg => self.truncate(dtype, format!("(-{})", parenthesized(src[0]))),
            Op::Add => self.truncate(dtype, infix("+")),
            Op::Sub => self.truncate(dtype, infix("-")),
            Op::Mul => {
                self.truncate(dtype, format!("({}{}*{})", product_cast(dtype), src[0], src[1]))
            }
            Op::MulAcc => {
                let product = format!("({}{}*{})", product_cast(dtype), src[0], src[1]);
                self.truncate(dtype, format!("({product}+{})", src[2]))
            }
            Op::CDiv if is_plain_divisor => infix("/"),
            Op::CMod if is_plain_divisor => infix("%"),
            Op::FloorDiv if is_plain_divisor && is_floor_trunc => infix("/"),
            Op::FloorMod if is_plain_divisor && is_floor_trunc => infix("%"),
            Op::FloorDiv if !is_floor_trunc => helper("floordiv"),
            Op::FloorMod if !is_floor_trunc => helper("floormod"),
            Op::CDiv | Op::FloorDiv => helper("cdiv"),
            Op::CMod | Op::FloorMod => helper("cmod"),
            Op::Max => helper("max"),
            Op::Min => helper("min"),
            Op::CmpLt => format!("({}<{})", src[0], src[1]),
            Op::CmpNe => infix("!="),
            Op::And => infix("&"),
            Op::Or => infix("|"),
            Op::Xor => infix("^"),
            Op::Shl if !self.wraps && !alu.may_wrap => {
                format!("({}<<{})", src[0], shift_amount(dtype, src[1], divisor))
            }
            // Unsigned, and by an amount below the width: never undefined.
            Op::Shl => {
                let unsigned = (self.type_name)(as_unsigned(dtype));
                let amount = shift_amount(dtype, src[1], divisor);
                format!("({kind})((({unsigned}){})<<{amount})", src[0])
            }
            Op::Shr => format!("({}>>{})", src[0], shift_amount(dtype, src[1], divisor)),
            _ => return None,
        })
    }

    /// Renders signed arithmetic that may overflow in the unsigned type.
    fn via_unsigned(&self, op: Op, dtype: DType, src: &[&str]) -> Option<String> {
        let (kind, unsigned) = ((self.type_name)(dtype), (self.type_name)(as_unsigned(dtype)));
        let src: Vec<String> = src.iter().map(|source| format!("({unsigned}){source}")).collect();
        let text = match op {
            Op::Neg => format!("-{}", src[0]),
            Op::Add => format!("{}+{}", src[0], src[1]),
            Op::Sub => format!("{}-{}", src[0], src[1]),
            Op::Mul => format!("{}*{}", src[0], src[1]),
            Op::MulAcc => format!("{}*{}+{}", src[0], src[1], src[2]),
            _ => return None,
        };
        Some(format!("(({kind})({text}))"))
    }

    /// Truncates a result to its type, since C promotes types narrower than `int` to `int`.
    fn truncate(&self, dtype: DType, text: String) -> String {
        if dtype.bits() < 32 { format!("(({}){text})", (self.type_name)(dtype)) } else { text }
    }

    fn cast(&self, from: DType, to: DType, x: &str) -> String {
        if from == to {
            return x.to_string();
        }
        if is_half(from) {
            return self.cast(DType::F32, to, &self.half_to_f32(from, x));
        }
        let is_via_f64 = self.conversion_type == DType::F64;
        match (from, to) {
            (_, DType::Bool) => format!("({x}!=0)"),
            (DType::F32, _) if is_half(to) => self.f32_to_half(to, x),
            (DType::F64, _) if is_half(to) && (self.is_native)(to) => {
                self.f32_to_half(to, &format!("f32_odd_f64({x})"))
            }
            (DType::I64 | DType::U64, _) if is_half(to) && is_via_f64 => {
                format!("{}_from_f64(f64_odd_{}({x}))", to.name(), from.name())
            }
            (DType::F64, _) if is_half(to) => format!("{}_from_f64({x})", to.name()),
            _ if is_half(to) && is_via_f64 => format!("{}_from_f64({x})", to.name()),
            _ if is_half(to) && from.bits() <= 16 => self.f32_to_half(to, &format!("((float){x})")),
            _ if is_half(to) => {
                let odd = if from.is_signed() { "f32_odd_i64" } else { "f32_odd_u64" };
                self.f32_to_half(to, &format!("{odd}({x})"))
            }
            (DType::F32, _) if to.is_int() => {
                format!("{}_from_{}({x})", to.name(), self.conversion_type.name())
            }
            (DType::F64, _) if to.is_int() => format!("{}_from_f64({x})", to.name()),
            (DType::F64, DType::F32) if is_via_f64 => format!("f32_from_f64({x})"),
            _ => format!("(({}){x})", (self.type_name)(to)),
        }
    }

    fn bitcast(&self, from: DType, to: DType, x: &str) -> Option<String> {
        let is_possible = from.size_bytes() == to.size_bytes() && from != DType::Bool;
        let (size, is_from, is_to) = (from.bits(), from.is_float(), to.is_float());
        Some(match from == to {
            true => x.to_string(),
            false if !is_possible || to == DType::Bool => return None,
            false if is_half(from) && (self.is_native)(from) => {
                let bits = format!("{}_bits({x})", from.name());
                self.bitcast(DType::U16, to, &bits)?
            }
            false if is_half(to) && (self.is_native)(to) => format!("{}_from_bits({x})", to.name()),
            false if size < 32 || is_from == is_to => format!("(({}){x})", (self.type_name)(to)),
            false if is_from => format!("(({})f{size}_bits({x}))", (self.type_name)(to)),
            false => format!("f{size}_from_bits({x})"),
        })
    }
}

/// Puts parentheses around an operand that begins with `-`, since two signs would become `--`.
fn parenthesized(x: &str) -> String {
    if x.starts_with('-') { format!("({x})") } else { x.to_string() }
}

/// The literal 1 of a float type.
fn one_literal(dtype: DType) -> &'static str {
    if dtype == DType::F32 { "1.0f" } else { "1.0" }
}

fn bool_op(op: Op, src: &[&str]) -> Option<String> {
    let sign = match op {
        Op::Neg => return Some(src[0].to_string()),
        Op::Add | Op::Max | Op::Or => "|",
        Op::Mul | Op::Min | Op::And => "&",
        Op::CmpLt => "<",
        Op::Sub | Op::CmpNe | Op::Xor => "!=",
        _ => return None,
    };
    Some(format!("({}{sign}{})", src[0], src[1]))
}

/// Cast of a factor to `unsigned int` for u16, since C promotes u16 to `int`, which the product
/// may overflow.
fn product_cast(dtype: DType) -> &'static str {
    if dtype == DType::U16 { "(unsigned int)" } else { "" }
}

/// A shift amount masked to the width of the type, so that the shift is defined in C.
fn shift_amount(dtype: DType, amount: &str, known: Option<i128>) -> String {
    match known {
        Some(bits) if 0 <= bits && bits < i128::from(dtype.bits()) => bits.to_string(),
        _ => format!("({amount}&{})", dtype.bits() - 1),
    }
}

/// The unsigned integer type of the same width; other types as they are.
pub(crate) fn as_unsigned(dtype: DType) -> DType {
    match dtype {
        DType::I8 => DType::U8,
        DType::I16 => DType::U16,
        DType::I32 => DType::U32,
        DType::I64 => DType::U64,
        other => other,
    }
}

/// Returns whether a type is a 16-bit float.
pub(crate) fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}
