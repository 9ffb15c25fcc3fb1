//! Index expressions: does simplifying keep the value, do the bounds hold, is once enough?

use gradiff::graph::{Arg, Constant, DType, Op, UOp, Variable, evaluate as scalar, infix};
use gradiff::rewrite::{bounds, simplify};
use gradiff_corpus::{Expr, ExprBinary, ExprCase, ExprUnary};
use std::collections::HashMap;
use std::sync::Arc;

use crate::columns::Column;

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
    let (low, high) = (ranges[0].0.max(ranges[1].0), ranges[0].1.min(ranges[1].1));
    let (count, points) = points(case);
    let expected = value(&case.expr, &points, count);
    let found = evaluate(&simple, case, &points, count);
    for point in 0..count {
        let Some(expected) = expected.at(point) else { continue };
        if found.at(point) != Some(expected) {
            let found = found.at(point);
            return Err(format!(
                "{} became {}: {found:?} instead of {expected} at {}",
                text(&graph),
                text(&simple),
                place(case, &points, point)
            ));
        }
        if i128::from(expected) < low || high < i128::from(expected) {
            return Err(format!(
                "{} is {expected} at {}, outside its bounds {low}..{high}",
                text(&graph),
                place(case, &points, point)
            ));
        }
    }
    Ok(())
}

fn place(case: &ExprCase, points: &[Column], point: usize) -> String {
    let words = case.vars.iter().zip(points).map(|(var, values)| {
        let value = values.at(point).expect("a variable has a value everywhere");
        format!("{}={value}", var.name)
    });
    words.collect::<Vec<_>>().join(", ")
}

/// All points, or corners and a fixed scatter of them: how many, and each variable's values.
fn points(case: &ExprCase) -> (usize, Vec<Column>) {
    let last = |var: &gradiff_corpus::Var| var.max.wrapping_sub(var.min) as u64;
    let spans: Vec<u64> = case.vars.iter().map(last).collect();
    let total = spans.iter().try_fold(1u64, |product, last| {
        last.checked_add(1).and_then(|span| product.checked_mul(span))
    });
    let whole = total.filter(|total| *total <= POINTS as u64);
    let count = whole.map_or(POINTS, |total| total as usize);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut values: Vec<Vec<i32>> = vec![Vec::with_capacity(count); spans.len()];
    for number in 0..count {
        let mut rest = number as u64;
        for ((var, last), values) in case.vars.iter().zip(&spans).zip(&mut values) {
            let step = if whole.is_some() {
                let step = rest % (last + 1);
                rest /= last + 1;
                step
            } else if number < 1 << case.vars.len().min(6) {
                let step = if rest & 1 == 0 { 0 } else { *last };
                rest >>= 1;
                step
            } else {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                last.checked_add(1).map_or(state, |span| state % span)
            };
            values.push(var.min.wrapping_add(step as i64) as i32);
        }
    }
    (count, values.into_iter().map(Column::new).collect())
}

/// The values of the written expression (truth is 1), with those of its variables.
fn value(expr: &Expr, points: &[Column], count: usize) -> Column {
    let of = |x: &Expr| value(x, points, count);
    match expr {
        Expr::Var(number) => points[*number].clone(),
        Expr::Int(value) => Column::repeated(*value as i32, count),
        Expr::Bool(value) => Column::repeated(i32::from(*value), count),
        Expr::Unary(ExprUnary::Neg, x) => of(x).map(i32::wrapping_neg),
        Expr::Unary(ExprUnary::Not, x) if is_bool(x) => of(x).map(|x| 1 - x),
        Expr::Unary(ExprUnary::Not, x) => of(x).map(|x| !x),
        // An undefined side that is not chosen is idle.
        Expr::Where(parts) => of(&parts[0]).select(&of(&parts[1]), &of(&parts[2])),
        Expr::Binary(op, x, y) => Column::binary(*op, &of(x), &of(y)),
    }
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

/// The values of a graph of 32-bit integers and truths.
fn evaluate(root: &UOp, case: &ExprCase, points: &[Column], count: usize) -> Column {
    let order = root.toposort();
    let places: HashMap<&UOp, usize> = order.iter().zip(0..).collect();
    let mut columns: Vec<Column> = Vec::with_capacity(order.len());
    for node in &order {
        let src: Vec<&Column> = node.src().iter().map(|source| &columns[places[source]]).collect();
        let column = match (node.arg(), src.as_slice()) {
            (Arg::Const(value), _) => Column::repeated(bits_of(*value), count),
            (Arg::Var(variable), _) => {
                let number = case.vars.iter().position(|var| var.name == variable.name);
                let nowhere = || Column::from_options((0..count).map(|_| None));
                number.map_or_else(nowhere, |number| points[number].clone())
            }
            (_, [condition, x, y]) if node.op() == Op::Where => condition.select(x, y),
            (_, [x, y]) if written_op(node).is_some() => {
                Column::binary(written_op(node).expect("just asked"), x, y)
            }
            _ => by_point(node, &src, count),
        };
        columns.push(column);
    }
    columns.pop().expect("a graph has a root")
}

/// The op of expressions that means the same, over integers or truths.
fn written_op(node: &UOp) -> Option<ExprBinary> {
    use ExprBinary::{CDiv, CMod, FloorDiv, FloorMod};
    let is_bool = node.src()[0].dtype() == DType::Bool;
    let both = [ExprBinary::Ne, ExprBinary::And, ExprBinary::Or, ExprBinary::Xor];
    let ints = [ExprBinary::Add, ExprBinary::Sub, ExprBinary::Mul, ExprBinary::Lt];
    let more = [ExprBinary::Max, ExprBinary::Min, FloorDiv, FloorMod, CDiv, CMod];
    let shifts = [ExprBinary::Shl, ExprBinary::Shr];
    let is_same = |op: &ExprBinary| binary_op(*op) == node.op();
    let rest = ints.into_iter().chain(more).chain(shifts).filter(|_| !is_bool);
    let is_known = node.src()[0].dtype() == DType::I32 || is_bool;
    both.into_iter().chain(rest).filter(|_| is_known).find(is_same)
}

/// An op that expressions do not have, one point at a time.
fn by_point(node: &UOp, src: &[&Column], count: usize) -> Column {
    Column::from_options((0..count).map(|point| {
        let constant = |(uop, column): (&UOp, &&Column)| {
            column.at(point).map(|value| Constant::int(uop.dtype(), i128::from(value)))
        };
        let operands: Option<Vec<Constant>> = node.src().iter().zip(src).map(constant).collect();
        scalar(node.op(), node.dtype(), &operands?).map(bits_of)
    }))
}

fn bits_of(value: Constant) -> i32 {
    value.to_int().expect("expressions have integers and truths alone") as i32
}
