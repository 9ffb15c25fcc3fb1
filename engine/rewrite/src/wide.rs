//! Types of 8 and 16 bits computed in 32 bits.

use gradiff_graph::interval::{self, Interval};
use gradiff_graph::{DType, Op, Sources, UOp, evaluate};

use crate::context::Context;

/// The ops whose results may leave a narrow integer type.
const WRAPPING: [Op; 5] = [Op::Neg, Op::Add, Op::Sub, Op::Mul, Op::Shl];

/// The type of 32 bits in which a narrow one is computed.
fn wide(dtype: DType) -> Option<DType> {
    Some(match dtype {
        DType::I8 | DType::I16 => DType::I32,
        DType::U8 | DType::U16 => DType::U32,
        DType::F16 | DType::BF16 => DType::F32,
        _ => return None,
    })
}

/// Returns whether an op over integers of this type may have a result that leaves it, and the type
/// is narrow.
pub(crate) fn may_wrap(op: Op, dtype: DType) -> bool {
    WRAPPING.contains(&op) && dtype.is_int() && wide(dtype).is_some()
}

/// Returns whether an op over this type is arithmetic of 16-bit floats.
pub(crate) fn is_half_arithmetic(op: Op, dtype: DType) -> bool {
    let is_arithmetic = op.is_elementwise() && !matches!(op, Op::Cast | Op::Bitcast | Op::Where);
    (is_arithmetic || op == Op::Reduce) && dtype.is_half()
}

/// Computes a narrow integer that may wrap in 32 bits.
pub(crate) fn in_32_bits(uop: &UOp, context: &mut dyn Context) -> Option<UOp> {
    let dtype = uop.dtype();
    if !may_wrap(uop.op(), dtype) {
        return None;
    }
    let mut bounds = |number: usize| context.bounds().of(&uop.src()[number]);
    let exact = match uop.op() {
        Op::Neg => interval::unary(Op::Neg, dtype, dtype, bounds(0)),
        op => interval::binary(op, dtype, bounds(0), bounds(1)),
    };
    let fits = |(exact, range): (Interval, Interval)| range.0 <= exact.0 && exact.1 <= range.1;
    let is_exact = exact.zip(dtype.int_range()).is_some_and(fits);
    (!is_exact).then(|| widened(uop))
}

/// Computes arithmetic of 16-bit floats in f32 and rounds it; returns `None` for other nodes. A
/// format of p bits can be computed in one of 2p + 2 bits or more without double rounding, for
/// `+ - * /` and sqrt, and f32 has that many. A reduction accumulates in f32 and rounds once, at
/// the end.
pub fn in_f32(uop: &UOp) -> Option<UOp> {
    is_half_arithmetic(uop.op(), uop.src().first()?.dtype()).then(|| widened(uop))
}

/// Computes a product of 16-bit floats that is cast to f32 in f32, without rounding it to 16 bits
/// first. There is one such product less, so that rewriting ends.
pub(crate) fn product(cast: &UOp) -> Option<UOp> {
    in_f32(&cast.src()[0])?.src().first().cloned()
}

/// The op over its operands in 32 bits, converted back.
fn widened(uop: &UOp) -> UOp {
    let widen = |x: &UOp| {
        let Some(wide) = wide(x.dtype()) else { return x.clone() };
        let constant = x.as_const().and_then(|value| evaluate(Op::Cast, wide, &[value]));
        constant.map_or_else(|| UOp::unary(Op::Cast, wide, x.clone()), UOp::constant)
    };
    let src: Sources = uop.src().iter().map(widen).collect();
    match wide(uop.dtype()) {
        // A comparison.
        None => uop.with_src(src),
        Some(wide) => {
            let value = UOp::new(uop.op(), wide, src, uop.arg().clone());
            UOp::unary(Op::Cast, uop.dtype(), value)
        }
    }
}
