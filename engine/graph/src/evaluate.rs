//! Evaluates elementwise ops on constants.
//!
//! Constant folding, the checked interpreter and the evaluator of stages all use this function.
//! Integers wrap at their width; 16-bit floats are computed in f32 and rounded once; f32 and f64
//! use the host's arithmetic and its math library.

use crate::interval::{floor_div, floor_rem};
use crate::{Constant, DType, Op};

/// Evaluates `op` over `src` with a result of type `dtype`; `None` if the op is undefined (an
/// integer division by zero, a shift out of range, a cast of a float outside the integer's range)
/// or does not exist for these types.
pub fn evaluate(op: Op, dtype: DType, src: &[Constant]) -> Option<Constant> {
    match (op, src) {
        (Op::Cast, [x]) => cast(*x, dtype),
        (Op::Bitcast, [x]) => {
            let same_size = x.dtype().size_bytes() == dtype.size_bytes();
            (same_size && dtype != DType::Void).then(|| Constant::from_bits(dtype, x.bits()))
        }
        (Op::Where, [condition, x, y]) => Some(if condition.is_true() { *x } else { *y }),
        (_, [x, ..]) if x.dtype().is_float() => floats(op, src),
        (_, [x]) => unary_int(op, *x),
        (_, [x, y]) => binary_int(op, *x, *y),
        (Op::MulAcc, [x, y, z]) => {
            let product = x.to_int()?.wrapping_mul(y.to_int()?);
            Some(Constant::int(x.dtype(), product.wrapping_add(z.to_int()?)))
        }
        _ => None,
    }
}

fn cast(x: Constant, dtype: DType) -> Option<Constant> {
    if dtype == DType::Void {
        return None;
    }
    match (x.to_int(), x.to_float()) {
        (Some(value), _) => Some(Constant::int(dtype, value)),
        // A NaN is not 0, so it is true.
        (_, Some(value)) if dtype == DType::Bool => Some(Constant::bool(value != 0.0)),
        (_, Some(_)) if dtype == x.dtype() => Some(x),
        (_, Some(value)) if dtype.is_float() => Some(Constant::float(dtype, value)),
        (_, Some(value)) => {
            let (low, high) = dtype.int_range()?;
            // `as` saturates and maps NaN to 0; both are undefined here.
            let whole = value.trunc() as i128;
            let is_inside = value.is_finite() && low <= whole && whole <= high;
            is_inside.then(|| Constant::int(dtype, whole))
        }
        (None, None) => None,
    }
}

fn unary_int(op: Op, x: Constant) -> Option<Constant> {
    let is_int = op == Op::Neg && x.dtype().is_int();
    is_int.then(|| x.to_int().map(|value| Constant::int(x.dtype(), -value)))?
}

/// Evaluates an op on integers or bools; sums and products of bools are those of 0 and 1, `!= 0`.
fn binary_int(op: Op, left: Constant, right: Constant) -> Option<Constant> {
    let dtype = left.dtype();
    let (x, y) = (left.to_int()?, right.to_int()?);
    let shift = || u32::try_from(y).ok().filter(|shift| *shift < dtype.bits());
    let value = match op {
        // Only the low 64 bits of the product matter, which wrapping keeps.
        Op::Add => x + y,
        Op::Sub => x - y,
        Op::Mul => x.wrapping_mul(y),
        Op::CDiv => x.checked_div(y)?,
        Op::CMod => x.checked_rem(y)?,
        Op::FloorDiv => (y != 0).then(|| floor_div(x, y))?,
        Op::FloorMod => (y != 0).then(|| floor_rem(x, y))?,
        Op::Max => x.max(y),
        Op::Min => x.min(y),
        Op::CmpLt => return Some(Constant::bool(x < y)),
        Op::CmpNe => return Some(Constant::bool(x != y)),
        Op::And => x & y,
        Op::Or => x | y,
        Op::Xor => x ^ y,
        Op::Shl => x << shift()?,
        Op::Shr => x >> shift()?,
        Op::Threefry if dtype == DType::U64 => threefry(left.bits(), right.bits()).into(),
        _ => return None,
    };
    Some(Constant::int(dtype, value))
}

