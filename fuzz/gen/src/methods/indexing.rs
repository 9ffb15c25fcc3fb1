//! Draws methods with indices.

use gradiff_corpus::{Arg, DType, Method, ReduceOp, SCATTERED, TensorType, ValueId};

use super::floats::smooth;
use crate::fact::{Fact, decided};
use crate::programs::Builder;
use crate::sources::Need;
use crate::{shapes, transfer};

/// Maximum number of elements of a mask, which is sorted.
const SELECTED: usize = 512;

impl Builder<'_> {
    /// Adds the classes of integers, some of which are out of range.
    pub(super) fn draw_one_hot(&mut self) -> Option<ValueId> {
        let (limit, max_rank) = (self.limit, self.max_rank);
        let src = self.pick(|tensor, _| {
            tensor.dtype.is_int() && tensor.shape.len() < max_rank && tensor.count() * 2 <= limit
        })?;
        let spare = limit / self.type_of(src).count().max(1);
        let classes = self.choices.below(spare.min(12) as u32 + 1);
        let args = vec![Arg::Int(classes.into())];
        Some(self.push_method(Method::OneHot, vec![src], args, Fact::exact(0.0, 1.0, 0)))
    }

    /// Adds the first elements that a mask selects, and zeros.
    pub(super) fn draw_masked_select(&mut self) -> Option<ValueId> {
        let limit = self.limit.min(SELECTED);
        let x = self.pick(|tensor, _| tensor.count() <= limit)?;
        let shape = self.type_of(x).shape.clone();
        let found = self.pick(|mask, _| {
            mask.dtype == DType::Bool && shapes::broadcast(&mask.shape, &shape, limit)
        });
        let mask = match found {
            Some(mask) => mask,
            None => {
                let source = self.new_source(DType::Bool, &shape, Need::Any)?;
                self.push_source(source)?
            }
        };
        let count = self.type_of(x).count().max(self.type_of(mask).count());
        let size = self.choices.below((count + 1).min(self.limit) as u32 + 1);
        let fact = self.fact(x).join(&Fact { raw: true, ..Fact::exact(0.0, 0.0, 0) });
        let args = vec![Arg::Int(size.into())];
        Some(self.push_method(Method::MaskedSelectSized, vec![x, mask], args, fact))
    }

    /// Adds the indices of the first elements that are not 0.
    pub(super) fn draw_nonzero(&mut self) -> Option<ValueId> {
        let (limit, policy) = (self.limit.min(SELECTED), self.policy);
        let x = self.pick(|tensor, fact| tensor.count() <= limit && decided(fact, policy))?;
        let shape = self.type_of(x).shape.clone();
        if self.max_rank < 2 {
            return None;
        }
        let spare = self.limit / shape.len().max(1);
        let size = self.choices.below((shapes::count(&shape) + 1).min(spare) as u32 + 1);
        let fill = self.choices.pick(&[0, -1, 0, i64::from(i32::MAX), i64::from(i32::MIN)]);
        let last = shape.iter().max().map_or(0, |size| size.saturating_sub(1)) as f64;
        let fact = Fact::exact((fill as f64).min(0.0), (fill as f64).max(last), 0);
        let args = vec![Arg::Int(size.into()), Arg::Int(fill)];
        Some(self.push_method(Method::NonzeroSized, vec![x], args, fact))
    }

    /// Adds a selection by an index, which may be out of range.
    pub(super) fn draw_index_select(&mut self) -> Option<ValueId> {
        let src = self.pick(|tensor, _| !tensor.shape.is_empty())?;
        let shape = self.type_of(src).shape.clone();
        let (axis, number) = self.some_axis(shape.len());
        let index = self.index(&shape[axis..=axis], 0)?;
        let count = self.type_of(index).count();
        if self.limit < count * shapes::slice_count(&shape, axis) {
            return None;
        }
        let fact = self.fact(src).join(&Fact { raw: true, ..Fact::exact(0.0, 0.0, 0) });
        let args = vec![Arg::Int(number)];
        Some(self.push_method(Method::IndexSelect, vec![src, index], args, fact))
    }

    /// Adds writes of elements at indices, some of which are equal or out of range.
    pub(super) fn draw_scatter(&mut self, method: Method) -> Option<ValueId> {
        let reduce = match method {
            Method::ScatterAdd => "sum",
            Method::ScatterReduce => self.choices.pick(SCATTERED),
            _ => "amax",
        };
        let target = self.pick(|tensor, _| {
            let is_taken = match reduce {
                "sum" | "prod" => tensor.dtype != DType::Bool,
                "mean" => tensor.dtype.is_float(),
                _ => true,
            };
            !tensor.shape.is_empty() && is_taken
        })?;
        let TensorType { dtype, shape } = self.type_of(target).clone();
        let (axis, number) = self.some_axis(shape.len());
        let index = self.index(&shape, axis)?;
        let index_shape = self.type_of(index).shape.clone();
        let found = self.pick(|tensor, _| tensor.dtype == dtype && tensor.shape == index_shape);
        let src = match found {
            Some(src) => src,
            None if self.has_room(2) => {
                let (statement, fact) = self.fresh(dtype, index_shape.clone());
                self.push(statement, fact)
            }
            None => return None,
        };
        let joined = self.fact(target).join(&self.fact(src));
        let terms = index_shape[axis] + 1;
        let reduced = |op, count, policy| {
            let fact = transfer::reduce(op, &joined, count, dtype, dtype, policy)?;
            // A position may have any number of elements.
            Some(if op == ReduceOp::Prod { fact.join(&joined) } else { fact })
        };
        let fact = match (method, reduce) {
            (Method::Scatter, _) => joined,
            (_, "sum") => reduced(ReduceOp::Sum, terms, self.policy)?,
            (_, "prod") => reduced(ReduceOp::Prod, terms, self.policy)?,
            (_, "mean") if !self.policy.inexact => return None,
            (_, "mean") => smooth(&joined, dtype, (joined.lo, joined.hi), 1.0, self.policy),
            _ => reduced(ReduceOp::Max, 2, self.policy)?,
        };
        let mut args = vec![Arg::Int(number)];
        if method == Method::ScatterReduce {
            args.extend([Arg::Word(reduce), Arg::Flag(self.choices.one_in(2))]);
        }
        Some(self.push_method(method, vec![target, index, src], args, fact))
    }
}
