//! Methods that run along an axis: each element is a reduction of those so far.

use gradiff_graph::DType;

use crate::axes::resolve_axis;
use crate::methods::movement::ceil_div;
use crate::{Error, Scalar, Tensor};

/// The longest axis along which each element is a reduction of its own, in a single kernel.
pub(super) const MAX_SINGLE: i64 = 64;

/// The size of the blocks that a longer axis is divided into, since the work of an element is the
/// size of its block.
const BLOCK: i64 = 16;

/// A reduction that can run along an axis.
#[derive(Clone, Copy)]
enum Running {
    Sum,
    Product,
    Maximum,
}

impl Running {
    fn reduce(self, x: &Tensor, axis: usize) -> Result<Tensor, Error> {
        match self {
            Running::Sum => x.sum_kept(&[axis]),
            Running::Product => x.prod_kept(&[axis]),
            Running::Maximum => Ok(x.max_kept(&[axis])),
        }
    }

    fn combine(self, x: &Tensor, y: &Tensor) -> Result<Tensor, Error> {
        match self {
            Running::Sum => x.add(y),
            Running::Product => x.mul(y),
            Running::Maximum => x.maximum(y),
        }
    }

    /// The element that changes no result.
    fn identity(self, dtype: DType) -> Scalar {
        match (self, dtype.int_range()) {
            (Running::Sum, _) if dtype == DType::Bool => Scalar::Bool(false),
            (Running::Product, _) if dtype == DType::Bool => Scalar::Bool(true),
            (Running::Maximum, _) if dtype == DType::Bool => Scalar::Bool(false),
            (Running::Sum, _) => Scalar::Int(0),
            (Running::Product, _) => Scalar::Int(1),
            (Running::Maximum, Some((low, _))) => Scalar::Int(low),
            (Running::Maximum, None) => Scalar::Float(f64::NEG_INFINITY),
        }
    }
}

