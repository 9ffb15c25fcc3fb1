//! Methods over windows: convolutions and pooling.

use gradiff_graph::{DType, Op};

use crate::error::invalid;
use crate::methods::elementwise::wide;
use crate::methods::movement::{ceil_div, zero};
use crate::promotion::promote;
use crate::tensor::broadcast;
use crate::{Error, Scalar, Tensor};

/// A number for every axis of a window, or a list with one for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PerAxis {
    /// The same for all axes.
    Same(i64),
    /// One for each axis, the first axis first.
    Each(Vec<i64>),
}

impl From<i64> for PerAxis {
    fn from(number: i64) -> PerAxis {
        PerAxis::Same(number)
    }
}

impl<const COUNT: usize> From<[i64; COUNT]> for PerAxis {
    fn from(numbers: [i64; COUNT]) -> PerAxis {
        PerAxis::Each(numbers.to_vec())
    }
}

impl<const COUNT: usize> From<&[i64; COUNT]> for PerAxis {
    fn from(numbers: &[i64; COUNT]) -> PerAxis {
        PerAxis::Each(numbers.to_vec())
    }
}

impl From<&[i64]> for PerAxis {
    fn from(numbers: &[i64]) -> PerAxis {
        PerAxis::Each(numbers.to_vec())
    }
}

impl PerAxis {
    /// Returns the numbers for `rank` axes, each at least `least`.
    pub(super) fn numbers(
        &self,
        rank: usize,
        least: i64,
        what_for: &str,
    ) -> Result<Vec<i64>, Error> {
        let numbers = match self {
            PerAxis::Same(number) => vec![*number; rank],
            PerAxis::Each(numbers) => numbers.clone(),
        };
        if numbers.len() != rank || numbers.iter().any(|number| *number < least) {
            return invalid(format!(
                "{what_for} {numbers:?}: one number, {least} or more, for each of {rank} axes"
            ));
        }
        Ok(numbers)
    }

    /// Returns the padding before and after each of `rank` axes: from one number for each axis, or
    /// from two, before and after.
    pub(super) fn pairs(&self, rank: usize, method: &str) -> Result<Vec<(i64, i64)>, Error> {
        match self {
            PerAxis::Each(numbers) if rank != 0 && numbers.len() == 2 * rank => {
                let pairs = PerAxis::Each(numbers.clone()).numbers(2 * rank, 0, method)?;
                Ok(pairs.chunks(2).map(|pair| (pair[0], pair[1])).collect())
            }
            same => Ok(same.numbers(rank, 0, method)?.into_iter().map(|n| (n, n)).collect()),
        }
    }
}

/// The options of a convolution: stride 1, dilation 1, no padding, one group, unless set.
///
/// A number holds for every axis, a list has one for each. Padding may also have two for each axis,
/// before and after, the first axis first (PyTorch and tinygrad begin with the last one).
#[derive(Clone, Debug)]
pub struct Conv {
    pub(super) stride: PerAxis,
    pub(super) dilation: PerAxis,
    pub(super) padding: PerAxis,
    pub(super) output_padding: PerAxis,
    pub(super) groups: i64,
}

impl Default for Conv {
    fn default() -> Conv {
        Conv {
            stride: PerAxis::Same(1),
            dilation: PerAxis::Same(1),
            padding: PerAxis::Same(0),
            output_padding: PerAxis::Same(0),
            groups: 1,
        }
    }
}

impl Conv {
    /// Sets the distance between windows.
    pub fn stride(self, stride: impl Into<PerAxis>) -> Conv {
        Conv { stride: stride.into(), ..self }
    }

    /// Sets the distance between the elements of a window.
    pub fn dilation(self, dilation: impl Into<PerAxis>) -> Conv {
        Conv { dilation: dilation.into(), ..self }
    }

    /// Sets the number of zeros around the input.
    pub fn padding(self, padding: impl Into<PerAxis>) -> Conv {
        Conv { padding: padding.into(), ..self }
    }

    /// Sets the number of elements that a transposed convolution adds at the end of each axis.
    pub fn output_padding(self, output_padding: impl Into<PerAxis>) -> Conv {
        Conv { output_padding: output_padding.into(), ..self }
    }

    /// Sets the number of groups of channels that are convolved separately.
    pub fn groups(self, groups: i64) -> Conv {
        Conv { groups, ..self }
    }
}

/// The options of pooling: windows of a size, beside each other, no padding, unless set.
#[derive(Clone, Debug)]
pub struct Pool {
    kernel: PerAxis,
    stride: Option<PerAxis>,
    dilation: PerAxis,
    padding: PerAxis,
    ceil_mode: bool,
    count_include_pad: bool,
}

