//! Checks of index expressions: simplifying keeps the value, the bounds hold, and simplifying again
//! changes nothing.

use gradiff::graph::{Arg, Constant, DType, Op, UOp, Variable};
use gradiff::rewrite::{Options, Trace, bounds, late, rewrite, symbolic};
use gradiff_corpus::{Expr, ExprBinary, ExprCase, ExprUnary, Var};
use gradiff_eval::scalar;
use std::collections::HashMap;
use std::sync::Arc;

use crate::blame::culprit::{is_endless, short};
use crate::models::columns::{Column, Number};
use crate::random::xorshift;

/// Maximal number of points that are checked; if an expression has fewer, all are.
const POINTS: usize = 600;
/// The same for values of 128 bits, which take longer.
const POINTS_WIDE: usize = 200;

/// Maximal number of rule applications for one expression.
const FUEL: u64 = 20_000;

/// A value for each variable.
pub(crate) type Point = Vec<i128>;

/// A problem of an expression.
pub(crate) enum Wrong {
    /// It is malformed.
    Malformed(String),
    /// Rewriting does not end.
    Endless(String),
    /// Simplifying changes the value at this point.
    Value(Point, String),
    /// A value at this point is outside its bounds.
    Bounds(Point, String),
    /// Simplifying once more changes the result.
    Again(String),
}

impl Wrong {
    pub(crate) fn detail(self) -> String {
        match self {
            Wrong::Malformed(detail) | Wrong::Endless(detail) | Wrong::Again(detail) => detail,
            Wrong::Value(_, detail) | Wrong::Bounds(_, detail) => detail,
        }
    }
}

/// Checks that rewriting the expression ends, that the result has the value of the written
/// expression wherever that is defined, that the bounds of both hold, and that simplifying again
/// changes nothing.
///
/// The written expression is evaluated here, from its meaning over integers that wrap.
///
/// # Errors
/// The first difference, in one line, with the point.
pub fn check_expr(case: &ExprCase) -> Result<(), String> {
    examine(case).map_err(Wrong::detail)
}

/// As [`check_expr`], with the kind of problem.
pub(crate) fn examine(case: &ExprCase) -> Result<(), Wrong> {
    case.dtype().map_err(|error| Wrong::Malformed(error.to_string()))?;
    let graph = to_uop(case);
    let trace = &mut Trace::default();
    let simple = simplified(&graph, None, trace);
    if is_endless(trace) {
        return Err(Wrong::Endless(format!("simplifying {} does not end", short(&graph))));
    }
    let order = simple.toposort();
    let is_narrow = |node: &UOp| matches!(node.dtype(), DType::I32 | DType::Bool);
    if order.iter().all(is_narrow) && graph.toposort().iter().all(is_narrow) {
        check_values::<i32>(case, &graph, &order, POINTS)?;
    } else {
        check_values::<i128>(case, &graph, &order, POINTS_WIDE)?;
    }
    let again = simplified(&simple, None, &mut Trace::default());
    if again != simple {
        let texts = (short(&simple), short(&again));
        return Err(Wrong::Again(format!("simplified again, {} becomes {}", texts.0, texts.1)));
    }
    Ok(())
}

/// Compares values and bounds of the written expression and of its simplified form, whose nodes
/// are given sources first.
fn check_values<T: Number>(
    case: &ExprCase,
    graph: &UOp,
    order: &[UOp],
    limit: usize,
) -> Result<(), Wrong> {
    let simple = order.last().expect("a graph has a root");
    let ranges = [bounds(graph), bounds(simple)];
    let (low, high) = (ranges[0].0.max(ranges[1].0), ranges[0].1.min(ranges[1].1));
    let (count, points) = points::<T>(case, limit);
    let written = Written { case, points: &points, count };
    let expected = written.value(&case.expr, DType::I32);
    let found = evaluate(order, case, &points, count);
    for point in 0..count {
        let Some(expected) = expected.at(point).map(T::get) else { continue };
        let found = found.at(point).map(T::get);
        let at = || points.iter().filter_map(|values| values.at(point).map(T::get)).collect();
        let assignment = || assignment(case, &points, point);
        if found != Some(expected) {
            let (graph, simple, assignment) = (short(graph), short(simple), assignment());
            let found = found.map_or("undefined".to_string(), |found| found.to_string());
            let detail =
                format!("{graph} became {simple}: {found} instead of {expected} at {assignment}");
            return Err(Wrong::Value(at(), detail));
        }
        if expected < low || high < expected {
            let (graph, assignment) = (short(graph), assignment());
            let detail =
                format!("{graph} is {expected} at {assignment}, outside its bounds {low}..{high}");
            return Err(Wrong::Bounds(at(), detail));
        }
    }
    Ok(())
}

