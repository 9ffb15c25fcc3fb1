//! `gradiff hunt`: workers run programs, this process counts, minimises and reports.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use gradiff_check::{Failure as Found, Tally};
use gradiff_gen::Pairs;
use serde_json::json;

use crate::args::Hunt;
use crate::findings::Findings;
use crate::pool::{Client, Settings};
use crate::progress::Progress;
use crate::{Failure, Status};

/// Programs that a worker takes at once: they share one call of each compiler.
const BATCH: u64 = 64;
const SECONDS: u64 = 60;
/// Most rows of the table that say what is unspecified.
const UNSPECIFIED_ROWS: usize = 5;

/// The numbers of the programs of a batch, and what became of them.
type Batch = Result<(Range<u64>, Tally, Vec<(u64, Found)>), Failure>;

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
    /// The backends it ran on.
    pub(crate) backends: Vec<String>,
}

/// Runs a hunt and prints what came of it.
///
/// # Errors
/// Bad flags, missing backends, workers that cannot be started.
pub(crate) fn hunt(options: &Hunt) -> Result<Status, Failure> {
    crate::interrupt::install();
    let report = run(options)?;
    if options.json {
        println!("{}", summary(options, &report));
    } else {
        print_table(options, &report);
    }
    let excess = report.tally.unspecified_excess();
    if let Some(excess) = &excess {
        eprintln!("gradiff: the oracle says too little: {excess}");
    }
    let is_clean = report.findings.kept().is_empty() && excess.is_none();
    Ok(if is_clean { Status::Clean } else { Status::Findings })
}

/// Runs a hunt without a word on standard output.
///
/// # Errors
/// As [`hunt`].
pub(crate) fn run(options: &Hunt) -> Result<Report, Failure> {
    gradiff_check::check_canaries().map_err(Failure::Oracle)?;
    let config = crate::case::config(&options.lanes)?;
    let settings = Settings {
        seed: options.seed,
        backends: crate::case::names(&options.backends, crate::case::hunted())?,
        lanes: options.lanes.clone(),
        timeout_seconds: options.timeout,
        wall_seconds: options.wall_timeout,
    };
    let mut findings = Findings::open(&options.findings, &settings)?;
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
    let supply = Supply { next: AtomicU64::new(0), limit, is_over: AtomicBool::new(false) };
    let (sender, batches) = channel::<Batch>();
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
                let (numbers, batch, failures) =
                    match batches.recv_timeout(Duration::from_millis(200)) {
                        Ok(batch) => batch?,
                        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                            progress.tell(&tally, findings.kept().len());
                            continue;
                        }
                        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                    };
                tally.add(&batch);
                for index in numbers {
                    pairs.add(&gradiff_gen::program_at(options.seed, index, &config).program);
                }
                if !failures.is_empty() {
                    first_seconds.get_or_insert(progress.seconds());
                }
                for (index, found) in one_each(failures) {
                    if findings.kept().len() as u64 >= options.max_findings {
                        supply.is_over.store(true, Ordering::SeqCst);
                        break;
                    }
                    let program = gradiff_gen::program_at(options.seed, index, &config).program;
                    let origin = origin(options, index);
                    findings.add(&program, &found, &origin)?;
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
    Ok(Report { tally, pairs, findings, seconds, first_seconds, backends: settings.backends })
}

/// Hands out the numbers of programs.
struct Supply {
    next: AtomicU64,
    limit: u64,
    is_over: AtomicBool,
}

impl Supply {
    fn work(&self, mut client: Client, sender: Sender<Batch>) {
        while !self.is_over.load(Ordering::SeqCst) {
            let first = self.next.fetch_add(BATCH, Ordering::SeqCst);
            if first >= self.limit {
                break;
            }
            let count = BATCH.min(self.limit - first);
            let batch = client.run(first, count);
            let batch = batch.map(|(tally, found)| (first..first + count, tally, found));
            let is_failed = batch.is_err();
            if sender.send(batch).is_err() || is_failed {
                break;
            }
        }
    }
}

/// The first failure of each program: what several backends get wrong is found once.
fn one_each(failures: Vec<(u64, Found)>) -> Vec<(u64, Found)> {
    let mut kept: Vec<(u64, Found)> = Vec::new();
    for (index, found) in failures {
        if !kept.iter().any(|(known, _)| *known == index) {
            kept.push((index, found));
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
        .map(|kept| {
            let blame = kept.finding.blame.as_ref();
            json!({"story": kept.finding.story(), "count": kept.count,
                   "statements": kept.finding.program.statements.len(),
                   "stage": blame.map(|b| b.stage.clone()), "room": blame.map(|b| b.room.clone()),
                   "rule": blame.and_then(|b| b.rule.as_ref()).map(|guilt| guilt.rule.clone())})
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
        "slow": tally.slow,
        "skipped": tally.skipped,
        "feature_pairs": {"seen": report.pairs.seen(), "possible": Pairs::POSSIBLE},
        "seed": options.seed,
        "backends": report.backends,
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
        ("backends", report.backends.join(", ")),
        ("programs", tally.programs.to_string()),
        ("programs/s", format!("{:.0}", tally.programs as f64 / report.seconds.max(1e-9))),
        ("checked elements", tally.checked_elements.to_string()),
        ("unspecified", format!("{:.3} %", 100.0 * tally.unspecified_fraction())),
        ("feature pairs", format!("{} of {}", report.pairs.seen(), Pairs::POSSIBLE)),
        ("mismatches", tally.mismatches.to_string()),
        ("crashes", tally.crashes.to_string()),
        ("timeouts", tally.timeouts.to_string()),
        ("findings", report.findings.kept().len().to_string()),
    ];
    for (name, value) in rows {
        println!("{name:18}{value}");
    }
    if tally.slow > 0 {
        println!("{:18}{} programs, over the limit once, not alone", "slow", tally.slow);
    }
    let mut origins: Vec<_> = tally.unspecified.iter().collect();
    origins.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (origin, count) in origins.into_iter().take(UNSPECIFIED_ROWS) {
        println!("{:18}{:.4} %, {origin}", "unspecified", 100.0 * tally.share(*count));
    }
    for (reason, count) in &tally.skipped {
        println!("{:18}{count} programs, {reason}", "skipped");
    }
    for kept in report.findings.kept() {
        println!();
        let times =
            if kept.count == 1 { String::new() } else { format!(" ({} times)", kept.count) };
        println!("{}{times}", kept.finding.story());
        match &kept.path {
            Some(path) => println!("kept as {}", path.display()),
            None => println!("not kept: see above"),
        }
    }
}
