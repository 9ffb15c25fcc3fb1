//! Commands on corpus files: `replay`, `reduce`, `show` and `blame`; and `backends`.

use std::path::Path;
use std::time::Duration;

use gradiff_check::{Answer, Failure as CheckFailure, Kind};
use gradiff_corpus::{Case, CaseFile, Program};

use crate::args::{Blame, Reduce, Replay, RunFlags, Show};
use crate::out::{out, outln};
use crate::pool::{Client, Settings};
use crate::progress::Progress;
use crate::sequence::Sequence;
use crate::{Failure, Status};

fn client(flags: &RunFlags, required: &[String]) -> Result<Client, Failure> {
    Ok(Client::new(settings(flags, required)?))
}

fn settings(flags: &RunFlags, required: &[String]) -> Result<Settings, Failure> {
    for word in &flags.backends {
        let name = gradiff_check::name_of(word);
        if name != word {
            let message = format!("backend {word}: only hunts run one program in so many");
            return Err(Failure::Usage(format!("{message}; this command takes {name}")));
        }
    }
    let chosen = crate::case::choose(&flags.backends, crate::case::all(), required)?;
    Ok(Settings {
        seed: 0,
        backends: chosen.names,
        lanes: Vec::new(),
        timeout_seconds: flags.timeout,
        wall_seconds: flags.wall_timeout,
        grace: Duration::ZERO,
    })
}

/// Content of a file.
enum Content {
    Case(CaseFile),
    Sequence(Sequence),
}

/// Result of replaying a file.
#[derive(Default)]
struct Outcome {
    /// Failures that the engine or the file caused.
    problems: Vec<String>,
    /// Failures that the machine caused.
    environment: Vec<String>,
    /// Backends on which it was not run, with the reasons.
    skips: Vec<String>,
}

/// Runs each file and checks what it expects; prints a line for each, and failures and skips with
/// their reasons.
///
/// # Errors
/// Files that cannot be read or parsed; missing backends; an end that was requested before anything
/// was found.
pub(crate) fn replay(options: &Replay) -> Result<Status, Failure> {
    crate::interrupt::install();
    gradiff_check::check_canaries().map_err(Failure::Oracle)?;
    let files = crate::case::cases_and_sequences(&options.files, options.allow_empty)?;
    let contents: Vec<Content> =
        files.iter().map(|file| content(file, &options.run)).collect::<Result<_, _>>()?;
    let settings = settings(&options.run, &options.require)?;
    let mut client = Client::new(settings.clone());
    let (mut failed, mut unable, mut skipped, mut done) = (0, 0, 0, 0);
    for (file, content) in files.iter().zip(&contents) {
        let outcome = match content {
            Content::Case(case) => replay_case(case, &mut client, &settings.backends),
            Content::Sequence(sequence) => replay_sequence(sequence, options, &settings),
        };
        let outcome = match outcome {
            Err(Failure::Interrupted) => break,
            // The next file may need no such backend.
            Err(Failure::Environment(reason)) => {
                Outcome { environment: vec![reason], ..Outcome::default() }
            }
            outcome => outcome?,
        };
        let word = match (outcome.problems.is_empty(), outcome.environment.is_empty()) {
            (false, _) => "FAIL",
            (true, false) => "SICK",
            (true, true) => "ok  ",
        };
        outln!("{word}  {}", file.display());
        failed += usize::from(!outcome.problems.is_empty());
        unable += usize::from(!outcome.environment.is_empty());
        skipped += usize::from(!outcome.skips.is_empty());
        for line in [outcome.problems, outcome.environment, outcome.skips].concat() {
            outln!("      {line}");
        }
        done += 1;
    }
    let count = files.len();
    let unable_words = match unable {
        0 => String::new(),
        _ => format!(", {unable} could not run on some backend (this machine is at fault)"),
    };
    outln!(
        "{done} of {count} cases replayed, {failed} failed, {skipped} skipped on some \
         backend{unable_words}"
    );
    match (failed, unable) {
        (1.., _) => Ok(Status::Findings),
        _ if done < count => Err(Failure::Interrupted),
        (_, 1..) => Ok(Status::Environment),
        _ => Ok(Status::Clean),
    }
}

