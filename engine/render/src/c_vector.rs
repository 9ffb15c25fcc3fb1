//! Vectors in C: the operators that gcc and clang give to vectors, and named functions for the
//! rest. `load_f32x16`, `max_i8x4` and the like are written out where a file uses them, and the
//! types with them.
//!
//! A vector of bools is a mask: integers that are 0 or -1, as wide as what was compared. It is
//! converted where another width is wanted; in memory a bool is a byte, 0 or 1.

use gradiff_graph::{Constant, DType, Op};

use crate::c::{c_type, constant, scalar};
use crate::dialect::{Alu, Place, Sources, Text, Value};
use crate::helpers::inside;
use crate::scalar::is_half;

/// The name of the type of a vector.
pub(crate) fn type_name(dtype: DType, lanes: u8, mask_bytes: u8) -> Option<String> {
    let is_possible = (2..=64).contains(&lanes) && lanes.is_power_of_two();
    let lane = if dtype == DType::Bool { mask_type(mask_bytes.max(1)) } else { dtype };
    (is_possible && dtype != DType::Void).then(|| name(lane, lanes))
}

fn name(dtype: DType, lanes: u8) -> String {
    format!("{}x{lanes}", dtype.name())
}

/// The integer that a lane of a mask is.
fn mask_type(bytes: u8) -> DType {
    match bytes {
        1 => DType::I8,
        2 => DType::I16,
        4 => DType::I32,
        _ => DType::I64,
    }
}

/// The name of the masks that comparisons of this type give.
fn mask_name(dtype: DType, lanes: u8) -> String {
    name(mask_type(dtype.size_bytes() as u8), lanes)
}

/// A mask with lanes of this width.
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

/// A value in the form in which a variable holds it: masks have one byte a lane.
pub(crate) fn settled(value: &Value) -> Text {
    match value.dtype {
        DType::Bool => Text { text: mask(value, 1), mask_bytes: 1 },
        _ => value.text.to_string().into(),
    }
}

/// The elements at a place.
pub(crate) fn load(place: &Place) -> Option<Text> {
    type_name(place.dtype, place.lanes, 0)?;
    let text = format!("load_{}({}+{})", name(place.dtype, place.lanes), place.array, place.index);
    Some(Text { text, mask_bytes: u8::from(place.dtype == DType::Bool) })
}

/// Bytes of a line of the caches.
const LINE_BYTES: u64 = 64;
/// The statement that stores a settled value: into a large array whole lines past the caches, so
/// that what lay there is not read first.
pub(crate) fn store(place: &Place, value: &Value) -> Option<String> {
    let kind = name(place.dtype, place.lanes);
    let line = u64::from(place.lanes) * place.dtype.size_bytes() as u64 == LINE_BYTES;
    let is_streamed = line && place.is_past_caches && place.dtype != DType::Bool;
    let word = if is_streamed { "stream" } else { "store" };
    Some(format!("{word}_{kind}({}+{}, {});", place.array, place.index, value.text))
}

/// Values side by side, or one for all lanes.
pub(crate) fn vectorize(dtype: DType, lanes: u8, src: &[Value]) -> Option<Text> {
    let kind = type_name(dtype, lanes, 0)?;
    let sign = if dtype == DType::Bool { "-" } else { "" };
    let src: Vec<String> = src.iter().map(|value| format!("{sign}{}", value.text)).collect();
    let text = match src.as_slice() {
        [one] => format!("all_{kind}({one})"),
        many => format!("({kind}){{{}}}", many.join(", ")),
    };
    Some(Text { text, mask_bytes: u8::from(dtype == DType::Bool) })
}

