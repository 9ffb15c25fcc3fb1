//! OpenCL C 1.2. One function per kernel, launched with one group per iteration of its global
//! ranges and one thread per iteration of its local ranges.
//!
//! 16-bit floats are held as their bits and computed in f32, as scalars only. A bool is a byte in
//! memory. f64 needs `cl_khr_fp64`. Vectors have 2, 4, 8 or 16 lanes and are aligned to their size.

use gradiff_graph::{AxisKind, Constant, DType, Linear};

use crate::Error;
use crate::code::{Code, Helpers, code, join};
use crate::dialect::{Access, Alu, Dialect, Header, Text, Value};
use crate::helpers::{Definitions, function};
use crate::legalize::Legalizations;
use crate::scalar::ScalarSyntax;
use crate::vector::VectorSyntax;
use crate::writer::write;

/// Renders a kernel.
///
/// # Errors
/// If a uop is not an op of linear kernels or unsupported in OpenCL C, or the name is not an
/// identifier.
pub(crate) fn opencl(linear: &Linear) -> Result<Code, Error> {
    write(&OpenCl, &Legalizations::C_LIKE, linear, &linear.name)
}

/// Returns the prelude of a file that uses these helpers.
///
/// # Panics
/// If a helper has no [`opencl_definition`].
pub(crate) fn opencl_prelude(helpers: &Helpers) -> String {
    let definitions = Definitions::of(helpers, opencl_definition);
    let mut text = "#pragma OPENCL FP_CONTRACT OFF\n".to_string();
    if definitions.contain("double") {
        text.push_str("#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n");
    }
    text + &definitions.text
}

/// Returns the definition of a helper. The types of the extension for f64 are helpers without one.
pub(crate) fn opencl_definition(name: &str) -> Option<Code> {
    opencl_function(name).or_else(|| function(&SCALARS, name)).or_else(|| VECTORS.definition(name))
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
    make: |kind, values| code!("({})({})", kind, values),
    bitcast: |kind, value| code!("as_{}({})", kind, value),
    convert: |kind, value| code!("convert_{}({})", kind, value),
    converts: |_, _| true,
    select: |mask, y, z| code!("select({}, {}, {})", z, y, mask),
    lane: |value, lane| code!("{}.s{lane:x}", value),
    constant: |value| Some(constant(value)),
    scalar: |alu| SCALARS.alu(alu),
    function: |kind, word, parameters, value| {
        let parameters: Vec<Code> =
            parameters.iter().map(|(kind, name)| code!("{} {name}", kind)).collect();
        let parameters = join(&parameters, ", ");
        code!("static inline {} {word}({}) {{ return {}; }}\n", kind, parameters, value)
    },
    not_equal: |x, y| code!("({}!={})", x, y),
    has_masks: true,
    wraps: false,
    has_unsigned_amounts: false,
    is_native: |dtype| !dtype.is_half(),
};

fn type_name(dtype: DType) -> Code {
    match dtype {
        DType::F64 => return Code::helper("double"),
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
    }
    .into()
}

/// The name of an element type in memory, where a bool is a byte.
fn stored_type(dtype: DType) -> Code {
    if dtype == DType::Bool { "uchar".into() } else { type_name(dtype) }
}

fn vector_type(dtype: DType, lanes: u8, mask_bytes: u8) -> Option<Code> {
    let lane = match (dtype, mask_bytes) {
        (DType::Bool, 0 | 1) => DType::I8,
        (DType::Bool, 2) => DType::I16,
        (DType::Bool, 4) => DType::I32,
        (DType::Bool, _) => DType::I64,
        _ => dtype,
    };
    let name = || format!("{}{lanes}", type_name(lane).text);
    LANES.contains(&lanes).then(|| match lane {
        DType::F64 => Code::helper(name()),
        _ => name().into(),
    })
}

/// A constant of exactly these bits.
fn constant(value: Constant) -> Code {
    let float = value.to_float();
    let is_nan = float.is_some_and(f64::is_nan);
    let code = crate::c_scalar::constant(value);
    match value.dtype() {
        DType::F32 if is_nan => format!("as_float({:#x}u)", value.bits()).into(),
        DType::F64 if is_nan => {
            let bits = format!("{:#x}ul", value.bits()).into();
            Code::call("as_double", &[&bits])
        }
        DType::F64 if float.is_some_and(f64::is_infinite) => {
            code!("({}){}", type_name(DType::F64), crate::c_scalar::infinity(float < Some(0.0)))
        }
        DType::I64 | DType::U64 => code.text.replace("ll", "l").into(),
        _ => code,
    }
}

