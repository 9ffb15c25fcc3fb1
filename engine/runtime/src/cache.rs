//! A cache on disk, shared by runs and processes, for compiled kernels and results of searches.
//!
//! An entry is a file, named by the BLAKE3 hash of its key: the object, and a trailer (which
//! loaders ignore) with the hash of key and object. It is written to a temporary file and renamed,
//! so that readers never see a partial entry. An invalid entry is removed and built again; one that
//! cannot be read at present stays.
//!
//! A hash detects damage, not intent: whoever can write to the folder can write a matching entry.
//! So the folder and each entry must belong to the user, and nobody else may write to them
//! ([`crate::folder`]).
//!
//! When the files of the cache in the folder, of all kinds together, exceed the bound, the least
//! recently used ones are removed. Other files are neither counted nor removed: all names of the
//! cache, but for its lock file, begin with `gradiff-` and have the length of a hash or of a
//! temporary name. The folder may be removed at any time; it is created again.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use crate::Error;
use crate::folder::{self, ClaimedFolder};

/// The last bytes of every entry.
const MAGIC: &[u8; 8] = b"gradiff2";
/// The size of the trailer: hash, length of the object, magic.
const TRAILER_BYTES: usize = 48;
/// The default of `GRADIFF_CACHE_MAX_MIB`, the bound on the size of the cache.
const MAX_MIB: u64 = 512;
/// The number of additions between two checks of the bound.
const EVICT_EVERY: usize = 32;
/// The prefix of entries.
const ENTRY_PREFIX: &str = "gradiff-";
/// The prefix of folders in which objects are built.
const BUILD_PREFIX: &str = "gradiff-build-";
/// The prefix of files that are being written.
const TEMPORARY_PREFIX: &str = "gradiff-new-";
/// The age from which a temporary file is stale.
const TEMPORARY_AGE: Duration = Duration::from_secs(3600);

/// The entries of one kind in a directory, by key.
pub struct Cache {
    directory: PathBuf,
    /// The file extension of the entries.
    extension: &'static str,
    max_bytes: u64,
    added: AtomicUsize,
}

/// Returns the folder of what is kept between runs: `GRADIFF_CACHE_DIR`, or else one in the user's
/// cache directory. `None` if there is neither.
pub fn cache_folder() -> Option<PathBuf> {
    match std::env::var_os("GRADIFF_CACHE_DIR").filter(|path| !path.is_empty()) {
        Some(path) => Some(PathBuf::from(path)),
        None => directories::ProjectDirs::from("", "", "gradiff")
            .map(|project| project.cache_dir().join("c")),
    }
}

impl Cache {
    /// Opens the cache in `GRADIFF_CACHE_DIR`, or else in the user's cache directory, for entries
    /// with this file extension. If the directory cannot be written, or can be written by others,
    /// the cache is in a private directory, with a warning; it is removed when the process exits.
    ///
    /// # Errors
    /// If the private directory cannot be created either.
    pub fn open(extension: &'static str) -> Result<Cache, Error> {
        let mib = std::env::var("GRADIFF_CACHE_MAX_MIB").ok().and_then(|text| text.parse().ok());
        let max_bytes = mib.unwrap_or(MAX_MIB).saturating_mul(1 << 20);
        if let Some(directory) = &cache_folder() {
            match Cache::at(directory, extension, max_bytes) {
                Ok(cache) => return Ok(cache),
                Err(error) => eprintln!(
                    "warning: {error}; .{extension} files are kept for this process alone \
                     (GRADIFF_CACHE_DIR chooses another directory)"
                ),
            }
        }
        let file = |why: std::io::Error| Error::File {
            action: "cannot create a directory (GRADIFF_CACHE_DIR chooses another) in",
            path: std::env::temp_dir(),
            why: why.to_string(),
        };
        Cache::at(&folder::process_folder().map_err(file)?, extension, max_bytes)
    }

    /// Opens the cache in this directory, which is created for its owner alone if it does not
    /// exist.
    ///
    /// # Errors
    /// If the directory cannot be created or written, has no locks, is a symbolic link, belongs to
    /// another user, or can be written or replaced by others.
    pub fn at(directory: &Path, extension: &'static str, max_bytes: u64) -> Result<Cache, Error> {
        let refuse = |why: std::io::Error| Error::File {
            action: "cannot use the cache directory",
            path: directory.to_path_buf(),
            why: why.to_string(),
        };
        let directory = folder::open_trusted(directory).map_err(refuse)?;
        // A file system that takes this folder, its files and its lock takes all that follows.
        drop(ClaimedFolder::new(&directory, BUILD_PREFIX).map_err(refuse)?);
        Ok(Cache { directory, extension, max_bytes, added: AtomicUsize::new(0) })
    }

