//! Methods that move elements, composed of reshape, permute, expand, pad, shrink, flip and cat.

use gradiff_graph::DType;

use crate::axes::{resolve_axes, resolve_axis};
use crate::error::invalid;
use crate::{Error, Scalar, Tensor};

/// Maximum number of parts of an axis.
const MAX_PARTS: i64 = 1 << 16;

/// The order of the axes of the grids of [`meshgrid`](Tensor::meshgrid).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Indexing {
    /// That of the tensors: rows, columns.
    #[default]
    Ij,
    /// The first two exchanged: columns, rows.
    Xy,
}

impl Tensor {
    /// Rotates the elements along each of `axes` by its shift: the element at `i` goes to
    /// `(i + shift) mod size`.
    /// # Errors
    /// If the numbers of shifts and axes differ, or an axis does not exist or appears twice.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[4], &[1, 2, 3, 4])?;
    /// assert_eq!(x.roll(&[1], &[0])?.to_text()?, "[4, 1, 2, 3]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn roll(&self, shifts: &[i64], axes: &[i64]) -> Result<Tensor, Error> {
        let found = resolve_axes("roll", axes, self.shape())?;
        if shifts.len() != axes.len() {
            return invalid(format!("roll by {shifts:?} along {axes:?}: one shift for each axis"));
        }
        let mut rolled = self.unchanged();
        for (axis, shift) in found.into_iter().zip(shifts) {
            let size = rolled.shape()[axis];
            let count = if size == 0 { 0 } else { shift.rem_euclid(size) };
            if count == 0 {
                continue;
            }
            let end = rolled.range(axis, size - count, size)?;
            rolled = Tensor::cat(&[&end, &rolled.range(axis, 0, size - count)?], axis as i64)?;
        }
        Ok(rolled)
    }

    /// Removes an axis of size 1.
    /// # Errors
    /// If the axis does not exist or has another size.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 1, 3], &[1, 2, 3, 4, 5, 6])?;
    /// assert_eq!(x.squeeze(-2)?.shape(), [2, 3]);
    /// assert!(x.squeeze(0).is_err());
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn squeeze(&self, axis: i64) -> Result<Tensor, Error> {
        let axis = resolve_axis("squeeze", axis, self.shape())?;
        let mut shape = self.shape().to_vec();
        if shape.remove(axis) != 1 {
            return invalid(format!(
                "squeeze axis {axis} of {:?}: its size must be 1",
                self.shape()
            ));
        }
        self.reshape(&shape)
    }

    /// Inserts an axis of size 1, which is number `axis` of the result; -1 is its last.
    /// # Errors
    /// If the result has no such axis.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 3], &[1, 2, 3, 4, 5, 6])?;
    /// assert_eq!(x.unsqueeze(0)?.shape(), [1, 2, 3]);
    /// assert_eq!(x.unsqueeze(-1)?.shape(), [2, 3, 1]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn unsqueeze(&self, axis: i64) -> Result<Tensor, Error> {
        let axis = new_axis("unsqueeze", axis, self.shape())?;
        let mut shape = self.shape().to_vec();
        shape.insert(axis, 1);
        self.reshape(&shape)
    }

    /// Exchanges two axes, which may be the same.
    /// # Errors
    /// If one of them does not exist.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 3, 4])?;
    /// assert_eq!(x.transpose(0, -1)?.to_text()?, "[[1, 3], [2, 4]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn transpose(&self, axis0: i64, axis1: i64) -> Result<Tensor, Error> {
        let axis0 = resolve_axis("transpose", axis0, self.shape())?;
        let axis1 = resolve_axis("transpose", axis1, self.shape())?;
        let mut axes: Vec<usize> = (0..self.rank()).collect();
        axes.swap(axis0, axis1);
        Ok(self.permuted(&axes))
    }

    /// Merges the axes from `start` to `end`, both included, into one, in row-major order. A scalar
    /// has the axes 0 and -1 here, which become one axis of size 1.
    /// # Errors
    /// If an axis does not exist, or `end` is before `start`.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::arange(gradiff_graph::DType::I32, 0, 1, 24)?.reshape(&[2, 3, 4])?;
    /// assert_eq!(x.flatten(0, -1)?.shape(), [24]);
    /// assert_eq!(x.flatten(1, 2)?.shape(), [2, 12]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn flatten(&self, start: i64, end: i64) -> Result<Tensor, Error> {
        let mut shape = if self.rank() == 0 { vec![1] } else { self.shape().to_vec() };
        let first = resolve_axis("flatten", start, &shape)?;
        let last = resolve_axis("flatten", end, &shape)?;
        if last < first {
            return invalid(format!(
                "flatten axes {start} to {end} of {:?}: the first must not be after the last",
                self.shape()
            ));
        }
        let merged = shape[first..=last].iter().product();
        shape.splice(first..=last, [merged]);
        self.reshape(&shape)
    }

    /// Splits an axis into axes of these sizes, in row-major order. One of them may be -1: it is
    /// the size of the axis divided by the product of the others, which must not be 0.
    /// # Errors
    /// If the axis does not exist, or the product of the sizes is not its size.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::arange(gradiff_graph::DType::I32, 0, 1, 24)?.reshape(&[2, 12])?;
    /// assert_eq!(x.unflatten(1, &[3, -1])?.shape(), [2, 3, 4]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn unflatten(&self, axis: i64, sizes: &[i64]) -> Result<Tensor, Error> {
        let axis = resolve_axis("unflatten", axis, self.shape())?;
        let total = self.shape()[axis];
        let mut sizes = sizes.to_vec();
        let is_legal = sizes.iter().all(|size| -1 <= *size);
        let mut factors = sizes.iter().copied().filter(|size| *size != -1);
        let known = factors.try_fold(1i64, i64::checked_mul).filter(|_| is_legal);
        let inferred: Vec<usize> = (0..sizes.len()).filter(|at| sizes[*at] == -1).collect();
        match (known, &inferred[..]) {
            (Some(product), []) if product == total => {}
            (Some(product), [at]) if product != 0 && total % product == 0 => {
                sizes[*at] = total / product;
            }
            _ => {
                return invalid(format!(
                    "unflatten axis {axis} of {:?} into {sizes:?}: the product of the sizes, one \
                     of which may be -1, must be {total}",
                    self.shape()
                ));
            }
        }
        let mut shape = self.shape().to_vec();
        shape.splice(axis..=axis, sizes);
        self.reshape(&shape)
    }

    /// Repeats the whole tensor `counts[i]` times along axis i. If there are more counts than axes,
    /// the tensor gets axes of size 1 before its first.
    /// # Errors
    /// If there are fewer counts than axes, a count is negative, or the result has too many
    /// elements.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1, 2])?;
    /// assert_eq!(x.repeat(&[2, 2])?.to_text()?, "[[1, 2, 1, 2], [1, 2, 1, 2]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn repeat(&self, counts: &[i64]) -> Result<Tensor, Error> {
        if counts.len() < self.rank() || counts.iter().any(|count| *count < 0) {
            return invalid(format!(
                "repeat {:?} by {counts:?}: counts of 0 or more, as many as axes or more",
                self.shape()
            ));
        }
        let mut sizes = vec![1; counts.len() - self.rank()];
        sizes.extend(self.shape());
        if let Some(at) = (0..sizes.len()).find(|at| counts[*at] == 0 || sizes[*at] == 0) {
            // Of an empty axis, any number of repeats is empty, however large.
            let product = |axis: usize| sizes[axis].checked_mul(counts[axis]);
            let shape =
                (0..sizes.len()).map(|axis| if axis == at { Some(0) } else { product(axis) });
            return match shape.collect::<Option<Vec<i64>>>() {
                Some(shape) => self.emptied(&shape),
                None => invalid(format!("repeat {:?} by {counts:?}: too large", self.shape())),
            };
        }
        let interleaved = |first: &dyn Fn(i64) -> i64| -> Vec<i64> {
            counts.iter().zip(&sizes).flat_map(|(count, size)| [first(*count), *size]).collect()
        };
        let expanded = self.reshape(&interleaved(&|_| 1))?.expand(&interleaved(&|count| count))?;
        let product = |(count, size): (&i64, &i64)| count * size;
        expanded.reshape(&counts.iter().zip(&sizes).map(product).collect::<Vec<_>>())
    }

    /// None of the elements, in a shape without elements.
    fn emptied(&self, shape: &[i64]) -> Result<Tensor, Error> {
        self.reshape(&[self.size_elements()])?.shrink(&[(0, 0)])?.reshape(shape)
    }

    /// Repeats each element along an axis: the element at `i` is at `i * count` to
    /// `i * count + count - 1` of the result.
    /// # Errors
    /// If the axis does not exist, the count is negative, or the result has too many elements.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1, 2])?;
    /// assert_eq!(x.repeat_interleave(3, 0)?.to_text()?, "[1, 1, 1, 2, 2, 2]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn repeat_interleave(&self, count: i64, axis: i64) -> Result<Tensor, Error> {
        let axis = resolve_axis("repeat_interleave", axis, self.shape())?;
        if count < 0 {
            return invalid(format!(
                "repeat_interleave {:?} {count} times: the count must be 0 or more",
                self.shape()
            ));
        }
        let mut shape = self.shape().to_vec();
        if shape[axis] == 0 {
            return Ok(self.unchanged());
        }
        shape.insert(axis + 1, 1);
        let narrow = self.reshape(&shape)?;
        shape[axis + 1] = count;
        let wide = narrow.expand(&shape)?;
        shape.remove(axis + 1);
        shape[axis] *= count;
        wide.reshape(&shape)
    }

    /// Stacks tensors of one dtype and shape along a new axis, which is number `axis` of the
    /// result; -1 is its last.
    /// # Errors
    /// If there are no tensors, their dtypes or shapes differ, or the result has no such axis.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let (x, y) = (Tensor::from_slice(&[2], &[1, 2])?, Tensor::from_slice(&[2], &[3, 4])?);
    /// assert_eq!(Tensor::stack(&[&x, &y], -1)?.to_text()?, "[[1, 3], [2, 4]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn stack(tensors: &[&Tensor], axis: i64) -> Result<Tensor, Error> {
        let Some(first) = tensors.first() else {
            return invalid("stack of no tensors: it takes one tensor or more");
        };
        let differs = |x: &&&Tensor| x.dtype() != first.dtype() || x.shape() != first.shape();
        if let Some(tensor) = tensors.iter().find(differs) {
            return invalid(format!(
                "stack of {first:?} and {tensor:?}: dtypes and shapes must be equal"
            ));
        }
        let parts = tensors.iter().map(|x| x.unsqueeze(axis)).collect::<Result<Vec<_>, _>>()?;
        let axis = new_axis("stack", axis, first.shape())?;
        Tensor::cat(&parts.iter().collect::<Vec<_>>(), axis as i64)
    }

    /// Grids of vectors: each of the tensors, repeated along the axes of the others; one axis for
    /// each tensor, in their order, of which [`Indexing::Xy`] exchanges the first two. A scalar
    /// counts as a vector of one element. Dtypes may differ.
    /// # Errors
    /// If there are no tensors, one has more than one axis, or the grid is too large.
    ///
    /// ```
    /// # use gradiff_tensor::{Indexing, Tensor};
    /// let (x, y) = (Tensor::from_slice(&[2], &[1, 2])?, Tensor::from_slice(&[3], &[3, 4, 5])?);
    /// let grids = Tensor::meshgrid(&[&x, &y], Indexing::Ij)?;
    /// assert_eq!(grids[0].to_text()?, "[[1, 1, 1], [2, 2, 2]]");
    /// assert_eq!(grids[1].to_text()?, "[[3, 4, 5], [3, 4, 5]]");
    /// let grids = Tensor::meshgrid(&[&x, &y], Indexing::Xy)?;
    /// assert_eq!(grids[0].to_text()?, "[[1, 2], [1, 2], [1, 2]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn meshgrid(tensors: &[&Tensor], indexing: Indexing) -> Result<Vec<Tensor>, Error> {
        let shapes: Vec<&[i64]> = tensors.iter().map(|tensor| tensor.shape()).collect();
        if tensors.is_empty() || shapes.iter().any(|shape| 1 < shape.len()) {
            return invalid(format!(
                "meshgrid of shapes {shapes:?}: it takes one vector or scalar, or more"
            ));
        }
        let mut axes: Vec<usize> = (0..tensors.len()).collect();
        if indexing == Indexing::Xy && 1 < axes.len() {
            axes.swap(0, 1);
        }
        // Exchanging two axes is its own inverse, so this is also the tensor of an axis.
        let shape: Vec<i64> = axes.iter().map(|at| tensors[*at].size_elements()).collect();
        let grid = |(tensor, axis): (&&Tensor, &usize)| {
            let mut narrow = vec![1; shape.len()];
            narrow[*axis] = shape[*axis];
            tensor.reshape(&narrow)?.expand(&shape)
        };
        tensors.iter().zip(&axes).map(grid).collect()
    }

    /// Splits the tensor into parts of these sizes along an axis.
    /// # Errors
    /// If the axis does not exist, a size is negative, or their sum is not the size of the axis.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let parts = Tensor::from_slice(&[4], &[1, 2, 3, 4])?.split(&[1, 3], 0)?;
    /// assert_eq!(parts[1].to_text()?, "[2, 3, 4]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn split(&self, sizes: &[i64], axis: i64) -> Result<Vec<Tensor>, Error> {
        let axis = resolve_axis("split", axis, self.shape())?;
        let total = sizes.iter().try_fold(0i64, |sum, size| sum.checked_add(*size));
        if total != Some(self.shape()[axis]) || sizes.iter().any(|size| *size < 0) {
            return invalid(format!(
                "split axis {axis} of {:?} into {sizes:?}: the sum of the sizes must be {}",
                self.shape(),
                self.shape()[axis]
            ));
        }
        let mut start = 0;
        let part = |size: &i64| {
            start += size;
            self.range(axis, start - size, start)
        };
        sizes.iter().map(part).collect()
    }

    /// Splits the tensor into parts of the size `ceil(size / count)` along an axis, but for the
    /// last one, which may be smaller; there may be fewer than `count`. An empty axis has `count`
    /// empty parts.
    /// # Errors
    /// If the axis does not exist, or the count is not 1 to 65536.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let parts = Tensor::from_slice(&[5], &[1, 2, 3, 4, 5])?.chunk(2, 0)?;
    /// assert_eq!(parts[1].to_text()?, "[4, 5]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn chunk(&self, count: i64, axis: i64) -> Result<Vec<Tensor>, Error> {
        let number = resolve_axis("chunk", axis, self.shape())?;
        let total = self.shape()[number];
        if !(1..=MAX_PARTS).contains(&count) {
            return invalid(format!(
                "chunk {:?} into {count} parts: 1 to {MAX_PARTS} are allowed",
                self.shape()
            ));
        }
        let size = ceil_div(total, count) as usize;
        let sizes: Vec<i64> = match size {
            0 => vec![0; count as usize],
            _ => (0..total).step_by(size).map(|at| (size as i64).min(total - at)).collect(),
        };
        self.split(&sizes, axis)
    }

    /// Windows of `size` elements that begin at each multiple of `step` and lie within the axis,
    /// whose size becomes their number; the positions in the window are a new last axis.
    /// # Errors
    /// If the axis does not exist, the window is negative or larger than the axis, or the step is
    /// below 1.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[5], &[1, 2, 3, 4, 5])?;
    /// assert_eq!(x.unfold(0, 3, 2)?.to_text()?, "[[1, 2, 3], [3, 4, 5]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn unfold(&self, axis: i64, size: i64, step: i64) -> Result<Tensor, Error> {
        let axis = resolve_axis("unfold", axis, self.shape())?;
        let total = self.shape()[axis];
        if !(0..=total).contains(&size) || step < 1 {
            return invalid(format!(
                "unfold axis {axis} of {:?} into windows of {size}, {step} apart: the window may \
                 have 0 to {total} elements, and the step is 1 or more",
                self.shape()
            ));
        }
        let last = self.rank() - 1;
        let mut order: Vec<usize> = (0..=last).filter(|number| *number != axis).collect();
        order.push(axis);
        let x = self.permuted(&order);
        let outer = &x.shape()[..last];
        let count = (total - size) / step + 1;
        let windows = if size == 0 {
            self.emptied(&[outer, &[0, count]].concat())?
        } else {
            // In rows of `total + 1` elements of the repeated axis, row j begins with element j.
            let copies = size + ceil_div(size, total);
            let mut counts = vec![1; x.rank()];
            counts[last] = copies;
            let rows = x.repeat(&counts)?.range(last, 0, size * (total + 1))?;
            let rows = rows.reshape(&[outer, &[size, total + 1]].concat())?;
            rows.strided(last + 1, 0, count, step)?
        };
        // The axes are now the outer ones, the position, the window.
        let mut order: Vec<usize> = (0..last).collect();
        order.insert(axis, last + 1);
        order.push(last);
        Ok(windows.permuted(&order))
    }

    /// The elements whose index on `axis1` is that on `axis0` plus `offset`, as a new last axis;
    /// both axes are removed.
    /// # Errors
    /// If an axis does not exist, or both are the same.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 3], &[1, 2, 3, 4, 5, 6])?;
    /// assert_eq!(x.diagonal(0, 0, 1)?.to_text()?, "[1, 5]");
    /// assert_eq!(x.diagonal(1, 0, 1)?.to_text()?, "[2, 6]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn diagonal(&self, offset: i64, axis0: i64, axis1: i64) -> Result<Tensor, Error> {
        let axes = resolve_axes("diagonal", &[axis0, axis1], self.shape())?;
        let rank = self.rank();
        let mut order: Vec<usize> = (0..rank).filter(|axis| !axes.contains(axis)).collect();
        order.extend(&axes);
        let x = self.permuted(&order);
        let (rows, columns) = (x.shape()[rank - 2], x.shape()[rank - 1]);
        let first_row = offset.min(0).saturating_neg().min(rows);
        let first_column = offset.max(0).min(columns);
        let length = (rows - first_row).min(columns - first_column);
        let rows = x.range(rank - 2, first_row, first_row + length)?;
        let square = rows.range(rank - 1, first_column, first_column + length)?;
        // In rows of `length + 1` elements the diagonal is column 0.
        let outer = x.shape()[..rank - 2].to_vec();
        let flat = square.reshape(&[&outer[..], &[length * length]].concat())?;
        let rows = flat.padded(rank - 2, 0, length)?;
        let rows = rows.reshape(&[&outer[..], &[length, length + 1]].concat())?;
        rows.range(rank - 1, 0, 1)?.reshape(&[&outer[..], &[length]].concat())
    }

    /// The square matrix that has a vector on diagonal `offset` and 0 elsewhere; of a matrix, its
    /// diagonal `offset`. Element `i` of diagonal `offset` is in column `row + offset`.
    /// # Errors
    /// If the rank is neither 1 nor 2, or the matrix has too many elements.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1, 2])?;
    /// assert_eq!(x.diag(0)?.to_text()?, "[[1, 0], [0, 2]]");
    /// assert_eq!(x.diag(1)?.diag(1)?.to_text()?, "[1, 2]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn diag(&self, offset: i64) -> Result<Tensor, Error> {
        let size = match self.shape() {
            [size] => *size,
            [_, _] => return self.diagonal(offset, 0, 1),
            shape => {
                return invalid(format!("diag of shape {shape:?}: it takes vectors and matrices"));
            }
        };
        // Rows of `size + 1` elements that begin with those of the vector, read in rows of `size`.
        let rows = self.reshape(&[size, 1])?.padded(1, 0, size)?;
        let flat = rows.reshape(&[size * (size + 1)])?.range(0, 0, size * size)?;
        let square = flat.reshape(&[size, size])?;
        let (above, below) = (offset.max(0), offset.min(0).saturating_neg());
        square.pad(&[(below, above), (above, below)], zero(self.dtype()))
    }

    /// Keeps the elements of matrices (the last two axes) on and above a diagonal: those whose
    /// column is at least `row + diagonal`. The others are 0.
    /// # Errors
    /// If there are fewer than two axes.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 3, 4])?;
    /// assert_eq!(x.triu(0)?.to_text()?, "[[1, 2], [0, 4]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn triu(&self, diagonal: i64) -> Result<Tensor, Error> {
        let (below, zero) = self.below_diagonal("triu", diagonal)?;
        below.where_(&zero, self)
    }

    /// Keeps the elements of matrices (the last two axes) on and below a diagonal: those whose
    /// column is at most `row + diagonal`. The others are 0.
    /// # Errors
    /// If there are fewer than two axes.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 3, 4])?;
    /// assert_eq!(x.tril(-1)?.to_text()?, "[[0, 0], [3, 0]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn tril(&self, diagonal: i64) -> Result<Tensor, Error> {
        let (below, zero) = self.below_diagonal("tril", diagonal.saturating_add(1))?;
        below.where_(self, &zero)
    }

    /// A mask of the matrices, true where the column is less than `row + diagonal`, and a zero.
    fn below_diagonal(&self, name: &str, diagonal: i64) -> Result<(Tensor, Tensor), Error> {
        let [.., rows, columns] = *self.shape() else {
            return invalid(format!("{name} of {:?}: it takes two axes or more", self.shape()));
        };
        // Diagonals beyond the corners are those at the corners.
        let diagonal = diagonal.clamp(-rows, columns + 1);
        let last_row = Tensor::arange(DType::I64, diagonal, 1, rows)?.reshape(&[rows, 1])?;
        let columns = Tensor::arange(DType::I64, 0, 1, columns)?;
        Ok((columns.cmplt(&last_row)?, Tensor::full(self.dtype(), &[], zero(self.dtype()))?))
    }

    /// NumPy's basic indexing: axis i of the first axes keeps the indices that Python's
    /// `range(size)[start:stop:step]` has for `ranges[i]`, (start, stop, step). Negative starts and
    /// stops count from the end; both are clipped to the axis. A stop of `i64::MIN` with a negative
    /// step, or `i64::MAX` with a positive one, is the end.
    /// # Errors
    /// If there are more ranges than axes, or a step is 0.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[5], &[1, 2, 3, 4, 5])?;
    /// assert_eq!(x.slice(&[(1, -1, 2)])?.to_text()?, "[2, 4]");
    /// assert_eq!(x.slice(&[(-1, i64::MIN, -2)])?.to_text()?, "[5, 3, 1]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn slice(&self, ranges: &[(i64, i64, i64)]) -> Result<Tensor, Error> {
        let mut sliced = self.unchanged();
        for (axis, steps) in steps_of("slice", self.shape(), ranges)?.into_iter().enumerate() {
            let Steps { first, count, stride, is_reversed } = steps;
            sliced = sliced.strided(axis, first, count, stride)?;
            if is_reversed {
                sliced = sliced.flipped(&[axis]);
            }
        }
        Ok(sliced)
    }

    /// Extends each axis by (before, after) elements, reflected at its first and last element,
    /// which are not repeated.
    /// # Errors
    /// If there is not a pair for each axis, or a count is negative or not less than the size.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1, 2, 3])?;
    /// assert_eq!(x.pad_reflect(&[(2, 1)])?.to_text()?, "[3, 2, 1, 2, 3, 2]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn pad_reflect(&self, pads: &[(i64, i64)]) -> Result<Tensor, Error> {
        self.extended(
            "pad_reflect",
            pads,
            |size| (size - 1).max(0),
            |x, axis, before, after| {
                let size = x.shape()[axis];
                let head = x.range(axis, 1, 1 + before)?.flipped(&[axis]);
                let tail = x.range(axis, size - 1 - after, size - 1)?.flipped(&[axis]);
                Ok((head, tail))
            },
        )
    }

    /// Extends each axis by (before, after) copies of its first and last element.
    /// # Errors
    /// If there is not a pair for each axis, a count is negative, an axis that is extended is
    /// empty, or the result has too many elements.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1, 2, 3])?;
    /// assert_eq!(x.pad_replicate(&[(2, 1)])?.to_text()?, "[1, 1, 1, 2, 3, 3]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn pad_replicate(&self, pads: &[(i64, i64)]) -> Result<Tensor, Error> {
        let limit = |size| if size == 0 { 0 } else { i64::MAX };
        self.extended("pad_replicate", pads, limit, |x, axis, before, after| {
            let size = x.shape()[axis];
            let mut shape = x.shape().to_vec();
            shape[axis] = before;
            let head = x.range(axis, 0, 1)?.expand(&shape)?;
            shape[axis] = after;
            Ok((head, x.range(axis, size - 1, size)?.expand(&shape)?))
        })
    }

    /// Extends each axis periodically: by its last `before` and first `after` elements for a pair
    /// (before, after).
    /// # Errors
    /// If there is not a pair for each axis, or a count is negative or above the size.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1, 2, 3])?;
    /// assert_eq!(x.pad_circular(&[(2, 1)])?.to_text()?, "[2, 3, 1, 2, 3, 1]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn pad_circular(&self, pads: &[(i64, i64)]) -> Result<Tensor, Error> {
        self.extended(
            "pad_circular",
            pads,
            |size| size,
            |x, axis, before, after| {
                let size = x.shape()[axis];
                Ok((x.range(axis, size - before, size)?, x.range(axis, 0, after)?))
            },
        )
    }

    /// Extends each axis by what `ends` gives for it: what comes before the first element and after
    /// the last. `limit` is the largest count for the size of an axis.
    fn extended(
        &self,
        name: &str,
        pads: &[(i64, i64)],
        limit: impl Fn(i64) -> i64,
        ends: impl Fn(&Tensor, usize, i64, i64) -> Result<(Tensor, Tensor), Error>,
    ) -> Result<Tensor, Error> {
        let is_legal = |(size, (before, after)): (&i64, &(i64, i64))| {
            0 <= *before && 0 <= *after && *before.max(after) <= limit(*size)
        };
        if pads.len() != self.rank() || !self.shape().iter().zip(pads).all(is_legal) {
            let limits: Vec<i64> = self.shape().iter().map(|size| limit(*size)).collect();
            return invalid(format!(
                "{name} of {:?} by {pads:?}: one pair of counts, 0 to {limits:?}, for each axis",
                self.shape()
            ));
        }
        let mut extended = self.unchanged();
        for (axis, (before, after)) in pads.iter().enumerate() {
            if (*before, *after) != (0, 0) {
                let (head, tail) = ends(&extended, axis, *before, *after)?;
                extended = Tensor::cat(&[&head, &extended, &tail], axis as i64)?;
            }
        }
        Ok(extended)
    }

    /// Keeps the first `sizes[i]` elements of axis i.
    /// # Errors
    /// If there is not a size for each axis, or it is negative or above that of the axis.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 3, 4])?;
    /// assert_eq!(x.shrink_to(&[1, 2])?.to_text()?, "[[1, 2]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn shrink_to(&self, sizes: &[i64]) -> Result<Tensor, Error> {
        self.shrink(&sizes.iter().map(|size| (0, *size)).collect::<Vec<_>>())
    }

    /// Adds zeros (false for bool) after the last element of axis i, so that its size is
    /// `sizes[i]`.
    /// # Errors
    /// If there is not a size for each axis, it is below that of the axis, or the result has too
    /// many elements.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1, 2])?;
    /// assert_eq!(x.pad_to(&[4])?.to_text()?, "[1, 2, 0, 0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn pad_to(&self, sizes: &[i64]) -> Result<Tensor, Error> {
        let added = |(size, to): (&i64, &i64)| (0, to.saturating_sub(*size));
        if sizes.len() != self.rank() {
            return invalid(format!("pad_to {sizes:?} of {:?}: one size an axis", self.shape()));
        }
        let pads: Vec<(i64, i64)> = self.shape().iter().zip(sizes).map(added).collect();
        self.pad(&pads, zero(self.dtype()))
    }

    /// Moves axis `from[i]` to number `to[i]` of the result; the other axes keep their order.
    /// # Errors
    /// If the numbers of axes differ, or an axis does not exist or appears twice.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::arange(gradiff_graph::DType::I32, 0, 1, 24)?.reshape(&[2, 3, 4])?;
    /// assert_eq!(x.movedim(&[0], &[-1])?.shape(), [3, 4, 2]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn movedim(&self, from: &[i64], to: &[i64]) -> Result<Tensor, Error> {
        let sources = resolve_axes("movedim", from, self.shape())?;
        let targets = resolve_axes("movedim", to, self.shape())?;
        if from.len() != to.len() {
            return invalid(format!(
                "movedim {from:?} of {:?} to {to:?}: one number for each axis",
                self.shape()
            ));
        }
        let mut axes: Vec<Option<usize>> = vec![None; self.rank()];
        targets.iter().zip(&sources).for_each(|(target, source)| axes[*target] = Some(*source));
        let mut rest = (0..self.rank()).filter(|axis| !sources.contains(axis));
        let order: Vec<usize> =
            axes.into_iter().filter_map(|axis| axis.or_else(|| rest.next())).collect();
        Ok(self.permuted(&order))
    }

    /// Keeps the half-open range of one axis.
    pub(crate) fn range(&self, axis: usize, start: i64, end: i64) -> Result<Tensor, Error> {
        let mut ranges: Vec<(i64, i64)> = self.shape().iter().map(|size| (0, *size)).collect();
        ranges[axis] = (start, end);
        self.shrink(&ranges)
    }

    /// Adds zeros to one axis.
    pub(crate) fn padded(&self, axis: usize, before: i64, after: i64) -> Result<Tensor, Error> {
        let mut pads = vec![(0, 0); self.rank()];
        pads[axis] = (before, after);
        self.pad(&pads, zero(self.dtype()))
    }

    /// Inserts `stride - 1` zeros between the elements of each axis from `first` on, for as many
    /// axes as there are strides.
    pub(crate) fn spread(&self, first: usize, strides: &[i64]) -> Result<Tensor, Error> {
        let (mut split, mut merged) = (self.shape().to_vec(), self.shape().to_vec());
        let mut pads = vec![(0, 0); self.rank()];
        let mut ranges: Vec<(i64, i64)> = merged.iter().map(|size| (0, *size)).collect();
        for (number, stride) in strides.iter().enumerate() {
            let (axis, zeros) = (first + number, first + 2 * number + 1);
            split.insert(zeros, 1);
            pads.insert(zeros, (0, stride - 1));
            merged[axis] = merged[axis].saturating_mul(*stride);
            // Without the zeros after the last element.
            ranges[axis].1 = (merged[axis] - (stride - 1)).max(0);
        }
        let padded = self.reshape(&split)?.pad(&pads, zero(self.dtype()))?;
        padded.reshape(&merged)?.shrink(&ranges)
    }

    /// Keeps `count` elements of one axis: `start`, `start + stride`, and so on.
    fn strided(&self, axis: usize, start: i64, count: i64, stride: i64) -> Result<Tensor, Error> {
        let span = if count == 0 { 0 } else { (count - 1) * stride + 1 };
        let kept = self.range(axis, start, start + span)?;
        if count < 2 || stride == 1 {
            return Ok(kept);
        }
        let mut shape = self.shape().to_vec();
        shape.splice(axis..=axis, [count, stride]);
        let blocks = kept.padded(axis, 0, stride - 1)?.reshape(&shape)?;
        let first = blocks.range(axis + 1, 0, 1)?;
        shape.remove(axis + 1);
        first.reshape(&shape)
    }
}

