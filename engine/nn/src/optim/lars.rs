//! Gradient descent with momentum: SGD, LARS and Muon, after tinygrad, which has them in one class.

use gradiff_graph::Constant;
use gradiff_tensor::{Error, Tensor};

use super::optimizer::{Optimizer, Parameters, assign, delegate, norm, trust, zeros_beside};
use crate::functional::{check_options, invalid};
use crate::{State, Visitor};

/// Stochastic gradient descent.
///
/// `g` is the gradient plus `weight_decay * parameter`. With momentum `b = momentum * b + g`, and
/// `g` becomes `b`, or `g + momentum * b` with Nesterov's. The parameter becomes `parameter - lr *
/// g`. In the classic form `g` is multiplied by the learning rate before the momentum. All of it is
/// computed in f32 for parameters of 16 bits, and so `b` is in f32.
///
/// ```
/// # use gradiff_nn::optim::{Optimizer, SGD};
/// # use gradiff_tensor::Tensor;
/// # let _training = Tensor::train(true);
/// let x = Tensor::from_slice(&[2], &[1.0f32, 2.0])?;
/// let mut optimizer = SGD::new([x.clone()], 0.25)?.momentum(0.9).nesterov(true);
/// optimizer.zero_grad();
/// x.square()?.sum(0)?.backward()?;
/// optimizer.step()?;
/// assert_eq!(x.to_text()?, "[0.050000012, 0.100000024]");
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
pub struct SGD(Descent);

/// Layer-wise adaptive rate scaling: [`SGD`], whose `g` is multiplied by a ratio r: for the norms
/// `p` of the parameter and `q` of the gradient, `tcoef * p / (q + weight_decay * p)`, or 1 if
/// either is 0. A trust coefficient of 0 means r = 1. The momentum is classic unless set.
///
/// Source: You, Gitman, Ginsburg: Large batch training of convolutional networks, 2017.
///
/// ```
/// # use gradiff_nn::optim::{LARS, Optimizer};
/// # use gradiff_tensor::Tensor;
/// # let _training = Tensor::train(true);
/// let x = Tensor::from_slice(&[2], &[3.0f32, 4.0])?;
/// let mut optimizer = LARS::new([x.clone()], 0.5)?.weight_decay(0.0).tcoef(1.0);
/// x.sum(0)?.mul(2)?.backward()?;
/// optimizer.step()?;
/// assert!(x.to_vec::<f32>()?[0] < 3.0);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
pub struct LARS(Descent);

/// Momentum orthogonalized by Newton-Schulz iterations, for parameters of two axes or more, of
/// which those after the first are taken as one.
///
/// `b = momentum * b + g`; the update u is the orthogonalized `g + momentum * b`, or that of `b`
/// without Nesterov's momentum; the parameter becomes `parameter * (1 - lr * weight_decay) - lr *
/// u`.
///
/// Source: Jordan: Muon, an optimizer for hidden layers in neural networks, 2024.
///
/// ```
/// # use gradiff_nn::optim::{Muon, Optimizer};
/// # use gradiff_tensor::Tensor;
/// # let _training = Tensor::train(true);
/// let x = Tensor::from_slice(&[2, 2], &[1.0f32, 2.0, 3.0, 5.0])?;
/// let mut optimizer = Muon::new([x.clone()], 0.1)?;
/// x.square()?.sum(..)?.backward()?;
/// optimizer.step()?;
/// assert!(x.square()?.sum(..)?.to_vec::<f32>()?[0] < 39.0);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
pub struct Muon(Descent);

/// Gradient descent with all the options.
struct Descent {
    parameters: Parameters,
    momentum: f64,
    weight_decay: f64,
    is_nesterov: bool,
    is_classic: bool,
    tcoef: f64,
    newton_schulz: Option<NewtonSchulz>,
    /// The momenta, one for each parameter, of halves in f32: sums of gradients are soon beyond the
    /// range of f16. Constants, which need no memory, before the first step.
    b: Vec<Tensor>,
}

/// The iterations that orthogonalize a matrix.
#[derive(Clone, Copy)]
struct NewtonSchulz {
    count: usize,
    coefficients: [f64; 3],
}

impl SGD {
    /// Creates an optimiser without momentum and weight decay. Tensors for which gradients are
    /// explicitly not required are buffers; the others then require them.
    /// # Errors
    /// If there is no parameter, one is not of floats or cannot be computed, or the learning rate
    /// is negative or not finite.
    pub fn new(tensors: impl IntoIterator<Item = Tensor>, lr: f64) -> Result<SGD, Error> {
        let parameters = Parameters::new(tensors, lr)?;
        let zeros = |x: &Tensor| Tensor::zeros(x.dtype().accumulator(), x.shape())?.to(x.device()?);
        let b = parameters.trained.iter().map(zeros).collect::<Result<_, _>>()?;
        Ok(SGD(Descent {
            parameters,
            momentum: 0.0,
            weight_decay: 0.0,
            is_nesterov: false,
            is_classic: false,
            tcoef: 0.0,
            newton_schulz: None,
            b,
        }))
    }
}

