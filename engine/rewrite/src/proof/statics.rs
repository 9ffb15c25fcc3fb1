//! What the dtypes alone say of a condition.

use gradiff_graph::DType;

use super::encode::Type;
use crate::condition::{Expr, Operator, Question};

/// What is known without any value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Static {
    Value(i128),
    /// It cannot be computed, so that the condition is false.
    Undefined,
    Unknown,
}

/// Whether the condition never holds for these dtypes.
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
            other => other,
        },
        Expr::Binary(operator, left, right) => {
            let (left, right) = (known(left, type_of), known(right, type_of));
            match (operator, left, right) {
                (_, Static::Undefined, _) => Static::Undefined,
                (Operator::And, Static::Value(0), _) | (Operator::And, _, Static::Value(0)) => {
                    Static::Value(0)
                }
                (Operator::Or, Static::Value(1), _) => Static::Value(1),
                (Operator::And | Operator::Or, Static::Value(_), other) => other,
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
        _ => Static::Unknown,
    }
}