/// Simplifies the graph; `fuel` replaces the default.
pub(crate) fn simplified(graph: &UOp, fuel: Option<u64>, trace: &mut Trace) -> UOp {
    let options = Options { fuel: Some(fuel.unwrap_or(FUEL)), ..Options::default() };
    rewrite(graph, &symbolic(), &options, trace)
}

/// Returns the number of operations that an expression has after it is simplified, in the form
/// that kernels compute, and the text of that form.
pub fn simplified_form(case: &ExprCase) -> (u64, String) {
    let simple = simplified(&to_uop(case), None, &mut Trace::default());
    let last = rewrite(&simple, &late(), &Options::default(), &mut Trace::default());
    let is_op = |node: &UOp| !matches!(node.op(), Op::Const | Op::DefineVar);
    (last.toposort().iter().filter(|node| is_op(node)).count() as u64, short(&last))
}

/// Returns whether a graph has the value of the written expression at one point.
pub(crate) fn is_right_at(case: &ExprCase, graph: &UOp, point: &[i128]) -> bool {
    let points: Vec<Column<i128>> = point.iter().map(|value| Column::new(vec![*value])).collect();
    let written = Written { case, points: &points, count: 1 };
    let expected = written.value(&case.expr, DType::I32).at(0);
    expected.is_none() || evaluate(&graph.toposort(), case, &points, 1).at(0) == expected
}

/// The variables' values at a point, as text.
fn assignment<T: Number>(case: &ExprCase, points: &[Column<T>], point: usize) -> String {
    let words = case.vars.iter().zip(points).map(|(var, values)| {
        let value = values.at(point).map_or(0, T::get);
        format!("{}={value}", var.name)
    });
    words.collect::<Vec<_>>().join(", ")
}

/// All points if there are at most `limit`, else corners and a fixed scatter: the count, and each
/// variable's values.
pub(crate) fn points<T: Number>(case: &ExprCase, limit: usize) -> (usize, Vec<Column<T>>) {
    let last = |var: &Var| var.max.wrapping_sub(var.min) as u64;
    let spans: Vec<u64> = case.vars.iter().map(last).collect();
    let total = spans.iter().try_fold(1u64, |product, last| {
        last.checked_add(1).and_then(|span| product.checked_mul(span))
    });
    let whole = total.filter(|total| *total <= limit as u64);
    let count = whole.map_or(limit, |total| total as usize);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut values: Vec<Vec<T>> = vec![Vec::with_capacity(count); spans.len()];
    for number in 0..count {
        let mut rest = number as u64;
        for ((var, last), values) in case.vars.iter().zip(&spans).zip(&mut values) {
            let offset = if whole.is_some() {
                let offset = rest % (last + 1);
                rest /= last + 1;
                offset
            } else if number < 1 << case.vars.len().min(6) {
                let offset = if rest & 1 == 0 { 0 } else { *last };
                rest >>= 1;
                offset
            } else {
                let bits = xorshift(&mut state);
                last.checked_add(1).map_or(bits, |span| bits % span)
            };
            values.push(T::of(var.min.wrapping_add(offset as i64).into()));
        }
    }
    (count, values.into_iter().map(Column::new).collect())
}

