//! Elementwise ops in LLVM IR, of one lane or many: a table from op to instructions. Nothing is
//! poison: shifts are cut to the width, division is guarded, casts from floats saturate.

use gradiff_graph::{Constant, DType, Op};

use crate::llvm::Body;
use crate::scalar::is_half;

/// What an op takes and gives.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    /// The type of the sources; of `Where` that of the values.
    pub(crate) from: DType,
    /// The type of the result.
    pub(crate) to: DType,
    /// How many lanes.
    pub(crate) count: u8,
}

/// The name of a type.
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

/// A constant of exactly these bits; an f32 is written as the f64 of its value.
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
fn all(value: Constant, lanes: u8) -> String {
    if lanes == 1 {
        return constant(value);
    }
    let (kind, one) = (element(value.dtype()), constant(value));
    let lanes = vec![format!("{kind} {one}"); lanes.into()];
    format!("<{}>", lanes.join(", "))
}

/// `value` of i-width of the type `dtype` in all lanes.
fn int(dtype: DType, value: i128, lanes: u8) -> String {
    all(Constant::int(dtype, value), lanes)
}

/// The name of the value of an op; `None` if there is no such op.
pub(crate) fn alu(body: &mut Body, op: Op, lanes: Lanes, src: &[String]) -> Option<String> {
    let kind = type_of(lanes.from, lanes.count);
    match op {
        Op::Cast => cast(body, lanes, &src[0]),
        Op::Bitcast => bitcast(body, lanes, &src[0]),
        Op::Where => {
            let gate = type_of(DType::Bool, lanes.count);
            let (x, y) = (&src[1], &src[2]);
            Some(body.value(&format!("select {gate} {}, {kind} {x}, {kind} {y}", src[0])))
        }
        _ if lanes.from == DType::Bool => bool_op(body, op, lanes, src),
        _ if is_half(lanes.from) => half_op(body, op, lanes, src),
        _ if lanes.from.is_float() => float_op(body, op, lanes.from, lanes.count, src),
        _ => int_op(body, op, lanes, src),
    }
}

fn bitcast(body: &mut Body, lanes: Lanes, x: &str) -> Option<String> {
    let Lanes { from, to, count } = lanes;
    if from != to && (from.bits() != to.bits() || [from, to].contains(&DType::Bool)) {
        return None;
    }
    if element(from) == element(to) {
        return Some(x.to_string());
    }
    let (from, to) = (type_of(from, count), type_of(to, count));
    Some(body.value(&format!("bitcast {from} {x} to {to}")))
}

fn bool_op(body: &mut Body, op: Op, lanes: Lanes, src: &[String]) -> Option<String> {
    let kind = type_of(DType::Bool, lanes.count);
    let word = match op {
        Op::Neg => return Some(src[0].clone()),
        Op::Add | Op::Max | Op::Or => "or",
        Op::Mul | Op::Min | Op::And => "and",
        Op::Sub | Op::CmpNe | Op::Xor => "xor",
        Op::CmpLt => {
            let one = all(Constant::one(DType::Bool), lanes.count);
            let not = body.value(&format!("xor {kind} {}, {one}", src[0]));
            return Some(body.value(&format!("and {kind} {not}, {}", src[1])));
        }
        _ => return None,
    };
    Some(body.value(&format!("{word} {kind} {}, {}", src[0], src[1])))
}

/// Done in f32 and rounded.
fn half_op(body: &mut Body, op: Op, lanes: Lanes, src: &[String]) -> Option<String> {
    let (half, f32) = (lanes.from, DType::F32);
    let mut wide = Vec::with_capacity(src.len());
    for x in src {
        wide.push(cast(body, Lanes { to: f32, ..lanes }, x)?);
    }
    let value = float_op(body, op, f32, lanes.count, &wide)?;
    match op.is_comparison() {
        true => Some(value),
        false => cast(body, Lanes { from: f32, to: half, count: lanes.count }, &value),
    }
}

fn float_op(body: &mut Body, op: Op, dtype: DType, lanes: u8, src: &[String]) -> Option<String> {
    let kind = type_of(dtype, lanes);
    let two = |word: &str| format!("{word} {kind} {}, {}", src[0], src[1]);
    let text = match op {
        Op::Neg => format!("fneg {kind} {}", src[0]),
        Op::Add => two("fadd"),
        Op::Sub => two("fsub"),
        Op::Mul => two("fmul"),
        Op::FDiv => two("fdiv"),
        Op::CmpLt => two("fcmp olt"),
        Op::CmpNe => two("fcmp une"),
        Op::Recip => {
            let one = all(Constant::one(dtype), lanes);
            format!("fdiv {kind} {one}, {}", src[0])
        }
        Op::Exp2 | Op::Log2 | Op::Sin | Op::Sqrt | Op::Pow => call(op.name(), dtype, lanes, src),
        Op::MulAcc => call("fma", dtype, lanes, src),
        Op::Max | Op::Min => {
            let order = if op == Op::Max { "ogt" } else { "olt" };
            let first = body.value(&two(&format!("fcmp {order}")));
            let nan = body.value(&format!("fcmp uno {kind} {}, {}", src[0], src[0]));
            let bools = type_of(DType::Bool, lanes);
            let either = body.value(&format!("or {bools} {first}, {nan}"));
            format!("select {bools} {either}, {kind} {}, {kind} {}", src[0], src[1])
        }
        _ => return None,
    };
    Some(body.value(&text))
}

