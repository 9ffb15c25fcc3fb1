//! Sources and facts of functions of floats that are approximated.

use gradiff_corpus::{DType, Literal, Operand, ValueId};

use crate::fact::{Fact, Policy, ROUGH, power, round_or_wrap};
use crate::programs::Builder;
use crate::shapes;
use crate::sources::{Need, Source, element, listed};

/// Largest error of a source, so that few elements of the result are undecided.
const MAX_ERROR: f64 = 1.0 / 64.0;

/// Infinities among small numbers: that of a sum of powers is seldom the negative one.
pub(super) const INFINITIES: [f64; 6] =
    [f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY, 1.0, -2.5, 0.5];

/// Maximum number of elements that are listed.
const MAX_LISTED: usize = 64;

/// Returns whether all elements are known to the bit, and of a kind that the policy allows.
pub(super) fn is_exact(fact: &Fact, policy: Policy) -> bool {
    fact.err == 0.0 && (policy.special || !fact.special)
}

/// Returns whether all elements are finite and nearly known.
pub(super) fn is_near(fact: &Fact, policy: Policy) -> bool {
    !fact.special && fact.err <= MAX_ERROR && (policy.inexact || fact.err == 0.0)
}

/// Fact of floats of which nothing is known.
pub(crate) fn unknown(dtype: DType) -> Fact {
    Fact { special: true, err: f64::MAX, raw: false, ..Fact::patterns(dtype) }
}

/// Fact of an approximated function of x with results from `lo` to `hi` and derivatives up to
/// `slope`; an unknown one if x may be NaN or infinite.
pub(super) fn smooth(
    x: &Fact,
    dtype: DType,
    (lo, hi): (f64, f64),
    slope: f64,
    policy: Policy,
) -> Fact {
    let fact = Fact { err: slope * x.err + power(-140), ..Fact::exact(lo, hi, ROUGH) };
    let rounded = if x.special { None } else { round_or_wrap(dtype, fact, 16.0, policy) };
    rounded.map_or(unknown(dtype), |found| Fact { away: 0.0, ..found })
}

impl Builder<'_> {
    /// Draws a second source of floats, mostly of the dtype of the first one: an accepted value, or
    /// new data. It broadcasts with the first one.
    pub(super) fn float_partner(
        &mut self,
        first: ValueId,
        accept: impl Fn(&Fact) -> bool,
    ) -> Option<ValueId> {
        let limit = self.limit;
        let tensor = self.type_of(first).clone();
        let any = self.choices.one_in(4);
        let found = self.pick(|other, fact| {
            other.dtype.is_float()
                && (any || other.dtype == tensor.dtype)
                && accept(fact)
                && shapes::broadcast(&tensor.shape, &other.shape, limit)
        });
        if found.is_some() && self.choices.below(4) < 3 {
            return found;
        }
        let source = self.new_source(tensor.dtype, &tensor.shape, Need::Any)?;
        if accept(&source.fact) { self.push_source(source) } else { found }
    }

    /// Adds elements that are drawn from these numbers; `None` if there are too many to list.
    pub(crate) fn fresh_listed(
        &mut self,
        dtype: DType,
        shape: &[usize],
        numbers: &[f64],
    ) -> Option<ValueId> {
        let count = shapes::count(shape);
        if MAX_LISTED < count || !self.has_room(1) {
            return None;
        }
        let mut drawn = || element(dtype, &Literal::Float(self.choices.pick(numbers)));
        let elements = (0..count).map(|_| drawn()).collect();
        let (statement, fact) = listed(dtype, shape.to_vec(), elements);
        Some(self.push(statement, fact))
    }

    /// Adds two sources of one type, of few numbers of it, so that they often meet each other.
    pub(super) fn listed_pair(
        &mut self,
        numbers: &dyn Fn(DType) -> [f64; 10],
    ) -> Option<[ValueId; 2]> {
        let dtype = self.float_dtype().filter(|_| self.has_room(3))?;
        let shape = self.palette.shape(self.choices, self.max_rank, self.limit);
        let numbers = numbers(dtype);
        let x = self.fresh_listed(dtype, &shape, &numbers)?;
        Some([x, self.fresh_listed(dtype, &shape, &numbers)?])
    }

    /// Adds a new source; `None` if it is a literal.
    pub(super) fn push_source(&mut self, source: Source) -> Option<ValueId> {
        match self.admit(source) {
            Operand::Value(value) => Some(value),
            Operand::Literal(_) => None,
        }
    }
}
