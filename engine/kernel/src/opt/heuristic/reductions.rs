//! Reductions on devices with thread groups: the threads of a group share the rows of several
//! reductions, or divide one. What the module offers takes a kernel without other opts, and leaves
//! it as it is where that is illegal or the device is occupied without it.

use gradiff_graph::AxisKind;

use super::access::{Access, Accesses};
use super::optimizer::{Optimizer, divisor};
use crate::Error;
use crate::opt::legal::padded_size;
use crate::opt::tuning::{
    DIVIDED_MIN, ELEMENTS_PER_THREAD, FEW_COLUMNS, GROUP_THREADS, GROUP_UNROLL_PART, MANY_COLUMNS,
    MANY_ROWS, NARROW_DEPTH_MIN, NARROW_MAX, NARROW_VALUES, SHARED_LOOP_MIN, SHARED_MIN, SIMD,
    THREADS_PER_DEVICE,
};
use crate::opt::{Loop, Loops, OptOp};

pub(super) fn is_output(info: &&Loop) -> bool {
    info.axis.kind == AxisKind::Loop && info.is_output && !info.is_reduced
}

pub(super) fn is_reduced(info: &&Loop) -> bool {
    info.axis.kind == AxisKind::Loop && info.is_reduced && !info.is_output
}

/// Returns the number of output iterations that are left for threads.
pub(super) fn iterations_left(loops: &Loops) -> i64 {
    loops.list.iter().filter(is_output).map(|info| info.size).fold(1, i64::saturating_mul)
}

/// Returns the largest divisor of a size up to a limit.
pub(super) fn largest_divisor(size: i64, limit: i64) -> i64 {
    (1..=limit.min(size)).rev().find(|amount| size % amount == 0).unwrap_or(1)
}

/// Returns whether padding to a multiple of `amount` adds at most an eighth.
pub(super) fn pads_little(size: i64, amount: i64) -> bool {
    padded_size(size, amount).saturating_mul(8) <= size.saturating_mul(9)
}

/// Returns whether padding to a multiple of `amount` adds at most a quarter.
fn pads_some(size: i64, amount: i64) -> bool {
    padded_size(size, amount).saturating_mul(4) <= size.saturating_mul(5)
}

/// Divides the rows of a kernel among the threads of a group: its reductions, if they are several
/// or are broadcast along the output, and that output. Returns whether there are such rows.
pub(super) fn share_rows(optimizer: &mut Optimizer<'_>) -> Result<bool, Error> {
    let Some(loops) = row_loops(&optimizer.loops) else { return Ok(false) };
    let accesses = Accesses::of(&optimizer.root)?;
    let loads = || accesses.list.iter().filter(|access| !access.is_store);
    let adjacent = |info: &&Loop| loads().any(|load| load.stride(&info.range) == Some(1));
    let lanes = match loops.reduced.iter().all(adjacent) {
        true => accesses.lanes(optimizer, &loops.reduced[0].range),
        false => 1,
    };
    let row = loops.reduced[0].size;
    // Threads for a part of a row read elements that are near to each other if rows are contiguous.
    let is_contiguous = optimizer.loops.list.iter().filter(is_reduced).any(|info| adjacent(&info));
    if row < SHARED_MIN && !is_contiguous {
        return Ok(false);
    }
    let is_row = |info: &Loop| Some(info.axis.number) == loops.output.map(|info| info.axis.number);
    let outputs = optimizer.loops.list.iter().filter(is_output);
    let across: Vec<&Loop> = outputs.filter(|info| !is_row(info)).collect();
    let rows = across.iter().map(|info| info.size).fold(1, i64::saturating_mul);
    let parts = RowParts::of(row, rows, lanes);
    // Few threads for each of several rows. Parts of a row would repeat its reductions.
    let is_beside = |info: &&&Loop| SHARED_MIN <= row || !loops.reduced[0].is_independent(info);
    let beside = across.iter().rfind(is_beside).filter(|_| parts.threads <= SIMD);
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

/// The loops along the rows of a kernel, all of one size: the longest of each reduction, at least
/// one, and that of the output, if the results are broadcast along it.
struct RowLoops<'a> {
    reduced: Vec<&'a Loop>,
    output: Option<&'a Loop>,
}

