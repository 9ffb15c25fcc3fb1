//! Metal. One function per kernel, launched with one group per iteration of its global ranges and
//! one thread per iteration of its local ranges. f64 is unsupported; bf16 is held as its bits and
//! computed in f32.
//!
//! Vectors have 2 or 4 lanes and are aligned to their size.
//!
//! The text has the meaning of the uops if floats are those of IEEE 754, which is not the default.
//! Compilers since Xcode 16 take that from the pragmas of the prelude. Older ones, which ignore
//! them, need `fastMathEnabled = false`, or `-fno-fast-math -ffp-contract=off`. For exact functions
//! of f32, `mathFloatingPointFunctions` is to be `precise`.

use gradiff_graph::{AxisKind, Constant, DType, Linear};

use crate::Error;
use crate::code::{Code, Helpers, code, join};
use crate::dialect::{Access, Alu, Dialect, Header, Text, Value, dimension_name};
use crate::helpers::{Definitions, function};
use crate::legalize::Legalizations;
use crate::scalar::ScalarSyntax;
use crate::vector::VectorSyntax;
use crate::writer::write;

/// Renders a kernel.
///
/// # Errors
/// If a uop is not an op of linear kernels or unsupported in Metal, or the name is not an
/// identifier.
pub(crate) fn metal(linear: &Linear) -> Result<Code, Error> {
    write(&Metal, &Legalizations::C_LIKE, linear, &linear.name)
}

/// The first lines of a file. No pragma depends on `__METAL_VERSION__`, which is that of the
/// language and not of the compiler.
const HEAD: &str = "#include <metal_stdlib>\n\
                    #pragma METAL fp math_mode(safe)\n\
                    #pragma METAL fp contract(off)\n\
                    using namespace metal;\n";

/// Returns the prelude of a file that uses these helpers.
///
/// # Panics
/// If a helper has no [`metal_definition`].
pub(crate) fn metal_prelude(helpers: &Helpers) -> String {
    let definitions = Definitions::of(helpers, metal_definition);
    format!("{HEAD}{}", definitions.text)
}

/// Returns the definition of a helper.
pub(crate) fn metal_definition(name: &str) -> Option<Code> {
    metal_function(name).or_else(|| function(&SCALARS, name)).or_else(|| VECTORS.definition(name))
}

struct Metal;

const SCALARS: ScalarSyntax = ScalarSyntax {
    type_name,
    f32_suffix: "",
    function: "static inline ",
    wraps: false,
    conversion_type: DType::F32,
    is_native: |dtype| dtype == DType::F16,
    fma_body: |_| "  return fma(x, y, z);\n".to_string(),
};

const VECTORS: VectorSyntax = VectorSyntax {
    type_name: vector_type,
    make: |kind, values| code!("{}({})", kind, values),
    bitcast: |kind, value| code!("as_type<{}>({})", kind, value),
    convert: |kind, value| code!("{}({})", kind, value),
    converts: |_, _| true,
    select: |mask, y, z| code!("select({}, {}, {})", z, y, mask),
    lane: |value, lane| code!("{}.{}", value, ["x", "y", "z", "w"][lane & 3]),
    constant,
    scalar: |alu| SCALARS.alu(alu),
    function: |kind, word, parameters, value| {
        let parameters: Vec<Code> =
            parameters.iter().map(|(kind, name)| code!("{} {name}", kind)).collect();
        let parameters = join(&parameters, ", ");
        code!("static inline {} {word}({}) {{ return {}; }}\n", kind, parameters, value)
    },
    not_equal: |x, y| code!("({}!={})", x, y),
    has_masks: false,
    wraps: false,
    has_unsigned_amounts: false,
    is_native: |dtype| dtype != DType::BF16,
};

fn type_name(dtype: DType) -> Code {
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
    .into()
}

fn vector_type(dtype: DType, lanes: u8, _mask_bytes: u8) -> Option<Code> {
    let is_possible = matches!(lanes, 2 | 4) && !matches!(dtype, DType::F64 | DType::Void);
    is_possible.then(|| code!("{}{lanes}", type_name(dtype)))
}

/// A constant of exactly these bits.
fn constant(value: Constant) -> Option<Code> {
    let is_nan = value.to_float().is_some_and(f64::is_nan);
    Some(match value.dtype() {
        DType::F64 => return None,
        DType::F32 if is_nan => format!("as_type<float>({:#x}u)", value.bits()).into(),
        DType::F16 if is_nan => format!("as_type<half>(ushort({:#x}))", value.bits()).into(),
        DType::F16 => {
            let wide = Constant::float(DType::F32, value.to_float().unwrap_or(0.0));
            code!("((half){})", crate::c_scalar::constant(wide))
        }
        DType::I64 | DType::U64 => crate::c_scalar::constant(value).text.replace("ll", "l").into(),
        _ => crate::c_scalar::constant(value),
    })
}

