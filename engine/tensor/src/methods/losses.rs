//! Losses of samples, and their reduction to one.

use crate::error::invalid;
use crate::methods::elementwise::wide;
use crate::{Error, Operand, Tensor};

/// The reduction of the losses of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// None: a loss for each sample.
    None,
    /// The sum of the losses.
    Sum,
    /// The mean of the losses.
    #[default]
    Mean,
}

impl Reduction {
    fn of(self, losses: &Tensor) -> Result<Tensor, Error> {
        match self {
            Reduction::None => Ok(losses.clone()),
            Reduction::Sum => losses.sum(..),
            Reduction::Mean => losses.mean(..),
        }
    }
}

impl Tensor {
    /// Cross entropy of logits, whose classes are along axis 1 (0 of a vector), and a target: the
    /// class of each sample, integers, or the probability of each class, in shape and dtype of the
    /// logits. The negative sum of the logarithms of [`softmax`](Tensor::softmax) times
    /// `1 - label_smoothing` times the probabilities plus `label_smoothing / classes`. A class out
    /// of range has the probability 0. f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float, the target does not fit, or the smoothing is not 0 to 1.
    ///
    /// ```
    /// # use gradiff_tensor::{Reduction, Tensor};
    /// let x = Tensor::from_slice(&[2, 2], &[0f32, 1000.0, 0.0, 0.0])?;
    /// let class = Tensor::from_slice(&[2], &[0, 1])?;
    /// let loss = x.cross_entropy(&class, 0.0, Reduction::None)?;
    /// assert_eq!(loss.to_text()?, "[1000.0, 0.6931472]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn cross_entropy(
        &self,
        target: &Tensor,
        label_smoothing: f64,
        reduction: Reduction,
    ) -> Result<Tensor, Error> {
        let axis = usize::from(self.rank() > 1);
        let samples = self.samples("cross_entropy", axis, label_smoothing)?;
        let is_fit = match target.dtype().is_int() {
            true => target.shape() == samples,
            false => target.dtype() == self.dtype() && target.shape() == self.shape(),
        };
        if !is_fit {
            return invalid(format!(
                "cross_entropy of {self:?} with the target {target:?}: classes are along axis \
                 {axis}, so the target must be integers {samples:?} or {}{:?}",
                self.dtype(),
                self.shape()
            ));
        }
        let dtype = self.dtype();
        let logs = self.cast(wide(dtype))?.log_softmax(axis as i64)?;
        let losses = match target.dtype().is_int() {
            true => logs.losses_of_classes(target, axis, label_smoothing)?,
            false => {
                let each = label_smoothing / self.shape()[axis] as f64;
                let weights = target.cast(wide(dtype))?.mul(1.0 - label_smoothing)?.add(each)?;
                logs.mul(&weights)?.sum(axis as i64)?.neg()?
            }
        };
        reduction.of(&losses)?.cast(dtype)
    }

    /// [`cross_entropy`](Tensor::cross_entropy) of the class of each sample, along the last axis.
    /// Samples of the class `ignore_index`, unless it is -1, have the loss 0 and do not count in
    /// the mean. Floats.
    /// # Errors
    /// As [`cross_entropy`](Tensor::cross_entropy).
    ///
    /// ```
    /// # use gradiff_tensor::{Reduction, Tensor};
    /// let x = Tensor::from_slice(&[2, 2], &[0f32, 1000.0, 0.0, 0.0])?;
    /// let class = Tensor::from_slice(&[2], &[0, 1])?;
    /// let loss = x.sparse_categorical_crossentropy(&class, 1, 0.0, Reduction::Mean)?;
    /// assert_eq!(loss.to_text()?, "1000.0");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn sparse_categorical_crossentropy(
        &self,
        classes: &Tensor,
        ignore_index: i64,
        label_smoothing: f64,
        reduction: Reduction,
    ) -> Result<Tensor, Error> {
        const NAME: &str = "sparse_categorical_crossentropy";
        let axis = self.rank().saturating_sub(1);
        let samples = self.samples(NAME, axis, label_smoothing)?;
        if !classes.dtype().is_int() || classes.shape() != samples {
            return invalid(format!(
                "{NAME} of {self:?} with the classes {classes:?}: the last axis has the classes, \
                 so those of the samples must be integers {samples:?}"
            ));
        }
        let dtype = self.dtype();
        let logs = self.cast(wide(dtype))?.log_softmax(axis as i64)?;
        let losses = logs.losses_of_classes(classes, axis, label_smoothing)?;
        let found = match ignore_index {
            -1 => reduction.of(&losses)?,
            _ => {
                let is_ignored = is_class(classes, ignore_index)?;
                let losses = losses.masked_fill(&is_ignored, 0)?;
                match reduction {
                    Reduction::None => losses,
                    Reduction::Sum => losses.sum(..)?,
                    Reduction::Mean => {
                        let count = is_ignored.not()?.cast(wide(dtype))?.sum(..)?;
                        losses.sum(..)?.div(&count)?
                    }
                }
            }
        };
        found.cast(dtype)
    }

    /// Negative log likelihood: the negative element of the class of each sample, along axis 1,
    /// times the weight of the class; 0 for a class out of range, and for `ignore_index`. The mean
    /// is the sum divided by that of the weights of the samples. f16 and bf16 are computed in f32.
    /// Floats.
    /// # Errors
    /// If the dtype is not a float, there is no axis 1, or the classes or weights do not fit.
    ///
    /// ```
    /// # use gradiff_tensor::{Reduction, Tensor};
    /// let x = Tensor::from_slice(&[2, 2], &[-1f32, -2.0, -3.0, -4.0])?;
    /// let class = Tensor::from_slice(&[2], &[0, 1])?;
    /// let weight = Tensor::from_slice(&[2], &[3f32, 1.0])?;
    /// let loss = x.nll_loss(&class, &weight, None, Reduction::Mean)?;
    /// assert_eq!(loss.to_text()?, "1.75");
    /// let loss = x.nll_loss(&class, None, Some(0), Reduction::Mean)?;
    /// assert_eq!(loss.to_text()?, "4.0");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn nll_loss<'a>(
        &self,
        classes: &Tensor,
        weight: impl Into<Option<&'a Tensor>>,
        ignore_index: Option<i64>,
        reduction: Reduction,
    ) -> Result<Tensor, Error> {
        let samples = self.samples("nll_loss", 1, 0.0)?;
        let dtype = self.dtype();
        let weight = match weight.into() {
            Some(weight) => weight.clone(),
            None => Tensor::ones(dtype, &self.shape()[1..2])?,
        };
        if !classes.dtype().is_int()
            || classes.shape() != samples
            || weight.dtype() != dtype
            || weight.shape() != &self.shape()[1..2]
        {
            return invalid(format!(
                "nll_loss of {self:?} with the classes {classes:?} and the weights {weight:?}: \
                 axis 1 has the classes, so those of the samples must be integers {samples:?}, and \
                 the weights {dtype}{:?}",
                &self.shape()[1..2]
            ));
        }
        let found = self.gather(1, &classes.unsqueeze(1)?)?.squeeze(1)?.cast(wide(dtype))?;
        let flat = classes.reshape(&[classes.size_elements()])?;
        let mut weights = weight.index_select(&flat, 0)?.reshape(&samples)?.cast(wide(dtype))?;
        let is_ignored = ignore_index.map(|ignored| is_class(classes, ignored)).transpose()?;
        if let Some(is_ignored) = &is_ignored {
            weights = weights.masked_fill(is_ignored, 0)?;
        }
        let mut losses = found.mul(&weights)?.neg()?;
        if let Some(is_ignored) = &is_ignored {
            // A product with 0 has the derivative 0 / 0 where all are ignored.
            losses = losses.masked_fill(is_ignored, 0)?;
        }
        let found = match reduction {
            Reduction::Mean => losses.sum(..)?.div(&weights.sum(..)?)?,
            _ => reduction.of(&losses)?,
        };
        found.cast(dtype)
    }

    /// Binary cross entropy of probabilities x and a target y: `-y * log(x) - (1 - y) * log(1 -
    /// x)`; NaN where a factor of 0 meets an infinite logarithm. f16 and bf16 are computed in f32.
    /// Floats, promoted and broadcast.
    /// # Errors
    /// If a dtype is not a float, or shapes do not broadcast.
    ///
    /// ```
    /// # use gradiff_tensor::{Reduction, Tensor};
    /// let x = Tensor::from_slice(&[2], &[0.5f32, 0.25])?;
    /// let loss = x.binary_crossentropy(1.0, Reduction::None)?;
    /// assert_eq!(loss.to_text()?, "[0.6931472, 1.3862944]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn binary_crossentropy(
        &self,
        target: impl Into<Operand>,
        reduction: Reduction,
    ) -> Result<Tensor, Error> {
        let (x, y) = self.float_pair("binary_crossentropy", target)?;
        let dtype = x.dtype();
        let (x, y) = (x.cast(wide(dtype))?, y.cast(wide(dtype))?);
        let unit = Tensor::ones(x.dtype(), &[])?;
        let rest = unit.sub(&y)?.mul(&unit.sub(&x)?.log()?)?;
        reduction.of(&y.neg()?.mul(&x.log()?)?.sub(&rest)?)?.cast(dtype)
    }

    /// [`binary_crossentropy`](Tensor::binary_crossentropy) of `sigmoid(x)`:
    /// `max(x, 0) - y * x + log(1 + e^-|x|)`, which no logit makes infinite. Floats, promoted and
    /// broadcast.
    /// # Errors
    /// If a dtype is not a float, or shapes do not broadcast.
    ///
    /// ```
    /// # use gradiff_tensor::{Reduction, Tensor};
    /// let x = Tensor::from_slice(&[2], &[0f32, -1000.0])?;
    /// let loss = x.binary_crossentropy_logits(1.0, Reduction::None)?;
    /// assert_eq!(loss.to_text()?, "[0.6931472, 1000.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn binary_crossentropy_logits(
        &self,
        target: impl Into<Operand>,
        reduction: Reduction,
    ) -> Result<Tensor, Error> {
        const NAME: &str = "binary_crossentropy_logits";
        let (x, y) = self.float_pair(NAME, target)?;
        let dtype = x.dtype();
        let (x, y) = (x.cast(wide(dtype))?, y.cast(wide(dtype))?);
        let log = x.abs()?.neg()?.exp()?.log_of_one_and()?;
        let losses = x.maximum(0)?.sub(&y.mul(&x)?)?.add(&log)?;
        reduction.of(&losses.as_elementwise_function(NAME, [&x, &y]))?.cast(dtype)
    }

    /// The losses of samples of these classes, given the logarithms of the shares of all along an
    /// axis.
    fn losses_of_classes(
        &self,
        classes: &Tensor,
        axis: usize,
        label_smoothing: f64,
    ) -> Result<Tensor, Error> {
        let axis = axis as i64;
        let loss = self.gather(axis, &classes.unsqueeze(axis)?)?.squeeze(axis)?.neg()?;
        if label_smoothing == 0.0 {
            return Ok(loss);
        }
        let count = self.shape()[axis as usize] as f64;
        let smooth = self.sum(axis)?.mul(label_smoothing / count)?;
        loss.mul(1.0 - label_smoothing)?.sub(&smooth)
    }

    /// The shape of the samples, whose classes are along an axis, of floats.
    fn samples(&self, name: &str, axis: usize, label_smoothing: f64) -> Result<Vec<i64>, Error> {
        if !self.dtype().is_float() || self.rank() <= axis {
            return invalid(format!("{name} of {self:?}: it takes floats with an axis {axis}"));
        }
        if !(0.0..=1.0).contains(&label_smoothing) {
            return invalid(format!("{name} with a smoothing of {label_smoothing}: it is 0 to 1"));
        }
        let mut shape = self.shape().to_vec();
        shape.remove(axis);
        Ok(shape)
    }
}

