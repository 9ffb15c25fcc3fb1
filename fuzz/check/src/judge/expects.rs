//! The `expect` lines of corpus files, checked against the engine.

use gradiff::graph::text::infix;
use gradiff::graph::{Arg, Op, UopAlgebra, Variable};
use gradiff::rewrite::{bounds, simplify};
use gradiff::view::ShapeTracker;
use gradiff::{DType, UOp};
use gradiff_corpus::{Array, Case, CaseFile, Expect, ExprCase, Program, ViewOps};
use std::sync::Arc;

/// Checks the `expect` lines of a file. Returns a line for each that does not hold.
pub fn check_expects(file: &CaseFile) -> Vec<String> {
    let check = |expect: &Expect| match (&file.case, expect) {
        (case, Expect::Fires(rule)) => crate::judge::coverage::fires(case, rule),
        (Case::Program(program), _) => of_program(program, expect),
        (Case::Views(views), _) => of_views(views, expect),
        (Case::Expr(expr), _) => of_expr(expr, expect),
    };
    file.expects.iter().filter_map(|expect| check(expect).err()).collect()
}

fn equal<T: PartialEq + std::fmt::Debug>(name: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("expected {name} {expected:?}, found {found:?}"))
}

fn misplaced(expect: &Expect) -> Result<(), String> {
    Err(format!("this kind of case cannot have the expectation {expect:?}"))
}

fn of_program(program: &Program, expect: &Expect) -> Result<(), String> {
    match expect {
        Expect::Kernels(count) => {
            equal("kernels", crate::backends::engine::kernel_count(program)?, *count)
        }
        Expect::Values { output, array } => values(program, *output, array),
        _ => misplaced(expect),
    }
}

/// Compares the oracle with the values of the file; the oracle judges the backends.
fn values(program: &Program, output: usize, array: &Array) -> Result<(), String> {
    let expected = gradiff_oracle::evaluate(program).map_err(|error| error.to_string())?;
    let expected = expected.get(output).ok_or(format!("there is no output {output}"))?;
    let verdict = expected.judge(array);
    match verdict.mismatch {
        Some(mismatch) => {
            let difference = crate::judge::agree::difference(output, array.dtype, &mismatch);
            Err(format!("the values of the file differ from the oracle's: {difference}"))
        }
        None if verdict.unspecified > 0 => Err(format!(
            "{} written values of output {output} are unspecified",
            verdict.unspecified
        )),
        None => Ok(()),
    }
}

fn of_views(views: &ViewOps, expect: &Expect) -> Result<(), String> {
    if let Expect::Unmerged(count) = expect {
        let unmerged = crate::checks::views::tracker_with(views, false)?;
        return equal("unmerged", unmerged.views().len(), *count);
    }
    let tracker = crate::checks::views::tracker(views)?;
    match expect {
        Expect::Simplified(inner) => of_tracker(&tracker.simplify(), inner),
        _ => of_tracker(&tracker, expect),
    }
}

fn of_tracker(tracker: &ShapeTracker, expect: &Expect) -> Result<(), String> {
    match expect {
        Expect::Index(text) => {
            equal("index", rendered(tracker, !text.contains("ridx")).0, text.clone())
        }
        Expect::Valid(text) => {
            equal("valid", rendered(tracker, !text.contains("ridx")).1, text.clone())
        }
        Expect::Views(count) => equal("views", tracker.views().len(), *count),
        Expect::Contiguous(is) => equal("contiguous", tracker.is_contiguous(), *is),
        Expect::RealStrides(strides) => {
            equal("real_strides", tracker.real_strides(false).to_vec(), strides.clone())
        }
        Expect::RealSize(size) => equal("real_size", tracker.real_size(), *size as i64),
        Expect::View { number, shape, strides, offset, mask } => {
            let views = tracker.views();
            let view = views.get(*number).ok_or(format!("there is no view {number}"))?;
            let shape: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
            equal("shape", view.shape().to_vec(), shape)?;
            equal("strides", view.strides().to_vec(), strides.clone())?;
            equal("offset", view.offset(), *offset)?;
            equal("mask", view.mask().map(|mask| mask.to_vec()), mask.clone())
        }
        _ => misplaced(expect),
    }
}

/// Index and validity as text, over loop ranges or over variables.
fn rendered(tracker: &ShapeTracker, is_variables: bool) -> (String, String) {
    let (index, valid) = indexed(tracker, is_variables);
    let text = |node: &UOp| infix(&simplify(node));
    (text(&index), valid.map_or("True".to_string(), |valid| text(&valid)))
}

/// Index and validity, over loop ranges or over variables, not simplified.
pub(crate) fn indexed(tracker: &ShapeTracker, is_variables: bool) -> (UOp, Option<UOp>) {
    let dtype = DType::I32;
    let axis_index = |(axis, size): (usize, &i64)| {
        if is_variables {
            let name = format!("idx{axis}");
            let variable = Variable { name, min: 0, max: (size - 1).max(0) };
            UOp::new(Op::DefineVar, dtype, [], Arg::Var(Arc::new(variable)))
        } else {
            let end = UOp::int(dtype, *size);
            UOp::new(Op::Range, dtype, [end], Arg::plain_axis(axis as i64))
        }
    };
    let indices: Vec<UOp> = tracker.shape().iter().enumerate().map(axis_index).collect();
    tracker.index(&mut UopAlgebra { dtype }, &indices)
}

fn of_expr(expr: &ExprCase, expect: &Expect) -> Result<(), String> {
    let simple = simplify(&crate::to_uop(expr));
    match expect {
        Expect::Text(text) => equal("text", infix(&simple), text.clone()),
        Expect::Range(low, high) => {
            equal("range", bounds(&simple), (i128::from(*low), i128::from(*high)))
        }
        _ => misplaced(expect),
    }
}
