//! Index expressions: does simplifying keep the value, do the bounds hold, is once enough?

use gradiff::graph::{Arg, Constant, DType, Op, UOp, Variable, evaluate as scalar, infix};
use gradiff::rewrite::{bounds, simplify};
use gradiff_corpus::{Expr, ExprBinary, ExprCase, ExprUnary};
use std::collections::HashMap;
use std::sync::Arc;

/// At most this many points are looked at; ranges with fewer are looked at whole.
const POINTS: usize = 600;

/// Checks that the simplified expression has the value of the written one wherever that has
/// one, that the bounds of both hold, and that simplifying again changes nothing.
///
/// The written expression is evaluated here, from its meaning over 32-bit integers.
///
/// # Errors
/// What differs, in one line, with the point.
pub fn check_expr(case: &ExprCase) -> Result<(), String> {
    case.kind().map_err(|error| error.to_string())?;
    let graph = to_uop(case);
    let simple = simplify(&graph);
    let again = simplify(&simple);
    let text = infix;
    if again != simple {
        return Err(format!("simplified again, {} becomes {}", text(&simple), text(&again)));
    }
    let ranges = [bounds(&graph), bounds(&simple)];
    let order = simple.toposort();
    for point in points(case) {
        let Some(expected) = value(&case.expr, &point) else { continue };
        let found = evaluate(&order, case, &point);
        if found != Some(expected) {
            return Err(format!(
                "{} became {}: {found:?} instead of {expected} at {}",
                text(&graph),
                text(&simple),
                place(case, &point)
            ));
        }
        for (low, high) in ranges {
            if i128::from(expected) < low || high < i128::from(expected) {
                return Err(format!(
                    "{} is {expected} at {}, outside its bounds {low}..{high}",
                    text(&graph),
                    place(case, &point)
                ));
            }
        }
    }
    Ok(())
}

fn place(case: &ExprCase, point: &[i64]) -> String {
    let words = case.vars.iter().zip(point).map(|(var, value)| format!("{}={value}", var.name));
    words.collect::<Vec<_>>().join(", ")
}

/// All points, or corners and a fixed scatter of them.
fn points(case: &ExprCase) -> Vec<Vec<i64>> {
    let spans: Vec<u128> =
        case.vars.iter().map(|v| (i128::from(v.max) - i128::from(v.min)) as u128 + 1).collect();
    let total = spans.iter().try_fold(1u128, |product, span| product.checked_mul(*span));
    let is_whole = total.is_some_and(|total| total <= POINTS as u128);
    let count = if is_whole { total.unwrap_or(0) as usize } else { POINTS };
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..count)
        .map(|number| {
            let mut rest = number as u128;
            let coordinate = |(var, span): (&gradiff_corpus::Var, &u128)| {
                let step = if is_whole {
                    let step = rest % span;
                    rest /= span;
                    step
                } else if number < 1 << case.vars.len().min(6) {
                    let step = if rest & 1 == 0 { 0 } else { span - 1 };
                    rest >>= 1;
                    step
                } else {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    u128::from(state) % span
                };
                (i128::from(var.min) + step as i128) as i64
            };
            case.vars.iter().zip(&spans).map(coordinate).collect()
        })
        .collect()
}

/// The value of the written expression (truth is 1); `None` where it is undefined.
fn value(expr: &Expr, point: &[i64]) -> Option<i64> {
    let wrap = |wide: i64| i64::from(wide as i32);
    Some(match expr {
        Expr::Var(number) => point[*number],
        Expr::Int(value) => *value,
        Expr::Bool(value) => i64::from(*value),
        Expr::Unary(ExprUnary::Neg, x) => wrap(-value(x, point)?),
        Expr::Unary(ExprUnary::Not, x) => {
            let is_bool = is_bool(x);
            let x = value(x, point)?;
            if is_bool { 1 - x } else { !x }
        }
        Expr::Where(parts) => {
            // Both sides are computed, as devices do: an undefined one that is not chosen is idle.
            let [condition, x, y] = &**parts;
            if value(condition, point)? != 0 { value(x, point)? } else { value(y, point)? }
        }
        Expr::Binary(op, x, y) => {
            let (x, y) = (value(x, point)?, value(y, point)?);
            match op {
                ExprBinary::Add => wrap(x + y),
                ExprBinary::Sub => wrap(x - y),
                ExprBinary::Mul => wrap(x * y),
                ExprBinary::Max => x.max(y),
                ExprBinary::Min => x.min(y),
                ExprBinary::Lt => i64::from(x < y),
                ExprBinary::Ne => i64::from(x != y),
                ExprBinary::Eq => i64::from(x == y),
                ExprBinary::And => x & y,
                ExprBinary::Or => x | y,
                ExprBinary::Xor => x ^ y,
                ExprBinary::Shl if (0..32).contains(&y) => wrap(x << y),
                ExprBinary::Shr if (0..32).contains(&y) => x >> y,
                ExprBinary::Shl | ExprBinary::Shr => return None,
                _ if y == 0 => return None,
                ExprBinary::CDiv => wrap(x / y),
                ExprBinary::CMod => x % y,
                ExprBinary::FloorDiv => wrap(floor_quotient(x, y)),
                ExprBinary::FloorMod => x - y * floor_quotient(x, y),
            }
        }
    })
}

