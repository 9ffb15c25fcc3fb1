//! Reductions along axes. Reduced axes get size 1; the rank does not change.

use gradiff_graph::{Arg, Op, UOp};

use crate::elementwise::cast_node;
use crate::movement::check_axes;
use crate::tensor::with_shape;
use crate::{Error, Tensor};

impl Tensor {
    /// Sum along `axes`. Bool and small signed integers give i32, small unsigned integers u32; f16
    /// and bf16 are added in f32. The sum of no elements is 0.
    /// # Errors
    /// If an axis does not exist or appears twice.
    pub fn sum(&self, axes: &[usize]) -> Result<Tensor, Error> {
        self.accumulate("sum", Op::Add, axes)
    }

    /// Product along `axes`, with the dtypes of [`sum`](Tensor::sum). The product of no elements is
    /// 1.
    /// # Errors
    /// If an axis does not exist or appears twice.
    pub fn prod(&self, axes: &[usize]) -> Result<Tensor, Error> {
        self.accumulate("prod", Op::Mul, axes)
    }

    /// Maximum along `axes`, with the same dtype; NaN if any element is NaN. The maximum of no
    /// elements is the smallest value: false, the most negative integer, -inf.
    /// # Errors
    /// If an axis does not exist or appears twice.
    pub fn max(&self, axes: &[usize]) -> Result<Tensor, Error> {
        self.reduce("max", self.uop(), Op::Max, axes)
    }

    /// Reduces in the accumulator dtype; floats are cast back.
    fn accumulate(&self, name: &str, op: Op, axes: &[usize]) -> Result<Tensor, Error> {
        let dtype = self.dtype();
        let wide = cast_node(self.uop(), dtype.accumulator());
        let reduced = self.reduce(name, wide, op, axes)?;
        Ok(if dtype.is_float() { reduced.cast(dtype)? } else { reduced })
    }

    fn reduce(&self, name: &str, node: UOp, op: Op, axes: &[usize]) -> Result<Tensor, Error> {
        let axes = check_axes(name, self.shape(), axes)?;
        let dtype = node.dtype();
        let reduction = UOp::new(Op::ReduceAxis, dtype, [node], Arg::Reduce(op, axes));
        Ok(Tensor::from_valid(with_shape(reduction)))
    }
}
