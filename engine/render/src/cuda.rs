//! CUDA C for NVRTC. One function per kernel, launched with one group per step of its global
//! ranges and one thread per step of its local ones.
//!
//! Vectors (`float4`, `half2`) are loaded, stored, made of single values and taken apart; there is
//! no arithmetic of them. An access of a vector lies at a multiple of its size.

use gradiff_graph::{AxisKind, Constant, DType, Linear, TensorCore};

use crate::Error;
use crate::dialect::{Alu, Dialect, Head, Place, Text, Value, dimension_name};
use crate::helpers::{collect, function};
use crate::scalar::Words;
use crate::writer::write;

/// The text of one kernel.
///
/// # Errors
/// If a uop is not of the linear level or has no text in CUDA, or the name is no identifier.
pub fn cuda(linear: &Linear) -> Result<String, Error> {
    write(&Cuda, linear, &linear.name)
}

/// What stands once before these kernels in a file.
pub fn cuda_prelude(kernels: &str) -> String {
    let definition = |word: &str| own(word).or_else(|| function(&WORDS, word));
    let used = collect(kernels, &definition);
    let has = |word: &str| kernels.contains(word) || used.contains(word);
    let mut text = String::new();
    for (word, header) in [("half", "cuda_fp16.h"), ("nv_bfloat16", "cuda_bf16.h")] {
        if has(word) {
            text.push_str(&format!("#include <{header}>\n"));
        }
    }
    text + "#define INFINITY (__int_as_float(0x7f800000))\n\
            #define NAN (__int_as_float(0x7fffffff))\n"
        + &used
}

struct Cuda;

const WORDS: Words = Words {
    type_name,
    f32_suffix: "f",
    function: "static __device__ inline ",
    wraps: false,
    wide: DType::F32,
    is_native: |_| true,
    fused: |dtype| match dtype {
        DType::F32 => "  return fmaf(x, y, z);\n".to_string(),
        _ => "  return fma(x, y, z);\n".to_string(),
    },
};

fn type_name(dtype: DType) -> &'static str {
    match dtype {
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
        DType::F16 => "half",
        DType::BF16 => "nv_bfloat16",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

/// The name of a vector's type without its count of lanes.
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
        DType::BF16 => "nv_bfloat16",
        DType::F32 => "float",
        DType::F64 => "double",
        DType::Bool | DType::Void => return None,
    })
}

/// CUDA has vectors of up to 16 bytes; of 16-bit floats there are pairs, and longer ones are ours.
fn vector_type(dtype: DType, lanes: u8) -> Option<String> {
    let size = dtype.size_bytes() * usize::from(lanes);
    let is_half = matches!(dtype, DType::F16 | DType::BF16);
    let is_possible = matches!((lanes, is_half), (2 | 4, _) | (8, true)) && size <= 16;
    let name = vector_name(dtype)?;
    match (is_possible, dtype, lanes) {
        (false, ..) => None,
        (true, DType::BF16, 2) => Some("nv_bfloat162".to_string()),
        (true, DType::BF16, _) => Some(format!("bfloat{lanes}")),
        (true, ..) => Some(format!("{name}{lanes}")),
    }
}

/// How many elements of a type a load takes at most.
pub(crate) fn lanes_max(dtype: DType) -> u8 {
    [8, 4, 2].into_iter().find(|lanes| vector_type(dtype, *lanes).is_some()).unwrap_or(1)
}

/// The functions and types that CUDA has for itself.
fn own(word: &str) -> Option<String> {
    let line = match word {
        "f32_bits" => "unsigned int f32_bits(float x) { return __float_as_uint(x); }",
        "f64_bits" => "unsigned long long f64_bits(double x) { return __double_as_longlong(x); }",
        "f16_bits" => "unsigned short f16_bits(half x) { return __half_as_ushort(x); }",
        "bf16_bits" => {
            "unsigned short bf16_bits(nv_bfloat16 x) { return __bfloat16_as_ushort(x); }"
        }
        "f32_from_bits" => "float f32_from_bits(unsigned int x) { return __uint_as_float(x); }",
        "f64_from_bits" => {
            "double f64_from_bits(unsigned long long x) { return __longlong_as_double(x); }"
        }
        "f16_from_bits" => "half f16_from_bits(unsigned short x) { return __ushort_as_half(x); }",
        "bf16_from_bits" => {
            "nv_bfloat16 bf16_from_bits(unsigned short x) { return __ushort_as_bfloat16(x); }"
        }
        "half4" => return Some(long_vector("half4", "half", 4)),
        "half8" => return Some(long_vector("half8", "half", 8)),
        "bfloat4" => return Some(long_vector("bfloat4", "nv_bfloat16", 4)),
        "bfloat8" => return Some(long_vector("bfloat8", "nv_bfloat16", 8)),
        _ if word.starts_with("wmma_") => return product_function(word),
        _ => {
            // The vector's type brings the function that makes it.
            let made = word.strip_prefix("make_")?;
            let is_ours = ["half4", "half8", "bfloat4", "bfloat8"].contains(&made);
            return is_ours.then(|| own(made))?.map(|_| String::new());
        }
    };
    Some(format!("{}{line}\n", WORDS.function))
}