    /// The directory of the entries.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of the entry of this key, whether it exists or not.
    pub fn path_of(&self, key: &str) -> PathBuf {
        self.path_with(key, self.extension)
    }

    fn path_with(&self, key: &str, extension: &str) -> PathBuf {
        let name = blake3::hash(key.as_bytes()).to_hex();
        self.directory.join(format!("{ENTRY_PREFIX}{name}.{extension}"))
    }

    /// Reads the object of this key; `None` without a valid entry.
    pub fn read(&self, key: &str) -> Option<Vec<u8>> {
        let (_, mut content) = self.read_valid(key)?;
        content.truncate(content.len() - TRAILER_BYTES);
        Some(content)
    }

    /// Returns the path of the entry of this key; `None` without a valid entry.
    pub(crate) fn find(&self, key: &str) -> Option<PathBuf> {
        self.read_valid(key).map(|(path, _)| path)
    }

    /// Reads the entry of this key. Removes it if it is known to be invalid.
    fn read_valid(&self, key: &str) -> Option<(PathBuf, Vec<u8>)> {
        let path = self.path_of(key);
        let mut content = Vec::new();
        let read = folder::open(&path).and_then(|mut file| {
            file.read_to_end(&mut content)?;
            Ok(file)
        });
        match read {
            Ok(file) if is_valid(&content, key) => {
                // The time of last use; only the order of eviction depends on it.
                let _ = file.set_modified(SystemTime::now());
                return Some((path, content));
            }
            // It is absent, or may be valid: for example, there are no file descriptors now.
            Err(error) if !folder::is_refusal(&error) => {}
            // A link, of another user, truncated, damaged, or of another version.
            _ => {
                let _ = std::fs::remove_file(&path);
            }
        }
        None
    }

