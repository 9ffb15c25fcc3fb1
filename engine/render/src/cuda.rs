//! CUDA C for NVRTC. One function per kernel, launched with one group per iteration of its global
//! ranges and one thread per iteration of its local ranges.
//!
//! Vectors (`float4`, `half2`) are loaded, stored, built from scalars and split into lanes; they
//! have no arithmetic. Vector accesses are aligned to their size.

use gradiff_graph::tensor_core::TensorCore;
use gradiff_graph::{AxisKind, Constant, DType, Linear, Op};

use crate::Error;
use crate::code::{Code, Helpers, code, join};
use crate::dialect::{Access, Alu, Dialect, Header, Text, Value, dimension_name};
use crate::helpers::{Definitions, function};
use crate::legalize::Legalizations;
use crate::scalar::ScalarSyntax;
use crate::writer::{locals, write};

/// Renders a kernel.
///
/// # Errors
/// If a uop is not an op of linear kernels or unsupported in CUDA, or the name is not an
/// identifier.
pub(crate) fn cuda(linear: &Linear) -> Result<Code, Error> {
    write(&Cuda, &Legalizations::C_LIKE, linear, &linear.name)
}

/// Returns the prelude of a file that uses these helpers.
///
/// # Panics
/// If a helper has no [`cuda_definition`].
pub(crate) fn cuda_prelude(helpers: &Helpers) -> String {
    let definitions = Definitions::of(helpers, cuda_definition);
    let mut text = String::new();
    for (name, header) in [("half", "cuda_fp16.h"), ("nv_bfloat16", "cuda_bf16.h")] {
        if definitions.contain(name) {
            text.push_str(&format!("#include <{header}>\n"));
        }
    }
    text + "#define INFINITY (__int_as_float(0x7f800000))\n\
            #define NAN (__int_as_float(0x7fffffff))\n"
        + &definitions.text
}

/// Returns the definition of a helper. The types of CUDA's headers are helpers without one.
pub(crate) fn cuda_definition(name: &str) -> Option<Code> {
    cuda_function(name).or_else(|| function(&SCALARS, name))
}

struct Cuda;

const SCALARS: ScalarSyntax = ScalarSyntax {
    type_name,
    f32_suffix: "f",
    function: "static __device__ inline ",
    wraps: false,
    conversion_type: DType::F32,
    is_native: |_| true,
    fma_body: |dtype| match dtype {
        DType::F32 => "  return fmaf(x, y, z);\n".to_string(),
        _ => "  return fma(x, y, z);\n".to_string(),
    },
};

fn type_name(dtype: DType) -> Code {
    match dtype {
        DType::F16 => return Code::helper("half"),
        DType::BF16 => return Code::helper("nv_bfloat16"),
        DType::Void => "void",
        DType::Bool => "bool",
        DType::I8 => "signed char",
        DType::U8 => "unsigned char",
        DType::I16 => "short",
        DType::U16 => "unsigned short",
        DType::I32 => "int",
        DType::U32 => "unsigned int",
        DType::I64 => "long long",
        DType::U64 => "unsigned long long",
        DType::F32 => "float",
        DType::F64 => "double",
    }
    .into()
}

/// The name of a vector type without its number of lanes.
fn vector_name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::I8 => "char",
        DType::U8 => "uchar",
        DType::I16 => "short",
        DType::U16 => "ushort",
        DType::I32 => "int",
        DType::U32 => "uint",
        DType::I64 => "longlong",
        DType::U64 => "ulonglong",
        DType::F16 => "half",
        DType::BF16 => "bfloat",
        DType::F32 => "float",
        DType::F64 => "double",
        DType::Bool | DType::Void => return None,
    })
}

/// The name of a vector type. CUDA has vectors of up to 16 bytes; of 16-bit floats it has pairs,
/// and the prelude defines the longer ones.
fn vector_type(dtype: DType, lanes: u8) -> Option<Code> {
    let size = dtype.size_bytes() * usize::from(lanes);
    let is_half = dtype.is_half();
    let is_possible = matches!((lanes, is_half), (2 | 4, _) | (8, true)) && size <= 16;
    let name = vector_name(dtype)?;
    match (is_possible, dtype, lanes) {
        (false, ..) => None,
        (true, DType::BF16, 2) => Some(Code::helper("nv_bfloat162")),
        (true, ..) if is_half => Some(Code::helper(format!("{name}{lanes}"))),
        (true, ..) => Some(format!("{name}{lanes}").into()),
    }
}

