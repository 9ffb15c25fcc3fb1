//! The cases of the corpus: their `expect` lines, then the programs on all configurations.

use gradiff_check::{Backend, Crate, Stage, agree, agree_in_steps, check_expects};
use gradiff_corpus::{Case, CaseFile, Program, embedded, parse};

use crate::verdict::{Failure, Subject, Verdict};

/// Number of programs that go to a compiler together.
pub(crate) const BATCH: usize = 16;

/// The files of the corpus, by their stems.
pub(crate) fn files() -> Vec<(&'static str, CaseFile)> {
    let parsed = |text: &str, stem: &str| parse(text).unwrap_or_else(|e| panic!("{stem}: {e}"));
    embedded().iter().map(|(stem, text)| (*stem, parsed(text, stem))).collect()
}

/// One file in `every`, from the one that the seed chooses.
pub(crate) fn share(seed: u64, every: usize) -> Vec<(&'static str, CaseFile)> {
    let first = (seed % every as u64) as usize;
    files().into_iter().skip(first).step_by(every).collect()
}

/// Checks the cases of the files.
pub(crate) fn check(verdict: &Verdict, files: &[(&str, CaseFile)], backends: &[Box<dyn Backend>]) {
    for (stem, file) in files {
        verdict.check(&format!("corpus:{stem}"), || expects(file));
    }
    check_programs(verdict, programs(files), backends);
}

/// The programs of the files, by their stems.
pub(crate) fn programs<'a>(
    files: &'a [(&'a str, CaseFile)],
) -> impl Iterator<Item = (&'a str, &'a Program)> {
    files.iter().filter_map(|(stem, file)| match &file.case {
        Case::Program(program) => Some((*stem, program)),
        Case::Views(_) | Case::Expr(_) => None,
    })
}

/// Checks programs on the configurations.
pub(crate) fn check_programs<'a>(
    verdict: &Verdict,
    programs: impl Iterator<Item = (&'a str, &'a Program)>,
    backends: &[Box<dyn Backend>],
) {
    for (stem, program) in programs {
        verdict.check(&format!("corpus:{stem}"), || agrees(program, backends, None));
    }
}

/// The program of this case; `None` if it is no program.
pub(crate) fn program(stem: &str) -> Option<Program> {
    let (_, text) = embedded().iter().find(|(known, _)| *known == stem)?;
    match parse(text).ok()?.case {
        Case::Program(program) => Some(program),
        Case::Views(_) | Case::Expr(_) => None,
    }
}

/// Checks the `expect` lines of the file, and the case itself if it is not a program.
fn expects(file: &CaseFile) -> Result<(), Failure> {
    let problem = match &file.case {
        Case::Views(views) => {
            let checked = gradiff_check::check_views(views);
            checked.and_then(|()| gradiff_check::check_symbolic_views(views)).err()
        }
        Case::Expr(expr) => gradiff_check::check_expr(expr).err(),
        Case::Program(_) => None,
    };
    if let Some(detail) = problem {
        return Err(Failure { detail, subject: blamed(&file.case) });
    }
    match check_expects(file).into_iter().next() {
        None => Ok(()),
        Some(detail) => {
            let subject = match &file.case {
                Case::Views(_) => Subject::Crate(Crate::View, Stage::Movements),
                Case::Expr(_) => Subject::Crate(Crate::Rewrite, Stage::Rules),
                // A wrong stage is to blame, rather than what is expected of it.
                Case::Program(program) => match gradiff_check::blame(program, "interp") {
                    Some(_) => Subject::Program(Box::new(program.clone()), "interp".to_string()),
                    None => of_expectation(&detail),
                },
            };
            Err(Failure { detail: format!("expects: {detail}"), subject })
        }
    }
}

/// The subject of a program's unmet expectation, by the stage that the detail tells of.
fn of_expectation(detail: &str) -> Subject {
    let is_of = |words: &[&str]| words.iter().any(|word| detail.contains(word));
    match () {
        () if is_of(&["expected rule", "does not end"]) => {
            Subject::Crate(Crate::Rewrite, Stage::Rules)
        }
        () if detail.starts_with("statement ") => Subject::Crate(Crate::Tensor, Stage::Tensor),
        () if is_of(&["not a kernel"]) => Subject::Crate(Crate::Kernel, Stage::LOWER),
        () => Subject::Crate(Crate::Schedule, Stage::Schedule),
    }
}

/// The subject of a failing case that is not a program.
pub(crate) fn blamed(case: &Case) -> Subject {
    let blame = |case: &Case| match case {
        Case::Views(views) => gradiff_check::blame_views(views),
        Case::Expr(expr) => gradiff_check::blame_expr(expr),
        Case::Program(_) => None,
    };
    Subject::Blame(blame, Box::new(case.clone()))
}

/// Checks the programs on the configurations that call a compiler: plain, as users have the device,
/// and the texts of every language.
pub(crate) fn check_batch(
    verdict: &Verdict,
    files: &[(&str, CaseFile)],
    backends: &[Box<dyn Backend>],
) {
    let names: Vec<String> = backends.iter().map(|backend| backend.name().to_string()).collect();
    let is_usual = |name: &&String| {
        !name.contains('/') || name.ends_with("/heuristic") || name.starts_with("text/")
    };
    let programs: Vec<(&str, &Program)> = programs(files).collect();
    // In parts: compiling all of them at once would take so long that it counts as a hang.
    let parts = names
        .iter()
        .filter(is_usual)
        .flat_map(|name| programs.chunks(BATCH).map(move |part| (name, part)));
    for (name, part) in parts {
        verdict.check_batch(&format!("corpus:{name}"), || {
            let opened = backends_named(name);
            let without_stems: Vec<&Program> = part.iter().map(|(_, program)| *program).collect();
            let (_, failures) = agree(&without_stems, &opened);
            let Some((position, failure)) = failures.into_iter().next() else { return Ok(()) };
            let (stem, program) = &part[position];
            let kind = failure.kind.name();
            Err(Failure {
                detail: format!("{stem}: {kind} on {}: {}", failure.backend, failure.detail),
                subject: Subject::Program(Box::new((*program).clone()), failure.backend),
            })
        });
    }
}

fn backends_named(name: &str) -> Vec<Box<dyn Backend>> {
    gradiff_check::backends(&[name.to_string()]).unwrap_or_else(|error| panic!("{}", error.message))
}

/// Runs the program on the configurations; of those that take turns, on the one whose turn this
/// number is. Returns the first failure.
pub(crate) fn agrees(
    program: &Program,
    backends: &[Box<dyn Backend>],
    number: Option<u64>,
) -> Result<(), Failure> {
    // Turns are taken by groups of eight programs.
    let numbers = number.map(|number| [8 * number]);
    let numbers = numbers.as_ref().map(<[u64; 1]>::as_slice);
    let (_, failures) = agree_in_steps(&[program], backends, numbers, &mut |_| {});
    let Some((_, failure)) = failures.into_iter().next() else { return Ok(()) };
    Err(Failure {
        detail: format!("{} on {}: {}", failure.kind.name(), failure.backend, failure.detail),
        subject: Subject::Program(Box::new(program.clone()), failure.backend),
    })
}
