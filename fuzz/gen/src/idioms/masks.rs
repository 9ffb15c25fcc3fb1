//! Idioms of masks by place: one-hot, embedding, ranges, triangles, dropout, assignment.

use gradiff_corpus::{BinaryOp::*, DType, Fill, Literal, Operand, ReduceOp, Statement, ValueId};

use super::words::number;
use crate::Choices;
use crate::fact::Fact;
use crate::programs::Builder;

/// Numbers of classes: powers of two, their neighbours, one.
const CLASSES: [usize; 12] = [4, 2, 8, 1, 16, 3, 7, 9, 5, 32, 15, 17];

impl<C: Choices> Builder<'_, C> {
    fn classes(&mut self) -> usize {
        let classes = self.choices.pick(&CLASSES);
        if classes <= self.limit { classes } else { 1 }
    }

    /// `index == range`, as truth values `[rows, classes]`.
    fn hot(&mut self, rows: usize, classes: usize) -> Option<ValueId> {
        let index = self.indices(&[rows, 1], classes)?;
        let range = self.counting(self.dtype_of(index), classes, (2, 1))?;
        if self.choices.one_in(2) {
            return self.both(CmpEq, index, range);
        }
        self.both(CmpEq, range, index)
    }

    pub(super) fn one_hot(&mut self) -> Option<ValueId> {
        let classes = self.classes();
        let rows = self.size_up_to((self.limit / classes).max(1));
        let hot = self.hot(rows, classes)?;
        match self.choices.below(4) {
            0 => Some(hot),
            1 => {
                let counts = self.to(hot, DType::I32)?;
                self.folded(ReduceOp::Sum, counts, vec![0])
            }
            2 => {
                let dtype = self.float()?;
                let one = self.data(dtype, &[1, classes])?;
                let zero = Operand::Literal(number(dtype, 0.0));
                self.chosen(hot, Operand::Value(one), zero)
            }
            _ => self.to(hot, DType::F32),
        }
    }

    /// Rows of a table by number: by comparison and a sum (as tinygrad does it), or by gather.
    pub(super) fn embedding(&mut self) -> Option<ValueId> {
        let dtype = self.dtype();
        if dtype == DType::Bool {
            return None;
        }
        let classes = self.classes();
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
        let hot = self.hot(rows, classes)?;
        let hot = self.reshaped(hot, vec![rows, classes, 1])?;
        let table = self.reshaped(table, vec![1, classes, width])?;
        let kept = if self.choices.one_in(2) {
            let numbers = self.to(hot, dtype)?;
            self.both(Mul, numbers, table)?
        } else {
            let zero = Operand::Literal(number(dtype, 0.0));
            self.chosen(hot, Operand::Value(table), zero)?
        };
        let sums = self.folded(ReduceOp::Sum, kept, vec![1])?;
        self.reshaped(sums, vec![rows, width])
    }

    /// Sums over a range of what a comparison with it lets through: what collapses.
    pub(super) fn range_sum(&mut self) -> Option<ValueId> {
        let dtype = self.integer()?;
        let (count, rows) = (self.size(), self.size_up_to(9));
        let range = self.counting(dtype, count, (2, 1))?;
        let range = match self.choices.below(4) {
            0 => {
                let factor = self.choices.pick(&[2.0, 3.0, 4.0]);
                self.with(Mul, range, factor)?
            }
            1 => {
                let off = self.choices.pick(&[1.0, 2.0, 7.0]);
                self.with(Add, range, off)?
            }
            2 => self.flipped(range, vec![1])?,
            _ => range,
        };
        let test = match self.choices.below(4) {
            0 => {
                let bound = self.indices(&[rows, 1], count)?;
                self.both(CmpLt, range, bound)?
            }
            1 => {
                let bound = self.counting(dtype, rows, (2, 0))?;
                self.both(CmpLt, bound, range)?
            }
            2 => {
                let index = self.indices(&[rows, 1], count)?;
                self.both(CmpNe, range, index)?
            }
            _ => {
                let bound = self.choices.below(count as u32 + 2);
                self.with(CmpLt, range, f64::from(bound))?
            }
        };
        let of = self.choices.pick(&[DType::I32, DType::F32, DType::I64]);
        let zero = Operand::Literal(number(of, 0.0));
        let kept = match self.choices.below(3) {
            0 => self.to(test, of)?,
            1 => {
                let x = self.data(of, &[rows, 1])?;
                self.chosen(test, Operand::Value(x), zero)?
            }
            _ => {
                let numbers = self.to(range, of)?;
                self.chosen(test, Operand::Value(numbers), zero)?
            }
        };
        self.folded(ReduceOp::Sum, kept, vec![1])
    }

    /// What lies on one side of a diagonal.
    pub(super) fn triangle(&mut self) -> Option<ValueId> {
        let dtype = self.dtype();
        let rows = self.size();
        let columns = self.size_up_to((self.limit / rows).max(1));
        let x = self.data(dtype, &[rows, columns])?;
        let down = self.counting(DType::I32, rows, (2, 0))?;
        let shift = self.choices.pick(&[0.0, 1.0, -1.0, 3.0]);
        let down = if shift == 0.0 { down } else { self.with(Add, down, shift)? };
        let across = self.counting(DType::I32, columns, (2, 1))?;
        let test = self.both(CmpLt, down, across)?;
        let (x, zero) = (Operand::Value(x), Operand::Literal(number(dtype, 0.0)));
        let (yes, no) = if self.choices.one_in(2) { (x, zero) } else { (zero, x) };
        let kept = self.chosen(test, yes, no)?;
        if dtype == DType::Bool || self.choices.one_in(2) {
            return Some(kept);
        }
        let axis = self.choices.below(2) as usize;
        self.folded(ReduceOp::Sum, kept, vec![axis])
    }

    /// Elements kept by random bits of a counter, and scaled.
    pub(super) fn dropout(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let rows = self.size_up_to(8);
        let length = self.size_up_to((self.limit / rows).max(1));
        let x = self.data(dtype, &[rows, length])?;
        let counter = self.counting(DType::U64, rows * length, (1, 0))?;
        let key = Literal::Int(self.choices.pick(&[0, 1, 42, 0xffff_ffff, (1 << 63) + 7]));
        let srcs = [Operand::Value(counter), Operand::Literal(key)];
        let bits = Statement::Binary { op: Threefry, srcs };
        let bits = self.has_room(1).then(|| self.push(bits, Fact::whole(DType::U64)))?;
        let bits = if self.choices.one_in(2) {
            self.with(Shr, bits, 40.0)?
        } else {
            let bits = self.to(bits, DType::U32)?;
            self.with(Shr, bits, 8.0)?
        };
        self.known(bits, 0.0, (24.0_f64).exp2() - 1.0);
        let uniform = self.to(bits, DType::F32)?;
        let uniform = self.with(Mul, uniform, (-24.0_f64).exp2())?;
        let test = self.with(CmpLt, uniform, 0.75)?;
        let test = self.reshaped(test, vec![rows, length])?;
        let zero = Operand::Literal(number(dtype, 0.0));
        let kept = self.chosen(test, Operand::Value(x), zero)?;
        self.with(Mul, kept, 1.25)
    }

    /// A row, a column or a block replaced: by a comparison with the place, or by pads and a mask.
    pub(super) fn assignment(&mut self) -> Option<ValueId> {
        let dtype = self.dtype();
        let rows = self.size();
        let columns = self.size_up_to((self.limit / rows).max(1));
        let x = self.data(dtype, &[rows, columns])?;
        if self.choices.one_in(2) {
            let places = self.counting(DType::I32, rows, (2, 0))?;
            let row = self.choices.below(rows as u32 + 1);
            let test = self.with(CmpEq, places, f64::from(row))?;
            let new = self.data(dtype, &[1, columns])?;
            return self.chosen(test, Operand::Value(new), Operand::Value(x));
        }
        let (from, until) = (self.choices.below(rows as u32) as usize, rows);
        let until = from + 1 + self.choices.below((until - from) as u32) as usize;
        let new = self.data(dtype, &[until - from, columns])?;
        let pads = vec![(from, rows - until), (0, 0)];
        let new = self.padded(new, pads.clone(), 0.0)?;
        let value = Literal::Bool(true);
        let shape = vec![until - from, columns];
        let ones = Statement::Const { dtype: DType::Bool, shape, value };
        let ones = self.has_room(1).then(|| self.push(ones, Fact::BOOL))?;
        let mask = self.padded(ones, pads, 0.0)?;
        self.chosen(mask, Operand::Value(new), Operand::Value(x))
    }

    /// A tensor of seeded truth values.
    pub(super) fn truth(&mut self, shape: &[usize]) -> Option<ValueId> {
        let seed = self.choices.below(256).into();
        let distribution = gradiff_corpus::Distribution::Small;
        let fill = Fill::Seeded { seed, distribution };
        let fits = self.has_room(1) && self.fits(shape);
        let statement = Statement::Input { dtype: DType::Bool, shape: shape.to_vec(), fill };
        fits.then(|| self.push(statement, Fact::BOOL))
    }
}
