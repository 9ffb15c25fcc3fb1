//! Replacement of ranges and of other nodes in a kernel.

use gradiff_graph::{Arg, AxisKind, Op, Sources, UOp};

use super::loop_info::Loop;
use crate::Error;
use crate::nodes::{map_nodes, range, reduce_arg};

/// The replacement of a range, or of another node.
pub(super) struct Replacement {
    /// The old range or node.
    pub(super) range: UOp,
    /// The new value.
    pub(super) value: UOp,
    /// The ranges that take the place of the old range in a reduction over it.
    pub(super) reduced: Vec<UOp>,
    /// The range of the accumulators, if a reduction gets more than one. They are reduced in the
    /// end.
    pub(super) accumulators: Option<UOp>,
}

impl Replacement {
    /// Replaces the range of a loop by another range.
    pub(super) fn range(info: &Loop, new: UOp) -> Replacement {
        let (range, value) = (info.range.clone(), new.clone());
        Replacement { range, value, reduced: vec![new], accumulators: None }
    }

    /// Replaces a node over which no reduction runs by a value.
    pub(super) fn value(node: &UOp, value: UOp) -> Replacement {
        Replacement { range: node.clone(), value, reduced: Vec::new(), accumulators: None }
    }

    /// Replaces the range of a loop by one of another kind.
    pub(super) fn of_kind(info: &Loop, kind: AxisKind) -> Replacement {
        Replacement::range(info, range(info.size, info.range.dtype(), kind, info.axis.number))
    }
}

/// Splits the range of a loop into an outer and an inner one: the range is `outer*size + inner`,
/// where `size` is the trip count of the inner one. `new`, of trip count `amount`, becomes the
/// outer range if `is_outer`, else the inner one.
pub(super) fn split(info: &Loop, new: &UOp, amount: i64, is_outer: bool) -> Replacement {
    let dtype = info.range.dtype();
    let rest = info.size / amount;
    if rest == 1 {
        return Replacement::range(info, new.clone());
    }
    let old = range(rest, dtype, info.axis.kind, info.axis.number);
    let (outer, inner, count) = if is_outer { (new, &old, rest) } else { (&old, new, amount) };
    let scaled = UOp::binary(Op::Mul, outer.clone(), UOp::int(dtype, count));
    let value = UOp::binary(Op::Add, scaled, inner.clone());
    Replacement {
        range: info.range.clone(),
        value,
        reduced: vec![old.clone(), new.clone()],
        accumulators: None,
    }
}

/// Applies replacements to a kernel. The unrolled ranges of a reduction become its innermost ones.
pub(super) fn replace(root: &UOp, replacements: &[Replacement]) -> Result<UOp, Error> {
    let find = |node: &UOp| replacements.iter().find(|replacement| replacement.range == *node);
    let order = root.toposort();
    map_nodes(&order, |old, node| {
        if let Some(found) = find(old) {
            return Ok(found.value.clone());
        }
        let Arg::Reduce(op, _) = old.arg() else { return Ok(node) };
        if old.op() != Op::Reduce {
            return Ok(node);
        }
        let mut accumulators: Vec<UOp> = Vec::new();
        let mut ranges: Vec<UOp> = Vec::new();
        for (old, new) in old.src()[1..].iter().zip(&node.src()[1..]) {
            match find(old) {
                Some(found) => {
                    ranges.extend(found.reduced.iter().cloned());
                    accumulators.extend(found.accumulators.clone());
                }
                None => ranges.push(new.clone()),
            }
        }
        ranges.sort_by_key(
            |range| matches!(range.arg(), Arg::Axis(axis) if axis.kind == AxisKind::Unroll),
        );
        let reduce = |value: UOp, ranges: Vec<UOp>| match ranges.is_empty() {
            true => value,
            false => {
                let dtype = value.dtype();
                let src: Sources = std::iter::once(value).chain(ranges).collect();
                UOp::new(Op::Reduce, dtype, src, reduce_arg(*op))
            }
        };
        Ok(reduce(reduce(node.src()[0].clone(), ranges), accumulators))
    })
}
