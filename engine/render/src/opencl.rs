//! OpenCL C 1.2. One function per kernel, launched with one group per iteration of its global
//! ranges and one thread per iteration of its local ranges.
//!
//! 16-bit floats are held as their bits and computed in f32, as scalars only. A bool is a byte in
//! memory. f64 needs `cl_khr_fp64`. Vectors have 2, 4, 8 or 16 lanes and are aligned to their size.

use gradiff_graph::{AxisKind, Constant, DType, Linear};

use crate::Error;
use crate::dialect::{Access, Alu, Dialect, Header, Text, Value};
use crate::helpers::{collect, function};
use crate::scalar::ScalarSyntax;
use crate::vector::VectorSyntax;
use crate::writer::write;

/// Renders a kernel.
///
/// # Errors
/// If a uop is not an op of linear kernels or unsupported in OpenCL C, or the name is not an
/// identifier.
pub fn opencl(linear: &Linear) -> Result<String, Error> {
    write(&OpenCl, linear, &linear.name)
}

/// Returns the prelude of a file with these kernels.
pub fn opencl_prelude(kernels: &str) -> String {
    let definition = |word: &str| {
        opencl_function(word)
            .or_else(|| function(&SCALARS, word))
            .or_else(|| VECTORS.definition(word))
    };
    let used = collect(kernels, &definition);
    let mut text = "#pragma OPENCL FP_CONTRACT OFF\n".to_string();
    if kernels.contains("double") || used.contains("double") {
        text.push_str("#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n");
    }
    text + &used
}

/// The vector lengths of OpenCL.
const LANES: [u8; 4] = [2, 4, 8, 16];

struct OpenCl;

const SCALARS: ScalarSyntax = ScalarSyntax {
    type_name,
    f32_suffix: "",
    function: "static inline ",
    wraps: false,
    conversion_type: DType::F32,
    is_native: |_| false,
    fma_body: |dtype| {
        let f = if dtype == DType::F32 { "F" } else { "" };
        format!(
            "#ifdef FP_FAST_FMA{f}\n  return fma(x, y, z);\n#else\n  return x * y + z;\n#endif\n"
        )
    },
};

const VECTORS: VectorSyntax = VectorSyntax {
    type_name: vector_type,
    make: |kind, values| format!("({kind})({values})"),
    bitcast: |kind, value| format!("as_{kind}({value})"),
    convert: |kind, value| format!("convert_{kind}({value})"),
    select: |mask, y, z| format!("select({z}, {y}, {mask})"),
    lane: |value, lane| format!("{value}.s{lane:x}"),
    constant: |value| Some(constant(value)),
    scalar: |alu| SCALARS.alu(alu),
    function: |kind, word, parameters, value| {
        let parameters: Vec<String> =
            parameters.iter().map(|(kind, name)| format!("{kind} {name}")).collect();
        format!("static inline {kind} {word}({}) {{ return {value}; }}\n", parameters.join(", "))
    },
    not_equal: |x, y| format!("({x}!={y})"),
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

/// The name of an element type in memory, where a bool is a byte.
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

/// Returns the definition of a helper that only OpenCL has.
fn opencl_function(word: &str) -> Option<String> {
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

    fn header(&self, header: &Header) -> Option<String> {
        let arrays = header.arrays.iter();
        let arrays =
            arrays.map(|(slot, dtype, _)| format!("__global {}* data{slot}", stored_type(*dtype)));
        let variables = header.variables.iter();
        let variables =
            variables.map(|(name, dtype)| format!("const {} {name}", type_name(*dtype)));
        let parameters: Vec<String> = arrays.chain(variables).collect();
        let size = |dimension: usize| header.group.get(dimension).copied().unwrap_or(1);
        let group = format!("{}, {}, {}", size(0), size(1), size(2));
        let mut text = format!(
            "__kernel __attribute__((reqd_work_group_size({group}))) void {}({}) {{\n",
            header.name,
            parameters.join(", ")
        );
        for (name, dtype, size_elements) in &header.locals {
            let kind = stored_type(*dtype);
            let aligned = "__attribute__((aligned(128)))";
            text += &format!("  __local {kind} {name}[{size_elements}] {aligned};\n");
        }
        Some(text)
    }

    fn grid_index(&self, kind: AxisKind, dimension: usize) -> Option<String> {
        let word = if kind == AxisKind::Global { "get_group_id" } else { "get_local_id" };
        Some(format!("{word}({dimension})"))
    }

    fn alu(&self, alu: &Alu) -> Option<Text> {
        if alu.lanes == 1 { SCALARS.alu(alu).map(Text::from) } else { VECTORS.alu(alu) }
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

    fn load(&self, access: &Access) -> Option<Text> {
        let (text, is_bool) = (lvalue(access)?, access.dtype == DType::Bool);
        Some(match (access.lanes, is_bool) {
            (1, true) => format!("({text}!=0)").into(),
            (lanes, true) => Text { text: format!("-as_char{lanes}({text})"), mask_bytes: 1 },
            _ => text.into(),
        })
    }

    fn store(&self, access: &Access, value: &Value) -> Option<String> {
        Some(match (access.lanes, access.dtype) {
            (lanes @ 2.., DType::Bool) => {
                format!("{} = as_uchar{lanes}(-{});", lvalue(access)?, value.text)
            }
            _ => format!("{} = {};", lvalue(access)?, value.text),
        })
    }

    fn barrier(&self) -> Option<&'static str> {
        Some("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);")
    }

    fn canonical(&self, value: &Value) -> Text {
        match value.lanes > 1 && value.dtype == DType::Bool {
            true => Text { text: VECTORS.mask(value, 1), mask_bytes: 1 },
            false => Text { text: value.text.to_string(), mask_bytes: value.mask_bytes },
        }
    }
}

/// The accessed element or vector, as an lvalue.
fn lvalue(access: &Access) -> Option<String> {
    let (array, index) = (access.array, access.index);
    let space = if access.is_local { "__local" } else { "__global" };
    let kind = match access.dtype {
        DType::Bool => vector_type(DType::U8, access.lanes, 0),
        dtype => vector_type(dtype, access.lanes, 0),
    };
    Some(match access.lanes {
        1 => format!("{array}[{index}]"),
        _ => format!("*(({space} {}*)(({array}+{index})))", kind?),
    })
}

/// Returns the maximal number of elements of a load or store.
pub(crate) fn lanes_max(_dtype: DType) -> u8 {
    16
}

/// Returns whether elementwise ops take vectors of a type.
pub(crate) fn has_vector_alu(dtype: DType) -> bool {
    !crate::scalar::is_half(dtype)
}
