//! Values of conditions that follow from the dtypes alone.

use gradiff_graph::{DType, Op};
use gradiff_rewrite::syntax::{Expr, Operator, ParsedRule, Pattern, Question};

use super::encode::Type;
use super::parsed;
use super::typing::Typing;

/// The value of an expression, as far as it follows from the dtypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Static {
    Value(i128),
    /// It cannot be computed, so that the condition is false.
    Undefined,
    Unknown,
}

/// Returns whether the condition never holds for these dtypes.
pub(super) fn never(expr: &Expr, type_of: &dyn Fn(usize) -> Option<Type>) -> bool {
    match known(expr, type_of) {
        Static::Value(value) => value != 1,
        Static::Undefined => true,
        Static::Unknown => false,
    }
}

fn known(expr: &Expr, type_of: &dyn Fn(usize) -> Option<Type>) -> Static {
    let is_float = |slot: &usize| matches!(type_of(*slot), Some(Type::Float(_) | Type::Raw(_)));
    match expr {
        Expr::Int(value) => Static::Value(*value),
        Expr::Slot(slot) | Expr::Fits(_, slot) if is_float(slot) => Static::Undefined,
        Expr::Slot(_) | Expr::Fits(..) => Static::Unknown,
        Expr::Ask(question, [first, second]) => ask(*question, type_of(*first), type_of(*second)),
        Expr::Unary(sign, inner) => match known(inner, type_of) {
            Static::Value(value) if *sign == '!' => Static::Value(i128::from(value == 0)),
            Static::Value(value) => Static::Value(-value),
            unknown => unknown,
        },
        Expr::Binary(operator, left, right) => {
            let (left, right) = (known(left, type_of), known(right, type_of));
            match (operator, left, right) {
                (_, Static::Undefined, _) => Static::Undefined,
                (Operator::And, Static::Value(0), _) | (Operator::And, _, Static::Value(0)) => {
                    Static::Value(0)
                }
                (Operator::Or, Static::Value(1), _) => Static::Value(1),
                (Operator::And | Operator::Or, Static::Value(_), right) => right,
                (_, _, Static::Undefined) if *operator != Operator::Or => Static::Undefined,
                (Operator::AtLeast, Static::Value(x), Static::Value(y)) => {
                    Static::Value(i128::from(x >= y))
                }
                (Operator::AtMost, Static::Value(x), Static::Value(y)) => {
                    Static::Value(i128::from(x <= y))
                }
                (Operator::Less, Static::Value(x), Static::Value(y)) => {
                    Static::Value(i128::from(x < y))
                }
                (Operator::More, Static::Value(x), Static::Value(y)) => {
                    Static::Value(i128::from(x > y))
                }
                (Operator::Equal, Static::Value(x), Static::Value(y)) => {
                    Static::Value(i128::from(x == y))
                }
                _ => Static::Unknown,
            }
        }
    }
}

fn ask(question: Question, first: Option<Type>, second: Option<Type>) -> Static {
    let (Some(first), Some(second)) = (first, second) else { return Static::Unknown };
    let truth = |value: bool| Static::Value(i128::from(value));
    let is_float = |kind: Type| match kind {
        Type::Float(_) => true,
        Type::Raw(dtype) => dtype.is_float(),
        _ => false,
    };
    match question {
        Question::Min | Question::Max | Question::NoWrap if is_float(first) => Static::Undefined,
        Question::Bits => match first {
            Type::Int(dtype) | Type::Float(dtype) | Type::Raw(dtype) => {
                Static::Value(dtype.bits().into())
            }
            Type::Bool => Static::Value(1),
            _ => Static::Unknown,
        },
        Question::IsInt => truth(match first {
            Type::Raw(dtype) => dtype.is_int(),
            _ => matches!(first, Type::Any { .. } | Type::Int(_)),
        }),
        Question::IsBool => truth(matches!(first, Type::Bool | Type::Raw(DType::Bool))),
        Question::Same => match (first, second) {
            (Type::Any { .. }, Type::Any { .. }) => Static::Unknown,
            _ => truth(first == second),
        },
        Question::Exact if is_float(first) && !is_float(second) => truth(false),
        Question::Exact => match (first.dtype(), second.dtype()) {
            (Some(from), Some(to)) if from.is_float() => truth(has_all_of(to, from)),
            _ => Static::Unknown,
        },
        _ => Static::Unknown,
    }
}

/// The classes of each bitcast on the left side and of its source, which have the same size.
pub(super) fn bitcasts(rule: &ParsedRule, typing: &Typing) -> Vec<[usize; 2]> {
    fn walk(pattern: &Pattern, next: &mut usize, found: &mut Vec<[usize; 2]>) {
        let node = *next;
        *next += 1;
        let Pattern::Node(op, src, _) = pattern else { return };
        if *op == Op::Bitcast {
            found.push([node, *next]);
        }
        src.iter().for_each(|source| walk(source, next, found));
    }
    let mut found = Vec::new();
    walk(&rule.lhs, &mut 0, &mut found);
    found.iter().map(|nodes| nodes.map(|node| typing.node(node))).collect()
}

/// Returns whether each bitcast is between dtypes of the same size.
pub(super) fn is_of_one_size(bitcasts: &[[usize; 2]], types: &[Option<Type>]) -> bool {
    let size = |class: usize| types[class].and_then(Type::dtype).map(DType::size_bytes);
    bitcasts.iter().all(|[to, from]| size(*to) == size(*from))
}

/// Returns whether the class consists of names that stand for an index.
pub(super) fn is_index(rule: &ParsedRule, typing: &Typing, class: usize) -> bool {
    fn walk(pattern: &Pattern, is_index: bool, next: &mut usize, found: &mut Vec<(usize, bool)>) {
        found.push((*next, is_index && matches!(pattern, Pattern::Any(_))));
        *next += 1;
        let (op, src) = match pattern {
            Pattern::Node(op, src, _) => (*op, src.as_slice()),
            Pattern::Reduce(op, src) => (*op, src.as_slice()),
            _ => return,
        };
        for (position, source) in src.iter().enumerate() {
            walk(source, op == Op::Index && position == 1, next, found);
        }
    }
    let (mut next, mut nodes) = (0, Vec::new());
    walk(&rule.lhs, false, &mut next, &mut nodes);
    walk(&rule.rhs, false, &mut next, &mut nodes);
    let mut asked = parsed::conditions(rule).flat_map(parsed::names);
    nodes.iter().all(|(node, is_index)| *is_index || typing.node(*node) != class)
        && asked.all(|slot| typing.of_slot(slot) != Some(class))
}

/// Returns whether the float dtype `to` has each value of `from`.
pub(super) fn has_all_of(to: DType, from: DType) -> bool {
    let wider = [
        (DType::F16, DType::F32),
        (DType::BF16, DType::F32),
        (DType::F16, DType::F64),
        (DType::BF16, DType::F64),
        (DType::F32, DType::F64),
    ];
    from == to || wider.contains(&(from, to))
}