/// Threefry-2x32: five groups of four rounds; before the first and after each group, a word of the
/// key schedule is added to each half.
fn threefry(counter: u64, key: u64) -> u64 {
    let halves = |value: u64| (value as u32, (value >> 32) as u32);
    let ((mut low, mut high), (key_low, key_high)) = (halves(counter), halves(key));
    let keys = [key_low, key_high, key_low ^ key_high ^ THREEFRY_PARITY];
    (low, high) = (low.wrapping_add(keys[0]), high.wrapping_add(keys[1]));
    for (group, number) in (1..=5u32).enumerate() {
        for rotation in THREEFRY_ROTATIONS[group % 2] {
            low = low.wrapping_add(high);
            high = low ^ high.rotate_left(rotation);
        }
        low = low.wrapping_add(keys[(group + 1) % 3]);
        high = high.wrapping_add(keys[(group + 2) % 3]).wrapping_add(number);
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Rotations of the high half in bits, for two alternating groups of four rounds.
pub const THREEFRY_ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];

/// The parity constant: the third word of the key schedule is the exclusive or of the other two and
/// this one.
pub const THREEFRY_PARITY: u32 = 0x1bd1_1bda;

fn floats(op: Op, src: &[Constant]) -> Option<Constant> {
    let dtype = src[0].dtype();
    if op == Op::Neg {
        let sign = 1 << (dtype.bits() - 1);
        return Some(Constant::from_bits(dtype, src[0].bits() ^ sign));
    }
    if let (Op::Max | Op::Min, [left, right]) = (op, src) {
        let (x, y) = (left.to_float()?, right.to_float()?);
        let is_left = if op == Op::Max { x > y } else { x < y };
        // Returns one of the operands, bit for bit. Comparisons with NaN fail, so that a NaN on the
        // right is returned without a test.
        return Some(if is_left || x.is_nan() { *left } else { *right });
    }
    if dtype == DType::F64 {
        let values: smallvec::SmallVec<[f64; 3]> =
            src.iter().map(|value| value.to_float()).collect::<Option<_>>()?;
        return float_op!(f64, op, &values).map(|value| value.constant(dtype));
    }
    let values: smallvec::SmallVec<[f32; 3]> =
        src.iter().map(|value| value.to_float().map(|x| x as f32)).collect::<Option<_>>()?;
    float_op!(f32, op, &values).map(|value| value.constant(dtype))
}

/// The result of a float op: a number or a bool.
enum Outcome {
    Number(f64),
    Truth(bool),
}

impl Outcome {
    fn constant(self, dtype: DType) -> Constant {
        match self {
            // Exact for f64 and f32; rounds for f16 and bf16.
            Outcome::Number(value) => Constant::float(dtype, value),
            Outcome::Truth(value) => Constant::bool(value),
        }
    }
}

/// Evaluates the op in the arithmetic of `$float`.
macro_rules! float_op {
    ($float:ty, $op:expr, $values:expr) => {{
        let values: &[$float] = $values;
        match ($op, values) {
            (Op::Exp2, [x]) => Some(Outcome::Number(x.exp2().into())),
            (Op::Log2, [x]) => Some(Outcome::Number(x.log2().into())),
            (Op::Sin, [x]) => Some(Outcome::Number(x.sin().into())),
            (Op::Sqrt, [x]) => Some(Outcome::Number(x.sqrt().into())),
            (Op::Recip, [x]) => Some(Outcome::Number((1.0 / x).into())),
            (Op::Add, [x, y]) => Some(Outcome::Number((x + y).into())),
            (Op::Sub, [x, y]) => Some(Outcome::Number((x - y).into())),
            (Op::Mul, [x, y]) => Some(Outcome::Number((x * y).into())),
            (Op::FDiv, [x, y]) => Some(Outcome::Number((x / y).into())),
            // A power of the float nearest to e means e^x, as in kernels.
            (Op::Pow, [x, y]) if *x == std::f64::consts::E as $float => {
                Some(Outcome::Number(y.exp().into()))
            }
            (Op::Pow, [x, y]) => Some(Outcome::Number(x.powf(*y).into())),
            (Op::CmpLt, [x, y]) => Some(Outcome::Truth(x < y)),
            (Op::CmpNe, [x, y]) => Some(Outcome::Truth(x != y)),
            (Op::MulAcc, [x, y, z]) => Some(Outcome::Number((x * y + z).into())),
            _ => None,
        }
    }};
}
use float_op;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(op: Op, dtype: DType, src: &[i128], expected: Option<i128>) {
        let src: Vec<Constant> = src.iter().map(|value| Constant::int(dtype, *value)).collect();
        let value = evaluate(op, dtype, &src).and_then(Constant::to_int);
        assert_eq!(value, expected, "{op} {dtype} {src:?}");
    }

    #[test]
    fn divisions_floor_and_c_differ_below_zero() {
        check(Op::CDiv, DType::I32, &[-7, 2], Some(-3));
        check(Op::CMod, DType::I32, &[-7, 2], Some(-1));
        check(Op::FloorDiv, DType::I32, &[-7, 2], Some(-4));
        check(Op::FloorMod, DType::I32, &[-7, 2], Some(1));
        check(Op::FloorMod, DType::I32, &[7, -2], Some(-1));
        check(Op::FloorDiv, DType::I8, &[-128, -1], Some(-128));
        check(Op::CDiv, DType::I32, &[1, 0], None);
    }

    #[test]
    fn integers_wrap_at_their_width() {
        check(Op::Add, DType::U8, &[200, 100], Some(44));
        check(Op::Sub, DType::U32, &[0, 1], Some((1 << 32) - 1));
        check(Op::Mul, DType::U64, &[u64::MAX.into(), u64::MAX.into()], Some(1));
        check(Op::Neg, DType::I8, &[-128], Some(-128));
        check(Op::Shl, DType::I8, &[3, 7], Some(-128));
        check(Op::Shr, DType::I8, &[-3, 1], Some(-2));
        check(Op::Shl, DType::I8, &[1, 8], None);
    }

    #[test]
    fn threefry_matches_the_known_answers() {
        let pair = |low: u32, high: u32| i128::from(low) | i128::from(high) << 32;
        let ones = u64::MAX.into();
        let of_zeros = pair(0x6b20_0159, 0x99ba_4efe);
        check(Op::Threefry, DType::U64, &[0, 0], Some(of_zeros));
        let of_ones = pair(0x1cb9_96fc, 0xbb00_2be7);
        check(Op::Threefry, DType::U64, &[ones, ones], Some(of_ones));
        let (counter, key) = (pair(0x243f_6a88, 0x85a3_08d3), pair(0x1319_8a2e, 0x0370_7344));
        let digits = pair(0xc492_3a9c, 0x483d_f7a0);
        check(Op::Threefry, DType::U64, &[counter, key], Some(digits));
        check(Op::Threefry, DType::U32, &[1, 2], None);
    }

    #[test]
    fn max_and_min_propagate_nan() {
        let nan = Constant::float(DType::F32, f64::NAN);
        let number = Constant::one(DType::F32);
        for op in [Op::Max, Op::Min] {
            for src in [[nan, number], [number, nan]] {
                let value = evaluate(op, DType::F32, &src).and_then(Constant::to_float);
                assert!(value.is_some_and(f64::is_nan), "{op}");
            }
            let signalling = Constant::from_bits(DType::F32, 0x7f8a_d973);
            assert_eq!(evaluate(op, DType::F32, &[number, signalling]), Some(signalling), "{op}");
        }
    }

    #[test]
    fn casts_outside_the_range_are_undefined() {
        let cast_of = |value: f64, dtype| {
            let value = Constant::float(DType::F64, value);
            evaluate(Op::Cast, dtype, &[value]).map(|value| value.to_int().expect("an integer"))
        };
        assert_eq!(cast_of(-0.9, DType::U8), Some(0));
        assert_eq!(cast_of(255.9, DType::U8), Some(255));
        assert_eq!(cast_of(256.0, DType::U8), None);
        assert_eq!(cast_of(f64::NAN, DType::I64), None);
        assert_eq!(cast_of(f64::NAN, DType::Bool), Some(1));
    }

    #[test]
    fn half_floats_round_once() {
        // 1 + 2^-11 is a tie in f16; the small third term makes it round up.
        let value = Constant::float(DType::F64, 1.0 + 2f64.powi(-11) + 2f64.powi(-40));
        let rounded = evaluate(Op::Cast, DType::F16, &[value]).and_then(Constant::to_float);
        assert_eq!(rounded, Some(1.0 + 2f64.powi(-10)));
    }
}
