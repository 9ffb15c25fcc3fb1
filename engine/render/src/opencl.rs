//! OpenCL C 1.2. One function per kernel, launched with one group per step of its global ranges
//! and one thread per step of its local ones.
//!
//! 16-bit floats are their bits; single ones are computed in f32. bool is a byte in memory. f64
//! needs `cl_khr_fp64`. Vectors of 2, 4, 8 and 16 lanes lie at multiples of their size.

use gradiff_graph::{AxisKind, Constant, DType, Linear};

use crate::Error;
use crate::dialect::{Alu, Dialect, Head, Place, Text, Value};
use crate::helpers::{collect, function};
use crate::scalar::Words;
use crate::vector::Vectors;
use crate::writer::write;

/// The text of one kernel.
///
/// # Errors
/// If a uop is not of the linear level or has no text in OpenCL C, or the name is no identifier.
pub fn opencl(linear: &Linear) -> Result<String, Error> {
    write(&OpenCl, linear, &linear.name)
}

/// What stands once before these kernels in a file.
pub fn opencl_prelude(kernels: &str) -> String {
    let definition = |word: &str| {
        own(word).or_else(|| function(&WORDS, word)).or_else(|| VECTORS.definition(word))
    };
    let used = collect(kernels, &definition);
    let mut text = "#pragma OPENCL FP_CONTRACT OFF\n".to_string();
    if kernels.contains("double") || used.contains("double") {
        text.push_str("#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n");
    }
    text + &used
}

/// The counts of lanes that OpenCL has.
const LANES: [u8; 4] = [2, 4, 8, 16];

struct OpenCl;

const WORDS: Words = Words {
    type_name,
    f32_suffix: "",
    function: "static inline ",
    wraps: false,
    wide: DType::F32,
    is_native: |_| false,
    fused: |dtype| {
        let f = if dtype == DType::F32 { "F" } else { "" };
        format!(
            "#ifdef FP_FAST_FMA{f}\n  return fma(x, y, z);\n#else\n  return x * y + z;\n#endif\n"
        )
    },
};

const VECTORS: Vectors = Vectors {
    type_name: vector_type,
    make: |kind, values| format!("({kind})({values})"),
    bitcast: |kind, value| format!("as_{kind}({value})"),
    convert: |kind, value| format!("convert_{kind}({value})"),
    select: |mask, y, z| format!("select({z}, {y}, {mask})"),
    lane: |value, lane| format!("{value}.s{lane:x}"),
    constant: |value| Some(constant(value)),
    scalar: |alu| WORDS.alu(alu),
    function: |kind, word, parameters, value| {
        let parameters: Vec<String> =
            parameters.iter().map(|(kind, name)| format!("{kind} {name}")).collect();
        format!("static inline {kind} {word}({}) {{ return {value}; }}\n", parameters.join(", "))
    },
    differs: |x, y| format!("({x}!={y})"),
    has_masks: true,
    wraps: false,
    is_native: |dtype| !crate::scalar::is_half(dtype),
};

fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Void => "void",
        DType::Bool => "bool",
        DType::I8 => "char",
        DType::U8 => "uchar",
        DType::I16 => "short",
        DType::U16 | DType::F16 | DType::BF16 => "ushort",
        DType::I32 => "int",
        DType::U32 => "uint",
        DType::I64 => "long",
        DType::U64 => "ulong",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

/// In memory a bool is a byte.
fn stored_type(dtype: DType) -> &'static str {
    if dtype == DType::Bool { "uchar" } else { type_name(dtype) }
}

fn vector_type(dtype: DType, lanes: u8, mask_bytes: u8) -> Option<String> {
    let name = match (dtype, mask_bytes) {
        (DType::Bool, 0 | 1) => "char",
        (DType::Bool, 2) => "short",
        (DType::Bool, 4) => "int",
        (DType::Bool, _) => "long",
        _ => type_name(dtype),
    };
    LANES.contains(&lanes).then(|| format!("{name}{lanes}"))
}

/// A constant of exactly these bits.
fn constant(value: Constant) -> String {
    let is_nan = value.to_float().is_some_and(f64::is_nan);
    let text = crate::c::constant(value);
    match value.dtype() {
        DType::F32 if is_nan => format!("as_float({:#x}u)", value.bits()),
        DType::F64 if is_nan => format!("as_double({:#x}ul)", value.bits()),
        DType::I64 | DType::U64 => text.replace("ll", "l"),
        _ => text,
    }
}

/// The functions that OpenCL has for itself.
fn own(word: &str) -> Option<String> {
    let line = match word {
        "f32_bits" => "uint f32_bits(float x) { return as_uint(x); }",
        "f64_bits" => "ulong f64_bits(double x) { return as_ulong(x); }",
        "f32_from_bits" => "float f32_from_bits(uint x) { return as_float(x); }",
        "f64_from_bits" => "double f64_from_bits(ulong x) { return as_double(x); }",
        _ => return None,
    };
    Some(format!("static inline {line}\n"))
}

