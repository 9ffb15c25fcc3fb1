//! A reduction beside what it nearly reduces: the same function of the same data along other axes,
//! of a diagonal, of a slice of another size. Kernels keep rows that are the same, and no others.

use gradiff_corpus::{BinaryOp::*, ReduceOp, UnaryOp, ValueId};

use crate::Choices;
use crate::programs::Builder;

/// Sizes of the axes: two of them make few elements.
const SIZES: [usize; 6] = [2, 3, 4, 5, 7, 8];

impl<C: Choices> Builder<'_, C> {
    pub(super) fn nearly_kept(&mut self) -> Option<ValueId> {
        let dtype = if self.choices.one_in(3) { self.integer() } else { self.float() }?;
        let n = self.choices.pick(&SIZES);
        let fold = self.choices.pick(&[ReduceOp::Sum, ReduceOp::Max]);
        let kind = self.choices.below(5);
        if kind >= 3 {
            return self.slice_beside_reduction(fold, n);
        }
        let (x, y) = (self.data(dtype, &[n, 1])?, self.data(dtype, &[1, n])?);
        let square = self.function(x, y)?;
        let reduced = |of: &mut Self, value| of.folded(fold, value, vec![0, 1]);
        match kind {
            0 => {
                let row = self.reshaped(x, vec![1, n])?;
                let diagonal = self.function(row, y)?;
                let sum = reduced(self, square)?;
                self.both(Add, diagonal, sum)
            }
            1 => {
                let row = self.reshaped(x, vec![1, n])?;
                let diagonal = self.function(row, y)?;
                let sum = reduced(self, diagonal)?;
                self.both(Sub, square, sum)
            }
            _ => {
                let turned = self.permuted(square, vec![1, 0])?;
                let sum = reduced(self, square)?;
                self.both(Add, turned, sum)
            }
        }
    }

    /// A function of two values that costs something.
    fn function(&mut self, x: ValueId, y: ValueId) -> Option<ValueId> {
        let sum = self.both(Add, x, y)?;
        if self.dtype_of(sum).is_float() {
            return self.unary_of(UnaryOp::Exp2, sum);
        }
        self.both(Mul, sum, sum)
    }

    /// `f(x[a..b]) + sum f(x[c..d])`, the slices of one size or of two.
    fn slice_beside_reduction(&mut self, fold: ReduceOp, n: usize) -> Option<ValueId> {
        let dtype = self.float()?;
        let count = n + self.choices.below(3) as usize;
        let data = self.data(dtype, &[count])?;
        let part = |of: &mut Self| {
            let size = n - of.choices.below(2) as usize;
            let start = of.choices.below((count - size) as u32 + 1) as usize;
            let part = of.shrunk(data, vec![(start, start + size)])?;
            of.function(part, part)
        };
        let (one, other) = (part(self)?, part(self)?);
        let sum = self.folded(fold, one, vec![0])?;
        self.both(Add, other, sum)
    }
}
