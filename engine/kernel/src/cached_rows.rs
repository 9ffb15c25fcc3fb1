//! The rows of inputs that a kernel caches in arrays, as the pass `cache-inputs` makes them.

use gradiff_graph::{Arg, Op, UOp};

use crate::free::Free;

/// Returns whether a kernel caches inputs.
pub(crate) fn has_cache(nodes: &[UOp]) -> bool {
    // Arrays that threads share come with barriers.
    let has = |op| nodes.iter().any(|node| node.op() == op);
    has(Op::DefineLocal) && !has(Op::Barrier)
}

/// Iterates over the stores into the cache arrays of a kernel.
pub(crate) fn cache_stores(free: &Free) -> impl Iterator<Item = &UOp> {
    let is_cache = |node: &UOp| array_of(node).op() == Op::DefineLocal;
    free.nodes.iter().filter(move |node| node.op() == Op::Store && is_cache(node))
}

/// Returns the array that a store writes to.
pub(crate) fn array_of(store: &UOp) -> &UOp {
    &store.src()[0].src()[0]
}

/// Returns the ranges (bits) that select the row which a store caches, not an element of it.
pub(crate) fn row_ranges_of(store: &UOp, free: &Free) -> u64 {
    let [index, value] = [0, 1].map(|source| free.of_node(&store.src()[source]));
    value & !index
}

/// Returns the ranges (bits) that select the row of some cache store.
pub(crate) fn row_ranges(free: &Free) -> u64 {
    cache_stores(free).fold(0, |bits, store| bits | row_ranges_of(store, free))
}

/// Returns the total size of the cache arrays of a kernel.
pub(crate) fn cache_bytes(free: &Free) -> i64 {
    let bytes = |store: &UOp| match array_of(store).arg() {
        Arg::Local(local) => local.size_elements * array_of(store).dtype().size_bytes() as i64,
        _ => 0,
    };
    cache_stores(free).map(bytes).sum()
}
