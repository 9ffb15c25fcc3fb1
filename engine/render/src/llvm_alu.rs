//! Elementwise ops in LLVM IR, scalar or vector: a table from op to instructions. Casts from floats
//! saturate, so that no result is poison.

use gradiff_graph::{Constant, DType, Op};

use crate::code::{Code, code};
use crate::llvm_body::Body;

/// The operand and result types of an op.
#[derive(Clone, Copy)]
pub(crate) struct Signature {
    /// The type of the sources; for `Where` that of the two values.
    pub(crate) from: DType,
    /// The type of the result.
    pub(crate) to: DType,
    /// The number of lanes.
    pub(crate) lanes: u8,
}

/// The name of a scalar or vector type.
pub(crate) fn type_of(dtype: DType, lanes: u8) -> String {
    let name = element(dtype);
    if lanes == 1 { name.to_string() } else { format!("<{lanes} x {name}>") }
}

fn element(dtype: DType) -> &'static str {
    match dtype {
        DType::Void => "void",
        DType::Bool => "i1",
        DType::I8 | DType::U8 => "i8",
        DType::I16 | DType::U16 | DType::BF16 => "i16",
        DType::I32 | DType::U32 => "i32",
        DType::I64 | DType::U64 => "i64",
        DType::F16 => "half",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

/// A constant of exactly these bits. LLVM writes an f32 as the f64 of the same value.
pub(crate) fn constant(value: Constant) -> String {
    let bits = value.bits();
    match value.dtype() {
        DType::Bool => value.is_true().to_string(),
        DType::BF16 => bits.to_string(),
        DType::F16 => format!("0xH{bits:04X}"),
        DType::F64 => format!("0x{bits:016X}"),
        DType::F32 if value.to_float().is_some_and(f64::is_nan) => {
            let (sign, fraction) = (bits >> 31 << 63, (bits & 0x7f_ffff) << 29);
            format!("0x{:016X}", sign | 0x7ff << 52 | fraction)
        }
        DType::F32 => format!("0x{:016X}", value.to_float().map_or(0, f64::to_bits)),
        _ => value.to_int().map_or(String::new(), |value| value.to_string()),
    }
}

/// A constant in all lanes.
fn splat(value: Constant, lanes: u8) -> String {
    if lanes == 1 {
        return constant(value);
    }
    let (kind, text) = (element(value.dtype()), constant(value));
    let lanes = vec![format!("{kind} {text}"); lanes.into()];
    format!("<{}>", lanes.join(", "))
}

/// An integer of a type in all lanes.
fn int_splat(dtype: DType, value: i128, lanes: u8) -> String {
    splat(Constant::int(dtype, value), lanes)
}

/// Writes an op and returns the name of its result; `None` if the op is unsupported.
pub(crate) fn alu(body: &mut Body, op: Op, signature: Signature, src: &[String]) -> Option<String> {
    let kind = type_of(signature.from, signature.lanes);
    match op {
        Op::Cast => cast(body, signature, &src[0]),
        Op::Bitcast => bitcast(body, signature, &src[0]),
        Op::Where => {
            let gate = type_of(DType::Bool, signature.lanes);
            let (x, y) = (&src[1], &src[2]);
            Some(body.value(&format!("select {gate} {}, {kind} {x}, {kind} {y}", src[0])))
        }
        _ if signature.from == DType::Bool => bool_op(body, op, signature, src),
        _ if signature.from.is_float() => float_op(body, op, signature.from, signature.lanes, src),
        _ => int_op(body, op, signature, src),
    }
}

fn bitcast(body: &mut Body, signature: Signature, x: &str) -> Option<String> {
    let Signature { from, to, lanes } = signature;
    if from != to && (from.bits() != to.bits() || [from, to].contains(&DType::Bool)) {
        return None;
    }
    if element(from) == element(to) {
        return Some(x.to_string());
    }
    let (from, to) = (type_of(from, lanes), type_of(to, lanes));
    Some(body.value(&format!("bitcast {from} {x} to {to}")))
}

fn bool_op(body: &mut Body, op: Op, signature: Signature, src: &[String]) -> Option<String> {
    let kind = type_of(DType::Bool, signature.lanes);
    let word = match op {
        Op::Add | Op::Max | Op::Or => "or",
        Op::Mul | Op::Min | Op::And => "and",
        Op::Sub | Op::CmpNe | Op::Xor => "xor",
        Op::CmpLt => {
            let truth = splat(Constant::one(DType::Bool), signature.lanes);
            let not = body.value(&format!("xor {kind} {}, {truth}", src[0]));
            return Some(body.value(&format!("and {kind} {not}, {}", src[1])));
        }
        _ => return None,
    };
    Some(body.value(&format!("{word} {kind} {}, {}", src[0], src[1])))
}

fn float_op(body: &mut Body, op: Op, dtype: DType, lanes: u8, src: &[String]) -> Option<String> {
    let kind = type_of(dtype, lanes);
    let binary = |word: &str| Code::from(format!("{word} {kind} {}, {}", src[0], src[1]));
    let code = match op {
        Op::Neg => format!("fneg {kind} {}", src[0]).into(),
        Op::Add => binary("fadd"),
        Op::Sub => binary("fsub"),
        Op::Mul => binary("fmul"),
        Op::FDiv => binary("fdiv"),
        Op::CmpLt => binary("fcmp olt"),
        Op::CmpNe => binary("fcmp une"),
        Op::Exp2 | Op::Log2 | Op::Sin | Op::Sqrt | Op::Pow => call(op.name(), dtype, lanes, src),
        Op::MulAcc => call("fma", dtype, lanes, src),
        _ => return None,
    };
    Some(body.value(&code))
}

/// The type in the names of intrinsics, as `v4f32`.
fn suffix(dtype: DType, lanes: u8) -> String {
    let name = match dtype {
        DType::F16 | DType::F32 | DType::F64 => format!("f{}", dtype.bits()),
        _ => element(dtype).to_string(),
    };
    if lanes == 1 { name } else { format!("v{lanes}{name}") }
}

fn call(function: &str, dtype: DType, lanes: u8, src: &[String]) -> Code {
    let kind = type_of(dtype, lanes);
    let arguments: Vec<String> = src.iter().map(|value| format!("{kind} {value}")).collect();
    let name = Code::helper(format!("llvm.{function}.{}", suffix(dtype, lanes)));
    code!("call {kind} @{}({})", name, arguments.join(", "))
}

/// The type that a name of an intrinsic contains: the inverse of [`suffix`].
fn type_of_suffix(suffix: &str) -> Option<String> {
    let (lanes, name) = match suffix.strip_prefix('v') {
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?),
        None => ("", suffix),
    };
    let name = match name {
        "f16" => "half",
        "f32" => "float",
        "f64" => "double",
        _ => name,
    };
    Some(if lanes.is_empty() { name.to_string() } else { format!("<{lanes} x {name}>") })
}

