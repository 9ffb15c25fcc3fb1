//! What the libFuzzer targets call: a case in, a panic if something is wrong.
//!
//! `GRADIFF_FAULT=NAME` in the environment switches a planted fault on first.

use std::sync::OnceLock;

use gradiff_corpus::{Case, CaseFile, ExprCase, Program, ViewOps};

use crate::{Backend, fault};

/// Switches the fault named in the environment on, once.
fn plant() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        if let Ok(name) = std::env::var("GRADIFF_FAULT") {
            fault::set_active(&name).expect("GRADIFF_FAULT names a planted fault");
        }
    });
}

fn fail(case: Case, problem: &str) -> ! {
    let file = CaseFile { story: vec![problem.to_string()], case, expects: Vec::new() };
    panic!("{problem}\n\nas a corpus file:\n{file}")
}

/// Runs a program on the interpreter and the just-in-time compiler.
///
/// # Panics
/// If an answer is wrong.
pub fn program(program: &Program) {
    plant();
    thread_local! {
        static BACKENDS: Vec<Box<dyn Backend>> =
            crate::backends(&["interp".to_string(), "jit".to_string()])
                .unwrap_or_else(|error| panic!("{}", error.message));
    }
    let (_, failures) = BACKENDS.with(|backends| crate::agree(&[program], backends));
    if let Some((_, failure)) = failures.into_iter().next() {
        let problem = format!("{} on {}: {}", failure.kind.name(), failure.backend, failure.detail);
        fail(Case::Program(program.clone()), &problem);
    }
}

/// Checks the shape trackers of a sequence.
///
/// # Panics
/// If one is wrong.
pub fn views(views: &ViewOps) {
    plant();
    if let Err(problem) = crate::check_views(views) {
        fail(Case::Views(views.clone()), &problem);
    }
}

/// Checks the simplification of an expression.
///
/// # Panics
/// If it is wrong.
pub fn expr(expr: &ExprCase) {
    plant();
    if let Err(problem) = crate::check_expr(expr) {
        fail(Case::Expr(expr.clone()), &problem);
    }
}

/// Parses any text, and what it gives must print and parse back to itself.
///
/// # Panics
/// If it does not.
pub fn text(text: &str) {
    let Ok(case) = gradiff_corpus::parse(text) else { return };
    let printed = case.to_string();
    match gradiff_corpus::parse(&printed) {
        Ok(again) => assert!(again == case, "printed, it parses to something else:\n{printed}"),
        Err(error) => panic!("printed, it does not parse: {error}\n{printed}"),
    }
}
