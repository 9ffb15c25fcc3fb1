//! `gradiff prove`: settles rules with the solver z3 and by exhaustion, and keeps the ledger.
//!
//! z3 is a program of its own, found by `GRADIFF_Z3` or on the PATH; one process for each worker.
//! Without it what is false on small cases is still refuted, and verdicts come from the ledger.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gradiff_check::{Rule, rows};
use gradiff_rules::proof::{self, Answer, Entry, Obligation, Verdict};

use crate::args::Prove;
use crate::out::outln;
use crate::{Failure, Status};

/// Where the ledger lies, seen from this crate.
const LEDGER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rules/verdicts.txt");

/// z3's own count of steps after which one query is given up: the same on every machine.
const STEPS: u32 = 2_000_000;

/// What became of one rule.
struct Settled {
    rule: Rule,
    verdict: Verdict,
    note: String,
    time: Duration,
    /// Whether it is a row of the tables, so that the ledger should know it.
    is_row: bool,
}

/// Settles the rules that were asked for.
///
/// # Errors
/// A row that cannot be read, a prefix that no rule has, a ledger that cannot be written.
pub(crate) fn prove(options: &Prove) -> Result<Status, Failure> {
    crate::interrupt::install();
    let rules = chosen(options)?;
    if options.smt {
        return Ok(print_queries(&rules));
    }
    let started = Instant::now();
    let has_solver = Solver::start().is_some();
    let settled = settle_all(&rules, has_solver, options);
    if settled.len() < rules.len() {
        outln!("stopped: {} of {} rules were looked at", settled.len(), rules.len());
    }
    let mut is_clean = settled.len() == rules.len();
    for found in &settled {
        let problem = problem(found, has_solver);
        is_clean &= problem.is_none();
        print(found, problem.as_deref());
    }
    summary(&settled, has_solver, started.elapsed());
    if options.write {
        write(&settled, has_solver)?;
        is_clean = settled.iter().all(|found| is_settled(&found.verdict));
    }
    Ok(if is_clean { Status::Clean } else { Status::Findings })
}

fn chosen(options: &Prove) -> Result<Vec<(Rule, bool)>, Failure> {
    let mut rules = Vec::new();
    for text in &options.with {
        let row = proof::parse_row(text)
            .map_err(|problem| Failure::Usage(format!("--with {text:?}: {problem}")))?;
        rules.push((row, false));
    }
    for prefix in &options.rules {
        let found = rows().into_iter().filter(|rule| rule.name.starts_with(prefix.as_str()));
        let before = rules.len();
        rules.extend(found.map(|rule| (rule, true)));
        if rules.len() == before {
            return Err(Failure::Usage(format!(
                "no rule begins with {prefix}; see `gradiff rules`"
            )));
        }
    }
    if rules.is_empty() {
        rules.extend(rows().into_iter().map(|rule| (rule, true)));
    }
    Ok(rules)
}

fn print_queries(rules: &[(Rule, bool)]) -> Status {
    for (rule, _) in rules {
        match proof::obligations(rule) {
            Ok(all) => {
                for query in all {
                    let (label, smt) = (&query.label, query.smt());
                    outln!("; {}: {label}\n(push)\n{smt}(pop)", rule.name);
                }
            }
            Err(problem) => outln!("; {}: no queries: {problem}", rule.name),
        }
    }
    Status::Clean
}

/// All rules, side by side, in order; those that were not reached are left out.
fn settle_all(rules: &[(Rule, bool)], has_solver: bool, options: &Prove) -> Vec<Settled> {
    let started = Instant::now();
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<(usize, Settled)>> = Mutex::new(Vec::new());
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let progress = indicatif::ProgressBar::new(rules.len() as u64);
    let is_over = || {
        let is_late = options.seconds.is_some_and(|most| started.elapsed().as_secs() >= most);
        is_late || crate::interrupt::is_asked()
    };
    let work = || {
        let mut solver = has_solver.then(Solver::start).flatten();
        while !is_over() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((rule, is_row)) = rules.get(number) else { break };
            let started = Instant::now();
            let mut ask =
                |query: &Obligation| solver.as_mut().map_or(Answer::Unknown, |z3| z3.ask(query));
            let (verdict, note) = proof::decide(rule, has_solver.then_some(&mut ask));
            if crate::interrupt::is_asked() {
                break;
            }
            let (rule, is_row, time) = (*rule, *is_row, started.elapsed());
            progress.inc(1);
            let settled = Settled { rule, verdict, note, time, is_row };
            let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            found.push((number, settled));
        }
    };
    std::thread::scope(|scope| {
        (0..jobs).for_each(|_| {
            scope.spawn(work);
        })
    });
    progress.finish_and_clear();
    let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, settled)| settled).collect()
}

fn is_settled(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Proved | Verdict::Exhausted)
}

