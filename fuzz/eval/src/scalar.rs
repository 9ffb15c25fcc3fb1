//! The scalar meaning of every elementwise op and reduction.
//!
//! Written from the meanings of the op table and from nothing else: from the engine it takes the
//! names of ops and types, and `Constant` as bits with a type. The evaluators judge what the engine
//! computes with (`gradiff_graph::evaluate`, the identities of its reductions, the ranges of its
//! types). All floats are computed in f64 and rounded once, by integer arithmetic.

use gradiff_graph::{Constant, DType, Op};

/// The layout of a float: significant bits, smallest and largest exponent of normal numbers.
struct Format {
    precision: i32,
    exponent_min: i32,
    exponent_max: i32,
}

fn format(dtype: DType) -> Option<Format> {
    let (precision, exponent_max) = match dtype {
        DType::F16 => (11, 15),
        DType::BF16 => (8, 127),
        DType::F32 => (24, 127),
        DType::F64 => (53, 1023),
        _ => return None,
    };
    Some(Format { precision, exponent_min: 1 - exponent_max, exponent_max })
}

/// Bits of an integer type, 1 for bool, and whether it is signed.
fn integer(dtype: DType) -> Option<(u32, bool)> {
    Some(match dtype {
        DType::Bool => (1, false),
        DType::I8 => (8, true),
        DType::U8 => (8, false),
        DType::I16 => (16, true),
        DType::U16 => (16, false),
        DType::I32 => (32, true),
        DType::U32 => (32, false),
        DType::I64 => (64, true),
        DType::U64 => (64, false),
        _ => return None,
    })
}

/// Bits of an integer type, 1 for bool: shift amounts are smaller.
pub fn bits(dtype: DType) -> u32 {
    integer(dtype).map_or(0, |(bits, _)| bits)
}

/// Smallest and largest value of an integer type or bool.
pub fn range(dtype: DType) -> Option<(i128, i128)> {
    let (bits, is_signed) = integer(dtype)?;
    let count = 1i128 << bits;
    Some(if is_signed { (-count / 2, count / 2 - 1) } else { (0, count - 1) })
}

/// The value of an integer or bool.
pub fn to_int(x: Constant) -> Option<i128> {
    let (low, high) = range(x.dtype())?;
    let value = i128::from(x.bits());
    Some(if value > high { value - (high - low + 1) } else { value })
}

/// The integer of this type with the same low bits; for bool, true if it is not 0.
pub fn int(dtype: DType, value: i128) -> Option<Constant> {
    let (bits, _) = integer(dtype)?;
    let truncated =
        if bits == 1 { u64::from(value != 0) } else { value as u64 & (u64::MAX >> (64 - bits)) };
    Some(Constant::from_bits(dtype, truncated))
}

fn bool_of(value: bool) -> Option<Constant> {
    Some(Constant::from_bits(DType::Bool, value.into()))
}

/// Returns whether this is the bool `true`.
pub fn is_true(x: Constant) -> bool {
    x.dtype() == DType::Bool && x.bits() == 1
}

/// The value of a float, exactly.
pub fn to_float(x: Constant) -> Option<f64> {
    let Format { precision, exponent_min, exponent_max } = format(x.dtype())?;
    let (mut fraction, field_bits) = (x.bits(), exponent_max.ilog2() + 2);
    let digits = precision as u32 - 1;
    let sign = if fraction >> (digits + field_bits) == 1 { -1.0 } else { 1.0 };
    let field = (fraction >> digits) as i32 & ((1 << field_bits) - 1);
    fraction &= (1 << digits) - 1;
    if field > exponent_max - exponent_min + 1 {
        return Some(if fraction == 0 { sign * f64::INFINITY } else { f64::NAN });
    }
    let hidden = u64::from(field > 0) << digits;
    let exponent = field.max(1) - 1 + exponent_min - precision + 1;
    // Two factors, each a normal number of f64.
    let power = |exponent: i32| f64::from_bits(((exponent + 1023) as u64) << 52);
    let (half, rest) = (exponent / 2, exponent - exponent / 2);
    Some(sign * (fraction | hidden) as f64 * power(half) * power(rest))
}

