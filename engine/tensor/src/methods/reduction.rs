//! Reductions that are composed of others.

use crate::axes::resolve_axis;
use crate::error::invalid;
use crate::{Axes, Error, Scalar, Tensor};

impl Tensor {
    /// Smallest element along `axes`; NaN if any element is NaN. All dtypes.
    /// # Errors
    /// If an axis does not exist, appears twice or is empty.
    pub fn min(&self, axes: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("min", axes.into(), |x, axes| {
            if let Some(axis) = axes.iter().find(|axis| x.shape()[**axis] == 0) {
                return invalid(format!(
                    "min along axis {axis} of shape {:?}: it has no element",
                    x.shape()
                ));
            }
            // The order of floats is turned by the sign, that of others by the complement, which
            // never overflows.
            let turned = |x: &Tensor| if x.dtype().is_float() { x.neg() } else { x.not() };
            turned(&turned(x)?.max_kept(axes))
        })
    }

    /// Mean along `axes`: the sum divided by the number of elements, so NaN of no elements; f16 and
    /// bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float, or an axis does not exist or appears twice.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1f32, 2.0, 4.0, 5.0])?;
    /// assert_eq!(x.mean(-1)?.to_text()?, "[1.5, 4.5]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn mean(&self, axes: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("mean", axes.into(), |x, axes| x.compute_in_f32("mean", |x| x.mean_kept(axes)))
    }

    /// Variance along `axes`: the sum of the squares of the differences from the mean, divided by
    /// the number of elements less `correction`, or by 0 if that is negative. A correction of 1 is
    /// Bessel's. f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float, or an axis does not exist or appears twice.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1e4f32, 10001.0, 10002.0])?;
    /// assert_eq!(x.var(0, 1)?.to_text()?, "1.0");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn var(&self, axes: impl Into<Axes>, correction: i64) -> Result<Tensor, Error> {
        self.reduced("var", axes.into(), |x, axes| {
            x.compute_in_f32("var", |x| x.variance_kept(axes, correction))
        })
    }

    /// Standard deviation along `axes`: the square root of [`var`](Tensor::var). Floats.
    /// # Errors
    /// If the dtype is not a float, or an axis does not exist or appears twice.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1f32, 5.0])?;
    /// assert_eq!(x.std(0, 0)?.to_text()?, "2.0");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn std(&self, axes: impl Into<Axes>, correction: i64) -> Result<Tensor, Error> {
        self.reduced("std", axes.into(), |x, axes| {
            x.compute_in_f32("std", |x| x.variance_kept(axes, correction)?.sqrt())
        })
    }

    /// [`var`](Tensor::var) and [`mean`](Tensor::mean) along `axes`.
    /// # Errors
    /// As `var`.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let (var, mean) = Tensor::from_slice(&[2], &[1f32, 5.0])?.var_mean(0, 0)?;
    /// assert_eq!((var.to_text()?, mean.to_text()?), ("4.0".to_string(), "3.0".to_string()));
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn var_mean(
        &self,
        axes: impl Into<Axes>,
        correction: i64,
    ) -> Result<(Tensor, Tensor), Error> {
        let axes = axes.into();
        Ok((self.var(axes.clone(), correction)?, self.mean(axes)?))
    }

    /// [`std`](Tensor::std) and [`mean`](Tensor::mean) along `axes`.
    /// # Errors
    /// As `std`.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let (std, mean) = Tensor::from_slice(&[2], &[1f32, 5.0])?.std_mean(0, 0)?;
    /// assert_eq!((std.to_text()?, mean.to_text()?), ("2.0".to_string(), "3.0".to_string()));
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn std_mean(
        &self,
        axes: impl Into<Axes>,
        correction: i64,
    ) -> Result<(Tensor, Tensor), Error> {
        let axes = axes.into();
        Ok((self.std(axes.clone(), correction)?, self.mean(axes)?))
    }

    /// Layer normalisation: the differences from the mean along `axes`, divided by the square root
    /// of `eps` plus the mean of their squares; f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float, an axis does not exist or appears twice, or `eps` is negative
    /// or not finite.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1f32, 5.0, 7.0, 3.0])?;
    /// assert_eq!(x.layernorm(-1, 0)?.to_text()?, "[[-1.0, 1.0], [1.0, -1.0]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn layernorm(
        &self,
        axes: impl Into<Axes>,
        eps: impl Into<Scalar>,
    ) -> Result<Tensor, Error> {
        let axes = axes.into().resolve("layernorm", self.shape())?;
        let eps = eps.into();
        self.compute_in_f32("layernorm", |x| {
            let found = eps.element(x.dtype())?.to_float();
            if !found.is_some_and(|found| 0.0 <= found && found.is_finite()) {
                return invalid(format!(
                    "layernorm of shape {:?} with eps {eps:?}: it must be finite and not negative",
                    x.shape()
                ));
            }
            let difference = x.sub(&x.mean_kept(&axes)?)?;
            let square = difference.mul(&difference)?.mean_kept(&axes)?;
            difference.mul(&square.add(eps)?.rsqrt()?)
        })
    }

    /// The elements along an axis divided by their norm `(sum of |x|^p)^(1/p)`, or by `eps` if that
    /// is larger: for p 2 the norm is the square root of the sum of squares, for p 1 the sum of
    /// magnitudes. The derivative of elements that are all 0 is `1/eps`. f16 and bf16 are computed
    /// in f32. Floats. tinygrad's `p` is 2, its axis 1, its `eps` 1e-12.
    /// # Errors
    /// If the dtype is not a float, the axis does not exist, `p` is not positive, `eps` is
    /// negative, or one of them is not finite.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[3f32, -4.0, 0.0, 0.0])?;
    /// assert_eq!(x.normalize(2, 1, 1e-12)?.to_text()?, "[[0.6, -0.8], [0.0, 0.0]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn normalize(
        &self,
        p: impl Into<Scalar>,
        axis: i64,
        eps: impl Into<Scalar>,
    ) -> Result<Tensor, Error> {
        let axes = [resolve_axis("normalize", axis, self.shape())?];
        let (p, eps) = (p.into(), eps.into());
        self.compute_in_f32("normalize", |x| {
            let number = |scalar: Scalar| Ok::<_, Error>(scalar.element(x.dtype())?.to_float());
            let is_positive = number(p)?.is_some_and(|p| 0.0 < p && p.is_finite());
            let is_limit = number(eps)?.is_some_and(|eps| 0.0 <= eps && eps.is_finite());
            if !is_positive || !is_limit {
                return invalid(format!(
                    "normalize of shape {:?} with p {p:?} and eps {eps:?}: both must be finite, p \
                     positive and eps not negative",
                    x.shape()
                ));
            }
            let p = number(p)?.unwrap_or(2.0);
            let powers = match p {
                1.0 => x.abs()?,
                2.0 => x.square()?,
                _ => x.abs()?.pow(p)?,
            };
            let sum = powers.sum_kept(&axes)?;
            // The derivative of a root of 0 is infinite.
            let is_zero = sum.cmpeq(0)?;
            let sum = is_zero.where_(1, &sum)?;
            let norm = match p {
                1.0 => sum,
                2.0 => sum.sqrt()?,
                _ => sum.pow(p.recip())?,
            };
            x.div(&is_zero.where_(0, &norm)?.maximum(eps)?)
        })
    }

    /// Mean along distinct axes, which get size 1, of f32 or f64.
    fn mean_kept(&self, axes: &[usize]) -> Result<Tensor, Error> {
        self.sum_kept(axes)?.div(self.count(axes))
    }

    /// Variance along distinct axes, which get size 1, of f32 or f64.
    fn variance_kept(&self, axes: &[usize], correction: i64) -> Result<Tensor, Error> {
        let difference = self.sub(&self.mean_kept(axes)?)?;
        let degrees = (i128::from(self.count(axes)) - i128::from(correction)).max(0);
        difference.mul(&difference)?.sum_kept(axes)?.div(degrees)
    }

    /// Number of elements along axes.
    fn count(&self, axes: &[usize]) -> i64 {
        axes.iter().map(|axis| self.shape()[*axis]).product()
    }
}
