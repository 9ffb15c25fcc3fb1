//! `gradiff hunt`: workers run programs; this process counts, minimises and reports.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use gradiff_check::{Kind, Tally};
use gradiff_corpus::Program;
use gradiff_gen::{Config, Pairs};
use serde_json::json;

use crate::args::Hunt;
use crate::case::Chosen;
use crate::findings::{self, Findings, Form, Raw};
use crate::out::{clean, errln, outln};
use crate::pool::{Client, Death, FailedProgram, Results, Settings};
use crate::progress::Progress;
use crate::{Failure, Status};

/// Number of programs in a batch: they share one call of each compiler.
const BATCH: u64 = 64;
const SECONDS: u64 = 60;
/// Number of reasons for skipped programs in the table.
const SKIPPED_ROWS: usize = 16;

/// Largest number of rows of the table that give reasons for unspecified elements.
const UNSPECIFIED_ROWS: usize = 5;

/// Interval at which a supply that waits looks for a reason to go on.
const PAUSE: Duration = Duration::from_millis(10);
/// Time that a running batch may still take after an interrupt.
const GRACE: Duration = Duration::from_secs(3);
/// Length to which a message about the environment is cut.
const REASON_CHARS: usize = 300;

/// Results of a batch of programs.
struct Batch {
    numbers: Range<u64>,
    tally: Tally,
    /// The first failure of each program in the engine, and on each peer, with its raw file.
    failures: Vec<(FailedProgram, Option<PathBuf>)>,
    deaths: Vec<(Death, Option<PathBuf>)>,
    /// Failures of the machine, with the number of programs that could not run.
    environment: BTreeMap<String, u64>,
    slow: Vec<String>,
    pending: u64,
}

impl Batch {
    /// The number of failures and deaths.
    fn count(&self) -> u64 {
        (self.failures.len() + self.deaths.len()) as u64
    }

    /// A batch of `count` programs, none of which could run.
    fn failed(count: u64, reason: String) -> Batch {
        Batch {
            numbers: 0..0,
            tally: Tally { environment: count, ..Tally::default() },
            failures: Vec::new(),
            deaths: Vec::new(),
            environment: BTreeMap::from([(reason, count)]),
            slow: Vec::new(),
            pending: 0,
        }
    }
}

/// Results of a hunt.
pub(crate) struct Report {
    /// Sums over all programs.
    pub(crate) tally: Tally,
    /// The pairs of features that the programs had.
    pub(crate) pairs: Pairs,
    /// The distinct findings.
    pub(crate) findings: Findings,
    /// Seconds that the hunt took.
    pub(crate) seconds: f64,
    /// Seconds until the first failure was seen.
    pub(crate) first_seconds: Option<f64>,
    /// The backends it ran on, and the devices that are not available.
    pub(crate) chosen: Chosen,
    /// Failures of the machine, with the number of programs that could not run.
    pub(crate) environment: BTreeMap<String, u64>,
    /// Number of failures that were not examined, for lack of time or because there were enough
    /// findings; the folder `raw` holds them.
    pub(crate) pending: u64,
    /// The numbers of programs that exceeded a limit once, but not when they were run again alone.
    pub(crate) slow: Vec<String>,
}

/// Runs a hunt and prints its results.
///
/// # Errors
/// Bad flags, missing backends, workers that cannot be started.
pub(crate) fn hunt(options: &Hunt) -> Result<Status, Failure> {
    crate::interrupt::install();
    let report = run(options)?;
    if options.json {
        outln!("{}", summary(options, &report));
    } else {
        print_table(options, &report);
    }
    let excess = report.tally.unspecified_excess();
    if let Some(excess) = &excess {
        errln!("gradiff: the oracle leaves too much unspecified: {excess}");
    }
    if !report.findings.records().is_empty() || report.pending > 0 || excess.is_some() {
        return Ok(Status::Findings);
    }
    if report.tally.environment > 0 {
        let count = report.tally.environment;
        errln!("gradiff: {count} programs could not run: this machine is at fault, not the engine");
        return Ok(Status::Environment);
    }
    if !crate::interrupt::is_requested() {
        let count = report.tally.checked_elements + report.tally.unspecified_elements;
        crate::case::check_count(count, "checked elements", options.allow_empty)?;
    }
    Ok(Status::Clean)
}

