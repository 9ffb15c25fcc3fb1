//! Reductions along axes. As graph ops they keep the rank: reduced axes get size 1.

use gradiff_graph::{Arg, Op, UOp};

use crate::elementwise::cast_node;
use crate::movement::ascending;
use crate::tensor::with_shape;
use crate::{Axes, Error, Tensor};

impl Tensor {
    /// Sum along `axes`. Bool and small signed integers give i32, small unsigned integers u32; f16
    /// and bf16 are added in f32. The sum of no elements is 0.
    /// # Errors
    /// If an axis does not exist or appears twice.
    pub fn sum(&self, axes: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("sum", axes.into(), Tensor::sum_kept)
    }

    /// Product along `axes`, with the dtypes of [`sum`](Tensor::sum). The product of no elements is
    /// 1.
    /// # Errors
    /// If an axis does not exist or appears twice.
    pub fn prod(&self, axes: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("prod", axes.into(), Tensor::prod_kept)
    }

    /// Maximum along `axes`, with the same dtype; NaN if any element is NaN. The maximum of no
    /// elements is the smallest value: false, the most negative integer, -inf.
    /// # Errors
    /// If an axis does not exist or appears twice.
    pub fn max(&self, axes: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("max", axes.into(), |x, axes| Ok(x.max_kept(axes)))
    }

    /// Reduces with a function that keeps the axes, and removes them unless they are to be kept.
    pub(crate) fn reduced(
        &self,
        method: &str,
        axes: Axes,
        reduce: impl FnOnce(&Tensor, &[usize]) -> Result<Tensor, Error>,
    ) -> Result<Tensor, Error> {
        let found = axes.resolve(method, self.shape())?;
        let reduced = reduce(self, &found)?;
        if axes.are_kept() {
            return Ok(reduced);
        }
        let kept = self.shape().iter().enumerate().filter(|(axis, _)| !found.contains(axis));
        let shape: Vec<i64> = kept.map(|(_, size)| *size).collect();
        reduced.reshape(&shape)
    }

    /// Sum along distinct axes of the tensor, which get size 1.
    pub(crate) fn sum_kept(&self, axes: &[usize]) -> Result<Tensor, Error> {
        self.accumulate(Op::Add, axes)
    }

    /// Product along distinct axes of the tensor, which get size 1.
    pub(crate) fn prod_kept(&self, axes: &[usize]) -> Result<Tensor, Error> {
        self.accumulate(Op::Mul, axes)
    }

    /// Maximum along distinct axes of the tensor, which get size 1.
    pub(crate) fn max_kept(&self, axes: &[usize]) -> Tensor {
        reduce(self.uop(), Op::Max, axes)
    }

    /// Reduces in the accumulator dtype; floats are cast back.
    fn accumulate(&self, op: Op, axes: &[usize]) -> Result<Tensor, Error> {
        let dtype = self.dtype();
        let reduced = reduce(cast_node(self.uop(), dtype.accumulator()), op, axes);
        Ok(if dtype.is_float() { reduced.cast(dtype)? } else { reduced })
    }
}

fn reduce(node: UOp, op: Op, axes: &[usize]) -> Tensor {
    let reduction =
        UOp::new(Op::ReduceAxis, node.dtype(), [node], Arg::Reduce(op, ascending(axes)));
    Tensor::from_valid(with_shape(reduction))
}
