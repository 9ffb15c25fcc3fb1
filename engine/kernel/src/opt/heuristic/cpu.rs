//! On a CPU with vectors: lanes along the loop in which most accesses go to neighbours; then as many
//! vectors side by side as registers hold, so that what is loaded once is used often and folds do
//! not wait for each other.

use gradiff_graph::AxisKind;

use super::access::{Access, Accesses, best_lane, worth};
use super::{Chosen, divisor};
use crate::Error;
use crate::opt::{Loop, Loops, OptOp};

/// Vectors side by side in a fold that loads nothing twice.
const SIDE_BY_SIDE: [i64; 4] = [4, 5, 3, 2];
/// Registers that folds may fill: all but what is loaded needs.
const REGISTERS: i64 = 16;

/// Steps of all loops together from which on several threads are worth their start.
const LARGE: i64 = 1 << 18;

pub(super) fn on_cpu(chosen: &mut Chosen<'_>) -> Result<(), Error> {
    let steps: i64 = chosen.loops.list.iter().map(|one| one.size).fold(1, i64::saturating_mul);
    vectors(chosen)?;
    if LARGE <= steps && 1 < chosen.setting.target.threads {
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
    let reused = reused(&chosen.loops, &access, lane).map(|one| one.axis.number);
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
    // What is no vector is so much more text for the compiler.
    let are_vectors = !access.has_halves || chosen.setting.target.vectors.halves;
    if !has_fold || !are_vectors {
        return Ok(());
    }
    let Some(reused) = reused else {
        chosen.add_largest(OptOp::Upcast, number, &SIDE_BY_SIDE)?;
        return Ok(());
    };
    // A square tile loads least for its multiply-adds.
    let side = chosen.add_largest(OptOp::Upcast, number, &[4, 2])?.unwrap_or(1);
    let most = REGISTERS / side;
    let amounts: Vec<i64> = (2..=most).rev().collect();
    chosen.add_largest(OptOp::Upcast, reused, &amounts)?;
    // What the lanes read stays in the cache while the reused loop goes round.
    chosen.innermost(reused)
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
