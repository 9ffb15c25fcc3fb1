//! Draws methods that move elements.

use gradiff_corpus::{Arg, Method, TensorType, ValueId};

use crate::fact::Fact;
use crate::programs::Builder;
use crate::shapes;

/// Maximum number of parts of axes that are rearranged, but for one of each axis.
const MAX_PARTS: usize = 5;

impl Builder<'_> {
    /// Adds a rotation of elements, by less or more than an axis.
    pub(super) fn draw_roll(&mut self) -> Option<ValueId> {
        let src = self.pick(|tensor, _| !tensor.shape.is_empty())?;
        let shape = self.type_of(src).shape.clone();
        let axes = shapes::axes(self.choices, shape.len());
        let shift = |this: &mut Self, axis: &usize| {
            let size = shape[*axis] as i64;
            i64::from(this.choices.below(4 * size as u32 + 3)) - 2 * size - 1
        };
        let shifts = axes.iter().map(|axis| shift(self, axis)).collect();
        let numbers = self.axis_numbers(&axes, shape.len());
        let fact = self.fact(src);
        let args = vec![Arg::Ints(shifts), Arg::Ints(numbers)];
        Some(self.push_method(Method::Roll, vec![src], args, fact))
    }

    /// Adds a method of one source whose elements are those of the source, and zeros.
    pub(super) fn draw_movement(&mut self, method: Method) -> Option<ValueId> {
        let max_rank = self.max_rank;
        let src = self.pick(|tensor, _| takes(method, &tensor.shape, max_rank))?;
        let shape = self.type_of(src).shape.clone();
        let args = self.movement_args(method, &shape)?;
        let mut fact = self.fact(src);
        if matches!(method, Method::Triu | Method::Tril | Method::Diag | Method::PadTo) {
            fact = fact.join(&Fact { raw: true, ..Fact::exact(0.0, 0.0, 0) });
        }
        Some(self.push_method(method, vec![src], args, fact))
    }

    /// Adds a stack of one to three values of one type.
    pub(super) fn draw_stack(&mut self) -> Option<ValueId> {
        let (limit, max_rank) = (self.limit, self.max_rank);
        let src = self.pick(|tensor, _| tensor.shape.len() < max_rank)?;
        let same: TensorType = self.type_of(src).clone();
        let limit = (limit / same.count().max(1)).clamp(1, 3);
        let (mut srcs, mut fact) = (vec![src], self.fact(src));
        for _ in 0..self.choices.below(limit as u32) {
            let next = self.pick(|tensor, _| *tensor == same)?;
            fact = fact.join(&self.fact(next));
            srcs.push(next);
        }
        let rank = same.shape.len() + 1;
        let axis = self.choices.below(rank as u32) as usize;
        let number = self.axis_number(axis, rank);
        Some(self.push_method(Method::Stack, srcs, vec![Arg::Int(number)], fact))
    }

    /// Adds axes that are split, permuted and merged.
    pub(super) fn draw_rearrange(&mut self) -> Option<ValueId> {
        let src = self.pick(|_, _| true)?;
        let shape = self.type_of(src).shape.clone();
        let (mut sizes, mut parts) = (Vec::new(), Vec::new());
        for size in &shape {
            let mut rest = *size;
            let start = sizes.len();
            while rest != 0 && sizes.len() < MAX_PARTS && self.choices.one_in(3) {
                let divisor = shapes::divisor(self.choices, rest);
                rest /= divisor;
                sizes.push(divisor as i64);
            }
            if rest != 1 || self.choices.one_in(2) {
                sizes.push(rest as i64);
            }
            parts.push((sizes.len() - start) as i64);
        }
        let order: Vec<i64> = shapes::permutation(self.choices, sizes.len())
            .into_iter()
            .map(|axis| axis as i64)
            .collect();
        let (mut rest, mut groups) = (sizes.len(), Vec::new());
        while 0 < rest || self.choices.one_in(4) {
            let is_last = groups.len() + 1 == self.max_rank;
            if self.max_rank == groups.len() {
                return None;
            }
            let group =
                if is_last { rest } else { self.choices.below(rest.min(3) as u32 + 1) as usize };
            rest -= group;
            groups.push(group as i64);
        }
        let fact = self.fact(src);
        let args = [sizes, parts, order, groups].map(Arg::Ints).to_vec();
        Some(self.push_method(Method::Rearrange, vec![src], args, fact))
    }

    fn movement_args(&mut self, method: Method, shape: &[usize]) -> Option<Vec<Arg>> {
        let rank = shape.len();
        let spare = self.limit / shapes::count(shape).max(1);
        let int = |value: usize| Arg::Int(value as i64);
        Some(match method {
            Method::Squeeze => {
                let narrow: Vec<usize> = (0..rank).filter(|axis| shape[*axis] == 1).collect();
                let axis = self.choices.pick(&narrow);
                vec![Arg::Int(self.axis_number(axis, rank))]
            }
            Method::Unsqueeze => vec![Arg::Int(self.some_axis(rank + 1).1)],
            Method::Transpose => {
                vec![Arg::Int(self.some_axis(rank).1), Arg::Int(self.some_axis(rank).1)]
            }
            Method::Flatten => {
                let rank = rank.max(1);
                let (start, number) = self.some_axis(rank);
                let end = start + self.choices.below((rank - start) as u32) as usize;
                vec![Arg::Int(number), Arg::Int(self.axis_number(end, rank))]
            }
            Method::Unflatten => {
                let (axis, number) = self.some_axis(rank);
                vec![Arg::Int(number), Arg::Ints(self.factors(shape[axis], rank))]
            }
            Method::Repeat => {
                let added = usize::from(rank < self.max_rank && self.choices.one_in(3));
                let (mut spare, mut counts) = (spare, Vec::new());
                for _ in 0..rank + added {
                    let count = self.repeat_count(spare);
                    spare /= count.max(1);
                    counts.push(count as i64);
                }
                vec![Arg::Ints(counts)]
            }
            Method::RepeatInterleave => {
                let count = self.repeat_count(spare);
                vec![int(count), Arg::Int(self.some_axis(rank).1)]
            }
            Method::Split => {
                let (axis, number) = self.some_axis(rank);
                let (mut rest, mut sizes) = (shape[axis], Vec::new());
                for _ in 0..self.choices.below(4) {
                    let size = self.choices.below(rest as u32 + 1) as usize;
                    rest -= size;
                    sizes.push(size as i64);
                }
                sizes.push(rest as i64);
                let part = self.choices.below(sizes.len() as u32) as usize;
                vec![Arg::Ints(sizes), Arg::Int(number), int(part)]
            }
            Method::Chunk => {
                let (axis, number) = self.some_axis(rank);
                let count = 1 + self.choices.below(shape[axis] as u32 + 2) as usize;
                let parts = match shape[axis].div_ceil(count) {
                    0 => count,
                    chunk => shape[axis].div_ceil(chunk),
                };
                let part = self.choices.below(parts as u32) as usize;
                vec![int(count), Arg::Int(number), int(part)]
            }
            Method::Unfold => {
                let (axis, number) = self.some_axis(rank);
                let size = self.choices.below(shape[axis] as u32 + 1) as usize;
                let step = self.choices.pick(&[1, 2, 3, 1, 5, 100]);
                let count = (shape[axis] - size) / step + 1;
                let outer = shapes::slice_count(shape, axis).max(1);
                if self.limit < outer * count * size {
                    return None;
                }
                vec![Arg::Int(number), int(size), int(step)]
            }
            Method::Diagonal => {
                let (first, number) = self.some_axis(rank);
                let second = (first + 1 + self.choices.below(rank as u32 - 1) as usize) % rank;
                let offset = self.diagonal_offset(shape[first], shape[second]);
                vec![Arg::Int(offset), Arg::Int(number), Arg::Int(self.axis_number(second, rank))]
            }
            Method::Diag => {
                let last = shape[rank - 1];
                let first = if rank == 2 { shape[0] } else { 1 };
                let offset = self.diagonal_offset(first, last.min(2));
                let side = last + offset.unsigned_abs() as usize;
                if rank == 1 && self.limit < side * side {
                    return None;
                }
                vec![Arg::Int(offset)]
            }
            Method::Triu | Method::Tril => {
                let extreme = self.choices.pick(&[i64::MAX, i64::MIN]);
                let offset = self.diagonal_offset(shape[rank - 2], shape[rank - 1]);
                vec![Arg::Int(if self.choices.one_in(32) { extreme } else { offset })]
            }
            Method::Slice => self.slice_args(shape),
            Method::PadReflect | Method::PadReplicate | Method::PadCircular => {
                let pads = shapes::pads(self.choices, shape, 3, self.limit);
                let limit = |size: usize| match method {
                    Method::PadReflect => size.saturating_sub(1),
                    Method::PadReplicate if size > 0 => usize::MAX,
                    _ => size,
                };
                let list = |side: fn(&(usize, usize)) -> usize| {
                    let counts = pads.iter().zip(shape);
                    counts.map(|(pad, size)| side(pad).min(limit(*size)) as i64).collect()
                };
                vec![Arg::Ints(list(|pad| pad.0)), Arg::Ints(list(|pad| pad.1))]
            }
            Method::ShrinkTo => {
                let size = |size: &usize| match self.choices.below(*size as u32 + 1) {
                    0 if !self.choices.one_in(8) => *size as i64,
                    size => i64::from(size),
                };
                vec![Arg::Ints(shape.iter().map(size).collect())]
            }
            Method::PadTo => {
                let pads = shapes::pads(self.choices, shape, 3, self.limit);
                let sizes = shape.iter().zip(pads).map(|(size, (_, after))| (size + after) as i64);
                vec![Arg::Ints(sizes.collect())]
            }
            Method::Movedim => {
                let count = self.choices.below(rank as u32 + 1) as usize;
                let list = |this: &mut Self| {
                    let axes = shapes::permutation(this.choices, rank);
                    Arg::Ints(this.axis_numbers(&axes[..count], rank))
                };
                vec![list(self), list(self)]
            }
            _ => panic!("{} does not only move elements", method.row().name),
        })
    }

    /// Draws an axis and its number, which may be negative.
    pub(super) fn some_axis(&mut self, rank: usize) -> (usize, i64) {
        let axis = self.choices.below(rank as u32) as usize;
        (axis, self.axis_number(axis, rank))
    }

    fn repeat_count(&mut self, spare: usize) -> usize {
        match self.choices.one_in(24) {
            true => 0,
            false => 1 + self.choices.below(spare.clamp(1, 4) as u32) as usize,
        }
    }

    /// Draws one to three sizes whose product is `size`, sometimes one of them as -1.
    fn factors(&mut self, size: usize, rank: usize) -> Vec<i64> {
        let mut sizes = match size {
            0 => vec![0],
            _ => Vec::new(),
        };
        let mut rest = size.max(1);
        let room = (self.max_rank.max(rank) + 1 - rank).min(3);
        while sizes.len() + 1 < room && self.choices.one_in(2) {
            let divisor = shapes::divisor(self.choices, rest);
            rest /= divisor;
            sizes.push(divisor as i64);
        }
        if rest != 1 || sizes.is_empty() {
            sizes.push(rest as i64);
        }
        let at = self.choices.below(sizes.len() as u32) as usize;
        let can_infer = (0..sizes.len()).all(|number| number == at || sizes[number] != 0);
        if can_infer && self.choices.one_in(3) {
            sizes[at] = -1;
        }
        sizes
    }

    /// Draws a diagonal, at most one beyond the corners.
    pub(super) fn diagonal_offset(&mut self, rows: usize, columns: usize) -> i64 {
        i64::from(self.choices.below((rows + columns) as u32 + 3)) - rows as i64 - 1
    }

    /// Draws a start or a stop, inside the axis or beyond its ends.
    pub(super) fn bound(&mut self, size: usize) -> i64 {
        if self.choices.one_in(16) {
            return self.choices.pick(&[i64::MAX, i64::MIN, 1 << 32]);
        }
        let size = size as i64;
        i64::from(self.choices.below(2 * size as u32 + 5)) - size - 2
    }
}

/// Returns whether a method takes a source of this shape, so that its result has `max_rank` axes
/// at most.
fn takes(method: Method, shape: &[usize], max_rank: usize) -> bool {
    let rank = shape.len();
    match method {
        Method::Squeeze => shape.contains(&1),
        Method::Unsqueeze => rank < max_rank,
        Method::Unfold => (1..max_rank).contains(&rank),
        Method::Diagonal | Method::Triu | Method::Tril => 2 <= rank,
        Method::Diag => rank == 2 || (rank == 1 && 2 <= max_rank),
        Method::Flatten
        | Method::Repeat
        | Method::Slice
        | Method::PadReflect
        | Method::PadReplicate
        | Method::PadCircular
        | Method::ShrinkTo
        | Method::PadTo
        | Method::Movedim => true,
        _ => 1 <= rank,
    }
}
