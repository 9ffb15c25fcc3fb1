//! Dtype and shape inference, and the checks for ill-formed programs. They follow the descriptions
//! of the ops and share no code with the corpus crate's typing, so that a mistake in either shows.

use gradiff_corpus::{BinaryOp, DType, ReduceOp, Shape, UnaryOp};

/// Maximum number of elements of a value.
const MAX_ELEMENTS: usize = 1 << 24;
/// Maximum number of axes of a value.
const MAX_RANK: usize = 32;

/// The result of a check; the error is a message without the statement's number.
pub(crate) type Check<T> = Result<T, String>;

/// The edges of the promotion lattice: for each dtype, in priority order, the next larger ones.
const LARGER: [(DType, &[DType]); 13] = [
    (DType::Bool, &[DType::I8, DType::U8]),
    (DType::I8, &[DType::I16]),
    (DType::U8, &[DType::I16, DType::U16]),
    (DType::I16, &[DType::I32]),
    (DType::U16, &[DType::I32, DType::U32]),
    (DType::I32, &[DType::I64]),
    (DType::U32, &[DType::I64, DType::U64]),
    (DType::I64, &[DType::F16, DType::BF16]),
    (DType::U64, &[DType::F16, DType::BF16]),
    (DType::F16, &[DType::F32]),
    (DType::BF16, &[DType::F32]),
    (DType::F32, &[DType::F64]),
    (DType::F64, &[]),
];

/// The transitive closure of the lattice: bit `j` of row `i` is set if dtype `i` promotes to `j`.
static PROMOTIONS: [u16; 13] = promotions();

const fn promotions() -> [u16; 13] {
    let mut rows = [0u16; 13];
    // Every edge goes to a dtype further down the table, so one sweep from its end computes the
    // closure.
    let mut from = 13;
    while from > 0 {
        from -= 1;
        rows[from] = 1 << from;
        let (_, larger) = LARGER[from];
        let mut edge = 0;
        while edge < larger.len() {
            rows[from] |= rows[larger[edge] as usize];
            edge += 1;
        }
    }
    rows
}

/// Returns the first dtype, in priority order, to which both dtypes promote.
pub(crate) fn promote(a: DType, b: DType) -> DType {
    let common = PROMOTIONS[a as usize] & PROMOTIONS[b as usize];
    DType::ALL[common.trailing_zeros() as usize]
}

/// Returns the number of elements of a shape.
pub(crate) fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Rejects a shape with more than [`MAX_RANK`] axes or more than [`MAX_ELEMENTS`] elements.
pub(crate) fn limit(shape: Shape) -> Check<Shape> {
    if shape.len() > MAX_RANK {
        return Err(format!("{} axes are more than {MAX_RANK}", shape.len()));
    }
    // Sizes of 0 are left out: the product of the others must not be too large either.
    let mut sizes = shape.iter().filter(|&&size| size != 0);
    match sizes.try_fold(1usize, |product, &size| product.checked_mul(size)) {
        Some(total) if total <= MAX_ELEMENTS => Ok(shape),
        _ => Err(format!("shape {shape:?} has more than {MAX_ELEMENTS} elements")),
    }
}

/// Returns the shape that `a` and `b` broadcast to, aligned at the last axis.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Check<Shape> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], axis: usize| {
        let missing = rank - shape.len();
        if axis < missing { 1 } else { shape[axis - missing] }
    };
    let broadcast_size = |axis| match (size(a, axis), size(b, axis)) {
        (x, y) if x == y => Ok(x),
        (1, y) => Ok(y),
        (x, 1) => Ok(x),
        (x, y) => Err(format!(
            "shapes {a:?} and {b:?} do not broadcast: {x} and {y} are neither equal nor 1"
        )),
    };
    limit((0..rank).map(broadcast_size).collect::<Check<Shape>>()?)
}

/// Checks that `op` takes the dtype.
pub(crate) fn check_unary(op: UnaryOp, dtype: DType) -> Check<()> {
    let takes = match op {
        UnaryOp::Neg => dtype != DType::Bool,
        UnaryOp::Not => !dtype.is_float(),
        UnaryOp::Exp2 | UnaryOp::Log2 | UnaryOp::Sin | UnaryOp::Sqrt | UnaryOp::Recip => {
            dtype.is_float()
        }
    };
    if takes { Ok(()) } else { Err(format!("{} does not take {}", op.name(), dtype.name())) }
}

/// Checks that `op` takes the promoted dtype.
pub(crate) fn check_binary(op: BinaryOp, dtype: DType) -> Check<()> {
    let takes = match op {
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul => dtype != DType::Bool,
        BinaryOp::Div | BinaryOp::Pow => dtype.is_float(),
        BinaryOp::CDiv
        | BinaryOp::CMod
        | BinaryOp::FloorDiv
        | BinaryOp::FloorMod
        | BinaryOp::Shl
        | BinaryOp::Shr => dtype.is_int(),
        BinaryOp::Max | BinaryOp::Min | BinaryOp::CmpLt | BinaryOp::CmpNe | BinaryOp::CmpEq => true,
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => !dtype.is_float(),
        BinaryOp::Threefry => dtype == DType::U64,
    };
    if takes { Ok(()) } else { Err(format!("{} does not take {}", op.name(), dtype.name())) }
}

