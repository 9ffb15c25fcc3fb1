//! Metal. One function per kernel, launched with one group per step of its global ranges and one
//! thread per step of its local ones. There is no f64; bf16 is its bits, computed in f32.
//!
//! Vectors of 2 and 4 lanes lie at multiples of their size.

use gradiff_graph::{AxisKind, Constant, DType, Linear};

use crate::Error;
use crate::dialect::{Alu, Dialect, Head, Place, Text, Value, dimension_name};
use crate::helpers::{collect, function};
use crate::scalar::Words;
use crate::vector::Vectors;
use crate::writer::write;

/// The text of one kernel.
///
/// # Errors
/// If a uop is not of the linear level or has no text in Metal, or the name is no identifier.
pub fn metal(linear: &Linear) -> Result<String, Error> {
    write(&Metal, linear, &linear.name)
}

/// What stands once before these kernels in a file.
pub fn metal_prelude(kernels: &str) -> String {
    let definition = |word: &str| {
        own(word).or_else(|| function(&WORDS, word)).or_else(|| VECTORS.definition(word))
    };
    let used = collect(kernels, &definition);
    format!("#include <metal_stdlib>\nusing namespace metal;\n{used}")
}

struct Metal;

const WORDS: Words = Words {
    type_name,
    f32_suffix: "",
    function: "static inline ",
    wraps: false,
    wide: DType::F32,
    is_native: |dtype| dtype == DType::F16,
    fused: |_| "  return fma(x, y, z);\n".to_string(),
};

const VECTORS: Vectors = Vectors {
    type_name: vector_type,
    make: |kind, values| format!("{kind}({values})"),
    bitcast: |kind, value| format!("as_type<{kind}>({value})"),
    convert: |kind, value| format!("{kind}({value})"),
    select: |mask, y, z| format!("select({z}, {y}, {mask})"),
    lane: |value, lane| format!("{value}.{}", ["x", "y", "z", "w"][lane & 3]),
    constant,
    scalar: |alu| WORDS.alu(alu),
    function: |kind, word, parameters, value| {
        let parameters: Vec<String> =
            parameters.iter().map(|(kind, name)| format!("{kind} {name}")).collect();
        format!("static inline {kind} {word}({}) {{ return {value}; }}\n", parameters.join(", "))
    },
    differs: |x, y| format!("({x}!={y})"),
    has_masks: false,
    wraps: false,
    is_native: |dtype| dtype != DType::BF16,
};

fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Void | DType::F64 => "void",
        DType::Bool => "bool",
        DType::I8 => "char",
        DType::U8 => "uchar",
        DType::I16 => "short",
        DType::U16 | DType::BF16 => "ushort",
        DType::I32 => "int",
        DType::U32 => "uint",
        DType::I64 => "long",
        DType::U64 => "ulong",
        DType::F16 => "half",
        DType::F32 => "float",
    }
}

fn vector_type(dtype: DType, lanes: u8, _mask_bytes: u8) -> Option<String> {
    let is_possible = matches!(lanes, 2 | 4) && !matches!(dtype, DType::F64 | DType::Void);
    is_possible.then(|| format!("{}{lanes}", type_name(dtype)))
}

/// A constant of exactly these bits.
fn constant(value: Constant) -> Option<String> {
    let is_nan = value.to_float().is_some_and(f64::is_nan);
    Some(match value.dtype() {
        DType::F64 => return None,
        DType::F32 if is_nan => format!("as_type<float>({:#x}u)", value.bits()),
        DType::F16 if is_nan => format!("as_type<half>(ushort({:#x}))", value.bits()),
        DType::F16 => {
            let wide = Constant::float(DType::F32, value.to_float().unwrap_or(0.0));
            format!("((half){})", crate::c::constant(wide))
        }
        DType::I64 | DType::U64 => crate::c::constant(value).replace("ll", "l"),
        _ => crate::c::constant(value),
    })
}

