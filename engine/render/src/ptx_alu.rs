//! Elementwise ops in PTX, one lane at a time: a table from op to instructions. exp2 of f32 is the
//! hardware's, accurate to 2 ulp. The other transcendental functions are lowered before rendering
//! (`unsupported` of the target).

use gradiff_graph::{Constant, DType, Op};

/// The register class of a type, and the type in instructions.
pub(crate) struct Class {
    /// The prefix of register names.
    pub(crate) prefix: &'static str,
    /// The type in declarations and moves.
    pub(crate) register_type: &'static str,
    /// The type in arithmetic instructions.
    pub(crate) op_type: &'static str,
    /// The type in loads and stores.
    pub(crate) memory_type: &'static str,
}

const CLASSES: [&str; 6] = ["p", "r", "rd", "h", "f", "fd"];

/// The register class of a type.
pub(crate) fn class(dtype: DType) -> Class {
    let row = |prefix, register_type, op_type, memory_type| Class {
        prefix,
        register_type,
        op_type,
        memory_type,
    };
    match dtype {
        DType::Bool | DType::Void => row("p", "pred", "pred", "u8"),
        DType::I8 => row("r", "b32", "s32", "s8"),
        DType::U8 => row("r", "b32", "u32", "u8"),
        DType::I16 => row("r", "b32", "s32", "s16"),
        DType::U16 => row("r", "b32", "u32", "u16"),
        DType::I32 => row("r", "b32", "s32", "s32"),
        DType::U32 => row("r", "b32", "u32", "u32"),
        DType::I64 => row("rd", "b64", "s64", "s64"),
        DType::U64 => row("rd", "b64", "u64", "u64"),
        DType::F16 => row("h", "b16", "f16", "b16"),
        DType::BF16 => row("h", "b16", "bf16", "b16"),
        DType::F32 => row("f", "f32", "f32", "f32"),
        DType::F64 => row("fd", "f64", "f64", "f64"),
    }
}

/// A sequence of instructions, and the number of registers of each class.
#[derive(Default)]
pub(crate) struct Registers {
    pub(crate) text: String,
    counts: [usize; 6],
}

impl Registers {
    pub(crate) fn line(&mut self, text: &str) {
        self.text.push('\t');
        self.text.push_str(text);
        self.text.push('\n');
    }

    pub(crate) fn label(&mut self, name: &str) {
        self.text.push_str(name);
        self.text.push_str(":\n");
    }

    /// Allocates a register for a type.
    pub(crate) fn new_register(&mut self, dtype: DType) -> String {
        let prefix = class(dtype).prefix;
        let index = CLASSES.iter().position(|name| *name == prefix).unwrap_or(0);
        self.counts[index] += 1;
        format!("%{prefix}{}", self.counts[index] - 1)
    }

    pub(crate) fn declarations(&self) -> String {
        let kinds = ["pred", "b32", "b64", "b16", "f32", "f64"];
        let used = CLASSES.iter().zip(kinds).zip(self.counts).filter(|(_, count)| *count != 0);
        let lines =
            used.map(|((prefix, kind), count)| format!("\t.reg .{kind} %{prefix}<{count}>;\n"));
        lines.collect()
    }

    /// Appends `op to, src...` and returns the new register `to`.
    fn value(&mut self, dtype: DType, op: &str, src: &[&str]) -> String {
        let name = self.new_register(dtype);
        self.line(&format!("{op} {name}, {};", src.join(", ")));
        name
    }
}

/// Loads a constant of exactly these bits into a register.
pub(crate) fn constant(out: &mut Registers, value: Constant) -> String {
    let (dtype, bits) = (value.dtype(), value.bits());
    match dtype {
        DType::Bool => {
            let number = out.value(DType::U32, "mov.b32", &[&bits.to_string()]);
            out.value(DType::Bool, "setp.ne.u32", &[&number, "0"])
        }
        DType::F32 => out.value(dtype, "mov.f32", &[&format!("0f{bits:08X}")]),
        DType::F64 => out.value(dtype, "mov.f64", &[&format!("0d{bits:016X}")]),
        DType::F16 | DType::BF16 => out.value(dtype, "mov.b16", &[&format!("{bits:#06x}")]),
        _ => {
            let number = value.to_int().unwrap_or_default();
            out.value(dtype, &format!("mov.{}", class(dtype).op_type), &[&number.to_string()])
        }
    }
}

