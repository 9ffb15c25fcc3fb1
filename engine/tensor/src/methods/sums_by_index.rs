//! Sums of the elements whose index names a position.

use gradiff_graph::{DType, Op};

use crate::methods::movement::zero;
use crate::tensor::check_reduced;
use crate::{Error, Scalar, Tensor};

/// The number of pairs of elements and positions from which on elements are sorted by their
/// indices, and not compared with each position: what sorting launches takes longer before.
const SORTED_MIN: i64 = 1 << 21;
/// The cost of sorting an index, in terms of a comparison in a vector.
const SORTED_KEY: i64 = 4096;
/// The cost of looking an index up, for each bisection, in terms of a comparison in a vector.
const LOOKUP: i64 = 16;
/// The sizes of both axes from which on they are sorted.
const SORTED_AXIS_MIN: i64 = 32;

impl Tensor {
    /// Returns the sum of the elements along `axis` whose index names each of `size` positions, in
    /// the dtype of sums; an index that is negative or not below `size` names none. The index,
    /// integers, has the shape of `self`.
    pub(super) fn sums_by_index(
        &self,
        index: &Tensor,
        axis: usize,
        size: i64,
    ) -> Result<Tensor, Error> {
        let x = self.cast(self.dtype().accumulator())?;
        let count = self.shape()[axis];
        let rest = self.size_elements().checked_div(count).unwrap_or(0);
        let pairs = count.saturating_mul(size).saturating_mul(rest);
        let narrow = unexpanded(index, axis);
        // A position is compared with each index, or looked up among those that are sorted.
        let keys = narrow.size_elements();
        let lookups = keys.saturating_mul(LOOKUP * (1 + i64::from(count.max(1).ilog2())));
        let is_sorted = SORTED_AXIS_MIN <= count.min(size)
            && SORTED_MIN.max(keys.saturating_mul(SORTED_KEY)) <= pairs
            && lookups < self.size_elements().saturating_mul(count)
            && check_reduced(&[self.shape(), &[count]].concat()).is_ok();
        let value = match is_sorted {
            true => x.sums_of_sorted(&narrow, axis, size)?,
            false => {
                let mask = positions_named(index, axis, size)?;
                let nothing = Tensor::scalar(x.dtype(), zero(x.dtype()))?;
                mask.where_(&moved_last(&x, axis)?, &nothing)?.sum(-1)?
            }
        };
        let axis = Tensor::scalar(DType::I64, axis as i64)?;
        Ok(value.as_function("sums_by_index", &[&x, index, &axis]))
    }

    /// Sorts the elements by their indices, which are repeated along axes of size 1. Then those of
    /// a position are next to each other, and their running sum ends with all of them.
    fn sums_of_sorted(&self, index: &Tensor, axis: usize, size: i64) -> Result<Tensor, Error> {
        let count = self.shape()[axis];
        let wide = |x: &Tensor, to: i64| {
            let mut shape = self.shape().to_vec();
            shape[axis] = to;
            x.expand(&shape)
        };
        let keys = numbers_of_positions(index, size)?;
        let order = keys.argsort(axis as i64, false)?;
        let keys = keys.gather(axis as i64, &order)?.contiguous();
        let sorted = self.gather(axis as i64, &wide(&order, count)?)?.contiguous();
        let sums = sorted.sums_of_equal_keys(&keys, axis)?.contiguous();
        let last = last_of_equal_keys(&keys, axis, size)?;
        sums.gather(axis as i64, &wide(&last, size)?)
    }
}

/// Returns an index before it was repeated along axes other than `axis`, so that it is sorted once.
fn unexpanded(index: &Tensor, axis: usize) -> Tensor {
    let (node, count) = (index.uop(), index.shape()[axis]);
    match node.op() {
        Op::Expand if node.src()[0].shape().is_some_and(|shape| shape[axis] == count) => {
            Tensor::from_valid(node.src()[0].clone())
        }
        _ => index.clone(),
    }
}

/// Returns the position (i32) along `axis` of the last key that equals each number below `size`, or
/// -1 if there is none. The keys are ascending.
fn last_of_equal_keys(keys: &Tensor, axis: usize, size: i64) -> Result<Tensor, Error> {
    let count = keys.shape()[axis];
    let mut shape = vec![1; keys.rank()];
    shape[axis] = size;
    let number = Tensor::arange(keys.dtype(), 0, 1, size)?.reshape(&shape)?;
    let mut wide = keys.shape().to_vec();
    wide[axis] = size;
    let key_at = |position: &Tensor| keys.gather(axis as i64, position);
    // The number of keys that are not above it, by bisection.
    let mut taken = Tensor::full(DType::I32, &wide, 0)?;
    let mut step = 1 << count.ilog2();
    while 0 < step {
        let candidate = taken.add(step)?;
        let is_above = number.cmplt(&key_at(&candidate.sub(1)?)?)?;
        let is_over = Tensor::scalar(DType::I32, count)?.cmplt(&candidate)?;
        taken = is_over.or(&is_above)?.where_(&taken, &candidate)?.contiguous();
        step /= 2;
    }
    let last = taken.sub(1)?;
    // Before the first key, 0 is read, which may equal the number.
    let is_found = key_at(&last)?.cmpeq(&number)?.and(&taken.cmpne(0)?)?;
    Ok(is_found.where_(&last, Scalar::Int(-1))?.contiguous())
}

/// Returns whether the index names each position along `axis`, in the shape of `size` positions,
/// with a last axis, which runs along the axis of the index.
pub(super) fn positions_named(index: &Tensor, axis: usize, size: i64) -> Result<Tensor, Error> {
    let mut shape = vec![1; index.rank() + 1];
    shape[axis] = size;
    let number = moved_last(&numbers_of_positions(index, size)?, axis)?;
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
