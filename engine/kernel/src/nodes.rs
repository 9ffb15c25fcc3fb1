//! Making of nodes, and rebuilding of graphs node by node.

use gradiff_graph::{Arg, Axis, AxisKind, DType, Dims, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Error;
use crate::error::malformed;

/// Makes a range with this trip count, kind and number.
pub(crate) fn range(size: i64, dtype: DType, kind: AxisKind, number: i64) -> UOp {
    UOp::new(Op::Range, dtype, [UOp::int(dtype, size)], Arg::Axis(Axis { kind, number }))
}

/// Converts an integer to a type, unless it has this type.
pub(crate) fn cast(node: UOp, dtype: DType) -> UOp {
    if node.dtype() == dtype { node } else { UOp::unary(Op::Cast, dtype, node) }
}

/// Returns the number of a range.
pub(crate) fn number(range: &UOp) -> i64 {
    match range.arg() {
        Arg::Axis(axis) => axis.number,
        _ => 0,
    }
}

/// Makes the arg of a `Reduce` by this op.
pub(crate) fn reduce_arg(op: Op) -> Arg {
    Arg::Reduce(op, Dims::new())
}

/// Adds a gate to an address.
pub(crate) fn gated_address(address: &UOp, gate: &UOp) -> UOp {
    let gate = match address.src().get(2) {
        Some(before) => UOp::binary(Op::And, before.clone(), gate.clone()),
        None => gate.clone(),
    };
    address.with_src([address.src()[0].clone(), address.src()[1].clone(), gate])
}

/// Returns whether a kernel loads from one of these arrays that it stores to.
pub(crate) fn loads_what_it_stores(nodes: &[UOp], is_array: impl Fn(&UOp) -> bool) -> bool {
    let arrays = |op: Op| {
        let accesses = nodes.iter().filter(move |node| node.op() == op);
        accesses.filter_map(|access| access.src().first()?.src().first())
    };
    let stored: FxHashSet<&UOp> = arrays(Op::Store).filter(|array| is_array(array)).collect();
    arrays(Op::Load).any(|array| stored.contains(array))
}

/// Rebuilds a graph from its nodes in order: `change` gets each old node, and the node over its new
/// sources.
pub(crate) fn map_nodes(
    order: &[UOp],
    mut change: impl FnMut(&UOp, UOp) -> Result<UOp, Error>,
) -> Result<UOp, Error> {
    let mut new: FxHashMap<&UOp, UOp> = FxHashMap::default();
    new.reserve(order.len());
    for node in order {
        let is_same = node.src().iter().all(|source| new[source] == *source);
        let with_src = if is_same {
            node.clone()
        } else {
            node.with_src(node.src().iter().map(|source| new[source].clone()))
        };
        let changed = change(node, with_src)?;
        new.insert(node, changed);
    }
    let last = order.last().ok_or_else(|| malformed("an empty graph"))?;
    Ok(new[last].clone())
}
