//! Entries on disk against a model: what was added is read until it is damaged or evicted; entries
//! that are used least recently go first, and files that are no entries stay.

use std::collections::BTreeMap;
use std::fs::{File, create_dir, metadata, write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gradiff::runtime::Cache;

use super::Draw;

/// Entries at first, and steps after them.
const ENTRIES: usize = 5;
const STEPS: usize = 4;
/// Files take long: of so many calls one makes some.
const ONE_IN: usize = 4;
/// Bytes of an object, at most.
const OBJECT_MOST: usize = 600;
/// Between the times at which two entries were used.
const APART: Duration = Duration::from_secs(100);
const KINDS: [&str; 2] = ["so", "opts"];

/// What stands in a folder.
struct Store {
    folder: tempfile::TempDir,
    /// A cache for each kind, which keep whatever they are given.
    caches: Vec<Cache>,
    /// The object of each kind and key, and its file.
    entries: BTreeMap<(usize, String), (Vec<u8>, PathBuf)>,
}

/// Draws a folder with entries and strange files, and uses it.
pub(super) fn stores(draw: &mut Draw) -> Result<(), String> {
    if !draw.one_in(ONE_IN) {
        return Ok(());
    }
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut store = Store { folder, caches: Vec::new(), entries: BTreeMap::new() };
    for kind in 0..KINDS.len() {
        store.caches.push(store.opened(kind, u64::MAX)?);
    }
    for number in 0..ENTRIES {
        store.added(draw, number, None)?;
    }
    for _ in 0..STEPS {
        match draw.below(3) {
            0 => store.is_read(draw)?,
            1 => store.damaged(draw)?,
            _ => {
                let number = draw.below(2 * ENTRIES);
                store.added(draw, number, None)?;
            }
        }
        store.is_kept()?;
    }
    if draw.one_in(3) {
        return refused(draw);
    }
    store.evicted(draw)?;
    store.is_kept()
}

impl Store {
    fn opened(&self, kind: usize, max_bytes: u64) -> Result<Cache, String> {
        let cache = Cache::at(self.folder.path(), KINDS[kind], max_bytes);
        cache.map_err(|error| error.to_string())
    }

    /// Adds an entry under the key of a number, in the place of one that is there; its kind and
    /// key.
    fn added(
        &mut self,
        draw: &mut Draw,
        number: usize,
        bound: Option<u64>,
    ) -> Result<(usize, String), String> {
        let kind = draw.below(KINDS.len());
        let key = format!("key {number}");
        let object: Vec<u8> = (0..draw.below(OBJECT_MOST)).map(|at| at as u8).collect();
        // One that is new looks at the bound with the first entry.
        let bounded = bound.map(|bound| self.opened(kind, bound)).transpose()?;
        let cache = bounded.as_ref().unwrap_or(&self.caches[kind]);
        let path = cache.add(&key, &object).map_err(|error| error.to_string())?;
        if path != cache.path_of(&key) {
            return Err(format!("{key} is at {}, not where it must be", path.display()));
        }
        self.entries.insert((kind, key.clone()), (object, path));
        Ok((kind, key))
    }

    /// The kind and the key of an entry.
    fn any(&self, draw: &mut Draw) -> Option<(usize, String)> {
        let count = self.entries.len();
        (count != 0).then(|| self.entries.keys().nth(draw.below(count)).expect("so many").clone())
    }

    /// All entries are as they were added, and nothing else is found.
    fn is_kept(&self) -> Result<(), String> {
        for (kind, cache) in self.caches.iter().enumerate() {
            for number in 0..=2 * ENTRIES {
                let key = format!("key {number}");
                let found = cache.read(&key);
                let wanted = self.entries.get(&(kind, key.clone())).map(|(object, _)| object);
                if found.as_ref() != wanted {
                    let kind = KINDS[kind];
                    return Err(format!("{key} of {kind} is {found:?}, not {wanted:?}"));
                }
            }
        }
        Ok(())
    }

    /// What is read was used last.
    fn is_read(&mut self, draw: &mut Draw) -> Result<(), String> {
        let Some((kind, key)) = self.any(draw) else { return Ok(()) };
        let path = self.entries[&(kind, key.clone())].1.clone();
        aged(&path, 1000 * APART)?;
        let before = modified(&path)?;
        self.caches[kind].read(&key);
        match before < modified(&path)? {
            true => Ok(()),
            false => Err(format!("{key} counts as unused after it was read")),
        }
    }

    /// An entry that is cut, changed, or another one's is not found, and goes.
    fn damaged(&mut self, draw: &mut Draw) -> Result<(), String> {
        let Some(entry) = self.any(draw) else { return Ok(()) };
        let path = self.entries[&entry].1.clone();
        let mut content = std::fs::read(&path).map_err(|error| error.to_string())?;
        let at = draw.below(content.len());
        match draw.below(4) {
            0 => content.truncate(at),
            1 => content.push(0),
            2 => content[at] ^= 1 << draw.below(8),
            _ => {
                let Some(other) = self.any(draw).filter(|other| other.1 != entry.1) else {
                    return Ok(());
                };
                let other = &self.entries[&other].1;
                content = std::fs::read(other).map_err(|error| error.to_string())?;
            }
        }
        write(&path, &content).map_err(|error| error.to_string())?;
        self.entries.remove(&entry);
        let found = self.caches[entry.0].read(&entry.1);
        match found {
            Some(found) => Err(format!("{} was damaged, and is {found:?}", entry.1)),
            None if path.exists() => Err(format!("{} was damaged, and its file stays", entry.1)),
            None => Ok(()),
        }
    }

    /// A bound is kept by dropping what is oldest.
    fn evicted(&mut self, draw: &mut Draw) -> Result<(), String> {
        // The order of times is drawn.
        let mut order: Vec<(usize, String)> = self.entries.keys().cloned().collect();
        for at in 1..order.len() {
            order.swap(at, draw.below(at + 1));
        }
        for (age, entry) in order.iter().enumerate() {
            aged(&self.entries[entry].1, APART * (age as u32 + 1))?;
        }
        let strangers = self.strangers()?;
        let total: u64 = self.entries.values().map(|(_, path)| size(path)).sum();
        // Near what there is, so that the bound is kept or is not by little.
        let bound = total * (1 + draw.below(6) as u64) / 4 + draw.below(3) as u64;
        let before: Vec<(usize, String)> = order.clone();
        let sizes: Vec<u64> = before.iter().map(|entry| size(&self.entries[entry].1)).collect();
        let newest = self.added(draw, 2 * ENTRIES, Some(bound))?;
        for (path, stays) in &strangers {
            if path.exists() != *stays {
                let wrong = if *stays { "goes" } else { "stays" };
                return Err(format!("{} {wrong}", path.display()));
            }
        }
        let there = |entry: &(usize, String)| self.entries[entry].1.exists();
        if !there(&newest) {
            return Err("what was just added goes".to_string());
        }
        // The oldest ones go, up to one of them.
        let left: Vec<bool> = before.iter().map(there).collect();
        let old: Vec<usize> = (0..before.len()).filter(|at| before[*at] != newest).collect();
        let gone = old.iter().filter(|at| !left[**at]).count();
        let is_by_age = old.iter().rev().take(gone).all(|at| !left[*at]);
        let stay: u64 = old.iter().filter(|at| left[**at]).map(|at| sizes[*at]).sum();
        let stay = stay + size(&self.entries[&newest].1) + kept_beside(&strangers);
        let last = old.get(old.len() - gone).map_or(0, |at| sizes[*at]);
        let all: u64 = old.iter().map(|at| sizes[*at]).sum();
        let all = all + size(&self.entries[&newest].1) + kept_beside(&strangers);
        let problem = match (bound < all, gone) {
            (false, 0) => None,
            (false, _) => Some("entries go though the bound is kept"),
            _ if !is_by_age => Some("it is not the oldest entries that go"),
            _ if bound < stay && gone < old.len() => Some("the bound is not kept"),
            // A quarter, rounded down or up, is to spare, and no more than the last one that went.
            (true, 1..) if stay + last + 4 < bound - bound / 4 => Some("more entries go than must"),
            _ => None,
        };
        if let Some(problem) = problem {
            let order = format!("the newest first {sizes:?}, of which {left:?} are left");
            return Err(format!("{problem}: bound {bound}, {all} in all, {order}"));
        }
        self.entries.retain(|_, (_, path)| path.exists());
        Ok(())
    }

    /// Files and folders that are no entries, and whether each of them must stay.
    fn strangers(&self) -> Result<Vec<(PathBuf, bool)>, String> {
        let of = |name: &str| self.folder.path().join(name);
        let hash = "0123456789abcdef".repeat(4);
        let files = [
            ("notes.so".to_string(), true, 5000),
            ("README".to_string(), true, 5000),
            (format!("{}.so", "xyz".repeat(10)), true, 5000),
            (format!("{}.so", &hash[1..]), true, 5000),
            (format!("{hash}.s-o"), true, 5000),
            (format!("{hash}x.so"), true, 5000),
            ("new-fresh".to_string(), true, 40),
            ("new-old".to_string(), false, 5000),
            ("anew-old".to_string(), true, 5000),
        ];
        let problem = |error: std::io::Error| error.to_string();
        let mut all = Vec::new();
        for (name, stays, bytes) in files {
            write(of(&name), vec![0; bytes]).map_err(problem)?;
            // A file that is being written is a leftover after a while; entries have no such time.
            if name != "new-fresh" {
                aged(&of(&name), Duration::from_secs(7 * 3600))?;
            }
            all.push((of(&name), stays));
        }
        for (name, stays) in [("new-folder", true), ("folder", true), ("build-left", false)] {
            create_dir(of(name)).map_err(problem)?;
            // Nobody has locked it.
            write(of(name).join("claim"), "").map_err(problem)?;
            write(of(name).join("kernels.c"), [0; 5000]).map_err(problem)?;
            all.push((of(name), stays));
        }
        Ok(all)
    }
}

/// Bytes of files beside the entries that count: what is being written.
fn kept_beside(strangers: &[(PathBuf, bool)]) -> u64 {
    let is_new = |path: &Path| path.ends_with("new-fresh");
    strangers.iter().filter(|(path, _)| is_new(path)).map(|(path, _)| size(path)).sum()
}

fn size(path: &Path) -> u64 {
    metadata(path).map_or(0, |data| data.len())
}

fn modified(path: &Path) -> Result<SystemTime, String> {
    metadata(path).and_then(|data| data.modified()).map_err(|error| error.to_string())
}

/// Makes a file look as if it was used so long ago.
fn aged(path: &Path, age: Duration) -> Result<(), String> {
    let set = |file: File| file.set_modified(SystemTime::now() - age);
    let opened = File::options().append(true).open(path);
    opened.and_then(set).map_err(|error| error.to_string())
}

/// A folder that others may write to, or that is reached through a link, and such an entry, are
/// not taken.
#[cfg(unix)]
fn refused(draw: &mut Draw) -> Result<(), String> {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    let problem = |error: std::io::Error| error.to_string();
    let outer = tempfile::tempdir().map_err(problem)?;
    let folder = outer.path().join("folder");
    let open = |path: &Path| Cache::at(path, KINDS[0], u64::MAX);
    let cache = open(&folder).map_err(|error| format!("a new folder is refused: {error}"))?;
    let mode = metadata(&folder).map_err(problem)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(format!("a new folder is open to others: {mode:o}"));
    }
    let path = cache.add("key", b"object").map_err(|error| error.to_string())?;
    let writers = draw.pick(&[0o020, 0o002, 0o022]);
    match draw.below(4) {
        0 => {
            let link = outer.path().join("link");
            symlink(&folder, &link).map_err(problem)?;
            let slashed = PathBuf::from(format!("{}/", link.display()));
            let is_taken = open(&link).is_ok() || open(&slashed).is_ok();
            return if is_taken { Err("a link is taken as a folder".into()) } else { Ok(()) };
        }
        1 => {
            set_permissions(&folder, Permissions::from_mode(0o700 | writers)).map_err(problem)?;
            let is_taken = open(&folder).is_ok();
            set_permissions(&folder, Permissions::from_mode(0o700)).map_err(problem)?;
            return match is_taken {
                true => Err("a folder that others may write to is taken".into()),
                false => Ok(()),
            };
        }
        2 => set_permissions(&path, Permissions::from_mode(0o600 | writers)).map_err(problem)?,
        _ => {
            let moved = outer.path().join("moved");
            std::fs::rename(&path, &moved).map_err(problem)?;
            symlink(&moved, &path).map_err(problem)?;
        }
    }
    match cache.read("key") {
        None => Ok(()),
        Some(_) => Err("an entry that others may write to, or a link, is read".into()),
    }
}

#[cfg(not(unix))]
fn refused(_: &mut Draw) -> Result<(), String> {
    Ok(())
}
