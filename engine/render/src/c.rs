//! C99. One function per kernel: `void NAME(float* restrict data0, const int* restrict data1)`.
//!
//! A value used once stands where it is used, in parentheses; others get a name: `val0` (loaded),
//! `alu0` (computed), `acc0` (accumulated), `ridx0` (counted). The text means what the uops mean
//! under `-fwrapv -ffp-contract=off`: signed 32- and 64-bit arithmetic wraps, floats are not
//! contracted. Narrower arithmetic, which C does in `int`, is cut back here.

use gradiff_graph::fault::{self, Fault};
use gradiff_graph::{Arg, Constant, DType, Instruction, Linear, Op};

use crate::Error;

/// The text of one kernel under its own name.
///
/// # Errors
/// If a uop is not of the linear level, or the name is no identifier.
pub fn c(linear: &Linear) -> Result<String, Error> {
    c_named(linear, &linear.name)
}

/// The text of one kernel under another name.
///
/// # Errors
/// As [`c`].
pub fn c_named(linear: &Linear, name: &str) -> Result<String, Error> {
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    if !name.chars().all(is_word) || name.chars().next().is_none_or(|c| c.is_ascii_digit()) {
        return Err(Error::Name(name.to_string()));
    }
    let mut writer = Writer::new(linear);
    writer.header(name);
    for position in 0..linear.uops.len() {
        writer.uop(position).ok_or_else(|| unsupported(linear, position))?;
    }
    writer.out.push_str("}\n");
    Ok(writer.out)
}

/// What stands once before the kernels of a file.
pub fn c_prelude() -> &'static str {
    include_str!("prelude.h")
}

/// The name of an element type.
pub fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Void => "void",
        DType::Bool => "bool",
        DType::I8 => "int8_t",
        DType::U8 => "uint8_t",
        DType::I16 => "int16_t",
        DType::U16 => "uint16_t",
        DType::I32 => "int",
        DType::U32 => "unsigned int",
        DType::I64 => "int64_t",
        DType::U64 => "uint64_t",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

fn unsupported(linear: &Linear, position: usize) -> Error {
    let uop = &linear.uops[position];
    let source = uop.src.first().and_then(|source| linear.uops.get(*source as usize));
    Error::Unsupported {
        language: "C",
        kernel: linear.name.clone(),
        position,
        op: uop.op,
        dtype: source.map_or(uop.dtype, |source| source.dtype),
    }
}

/// Deeper expressions get a name, for readers and for compilers with a limit on parentheses.
const HEIGHT_MAX: u32 = 24;

/// What a uop is called in the text.
#[derive(Clone, Default)]
struct Expression {
    text: String,
    height: u32,
    /// Whether the text reads a variable that an `Assign` may change.
    is_volatile: bool,
}

struct Writer<'a> {
    linear: &'a Linear,
    out: String,
    depth: usize,
    expressions: Vec<Expression>,
    /// Whether the value may stand where it is used.
    is_inline: Vec<bool>,
    /// How many names of each kind are taken: alu, val, acc, ridx.
    counts: [usize; 4],
}

#[derive(Clone, Copy)]
enum Kind {
    Alu,
    Val,
    Acc,
    Ridx,
}

