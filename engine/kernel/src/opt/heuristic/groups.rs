//! On a device with groups: tensor cores where they fit; else the threads of a group share a fold
//! that the output alone has too few steps for; else each thread computes a few neighbours, and
//! those that read the same. What is left of the output loops fills the group.

use gradiff_graph::AxisKind;

use super::access::{Access, Accesses, best_lane};
use super::{Chosen, divisor};
use crate::Error;
use crate::opt::{Loop, Loops, Matmul, OptOp};

/// Threads of a group that output loops fill.
const THREADS: i64 = 128;
/// Of a matrix times a vector: threads that share a row, rows of a group, rows of a thread.
const MATVEC: [i64; 3] = [8, 4, 4];
/// Gated output loops up to this size run in one thread, so that gates are known.
const GATED: i64 = 7;
/// Values that a thread computes side by side are not made more from this many on,
const SIDE_BY_SIDE: i64 = 32;
/// and nothing is done side by side that leaves fewer iterations for threads: those of the target's
/// thresholds, or so many times the threads of a group if that is less.
const LEFT_FOR_EACH: i64 = 4;
/// Steps that a thread does in a row, times the values side by side.
const IN_A_ROW: i64 = 128;
/// Short folds run in a row, of longer ones so many steps.
const STEPS: i64 = 4;

/// The opts of a device with groups.
pub(super) fn on_groups(chosen: &mut Chosen<'_>) -> Result<(), Error> {
    if on_tensor_cores(chosen)? || matvec(chosen)? {
        return Ok(());
    }
    let threads = divided(chosen)?;
    if threads == 1 {
        let side_by_side = gated(chosen)? * lanes(chosen)?;
        let side_by_side = reused(chosen, side_by_side)?;
        in_a_row(chosen, side_by_side)?;
    }
    locals(chosen, threads)
}

fn is_output(one: &&Loop) -> bool {
    one.axis.kind == AxisKind::Loop && one.is_output && !one.is_reduced
}

fn is_folded(one: &&Loop) -> bool {
    one.axis.kind == AxisKind::Loop && one.is_reduced && !one.is_output
}

/// The steps of all output loops that threads can share.
fn left(loops: &Loops) -> i64 {
    loops.list.iter().filter(is_output).map(|one| one.size).fold(1, i64::saturating_mul)
}

/// Whether enough steps are left when a thread does `amount` of them.
fn leaves_enough(chosen: &Chosen<'_>, amount: i64) -> bool {
    let threads = chosen.setting.target.groups.map_or(i64::MAX, |groups| groups.threads);
    let least = chosen.setting.target.thresholds.group_iterations_left;
    least.min(threads.saturating_mul(LEFT_FOR_EACH)) <= left(&chosen.loops) / amount
}

/// A matrix, neighbours along the fold, times a vector, the same for all rows: threads read a row
/// together, and each uses what it has of the vector for several rows.
fn matvec(chosen: &mut Chosen<'_>) -> Result<bool, Error> {
    let [threads, rows, own] = MATVEC;
    let access = Accesses::of(&chosen.root)?;
    let list = &chosen.loops.list;
    let outputs: Vec<&Loop> = list.iter().filter(is_output).collect();
    let folds: Vec<&Loop> = list.iter().filter(is_folded).collect();
    let loads: Vec<&Access> = access.list.iter().filter(|one| !one.is_store).collect();
    let ([fold], [x, y]) = (folds.as_slice(), loads.as_slice()) else { return Ok(false) };
    let is_vector = |load: &Access| outputs.iter().all(|one| load.step(&one.range) == Some(0));
    let matrix = match (is_vector(x), is_vector(y)) {
        (true, false) => y,
        (false, true) => x,
        _ => return Ok(false),
    };
    let row = outputs.iter().find(|one| {
        matrix.step(&one.range).is_none_or(|step| step != 0) && one.size % (rows * own) == 0
    });
    let Some(row) = row.filter(|_| matrix.step(&fold.range) == Some(1)) else { return Ok(false) };
    let (fold, row) = (fold.axis.number, row.axis.number);
    if !chosen.add(OptOp::Group, fold, threads)? {
        return Ok(false);
    }
    chosen.add(OptOp::Local, row, rows)?;
    chosen.add(OptOp::Upcast, row, own)?;
    Ok(true)
}

/// Divides the longest fold among threads where the output has few steps; how many threads.
fn divided(chosen: &mut Chosen<'_>) -> Result<i64, Error> {
    let longest = chosen.loops.list.iter().filter(is_folded).max_by_key(|one| one.size);
    let most = chosen.setting.target.thresholds.group_reduce_elements;
    match longest.map(|one| (one.axis.number, one.size)) {
        Some((number, size)) if 16 <= size && left(&chosen.loops) <= most => {
            let amounts = [256, 64, 32, 16];
            Ok(chosen.add_largest(OptOp::GroupTop, number, &amounts)?.unwrap_or(1))
        }
        _ => Ok(1),
    }
}

/// Runs short loops that gates depend on in one thread, where that leaves enough of them; how many
/// values that makes.
fn gated(chosen: &mut Chosen<'_>) -> Result<i64, Error> {
    let access = Accesses::of(&chosen.root)?;
    let is_gated = |one: &&Loop| access.list.iter().any(|access| access.is_gated(&one.range));
    let is_short = |one: &&Loop| 1 < one.size && one.size <= GATED;
    let list = chosen.loops.list.iter().filter(is_output).filter(is_short).filter(is_gated);
    let short: Vec<(i64, i64)> = list.map(|one| (one.axis.number, one.size)).collect();
    let mut made = 1;
    for (number, size) in short.into_iter().rev() {
        let is_worth = made * size <= GATED * GATED && leaves_enough(chosen, size);
        if is_worth && chosen.add(OptOp::Upcast, number, 0)? {
            made *= size;
        }
    }
    Ok(made)
}