impl Tensor {
    /// Sum of the elements up to each position along `axis`, with the dtypes of
    /// [`sum`](Tensor::sum).
    /// # Errors
    /// If the axis does not exist.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 3, 4])?.cumsum(-1)?;
    /// assert_eq!(x.to_text()?, "[[1, 3], [3, 7]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn cumsum(&self, axis: i64) -> Result<Tensor, Error> {
        self.running("cumsum", Running::Sum, axis)
    }

    /// Product of the elements up to each position along `axis`, with the dtypes of
    /// [`prod`](Tensor::prod).
    /// # Errors
    /// If the axis does not exist.
    pub fn cumprod(&self, axis: i64) -> Result<Tensor, Error> {
        self.running("cumprod", Running::Product, axis)
    }

    /// Largest element up to each position along `axis`; NaN from the first NaN on.
    /// # Errors
    /// If the axis does not exist.
    pub fn cummax(&self, axis: i64) -> Result<Tensor, Error> {
        let value = self.running("cummax", Running::Maximum, axis)?;
        let axis = Tensor::scalar(DType::I64, resolve_axis("cummax", axis, self.shape())? as i64)?;
        Ok(value.as_function("cummax", &[self, &axis]))
    }

    fn running(&self, name: &str, kind: Running, axis: i64) -> Result<Tensor, Error> {
        let axis = resolve_axis(name, axis, self.shape())?;
        // In a running sum of halves each element is rounded once, from the accumulator.
        let dtype = match kind {
            Running::Maximum => self.dtype(),
            Running::Sum | Running::Product => self.dtype().accumulator(),
        };
        let wide = self.cast(dtype)?;
        let found = match self.size_elements() {
            0 => wide,
            _ => wide.running_of(kind, axis)?,
        };
        if self.dtype().is_float() { found.cast(self.dtype()) } else { Ok(found) }
    }

    fn running_of(&self, kind: Running, axis: usize) -> Result<Tensor, Error> {
        let size = self.shape()[axis];
        if size <= MAX_SINGLE {
            return self.running_in_block(kind, axis);
        }
        let identity = kind.identity(self.dtype());
        let within = self.in_blocks(axis, identity)?.running_in_block(kind, axis + 1)?;
        // The running reduction of whole blocks comes before the next block.
        let before =
            within.last_of_blocks(axis)?.running_of(kind, axis)?.delayed(axis, identity)?;
        kind.combine(&within, &before)?.out_of_blocks(axis, size)
    }

    /// Reduces, for each position along `axis`, the elements up to it; the others are masked.
    fn running_in_block(&self, kind: Running, axis: usize) -> Result<Tensor, Error> {
        let masked = self.so_far(axis, kind.identity(self.dtype()))?;
        kind.reduce(&masked, axis + 1)?.reshape(self.shape())
    }

    /// The elements up to each position along `axis`, along a new axis after it, and `rest` in
    /// place of the later ones.
    pub(super) fn so_far(&self, axis: usize, rest: Scalar) -> Result<Tensor, Error> {
        let size = self.shape()[axis];
        let position = Tensor::arange(DType::I32, 0, 1, size)?;
        // Position i of the result has the mask `j <= i` along the new axis j.
        let is_later = position.reshape(&[size, 1])?.cmplt(&position)?;
        let rest = Tensor::full(self.dtype(), &[], rest)?;
        let is_later = is_later.reshape(&self.pair_shape(axis))?;
        is_later.where_(&rest, &self.unsqueeze(axis as i64)?)
    }

    /// The shape of a mask of pairs of positions along `axis`.
    fn pair_shape(&self, axis: usize) -> Vec<i64> {
        let mut shape = vec![1; self.rank() + 1];
        shape[axis..axis + 2].fill(self.shape()[axis]);
        shape
    }

    /// Divides an axis into blocks, along a new axis after it; the last block is filled up.
    pub(super) fn in_blocks(&self, axis: usize, fill: Scalar) -> Result<Tensor, Error> {
        let size = self.shape()[axis];
        let blocks = ceil_div(size, BLOCK);
        let mut pads = vec![(0, 0); self.rank()];
        pads[axis].1 = blocks * BLOCK - size;
        let mut shape = self.shape().to_vec();
        shape.splice(axis..=axis, [blocks, BLOCK]);
        self.pad(&pads, fill)?.reshape(&shape)
    }

    /// Makes an axis of this size of blocks.
    pub(super) fn out_of_blocks(&self, axis: usize, size: i64) -> Result<Tensor, Error> {
        let mut whole = self.shape().to_vec();
        whole[axis] *= whole.remove(axis + 1);
        self.reshape(&whole)?.range(axis, 0, size)
    }

    /// The last element of each block.
    pub(super) fn last_of_blocks(&self, axis: usize) -> Result<Tensor, Error> {
        self.range(axis + 1, BLOCK - 1, BLOCK)
    }

    /// The elements at the position before along `axis`, and `first` at the first position.
    pub(crate) fn delayed(&self, axis: usize, first: Scalar) -> Result<Tensor, Error> {
        let mut pads = vec![(0, 0); self.rank()];
        pads[axis].0 = 1;
        self.pad(&pads, first)?.range(axis, 0, self.shape()[axis])
    }

    /// The sums of the elements up to each position along `axis` whose key is that of the position.
    /// Equal keys are next to each other; NaN equals none.
    pub(crate) fn sums_of_equal_keys(&self, keys: &Tensor, axis: usize) -> Result<Tensor, Error> {
        self.add(self.sums_before(keys, keys, axis)?)
    }

    /// The sums of the elements before each position along `axis` whose last key is the first key
    /// of the position.
    fn sums_before(&self, first: &Tensor, last: &Tensor, axis: usize) -> Result<Tensor, Error> {
        let size = self.shape()[axis];
        if size <= MAX_SINGLE {
            return self.sums_before_in_block(first, last, axis);
        }
        let blocks = |x: &Tensor| x.in_blocks(axis, Scalar::Int(0));
        let (x, first, last) = (blocks(self)?, blocks(first)?, blocks(last)?);
        let within = x.sums_before_in_block(&first, &last, axis + 1)?;
        // Equal keys of two blocks are at the end of one and at the start of the next.
        let (first_key, last_key) = (first.range(axis + 1, 0, 1)?, last.last_of_blocks(axis)?);
        let at_end = last.cmpeq(&last_key)?.where_(&x, 0)?.sum_kept(&[axis + 1])?;
        let before = at_end.sums_before(&first_key, &last_key, axis)?;
        let added = first.cmpeq(&first_key)?.where_(&before, 0)?;
        within.add(&added)?.out_of_blocks(axis, size)
    }

    fn sums_before_in_block(
        &self,
        first: &Tensor,
        last: &Tensor,
        axis: usize,
    ) -> Result<Tensor, Error> {
        let size = self.shape()[axis];
        let position = Tensor::arange(DType::I32, 0, 1, size)?;
        // Position i of the result has the mask `j < i` along a new axis j after it.
        let is_before = position.cmplt(&position.reshape(&[size, 1])?)?;
        let next = axis as i64 + 1;
        let is_equal = first.unsqueeze(next)?.cmpeq(&last.unsqueeze(axis as i64)?)?;
        let is_added = is_before.reshape(&self.pair_shape(axis))?.and(&is_equal)?;
        let added = is_added.where_(&self.unsqueeze(axis as i64)?, 0)?;
        added.sum_kept(&[axis + 1])?.reshape(self.shape())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_representable() {
        for dtype in DType::ALL {
            for kind in [Running::Sum, Running::Product, Running::Maximum] {
                let found = kind.identity(dtype).element(dtype);
                assert!(found.is_ok_and(|constant| constant.dtype() == dtype), "{dtype}");
            }
        }
    }
}