/// Returns the maximal number of elements of a load or store of a type.
pub(crate) fn lanes_max(dtype: DType) -> u8 {
    [8, 4, 2].into_iter().find(|lanes| vector_type(dtype, *lanes).is_some()).unwrap_or(1)
}

/// Returns the definition of a helper function or type that only CUDA has.
fn cuda_function(word: &str) -> Option<Code> {
    let (half, bfloat) = (type_name(DType::F16), type_name(DType::BF16));
    let line = match word {
        "half" | "nv_bfloat16" => return Some(Code::default()),
        // Declared by the header, or with the type.
        "half2" | "make_half2" | "__ushort_as_half" => return Some(Code::naming("", &["half"])),
        "nv_bfloat162" | "make_bfloat162" | "__ushort_as_bfloat16" => {
            return Some(Code::naming("", &["nv_bfloat16"]));
        }
        "f32_bits" => "unsigned int f32_bits(float x) { return __float_as_uint(x); }".into(),
        "f64_bits" => {
            "unsigned long long f64_bits(double x) { return __double_as_longlong(x); }".into()
        }
        "f16_bits" => {
            code!("unsigned short f16_bits({} x) {{ return __half_as_ushort(x); }}", half)
        }
        "bf16_bits" => {
            code!("unsigned short bf16_bits({} x) {{ return __bfloat16_as_ushort(x); }}", bfloat)
        }
        "f32_from_bits" => {
            "float f32_from_bits(unsigned int x) { return __uint_as_float(x); }".into()
        }
        "f64_from_bits" => {
            "double f64_from_bits(unsigned long long x) { return __longlong_as_double(x); }".into()
        }
        "f16_from_bits" => {
            let as_half = Code::helper("__ushort_as_half");
            code!("{} f16_from_bits(unsigned short x) {{ return {}(x); }}", half, as_half)
        }
        "bf16_from_bits" => {
            let as_bfloat = Code::helper("__ushort_as_bfloat16");
            code!("{} bf16_from_bits(unsigned short x) {{ return {}(x); }}", bfloat, as_bfloat)
        }
        // NVIDIA's assembler (ptxas of CUDA 12 and 13) takes `neg.s16` of -32768, widened, for
        // 32768. The compiler must not see the sign's extension, else it negates in 16 bits.
        "wrap_i16" => "short wrap_i16(short x) {\n  unsigned int r = x;\n\
                       #ifdef __CUDA_ARCH__\n  \
                       asm(\"cvt.s32.s16 %0, %1;\" : \"=r\"(r) : \"r\"((unsigned int)x));\n\
                       #endif\n  return (short)r;\n}"
            .into(),
        "select_i32" => return Some(select_function("select_i32", "int", ["", ""], "r")),
        "select_f32" => {
            let names = ["__uint_as_float", "__float_as_uint"];
            return Some(select_function("select_f32", "float", names, "r"));
        }
        "select_f64" => {
            let names = ["__longlong_as_double", "__double_as_longlong"];
            return Some(select_function("select_f64", "double", names, "l"));
        }
        "max_i8" | "max_i16" | "max_i32" => extreme_function(word, "x", "y"),
        "min_i8" | "min_i16" | "min_i32" => extreme_function(word, "y", "x"),
        "half4" => return Some(long_vector("half4", &half, 4)),
        "half8" => return Some(long_vector("half8", &half, 8)),
        "bfloat4" => return Some(long_vector("bfloat4", &bfloat, 4)),
        "bfloat8" => return Some(long_vector("bfloat8", &bfloat, 8)),
        "copy_4" => return Some(copy_function("4", "unsigned int", "ca")),
        "copy_8" => return Some(copy_function("8", "uint2", "ca")),
        "copy_16" => return Some(copy_function("16", "uint4", "cg")),
        "wait_for_copies" => {
            let function = SCALARS.function;
            let text = format!(
                "{function}void wait_for_copies() {{\n\
                 #if 800 <= __CUDA_ARCH__\n  \
                   asm volatile(\"cp.async.wait_all;\" ::: \"memory\");\n\
                 #endif\n}}\n"
            );
            return Some(text.into());
        }
        _ => {
            // Declared with the type.
            let methods = ["make_", "load_", "store_"];
            let name = methods.iter().find_map(|method| word.strip_prefix(method));
            return match name {
                Some("half4" | "half8" | "bfloat4" | "bfloat8") => Some(Code::naming("", &[name?])),
                _ => product_function(word),
            };
        }
    };
    Some(code!("{}{}\n", SCALARS.function, line))
}

