//! A reduction together with an expression that almost matches its input: the same function of the
//! same data along other axes, of a diagonal, of a slice of another size. An engine that caches a
//! reduction's input must reuse it for equal expressions only.

use gradiff_corpus::{BinaryOp::*, ReduceOp, UnaryOp, ValueId};

use crate::programs::Builder;

/// Sizes of the axes; two axes of these sizes have few elements.
const SIZES: [usize; 6] = [2, 3, 4, 5, 7, 8];

impl Builder<'_> {
    pub(super) fn near_match(&mut self) -> Option<ValueId> {
        let dtype = if self.choices.one_in(3) { self.integer() } else { self.float() }?;
        let n = self.choices.pick(&SIZES);
        let op = self.choices.pick(&[ReduceOp::Sum, ReduceOp::Max]);
        let kind = self.choices.below(5);
        if kind >= 3 {
            return self.slice_and_reduction(op, n);
        }
        let (x, y) = (self.data(dtype, &[n, 1])?, self.data(dtype, &[1, n])?);
        let square = self.costly_function(x, y)?;
        let reduced = |builder: &mut Self, value| builder.reduced(op, value, vec![0, 1]);
        match kind {
            0 => {
                let row = self.reshaped(x, vec![1, n])?;
                let diagonal = self.costly_function(row, y)?;
                let sum = reduced(self, square)?;
                self.binary_of(Add, diagonal, sum)
            }
            1 => {
                let row = self.reshaped(x, vec![1, n])?;
                let diagonal = self.costly_function(row, y)?;
                let sum = reduced(self, diagonal)?;
                self.binary_of(Sub, square, sum)
            }
            _ => {
                let transposed = self.permuted(square, vec![1, 0])?;
                let sum = reduced(self, square)?;
                self.binary_of(Add, transposed, sum)
            }
        }
    }

    /// Adds a function of two values that is worth caching.
    fn costly_function(&mut self, x: ValueId, y: ValueId) -> Option<ValueId> {
        let sum = self.binary_of(Add, x, y)?;
        if self.dtype_of(sum).is_float() {
            return self.unary_of(UnaryOp::Exp2, sum);
        }
        self.binary_of(Mul, sum, sum)
    }

    /// Adds `f(x[a..b]) + sum f(x[c..d])`, the slices of equal or different sizes.
    fn slice_and_reduction(&mut self, op: ReduceOp, n: usize) -> Option<ValueId> {
        let dtype = self.float()?;
        let count = n + self.choices.below(3) as usize;
        let data = self.data(dtype, &[count])?;
        let slice = |builder: &mut Self| {
            let size = n - builder.choices.below(2) as usize;
            let start = builder.choices.below((count - size) as u32 + 1) as usize;
            let slice = builder.shrunk(data, vec![(start, start + size)])?;
            builder.costly_function(slice, slice)
        };
        let (reduced, plain) = (slice(self)?, slice(self)?);
        let sum = self.reduced(op, reduced, vec![0])?;
        self.binary_of(Add, plain, sum)
    }
}
