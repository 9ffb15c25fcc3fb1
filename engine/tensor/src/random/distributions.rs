//! Random numbers of each distribution, composed as in tinygrad 0.10.2, so that the roundings are
//! the same. What is multiplied by a random number is computed into a buffer before a number is
//! added, since a kernel may contract both.

use std::f64::consts::{FRAC_PI_2, PI};

use gradiff_graph::{Constant, DType, Op, Placement};

use super::uniform::{check_float, fractions};
use crate::error::invalid;
use crate::{Error, Tensor, keepdim};

pub(super) fn rand(placement: &Placement, dtype: DType, shape: &[i64]) -> Result<Tensor, Error> {
    Ok(fractions("rand", placement, dtype, shape)?.contiguous())
}

/// The Box-Muller transform of pairs of uniform numbers, in f32.
pub(super) fn randn(placement: &Placement, dtype: DType, shape: &[i64]) -> Result<Tensor, Error> {
    check_float("randn", dtype)?;
    let pair_shape: Vec<i64> = [2].iter().chain(shape).copied().collect();
    let pairs = fractions("randn", placement, DType::F32, &pair_shape)?.contiguous();
    let half = |number: i64| {
        let mut ranges: Vec<(i64, i64)> = pair_shape.iter().map(|size| (0, *size)).collect();
        ranges[0] = (number, number + 1);
        pairs.shrink(&ranges)?.reshape(shape)
    };
    let number = |value: f64| Tensor::scalar(DType::F32, value);
    let angle = half(0)?.mul(2.0 * PI)?;
    let cosine = number(FRAC_PI_2)?.sub(&angle)?.sin()?;
    let radius = number(1.0)?.sub(&half(1)?)?.log()?.mul(-2)?.sqrt()?;
    cosine.mul(&radius)?.cast(dtype)
}

pub(super) fn randint(
    placement: &Placement,
    dtype: DType,
    shape: &[i64],
    low: i64,
    high: i64,
) -> Result<Tensor, Error> {
    let Some((min, max)) = dtype.int_range().filter(|_| dtype.is_int()) else {
        return invalid(format!("randint of {dtype}: it makes integers; for floats see uniform"));
    };
    let (first, end) = (i128::from(low), i128::from(high));
    if end <= first {
        return invalid(format!("randint from {low} to {high}: the range must not be empty"));
    }
    if first < min || max < end - 1 {
        return invalid(format!(
            "randint of {dtype} from {low} to {high}: numbers of {dtype} are {min} to {max}"
        ));
    }
    let span = end - first;
    let numbers = fractions("randint", placement, DType::F32, shape)?.mul(span as f64)?;
    // A type that has all numbers below the span; then modulo 2^bits, as the sum.
    let wide = match span {
        _ if span <= max => dtype,
        _ if span <= i128::from(u32::MAX) => DType::U32,
        _ => DType::U64,
    };
    numbers.contiguous().cast(wide)?.cast(dtype)?.add(low)
}

pub(super) fn randperm(placement: &Placement, dtype: DType, n: i64) -> Result<Tensor, Error> {
    let has_all = |range: (i128, i128)| i128::from(n) - 1 <= range.1;
    if !dtype.is_int() || !dtype.int_range().is_some_and(has_all) {
        return invalid(format!(
            "randperm of {n} numbers of {dtype}: integers below {n} do not fit"
        ));
    }
    rand(placement, DType::F32, &[n])?.argsort(0, false)?.cast(dtype)
}

pub(super) fn normal(
    placement: &Placement,
    dtype: DType,
    shape: &[i64],
    mean: f64,
    std: f64,
) -> Result<Tensor, Error> {
    check_float("normal", dtype)?;
    check_finite("normal", dtype, &[mean, std])?;
    if std < 0.0 {
        return invalid(format!("normal with standard deviation {std}: it must not be negative"));
    }
    randn(placement, dtype, shape)?.mul(std)?.add(mean)
}

pub(super) fn uniform(
    placement: &Placement,
    dtype: DType,
    shape: &[i64],
    low: f64,
    high: f64,
) -> Result<Tensor, Error> {
    Range { name: "uniform", low, high }.draw(placement, dtype, shape)
}

