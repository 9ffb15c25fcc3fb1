//! Copy of the workspace with planted faults in it, and the binary that is built from it.
//!
//! The copy holds the sources as they are now. Only files that differ are written, so that cargo
//! rebuilds only what changed. The registry's crates come from the caller's target folder; the
//! binary has a different name there.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::Catalogue;
use super::instrument::{Planted, instrument, module};
use crate::Failure;
use crate::out::errln;

/// Files and folders of the copy.
const PARTS: [&str; 6] = ["Cargo.toml", "Cargo.lock", "engine", "corpus", "oracle", "fuzz"];
/// Folders without sources: those of libFuzzer, the faults themselves, and build outputs.
const OMITTED: [&str; 5] =
    ["fuzz/corpus", "fuzz/artifacts", "fuzz/coverage", "fuzz/faults", "target"];
/// Name of the copy's binary, so that it does not replace the caller's.
const BINARY: &str = "gradiff-faulty";

/// Files of the copy, by their paths relative to its root.
type Sources = BTreeMap<PathBuf, Vec<u8>>;

/// Returns the root of the checkout: the one from which this binary was built, or else the one
/// around the current folder.
///
/// # Errors
/// There is no checkout.
pub(crate) fn root() -> Result<PathBuf, Failure> {
    let is_root = |folder: &&Path| {
        folder.join("engine/Cargo.toml").is_file() && folder.join("fuzz/cli").is_dir()
    };
    let here = std::env::current_dir().unwrap_or_default();
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let root = built_from.into_iter().chain(here.ancestors()).find(is_root);
    root.map(Path::to_path_buf).ok_or_else(|| {
        let message = "planted faults are edits of gradiff's sources, which are not here; \
                       run this in a checkout of the repository";
        Failure::Usage(message.to_string())
    })
}

/// Returns the binary with the faults of the catalogue in it; builds it if it is not up to date.
///
/// # Errors
/// An edit that does not fit the sources, a copy that does not compile, files that cannot be
/// written.
pub(crate) fn binary(catalogue: &Catalogue) -> Result<PathBuf, Failure> {
    let (root, folder) = (root()?, folder(catalogue)?);
    let failed = failed_at(&folder);
    let _lock = locked(&folder)?;
    // The other binary needs only the features of this one.
    let is_whole = cfg!(feature = "wgpu");
    let binary = folder.join(if is_whole { "gradiff" } else { "gradiff-without-wgpu" });
    let is_same = update(&root, &folder, catalogue)?;
    if is_same && binary.is_file() {
        return Ok(binary);
    }
    errln!("building an engine with {} planted faults", catalogue.faults.len());
    let built = build(&root, &folder.join("workspace"), is_whole)?;
    let fresh = folder.join("fresh");
    fs::copy(&built, &fresh).and_then(|_| fs::rename(&fresh, &binary)).map_err(&failed)?;
    Ok(binary)
}

/// Writes the copy and returns its folder, for other kinds of builds.
///
/// # Errors
/// As [`binary`], except those of the compiler.
pub(crate) fn copy(catalogue: &Catalogue) -> Result<PathBuf, Failure> {
    let (root, folder) = (root()?, folder(catalogue)?);
    let _lock = locked(&folder)?;
    update(&root, &folder, catalogue)?;
    Ok(folder.join("workspace"))
}

/// Returns the folder of the copy and its binary.
fn folder(catalogue: &Catalogue) -> Result<PathBuf, Failure> {
    Ok(target_folder(&root()?).join("faults").join(catalogue.folder()))
}

/// Locks the folders of all copies, so that one process at a time writes one and builds it, until
/// the file is dropped: cargo puts the binaries of all of them in one place.
fn locked(folder: &Path) -> Result<fs::File, Failure> {
    let open = || {
        fs::create_dir_all(folder)?;
        let file = fs::File::create(folder.with_file_name("lock"))?;
        file.lock()?;
        Ok(file)
    };
    open().map_err(failed_at(folder))
}

