//! Movement ops: the same elements at other indices. Nothing is copied before a kernel runs.

use gradiff_graph::{Arg, Constant, DType, Dims, Op, Pairs, UOp};

use crate::axes::{resolve_axes, resolve_axis};
use crate::elementwise::cast_node;
use crate::error::invalid;
use crate::parameters::detached;
use crate::placement::check_devices;
use crate::tensor::{
    broadcast, check_reduced, check_shape, constant_node, reshape_node, with_shape,
};
use crate::{Error, Scalar, Tensor};

impl Tensor {
    /// Changes the shape; the elements keep their row-major order. One of the sizes may be -1: it
    /// stands for the number of elements divided by the product of the other sizes.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 3], &[1, 2, 3, 4, 5, 6])?;
    /// assert_eq!(x.reshape(&[-1, 2])?.to_text()?, "[[1, 2], [3, 4], [5, 6]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// If `shape` has another number of elements, or -1 and no size, or several, would fit.
    pub fn reshape(&self, shape: &[i64]) -> Result<Tensor, Error> {
        let inferred = self.inferred(shape)?;
        let shape = inferred.as_deref().unwrap_or(shape);
        let (from, to) = (self.size_elements(), check_shape(shape)?);
        if from != to {
            return invalid(format!(
                "reshape {:?} to {shape:?}: {from} elements cannot become {to}",
                self.shape()
            ));
        }
        Ok(Tensor::from_valid(reshape_node(self.uop(), shape)))
    }

    /// Returns a shape that has -1 with the size in its place; `None` for a shape without.
    fn inferred(&self, shape: &[i64]) -> Result<Option<Vec<i64>>, Error> {
        let Some(at) = shape.iter().position(|size| *size == -1) else { return Ok(None) };
        let mut sizes = shape.to_vec();
        let mut known = shape.iter().enumerate().filter(|(axis, _)| *axis != at);
        let product = known.try_fold(1i64, |product, (_, size)| match size {
            0.. => product.checked_mul(*size),
            _ => None,
        });
        let from = self.size_elements();
        match product {
            Some(product @ 1..) if from % product == 0 => sizes[at] = from / product,
            _ => {
                return invalid(format!(
                    "reshape {:?} to {shape:?}: one size may be -1, if the product of the others \
                     is not 0 and divides {from}",
                    self.shape()
                ));
            }
        }
        Ok(Some(sizes))
    }

    /// Reorders axes: axis i of the result is axis `axes[i]` of `self`. Negative numbers count from
    /// the last axis.
    /// # Errors
    /// If `axes` is not a permutation of the axes.
    pub fn permute(&self, axes: &[i64]) -> Result<Tensor, Error> {
        let order = resolve_axes("permute", axes, self.shape())?;
        if order.len() != self.rank() {
            return invalid(format!(
                "permute {:?} by {axes:?}: each of the {} axes must appear once",
                self.shape(),
                self.rank()
            ));
        }
        Ok(self.permuted(&order))
    }

    /// Reorders axes by a permutation of all of them.
    pub(crate) fn permuted(&self, order: &[usize]) -> Tensor {
        self.movement(Op::Permute, Arg::Dims(order.iter().map(|axis| *axis as i64).collect()))
    }

    /// Repeats axes of size 1, so that the shape becomes `shape`, which may have more axes, before
    /// the first of the tensor. The size -1 stands for that of the tensor.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 1], &[1, 2])?;
    /// assert_eq!(x.expand(&[-1, 3])?.to_text()?, "[[1, 1, 1], [2, 2, 2]]");
    /// assert_eq!(x.expand(&[4, 2, 3])?.shape(), [4, 2, 3]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// If there are fewer axes, or if a size changes that is not 1.
    pub fn expand(&self, shape: &[i64]) -> Result<Tensor, Error> {
        let mut sizes = shape.to_vec();
        let mut aligned = vec![1; shape.len().saturating_sub(self.rank())];
        for (to, from) in sizes.iter_mut().skip(aligned.len()).zip(self.shape()) {
            *to = if *to == -1 { *from } else { *to };
        }
        check_shape(&sizes)?;
        aligned.extend(self.shape());
        let fits = aligned.len() == sizes.len()
            && aligned.iter().zip(&sizes).all(|(from, to)| from == to || *from == 1);
        if !fits {
            return invalid(format!(
                "expand {:?} to {shape:?}: only sizes of 1 may change, and axes may be added \
                 before the first",
                self.shape()
            ));
        }
        let (node, arg) = (reshape_node(self.uop(), &aligned), Dims::from_slice(&sizes));
        let expanded = UOp::new(Op::Expand, self.dtype(), [node], Arg::Dims(arg));
        Ok(Tensor::from_valid(with_shape(expanded)))
    }

