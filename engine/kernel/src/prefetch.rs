//! Asking for the next row early. Where rows are kept, a kernel reads memory while it folds a row
//! for the first time, and computes without reading any from then on: the loads of the loop that
//! keeps the row ask for the next one meanwhile.
//!
//! The arg of such a load is by how many elements the place grows from one row to the next.

use gradiff_graph::{Arg, AxisKind, Op, UOp};
use rustc_hash::FxHashMap;

use crate::Error;
use crate::keep;
use crate::linearize::Free;
use crate::opt::step;
use crate::shape::map_nodes;

/// The kernel in which loads ask for the next row.
pub(crate) fn ask_early(root: &UOp) -> Result<UOp, Error> {
    let free = Free::of(root)?;
    let mut ahead: FxHashMap<UOp, i64> = FxHashMap::default();
    for store in keep::stores(&free) {
        let (place, rows) = (free.of_node(&store.src()[0]), keep::rows_of(store, &free));
        let number = |range: &UOp| match range.arg() {
            Arg::Axis(axis) if axis.kind == AxisKind::Loop => Some(axis.number),
            _ => None,
        };
        let loops = free.ranges().filter(|range| rows & free.of_node(range) != 0);
        let Some(row) =
            loops.filter(|range| number(range).is_some()).max_by_key(|range| number(range))
        else {
            continue;
        };
        for load in store.src()[1].toposort() {
            let is_data = load.op() == Op::Load
                && load.src()[0].src()[0].op() == Op::DefineGlobal
                && free.of_node(&load) & place != 0;
            if is_data
                && let Some(next) = step(&load.src()[0].src()[1], row, &free)
                && next != 0
            {
                ahead.insert(load, next);
            }
        }
    }
    map_nodes(&root.toposort(), |old, node| {
        let Some(next) = ahead.get(old) else { return Ok(node) };
        Ok(UOp::new(Op::Load, node.dtype(), node.src().iter().cloned(), Arg::Int(*next)))
    })
}
