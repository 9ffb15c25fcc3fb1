//! Inputs that several commands share: backends, lanes and case files.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use gradiff_check::Backend;
use gradiff_corpus::CaseFile;
use gradiff_gen::{Config, Lane};
use walkdir::WalkDir;

use crate::Failure;

/// Opens the named backends.
///
/// # Errors
/// An unknown name, or one given twice (usage); a backend that is not available.
pub(crate) fn open(names: &[String]) -> Result<Vec<Box<dyn Backend>>, Failure> {
    for (number, word) in names.iter().enumerate() {
        let name = gradiff_check::name_of(word);
        if names[..number].iter().any(|earlier| gradiff_check::name_of(earlier) == name) {
            return Err(Failure::Usage(format!("backend {name} is named twice")));
        }
    }
    gradiff_check::backends(names).map_err(|error| {
        if error.is_unknown_name {
            Failure::Usage(error.message)
        } else {
            Failure::Environment(error.message)
        }
    })
}

/// Backends to run on.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// Their names, each checked to be available.
    pub(crate) names: Vec<String>,
    /// Unavailable devices of the backends that are run by default, each with the reason.
    pub(crate) missing: BTreeMap<String, String>,
}

/// Returns the requested names, each once and checked to be available; or, if none was requested,
/// those of `defaults` that are available.
///
/// # Errors
/// As [`open`]; also if no backend is available at all, or a required one is not.
pub(crate) fn choose(
    requested: &[String],
    defaults: impl Iterator<Item = String>,
    required: &[String],
) -> Result<Chosen, Failure> {
    check_required(required)?;
    let mut missing = BTreeMap::new();
    let mut names: Vec<String> = Vec::new();
    if requested.is_empty() {
        for name in defaults {
            match open(std::slice::from_ref(&name)) {
                Ok(_) => names.push(name),
                Err(failure) => {
                    let device = gradiff_check::device_of(&name).unwrap_or(&name).to_string();
                    missing.entry(device).or_insert_with(|| failure.message().to_string());
                }
            }
        }
    } else {
        for name in requested {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        open(&names)?;
    }
    // Those of the parent would stay idle.
    gradiff_check::close_peers();
    require(required, &names, &missing)?;
    if names.is_empty() {
        return Err(Failure::Environment(
            "no backend is available; see `gradiff backends`".to_string(),
        ));
    }
    Ok(Chosen { names, missing })
}

/// Checks that everything required exists somewhere, before any device is opened.
fn check_required(required: &[String]) -> Result<(), Failure> {
    let is_row = |word: &String| {
        let mut rows = gradiff_check::BACKENDS.iter();
        rows.any(|row| row.name == word || row.device == word)
    };
    let is_known = |word: &&String| is_row(word) || gradiff_check::is_peer(word);
    let Some(word) = required.iter().find(|word| !is_known(word)) else { return Ok(()) };
    let mut devices: Vec<&str> = gradiff_check::BACKENDS.iter().map(|row| row.device).collect();
    devices.sort_unstable();
    devices.dedup();
    let devices = devices.join(", ");
    let message = format!("--require {word}: no such device or backend; known: {devices}");
    Err(Failure::Usage(message))
}

/// Checks that the run has everything required: backends, or devices with all of their backends.
fn require(
    required: &[String],
    names: &[String],
    missing: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    for word in required {
        if let Some(reason) = missing.get(word) {
            return Err(Failure::Environment(format!("{word} is required: {reason}")));
        }
        let is_match = |name: &String| {
            gradiff_check::name_of(name) == word || gradiff_check::device_of(name) == Some(word)
        };
        if !names.iter().any(is_match) {
            // Backends that hunts do not run by default have not been opened yet.
            open(std::slice::from_ref(word)).or_else(|failure| match failure {
                Failure::Environment(_) => Err(failure),
                _ => Ok(Vec::new()),
            })?;
            let message = format!("{word} is required, but no backend of this run uses it");
            return Err(Failure::Usage(message));
        }
    }
    Ok(())
}

/// Refuses an empty run, which would pass for a clean one.
///
/// # Errors
/// The count is 0, unless that is allowed.
pub(crate) fn check_count(count: u64, noun: &str, is_empty_allowed: bool) -> Result<(), Failure> {
    match count {
        0 if !is_empty_allowed => Err(Failure::Usage(format!(
            "a run of 0 {noun} checks nothing; --allow-empty permits it"
        ))),
        _ => Ok(()),
    }
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
/// The name of no lane.
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
                let names = names.join(", ");
                Failure::Usage(format!("no lane is called {name}; the lanes are: {names}"))
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(config)
}

/// Largest case file, in bytes: a case is a short text.
const CASE_BYTES_MAX: u64 = 16 << 20;

/// Reads one text file.
///
/// # Errors
/// It cannot be read, is not a regular file (a device or a pipe may never end), is too large or not
/// text.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    let failed = |reason: String| Failure::Usage(format!("{}: {reason}", path.display()));
    let metadata = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    if !metadata.is_file() {
        return Err(failed("not a file, but a folder, device, pipe or socket".to_string()));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let read = file.take(CASE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| failed(error.to_string()))?;
    if CASE_BYTES_MAX < bytes.len() as u64 {
        return Err(failed(format!("too large: a case has at most {CASE_BYTES_MAX} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        failed(format!("not UTF-8 text (byte {at})"))
    })?;
    // A byte order mark is not part of the text.
    Ok(text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text))
}

/// Reads and parses one corpus file.
///
/// # Errors
/// As [`text()`]; a text that is not well formed (with line and column).
pub(crate) fn read(path: &Path) -> Result<CaseFile, Failure> {
    gradiff_corpus::parse(&text(path)?)
        .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

/// Returns whether a file is a case, by its name.
fn is_case(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "case")
}

/// Returns whether a file holds a sequence of programs that a hunt has saved, by its name.
pub(crate) fn is_sequence(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == crate::sequence::EXTENSION)
}

/// Returns the given files, and the cases below the given folders, in order. Follows links, but not
/// in circles.
///
/// # Errors
/// A path that does not exist; a folder without cases, unless that is allowed.
pub(crate) fn cases(paths: &[PathBuf], is_empty_allowed: bool) -> Result<Vec<PathBuf>, Failure> {
    files(paths, is_empty_allowed, is_case)
}

/// Returns what [`cases`] does, and the sequences below the folders as well.
///
/// # Errors
/// As [`cases`].
pub(crate) fn cases_and_sequences(
    paths: &[PathBuf],
    is_empty_allowed: bool,
) -> Result<Vec<PathBuf>, Failure> {
    files(paths, is_empty_allowed, |path| is_case(path) || is_sequence(path))
}

fn files(
    paths: &[PathBuf],
    is_empty_allowed: bool,
    is_chosen: fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        let failed = |error: std::io::Error| Failure::Usage(format!("{}: {error}", path.display()));
        if !std::fs::metadata(path).map_err(failed)?.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut inside = Vec::new();
        for entry in WalkDir::new(path).follow_links(true).sort_by_file_name() {
            if crate::interrupt::is_requested() {
                return Err(Failure::Interrupted);
            }
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) if error.loop_ancestor().is_some() => continue,
                // A dangling link whose name is not that of a case.
                Err(error)
                    if error.path().is_some_and(|path| path.is_symlink() && !is_chosen(path)) =>
                {
                    continue;
                }
                Err(error) => return Err(failed(error.into())),
            };
            if entry.file_type().is_file() && is_chosen(entry.path()) {
                inside.push(entry.into_path());
            }
        }
        if inside.is_empty() && !is_empty_allowed {
            let message = format!(
                "{}: no .case files in this folder; --allow-empty permits it",
                path.display()
            );
            return Err(Failure::Usage(message));
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}
