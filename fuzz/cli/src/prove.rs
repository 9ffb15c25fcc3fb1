//! `gradiff prove`: decides rules with the solver z3 and by exhaustion, and keeps the ledger.
//!
//! z3 is a separate program, found by `GRADIFF_Z3` or on the PATH, with one process for each
//! worker. Without it, rules that are false on small cases are still refuted, and verdicts come
//! from the ledger.

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
use crate::whole::write_whole;
use crate::{Failure, Status};

/// Path of the ledger, relative to this crate.
const LEDGER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rules/verdicts.txt");

/// z3's resource limit (rlimit) for one query: it has the same effect on every machine.
const SOLVER_LIMIT: u32 = 2_000_000;

/// Decision on one rule.
struct Decision {
    rule: Rule,
    verdict: Verdict,
    note: String,
    time: Duration,
    /// True if it is a row of the tables, which the ledger should have.
    is_row: bool,
}

/// Decides the requested rules.
///
/// # Errors
/// A row that cannot be parsed, a prefix that no rule has, a ledger that cannot be written.
pub(crate) fn prove(options: &Prove) -> Result<Status, Failure> {
    crate::interrupt::install();
    let rules = chosen(options)?;
    if options.smt {
        return Ok(print_queries(&rules));
    }
    let started = Instant::now();
    let has_solver = Solver::start().is_some();
    let decisions = decide_rules(&rules, has_solver, options);
    if decisions.len() < rules.len() {
        outln!("stopped: {} of {} rules were decided", decisions.len(), rules.len());
    }
    // An interrupted run has an exit code of its own.
    let is_complete = decisions.len() == rules.len() || crate::interrupt::is_requested();
    let mut is_clean = true;
    for decision in &decisions {
        let problem = problem(decision, has_solver);
        is_clean &= problem.is_none();
        print(decision, problem.as_deref());
    }
    summary(&decisions, has_solver, started.elapsed());
    if options.write {
        write(&decisions, has_solver)?;
        is_clean = decisions.iter().all(|decision| is_sound(&decision.verdict));
    }
    Ok(if is_clean && is_complete { Status::Clean } else { Status::Findings })
}

fn chosen(options: &Prove) -> Result<Vec<(Rule, bool)>, Failure> {
    let mut rules = Vec::new();
    for text in &options.with {
        let row = proof::parse_row(text)
            .map_err(|problem| Failure::Usage(format!("--with {text:?}: {problem}")))?;
        rules.push((row, false));
    }
    for prefix in &options.rules {
        let matching = rows().into_iter().filter(|rule| rule.name.starts_with(prefix.as_str()));
        let before = rules.len();
        rules.extend(matching.map(|rule| (rule, true)));
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
            Ok(queries) => {
                for query in queries {
                    let (label, smt) = (&query.label, query.smt());
                    outln!("; {}: {label}\n(push)\n{smt}(pop)", rule.name);
                }
            }
            Err(problem) => outln!("; {}: no queries: {problem}", rule.name),
        }
    }
    Status::Clean
}

/// Decides the rules in parallel. Returns the decisions in order, without rules that were not
/// reached.
fn decide_rules(rules: &[(Rule, bool)], has_solver: bool, options: &Prove) -> Vec<Decision> {
    let started = Instant::now();
    let next = AtomicUsize::new(0);
    let decisions: Mutex<Vec<(usize, Decision)>> = Mutex::new(Vec::new());
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let progress = indicatif::ProgressBar::new(rules.len() as u64);
    let is_over = || {
        let is_late = options.seconds.is_some_and(|limit| started.elapsed().as_secs() >= limit);
        is_late || crate::interrupt::is_requested()
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
            if crate::interrupt::is_requested() {
                break;
            }
            let (rule, is_row, time) = (*rule, *is_row, started.elapsed());
            progress.inc(1);
            let decision = Decision { rule, verdict, note, time, is_row };
            let mut decisions = decisions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            decisions.push((number, decision));
        }
    };
    std::thread::scope(|scope| {
        (0..jobs).for_each(|_| {
            scope.spawn(work);
        })
    });
    progress.finish_and_clear();
    let mut decisions = decisions.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    decisions.sort_by_key(|(number, _)| *number);
    decisions.into_iter().map(|(_, decision)| decision).collect()
}

fn is_sound(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Proved | Verdict::Exhausted)
}

/// Returns the reason why a rule is a finding; `None` if it is not.
fn problem(decision: &Decision, has_solver: bool) -> Option<String> {
    let known = proof::verdict(&decision.rule);
    match &decision.verdict {
        Verdict::Refuted(example) => Some(example.to_string()),
        Verdict::Open(problem) => Some(problem.clone()),
        _ if !decision.is_row => None,
        _ if known.is_none() => {
            Some(String::from("the rule changed since it was proved: run `gradiff prove --write`"))
        }
        verdict if has_solver && known.as_ref() != Some(verdict) => {
            Some(String::from("the ledger has another verdict: run `gradiff prove --write`"))
        }
        _ => None,
    }
}

