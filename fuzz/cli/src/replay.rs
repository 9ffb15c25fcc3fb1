//! The commands on corpus files: replay, reduce, show, blame; and the list of backends.

use std::path::Path;
use std::time::Duration;

use gradiff_check::{Failure as Found, Kind};
use gradiff_corpus::{Case, CaseFile, Program};

use crate::args::{Blame, On, Reduce, Replay, Show};
use crate::out::{out, outln};
use crate::pool::{Client, Settings};
use crate::sequence::Sequence;
use crate::{Failure, Status};

fn client(on: &On, required: &[String]) -> Result<Client, Failure> {
    Ok(Client::new(settings(on, required)?))
}

fn settings(on: &On, required: &[String]) -> Result<Settings, Failure> {
    let chosen = crate::case::choose(&on.backends, crate::case::all(), required)?;
    Ok(Settings {
        seed: 0,
        backends: chosen.names,
        lanes: Vec::new(),
        timeout_seconds: on.timeout,
        wall_seconds: on.wall_timeout,
        grace: Duration::ZERO,
    })
}

/// What a file holds.
enum Content {
    Case(CaseFile),
    Sequence(Sequence),
}

/// What became of a file.
#[derive(Default)]
struct Outcome {
    /// What is wrong with it.
    problems: Vec<String>,
    /// What the machine failed in.
    environment: Vec<String>,
    /// Where it was not run, and why.
    skips: Vec<String>,
}

/// Runs each file and checks what it expects; a line for each, the failures and skips with their
/// reasons.
///
/// # Errors
/// Files that cannot be read or parsed; missing backends; an end that was asked for before anything
/// was found.
pub(crate) fn replay(options: &Replay) -> Result<Status, Failure> {
    crate::interrupt::install();
    gradiff_check::check_canaries().map_err(Failure::Oracle)?;
    let files = crate::case::files(&options.files, options.allow_empty)?;
    let contents: Vec<Content> =
        files.iter().map(|file| content(file)).collect::<Result<_, _>>()?;
    let settings = settings(&options.on, &options.require)?;
    let mut client = Client::new(settings.clone());
    let (mut failed, mut sick, mut skipped, mut done) = (0, 0, 0, 0);
    for (file, content) in files.iter().zip(&contents) {
        let outcome = match content {
            Content::Case(case) => of_case(case, &mut client),
            Content::Sequence(sequence) => of_sequence(sequence, options, &settings),
        };
        let outcome = match outcome {
            Err(Failure::Interrupted) => break,
            outcome => outcome?,
        };
        let word = match (outcome.problems.is_empty(), outcome.environment.is_empty()) {
            (false, _) => "FAIL",
            (true, false) => "SICK",
            (true, true) => "ok  ",
        };
        outln!("{word}  {}", file.display());
        failed += usize::from(!outcome.problems.is_empty());
        sick += usize::from(!outcome.environment.is_empty());
        skipped += usize::from(!outcome.skips.is_empty());
        for line in [outcome.problems, outcome.environment, outcome.skips].concat() {
            outln!("      {line}");
        }
        done += 1;
    }
    let count = files.len();
    let sick_words = match sick {
        0 => String::new(),
        _ => format!(", {sick} could not run somewhere (this machine is at fault)"),
    };
    outln!(
        "{done} of {count} cases replayed, {failed} failed, {skipped} skipped somewhere{sick_words}"
    );
    match (failed, sick) {
        (1.., _) => Ok(Status::Findings),
        _ if done < count => Err(Failure::Interrupted),
        (_, 1..) => Ok(Status::Environment),
        _ => Ok(Status::Clean),
    }
}

fn content(path: &Path) -> Result<Content, Failure> {
    if !crate::case::is_sequence(path) {
        return crate::case::read(path).map(Content::Case);
    }
    let failed = |error| Failure::Usage(format!("{}: {error}", path.display()));
    Sequence::parse(&crate::case::text(path)?).map(Content::Sequence).map_err(failed)
}

/// Runs a case in a worker, which may die of it or be ended.
fn of_case(case: &CaseFile, client: &mut Client) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    if let Case::Program(program) = &case.case {
        let (tally, failures) = client.judge_twice(program)?;
        sort(&failures, &mut outcome);
        outcome.skips.extend(tally.skipped.keys().map(|reason| format!("skipped on {reason}")));
    }
    outcome.problems.extend(client.check(&case.to_string())?);
    Ok(outcome)
}

/// Runs what a worker has died of in a fresh one, on the backends of the file unless others are
/// named.
fn of_sequence(
    sequence: &Sequence,
    options: &Replay,
    settings: &Settings,
) -> Result<Outcome, Failure> {
    let mut sequence = sequence.clone();
    if !options.on.backends.is_empty() || sequence.backends.is_empty() {
        sequence.backends = settings.backends.clone();
    }
    let Sequence { seed, lanes, backends, .. } = sequence.clone();
    crate::case::config(&lanes)?;
    crate::case::choose(&backends, std::iter::empty(), &[])?;
    let mut client = Client::new(Settings { seed, lanes, backends, ..settings.clone() });
    let (ran, death) = client.replay(&sequence)?;
    let mut outcome = Outcome::default();
    let failures: Vec<Found> =
        ran.failures.into_iter().map(|seen| seen.found).chain(death).collect();
    sort(&failures, &mut outcome);
    outcome.skips.extend(ran.tally.skipped.keys().map(|reason| format!("skipped on {reason}")));
    Ok(outcome)
}

