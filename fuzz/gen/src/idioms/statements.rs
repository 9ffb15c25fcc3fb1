//! The vocabulary of the idioms. Each function adds one statement and its fact if there is room and
//! the shape fits; some add a detour that keeps the value.

use gradiff_corpus::{
    BinaryOp, DType, Distribution, Literal, Operand, ReduceOp, Shape, Statement, UnaryOp, ValueId,
};

use crate::elementwise::reduced_dtype;
use crate::fact::{self, Fact};
use crate::programs::Builder;
use crate::{shapes, transfer};

/// Returns a number as a literal of the dtype.
pub(crate) fn scalar_literal(dtype: DType, value: f64) -> Literal {
    match dtype {
        DType::Bool => Literal::Bool(value != 0.0),
        _ if dtype.is_float() => Literal::Float(value),
        _ => Literal::Int(value as i128),
    }
}

impl Builder<'_> {
    pub(super) fn shape_of(&self, value: ValueId) -> Shape {
        self.type_of(value).shape.clone()
    }

    pub(super) fn dtype_of(&self, value: ValueId) -> DType {
        self.type_of(value).dtype
    }

    /// Draws an axis size from the program's palette, at least 1.
    pub(super) fn size(&mut self) -> usize {
        self.palette.size(self.choices).max(1)
    }

    /// Draws an axis size from 1 to `max`, from the program's palette if that size fits.
    pub(super) fn size_up_to(&mut self, max: usize) -> usize {
        let size = self.size();
        if size <= max { size } else { 1 + self.choices.below(max.max(1) as u32) as usize }
    }

    /// Returns whether a value may have this shape.
    pub(super) fn fits(&self, shape: &[usize]) -> bool {
        let count = shape.iter().try_fold(1_usize, |count, size| count.checked_mul(*size));
        shape.len() <= self.max_rank && count.is_some_and(|count| count <= self.limit)
    }

    /// Draws a float type, mostly f32.
    pub(super) fn float(&mut self) -> Option<DType> {
        let usual = [DType::F32, DType::F16, DType::F32, DType::BF16, DType::F32, DType::F64];
        let dtype = self.choices.pick(&usual);
        let floats = || self.config.dtypes.iter().copied().filter(|dtype| dtype.is_float());
        floats().find(|float| *float == dtype).or_else(|| floats().next())
    }

    /// Draws an integer type, mostly i32.
    pub(super) fn integer(&mut self) -> Option<DType> {
        let usual = [DType::I32, DType::I64, DType::U8, DType::I32, DType::U32, DType::I16];
        let dtype = self.choices.pick(&usual);
        let ints = || self.config.dtypes.iter().copied().filter(|dtype| dtype.is_int());
        ints().find(|int| *int == dtype).or_else(|| ints().next())
    }

    /// Adds a statement, if it is well typed, there is room for it and its shape fits.
    pub(super) fn add(&mut self, statement: Statement, fact: Fact) -> Option<ValueId> {
        let tensor = gradiff_corpus::statement_type(&statement, &self.types).ok()?;
        (self.has_room(1) && self.fits(&tensor.shape)).then(|| self.push(statement, fact))
    }

    /// Adds data of this shape: the result of the previous idiom if it fits, else new data, which
    /// may be transposed or shrunk.
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
        let mut data_shape = shape.to_vec();
        let rank = shape.len();
        let is_transposed = rank >= 2 && self.choices.one_in(5);
        let is_larger = !is_transposed && rank >= 1 && self.choices.one_in(6);
        if is_transposed {
            data_shape.reverse();
        }
        let last = rank.saturating_sub(1);
        let begin = if is_larger { self.choices.below(3) as usize } else { 0 };
        if is_larger {
            data_shape[last] += begin + self.choices.below(2) as usize;
        }
        if !self.fits(&data_shape) {
            data_shape = shape.to_vec();
        }
        let is_changed = data_shape != shape;
        let (statement, fact) = self.seeded(dtype, data_shape, kind);
        let data = self.add(statement, fact)?;
        if is_transposed {
            return self.permuted(data, (0..rank).rev().collect());
        }
        if is_larger && is_changed {
            let mut ranges: Vec<_> = shape.iter().map(|size| (0, *size)).collect();
            ranges[last] = (begin, begin + shape[last]);
            return self.shrunk(data, ranges);
        }
        Some(data)
    }

    /// Reshapes and casts the value to this shape and dtype, if the number of elements is the same.
    fn adapted(&mut self, value: ValueId, dtype: DType, shape: &[usize]) -> Option<ValueId> {
        if shapes::count(&self.shape_of(value)) != shapes::count(shape) {
            return None;
        }
        let shaped = self.reshaped(value, shape.to_vec())?;
        self.cast_to(shaped, dtype)
    }

    /// Adds positive data.
    pub(super) fn positive_data(&mut self, dtype: DType, shape: &[usize]) -> Option<ValueId> {
        let (statement, fact) = self.seeded(dtype, shape.to_vec(), Distribution::Positive);
        self.add(statement, fact)
    }

    /// Adds integers, mostly in `0..bound`.
    pub(super) fn indices(&mut self, shape: &[usize], bound: usize) -> Option<ValueId> {
        // At times the type has all positions, but not their number.
        let is_full = |dtype: &DType| fact::range(*dtype).1 as usize + 1 == bound;
        let dtype = match [DType::I8, DType::U8].into_iter().find(is_full) {
            Some(dtype) if self.choices.one_in(2) => dtype,
            _ => self.integer()?,
        };
        let count = shapes::count(shape);
        let largest = fact::range(dtype).1 as usize;
        if count <= 32 {
            let bound = bound.min(largest);
            let bound_drawn = bound as u32 + u32::from(self.choices.one_in(4));
            let bits = (0..count).map(|_| self.choices.below(bound_drawn) as u64).collect();
            let fact = Fact { raw: true, ..Fact::exact(0.0, bound as f64, 0) };
            let fill = gradiff_corpus::Fill::Explicit(bits);
            return self.add(Statement::Input { dtype, shape: shape.to_vec(), fill }, fact);
        }
        let (statement, fact) = self.seeded(dtype, shape.to_vec(), Distribution::Small);
        self.add(statement, fact)
    }

    /// Adds 0, 1, 2, ... along `axis` of a tensor of this rank; all other sizes are 1.
    pub(super) fn arange_along(
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
        let result = self.add(Statement::Unary { op, src: x }, fact)?;
        Some(self.with_detour(result))
    }

    fn push_binary(&mut self, op: BinaryOp, srcs: [Operand; 2], dtype: DType) -> Option<ValueId> {
        let [x, y] = srcs.map(|src| self.source_of(src, dtype));
        let fact = self.binary_fact(op, &x, &y)?;
        let result = self.add(Statement::Binary { op, srcs }, fact)?;
        Some(self.with_detour(result))
    }

    /// Adds `x op y`.
    pub(super) fn binary_of(&mut self, op: BinaryOp, x: ValueId, y: ValueId) -> Option<ValueId> {
        self.push_binary(op, [x, y].map(Operand::Value), self.dtype_of(x))
    }

    /// Adds `x op value`.
    pub(super) fn binary_with(&mut self, op: BinaryOp, x: ValueId, value: f64) -> Option<ValueId> {
        let dtype = self.dtype_of(x);
        let literal = Operand::Literal(scalar_literal(dtype, value));
        self.push_binary(op, [Operand::Value(x), literal], dtype)
    }

    /// Adds `e^x`, as a power.
    pub(super) fn exp(&mut self, x: ValueId) -> Option<ValueId> {
        let fact = transfer::exp(&self.fact(x), self.dtype_of(x), self.policy)?;
        let base = Operand::Literal(Literal::Float(std::f64::consts::E));
        let srcs = [base, Operand::Value(x)];
        let result = self.add(Statement::Binary { op: BinaryOp::Pow, srcs }, fact)?;
        Some(self.with_detour(result))
    }

    pub(super) fn reduced(
        &mut self,
        op: ReduceOp,
        x: ValueId,
        axes: Vec<usize>,
    ) -> Option<ValueId> {
        let (dtype, shape) = (self.dtype_of(x), self.shape_of(x));
        let count = axes.iter().map(|axis| shape[*axis]).product();
        let to = reduced_dtype(op, dtype);
        let fact = transfer::reduce(op, &self.fact(x), count, dtype, to, self.policy)?;
        let result = self.add(Statement::Reduce { op, src: x, axes }, fact)?;
        Some(self.with_detour(result))
    }

    /// Adds `test ? yes : no`.
    pub(super) fn selected(&mut self, test: ValueId, yes: Operand, no: Operand) -> Option<ValueId> {
        let value_dtype = |operand| match operand {
            Operand::Value(value) => Some(self.dtype_of(value)),
            Operand::Literal(_) => None,
        };
        let dtype = value_dtype(yes).or(value_dtype(no))?;
        let mut facts = [yes, no].map(|operand| self.source_of(operand, dtype).fact);
        // Masked elements may be infinite, but no later statement depends on them.
        facts.iter_mut().for_each(|fact| fact.special = false);
        let joined = facts[0].join(&facts[1]);
        let srcs = [Operand::Value(test), yes, no];
        let result = self.add(Statement::Where { srcs }, Fact { raw: false, ..joined })?;
        Some(self.with_detour(result))
    }

    pub(super) fn cast_to(&mut self, x: ValueId, dtype: DType) -> Option<ValueId> {
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
        let value = scalar_literal(self.dtype_of(x), value);
        let mut added = fact::of_literal(self.dtype_of(x), &value);
        added.special = false;
        let fact = self.fact(x).join(&added);
        self.add(Statement::Pad { src: x, pads, value }, fact)
    }

    pub(super) fn concatenated(&mut self, srcs: Vec<ValueId>, axis: usize) -> Option<ValueId> {
        let facts = srcs.iter().map(|src| self.fact(*src));
        let fact = facts.reduce(|joined, fact| joined.join(&fact))?;
        self.add(Statement::Cat { srcs, axis }, fact)
    }

    /// Narrows the fact of a value: by its meaning, all elements are in `lo..=hi`.
    pub(super) fn assume_range(&mut self, value: ValueId, lo: f64, hi: f64) {
        let fact = &mut self.facts[value.0 as usize];
        fact.lo = fact.lo.max(lo);
        fact.hi = fact.hi.min(hi).max(fact.lo);
        fact.away = fact.away.max(fact.away_by_bounds() - fact.err);
    }

    /// Returns the value, sometimes after a detour that keeps it.
    fn with_detour(&mut self, x: ValueId) -> ValueId {
        if !self.choices.one_in(7) || !self.has_room(8) {
            return x;
        }
        self.detour(x).unwrap_or(x)
    }

    /// Adds statements that together keep the value.
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
                let there = self.cast_to(x, wider)?;
                let back = self.cast_to(there, dtype)?;
                self.facts[back.0 as usize] = Fact { raw: false, ..fact };
                Some(back)
            }
            8 if dtype != DType::Bool => {
                let there = self.unary_of(UnaryOp::Neg, x)?;
                self.unary_of(UnaryOp::Neg, there)
            }
            _ => {
                let at = self.choices.below(first? as u32 + 1) as usize;
                let there = self.concatenated(vec![x, x], at)?;
                let mut ranges: Vec<_> = shape.iter().map(|size| (0, *size)).collect();
                let begin = if self.choices.one_in(2) { shape[at] } else { 0 };
                ranges[at] = (begin, begin + shape[at]);
                self.shrunk(there, ranges)
            }
        }
    }
}