fn floor_quotient(x: i64, y: i64) -> i64 {
    x / y - i64::from(x % y != 0 && (x < 0) != (y < 0))
}

fn is_bool(expr: &Expr) -> bool {
    match expr {
        Expr::Var(_) | Expr::Int(_) | Expr::Unary(ExprUnary::Neg, _) => false,
        Expr::Bool(_) => true,
        Expr::Unary(ExprUnary::Not, x) => is_bool(x),
        Expr::Where(parts) => is_bool(&parts[1]),
        Expr::Binary(op, x, _) => match op {
            ExprBinary::Lt | ExprBinary::Ne | ExprBinary::Eq => true,
            ExprBinary::And | ExprBinary::Or | ExprBinary::Xor => is_bool(x),
            _ => false,
        },
    }
}

/// The engine's graph of a written expression, nothing folded.
pub fn to_uop(case: &ExprCase) -> UOp {
    let vars: Vec<UOp> = case
        .vars
        .iter()
        .map(|var| {
            let variable = Variable { name: var.name.clone(), min: var.min, max: var.max };
            UOp::new(Op::DefineVar, DType::I32, [], Arg::Var(Arc::new(variable)))
        })
        .collect();
    graph_of(&case.expr, &vars)
}

fn graph_of(expr: &Expr, vars: &[UOp]) -> UOp {
    let of = |x: &Expr| graph_of(x, vars);
    match expr {
        Expr::Var(number) => vars[*number].clone(),
        Expr::Int(value) => UOp::int(DType::I32, *value),
        Expr::Bool(value) => UOp::constant(Constant::bool(*value)),
        Expr::Unary(ExprUnary::Neg, x) => UOp::unary(Op::Neg, DType::I32, of(x)),
        Expr::Unary(ExprUnary::Not, x) if is_bool(x) => UOp::not(of(x)),
        Expr::Unary(ExprUnary::Not, x) => UOp::binary(Op::Xor, of(x), UOp::int(DType::I32, -1)),
        Expr::Where(parts) => UOp::select(of(&parts[0]), of(&parts[1]), of(&parts[2])),
        Expr::Binary(ExprBinary::Eq, x, y) => UOp::not(UOp::binary(Op::CmpNe, of(x), of(y))),
        Expr::Binary(op, x, y) => UOp::binary(binary_op(*op), of(x), of(y)),
    }
}

fn binary_op(op: ExprBinary) -> Op {
    match op {
        ExprBinary::Add => Op::Add,
        ExprBinary::Sub => Op::Sub,
        ExprBinary::Mul => Op::Mul,
        ExprBinary::FloorDiv => Op::FloorDiv,
        ExprBinary::FloorMod => Op::FloorMod,
        ExprBinary::CDiv => Op::CDiv,
        ExprBinary::CMod => Op::CMod,
        ExprBinary::Max => Op::Max,
        ExprBinary::Min => Op::Min,
        ExprBinary::Lt => Op::CmpLt,
        ExprBinary::Ne | ExprBinary::Eq => Op::CmpNe,
        ExprBinary::And => Op::And,
        ExprBinary::Or => Op::Or,
        ExprBinary::Xor => Op::Xor,
        ExprBinary::Shl => Op::Shl,
        ExprBinary::Shr => Op::Shr,
    }
}

/// The value of a graph whose nodes are given sources first.
fn evaluate(order: &[UOp], case: &ExprCase, point: &[i64]) -> Option<i64> {
    let mut values: HashMap<&UOp, Option<Constant>> = HashMap::with_capacity(order.len());
    for node in order {
        let found = match node.arg() {
            Arg::Const(value) => Some(*value),
            Arg::Var(variable) => {
                let number = case.vars.iter().position(|var| var.name == variable.name)?;
                Some(Constant::int(node.dtype(), i128::from(point[number])))
            }
            _ if node.op() == Op::Where => match values[&node.src()[0]] {
                Some(condition) => values[&node.src()[if condition.is_true() { 1 } else { 2 }]],
                None => None,
            },
            _ => {
                let sources: Option<Vec<Constant>> =
                    node.src().iter().map(|source| values[source]).collect();
                sources.and_then(|src| scalar(node.op(), node.dtype(), &src))
            }
        };
        values.insert(node, found);
    }
    values[order.last()?]?.to_int().map(|value| value as i64)
}
