//! Heuristics for CPUs with vectors: lanes along the loop in which most accesses are contiguous,
//! then as many vectors at once as the registers hold, to reuse loaded values and to hide the
//! latency of reductions.

use std::cmp::Reverse;

use gradiff_graph::{AxisKind, Op, UOp};

use super::access::{Access, Accesses, best_lane_loop, lane_cost, lanes};
use super::cuts::cut_at_gates;
use super::optimizer::Optimizer;
use super::transposes::block_transposed;
use crate::Error;
use crate::free::Free;
use crate::opt::legal::padded_size;
use crate::opt::tuning::{
    ACCUMULATORS, NEARER_ROWS_MAX, PARTS_PER_THREAD, ROWS_MAX, SCALAR_STORE_VECTORS_MAX,
    SHIFTED_MAX, UPCAST_MAX, WINDOW_MAX, WINDOWS_MAX, WINDOWS_OF_ROWS_MAX,
};
use crate::opt::{Loop, Loops, OptOp, Setting};

/// Chooses the opts for a CPU with vectors.
pub(super) fn optimize(optimizer: &mut Optimizer<'_>) -> Result<(), Error> {
    let threads = threads(optimizer)?;
    cut_at_gates(optimizer)?;
    if !block_transposed(optimizer)? {
        vectorize(optimizer, threads)?;
    }
    if 1 < threads { divide_among_threads(optimizer, threads) } else { Ok(()) }
}

/// Returns the number of threads that the kernel is worth.
fn threads(optimizer: &Optimizer<'_>) -> Result<i64, Error> {
    let target = optimizer.setting.target;
    let is_long =
        1 < target.threads && target.thresholds.thread_iterations <= iterations(optimizer)?;
    Ok(if is_long { target.threads } else { 1 })
}

/// Returns the number of iterations of all loop nests of stores and reductions. Those of a nest
/// that is a part of another count there.
fn iterations(optimizer: &Optimizer<'_>) -> Result<i64, Error> {
    let free = Free::of(&optimizer.root)?;
    let loops_of = |node: &UOp| match node.op() {
        Op::Store => Some(free.of_node(node)),
        Op::Reduce => Some(free.of_node(node) | free.of_loops(node)),
        _ => None,
    };
    let mut nests: Vec<u64> = free.nodes.iter().filter_map(loops_of).collect();
    nests.sort_unstable();
    nests.dedup();
    let is_part = |nest: u64| nests.iter().any(|wider| *wider != nest && *wider & nest == nest);
    let size = |nest: u64| {
        let inside = optimizer.loops.list.iter().filter(|info| info.bit & nest != 0);
        inside.map(|info| info.size).fold(1, i64::saturating_mul)
    };
    let whole = nests.iter().copied().filter(|nest| !is_part(*nest));
    Ok(whole.map(size).fold(0, i64::saturating_add))
}

/// Divides an output loop among threads: the outermost one for which that is legal, and in which
/// all reductions are, as each part would repeat those outside of it; else the outermost of any.
/// If the threads cannot have equal parts, they get others.
fn divide_among_threads(optimizer: &mut Optimizer<'_>, threads: i64) -> Result<(), Error> {
    let list = &optimizer.loops.list;
    let is_plain = |info: &&Loop| info.axis.kind == AxisKind::Loop && info.is_output;
    let repeats =
        |info: &Loop| list.iter().any(|reduced| reduced.is_reduced && reduced.is_independent(info));
    let (repeating, whole): (Vec<&Loop>, Vec<&Loop>) =
        list.iter().filter(is_plain).partition(|info| repeats(info));
    // As many blocks as threads, or so many that no thread waits long for the others.
    let many = (4 * threads..=PARTS_PER_THREAD * threads).rev();
    let amounts: Vec<i64> = std::iter::once(threads).chain(many).collect();
    let numbers = |loops: Vec<&Loop>| -> Vec<i64> {
        loops.into_iter().map(|info| info.axis.number).collect()
    };
    let (repeating, whole) = (numbers(repeating), numbers(whole));
    for number in &whole {
        if optimizer.add_first_legal(OptOp::Thread, *number, &amounts)?.is_some() {
            return Ok(());
        }
    }
    for number in &whole {
        if divide_shifted(optimizer, *number, threads)? {
            return Ok(());
        }
    }
    if divide_unevenly(optimizer, &whole, 4 * threads, threads)? {
        return Ok(());
    }
    for number in &repeating {
        if optimizer.add_first_legal(OptOp::Thread, *number, &[threads])?.is_some() {
            return Ok(());
        }
    }
    divide_unevenly(optimizer, &repeating, threads, threads)?;
    Ok(())
}

