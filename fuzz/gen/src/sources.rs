//! Draws the sources of statements: inputs, constants, literals and second operands.

use gradiff_corpus::{
    BinaryOp, DType, Distribution, Fill, Literal, Operand, Shape, Statement, ValueId, literal_bits,
};

use crate::Lane;
use crate::fact::{self, Fact};
use crate::programs::Builder;
use crate::shapes;

/// The values that an operand must have for the op to be defined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Need {
    /// Any values.
    Any,
    /// Values other than 0.
    Divisor,
    /// A shift amount: an integer in 0..bits.
    Amount(u32),
    /// A small exponent.
    Exponent,
}

impl Need {
    fn is_met(self, fact: &Fact, dtype: DType) -> bool {
        match self {
            Need::Any => true,
            Need::Divisor => fact.away > 4.0 * fact.err && !(dtype.is_int() && fact.away < 1.0),
            Need::Amount(bits) => 0.0 <= fact.lo && fact.hi < bits as f64,
            Need::Exponent => fact.magnitude() <= 4.0 && fact.err < 0.01,
        }
    }
}

/// An operand that is not part of the program yet.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) origin: Origin,
    /// `None` for a literal: it takes the dtype of the other operands.
    pub(crate) dtype: Option<DType>,
    pub(crate) shape: Shape,
    pub(crate) fact: Fact,
}

/// The bits of a literal that suits the dtype, as data, and their fact.
pub(crate) fn element(dtype: DType, literal: &Literal) -> (u64, Fact) {
    let bits = literal_bits(dtype, literal).expect("the literal suits the dtype");
    (bits, Fact { raw: true, ..fact::of_literal(dtype, literal) })
}

/// An input of these elements, and its fact.
pub(crate) fn listed(dtype: DType, shape: Shape, elements: Vec<(u64, Fact)>) -> (Statement, Fact) {
    let (bits, facts): (Vec<u64>, Vec<Fact>) = elements.into_iter().unzip();
    let joined = facts.into_iter().reduce(|joined, fact| joined.join(&fact));
    let fact = joined.unwrap_or_else(|| Fact::exact(0.0, 0.0, 0));
    (Statement::Input { dtype, shape, fill: Fill::Explicit(bits) }, fact)
}

/// The origin of an operand.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Literal(Literal),
    Value(ValueId),
    /// A statement that must be added before the op.
    New(Statement),
}