const LANES: [&str; 8] = ["x", "y", "z", "w", "a", "b", "c", "d"];

fn long_vector(name: &str, element: &str, lanes: usize) -> String {
    let names = &LANES[..lanes];
    let parameters: Vec<String> = names.iter().map(|lane| format!("{element} {lane}")).collect();
    format!(
        "struct __align__({}) {name} {{ {element} {}; }};\n\
         static __device__ inline {name} make_{name}({}) {{ {name} r = {{{}}}; return r; }}\n",
        2 * lanes,
        names.join(", "),
        parameters.join(", "),
        names.join(", ")
    )
}

/// The instruction of a product; none for those that no card has.
pub(crate) fn mma(core: &TensorCore) -> Option<String> {
    let kind = match core.from {
        _ if core.threads != 32 => return None,
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F32 if core.is_tf32 => "tf32",
        _ => return None,
    };
    let [m, n, k] = core.sizes;
    Some(format!("mma.sync.aligned.m{m}n{n}k{k}.row.col.f32.{kind}.{kind}.f32"))
}

/// The function of a product: the registers of A and B are 32 bits, two 16-bit floats in each.
fn product_function(word: &str) -> Option<String> {
    let core = TensorCore::named(word.strip_prefix("wmma_")?)?;
    let kinds = [0, 1, 2].map(|matrix| {
        let dtype = if matrix == 2 { DType::F32 } else { core.from };
        vector_type(dtype, core.elements(matrix) as u8)
    });
    let [Some(a), Some(b), Some(c)] = kinds else { return None };
    let sizes = [0, 1].map(|matrix| core.elements(matrix) * core.from.size_bytes() / 4);
    let (mut inputs, mut numbers, mut text) = (Vec::new(), vec![String::new(); 3], String::new());
    numbers[2] = registers(0, core.elements(2));
    let mut from = core.elements(2);
    for (matrix, (name, size)) in ["x", "y"].into_iter().zip(sizes).enumerate() {
        let own = ["a", "b"][matrix];
        text += &format!("  const unsigned int* {name} = (const unsigned int*)&{own};\n");
        if core.is_tf32 {
            let rounded = |at: usize| {
                let to = format!("{own}{at}");
                let round = "cvt.rna.tf32.f32 %0, %1;";
                format!(
                    "  unsigned int {to}; asm(\"{round}\" : \"=r\"({to}) : \"r\"({name}[{at}]));\n"
                )
            };
            text += &(0..size).map(rounded).collect::<String>();
            inputs.extend((0..size).map(|at| format!("\"r\"({own}{at})")));
        } else {
            inputs.extend((0..size).map(|at| format!("\"r\"({name}[{at}])")));
        }
        numbers[matrix] = registers(from, size);
        from += size;
    }
    let outputs = LANES[..core.elements(2)].iter().map(|lane| format!("\"+f\"(c.{lane})"));
    let [x, y, z] = [0, 1, 2].map(|matrix| &numbers[matrix]);
    Some(format!(
        "{}{c} {word}({a} a, {b} b, {c} c) {{\n{text}  asm volatile(\"{} {z}, {x}, {y}, {z};\"\n    \
         : {}\n    : {});\n  return c;\n}}\n",
        WORDS.function,
        mma(core)?,
        outputs.collect::<Vec<_>>().join(", "),
        inputs.join(", ")
    ))
}

/// So many operands of an instruction, in braces.
fn registers(from: usize, count: usize) -> String {
    let names: Vec<String> = (from..from + count).map(|number| format!("%{number}")).collect();
    format!("{{{}}}", names.join(","))
}