/// Updates the copy. Returns whether it was up to date; if not, removes the binaries first.
fn update(root: &Path, folder: &Path, catalogue: &Catalogue) -> Result<bool, Failure> {
    let sources = instrumented(root, catalogue)?;
    let workspace = folder.join("workspace");
    let failed = failed_at(&workspace);
    fs::create_dir_all(&workspace).map_err(&failed)?;
    let copied = files(&workspace, Path::new("")).map_err(&failed)?;
    let gone = copied.iter().filter(|path| !sources.contains_key(*path));
    let is_stale = |(path, text): &(&PathBuf, &Vec<u8>)| {
        fs::read(workspace.join(path)).map_or(true, |old| old != **text)
    };
    let (gone, stale): (Vec<&PathBuf>, Vec<_>) =
        (gone.collect(), sources.iter().filter(is_stale).collect());
    if gone.is_empty() && stale.is_empty() {
        return Ok(true);
    }
    for name in ["gradiff", "gradiff-without-wgpu"] {
        let _ = fs::remove_file(folder.join(name));
    }
    for path in gone {
        fs::remove_file(workspace.join(path)).map_err(&failed)?;
    }
    for (path, text) in stale {
        let path = workspace.join(path);
        let parent = path.parent().unwrap_or(&workspace);
        fs::create_dir_all(parent).and_then(|()| fs::write(&path, text)).map_err(&failed)?;
    }
    Ok(false)
}

/// Returns the sources with all faults in them.
///
/// # Errors
/// An edit that does not fit.
pub(crate) fn instrumented(root: &Path, catalogue: &Catalogue) -> Result<Sources, Failure> {
    let mut sources = Sources::new();
    for part in PARTS {
        let paths = files(root, Path::new(part)).map_err(failed_at(&root.join(part)))?;
        for path in paths {
            let text = fs::read(root.join(&path)).map_err(failed_at(&root.join(&path)))?;
            sources.insert(path, text);
        }
    }
    plant(&mut sources, catalogue)?;
    adapt(&mut sources, catalogue.folder())?;
    Ok(sources)
}

/// Puts the faults into the sources, and a module with their names into each crate that has some.
fn plant(sources: &mut Sources, catalogue: &Catalogue) -> Result<(), Failure> {
    let mut by_file: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
    for (number, fault) in catalogue.faults.iter().enumerate() {
        for (at, edit) in fault.edits.iter().enumerate() {
            by_file.entry(&edit.file).or_default().push((number, at));
        }
    }
    // The faults of each crate; their indices in the list are their numbers there.
    let mut known: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, edits) in by_file {
        let misfit = |index: usize, message: &str| {
            let (number, at) = edits[index];
            catalogue.misfit(number, at, message)
        };
        let (crate_folder, _) = file
            .split_once("/src/")
            .ok_or_else(|| misfit(0, &format!("{file} is not in the src folder of a crate")))?;
        let names = known.entry(crate_folder).or_default();
        let mut planted = Vec::new();
        for (number, at) in &edits {
            let fault = &catalogue.faults[*number];
            let name = fault.name.as_str();
            let number = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            planted.push(Planted { number, name, edit: &fault.edits[*at] });
        }
        let text = sources.get_mut(Path::new(file));
        let text = text.ok_or_else(|| misfit(0, &format!("there is no file {file}")))?;
        let changed = instrument(&String::from_utf8_lossy(text), &planted);
        *text = changed.map_err(|found| misfit(found.index, &found.message))?.into_bytes();
    }
    for (crate_folder, names) in known {
        let roots =
            ["lib.rs", "main.rs"].map(|name| Path::new(crate_folder).join("src").join(name));
        let root = roots.iter().find(|path| sources.contains_key(*path));
        let text = root.and_then(|path| sources.get_mut(path));
        let text = text.ok_or_else(|| Failure::Usage(format!("{crate_folder} is not a crate")))?;
        text.extend(module(&names).into_bytes());
    }
    Ok(())
}

