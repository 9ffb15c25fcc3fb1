//! Planted faults: known mistakes that the harness must find.
//!
//! The engine knows nothing of them. A fault is a text file, an edit of the sources ([`parse`]); a
//! copy of the workspace holds all of them, each behind a switch ([`instrument`]), and is built
//! once ([`workspace`]). `--fault NAME` runs the same command in that binary, with [`FAULT`] in the
//! environment; [`measure`] hunts one after the other.

mod instrument;
pub(crate) mod measure;
mod parse;
mod workspace;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process;

use parse::Fault;

use crate::args::{Args, Command, Faults};
use crate::out::outln;
use crate::{Failure, Status};

/// The environment variable that names the fault which is on in an instrumented binary.
pub(crate) const FAULT: &str = "GRADIFF_FAULT";

/// Faults and where they come from.
pub(crate) struct Catalogue {
    /// In the order of their rooms, then of their names.
    pub(crate) faults: Vec<Fault>,
    /// The files, in the same order.
    paths: Vec<PathBuf>,
    /// Whether they are those of the repository.
    is_own: bool,
}

impl Catalogue {
    /// The faults of the repository; or, if a path is given, that of this file or those of this
    /// folder.
    ///
    /// # Errors
    /// No sources, no faults, a file that cannot be read or parsed (with its line).
    pub(crate) fn read(from: Option<&Path>) -> Result<Catalogue, Failure> {
        let own = || workspace::root().map(|root| root.join("fuzz/faults"));
        let folder = from.map_or_else(own, |path| Ok(path.to_path_buf()))?;
        let failed = |path: &Path, error: std::io::Error| {
            Failure::Usage(format!("{}: {error}", path.display()))
        };
        let mut paths = vec![folder.clone()];
        if folder.is_dir() {
            let entries = std::fs::read_dir(&folder).map_err(|error| failed(&folder, error))?;
            paths = entries.map_while(Result::ok).map(|entry| entry.path()).collect();
            paths.retain(|path| path.extension() == Some(OsStr::new("fault")));
        }
        let mut read = Vec::new();
        for path in paths {
            let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let fault = parse::parse(&name, &text).map_err(|problem| {
                let (line, message) = (problem.line, problem.message);
                Failure::Usage(format!("{}:{line}: {message}", path.display()))
            })?;
            read.push((fault, path));
        }
        if read.is_empty() {
            return Err(Failure::Usage(format!("{}: no .fault files", folder.display())));
        }
        read.sort_by_key(|(fault, _)| (room_number(&fault.room), fault.name.clone()));
        let (faults, paths) = read.into_iter().unzip();
        Ok(Catalogue { faults, paths, is_own: from.is_none() })
    }

    /// What is wrong with an edit of a fault, with file and line.
    fn misfit(&self, fault: usize, edit: usize, message: &str) -> Failure {
        let (path, line) = (self.paths[fault].display(), self.faults[fault].edits[edit].line);
        Failure::Usage(format!("{path}:{line}: {message}"))
    }

    /// The folder of the copy: other faults do not take the place of those of the repository.
    fn folder(&self) -> &'static str {
        if self.is_own { "own" } else { "given" }
    }

    /// Checks that there is a fault of this name.
    fn check(&self, name: &str) -> Result<(), Failure> {
        let names: Vec<&str> = self.faults.iter().map(|fault| fault.name.as_str()).collect();
        match names.contains(&name) {
            true => Ok(()),
            false => {
                let names = names.join(", ");
                Err(Failure::Usage(format!("no fault is called {name}; there are: {names}")))
            }
        }
    }
}

/// The place of a room in the pipeline; others come last.
fn room_number(room: &str) -> usize {
    let rooms =
        ["view", "graph", "rewrite", "schedule", "kernel", "render", "runtime", "tensor", "oracle"];
    rooms.iter().position(|known| *known == room).unwrap_or(rooms.len())
}

