//! Draws methods that run along an axis.

use gradiff_corpus::{Arg, Method, ReduceOp, ValueId};

use crate::elementwise::reduced_dtype;
use crate::fact::Fact;
use crate::programs::Builder;
use crate::transfer;

/// Maximum size of the axis, since the oracle defines each element by a reduction of its own.
const MAX_SIZE: usize = 1 << 10;

impl Builder<'_> {
    /// Adds a running sum, product or maximum.
    pub(super) fn draw_cumulative(&mut self, method: Method) -> Option<ValueId> {
        let policy = self.policy;
        let op = match method {
            Method::Cumsum => ReduceOp::Sum,
            Method::Cumprod => ReduceOp::Prod,
            _ => ReduceOp::Max,
        };
        let fact_of = |fact: &Fact, count, dtype| {
            transfer::reduce(op, fact, count, dtype, reduced_dtype(op, dtype), policy)
        };
        // Axes of other values are mostly short, and long ones may be divided into blocks.
        let src = if self.has_room(2) && self.choices.one_in(3) {
            let size = 1 + self.choices.below(self.limit.min(MAX_SIZE) as u32) as usize;
            let dtype = self.dtype();
            let (statement, fact) = self.fresh(dtype, vec![size]);
            fact_of(&fact, 1, dtype).and(fact_of(&fact, size, dtype))?;
            self.push(statement, fact)
        } else {
            self.pick(|tensor, fact| {
                !tensor.shape.is_empty() && fact_of(fact, 1, tensor.dtype).is_some()
            })?
        };
        let (dtype, shape) = (self.type_of(src).dtype, self.type_of(src).shape.clone());
        let axis = self.choices.below(shape.len() as u32) as usize;
        if MAX_SIZE < shape[axis] {
            return None;
        }
        let before = self.fact(src);
        // The first element is a reduction of one element, the last one of all.
        let first = fact_of(&before, 1, dtype)?;
        let fact = first.join(&fact_of(&before, shape[axis].max(1), dtype)?);
        let number = self.axis_number(axis, shape.len());
        Some(self.push_method(method, vec![src], vec![Arg::Int(number)], fact))
    }
}
