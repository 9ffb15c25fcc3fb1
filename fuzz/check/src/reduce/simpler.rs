//! Makes failing view sequences and expressions smaller, as `reduce` does with programs.

use std::collections::BTreeSet;

use gradiff_corpus::{
    Case, DType, Expr, ExprCase, Fill, Literal, Program, Statement, ValueId, Var, ViewOp, ViewOps,
};

use super::{reduce, smallest};

/// Calls of the predicate that a minimisation may take.
const BUDGET: usize = 3000;

/// Returns the smallest case found for which `fails` is still true. For the given one it must be
/// true. A program is returned as it is: it has a reducer of its own, see [`reduce`].
pub fn smaller(case: &Case, fails: &dyn Fn(&Case) -> bool) -> Case {
    match case {
        Case::Program(_) => case.clone(),
        Case::Views(views) => {
            let small = reduce(&program_of(views), BUDGET, &|| false, &mut |program| {
                views_of(program).is_some_and(|views| fails(&Case::Views(views)))
            });
            views_of(&small).map_or_else(|| case.clone(), Case::Views)
        }
        Case::Expr(expr) => {
            let is_tried = |candidate: &ExprCase, best: &ExprCase| {
                cost(candidate) < cost(best) && candidate.dtype().is_ok()
            };
            let mut fails = |expr: &ExprCase| fails(&Case::Expr(expr.clone()));
            let is_over = || false;
            let small =
                smallest(expr.clone(), BUDGET, &candidates, &is_tried, &is_over, &mut fails);
            Case::Expr(small)
        }
    }
}

/// The program that applies the operations to an input.
fn program_of(views: &ViewOps) -> Program {
    let shape = views.shape.clone();
    let mut statements = vec![Statement::Input { dtype: DType::I32, shape, fill: Fill::Iota }];
    for (number, op) in views.ops.iter().cloned().enumerate() {
        let src = ValueId(number as u32);
        statements.push(match op {
            ViewOp::Reshape(shape) => Statement::Reshape { src, shape },
            ViewOp::Permute(axes) => Statement::Permute { src, axes },
            ViewOp::Expand(shape) => Statement::Expand { src, shape },
            ViewOp::Pad(pads) => Statement::Pad { src, pads, value: Literal::Int(0) },
            ViewOp::Shrink(ranges) => Statement::Shrink { src, ranges },
            ViewOp::Flip(axes) => Statement::Flip { src, axes },
        });
    }
    let outputs = vec![ValueId(views.ops.len() as u32)];
    Program { statements, outputs }
}

/// The sequence that such a program is; `None` if it has other statements or data.
fn views_of(program: &Program) -> Option<ViewOps> {
    let (first, rest) = program.statements.split_first()?;
    let Statement::Input { dtype: DType::I32, shape, fill: Fill::Iota } = first else {
        return None;
    };
    let op = |statement: &Statement| match statement.clone() {
        Statement::Reshape { shape, .. } => Some(ViewOp::Reshape(shape)),
        Statement::Permute { axes, .. } => Some(ViewOp::Permute(axes)),
        Statement::Expand { shape, .. } => Some(ViewOp::Expand(shape)),
        Statement::Pad { pads, .. } => Some(ViewOp::Pad(pads)),
        Statement::Shrink { ranges, .. } => Some(ViewOp::Shrink(ranges)),
        Statement::Flip { axes, .. } => Some(ViewOp::Flip(axes)),
        _ => None,
    };
    let views = ViewOps { shape: shape.clone(), ops: rest.iter().map(op).collect::<Option<_>>()? };
    views.shapes().is_ok().then_some(views)
}

/// The complexity of an expression, compared in this order: the numbers of nodes, of variables, of
/// uses of variables, and of values that variables have; the sum of all magnitudes.
fn cost(case: &ExprCase) -> (usize, usize, usize, u128, u128) {
    let (mut nodes, mut uses, mut magnitudes) = (0, 0, 0u128);
    case.expr.visit(&mut |node| {
        nodes += 1;
        match node {
            Expr::Var(_) => uses += 1,
            Expr::Int(value) => {
                magnitudes += u128::from(value.unsigned_abs()) + u128::from(*value < 0);
            }
            _ => {}
        }
    });
    let sizes = case.vars.iter().map(|var| u128::from(var.max.abs_diff(var.min))).sum();
    let ends = |var: &Var| u128::from(var.min.unsigned_abs()) + u128::from(var.max.unsigned_abs());
    magnitudes += case.vars.iter().map(ends).sum::<u128>();
    (nodes, case.vars.len(), uses, sizes, magnitudes)
}