/// Returns the loops along rows, if there are several.
fn row_loops(loops: &Loops) -> Option<RowLoops<'_>> {
    let over = |number: usize| {
        let is_over = move |info: &&Loop| info.reductions.iter().any(|(known, _)| *known == number);
        loops.list.iter().filter(is_reduced).filter(is_over)
    };
    let longest = |number: usize| over(number).max_by_key(|info| (info.size, info.axis.number));
    let mut reduced: Vec<&Loop> =
        (0..loops.reductions.len()).map(longest).collect::<Option<_>>()?;
    reduced.sort_by_key(|info| info.axis.number);
    reduced.dedup_by_key(|info| info.axis.number);
    let size = reduced.first()?.size;
    let elements = over(0).map(|info| info.size).fold(1, i64::saturating_mul);
    let is_apart = |info: &Loop, rows: &[&Loop]| {
        info.size == size && rows.iter().all(|row| row.is_independent(info))
    };
    let is_row = |info: &&Loop| is_apart(info, &reduced);
    let output = loops.list.iter().filter(is_output).rfind(is_row);
    let are_apart = (0..reduced.len()).all(|at| is_apart(reduced[at], &reduced[..at]));
    let is_long = SHARED_MIN <= elements && SHARED_LOOP_MIN <= size;
    let is_shared = are_apart && (output.is_some() || 1 < reduced.len());
    (is_long && is_shared).then_some(RowLoops { reduced, output })
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
        if row < SIMD / 2 {
            return RowParts { threads: row, vector: 1 };
        }
        let is_wide = MANY_ROWS < rows || row < GROUP_THREADS * 2;
        let amounts: &[i64] =
            if is_wide { &[SIMD, 16] } else { &[GROUP_THREADS, 128, 64, SIMD, 16] };
        let vector = divisor(row, lanes).unwrap_or(1);
        let exact = amounts.iter().copied().find(|amount| row % (vector * amount) == 0);
        if let Some(threads) = exact {
            // Many more threads of single elements, if these few leave the device idle.
            let is_idle = threads <= SIMD && rows.saturating_mul(threads) < THREADS_PER_DEVICE;
            let is_better = |amount: &i64| 4 * threads <= *amount && pads_little(row, *amount);
            return match amounts.iter().copied().filter(|_| is_idle).find(is_better) {
                Some(threads) => RowParts { threads, vector: 1 },
                None => RowParts { threads, vector },
            };
        }
        let threads = amounts[0];
        let is_long = pads_little(row, threads * GROUP_UNROLL_PART);
        RowParts { threads, vector: if is_long { GROUP_UNROLL_PART } else { 1 } }
    }
}

/// Divides a reduction among threads; returns the number of threads.
pub(super) fn divide_reduction(optimizer: &mut Optimizer<'_>) -> Result<i64, Error> {
    let accesses = Accesses::of(&optimizer.root)?;
    let list = &optimizer.loops.list;
    let Some(longest) = list.iter().filter(is_reduced).max_by_key(|info| info.size).cloned() else {
        return Ok(1);
    };
    let is_beside = |info: &&Loop| is_reduced(info) && info.reductions == longest.reductions;
    let elements = list.iter().filter(is_beside).map(|info| info.size);
    let is_idle = iterations_left(&optimizer.loops) < THREADS_PER_DEVICE;
    let is_short = longest.size < DIVIDED_MIN;
    let is_long = DIVIDED_MIN <= elements.fold(1, i64::saturating_mul);
    // A load of each element once: nothing is gained by computing several outputs in a thread.
    let is_streamed = |load: &&Access| {
        let varies = |info: &Loop| load.stride(&info.range) != Some(0);
        varies(&longest) && list.iter().filter(is_output).all(varies)
    };
    let mut loads = accesses.list.iter().filter(|access| !access.is_store);
    let streamed = loads.find(is_streamed).filter(|_| !is_short || is_long && is_idle);
    if let Some(load) = streamed {
        // Threads read adjacent elements, if enough of them are in a short loop.
        let is_contiguous = |info: &&Loop| load.stride(&info.range) == Some(1) && 16 <= info.size;
        let contiguous = list.iter().filter(is_beside).find(is_contiguous).filter(|_| is_short);
        let reduced = contiguous.unwrap_or(&longest).clone();
        if let Some(threads) = divide_streamed(optimizer, &accesses, load, &reduced)? {
            return Ok(threads);
        }
    }
    match divide_few(optimizer, &longest)? {
        1 => divide_narrow(optimizer, &accesses, &longest),
        threads => Ok(threads),
    }
}