    /// Adds `object` under this key, replacing an existing entry. Returns the path of the entry.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&self, key: &str, object: &[u8]) -> Result<PathBuf, Error> {
        let path = self.path_of(key);
        self.write(&path, &[object, &trailer(object, key)])?;
        Ok(path)
    }

    /// Writes a text file for people to read; it may be evicted later. Returns its path.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn add_text(&self, text: &str, extension: &str) -> Result<PathBuf, Error> {
        let path = self.path_with(text, extension);
        self.write(&path, &[text.as_bytes()])?;
        Ok(path)
    }

    /// Creates a folder to build an object in.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn build_folder(&self) -> Result<ClaimedFolder, Error> {
        let build = || ClaimedFolder::new(&self.directory, BUILD_PREFIX);
        self.in_directory(build).map_err(|why| Error::File {
            action: "cannot create a directory in",
            path: self.directory.clone(),
            why: why.to_string(),
        })
    }

    /// Runs `work`, which uses the directory. If the directory was removed, creates it again and
    /// repeats `work`.
    fn in_directory<T>(&self, work: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
        match work() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                folder::open_trusted(&self.directory)?;
                work()
            }
            result => result,
        }
    }

    fn write(&self, path: &Path, parts: &[&[u8]]) -> Result<(), Error> {
        let write = || {
            let mut builder = tempfile::Builder::new();
            builder.prefix(TEMPORARY_PREFIX).rand_bytes(folder::RANDOM_CHARS);
            let mut file = builder.tempfile_in(&self.directory)?;
            parts.iter().try_for_each(|part| file.write_all(part))?;
            file.persist(path).map_err(|error| error.error)
        };
        self.in_directory(write).map_err(|why| Error::File {
            action: "cannot write",
            path: path.to_path_buf(),
            why: why.to_string(),
        })?;
        if self.added.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVICT_EVERY) {
            self.evict(path);
        }
        Ok(())
    }

    /// Removes the leftovers of dead processes. If the bound is exceeded, also removes the least
    /// recently used entries, except `protected`, until three quarters of the bound are used. Does
    /// nothing if another process is evicting; ignores errors.
    pub(crate) fn evict(&self, protected: &Path) {
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
            if folder::is_temporary(&name, BUILD_PREFIX) && data.is_dir() {
                folder::remove_leftover(&path);
                total = total.saturating_add(size_of_tree(&path));
            } else if folder::is_temporary(&name, TEMPORARY_PREFIX) && data.is_file() {
                if folder::age(&path).is_some_and(|age| TEMPORARY_AGE < age) {
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
        for (_, size, path) in entries.iter().filter(|(.., path)| path != protected) {
            if total <= self.max_bytes / 4 * 3 {
                break;
            }
            if std::fs::remove_file(path).is_ok() {
                total -= size;
            }
        }
    }
}

/// Returns whether a file name is that of an entry: the prefix, a hash and an extension.
fn is_entry_name(name: &str) -> bool {
    let rest = name.strip_prefix(ENTRY_PREFIX).and_then(|rest| rest.split_once('.'));
    let Some((hash, extension)) = rest else { return false };
    hash.len() == 2 * blake3::OUT_LEN
        && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The size of all files in a folder and its subfolders. Links are not followed.
fn size_of_tree(path: &Path) -> u64 {
    let Ok(listing) = std::fs::read_dir(path) else { return 0 };
    let sizes = listing.flatten().map(|item| match item.metadata() {
        Ok(data) if data.is_dir() => size_of_tree(&item.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    });
    sizes.fold(0, u64::saturating_add)
}

/// Returns whether this is a complete, undamaged entry of this key.
fn is_valid(content: &[u8], key: &str) -> bool {
    let Some(start) = content.len().checked_sub(TRAILER_BYTES) else { return false };
    let (object, end) = content.split_at(start);
    end == trailer(object, key)
}

/// The trailer of an entry.
fn trailer(object: &[u8], key: &str) -> [u8; TRAILER_BYTES] {
    let mut hasher = blake3::Hasher::new();
    // The length separates key and object.
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
    #[cfg(unix)]
    use crate::child::is_child;

    fn cache(max_bytes: u64) -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path(), "so", max_bytes).unwrap();
        (directory, cache)
    }

    #[test]
    fn find_returns_only_valid_entries() {
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
        // The entry of another key at this path.
        let foreign_entry = std::fs::read(cache.add("other", b"an object").unwrap()).unwrap();
        std::fs::write(&path, &foreign_entry).unwrap();
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
        let remain: Vec<bool> = paths.iter().map(|path| path.exists()).collect();
        assert_eq!(remain, [false, false, false, true, true]);
    }

    #[test]
    fn bound_is_on_all_kinds_of_entries() {
        let (directory, cache) = cache(4000);
        let searches = Cache::at(directory.path(), "search", 4000).unwrap();
        let entries: Vec<PathBuf> =
            (0..2).map(|n| cache.add(&format!("key {n}"), &[0; 1000]).unwrap()).collect();
        let old = searches.add("key", &[0; 1000]).unwrap();
        let time = SystemTime::now() - Duration::from_secs(60);
        std::fs::File::options().append(true).open(&old).unwrap().set_modified(time).unwrap();
        // Neither counted nor removed.
        let foreign = directory.path().join("notes.so");
        std::fs::write(&foreign, [0; 10_000]).unwrap();
        cache.evict(&entries[0]);
        assert!(old.exists() && entries.iter().all(|path| path.exists()));
        let build = cache.build_folder().unwrap();
        std::fs::write(build.path().join("kernels.c"), [0; 2000]).unwrap();
        cache.evict(&entries[0]);
        let remain = [&old, &entries[1], &entries[0], &foreign].map(|path| path.exists());
        assert_eq!(remain, [false, false, true, true]);
        assert!(build.path().exists());
    }

    /// Sets the time at which a file or folder was changed to long ago.
    fn make_old(path: &Path) {
        let time = SystemTime::now() - 2 * TEMPORARY_AGE;
        std::fs::File::open(path).unwrap().set_modified(time).unwrap();
    }

    /// Old folders called `build-...` and files called `new-...` were removed as leftovers, and
    /// files named by a hash as entries.
    #[test]
    fn files_of_other_programs_stay() {
        let (directory, cache) = cache(0);
        let hash = "0123456789abcdef".repeat(4);
        let hashed = [format!("{}.png", &hash[..32]), format!("{hash}.so")];
        let folders = ["build-release", "gradiff-build-release"];
        let files = ["new-notes.txt", "gradiff-new-notes", hashed[0].as_str(), hashed[1].as_str()];
        let path_of = |name: &&str| directory.path().join(*name);
        for path in folders.iter().map(path_of) {
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("main.c"), "text").unwrap();
            make_old(&path);
        }
        for path in files.iter().map(path_of) {
            std::fs::write(&path, "text").unwrap();
            make_old(&path);
        }
        cache.add("key", b"an object").unwrap();
        cache.evict(Path::new(""));
        assert!(!cache.path_of("key").exists(), "the bound is 0");
        for name in folders.iter().chain(&files) {
            assert!(path_of(name).exists(), "{name} is removed");
        }
    }

    #[test]
    fn leftovers_of_dead_processes_are_removed() {
        let (directory, cache) = cache(1 << 20);
        let name = |prefix: &str| directory.path().join(format!("{prefix}0123456789abCDEF"));
        let [build, new] = [BUILD_PREFIX, TEMPORARY_PREFIX].map(name);
        std::fs::create_dir(&build).unwrap();
        // A claim that no process has locked.
        std::fs::write(build.join("claim"), "").unwrap();
        std::fs::write(build.join("kernels.c"), [0; 1000]).unwrap();
        std::fs::write(&new, "half").unwrap();
        make_old(&new);
        let path = cache.add("key", b"an object").unwrap();
        assert!(!build.exists() && !new.exists() && path.exists());
    }

    #[test]
    fn removed_directory_is_created_again() {
        let outer = tempfile::tempdir().unwrap();
        let directory = outer.path().join("cache");
        let cache = Cache::at(&directory, "so", 1 << 20).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        drop(cache.build_folder().unwrap());
        std::fs::remove_dir_all(&directory).unwrap();
        cache.add("key", b"an object").unwrap();
        assert_eq!(cache.read("key").unwrap(), b"an object");
    }

    /// A function `flock` that fails in folders called `no-locks`.
    #[cfg(target_os = "linux")]
    const FLOCK: &str = r#"
        #include <errno.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int flock(int file, int operation) {
          char link[64], path[4096] = "";
          snprintf(link, sizeof link, "/proc/self/fd/%d", file);
          if (0 < readlink(link, path, sizeof path - 1) && strstr(path, "/no-locks/")) {
            errno = ENOLCK;
            return -1;
          }
          return syscall(SYS_flock, file, operation);
        }
    "#;

    /// The folder was accepted, and then each compile failed.
    #[cfg(target_os = "linux")]
    #[test]
    fn directory_without_locks_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let prepare = |command: &mut std::process::Command| {
            let [source, library] = ["flock.c", "flock.so"].map(|name| directory.path().join(name));
            std::fs::write(&source, FLOCK).unwrap();
            let mut compiler = std::process::Command::new("cc");
            compiler.args(["-shared", "-fPIC", "-o"]).args([&library, &source]);
            assert!(compiler.status().unwrap().success());
            command.env("LD_PRELOAD", &library);
            command.env("GRADIFF_CACHE_DIR", directory.path().join("no-locks"));
        };
        if !is_child("cache::tests::directory_without_locks_is_refused", prepare) {
            return;
        }
        let chosen = cache_folder().unwrap();
        let error = Cache::at(&chosen, "so", 1 << 20).err().unwrap().to_string();
        assert!(error.contains("cannot use the cache directory"), "{error}");
        let cache = Cache::open("so").unwrap();
        cache.add("key", b"an object").unwrap();
        assert!(cache.find("key").is_some_and(|path| !path.starts_with(&chosen)));
    }

    /// A process without file descriptors removed the entries of all processes.
    #[cfg(unix)]
    #[test]
    fn entry_that_cannot_be_opened_now_stays() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        if !is_child("cache::tests::entry_that_cannot_be_opened_now_stays", |_| ()) {
            return;
        }
        let (_directory, cache) = cache(1 << 20);
        cache.add("key", b"an object").unwrap();
        let limit = getrlimit(Resource::Nofile);
        let none = Rlimit { current: Some(0), maximum: limit.maximum };
        setrlimit(Resource::Nofile, none).unwrap();
        let found = cache.find("key");
        setrlimit(Resource::Nofile, limit).unwrap();
        assert_eq!(found, None, "no file can be opened");
        assert!(cache.find("key").is_some());
    }

    #[cfg(unix)]
    #[test]
    fn planted_entry_is_not_read() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let (directory, cache) = cache(1 << 20);
        let path = cache.add("key", b"an object").unwrap();
        let content = std::fs::read(&path).unwrap();
        let set_mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, set_mode(0o666)).unwrap();
        assert_eq!(cache.find("key"), None, "anyone could have written it");
        let elsewhere = directory.path().join("elsewhere");
        std::fs::write(&elsewhere, &content).unwrap();
        std::fs::set_permissions(&elsewhere, set_mode(0o600)).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert_eq!(cache.find("key"), None, "a link");
        assert_eq!(std::fs::read(&elsewhere).unwrap(), content, "only the link is removed");
        std::fs::rename(&elsewhere, &path).unwrap();
        assert!(cache.find("key").is_some(), "the same bytes in a file of the user");
        if chown(&path, Some(12345), None).is_ok() {
            assert_eq!(cache.find("key"), None, "another user's");
        }
        // Adding replaces a link, and does not follow it.
        symlink(directory.path().join("target"), &path).unwrap();
        cache.add("key", b"another object").unwrap();
        assert_eq!(cache.read("key").unwrap(), b"another object");
        assert!(!directory.path().join("target").exists());
    }

    #[cfg(unix)]
    #[test]
    fn lock_that_is_a_link_is_not_followed() {
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
