//! The verdict: the first failure is printed in one line and ends the process, also if a check
//! never ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gradiff_check::{Crate, Stage};
use gradiff_corpus::Program;

use crate::clock::cpu_seconds;

/// CPU seconds that one check may take: some hundred times as long as the longest one takes.
const LONGEST_CHECK: f64 = 10.0;
/// The same for a check whose programs go to compilers, which take seconds for a large kernel.
const LONGEST_BATCH: f64 = 60.0;
/// CPU seconds that blaming a failure on a crate may take.
const LONGEST_BLAME: f64 = 10.0;
/// Period of the checks of the time.
const PERIOD: Duration = Duration::from_millis(50);

/// The check in progress, watched by a thread.
pub(crate) struct Verdict {
    now: Arc<Mutex<Now>>,
    /// CPU seconds of each kind of check so far: names up to the first colon.
    spent: Mutex<BTreeMap<String, f64>>,
}

/// The state of the check in progress.
#[derive(Default)]
struct Now {
    check: String,
    /// When the check began, in CPU seconds.
    began: f64,
    /// When the process must end, in CPU seconds.
    end: f64,
    /// The line to print then; empty if the check itself takes too long.
    line: String,
}

impl Verdict {
    /// Starts the thread.
    pub(crate) fn watched() -> Verdict {
        let now = Arc::new(Mutex::new(Now::default()));
        let watched = Arc::clone(&now);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(PERIOD);
                let now = watched.lock().unwrap_or_else(PoisonError::into_inner);
                if now.end > 0.0 && cpu_seconds() > now.end {
                    let endless = || killed(&now.check, now.began, "hang");
                    let line = if now.line.is_empty() { endless() } else { now.line.clone() };
                    leave(&line);
                }
            }
        });
        Verdict { now, spent: Mutex::default() }
    }

    /// CPU seconds of each kind of check so far, the longest first.
    pub(crate) fn spent(&self) -> String {
        let spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kinds: Vec<(&String, &f64)> = spent.iter().collect();
        kinds.sort_by(|a, b| b.1.total_cmp(a.1));
        let kinds: Vec<String> = kinds.iter().map(|(kind, s)| format!("{kind}={s:.1}")).collect();
        kinds.join(" ")
    }

    /// Runs a check of this name; a failure or a panic ends the process.
    pub(crate) fn check(&self, name: &str, work: impl FnOnce() -> Result<(), Failure>) {
        self.check_within(LONGEST_CHECK, name, work);
    }

    /// As [`check`](Verdict::check), for programs that go to compilers.
    pub(crate) fn check_batch(&self, name: &str, work: impl FnOnce() -> Result<(), Failure>) {
        self.check_within(LONGEST_BATCH, name, work);
    }

    fn check_within(&self, longest: f64, name: &str, work: impl FnOnce() -> Result<(), Failure>) {
        // Printed line by line: the last one names the check if the process dies.
        println!("CHECK\t{name}");
        let began = cpu_seconds();
        let (check, end) = (name.to_string(), began + longest);
        self.set(Now { check, began, end, line: String::new() });
        let caught = gradiff_check::catch(work);
        let kind = name.split(':').next().unwrap_or(name).to_string();
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        *spent.entry(kind).or_default() += cpu_seconds() - began;
        drop(spent);
        let failure = match caught {
            Ok(Ok(())) => return self.set(Now::default()),
            Ok(Err(failure)) => failure,
            Err(panic) => Failure { detail: panic, subject: Subject::Unknown },
        };
        let line = killed(name, cpu_seconds(), &failure.detail);
        let began = cpu_seconds();
        let (check, end) = (name.to_string(), began + LONGEST_BLAME);
        self.set(Now { check, began, end, line: line.clone() });
        let blamed = gradiff_check::catch(|| failure.blamed()).ok().flatten();
        leave(&format!("{line}{}", blamed.unwrap_or_default()));
    }

    fn set(&self, now: Now) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

/// The failure of a check.
pub(crate) struct Failure {
    /// A description.
    pub(crate) detail: String,
    /// The subject that failed.
    pub(crate) subject: Subject,
}

/// The subject of a failure, as far as blame can use it.
pub(crate) enum Subject {
    /// A subject that blame does not know.
    Unknown,
    /// A subject that belongs to one crate: the crate and the stage.
    Crate(Crate, Stage),
    /// A program on a configuration.
    Program(Box<Program>, String),
    /// An expression or view sequence, with the function that blames it.
    Blame(fn(&gradiff_corpus::Case) -> Option<gradiff_check::Blame>, Box<gradiff_corpus::Case>),
}

impl Failure {
    /// The end of the line, which says what is blamed.
    fn blamed(&self) -> Option<String> {
        // A panic or a wrong fold names its crate, whatever was checked.
        if let Some(suspect) = gradiff_check::testing::suspect(&self.detail) {
            return Some(format!("\tcrate={}\tstage={}", suspect.crate_name, suspect.stage));
        }
        let blame = match &self.subject {
            Subject::Unknown => None,
            Subject::Crate(crate_name, stage) => {
                return Some(format!("\tcrate={crate_name}\tstage={stage}"));
            }
            Subject::Program(program, backend) => gradiff_check::blame(program, backend),
            Subject::Blame(blame, case) => blame(case),
        }?;
        let rule = blame.rule.map_or(String::new(), |culprit| format!(" rule={}", culprit.rule));
        Some(format!("\tcrate={}\tstage={}{rule}", blame.crate_name, blame.stage))
    }
}

/// The line without blame: fields are separated by tabs.
fn killed(check: &str, seconds: f64, detail: &str) -> String {
    let detail = detail.replace(['\n', '\t'], " ");
    let detail: String = detail.chars().take(300).collect();
    format!("KILLED\tby={check}\tat={seconds:.2}\tdetail={detail}")
}

fn leave(line: &str) -> ! {
    // Not `println`, which a test harness may capture.
    use std::io::Write;
    let mut out = std::io::stdout();
    let printed = writeln!(out, "\n{line}").and_then(|()| out.flush());
    std::process::exit(if printed.is_ok() { 1 } else { 2 })
}
