//! Opt `stage`: the threads of a group load the operands of a reduction together.
//!
//! The reduced loop is split into blocks. For each block the threads copy all elements that any of
//! them needs, a tile of each array, into local memory, and wait; then each thread loads from
//! there. Adjacent threads copy adjacent elements, and each element is copied once.
//!
//! The index of a load is a sum of terms that are the same for all threads and all iterations of a
//! block, and of digits: values from 0 up that threads, upcast and unrolled iterations or the
//! iterations of the block select, each with a weight. Digits whose weights follow one another, as
//! in a mixed radix, count along one axis of the tile. A load that differs from another one by a
//! constant alone, as those of a fragment do, has that as a digit, too.

use gradiff_graph::{Arg, AxisKind, DType, Local, Op, Sources, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::Setting;
use super::limits::groups_of;
use super::loop_info::Loop;
use super::loops::Loops;
use super::replace::{Replacement, replace, split};
use super::tuning::{COPIES_MAX, STAGED_MAX, TILE_MAX};
use crate::Error;
use crate::free::Free;
use crate::nodes::{map_nodes, range};

/// Checks that a reduced loop may be staged in blocks of so many iterations.
///
/// # Errors
/// The reason why it may not.
pub(super) fn check(
    loops: &Loops,
    info: &Loop,
    amount: i64,
    setting: Setting<'_>,
) -> Result<(), String> {
    plan(loops, info, amount, setting).map(drop)
}

/// Applies the opt to a kernel for which it is legal.
pub(super) fn apply(
    root: &UOp,
    loops: &Loops,
    info: &Loop,
    amount: i64,
    setting: Setting<'_>,
) -> Result<UOp, Error> {
    let (reduction, staged) = plan(loops, info, amount, setting).map_err(Error::Illegal)?;
    map_nodes(&root.toposort(), |old, node| {
        Ok(if *old == reduction { staged.clone() } else { node })
    })
}

/// Returns the reduction over the loop, and what takes its place.
fn plan(
    loops: &Loops,
    info: &Loop,
    amount: i64,
    setting: Setting<'_>,
) -> Result<(UOp, UOp), String> {
    let refuse = |holds: bool, why: &str| if holds { Err(why.to_owned()) } else { Ok(()) };
    let groups = groups_of(loops, setting)?;
    let threads = Threads::of(loops);
    refuse(threads.count == 1, "the kernel has no local loops")?;
    refuse(loops.is_in_place, "the kernel loads from an array that it stores to")?;
    refuse(loops.has(AxisKind::Group), "a reduction is divided among threads")?;
    refuse(loops.has_local_arrays, "the kernel has local arrays")?;
    let [(number, _)] = info.reductions.as_slice() else {
        return Err("stage takes a loop of one reduction".to_owned());
    };
    let reduction = &loops.reductions[*number];
    let is_inside = |node: &UOp| node.op() == Op::Reduce && node != reduction;
    refuse(
        info.is_output || info.is_nested || reduction.toposort().iter().any(is_inside),
        "stage takes a loop that is only reduced, of a reduction that is not in another one",
    )?;
    loops.check_loop_count(1 + 2 * STAGED_MAX, &setting.target.thresholds)?;
    let text = |error: Error| error.to_string();
    let inner = range(amount, info.range.dtype(), AxisKind::Loop, loops.next_number());
    let blocked = replace(reduction, &[split(info, &inner, amount, false)]).map_err(text)?;
    let free = Free::of(&blocked).map_err(text)?;
    let tiles = tiles(&free, &inner, &threads, setting)?;
    let bytes = |tile: &Tile| {
        tile.stored_elements() * (tile.array.dtype().size_bytes() as i64).max(groups.element_bytes)
    };
    // See the pass `pipeline`.
    let copies = if setting.target.copies_async { 2 } else { 1 };
    let bytes: i64 = tiles.iter().map(bytes).sum::<i64>() * copies;
    if groups.local_bytes < bytes {
        let limit = groups.local_bytes;
        return Err(format!("{bytes} bytes of local memory, at most {limit} are possible"));
    }
    let mut staging =
        Staging { threads: &threads, next_number: loops.next_number() + 1, ranges: Vec::new() };
    Ok((reduction.clone(), staging.stage(&blocked, &tiles).map_err(text)?))
}

/// The threads of a group.
struct Threads {
    /// The number of a thread; adjacent threads have adjacent numbers.
    number: UOp,
    count: i64,
}

impl Threads {
    fn of(loops: &Loops) -> Threads {
        let is_thread = |info: &&Loop| matches!(info.axis.kind, AxisKind::Local | AxisKind::Warp);
        let mut list: Vec<&Loop> = loops.list.iter().filter(is_thread).collect();
        // As they are launched: the threads of a warp are adjacent.
        list.sort_by_key(|info| (info.axis.kind == AxisKind::Warp, info.axis.number));
        let dtype = list.first().map_or(DType::I32, |info| info.range.dtype());
        let number = list.iter().fold(UOp::int(dtype, 0), |number, info| {
            let scaled = UOp::binary(Op::Mul, number, UOp::int(dtype, info.size));
            UOp::binary(Op::Add, scaled, info.range.clone())
        });
        Threads { number, count: list.iter().map(|info| info.size).product() }
    }
}

/// The elements of an array that the threads of a group load in a block.
struct Tile {
    array: UOp,
    /// The terms of the index that are the same for all, with their factors, and a constant.
    uniform: Vec<(UOp, i64)>,
    constant: i64,
    gate: Option<UOp>,
    /// The digits, the one of the smallest weight first.
    digits: Vec<Digit>,
    /// The axes, the innermost first.
    axes: Vec<TileAxis>,
    /// Elements of an access of a thread.
    lanes: i64,
    /// The loads, each with the difference of its constant.
    loads: Vec<(UOp, i64)>,
}

/// A digit of an index.
#[derive(Clone)]
struct Digit {
    /// Its value; none if it is part of the constant of a load.
    value: Option<UOp>,
    weight: i64,
    /// The number of its values.
    count: i64,
    /// The axis of the tile, and its weight there.
    axis: usize,
    step: i64,
}

/// An axis of a tile.
struct TileAxis {
    /// The elements of the array from an index to the next.
    stride: i64,
    size: i64,
    /// The elements of the local array from an index to the next.
    local_stride: i64,
}

impl Tile {
    fn elements(&self) -> i64 {
        self.axes.iter().map(|axis| axis.size).product()
    }

    /// Returns the size of the local array.
    fn stored_elements(&self) -> i64 {
        self.axes.last().map_or(1, |axis| axis.size * axis.local_stride)
    }
}

/// An index without the constant.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Terms {
    uniform: Vec<(UOp, i64)>,
    digits: Vec<(UOp, i64)>,
}

