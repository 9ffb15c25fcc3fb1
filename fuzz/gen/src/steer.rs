//! Generates programs that have a given pair of features, since many pairs are too rare by chance.
//! One third of all programs begins with such a pair, and continues like any other.
//!
//! The index of a program determines its pair: half of these programs take all pairs in turn, the
//! other half the pairs with one of the features that chance combines least.

use gradiff_corpus::{
    BinaryOp, DType, Distribution, Fill, Literal, Operand, ReduceOp, Shape, Statement, ValueId,
};

use crate::fact::{self, Fact};
use crate::features::{Feature, Pairs, of_statement};
use crate::programs::Builder;
use crate::sources::Need;
use crate::{Choices, Op, edges, shapes};

/// One of this many programs begins with a pair.
const EVERY: u64 = 3;

/// Number of attempts at a feature before it is given up.
const TRIES: usize = 16;

/// The features with the most missing pairs after 2,500 programs without steering, except for the
/// features of large programs, which cost time.
const RARE: [&str; 19] = [
    "reduce-of-none",
    "one-hot",
    "product-sum",
    "pow",
    "threefry",
    "sin",
    "cast-to-bool",
    "reshape-splits",
    "recip",
    "nan-values",
    "sqrt",
    "cast-to-narrower-float",
    "cast-float-to-int",
    "subnormal-values",
    "infinite-values",
    "div",
    "negative-zero",
    "log2",
    "value-and-its-reduction",
];

/// The distance of successive pairs. It is coprime to the counts of pairs below, so that its
/// multiples visit all of them.
const STRIDE: u64 = 7_919;

/// Returns the pair that program `index` of the run with this seed begins with, if there is one.
pub(crate) fn pair_at(seed: u64, index: u64) -> Option<(Feature, Feature)> {
    if index % EVERY != EVERY - 1 {
        return None;
    }
    let turn = index / EVERY;
    let number = |count: usize| {
        let start = crate::case_seed(seed, u64::MAX) % count as u64;
        (start.wrapping_add((turn / 2).wrapping_mul(STRIDE)) % count as u64) as usize
    };
    Some(if turn.is_multiple_of(2) {
        rare_pair(number(rare_count()))
    } else {
        Pairs::pair(number(Pairs::POSSIBLE))
    })
}

/// Draws a pair, or none, which is the smallest choice.
pub(crate) fn draw_pair(choices: &mut dyn Choices) -> Option<(Feature, Feature)> {
    let is_drawn = choices.one_in(EVERY as u32);
    // Drawn in any case, so that the program after it stays the same without a pair.
    let number = choices.below((rare_count() + Pairs::POSSIBLE) as u32) as usize;
    is_drawn.then(|| match number.checked_sub(rare_count()) {
        None => rare_pair(number),
        Some(number) => Pairs::pair(number),
    })
}

fn rare_count() -> usize {
    RARE.len() * Feature::COUNT
}

fn rare_pair(number: usize) -> (Feature, Feature) {
    let rare = Feature::from_name(RARE[number % RARE.len()]);
    let second = Feature::all().nth(number / RARE.len());
    let second = second.expect("the number is below the count of rare features times all");
    (rare.expect("the table has names of features only"), second)
}

/// A state of a program under construction, to roll back to.
pub(crate) struct Checkpoint {
    count: usize,
    used: Vec<bool>,
    limit: usize,
}

