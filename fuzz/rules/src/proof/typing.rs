//! The dtypes that the positions of a rule may have.
//!
//! Positions that must have the same dtype form a class; an assignment gives each class its kind:
//! integer, bool or float.

use gradiff_graph::op::Operands;
use gradiff_graph::{DType, Op};
use gradiff_rewrite::Types;
use gradiff_rewrite::syntax::{Literal, MAX_NAMES, ParsedRule, Pattern};

use super::parsed::names;

/// All integer types.
pub(super) const INTS: [DType; 8] =
    [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64, DType::U64];
/// All types of floats.
pub(super) const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// The kind of a class of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Bool,
    Float,
    /// No value: stores and sinks.
    Void,
}

const KINDS: [Kind; 3] = [Kind::Int, Kind::Bool, Kind::Float];

fn bit(kind: Kind) -> u8 {
    1 << kind as u8
}

const INT: u8 = 1;
const BOOL: u8 = 2;
const FLOAT: u8 = 4;
const VOID: u8 = 8;
const DATA: u8 = INT | BOOL | FLOAT;

/// The classes of a rule's positions.
pub(super) struct Typing {
    parent: Vec<usize>,
    allowed: Vec<u8>,
    /// The class of each pattern node: the left side in order, then the right.
    nodes: Vec<usize>,
    slots: [Option<usize>; MAX_NAMES],
}

impl Typing {
    /// Finds the classes of both sides; the roots of both sides are of the same class.
    pub(super) fn new(rule: &ParsedRule) -> Typing {
        let mut typing = Typing {
            parent: Vec::new(),
            allowed: Vec::new(),
            nodes: Vec::new(),
            slots: [None; MAX_NAMES],
        };
        let root = typing.walk(&rule.lhs, true);
        let slot = typing.slot(0);
        typing.union(root, slot);
        typing.restrict_subject(rule.row.types, &rule.lhs);
        let right = typing.walk(&rule.rhs, false);
        typing.union(root, right);
        // The sums of an equation have the same dtype.
        for (left, sum) in rule.given.iter().flat_map(|given| &given.equations) {
            let class = typing.slot(*left);
            for name in names(sum) {
                let name = typing.slot(name);
                typing.union(class, name);
            }
            typing.restrict(class, INT);
        }
        typing
    }

    fn fresh(&mut self, allowed: u8) -> usize {
        self.parent.push(self.parent.len());
        self.allowed.push(allowed);
        self.parent.len() - 1
    }

    fn find(&self, mut class: usize) -> usize {
        while self.parent[class] != class {
            class = self.parent[class];
        }
        class
    }

    fn union(&mut self, x: usize, y: usize) {
        let (x, y) = (self.find(x), self.find(y));
        if x != y {
            self.parent[y] = x;
            self.allowed[x] &= self.allowed[y];
        }
    }

    fn restrict(&mut self, class: usize, allowed: u8) {
        let class = self.find(class);
        self.allowed[class] &= allowed;
    }

    fn slot(&mut self, slot: usize) -> usize {
        match self.slots[slot] {
            Some(class) => class,
            None => {
                let class = self.fresh(DATA | VOID);
                self.slots[slot] = Some(class);
                class
            }
        }
    }

    /// Restricts the last source of the root of the left side to the dtypes of the row. A name
    /// alone is not restricted, as it may stand for any node.
    fn restrict_subject(&mut self, types: Types, lhs: &Pattern) {
        let Pattern::Node(_, src, _) = lhs else { return };
        let mut subject = 0;
        if let Some((_, before)) = src.split_last() {
            subject = 1 + before.iter().map(count).sum::<usize>();
        }
        let allowed = match types {
            Types::Any => DATA | VOID,
            Types::Ints => INT,
            Types::Bool => BOOL,
            Types::Bits => INT | BOOL,
            Types::Floats | Types::LongFloats => FLOAT,
        };
        let class = self.nodes[subject];
        self.restrict(class, allowed);
    }