/// Returns the tiles of the loads that several threads share.
fn tiles(
    free: &Free,
    inner: &UOp,
    threads: &Threads,
    setting: Setting<'_>,
) -> Result<Vec<Tile>, String> {
    let is_within = |range: &&UOp| {
        let kind = match range.arg() {
            Arg::Axis(axis) => axis.kind,
            _ => AxisKind::Loop,
        };
        **range == *inner
            || matches!(
                kind,
                AxisKind::Local | AxisKind::Warp | AxisKind::Upcast | AxisKind::Unroll
            )
    };
    let within = free.ranges().filter(is_within).fold(0, |bits, range| bits | free.of_node(range));
    let mut places: Vec<(UOp, Terms)> = Vec::new();
    let mut loads_at: FxHashMap<(UOp, Terms), Vec<(UOp, i64)>> = FxHashMap::default();
    for load in free.nodes.iter().filter(|node| node.op() == Op::Load && node.src().len() == 1) {
        let array = &load.src()[0].src()[0];
        let is_staged =
            array.op() == Op::DefineGlobal && free.of_node(load) & free.of_node(inner) != 0;
        let Some((terms, constant)) = is_staged.then(|| terms(load, free, within)).flatten() else {
            continue;
        };
        let place = (array.clone(), terms);
        let loads = loads_at.entry(place.clone()).or_insert_with(|| {
            places.push(place);
            Vec::new()
        });
        loads.push((load.clone(), constant));
    }
    let iterations = |load: &UOp| {
        let is_own = |range: &&UOp| {
            is_within(range) && free.of_node(range) & free.of_node(load) != 0 && !is_thread(range)
        };
        let sizes = free.ranges().filter(is_own).map(|range| range.trip_count());
        sizes.map(|count| count.unwrap_or(i64::MAX)).product::<i64>()
    };
    let mut found = Vec::new();
    for place in places {
        let loads = loads_at.remove(&place).unwrap_or_default();
        let (array, terms) = place;
        let loaded = threads.count * iterations(&loads[0].0) * loads.len() as i64;
        let tile = Tile::of(array, terms, loads, free, within, threads, setting);
        found.extend(tile.filter(|tile| 2 * tile.elements() <= loaded));
    }
    match found.len() {
        0 => Err("no elements that several threads load are a tile".to_owned()),
        1..=STAGED_MAX => Ok(found),
        count => Err(format!("{count} tiles, at most {STAGED_MAX} are possible")),
    }
}

