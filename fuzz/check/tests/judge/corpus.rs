//! The cases of the corpus: what they expect, then the programs everywhere.

use gradiff_check::{Backend, agree, check_expects};
use gradiff_corpus::{Case, CaseFile, embedded, parse};

use crate::verdict::{Found, Of, Verdict};

/// Checks all of them.
pub(crate) fn check(verdict: &Verdict, backends: &[Box<dyn Backend>]) {
    let files: Vec<(&str, CaseFile)> = embedded()
        .iter()
        .map(|(stem, text)| (*stem, parse(text).unwrap_or_else(|e| panic!("{stem}: {e}"))))
        .collect();
    for (stem, file) in &files {
        verdict.check(&format!("corpus:{stem}"), || expects(file));
    }
    for (stem, file) in &files {
        if let Case::Program(program) = &file.case {
            verdict.check(&format!("corpus:{stem}"), || agrees(program, backends));
        }
    }
}

/// What the file expects, and the case itself where it is no program.
fn expects(file: &CaseFile) -> Result<(), Found> {
    let found = match &file.case {
        Case::Views(views) => gradiff_check::check_views(views).err(),
        Case::Expr(expr) => gradiff_check::check_expr(expr).err(),
        Case::Program(_) => None,
    };
    if let Some(detail) = found {
        return Err(Found { detail, of: blamed(&file.case) });
    }
    match check_expects(file).into_iter().next() {
        None => Ok(()),
        Some(detail) => Err(Found { detail: format!("expects: {detail}"), of: Of::Nothing }),
    }
}

/// How a case that is no program is blamed.
pub(crate) fn blamed(case: &Case) -> Of {
    let blame = |case: &Case| match case {
        Case::Views(views) => gradiff_check::blame_views(views),
        Case::Expr(expr) => gradiff_check::blame_expr(expr),
        Case::Program(_) => None,
    };
    Of::Blame(blame, Box::new(case.clone()))
}

/// The program on the configurations; the first failure counts.
pub(crate) fn agrees(
    program: &gradiff_corpus::Program,
    backends: &[Box<dyn Backend>],
) -> Result<(), Found> {
    let (_, failures) = agree(&[program], backends);
    let Some((_, failure)) = failures.into_iter().next() else { return Ok(()) };
    Err(Found {
        detail: format!("{} on {}: {}", failure.kind.name(), failure.backend, failure.detail),
        of: Of::Program(Box::new(program.clone()), failure.backend),
    })
}
