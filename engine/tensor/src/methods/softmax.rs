//! Powers of e along axes: softmax and its kin, and logarithms of their sums.

use super::cumulative::MAX_SINGLE;
use crate::axes::resolve_axis;
use crate::{Axes, Error, Scalar, Tensor};

/// The exponent of a power that counts nothing.
const NOTHING: Scalar = Scalar::Float(f64::NEG_INFINITY);

impl Tensor {
    /// `e^x` divided by its sum along `axis`, with one division per row; f16 and bf16 are computed
    /// in f32. NaN where the largest element is infinite. Floats. Elements far below the largest of
    /// their row become 0, with the logarithm -inf; [`log_softmax`](Tensor::log_softmax) is finite
    /// there.
    /// # Errors
    /// If the dtype is not a float, or the axis does not exist.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1000f32, 1000.0])?;
    /// assert_eq!(x.softmax(0)?.to_text()?, "[0.5, 0.5]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn softmax(&self, axis: i64) -> Result<Tensor, Error> {
        let axis = resolve_axis("softmax", axis, self.shape())?;
        self.compute_in_f32("softmax", |x| x.softmax_along(axis))
    }

    /// [`softmax`](Tensor::softmax) of `-x`. Floats.
    /// # Errors
    /// If the dtype is not a float, or the axis does not exist.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[0f32, 1000.0])?;
    /// assert_eq!(x.softmin(0)?.to_text()?, "[1.0, 0.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn softmin(&self, axis: i64) -> Result<Tensor, Error> {
        let axis = resolve_axis("softmin", axis, self.shape())?;
        self.compute_in_f32("softmin", |x| x.neg()?.softmax_along(axis))
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
    pub fn log_softmax(&self, axis: i64) -> Result<Tensor, Error> {
        let axis = resolve_axis("log_softmax", axis, self.shape())?;
        self.compute_in_f32("log_softmax", |x| {
            let shifted = x.sub(x.max_kept(&[axis]).detach())?;
            shifted.sub(&shifted.exp()?.sum_kept(&[axis])?.log()?)
        })
    }

    /// `log(sum of e^x)` along `axes`, as if elements were counted from the largest, so that no
    /// power overflows; -inf if there is no element but -inf, inf if one is inf. f16 and bf16 are
    /// computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float, or an axis does not exist or appears twice.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[0f32, 1000.0, f32::NEG_INFINITY, f32::NEG_INFINITY])?;
    /// assert_eq!(x.logsumexp(-1)?.to_text()?, "[1000.0, -inf]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn logsumexp(&self, axes: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("logsumexp", axes.into(), |x, axes| {
            x.compute_in_f32("logsumexp", |x| x.log_of_powers(axes))
        })
    }

    /// [`logsumexp`](Tensor::logsumexp) of the elements up to each position along `axis`. Floats.
    /// # Errors
    /// If the dtype is not a float, or the axis does not exist.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[f32::NEG_INFINITY, 1.0, 1000.0])?;
    /// assert_eq!(x.logcumsumexp(0)?.to_text()?, "[-inf, 1.0, 1000.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn logcumsumexp(&self, axis: i64) -> Result<Tensor, Error> {
        let axis = resolve_axis("logcumsumexp", axis, self.shape())?;
        self.compute_in_f32("logcumsumexp", |x| {
            if x.size_elements() == 0 {
                return Ok(x.unchanged());
            }
            if x.shape()[axis] <= MAX_SINGLE {
                let so_far = x.so_far(axis, NOTHING)?;
                return so_far.log_of_powers(&[axis + 1])?.reshape(x.shape());
            }
            let [largest, sum] = x.running_powers(None, axis)?;
            sum.log()?.add(&largest.or_zero()?)
        })
    }

    /// The largest element up to each position along `axis`, and the sum of the powers of the
    /// differences from it, or from 0 if it is not finite. Each power counts as often as its
    /// weight says.
    fn running_powers(&self, weights: Option<&Tensor>, axis: usize) -> Result<[Tensor; 2], Error> {
        let size = self.shape()[axis];
        if size <= MAX_SINGLE {
            return self.powers_so_far(weights, axis);
        }
        let blocks = self.in_blocks(axis, NOTHING)?;
        let weights = weights.map(|x| x.in_blocks(axis, Scalar::Int(0))).transpose()?;
        let [largest, sum] = blocks.powers_so_far(weights.as_ref(), axis + 1)?;
        // Those of whole blocks come before the next block.
        let totals = sum.last_of_blocks(axis)?;
        let [before, sum_before] =
            largest.last_of_blocks(axis)?.running_powers(Some(&totals), axis)?;
        let before = before.delayed(axis, NOTHING)?;
        let sum_before = sum_before.delayed(axis, Scalar::Int(0))?;
        let whole = largest.maximum(&before)?.detach();
        let origin = whole.or_zero()?;
        let scaled = |sum: &Tensor, x: &Tensor| sum.mul(&x.below_infinity()?.sub(&origin)?.exp()?);
        let sum = scaled(&sum, &largest)?.add(&scaled(&sum_before, &before)?)?;
        Ok([whole.out_of_blocks(axis, size)?, sum.out_of_blocks(axis, size)?])
    }

    /// [`running_powers`](Tensor::running_powers) by a reduction for each position.
    fn powers_so_far(&self, weights: Option<&Tensor>, axis: usize) -> Result<[Tensor; 2], Error> {
        let so_far = self.so_far(axis, NOTHING)?;
        let largest = so_far.max_kept(&[axis + 1]).detach();
        let origin = largest.or_zero()?;
        let powers = match weights {
            Some(weights) => {
                let powers = so_far.below_infinity()?.sub(&origin)?.exp()?;
                powers.mul(&weights.so_far(axis, Scalar::Int(0))?)?
            }
            None => so_far.sub(&origin)?.exp()?,
        };
        let sum = powers.sum_kept(&[axis + 1])?;
        Ok([largest.reshape(self.shape())?, sum.reshape(self.shape())?])
    }

    /// The elements below infinity, and 0 in place of infinity, from which no sum is counted.
    fn below_infinity(&self) -> Result<Tensor, Error> {
        self.cmpeq(f64::INFINITY)?.where_(0, self)
    }

    /// The elements that are finite, and 0 in place of the others.
    fn or_zero(&self) -> Result<Tensor, Error> {
        self.isfinite()?.where_(self, 0)
    }

    /// The shares of f32 or f64.
    fn softmax_along(&self, axis: usize) -> Result<Tensor, Error> {
        let weights = self.sub(self.max_kept(&[axis]).detach())?.exp()?;
        weights.mul(&weights.sum_kept(&[axis])?.recip()?)
    }

    /// The logarithm of the sum of powers of f32 or f64 along axes, which get size 1.
    fn log_of_powers(&self, axes: &[usize]) -> Result<Tensor, Error> {
        // Differences from an infinity would be NaN; powers of what is below it are 0, as its own
        // is, or no larger than its own.
        let largest = self.max_kept(axes);
        let largest = largest.isfinite()?.where_(&largest, 0)?.detach();
        self.sub(&largest)?.exp()?.sum_kept(axes)?.log()?.add(&largest)
    }
}
