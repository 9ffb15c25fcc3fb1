//! Softmax and its logarithm.

use crate::axes::resolve_axis;
use crate::{Error, Tensor};

impl Tensor {
    /// `e^x` divided by its sum along `axis`, with one division per row. Floats. Elements far below
    /// the largest of their row become 0, with the logarithm -inf;
    /// [`log_softmax`](Tensor::log_softmax) is finite there.
    /// # Errors
    /// If the dtype is not a float, or the axis does not exist.
    pub fn softmax(&self, axis: i64) -> Result<Tensor, Error> {
        let axis = resolve_axis("softmax", axis, self.shape())?;
        let weights = self.sub(self.max_kept(&[axis]).detach())?.exp()?;
        weights.mul(&weights.sum_kept(&[axis])?.recip()?)
    }

    /// The natural logarithm of [`softmax`](Tensor::softmax), `x - m - log(sum of e^(x - m))` for
    /// the largest element m along `axis`; finite wherever `x - m` is. f16 and bf16 are computed in
    /// f32. Floats.
    /// # Errors
    /// If the dtype is not a float, or the axis does not exist.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[0f32, 1000.0])?;
    /// assert_eq!(x.softmax(0)?.log()?.to_vec::<f32>()?, [f32::NEG_INFINITY, 0.0]);
    /// assert_eq!(x.log_softmax(0)?.to_vec::<f32>()?, [-1000.0, 0.0]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn log_softmax(&self, axis: i64) -> Result<Tensor, Error> {
        let axis = resolve_axis("log_softmax", axis, self.shape())?;
        self.compute_in_f32("log_softmax", |x| {
            let shifted = x.sub(x.max_kept(&[axis]).detach())?;
            shifted.sub(&shifted.exp()?.sum_kept(&[axis])?.log()?)
        })
    }
}
