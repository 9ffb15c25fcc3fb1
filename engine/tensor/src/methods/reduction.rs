//! Reductions that are composed of others.

use crate::error::invalid;
use crate::{Axes, Error, Tensor};

impl Tensor {
    /// Smallest element along `axes`; NaN if any element is NaN. All dtypes.
    /// # Errors
    /// If an axis does not exist, appears twice or is empty.
    pub fn min(&self, axes: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("min", axes.into(), |x, axes| {
            if let Some(axis) = axes.iter().find(|axis| x.shape()[**axis] == 0) {
                return invalid(format!(
                    "min along axis {axis} of shape {:?}: it has no element",
                    x.shape()
                ));
            }
            // The order of floats is turned by the sign, that of others by the complement, which
            // never overflows.
            let turned = |x: &Tensor| if x.dtype().is_float() { x.neg() } else { x.not() };
            turned(&turned(x)?.max_kept(axes))
        })
    }

    /// Mean along `axes`: the sum divided by the number of elements. Floats.
    /// # Errors
    /// If the dtype is not a float, or an axis does not exist or appears twice.
    pub fn mean(&self, axes: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("mean", axes.into(), |x, axes| {
            if !x.dtype().is_float() {
                return invalid(format!(
                    "mean of {}: it takes floats; cast the tensor first",
                    x.dtype()
                ));
            }
            let count: i64 = axes.iter().map(|axis| x.shape()[*axis]).product();
            x.sum_kept(axes)?.div(count)
        })
    }
}
