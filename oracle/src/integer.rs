//! Integer and bool ops on bit patterns, computed in i128. Results wrap at the dtype's width; an
//! undefined result is an error with the reason.

use gradiff_corpus::{BinaryOp, DType, UnaryOp};

use crate::cell::Reason;

/// Returns the number of bits of an integer dtype; 1 for bool.
pub(crate) fn width(dtype: DType) -> u32 {
    if dtype == DType::Bool { 1 } else { 8 * dtype.size_bytes() as u32 }
}

/// Returns the number that a bit pattern represents.
pub(crate) fn value(dtype: DType, bits: u64) -> i128 {
    if dtype.is_signed() {
        let unused = 64 - width(dtype);
        i128::from((bits << unused) as i64 >> unused)
    } else {
        i128::from(bits)
    }
}

/// Returns the bit pattern of a number modulo 2^width.
pub(crate) fn wrap(dtype: DType, value: i128) -> u64 {
    value as u64 & (u64::MAX >> (64 - width(dtype)))
}

/// Returns whether a number is in the dtype's range.
pub(crate) fn in_range(dtype: DType, number: i128) -> bool {
    value(dtype, wrap(dtype, number)) == number
}

/// Returns the bit pattern of the dtype's smallest value.
pub(crate) fn smallest(dtype: DType) -> u64 {
    if dtype.is_signed() { 1 << (width(dtype) - 1) } else { 0 }
}

/// Computes `op x` for `Neg` and `Not`, the unary ops that take integers.
pub(crate) fn unary(op: UnaryOp, dtype: DType, x: u64) -> u64 {
    match op {
        UnaryOp::Neg => wrap(dtype, -value(dtype, x)),
        UnaryOp::Not => wrap(dtype, !i128::from(x)),
        UnaryOp::Exp2 | UnaryOp::Log2 | UnaryOp::Sin | UnaryOp::Sqrt | UnaryOp::Recip => {
            panic!("{} takes floats only", op.name())
        }
    }
}

/// Computes `x op y` on bit patterns of the same dtype; comparisons give 0 or 1.
pub(crate) fn binary(op: BinaryOp, dtype: DType, x: u64, y: u64) -> Result<u64, Reason> {
    let (a, b) = (value(dtype, x), value(dtype, y));
    let number = match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::CDiv | BinaryOp::CMod | BinaryOp::FloorDiv | BinaryOp::FloorMod => {
            divide(op, a, b)?
        }
        BinaryOp::Max => a.max(b),
        BinaryOp::Min => a.min(b),
        BinaryOp::CmpLt => return Ok((a < b).into()),
        BinaryOp::CmpNe => return Ok((a != b).into()),
        BinaryOp::CmpEq => return Ok((a == b).into()),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl | BinaryOp::Shr => {
            if b < 0 || b >= i128::from(width(dtype)) {
                return Err(Reason::ShiftOutOfRange);
            }
            if op == BinaryOp::Shl { a << b } else { a >> b }
        }
        BinaryOp::Threefry => threefry(a as u64, b as u64).into(),
        BinaryOp::Div | BinaryOp::Pow => panic!("{} takes floats only", op.name()),
    };
    Ok(wrap(dtype, number))
}

/// Threefry-2x32 with 20 rounds (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3",
/// section 3.3): a round adds word 1 to word 0, rotates word 1 and mixes word 0 into it; before
/// the first round and after each fourth one, words of the key schedule and the number of the
/// injection are added. The low 32 bits are word 0.
fn threefry(counter: u64, key: u64) -> u64 {
    const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
    const PARITY: u32 = 0x1bd1_1bda;
    let (k0, k1) = (key as u32, (key >> 32) as u32);
    let schedule = [k0, k1, PARITY ^ k0 ^ k1];
    let mut words = [counter as u32, (counter >> 32) as u32];
    for round in 0..=20usize {
        if round % 4 == 0 {
            let injection = round / 4;
            words[0] = words[0].wrapping_add(schedule[injection % 3]);
            words[1] = words[1].wrapping_add(schedule[(injection + 1) % 3]);
            words[1] = words[1].wrapping_add(injection as u32);
        }
        if round < 20 {
            words[0] = words[0].wrapping_add(words[1]);
            words[1] = words[1].rotate_left(ROTATIONS[round % 8]) ^ words[0];
        }
    }
    u64::from(words[0]) | u64::from(words[1]) << 32
}

