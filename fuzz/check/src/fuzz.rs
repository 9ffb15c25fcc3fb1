//! What the libFuzzer targets call: a case in, a panic if something is wrong.
//!
//! `GRADIFF_BACKENDS=interp,jit,c` names the backends of programs. Unset, they are `interp` and
//! `jit`, plain and as the engine chooses optimisations, which call no compiler.

use std::cell::RefCell;
use std::sync::OnceLock;

use gradiff_corpus::{Case, CaseFile, ExprCase, Program, ViewOps};

use crate::{Backend, coverage};

/// Programs that go to the C compiler together, at most: one call takes most of 0.1 s, whatever it
/// compiles. The first goes alone, so that one saved input can be run again; then 2, 4, ...
const BATCH: usize = 32;

/// How many counters of rules there are: more than rules.
pub const RULES: usize = 512;

/// What a target does with the counts of the rules that an input fired: in the order of the
/// listing, each cut to 8 bits. libFuzzer takes a rule that fires for the first time, or far
/// more often than before, as new ground. Without libFuzzer nothing is counted.
static FEEDBACK: OnceLock<fn(&[u8; RULES])> = OnceLock::new();

/// Sets what is done with the counts of rules; the first call counts.
pub fn feed_back(to: fn(&[u8; RULES])) {
    FEEDBACK.get_or_init(|| to);
}

/// Counts the rules that the case fires, if someone wants to know.
fn count_rules(case: impl FnOnce() -> Case) {
    let Some(to) = FEEDBACK.get() else { return };
    to(&coverage::counters(&case()));
}

fn fail(case: Case, problem: &str) -> ! {
    let file = CaseFile { description: vec![problem.to_string()], case, expects: Vec::new() };
    panic!("{problem}\n\nas a corpus file:\n{file}")
}

/// The backends of programs: those that compile in process, and those that call a compiler.
struct Backends {
    direct: Vec<Box<dyn Backend>>,
    batched: Vec<Box<dyn Backend>>,
    /// Programs that wait for the compiler.
    waiting: Vec<Program>,
    /// How many it waits for.
    batch: usize,
}

impl Backends {
    fn from_environment() -> Backends {
        let named = std::env::var("GRADIFF_BACKENDS").ok();
        let names = named.unwrap_or("interp,jit,jit/heuristic,interp/groups-heuristic".to_string());
        let (batched, direct): (Vec<&str>, Vec<&str>) =
            names.split(',').map(str::trim).partition(|name| calls_compiler(name));
        Backends { direct: open(&direct), batched: open(&batched), waiting: Vec::new(), batch: 1 }
    }

    /// Judges the program on the direct backends; keeps it for the others until a batch is full.
    fn judge(&mut self, program: &Program) {
        panic_on_failure(&[program], &self.direct);
        if self.batched.is_empty() {
            return;
        }
        self.waiting.push(program.clone());
        if self.waiting.len() == self.batch {
            self.batch = BATCH.min(2 * self.batch);
            let batch = std::mem::take(&mut self.waiting);
            panic_on_failure(&batch.iter().collect::<Vec<_>>(), &self.batched);
        }
    }
}

fn calls_compiler(name: &str) -> bool {
    crate::BACKENDS.iter().any(|row| row.name == name && row.device == "c")
}

fn open(names: &[&str]) -> Vec<Box<dyn Backend>> {
    let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    crate::backends(&names).unwrap_or_else(|error| panic!("GRADIFF_BACKENDS: {}", error.message))
}

fn panic_on_failure(programs: &[&Program], backends: &[Box<dyn Backend>]) {
    let (_, failures) = crate::agree(programs, backends);
    if let Some((position, failure)) = failures.into_iter().next() {
        let problem = format!("{} on {}: {}", failure.kind.name(), failure.backend, failure.detail);
        fail(Case::Program(programs[position].clone()), &problem);
    }
}

/// Runs a program on the backends of the environment: the interpreter and the just-in-time
/// compiler unless `GRADIFF_BACKENDS` says otherwise. After the first, programs for a
/// compiler wait until there are enough of them, and a failure prints its own program.
///
/// # Panics
/// If an answer is wrong; if `GRADIFF_BACKENDS` names nothing there is.
pub fn program(program: &Program) {
    count_rules(|| Case::Program(program.clone()));
    thread_local! {
        static BACKENDS: RefCell<Option<Backends>> = const { RefCell::new(None) };
    }
    BACKENDS.with_borrow_mut(|backends| {
        backends.get_or_insert_with(Backends::from_environment).judge(program);
    });
}

/// Checks the shape trackers of a sequence.
///
/// # Panics
/// If one is wrong.
pub fn views(views: &ViewOps) {
    count_rules(|| Case::Views(views.clone()));
    if let Err(problem) = crate::check_views(views) {
        fail(Case::Views(views.clone()), &problem);
    }
}

/// Checks the simplification of an expression.
///
/// # Panics
/// If it is wrong.
pub fn expr(expr: &ExprCase) {
    count_rules(|| Case::Expr(expr.clone()));
    if let Err(problem) = crate::check_expr(expr) {
        fail(Case::Expr(expr.clone()), &problem);
    }
}

/// Makes a chain of calls of the library.
///
/// # Panics
/// If an answer is wrong, or a call panics.
pub fn calls(bytes: &[u8]) {
    if let Err(problem) = crate::calls::check_chain(bytes) {
        panic!("{problem}");
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
