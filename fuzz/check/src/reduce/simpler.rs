//! Simpler variants of failing view sequences and expressions.

use gradiff_corpus::{Case, Expr, ExprCase, ViewOps};

/// Well-formed cases with at least one operation or operator less. Programs have a reducer of
/// their own, see `reduce`.
pub fn simpler_cases(case: &Case) -> Vec<Case> {
    match case {
        Case::Program(_) => Vec::new(),
        Case::Views(views) => {
            shorter(views).into_iter().filter(|v| v.shapes().is_ok()).map(Case::Views).collect()
        }
        Case::Expr(expr) => {
            let candidates = flatter(&expr.expr).into_iter();
            let case = |part: Expr| ExprCase { vars: expr.vars.clone(), expr: part };
            let whole = candidates.map(case).filter(|case| case.dtype().is_ok());
            whole.map(Case::Expr).collect()
        }
    }
}

/// Sequences without one operation, or without all after the first ones.
fn shorter(views: &ViewOps) -> Vec<ViewOps> {
    let mut candidates = Vec::new();
    for count in 0..views.ops.len() {
        candidates.push(ViewOps { shape: views.shape.clone(), ops: views.ops[..count].to_vec() });
    }
    for left_out in 0..views.ops.len() {
        let mut ops = views.ops.clone();
        ops.remove(left_out);
        candidates.push(ViewOps { shape: views.shape.clone(), ops });
    }
    if let (Ok(shapes), false) = (views.shapes(), views.ops.is_empty()) {
        candidates.push(ViewOps { shape: shapes[1].clone(), ops: views.ops[1..].to_vec() });
    }
    candidates
}

/// Expressions in which one node is replaced by one of its parts, or by a smaller number.
fn flatter(expr: &Expr) -> Vec<Expr> {
    let mut candidates: Vec<Expr> = Vec::new();
    let rebuilt = |position: usize, part: Expr| match expr.clone() {
        Expr::Unary(op, _) => Expr::Unary(op, Box::new(part)),
        Expr::Cast(dtype, _) => Expr::Cast(dtype, Box::new(part)),
        Expr::Binary(op, _, y) if position == 0 => Expr::Binary(op, Box::new(part), y),
        Expr::Binary(op, x, _) => Expr::Binary(op, x, Box::new(part)),
        Expr::Where(mut parts) => {
            parts[position] = part;
            Expr::Where(parts)
        }
        leaf => leaf,
    };
    let parts: Vec<&Expr> = match expr {
        Expr::Var(_) | Expr::Int(0) | Expr::Bool(_) => Vec::new(),
        Expr::Int(value) => {
            // Toward zero, so that reduction terminates.
            return if value.abs() > 1 { vec![Expr::Int(value / 2)] } else { vec![Expr::Int(0)] };
        }
        Expr::Unary(_, x) | Expr::Cast(_, x) => vec![x],
        Expr::Binary(_, x, y) => vec![x, y],
        Expr::Where(parts) => parts.iter().collect(),
    };
    candidates.extend(parts.iter().map(|part| (*part).clone()));
    for (position, part) in parts.iter().enumerate() {
        candidates.extend(flatter(part).into_iter().map(|simple| rebuilt(position, simple)));
    }
    candidates
}
