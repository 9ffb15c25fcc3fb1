//! Vectors in C: the operators of the vector extensions of gcc and clang, and helpers for the rest.
//! `load_f32x16`, `max_i8x4` and the like, and the vector types, are defined if a file uses them.
//!
//! A vector of bools is a mask: integers that are 0 or -1, as wide as the compared type. It is
//! converted if another width is required; in memory a bool is a byte, 0 or 1.

use gradiff_graph::{Constant, DType, Op};

use crate::c_scalar::{SCALARS, c_type, constant};
use crate::code::{Code, code, join};
use crate::dialect::{Access, Alu, Sources, Text, Value};
use crate::helpers::in_range;

/// The macro before the functions here, which `c_vector.h` defines with others.
pub(crate) const VECTOR: &str = "VECTOR";

/// The name of a vector type; `None` if there is no such vector.
pub(crate) fn type_name(dtype: DType, lanes: u8, mask_bytes: u8) -> Option<Code> {
    let is_possible = (2..=64).contains(&lanes) && lanes.is_power_of_two();
    let lane = if dtype == DType::Bool { mask_type(mask_bytes.max(1)) } else { dtype };
    (is_possible && dtype != DType::Void).then(|| name(lane, lanes))
}

fn name(dtype: DType, lanes: u8) -> Code {
    Code::helper(format!("{dtype}x{lanes}"))
}

/// The name of a vector type in memory, which is aligned as its elements are.
fn memory_name(dtype: DType, lanes: u8) -> Code {
    Code::helper(format!("{dtype}x{lanes}m"))
}

/// The call of a function of vectors, such as `max_i8x4`.
fn call(function: &str, dtype: DType, lanes: u8, arguments: &[&Code]) -> Code {
    Code::call(format!("{function}_{dtype}x{lanes}"), arguments)
}

/// A value in all lanes.
fn all(dtype: DType, lanes: u8, value: &Code) -> Code {
    call("all", dtype, lanes, &[value])
}

/// A cast to `to`.
fn cast_call(from: DType, to: DType, lanes: u8, value: &Code) -> Code {
    Code::call(format!("cast_{from}_{to}x{lanes}"), &[value])
}

/// The integer type of a mask's lanes.
fn mask_type(bytes: u8) -> DType {
    match bytes {
        1 => DType::I8,
        2 => DType::I16,
        4 => DType::I32,
        _ => DType::I64,
    }
}

/// The name of the mask type that comparisons of this type give.
fn mask_name(dtype: DType, lanes: u8) -> Code {
    name(mask_type(dtype.size_bytes() as u8), lanes)
}

/// Converts a mask to this number of bytes per lane.
fn mask(value: &Value, bytes: u8) -> Code {
    match value.mask_bytes == bytes {
        true => value.code.clone(),
        false => {
            let kind = name(mask_type(bytes), value.lanes);
            code!("__builtin_convertvector({}, {})", value.code, kind)
        }
    }
}

/// A value in the representation of variables: masks have one byte per lane.
pub(crate) fn canonical(value: &Value) -> Text {
    match value.dtype {
        DType::Bool => Text { code: mask(value, 1), mask_bytes: 1 },
        _ => value.code.clone().into(),
    }
}

/// The loaded elements.
pub(crate) fn load(access: &Access) -> Option<Text> {
    let Access { array, index, dtype, lanes, .. } = access;
    type_name(*dtype, *lanes, 0)?;
    let code = call("load", *dtype, *lanes, &[&code!("{}+{}", array, index)]);
    Some(Text { code, mask_bytes: u8::from(*dtype == DType::Bool) })
}

/// Size of a cache line.
const LINE_BYTES: u64 = 64;

/// The statement that stores a canonical value. Whole cache lines of a large array are stored
/// non-temporally, so that the lines are not read first.
pub(crate) fn store(access: &Access, value: &Value) -> Option<Code> {
    let is_line = u64::from(access.lanes) * access.dtype.size_bytes() as u64 == LINE_BYTES;
    let is_nontemporal = is_line && access.is_nontemporal && access.dtype != DType::Bool;
    let word = if is_nontemporal { "stream" } else { "store" };
    let address = code!("{}+{}", access.array, access.index);
    Some(code!("{};", call(word, access.dtype, access.lanes, &[&address, value.code])))
}