impl Builder<'_> {
    /// Draws data of this type and their fact: mostly an input, else a constant or a range.
    pub(crate) fn fresh(&mut self, dtype: DType, shape: Shape) -> (Statement, Fact) {
        let ranges = if self.lane == Lane::NegativeIndex { 2 } else { 4 };
        if dtype.is_int() && shape.len() == 1 && self.choices.one_in(ranges) {
            return self.arange(dtype, shape[0]);
        }
        if self.choices.one_in(10) {
            let value = self.literal(dtype, Need::Any);
            let fact = fact::of_literal(dtype, &value);
            return (Statement::Const { dtype, shape, value }, fact);
        }
        let count = shapes::count(&shape);
        if count <= 8 && self.choices.one_in(6) {
            return self.explicit(dtype, shape);
        }
        let Some(distribution) = self.distribution(dtype) else {
            let fact = fact::of_iota(dtype, count);
            return (Statement::Input { dtype, shape, fill: Fill::Iota }, fact);
        };
        self.seeded(dtype, shape, distribution)
    }

    /// Draws seeded data and their fact.
    pub(crate) fn seeded(
        &mut self,
        dtype: DType,
        shape: Shape,
        distribution: Distribution,
    ) -> (Statement, Fact) {
        let seed = self.choices.below(256) as u64;
        let fill = Fill::Seeded { seed, distribution };
        let fact = fact::of_distribution(dtype, distribution);
        (Statement::Input { dtype, shape, fill }, fact)
    }

    /// Draws a distribution of this lane; `None` is 0, 1, 2, ...
    fn distribution(&mut self, dtype: DType) -> Option<Distribution> {
        use Distribution::*;
        let kinds = match self.lane {
            Lane::Exact => [None, Some(Small), Some(Dyadic), Some(Positive), Some(Small)],
            Lane::Wrap => [Some(Wide), Some(Special), Some(Unit), Some(Wide), Some(Small)],
            Lane::NegativeIndex => [Some(Unit), Some(Small), Some(Wide), None, Some(Special)],
            Lane::IllConditioned => {
                [Some(Wide), Some(Unit), Some(Dyadic), Some(Positive), Some(Unit)]
            }
            Lane::Special => [Some(Special), Some(Unit), Some(Special), Some(Small), Some(Wide)],
            Lane::Casts => [Some(Small), Some(Unit), None, Some(Wide), Some(Positive)],
            Lane::Movement => [None, Some(Small), Some(Positive), Some(Unit), Some(Dyadic)],
            Lane::State => [Some(Small), Some(Unit), None, Some(Positive), Some(Wide)],
            Lane::Methods => [Some(Small), Some(Unit), None, Some(Special), Some(Dyadic)],
            // Small numbers have ties, and zeros, where functions have kinks.
            Lane::Gradients => [Some(Small), Some(Unit), Some(Small), Some(Dyadic), Some(Positive)],
            Lane::Idioms => [Some(Small), Some(Unit), Some(Dyadic), Some(Positive), Some(Unit)],
            Lane::Edges => [Some(Special), Some(Wide), Some(Small), Some(Special), Some(Unit)],
        };
        let kind = self.choices.pick(&kinds);
        // Raw extremes outside their lane would end most chains of arithmetic.
        if self.lane == Lane::Casts && dtype.is_float() && self.choices.one_in(12) {
            return Some(Special);
        }
        kind
    }

    fn arange(&mut self, dtype: DType, count: usize) -> (Statement, Fact) {
        let (start, step) = if self.lane == Lane::NegativeIndex && dtype.is_signed() {
            let start = self.choices.pick(&[0, -1, 5, -7, 100, -128, 127, -1000, 1 << 20]);
            (start, self.choices.pick(&[1, -1, 2, -2, 3, -3, 7, -7, 0, 64, 1 << 16]))
        } else {
            (self.choices.pick(&[0, 1, 2, 5]), self.choices.pick(&[1, 2, 0, 3]))
        };
        let last = start + step * (count.saturating_sub(1) as i64);
        let (lo, hi) = fact::range(dtype);
        let fits = lo <= start.min(last) as f64 && start.max(last) as f64 <= hi;
        let fact = if fits {
            Fact::exact(start.min(last) as f64, start.max(last) as f64, 0)
        } else {
            Fact::whole(dtype)
        };
        (Statement::Arange { dtype, start, step, count }, fact)
    }

    /// Draws listed elements: literals of the lane, and any bit patterns in the special lane.
    fn explicit(&mut self, dtype: DType, shape: Shape) -> (Statement, Fact) {
        let count = shapes::count(&shape);
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            let allows_patterns = self.lane == Lane::Special && dtype != DType::Bool;
            elements.push(if allows_patterns && self.choices.one_in(3) {
                let size_bits = 8 * dtype.size_bytes() as u32;
                let pattern = self.choices.bits() >> (64 - size_bits);
                let is_int = dtype.is_int();
                (pattern, if is_int { Fact::whole(dtype) } else { Fact::patterns(dtype) })
            } else {
                element(dtype, &self.literal(dtype, Need::Any))
            });
        }
        listed(dtype, shape, elements)
    }

    /// Draws a literal of the dtype that suits the lane and the need.
    pub(crate) fn literal(&mut self, dtype: DType, need: Need) -> Literal {
        if dtype == DType::Bool {
            return Literal::Bool(self.choices.below(2) == 1);
        }
        if dtype.is_int() {
            return Literal::Int(self.int_literal(dtype, need));
        }
        Literal::Float(match (need, self.lane) {
            (Need::Divisor, _) => self.choices.pick(&[2.0, 0.5, -2.0, 4.0, 3.0, -0.25, 1.0]),
            (Need::Exponent, _) => self.choices.pick(&[2.0, 0.5, -1.0, 3.0, 1.5, -0.5, 0.0, 1.0]),
            (_, Lane::Special | Lane::Edges) => self.choices.pick(&[
                0.0,
                1.0,
                -0.0,
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                -1.0,
                2.0,
                0.5,
            ]),
            (_, Lane::Exact | Lane::Movement) => {
                self.choices.pick(&[0.0, 1.0, 2.0, 0.5, -1.0, -2.0, 1.5, -0.25, 3.0, 4.0])
            }
            _ => self.choices.pick(&[1.0, 0.3, -0.7, 2.5, 0.0, 1.1, -1.0, 0.01, 7.0, -3.3]),
        })
    }

    fn int_literal(&mut self, dtype: DType, need: Need) -> i128 {
        let bits = 8 * dtype.size_bytes() as u32;
        let value = match need {
            Need::Amount(bits) => return self.choices.below(bits) as i128,
            Need::Divisor => self.choices.pick(&[2, 3, 4, 5, 7, 8, 10, -2, -3, 1, -1, 16, 100, -7]),
            _ => self.choices.pick(&[0, 1, 2, 3, -1, 4, -2, 5, 7, -3]),
        };
        let value: i128 = value;
        if dtype.is_signed() {
            let allows_large =
                matches!(self.lane, Lane::Wrap | Lane::NegativeIndex | Lane::Special | Lane::Edges);
            if allows_large && need == Need::Any && self.choices.one_in(4) {
                let end = 1_i128 << (bits - 1);
                return self.choices.pick(&[end - 1, -end, end / 2, 1 - end, 100, -100]);
            }
            return value;
        }
        if value < 0 && need == Need::Any && self.lane == Lane::Wrap {
            // The largest values: the bit patterns of small negative numbers.
            return (1_i128 << bits) + value;
        }
        value.abs()
    }

    /// Draws a second operand for `first`: a literal, another value, or new data. It broadcasts
    /// with `shape`.
    pub(crate) fn operand(
        &mut self,
        first: ValueId,
        shape: &[usize],
        need: Need,
    ) -> Option<Source> {
        let dtype = self.type_of(first).dtype;
        let limit = self.limit;
        let kind = if need == Need::Any { self.choices.below(16) } else { self.restricted_kind() };
        match kind {
            0..=3 => Some(self.literal_source(dtype, need)),
            4..=8 => {
                let value = self.pick(|tensor, fact| {
                    tensor.dtype == dtype
                        && need.is_met(fact, dtype)
                        && shapes::broadcast(&tensor.shape, shape, limit)
                });
                match value {
                    Some(value) => Some(self.value_source(value)),
                    None => self.new_or_literal(dtype, dtype, shape, need),
                }
            }
            9 if need.is_met(&self.fact(first), dtype) => Some(self.value_source(first)),
            10 => {
                let value = self.pick(|tensor, fact| {
                    need.is_met(fact, tensor.dtype)
                        && shapes::broadcast(&tensor.shape, shape, limit)
                })?;
                Some(self.value_source(value))
            }
            11 | 12 | 9 => self.new_or_literal(dtype, dtype, shape, need),
            13 if need != Need::Any => self.guard(dtype, shape, need),
            _ => {
                let new_dtype = self.dtype();
                self.new_or_literal(new_dtype, dtype, shape, need)
            }
        }
    }

    /// Draws the kind of an operand that must meet a need: literals and guards more often.
    fn restricted_kind(&mut self) -> u32 {
        self.choices.pick(&[0, 0, 0, 4, 13, 11, 13, 14, 10])
    }

    pub(crate) fn literal_source(&mut self, dtype: DType, need: Need) -> Source {
        let literal = self.literal(dtype, need);
        let fact = fact::of_literal(dtype, &literal);
        Source { origin: Origin::Literal(literal), dtype: None, shape: Shape::new(), fact }
    }

    pub(crate) fn value_source(&self, value: ValueId) -> Source {
        let tensor = self.type_of(value);
        Source {
            origin: Origin::Value(value),
            dtype: Some(tensor.dtype),
            shape: tensor.shape.clone(),
            fact: self.fact(value),
        }
    }

    /// Returns an operand as a source. The fact of a literal is that of this dtype.
    pub(crate) fn source_of(&self, operand: Operand, literal_dtype: DType) -> Source {
        match operand {
            Operand::Value(value) => self.value_source(value),
            Operand::Literal(literal) => Source {
                fact: fact::of_literal(literal_dtype, &literal),
                origin: Origin::Literal(literal),
                dtype: None,
                shape: Shape::new(),
            },
        }
    }

    /// Draws new data of type `dtype` or, if there is no room, a literal of `literal_dtype`.
    fn new_or_literal(
        &mut self,
        dtype: DType,
        literal_dtype: DType,
        shape: &[usize],
        need: Need,
    ) -> Option<Source> {
        match self.new_source(dtype, shape, need) {
            None => Some(self.literal_source(literal_dtype, need)),
            found => found,
        }
    }

    /// Draws new data that broadcast with `shape`, if there is room.
    pub(crate) fn new_source(
        &mut self,
        dtype: DType,
        shape: &[usize],
        need: Need,
    ) -> Option<Source> {
        if !self.has_room(2) {
            return None;
        }
        let (max_rank, limit) = (self.max_rank, self.limit);
        let shape = shapes::partner(self.choices, shape, &self.palette, max_rank, limit);
        let (statement, fact) = match need {
            Need::Any => self.fresh(dtype, shape.clone()),
            Need::Exponent => self.seeded(dtype, shape.clone(), Distribution::Unit),
            _ => self.seeded(dtype, shape.clone(), Distribution::Positive),
        };
        Some(Source { origin: Origin::New(statement), dtype: Some(dtype), shape, fact })
    }

    /// Draws a value and restricts it so that it meets the need: integers by `or 1` or
    /// `and bits-1`, floats by `max 1/2`.
    fn guard(&mut self, dtype: DType, shape: &[usize], need: Need) -> Option<Source> {
        let limit = self.limit;
        if !self.has_room(2) || dtype == DType::Bool || need == Need::Exponent {
            return None;
        }
        let value = self.pick(|tensor, fact| {
            tensor.dtype == dtype && !fact.special && shapes::broadcast(&tensor.shape, shape, limit)
        })?;
        let before = self.fact(value);
        let (op, literal) = match need {
            Need::Amount(bits) => (BinaryOp::And, Literal::Int(bits as i128 - 1)),
            _ if dtype.is_int() => (BinaryOp::Or, Literal::Int(1)),
            _ => (BinaryOp::Max, Literal::Float(0.5)),
        };
        let fact = match need {
            Need::Amount(bits) => Fact::exact(0.0, bits as f64 - 1.0, 0),
            _ if dtype.is_int() => {
                let or = crate::transfer::binary(
                    op,
                    &before,
                    &fact::of_literal(dtype, &literal),
                    dtype,
                    self.policy,
                )?;
                Fact { away: 1.0, ..or }
            }
            _ => Fact {
                lo: before.lo.max(0.5),
                hi: before.hi.max(0.5),
                away: 0.5,
                grid: if before.grid == fact::ROUGH { fact::ROUGH } else { before.grid.min(-1) },
                ..before
            },
        };
        let shape = self.type_of(value).shape.clone();
        let srcs = [Operand::Value(value), Operand::Literal(literal)];
        let statement = Statement::Binary { op, srcs };
        Some(Source { origin: Origin::New(statement), dtype: Some(dtype), shape, fact })
    }

    /// Adds the operand's statement, if it has a new one, and returns the operand.
    pub(crate) fn admit(&mut self, source: Source) -> Operand {
        match source.origin {
            Origin::Literal(literal) => Operand::Literal(literal),
            Origin::Value(value) => Operand::Value(value),
            Origin::New(statement) => Operand::Value(self.push(statement, source.fact)),
        }
    }
}
