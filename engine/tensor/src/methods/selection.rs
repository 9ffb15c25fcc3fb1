//! Elements that a mask selects, and the indices of those that are not 0.
//!
//! Their number is known when the mask is. So a method computes the mask at once, or is given the
//! number of elements that it returns.

use gradiff_graph::DType;

use crate::elementwise::common_shape;
use crate::error::invalid;
use crate::index::true_positions;
use crate::{Error, Operand, Tensor};

impl Tensor {
    /// The elements, in row-major order, where `mask` is true, both broadcast. Computes the mask.
    /// # Errors
    /// If the mask is not of bool or cannot be computed, or shapes do not broadcast.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 3, 4])?;
    /// let columns = Tensor::from_slice(&[2], &[false, true])?;
    /// assert_eq!(x.masked_select(&columns)?.to_text()?, "[2, 4]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor, Error> {
        let (x, mask) = self.beside_mask("masked_select", mask)?;
        x.get(mask)
    }

    /// The first `size` elements of [`masked_select`](Tensor::masked_select), and zeros if there
    /// are fewer. Computes nothing.
    /// # Errors
    /// If the mask is not of bool, shapes do not broadcast, `size` is negative, or the elements are
    /// too many to [`sort`](Tensor::sort) the mask.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[4], &[1, 2, 3, 4])?;
    /// assert_eq!(x.masked_select_sized(&x.cmplt(3)?, 3)?.to_text()?, "[1, 2, 0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn masked_select_sized(&self, mask: &Tensor, size: i64) -> Result<Tensor, Error> {
        let (x, mask) = self.beside_mask("masked_select_sized", mask)?;
        let positions = mask.first_true(size)?;
        x.index_select(&positions, 0)
    }

    /// The indices (i32) [count, rank], in row-major order, of the elements that are not 0; NaN is
    /// not 0. Computes the elements.
    /// # Errors
    /// If the elements cannot be computed.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[0, 5, 6, 0])?;
    /// assert_eq!(x.nonzero()?.to_text()?, "[[0, 1], [1, 0]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn nonzero(&self) -> Result<Tensor, Error> {
        let columns = true_positions(&self.cast(DType::Bool)?, self)?;
        let columns: Vec<Tensor> =
            columns.iter().map(|column| column.cast(DType::I32)).collect::<Result<_, _>>()?;
        match columns.is_empty() {
            true => {
                let count = i64::from(self.cast(DType::Bool)?.item::<bool>()?);
                Tensor::zeros(DType::I32, &[count, 0])
            }
            false => Tensor::stack(&columns.iter().collect::<Vec<_>>(), 1),
        }
    }

    /// The first `size` rows of [`nonzero`](Tensor::nonzero), and rows of `fill` if there are
    /// fewer. Computes nothing.
    /// # Errors
    /// If `size` is negative, `fill` is no i32, or the elements are too many to
    /// [`sort`](Tensor::sort) a mask of them.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[0, 5, 6])?;
    /// assert_eq!(x.nonzero_sized(3, -1)?.to_text()?, "[[1], [2], [-1]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn nonzero_sized(&self, size: i64, fill: i64) -> Result<Tensor, Error> {
        let Ok(fill) = i32::try_from(fill) else {
            return invalid(format!("nonzero_sized with the fill {fill}, which is no i32"));
        };
        let mask = self.cast(DType::Bool)?.reshape(&[self.size_elements()])?;
        let positions = mask.first_true(size)?;
        let (is_outside, fill) = (positions.cmplt(0)?, i64::from(fill));
        let (mut rest, mut columns) = (positions, Vec::new());
        for size in self.shape().iter().rev() {
            // Without elements, all positions are outside, and a size may be too large for them.
            let size = if self.size_elements() == 0 { 1 } else { *size };
            columns.insert(0, is_outside.where_(fill, &rest.floormod(size)?)?);
            rest = rest.floordiv(size)?;
        }
        match columns.is_empty() {
            true => Tensor::zeros(DType::I32, &[size, 0]),
            false => Tensor::stack(&columns.iter().collect::<Vec<_>>(), 1),
        }
    }

    /// The tensor and a mask in one row, broadcast.
    fn beside_mask(&self, name: &str, mask: &Tensor) -> Result<(Tensor, Tensor), Error> {
        if mask.dtype() != DType::Bool {
            return invalid(format!("{name} of {self:?} by {mask:?}: the mask must be of bool"));
        }
        let shape = common_shape(name, &[&Operand::from(self), &Operand::from(mask)])?;
        let row = |x: &Tensor| {
            let wide = Tensor::from_valid(crate::tensor::broadcast(x.uop(), &shape));
            wide.reshape(&[wide.size_elements()])
        };
        Ok((row(self)?, row(mask)?))
    }

    /// The first `size` positions (i32) at which this row of bools is true, and -1.
    fn first_true(&self, size: i64) -> Result<Tensor, Error> {
        let kept = size.min(self.size_elements());
        let positions = self.topk(kept, 0, true)?.1.pad_to(&[size])?;
        let count = self.count_nonzero(..)?;
        let dtype = if size <= i64::from(i32::MAX) { DType::I32 } else { DType::I64 };
        let is_there = Tensor::arange(dtype, 0, 1, size)?.cmplt(&count.cast(dtype)?)?;
        is_there.where_(&positions, -1)
    }
}