/// Renders a `where` that NVIDIA's compilers get wrong as the call of a function in which they see
/// no `where`. They (NVRTC and ptxas of CUDA 13.0) take
/// * a choice between two compared floats for a minimum or maximum, which gives 0.0 for the second
///   of 0.0 and -0.0, and loses the bits of a NaN;
/// * one between two compared integers likewise, and the maximum or minimum of three loses the
///   sign of a negated operand;
/// * one between -1.0 and -0.0, also of signs changed later, for the conversion of -1 or 0.
fn opaque_select(alu: &Alu) -> Option<Code> {
    let (Op::Where, [gate, x, y]) = (alu.op, alu.src.as_slice()) else { return None };
    let is_extreme = alu.min_max.is_some();
    let is_of_constants = x.known.is_some() && y.known.is_some();
    let call = |name: &str| Code::call(name, &[gate.code, x.code, y.code]);
    Some(match alu.dtype {
        DType::F32 if is_extreme || is_of_constants => call("select_f32"),
        DType::F64 if is_extreme => call("select_f64"),
        DType::I32 if is_extreme => call("select_i32"),
        dtype if is_extreme && dtype.is_int() && dtype.bits() < 32 => {
            code!("(({}){})", type_name(dtype), call("select_i32"))
        }
        _ => return None,
    })
}

/// The definition of a helper of [`opaque_select`]: the names of the functions that make the value
/// of its bits and give its bits, and the class of asm operands for the bits.
fn select_function(name: &str, kind: &str, [of_bits, bits]: [&str; 2], class: &str) -> Code {
    let (function, size) = (SCALARS.function, if class == "l" { 64 } else { 32 });
    let unsigned = if class == "l" { "unsigned long long" } else { "unsigned int" };
    format!(
        "{function}{kind} {name}(bool c, {kind} x, {kind} y) {{\n\
         #ifdef __CUDA_ARCH__\n  \
           {unsigned} r;\n  \
           asm(\"{{.reg .pred p; setp.ne.u32 p, %3, 0; selp.b{size} %0, %1, %2, p;}}\"\n    \
           : \"={class}\"(r) : \"{class}\"({bits}(x)), \"{class}\"({bits}(y)), \
             \"r\"((unsigned int)c));\n  \
           return {of_bits}(r);\n\
         #else\n  return c ? x : y;\n#endif\n}}\n"
    )
    .into()
}

/// The head and body of a maximum or minimum of integers: see [`opaque_select`].
fn extreme_function(name: &str, if_less: &str, if_greater: &str) -> Code {
    let kind = match name.split_at(4).1 {
        "i8" => "signed char",
        "i16" => "short",
        _ => "int",
    };
    let select = Code::helper("select_i32");
    code!(
        "{kind} {name}({kind} x, {kind} y) {{ return {}(y < x, {if_less}, {if_greater}); }}",
        select
    )
}

const LANES: [&str; 8] = ["x", "y", "z", "w", "a", "b", "c", "d"];

/// The definition of a vector type that CUDA does not have, of its constructor, and of a load and a
/// store of it. They copy the bits, since the compiler copies a structure of 16-bit floats element
/// by element.
fn long_vector(name: &str, element: &Code, lanes: usize) -> Code {
    let names = LANES[..lanes].join(", ");
    let parameters: Vec<Code> =
        LANES[..lanes].iter().map(|lane| code!("{} {lane}", element)).collect();
    let parameters = join(&parameters, ", ");
    let (align, bits) = (2 * lanes, if lanes == 8 { "uint4" } else { "uint2" });
    code!(
        "struct __align__({align}) {name} {{ {element} {names}; }};\n\
         static __device__ inline {name} make_{name}({parameters}) \
         {{ {name} r = {{{names}}}; return r; }}\n\
         static __device__ inline {name} load_{name}(const {element}* p) {{\n  \
           {name} r;\n  *({bits}*)&r = *(const {bits}*)p;\n  return r;\n}}\n\
         static __device__ inline void store_{name}({element}* p, {name} x) {{\n  \
           *({bits}*)p = *({bits}*)&x;\n}}\n";
        element, parameters
    )
}