/// Why a rule turns the run red; `None` if it does not.
fn problem(found: &Settled, has_solver: bool) -> Option<String> {
    let known = proof::verdict(&found.rule);
    match &found.verdict {
        Verdict::Refuted(example) => Some(example.to_string()),
        Verdict::Open(problem) => Some(problem.clone()),
        _ if !found.is_row => None,
        _ if known.is_none() => {
            Some(String::from("the rule changed since it was proved: run `gradiff prove --write`"))
        }
        verdict if has_solver && known.as_ref() != Some(verdict) => {
            Some(String::from("the ledger says otherwise: run `gradiff prove --write`"))
        }
        _ => None,
    }
}

fn print(found: &Settled, problem: Option<&str>) {
    let seconds = found.time.as_secs_f64();
    let note = problem.unwrap_or(&found.note);
    let line =
        format!("{:40} {:9} {seconds:6.2} s  {note}", found.rule.name, found.verdict.to_string());
    outln!("{}", line.trim_end());
}

fn summary(settled: &[Settled], has_solver: bool, time: Duration) {
    let count = |wanted: &str| settled.iter().filter(|s| s.verdict.to_string() == wanted).count();
    let is_exact = |found: &&Settled| !found.rule.types.are_floats();
    let exact: Vec<&Settled> = settled.iter().filter(is_exact).collect();
    let proved = exact.iter().filter(|found| found.verdict == Verdict::Proved).count();
    outln!(
        "{} rules: {} proved, {} exhausted, {} open, {} refuted in {:.1} s",
        settled.len(),
        count("proved"),
        count("exhausted"),
        count("open"),
        count("refuted"),
        time.as_secs_f64()
    );
    if has_solver {
        let share = 100.0 * proved as f64 / exact.len().max(1) as f64;
        outln!("of {} rules not for floats alone, {proved} are proved ({share:.1} %)", exact.len());
    } else {
        outln!("z3 is not there (install it or set GRADIFF_Z3): small cases alone were tried;");
        outln!("proofs are those of the ledger: {}", ledger_counts());
    }
}

fn ledger_counts() -> String {
    let verdicts: Vec<_> = rows().iter().map(proof::verdict).collect();
    let proved = verdicts.iter().filter(|verdict| **verdict == Some(Verdict::Proved)).count();
    let lack = verdicts.iter().filter(|verdict| verdict.is_none()).count();
    format!("{proved} proved, {} exhausted, {lack} without verdict", verdicts.len() - proved - lack)
}

/// Puts the verdicts into the ledger; rules that were not looked at keep their lines.
fn write(settled: &[Settled], has_solver: bool) -> Result<(), Failure> {
    if !has_solver {
        return Err(Failure::Usage(String::from("--write needs z3: install it or set GRADIFF_Z3")));
    }
    let entry = |rule: &Rule| {
        let new = settled.iter().find(|found| found.is_row && found.rule.name == rule.name);
        let entry = |found: &Settled| Entry {
            name: rule.name.to_owned(),
            fingerprint: proof::fingerprint(rule),
            verdict: found.verdict.to_string(),
            note: found.note.clone(),
        };
        match new {
            Some(found) => is_settled(&found.verdict).then(|| entry(found)),
            None => proof::entry(rule).cloned(),
        }
    };
    let entries: Vec<Entry> = rows().iter().filter_map(entry).collect();
    std::fs::write(Path::new(LEDGER), proof::ledger(&entries))
        .map_err(|error| Failure::Usage(format!("{LEDGER}: {error}")))?;
    outln!("{} lines written to {LEDGER}", entries.len());
    Ok(())
}

/// A running z3.
struct Solver {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Solver {
    /// `None` if there is no z3 that answers.
    fn start() -> Option<Solver> {
        let program = std::env::var_os("GRADIFF_Z3").unwrap_or_else(|| "z3".into());
        let mut command = Command::new(program);
        command.arg("-in").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let (input, output) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        let mut solver = Solver { child, input, output };
        let text = solver.tell("(assert false)\n(check-sat)\n")?;
        (text.trim() == "unsat").then_some(solver)
    }

    fn ask(&mut self, query: &Obligation) -> Answer {
        let text = format!("(reset)\n(set-option :rlimit {STEPS})\n{}", query.smt());
        match self.tell(&text).as_deref().map(str::trim) {
            Some("unsat") => Answer::Unsat,
            Some("sat") => {
                let values = format!("(get-value ({}))\n", query.values.join(" "));
                Answer::Sat(self.tell(&values).unwrap_or_default())
            }
            _ => Answer::Unknown,
        }
    }

    /// What z3 answers; `None` if it is gone.
    fn tell(&mut self, text: &str) -> Option<String> {
        const END: &str = "end of answer";
        writeln!(self.input, "{text}(echo \"{END}\")").ok()?;
        self.input.flush().ok()?;
        let mut answer = String::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line.trim() == END {
                return Some(answer);
            }
            answer += &line;
        }
    }
}

impl Drop for Solver {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
