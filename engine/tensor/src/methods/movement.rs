//! Methods that move elements.

use crate::axes::resolve_axes;
use crate::error::invalid;
use crate::{Error, Tensor};

impl Tensor {
    /// Rotates the elements along each of `axes` by its shift: the element at `i` goes to
    /// `(i + shift) mod size`.
    /// # Errors
    /// If the numbers of shifts and axes differ, or an axis does not exist or appears twice.
    ///
    /// ```
    /// # use gradiff_tensor::{Engine, Tensor};
    /// # let engine = Engine::new("interp")?;
    /// let x = Tensor::from_slice(&[4], &[1, 2, 3, 4])?;
    /// assert_eq!(x.roll(&[1], &[0])?.to_text(&engine)?, "[4, 1, 2, 3]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn roll(&self, shifts: &[i64], axes: &[i64]) -> Result<Tensor, Error> {
        let found = resolve_axes("roll", axes, self.shape())?;
        if shifts.len() != axes.len() {
            return invalid(format!("roll by {shifts:?} along {axes:?}: one shift for each axis"));
        }
        let mut rolled = self.clone();
        for (axis, shift) in found.into_iter().zip(shifts) {
            let size = rolled.shape()[axis];
            let count = if size == 0 { 0 } else { shift.rem_euclid(size) };
            if count == 0 {
                continue;
            }
            let mut ranges: Vec<(i64, i64)> =
                rolled.shape().iter().map(|size| (0, *size)).collect();
            ranges[axis] = (size - count, size);
            let end = rolled.shrink(&ranges)?;
            ranges[axis] = (0, size - count);
            rolled = Tensor::cat(&[&end, &rolled.shrink(&ranges)?], axis)?;
        }
        Ok(rolled)
    }
}
