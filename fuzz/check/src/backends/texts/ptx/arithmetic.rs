//! The functions of instructions that compute: from the bits of up to three operands to bits.

use super::types::{Class, Type};

/// The function of an instruction. Bits above those of the result are 0.
pub(super) type Apply = fn([u64; 3]) -> u64;

/// Result of a division that the manual leaves unspecified.
const UNSPECIFIED: u64 = 0x5b5b_5b5b_5b5b_5b5b;

macro_rules! of_integers {
    ($word:expr, $integer:ty, $bits:ty) => {{
        type Integer = $integer;
        let apply: Apply = match $word {
            "add" => |v| (v[0] as Integer).wrapping_add(v[1] as Integer) as $bits as u64,
            "sub" => |v| (v[0] as Integer).wrapping_sub(v[1] as Integer) as $bits as u64,
            "mul.lo" => |v| (v[0] as Integer).wrapping_mul(v[1] as Integer) as $bits as u64,
            "mad.lo" => |v| {
                let product = (v[0] as Integer).wrapping_mul(v[1] as Integer);
                product.wrapping_add(v[2] as Integer) as $bits as u64
            },
            "div" => |v| {
                let quotient = (v[0] as Integer).checked_div(v[1] as Integer);
                quotient.map_or(UNSPECIFIED as $bits, |value| value as $bits) as u64
            },
            "rem" => |v| {
                let remainder = (v[0] as Integer).checked_rem(v[1] as Integer);
                remainder.map_or(UNSPECIFIED as $bits, |value| value as $bits) as u64
            },
            "min" => |v| (v[0] as Integer).min(v[1] as Integer) as $bits as u64,
            "max" => |v| (v[0] as Integer).max(v[1] as Integer) as $bits as u64,
            "neg" if Integer::MIN != 0 => |v| (v[0] as Integer).wrapping_neg() as $bits as u64,
            "shr" => |v| {
                // An amount has 32 bits; one above the width counts as the width.
                let amount = (v[1] as u32).min(<$bits>::BITS);
                let half = (v[0] as Integer) >> (amount / 2);
                (half >> (amount - amount / 2)) as $bits as u64
            },
            "setp.eq" => |v| u64::from(v[0] as Integer == v[1] as Integer),
            "setp.ne" => |v| u64::from(v[0] as Integer != v[1] as Integer),
            "setp.lt" => |v| u64::from((v[0] as Integer) < v[1] as Integer),
            "setp.le" => |v| u64::from(v[0] as Integer <= v[1] as Integer),
            "setp.gt" => |v| u64::from(v[0] as Integer > v[1] as Integer),
            "setp.ge" => |v| u64::from(v[0] as Integer >= v[1] as Integer),
            _ => return None,
        };
        Some(apply)
    }};
}

macro_rules! of_floats {
    ($word:expr, $float:ty, $bits:ty) => {{
        fn at(bits: u64) -> $float {
            <$float>::from_bits(bits as $bits)
        }
        fn of(value: $float) -> u64 {
            value.to_bits() as u64
        }
        fn is_nan(v: [u64; 3]) -> bool {
            at(v[0]).is_nan() || at(v[1]).is_nan()
        }
        let apply: Apply = match $word {
            "add.rn" => |v| of(at(v[0]) + at(v[1])),
            "sub.rn" => |v| of(at(v[0]) - at(v[1])),
            "mul.rn" => |v| of(at(v[0]) * at(v[1])),
            "div.rn" => |v| of(at(v[0]) / at(v[1])),
            "rcp.rn" => |v| of(1.0 / at(v[0])),
            "sqrt.rn" => |v| of(at(v[0]).sqrt()),
            "fma.rn" => |v| of(at(v[0]).mul_add(at(v[1]), at(v[2]))),
            "neg" => |v| of(-at(v[0])),
            "setp.eq" => |v| u64::from(at(v[0]) == at(v[1])),
            "setp.ne" => |v| u64::from(!is_nan(v) && at(v[0]) != at(v[1])),
            "setp.lt" => |v| u64::from(at(v[0]) < at(v[1])),
            "setp.le" => |v| u64::from(at(v[0]) <= at(v[1])),
            "setp.gt" => |v| u64::from(at(v[0]) > at(v[1])),
            "setp.ge" => |v| u64::from(at(v[0]) >= at(v[1])),
            "setp.equ" => |v| u64::from(is_nan(v) || at(v[0]) == at(v[1])),
            "setp.neu" => |v| u64::from(at(v[0]) != at(v[1])),
            "setp.num" => |v| u64::from(!is_nan(v)),
            "setp.nan" => |v| u64::from(is_nan(v)),
            _ => return None,
        };
        Some(apply)
    }};
}

