//! The scalar functions of ops on the 64-bit slots of the checked interpreter.
//!
//! A slot holds one element: signed integers sign-extended, everything else zero-extended.
//! Undefined ops give some value and never trap.

use gradiff_graph::{DType, Op};
use half::{bf16, f16};

use crate::half_float::{bf16_from_f64, f16_from_f64, f64_odd_i64, f64_odd_u64};

/// An op on slots. Functions of ops with fewer sources ignore the others.
pub(crate) type Function = fn(u64, u64, u64) -> u64;

/// Returns the function of an op, from the dtype of its first source (which `Where` ignores) to the
/// dtype of the result; `None` if the op does not exist for the dtype.
pub(crate) fn function(op: Op, from: DType, to: DType) -> Option<Function> {
    match op {
        Op::Cast => cast(from, to),
        Op::Bitcast => bitcast(from, to),
        Op::Where => Some(|condition, x, y| if condition != 0 { x } else { y }),
        _ => match from {
            DType::Void => None,
            DType::Bool => bool_function(op),
            DType::I8 => int_function!(op, i8),
            DType::U8 => int_function!(op, u8),
            DType::I16 => int_function!(op, i16),
            DType::U16 => int_function!(op, u16),
            DType::I32 => int_function!(op, i32),
            DType::U32 => int_function!(op, u32),
            DType::I64 => int_function!(op, i64),
            DType::U64 => int_function!(op, u64),
            DType::F16 => float_function!(op, get_f16, put_f16),
            DType::BF16 => float_function!(op, get_bf16, put_bf16),
            DType::F32 => float_function!(op, get_f32, put_f32),
            DType::F64 => float_function!(op, f64::from_bits, f64::to_bits),
        },
    }
}

fn get_f16(slot: u64) -> f32 {
    f16::from_bits(slot as u16).to_f32()
}

fn put_f16(value: f32) -> u64 {
    u64::from(f16::from_f32(value).to_bits())
}

fn get_bf16(slot: u64) -> f32 {
    bf16::from_bits(slot as u16).to_f32()
}

fn put_bf16(value: f32) -> u64 {
    u64::from(bf16::from_f32(value).to_bits())
}

fn get_f32(slot: u64) -> f32 {
    f32::from_bits(slot as u32)
}

fn put_f32(value: f32) -> u64 {
    u64::from(value.to_bits())
}

fn bool_function(op: Op) -> Option<Function> {
    Some(match op {
        Op::Neg => |x, _, _| x,
        Op::Add | Op::Or | Op::Max => |x, y, _| x | y,
        Op::Mul | Op::And | Op::Min => |x, y, _| x & y,
        Op::Sub | Op::Xor | Op::CmpNe => |x, y, _| x ^ y,
        Op::CmpLt => |x, y, _| !x & y & 1,
        _ => return None,
    })
}

macro_rules! int_function {
    ($op:expr, $t:ty) => {{
        // Sign-extends signed types.
        const fn put(value: $t) -> u64 {
            value as i64 as u64
        }
        // Returns whether flooring differs from truncation: the remainder is not 0 and its sign is
        // not the divisor's; never for unsigned types.
        const fn rounds_down(remainder: $t, y: $t) -> bool {
            <$t>::BITS > 0
                && remainder != 0
                && <$t>::MIN != 0
                && (((remainder ^ y) >> (<$t>::BITS - 1)) & 1) == 1
        }
        let function: Function = match $op {
            Op::Neg => |x, _, _| put((x as $t).wrapping_neg()),
            Op::Add => |x, y, _| put((x as $t).wrapping_add(y as $t)),
            Op::Sub => |x, y, _| put((x as $t).wrapping_sub(y as $t)),
            Op::Mul => |x, y, _| put((x as $t).wrapping_mul(y as $t)),
            Op::MulAcc => |x, y, z| put((x as $t).wrapping_mul(y as $t).wrapping_add(z as $t)),
            Op::CDiv => |x, y, _| match y as $t {
                0 => 0,
                y => put((x as $t).wrapping_div(y)),
            },
            Op::CMod => |x, y, _| match y as $t {
                0 => 0,
                y => put((x as $t).wrapping_rem(y)),
            },
            Op::FloorDiv => |x, y, _| match y as $t {
                0 => 0,
                y => {
                    let is_less = rounds_down((x as $t).wrapping_rem(y), y);
                    put((x as $t).wrapping_div(y).wrapping_sub(is_less as $t))
                }
            },
            Op::FloorMod => |x, y, _| match y as $t {
                0 => 0,
                y => {
                    let remainder = (x as $t).wrapping_rem(y);
                    put(match rounds_down(remainder, y) {
                        true => remainder.wrapping_add(y),
                        false => remainder,
                    })
                }
            },
            Op::Max => |x, y, _| put((x as $t).max(y as $t)),
            Op::Min => |x, y, _| put((x as $t).min(y as $t)),
            Op::CmpLt => |x, y, _| u64::from((x as $t) < (y as $t)),
            Op::CmpNe => |x, y, _| u64::from(x != y),
            Op::And => |x, y, _| x & y,
            Op::Or => |x, y, _| x | y,
            Op::Xor => |x, y, _| x ^ y,
            Op::Shl => |x, y, _| put((x as $t).wrapping_shl(y as u32)),
            Op::Shr => |x, y, _| put((x as $t).wrapping_shr(y as u32)),
            _ => return None,
        };
        Some(function)
    }};
}
use int_function;