fn is_thread(range: &UOp) -> bool {
    matches!(range.arg(), Arg::Axis(axis) if matches!(axis.kind, AxisKind::Local | AxisKind::Warp))
}

/// Returns the terms of the index of a load; `None` if they cannot be told apart.
fn terms(load: &UOp, free: &Free, within: u64) -> Option<(Terms, i64)> {
    let mut pending = vec![(load.src()[0].src()[1].clone(), 1i64)];
    let mut factors: FxHashMap<UOp, i64> = FxHashMap::default();
    let mut order: Vec<UOp> = Vec::new();
    let mut sum = 0i64;
    let constant = |node: &UOp| node.as_int().and_then(|value| i64::try_from(value).ok());
    while let Some((node, factor)) = pending.pop() {
        if let Some(value) = constant(&node) {
            sum = sum.checked_add(value.checked_mul(factor)?)?;
            continue;
        }
        let [x, y] = node.src() else {
            add_term(&mut factors, &mut order, node, factor)?;
            continue;
        };
        match (node.op(), constant(x), constant(y)) {
            (Op::Add, ..) => pending.extend([(y.clone(), factor), (x.clone(), factor)]),
            (Op::Mul, _, Some(more)) => pending.push((x.clone(), factor.checked_mul(more)?)),
            (Op::Mul, Some(more), _) => pending.push((y.clone(), factor.checked_mul(more)?)),
            _ => add_term(&mut factors, &mut order, node.clone(), factor)?,
        }
    }
    let (mut uniform, mut digits) = (Vec::new(), Vec::new());
    for node in order {
        let factor = factors[&node];
        match free.of_node(&node) {
            _ if factor == 0 => {}
            bits if bits & within == 0 => uniform.push((node, factor)),
            bits if bits & !within == 0 => digits.push((node, factor)),
            _ => return None,
        }
    }
    let by = |(x, _): &(UOp, i64), (y, _): &(UOp, i64)| x.structural_cmp(y);
    uniform.sort_by(by);
    digits.sort_by(|x, y| x.1.cmp(&y.1).then_with(|| by(x, y)));
    Some((Terms { uniform, digits }, sum))
}

fn add_term(
    factors: &mut FxHashMap<UOp, i64>,
    order: &mut Vec<UOp>,
    node: UOp,
    factor: i64,
) -> Option<()> {
    let known = factors.entry(node.clone()).or_insert_with(|| {
        order.push(node);
        0
    });
    *known = known.checked_add(factor)?;
    Some(())
}