fn content(path: &Path, flags: &RunFlags) -> Result<Content, Failure> {
    if !crate::case::is_sequence(path) {
        return crate::case::read(path).map(Content::Case);
    }
    let failed = |error| Failure::Usage(format!("{}: {error}", path.display()));
    let sequence = Sequence::parse(&crate::case::text(path)?).map_err(failed)?;
    crate::case::config(&sequence.lanes)
        .map_err(|failure| failed(failure.message().to_string()))?;
    if flags.backends.is_empty() && !sequence.backends.is_empty() {
        crate::known::check_backends(path, &sequence.backends.join(","))?;
    }
    Ok(Content::Sequence(sequence))
}

/// Runs a case in a worker, which may die of it or be ended.
fn replay_case(
    case: &CaseFile,
    client: &mut Client,
    backends: &[String],
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    if let Case::Program(program) = &case.case {
        let (tally, failures) = client.judge_twice(program)?;
        record(&failures, &mut outcome);
        outcome.skips.extend(tally.skipped.keys().map(|reason| format!("skipped on {reason}")));
    } else {
        for peer in backends.iter().filter(|backend| gradiff_check::is_peer(backend)) {
            let answer = gradiff_check::ask(peer, &case.case);
            // It may be that of a peer which the request to end has ended.
            if crate::interrupt::is_requested() {
                return Err(Failure::Interrupted);
            }
            match answer {
                Answer::Right(..) => {}
                Answer::Skipped(reason) => {
                    outcome.skips.push(format!("skipped on {peer}: {reason}"));
                }
                Answer::Wrong(kind, detail) => {
                    let backend = peer.clone();
                    record(&[CheckFailure { backend, kind, detail }], &mut outcome);
                }
            }
        }
    }
    outcome.problems.extend(client.check(&case.to_string())?);
    Ok(outcome)
}

/// Runs the programs of a dead worker in a fresh one, on the backends of the file unless others are
/// named.
fn replay_sequence(
    sequence: &Sequence,
    options: &Replay,
    settings: &Settings,
) -> Result<Outcome, Failure> {
    let mut sequence = sequence.clone();
    if !options.run.backends.is_empty() || sequence.backends.is_empty() {
        sequence.backends = settings.backends.clone();
    }
    let Sequence { seed, lanes, backends, .. } = sequence.clone();
    crate::case::choose(&backends, std::iter::empty(), &[])?;
    let mut client = Client::new(Settings { seed, lanes, backends, ..settings.clone() });
    let (results, death) = client.replay(&sequence)?;
    let mut outcome = Outcome::default();
    let failures: Vec<CheckFailure> =
        results.failures.into_iter().map(|failed| failed.failure).chain(death).collect();
    record(&failures, &mut outcome);
    outcome.skips.extend(results.tally.skipped.keys().map(|reason| format!("skipped on {reason}")));
    Ok(outcome)
}

/// Adds failures to the problems or to those of the environment.
fn record(failures: &[CheckFailure], outcome: &mut Outcome) {
    for failure in failures {
        let words = format!("{} on {}: {}", failure.kind.name(), failure.backend, failure.detail);
        match failure.kind {
            Kind::Environment => outcome.environment.push(words),
            _ => outcome.problems.push(words),
        }
    }
}

