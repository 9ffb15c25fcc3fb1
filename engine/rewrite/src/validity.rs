//! What a gate says of the index behind it: where `x < 5` holds, x is at most 4.
//!
//! An index is only used where its gate is true, so it may be simplified under the gate's clauses.

use std::sync::Arc;

use gradiff_graph::{Arg, Constant, DType, Op, Sources, UOp, Variable};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::bounds::{Bounds, Interval};
use crate::driver::Scope;

/// One clause of a gate: a node and the values it may have where the clause holds.
struct Clause {
    node: UOp,
    allowed: Interval,
}

/// `x < c` or `(x < c) != true`; `None` for other clauses.
fn read_clause(clause: &UOp, known: &mut Bounds) -> Option<Clause> {
    let negated =
        clause.op() == Op::CmpNe && clause.src()[1].as_const() == Some(Constant::bool(true));
    let less = if negated { &clause.src()[0] } else { clause };
    let (Op::CmpLt, [x, limit]) = (less.op(), less.src()) else { return None };
    let limit = limit.as_int()?;
    let (min, max) = known.of(x);
    let allowed = if negated { (min.max(limit), max) } else { (min, max.min(limit - 1)) };
    (x.op() != Op::Const && x.dtype().is_int()).then(|| Clause { node: x.clone(), allowed })
}

/// The clauses of an and-chain, in order.
fn clauses_of(gate: &UOp) -> SmallVec<[UOp; 8]> {
    let mut found = SmallVec::new();
    let mut pending: SmallVec<[&UOp; 8]> = SmallVec::new();
    pending.push(gate);
    while let Some(node) = pending.pop() {
        match node.src() {
            [x, y] if node.op() == Op::And => pending.extend([y, x]),
            _ => found.push(node.clone()),
        }
    }
    found
}

/// An and-chain without clauses that say nothing beyond another one of the same node; false if two
/// of them exclude each other.
pub(crate) fn clauses(uop: &UOp, scope: &mut Scope<'_>) -> Option<UOp> {
    let all = clauses_of(uop);
    let parsed: SmallVec<[Option<Clause>; 8]> =
        all.iter().map(|clause| read_clause(clause, &mut scope.bounds)).collect();
    let mut kept: SmallVec<[UOp; 8]> = SmallVec::new();
    for (index, clause) in all.iter().enumerate() {
        let mut is_needed = !kept.contains(clause);
        for (other, second) in parsed.iter().enumerate() {
            let (Some(first), Some(second)) = (&parsed[index], second) else { continue };
            if first.node != second.node || index == other {
                continue;
            }
            let (a, b) = (first.allowed, second.allowed);
            if a.0.max(b.0) > a.1.min(b.1) {
                return Some(UOp::constant(Constant::bool(false)));
            }
            // The stronger one of two implies the weaker; of equals the first stays.
            let is_implied = a.0 <= b.0 && b.1 <= a.1;
            is_needed &= !is_implied || a == b && index < other;
        }
        if is_needed {
            kept.push(clause.clone());
        }
    }
    let built = kept.into_iter().reduce(|chain, clause| UOp::binary(Op::And, chain, clause))?;
    let is_shorter = clauses_of(&built).len() < all.len();
    is_shorter.then_some(built)
}

/// A gated index, simplified under its gate.
pub(crate) fn index(uop: &UOp, scope: &mut Scope<'_>) -> Option<UOp> {
    let [global, index, gate] = uop.src() else { return None };
    let mut narrowed: FxHashMap<UOp, Interval> = FxHashMap::default();
    let mut order: SmallVec<[UOp; 8]> = SmallVec::new();
    for clause in clauses_of(gate) {
        let Some(Clause { node, allowed }) = read_clause(&clause, &mut scope.bounds) else {
            continue;
        };
        let entry = narrowed.entry(node.clone()).or_insert_with(|| {
            order.push(node);
            allowed
        });
        *entry = (entry.0.max(allowed.0), entry.1.min(allowed.1));
    }
    if order.is_empty() || !has_something_to_gain(index) {
        return None;
    }
    let mut stand_ins: SmallVec<[(UOp, UOp); 8]> = SmallVec::new();
    for node in order {
        let (min, max) = narrowed[&node];
        if max < min {
            return None;
        }
        stand_ins.push((stand_in(&node, (min, max), stand_ins.len())?, node));
    }
    let forward: FxHashMap<&UOp, &UOp> = stand_ins.iter().map(|(x, node)| (node, x)).collect();
    let opened = substitute(index, &forward);
    if opened == *index {
        return None;
    }
    let simplified = scope.nested(&opened);
    if simplified == opened {
        return None;
    }
    let back: FxHashMap<&UOp, &UOp> =
        stand_ins.iter().filter(|(x, _)| x.op() != Op::Const).map(|(x, node)| (x, node)).collect();
    let result = scope.nested(&substitute(&simplified, &back));
    let is_smaller = result.toposort().len() < index.toposort().len();
    is_smaller.then(|| uop.with_src([global.clone(), result, gate.clone()]))
}

/// Sums and products gain nothing from narrower ranges; an index that is being simplified under a
/// gate already must not be opened again, as the names of the stand-ins would clash.
fn has_something_to_gain(index: &UOp) -> bool {
    let nodes = index.toposort();
    let is_stand_in = |node: &UOp| matches!(node.arg(), Arg::Var(variable) if variable.name.starts_with(STAND_IN));
    let gains = |node: &UOp| {
        node.op().is_elementwise() && !matches!(node.op(), Op::Add | Op::Mul | Op::Sub | Op::Neg)
    };
    nodes.iter().any(gains) && !nodes.iter().any(is_stand_in)
}

/// How the names of stand-ins begin; no name that a user gives starts with a space.
const STAND_IN: &str = " valid";

/// A constant or variable that has the narrowed range of a node.
fn stand_in(node: &UOp, (min, max): Interval, number: usize) -> Option<UOp> {
    if min == max {
        return Some(UOp::constant(Constant::int(node.dtype(), min)));
    }
    let (min, max) = (i64::try_from(min).ok()?, i64::try_from(max).ok()?);
    let variable = Arc::new(Variable { name: format!("{STAND_IN}{number}"), min, max });
    Some(UOp::new(Op::DefineVar, node.dtype(), Sources::new(), Arg::Var(variable)))
}

/// The node with each key replaced by its value, the topmost first.
fn substitute(root: &UOp, replaced: &FxHashMap<&UOp, &UOp>) -> UOp {
    let mut done: FxHashMap<UOp, UOp> = FxHashMap::default();
    for node in root.toposort() {
        assert!(node.dtype() != DType::Void, "an index has a value");
        let result = match replaced.get(&node) {
            Some(stand_in) => (*stand_in).clone(),
            None if node.src().is_empty() => continue,
            None => {
                let mut sources =
                    node.src().iter().map(|source| done.get(source).unwrap_or(source));
                node.with_src(sources.by_ref().cloned())
            }
        };
        done.insert(node, result);
    }
    done.remove(root).unwrap_or_else(|| root.clone())
}
