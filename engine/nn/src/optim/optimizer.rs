//! The trait of optimisers, and what all of them have: parameters, buffers, a learning rate.

use gradiff_graph::DType;
use gradiff_tensor::{Error, Tensor, realize};

use crate::functional::{invalid, zeroed};
use crate::{State, Visitor};

/// An optimiser of parameters. As a [`State`] it is what a later process needs to go on: the
/// learning rate and what it keeps for each parameter.
pub trait Optimizer: State {
    /// Returns the parameters, each once.
    fn parameters(&self) -> &[Tensor];

    /// Returns the learning rate, which is kept in f64 if a parameter is of f64, else in f32.
    ///
    /// ```
    /// # use gradiff_nn::optim::{Optimizer, SGD};
    /// # use gradiff_tensor::Tensor;
    /// let optimizer = SGD::new([Tensor::from_slice(&[1], &[2.0f32])?], 0.25)?;
    /// assert_eq!(optimizer.lr()?, 0.25);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// If it cannot be read.
    fn lr(&self) -> Result<f64, Error>;

    /// Sets the learning rate.
    ///
    /// ```
    /// # use gradiff_nn::optim::{Optimizer, SGD};
    /// # use gradiff_tensor::Tensor;
    /// let mut optimizer = SGD::new([Tensor::from_slice(&[1], &[2.0f32])?], 0.25)?;
    /// optimizer.set_lr(0.5)?;
    /// assert_eq!(optimizer.lr()?, 0.5);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// If it is not finite in f32, or negative.
    fn set_lr(&mut self, lr: f64) -> Result<(), Error>;

    /// Assigns the updated values to the parameters without computing them. Returns the tensors
    /// that a step computes: parameters, buffers, the state, and the gradients, so that these have
    /// kernels of their own. [`step_with`](Optimizer::step_with) computes them; this method is for
    /// programs that plan kernels by an [`Engine`](gradiff_tensor::Engine).
    /// # Errors
    /// If this thread does not train ([`Tensor::train`]), a parameter has no gradient, or an option
    /// such as the weight decay is negative or not finite. The parameters are unchanged then.
    fn schedule_step(&mut self) -> Result<Vec<Tensor>, Error>;

    /// Replaces the parameters by the updated values, and computes them. A loss that is read before
    /// or after it runs the model again: see [`step_with`](Optimizer::step_with).
    ///
    /// ```
    /// # use gradiff_nn::optim::{Optimizer, SGD};
    /// # use gradiff_tensor::Tensor;
    /// # let _training = Tensor::train(true);
    /// let x = Tensor::from_slice(&[1], &[2.0f32])?;
    /// let mut optimizer = SGD::new([x.clone()], 0.25)?;
    /// x.square()?.sum(0)?.backward()?;
    /// optimizer.step()?;
    /// assert_eq!(x.to_text()?, "[1.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// As [`schedule_step`](Optimizer::schedule_step), and if something cannot be computed.
    fn step(&mut self) -> Result<(), Error> {
        self.step_with(&[])
    }

    /// Does a [`step`](Optimizer::step), and computes these tensors in the same run, such as the
    /// loss, whose model the gradients need anyway. They have the values from before the step,
    /// unless they are parameters, and reading them costs nothing then.
    ///
    /// ```
    /// # use gradiff_nn::optim::{Optimizer, SGD};
    /// # use gradiff_tensor::Tensor;
    /// # let _training = Tensor::train(true);
    /// let x = Tensor::from_slice(&[1], &[3.0f32])?;
    /// let mut optimizer = SGD::new([x.clone()], 0.5)?;
    /// let loss = x.square()?.sum(0)?;
    /// loss.backward()?;
    /// optimizer.step_with(&[&loss])?;
    /// assert_eq!((x.to_text()?, loss.item::<f32>()?), ("[0.0]".into(), 9.0));
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// As [`step`](Optimizer::step), and if one of the tensors cannot be computed: the step is
    /// scheduled then, and need not be repeated.
    fn step_with(&mut self, tensors: &[&Tensor]) -> Result<(), Error> {
        let updated = self.schedule_step()?;
        realize(&updated.iter().chain(tensors.iter().copied()).collect::<Vec<_>>())
    }

    /// Forgets the gradients of the parameters.
    ///
    /// ```
    /// # use gradiff_nn::optim::{Optimizer, SGD};
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[1], &[2.0f32])?;
    /// let optimizer = SGD::new([x.clone()], 0.25)?;
    /// x.sum(0)?.backward()?;
    /// optimizer.zero_grad();
    /// assert!(x.grad().is_none());
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    fn zero_grad(&self) {
        self.parameters().iter().for_each(Tensor::zero_grad);
    }
}

