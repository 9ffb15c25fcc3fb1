//! Rebuilding of graphs, node by node.

use gradiff_graph::UOp;
use rustc_hash::FxHashMap;

use crate::Error;
use crate::error::malformed;

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
