//! What several commands need first: the backends, the lanes, a case file.

use std::path::{Path, PathBuf};

use gradiff_check::Backend;
use gradiff_corpus::CaseFile;
use gradiff_gen::{Config, Lane};

use crate::Failure;

/// Opens the named backends.
///
/// # Errors
/// A name that is none (usage), a backend that is not there.
pub(crate) fn open(names: &[String]) -> Result<Vec<Box<dyn Backend>>, Failure> {
    gradiff_check::backends(names).map_err(|error| {
        if error.is_unknown_name {
            Failure::Usage(error.message)
        } else {
            Failure::Backend(error.message)
        }
    })
}

/// The names that were asked for, each checked to be there; or, if none was, those of `defaults`
/// that are there.
///
/// # Errors
/// As [`open`]; also if nothing is there at all.
pub(crate) fn names(
    asked: &[String],
    defaults: impl Iterator<Item = String>,
) -> Result<Vec<String>, Failure> {
    if !asked.is_empty() {
        open(asked)?;
        return Ok(asked.to_vec());
    }
    let is_there = |name: &String| open(std::slice::from_ref(name)).is_ok();
    let there: Vec<String> = defaults.filter(is_there).collect();
    if there.is_empty() {
        return Err(Failure::Backend("no backend is there; see `gradiff backends`".to_string()));
    }
    Ok(there)
}

/// The backends of hunts, each with its share of the programs.
pub(crate) fn hunted() -> impl Iterator<Item = String> {
    gradiff_check::BACKENDS.iter().filter_map(|row| row.default_word())
}

/// All backends.
pub(crate) fn all() -> impl Iterator<Item = String> {
    gradiff_check::BACKENDS.iter().map(|row| row.name.to_string())
}

/// The generator's settings with these lanes; none means all.
///
/// # Errors
/// A name that is no lane.
pub(crate) fn config(lanes: &[String]) -> Result<Config, Failure> {
    let mut config = Config::default();
    if lanes.is_empty() {
        return Ok(config);
    }
    config.lanes = lanes
        .iter()
        .map(|name| {
            Lane::from_name(name).ok_or_else(|| {
                let names: Vec<&str> = Lane::ALL.into_iter().map(Lane::name).collect();
                Failure::Usage(format!("no lane is called {name}; there are: {}", names.join(", ")))
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(config)
}

/// Reads and parses one corpus file.
///
/// # Errors
/// It cannot be read, is no text, or is not well formed (with line and column).
pub(crate) fn read(path: &Path) -> Result<CaseFile, Failure> {
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::Usage(format!("{}: not UTF-8 text (byte {at})", path.display()))
    })?;
    gradiff_corpus::parse(&text)
        .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

/// The files named, and the corpus files below the folders named, in order.
///
/// # Errors
/// A path that is not there; a folder without corpus files.
pub(crate) fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        let failed = |error: std::io::Error| Failure::Usage(format!("{}: {error}", path.display()));
        if !std::fs::metadata(path).map_err(failed)?.is_dir() {
            files.push(path.clone());
            continue;
        }
        let (mut inside, mut folders) = (Vec::new(), vec![path.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).map_err(failed)? {
                let entry = entry.map_err(failed)?.path();
                if entry.is_dir() {
                    folders.push(entry);
                } else if entry.extension().is_some_and(|extension| extension == "case") {
                    inside.push(entry);
                }
            }
        }
        if inside.is_empty() {
            let message = format!("{}: no .case files in this folder", path.display());
            return Err(Failure::Usage(message));
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}
