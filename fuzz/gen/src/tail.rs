//! Adds to a program what the draws before do not make: products of the program's values, wide
//! convolutions, steps of training, powers at the ends of types, lists in descending order, many
//! parts, long chains. All draws of it come after those of the outputs, so that a program without
//! its tail is the same.

use gradiff_corpus::{
    Arg, BinaryOp, DType, Literal, Method, Operand, Shape, Statement, UnaryOp, ValueId,
};

use crate::fact;
use crate::methods::unknown;
use crate::programs::Builder;
use crate::sources::{Origin, Source};
use crate::{Choices, Lane, shapes};

/// One of this many programs gets a tail, if something that fits is found.
const EVERY: u32 = 10;

/// Number of attempts at an addition.
const TRIES: usize = 4;

/// Number of parts that are many.
const MIN_PARTS: usize = 6;

/// Maximum number of parts.
const MAX_PARTS: usize = 16;

/// Number of statements that there must be room for at least, for a long chain.
const MIN_CHAIN: usize = 8;

/// Methods that take a list of axes.
const LISTED: [Method; 10] = [
    Method::Roll,
    Method::Min,
    Method::Mean,
    Method::Var,
    Method::Std,
    Method::LogSumExp,
    Method::LayerNorm,
    Method::Any,
    Method::All,
    Method::CountNonzero,
];

/// A kind of tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Addition {
    /// A product of two values.
    Values,
    /// A product with its second factor reversed.
    Reversed,
    /// A product of a value and its transpose.
    Transpose,
    /// The attention of a value to itself.
    Attention,
    /// A product with new data of more axes.
    Axes,
    /// A convolution of many channels.
    Convolution,
    /// More derivatives of a value.
    Gradients,
    /// Steps of training.
    Training,
    /// Derivatives along a long axis.
    LongGradient,
    /// A power at the ends of a type.
    Power,
    /// A list of axes in descending order.
    Descending,
    /// A literal of many digits.
    Literal,
    /// A concatenation or stack of many parts.
    Parts,
    /// A chain of as many statements as there is room for.
    Chain,
}

impl Addition {
    const ALL: [Addition; 14] = [
        Addition::Values,
        Addition::Reversed,
        Addition::Transpose,
        Addition::Attention,
        Addition::Axes,
        Addition::Convolution,
        Addition::Gradients,
        Addition::Training,
        Addition::LongGradient,
        Addition::Power,
        Addition::Descending,
        Addition::Literal,
        Addition::Parts,
        Addition::Chain,
    ];
}

