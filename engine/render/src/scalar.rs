//! Scalar expressions in the C-like languages: a table from op to text that keeps the meaning of
//! the op. Helpers like `mulacc_f32` are defined in each language's prelude.

use gradiff_graph::{DType, Op};

use crate::code::{Code, code, join};
use crate::dialect::Alu;

/// The scalar syntax in which the C-like languages differ.
pub(crate) struct ScalarSyntax {
    /// The name of an element type.
    pub(crate) type_name: fn(DType) -> Code,
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
    pub(crate) fn alu(&self, alu: &Alu) -> Option<Code> {
        let (src, from) = (alu.codes(), alu.from());
        Some(match alu.op {
            Op::Cast => self.cast(from, alu.dtype, src[0]),
            Op::Bitcast => self.bitcast(from, alu.dtype, src[0])?,
            Op::Where => code!("({}?{}:{})", src[0], src[1], src[2]),
            op => match from {
                DType::Bool => bool_op(op, &src)?,
                DType::F32 | DType::F64 => self.float_op(op, from, &src)?,
                _ => self.int_op(alu)?,
            },
        })
    }

    /// Converts a 16-bit float to f32.
    fn half_to_f32(&self, dtype: DType, x: &Code) -> Code {
        match (self.is_native)(dtype) {
            true => code!("((float){})", x),
            false => Code::call(format!("{dtype}_to_f32"), &[x]),
        }
    }

    /// Rounds an f32 to a 16-bit float.
    fn f32_to_half(&self, dtype: DType, x: &Code) -> Code {
        match (self.is_native)(dtype) {
            true => code!("(({}){})", (self.type_name)(dtype), x),
            false => Code::call(format!("{dtype}_from_f32"), &[x]),
        }
    }

    fn float_op(&self, op: Op, dtype: DType, src: &[&Code]) -> Option<Code> {
        let suffix = if dtype == DType::F32 { self.f32_suffix } else { "" };
        let infix = |sign: &str| code!("({}{}{})", src[0], sign, parenthesized(src[1]));
        let call = |function: &str| code!("{function}{suffix}({})", join(src, ", "));
        Some(match op {
            Op::Neg => code!("(-{})", parenthesized(src[0])),
            Op::Exp2 => call("exp2"),
            Op::Log2 => call("log2"),
            Op::Sin => call("sin"),
            Op::Sqrt => call("sqrt"),
            Op::Pow => call("pow"),
            Op::Add => infix("+"),
            Op::Sub => infix("-"),
            Op::Mul => infix("*"),
            Op::FDiv => infix("/"),
            Op::CmpLt => infix("<"),
            Op::CmpNe => infix("!="),
            Op::MulAcc => Code::call(format!("mulacc_{dtype}"), src),
            _ => return None,
        })
    }

    fn int_op(&self, alu: &Alu) -> Option<Code> {
        let (op, dtype, src) = (alu.op, alu.from(), &alu.codes()[..]);
        let is_unsigned = alu.may_wrap && !self.wraps && dtype.is_signed() && dtype.bits() >= 32;
        if is_unsigned && let Some(code) = self.via_unsigned(op, dtype, src) {
            return Some(code);
        }
        let kind = (self.type_name)(dtype);
        let infix = |sign: &str| code!("({}{}{})", src[0], sign, parenthesized(src[1]));
        let helper = |function: &str| Code::call(format!("{function}_{dtype}"), src);
        Some(match op {
            Op::Neg => code!("(-{})", parenthesized(src[0])),
            Op::Add => infix("+"),
            Op::Sub => infix("-"),
            Op::Mul => code!("({}*{})", src[0], src[1]),
            Op::CDiv => infix("/"),
            Op::CMod => infix("%"),
            Op::Max => helper("max"),
            Op::Min => helper("min"),
            Op::CmpLt => code!("({}<{})", src[0], src[1]),
            Op::CmpNe => infix("!="),
            Op::And => infix("&"),
            Op::Or => infix("|"),
            Op::Xor => infix("^"),
            Op::Shl if !self.wraps && !alu.may_wrap => infix("<<"),
            // Unsigned: never undefined.
            Op::Shl => {
                let unsigned = (self.type_name)(dtype.unsigned());
                code!("({})((({}){})<<{})", kind, unsigned, src[0], src[1])
            }
            Op::Shr => infix(">>"),
            _ => return None,
        })
    }

