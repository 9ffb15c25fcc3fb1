//! Draws methods that compare elements with each other.

use gradiff_corpus::{Arg, Method, ReduceOp, ValueId};

use crate::fact::{Fact, decided};
use crate::programs::Builder;
use crate::{shapes, transfer};

/// Sizes above this are sorted in some thirty steps, in each of which the evaluators of graphs
/// compare all pairs of positions.
const MERGED_FROM: usize = 512;
/// Maximum number of elements of such a sort.
const MERGED_MAX: usize = 600;

impl Builder<'_> {
    /// Adds a sort, the positions of one, or the first elements of either.
    pub(super) fn draw_sort(&mut self, method: Method) -> Option<ValueId> {
        let policy = self.policy;
        let src = self.pick(|tensor, fact| !tensor.shape.is_empty() && decided(fact, policy))?;
        let shape = self.type_of(src).shape.clone();
        let (axis, number) = self.some_axis(shape.len());
        if MERGED_FROM < shape[axis] && MERGED_MAX < shape.iter().product() {
            return None;
        }
        let descending = Arg::Flag(self.choices.one_in(2));
        let args = match method {
            Method::Topk | Method::TopkIndices => {
                let k = self.choices.below(shape[axis] as u32 + 1);
                vec![Arg::Int(k.into()), Arg::Int(number), descending]
            }
            _ => vec![Arg::Int(number), descending],
        };
        let fact = match method {
            Method::Sort | Method::Topk => self.fact(src),
            _ => Fact::exact(0.0, shape[axis].saturating_sub(1) as f64, 0),
        };
        Some(self.push_method(method, vec![src], args, fact))
    }

    /// Adds the position of an extreme element.
    pub(super) fn draw_extreme_position(&mut self, method: Method) -> Option<ValueId> {
        let policy = self.policy;
        let src = self.pick(|tensor, fact| !tensor.shape.is_empty() && decided(fact, policy))?;
        let shape = self.type_of(src).shape.clone();
        let (axis, number) = self.some_axis(shape.len());
        if shape[axis] == 0 {
            return None;
        }
        let args = vec![Arg::Int(number), Arg::Flag(self.choices.one_in(2))];
        let fact = Fact::exact(0.0, shape[axis] as f64 - 1.0, 0);
        Some(self.push_method(method, vec![src], args, fact))
    }

    /// Adds a running minimum.
    pub(super) fn draw_cummin(&mut self) -> Option<ValueId> {
        let src = self.pick(|tensor, _| !tensor.shape.is_empty())?;
        let dtype = self.type_of(src).dtype;
        let (_, number) = self.some_axis(self.type_of(src).shape.len());
        let before = self.fact(src);
        let fact = transfer::reduce(ReduceOp::Max, &before, 1, dtype, dtype, self.policy)?;
        Some(self.push_method(Method::Cummin, vec![src], vec![Arg::Int(number)], fact))
    }

    /// Adds a truth of elements, or the number of those that are not 0.
    pub(super) fn draw_truth(&mut self, method: Method) -> Option<ValueId> {
        let policy = self.policy;
        let src = self.pick(|_, fact| decided(fact, policy))?;
        let shape = self.type_of(src).shape.clone();
        let axes = shapes::axes(self.choices, shape.len());
        let numbers = self.axis_numbers(&axes, shape.len());
        let fact = match method {
            Method::CountNonzero => Fact::exact(0.0, shapes::count(&shape).max(1) as f64, 0),
            _ => Fact::BOOL,
        };
        let args = vec![Arg::Ints(numbers), Arg::Flag(self.choices.one_in(2))];
        Some(self.push_method(method, vec![src], args, fact))
    }
}