impl Dialect for OpenCl {
    fn language(&self) -> &'static str {
        "OpenCL"
    }

    fn type_name(&self, dtype: DType, lanes: u8, mask_bytes: u8) -> Option<String> {
        match lanes {
            1 => Some(type_name(dtype).to_string()),
            _ => vector_type(dtype, lanes, mask_bytes),
        }
    }

    fn constant(&self, value: Constant) -> Option<String> {
        Some(constant(value))
    }

    fn head(&self, head: &Head) -> Option<String> {
        let arrays = head.arrays.iter();
        let arrays =
            arrays.map(|(slot, dtype, _)| format!("__global {}* data{slot}", stored_type(*dtype)));
        let variables = head.variables.iter();
        let variables =
            variables.map(|(name, dtype)| format!("const {} {name}", type_name(*dtype)));
        let parameters: Vec<String> = arrays.chain(variables).collect();
        let size = |dimension: usize| head.group.get(dimension).copied().unwrap_or(1);
        let group = format!("{}, {}, {}", size(0), size(1), size(2));
        let mut text = format!(
            "__kernel __attribute__((reqd_work_group_size({group}))) void {}({}) {{\n",
            head.name,
            parameters.join(", ")
        );
        for (name, dtype, size_elements) in &head.locals {
            let kind = stored_type(*dtype);
            let aligned = "__attribute__((aligned(128)))";
            text += &format!("  __local {kind} {name}[{size_elements}] {aligned};\n");
        }
        Some(text)
    }

    fn launched(&self, kind: AxisKind, dimension: usize) -> Option<String> {
        let word = if kind == AxisKind::Global { "get_group_id" } else { "get_local_id" };
        Some(format!("{word}({dimension})"))
    }

    fn alu(&self, alu: &Alu) -> Option<Text> {
        if alu.lanes == 1 { WORDS.alu(alu).map(Text::from) } else { VECTORS.alu(alu) }
    }

    fn vectorize(&self, dtype: DType, lanes: u8, src: &[Value]) -> Option<Text> {
        let is_bool = dtype == DType::Bool;
        let sign = if is_bool { "-" } else { "" };
        let values: Vec<String> = src.iter().map(|value| format!("{sign}{}", value.text)).collect();
        let text = (VECTORS.make)(&vector_type(dtype, lanes, 1)?, &values.join(","));
        Some(Text { text, mask_bytes: is_bool.into() })
    }

    fn lane(&self, vector: &Value, lane: usize) -> Option<String> {
        let text = (VECTORS.lane)(vector.text, lane);
        Some(if vector.dtype == DType::Bool { format!("({text}!=0)") } else { text })
    }

    fn load(&self, place: &Place) -> Option<Text> {
        let (text, is_bool) = (at(place)?, place.dtype == DType::Bool);
        Some(match (place.lanes, is_bool) {
            (1, true) => format!("({text}!=0)").into(),
            (lanes, true) => Text { text: format!("-as_char{lanes}({text})"), mask_bytes: 1 },
            _ => text.into(),
        })
    }

    fn store(&self, place: &Place, value: &Value) -> Option<String> {
        Some(match (place.lanes, place.dtype) {
            (lanes @ 2.., DType::Bool) => {
                format!("{} = as_uchar{lanes}(-{});", at(place)?, value.text)
            }
            _ => format!("{} = {};", at(place)?, value.text),
        })
    }

    fn barrier(&self) -> Option<&'static str> {
        Some("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);")
    }

    fn settled(&self, value: &Value) -> Text {
        match value.lanes > 1 && value.dtype == DType::Bool {
            true => Text { text: VECTORS.mask(value, 1), mask_bytes: 1 },
            false => Text { text: value.text.to_string(), mask_bytes: value.mask_bytes },
        }
    }
}

/// The elements at a place.
fn at(place: &Place) -> Option<String> {
    let (array, index) = (place.array, place.index);
    let space = if place.is_local { "__local" } else { "__global" };
    let kind = match place.dtype {
        DType::Bool => vector_type(DType::U8, place.lanes, 0),
        dtype => vector_type(dtype, place.lanes, 0),
    };
    Some(match place.lanes {
        1 => format!("{array}[{index}]"),
        _ => format!("*(({space} {}*)(({array}+{index})))", kind?),
    })
}

/// How many elements a load takes at most.
pub(crate) fn lanes_max(_dtype: DType) -> u8 {
    16
}

/// Whether elementwise ops take vectors of a type.
pub(crate) fn has_vector_alu(dtype: DType) -> bool {
    !crate::scalar::is_half(dtype)
}