/// Implements [`Optimizer`] for a struct of a part that has `parameters` and `schedule_step`.
macro_rules! delegate {
    ($optimizer:ident) => {
        impl Optimizer for $optimizer {
            fn parameters(&self) -> &[Tensor] {
                &self.0.parameters.trained
            }

            fn lr(&self) -> Result<f64, Error> {
                self.0.parameters.lr()
            }

            fn set_lr(&mut self, lr: f64) -> Result<(), Error> {
                self.0.parameters.set_lr(lr)
            }

            fn schedule_step(&mut self) -> Result<Vec<Tensor>, Error> {
                self.0.schedule_step()
            }
        }
    };
}

pub(super) use delegate;

/// Optimisers of different parameters that step together, in one run.
///
/// ```
/// # use gradiff_nn::optim::{OptimizerGroup, SGD};
/// # use gradiff_tensor::Tensor;
/// # let _training = Tensor::train(true);
/// let [x, y] = [1.0f32, 2.0].map(|value| Tensor::from_slice(&[1], &[value]));
/// let (x, y) = (x?, y?);
/// let (first, second) = (SGD::new([x.clone()], 0.5)?, SGD::new([y.clone()], 0.25)?);
/// let mut group = OptimizerGroup::new(vec![Box::new(first), Box::new(second)]);
/// group.zero_grad();
/// x.mul(&y)?.sum(0)?.backward()?;
/// group.step()?;
/// assert_eq!((x.to_text()?, y.to_text()?), ("[0.0]".into(), "[1.75]".into()));
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
pub struct OptimizerGroup {
    /// The optimisers, for instance for schedules.
    pub optimizers: Vec<Box<dyn Optimizer>>,
}

impl OptimizerGroup {
    /// Creates a group.
    pub fn new(optimizers: Vec<Box<dyn Optimizer>>) -> OptimizerGroup {
        OptimizerGroup { optimizers }
    }

    /// Forgets the gradients of all parameters.
    pub fn zero_grad(&self) {
        self.optimizers.iter().for_each(|optimizer| optimizer.zero_grad());
    }

    /// Does [`Optimizer::step`] for all, in one run.
    /// # Errors
    /// As there. Optimisers before the first that fails have assigned their values then.
    pub fn step(&mut self) -> Result<(), Error> {
        self.step_with(&[])
    }

    /// Does [`Optimizer::step_with`] for all, in one run.
    /// # Errors
    /// As [`step`](OptimizerGroup::step).
    pub fn step_with(&mut self, tensors: &[&Tensor]) -> Result<(), Error> {
        let mut updated = Vec::new();
        for optimizer in &mut self.optimizers {
            updated.extend(optimizer.schedule_step()?);
        }
        realize(&updated.iter().chain(tensors.iter().copied()).collect::<Vec<_>>())
    }
}

/// The parameters, the buffers, and the learning rate of an optimiser.
pub(crate) struct Parameters {
    pub(crate) trained: Vec<Tensor>,
    buffers: Vec<Tensor>,
    /// The learning rate [1] in a buffer: kernels do not depend on its value. In f64 if a parameter
    /// is, else in f32.
    rate: Tensor,
}

impl Parameters {
    /// Divides tensors into parameters and buffers, for which gradients are explicitly not
    /// required. Computes them, so that no step does it again.
    pub(crate) fn new(
        tensors: impl IntoIterator<Item = Tensor>,
        lr: f64,
    ) -> Result<Parameters, Error> {
        let (mut trained, mut buffers): (Vec<Tensor>, Vec<Tensor>) = (Vec::new(), Vec::new());
        for tensor in tensors {
            if tensor.requires_grad() == Some(false) {
                buffers.push(tensor);
                continue;
            }
            let parameter = tensor.requires_grad_(true)?;
            // A parameter's node is that of no other one.
            if trained.iter().all(|known| known.uop() != parameter.uop()) {
                trained.push(parameter);
            }
        }
        if trained.is_empty() {
            return invalid(
                "an optimiser without parameters: give it a tensor on which requires_grad_(false) \
                 was not called",
            );
        }
        realize(&trained.iter().chain(&buffers).collect::<Vec<_>>())?;
        // A device of f32 parameters alone needs no f64.
        let rate = match trained.iter().find(|tensor| tensor.dtype() == DType::F64) {
            Some(wide) => rate(DType::F64, lr)?.to(wide.device()?)?,
            None => rate(DType::F32, lr)?,
        };
        Ok(Parameters { trained, buffers, rate })
    }