impl Pool {
    /// Creates the options for windows of this size. The list decides the number of axes; a single
    /// number means two axes.
    pub fn new(kernel: impl Into<PerAxis>) -> Pool {
        Pool {
            kernel: kernel.into(),
            stride: None,
            dilation: PerAxis::Same(1),
            padding: PerAxis::Same(0),
            ceil_mode: false,
            count_include_pad: true,
        }
    }

    /// Sets the distance between windows; that of their size if it is not set.
    pub fn stride(self, stride: impl Into<PerAxis>) -> Pool {
        Pool { stride: Some(stride.into()), ..self }
    }

    /// Sets the distance between the elements of a window.
    pub fn dilation(self, dilation: impl Into<PerAxis>) -> Pool {
        Pool { dilation: dilation.into(), ..self }
    }

    /// Sets the padding around the input, as that of [`Conv`].
    pub fn padding(self, padding: impl Into<PerAxis>) -> Pool {
        Pool { padding: padding.into(), ..self }
    }

    /// Sets whether there are also windows that reach beyond the padding, if they begin before
    /// the padding at the end.
    pub fn ceil_mode(self, ceil_mode: bool) -> Pool {
        Pool { ceil_mode, ..self }
    }

    /// Sets whether an average counts the padding, as zeros.
    pub fn count_include_pad(self, count_include_pad: bool) -> Pool {
        Pool { count_include_pad, ..self }
    }
}

/// A window along an axis whose size includes the padding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    size: i64,
    pub(super) kernel: i64,
    pub(super) stride: i64,
    pub(super) dilation: i64,
    /// The number of windows.
    pub(super) count: i64,
}

impl Extent {
    /// The number of elements from the first to the last one of a window.
    pub(super) fn reach(kernel: i64, dilation: i64) -> Option<i64> {
        dilation.checked_mul(kernel - 1)?.checked_add(1)
    }

    /// The whole windows within an axis of this size.
    pub(super) fn within(size: i64, kernel: i64, stride: i64, dilation: i64) -> Option<Extent> {
        let rest = size.checked_sub(Extent::reach(kernel, dilation)?)?;
        let is_whole = 0 <= rest && 0 < size && 0 < kernel;
        // Elements of a window are apart only if there are several.
        let dilation = if kernel == 1 { 1 } else { dilation };
        is_whole.then(|| match rest / stride {
            // The stride of a single window has no effect, however large it is.
            0 => Extent { size, kernel, stride: size - rest, dilation, count: 1 },
            steps => Extent { size, kernel, stride, dilation, count: steps + 1 },
        })
    }
}

