//! Pass `groups`: reductions that are divided among the threads of a group use local memory, and
//! the output loops become the grid of the launch.
//!
//! Each thread reduces its part, stores the result into its element of a local array and waits at a
//! barrier; then each thread reduces all elements. If they are many it does so in two steps, with a
//! second array between them. One of the threads stores the final result, or each stores the part
//! of a row to which it is broadcast.

use gradiff_graph::{Arg, AxisKind, DType, Local, Op, Sources, UOp};

use super::loop_info::Loop;
use super::loops::{Loops, loops as loops_of};
use super::replace::{Replacement, replace};
use crate::Error;
use crate::context::Context;
use crate::free::Free;
use crate::nodes::{gated_address, map_nodes, range, reduce_arg};
use crate::scatter::is_update;

/// Maps a kernel to thread groups. Of kernels with several stores only those of updates are
/// launched, in groups of one thread.
pub(crate) fn to_groups(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let Some(groups) = ctx.target.groups else { return Ok(root.clone()) };
    let loops = loops_of(root)?;
    let has_updates = root.src().iter().any(is_update);
    if loops.stores != 1 && !has_updates {
        return Ok(root.clone());
    }
    let rows = broadcast_loops(root, &loops)?;
    let has_group = loops.has(AxisKind::Group);
    let least = ctx.target.thresholds.twice_reduced_threads;
    let root = if has_group { reduce_in_local_memory(root, &loops, least)? } else { root.clone() };
    let has_warp = loops.has(AxisKind::Warp);
    let innermost = if has_warp { loops_of(&root)?.next_number() } else { 0 };
    let is_launched = |info: &Loop| info.is_in_each_store && !info.is_reduced && !info.is_ordered;
    let launched = |info: &Loop| match info.axis.kind {
        AxisKind::Group => Some(Replacement::of_kind(info, AxisKind::Local)),
        AxisKind::Warp => {
            let local = range(info.size, info.range.dtype(), AxisKind::Local, innermost);
            Some(Replacement::range(info, local))
        }
        AxisKind::Loop if is_launched(info) && rows & info.bit == 0 => {
            Some(Replacement::of_kind(info, AxisKind::Global))
        }
        _ => None,
    };
    let root = replace(&root, &loops.list.iter().filter_map(launched).collect::<Vec<_>>())?;
    super::grid::limit(&root, groups, &ctx.target.thresholds)
}

/// Returns the output loops (bits) along which the threads of a reduction store what its result is
/// broadcast to. They remain loops of a thread, so that the reduction runs once.
fn broadcast_loops(root: &UOp, loops: &Loops) -> Result<u64, Error> {
    let shared = loops.list.iter().filter(|info| info.axis.kind == AxisKind::Group);
    let shared: Vec<&Loop> = shared.filter(|info| info.is_output).collect();
    if shared.is_empty() {
        return Ok(0);
    }
    let free = Free::of(root)?;
    let numbers = shared.iter().flat_map(|info| &info.reductions);
    let used = numbers
        .fold(0, |bits, (number, _)| bits | free.of_node(&loops.reductions[*number].src()[0]));
    let is_output = |info: &&Loop| info.is_output && !info.is_reduced && used & info.bit == 0;
    Ok(loops.list.iter().filter(is_output).fold(0, |bits, info| bits | info.bit))
}

/// Makes the reductions over ranges of groups use local memory, in two steps from so many threads
/// on.
fn reduce_in_local_memory(
    root: &UOp,
    loops: &Loops,
    twice_reduced_threads: i64,
) -> Result<UOp, Error> {
    let free = Free::of(root)?;
    let is_thread =
        |info: &&Loop| matches!(info.axis.kind, AxisKind::Local | AxisKind::Group | AxisKind::Warp);
    let mut threads: Vec<&Loop> = loops.list.iter().filter(is_thread).collect();
    threads.sort_by_key(|info| info.axis.number);
    let upcast = |info: &&Loop| info.axis.kind == AxisKind::Upcast && info.is_output;
    let upcast: Vec<&Loop> = loops.list.iter().filter(upcast).collect();
    let arrays = root.toposort().iter().filter(|node| node.op() == Op::DefineLocal).count();
    let next_number = loops.next_number();
    let mut reducer = GroupReducer { next_number, arrays, twice_reduced_threads };
    let groups: Vec<&Loop> =
        threads.iter().copied().filter(|info| info.axis.kind == AxisKind::Group).collect();
    let order = root.toposort();
    let root = map_nodes(&order, |old, node| {
        if old.op() != Op::Reduce {
            return Ok(node);
        }
        let over: Vec<&Loop> =
            groups.iter().copied().filter(|info| old.src()[1..].contains(&info.range)).collect();
        if over.is_empty() {
            return Ok(node);
        }
        let bits = free.of_node(&old.src()[0]);
        let own_upcast = upcast.iter().filter(|info| bits & free.of_node(&info.range) != 0);
        let dims: Vec<&Loop> = own_upcast.chain(&threads).copied().collect();
        Ok(reducer.reduce(&node, &over, &dims))
    })?;
    // All threads have the result; the first one stores it, unless they store different elements.
    let dtype = groups[0].range.dtype();
    let is_first = |info: &&Loop| UOp::binary(Op::CmpLt, info.range.clone(), UOp::int(dtype, 1));
    let gate = groups.iter().filter(|info| !info.is_output).map(is_first);
    let gate = gate.reduce(|x, y| UOp::binary(Op::And, x, y));
    let stores: Vec<UOp> = root.src().iter().map(|store| gated(store, gate.as_ref())).collect();
    Ok(root.with_src(stores))
}

