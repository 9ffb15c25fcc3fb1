//! Makes the accumulators of reductions explicit.
//!
//! A reduction becomes `assign(accumulator, next)`, whose value is that after the last iteration.
//! The accumulator is a `DefineAcc` of the identity and the reduced ranges, of which each reduction
//! has its own; `next`, which alone reads it, is its value after an iteration.

use gradiff_graph::{Arg, Constant, DType, Op, Sources, UOp};

use crate::Error;
use crate::error::malformed;
use crate::nodes::map_nodes;

/// Makes the accumulators of these reductions explicit.
///
/// # Errors
/// If a reduction has no op, or is not of the dtype of its value.
pub(crate) fn explicit(root: &UOp, is_chosen: impl Fn(&UOp) -> bool) -> Result<UOp, Error> {
    let order = root.toposort();
    let is_reduction = |node: &UOp| node.op() == Op::Reduce && is_chosen(node);
    if !order.iter().any(is_reduction) {
        return Ok(root.clone());
    }
    let mut count = order.iter().filter(|node| node.op() == Op::DefineAcc).count() as i64;
    map_nodes(&order, |_, node| {
        if !is_reduction(&node) {
            return Ok(node);
        }
        let (Arg::Reduce(op, _), value) = (node.arg(), node.src()[0].clone()) else {
            return Err(malformed("a reduction without an op"));
        };
        if value.dtype() != node.dtype() {
            return Err(malformed(format!("a reduction of {} to {}", value.dtype(), node.dtype())));
        }
        let start = UOp::constant(identity(*op, node.dtype())?);
        // A range of a single iteration may have become a constant.
        let ranges = node.src()[1..].iter().filter(|range| range.op() == Op::Range).cloned();
        let src: Sources = std::iter::once(start.clone()).chain(ranges).collect();
        if src.len() == 1 {
            return Ok(UOp::binary(*op, start, value));
        }
        let accumulator = UOp::new(Op::DefineAcc, node.dtype(), src, Arg::Int(count));
        count += 1;
        // For a maximum the NaN test of the first source is then off the critical path, which goes
        // from iteration to iteration through the accumulator.
        let before = accumulator.clone();
        let next = match op {
            Op::Max => UOp::binary(*op, value, before),
            _ => UOp::binary(*op, before, value),
        };
        Ok(UOp::new(Op::Assign, node.dtype(), [accumulator, next], Arg::None))
    })
}

/// Returns the identity of a reduction by `op`.
///
/// # Errors
/// If there is no reduction by it.
pub(crate) fn identity(op: Op, dtype: DType) -> Result<Constant, Error> {
    op.identity(dtype).ok_or_else(|| malformed(format!("a reduction by {op}")))
}