/// The definition of the copy of so many bytes to local memory, asynchronous from sm_80 on.
fn copy_function(bytes: &str, kind: &str, cache: &str) -> Code {
    let function = SCALARS.function;
    format!(
        "{function}void copy_{bytes}(void* to, const void* from) {{\n\
         #if 800 <= __CUDA_ARCH__\n  \
           asm volatile(\"cp.async.{cache}.shared.global [%0], [%1], {bytes};\"\n    \
           :: \"r\"((unsigned int)__cvta_generic_to_shared(to)), \"l\"(from) : \"memory\");\n\
         #else\n  *({kind}*)to = *(const {kind}*)from;\n#endif\n}}\n"
    )
    .into()
}

/// The PTX instruction of a tensor core; `None` for cores that no GPU has.
pub(crate) fn mma(core: &TensorCore) -> Option<String> {
    let kind = match core.operand_dtype {
        _ if core.threads != 32 => return None,
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F32 if core.is_tf32 => "tf32",
        _ => return None,
    };
    let [m, n, k] = core.sizes;
    Some(format!("mma.sync.aligned.m{m}n{n}k{k}.row.col.f32.{kind}.{kind}.f32"))
}

/// The helper for the product of a tensor core. The registers of A and B have 32 bits and hold two
/// 16-bit floats each.
fn product_function(word: &str) -> Option<Code> {
    let core = TensorCore::named(word.strip_prefix("wmma_")?)?;
    let kinds = [0, 1, 2].map(|matrix| {
        let dtype = if matrix == 2 { DType::F32 } else { core.operand_dtype };
        vector_type(dtype, core.elements(matrix) as u8)
    });
    let [Some(a), Some(b), Some(c)] = kinds else { return None };
    let sizes = [0, 1].map(|matrix| core.elements(matrix) * core.operand_dtype.size_bytes() / 4);
    let (mut inputs, mut operands, mut text) = (Vec::new(), vec![String::new(); 3], String::new());
    operands[2] = registers(0, core.elements(2));
    let mut first = core.elements(2);
    for (matrix, (name, size)) in ["x", "y"].into_iter().zip(sizes).enumerate() {
        let parameter = ["a", "b"][matrix];
        text += &format!("  const unsigned int* {name} = (const unsigned int*)&{parameter};\n");
        if core.is_tf32 {
            let round = |i: usize| {
                let to = format!("{parameter}{i}");
                let round = "cvt.rna.tf32.f32 %0, %1;";
                format!(
                    "  unsigned int {to}; asm(\"{round}\" : \"=r\"({to}) : \"r\"({name}[{i}]));\n"
                )
            };
            text += &(0..size).map(round).collect::<String>();
            inputs.extend((0..size).map(|i| format!("\"r\"({parameter}{i})")));
        } else {
            inputs.extend((0..size).map(|i| format!("\"r\"({name}[{i}])")));
        }
        operands[matrix] = registers(first, size);
        first += size;
    }
    let outputs = LANES[..core.elements(2)].iter().map(|lane| format!("\"+f\"(c.{lane})"));
    let [x, y, z] = [0, 1, 2].map(|matrix| &operands[matrix]);
    let (start, mma) = (SCALARS.function, mma(core)?);
    let (outputs, inputs) = (outputs.collect::<Vec<_>>().join(", "), inputs.join(", "));
    Some(code!(
        "{start}{c} {word}({a} a, {b} b, {c} c) {{\n{text}  \
         asm volatile(\"{mma} {z}, {x}, {y}, {z};\"\n    \
         : {outputs}\n    : {inputs});\n  return c;\n}}\n";
        c, a, b
    ))
}

/// The asm operands `first..first + count`, in braces.
fn registers(first: usize, count: usize) -> String {
    let names: Vec<String> = (first..first + count).map(|number| format!("%{number}")).collect();
    format!("{{{}}}", names.join(","))
}

/// A constant of exactly these bits.
fn constant(value: Constant) -> Code {
    let bits = value.bits();
    let is_nan = value.to_float().is_some_and(f64::is_nan);
    match value.dtype() {
        DType::F32 if is_nan => format!("__int_as_float({bits:#x})").into(),
        DType::F64 if is_nan => format!("__longlong_as_double({bits:#x}ll)").into(),
        DType::F16 | DType::BF16 if is_nan => {
            let kind = if value.dtype() == DType::F16 { "half" } else { "bfloat16" };
            let bits = format!("(unsigned short){bits:#x}").into();
            Code::call(format!("__ushort_as_{kind}"), &[&bits])
        }
        DType::F16 | DType::BF16 => {
            let wide = Constant::float(DType::F32, value.to_float().unwrap_or(0.0));
            code!("(({}){})", type_name(value.dtype()), crate::c_scalar::constant(wide))
        }
        _ => crate::c_scalar::constant(value),
    }
}