fn sort(failures: &[Found], outcome: &mut Outcome) {
    for found in failures {
        let words = format!("{} on {}: {}", found.kind.name(), found.backend, found.detail);
        match found.kind {
            Kind::Environment => outcome.environment.push(words),
            _ => outcome.problems.push(words),
        }
    }
}

/// Prints the smallest program that fails as the one in the file does.
///
/// # Errors
/// The file holds no program, or one that does not fail.
pub(crate) fn reduce(options: &Reduce) -> Result<Status, Failure> {
    crate::interrupt::install();
    let program = program(&options.file)?;
    let mut client = client(&options.on, &[])?;
    let Some(found) = failure(&program, &mut client)? else {
        outln!("{}: nothing fails; nothing to reduce", options.file.display());
        return Ok(Status::Clean);
    };
    let small = crate::findings::minimise(&program, &found, &mut client)?;
    outln!("# {} on {}: {}", found.kind.name(), found.backend, found.detail);
    out!("{small}");
    Ok(Status::Findings)
}

/// Prints one stage of one file.
///
/// # Errors
/// An unknown stage; a stage that the case has not.
pub(crate) fn show(options: &Show) -> Result<Status, Failure> {
    let opts = options.opts.as_deref().map(crate::opts::parse).transpose()?;
    let case = crate::case::read(&options.file)?;
    let (stage, target) = (options.stage.as_str(), options.target.as_deref());
    let shown = gradiff_check::Shown { stage, opts: opts.as_deref(), target };
    let text = gradiff_check::catch(|| gradiff_check::show(&case.case, shown))
        .and_then(|shown| shown)
        .map_err(Failure::Usage)?;
    out!("{text}");
    Ok(Status::Clean)
}

/// Names the guilty stage of one file.
///
/// # Errors
/// A file that cannot be read; missing backends.
pub(crate) fn blame(options: &Blame) -> Result<Status, Failure> {
    crate::interrupt::install();
    let case = crate::case::read(&options.file)?;
    let said = match &case.case {
        Case::Program(program) => {
            let mut client = client(&options.on, &[])?;
            match failure(program, &mut client)? {
                None => None,
                Some(found) => {
                    let blame = client.blame(program, &found.backend)?;
                    let of = blame
                        .map_or("no stage alone: every stage is right".to_string(), |b| {
                            b.to_string()
                        });
                    Some(format!("{} on {}: {of}", found.kind.name(), found.backend))
                }
            }
        }
        Case::Views(views) => gradiff_check::blame_views(views).map(|blame| blame.to_string()),
        Case::Expr(expr) => gradiff_check::blame_expr(expr).map(|blame| blame.to_string()),
    };
    match said {
        None => {
            outln!("{}: nothing fails; nobody to blame", options.file.display());
            Ok(Status::Clean)
        }
        Some(said) => {
            outln!("{said}");
            Ok(Status::Findings)
        }
    }
}

fn program(path: &Path) -> Result<Program, Failure> {
    match crate::case::read(path)?.case {
        Case::Program(program) => Ok(program),
        Case::Views(_) | Case::Expr(_) => Err(Failure::Usage(format!(
            "{}: only programs are reduced; this case is small already",
            path.display()
        ))),
    }
}

/// The first failure that is the engine's.
///
/// # Errors
/// No worker can be started; the machine fails, and nothing else does.
fn failure(program: &Program, client: &mut Client) -> Result<Option<Found>, Failure> {
    let failures = client.judge(program)?.1.into_iter();
    let (sick, failures): (Vec<Found>, Vec<Found>) =
        failures.partition(|found| found.kind == Kind::Environment);
    match (failures.into_iter().next(), sick.into_iter().next()) {
        (None, Some(sick)) => {
            Err(Failure::Environment(format!("backend {}: {}", sick.backend, sick.detail)))
        }
        (found, _) => Ok(found),
    }
}

/// A line for each backend.
///
/// # Errors
/// None.
pub(crate) fn backends() -> Result<Status, Failure> {
    for row in gradiff_check::BACKENDS {
        let status = match row.status() {
            Ok(version) => format!("found      {version}"),
            Err(reason) => {
                let install = row.install().map(|how| format!("; on Debian: {how}"));
                format!("not found  {reason}{}", install.unwrap_or_default())
            }
        };
        let hunted = match row.default_word() {
            None => "hunts run it where it is named".to_string(),
            Some(word) => match word.split_once(':') {
                None => "hunts run every program on it".to_string(),
                Some((_, every)) => format!("hunts run one of {every} programs on it"),
            },
        };
        outln!("{:26}{status}\n{:26}{}; {hunted}", row.name, "", row.story);
    }
    Ok(Status::Clean)
}