/// Returns the declaration of an intrinsic. Its name ends with the type of the arguments, before
/// which is that of the result if it is another one.
pub(crate) fn declaration(name: &str) -> Option<String> {
    let (rest, from) = name.strip_prefix("llvm.")?.rsplit_once('.')?;
    let (function, to) = rest.rsplit_once('.').unwrap_or((rest, from));
    let count = match function {
        "pow" => 2,
        "fma" => 3,
        _ => 1,
    };
    let arguments = vec![type_of_suffix(from)?; count].join(", ");
    Some(format!("declare {} @{name}({arguments})\n", type_of_suffix(to)?))
}

fn int_op(body: &mut Body, op: Op, signature: Signature, src: &[String]) -> Option<String> {
    let (dtype, lanes) = (signature.from, signature.lanes);
    let kind = type_of(dtype, lanes);
    let sign = if dtype.is_signed() { "s" } else { "u" };
    let binary = |word: &str| format!("{word} {kind} {}, {}", src[0], src[1]);
    let text = match op {
        Op::Neg => format!("sub {kind} {}, {}", int_splat(dtype, 0, lanes), src[0]),
        Op::Add => binary("add"),
        Op::Sub => binary("sub"),
        Op::Mul => binary("mul"),
        Op::And => binary("and"),
        Op::Or => binary("or"),
        Op::Xor => binary("xor"),
        Op::CmpLt => binary(&format!("icmp {sign}lt")),
        Op::CmpNe => binary("icmp ne"),
        Op::Max | Op::Min => {
            let order = if op == Op::Max { "gt" } else { "lt" };
            let first = body.value(&binary(&format!("icmp {sign}{order}")));
            let bools = type_of(DType::Bool, lanes);
            format!("select {bools} {first}, {kind} {}, {kind} {}", src[0], src[1])
        }
        Op::Shl => binary("shl"),
        Op::Shr => binary(if dtype.is_signed() { "ashr" } else { "lshr" }),
        Op::CDiv => binary(&format!("{sign}div")),
        Op::CMod => binary(&format!("{sign}rem")),
        _ => return None,
    };
    Some(body.value(&text))
}

