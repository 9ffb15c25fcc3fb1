//! New sizes of axes: between their elements, or the nearest of these.

use gradiff_graph::DType;

use crate::error::invalid;
use crate::{Error, Tensor};

/// The way in which [`interpolate`](Tensor::interpolate) makes elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolation {
    /// Between the elements before and after a position.
    #[default]
    Linear,
    /// The element at the start of a part of the axis, rounded down; PyTorch's and OpenCV's.
    Nearest,
    /// The element at the middle of a part of the axis, rounded down.
    NearestExact,
}

/// The positions in an axis that new elements are taken from, each the quotient of a numerator and
/// a common denominator: numerator i is `start + i * step`, from 0 to `last` times the denominator.
#[derive(Clone, Copy, Debug)]
struct Positions {
    start: i128,
    step: i128,
    denominator: i128,
    last: i128,
}

impl Tensor {
    /// Gives the last axes these sizes. Element i of an axis of n elements that gets m is with
    /// [`Nearest`](Interpolation::Nearest) element `floor(i * n / m)`, with
    /// [`NearestExact`](Interpolation::NearestExact) `floor((i + 1/2) * n / m)`, of any dtype. With
    /// [`Linear`](Interpolation::Linear) it is `x + (y - x) * w` of the elements before and after
    /// its position, whose fraction is w: the position is `i * (n - 1) / (m - 1)` with
    /// `align_corners`, which gives the first and last elements these positions, or 0 if m is 1,
    /// else `(i + 1/2) * n / m - 1/2`, within the axis. That is bilinear for two axes, the last one
    /// first. Of floats; f16 and bf16 are computed in f32.
    /// # Errors
    /// If there are no sizes or more than axes, a size is below 1, an axis is empty,
    /// `align_corners` is set for another mode, or the dtype is not a float for `Linear`.
    ///
    /// ```
    /// # use gradiff_tensor::{Interpolation, Tensor};
    /// let x = Tensor::from_slice(&[2], &[0f32, 8.0])?;
    /// let y = x.interpolate(&[4], Interpolation::Linear, false)?;
    /// assert_eq!(y.to_text()?, "[0.0, 2.0, 6.0, 8.0]");
    /// let y = x.interpolate(&[5], Interpolation::Linear, true)?;
    /// assert_eq!(y.to_text()?, "[0.0, 2.0, 4.0, 6.0, 8.0]");
    /// let x = Tensor::from_slice(&[3], &[1, 2, 3])?;
    /// assert_eq!(x.interpolate(&[2], Interpolation::Nearest, false)?.to_text()?, "[1, 2]");
    /// assert_eq!(x.interpolate(&[2], Interpolation::NearestExact, false)?.to_text()?, "[1, 3]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn interpolate(
        &self,
        sizes: &[i64],
        mode: Interpolation,
        align_corners: bool,
    ) -> Result<Tensor, Error> {
        let rank = self.rank();
        let first = rank.checked_sub(sizes.len()).filter(|_| !sizes.is_empty());
        let fits =
            |first: &usize| self.shape()[*first..].iter().chain(sizes).all(|size| 1 <= *size);
        let Some(first) = first.filter(fits) else {
            return invalid(format!(
                "interpolate of {:?} to {sizes:?}: it takes a size for each of the last axes, and \
                 all of these and the sizes must be 1 or more",
                self.shape()
            ));
        };
        if align_corners && mode != Interpolation::Linear {
            return invalid(format!(
                "interpolate with align_corners and {mode:?}: Linear takes it"
            ));
        }
        let positions = |axis: usize, x: &Tensor| {
            Positions::of(x.shape()[axis], sizes[axis - first], mode, align_corners)
        };
        if mode == Interpolation::Linear {
            return self.compute_in_f32("interpolate", |x| {
                (first..rank).rev().try_fold(x.unchanged(), |x, axis| {
                    positions(axis, &x).between(&x, axis, sizes[axis - first])
                })
            });
        }
        (first..rank).rev().try_fold(self.unchanged(), |x, axis| {
            positions(axis, &x).nearest(&x, axis, sizes[axis - first])
        })
    }
}

impl Positions {
    /// The positions in an axis of `from` elements that becomes one of `to`.
    fn of(from: i64, to: i64, mode: Interpolation, align_corners: bool) -> Positions {
        let (n, m) = (i128::from(from), i128::from(to));
        let (start, step, denominator) = match mode {
            Interpolation::Nearest => (0, n, m),
            Interpolation::NearestExact => (n, 2 * n, 2 * m),
            Interpolation::Linear if align_corners && m == 1 => (0, 0, 1),
            Interpolation::Linear if align_corners => (0, n - 1, m - 1),
            Interpolation::Linear => (n - m, 2 * n, 2 * m),
        };
        Positions { start, step, denominator, last: n - 1 }
    }