/// The cases to try, those with the largest changes first. Not all of them are well-typed or
/// simpler.
fn candidates(case: &ExprCase) -> Vec<ExprCase> {
    let with = |expr: Expr| ExprCase { vars: case.vars.clone(), expr };
    let mut candidates: Vec<ExprCase> = flatter(&case.expr).into_iter().map(with).collect();
    for (number, var) in case.vars.iter().enumerate() {
        for by in (0..number).filter(|by| case.vars[*by].dtype == var.dtype) {
            candidates.push(with(renumbered(&case.expr, &|at| if at == number { by } else { at })));
        }
        let middle = var.min + (var.max.abs_diff(var.min) / 2) as i64;
        let ranges = [
            (var.min, var.min),
            (var.max, var.max),
            (0, 0),
            (var.min, middle),
            (middle, var.max),
            (var.min, var.max.saturating_sub(1)),
            (var.min.saturating_add(1), var.max),
            (0, var.max.saturating_sub(var.min)),
            (var.min / 2, var.max / 2),
        ];
        for (min, max) in ranges {
            let mut candidate = case.clone();
            candidate.vars[number] = Var { min, max, ..var.clone() };
            candidates.push(candidate);
        }
    }
    candidates.into_iter().map(without_unused).collect()
}

/// The case without the variables that do not occur.
fn without_unused(case: ExprCase) -> ExprCase {
    let mut used = BTreeSet::new();
    case.expr.visit(&mut |node| {
        if let Expr::Var(number) = node {
            used.insert(*number);
        }
    });
    let expr = renumbered(&case.expr, &|number| used.range(..number).count());
    let vars = used.into_iter().filter_map(|number| case.vars.get(number).cloned()).collect();
    ExprCase { vars, expr }
}

/// The expression with other numbers of its variables.
fn renumbered(expr: &Expr, number: &dyn Fn(usize) -> usize) -> Expr {
    match expr {
        Expr::Var(of) => Expr::Var(number(*of)),
        expr => expr.map_operands(&mut |_, operand| renumbered(operand, number)),
    }
}

/// Expressions in which one node is replaced by one of its operands, or by a plainer leaf.
fn flatter(expr: &Expr) -> Vec<Expr> {
    match *expr {
        Expr::Var(_) => return vec![Expr::Int(0), Expr::Int(1), Expr::Bool(false)],
        Expr::Int(value) => {
            let values = [0, value / 2, value - value.signum(), value.saturating_neg()];
            return values.map(Expr::Int).to_vec();
        }
        _ => {}
    }
    let mut candidates: Vec<Expr> = expr.operands().into_iter().cloned().collect();
    for (position, operand) in expr.operands().into_iter().enumerate() {
        candidates.extend(flatter(operand).into_iter().map(|flat| {
            expr.map_operands(&mut |at, operand| {
                if at == position { flat.clone() } else { operand.clone() }
            })
        }));
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Case {
        gradiff_corpus::parse(text).unwrap().case
    }

    #[test]
    fn sequences_lose_the_sizes_that_failures_do_not_need() {
        let long = parsed(
            "view [4,4]\npad [(1,2),(3,3)]\nreshape [7,5,2]\nflip axes=[0,1]\n\
             permute axes=[2,0,1]\nflip axes=[0,2]\nreshape [35,2]",
        );
        // An axis that is not trivial is flipped before a reshape.
        let small = smaller(&long, &|case| {
            let Case::Views(views) = case else { return false };
            let Ok(shapes) = views.shapes() else { return false };
            let flips = |op: &ViewOp, shape: &[usize]| match op {
                ViewOp::Flip(axes) => axes.iter().any(|axis| shape[*axis] > 1),
                _ => false,
            };
            let flip = views.ops.iter().zip(&shapes).position(|(op, shape)| flips(op, shape));
            flip.is_some_and(|at| views.ops[at..].iter().any(|op| op.name() == "reshape"))
        });
        assert_eq!(small, parsed("view [2]\nflip axes=[0]\nreshape [2]"), "{small:?}");
    }

    #[test]
    fn sizes_that_end_before_the_start_of_a_range_keep_the_whole_axis() {
        let late = parsed("view [6]\nshrink [(4,6)]\nflip axes=[0]");
        let flips = |case: &Case| {
            let Case::Views(views) = case else { return false };
            let is_flip = |op: &ViewOp| matches!(op, ViewOp::Flip(axes) if !axes.is_empty());
            views.shapes().is_ok() && views.ops.iter().any(is_flip)
        };
        assert_eq!(smaller(&late, &flips), parsed("view [1]\nflip axes=[0]"));
    }

    #[test]
    fn expressions_keep_only_the_variables_and_values_that_failures_need() {
        let long =
            parsed("var a 0..332\nvar b 0..15\nvar c -7..40\nexpr cmod((c - a) * 2 + b, 30)");
        let has = |expr: &Expr, is_wanted: &dyn Fn(&Expr) -> bool| {
            let mut found = false;
            expr.visit(&mut |node| found |= is_wanted(node));
            found
        };
        // A remainder by 3 or more, of something that is 4 at least once.
        let small = smaller(&long, &|case| match case {
            Case::Expr(case) => {
                has(&case.expr, &|node| matches!(node, Expr::Int(value) if 3 <= *value))
                    && has(
                        &case.expr,
                        &|node| matches!(node, Expr::Binary(op, ..) if op.symbol() == "cmod"),
                    )
                    && case.vars.iter().any(|var| var.min <= 4 && 4 <= var.max)
            }
            _ => false,
        });
        assert_eq!(small, parsed("var c 4..4\nexpr cmod(c, 3)"), "{small:?}");
    }
}
