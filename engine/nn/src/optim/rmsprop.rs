//! Gradients divided by the root of their mean square: RMSprop, after PyTorch.

use gradiff_tensor::{Error, Tensor};

use super::optimizer::{Optimizer, Parameters, assign, delegate, zeros_beside};
use crate::functional::{check_options, invalid};
use crate::{State, Visitor};

/// Root mean square propagation: `v = alpha * v + (1 - alpha) * g^2`, and the parameter becomes
/// `parameter - lr * g / (sqrt(v) + eps)`, where `g` is the gradient plus `weight_decay *
/// parameter`. All of it is computed in f32 for parameters of 16 bits.
///
/// Source: Hinton: Neural networks for machine learning, lecture 6, 2012; the formula is PyTorch's,
/// without momentum.
///
/// ```
/// # use gradiff_nn::optim::{Optimizer, RMSprop};
/// # use gradiff_tensor::Tensor;
/// # let _training = Tensor::train(true);
/// let x = Tensor::from_slice(&[2], &[1.0f32, -2.0])?;
/// let mut optimizer = RMSprop::new([x.clone()], 0.25)?.alpha(0.75)?;
/// x.square()?.sum(0)?.backward()?;
/// optimizer.step()?;
/// let found = x.to_vec::<f32>()?;
/// assert!((found[0] - 0.5).abs() < 1e-5 && (found[1] + 1.5).abs() < 1e-5);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
pub struct RMSprop(MeanSquares);

/// Mean squares of gradients, with all the options.
struct MeanSquares {
    parameters: Parameters,
    alpha: f64,
    eps: f64,
    weight_decay: f64,
    v: Vec<Tensor>,
}

impl RMSprop {
    /// Creates an optimiser with alpha = 0.99, eps = 1e-8 and no weight decay. Tensors for which
    /// gradients are explicitly not required are buffers; the others then require them.
    /// # Errors
    /// If there is no parameter, one is not of floats or cannot be computed, or the learning rate
    /// is negative or not finite.
    pub fn new(tensors: impl IntoIterator<Item = Tensor>, lr: f64) -> Result<RMSprop, Error> {
        let parameters = Parameters::new(tensors, lr)?;
        let zeros = |tensor: &Tensor| zeros_beside(tensor, tensor.dtype().accumulator());
        let v = parameters.trained.iter().map(zeros).collect::<Result<_, _>>()?;
        let (alpha, eps, weight_decay) = (0.99, 1e-8, 0.0);
        Ok(RMSprop(MeanSquares { parameters, alpha, eps, weight_decay, v }))
    }

    /// Sets the decay of the mean square; the example of [`RMSprop`] does.
    /// # Errors
    /// If it is not from 0 to 1.
    pub fn alpha(self, alpha: f64) -> Result<RMSprop, Error> {
        if !(0.0..=1.0).contains(&alpha) {
            return invalid(format!("RMSprop with alpha {alpha}: it must be from 0 to 1"));
        }
        Ok(RMSprop(MeanSquares { alpha, ..self.0 }))
    }

    /// Sets the summand of the root of the mean square.
    ///
    /// ```
    /// # use gradiff_nn::optim::{Optimizer, RMSprop};
    /// # use gradiff_tensor::Tensor;
    /// # let _training = Tensor::train(true);
    /// let x = Tensor::from_slice(&[1], &[1.0f32])?;
    /// let mut optimizer = RMSprop::new([x.clone()], 0.5)?.alpha(0.0)?.eps(2.0);
    /// x.square()?.sum(0)?.backward()?;
    /// optimizer.step()?;
    /// assert_eq!(x.to_text()?, "[0.75]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    #[must_use]
    pub fn eps(self, eps: f64) -> RMSprop {
        RMSprop(MeanSquares { eps, ..self.0 })
    }

    /// Sets the weight decay.
    ///
    /// ```
    /// # use gradiff_nn::optim::{Optimizer, RMSprop};
    /// # use gradiff_tensor::Tensor;
    /// # let _training = Tensor::train(true);
    /// let x = Tensor::from_slice(&[1], &[2.0f32])?;
    /// let mut optimizer = RMSprop::new([x.clone()], 0.5)?.weight_decay(0.5).alpha(0.0)?.eps(2.0);
    /// x.sum(0)?.backward()?;
    /// optimizer.step()?;
    /// // The gradient is 1, and with the decay 2.
    /// assert_eq!(x.to_text()?, "[1.75]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    #[must_use]
    pub fn weight_decay(self, weight_decay: f64) -> RMSprop {
        RMSprop(MeanSquares { weight_decay, ..self.0 })
    }
}

impl State for RMSprop {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.0.parameters.visit(visitor);
        visitor.field("v", &self.0.v);
    }
}

delegate!(RMSprop);

impl MeanSquares {
    fn schedule_step(&mut self) -> Result<Vec<Tensor>, Error> {
        let options = [("eps", self.eps), ("weight_decay", self.weight_decay)];
        check_options("an optimiser", &options)?;
        let pairs = self.parameters.gradients()?;
        for (number, (value, gradient)) in pairs.iter().enumerate() {
            let updated = self.updated(number, value, gradient)?;
            self.parameters.assign(number, &updated)?;
        }
        Ok(self.parameters.computed(self.v.iter().cloned(), pairs))
    }

    /// Returns the new value of a parameter, and assigns the new mean square.
    fn updated(&self, number: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor, Error> {
        let v = &self.v[number];
        let (value, mut gradient) = (value.cast(v.dtype())?, gradient.cast(v.dtype())?);
        if self.weight_decay != 0.0 {
            gradient = gradient.add(value.mul(self.weight_decay)?)?;
        }
        assign(v, &v.mul(self.alpha)?.add(gradient.square()?.mul(1.0 - self.alpha)?)?)?;
        let update = gradient.div(v.sqrt()?.add(self.eps)?)?;
        value.sub(update.mul(self.parameters.rate_beside(&value)?)?)
    }
}