/// The positions of a slice along an axis: `first + i * stride` for i in 0..count, the last one
/// first if it is reversed.
pub(crate) struct Steps {
    pub(crate) first: i64,
    pub(crate) count: i64,
    pub(crate) stride: i64,
    pub(crate) is_reversed: bool,
}

/// Returns the positions along each axis of the ranges (start, stop, step), which are at most as
/// many as there are axes.
pub(crate) fn steps_of(
    method: &str,
    shape: &[i64],
    ranges: &[(i64, i64, i64)],
) -> Result<Vec<Steps>, Error> {
    if shape.len() < ranges.len() || ranges.iter().any(|(_, _, step)| *step == 0) {
        return invalid(format!(
            "{method} {shape:?} by {ranges:?}: at most one (start, stop, step) for each axis, and \
             no step is 0"
        ));
    }
    let steps = |((start, stop, step), size): (&(i64, i64, i64), &i64)| {
        let (low, high) = if *step > 0 { (0, *size) } else { (-1, *size - 1) };
        let clip = |at: i64| if at < 0 { at.saturating_add(*size) } else { at }.clamp(low, high);
        let (start, stop, stride) = (clip(*start), clip(*stop), step.unsigned_abs());
        let distance = if *step > 0 { stop - start } else { start - stop };
        let count = (distance.max(0) as u64).div_ceil(stride) as i64;
        // Of two indices or more, the stride is less than the size.
        let stride = if count < 2 { 1 } else { stride as i64 };
        let is_reversed = *step < 0;
        let first = match (is_reversed, count) {
            (true, 0) => 0,
            (true, _) => start - (count - 1) * stride,
            (false, _) => start,
        };
        Steps { first, count, stride, is_reversed }
    };
    Ok(ranges.iter().zip(shape).map(steps).collect())
}

/// Returns the axis of a result that has one more than `shape`.
fn new_axis(method: &str, number: i64, shape: &[i64]) -> Result<usize, Error> {
    resolve_axis(method, number, &[shape, &[1]].concat())
}

/// The permutation that undoes another.
pub(crate) fn inverse(order: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, from)| inverse[*from] = to);
    inverse
}

/// `count / divisor` rounded up, of a count from 0 and a divisor from 1 on.
pub(crate) fn ceil_div(count: i64, divisor: i64) -> i64 {
    count / divisor + i64::from(count % divisor != 0)
}

/// The zero of a dtype; false for bool.
pub(crate) fn zero(dtype: DType) -> Scalar {
    if dtype == DType::Bool { Scalar::Bool(false) } else { Scalar::Int(0) }
}