/// A vector of these lanes, or the splat of a single value.
pub(crate) fn vectorize(dtype: DType, lanes: u8, src: &[Value]) -> Option<Text> {
    let kind = type_name(dtype, lanes, 0)?;
    let (sign, lane) = if dtype == DType::Bool { ("-", mask_type(1)) } else { ("", dtype) };
    let src: Vec<Code> = src.iter().map(|value| code!("{sign}{}", value.code)).collect();
    let code = match src.as_slice() {
        [value] => all(lane, lanes, value),
        values => code!("({}){{{}}}", kind, join(values, ", ")),
    };
    Some(Text { code, mask_bytes: u8::from(dtype == DType::Bool) })
}

/// Renders an elementwise op.
pub(crate) fn alu(alu: &Alu) -> Option<Text> {
    let (src, from, lanes) = (alu.codes(), alu.from(), alu.lanes);
    type_name(alu.dtype, lanes, 0)?;
    let code = match alu.op {
        Op::Cast => return cast(alu),
        Op::Bitcast if from == alu.dtype => src[0].clone(),
        Op::Bitcast if from.size_bytes() != alu.dtype.size_bytes() => return None,
        Op::Bitcast if [from, alu.dtype].contains(&DType::Bool) => return None,
        Op::Bitcast => code!("(({}){})", name(alu.dtype, lanes), src[0]),
        Op::Where if alu.dtype == DType::Bool => return Some(select_masks(alu)),
        Op::Where if let (Some(op), DType::F32 | DType::F64) = (alu.min_max, alu.dtype) => {
            let word = if op == Op::Min { "lesser" } else { "greater" };
            call(word, alu.dtype, lanes, &src[1..])
        }
        Op::Where => {
            let gate = mask(&alu.src[0], alu.dtype.size_bytes() as u8);
            call("select", alu.dtype, lanes, &[&gate, src[1], src[2]])
        }
        op => match from {
            DType::Bool => return bool_op(alu),
            DType::F32 | DType::F64 => float_op(op, from, lanes, &src)?,
            _ => int_op(op, from, lanes, &src)?,
        },
    };
    Some(operator_result(alu.op, from, lanes, code))
}

/// The result of an operator; that of a comparison is a mask.
fn operator_result(op: Op, from: DType, lanes: u8, code: Code) -> Text {
    match op.is_comparison() {
        true => Text {
            code: code!("(({}){})", mask_name(from, lanes), code),
            mask_bytes: from.size_bytes() as u8,
        },
        false => code.into(),
    }
}

/// Renders a `where` of masks; the result has the width of the second operand.
fn select_masks(alu: &Alu) -> Text {
    let mask_bytes = alu.src[1].mask_bytes;
    let (gate, no) = (mask(&alu.src[0], mask_bytes), mask(&alu.src[2], mask_bytes));
    let arguments = [&gate, alu.src[1].code, &no];
    Text { code: call("select", mask_type(mask_bytes), alu.lanes, &arguments), mask_bytes }
}

fn bool_op(alu: &Alu) -> Option<Text> {
    let first = alu.src.first()?;
    let mask_bytes = first.mask_bytes;
    let (sign, not) = match alu.op {
        Op::Add | Op::Max | Op::Or => ("|", ""),
        Op::Mul | Op::Min | Op::And => ("&", ""),
        Op::CmpLt => ("&", "~"),
        Op::Sub | Op::CmpNe | Op::Xor => ("^", ""),
        _ => return None,
    };
    let second = mask(alu.src.get(1)?, mask_bytes);
    Some(Text { code: code!("({}{}{}{})", not, first.code, sign, second), mask_bytes })
}

fn float_op(op: Op, dtype: DType, lanes: u8, src: &[&Code]) -> Option<Code> {
    let sign = match op {
        Op::Neg => return Some(code!("(-{})", src[0])),
        Op::Exp2 | Op::Log2 | Op::Sin | Op::Sqrt | Op::Pow | Op::Max | Op::Min | Op::MulAcc => {
            return Some(call(op.name(), dtype, lanes, src));
        }
        Op::Add => "+",
        Op::Sub => "-",
        Op::Mul => "*",
        Op::FDiv => "/",
        Op::CmpLt => "<",
        Op::CmpNe => "!=",
        _ => return None,
    };
    Some(code!("({}{}{})", src[0], sign, src[1]))
}

