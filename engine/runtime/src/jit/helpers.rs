//! Helpers that compiled code calls: math functions and conversions of 16-bit floats.
//!
//! 16-bit floats are passed as `u32`, since calling conventions differ on whether the caller or the
//! callee extends shorter integers.

use cranelift_codegen::ir::{Type, types};
use half::{bf16, f16};

use crate::half_float;

/// A helper: its address, parameter types and result type.
pub(crate) struct Helper {
    pub(crate) address: usize,
    pub(crate) parameters: &'static [Type],
    pub(crate) result: Type,
}

const F32: Type = types::F32;
const F64: Type = types::F64;
const I32: Type = types::I32;
const I64: Type = types::I64;

macro_rules! helpers {
    ($(
        $name:ident: ($($x:ident: $t:ty = $machine:ident),+) -> $r:ty = $result:ident {
            $body:expr
        }
    )+) => {
        $(
            pub(crate) fn $name() -> Helper {
                extern "C" fn body($($x: $t),+) -> $r {
                    $body
                }
                let address = body as extern "C" fn($($t),+) -> $r as usize;
                Helper { address, parameters: &[$($machine),+], result: $result }
            }
        )+
    };
}

helpers! {
    exp2_f32: (x: f32 = F32) -> f32 = F32 { x.exp2() }
    exp2_f64: (x: f64 = F64) -> f64 = F64 { x.exp2() }
    log2_f32: (x: f32 = F32) -> f32 = F32 { x.log2() }
    log2_f64: (x: f64 = F64) -> f64 = F64 { x.log2() }
    sin_f32: (x: f32 = F32) -> f32 = F32 { x.sin() }
    sin_f64: (x: f64 = F64) -> f64 = F64 { x.sin() }
    pow_f32: (x: f32 = F32, y: f32 = F32) -> f32 = F32 { x.powf(y) }
    pow_f64: (x: f64 = F64, y: f64 = F64) -> f64 = F64 { x.powf(y) }
    f16_to_f32: (x: u32 = I32) -> f32 = F32 { f16::from_bits(x as u16).to_f32() }
    f16_from_f32: (x: f32 = F32) -> u32 = I32 { u32::from(f16::from_f32(x).to_bits()) }
    f16_from_f64: (x: f64 = F64) -> u32 = I32 { u32::from(half_float::f16_from_f64(x)) }
    bf16_to_f32: (x: u32 = I32) -> f32 = F32 { bf16::from_bits(x as u16).to_f32() }
    bf16_from_f32: (x: f32 = F32) -> u32 = I32 { u32::from(bf16::from_f32(x).to_bits()) }
    bf16_from_f64: (x: f64 = F64) -> u32 = I32 { u32::from(half_float::bf16_from_f64(x)) }
    f64_odd_i64: (x: i64 = I64) -> f64 = F64 { half_float::f64_odd_i64(x) }
    f64_odd_u64: (x: u64 = I64) -> f64 = F64 { half_float::f64_odd_u64(x) }
}