    /// The floors of the positions, and what is left over the denominator; and the latter.
    fn parts(&self, count: i64) -> Result<(Tensor, Tensor, i64), Error> {
        let end = self.start + self.step * i128::from(count - 1);
        let largest = end.max(self.last * self.denominator).max(self.denominator).max(self.step);
        let dtype = if largest <= i128::from(i32::MAX) { DType::I32 } else { DType::I64 };
        let integer = |value: i128| {
            let found = i64::try_from(value).ok().filter(|_| i64::try_from(largest).is_ok());
            found.ok_or_else(|| {
                Error::Invalid(format!(
                    "interpolate of an axis of {} to {count} elements: it is too large",
                    self.last + 1
                ))
            })
        };
        let numerators = Tensor::arange(dtype, integer(self.start)?, integer(self.step)?, count)?;
        let numerators = match self.start < 0 {
            true => numerators.clamp(0, integer(self.last * self.denominator)?)?,
            false => numerators,
        };
        let denominator = integer(self.denominator)?;
        Ok((numerators.cdiv(denominator)?, numerators.cmod(denominator)?, denominator))
    }

    /// The elements of an axis at the floors of the positions.
    fn nearest(&self, x: &Tensor, axis: usize, count: i64) -> Result<Tensor, Error> {
        let size = x.shape()[axis];
        if count % size == 0 {
            return x.repeat_interleave(count / size, axis as i64);
        }
        let (floors, _, _) = self.parts(count)?;
        x.index_select(&floors, axis as i64)
    }

    /// The elements of an axis of floats at the positions, between those before and after.
    fn between(&self, x: &Tensor, axis: usize, count: i64) -> Result<Tensor, Error> {
        let (floors, rests, denominator) = self.parts(count)?;
        let ceilings = floors.add(&rests.cmpne(0)?.cast(floors.dtype())?)?;
        let mut shape = vec![1; x.rank() - axis];
        shape[0] = count;
        let weights = rests.cast(x.dtype())?.div(denominator)?.reshape(&shape)?;
        let axis = axis as i64;
        x.index_select(&floors, axis)?.lerp(&x.index_select(&ceilings, axis)?, &weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bilinear_interpolation_is_linear_along_each_axis() {
        let x = Tensor::from_slice(&[1, 2, 2], &[0f32, 4.0, 8.0, 12.0]).unwrap();
        let y = x.interpolate(&[3, 3], Interpolation::Linear, true).unwrap();
        let expected = "[[[0.0, 2.0, 4.0], [4.0, 6.0, 8.0], [8.0, 10.0, 12.0]]]";
        assert_eq!(y.to_text().unwrap(), expected);
        let y = x.interpolate(&[1, 1], Interpolation::Linear, false).unwrap();
        assert_eq!(y.to_text().unwrap(), "[[[6.0]]]");
        let y = x.interpolate(&[1, 1], Interpolation::Linear, true).unwrap();
        assert_eq!(y.to_text().unwrap(), "[[[0.0]]]");
    }

    #[test]
    fn positions_are_exact_where_floats_are_not() {
        // 1/49 in f32 times 49 is below 1.
        let x = Tensor::arange(DType::I32, 0, 1, 2).unwrap();
        let y = x.interpolate(&[98], Interpolation::Nearest, false).unwrap();
        let ones: i32 = y.to_vec::<i32>().unwrap().iter().sum();
        assert_eq!(ones, 49);
    }

    #[test]
    fn errors_show_the_sizes() {
        let x = Tensor::zeros(DType::I32, &[2, 3]).unwrap();
        let error = |sizes: &[i64], mode, align_corners| {
            let found = x.interpolate(sizes, mode, align_corners);
            found.map(|_| ()).unwrap_err().to_string()
        };
        assert!(error(&[], Interpolation::Nearest, false).contains("of [2, 3] to []"));
        assert!(error(&[1, 2, 3], Interpolation::Nearest, false).contains("to [1, 2, 3]"));
        assert!(error(&[0], Interpolation::Nearest, false).contains("1 or more"));
        assert!(error(&[2], Interpolation::Nearest, true).contains("Linear takes it"));
        assert!(error(&[2], Interpolation::Linear, false).contains("interpolate of i32"));
        let large = x.interpolate(&[1 << 62], Interpolation::NearestExact, false);
        assert!(large.unwrap_err().to_string().contains("too large"));
    }
}