    fn walk(&mut self, pattern: &Pattern, is_left: bool) -> usize {
        let class = self.fresh(DATA | VOID);
        self.nodes.push(class);
        match pattern {
            Pattern::Any(slot) | Pattern::Constant(slot) => {
                let slot = self.slot(*slot);
                self.union(slot, class);
            }
            Pattern::Literal(Literal::Truth(_)) => self.restrict(class, BOOL),
            Pattern::Literal(Literal::Float(_)) => self.restrict(class, FLOAT),
            Pattern::Literal(Literal::Int(_)) if is_left => self.restrict(class, INT | FLOAT),
            Pattern::Node(op, src, name) => {
                if let Some(slot) = name {
                    let slot = self.slot(*slot);
                    self.union(slot, class);
                }
                let sources: Vec<usize> =
                    src.iter().map(|source| self.walk(source, is_left)).collect();
                self.relate(*op, class, &sources);
                let is_cast = matches!(op, Op::Cast | Op::Bitcast);
                if is_cast && !is_left && src[0].dtype_source().is_none() {
                    self.union(class, sources[0]);
                }
            }
            Pattern::Reduce(_, src) => {
                let value = self.walk(&src[0], is_left);
                self.union(class, value);
                let range = self.walk(&src[1], is_left);
                self.restrict(range, INT);
            }
            Pattern::Literal(Literal::Int(_)) | Pattern::Value(_) | Pattern::Computed(_) => {}
        }
        class
    }

    /// Relates the dtype of an op to those of its sources.
    fn relate(&mut self, op: Op, class: usize, sources: &[usize]) {
        match op {
            Op::CmpLt | Op::CmpNe => {
                self.restrict(class, BOOL);
                self.restrict(sources[0], DATA);
                self.union(sources[0], sources[1]);
            }
            Op::Where => {
                self.restrict(sources[0], BOOL);
                self.restrict(class, DATA);
                sources[1..].iter().for_each(|source| self.union(class, *source));
            }
            Op::Cast | Op::Bitcast => {
                self.restrict(class, DATA);
                self.restrict(sources[0], DATA);
            }
            Op::Index => {
                self.restrict(class, DATA);
                self.union(class, sources[0]);
                self.restrict(sources[1], INT);
                sources[2..].iter().for_each(|gate| self.restrict(*gate, BOOL));
            }
            Op::Load => self.union(class, sources[0]),
            Op::Store => {
                self.restrict(class, VOID);
                self.union(sources[0], sources[1]);
            }
            Op::Sink => {
                self.restrict(class, VOID);
                sources.iter().for_each(|source| self.restrict(*source, VOID));
            }
            Op::Reduce => {
                self.union(class, sources[0]);
                sources[1..].iter().for_each(|range| self.restrict(*range, INT));
            }
            _ => {
                sources.iter().for_each(|source| self.union(class, *source));
                self.restrict(class, kinds_of(op));
            }
        }
    }

    /// The class of the pattern node with this number.
    pub(super) fn node(&self, number: usize) -> usize {
        self.find(self.nodes[number])
    }

    /// The class of a name; `None` if it occurs on neither side.
    pub(super) fn of_slot(&self, slot: usize) -> Option<usize> {
        self.slots[slot].map(|class| self.find(class))
    }

    /// Limit of the classes: classes are numbers below it.
    pub(super) fn len(&self) -> usize {
        self.parent.len()
    }

    /// All assignments of a kind to each class; `None` for numbers that are no class.
    pub(super) fn assignments(&self) -> Vec<Vec<Option<Kind>>> {
        let mut found = vec![vec![None; self.len()]];
        for class in (0..self.len()).filter(|class| self.parent[*class] == *class) {
            let allowed = self.allowed[class];
            let mut next = Vec::new();
            for partial in &found {
                let data = KINDS.into_iter().filter(|kind| allowed & bit(*kind) != 0);
                // A class that may have a value gets one.
                let is_void = allowed & DATA == 0 && allowed & VOID != 0;
                for kind in data.chain(is_void.then_some(Kind::Void)) {
                    let mut assignment = partial.clone();
                    assignment[class] = Some(kind);
                    next.push(assignment);
                }
            }
            found = next;
        }
        found
    }
}

/// The kinds of operands of an elementwise op.
fn kinds_of(op: Op) -> u8 {
    match op.row().operands {
        _ if op == Op::Range => INT,
        Operands::Floats => FLOAT,
        Operands::Ints | Operands::U64 => INT,
        Operands::Bits => INT | BOOL,
        Operands::Numbers => INT | FLOAT,
        Operands::Any => DATA,
    }
}

/// Number of nodes of a pattern.
pub(super) fn count(pattern: &Pattern) -> usize {
    match pattern {
        Pattern::Node(_, src, _) => 1 + src.iter().map(count).sum::<usize>(),
        Pattern::Reduce(_, src) => 1 + src.iter().map(count).sum::<usize>(),
        _ => 1,
    }
}
