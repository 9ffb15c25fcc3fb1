//! Dropout, which is on while a model is trained.

use gradiff_graph::DType;

use super::distributions::placement_of;
use super::uniform::fractions;
use crate::error::invalid;
use crate::modes::{IS_TRAINING, Mode};
use crate::{Error, Tensor};

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

    /// While training, zeros with probability `p`, and the other elements times `1 / (1 - p)`, bool
    /// and integers as f32; else, or if p is 0, the tensor itself. Draws numbers on the tensor's
    /// device.
    /// # Errors
    /// If p is not in 0..=1, or there are more than 2^32 elements.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[4], &[1.0f32, 2.0, 3.0, 4.0])?.to("interp")?;
    /// assert_eq!(x.dropout(0.5)?.to_text()?, "[1.0, 2.0, 3.0, 4.0]");
    /// Tensor::manual_seed(42);
    /// let _training = Tensor::train(true);
    /// assert_eq!(x.dropout(0.5)?.to_text()?, "[0.0, 4.0, 6.0, 8.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn dropout(&self, p: f64) -> Result<Tensor, Error> {
        if !(0.0..=1.0).contains(&p) {
            return invalid(format!("dropout with probability {p}: it must be between 0 and 1"));
        }
        if !Tensor::is_training() || p == 0.0 {
            return Ok(self.unchanged());
        }
        let numbers = fractions("dropout", &placement_of(self), DType::F32, self.shape())?;
        let is_kept = numbers.cmplt(p)?.not()?.contiguous();
        let values = match self.dtype().is_float() {
            true => self.unchanged(),
            false => self.cast(DType::F32)?,
        };
        // The factor is not finite if nothing is kept, and may exceed the range of a half.
        let factor = if p < 1.0 { 1.0 / (1.0 - p) } else { 1.0 };
        let (dtype, wide) = (values.dtype(), values.dtype().accumulator());
        is_kept.where_(values.cast(wide)?.mul(factor)?.cast(dtype)?, 0)
    }
}
