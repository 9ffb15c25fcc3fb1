//! Makes programs that have a given pair of features close together: what chance alone brings too
//! rarely. One third of all programs begins so, and goes on like any other.
//!
//! Programs of a run are numbered, so their pairs are: half of them go through all pairs in turn,
//! the other half through those that have one of the features that chance combines least.

use gradiff_corpus::{
    BinaryOp, DType, Distribution, Fill, Literal, Operand, ReduceOp, Shape, Statement, ValueId,
};

use crate::fact::{self, Fact};
use crate::features::{Feature, Pairs, of_statement};
use crate::programs::Builder;
use crate::sources::Need;
use crate::{Choices, Op, edges, shapes};

/// Every so many programs one begins with a pair.
const EVERY: u64 = 3;

/// Tries for a feature before it is given up.
const TRIES: usize = 16;

/// The features whose pairs are missed most often after 2,500 programs without this, but for many
/// elements, which cost time.
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
    "row-beside-its-reduction",
];

/// Coprime to the counts of pairs below, so that steps of it meet all of them.
const STRIDE: u64 = 7_919;

/// The pair that program `index` of the run with this seed begins with, if it does with one.
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

/// A pair that is drawn; none is the smallest choice.
pub(crate) fn draw_pair<C: Choices>(choices: &mut C) -> Option<(Feature, Feature)> {
    if !choices.one_in(EVERY as u32) {
        return None;
    }
    let number = choices.below((rare_count() + Pairs::POSSIBLE) as u32) as usize;
    Some(match number.checked_sub(rare_count()) {
        None => rare_pair(number),
        Some(number) => Pairs::pair(number),
    })
}

fn rare_count() -> usize {
    RARE.len() * Feature::COUNT
}

fn rare_pair(number: usize) -> (Feature, Feature) {
    let rare = Feature::from_name(RARE[number % RARE.len()]);
    let other = Feature::all().nth(number / RARE.len());
    (rare.expect("the table lists it"), other.expect("numbers end where features do"))
}

/// How far a program under construction has come.
struct Mark {
    count: usize,
    used: Vec<bool>,
}

