//! Prefetches on CPUs. The arg of a load that prefetches is the distance in elements.
//!
//! A kernel that caches the input of a reduction reads memory in that reduction only and computes
//! without loads from then on. So the loads of the loop that fills the cache prefetch the next row.
//!
//! A loop that computes a large array from others prefetches a fixed distance ahead: the ops on one
//! element fill the core's reorder window, so that few loads would be in flight at once.
//!
//! The arg of a store into a large array says that it may bypass the caches, unless it stores some
//! elements again. Kernels with updates are left as they are: what a store has written is soon
//! read again.

use gradiff_graph::{Arg, AxisKind, Op, UOp};
use rustc_hash::FxHashMap;

use crate::Error;
use crate::cached_rows::{cache_stores, has_cache, row_ranges_of};
use crate::free::Free;
use crate::nodes::map_nodes;
use crate::opt::tuning::{AHEAD_BYTES, LINE_BYTES};
use crate::scatter::is_update;
use crate::stride::stride;

/// The arg of a store that may bypass the caches.
const BYPASS_CACHES: i64 = 1;

/// Marks the loads that prefetch and the stores that bypass the caches.
pub(crate) fn add_prefetches(root: &UOp, large_bytes: u64) -> Result<UOp, Error> {
    let nodes = root.toposort();
    let is_large =
        |node: &UOp| node.op() == Op::Store && large_bytes <= bytes(node) && !is_clamped(node);
    let has_large = nodes.iter().any(is_large);
    let is_stream = has_large && nodes.iter().all(|node| node.op() != Op::Reduce);
    if !has_cache(&nodes) && !has_large || nodes.iter().any(is_update) {
        return Ok(root.clone());
    }
    let free = Free::of(root)?;
    let mut distances: FxHashMap<UOp, i64> = FxHashMap::default();
    for store in cache_stores(&free) {
        let address = free.of_node(&store.src()[0]);
        let row_ranges = row_ranges_of(store, &free);
        let Some(row) = innermost(row_ranges, &free) else { continue };
        for load in loads(store).filter(|load| free.of_node(load) & address != 0) {
            if let Some(stride) = stride(&load.src()[0].src()[1], row, &free)
                && stride != 0
            {
                distances.insert(load, stride);
            }
        }
    }
    for store in nodes.iter().filter(|node| is_stream && node.op() == Op::Store) {
        let Some(range) = innermost(free.of_node(&store.src()[0]), &free) else { continue };
        for load in loads(store).filter(|load| large_bytes <= bytes(load)) {
            let size = load.dtype().size_bytes();
            if let Some(stride) = stride(&load.src()[0].src()[1], range, &free)
                && (1..=LINE_BYTES).contains(&stride.unsigned_abs().saturating_mul(size as u64))
            {
                distances.insert(load, stride.signum() * AHEAD_BYTES / size as i64);
            }
        }
    }
    map_nodes(&nodes, |old, node| {
        let arg = match distances.get(old) {
            Some(distance) => Arg::Int(*distance),
            None if is_large(old) => Arg::Int(BYPASS_CACHES),
            None => return Ok(node),
        };
        Ok(UOp::new(node.op(), node.dtype(), node.src().iter().cloned(), arg))
    })
}

/// Returns whether the index of a store is clamped, as it is in blocks that are shifted inwards:
/// such blocks are no whole cache lines.
fn is_clamped(store: &UOp) -> bool {
    let index = store.src()[0].src().get(1);
    index.is_some_and(|index| index.toposort().iter().any(|node| node.op() == Op::Min))
}

/// Returns the size of the array that is loaded from or stored to; 0 if it is not a parameter.
fn bytes(access: &UOp) -> u64 {
    let array = &access.src()[0].src()[0];
    let size_elements = match array.arg() {
        Arg::Global(global) => global.size_elements,
        _ => 0,
    };
    u64::try_from(size_elements).unwrap_or(0).saturating_mul(array.dtype().size_bytes() as u64)
}

/// Returns the innermost of the plain loops among these ranges (bits).
fn innermost(ranges: u64, free: &Free) -> Option<&UOp> {
    let number = |range: &UOp| match range.arg() {
        Arg::Axis(axis) if axis.kind == AxisKind::Loop => Some(axis.number),
        _ => None,
    };
    let ranges = free.ranges().filter(|range| ranges & free.of_node(range) != 0);
    ranges.filter(|range| number(range).is_some()).max_by_key(|range| number(range))
}

/// Iterates over the loads from parameters that the stored value depends on.
fn loads(store: &UOp) -> impl Iterator<Item = UOp> {
    let is_data =
        |node: &UOp| node.op() == Op::Load && node.src()[0].src()[0].op() == Op::DefineGlobal;
    store.src()[1].toposort().into_iter().filter(is_data)
}
