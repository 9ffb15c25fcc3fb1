//! Helpers of rules about reductions over ranges: which nodes vary along a range, reductions over
//! several ranges taken one by one, and the one right side that is computed, a picked step.

use gradiff_graph::{Arg, Constant, DType, Op, Sources, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::driver::Scope;
use crate::sum::Sum;

/// How many steps a range has; one for what stands in the place of a range that was one step.
pub(crate) fn size(range: &UOp) -> Option<i128> {
    match range.op() {
        Op::Range => range.src()[0].as_int().map(|end| end.max(0)),
        Op::Const => Some(1),
        _ => None,
    }
}

/// Whether the node has one value over all steps of the range. A constant is no range, so
/// everything is free of it.
pub(crate) fn is_free(node: &UOp, range: &UOp) -> bool {
    range.op() == Op::Const || !varying(node, range).contains(node)
}

/// The nodes of the graph, down from `root`, that vary along the range. Nodes inside of a reduction
/// over the range vary there, but the reduction does not.
pub fn varying(root: &UOp, range: &UOp) -> FxHashSet<UOp> {
    let mut found = FxHashSet::default();
    for node in root.toposort() {
        let is_closed = node.op() == Op::Reduce && node.src()[1..].contains(range);
        if node == *range || !is_closed && node.src().iter().any(|source| found.contains(source)) {
            found.insert(node);
        }
    }
    found
}

/// The first result of `apply` on a reduction over one of the ranges of `reduction`, with the
/// reduction over the other ranges around it.
pub(crate) fn one_by_one(
    reduction: &UOp,
    mut apply: impl FnMut(&UOp) -> Option<UOp>,
) -> Option<UOp> {
    let [value, ranges @ ..] = reduction.src() else { return None };
    let over = |value: UOp, ranges: &mut dyn Iterator<Item = &UOp>| {
        let src: Sources = std::iter::once(value).chain(ranges.cloned()).collect();
        UOp::new(Op::Reduce, reduction.dtype(), src, reduction.arg().clone())
    };
    (0..ranges.len()).find_map(|chosen| {
        let one = over(value.clone(), &mut std::iter::once(&ranges[chosen]));
        let others = ranges.iter().enumerate().filter(|(number, _)| *number != chosen);
        apply(&one).map(|inner| over(inner, &mut others.map(|(_, range)| range)))
    })
}

/// A truth value that is and-ed with others, negated or not.
type Clause = (UOp, bool);

/// The right side `@gather`. A sum of choices of which one step at most is not 0, the one where
/// two sums are equal, is the value at that step if there is such a step, else 0.
pub(crate) fn gather(uop: &UOp, _: &mut Scope<'_>) -> Option<UOp> {
    let [value, range] = uop.src() else { return None };
    let (clauses, picked) = open(value)?;
    let count = size(range).filter(|_| range.op() == Op::Range)?;
    let (number, step) = clauses
        .iter()
        .enumerate()
        .find_map(|(number, clause)| solve(clause, range, count).map(|step| (number, step)))?;
    let inside = inside(&step, count);
    let at = Substitution { range, step: cast(step, range.dtype()), inside: inside.clone() };
    let others = clauses.iter().enumerate().filter(|(other, _)| *other != number);
    let mut gate = inside;
    for (_, (clause, is_negated)) in others {
        let clause = at.apply(clause);
        let clause = if *is_negated { UOp::not(clause) } else { clause };
        gate = UOp::binary(Op::And, gate, clause);
    }
    let zero = UOp::constant(Constant::zero(uop.dtype()));
    Some(UOp::select(gate, at.apply(&picked), zero))
}

/// A chain of choices between a value and 0: all that must hold, and the value.
fn open(value: &UOp) -> Option<(SmallVec<[Clause; 4]>, UOp)> {
    let mut clauses = SmallVec::new();
    let mut value = value;
    while let (Op::Where, [condition, x, y]) = (value.op(), value.src()) {
        let is_zero = |uop: &UOp| uop.as_const() == Some(Constant::zero(uop.dtype()));
        if is_zero(y) {
            split(condition, false, &mut clauses);
            value = x;
        } else if is_zero(x) {
            split(condition, true, &mut clauses);
            value = y;
        } else {
            break;
        }
    }
    (!clauses.is_empty()).then(|| (clauses, value.clone()))
}

/// The parts of a truth value, negated or not, that must all hold for it to hold.
fn split(truth: &UOp, is_negated: bool, clauses: &mut SmallVec<[Clause; 4]>) {
    let joins = if is_negated { Op::Or } else { Op::And };
    match truth.src() {
        [x, y] if truth.op() == joins => {
            split(x, is_negated, clauses);
            split(y, is_negated, clauses);
        }
        [x, y] if truth.op() == Op::CmpNe && y.as_const() == Some(Constant::bool(true)) => {
            split(x, !is_negated, clauses);
        }
        _ => clauses.push((truth.clone(), is_negated)),
    }
}

/// Of `x = y` with the range on one side, times 1 or -1: the step at which it holds, in the type of
/// x. Exact modulo 2^bits, which tells all steps of the range apart.
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
    let is_step = |node: &UOp| node == range || node.op() == Op::Cast && node.src()[0] == *range;
    let place = rest.terms.iter().position(|(node, _)| is_step(node))?;
    let (_, factor) = rest.terms.remove(place);
    if factor.abs() != 1 || !rest.terms.iter().all(|(node, _)| is_free(node, range)) {
        return None;
    }
    if factor == 1 {
        rest.terms.iter_mut().for_each(|(_, factor)| *factor = -*factor);
        rest.constant = -rest.constant;
    }
    Some(rest.build())
}

