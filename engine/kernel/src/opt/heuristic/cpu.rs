//! On a CPU with vectors: lanes along the loop in which most accesses go to neighbours; then as
//! many vectors side by side as registers hold, so that what is loaded once is used often and folds
//! do not wait for each other.

use gradiff_graph::AxisKind;

use super::access::{Access, Accesses, best_lane, worth};
use super::{Chosen, Setting, divisor};
use crate::Error;
use crate::opt::legal::UPCAST_MOST;
use crate::opt::{Loop, Loops, OptOp};

/// Vectors side by side in a fold that loads nothing twice.
const SIDE_BY_SIDE: [i64; 4] = [4, 5, 3, 2];
/// Most rows of a tile: those of a large matrix often share a set of the first cache, which has as
/// many ways or more.
const ROWS_MOST: i64 = 8;
/// The same where the lanes of a row are not stored as vectors.
const ROWS_APART: i64 = 4;
/// Most steps of a reduced loop that are written out because they decide gates.
const WINDOW_MOST: i64 = 4;

pub(super) fn on_cpu(chosen: &mut Chosen<'_>) -> Result<(), Error> {
    let steps: i64 = chosen.loops.list.iter().map(|one| one.size).fold(1, i64::saturating_mul);
    vectors(chosen)?;
    let target = chosen.setting.target;
    if target.thresholds.thread_iterations <= steps && 1 < target.threads {
        threads(chosen)?;
    }
    Ok(())
}

/// Divides an output loop among threads, the outermost one that has enough steps.
fn threads(chosen: &mut Chosen<'_>) -> Result<(), Error> {
    let threads = chosen.setting.target.threads;
    let is_plain = |one: &&Loop| one.axis.kind == AxisKind::Loop && one.is_output;
    let plain: Vec<i64> =
        chosen.loops.list.iter().filter(is_plain).map(|one| one.axis.number).collect();
    // As many as there are, or so many more that none of them waits long for the others.
    let amounts: Vec<i64> =
        std::iter::once(threads).chain((4 * threads..=8 * threads).rev()).collect();
    for number in plain {
        if chosen.add_largest(OptOp::Thread, number, &amounts)?.is_some() {
            break;
        }
    }
    Ok(())
}

/// Lanes, and vectors side by side; in loops that stand by themselves each has its own.
fn vectors(chosen: &mut Chosen<'_>) -> Result<(), Error> {
    let access = Accesses::of(&chosen.root)?;
    let lanes = i64::from(chosen.setting.target.vectors.bytes) / access.widest_bytes;
    let Some(lane) = best_lane(chosen, &access) else { return Ok(()) };
    let along = chosen.loops.list[lane].clone();
    let Some(amount) = divisor(along.size, lanes.min(64)) else { return Ok(()) };
    let is_apart = |one: &&Loop| one.is_apart(&along);
    let (apart, around): (Vec<&Loop>, Vec<&Loop>) = chosen.loops.list.iter().partition(is_apart);
    let has_fold = around.iter().any(|one| one.is_reduced);
    let apart: Vec<Loop> = apart.into_iter().cloned().collect();
    // What is no vector is so much more text for the compiler.
    let are_vectors = !access.has_halves || 0 < chosen.setting.target.vectors.half_lanes;
    let is_tiled = has_fold && are_vectors && !along.is_reduced;
    let reused = reused(&chosen.loops, &access, lane).filter(|_| is_tiled).cloned();
    let side = match &reused {
        Some(reused) => tile(chosen, &access, reused, &along, amount)?,
        None => 1,
    };
    let number = along.axis.number;
    chosen.add(OptOp::Upcast, number, amount)?;
    let mut taken = vec![along.clone()];
    for one in apart {
        let is_apart = taken.iter().all(|taken| one.is_apart(taken));
        if is_apart && worth(chosen, &access, &one, one.is_reduced).is_some() {
            chosen.add(OptOp::Upcast, one.axis.number, amount)?;
            if one.is_reduced {
                chosen.add_largest(OptOp::Upcast, one.axis.number, &SIDE_BY_SIDE)?;
            }
            taken.push(one);
        }
    }
    if along.is_reduced {
        chosen.add_largest(OptOp::Upcast, number, &SIDE_BY_SIDE)?;
        return Ok(());
    }
    match reused {
        Some(reused) => {
            chosen.add(OptOp::Upcast, number, side)?;
            without_gates(chosen, &access)?;
            // What the lanes read stays in the cache while the reused loop goes round.
            chosen.innermost(reused.axis.number)
        }
        None => {
            if is_tiled {
                chosen.add_largest(OptOp::Upcast, number, &SIDE_BY_SIDE)?;
            }
            Ok(())
        }
    }
}

