//! WGSL. One module per kernel: its arrays are bindings 0, 1, ... of group 0, its parameters
//! follow as uniforms. There are i32, u32, f32 and, by an extension, f16; a bool is stored as a u32,
//! which is 0 or 1.
//!
//! How exact functions are the language leaves open: they are written out before a kernel comes here
//! (`lacks` of the target).
//!
//! The language lets an implementation take NaN and infinity for absent. Constants of that kind
//! go through a function, since as constant expressions they are errors.

use gradiff_graph::{AxisKind, Constant, DType, Linear, Op, evaluate};

use crate::Error;
use crate::dialect::{Alu, Dialect, Head, Place, Text, Value, dimension_name};
use crate::helpers::collect;
use crate::vector::Vectors;
use crate::writer::write;

/// The module of one kernel.
///
/// # Errors
/// If a uop is not of the linear level or has no text in WGSL, or the name is no identifier.
pub fn wgsl(linear: &Linear) -> Result<String, Error> {
    write(&Wgsl, linear, &linear.name)
}

/// What stands once before a kernel.
pub fn wgsl_prelude(kernels: &str) -> String {
    let definition = |word: &str| own(word).or_else(|| VECTORS.definition(word));
    let used = collect(kernels, &definition);
    let has_half = kernels.contains("f16") || used.contains("f16");
    format!("{}{used}", if has_half { "enable f16;\n" } else { "" })
}

struct Wgsl;

const VECTORS: Vectors = Vectors {
    type_name: vector_type,
    make: |kind, values| format!("{kind}({values})"),
    bitcast: |kind, value| format!("bitcast<{kind}>({value})"),
    convert: |kind, value| format!("{kind}({value})"),
    select: |mask, y, z| format!("select({z}, {y}, {mask})"),
    lane: |value, lane| format!("{value}.{}", ["x", "y", "z", "w"][lane & 3]),
    constant,
    scalar,
    function: |kind, word, parameters, value| {
        let parameters: Vec<String> =
            parameters.iter().map(|(kind, name)| format!("{name}: {kind}")).collect();
        format!("fn {word}({}) -> {kind} {{ return {value}; }}\n", parameters.join(", "))
    },
    has_masks: false,
    wraps: true,
    is_native: |_| true,
};

fn is_known(dtype: DType) -> bool {
    matches!(dtype, DType::Bool | DType::I32 | DType::U32 | DType::F16 | DType::F32)
}

fn vector_type(dtype: DType, lanes: u8, _mask_bytes: u8) -> Option<String> {
    (matches!(lanes, 2 | 4) && is_known(dtype)).then(|| format!("vec{lanes}<{}>", dtype.name()))
}

/// A constant of exactly these bits.
fn constant(value: Constant) -> Option<String> {
    let (bits, float) = (value.bits(), value.to_float());
    let is_plain = float.is_some_and(|float| float.is_finite());
    Some(match value.dtype() {
        DType::Bool => value.is_true().to_string(),
        DType::I32 if value == Constant::smallest(DType::I32) => "i32(-2147483648)".into(),
        DType::I32 => value.to_int()?.to_string(),
        DType::U32 => format!("{bits}u"),
        // A literal below the normal numbers may be taken for 0.
        DType::F32 if is_plain && (bits & 0x7f80_0000 != 0 || bits == 0) => format!("{value}f"),
        DType::F32 => format!("f32_from_bits({bits:#x}u)"),
        DType::F16 if is_plain && (bits & 0x7c00 != 0 || bits == 0) => format!("{value}h"),
        DType::F16 => {
            let wide = Constant::float(DType::F32, float?);
            format!("f16(f32_from_bits({:#x}u))", wide.bits())
        }
        _ => return None,
    })
}

