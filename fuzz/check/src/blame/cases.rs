//! Blame of expressions and of sequences of movements: the rule, or the views.

use gradiff::UOp;
use gradiff::graph::Constant;
use gradiff::rewrite::{Claim, Trace};
use gradiff_corpus::{ExprCase, ViewOps};
use gradiff_rules::witness::{Hint, stray, witness};

use super::{Blame, Crate, Culprit, Stage, blamed, culprit};
use crate::checks::exprs::{self, Point, Wrong};

/// Blames what makes an expression wrong; `None` if nothing is wrong with it, or if it is
/// malformed.
pub fn blame_expr(case: &ExprCase) -> Option<Blame> {
    let (detail, culprit, pass) = match crate::catch(|| exprs::examine(case)) {
        Ok(Ok(())) | Ok(Err(Wrong::Malformed(_))) => return None,
        Ok(Err(wrong)) => {
            let (culprit, pass) = of_expr(case, &wrong);
            (wrong.detail(), culprit, pass)
        }
        Err(panic) => (panic, by_fuel(case, None), Stage::SYMBOLIC.name()),
    };
    let mut blame = blamed(Stage::SYMBOLIC, Crate::Rewrite, detail)?;
    match culprit {
        Some(culprit) => blame.rule = Some(Culprit { pass: pass.to_string(), ..culprit }),
        None => blame.detail += "; no single application of a rule makes it so",
    }
    Some(blame)
}

/// The culprit of what is wrong with an expression, and its pass.
fn of_expr(case: &ExprCase, wrong: &Wrong) -> (Option<Culprit>, &'static str) {
    let graph = exprs::to_uop(case);
    let mut trace = Trace::with_steps();
    let simple = exprs::simplified(&graph, None, &mut trace);
    let culprit = match wrong {
        Wrong::Malformed(_) => None,
        Wrong::Value(point, _) => by_fuel(case, Some(point)),
        Wrong::Bounds(point, _) => {
            let hint = hint(case, point);
            stray(&[&graph, &simple], &hint).map(|stray| culprit::of_bounds(&stray))
        }
        Wrong::Endless(_) => culprit::of_endless(&trace),
        Wrong::Again(_) => {
            let once = trace.steps.take().unwrap_or_default();
            let mut again = Trace::with_steps();
            exprs::simplified(&simple, None, &mut again);
            let again = again.steps.unwrap_or_default();
            // A step that makes an unused value wrong is the culprit before any other.
            let runs = [once.as_slice(), again.as_slice()];
            let culprit = runs.iter().find_map(|steps| culprit::first_false(steps, &Hint::new()));
            let fired = again.first().map(culprit::of_step);
            let culprit = culprit.or(fired.map(|culprit| Culprit {
                witness: "fires once more on what was simplified".to_string(),
                ..culprit
            }));
            return (culprit, "symbolic, for the second time");
        }
    };
    (culprit, Stage::SYMBOLIC.name())
}

/// Blames what makes a sequence of movements wrong: the rules if simplifying the index or the
/// validity of its tracker changes a value or does not end, else the views; `None` if nothing is
/// wrong with it.
pub fn blame_views(case: &ViewOps) -> Option<Blame> {
    let nodes = crate::catch(|| {
        let tracker = crate::checks::views::tracker(case).ok()?;
        let indexed =
            [tracker.simplify(), tracker].map(|t| crate::judge::expects::indexed(&t, false));
        Some(indexed.into_iter().flat_map(|(index, valid)| std::iter::once(index).chain(valid)))
    });
    let of_rules = nodes.ok().flatten().and_then(|mut nodes| nodes.find_map(|node| of_node(&node)));
    of_rules.or_else(|| {
        let checked = || crate::check_views(case).and_then(|()| crate::check_symbolic_views(case));
        let problem = crate::catch(checked).and_then(|checked| checked).err()?;
        blamed(Stage::Movements, Crate::View, problem)
    })
}

/// Blames a rule if simplifying the node changes its value or does not end.
fn of_node(node: &UOp) -> Option<Blame> {
    let no_hint = Hint::new();
    let mut run = |fuel: Option<u64>, trace: &mut Trace| {
        let simple = crate::catch(|| exprs::simplified(node, fuel, trace))?;
        witness(node, &simple, Claim::Bits, &no_hint).map_or(Ok(()), Err)
    };
    let mut trace = Trace::with_steps();
    let (detail, rule) = match run(None, &mut trace) {
        Err(problem) => (problem, culprit::search(&mut run, &no_hint)),
        Ok(()) if culprit::is_endless(&trace) => {
            ("does not end".to_string(), culprit::of_endless(&trace))
        }
        Ok(()) => return None,
    };
    let detail = format!("simplifying {}: {detail}", culprit::short(node));
    let blame = blamed(Stage::SYMBOLIC, Crate::Rewrite, detail)?;
    Some(Blame {
        rule: rule.map(|culprit| Culprit { pass: Stage::SYMBOLIC.to_string(), ..culprit }),
        ..blame
    })
}

/// The point as values of the expression's variable nodes.
fn hint(case: &ExprCase, point: &Point) -> Hint {
    let nodes = exprs::variables(case).into_iter().zip(point);
    nodes.map(|(node, value)| (node.clone(), Constant::int(node.dtype(), *value))).collect()
}

/// Finds by fuel the application that makes the expression wrong at this point; that makes it
/// panic if there is no point.
fn by_fuel(case: &ExprCase, point: Option<&Point>) -> Option<Culprit> {
    let graph = exprs::to_uop(case);
    let mut run = |fuel: Option<u64>, trace: &mut Trace| {
        let simple = crate::catch(|| exprs::simplified(&graph, fuel, trace))?;
        let is_right = point.is_none_or(|point| exprs::is_right_at(case, &simple, point));
        if is_right { Ok(()) } else { Err("another value".to_string()) }
    };
    culprit::search(&mut run, &point.map(|point| hint(case, point)).unwrap_or_default())
}
