//! Helpers of the rules about reductions over ranges: the nodes that depend on a range, reductions
//! over several ranges one range at a time, and the computed right side `@gather`.

use gradiff_graph::{Arg, Constant, DType, Op, Sources, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::sum::Sum;

/// Trip count of a range; 1 for a constant that replaces a range of one iteration.
pub(crate) fn trip_count(range: &UOp) -> Option<i128> {
    match range.op() {
        Op::Const => Some(1),
        _ => range.trip_count().map(i128::from),
    }
}

/// Returns whether the node has the same value in all iterations of the range. A constant in place
/// of the range is a loop of one iteration, in which no node varies.
pub(crate) fn is_free(node: &UOp, range: &UOp) -> bool {
    range.op() == Op::Const || !varying(node, range).contains(node)
}

/// The nodes of the graph below `root` that depend on the range. Nodes within a reduction over the
/// range, or stores in a loop before a barrier, depend on it, but the reduction and the barrier do
/// not.
pub fn varying(root: &UOp, range: &UOp) -> FxHashSet<UOp> {
    let mut varying = FxHashSet::default();
    for node in root.toposort() {
        let may_close = matches!(node.op(), Op::Reduce | Op::Barrier);
        let is_closed = may_close && node.src()[1..].contains(range);
        if node == *range || !is_closed && node.src().iter().any(|source| varying.contains(source))
        {
            varying.insert(node);
        }
    }
    varying
}

/// Calls `apply` with the reduction over each single range of `reduction`. Returns the first
/// result, reduced over the other ranges.
pub(crate) fn over_each_range(
    reduction: &UOp,
    mut apply: impl FnMut(&UOp) -> Option<UOp>,
) -> Option<UOp> {
    let [value, ranges @ ..] = reduction.src() else { return None };
    let over = |value: UOp, ranges: &mut dyn Iterator<Item = &UOp>| {
        let src: Sources = std::iter::once(value).chain(ranges.cloned()).collect();
        UOp::new(Op::Reduce, reduction.dtype(), src, reduction.arg().clone())
    };
    (0..ranges.len()).find_map(|chosen| {
        let single = over(value.clone(), &mut std::iter::once(&ranges[chosen]));
        let outer = ranges.iter().enumerate().filter(|(number, _)| *number != chosen);
        apply(&single).map(|inner| over(inner, &mut outer.map(|(_, range)| range)))
    })
}

/// A condition of a conjunction, and whether it is negated.
type Clause = (UOp, bool);

/// The right side `@gather`: the sum over r of `where(a == b, v, 0)`, where `a == b` holds for one
/// r only, is v at that r if the range has it, else 0.
pub(crate) fn gather(uop: &UOp) -> Option<UOp> {
    let [value, range] = uop.src() else { return None };
    let (clauses, chosen) = open(value)?;
    let count = i128::from(range.trip_count()?);
    let (solved, iteration) = clauses.iter().enumerate().find_map(|(number, clause)| {
        solve(clause, range, count).map(|iteration| (number, iteration))
    })?;
    let inside = inside(&iteration, count);
    let iteration = cast(iteration, range.dtype());
    let substitution = Substitution { range, iteration, inside: inside.clone() };
    let remaining = clauses.iter().enumerate().filter(|(number, _)| *number != solved);
    let mut gate = inside;
    for (_, (clause, is_negated)) in remaining {
        let clause = substitution.apply(clause);
        let clause = if *is_negated { UOp::not(clause) } else { clause };
        gate = UOp::binary(Op::And, gate, clause);
    }
    let zero = UOp::constant(Constant::zero(uop.dtype()));
    Some(UOp::select(gate, substitution.apply(&chosen), zero))
}

/// Opens a chain of choices between a value and a zero of either sign: a sum starts from 0.0, so
/// that adding -0.0 or 0.0 is the same. Returns the clauses that must all hold, and the value.
fn open(value: &UOp) -> Option<(SmallVec<[Clause; 4]>, UOp)> {
    let mut clauses = SmallVec::new();
    let mut seen = FxHashSet::default();
    let mut value = value;
    while let (Op::Where, [condition, x, y]) = (value.op(), value.src()) {
        let is_zero = |uop: &UOp| {
            uop.as_const().is_some_and(|value| match value.to_float() {
                Some(number) => number == 0.0,
                None => value.bits() == 0,
            })
        };
        if is_zero(y) {
            split(condition, false, &mut seen, &mut clauses);
            value = x;
        } else if is_zero(x) {
            split(condition, true, &mut seen, &mut clauses);
            value = y;
        } else {
            break;
        }
    }
    (!clauses.is_empty()).then(|| (clauses, value.clone()))
}

/// Splits a truth value, negated or not, into the clauses of a conjunction. A truth value that was
/// seen has its clauses there: there may be exponentially many paths to it.
fn split(
    truth: &UOp,
    is_negated: bool,
    seen: &mut FxHashSet<Clause>,
    clauses: &mut SmallVec<[Clause; 4]>,
) {
    if !seen.insert((truth.clone(), is_negated)) {
        return;
    }
    let conjunction = if is_negated { Op::Or } else { Op::And };
    match truth.src() {
        [x, y] if truth.op() == conjunction => {
            split(x, is_negated, seen, clauses);
            split(y, is_negated, seen, clauses);
        }
        [x, y] if truth.op() == Op::CmpNe && y.as_const() == Some(Constant::bool(true)) => {
            split(x, !is_negated, seen, clauses);
        }
        _ => clauses.push((truth.clone(), is_negated)),
    }
}

/// Solves `x = y` for the range, which occurs on one side, times 1 or -1: the iteration in which it
/// holds, in the dtype of x. Exact modulo 2^bits, which tells all iterations of the range apart.
fn solve((clause, is_negated): &Clause, range: &UOp, count: i128) -> Option<UOp> {
    let (Op::CmpNe, [x, y], true) = (clause.op(), clause.src(), is_negated) else { return None };
    let (_, high) = x.dtype().int_range().filter(|_| x.dtype().is_int())?;
    if high < count {
        return None;
    }
    let mut rest = Sum::read(x)?;
    let right = Sum::read(y)?;
    right.terms.iter().for_each(|(node, factor)| rest.add(node.clone(), -factor));
    rest.constant -= right.constant;
    let is_range = |node: &UOp| node == range || node.op() == Op::Cast && node.src()[0] == *range;
    let position = rest.terms.iter().position(|(node, _)| is_range(node))?;
    let (_, factor) = rest.terms.remove(position);
    if factor.abs() != 1 || !rest.terms.iter().all(|(node, _)| is_free(node, range)) {
        return None;
    }
    if factor == 1 {
        rest.terms.iter_mut().for_each(|(_, factor)| *factor = -*factor);
        rest.constant = -rest.constant;
    }
    Some(rest.build())
}

/// The node that is true if the iteration is one of the first `count`.
fn inside(iteration: &UOp, count: i128) -> UOp {
    let number = |value| UOp::constant(Constant::int(iteration.dtype(), value));
    let is_below = UOp::binary(Op::CmpLt, iteration.clone(), number(count));
    let is_negative = UOp::binary(Op::CmpLt, iteration.clone(), number(0));
    UOp::binary(Op::And, UOp::not(is_negative), is_below)
}

fn cast(value: UOp, dtype: DType) -> UOp {
    if value.dtype() == dtype { value } else { UOp::unary(Op::Cast, dtype, value) }
}

/// Replaces the range with `iteration`, except in reductions over the range.
pub fn substitute(root: &UOp, range: &UOp, iteration: &UOp) -> UOp {
    replaced(root, range, iteration, |node| node)
}

/// Does what [`substitute`] does, and calls `change` with each node that has a new source.
fn replaced(root: &UOp, range: &UOp, iteration: &UOp, change: impl Fn(UOp) -> UOp) -> UOp {
    let varying = varying(root, range);
    let mut done: FxHashMap<UOp, UOp> = FxHashMap::default();
    for node in root.toposort().into_iter().filter(|node| varying.contains(node)) {
        let result = if node == *range {
            iteration.clone()
        } else {
            let new = |source: &UOp| done.get(source).unwrap_or(source).clone();
            change(node.with_src(node.src().iter().map(new)))
        };
        done.insert(node, result);
    }
    done.remove(root).unwrap_or_else(|| root.clone())
}

/// The replacement of a range with one iteration.
struct Substitution<'a> {
    range: &'a UOp,
    iteration: UOp,
    /// True if the range has the iteration; gates the loads.
    inside: UOp,
}