/// Runs a hunt without writing to standard output.
///
/// # Errors
/// As [`hunt`].
pub(crate) fn run(options: &Hunt) -> Result<Report, Failure> {
    gradiff_check::check_canaries().map_err(Failure::Oracle)?;
    let config = crate::case::config(&options.lanes)?;
    let count = options.programs.or(options.seconds).unwrap_or(SECONDS);
    crate::case::check_count(count, "programs", options.allow_empty)?;
    findings::create(&options.findings)?;
    let known = findings::known(&options.known)?;
    let chosen = crate::case::choose(&options.backends, crate::case::hunted(), &options.require)?;
    for (device, reason) in &chosen.missing {
        errln!("gradiff: without {device}: {reason}");
    }
    let settings = Settings {
        seed: options.seed,
        backends: chosen.names.clone(),
        lanes: options.lanes.clone(),
        timeout_seconds: options.timeout,
        wall_seconds: options.wall_timeout,
        grace: GRACE,
    };
    let mut findings = Findings::new(&options.findings, &settings, known);
    let raw = Raw::of(&options.findings);
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let jobs = options.jobs.unwrap_or(cores);
    let limit = options.programs.unwrap_or(u64::MAX);
    let seconds = match (options.seconds, options.programs) {
        (None, None) => Some(SECONDS),
        (seconds, _) => seconds,
    };
    let mut progress = Progress::start(options.json || options.faults);
    let mut tally = Tally::default();
    let mut pairs = Pairs::default();
    let mut first_seconds = None;
    let mut environment = BTreeMap::new();
    let mut pending = 0;
    let mut slow = Vec::new();
    let supply = Supply {
        next: AtomicU64::new(0),
        limit,
        missing: AtomicU64::new(options.max_findings),
        unexamined: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        options,
        config: &config,
        raw,
    };
    let (sender, batches) = channel::<Result<Batch, Failure>>();
    let outcome = std::thread::scope(|scope| -> Result<(), Failure> {
        let _over = Over(&supply.is_over);
        for _ in 0..jobs {
            let (sender, client, supply) = (sender.clone(), Client::new(settings.clone()), &supply);
            let work = move || supply.work(client, sender);
            std::thread::Builder::new().spawn_scoped(scope, work).map_err(|error| {
                Failure::Environment(format!("a thread cannot be started: {error}"))
            })?;
        }
        drop(sender);
        let mut collect = || -> Result<(), Failure> {
            loop {
                let is_late = seconds.is_some_and(|limit| progress.seconds() >= limit as f64);
                if is_late || crate::interrupt::is_requested() {
                    supply.is_over.store(true, Ordering::SeqCst);
                }
                let batch = match batches.recv_timeout(Duration::from_millis(200)) {
                    Ok(Err(Failure::Interrupted)) => continue,
                    Ok(batch) => batch?,
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                        progress.report(&tally, findings.records().len());
                        continue;
                    }
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                };
                let count = batch.count();
                tally.add(&batch.tally);
                slow.extend(batch.slow);
                pending += batch.pending;
                for index in batch.numbers {
                    pairs.add(&gradiff_gen::program_at(options.seed, index, &config).program);
                }
                for (reason, count) in batch.environment {
                    *environment.entry(reason).or_default() += count;
                }
                if count + batch.pending > 0 {
                    first_seconds.get_or_insert(progress.seconds());
                }
                for (death, raw) in batch.deaths {
                    pending += unexamined(findings.add_death(&death, raw))?;
                }
                for (failed, raw) in batch.failures {
                    let is_enough = findings.records().len() as u64 >= options.max_findings;
                    if is_enough || crate::interrupt::is_requested() {
                        supply.is_over.store(true, Ordering::SeqCst);
                        pending += 1;
                        continue;
                    }
                    let program = supply.program(failed.index);
                    let origin = origin(options, failed.index);
                    let added = findings.add(&program, &failed, &origin, raw, &mut progress);
                    pending += unexamined(added)?;
                }
                let found = findings.records().len() as u64;
                let missing = options.max_findings.saturating_sub(found);
                supply.missing.store(missing, Ordering::SeqCst);
                if missing == 0 {
                    supply.is_over.store(true, Ordering::SeqCst);
                }
                supply.unexamined.fetch_sub(count, Ordering::SeqCst);
                progress.report(&tally, findings.records().len());
            }
        };
        collect()
    });
    progress.end();
    findings.close();
    outcome?;
    gradiff_check::check_canaries().map_err(Failure::Oracle)?;
    slow.extend_from_slice(findings.slow());
    let seconds = progress.seconds();
    Ok(Report {
        tally,
        pairs,
        findings,
        seconds,
        first_seconds,
        chosen,
        environment,
        pending,
        slow,
    })
}

