//! Idioms that reduce along an axis: softmax, norms, variance, cross entropy, argmax.

use gradiff_corpus::{BinaryOp::*, DType, Operand, ReduceOp, Shape, UnaryOp, ValueId};

use super::statements::scalar_literal;
use crate::programs::Builder;

/// log2(e).
const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// ln(2), the inverse of log2(e).
const LN_2: f64 = std::f64::consts::LN_2;

impl Builder<'_> {
    /// Draws a shape of one to three axes, and one of the axes, mostly the last.
    fn row_shape(&mut self) -> (Shape, usize) {
        let rank = self.choices.pick(&[2, 1, 3, 2]);
        let mut shape = Shape::new();
        let mut max_size = self.limit;
        for _ in 0..rank {
            let size = self.size_up_to(max_size);
            max_size = (max_size / size).max(1);
            shape.push(size);
        }
        let axis = if self.choices.one_in(4) {
            self.choices.below(rank as u32) as usize
        } else {
            rank - 1
        };
        (shape, axis)
    }

    /// Adds float data, and draws an axis. 16-bit floats are sometimes converted to f32, as models
    /// do.
    fn float_rows(&mut self) -> Option<(ValueId, usize)> {
        let dtype = self.float()?;
        let (shape, axis) = self.row_shape();
        let x = self.data(dtype, &shape)?;
        let has_16_bits = matches!(dtype, DType::F16 | DType::BF16);
        if has_16_bits && self.choices.one_in(2) {
            return Some((self.cast_to(x, DType::F32)?, axis));
        }
        Some((x, axis))
    }

    /// Adds `x - max(x)` along the axis, and the exponentials of these differences.
    fn exponentials(&mut self, x: ValueId, axis: usize) -> Option<(ValueId, ValueId)> {
        let max = self.reduced(ReduceOp::Max, x, vec![axis])?;
        let shifted = self.binary_of(Sub, x, max)?;
        let min = if self.dtype_of(x) == DType::F16 { -8.0 } else { -30.0 };
        self.assume_range(shifted, min, 0.0);
        let variant = if self.dtype_of(x) == DType::F16 { 0 } else { self.choices.below(3) };
        if variant == 2 {
            return Some((shifted, self.exp(shifted)?));
        }
        let scaled = if variant == 1 { self.binary_with(Mul, shifted, LOG2_E)? } else { shifted };
        self.assume_range(scaled, min, 0.0);
        Some((shifted, self.unary_of(UnaryOp::Exp2, scaled)?))
    }

    /// Adds the softmax of `x` along the axis or, if `is_log` is set, its logarithm.
    pub(super) fn softmax(&mut self, x: ValueId, axis: usize, is_log: bool) -> Option<ValueId> {
        let (shifted, exps) = self.exponentials(x, axis)?;
        let total = self.reduced(ReduceOp::Sum, exps, vec![axis])?;
        self.assume_range(total, 0.9, f64::MAX);
        if is_log {
            let log2 = self.unary_of(UnaryOp::Log2, total)?;
            let log = self.binary_with(Mul, log2, LN_2)?;
            return self.binary_of(Sub, shifted, log);
        }
        let share = if self.choices.one_in(2) {
            let scale = self.unary_of(UnaryOp::Recip, total)?;
            self.binary_of(Mul, exps, scale)?
        } else {
            self.binary_of(Div, exps, total)?
        };
        self.assume_range(share, 0.0, 1.1);
        Some(share)
    }

    /// Adds the softmax of new data or, if `is_log` is set, its logarithm.
    pub(super) fn softmax_idiom(&mut self, is_log: bool) -> Option<ValueId> {
        let (x, axis) = self.float_rows()?;
        self.softmax(x, axis, is_log)
    }

    /// Adds the mean along the axes: a sum divided by the count, or times its inverse.
    fn mean(&mut self, x: ValueId, axes: &[usize]) -> Option<ValueId> {
        let count: usize = axes.iter().map(|axis| self.type_of(x).shape[*axis]).product();
        let sum = self.reduced(ReduceOp::Sum, x, axes.to_vec())?;
        let count = count.max(1) as f64;
        if self.choices.one_in(2) {
            self.binary_with(Div, sum, count)
        } else {
            self.binary_with(Mul, sum, 1.0 / count)
        }
    }

    /// Adds `x - mean(x)`, and the variance of `x`, along the axes.
    fn center_and_variance(&mut self, x: ValueId, axes: &[usize]) -> Option<(ValueId, ValueId)> {
        let mean = self.mean(x, axes)?;
        let centered = self.binary_of(Sub, x, mean)?;
        let squares = self.binary_of(Mul, centered, centered)?;
        self.assume_range(squares, 0.0, f64::MAX);
        let variance = self.mean(squares, axes)?;
        self.assume_range(variance, 0.0, f64::MAX);
        Some((centered, variance))
    }

    /// Adds `1 / sqrt(variance + epsilon)`.
    fn inverse_root(&mut self, variance: ValueId) -> Option<ValueId> {
        let epsilon = self.choices.pick(&[0.5, 1e-1, 1.0]);
        let sum = self.binary_with(Add, variance, epsilon)?;
        self.assume_range(sum, 0.9 * epsilon, f64::MAX);
        let root = self.unary_of(UnaryOp::Sqrt, sum)?;
        self.unary_of(UnaryOp::Recip, root)
    }

    /// Adds a layer norm if `is_centered` is set, else an RMS norm.
    pub(super) fn norm(&mut self, is_centered: bool) -> Option<ValueId> {
        let (x, axis) = self.float_rows()?;
        let (centered, variance) = if is_centered {
            self.center_and_variance(x, &[axis])?
        } else {
            let squares = self.binary_of(Mul, x, x)?;
            self.assume_range(squares, 0.0, f64::MAX);
            (x, self.mean(squares, &[axis])?)
        };
        let scale = self.inverse_root(variance)?;
        let normalized = self.binary_of(Mul, centered, scale)?;
        if self.choices.one_in(3) {
            return Some(normalized);
        }
        let mut shape = vec![1; self.shape_of(x).len()];
        shape[axis] = self.shape_of(x)[axis];
        let gamma = self.data(self.dtype_of(x), &shape)?;
        let scaled = self.binary_of(Mul, normalized, gamma)?;
        if self.choices.one_in(2) {
            return Some(scaled);
        }
        // The residual connection.
        self.binary_of(Add, x, scaled)
    }

    /// Adds a variance, or a standard deviation, along one axis or two.
    pub(super) fn variance_idiom(&mut self) -> Option<ValueId> {
        let (x, axis) = self.float_rows()?;
        let mut axes = vec![axis];
        if axis > 0 && self.choices.one_in(2) {
            axes.insert(0, 0);
        }
        let (_, variance) = self.center_and_variance(x, &axes)?;
        if self.choices.one_in(2) {
            return Some(variance);
        }
        let sum = self.binary_with(Add, variance, 0.25)?;
        self.assume_range(sum, 0.2, f64::MAX);
        self.unary_of(UnaryOp::Sqrt, sum)
    }

    /// Adds a batch norm, with the mean and the variance of each channel over all other axes or, as
    /// at inference, with given ones.
    pub(super) fn batch_norm(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let channels = self.size_up_to(8);
        let batch = self.size_up_to((self.limit / channels).clamp(1, 9));
        let length = self.size_up_to((self.limit / (channels * batch)).max(1));
        let x = self.data(dtype, &[batch, channels, length])?;
        let (centered, variance) = if self.choices.one_in(3) {
            let mean = self.data(dtype, &[1, channels, 1])?;
            (self.binary_of(Sub, x, mean)?, self.positive_data(dtype, &[1, channels, 1])?)
        } else {
            self.center_and_variance(x, &[0, 2])?
        };
        let scale = self.inverse_root(variance)?;
        let normalized = self.binary_of(Mul, centered, scale)?;
        let weight = self.data(dtype, &[channels])?;
        let weight = self.reshaped(weight, vec![1, channels, 1])?;
        let scaled = self.binary_of(Mul, normalized, weight)?;
        if self.choices.one_in(2) { self.binary_with(Max, scaled, 0.0) } else { Some(scaled) }
    }

    /// Adds a cross entropy: the mean of the negated log-softmax of one class in each row.
    pub(super) fn cross_entropy(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let classes = self.size();
        let rows = self.size_up_to((self.limit / classes).max(1));
        let x = self.data(dtype, &[rows, classes])?;
        let log_shares = self.softmax(x, 1, true)?;
        let index = self.indices(&[rows, 1], classes)?;
        let range = self.arange_along(self.dtype_of(index), classes, (2, 1))?;
        let is_class = self.binary_of(CmpEq, index, range)?;
        let zero = Operand::Literal(scalar_literal(self.dtype_of(log_shares), 0.0));
        let masked = self.selected(is_class, Operand::Value(log_shares), zero)?;
        let loss = self.reduced(ReduceOp::Sum, masked, vec![1])?;
        let mean = self.mean(loss, &[0])?;
        self.unary_of(UnaryOp::Neg, mean)
    }

    /// Adds an argmax: the first index of the maximum along the axis, computed as in tinygrad.
    pub(super) fn argmax(&mut self) -> Option<ValueId> {
        let (shape, axis) = self.row_shape();
        let dtype = if self.choices.one_in(2) { self.float()? } else { self.integer()? };
        let x = self.data(dtype, &shape)?;
        let max = self.reduced(ReduceOp::Max, x, vec![axis])?;
        let is_max = self.binary_of(CmpEq, x, max)?;
        let count = shape[axis];
        let range = self.arange_along(DType::I32, count, (shape.len(), axis))?;
        let negated = self.unary_of(UnaryOp::Neg, range)?;
        let from_end = self.binary_with(Add, negated, count as f64)?;
        let factors = self.cast_to(is_max, DType::I32)?;
        let masked = self.binary_of(Mul, factors, from_end)?;
        let first = self.reduced(ReduceOp::Max, masked, vec![axis])?;
        let negated = self.unary_of(UnaryOp::Neg, first)?;
        self.binary_with(Add, negated, count as f64)
    }
}
