//! Nodes at one point: scalars, addresses and stores, where variables and ranges have given values.
//!
//! Graphs are laid out in order once ([`Tape`]) and then evaluated at many points. A node that is
//! undefined, or that cannot be evaluated here (a tracker, a loop that is too long), makes its
//! users undefined, unless they do not depend on it.

use gradiff_graph::{Arg, Constant, DType, Global, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::scalar;

/// The value of a node at one point.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any value, or none.
    Undefined,
    /// A scalar.
    Element(Constant),
    /// A slot and an element of it; `None` behind a closed gate.
    Address(Option<(usize, i128)>),
    /// Stores: slot, element, value; an undefined value may be anything.
    Stores(Vec<(usize, i128, Option<Constant>)>),
}

impl Value {
    /// The scalar; `None` if it is undefined or no scalar.
    pub fn element(&self) -> Option<Constant> {
        if let Value::Element(value) = self { Some(*value) } else { None }
    }
}

impl From<Option<Constant>> for Value {
    fn from(value: Option<Constant>) -> Value {
        value.map_or(Value::Undefined, Value::Element)
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Undefined => f.write_str("undefined"),
            Value::Element(value) => write!(f, "{value}"),
            Value::Address(None) => f.write_str("nowhere"),
            Value::Address(Some((slot, index))) => write!(f, "data{slot}[{index}]"),
            Value::Stores(stores) if stores.is_empty() => f.write_str("no store"),
            Value::Stores(stores) => {
                for (number, (slot, index, value)) in stores.iter().enumerate() {
                    let space = if number == 0 { "" } else { " " };
                    write!(f, "{space}data{slot}[{index}]={}", Value::from(*value))?;
                }
                Ok(())
            }
        }
    }
}

/// Limits of an evaluation. What is beyond them is undefined.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of iterations of a range.
    pub iterations: i128,
    /// Number of evaluations of nodes, at all points together.
    pub evaluations: usize,
    /// True if an address outside of its array is undefined.
    pub is_within_arrays: bool,
}

impl Default for Limits {
    /// No limit but that of arrays.
    fn default() -> Limits {
        Limits { iterations: i128::MAX, evaluations: usize::MAX, is_within_arrays: true }
    }
}

/// The content of memory: the element of a dtype in a slot at an index.
pub type Memory<'a> = &'a dyn Fn(DType, usize, i128) -> Constant;

/// Graphs laid out in one order, with the values of their nodes at the present point.
pub struct Tape {
    nodes: Vec<UOp>,
    positions: FxHashMap<UOp, usize>,
    src: Vec<Vec<usize>>,
    /// The nodes that are computed anew in each iteration of a reduction.
    bodies: FxHashMap<usize, Vec<usize>>,
    /// The ranges that reductions are over.
    bound: FxHashSet<usize>,
    /// Nodes that depend on such a range, outside of a reduction over it.
    escaped: FxHashSet<usize>,
    values: Vec<Value>,
    limits: Limits,
    iterations: usize,
    evaluations: usize,
}

impl Tape {
    /// The tape of these graphs.
    pub fn new(graphs: &[&UOp], limits: Limits) -> Tape {
        let (mut nodes, mut positions) = (Vec::new(), FxHashMap::default());
        let mut src: Vec<Vec<usize>> = Vec::new();
        for node in graphs.iter().flat_map(|graph| graph.toposort()) {
            if positions.contains_key(&node) {
                continue;
            }
            src.push(node.src().iter().map(|source| positions[source]).collect());
            positions.insert(node.clone(), nodes.len());
            nodes.push(node);
        }
        let values = nodes.iter().map(|node| Value::from(node.as_const())).collect();
        let (bodies, bound, escaped) = Default::default();
        let (iterations, evaluations) = (0, 0);
        let mut tape = Tape {
            nodes,
            positions,
            src,
            bodies,
            bound,
            escaped,
            values,
            limits,
            iterations,
            evaluations,
        };
        tape.find_bodies();
        tape
    }

