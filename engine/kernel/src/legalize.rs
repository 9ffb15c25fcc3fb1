//! Pass `legalize`: only ops and types of arithmetic that the target has.
//!
//! Arithmetic of f16 and bf16 goes through f32 and is rounded back after each op: f32 has more
//! than twice the bits of either and two more, so that `+ - * /` and sqrt are rounded once in
//! effect. Loads, stores, casts, bitcasts and `where` of these types stay as they are.
//!
//! Functions are written as sums and products where the target lacks them, or lacks them for
//! vectors and the value may become one: it varies along an upcast range. e^x, the power of the
//! float that is nearest to e, is written so for all targets, and is as exact on each of them.

use gradiff_graph::{Arg, AxisKind, Constant, DType, Op, Sources, UOp};

use rustc_hash::FxHashMap;

use crate::Error;
use crate::Target;
use crate::pass::Context;
use crate::shape::map_nodes;
use crate::target::Functions;
use crate::transcendental;

/// The pass. See the head of this file.
pub(crate) fn legalize(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let order = root.toposort();
    let wide = along_upcasts(&order, &ctx.target);
    map_nodes(&order, |old, node| {
        let lacks = match wide.get(old) {
            Some(ranges) if *ranges != 0 => ctx.target.vectors.lacks,
            _ => &[],
        };
        let legal = Legal { target: &ctx.target, lacks };
        Ok(legal.through_f32(legal.decompose(node)))
    })
}

/// For each node the upcast ranges that it varies along, as bits; nothing if no function asks.
fn along_upcasts<'a>(order: &'a [UOp], target: &Target) -> FxHashMap<&'a UOp, u64> {
    let mut along: FxHashMap<&UOp, u64> = FxHashMap::default();
    let has_functions = order.iter().any(|node| transcendental::OPS.contains(&node.op()));
    if !target.vectors.alu || target.vectors.lacks.is_empty() || !has_functions {
        return along;
    }
    let mut count = 0;
    for node in order {
        let of = |source: &UOp| along.get(source).copied().unwrap_or(0);
        let bits = match (node.op(), node.arg()) {
            (Op::Range, Arg::Axis(axis)) if axis.kind == AxisKind::Upcast => {
                count += 1;
                1 << (count - 1).min(63)
            }
            (Op::Reduce, _) => {
                let folded = node.src()[1..].iter().fold(0, |bits, range| bits | of(range));
                of(&node.src()[0]) & !folded
            }
            // What was stored before a barrier varies as the place does that it is loaded from.
            (Op::Load, _) => of(&node.src()[0]),
            _ => node.src().iter().fold(0, |bits, source| bits | of(source)),
        };
        if bits != 0 {
            along.insert(node, bits);
        }
    }
    along
}

/// What one node may be.
struct Legal<'a> {
    target: &'a Target,
    /// Functions that are lacking besides those that the target lacks.
    lacks: Functions,
}

impl Legal<'_> {
    /// Ops that the target lacks, in terms of those that every target has.
    fn decompose(&self, node: UOp) -> UOp {
        let target = self.target;
        match (node.op(), node.src()) {
            (Op::MulAcc, [x, y, z]) if !target.mulacc => {
                let product = self.through_f32(UOp::binary(Op::Mul, x.clone(), y.clone()));
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
            (Op::Pow, _) if let Some(value) = transcendental::decompose_exp(&node, target) => value,
            // A row of `late` does this; here for what it leaves when its fuel runs out.
            (Op::Threefry, _) => gradiff_rewrite::decompose_threefry(&node),
            (op, _) if self.lacks(op, node.dtype()) => {
                transcendental::decompose(&node, target).unwrap_or(node)
            }
            _ => node,
        }
    }

    fn lacks(&self, op: Op, dtype: DType) -> bool {
        let is_lacking = |functions: Functions| functions.contains(&(op, dtype));
        is_lacking(self.target.lacks) || is_lacking(self.lacks)
    }

    /// The node, computed in f32 if it computes in a 16-bit float that the target only stores. A
    /// fold keeps its accumulator in f32 and rounds once, at the end.
    fn through_f32(&self, node: UOp) -> UOp {
        let is_function = self.lacks(node.op(), DType::F32);
        let is_lacking = |dtype: DType| match dtype {
            DType::F16 => !self.target.native_f16 || is_function,
            DType::BF16 => !self.target.native_bf16 || is_function,
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
        let wide = UOp::new(node.op(), DType::F32, sources, node.arg().clone());
        UOp::unary(Op::Cast, dtype, self.decompose(wide))
    }
}

/// A 16-bit float as f32; exact.
fn widened(value: &UOp) -> UOp {
    match value.as_const().and_then(Constant::to_float) {
        Some(number) => UOp::constant(Constant::float(DType::F32, number)),
        None => UOp::unary(Op::Cast, DType::F32, value.clone()),
    }
}