/// Adds a gate to a store.
fn gated(store: &UOp, gate: Option<&UOp>) -> UOp {
    let Some(gate) = gate else { return store.clone() };
    store.with_src([gated_address(&store.src()[0], gate), store.src()[1].clone()])
}

/// Divides reductions among the threads of a group.
struct GroupReducer {
    /// The number of the next range.
    next_number: i64,
    /// The number of local arrays so far.
    arrays: usize,
    twice_reduced_threads: i64,
}

impl GroupReducer {
    /// Divides a reduction among the threads of the loops `over`; `dims` are the dimensions of its
    /// local array.
    fn reduce(&mut self, reduction: &UOp, over: &[&Loop], dims: &[&Loop]) -> UOp {
        let Arg::Reduce(op, _) = reduction.arg() else { return reduction.clone() };
        let dtype = reduction.dtype();
        let is_sequential = |range: &&UOp| !over.iter().any(|info| info.range == **range);
        let sequential: Vec<UOp> =
            reduction.src()[1..].iter().filter(is_sequential).cloned().collect();
        let reduce = |value: UOp, ranges: Vec<UOp>| {
            let src: Sources = std::iter::once(value).chain(ranges).collect();
            UOp::new(Op::Reduce, dtype, src, reduce_arg(*op))
        };
        let value = reduction.src()[0].clone();
        let partial = if sequential.is_empty() { value } else { reduce(value, sequential) };
        // Dimensions of the array in which partial results are exchanged.
        let at = |found: &[(UOp, UOp)], info: &Loop| {
            let found = found.iter().find(|(range, _)| *range == info.range);
            found.map_or(info.range.clone(), |(_, counter)| counter.clone())
        };
        let mut partial = partial;
        if let Some((info, inner)) = self.divided_twice(over) {
            let counter = self.range(info, info.size / inner);
            let int = |value| UOp::int(info.range.dtype(), value);
            let rest = UOp::binary(Op::FloorMod, info.range.clone(), int(inner));
            let thread = UOp::binary(Op::Mul, counter.clone(), int(inner));
            let thread = UOp::binary(Op::Add, thread, rest);
            let first_step = [(info.range.clone(), thread)];
            partial =
                reduce(self.exchange(partial, dims, &|info| at(&first_step, info)), vec![counter]);
        }
        let divided = self.divided_twice(over);
        let size = |info: &Loop| divided.map_or(info.size, |(_, inner)| inner);
        let threads: Vec<(UOp, UOp)> =
            over.iter().map(|info| (info.range.clone(), self.range(info, size(info)))).collect();
        let load = self.exchange(partial, dims, &|info| at(&threads, info));
        reduce(load, threads.into_iter().map(|(_, counter)| counter).collect())
    }

    /// Returns a new loop with the type of a thread's range.
    fn range(&mut self, info: &Loop, size: i64) -> UOp {
        self.next_number += 1;
        range(size, info.range.dtype(), AxisKind::Loop, self.next_number - 1)
    }

    /// Stores the value of each thread into its element of a local array of these dimensions;
    /// returns the element that another thread, given by its counters, has stored.
    fn exchange(&mut self, value: UOp, dims: &[&Loop], thread: &dyn Fn(&Loop) -> UOp) -> UOp {
        let dtype = value.dtype();
        let size_elements = dims.iter().map(|info| info.size).product();
        let local = Arg::Local(Local { number: self.arrays, size_elements });
        self.arrays += 1;
        let array = UOp::new(Op::DefineLocal, dtype, [], local);
        let address = |counter: &dyn Fn(&Loop) -> UOp| {
            let int = dims[0].range.dtype();
            let index = dims.iter().fold(UOp::int(int, 0), |index, info| {
                let scaled = UOp::binary(Op::Mul, index, UOp::int(int, info.size));
                UOp::binary(Op::Add, scaled, counter(info))
            });
            UOp::new(Op::Index, dtype, [array.clone(), index], Arg::None)
        };
        let stored = address(&|info| info.range.clone());
        let store = UOp::new(Op::Store, DType::Void, [stored, value], Arg::None);
        let barrier = UOp::new(Op::Barrier, DType::Void, [store], Arg::None);
        UOp::new(Op::Load, dtype, [address(thread), barrier], Arg::None)
    }

    /// Returns the loop of threads whose partial results are reduced in two steps, and the threads
    /// that have the results of the first one: a thread reads the square root of their number
    /// twice. `None` if there are few threads or several loops of them.
    fn divided_twice<'a>(&self, over: &[&'a Loop]) -> Option<(&'a Loop, i64)> {
        let [info] = over else { return None };
        let inner = 1 << (info.size.checked_ilog2()? / 2);
        let is_divided = self.twice_reduced_threads <= info.size && info.size % inner == 0;
        is_divided.then_some((*info, inner))
    }
}
