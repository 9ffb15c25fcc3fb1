//! Types, constants and the scalar syntax of C.

use gradiff_graph::{Constant, DType};

use crate::code::Code;
use crate::scalar::ScalarSyntax;

/// The scalar syntax of C.
pub(crate) const SCALARS: ScalarSyntax = ScalarSyntax {
    type_name: |dtype| c_type(dtype).into(),
    f32_suffix: "f",
    function: "static inline ",
    wraps: true,
    conversion_type: DType::F64,
    is_native: |_| false,
    fma_body,
};

/// Multiply-add, fused if the machine has the instruction.
fn fma_body(dtype: DType) -> String {
    let f = if dtype == DType::F32 { "f" } else { "" };
    let macro_name = format!("__FP_FAST_FMA{}", f.to_uppercase());
    format!(
        "#if defined(__FMA__) || defined({macro_name})\n  return __builtin_fma{f}(x, y, z);\n\
         #else\n  return x * y + z;\n#endif\n"
    )
}

/// Returns the C name of an element type.
pub(crate) fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Void => "void",
        DType::Bool => "bool",
        DType::I8 => "int8_t",
        DType::U8 => "uint8_t",
        DType::I16 => "int16_t",
        DType::U16 => "uint16_t",
        DType::I32 => "int",
        DType::U32 => "unsigned int",
        DType::I64 => "int64_t",
        DType::U64 => "uint64_t",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

pub(crate) fn infinity(is_negative: bool) -> &'static str {
    if is_negative { "-INFINITY" } else { "INFINITY" }
}

/// A constant of exactly these bits.
pub(crate) fn constant(value: Constant) -> Code {
    let from_bits = |suffix: &str| {
        let bits = format!("{:#x}{suffix}", value.bits()).into();
        Code::call(format!("{}_from_bits", value.dtype()), &[&bits])
    };
    match (value.dtype(), value.to_int()) {
        (DType::I32, Some(number)) if number == i128::from(i32::MIN) => "(-2147483647-1)".into(),
        (DType::I64, Some(number)) if number == i128::from(i64::MIN) => {
            "(-9223372036854775807ll-1)".into()
        }
        (DType::U32, Some(number)) => format!("{number}u").into(),
        (DType::I64, Some(number)) => format!("{number}ll").into(),
        (DType::U64, Some(number)) => format!("{number}ull").into(),
        (_, Some(number)) => number.to_string().into(),
        (DType::F32, None) => {
            let float = f32::from_bits(value.bits() as u32);
            match float.is_nan() {
                true if value.bits() == 0x7fc0_0000 => "NAN".into(),
                true => from_bits("u"),
                false if float.is_infinite() => infinity(float < 0.0).into(),
                false => format!("{float:?}f").into(),
            }
        }
        (DType::F64, None) => {
            let float = f64::from_bits(value.bits());
            match float.is_nan() {
                true => from_bits("ull"),
                false if float.is_infinite() => format!("(double){}", infinity(float < 0.0)).into(),
                false => format!("{float:?}").into(),
            }
        }
        (_, None) => format!("{:#x}/*{value}*/", value.bits()).into(),
    }
}
