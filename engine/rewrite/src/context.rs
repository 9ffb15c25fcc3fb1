//! The context of a computed right side: the driver, as the functions of such sides see it.

use gradiff_graph::UOp;

use crate::bounds::Bounds;

/// Bounds of nodes, and the rewriting of intermediate results.
pub(crate) trait Context {
    /// The intervals of nodes, cached.
    fn bounds(&mut self) -> &mut Bounds;

    /// Rewrites a node with the rules, fuel and trace of the outer call.
    fn nested(&mut self, root: &UOp) -> UOp;
}