/// Renders an integer op. Narrow lanes wrap by themselves, since C does not promote vectors to
/// `int`.
fn int_op(op: Op, dtype: DType, lanes: u8, src: &[&Code]) -> Option<Code> {
    let sign = match op {
        Op::Neg => return Some(code!("(-{})", src[0])),
        Op::Max | Op::Min => return Some(call(op.name(), dtype, lanes, src)),
        Op::Shl if dtype.is_signed() => {
            let (kind, unsigned) = (name(dtype, lanes), name(dtype.unsigned(), lanes));
            return Some(code!("(({})(({}){}<<{}))", kind, unsigned, src[0], src[1]));
        }
        Op::CDiv => "/",
        Op::CMod => "%",
        Op::Shl => "<<",
        Op::Shr => ">>",
        Op::Add => "+",
        Op::Sub => "-",
        Op::Mul => "*",
        Op::CmpLt => "<",
        Op::CmpNe => "!=",
        Op::And => "&",
        Op::Or => "|",
        Op::Xor => "^",
        _ => return None,
    };
    Some(code!("({}{}{})", src[0], sign, src[1]))
}

fn cast(alu: &Alu) -> Option<Text> {
    let (value, to, lanes) = (alu.src.first()?, alu.dtype, alu.lanes);
    let from = value.dtype;
    Some(match (from, to) {
        _ if from == to => Text { code: value.code.clone(), mask_bytes: value.mask_bytes },
        (DType::Bool, _) => {
            let (kind, masks) = (name(to, lanes), mask_name(to, lanes));
            let gate = mask(value, to.size_bytes() as u8);
            let ones = all(to, lanes, &constant(Constant::one(to)));
            code!("(({})({}&({}){}))", kind, gate, masks, ones).into()
        }
        (_, DType::Bool) => {
            let is_half = from.is_half();
            let wide = if is_half { DType::F32 } else { from };
            let x =
                if is_half { cast_call(from, wide, lanes, value.code) } else { value.code.clone() };
            let zero = all(wide, lanes, &constant(Constant::zero(wide)));
            operator_result(Op::CmpNe, wide, lanes, code!("({}!={})", x, zero))
        }
        _ => cast_call(from, to, lanes, value.code).into(),
    })
}

/// Returns the definition of the type or helper of this name.
pub(crate) fn definition(word: &str) -> Option<Code> {
    match word {
        VECTOR => Some(Code::default()),
        _ => Helper::parse(word)?.definition(),
    }
}

/// The parts of a name: `cast_f32_i8x4` is `cast`, from f32, to i8, 4 lanes.
struct Helper<'a> {
    word: &'a str,
    /// Empty for a type.
    function: &'a str,
    /// Source type of a cast.
    from: DType,
    dtype: DType,
    lanes: u8,
    /// True for the type of a vector in memory, which is aligned as its elements are.
    is_in_memory: bool,
}