/// Neighbours in memory as a vector; how many.
fn lanes(chosen: &mut Chosen<'_>) -> Result<i64, Error> {
    let access = Accesses::of(&chosen.root)?;
    let vectors = chosen.setting.target.vectors;
    let quad = vectors.lanes.min(i64::from(vectors.bytes) / access.widest_bytes);
    let Some(lane) = best_lane(chosen, &access).map(|lane| &chosen.loops.list[lane]) else {
        return Ok(1);
    };
    let (number, amount) = (lane.axis.number, divisor(lane.size, quad));
    match amount.filter(|_| lane.is_output) {
        Some(amount) if chosen.add(OptOp::Upcast, number, amount)? => Ok(amount),
        _ => Ok(1),
    }
}

/// Steps of loops along which something is read again and again, side by side: most of it is read
/// once then. How many values a thread computes in the end.
fn reused(chosen: &mut Chosen<'_>, mut side_by_side: i64) -> Result<i64, Error> {
    while side_by_side < SIDE_BY_SIDE {
        let access = Accesses::of(&chosen.root)?;
        let list = &chosen.loops.list;
        let upcast: Vec<&Loop> =
            list.iter().filter(|one| one.axis.kind == AxisKind::Upcast).collect();
        let is_new = |load: &&Access| upcast.iter().all(|one| load.step(&one.range) != Some(0));
        let again = |one: &Loop| {
            let loads = access.list.iter().filter(|load| !load.is_store);
            let same = loads.filter(|load| load.step(&one.range) == Some(0));
            let same: Vec<&Access> = same.collect();
            same.iter().copied().any(|load| is_new(&load)).then_some(same.len())
        };
        let outputs = list.iter().filter(is_output);
        let choices = outputs.filter_map(|one| {
            let amount = [4, 3].into_iter().find(|amount| one.size % amount == 0)?;
            leaves_enough(chosen, amount).then_some((again(one)?, one.axis.number, amount))
        });
        // What fewest loads do without, so that the others are read for more; then the outermost.
        let Some((_, number, amount)) = choices.min() else { break };
        if !chosen.add(OptOp::Upcast, number, amount)? {
            break;
        }
        side_by_side *= amount;
    }
    Ok(side_by_side)
}

/// Steps of the innermost fold in a row: all of a short one, else a few.
fn in_a_row(chosen: &mut Chosen<'_>, side_by_side: i64) -> Result<(), Error> {
    let Some(fold) = chosen.loops.list.iter().rfind(is_folded) else { return Ok(()) };
    let (number, size) = (fold.axis.number, fold.size);
    if side_by_side.saturating_mul(size) <= IN_A_ROW && chosen.add(OptOp::Unroll, number, 0)? {
        return Ok(());
    }
    chosen.add(OptOp::Unroll, number, STEPS)?;
    Ok(())
}

/// The group: neighbours in memory first, then loops along which threads read the same.
fn locals(chosen: &mut Chosen<'_>, mut threads: i64) -> Result<(), Error> {
    let access = Accesses::of(&chosen.root)?;
    let reads_again = |one: &Loop| {
        access.list.iter().any(|load| !load.is_store && load.step(&one.range) == Some(0))
    };
    let mut order: Vec<(bool, i64)> = chosen
        .loops
        .list
        .iter()
        .filter(is_output)
        .map(|one| (reads_again(one), one.axis.number))
        .collect();
    let Some(innermost) = order.iter().map(|one| one.1).max() else { return Ok(()) };
    order.sort_unstable_by_key(|(again, number)| (*number == innermost, *again, *number));
    for (_, number) in order.into_iter().rev().take(3) {
        let amounts: Vec<i64> =
            [32, 16, 8, 4, 3, 2].into_iter().filter(|amount| threads * amount <= THREADS).collect();
        threads *= chosen.add_largest(OptOp::Local, number, &amounts)?.unwrap_or(1);
    }
    Ok(())
}

/// The largest product of matrices by tensor cores, if there is one: tiles side by side, so that
/// fragments are used again, and a few warps in a group.
fn on_tensor_cores(chosen: &mut Chosen<'_>) -> Result<bool, Error> {
    let Loops { list, matmuls, .. } = &chosen.loops;
    let mut largest: Vec<[i64; 3]> = matmuls.iter().map(Matmul::numbers).collect();
    largest.sort_by_key(|numbers| {
        let size = |one: &&Loop| numbers.contains(&one.axis.number);
        let steps = list.iter().filter(size).map(|one| one.size);
        std::cmp::Reverse(steps.fold(1, i64::saturating_mul))
    });
    largest.dedup();
    for [row, column, step] in largest {
        let Some(place) = chosen.place(step) else { continue };
        let choices = chosen.loops.choices(place, chosen.setting);
        let is_it = |numbers: &[i64; 3]| *numbers == [row, column, step];
        for amount in choices.iter().enumerate().filter(|(_, own)| is_it(own)).map(|(at, _)| at) {
            if chosen.add(OptOp::Tc, step, amount as i64)? {
                for number in [column, row] {
                    chosen.add_largest(OptOp::Upcast, number, &[4, 2])?;
                }
                chosen.add_largest(OptOp::Local, row, &[4, 2])?;
                return Ok(true);
            }
        }
    }
    Ok(false)
}