/// `v4f32` and the like, as in the names of intrinsics.
fn suffix(dtype: DType, lanes: u8) -> String {
    let name = match dtype {
        DType::F16 | DType::F32 | DType::F64 => format!("f{}", dtype.bits()),
        _ => element(dtype).to_string(),
    };
    if lanes == 1 { name } else { format!("v{lanes}{name}") }
}

fn call(function: &str, dtype: DType, lanes: u8, src: &[String]) -> String {
    let kind = type_of(dtype, lanes);
    let arguments: Vec<String> = src.iter().map(|value| format!("{kind} {value}")).collect();
    format!("call {kind} @llvm.{function}.{}({})", suffix(dtype, lanes), arguments.join(", "))
}

fn int_op(body: &mut Body, op: Op, lanes: Lanes, src: &[String]) -> Option<String> {
    let (dtype, count) = (lanes.from, lanes.count);
    let kind = type_of(dtype, count);
    let sign = if dtype.is_signed() { "s" } else { "u" };
    let two = |word: &str| format!("{word} {kind} {}, {}", src[0], src[1]);
    let text = match op {
        Op::Neg => format!("sub {kind} {}, {}", int(dtype, 0, count), src[0]),
        Op::Add => two("add"),
        Op::Sub => two("sub"),
        Op::Mul => two("mul"),
        Op::And => two("and"),
        Op::Or => two("or"),
        Op::Xor => two("xor"),
        Op::CmpLt => two(&format!("icmp {sign}lt")),
        Op::CmpNe => two("icmp ne"),
        Op::MulAcc => {
            let product = body.value(&two("mul"));
            format!("add {kind} {product}, {}", src[2])
        }
        Op::Max | Op::Min => {
            let order = if op == Op::Max { "gt" } else { "lt" };
            let first = body.value(&two(&format!("icmp {sign}{order}")));
            let bools = type_of(DType::Bool, count);
            format!("select {bools} {first}, {kind} {}, {kind} {}", src[0], src[1])
        }
        Op::Shl | Op::Shr => {
            let most = int(dtype, i128::from(dtype.bits()) - 1, count);
            let amount = body.value(&format!("and {kind} {}, {most}", src[1]));
            let word = match (op, dtype.is_signed()) {
                (Op::Shl, _) => "shl",
                (_, true) => "ashr",
                (_, false) => "lshr",
            };
            format!("{word} {kind} {}, {amount}", src[0])
        }
        Op::CDiv | Op::CMod | Op::FloorDiv | Op::FloorMod => {
            return Some(division(body, op, lanes, src));
        }
        _ => return None,
    };
    Some(body.value(&text))
}

/// Division: a divisor of 0 gives some value; the smallest value by -1 wraps.
fn division(body: &mut Body, op: Op, lanes: Lanes, src: &[String]) -> String {
    let (dtype, count, x) = (lanes.from, lanes.count, &src[0]);
    let (kind, bools) = (type_of(dtype, count), type_of(DType::Bool, count));
    let [zero, one, minus] = [0, 1, -1].map(|value| int(dtype, value, count));
    let mut compare =
        |word: &str, x: &str, y: &str| body.value(&format!("icmp {word} {kind} {x}, {y}"));
    let is_zero = compare("eq", &src[1], &zero);
    let is_minus = dtype.is_signed().then(|| compare("eq", &src[1], &minus));
    let select = |body: &mut Body, gate: &str, x: &str, y: &str| {
        body.value(&format!("select {bools} {gate}, {kind} {x}, {kind} {y}"))
    };
    let mut divisor = select(body, &is_zero, &one, &src[1]);
    if let Some(is_minus) = &is_minus {
        divisor = select(body, is_minus, &one, &divisor);
    }
    let sign = if dtype.is_signed() { "s" } else { "u" };
    let mut binary = |word: &str, x: &str, y: &str| body.value(&format!("{word} {kind} {x}, {y}"));
    let rest = binary(&format!("{sign}rem"), x, &divisor);
    let mut quotient = binary(&format!("{sign}div"), x, &divisor);
    let Some(is_minus) = is_minus else {
        return if matches!(op, Op::CMod | Op::FloorMod) { rest } else { quotient };
    };
    let negated = binary("sub", &zero, x);
    quotient = select(body, &is_minus, &negated, &quotient);
    if op == Op::CDiv || op == Op::CMod {
        return if op == Op::CDiv { quotient } else { rest };
    }
    // Rounded down: one less where there is a rest of the other sign.
    let mixed = body.value(&format!("xor {kind} {rest}, {}", src[1]));
    let is_mixed = body.value(&format!("icmp slt {kind} {mixed}, {zero}"));
    let is_rest = body.value(&format!("icmp ne {kind} {rest}, {zero}"));
    let is_below = body.value(&format!("and {bools} {is_mixed}, {is_rest}"));
    let (plain, word, by) = match op {
        Op::FloorDiv => (quotient, "sub", one),
        _ => (rest, "add", src[1].clone()),
    };
    let lower = body.value(&format!("{word} {kind} {plain}, {by}"));
    select(body, &is_below, &lower, &plain)
}