    /// Finds for each reduction the nodes of its value that depend on its ranges, in order. An
    /// inner reduction over a range does not depend on it.
    fn find_bodies(&mut self) {
        let is_reduction = |position: &usize| self.nodes[*position].op() == Op::Reduce;
        let reductions: Vec<usize> = (0..self.nodes.len()).filter(is_reduction).collect();
        if reductions.is_empty() {
            return;
        }
        let mut free: Vec<FxHashSet<usize>> = Vec::with_capacity(self.nodes.len());
        for (position, src) in self.src.iter().enumerate() {
            let mut ranges: FxHashSet<usize> =
                src.iter().flat_map(|source| &free[*source]).copied().collect();
            match self.nodes[position].op() {
                Op::Range => ranges.extend([position]),
                Op::Reduce => ranges.retain(|range| !src[1..].contains(range)),
                _ => {}
            }
            free.push(ranges);
        }
        for reduction in reductions {
            let (value, ranges) = (self.src[reduction][0], &self.src[reduction][1..]);
            let inside = self.nodes[value].toposort();
            let mut body: Vec<usize> = inside.iter().map(|node| self.positions[node]).collect();
            let varies = |position: &usize| ranges.iter().any(|r| free[*position].contains(r));
            body.retain(|position| varies(position) && !ranges.contains(position));
            body.sort_unstable();
            self.bound.extend(ranges);
            self.bodies.insert(reduction, body);
        }
        let escapes = |position: &usize| !free[*position].is_disjoint(&self.bound);
        self.escaped = (0..self.nodes.len()).filter(escapes).collect();
    }

    /// The nodes, sources first.
    pub fn nodes(&self) -> &[UOp] {
        &self.nodes
    }

    /// The position of a node; `None` if the graphs do not have it.
    pub fn position(&self, node: &UOp) -> Option<usize> {
        self.positions.get(node).copied()
    }

    /// The positions of the sources of a node.
    pub fn src(&self, position: usize) -> &[usize] {
        &self.src[position]
    }

    /// The positions of variables, and of ranges over which no reduction is: they are set.
    pub fn leaves(&self) -> Vec<usize> {
        let is_leaf = |position: &usize| {
            let op = self.nodes[*position].op();
            matches!(op, Op::DefineVar | Op::Range) && !self.bound.contains(position)
        };
        (0..self.nodes.len()).filter(is_leaf).collect()
    }

    /// Sets the value of a leaf; `None` is undefined.
    pub fn set(&mut self, position: usize, value: Option<Constant>) {
        self.values[position] = value.into();
    }

    /// Evaluates all nodes at the point that is set.
    pub fn run(&mut self, memory: Memory<'_>) {
        self.iterations = 0;
        (0..self.nodes.len()).for_each(|position| self.compute(position, memory));
    }

    /// The value of a node that stands for itself. It is undefined if the node depends on a range
    /// over which another node is a reduction.
    pub fn value(&self, position: usize) -> &Value {
        if self.escaped.contains(&position) { &Value::Undefined } else { &self.values[position] }
    }

    /// The values of all nodes, in order; those of bodies are of the last iteration.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Number of iterations of reductions at this point.
    pub fn iterations(&self) -> usize {
        self.iterations
    }

    /// Number of evaluations that are left.
    pub fn evaluations_left(&self) -> usize {
        self.limits.evaluations.saturating_sub(self.evaluations)
    }

    fn compute(&mut self, position: usize, memory: Memory<'_>) {
        self.evaluations += 1;
        self.values[position] = match self.nodes[position].op() {
            Op::DefineVar | Op::Range | Op::Const => return,
            Op::Reduce => self.reduction(position, memory).into(),
            _ => self.node(position, memory),
        };
    }

    fn node(&self, position: usize, memory: Memory<'_>) -> Value {
        let node = &self.nodes[position];
        let src = |number: usize| &self.values[self.src[position][number]];
        match (node.op(), node.arg()) {
            (Op::Index, _) => self.address(position),
            (Op::Load, Arg::None | Arg::Int(_)) => match src(0) {
                Value::Address(Some((slot, index))) => {
                    Value::Element(memory(node.dtype(), *slot, *index))
                }
                Value::Address(None) if node.src().len() == 2 => src(1).clone(),
                Value::Address(None) => Value::Element(scalar::zero(node.dtype())),
                _ => Value::Undefined,
            },
            (Op::Store, Arg::None) => match src(0) {
                Value::Address(Some((slot, index))) => {
                    Value::Stores(vec![(*slot, *index, src(1).element())])
                }
                Value::Address(None) => Value::Stores(Vec::new()),
                _ => Value::Undefined,
            },
            (Op::Sink, _) => {
                let mut sink_stores = Vec::new();
                for number in 0..node.src().len() {
                    let Value::Stores(stores) = src(number) else { return Value::Undefined };
                    sink_stores.extend(stores.iter().copied());
                }
                Value::Stores(sink_stores)
            }
            (Op::Where, _) => match src(0).element() {
                Some(condition) => src(if scalar::is_true(condition) { 1 } else { 2 }).clone(),
                None => Value::Undefined,
            },
            (op, _) if op.is_elementwise() => {
                let sources = &self.src[position];
                let mut operands = [None; 3];
                for (operand, source) in operands.iter_mut().zip(sources) {
                    *operand = self.values[*source].element();
                }
                let operands = operands.get(..sources.len());
                operands.and_then(|operands| scalar::element(op, node.dtype(), operands)).into()
            }
            _ => Value::Undefined,
        }
    }