/// Prints the smallest program found that fails as the one in the file does.
///
/// # Errors
/// The file holds no program; missing backends.
pub(crate) fn reduce(options: &Reduce) -> Result<Status, Failure> {
    crate::interrupt::install_with_grace();
    let program = program(&options.file)?;
    let mut client = client(&options.run, &[])?;
    let Some(failure) = failure(&program, &mut client)? else {
        outln!("{}: nothing fails; nothing to reduce", options.file.display());
        return Ok(Status::Clean);
    };
    let mut progress = Progress::start(false);
    let small = crate::findings::minimise(&program, &failure, &mut client, None, &mut progress)?;
    progress.end();
    // A death by chance is that of the whole program.
    let (small, failure) = small.map_or((program, failure), |small| (small.program, small.failure));
    let CheckFailure { backend, kind, detail } = failure;
    // A comment is one line.
    let line = format!("{} on {backend}: {detail}", kind.name()).replace(['\n', '\r'], " ");
    outln!("# {line}");
    out!("{small}");
    Ok(Status::Findings)
}

/// Prints one stage of one file.
///
/// # Errors
/// An unknown stage; a stage that the case does not have.
pub(crate) fn show(options: &Show) -> Result<Status, Failure> {
    let opts = options.opts.as_deref().map(crate::opts::parse).transpose()?;
    let case = crate::case::read(&options.file)?;
    let (form, target) = (options.stage, options.target.as_deref());
    let shown = gradiff_check::Shown { form, opts: opts.as_deref(), target };
    let text = gradiff_check::catch(|| gradiff_check::show(&case.case, shown))
        .and_then(|shown| shown)
        .map_err(Failure::Usage)?;
    out!("{text}");
    Ok(Status::Clean)
}

/// Names the first stage at which one file goes wrong.
///
/// # Errors
/// A file that cannot be read; missing backends.
pub(crate) fn blame(options: &Blame) -> Result<Status, Failure> {
    crate::interrupt::install();
    let case = crate::case::read(&options.file)?;
    let report = match &case.case {
        Case::Program(program) => {
            let mut client = client(&options.run, &[])?;
            match failure(program, &mut client)? {
                None => None,
                Some(failure) => {
                    let blame = client.blame(program, &failure)?;
                    let stage = match blame {
                        Some(blame) => blame.to_string(),
                        None if gradiff_check::is_peer(&failure.backend) => {
                            "a peer has no stages that could be told apart".to_string()
                        }
                        None => "no stage is wrong on its own".to_string(),
                    };
                    Some(format!("{} on {}: {stage}", failure.kind.name(), failure.backend))
                }
            }
        }
        Case::Views(views) => gradiff_check::blame_views(views).map(|blame| blame.to_string()),
        Case::Expr(expr) => gradiff_check::blame_expr(expr).map(|blame| blame.to_string()),
    };
    match report {
        None => {
            outln!("{}: nothing fails; nothing to blame", options.file.display());
            Ok(Status::Clean)
        }
        Some(report) => {
            outln!("{report}");
            Ok(Status::Findings)
        }
    }
}

fn program(path: &Path) -> Result<Program, Failure> {
    match crate::case::read(path)?.case {
        Case::Program(program) => Ok(program),
        Case::Views(_) | Case::Expr(_) => Err(Failure::Usage(format!(
            "{}: only programs can be reduced; this case is small already",
            path.display()
        ))),
    }
}

/// Runs a program and returns the first failure of the engine.
///
/// # Errors
/// No worker can be started; nothing but the machine fails.
fn failure(program: &Program, client: &mut Client) -> Result<Option<CheckFailure>, Failure> {
    let failures = client.judge(program)?.1.into_iter();
    let (unable, failures): (Vec<CheckFailure>, Vec<CheckFailure>) =
        failures.partition(|failure| failure.kind == Kind::Environment);
    match (failures.into_iter().next(), unable.into_iter().next()) {
        (None, Some(unable)) => {
            Err(Failure::Environment(format!("backend {}: {}", unable.backend, unable.detail)))
        }
        (first, _) => Ok(first),
    }
}

/// Prints two lines for each backend.
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
            None => "hunts run it only if it is named".to_string(),
            Some(word) => match word.split_once(':') {
                None => "hunts run every program on it".to_string(),
                Some((_, every)) => format!("hunts run one of {every} programs on it"),
            },
        };
        outln!("{:26}{status}\n{:26}{}; {hunted}", row.name, "", row.description);
    }
    crate::peers::list()
}