impl<'a> Helper<'a> {
    fn parse(word: &'a str) -> Option<Helper<'a>> {
        let (function, kind) = word.rsplit_once('_').unwrap_or(("", word));
        let (dtype, lanes) = kind.split_once('x')?;
        let is_in_memory = function.is_empty() && lanes.ends_with('m');
        let lanes: u8 = lanes.strip_suffix('m').unwrap_or(lanes).parse().ok()?;
        let dtype = DType::from_name(dtype)?;
        type_name(dtype, lanes, 0)?;
        let (function, from) = match function.split_once('_') {
            Some((function, from)) => (function, DType::from_name(from)?),
            None => (function, dtype),
        };
        Some(Helper { word, function, from, dtype, lanes, is_in_memory })
    }

    /// Returns the definition; `None` if the word is not a helper of this file.
    fn definition(&self) -> Option<Code> {
        let (dtype, element, lanes) = (self.dtype, c_type(self.dtype), self.lanes);
        let (kind, masks, memory) =
            (name(dtype, lanes), mask_name(dtype, lanes), memory_name(dtype, lanes));
        let unary = code!("({} x)", kind);
        let binary = code!("({kind} x, {kind} y)"; kind);
        let (parameters, body) = match self.function {
            "" if dtype == DType::Bool => return None,
            "" => return Some(self.type_definition().into()),
            "all" => {
                let values = vec!["x"; lanes.into()].join(", ");
                (format!("({element} x)").into(), code!("return ({}){{{values}}};", kind))
            }
            "load" if dtype == DType::Bool => {
                let (bytes, memory) = (name(DType::I8, lanes), memory_name(DType::I8, lanes));
                let body = code!("return -*(const {}*)data;", memory);
                return Some(function(&bytes, self.word, &"(const bool* data)".into(), &body));
            }
            "load" => (
                format!("(const {element}* data)").into(),
                code!("return *(const {}*)data;", memory),
            ),
            "store" => return Some(self.store_definition()),
            "stream" => return Some(self.stream_definition()),
            "select" => (
                code!("({masks} m, {kind} x, {kind} y)"; masks, kind),
                code!(
                    "return ({kind})((({masks})x & m) | (({masks})y & ~m));";
                    kind, masks
                ),
            ),
            "max" | "min" => (binary, self.max_min_body()),
            "lesser" | "greater" if dtype.is_float() => (binary, self.compare_select_body()),
            "mulacc" if dtype.is_float() => {
                (code!("({kind} x, {kind} y, {kind} z)"; kind), self.fma_body())
            }
            "cast" => (code!("({} x)", name(self.from, lanes)), self.cast_body()),
            "exp2" | "log2" | "sin" | "sqrt" => (unary, self.lane_by_lane(1)?),
            "pow" => (binary, self.lane_by_lane(2)?),
            _ => return None,
        };
        Some(function(&kind, self.word, &parameters, &body))
    }

    fn type_definition(&self) -> String {
        let (element, align) = (c_type(self.dtype), self.dtype.size_bytes());
        let size = align * usize::from(self.lanes);
        let attributes = match self.is_in_memory {
            true => format!(", aligned({align}), may_alias"),
            false => String::new(),
        };
        format!(
            "typedef {element} {} __attribute__((vector_size({size}){attributes}));\n",
            self.word
        )
    }

    fn store_definition(&self) -> Code {
        let (dtype, element) = (self.dtype, c_type(self.dtype));
        let (lane, value) = if dtype == DType::Bool { (DType::I8, "-x") } else { (dtype, "x") };
        let (kind, memory) = (name(lane, self.lanes), memory_name(lane, self.lanes));
        let parameters = code!("({element}* data, {} x)", kind);
        function(&"void".into(), self.word, &parameters, &code!("*({}*)data = {value};", memory))
    }

    /// Non-temporal store, if the address is that of a whole cache line.
    fn stream_definition(&self) -> Code {
        let (element, kind) = (c_type(self.dtype), name(self.dtype, self.lanes));
        let parameters = code!("({element}* data, {} x)", kind);
        // `STREAM` may name the type of 16 floats.
        let (memory, floats) = (memory_name(self.dtype, self.lanes), name(DType::F32, 16));
        let body = code!(
            "IF_STREAMS(if (((uintptr_t)data & 63) == 0) {{ STREAM({}, data, x); return; }})\n  \
             /* {} */ *({}*)data = x;",
            kind,
            floats,
            memory
        );
        function(&"void".into(), self.word, &parameters, &body)
    }

    /// Maximum or minimum: the second operand if the two are equal, NaN if either float is NaN.
    /// Only `x` is tested for NaN: the second operand of a reduction is its accumulator, on the
    /// critical path.
    fn max_min_body(&self) -> Code {
        let (dtype, lanes, masks) = (self.dtype, self.lanes, mask_name(self.dtype, self.lanes));
        let [x, y] = ["x", "y"].map(Code::from);
        let is_max = self.function == "max";
        if dtype.is_float() {
            let intrinsic = match usize::from(lanes) * dtype.size_bytes() {
                64 => {
                    let letter = self.letter();
                    let is_number = format!("__builtin_ia32_cmpp{letter}512_mask(x, x, 7, -1, 4)");
                    let word = format!("__builtin_ia32_{}p{letter}512_mask", self.function);
                    format!("IF_GCC_AVX512(return {word}(x, y, x, {is_number}, 4);)\n  ")
                }
                _ => String::new(),
            };
            let compare = if is_max { "greater" } else { "lesser" };
            let compared = call(compare, dtype, lanes, &[&x, &y]);
            let select =
                call("select", dtype, lanes, &[&code!("({})(x != x)", masks), &x, &compared]);
            return code!("{intrinsic}return {};", select);
        }
        let condition = if is_max { "x < y" } else { "y < x" };
        let gate = code!("({})({condition})", masks);
        code!("return {};", call("select", dtype, lanes, &[&gate, &y, &x]))
    }

    /// The letter for this type in the names of x86 intrinsics.
    fn letter(&self) -> &'static str {
        if self.dtype == DType::F32 { "s" } else { "d" }
    }

