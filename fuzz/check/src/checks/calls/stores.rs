//! Entries on disk against a model: an entry that was added is found until it is damaged or
//! evicted; the least recently used ones are evicted first, and files that are no entries stay.

use std::collections::BTreeMap;
use std::fs::{File, create_dir, create_dir_all, metadata, write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gradiff::runtime::Cache;

use super::Draw;

/// Number of entries at first, and of actions after them.
const ENTRIES: usize = 5;
const ACTIONS: usize = 4;
/// Files take long, so only one in this many calls uses them.
const ONE_IN: usize = 4;
/// Limit of the bytes of an object.
const OBJECT_LIMIT: usize = 600;
/// Difference of the times at which two entries were used.
const AGE_UNIT: Duration = Duration::from_secs(100);
const KINDS: [&str; 2] = ["so", "opts"];
/// Sizes of the files in a folder of another process that builds.
const BUILT_BYTES: [u64; 2] = [30, 70];
/// A file that another process writes, and a folder in which it builds.
const FRESH_FILE: &str = "gradiff-new-01234567890fresh";
const YOUNG_FOLDER: &str = "gradiff-build-01234567890young";

/// A folder with caches, and its model.
struct Store {
    folder: tempfile::TempDir,
    /// A cache without a bound for each kind.
    caches: Vec<Cache>,
    /// The object of each kind and key, and its file.
    entries: BTreeMap<(usize, String), (Vec<u8>, PathBuf)>,
}

/// Draws a folder with entries and foreign files, and uses it.
pub(super) fn stores(draw: &mut Draw) -> Result<(), String> {
    if !draw.one_in(ONE_IN) {
        return Ok(());
    }
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut store = Store { folder, caches: Vec::new(), entries: BTreeMap::new() };
    for kind in 0..KINDS.len() {
        store.caches.push(store.open(kind, u64::MAX)?);
    }
    for number in 0..ENTRIES {
        store.add(draw, number, None)?;
    }
    for _ in 0..ACTIONS {
        match draw.below(3) {
            0 => store.read(draw)?,
            1 => store.damage(draw)?,
            _ => {
                let number = draw.below(2 * ENTRIES);
                store.add(draw, number, None)?;
            }
        }
        store.check()?;
    }
    check_modes(store.folder.path())?;
    match draw.below(4) {
        0 => return check_refusals(draw),
        1 => return check_hashed_files(),
        _ => {}
    }
    store.evict(draw)?;
    store.check()
}

impl Store {
    fn open(&self, kind: usize, max_bytes: u64) -> Result<Cache, String> {
        let cache = Cache::at(self.folder.path(), KINDS[kind], max_bytes);
        cache.map_err(|error| error.to_string())
    }

    /// Adds the entry with the key of a number, replacing one that is there; returns its kind and
    /// key.
    fn add(
        &mut self,
        draw: &mut Draw,
        number: usize,
        bound: Option<u64>,
    ) -> Result<(usize, String), String> {
        let kind = draw.below(KINDS.len());
        let key = format!("key {number}");
        let object: Vec<u8> = (0..draw.below(OBJECT_LIMIT)).map(|at| at as u8).collect();
        // A new cache applies its bound when it adds its first entry.
        let bounded = bound.map(|bound| self.open(kind, bound)).transpose()?;
        let cache = bounded.as_ref().unwrap_or(&self.caches[kind]);
        let path = cache.add(&key, &object).map_err(|error| error.to_string())?;
        if path != cache.path_of(&key) {
            return Err(format!("{key} is at {}, not at the path of its key", path.display()));
        }
        self.entries.insert((kind, key.clone()), (object, path));
        Ok((kind, key))
    }

    /// The kind and the key of a drawn entry.
    fn any(&self, draw: &mut Draw) -> Option<(usize, String)> {
        let count = self.entries.len();
        (count != 0).then(|| self.entries.keys().nth(draw.below(count)).expect("so many").clone())
    }

    /// Checks that all entries are found as they were added, and no others.
    fn check(&self) -> Result<(), String> {
        for (kind, cache) in self.caches.iter().enumerate() {
            for number in 0..=2 * ENTRIES {
                let key = format!("key {number}");
                let found = cache.read(&key);
                let wanted = self.entries.get(&(kind, key.clone())).map(|(object, _)| object);
                if found.as_ref() != wanted {
                    let kind = KINDS[kind];
                    return Err(format!("{key} of {kind} is {found:?}, expected {wanted:?}"));
                }
            }
        }
        Ok(())
    }

    /// Reads an entry, and checks that it counts as used now.
    fn read(&mut self, draw: &mut Draw) -> Result<(), String> {
        let Some((kind, key)) = self.any(draw) else { return Ok(()) };
        let path = self.entries[&(kind, key.clone())].1.clone();
        set_age(&path, 1000 * AGE_UNIT)?;
        let before = modified(&path)?;
        self.caches[kind].read(&key);
        match before < modified(&path)? {
            true => Ok(()),
            false => Err(format!("{key} does not count as used after it was read")),
        }
    }

    /// Cuts or changes an entry or replaces it by another one, and checks that it is not found and
    /// that its file is removed.
    fn damage(&mut self, draw: &mut Draw) -> Result<(), String> {
        let Some(entry) = self.any(draw) else { return Ok(()) };
        let path = self.entries[&entry].1.clone();
        let mut content = std::fs::read(&path).map_err(|error| error.to_string())?;
        let at = draw.below(content.len());
        match draw.below(4) {
            0 => content.truncate(at),
            1 => content.push(0),
            2 => content[at] ^= 1 << draw.below(8),
            _ => {
                let Some(donor) = self.any(draw).filter(|donor| donor.1 != entry.1) else {
                    return Ok(());
                };
                let donor = &self.entries[&donor].1;
                content = std::fs::read(donor).map_err(|error| error.to_string())?;
            }
        }
        write(&path, &content).map_err(|error| error.to_string())?;
        self.entries.remove(&entry);
        let found = self.caches[entry.0].read(&entry.1);
        match found {
            Some(found) => Err(format!("{} was damaged, and is read as {found:?}", entry.1)),
            None if path.exists() => {
                Err(format!("{} was damaged, and its file is not removed", entry.1))
            }
            None => Ok(()),
        }
    }

    /// Adds an entry under a bound, and checks that the oldest ones are evicted, as many as the
    /// bound requires.
    fn evict(&mut self, draw: &mut Draw) -> Result<(), String> {
        // The order in which entries were used is drawn.
        let mut order: Vec<(usize, String)> = self.entries.keys().cloned().collect();
        for at in 1..order.len() {
            order.swap(at, draw.below(at + 1));
        }
        for (age, entry) in order.iter().enumerate() {
            set_age(&self.entries[entry].1, AGE_UNIT * (age as u32 + 1))?;
        }
        let foreign = self.add_foreign_files()?;
        let total: u64 = self.entries.values().map(|(_, path)| size(path)).sum();
        // Near the total, so that the bound is met or exceeded by little.
        let bound = total * (1 + draw.below(6) as u64) / 4 + draw.below(3) as u64;
        let before: Vec<(usize, String)> = order.clone();
        let sizes: Vec<u64> = before.iter().map(|entry| size(&self.entries[entry].1)).collect();
        let newest = self.add(draw, 2 * ENTRIES, Some(bound))?;
        for (path, stays) in &foreign {
            if path.exists() != *stays {
                let wrong = if *stays { "is removed" } else { "is not removed" };
                return Err(format!("{} {wrong}", path.display()));
            }
        }
        let exists = |entry: &(usize, String)| self.entries[entry].1.exists();
        if !exists(&newest) {
            return Err("the entry that was just added is evicted".to_string());
        }
        // The evicted ones must be the oldest.
        let left: Vec<bool> = before.iter().map(exists).collect();
        let old: Vec<usize> = (0..before.len()).filter(|at| before[*at] != newest).collect();
        let gone = old.iter().filter(|at| !left[**at]).count();
        let is_by_age = old.iter().rev().take(gone).all(|at| !left[*at]);
        let left_bytes: u64 = old.iter().filter(|at| left[**at]).map(|at| sizes[*at]).sum();
        let extra = size(&self.entries[&newest].1) + counted_bytes(&foreign);
        let left_bytes = left_bytes + extra;
        let last = old.get(old.len() - gone).map_or(0, |at| sizes[*at]);
        let all_bytes = old.iter().map(|at| sizes[*at]).sum::<u64>() + extra;
        let problem = match (bound < all_bytes, gone) {
            (false, 0) => None,
            (false, _) => Some("entries are evicted though the bound is met"),
            _ if !is_by_age => Some("the evicted entries are not the oldest"),
            _ if bound < left_bytes && gone < old.len() => Some("the bound is exceeded"),
            // A quarter of the bound, rounded down or up, is freed as well; the entry that was
            // evicted last may exceed that.
            (true, 1..) if left_bytes + last + 4 < bound - bound / 4 => {
                Some("too many entries are evicted")
            }
            _ => None,
        };
        if let Some(problem) = problem {
            let order = format!("sizes, the newest first: {sizes:?}; those left: {left:?}");
            return Err(format!("{problem}: bound {bound}, total {all_bytes}, {order}"));
        }
        self.entries.retain(|_, (_, path)| path.exists());
        Ok(())
    }

    /// Adds files and folders that are no entries; returns whether each of them must stay.
    fn add_foreign_files(&self) -> Result<Vec<(PathBuf, bool)>, String> {
        let path_of = |name: &str| self.folder.path().join(name);
        let hash = "0123456789abcdef".repeat(4);
        let files = [
            ("notes.so".to_string(), true, 5000),
            ("README".to_string(), true, 5000),
            (format!("{}.so", "xyz".repeat(10)), true, 5000),
            ("f.so".to_string(), true, 5000),
            (format!("{hash}.so"), true, 5000),
            (format!("gradiff-{}.so", &hash[..32]), true, 5000),
            (format!("gradiff-{}.so", &hash[1..]), true, 5000),
            (format!("gradiff-{hash}.s-o"), true, 5000),
            (format!("gradiff-{hash}x.so"), true, 5000),
            (FRESH_FILE.to_string(), true, 40),
            ("gradiff-new-0123456789000old".to_string(), false, 5000),
            ("agradiff-new-0123456789000old".to_string(), true, 5000),
            ("gradiff-new-old".to_string(), true, 5000),
            ("new-old".to_string(), true, 5000),
        ];
        let problem = |error: std::io::Error| error.to_string();
        let mut files_added = Vec::new();
        for (name, stays, bytes) in files {
            write(path_of(&name), vec![0; bytes]).map_err(problem)?;
            // An old file that was being written counts as a leftover; other files do not.
            if name != FRESH_FILE {
                set_age(&path_of(&name), Duration::from_secs(7 * 3600))?;
            }
            files_added.push((path_of(&name), stays));
        }
        for (name, stays) in [
            ("gradiff-new-0123456789folder", true),
            ("folder", true),
            ("build-left", true),
            ("gradiff-build-left", true),
            ("gradiff-build-012345678901left", false),
        ] {
            create_dir(path_of(name)).map_err(problem)?;
            // No process has locked it.
            write(path_of(name).join("claim"), "").map_err(problem)?;
            write(path_of(name).join("kernels.c"), [0; 5000]).map_err(problem)?;
            files_added.push((path_of(name), stays));
        }
        // Another process may be about to claim it. All files in it count, at any depth.
        let young = path_of(YOUNG_FOLDER);
        create_dir_all(young.join("inner").join("empty")).map_err(problem)?;
        for (name, bytes) in ["kernels.c", "inner/kernels.so"].into_iter().zip(BUILT_BYTES) {
            write(young.join(name), vec![0; bytes as usize]).map_err(problem)?;
        }
        files_added.push((young, true));
        Ok(files_added)
    }
}

/// Checks that files named by a hash alone, as many programs name theirs, are not evicted.
fn check_hashed_files() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path_of = |count| folder.path().join(format!("{}.so", "0123456789abcdef".repeat(count)));
    let hashed = [2, 4].map(path_of);
    for path in &hashed {
        write(path, [0; 5000]).map_err(|error| error.to_string())?;
        set_age(path, AGE_UNIT)?;
    }
    let cache = Cache::at(folder.path(), KINDS[0], 1000).map_err(|error| error.to_string())?;
    cache.add("key", b"object").map_err(|error| error.to_string())?;
    match hashed.iter().find(|path| !path.exists()) {
        Some(path) => Err(format!("{} is evicted", path.display())),
        None => Ok(()),
    }
}

