//! Applies opts: splits, pads and interchanges ranges.

use gradiff_graph::{Arg, Axis, AxisKind, DType, Op, Sources, UOp};

use super::legal::{Loop, Loops, check, loops};
use super::{Opt, OptOp, Setting, tensor_cores};
use crate::Error;
use crate::accumulators::identity;
use crate::linearize::reduce_arg;
use crate::nodes::map_nodes;

/// Applies an opt; the result is not simplified.
///
/// # Errors
/// [`Error::Illegal`] if [`check`] refuses the opt; those of [`loops`].
pub fn apply(root: &UOp, opt: Opt, setting: Setting<'_>) -> Result<UOp, Error> {
    apply_to(root, &loops(root)?, opt, setting)
}

/// Applies an opt like [`apply`] to a kernel whose loops are known.
pub(super) fn apply_to(
    root: &UOp,
    loops: &Loops,
    opt: Opt,
    setting: Setting<'_>,
) -> Result<UOp, Error> {
    check(loops, opt, setting).map_err(Error::Illegal)?;
    let next_number = loops.next_number();
    let is_plain_output = |info: &&Loop| info.axis.kind == AxisKind::Loop && info.is_output;
    let info = match opt.op {
        OptOp::NoLocals => {
            let outputs = loops.list.iter().filter(is_plain_output);
            let replacements: Vec<Replacement> =
                outputs.map(|info| of_kind(info, AxisKind::Global)).collect();
            return replace(root, &replacements);
        }
        _ => &loops.list[opt.axis],
    };
    let amount = if opt.amount == 0 { info.size } else { opt.amount };
    let new = |kind| range(amount, info.range.dtype(), kind, next_number);
    let replacement = match opt.op {
        OptOp::Upcast if info.is_reduced => {
            let new = new(AxisKind::Upcast);
            let Replacement { mut reduced, value, .. } = split(info, &new, amount, false);
            reduced.retain(|range| *range != new);
            Replacement { range: info.range.clone(), value, reduced, accumulators: Some(new) }
        }
        OptOp::Upcast => split(info, &new(AxisKind::Upcast), amount, false),
        OptOp::Unroll => split(info, &new(AxisKind::Unroll), amount, false),
        OptOp::Thread => split(info, &new(AxisKind::Thread), amount, true),
        OptOp::Local => split(info, &new(AxisKind::Local), amount, false),
        OptOp::Group => split(info, &new(AxisKind::Group), amount, false),
        OptOp::GroupTop => split(info, &new(AxisKind::Group), amount, true),
        OptOp::PadTo => return pad(root, info, amount),
        OptOp::Overlap => shift_inwards(info, amount),
        OptOp::Tc => {
            let chosen = tensor_cores::check(loops, info, opt.amount, setting);
            return tensor_cores::apply(root, chosen.map_err(Error::Illegal)?, next_number);
        }
        OptOp::Swap | OptOp::NoLocals => {
            let swapped = &loops.list[opt.amount as usize];
            let with = |info: &Loop, number| {
                let new = range(info.size, info.range.dtype(), info.axis.kind, number);
                Replacement::range(info, new)
            };
            let [first, second] = [info.axis.number, swapped.axis.number];
            return replace(root, &[with(info, second), with(swapped, first)]);
        }
    };
    replace(root, &[replacement])
}

/// Replaces the range of a loop by one of another kind.
pub(super) fn of_kind(info: &Loop, kind: AxisKind) -> Replacement {
    Replacement::range(info, range(info.size, info.range.dtype(), kind, info.axis.number))
}

/// Makes a range with this trip count, kind and number.
pub(crate) fn range(size: i64, dtype: DType, kind: AxisKind, number: i64) -> UOp {
    UOp::new(Op::Range, dtype, [UOp::int(dtype, size)], Arg::Axis(Axis { kind, number }))
}

/// The replacement of a range, or of another node.
pub(super) struct Replacement {
    /// The old range or node.
    range: UOp,
    /// The new value.
    value: UOp,
    /// The ranges that take the place of the old range in a reduction over it.
    reduced: Vec<UOp>,
    /// The range of the accumulators, if a reduction gets more than one. They are reduced in the
    /// end.
    accumulators: Option<UOp>,
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
}

/// Splits the range of a loop into an outer and an inner one: the range is `outer*size + inner`,
/// where `size` is the trip count of the inner one. `new`, of trip count `amount`, becomes the
/// outer range if `is_outer`, else the inner one.
fn split(info: &Loop, new: &UOp, amount: i64, is_outer: bool) -> Replacement {
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

/// Rounds a trip count up to a multiple of `amount`; `i64::MAX` if that overflows.
pub(super) fn padded_size(size: i64, amount: i64) -> i64 {
    size.checked_add(amount - 1).map_or(i64::MAX, |sum| sum / amount * amount)
}

/// Rounds the trip count up to a multiple of `amount` and shifts the last block inwards, so that
/// this block consists of the last `amount` iterations of the loop.
fn shift_inwards(info: &Loop, amount: i64) -> Replacement {
    let dtype = info.range.dtype();
    let size = padded_size(info.size, amount);
    let rounded = range(size, dtype, info.axis.kind, info.axis.number);
    let number = |number: i64| UOp::int(dtype, number);
    let block = UOp::binary(Op::FloorDiv, rounded.clone(), number(amount));
    let start = UOp::binary(Op::Mul, block, number(amount));
    let start = UOp::binary(Op::Min, start, number(info.size - amount));
    let within = UOp::binary(Op::FloorMod, rounded.clone(), number(amount));
    let value = UOp::binary(Op::Add, start, within);
    Replacement { range: info.range.clone(), value, reduced: vec![rounded], accumulators: None }
}

/// Pads the trip count to a multiple of `amount`. In the added iterations loads and stores are
/// gated off, and reductions get their identity.
fn pad(root: &UOp, info: &Loop, amount: i64) -> Result<UOp, Error> {
    let dtype = info.range.dtype();
    let padded = range(padded_size(info.size, amount), dtype, info.axis.kind, info.axis.number);
    let is_real = UOp::binary(Op::CmpLt, padded.clone(), UOp::int(dtype, info.size));
    let root = replace(root, &[Replacement::range(info, padded.clone())])?;
    let order = root.toposort();
    let varying = gradiff_rewrite::varying(&root, &padded);
    map_nodes(&order, |old, node| match (old.op(), old.arg()) {
        (Op::Index, _) if varying.contains(old) => {
            let gate = match node.src().get(2) {
                Some(gate) => UOp::binary(Op::And, is_real.clone(), gate.clone()),
                None => is_real.clone(),
            };
            let src = [node.src()[0].clone(), node.src()[1].clone(), gate];
            Ok(node.with_src(src))
        }
        (Op::Reduce, Arg::Reduce(op, _)) if old.src()[1..].contains(&padded) => {
            let identity = identity(*op, node.dtype())?;
            let mut src: Sources = node.src().iter().cloned().collect();
            src[0] = UOp::select(is_real.clone(), src[0].clone(), UOp::constant(identity));
            Ok(node.with_src(src))
        }
        _ => Ok(node),
    })
}
