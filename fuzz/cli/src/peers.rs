//! `gradiff peers`: the frameworks that programs can also run on, their installation, and scripts
//! for them.

use std::path::{Path, PathBuf};
use std::process::Command;

use gradiff_check::{PEERS, PeerRow, environment};

use crate::args::{Peers, PeersAction};
use crate::out::outln;
use crate::{Failure, Status};

/// Lists the peers, installs some, or prints a script for one.
///
/// # Errors
/// A package or a word that is no peer; Python or pip fails; a file that is no program.
pub(crate) fn peers(options: &Peers) -> Result<Status, Failure> {
    match &options.action {
        None => list(),
        Some(PeersAction::Install { packages }) => {
            // All names are known before anything is installed.
            let chosen = packages.iter().map(|package| chosen(package));
            for (row, version) in chosen.collect::<Result<Vec<_>, _>>()? {
                install(row, version)?;
            }
            Ok(Status::Clean)
        }
        Some(PeersAction::Script { peer, file }) => {
            crate::interrupt::install();
            match gradiff_check::script(peer, &crate::case::read(file)?.case) {
                None => Err(Failure::Usage(format!("{peer} is no peer; see `gradiff peers`"))),
                Some(Err(reason)) => Err(Failure::Environment(format!("{peer}: {reason}"))),
                Some(Ok(script)) => {
                    outln!("{}", script.trim_end());
                    Ok(Status::Clean)
                }
            }
        }
    }
}

/// Prints a line for each peer, and one for each version that is installed for gradiff.
pub(crate) fn list() -> Result<Status, Failure> {
    for row in PEERS {
        let status = match row.status() {
            Ok(version) => format!("found      {version}"),
            Err(reason) => {
                let command = format!("`gradiff peers install {}`", row.package());
                let is_told = reason.contains(&command);
                let hint = if is_told { String::new() } else { format!("; {command}") };
                format!("not found  {reason}{hint}")
            }
        };
        let description = format!("{}; hunts run it only if it is named", row.description);
        outln!("{:26}{status}\n{:26}{description}", row.name, "");
        for version in row.versions() {
            outln!("{:26}installed  for gradiff", format!("{}@{version}", row.name));
        }
    }
    outln!("{:26}an engine that speaks the protocol of fuzz/peers/README.md", "exec:COMMAND");
    Ok(Status::Clean)
}

/// The peer and the version that a package of `peers install` means.
fn chosen(package: &str) -> Result<(&'static PeerRow, Option<&str>), Failure> {
    let (name, version) = match package.split_once("==") {
        Some((name, version)) => (name, Some(version)),
        None => (package, None),
    };
    let is_plain = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || ".+-_".contains(c))
    };
    let row = PEERS.iter().find(|row| row.name == name).ok_or_else(|| {
        let names: Vec<&str> = PEERS.iter().map(|row| row.name).collect();
        Failure::Usage(format!("no peer is called {name}; there are: {}", names.join(", ")))
    })?;
    match version.is_none_or(is_plain) {
        true => Ok((row, version)),
        false => Err(Failure::Usage(format!("{package}: no version follows the =="))),
    }
}

fn install(row: &PeerRow, version: Option<&str>) -> Result<(), Failure> {
    let folder = environment(row.package(), version);
    let package = row.package();
    let package = version.map_or(package.to_string(), |version| format!("{package}=={version}"));
    let is_new = !folder.join("bin/python").exists();
    // A new environment gets its name when it is complete: one without its package would pass for
    // one with it.
    let place = if is_new { partial(&folder) } else { folder.clone() };
    let python = place.join("bin/python");
    if is_new {
        remove(&place);
        outln!("python3 -m venv {}", place.display());
        run(Command::new("python3").args(["-m", "venv"]).arg(&place), "python3 -m venv")?;
    }
    let packages: Vec<&str> =
        std::iter::once(package.as_str()).chain(row.packages.iter().copied()).collect();
    outln!("{} -m pip install {}", python.display(), packages.join(" "));
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(&packages);
    run(&mut pip, "pip").inspect_err(|_| {
        if is_new {
            remove(&place);
        }
    })?;
    if is_new {
        remove(&folder);
        std::fs::rename(&place, &folder).map_err(|error| {
            Failure::Environment(format!("{} cannot be renamed: {error}", place.display()))
        })?;
    }
    let word = version.map_or(row.name.to_string(), |version| format!("{}@{version}", row.name));
    outln!("installed {package}; hunt with --backends {word}");
    Ok(())
}

/// The folder of an environment that is not complete.
fn partial(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!(".partial-{name}"))
}

fn remove(folder: &Path) {
    match std::fs::remove_dir_all(folder) {
        Err(error) if folder.exists() => {
            crate::out::errln!("gradiff: {} cannot be removed: {error}", folder.display());
        }
        _ => {}
    }
}

fn run(command: &mut Command, name: &str) -> Result<(), Failure> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Environment(format!("{name} failed: {status}"))),
        Err(error) => Err(Failure::Environment(format!("{name} cannot be started: {error}"))),
    }
}