    /// `x` if it is less (or greater) than `y`, else `y`, also if the two are equal or one is NaN.
    /// This is a single x86 instruction, which clang selects by itself and gcc does not.
    fn compare_select_body(&self) -> Code {
        let letter = self.letter();
        let (word, sign) = if self.function == "lesser" { ("min", "<") } else { ("max", ">") };
        let word = format!("__builtin_ia32_{word}p{letter}");
        let intrinsic = match usize::from(self.lanes) * self.dtype.size_bytes() {
            16 => format!("IF_GCC_SSE2(return {word}(x, y);)\n  "),
            32 => format!("IF_GCC_AVX(return {word}256(x, y);)\n  "),
            64 => format!("IF_GCC_AVX512(return {word}512_mask(x, y, x, -1, 4);)\n  "),
            _ => String::new(),
        };
        let gate = code!("({})(x {sign} y)", mask_name(self.dtype, self.lanes));
        let select = call("select", self.dtype, self.lanes, &[&gate, &"x".into(), &"y".into()]);
        code!("{intrinsic}return {};", select)
    }

    /// Fused multiply-add, if the machine has it. gcc has an intrinsic per vector size.
    fn fma_body(&self) -> Code {
        let (lanes, kind) = (self.lanes, name(self.dtype, self.lanes));
        let size = usize::from(lanes) * self.dtype.size_bytes();
        let letter = self.letter();
        let halves = || {
            let half = name(self.dtype, lanes / 2);
            let mulacc = Code::helper(format!("mulacc_{}x{}", self.dtype, lanes / 2));
            code!(
                "union {{ {kind} all; {half} half[2]; }} a = {{x}}, b = {{y}}, c = {{z}};\n  \
                 c.half[0] = {mulacc}(a.half[0], b.half[0], c.half[0]);\n  \
                 c.half[1] = {mulacc}(a.half[1], b.half[1], c.half[1]);\n  return c.all;";
                kind, half, mulacc
            )
        };
        let word = format!("__builtin_ia32_vfmaddp{letter}");
        let fallback = match size {
            0..16 => {
                let scalar = Code::helper(format!("mulacc_{}", self.dtype));
                code!(
                    "for (int i = 0; i < {lanes}; i++) z[i] = {}(x[i], y[i], z[i]);\n  \
                     return z;",
                    scalar
                )
            }
            16 | 32 => {
                let width = if size == 32 { "256" } else { "" };
                format!("IF_FMA(return {word}{width}(x, y, z);)\n  return x * y + z;").into()
            }
            64 => {
                code!("IF_AVX512(return {word}512_mask(x, y, z, -1, 4);)\n  {}", halves())
            }
            _ => halves(),
        };
        code!("IF_ELEMENTWISE_FMA(return __builtin_elementwise_fma(x, y, z);)\n  {}", fallback)
    }

    fn cast_body(&self) -> Code {
        let (from, to, lanes) = (self.from, self.dtype, self.lanes);
        match (from, to) {
            (DType::F16, DType::F32) => from_f16(lanes),
            (DType::BF16, DType::F32) => from_bf16(lanes),
            (DType::F32, DType::F16) => to_f16(lanes),
            (DType::F32, DType::BF16) => to_bf16(lanes),
            _ if from.is_half() => {
                let wide = cast_call(from, DType::F32, lanes, &"x".into());
                code!("return {};", cast_call(DType::F32, to, lanes, &wide))
            }
            (DType::F32 | DType::F64, _) if to.is_int() => self.float_to_int_body(),
            (DType::F64, DType::F32) => {
                self.by_lanes(&Code::call("f32_from_f64", &[&"x[i]".into()]))
            }
            _ if to.is_half() => {
                let value = Value {
                    code: &"x[i]".into(),
                    dtype: from,
                    lanes: 1,
                    mask_bytes: 0,
                    known: None,
                };
                let alu = Alu {
                    op: Op::Cast,
                    dtype: to,
                    lanes: 1,
                    src: Sources::from_iter([value]),
                    may_wrap: true,
                    min_max: None,
                };
                self.by_lanes(&SCALARS.alu(&alu).unwrap_or_default())
            }
            _ if let Some(wide) = wider(from, to) => {
                let step = code!("__builtin_convertvector(x, {})", name(wide, lanes));
                code!("return {};", cast_call(wide, to, lanes, &step))
            }
            _ => code!("return __builtin_convertvector(x, {});", name(to, lanes)),
        }
    }

