//! Pass `legalize`: only ops and types of arithmetic that the target has.
//!
//! Arithmetic of f16 and bf16 goes through f32 and is rounded back after each op: f32 has more
//! than twice the bits of either and two more, so that `+ - * /` and sqrt are rounded once in
//! effect. Loads, stores, casts, bitcasts and `where` of these types stay as they are.

use gradiff_graph::fault::{Fault, is_active};
use gradiff_graph::{Arg, Constant, DType, Op, Sources, UOp};

use crate::Error;
use crate::Target;
use crate::pass::Context;
use crate::shape::map_nodes;

/// The pass. See the head of this file.
pub(crate) fn legalize(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let target = &ctx.target;
    map_nodes(&root.toposort(), |_, node| Ok(through_f32(target, decompose(target, node))))
}

/// Ops that the target lacks, in terms of those that every target has.
fn decompose(target: &Target, node: UOp) -> UOp {
    match (node.op(), node.src()) {
        (Op::MulAcc, [x, y, z]) if !target.mulacc => {
            let product = through_f32(target, UOp::binary(Op::Mul, x.clone(), y.clone()));
            UOp::binary(Op::Add, product, z.clone())
        }
        (Op::Mul, [x, y]) if target.shifts && node.dtype().is_int() => {
            let power = y.as_int().filter(|factor| 1 < *factor && factor & (factor - 1) == 0);
            let shift = power.map(|factor| UOp::int(node.dtype(), factor.ilog2().into()));
            shift.map_or(node.clone(), |shift| UOp::binary(Op::Shl, x.clone(), shift))
        }
        (Op::Recip, [x]) if !target.recip => {
            let one = UOp::constant(Constant::one(x.dtype()));
            UOp::binary(Op::FDiv, one, x.clone())
        }
        // A row of `late` does this; here for what it leaves when its fuel runs out.
        (Op::Threefry, _) => gradiff_rewrite::decompose_threefry(&node),
        _ => node,
    }
}

/// The node, computed in f32 if it computes in a 16-bit float that the target only stores. A
/// fold keeps its accumulator in f32 and rounds once, at the end.
fn through_f32(target: &Target, node: UOp) -> UOp {
    let is_lacking = |dtype: DType| match dtype {
        DType::F16 => !target.native_f16,
        DType::BF16 => !target.native_bf16,
        _ => false,
    };
    let computes = match node.op() {
        Op::Cast | Op::Bitcast | Op::Where => false,
        Op::Reduce => true,
        op => op.is_elementwise(),
    };
    if !computes || !node.src().iter().any(|source| is_lacking(source.dtype())) {
        return node;
    }
    let sources: Sources = node
        .src()
        .iter()
        .map(|source| if is_lacking(source.dtype()) { widened(source) } else { source.clone() })
        .collect();
    let dtype = node.dtype();
    if !is_lacking(dtype) {
        return node.with_src(sources);
    }
    rounded(dtype, UOp::new(node.op(), DType::F32, sources, node.arg().clone()))
}

/// A 16-bit float as f32; exact.
fn widened(value: &UOp) -> UOp {
    match value.as_const().and_then(Constant::to_float) {
        Some(number) => UOp::constant(Constant::float(DType::F32, number)),
        None => UOp::unary(Op::Cast, DType::F32, value.clone()),
    }
}

/// An f32 as a 16-bit float, to nearest even.
fn rounded(dtype: DType, value: UOp) -> UOp {
    // fault: legalize-bf16-truncates
    if dtype == DType::BF16 && is_active(Fault::LegalizeBf16Truncates) {
        return truncated(value);
    }
    UOp::new(Op::Cast, dtype, [value], Arg::None)
}

/// The upper half of an f32.
fn truncated(value: UOp) -> UOp {
    let bits = UOp::unary(Op::Bitcast, DType::U32, value);
    let upper = UOp::binary(Op::Shr, bits, UOp::int(DType::U32, 16));
    UOp::unary(Op::Bitcast, DType::BF16, UOp::unary(Op::Cast, DType::U16, upper))
}