/// Writes an op and returns the register of its result; `None` if the op is unsupported. `from` is
/// the type of the sources; for `Where` that of the two values.
pub(crate) fn alu(
    out: &mut Registers,
    op: Op,
    from: DType,
    to: DType,
    src: &[String],
) -> Option<String> {
    let src: Vec<&str> = src.iter().map(String::as_str).collect();
    match op {
        Op::Cast => cast(out, from, to, src[0]),
        Op::Bitcast => bitcast(out, from, to, src[0]),
        Op::Where if to == DType::Bool => {
            let yes = out.value(to, "and.pred", &[src[0], src[1]]);
            let not = out.value(to, "not.pred", &[src[0]]);
            let no = out.value(to, "and.pred", &[&not, src[2]]);
            Some(out.value(to, "or.pred", &[&yes, &no]))
        }
        Op::Where => Some(select(out, to, src[0], src[1], src[2])),
        _ if from == DType::Bool => bool_op(out, op, &src),
        _ if from.is_float() => float_op(out, op, from, &src),
        _ => int_op(out, op, from, &src),
    }
}

/// `x` if the gate is true, else `y`. Of bits: a `selp` of floats is a minimum or maximum for
/// NVIDIA's assembler (ptxas of CUDA 13.0) if it chooses between compared values, and gives 0.0 for
/// -0.0 if the other value is -1.0.
fn select(out: &mut Registers, dtype: DType, gate: &str, x: &str, y: &str) -> String {
    let kind = match class(dtype).register_type {
        "f32" => "b32",
        "f64" => "b64",
        kind => kind,
    };
    out.value(dtype, &format!("selp.{kind}"), &[x, y, gate])
}

fn bitcast(out: &mut Registers, from: DType, to: DType, x: &str) -> Option<String> {
    if from == to {
        return Some(x.to_string());
    }
    if from.bits() != to.bits() || [from, to].contains(&DType::Bool) {
        return None;
    }
    Some(match (from.is_half(), to.is_half()) {
        (true, true) => x.to_string(),
        (true, false) => {
            let sign = if to.is_signed() { "s" } else { "u" };
            out.value(to, &format!("cvt.{sign}32.{sign}16"), &[x])
        }
        (false, true) => out.value(to, "cvt.u16.u32", &[x]),
        // Narrow integers are extended as the new type requires.
        _ if from.bits() < 32 => wrap_narrow(out, to, x.to_string()),
        _ => out.value(to, &format!("mov.b{}", from.bits()), &[x]),
    })
}

fn bool_op(out: &mut Registers, op: Op, src: &[&str]) -> Option<String> {
    let word = match op {
        Op::CmpLt => {
            let not = out.value(DType::Bool, "not.pred", &[src[0]]);
            return Some(out.value(DType::Bool, "and.pred", &[&not, src[1]]));
        }
        Op::Add | Op::Max | Op::Or => "or.pred",
        Op::Mul | Op::Min | Op::And => "and.pred",
        Op::Sub | Op::CmpNe | Op::Xor => "xor.pred",
        _ => return None,
    };
    Some(out.value(DType::Bool, word, src))
}

fn float_op(out: &mut Registers, op: Op, dtype: DType, src: &[&str]) -> Option<String> {
    let kind = class(dtype).op_type;
    let word = match op {
        Op::Neg => "neg",
        Op::Add => "add.rn",
        Op::Sub => "sub.rn",
        Op::Mul => "mul.rn",
        Op::FDiv => "div.rn",
        Op::Recip => "rcp.rn",
        Op::Sqrt => "sqrt.rn",
        Op::MulAcc => "fma.rn",
        Op::Exp2 if dtype == DType::F32 => "ex2.approx",
        Op::CmpLt => return Some(out.value(DType::Bool, &format!("setp.lt.{kind}"), src)),
        Op::CmpNe => return Some(out.value(DType::Bool, &format!("setp.neu.{kind}"), src)),
        _ => return None,
    };
    Some(out.value(dtype, &format!("{word}.{kind}"), src))
}

/// Truncates a narrow integer to its width and extends it to 32 bits again.
fn wrap_narrow(out: &mut Registers, dtype: DType, x: String) -> String {
    match dtype {
        DType::I8 => out.value(dtype, "cvt.s32.s8", &[&x]),
        DType::I16 => out.value(dtype, "cvt.s32.s16", &[&x]),
        DType::U8 => out.value(dtype, "and.b32", &[&x, "255"]),
        DType::U16 => out.value(dtype, "and.b32", &[&x, "65535"]),
        _ => x,
    }
}

