//! Gradients: reverse-mode differentiation of the graph.
//!
//! In: a node and the gradient with respect to it. Out: the gradients with respect to nodes below
//! it. The graph is walked from the node down; each op passes the gradient to its sources by its
//! row in `ops`, and a `Function` by its row in `functions`. Gradients are tensors as any other:
//! nothing is computed here, and they have gradients, too.

mod backward;
mod buffered;
mod functions;
mod ops;
mod shares;

pub(crate) use shares::{divided, shared};

use gradiff_graph::{Arg, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::invalid;
use crate::parameters::{differentiable_sources, passes_gradients};
use crate::placement::name_of;
use crate::{Error, Tensor};

impl Tensor {
    /// Returns the derivatives of this tensor, which has one element, with respect to each element
    /// of the targets: for each target a tensor of its dtype and shape. Nothing is computed.
    ///
    /// If several elements share a maximum or minimum, their derivatives are equal parts. The
    /// derivatives of `x.relu()` at 0, of rounding, of comparisons and of conversions to integers
    /// are 0; a condition has none.
    ///
    /// Targets are found by their computation: of two tensors that are computed alike, each has the
    /// derivatives of both, unless [`requires_grad_`](Tensor::requires_grad_) was called on them. A
    /// target that is realised after it was used, too, needs that call before its use.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1f32, 2.0, 3.0])?;
    /// let sum = x.mul(&x)?.sum(0)?;
    /// assert_eq!(sum.gradient(&[&x])?[0].to_text()?, "[2.0, 4.0, 6.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// If the tensor has more elements than one, it or a target is not of floats, or it is not
    /// computed from a target.
    pub fn gradient(&self, targets: &[&Tensor]) -> Result<Vec<Tensor>, Error> {
        self.gradient_by(&self.seed("gradient")?, targets)
    }

    /// Returns the derivatives of the sum of `self * weights` with respect to each element of the
    /// targets, as [`gradient`](Tensor::gradient) does. `weights` has the shape and dtype of
    /// `self`.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[3f32, 4.0])?;
    /// let weights = Tensor::from_slice(&[2], &[1f32, 10.0])?;
    /// let found = x.mul(&x)?.gradient_by(&weights, &[&x])?;
    /// assert_eq!(found[0].to_text()?, "[6.0, 80.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// If the shapes or dtypes differ, a dtype is not a float, or `self` is not computed from a
    /// target.
    pub fn gradient_by(&self, weights: &Tensor, targets: &[&Tensor]) -> Result<Vec<Tensor>, Error> {
        let found = self.gradients_if_used(weights, targets)?;
        let mut gradients = Vec::with_capacity(targets.len());
        for (target, gradient) in targets.iter().zip(found) {
            let Some(gradient) = gradient else {
                return invalid(format!(
                    "gradient of {self:?}: it is not computed from the target {target:?}; a \
                     target that is realised after its use needs requires_grad_ before"
                ));
            };
            gradients.push(gradient);
        }
        Ok(gradients)
    }

    /// Returns what [`gradient_by`](Tensor::gradient_by) does, but `None` for a target that `self`
    /// is not computed from.
    /// # Errors
    /// If the shapes or dtypes of `self` and `weights` differ, or a dtype is not a float.
    pub fn gradients_if_used(
        &self,
        weights: &Tensor,
        targets: &[&Tensor],
    ) -> Result<Vec<Option<Tensor>>, Error> {
        for tensor in targets.iter().copied().chain([self]) {
            check_float("gradient", tensor)?;
        }
        self.check_weights(weights)?;
        let nodes: Vec<UOp> = targets.iter().map(|target| target.uop()).collect();
        self.gradients_of_nodes(weights, &nodes)
    }

    fn check_weights(&self, weights: &Tensor) -> Result<(), Error> {
        if weights.shape() == self.shape() && weights.dtype() == self.dtype() {
            return Ok(());
        }
        invalid(format!(
            "gradient of {self:?} by weights {weights:?}: shapes and dtypes must be equal"
        ))
    }

    /// Returns the gradients with respect to nodes; `None` for those that `self` is not computed
    /// from.
    fn gradients_of_nodes(
        &self,
        weights: &Tensor,
        targets: &[UOp],
    ) -> Result<Vec<Option<Tensor>>, Error> {
        let root = self.uop();
        let order = root.order();
        // A parameter in the graph is the node that a target is, or was before it was realised.
        let mut parameters: FxHashMap<&Arg, Vec<UOp>> = FxHashMap::default();
        for node in order.iter().filter(|node| node.op() == Op::Parameter) {
            parameters.entry(node.arg()).or_default().push((*node).clone());
        }
        let known: FxHashSet<&UOp> = order.iter().copied().collect();
        let wanted = |target: &UOp| match target.op() {
            Op::Parameter => parameters.get(target.arg()).cloned().unwrap_or_default(),
            _ => known.get(target).map(|node| (*node).clone()).into_iter().collect(),
        };
        let wanted: Vec<Vec<UOp>> = targets.iter().map(wanted).collect();
        let ends: FxHashSet<UOp> = wanted.iter().flatten().cloned().collect();
        let found = walk(&order, weights, &ends)?;
        let sum = |nodes: &Vec<UOp>| {
            let mut parts = nodes.iter().filter_map(|node| found.get(node).cloned());
            let Some(first) = parts.next() else { return Ok(None) };
            // A gradient may be that of another target, or the weights.
            let sum = parts.try_fold(first, |sum, part| added(&sum, &part))?;
            Ok(Some(sum.unchanged()))
        };
        wanted.iter().map(sum).collect()
    }

    /// Returns the gradient with respect to itself: 1.
    fn seed(&self, method: &str) -> Result<Tensor, Error> {
        check_float(method, self)?;
        if self.size_elements() != 1 {
            return invalid(format!(
                "{method} of {self:?}: it must have one element; sum it, or give weights"
            ));
        }
        Tensor::ones(self.dtype(), self.shape())
    }

    /// Marks this value, which is computed from `sources`, as the function of this name, so that it
    /// has the function's derivative and not that of its computation.
    pub(crate) fn as_function(&self, name: &str, sources: &[&Tensor]) -> Tensor {
        if !self.dtype().is_float() {
            return self.clone();
        }
        let value = self.uop();
        let sources = [value].into_iter().chain(sources.iter().map(|source| source.uop()));
        let node = UOp::new(Op::Function, self.dtype(), sources, Arg::Name(name.into()));
        Tensor::from_valid(crate::tensor::with_shape(node))
    }

    /// Marks this value as [`as_function`](Tensor::as_function) does, as a function of elements of
    /// `sources`, which are broadcast.
    pub(crate) fn as_elementwise_function(&self, name: &str, sources: [&Tensor; 2]) -> Tensor {
        let wide = sources
            .map(|source| Tensor::from_valid(crate::tensor::broadcast(source.uop(), self.shape())));
        self.as_function(name, &wide.each_ref())
    }

    /// Marks the value as the function of a single source, if it has a derivative of its own.
    pub(crate) fn as_unary_function(&self, name: &str, source: &Tensor) -> Tensor {
        match functions::is_unary(name) {
            true => self.as_function(name, &[source]),
            false => self.clone(),
        }
    }
}

/// Refuses functions whose derivatives are not known, among the nodes of a graph.
pub(crate) fn check_functions(order: &[&UOp]) -> Result<(), Error> {
    order.iter().try_for_each(|node| functions::check(node))
}

fn check_float(method: &str, tensor: &Tensor) -> Result<(), Error> {
    match tensor.dtype() {
        dtype if dtype.is_float() => Ok(()),
        dtype => invalid(format!("{method} of {dtype}: only floats have derivatives")),
    }
}

/// The sum of two gradients with respect to the same node, on the device of the first. Those of a
/// constant, which is on no device, are where it is used.
fn added(earlier: &Tensor, part: &Tensor) -> Result<Tensor, Error> {
    let nodes = [earlier, part].map(Tensor::uop);
    match [nodes[0].device(), nodes[1].device()] {
        [Some(first), Some(second)] if first != second => earlier.add(part.to(name_of(first)?)?),
        _ => earlier.add(part),
    }
}

/// Walks from the last node of `order` down to the nodes of `ends`. Returns the gradient with
/// respect to each of these, unless the last node does not depend on it.
fn walk(
    order: &[&UOp],
    weights: &Tensor,
    ends: &FxHashSet<UOp>,
) -> Result<FxHashMap<UOp, Tensor>, Error> {
    let mut is_above: FxHashSet<&UOp> = FxHashSet::default();
    for node in order {
        let passes = passes_gradients(node)
            && differentiable_sources(node).any(|source| is_above.contains(source));
        if passes || ends.contains(*node) {
            is_above.insert(node);
        }
    }
    let mut found = FxHashMap::default();
    let mut gradients: FxHashMap<&UOp, Tensor> = FxHashMap::default();
    if let Some(root) = order.last().filter(|root| is_above.contains(*root)) {
        gradients.insert(root, weights.clone());
    }
    for node in order.iter().rev() {
        let Some(gradient) = gradients.remove(node) else { continue };
        if ends.contains(*node) {
            found.insert((*node).clone(), gradient.clone());
        }
        if !passes_gradients(node) {
            continue;
        }
        let is_needed: Vec<bool> =
            node.src().iter().map(|source| is_above.contains(source)).collect();
        if !is_needed.contains(&true) {
            continue;
        }
        let parts = ops::gradients(node, &gradient, &is_needed)?;
        for ((source, part), is_needed) in node.src().iter().zip(parts).zip(is_needed) {
            let Some(part) = part.filter(|_| is_needed) else { continue };
            if Some(part.shape()) != source.shape() || part.dtype() != source.dtype() {
                // Functions in nodes that a program made by itself may have any sources.
                return invalid(format!(
                    "gradient of {node:?}: {part:?} for the source {source:?}"
                ));
            }
            let sum = match gradients.remove(source) {
                Some(earlier) => added(&earlier, &part)?,
                None => part,
            };
            gradients.insert(source, sum);
        }
    }
    Ok(found)
}
