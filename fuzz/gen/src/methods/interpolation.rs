//! Draws new sizes of axes, and grids.

use gradiff_corpus::{Arg, INDEXINGS, INTERPOLATIONS, Method, Shape, ValueId};

use super::floats::{is_exact, is_near, smooth};
use crate::fact::{Fact, ROUGH, round_or_wrap};
use crate::programs::Builder;
use crate::shapes;

/// Maximum number of axes that get new sizes.
const MAX_AXES: usize = 3;
/// Maximum number of vectors of a grid.
const MAX_VECTORS: usize = 3;

impl Builder<'_> {
    /// Adds a value with new sizes of its last axes.
    pub(super) fn draw_interpolate(&mut self) -> Option<ValueId> {
        let policy = self.policy;
        let mode = self.choices.pick(INTERPOLATIONS);
        let is_linear = mode == "linear";
        let src = self.pick(|tensor, fact| {
            let is_known = is_exact(fact, policy) || is_near(fact, policy);
            tensor.shape.last().is_some_and(|size| *size != 0)
                && (!is_linear || tensor.dtype.is_float() && is_known)
        })?;
        let (shape, dtype) = (self.type_of(src).shape.clone(), self.type_of(src).dtype);
        let solid = shape.iter().rev().take_while(|size| **size != 0).count().min(MAX_AXES);
        let axes = 1 + self.choices.below(solid as u32) as usize;
        let outer = shape.len() - axes;
        // Without rounding, elements are quarters of the way.
        let is_double = is_linear && !policy.inexact;
        let size = |this: &mut Self, size: usize| match this.choices.below(8) {
            _ if is_double => 2 * size,
            0 => size,
            1 => 2 * size,
            2 => size.div_ceil(2),
            3 => size + size.div_ceil(2),
            4 => size + 1,
            5 => (size - 1).max(1),
            6 => 1,
            _ => 1 + this.choices.below(9) as usize,
        };
        let sizes: Vec<usize> = shape[outer..].iter().map(|old| size(self, *old)).collect();
        if self.limit < shapes::count(&shape[..outer]) * shapes::count(&sizes) {
            return None;
        }
        let is_aligned = is_linear && !is_double && self.choices.one_in(2);
        let before = self.fact(src);
        let fact = match (is_linear, is_double) {
            (false, _) => before,
            (true, false) => smooth(&before, dtype, (before.lo, before.hi), 1.0, policy),
            (true, true) => {
                let grid = if before.grid == ROUGH { ROUGH } else { before.grid - 2 * axes as i32 };
                // Differences are up to twice as large as the elements.
                let size = 2.0 * before.magnitude();
                let wide = Fact { special: before.special, ..Fact::exact(-size, size, grid) };
                let found = round_or_wrap(dtype, wide, 1.0, policy)?;
                Fact { lo: before.lo, hi: before.hi, ..found }
            }
        };
        let sizes = sizes.into_iter().map(|size| size as i64).collect();
        let args = vec![Arg::Ints(sizes), Arg::Word(mode), Arg::Flag(is_aligned)];
        Some(self.push_method(Method::Interpolate, vec![src], args, fact))
    }

    /// Adds a grid of one to three vectors and scalars.
    pub(super) fn draw_meshgrid(&mut self) -> Option<ValueId> {
        let first = self.pick(|tensor, _| tensor.shape.len() <= 1);
        let first = match first {
            Some(first) => first,
            None => self.new_vector()?,
        };
        let mut srcs = vec![first];
        // Without axes of size 0, of which the others must not be too many either.
        let mut count = self.type_of(first).count().max(1);
        for _ in 0..self.choices.below(MAX_VECTORS.min(self.max_rank) as u32) {
            let limit = self.limit;
            let found =
                self.pick(|tensor, _| tensor.shape.len() <= 1 && tensor.count() * count <= limit);
            let next = match found {
                Some(found) if self.choices.one_in(2) => found,
                _ => self.new_vector()?,
            };
            let size = self.type_of(next).count().max(1);
            if self.limit < count * size {
                break;
            }
            count *= size;
            srcs.push(next);
        }
        let part = self.choices.below(srcs.len() as u32);
        let fact = self.fact(srcs[part as usize]);
        let args = vec![Arg::Word(self.choices.pick(INDEXINGS)), Arg::Int(part.into())];
        Some(self.push_method(Method::Meshgrid, srcs, args, fact))
    }

    /// Adds a vector, if there is room for it and a method.
    fn new_vector(&mut self) -> Option<ValueId> {
        let size = self.palette.size(self.choices).min(self.limit);
        let shape = if self.choices.one_in(8) { Shape::new() } else { vec![size] };
        if !self.has_room(2) || self.max_rank < shape.len() {
            return None;
        }
        let dtype = self.dtype();
        let (statement, fact) = self.fresh(dtype, shape);
        Some(self.push(statement, fact))
    }
}