impl Tile {
    /// Returns the tile of loads with these terms; `None` if their digits are not those of a mixed
    /// radix, or a gate depends on more than the digits.
    fn of(
        array: UOp,
        Terms { uniform, digits }: Terms,
        mut loads: Vec<(UOp, i64)>,
        free: &Free,
        within: u64,
        threads: &Threads,
        setting: Setting<'_>,
    ) -> Option<Tile> {
        let constant = loads.iter().map(|(_, constant)| *constant).min()?;
        loads.iter_mut().for_each(|(_, difference)| *difference -= constant);
        let mut list: Vec<Digit> = Vec::new();
        let digit = |value, weight, count| Digit { value, weight, count, axis: 0, step: 1 };
        for (value, weight) in &digits {
            let (low, high) = gradiff_rewrite::bounds(value);
            let count = i64::try_from(high).ok()?.checked_add(1)?;
            (low == 0 && count <= TILE_MAX).then_some(())?;
            list.push(digit(Some(value.clone()), *weight, count));
        }
        are_independent(&list, free).then_some(())?;
        let bits = bits_of(loads.iter().map(|(_, difference)| *difference))?;
        list.extend(bits.iter().map(|weight| digit(None, *weight, 2)));
        let gate = loads[0].0.src()[0].src().get(2).cloned();
        if let Some(gate) = &gate {
            let is_same = |(load, _): &(UOp, i64)| load.src()[0].src().get(2) == Some(gate);
            let is_decided = bits.is_empty() || free.of_node(gate) & within == 0;
            (loads.iter().all(is_same) && is_decided).then_some(())?;
            let zero = |digit: &Digit| {
                let value = digit.value.clone()?;
                let zero = UOp::int(value.dtype(), 0);
                Some(Replacement::value(&value, zero))
            };
            let zeros: Vec<Replacement> = list.iter().filter_map(zero).collect();
            let rest = replace(gate, &zeros).ok()?;
            let is_known = |node: &UOp| node.op() != Op::Range || free.of_node(node) & within == 0;
            rest.toposort().iter().all(is_known).then_some(())?;
        } else if loads.iter().any(|(load, _)| load.src()[0].src().len() == 3) {
            return None;
        }
        list.sort_by_key(|digit| digit.weight);
        let mut axes: Vec<TileAxis> = Vec::new();
        for digit in &mut list {
            let is_next =
                |axis: &TileAxis| axis.stride.checked_mul(axis.size) == Some(digit.weight);
            if !axes.last().is_some_and(is_next) {
                let reach: i64 = axes.iter().map(|axis| axis.stride * (axis.size - 1)).sum();
                (reach < digit.weight).then_some(())?;
                axes.push(TileAxis { stride: digit.weight, size: 1, local_stride: 1 });
            }
            digit.axis = axes.len() - 1;
            let axis = axes.last_mut()?;
            digit.step = axis.size;
            axis.size = axis.size.checked_mul(digit.count)?;
        }
        let elements = axes.iter().try_fold(1i64, |count, axis| count.checked_mul(axis.size))?;
        (elements <= TILE_MAX).then_some(())?;
        let lanes = lanes(&array, &uniform, constant, &axes, gate.is_some(), threads, setting);
        // Rows do not begin at the same bank of the memory.
        let bytes = i64::from(setting.target.vectors.bytes.max(4));
        let padding = (bytes / array.dtype().size_bytes() as i64).max(1);
        let mut local_stride = 1;
        let count = axes.len();
        for (number, axis) in axes.iter_mut().enumerate() {
            axis.local_stride = local_stride;
            local_stride *= axis.size;
            if number == 0 && 1 < count {
                local_stride += padding;
            }
        }
        Some(Tile { array, uniform, constant, gate, digits: list, axes, lanes, loads })
    }
}

/// Returns the elements that a thread copies at once: the most that divide the innermost axis, are
/// contiguous and aligned, and leave work for all threads.
fn lanes(
    array: &UOp,
    uniform: &[(UOp, i64)],
    constant: i64,
    axes: &[TileAxis],
    is_gated: bool,
    threads: &Threads,
    setting: Setting<'_>,
) -> i64 {
    let elements: i64 = axes.iter().map(|axis| axis.size).product();
    let limit = setting.target.vectors.lanes_of(array.dtype());
    let is_possible = |lanes: &i64| {
        let is_multiple = |number: i64| number % lanes == 0;
        let strides = axes.iter().skip(1).all(|axis| is_multiple(axis.stride));
        let terms = uniform.iter().all(|(_, factor)| is_multiple(*factor));
        let [first, ..] = axes else { return false };
        let fits = is_multiple(first.size) && elements % (lanes * threads.count) == 0;
        first.stride == 1 && fits && strides && terms && is_multiple(constant)
    };
    let choices = [8, 4, 2].into_iter().filter(|lanes| *lanes <= limit && !is_gated);
    choices.clone().find(is_possible).unwrap_or(1)
}

