//! Activation functions.

use crate::error::invalid;
use crate::{Error, Scalar, Tensor};

impl Tensor {
    /// `min(max(x, 0), 6)`; NaN for NaN. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[-1f32, 2.5, 7.0])?;
    /// assert_eq!(x.relu6()?.to_text()?, "[0.0, 2.5, 6.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn relu6(&self) -> Result<Tensor, Error> {
        check_float("relu6", self)?;
        Ok(self.maximum(0)?.minimum(6)?.as_function("relu6", &[self]))
    }

    /// `min(max(x, min), max)`, as [`clamp`](Tensor::clamp). Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[-2f32, 0.5, 2.0])?;
    /// assert_eq!(x.hardtanh(-1, 1)?.to_text()?, "[-1.0, 0.5, 1.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn hardtanh(
        &self,
        min: impl Into<Scalar>,
        max: impl Into<Scalar>,
    ) -> Result<Tensor, Error> {
        check_float("hardtanh", self)?;
        let [min, max] = [min.into(), max.into()].map(|bound| Tensor::scalar(self.dtype(), bound));
        let (min, max) = (min?, max?);
        let value = self.maximum(&min)?.minimum(&max)?;
        Ok(value.as_function("hardtanh", &[self, &min, &max]))
    }

    /// `slope * x` for x below 0, else x. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[-2f32, 3.0])?;
    /// assert_eq!(x.leaky_relu(0.25)?.to_text()?, "[-0.5, 3.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn leaky_relu(&self, slope: impl Into<Scalar>) -> Result<Tensor, Error> {
        check_float("leaky_relu", self)?;
        let slope = Tensor::scalar(self.dtype(), slope)?;
        let value = self.cmplt(0)?.where_(&self.mul(&slope)?, self)?;
        Ok(value.as_function("leaky_relu", &[self, &slope]))
    }

    /// `min(max(x + 3, 0), 6) / 6`, within 2 ulps; f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[-4f32, 0.0, 5.0])?;
    /// assert_eq!(x.hardsigmoid()?.to_text()?, "[0.0, 0.5, 1.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn hardsigmoid(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("hardsigmoid", |x| x.add(3)?.clamp(0, 6)?.div(6))
    }

    /// `x * hardsigmoid(x)`, within 3 ulps; f16 and bf16 are computed in f32. NaN for -inf. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[-4f32, 0.0, 5.0])?;
    /// assert_eq!(x.hardswish()?.to_vec::<f32>()?, [0.0, 0.0, 5.0]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn hardswish(&self) -> Result<Tensor, Error> {
        // The product comes last, so that it overflows only where the result does.
        self.compute_in_f32("hardswish", |x| x.mul(&x.hardsigmoid()?))
    }

    /// `x / (1 + |x|)`, within 2 ulps; f16 and bf16 are computed in f32. NaN for infinities.
    /// Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[-1f32, 3.0])?;
    /// assert_eq!(x.softsign()?.to_text()?, "[-0.5, 0.75]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn softsign(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("softsign", |x| x.div(&x.abs()?.add(1)?))
    }

    /// `x * sigmoid(x)`, within 4 ulps and the smallest subnormal number times x; f16 and bf16 are
    /// computed in f32. NaN for -inf. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[0f32, 1e4, 1e30])?;
    /// assert_eq!(x.silu()?.to_vec::<f32>()?, [0.0, 1e4, 1e30]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn silu(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("silu", |x| x.mul(&x.logistic()?))
    }

    /// `x * sigmoid(1.702 * x)`, as [`silu`](Tensor::silu) with 3 roundings of the product. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[0f32, 1e4])?;
    /// assert_eq!(x.quick_gelu()?.to_vec::<f32>()?, [0.0, 1e4]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn quick_gelu(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("quick_gelu", |x| x.mul(&x.mul(1.702)?.logistic()?))
    }

    /// `x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2`, tinygrad's approximation of x times
    /// the normal distribution, within 4 ulps of itself and what 6 roundings of the argument of
    /// tanh make; f16 and bf16 are computed in f32. NaN for -inf. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[0f32, 1e30])?;
    /// assert_eq!(x.gelu()?.to_vec::<f32>()?, [0.0, 1e30]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn gelu(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("gelu", |x| {
            // (1 + tanh(u))/2 is the sigmoid of 2u, which keeps its digits where it is small.
            x.mul(&gelu_argument(x)?.logistic()?)
        })
    }

    /// `x * tanh(log(1 + e^x))`, within 5 ulps and two of the smallest subnormal number times x;
    /// f16 and bf16 are computed in f32. NaN for -inf. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[0f32, 1e30])?;
    /// assert_eq!(x.mish()?.to_vec::<f32>()?, [0.0, 1e30]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn mish(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("mish", |x| {
            // With n = e^x the factor is n(n + 2) / (n(n + 2) + 2). For x above 0 it is taken from
            // m = 1/n, (1 + 2m) / (1 + 2m + 2m^2), so that no power overflows.
            let power = x.abs()?.neg()?.exp()?;
            let is_negative = x.cmplt(0)?;
            let below = power.mul(&power.add(2)?)?;
            let above = power.mul(2)?.add(1)?;
            let two = Tensor::full(x.dtype(), &[], 2)?;
            let rest = is_negative.where_(&two, &power.mul(&power)?.mul(2)?)?;
            let over = is_negative.where_(&below, &above)?;
            x.mul(&over.div(&over.add(&rest)?)?)
        })
    }

    /// `log(1 + e^(beta * x)) / beta`, the logarithm within 4 ulps; f16 and bf16 are computed in
    /// f32. Floats.
    /// # Errors
    /// If the dtype is not a float, or `beta` is not finite and above 0.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1e4f32, -1e4])?;
    /// assert_eq!(x.softplus(1)?.to_text()?, "[10000.0, 0.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn softplus(&self, beta: impl Into<Scalar>) -> Result<Tensor, Error> {
        let beta = self.activation_parameter("softplus", beta.into(), true)?;
        self.compute_in_f32("softplus", |x| {
            let value = x.mul(beta)?.log_of_one_and_power()?.div(beta)?;
            Ok(value.as_function("softplus", &[x, &Tensor::scalar(x.dtype(), beta)?]))
        })
    }

    /// `log(sigmoid(x))`, within 4 ulps; f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[-1e4f32, f32::NEG_INFINITY])?;
    /// assert_eq!(x.logsigmoid()?.to_text()?, "[-10000.0, -inf]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn logsigmoid(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("logsigmoid", |x| x.neg()?.log_of_one_and_power()?.neg())
    }

    /// `alpha * (e^x - 1)` for x below 0, else x; f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[-1e4f32, 2.0])?;
    /// assert_eq!(x.elu(0.5)?.to_text()?, "[-0.5, 2.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn elu(&self, alpha: impl Into<Scalar>) -> Result<Tensor, Error> {
        let alpha = self.activation_parameter("elu", alpha.into(), false)?;
        self.compute_in_f32("elu", |x| {
            let value = x.cmplt(0)?.where_(&x.power_less_one()?.mul(alpha)?, x)?;
            Ok(value.as_function("elu", &[x, &Tensor::scalar(x.dtype(), alpha)?]))
        })
    }

    /// `alpha * (e^(x / alpha) - 1)` for x below 0, else x; f16 and bf16 are computed in f32.
    /// Floats.
    /// # Errors
    /// If the dtype is not a float, or `alpha` is not finite and above 0.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[-1e4f32, 2.0])?;
    /// assert_eq!(x.celu(0.5)?.to_text()?, "[-0.5, 2.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn celu(&self, alpha: impl Into<Scalar>) -> Result<Tensor, Error> {
        let alpha = self.activation_parameter("celu", alpha.into(), true)?;
        self.compute_in_f32("celu", |x| {
            let value = x.cmplt(0)?.where_(&x.div(alpha)?.power_less_one()?.mul(alpha)?, x)?;
            Ok(value.as_function("celu", &[x, &Tensor::scalar(x.dtype(), alpha)?]))
        })
    }

    /// 1.0507 times [`elu`](Tensor::elu) with the alpha 1.67326, the numbers of tinygrad; f16 and
    /// bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[0f32, 2.0])?;
    /// assert_eq!(x.selu()?.to_text()?, "[0.0, 2.1014]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn selu(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("selu", |x| {
            x.cmplt(0)?.where_(&x.power_less_one()?.mul(1.67326)?, x)?.mul(1.0507)
        })
    }

    /// `1 / (1 + e^-x)` of f32 or f64, accurate also where it is subnormal.
    pub(crate) fn logistic(&self) -> Result<Tensor, Error> {
        let power = self.abs()?.neg()?.exp()?;
        let value = self.cmplt(0)?.where_(&power, 1)?.div(&power.add(1)?)?;
        Ok(value.as_unary_function("logistic", self))
    }

    /// `log(1 + e^x)` of f32 or f64.
    fn log_of_one_and_power(&self) -> Result<Tensor, Error> {
        self.maximum(0)?.add(&self.abs()?.neg()?.exp()?.log_of_one_and()?)
    }

    /// The parameter of a method, rounded to the dtype; `is_positive` if it must be finite and
    /// above 0.
    fn activation_parameter(
        &self,
        name: &str,
        value: Scalar,
        is_positive: bool,
    ) -> Result<f64, Error> {
        check_float(name, self)?;
        match value.element(self.dtype())?.to_float() {
            Some(found) if !is_positive || (0.0 < found && found.is_finite()) => Ok(found),
            _ => invalid(format!(
                "{name} of {} with {value:?}: the number must be finite and above 0",
                self.dtype()
            )),
        }
    }
}

/// The factor by which the argument of the gate of [`Tensor::gelu`] exceeds x near 0.
const GELU_SCALE: f64 = 2.0 * 0.797_884_560_802_865_4;
/// The factor of the cube in that argument, over the scale.
const GELU_CUBE: f64 = 0.044715;

/// The argument of the sigmoid that is the gate of [`Tensor::gelu`].
pub(crate) fn gelu_argument(x: &Tensor) -> Result<Tensor, Error> {
    x.mul(x)?.mul(GELU_SCALE * GELU_CUBE)?.add(GELU_SCALE)?.mul(x)
}

/// The derivative of [`gelu_argument`].
pub(crate) fn gelu_slope(x: &Tensor) -> Result<Tensor, Error> {
    x.mul(x)?.mul(3.0 * GELU_SCALE * GELU_CUBE)?.add(GELU_SCALE)
}

fn check_float(name: &str, x: &Tensor) -> Result<(), Error> {
    match x.dtype() {
        dtype if dtype.is_float() => Ok(()),
        dtype => invalid(format!("{name} of {dtype}: it takes floats; cast the tensor first")),
    }
}
