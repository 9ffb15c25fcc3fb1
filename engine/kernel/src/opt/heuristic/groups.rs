//! Heuristics for devices with thread groups: tensor cores, if they fit; else a reduction is
//! divided among the threads of a group, if the output is too small to occupy the device; else each
//! thread computes a few adjacent elements, and elements that share loads. The remaining output
//! loops fill the group.

use gradiff_graph::AxisKind;

use super::access::{Access, Accesses, best_lane_loop};
use super::optimizer::{Optimizer, divisor};
use crate::Error;
use crate::opt::tuning::{
    GATED_MAX, GROUP_THREADS, GROUP_UNROLL_MAX, GROUP_UNROLL_PART, LEFT_PER_THREAD, MATVEC,
    UPCAST_VALUES,
};
use crate::opt::{Loop, Loops, Matmul, OptOp};

/// Chooses the opts for a device with groups.
pub(super) fn optimize(optimizer: &mut Optimizer<'_>) -> Result<(), Error> {
    if use_tensor_cores(optimizer)? || divide_matvec(optimizer)? {
        return Ok(());
    }
    let threads = divide_reduction(optimizer)?;
    if threads == 1 {
        let values = upcast_gating_loops(optimizer)? * upcast_lanes(optimizer)?;
        let values = upcast_for_reuse(optimizer, values)?;
        unroll(optimizer, values)?;
    }
    add_locals(optimizer, threads)
}

fn is_output(info: &&Loop) -> bool {
    info.axis.kind == AxisKind::Loop && info.is_output && !info.is_reduced
}

fn is_reduced(info: &&Loop) -> bool {
    info.axis.kind == AxisKind::Loop && info.is_reduced && !info.is_output
}

/// Returns the number of output iterations that are left for threads.
fn iterations_left(loops: &Loops) -> i64 {
    loops.list.iter().filter(is_output).map(|info| info.size).fold(1, i64::saturating_mul)
}

/// Returns whether enough output iterations are left if each thread runs `amount` of them.
fn leaves_enough(optimizer: &Optimizer<'_>, amount: i64) -> bool {
    let threads = optimizer.setting.target.groups.map_or(i64::MAX, |groups| groups.threads);
    let threshold = optimizer.setting.target.thresholds.group_iterations_left;
    let needed = threshold.min(threads.saturating_mul(LEFT_PER_THREAD));
    needed <= iterations_left(&optimizer.loops) / amount
}

/// Divides the product of a matrix, contiguous along the reduction, and a vector: threads read a
/// row together, and each uses its elements of the vector for several rows.
fn divide_matvec(optimizer: &mut Optimizer<'_>) -> Result<bool, Error> {
    let [threads, group_rows, thread_rows] = MATVEC;
    let accesses = Accesses::of(&optimizer.root)?;
    let list = &optimizer.loops.list;
    let outputs: Vec<&Loop> = list.iter().filter(is_output).collect();
    let reduced: Vec<&Loop> = list.iter().filter(is_reduced).collect();
    let loads: Vec<&Access> = accesses.list.iter().filter(|access| !access.is_store).collect();
    let ([reduced], [x, y]) = (reduced.as_slice(), loads.as_slice()) else { return Ok(false) };
    let is_vector = |load: &Access| outputs.iter().all(|info| load.stride(&info.range) == Some(0));
    let matrix = match (is_vector(x), is_vector(y)) {
        (true, false) => y,
        (false, true) => x,
        _ => return Ok(false),
    };
    let rows = outputs.iter().find(|info| {
        let varies = matrix.stride(&info.range).is_none_or(|stride| stride != 0);
        varies && info.size % (group_rows * thread_rows) == 0
    });
    let is_contiguous = matrix.stride(&reduced.range) == Some(1);
    let Some(rows) = rows.filter(|_| is_contiguous) else { return Ok(false) };
    let (reduced, rows) = (reduced.axis.number, rows.axis.number);
    if !optimizer.add(OptOp::Group, reduced, threads)? {
        return Ok(false);
    }
    optimizer.add(OptOp::Local, rows, group_rows)?;
    optimizer.add(OptOp::Upcast, rows, thread_rows)?;
    Ok(true)
}