/// Returns whether digits take all combinations of values: each depends on one range, and digits of
/// the same range are different ones of its number.
fn are_independent(digits: &[Digit], free: &Free) -> bool {
    let values = || digits.iter().filter_map(|digit| digit.value.as_ref());
    let mut seen = 0u64;
    for value in values() {
        let bits = free.of_node(value);
        if bits.count_ones() != 1 {
            return false;
        }
        if seen & bits != 0 {
            continue;
        }
        seen |= bits;
        let Some(range) = free.ranges().find(|range| free.of_node(range) == bits) else {
            return false;
        };
        let of_range: Vec<&Digit> = digits
            .iter()
            .filter(|digit| digit.value.as_ref().is_some_and(|value| free.of_node(value) == bits))
            .collect();
        if of_range.len() == 1 && value == range {
            continue;
        }
        let number = |digit: &Digit, counter: i64| {
            digit.value.as_ref().and_then(|value| number_at(value, range, counter))
        };
        let tuple = |counter| {
            of_range.iter().map(|digit| number(digit, counter)).collect::<Option<Vec<i64>>>()
        };
        let count = range.trip_count().unwrap_or(i64::MAX).min(TILE_MAX);
        let Some(mut found) = (0..count).map(tuple).collect::<Option<Vec<_>>>() else {
            return false;
        };
        found.sort_unstable();
        found.dedup();
        let combinations: i64 = of_range.iter().map(|digit| digit.count).product();
        if found.len() as i64 != combinations {
            return false;
        }
    }
    true
}

/// Evaluates an integer at a value of the range that it depends on.
fn number_at(node: &UOp, range: &UOp, counter: i64) -> Option<i64> {
    if node == range {
        return Some(counter);
    }
    if let Some(value) = node.as_int() {
        return i64::try_from(value).ok();
    }
    let [x, y] = node.src() else { return None };
    let [x, y] = [number_at(x, range, counter)?, number_at(y, range, counter)?];
    match node.op() {
        Op::Add => x.checked_add(y),
        Op::Mul => x.checked_mul(y),
        Op::FloorDiv if 0 < y => Some(x.div_euclid(y)),
        Op::FloorMod if 0 < y => Some(x.rem_euclid(y)),
        _ => None,
    }
}

/// Returns numbers of whose subsets these are the sums, from 0 up; `None` if there are none.
fn bits_of(numbers: impl Iterator<Item = i64>) -> Option<SmallVec<[i64; 4]>> {
    let mut numbers: Vec<i64> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut bits: SmallVec<[i64; 4]> = SmallVec::new();
    let mut sums = vec![0i64];
    while let Some(next) = numbers.iter().find(|number| !sums.contains(number)) {
        bits.push(*next);
        let more: Vec<i64> = sums.iter().map(|sum| sum + next).collect();
        sums.extend(more);
        if numbers.len() < sums.len() {
            return None;
        }
    }
    sums.sort_unstable();
    (sums == numbers).then_some(bits)
}

/// Makes the copies.
struct Staging<'a> {
    threads: &'a Threads,
    next_number: i64,
    /// The loops over the elements that a thread copies.
    ranges: Vec<UOp>,
}

