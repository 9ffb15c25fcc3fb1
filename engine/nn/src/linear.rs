//! The linear layer.

use gradiff_tensor::{Error, Tensor};

use crate::functional::{check_sizes, invalid, linear, uniform};
use crate::{Module, state};

/// A linear transformation: [.., in] gives [.., out].
///
/// ```
/// # use gradiff_nn::{Linear, Module};
/// # use gradiff_tensor::Tensor;
/// let layer = Linear::new(3, 4)?;
/// let x = Tensor::from_slice(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// assert_eq!(layer.forward(&x)?.shape(), [2, 4]);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Linear {
    /// The weight [out, in].
    pub weight: Tensor,
    /// The bias `[out]`.
    pub bias: Option<Tensor>,
}
state!(Linear { weight, bias });

impl Linear {
    /// Creates a layer with a bias. Weight and bias are uniform in `±1 / sqrt(in_features)`.
    /// # Errors
    /// If a number is not positive, or the weight would be too large.
    pub fn new(in_features: i64, out_features: i64) -> Result<Linear, Error> {
        let layer = Linear::without_bias(in_features, out_features)?;
        let bias = uniform(&[out_features], 1.0 / (in_features as f64).sqrt())?;
        Ok(Linear { bias: Some(bias), ..layer })
    }

    /// Creates a layer as [`new`](Linear::new) does, without a bias.
    ///
    /// ```
    /// # use gradiff_nn::Linear;
    /// assert!(Linear::without_bias(3, 4)?.bias.is_none());
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// As there.
    pub fn without_bias(in_features: i64, out_features: i64) -> Result<Linear, Error> {
        let sizes = [("in_features", in_features), ("out_features", out_features)];
        check_sizes("Linear", &sizes)?;
        let bound = 1.0 / (in_features as f64).sqrt();
        Ok(Linear { weight: uniform(&[out_features, in_features], bound)?, bias: None })
    }
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let features = self.weight.shape()[1];
        if x.shape().last() != Some(&features) {
            return invalid(format!(
                "Linear of {x:?}: the size of the last axis must be in_features, {features}"
            ));
        }
        linear(x, &self.weight, self.bias.as_ref())
    }
}