/// Makes the workers of a hunt end when their parent does, whether by a return or by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Returns the number of failures that stay in their raw files: 1 if the machine prevented the
/// examination.
fn unexamined(added: Result<(), Failure>) -> Result<u64, Failure> {
    match added {
        Ok(()) => Ok(0),
        Err(Failure::Environment(reason)) => {
            errln!("gradiff: a failure could not be examined: {reason}");
            Ok(1)
        }
        Err(failure) => Err(failure),
    }
}

/// Hands out the numbers of programs, and writes failures to their raw files before anything else.
struct Supply<'a> {
    next: AtomicU64,
    limit: u64,
    /// Number of findings after which the hunt ends, less those that there are.
    missing: AtomicU64,
    /// Number of failures that were seen, but not minimised yet.
    unexamined: AtomicU64,
    is_over: AtomicBool,
    options: &'a Hunt,
    config: &'a Config,
    raw: Raw,
}

impl Supply<'_> {
    fn work(&self, mut client: Client, sender: Sender<Result<Batch, Failure>>) {
        loop {
            self.wait();
            let first = self.next.fetch_add(BATCH, Ordering::SeqCst);
            if self.is_over.load(Ordering::SeqCst) || first >= self.limit {
                break;
            }
            let count = BATCH.min(self.limit - first);
            let is_over = || self.is_over.load(Ordering::SeqCst);
            let early = RefCell::new(None);
            let lost = |death: &Death| *early.borrow_mut() = self.raw.death(death);
            let batch = match client.run(first, count, &is_over, &lost) {
                Ok(results) => Ok(self.batch(first..first + count, results)),
                Err(Failure::Environment(reason)) => Ok(Batch::failed(count, reason)),
                Err(failure) => Err(failure),
            };
            // A program that dies or hangs alone has a file of its own.
            if let (Ok(Batch { deaths, pending: 0, .. }), Some(early)) = (&batch, early.take())
                && deaths.is_empty()
            {
                Raw::remove(&early);
            }
            // A worker that cannot start would not start for the other batches either.
            let is_last = batch.as_ref().map_or(true, |batch| batch.tally.programs == 0);
            let failures = batch.as_ref().map_or(0, Batch::count);
            self.unexamined.fetch_add(failures, Ordering::SeqCst);
            if sender.send(batch).is_err() || is_last {
                break;
            }
            if client.is_worn() {
                self.close(&mut client, &sender);
            }
        }
        self.close(&mut client, &sender);
    }

    /// Waits while the failures that are not examined yet may be all that the hunt needs: further
    /// programs would take time from their reduction, and their failures would stay raw.
    fn wait(&self) {
        let is_enough = || {
            let missing = self.missing.load(Ordering::SeqCst);
            missing <= self.unexamined.load(Ordering::SeqCst)
        };
        while is_enough() && !self.is_over.load(Ordering::SeqCst) {
            std::thread::sleep(PAUSE);
        }
    }

    /// Ends the worker, which may have died since its last request, of what it did before.
    fn close(&self, client: &mut Client, sender: &Sender<Result<Batch, Failure>>) {
        if let Some(death) = client.close() {
            let tally = Tally { crashes: 1, ..Tally::default() };
            let results = Results { tally, deaths: vec![death], ..Results::default() };
            let batch = self.batch(0..0, results);
            self.unexamined.fetch_add(batch.count(), Ordering::SeqCst);
            // Sending fails if the hunt is over.
            let _ = sender.send(Ok(batch));
        }
    }

    fn program(&self, index: u64) -> Program {
        gradiff_gen::program_at(self.options.seed, index, self.config).program
    }

    fn batch(&self, numbers: Range<u64>, results: Results) -> Batch {
        let (unable, failures): (Vec<FailedProgram>, Vec<FailedProgram>) = results
            .failures
            .into_iter()
            .partition(|failed| failed.failure.kind == Kind::Environment);
        let written = |failed: FailedProgram| {
            let origin = origin(self.options, failed.index);
            let raw = self.raw.program(&self.program(failed.index), &failed.failure, &origin);
            (failed, raw)
        };
        let mut environment: BTreeMap<String, u64> = BTreeMap::new();
        for failed in unable {
            let reason = format!("{}: {}", failed.failure.backend, failed.failure.detail);
            let reason = clean(&reason.replace('\n', " ")).chars().take(REASON_CHARS).collect();
            *environment.entry(reason).or_default() += 1;
        }
        // The features of programs that did not run are not counted.
        let numbers = if results.tally.programs == 0 { 0..0 } else { numbers };
        Batch {
            numbers,
            tally: results.tally,
            failures: first_of_each(failures).into_iter().map(written).collect(),
            deaths: results.deaths.into_iter().map(|d| (d.clone(), self.raw.death(&d))).collect(),
            environment,
            slow: results.slow,
            pending: results.pending,
        }
    }
}