/// The float of this type nearest to `±magnitude * 2^exponent`; of two equally near, the even one.
fn nearest(dtype: DType, is_negative: bool, magnitude: u128, exponent: i32) -> Option<Constant> {
    let Format { precision, exponent_min, exponent_max } = format(dtype)?;
    let infinity = ((exponent_max - exponent_min + 2) as u64) << (precision - 1);
    let top = 127 - magnitude.leading_zeros() as i32 + exponent;
    let unit = if magnitude == 0 { exponent_min } else { top.max(exponent_min) } - precision + 1;
    let shift = unit - exponent;
    let units = if magnitude == 0 {
        0
    } else if shift <= 0 {
        magnitude << -shift
    } else if shift > 127 {
        0
    } else {
        let (whole, rest, half) = (magnitude >> shift, magnitude % (1 << shift), 1 << (shift - 1));
        whole + u128::from(rest > half || rest == half && whole % 2 == 1)
    };
    // A value that rounds up to the next power of two carries into the exponent, as it should.
    let field = ((unit - exponent_min + precision - 1) as u64) << (precision - 1);
    let bits = if top > exponent_max { infinity } else { (field + units as u64).min(infinity) };
    let sign = u64::from(is_negative) << (precision as u32 + exponent_max.ilog2() + 1);
    Some(Constant::from_bits(dtype, sign | bits))
}

/// The float of this type nearest to `value`.
pub fn float(dtype: DType, value: f64) -> Option<Constant> {
    let Format { precision, exponent_min, exponent_max } = format(dtype)?;
    if value.is_nan() {
        let infinity = ((exponent_max - exponent_min + 2) as u64) << (precision - 1);
        return Some(Constant::from_bits(dtype, infinity | 1 << (precision - 2)));
    }
    let bits = value.to_bits();
    let (field, fraction) = ((bits >> 52 & 0x7ff) as i32, u128::from(bits & ((1 << 52) - 1)));
    let hidden = u128::from(field > 0) << 52;
    // Infinity is treated as a number that is too large.
    nearest(dtype, value.is_sign_negative(), fraction | hidden, field.max(1) - 1075)
}

/// The value of this type nearest to an integer; an integer type wraps it.
pub fn number(dtype: DType, value: i128) -> Option<Constant> {
    int(dtype, value).or_else(|| nearest(dtype, value < 0, value.unsigned_abs(), 0))
}

/// The zero of a type; `false` for bool.
pub fn zero(dtype: DType) -> Constant {
    Constant::from_bits(dtype, 0)
}

/// The initial value of a reduction by `op`: combined with any `x`, it gives `x`. `None` for other
/// ops.
pub fn identity(op: Op, dtype: DType) -> Option<Constant> {
    match (op, range(dtype)) {
        (Op::Add, _) => Some(zero(dtype)),
        (Op::Mul, Some(_)) => int(dtype, 1),
        (Op::Mul, None) => float(dtype, 1.0),
        (Op::Max, Some((low, _))) => int(dtype, low),
        (Op::Max, None) => float(dtype, f64::NEG_INFINITY),
        (Op::Min, Some((_, high))) => int(dtype, high),
        (Op::Min, None) => float(dtype, f64::INFINITY),
        _ => None,
    }
}

/// The next value of a reduction by `op` whose value so far is `reduced`. Of equal maxima the first
/// stays, and the maximum of equal operands is the second.
pub fn reduce(op: Op, reduced: Constant, value: Constant) -> Option<Constant> {
    let operands = if op == Op::Max { [value, reduced] } else { [reduced, value] };
    evaluate(op, value.dtype(), &operands)
}

/// The value of `op` over `src`; `dtype` is the type of the result. `None` if it is undefined, or
/// if the op does not exist for these types.
pub fn evaluate(op: Op, dtype: DType, src: &[Constant]) -> Option<Constant> {
    match (op, src) {
        (Op::Where, [condition, x, y]) => Some(if is_true(*condition) { *x } else { *y }),
        (Op::Cast, [x]) => cast(*x, dtype),
        (Op::Bitcast, [x]) if width(x.dtype())? == width(dtype)? => {
            Some(Constant::from_bits(dtype, x.bits()))
        }
        (Op::Neg, [x]) if format(x.dtype()).is_some() => {
            Some(Constant::from_bits(dtype, x.bits() ^ 1 << (width(dtype)? - 1)))
        }
        (Op::MulAcc, [x, y, z]) => {
            let product = evaluate(Op::Mul, dtype, &[*x, *y])?;
            evaluate(Op::Add, dtype, &[product, *z])
        }
        (_, [x, ..]) if format(x.dtype()).is_some() => floats(op, dtype, src),
        (_, [x, ..]) => integers(op, x.dtype(), src),
        _ => None,
    }
}

