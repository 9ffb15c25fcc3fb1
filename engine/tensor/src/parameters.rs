//! Parameters: the nodes that gradients are taken of, the tensors that they are the values of, and
//! the ways of gradients through a graph.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use gradiff_graph::{Arg, Op, UOp};
use rustc_hash::FxHashSet;

use crate::state::{Shared, Weak};

/// The name of a value that has been computed; its source is the computation.
pub(crate) const COMPUTED: &str = "computed";

/// The states of the tensors whose values are parameters.
static PARAMETERS: Mutex<Known> = Mutex::new(Known { states: BTreeMap::new(), limit: LIMIT_MIN });

/// Number of nodes that [`may_require_gradient`] visits.
const NEAREST: usize = 64;

/// Number of states from which on those that are gone are removed.
const LIMIT_MIN: usize = 64;

/// States of tensors.
struct Known {
    /// By the parameter's number.
    states: BTreeMap<i64, Weak>,
    /// Number of states with which those that are gone are removed next: twice as many as were
    /// there the last time, so that each of them pays for a part of it.
    limit: usize,
}

impl Known {
    fn insert(&mut self, number: i64, state: &Shared) {
        if self.limit <= self.states.len() {
            self.states.retain(|_, state| !state.is_gone());
            self.limit = LIMIT_MIN.max(2 * self.states.len());
        }
        self.states.insert(number, state.downgrade());
    }

    /// Removes the oldest states that are gone. Returns whether none is left.
    fn is_empty(&mut self) -> bool {
        while let Some(oldest) = self.states.first_entry().filter(|entry| entry.get().is_gone()) {
            oldest.remove();
        }
        self.states.is_empty()
    }
}

/// Returns a new parameter, the value of the tensor with this state.
pub(crate) fn new_parameter(source: UOp, state: &Shared) -> UOp {
    static NEXT: AtomicI64 = AtomicI64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut known = PARAMETERS.lock().unwrap_or_else(PoisonError::into_inner);
    known.insert(number, state);
    drop(known);
    let parameter = UOp::new(Op::Parameter, source.dtype(), [source], Arg::Int(number));
    assert!(parameter.shape().is_some(), "a node of tensor level has a shape");
    parameter
}

/// Returns whether the op passes gradients to its sources. Other ops have integers or bools, no
/// sources, or cut gradients.
pub(crate) fn passes_gradients(node: &UOp) -> bool {
    node.dtype().is_float()
        && !matches!(node.op(), Op::Detach | Op::Bitcast | Op::Buffer | Op::Const | Op::Iota)
}

/// Returns the sources that a gradient may be passed to.
pub(crate) fn differentiable_sources(node: &UOp) -> impl Iterator<Item = &UOp> {
    // Source 0 of a function is its value, whose computation is not differentiated.
    let start = usize::from(node.op() == Op::Function);
    node.src()[start..].iter().filter(|source| source.dtype().is_float())
}

/// The nodes that gradients of a node are passed to, itself first, each once, the nearest first.
struct Below<'a> {
    seen: FxHashSet<&'a UOp>,
    pending: VecDeque<&'a UOp>,
}

impl<'a> Below<'a> {
    fn new(node: &'a UOp) -> Below<'a> {
        let pending = [node].into_iter().filter(|node| passes_gradients(node)).collect();
        Below { seen: FxHashSet::default(), pending }
    }
}

impl<'a> Iterator for Below<'a> {
    type Item = &'a UOp;

    fn next(&mut self) -> Option<&'a UOp> {
        let node = self.pending.pop_front()?;
        for source in differentiable_sources(node) {
            if passes_gradients(source) && self.seen.insert(source) {
                self.pending.push_back(source);
            }
        }
        Some(node)
    }
}

/// Returns the state of the tensor whose value the node is, if it is a parameter and the tensor is
/// there and requires a gradient.
fn requiring(node: &UOp) -> Option<Shared> {
    let (Op::Parameter, Arg::Int(number)) = (node.op(), node.arg()) else { return None };
    // The state is read after PARAMETERS is unlocked: a thread that holds a state's lock may wait
    // for it.
    let known = PARAMETERS.lock().unwrap_or_else(PoisonError::into_inner);
    let state = known.states.get(number)?.upgrade()?;
    drop(known);
    let (value, requires_grad) = {
        let state = state.read();
        (state.node.clone(), state.requires_grad)
    };
    // A node that a program made by itself may have any number.
    let is_value = value.dtype() == node.dtype() && value.shape() == node.shape();
    (is_value && requires_grad == Some(true)).then_some(state)
}

