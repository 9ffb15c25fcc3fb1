//! Movement ops: the same elements under other indices. No data moves before a kernel runs.

use gradiff_graph::{Arg, Constant, DType, Dims, Op, Pairs, UOp};

use crate::elementwise::converted;
use crate::error::invalid;
use crate::tensor::{broadcast, check_shape, filled, made, reshaped};
use crate::{Error, Scalar, Tensor};

impl Tensor {
    /// The same elements in row-major order under other sizes.
    /// # Errors
    /// If the count of elements differs.
    pub fn reshape(&self, shape: &[i64]) -> Result<Tensor, Error> {
        let (have, want) = (self.size_elements(), check_shape(shape)?);
        if have != want {
            return invalid(format!(
                "reshape {:?} to {shape:?}: {have} elements cannot become {want}",
                self.shape()
            ));
        }
        Ok(Tensor::of(reshaped(self.uop(), shape)))
    }

    /// Axis i of the result is axis `axes[i]` of `self`.
    /// # Errors
    /// If `axes` is no permutation of the axes.
    pub fn permute(&self, axes: &[usize]) -> Result<Tensor, Error> {
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        if sorted != (0..self.rank()).collect::<Vec<_>>() {
            return invalid(format!(
                "permute {:?} by {axes:?}: each of the {} axes must appear once",
                self.shape(),
                self.rank()
            ));
        }
        Ok(self.moved(Op::Permute, Arg::Dims(axes.iter().map(|axis| *axis as i64).collect())))
    }

    /// Repeats axes of size 1; the rank stays.
    /// # Errors
    /// If ranks differ, or an axis is neither 1 nor equal.
    pub fn expand(&self, shape: &[i64]) -> Result<Tensor, Error> {
        check_shape(shape)?;
        let fits = self.rank() == shape.len()
            && self.shape().iter().zip(shape).all(|(own, to)| own == to || *own == 1);
        if !fits {
            return invalid(format!(
                "expand {:?} to {shape:?}: ranks must be equal, and each size 1 or equal",
                self.shape()
            ));
        }
        Ok(self.moved(Op::Expand, Arg::Dims(Dims::from_slice(shape))))
    }

    /// Adds elements that hold `value` before and after each axis.
    /// # Errors
    /// If there is not one pair for each axis, a count is negative, or the dtype of `self` cannot
    /// say the value.
    pub fn pad(&self, pads: &[(i64, i64)], value: impl Into<Scalar>) -> Result<Tensor, Error> {
        let is_count = |(before, after): &(i64, i64)| 0 <= *before && 0 <= *after;
        if pads.len() != self.rank() || !pads.iter().all(is_count) {
            return invalid(format!(
                "pad {:?} by {pads:?}: one pair of counts, 0 or more, for each of {} axes",
                self.shape(),
                self.rank()
            ));
        }
        let sizes = self.shape().iter().zip(pads);
        let grown =
            sizes.map(|(size, (before, after))| size.checked_add(*before)?.checked_add(*after));
        let shape: Option<Vec<i64>> = grown.collect();
        let Some(shape) = shape else {
            return invalid(format!("pad {:?} by {pads:?}: too many elements", self.shape()));
        };
        check_shape(&shape)?;
        let value = value.into().element(self.dtype())?;
        let padded = padded(self.uop(), pads);
        if value.bits() == 0 {
            return Ok(Tensor::of(padded));
        }
        let inside = padded_mask(self.shape(), pads);
        Ok(Tensor::of(made(UOp::select(inside, padded, filled(value, &shape)))))
    }

    /// Keeps the half-open range of each axis.
    /// # Errors
    /// If there is not one range for each axis, or a range is not inside its axis.
    pub fn shrink(&self, ranges: &[(i64, i64)]) -> Result<Tensor, Error> {
        let fits = ranges.len() == self.rank()
            && ranges
                .iter()
                .zip(self.shape())
                .all(|((start, end), size)| 0 <= *start && start <= end && end <= size);
        if !fits {
            return invalid(format!(
                "shrink {:?} to {ranges:?}: one range, 0 <= start <= end <= size, for each of \
                 {} axes",
                self.shape(),
                self.rank()
            ));
        }
        Ok(self.moved(Op::Shrink, Arg::Pairs(Pairs::from_slice(ranges))))
    }

    /// Reverses axes.
    /// # Errors
    /// If an axis is not there or appears twice.
    pub fn flip(&self, axes: &[usize]) -> Result<Tensor, Error> {
        let axes = check_axes("flip", self.shape(), axes)?;
        Ok(self.moved(Op::Flip, Arg::Dims(axes)))
    }

    /// The tensors behind one another along an axis.
    /// # Errors
    /// If there are none, dtypes differ, or sizes differ on another axis.
    pub fn cat(tensors: &[&Tensor], axis: usize) -> Result<Tensor, Error> {
        let Some(first) = tensors.first() else {
            return invalid("cat of nothing: give it one tensor or more");
        };
        if first.rank() <= axis {
            return invalid(format!("cat along axis {axis} of shape {:?}", first.shape()));
        }
        let mut total = 0i64;
        for tensor in tensors {
            let fits = tensor.dtype() == first.dtype()
                && tensor.rank() == first.rank()
                && (0..first.rank()).all(|i| i == axis || tensor.shape()[i] == first.shape()[i]);
            if !fits {
                return invalid(format!(
                    "cat of {first:?} and {tensor:?} along axis {axis}: dtypes, ranks and the \
                     sizes of other axes must be equal"
                ));
            }
            total = total.saturating_add(tensor.shape()[axis]);
        }
        let mut shape = first.shape().to_vec();
        shape[axis] = total;
        check_shape(&shape)?;
        Ok(Tensor::of(joined(tensors, axis, &shape)))
    }

