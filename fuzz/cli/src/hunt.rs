//! `gradiff hunt`: workers run programs, this process counts, minimises and reports.

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
use crate::findings::{Findings, Form, Raw};
use crate::out::{clean, errln, outln};
use crate::pool::{Client, Death, Ran, Seen, Settings};
use crate::progress::Progress;
use crate::{Failure, Status};

/// Programs that a worker takes at once: they share one call of each compiler.
const BATCH: u64 = 64;
const SECONDS: u64 = 60;
/// Most rows of the table that say what is unspecified.
const UNSPECIFIED_ROWS: usize = 5;

/// How long a batch may take that runs when an end is asked for.
const GRACE: Duration = Duration::from_secs(3);
/// Longest part of a message of the environment that is shown.
const REASON_CHARS: usize = 300;

/// What became of programs.
struct Batch {
    numbers: Range<u64>,
    tally: Tally,
    /// The first failure of each program, with the file that it is written to.
    failures: Vec<(Seen, Option<PathBuf>)>,
    deaths: Vec<(Death, Option<PathBuf>)>,
    /// What the machine failed in, and how often.
    environment: BTreeMap<String, u64>,
}

impl Batch {
    /// No program of so many could run.
    fn unable(count: u64, why: String) -> Batch {
        Batch {
            numbers: 0..0,
            tally: Tally { environment: count, ..Tally::default() },
            failures: Vec::new(),
            deaths: Vec::new(),
            environment: BTreeMap::from([(why, count)]),
        }
    }
}

/// What a hunt did.
pub(crate) struct Report {
    /// Sums over all programs.
    pub(crate) tally: Tally,
    /// The pairs of features that the programs had.
    pub(crate) pairs: Pairs,
    /// The different findings.
    pub(crate) findings: Findings,
    /// Seconds it took.
    pub(crate) seconds: f64,
    /// Seconds until the first failure was seen.
    pub(crate) first_seconds: Option<f64>,
    /// The backends it ran on, and the devices that are not there.
    pub(crate) chosen: Chosen,
    /// What the machine failed in, and how many programs could not run for it.
    pub(crate) environment: BTreeMap<String, u64>,
    /// Failures that were not looked at, for want of time or since there were enough findings; the
    /// folder `raw` holds them.
    pub(crate) pending: u64,
}

/// Runs a hunt and prints what came of it.
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
        errln!("gradiff: the oracle says too little: {excess}");
    }
    if !report.findings.kept().is_empty() || report.pending > 0 || excess.is_some() {
        return Ok(Status::Findings);
    }
    if report.tally.environment > 0 {
        let count = report.tally.environment;
        errln!("gradiff: {count} programs could not run: this machine is at fault, not the engine");
        return Ok(Status::Environment);
    }
    if !crate::interrupt::is_asked() {
        crate::case::check_count(report.tally.programs, "programs", options.allow_empty)?;
    }
    Ok(Status::Clean)
}