/// The values of an expression over i32 and bools at its `points`, as integers without limits have
/// them: undefined where something in it leaves i32 and changes the result.
pub(crate) fn unlimited(case: &ExprCase, limit: usize) -> Column<i128> {
    let mut wide = case.clone();
    for var in wide.vars.iter_mut().filter(|var| var.dtype == gradiff_corpus::DType::I32) {
        var.dtype = gradiff_corpus::DType::I64;
    }
    let (count, points) = points::<i128>(case, limit);
    let values = |case, free| Written { case, points: &points, count }.value(&wide.expr, free);
    let (narrow, wide) = (values(case, DType::I32), values(&wide, DType::I64));
    Column::from_options(
        (0..count).map(|at| narrow.at(at).filter(|_| narrow.at(at) == wide.at(at))),
    )
}

/// A written expression and the points at which it is evaluated.
struct Written<'a, T> {
    case: &'a ExprCase,
    points: &'a [Column<T>],
    count: usize,
}

impl<T: Number> Written<'_, T> {
    /// The values of an expression; bools are 0 or 1. `free` is its dtype if it consists of written
    /// integers alone.
    fn value(&self, expr: &Expr, free: DType) -> Column<T> {
        let dtype = operand_dtype(expr, &self.case.vars, free);
        let operand = |x: &Expr| self.value(x, dtype);
        match expr {
            Expr::Var(number) => self.points[*number].clone(),
            Expr::Int(value) => Column::repeated(T::of((*value).into()).cut(dtype), self.count),
            Expr::Bool(value) => Column::repeated(T::from(*value), self.count),
            Expr::Unary(ExprUnary::Neg, x) => operand(x).map(|x| T::default().sub(x).cut(dtype)),
            Expr::Unary(ExprUnary::Not, x) if dtype == DType::Bool => {
                operand(x).map(|x| x.xor(true.into()))
            }
            Expr::Unary(ExprUnary::Not, x) => operand(x).map(|x| x.xor(T::of(-1)).cut(dtype)),
            // An undefined side that is not chosen has no effect.
            Expr::Where(parts) => {
                operand(&parts[0]).select(&operand(&parts[1]), &operand(&parts[2]))
            }
            Expr::Binary(op, x, y) => Column::binary(*op, dtype, &operand(x), &operand(y)),
            Expr::Cast(to, x) => {
                let to = engine_dtype(*to);
                operand(x).map(|x| x.cut(to))
            }
        }
    }
}

/// The engine's dtype of the same name: both crates list them in the same order, which a test
/// checks.
fn engine_dtype(dtype: gradiff_corpus::DType) -> DType {
    DType::ALL[dtype as usize]
}

/// The dtype of an expression's operands (its own, if it is a leaf); `free` is that of written
/// integers if no other operand decides it.
fn operand_dtype(expr: &Expr, vars: &[Var], free: DType) -> DType {
    let first = |x: &Expr, y: &Expr| x.dtype(vars).or_else(|| y.dtype(vars));
    let (known, free) = match expr {
        Expr::Binary(op, x, y) if op.is_comparison() => (first(x, y), DType::I32),
        Expr::Cast(_, x) => (x.dtype(vars), DType::I32),
        expr => (expr.dtype(vars), free),
    };
    known.map_or(free, engine_dtype)
}

/// The engine's graph of a written expression, not simplified.
pub fn to_uop(case: &ExprCase) -> UOp {
    graph_of(&case.expr, case, &variables(case), DType::I32)
}

/// The nodes of the variables.
pub(crate) fn variables(case: &ExprCase) -> Vec<UOp> {
    let node = |var: &Var| {
        let variable = Variable { name: var.name.clone(), min: var.min, max: var.max };
        UOp::new(Op::DefineVar, engine_dtype(var.dtype), [], Arg::Var(Arc::new(variable)))
    };
    case.vars.iter().map(node).collect()
}

