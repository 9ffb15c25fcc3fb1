//! Functions that are composed of the ops of the other files: exp and the like.

use gradiff_graph::DType;

use crate::error::invalid;
use crate::{Element, Error, Scalar, Tensor};

impl Tensor {
    /// Creates a tensor of one element and no axes, a constant as that of [`full`](Tensor::full).
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

    /// `e^x`, within 1.2 ulp on every device; f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float.
    pub fn exp(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("exp", |x| {
            // As the base of a power, the float nearest to e stands for e itself.
            Tensor::full(x.dtype(), &[], std::f64::consts::E)?.pow(x)
        })
    }

    /// Natural logarithm; f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float.
    pub fn log(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("log", |x| x.log2()?.mul(std::f64::consts::LN_2))
    }

    /// `max(x, 0)`. Integers and floats.
    /// # Errors
    /// If the dtype is bool.
    pub fn relu(&self) -> Result<Tensor, Error> {
        Ok(self.maximum(0)?.as_function("relu", &[self]))
    }

    /// `1 / (1 + e^-x)`; f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float.
    pub fn sigmoid(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("sigmoid", |x| x.neg()?.exp()?.add(1)?.recip())
    }

    /// Applies a function of floats. f16 and bf16 are computed in f32, and the result is rounded
    /// once. If there is a row of derivatives for the name, it is the function's derivative.
    pub(crate) fn compute_in_f32(
        &self,
        name: &str,
        function: impl Fn(&Tensor) -> Result<Tensor, Error>,
    ) -> Result<Tensor, Error> {
        let marked = |x: &Tensor| Ok(function(x)?.as_unary_function(name, x));
        match self.dtype() {
            DType::F16 | DType::BF16 => marked(&self.cast(DType::F32)?)?.cast(self.dtype()),
            dtype if dtype.is_float() => marked(self),
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