impl Dialect for Cuda {
    fn language(&self) -> &'static str {
        "CUDA"
    }

    fn type_name(&self, dtype: DType, lanes: u8, _mask_bytes: u8) -> Option<Code> {
        match lanes {
            1 => Some(type_name(dtype)),
            _ => vector_type(dtype, lanes),
        }
    }

    fn constant(&self, value: Constant) -> Option<Code> {
        Some(constant(value))
    }

    fn header(&self, header: &Header) -> Option<Code> {
        let arrays = header.arrays.iter();
        let arrays = arrays.map(|(slot, dtype, _)| code!("{}* data{slot}", type_name(*dtype)));
        let variables = header.variables.iter();
        let variables = variables.map(|(name, dtype)| code!("const {} {name}", type_name(*dtype)));
        let parameters: Vec<Code> = arrays.chain(variables).collect();
        let parameters = join(&parameters, ", ");
        let (name, threads) = (header.name, header.group.iter().product::<i64>());
        let mut text = code!(
            "extern \"C\" __global__ void __launch_bounds__({threads}) {name}({}) {{\n",
            parameters
        );
        let sizes = header.locals.iter().map(|(_, dtype, size)| (*dtype, *size));
        let Some(total) = dynamic_bytes(sizes) else {
            for (name, dtype, size_elements) in &header.locals {
                let array = format!("{name}[{size_elements}]");
                let kind = type_name(*dtype);
                text.push(&code!("  __shared__ __align__(16) {} {array};\n", kind));
            }
            return Some(text);
        };
        text.text += &format!(
            "#ifdef __CUDA_ARCH__\n  \
               extern __shared__ __align__(16) unsigned char local_memory[];\n\
             #else\n  \
               __shared__ __align__(16) unsigned char local_memory[{total}];\n\
             #endif\n"
        );
        let mut offset = 0;
        for (name, dtype, size_elements) in &header.locals {
            let kind = type_name(*dtype);
            let pointer = code!("({}*)(local_memory+{offset})", kind);
            text.push(&code!("  {}* {name} = {}; /* {size_elements} */\n", kind, pointer));
            offset += aligned_bytes(*dtype, *size_elements);
        }
        Some(text)
    }

    fn grid_index(&self, kind: AxisKind, dimension: usize) -> Option<String> {
        let word = if kind == AxisKind::Global { "blockIdx" } else { "threadIdx" };
        Some(format!("{word}{}", dimension_name(dimension)))
    }

    fn alu(&self, alu: &Alu) -> Option<Text> {
        if alu.lanes != 1 {
            return None;
        }
        if let Some(code) = opaque_select(alu) {
            return Some(code.into());
        }
        let code = SCALARS.alu(alu)?;
        let is_conversion = matches!(alu.op, Op::Cast | Op::Bitcast) && alu.dtype == DType::I16;
        let from = alu.from();
        let is_narrowed = is_conversion && from.is_int() && 16 <= from.bits() && from != alu.dtype;
        Some(if is_narrowed { Code::call("wrap_i16", &[&code]) } else { code }.into())
    }

    fn vectorize(&self, dtype: DType, lanes: u8, src: &[Value]) -> Option<Text> {
        let kind = vector_type(dtype, lanes)?;
        let make = format!("make_{}", kind.text.trim_start_matches("nv_"));
        let make = if dtype.is_half() { Code::helper(make) } else { make.into() };
        let lanes = (0..lanes.into()).map(|lane| src.get(lane).or(src.last()).map(|v| v.code));
        let lanes: Vec<&Code> = lanes.collect::<Option<_>>()?;
        Some(code!("{}({})", make, join(&lanes, ",")).into())
    }

    fn lane(&self, vector: &Value, lane: usize) -> Option<Code> {
        Some(code!("{}.{}", vector.code, LANES.get(lane)?))
    }

    fn product(&self, core: &TensorCore, src: &[Value]) -> Option<Code> {
        let src: Vec<&Code> = src.iter().map(|value| value.code).collect();
        let product = Code::helper(format!("wmma_{}", core.name));
        mma(core).map(|_| code!("{}({})", product, join(&src, ",")))
    }

    fn load(&self, access: &Access) -> Option<Text> {
        let (array, index) = (access.array, access.index);
        let loaded = match long_vector_name(access) {
            Some(name) => code!("{}({}+{})", Code::helper(format!("load_{name}")), array, index),
            None => lvalue(access)?,
        };
        Some(loaded.into())
    }

    fn store(&self, access: &Access, value: &Value) -> Option<Code> {
        let (array, index) = (access.array, access.index);
        Some(match long_vector_name(access) {
            Some(name) => {
                let store = Code::helper(format!("store_{name}"));
                code!("{}({}+{},{});", store, array, index, value.code)
            }
            None => code!("{} = {};", lvalue(access)?, value.code),
        })
    }

    fn copy(&self, from: &Access, to: &Access) -> Option<Code> {
        let bytes = usize::from(from.lanes) * from.dtype.size_bytes();
        let copy = matches!(bytes, 4 | 8 | 16).then(|| Code::helper(format!("copy_{bytes}")))?;
        Some(code!("{}({}+{},{}+{});", copy, to.array, to.index, from.array, from.index))
    }

    fn wait_for_copies(&self) -> Code {
        code!("{}();", Code::helper("wait_for_copies"))
    }

    fn barrier(&self) -> Option<&'static str> {
        Some("__syncthreads();")
    }
}