/// The functions that the kernels use; as in the preludes of C's family.
fn own(word: &str) -> Option<String> {
    let text = match word {
        "f32_from_bits" => "fn f32_from_bits(x: u32) -> f32 { return bitcast<f32>(x); }",
        "is_nan_f32" => {
            "fn is_nan_f32(x: f32) -> bool {\n  \
             return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;\n}"
        }
        "is_nan_f16" => "fn is_nan_f16(x: f16) -> bool { return is_nan_f32(f32(x)); }",
        "max_f32" => {
            "fn max_f32(x: f32, y: f32) -> f32 { return select(y, x, x > y || is_nan_f32(x)); }"
        }
        "min_f32" => {
            "fn min_f32(x: f32, y: f32) -> f32 { return select(y, x, x < y || is_nan_f32(x)); }"
        }
        "max_f16" => {
            "fn max_f16(x: f16, y: f16) -> f16 { return select(y, x, x > y || is_nan_f16(x)); }"
        }
        "min_f16" => {
            "fn min_f16(x: f16, y: f16) -> f16 { return select(y, x, x < y || is_nan_f16(x)); }"
        }
        "i32_from_f32" => {
            "fn i32_from_f32(x: f32) -> i32 {\n  \
             return select(0, i32(x), x >= -2147483648.0f && x < 2147483648.0f);\n}"
        }
        "u32_from_f32" => {
            "fn u32_from_f32(x: f32) -> u32 {\n  \
             return select(0u, u32(x), x > -1.0f && x < 4294967296.0f);\n}"
        }
        // The language defines both for all values.
        "cdiv_i32" => "fn cdiv_i32(x: i32, y: i32) -> i32 { return x / y; }",
        "cdiv_u32" => "fn cdiv_u32(x: u32, y: u32) -> u32 { return x / y; }",
        "cmod_i32" => "fn cmod_i32(x: i32, y: i32) -> i32 { return x % y; }",
        "cmod_u32" => "fn cmod_u32(x: u32, y: u32) -> u32 { return x % y; }",
        "floordiv_i32" => {
            "fn floordiv_i32(x: i32, y: i32) -> i32 {\n  \
             let rest = x % y;\n  \
             return x / y - select(0, 1, rest != 0 && (rest ^ y) < 0);\n}"
        }
        "floormod_i32" => {
            "fn floormod_i32(x: i32, y: i32) -> i32 {\n  \
             let rest = x % y;\n  \
             return rest + select(0, y, rest != 0 && (rest ^ y) < 0);\n}"
        }
        _ => return None,
    };
    Some(format!("{text}\n"))
}

/// An op over single values.
fn scalar(alu: &Alu) -> Option<String> {
    let (src, from, to) = (alu.texts(), alu.from(), alu.dtype);
    Some(match alu.op {
        Op::Cast if from == to => src[0].to_string(),
        Op::Cast => cast(from, to, src[0])?,
        Op::Bitcast if from == to => src[0].to_string(),
        Op::Bitcast if [from, to].iter().all(|dtype| dtype.bits() == 32) => {
            format!("bitcast<{}>({})", to.name(), src[0])
        }
        Op::Where => format!("select({}, {}, {})", src[2], src[1], src[0]),
        op => match from {
            DType::Bool => bool_op(op, &src)?,
            DType::F16 | DType::F32 => float_op(op, from, &src)?,
            DType::I32 | DType::U32 => int_op(alu)?,
            _ => return None,
        },
    })
}

fn cast(from: DType, to: DType, x: &str) -> Option<String> {
    Some(match (from, to) {
        (DType::F16 | DType::F32, DType::Bool) => differs(x, &constant(Constant::zero(from))?),
        (_, DType::Bool) => format!("({x}!={})", constant(Constant::zero(from))?),
        (DType::F16, DType::I32 | DType::U32) => format!("{}_from_f32(f32({x}))", to.name()),
        (DType::F32, DType::I32 | DType::U32) => format!("{}_from_f32({x})", to.name()),
        // What f32 does not hold exactly is infinite in f16.
        (DType::I32 | DType::U32, DType::F16) => format!("f16(f32({x}))"),
        _ if is_known(to) => format!("{}({x})", to.name()),
        _ => return None,
    })
}

fn bool_op(op: Op, src: &[&str]) -> Option<String> {
    let sign = match op {
        Op::Neg => return Some(src[0].to_string()),
        Op::CmpLt => return Some(format!("(!{}&{})", src[0], src[1])),
        Op::Add | Op::Max | Op::Or => "|",
        Op::Mul | Op::Min | Op::And => "&",
        Op::Sub | Op::CmpNe | Op::Xor => "!=",
        _ => return None,
    };
    Some(format!("({}{sign}{})", src[0], src[1]))
}

/// `x`, or `(x)` where a sign would meet a sign.
fn guarded(x: &str) -> String {
    if x.starts_with('-') { format!("({x})") } else { x.to_string() }
}