/// Returns the definition of a helper that only Metal has.
fn metal_function(word: &str) -> Option<Code> {
    let line = match word {
        "f32_bits" => "uint f32_bits(float x) { return as_type<uint>(x); }",
        "f16_bits" => "ushort f16_bits(half x) { return as_type<ushort>(x); }",
        "f32_from_bits" => "float f32_from_bits(uint x) { return as_type<float>(x); }",
        "f16_from_bits" => "half f16_from_bits(ushort x) { return as_type<half>(x); }",
        _ => return None,
    };
    Some(format!("static inline {line}\n").into())
}

impl Dialect for Metal {
    fn language(&self) -> &'static str {
        "Metal"
    }

    fn is_unsupported(&self, dtype: DType) -> bool {
        dtype == DType::F64
    }

    fn type_name(&self, dtype: DType, lanes: u8, mask_bytes: u8) -> Option<Code> {
        match lanes {
            1 => Some(type_name(dtype)),
            _ => vector_type(dtype, lanes, mask_bytes),
        }
    }

    fn constant(&self, value: Constant) -> Option<Code> {
        constant(value)
    }

    fn header(&self, header: &Header) -> Option<Code> {
        let arrays = header.arrays.iter();
        let arrays =
            arrays.map(|(slot, dtype, _)| code!("device {}* data{slot}", type_name(*dtype)));
        let variables = header.variables.iter();
        let variables =
            variables.map(|(name, dtype)| code!("constant {}& {name}", type_name(*dtype)));
        let numbered = arrays.chain(variables).enumerate();
        let mut parameters: Vec<Code> =
            numbered.map(|(number, code)| code!("{} [[buffer({number})]]", code)).collect();
        parameters.push("uint3 gid [[threadgroup_position_in_grid]]".into());
        parameters.push("uint3 lid [[thread_position_in_threadgroup]]".into());
        let parameters = join(&parameters, ", ");
        let mut text = code!("kernel void {}({}) {{\n", header.name, parameters);
        for (name, dtype, size_elements) in &header.locals {
            let kind = type_name(*dtype);
            text.push(&code!("  alignas(16) threadgroup {} {name}[{size_elements}];\n", kind));
        }
        Some(text)
    }

    fn grid_index(&self, kind: AxisKind, dimension: usize) -> Option<String> {
        let word = if kind == AxisKind::Global { "gid" } else { "lid" };
        Some(format!("{word}{}", dimension_name(dimension)))
    }

    fn alu(&self, alu: &Alu) -> Option<Text> {
        if alu.lanes == 1 { SCALARS.alu(alu).map(Text::from) } else { VECTORS.alu(alu) }
    }

    fn vectorize(&self, dtype: DType, lanes: u8, src: &[Value]) -> Option<Text> {
        let values: Vec<&Code> = src.iter().map(|value| value.code).collect();
        Some((VECTORS.make)(&vector_type(dtype, lanes, 0)?, &join(&values, ",")).into())
    }

    fn lane(&self, vector: &Value, lane: usize) -> Option<Code> {
        Some((VECTORS.lane)(vector.code, lane))
    }

    fn load(&self, access: &Access) -> Option<Text> {
        Some(lvalue(access)?.into())
    }

    fn store(&self, access: &Access, value: &Value) -> Option<Code> {
        Some(code!("{} = {};", lvalue(access)?, value.code))
    }

    fn barrier(&self) -> Option<&'static str> {
        Some("threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);")
    }
}

/// The accessed element or vector, as an lvalue.
fn lvalue(access: &Access) -> Option<Code> {
    let (array, index) = (access.array, access.index);
    let space = if access.is_local { "threadgroup" } else { "device" };
    Some(match access.lanes {
        1 => code!("{}[{}]", array, index),
        lanes => {
            let kind = vector_type(access.dtype, lanes, 0)?;
            code!("*(({} {}*)(({}+{})))", space, kind, array, index)
        }
    })
}

/// Returns the maximal number of elements of a load or store.
pub(crate) fn lanes_max(dtype: DType) -> u8 {
    if dtype == DType::F64 { 1 } else { 4 }
}

/// Returns whether elementwise ops take vectors of a type.
pub(crate) fn has_vector_alu(dtype: DType) -> bool {
    !matches!(dtype, DType::F64 | DType::BF16)
}