    /// Adds elements with this value to each axis; `pads` has their numbers (before, after).
    /// # Errors
    /// If there is not a pair for each axis, a number is negative, the dtype of `self` cannot
    /// represent the value, or the result has more than [`MAX_ELEMENTS`](crate::MAX_ELEMENTS)
    /// elements.
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
        let padded_sizes =
            sizes.map(|(size, (before, after))| size.checked_add(*before)?.checked_add(*after));
        let shape: Option<Vec<i64>> = padded_sizes.collect();
        let Some(shape) = shape else {
            return invalid(format!("pad {:?} by {pads:?}: too many elements", self.shape()));
        };
        check_shape(&shape)?;
        let value = value.into().element(self.dtype())?;
        let padded = pad_node(self.uop(), pads);
        if value.bits() == 0 {
            return Ok(Tensor::from_valid(padded));
        }
        let mask = padding_mask(self.shape(), pads);
        Ok(Tensor::from_valid(with_shape(UOp::select(mask, padded, constant_node(value, &shape)))))
    }

    /// Keeps the half-open range (start, end) of each axis.
    /// # Errors
    /// If there is not a range for each axis, or a range is not inside its axis.
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
        Ok(self.movement(Op::Shrink, Arg::Pairs(Pairs::from_slice(ranges))))
    }

    /// Reverses axes. Negative numbers count from the last axis.
    /// # Errors
    /// If an axis does not exist or appears twice.
    pub fn flip(&self, axes: &[i64]) -> Result<Tensor, Error> {
        Ok(self.flipped(&resolve_axes("flip", axes, self.shape())?))
    }

    /// Reverses distinct axes of the tensor.
    pub(crate) fn flipped(&self, axes: &[usize]) -> Tensor {
        self.movement(Op::Flip, Arg::Dims(ascending(axes)))
    }

    /// Concatenates tensors along an axis. A negative number counts from the last axis.
    /// # Errors
    /// If there are no tensors, their dtypes, ranks or sizes on another axis differ, the axis does
    /// not exist, or the result has more than [`MAX_ELEMENTS`](crate::MAX_ELEMENTS) elements.
    pub fn cat(tensors: &[&Tensor], axis: i64) -> Result<Tensor, Error> {
        let Some(first) = tensors.first() else {
            return invalid("cat of no tensors: it takes one tensor or more");
        };
        let axis = resolve_axis("cat", axis, first.shape())?;
        check_devices("cat", tensors.iter().map(|tensor| tensor.uop()))?;
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
        Ok(Tensor::from_valid(concatenate(tensors, axis, &shape)))
    }

    /// Returns `out[.., i, ..] = self[.., index[.., i, ..], ..]` along `axis`, which counts from
    /// the last axis if it is negative. Elements are copied bit by bit; where the index is negative
    /// or not below the size of the axis, the result is 0.
    /// # Errors
    /// If the axis does not exist, `index` is not an integer tensor, its rank or its size on
    /// another axis differs, or its number of elements times the size of the gathered axis is 2^48
    /// or more.
    pub fn gather(&self, axis: i64, index: &Tensor) -> Result<Tensor, Error> {
        let axis = resolve_axis("gather", axis, self.shape())?;
        let fits = index.rank() == self.rank()
            && (0..self.rank()).all(|i| i == axis || index.shape()[i] == self.shape()[i]);
        if !fits || !index.dtype().is_int() {
            return invalid(format!(
                "gather from {self:?} by {index:?} along axis {axis}: the index must be of \
                 integers, its rank and the sizes of other axes equal"
            ));
        }
        check_devices("gather", [self.uop(), index.uop()])?;
        // Each element of the result is a sum over a new last axis that runs along the whole
        // gathered axis. At most one of its terms is not masked to zero, so the sum of the bits is
        // this term.
        let count = self.shape()[axis];
        let mut expanded = index.shape().to_vec();
        expanded.push(count);
        check_reduced(&expanded)?;
        let wide = match index.dtype() {
            DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32
                if count <= i64::from(i32::MAX) =>
            {
                DType::I32
            }
            _ => DType::I64,
        };
        let index_node = cast_node(index.uop(), wide);
        let index_node = reshape_node(index_node, &[index.shape(), &[1]].concat());
        let counter = UOp::new(Op::Iota, wide, [], Arg::Int(count));
        let is_other =
            UOp::binary(Op::CmpNe, broadcast(index_node, &expanded), broadcast(counter, &expanded));
        let is_other = with_shape(is_other);
        let order: Vec<usize> = (0..self.rank()).filter(|i| *i != axis).chain([axis]).collect();
        let mut aligned: Vec<i64> = order.iter().map(|i| self.shape()[*i]).collect();
        aligned.insert(axis, 1);
        // A view of computed bits would be repeated, and so need a copy of all of them.
        let moved = reshape_node(self.permuted(&order).uop(), &aligned);
        let bits = bits_of(broadcast(moved, &expanded));
        let zero = constant_node(Constant::zero(bits.dtype()), &expanded);
        let masked = with_shape(UOp::select(is_other, zero, bits));
        let axes = Dims::from_slice(&[index.rank() as i64]);
        let dtype = masked.dtype();
        let sum = UOp::new(Op::ReduceAxis, dtype, [masked], Arg::Reduce(Op::Add, axes));
        let sum = reshape_node(with_shape(sum), index.shape());
        let value = Tensor::from_valid(from_bits(sum, self.dtype()));
        let axis = Tensor::full(DType::I64, &[], axis as i64)?;
        Ok(value.as_function("gather", &[self, index, &axis]))
    }

    /// Returns the same value, to be computed into a contiguous buffer of its own.
    pub fn contiguous(&self) -> Tensor {
        Tensor::from_valid(with_shape(UOp::unary(Op::Contiguous, self.dtype(), self.uop())))
    }

    /// Returns the same value, through which no gradient flows: a new tensor, so that an assignment
    /// to it does not change this one. It keeps no computation of a tensor that is realised.
    pub fn detach(&self) -> Tensor {
        Tensor::from_valid(detached(&self.uop()))
    }

    /// The tensor of a movement op with this argument.
    fn movement(&self, op: Op, arg: Arg) -> Tensor {
        Tensor::from_valid(with_shape(UOp::new(op, self.dtype(), [self.uop()], arg)))
    }
}