pub(super) fn scaled_uniform(
    placement: &Placement,
    dtype: DType,
    shape: &[i64],
) -> Result<Tensor, Error> {
    let range = Range { name: "scaled_uniform", low: -1.0, high: 1.0 };
    let numbers = range.draw(placement, dtype, shape)?;
    let elements = numbers.size_elements().max(1);
    numbers.mul((elements as f64).powf(-0.5))
}

pub(super) fn glorot_uniform(
    placement: &Placement,
    dtype: DType,
    shape: &[i64],
) -> Result<Tensor, Error> {
    let Some(outputs) = shape.first() else {
        return invalid("glorot_uniform of a scalar: the shape needs an axis");
    };
    let range = Range { name: "glorot_uniform", low: -1.0, high: 1.0 };
    let numbers = range.draw(placement, dtype, shape)?;
    let fans = (*outputs as f64 + inputs(shape)).max(1.0);
    numbers.mul((6.0 / fans).powf(0.5))
}

pub(super) fn kaiming_uniform(
    placement: &Placement,
    dtype: DType,
    shape: &[i64],
    a: f64,
) -> Result<Tensor, Error> {
    let name = "kaiming_uniform";
    let bound = 3f64.sqrt() * kaiming_gain(name, a)? / inputs(shape).max(1.0).sqrt();
    Range { name, low: -bound, high: bound }.draw(placement, dtype, shape)
}

pub(super) fn kaiming_normal(
    placement: &Placement,
    dtype: DType,
    shape: &[i64],
    a: f64,
) -> Result<Tensor, Error> {
    check_float("kaiming_normal", dtype)?;
    let gain = kaiming_gain("kaiming_normal", a)?;
    normal(placement, dtype, shape, 0.0, gain / inputs(shape).max(1.0).sqrt())
}

/// The range of uniform floats, and the function that they are for.
struct Range {
    name: &'static str,
    low: f64,
    high: f64,
}

impl Range {
    fn draw(&self, placement: &Placement, dtype: DType, shape: &[i64]) -> Result<Tensor, Error> {
        let Range { name, low, high } = *self;
        check_float(name, dtype)?;
        check_finite(name, dtype, &[low, high])?;
        if high <= low {
            return invalid(format!("{name} from {low} to {high}: the range must not be empty"));
        }
        // The span is a factor in f32 for every dtype.
        let span = high - low;
        check_finite(name, DType::F32, &[span])?;
        check_finite(name, dtype, &[span])?;
        let numbers = fractions(name, placement, DType::F32, shape)?.mul(span)?;
        numbers.contiguous().cast(dtype)?.add(low)
    }
}

/// The factor by which a leaky ReLU with this slope changes a standard deviation, inverted.
fn kaiming_gain(name: &str, a: f64) -> Result<f64, Error> {
    match (2.0 / (1.0 + a * a)).sqrt() {
        gain if gain > 0.0 => Ok(gain),
        _ => invalid(format!("{name} with a = {a}: its square must be a finite number")),
    }
}

/// The number of inputs of a weight of this shape: the product of all sizes but the first.
fn inputs(shape: &[i64]) -> f64 {
    shape.iter().skip(1).map(|size| *size as f64).product()
}

