//! Adaptive moments: Adam, AdamW and LAMB, after tinygrad, which has them in one class.

use gradiff_graph::DType;
use gradiff_tensor::{Error, Tensor};

use super::optimizer::{Optimizer, Parameters, assign, delegate, norm, trust, zeros_beside};
use crate::functional::{check_options, invalid};
use crate::{State, Visitor};

/// Adam: `m = b1 * m + (1 - b1) * g`, `v = b2 * v + (1 - b2) * g^2`; at step t the parameter
/// becomes `parameter - lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)`. All of it is computed
/// in f32 for parameters of 16 bits. The powers b1^t and b2^t are in f64 if a parameter is, and
/// otherwise in f32.
///
/// Source: Kingma, Ba: Adam, a method for stochastic optimization, 2014.
///
/// ```
/// # use gradiff_nn::optim::{Adam, Optimizer};
/// # use gradiff_tensor::Tensor;
/// # let _training = Tensor::train(true);
/// let x = Tensor::from_slice(&[2], &[1.0f32, -2.0])?;
/// let mut optimizer = Adam::new([x.clone()], 0.5)?;
/// x.square()?.sum(0)?.backward()?;
/// optimizer.step()?;
/// let found = x.to_vec::<f32>()?;
/// assert!((found[0] - 0.5).abs() < 1e-5 && (found[1] + 1.5).abs() < 1e-5);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
pub struct Adam(Moments);

/// Adam with decoupled weight decay: `weight_decay * parameter` is added to the update of [`Adam`]
/// before it is multiplied by the learning rate.
///
/// Source: Loshchilov, Hutter: Decoupled weight decay regularization, 2017.
///
/// ```
/// # use gradiff_nn::optim::{AdamW, Optimizer};
/// # use gradiff_tensor::Tensor;
/// # let _training = Tensor::train(true);
/// let x = Tensor::from_slice(&[1], &[2.0f32])?;
/// let mut optimizer = AdamW::new([x.clone()], 0.5)?.weight_decay(0.5);
/// x.square()?.sum(0)?.backward()?;
/// optimizer.step()?;
/// assert!((x.to_vec::<f32>()?[0] - 1.0).abs() < 1e-5);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
pub struct AdamW(Moments);

/// Layer-wise adaptive moments: the update u of [`AdamW`] is multiplied by the ratio of the norms
/// of the parameter and of u, or by 1 if either is 0.
///
/// Source: You and others: Large batch optimization for deep learning, 2019.
///
/// ```
/// # use gradiff_nn::optim::{LAMB, Optimizer};
/// # use gradiff_tensor::Tensor;
/// # let _training = Tensor::train(true);
/// let x = Tensor::from_slice(&[1], &[2.0f32])?;
/// let mut optimizer = LAMB::new([x.clone()], 0.5)?;
/// x.square()?.sum(0)?.backward()?;
/// optimizer.step()?;
/// assert!((x.to_vec::<f32>()?[0] - 1.0).abs() < 1e-5);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
pub struct LAMB(Moments);

/// Adaptive moments with all the options.
struct Moments {
    parameters: Parameters,
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
    has_trust: bool,
    /// The power of the first number of `betas` to the number of steps, [1].
    b1_t: Tensor,
    /// The power of the second number.
    b2_t: Tensor,
    m: Vec<Tensor>,
    v: Vec<Tensor>,
}

impl Moments {
    fn new(tensors: impl IntoIterator<Item = Tensor>, lr: f64) -> Result<Moments, Error> {
        let parameters = Parameters::new(tensors, lr)?;
        let zeros = || {
            let zeros = |tensor: &Tensor| zeros_beside(tensor, tensor.dtype().accumulator());
            parameters.trained.iter().map(zeros).collect::<Result<Vec<_>, _>>()
        };
        let (m, v) = (zeros()?, zeros()?);
        // A device of f32 parameters alone needs no f64.
        let wide = parameters.trained.iter().find(|tensor| tensor.dtype() == DType::F64);
        let widest = wide.unwrap_or(&parameters.trained[0]);
        let (b1_t, b2_t) = (power_zero(widest)?, power_zero(widest)?);
        let betas = [0.9, 0.999];
        let (eps, weight_decay, has_trust) = (1e-8, 0.0, false);
        Ok(Moments { parameters, betas, eps, weight_decay, has_trust, b1_t, b2_t, m, v })
    }

    /// Sets the decays, which must be below 1 in each dtype that they are used in: otherwise the
    /// bias `1 - b^t` is 0.
    fn with_betas(self, betas: [f64; 2]) -> Result<Moments, Error> {
        let is_narrow = self.m.iter().any(|moment| moment.dtype() == DType::F32);
        let rounded = |beta: f64| if is_narrow { f64::from(beta as f32) } else { beta };
        if betas.iter().any(|beta| !(0.0..1.0).contains(&rounded(*beta))) {
            let ([b1, b2], dtype) = (betas, if is_narrow { DType::F32 } else { DType::F64 });
            return invalid(format!(
                "betas of {b1} and {b2}: each must be 0 or more, and below 1 when it is rounded \
                 to {dtype}"
            ));
        }
        Ok(Moments { betas, ..self })
    }

    fn schedule_step(&mut self) -> Result<Vec<Tensor>, Error> {
        let options = [("eps", self.eps), ("weight_decay", self.weight_decay)];
        check_options("an optimiser", &options)?;
        let pairs = self.parameters.gradients()?;
        for (power, beta) in [(&self.b1_t, self.betas[0]), (&self.b2_t, self.betas[1])] {
            assign(power, &power.mul(beta)?)?;
        }
        for (number, (value, gradient)) in pairs.iter().enumerate() {
            let updated = self.updated(number, value, gradient)?;
            self.parameters.assign(number, &updated)?;
        }
        let powers = [&self.b1_t, &self.b2_t];
        let state = powers.into_iter().chain(&self.m).chain(&self.v).cloned();
        Ok(self.parameters.computed(state, pairs))
    }