/// Does what [`evaluate`] does, over operands of which some may be undefined (`None`): so is the
/// value, unless a `where`, an `and` or an `or` does not depend on them.
pub fn element(op: Op, dtype: DType, src: &[Option<Constant>]) -> Option<Constant> {
    match (op, src) {
        (Op::Where, [condition, x, y]) => {
            if is_true((*condition)?) {
                *x
            } else {
                *y
            }
        }
        (Op::And, _) if src.contains(&bool_of(false)) => bool_of(false),
        (Op::Or, _) if src.contains(&bool_of(true)) => bool_of(true),
        _ => {
            let mut known = [zero(dtype); 3];
            for (known, value) in known.iter_mut().zip(src) {
                *known = (*value)?;
            }
            evaluate(op, dtype, known.get(..src.len())?)
        }
    }
}

/// Size of an element in memory, in bits.
fn width(dtype: DType) -> Option<u32> {
    match (integer(dtype), format(dtype)) {
        (Some((bits, _)), _) => Some(bits.max(8)),
        (_, Some(Format { precision, exponent_max, .. })) => {
            Some(precision as u32 + exponent_max.ilog2() + 2)
        }
        _ => None,
    }
}

fn cast(x: Constant, to: DType) -> Option<Constant> {
    if x.dtype() == to {
        return Some(x);
    }
    match (to_int(x), to_float(x), range(to)) {
        (Some(value), ..) => number(to, value),
        (_, Some(value), None) => float(to, value),
        (_, Some(value), Some(_)) if to == DType::Bool => bool_of(value != 0.0),
        (_, Some(value), Some((low, high))) => {
            // `as` would saturate, but a value that does not fit must be undefined.
            let whole = value.trunc();
            let is_inside = low as f64 <= whole && whole < (high + 1) as f64;
            if is_inside { int(to, whole as i128) } else { None }
        }
        _ => None,
    }
}

fn is_nearest_to_e(dtype: DType, x: f64) -> bool {
    match dtype {
        DType::F32 => x == f64::from(std::f32::consts::E),
        DType::F64 => x == std::f64::consts::E,
        _ => false,
    }
}

fn floats(op: Op, dtype: DType, src: &[Constant]) -> Option<Constant> {
    let values = [0, 1].map(|number| src.get(number).copied().and_then(to_float));
    let number = |value: f64| float(dtype, value);
    match (op, values, src) {
        (Op::Exp2, [Some(x), None], _) => number(x.exp2()),
        (Op::Log2, [Some(x), None], _) => number(x.log2()),
        (Op::Sin, [Some(x), None], _) => number(x.sin()),
        (Op::Sqrt, [Some(x), None], _) => number(x.sqrt()),
        (Op::Recip, [Some(x), None], _) => number(1.0 / x),
        (Op::Add, [Some(x), Some(y)], _) => number(x + y),
        (Op::Sub, [Some(x), Some(y)], _) => number(x - y),
        (Op::Mul, [Some(x), Some(y)], _) => number(x * y),
        (Op::FDiv, [Some(x), Some(y)], _) => number(x / y),
        // The float nearest to e stands for e: powers of it are e^y.
        (Op::Pow, [Some(x), Some(y)], _) if is_nearest_to_e(dtype, x) => number(y.exp()),
        (Op::Pow, [Some(x), Some(y)], _) => number(x.powf(y)),
        // NaN if either is; the second of equal operands, which may be zeros of either sign.
        (Op::Max | Op::Min, [Some(x), Some(y)], [first, second]) => {
            let is_first = if op == Op::Max { x > y } else { x < y };
            Some(if x.is_nan() || is_first { *first } else { *second })
        }
        (Op::CmpLt, [Some(x), Some(y)], _) => bool_of(x < y),
        (Op::CmpNe, [Some(x), Some(y)], _) => bool_of(x != y),
        _ => None,
    }
}

