//! Idioms that mask by index: one-hot, embedding, sums by label, ranges, triangles, dropout,
//! assignment.

use gradiff_corpus::{BinaryOp::*, DType, Fill, Literal, Operand, ReduceOp, Statement, ValueId};

use super::statements::scalar_literal;
use crate::fact::{self, Fact};
use crate::programs::Builder;

/// Numbers of classes: powers of two and their neighbours, and as many as an `i8` or a `u8` names.
const CLASSES: [usize; 14] = [4, 2, 8, 1, 16, 3, 7, 9, 5, 32, 15, 17, 128, 256];
/// Numbers of labels: about the length of a vector, some of these, and about as many as an `i8` or
/// a `u8` names.
const LABELS: [usize; 14] = [4, 17, 2, 33, 8, 3, 65, 16, 5, 130, 9, 64, 128, 256];

impl Builder<'_> {
    fn class_count(&mut self) -> usize {
        let classes = self.choices.pick(&CLASSES);
        if classes <= self.limit { classes } else { 1 }
    }

    /// Adds `index == range`, bools of shape `[rows, classes]`.
    fn class_mask(&mut self, rows: usize, classes: usize) -> Option<ValueId> {
        let index = self.indices(&[rows, 1], classes)?;
        let range = self.arange_along(self.dtype_of(index), classes, (2, 1))?;
        if self.choices.one_in(2) {
            return self.binary_of(CmpEq, index, range);
        }
        self.binary_of(CmpEq, range, index)
    }

    pub(super) fn one_hot(&mut self) -> Option<ValueId> {
        let classes = self.class_count();
        let rows = self.size_up_to((self.limit / classes).max(1));
        let hot = self.class_mask(rows, classes)?;
        match self.choices.below(4) {
            0 => Some(hot),
            1 => {
                let counts = self.cast_to(hot, DType::I32)?;
                self.reduced(ReduceOp::Sum, counts, vec![0])
            }
            2 => {
                let dtype = self.float()?;
                let weights = self.data(dtype, &[1, classes])?;
                let zero = Operand::Literal(scalar_literal(dtype, 0.0));
                self.selected(hot, Operand::Value(weights), zero)
            }
            _ => self.cast_to(hot, DType::F32),
        }
    }

    /// Adds a lookup of rows in a table: by comparison and a sum (as in tinygrad), or by gather.
    pub(super) fn embedding(&mut self) -> Option<ValueId> {
        let dtype = self.dtype();
        if dtype == DType::Bool {
            return None;
        }
        let classes = self.class_count();
        let width = self.size_up_to((self.limit / classes).clamp(1, 9));
        let rows = self.size_up_to((self.limit / (classes * width)).max(1));
        let table = self.data(dtype, &[classes, width])?;
        if self.choices.one_in(3) {
            let index = self.indices(&[rows, 1], classes)?;
            let index = self.expanded(index, vec![rows, width])?;
            let fact = self.fact(table).join(&Fact::exact(0.0, 0.0, 0));
            let gather = Statement::Gather { src: table, axis: 0, index };
            return self.has_room(1).then(|| self.push(gather, fact));
        }
        let hot = self.class_mask(rows, classes)?;
        let hot = self.reshaped(hot, vec![rows, classes, 1])?;
        let table = self.reshaped(table, vec![1, classes, width])?;
        let masked = if self.choices.one_in(2) {
            let factors = self.cast_to(hot, dtype)?;
            self.binary_of(Mul, factors, table)?
        } else {
            let zero = Operand::Literal(scalar_literal(dtype, 0.0));
            self.selected(hot, Operand::Value(table), zero)?
        };
        let sums = self.reduced(ReduceOp::Sum, masked, vec![1])?;
        self.reshaped(sums, vec![rows, width])
    }

    /// Adds, for each label, the sum or the maximum of the elements that have it. Engines store
    /// these one by one, at their labels.
    pub(super) fn labelled(&mut self) -> Option<ValueId> {
        let dtype = self.dtype();
        if dtype == DType::Bool {
            return None;
        }
        let labels = self.choices.pick(&LABELS).min(self.limit);
        let count = self.size_up_to((self.limit / labels).clamp(1, 24));
        let columns = self.size_up_to((self.limit / (labels * count)).clamp(1, 9));
        let columns = if self.choices.one_in(2) { 1 } else { columns };
        // The axes of the elements, the labels and the columns.
        let axes = self.choices.pick(&[[0, 1, 2], [1, 0, 2], [2, 0, 1], [0, 2, 1], [1, 2, 0]]);
        let [element, label, _] = axes;
        let shape = |has_axis: [bool; 3]| {
            let mut shape = vec![1; 3];
            for ((axis, size), has_axis) in axes.iter().zip([count, labels, columns]).zip(has_axis)
            {
                shape[*axis] = if has_axis { size } else { 1 };
            }
            shape
        };
        let has_column = self.choices.one_in(6);
        // At times all elements have one label.
        let drawn = if self.choices.one_in(6) { 1 } else { labels };
        let index = self.indices(&shape([true, false, has_column]), drawn)?;
        let to = if self.choices.one_in(4) { self.dtype() } else { self.dtype_of(index) };
        let index = self.cast_to(index, to)?;
        let range_dtype = if to.is_int() { to } else { DType::I32 };
        let range = self.arange_along(range_dtype, labels, (3, label))?;
        let range = self.cast_to(range, to)?;
        let [x, y] = if self.choices.one_in(2) { [index, range] } else { [range, index] };
        let has_label = self.choices.one_in(5);
        let values = self.data(dtype, &shape([true, has_label, true]))?;
        let rest = self.rest(dtype);
        let chosen = if self.choices.one_in(2) {
            let test = self.binary_of(CmpEq, x, y)?;
            self.selected(test, Operand::Value(values), rest)?
        } else {
            let test = self.binary_of(CmpNe, x, y)?;
            self.selected(test, rest, Operand::Value(values))?
        };
        let op = self.choices.pick(&[ReduceOp::Sum, ReduceOp::Sum, ReduceOp::Max]);
        self.reduced(op, chosen, vec![element])
    }

    /// Draws what elements count as where they are not chosen: mostly nothing in a sum.
    fn rest(&mut self, dtype: DType) -> Operand {
        let (least, _) = fact::range(dtype);
        let value = match self.choices.below(8) {
            0..=3 => 0.0,
            4 if dtype.is_float() => -0.0,
            4 | 5 if dtype.is_int() => least,
            5 => -4.0,
            _ => self.choices.pick(&[1.0, 2.0]),
        };
        Operand::Literal(scalar_literal(dtype, value))
    }

    /// Adds a sum over a range, masked by a comparison with it: engines collapse such loops.
    pub(super) fn range_sum(&mut self) -> Option<ValueId> {
        let dtype = self.integer()?;
        let (count, rows) = (self.size(), self.size_up_to(9));
        let range = self.arange_along(dtype, count, (2, 1))?;
        let range = match self.choices.below(4) {
            0 => {
                let factor = self.choices.pick(&[2.0, 3.0, 4.0]);
                self.binary_with(Mul, range, factor)?
            }
            1 => {
                let offset = self.choices.pick(&[1.0, 2.0, 7.0]);
                self.binary_with(Add, range, offset)?
            }
            2 => self.flipped(range, vec![1])?,
            _ => range,
        };
        let test = match self.choices.below(4) {
            0 => {
                let bound = self.indices(&[rows, 1], count)?;
                self.binary_of(CmpLt, range, bound)?
            }
            1 => {
                let bound = self.arange_along(dtype, rows, (2, 0))?;
                self.binary_of(CmpLt, bound, range)?
            }
            2 => {
                let index = self.indices(&[rows, 1], count)?;
                self.binary_of(CmpNe, range, index)?
            }
            _ => {
                let bound = self.choices.below(count as u32 + 2);
                self.binary_with(CmpLt, range, f64::from(bound))?
            }
        };
        let term_dtype = self.choices.pick(&[DType::I32, DType::F32, DType::I64]);
        let zero = Operand::Literal(scalar_literal(term_dtype, 0.0));
        let terms = match self.choices.below(3) {
            0 => self.cast_to(test, term_dtype)?,
            1 => {
                let x = self.data(term_dtype, &[rows, 1])?;
                self.selected(test, Operand::Value(x), zero)?
            }
            _ => {
                let numbers = self.cast_to(range, term_dtype)?;
                self.selected(test, Operand::Value(numbers), zero)?
            }
        };
        self.reduced(ReduceOp::Sum, terms, vec![1])
    }

    /// Adds a triangular mask, above or below a diagonal.
    pub(super) fn triangle(&mut self) -> Option<ValueId> {
        let dtype = self.dtype();
        let rows = self.size();
        let columns = self.size_up_to((self.limit / rows).max(1));
        let x = self.data(dtype, &[rows, columns])?;
        let row = self.arange_along(DType::I32, rows, (2, 0))?;
        let diagonal = self.choices.pick(&[0.0, 1.0, -1.0, 3.0]);
        let row = if diagonal == 0.0 { row } else { self.binary_with(Add, row, diagonal)? };
        let column = self.arange_along(DType::I32, columns, (2, 1))?;
        let test = self.binary_of(CmpLt, row, column)?;
        let (x, zero) = (Operand::Value(x), Operand::Literal(scalar_literal(dtype, 0.0)));
        let (yes, no) = if self.choices.one_in(2) { (x, zero) } else { (zero, x) };
        let masked = self.selected(test, yes, no)?;
        if dtype == DType::Bool || self.choices.one_in(2) {
            return Some(masked);
        }
        let axis = self.choices.below(2) as usize;
        self.reduced(ReduceOp::Sum, masked, vec![axis])
    }

    /// Adds a dropout: elements masked by random bits of a counter, and scaled.
    pub(super) fn dropout(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let rows = self.size_up_to(8);
        let length = self.size_up_to((self.limit / rows).max(1));
        let x = self.data(dtype, &[rows, length])?;
        let counter = self.arange_along(DType::U64, rows * length, (1, 0))?;
        let key = Literal::Int(self.choices.pick(&[0, 1, 42, 0xffff_ffff, (1 << 63) + 7]));
        let srcs = [Operand::Value(counter), Operand::Literal(key)];
        let bits = Statement::Binary { op: Threefry, srcs };
        let bits = self.has_room(1).then(|| self.push(bits, Fact::whole(DType::U64)))?;
        let bits = if self.choices.one_in(2) {
            self.binary_with(Shr, bits, 40.0)?
        } else {
            let bits = self.cast_to(bits, DType::U32)?;
            self.binary_with(Shr, bits, 8.0)?
        };
        self.assume_range(bits, 0.0, (24.0_f64).exp2() - 1.0);
        let uniform = self.cast_to(bits, DType::F32)?;
        let uniform = self.binary_with(Mul, uniform, (-24.0_f64).exp2())?;
        let test = self.binary_with(CmpLt, uniform, 0.75)?;
        let test = self.reshaped(test, vec![rows, length])?;
        let zero = Operand::Literal(scalar_literal(dtype, 0.0));
        let masked = self.selected(test, Operand::Value(x), zero)?;
        self.binary_with(Mul, masked, 1.25)
    }

    /// Adds an assignment to a row, by a comparison with the index, or to a block of rows, by pads
    /// and a mask.
    pub(super) fn assignment(&mut self) -> Option<ValueId> {
        let dtype = self.dtype();
        let rows = self.size();
        let columns = self.size_up_to((self.limit / rows).max(1));
        let x = self.data(dtype, &[rows, columns])?;
        if self.choices.one_in(2) {
            let indices = self.arange_along(DType::I32, rows, (2, 0))?;
            let row = self.choices.below(rows as u32 + 1);
            let test = self.binary_with(CmpEq, indices, f64::from(row))?;
            let new = self.data(dtype, &[1, columns])?;
            return self.selected(test, Operand::Value(new), Operand::Value(x));
        }
        let start = self.choices.below(rows as u32) as usize;
        let end = start + 1 + self.choices.below((rows - start) as u32) as usize;
        let new = self.data(dtype, &[end - start, columns])?;
        let pads = vec![(start, rows - end), (0, 0)];
        let new = self.padded(new, pads.clone(), 0.0)?;
        let value = Literal::Bool(true);
        let shape = vec![end - start, columns];
        let ones = Statement::Const { dtype: DType::Bool, shape, value };
        let ones = self.has_room(1).then(|| self.push(ones, Fact::BOOL))?;
        let mask = self.padded(ones, pads, 0.0)?;
        self.selected(mask, Operand::Value(new), Operand::Value(x))
    }

    /// Adds a tensor of seeded bools.
    pub(super) fn bool_data(&mut self, shape: &[usize]) -> Option<ValueId> {
        let seed = self.choices.below(256).into();
        let distribution = gradiff_corpus::Distribution::Small;
        let fill = Fill::Seeded { seed, distribution };
        let fits = self.has_room(1) && self.fits(shape);
        let statement = Statement::Input { dtype: DType::Bool, shape: shape.to_vec(), fill };
        fits.then(|| self.push(statement, Fact::BOOL))
    }
}
