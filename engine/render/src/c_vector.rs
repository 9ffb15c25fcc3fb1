//! Vectors in C: the operators of the vector extensions of gcc and clang, and helpers for the rest.
//! `load_f32x16`, `max_i8x4` and the like, and the vector types, are defined if a file uses them.
//!
//! A vector of bools is a mask: integers that are 0 or -1, as wide as the compared type. It is
//! converted if another width is required; in memory a bool is a byte, 0 or 1.

use gradiff_graph::{Constant, DType, Op};

use crate::c::{c_type, constant, scalar};
use crate::dialect::{Access, Alu, Sources, Text, Value};
use crate::helpers::in_range;
use crate::scalar::is_half;

/// The name of a vector type; `None` if there is no such vector.
pub(crate) fn type_name(dtype: DType, lanes: u8, mask_bytes: u8) -> Option<String> {
    let is_possible = (2..=64).contains(&lanes) && lanes.is_power_of_two();
    let lane = if dtype == DType::Bool { mask_type(mask_bytes.max(1)) } else { dtype };
    (is_possible && dtype != DType::Void).then(|| name(lane, lanes))
}

fn name(dtype: DType, lanes: u8) -> String {
    format!("{}x{lanes}", dtype.name())
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
fn mask_name(dtype: DType, lanes: u8) -> String {
    name(mask_type(dtype.size_bytes() as u8), lanes)
}

/// Converts a mask to this number of bytes per lane.
fn mask(value: &Value, bytes: u8) -> String {
    match value.mask_bytes == bytes {
        true => value.text.to_string(),
        false => {
            format!(
                "__builtin_convertvector({}, {})",
                value.text,
                name(mask_type(bytes), value.lanes)
            )
        }
    }
}

/// A value in the representation of variables: masks have one byte per lane.
pub(crate) fn canonical(value: &Value) -> Text {
    match value.dtype {
        DType::Bool => Text { text: mask(value, 1), mask_bytes: 1 },
        _ => value.text.to_string().into(),
    }
}

/// The loaded elements.
pub(crate) fn load(access: &Access) -> Option<Text> {
    let Access { array, index, dtype, lanes, .. } = access;
    type_name(*dtype, *lanes, 0)?;
    let text = format!("load_{}({array}+{index})", name(*dtype, *lanes));
    Some(Text { text, mask_bytes: u8::from(*dtype == DType::Bool) })
}

/// Size of a cache line.
const LINE_BYTES: u64 = 64;

/// The statement that stores a canonical value. Whole cache lines of a large array are stored
/// non-temporally, so that the lines are not read first.
pub(crate) fn store(access: &Access, value: &Value) -> Option<String> {
    let kind = name(access.dtype, access.lanes);
    let is_line = u64::from(access.lanes) * access.dtype.size_bytes() as u64 == LINE_BYTES;
    let is_nontemporal = is_line && access.is_nontemporal && access.dtype != DType::Bool;
    let word = if is_nontemporal { "stream" } else { "store" };
    Some(format!("{word}_{kind}({}+{}, {});", access.array, access.index, value.text))
}

/// A vector of these lanes, or the splat of a single value.
pub(crate) fn vectorize(dtype: DType, lanes: u8, src: &[Value]) -> Option<Text> {
    let kind = type_name(dtype, lanes, 0)?;
    let sign = if dtype == DType::Bool { "-" } else { "" };
    let src: Vec<String> = src.iter().map(|value| format!("{sign}{}", value.text)).collect();
    let text = match src.as_slice() {
        [value] => format!("all_{kind}({value})"),
        lanes => format!("({kind}){{{}}}", lanes.join(", ")),
    };
    Some(Text { text, mask_bytes: u8::from(dtype == DType::Bool) })
}

/// Renders an elementwise op.
pub(crate) fn alu(alu: &Alu) -> Option<Text> {
    let (src, from, lanes) = (alu.texts(), alu.from(), alu.lanes);
    type_name(alu.dtype, lanes, 0)?;
    let text = match alu.op {
        Op::Cast => return cast(alu),
        Op::Bitcast if from == alu.dtype => src[0].to_string(),
        Op::Bitcast if from.size_bytes() != alu.dtype.size_bytes() => return None,
        Op::Bitcast if [from, alu.dtype].contains(&DType::Bool) => return None,
        Op::Bitcast => format!("(({}){})", name(alu.dtype, lanes), src[0]),
        Op::Where if alu.dtype == DType::Bool => return Some(select_masks(alu)),
        Op::Where if let (Some(op), DType::F32 | DType::F64) = (alu.min_max, alu.dtype) => {
            let word = if op == Op::Min { "lesser" } else { "greater" };
            format!("{word}_{}({}, {})", name(alu.dtype, lanes), src[1], src[2])
        }
        Op::Where => {
            let gate = mask(&alu.src[0], alu.dtype.size_bytes() as u8);
            format!("select_{}({gate}, {}, {})", name(alu.dtype, lanes), src[1], src[2])
        }
        op => match from {
            DType::Bool => return bool_op(alu),
            DType::F16 | DType::BF16 => return half_op(alu),
            DType::F32 | DType::F64 => float_op(op, from, lanes, &src)?,
            _ => int_op(op, from, lanes, &src, alu.src.get(1).and_then(Value::known_int))?,
        },
    };
    Some(operator_result(alu.op, from, lanes, text))
}

/// The result of an operator; that of a comparison is a mask.
fn operator_result(op: Op, from: DType, lanes: u8, text: String) -> Text {
    match op.is_comparison() {
        true => Text {
            text: format!("(({}){text})", mask_name(from, lanes)),
            mask_bytes: from.size_bytes() as u8,
        },
        false => text.into(),
    }
}

/// Renders a `where` of masks; the result has the width of the second operand.
fn select_masks(alu: &Alu) -> Text {
    let mask_bytes = alu.src[1].mask_bytes;
    let (gate, no) = (mask(&alu.src[0], mask_bytes), mask(&alu.src[2], mask_bytes));
    let kind = name(mask_type(mask_bytes), alu.lanes);
    Text { text: format!("select_{kind}({gate}, {}, {no})", alu.src[1].text), mask_bytes }
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
    let text = format!("({not}{}{sign}{})", first.text, mask(alu.src.get(1)?, mask_bytes));
    Some(Text { text, mask_bytes })
}

/// Renders an op of a 16-bit float, computed in f32 and rounded.
fn half_op(alu: &Alu) -> Option<Text> {
    let (from, lanes) = (alu.from().name(), alu.lanes);
    let wide = alu.src.iter().map(|value| format!("cast_{from}_f32x{lanes}({})", value.text));
    let wide: Vec<String> = wide.collect();
    let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
    let text = float_op(alu.op, DType::F32, lanes, &wide)?;
    Some(match alu.op.is_comparison() {
        true => operator_result(alu.op, DType::F32, lanes, text),
        false => format!("cast_f32_{from}x{lanes}({text})").into(),
    })
}

fn float_op(op: Op, dtype: DType, lanes: u8, src: &[&str]) -> Option<String> {
    let kind = name(dtype, lanes);
    let sign = match op {
        Op::Neg => return Some(format!("(-{})", src[0])),
        Op::Recip => {
            let one = constant(Constant::one(dtype));
            return Some(format!("(all_{kind}({one})/{})", src[0]));
        }
        Op::Exp2 | Op::Log2 | Op::Sin | Op::Sqrt | Op::Pow | Op::Max | Op::Min | Op::MulAcc => {
            return Some(format!("{op}_{kind}({})", src.join(", ")));
        }
        Op::Add => "+",
        Op::Sub => "-",
        Op::Mul => "*",
        Op::FDiv => "/",
        Op::CmpLt => "<",
        Op::CmpNe => "!=",
        _ => return None,
    };
    Some(format!("({}{sign}{})", src[0], src[1]))
}

/// Renders an integer op. Narrow lanes wrap by themselves, since C does not promote vectors to
/// `int`.
fn int_op(op: Op, dtype: DType, lanes: u8, src: &[&str], known: Option<i128>) -> Option<String> {
    let kind = name(dtype, lanes);
    let helper = |function: &str| format!("{function}_{kind}({})", src.join(", "));
    let bits = i128::from(dtype.bits());
    // An amount below the width: never undefined.
    let amount = || match known {
        Some(amount) if 0 <= amount && amount < bits => amount.to_string(),
        _ => format!("({}&all_{kind}({}))", src[1], bits - 1),
    };
    let sign = match op {
        Op::Neg => return Some(format!("(-{})", src[0])),
        Op::MulAcc => return Some(format!("(({}*{})+{})", src[0], src[1], src[2])),
        Op::CDiv | Op::CMod | Op::Max | Op::Min => return Some(helper(op.name())),
        Op::FloorDiv | Op::FloorMod if dtype.is_signed() => return Some(helper(op.name())),
        Op::FloorDiv => return Some(helper("cdiv")),
        Op::FloorMod => return Some(helper("cmod")),
        Op::Shl if dtype.is_signed() => {
            let unsigned = kind.replace('i', "u");
            return Some(format!("(({kind})(({unsigned}){}<<{}))", src[0], amount()));
        }
        Op::Shl => return Some(format!("({}<<{})", src[0], amount())),
        Op::Shr => return Some(format!("({}>>{})", src[0], amount())),
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
    Some(format!("({}{sign}{})", src[0], src[1]))
}

fn cast(alu: &Alu) -> Option<Text> {
    let (value, to, lanes) = (alu.src.first()?, alu.dtype, alu.lanes);
    let (from, kind) = (value.dtype, name(to, lanes));
    let mask_bytes = from.size_bytes() as u8;
    Some(match (from, to) {
        _ if from == to => Text { text: value.text.to_string(), mask_bytes: value.mask_bytes },
        (DType::Bool, _) => {
            let masks = mask_name(to, lanes);
            let (gate, one) = (mask(value, to.size_bytes() as u8), constant(Constant::one(to)));
            format!("(({kind})({gate}&({masks})all_{kind}({one})))").into()
        }
        (_, DType::Bool) if is_half(from) => {
            let wide = format!("cast_{}_f32x{lanes}({})", from.name(), value.text);
            operator_result(
                Op::CmpNe,
                DType::F32,
                lanes,
                format!("({wide}!=all_f32x{lanes}(0.0f))"),
            )
        }
        (_, DType::Bool) => {
            let (wide, zero) = (name(from, lanes), constant(Constant::zero(from)));
            let masks = name(mask_type(mask_bytes), lanes);
            let text = format!("(({masks})({}!=all_{wide}({zero})))", value.text);
            Text { text, mask_bytes }
        }
        _ => format!("cast_{}_{kind}({})", from.name(), value.text).into(),
    })
}

/// Returns the definition of the type or helper of this name.
pub(crate) fn definition(word: &str) -> Option<String> {
    Helper::parse(word)?.definition()
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
    fn definition(&self) -> Option<String> {
        let (dtype, element, kind) = (self.dtype, c_type(self.dtype), name(self.dtype, self.lanes));
        let masks = mask_name(dtype, self.lanes);
        let unary = format!("({kind} x)");
        let binary = format!("({kind} x, {kind} y)");
        let (parameters, body) = match self.function {
            "" if dtype == DType::Bool => return None,
            "" => return Some(self.type_definition()),
            "all" => {
                let lanes = vec!["x"; self.lanes.into()].join(", ");
                (format!("({element} x)"), format!("return ({kind}){{{lanes}}};"))
            }
            "load" if dtype == DType::Bool => {
                let bytes = name(DType::I8, self.lanes);
                let body = format!("return -*(const {bytes}m*)data;");
                return Some(function(&bytes, self.word, "(const bool* data)", &body));
            }
            "load" => {
                (format!("(const {element}* data)"), format!("return *(const {kind}m*)data;"))
            }
            "store" => return Some(self.store_definition()),
            "stream" => return Some(self.stream_definition()),
            "select" => {
                let body = format!("return ({kind})((({masks})x & m) | (({masks})y & ~m));");
                (format!("({masks} m, {kind} x, {kind} y)"), body)
            }
            "max" | "min" => (binary, self.max_min_body()),
            "lesser" | "greater" if dtype.is_float() => (binary, self.compare_select_body()),
            "mulacc" if dtype.is_float() => {
                (format!("({kind} x, {kind} y, {kind} z)"), self.fma_body())
            }
            "cast" => (format!("({} x)", name(self.from, self.lanes)), self.cast_body()),
            "exp2" | "log2" | "sin" | "sqrt" => (unary, self.lane_by_lane(1)?),
            "pow" | "cdiv" | "cmod" | "floordiv" | "floormod" => (binary, self.lane_by_lane(2)?),
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

    fn store_definition(&self) -> String {
        let (dtype, element) = (self.dtype, c_type(self.dtype));
        let (kind, value) = match dtype {
            DType::Bool => (name(DType::I8, self.lanes), "-x"),
            _ => (name(dtype, self.lanes), "x"),
        };
        let parameters = format!("({element}* data, {kind} x)");
        function("void", self.word, &parameters, &format!("*({kind}m*)data = {value};"))
    }

    /// Non-temporal store, if the address is that of a whole cache line.
    fn stream_definition(&self) -> String {
        let (element, kind) = (c_type(self.dtype), name(self.dtype, self.lanes));
        let body = format!(
            "IF_STREAMS(if (((uintptr_t)data & 63) == 0) \
             {{ STREAM({kind}, data, x); return; }})\n  \
             /* f32x16 */ *({kind}m*)data = x;"
        );
        function("void", self.word, &format!("({element}* data, {kind} x)"), &body)
    }

    /// Maximum or minimum: the second operand if the two are equal, NaN if either float is NaN.
    /// Only `x` is tested for NaN: the second operand of a reduction is its accumulator, on the
    /// critical path.
    fn max_min_body(&self) -> String {
        let (kind, masks) = (name(self.dtype, self.lanes), mask_name(self.dtype, self.lanes));
        let is_max = self.function == "max";
        if self.dtype.is_float() {
            let compare = if is_max { "greater" } else { "lesser" };
            let intrinsic = match usize::from(self.lanes) * self.dtype.size_bytes() {
                64 => {
                    let letter = self.letter();
                    let is_number = format!("__builtin_ia32_cmpp{letter}512_mask(x, x, 7, -1, 4)");
                    let word = format!("__builtin_ia32_{}p{letter}512_mask", self.function);
                    format!("IF_GCC_AVX512(return {word}(x, y, x, {is_number}, 4);)\n  ")
                }
                _ => String::new(),
            };
            return format!(
                "{intrinsic}return select_{kind}(({masks})(x != x), x, {compare}_{kind}(x, y));"
            );
        }
        let condition = if is_max { "x < y" } else { "y < x" };
        format!("return select_{kind}(({masks})({condition}), y, x);")
    }

    /// The letter for this type in the names of x86 intrinsics.
    fn letter(&self) -> &'static str {
        if self.dtype == DType::F32 { "s" } else { "d" }
    }

    /// `x` if it is less (or greater) than `y`, else `y`, also if the two are equal or one is NaN.
    /// This is a single x86 instruction, which clang selects by itself and gcc does not.
    fn compare_select_body(&self) -> String {
        let (kind, masks) = (name(self.dtype, self.lanes), mask_name(self.dtype, self.lanes));
        let letter = self.letter();
        let (word, sign) = if self.function == "lesser" { ("min", "<") } else { ("max", ">") };
        let word = format!("__builtin_ia32_{word}p{letter}");
        let intrinsic = match usize::from(self.lanes) * self.dtype.size_bytes() {
            16 => format!("IF_GCC_SSE2(return {word}(x, y);)\n  "),
            32 => format!("IF_GCC_AVX(return {word}256(x, y);)\n  "),
            64 => format!("IF_GCC_AVX512(return {word}512_mask(x, y, x, -1, 4);)\n  "),
            _ => String::new(),
        };
        format!("{intrinsic}return select_{kind}(({masks})(x {sign} y), x, y);")
    }

    /// Fused multiply-add, if the machine has it. gcc has an intrinsic per vector size.
    fn fma_body(&self) -> String {
        let (lanes, kind) = (self.lanes, name(self.dtype, self.lanes));
        let size = usize::from(lanes) * self.dtype.size_bytes();
        let letter = self.letter();
        let halves = || {
            let half = name(self.dtype, lanes / 2);
            format!(
                "union {{ {kind} all; {half} half[2]; }} a = {{x}}, b = {{y}}, c = {{z}};\n  \
                 c.half[0] = mulacc_{half}(a.half[0], b.half[0], c.half[0]);\n  \
                 c.half[1] = mulacc_{half}(a.half[1], b.half[1], c.half[1]);\n  return c.all;"
            )
        };
        let word = format!("__builtin_ia32_vfmaddp{letter}");
        let fallback = match size {
            0..16 => {
                let scalar = format!("mulacc_{}", self.dtype.name());
                format!(
                    "for (int i = 0; i < {lanes}; i++) z[i] = {scalar}(x[i], y[i], z[i]);\n  \
                         return z;"
                )
            }
            16 | 32 => {
                let width = if size == 32 { "256" } else { "" };
                format!("IF_FMA(return {word}{width}(x, y, z);)\n  return x * y + z;")
            }
            64 => format!("IF_AVX512(return {word}512_mask(x, y, z, -1, 4);)\n  {}", halves()),
            _ => halves(),
        };
        format!("IF_ELEMENTWISE_FMA(return __builtin_elementwise_fma(x, y, z);)\n  {fallback}")
    }

    fn cast_body(&self) -> String {
        let (from, to, lanes) = (self.from, self.dtype, self.lanes);
        let kind = name(to, lanes);
        match (from, to) {
            (DType::F16, DType::F32) => from_f16(lanes),
            (DType::BF16, DType::F32) => {
                format!("return (f32x{lanes})(__builtin_convertvector(x, u32x{lanes}) << 16);")
            }
            (DType::F32, DType::F16) => to_f16(lanes),
            (DType::F32, DType::BF16) => to_bf16(lanes),
            _ if is_half(from) => {
                format!("return cast_f32_{kind}(cast_{}_f32x{lanes}(x));", from.name())
            }
            (DType::F32 | DType::F64, _) if to.is_int() => self.float_to_int_body(),
            (DType::F64, DType::F32) => self.by_lanes("f32_from_f64(x[i])"),
            _ if is_half(to) => {
                let value =
                    Value { text: "x[i]", dtype: from, lanes: 1, mask_bytes: 0, known: None };
                let alu = Alu {
                    op: Op::Cast,
                    dtype: to,
                    lanes: 1,
                    src: Sources::from_iter([value]),
                    may_wrap: true,
                    min_max: None,
                };
                self.by_lanes(&scalar(&alu).unwrap_or_default())
            }
            _ => format!("return __builtin_convertvector(x, {kind});"),
        }
    }

    /// Float to integer: truncated toward zero, 0 if out of range.
    fn float_to_int_body(&self) -> String {
        let (from, to, lanes) = (self.from, self.dtype, self.lanes);
        let (wide, masks) = (name(from, lanes), mask_name(from, lanes));
        let in_range = format!("({masks})({})", in_range(from, to, "&"));
        let zero = constant(Constant::zero(from));
        let kind = name(to, lanes);
        let safe = format!("select_{wide}({in_range}, x, all_{wide}({zero}))");
        format!("return __builtin_convertvector({safe}, {kind});")
    }

    /// The scalar op on each lane.
    fn lane_by_lane(&self, arity: usize) -> Option<String> {
        let op = Op::from_name(self.function)?;
        let source = |text| Value { text, dtype: self.dtype, lanes: 1, mask_bytes: 0, known: None };
        let src = ["x[i]", "y[i]"].into_iter().take(arity).map(source).collect();
        let alu = Alu { op, dtype: self.dtype, lanes: 1, src, may_wrap: true, min_max: None };
        Some(self.by_lanes(&scalar(&alu)?))
    }

    /// A vector whose lanes are `value`, with `[i]` replaced by the lane. Not a loop over lanes: if
    /// the value is a truth value, as 1/x of an unsigned integer, gcc 12 makes all ones of it.
    fn by_lanes(&self, value: &str) -> String {
        let lane = |lane: u8| value.replace("[i]", &format!("[{lane}]"));
        let lanes: Vec<String> = (0..self.lanes).map(lane).collect();
        format!("return ({}){{{}}};", name(self.dtype, self.lanes), lanes.join(", "))
    }
}

fn function(kind: &str, word: &str, parameters: &str, body: &str) -> String {
    format!("VECTOR {kind} {word}{parameters} {{\n  {body}\n}}\n")
}

/// A cast in two halves, for each of which the machine has an instruction.
fn by_halves(from: &str, to: &str, lanes: u8) -> String {
    let half = lanes / 2;
    format!(
        "union {{ {from}x{lanes} all; {from}x{half} half[2]; }} a = {{x}};\n  \
         union {{ {to}x{lanes} all; {to}x{half} half[2]; }} b;\n  \
         b.half[0] = cast_{from}_{to}x{half}(a.half[0]);\n  \
         b.half[1] = cast_{from}_{to}x{half}(a.half[1]);\n  return b.all;"
    )
}

/// f16 to f32: the exponent of f16, shifted into the position of f32's, is too small by 112.
/// Multiplying by 2^112 is right for subnormal numbers as well.
fn from_f16(lanes: u8) -> String {
    let intrinsic = match lanes {
        8 => "IF_F16C(return __builtin_ia32_vcvtph2ps256((i16x8)x);)\n  ",
        16 => {
            "IF_AVX512(return __builtin_ia32_vcvtph2ps512_mask((i16x16)x, all_f32x16(0.0f), -1, \
               4);)\n  "
        }
        32 | 64 => return by_halves("f16", "f32", lanes),
        _ => "",
    };
    format!(
        "{intrinsic}u32x{lanes} bits = __builtin_convertvector(x, u32x{lanes});\n  \
         u32x{lanes} magnitude = (bits & 0x7fffu) << 13;\n  \
         u32x{lanes} value = (u32x{lanes})((f32x{lanes})magnitude * 0x1p112f);\n  \
         u32x{lanes} top = (u32x{lanes})(magnitude >= 0xf800000u) & 0x7f800000u;\n  \
         return (f32x{lanes})((bits & 0x8000u) << 16 | value | top);"
    )
}

/// f32 to f16, as the scalar helper `f16_from_f32`.
fn to_f16(lanes: u8) -> String {
    let intrinsic = match lanes {
        8 => "IF_F16C(return (f16x8)__builtin_ia32_vcvtps2ph256(x, 0);)\n  ",
        16 => {
            "IF_AVX512(return (f16x16)__builtin_ia32_vcvtps2ph512_mask(x, 0, all_i16x16(0), \
               -1);)\n  "
        }
        32 | 64 => return by_halves("f32", "f16", lanes),
        _ => "",
    };
    format!(
        "{intrinsic}u32x{lanes} bits = (u32x{lanes})x, sign = bits >> 16 & 0x8000u;\n  \
         u32x{lanes} m = bits & 0x7fffffffu;\n  \
         u32x{lanes} r = (m - 0x38000000u + 0xfffu + (m >> 13 & 1u)) >> 13;\n  \
         u32x{lanes} low = (u32x{lanes})((f32x{lanes})m + 0.5f) - 0x3f000000u;\n  \
         r = select_u32x{lanes}((i32x{lanes})(m < 0x38800000u), low, r);\n  \
         r = select_u32x{lanes}((i32x{lanes})(m >= 0x477ff000u), all_u32x{lanes}(0x7c00u), r);\n  \
         u32x{lanes} nan = 0x7e00u | (m >> 13 & 1023u);\n  \
         r = select_u32x{lanes}((i32x{lanes})(m > 0x7f800000u), nan, r);\n  \
         return __builtin_convertvector(sign | r, f16x{lanes});"
    )
}

/// f32 to bf16, as the scalar helper `bf16_from_f32`.
fn to_bf16(lanes: u8) -> String {
    format!(
        "u32x{lanes} bits = (u32x{lanes})x;\n  \
         u32x{lanes} r = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;\n  \
         r = select_u32x{lanes}((i32x{lanes})(x != x), bits >> 16 | 0x40u, r);\n  \
         return __builtin_convertvector(r, bf16x{lanes});"
    )
}
