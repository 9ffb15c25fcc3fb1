//! Pass `groups`: folds that are divided among the threads of a group go through local memory, and
//! the loops of the output are shared out at launch.
//!
//! Each thread folds its share, stores that into its place of a local array and waits for the
//! others; then each of them folds all shares. One thread of them stores the result.

use gradiff_graph::{Arg, AxisKind, DType, Local, Op, Sources, UOp};
use rustc_hash::FxHashMap;

use super::apply::{Replaced, of_kind, range, replace};
use super::legal::{Loop, Loops, loops as loops_of};
use crate::Error;
use crate::linearize::{Free, folding};
use crate::pass::Context;
use crate::shape::map_nodes;

/// The pass. See the head of this file.
pub(crate) fn to_groups(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let Some(groups) = ctx.target.groups else { return Ok(root.clone()) };
    let loops = loops_of(root)?;
    if !loops.is_one_store {
        return Ok(root.clone());
    }
    let root = if loops.has(AxisKind::Group) { shared(root, &loops)? } else { root.clone() };
    let has_warp = loops.has(AxisKind::Warp);
    let innermost = if has_warp { loops_of(&root)?.fresh() } else { 0 };
    let launched = |one: &Loop| match one.axis.kind {
        AxisKind::Group => Some(of_kind(one, AxisKind::Local)),
        AxisKind::Warp => {
            let own = range(one.size, one.range.dtype(), AxisKind::Local, innermost);
            Some(Replaced::by(one, own))
        }
        AxisKind::Loop if one.is_output && !one.is_reduced => Some(of_kind(one, AxisKind::Global)),
        _ => None,
    };
    let root = replace(&root, &loops.list.iter().filter_map(launched).collect::<Vec<_>>())?;
    super::grid::limit(&root, groups)
}

/// The kernel with local memory in the place of folds over ranges of groups.
fn shared(root: &UOp, loops: &Loops) -> Result<UOp, Error> {
    let free = Free::of(root)?;
    let is_thread =
        |one: &&Loop| matches!(one.axis.kind, AxisKind::Local | AxisKind::Group | AxisKind::Warp);
    let mut threads: Vec<&Loop> = loops.list.iter().filter(is_thread).collect();
    threads.sort_by_key(|one| one.axis.number);
    let upcast = |one: &&Loop| one.axis.kind == AxisKind::Upcast && one.is_output;
    let upcast: Vec<&Loop> = loops.list.iter().filter(upcast).collect();
    let mut sharing = Sharing { next: loops.fresh(), arrays: 0 };
    let groups: Vec<&Loop> =
        threads.iter().copied().filter(|one| one.axis.kind == AxisKind::Group).collect();
    let order = root.toposort();
    let root = map_nodes(&order, |old, node| {
        if old.op() != Op::Reduce {
            return Ok(node);
        }
        let over: Vec<&Loop> =
            groups.iter().copied().filter(|one| old.src()[1..].contains(&one.range)).collect();
        if over.is_empty() {
            return Ok(node);
        }
        let bits = free.of_node(&old.src()[0]);
        let along = upcast.iter().filter(|one| bits & free.of_node(&one.range) != 0);
        let places: Vec<&Loop> = along.chain(&threads).copied().collect();
        Ok(sharing.fold(&node, &over, &places))
    })?;
    // Which thread stores does not matter, but one does.
    let dtype = groups[0].range.dtype();
    let is_first = |one: &&Loop| UOp::binary(Op::CmpLt, one.range.clone(), UOp::int(dtype, 1));
    let gate = groups.iter().map(is_first);
    let gate = gate.reduce(|all, one| UOp::binary(Op::And, all, one));
    let stores: Vec<UOp> = root.src().iter().map(|store| gated(store, gate.as_ref())).collect();
    Ok(root.with_src(stores))
}

/// The store, where the gate holds.
fn gated(store: &UOp, gate: Option<&UOp>) -> UOp {
    let Some(gate) = gate else { return store.clone() };
    let index = &store.src()[0];
    let gate = match index.src().get(2) {
        Some(before) => UOp::binary(Op::And, before.clone(), gate.clone()),
        None => gate.clone(),
    };
    let index = index.with_src([index.src()[0].clone(), index.src()[1].clone(), gate]);
    store.with_src([index, store.src()[1].clone()])
}

struct Sharing {
    /// The number of the next range.
    next: i64,
    /// How many arrays there are.
    arrays: usize,
}

impl Sharing {
    /// A fold whose threads share what they have; `places` are the ranges of its local array.
    fn fold(&mut self, fold: &UOp, over: &[&Loop], places: &[&Loop]) -> UOp {
        let Arg::Reduce(op, _) = fold.arg() else { return fold.clone() };
        let dtype = fold.dtype();
        let is_own = |range: &&UOp| !over.iter().any(|one| one.range == **range);
        let own: Vec<UOp> = fold.src()[1..].iter().filter(is_own).cloned().collect();
        let reduce = |value: UOp, ranges: Vec<UOp>| {
            let src: Sources = std::iter::once(value).chain(ranges).collect();
            UOp::new(Op::Reduce, dtype, src, folding(*op))
        };
        let value = fold.src()[0].clone();
        let share = if own.is_empty() { value } else { reduce(value, own) };
        let mut again: FxHashMap<UOp, UOp> = FxHashMap::default();
        let mut ranges = Vec::new();
        for one in over {
            let range = range(one.size, one.range.dtype(), AxisKind::Loop, self.next);
            self.next += 1;
            again.insert(one.range.clone(), range.clone());
            ranges.push(range);
        }
        let size_elements = places.iter().map(|one| one.size).product();
        let local = Arg::Local(Local { number: self.arrays, size_elements });
        self.arrays += 1;
        let array = UOp::new(Op::DefineLocal, dtype, [], local);
        let place = |counter: &dyn Fn(&Loop) -> UOp| {
            let int = places[0].range.dtype();
            let first = UOp::int(int, 0);
            let place = places.iter().fold(first, |place, one| {
                let scaled = UOp::binary(Op::Mul, place, UOp::int(int, one.size));
                UOp::binary(Op::Add, scaled, counter(one))
            });
            UOp::new(Op::Index, dtype, [array.clone(), place], Arg::None)
        };
        let here = place(&|one| one.range.clone());
        let store = UOp::new(Op::Store, DType::Void, [here, share], Arg::None);
        let barrier = UOp::new(Op::Barrier, DType::Void, [store], Arg::None);
        let there = place(&|one| again.get(&one.range).unwrap_or(&one.range).clone());
        let load = UOp::new(Op::Load, dtype, [there, barrier], Arg::None);
        reduce(load, ranges)
    }
}