impl Builder<'_> {
    /// Adds a tail to one program in ten, and its results to the outputs.
    pub(crate) fn tail(&mut self, outputs: &mut Vec<ValueId>) {
        if !self.is_free() || self.choices.exhausted() || !self.choices.one_in(EVERY) {
            return;
        }
        let weights = Addition::ALL.map(|addition| self.weight(addition));
        let addition = Addition::ALL[self.choices.weighted(&weights)];
        let start = self.statements.len();
        self.append(addition);
        let numbers = start..self.statements.len();
        let is_sink = |number: &usize| !self.used[*number] && !self.facts[*number].poison;
        outputs.extend(numbers.filter(is_sink).map(|number| ValueId(number as u32)));
    }

    /// Returns the weight of an addition; 0 if the program has nothing that it needs.
    fn weight(&self, addition: Addition) -> u32 {
        let has_gradient = || !self.gradients().is_empty();
        match addition {
            Addition::Values => 32,
            Addition::Reversed if !self.products().is_empty() => 128,
            Addition::Transpose | Addition::Axes => 12,
            Addition::Attention => 6,
            // These take the time of some twenty programs.
            Addition::Convolution => 1,
            Addition::LongGradient if self.lane == Lane::Gradients => 4,
            Addition::Gradients if has_gradient() => 96,
            Addition::Training if has_gradient() => 64,
            Addition::Power if self.policy.special && self.policy.inexact => 48,
            Addition::Descending => 24,
            Addition::Literal if self.policy.inexact => 16,
            Addition::Parts => 16,
            Addition::Chain if self.has_room(MIN_CHAIN) => 4,
            _ => 0,
        }
    }

    /// Draws an addition; adds nothing if all attempts fail.
    fn append(&mut self, addition: Addition) -> Option<ValueId> {
        let start = self.statements.len();
        for _ in 0..TRIES {
            let checkpoint = self.checkpoint();
            let found = match addition {
                Addition::Values => self.product_of_values(),
                Addition::Reversed => self.product_of_reversed(),
                Addition::Transpose => self.product_of_transpose(),
                Addition::Attention => self.self_attention(),
                Addition::Axes => self.product_of_more_axes(),
                Addition::Convolution => self.wide_convolution(),
                Addition::Gradients => self.more_gradients(),
                Addition::Training => self.training_steps(),
                Addition::LongGradient => self.long_gradient(),
                Addition::Power => self.power_at_ends(),
                Addition::Descending => self.descending_axes(),
                Addition::Literal => self.literal_of_many_digits(),
                Addition::Parts => self.many_parts(),
                Addition::Chain => self.long_chain(),
            };
            if found.is_some() && self.keeps_limits(start) {
                return found;
            }
            self.roll_back(checkpoint);
        }
        None
    }

    /// Adds a power of two, or any power, of numbers at the ends of a float type.
    fn power_at_ends(&mut self) -> Option<ValueId> {
        let dtype = self.float_dtype()?;
        let shape = [4 + self.choices.below(9) as usize];
        let src = self.fresh_listed(dtype, &shape, &ends(dtype))?;
        let x = Operand::Value(src);
        let srcs = match self.choices.below(6) {
            0 | 1 => {
                let statement = Statement::Unary { op: UnaryOp::Exp2, src };
                return Some(self.push(statement, unknown(dtype)));
            }
            2 | 3 => {
                let exponents = [2.0, 0.5, -1.0, 3.0, -0.5, 0.0, 1.0, f64::INFINITY, 1.5, -2.5];
                [x, Operand::Literal(Literal::Float(self.choices.pick(&exponents)))]
            }
            4 => {
                let bases = [2.0, 0.5, -2.0, 1.0, 0.0];
                [Operand::Literal(Literal::Float(self.choices.pick(&bases))), x]
            }
            _ => {
                let exponents = [2.0, 0.5, -1.0, 3.0, 0.0, -3.0, f64::INFINITY, f64::NAN];
                [x, Operand::Value(self.fresh_listed(dtype, &shape, &exponents)?)]
            }
        };
        Some(self.push(Statement::Binary { op: BinaryOp::Pow, srcs }, unknown(dtype)))
    }

    /// Adds a method whose list of axes, and of what belongs to each, is in descending order.
    fn descending_axes(&mut self) -> Option<ValueId> {
        let method = self.choices.pick(&LISTED);
        let found = self.draw_method(method)?;
        let Statement::Method { args, .. } = &mut self.statements[found.0 as usize] else {
            return None;
        };
        let mut is_reversed = false;
        for arg in args {
            if let Arg::Ints(list) = arg {
                list.reverse();
                is_reversed |= 1 < list.len();
            }
        }
        is_reversed.then_some(found)
    }

    /// Adds an op on a value and a literal halfway between two floats, or next to there, so that
    /// rounding it twice gives the wrong float.
    fn literal_of_many_digits(&mut self) -> Option<ValueId> {
        let first =
            self.pick(|tensor, fact| tensor.dtype.is_float() && !fact.special && fact.err == 0.0)?;
        let dtype = self.type_of(first).dtype;
        let literal = self.halfway_literal(dtype);
        let op = self.choices.pick(&[BinaryOp::Add, BinaryOp::Max, BinaryOp::Mul, BinaryOp::Sub]);
        let (value, fact) = (self.value_source(first), fact::of_literal(dtype, &literal));
        let origin = Origin::Literal(literal);
        let number = Source { origin, dtype: None, shape: Shape::new(), fact };
        let (x, y) = if self.choices.one_in(4) { (number, value) } else { (value, number) };
        let fact = self.binary_fact(op, &x, &y)?;
        let srcs = [x, y].map(|source| self.admit(source));
        Some(self.push(Statement::Binary { op, srcs }, fact))
    }

    /// Draws a number halfway between two floats, or next to there: an integer with more digits
    /// than f64 has, but for f16, or a number from 1 to 2.
    fn halfway_literal(&mut self, dtype: DType) -> Literal {
        let precision = fact::mantissa_bits(dtype);
        let odd = 2 * self.choices.below(8) + 1;
        let offset = self.choices.below(3);
        if dtype == DType::F64 || self.choices.one_in(2) {
            let exponent = if dtype == DType::F16 { 14 } else { 59 };
            let halfway = (1_i128 << exponent) + (i128::from(odd) << (exponent - precision));
            return Literal::Int(halfway + [1, 0, -1][offset as usize]);
        }
        let halfway = 1.0 + f64::from(odd) * fact::power(-precision);
        Literal::Float([halfway.next_up(), halfway, halfway.next_down()][offset as usize])
    }

    /// Adds a concatenation, or a stack, of many parts: a value and those that fit it, each of them
    /// several times.
    fn many_parts(&mut self) -> Option<ValueId> {
        let first = self.pick(|tensor, _| !tensor.shape.is_empty())?;
        let tensor = self.type_of(first).clone();
        let rank = tensor.shape.len();
        let is_stack = rank < self.max_rank && self.choices.one_in(4);
        let axis = self.choices.below(rank as u32) as usize;
        let fits = |number: &usize| {
            let part = &self.types[*number];
            let is_same = |i: usize| tensor.shape[i] == part.shape[i] || i == axis && !is_stack;
            let has_type = part.dtype == tensor.dtype && part.shape.len() == rank;
            has_type && (0..rank).all(is_same) && !self.facts[*number].poison
        };
        let found: Vec<usize> = (0..self.types.len()).filter(fits).collect();
        let count = MIN_PARTS + self.choices.below((MAX_PARTS - MIN_PARTS) as u32 + 1) as usize;
        let (mut srcs, mut fact, mut elements) = (vec![first], self.fact(first), tensor.count());
        while srcs.len() < count {
            let next = ValueId(self.choices.pick(&found) as u32);
            elements += self.type_of(next).count();
            if self.limit < elements {
                break;
            }
            fact = fact.join(&self.fact(next));
            srcs.push(next);
        }
        if srcs.len() < MIN_PARTS {
            return None;
        }
        let statement = match is_stack {
            true => {
                let (method, args) = (Method::Stack, vec![Arg::Int(axis as i64)]);
                Statement::Method { method, srcs, args }
            }
            false => Statement::Cat { srcs, axis },
        };
        Some(self.push(statement, fact))
    }

    /// Adds an op on a value and a first one, and reverses the result, as often as there is room.
    fn long_chain(&mut self) -> Option<ValueId> {
        let first = self.pick(|tensor, fact| {
            !tensor.shape.is_empty() && tensor.dtype != DType::Bool && !fact.special
        })?;
        let rank = self.type_of(first).shape.len();
        let op = self.choices.pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Max]);
        let mut value = first;
        for _ in 0..6 + self.choices.below(10) {
            let [x, y] = [value, first].map(|value| self.value_source(value));
            let fact = self.binary_fact(op, &x, &y).filter(|_| self.has_room(2));
            let Some(fact) = fact else { break };
            let srcs = [value, first].map(Operand::Value);
            let src = self.push(Statement::Binary { op, srcs }, fact);
            let axes = shapes::axes(self.choices, rank);
            value = self.push(Statement::Flip { src, axes }, fact);
        }
        (value != first).then_some(value)
    }
}

