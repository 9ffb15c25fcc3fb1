//! Idioms of products: matmul, attention, rotary embedding.

use gradiff_corpus::{BinaryOp::*, DType, Operand, ReduceOp, UnaryOp, ValueId};

use super::words::number;
use crate::Choices;
use crate::programs::Builder;

impl<C: Choices> Builder<'_, C> {
    /// A dtype for products: what tensor cores take more often.
    fn factor(&mut self) -> Option<DType> {
        if self.choices.one_in(4) { self.integer() } else { self.float() }
    }

    /// A factor, sometimes with a mask: padded from less, or chosen by place.
    fn masked(&mut self, dtype: DType, shape: &[usize]) -> Option<ValueId> {
        let rank = shape.len();
        match self.choices.below(5) {
            0 if shape[rank - 1] > 1 => {
                let mut smaller = shape.to_vec();
                let before = self.choices.below(2) as usize;
                smaller[rank - 1] -= 1;
                let x = self.data(dtype, &smaller)?;
                let mut pads = vec![(0, 0); rank];
                pads[rank - 1] = (before, 1 - before);
                self.padded(x, pads, 0.0)
            }
            1 => {
                let x = self.data(dtype, shape)?;
                let at = self.choices.below(rank as u32) as usize;
                let range = self.counting(DType::I32, shape[at], (rank, at))?;
                let test = self.with(CmpLt, range, (shape[at] / 2) as f64)?;
                self.chosen(test, Operand::Value(x), Operand::Literal(number(dtype, 0.0)))
            }
            _ => self.data(dtype, shape),
        }
    }

    /// `[m, k]` times `[k, n]`, in one of the ways to write it, with what often follows.
    pub(super) fn matmul(&mut self) -> Option<ValueId> {
        let dtype = self.factor()?;
        let k = self.size();
        // Columns as panels have them, or any number.
        let n = self.choices.pick(&[16, 32, 48, 0, 0, 0]);
        let k = self.limit.checked_div(n).map_or(k, |most| k.min(most.max(1)));
        let m = self.size_up_to((self.limit / (k * n.max(1))).clamp(1, 33));
        let n = if n == 0 { self.size_up_to((self.limit / (k * m)).max(1)) } else { n };
        let x = self.masked(dtype, &[m, k])?;
        let x = self.reshaped(x, vec![m, 1, k])?;
        let y = if self.choices.one_in(2) {
            self.masked(dtype, &[n, k])?
        } else {
            let y = self.masked(dtype, &[k, n])?;
            self.permuted(y, vec![1, 0])?
        };
        let y = self.reshaped(y, vec![1, n, k])?;
        let (x, y) = match self.choices.below(4) {
            // Accumulated in a wider type, as asked for by a cast.
            3 if matches!(dtype, DType::F16 | DType::BF16) => {
                (self.to(x, DType::F32)?, self.to(y, DType::F32)?)
            }
            _ => (x, y),
        };
        let product = self.both(Mul, x, y)?;
        let sum = self.folded(ReduceOp::Sum, product, vec![2])?;
        if self.choices.one_in(5) {
            let turned = self.permuted(sum, vec![1, 0, 2])?;
            let moved = self.with(Add, turned, 1.0)?;
            return self.reshaped(moved, vec![n, m]);
        }
        let result = self.reshaped(sum, vec![m, n])?;
        match self.choices.below(5) {
            0 => {
                let bias = self.data(self.dtype_of(result), &[n])?;
                let sum = self.both(Add, result, bias)?;
                self.with(Max, sum, 0.0)
            }
            1 => self.to(result, dtype),
            2 => self.permuted(result, vec![1, 0]),
            3 => self.padded(result, vec![(1, 0), (0, 2)], 0.0),
            _ => Some(result),
        }
    }

    /// Scaled products of queries and keys, masked, softmax, times values.
    pub(super) fn attention(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let d = self.choices.pick(&[4, 8, 2, 3]);
        let most = ((self.limit / d) as f64).sqrt() as usize;
        let m = self.size_up_to(most.max(1));
        let n = if self.choices.one_in(2) { m } else { self.size_up_to(most.max(1)) };
        let q = self.data(dtype, &[m, d])?;
        let q = self.reshaped(q, vec![m, 1, d])?;
        let k = self.data(dtype, &[n, d])?;
        let k = self.reshaped(k, vec![1, n, d])?;
        let products = self.both(Mul, q, k)?;
        let scores = self.folded(ReduceOp::Sum, products, vec![2])?;
        let scores = self.reshaped(scores, vec![m, n])?;
        let scale = self.choices.pick(&[0.125, 0.25, 0.35355]);
        let scores = self.with(Mul, scores, scale)?;
        let scores = self.attention_mask(scores, [m, n])?;
        let shares = self.softmax(scores, 1, false)?;
        let v = self.data(dtype, &[n, d])?;
        let shares = self.reshaped(shares, vec![m, n, 1])?;
        let v = self.reshaped(v, vec![1, n, d])?;
        let weighted = self.both(Mul, shares, v)?;
        let out = self.folded(ReduceOp::Sum, weighted, vec![1])?;
        self.reshaped(out, vec![m, d])
    }

    /// Causal, by a tensor of truth values, by an added tensor, or none.
    fn attention_mask(&mut self, scores: ValueId, [m, n]: [usize; 2]) -> Option<ValueId> {
        let least = self.choices.pick(&[f64::NEG_INFINITY, -1e4, -30.0]);
        let least = Operand::Literal(number(self.dtype_of(scores), least));
        let test = match self.choices.below(4) {
            0 | 1 => {
                let rows = self.counting(DType::I32, m, (2, 0))?;
                let columns = self.counting(DType::I32, n, (2, 1))?;
                self.both(CmpLt, rows, columns)?
            }
            2 => {
                let x = self.data(DType::I32, &[m, n])?;
                self.with(CmpLt, x, 0.0)?
            }
            _ => return Some(scores),
        };
        let before = self.fact(scores);
        let masked = self.chosen(test, least, Operand::Value(scores))?;
        self.facts[masked.0 as usize] = before;
        Some(masked)
    }

    /// Halves of each row turned by angles: `x * cos + cat(-right, left) * sin`.
    pub(super) fn rotary(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let half = self.choices.pick(&[2, 4, 1, 3, 8]);
        let rows = self.size_up_to((self.limit / (2 * half)).max(1));
        let x = self.data(dtype, &[rows, 2 * half])?;
        let left = self.shrunk(x, vec![(0, rows), (0, half)])?;
        let right = self.shrunk(x, vec![(0, rows), (half, 2 * half)])?;
        let right = self.unary_of(UnaryOp::Neg, right)?;
        let turned = self.joined(vec![right, left], 1)?;
        let places = self.counting(DType::I32, rows, (2, 0))?;
        let places = self.to(places, dtype)?;
        let angles = self.with(Mul, places, 0.25)?;
        let sin = self.unary_of(UnaryOp::Sin, angles)?;
        let shifted = self.with(Add, angles, std::f64::consts::FRAC_PI_2)?;
        let cos = self.unary_of(UnaryOp::Sin, shifted)?;
        let kept = self.both(Mul, x, cos)?;
        let moved = self.both(Mul, turned, sin)?;
        self.both(Add, kept, moved)
    }
}
