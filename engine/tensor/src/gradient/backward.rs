//! Tensors that require gradients, and `backward`, which leaves the gradients with them.

use gradiff_graph::UOp;

use super::{added, check_float};
use crate::error::invalid;
use crate::modes::{IS_WITHOUT_GRADIENTS, Mode};
use crate::parameters::{new_parameter, parameters_below, requires_gradient};
use crate::{Error, Tensor};

impl Tensor {
    /// Until the result is dropped, tensors that this thread computes require no gradient, as if
    /// [`detach`](Tensor::detach) was called on each: so reading them keeps no computation.
    /// Tensors on which [`requires_grad_`](Tensor::requires_grad_) is called require one.
    /// [`gradient`](Tensor::gradient) of a tensor computed in this time may refuse any target from
    /// before it: whether the way to it is kept is not defined.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let w = Tensor::from_slice(&[2], &[1f32, 2.0])?.requires_grad_(true)?;
    /// let output = {
    ///     let _evaluation = Tensor::no_grad();
    ///     w.mul(&w)?
    /// };
    /// assert_eq!(output.requires_grad(), None);
    /// assert_eq!(w.mul(&w)?.requires_grad(), Some(true));
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn no_grad() -> Mode {
        Mode::set(&IS_WITHOUT_GRADIENTS, true)
    }

    /// Sets whether [`backward`](Tensor::backward) computes the gradient with respect to this
    /// tensor, and returns it. `backward` from what was made of the tensor while it required no
    /// gradient does not reach it, even if it requires one later. The tensor is a value of its own
    /// while it requires a gradient, distinct from others that are computed alike.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1f32, 2.0])?.requires_grad_(true)?;
    /// x.mul(&x)?.sum(0)?.backward()?;
    /// assert_eq!(x.grad().expect("it has a gradient").to_text()?, "[2.0, 4.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// If gradients are required of a dtype that is not a float.
    pub fn requires_grad_(&self, requires: bool) -> Result<Tensor, Error> {
        if requires {
            check_float("requires_grad_", self)?;
        }
        let mut state = self.state_mut();
        // Otherwise a parameter's node is that of the tensor that this one is made of by a method
        // that changes nothing.
        let is_parameter = state.requires_grad.replace(requires) == Some(true);
        if requires && !is_parameter {
            state.node = new_parameter(state.node.clone(), self.shared_state());
        } else if !requires && is_parameter {
            state.node = state.node.src()[0].clone();
        }
        drop(state);
        Ok(self.clone())
    }

    /// Returns what [`requires_grad_`](Tensor::requires_grad_) was called with last; if it was not
    /// called, true for a tensor that is computed from one that requires a gradient, and otherwise
    /// `None`.
    pub fn requires_grad(&self) -> Option<bool> {
        if let Some(requires) = self.state().requires_grad {
            return Some(requires);
        }
        requires_gradient(&self.uop()).then_some(true)
    }

    /// Returns the gradient that [`backward`](Tensor::backward) computed: the sum over its calls
    /// since [`zero_grad`](Tensor::zero_grad). `None` before the first call.
    pub fn grad(&self) -> Option<Tensor> {
        let grad = self.state().grad.clone()?;
        Some(Tensor::of_state(grad, self.dtype(), self.shape().into()))
    }

    /// Forgets the gradient.
    pub fn zero_grad(&self) {
        self.state_mut().grad = None;
    }

    /// Adds to the gradient of each tensor that requires one the derivatives of this tensor, which
    /// has one element, with respect to it. Nothing is computed before a gradient is read.
    /// # Errors
    /// If the tensor has more elements than one, is not of floats, or is not computed from a tensor
    /// that requires a gradient.
    pub fn backward(&self) -> Result<(), Error> {
        self.backward_by(&self.seed("backward")?)
    }

    /// Does what [`backward`](Tensor::backward) does for the sum of `self * weights`; `weights` has
    /// the shape and dtype of `self`.
    /// # Errors
    /// If the shapes or dtypes differ, the dtype is not a float, or `self` is not computed from a
    /// tensor that requires a gradient.
    pub fn backward_by(&self, weights: &Tensor) -> Result<(), Error> {
        check_float("backward", self)?;
        self.check_weights(weights)?;
        let parameters = parameters_below(&self.uop());
        if parameters.is_empty() {
            return invalid(format!(
                "backward of {self:?}: no tensor that it is computed from requires a gradient; \
                 call requires_grad_(true) on the parameters, or create their optimiser, before \
                 they are used, and outside of no_grad"
            ));
        }
        let nodes: Vec<UOp> = parameters.iter().map(|(node, _)| node.clone()).collect();
        let found = self.gradients_of_nodes(weights, &nodes)?;
        for ((node, state), gradient) in parameters.iter().zip(found) {
            let Some(gradient) = gradient else { continue };
            let shape = node.shape().expect("a node of tensor level has a shape");
            // Other threads may add to the same gradient.
            loop {
                let earlier = state.read().grad.clone();
                let sum = match &earlier {
                    Some(earlier) => {
                        let earlier = Tensor::of_state(earlier.clone(), node.dtype(), shape.into());
                        added(&earlier, &gradient)?
                    }
                    None => gradient.clone(),
                };
                let mut state = state.write();
                let is_same = match (&state.grad, &earlier) {
                    (Some(now), Some(earlier)) => now.is(earlier),
                    (now, earlier) => now.is_none() && earlier.is_none(),
                };
                if is_same {
                    state.grad = Some(sum.shared_state().clone());
                    break;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, Tensor};

    #[test]
    fn backward_without_parameters_says_how_to_require_gradients() -> Result<(), Error> {
        let w = Tensor::from_slice(&[1], &[2f32])?.to("interp")?;
        let error = w.mul(&w)?.backward().expect_err("no parameter").to_string();
        assert!(error.contains("requires_grad_(true)"), "{error}");
        w.requires_grad_(true)?;
        w.mul(&w)?.backward()?;
        assert_eq!(w.grad().expect("it has a gradient").to_text()?, "[4.0]");
        Ok(())
    }
}