macro_rules! float_function {
    ($op:expr, $get:path, $put:path) => {{
        let function: Function = match $op {
            Op::Neg => |x, _, _| $put(-$get(x)),
            Op::Exp2 => |x, _, _| $put($get(x).exp2()),
            Op::Log2 => |x, _, _| $put($get(x).log2()),
            Op::Sin => |x, _, _| $put($get(x).sin()),
            Op::Sqrt => |x, _, _| $put($get(x).sqrt()),
            Op::Recip => |x, _, _| $put(1.0 / $get(x)),
            Op::Add => |x, y, _| $put($get(x) + $get(y)),
            Op::Sub => |x, y, _| $put($get(x) - $get(y)),
            Op::Mul => |x, y, _| $put($get(x) * $get(y)),
            Op::FDiv => |x, y, _| $put($get(x) / $get(y)),
            Op::Pow => |x, y, _| $put($get(x).powf($get(y))),
            Op::MulAcc => |x, y, z| $put($get(x) * $get(y) + $get(z)),
            Op::CmpLt => |x, y, _| u64::from($get(x) < $get(y)),
            Op::CmpNe => |x, y, _| u64::from($get(x) != $get(y)),
            // `max` of Rust ignores NaN.
            Op::Max => |x, y, _| if $get(x) > $get(y) || $get(x).is_nan() { x } else { y },
            Op::Min => |x, y, _| if $get(x) < $get(y) || $get(x).is_nan() { x } else { y },
            _ => return None,
        };
        Some(function)
    }};
}
use float_function;

macro_rules! float_to {
    ($to:expr, $get:path) => {{
        let function: Function = match $to {
            DType::Void => return None,
            DType::Bool => |x, _, _| u64::from($get(x) != 0.0),
            DType::I8 => |x, _, _| $get(x) as i8 as i64 as u64,
            DType::U8 => |x, _, _| u64::from($get(x) as u8),
            DType::I16 => |x, _, _| $get(x) as i16 as i64 as u64,
            DType::U16 => |x, _, _| u64::from($get(x) as u16),
            DType::I32 => |x, _, _| $get(x) as i32 as i64 as u64,
            DType::U32 => |x, _, _| u64::from($get(x) as u32),
            DType::I64 => |x, _, _| $get(x) as i64 as u64,
            DType::U64 => |x, _, _| $get(x) as u64,
            DType::F16 => |x, _, _| u64::from(f16_from_f64(f64::from($get(x)))),
            DType::BF16 => |x, _, _| u64::from(bf16_from_f64(f64::from($get(x)))),
            DType::F32 => |x, _, _| put_f32($get(x) as f32),
            DType::F64 => |x, _, _| f64::from($get(x)).to_bits(),
        };
        Some(function)
    }};
}

fn cast(from: DType, to: DType) -> Option<Function> {
    if from == to {
        return Some(|x, _, _| x);
    }
    let is_signed = from.is_signed();
    match (from, to) {
        (DType::F16, _) => float_to!(to, get_f16),
        (DType::BF16, _) => float_to!(to, get_bf16),
        (DType::F32, _) => float_to!(to, get_f32),
        (DType::F64, _) => float_to!(to, f64::from_bits),
        (_, DType::Bool) => Some(|x, _, _| u64::from(x != 0)),
        (_, DType::F16) if is_signed => {
            Some(|x, _, _| u64::from(f16_from_f64(f64_odd_i64(x as i64))))
        }
        (_, DType::F16) => Some(|x, _, _| u64::from(f16_from_f64(f64_odd_u64(x)))),
        (_, DType::BF16) if is_signed => {
            Some(|x, _, _| u64::from(bf16_from_f64(f64_odd_i64(x as i64))))
        }
        (_, DType::BF16) => Some(|x, _, _| u64::from(bf16_from_f64(f64_odd_u64(x)))),
        (_, DType::F32) if is_signed => Some(|x, _, _| put_f32(x as i64 as f32)),
        (_, DType::F32) => Some(|x, _, _| put_f32(x as f32)),
        (_, DType::F64) if is_signed => Some(|x, _, _| (x as i64 as f64).to_bits()),
        (_, DType::F64) => Some(|x, _, _| (x as f64).to_bits()),
        _ => narrow(to),
    }
}

fn bitcast(from: DType, to: DType) -> Option<Function> {
    let is_possible = from.size_bytes() == to.size_bytes();
    if is_possible && from != DType::Bool && to != DType::Bool { narrow(to) } else { None }
}

/// The low bits of a slot, extended as `to` requires.
fn narrow(to: DType) -> Option<Function> {
    Some(match to {
        DType::Void => return None,
        DType::Bool => |x, _, _| x & 1,
        DType::I8 => |x, _, _| x as i8 as i64 as u64,
        DType::I16 => |x, _, _| x as i16 as i64 as u64,
        DType::I32 => |x, _, _| x as i32 as i64 as u64,
        DType::U8 => |x, _, _| u64::from(x as u8),
        DType::U16 | DType::F16 | DType::BF16 => |x, _, _| u64::from(x as u16),
        DType::U32 | DType::F32 => |x, _, _| u64::from(x as u32),
        DType::I64 | DType::U64 | DType::F64 => |x, _, _| x,
    })
}

/// The slot of a bit pattern of `dtype`.
pub(crate) fn slot(dtype: DType, bits: u64) -> u64 {
    narrow(dtype).map_or(bits, |narrow| narrow(bits, 0, 0))
}