impl Tensor {
    /// Matrix product of `self` [.., m, k] and `other` [.., k, n]: [.., m, n], in the promoted
    /// dtype; sums as [`sum`](Tensor::sum). Axes before the last two are broadcast. A vector [k] is
    /// a row on the left and a column on the right, and the axis of 1 is left out of the result.
    /// # Errors
    /// If either is a scalar, k differs, other axes do not broadcast, the dtype is bool, the result
    /// has more than [`MAX_ELEMENTS`](crate::MAX_ELEMENTS) elements, or there are 2^48 products or
    /// more.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 3, 4])?;
    /// assert_eq!(x.matmul(&x)?.to_text()?, "[[7, 10], [15, 22]]");
    /// let v = Tensor::from_slice(&[2], &[1, 10])?;
    /// assert_eq!(x.matmul(&v)?.to_text()?, "[21, 43]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor, Error> {
        let (x, y) = (self.shape(), other.shape());
        let inner = y.len().saturating_sub(2);
        if x.is_empty() || y.is_empty() || x[x.len() - 1] != y[inner] {
            return invalid(format!(
                "matmul of {x:?} and {y:?}: they must be [.., m, k] and [.., k, n]"
            ));
        }
        let (x_is_vector, y_is_vector) = (x.len() == 1, y.len() == 1);
        let rows = if x_is_vector { self.reshape(&[1, x[0]])? } else { self.clone() };
        let columns = if y_is_vector { other.reshape(&[y[0], 1])? } else { other.clone() };
        let insert = |shape: &[i64], axis: usize| {
            let mut shape = shape.to_vec();
            shape.insert(axis, 1);
            shape
        };
        let rows = rows.reshape(&insert(rows.shape(), rows.rank() - 1))?;
        let mut axes: Vec<usize> = (0..columns.rank()).collect();
        axes.swap(columns.rank() - 2, columns.rank() - 1);
        let columns = columns.permuted(&axes);
        let columns = columns.reshape(&insert(columns.shape(), columns.rank() - 2))?;
        let products = rows.combined(Op::Mul, &columns)?;
        let dtype = products.dtype();
        let sums = products.sum(-1)?.cast(dtype)?;
        let mut shape = sums.shape().to_vec();
        if y_is_vector {
            shape.pop();
        }
        if x_is_vector {
            shape.remove(shape.len() - usize::from(!y_is_vector) - 1);
        }
        sums.reshape(&shape)
    }

    /// As [`matmul`](Tensor::matmul).
    /// # Errors
    /// As [`matmul`](Tensor::matmul).
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let v = Tensor::from_slice(&[2], &[3, 4])?;
    /// assert_eq!(v.dot(&v)?.to_text()?, "25");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn dot(&self, other: &Tensor) -> Result<Tensor, Error> {
        self.matmul(other)
    }

    /// The matrix product with `weight` [.., k, n], plus `bias`, which is broadcast; with a weight
    /// of one axis the product of elements. f16 and bf16 are computed in f32. Floats, promoted.
    /// # Errors
    /// If a dtype is not a float, or shapes do not fit or broadcast.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[1, 2], &[1f32, 2.0])?;
    /// let weight = Tensor::from_slice(&[2, 2], &[1f32, 0.0, 10.0, 1.0])?;
    /// let bias = Tensor::from_slice(&[2], &[0.5f32, -0.5])?;
    /// assert_eq!(x.linear(&weight, &bias)?.to_text()?, "[[21.5, 1.5]]");
    /// assert_eq!(x.linear(&weight, None)?.to_text()?, "[[21.0, 2.0]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn linear<'a>(
        &self,
        weight: &Tensor,
        bias: impl Into<Option<&'a Tensor>>,
    ) -> Result<Tensor, Error> {
        let (mut x, mut weight) = self.float_pair("linear", weight)?;
        let mut bias = bias.into().cloned();
        if let Some(bias) = &mut bias {
            (x, *bias) = x.float_pair("linear", &*bias)?;
            weight = weight.cast(x.dtype())?;
        }
        let dtype = x.dtype();
        let (x, weight) = (x.cast(wide(dtype))?, weight.cast(wide(dtype))?);
        let product = if weight.rank() == 1 { x.mul(&weight)? } else { x.matmul(&weight)? };
        let value = match bias {
            Some(bias) => product.add(&bias.cast(wide(dtype))?)?,
            None => product,
        };
        value.cast(dtype)
    }

    /// Convolution of images [n, c, ..] with weights [k, c / groups, ..]: the sums, over windows of
    /// the size of the weights, of products; in the promoted dtype, [n, k, ..]. As many axes of
    /// space as the weights have. The padding is zeros, which are multiplied as other elements.
    /// # Errors
    /// If shapes or options do not fit, the dtype is bool, or there are too many elements, as for
    /// [`matmul`](Tensor::matmul).
    ///
    /// ```
    /// # use gradiff_tensor::{Conv, Tensor};
    /// let image = Tensor::from_slice(&[1, 1, 4], &[1, 2, 3, 4])?;
    /// let weight = Tensor::from_slice(&[1, 1, 2], &[1, 10])?;
    /// let found = image.conv2d(&weight, &Conv::default().padding([1, 0]))?;
    /// assert_eq!(found.to_text()?, "[[[10, 21, 32, 43]]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn conv2d(&self, weight: &Tensor, options: &Conv) -> Result<Tensor, Error> {
        let axes = self.check_channels("conv2d", weight, options.groups, 1)?;
        let padding = options.padding.pairs(axes, "conv2d with padding")?;
        let stride = options.stride.numbers(axes, 1, "conv2d with stride")?;
        let dilation = options.dilation.numbers(axes, 1, "conv2d with dilation")?;
        let padded = self.padded_last(&padding, zero(self.dtype()))?;
        padded.convolution("conv2d", weight, &Steps { groups: options.groups, stride, dilation })
    }

    /// The largest element of each window, over the last axes, in the same dtype. Padding never is
    /// the largest, unless the whole window is padding: then the result is the smallest value.
    /// # Errors
    /// If the options do not fit the shape.
    ///
    /// ```
    /// # use gradiff_tensor::{Pool, Tensor};
    /// let x = Tensor::from_slice(&[2, 4], &[1, 5, 2, 3, 4, 0, 7, 6])?;
    /// assert_eq!(x.max_pool2d(&Pool::new(2))?.to_text()?, "[[5, 7]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn max_pool2d(&self, options: &Pool) -> Result<Tensor, Error> {
        let pooling = self.pooling("max_pool2d", options)?;
        Ok(self.largest_of_windows("max_pool2d", &pooling)?.0)
    }

    /// The elements of [`max_pool2d`](Tensor::max_pool2d), and their positions (i32) within the
    /// last axes, in row-major order: the first of equal ones in a window, and the first NaN if
    /// there is one; -1 for a window of padding alone.
    /// # Errors
    /// If the options do not fit the shape, or the last axes have more than 2^31 - 1 elements.
    ///
    /// ```
    /// # use gradiff_tensor::{Pool, Tensor};
    /// let x = Tensor::from_slice(&[2, 4], &[1, 5, 2, 3, 4, 0, 7, 6])?;
    /// let (largest, positions) = x.max_pool2d_with_indices(&Pool::new(2))?;
    /// assert_eq!(largest.to_text()?, "[[5, 7]]");
    /// assert_eq!(positions.to_text()?, "[[1, 6]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn max_pool2d_with_indices(&self, options: &Pool) -> Result<(Tensor, Tensor), Error> {
        const NAME: &str = "max_pool2d_with_indices";
        const NONE: i64 = i32::MAX as i64;
        let pooling = self.pooling(NAME, options)?;
        let axes = pooling.kernel.len();
        let sizes = &self.shape()[self.rank() - axes..];
        let count: i64 = sizes.iter().product();
        if NONE < count {
            return invalid(format!("{NAME} of {self:?}: {count} positions are no i32"));
        }
        let (value, windows) = self.largest_of_windows(NAME, &pooling)?;
        let positions = Tensor::arange(DType::I32, 0, 1, count)?.reshape(sizes)?;
        let positions = Tensor::from_valid(broadcast(positions.uop(), self.shape()));
        let positions = positions.pooled_windows(NAME, &pooling, Scalar::Int(NONE.into()))?;
        let shape = [value.shape(), &vec![1; axes]].concat();
        let mut is_largest = windows.cmpeq(&value.reshape(&shape)?)?;
        if self.dtype().is_float() {
            is_largest = is_largest.or(&windows.isnan()?)?;
        }
        let first = is_largest.where_(&positions, NONE)?;
        let kept = (value.rank()..first.rank()).map(|axis| axis as i64).collect::<Vec<_>>();
        let first = first.min(&kept[..])?;
        Ok((value, first.cmpeq(NONE)?.where_(-1, &first)?))
    }

    /// Zeros of the sizes of the last axes, after the elements are written at `positions`, within
    /// these axes in row-major order, as [`max_pool2d_with_indices`] returns them. The last of
    /// several that are written at a position stays; positions outside are ignored.
    /// # Errors
    /// If the positions are not integers of the same shape, or there are more sizes than axes.
    ///
    /// ```
    /// # use gradiff_tensor::{Pool, Tensor};
    /// let x = Tensor::from_slice(&[2, 4], &[1, 5, 2, 3, 4, 0, 7, 6])?;
    /// let (largest, positions) = x.max_pool2d_with_indices(&Pool::new(2))?;
    /// let found = largest.max_unpool2d(&positions, &[2, 4])?;
    /// assert_eq!(found.to_text()?, "[[0, 5, 0, 0], [0, 0, 7, 0]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    ///
    /// [`max_pool2d_with_indices`]: Tensor::max_pool2d_with_indices
    pub fn max_unpool2d(&self, positions: &Tensor, sizes: &[i64]) -> Result<Tensor, Error> {
        let axes = sizes.len();
        if axes == 0
            || self.rank() < axes
            || positions.shape() != self.shape()
            || !positions.dtype().is_int()
        {
            return invalid(format!(
                "max_unpool2d of {self:?} at {positions:?} to sizes {sizes:?}: positions are \
                 integers of the same shape, and there is a size for each of the last axes"
            ));
        }
        let (outer, inner) = self.shape().split_at(self.rank() - axes);
        let shape = [outer, sizes].concat();
        let zeros = Tensor::full(self.dtype(), &shape, zero(self.dtype()))?;
        let flat =
            |x: &Tensor, sizes: &[i64]| x.reshape(&[outer, &[sizes.iter().product()]].concat());
        let (elements, positions) = (flat(self, inner)?, flat(positions, inner)?);
        let written = flat(&zeros, sizes)?.scatter(&positions, &elements, -1)?;
        written.reshape(&shape)
    }

    /// The largest element of each window, and the windows.
    fn largest_of_windows(&self, name: &str, pooling: &Pooling) -> Result<(Tensor, Tensor), Error> {
        let smallest = match self.dtype() {
            DType::Bool => Scalar::Bool(false),
            dtype => match dtype.int_range() {
                Some((low, _)) => Scalar::Int(low),
                None => Scalar::Float(f64::NEG_INFINITY),
            },
        };
        let windows = self.pooled_windows(name, pooling, smallest)?;
        let value =
            windows.reduced_windows(pooling.kernel.len(), |x, axes| Ok(x.max_kept(axes)))?;
        if !self.dtype().is_float() {
            return Ok((value, windows));
        }
        if pooling.has_few_terms(self.shape()) {
            let numbers = pooling.sources()?;
            let sources: Vec<&Tensor> = [self].into_iter().chain(&numbers).collect();
            return Ok((value.as_function("max_pool", &sources), windows));
        }
        let inside = Tensor::full(DType::Bool, self.shape(), true)?;
        let inside = inside.pooled_windows(name, pooling, Scalar::Bool(false))?;
        Ok((value.as_function("max_of_windows", &[&windows, &inside, self]), windows))
    }

    /// The mean of each window, over the last axes. Floats. The padding counts as zeros, or does
    /// not count; what [`ceil_mode`](Pool::ceil_mode) adds beyond never counts.
    /// # Errors
    /// If the dtype is not a float, or the options do not fit the shape.
    pub fn avg_pool2d(&self, options: &Pool) -> Result<Tensor, Error> {
        let pooling = self.pooling("avg_pool2d", options)?;
        self.compute_in_f32("avg_pool2d", |x| {
            let sums = |x: &Tensor| -> Result<Tensor, Error> {
                let beyond = x.ended(&pooling.beyond, Scalar::Int(0))?;
                let windows = beyond.windows(
                    "avg_pool2d",
                    &pooling.kernel,
                    &pooling.stride,
                    &pooling.dilation,
                )?;
                windows.reduced_windows(pooling.kernel.len(), |x, axes| x.sum_kept(axes))
            };
            let padded = x.padded_last(&pooling.padding, Scalar::Int(0))?;
            let mut total = sums(&padded)?;
            if pooling.has_few_terms(x.shape()) {
                let numbers = pooling.sources()?;
                let sources: Vec<&Tensor> = [x].into_iter().chain(&numbers).collect();
                total = total.as_function("sum_pool", &sources);
            }
            let is_partial = pooling.beyond.iter().any(|beyond| 0 < *beyond);
            if options.count_include_pad && !is_partial {
                return total.div(pooling.kernel.iter().product::<i64>());
            }
            let first = self.rank() - pooling.kernel.len();
            let space = |shape: &[i64]| Tensor::ones(x.dtype(), &shape[first..]);
            let counted = match options.count_include_pad {
                true => space(padded.shape())?,
                false => space(x.shape())?.padded_last(&pooling.padding, Scalar::Int(0))?,
            };
            total.div(&sums(&counted)?)
        })
    }

    /// Checks the channels of a convolution; returns the number of axes of space. Axis `matched` of
    /// the weights has those of the image.
    pub(super) fn check_channels(
        &self,
        method: &str,
        weight: &Tensor,
        groups: i64,
        matched: usize,
    ) -> Result<usize, Error> {
        let (x, w) = (self.shape(), weight.shape());
        let fits = 3 <= w.len() && x.len() == w.len() && 1 <= groups && {
            let channels = if matched == 0 { Some(w[0]) } else { w[1].checked_mul(groups) };
            channels == Some(x[1]) && x[1] % groups == 0 && w[0] % groups == 0
        };
        if !fits {
            return invalid(format!(
                "{method} of {x:?} with weights {w:?} in {groups} groups: images are [n, c, ..], \
                 weights {}, with one axis of space or more",
                if matched == 0 { "[c, k / groups, ..]" } else { "[k, c / groups, ..]" }
            ));
        }
        if promote(self.dtype(), weight.dtype()) == DType::Bool {
            return invalid(format!("{method} of bool: it takes numbers; cast the tensors first"));
        }
        Ok(w.len() - 2)
    }

    /// Pads the last axes.
    fn padded_last(&self, padding: &[(i64, i64)], value: Scalar) -> Result<Tensor, Error> {
        if padding.iter().all(|pad| *pad == (0, 0)) {
            return Ok(self.clone());
        }
        let mut pads = vec![(0, 0); self.rank() - padding.len()];
        pads.extend(padding);
        self.pad(&pads, value)
    }

    /// Adds so many elements at the end of the last axes, or removes them if a number is negative.
    fn ended(&self, beyond: &[i64], value: Scalar) -> Result<Tensor, Error> {
        let first = self.rank() - beyond.len();
        let mut ranges: Vec<(i64, i64)> = self.shape().iter().map(|size| (0, *size)).collect();
        for (axis, beyond) in beyond.iter().enumerate() {
            ranges[first + axis].1 += (*beyond).min(0);
        }
        let pads: Vec<(i64, i64)> = beyond.iter().map(|beyond| (0, (*beyond).max(0))).collect();
        self.shrink(&ranges)?.padded_last(&pads, value)
    }

    /// Returns the windows over the last axes: these axes become the numbers of the windows, and
    /// are followed by the axes of a window.
    fn windows(
        &self,
        method: &str,
        kernel: &[i64],
        stride: &[i64],
        dilation: &[i64],
    ) -> Result<Tensor, Error> {
        let outer = self.rank() - kernel.len();
        let mut extents = Vec::with_capacity(kernel.len());
        for (axis, size) in self.shape()[outer..].iter().enumerate() {
            let (kernel, stride, dilation) = (kernel[axis], stride[axis], dilation[axis]);
            let Some(extent) = Extent::within(*size, kernel, stride, dilation) else {
                return invalid(format!(
                    "{method}: a window of {kernel} elements, {dilation} apart, is longer than \
                     axis {} of {:?}, the padding included",
                    outer + axis,
                    self.shape()
                ));
            };
            extents.push(extent);
        }
        let are_apart = extents.iter().all(|e| e.kernel <= e.stride && e.dilation == 1);
        let windows = match are_apart {
            true => self.windows_apart(outer, &extents)?,
            false => self.windows_repeated(outer, &extents)?,
        };
        // Axes alternate: within a window, number of the window.
        let mut order: Vec<usize> = (0..outer).collect();
        order.extend((0..extents.len()).map(|axis| outer + 2 * axis + 1));
        order.extend((0..extents.len()).map(|axis| outer + 2 * axis));
        Ok(windows.permuted(&order))
    }

    /// The windows, axes alternating, if none overlaps another: the elements of each and those up
    /// to the next one are an axis.
    fn windows_apart(&self, outer: usize, extents: &[Extent]) -> Result<Tensor, Error> {
        let whole =
            |axes: &[i64]| -> Vec<(i64, i64)> { axes.iter().map(|size| (0, *size)).collect() };
        let head = &self.shape()[..outer];
        let (mut pads, mut kept) = (vec![(0, 0); outer], whole(head));
        let (mut split, mut inside) = (head.to_vec(), whole(head));
        let mut order: Vec<usize> = (0..outer).collect();
        for (axis, extent) in extents.iter().enumerate() {
            let total = extent.count * extent.stride;
            pads.push((0, (total - extent.size).max(0)));
            kept.push((0, total));
            split.extend([extent.count, extent.stride]);
            inside.extend([(0, extent.count), (0, extent.kernel)]);
            order.extend([outer + 2 * axis + 1, outer + 2 * axis]);
        }
        let padded = if pads.iter().all(|pad| *pad == (0, 0)) {
            self.clone()
        } else {
            self.pad(&pads, zero(self.dtype()))?
        };
        let apart = padded.shrink(&kept)?.reshape(&split)?.shrink(&inside)?;
        Ok(apart.permuted(&order))
    }

    /// The windows, axes alternating, from repetitions of each axis: divided into rows that are
    /// longer than it by the dilation, row j begins with element j * dilation, which is element j
    /// of the first window.
    fn windows_repeated(&self, outer: usize, extents: &[Extent]) -> Result<Tensor, Error> {
        let head = self.shape()[..outer].to_vec();
        let ranges: Vec<(i64, i64)> = head.iter().map(|size| (0, *size)).collect();
        let [mut ones, mut repeated, mut flat] = [head.clone(), head.clone(), head.clone()];
        let [mut rows, mut steps, mut ends] = [head.clone(), head.clone(), head];
        let [mut cut, mut used, mut first] = [ranges.clone(), ranges.clone(), ranges];
        for Extent { size, kernel, stride, dilation, count } in extents {
            let strided = count * stride;
            // A row holds all windows, with the elements up to the next one.
            let copies = ceil_div((strided - dilation).max(1), *size);
            let row = copies * size + dilation;
            let length = kernel.saturating_mul(row);
            let repeats = ceil_div(length, *size);
            ones.extend([1, *size]);
            repeated.extend([repeats, *size]);
            flat.push(repeats.saturating_mul(*size));
            cut.push((0, length));
            rows.extend([*kernel, row]);
            used.extend([(0, *kernel), (0, strided)]);
            steps.extend([*kernel, *count, *stride]);
            first.extend([(0, *kernel), (0, *count), (0, 1)]);
            ends.extend([*kernel, *count]);
        }
        self.reshape(&ones)?
            .expand(&repeated)?
            .reshape(&flat)?
            .shrink(&cut)?
            .reshape(&rows)?
            .shrink(&used)?
            .reshape(&steps)?
            .shrink(&first)?
            .reshape(&ends)
    }

    /// Convolves an image that has its padding.
    pub(super) fn convolution(
        &self,
        name: &str,
        weight: &Tensor,
        steps: &Steps,
    ) -> Result<Tensor, Error> {
        let dtype = promote(self.dtype(), weight.dtype());
        let (x, weight) = (self.cast(dtype)?, weight.cast(dtype)?);
        let (groups, axes) = (steps.groups, weight.rank() - 2);
        let windows = x.windows_for(name, &weight.shape()[2..], steps)?;
        let counts = windows.shape()[3..3 + axes].to_vec();
        let w = weight.shape();
        let weights = weight.reshape(
            &[&[1, groups, w[0] / groups][..], &vec![1; axes], &[w[1]], &w[2..]].concat(),
        )?;
        let products = windows.combined(Op::Mul, &weights)?;
        let reduced: Vec<usize> = (3 + axes..products.rank()).collect();
        let sums = products.sum_kept(&reduced)?.cast(dtype)?;
        let value = sums.reshape(&[&[x.shape()[0], w[0]][..], &counts].concat())?;
        if !dtype.is_float() {
            return Ok(value);
        }
        let numbers = [&[groups][..], &steps.stride, &steps.dilation].concat();
        let numbers: Vec<Tensor> = numbers
            .iter()
            .map(|number| Tensor::full(DType::I64, &[], *number))
            .collect::<Result<_, _>>()?;
        let sources: Vec<&Tensor> = [&x, &weight].into_iter().chain(&numbers).collect();
        Ok(value.as_function(CONVOLUTION, &sources))
    }

    /// The windows of an image, [n, groups, 1, .., c / groups, ..].
    fn windows_for(&self, name: &str, kernel: &[i64], steps: &Steps) -> Result<Tensor, Error> {
        let windows = self.windows(name, kernel, &steps.stride, &steps.dilation)?;
        let (x, axes) = (windows.shape(), kernel.len());
        let (inputs, counts) = (x[1] / steps.groups, &x[2..2 + axes]);
        let split = [&[x[0], steps.groups, inputs][..], counts, kernel].concat();
        let mut order = vec![0, 1];
        order.extend(3..3 + axes);
        order.push(2);
        order.extend(3 + axes..3 + 2 * axes);
        let aligned = [&[x[0], steps.groups, 1][..], counts, &[inputs], kernel].concat();
        windows.reshape(&split)?.permuted(&order).reshape(&aligned)
    }

    /// The gradient with respect to the image of a convolution, given that of the result: each
    /// element of the result gives its share to the elements of its window.
    pub(crate) fn convolution_to_image(
        &self,
        image: &[i64],
        weight: &Tensor,
        steps: &Steps,
    ) -> Result<Tensor, Error> {
        let mut rest = Vec::new();
        for (axis, stride) in steps.stride.iter().enumerate() {
            let (count, kernel) = (self.shape()[2 + axis], weight.shape()[2 + axis]);
            let used = (count - 1) * stride + (kernel - 1) * steps.dilation[axis] + 1;
            rest.push(image[2 + axis] - used);
        }
        let options = Conv::default().groups(steps.groups).stride(&steps.stride[..]);
        let options = options.dilation(&steps.dilation[..]).output_padding(&rest[..]);
        self.conv_transpose2d(weight, &options)
    }

    /// The gradient with respect to the weights, of this shape, of a convolution of an image.
    pub(crate) fn convolution_to_weight(
        &self,
        image: &Tensor,
        weight: &[i64],
        steps: &Steps,
    ) -> Result<Tensor, Error> {
        let (g, axes) = (self.shape(), weight.len() - 2);
        let (groups, outputs) = (steps.groups, weight[0] / steps.groups);
        // Without channels in a group, only the places of a row are adjacent. If they make no whole
        // vectors, copies in which the channels are adjacent do.
        let row = g[1 + axes];
        let is_short = steps.stride[axes - 1] != 1 || row % ROW_LANES != 0;
        let is_copied = is_short && outputs * weight[1] == 1 && CHANNELS_MIN <= groups;
        let [places, image] = [self, image].map(|x| match is_copied {
            true => x.with_channels_last(),
            false => x.clone(),
        });
        let windows = image.windows_for("conv2d", &weight[2..], steps)?;
        let shape = [&[g[0], groups, outputs][..], &g[2..], &vec![1; 1 + axes]].concat();
        let products = places.reshape(&shape)?.combined(Op::Mul, &windows)?;
        let reduced: Vec<usize> = [0].into_iter().chain(3..3 + axes).collect();
        products.sum_kept(&reduced)?.cast(self.dtype())?.reshape(weight)
    }

    /// The same elements, from a buffer in which those of axis 1 are adjacent.
    fn with_channels_last(&self) -> Tensor {
        let rank = self.rank();
        let order: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
        let back: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
        self.permuted(&order).contiguous().permuted(&back)
    }

    /// The windows of a tensor that is padded with `value`.
    pub(super) fn pooled_windows(
        &self,
        method: &str,
        pooling: &Pooling,
        value: Scalar,
    ) -> Result<Tensor, Error> {
        let padded = self.padded_last(&pooling.padding, value)?.ended(&pooling.beyond, value)?;
        padded.windows(method, &pooling.kernel, &pooling.stride, &pooling.dilation)
    }

    /// Reduces the last axes, those of a window, and removes them.
    pub(super) fn reduced_windows(
        &self,
        axes: usize,
        reduce: impl Fn(&Tensor, &[usize]) -> Result<Tensor, Error>,
    ) -> Result<Tensor, Error> {
        let kept = self.rank() - axes;
        let found = reduce(self, &(kept..self.rank()).collect::<Vec<_>>())?;
        found.reshape(&self.shape()[..kept])
    }

    /// Resolves the options of pooling for the shape.
    fn pooling(&self, method: &str, options: &Pool) -> Result<Pooling, Error> {
        let axes = match &options.kernel {
            PerAxis::Same(_) => 2,
            PerAxis::Each(numbers) => numbers.len(),
        };
        if self.rank() < axes || axes == 0 {
            return invalid(format!(
                "{method} of {:?}: it has fewer than the {axes} axes of the window",
                self.shape()
            ));
        }
        let numbers = |per_axis: &PerAxis, of: &str| {
            per_axis.numbers(axes, 1, &format!("{method} with {of}"))
        };
        let kernel = numbers(&options.kernel, "a window of")?;
        let stride = match &options.stride {
            Some(stride) => numbers(stride, "stride")?,
            None => kernel.clone(),
        };
        let dilation = numbers(&options.dilation, "dilation")?;
        let padding = options.padding.pairs(axes, &format!("{method} with padding"))?;
        let mut beyond = vec![0; axes];
        let sizes = &self.shape()[self.rank() - axes..];
        for axis in (0..axes).filter(|_| options.ceil_mode) {
            let (before, after) = padding[axis];
            let rest = |size: i64| -> Option<i64> {
                let reach = Extent::reach(kernel[axis], dilation[axis])?;
                let total = size.checked_add(before)?.checked_add(after)?;
                let steps = total.checked_sub(reach).filter(|rest| 0 <= *rest)?;
                let mut last = ceil_div(steps, stride[axis]);
                // A window that begins in the padding at the end does not count.
                let start = last.saturating_mul(stride[axis]);
                if 0 < last && size + before <= start {
                    last -= 1;
                }
                Some(last.checked_mul(stride[axis])?.checked_add(reach)? - total)
            };
            // Windows that do not fit are refused later, with a message.
            beyond[axis] = rest(sizes[axis]).unwrap_or(0);
        }
        Ok(Pooling { kernel, stride, dilation, padding, beyond })
    }
}

