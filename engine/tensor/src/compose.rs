//! What people expect of a tensor library, said in the ops of the other files.

use gradiff_graph::DType;

use crate::error::invalid;
use crate::{Element, Engine, Error, Scalar, Tensor};

impl Tensor {
    /// A tensor of one element and no axes.
    /// # Errors
    /// If the dtype cannot say the value.
    pub fn scalar(dtype: DType, value: impl Into<Scalar>) -> Result<Tensor, Error> {
        Tensor::full(dtype, &[], value)
    }

    /// Zeros.
    /// # Errors
    /// If a size is negative or too large.
    pub fn zeros(dtype: DType, shape: &[i64]) -> Result<Tensor, Error> {
        match dtype {
            DType::Bool => Tensor::full(dtype, shape, false),
            _ => Tensor::full(dtype, shape, 0),
        }
    }

    /// Ones; true for bool.
    /// # Errors
    /// If a size is negative or too large.
    pub fn ones(dtype: DType, shape: &[i64]) -> Result<Tensor, Error> {
        match dtype {
            DType::Bool => Tensor::full(dtype, shape, true),
            _ => Tensor::full(dtype, shape, 1),
        }
    }

    /// The last two axes exchanged.
    /// # Errors
    /// If there are less than two axes.
    pub fn transpose(&self) -> Result<Tensor, Error> {
        let rank = self.rank();
        if rank < 2 {
            return invalid(format!("transpose {:?}: it takes two axes or more", self.shape()));
        }
        let mut axes: Vec<usize> = (0..rank).collect();
        axes.swap(rank - 2, rank - 1);
        self.permute(&axes)
    }

    /// The axis removed; its size is 1.
    /// # Errors
    /// If the axis is not there or has another size.
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

    /// A new axis of size 1 before axis `axis`.
    /// # Errors
    /// If `axis` is above the rank.
    pub fn unsqueeze(&self, axis: usize) -> Result<Tensor, Error> {
        if self.rank() < axis {
            return invalid(format!(
                "unsqueeze axis {axis} of {:?}: at most {}",
                self.shape(),
                self.rank()
            ));
        }
        let mut shape = self.shape().to_vec();
        shape.insert(axis, 1);
        self.reshape(&shape)
    }

    /// The matrix product over the last axis of `self` [.., m, k] and the one before the last of
    /// `other` [.., k, n]: [.., m, n]. Axes before those are broadcast.
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

    /// The sum along `axes` over the count of elements. Floats.
    /// # Errors
    /// If the dtype is no float, or an axis is not there or appears twice.
    pub fn mean(&self, axes: &[usize]) -> Result<Tensor, Error> {
        if !self.dtype().is_float() {
            return invalid(format!(
                "mean of {}: it takes floats; use cast before it",
                self.dtype()
            ));
        }
        let sum = self.sum(axes)?;
        let count: i64 = axes.iter().map(|axis| self.shape()[*axis]).product();
        sum.div(count)
    }

    /// `e^x`, within 1.2 units in the last place on every device; f16 and bf16 are computed in f32.
    /// Floats.
    /// # Errors
    /// If the dtype is no float.
    pub fn exp(&self) -> Result<Tensor, Error> {
        self.through_f32("exp", |x| {
            // The kernels that the power becomes take the float nearest to e for e itself.
            Tensor::full(x.dtype(), &[], std::f64::consts::E)?.pow(x)
        })
    }

    /// The natural logarithm. Floats.
    /// # Errors
    /// If the dtype is no float.
    pub fn log(&self) -> Result<Tensor, Error> {
        self.log2()?.mul(std::f64::consts::LN_2)
    }

    /// x where it is above 0, else 0. Integers and floats.
    /// # Errors
    /// If the dtype is bool.
    pub fn relu(&self) -> Result<Tensor, Error> {
        self.max(0)
    }

    /// `1 / (1 + e^-x)`; f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is no float.
    pub fn sigmoid(&self) -> Result<Tensor, Error> {
        self.through_f32("sigmoid", |x| x.neg()?.exp()?.add(1)?.recip())
    }

    /// e^x over its sum along `axis`. Floats. The sum is divided by once for each row. What is far
    /// below the largest element of its row becomes 0, and its logarithm -inf:
    /// [`log_softmax`](Tensor::log_softmax) is finite there.
    /// # Errors
    /// If the dtype is no float, or the axis is not there.
    pub fn softmax(&self, axis: usize) -> Result<Tensor, Error> {
        let weights = self.sub(&self.max_reduce(&[axis])?)?.exp()?;
        weights.mul(&weights.sum(&[axis])?.recip()?)
    }

    /// The natural logarithm of [`softmax`](Tensor::softmax), `x - m - log(sum of e^(x - m))` for
    /// the largest element m along `axis`; finite wherever `x - m` is. f16 and bf16 are computed in
    /// f32. Floats.
    /// # Errors
    /// If the dtype is no float, or the axis is not there.
    ///
    /// ```
    /// # use gradiff_tensor::{Engine, Tensor};
    /// # let engine = Engine::new("interp")?;
    /// let x = Tensor::from_slice(&[2], &[0f32, 1000.0])?;
    /// assert_eq!(x.softmax(0)?.log()?.to_vec::<f32>(&engine)?, [f32::NEG_INFINITY, 0.0]);
    /// assert_eq!(x.log_softmax(0)?.to_vec::<f32>(&engine)?, [-1000.0, 0.0]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn log_softmax(&self, axis: usize) -> Result<Tensor, Error> {
        self.through_f32("log_softmax", |x| {
            let below = x.sub(&x.max_reduce(&[axis])?)?;
            below.sub(&below.exp()?.sum(&[axis])?.log()?)
        })
    }

    /// A function of f32 and f64; f16 and bf16 go through f32, and the result is rounded once.
    fn through_f32(
        &self,
        name: &str,
        function: impl Fn(&Tensor) -> Result<Tensor, Error>,
    ) -> Result<Tensor, Error> {
        match self.dtype() {
            DType::F16 | DType::BF16 => function(&self.cast(DType::F32)?)?.cast(self.dtype()),
            dtype if dtype.is_float() => function(self),
            dtype => invalid(format!("{name} of {dtype}: it takes floats; use cast before it")),
        }
    }

    /// The one element of a tensor of one.
    /// # Errors
    /// If there are more or none, T is not the dtype, or it cannot be computed.
    pub fn item<T: Element>(&self, engine: &Engine) -> Result<T, Error> {
        if self.size_elements() != 1 {
            return invalid(format!("item of shape {:?}: it takes one element", self.shape()));
        }
        Ok(self.to_vec(engine)?[0])
    }
}
