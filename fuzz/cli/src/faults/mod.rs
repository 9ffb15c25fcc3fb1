//! Planted faults: known mistakes that the harness must find.
//!
//! The engine knows nothing of them. A fault is a text file with edits of the sources ([`parse`]);
//! a copy of the workspace holds all of them, each behind a switch ([`instrument`]), and is built
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
use serde_json::{Value, json};

use crate::args::{Args, Command, Faults};
use crate::out::outln;
use crate::{Failure, Status};

/// Environment variable that names the fault which is on in an instrumented binary.
pub(crate) const FAULT: &str = "GRADIFF_FAULT";

/// Faults and their files.
pub(crate) struct Catalogue {
    /// The faults, by crate and then by name.
    pub(crate) faults: Vec<Fault>,
    /// The files, in the same order.
    paths: Vec<PathBuf>,
    /// True if they are those of the repository.
    is_default: bool,
}

impl Catalogue {
    /// Reads the faults of the repository or, if a path is given, those of this file or folder.
    ///
    /// # Errors
    /// No sources, no faults, a file that cannot be read or parsed (with its line).
    pub(crate) fn read(from: Option<&Path>) -> Result<Catalogue, Failure> {
        let default = || workspace::root().map(|root| root.join("fuzz/faults"));
        let folder = from.map_or_else(default, |path| Ok(path.to_path_buf()))?;
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
        read.sort_by_key(|(fault, _)| (fault.crate_name, fault.name.clone()));
        let (faults, paths) = read.into_iter().unzip();
        Ok(Catalogue { faults, paths, is_default: from.is_none() })
    }

    /// Returns the error of an edit that does not fit, with file and line.
    fn misfit(&self, fault: usize, edit: usize, message: &str) -> Failure {
        let (path, line) = (self.paths[fault].display(), self.faults[fault].edits[edit].line);
        Failure::Usage(format!("{path}:{line}: {message}"))
    }

    /// Returns the name of the copy's folder: other faults do not replace those of the repository.
    fn folder(&self) -> &'static str {
        if self.is_default { "own" } else { "given" }
    }

    /// Checks that there is a fault of this name.
    fn check(&self, name: &str) -> Result<(), Failure> {
        let names: Vec<&str> = self.faults.iter().map(|fault| fault.name.as_str()).collect();
        match names.contains(&name) {
            true => Ok(()),
            false => {
                let names = names.join(", ");
                Err(Failure::Usage(format!("no fault is called {name}; the faults are: {names}")))
            }
        }
    }
}

/// Runs this command again with the binary in which the fault of this name is on. Returns its exit
/// code, if it returns at all.
///
/// # Errors
/// No such fault, or no such binary.
pub(crate) fn rerun(name: &str, args: &Args) -> Result<u8, Failure> {
    if matches!(&args.command, Command::Hunt(options) if options.faults) {
        let message = "use either --faults, which hunts all planted faults, or --fault";
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

/// Replaces this process by the other one, which then gets the signals that this one would get.
#[cfg(unix)]
fn run(mut command: process::Command) -> std::io::Result<u8> {
    Err(std::os::unix::process::CommandExt::exec(&mut command))
}

#[cfg(not(unix))]
fn run(mut command: process::Command) -> std::io::Result<u8> {
    let code = command.status()?.code();
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(70))
}

/// Returns the arguments without the flags that choose the other binary.
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
        let has_value =
            |flag: &&str| text.strip_prefix(*flag).is_some_and(|rest| rest.starts_with('='));
        if !is_literal && flags.iter().any(has_value) {
            continue;
        }
        is_literal |= text == "--";
        kept.push(argument);
    }
    kept
}

/// Lists the faults; or writes the sources with all of them and prints their folder.
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
    if options.json {
        let rows: Vec<Value> = catalogue.faults.iter().map(Fault::to_json).collect();
        outln!("{}", json!({ "faults": rows }));
        return Ok(Status::Clean);
    }
    for fault in &catalogue.faults {
        outln!("{:36} {:9} {}", fault.name, fault.crate_name, fault.description);
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
            let (name, description) = (&fault.name, &fault.description);
            assert!(description.ends_with('.'), "{name}: {description}");
        }
        let root = workspace::root().expect("the sources");
        let sources = workspace::instrumented(&root, &catalogue);
        let sources = sources.unwrap_or_else(|failure| panic!("{}", failure.message()));
        // Each fault is behind a switch.
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let sources: String = sources.values().map(text).collect();
        for fault in &catalogue.faults {
            assert!(sources.contains(&format!("/* {} */", fault.name)), "{}", fault.name);
        }
    }

    #[test]
    fn the_flags_of_faults_are_left_out() {
        let arguments = [
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
        let kept = without_fault(arguments.iter().map(OsString::from));
        assert_eq!(kept, ["hunt", "--seed", "1", "--", "--fault"].map(OsString::from));
    }
}