/// Number of places of a row that are whole vectors.
const ROW_LANES: i64 = 8;
/// Number of channels from which on copies with adjacent channels have vectors.
const CHANNELS_MIN: i64 = 16;

/// The function of a convolution. Its sources are the image, the weights, and the numbers of its
/// [`Steps`].
pub(crate) const CONVOLUTION: &str = "convolution";

/// The resolved options of a convolution of an image that has its padding.
pub(crate) struct Steps {
    pub(crate) groups: i64,
    pub(crate) stride: Vec<i64>,
    pub(crate) dilation: Vec<i64>,
}

impl Steps {
    /// The shape of the convolution of an image with weights of these shapes; `None` if there is
    /// none.
    pub(crate) fn result_shape(&self, image: &[i64], weight: &[i64]) -> Option<Vec<i64>> {
        let ([count, channels, sizes @ ..], [outputs, inputs, kernel @ ..]) = (image, weight)
        else {
            return None;
        };
        let mut numbers = self.stride.iter().chain(&self.dilation).chain([&self.groups]);
        let fits = numbers.all(|number| 1 <= *number)
            && !kernel.is_empty()
            && [self.stride.len(), self.dilation.len(), kernel.len()] == [sizes.len(); 3]
            && inputs.checked_mul(self.groups) == Some(*channels)
            && outputs % self.groups == 0;
        let mut shape = fits.then(|| vec![*count, *outputs])?;
        for (axis, (size, kernel)) in sizes.iter().zip(kernel).enumerate() {
            let extent = Extent::within(*size, *kernel, self.stride[axis], self.dilation[axis])?;
            shape.push(extent.count);
        }
        Some(shape)
    }
}

/// The resolved options of pooling, for each axis.
pub(crate) struct Pooling {
    pub(super) kernel: Vec<i64>,
    pub(super) stride: Vec<i64>,
    pub(super) dilation: Vec<i64>,
    pub(super) padding: Vec<(i64, i64)>,
    /// The number of elements that the last window reaches beyond the padding; negative if it ends
    /// before, so that no window is in what follows.
    pub(super) beyond: Vec<i64>,
}
