//! Asking for memory early, before it is read. The arg of a load that asks says by how many
//! elements further on.
//!
//! Where rows are kept, a kernel reads memory while it folds a row for the first time, and computes
//! without reading any from then on: the loads of the loop that keeps the row ask for the next one
//! meanwhile.
//!
//! Stores into a large array say so by their arg: they may go past the caches.
//!
//! A loop that computes a large array from others asks a little ahead: what it computes of one
//! element fills so much of the core's window that few loads would be under way at once.

use gradiff_graph::{Arg, AxisKind, Op, UOp};
use rustc_hash::FxHashMap;

use crate::Error;
use crate::keep;
use crate::linearize::Free;
use crate::opt::step;
use crate::shape::map_nodes;

/// How far ahead a loop over large arrays asks: more than it reads while one line comes in.
const AHEAD_BYTES: i64 = 2 << 10;
/// The arg of a store whose array is too large for the caches.
const PAST_CACHES: i64 = 1;
/// Loads that go further than a line from step to step would ask for one line each.
const LINE_BYTES: u64 = 64;

/// The kernel in which loads ask early. See the head of this file.
pub(crate) fn ask_early(root: &UOp, large_bytes: u64) -> Result<UOp, Error> {
    let nodes = root.toposort();
    let is_large = |node: &UOp| node.op() == Op::Store && large_bytes <= bytes(node);
    let has_large = nodes.iter().any(is_large);
    // Reduces nothing and stores a large array.
    let is_stream = has_large && nodes.iter().all(|node| node.op() != Op::Reduce);
    if !keep::has_rows(&nodes) && !has_large {
        return Ok(root.clone());
    }
    let free = Free::of(root)?;
    let mut ahead: FxHashMap<UOp, i64> = FxHashMap::default();
    for store in keep::stores(&free) {
        let (place, rows) = (free.of_node(&store.src()[0]), keep::rows_of(store, &free));
        let Some(row) = innermost(rows, &free) else { continue };
        for load in loads(store).filter(|load| free.of_node(load) & place != 0) {
            if let Some(next) = step(&load.src()[0].src()[1], row, &free)
                && next != 0
            {
                ahead.insert(load, next);
            }
        }
    }
    for store in nodes.iter().filter(|node| is_stream && node.op() == Op::Store) {
        let Some(along) = innermost(free.of_node(&store.src()[0]), &free) else { continue };
        for load in loads(store).filter(|load| large_bytes <= bytes(load)) {
            let size = load.dtype().size_bytes();
            if let Some(next) = step(&load.src()[0].src()[1], along, &free)
                && (1..=LINE_BYTES).contains(&next.unsigned_abs().saturating_mul(size as u64))
            {
                ahead.insert(load, next.signum() * AHEAD_BYTES / size as i64);
            }
        }
    }
    map_nodes(&nodes, |old, node| {
        let arg = match ahead.get(old) {
            Some(next) => Arg::Int(*next),
            None if is_large(old) => Arg::Int(PAST_CACHES),
            None => return Ok(node),
        };
        Ok(UOp::new(node.op(), node.dtype(), node.src().iter().cloned(), arg))
    })
}

/// Bytes of the array that is loaded from or stored to; 0 if it is no parameter.
fn bytes(access: &UOp) -> u64 {
    let array = &access.src()[0].src()[0];
    let size_elements = match array.arg() {
        Arg::Global(global) => global.size_elements,
        _ => 0,
    };
    u64::try_from(size_elements).unwrap_or(0).saturating_mul(array.dtype().size_bytes() as u64)
}

/// The innermost of the plain loops among these ranges (bits).
fn innermost(ranges: u64, free: &Free) -> Option<&UOp> {
    let number = |range: &UOp| match range.arg() {
        Arg::Axis(axis) if axis.kind == AxisKind::Loop => Some(axis.number),
        _ => None,
    };
    let among = free.ranges().filter(|range| ranges & free.of_node(range) != 0);
    among.filter(|range| number(range).is_some()).max_by_key(|range| number(range))
}

/// What is loaded from parameters for a store.
fn loads(store: &UOp) -> impl Iterator<Item = UOp> {
    let is_data =
        |node: &UOp| node.op() == Op::Load && node.src()[0].src()[0].op() == Op::DefineGlobal;
    store.src()[1].toposort().into_iter().filter(is_data)
}