/// Divides a reduction among threads, if the elements of a load are contiguous along it or along an
/// output loop; returns the number of threads, `None` if they are not.
fn divide_streamed(
    optimizer: &mut Optimizer<'_>,
    accesses: &Accesses,
    load: &Access,
    reduced: &Loop,
) -> Result<Option<i64>, Error> {
    let is_column = |info: &&Loop| load.stride(&info.range) == Some(1) && SIMD <= info.size;
    let columns = optimizer.loops.list.iter().filter(is_output).find(is_column);
    if let Some(columns) = columns.map(|info| info.axis.number) {
        return divide_columns(optimizer, reduced, columns).map(Some);
    }
    if load.stride(&reduced.range) != Some(1) {
        return Ok(None);
    }
    let lanes = accesses.lanes(optimizer, &reduced.range);
    divide_rows(optimizer, reduced, lanes).map(Some)
}

/// Divides a reduction of contiguous elements among adjacent threads, each of which loads vectors:
/// among a few for each of several rows if there are many rows, else among all of a group.
fn divide_rows(optimizer: &mut Optimizer<'_>, reduced: &Loop, lanes: i64) -> Result<i64, Error> {
    let (number, rows) = (reduced.axis.number, iterations_left(&optimizer.loops));
    // Each thread reduces what the threads have reduced of each of its results.
    let has_results = 1 < optimizer.loops.count(AxisKind::Upcast);
    let is_enough = has_results && THREADS_PER_DEVICE <= rows.saturating_mul(SIMD);
    let parts = RowParts::of(reduced.size, if is_enough { i64::MAX } else { rows }, lanes);
    let before = optimizer.clone();
    if reduced.size % (parts.threads * parts.vector) != 0 {
        optimizer.add(OptOp::PadTo, number, parts.threads * parts.vector)?;
    }
    if parts.vector != 1 {
        optimizer.add(OptOp::Unroll, number, parts.vector)?;
    }
    let halves = std::iter::successors(Some(parts.threads), |threads| Some(threads / 2));
    let amounts: Vec<i64> = halves.take_while(|threads| 16 <= *threads).collect();
    let Some(threads) = optimizer.add_first_legal(OptOp::Group, number, &amounts)? else {
        *optimizer = before;
        return Ok(1);
    };
    if parts.vector == 1 {
        optimizer.add_first_legal(OptOp::Unroll, number, &[GROUP_UNROLL_PART])?;
    }
    Ok(threads)
}

/// Divides a reduction of elements that are contiguous along an output loop among threads, if the
/// output alone has too few.
fn divide_columns(
    optimizer: &mut Optimizer<'_>,
    reduced: &Loop,
    columns: i64,
) -> Result<i64, Error> {
    let outputs = iterations_left(&optimizer.loops);
    let amounts: &[i64] = match (outputs <= FEW_COLUMNS, outputs <= MANY_COLUMNS) {
        (true, _) => &[16, 8, 4],
        (_, true) => &[8, 4],
        _ => return Ok(1),
    };
    let limit = optimizer.setting.target.groups.map_or(0, |groups| groups.threads) / SIMD;
    let amounts: Vec<i64> = amounts.iter().copied().filter(|amount| *amount <= limit).collect();
    let Some(threads) = column_threads(reduced.size, outputs, &amounts) else { return Ok(1) };
    let (number, before) = (reduced.axis.number, optimizer.clone());
    if reduced.size % threads != 0 {
        let block = threads * GROUP_UNROLL_PART;
        let amount = if pads_little(reduced.size, block) { block } else { threads };
        optimizer.add(OptOp::PadTo, number, amount)?;
    }
    if optimizer.add(OptOp::Group, number, threads)? {
        optimizer.add(OptOp::Unroll, number, GROUP_UNROLL_PART)?;
        if optimizer.index_of(columns).is_some_and(|at| optimizer.loops.list[at].size % SIMD != 0) {
            optimizer.add(OptOp::PadTo, columns, SIMD)?;
        }
        if optimizer.add(OptOp::Local, columns, SIMD)? {
            return Ok(threads * SIMD);
        }
    }
    *optimizer = before;
    Ok(1)
}

