//! Methods that compare elements with each other. A sort counts, for each element, those that come
//! before it, which is its position: no element moves before all are known, at the cost of the
//! square of the size.

use gradiff_graph::DType;

use crate::axes::resolve_axis;
use crate::error::invalid;
use crate::methods::indexing::moved_last;
use crate::{Axes, Error, Tensor, keepdim};

/// Maximum size of an axis that is sorted, since the work grows with its square.
const MAX_SORTED: i64 = 1 << 14;

impl Tensor {
    /// Elements along `axis` in ascending or descending order. Equal elements, such as zeros of
    /// both signs, keep their order; NaN is above all numbers. All dtypes; elements are copied bit
    /// by bit.
    /// # Errors
    /// If the axis does not exist, or has more than 16384 elements.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[2.0, f32::NAN, 1.0])?;
    /// assert_eq!(x.sort(0, false)?.to_text()?, "[1.0, 2.0, NaN]");
    /// assert_eq!(x.sort(0, true)?.to_text()?, "[NaN, 2.0, 1.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn sort(&self, axis: i64, descending: bool) -> Result<Tensor, Error> {
        let axis = self.sorted_axis("sort", axis)?;
        let x = self.contiguous();
        x.gather(axis as i64, &x.positions_in_order(axis, descending)?)
    }

    /// Positions (i32) along `axis` of the elements in the order of [`sort`](Tensor::sort).
    /// # Errors
    /// As `sort`.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[4], &[3, 1, 3, 2])?;
    /// assert_eq!(x.argsort(0, false)?.to_text()?, "[1, 3, 0, 2]");
    /// assert_eq!(x.argsort(0, true)?.to_text()?, "[0, 2, 3, 1]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn argsort(&self, axis: i64, descending: bool) -> Result<Tensor, Error> {
        let axis = self.sorted_axis("argsort", axis)?;
        self.contiguous().positions_in_order(axis, descending)
    }

    /// The `k` largest or smallest elements along `axis` and their positions (i32), both in the
    /// order of [`sort`](Tensor::sort): descending for the largest.
    /// # Errors
    /// As `sort`, and if `k` is negative or above the size of the axis.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let (values, positions) = Tensor::from_slice(&[4], &[3, 1, 4, 2])?.topk(2, 0, true)?;
    /// assert_eq!(values.to_text()?, "[4, 3]");
    /// assert_eq!(positions.to_text()?, "[2, 0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn topk(&self, k: i64, axis: i64, largest: bool) -> Result<(Tensor, Tensor), Error> {
        let axis = self.sorted_axis("topk", axis)?;
        if !(0..=self.shape()[axis]).contains(&k) {
            return invalid(format!(
                "topk of {:?}: {k} of {} elements along axis {axis}",
                self.shape(),
                self.shape()[axis]
            ));
        }
        let x = self.contiguous();
        let positions = x.positions_in_order(axis, largest)?.range(axis, 0, k)?;
        Ok((x.gather(axis as i64, &positions)?, positions))
    }

    /// Position (i32) of the largest element along an axis, or in row-major order for all axes: the
    /// first of equal ones, and of the first NaN if there is one. All dtypes.
    /// # Errors
    /// If the axes are neither one nor all, the axis does not exist, or there is no element.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 4, 3])?;
    /// assert_eq!(x.argmax(1)?.to_text()?, "[1, 0]");
    /// assert_eq!(x.argmax(..)?.to_text()?, "2");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn argmax(&self, axis: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("argmax", axis.into(), |x, axes| {
            x.extreme_position("argmax", axes, |x, axis| Ok(x.max_kept(&[axis])))
        })
    }

    /// Position (i32) of the smallest element, as [`argmax`](Tensor::argmax).
    /// # Errors
    /// As `argmax`.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 4, 3])?;
    /// assert_eq!(x.argmin(-1)?.to_text()?, "[0, 1]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn argmin(&self, axis: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("argmin", axis.into(), |x, axes| {
            x.extreme_position("argmin", axes, |x, axis| x.min(keepdim(axis as i64)))
        })
    }

    /// Smallest element up to each position along `axis`; NaN from the first NaN on.
    /// # Errors
    /// If the axis does not exist.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[4], &[3, 1, 2, 0])?;
    /// assert_eq!(x.cummin(0)?.to_text()?, "[3, 1, 1, 0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn cummin(&self, axis: i64) -> Result<Tensor, Error> {
        resolve_axis("cummin", axis, self.shape())?;
        // The complement turns the order of integers and bools, and never overflows.
        match self.dtype().is_float() {
            true => self.neg()?.cummax(axis)?.neg(),
            false => self.not()?.cummax(axis)?.not(),
        }
    }

    /// Returns whether an element along `axes` is not 0 (true for bool; NaN is not 0); false if
    /// there are none. All dtypes.
    /// # Errors
    /// If an axis does not exist or appears twice.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[0, 0, 4, 0])?;
    /// assert_eq!(x.any(1)?.to_text()?, "[false, true]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn any(&self, axes: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("any", axes.into(), |x, axes| Ok(x.cast(DType::Bool)?.max_kept(axes)))
    }

    /// Returns whether all elements along `axes` are not 0 (true for bool; NaN is not 0); true if
    /// there are none. All dtypes.
    /// # Errors
    /// If an axis does not exist or appears twice.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 4, 0])?;
    /// assert_eq!(x.all(1)?.to_text()?, "[true, false]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn all(&self, axes: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("all", axes.into(), |x, axes| x.cast(DType::Bool)?.not()?.max_kept(axes).not())
    }

    /// Number (i32) of elements along `axes` that are not 0; NaN is not 0. All dtypes.
    /// # Errors
    /// If an axis does not exist or appears twice.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 4, 0])?;
    /// assert_eq!(x.count_nonzero(..)?.to_text()?, "3");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn count_nonzero(&self, axes: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("count_nonzero", axes.into(), |x, axes| x.cast(DType::Bool)?.sum_kept(axes))
    }

    /// The number of an axis that is short enough to be sorted.
    fn sorted_axis(&self, name: &str, axis: i64) -> Result<usize, Error> {
        let axis = resolve_axis(name, axis, self.shape())?;
        if MAX_SORTED < self.shape()[axis] {
            return invalid(format!(
                "{name} along axis {axis} of {:?}: at most {MAX_SORTED} elements are sorted",
                self.shape()
            ));
        }
        Ok(axis)
    }

    /// Returns, for each position in order, the position of its element; a buffer of its own. The
    /// elements must be computed once, since all comparisons must see the same bits.
    fn positions_in_order(&self, axis: usize, descending: bool) -> Result<Tensor, Error> {
        let (rank, size) = (self.rank(), self.shape()[axis]);
        let position = Tensor::arange(DType::I32, 0, 1, size)?;
        let mut shape = vec![1; rank + 1];
        shape[axis] = size;
        let along = position.reshape(&shape)?;
        // Each element along `axis` meets each of its axis along the last one.
        let (x, each) = (self.unsqueeze(-1)?, moved_last(self, axis)?);
        let (each_before, x_before) = match descending {
            true => (is_less(&x, &each)?, is_less(&each, &x)?),
            false => (is_less(&each, &x)?, is_less(&x, &each)?),
        };
        // Of equal elements, those at earlier positions come before.
        let is_earlier = position.cmplt(&along)?;
        let comes_before = is_earlier.where_(&x_before.not()?, &each_before)?;
        let target = comes_before.sum(-1)?.contiguous();
        // The inverse permutation: the position whose target this is.
        let is_target = moved_last(&target, axis)?.cmpeq(&along)?;
        let found = is_target.where_(&position, &Tensor::scalar(DType::I32, 0)?)?;
        Ok(found.sum(-1)?.contiguous())
    }

    /// The position of the first element that is NaN or, if none is, that equals the extreme one.
    /// The axes, one or all, get size 1.
    fn extreme_position(
        &self,
        name: &str,
        axes: &[usize],
        extreme: impl Fn(&Tensor, usize) -> Result<Tensor, Error>,
    ) -> Result<Tensor, Error> {
        // Computed once, so that the extreme element equals one of those that it is compared with.
        let (x, axis) = match axes[..] {
            [axis] => (self.contiguous(), axis),
            _ if axes.len() == self.rank() => (self.contiguous().flatten(0, -1)?, 0),
            _ => {
                return invalid(format!(
                    "{name} along axes {axes:?} of shape {:?}: one axis, or all",
                    self.shape()
                ));
            }
        };
        let size = x.shape()[axis];
        if !(1..=i64::from(i32::MAX)).contains(&size) {
            return invalid(format!(
                "{name} along axes {axes:?} of shape {:?}: 1 to {} elements",
                self.shape(),
                i32::MAX
            ));
        }
        let mut is_found = x.cmpeq(&extreme(&x, axis)?)?;
        if x.dtype().is_float() {
            is_found = is_found.or(&x.cmpne(&x)?)?;
        }
        let mut shape = vec![1; x.rank()];
        shape[axis] = size;
        // The first position has the largest distance from the end.
        let from_end = Tensor::arange(DType::I32, size, -1, size)?.reshape(&shape)?;
        let nothing = Tensor::scalar(DType::I32, 0)?;
        let distance = is_found.where_(&from_end, &nothing)?.max_kept(&[axis]);
        let first = distance.neg()?.add(size)?;
        let mut kept = self.shape().to_vec();
        axes.iter().for_each(|axis| kept[*axis] = 1);
        first.reshape(&kept)
    }
}

/// Returns whether a comes before b in the order that has NaN last.
fn is_less(a: &Tensor, b: &Tensor) -> Result<Tensor, Error> {
    let less = a.cmplt(b)?;
    match a.dtype().is_float() {
        true => less.or(&b.cmpne(b)?.and(&a.cmpne(a)?.not()?)?),
        false => Ok(less),
    }
}
