//! Heuristics for devices with thread groups: tensor cores, if they fit; else tiles in local memory
//! for a large product; else a reduction is divided among the threads of a group, if its elements
//! are loaded once or the output is too small to occupy the device; else each thread computes a few
//! adjacent elements, and elements that share loads. The remaining output loops fill the group.

use gradiff_graph::AxisKind;

use super::access::{Access, Accesses, best_lane_loop};
use super::optimizer::{Optimizer, divisor};
use crate::Error;
use crate::opt::legal::padded_size;
use crate::opt::tuning::{
    DIVIDED_MIN, FEW_COLUMNS, GATED_MAX, GROUP_THREADS, GROUP_UNROLL_MAX, GROUP_UNROLL_PART,
    LEAST_GROUPS, LEFT_PER_THREAD, MANY_COLUMNS, MANY_ROWS, PADDED_MIN, SIMD, STAGED_DEPTH,
    STAGED_MIN, TILES_PER_DEVICE, UPCAST_VALUES, WARP_STEPS_MIN, WHOLE_MAX,
};
use crate::opt::{Loop, Loops, Matmul, OptOp};

/// Chooses the opts for a device with groups.
pub(super) fn optimize(optimizer: &mut Optimizer<'_>) -> Result<(), Error> {
    if use_tensor_cores(optimizer)? || stage_product(optimizer)? {
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

/// Divides a reduction among threads; returns the number of threads.
fn divide_reduction(optimizer: &mut Optimizer<'_>) -> Result<i64, Error> {
    let accesses = Accesses::of(&optimizer.root)?;
    let list = &optimizer.loops.list;
    let Some(reduced) = list.iter().filter(is_reduced).max_by_key(|info| info.size).cloned() else {
        return Ok(1);
    };
    let outputs: Vec<&Loop> = list.iter().filter(is_output).collect();
    let loads = || accesses.list.iter().filter(|access| !access.is_store);
    // A load of each element once: nothing is gained by computing several outputs in a thread.
    let is_streamed = |load: &&Access| {
        let varies = |info: &Loop| load.stride(&info.range) != Some(0);
        varies(&reduced) && outputs.iter().all(|info| varies(info))
    };
    let streamed = loads().find(is_streamed).filter(|_| DIVIDED_MIN <= reduced.size);
    let columns = streamed.and_then(|load| {
        outputs.iter().find(|info| load.stride(&info.range) == Some(1) && SIMD <= info.size)
    });
    let number = reduced.axis.number;
    match (streamed, columns) {
        (Some(load), None) if load.stride(&reduced.range) == Some(1) => {
            let lanes = accesses.lanes(optimizer);
            divide_rows(optimizer, &reduced, lanes)
        }
        (Some(_), Some(columns)) => {
            let columns = columns.axis.number;
            divide_columns(optimizer, number, columns)
        }
        _ => {
            let limit = optimizer.setting.target.thresholds.group_reduce_elements;
            let is_small = 16 <= reduced.size && iterations_left(&optimizer.loops) <= limit;
            let amounts: &[i64] = if is_small { &[256, 64, 32, 16] } else { &[] };
            Ok(optimizer.add_first_legal(OptOp::Group, number, amounts)?.unwrap_or(1))
        }
    }
}

/// Divides a reduction of contiguous elements among adjacent threads, each of which loads vectors:
/// among a few for each of several rows if there are many rows, else among all of a group.
fn divide_rows(optimizer: &mut Optimizer<'_>, reduced: &Loop, lanes: i64) -> Result<i64, Error> {
    let rows = iterations_left(&optimizer.loops);
    let number = reduced.axis.number;
    let is_wide = MANY_ROWS < rows || reduced.size < GROUP_THREADS * 2;
    let amounts: &[i64] = if is_wide { &[SIMD, 16] } else { &[GROUP_THREADS, 128, 64, SIMD, 16] };
    let vector = divisor(reduced.size, lanes).unwrap_or(1);
    let divides = |amount: &&i64| reduced.size % (vector * **amount) == 0;
    match amounts.iter().find(divides) {
        Some(_) if vector != 1 => {
            optimizer.add(OptOp::Unroll, number, vector)?;
        }
        Some(_) => {}
        None => {
            optimizer.add(OptOp::PadTo, number, amounts[0])?;
        }
    }
    let Some(threads) = optimizer.add_first_legal(OptOp::Group, number, amounts)? else {
        return Ok(1);
    };
    if vector == 1 {
        optimizer.add_first_legal(OptOp::Unroll, number, &[GROUP_UNROLL_PART])?;
    }
    Ok(threads)
}

/// Divides a reduction of elements that are contiguous along an output loop among threads, if the
/// output alone has too few.
fn divide_columns(optimizer: &mut Optimizer<'_>, reduced: i64, columns: i64) -> Result<i64, Error> {
    let outputs = iterations_left(&optimizer.loops);
    let amounts: &[i64] = match (outputs <= FEW_COLUMNS, outputs <= MANY_COLUMNS) {
        (true, _) => &[16, 8, 4],
        (_, true) => &[8, 4],
        _ => return Ok(1),
    };
    let Some(threads) = optimizer.add_first_legal(OptOp::Group, reduced, amounts)? else {
        return Ok(1);
    };
    optimizer.add(OptOp::Unroll, reduced, GROUP_UNROLL_PART)?;
    if optimizer.index_of(columns).is_some_and(|at| optimizer.loops.list[at].size % SIMD != 0) {
        optimizer.add(OptOp::PadTo, columns, SIMD)?;
    }
    optimizer.add(OptOp::Local, columns, SIMD)?;
    Ok(threads * SIMD)
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
    let lanes = accesses.lanes(optimizer);
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
/// A long innermost loop of an odd size is padded.
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
    let is_alone = order.len() == 1;
    let is_elementwise = !optimizer.loops.list.iter().any(|info| info.is_reduced);
    for (_, number) in order.into_iter().rev().take(3) {
        let size = optimizer.index_of(number).map_or(1, |at| optimizer.loops.list[at].size);
        let limit = if is_alone { GROUP_THREADS } else { SIMD };
        let is_odd = PADDED_MIN <= size && size % SIMD != 0;
        let is_odd = is_odd && number == innermost && threads == 1;
        // Gates on the elements of a row cost more than a few threads that idle.
        let is_whole = is_odd && is_elementwise && !is_alone && size <= WHOLE_MAX;
        if is_whole && optimizer.add(OptOp::Local, number, 0)? {
            break;
        }
        if is_odd {
            let amounts = [256, 128, 64].into_iter().filter(|amount| *amount <= limit);
            // At most an eighth more iterations, if that is enough.
            let fits = |amount: &i64| 8 * padded_size(size, *amount) <= 9 * size;
            optimizer.add(OptOp::PadTo, number, amounts.clone().find(fits).unwrap_or(SIMD))?;
        }
        let amounts: Vec<i64> = [256, 128, 64, 32, 16, 8, 4, 3, 2]
            .into_iter()
            .filter(|amount| *amount <= limit && threads * amount <= GROUP_THREADS)
            .collect();
        threads *= optimizer.add_first_legal(OptOp::Local, number, &amounts)?.unwrap_or(1);
    }
    Ok(())
}

/// Computes the largest matrix product with tensor cores, if there is one: upcasts several tiles,
/// so that fragments are reused, and puts a few warps into a group. Returns whether it does.
fn use_tensor_cores(optimizer: &mut Optimizer<'_>) -> Result<bool, Error> {
    if optimizer.setting.target.tensor_cores.is_empty() {
        return Ok(false);
    }
    for [m, n, k] in products(optimizer) {
        let before = optimizer.clone();
        for number in [m, n, k] {
            pad_product(optimizer, number, 16)?;
        }
        let Some(index) = optimizer.index_of(k) else { continue };
        let choices = optimizer.loops.choices(index, optimizer.setting);
        let matching = choices.iter().enumerate().filter(|(_, numbers)| **numbers == [m, n, k]);
        for choice in matching.map(|(choice, _)| choice) {
            if optimizer.add(OptOp::Tc, k, choice as i64)? {
                // A group of 2x2 warps.
                let is_large = LEAST_GROUPS <= iterations_left(&optimizer.loops) / (8 * 4 * 4);
                let columns: &[i64] = if is_large { &[8, 4, 2] } else { &[4, 2] };
                optimizer.add_first_legal(OptOp::Upcast, n, columns)?;
                optimizer.add_first_legal(OptOp::Upcast, m, &[4, 2])?;
                if divide_product(optimizer, k)? {
                    return Ok(true);
                }
                for number in [m, n] {
                    optimizer.add(OptOp::Local, number, 2)?;
                }
                optimizer.add_first_legal(OptOp::Stage, k, &[4, 2, 0])?;
                return Ok(true);
            }
        }
        *optimizer = before;
    }
    Ok(false)
}

/// Divides the reduction of a product of few tiles among the warps of a group, which otherwise
/// share rows and columns, so that the device is occupied: it then waits for memory, not for
/// products. Returns whether it does.
fn divide_product(optimizer: &mut Optimizer<'_>, k: i64) -> Result<bool, Error> {
    let steps = optimizer.index_of(k).map_or(1, |at| optimizer.loops.list[at].size);
    let amounts: Vec<i64> =
        [8, 4, 2].into_iter().filter(|amount| WARP_STEPS_MIN * amount <= steps).collect();
    if TILES_PER_DEVICE <= iterations_left(&optimizer.loops) {
        return Ok(false);
    }
    Ok(optimizer.add_first_legal(OptOp::GroupTop, k, &amounts)?.is_some())
}

/// Computes the largest matrix product in tiles whose operands a group copies to local memory, if
/// there is one that is large enough. Returns whether it does.
fn stage_product(optimizer: &mut Optimizer<'_>) -> Result<bool, Error> {
    let size = |optimizer: &Optimizer<'_>, number: i64| {
        optimizer.index_of(number).map_or(1, |at| optimizer.loops.list[at].size)
    };
    for [m, n, k] in products(optimizer) {
        let [rows, columns] = [m, n].map(|number| size(optimizer, number));
        if rows.min(columns) < STAGED_MIN || size(optimizer, k) < STAGED_DEPTH {
            continue;
        }
        let before = optimizer.clone();
        // Tiles of 64x64 or 64x128: threads compute squares of 4x4 or 8x8.
        let groups = iterations_left(&optimizer.loops) / (2 * STAGED_MIN * STAGED_MIN);
        let each = if LEAST_GROUPS <= groups { 8 } else { 4 };
        pad_product(optimizer, m, STAGED_MIN)?;
        pad_product(optimizer, n, 16 * each)?;
        pad_product(optimizer, k, STAGED_DEPTH)?;
        let mut is_staged = optimizer.add(OptOp::Local, m, STAGED_MIN / each)?
            && optimizer.add(OptOp::Upcast, m, each)?
            && optimizer.add(OptOp::Upcast, n, 4)?
            && optimizer.add(OptOp::Local, n, 16)?
            && (each == 4 || optimizer.add(OptOp::Upcast, n, each / 4)?)
            && optimizer.add(OptOp::Unroll, k, GROUP_UNROLL_PART)?;
        is_staged = is_staged
            && optimizer.add_first_legal(OptOp::Stage, k, &[STAGED_DEPTH / 4, 2])?.is_some();
        if is_staged {
            return Ok(true);
        }
        *optimizer = before;
    }
    Ok(false)
}

/// Pads a loop of a matrix product, if it is not a multiple of this size and not much shorter.
fn pad_product(optimizer: &mut Optimizer<'_>, number: i64, multiple: i64) -> Result<(), Error> {
    let size = optimizer.index_of(number).map_or(0, |at| optimizer.loops.list[at].size);
    if multiple <= size && size % multiple != 0 {
        optimizer.add(OptOp::PadTo, number, multiple)?;
    }
    Ok(())
}

/// Returns the numbers of the loops of the matrix products, the largest first.
fn products(optimizer: &Optimizer<'_>) -> Vec<[i64; 3]> {
    let Loops { list, matmuls, .. } = &optimizer.loops;
    let mut largest: Vec<[i64; 3]> = matmuls.iter().map(Matmul::numbers).collect();
    largest.sort_by_key(|numbers| {
        let is_dim = |info: &&Loop| numbers.contains(&info.axis.number);
        let sizes = list.iter().filter(is_dim).map(|info| info.size);
        std::cmp::Reverse(sizes.fold(1, i64::saturating_mul))
    });
    largest.dedup();
    largest
}