impl Substitution<'_> {
    /// Returns the node in the iteration. If the range does not have it, the value is arbitrary,
    /// but nothing is loaded.
    fn apply(&self, root: &UOp) -> UOp {
        replaced(root, self.range, &self.iteration, |node| match node.op() {
            Op::Index => self.gated(&node),
            _ => node,
        })
    }

    fn gated(&self, index: &UOp) -> UOp {
        let [global, offset, gate @ ..] = index.src() else { return index.clone() };
        let gate = match gate {
            [gate] => UOp::binary(Op::And, self.inside.clone(), gate.clone()),
            _ => self.inside.clone(),
        };
        UOp::new(Op::Index, index.dtype(), [global.clone(), offset.clone(), gate], Arg::None)
    }
}

#[cfg(test)]
mod tests {
    use gradiff_graph::{Dims, Variable};

    use super::*;

    /// Each truth value is made of two that use the one before it: there are 4096 paths to the
    /// first.
    #[test]
    fn clauses_of_shared_truth_values_are_gated_once() {
        let variable = Variable { name: "n".to_owned(), min: -9, max: 99 };
        let index = UOp::new(Op::DefineVar, DType::I32, [], Arg::Var(variable.into()));
        let number = |value: i64| UOp::int(DType::I32, value);
        let differs = |value: i64| UOp::binary(Op::CmpNe, index.clone(), number(value));
        let or = |x: &UOp, y: UOp| UOp::binary(Op::Or, x.clone(), y);
        let truth = (0..12).fold(differs(0), |truth, level| {
            let [left, right] = [1, 2].map(|next| or(&truth, differs(2 * level + next)));
            UOp::binary(Op::Or, left, right)
        });
        let range = UOp::new(Op::Range, DType::I32, [number(100)], Arg::plain_axis(0));
        let is_elsewhere = UOp::binary(Op::CmpNe, index.clone(), range.clone());
        let chosen = UOp::select(is_elsewhere, number(0), index.clone());
        let value = UOp::select(truth, number(0), chosen);
        let arg = Arg::Reduce(Op::Add, Dims::new());
        let gathered = gather(&UOp::new(Op::Reduce, DType::I32, [value, range], arg));
        let nodes = gathered.expect("an element of each row").toposort();
        let conjunctions = nodes.iter().filter(|node| node.op() == Op::And).count();
        // Two clauses of each level, that of the first, and the bounds of the index.
        assert_eq!(conjunctions, 26);
    }
}