    fn address(&self, position: usize) -> Value {
        let src = &self.src[position];
        let Arg::Global(Global { slot, size_elements }) = *self.nodes[src[0]].arg() else {
            return Value::Undefined;
        };
        let element = |source: &usize| self.values[*source].element();
        match src.get(2).map(element) {
            Some(None) => return Value::Undefined,
            Some(Some(gate)) if !scalar::is_true(gate) => return Value::Address(None),
            _ => {}
        }
        let is_allowed = |index: &i128| {
            !self.limits.is_within_arrays || 0 <= *index && *index < i128::from(size_elements)
        };
        let index = element(&src[1]).and_then(scalar::to_int).filter(is_allowed);
        index.map_or(Value::Undefined, |index| Value::Address(Some((slot, index))))
    }

    /// The value of a reduction, whose ranges are counted, the last one fastest.
    fn reduction(&mut self, position: usize, memory: Memory<'_>) -> Option<Constant> {
        let node = self.nodes[position].clone();
        let Arg::Reduce(op, _) = *node.arg() else { return None };
        let mut ends = Vec::with_capacity(node.src().len() - 1);
        for range in &self.src[position][1..] {
            let end = *self.src[*range].first()?;
            let end = self.values[end].element().and_then(scalar::to_int)?.max(0);
            ends.push(Some(end).filter(|end| *end <= self.limits.iterations)?);
        }
        let trips = ends
            .iter()
            .try_fold(1usize, |product, end| product.checked_mul(usize::try_from(*end).ok()?))?;
        let body = self.bodies[&position].clone();
        let cost = trips.checked_mul(body.len() + 1)?;
        if self.evaluations_left() <= cost {
            return None;
        }
        let mut reduced = scalar::identity(op, node.dtype())?;
        self.iterations += trips;
        for iteration in 0..trips {
            let mut rest = iteration as i128;
            for (number, end) in ends.iter().enumerate().rev() {
                let range = self.src[position][number + 1];
                let counter = scalar::int(self.nodes[range].dtype(), rest % end);
                self.set(range, counter);
                rest /= end;
            }
            body.iter().for_each(|position| self.compute(*position, memory));
            let value = self.values[self.src[position][0]].element()?;
            reduced = scalar::reduce(op, reduced, value)?;
        }
        Some(reduced)
    }
}

/// The value of a node over these values of variables and ranges; memory is undefined.
pub fn value(root: &UOp, leaf: impl Fn(&UOp) -> Option<Constant>) -> Option<Constant> {
    let mut tape = Tape::new(&[root], Limits { evaluations: 1 << 20, ..Limits::default() });
    for position in tape.leaves() {
        tape.set(position, leaf(&tape.nodes[position]));
    }
    tape.run(&|dtype, _, _| scalar::zero(dtype));
    tape.value(tape.positions[root]).element()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(axis: i64, end: i64) -> UOp {
        UOp::new(Op::Range, DType::I32, [UOp::int(DType::I32, end)], Arg::plain_axis(axis))
    }

    fn sum(value: &UOp, ranges: &[&UOp]) -> UOp {
        let src: Vec<UOp> = [value].iter().chain(ranges).map(|node| (*node).clone()).collect();
        UOp::new(Op::Reduce, DType::I32, src, Arg::Reduce(Op::Add, Default::default()))
    }

    fn int(value: Option<Constant>) -> Option<i128> {
        value.and_then(scalar::to_int)
    }

    #[test]
    fn reductions_run_over_their_ranges() {
        let (r, q) = (range(0, 3), range(1, 4));
        let product = UOp::binary(Op::Mul, r.clone(), q.clone());
        let nested = sum(&UOp::binary(Op::Add, sum(&product, &[&r]), q.clone()), &[&q]);
        for root in [&nested, &sum(&UOp::binary(Op::Add, product.clone(), q.clone()), &[&r, &q])] {
            let expected: i128 = if *root == nested { 18 + 6 } else { 18 + 18 };
            assert_eq!(int(value(root, |_| None)), Some(expected));
        }
    }

    #[test]
    fn range_that_is_bound_elsewhere_is_undefined() {
        let r = range(0, 3);
        let escaped = UOp::binary(Op::Add, sum(&r, &[&r]), r.clone());
        assert_eq!(int(value(&escaped, |_| None)), None);
        assert_eq!(int(value(&r, |_| scalar::int(DType::I32, 2))), Some(2));
    }

    #[test]
    fn loops_beyond_the_limit_are_undefined() {
        let r = range(0, 1 << 30);
        assert_eq!(int(value(&sum(&r, &[&r]), |_| None)), None);
    }
}
