//! Opts applied: ranges split, padded and exchanged.

use gradiff_graph::{Arg, Axis, AxisKind, DType, Op, Sources, UOp};

use super::legal::{Loop, Loops, check, loops};
use super::{Opt, OptOp, Setting, tensor_cores};
use crate::Error;
use crate::linearize::{folding, identity};
use crate::shape::map_nodes;

/// The kernel with the opt applied; not simplified.
///
/// # Errors
/// What [`check`] says, as [`Error::Illegal`]; those of [`loops`].
pub fn apply(root: &UOp, opt: Opt, setting: Setting<'_>) -> Result<UOp, Error> {
    apply_to(root, &loops(root)?, opt, setting)
}

/// Does what [`apply`] does, for who knows the kernel's loops.
pub(super) fn apply_to(
    root: &UOp,
    loops: &Loops,
    opt: Opt,
    setting: Setting<'_>,
) -> Result<UOp, Error> {
    check(loops, opt, setting).map_err(Error::Illegal)?;
    let fresh = loops.fresh();
    let is_plain = |one: &&Loop| one.axis.kind == AxisKind::Loop && one.is_output;
    let one = match opt.op {
        OptOp::NoLocals => {
            let plain = loops.list.iter().filter(is_plain);
            return replace(
                root,
                &plain.map(|one| of_kind(one, AxisKind::Global)).collect::<Vec<_>>(),
            );
        }
        _ => &loops.list[opt.axis],
    };
    let amount = if opt.amount == 0 { one.size } else { opt.amount };
    let new = |kind| range(amount, one.range.dtype(), kind, fresh);
    let by = match opt.op {
        OptOp::Upcast if one.is_reduced => {
            let new = new(AxisKind::Upcast);
            let Replaced { mut folded, value, .. } = split(one, &new, amount, false);
            folded.retain(|range| *range != new);
            Replaced { range: one.range.clone(), value, folded, beside: Some(new) }
        }
        OptOp::Upcast => split(one, &new(AxisKind::Upcast), amount, false),
        OptOp::Unroll => split(one, &new(AxisKind::Unroll), amount, false),
        OptOp::Thread => split(one, &new(AxisKind::Thread), amount, true),
        OptOp::Local => split(one, &new(AxisKind::Local), amount, false),
        OptOp::Group => split(one, &new(AxisKind::Group), amount, false),
        OptOp::GroupTop => split(one, &new(AxisKind::Group), amount, true),
        OptOp::PadTo => return pad(root, one, amount),
        OptOp::Overlap => overlap(one, amount),
        OptOp::Tc => {
            let chosen = tensor_cores::check(loops, one, opt.amount, setting);
            return tensor_cores::apply(root, chosen.map_err(Error::Illegal)?, fresh);
        }
        OptOp::Swap | OptOp::NoLocals => {
            let other = &loops.list[opt.amount as usize];
            let with = |one: &Loop, number| {
                Replaced::by(one, range(one.size, one.range.dtype(), one.axis.kind, number))
            };
            return replace(root, &[with(one, other.axis.number), with(other, one.axis.number)]);
        }
    };
    replace(root, &[by])
}

/// The loop as one of another kind.
pub(super) fn of_kind(one: &Loop, kind: AxisKind) -> Replaced {
    Replaced::by(one, range(one.size, one.range.dtype(), kind, one.axis.number))
}

pub(crate) fn range(size: i64, dtype: DType, kind: AxisKind, number: i64) -> UOp {
    UOp::new(Op::Range, dtype, [UOp::int(dtype, size)], Arg::Axis(Axis { kind, number }))
}

/// What stands for a range, or for another node.
pub(super) struct Replaced {
    range: UOp,
    /// In its place.
    value: UOp,
    /// The ranges that folds over it run over.
    folded: Vec<UOp>,
    /// The range along which there are as many folds, which are folded in the end.
    beside: Option<UOp>,
}

impl Replaced {
    /// Another range for that of a loop.
    pub(super) fn by(one: &Loop, other: UOp) -> Replaced {
        let (range, value) = (one.range.clone(), other.clone());
        Replaced { range, value, folded: vec![other], beside: None }
    }

    /// A value for a node that no fold runs over.
    pub(super) fn value(node: &UOp, value: UOp) -> Replaced {
        Replaced { range: node.clone(), value, folded: Vec::new(), beside: None }
    }
}

