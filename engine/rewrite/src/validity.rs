//! What a gate says of the index behind it: where `x < 5` holds, x is at most 4.
//!
//! An index is only used where its gate is true, so it may be simplified under the gate's clauses;
//! and a clause counts only where the clauses before it hold. A node that a clause bounds is
//! replaced by a stand-in of the narrowed range, what comes out is simplified, and the node is put
//! back. Nothing is taken that has not become smaller.

use std::sync::Arc;

use gradiff_graph::{Arg, Constant, DType, Interval, Op, Sources, UOp, Variable};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::bounds::Bounds;
use crate::driver::Scope;
use crate::sum::Sum;

/// What a clause of a gate says: a node, and the values it may have where the clause holds.
struct Fact {
    node: UOp,
    allowed: Interval,
}

type Clauses = SmallVec<[UOp; 8]>;
type Facts = SmallVec<[Fact; 8]>;

/// `x < c` or `(x < c) != true`; `None` for other clauses.
fn read_clause(clause: &UOp, known: &mut Bounds) -> Option<Fact> {
    let negated = is_negation(clause);
    let less = if negated { &clause.src()[0] } else { clause };
    let (Op::CmpLt, [x, limit]) = (less.op(), less.src()) else { return None };
    let limit = limit.as_int()?;
    let (min, max) = known.of(x);
    let allowed = if negated { (min.max(limit), max) } else { (min, max.min(limit - 1)) };
    (x.op() != Op::Const && x.dtype().is_int()).then(|| Fact { node: x.clone(), allowed })
}