/// The function of an opcode over a type, if the type has it; `word` is the opcode without its
/// type: `add`, `mul.lo`, `setp.lt`.
pub(super) fn function(word: &str, kind: Type) -> Option<Apply> {
    match (kind.class, kind.bits) {
        (Class::Signed, 16) => of_integers!(word, i16, u16),
        (Class::Signed, 32) => of_integers!(word, i32, u32),
        (Class::Signed, 64) => of_integers!(word, i64, u64),
        (Class::Unsigned, 16) => of_integers!(word, u16, u16),
        (Class::Unsigned, 32) => of_integers!(word, u32, u32),
        (Class::Unsigned, 64) => of_integers!(word, u64, u64),
        (Class::Float, 32) if word == "ex2.approx" => {
            Some(|v| u64::from((f64::from(f32::from_bits(v[0] as u32)).exp2() as f32).to_bits()))
        }
        (Class::Float, 32) => of_floats!(word, f32, u32),
        (Class::Float, 64) => of_floats!(word, f64, u64),
        (Class::Bits | Class::Predicate, _) => of_bits(word, kind),
        _ => None,
    }
}

fn of_bits(word: &str, kind: Type) -> Option<Apply> {
    let apply: Apply = match (word, kind.bits) {
        ("and", 1 | 16 | 32 | 64) => |v| v[0] & v[1],
        ("or", 1 | 16 | 32 | 64) => |v| v[0] | v[1],
        ("xor", 1 | 16 | 32 | 64) => |v| v[0] ^ v[1],
        ("not", 1) => |v| v[0] ^ 1,
        ("not", 16) => |v| u64::from(!v[0] as u16),
        ("not", 32) => |v| u64::from(!v[0] as u32),
        ("not", 64) => |v| !v[0],
        ("shl", 16) => |v| u64::from((v[0] as u16).checked_shl(v[1] as u32).unwrap_or(0)),
        ("shl", 32) => |v| u64::from((v[0] as u32).checked_shl(v[1] as u32).unwrap_or(0)),
        ("shl", 64) => |v| v[0].checked_shl(v[1] as u32).unwrap_or(0),
        ("shr", 16 | 32 | 64) => |v| v[0].checked_shr(v[1] as u32).unwrap_or(0),
        ("setp.eq", 16 | 32 | 64) => |v| u64::from(v[0] == v[1]),
        ("setp.ne", 16 | 32 | 64) => |v| u64::from(v[0] != v[1]),
        _ => return None,
    };
    Some(apply)
}

/// The function that multiplies two integers into twice their bits.
pub(super) fn wide_product(kind: Type) -> Option<Apply> {
    Some(match kind.name {
        "s16" => |v| u64::from((i32::from(v[0] as i16) * i32::from(v[1] as i16)) as u32),
        "u16" => |v| u64::from(u32::from(v[0] as u16) * u32::from(v[1] as u16)),
        "s32" => |v| (i64::from(v[0] as i32) * i64::from(v[1] as i32)) as u64,
        "u32" => |v| u64::from(v[0] as u32) * u64::from(v[1] as u32),
        _ => return None,
    })
}
