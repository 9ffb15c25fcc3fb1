//! Heuristics for devices with thread groups: tensor cores, if they fit; else tiles in local
//! memory for a large product; else the threads of a group share the rows of several reductions;
//! else one reduction is divided among them, if its elements are loaded once or the output is too
//! small to occupy the device; else each thread computes a few elements: adjacent ones, those of
//! windows that overlap, or those that share loads. The remaining output loops fill the group, so
//! that adjacent threads store adjacent elements.

use gradiff_graph::AxisKind;

use super::access::{Access, Accesses, best_lane_loop};
use super::optimizer::{Optimizer, divisor};
use crate::Error;
use crate::opt::legal::padded_size;
use crate::opt::tuning::{
    DIVIDED_MIN, ELEMENTS_PER_THREAD, FEW_COLUMNS, GATED_MAX, GROUP_THREADS, GROUP_UNROLL_MAX,
    GROUP_UNROLL_PART, LARGE_TILE, LEAST_GROUPS, LEFT_PER_THREAD, MANY_COLUMNS, MANY_ROWS,
    PADDED_MIN, SHARED_MIN, SIMD, STAGED_DEPTH, STAGED_MIN, TILE_COLUMNS, TILES_PER_DEVICE,
    UPCAST_VALUES, WARP_STEPS_MIN, WHOLE_MAX, WINDOWS_PER_THREAD,
};
use crate::opt::{Loop, Loops, Matmul, OptOp};

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

/// Divides the rows of a kernel among the threads of a group: its reductions, if they are several
/// or are broadcast along the output, and that output. Returns whether there are such rows.
fn share_rows(optimizer: &mut Optimizer<'_>) -> Result<bool, Error> {
    let Some(loops) = row_loops(&optimizer.loops) else { return Ok(false) };
    let accesses = Accesses::of(&optimizer.root)?;
    let loads = || accesses.list.iter().filter(|access| !access.is_store);
    let adjacent = |info: &&Loop| loads().any(|load| load.stride(&info.range) == Some(1));
    let lanes = match loops.reduced.iter().all(adjacent) {
        true => accesses.lanes(optimizer, &loops.reduced[0].range),
        false => 1,
    };
    let row = loops.reduced[0].size;
    let is_row = |info: &Loop| Some(info.axis.number) == loops.output.map(|info| info.axis.number);
    let outputs = optimizer.loops.list.iter().filter(is_output);
    let across: Vec<&Loop> = outputs.filter(|info| !is_row(info)).collect();
    let rows = across.iter().map(|info| info.size).fold(1, i64::saturating_mul);
    let parts = RowParts::of(row, rows, lanes);
    // Few threads for each of several rows.
    let beside = across.last().filter(|_| parts.threads <= SIMD);
    let beside =
        beside.map(|info| (info.axis.number, largest_divisor(info.size, GROUP_THREADS / SIMD)));
    let reduced = loops.reduced.iter().map(|info| (info.axis.number, OptOp::Unroll, OptOp::Group));
    let output = loops.output.map(|info| (info.axis.number, OptOp::Upcast, OptOp::Local));
    let loops: Vec<(i64, OptOp, OptOp)> = reduced.chain(output).collect();
    let before = optimizer.clone();
    let mut is_shared = true;
    if let Some((number, amount)) = beside {
        optimizer.add(OptOp::Local, number, amount)?;
    }
    let is_padded = row % (parts.threads * parts.vector) != 0;
    for (number, vectors, _) in &loops {
        if is_padded {
            is_shared &= optimizer.add(OptOp::PadTo, *number, parts.threads * parts.vector)?;
        }
        // Threads that store several elements, but no vector, would store them far apart.
        let is_stored = *vectors == OptOp::Upcast;
        if parts.vector != 1 && !(is_padded && is_stored) {
            is_shared &= optimizer.add(*vectors, *number, parts.vector)?;
        }
    }
    for (number, _, threads) in loops {
        is_shared &= optimizer.add(threads, number, parts.threads)?;
    }
    if !is_shared {
        *optimizer = before;
    }
    Ok(is_shared)
}

/// The loops along the rows of a kernel, all of one size: that of each reduction, at least one, and
/// that of the output, if the results are broadcast along it.
struct RowLoops<'a> {
    reduced: Vec<&'a Loop>,
    output: Option<&'a Loop>,
}

