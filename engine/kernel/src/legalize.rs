//! Pass `legalize`: expands ops and arithmetic types that the target does not support.
//!
//! Arithmetic of f16 and bf16 is done in f32 and rounded back after each op. Loads, stores, casts,
//! bitcasts and `where` of these types stay as they are.
//!
//! Functions become sums and products if the target does not support them, or does not for vectors
//! and the value may become one, as it varies along an upcast range. e^x, the power of the float
//! nearest to e, is expanded for all targets, so that it is equally accurate on each.
//!
//! A comparison that becomes a number is a choice of 1 or 0 where it may become a vector: vectors
//! of truths are masks, for which there are no casts.

use gradiff_graph::target::Functions;
use gradiff_graph::{Arg, AxisKind, Constant, DType, Op, Target, UOp};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::Error;
use crate::context::Context;
use crate::nodes::map_nodes;
use crate::transcendental;

/// Legalizes all nodes of a kernel.
pub(crate) fn legalize(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let order = root.toposort();
    let masks = masks(&order);
    let upcast = upcast_ranges(&order, &masks, &ctx.target);
    map_nodes(&order, |old, node| {
        let may_be_vector = upcast.get(old).is_some_and(|ranges| *ranges != 0);
        let unsupported = if may_be_vector { ctx.target.vectors.unsupported } else { &[] };
        let casts_mask = may_be_vector && is_number_of_truth(old, &masks);
        let legalizer = Legalizer { target: &ctx.target, unsupported, casts_mask };
        Ok(legalizer.through_f32(legalizer.decompose(node)))
    })
}

/// Returns for each node the upcast ranges that it varies along, as bits; empty if nothing depends
/// on them.
fn upcast_ranges<'a>(
    order: &'a [UOp],
    masks: &FxHashSet<&UOp>,
    target: &Target,
) -> FxHashMap<&'a UOp, u64> {
    let mut ranges: FxHashMap<&UOp, u64> = FxHashMap::default();
    let depends = |node: &UOp| {
        let is_function = transcendental::OPS.contains(&node.op());
        is_function && !target.vectors.unsupported.is_empty() || is_number_of_truth(node, masks)
    };
    if !target.vectors.alu || !order.iter().any(depends) {
        return ranges;
    }
    let mut count = 0;
    for node in order {
        let of = |source: &UOp| ranges.get(source).copied().unwrap_or(0);
        let bits = match (node.op(), node.arg()) {
            (Op::Range, Arg::Axis(axis)) if axis.kind == AxisKind::Upcast => {
                count += 1;
                1 << (count - 1).min(63)
            }
            (Op::Reduce, _) => {
                let reduced = node.src()[1..].iter().fold(0, |bits, range| bits | of(range));
                of(&node.src()[0]) & !reduced
            }
            // A value loaded after a barrier varies with its index, not with the stored value.
            (Op::Load, _) => of(&node.src()[0]),
            _ => node.src().iter().fold(0, |bits, source| bits | of(source)),
        };
        if bits != 0 {
            ranges.insert(node, bits);
        }
    }
    ranges
}

/// Returns whether a node is a truth as a number, and its vector would be a mask.
fn is_number_of_truth(node: &UOp, masks: &FxHashSet<&UOp>) -> bool {
    let is_number = !matches!(node.dtype(), DType::Bool | DType::F16 | DType::BF16);
    node.op() == Op::Cast && is_number && masks.contains(&node.src()[0])
}

/// Finds the truths that are computed from comparisons of numbers, and from nothing else.
fn masks(order: &[UOp]) -> FxHashSet<&UOp> {
    let mut masks: FxHashSet<&UOp> = FxHashSet::default();
    for node in order.iter().filter(|node| node.dtype() == DType::Bool) {
        let is_mask = match (node.op(), node.src()) {
            (Op::CmpNe, [x, y]) if y.as_const() == Some(Constant::bool(true)) => masks.contains(x),
            (Op::And | Op::Or, [x, y]) => masks.contains(x) && masks.contains(y),
            (op, [x, _]) => op.is_comparison() && x.dtype() != DType::Bool,
            _ => false,
        };
        if is_mask {
            masks.insert(node);
        }
    }
    masks
}

/// Legalizes one node.
struct Legalizer<'a> {
    target: &'a Target,
    /// Functions that are unsupported here, in addition to those of the target.
    unsupported: Functions,
    /// True if the node is a truth as a number and may be a vector, cast from a mask.
    casts_mask: bool,
}

impl Legalizer<'_> {
    /// Expands an op that the target does not support into ops that every target supports.
    fn decompose(&self, node: UOp) -> UOp {
        let target = self.target;
        match (node.op(), node.src()) {
            (Op::Cast, [truth]) if self.casts_mask => {
                let numbers = [Constant::zero(node.dtype()), Constant::one(node.dtype())];
                let [if_false, if_true] = numbers.map(UOp::constant);
                match (truth.op(), truth.src()) {
                    (Op::CmpNe, [x, y]) if y.as_const() == Some(Constant::bool(true)) => {
                        UOp::select(x.clone(), if_false, if_true)
                    }
                    _ => UOp::select(truth.clone(), if_true, if_false),
                }
            }
            (Op::MulAcc, [x, y, z]) if !target.mulacc => {
                let product = self.through_f32(UOp::binary(Op::Mul, x.clone(), y.clone()));
                UOp::binary(Op::Add, product, z.clone())
            }
            (Op::Mul, [x, y]) if target.shifts && node.dtype().is_int() => {
                let power = y.as_int().filter(|factor| 1 < *factor && factor & (factor - 1) == 0);
                let shift = power.map(|factor| UOp::int(node.dtype(), factor.ilog2().into()));
                shift.map_or(node.clone(), |shift| UOp::binary(Op::Shl, x.clone(), shift))
            }
            (Op::Pow, _) if let Some(value) = transcendental::decompose_exp(&node, target) => value,
            // A rule of `late` does this, too, unless its fuel runs out.
            (Op::Threefry, _) => gradiff_rewrite::decompose_threefry(&node),
            (op, _) if self.is_unsupported(op, node.dtype()) => {
                transcendental::decompose(&node, target).unwrap_or(node)
            }
            _ => node,
        }
    }

    fn is_unsupported(&self, op: Op, dtype: DType) -> bool {
        let contains = |functions: Functions| functions.contains(&(op, dtype));
        contains(self.target.unsupported) || contains(self.unsupported)
    }

    /// Computes a node in f32 if its type is a 16-bit float that the target can only store.
    fn through_f32(&self, node: UOp) -> UOp {
        let is_native = match node.src().first().map(UOp::dtype) {
            Some(DType::F16) => self.target.native_f16,
            Some(DType::BF16) => self.target.native_bf16,
            _ => false,
        };
        let is_supported = is_native && !self.is_unsupported(node.op(), DType::F32);
        let Some(wide) = gradiff_rewrite::in_f32(&node).filter(|_| !is_supported) else {
            return node;
        };
        match wide.src() {
            [value] if wide.op() == Op::Cast => wide.with_src([self.decompose(value.clone())]),
            _ => wide,
        }
    }
}