/// Returns the definition of a helper that only OpenCL has.
fn opencl_function(word: &str) -> Option<Code> {
    let double = type_name(DType::F64);
    let line = match word {
        "double" => return Some(Code::default()),
        "double2" | "double4" | "double8" | "double16" | "as_double" => {
            return Some(Code::naming("", &["double"]));
        }
        "f32_bits" => "uint f32_bits(float x) { return as_uint(x); }".into(),
        "f64_bits" => code!("ulong f64_bits({} x) {{ return as_ulong(x); }}", double),
        "f32_from_bits" => "float f32_from_bits(uint x) { return as_float(x); }".into(),
        "f64_from_bits" => {
            code!(
                "{} f64_from_bits(ulong x) {{ return {}(x); }}",
                double,
                Code::helper("as_double")
            )
        }
        _ => return None,
    };
    Some(code!("static inline {}\n", line))
}

impl Dialect for OpenCl {
    fn language(&self) -> &'static str {
        "OpenCL"
    }

    fn type_name(&self, dtype: DType, lanes: u8, mask_bytes: u8) -> Option<Code> {
        match lanes {
            1 => Some(type_name(dtype)),
            _ => vector_type(dtype, lanes, mask_bytes),
        }
    }

    fn constant(&self, value: Constant) -> Option<Code> {
        Some(constant(value))
    }

    fn header(&self, header: &Header) -> Option<Code> {
        let arrays = header.arrays.iter();
        let arrays =
            arrays.map(|(slot, dtype, _)| code!("__global {}* data{slot}", stored_type(*dtype)));
        let variables = header.variables.iter();
        let variables = variables.map(|(name, dtype)| code!("const {} {name}", type_name(*dtype)));
        let parameters: Vec<Code> = arrays.chain(variables).collect();
        let parameters = join(&parameters, ", ");
        let size = |dimension: usize| header.group.get(dimension).copied().unwrap_or(1);
        let group = format!("{}, {}, {}", size(0), size(1), size(2));
        let name = header.name;
        let mut text = code!(
            "__kernel __attribute__((reqd_work_group_size({group}))) void {name}({}) {{\n",
            parameters
        );
        for (name, dtype, size_elements) in &header.locals {
            let kind = stored_type(*dtype);
            let aligned = "__attribute__((aligned(128)))";
            text.push(&code!("  __local {} {name}[{size_elements}] {aligned};\n", kind));
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
        let values: Vec<Code> = src.iter().map(|value| code!("{sign}{}", value.code)).collect();
        let values = join(&values, ",");
        let code = (VECTORS.make)(&vector_type(dtype, lanes, 1)?, &values);
        Some(Text { code, mask_bytes: is_bool.into() })
    }

    fn lane(&self, vector: &Value, lane: usize) -> Option<Code> {
        let code = (VECTORS.lane)(vector.code, lane);
        Some(if vector.dtype == DType::Bool { code!("({}!=0)", code) } else { code })
    }

    fn load(&self, access: &Access) -> Option<Text> {
        let (element, is_bool) = (lvalue(access)?, access.dtype == DType::Bool);
        Some(match (access.lanes, is_bool) {
            (1, true) => code!("({}!=0)", element).into(),
            (lanes, true) => Text { code: code!("-as_char{lanes}({})", element), mask_bytes: 1 },
            _ => element.into(),
        })
    }

    fn store(&self, access: &Access, value: &Value) -> Option<Code> {
        Some(match (access.lanes, access.dtype) {
            (lanes @ 2.., DType::Bool) => {
                code!("{} = as_uchar{lanes}(-{});", lvalue(access)?, value.code)
            }
            _ => code!("{} = {};", lvalue(access)?, value.code),
        })
    }

    fn barrier(&self) -> Option<&'static str> {
        Some("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);")
    }

    fn canonical(&self, value: &Value) -> Text {
        match value.lanes > 1 && value.dtype == DType::Bool {
            true => Text { code: VECTORS.mask(value, 1), mask_bytes: 1 },
            false => Text { code: value.code.clone(), mask_bytes: value.mask_bytes },
        }
    }
}

/// The accessed element or vector, as an lvalue.
fn lvalue(access: &Access) -> Option<Code> {
    let (array, index) = (access.array, access.index);
    let space = if access.is_local { "__local" } else { "__global" };
    let kind = match access.dtype {
        DType::Bool => vector_type(DType::U8, access.lanes, 0),
        dtype => vector_type(dtype, access.lanes, 0),
    };
    Some(match access.lanes {
        1 => code!("{}[{}]", array, index),
        _ => code!("*(({} {}*)(({}+{})))", space, kind?, array, index),
    })
}

/// Returns the maximal number of elements of a load or store.
pub(crate) fn lanes_max(_dtype: DType) -> u8 {
    16
}

/// Returns whether elementwise ops take vectors of a type.
pub(crate) fn has_vector_alu(dtype: DType) -> bool {
    !dtype.is_half()
}
