//! The proof that rewriting terminates: each rule makes the term cheaper, or keeps its price and
//! makes it smaller in a second order, or sorts operands. Other rules are refused when loaded.
//!
//! The first order is a price: that of the op, from a table, plus the prices of its sources (ten
//! times that of its value for a reduction, three times for a power, as it may become products).
//! The price of a side is linear in those of its names, so a rule makes every term cheaper if no
//! name has a larger coefficient on the right and the constant part is less. A constant, or a side
//! that folds to one, costs 1. The second is the lexicographic path order over the ops, sources
//! from right to left: chains lean to the left, constants are on the right. Both are reduction
//! orders, so their lexicographic combination is one as well. The exceptions are permutations under
//! `before(...)` and sums in canonical form, which have one form for each multiset of terms;
//! computed sides, whose functions state themselves why they terminate; and rows whose results are
//! not rewritten again.
//!
//! A name of an equation costs as much as its sum: `x` of `x = w * c0 + r` costs as `w * c0 + r`.

use std::collections::BTreeMap;

use gradiff_graph::Op;

use crate::condition::{Expr, Operator, Question};
use crate::names::is_constant_name;
use crate::pattern::Pattern;
use crate::syntax::ParsedRule;

/// A linear form: the coefficient of each name, and the constant part.
#[derive(Clone, Debug, Default)]
struct Price {
    names: BTreeMap<usize, i64>,
    rest: i64,
}

/// The price of a constant; a name costs at least as much.
const CONSTANT: i64 = 1;

impl Price {
    fn of(rest: i64) -> Price {
        Price { names: BTreeMap::new(), rest }
    }

    fn add(&mut self, other: &Price, times: i64) {
        self.rest += other.rest * times;
        for (name, count) in &other.names {
            *self.names.entry(*name).or_default() += count * times;
        }
    }

    /// Compares two prices for all values of the names, which cost more than a constant. `None` if
    /// a name has a larger coefficient in `other`.
    fn compare(&self, other: &Price) -> Option<std::cmp::Ordering> {
        let count =
            |price: &Price, name: &usize| price.names.get(name).copied().unwrap_or_default();
        let is_covered = |name: &usize| count(other, name) <= count(self, name);
        if !other.names.keys().all(is_covered) {
            return None;
        }
        // Each further occurrence of a name on this side costs at least 2.
        let more: i64 = self.names.iter().map(|(name, times)| times - count(other, name)).sum();
        Some((self.rest + 2 * CONSTANT * more).cmp(&other.rest))
    }
}

/// The price of an op. The late rules prefer what devices have to the canonical form.
fn price_of(op: Op, is_late: bool) -> i64 {
    match op {
        Op::Sub if is_late => 1,
        Op::CDiv | Op::CMod if is_late => 7,
        Op::FloorDiv | Op::FloorMod if is_late => 20,
        Op::CDiv | Op::CMod => 20,
        Op::FloorDiv | Op::FloorMod => 8,
        Op::Neg => 1,
        Op::Pow => 60,
        Op::FDiv => 8,
        Op::Where => 4,
        Op::Cast | Op::Bitcast => 3,
        Op::Recip | Op::Exp2 | Op::Log2 | Op::Sin | Op::Sqrt => 4,
        Op::Index | Op::Load | Op::Store | Op::Sink => 10,
        Op::CmpNe => 1,
        Op::And | Op::Or => 1,
        Op::Const => CONSTANT,
        _ => 2,
    }
}

struct Sides<'a> {
    rule: &'a ParsedRule,
    is_late: bool,
}