/// The clauses of an and-chain, in order.
fn clauses_of(gate: &UOp) -> Clauses {
    let mut found = Clauses::new();
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

fn chain(clauses: impl IntoIterator<Item = UOp>) -> UOp {
    let chain = clauses.into_iter().reduce(|chain, clause| UOp::binary(Op::And, chain, clause));
    chain.unwrap_or_else(|| UOp::constant(Constant::bool(true)))
}

/// An and-chain without clauses that say nothing beyond another one of the same node; false if two
/// of them exclude each other.
pub(crate) fn clauses(uop: &UOp, scope: &mut Scope<'_>) -> Option<UOp> {
    let all = clauses_of(uop);
    let parsed: SmallVec<[Option<Fact>; 8]> =
        all.iter().map(|clause| read_clause(clause, &mut scope.bounds)).collect();
    let mut kept = Clauses::new();
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
    let is_shorter = kept.len() < all.len();
    is_shorter.then(|| chain(kept))
}

/// A gated index: the clauses of the gate simplified each under the ones before it, the index
/// under all of them.
pub(crate) fn index(uop: &UOp, scope: &mut Scope<'_>) -> Option<UOp> {
    let [global, index, gate] = uop.src() else { return None };
    // What is being simplified under a gate already is not opened again: the names would clash.
    if has_stand_in(index) || has_stand_in(gate) {
        return None;
    }
    let new_gate = gate_under_itself(gate, scope);
    let gate = new_gate.as_ref().unwrap_or(gate);
    let facts = facts_of(&clauses_of(gate), &mut scope.bounds)?;
    let new_index = under_all(index, &facts, scope);
    if new_gate.is_none() && new_index.is_none() {
        return None;
    }
    let index = new_index.unwrap_or_else(|| index.clone());
    Some(uop.with_src([global.clone(), index, gate.clone()]))
}

/// How the names of stand-ins begin; no name that a user gives starts with a space.
const STAND_IN: &str = " valid";

fn has_stand_in(root: &UOp) -> bool {
    let is_stand_in = |node: &UOp| matches!(node.arg(), Arg::Var(variable) if variable.name.starts_with(STAND_IN));
    root.order().into_iter().any(is_stand_in)
}

/// What the clauses say, one fact for each node. `None` if two of them exclude each other.
fn facts_of(clauses: &[UOp], known: &mut Bounds) -> Option<Facts> {
    let mut facts = Facts::new();
    for Fact { node, allowed } in clauses.iter().filter_map(|clause| read_clause(clause, known)) {
        match facts.iter_mut().find(|fact| fact.node == node) {
            Some(fact) => {
                fact.allowed = (fact.allowed.0.max(allowed.0), fact.allowed.1.min(allowed.1));
            }
            None => facts.push(Fact { node, allowed }),
        }
    }
    facts.iter().all(|fact| fact.allowed.0 <= fact.allowed.1).then_some(facts)
}

/// The gate, each clause simplified where those before it hold. Clauses on what others are made of
/// come first. `None` if nothing becomes smaller.
fn gate_under_itself(gate: &UOp, scope: &mut Scope<'_>) -> Option<UOp> {
    let mut clauses = clauses_of(gate);
    if clauses.len() < 2 {
        return None;
    }
    let order = by_uses(&clauses, scope);
    let mut is_changed = false;
    for position in 1..order.len() {
        let before: Clauses = order[..position].iter().map(|at| clauses[*at].clone()).collect();
        let facts = facts_of(&before, &mut scope.bounds)?;
        let at = order[position];
        // A fact about the very node of this clause is dealt with by the rule on clauses.
        let own = read_clause(&clauses[at], &mut scope.bounds).map(|fact| fact.node);
        let facts: Facts =
            facts.into_iter().filter(|fact| Some(&fact.node) != own.as_ref()).collect();
        if let Some(smaller) = under_all(&clauses[at], &facts, scope) {
            clauses[at] = smaller;
            is_changed = true;
        }
    }
    is_changed.then(|| chain(clauses))
}

/// The places of the clauses, those first whose nodes most of the clauses are made of.
fn by_uses(clauses: &[UOp], scope: &mut Scope<'_>) -> SmallVec<[usize; 8]> {
    let nodes: SmallVec<[FxHashSet<&UOp>; 8]> =
        clauses.iter().map(|clause| clause.order().into_iter().collect()).collect();
    let uses = |clause: &UOp| {
        let fact = read_clause(clause, &mut scope.bounds);
        fact.map_or(0, |fact| nodes.iter().filter(|nodes| nodes.contains(&fact.node)).count())
    };
    let uses: SmallVec<[usize; 8]> = clauses.iter().map(uses).collect();
    let mut order: SmallVec<[usize; 8]> = (0..clauses.len()).collect();
    order.sort_by_key(|at| (usize::MAX - uses[*at], *at));
    order
}

/// The node simplified under the facts: all at once, then, as one may hide another one in it, one
/// after the other. `None` if it does not become smaller.
fn under_all(root: &UOp, facts: &[Fact], scope: &mut Scope<'_>) -> Option<UOp> {
    let nodes: FxHashSet<&UOp> = root.order().into_iter().collect();
    let is_met = |fact: &&Fact| match fact.node.op() {
        // As a part of a sum, or in a quotient of the same.
        Op::Add => Sum::read(&fact.node)
            .is_some_and(|sum| sum.terms.iter().all(|(node, _)| nodes.contains(node))),
        Op::FloorMod => nodes.contains(&fact.node.src()[0]),
        _ => nodes.contains(&fact.node),
    };
    let facts: SmallVec<[&Fact; 8]> = facts.iter().filter(is_met).collect();
    if facts.is_empty() {
        return None;
    }
    let mut best: Option<UOp> = None;
    let hide = |outer: &&Fact| {
        let nodes = outer.node.order();
        facts.iter().any(|inner| inner.node != outer.node && nodes.contains(&&inner.node))
    };
    let singles = if facts.len() > 1 && facts.iter().any(hide) { facts.len() } else { 0 };
    let singles = (0..singles).map(|at| &facts[at..=at]);
    for some in std::iter::once(&facts[..]).chain(singles) {
        let from = best.as_ref().unwrap_or(root);
        if let Some(smaller) = under(from, some, scope) {
            best = Some(smaller);
        }
    }
    best
}

/// The node with the facts' nodes replaced by stand-ins, simplified, and with the nodes put back;
/// `None` if that is not smaller.
fn under(root: &UOp, facts: &[&Fact], scope: &mut Scope<'_>) -> Option<UOp> {
    let stand_ins: SmallVec<[UOp; 8]> =
        facts.iter().enumerate().map(|(at, fact)| stand_in(fact, at)).collect::<Option<_>>()?;
    let opened = open(root, facts, &stand_ins)?;
    if !has_something_to_gain(&opened, &stand_ins, scope) {
        return None;
    }
    let simplified = scope.nested(&opened);
    if simplified == opened {
        return None;
    }
    let put_back = |node: &UOp| {
        let position = stand_ins.iter().position(|stand_in| stand_in == node)?;
        (node.op() != Op::Const).then(|| facts[position].node.clone())
    };
    let result = scope.nested(&replace(&simplified, put_back));
    (result.order().len() < root.order().len()).then_some(result)
}

/// A constant or variable that has the narrowed range of a node.
fn stand_in(fact: &Fact, number: usize) -> Option<UOp> {
    let (dtype, (min, max)) = (fact.node.dtype(), fact.allowed);
    if min == max {
        return Some(UOp::constant(Constant::int(dtype, min)));
    }
    let (min, max) = (i64::try_from(min).ok()?, i64::try_from(max).ok()?);
    let variable = Arc::new(Variable { name: format!("{STAND_IN}{number}"), min, max });
    Some(UOp::new(Op::DefineVar, dtype, Sources::new(), Arg::Var(variable)))
}

/// Whether narrower ranges may say something: a constant does, and what is no sum above a stand-in.
/// A comparison of sums gains only if it is decided.
fn has_something_to_gain(opened: &UOp, stand_ins: &[UOp], scope: &mut Scope<'_>) -> bool {
    if stand_ins.iter().any(|node| node.op() == Op::Const) {
        return true;
    }
    let is_linear = |op| matches!(op, Op::Add | Op::Mul | Op::Sub | Op::Neg);
    let mut above: FxHashSet<&UOp> = FxHashSet::default();
    for node in opened.order() {
        if !stand_ins.contains(node) && !node.src().iter().any(|source| above.contains(source)) {
            continue;
        }
        let is_compared = node.op() == Op::CmpLt && node.src()[1].op() == Op::Const;
        let (min, max) = if is_compared { scope.bounds.of(node) } else { (0, 1) };
        let is_idle = is_linear(node.op()) || is_compared && min != max || is_negation(node);
        if !is_idle && !node.src().is_empty() {
            return true;
        }
        above.insert(node);
    }
    false
}

/// `x != true`.
fn is_negation(node: &UOp) -> bool {
    node.op() == Op::CmpNe && node.src()[1].as_const() == Some(Constant::bool(true))
}

/// The node with the facts' nodes replaced, also where one is a part of a sum, or a remainder of
/// which the quotient is asked. `None` if there is nothing to replace. An address stays as it is:
/// what a gate or an index loads is loaded also where the clauses do not hold.
fn open(root: &UOp, facts: &[&Fact], stand_ins: &[UOp]) -> Option<UOp> {
    let order = root.order();
    let inner: FxHashSet<&UOp> = order
        .iter()
        .filter(|node| node.op() == Op::Add)
        .flat_map(|node| node.src().iter().filter(|source| source.op() == Op::Add))
        .collect();
    let sums: SmallVec<[Option<Sum>; 8]> = facts
        .iter()
        .map(|fact| (fact.node.op() == Op::Add).then(|| Sum::read(&fact.node)).flatten())
        .collect();
    let mut done: FxHashMap<&UOp, UOp> = FxHashMap::default();
    let is_opened = |node: &&UOp| !node.src().is_empty() || is_fact(node, facts);
    for node in order.into_iter().filter(|node| is_opened(node) && node.op() != Op::Index) {
        let result = match facts.iter().position(|fact| fact.node == *node) {
            Some(position) => Some(stand_ins[position].clone()),
            None if node.op() == Op::Add && !inner.contains(node) => {
                part_of_sum(node, &sums, stand_ins, &done)
            }
            None if node.op() == Op::FloorMod => quotient_of_remainder(node, facts, stand_ins),
            None => None,
        };
        let is_changed = |source: &UOp| done.contains_key(source);
        let result = result.or_else(|| {
            let source = |source: &UOp| done.get(source).unwrap_or(source).clone();
            node.src().iter().any(is_changed).then(|| node.with_src(node.src().iter().map(source)))
        });
        if let Some(result) = result {
            done.insert(node, result);
        }
    }
    done.remove(root)
}

fn is_fact(node: &UOp, facts: &[&Fact]) -> bool {
    facts.iter().any(|fact| fact.node == *node)
}

/// `k*s + rest` with `s` the sum of a fact: `k*stand_in + rest`, as far as it goes. True modulo the
/// dtype's width, so that nothing is asked of the ranges.
fn part_of_sum(
    node: &UOp,
    sums: &[Option<Sum>],
    stand_ins: &[UOp],
    done: &FxHashMap<&UOp, UOp>,
) -> Option<UOp> {
    if sums.iter().all(Option::is_none) {
        return None;
    }
    let mut rest = Sum::read(node)?;
    let mut found = rest.empty();
    for (sum, stand_in) in sums.iter().zip(stand_ins) {
        let Some(sum) = sum else { continue };
        let factor_of = |sum: &Sum, node: &UOp| {
            sum.terms.iter().find(|(term, _)| term == node).map(|(_, factor)| *factor)
        };
        let [(first, factor), ..] = sum.terms.as_slice() else { continue };
        let Some(factor) = factor_of(&rest, first).map(|own| own / factor) else { continue };
        let is_part = |(node, own): &(UOp, i128)| factor_of(&rest, node) == Some(own * factor);
        if factor == 0 || !sum.terms.iter().all(is_part) {
            continue;
        }
        sum.terms.iter().for_each(|(node, own)| rest.add(node.clone(), -own * factor));
        rest.constant -= sum.constant * factor;
        found.add(stand_in.clone(), factor);
    }
    if found.terms.is_empty() {
        return None;
    }
    for (node, factor) in &rest.terms {
        found.add(done.get(node).unwrap_or(node).clone(), *factor);
    }
    found.constant = rest.constant;
    Some(found.build())
}

/// `(x // d) % m` is `(x % (d*m)) // d`, rounded down, d and m positive.
fn quotient_of_remainder(node: &UOp, facts: &[&Fact], stand_ins: &[UOp]) -> Option<UOp> {
    let [quotient, modulus] = node.src() else { return None };
    let (Op::FloorDiv, [x, divisor]) = (quotient.op(), quotient.src()) else { return None };
    let (count, size) = (modulus.as_int()?, divisor.as_int()?);
    let is_whole = |fact: &&Fact| match fact.node.src() {
        [y, whole] if fact.node.op() == Op::FloorMod => {
            y == x && whole.as_int() == Some(count * size)
        }
        _ => false,
    };
    let position = facts.iter().position(is_whole).filter(|_| 0 < count && 0 < size)?;
    Some(UOp::binary(Op::FloorDiv, stand_ins[position].clone(), divisor.clone()))
}

/// The node with others in the place of some, the topmost first.
fn replace(root: &UOp, by: impl Fn(&UOp) -> Option<UOp>) -> UOp {
    let mut done: FxHashMap<&UOp, UOp> = FxHashMap::default();
    for node in root.order() {
        assert!(node.dtype() != DType::Void, "an index has a value");
        let result = match by(node) {
            Some(other) => other,
            None if node.src().is_empty() => continue,
            None => {
                let sources = node.src().iter().map(|source| done.get(source).unwrap_or(source));
                node.with_src(sources.cloned())
            }
        };
        done.insert(node, result);
    }
    done.remove(root).unwrap_or_else(|| root.clone())
}