/// Runs a hunt without a word on standard output.
///
/// # Errors
/// As [`hunt`].
pub(crate) fn run(options: &Hunt) -> Result<Report, Failure> {
    gradiff_check::check_canaries().map_err(Failure::Oracle)?;
    let config = crate::case::config(&options.lanes)?;
    let count = options.programs.or(options.seconds).unwrap_or(SECONDS);
    crate::case::check_count(count, "programs", options.allow_empty)?;
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
    let mut findings = Findings::open(&options.findings, &settings)?;
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
    let supply = Supply {
        next: AtomicU64::new(0),
        limit,
        is_over: AtomicBool::new(false),
        options,
        config: &config,
        raw,
    };
    let (sender, batches) = channel::<Result<Batch, Failure>>();
    let outcome = std::thread::scope(|scope| {
        for _ in 0..jobs {
            let (sender, client, supply) = (sender.clone(), Client::new(settings.clone()), &supply);
            scope.spawn(move || supply.work(client, sender));
        }
        drop(sender);
        let mut collect = || -> Result<(), Failure> {
            loop {
                let is_late = seconds.is_some_and(|limit| progress.seconds() >= limit as f64);
                if is_late || crate::interrupt::is_asked() {
                    supply.is_over.store(true, Ordering::SeqCst);
                }
                let batch = match batches.recv_timeout(Duration::from_millis(200)) {
                    Ok(Err(Failure::Interrupted)) => continue,
                    Ok(batch) => batch?,
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                        progress.tell(&tally, findings.kept().len());
                        continue;
                    }
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                };
                tally.add(&batch.tally);
                for index in batch.numbers {
                    pairs.add(&gradiff_gen::program_at(options.seed, index, &config).program);
                }
                for (reason, count) in batch.environment {
                    *environment.entry(reason).or_default() += count;
                }
                if !batch.failures.is_empty() || !batch.deaths.is_empty() {
                    first_seconds.get_or_insert(progress.seconds());
                }
                for (death, raw) in batch.deaths {
                    pending += left(findings.add_death(&death, raw))?;
                }
                for (seen, raw) in batch.failures {
                    let is_enough = findings.kept().len() as u64 >= options.max_findings;
                    if is_enough || crate::interrupt::is_asked() {
                        supply.is_over.store(true, Ordering::SeqCst);
                        pending += 1;
                        continue;
                    }
                    let program = supply.program(seen.index);
                    let origin = origin(options, seen.index);
                    pending += left(findings.add(&program, &seen, &origin, raw))?;
                }
                progress.tell(&tally, findings.kept().len());
            }
        };
        let outcome = collect();
        supply.is_over.store(true, Ordering::SeqCst);
        outcome
    });
    progress.end();
    findings.close();
    outcome?;
    gradiff_check::check_canaries().map_err(Failure::Oracle)?;
    tally.slow += findings.slow();
    let seconds = progress.seconds();
    Ok(Report { tally, pairs, findings, seconds, first_seconds, chosen, environment, pending })
}

/// How many failures are left as they are, in their raw file: one, if the machine does not let it be
/// looked at.
fn left(added: Result<(), Failure>) -> Result<u64, Failure> {
    match added {
        Ok(()) => Ok(0),
        Err(Failure::Environment(why)) => {
            errln!("gradiff: a failure is left as it is: {why}");
            Ok(1)
        }
        Err(failure) => Err(failure),
    }
}

/// Hands out the numbers of programs, and writes down what fails before anybody else sees it.
struct Supply<'a> {
    next: AtomicU64,
    limit: u64,
    is_over: AtomicBool,
    options: &'a Hunt,
    config: &'a Config,
    raw: Raw,
}

impl Supply<'_> {
    fn work(&self, mut client: Client, sender: Sender<Result<Batch, Failure>>) {
        while !self.is_over.load(Ordering::SeqCst) {
            let first = self.next.fetch_add(BATCH, Ordering::SeqCst);
            if first >= self.limit {
                break;
            }
            let count = BATCH.min(self.limit - first);
            let batch = match client.run(first, count) {
                Ok(ran) => Ok(self.batch(first..first + count, ran)),
                Err(Failure::Environment(why)) => Ok(Batch::unable(count, why)),
                Err(failure) => Err(failure),
            };
            // A worker that cannot even start would fail at all the others as well.
            let is_last = batch.as_ref().map_or(true, |batch| batch.tally.programs == 0);
            if sender.send(batch).is_err() || is_last {
                break;
            }
            if client.is_worn() {
                self.close(&mut client, &sender);
            }
        }
        self.close(&mut client, &sender);
    }

    /// Ends the worker. With nothing to do it may have died of what it did before.
    fn close(&self, client: &mut Client, sender: &Sender<Result<Batch, Failure>>) {
        if let Some(death) = client.close() {
            let tally = Tally { crashes: 1, ..Tally::default() };
            let ran = Ran { tally, failures: Vec::new(), deaths: vec![death] };
            // Without a receiver the hunt is over.
            let _ = sender.send(Ok(self.batch(0..0, ran)));
        }
    }

    fn program(&self, index: u64) -> Program {
        gradiff_gen::program_at(self.options.seed, index, self.config).program
    }

    fn batch(&self, numbers: Range<u64>, ran: Ran) -> Batch {
        let (sick, failures): (Vec<Seen>, Vec<Seen>) =
            ran.failures.into_iter().partition(|seen| seen.found.kind == Kind::Environment);
        let written = |seen: Seen| {
            let origin = origin(self.options, seen.index);
            let raw = self.raw.program(&self.program(seen.index), &seen.found, &origin);
            (seen, raw)
        };
        let mut environment: BTreeMap<String, u64> = BTreeMap::new();
        for seen in sick {
            let reason = format!("{}: {}", seen.found.backend, seen.found.detail);
            let reason = clean(&reason.replace('\n', " ")).chars().take(REASON_CHARS).collect();
            *environment.entry(reason).or_default() += 1;
        }
        // Of programs that did not run there are no features to count.
        let numbers = if ran.tally.programs == 0 { 0..0 } else { numbers };
        Batch {
            numbers,
            tally: ran.tally,
            failures: one_each(failures).into_iter().map(written).collect(),
            deaths: ran.deaths.into_iter().map(|d| (d.clone(), self.raw.death(&d))).collect(),
            environment,
        }
    }
}