/// Returns the first failure of each program in the engine, and on each peer: one that fails on
/// several backends of the engine is found once.
fn first_of_each(failures: Vec<FailedProgram>) -> Vec<FailedProgram> {
    let mut first = BTreeMap::new();
    for failed in failures {
        let backend = failed.failure.backend.clone();
        let peer = Some(backend).filter(|backend| gradiff_check::is_peer(backend));
        first.entry((failed.index, peer)).or_insert(failed);
    }
    first.into_values().collect()
}

fn origin(options: &Hunt, index: u64) -> String {
    let lanes = match options.lanes.is_empty() {
        true => String::new(),
        false => format!(" --lanes {}", options.lanes.join(",")),
    };
    format!("gradiff gen --seed {} --first {index}{lanes}", options.seed)
}

fn summary(options: &Hunt, report: &Report) -> serde_json::Value {
    let tally = &report.tally;
    let files: Vec<String> = report
        .findings
        .records()
        .iter()
        .flat_map(|record| record.path.iter().chain(&record.further))
        .map(|path| path.display().to_string())
        .collect();
    let details: Vec<serde_json::Value> = report
        .findings
        .records()
        .iter()
        .map(|record| match &record.form {
            Form::Program(finding) => {
                let blame = finding.blame.as_ref();
                let culprit = blame.and_then(|blame| blame.rule.as_ref());
                json!({"story": record.description(), "count": record.count,
                       "statements": finding.program.statements.len(),
                       "stage": blame.map(|b| b.stage.name()),
                       "crate": blame.map(|b| b.crate_name.name()),
                       "rule": culprit.map(|culprit| culprit.rule.clone())})
            }
            Form::Sequence(sequence, _) => {
                json!({"story": record.description(), "count": record.count,
                       "programs": sequence.count()})
            }
        })
        .collect();
    let known: BTreeMap<String, u64> = (report.findings.known().iter())
        .map(|known| (known.path.display().to_string(), known.count))
        .collect();
    json!({
        "programs": tally.programs,
        "programs_per_second": tally.programs as f64 / report.seconds.max(1e-9),
        "checked_elements": tally.checked_elements,
        "vacuous_elements": tally.vacuous_elements,
        "unspecified_fraction": tally.unspecified_fraction(),
        "unspecified": tally.unspecified,
        "unspecified_excess": tally.unspecified_excess(),
        "mismatches": tally.mismatches,
        "crashes": tally.crashes,
        "timeouts": tally.timeouts,
        "not_reproduced": report.findings.not_reproduced(),
        "pending": report.pending,
        "environment": tally.environment,
        "environment_reasons": report.environment,
        "missing": report.chosen.missing,
        "slow": report.slow,
        "skipped": tally.skipped,
        "feature_pairs": {"seen": report.pairs.seen(), "possible": Pairs::POSSIBLE},
        "seed": options.seed,
        "backends": report.chosen.names,
        "seconds": report.seconds,
        "first_seconds": report.first_seconds,
        "findings": files,
        "known": known,
        "details": details,
    })
}