/// An elementwise op.
pub(crate) fn alu(alu: &Alu) -> Option<Text> {
    let (src, from, lanes) = (alu.texts(), alu.from(), alu.lanes);
    type_name(alu.dtype, lanes, 0)?;
    let text = match alu.op {
        Op::Cast => return cast(alu),
        Op::Bitcast if from == alu.dtype => src[0].to_string(),
        Op::Bitcast if from.size_bytes() != alu.dtype.size_bytes() => return None,
        Op::Bitcast if [from, alu.dtype].contains(&DType::Bool) => return None,
        Op::Bitcast => format!("(({}){})", name(alu.dtype, lanes), src[0]),
        Op::Where if alu.dtype == DType::Bool => return Some(choose_masks(alu)),
        Op::Where if let (Some(op), DType::F32 | DType::F64) = (alu.extreme, alu.dtype) => {
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
    Some(compared(alu.op, from, lanes, text))
}

/// What an operator gives; comparisons give masks.
fn compared(op: Op, from: DType, lanes: u8, text: String) -> Text {
    match op.is_comparison() {
        true => Text {
            text: format!("(({}){text})", mask_name(from, lanes)),
            mask_bytes: from.size_bytes() as u8,
        },
        false => text.into(),
    }
}

/// Of three masks, in the width of the second.
fn choose_masks(alu: &Alu) -> Text {
    let mask_bytes = alu.src[1].mask_bytes;
    let (gate, other) = (mask(&alu.src[0], mask_bytes), mask(&alu.src[2], mask_bytes));
    let kind = name(mask_type(mask_bytes), alu.lanes);
    Text { text: format!("select_{kind}({gate}, {}, {other})", alu.src[1].text), mask_bytes }
}

fn bool_op(alu: &Alu) -> Option<Text> {
    let first = alu.src.first()?;
    let mask_bytes = first.mask_bytes;
    let (sign, not) = match alu.op {
        Op::Neg => return Some(Text { text: first.text.to_string(), mask_bytes }),
        Op::Add | Op::Max | Op::Or => ("|", ""),
        Op::Mul | Op::Min | Op::And => ("&", ""),
        Op::CmpLt => ("&", "~"),
        Op::Sub | Op::CmpNe | Op::Xor => ("^", ""),
        _ => return None,
    };
    let text = format!("({not}{}{sign}{})", first.text, mask(alu.src.get(1)?, mask_bytes));
    Some(Text { text, mask_bytes })
}

/// An op of a 16-bit float, done in f32 and rounded.
fn half_op(alu: &Alu) -> Option<Text> {
    let (from, lanes) = (alu.from().name(), alu.lanes);
    let wide = alu.src.iter().map(|value| format!("cast_{from}_f32x{lanes}({})", value.text));
    let wide: Vec<String> = wide.collect();
    let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
    let text = float_op(alu.op, DType::F32, lanes, &wide)?;
    Some(match alu.op.is_comparison() {
        true => compared(alu.op, DType::F32, lanes, text),
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

/// Vectors are not computed in `int`: what is narrow wraps by itself.
fn int_op(op: Op, dtype: DType, lanes: u8, src: &[&str], known: Option<i128>) -> Option<String> {
    let kind = name(dtype, lanes);
    let own = |function: &str| format!("{function}_{kind}({})", src.join(", "));
    let bits = i128::from(dtype.bits());
    // By an amount within the width: nothing is undefined.
    let amount = || match known {
        Some(amount) if 0 <= amount && amount < bits => amount.to_string(),
        _ => format!("({}&all_{kind}({}))", src[1], bits - 1),
    };
    let sign = match op {
        Op::Neg => return Some(format!("(-{})", src[0])),
        Op::MulAcc => return Some(format!("(({}*{})+{})", src[0], src[1], src[2])),
        Op::CDiv | Op::CMod | Op::Max | Op::Min => return Some(own(op.name())),
        Op::FloorDiv | Op::FloorMod if dtype.is_signed() => return Some(own(op.name())),
        Op::FloorDiv => return Some(own("cdiv")),
        Op::FloorMod => return Some(own("cmod")),
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
            compared(Op::CmpNe, DType::F32, lanes, format!("({wide}!=all_f32x{lanes}(0.0f))"))
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

/// The type or function of this name.
pub(crate) fn definition(word: &str) -> Option<String> {
    Helper::of(word)?.definition()
}

/// A word taken apart: `cast_f32_i8x4` is `cast`, from f32, to i8, 4 lanes.
struct Helper<'a> {
    word: &'a str,
    /// Empty for a type.
    function: &'a str,
    /// Of a cast.
    from: DType,
    dtype: DType,
    lanes: u8,
    /// The type of a vector in memory, which lies as its elements do.
    is_in_memory: bool,
}

impl<'a> Helper<'a> {
    fn of(word: &'a str) -> Option<Helper<'a>> {
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

    /// Its text; `None` if the word is of somebody else.
    fn definition(&self) -> Option<String> {
        let (dtype, element, kind) = (self.dtype, c_type(self.dtype), name(self.dtype, self.lanes));
        let masks = mask_name(dtype, self.lanes);
        let one = format!("({kind} x)");
        let two = format!("({kind} x, {kind} y)");
        let (parameters, body) = match self.function {
            "" if dtype == DType::Bool => return None,
            "" => return Some(self.type_definition()),
            "all" => {
                let every = vec!["x"; self.lanes.into()].join(", ");
                (format!("({element} x)"), format!("return ({kind}){{{every}}};"))
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
            "max" | "min" => (two, self.choice()),
            "lesser" | "greater" if dtype.is_float() => (two, self.extreme()),
            "mulacc" if dtype.is_float() => {
                (format!("({kind} x, {kind} y, {kind} z)"), self.fused())
            }
            "cast" => (format!("({} x)", name(self.from, self.lanes)), self.cast()),
            "exp2" | "log2" | "sin" | "sqrt" => (one, self.lane_by_lane(1)?),
            "pow" | "cdiv" | "cmod" | "floordiv" | "floormod" => (two, self.lane_by_lane(2)?),
            _ => return None,
        };
        Some(function(&kind, self.word, &parameters, &body))
    }

    fn type_definition(&self) -> String {
        let (element, align) = (c_type(self.dtype), self.dtype.size_bytes());
        let size = align * usize::from(self.lanes);
        let more = match self.is_in_memory {
            true => format!(", aligned({align}), may_alias"),
            false => String::new(),
        };
        format!("typedef {element} {} __attribute__((vector_size({size}){more}));\n", self.word)
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

    /// A whole line past the caches, where it is one.
    fn stream_definition(&self) -> String {
        let (element, kind) = (c_type(self.dtype), name(self.dtype, self.lanes));
        let body = format!(
            "IF_STREAMS(if (((uintptr_t)data & 63) == 0) {{ STREAM({kind}, data, x); return; }})\n  \
             /* f32x16 */ *({kind}m*)data = x;"
        );
        function("void", self.word, &format!("({element}* data, {kind} x)"), &body)
    }

    /// The larger or the smaller one, the second one of equals; of floats NaN if either is. A
    /// reduction waits for its variable, which stands second, so that only `x` is compared with
    /// itself.
    fn choice(&self) -> String {
        let (kind, masks) = (name(self.dtype, self.lanes), mask_name(self.dtype, self.lanes));
        let is_max = self.function == "max";
        if self.dtype.is_float() {
            let extreme = if is_max { "greater" } else { "lesser" };
            let own = match usize::from(self.lanes) * self.dtype.size_bytes() {
                64 => {
                    let letter = self.letter();
                    let is_number = format!("__builtin_ia32_cmpp{letter}512_mask(x, x, 7, -1, 4)");
                    let word = format!("__builtin_ia32_{}p{letter}512_mask", self.function);
                    format!("IF_GCC_AVX512(return {word}(x, y, x, {is_number}, 4);)\n  ")
                }
                _ => String::new(),
            };
            return format!(
                "{own}return select_{kind}(({masks})(x != x), x, {extreme}_{kind}(x, y));"
            );
        }
        let condition = if is_max { "x < y" } else { "y < x" };
        format!("return select_{kind}(({masks})({condition}), y, x);")
    }

    /// What the words of x86 say of this type.
    fn letter(&self) -> &'static str {
        if self.dtype == DType::F32 { "s" } else { "d" }
    }

    /// `x` if it is less, or greater; else `y`, also where the two are equal or one is NaN. This is what one instruction
    /// of x86 does, which clang finds by itself and gcc does not.
    fn extreme(&self) -> String {
        let (kind, masks) = (name(self.dtype, self.lanes), mask_name(self.dtype, self.lanes));
        let letter = self.letter();
        let (word, sign) = if self.function == "lesser" { ("min", "<") } else { ("max", ">") };
        let word = format!("__builtin_ia32_{word}p{letter}");
        let own = match usize::from(self.lanes) * self.dtype.size_bytes() {
            16 => format!("IF_GCC_SSE2(return {word}(x, y);)\n  "),
            32 => format!("IF_GCC_AVX(return {word}256(x, y);)\n  "),
            64 => format!("IF_GCC_AVX512(return {word}512_mask(x, y, x, -1, 4);)\n  "),
            _ => String::new(),
        };
        format!("{own}return select_{kind}(({masks})(x {sign} y), x, y);")
    }

    /// A fused product and sum where the machine has it. gcc's own word for it depends on the size.
    fn fused(&self) -> String {
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

    fn cast(&self) -> String {
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
            (DType::F32 | DType::F64, _) if to.is_int() => self.to_int(),
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
                    extreme: None,
                };
                self.by_lanes(&scalar(&alu).unwrap_or_default())
            }
            _ => format!("return __builtin_convertvector(x, {kind});"),
        }
    }

    /// From a float: cut toward zero; 0 where the range is left.
    fn to_int(&self) -> String {
        let (from, to, lanes) = (self.from, self.dtype, self.lanes);
        let (wide, masks) = (name(from, lanes), mask_name(from, lanes));
        let inside = format!("({masks})({})", inside(from, to, "&"));
        let zero = constant(Constant::zero(from));
        let kind = name(to, lanes);
        let safe = format!("select_{wide}({inside}, x, all_{wide}({zero}))");
        format!("return __builtin_convertvector({safe}, {kind});")
    }

    /// Lane by lane as a single value is computed.
    fn lane_by_lane(&self, arity: usize) -> Option<String> {
        let op = Op::from_name(self.function)?;
        let source = |text| Value { text, dtype: self.dtype, lanes: 1, mask_bytes: 0, known: None };
        let src = ["x[i]", "y[i]"].into_iter().take(arity).map(source).collect();
        let alu = Alu { op, dtype: self.dtype, lanes: 1, src, may_wrap: true, extreme: None };
        Some(self.by_lanes(&scalar(&alu)?))
    }

    fn by_lanes(&self, value: &str) -> String {
        // No loop that sets lane by lane: where the value is a truth value (1/x of unsigned numbers
        // is), gcc 12 makes all ones of it.
        let lane = |lane: u8| value.replace("[i]", &format!("[{lane}]"));
        let lanes: Vec<String> = (0..self.lanes).map(lane).collect();
        format!("return ({}){{{}}};", name(self.dtype, self.lanes), lanes.join(", "))
    }
}

fn function(kind: &str, word: &str, parameters: &str, body: &str) -> String {
    format!("VECTOR {kind} {word}{parameters} {{\n  {body}\n}}\n")
}

/// A cast whose halves the machine has an instruction for.
fn by_halves(from: &str, to: &str, lanes: u8) -> String {
    let half = lanes / 2;
    format!(
        "union {{ {from}x{lanes} all; {from}x{half} half[2]; }} a = {{x}};\n  \
         union {{ {to}x{lanes} all; {to}x{half} half[2]; }} b;\n  \
         b.half[0] = cast_{from}_{to}x{half}(a.half[0]);\n  \
         b.half[1] = cast_{from}_{to}x{half}(a.half[1]);\n  return b.all;"
    )
}

/// 2^112 brings the exponent of f16, shifted to where that of f32 stands, to its own value, also
/// below the normal numbers.
fn from_f16(lanes: u8) -> String {
    let own = match lanes {
        8 => "IF_F16C(return __builtin_ia32_vcvtph2ps256((i16x8)x);)\n  ",
        16 => {
            "IF_AVX512(return __builtin_ia32_vcvtph2ps512_mask((i16x16)x, all_f32x16(0.0f), -1, \
               4);)\n  "
        }
        32 | 64 => return by_halves("f16", "f32", lanes),
        _ => "",
    };
    format!(
        "{own}u32x{lanes} bits = __builtin_convertvector(x, u32x{lanes});\n  \
         u32x{lanes} magnitude = (bits & 0x7fffu) << 13;\n  \
         u32x{lanes} value = (u32x{lanes})((f32x{lanes})magnitude * 0x1p112f);\n  \
         u32x{lanes} top = (u32x{lanes})(magnitude >= 0xf800000u) & 0x7f800000u;\n  \
         return (f32x{lanes})((bits & 0x8000u) << 16 | value | top);"
    )
}

/// As `f16_from_f32` of the prelude.
fn to_f16(lanes: u8) -> String {
    let own = match lanes {
        8 => "IF_F16C(return (f16x8)__builtin_ia32_vcvtps2ph256(x, 0);)\n  ",
        16 => {
            "IF_AVX512(return (f16x16)__builtin_ia32_vcvtps2ph512_mask(x, 0, all_i16x16(0), \
               -1);)\n  "
        }
        32 | 64 => return by_halves("f32", "f16", lanes),
        _ => "",
    };
    format!(
        "{own}u32x{lanes} bits = (u32x{lanes})x, sign = bits >> 16 & 0x8000u;\n  \
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

/// As `bf16_from_f32` of the prelude.
fn to_bf16(lanes: u8) -> String {
    format!(
        "u32x{lanes} bits = (u32x{lanes})x;\n  \
         u32x{lanes} r = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;\n  \
         r = select_u32x{lanes}((i32x{lanes})(x != x), bits >> 16 | 0x40u, r);\n  \
         return __builtin_convertvector(r, bf16x{lanes});"
    )
}