/// Bytes of local arrays that a kernel may declare.
const STATIC_BYTES_MAX: i64 = 48 << 10;

/// Returns the bytes of local memory with which a kernel must be launched; 0 if it declares its
/// arrays.
pub fn cuda_dynamic_bytes(kernel: &Linear) -> u32 {
    let arrays = locals(kernel).map(|(_, dtype, size_elements)| (dtype, size_elements));
    let bytes = dynamic_bytes(arrays).unwrap_or(0);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Returns the bytes of arrays that are too large to be declared, each aligned to 16 bytes.
fn dynamic_bytes(arrays: impl Iterator<Item = (DType, i64)>) -> Option<i64> {
    let total = arrays.map(|(dtype, size)| aligned_bytes(dtype, size)).fold(0, i64::saturating_add);
    (STATIC_BYTES_MAX < total).then_some(total)
}

/// The bytes of an array, up to the next one.
fn aligned_bytes(dtype: DType, size_elements: i64) -> i64 {
    let bytes = size_elements.saturating_mul(dtype.size_bytes() as i64);
    bytes.saturating_add(15) / 16 * 16
}

/// Returns the name of the vector that is accessed, if CUDA does not have it.
fn long_vector_name(access: &Access) -> Option<String> {
    let name = vector_name(access.dtype).filter(|_| access.dtype.is_half())?;
    (2 < access.lanes).then(|| format!("{name}{}", access.lanes))
}

/// The accessed element or vector, as an lvalue.
fn lvalue(access: &Access) -> Option<Code> {
    let (array, index) = (access.array, access.index);
    Some(match access.lanes {
        1 => code!("{}[{}]", array, index),
        lanes => {
            code!("*(({}*)(({}+{})))", vector_type(access.dtype, lanes)?, array, index)
        }
    })
}

#[cfg(test)]
mod tests {
    use gradiff_graph::{Arg, Axis, Global, Instruction, Local};

    use super::*;

    /// `b = a + 7` over 16 elements: 4 threads, 4 elements each.
    fn fused_add() -> Linear {
        let f32x4 = |mut uop: Instruction| {
            uop.lanes = 4;
            uop
        };
        let row =
            |op, dtype, src: &[u32], arg| Instruction::new(op, dtype, src.iter().copied(), arg);
        let global = |slot| Arg::Global(Global { slot, size_elements: 16 });
        let int = |value| Arg::Const(Constant::int(DType::I32, value));
        let axis = Arg::Axis(Axis { kind: AxisKind::Local, number: 0 });
        let seven = Arg::Const(Constant::float(DType::F32, 7.0));
        let mut uops = vec![
            row(Op::DefineGlobal, DType::F32, &[], global(0)),
            row(Op::DefineGlobal, DType::F32, &[], global(1)),
            row(Op::Const, DType::I32, &[], int(4)),
            row(Op::Const, DType::I32, &[], int(2)),
            row(Op::Const, DType::F32, &[], seven),
            row(Op::Range, DType::I32, &[2], axis),
            row(Op::Shl, DType::I32, &[5, 3], Arg::None),
            row(Op::Index, DType::F32, &[1, 6], Arg::None),
            f32x4(row(Op::Load, DType::F32, &[7], Arg::None)),
        ];
        for lane in 0..4 {
            uops.push(row(Op::Lane, DType::F32, &[8], Arg::Int(lane)));
            uops.push(row(Op::Add, DType::F32, &[9 + 2 * lane as u32, 4], Arg::None));
        }
        uops.push(f32x4(row(Op::Vectorize, DType::F32, &[10, 12, 14, 16], Arg::None)));
        uops.push(row(Op::Index, DType::F32, &[0, 6], Arg::None));
        uops.push(row(Op::Store, DType::Void, &[18, 17], Arg::None));
        uops.push(row(Op::EndRange, DType::Void, &[5], Arg::None));
        Linear { name: "E_4_4".into(), uops }
    }

    #[test]
    fn vectorized_add_uses_float4() {
        let code = cuda(&fused_add()).unwrap();
        let expected = "\
#define INFINITY (__int_as_float(0x7f800000))
#define NAN (__int_as_float(0x7fffffff))
extern \"C\" __global__ void __launch_bounds__(4) E_4_4(float* data0, float* data1) {
  int lidx0 = threadIdx.x; /* 4 */
  int alu0 = (lidx0<<2);
  float4 val0 = *((float4*)((data1+alu0)));
  *((float4*)((data0+alu0))) = make_float4((val0.x+7.0f),(val0.y+7.0f),(val0.z+7.0f),(val0.w+7.0f));
}
";
        assert_eq!(cuda_prelude(&code.helpers) + &code.text, expected);
    }

    #[test]
    fn large_local_arrays_share_dynamic_memory() {
        let local = |number, size_elements| Arg::Local(Local { number, size_elements });
        let array = |dtype, arg| Instruction::new(Op::DefineLocal, dtype, [], arg);
        let mut kernel = fused_add();
        kernel.uops.push(array(DType::I8, local(0, 1)));
        kernel.uops.push(array(DType::F32, local(1, 12_284)));
        assert_eq!(cuda_dynamic_bytes(&kernel), 0);
        kernel.uops.pop();
        kernel.uops.push(array(DType::F32, local(1, 12_285)));
        assert_eq!(cuda_dynamic_bytes(&kernel), 49_168);
        let text = cuda(&kernel).unwrap().text;
        let expected = "\
#ifdef __CUDA_ARCH__
  extern __shared__ __align__(16) unsigned char local_memory[];
#else
  __shared__ __align__(16) unsigned char local_memory[49168];
#endif
  signed char* local0 = (signed char*)(local_memory+0); /* 1 */
  float* local1 = (float*)(local_memory+16); /* 12285 */
";
        assert!(text.contains(expected), "{text}");
        // An empty array takes 16 bytes, too: more than 48 KiB in total.
        kernel.uops.truncate(kernel.uops.len() - 2);
        kernel.uops.push(array(DType::F32, local(0, 0)));
        kernel.uops.push(array(DType::F32, local(1, 12_288)));
        assert_eq!(cuda_dynamic_bytes(&kernel), 49_168);
        let text = cuda(&kernel).unwrap().text;
        assert!(text.contains("local_memory[49168]"), "{text}");
        assert!(text.contains("(local_memory+16); /* 12288 */"), "{text}");
    }

    #[test]
    fn vectors_have_no_arithmetic() {
        let mut kernel = fused_add();
        kernel.uops.truncate(9);
        let mut sum = Instruction::new(Op::Add, DType::F32, [8, 8], Arg::None);
        sum.lanes = 4;
        kernel.uops.push(sum);
        let error = cuda(&kernel).unwrap_err();
        assert_eq!(error.to_string(), "kernel E_4_4, uop 9: CUDA has no add of f32x4");
    }

    #[test]
    fn constants_keep_their_bits() {
        let text = |dtype, value| constant(Constant::float(dtype, value)).text;
        assert_eq!(text(DType::F32, f64::NAN), "__int_as_float(0x7fc00000)");
        assert_eq!(text(DType::F16, 1.5), "((half)1.5f)");
        assert_eq!(text(DType::BF16, f64::NEG_INFINITY), "((nv_bfloat16)-INFINITY)");
        assert_eq!(text(DType::F64, -0.0), "-0.0");
    }
}
