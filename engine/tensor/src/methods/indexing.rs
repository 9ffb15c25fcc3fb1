//! Methods with indices: masks that compare them with the positions along an axis.

use gradiff_graph::{Constant, DType};

use super::sums_by_index::{moved_last, positions_named};
use crate::axes::resolve_axis;
use crate::error::invalid;
use crate::methods::movement::zero;
use crate::{Error, Scalar, Tensor};

impl Tensor {
    /// Returns 1 (i32) at the position along a new last axis of size `classes` that each element
    /// names, and 0 elsewhere; all zeros for an element that is negative or not below `classes`.
    /// Integers.
    /// # Errors
    /// If the dtype is not an integer, or `classes` is negative or too large.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[2, 0])?;
    /// assert_eq!(x.one_hot(3)?.to_text()?, "[[0, 0, 1], [1, 0, 0]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn one_hot(&self, classes: i64) -> Result<Tensor, Error> {
        if !self.dtype().is_int() {
            return invalid(format!("one_hot of {}: it takes integers", self.dtype()));
        }
        // A u64 of 2^63 or more becomes negative: it names no class either.
        let class = self.cast(DType::I64)?.unsqueeze(-1)?;
        class.cmpeq(&Tensor::arange(DType::I64, 0, 1, classes)?)?.cast(DType::I32)
    }

    /// Returns the elements at the positions along `axis` that `index`, of one axis, names, bit by
    /// bit; 0 where the index is negative or not below the size of the axis.
    /// # Errors
    /// If the axis does not exist, the index is not an integer tensor of rank 1, or there are too
    /// many elements, as for [`gather`](Tensor::gather).
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 3, 4])?;
    /// let index = Tensor::from_slice(&[3], &[1, 0, 5])?;
    /// assert_eq!(x.index_select(&index, 1)?.to_text()?, "[[2, 1, 0], [4, 3, 0]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn index_select(&self, index: &Tensor, axis: i64) -> Result<Tensor, Error> {
        let axis = resolve_axis("index_select", axis, self.shape())?;
        let [count] = *index.shape() else {
            return invalid(format!(
                "index_select from {self:?} by {index:?}: the index must have one axis"
            ));
        };
        let mut shape = vec![1; self.rank()];
        shape[axis] = count;
        let narrow = index.reshape(&shape)?;
        let mut shape = self.shape().to_vec();
        shape[axis] = count;
        self.gather(axis as i64, &narrow.expand(&shape)?)
    }

    /// Returns `self` with the elements of `src` written along `axis` at the positions that `index`
    /// names: `out[.., index[.., j, ..], ..] = src[.., j, ..]`. Of several writes to a position the
    /// last one in row-major order stays; an index that is negative or not below the size of the
    /// axis writes nothing. Elements are copied bit by bit.
    /// # Errors
    /// If the axis does not exist, `index` is not an integer tensor, its rank or its size on
    /// another axis differs from that of `self`, the shape of `src` is not that of `index`, its
    /// dtype not that of `self`, or there are too many elements, as for
    /// [`gather`](Tensor::gather).
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1, 2, 3])?;
    /// let index = Tensor::from_slice(&[3], &[2, 2, -1])?;
    /// let src = Tensor::from_slice(&[3], &[7, 8, 9])?;
    /// assert_eq!(x.scatter(&index, &src, 0)?.to_text()?, "[1, 2, 8]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn scatter(&self, index: &Tensor, src: &Tensor, axis: i64) -> Result<Tensor, Error> {
        let hits = self.hits("scatter", index, src, axis)?;
        let count = index.shape()[hits.axis];
        // The number of the last write, counted from 1. It is a buffer of its own, since it would
        // be computed again for each of the elements that are looked for.
        let dtype = if count <= i64::from(i32::MAX) { DType::I32 } else { DType::I64 };
        let number = Tensor::arange(dtype, 1, 1, count)?;
        let nothing = Tensor::scalar(dtype, 0)?;
        let last = hits.mask.where_(&number, &nothing)?.max(-1)?;
        let last = last.maximum(0)?.contiguous();
        let written = src.gather(hits.axis as i64, &last.sub(1)?)?;
        last.cmpne(0)?.where_(&written, self)
    }

    /// Returns `self` plus the elements of `src` whose `index` names the position along `axis`.
    /// They may be added one after the other. An index that is negative or not below the size of
    /// the axis adds nothing. Integers wrap at their own width; f16 and bf16 are added in f32 and
    /// rounded once. Integers and floats.
    /// # Errors
    /// As [`scatter`](Tensor::scatter), and if the dtype is bool.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1, 2, 3])?;
    /// let index = Tensor::from_slice(&[3], &[2, 2, -1])?;
    /// let src = Tensor::from_slice(&[3], &[7, 8, 9])?;
    /// assert_eq!(x.scatter_add(&index, &src, 0)?.to_text()?, "[1, 2, 18]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn scatter_add(&self, index: &Tensor, src: &Tensor, axis: i64) -> Result<Tensor, Error> {
        if self.dtype() == DType::Bool {
            return invalid("scatter_add of bool: it takes integers and floats");
        }
        let axis = self.written_axis("scatter_add", index, src, axis)?;
        let added = src.sums_by_index(index, axis, self.shape()[axis])?;
        self.cast(added.dtype())?.add(&added)?.cast(self.dtype())
    }

    /// Returns the largest of `self` and the elements of `src` whose `index` names the position
    /// along `axis`; NaN if one of them is NaN. An index that is negative or not below the size of
    /// the axis changes nothing. All dtypes.
    /// # Errors
    /// As [`scatter`](Tensor::scatter).
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1, 2, 3])?;
    /// let index = Tensor::from_slice(&[3], &[1, 1, 0])?;
    /// let src = Tensor::from_slice(&[3], &[7, 8, -9])?;
    /// assert_eq!(x.scatter_amax(&index, &src, 0)?.to_text()?, "[1, 8, 3]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn scatter_amax(&self, index: &Tensor, src: &Tensor, axis: i64) -> Result<Tensor, Error> {
        let hits = self.hits("scatter_amax", index, src, axis)?;
        let least = smallest(self.dtype());
        let largest = hits.sources(src, least)?.max(-1)?;
        let value = self.maximum(&largest)?;
        let axis = Tensor::scalar(DType::I64, hits.axis as i64)?;
        Ok(value.as_function("scatter_amax", &[self, index, src, &axis]))
    }

    /// Returns `self` with each position along `axis` that `index` names replaced by a function of
    /// the elements of `src` whose index names it, and of the element that is there, if
    /// `include_self`. An index that is negative or not below the size of the axis changes nothing.
    /// Sums and products of integers wrap at their own width; f16 and bf16 are computed in f32 and
    /// rounded once. Means of floats, sums and products of all but bool.
    /// # Errors
    /// As [`scatter`](Tensor::scatter), and if the dtype has no such function.
    ///
    /// ```
    /// # use gradiff_tensor::{Scattered, Tensor};
    /// let x = Tensor::from_slice(&[3], &[1f32, 2.0, 3.0])?;
    /// let index = Tensor::from_slice(&[3], &[2, 2, -1])?;
    /// let src = Tensor::from_slice(&[3], &[7f32, 8.0, 9.0])?;
    /// let mean = x.scatter_reduce(&index, &src, 0, Scattered::Mean, true)?;
    /// assert_eq!(mean.to_text()?, "[1.0, 2.0, 6.0]");
    /// let product = x.scatter_reduce(&index, &src, 0, Scattered::Prod, false)?;
    /// assert_eq!(product.to_text()?, "[1.0, 2.0, 56.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn scatter_reduce(
        &self,
        index: &Tensor,
        src: &Tensor,
        axis: i64,
        reduce: Scattered,
        include_self: bool,
    ) -> Result<Tensor, Error> {
        let dtype = self.dtype();
        let is_taken = match reduce {
            Scattered::Mean => dtype.is_float(),
            Scattered::Sum | Scattered::Prod => dtype != DType::Bool,
            Scattered::Amax | Scattered::Amin => true,
        };
        if !is_taken {
            return invalid(format!("scatter_reduce by {reduce:?} of {self:?}: it has none"));
        }
        let hits = self.hits("scatter_reduce", index, src, axis)?;
        let writes = || {
            let ones = Tensor::ones(DType::I32, src.shape())?;
            ones.sums_by_index(index, hits.axis, self.shape()[hits.axis])
        };
        // What is there counts where it is included, and where nothing is written.
        let is_kept = match include_self {
            true => Tensor::full(DType::Bool, self.shape(), true)?,
            false => writes()?.cmpeq(0)?,
        };
        let wide = dtype.accumulator();
        let kept =
            |identity: Scalar| is_kept.where_(&self.cast(wide)?, &Tensor::scalar(wide, identity)?);
        match reduce {
            Scattered::Sum => {
                let added = src.sums_by_index(index, hits.axis, self.shape()[hits.axis])?;
                kept(zero(wide))?.add(&added)?.cast(dtype)
            }
            Scattered::Prod => {
                let product = hits.sources(src, Scalar::Int(1))?.cast(wide)?.prod(-1)?;
                kept(Scalar::Int(1))?.mul(&product)?.cast(dtype)
            }
            Scattered::Mean => {
                let added = src.sums_by_index(index, hits.axis, self.shape()[hits.axis])?;
                let count = writes()?.cast(wide)?.add(&is_kept.cast(wide)?)?;
                kept(zero(wide))?.add(&added)?.div(&count)?.cast(dtype)
            }
            Scattered::Amax | Scattered::Amin => {
                // The order is turned by the sign of floats, and by the complement of others.
                let turned = |x: &Tensor| match reduce {
                    Scattered::Amin if dtype.is_float() => x.neg(),
                    Scattered::Amin => x.not(),
                    _ => Ok(x.clone()),
                };
                let least = smallest(dtype);
                let largest = hits.sources(&turned(src)?, least)?.max(-1)?;
                let there = is_kept.where_(&turned(self)?, &Tensor::scalar(dtype, least)?)?;
                let value = turned(&there.maximum(&largest)?)?;
                let axis = Tensor::scalar(DType::I64, hits.axis as i64)?;
                Ok(value.as_function("scatter_extreme", &[self, index, src, &axis, &is_kept]))
            }
        }
    }

    /// The elements along `axis` at the positions where the mask is true, in row-major order: its
    /// axes take the place of the axis. Elsewhere is any value.
    pub(crate) fn spread_by_mask(&self, mask: &Tensor, axis: usize) -> Result<Tensor, Error> {
        let numbers = mask.flatten(0, -1)?.cumsum(0)?.sub(1)?.contiguous();
        self.index_select(&numbers, axis as i64)?.unflatten(axis as i64, mask.shape())
    }

    /// The mask of the writes to each position.
    fn hits(&self, name: &str, index: &Tensor, src: &Tensor, axis: i64) -> Result<Hits, Error> {
        let axis = self.written_axis(name, index, src, axis)?;
        Ok(Hits { axis, mask: positions_named(index, axis, self.shape()[axis])? })
    }

    /// Checks what is written; returns the axis along which it is.
    fn written_axis(
        &self,
        name: &str,
        index: &Tensor,
        src: &Tensor,
        axis: i64,
    ) -> Result<usize, Error> {
        let axis = resolve_axis(name, axis, self.shape())?;
        let fits = index.rank() == self.rank()
            && (0..self.rank()).all(|i| i == axis || index.shape()[i] == self.shape()[i]);
        if !fits
            || !index.dtype().is_int()
            || src.shape() != index.shape()
            || src.dtype() != self.dtype()
        {
            return invalid(format!(
                "{name} of {src:?} by {index:?} into {self:?} along axis {axis}: the index must be \
                 of integers, its rank and the sizes of other axes equal, the shape that of the \
                 source, whose dtype must be equal"
            ));
        }
        Ok(axis)
    }
}

