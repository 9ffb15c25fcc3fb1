//! Modes of a thread: whether it trains, and whether tensors are computed without gradients.

use std::cell::Cell;
use std::marker::PhantomData;
use std::thread::LocalKey;

thread_local! {
    /// True while the thread trains.
    pub(crate) static IS_TRAINING: Cell<bool> = const { Cell::new(false) };
    /// True while the tensors that the thread computes require no gradient.
    pub(crate) static IS_WITHOUT_GRADIENTS: Cell<bool> = const { Cell::new(false) };
}

/// The time in which a thread has a mode; see [`Tensor::train`](crate::Tensor::train) and
/// [`Tensor::no_grad`](crate::Tensor::no_grad). Dropped, it restores the mode from before, so of
/// several the last must be dropped first.
#[must_use = "the mode ends when this is dropped"]
pub struct Mode {
    mode: &'static LocalKey<Cell<bool>>,
    previous: bool,
    /// A thread cannot restore the mode of another.
    of_thread: PhantomData<*const ()>,
}

impl Mode {
    /// Gives a mode this value.
    pub(crate) fn set(mode: &'static LocalKey<Cell<bool>>, value: bool) -> Mode {
        Mode { mode, previous: mode.replace(value), of_thread: PhantomData }
    }
}

impl Drop for Mode {
    fn drop(&mut self) {
        self.mode.set(self.previous);
    }
}

impl std::fmt::Debug for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mode").field("previous", &self.previous).finish_non_exhaustive()
    }
}
