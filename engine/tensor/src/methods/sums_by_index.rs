//! Sums of the elements whose index names a position.

use gradiff_graph::{DType, Op};

use crate::{Error, Scalar, Tensor};

impl Tensor {
    /// Returns the sum of the elements along `axis` whose index names each of `size` positions, in
    /// the dtype of sums; an index that is negative or not below `size` names none. The index,
    /// integers, has the shape of `self`. Those of a position may be added one after the other.
    pub(super) fn sums_by_index(
        &self,
        index: &Tensor,
        axis: usize,
        size: i64,
    ) -> Result<Tensor, Error> {
        let x = self.cast(self.dtype().accumulator())?;
        let mask = positions_named(index, axis, size)?;
        // -0.0 for the others permits one accumulator, however many they are.
        let nothing = if x.dtype().is_float() { Scalar::Float(-0.0) } else { Scalar::Int(0) };
        let nothing = Tensor::scalar(x.dtype(), nothing)?;
        let sum = mask.where_(&moved_last(&x, axis)?, &nothing)?.sum(-1)?;
        // A kernel of its own stores each element at the position that it names.
        let sum = sum.contiguous();
        let axis = Tensor::scalar(DType::I64, axis as i64)?;
        Ok(sum.as_function("sums_by_index", &[&x, index, &axis]))
    }
}

/// Returns an index before it was repeated along axes other than `axis`.
fn unexpanded(index: &Tensor, axis: usize) -> Tensor {
    let (node, count) = (index.uop(), index.shape()[axis]);
    match node.op() {
        Op::Expand if node.src()[0].shape().is_some_and(|shape| shape[axis] == count) => {
            Tensor::from_valid(node.src()[0].clone())
        }
        _ => index.clone(),
    }
}

/// Returns whether the index names each position along `axis`, in the shape of `size` positions,
/// with a last axis, which runs along the axis of the index.
pub(super) fn positions_named(index: &Tensor, axis: usize, size: i64) -> Result<Tensor, Error> {
    let mut shape = vec![1; index.rank() + 1];
    shape[axis] = size;
    let numbers = numbers_of_positions(&unexpanded(index, axis), size)?;
    let number = moved_last(&numbers.contiguous().expand(index.shape())?, axis)?;
    let position = Tensor::arange(number.dtype(), 0, 1, size)?.reshape(&shape)?;
    number.combined(Op::CmpNe, &position)?.not()
}

/// Returns indices of positions below `size` in the narrowest dtype of positions; those that name
/// none are -1 or `size`.
fn numbers_of_positions(index: &Tensor, size: i64) -> Result<Tensor, Error> {
    let numbers = index.cast(DType::I64)?.clamp(-1, size)?;
    if size <= i64::from(i32::MAX) { numbers.cast(DType::I32) } else { Ok(numbers) }
}

/// Moves an axis behind the last; an axis of size 1 takes its number.
pub(super) fn moved_last(x: &Tensor, axis: usize) -> Result<Tensor, Error> {
    x.unsqueeze(-1)?.transpose(axis as i64, -1)
}