/// Returns the first of these numbers of threads that divides a column, given the number of
/// columns. If so few threads would leave the device idle, returns the first number, to a multiple
/// of which the column is to be padded.
fn column_threads(size: i64, columns: i64, amounts: &[i64]) -> Option<i64> {
    let first = *amounts.first()?;
    let exact = amounts.iter().copied().find(|amount| size % amount == 0);
    let is_enough =
        |threads: &i64| *threads == first || THREADS_PER_DEVICE <= columns.saturating_mul(*threads);
    let is_padded = pads_some(size, first) && columns / ELEMENTS_PER_THREAD < THREADS_PER_DEVICE;
    exact.filter(is_enough).or(is_padded.then_some(first)).or(exact)
}

/// Divides a reduction to few elements among the threads of a group, padded if its size is no
/// multiple of any number of them; returns the number of threads.
fn divide_few(optimizer: &mut Optimizer<'_>, reduced: &Loop) -> Result<i64, Error> {
    let (number, size) = (reduced.axis.number, reduced.size);
    let limit = optimizer.setting.target.thresholds.group_reduce_elements;
    if size < 16 || limit < iterations_left(&optimizer.loops) {
        return Ok(1);
    }
    let amounts = [256, 64, 32, 16];
    if let Some(threads) = optimizer.add_first_legal(OptOp::Group, number, &amounts)? {
        return Ok(threads);
    }
    let before = optimizer.clone();
    for threads in amounts {
        // At most a quarter more iterations.
        let is_padded = pads_some(size, threads);
        if is_padded
            && optimizer.add(OptOp::PadTo, number, threads)?
            && optimizer.add(OptOp::Group, number, threads)?
        {
            return Ok(threads);
        }
        *optimizer = before.clone();
    }
    Ok(1)
}

/// Divides the reduction of a product with few rows or columns among threads, each of which
/// computes several results, so that the elements of the large operand are loaded once. Returns the
/// number of threads.
fn divide_narrow(
    optimizer: &mut Optimizer<'_>,
    accesses: &Accesses,
    reduced: &Loop,
) -> Result<i64, Error> {
    let loops = &optimizer.loops;
    let is_small = iterations_left(loops) <= MANY_COLUMNS && loops.reductions.len() == 1;
    if !is_small || reduced.size < NARROW_DEPTH_MIN {
        return Ok(1);
    }
    let narrow = |load: &Access| {
        let is_invariant = |info: &&Loop| load.stride(&info.range) == Some(0);
        let mut invariant = loops.list.iter().filter(is_output).filter(is_invariant);
        let found = invariant.next().filter(|info| info.size <= NARROW_MAX);
        found.filter(|_| invariant.next().is_none())
    };
    let varies = |load: &&Access| !load.is_store && load.stride(&reduced.range) != Some(0);
    let loads = accesses.list.iter().filter(varies);
    let loads = loads.filter_map(|load| Some((load, narrow(load)?)));
    let Some((load, info)) = loads.min_by_key(|(_, info)| info.size) else { return Ok(1) };
    let (number, mut size) = (info.axis.number, info.size);
    let before = optimizer.clone();
    // Of a prime number a thread would compute a single one.
    if NARROW_VALUES < size && largest_divisor(size, NARROW_VALUES) < GROUP_UNROLL_PART {
        optimizer.add(OptOp::PadTo, number, GROUP_UNROLL_PART)?;
        size = padded_size(size, GROUP_UNROLL_PART);
    }
    let values = largest_divisor(size, NARROW_VALUES);
    if optimizer.add(OptOp::Upcast, number, values)? {
        let threads = divide_streamed(optimizer, accesses, load, reduced)?.unwrap_or(1);
        if threads != 1 {
            return Ok(threads);
        }
    }
    *optimizer = before;
    Ok(1)
}
