//! Reductions that are composed of others.

use crate::error::invalid;
use crate::{Axes, Error, Tensor};

impl Tensor {
    /// Smallest element along `axes`; NaN if any element is NaN. All dtypes.
    /// # Errors
    /// If an axis does not exist, appears twice or is empty.
    pub fn min(&self, axes: impl Into<Axes>) -> Result<Tensor, Error> {
        let axes = axes.into();
        let found = axes.resolve("min", self.shape())?;
        if let Some(axis) = found.iter().find(|axis| self.shape()[**axis] == 0) {
            return invalid(format!(
                "min along axis {axis} of shape {:?}: it has no element",
                self.shape()
            ));
        }
        // The order of floats is turned by the sign, that of others by the complement, which
        // never overflows.
        let turned = |x: &Tensor| if self.dtype().is_float() { x.neg() } else { x.not() };
        let reduced = turned(&turned(self)?.max(&found)?)?;
        reduced.without(&found, &axes)
    }

    /// Removes reduced axes, of size 1, unless they are to be kept.
    pub(super) fn without(&self, reduced: &[usize], axes: &Axes) -> Result<Tensor, Error> {
        if axes.are_kept() {
            return Ok(self.unchanged());
        }
        let kept = self.shape().iter().enumerate().filter(|(axis, _)| !reduced.contains(axis));
        let shape: Vec<i64> = kept.map(|(_, size)| *size).collect();
        self.reshape(&shape)
    }
}
