//! The state of a tensor, which its clones share.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gradiff_graph::UOp;

/// The state of a tensor in a cell. Clones of the tensor have the same cell, in any thread: what is
/// computed from a state replaces it only if the state is still that one.
#[derive(Clone)]
pub(crate) struct Shared(Arc<RwLock<State>>);

/// A cell that goes with the last of its tensors.
pub(crate) struct Weak(std::sync::Weak<RwLock<State>>);

/// The state of a tensor.
pub(crate) struct State {
    /// The computation, or the buffer once it is realised.
    pub(crate) node: UOp,
    /// The argument of the last call of `requires_grad_`.
    pub(crate) requires_grad: Option<bool>,
    /// The state of the gradient that `backward` left.
    pub(crate) grad: Option<Shared>,
}

impl Shared {
    pub(crate) fn new(node: UOp) -> Shared {
        Shared(Arc::new(RwLock::new(State { node, requires_grad: None, grad: None })))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether both are the same cell.
    pub(crate) fn is(&self, other: &Shared) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn downgrade(&self) -> Weak {
        Weak(Arc::downgrade(&self.0))
    }
}

impl Weak {
    /// Returns the cell, if it is still there.
    pub(crate) fn upgrade(&self) -> Option<Shared> {
        self.0.upgrade().map(Shared)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}