/// Returns the loops along rows, if there are several.
fn row_loops(loops: &Loops) -> Option<RowLoops<'_>> {
    let longest = |number: usize| {
        let is_over = |info: &&Loop| info.reductions.iter().any(|(known, _)| *known == number);
        let reduced = loops.list.iter().filter(is_reduced).filter(is_over);
        reduced.max_by_key(|info| (info.size, info.axis.number))
    };
    let mut reduced: Vec<&Loop> =
        (0..loops.reductions.len()).map(longest).collect::<Option<_>>()?;
    reduced.sort_by_key(|info| info.axis.number);
    reduced.dedup_by_key(|info| info.axis.number);
    let size = reduced.first()?.size;
    let is_apart = |info: &Loop, rows: &[&Loop]| {
        info.size == size && rows.iter().all(|row| row.is_independent(info))
    };
    let is_row = |info: &&Loop| is_apart(info, &reduced);
    let output = loops.list.iter().filter(is_output).rfind(is_row);
    let are_apart = (0..reduced.len()).all(|at| is_apart(reduced[at], &reduced[..at]));
    let is_shared = are_apart && (output.is_some() || 1 < reduced.len());
    (SHARED_MIN <= size && is_shared).then_some(RowLoops { reduced, output })
}

/// The parts of a row of contiguous elements that a group reads: threads, each of which reads
/// vectors.
struct RowParts {
    threads: i64,
    vector: i64,
}

impl RowParts {
    /// Divides a row, given the number of rows and the lanes of a vector. The parts divide the row,
    /// or it is to be padded to a multiple of them.
    fn of(row: i64, rows: i64, lanes: i64) -> RowParts {
        let is_wide = MANY_ROWS < rows || row < GROUP_THREADS * 2;
        let amounts: &[i64] =
            if is_wide { &[SIMD, 16] } else { &[GROUP_THREADS, 128, 64, SIMD, 16] };
        let vector = divisor(row, lanes).unwrap_or(1);
        if let Some(threads) = amounts.iter().find(|amount| row % (vector * **amount) == 0) {
            return RowParts { threads: *threads, vector };
        }
        let threads = amounts[0];
        let block = threads * GROUP_UNROLL_PART;
        let is_long = 8 * padded_size(row, block) <= 9 * row;
        RowParts { threads, vector: if is_long { GROUP_UNROLL_PART } else { 1 } }
    }
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
            let lanes = accesses.lanes(optimizer, &reduced.range);
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
    let (number, rows) = (reduced.axis.number, iterations_left(&optimizer.loops));
    let parts = RowParts::of(reduced.size, rows, lanes);
    if reduced.size % (parts.threads * parts.vector) != 0 {
        optimizer.add(OptOp::PadTo, number, parts.threads * parts.vector)?;
    }
    if parts.vector != 1 {
        optimizer.add(OptOp::Unroll, number, parts.vector)?;
    }
    let halves = std::iter::successors(Some(parts.threads), |threads| Some(threads / 2));
    let amounts: Vec<i64> = halves.take_while(|threads| 16 <= *threads).collect();
    let Some(threads) = optimizer.add_first_legal(OptOp::Group, number, &amounts)? else {
        return Ok(1);
    };
    if parts.vector == 1 {
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
    let size = |optimizer: &Optimizer<'_>, number: i64| {
        optimizer.index_of(number).map_or(1, |at| optimizer.loops.list[at].size)
    };
    let along = size(optimizer, stored);
    let longest = largest_divisor(along, limit);
    let is_padded_cheaply = 8 * padded_size(along, SIMD) <= 9 * along;
    let is_odd = longest < SIMD / 2 || longest < SIMD && is_padded_cheaply;
    let is_odd = is_odd && threads == 1 && PADDED_MIN <= along;
    // Gates on the elements of a row cost more than a few threads that idle.
    let is_whole = is_odd && is_elementwise && !is_alone && along <= WHOLE_MAX;
    if is_whole && optimizer.add(OptOp::Local, stored, 0)? {
        return Ok(());
    }
    if is_odd {
        let amounts = [256, 128, 64].into_iter().filter(|amount| *amount <= limit);
        // At most an eighth more iterations, if that is enough.
        let fits = |amount: &i64| 8 * padded_size(along, *amount) <= 9 * along;
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
    // The last loop becomes the one of adjacent threads.
    for (number, amount) in chosen.into_iter().rev() {
        let smaller: Vec<i64> = (2..=amount).rev().filter(|part| amount % part == 0).collect();
        optimizer.add_first_legal(OptOp::Local, number, &smaller)?;
    }
    Ok(())
}

/// Returns the largest divisor of a size up to a limit.
fn largest_divisor(size: i64, limit: i64) -> i64 {
    (1..=limit.min(size)).rev().find(|amount| size % amount == 0).unwrap_or(1)
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