/// Bytes of the foreign files that count toward the bound: those that are being written or built.
fn counted_bytes(foreign: &[(PathBuf, bool)]) -> u64 {
    let counted = |(path, _): &(PathBuf, bool)| match path.file_name()?.to_str()? {
        FRESH_FILE => Some(size(path)),
        YOUNG_FOLDER => Some(BUILT_BYTES.into_iter().sum()),
        _ => None,
    };
    foreign.iter().filter_map(counted).sum()
}

/// Checks that the files and folders that a cache has made are open to their owner, and to nobody
/// else.
#[cfg(unix)]
fn check_modes(folder: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let items = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    for item in items.flatten() {
        let data = item.metadata().map_err(|error| error.to_string())?;
        let mode = data.permissions().mode() & 0o7777;
        let expected = if data.is_dir() { 0o700 } else { 0o600 };
        if mode != expected {
            let path = item.path();
            return Err(format!("{} has mode {mode:o}, not {expected:o}", path.display()));
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_modes(_: &Path) -> Result<(), String> {
    Ok(())
}

fn size(path: &Path) -> u64 {
    metadata(path).map_or(0, |data| data.len())
}

fn modified(path: &Path) -> Result<SystemTime, String> {
    metadata(path).and_then(|data| data.modified()).map_err(|error| error.to_string())
}

/// Sets the time at which a file was used to the given age.
fn set_age(path: &Path, age: Duration) -> Result<(), String> {
    let set = |file: File| file.set_modified(SystemTime::now() - age);
    let opened = File::options().append(true).open(path);
    opened.and_then(set).map_err(|error| error.to_string())
}

/// Checks that folders and entries that others may write to, or that are symbolic links, are
/// refused.
#[cfg(unix)]
fn check_refusals(draw: &mut Draw) -> Result<(), String> {
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
    match draw.below(5) {
        4 => return check_parent(&outer, &folder, draw),
        0 => {
            let link = outer.path().join("link");
            symlink(&folder, &link).map_err(problem)?;
            let slashed = PathBuf::from(format!("{}/", link.display()));
            let is_accepted = open(&link).is_ok() || open(&slashed).is_ok();
            return if is_accepted { Err("a link to a folder is accepted".into()) } else { Ok(()) };
        }
        1 => {
            set_permissions(&folder, Permissions::from_mode(0o700 | writers)).map_err(problem)?;
            let is_accepted = open(&folder).is_ok();
            set_permissions(&folder, Permissions::from_mode(0o700)).map_err(problem)?;
            return match is_accepted {
                true => Err("a folder that others may write to is accepted".into()),
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

/// Checks that a folder is refused if others may replace it: if they may write to its parent, which
/// has no sticky bit. The user's own group may.
#[cfg(unix)]
fn check_parent(outer: &tempfile::TempDir, folder: &Path, draw: &mut Draw) -> Result<(), String> {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    let (is_open, is_sticky) = (draw.one_in(2), draw.one_in(2));
    let mode = 0o700 | draw.pick(&[0, 0o005]) | draw.pick(&[0, 0o050, 0o070]);
    let mode = mode | if is_open { 0o002 } else { 0 } | if is_sticky { 0o1000 } else { 0 };
    let parent = outer.path();
    set_permissions(parent, Permissions::from_mode(mode)).map_err(|error| error.to_string())?;
    match Cache::at(folder, KINDS[0], u64::MAX) {
        Ok(_) if is_open && !is_sticky => {
            Err(format!("a folder that others may replace is accepted, in one of mode {mode:o}"))
        }
        Err(error) if !is_open || is_sticky => {
            Err(format!("a folder in one of mode {mode:o} is refused: {error}"))
        }
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn check_refusals(_: &mut Draw) -> Result<(), String> {
    Ok(())
}
