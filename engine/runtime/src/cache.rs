//! What was dear to make kept on disk, between runs and between processes: compiled kernels, and
//! what searches found.
//!
//! An entry is one file, named by the BLAKE3 hash of its key: the object with a trailer behind it
//! (which loaders pass over) that holds the hash of key and object together. It is written beside
//! its place and moved there in one step, so a reader sees a whole entry or none; an entry that
//! does not check out is removed and built again.
//!
//! A hash tells damage, not intent: whoever can write to the folder can write a matching entry. So
//! the folder and each entry must be the user's own and closed to writers ([`crate::folder`]).
//!
//! When all that lies in the folder passes the bound, of whatever kind it is, what was used least
//! recently goes. Files that are not the cache's are neither counted nor touched.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use crate::Error;
use crate::folder::{self, Claimed};

/// Ends every entry.
const MAGIC: &[u8; 8] = b"gradiff2";
/// Bytes behind the object: hash, length of the object, magic.
const TRAILER_BYTES: usize = 48;
/// The bound on the folder unless `GRADIFF_CACHE_MAX_MIB` says another.
const MAX_MIB: u64 = 512;
/// How many entries are added before the bound is looked at again.
const EVICT_EVERY: usize = 32;
/// How the names of folders begin in which something is built.
const BUILD: &str = "build-";
/// How the names of files begin that are being written.
const NEW: &str = "new-";
/// From which age on a file that is being written is a leftover.
const NEW_AGE: Duration = Duration::from_secs(3600);

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
    /// names have this ending. Where that cannot be written, or others than the user could, a
    /// private directory serves this process alone, and a warning says so; it is removed when the
    /// process exits.
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
                Err(error) => eprintln!(
                    "warning: {error}; .{ending} files are kept for this process alone \
                     (GRADIFF_CACHE_DIR chooses another directory)"
                ),
            }
        }
        let file = |why: std::io::Error| Error::File {
            what: "cannot make a directory in",
            path: std::env::temp_dir(),
            why: why.to_string(),
        };
        Cache::at(&folder::private().map_err(file)?, ending, max_bytes)
    }

    /// The cache in this directory, which is made if it is not there, for its owner alone.
    ///
    /// # Errors
    /// If it cannot be made or written, is a symbolic link, belongs to another user, or may be
    /// written or exchanged by others.
    pub fn at(directory: &Path, ending: &'static str, max_bytes: u64) -> Result<Cache, Error> {
        let refuse = |why: std::io::Error| Error::File {
            what: "cannot use the cache directory",
            path: directory.to_path_buf(),
            why: why.to_string(),
        };
        let directory = folder::trusted(directory).map_err(refuse)?;
        tempfile::tempfile_in(&directory).map_err(refuse)?;
        Ok(Cache { directory, ending, max_bytes, added: AtomicUsize::new(0) })
    }

    /// Where the entries lie.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the entry of this key lies or would lie.
    pub fn path_of(&self, key: &str) -> PathBuf {
        self.path_by(key, self.ending)
    }

    fn path_by(&self, key: &str, ending: &str) -> PathBuf {
        let name = blake3::hash(key.as_bytes()).to_hex();
        self.directory.join(format!("{name}.{ending}"))
    }

    /// What was added under this key, if the entry is whole.
    pub fn read(&self, key: &str) -> Option<Vec<u8>> {
        let (_, mut content) = self.whole(key)?;
        content.truncate(content.len() - TRAILER_BYTES);
        Some(content)
    }

    /// The entry of this key, if there is a whole one.
    pub(crate) fn find(&self, key: &str) -> Option<PathBuf> {
        self.whole(key).map(|(path, _)| path)
    }

    fn whole(&self, key: &str) -> Option<(PathBuf, Vec<u8>)> {
        let path = self.path_of(key);
        let mut content = Vec::new();
        let read = folder::open(&path).and_then(|mut file| {
            file.read_to_end(&mut content)?;
            Ok(file)
        });
        let file = match read {
            Ok(file) if is_whole(&content, key) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            // A link, another user's, truncated, damaged, or of another version.
            _ => {
                let _ = std::fs::remove_file(&path);
                return None;
            }
        };
        // The time of last use; nothing but the order of eviction depends on it.
        let _ = file.set_modified(SystemTime::now());
        Some((path, content))
    }

    /// Adds `object` under this key, in the place of what was there; the path of the entry.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&self, key: &str, object: &[u8]) -> Result<PathBuf, Error> {
        let path = self.path_of(key);
        self.write(&path, &[object, &trailer(object, key)])?;
        Ok(path)
    }

    /// Writes down a text for people to look at, as long as the bound allows; its path.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn add_text(&self, text: &str, ending: &str) -> Result<PathBuf, Error> {
        let path = self.path_by(text, ending);
        self.write(&path, &[text.as_bytes()])?;
        Ok(path)
    }

    /// A folder to build something in.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn build_folder(&self) -> Result<Claimed, Error> {
        Claimed::new(&self.directory, BUILD).map_err(|why| Error::File {
            what: "cannot make a directory in",
            path: self.directory.clone(),
            why: why.to_string(),
        })
    }

    fn write(&self, path: &Path, parts: &[&[u8]]) -> Result<(), Error> {
        let write = || {
            let mut file = tempfile::Builder::new().prefix(NEW).tempfile_in(&self.directory)?;
            parts.iter().try_for_each(|part| file.write_all(part))?;
            file.persist(path).map_err(|error| error.error)
        };
        write().map_err(|why| Error::File {
            what: "cannot write",
            path: path.to_path_buf(),
            why: why.to_string(),
        })?;
        if self.added.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVICT_EVERY) {
            self.evict(path);
        }
        Ok(())
    }

    /// Removes what dead processes left, then the least recently used entries, but not `kept`,
    /// until the bound holds with a quarter to spare. Another process at it, or any trouble, is no
    /// reason to fail.
    pub(crate) fn evict(&self, kept: &Path) {
        let Ok(lock) = folder::lock_file(&self.directory.join("lock")) else { return };
        if lock.try_lock().is_err() {
            return;
        }
        let Ok(listing) = std::fs::read_dir(&self.directory) else { return };
        let mut total = 0u64;
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for item in listing.flatten() {
            let (name, path) = (item.file_name(), item.path());
            let name = name.to_string_lossy();
            let Ok(data) = item.metadata() else { continue };
            if name.starts_with(BUILD) && data.is_dir() {
                folder::remove_leftover(&path);
                total = total.saturating_add(size_of_tree(&path));
            } else if name.starts_with(NEW) && data.is_file() {
                if folder::age(&path).is_some_and(|age| NEW_AGE < age) {
                    let _ = std::fs::remove_file(&path);
                } else {
                    total = total.saturating_add(data.len());
                }
            } else if is_entry_name(&name) && !data.is_dir() {
                total = total.saturating_add(data.len());
                entries.push((data.modified().unwrap_or(SystemTime::UNIX_EPOCH), data.len(), path));
            }
        }
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

/// Whether a file is an entry: a hash (older versions had one of 128 bits) and an ending.
fn is_entry_name(name: &str) -> bool {
    let Some((hash, ending)) = name.split_once('.') else { return false };
    [32, 64].contains(&hash.len())
        && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        && ending.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Bytes of all files in a folder and those below it; links are not followed.
fn size_of_tree(path: &Path) -> u64 {
    let Ok(listing) = std::fs::read_dir(path) else { return 0 };
    let sizes = listing.flatten().map(|item| match item.metadata() {
        Ok(data) if data.is_dir() => size_of_tree(&item.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    });
    sizes.fold(0, u64::saturating_add)
}

/// Whether this is a whole entry of this key.
fn is_whole(content: &[u8], key: &str) -> bool {
    let Some(start) = content.len().checked_sub(TRAILER_BYTES) else { return false };
    let (object, end) = content.split_at(start);
    end == trailer(object, key)
}

/// What stands behind an object.
fn trailer(object: &[u8], key: &str) -> [u8; TRAILER_BYTES] {
    let mut hasher = blake3::Hasher::new();
    // The length keeps what is the key's and what is the object's apart.
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key.as_bytes());
    hasher.update(object);
    let mut trailer = [0; TRAILER_BYTES];
    trailer[..32].copy_from_slice(hasher.finalize().as_bytes());
    trailer[32..40].copy_from_slice(&(object.len() as u64).to_le_bytes());
    trailer[40..].copy_from_slice(MAGIC);
    trailer
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

    #[test]
    fn bound_is_on_all_that_lies_there() {
        let (directory, cache) = cache(4000);
        let other = Cache::at(directory.path(), "search", 4000).unwrap();
        let own: Vec<PathBuf> =
            (0..2).map(|n| cache.add(&format!("key {n}"), &[0; 1000]).unwrap()).collect();
        let old = other.add("key", &[0; 1000]).unwrap();
        let time = SystemTime::now() - Duration::from_secs(60);
        std::fs::File::options().append(true).open(&old).unwrap().set_modified(time).unwrap();
        // Neither counted nor touched.
        let strange = directory.path().join("notes.so");
        std::fs::write(&strange, [0; 10_000]).unwrap();
        cache.evict(&own[0]);
        assert!(old.exists() && own.iter().all(|path| path.exists()));
        let build = cache.build_folder().unwrap();
        std::fs::write(build.path().join("kernels.c"), [0; 2000]).unwrap();
        cache.evict(&own[0]);
        let left = [&old, &own[1], &own[0], &strange].map(|path| path.exists());
        assert_eq!(left, [false, false, true, true]);
        assert!(build.path().exists());
    }

    #[test]
    fn leftovers_of_dead_processes_are_removed() {
        let (directory, cache) = cache(1 << 20);
        let [build, new] = ["build-x", "new-x"].map(|name| directory.path().join(name));
        std::fs::create_dir(&build).unwrap();
        // A claim that no process holds.
        std::fs::write(build.join("claim"), "").unwrap();
        std::fs::write(build.join("kernels.c"), [0; 1000]).unwrap();
        std::fs::write(&new, "half").unwrap();
        let time = SystemTime::now() - 2 * NEW_AGE;
        std::fs::File::options().append(true).open(&new).unwrap().set_modified(time).unwrap();
        let path = cache.add("key", b"an object").unwrap();
        assert!(!build.exists() && !new.exists() && path.exists());
    }

    #[cfg(unix)]
    #[test]
    fn planted_entry_is_not_read() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let (directory, cache) = cache(1 << 20);
        let path = cache.add("key", b"an object").unwrap();
        let whole = std::fs::read(&path).unwrap();
        let set_mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, set_mode(0o666)).unwrap();
        assert_eq!(cache.find("key"), None, "anyone may have written it");
        let elsewhere = directory.path().join("elsewhere");
        std::fs::write(&elsewhere, &whole).unwrap();
        std::fs::set_permissions(&elsewhere, set_mode(0o600)).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert_eq!(cache.find("key"), None, "a link");
        assert_eq!(std::fs::read(&elsewhere).unwrap(), whole, "the link alone is removed");
        std::fs::rename(&elsewhere, &path).unwrap();
        assert!(cache.find("key").is_some(), "the same bytes, of the user's own");
        if chown(&path, Some(12345), None).is_ok() {
            assert_eq!(cache.find("key"), None, "another user's");
        }
        // Adding takes the place of a link, and leaves what it leads to.
        symlink(directory.path().join("target"), &path).unwrap();
        cache.add("key", b"another object").unwrap();
        assert_eq!(cache.read("key").unwrap(), b"another object");
        assert!(!directory.path().join("target").exists());
    }

    #[cfg(unix)]
    #[test]
    fn lock_that_is_a_link_is_left_alone() {
        let (directory, cache) = cache(0);
        let precious = directory.path().join("precious");
        std::fs::write(&precious, "text").unwrap();
        std::os::unix::fs::symlink(&precious, directory.path().join("lock")).unwrap();
        let path = cache.add("key", b"an object").unwrap();
        cache.evict(Path::new(""));
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "text");
        assert!(path.exists(), "without the lock nothing is evicted");
    }
}