impl Staging<'_> {
    /// Returns the reduction with its loads from local memory.
    fn stage(&mut self, blocked: &UOp, tiles: &[Tile]) -> Result<UOp, Error> {
        let local = |(number, tile): (usize, &Tile)| {
            let local = Local { number, size_elements: tile.stored_elements() };
            UOp::new(Op::DefineLocal, tile.array.dtype(), [], Arg::Local(local))
        };
        let arrays: Vec<UOp> = tiles.iter().enumerate().map(local).collect();
        let stores = tiles.iter().zip(&arrays).map(|(tile, array)| self.copy(tile, array));
        let stores: Vec<UOp> = stores.collect::<Result<_, _>>()?;
        let src: Sources = stores.into_iter().chain(self.ranges.drain(..)).collect();
        let barrier = UOp::new(Op::Barrier, DType::Void, src, Arg::None);
        let mut loads: FxHashMap<UOp, UOp> = FxHashMap::default();
        for (tile, array) in tiles.iter().zip(&arrays) {
            for (load, difference) in &tile.loads {
                let index = tile.index_of(load, *difference);
                let address = UOp::new(Op::Index, load.dtype(), [array.clone(), index], Arg::None);
                let staged = [address, barrier.clone()];
                loads.insert(load.clone(), UOp::new(Op::Load, load.dtype(), staged, Arg::None));
            }
        }
        map_nodes(&blocked.toposort(), |old, node| Ok(loads.get(old).cloned().unwrap_or(node)))
    }

    fn range(&mut self, dtype: DType, size: i64, kind: AxisKind) -> UOp {
        self.next_number += 1;
        let range = range(size, dtype, kind, self.next_number - 1);
        self.ranges.push(range.clone());
        range
    }

    /// Returns the store of each element that a thread copies.
    fn copy(&mut self, tile: &Tile, array: &UOp) -> Result<UOp, Error> {
        let dtype = tile.index_dtype();
        let int = |value: i64| UOp::int(dtype, value);
        let binary = UOp::binary;
        let accesses = tile.elements() / tile.lanes;
        let copies = (accesses + self.threads.count - 1) / self.threads.count;
        let mut number = self.threads.number.clone();
        if 1 < copies {
            let kind = if copies <= COPIES_MAX { AxisKind::Upcast } else { AxisKind::Loop };
            let copy = self.range(dtype, copies, kind);
            let before = binary(Op::Mul, copy, int(self.threads.count));
            number = binary(Op::Add, before, number);
        }
        let mut counters: Vec<UOp> = Vec::new();
        let mut rest = number.clone();
        for (axis, TileAxis { size, .. }) in tile.axes.iter().enumerate() {
            let count = if axis == 0 { size / tile.lanes } else { *size };
            let is_last = axis + 1 == tile.axes.len();
            let counter = match is_last {
                true => rest.clone(),
                false => binary(Op::FloorMod, rest.clone(), int(count)),
            };
            rest = binary(Op::FloorDiv, rest, int(count));
            counters.push(match (axis, tile.lanes) {
                (0, lanes @ 2..) => {
                    let lane = self.range(dtype, lanes, AxisKind::Upcast);
                    binary(Op::Add, binary(Op::Mul, counter, int(lanes)), lane)
                }
                _ => counter,
            });
        }
        let sum = |start: UOp, stride: &dyn Fn(&TileAxis) -> i64| {
            let axes = tile.axes.iter().zip(&counters);
            axes.fold(start, |sum, (axis, counter)| {
                binary(Op::Add, sum, binary(Op::Mul, counter.clone(), int(stride(axis))))
            })
        };
        let uniform = tile.uniform.iter().fold(int(tile.constant), |sum, (term, factor)| {
            binary(Op::Add, sum, binary(Op::Mul, term.clone(), int(*factor)))
        });
        let from = sum(uniform, &|axis| axis.stride);
        let to = sum(int(0), &|axis| axis.local_stride);
        let is_element =
            (accesses % self.threads.count != 0).then(|| binary(Op::CmpLt, number, int(accesses)));
        let values = tile.digits.iter().filter_map(|digit| {
            let counter = counters[digit.axis].clone();
            let value = binary(Op::FloorDiv, counter, int(digit.step));
            let value = binary(Op::FloorMod, value, int(digit.count));
            Some(Replacement::value(digit.value.as_ref()?, value))
        });
        let values: Vec<Replacement> = values.collect();
        let gate = tile.gate.as_ref().map(|gate| replace(gate, &values)).transpose()?;
        let both = |x: Option<UOp>, y: Option<UOp>| match (x, y) {
            (Some(x), Some(y)) => Some(binary(Op::And, x, y)),
            (x, y) => x.or(y),
        };
        let address = |array: &UOp, index: UOp, gate: Option<UOp>| {
            let src: Sources = [array.clone(), index].into_iter().chain(gate).collect();
            UOp::new(Op::Index, array.dtype(), src, Arg::None)
        };
        let from = address(&tile.array, from, both(is_element.clone(), gate));
        let load = UOp::new(Op::Load, array.dtype(), [from], Arg::None);
        let to = address(array, to, is_element);
        Ok(UOp::new(Op::Store, DType::Void, [to, load], Arg::None))
    }
}

impl Tile {
    fn index_dtype(&self) -> DType {
        self.loads[0].0.src()[0].src()[1].dtype()
    }

    /// Returns the index in the local array of what a load loads.
    fn index_of(&self, load: &UOp, difference: i64) -> UOp {
        let dtype = load.src()[0].src()[1].dtype();
        let mut left = difference;
        let mut constant = 0;
        let mut index = UOp::int(dtype, 0);
        for digit in self.digits.iter().rev() {
            let weight = digit.step * self.axes[digit.axis].local_stride;
            match &digit.value {
                Some(value) => {
                    let term = UOp::binary(Op::Mul, value.clone(), UOp::int(dtype, weight));
                    index = UOp::binary(Op::Add, index, term);
                }
                None if digit.weight <= left => {
                    left -= digit.weight;
                    constant += weight;
                }
                None => {}
            }
        }
        UOp::binary(Op::Add, index, UOp::int(dtype, constant))
    }
}
