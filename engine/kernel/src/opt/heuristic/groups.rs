//! Heuristics for devices with thread groups: tensor cores, if they fit; else tiles in local
//! memory for a large product; else the threads of a group share the rows of several reductions;
//! else one reduction is divided among them, if its elements are loaded once, for one result or a
//! few, or the output is too small to occupy the device; else each thread computes a few elements:
//! adjacent ones, those of windows that overlap, or those that share loads. The remaining output
//! loops fill the group, so that adjacent threads store adjacent elements.

use std::cmp::Reverse;

use gradiff_graph::AxisKind;

use super::access::{Access, Accesses, best_lane_loop};
use super::optimizer::{Optimizer, divisor};
use super::reductions::{
    divide_reduction, is_output, is_reduced, iterations_left, largest_divisor, pads_little,
    share_rows,
};
use crate::Error;
use crate::opt::legal::padded_size;
use crate::opt::tuning::{
    ELEMENTS_PER_THREAD, GATED_MAX, GROUP_THREADS, GROUP_UNROLL_MAX, GROUP_UNROLL_PART, LARGE_TILE,
    LEAST_GROUPS, LEFT_PER_THREAD, PADDED_MIN, SIMD, STAGED_DEPTH, STAGED_MIN, TILE_COLUMNS,
    TILE_ROWS, TILES_PER_DEVICE, UPCAST_VALUES, WARP_STEPS_MIN, WARPS_MAX, WHOLE_MAX,
    WINDOWS_PER_THREAD,
};
use crate::opt::{Loop, Matmul, OptOp};

/// Chooses the opts for a device with groups.
pub(super) fn optimize(optimizer: &mut Optimizer<'_>) -> Result<(), Error> {
    if use_tensor_cores(optimizer)? || stage_product(optimizer)? {
        return Ok(());
    }
    if share_rows(optimizer)? {
        return Ok(());
    }
    let threads = divide_reduction(optimizer)?;
    if threads == 1 {
        let mut values = upcast_gating_loops(optimizer)? * upcast_lanes(optimizer)?;
        if values == 1 {
            values = upcast_windows(optimizer)?;
        }
        values = upcast_for_reuse(optimizer, values)?;
        if values == 1 {
            values = upcast_elements(optimizer)?;
        }
        unroll(optimizer, values)?;
    }
    add_locals(optimizer, threads)
}

/// Returns whether enough output iterations are left if each thread runs `amount` of them.
fn leaves_enough(optimizer: &Optimizer<'_>, amount: i64) -> bool {
    let threads = optimizer.setting.target.groups.map_or(i64::MAX, |groups| groups.threads);
    let threshold = optimizer.setting.target.thresholds.group_iterations_left;
    let needed = threshold.min(threads.saturating_mul(LEFT_PER_THREAD));
    needed <= iterations_left(&optimizer.loops) / amount
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
    let Some(index) = best_lane_loop(optimizer, &accesses) else { return Ok(1) };
    let lane_loop = &optimizer.loops.list[index];
    let lanes = accesses.lanes(optimizer, &lane_loop.range);
    let (number, amount) = (lane_loop.axis.number, divisor(lane_loop.size, lanes));
    match amount.filter(|_| lane_loop.is_output) {
        Some(amount) if optimizer.add(OptOp::Upcast, number, amount)? => Ok(amount),
        _ => Ok(1),
    }
}

/// Upcasts a loop of a kernel without reductions whose accesses are no vectors, so that a thread
/// has several loads under way; returns the number of values of a thread.
fn upcast_elements(optimizer: &mut Optimizer<'_>) -> Result<i64, Error> {
    if optimizer.loops.list.iter().any(|info| info.is_reduced) {
        return Ok(1);
    }
    let accesses = Accesses::of(&optimizer.root)?;
    let stored = stored_loop(optimizer, &accesses);
    let is_loaded = |info: &Loop| {
        let mut loads = accesses.list.iter().filter(|access| !access.is_store);
        loads.any(|load| load.index_stride(&info.range).is_some_and(|stride| stride.abs() == 1))
    };
    // Elements that are adjacent where they are loaded, even if they are not where they are stored.
    let rank = |info: &Loop| match Some(info.axis.number) == stored {
        false if is_loaded(info) => 0,
        true => 1,
        false => 2,
    };
    let mut outputs: Vec<&Loop> = optimizer.loops.list.iter().filter(is_output).collect();
    outputs.sort_by_key(|info| (rank(info), info.axis.number));
    let numbers: Vec<i64> = outputs.iter().map(|info| info.axis.number).collect();
    for amount in [ELEMENTS_PER_THREAD, ELEMENTS_PER_THREAD / 2] {
        for number in &numbers {
            if leaves_enough(optimizer, amount) && optimizer.add(OptOp::Upcast, *number, amount)? {
                return Ok(amount);
            }
        }
    }
    Ok(1)
}