/// Numbers at which powers of two of a type are special, or next to overflow and underflow.
fn ends(dtype: DType) -> [f64; 16] {
    let least = fact::least_exponent(dtype);
    let (top, bottom) = (fact::largest(dtype).log2().ceil(), f64::from(least));
    [
        0.0,
        1.0,
        -0.0,
        -1.0,
        2.0,
        0.5,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        fact::largest(dtype),
        fact::power(least),
        top - 0.5,
        top,
        bottom + 7.5,
        bottom - 0.5,
        bottom - 1.5,
    ]
}

#[cfg(test)]
mod tests {
    use gradiff_corpus::literal_bits;

    use super::*;
    use crate::programs::{draw_lane, program_at};
    use crate::{Config, SeedChoices, case_seed, steer};

    #[test]
    fn a_program_without_its_tail_is_the_same() {
        let config = Config::default();
        let mut tails = 0;
        for index in 0..2_000 {
            let mut choices = SeedChoices::new(case_seed(4, index));
            let lane = draw_lane(&mut choices, &config);
            let mut builder = Builder::new(&mut choices, &config, lane);
            let outputs = builder.body(steer::pair_at(4, index));
            let program = program_at(4, index, &config).program;
            assert!(program.statements.starts_with(&builder.statements), "{program}");
            assert!(program.outputs.starts_with(&outputs), "{program}");
            tails += usize::from(builder.statements.len() < program.statements.len());
        }
        println!("{tails} tails");
        assert!((60..230).contains(&tails), "{tails} tails");
    }

