//! Simplification of an index under its gate: where `x < 5` holds, x is at most 4.
//!
//! An index is only used where its gate is true, so it may be simplified under the gate's clauses;
//! and a clause counts only where the clauses before it hold. A node that a clause bounds is
//! replaced by a stand-in of the narrowed range, the result is simplified, and the node is put
//! back. The result is dropped if it is not smaller.

use std::sync::Arc;

use gradiff_graph::interval::{Interval, unwrapped};
use gradiff_graph::{Arg, Constant, DType, Op, Sources, UOp, Variable};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::bounds::Bounds;
use crate::context::Context;
use crate::sum::Sum;

/// Fact of a clause of a gate: a node, and the values it may have where the clause holds.
struct Fact {
    node: UOp,
    allowed: Interval,
}

type Clauses = SmallVec<[UOp; 8]>;
type Facts = SmallVec<[Fact; 8]>;

/// The fact of `x < c` or `(x < c) != true`; `None` for other clauses.
fn read_clause(clause: &UOp, bounds: &mut Bounds) -> Option<Fact> {
    let negated = is_negation(clause);
    let less = if negated { &clause.src()[0] } else { clause };
    let (Op::CmpLt, [x, limit]) = (less.op(), less.src()) else { return None };
    let limit = limit.as_int()?;
    let (min, max) = bounds.of(x);
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

/// Drops the clauses of an and-chain that another clause about the same node implies; the chain is
/// false if two clauses exclude each other.
pub(crate) fn clauses(uop: &UOp, context: &mut dyn Context) -> Option<UOp> {
    let clauses = clauses_of(uop);
    let facts: SmallVec<[Option<Fact>; 8]> =
        clauses.iter().map(|clause| read_clause(clause, context.bounds())).collect();
    let mut needed = Clauses::new();
    for (index, clause) in clauses.iter().enumerate() {
        let mut is_needed = !needed.contains(clause);
        for (second_index, second) in facts.iter().enumerate() {
            let (Some(first), Some(second)) = (&facts[index], second) else { continue };
            if first.node != second.node || index == second_index {
                continue;
            }
            let (a, b) = (first.allowed, second.allowed);
            if a.0.max(b.0) > a.1.min(b.1) {
                return Some(UOp::constant(Constant::bool(false)));
            }
            // The stronger of two clauses implies the weaker; the first of two equal ones is kept.
            let is_implied = a.0 <= b.0 && b.1 <= a.1;
            is_needed &= !is_implied || a == b && index < second_index;
        }
        if is_needed {
            needed.push(clause.clone());
        }
    }
    let is_shorter = needed.len() < clauses.len();
    is_shorter.then(|| chain(needed))
}

/// Simplifies a gated index: each clause of the gate under those before it, the index under all of
/// them.
pub(crate) fn index(uop: &UOp, context: &mut dyn Context) -> Option<UOp> {
    let [global, index, gate] = uop.src() else { return None };
    // An index that is being simplified under a gate is not opened again: names would clash.
    if has_stand_in(index) || has_stand_in(gate) {
        return None;
    }
    let new_gate = gate_under_itself(gate, context);
    let gate = new_gate.as_ref().unwrap_or(gate);
    let facts = facts_of(&clauses_of(gate), context.bounds())?;
    let new_index = under_all(index, &facts, context);
    if new_gate.is_none() && new_index.is_none() {
        return None;
    }
    let index = new_index.unwrap_or_else(|| index.clone());
    Some(uop.with_src([global.clone(), index, gate.clone()]))
}

/// Prefix of the names of stand-ins; no name that a user gives starts with a space.
const STAND_IN: &str = " valid";

fn has_stand_in(root: &UOp) -> bool {
    let is_stand_in = |node: &UOp| match node.arg() {
        Arg::Var(variable) => variable.name.starts_with(STAND_IN),
        _ => false,
    };
    root.order().into_iter().any(is_stand_in)
}

/// The facts of the clauses, one for each node. `None` if two clauses exclude each other.
fn facts_of(clauses: &[UOp], bounds: &mut Bounds) -> Option<Facts> {
    let mut facts = Facts::new();
    for Fact { node, allowed } in clauses.iter().filter_map(|clause| read_clause(clause, bounds)) {
        match facts.iter_mut().find(|fact| fact.node == node) {
            Some(fact) => {
                fact.allowed = (fact.allowed.0.max(allowed.0), fact.allowed.1.min(allowed.1));
            }
            None => facts.push(Fact { node, allowed }),
        }
    }
    facts.iter().all(|fact| fact.allowed.0 <= fact.allowed.1).then_some(facts)
}

/// Simplifies each clause of the gate under those before it. Clauses on nodes that occur in other
/// clauses come first. `None` if nothing becomes smaller.
fn gate_under_itself(gate: &UOp, context: &mut dyn Context) -> Option<UOp> {
    let mut clauses = clauses_of(gate);
    if clauses.len() < 2 {
        return None;
    }
    let order = by_uses(&clauses, context);
    let mut is_changed = false;
    for position in 1..order.len() {
        let before: Clauses = order[..position].iter().map(|at| clauses[*at].clone()).collect();
        let facts = facts_of(&before, context.bounds())?;
        let at = order[position];
        // The rule on clauses handles a fact about the node of this clause.
        let node = read_clause(&clauses[at], context.bounds()).map(|fact| fact.node);
        let facts: Facts =
            facts.into_iter().filter(|fact| Some(&fact.node) != node.as_ref()).collect();
        if let Some(smaller) = under_all(&clauses[at], &facts, context) {
            clauses[at] = smaller;
            is_changed = true;
        }
    }
    is_changed.then(|| chain(clauses))
}

/// The indices of the clauses, those first whose nodes occur in most clauses.
fn by_uses(clauses: &[UOp], context: &mut dyn Context) -> SmallVec<[usize; 8]> {
    let nodes: SmallVec<[FxHashSet<&UOp>; 8]> =
        clauses.iter().map(|clause| clause.order().into_iter().collect()).collect();
    let uses = |clause: &UOp| {
        let fact = read_clause(clause, context.bounds());
        fact.map_or(0, |fact| nodes.iter().filter(|nodes| nodes.contains(&fact.node)).count())
    };
    let uses: SmallVec<[usize; 8]> = clauses.iter().map(uses).collect();
    let mut order: SmallVec<[usize; 8]> = (0..clauses.len()).collect();
    order.sort_by_key(|at| (usize::MAX - uses[*at], *at));
    order
}

/// Simplifies the node under all facts at once; then, if the node of one fact is within that of
/// another, which hides it, under each fact in turn. `None` if it does not become smaller.
fn under_all(root: &UOp, facts: &[Fact], context: &mut dyn Context) -> Option<UOp> {
    let nodes: FxHashSet<&UOp> = root.order().into_iter().collect();
    let occurs = |fact: &&Fact| match fact.node.op() {
        // A sum may be a part of another one; of `x % c` a quotient may be used, `(x // d) % m`.
        Op::Add => Sum::read(&fact.node)
            .is_some_and(|sum| sum.terms.iter().all(|(node, _)| nodes.contains(node))),
        Op::FloorMod => nodes.contains(&fact.node.src()[0]),
        _ => nodes.contains(&fact.node),
    };
    let facts: SmallVec<[&Fact; 8]> = facts.iter().filter(occurs).collect();
    if facts.is_empty() {
        return None;
    }
    let mut best: Option<UOp> = None;
    let hides_another = |outer: &&Fact| {
        let nodes = outer.node.order();
        facts.iter().any(|inner| inner.node != outer.node && nodes.contains(&&inner.node))
    };
    let has_hidden = facts.len() > 1 && facts.iter().any(hides_another);
    let singles = if has_hidden { facts.len() } else { 0 };
    let singles = (0..singles).map(|at| &facts[at..=at]);
    for subset in std::iter::once(&facts[..]).chain(singles) {
        let from = best.as_ref().unwrap_or(root);
        if let Some(smaller) = under(from, subset, context) {
            best = Some(smaller);
        }
    }
    best
}

/// Replaces the facts' nodes with stand-ins, simplifies, and puts the nodes back; `None` if the
/// result is not smaller, or may wrap: it is computed also where the clauses do not hold, where
/// some languages do not define an overflow.
fn under(root: &UOp, facts: &[&Fact], context: &mut dyn Context) -> Option<UOp> {
    let stand_ins: SmallVec<[UOp; 8]> =
        facts.iter().enumerate().map(|(at, fact)| stand_in(fact, at)).collect::<Option<_>>()?;
    let opened = open(root, facts, &stand_ins)?;
    if !may_simplify(&opened, &stand_ins, context) {
        return None;
    }
    let simplified = context.nested(&opened);
    if simplified == opened {
        return None;
    }
    let put_back = |node: &UOp| {
        let position = stand_ins.iter().position(|stand_in| stand_in == node)?;
        (node.op() != Op::Const).then(|| facts[position].node.clone())
    };
    let result = context.nested(&replace(&simplified, put_back));
    let is_smaller = result.order().len() < root.order().len();
    (is_smaller && !may_wrap(&result, root, context.bounds())).then_some(result)
}

/// Returns whether an integer that `root` does not compute may exceed its dtype.
fn may_wrap(result: &UOp, root: &UOp, bounds: &mut Bounds) -> bool {
    let before: FxHashSet<&UOp> = root.order().into_iter().collect();
    let mut is_new = result.order().into_iter().filter(|node| !before.contains(node));
    is_new.any(|node| {
        let operands: SmallVec<[Interval; 3]> =
            node.src().iter().map(|source| bounds.of(source)).collect();
        let kind = (node.op(), node.dtype(), node.arg());
        let exact = unwrapped(kind, &|number| operands.get(number).copied());
        let range = node.dtype().int_range();
        exact.zip(range).is_some_and(|(exact, range)| exact.0 < range.0 || range.1 < exact.1)
    })
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

/// Returns whether narrower ranges may help: a constant does, and so does a stand-in below an op
/// that is not linear. A comparison of a sum gains only if it is decided.
fn may_simplify(opened: &UOp, stand_ins: &[UOp], context: &mut dyn Context) -> bool {
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
        let (min, max) = if is_compared { context.bounds().of(node) } else { (0, 1) };
        let is_idle = is_linear(node.op()) || is_compared && min != max || is_negation(node);
        if !is_idle && !node.src().is_empty() {
            return true;
        }
        above.insert(node);
    }
    false
}

/// Returns whether the node is `x != true`.
fn is_negation(node: &UOp) -> bool {
    node.op() == Op::CmpNe && node.src()[1].as_const() == Some(Constant::bool(true))
}

/// Replaces the facts' nodes, also where one is a part of a sum, or a remainder whose quotient is
/// used. `None` if there is nothing to replace. An address is not changed, nor a store that a load
/// comes after: loads in a gate or in an index, and stores before them, are executed also where the
/// clauses do not hold.
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
    let is_executed = |node: &&UOp| node.op() == Op::Index || node.dtype() == DType::Void;
    for node in order.into_iter().filter(|node| is_opened(node) && !is_executed(node)) {
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

/// Rewrites `k*s + rest` as `k*stand_in + rest`, s the sum of a fact, for each fact. Holds modulo
/// 2^bits, so it needs no ranges.
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
    let mut replaced = rest.empty();
    for (sum, stand_in) in sums.iter().zip(stand_ins) {
        let Some(sum) = sum else { continue };
        let factor_of = |sum: &Sum, node: &UOp| {
            sum.terms.iter().find(|(term, _)| term == node).map(|(_, factor)| *factor)
        };
        let [(first, factor), ..] = sum.terms.as_slice() else { continue };
        let Some(factor) = factor_of(&rest, first).map(|whole| whole / factor) else { continue };
        let is_part = |(node, part): &(UOp, i128)| factor_of(&rest, node) == Some(part * factor);
        if factor == 0 || !sum.terms.iter().all(is_part) {
            continue;
        }
        sum.terms.iter().for_each(|(node, part)| rest.add(node.clone(), -part * factor));
        rest.constant -= sum.constant * factor;
        replaced.add(stand_in.clone(), factor);
    }
    if replaced.terms.is_empty() {
        return None;
    }
    for (node, factor) in &rest.terms {
        replaced.add(done.get(node).unwrap_or(node).clone(), *factor);
    }
    replaced.constant = rest.constant;
    Some(replaced.build())
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

/// Replaces each node for which `by` has another node, the topmost first; not in stores that loads
/// come after.
fn replace(root: &UOp, by: impl Fn(&UOp) -> Option<UOp>) -> UOp {
    let mut done: FxHashMap<&UOp, UOp> = FxHashMap::default();
    for node in root.order().into_iter().filter(|node| node.dtype() != DType::Void) {
        let result = match by(node) {
            Some(replacement) => replacement,
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
