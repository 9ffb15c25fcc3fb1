//! Idioms of windows: convolution, pooling, cumulative sums, repeats.

use gradiff_corpus::{BinaryOp::*, DType, ReduceOp, Statement, ValueId};

use super::words::number;
use crate::Choices;
use crate::fact::Fact;
use crate::programs::Builder;

/// How windows lie on an axis.
#[derive(Clone, Copy, Debug)]
struct Window {
    size: usize,
    stride: usize,
    dilation: usize,
}

impl<C: Choices> Builder<'_, C> {
    fn window(&mut self, length: usize) -> Window {
        let size = self.choices.pick(&[2, 3, 1, 4]).min(length);
        let stride = self.choices.pick(&[1, 2, 1, 3]);
        let dilation = self.choices.pick(&[1, 1, 2]);
        let dilation = if dilation * (size - 1) < length { dilation } else { 1 };
        Window { size, stride, dilation }
    }

    /// `[.., length]` as `[.., windows, size]`, by repetition, cuts and reshapes alone, as tinygrad
    /// does it: row j of the repeated axis, cut one dilation longer than the axis, begins j dilations on.
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

    /// Channels in, channels out, sometimes in groups; padded; strides and dilation.
    pub(super) fn convolution(&mut self) -> Option<ValueId> {
        let dtype = if self.choices.one_in(5) { self.integer()? } else { self.float()? };
        let (groups, inside) = self.choices.pick(&[(1, 1), (1, 2), (2, 1), (1, 3), (2, 2)]);
        let outside = self.choices.pick(&[1, 2, 4]);
        let most = self.limit / (8 * groups * inside * outside);
        let length = self.size_up_to(most.clamp(1, 40));
        let x = self.data(dtype, &[groups, inside, length])?;
        let pads = self.choices.pick(&[(0, 0), (1, 1), (2, 0), (0, 1)]);
        let x = if pads == (0, 0) { x } else { self.padded(x, vec![(0, 0), (0, 0), pads], 0.0)? };
        let window = self.window(length + pads.0 + pads.1);
        let wide = self.windows(x, window)?;
        let count = self.shape_of(wide)[2];
        let size = window.size;
        let wide = self.reshaped(wide, vec![groups, 1, inside, count, size])?;
        let weight = self.data(dtype, &[groups, outside, inside, size])?;
        let weight = self.reshaped(weight, vec![groups, outside, inside, 1, size])?;
        let products = self.both(Mul, wide, weight)?;
        let sums = self.folded(ReduceOp::Sum, products, vec![2, 4])?;
        let out = self.reshaped(sums, vec![groups * outside, count])?;
        match self.choices.below(3) {
            0 => {
                let bias = self.data(self.dtype_of(out), &[groups * outside, 1])?;
                self.both(Add, out, bias)
            }
            1 => self.with(Max, out, 0.0),
            _ => Some(out),
        }
    }

    /// One channel, windows along both axes.
    pub(super) fn convolution_2d(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let most = ((self.limit / 9) as f64).sqrt() as usize;
        let (height, width) =
            (self.size_up_to(most.clamp(1, 12)), self.size_up_to(most.clamp(1, 12)));
        let x = self.data(dtype, &[height, width])?;
        let x = self.padded(x, vec![(1, 1), (1, 1)], 0.0)?;
        let stride = self.choices.pick(&[1, 2]);
        let window = Window { size: 3.min(width + 2), stride, dilation: 1 };
        let wide = self.windows(x, window)?;
        let [_, across, size] = self.shape_of(wide)[..] else { return None };
        let turned = self.permuted(wide, vec![1, 2, 0])?;
        let down = Window { size: 3.min(height + 2), ..window };
        let wide = self.windows(turned, down)?;
        let [_, _, along, tall] = self.shape_of(wide)[..] else { return None };
        let weight = self.data(dtype, &[1, size, 1, tall])?;
        let products = self.both(Mul, wide, weight)?;
        let sums = self.folded(ReduceOp::Sum, products, vec![1, 3])?;
        let out = self.reshaped(sums, vec![across, along])?;
        self.permuted(out, vec![1, 0])
    }

    /// The largest or the mean of each window.
    pub(super) fn pooling(&mut self) -> Option<ValueId> {
        let dtype = if self.choices.one_in(4) { self.integer()? } else { self.float()? };
        let rows = self.size_up_to(6);
        let length = self.size_up_to((self.limit / (6 * rows)).clamp(1, 70));
        let x = self.data(dtype, &[rows, length])?;
        let window = self.window(length);
        if self.choices.one_in(2) {
            let is_float = dtype.is_float();
            let least = if is_float && self.choices.one_in(2) { f64::NEG_INFINITY } else { 0.0 };
            let x = self.padded(x, vec![(0, 0), (1, 1)], least)?;
            let wide = self.windows(x, window)?;
            return self.folded(ReduceOp::Max, wide, vec![2]);
        }
        let wide = self.windows(x, window)?;
        let sums = self.folded(ReduceOp::Sum, wide, vec![2])?;
        if !dtype.is_float() {
            return self.with(FloorDiv, sums, window.size as f64);
        }
        self.with(Mul, sums, 1.0 / window.size as f64)
    }

    /// Sums, products or maxima of all that comes before, by windows as long as the axis.
    pub(super) fn cumulative_sum(&mut self) -> Option<ValueId> {
        let is_float = self.choices.one_in(2);
        let dtype = if is_float { self.float()? } else { self.integer()? };
        let most = ((self.limit / 2) as f64).sqrt() as usize;
        let length = self.size_up_to(most.max(1));
        let ones = self.choices.one_in(3);
        let x = if ones {
            let value = number(dtype, 1.0);
            let statement = Statement::Const { dtype, shape: vec![length], value };
            self.has_room(1).then(|| self.push(statement, Fact::exact(1.0, 1.0, 0)))?
        } else {
            self.data(dtype, &[length])?
        };
        let x = self.padded(x, vec![(length - 1, 0)], 0.0)?;
        let wide = self.windows(x, Window { size: length, stride: 1, dilation: 1 })?;
        let op = self.choices.pick(&[ReduceOp::Sum, ReduceOp::Sum, ReduceOp::Max]);
        let sums = self.folded(op, wide, vec![1])?;
        let sums = self.reshaped(sums, vec![length])?;
        if ones && self.choices.one_in(2) {
            // A range, as tinygrad makes it.
            return self.with(Sub, sums, 1.0);
        }
        Some(sums)
    }

    /// Each element several times, or channels spread into a picture.
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

    /// Elements moved on along an axis, those at the end to the front; or mirrored at the end.
    pub(super) fn roll(&mut self) -> Option<ValueId> {
        let dtype = self.dtype();
        let rows = self.size_up_to(8);
        let length = self.size_up_to((self.limit / (2 * rows)).max(1));
        let x = self.data(dtype, &[rows, length])?;
        let cut = self.choices.below(length as u32 + 1) as usize;
        let left = self.shrunk(x, vec![(0, rows), (0, cut)])?;
        if self.choices.one_in(3) {
            let mirrored = self.flipped(left, vec![1])?;
            return self.joined(vec![x, mirrored], 1);
        }
        let right = self.shrunk(x, vec![(0, rows), (cut, length)])?;
        self.joined(vec![right, left], 1)
    }

    /// Values of one shape behind one another along a new axis.
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
        let stacked = self.joined(parts, axis)?;
        if dtype == DType::Bool || self.choices.one_in(2) {
            return Some(stacked);
        }
        let op = self.choices.pick(&[ReduceOp::Sum, ReduceOp::Max]);
        self.folded(op, stacked, vec![axis])
    }
}