/// Checks that the rule makes every term cheaper or smaller.
///
/// # Errors
/// The prices of both sides.
pub(crate) fn check(rule: &ParsedRule) -> Result<(), String> {
    if rule.row.is_single || matches!(rule.rhs, Pattern::Computed(_)) {
        return Ok(());
    }
    let sides = Sides { rule, is_late: rule.row.name.starts_with("late/") };
    let root = rule.given.as_ref().and_then(|given| given.equations.iter().find(|(x, _)| *x == 0));
    let (left, right) = match root {
        Some((_, sum)) => (sides.sum(sum), sides.price(&rule.rhs)),
        None => (sides.price(&rule.lhs), sides.price(&rule.rhs)),
    };
    let is_permuted = rule.when.iter().any(|when| matches!(when, Expr::Ask(Question::Before, _)));
    let is_sum = matches!((root, &rule.rhs), (Some((0, Expr::Slot(x))), Pattern::Any(y)) if x == y);
    match left.compare(&right) {
        Some(std::cmp::Ordering::Greater) => Ok(()),
        Some(std::cmp::Ordering::Equal)
            if is_permuted || is_sum || sides.is_larger(&rule.lhs, &rule.rhs) =>
        {
            Ok(())
        }
        _ => Err(format!(
            "the right side is neither cheaper nor smaller in the path order ({} against {})",
            sides.show(&left),
            sides.show(&right)
        )),
    }
}