fn integers(op: Op, dtype: DType, src: &[Constant]) -> Option<Constant> {
    let (bits, _) = integer(dtype)?;
    let x = to_int(src[0])?;
    let [_, second] = src else {
        return if op == Op::Neg && dtype != DType::Bool { int(dtype, -x) } else { None };
    };
    let y = to_int(*second)?;
    let is_shift = 0 <= y && y < i128::from(bits);
    // Rust's remainder has the sign of x, as C's; rounded down, it has that of y.
    let rest = || if y == 0 { None } else { Some(x % y) };
    let is_below = |rest: i128| rest != 0 && (rest < 0) != (y < 0);
    let floored = || rest().map(|rest| if is_below(rest) { rest + y } else { rest });
    let value = match op {
        Op::Add => x + y,
        Op::Sub => x - y,
        // The product of two 64-bit values: only the low bits count.
        Op::Mul => x.wrapping_mul(y),
        Op::CDiv => (x - rest()?) / y,
        Op::CMod => rest()?,
        Op::FloorDiv => (x - floored()?) / y,
        Op::FloorMod => floored()?,
        Op::Max => x.max(y),
        Op::Min => x.min(y),
        Op::CmpLt => return bool_of(x < y),
        Op::CmpNe => return bool_of(x != y),
        Op::And => x & y,
        Op::Or => x | y,
        Op::Xor => x ^ y,
        Op::Shl if is_shift => x << y,
        Op::Shr if is_shift => x >> y,
        Op::Threefry if dtype == DType::U64 => threefry(src[0].bits(), second.bits()).into(),
        _ => return None,
    };
    int(dtype, value)
}

/// Threefry-2x32 with 20 rounds, as Salmon, Moraes, Dror and Shaw define it: word 0 is the low
/// half.
fn threefry(counter: u64, key: u64) -> u64 {
    let words = |value: u64| [value as u32, (value >> 32) as u32];
    let ([k0, k1], mut x) = (words(key), words(counter));
    let schedule = [k0, k1, 0x1bd1_1bda ^ k0 ^ k1];
    let rotations = [13, 15, 26, 6, 17, 29, 16, 24];
    for round in 0..=20usize {
        if round % 4 == 0 {
            let group = round / 4;
            x[0] = x[0].wrapping_add(schedule[group % 3]);
            x[1] = x[1].wrapping_add(schedule[(group + 1) % 3]).wrapping_add(group as u32);
        }
        if round < 20 {
            x[0] = x[0].wrapping_add(x[1]);
            x[1] = x[1].rotate_left(rotations[round % 8]) ^ x[0];
        }
    }
    u64::from(x[1]) << 32 | u64::from(x[0])
}

#[cfg(test)]
mod tests {
    use gradiff_corpus as corpus;
    use gradiff_graph as graph;

    use super::*;

    /// All values of 8-bit types and bool; edge values of wider types, and floats of all kinds.
    fn values(dtype: DType) -> Vec<Constant> {
        let bits = width(dtype).expect("a type of data");
        let top = 1u64 << (bits - 1);
        let patterns: Vec<u64> = match (dtype, format(dtype)) {
            (DType::Bool, _) => vec![0, 1],
            (_, None) if bits == 8 => (0..256).collect(),
            (_, None) => {
                let near = |value: u64| [value.wrapping_sub(1), value, value.wrapping_add(1)];
                let edges = [0, 2, 7, 31, 63, 1 << 24, 1 << 53, top / 3, top, u64::MAX - 1];
                edges.into_iter().flat_map(near).collect()
            }
            (_, Some(Format { precision, exponent_min, exponent_max })) => {
                let digits = precision as u32 - 1;
                let bits_of_one = ((-exponent_min + 1) as u64) << digits;
                let infinity = ((exponent_max - exponent_min + 2) as u64) << digits;
                let unsigned = [
                    0,
                    1,
                    2,
                    3,
                    (1 << digits) - 1,
                    1 << digits,
                    (1 << digits) + 1,
                    bits_of_one - 1,
                    bits_of_one,
                    bits_of_one + 1,
                    bits_of_one + (1 << (digits - 1)),
                    bits_of_one + (1 << digits),
                    bits_of_one + (7 << digits) - 1,
                    bits_of_one + (8 << digits) + 5,
                    infinity - 1,
                    infinity,
                    infinity | 1 << (digits - 1),
                    infinity | 1 << (digits - 1) | 5,
                ];
                unsigned.into_iter().flat_map(|bits| [bits, bits | top]).collect()
            }
        };
        let mask = u64::MAX >> (64 - bits);
        patterns.into_iter().map(|bits| Constant::from_bits(dtype, bits & mask)).collect()
    }

    fn is_nan(x: Constant) -> bool {
        to_float(x).is_some_and(f64::is_nan)
    }

