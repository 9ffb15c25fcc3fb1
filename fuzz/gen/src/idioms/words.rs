//! The words that idioms are written in: one statement each, with its fact, where there is room and
//! the shape fits; sometimes followed by something that keeps the value.

use gradiff_corpus::{
    BinaryOp, DType, Distribution, Literal, Operand, ReduceOp, Shape, Statement, UnaryOp, ValueId,
};

use crate::elementwise::accumulated;
use crate::fact::{self, Fact};
use crate::programs::Builder;
use crate::sources::{Origin, Source};
use crate::{Choices, shapes, transfer};

/// A number that stands for itself in any dtype.
pub(crate) fn number(dtype: DType, value: f64) -> Literal {
    match dtype {
        DType::Bool => Literal::Bool(value != 0.0),
        _ if dtype.is_float() => Literal::Float(value),
        _ => Literal::Int(value as i128),
    }
}

impl<C: Choices> Builder<'_, C> {
    pub(super) fn shape_of(&self, value: ValueId) -> Shape {
        self.type_of(value).shape.clone()
    }

    pub(super) fn dtype_of(&self, value: ValueId) -> DType {
        self.type_of(value).dtype
    }

    /// A size of this program.
    pub(super) fn size(&mut self) -> usize {
        self.palette.size(self.choices).max(1)
    }

    /// A size of this program, at most `most`.
    pub(super) fn size_up_to(&mut self, most: usize) -> usize {
        let size = self.size();
        if size <= most { size } else { 1 + self.choices.below(most.max(1) as u32) as usize }
    }

    /// Whether a value may have this shape.
    pub(super) fn fits(&self, shape: &[usize]) -> bool {
        let count = shape.iter().try_fold(1_usize, |all, size| all.checked_mul(*size));
        shape.len() <= self.config.max_rank && count.is_some_and(|count| count <= self.limit)
    }

    /// A float type; f32 more often than others.
    pub(super) fn float(&mut self) -> Option<DType> {
        let usual = [DType::F32, DType::F16, DType::F32, DType::BF16, DType::F32, DType::F64];
        let dtype = self.choices.pick(&usual);
        let floats = || self.config.dtypes.iter().copied().filter(|dtype| dtype.is_float());
        floats().find(|one| *one == dtype).or_else(|| floats().next())
    }

    /// An integer type, mostly i32 or i64.
    pub(super) fn integer(&mut self) -> Option<DType> {
        let usual = [DType::I32, DType::I64, DType::U8, DType::I32, DType::U32, DType::I16];
        let dtype = self.choices.pick(&usual);
        let ints = || self.config.dtypes.iter().copied().filter(|dtype| dtype.is_int());
        ints().find(|one| *one == dtype).or_else(|| ints().next())
    }

    /// A statement, if there is room for it and its shape fits.
    pub(super) fn add(&mut self, statement: Statement, fact: Fact) -> Option<ValueId> {
        let of = gradiff_corpus::statement_type(&statement, &self.types).ok()?;
        (self.has_room(1) && self.fits(&of.shape)).then(|| self.push(statement, fact))
    }

    /// Data of this shape: the result of another idiom where it fits, else new ones, which may be
    /// a view of something larger or turned.
    pub(super) fn data(&mut self, dtype: DType, shape: &[usize]) -> Option<ValueId> {
        if !self.fits(shape) {
            return None;
        }
        if let Some(input) = self.input.take()
            && let Some(found) = self.adapted(input, dtype, shape)
        {
            return Some(found);
        }
        let kinds = [
            Distribution::Small,
            Distribution::Unit,
            Distribution::Dyadic,
            Distribution::Unit,
            Distribution::Positive,
        ];
        let kind = self.choices.pick(&kinds);
        let mut wanted = shape.to_vec();
        let rank = shape.len();
        let turn = rank >= 2 && self.choices.one_in(5);
        let larger = !turn && rank >= 1 && self.choices.one_in(6);
        if turn {
            wanted.reverse();
        }
        let at = rank.saturating_sub(1);
        let begin = if larger { self.choices.below(3) as usize } else { 0 };
        if larger {
            wanted[at] += begin + self.choices.below(2) as usize;
        }
        if !self.fits(&wanted) {
            wanted = shape.to_vec();
        }
        let is_changed = wanted != shape;
        let (statement, fact) = self.seeded(dtype, wanted, kind);
        let data = self.add(statement, fact)?;
        if turn {
            return self.permuted(data, (0..rank).rev().collect());
        }
        if larger && is_changed {
            let mut ranges: Vec<_> = shape.iter().map(|size| (0, *size)).collect();
            ranges[at] = (begin, begin + shape[at]);
            return self.shrunk(data, ranges);
        }
        Some(data)
    }

    /// The value with this dtype and shape, if its number of elements is the same.
    fn adapted(&mut self, value: ValueId, dtype: DType, shape: &[usize]) -> Option<ValueId> {
        if shapes::count(&self.shape_of(value)) != shapes::count(shape) {
            return None;
        }
        let shaped = self.reshaped(value, shape.to_vec())?;
        self.to(shaped, dtype)
    }

    /// Positive data.
    pub(super) fn positive(&mut self, dtype: DType, shape: &[usize]) -> Option<ValueId> {
        let (statement, fact) = self.seeded(dtype, shape.to_vec(), Distribution::Positive);
        self.add(statement, fact)
    }

    /// Integers in `0..bound`, mostly.
    pub(super) fn indices(&mut self, shape: &[usize], bound: usize) -> Option<ValueId> {
        let dtype = self.integer()?;
        let count = shapes::count(shape);
        if count <= 32 && bound <= 120 {
            let past = u32::from(self.choices.one_in(4));
            let bits = (0..count).map(|_| self.choices.below(bound as u32 + past) as u64).collect();
            let fact = Fact { raw: true, ..Fact::exact(0.0, bound as f64, 0) };
            let fill = gradiff_corpus::Fill::Explicit(bits);
            return self.add(Statement::Input { dtype, shape: shape.to_vec(), fill }, fact);
        }
        let (statement, fact) = self.seeded(dtype, shape.to_vec(), Distribution::Small);
        self.add(statement, fact)
    }

    /// 0, 1, 2, ... along `axis` of a shape whose other sizes are 1.
    pub(super) fn counting(
        &mut self,
        dtype: DType,
        count: usize,
        (rank, axis): (usize, usize),
    ) -> Option<ValueId> {
        if !dtype.is_int() || !self.fits(&[count]) {
            return None;
        }
        let fact = fact::of_iota(dtype, count);
        let range = match self.choices.below(4) {
            0 => {
                let fill = gradiff_corpus::Fill::Iota;
                self.add(Statement::Input { dtype, shape: vec![count], fill }, fact)?
            }
            _ => self.add(Statement::Arange { dtype, start: 0, step: 1, count }, fact)?,
        };
        let mut shape = vec![1; rank];
        shape[axis] = count;
        self.reshaped(range, shape)
    }

    pub(super) fn unary_of(&mut self, op: UnaryOp, x: ValueId) -> Option<ValueId> {
        let fact = transfer::unary(op, &self.fact(x), self.dtype_of(x), self.policy)?;
        let found = self.add(Statement::Unary { op, src: x }, fact)?;
        Some(self.kept(found))
    }

    fn source_of(&self, operand: Operand, beside: DType) -> Source {
        match operand {
            Operand::Value(value) => self.value_source(value),
            Operand::Literal(literal) => Source {
                fact: fact::of_literal(beside, &literal),
                origin: Origin::Literal(literal),
                dtype: None,
                shape: Shape::new(),
            },
        }
    }

    fn binary_of(&mut self, op: BinaryOp, srcs: [Operand; 2], beside: DType) -> Option<ValueId> {
        let [x, y] = srcs.map(|src| self.source_of(src, beside));
        let fact = self.binary_fact(op, &x, &y)?;
        let found = self.add(Statement::Binary { op, srcs }, fact)?;
        Some(self.kept(found))
    }

    /// `x op y`.
    pub(super) fn both(&mut self, op: BinaryOp, x: ValueId, y: ValueId) -> Option<ValueId> {
        self.binary_of(op, [x, y].map(Operand::Value), self.dtype_of(x))
    }

    /// `x op value`.
    pub(super) fn with(&mut self, op: BinaryOp, x: ValueId, value: f64) -> Option<ValueId> {
        let dtype = self.dtype_of(x);
        let literal = Operand::Literal(number(dtype, value));
        self.binary_of(op, [Operand::Value(x), literal], dtype)
    }

    /// `e^x`, as a power.
    pub(super) fn exp(&mut self, x: ValueId) -> Option<ValueId> {
        let fact = transfer::exp(&self.fact(x), self.dtype_of(x), self.policy)?;
        let base = Operand::Literal(Literal::Float(std::f64::consts::E));
        let srcs = [base, Operand::Value(x)];
        let found = self.add(Statement::Binary { op: BinaryOp::Pow, srcs }, fact)?;
        Some(self.kept(found))
    }

    pub(super) fn folded(&mut self, op: ReduceOp, x: ValueId, axes: Vec<usize>) -> Option<ValueId> {
        let (dtype, shape) = (self.dtype_of(x), self.shape_of(x));
        let count = axes.iter().map(|axis| shape[*axis]).product();
        let to = accumulated(op, dtype);
        let fact = transfer::reduce(op, &self.fact(x), count, dtype, to, self.policy)?;
        let found = self.add(Statement::Reduce { op, src: x, axes }, fact)?;
        Some(self.kept(found))
    }

    /// `test ? yes : no`.
    pub(super) fn chosen(&mut self, test: ValueId, yes: Operand, no: Operand) -> Option<ValueId> {
        let value = |operand| match operand {
            Operand::Value(value) => Some(self.dtype_of(value)),
            Operand::Literal(_) => None,
        };
        let dtype = value(yes).or(value(no))?;
        let mut facts = [yes, no].map(|operand| self.source_of(operand, dtype).fact);
        // What masks leave out is infinite, which no later step looks at.
        facts.iter_mut().for_each(|fact| fact.special = false);
        let joined = facts[0].join(&facts[1]);
        let srcs = [Operand::Value(test), yes, no];
        let found = self.add(Statement::Where { srcs }, Fact { raw: false, ..joined })?;
        Some(self.kept(found))
    }

    pub(super) fn to(&mut self, x: ValueId, dtype: DType) -> Option<ValueId> {
        let from = self.dtype_of(x);
        if from == dtype {
            return Some(x);
        }
        let fact = fact::cast(&self.fact(x), from, dtype, self.policy)?;
        self.add(Statement::Cast { src: x, dtype }, fact)
    }

    pub(super) fn reshaped(&mut self, x: ValueId, shape: Shape) -> Option<ValueId> {
        if self.shape_of(x) == shape {
            return Some(x);
        }
        self.add(Statement::Reshape { src: x, shape }, self.fact(x))
    }

    pub(super) fn permuted(&mut self, x: ValueId, axes: Vec<usize>) -> Option<ValueId> {
        self.add(Statement::Permute { src: x, axes }, self.fact(x))
    }

    pub(super) fn expanded(&mut self, x: ValueId, shape: Shape) -> Option<ValueId> {
        if self.shape_of(x) == shape {
            return Some(x);
        }
        self.add(Statement::Expand { src: x, shape }, self.fact(x))
    }

    pub(super) fn shrunk(&mut self, x: ValueId, ranges: Vec<(usize, usize)>) -> Option<ValueId> {
        self.add(Statement::Shrink { src: x, ranges }, self.fact(x))
    }

    pub(super) fn flipped(&mut self, x: ValueId, axes: Vec<usize>) -> Option<ValueId> {
        self.add(Statement::Flip { src: x, axes }, self.fact(x))
    }

    pub(super) fn padded(
        &mut self,
        x: ValueId,
        pads: Vec<(usize, usize)>,
        value: f64,
    ) -> Option<ValueId> {
        let value = number(self.dtype_of(x), value);
        let mut added = fact::of_literal(self.dtype_of(x), &value);
        added.special = false;
        let fact = self.fact(x).join(&added);
        self.add(Statement::Pad { src: x, pads, value }, fact)
    }

    pub(super) fn joined(&mut self, srcs: Vec<ValueId>, axis: usize) -> Option<ValueId> {
        let facts = srcs.iter().map(|src| self.fact(*src));
        let fact = facts.reduce(|all, fact| all.join(&fact))?;
        self.add(Statement::Cat { srcs, axis }, fact)
    }

    /// Says what is known of a value by what it means: all elements lie in `lo..=hi`.
    pub(super) fn known(&mut self, value: ValueId, lo: f64, hi: f64) {
        let fact = &mut self.facts[value.0 as usize];
        fact.lo = fact.lo.max(lo);
        fact.hi = fact.hi.min(hi).max(fact.lo);
        fact.away = fact.away.max(fact.away_by_bounds() - fact.err);
    }

    /// The value, sometimes by way of something that keeps it.
    fn kept(&mut self, x: ValueId) -> ValueId {
        if !self.choices.one_in(7) || !self.has_room(8) {
            return x;
        }
        self.detour(x).unwrap_or(x)
    }

    fn detour(&mut self, x: ValueId) -> Option<ValueId> {
        let (shape, fact, dtype) = (self.shape_of(x), self.fact(x), self.dtype_of(x));
        let rank = shape.len();
        let first = rank.checked_sub(1);
        match self.choices.below(10) {
            0 | 1 => self.add(Statement::Realize { src: x }, fact),
            2 => self.add(Statement::Contiguous { src: x }, fact),
            3 => {
                let axes = vec![self.choices.below(first? as u32 + 1) as usize];
                let there = self.flipped(x, axes.clone())?;
                self.flipped(there, axes)
            }
            4 if rank >= 2 => {
                let there = self.permuted(x, (0..rank).rev().collect())?;
                let there = self.add(Statement::Contiguous { src: there }, fact)?;
                self.permuted(there, (0..rank).rev().collect())
            }
            5 => {
                let at = self.choices.below(first? as u32 + 1) as usize;
                let (before, after) = (self.choices.below(3) as usize, 1);
                let mut pads = vec![(0, 0); rank];
                pads[at] = (before, after);
                let there = self.padded(x, pads, 0.0)?;
                let mut ranges: Vec<_> = shape.iter().map(|size| (0, *size)).collect();
                ranges[at] = (before, before + shape[at]);
                let back = self.shrunk(there, ranges)?;
                self.facts[back.0 as usize] = fact;
                Some(back)
            }
            6 => {
                let there = self.reshaped(x, vec![shapes::count(&shape)])?;
                self.reshaped(there, shape)
            }
            7 => {
                let wider = match dtype {
                    DType::F16 | DType::BF16 => DType::F32,
                    DType::F32 => DType::F64,
                    DType::I32 | DType::I16 | DType::I8 => DType::I64,
                    _ => return None,
                };
                let there = self.to(x, wider)?;
                let back = self.to(there, dtype)?;
                self.facts[back.0 as usize] = Fact { raw: false, ..fact };
                Some(back)
            }
            8 if dtype != DType::Bool => {
                let there = self.unary_of(UnaryOp::Neg, x)?;
                self.unary_of(UnaryOp::Neg, there)
            }
            _ => {
                let at = self.choices.below(first? as u32 + 1) as usize;
                let there = self.joined(vec![x, x], at)?;
                let mut ranges: Vec<_> = shape.iter().map(|size| (0, *size)).collect();
                let begin = if self.choices.one_in(2) { shape[at] } else { 0 };
                ranges[at] = (begin, begin + shape[at]);
                self.shrunk(there, ranges)
            }
        }
    }
}