fn print(decision: &Decision, problem: Option<&str>) {
    let seconds = decision.time.as_secs_f64();
    let note = problem.unwrap_or(&decision.note);
    let (name, verdict) = (decision.rule.name, decision.verdict.to_string());
    let line = format!("{name:40} {verdict:9} {seconds:6.2} s  {note}");
    outln!("{}", line.trim_end());
}

fn summary(decisions: &[Decision], has_solver: bool, time: Duration) {
    let count =
        |verdict: &str| decisions.iter().filter(|d| d.verdict.to_string() == verdict).count();
    let is_exact = |decision: &&Decision| !decision.rule.types.are_floats();
    let exact: Vec<&Decision> = decisions.iter().filter(is_exact).collect();
    let proved = exact.iter().filter(|decision| decision.verdict == Verdict::Proved).count();
    outln!(
        "{} rules: {} proved, {} exhausted, {} open, {} refuted in {:.1} s",
        decisions.len(),
        count("proved"),
        count("exhausted"),
        count("open"),
        count("refuted"),
        time.as_secs_f64()
    );
    if has_solver {
        let share = 100.0 * proved as f64 / exact.len().max(1) as f64;
        let count = exact.len();
        outln!("of {count} rules not only for floats, {proved} are proved ({share:.1} %)");
    } else {
        outln!("z3 is not there (install it or set GRADIFF_Z3): only small cases were tried;");
        outln!("proofs are those of the ledger: {}", ledger_counts());
    }
}

fn ledger_counts() -> String {
    let verdicts: Vec<_> = rows().iter().map(proof::verdict).collect();
    let proved = verdicts.iter().filter(|verdict| **verdict == Some(Verdict::Proved)).count();
    let missing = verdicts.iter().filter(|verdict| verdict.is_none()).count();
    let exhausted = verdicts.len() - proved - missing;
    format!("{proved} proved, {exhausted} exhausted, {missing} without verdict")
}

/// Writes the verdicts to the ledger; rules that were not decided keep the lines that it has now.
fn write(decisions: &[Decision], has_solver: bool) -> Result<(), Failure> {
    if !has_solver {
        return Err(Failure::Usage(String::from("--write needs z3: install it or set GRADIFF_Z3")));
    }
    let failed = |error: &dyn std::fmt::Display| Failure::Usage(format!("{LEDGER}: {error}"));
    let text = std::fs::read_to_string(LEDGER).map_err(|error| failed(&error))?;
    let known = proof::entries(&text).map_err(|error| failed(&error))?;
    let entry = |rule: &Rule| {
        let mut rows_decided = decisions.iter().filter(|decision| decision.is_row);
        let new = rows_decided.find(|decision| decision.rule.name == rule.name);
        let entry = |decision: &Decision| Entry {
            name: rule.name.to_owned(),
            fingerprint: proof::fingerprint(rule),
            verdict: decision.verdict.to_string(),
            note: decision.note.clone(),
        };
        match new {
            Some(decision) => is_sound(&decision.verdict).then(|| entry(decision)),
            None => {
                let fingerprint = proof::fingerprint(rule);
                let is_of_rule =
                    |entry: &&Entry| entry.name == rule.name && entry.fingerprint == fingerprint;
                known.iter().find(is_of_rule).cloned()
            }
        }
    };
    let entries: Vec<Entry> = rows().iter().filter_map(entry).collect();
    write_whole(Path::new(LEDGER), &proof::ledger(&entries)).map_err(|error| failed(&error))?;
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
    /// Starts z3; `None` if there is none that answers.
    fn start() -> Option<Solver> {
        let program = std::env::var_os("GRADIFF_Z3").unwrap_or_else(|| "z3".into());
        let mut command = Command::new(program);
        command.arg("-in").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let (input, output) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        let mut solver = Solver { child, input, output };
        let text = solver.send("(assert false)\n(check-sat)\n")?;
        (text.trim() == "unsat").then_some(solver)
    }

    fn ask(&mut self, query: &Obligation) -> Answer {
        let text = format!("(reset)\n(set-option :rlimit {SOLVER_LIMIT})\n{}", query.smt());
        match self.send(&text).as_deref().map(str::trim) {
            Some("unsat") => Answer::Unsat,
            Some("sat") => {
                let values = format!("(get-value ({}))\n", query.values.join(" "));
                Answer::Sat(self.send(&values).unwrap_or_default())
            }
            _ => Answer::Unknown,
        }
    }

    /// Sends a text and returns z3's answer; `None` if z3 has ended.
    fn send(&mut self, text: &str) -> Option<String> {
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
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