fn int_op(out: &mut Registers, op: Op, dtype: DType, src: &[&str]) -> Option<String> {
    let (kind, bits) = (class(dtype).op_type, class(dtype).register_type);
    let signed = if bits == "b64" { "s64" } else { "s32" };
    let compare = |out: &mut Registers, word: &str| {
        out.value(DType::Bool, &format!("setp.{word}.{kind}"), src)
    };
    let word = match op {
        Op::Neg => format!("neg.{signed}"),
        Op::Add => format!("add.{kind}"),
        Op::Sub => format!("sub.{kind}"),
        Op::Mul => format!("mul.lo.{kind}"),
        Op::And => format!("and.{bits}"),
        Op::Or => format!("or.{bits}"),
        Op::Xor => format!("xor.{bits}"),
        // The same assembler loses the sign of a negated operand of `max.s32` and `min.s32`.
        Op::Max | Op::Min if kind == "s32" => {
            let is_less = compare(out, "lt");
            let [less, greater] = if op == Op::Min { [src[0], src[1]] } else { [src[1], src[0]] };
            return Some(select(out, dtype, &is_less, less, greater));
        }
        Op::Max => format!("max.{kind}"),
        Op::Min => format!("min.{kind}"),
        Op::CmpLt => return Some(compare(out, "lt")),
        Op::CmpNe => return Some(compare(out, "ne")),
        Op::Shl | Op::Shr => {
            let amount = match bits {
                "b64" => out.value(DType::U32, "cvt.u32.u64", &[src[1]]),
                _ => src[1].to_string(),
            };
            let word = if op == Op::Shl { format!("shl.{bits}") } else { format!("shr.{kind}") };
            return Some(out.value(dtype, &word, &[src[0], &amount]));
        }
        Op::CDiv => format!("div.{kind}"),
        Op::CMod => format!("rem.{kind}"),
        _ => return None,
    };
    Some(out.value(dtype, &word, src))
}

fn cast(out: &mut Registers, from: DType, to: DType, x: &str) -> Option<String> {
    if from == to {
        return Some(x.to_string());
    }
    let (source, kind) = (class(from).op_type, class(to).op_type);
    Some(match (from, to) {
        (DType::Bool, _) if to.is_int() => {
            out.value(to, &format!("selp.{}", class(to).register_type), &["1", "0", x])
        }
        (DType::Bool, _) => {
            let number = cast(out, from, DType::U32, x)?;
            return cast(out, DType::U32, to, &number);
        }
        (DType::F16, DType::F32) => out.value(to, "cvt.f32.f16", &[x]),
        (DType::BF16, DType::F32) => {
            let wide = out.value(DType::U32, "cvt.u32.u16", &[x]);
            let bits = out.value(DType::U32, "shl.b32", &[&wide, "16"]);
            out.value(to, "mov.b32", &[&bits])
        }
        _ if from.is_half() => {
            let wide = cast(out, from, DType::F32, x)?;
            return cast(out, DType::F32, to, &wide);
        }
        (_, DType::Bool) => {
            let zero = constant(out, Constant::zero(from));
            let word = if from.is_float() { "neu" } else { "ne" };
            out.value(to, &format!("setp.{word}.{source}"), &[x, &zero])
        }
        (DType::F32, DType::BF16) => out.value(to, "cvt.rn.bf16.f32", &[x]),
        (_, DType::BF16) => {
            let odd = round_to_odd_f32(out, from, x);
            out.value(to, "cvt.rn.bf16.f32", &[&odd])
        }
        (_, DType::F16) => out.value(to, &format!("cvt.rn.f16.{source}"), &[x]),
        (DType::F32, DType::F64) => out.value(to, "cvt.f64.f32", &[x]),
        (DType::F64, DType::F32) => out.value(to, "cvt.rn.f32.f64", &[x]),
        _ if from.is_float() => {
            let value = out.value(to, &format!("cvt.rzi.{kind}.{source}"), &[x]);
            wrap_narrow(out, to, value)
        }
        _ if to.is_float() => out.value(to, &format!("cvt.rn.{kind}.{source}"), &[x]),
        _ if class(from).prefix == class(to).prefix => wrap_narrow(out, to, x.to_string()),
        _ if to.bits() == 64 => out.value(to, &format!("cvt.{kind}.{source}"), &[x]),
        _ => {
            let value = out.value(to, "cvt.u32.u64", &[x]);
            wrap_narrow(out, to, value)
        }
    })
}

/// Converts to f32, rounding to odd: truncates, and sets the last bit if that was inexact. Then a
/// later rounding to fewer bits is not a double rounding.
fn round_to_odd_f32(out: &mut Registers, from: DType, x: &str) -> String {
    let kind = class(from).op_type;
    let truncated = out.value(DType::F32, &format!("cvt.rz.f32.{kind}"), &[x]);
    let back = match from.is_float() {
        true => out.value(from, "cvt.f64.f32", &[&truncated]),
        false => out.value(from, &format!("cvt.rzi.{kind}.f32"), &[&truncated]),
    };
    let word = if from.is_float() { "neu" } else { "ne" };
    let is_inexact = out.value(DType::Bool, &format!("setp.{word}.{kind}"), &[&back, x]);
    let sticky = out.value(DType::U32, "selp.b32", &["1", "0", &is_inexact]);
    let bits = out.value(DType::U32, "mov.b32", &[&truncated]);
    let bits = out.value(DType::U32, "or.b32", &[&bits, &sticky]);
    out.value(DType::F32, "mov.b32", &[&bits])
}
