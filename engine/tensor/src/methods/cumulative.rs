//! Methods that run along an axis: each element is a reduction of those so far.

use gradiff_graph::DType;

use crate::axes::resolve_axis;
use crate::{Error, Scalar, Tensor};

/// The longest axis along which each element is a reduction of its own, in a single kernel.
const MAX_SINGLE: i64 = 64;

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
        let blocks = (size as u64).div_ceil(BLOCK as u64) as i64;
        let mut pads = vec![(0, 0); self.rank()];
        pads[axis].1 = blocks * BLOCK - size;
        let mut shape = self.shape().to_vec();
        shape.splice(axis..=axis, [blocks, BLOCK]);
        let within =
            self.pad(&pads, identity)?.reshape(&shape)?.running_in_block(kind, axis + 1)?;
        // What comes before each block: the running reduction of whole blocks, one block later.
        let mut last: Vec<(i64, i64)> = shape.iter().map(|size| (0, *size)).collect();
        last[axis + 1] = (BLOCK - 1, BLOCK);
        let totals = within.shrink(&last)?.running_of(kind, axis)?;
        let mut later = vec![(0, 0); shape.len()];
        later[axis].0 = 1;
        let mut first: Vec<(i64, i64)> = totals.shape().iter().map(|size| (0, *size)).collect();
        first[axis].1 = blocks;
        let before = totals.pad(&later, identity)?.shrink(&first)?;
        let mut whole = self.shape().to_vec();
        whole[axis] = blocks * BLOCK;
        let mut kept: Vec<(i64, i64)> = whole.iter().map(|size| (0, *size)).collect();
        kept[axis].1 = size;
        kind.combine(&within, &before)?.reshape(&whole)?.shrink(&kept)
    }

    /// Reduces, for each position along `axis`, the elements up to it; the others are masked.
    fn running_in_block(&self, kind: Running, axis: usize) -> Result<Tensor, Error> {
        let size = self.shape()[axis];
        let position = Tensor::arange(DType::I32, 0, 1, size)?;
        // Position i of the result has the mask `j <= i` along a new axis j after it.
        let is_later = position.reshape(&[size, 1])?.cmplt(&position)?;
        let mut mask_shape = vec![1; self.rank() + 1];
        mask_shape[axis] = size;
        mask_shape[axis + 1] = size;
        let mut shape = self.shape().to_vec();
        shape.insert(axis, 1);
        let identity = Tensor::full(self.dtype(), &[], kind.identity(self.dtype()))?;
        let masked = is_later.reshape(&mask_shape)?.where_(&identity, &self.reshape(&shape)?)?;
        kind.reduce(&masked, axis + 1)?.reshape(self.shape())
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