/// A constant of exactly these bits.
fn constant(value: Constant) -> String {
    let bits = value.bits();
    let is_nan = value.to_float().is_some_and(f64::is_nan);
    match value.dtype() {
        DType::F32 if is_nan => format!("__int_as_float({bits:#x})"),
        DType::F64 if is_nan => format!("__longlong_as_double({bits:#x}ll)"),
        DType::F16 if is_nan => format!("__ushort_as_half((unsigned short){bits:#x})"),
        DType::BF16 if is_nan => format!("__ushort_as_bfloat16((unsigned short){bits:#x})"),
        DType::F16 | DType::BF16 => {
            let wide = Constant::float(DType::F32, value.to_float().unwrap_or(0.0));
            format!("(({}){})", type_name(value.dtype()), crate::c::constant(wide))
        }
        _ => crate::c::constant(value),
    }
}

impl Dialect for Cuda {
    fn language(&self) -> &'static str {
        "CUDA"
    }

    fn type_name(&self, dtype: DType, lanes: u8, _mask_bytes: u8) -> Option<String> {
        match lanes {
            1 => Some(type_name(dtype).to_string()),
            _ => vector_type(dtype, lanes),
        }
    }

    fn constant(&self, value: Constant) -> Option<String> {
        Some(constant(value))
    }

    fn head(&self, head: &Head) -> Option<String> {
        let arrays = head.arrays.iter();
        let arrays = arrays.map(|(slot, dtype, _)| format!("{}* data{slot}", type_name(*dtype)));
        let variables = head.variables.iter();
        let variables =
            variables.map(|(name, dtype)| format!("const {} {name}", type_name(*dtype)));
        let parameters: Vec<String> = arrays.chain(variables).collect();
        let threads: i64 = head.group.iter().product();
        let mut text = format!(
            "extern \"C\" __global__ void __launch_bounds__({threads}) {}({}) {{\n",
            head.name,
            parameters.join(", ")
        );
        for (name, dtype, size_elements) in &head.locals {
            let kind = type_name(*dtype);
            text += &format!("  __shared__ __align__(16) {kind} {name}[{size_elements}];\n");
        }
        Some(text)
    }

    fn launched(&self, kind: AxisKind, dimension: usize) -> Option<String> {
        let word = if kind == AxisKind::Global { "blockIdx" } else { "threadIdx" };
        Some(format!("{word}{}", dimension_name(dimension)))
    }

    fn alu(&self, alu: &Alu) -> Option<Text> {
        if alu.lanes == 1 { WORDS.alu(alu).map(Text::from) } else { None }
    }

    fn vectorize(&self, dtype: DType, lanes: u8, src: &[Value]) -> Option<Text> {
        let kind = vector_type(dtype, lanes)?;
        let kind = if kind == "nv_bfloat162" { "bfloat162".to_string() } else { kind };
        let lanes = (0..lanes.into()).map(|lane| src.get(lane).or(src.last()).map(|v| v.text));
        let lanes: Vec<&str> = lanes.collect::<Option<_>>()?;
        Some(format!("make_{kind}({})", lanes.join(",")).into())
    }

    fn lane(&self, vector: &Value, lane: usize) -> Option<String> {
        Some(format!("{}.{}", vector.text, LANES.get(lane)?))
    }

    fn product(&self, core: &TensorCore, src: &[Value]) -> Option<String> {
        let texts: Vec<&str> = src.iter().map(|value| value.text).collect();
        mma(core).map(|_| format!("wmma_{}({})", core.name, texts.join(",")))
    }

    fn load(&self, place: &Place) -> Option<Text> {
        Some(at(place)?.into())
    }

    fn store(&self, place: &Place, value: &Value) -> Option<String> {
        Some(format!("{} = {};", at(place)?, value.text))
    }

    fn barrier(&self) -> Option<&'static str> {
        Some("__syncthreads();")
    }
}

/// The elements at a place.
fn at(place: &Place) -> Option<String> {
    let (array, index) = (place.array, place.index);
    Some(match place.lanes {
        1 => format!("{array}[{index}]"),
        lanes => format!("*(({}*)(({array}+{index})))", vector_type(place.dtype, lanes)?),
    })
}

#[cfg(test)]
mod tests {
    use gradiff_graph::{Arg, Axis, Global, Instruction, Op};

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
    fn fused_add_is_exactly_as_in_the_note() {
        let text = cuda(&fused_add()).unwrap();
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
        assert_eq!(cuda_prelude(&text) + &text, expected);
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
        let text = |dtype, value| constant(Constant::float(dtype, value));
        assert_eq!(text(DType::F32, f64::NAN), "__int_as_float(0x7fc00000)");
        assert_eq!(text(DType::F16, 1.5), "((half)1.5f)");
        assert_eq!(text(DType::BF16, f64::NEG_INFINITY), "((nv_bfloat16)-INFINITY)");
        assert_eq!(text(DType::F64, -0.0), "-0.0");
    }
}