/// Runs this command once more, by the binary in which the fault of this name is on. Gives its exit
/// code, if it comes back at all.
///
/// # Errors
/// No such fault, or no such binary.
pub(crate) fn rerun(name: &str, args: &Args) -> Result<u8, Failure> {
    if matches!(&args.command, Command::Hunt(options) if options.faults) {
        let message = "--faults hunts all planted faults, --fault one of them; give one of the two";
        return Err(Failure::Usage(message.to_string()));
    }
    let catalogue = Catalogue::read(args.faults_from.as_deref())?;
    catalogue.check(name)?;
    let binary = workspace::binary(&catalogue)?;
    let mut command = process::Command::new(&binary);
    command.args(without_fault(std::env::args_os().skip(1))).env(FAULT, name);
    run(command).map_err(|error| {
        Failure::Internal(format!("{} cannot be started: {error}", binary.display()))
    })
}

/// The other process takes the place of this one: it gets the signals that this one would get.
#[cfg(unix)]
fn run(mut command: process::Command) -> std::io::Result<u8> {
    Err(std::os::unix::process::CommandExt::exec(&mut command))
}

#[cfg(not(unix))]
fn run(mut command: process::Command) -> std::io::Result<u8> {
    let code = command.status()?.code();
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(70))
}

/// The arguments without the flags that lead to the other binary.
fn without_fault(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let (mut kept, mut is_value, mut is_literal) = (Vec::new(), false, false);
    for argument in arguments {
        let text = argument.to_string_lossy();
        if std::mem::take(&mut is_value) {
            continue;
        }
        let flags = ["--fault", "--faults-from"];
        if !is_literal && flags.iter().any(|flag| text == *flag) {
            is_value = true;
            continue;
        }
        let is_given =
            |flag: &&str| text.strip_prefix(*flag).is_some_and(|rest| rest.starts_with('='));
        if !is_literal && flags.iter().any(is_given) {
            continue;
        }
        is_literal |= text == "--";
        kept.push(argument);
    }
    kept
}

/// Lists the faults; or writes the sources with all of them and prints where.
///
/// # Errors
/// Faults that cannot be read, or do not fit the sources.
pub(crate) fn list(options: &Faults, from: Option<&Path>) -> Result<Status, Failure> {
    let catalogue = Catalogue::read(from)?;
    if options.copy {
        outln!("{}", workspace::copy(&catalogue)?.display());
        return Ok(Status::Clean);
    }
    workspace::instrumented(&workspace::root()?, &catalogue)?;
    for fault in &catalogue.faults {
        outln!("{:36} {:9} {}", fault.name, fault.room, fault.description);
    }
    Ok(Status::Clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_the_repository_fits_the_sources() {
        let catalogue = Catalogue::read(None).unwrap_or_else(|failure| panic!("{failure:?}"));
        assert!(catalogue.faults.len() >= 70, "{} faults", catalogue.faults.len());
        for fault in &catalogue.faults {
            let (name, rooms) = (&fault.name, room_number("no room"));
            assert!(room_number(&fault.room) < rooms, "{name}: no room is called {}", fault.room);
            assert!(fault.description.ends_with('.'), "{name}: {}", fault.description);
        }
        let root = workspace::root().expect("the sources");
        let sources = workspace::instrumented(&root, &catalogue);
        let sources = sources.unwrap_or_else(|failure| panic!("{}", failure.message()));
        // Each one is behind a switch, and each switch is that of a fault.
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let all: String = sources.values().map(text).collect();
        for fault in &catalogue.faults {
            assert!(all.contains(&format!("/* {} */", fault.name)), "{}", fault.name);
        }
    }

    #[test]
    fn the_flags_of_faults_are_left_out() {
        let given = [
            "hunt",
            "--fault",
            "x",
            "--seed",
            "1",
            "--faults-from=a",
            "--fault=y",
            "--",
            "--fault",
        ];
        let kept = without_fault(given.iter().map(OsString::from));
        assert_eq!(kept, ["hunt", "--seed", "1", "--", "--fault"].map(OsString::from));
    }
}