impl Tensor {
    /// Creates a tensor with the dtype, the shape and the device of `self`, filled with uniform
    /// numbers of [0, 1), as [`rand`](Tensor::rand). Floats.
    /// # Errors
    /// As [`rand`](Tensor::rand).
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1.0f32, 2.0])?.to("interp")?;
    /// Tensor::manual_seed(42);
    /// assert_eq!(x.rand_like()?.to_text()?, "[0.07992947, 0.8102931]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn rand_like(&self) -> Result<Tensor, Error> {
        rand(&placement_of(self), self.dtype(), self.shape())
    }

    /// Creates a tensor with the dtype, the shape and the device of `self`, filled with normal
    /// numbers, as [`randn`](Tensor::randn). Floats.
    /// # Errors
    /// As `randn`.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1.0f32, 2.0])?;
    /// assert_eq!(x.randn_like()?.shape(), [2]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn randn_like(&self) -> Result<Tensor, Error> {
        randn(&placement_of(self), self.dtype(), self.shape())
    }

    /// Draws numbers of categories, with probabilities in proportion to the weights in `self`: of
    /// shape `[categories]`, which gives `[num_samples]`, or `[rows, categories]`, which gives
    /// `[rows, num_samples]`; i32. The weights must not be negative, nor all zero, or the numbers
    /// mean nothing. The uniform numbers that it takes are drawn on the default device.
    /// # Errors
    /// If the rank is neither 1 nor 2, there are no categories or no samples, or there are several
    /// samples without replacement.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let weights = Tensor::from_slice(&[3], &[0, 5, 0])?;
    /// assert_eq!(weights.multinomial(4, true)?.to_text()?, "[1, 1, 1, 1]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn multinomial(&self, num_samples: i64, replacement: bool) -> Result<Tensor, Error> {
        let (rows, categories) = match *self.shape() {
            [categories] => (1, categories),
            [rows, categories] => (rows, categories),
            _ => {
                return invalid(format!(
                    "multinomial of shape {:?}: weights have one axis or two",
                    self.shape()
                ));
            }
        };
        if categories == 0 || num_samples < 1 {
            return invalid(format!(
                "multinomial of {num_samples} samples of {categories} categories: there must be \
                 at least 1 of both"
            ));
        }
        if num_samples != 1 && !replacement {
            return invalid(format!(
                "multinomial of {num_samples} samples: without replacement it draws a single one"
            ));
        }
        let bounds = cumulative(&self.reshape(&[rows, categories])?)?;
        let samples = rand(&Placement::Default, DType::F32, &[num_samples, rows, 1])?;
        let samples = match self.uop().device() {
            Some(_) => samples.to(self.device()?)?,
            None => samples,
        };
        let is_above = samples.combined(Op::CmpLt, &bounds)?.not()?;
        let numbers = is_above.sum(2)?.permute(&[1, 0])?;
        match self.rank() {
            1 => numbers.reshape(&[num_samples]),
            _ => Ok(numbers),
        }
    }
}

/// The device of a tensor; the default one for constants and counters.
pub(super) fn placement_of(tensor: &Tensor) -> Placement {
    tensor.uop().device().cloned().unwrap_or(Placement::Default)
}

/// Weights of categories are used as they are if the largest is between these numbers.
const WEIGHT_MIN: f64 = 1e-20;
const WEIGHT_MAX: f64 = 1e20;

/// The cumulative distribution of each row of weights, in f32.
fn cumulative(weights: &Tensor) -> Result<Tensor, Error> {
    let (rows, categories) = (weights.shape()[0], weights.shape()[1]);
    let weights = match weights.dtype() {
        DType::F64 => weights.clone(),
        // Sums of halves are soon too large for the weights to change them, those of integers wrap.
        _ => weights.cast(DType::F32)?,
    };
    // Sums of extreme weights, or their reciprocals, are not finite in f32.
    let largest = weights.max(keepdim(1))?;
    let is_moderate = largest.cmplt(WEIGHT_MIN)?.not()?.and(&largest.cmplt(WEIGHT_MAX)?)?;
    let weights = is_moderate.where_(&weights, &weights.div(&largest)?)?;
    let sums = weights.cumsum(1)?.cast(DType::F32)?;
    // Sums that are rounded in another order than the one before may be less than it, or more
    // though the weight is 0.
    let sums = weights.cmpeq(0)?.where_(0, &sums)?.cummax(1)?;
    let total = sums.shrink(&[(0, rows), (categories - 1, categories)])?;
    Ok(sums.mul(&total.recip()?)?.contiguous())
}

/// Refuses parameters that are not finite in a float dtype.
fn check_finite(name: &str, dtype: DType, parameters: &[f64]) -> Result<(), Error> {
    for value in parameters {
        let rounded = Constant::float(dtype, *value).to_float();
        if !rounded.is_some_and(f64::is_finite) {
            return invalid(format!("{name} with {value}: it must be finite in {dtype}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_do_not_fall_and_rise_at_weights_alone() -> Result<(), Error> {
        let weight = |number: u32| match number % 16 {
            0 => 0.0,
            _ => (number.wrapping_mul(2_654_435_761) >> 8) as f32,
        };
        let weights: Vec<f32> = (0..8192).map(weight).collect();
        let weights = Tensor::from_slice(&[1, 8192], &weights)?.to("jit")?;
        let bounds = cumulative(&weights)?.to_vec::<f32>()?;
        assert!(bounds.is_sorted());
        let risen = (16..8192).step_by(16).find(|at| bounds[at - 1] < bounds[*at]);
        assert_eq!((bounds[0], risen), (0.0, None));
        Ok(())
    }
}