/// Adapts the copy's manifests: another name for the binary, no warnings about code that faults
/// leave unused, and a version that tells the copy's crates from those of the checkout and of other
/// copies: in the target folder that they share, crates of one version replace each other.
fn adapt(sources: &mut Sources, copy: &str) -> Result<(), Failure> {
    let before = concat!("version = \"", env!("CARGO_PKG_VERSION"), "\"\n");
    let after = before.replace("\"\n", &format!("+{copy}\"\n"));
    let lints = "[workspace.lints.rust]\n";
    let changes = [
        ("Cargo.toml", lints.to_string(), format!("{lints}warnings = \"allow\"\n")),
        ("Cargo.toml", format!("\n{before}"), format!("\n{after}")),
        ("fuzz/cli/Cargo.toml", "name = \"gradiff\"\n".into(), format!("name = \"{BINARY}\"\n")),
    ];
    for (file, before, after) in changes {
        let text = sources
            .get_mut(Path::new(file))
            .filter(|text| String::from_utf8_lossy(text).matches(&before).count() == 1);
        let text = text.ok_or_else(|| {
            Failure::Internal(format!("{file} does not contain {before:?}, which the copy needs"))
        })?;
        *text = String::from_utf8_lossy(text).replacen(&before, &after, 1).into_bytes();
    }
    if let Some(lock) = sources.get_mut(Path::new("Cargo.lock")) {
        let text = String::from_utf8_lossy(lock);
        let adapted = |package: &str| match package.starts_with("gradiff") {
            true => package.replacen(before, &after, 1),
            false => package.to_string(),
        };
        let packages: Vec<String> = text.split("name = \"").map(adapted).collect();
        *lock = packages.join("name = \"").into_bytes();
    }
    Ok(())
}

/// Returns the files at or below a path, relative to `root`, in order; without hidden and built
/// ones.
fn files(root: &Path, part: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut pending) = (Vec::new(), vec![part.to_path_buf()]);
    while let Some(path) = pending.pop() {
        if OMITTED.iter().any(|omitted| path == Path::new(omitted)) {
            continue;
        }
        if !root.join(&path).is_dir() {
            files.push(path);
            continue;
        }
        for entry in fs::read_dir(root.join(&path))? {
            let name = entry?.file_name();
            let is_hidden = name.to_string_lossy().starts_with('.');
            let is_built = name == "target";
            if !is_hidden && !is_built {
                pending.push(path.join(name));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns cargo's target folder: the one that contains this binary, or else that of the checkout.
fn target_folder(root: &Path) -> PathBuf {
    let here = std::env::current_exe().unwrap_or_default();
    let is_target = |folder: &&Path| folder.join("CACHEDIR.TAG").is_file();
    here.ancestors().find(is_target).map_or_else(|| root.join("target"), Path::to_path_buf)
}

/// Builds the copy. Returns the path of its binary.
fn build(root: &Path, workspace: &Path, is_whole: bool) -> Result<PathBuf, Failure> {
    let cannot_start =
        |error: io::Error| Failure::Internal(format!("cargo cannot be started: {error}"));
    let target = target_folder(root);
    let run = |flags: &[&str]| cargo(workspace, &target, is_whole, flags).output();
    let mut output = run(&["--offline"]).map_err(cannot_start)?;
    if !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("--offline") {
        output = run(&[]).map_err(cannot_start)?;
    }
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let errors = stderr.find("error").map_or("", |at| &stderr[at..]).trim_end();
        return Err(Failure::Usage(format!(
            "the sources with the faults in {} do not compile; `before` and `after` must each be \
             an expression, or statements whose names are not used elsewhere\n{errors}",
            workspace.display()
        )));
    }
    executable(&output).ok_or_else(|| Failure::Internal("cargo did not name a binary".to_string()))
}

fn cargo(workspace: &Path, target: &Path, is_whole: bool, flags: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(workspace).stdin(Stdio::null());
    // These variables, which cargo sets for a program that it runs, describe that program.
    let prefixes =
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
    for (name, _) in std::env::vars_os() {
        if prefixes.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.env("CARGO_TARGET_DIR", target).env_remove("CARGO_BUILD_TARGET");
    command.args(["build", "--release", "--quiet", "--package=gradiff-cli"]);
    command.arg("--message-format=json-render-diagnostics").args(flags);
    if !is_whole {
        command.arg("--no-default-features");
    }
    command
}

/// Returns the path of the binary, from cargo's messages on standard output.
fn executable(output: &Output) -> Option<PathBuf> {
    let messages = String::from_utf8_lossy(&output.stdout);
    messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let path = message["executable"].as_str()?;
        (message["target"]["name"] == BINARY).then(|| PathBuf::from(path))
    })
}

fn failed_at(path: &Path) -> impl Fn(io::Error) -> Failure {
    let path = path.display().to_string();
    move |error| Failure::Internal(format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_not_built_while_another_one_is() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let lock = locked(&folder.path().join("own")).expect("a lock");
        let taken = fs::File::open(folder.path().join("lock")).expect("it is there");
        assert!(taken.try_lock().is_err());
        drop(lock);
        locked(&folder.path().join("given")).expect("a lock");
        assert!(taken.try_lock().is_ok());
    }
}