/// The first failure of each program: what several backends get wrong is found once.
fn one_each(failures: Vec<Seen>) -> Vec<Seen> {
    let mut kept: Vec<Seen> = Vec::new();
    for seen in failures {
        if !kept.iter().any(|known| known.index == seen.index) {
            kept.push(seen);
        }
    }
    kept
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
        .kept()
        .iter()
        .filter_map(|kept| kept.path.as_ref().map(|path| path.display().to_string()))
        .collect();
    let details: Vec<serde_json::Value> = report
        .findings
        .kept()
        .iter()
        .map(|kept| match &kept.what {
            Form::Program(finding) => {
                let blame = finding.blame.as_ref();
                json!({"story": kept.story(), "count": kept.count,
                       "statements": finding.program.statements.len(),
                       "stage": blame.map(|b| b.stage.clone()),
                       "room": blame.map(|b| b.room.clone()),
                       "rule": blame.and_then(|b| b.rule.as_ref()).map(|guilt| guilt.rule.clone())})
            }
            Form::Sequence(sequence, _) => {
                json!({"story": kept.story(), "count": kept.count, "programs": sequence.count()})
            }
        })
        .collect();
    json!({
        "programs": tally.programs,
        "programs_per_second": tally.programs as f64 / report.seconds.max(1e-9),
        "checked_elements": tally.checked_elements,
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
        "slow": tally.slow,
        "skipped": tally.skipped,
        "feature_pairs": {"seen": report.pairs.seen(), "possible": Pairs::POSSIBLE},
        "seed": options.seed,
        "backends": report.chosen.names,
        "seconds": report.seconds,
        "first_seconds": report.first_seconds,
        "findings": files,
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
        ("unspecified", format!("{:.3} %", 100.0 * tally.unspecified_fraction())),
        ("feature pairs", format!("{} of {}", report.pairs.seen(), Pairs::POSSIBLE)),
        ("mismatches", tally.mismatches.to_string()),
        ("crashes", tally.crashes.to_string()),
        ("timeouts", tally.timeouts.to_string()),
        ("environment", tally.environment.to_string()),
        ("findings", report.findings.kept().len().to_string()),
    ];
    for (name, value) in rows {
        outln!("{name:18}{value}");
    }
    if tally.slow > 0 {
        outln!("{:18}{} programs, over the limit once, not alone", "slow", tally.slow);
    }
    let not_reproduced = report.findings.not_reproduced();
    if not_reproduced > 0 {
        outln!("{:18}{not_reproduced} deaths of workers, which are findings", "not reproduced");
    }
    if report.pending > 0 {
        let (pending, folder) = (report.pending, options.findings.join("raw"));
        outln!("{:18}{pending} failures not looked at, in {}", "pending", folder.display());
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
    for (reason, count) in &tally.skipped {
        outln!("{:18}{count} programs, {reason}", "skipped");
    }
    for kept in report.findings.kept() {
        outln!();
        let times =
            if kept.count == 1 { String::new() } else { format!(" ({} times)", kept.count) };
        outln!("{}{times}", kept.story());
        match &kept.path {
            Some(path) => outln!("kept as {}", path.display()),
            None => outln!("not kept: see above"),
        }
    }
}