fn graph_of(expr: &Expr, case: &ExprCase, vars: &[UOp], free: DType) -> UOp {
    let dtype = operand_dtype(expr, &case.vars, free);
    let operand = |x: &Expr| graph_of(x, case, vars, dtype);
    match expr {
        Expr::Var(number) => vars[*number].clone(),
        Expr::Int(value) => UOp::int(dtype, *value),
        Expr::Bool(value) => UOp::constant(Constant::bool(*value)),
        Expr::Unary(ExprUnary::Neg, x) => UOp::unary(Op::Neg, dtype, operand(x)),
        Expr::Unary(ExprUnary::Not, x) if dtype == DType::Bool => UOp::not(operand(x)),
        Expr::Unary(ExprUnary::Not, x) => UOp::binary(Op::Xor, operand(x), UOp::int(dtype, -1)),
        Expr::Where(parts) => {
            UOp::select(operand(&parts[0]), operand(&parts[1]), operand(&parts[2]))
        }
        Expr::Binary(ExprBinary::Eq, x, y) => {
            UOp::not(UOp::binary(Op::CmpNe, operand(x), operand(y)))
        }
        Expr::Binary(op, x, y) => UOp::binary(binary_op(*op), operand(x), operand(y)),
        Expr::Cast(to, x) => UOp::unary(Op::Cast, engine_dtype(*to), operand(x)),
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

/// The values of the last of these nodes, which are in order, sources first.
fn evaluate<T: Number>(
    order: &[UOp],
    case: &ExprCase,
    points: &[Column<T>],
    count: usize,
) -> Column<T> {
    let positions: HashMap<&UOp, usize> = order.iter().zip(0..).collect();
    let mut columns: Vec<Column<T>> = Vec::with_capacity(order.len());
    for node in order {
        let src: Vec<&Column<T>> =
            node.src().iter().map(|source| &columns[positions[source]]).collect();
        let column = match (node.arg(), src.as_slice()) {
            (Arg::Const(value), _) => Column::repeated(number_of(*value), count),
            (Arg::Var(variable), _) => {
                let number = case.vars.iter().position(|var| var.name == variable.name);
                let nowhere = || Column::from_options((0..count).map(|_| None));
                number.map_or_else(nowhere, |number| points[number].clone())
            }
            (_, [condition, x, y]) if node.op() == Op::Where => condition.select(x, y),
            (_, [x]) if node.op() == Op::Cast => x.map(|x| x.cut(node.dtype())),
            (_, [x, y]) if written_op(node).is_some() => {
                let op = written_op(node).expect("the guard found it");
                Column::binary(op, node.src()[0].dtype(), x, y)
            }
            _ => by_point(node, &src, count),
        };
        columns.push(column);
    }
    columns.pop().expect("a graph has a root")
}

/// The op of expressions with the same meaning, over integers or bools.
pub(crate) fn written_op(node: &UOp) -> Option<ExprBinary> {
    use ExprBinary::{CDiv, CMod, FloorDiv, FloorMod};
    let is_bool = node.src()[0].dtype() == DType::Bool;
    let shared = [ExprBinary::Lt, ExprBinary::Ne, ExprBinary::And, ExprBinary::Or, ExprBinary::Xor];
    let ring = [ExprBinary::Add, ExprBinary::Sub, ExprBinary::Mul];
    let ordered = [ExprBinary::Max, ExprBinary::Min, FloorDiv, FloorMod, CDiv, CMod];
    let shifts = [ExprBinary::Shl, ExprBinary::Shr];
    let is_same = |op: &ExprBinary| binary_op(*op) == node.op();
    let integer = ring.into_iter().chain(ordered).chain(shifts).filter(|_| !is_bool);
    shared.into_iter().chain(integer).find(is_same)
}

/// Evaluates an op that expressions do not have, one point at a time.
fn by_point<T: Number>(node: &UOp, src: &[&Column<T>], count: usize) -> Column<T> {
    Column::from_options((0..count).map(|point| {
        let constant =
            |(uop, column): (&UOp, &&Column<T>)| scalar::int(uop.dtype(), column.at(point)?.get());
        let operands: Option<Vec<Constant>> = node.src().iter().zip(src).map(constant).collect();
        scalar::evaluate(node.op(), node.dtype(), &operands?).map(number_of)
    }))
}

fn number_of<T: Number>(value: Constant) -> T {
    T::of(scalar::to_int(value).expect("expressions have integers and bools alone"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_of_cases_are_those_of_the_engine() {
        for dtype in gradiff_corpus::DType::ALL {
            assert_eq!(engine_dtype(dtype).name(), dtype.name());
        }
    }
}