impl LARS {
    /// Creates an optimiser with momentum 0.9, weight decay 1e-4, trust coefficient 0.001.
    /// # Errors
    /// As [`SGD::new`].
    pub fn new(tensors: impl IntoIterator<Item = Tensor>, lr: f64) -> Result<LARS, Error> {
        let SGD(descent) = SGD::new(tensors, lr)?;
        Ok(LARS(Descent {
            momentum: 0.9,
            weight_decay: 1e-4,
            is_classic: true,
            tcoef: 0.001,
            ..descent
        }))
    }

    /// Sets the trust coefficient; the example of [`LARS`] does.
    #[must_use]
    pub fn tcoef(self, tcoef: f64) -> LARS {
        LARS(Descent { tcoef, ..self.0 })
    }
}

impl Muon {
    /// Creates an optimiser with Nesterov's momentum 0.95, weight decay 0.1, and 5 iterations.
    /// # Errors
    /// As [`SGD::new`], and if a parameter has fewer than two axes.
    pub fn new(tensors: impl IntoIterator<Item = Tensor>, lr: f64) -> Result<Muon, Error> {
        let SGD(descent) = SGD::new(tensors, lr)?;
        if let Some(flat) = descent.parameters.trained.iter().find(|tensor| tensor.rank() < 2) {
            return invalid(format!("Muon of {flat:?}: a parameter must have two axes or more"));
        }
        let newton_schulz = NewtonSchulz { count: 5, coefficients: [3.4445, -4.775, 2.0315] };
        Ok(Muon(Descent {
            momentum: 0.95,
            weight_decay: 0.1,
            is_nesterov: true,
            newton_schulz: Some(newton_schulz),
            ..descent
        }))
    }

    /// Sets the number of iterations, and the coefficients of x, `(x xT) x` and `(x xT)^2 x` in
    /// each.
    ///
    /// ```
    /// # use gradiff_nn::optim::Muon;
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1.0f32, 2.0, 3.0, 5.0])?;
    /// let optimizer = Muon::new([x], 0.1)?.newton_schulz(10, [1.5, -0.5, 0.0]);
    /// # drop(optimizer);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    #[must_use]
    pub fn newton_schulz(self, count: usize, coefficients: [f64; 3]) -> Muon {
        Muon(Descent { newton_schulz: Some(NewtonSchulz { count, coefficients }), ..self.0 })
    }
}

/// Defines the options that the optimisers share, and the trait.
macro_rules! descents {
    ($($optimizer:ident)*) => {$(
        impl $optimizer {
            /// Sets the momentum; 0 for none.
            ///
            /// ```
            /// # use gradiff_nn::optim::{Optimizer, SGD};
            /// # use gradiff_tensor::Tensor;
            /// # let _training = Tensor::train(true);
            /// let x = Tensor::from_slice(&[1], &[2.0f32])?;
            /// let mut optimizer = SGD::new([x.clone()], 0.5)?.momentum(0.5);
            /// x.sum(0)?.backward()?;
            /// optimizer.step()?;
            /// optimizer.step()?;
            /// assert_eq!(x.to_text()?, "[0.75]");
            /// # Ok::<(), gradiff_tensor::Error>(())
            /// ```
            #[must_use]
            pub fn momentum(self, momentum: f64) -> $optimizer {
                $optimizer(Descent { momentum, ..self.0 })
            }

            /// Sets the weight decay.
            ///
            /// ```
            /// # use gradiff_nn::optim::{Optimizer, SGD};
            /// # use gradiff_tensor::Tensor;
            /// # let _training = Tensor::train(true);
            /// let x = Tensor::from_slice(&[1], &[2.0f32])?;
            /// let mut optimizer = SGD::new([x.clone()], 0.5)?.weight_decay(0.25);
            /// x.sum(0)?.backward()?;
            /// optimizer.step()?;
            /// assert_eq!(x.to_text()?, "[1.25]");
            /// # Ok::<(), gradiff_tensor::Error>(())
            /// ```
            #[must_use]
            pub fn weight_decay(self, weight_decay: f64) -> $optimizer {
                $optimizer(Descent { weight_decay, ..self.0 })
            }

            /// Sets whether the momentum is Nesterov's, without effect if there is none; the
            /// example of [`SGD`] does.
            #[must_use]
            pub fn nesterov(self, is_nesterov: bool) -> $optimizer {
                $optimizer(Descent { is_nesterov, ..self.0 })
            }
        }

        impl State for $optimizer {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                self.0.parameters.visit(visitor);
                if self.0.momentum != 0.0 {
                    visitor.field("b", &self.0.b);
                }
            }
        }

        delegate!($optimizer);
    )*};
}

