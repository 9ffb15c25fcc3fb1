//! The loops of a kernel, with the facts on which the legality of opts depends.

use gradiff_graph::target::Thresholds;
use gradiff_graph::{AxisKind, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

use super::loop_info::{self, Loop, array_count};
use super::matmul::{Matmul, matmuls};
use crate::cached_rows::cache_bytes;
use crate::free::{Free, MAX_RANGES};
use crate::nodes::loads_what_it_stores;
use crate::scatter::is_update;
use crate::{Error, transcendental};

/// The loops of a lowered kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loops {
    /// Plain loops first, so that an opt changes the indices of few others; among them output
    /// loops, outermost first, then those that are only reduced.
    pub list: Vec<Loop>,
    /// The number of stores.
    pub stores: usize,
    /// True if it loads from an array of the caller that it stores to, or updates one.
    pub(super) is_in_place: bool,
    /// True if it has arrays in local memory.
    pub(super) has_local_arrays: bool,
    /// True if threads copy elements to local memory before a barrier.
    pub(super) is_staged: bool,
    /// The reductions, by number.
    pub(super) reductions: Vec<UOp>,
    /// The candidates for tensor cores.
    pub matmuls: Vec<Matmul>,
    /// Estimated number of uops for the stored values, by the set of loops (bits) that they vary
    /// in.
    uop_counts: Vec<(u64, i64)>,
    /// Bytes of the arrays that cache a row; upcast iterations of the output need one each.
    pub(super) cache_bytes: i64,
}

/// Returns the loops of a lowered kernel.
///
/// # Errors
/// If the end of a range is not constant.
pub fn loops(root: &UOp) -> Result<Loops, Error> {
    let free = Free::of(root)?;
    let list = loop_info::list(root, &free)?;
    let matmuls = matmuls(&free, &list);
    let (stores, cache_bytes) = (root.src().len(), cache_bytes(&free));
    // Rows are cached before they are loaded.
    let is_in_place = free.nodes.iter().any(is_update)
        || loads_what_it_stores(&free.nodes, |array| array.op() == Op::DefineGlobal);
    let uop_counts = uop_counts(&free);
    let of_op = |op| free.nodes.iter().filter(move |node| node.op() == op);
    let has_local_arrays = of_op(Op::DefineLocal).next().is_some();
    let is_staged = of_op(Op::Barrier).next().is_some();
    let reductions = of_op(Op::Reduce).cloned().collect();
    Ok(Loops {
        list,
        stores,
        is_in_place,
        has_local_arrays,
        is_staged,
        reductions,
        matmuls,
        uop_counts,
        cache_bytes,
    })
}

/// Estimates the number of uops for the stored values, by the set of loops that they vary in.
/// Indices and gates do not count: few are left after unrolling. A reduction counts if nothing is
/// computed for it: with an op for each element, it is at most twice as many.
fn uop_counts(free: &Free) -> Vec<(u64, i64)> {
    let mut values: FxHashSet<&UOp> = FxHashSet::default();
    let mut counts: FxHashMap<u64, i64> = FxHashMap::default();
    for node in free.nodes.iter().rev() {
        match node.op() {
            Op::Store => values.extend(&node.src()[1..2]),
            _ if !values.contains(node) => {}
            Op::Reduce => {
                let value = &node.src()[0];
                values.insert(value);
                if !value.op().is_elementwise() {
                    *counts.entry(free.of_node(value) | free.of_loops(node)).or_default() += 1;
                }
            }
            op if op.is_elementwise() => {
                values.extend(node.src());
                *counts.entry(free.of_node(node)).or_default() += transcendental::uops(node).max(1);
            }
            _ => {}
        }
    }
    counts.into_iter().collect()
}

impl Loops {
    /// Returns the number of iterations of all loops of a kind.
    pub(super) fn count(&self, kind: AxisKind) -> i64 {
        let sizes = self.list.iter().filter(|info| info.axis.kind == kind).map(|info| info.size);
        sizes.product()
    }

    /// Returns the number of iterations of the loops of a kind that depend on a loop.
    pub(super) fn count_with(&self, kind: AxisKind, info: &Loop) -> i64 {
        let is_related =
            |related: &&Loop| related.axis.kind == kind && !info.is_independent(related);
        self.list.iter().filter(is_related).map(|related| related.size).product()
    }

    /// Estimates the number of uops after unrolling, if `amount` iterations of a loop are unrolled,
    /// too.
    pub(super) fn unrolled_uops(&self, info: &Loop, amount: i64) -> i64 {
        let is_unrolled =
            |info: &&Loop| matches!(info.axis.kind, AxisKind::Upcast | AxisKind::Unroll);
        let unrolled = |(bits, count): &(u64, i64)| {
            let loops =
                self.list.iter().filter(is_unrolled).filter(|unrolled| bits & unrolled.bit != 0);
            let copies = loops.map(|unrolled| unrolled.size).fold(*count, i64::saturating_mul);
            if bits & info.bit != 0 { copies.saturating_mul(amount) } else { copies }
        };
        self.uop_counts.iter().map(unrolled).fold(0, i64::saturating_add)
    }

    /// Estimates the number of uops that a cut of a reduced loop copies: the nodes of the
    /// reductions over it, or the uops of the kernel after unrolling, if these are more.
    pub(super) fn reduced_uops(&self, info: &Loop) -> i64 {
        let nodes =
            info.reductions.iter().map(|(number, _)| self.reductions[*number].toposort().len());
        self.unrolled_uops(info, 1).max(nodes.sum::<usize>() as i64)
    }

    pub(super) fn has(&self, kind: AxisKind) -> bool {
        self.list.iter().any(|info| info.axis.kind == kind)
    }

    /// Checks that the kernel may have `added` more loops, besides those over the threads of groups
    /// that pass `groups` adds: one or two for each reduction that is divided.
    pub(super) fn check_loop_count(
        &self,
        added: usize,
        thresholds: &Thresholds,
    ) -> Result<(), String> {
        let divided = self.list.iter().filter(|info| info.axis.kind == AxisKind::Group);
        let of_loop =
            |info: &Loop| array_count(info.size, thresholds) as usize * info.reductions.len();
        let over_threads: usize = divided.map(of_loop).sum();
        match self.list.len() + over_threads + added {
            count if count <= MAX_RANGES => Ok(()),
            count => Err(format!("{count} loops, at most {MAX_RANGES} are possible")),
        }
    }

    /// Returns the number of the next new range.
    pub(super) fn next_number(&self) -> i64 {
        1 + self.list.iter().map(|info| info.axis.number).max().unwrap_or(0)
    }
}
