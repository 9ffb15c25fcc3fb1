//! Parameters: tensors that keep the gradients that `backward` computes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use gradiff_graph::{Arg, Op, UOp};

use rustc_hash::FxHashSet;

use super::{check_float, differentiable_sources, ops};
use crate::error::invalid;
use crate::tensor::{State, with_shape};
use crate::{Error, Tensor};

/// The states of the parameters, by number.
static PARAMETERS: Mutex<BTreeMap<i64, Weak<RwLock<State>>>> = Mutex::new(BTreeMap::new());

impl Tensor {
    /// Sets whether [`backward`](Tensor::backward) computes the gradient with respect to this
    /// tensor, and returns it. What was made of the tensor before is not affected. The tensor is a
    /// value of its own then, distinct from others that are computed alike.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1f32, 2.0])?.requires_grad_(true)?;
    /// x.mul(&x)?.sum(&[0])?.backward()?;
    /// assert_eq!(x.grad().expect("it has a gradient").to_text()?, "[2.0, 4.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// If gradients are required of a dtype that is not a float.
    pub fn requires_grad_(&self, requires: bool) -> Result<Tensor, Error> {
        static NEXT: AtomicI64 = AtomicI64::new(0);
        if requires {
            check_float("requires_grad_", self)?;
        }
        let mut state = self.state_mut();
        let earlier = state.requires_grad.replace(requires);
        // Without an earlier call, a parameter's node is that of the tensor that this one is made
        // of by a method that changes nothing.
        let is_parameter = earlier.is_some() && state.node.op() == Op::Parameter;
        if requires && !is_parameter {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let source = state.node.clone();
            let node = UOp::new(Op::Parameter, self.dtype(), [source], Arg::Int(number));
            state.node = with_shape(node);
            let mut known = PARAMETERS.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, state| state.strong_count() != 0);
            known.insert(number, Arc::downgrade(self.shared_state()));
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
        let node = self.uop();
        let depends = parameters_below(&node).iter().any(|(_, state)| requires_grad(state));
        depends.then_some(true)
    }

    /// Returns the gradient that [`backward`](Tensor::backward) computed: the sum over its calls
    /// since [`zero_grad`](Tensor::zero_grad). `None` before the first call.
    pub fn grad(&self) -> Option<Tensor> {
        self.state().grad.clone()
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
        let node = self.uop();
        let mut parameters = Vec::new();
        for (node, state) in parameters_below(&node) {
            if requires_grad(&state) {
                let shape = node.shape().expect("a node of tensor level has a shape").into();
                parameters.push(Tensor::of_state(state, node.dtype(), shape));
            }
        }
        if parameters.is_empty() {
            return invalid(format!(
                "backward of {self:?}: no tensor that it is computed from requires a gradient"
            ));
        }
        let targets: Vec<&Tensor> = parameters.iter().collect();
        let found = self.gradients_if_used(weights, &targets)?;
        let mut sums = Vec::with_capacity(found.len());
        for (parameter, gradient) in parameters.iter().zip(found) {
            let sum = match (parameter.grad(), gradient) {
                (Some(earlier), Some(gradient)) => Some(earlier.add(&gradient)?),
                (earlier, gradient) => gradient.or(earlier),
            };
            sums.push(sum);
        }
        for (parameter, sum) in parameters.iter().zip(sums) {
            parameter.state_mut().grad = sum;
        }
        Ok(())
    }
}

fn requires_grad(state: &RwLock<State>) -> bool {
    state.read().unwrap_or_else(PoisonError::into_inner).requires_grad == Some(true)
}

/// Returns whether gradients of a node are passed to a parameter.
pub(super) fn is_above_parameters(node: &UOp) -> bool {
    let known = PARAMETERS.lock().unwrap_or_else(PoisonError::into_inner);
    let are_none = known.is_empty();
    drop(known);
    !are_none && !parameters_below(node).is_empty()
}

/// Returns the parameters that gradients of a node are passed to, with their nodes, each once.
fn parameters_below(node: &UOp) -> Vec<(UOp, Arc<RwLock<State>>)> {
    let mut found: BTreeMap<i64, &UOp> = BTreeMap::new();
    let (mut seen, mut pending) = (FxHashSet::default(), vec![node]);
    while let Some(node) = pending.pop() {
        if !seen.insert(node) || !ops::passes(node) {
            continue;
        }
        if let (Op::Parameter, Arg::Int(number)) = (node.op(), node.arg()) {
            found.insert(*number, node);
        }
        pending.extend(differentiable_sources(node));
    }
    let known = PARAMETERS.lock().unwrap_or_else(PoisonError::into_inner);
    let alive = |(number, node): (i64, &UOp)| Some((node.clone(), known.get(&number)?.upgrade()?));
    found.into_iter().filter_map(alive).collect()
}