/// A function of the elements that [`Tensor::scatter_reduce`] writes to a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scattered {
    /// Their sum.
    Sum,
    /// Their product.
    Prod,
    /// Their mean.
    Mean,
    /// The largest; NaN if one is NaN.
    Amax,
    /// The smallest; NaN if one is NaN.
    Amin,
}

/// The writes to each position along an axis of a tensor.
struct Hits {
    axis: usize,
    /// The shape is that of the tensor and a last axis, which runs along the axis of the index:
    /// true where the index there is the position.
    mask: Tensor,
}

impl Hits {
    /// The elements that are written to each position along a last axis; `identity` for those that
    /// are not.
    fn sources(&self, src: &Tensor, identity: Scalar) -> Result<Tensor, Error> {
        let identity = Tensor::scalar(src.dtype(), identity)?;
        self.mask.where_(&moved_last(src, self.axis)?, &identity)
    }
}

/// The smallest value of a dtype: false, the most negative integer, -inf.
fn smallest(dtype: DType) -> Scalar {
    let least = Constant::smallest(dtype);
    match (least.to_int(), least.to_float()) {
        _ if dtype == DType::Bool => Scalar::Bool(false),
        (Some(value), _) => Scalar::Int(value),
        (None, value) => Scalar::Float(value.unwrap_or(f64::NEG_INFINITY)),
    }
}