/// Divides the longest reduction among threads, if the output is small; returns the number of
/// threads.
fn divide_reduction(optimizer: &mut Optimizer<'_>) -> Result<i64, Error> {
    let longest = optimizer.loops.list.iter().filter(is_reduced).max_by_key(|info| info.size);
    let limit = optimizer.setting.target.thresholds.group_reduce_elements;
    match longest.map(|info| (info.axis.number, info.size)) {
        Some((number, size)) if 16 <= size && iterations_left(&optimizer.loops) <= limit => {
            let amounts = [256, 64, 32, 16];
            Ok(optimizer.add_first_legal(OptOp::GroupTop, number, &amounts)?.unwrap_or(1))
        }
        _ => Ok(1),
    }
}

/// Upcasts short output loops that gates depend on, if enough iterations are left; returns the
/// number of values of a thread.
fn upcast_gating_loops(optimizer: &mut Optimizer<'_>) -> Result<i64, Error> {
    let accesses = Accesses::of(&optimizer.root)?;
    let is_gated = |info: &&Loop| accesses.list.iter().any(|access| access.is_gated(&info.range));
    let is_short = |info: &&Loop| 1 < info.size && info.size <= GATED_MAX;
    let list = optimizer.loops.list.iter().filter(is_output).filter(is_short).filter(is_gated);
    let short: Vec<(i64, i64)> = list.map(|info| (info.axis.number, info.size)).collect();
    let mut values = 1;
    for (number, size) in short.into_iter().rev() {
        let fits = values * size <= GATED_MAX * GATED_MAX && leaves_enough(optimizer, size);
        if fits && optimizer.add(OptOp::Upcast, number, 0)? {
            values *= size;
        }
    }
    Ok(values)
}

/// Upcasts adjacent elements for vector loads and stores; returns the number of lanes.
fn upcast_lanes(optimizer: &mut Optimizer<'_>) -> Result<i64, Error> {
    let accesses = Accesses::of(&optimizer.root)?;
    let vectors = optimizer.setting.target.vectors;
    let lanes = vectors.lanes.min(i64::from(vectors.bytes) / accesses.widest_bytes);
    let Some(index) = best_lane_loop(optimizer, &accesses) else { return Ok(1) };
    let lane_loop = &optimizer.loops.list[index];
    let (number, amount) = (lane_loop.axis.number, divisor(lane_loop.size, lanes));
    match amount.filter(|_| lane_loop.is_output) {
        Some(amount) if optimizer.add(OptOp::Upcast, number, amount)? => Ok(amount),
        _ => Ok(1),
    }
}

/// Upcasts loops in which loads are invariant, so that loaded values are reused; returns the number
/// of values of a thread.
fn upcast_for_reuse(optimizer: &mut Optimizer<'_>, mut values: i64) -> Result<i64, Error> {
    while values < UPCAST_VALUES {
        let accesses = Accesses::of(&optimizer.root)?;
        let list = &optimizer.loops.list;
        let upcast: Vec<&Loop> =
            list.iter().filter(|info| info.axis.kind == AxisKind::Upcast).collect();
        let is_unused =
            |load: &&Access| upcast.iter().all(|info| load.stride(&info.range) != Some(0));
        // The number of loads that are invariant in a loop, if one of them has no reuse yet.
        let invariant_loads = |info: &Loop| {
            let loads = accesses.list.iter().filter(|load| !load.is_store);
            let invariant = loads.filter(|load| load.stride(&info.range) == Some(0));
            let invariant: Vec<&Access> = invariant.collect();
            invariant.iter().any(is_unused).then_some(invariant.len())
        };
        let outputs = list.iter().filter(is_output);
        let choices = outputs.filter_map(|info| {
            let amount = [4, 3].into_iter().find(|amount| info.size % amount == 0)?;
            let count = leaves_enough(optimizer, amount).then(|| invariant_loads(info));
            Some((count??, info.axis.number, amount))
        });
        // Prefers the loop in which the fewest loads are invariant, so that the others can still be
        // reused along other loops; then the outermost.
        let Some((_, number, amount)) = choices.min() else { break };
        if !optimizer.add(OptOp::Upcast, number, amount)? {
            break;
        }
        values *= amount;
    }
    Ok(values)
}