/// Upcasts the loops along which windows overlap, if no other loop shares what they load; returns
/// the number of values of a thread.
fn upcast_windows(optimizer: &mut Optimizer<'_>) -> Result<i64, Error> {
    let accesses = Accesses::of(&optimizer.root)?;
    let list = &optimizer.loops.list;
    let windows: Vec<&Loop> =
        list.iter().filter(is_reduced).filter(|info| info.size <= GATED_MAX).collect();
    let outputs: Vec<&Loop> = list.iter().filter(is_output).collect();
    let stride = |load: &Access, info: &Loop| {
        load.index_stride(&info.range).map(i64::abs).filter(|stride| 0 < *stride)
    };
    let overlaps = |load: &Access, info: &Loop| {
        let reaches = |window: &&Loop| match (stride(load, info), stride(load, window)) {
            (Some(step), Some(element)) => step % element == 0 && step < element * window.size,
            _ => false,
        };
        windows.iter().any(reaches)
    };
    let is_alone = |load: &&Access| outputs.iter().all(|info| stride(load, info).is_some());
    let loads = accesses.list.iter().filter(|access| !access.is_store).filter(is_alone);
    let loads: Vec<&Access> = loads.collect();
    let overlapping = outputs.iter().filter(|info| loads.iter().any(|load| overlaps(load, info)));
    let numbers: Vec<i64> = overlapping.map(|info| info.axis.number).collect();
    let mut values = 1;
    for (number, amounts) in numbers.into_iter().zip(WINDOWS_PER_THREAD) {
        let fits = |amount: &&i64| leaves_enough(optimizer, **amount);
        let amounts: Vec<i64> = amounts.iter().filter(fits).copied().collect();
        values *= optimizer.add_first_legal(OptOp::Upcast, number, &amounts)?.unwrap_or(1);
    }
    Ok(values)
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
        let is_elementwise = !list.iter().any(|info| info.is_reduced);
        let amounts: &[i64] = if is_elementwise { &[4, 3] } else { &[8, 4, 3] };
        let outputs = list.iter().filter(is_output);
        let choices = outputs.filter_map(|info| {
            let fits = |amount: &&i64| {
                let amount = **amount;
                let is_small = values * amount <= UPCAST_VALUES;
                info.size % amount == 0 && is_small && leaves_enough(optimizer, amount)
            };
            let amount = *amounts.iter().find(fits)?;
            Some((invariant_loads(info)?, info.axis.number, amount))
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

/// Unrolls reductions, from the innermost on: short ones completely, a longer innermost one in
/// part.
fn unroll(optimizer: &mut Optimizer<'_>, values: i64) -> Result<(), Error> {
    let reduced = optimizer.loops.list.iter().rev().filter(is_reduced);
    let sizes: Vec<(i64, i64)> = reduced.map(|info| (info.axis.number, info.size)).collect();
    let mut iterations = values;
    for (at, (number, size)) in sizes.into_iter().enumerate() {
        iterations = iterations.saturating_mul(size);
        if iterations <= GROUP_UNROLL_MAX && optimizer.add(OptOp::Unroll, number, 0)? {
            continue;
        }
        if at == 0 {
            optimizer.add(OptOp::Unroll, number, GROUP_UNROLL_PART)?;
        }
        break;
    }
    Ok(())
}

/// Returns the number of the output loop along which stored elements are nearest to each other.
fn stored_loop(optimizer: &Optimizer<'_>, accesses: &Accesses) -> Option<i64> {
    let outputs = || optimizer.loops.list.iter().filter(is_output);
    let store = accesses.list.iter().find(|access| access.is_store)?;
    let stride = |info: &&Loop| {
        let stride = store.index_stride(&info.range)?.abs();
        (stride != 0).then_some((stride, info.axis.number))
    };
    let innermost = || outputs().map(|info| info.axis.number).max();
    outputs().filter_map(|info| stride(&info)).min().map(|(_, number)| number).or_else(innermost)
}

/// Fills the group: with elements that are adjacent where they are stored first, then with loops
/// along which threads share loads. A long loop of an odd size is padded.
fn add_locals(optimizer: &mut Optimizer<'_>, threads: i64) -> Result<(), Error> {
    let accesses = Accesses::of(&optimizer.root)?;
    let Some(stored) = stored_loop(optimizer, &accesses) else { return Ok(()) };
    let list = &optimizer.loops.list;
    let loads = || accesses.list.iter().filter(|access| !access.is_store);
    let shares_load = |info: &Loop| loads().any(|load| load.stride(&info.range) == Some(0));
    let stride = |load: &Access, info: &Loop| load.index_stride(&info.range).map(i64::abs);
    let along = list.iter().find(|info| info.axis.number == stored);
    // Elements that are nearer to each other where they are loaded than those of the stored loop.
    let is_across = |info: &Loop| {
        let nearer = |load: &Access| match (stride(load, info), along.and_then(|x| stride(load, x)))
        {
            (Some(near), Some(far)) => 0 < near && near < far,
            _ => false,
        };
        loads().any(nearer)
    };
    let mut order: Vec<(bool, bool, bool, i64)> = list
        .iter()
        .filter(is_output)
        .map(|info| {
            let number = info.axis.number;
            (number == stored, is_across(info), shares_load(info), number)
        })
        .collect();
    order.sort_unstable();
    let is_alone = order.len() == 1;
    let is_elementwise = !list.iter().any(|info| info.is_reduced);
    let is_tile = !is_elementwise || order.iter().any(|(_, is_across, ..)| *is_across);
    let limit = if is_tile && !is_alone { SIMD } else { GROUP_THREADS };
    let along = size(optimizer, stored);
    let longest = largest_divisor(along, limit);
    let is_odd = longest < SIMD / 2 || longest < SIMD && pads_little(along, SIMD);
    let is_odd = is_odd && threads == 1 && PADDED_MIN <= along;
    // Gates on the elements of a row cost more than a few threads that idle.
    let is_whole = is_odd && is_elementwise && !is_alone && along <= WHOLE_MAX;
    if is_whole && optimizer.add(OptOp::Local, stored, 0)? {
        return Ok(());
    }
    if is_odd {
        let amounts = [256, 128, 64].into_iter().filter(|amount| *amount <= limit);
        let fits = |amount: &i64| pads_little(along, *amount);
        optimizer.add(OptOp::PadTo, stored, amounts.clone().find(fits).unwrap_or(SIMD))?;
    }
    let groups = optimizer.setting.target.groups;
    let room = groups.map_or(1, |groups| groups.threads).min(GROUP_THREADS) / threads;
    let mut chosen: Vec<(i64, i64)> = Vec::new();
    for (.., number) in order.into_iter().rev().take(3) {
        let used: i64 = chosen.iter().map(|(_, amount)| *amount).product();
        let limit = if chosen.is_empty() { limit } else { GROUP_THREADS };
        let amount = largest_divisor(size(optimizer, number), limit.min(room / used));
        if 1 < amount {
            chosen.push((number, amount));
        }
    }
    if threads == 1 {
        widen(optimizer, stored, &mut chosen, room)?;
    }
    // The last loop becomes the one of adjacent threads.
    for (number, amount) in chosen.into_iter().rev() {
        let smaller: Vec<i64> = (2..=amount).rev().filter(|part| amount % part == 0).collect();
        optimizer.add_first_legal(OptOp::Local, number, &smaller)?;
    }
    Ok(())
}

/// Pads the longest output loop besides the stored one, if a group would have few threads though
/// there are many iterations, so that a power of two of its iterations join them.
fn widen(
    optimizer: &mut Optimizer<'_>,
    stored: i64,
    chosen: &mut Vec<(i64, i64)>,
    room: i64,
) -> Result<(), Error> {
    let used: i64 = chosen.iter().map(|(_, amount)| *amount).product();
    let outputs = optimizer.loops.list.iter().filter(is_output);
    let longest = outputs.filter(|info| info.axis.number != stored).max_by_key(|info| info.size);
    let Some((number, size)) = longest.map(|info| (info.axis.number, info.size)) else {
        return Ok(());
    };
    let joined = chosen.iter().find(|(known, _)| *known == number).map_or(1, |(_, amount)| *amount);
    let is_full = 2 * SIMD <= used || chosen.len() == 3 && joined == 1;
    if is_full || size < PADDED_MIN {
        return Ok(());
    }
    let along = used / joined;
    let groups = iterations_left(&optimizer.loops) / size / along;
    let fits = |amount: &i64| {
        let is_filled = LEAST_GROUPS <= groups.saturating_mul(padded_size(size, *amount) / amount);
        *amount <= room / along && is_filled && pads_little(size, *amount)
    };
    let powers = std::iter::successors(Some(GROUP_THREADS), |power| Some(power / 2));
    let amount = powers.take_while(|power| 2 * joined <= *power).find(fits);
    if let Some(amount) = amount
        && optimizer.add(OptOp::PadTo, number, amount)?
    {
        chosen.retain(|(known, _)| *known != number);
        chosen.push((number, amount));
    }
    Ok(())
}

/// Returns the trip count of a plain loop; 1 if there is none of this number.
fn size(optimizer: &Optimizer<'_>, number: i64) -> i64 {
    optimizer.index_of(number).map_or(1, |at| optimizer.loops.list[at].size)
}

/// Computes the largest matrix product with tensor cores, if there is one: upcasts several tiles,
/// so that fragments are reused, and puts a few warps into a group. Returns whether it does.
fn use_tensor_cores(optimizer: &mut Optimizer<'_>) -> Result<bool, Error> {
    if optimizer.setting.target.tensor_cores.is_empty() {
        return Ok(false);
    }
    for [m, n, k] in products(optimizer) {
        let before = optimizer.clone();
        pad_tiles(optimizer, [m, n, k])?;
        let is_large = LEAST_GROUPS <= iterations_left(&optimizer.loops) / LARGE_TILE;
        let has_lanes = upcast_columns(optimizer, n)?;
        let Some(index) = optimizer.index_of(k) else { continue };
        let choices = optimizer.loops.choices(index, optimizer.setting);
        let matching = choices.iter().enumerate().filter(|(_, numbers)| **numbers == [m, n, k]);
        for choice in matching.map(|(choice, _)| choice) {
            if optimizer.add(OptOp::Tc, k, choice as i64)? {
                // A group of 2x2 warps.
                let (rows, columns): (&[i64], &[i64]) = match (is_large, has_lanes) {
                    (true, true) => (&[4, 2], &[]),
                    (false, true) => (&[2], &[]),
                    (true, false) => (&[4, 2], &[8, 4, 2]),
                    (false, false) => (&[4, 2], &[4, 2]),
                };
                optimizer.add_first_legal(OptOp::Upcast, n, columns)?;
                optimizer.add_first_legal(OptOp::Upcast, m, rows)?;
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

/// Upcasts the columns of a product of 16-bit floats that are adjacent where they are loaded,
/// before tiles are made of them: a thread then loads the elements of several tiles, and stores
/// those of its results, as vectors. (Those of tf32 are rounded first, and would need too many
/// registers.) Returns whether it does.
fn upcast_columns(optimizer: &mut Optimizer<'_>, n: i64) -> Result<bool, Error> {
    let Some(index) = optimizer.index_of(n) else { return Ok(false) };
    let info = &optimizer.loops.list[index];
    let accesses = Accesses::of(&optimizer.root)?;
    let is_adjacent = |load: &Access| {
        !load.is_store && load.is_of_halves() && load.stride(&info.range) == Some(1)
    };
    if !accesses.list.iter().any(is_adjacent) {
        return Ok(false);
    }
    let amounts: Vec<i64> =
        [8, 4].into_iter().filter(|amount| info.size % (amount * TILE_COLUMNS) == 0).collect();
    Ok(optimizer.add_first_legal(OptOp::Upcast, n, &amounts)?.is_some())
}

/// Pads the loops of a product to multiples of tiles of tensor cores: long ones so that several
/// tiles share fragments, those of a few rows or columns only if the matrix beside them is large.
fn pad_tiles(optimizer: &mut Optimizer<'_>, [m, n, k]: [i64; 3]) -> Result<(), Error> {
    let [rows, columns, depth] = [m, n, k].map(|number| size(optimizer, number));
    // The reductions of smaller outputs are divided among threads.
    let limit = optimizer.setting.target.thresholds.group_reduce_elements;
    let is_small = iterations_left(&optimizer.loops) <= limit || depth < STAGED_MIN;
    for (number, size, tile, beside) in
        [(m, rows, TILE_ROWS, columns), (n, columns, TILE_COLUMNS, rows)]
    {
        if TILE_ROWS <= size {
            pad_product(optimizer, number, tile_multiple(size, 2 * STAGED_MIN))?;
        } else if !is_small && STAGED_MIN <= beside && size % tile != 0 {
            optimizer.add(OptOp::PadTo, number, tile)?;
        }
    }
    let is_exact = depth % TILE_ROWS == 0;
    let multiple = if is_exact { TILE_ROWS } else { tile_multiple(depth, STAGED_MIN) };
    pad_product(optimizer, k, multiple)
}

/// Returns the size to a multiple of which a loop of tiles is padded, up to a limit. An even number
/// of tiles is enough.
fn tile_multiple(size: i64, limit: i64) -> i64 {
    if size < STAGED_MIN || size % (2 * TILE_ROWS) == 0 {
        return TILE_ROWS;
    }
    // Larger multiples gain less.
    let is_limit = padded_size(size, limit).saturating_mul(16) <= size.saturating_mul(17);
    let fits = |multiple: &i64| pads_little(size, *multiple);
    let multiple = [STAGED_MIN, 2 * TILE_ROWS].into_iter().find(fits).unwrap_or(TILE_ROWS);
    if is_limit { limit } else { multiple }
}

/// Divides the reduction of a product of few tiles among the warps of a group, which otherwise
/// share rows and columns, so that the device is occupied: it then waits for memory, not for
/// products. A sum over several loops is divided along them, too. Returns whether it does.
fn divide_product(optimizer: &mut Optimizer<'_>, k: i64) -> Result<bool, Error> {
    if TILES_PER_DEVICE <= iterations_left(&optimizer.loops) {
        return Ok(false);
    }
    let is_single = optimizer.loops.reductions.len() == 1;
    let reduced = optimizer.loops.list.iter().filter(is_reduced);
    let reduced = reduced.filter(|info| is_single || info.axis.number == k);
    let mut sizes: Vec<(i64, i64)> = reduced.map(|info| (info.axis.number, info.size)).collect();
    sizes.sort_by_key(|(number, size)| (*number != k, Reverse(*size), *number));
    let total = sizes.iter().map(|(_, size)| *size).fold(1, i64::saturating_mul);
    let mut warps = 1;
    for (number, size) in sizes {
        let steps = if number == k { size } else { total };
        let fits =
            |amount: &i64| warps * amount <= WARPS_MAX && WARP_STEPS_MIN * warps * amount <= steps;
        let amounts: Vec<i64> = [8, 4, 2].into_iter().filter(fits).collect();
        warps *= optimizer.add_first_legal(OptOp::GroupTop, number, &amounts)?.unwrap_or(1);
    }
    Ok(1 < warps)
}

/// Computes the largest matrix product in tiles whose operands a group copies to local memory, if
/// there is one that is large enough. Returns whether it does.
fn stage_product(optimizer: &mut Optimizer<'_>) -> Result<bool, Error> {
    for [m, n, k] in products(optimizer) {
        let [rows, columns] = [m, n].map(|number| size(optimizer, number));
        if rows.min(columns) < STAGED_MIN || size(optimizer, k) < STAGED_DEPTH {
            continue;
        }
        let before = optimizer.clone();
        // Tiles of 64x64 or 64x128: threads compute squares of 4x4 or 8x8.
        let groups = iterations_left(&optimizer.loops) / (2 * STAGED_MIN * STAGED_MIN);
        let each = if LEAST_GROUPS <= groups { 8 } else { 4 };
        // Fewer columns for each thread, if that saves padding.
        let tile = 16 * each;
        let is_exact = tile < columns && columns % tile != 0 && columns % STAGED_MIN == 0;
        let across = if is_exact { 4 } else { each };
        pad_product(optimizer, m, STAGED_MIN)?;
        pad_product(optimizer, n, 16 * across)?;
        pad_product(optimizer, k, STAGED_DEPTH)?;
        let mut is_staged = optimizer.add(OptOp::Local, m, STAGED_MIN / each)?
            && optimizer.add(OptOp::Upcast, m, each)?
            && optimizer.add(OptOp::Upcast, n, 4)?
            && optimizer.add(OptOp::Local, n, 16)?
            && (across == 4 || optimizer.add(OptOp::Upcast, n, across / 4)?)
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
    let size = size(optimizer, number);
    if multiple <= size && size % multiple != 0 {
        optimizer.add(OptOp::PadTo, number, multiple)?;
    }
    Ok(())
}

/// Returns the numbers of the loops of the matrix products, the largest first; of a product and
/// that of the transposed matrices first the one whose tiles are padded less.
fn products(optimizer: &Optimizer<'_>) -> Vec<[i64; 3]> {
    let mut largest: Vec<[i64; 3]> = optimizer.loops.matmuls.iter().map(Matmul::numbers).collect();
    largest.sort_by_key(|numbers| {
        let [rows, columns, depth] = numbers.map(|number| size(optimizer, number));
        let tile = if columns < TILE_ROWS { TILE_COLUMNS } else { TILE_ROWS };
        let padded = padded_size(rows, TILE_ROWS).saturating_mul(padded_size(columns, tile));
        (Reverse(rows.saturating_mul(columns).saturating_mul(depth)), padded)
    });
    largest.dedup();
    largest
}