impl<C: Choices> Builder<'_, C> {
    /// A statement with the first feature, and one with the second on it or beside it.
    pub(crate) fn steer(&mut self, (first, second): (Feature, Feature)) {
        let (first, second) = if is_data(second) || self.choices.one_in(2) && !is_data(first) {
            (second, first)
        } else {
            (first, second)
        };
        let Some(one) = self.with_feature(first, None) else { return };
        if !is_data(second) && self.with_feature(second, Some(one)).is_some() {
            return;
        }
        // Beside it: of the same shape where data have the feature, and then both in one statement.
        self.beside = Some(self.type_of(one).shape.clone());
        let other = self.with_feature(second, None);
        self.beside = None;
        if let Some(other) = other {
            self.meet(one, other);
        }
    }

    /// A new value whose statement has the feature; nothing is added if none comes of it.
    fn with_feature(&mut self, feature: Feature, on: Option<ValueId>) -> Option<ValueId> {
        for _ in 0..TRIES {
            let mark = self.mark();
            let made = self.attempt(feature, on);
            let found = made.and_then(|_| self.newest_with(feature, mark.count));
            if found.is_some() {
                return found;
            }
            self.back_to(mark);
        }
        None
    }

    fn mark(&self) -> Mark {
        Mark { count: self.statements.len(), used: self.used.clone() }
    }

    fn back_to(&mut self, mark: Mark) {
        self.statements.truncate(mark.count);
        self.types.truncate(mark.count);
        self.facts.truncate(mark.count);
        self.used = mark.used;
    }

    /// The newest value since `from` whose statement has the feature and that may be used.
    fn newest_with(&self, feature: Feature, from: usize) -> Option<ValueId> {
        let mut uses = vec![0; self.statements.len()];
        let mut found = None;
        for (number, statement) in self.statements.iter().enumerate() {
            let is_new = from <= number && !self.facts[number].poison;
            let has = || of_statement(&self.statements, &self.types, &uses, number).has(feature);
            if is_new && has() {
                found = Some(ValueId(number as u32));
            }
            statement.for_each_source(|src| uses[src.0 as usize] += 1);
        }
        found
    }

    /// Adds what may have the feature, on the value if there is one and it has a use for it.
    fn attempt(&mut self, feature: Feature, on: Option<ValueId>) -> Option<ValueId> {
        if let Some(dtype) = feature.dtype() {
            return self.of_dtype(dtype, on);
        }
        if is_data(feature) {
            return self.special_data(feature);
        }
        if let Some(op) = feature.op() {
            let on = match on {
                Some(on) => on,
                None => self.source_for(op)?,
            };
            return self.apply_to(op, on);
        }
        let on = match on {
            Some(on) => on,
            None => self.source()?,
        };
        self.structure(feature.name(), on)
    }

    /// The value in this dtype, or data of it.
    fn of_dtype(&mut self, dtype: DType, on: Option<ValueId>) -> Option<ValueId> {
        let Some(on) = on else {
            let shape = self.steered_shape();
            let (statement, fact) = self.fresh(dtype, shape);
            return self.has_room(1).then(|| self.push(statement, fact));
        };
        let fact = fact::cast(&self.fact(on), self.type_of(on).dtype, dtype, self.policy)?;
        self.has_room(1).then(|| self.push(Statement::Cast { src: on, dtype }, fact))
    }

    fn steered_shape(&mut self) -> Shape {
        match self.beside.clone() {
            Some(shape) => shape,
            None => self.palette.shape(self.choices, self.config.max_rank, self.limit),
        }
    }

    /// Any data.
    fn source(&mut self) -> Option<ValueId> {
        let (shape, dtype) = (self.steered_shape(), self.dtype());
        let (statement, fact) = self.fresh(dtype, shape);
        self.has_room(1).then(|| self.push(statement, fact))
    }

    /// Data that the op takes.
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
        let positive = op.needs_float() && self.choices.below(2) == 0;
        let (statement, fact) = match positive {
            true => self.seeded(dtype, shape, Distribution::Positive),
            false => self.fresh(dtype, shape),
        };
        self.has_room(1).then(|| self.push(statement, fact))
    }

    /// Data with a special value among them, a constant or a range.
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

    /// A statement on the value that may have this structure, size or kind of conversion.
    fn structure(&mut self, name: &str, on: ValueId) -> Option<ValueId> {
        let reduction = self.choices.pick(&[ReduceOp::Sum, ReduceOp::Max, ReduceOp::Prod]);
        match name {
            "cast-int-to-float"
            | "cast-float-to-int"
            | "cast-to-narrower-float"
            | "cast-to-bool" => {
                let dtype = self.choices.pick(&DType::ALL);
                self.of_dtype(if name == "cast-to-bool" { DType::Bool } else { dtype }, Some(on))
            }
            "pad-with-number" => self.apply_to(Op::Pad, on),
            "reshape-splits" | "reshape-merges" | "rank-4-or-more" => {
                self.apply_to(Op::Reshape, on)
            }
            "product-sum" => self.contraction(),
            "row-beside-its-reduction" => self.beside_own_row(reduction, on),
            "one-hot" => self.one_hot_of(on),
            "reduce-of-none" => {
                let empty = self.emptied(on)?;
                self.apply_to(Op::Reduce(reduction), empty)
            }
            "empty" => self.emptied(on),
            "scalar" => {
                let axes = (0..self.type_of(on).shape.len()).collect();
                let fact = self.fact(on);
                let src =
                    self.push_if(Statement::Reduce { op: ReduceOp::Max, src: on, axes }, fact)?;
                self.push_if(Statement::Reshape { src, shape: Shape::new() }, fact)
            }
            _ if name.starts_with("reduce-") => self.apply_to(Op::Reduce(reduction), on),
            "shared-value" | "same-value-twice" | "broadcast" | "promotion" | "literal" => {
                let op = self.choices.pick(&[
                    Op::Binary(BinaryOp::Add),
                    Op::Binary(BinaryOp::Max),
                    Op::Where,
                    Op::MulAcc,
                ]);
                self.apply_to(op, on)
            }
            _ => self.enlarged(name, on),
        }
    }

    /// The value repeated along a new or an old axis, or padded, until it has the size.
    fn enlarged(&mut self, name: &str, on: ValueId) -> Option<ValueId> {
        const SIZES: [usize; 12] = [16, 8, 7, 9, 15, 17, 5, 31, 32, 33, 13, 11];
        let (shape, fact) = (self.type_of(on).shape.clone(), self.fact(on));
        let count = shapes::count(&shape).max(1);
        let size = match name {
            "over-128-elements" => 129usize.div_ceil(count) + self.choices.below(4) as usize,
            "over-1024-elements" => 1025usize.div_ceil(count) + self.choices.below(4) as usize,
            _ => self.choices.pick(&SIZES),
        };
        let axis = if self.choices.one_in(2) { shape.len() } else { 0 };
        if let Some(at) = shape.len().checked_sub(1)
            && name != "over-1024-elements"
            && self.choices.one_in(2)
            && shape[at] < size
        {
            let mut pads = vec![(0, 0); shape.len()];
            let begin = self.choices.below((size - shape[at]) as u32 + 1) as usize;
            pads[at] = (begin, size - shape[at] - begin);
            let value = crate::idioms::number(self.type_of(on).dtype, 0.0);
            let joined = fact.join(&Fact { raw: true, ..Fact::exact(0.0, 0.0, 0) });
            return self.push_if(Statement::Pad { src: on, pads, value }, joined);
        }
        let mut to = shape;
        to.insert(axis, 1);
        let src = self.push_if(Statement::Reshape { src: on, shape: to.clone() }, fact)?;
        to[axis] = size;
        self.push_if(Statement::Expand { src, shape: to }, fact)
    }

    /// Nothing of the value: one axis cut to none.
    fn emptied(&mut self, on: ValueId) -> Option<ValueId> {
        let shape = self.type_of(on).shape.clone();
        let axis = self.choices.below(shape.len().max(1) as u32) as usize;
        let mut ranges: Vec<(usize, usize)> = shape.iter().map(|size| (0, *size)).collect();
        *ranges.get_mut(axis)? = (0, 0);
        self.push_if(Statement::Shrink { src: on, ranges }, self.fact(on))
    }

    /// The value and its reduction along an axis in one op.
    fn beside_own_row(&mut self, op: ReduceOp, on: ValueId) -> Option<ValueId> {
        let axes = shapes::count(&self.type_of(on).shape) > 1;
        let row = self.apply_to(Op::Reduce(op), on).filter(|_| axes)?;
        let op = self.choices.pick(&[BinaryOp::Max, BinaryOp::Sub, BinaryOp::CmpEq]);
        let fact = self.binary_fact(op, &self.value_source(on), &self.value_source(row))?;
        let srcs = [on, row].map(Operand::Value);
        self.push_if(Statement::Binary { op, srcs }, fact)
    }

    /// The value compared with a range along a new last axis.
    fn one_hot_of(&mut self, on: ValueId) -> Option<ValueId> {
        let (fact, mut shape) = (self.fact(on), self.type_of(on).shape.clone());
        if !fact::decided(&fact, self.policy) || self.type_of(on).dtype == DType::Bool {
            return None;
        }
        let classes = self.choices.pick(&[4, 2, 8, 3, 5, 16]);
        shape.push(1);
        let index = match shape.len() {
            1 => on,
            _ => self.push_if(Statement::Reshape { src: on, shape }, fact)?,
        };
        let dtype = self.choices.pick(&[DType::I32, DType::I64]);
        let range = Statement::Arange { dtype, start: 0, step: 1, count: classes };
        let range = self.push_if(range, fact::of_iota(dtype, classes))?;
        let op = BinaryOp::CmpEq;
        let known = self.binary_fact(op, &self.value_source(index), &self.value_source(range))?;
        let srcs = [index, range].map(Operand::Value);
        self.push_if(Statement::Binary { op, srcs }, known)
    }

    /// Adds the statement if there is room and its value fits.
    fn push_if(&mut self, statement: Statement, fact: Fact) -> Option<ValueId> {
        let of = gradiff_corpus::statement_type(&statement, &self.types).ok()?;
        let fits = of.shape.len() <= self.config.max_rank && of.count() <= self.limit;
        (self.has_room(1) && fits).then(|| self.push(statement, fact))
    }

    /// Both values as sources of one statement: chosen between, or one behind the other.
    fn meet(&mut self, one: ValueId, other: ValueId) -> Option<ValueId> {
        let known = self.fact(one).join(&self.fact(other));
        let fact = Fact { raw: false, ..known };
        let (a, b) = (self.type_of(one).clone(), self.type_of(other).clone());
        let axis = self.choices.below(a.shape.len().max(1) as u32) as usize;
        if a.dtype == b.dtype && self.choices.one_in(2) {
            let cat = Statement::Cat { srcs: vec![one, other], axis };
            if let Some(found) = self.push_if(cat, known) {
                return Some(found);
            }
        }
        let test = Literal::Bool(self.choices.one_in(2));
        let test = match self.new_source(DType::Bool, &a.shape, Need::Any) {
            Some(test) if self.choices.below(8) < 7 => self.admit(test),
            _ => Operand::Literal(test),
        };
        let srcs = [test, Operand::Value(one), Operand::Value(other)];
        if a.dtype != b.dtype {
            fact::cast(&known, a.dtype, gradiff_corpus::promote(a.dtype, b.dtype), self.policy)?;
        }
        self.push_if(Statement::Where { srcs }, fact)
    }

    /// Data for conversions, of this shape.
    fn edge_data(&mut self, shape: Shape) -> (Statement, Fact) {
        let path = self.edge_path();
        edges::data(self.choices, &path, shape)
    }
}

/// Whether the feature is one of data alone.
fn is_data(feature: Feature) -> bool {
    let name = feature.name();
    name.ends_with("-values")
        || matches!(name, "constant" | "range" | "negative-zero" | "beyond-2^31")
}

/// Whether a program with this feature must put up with NaN and infinities.
pub(crate) fn is_special(feature: Feature) -> bool {
    matches!(
        feature.name(),
        "nan-values" | "infinite-values" | "negative-zero" | "subnormal-values"
    )
}

/// Elements that a program with this feature needs room for.
pub(crate) fn least_limit(feature: Feature) -> usize {
    match feature.name() {
        "over-1024-elements" => 1200,
        "over-128-elements" => 300,
        _ => 0,
    }
}