/// Unrolls the innermost reduction: a short one completely, others in part.
fn unroll(optimizer: &mut Optimizer<'_>, values: i64) -> Result<(), Error> {
    let Some(reduced) = optimizer.loops.list.iter().rfind(is_reduced) else { return Ok(()) };
    let (number, size) = (reduced.axis.number, reduced.size);
    if values.saturating_mul(size) <= GROUP_UNROLL_MAX && optimizer.add(OptOp::Unroll, number, 0)? {
        return Ok(());
    }
    optimizer.add(OptOp::Unroll, number, GROUP_UNROLL_PART)?;
    Ok(())
}

/// Fills the group: with adjacent elements first, then with loops along which threads share loads.
fn add_locals(optimizer: &mut Optimizer<'_>, mut threads: i64) -> Result<(), Error> {
    let accesses = Accesses::of(&optimizer.root)?;
    let shares_load = |info: &Loop| {
        accesses.list.iter().any(|load| !load.is_store && load.stride(&info.range) == Some(0))
    };
    let mut order: Vec<(bool, i64)> = optimizer
        .loops
        .list
        .iter()
        .filter(is_output)
        .map(|info| (shares_load(info), info.axis.number))
        .collect();
    let Some(innermost) = order.iter().map(|(_, number)| *number).max() else { return Ok(()) };
    order.sort_unstable_by_key(|(shares, number)| (*number == innermost, *shares, *number));
    for (_, number) in order.into_iter().rev().take(3) {
        let amounts: Vec<i64> = [32, 16, 8, 4, 3, 2]
            .into_iter()
            .filter(|amount| threads * amount <= GROUP_THREADS)
            .collect();
        threads *= optimizer.add_first_legal(OptOp::Local, number, &amounts)?.unwrap_or(1);
    }
    Ok(())
}

/// Computes the largest matrix product with tensor cores, if there is one: upcasts several tiles,
/// so that fragments are reused, and puts a few warps into a group. Returns whether it does.
fn use_tensor_cores(optimizer: &mut Optimizer<'_>) -> Result<bool, Error> {
    let Loops { list, matmuls, .. } = &optimizer.loops;
    let mut largest: Vec<[i64; 3]> = matmuls.iter().map(Matmul::numbers).collect();
    largest.sort_by_key(|numbers| {
        let is_dim = |info: &&Loop| numbers.contains(&info.axis.number);
        let sizes = list.iter().filter(is_dim).map(|info| info.size);
        std::cmp::Reverse(sizes.fold(1, i64::saturating_mul))
    });
    largest.dedup();
    for [m, n, k] in largest {
        let Some(index) = optimizer.index_of(k) else { continue };
        let choices = optimizer.loops.choices(index, optimizer.setting);
        let matching = choices.iter().enumerate().filter(|(_, numbers)| **numbers == [m, n, k]);
        for choice in matching.map(|(choice, _)| choice) {
            if optimizer.add(OptOp::Tc, k, choice as i64)? {
                for number in [n, m] {
                    optimizer.add_first_legal(OptOp::Upcast, number, &[4, 2])?;
                }
                optimizer.add_first_legal(OptOp::Local, m, &[4, 2])?;
                return Ok(true);
            }
        }
    }
    Ok(false)
}