/// The functions that Metal has for itself.
fn own(word: &str) -> Option<String> {
    let line = match word {
        "f32_bits" => "uint f32_bits(float x) { return as_type<uint>(x); }",
        "f16_bits" => "ushort f16_bits(half x) { return as_type<ushort>(x); }",
        "f32_from_bits" => "float f32_from_bits(uint x) { return as_type<float>(x); }",
        "f16_from_bits" => "half f16_from_bits(ushort x) { return as_type<half>(x); }",
        _ => return None,
    };
    Some(format!("static inline {line}\n"))
}

impl Dialect for Metal {
    fn language(&self) -> &'static str {
        "Metal"
    }

    fn lacks(&self, dtype: DType, _is_stored: bool) -> bool {
        dtype == DType::F64
    }

    fn type_name(&self, dtype: DType, lanes: u8, mask_bytes: u8) -> Option<String> {
        match lanes {
            1 => Some(type_name(dtype).to_string()),
            _ => vector_type(dtype, lanes, mask_bytes),
        }
    }

    fn constant(&self, value: Constant) -> Option<String> {
        constant(value)
    }

    fn head(&self, head: &Head) -> Option<String> {
        let arrays = head.arrays.iter();
        let arrays =
            arrays.map(|(slot, dtype, _)| format!("device {}* data{slot}", type_name(*dtype)));
        let variables = head.variables.iter();
        let variables =
            variables.map(|(name, dtype)| format!("constant {}& {name}", type_name(*dtype)));
        let numbered = arrays.chain(variables).enumerate();
        let mut parameters: Vec<String> =
            numbered.map(|(number, text)| format!("{text} [[buffer({number})]]")).collect();
        parameters.push("uint3 gid [[threadgroup_position_in_grid]]".into());
        parameters.push("uint3 lid [[thread_position_in_threadgroup]]".into());
        let mut text = format!("kernel void {}({}) {{\n", head.name, parameters.join(", "));
        for (name, dtype, size_elements) in &head.locals {
            let kind = type_name(*dtype);
            text += &format!("  threadgroup alignas(16) {kind} {name}[{size_elements}];\n");
        }
        Some(text)
    }

    fn launched(&self, kind: AxisKind, dimension: usize) -> Option<String> {
        let word = if kind == AxisKind::Global { "gid" } else { "lid" };
        Some(format!("{word}{}", dimension_name(dimension)))
    }

    fn alu(&self, alu: &Alu) -> Option<Text> {
        if alu.lanes == 1 { WORDS.alu(alu).map(Text::from) } else { VECTORS.alu(alu) }
    }

    fn vectorize(&self, dtype: DType, lanes: u8, src: &[Value]) -> Option<Text> {
        let values: Vec<&str> = src.iter().map(|value| value.text).collect();
        Some((VECTORS.make)(&vector_type(dtype, lanes, 0)?, &values.join(",")).into())
    }

    fn lane(&self, vector: &Value, lane: usize) -> Option<String> {
        Some((VECTORS.lane)(vector.text, lane))
    }

    fn load(&self, place: &Place) -> Option<Text> {
        Some(at(place)?.into())
    }

    fn store(&self, place: &Place, value: &Value) -> Option<String> {
        Some(format!("{} = {};", at(place)?, value.text))
    }

    fn barrier(&self) -> Option<&'static str> {
        Some("threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);")
    }
}

/// The elements at a place.
fn at(place: &Place) -> Option<String> {
    let (array, index) = (place.array, place.index);
    let space = if place.is_local { "threadgroup" } else { "device" };
    Some(match place.lanes {
        1 => format!("{array}[{index}]"),
        lanes => {
            let kind = vector_type(place.dtype, lanes, 0)?;
            format!("*(({space} {kind}*)(({array}+{index})))")
        }
    })
}

/// How many elements a load takes at most.
pub(crate) fn lanes_max(dtype: DType) -> u8 {
    if dtype == DType::F64 { 1 } else { 4 }
}

/// Whether elementwise ops take vectors of a type.
pub(crate) fn has_vector_alu(dtype: DType) -> bool {
    !matches!(dtype, DType::F64 | DType::BF16)
}
