//! Draws indices of elements that are read or written.

use gradiff_corpus::{Arg, DType, Fill, Index, Method, Shape, Statement, TensorType, ValueId};

use crate::fact::Fact;
use crate::programs::Builder;
use crate::shapes;

/// Indices of a tensor, their sources, and the shape of the elements there.
pub(super) struct Selection {
    pub(super) args: Vec<Arg>,
    pub(super) sources: Vec<ValueId>,
    pub(super) shape: Shape,
}

impl Builder<'_> {
    /// Adds the elements at indices.
    pub(super) fn draw_get(&mut self) -> Option<ValueId> {
        let src = self.pick(|_, _| true)?;
        let Selection { args, sources, .. } = self.selection(src)?;
        let mut fact = self.fact(src);
        if !sources.is_empty() {
            fact = fact.join(&Fact { raw: true, ..Fact::exact(0.0, 0.0, 0) });
        }
        Some(self.push_method(Method::Get, [vec![src], sources].concat(), args, fact))
    }

    /// Draws indices of a tensor, and adds the sources that they need.
    pub(super) fn selection(&mut self, src: ValueId) -> Option<Selection> {
        let TensorType { dtype, shape } = self.type_of(src).clone();
        // The shape that the sources of indices have, but for axes of 1 that are repeated.
        let common: Shape = (0..self.choices.below(3)).map(|_| self.index_size()).collect();
        let (mut indices, mut named) = (Vec::new(), Vec::new());
        let mut has_ellipsis = false;
        let mut axis = 0;
        while axis < shape.len() {
            let size = shape[axis];
            axis += 1;
            match self.choices.below(12) {
                0..=2 if 0 < size => {
                    let position = self.choices.below(size as u32) as usize;
                    indices.push(Index::Position(self.axis_number(position, size)));
                }
                0..=5 => indices.push(self.slice_index(size)),
                6..=9 if self.has_room(2 + named.len()) => {
                    named.push((self.part_of(&common), size));
                    indices.push(Index::Source);
                }
                10 if !has_ellipsis => {
                    has_ellipsis = true;
                    indices.push(Index::Ellipsis);
                    // It stands for this axis and some of the next ones, or for none.
                    let left = (shape.len() - axis) as u32;
                    axis = axis - 1 + self.choices.below(left + 2) as usize;
                }
                11 if !has_ellipsis && self.choices.one_in(2) => break,
                _ => indices.push(Index::WHOLE),
            }
            if self.choices.one_in(10) {
                indices.push(Index::NewAxis);
            }
        }
        let (args, srcs) = (vec![Arg::Indices(indices)], 0..=named.len() as u32);
        let statement = Statement::Method {
            method: Method::Get,
            srcs: srcs.map(ValueId).collect(),
            args: args.clone(),
        };
        let mut types = vec![TensorType { dtype, shape }];
        let of_index =
            |(shape, _): &(Shape, usize)| TensorType { dtype: DType::I32, shape: shape.clone() };
        types.extend(named.iter().map(of_index));
        let shape = gradiff_corpus::statement_type(&statement, &types).ok()?.shape;
        let count = shapes::count(&shape).max(shapes::count(&common));
        if self.max_rank < shape.len() || self.limit < count {
            return None;
        }
        let sources: Option<Vec<ValueId>> =
            named.into_iter().map(|(shape, size)| self.positions(shape, size)).collect();
        Some(Selection { args, sources: sources?, shape })
    }

    /// Draws the size of an axis of a source of indices.
    fn index_size(&mut self) -> usize {
        self.choices.pick(&[1, 2, 3, 3, 4, 5, 2, 7, 0, 1])
    }

    /// Draws the positions of a slice, with ends that are missing.
    fn slice_index(&mut self, size: usize) -> Index {
        let (start, stop, step) = self.python_range(size);
        let mut end = |end| if self.choices.one_in(3) { None } else { Some(end) };
        Index::Slice { start: end(start), stop: end(stop), step }
    }

    /// Draws a shape that broadcasts to another.
    fn part_of(&mut self, common: &[usize]) -> Shape {
        let first = self.choices.below(common.len() as u32 + 1) as usize;
        let first = if self.choices.one_in(3) { first } else { 0 };
        let mut shape = common[first..].to_vec();
        for axis in &mut shape {
            *axis = if self.choices.one_in(5) { 1 } else { *axis };
        }
        shape
    }

    /// Adds positions along an axis of this size, from either end, sometimes outside of it.
    fn positions(&mut self, shape: Shape, size: usize) -> Option<ValueId> {
        let found = self
            .pick(|tensor, fact| tensor.dtype.is_int() && tensor.shape == shape && fact.err == 0.0);
        if let Some(found) = found.filter(|_| self.choices.one_in(2)) {
            return Some(found);
        }
        let dtype = match self.dtype() {
            dtype if dtype.is_int() => dtype,
            _ => self.int_dtype()?,
        };
        let outside = match self.choices.below(4) {
            0 => 1 + i64::from(self.choices.below(size as u32 + 1)),
            _ => 0,
        };
        let (low, high) = match dtype.is_signed() {
            true => (-(size as i64) - outside, size as i64 - 1 + outside),
            false => (0, size as i64 - 1 + outside),
        };
        let range = (high - low + 1).clamp(1, 100) as u32;
        let width = (8 * dtype.size_bytes()) as u32;
        let bits = |number: i64| number as u64 & (u64::MAX >> (64 - width));
        let numbers =
            (0..shapes::count(&shape)).map(|_| low + i64::from(self.choices.below(range)));
        let fill = Fill::Explicit(numbers.map(bits).collect());
        let fact = Fact { raw: true, ..Fact::exact(low as f64, high.max(low) as f64, 0) };
        Some(self.push(Statement::Input { dtype, shape, fill }, fact))
    }
}