    /// Float to integer: truncated toward zero, 0 if out of range.
    fn float_to_int_body(&self) -> Code {
        let (from, to, lanes) = (self.from, self.dtype, self.lanes);
        let in_range = code!("({})({})", mask_name(from, lanes), in_range(from, to, "&"));
        let zero = all(from, lanes, &constant(Constant::zero(from)));
        let safe = call("select", from, lanes, &[&in_range, &"x".into(), &zero]);
        code!("return __builtin_convertvector({}, {});", safe, name(to, lanes))
    }

    /// The scalar op on each lane.
    fn lane_by_lane(&self, arity: usize) -> Option<Code> {
        let op = Op::from_name(self.function)?;
        let lanes = ["x[i]", "y[i]"].map(Code::from);
        let source = |code| Value { code, dtype: self.dtype, lanes: 1, mask_bytes: 0, known: None };
        let src = lanes.iter().take(arity).map(source).collect();
        let alu = Alu { op, dtype: self.dtype, lanes: 1, src, may_wrap: true, min_max: None };
        Some(self.by_lanes(&SCALARS.alu(&alu)?))
    }

    /// A vector whose lanes are `value`, with `[i]` replaced by the lane. Not a loop over lanes: if
    /// the value is a truth value, as 1/x of an unsigned integer, gcc 12 makes all ones of it.
    fn by_lanes(&self, value: &Code) -> Code {
        let lane = |lane: u8| Code {
            text: value.text.replace("[i]", &format!("[{lane}]")),
            helpers: value.helpers.clone(),
        };
        let lanes: Vec<Code> = (0..self.lanes).map(lane).collect();
        let lanes = join(&lanes, ", ");
        code!("return ({}){{{}}};", name(self.dtype, self.lanes), lanes)
    }
}

fn function(kind: &Code, word: &str, parameters: &Code, body: &Code) -> Code {
    let vector = Code::helper(VECTOR);
    code!("{} {} {word}{} {{\n  {}\n}}\n", vector, kind, parameters, body)
}

/// Returns the type in the middle of a widening by more than twice, which gcc 12 would otherwise do
/// lane by lane.
fn wider(from: DType, to: DType) -> Option<DType> {
    let between = match from.size_bytes() {
        1 => DType::I16,
        2 => DType::I32,
        _ => return None,
    };
    let is_wider = between.size_bytes() < to.size_bytes() || to == DType::F32;
    (from.is_int() && from != DType::Bool && is_wider).then_some(between)
}

/// A cast in two halves, for each of which the machine has an instruction.
fn by_halves(from: DType, to: DType, lanes: u8) -> Code {
    let half = lanes / 2;
    let (from_all, from_half) = (name(from, lanes), name(from, half));
    let (to_all, to_half) = (name(to, lanes), name(to, half));
    let cast = Code::helper(format!("cast_{from}_{to}x{half}"));
    code!(
        "union {{ {from_all} all; {from_half} half[2]; }} a = {{x}};\n  \
         union {{ {to_all} all; {to_half} half[2]; }} b;\n  \
         b.half[0] = {cast}(a.half[0]);\n  \
         b.half[1] = {cast}(a.half[1]);\n  return b.all;";
        from_all, from_half, to_all, to_half, cast
    )
}

/// f16 to f32: the exponent of f16, shifted into the position of f32's, is too small by 112.
/// Multiplying by 2^112 is right for subnormal numbers as well.
fn from_f16(lanes: u8) -> Code {
    let (u32, f32) = (name(DType::U32, lanes), name(DType::F32, lanes));
    let bits = name(DType::I16, lanes);
    let intrinsic = match lanes {
        8 => code!("IF_F16C(return __builtin_ia32_vcvtph2ps256(({})x);)\n  ", bits),
        16 => code!(
            "IF_AVX512(return __builtin_ia32_vcvtph2ps512_mask(({})x, {}, -1, 4);)\n  ",
            bits,
            all(DType::F32, lanes, &"0.0f".into())
        ),
        32 | 64 => return by_halves(DType::F16, DType::F32, lanes),
        _ => Code::default(),
    };
    code!(
        "{intrinsic}{u32} bits = __builtin_convertvector(x, {u32});\n  \
         {u32} magnitude = (bits & 0x7fffu) << 13;\n  \
         {u32} value = ({u32})(({f32})magnitude * 0x1p112f);\n  \
         {u32} top = ({u32})(magnitude >= 0xf800000u) & 0x7f800000u;\n  \
         return ({f32})((bits & 0x8000u) << 16 | value | top);";
        intrinsic, u32, f32
    )
}