descents! { SGD LARS Muon }

/// Defines whether the momentum is classic.
macro_rules! classic {
    ($($optimizer:ident)*) => {$(
        impl $optimizer {
            /// Sets whether the learning rate is applied before the momentum, so that a later rate
            /// has no effect on earlier gradients.
            ///
            /// ```
            /// # use gradiff_nn::optim::{Optimizer, SGD};
            /// # use gradiff_tensor::Tensor;
            /// # let _training = Tensor::train(true);
            /// let x = Tensor::from_slice(&[1], &[2.0f32])?;
            /// let mut optimizer = SGD::new([x.clone()], 0.5)?.momentum(0.5).classic(true);
            /// x.sum(0)?.backward()?;
            /// optimizer.step()?;
            /// optimizer.set_lr(0.0)?;
            /// optimizer.step()?;
            /// assert_eq!(x.to_text()?, "[1.25]");
            /// # Ok::<(), gradiff_tensor::Error>(())
            /// ```
            #[must_use]
            pub fn classic(self, is_classic: bool) -> $optimizer {
                $optimizer(Descent { is_classic, ..self.0 })
            }
        }
    )*};
}

classic! { SGD LARS }

impl Descent {
    fn schedule_step(&mut self) -> Result<Vec<Tensor>, Error> {
        let decay = ("weight_decay", self.weight_decay);
        let options = [("momentum", self.momentum), decay, ("tcoef", self.tcoef)];
        check_options("an optimiser", &options)?;
        let pairs = self.parameters.gradients()?;
        let state = if self.momentum == 0.0 { &[][..] } else { &self.b };
        // A momentum without a buffer may be one that a step has assigned, and nothing computed.
        let is_zero = |x: &&Tensor| x.constant() == Some(Constant::zero(x.dtype()));
        for momentum in state.iter().filter(is_zero) {
            assign(momentum, &zeros_beside(momentum, momentum.dtype())?)?;
        }
        for (number, (value, gradient)) in pairs.iter().enumerate() {
            let updated = self.updated(number, value, gradient)?;
            self.parameters.assign(number, &updated)?;
        }
        Ok(self.parameters.computed(state.iter().cloned(), pairs))
    }

    /// Returns the new value of a parameter, and assigns the new momentum.
    fn updated(&self, number: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor, Error> {
        let dtype = self.b[number].dtype();
        let (value, gradient) = (value.cast(dtype)?, gradient.cast(dtype)?);
        let rate = self.parameters.rate_beside(&value)?;
        let decays_before = self.newton_schulz.is_none() && self.weight_decay != 0.0;
        let scaled = |update: &Tensor| match self.tcoef {
            0.0 => update.mul(&rate),
            _ => update.mul(self.trust_ratio(&value, &gradient)?)?.mul(&rate),
        };
        let mut update = match decays_before {
            true => gradient.add(value.mul(self.weight_decay)?)?,
            false => gradient.clone(),
        };
        if self.is_classic {
            update = scaled(&update)?;
        }
        if self.momentum != 0.0 {
            let momentum = &self.b[number];
            assign(momentum, &momentum.mul(self.momentum)?.add(&update)?)?;
            update = match self.is_nesterov {
                true => update.add(momentum.mul(self.momentum)?)?,
                false => momentum.detach(),
            };
        }
        let mut kept = value.clone();
        if let Some(iterations) = self.newton_schulz {
            update = iterations.orthogonalized(&update)?;
            kept = kept.sub(kept.mul(rate.mul(self.weight_decay)?)?)?;
        }
        if !self.is_classic {
            update = scaled(&update)?;
        }
        kept.sub(update)
    }

    /// The ratio by which LARS scales an update.
    fn trust_ratio(&self, value: &Tensor, gradient: &Tensor) -> Result<Tensor, Error> {
        let (first, second) = (norm(value)?, norm(gradient)?);
        let divisor = second.add(first.mul(self.weight_decay)?)?;
        trust(&first, &second, &first.mul(self.tcoef)?.div(divisor)?)
    }
}

impl NewtonSchulz {
    /// Returns the matrix of the update after the iterations, in the update's shape.
    fn orthogonalized(&self, update: &Tensor) -> Result<Tensor, Error> {
        let rows = update.shape()[0];
        let columns = update.size_elements() / rows.max(1);
        let matrix = update.reshape(&[rows, columns])?;
        matrix.newton_schulz(self.count, &self.coefficients, 1e-7)?.reshape(update.shape())
    }
}