    /// `out[.., i, ..] = self[.., index[.., i, ..], ..]` along `axis`, bit by bit; 0 where the
    /// index is outside of the axis (negative ones are).
    /// # Errors
    /// If the index is no integer tensor, or its rank or its size on another axis differs.
    pub fn gather(&self, axis: usize, index: &Tensor) -> Result<Tensor, Error> {
        let fits = axis < self.rank()
            && index.rank() == self.rank()
            && (0..self.rank()).all(|i| i == axis || index.shape()[i] == self.shape()[i]);
        if !fits || !index.dtype().is_int() {
            return invalid(format!(
                "gather from {self:?} by {index:?} along axis {axis}: the index must be of \
                 integers, its rank and the sizes of other axes equal"
            ));
        }
        // Each output sees the whole axis as a last one of its own; one element of it, at most,
        // is not zero, so the sum of the bits is that element.
        let count = self.shape()[axis];
        let mut seen = index.shape().to_vec();
        seen.push(count);
        check_shape(&seen)?;
        let wide = match index.dtype() {
            DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32
                if count <= i64::from(i32::MAX) =>
            {
                DType::I32
            }
            _ => DType::I64,
        };
        let place = converted(index.uop(), wide);
        let place = reshaped(place, &[index.shape(), &[1]].concat());
        let counter = UOp::new(Op::Iota, wide, [], Arg::Int(count));
        let differs = UOp::binary(Op::CmpNe, broadcast(place, &seen), broadcast(counter, &seen));
        let differs = made(differs);
        let last: Vec<usize> = (0..self.rank()).filter(|i| *i != axis).chain([axis]).collect();
        let mut aligned: Vec<i64> = last.iter().map(|i| self.shape()[*i]).collect();
        aligned.insert(axis, 1);
        let bits = bits_of(self.permute(&last)?.uop());
        let bits = broadcast(reshaped(bits, &aligned), &seen);
        let none = filled(Constant::zero(bits.dtype()), &seen);
        let picked = made(UOp::select(differs, none, bits));
        let axes = Dims::from_slice(&[index.rank() as i64]);
        let dtype = picked.dtype();
        let sum = UOp::new(Op::ReduceAxis, dtype, [picked], Arg::Reduce(Op::Add, axes));
        let sum = reshaped(made(sum), index.shape());
        Ok(Tensor::of(from_bits(sum, self.dtype())))
    }

    /// The same value, laid out in a buffer of its own when it is computed.
    pub fn contiguous(&self) -> Tensor {
        Tensor::of(made(UOp::unary(Op::Contiguous, self.dtype(), self.uop())))
    }

    /// The same value, cut off from gradients.
    pub fn detach(&self) -> Tensor {
        Tensor::of(made(UOp::unary(Op::Detach, self.dtype(), self.uop())))
    }

    fn moved(&self, op: Op, arg: Arg) -> Tensor {
        Tensor::of(made(UOp::new(op, self.dtype(), [self.uop()], arg)))
    }
}

/// Axes in ascending order, each inside the shape, none twice.
pub(crate) fn check_axes(name: &str, shape: &[i64], axes: &[usize]) -> Result<Dims, Error> {
    let mut sorted = axes.to_vec();
    sorted.sort_unstable();
    let is_strict = sorted.windows(2).all(|two| two[0] < two[1]);
    if !is_strict || sorted.last().is_some_and(|last| shape.len() <= *last) {
        return invalid(format!(
            "{name} along axes {axes:?} of shape {shape:?}: each below {}, none twice",
            shape.len()
        ));
    }
    Ok(sorted.iter().map(|axis| *axis as i64).collect())
}

fn padded(node: UOp, pads: &[(i64, i64)]) -> UOp {
    let arg = Arg::Pairs(Pairs::from_slice(pads));
    made(UOp::new(Op::Pad, node.dtype(), [node], arg))
}

/// True where `pads` around a tensor of this shape adds nothing.
fn padded_mask(shape: &[i64], pads: &[(i64, i64)]) -> UOp {
    padded(filled(Constant::bool(true), shape), pads)
}

/// Each part padded to the whole, and chosen where it is not padding.
fn joined(parts: &[&Tensor], axis: usize, shape: &[i64]) -> UOp {
    let mut start = 0;
    let mut whole: Option<UOp> = None;
    for part in parts {
        let size = part.shape()[axis];
        let mut pads = vec![(0, 0); shape.len()];
        pads[axis] = (start, shape[axis] - start - size);
        start += size;
        let own = padded(part.uop(), &pads);
        whole = Some(match whole {
            None => own,
            Some(before) => made(UOp::select(padded_mask(part.shape(), &pads), own, before)),
        });
    }
    whole.expect("cat has one part or more")
}

/// The elements as unsigned integers that add without loss.
fn bits_of(node: UOp) -> UOp {
    match node.dtype() {
        DType::F16 | DType::BF16 => {
            converted(made(UOp::unary(Op::Bitcast, DType::U16, node)), DType::U32)
        }
        DType::F32 => made(UOp::unary(Op::Bitcast, DType::U32, node)),
        DType::F64 => made(UOp::unary(Op::Bitcast, DType::U64, node)),
        DType::I64 | DType::U64 => converted(node, DType::U64),
        _ => converted(node, DType::U32),
    }
}

/// The way back from [`bits_of`].
fn from_bits(node: UOp, dtype: DType) -> UOp {
    match dtype {
        DType::F16 | DType::BF16 => {
            made(UOp::unary(Op::Bitcast, dtype, converted(node, DType::U16)))
        }
        DType::F32 | DType::F64 => made(UOp::unary(Op::Bitcast, dtype, node)),
        _ => converted(node, dtype),
    }
}
