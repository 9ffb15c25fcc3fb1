//! Draws methods that move elements.

use gradiff_corpus::{Arg, Method, ValueId};

use crate::programs::Builder;
use crate::{Choices, shapes};

impl<C: Choices> Builder<'_, C> {
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
}