/// Returns distinct axes in ascending order, as the arg of a node.
pub(crate) fn ascending(axes: &[usize]) -> Dims {
    let mut sorted: Dims = axes.iter().map(|axis| *axis as i64).collect();
    sorted.sort_unstable();
    sorted
}

fn pad_node(node: UOp, pads: &[(i64, i64)]) -> UOp {
    let arg = Arg::Pairs(Pairs::from_slice(pads));
    with_shape(UOp::new(Op::Pad, node.dtype(), [node], arg))
}

/// A mask that is false in the padding around a tensor of this shape, and true elsewhere.
fn padding_mask(shape: &[i64], pads: &[(i64, i64)]) -> UOp {
    pad_node(constant_node(Constant::bool(true), shape), pads)
}

/// Concatenates tensors. Each part is padded to the whole shape, and is selected where it is not
/// padding.
fn concatenate(parts: &[&Tensor], axis: usize, shape: &[i64]) -> UOp {
    let mut start = 0;
    let mut whole: Option<UOp> = None;
    for part in parts {
        let size = part.shape()[axis];
        let mut pads = vec![(0, 0); shape.len()];
        pads[axis] = (start, shape[axis] - start - size);
        start += size;
        let padded = pad_node(part.uop(), &pads);
        whole = Some(match whole {
            None => padded,
            Some(earlier) => {
                with_shape(UOp::select(padding_mask(part.shape(), &pads), padded, earlier))
            }
        });
    }
    whole.expect("cat has one part or more")
}

/// The bits of the elements as unsigned integers, whose sums are exact.
fn bits_of(node: UOp) -> UOp {
    match node.dtype() {
        DType::F16 | DType::BF16 => {
            cast_node(with_shape(UOp::unary(Op::Bitcast, DType::U16, node)), DType::U32)
        }
        DType::F32 => with_shape(UOp::unary(Op::Bitcast, DType::U32, node)),
        DType::F64 => with_shape(UOp::unary(Op::Bitcast, DType::U64, node)),
        DType::I64 | DType::U64 => cast_node(node, DType::U64),
        _ => cast_node(node, DType::U32),
    }
}

/// The inverse of [`bits_of`].
fn from_bits(node: UOp, dtype: DType) -> UOp {
    match dtype {
        DType::F16 | DType::BF16 => {
            with_shape(UOp::unary(Op::Bitcast, dtype, cast_node(node, DType::U16)))
        }
        DType::F32 | DType::F64 => with_shape(UOp::unary(Op::Bitcast, dtype, node)),
        _ => cast_node(node, dtype),
    }
}