    #[test]
    fn identities_change_nothing() {
        for dtype in DType::ALL {
            for op in [Op::Add, Op::Mul, Op::Max, Op::Min] {
                let identity = identity(op, dtype).expect("a reduction has an identity");
                assert_eq!(identity.dtype(), dtype);
                for x in values(dtype) {
                    let y = evaluate(op, dtype, &[identity, x]).expect("it is defined");
                    // 0 + -0 is 0: the sign of a sum that is zero is free.
                    let is_zero = |x: Constant| op == Op::Add && to_float(x) == Some(0.0);
                    let is_same = y == x || is_nan(x) && is_nan(y) || is_zero(x) && is_zero(y);
                    assert!(is_same, "{op} {identity:?} {x:?} gives {y:?}");
                }
            }
            assert_eq!(super::identity(Op::Sub, dtype), None);
        }
    }

    #[test]
    fn floats_are_read_and_rounded_as_the_text_form_does() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let of_text = corpus::DType::from_name(dtype.name()).expect("the same names");
            let mut seen: Vec<f64> = values(dtype).into_iter().filter_map(to_float).collect();
            let middles: Vec<f64> = seen
                .iter()
                .flat_map(|x| [x * (1.0 + f64::EPSILON), x * 1.000_244_140_625])
                .collect();
            seen.extend(middles.iter().flat_map(|x| [*x, x.next_up(), x * 0.75, x * 0.3]));
            for value in seen {
                let literal = corpus::Literal::Float(value);
                let expected = corpus::literal_bits(of_text, &literal).expect("any float");
                let found = float(dtype, value).expect("a float");
                assert_eq!(found.bits(), expected, "{dtype} {value:e}");
            }
            for x in values(dtype).into_iter().filter(|x| !is_nan(*x)) {
                let value = to_float(x).expect("a float");
                assert_eq!(float(dtype, value), Some(x), "{x:?}");
            }
        }
        assert_eq!(to_float(Constant::from_bits(DType::F16, 1)), Some(2f64.powi(-24)));
        assert_eq!(to_float(Constant::from_bits(DType::F64, 3)), Some(3.0 * 5e-324));
        assert_eq!(
            to_float(Constant::from_bits(DType::BF16, 0xff7f)),
            Some(-3.3895313892515355e38)
        );
    }

    /// The engine's meaning and this one, written independently, are the same: by bits, except for
    /// functions, which may differ in their last digits.
    #[test]
    fn engine_and_evaluators_mean_the_same() {
        for dtype in DType::ALL {
            let samples = values(dtype);
            // Casts follow; a choice computes nothing.
            let rows = graph::op::OPS.iter().filter(|row| row.op.is_elementwise());
            for row in rows.filter(|row| !matches!(row.op, Op::Cast | Op::Bitcast | Op::Where)) {
                let (op, (_, arity)) = (row.op, row.arity);
                let mut has_meaning = !row.operands.contains(dtype);
                let to = if op.is_comparison() { DType::Bool } else { dtype };
                // The product of 16-bit floats may be rounded before it is added, or not.
                if op == Op::MulAcc && matches!(dtype, DType::F16 | DType::BF16) {
                    continue;
                }
                let is_function = matches!(op, Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow);
                let seconds = if arity == 1 { &samples[..1] } else { &samples[..] };
                for (x, y) in samples.iter().flat_map(|x| seconds.iter().map(move |y| (*x, *y))) {
                    let src = &[x, y, x][..arity];
                    let (ours, theirs) = (evaluate(op, to, src), graph::evaluate(op, to, src));
                    let is_same = match (ours, theirs) {
                        (Some(ours), Some(theirs)) if is_function => is_near(ours, theirs),
                        (Some(ours), Some(theirs)) => {
                            ours == theirs || is_nan(ours) && is_nan(theirs)
                        }
                        (ours, theirs) => ours == theirs,
                    };
                    assert!(is_same, "{op} {src:?}: {ours:?}, the engine {theirs:?}");
                    has_meaning |= theirs.is_some();
                }
                assert!(has_meaning, "{op} of {dtype} has no meaning");
            }
            for to in DType::ALL {
                for (op, x) in [Op::Cast, Op::Bitcast]
                    .iter()
                    .flat_map(|op| samples.iter().map(move |x| (*op, *x)))
                {
                    let (ours, theirs) = (evaluate(op, to, &[x]), graph::evaluate(op, to, &[x]));
                    let is_nan = |y: Option<Constant>| y.is_some_and(is_nan);
                    let is_same = ours == theirs || is_nan(ours) && is_nan(theirs);
                    assert!(is_same, "{op} {x:?} to {to}: {ours:?}, the engine {theirs:?}");
                }
            }
        }
    }

    fn is_near(x: Constant, y: Constant) -> bool {
        let (x, y) = (to_float(x).expect("a float"), to_float(y).expect("a float"));
        x == y
            || x.is_nan() && y.is_nan()
            || (x - y).abs() <= 0.01 * x.abs().max(f64::from(f32::MIN_POSITIVE))
    }

    #[test]
    fn power_of_the_float_nearest_to_e_is_that_of_e() {
        for (dtype, e) in
            [(DType::F32, std::f32::consts::E.into()), (DType::F64, std::f64::consts::E)]
        {
            let power = |x: f64| {
                let src = [Constant::float(dtype, x), Constant::float(dtype, -14.0)];
                evaluate(Op::Pow, dtype, &src).and_then(to_float).expect("a power")
            };
            let rounded = Constant::float(dtype, (-14.0f64).exp());
            assert_eq!(Some(power(e)), to_float(rounded), "{dtype}");
            assert!(power(e + 1e-6) > power(e + 2e-6), "{dtype}: e alone is e");
        }
    }

    #[test]
    fn threefry_gives_the_answers_of_its_authors() {
        let known = [
            ([0, 0], [0, 0], [0x6b20_0159, 0x99ba_4efe]),
            ([u32::MAX; 2], [u32::MAX; 2], [0x1cb9_96fc, 0xbb00_2be7]),
            ([0x243f_6a88, 0x85a3_08d3], [0x1319_8a2e, 0x0370_7344], [0xc492_3a9c, 0x483d_f7a0]),
        ];
        let word = |[low, high]: [u32; 2]| u64::from(high) << 32 | u64::from(low);
        for (counter, key, expected) in known {
            assert_eq!(threefry(word(counter), word(key)), word(expected));
        }
    }

    #[test]
    fn operands_that_do_not_matter_may_be_undefined() {
        let [truth, falsehood] = [true, false].map(bool_of);
        let bools = |op, src: &[Option<Constant>]| element(op, DType::Bool, src);
        assert_eq!(bools(Op::Or, &[None, truth]), truth);
        assert_eq!(bools(Op::Or, &[None, falsehood]), None);
        assert_eq!(bools(Op::And, &[falsehood, None]), falsehood);
        assert_eq!(bools(Op::And, &[truth, None]), None);
        let x = int(DType::I8, 7);
        assert_eq!(element(Op::Where, DType::I8, &[falsehood, None, x]), x);
        assert_eq!(element(Op::Where, DType::I8, &[truth, None, x]), None);
        assert_eq!(element(Op::Where, DType::I8, &[None, x, x]), None);
        assert_eq!(element(Op::Add, DType::I8, &[None, x]), None);
    }

    #[test]
    fn undefined_is_undefined() {
        let i8s = |x: i128, y: i128| [x, y].map(|value| int(DType::I8, value).expect("an integer"));
        for op in [Op::CDiv, Op::CMod, Op::FloorDiv, Op::FloorMod] {
            assert_eq!(evaluate(op, DType::I8, &i8s(5, 0)), None);
        }
        for amount in [-1, 8] {
            assert_eq!(evaluate(Op::Shl, DType::I8, &i8s(1, amount)), None);
            assert_eq!(evaluate(Op::Shr, DType::I8, &i8s(1, amount)), None);
        }
        let cast_to =
            |to, value| evaluate(Op::Cast, to, &[float(DType::F64, value)?]).and_then(to_int);
        assert_eq!(cast_to(DType::U8, 255.9), Some(255));
        assert_eq!(cast_to(DType::U8, -0.9), Some(0));
        assert_eq!(cast_to(DType::I8, -128.9), Some(-128));
        for (to, value) in [
            (DType::U8, 256.0),
            (DType::U8, -1.0),
            (DType::I8, -129.0),
            (DType::I64, 9.3e18),
            (DType::U64, 1.9e19),
            (DType::I32, f64::NAN),
            (DType::I32, f64::INFINITY),
        ] {
            assert_eq!(cast_to(to, value), None, "{to} {value}");
        }
    }
}