    /// Renders signed arithmetic that may overflow in the unsigned type.
    fn via_unsigned(&self, op: Op, dtype: DType, src: &[&Code]) -> Option<Code> {
        let (kind, unsigned) = ((self.type_name)(dtype), (self.type_name)(dtype.unsigned()));
        let src: Vec<Code> = src.iter().map(|source| code!("({}){}", unsigned, source)).collect();
        let code = match op {
            Op::Neg => code!("-{}", src[0]),
            Op::Add => code!("{}+{}", src[0], src[1]),
            Op::Sub => code!("{}-{}", src[0], src[1]),
            Op::Mul => code!("{}*{}", src[0], src[1]),
            _ => return None,
        };
        Some(code!("(({})({}))", kind, code))
    }

    fn cast(&self, from: DType, to: DType, x: &Code) -> Code {
        if from == to {
            return x.clone();
        }
        if from.is_half() {
            return self.cast(DType::F32, to, &self.half_to_f32(from, x));
        }
        let is_via_f64 = self.conversion_type == DType::F64;
        let helper = |from: DType, x: &Code| Code::call(format!("{to}_from_{from}"), &[x]);
        let odd = |odd: DType, x: &Code| Code::call(format!("{odd}_odd_{from}"), &[x]);
        match (from, to) {
            (_, DType::Bool) => code!("({}!=0)", x),
            (DType::F32, _) if to.is_half() => self.f32_to_half(to, x),
            (DType::F64, _) if to.is_half() && (self.is_native)(to) => {
                self.f32_to_half(to, &odd(DType::F32, x))
            }
            (DType::I64 | DType::U64, _) if to.is_half() && is_via_f64 => {
                helper(DType::F64, &odd(DType::F64, x))
            }
            (DType::F64, _) if to.is_half() => helper(DType::F64, x),
            _ if to.is_half() && is_via_f64 => helper(DType::F64, x),
            _ if to.is_half() && from.bits() <= 16 => {
                self.f32_to_half(to, &code!("((float){})", x))
            }
            _ if to.is_half() => {
                let odd = if from.is_signed() { "f32_odd_i64" } else { "f32_odd_u64" };
                self.f32_to_half(to, &Code::call(odd, &[x]))
            }
            (DType::F32, _) if to.is_int() => helper(self.conversion_type, x),
            (DType::F64, _) if to.is_int() => helper(DType::F64, x),
            (DType::F64, DType::F32) if is_via_f64 => helper(DType::F64, x),
            _ => code!("(({}){})", (self.type_name)(to), x),
        }
    }

    fn bitcast(&self, from: DType, to: DType, x: &Code) -> Option<Code> {
        let is_possible = from.size_bytes() == to.size_bytes() && from != DType::Bool;
        let (size, is_from, is_to) = (from.bits(), from.is_float(), to.is_float());
        let cast = |x: &Code| code!("(({}){})", (self.type_name)(to), x);
        let bits = || Code::call(format!("{from}_bits"), &[x]);
        Some(match from == to {
            true => x.clone(),
            false if !is_possible || to == DType::Bool => return None,
            false if from.is_half() && (self.is_native)(from) => {
                self.bitcast(DType::U16, to, &bits())?
            }
            false if to.is_half() && (self.is_native)(to) => {
                Code::call(format!("{to}_from_bits"), &[x])
            }
            false if size < 32 || is_from == is_to => cast(x),
            false if is_from => cast(&bits()),
            false => Code::call(format!("{to}_from_bits"), &[x]),
        })
    }
}

/// Puts parentheses around an operand that begins with `-`, since two signs would become `--`.
fn parenthesized(x: &Code) -> Code {
    if x.text.starts_with('-') { code!("({})", x) } else { x.clone() }
}

fn bool_op(op: Op, src: &[&Code]) -> Option<Code> {
    let sign = match op {
        Op::Neg => return Some(src[0].clone()),
        Op::Add | Op::Max | Op::Or => "|",
        Op::Mul | Op::Min | Op::And => "&",
        Op::CmpLt => "<",
        Op::Sub | Op::CmpNe | Op::Xor => "!=",
        _ => return None,
    };
    Some(code!("({}{}{})", src[0], sign, src[1]))
}