/// Computes the quotient or remainder of the floored or the truncated division. Rust's `/` and `%`
/// truncate, as C's do.
fn divide(op: BinaryOp, a: i128, b: i128) -> Result<i128, Reason> {
    if b == 0 {
        return Err(Reason::DivisionByZero);
    }
    // Divides 64-bit numbers if it can: 128-bit division is many times slower and seldom needed.
    let (quotient, remainder) = match (i64::try_from(a), i64::try_from(b)) {
        (Ok(a), Ok(b)) if b != -1 => (i128::from(a / b), i128::from(a % b)),
        _ => (a / b, a % b),
    };
    let is_above_floor = remainder != 0 && (remainder < 0) != (b < 0);
    Ok(match op {
        BinaryOp::CDiv => quotient,
        BinaryOp::CMod => remainder,
        BinaryOp::FloorDiv => quotient - i128::from(is_above_floor),
        _ => remainder + if is_above_floor { b } else { 0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers from the authors' library (Random123, `kat_vectors`).
    #[test]
    fn threefry_gives_the_known_answers() {
        let pair = |low: u64, high: u64| low | high << 32;
        let ones = u64::MAX;
        assert_eq!(threefry(0, 0), pair(0x6b20_0159, 0x99ba_4efe));
        assert_eq!(threefry(ones, ones), pair(0x1cb9_96fc, 0xbb00_2be7));
        let (counter, key) = (pair(0x243f_6a88, 0x85a3_08d3), pair(0x1319_8a2e, 0x0370_7344));
        assert_eq!(threefry(counter, key), pair(0xc492_3a9c, 0x483d_f7a0));
    }

    fn check(op: BinaryOp, dtype: DType, rows: &[(i128, i128, i128)]) {
        for &(x, y, expected) in rows {
            let got = binary(op, dtype, wrap(dtype, x), wrap(dtype, y));
            assert_eq!(got, Ok(wrap(dtype, expected)), "{} {x} {y}", op.name());
        }
    }

    #[test]
    fn divisions_differ_for_operands_of_different_signs() {
        let i32 = DType::I32;
        check(BinaryOp::FloorDiv, i32, &[(-9, 4, -3), (9, -4, -3), (-8, 4, -2), (-9, -4, 2)]);
        check(BinaryOp::CDiv, i32, &[(-9, 4, -2), (9, -4, -2), (-8, 4, -2), (-9, -4, 2)]);
        check(BinaryOp::FloorMod, i32, &[(-9, 4, 3), (9, -4, -3), (-8, 4, 0), (-9, -4, -1)]);
        check(BinaryOp::CMod, i32, &[(-9, 4, -1), (9, -4, 1), (-8, 4, 0), (-9, -4, -1)]);
    }

    #[test]
    fn all_i8_divisions_satisfy_their_laws() {
        for x in -128i128..128 {
            for y in (-128i128..128).filter(|&y| y != 0) {
                let result = |op| {
                    let (x, y) = (wrap(DType::I8, x), wrap(DType::I8, y));
                    value(DType::I8, binary(op, DType::I8, x, y).expect("y is not 0"))
                };
                let floor = (x as f64 / y as f64).floor() as i128;
                assert_eq!(result(BinaryOp::FloorDiv), value(DType::I8, wrap(DType::I8, floor)));
                assert_eq!(result(BinaryOp::FloorMod), x - floor * y);
                let truncated = (x as f64 / y as f64).trunc() as i128;
                assert_eq!(result(BinaryOp::CDiv), value(DType::I8, wrap(DType::I8, truncated)));
                assert_eq!(result(BinaryOp::CMod), x - truncated * y);
            }
        }
    }

    #[test]
    fn results_wrap_at_the_width_of_the_dtype() {
        check(BinaryOp::Add, DType::I8, &[(127, 1, -128)]);
        check(BinaryOp::Add, DType::U8, &[(255, 1, 0)]);
        check(BinaryOp::Sub, DType::U16, &[(0, 1, 65535)]);
        check(BinaryOp::Mul, DType::I64, &[(i64::MIN.into(), -1, i64::MIN.into())]);
        check(BinaryOp::Mul, DType::U64, &[(u64::MAX.into(), u64::MAX.into(), 1)]);
        check(BinaryOp::Shl, DType::I8, &[(64, 1, -128), (1, 7, -128)]);
        check(BinaryOp::Shr, DType::I8, &[(-128, 7, -1)]);
        check(BinaryOp::Shr, DType::U8, &[(128, 7, 1)]);
        for dtype in [DType::I8, DType::I16, DType::I32, DType::I64] {
            let least = value(dtype, smallest(dtype));
            check(BinaryOp::CDiv, dtype, &[(least, -1, least)]);
            check(BinaryOp::CMod, dtype, &[(least, -1, 0)]);
            check(BinaryOp::FloorDiv, dtype, &[(least, -1, least)]);
            check(BinaryOp::FloorMod, dtype, &[(least, -1, 0)]);
            assert_eq!(unary(UnaryOp::Neg, dtype, smallest(dtype)), smallest(dtype));
        }
        assert_eq!(unary(UnaryOp::Neg, DType::U8, 1), 255);
        assert_eq!(unary(UnaryOp::Not, DType::I8, 0), 255);
        assert_eq!(unary(UnaryOp::Not, DType::Bool, 1), 0);
    }

    #[test]
    fn undefined_ops_return_the_reason() {
        for op in [BinaryOp::CDiv, BinaryOp::CMod, BinaryOp::FloorDiv, BinaryOp::FloorMod] {
            assert_eq!(binary(op, DType::U32, 1, 0), Err(Reason::DivisionByZero));
        }
        for (dtype, count) in [(DType::I8, 8), (DType::I8, 255), (DType::U64, 64)] {
            let error = Err(Reason::ShiftOutOfRange);
            assert_eq!(binary(BinaryOp::Shl, dtype, 1, count), error);
            assert_eq!(binary(BinaryOp::Shr, dtype, 1, count), error);
        }
    }
}