impl Builder<'_> {
    /// Adds a statement with the first feature and one with the second. The second uses the first
    /// or, failing that, a third statement uses both.
    pub(crate) fn steer(&mut self, (first, second): (Feature, Feature)) {
        let (first, second) = if is_data(second) || self.choices.one_in(2) && !is_data(first) {
            (second, first)
        } else {
            (first, second)
        };
        let Some(x) = self.with_feature(first, None) else { return };
        if !is_data(second) && self.with_feature(second, Some(x)).is_some() {
            return;
        }
        // New data for the second feature have the shape of the first value, so that both can be
        // combined.
        self.partner_shape = Some(self.type_of(x).shape.clone());
        let y = self.with_feature(second, None);
        self.partner_shape = None;
        if let Some(y) = y {
            self.combine(x, y);
        }
    }

    /// Adds a value whose statement has the feature, on `src` if it is given and fits. Adds nothing
    /// if all attempts fail.
    fn with_feature(&mut self, feature: Feature, src: Option<ValueId>) -> Option<ValueId> {
        for _ in 0..TRIES {
            let checkpoint = self.checkpoint();
            let result = self.attempt(feature, src);
            let found = result.and_then(|_| self.newest_with(feature, checkpoint.count));
            if found.is_some() {
                return found;
            }
            self.roll_back(checkpoint);
        }
        None
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint { count: self.statements.len(), used: self.used.clone(), limit: self.limit }
    }

    pub(crate) fn roll_back(&mut self, checkpoint: Checkpoint) {
        self.statements.truncate(checkpoint.count);
        self.types.truncate(checkpoint.count);
        self.facts.truncate(checkpoint.count);
        self.used = checkpoint.used;
        self.limit = checkpoint.limit;
    }

    /// Returns the newest usable value, not older than `start`, whose statement has the feature.
    fn newest_with(&self, feature: Feature, start: usize) -> Option<ValueId> {
        let mut uses = vec![0; self.statements.len()];
        let mut found = None;
        for (number, statement) in self.statements.iter().enumerate() {
            let is_new = start <= number && !self.facts[number].poison;
            let has = || of_statement(&self.statements, &self.types, &uses, number).has(feature);
            if is_new && has() {
                found = Some(ValueId(number as u32));
            }
            statement.for_each_source(|src| uses[src.0 as usize] += 1);
        }
        found
    }

    /// Adds statements that may have the feature, on `src` if it is given and fits.
    fn attempt(&mut self, feature: Feature, src: Option<ValueId>) -> Option<ValueId> {
        if let Some(dtype) = feature.dtype() {
            return self.of_dtype(dtype, src);
        }
        if is_data(feature) {
            return self.special_data(feature);
        }
        if let Some(op) = feature.op() {
            let src = match src {
                Some(src) => src,
                None => self.source_for(op)?,
            };
            return self.apply_to(op, src);
        }
        let src = match src {
            Some(src) => src,
            None => self.source()?,
        };
        self.structure(feature.name(), src)
    }

    /// Adds a cast of the value to this dtype, or new data of the dtype.
    fn of_dtype(&mut self, dtype: DType, src: Option<ValueId>) -> Option<ValueId> {
        let Some(src) = src else {
            let shape = self.steered_shape();
            let (statement, fact) = self.fresh(dtype, shape);
            return self.has_room(1).then(|| self.push(statement, fact));
        };
        let fact = fact::cast(&self.fact(src), self.type_of(src).dtype, dtype, self.policy)?;
        self.has_room(1).then(|| self.push(Statement::Cast { src, dtype }, fact))
    }

    fn steered_shape(&mut self) -> Shape {
        match self.partner_shape.clone() {
            Some(shape) => shape,
            None => self.palette.shape(self.choices, self.max_rank, self.limit),
        }
    }

    /// Adds data of any dtype.
    fn source(&mut self) -> Option<ValueId> {
        let (shape, dtype) = (self.steered_shape(), self.dtype());
        let (statement, fact) = self.fresh(dtype, shape);
        self.has_room(1).then(|| self.push(statement, fact))
    }

    /// Adds data of a dtype that the op takes.
    fn source_for(&mut self, op: Op) -> Option<ValueId> {
        let dtype = if op.needs_float() {
            self.choices.pick(&[DType::F32, DType::F64, DType::F16, DType::BF16])
        } else if op == Op::Binary(BinaryOp::Threefry) {
            DType::U64
        } else if op.needs_int() {
            self.choices.pick(&[DType::I32, DType::I64, DType::U8, DType::U32, DType::I16])
        } else {
            return self.source();
        };
        let shape = self.steered_shape();
        let is_positive = op.needs_float() && self.choices.below(2) == 0;
        let (statement, fact) = match is_positive {
            true => self.seeded(dtype, shape, Distribution::Positive),
            false => self.fresh(dtype, shape),
        };
        self.has_room(1).then(|| self.push(statement, fact))
    }

    /// Adds data with a special value among them, a constant or a range.
    fn special_data(&mut self, feature: Feature) -> Option<ValueId> {
        let shape = self.steered_shape();
        let count = shapes::count(&shape);
        let floats = [DType::F32, DType::F64, DType::F16, DType::BF16];
        let (statement, fact) = match feature.name() {
            "constant" => {
                let dtype = self.dtype();
                let value = self.literal(dtype, Need::Any);
                let fact = fact::of_literal(dtype, &value);
                (Statement::Const { dtype, shape, value }, fact)
            }
            "range" => {
                let dtype = self.choices.pick(&[DType::I32, DType::I64, DType::F32, DType::U8]);
                let fact = fact::of_iota(dtype, count);
                (Statement::Input { dtype, shape, fill: Fill::Iota }, fact)
            }
            "beyond-2^31" => {
                let dtype = self.choices.pick(&[DType::I64, DType::U64, DType::U32, DType::I32]);
                let kind = self.choices.pick(&[Distribution::Wide, Distribution::Special]);
                self.seeded(dtype, shape, kind)
            }
            "halfway-values" => {
                if count > 128 {
                    return None;
                }
                self.edge_data(shape)
            }
            _ => {
                let dtype = self.choices.pick(&floats);
                self.seeded(dtype, shape, Distribution::Special)
            }
        };
        self.has_room(1).then(|| self.push(statement, fact))
    }

    /// Adds statements on the value that may have the property of this name.
    fn structure(&mut self, name: &str, src: ValueId) -> Option<ValueId> {
        let reduction = self.choices.pick(&[ReduceOp::Sum, ReduceOp::Max, ReduceOp::Prod]);
        match name {
            "cast-int-to-float"
            | "cast-float-to-int"
            | "cast-to-narrower-float"
            | "cast-to-bool" => {
                let dtype = self.choices.pick(&DType::ALL);
                self.of_dtype(if name == "cast-to-bool" { DType::Bool } else { dtype }, Some(src))
            }
            "pad-with-number" => self.apply_to(Op::Pad, src),
            "reshape-splits" | "reshape-merges" | "rank-4-or-more" => {
                self.apply_to(Op::Reshape, src)
            }
            "product-sum" => self.contraction(),
            "value-and-its-reduction" => self.combine_with_reduction(reduction, src),
            "one-hot" => self.one_hot_of(src),
            "reduce-of-none" => {
                let empty = self.emptied(src)?;
                self.apply_to(Op::Reduce(reduction), empty)
            }
            "empty" => self.emptied(src),
            "scalar" => {
                let axes = (0..self.type_of(src).shape.len()).collect();
                let fact = self.fact(src);
                let src = self.push_if(Statement::Reduce { op: ReduceOp::Max, src, axes }, fact)?;
                self.push_if(Statement::Reshape { src, shape: Shape::new() }, fact)
            }
            _ if name.starts_with("reduce-") => self.apply_to(Op::Reduce(reduction), src),
            "shared-value" | "same-value-twice" | "broadcast" | "promotion" | "literal" => {
                let op = self.choices.pick(&[
                    Op::Binary(BinaryOp::Add),
                    Op::Binary(BinaryOp::Max),
                    Op::Where,
                    Op::MulAcc,
                ]);
                self.apply_to(op, src)
            }
            _ => self.enlarged(name, src),
        }
    }

    /// Repeats the value along a new axis, or pads it, to a size that may have the property.
    fn enlarged(&mut self, name: &str, src: ValueId) -> Option<ValueId> {
        const SIZES: [usize; 12] = [16, 8, 7, 9, 15, 17, 5, 31, 32, 33, 13, 11];
        let (shape, fact) = (self.type_of(src).shape.clone(), self.fact(src));
        let count = shapes::count(&shape).max(1);
        let size = match name {
            "over-128-elements" => 129usize.div_ceil(count) + self.choices.below(4) as usize,
            "over-1024-elements" => 1025usize.div_ceil(count) + self.choices.below(4) as usize,
            _ => self.choices.pick(&SIZES),
        };
        let axis = if self.choices.one_in(2) { shape.len() } else { 0 };
        if let Some(last) = shape.len().checked_sub(1)
            && name != "over-1024-elements"
            && self.choices.one_in(2)
            && shape[last] < size
        {
            let mut pads = vec![(0, 0); shape.len()];
            let before = self.choices.below((size - shape[last]) as u32 + 1) as usize;
            pads[last] = (before, size - shape[last] - before);
            let value = crate::idioms::scalar_literal(self.type_of(src).dtype, 0.0);
            let joined = fact.join(&Fact { raw: true, ..Fact::exact(0.0, 0.0, 0) });
            return self.push_if(Statement::Pad { src, pads, value }, joined);
        }
        let mut to = shape;
        to.insert(axis, 1);
        let src = self.push_if(Statement::Reshape { src, shape: to.clone() }, fact)?;
        to[axis] = size;
        self.push_if(Statement::Expand { src, shape: to }, fact)
    }

    /// Shrinks one axis of the value to size 0.
    fn emptied(&mut self, src: ValueId) -> Option<ValueId> {
        let shape = self.type_of(src).shape.clone();
        let axis = self.choices.below(shape.len().max(1) as u32) as usize;
        let mut ranges: Vec<(usize, usize)> = shape.iter().map(|size| (0, *size)).collect();
        *ranges.get_mut(axis)? = (0, 0);
        self.push_if(Statement::Shrink { src, ranges }, self.fact(src))
    }

    /// Adds an op on the value and its reduction.
    fn combine_with_reduction(&mut self, op: ReduceOp, src: ValueId) -> Option<ValueId> {
        let is_reducible = shapes::count(&self.type_of(src).shape) > 1;
        let reduction = self.apply_to(Op::Reduce(op), src).filter(|_| is_reducible)?;
        let op = self.choices.pick(&[BinaryOp::Max, BinaryOp::Sub, BinaryOp::CmpEq]);
        let fact = self.binary_fact(op, &self.value_source(src), &self.value_source(reduction))?;
        let srcs = [src, reduction].map(Operand::Value);
        self.push_if(Statement::Binary { op, srcs }, fact)
    }

    /// Adds a comparison of the value with a range along a new last axis.
    fn one_hot_of(&mut self, src: ValueId) -> Option<ValueId> {
        let (fact, mut shape) = (self.fact(src), self.type_of(src).shape.clone());
        if !fact::decided(&fact, self.policy) || self.type_of(src).dtype == DType::Bool {
            return None;
        }
        let classes = self.choices.pick(&[4, 2, 8, 3, 5, 16]);
        shape.push(1);
        let index = match shape.len() {
            1 => src,
            _ => self.push_if(Statement::Reshape { src, shape }, fact)?,
        };
        let dtype = self.choices.pick(&[DType::I32, DType::I64]);
        let range = Statement::Arange { dtype, start: 0, step: 1, count: classes };
        let range = self.push_if(range, fact::of_iota(dtype, classes))?;
        let op = BinaryOp::CmpEq;
        let fact = self.binary_fact(op, &self.value_source(index), &self.value_source(range))?;
        let srcs = [index, range].map(Operand::Value);
        self.push_if(Statement::Binary { op, srcs }, fact)
    }

    /// Adds the statement if it is well typed, there is room for it and its value fits.
    fn push_if(&mut self, statement: Statement, fact: Fact) -> Option<ValueId> {
        let tensor = gradiff_corpus::statement_type(&statement, &self.types).ok()?;
        let fits = tensor.shape.len() <= self.max_rank && tensor.count() <= self.limit;
        (self.has_room(1) && fits).then(|| self.push(statement, fact))
    }

    /// Adds a statement that uses both values: a `where` or a concatenation.
    fn combine(&mut self, x: ValueId, y: ValueId) -> Option<ValueId> {
        let joined = self.fact(x).join(&self.fact(y));
        let fact = Fact { raw: false, ..joined };
        let (a, b) = (self.type_of(x).clone(), self.type_of(y).clone());
        let axis = self.choices.below(a.shape.len().max(1) as u32) as usize;
        if a.dtype == b.dtype && self.choices.one_in(2) {
            let cat = Statement::Cat { srcs: vec![x, y], axis };
            if let Some(found) = self.push_if(cat, joined) {
                return Some(found);
            }
        }
        let test = Literal::Bool(self.choices.one_in(2));
        let test = match self.new_source(DType::Bool, &a.shape, Need::Any) {
            Some(test) if self.choices.below(8) < 7 => self.admit(test),
            _ => Operand::Literal(test),
        };
        let srcs = [test, Operand::Value(x), Operand::Value(y)];
        if a.dtype != b.dtype {
            fact::cast(&joined, a.dtype, gradiff_corpus::promote(a.dtype, b.dtype), self.policy)?;
        }
        self.push_if(Statement::Where { srcs }, fact)
    }

    /// Draws boundary values of conversions, of this shape.
    fn edge_data(&mut self, shape: Shape) -> (Statement, Fact) {
        let path = self.edge_path();
        edges::data(self.choices, &path, shape)
    }
}

/// Returns whether only statements without sources have the feature.
fn is_data(feature: Feature) -> bool {
    let name = feature.name();
    name.ends_with("-values")
        || matches!(name, "constant" | "range" | "negative-zero" | "beyond-2^31")
}

/// Returns whether a program with this feature must allow NaN and infinities.
pub(crate) fn is_special(feature: Feature) -> bool {
    matches!(
        feature.name(),
        "nan-values" | "infinite-values" | "negative-zero" | "subnormal-values"
    )
}

/// Returns the minimum limit of elements for a program with this feature.
pub(crate) fn min_limit(feature: Feature) -> usize {
    match feature.name() {
        "over-1024-elements" => 1200,
        "over-128-elements" => 300,
        _ => 0,
    }
}