    #[test]
    fn every_addition_is_often_completed() {
        let config = Config::default();
        let mut rare = Vec::new();
        for addition in Addition::ALL {
            let lane = match addition {
                Addition::Gradients | Addition::Training | Addition::LongGradient => {
                    Lane::Gradients
                }
                Addition::Power => Lane::Special,
                Addition::Chain => Lane::Idioms,
                _ => Lane::Methods,
            };
            let (mut tried, mut complete) = (0, 0);
            for seed in 0..4_000 {
                if tried == 100 {
                    break;
                }
                let mut choices = SeedChoices::new(case_seed(5, seed));
                let mut builder = Builder::new(&mut choices, &config, lane);
                builder.body(None);
                if builder.weight(addition) != 0 {
                    tried += 1;
                    complete += usize::from(builder.append(addition).is_some());
                }
            }
            println!("{addition:?} {complete} of {tried}");
            if tried < 50 || complete * 5 < tried {
                rare.push((addition, complete, tried));
            }
        }
        assert!(rare.is_empty(), "{rare:?}");
    }

    /// Integers are rounded through f64, and other numbers through f32, to another float than at
    /// once.
    #[test]
    fn literals_must_be_rounded_once() {
        let config = Config::default();
        let mut choices = SeedChoices::new(6);
        let mut builder = Builder::new(&mut choices, &config, Lane::Methods);
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let [mut ints, mut floats] = [0; 2];
            for _ in 0..200 {
                let literal = builder.halfway_literal(dtype);
                let (through, count) = match literal {
                    Literal::Int(value) => (value as f64, &mut ints),
                    Literal::Float(value) => (f64::from(value as f32), &mut floats),
                    Literal::Bool(_) => panic!("{literal}"),
                };
                let bits = literal_bits(dtype, &literal);
                *count += usize::from(literal_bits(dtype, &Literal::Float(through)) != bits);
            }
            println!("{ints} integers, {floats} others of {}", dtype.name());
            assert_eq!(0 < ints, matches!(dtype, DType::BF16 | DType::F32), "{ints} {dtype:?}");
            assert_eq!(0 < floats, matches!(dtype, DType::F16 | DType::BF16), "{floats} {dtype:?}");
        }
    }
}
