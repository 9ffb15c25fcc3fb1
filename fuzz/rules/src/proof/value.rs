//! The meaning of a node at one point: scalars, addresses and stores.
//!
//! Nodes are laid out in order once and then evaluated at many points. `Undefined` spreads to all
//! users, except from the branch of a choice that is not taken.

use gradiff_graph::{Arg, Constant, DType, Op, UOp, evaluate};
use rustc_hash::FxHashMap;

/// The value of a node at one point.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Undefined,
    Scalar(Constant),
    /// An array and an element of it; `None` behind a closed gate.
    Address(Option<(usize, i128)>),
    /// Stores: array, element, value; in order.
    Effects(Vec<(usize, i128, Constant)>),
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cell::Undefined => f.write_str("undefined"),
            Cell::Scalar(value) => write!(f, "{value}"),
            Cell::Address(None) => f.write_str("nowhere"),
            Cell::Address(Some((array, index))) => write!(f, "array {array}, element {index}"),
            Cell::Effects(writes) => write!(f, "{} writes", writes.len()),
        }
    }
}

/// A node with its sources, in the order of evaluation.
pub(super) struct Tape {
    nodes: Vec<UOp>,
    sources: Vec<Vec<usize>>,
    /// The position of each variable, in the order in which they were given.
    inputs: Vec<Option<usize>>,
    cells: Vec<Cell>,
}

impl Tape {
    /// A tape whose inputs are `variables`.
    pub(super) fn new(root: &UOp, variables: &[UOp]) -> Tape {
        let nodes = root.toposort();
        let positions: FxHashMap<&UOp, usize> =
            nodes.iter().enumerate().map(|(position, node)| (node, position)).collect();
        let sources = nodes
            .iter()
            .map(|node| node.src().iter().map(|src| positions[src]).collect())
            .collect();
        let inputs = variables.iter().map(|variable| positions.get(variable).copied()).collect();
        let constant = |node: &UOp| match (node.as_const(), node.arg()) {
            (Some(value), _) => Cell::Scalar(value),
            (_, Arg::Global(global)) => Cell::Address(Some((global.slot, 0))),
            _ => Cell::Undefined,
        };
        let cells = nodes.iter().map(constant).collect();
        Tape { nodes, sources, inputs, cells }
    }

    /// The value of the root.
    pub(super) fn run(&mut self, point: &[Constant]) -> &Cell {
        for (position, value) in self.inputs.iter().zip(point) {
            if let Some(position) = position {
                self.cells[*position] = Cell::Scalar(*value);
            }
        }
        for position in 0..self.nodes.len() {
            if !self.sources[position].is_empty() || self.nodes[position].op() == Op::Sink {
                self.cells[position] = self.cell(position);
            }
        }
        self.cells.last().expect("a tape has its root")
    }

    fn cell(&self, position: usize) -> Cell {
        let node = &self.nodes[position];
        let src = self.sources[position].as_slice();
        let at = |number: usize| &self.cells[src[number]];
        match node.op() {
            Op::Where => match at(0) {
                Cell::Scalar(test) => at(if test.is_true() { 1 } else { 2 }).clone(),
                _ => Cell::Undefined,
            },
            Op::Index => {
                let gate = (src.len() == 3).then(|| at(2));
                match (at(0), at(1), gate) {
                    (_, _, Some(Cell::Scalar(gate))) if !gate.is_true() => Cell::Address(None),
                    (_, _, Some(Cell::Undefined)) | (_, Cell::Undefined, _) => Cell::Undefined,
                    (Cell::Address(Some((array, _))), Cell::Scalar(index), _) => {
                        Cell::Address(Some((*array, index.to_int().unwrap_or_default())))
                    }
                    _ => Cell::Undefined,
                }
            }
            Op::Load => match at(0) {
                Cell::Address(None) => Cell::Scalar(Constant::zero(node.dtype())),
                Cell::Address(Some(address)) => Cell::Scalar(memory(*address, node.dtype())),
                _ => Cell::Undefined,
            },
            Op::Store => match (at(0), at(1)) {
                (Cell::Address(None), _) => Cell::Effects(Vec::new()),
                (Cell::Address(Some((array, index))), Cell::Scalar(value)) => {
                    Cell::Effects(vec![(*array, *index, *value)])
                }
                _ => Cell::Undefined,
            },
            Op::Sink => {
                let mut effects = Vec::new();
                for number in 0..src.len() {
                    match at(number) {
                        Cell::Effects(writes) => effects.extend(writes.iter().copied()),
                        _ => return Cell::Undefined,
                    }
                }
                Cell::Effects(effects)
            }
            op => self.elementwise(op, node.dtype(), src),
        }
    }

    fn elementwise(&self, op: Op, dtype: DType, src: &[usize]) -> Cell {
        let mut values = [Constant::bool(false); 3];
        for (value, position) in values.iter_mut().zip(src) {
            match &self.cells[*position] {
                Cell::Scalar(found) => *value = *found,
                _ => return Cell::Undefined,
            }
        }
        match values.get(..src.len()).and_then(|values| evaluate(op, dtype, values)) {
            Some(value) => Cell::Scalar(value),
            None => Cell::Undefined,
        }
    }

    /// Returns whether any float on the tape is NaN or infinite.
    pub(super) fn has_special(&self) -> bool {
        self.cells.iter().any(|cell| match cell {
            Cell::Scalar(value) => value.to_float().is_some_and(|value| !value.is_finite()),
            _ => false,
        })
    }

    /// The root in f64 without rounding in between, and the largest magnitude of a node: exact for
    /// sums and products of few f16. `None` for other ops.
    pub(super) fn exact(&self) -> Option<(f64, f64)> {
        let mut values: Vec<f64> = Vec::new();
        let mut largest = 0f64;
        for (position, node) in self.nodes.iter().enumerate() {
            let at = |number: usize| values[self.sources[position][number]];
            let value = match (node.op(), &self.cells[position]) {
                (Op::Add, _) => at(0) + at(1),
                (Op::Sub, _) => at(0) - at(1),
                (Op::Mul, _) => at(0) * at(1),
                (Op::Neg, _) => -at(0),
                (_, Cell::Scalar(value)) if node.src().is_empty() => value.to_float()?,
                _ => return None,
            };
            largest = largest.max(value.abs());
            values.push(value);
        }
        values.last().map(|value| (*value, largest))
    }
}

/// The content of an address, by a fixed function that tells addresses apart.
fn memory((array, index): (usize, i128), dtype: DType) -> Constant {
    let mixed = (index as u64 ^ (array as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Constant::int(dtype, i128::from(mixed >> 40))
}