/// Returns the parameters that gradients of a node are passed to and whose tensors require one,
/// each once, with the states of the tensors.
pub(crate) fn parameters_below(node: &UOp) -> Vec<(UOp, Shared)> {
    let mut found: BTreeMap<i64, (UOp, Shared)> = BTreeMap::new();
    for node in Below::new(node) {
        if let (Some(state), Arg::Int(number)) = (requiring(node), node.arg()) {
            found.insert(*number, (node.clone(), state));
        }
    }
    found.into_values().collect()
}

/// Returns whether there is no tensor whose value is a parameter.
fn are_none() -> bool {
    PARAMETERS.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
}

/// Returns whether gradients of a node are passed to a tensor that requires one.
pub(crate) fn requires_gradient(node: &UOp) -> bool {
    !are_none() && Below::new(node).any(|node| requiring(node).is_some())
}

/// Returns whether [`requires_gradient`] may hold. True as well if there is none among the nearest
/// nodes, so that the time does not grow with the graph.
pub(crate) fn may_require_gradient(node: &UOp) -> bool {
    if are_none() {
        return false;
    }
    let mut nodes = Below::new(node);
    let mut nearest = nodes.by_ref().take(NEAREST);
    nearest.any(|node| requiring(node).is_some()) || nodes.next().is_some()
}

/// Returns a node of the same value that passes no gradients. The computation of what has been
/// computed, which is kept for gradients alone, is not below it.
pub(crate) fn detached(node: &UOp) -> UOp {
    let mut value = node;
    while value.op() == Op::Parameter || is_computed(value) {
        value = &value.src()[0];
    }
    let detached = UOp::unary(Op::Detach, node.dtype(), value.clone());
    assert!(detached.shape().is_some(), "a node of tensor level has a shape");
    detached
}

/// Returns whether a node is the value of a computation that is kept for gradients.
fn is_computed(node: &UOp) -> bool {
    node.op() == Op::Function && matches!(node.arg(), Arg::Name(name) if **name == *COMPUTED)
}

/// Returns the node of a tensor that has been computed: `value`, through which the gradients of the
/// node `before` still flow, if tensors that require one are below it.
pub(crate) fn keeping_gradients(before: &UOp, value: UOp) -> UOp {
    match (before.op(), before.arg()) {
        (Op::Parameter, _) if value.op() != Op::Parameter => {
            before.with_src([keeping_gradients(&before.src()[0], value)])
        }
        // It was computed before.
        (Op::Function, Arg::Name(name)) if **name == *COMPUTED => {
            before.with_src([value, before.src()[1].clone()])
        }
        _ if value == *before || !requires_gradient(before) => value,
        _ => {
            let sources = [value, before.clone()];
            let node = UOp::new(Op::Function, before.dtype(), sources, Arg::Name(COMPUTED.into()));
            assert!(node.shape().is_some(), "a node of tensor level has a shape");
            node
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, Tensor};

    #[test]
    fn without_gradients_few_nodes_are_visited() -> Result<(), Error> {
        let parameter = Tensor::from_slice(&[1], &[1f32])?.requires_grad_(true)?;
        let mut x = Tensor::from_slice(&[1], &[2f32])?;
        let _evaluation = Tensor::no_grad();
        for _ in 0..1000 {
            x = x.add(1)?;
            assert!(Below::new(&x.uop()).count() <= NEAREST);
        }
        assert_eq!((parameter.requires_grad(), x.requires_grad()), (Some(true), None));
        Ok(())
    }

    #[test]
    fn the_nearest_parameter_is_found_first() -> Result<(), Error> {
        let parameter = Tensor::from_slice(&[1], &[1f32])?.requires_grad_(true)?;
        let mut x = Tensor::from_slice(&[1], &[2f32])?;
        for _ in 0..1000 {
            x = parameter.mul(&x)?;
        }
        let node = x.uop();
        let visited = Below::new(&node).position(|node| requiring(node).is_some());
        assert!(visited.is_some_and(|visited| visited < 4), "{visited:?} nodes");
        Ok(())
    }
}