/// `r` as two ranges: `outer*amount + inner` with `new` as the inner one, or as the outer one.
fn split(one: &Loop, new: &UOp, amount: i64, is_outer: bool) -> Replaced {
    let dtype = one.range.dtype();
    let rest = one.size / amount;
    if rest == 1 {
        return Replaced::by(one, new.clone());
    }
    let old = range(rest, dtype, one.axis.kind, one.axis.number);
    let (outer, inner, count) = if is_outer { (new, &old, rest) } else { (&old, new, amount) };
    let scaled = UOp::binary(Op::Mul, outer.clone(), UOp::int(dtype, count));
    let value = UOp::binary(Op::Add, scaled, inner.clone());
    Replaced {
        range: one.range.clone(),
        value,
        folded: vec![old.clone(), new.clone()],
        beside: None,
    }
}

/// Puts values in the place of ranges; unrolled ranges become the innermost ones of a fold.
pub(super) fn replace(root: &UOp, by: &[Replaced]) -> Result<UOp, Error> {
    let order = root.toposort();
    map_nodes(&order, |old, node| {
        if let Some(found) = by.iter().find(|one| one.range == *old) {
            return Ok(found.value.clone());
        }
        let Arg::Reduce(op, _) = old.arg() else { return Ok(node) };
        if old.op() != Op::Reduce {
            return Ok(node);
        }
        let mut beside: Vec<UOp> = Vec::new();
        let mut ranges: Vec<UOp> = Vec::new();
        for (old, new) in old.src()[1..].iter().zip(&node.src()[1..]) {
            match by.iter().find(|one| one.range == *old) {
                Some(found) => {
                    ranges.extend(found.folded.iter().cloned());
                    beside.extend(found.beside.clone());
                }
                None => ranges.push(new.clone()),
            }
        }
        ranges.sort_by_key(
            |range| matches!(range.arg(), Arg::Axis(axis) if axis.kind == AxisKind::Unroll),
        );
        let fold = |value: UOp, ranges: Vec<UOp>| match ranges.is_empty() {
            true => value,
            false => {
                let dtype = value.dtype();
                let src: Sources = std::iter::once(value).chain(ranges).collect();
                UOp::new(Op::Reduce, dtype, src, folding(*op))
            }
        };
        Ok(fold(fold(node.src()[0].clone(), ranges), beside))
    })
}

/// The least multiple of `amount` that is not below the size; the largest number if there is none.
pub(super) fn padded_size(size: i64, amount: i64) -> i64 {
    size.checked_add(amount - 1).map_or(i64::MAX, |most| most / amount * amount)
}

/// The range with more steps, which are at the last `amount` steps of the loop in the end.
fn overlap(one: &Loop, amount: i64) -> Replaced {
    let dtype = one.range.dtype();
    let size = padded_size(one.size, amount);
    let longer = range(size, dtype, one.axis.kind, one.axis.number);
    let number = |number: i64| UOp::int(dtype, number);
    let block = UOp::binary(Op::FloorDiv, longer.clone(), number(amount));
    let start = UOp::binary(Op::Mul, block, number(amount));
    let start = UOp::binary(Op::Min, start, number(one.size - amount));
    let step = UOp::binary(Op::FloorMod, longer.clone(), number(amount));
    let value = UOp::binary(Op::Add, start, step);
    Replaced { range: one.range.clone(), value, folded: vec![longer], beside: None }
}

/// The range with more steps: what they load is behind a gate, what they store as well, and what
/// they add to a fold is the fold's identity.
fn pad(root: &UOp, one: &Loop, amount: i64) -> Result<UOp, Error> {
    let dtype = one.range.dtype();
    let longer = range(padded_size(one.size, amount), dtype, one.axis.kind, one.axis.number);
    let is_real = UOp::binary(Op::CmpLt, longer.clone(), UOp::int(dtype, one.size));
    let root = replace(root, &[Replaced::by(one, longer.clone())])?;
    let order = root.toposort();
    let varying = gradiff_rewrite::varying(&root, &longer);
    map_nodes(&order, |old, node| match (old.op(), old.arg()) {
        (Op::Index, _) if varying.contains(old) => {
            let gate = match node.src().get(2) {
                Some(gate) => UOp::binary(Op::And, is_real.clone(), gate.clone()),
                None => is_real.clone(),
            };
            let src = [node.src()[0].clone(), node.src()[1].clone(), gate];
            Ok(node.with_src(src))
        }
        (Op::Reduce, Arg::Reduce(op, _)) if old.src()[1..].contains(&longer) => {
            let identity = identity(*op, node.dtype())?;
            let mut src: Sources = node.src().iter().cloned().collect();
            src[0] = UOp::select(is_real.clone(), src[0].clone(), UOp::constant(identity));
            Ok(node.with_src(src))
        }
        _ => Ok(node),
    })
}
