//! Parameters: the nodes that gradients are taken of, the tensors that they are the values of, and
//! the ways of gradients through a graph.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use gradiff_graph::{Arg, Op, UOp};
use rustc_hash::FxHashSet;

use crate::state::{Shared, Weak};

/// The name of a value that has been computed; its source is the computation.
pub(crate) const COMPUTED: &str = "computed";

/// The states of the tensors whose values are parameters.
static PARAMETERS: Mutex<Known> = Mutex::new(Known { states: BTreeMap::new(), limit: LIMIT_MIN });

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

/// Returns the parameters that gradients of a node are passed to and whose tensors are there, each
/// once, with the states of the tensors.
pub(crate) fn parameters_below(node: &UOp) -> Vec<(UOp, Shared)> {
    let mut found: BTreeMap<i64, &UOp> = BTreeMap::new();
    let (mut seen, mut pending) = (FxHashSet::default(), vec![node]);
    while let Some(node) = pending.pop() {
        if !seen.insert(node) || !passes_gradients(node) {
            continue;
        }
        if let (Op::Parameter, Arg::Int(number)) = (node.op(), node.arg()) {
            found.insert(*number, node);
        }
        pending.extend(differentiable_sources(node));
    }
    // The states are read after PARAMETERS is unlocked: a thread that holds a state's lock may wait
    // for it.
    let known = PARAMETERS.lock().unwrap_or_else(PoisonError::into_inner);
    let state_of = |number: &i64| known.states.get(number)?.upgrade();
    let alive = |(number, node): (i64, &UOp)| Some((node.clone(), state_of(&number)?));
    let mut alive: Vec<(UOp, Shared)> = found.into_iter().filter_map(alive).collect();
    drop(known);
    // A node that a program made by itself may have any number.
    alive.retain(|(node, state)| {
        let value = &state.read().node;
        value.dtype() == node.dtype() && value.shape() == node.shape()
    });
    alive
}

/// Returns whether gradients of a node are passed to a tensor that requires one.
pub(crate) fn requires_gradient(node: &UOp) -> bool {
    let are_none = PARAMETERS.lock().unwrap_or_else(PoisonError::into_inner).states.is_empty();
    !are_none
        && parameters_below(node).iter().any(|(_, state)| state.read().requires_grad == Some(true))
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