    pub(crate) fn lr(&self) -> Result<f64, Error> {
        match self.rate.dtype() {
            DType::F64 => self.rate.item::<f64>(),
            _ => Ok(f64::from(self.rate.item::<f32>()?)),
        }
    }

    pub(crate) fn set_lr(&mut self, lr: f64) -> Result<(), Error> {
        self.rate.assign(rate(self.rate.dtype(), lr)?.to(self.rate.device()?)?)?;
        Ok(())
    }

    pub(crate) fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.field("lr", &self.rate);
    }

    /// Returns the values of the parameters and their gradients, which depend on no parameter.
    pub(crate) fn gradients(&self) -> Result<Vec<(Tensor, Tensor)>, Error> {
        if !Tensor::is_training() {
            return invalid(
                "a step of an optimiser outside of training: call Tensor::train(true) and hold \
                 the result",
            );
        }
        let pair = |(number, parameter): (usize, &Tensor)| match parameter.grad() {
            Some(gradient) => Ok((parameter.detach(), gradient.detach())),
            None => invalid(format!(
                "a step of an optimiser: parameter {number}, {parameter:?}, has no gradient; call \
                 backward on a loss that is computed from it, or, if there is none, \
                 requires_grad_(false) on it before the optimiser is created"
            )),
        };
        self.trained.iter().enumerate().map(pair).collect()
    }

    /// The learning rate as a scalar in the dtype and on the device of a tensor.
    pub(crate) fn rate_beside(&self, tensor: &Tensor) -> Result<Tensor, Error> {
        self.rate.reshape(&[])?.cast(tensor.dtype())?.to(tensor.device()?)
    }

    /// Assigns a value to a parameter, in its dtype.
    pub(crate) fn assign(&self, number: usize, value: &Tensor) -> Result<(), Error> {
        assign(&self.trained[number], value)
    }

    /// Returns the tensors that a step computes: these, the state, and the gradients.
    pub(crate) fn computed(
        &self,
        state: impl IntoIterator<Item = Tensor>,
        pairs: Vec<(Tensor, Tensor)>,
    ) -> Vec<Tensor> {
        let tensors = self.trained.iter().chain(&self.buffers).cloned();
        tensors.chain(state).chain(pairs.into_iter().map(|(_, gradient)| gradient)).collect()
    }
}

/// Checks a learning rate.
///
/// # Errors
/// If it is not finite in f32, or negative.
pub(super) fn check_rate(lr: f64) -> Result<(), Error> {
    let rate = lr as f32;
    if !rate.is_finite() || lr < 0.0 {
        return invalid(format!(
            "a learning rate of {lr}: it must be finite in f32, and 0 or more"
        ));
    }
    Ok(())
}

/// A learning rate as a tensor of one f32 or f64.
fn rate(dtype: DType, lr: f64) -> Result<Tensor, Error> {
    check_rate(lr)?;
    match dtype {
        DType::F64 => Tensor::from_slice(&[1], &[lr]),
        _ => Tensor::from_slice(&[1], &[lr as f32]),
    }
}

/// Assigns a value, cast to the dtype; no gradient flows through it.
pub(crate) fn assign(target: &Tensor, value: &Tensor) -> Result<(), Error> {
    target.assign(value.cast(target.dtype())?.detach())?;
    Ok(())
}

/// Creates zeros in a buffer on the device of a tensor, of its shape.
pub(crate) fn zeros_beside(tensor: &Tensor, dtype: DType) -> Result<Tensor, Error> {
    let zeros = zeroed(tensor.size_elements(), dtype.size_bytes())?;
    let zeros = Tensor::from_bytes(dtype, tensor.shape(), &zeros)?;
    zeros.to(tensor.device()?)?.requires_grad_(false)
}

/// The square root of the sum of squares; of halves in f32, as their range is soon exceeded.
pub(crate) fn norm(x: &Tensor) -> Result<Tensor, Error> {
    x.cast(x.dtype().accumulator())?.square()?.sum(..)?.sqrt()
}

/// `ratio` where both norms are positive, else 1.
pub(crate) fn trust(first: &Tensor, second: &Tensor, ratio: &Tensor) -> Result<Tensor, Error> {
    let is_positive = |norm: &Tensor| Tensor::scalar(norm.dtype(), 0)?.cmplt(norm);
    is_positive(first)?.and(is_positive(second)?)?.where_(ratio, 1)
}
