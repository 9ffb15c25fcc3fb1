//! `gradiff peers`: the frameworks that programs can also run on, their installation, and scripts
//! for them.

use std::path::Path;
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
                format!("not found  {reason}; `gradiff peers install {}`", row.package())
            }
        };
        let story = format!("{}; hunts run it only if it is named", row.story);
        outln!("{:26}{status}\n{:26}{story}", row.name, "");
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
    let python = folder.join("bin/python");
    if !python.exists() {
        outln!("python3 -m venv {}", folder.display());
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder), "python3 -m venv")?;
    }
    let packages: Vec<&str> =
        std::iter::once(package.as_str()).chain(row.packages.iter().copied()).collect();
    outln!("{} -m pip install {}", python.display(), packages.join(" "));
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(&packages);
    run(&mut pip, "pip").inspect_err(|_| remove(&folder))?;
    let word = version.map_or(row.name.to_string(), |version| format!("{}@{version}", row.name));
    outln!("installed {package}; hunt with --backends {word}");
    Ok(())
}

/// An environment without its package would pass for one with it.
fn remove(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder) {
        crate::out::errln!("gradiff: {} cannot be removed: {error}", folder.display());
    }
}

fn run(command: &mut Command, name: &str) -> Result<(), Failure> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Environment(format!("{name} failed: {status}"))),
        Err(error) => Err(Failure::Environment(format!("{name} cannot be started: {error}"))),
    }
}
