//! Idioms along rows: softmax, norms, variance, cross entropy, argmax.

use gradiff_corpus::{BinaryOp::*, DType, Operand, ReduceOp, Shape, UnaryOp, ValueId};

use super::words::number;
use crate::Choices;
use crate::programs::Builder;

/// log2(e) and its inverse.
const LOG2_E: f64 = std::f64::consts::LOG2_E;
const LN_2: f64 = std::f64::consts::LN_2;

impl<C: Choices> Builder<'_, C> {
    /// A shape of one to three axes and one of them, mostly the last.
    fn rows(&mut self) -> (Shape, usize) {
        let rank = self.choices.pick(&[2, 1, 3, 2]);
        let mut shape = Shape::new();
        let mut room = self.limit;
        for _ in 0..rank {
            let size = self.size_up_to(room);
            room = (room / size).max(1);
            shape.push(size);
        }
        let axis = if self.choices.one_in(4) {
            self.choices.below(rank as u32) as usize
        } else {
            rank - 1
        };
        (shape, axis)
    }

    /// Data of floats; 16-bit ones sometimes widened first, as models do.
    fn float_rows(&mut self) -> Option<(ValueId, usize)> {
        let dtype = self.float()?;
        let (shape, axis) = self.rows();
        let x = self.data(dtype, &shape)?;
        let is_short = matches!(dtype, DType::F16 | DType::BF16);
        let x = if is_short && self.choices.one_in(2) { self.to(x, DType::F32)? } else { x };
        Some((x, axis))
    }

    /// `x` less its largest along the axis, and the exponentials of that.
    fn exponentials(&mut self, x: ValueId, axis: usize) -> Option<(ValueId, ValueId)> {
        let most = self.folded(ReduceOp::Max, x, vec![axis])?;
        let below = self.both(Sub, x, most)?;
        let least = if self.dtype_of(x) == DType::F16 { -8.0 } else { -30.0 };
        self.known(below, least, 0.0);
        let way = if self.dtype_of(x) == DType::F16 { 0 } else { self.choices.below(3) };
        if way == 2 {
            return Some((below, self.exp(below)?));
        }
        let scaled = if way == 1 { self.with(Mul, below, LOG2_E)? } else { below };
        self.known(scaled, least, 0.0);
        Some((below, self.unary_of(UnaryOp::Exp2, scaled)?))
    }

    /// Softmax of `x` along the axis, or its logarithm.
    pub(super) fn softmax(&mut self, x: ValueId, axis: usize, log: bool) -> Option<ValueId> {
        let (below, exps) = self.exponentials(x, axis)?;
        let total = self.folded(ReduceOp::Sum, exps, vec![axis])?;
        self.known(total, 0.9, f64::MAX);
        if log {
            let bits = self.unary_of(UnaryOp::Log2, total)?;
            let log = self.with(Mul, bits, LN_2)?;
            return self.both(Sub, below, log);
        }
        let share = if self.choices.one_in(2) {
            let scale = self.unary_of(UnaryOp::Recip, total)?;
            self.both(Mul, exps, scale)?
        } else {
            self.both(Div, exps, total)?
        };
        self.known(share, 0.0, 1.1);
        Some(share)
    }

    pub(super) fn softmax_idiom(&mut self, log: bool) -> Option<ValueId> {
        let (x, axis) = self.float_rows()?;
        self.softmax(x, axis, log)
    }

    /// Mean along the axes: by division, or by a product with the inverse.
    fn mean(&mut self, x: ValueId, axes: &[usize]) -> Option<ValueId> {
        let count: usize = axes.iter().map(|axis| self.type_of(x).shape[*axis]).product();
        let sum = self.folded(ReduceOp::Sum, x, axes.to_vec())?;
        let count = count.max(1) as f64;
        if self.choices.one_in(2) {
            self.with(Div, sum, count)
        } else {
            self.with(Mul, sum, 1.0 / count)
        }
    }

    /// `x` less its mean, and its variance, along the axes.
    fn spread(&mut self, x: ValueId, axes: &[usize]) -> Option<(ValueId, ValueId)> {
        let mean = self.mean(x, axes)?;
        let off = self.both(Sub, x, mean)?;
        let squares = self.both(Mul, off, off)?;
        self.known(squares, 0.0, f64::MAX);
        let variance = self.mean(squares, axes)?;
        self.known(variance, 0.0, f64::MAX);
        Some((off, variance))
    }

    /// `1 / sqrt(variance + epsilon)`.
    fn inverse_root(&mut self, variance: ValueId) -> Option<ValueId> {
        let epsilon = self.choices.pick(&[0.5, 1e-1, 1.0]);
        let raised = self.with(Add, variance, epsilon)?;
        self.known(raised, 0.9 * epsilon, f64::MAX);
        let root = self.unary_of(UnaryOp::Sqrt, raised)?;
        self.unary_of(UnaryOp::Recip, root)
    }

    pub(super) fn norm(&mut self, centered: bool) -> Option<ValueId> {
        let (x, axis) = self.float_rows()?;
        let (off, variance) = if centered {
            self.spread(x, &[axis])?
        } else {
            let squares = self.both(Mul, x, x)?;
            self.known(squares, 0.0, f64::MAX);
            (x, self.mean(squares, &[axis])?)
        };
        let scale = self.inverse_root(variance)?;
        let normal = self.both(Mul, off, scale)?;
        if self.choices.one_in(3) {
            return Some(normal);
        }
        let mut shape = vec![1; self.shape_of(x).len()];
        shape[axis] = self.shape_of(x)[axis];
        let gamma = self.data(self.dtype_of(x), &shape)?;
        let scaled = self.both(Mul, normal, gamma)?;
        if self.choices.one_in(2) {
            return Some(scaled);
        }
        // The residual.
        self.both(Add, x, scaled)
    }

    pub(super) fn variance_idiom(&mut self) -> Option<ValueId> {
        let (x, axis) = self.float_rows()?;
        let mut axes = vec![axis];
        if axis > 0 && self.choices.one_in(2) {
            axes.insert(0, 0);
        }
        let (_, variance) = self.spread(x, &axes)?;
        if self.choices.one_in(2) {
            return Some(variance);
        }
        let raised = self.with(Add, variance, 0.25)?;
        self.known(raised, 0.2, f64::MAX);
        self.unary_of(UnaryOp::Sqrt, raised)
    }

    /// Statistics over all axes but the channels', applied by channel.
    pub(super) fn batch_norm(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let channels = self.size_up_to(8);
        let batch = self.size_up_to((self.limit / channels).clamp(1, 9));
        let length = self.size_up_to((self.limit / (channels * batch)).max(1));
        let x = self.data(dtype, &[batch, channels, length])?;
        let (off, variance) = if self.choices.one_in(3) {
            let mean = self.data(dtype, &[1, channels, 1])?;
            (self.both(Sub, x, mean)?, self.positive(dtype, &[1, channels, 1])?)
        } else {
            self.spread(x, &[0, 2])?
        };
        let scale = self.inverse_root(variance)?;
        let normal = self.both(Mul, off, scale)?;
        let weight = self.data(dtype, &[channels])?;
        let weight = self.reshaped(weight, vec![1, channels, 1])?;
        let scaled = self.both(Mul, normal, weight)?;
        if self.choices.one_in(2) { self.with(Max, scaled, 0.0) } else { Some(scaled) }
    }

    /// The negative logarithm of the share of one class in each row.
    pub(super) fn cross_entropy(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let classes = self.size();
        let rows = self.size_up_to((self.limit / classes).max(1));
        let x = self.data(dtype, &[rows, classes])?;
        let shares = self.softmax(x, 1, true)?;
        let index = self.indices(&[rows, 1], classes)?;
        let range = self.counting(self.dtype_of(index), classes, (2, 1))?;
        let is_class = self.both(CmpEq, index, range)?;
        let zero = Operand::Literal(number(self.dtype_of(shares), 0.0));
        let kept = self.chosen(is_class, Operand::Value(shares), zero)?;
        let loss = self.folded(ReduceOp::Sum, kept, vec![1])?;
        let mean = self.mean(loss, &[0])?;
        self.unary_of(UnaryOp::Neg, mean)
    }

    /// The first place of the largest of each row, as tinygrad finds it.
    pub(super) fn argmax(&mut self) -> Option<ValueId> {
        let (shape, axis) = self.rows();
        let dtype = if self.choices.one_in(2) { self.float()? } else { self.integer()? };
        let x = self.data(dtype, &shape)?;
        let most = self.folded(ReduceOp::Max, x, vec![axis])?;
        let is_most = self.both(CmpEq, x, most)?;
        let count = shape[axis];
        let range = self.counting(DType::I32, count, (shape.len(), axis))?;
        let left = self.unary_of(UnaryOp::Neg, range)?;
        let left = self.with(Add, left, count as f64)?;
        let numbers = self.to(is_most, DType::I32)?;
        let places = self.both(Mul, numbers, left)?;
        let last = self.folded(ReduceOp::Max, places, vec![axis])?;
        let back = self.unary_of(UnaryOp::Neg, last)?;
        self.with(Add, back, count as f64)
    }
}
