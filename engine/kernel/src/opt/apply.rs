//! Applies opts: splits, pads and interchanges ranges.

use gradiff_graph::{Arg, AxisKind, Op, Sources, UOp};

use super::legal::{check, padded_size};
use super::limits::shared_threads;
use super::loop_info::Loop;
use super::loops::{Loops, loops};
use super::replace::{Replacement, replace, split};
use super::{Opt, OptOp, Setting, stage, tensor_cores};
use crate::Error;
use crate::accumulators::identity;
use crate::nodes::{map_nodes, range};

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
                outputs.map(|info| Replacement::of_kind(info, AxisKind::Global)).collect();
            return replace(root, &replacements);
        }
        _ => &loops.list[opt.axis],
    };
    let amount = if opt.amount == 0 { info.size } else { opt.amount };
    let new = |kind| range(amount, info.range.dtype(), kind, next_number);
    let threads = |kind| match shared_threads(loops, info, amount) {
        Some(shared) => shared.range.clone(),
        None => new(kind),
    };
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
        OptOp::Local => split(info, &threads(AxisKind::Local), amount, false),
        OptOp::Group => split(info, &threads(AxisKind::Group), amount, false),
        OptOp::GroupTop => split(info, &threads(AxisKind::Group), amount, true),
        OptOp::PadTo => return pad(root, info, amount),
        OptOp::Overlap => return shift_inwards(root, info, amount),
        OptOp::Stage => return stage::apply(root, loops, info, amount, setting),
        OptOp::Cut => return cut(root, info, amount, next_number),
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

/// Rounds the trip count up to a multiple of `amount` and shifts the last block inwards, so that
/// this block consists of the last `amount` iterations of the loop. In the iterations that it
/// repeats, reductions get their identity, except for maxima, which a repetition does not change.
fn shift_inwards(root: &UOp, info: &Loop, amount: i64) -> Result<UOp, Error> {
    let dtype = info.range.dtype();
    let size = padded_size(info.size, amount);
    let rounded = range(size, dtype, info.axis.kind, info.axis.number);
    let number = |number: i64| UOp::int(dtype, number);
    let block = UOp::binary(Op::FloorDiv, rounded.clone(), number(amount));
    let start = UOp::binary(Op::Mul, block, number(amount));
    let last = number(info.size - amount);
    let within = UOp::binary(Op::FloorMod, rounded.clone(), number(amount));
    let is_new = UOp::binary(Op::Add, last.clone(), within.clone());
    let is_new = UOp::binary(Op::CmpLt, start.clone(), UOp::binary(Op::Add, is_new, number(1)));
    let value = UOp::binary(Op::Add, UOp::binary(Op::Min, start, last), within);
    let reduced = vec![rounded.clone()];
    let replacement = Replacement { range: info.range.clone(), value, reduced, accumulators: None };
    let root = replace(root, &[replacement])?;
    reduce_where(&root, &rounded, &is_new, |op| op != Op::Max)
}

/// Cuts a loop into the iterations before `at`, and those from it on, whose range gets the next
/// number. Each store in the loop becomes two; each reduction over it reduces the results of two.
fn cut(root: &UOp, info: &Loop, at: i64, next_number: i64) -> Result<UOp, Error> {
    let (dtype, kind) = (info.range.dtype(), info.axis.kind);
    let part = |start: i64, count: i64, number: i64| {
        let range = (count != 1).then(|| range(count, dtype, kind, number));
        let reduced: Vec<UOp> = range.iter().cloned().collect();
        let iteration = range.unwrap_or_else(|| UOp::int(dtype, 0));
        let value = UOp::binary(Op::Add, iteration, UOp::int(dtype, start));
        Replacement { range: info.range.clone(), value, reduced, accumulators: None }
    };
    let parts = [part(0, at, info.axis.number), part(at, info.size - at, next_number)];
    let replaced = |node: &UOp| -> Result<Vec<UOp>, Error> {
        parts.iter().map(|part| replace(node, std::slice::from_ref(part))).collect()
    };
    if info.is_reduced {
        return map_nodes(&root.toposort(), |old, node| match old.arg() {
            Arg::Reduce(op, _) if old.src()[1..].contains(&info.range) => {
                let dtype = node.dtype();
                Ok(UOp::new(*op, dtype, replaced(&node)?, Arg::None))
            }
            _ => Ok(node),
        });
    }
    let varying = gradiff_rewrite::varying(root, &info.range);
    let mut stores: Sources = Sources::new();
    for store in root.src() {
        match varying.contains(store) {
            true => stores.extend(replaced(store)?),
            false => stores.push(store.clone()),
        }
    }
    Ok(root.with_src(stores))
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
    let root = map_nodes(&order, |old, node| {
        if old.op() != Op::Index || !varying.contains(old) {
            return Ok(node);
        }
        let gate = match node.src().get(2) {
            Some(gate) => UOp::binary(Op::And, is_real.clone(), gate.clone()),
            None => is_real.clone(),
        };
        let src = [node.src()[0].clone(), node.src()[1].clone(), gate];
        Ok(node.with_src(src))
    })?;
    reduce_where(&root, &padded, &is_real, |_| true)
}

/// Gives reductions over a range their identity where a condition does not hold, by the ops that
/// `is_changed` chooses.
fn reduce_where(
    root: &UOp,
    range: &UOp,
    condition: &UOp,
    is_changed: impl Fn(Op) -> bool,
) -> Result<UOp, Error> {
    map_nodes(&root.toposort(), |old, node| match (old.op(), old.arg()) {
        (Op::Reduce, Arg::Reduce(op, _)) if is_changed(*op) && old.src()[1..].contains(range) => {
            let identity = identity(*op, node.dtype())?;
            let mut src: Sources = node.src().iter().cloned().collect();
            src[0] = UOp::select(condition.clone(), src[0].clone(), UOp::constant(identity));
            Ok(node.with_src(src))
        }
        _ => Ok(node),
    })
}
