//! Folds along axes. Axes become size 1; the rank stays.

use gradiff_graph::{Arg, Op, UOp};

use crate::elementwise::converted;
use crate::movement::check_axes;
use crate::tensor::made;
use crate::{Error, Tensor};

impl Tensor {
    /// The sum along `axes`. Bool and small signed integers give i32, small unsigned ones u32;
    /// f16 and bf16 are added in f32. Over no elements: 0.
    /// # Errors
    /// If an axis is not there or appears twice.
    pub fn sum(&self, axes: &[usize]) -> Result<Tensor, Error> {
        self.accumulated("sum", Op::Add, axes)
    }

    /// The product along `axes`; dtypes as [`sum`](Tensor::sum). Over no elements: 1.
    /// # Errors
    /// If an axis is not there or appears twice.
    pub fn prod(&self, axes: &[usize]) -> Result<Tensor, Error> {
        self.accumulated("prod", Op::Mul, axes)
    }

    /// The largest element along `axes`; NaN if any is. The dtype stays. Over no elements: the
    /// smallest value (false, the most negative integer, -inf).
    /// # Errors
    /// If an axis is not there or appears twice.
    pub fn max_reduce(&self, axes: &[usize]) -> Result<Tensor, Error> {
        self.folded("max", self.uop(), Op::Max, axes)
    }

    fn accumulated(&self, name: &str, op: Op, axes: &[usize]) -> Result<Tensor, Error> {
        let dtype = self.dtype();
        let wide = converted(self.uop(), dtype.accumulator());
        let folded = self.folded(name, wide, op, axes)?;
        Ok(if dtype.is_float() { folded.cast(dtype)? } else { folded })
    }

    fn folded(&self, name: &str, node: UOp, op: Op, axes: &[usize]) -> Result<Tensor, Error> {
        let axes = check_axes(name, self.shape(), axes)?;
        let dtype = node.dtype();
        let fold = UOp::new(Op::ReduceAxis, dtype, [node], Arg::Reduce(op, axes));
        Ok(Tensor::of(made(fold)))
    }
}