fn cast(body: &mut Body, signature: Signature, x: &str) -> Option<String> {
    let Signature { from, to, lanes } = signature;
    if from == to {
        return Some(x.to_string());
    }
    let mut convert = |word: &str, x: &str, from: DType, to: DType| {
        body.value(&format!("{word} {} {x} to {}", type_of(from, lanes), type_of(to, lanes)))
    };
    let through = |body: &mut Body, middle: DType, x: &str| {
        let middle_value = cast(body, Signature { to: middle, ..signature }, x)?;
        cast(body, Signature { from: middle, ..signature }, &middle_value)
    };
    Some(match (from, to) {
        (DType::BF16, DType::F32) => {
            let wide = convert("zext", x, DType::U16, DType::U32);
            let sixteen = int_splat(DType::U32, 16, lanes);
            let kind = type_of(DType::U32, lanes);
            let bits = body.value(&format!("shl {kind} {wide}, {sixteen}"));
            let float = type_of(DType::F32, lanes);
            body.value(&format!("bitcast {kind} {bits} to {float}"))
        }
        (DType::F16, DType::F32) => convert("fpext", x, from, to),
        _ if from.is_half() => return through(body, DType::F32, x),
        (_, DType::Bool) => {
            let zero = splat(Constant::zero(from), lanes);
            let word = if from.is_float() { "fcmp une" } else { "icmp ne" };
            body.value(&format!("{word} {} {x}, {zero}", type_of(from, lanes)))
        }
        (DType::F32 | DType::F64, DType::F16) => convert("fptrunc", x, from, to),
        (DType::F32 | DType::F64 | DType::I64 | DType::U64, DType::BF16) => {
            return by_lanes(body, signature, x);
        }
        (DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::Bool, DType::BF16) => {
            return through(body, DType::F32, x);
        }
        // Integers that are not exact in f64 are infinite in f16.
        _ if to.is_half() => return through(body, DType::F64, x),
        _ if from.is_float() && to.is_float() => {
            convert(if to == DType::F64 { "fpext" } else { "fptrunc" }, x, from, to)
        }
        _ if from.is_float() => {
            let function = if to.is_signed() { "fptosi.sat" } else { "fptoui.sat" };
            let (kind, source) = (type_of(to, lanes), type_of(from, lanes));
            let name = format!("llvm.{function}.{}.{}", suffix(to, lanes), suffix(from, lanes));
            body.value(&code!("call {kind} @{}({source} {x})", Code::helper(name)))
        }
        _ if to.is_float() => {
            convert(if from.is_signed() { "sitofp" } else { "uitofp" }, x, from, to)
        }
        _ if element(from) == element(to) => x.to_string(),
        _ if to.bits() < from.bits() => convert("trunc", x, from, to),
        _ => convert(if from.is_signed() { "sext" } else { "zext" }, x, from, to),
    })
}