/// Divides one of these loops into fewer than `limit` parts, of which some threads get more than
/// others, or none, so that the busiest thread has as little to do as possible. Returns whether
/// that is legal.
fn divide_unevenly(
    optimizer: &mut Optimizer<'_>,
    numbers: &[i64],
    limit: i64,
    threads: i64,
) -> Result<bool, Error> {
    let mut choices: Vec<(i64, i64)> = Vec::new();
    for number in numbers {
        let Some(index) = optimizer.index_of(*number) else { continue };
        let size = optimizer.loops.list[index].size;
        let divisors = (2..limit).filter(|parts| size % parts == 0);
        choices.extend(divisors.map(|parts| (*number, parts)));
    }
    // The number of parts that the busiest thread gets of so many.
    let busiest = |parts: i64| padded_size(parts, threads) / threads;
    choices.sort_by(|(_, x), (_, y)| (busiest(*x) * y).cmp(&(busiest(*y) * x)));
    for (number, parts) in choices {
        if optimizer.add(OptOp::Thread, number, parts)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Divides a loop among threads that has no multiple of as many iterations: its last block is
/// shifted inwards. Returns whether that is legal, and no thread gets much more than its part.
fn divide_shifted(optimizer: &mut Optimizer<'_>, number: i64, threads: i64) -> Result<bool, Error> {
    let Some(index) = optimizer.index_of(number) else { return Ok(false) };
    let size = optimizer.loops.list[index].size;
    // The last two blocks are of one thread.
    let blocks = (2 * threads..=8 * threads).step_by(threads as usize);
    let sizes = blocks.map(|blocks| padded_size(size, blocks) / blocks);
    let divides = |block: &i64| (padded_size(size, *block) / block) % threads == 0;
    let Some(block) = sizes.filter(divides).min_by_key(|block| padded_size(size, *block)) else {
        return Ok(false);
    };
    let (over, under) = SHIFTED_MAX;
    if size.saturating_mul(over) / under < padded_size(size, block) {
        return Ok(false);
    }
    let mut shifted = optimizer.clone();
    let is_divided = shifted.add(OptOp::Overlap, number, block)?
        && shifted.add(OptOp::Thread, number, threads)?;
    if is_divided {
        *optimizer = shifted;
    }
    Ok(is_divided)
}

/// Upcasts the loop of the lanes, and a second time for several vectors at once. Independent loops
/// get lanes of their own.
fn vectorize(optimizer: &mut Optimizer<'_>, threads: i64) -> Result<(), Error> {
    let accesses = Accesses::of(&optimizer.root)?;
    let Some(lane_index) = best_lane_loop(optimizer, &accesses) else { return Ok(()) };
    let lane_loop = optimizer.loops.list[lane_index].clone();
    let Some(amount) = lanes(optimizer, &accesses, &lane_loop) else { return Ok(()) };
    let is_independent = |info: &&Loop| info.is_independent(&lane_loop);
    let (independent, dependent): (Vec<&Loop>, Vec<&Loop>) =
        optimizer.loops.list.iter().partition(is_independent);
    let has_reduction = dependent.iter().any(|info| info.is_reduced);
    let independent: Vec<Loop> = independent.into_iter().cloned().collect();
    // Without vectors of halves a tile would be scalar ops, too many for the compiler.
    let has_vectors = !accesses.has_halves || 0 < optimizer.setting.target.vectors.half_lanes;
    let is_tiled = has_reduction && has_vectors && !lane_loop.is_reduced;
    let tiled = Lanes { info: &lane_loop, count: amount };
    let tile = if is_tiled { best_tile(optimizer, &accesses, &tiled, threads) } else { None };
    let vectors = match &tile {
        Some(tile) => {
            tile.add_rows(optimizer)?;
            tile.vectors
        }
        None if lane_loop.is_reduced => {
            let accumulators = dot_tile(optimizer, &accesses, &lane_loop, amount, threads)?;
            let more = ACCUMULATORS.iter().map(|count| count / accumulators);
            let more: Vec<i64> = more.filter(|count| 1 < *count).collect();
            optimizer.vectors(&lane_loop, amount, &more)
        }
        None if is_tiled => optimizer.vectors(&lane_loop, amount, &ACCUMULATORS),
        None => 1,
    };
    let shares_windows =
        tile.is_none() && is_tiled && share_windows(optimizer, &accesses, &lane_loop)?;
    // Rows that share windows keep their vectors in registers: several of each are too many.
    let vectors = if shares_windows { 1 } else { vectors };
    if is_tiled && !shares_windows {
        unroll_masks(optimizer, &accesses, &lane_loop)?;
    }
    cut_at_blocks(optimizer, &accesses, &lane_loop, amount)?;
    optimizer.add_lanes(&lane_loop, amount, vectors, threads)?;
    expand_between(optimizer, &accesses, &lane_loop)?;
    let mut vectorized = vec![lane_loop.clone()];
    for info in independent {
        let is_independent = vectorized.iter().all(|known| info.is_independent(known));
        let gains = lane_cost(optimizer, &accesses, &info).is_some();
        let amount = lanes(optimizer, &accesses, &info).filter(|_| is_independent && gains);
        if let Some(amount) = amount {
            let accumulators: &[i64] = if info.is_reduced { &ACCUMULATORS } else { &[] };
            let vectors = optimizer.vectors(&info, amount, accumulators);
            cut_at_blocks(optimizer, &accesses, &info, amount)?;
            optimizer.add_lanes(&info, amount, vectors, threads)?;
            vectorized.push(info);
        }
    }
    if let Some(Tile { reuse_loop, .. }) = tile {
        unroll_window(optimizer, &accesses, &reuse_loop)?;
        // The vectors stay in the cache during all iterations of the reuse loop.
        optimizer.make_innermost(reuse_loop.axis.number)?;
    }
    Ok(())
}

/// The loop of the lanes, and their number.
struct Lanes<'a> {
    info: &'a Loop,
    count: i64,
}

/// A register tile: several rows of a loop in which the load of a vector is invariant. Each row
/// loads one scalar for all vectors of the tile, and the vectors are loaded once for all rows.
struct Tile {
    reuse_loop: Loop,
    /// The number of vectors of a row, by which the loop of the lanes is upcast.
    vectors: i64,
    /// The numbers of rows that may be, the cheapest first.
    rows: Vec<i64>,
    /// The cost of all iterations of the reuse loop.
    cost: i64,
}

impl Tile {
    /// Upcasts the reuse loop by the first number of rows that is legal.
    fn add_rows(&self, optimizer: &mut Optimizer<'_>) -> Result<(), Error> {
        let number = self.reuse_loop.axis.number;
        for rows in &self.rows {
            let is_multiple = self.reuse_loop.size % rows == 0;
            let is_shifted = !is_multiple && optimizer.add(OptOp::Overlap, number, *rows)?;
            let is_upcast =
                (is_multiple || is_shifted) && optimizer.add(OptOp::Upcast, number, *rows)?;
            if is_upcast || is_shifted {
                break;
            }
        }
        Ok(())
    }

    /// Returns the cost of so many iterations.
    fn cost_of(&self, iterations: i64) -> i128 {
        let size = i128::from(self.reuse_loop.size.max(1));
        i128::from(self.cost) * i128::from(iterations) / size
    }
}

/// Returns the cheapest tile. Of tiles that cost about the same it is the one whose rows are
/// nearest in memory, so that they share cache lines.
fn best_tile(
    optimizer: &Optimizer<'_>,
    accesses: &Accesses,
    lanes: &Lanes<'_>,
    threads: i64,
) -> Option<Tile> {
    let reuse_loops = reuse_loops(&optimizer.loops, accesses, &lanes.info.range);
    let iterations = reuse_loops.iter().map(|info| info.size).max()?;
    let tiles = reuse_loops.into_iter().map(|info| tile(optimizer, accesses, info, lanes, threads));
    let tiles: Vec<Tile> = tiles.collect();
    let (over, under) = NEARER_ROWS_MAX;
    let least = tiles.iter().map(|tile| tile.cost_of(iterations)).min()?;
    let is_cheap = |tile: &Tile| tile.cost_of(iterations) <= least * over / under;
    let distance = |info: &Loop| {
        let loads = accesses.list.iter().filter(|access| !access.is_store);
        let strides = loads.map(|load| load.stride(&info.range).map_or(i64::MAX, i64::abs));
        strides.max().unwrap_or(0)
    };
    let key = |tile: &Tile| {
        let info = &tile.reuse_loop;
        (distance(info), Reverse(info.size), Reverse(info.axis.number))
    };
    tiles.into_iter().filter(is_cheap).min_by_key(key)
}

/// Returns the tile whose rows are iterations of a loop.
fn tile(
    optimizer: &Optimizer<'_>,
    accesses: &Accesses,
    reuse_loop: &Loop,
    Lanes { info: lane_loop, count: lanes }: &Lanes<'_>,
    threads: i64,
) -> Tile {
    let Setting { target, .. } = optimizer.setting;
    let registers = target.vectors.registers;
    let amounts: &[i64] = if registers < 32 { &[2] } else { &[4, 3, 2] };
    let vectors = optimizer.vectors(lane_loop, *lanes, amounts);
    // The accumulators, the vectors and one scalar must fit the registers.
    let rows_max = (registers - vectors - 1) / vectors;
    let rows_max = rows_max.min(UPCAST_MAX / (lanes * vectors)).min(ROWS_MAX);
    // Stores of single lanes make most of the source.
    let is_scalar_store =
        |access: &Access| access.is_store && access.stride(&lane_loop.range) != Some(1);
    // The windows of the gated loads are unrolled, which makes most of it as well.
    let is_gated = |info: &Loop| {
        is_window(info) && accesses.list.iter().any(|access| access.is_gated(&info.range))
    };
    let has_scalar_store =
        accesses.list.iter().any(is_scalar_store) && optimizer.loops.list.iter().any(is_gated);
    let scalar_max = SCALAR_STORE_VECTORS_MAX / vectors;
    let rows_max = if has_scalar_store { rows_max.min(scalar_max) } else { rows_max };
    let outputs = outputs(optimizer);
    let may_be = |rows: &i64| {
        let blocks = [(*lane_loop, lanes * vectors), (reuse_loop, *rows)];
        reuse_loop.size % rows == 0
            || are_divisible(&outputs, &blocks, threads) && optimizer.may_shift(reuse_loop, *rows)
    };
    // Multiply-adds and loads, including those of repeated iterations. A vector load counts twice,
    // since it reads a whole cache line.
    let cost = |rows: i64| {
        let tiles = (reuse_loop.size + rows - 1) / rows;
        tiles.saturating_mul(rows * vectors + rows + 2 * vectors)
    };
    let mut rows: Vec<i64> = (2..=rows_max).rev().filter(may_be).collect();
    rows.sort_by_key(|rows| cost(*rows));
    let cost = cost(rows.first().copied().unwrap_or(1));
    Tile { reuse_loop: reuse_loop.clone(), vectors, rows, cost }
}

/// Returns the output loops.
fn outputs(optimizer: &Optimizer<'_>) -> Vec<Loop> {
    optimizer.loops.list.iter().filter(|info| info.is_output).cloned().collect()
}

/// Returns whether threads can divide one of the output loops, if some have blocks of so many
/// iterations.
fn are_divisible(outputs: &[Loop], blocks: &[(&Loop, i64)], threads: i64) -> bool {
    let left = |info: &Loop| {
        let block = blocks.iter().find(|(known, _)| known.range == info.range);
        block.map_or(info.size, |(_, amount)| padded_size(info.size, *amount) / amount)
    };
    threads == 1 || outputs.iter().any(|info| 1 < left(info) && left(info) % threads == 0)
}

/// Makes a register tile of a reduction whose lanes run along the reduced loop, as that of the
/// products of two matrices that are both contiguous along it: upcasts the two output loops along
/// which vectors can be reused. Returns the number of accumulators.
fn dot_tile(
    optimizer: &mut Optimizer<'_>,
    accesses: &Accesses,
    lane_loop: &Loop,
    lanes: i64,
    threads: i64,
) -> Result<i64, Error> {
    let lane = &lane_loop.range;
    let loads: Vec<&Access> = accesses.list.iter().filter(|access| !access.is_store).collect();
    if loads.iter().any(|load| !matches!(load.stride(lane), Some(0 | 1))) {
        return Ok(1);
    }
    let outputs = outputs(optimizer);
    let is_plain = |info: &&Loop| info.axis.kind == AxisKind::Loop && !info.is_reduced;
    let vectors = || loads.iter().filter(|load| load.stride(lane) == Some(1));
    let mut reusing: Vec<&Loop> = outputs
        .iter()
        .filter(is_plain)
        .filter(|info| vectors().any(|load| load.stride(&info.range) == Some(0)))
        .filter(|info| !info.is_independent(lane_loop))
        .collect();
    reusing.sort_by_key(|info| (Reverse(info.size), info.axis.number));
    let Some(first) = reusing.first() else { return Ok(1) };
    // The vectors that the first loop reuses vary along the second one.
    let varies = |info: &&Loop| {
        let is_reused = |load: &&&Access| load.stride(&first.range) == Some(0);
        vectors().filter(is_reused).any(|load| load.stride(&info.range) != Some(0))
    };
    let sides: Vec<&Loop> =
        [*first].into_iter().chain(reusing.iter().copied().find(varies)).collect();
    let registers = optimizer.setting.target.vectors.registers;
    let amounts = |side: usize| -> Vec<i64> {
        let fits =
            |info: &Loop, amount: i64| info.size % amount == 0 || optimizer.may_shift(info, amount);
        let info = sides.get(side).into_iter();
        [1].into_iter()
            .chain(info.flat_map(|info| (2..=ROWS_MAX).filter(|n| fits(info, *n))))
            .collect()
    };
    let columns = amounts(1);
    let tiles = amounts(0).into_iter();
    let tiles = tiles.flat_map(|rows| columns.iter().map(move |columns| [rows, *columns]));
    let sided =
        |tile: &[i64; 2]| -> Vec<(&Loop, i64)> { sides.iter().copied().zip(*tile).collect() };
    // The accumulators, the vectors along the shorter side and one of the other must fit.
    let fits = |tile: &[i64; 2]| {
        let [rows, columns] = *tile;
        rows * columns + rows.min(columns) < registers
            && rows * columns * lanes <= UPCAST_MAX
            && are_divisible(&outputs, &sided(tile), threads)
    };
    // Multiply-adds and loads, including those of repeated iterations.
    let cost = |tile: &[i64; 2]| {
        let [rows, columns] = *tile;
        let blocks =
            sided(tile).into_iter().map(|(info, amount)| padded_size(info.size, amount) / amount);
        let blocks = blocks.fold(1, i64::saturating_mul);
        blocks.saturating_mul(rows * columns + rows + columns)
    };
    let Some(tile) = tiles.filter(fits).min_by_key(cost) else { return Ok(1) };
    let mut accumulators = 1;
    for (info, amount) in sided(&tile).into_iter().filter(|(_, amount)| 1 < *amount) {
        let number = info.axis.number;
        let is_divided =
            info.size % amount == 0 || optimizer.add(OptOp::Overlap, number, amount)?;
        if is_divided && optimizer.add(OptOp::Upcast, number, amount)? {
            accumulators *= amount;
        }
    }
    // The vectors of the shorter loop stay in the cache during all iterations of it.
    if let Some(shorter) = sides.get(1) {
        optimizer.make_innermost(shorter.axis.number)?;
    }
    Ok(accumulators)
}

/// Upcasts or unrolls the loops that access the elements between lanes that are two elements apart,
/// so that vectors of both can be loaded and stored.
fn expand_between(
    optimizer: &mut Optimizer<'_>,
    accesses: &Accesses,
    lane_loop: &Loop,
) -> Result<(), Error> {
    if !optimizer.setting.target.vectors.may_interleave() {
        return Ok(());
    }
    let is_between = |info: &&Loop| {
        accesses.list.iter().any(|access| access.is_interleaved(&lane_loop.range, info))
    };
    let between: Vec<Loop> = optimizer.loops.list.iter().filter(is_between).cloned().collect();
    for info in between {
        let op = if info.is_reduced { OptOp::Unroll } else { OptOp::Upcast };
        optimizer.add(op, info.axis.number, 0)?;
    }
    Ok(())
}

/// Returns whether a loop is reduced, and short enough to be unrolled.
fn is_window(info: &Loop) -> bool {
    info.is_reduced && info.size <= WINDOW_MAX
}

/// Unrolls the innermost short reduced loop that gates depend on, so that most of them are known to
/// be true, or along which loads are those of adjacent rows of the tile, which then share them.
fn unroll_window(
    optimizer: &mut Optimizer<'_>,
    accesses: &Accesses,
    reuse_loop: &Loop,
) -> Result<(), Error> {
    let gains = |access: &Access, info: &Loop| {
        let stride = access.stride(&info.range);
        let is_shared = stride != Some(0) && stride == access.stride(&reuse_loop.range);
        access.is_gated(&info.range) || stride.is_some() && is_shared
    };
    let does_gain = |info: &Loop| accesses.list.iter().any(|access| gains(access, info));
    let is_unrolled = |info: &&Loop| is_window(info) && does_gain(info);
    let last = optimizer.loops.list.iter().filter(is_unrolled).max_by_key(|info| info.axis.number);
    if let Some(number) = last.map(|info| info.axis.number) {
        optimizer.add(OptOp::Unroll, number, 0)?;
    }
    Ok(())
}

/// Unrolls the windows of a reduction none of whose vectors a tile reuses, as those of a depthwise
/// convolution, and upcasts a loop of rows whose windows overlap, which then share vectors. Returns
/// whether it found any.
fn share_windows(
    optimizer: &mut Optimizer<'_>,
    accesses: &Accesses,
    lane_loop: &Loop,
) -> Result<bool, Error> {
    let stride = |access: &Access, info: &Loop| access.index_stride(&info.range);
    let loads: Vec<&Access> = accesses.list.iter().filter(|access| !access.is_store).collect();
    let list = &optimizer.loops.list;
    let windows: Vec<Loop> = list.iter().filter(|info| info.is_reduced).cloned().collect();
    let products = windows.iter().map(|info| info.size).fold(1, i64::saturating_mul);
    let has_vectors = loads.iter().all(|load| matches!(stride(load, lane_loop), Some(0 | 1)));
    if !has_vectors || WINDOWS_MAX < products {
        return Ok(false);
    }
    let overlaps = |info: &&Loop| {
        let is_shared = |load: &&Access, window: &Loop| {
            stride(load, info) != Some(0) && stride(load, info) == stride(load, window)
        };
        info.axis.kind == AxisKind::Loop
            && info.is_output
            && windows.iter().any(|window| loads.iter().any(|load| is_shared(load, window)))
    };
    let overlapping: Vec<Loop> = list.iter().filter(overlaps).cloned().collect();
    if overlapping.is_empty() {
        return Ok(false);
    }
    let rows = overlapping.iter().filter(|info| info.range != lane_loop.range);
    if let Some(rows) = rows.max_by_key(|info| info.axis.number) {
        let limit = ROWS_MAX.min(WINDOWS_OF_ROWS_MAX / products.max(1));
        let amounts: Vec<i64> =
            (2..=limit).rev().filter(|amount| rows.size % amount == 0).collect();
        optimizer.add_first_legal(OptOp::Upcast, rows.axis.number, &amounts)?;
    }
    for window in windows.iter().rev() {
        optimizer.add(OptOp::Unroll, window.axis.number, 0)?;
    }
    Ok(true)
}

/// Unrolls the reduced loops on which the masks of lanes depend, as those of a running sum, so that
/// the masks are constants.
fn unroll_masks(
    optimizer: &mut Optimizer<'_>,
    accesses: &Accesses,
    lane_loop: &Loop,
) -> Result<(), Error> {
    let is_masked = |info: &&Loop| {
        info.is_reduced && !info.is_output && accesses.compares(&info.range, &lane_loop.range)
    };
    let masked = optimizer.loops.list.iter().filter(is_masked).map(|info| info.axis.number);
    for number in masked.collect::<Vec<i64>>() {
        optimizer.add(OptOp::Unroll, number, 0)?;
    }
    Ok(())
}

/// Cuts the rest off a loop with lanes in which nothing is reduced, if lanes that begin at a
/// multiple of their number load the same element: shifted inwards they would not.
fn cut_at_blocks(
    optimizer: &mut Optimizer<'_>,
    accesses: &Accesses,
    lane_loop: &Loop,
    lanes: i64,
) -> Result<(), Error> {
    let Some(index) = optimizer.index_of(lane_loop.axis.number) else { return Ok(()) };
    let list = &optimizer.loops.list;
    // The bits of the loops have changed with the opts so far.
    let is_within = |info: &Loop| info.is_reduced && !info.is_independent(&list[index]);
    if list.iter().any(is_within) {
        return Ok(());
    }
    let rest = lane_loop.size % lanes;
    let is_repeated = |access: &Access| access.is_repeated(&lane_loop.range, lanes);
    if rest != 0 && lanes < lane_loop.size && accesses.list.iter().any(is_repeated) {
        optimizer.add(OptOp::Cut, lane_loop.axis.number, lane_loop.size - rest)?;
    }
    Ok(())
}

/// Returns the output loops in which the load of a vector is invariant, so that the vector can be
/// reused.
fn reuse_loops<'a>(loops: &'a Loops, accesses: &Accesses, lane: &UOp) -> Vec<&'a Loop> {
    let loads = || accesses.list.iter().filter(|access| !access.is_store);
    let has_reuse = |info: &&Loop| {
        let is_output = info.axis.kind == AxisKind::Loop && info.is_output && !info.is_reduced;
        let is_invariant =
            |load: &Access| load.stride(lane) == Some(1) && load.stride(&info.range) == Some(0);
        is_output && info.range != *lane && loads().any(is_invariant)
    };
    let is_gated = |info: &Loop| accesses.list.iter().any(|access| access.is_gated(&info.range));
    let (gated, plain): (Vec<&Loop>, Vec<&Loop>) =
        loops.list.iter().filter(has_reuse).partition(|info| is_gated(info));
    // Rows with gates of their own cost more than rows that are far from each other.
    if plain.is_empty() { gated } else { plain }
}