fn float_op(op: Op, dtype: DType, src: &[&str]) -> Option<String> {
    let sign = match op {
        Op::Neg => return Some(format!("(-{})", guarded(src[0]))),
        Op::Sqrt => return Some(format!("sqrt({})", src[0])),
        Op::Recip => return Some(format!("({}/{})", constant(Constant::one(dtype))?, src[0])),
        // The product may be rounded, which for f16 is too early.
        Op::MulAcc if dtype == DType::F16 => {
            return Some(format!("f16(fma(f32({}), f32({}), f32({})))", src[0], src[1], src[2]));
        }
        Op::MulAcc => return Some(format!("fma({})", src.join(", "))),
        Op::Max | Op::Min => return Some(format!("{op}_{}({})", dtype.name(), src.join(", "))),
        Op::Add => "+",
        Op::Sub => "-",
        Op::Mul => "*",
        Op::FDiv => "/",
        Op::CmpLt => "<",
        Op::CmpNe => return Some(differs(src[0], src[1])),
        _ => return None,
    };
    Some(format!("({}{sign}{})", src[0], guarded(src[1])))
}

/// Whether two floats differ. naga's `!=` is false where one is NaN.
fn differs(x: &str, y: &str) -> String {
    format!("(!({x}=={y}))")
}

fn int_op(alu: &Alu) -> Option<String> {
    let (op, dtype, src) = (alu.op, alu.from(), alu.texts());
    let known = alu.src.get(1).and_then(Value::known_int);
    let is_safe = known.is_some_and(|divisor| divisor != 0 && divisor != -1);
    let own = |op: Op| Some(format!("{op}_{}({})", dtype.name(), src.join(", ")));
    let amount = || match known {
        Some(amount) if (0..32).contains(&amount) => format!("{amount}u"),
        _ => format!("(u32({})&31u)", src[1]),
    };
    let sign = match op {
        Op::Neg if dtype == DType::U32 => return Some(format!("(0u-{})", src[0])),
        Op::Neg => return Some(format!("(-{})", guarded(src[0]))),
        // A product of literals must not leave its type: it is a constant here.
        Op::MulAcc if let [Some(x), Some(y)] = [0, 1].map(|source| alu.src[source].known) => {
            let product = constant(evaluate(Op::Mul, dtype, &[x, y])?)?;
            return Some(format!("({product}+{})", guarded(src[2])));
        }
        Op::MulAcc => return Some(format!("({}*{}+{})", src[0], src[1], guarded(src[2]))),
        Op::Max | Op::Min => return Some(format!("{op}({})", src.join(", "))),
        Op::Shl => return Some(format!("({}<<{})", src[0], amount())),
        Op::Shr => return Some(format!("({}>>{})", src[0], amount())),
        Op::CDiv if is_safe => "/",
        Op::CMod if is_safe => "%",
        Op::CDiv | Op::CMod => return own(op),
        Op::FloorDiv | Op::FloorMod if dtype == DType::I32 => return own(op),
        Op::FloorDiv => return own(Op::CDiv),
        Op::FloorMod => return own(Op::CMod),
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
    Some(format!("({}{sign}{})", src[0], guarded(src[1])))
}

impl Dialect for Wgsl {
    fn language(&self) -> &'static str {
        "WGSL"
    }

    fn lacks(&self, dtype: DType, _is_stored: bool) -> bool {
        !is_known(dtype)
    }

    fn type_name(&self, dtype: DType, lanes: u8, mask_bytes: u8) -> Option<String> {
        match lanes {
            1 => is_known(dtype).then(|| dtype.name().to_string()),
            _ => vector_type(dtype, lanes, mask_bytes),
        }
    }

    fn constant(&self, value: Constant) -> Option<String> {
        constant(value)
    }

    fn head(&self, head: &Head) -> Option<String> {
        let mut text = String::new();
        for (number, (slot, dtype, is_stored)) in head.arrays.iter().enumerate() {
            let access = if *is_stored { "read_write" } else { "read" };
            let kind = stored_type(*dtype);
            text += &format!(
                "@group(0) @binding({number}) var<storage, {access}> data{slot}: array<{kind}>;\n"
            );
        }
        for (number, (name, dtype)) in (head.arrays.len()..).zip(&head.variables) {
            let kind = dtype.name();
            text += &format!("@group(0) @binding({number}) var<uniform> {name}: {kind};\n");
        }
        for (name, dtype, size_elements) in &head.locals {
            let kind = stored_type(*dtype);
            text += &format!("var<workgroup> {name}: array<{kind}, {size_elements}>;\n");
        }
        let size = |dimension: usize| head.group.get(dimension).copied().unwrap_or(1);
        Some(format!(
            "{text}@compute @workgroup_size({}, {}, {})\n\
             fn {}(@builtin(workgroup_id) gid: vec3<u32>, \
             @builtin(local_invocation_id) lid: vec3<u32>) {{\n",
            size(0),
            size(1),
            size(2),
            head.name
        ))
    }

    fn launched(&self, kind: AxisKind, dimension: usize) -> Option<String> {
        let word = if kind == AxisKind::Global { "gid" } else { "lid" };
        Some(format!("i32({word}{})", dimension_name(dimension)))
    }

    fn alu(&self, alu: &Alu) -> Option<Text> {
        if matches!(alu.op, Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow) {
            return None;
        }
        if alu.lanes == 1 { scalar(alu).map(Text::from) } else { VECTORS.alu(alu) }
    }

    fn vectorize(&self, dtype: DType, lanes: u8, src: &[Value]) -> Option<Text> {
        let values: Vec<&str> = src.iter().map(|value| value.text).collect();
        Some((VECTORS.make)(&vector_type(dtype, lanes, 0)?, &values.join(", ")).into())
    }

    fn lane(&self, vector: &Value, lane: usize) -> Option<String> {
        Some((VECTORS.lane)(vector.text, lane))
    }

    /// Arrays are of single elements: lanes are loaded one by one.
    fn load(&self, place: &Place) -> Option<Text> {
        let element = |lane: u8| element(place, lane);
        Some(match place.lanes {
            1 => element(0).into(),
            lanes => {
                let values: Vec<String> = (0..lanes).map(element).collect();
                (VECTORS.make)(&vector_type(place.dtype, lanes, 0)?, &values.join(", ")).into()
            }
        })
    }

    fn store(&self, place: &Place, value: &Value) -> Option<String> {
        if place.lanes == 1 {
            let text = value.text;
            let stored =
                if place.dtype == DType::Bool { format!("u32({text})") } else { text.into() };
            return Some(format!("{} = {stored};", address(place, 0)));
        }
        let stores = (0..place.lanes).map(|lane| {
            format!("{} = {};", address(place, lane), (VECTORS.lane)("vector", lane.into()))
        });
        let stores: Vec<String> = stores.collect();
        Some(format!("{{ let vector = {}; {} }}", value.text, stores.join(" ")))
    }

    fn barrier(&self) -> Option<&'static str> {
        Some("workgroupBarrier(); storageBarrier();")
    }

    fn declare(&self, kind: &str, name: &str, value: &str, is_variable: bool) -> String {
        format!("{} {name}: {kind} = {value};", if is_variable { "var" } else { "let" })
    }

    fn count(&self, kind: &str, name: &str, end: &str) -> String {
        format!("for (var {name}: {kind} = 0; {name} < {end}; {name}++) {{")
    }

    fn gated(&self, kind: &str, name: &str, gate: &str, loaded: &str, zero: &str) -> Vec<String> {
        vec![self.declare(kind, name, zero, true), format!("if ({gate}) {{ {name} = {loaded}; }}")]
    }
}

/// What an element of an array is.
fn stored_type(dtype: DType) -> &'static str {
    if dtype == DType::Bool { "u32" } else { dtype.name() }
}

/// The value of an element at a place.
fn element(place: &Place, lane: u8) -> String {
    let address = address(place, lane);
    if place.dtype == DType::Bool { format!("({address}!=0u)") } else { address }
}

/// An element at a place.
fn address(place: &Place, lane: u8) -> String {
    match lane {
        // A negative literal stands behind a gate that is false; to the language it is an error.
        0 if place.index.parse::<i64>().is_ok_and(|index| index < 0) => {
            format!("{}[0]", place.array)
        }
        0 => format!("{}[{}]", place.array, place.index),
        _ => format!("{}[{}+{lane}]", place.array, place.index),
    }
}

/// How many elements a load takes at most.
pub(crate) fn lanes_max(dtype: DType) -> u8 {
    if is_known(dtype) && dtype != DType::Bool { 4 } else { 1 }
}

/// Whether elementwise ops take vectors of a type.
pub(crate) fn has_vector_alu(dtype: DType) -> bool {
    is_known(dtype)
}
