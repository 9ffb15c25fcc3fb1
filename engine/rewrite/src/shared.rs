//! The integer values of a kernel that several nodes use. Such a value is computed once, so that it
//! counts as one operand where rules bring a sum, a product or an extreme into canonical order:
//! opened for each user, its ops would be computed for each of them.
//!
//! In: the root of a rewrite. Out: its shared values that depend on loads, but not those that the
//! index or the gate of a load or store depends on. So index arithmetic has one canonical form,
//! whoever uses its parts.

use gradiff_graph::{Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Returns whether rules bring a chain of this node's op into canonical order.
pub(crate) fn is_chain(node: &UOp) -> bool {
    let is_ordered = matches!(node.op(), Op::Add | Op::Sub | Op::Neg | Op::Mul | Op::Max | Op::Min);
    is_ordered && node.dtype().is_int()
}

/// Returns the shared values below `root`.
pub(crate) fn shared_values(root: &UOp) -> FxHashSet<UOp> {
    let order = root.order();
    let mut use_counts: FxHashMap<&UOp, u32> = FxHashMap::default();
    for source in order.iter().flat_map(|node| node.src()).filter(|source| is_chain(source)) {
        *use_counts.entry(source).or_default() += 1;
    }
    use_counts.retain(|_, count| 1 < *count);
    if use_counts.is_empty() {
        return FxHashSet::default();
    }
    let mut loaded: FxHashSet<&UOp> = FxHashSet::default();
    for node in &order {
        if node.op() == Op::Load || node.src().iter().any(|source| loaded.contains(source)) {
            loaded.insert(node);
        }
    }
    let mut addresses: FxHashSet<&UOp> = FxHashSet::default();
    for node in order.iter().rev() {
        if node.op() == Op::Index {
            addresses.extend(&node.src()[1..]);
        } else if addresses.contains(node) {
            addresses.extend(node.src());
        }
    }
    let is_data = |node: &&UOp| loaded.contains(node) && !addresses.contains(node);
    use_counts.into_keys().filter(is_data).cloned().collect()
}