    /// Returns the new value of a parameter, and assigns the new moments.
    fn updated(&self, number: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor, Error> {
        let (m, v, [b1, b2]) = (&self.m[number], &self.v[number], self.betas);
        // Squares of halves leave their range at both ends.
        let (value, gradient) = (value.cast(m.dtype())?, gradient.cast(m.dtype())?);
        assign(m, &m.mul(b1)?.add(gradient.mul(1.0 - b1)?)?)?;
        assign(v, &v.mul(b2)?.add(gradient.square()?.mul(1.0 - b2)?)?)?;
        let unbiased = |moment: &Tensor, power: &Tensor| {
            let power = power.reshape(&[])?;
            let share = Tensor::scalar(power.dtype(), 1)?.sub(&power)?;
            moment.div(share.cast(moment.dtype())?.to(value.device()?)?)
        };
        let root = unbiased(v, &self.b2_t)?.sqrt()?.add(self.eps)?;
        let mut update = unbiased(m, &self.b1_t)?.div(root)?;
        if self.weight_decay != 0.0 {
            update = update.add(value.mul(self.weight_decay)?)?;
        }
        if self.has_trust {
            let (first, second) = (norm(&value)?, norm(&update)?);
            update = update.mul(trust(&first, &second, &first.div(&second)?)?)?;
        }
        value.sub(update.mul(self.parameters.rate_beside(&value)?)?)
    }
}

/// Creates the power 0 of a decay, [1], in a buffer on the device of a tensor: in f64 for f64, else
/// in f32.
fn power_zero(tensor: &Tensor) -> Result<Tensor, Error> {
    let power = match tensor.dtype() {
        DType::F64 => Tensor::from_slice(&[1], &[1.0f64])?,
        _ => Tensor::from_slice(&[1], &[1.0f32])?,
    };
    power.to(tensor.device()?)
}

impl Adam {
    /// Creates an optimiser with b1 = 0.9, b2 = 0.999, eps = 1e-8. Tensors for which gradients are
    /// explicitly not required are buffers; the others then require them.
    /// # Errors
    /// If there is no parameter, one is not of floats or cannot be computed, or the learning rate
    /// is negative or not finite.
    pub fn new(tensors: impl IntoIterator<Item = Tensor>, lr: f64) -> Result<Adam, Error> {
        Ok(Adam(Moments::new(tensors, lr)?))
    }
}

impl AdamW {
    /// Creates an optimiser as [`Adam::new`] does, with weight decay 0.01.
    /// # Errors
    /// As there.
    pub fn new(tensors: impl IntoIterator<Item = Tensor>, lr: f64) -> Result<AdamW, Error> {
        Ok(AdamW(Moments { weight_decay: 0.01, ..Moments::new(tensors, lr)? }))
    }
}

impl LAMB {
    /// Creates an optimiser as [`Adam::new`] does, with eps = 1e-6 and no weight decay.
    /// # Errors
    /// As there.
    pub fn new(tensors: impl IntoIterator<Item = Tensor>, lr: f64) -> Result<LAMB, Error> {
        Ok(LAMB(Moments { eps: 1e-6, has_trust: true, ..Moments::new(tensors, lr)? }))
    }
}

/// Defines the options that the optimisers share, and the trait.
macro_rules! moments {
    ($($optimizer:ident)*) => {$(
        impl $optimizer {
            /// Sets the decay of the mean and that of the mean square.
            ///
            /// ```
            /// # use gradiff_nn::optim::{Adam, Optimizer};
            /// # use gradiff_tensor::Tensor;
            /// # let _training = Tensor::train(true);
            /// let x = Tensor::from_slice(&[1], &[2.0f32])?;
            /// // Without memory, the signs of the gradients.
            /// let mut optimizer = Adam::new([x.clone()], 0.5)?.betas(0.0, 0.0)?.eps(0.0);
            /// x.square()?.sum(0)?.backward()?;
            /// optimizer.step()?;
            /// assert_eq!(x.to_text()?, "[1.5]");
            /// # Ok::<(), gradiff_tensor::Error>(())
            /// ```
            /// # Errors
            /// If one is negative or not below 1, or is rounded to 1 in f32, unless all parameters
            /// are f64.
            pub fn betas(self, b1: f64, b2: f64) -> Result<$optimizer, Error> {
                Ok($optimizer(self.0.with_betas([b1, b2])?))
            }

            /// Sets the summand of the root of the mean square; the example of `betas` does.
            #[must_use]
            pub fn eps(self, eps: f64) -> $optimizer {
                $optimizer(Moments { eps, ..self.0 })
            }
        }

        impl State for $optimizer {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                self.0.parameters.visit(visitor);
                visitor.field("b1_t", &self.0.b1_t);
                visitor.field("b2_t", &self.0.b2_t);
                visitor.field("m", &self.0.m);
                visitor.field("v", &self.0.v);
            }
        }

        delegate!($optimizer);
    )*};
}

moments! { Adam AdamW LAMB }

/// Defines the weight decay.
macro_rules! decays {
    ($($optimizer:ident)*) => {$(
        impl $optimizer {
            /// Sets the weight decay; the example of [`AdamW`] does.
            #[must_use]
            pub fn weight_decay(self, weight_decay: f64) -> $optimizer {
                $optimizer(Moments { weight_decay, ..self.0 })
            }
        }
    )*};
}

decays! { AdamW LAMB }