/// Returns the dtype of the result of a reduction over elements of `dtype`.
pub(crate) fn reduced(op: ReduceOp, dtype: DType) -> DType {
    match (op, dtype) {
        (ReduceOp::Max, _) => dtype,
        (_, DType::Bool | DType::I8 | DType::I16) => DType::I32,
        (_, DType::U8 | DType::U16) => DType::U32,
        _ => dtype,
    }
}

/// Returns the dtype of the accumulator of a sum or product whose result has this dtype.
pub(crate) fn accumulator(dtype: DType) -> DType {
    if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype }
}

/// Checks that a bitcast is possible.
pub(crate) fn check_bitcast(from: DType, to: DType) -> Check<()> {
    let names = (from.name(), to.name());
    if from == DType::Bool || to == DType::Bool {
        return Err(format!("bitcast {} to {}: bool has no bits to reinterpret", names.0, names.1));
    }
    if from.size_bytes() != to.size_bytes() {
        return Err(format!("bitcast {} to {}: the sizes differ", names.0, names.1));
    }
    Ok(())
}

/// Checks that the axes ascend without repeats and are below the rank.
pub(crate) fn check_axes(axes: &[usize], rank: usize) -> Check<()> {
    if !axes.windows(2).all(|pair| pair[0] < pair[1]) {
        return Err(format!("axes {axes:?} are not ascending"));
    }
    match axes.last() {
        Some(&axis) if axis >= rank => Err(no_axis(axis, rank)),
        _ => Ok(()),
    }
}

/// Returns the axis of this number, which counts from the last one, -1, if it is negative.
pub(crate) fn resolve_axis(number: i64, rank: usize) -> Check<usize> {
    let rank = rank as i64;
    match (-rank..rank).contains(&number) {
        true => Ok(number.rem_euclid(rank) as usize),
        false => Err(format!("there is no axis {number}, the rank is {rank}")),
    }
}

/// Returns the axes of these numbers, none of which may appear twice.
pub(crate) fn resolve_axes(numbers: &[i64], rank: usize) -> Check<Vec<usize>> {
    let mut axes: Vec<usize> = Vec::with_capacity(numbers.len());
    for number in numbers {
        let axis = resolve_axis(*number, rank)?;
        if axes.contains(&axis) {
            return Err(format!("axis {axis} appears twice in {numbers:?}"));
        }
        axes.push(axis);
    }
    Ok(axes)
}

pub(crate) fn no_axis(axis: usize, rank: usize) -> String {
    format!("there is no axis {axis}, the rank is {rank}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_table_is_tinygrads() {
        use DType::*;
        for (a, b, expected) in [
            (Bool, Bool, Bool),
            (Bool, U8, U8),
            (I8, U8, I16),
            (I16, U8, I16),
            (I8, U16, I32),
            (I16, U16, I32),
            (I8, U32, I64),
            (I32, U32, I64),
            (I64, U32, I64),
            (U8, U64, U64),
            (I8, U64, F16),
            (I64, U64, F16),
            (U64, F16, F16),
            (I64, BF16, BF16),
            (F16, BF16, F32),
            (BF16, F32, F32),
            (U64, F32, F32),
            (F32, F64, F64),
        ] {
            assert_eq!(promote(a, b), expected, "{a:?} {b:?}");
            assert_eq!(promote(b, a), expected, "{b:?} {a:?}");
        }
    }

    #[test]
    fn promotion_is_a_commutative_upper_bound() {
        for a in DType::ALL {
            for b in DType::ALL {
                let joined = promote(a, b);
                assert_eq!(promote(b, a), joined);
                assert_eq!(promote(a, joined), joined);
            }
        }
        // It is not associative if both f16 and bf16 are upper bounds.
        let left = promote(promote(DType::I64, DType::U64), DType::BF16);
        let right = promote(DType::I64, promote(DType::U64, DType::BF16));
        assert_eq!((left, right), (DType::F32, DType::BF16));
    }

    #[test]
    fn promotion_equals_the_corpus() {
        for a in DType::ALL {
            for b in DType::ALL {
                assert_eq!(promote(a, b), gradiff_corpus::promote(a, b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn shapes_broadcast_from_the_right() {
        assert_eq!(broadcast(&[2, 1, 3], &[4, 1]), Ok(vec![2, 4, 3]));
        assert_eq!(broadcast(&[], &[0, 2]), Ok(vec![0, 2]));
        assert_eq!(broadcast(&[1], &[0]), Ok(vec![0]));
        assert!(broadcast(&[2], &[3]).is_err());
        assert!(broadcast(&[1 << 20, 1], &[1 << 20]).is_err());
        assert!(limit(vec![usize::MAX, usize::MAX, 0]).is_err());
    }
}
