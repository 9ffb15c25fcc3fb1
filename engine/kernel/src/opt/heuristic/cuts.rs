//! Cuts of loops where gates change, so that the loads between have none and may be of vectors.

use gradiff_graph::{AxisKind, Op, UOp};
use rustc_hash::FxHashSet;

use super::access::{Access, Accesses, best_lane_loop};
use super::optimizer::Optimizer;
use crate::Error;
use crate::opt::tuning::{CUT_PART_MIN, CUTS_MAX};
use crate::opt::{Loop, OptOp};

/// Cuts the loop along which stores are contiguous, or two elements apart and interleaved, if gates
/// depend on it and no other loop is better for lanes.
pub(super) fn cut_at_gates(optimizer: &mut Optimizer<'_>) -> Result<(), Error> {
    let accesses = Accesses::of(&optimizer.root)?;
    let best = best_lane_loop(optimizer, &accesses).map(|index| &optimizer.loops.list[index]);
    let is_gated = |info: &Loop| accesses.list.iter().any(|access| access.is_gated(&info.range));
    let may_interleave = optimizer.setting.target.vectors.may_interleave();
    let is_vector = |access: &Access, info: &Loop| {
        let mut between = optimizer.loops.list.iter().filter(|_| may_interleave);
        access.stride(&info.range) == Some(1)
            || between.any(|between| access.is_interleaved(&info.range, between))
    };
    let is_contiguous =
        |info: &Loop| accesses.list.iter().any(|access| access.is_store && is_vector(access, info));
    let is_cut = |info: &&Loop| {
        info.axis.kind == AxisKind::Loop
            && info.is_output
            && !info.is_reduced
            && is_contiguous(info)
            && is_gated(info)
            && best.is_none_or(|best| best.range == info.range)
    };
    let cut = optimizer.loops.list.iter().filter(is_cut).max_by_key(|info| info.size);
    let Some(info) = cut.cloned() else { return Ok(()) };
    let points = points(&optimizer.root, &info);
    let ends = points.iter().copied().chain([info.size]);
    let starts = [0].into_iter().chain(points.iter().copied());
    let parts = starts.zip(ends).map(|(start, end)| end - start);
    if CUTS_MAX < points.len() || parts.max().is_none_or(|part| part < CUT_PART_MIN) {
        return Ok(());
    }
    for point in points.into_iter().rev() {
        optimizer.add(OptOp::Cut, info.axis.number, point)?;
    }
    Ok(())
}

/// Returns the iterations of a loop, but the first, from which on a comparison in a gate is known,
/// or no longer known, in ascending order.
fn points(root: &UOp, info: &Loop) -> Vec<i64> {
    let varying = gradiff_rewrite::varying(root, &info.range);
    let nodes = root.toposort();
    let gates =
        nodes.iter().filter(|node| node.op() == Op::Index).flat_map(|node| &node.src()[2..]);
    let parts: FxHashSet<UOp> = gates.flat_map(UOp::toposort).collect();
    let is_compared = |part: &&UOp| part.op() == Op::CmpLt && varying.contains(*part);
    let mut points: Vec<i64> = Vec::new();
    for part in parts.iter().filter(is_compared) {
        let known = |iteration: i64| {
            let at = UOp::int(info.range.dtype(), iteration);
            gradiff_rewrite::bounds(&gradiff_rewrite::substitute(part, &info.range, &at))
        };
        let last = info.size - 1;
        // The sides of a comparison are linear: it holds, is unknown, and does not hold, or in the
        // opposite order.
        points.push(first_where(last, |iteration| known(iteration) != known(0)));
        points.push(first_where(last, |iteration| known(iteration) == known(last)));
    }
    points.retain(|point| (1..info.size).contains(point));
    points.sort_unstable();
    points.dedup();
    points
}

/// Returns the first number up to `last` for which a condition holds that holds for all numbers
/// after it; `last + 1` if it holds for none.
fn first_where(last: i64, holds: impl Fn(i64) -> bool) -> i64 {
    let (mut low, mut high) = (0, last + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}