impl Sides<'_> {
    fn price(&self, side: &Pattern) -> Price {
        match side {
            Pattern::Any(slot) | Pattern::Constant(slot) => self.name(*slot),
            Pattern::Literal(_) | Pattern::Value(_) | Pattern::Computed(_) => Price::of(CONSTANT),
            Pattern::Node(..) if self.is_constant(side) => Price::of(CONSTANT),
            Pattern::Reduce(_, src) => {
                let mut price = Price::of(price_of(Op::Reduce, self.is_late));
                price.add(&self.price(&src[0]), 10);
                price
            }
            Pattern::Node(op, src, _) => {
                let mut price = Price::of(price_of(*op, self.is_late) + self.extra(*op, src));
                for (number, source) in src.iter().enumerate() {
                    let times = match op {
                        Op::Reduce if number == 0 => 10,
                        Op::Reduce => 0,
                        Op::Pow => 3,
                        _ => 1,
                    };
                    price.add(&self.price(source), times);
                }
                price
            }
        }
    }

    /// The extra price of a limit on the left, which the late rules allow, and of a divisor that is
    /// known to be negative.
    fn extra(&self, op: Op, src: &[Pattern]) -> i64 {
        let is_negative = |slot: usize| {
            let is_below_zero = |when: &Expr| {
                matches!(when, Expr::Binary(Operator::Less, x, y)
                    if matches!((&**x, &**y), (Expr::Slot(x), Expr::Int(0)) if *x == slot))
            };
            self.rule.when.iter().any(is_below_zero)
        };
        match (op, src) {
            (Op::CmpLt, [limit, _]) if !self.is_late && self.is_constant(limit) => 2,
            (Op::FloorDiv | Op::FloorMod, [_, Pattern::Constant(slot)]) if is_negative(*slot) => 4,
            _ => 0,
        }
    }

    /// Returns whether the side folds to a constant.
    fn is_constant(&self, side: &Pattern) -> bool {
        match side {
            Pattern::Any(_) | Pattern::Computed(_) | Pattern::Reduce(..) => false,
            Pattern::Constant(_) | Pattern::Literal(_) | Pattern::Value(_) => true,
            Pattern::Node(_, src, _) => {
                !src.is_empty() && src.iter().all(|source| self.is_constant(source))
            }
        }
    }

    fn name(&self, slot: usize) -> Price {
        if is_constant_name(self.rule.slots.name(slot)) {
            return Price::of(CONSTANT);
        }
        let given = self.rule.given.iter().flat_map(|given| &given.equations);
        match given.into_iter().find(|(left, _)| *left == slot) {
            Some((_, sum)) => self.sum(sum),
            None => Price { names: BTreeMap::from([(slot, 1)]), rest: 0 },
        }
    }

    /// The price of a sum in an equation.
    fn sum(&self, sum: &Expr) -> Price {
        let op = match sum {
            Expr::Slot(slot) => return self.name(*slot),
            Expr::Binary(Operator::Add, ..) => Op::Add,
            Expr::Binary(Operator::Sub, ..) => Op::Sub,
            Expr::Binary(Operator::FloorDiv, ..) => Op::FloorDiv,
            Expr::Binary(Operator::FloorMod, ..) => Op::FloorMod,
            Expr::Binary(Operator::CDiv, ..) => Op::CDiv,
            Expr::Binary(Operator::CMod, ..) => Op::CMod,
            _ => Op::Mul,
        };
        match sum {
            Expr::Binary(_, left, right) if op != Op::Mul || !self.is_number(sum) => {
                let mut price = Price::of(price_of(op, self.is_late));
                price.add(&self.sum(left), 1);
                price.add(&self.sum(right), 1);
                price
            }
            _ => Price::of(CONSTANT),
        }
    }

    fn is_number(&self, sum: &Expr) -> bool {
        match sum {
            Expr::Slot(slot) => is_constant_name(self.rule.slots.name(*slot)),
            Expr::Binary(_, left, right) => self.is_number(left) && self.is_number(right),
            _ => true,
        }
    }

    /// Returns whether the left side is larger in the lexicographic path order, sources from right
    /// to left.
    fn is_larger(&self, left: &Pattern, right: &Pattern) -> bool {
        if self.is_constant(right) {
            return !self.is_constant(left);
        }
        if let (Pattern::Any(sum), Pattern::Any(part)) = (left, right) {
            // A sum that an equation splits is larger than its parts.
            return self.name(*sum).names.contains_key(part) && sum != part;
        }
        let Some((op, src)) = sources(left) else { return false };
        if src.iter().any(|source| self.is_same(source, right) || self.is_larger(source, right)) {
            return true;
        }
        let Some((right_op, parts)) = sources(right) else { return false };
        if !parts.iter().all(|part| self.is_larger(left, part)) {
            return false;
        }
        match (rank(op), rank(right_op)) {
            (left_rank, right_rank) if left_rank != right_rank => left_rank > right_rank,
            _ => {
                let mut pairs = src.iter().zip(parts).rev();
                let first = pairs.find(|(source, part)| !self.is_same(source, part));
                first.is_some_and(|(source, part)| self.is_larger(source, part))
            }
        }
    }

    fn is_same(&self, left: &Pattern, right: &Pattern) -> bool {
        match (left, right) {
            _ if self.is_constant(left) => self.is_constant(right),
            (Pattern::Any(x), Pattern::Any(y)) => x == y,
            (Pattern::Reduce(op, src), Pattern::Reduce(right_op, parts)) => {
                op == right_op && src.iter().zip(&**parts).all(|(x, y)| self.is_same(x, y))
            }
            (Pattern::Node(op, src, _), Pattern::Node(right_op, parts, _)) => {
                op == right_op
                    && src.len() == parts.len()
                    && src.iter().zip(parts).all(|(x, y)| self.is_same(x, y))
            }
            _ => false,
        }
    }

    fn show(&self, price: &Price) -> String {
        let name =
            |(slot, count): (&usize, &i64)| format!("{count} {}", self.rule.slots.name(*slot));
        let names: Vec<String> = price.names.iter().map(name).collect();
        format!("{} and {}", names.join(" + "), price.rest)
    }
}

/// The op and the sources of a side.
fn sources(side: &Pattern) -> Option<(Op, &[Pattern])> {
    match side {
        Pattern::Node(op, src, _) => Some((*op, src)),
        Pattern::Reduce(_, src) => Some((Op::Reduce, &**src)),
        _ => None,
    }
}

/// The rank of an op in the path order.
fn rank(op: Op) -> u8 {
    match op {
        Op::FloorDiv | Op::CDiv => 6,
        Op::FloorMod | Op::CMod => 5,
        Op::CmpLt => 4,
        Op::Cast => 3,
        Op::Mul => 2,
        Op::Add | Op::Sub | Op::Neg => 1,
        _ => 0,
    }
}
