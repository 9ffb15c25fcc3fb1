//! What was dear to make kept on disk, between runs and between processes: compiled kernels, and
//! what searches found.
//!
//! An entry is one file: the object with a trailer behind it (which loaders pass over) that holds
//! the text of its key and a checksum. It is written beside its place and moved there in
//! one step, so a reader sees a whole entry or none; an entry that does not check out is removed
//! and built again. When all entries together pass the bound, the least recently used ones go.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use crate::Error;

/// Ends every entry.
const MAGIC: &[u8; 8] = b"gradiff1";
/// Bytes behind the key: lengths of object and key, checksum, magic.
const TRAILER_BYTES: usize = 32;
/// The bound on all entries unless `GRADIFF_CACHE_MAX_MIB` says another.
const MAX_MIB: u64 = 512;
/// How many entries are added before the bound is looked at again.
const EVICT_EVERY: usize = 32;

/// Entries of one kind in a directory, found by text.
pub struct Cache {
    directory: PathBuf,
    /// How the names of entries of this kind end.
    ending: &'static str,
    max_bytes: u64,
    added: AtomicUsize,
}

impl Cache {
    /// The cache in `GRADIFF_CACHE_DIR`, else in the user's cache directory, of the entries whose
    /// names have this ending. Where that cannot be written, a new private directory serves this
    /// process alone, and a warning says so.
    ///
    /// # Errors
    /// If there is no such directory either.
    pub fn open(ending: &'static str) -> Result<Cache, Error> {
        let mib = std::env::var("GRADIFF_CACHE_MAX_MIB").ok().and_then(|text| text.parse().ok());
        let max_bytes = mib.unwrap_or(MAX_MIB).saturating_mul(1 << 20);
        let wanted = match std::env::var_os("GRADIFF_CACHE_DIR").filter(|path| !path.is_empty()) {
            Some(path) => Some(PathBuf::from(path)),
            None => directories::ProjectDirs::from("", "", "gradiff")
                .map(|project| project.cache_dir().join("c")),
        };
        if let Some(directory) = &wanted {
            match Cache::at(directory, ending, max_bytes) {
                Ok(cache) => return Ok(cache),
                Err(error) => eprintln!("warning: {error}; .{ending} files are not kept"),
            }
        }
        let private = tempfile::Builder::new().prefix("gradiff-").tempdir();
        let file = |why: std::io::Error| Error::File {
            what: "cannot make a directory in",
            path: std::env::temp_dir(),
            why: why.to_string(),
        };
        Cache::at(&private.map_err(file)?.keep(), ending, max_bytes)
    }

    /// The cache in this directory, which is made if it is not there.
    ///
    /// # Errors
    /// If it cannot be made or written.
    pub fn at(directory: &Path, ending: &'static str, max_bytes: u64) -> Result<Cache, Error> {
        let refuse = |why: std::io::Error| Error::File {
            what: "cannot use the cache directory",
            path: directory.to_path_buf(),
            why: why.to_string(),
        };
        std::fs::create_dir_all(directory).map_err(refuse)?;
        tempfile::tempfile_in(directory).map_err(refuse)?;
        let (directory, added) = (directory.to_path_buf(), AtomicUsize::new(0));
        Ok(Cache { directory, ending, max_bytes, added })
    }

    /// Where the entries lie.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the entry of this key lies or would lie.
    pub fn path_of(&self, key: &str) -> PathBuf {
        let [high, low] =
            [0xcbf2_9ce4_8422_2325, 0x9e37_79b9_7f4a_7c15].map(|basis| fnv(basis, key));
        self.directory.join(format!("{high:016x}{low:016x}.{}", self.ending))
    }

    /// What was added under this key, if the entry is whole.
    pub fn read(&self, key: &str) -> Option<Vec<u8>> {
        let (_, mut content) = self.whole(key)?;
        content.truncate(content.len() - TRAILER_BYTES - key.len());
        Some(content)
    }

    /// The entry of this key, if there is a whole one.
    pub(crate) fn find(&self, key: &str) -> Option<PathBuf> {
        self.whole(key).map(|(path, _)| path)
    }

    fn whole(&self, key: &str) -> Option<(PathBuf, Vec<u8>)> {
        let path = self.path_of(key);
        let content = std::fs::read(&path).ok()?;
        if !is_whole(&content, key) {
            // Truncated, damaged, or another key of the same hash.
            let _ = std::fs::remove_file(&path);
            return None;
        }
        // The time of last use; nothing but the order of eviction depends on it.
        let file = std::fs::File::options().append(true).open(&path);
        let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
        Some((path, content))
    }