/// Returns whether each element is a class, which the dtype may not represent.
fn is_class(classes: &Tensor, class: i64) -> Result<Tensor, Error> {
    let is_known = classes
        .dtype()
        .int_range()
        .is_some_and(|(low, high)| (low..=high).contains(&i128::from(class)));
    match is_known {
        true => classes.cmpeq(class),
        false => Tensor::full(gradiff_graph::DType::Bool, classes.shape(), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradiff_graph::DType;

    #[test]
    fn errors_say_which_targets_fit() -> Result<(), Error> {
        let x = Tensor::zeros(DType::F32, &[2, 3, 5])?;
        let classes = Tensor::zeros(DType::I32, &[2, 3])?;
        let error = |found: Result<Tensor, Error>| found.expect_err("no fit").to_string();
        let found = error(x.cross_entropy(&classes, 0.0, Reduction::Mean));
        assert!(found.ends_with("must be integers [2, 5] or f32[2, 3, 5]"), "{found}");
        assert!(found.contains("classes are along axis 1"), "{found}");
        let row = x.reshape(&[30])?;
        let found = error(row.cross_entropy(&classes, 0.0, Reduction::Mean));
        assert!(found.contains("axis 0, so the target must be integers [] or f32[30]"), "{found}");
        let found = error(x.nll_loss(&classes, None, None, Reduction::Mean));
        assert!(found.ends_with("must be integers [2, 5], and the weights f32[3]"), "{found}");
        let moved = classes.permute(&[1, 0])?;
        let found = error(x.sparse_categorical_crossentropy(&moved, -1, 0.0, Reduction::Mean));
        assert!(found.ends_with("must be integers [2, 3]"), "{found}");
        Ok(())
    }
}