/// Calls a helper of this file on each lane.
fn by_lanes(body: &mut Body, signature: Signature, x: &str) -> Option<String> {
    let Signature { from, to, lanes } = signature;
    let (lane_type, vector_type) = (element(from), type_of(from, lanes));
    let function = Code::helper(format!("{to}_from_{from}"));
    let call =
        |body: &mut Body, x: &str| body.value(&code!("call i16 @{}({lane_type} {x})", function));
    if lanes == 1 {
        return Some(call(body, x));
    }
    let mut vector = "poison".to_string();
    for lane in 0..lanes {
        let value = body.value(&format!("extractelement {vector_type} {x}, i64 {lane}"));
        let value = call(body, &value);
        let kind = type_of(to, lanes);
        vector = body.value(&format!("insertelement {kind} {vector}, i16 {value}, i64 {lane}"));
    }
    Some(vector)
}

/// Returns the definition of a helper: the conversions to bf16. Sources wider than f32 are first
/// rounded to odd, so that the final rounding is not a double rounding.
pub(crate) fn helper(word: &str) -> Option<Code> {
    let (head, text, helpers): (_, _, &[&str]) = match word {
        "bf16_from_f32" => (
            "i16 @bf16_from_f32(float %x)",
            "%b = bitcast float %x to i32
  %nan = fcmp uno float %x, %x
  %top = lshr i32 %b, 16
  %odd = and i32 %top, 1
  %half = add i32 %odd, 32767
  %sum = add i32 %b, %half
  %rounded = lshr i32 %sum, 16
  %quiet = or i32 %top, 64
  %r = select i1 %nan, i32 %quiet, i32 %rounded
  %s = trunc i32 %r to i16
  ret i16 %s",
            &[],
        ),
        "bf16_from_f64" => (
            "i16 @bf16_from_f64(double %x)",
            "%n = fptrunc double %x to float
  %back = fpext float %n to double
  %b = bitcast float %n to i32
  %bit = and i32 %b, 1
  %is_odd = icmp ne i32 %bit, 0
  %same = fcmp ueq double %back, %x
  %keep = or i1 %is_odd, %same
  %size = call double @llvm.fabs.f64(double %x)
  %near = call double @llvm.fabs.f64(double %back)
  %low = fcmp olt double %near, %size
  %step = select i1 %low, i32 1, i32 -1
  %stepped = add i32 %b, %step
  %r = select i1 %keep, i32 %b, i32 %stepped
  %f = bitcast i32 %r to float
  %s = call i16 @bf16_from_f32(float %f)
  ret i16 %s",
            &["llvm.fabs.f64", "bf16_from_f32"],
        ),
        "bf16_from_i64" => (
            "i16 @bf16_from_i64(i64 %x)",
            "%high = and i64 %x, -2048
  %rest = and i64 %x, 2047
  %is_rest = icmp ne i64 %rest, 0
  %sticky = select i1 %is_rest, i64 2048, i64 0
  %odd = or i64 %high, %sticky
  %moved = add i64 %x, 9007199254740992
  %small = icmp ult i64 %moved, 18014398509481984
  %y = select i1 %small, i64 %x, i64 %odd
  %d = sitofp i64 %y to double
  %s = call i16 @bf16_from_f64(double %d)
  ret i16 %s",
            &["bf16_from_f64"],
        ),
        "bf16_from_u64" => (
            "i16 @bf16_from_u64(i64 %x)",
            "%high = and i64 %x, -2048
  %rest = and i64 %x, 2047
  %is_rest = icmp ne i64 %rest, 0
  %sticky = select i1 %is_rest, i64 2048, i64 0
  %odd = or i64 %high, %sticky
  %small = icmp ult i64 %x, 9007199254740992
  %y = select i1 %small, i64 %x, i64 %odd
  %d = uitofp i64 %y to double
  %s = call i16 @bf16_from_f64(double %d)
  ret i16 %s",
            &["bf16_from_f64"],
        ),
        _ => return None,
    };
    let text = format!("define internal {head} alwaysinline {{\n  {text}\n}}\n");
    Some(Code::naming(&text, helpers))
}