fn cast(body: &mut Body, lanes: Lanes, x: &str) -> Option<String> {
    let Lanes { from, to, count } = lanes;
    if from == to {
        return Some(x.to_string());
    }
    let mut step = |word: &str, x: &str, from: DType, to: DType| {
        body.value(&format!("{word} {} {x} to {}", type_of(from, count), type_of(to, count)))
    };
    let through = |body: &mut Body, middle: DType, x: &str| {
        let middle_value = cast(body, Lanes { to: middle, ..lanes }, x)?;
        cast(body, Lanes { from: middle, ..lanes }, &middle_value)
    };
    Some(match (from, to) {
        (DType::BF16, DType::F32) => {
            let wide = step("zext", x, DType::U16, DType::U32);
            let sixteen = int(DType::U32, 16, count);
            let kind = type_of(DType::U32, count);
            let bits = body.value(&format!("shl {kind} {wide}, {sixteen}"));
            let float = type_of(DType::F32, count);
            body.value(&format!("bitcast {kind} {bits} to {float}"))
        }
        (DType::F16, DType::F32) => step("fpext", x, from, to),
        _ if is_half(from) => return through(body, DType::F32, x),
        (_, DType::Bool) => {
            let zero = all(Constant::zero(from), count);
            let word = if from.is_float() { "fcmp une" } else { "icmp ne" };
            body.value(&format!("{word} {} {x}, {zero}", type_of(from, count)))
        }
        (DType::F32 | DType::F64, DType::F16) => step("fptrunc", x, from, to),
        (DType::F32 | DType::F64 | DType::I64 | DType::U64, DType::BF16) => {
            return by_lanes(body, lanes, x);
        }
        (DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::Bool, DType::BF16) => {
            return through(body, DType::F32, x);
        }
        // Exact in f64; what is not is infinite in f16.
        _ if is_half(to) => return through(body, DType::F64, x),
        _ if from.is_float() && to.is_float() => {
            step(if to == DType::F64 { "fpext" } else { "fptrunc" }, x, from, to)
        }
        _ if from.is_float() => {
            let function = if to.is_signed() { "fptosi.sat" } else { "fptoui.sat" };
            let (kind, source) = (type_of(to, count), type_of(from, count));
            let name = format!("{function}.{}.{}", suffix(to, count), suffix(from, count));
            body.value(&format!("call {kind} @llvm.{name}({source} {x})"))
        }
        _ if to.is_float() => step(if from.is_signed() { "sitofp" } else { "uitofp" }, x, from, to),
        _ if element(from) == element(to) => x.to_string(),
        _ if to.bits() < from.bits() => step("trunc", x, from, to),
        _ => step(if from.is_signed() { "sext" } else { "zext" }, x, from, to),
    })
}

/// A function of this file, lane by lane.
fn by_lanes(body: &mut Body, lanes: Lanes, x: &str) -> Option<String> {
    let Lanes { from, to, count } = lanes;
    let (one, many) = (element(from), type_of(from, count));
    let function = format!("@{}_from_{}", to.name(), from.name());
    let call = |body: &mut Body, x: &str| body.value(&format!("call i16 {function}({one} {x})"));
    if count == 1 {
        return Some(call(body, x));
    }
    let mut vector = "poison".to_string();
    for lane in 0..count {
        let value = body.value(&format!("extractelement {many} {x}, i64 {lane}"));
        let value = call(body, &value);
        let kind = type_of(to, count);
        vector = body.value(&format!("insertelement {kind} {vector}, i16 {value}, i64 {lane}"));
    }
    Some(vector)
}

/// The functions that the kernels call. Rounding to bf16; what is wider than f32 is rounded to odd
/// first, so that the last rounding is the only one that counts.
pub(crate) fn own(word: &str) -> Option<String> {
    let (head, text) = match word {
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
        ),
        _ => return None,
    };
    Some(format!("define internal {head} alwaysinline {{\n  {text}\n}}\n"))
}