    /// Adds `object` under this key, in the place of what was there; the path of the entry.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&self, key: &str, object: &[u8]) -> Result<PathBuf, Error> {
        let path = self.path_of(key);
        let mut content = Vec::with_capacity(object.len() + key.len() + TRAILER_BYTES);
        content.extend_from_slice(object);
        content.extend_from_slice(key.as_bytes());
        content.extend_from_slice(&(object.len() as u64).to_le_bytes());
        content.extend_from_slice(&(key.len() as u64).to_le_bytes());
        content.extend_from_slice(&checksum(object).to_le_bytes());
        content.extend_from_slice(MAGIC);
        let write = || {
            let file = tempfile::NamedTempFile::new_in(&self.directory)?;
            std::fs::write(file.path(), &content)?;
            file.persist(&path).map_err(|error| error.error)
        };
        write().map_err(|why| Error::File {
            what: "cannot write",
            path: path.clone(),
            why: why.to_string(),
        })?;
        if self.added.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVICT_EVERY) {
            self.evict(&path);
        }
        Ok(path)
    }

    /// Removes the least recently used entries, but not `kept`, until the bound holds with a
    /// quarter to spare. Another process at it, or any trouble, is no reason to fail.
    pub(crate) fn evict(&self, kept: &Path) {
        let Ok(lock) = std::fs::File::create(self.directory.join("lock")) else { return };
        if lock.try_lock().is_err() {
            return;
        }
        let Ok(listing) = std::fs::read_dir(&self.directory) else { return };
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = listing
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|ending| ending == self.ending))
            .filter_map(|entry| {
                let data = entry.metadata().ok()?;
                Some((data.modified().ok()?, data.len(), entry.path()))
            })
            .collect();
        let mut total: u64 = entries.iter().map(|(_, size, _)| size).sum();
        if total <= self.max_bytes {
            return;
        }
        entries.sort();
        for (_, size, path) in entries.iter().filter(|(.., path)| path != kept) {
            if total <= self.max_bytes / 4 * 3 {
                break;
            }
            if std::fs::remove_file(path).is_ok() {
                total -= size;
            }
        }
    }
}

/// Whether this is a whole entry of this key.
fn is_whole(content: &[u8], key: &str) -> bool {
    let Some(start) = content.len().checked_sub(TRAILER_BYTES + key.len()) else { return false };
    let (object, rest) = content.split_at(start);
    let (own_key, trailer) = rest.split_at(key.len());
    let mut expected = Vec::with_capacity(TRAILER_BYTES);
    expected.extend_from_slice(&(object.len() as u64).to_le_bytes());
    expected.extend_from_slice(&(key.len() as u64).to_le_bytes());
    expected.extend_from_slice(&checksum(object).to_le_bytes());
    expected.extend_from_slice(MAGIC);
    own_key == key.as_bytes() && trailer == expected
}

/// FNV-1a of the bytes of a text; the same in every run and on every machine.
fn fnv(basis: u64, text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(basis, step)
}

/// As FNV-1a, eight bytes at a time: objects are large and damage is no adversary.
fn checksum(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(max_bytes: u64) -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path(), "so", max_bytes).unwrap();
        (directory, cache)
    }

    #[test]
    fn find_whole_entry_only() {
        let (_directory, cache) = cache(1 << 20);
        assert_eq!(cache.find("key"), None);
        let path = cache.add("key", b"an object").unwrap();
        assert_eq!(cache.find("key"), Some(path.clone()));
        assert_eq!(cache.read("key").unwrap(), b"an object");
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(cache.find("key"), None, "cut to {length} bytes");
            assert!(!path.exists());
        }
        let mut damaged = whole.clone();
        damaged[3] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert_eq!(cache.find("key"), None);
        // Another key that happens to lie at this place.
        let other = std::fs::read(cache.add("other", b"an object").unwrap()).unwrap();
        std::fs::write(&path, &other).unwrap();
        assert_eq!(cache.find("key"), None);
    }

    #[test]
    fn evict_removes_the_oldest_first() {
        let (_directory, cache) = cache(4000);
        let paths: Vec<PathBuf> =
            (0..5).map(|n| cache.add(&format!("key {n}"), &[0; 1000]).unwrap()).collect();
        for (age, path) in paths.iter().rev().enumerate() {
            let file = std::fs::File::options().append(true).open(path).unwrap();
            let time = SystemTime::now() - std::time::Duration::from_secs(60 * age as u64);
            file.set_modified(time).unwrap();
        }
        cache.evict(&paths[4]);
        let left: Vec<bool> = paths.iter().map(|path| path.exists()).collect();
        assert_eq!(left, [false, false, false, true, true]);
    }
}