/// Whether the step is one of the `count` first.
fn inside(step: &UOp, count: i128) -> UOp {
    let number = |value| UOp::constant(Constant::int(step.dtype(), value));
    let is_below = UOp::binary(Op::CmpLt, step.clone(), number(count));
    let is_negative = UOp::binary(Op::CmpLt, step.clone(), number(0));
    UOp::binary(Op::And, UOp::not(is_negative), is_below)
}

fn cast(value: UOp, dtype: DType) -> UOp {
    if value.dtype() == dtype { value } else { UOp::unary(Op::Cast, dtype, value) }
}

/// The graph with `step` in place of the range, but where a reduction closes the range.
pub fn substitute(root: &UOp, range: &UOp, step: &UOp) -> UOp {
    replaced(root, range, step, |node| node)
}

/// Does what [`substitute`] does; `change` is given each node that has another source.
fn replaced(root: &UOp, range: &UOp, step: &UOp, change: impl Fn(UOp) -> UOp) -> UOp {
    let varying = varying(root, range);
    let mut done: FxHashMap<UOp, UOp> = FxHashMap::default();
    for node in root.toposort().into_iter().filter(|node| varying.contains(node)) {
        let made = if node == *range {
            step.clone()
        } else {
            let new = |source: &UOp| done.get(source).unwrap_or(source).clone();
            change(node.with_src(node.src().iter().map(new)))
        };
        done.insert(node, made);
    }
    done.remove(root).unwrap_or_else(|| root.clone())
}

/// A step in place of a range.
struct Substitution<'a> {
    range: &'a UOp,
    step: UOp,
    /// Whether the step is one of the range: what is loaded at it is loaded only then.
    inside: UOp,
}

impl Substitution<'_> {
    /// The node at the step; anything where the step is none of the range, but nothing is touched.
    fn apply(&self, root: &UOp) -> UOp {
        replaced(root, self.range, &self.step, |node| match node.op() {
            Op::Index => self.gated(&node),
            _ => node,
        })
    }

    fn gated(&self, index: &UOp) -> UOp {
        let [global, place, gate @ ..] = index.src() else { return index.clone() };
        let gate = match gate {
            [gate] => UOp::binary(Op::And, self.inside.clone(), gate.clone()),
            _ => self.inside.clone(),
        };
        UOp::new(Op::Index, index.dtype(), [global.clone(), place.clone(), gate], Arg::None)
    }
}
