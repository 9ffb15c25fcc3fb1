//! Queries of a parsed row, for proofs.

use gradiff_rewrite::syntax::{Expr, Operator, ParsedRule, Pattern, Question};

/// Returns whether the right side is a Rust function.
pub(super) fn is_computed(rule: &ParsedRule) -> bool {
    matches!(rule.rhs, Pattern::Computed(_))
}

/// The condition's parts, all of which hold when the rule fires.
pub(super) fn conditions(rule: &ParsedRule) -> impl Iterator<Item = &Expr> {
    rule.when.iter().chain(&rule.then)
}

/// Returns whether the condition states this of the slot, as one of its parts.
pub(super) fn says(rule: &ParsedRule, question: Question, slot: usize) -> bool {
    let is_statement = |expr: &Expr| match expr {
        Expr::Ask(asked, [first, _]) => *asked == question && *first == slot,
        _ => false,
    };
    conditions(rule).any(is_statement)
}

/// Returns whether the question about the slot occurs in the condition or in a computed constant.
pub(super) fn asks(rule: &ParsedRule, question: Question, slot: usize) -> bool {
    fn within(expr: &Expr, question: Question, slot: usize) -> bool {
        match expr {
            Expr::Ask(asked, [first, _]) => *asked == question && *first == slot,
            Expr::Binary(_, left, right) => {
                within(left, question, slot) || within(right, question, slot)
            }
            Expr::Unary(_, inner) | Expr::Fits(inner, _) => within(inner, question, slot),
            Expr::Int(_) | Expr::Slot(_) => false,
        }
    }
    fn side(pattern: &Pattern, question: Question, slot: usize) -> bool {
        match pattern {
            Pattern::Value(expr) => within(expr, question, slot),
            Pattern::Node(_, src, _) => src.iter().any(|source| side(source, question, slot)),
            Pattern::Reduce(_, src) => src.iter().any(|source| side(source, question, slot)),
            _ => false,
        }
    }
    conditions(rule).any(|expr| within(expr, question, slot)) || side(&rule.rhs, question, slot)
}

/// Returns whether any equation names the slot.
pub(super) fn is_in_equation(rule: &ParsedRule, slot: usize) -> bool {
    let equations = rule.given.iter().flat_map(|given| &given.equations);
    equations.into_iter().any(|(left, right)| *left == slot || names(right).contains(&slot))
}

/// The slots that an expression names.
pub(super) fn names(expr: &Expr) -> Vec<usize> {
    match expr {
        Expr::Int(_) => Vec::new(),
        Expr::Slot(slot) => vec![*slot],
        Expr::Ask(_, slots) => slots.to_vec(),
        Expr::Unary(_, inner) => names(inner),
        Expr::Binary(_, left, right) => [names(left), names(right)].concat(),
        Expr::Fits(inner, slot) => [names(inner), vec![*slot]].concat(),
    }
}

/// The two names of `c0 % c1 == 0`.
pub(super) fn multiple(condition: &Expr) -> Option<[usize; 2]> {
    let Expr::Binary(Operator::Equal, rest, zero) = condition else { return None };
    match (&**rest, &**zero) {
        (Expr::Binary(Operator::FloorMod, x, y), Expr::Int(0)) => match (&**x, &**y) {
            (Expr::Slot(x), Expr::Slot(y)) if x != y => Some([*x, *y]),
            _ => None,
        },
        _ => None,
    }
}

/// A pattern as text.
pub(super) fn show(pattern: &Pattern, rule: &ParsedRule) -> String {
    match pattern {
        Pattern::Any(slot) | Pattern::Constant(slot) => rule.name(*slot).to_owned(),
        Pattern::Literal(literal) => format!("{literal:?}"),
        Pattern::Node(op, src, _) => {
            let src: String = src.iter().map(|source| format!(" {}", show(source, rule))).collect();
            format!("({}{src})", op.name())
        }
        Pattern::Reduce(op, src) => {
            let [value, range] = &**src;
            format!("(reduce.{} {} {})", op.name(), show(value, rule), show(range, rule))
        }
        Pattern::Value(_) => String::from("{...}"),
        Pattern::Computed(_) => String::from("@"),
    }
}
