//! Draws methods that reduce axes.

use gradiff_corpus::{Arg, Method, ReduceOp, ValueId};

use crate::fact::Fact;
use crate::programs::Builder;
use crate::{shapes, transfer};

impl Builder<'_> {
    /// Adds the smallest element along axes.
    pub(super) fn draw_smallest(&mut self) -> Option<ValueId> {
        let policy = self.policy;
        let fact_of =
            |fact: &Fact, dtype| transfer::reduce(ReduceOp::Max, fact, 2, dtype, dtype, policy);
        let src = self.pick(|tensor, fact| fact_of(fact, tensor.dtype).is_some())?;
        let (dtype, shape) = (self.type_of(src).dtype, self.type_of(src).shape.clone());
        let axes = shapes::axes(self.choices, shape.len());
        if axes.iter().any(|axis| shape[*axis] == 0) {
            return None;
        }
        let numbers = self.axis_numbers(&axes, shape.len());
        let fact = fact_of(&self.fact(src), dtype)?;
        let args = vec![Arg::Ints(numbers), Arg::Flag(self.choices.one_in(2))];
        Some(self.push_method(Method::Min, vec![src], args, fact))
    }
}
