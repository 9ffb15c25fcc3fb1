//! Functions that are composed of the ops of the other files: matmul, mean, softmax and the like.

use gradiff_graph::DType;

use crate::error::invalid;
use crate::{Element, Error, Scalar, Tensor};

impl Tensor {
    /// Creates a tensor of one element and no axes.
    /// # Errors
    /// If the dtype cannot represent the value.
    pub fn scalar(dtype: DType, value: impl Into<Scalar>) -> Result<Tensor, Error> {
        Tensor::full(dtype, &[], value)
    }

    /// Creates a tensor of zeros; false for bool.
    /// # Errors
    /// If a size is negative or too large.
    pub fn zeros(dtype: DType, shape: &[i64]) -> Result<Tensor, Error> {
        match dtype {
            DType::Bool => Tensor::full(dtype, shape, false),
            _ => Tensor::full(dtype, shape, 0),
        }
    }

    /// Creates a tensor of ones; true for bool.
    /// # Errors
    /// If a size is negative or too large.
    pub fn ones(dtype: DType, shape: &[i64]) -> Result<Tensor, Error> {
        match dtype {
            DType::Bool => Tensor::full(dtype, shape, true),
            _ => Tensor::full(dtype, shape, 1),
        }
    }

    /// Exchanges the last two axes.
    /// # Errors
    /// If there are fewer than two axes.
    pub fn transpose(&self) -> Result<Tensor, Error> {
        let rank = self.rank();
        if rank < 2 {
            return invalid(format!("transpose {:?}: it needs at least two axes", self.shape()));
        }
        let mut axes: Vec<usize> = (0..rank).collect();
        axes.swap(rank - 2, rank - 1);
        self.permute(&axes)
    }

    /// Removes an axis of size 1.
    /// # Errors
    /// If the axis does not exist or has another size.
    pub fn squeeze(&self, axis: usize) -> Result<Tensor, Error> {
        if self.shape().get(axis) != Some(&1) {
            return invalid(format!(
                "squeeze axis {axis} of {:?}: its size must be 1",
                self.shape()
            ));
        }
        let mut shape = self.shape().to_vec();
        shape.remove(axis);
        self.reshape(&shape)
    }

    /// Inserts an axis of size 1 before axis `axis`.
    /// # Errors
    /// If `axis` is above the rank.
    pub fn unsqueeze(&self, axis: usize) -> Result<Tensor, Error> {
        if self.rank() < axis {
            return invalid(format!(
                "unsqueeze axis {axis} of {:?}: the axis may be at most {}",
                self.shape(),
                self.rank()
            ));
        }
        let mut shape = self.shape().to_vec();
        shape.insert(axis, 1);
        self.reshape(&shape)
    }

    /// Matrix product of `self` [.., m, k] and `other` [.., k, n]: [.., m, n]. Axes before the last
    /// two are broadcast.
    /// # Errors
    /// If a rank is below 2, or k differs.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor, Error> {
        let (x, y) = (self.shape(), other.shape());
        if x.len() < 2 || y.len() < 2 || x[x.len() - 1] != y[y.len() - 2] {
            return invalid(format!(
                "matmul of {x:?} and {y:?}: they must be [.., m, k] and [.., k, n]"
            ));
        }
        let rows = self.unsqueeze(x.len() - 1)?;
        let columns = other.transpose()?.unsqueeze(y.len() - 2)?;
        let products = rows.mul(&columns)?;
        let last = products.rank() - 1;
        products.sum(&[last])?.squeeze(last)
    }

    /// Mean along `axes`. Floats.
    /// # Errors
    /// If the dtype is not a float, or an axis does not exist or appears twice.
    pub fn mean(&self, axes: &[usize]) -> Result<Tensor, Error> {
        if !self.dtype().is_float() {
            return invalid(format!(
                "mean of {}: it takes floats; cast the tensor first",
                self.dtype()
            ));
        }
        let sum = self.sum(axes)?;
        let count: i64 = axes.iter().map(|axis| self.shape()[*axis]).product();
        sum.div(count)
    }

    /// `e^x`, within 1.2 ulp on every device; f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float.
    pub fn exp(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("exp", |x| {
            // As the base of a power, the float nearest to e stands for e itself.
            Tensor::full(x.dtype(), &[], std::f64::consts::E)?.pow(x)
        })
    }

    /// Natural logarithm. Floats.
    /// # Errors
    /// If the dtype is not a float.
    pub fn log(&self) -> Result<Tensor, Error> {
        self.log2()?.mul(std::f64::consts::LN_2)
    }

    /// `max(x, 0)`. Integers and floats.
    /// # Errors
    /// If the dtype is bool.
    pub fn relu(&self) -> Result<Tensor, Error> {
        self.maximum(0)
    }

    /// `1 / (1 + e^-x)`; f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float.
    pub fn sigmoid(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("sigmoid", |x| x.neg()?.exp()?.add(1)?.recip())
    }

    /// `e^x` divided by its sum along `axis`, with one division per row. Floats. Elements far below
    /// the largest of their row become 0, with the logarithm -inf;
    /// [`log_softmax`](Tensor::log_softmax) is finite there.
    /// # Errors
    /// If the dtype is not a float, or the axis does not exist.
    pub fn softmax(&self, axis: usize) -> Result<Tensor, Error> {
        let weights = self.sub(&self.max(&[axis])?)?.exp()?;
        weights.mul(&weights.sum(&[axis])?.recip()?)
    }

    /// The natural logarithm of [`softmax`](Tensor::softmax), `x - m - log(sum of e^(x - m))` for
    /// the largest element m along `axis`; finite wherever `x - m` is. f16 and bf16 are computed in
    /// f32. Floats.
    /// # Errors
    /// If the dtype is not a float, or the axis does not exist.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[0f32, 1000.0])?;
    /// assert_eq!(x.softmax(0)?.log()?.to_vec::<f32>()?, [f32::NEG_INFINITY, 0.0]);
    /// assert_eq!(x.log_softmax(0)?.to_vec::<f32>()?, [-1000.0, 0.0]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn log_softmax(&self, axis: usize) -> Result<Tensor, Error> {
        self.compute_in_f32("log_softmax", |x| {
            let shifted = x.sub(&x.max(&[axis])?)?;
            shifted.sub(&shifted.exp()?.sum(&[axis])?.log()?)
        })
    }

    /// Applies a function of floats. f16 and bf16 are computed in f32, and the result is rounded
    /// once.
    fn compute_in_f32(
        &self,
        name: &str,
        function: impl Fn(&Tensor) -> Result<Tensor, Error>,
    ) -> Result<Tensor, Error> {
        match self.dtype() {
            DType::F16 | DType::BF16 => function(&self.cast(DType::F32)?)?.cast(self.dtype()),
            dtype if dtype.is_float() => function(self),
            dtype => invalid(format!("{name} of {dtype}: it takes floats; cast the tensor first")),
        }
    }

    /// Reads the element of a tensor that has exactly one.
    /// # Errors
    /// If the tensor has more elements or none, T is not the dtype, or it cannot be computed.
    pub fn item<T: Element>(&self) -> Result<T, Error> {
        if self.size_elements() != 1 {
            return invalid(format!(
                "item of shape {:?}: the tensor must have exactly one element",
                self.shape()
            ));
        }
        Ok(self.to_vec()?[0])
    }
}
