//! Modes of a thread: whether it trains, and whether tensors are computed without gradients.

use std::cell::Cell;
use std::marker::PhantomData;
use std::thread::LocalKey;

use crate::Tensor;

thread_local! {
    static IS_TRAINING: Cell<bool> = const { Cell::new(false) };
    static IS_WITHOUT_GRADIENTS: Cell<bool> = const { Cell::new(false) };
}

/// The time in which a thread has a mode; see [`Tensor::train`] and [`Tensor::no_grad`]. Dropped,
/// it restores the mode from before, so of several the last must be dropped first.
#[must_use = "the mode ends when this is dropped"]
pub struct Mode {
    mode: &'static LocalKey<Cell<bool>>,
    previous: bool,
    /// A thread cannot restore the mode of another.
    of_thread: PhantomData<*const ()>,
}

impl Mode {
    fn set(mode: &'static LocalKey<Cell<bool>>, value: bool) -> Mode {
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

/// Returns whether this thread computes tensors without gradients.
pub(crate) fn is_without_gradients() -> bool {
    IS_WITHOUT_GRADIENTS.get()
}

impl Tensor {
    /// Switches training on or off in this thread until the result is dropped. It is off in a new
    /// thread, whatever the thread that started it does. [`dropout`](Tensor::dropout) asks for it
    /// when it is called.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// {
    ///     let _training = Tensor::train(true);
    ///     assert!(Tensor::is_training());
    /// }
    /// assert!(!Tensor::is_training());
    /// ```
    pub fn train(mode: bool) -> Mode {
        Mode::set(&IS_TRAINING, mode)
    }

    /// Returns whether this thread trains, as the last [`train`](Tensor::train) says.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// assert!(!Tensor::is_training());
    /// ```
    pub fn is_training() -> bool {
        IS_TRAINING.get()
    }

    /// Until the result is dropped, tensors that this thread computes require no gradient, as if
    /// [`detach`](Tensor::detach) was called on each: so reading them keeps no computation.
    /// Tensors on which [`requires_grad_`](Tensor::requires_grad_) is called require one.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let w = Tensor::from_slice(&[2], &[1f32, 2.0])?.requires_grad_(true)?;
    /// let output = {
    ///     let _evaluation = Tensor::no_grad();
    ///     w.mul(&w)?
    /// };
    /// assert_eq!(output.requires_grad(), None);
    /// assert_eq!(w.mul(&w)?.requires_grad(), Some(true));
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn no_grad() -> Mode {
        Mode::set(&IS_WITHOUT_GRADIENTS, true)
    }
}
