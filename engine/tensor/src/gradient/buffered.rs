//! Elements that a gradient compares with a result that is one of them.
//!
//! The gradient of a maximum finds the elements that equal it. Two kernels that compute an element
//! may round it differently, and then none is equal. So the gradient takes the elements and the
//! result from a buffer: each element is computed once.

use gradiff_graph::{Op, UOp};
use rustc_hash::FxHashMap;

use crate::tensor::with_shape;

/// Returns a node equal to `node` that reads these sources from buffers, and all that is computed
/// of them, too. Movements stay above the buffers.
pub(super) fn buffered(node: &UOp, sources: &[usize]) -> UOp {
    let in_buffer = |source: &usize| {
        let mut base = &node.src()[*source];
        while base.op().is_movement() || base.op().is_marker() {
            base = &base.src()[0];
        }
        (base, UOp::unary(Op::Contiguous, base.dtype(), base.clone()))
    };
    let mut replaced: FxHashMap<&UOp, UOp> = sources.iter().map(in_buffer).collect();
    for node in node.order_by(|node| if replaced.contains_key(node) { &[] } else { node.src() }) {
        let sources = node.src().iter();
        if !replaced.contains_key(node) {
            let new = node.with_src(sources.map(|source| replaced[source].clone()));
            replaced.insert(node, new);
        }
    }
    with_shape(replaced[node].clone())
}
