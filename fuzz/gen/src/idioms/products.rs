//! Idioms of products: matmul, attention, rotary embedding.

use gradiff_corpus::{BinaryOp::*, DType, Operand, ReduceOp, UnaryOp, ValueId};

use super::statements::scalar_literal;
use crate::programs::Builder;

impl Builder<'_> {
    /// Draws the dtype of a product's factors; mostly floats, which tensor cores support.
    fn factor_dtype(&mut self) -> Option<DType> {
        if self.choices.one_in(4) { self.integer() } else { self.float() }
    }

    /// Adds a factor, sometimes masked: by a pad, or by a comparison with the index.
    fn masked_data(&mut self, dtype: DType, shape: &[usize]) -> Option<ValueId> {
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
                let axis = self.choices.below(rank as u32) as usize;
                let range = self.arange_along(DType::I32, shape[axis], (rank, axis))?;
                let test = self.binary_with(CmpLt, range, (shape[axis] / 2) as f64)?;
                self.selected(test, Operand::Value(x), Operand::Literal(scalar_literal(dtype, 0.0)))
            }
            _ => self.data(dtype, shape),
        }
    }

    /// Adds a product of `[m, k]` and `[k, n]`, often with an epilogue.
    pub(super) fn matmul(&mut self) -> Option<ValueId> {
        let dtype = self.factor_dtype()?;
        let k = self.size();
        // Multiples of the width of a panel, or (0) any number.
        let n = self.choices.pick(&[16, 32, 48, 0, 0, 0]);
        let k = self.limit.checked_div(n).map_or(k, |max| k.min(max.max(1)));
        let m = self.size_up_to((self.limit / (k * n.max(1))).clamp(1, 33));
        let n = if n == 0 { self.size_up_to((self.limit / (k * m)).max(1)) } else { n };
        let x = self.masked_data(dtype, &[m, k])?;
        let x = self.reshaped(x, vec![m, 1, k])?;
        let y = if self.choices.one_in(2) {
            self.masked_data(dtype, &[n, k])?
        } else {
            let y = self.masked_data(dtype, &[k, n])?;
            self.permuted(y, vec![1, 0])?
        };
        let y = self.reshaped(y, vec![1, n, k])?;
        let (x, y) = match self.choices.below(4) {
            // Casts that ask for a wider accumulator.
            3 if matches!(dtype, DType::F16 | DType::BF16) => {
                (self.cast_to(x, DType::F32)?, self.cast_to(y, DType::F32)?)
            }
            _ => (x, y),
        };
        let product = self.binary_of(Mul, x, y)?;
        let sum = self.reduced(ReduceOp::Sum, product, vec![2])?;
        if self.choices.one_in(5) {
            let transposed = self.permuted(sum, vec![1, 0, 2])?;
            let increased = self.binary_with(Add, transposed, 1.0)?;
            return self.reshaped(increased, vec![n, m]);
        }
        let result = self.reshaped(sum, vec![m, n])?;
        match self.choices.below(5) {
            0 => {
                let bias = self.data(self.dtype_of(result), &[n])?;
                let sum = self.binary_of(Add, result, bias)?;
                self.binary_with(Max, sum, 0.0)
            }
            1 => self.cast_to(result, dtype),
            2 => self.permuted(result, vec![1, 0]),
            3 => self.padded(result, vec![(1, 0), (0, 2)], 0.0),
            _ => Some(result),
        }
    }

    /// Adds an attention: softmax of the scaled and masked products of queries and keys, times
    /// values.
    pub(super) fn attention(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let d = self.choices.pick(&[4, 8, 2, 3]);
        let max = (((self.limit / d) as f64).sqrt() as usize).max(1);
        let m = self.size_up_to(max);
        let n = if self.choices.one_in(2) { m } else { self.size_up_to(max) };
        let q = self.data(dtype, &[m, d])?;
        let q = self.reshaped(q, vec![m, 1, d])?;
        let k = self.data(dtype, &[n, d])?;
        let k = self.reshaped(k, vec![1, n, d])?;
        let products = self.binary_of(Mul, q, k)?;
        let scores = self.reduced(ReduceOp::Sum, products, vec![2])?;
        let scores = self.reshaped(scores, vec![m, n])?;
        let scale = self.choices.pick(&[0.125, 0.25, 0.35355]);
        let scores = self.binary_with(Mul, scores, scale)?;
        let scores = self.attention_mask(scores, [m, n])?;
        let shares = self.softmax(scores, 1, false)?;
        let v = self.data(dtype, &[n, d])?;
        let shares = self.reshaped(shares, vec![m, n, 1])?;
        let v = self.reshaped(v, vec![1, n, d])?;
        let weighted = self.binary_of(Mul, shares, v)?;
        let out = self.reduced(ReduceOp::Sum, weighted, vec![1])?;
        self.reshaped(out, vec![m, d])
    }

    /// Masks scores: causally, by a tensor, or not at all.
    fn attention_mask(&mut self, scores: ValueId, [m, n]: [usize; 2]) -> Option<ValueId> {
        let masked_score = self.choices.pick(&[f64::NEG_INFINITY, -1e4, -30.0]);
        let masked_score = Operand::Literal(scalar_literal(self.dtype_of(scores), masked_score));
        let test = match self.choices.below(4) {
            0 | 1 => {
                let rows = self.arange_along(DType::I32, m, (2, 0))?;
                let columns = self.arange_along(DType::I32, n, (2, 1))?;
                self.binary_of(CmpLt, rows, columns)?
            }
            2 => {
                let x = self.data(DType::I32, &[m, n])?;
                self.binary_with(CmpLt, x, 0.0)?
            }
            _ => return Some(scores),
        };
        let before = self.fact(scores);
        let masked = self.selected(test, masked_score, Operand::Value(scores))?;
        self.facts[masked.0 as usize] = before;
        Some(masked)
    }

    /// Adds a rotary embedding of rows: `x * cos + cat(-right, left) * sin`.
    pub(super) fn rotary(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let half = self.choices.pick(&[2, 4, 1, 3, 8]);
        let rows = self.size_up_to((self.limit / (2 * half)).max(1));
        let x = self.data(dtype, &[rows, 2 * half])?;
        let left = self.shrunk(x, vec![(0, rows), (0, half)])?;
        let right = self.shrunk(x, vec![(0, rows), (half, 2 * half)])?;
        let right = self.unary_of(UnaryOp::Neg, right)?;
        let swapped = self.concatenated(vec![right, left], 1)?;
        let positions = self.arange_along(DType::I32, rows, (2, 0))?;
        let positions = self.cast_to(positions, dtype)?;
        let angles = self.binary_with(Mul, positions, 0.25)?;
        let sin = self.unary_of(UnaryOp::Sin, angles)?;
        let shifted = self.binary_with(Add, angles, std::f64::consts::FRAC_PI_2)?;
        let cos = self.unary_of(UnaryOp::Sin, shifted)?;
        let left = self.binary_of(Mul, x, cos)?;
        let right = self.binary_of(Mul, swapped, sin)?;
        self.binary_of(Add, left, right)
    }
}
