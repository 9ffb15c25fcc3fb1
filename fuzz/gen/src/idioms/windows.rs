//! Idioms of sliding windows: convolution, pooling, cumulative sums. Also upsampling, rolls,
//! stacks.

use gradiff_corpus::{BinaryOp::*, DType, ReduceOp, Statement, ValueId};

use super::statements::scalar_literal;
use crate::fact::Fact;
use crate::programs::Builder;

/// Geometry of the windows along an axis.
#[derive(Clone, Copy, Debug)]
struct Window {
    size: usize,
    stride: usize,
    dilation: usize,
}

impl Builder<'_> {
    fn window(&mut self, length: usize) -> Window {
        let size = self.choices.pick(&[2, 3, 1, 4]).min(length);
        let stride = self.choices.pick(&[1, 2, 1, 3]);
        let dilation = self.choices.pick(&[1, 1, 2]);
        let dilation = if dilation * (size - 1) < length { dilation } else { 1 };
        Window { size, stride, dilation }
    }

    /// Adds a view of `[.., length]` as `[.., windows, size]`, by expand, shrink and reshape alone,
    /// as in tinygrad's `_pool`: the axis is repeated and split into rows that are longer than it
    /// by the dilation, so that row j begins at j times the dilation.
    fn windows(&mut self, x: ValueId, window: Window) -> Option<ValueId> {
        let Window { size, stride, dilation } = window;
        let shape = self.shape_of(x);
        let (length, outer) = shape.split_last()?;
        let (length, rank) = (*length, shape.len());
        let count = (length.checked_sub(dilation * (size - 1) + 1)?) / stride + 1;
        let row = length + dilation;
        if count * stride > row {
            return None;
        }
        let repeats = (size * row).div_ceil(length);
        let with = |tail: &[usize]| outer.iter().chain(tail).copied().collect::<Vec<usize>>();
        let cut = |tail: &[usize]| with(tail).into_iter().map(|size| (0, size)).collect::<Vec<_>>();
        let spread = self.reshaped(x, with(&[1, length]))?;
        let spread = self.expanded(spread, with(&[repeats, length]))?;
        let flat = self.reshaped(spread, with(&[repeats * length]))?;
        let flat = self.shrunk(flat, cut(&[size * row]))?;
        let rows = self.reshaped(flat, with(&[size, row]))?;
        let rows = self.shrunk(rows, cut(&[size, count * stride]))?;
        let rows = if stride == 1 {
            rows
        } else {
            let rows = self.reshaped(rows, with(&[size, count, stride]))?;
            let rows = self.shrunk(rows, cut(&[size, count, 1]))?;
            self.reshaped(rows, with(&[size, count]))?
        };
        let mut axes: Vec<usize> = (0..=rank).collect();
        axes.swap(rank - 1, rank);
        self.permuted(rows, axes)
    }

    /// Adds a 1-dimensional convolution with channels, groups, padding, stride and dilation.
    pub(super) fn convolution(&mut self) -> Option<ValueId> {
        let dtype = if self.choices.one_in(5) { self.integer()? } else { self.float()? };
        let (groups, inputs) = self.choices.pick(&[(1, 1), (1, 2), (2, 1), (1, 3), (2, 2)]);
        let outputs = self.choices.pick(&[1, 2, 4]);
        let max_length = self.limit / (8 * groups * inputs * outputs);
        let length = self.size_up_to(max_length.clamp(1, 40));
        let x = self.data(dtype, &[groups, inputs, length])?;
        let pads = self.choices.pick(&[(0, 0), (1, 1), (2, 0), (0, 1)]);
        let x = if pads == (0, 0) { x } else { self.padded(x, vec![(0, 0), (0, 0), pads], 0.0)? };
        let window = self.window(length + pads.0 + pads.1);
        let wide = self.windows(x, window)?;
        let count = self.shape_of(wide)[2];
        let size = window.size;
        let wide = self.reshaped(wide, vec![groups, 1, inputs, count, size])?;
        let weight = self.data(dtype, &[groups, outputs, inputs, size])?;
        let weight = self.reshaped(weight, vec![groups, outputs, inputs, 1, size])?;
        let products = self.binary_of(Mul, wide, weight)?;
        let sums = self.reduced(ReduceOp::Sum, products, vec![2, 4])?;
        let out = self.reshaped(sums, vec![groups * outputs, count])?;
        match self.choices.below(3) {
            0 => {
                let bias = self.data(self.dtype_of(out), &[groups * outputs, 1])?;
                self.binary_of(Add, out, bias)
            }
            1 => self.binary_with(Max, out, 0.0),
            _ => Some(out),
        }
    }

    /// Adds a 2-dimensional convolution of one channel.
    pub(super) fn convolution_2d(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let max_size = (((self.limit / 9) as f64).sqrt() as usize).clamp(1, 12);
        let (height, width) = (self.size_up_to(max_size), self.size_up_to(max_size));
        let x = self.data(dtype, &[height, width])?;
        let x = self.padded(x, vec![(1, 1), (1, 1)], 0.0)?;
        let stride = self.choices.pick(&[1, 2]);
        let window = Window { size: 3.min(width + 2), stride, dilation: 1 };
        let wide = self.windows(x, window)?;
        let [_, columns, window_width] = self.shape_of(wide)[..] else { return None };
        let permuted = self.permuted(wide, vec![1, 2, 0])?;
        let window = Window { size: 3.min(height + 2), ..window };
        let wide = self.windows(permuted, window)?;
        let [_, _, rows, window_height] = self.shape_of(wide)[..] else { return None };
        let weight = self.data(dtype, &[1, window_width, 1, window_height])?;
        let products = self.binary_of(Mul, wide, weight)?;
        let sums = self.reduced(ReduceOp::Sum, products, vec![1, 3])?;
        let out = self.reshaped(sums, vec![columns, rows])?;
        self.permuted(out, vec![1, 0])
    }

    /// Adds the maximum or the mean of each window.
    pub(super) fn pooling(&mut self) -> Option<ValueId> {
        let dtype = if self.choices.one_in(4) { self.integer()? } else { self.float()? };
        let rows = self.size_up_to(6);
        let length = self.size_up_to((self.limit / (6 * rows)).clamp(1, 70));
        let x = self.data(dtype, &[rows, length])?;
        let window = self.window(length);
        if self.choices.one_in(2) {
            let is_float = dtype.is_float();
            let pad = if is_float && self.choices.one_in(2) { f64::NEG_INFINITY } else { 0.0 };
            let x = self.padded(x, vec![(0, 0), (1, 1)], pad)?;
            let wide = self.windows(x, window)?;
            return self.reduced(ReduceOp::Max, wide, vec![2]);
        }
        let wide = self.windows(x, window)?;
        let sums = self.reduced(ReduceOp::Sum, wide, vec![2])?;
        if !dtype.is_float() {
            return self.binary_with(FloorDiv, sums, window.size as f64);
        }
        self.binary_with(Mul, sums, 1.0 / window.size as f64)
    }

    /// Adds a cumulative sum or maximum, by windows as long as the axis.
    pub(super) fn cumulative_sum(&mut self) -> Option<ValueId> {
        let is_float = self.choices.one_in(2);
        let dtype = if is_float { self.float()? } else { self.integer()? };
        let max_length = ((self.limit / 2) as f64).sqrt() as usize;
        let length = self.size_up_to(max_length.max(1));
        let is_ones = self.choices.one_in(3);
        let x = if is_ones {
            let value = scalar_literal(dtype, 1.0);
            let statement = Statement::Const { dtype, shape: vec![length], value };
            self.has_room(1).then(|| self.push(statement, Fact::exact(1.0, 1.0, 0)))?
        } else {
            self.data(dtype, &[length])?
        };
        let x = self.padded(x, vec![(length - 1, 0)], 0.0)?;
        let wide = self.windows(x, Window { size: length, stride: 1, dilation: 1 })?;
        let op = self.choices.pick(&[ReduceOp::Sum, ReduceOp::Sum, ReduceOp::Max]);
        let sums = self.reduced(op, wide, vec![1])?;
        let sums = self.reshaped(sums, vec![length])?;
        if is_ones && self.choices.one_in(2) {
            // A range, as in tinygrad.
            return self.binary_with(Sub, sums, 1.0);
        }
        Some(sums)
    }

    /// Adds a nearest-neighbour upsampling, or a pixel shuffle.
    pub(super) fn upsample(&mut self) -> Option<ValueId> {
        let dtype = self.dtype();
        let (height, width) = (self.size_up_to(8), self.size_up_to(8));
        let [a, b] = [(); 2].map(|()| self.choices.pick(&[2, 3, 1]));
        let out = vec![height * a, width * b];
        if self.choices.one_in(2) {
            let x = self.data(dtype, &[height, width])?;
            let x = self.reshaped(x, vec![height, 1, width, 1])?;
            let x = self.expanded(x, vec![height, a, width, b])?;
            return self.reshaped(x, out);
        }
        let x = self.data(dtype, &[a * b, height, width])?;
        let x = self.reshaped(x, vec![a, b, height, width])?;
        let x = self.permuted(x, vec![2, 0, 3, 1])?;
        self.reshaped(x, out)
    }

    /// Adds a roll along an axis, or a tensor with its mirrored begin appended.
    pub(super) fn roll(&mut self) -> Option<ValueId> {
        let dtype = self.dtype();
        let rows = self.size_up_to(8);
        let length = self.size_up_to((self.limit / (2 * rows)).max(1));
        let x = self.data(dtype, &[rows, length])?;
        let cut = self.choices.below(length as u32 + 1) as usize;
        let left = self.shrunk(x, vec![(0, rows), (0, cut)])?;
        if self.choices.one_in(3) {
            let mirrored = self.flipped(left, vec![1])?;
            return self.concatenated(vec![x, mirrored], 1);
        }
        let right = self.shrunk(x, vec![(0, rows), (cut, length)])?;
        self.concatenated(vec![right, left], 1)
    }

    /// Stacks values of one shape along a new axis.
    pub(super) fn stack(&mut self) -> Option<ValueId> {
        let dtype = self.dtype();
        let length = self.size_up_to((self.limit / 4).max(1));
        let axis = self.choices.below(2) as usize;
        let shape = if axis == 0 { vec![1, length] } else { vec![length, 1] };
        let mut parts = Vec::new();
        for _ in 0..self.choices.pick(&[2, 3, 2, 4]) {
            let part = self.data(dtype, &[length])?;
            let part = if self.choices.one_in(4) { self.flipped(part, vec![0])? } else { part };
            parts.push(self.reshaped(part, shape.clone())?);
        }
        let stacked = self.concatenated(parts, axis)?;
        if dtype == DType::Bool || self.choices.one_in(2) {
            return Some(stacked);
        }
        let op = self.choices.pick(&[ReduceOp::Sum, ReduceOp::Max]);
        self.reduced(op, stacked, vec![axis])
    }
}
