//! The commands on corpus files: replay, reduce, show, blame; and the list of backends.

use std::path::Path;

use gradiff_check::{Failure as Found, check_expr, check_views};
use gradiff_corpus::{Case, CaseFile, Program};

use crate::args::{Blame, On, Reduce, Replay, Show};
use crate::pool::{Client, Settings};
use crate::{Failure, Status};

fn client(on: &On) -> Result<Client, Failure> {
    Ok(Client::new(Settings {
        seed: 0,
        backends: crate::case::names(&on.backends, crate::case::all())?,
        lanes: Vec::new(),
        timeout_seconds: on.timeout,
        wall_seconds: on.wall_timeout,
    }))
}

/// Runs each file and checks what it expects; a line for each, the failures and skips with their
/// reasons.
///
/// # Errors
/// Files that cannot be read or parsed; missing backends.
pub(crate) fn replay(options: &Replay) -> Result<Status, Failure> {
    crate::interrupt::install();
    gradiff_check::check_canaries().map_err(Failure::Oracle)?;
    let files = crate::case::files(&options.files)?;
    let cases: Vec<CaseFile> =
        files.iter().map(|file| crate::case::read(file)).collect::<Result<_, _>>()?;
    let mut client = client(&options.on)?;
    let (mut failed, mut skipped, mut done) = (0, 0, 0);
    for (file, case) in files.iter().zip(&cases) {
        if crate::interrupt::is_asked() {
            break;
        }
        let (problems, skips) = problems(case, &mut client)?;
        println!("{}  {}", if problems.is_empty() { "ok  " } else { "FAIL" }, file.display());
        for line in problems.iter().chain(&skips) {
            println!("      {line}");
        }
        failed += usize::from(!problems.is_empty());
        skipped += usize::from(!skips.is_empty());
        done += 1;
    }
    let count = files.len();
    println!("{done} of {count} cases replayed, {failed} failed, {skipped} skipped somewhere");
    Ok(if failed == 0 { Status::Clean } else { Status::Findings })
}

/// What is wrong with a case, and on which backends it was not run, and why.
fn problems(case: &CaseFile, client: &mut Client) -> Result<(Vec<String>, Vec<String>), Failure> {
    let (mut problems, mut skips) = (Vec::new(), Vec::new());
    match &case.case {
        Case::Program(program) => {
            let (tally, failures) = client.judge_twice(program)?;
            let say = |f: &Found| format!("{} on {}: {}", f.kind.name(), f.backend, f.detail);
            problems.extend(failures.iter().map(say));
            skips.extend(tally.skipped.keys().map(|reason| format!("skipped on {reason}")));
        }
        Case::Views(views) => {
            problems.extend(gradiff_check::catch(|| check_views(views)).and_then(|r| r).err());
        }
        Case::Expr(expr) => {
            problems.extend(gradiff_check::catch(|| check_expr(expr)).and_then(|r| r).err());
        }
    }
    let expects = gradiff_check::catch(|| gradiff_check::check_expects(case));
    problems.extend(expects.unwrap_or_else(|panic| vec![panic]));
    Ok((problems, skips))
}

/// Prints the smallest program that fails as the one in the file does.
///
/// # Errors
/// The file holds no program, or one that does not fail.
pub(crate) fn reduce(options: &Reduce) -> Result<Status, Failure> {
    crate::interrupt::install();
    let program = program(&options.file)?;
    let mut client = client(&options.on)?;
    let Some(found) = failure(&program, &mut client)? else {
        println!("{}: nothing fails; nothing to reduce", options.file.display());
        return Ok(Status::Clean);
    };
    let small = crate::findings::minimise(&program, &found, &mut client)?;
    println!("# {} on {}: {}", found.kind.name(), found.backend, found.detail);
    print!("{small}");
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
    print!("{text}");
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
            let mut client = client(&options.on)?;
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
            println!("{}: nothing fails; nobody to blame", options.file.display());
            Ok(Status::Clean)
        }
        Some(said) => {
            println!("{said}");
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

fn failure(program: &Program, client: &mut Client) -> Result<Option<Found>, Failure> {
    Ok(client.judge(program)?.1.into_iter().next())
}

/// A line for each backend.
///
/// # Errors
/// None.
pub(crate) fn backends() -> Result<Status, Failure> {
    for row in gradiff_check::BACKENDS {
        let status = match row.status() {
            Ok(version) => format!("found      {version}"),
            Err(reason) => format!("not found  {reason}"),
        };
        let hunted = match row.default_word() {
            None => "hunts run it where it is named".to_string(),
            Some(word) => match word.split_once(':') {
                None => "hunts run every program on it".to_string(),
                Some((_, every)) => format!("hunts run one of {every} programs on it"),
            },
        };
        println!("{:26}{status}\n{:26}{}; {hunted}", row.name, "", row.story);
    }
    Ok(Status::Clean)
}
