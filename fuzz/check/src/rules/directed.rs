//! Nodes that a rule's left side matches, as subjects for mutants of the rule.

use gradiff::graph::{Arg, DType, Op, UOp};
use gradiff::rewrite::Rule;
use gradiff_corpus::{Expr, ExprCase, ExprUnary, Var};
use gradiff_rules::instance;

use crate::random::Random;
use crate::rules::sabotage::{Subject, legalizes};

use DType::{Bool, F16, F32, F64, I8, I32, I64, U8, U32, U64};

const DTYPES: [DType; 12] = [I32, F32, Bool, I8, I32, U8, F64, I32, U32, I64, F16, I32];

/// Dtypes for rules of reductions, mostly narrow ones, in which sums wrap.
const REDUCED: [DType; 12] = [I8, I32, F32, I8, U8, I32, I8, F64, I8, Bool, I32, F16];
/// Dtypes for rules of reductions that require integers, and for those that exclude them.
const REDUCED_INTS: [DType; 10] = [I8, I32, U8, I8, I64, I8, F32, I32, I8, Bool];
const REDUCED_FLOATS: [DType; 8] = [F32, F64, F32, F16, F64, F32, F32, I32];

/// A node that the rule's left side matches, as an expression if it can be written as one; the
/// dtypes that the rule is for take turns. `row` is the row in the tables: dtypes that the rule has
/// and the row has not take every second turn.
pub(crate) fn directed(
    rule: &Rule,
    row: &Rule,
    number: u64,
    random: &mut Random,
) -> Option<Subject> {
    let mut dice = |count: u64| ((random.bits() >> 32) * count) >> 32;
    let is_new = |dtype: &DType| rule.types.has(*dtype) && !row.types.has(*dtype);
    let new: Vec<DType> = DTYPES.into_iter().filter(is_new).collect();
    let is_shared = !new.is_empty();
    let dtypes: Vec<DType> = if is_shared && number % 2 == 1 {
        new
    } else {
        dtypes(rule).iter().copied().filter(|dtype| rule.types.has(*dtype)).collect()
    };
    // With half of the turns, such that they still reach all dtypes.
    let turn = if is_shared { number / 2 } else { number };
    let dtype = dtypes[turn as usize % dtypes.len()];
    // What a mutant leaves illegal only nodes of the row show.
    let is_of_row = legalizes(rule.name) && number % 4 > 1 && row.types.has(dtype);
    let graph = instance(if is_of_row { row } else { rule }, dtype, &mut dice)?;
    // The checker of expressions runs neither the late rules nor those after them.
    let table = rule.name.split('/').next().unwrap_or_default();
    let is_last = ["late", "contract"].contains(&table) || legalizes(rule.name);
    let expr = if is_last { None } else { written(&graph) };
    Some(expr.map_or(Subject::Graph(graph), Subject::Expr))
}
/// The dtypes to choose from, before the rule's own types are considered.
fn dtypes(rule: &Rule) -> &'static [DType] {
    match rule.name.split_once('/') {
        Some(("reduce", _)) if rule.when.contains("!isint(") => &REDUCED_FLOATS,
        Some(("reduce", _)) if rule.when.contains("isint(") => &REDUCED_INTS,
        Some(("reduce", _)) => &REDUCED,
        // Pairs of words, and random bits.
        Some(("late", _)) if rule.lhs.contains("32") => &[U64, I64, U64, I64, I32, U32],
        _ if rule.lhs.contains("threefry") => &[U64],
        _ => &DTYPES,
    }
}

/// The expression with the same meaning as a graph of integers and bools, if there is one.
fn written(graph: &UOp) -> Option<ExprCase> {
    let mut vars = Vec::new();
    let expr = expr_of(graph, &mut vars, EXPR_DEPTH)?;
    let case = ExprCase { vars, expr };
    // Numbers take the dtype of the adjacent operand, which may differ from theirs.
    (case.dtype().is_ok() && crate::to_uop(&case) == *graph).then_some(case)
}

/// Maximal depth of a graph that is written as an expression.
const EXPR_DEPTH: u32 = 16;

fn expr_of(node: &UOp, vars: &mut Vec<Var>, depth: u32) -> Option<Expr> {
    let depth = depth.checked_sub(1)?;
    let dtype = gradiff_corpus::DType::from_name(node.dtype().name())?;
    let mut source = |number: usize| expr_of(&node.src()[number], vars, depth).map(Box::new);
    match (node.op(), node.arg()) {
        (_, Arg::Const(value)) if dtype == gradiff_corpus::DType::Bool => {
            Some(Expr::Bool(value.is_true()))
        }
        (_, Arg::Const(value)) => Some(Expr::Int(value.to_int()?.try_into().ok()?)),
        (_, Arg::Var(variable)) => {
            let (min, max) = (variable.min, variable.max);
            let var = Var { name: variable.name.clone(), dtype, min, max };
            let known = vars.iter().position(|known| *known == var);
            Some(Expr::Var(known.unwrap_or_else(|| {
                vars.push(var);
                vars.len() - 1
            })))
        }
        (Op::Cast, _) => Some(Expr::Cast(dtype, source(0)?)),
        (Op::Neg, _) => Some(Expr::Unary(ExprUnary::Neg, source(0)?)),
        (Op::Where, _) => Some(Expr::Where(Box::new([*source(0)?, *source(1)?, *source(2)?]))),
        (op, _) if op.is_elementwise() && node.src().len() == 2 => {
            Some(Expr::Binary(crate::checks::exprs::written_op(node)?, source(0)?, source(1)?))
        }
        _ => None,
    }
}