fn print_table(options: &Hunt, report: &Report) {
    let tally = &report.tally;
    let rows = [
        ("seed", options.seed.to_string()),
        ("backends", report.chosen.names.join(", ")),
        ("programs", tally.programs.to_string()),
        ("programs/s", format!("{:.0}", tally.programs as f64 / report.seconds.max(1e-9))),
        ("checked elements", tally.checked_elements.to_string()),
        ("vacuous", format!("{:.3} %", 100.0 * tally.share(tally.vacuous_elements))),
        ("unspecified", format!("{:.3} %", 100.0 * tally.unspecified_fraction())),
        ("feature pairs", format!("{} of {}", report.pairs.seen(), Pairs::POSSIBLE)),
        ("mismatches", tally.mismatches.to_string()),
        ("crashes", tally.crashes.to_string()),
        ("timeouts", tally.timeouts.to_string()),
        ("environment", tally.environment.to_string()),
        ("findings", report.findings.records().len().to_string()),
    ];
    for (name, value) in rows {
        outln!("{name:18}{value}");
    }
    for numbers in &report.slow {
        outln!("{:18}{numbers}: over the limit once, but not alone", "slow");
    }
    let not_reproduced = report.findings.not_reproduced();
    if not_reproduced > 0 {
        outln!("{:18}{not_reproduced} deaths of workers, counted as findings", "not reproduced");
    }
    if report.pending > 0 {
        let (pending, folder) = (report.pending, options.findings.join("raw"));
        outln!("{:18}{pending} failures not examined, in {}", "pending", folder.display());
    }
    for (reason, count) in &report.environment {
        outln!("{:18}{count} programs, {reason}", "environment");
    }
    for (device, reason) in &report.chosen.missing {
        outln!("{:18}{device}: {reason}", "missing");
    }
    let mut origins: Vec<_> = tally.unspecified.iter().collect();
    origins.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (origin, count) in origins.into_iter().take(UNSPECIFIED_ROWS) {
        outln!("{:18}{:.4} %, {origin}", "unspecified", 100.0 * tally.share(*count));
    }
    let mut skipped: Vec<_> = tally.skipped.iter().collect();
    skipped.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (reason, count) in skipped.iter().take(SKIPPED_ROWS) {
        outln!("{:18}{count} programs, {reason}", "skipped");
    }
    if let Some(others @ [_, ..]) = skipped.get(SKIPPED_ROWS..) {
        let programs: u64 = others.iter().map(|(_, count)| **count).sum();
        let reasons = others.len();
        outln!("{:18}{programs} programs, {reasons} rarer reasons; --json lists them", "skipped");
    }
    for known in report.findings.known().iter().filter(|known| known.count > 0) {
        outln!("{:18}{} programs, {}", "known", known.count, known.path.display());
    }
    for record in report.findings.records() {
        outln!();
        let times =
            if record.count == 1 { String::new() } else { format!(" ({} times)", record.count) };
        outln!("{}{times}", record.description());
        match &record.path {
            Some(path) => outln!("saved as {}", path.display()),
            None => outln!("not saved: see above"),
        }
        for path in &record.further {
            outln!("and as {}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_a_peer_hides_none_of_the_engine_or_of_another_peer() {
        let failed = |(index, backend): (u64, &str)| {
            let (backend, detail) = (backend.to_string(), String::new());
            let failure = gradiff_check::Failure { backend, kind: Kind::Mismatch, detail };
            FailedProgram { index, failure, death: None, sequence: Default::default() }
        };
        let failures = [(4, "numpy"), (3, "numpy"), (3, "interp"), (3, "c/opts"), (3, "numpy@2.0")];
        let first = first_of_each(failures.into_iter().map(failed).collect());
        let first: Vec<(u64, &str)> =
            first.iter().map(|failed| (failed.index, failed.failure.backend.as_str())).collect();
        assert_eq!(first, [(3, "interp"), (3, "numpy"), (3, "numpy@2.0"), (4, "numpy")]);
    }

    #[test]
    fn workers_end_when_their_parent_panics() {
        let (is_over, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let hunt = || {
            std::thread::scope(|scope| {
                let _over = Over(&is_over);
                scope.spawn(|| {
                    // Longer than the parent takes.
                    let mut waits = 0..1000;
                    while !is_over.load(Ordering::SeqCst) && waits.next().is_some() {
                        std::thread::sleep(PAUSE);
                    }
                    has_ended.store(is_over.load(Ordering::SeqCst), Ordering::SeqCst);
                });
                assert!(is_over.load(Ordering::SeqCst), "a panic");
            })
        };
        assert!(std::panic::catch_unwind(hunt).is_err());
        assert!(has_ended.load(Ordering::SeqCst));
    }
}