/// The rows of a tile of vectors in registers: steps of the reused loop, of which each loads one
/// value for as many vectors as lie side by side along the lanes' loop; those are loaded once for
/// all rows. Gives how many will lie side by side.
fn tile(
    chosen: &mut Chosen<'_>,
    access: &Accesses,
    reused: &Loop,
    along: &Loop,
    lanes: i64,
) -> Result<i64, Error> {
    let Setting { target, .. } = chosen.setting;
    let registers = target.vectors.registers;
    let sides: &[i64] = if registers < 32 { &[2] } else { &[4, 3, 2] };
    let side = sides.iter().find(|side| along.size / lanes % **side == 0).copied().unwrap_or(1);
    // One more register for the value.
    let most = ((registers - side - 1) / side).min(UPCAST_MOST / (lanes * side)).min(ROWS_MOST);
    // Lanes that are stored one by one are most of the text.
    let is_single = |one: &Access| one.is_store && one.step(&along.range) != Some(1);
    let most = if access.list.iter().any(is_single) { most.min(ROWS_APART) } else { most };
    // Threads take another loop: of one with steps that are done twice they cannot.
    let mut others =
        chosen.loops.list.iter().filter(|one| one.is_output && one.range != reused.range);
    let steps = |one: &Loop| one.size / if one.range == along.range { lanes * side } else { 1 };
    let is_shared = |one: &Loop| 1 < steps(one) && steps(one) % target.threads == 0;
    let is_free = target.threads == 1 || others.any(is_shared);
    // Multiply-adds and loads, of steps that are done twice as well; those of vectors, a line of
    // the cache each, cost most.
    let uops = |rows: &i64| (reused.size + rows - 1) / rows * (rows * side + rows + 2 * side);
    let mut amounts: Vec<i64> = (2..=most).rev().collect();
    amounts.sort_by_key(uops);
    for rows in amounts {
        let is_whole = reused.size % rows == 0;
        let is_overlapped =
            !is_whole && is_free && chosen.add(OptOp::Overlap, reused.axis.number, rows)?;
        let is_taken =
            (is_whole || is_overlapped) && chosen.add(OptOp::Upcast, reused.axis.number, rows)?;
        if is_taken || is_overlapped {
            break;
        }
    }
    Ok(side)
}

/// Writes out short reduced loops that decide gates: most of them are open in every step then, and
/// neighbours of a tile load the same.
fn without_gates(chosen: &mut Chosen<'_>, access: &Accesses) -> Result<(), Error> {
    let is_gated = |one: &Loop| access.list.iter().any(|access| access.is_gated(&one.range));
    let is_short = |one: &&Loop| one.is_reduced && one.size <= WINDOW_MOST && is_gated(one);
    let last = chosen.loops.list.iter().filter(is_short).max_by_key(|one| one.axis.number);
    if let Some(number) = last.map(|one| one.axis.number) {
        chosen.add(OptOp::Unroll, number, 0)?;
    }
    Ok(())
}

/// An output loop along which vectors are not loaded again, while something else is.
fn reused<'a>(loops: &'a Loops, access: &Accesses, lane: usize) -> Option<&'a Loop> {
    let lane = &loops.list[lane].range;
    let loads = || access.list.iter().filter(|one| !one.is_store);
    let is_reused = |one: &&Loop| {
        let is_right = one.axis.kind == AxisKind::Loop && one.is_output && !one.is_reduced;
        let stays = |load: &Access| load.step(lane) == Some(1) && load.step(&one.range) == Some(0);
        is_right && one.range != *lane && loads().any(stays)
    };
    loops.list.iter().filter(is_reused).max_by_key(|one| one.size)
}