impl<'a> Writer<'a> {
    fn new(linear: &'a Linear) -> Writer<'a> {
        Writer {
            linear,
            out: String::new(),
            depth: 1,
            expressions: vec![Expression::default(); linear.uops.len()],
            is_inline: find_inline(linear),
            counts: [0; 4],
        }
    }

    fn header(&mut self, name: &str) {
        let stored: Vec<usize> = stored_slots(self.linear);
        let arrays = self.linear.globals().into_iter().map(|(global, dtype)| {
            let qualifier = if stored.contains(&global.slot) { "" } else { "const " };
            format!("{qualifier}{}* restrict data{}", c_type(dtype), global.slot)
        });
        let variables = self.linear.uops.iter().filter_map(|uop| match &uop.arg {
            Arg::Var(variable) => Some(format!("const {} {}", c_type(uop.dtype), variable.name)),
            _ => None,
        });
        let parameters: Vec<String> = arrays.chain(variables).collect();
        self.out = format!("void {name}({}) {{\n", parameters.join(", "));
    }

    fn line(&mut self, text: &str) {
        self.out.extend(std::iter::repeat_n("  ", self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn name(&mut self, kind: Kind) -> String {
        let count = &mut self.counts[kind as usize];
        *count += 1;
        let word = ["alu", "val", "acc", "ridx"][kind as usize];
        format!("{word}{}", *count - 1)
    }

    /// The text of source `number` of a uop.
    fn source(&self, uop: &Instruction, number: usize) -> Option<&str> {
        let position = *uop.src.get(number)? as usize;
        Some(&self.expressions.get(position)?.text)
    }

    fn source_uop(&self, uop: &Instruction, number: usize) -> Option<&'a Instruction> {
        self.linear.uops.get(*uop.src.get(number)? as usize)
    }

    /// Writes one uop; `None` if there is no text for it.
    fn uop(&mut self, position: usize) -> Option<()> {
        let uop = &self.linear.uops[position];
        let text = match (uop.op, &uop.arg) {
            (Op::Const, Arg::Const(value)) => constant(*value),
            (Op::DefineGlobal, Arg::Global(global)) => format!("data{}", global.slot),
            (Op::DefineVar, Arg::Var(variable)) => variable.name.clone(),
            (Op::Index, _) => format!("{}[{}]", self.source(uop, 0)?, self.source(uop, 1)?),
            (Op::Range, _) => self.open_loop(uop)?,
            (Op::EndRange, _) => {
                self.depth -= 1;
                self.line("}");
                String::new()
            }
            (Op::DefineAcc, _) => {
                let name = self.name(Kind::Acc);
                let start = self.source(uop, 0)?;
                self.line(&format!("{} {name} = {start};", c_type(uop.dtype)));
                name
            }
            (Op::Assign, _) => {
                let name = self.source(uop, 0)?.to_string();
                self.line(&format!("{name} = {};", self.source(uop, 1)?));
                name
            }
            (Op::Load, _) => self.load(uop)?,
            (Op::Store, _) => {
                self.store(uop)?;
                String::new()
            }
            (Op::Sink, _) => String::new(),
            (op, _) if op.is_elementwise() => return self.alu(position),
            _ => return None,
        };
        let is_volatile = matches!(uop.op, Op::DefineAcc | Op::Assign);
        self.expressions[position] = Expression { text, height: 0, is_volatile };
        Some(())
    }

    fn open_loop(&mut self, uop: &Instruction) -> Option<String> {
        let name = self.name(Kind::Ridx);
        let (kind, end) = (c_type(uop.dtype), self.source(uop, 0)?);
        self.line(&format!("for ({kind} {name} = 0; {name} < {end}; {name}++) {{"));
        self.depth += 1;
        Some(name)
    }

    fn load(&mut self, uop: &Instruction) -> Option<String> {
        let address = self.source(uop, 0)?;
        let value = match self.source(self.source_uop(uop, 0)?, 2) {
            Some(gate) => format!("({gate}?{address}:{})", constant(Constant::zero(uop.dtype))),
            None => address.to_string(),
        };
        let name = self.name(Kind::Val);
        self.line(&format!("{} {name} = {value};", c_type(uop.dtype)));
        Some(name)
    }

    fn store(&mut self, uop: &Instruction) -> Option<()> {
        let store = format!("{} = {};", self.source(uop, 0)?, self.source(uop, 1)?);
        match self.source(self.source_uop(uop, 0)?, 2) {
            Some(gate) => self.line(&format!("if ({gate}) {{ {store} }}")),
            None => self.line(&store),
        }
        Some(())
    }

    fn alu(&mut self, position: usize) -> Option<()> {
        let uop = &self.linear.uops[position];
        let sources: Vec<&Expression> =
            uop.src.iter().map(|source| &self.expressions[*source as usize]).collect();
        let height = 1 + sources.iter().map(|source| source.height).max()?;
        let is_volatile = sources.iter().any(|source| source.is_volatile);
        let text: Vec<&str> = sources.iter().map(|source| source.text.as_str()).collect();
        let dtype = self.source_uop(uop, 0)?.dtype;
        let divisor = self.source_uop(uop, 1).and_then(|divisor| match divisor.arg {
            Arg::Const(value) => value.to_int(),
            _ => None,
        });
        let text = match uop.op {
            Op::Cast => cast(dtype, uop.dtype, text[0]),
            Op::Bitcast => bitcast(dtype, uop.dtype, text[0])?,
            Op::Where => format!("({}?{}:{})", text[0], text[1], text[2]),
            op => match dtype {
                DType::Bool => bool_op(op, &text)?,
                DType::F16 | DType::BF16 => half_op(op, dtype, &text)?,
                DType::F32 | DType::F64 => float_op(op, dtype, &text)?,
                _ => int_op(op, dtype, &text, divisor)?,
            },
        };
        if self.is_inline[position] && height < HEIGHT_MAX {
            self.expressions[position] = Expression { text, height, is_volatile };
            return Some(());
        }
        let name = self.name(Kind::Alu);
        self.line(&format!("{} {name} = {text};", c_type(uop.dtype)));
        self.expressions[position] = Expression { text: name, height: 0, is_volatile: false };
        Some(())
    }
}

/// The slots that are written to.
fn stored_slots(linear: &Linear) -> Vec<usize> {
    let at = |position: u32| linear.uops.get(position as usize);
    let stores = linear.uops.iter().filter(|uop| uop.op == Op::Store);
    let indices = stores.filter_map(|uop| at(*uop.src.first()?));
    let globals = indices.filter_map(|index| at(*index.src.first()?));
    globals
        .filter_map(|global| match &global.arg {
            Arg::Global(global) => Some(global.slot),
            _ => None,
        })
        .collect()
}

/// For each uop: whether it is used exactly once, in the loop it is made in, by something that
/// reads it at once, and no variable changes in between.
fn find_inline(linear: &Linear) -> Vec<bool> {
    let count = linear.uops.len();
    let mut place = vec![(0u32, 0u32); count];
    let mut use_counts = vec![0u32; count];
    let mut is_inline = vec![true; count];
    let mut loops = vec![0u32];
    let mut assign_count = 0;
    for (position, uop) in linear.uops.iter().enumerate() {
        match uop.op {
            Op::Range => loops.push(position as u32 + 1),
            Op::EndRange => {
                loops.pop();
            }
            Op::Assign => assign_count += 1,
            _ => {}
        }
        let innermost = loops.last().copied().unwrap_or(0);
        // An assignment reads its sources before it takes effect.
        let is_assign = u32::from(uop.op == Op::Assign);
        place[position] = (innermost, assign_count);
        for source in uop.src.iter().map(|source| *source as usize).filter(|s| *s < count) {
            use_counts[source] += 1;
            let is_near = place[source] == (innermost, assign_count - is_assign);
            // An address is read later than it is made.
            is_inline[source] &= is_near && !(uop.op == Op::Index && assign_count != 0);
        }
    }
    is_inline.iter().zip(&use_counts).map(|(inline, count)| *inline && *count == 1).collect()
}

/// A constant of exactly these bits.
fn constant(value: Constant) -> String {
    match (value.dtype(), value.to_int()) {
        (DType::I32, Some(number)) if number == i128::from(i32::MIN) => "(-2147483647-1)".into(),
        (DType::I64, Some(number)) if number == i128::from(i64::MIN) => {
            "(-9223372036854775807ll-1)".into()
        }
        (DType::U32, Some(number)) => format!("{number}u"),
        (DType::I64, Some(number)) => format!("{number}ll"),
        (DType::U64, Some(number)) => format!("{number}ull"),
        (_, Some(number)) => number.to_string(),
        (DType::F32, None) => {
            let float = f32::from_bits(value.bits() as u32);
            match float.is_nan() {
                true if value.bits() == 0x7fc0_0000 => "NAN".into(),
                true => format!("f32_from_bits({:#x}u)", value.bits()),
                false if float.is_infinite() => infinity(float < 0.0).into(),
                false => format!("{float:?}f"),
            }
        }
        (DType::F64, None) => {
            let float = f64::from_bits(value.bits());
            match float.is_nan() {
                true => format!("f64_from_bits({:#x}ull)", value.bits()),
                false if float.is_infinite() => format!("(double){}", infinity(float < 0.0)),
                false => format!("{float:?}"),
            }
        }
        (_, None) => format!("{:#x}/*{value}*/", value.bits()),
    }
}

fn infinity(is_negative: bool) -> &'static str {
    if is_negative { "-INFINITY" } else { "INFINITY" }
}

/// `x`, or `(x)` where a sign would meet a sign.
fn guarded(x: &str) -> String {
    if x.starts_with('-') { format!("({x})") } else { x.to_string() }
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

/// An op of a 16-bit float, done in f32 and rounded.
fn half_op(op: Op, dtype: DType, src: &[&str]) -> Option<String> {
    let wide: Vec<String> =
        src.iter().map(|source| format!("{}_to_f32({source})", dtype.name())).collect();
    let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
    let text = float_op(op, DType::F32, &wide)?;
    Some(if op.is_comparison() { text } else { format!("{}_from_f32({text})", dtype.name()) })
}

fn float_op(op: Op, dtype: DType, src: &[&str]) -> Option<String> {
    let suffix = if dtype == DType::F32 { "f" } else { "" };
    let infix = |sign: &str| format!("({}{sign}{})", src[0], guarded(src[1]));
    let call = |function: &str| format!("{function}{suffix}({})", src.join(", "));
    let own = |function: &str| format!("{function}_{}({})", dtype.name(), src.join(", "));
    Some(match op {
        Op::Neg => format!("(-{})", guarded(src[0])),
        Op::Exp2 => call("exp2"),
        Op::Log2 => call("log2"),
        Op::Sin => call("sin"),
        Op::Sqrt => call("sqrt"),
        Op::Pow => call("pow"),
        Op::Recip => format!("(1.0{suffix}/{})", src[0]),
        Op::Add => infix("+"),
        Op::Sub => infix("-"),
        Op::Mul => infix("*"),
        Op::FDiv => infix("/"),
        Op::CmpLt => infix("<"),
        Op::CmpNe => infix("!="),
        Op::Max => own("max"),
        Op::Min => own("min"),
        Op::MulAcc => format!("(({}*{})+{})", src[0], src[1], guarded(src[2])),
        _ => return None,
    })
}

fn int_op(op: Op, dtype: DType, src: &[&str], divisor: Option<i128>) -> Option<String> {
    let kind = c_type(dtype);
    let infix = |sign: &str| format!("({}{sign}{})", src[0], guarded(src[1]));
    let own = |function: &str| format!("{function}_{}({})", dtype.name(), src.join(", "));
    let is_safe = divisor.is_some_and(|divisor| divisor != 0 && divisor != -1);
    let is_floor_c = !dtype.is_signed();
    Some(match op {
        Op::Neg => cut_back(dtype, format!("(-{})", guarded(src[0]))),
        Op::Add => cut_back(dtype, infix("+")),
        Op::Sub => cut_back(dtype, infix("-")),
        Op::Mul => cut_back(dtype, format!("({}{}*{})", widen(dtype), src[0], src[1])),
        Op::MulAcc => {
            let product = format!("({}{}*{})", widen(dtype), src[0], src[1]);
            cut_back(dtype, format!("({product}+{})", src[2]))
        }
        Op::CDiv if is_safe => infix("/"),
        Op::CMod if is_safe => infix("%"),
        Op::FloorDiv if is_safe && is_floor_c => infix("/"),
        Op::FloorMod if is_safe && is_floor_c => infix("%"),
        Op::FloorDiv if !is_floor_c => own("floordiv"),
        Op::FloorMod if !is_floor_c => own("floormod"),
        Op::CDiv | Op::FloorDiv => own("cdiv"),
        Op::CMod | Op::FloorMod => own("cmod"),
        Op::Max => own("max"),
        Op::Min => own("min"),
        Op::CmpLt => less_than(dtype, src),
        Op::CmpNe => infix("!="),
        Op::And => infix("&"),
        Op::Or => infix("|"),
        Op::Xor => infix("^"),
        // Shifted as unsigned, by an amount within the width: nothing is undefined.
        Op::Shl => {
            let unsigned = c_type(as_unsigned(dtype));
            let amount = shift_amount(dtype, src[1], divisor);
            format!("({kind})((({unsigned}){})<<{amount})", src[0])
        }
        Op::Shr => shift_right(dtype, src[0], &shift_amount(dtype, src[1], divisor)),
        _ => return None,
    })
}

/// C computes in `int` what is narrower than `int`: back to the dtype's own width.
fn cut_back(dtype: DType, text: String) -> String {
    let is_cut = !fault::is_active(Fault::RenderNoCutBack); // fault: render-no-cut-back
    if dtype.bits() < 32 && is_cut { format!("(({}){text})", c_type(dtype)) } else { text }
}

/// A product of two `uint16_t` overflows the `int` that C computes it in.
fn widen(dtype: DType) -> &'static str {
    if dtype == DType::U16 { "(unsigned int)" } else { "" }
}

fn less_than(dtype: DType, src: &[&str]) -> String {
    use Fault::RenderCompareUnsignedAsSigned as Wrong;
    let is_wrong = fault::is_active(Wrong); // fault: render-compare-unsigned-as-signed
    match dtype.is_unsigned() && is_wrong {
        true => {
            let kind = c_type(as_signed(dtype));
            format!("(({kind}){}<({kind}){})", src[0], src[1])
        }
        false => format!("({}<{})", src[0], src[1]),
    }
}

fn shift_right(dtype: DType, value: &str, amount: &str) -> String {
    use Fault::RenderShiftArithmeticLost as Wrong;
    let is_wrong = fault::is_active(Wrong); // fault: render-shift-arithmetic-lost
    match dtype.is_signed() && is_wrong {
        true => {
            format!("({})(({}){value}>>{amount})", c_type(dtype), c_type(as_unsigned(dtype)))
        }
        false => format!("({value}>>{amount})"),
    }
}

/// The amount cut to the width of the dtype, so that no shift is undefined in C.
fn shift_amount(dtype: DType, amount: &str, known: Option<i128>) -> String {
    match known {
        Some(bits) if 0 <= bits && bits < i128::from(dtype.bits()) => bits.to_string(),
        _ => format!("({amount}&{})", dtype.bits() - 1),
    }
}

fn as_unsigned(dtype: DType) -> DType {
    match dtype {
        DType::I8 => DType::U8,
        DType::I16 => DType::U16,
        DType::I32 => DType::U32,
        DType::I64 => DType::U64,
        other => other,
    }
}

fn as_signed(dtype: DType) -> DType {
    match dtype {
        DType::U8 => DType::I8,
        DType::U16 => DType::I16,
        DType::U32 => DType::I32,
        DType::U64 => DType::I64,
        other => other,
    }
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

fn cast(from: DType, to: DType, x: &str) -> String {
    if from == to {
        return x.to_string();
    }
    if is_half(from) {
        return cast(DType::F32, to, &format!("{}_to_f32({x})", from.name()));
    }
    match (from, to) {
        (_, DType::Bool) => format!("({x}!=0)"),
        (DType::F32, _) if is_half(to) => format!("{}_from_f32({x})", to.name()),
        (DType::I64 | DType::U64, _) if is_half(to) => {
            format!("{}_from_f64(f64_odd_{}({x}))", to.name(), from.name())
        }
        _ if is_half(to) => format!("{}_from_f64({x})", to.name()),
        (DType::F32 | DType::F64, _) if to.is_int() => format!("{}_from_f64({x})", to.name()),
        (DType::F64, DType::F32) => format!("f32_from_f64({x})"),
        _ => format!("(({}){x})", c_type(to)),
    }
}

fn bitcast(from: DType, to: DType, x: &str) -> Option<String> {
    let is_possible = from.size_bytes() == to.size_bytes() && from != DType::Bool;
    let (size, is_from, is_to) = (from.bits(), from.is_float(), to.is_float());
    Some(match from == to {
        true => x.to_string(),
        false if !is_possible || to == DType::Bool => return None,
        false if size < 32 || is_from == is_to => format!("(({}){x})", c_type(to)),
        false if is_from => format!("(({})f{size}_bits({x}))", c_type(to)),
        false => format!("f{size}_from_bits({x})"),
    })
}

#[cfg(test)]
mod tests {
    use gradiff_graph::Global;

    use super::*;

    /// Uops from rows of (op, dtype, sources, arg).
    fn linear(rows: &[(Op, DType, &[u32], Arg)]) -> Linear {
        let uops = rows.iter().map(|(op, dtype, src, arg)| {
            Instruction::new(*op, *dtype, src.iter().copied(), arg.clone())
        });
        Linear { name: "E_4".into(), uops: uops.collect() }
    }

    fn global(slot: usize) -> Arg {
        Arg::Global(Global { slot, size_elements: 4 })
    }

    fn int(dtype: DType, value: i128) -> Arg {
        Arg::Const(Constant::int(dtype, value))
    }

    /// `data0[i] = op(data1[i], value)` for i below 4.
    fn with_constant(op: Op, dtype: DType, value: Arg) -> Linear {
        let result = if op.is_comparison() { DType::Bool } else { dtype };
        linear(&[
            (Op::DefineGlobal, result, &[], global(0)),
            (Op::DefineGlobal, dtype, &[], global(1)),
            (Op::Const, DType::I32, &[], int(DType::I32, 4)),
            (Op::Range, DType::I32, &[2], Arg::plain_axis(0)),
            (Op::Index, dtype, &[1, 3], Arg::None),
            (Op::Load, dtype, &[4], Arg::None),
            (Op::Const, dtype, &[], value),
            (op, result, &[5, 6], Arg::None),
            (Op::Index, result, &[0, 3], Arg::None),
            (Op::Store, DType::Void, &[8, 7], Arg::None),
            (Op::EndRange, DType::Void, &[3], Arg::None),
        ])
    }

    #[test]
    fn kernel_reads_like_a_loop_by_hand() {
        let kernel =
            with_constant(Op::Add, DType::F32, Arg::Const(Constant::float(DType::F32, 7.0)));
        let expected = "\
void E_4(float* restrict data0, const float* restrict data1) {
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    float val0 = data1[ridx0];
    data0[ridx0] = (val0+7.0f);
  }
}
";
        assert_eq!(c(&kernel).unwrap(), expected);
    }

    /// The expression that an op over a loaded value and a constant becomes.
    fn check(op: Op, dtype: DType, value: Arg, expected: &str) {
        let text = c(&with_constant(op, dtype, value)).unwrap();
        let line = text.lines().find_map(|line| line.trim().strip_prefix("data0[ridx0] = "));
        assert_eq!(line, Some(format!("{expected};").as_str()), "{op} {dtype}");
    }

    #[test]
    fn narrow_arithmetic_is_cut_back() {
        check(Op::Add, DType::I8, int(DType::I8, 100), "((int8_t)(val0+100))");
        check(Op::Sub, DType::U8, int(DType::U8, 1), "((uint8_t)(val0-1))");
        check(Op::Mul, DType::U16, int(DType::U16, 9), "((uint16_t)((unsigned int)val0*9))");
        check(Op::Mul, DType::I32, int(DType::I32, -9), "(val0*-9)");
    }

    #[test]
    fn division_is_guarded_unless_the_divisor_is_known() {
        check(Op::CDiv, DType::I32, int(DType::I32, 3), "(val0/3)");
        check(Op::CDiv, DType::I32, int(DType::I32, -1), "cdiv_i32(val0, -1)");
        check(Op::CMod, DType::U8, int(DType::U8, 0), "cmod_u8(val0, 0)");
        check(Op::FloorDiv, DType::I32, int(DType::I32, 3), "floordiv_i32(val0, 3)");
        check(Op::FloorMod, DType::U32, int(DType::U32, 3), "(val0%3u)");
    }

    #[test]
    fn shifts_and_comparisons_keep_the_sign_of_the_dtype() {
        check(Op::Shr, DType::I32, int(DType::I32, 3), "(val0>>3)");
        check(Op::Shr, DType::I32, int(DType::I32, 40), "(val0>>(40&31))");
        check(Op::Shl, DType::I16, int(DType::I16, 3), "(int16_t)(((uint16_t)val0)<<3)");
        check(Op::CmpLt, DType::U64, int(DType::U64, 3), "(val0<3ull)");
    }

    #[test]
    fn constants_keep_their_bits() {
        let float = |value: f64| constant(Constant::float(DType::F32, value));
        assert_eq!(float(0.1), "0.1f");
        assert_eq!(float(-0.0), "-0.0f");
        assert_eq!(float(1e-45), "1e-45f");
        assert_eq!(float(f64::NEG_INFINITY), "-INFINITY");
        assert_eq!(float(f64::NAN), "NAN");
        let payload = Constant::from_bits(DType::F32, 0x7fc0_0001);
        assert_eq!(constant(payload), "f32_from_bits(0x7fc00001u)");
        let low = Constant::int(DType::I64, i64::MIN.into());
        assert_eq!(constant(low), "(-9223372036854775807ll-1)");
        assert_eq!(constant(Constant::float(DType::F16, 1.0)), "0x3c00/*1.0*/");
    }

    #[test]
    fn gated_load_touches_nothing_when_shut() {
        let kernel = linear(&[
            (Op::DefineGlobal, DType::I32, &[], global(0)),
            (Op::DefineGlobal, DType::I32, &[], global(1)),
            (Op::Const, DType::I32, &[], int(DType::I32, 4)),
            (Op::Range, DType::I32, &[2], Arg::plain_axis(0)),
            (Op::Const, DType::I32, &[], int(DType::I32, 2)),
            (Op::CmpLt, DType::Bool, &[3, 4], Arg::None),
            (Op::Index, DType::I32, &[1, 3, 5], Arg::None),
            (Op::Load, DType::I32, &[6], Arg::None),
            (Op::Index, DType::I32, &[0, 3], Arg::None),
            (Op::Store, DType::Void, &[8, 7], Arg::None),
            (Op::EndRange, DType::Void, &[3], Arg::None),
        ]);
        let text = c(&kernel).unwrap();
        assert!(text.contains("int val0 = ((ridx0<2)?data1[ridx0]:0);"), "{text}");
    }

    #[test]
    fn expression_used_twice_gets_a_name() {
        let mut kernel = with_constant(Op::Add, DType::I32, int(DType::I32, 1));
        kernel.uops[9].src[1] = 9;
        let square = Instruction::new(Op::Mul, DType::I32, [7, 7], Arg::None);
        kernel.uops.insert(9, square);
        let text = c(&kernel).unwrap();
        assert!(text.contains("int alu0 = (val0+1);"), "{text}");
        assert!(text.contains("data0[ridx0] = (alu0*alu0);"), "{text}");
    }

    #[test]
    fn what_has_no_text_is_refused() {
        let kernel = with_constant(Op::Xor, DType::F32, Arg::Const(Constant::zero(DType::F32)));
        let error = c(&kernel).unwrap_err();
        assert_eq!(error.to_string(), "kernel E_4, uop 7: C has no xor of f32");
        let mut kernel = with_constant(Op::Add, DType::I32, int(DType::I32, 1));
        kernel.name = "a-b".into();
        assert_eq!(c(&kernel), Err(Error::Name("a-b".into())));
    }
}
