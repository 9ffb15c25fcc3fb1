//! Entry points of the libFuzzer targets: a case in, a panic if something is wrong.
//!
//! `GRADIFF_BACKENDS=interp,jit,c` names the backends of programs. If it is not set, they are
//! `interp` and `jit`, without optimisations and with those that the engine chooses; they call no
//! compiler.

use std::cell::RefCell;
use std::sync::OnceLock;

use gradiff_corpus::{Case, CaseFile, ExprCase, Program, ViewOps};

use crate::Backend;
use crate::judge::coverage;

/// Maximal number of programs that go to the C compiler together: one call takes nearly 0.1 s,
/// whatever it compiles. The first goes alone, so that one saved input can be run again; then come
/// 2, 4, ... Those that are left go together at the end.
const BATCH: usize = 32;

/// Number of counters of rules: more than there are rules.
pub const RULES: usize = 512;

/// Callback for the number of times that an input fired each rule, in the order of the listing,
/// at most 255 each. To libFuzzer, a rule that fires for the first time, or far more often than
/// before, is new coverage. Without libFuzzer nothing is counted.
static FEEDBACK: OnceLock<fn(&[u8; RULES])> = OnceLock::new();

/// Sets the callback for the counts of rules; only the first call has an effect.
pub fn feed_back(callback: fn(&[u8; RULES])) {
    FEEDBACK.get_or_init(|| callback);
}

/// Counts the rules that the case fires, if there is a callback.
fn count_rules(case: impl FnOnce() -> Case) {
    let Some(callback) = FEEDBACK.get() else { return };
    callback(&coverage::counters(&case()));
}

fn fail(case: Case, problem: &str) -> ! {
    let file = CaseFile { description: vec![problem.to_string()], case, expects: Vec::new() };
    panic!("{problem}\n\nas a corpus file:\n{file}")
}

/// The backends of programs: those that compile in process, and those that call a compiler.
struct Backends {
    direct: Vec<Box<dyn Backend>>,
    batched: Vec<Box<dyn Backend>>,
    /// Opens the backends of `batched`.
    open: Open,
    /// Programs waiting for the compiler.
    waiting: Vec<Program>,
    /// Number of programs in the next batch.
    batch: usize,
}

/// Opens backends.
type Open = fn() -> Vec<Box<dyn Backend>>;

impl Backends {
    fn new(direct: Vec<Box<dyn Backend>>, open: Open) -> Backends {
        Backends { direct, batched: open(), open, waiting: Vec::new(), batch: 1 }
    }

    fn from_environment() -> Backends {
        Backends::new(open(false), || open(true))
    }

    /// Judges the program on the direct backends; holds it for the others until a batch is full.
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

/// Judges the programs that still wait when a run ends.
impl Drop for Backends {
    fn drop(&mut self) {
        let (waiting, open) = (std::mem::take(&mut self.waiting), self.open);
        if waiting.is_empty() || std::thread::panicking() {
            return;
        }
        // Values local to this thread may be gone.
        let judged = std::thread::spawn(move || {
            panic_on_failure(&waiting.iter().collect::<Vec<_>>(), &open());
        });
        if let Err(panic) = judged.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

fn calls_compiler(name: &str) -> bool {
    crate::BACKENDS.iter().any(|row| row.name == name && row.device == "c")
}

/// Opens the backends of the environment that call a compiler, or those that do not.
fn open(with_compiler: bool) -> Vec<Box<dyn Backend>> {
    let named = std::env::var("GRADIFF_BACKENDS").ok();
    let names = named.unwrap_or("interp,jit,jit/heuristic,interp/groups-heuristic".to_string());
    let names = names.split(',').map(str::trim);
    let names = names.filter(|name| calls_compiler(name) == with_compiler);
    let names: Vec<String> = names.map(str::to_string).collect();
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
/// compiler unless `GRADIFF_BACKENDS` is set. After the first, programs for a compiler wait until
/// there are enough of them, or until the thread ends, and a failure prints its own program.
///
/// # Panics
/// If an answer is wrong; if `GRADIFF_BACKENDS` names a backend that is unknown or not available.
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

/// Makes a chain of calls of the tensor API.
///
/// # Panics
/// If an answer is wrong, or a call panics.
pub fn calls(bytes: &[u8]) {
    if let Err(problem) = crate::checks::calls::check_chain(bytes) {
        panic!("{problem}");
    }
}

/// Parses any text; the result must print and parse back to itself.
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

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::Outcome;

    /// Refuses programs that negate.
    struct Refusing;

    impl Backend for Refusing {
        fn name(&self) -> &str {
            "refusing"
        }

        fn supports(&self, _: &Program) -> Option<String> {
            None
        }

        fn run(&self, programs: &[&Program]) -> Vec<Outcome> {
            let answer = |program: &&Program| match program.to_string().contains("neg") {
                true => Outcome::Refused("it negates".to_string()),
                false => Outcome::Skipped("it does not".to_string()),
            };
            programs.iter().map(answer).collect()
        }
    }

    fn refusing() -> Vec<Box<dyn Backend>> {
        vec![Box::new(Refusing)]
    }

    #[test]
    fn programs_that_wait_at_the_end_are_judged() {
        let program = |op: &str| {
            let text = format!("a = input f32[2] iota\nb = {op} a\noutput b\n");
            match gradiff_corpus::parse(&text).map(|file| file.case) {
                Ok(Case::Program(program)) => program,
                _ => panic!("{text}"),
            }
        };
        for (last, is_right) in [("sqrt", true), ("neg", false)] {
            let mut backends = Backends::new(Vec::new(), refusing);
            backends.judge(&program("exp2"));
            backends.judge(&program(last));
            assert_eq!(backends.waiting.len(), 1);
            let ended = catch_unwind(AssertUnwindSafe(|| drop(backends)));
            assert_eq!(ended.is_ok(), is_right, "{last}");
        }
    }
}