/// bf16 to f32: the bits of each lane become the upper half of a wider one, which AVX-512 does with
/// one permutation whose other lanes are 0. gcc 12 widens vectors of 16 lanes in halves.
fn from_bf16(lanes: u8) -> Code {
    let (f32, u32) = (name(DType::F32, lanes), name(DType::U32, lanes));
    let intrinsic = match lanes {
        16 => {
            let (i32, i16) = (name(DType::I32, 8), name(DType::I16, 32));
            let index = (0..32).map(|lane| (lane / 2).to_string()).collect::<Vec<_>>().join(", ");
            let zeros = all(DType::I16, 32, &"0".into());
            code!(
                "IF_PERMUTES({i16} index = {{{index}}};\n  \
                 {i16} lanes = ({i16})__builtin_ia32_si512_256si(({i32})x);\n  \
                 return ({f32})__builtin_ia32_permvarhi512_mask(lanes, index, {zeros}, \
                 0xaaaaaaaau);)\n  ";
                i16, index, i32, f32, zeros
            )
        }
        32 | 64 => return by_halves(DType::BF16, DType::F32, lanes),
        _ => Code::default(),
    };
    code!(
        "{intrinsic}return ({f32})(__builtin_convertvector(x, {u32}) << 16);";
        intrinsic, f32, u32
    )
}

/// f32 to f16, as the scalar helper `f16_from_f32`.
fn to_f16(lanes: u8) -> Code {
    let [f16, f32, i32, u32] =
        [DType::F16, DType::F32, DType::I32, DType::U32].map(|dtype| name(dtype, lanes));
    let intrinsic = match lanes {
        8 => code!("IF_F16C(return ({})__builtin_ia32_vcvtps2ph256(x, 0);)\n  ", f16),
        16 => code!(
            "IF_AVX512(return ({})__builtin_ia32_vcvtps2ph512_mask(x, 0, {}, -1);)\n  ",
            f16,
            all(DType::I16, lanes, &"0".into())
        ),
        32 | 64 => return by_halves(DType::F32, DType::F16, lanes),
        _ => Code::default(),
    };
    let select = Code::helper(format!("select_u32x{lanes}"));
    let infinity = all(DType::U32, lanes, &"0x7c00u".into());
    code!(
        "{intrinsic}{u32} bits = ({u32})x, sign = bits >> 16 & 0x8000u;\n  \
         {u32} m = bits & 0x7fffffffu;\n  \
         {u32} r = (m - 0x38000000u + 0xfffu + (m >> 13 & 1u)) >> 13;\n  \
         {u32} low = ({u32})(({f32})m + 0.5f) - 0x3f000000u;\n  \
         r = {select}(({i32})(m < 0x38800000u), low, r);\n  \
         r = {select}(({i32})(m >= 0x477ff000u), {infinity}, r);\n  \
         {u32} nan = 0x7e00u | (m >> 13 & 1023u);\n  \
         r = {select}(({i32})(m > 0x7f800000u), nan, r);\n  \
         return __builtin_convertvector(sign | r, {f16});";
        intrinsic, u32, f32, select, i32, infinity, f16
    )
}

/// f32 to bf16, as the scalar helper `bf16_from_f32`.
fn to_bf16(lanes: u8) -> Code {
    let [bf16, i32, u32] = [DType::BF16, DType::I32, DType::U32].map(|dtype| name(dtype, lanes));
    let select = Code::helper(format!("select_u32x{lanes}"));
    code!(
        "{u32} bits = ({u32})x;\n  \
         {u32} r = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;\n  \
         r = {select}(({i32})(x != x), bits >> 16 | 0x40u, r);\n  \
         return __builtin_convertvector(r, {bf16});";
        u32, select, i32, bf16
    )
}
