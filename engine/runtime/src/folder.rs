//! Folders and files that no other user can change, and folders that go with their process.
//!
//! What is compiled is loaded and run, so whoever can write to a folder of objects can run code as
//! its user. A folder is taken only if it is the user's own and nobody else may write to it or
//! exchange it, and a file only if the same holds of it; symbolic links are never followed. On
//! other systems than Unix the system's own defaults for the user's folders are trusted.
//!
//! A claimed folder holds a locked file for as long as its process lives; the lock of a dead
//! process is free, by which others tell that the folder is a leftover.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// The locked file of a claimed folder.
const CLAIM: &str = "claim";
/// How the name of the folder of a process begins.
const PRIVATE: &str = "gradiff-private-";
/// From which age on a folder without a claim is a leftover: a claim follows its folder at once.
const UNCLAIMED_AGE: Duration = Duration::from_secs(60);

/// The real path of a folder, which is made if it is not there, with access for its owner alone.
///
/// # Errors
/// It cannot be made or is a symbolic link; it, or a file system entry that leads to it, belongs
/// to another user or may be written by others.
pub(crate) fn trusted(path: &Path) -> Result<PathBuf> {
    // Behind a slash at its end a link would be followed.
    let path = path.components().as_path();
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    owner_only(&mut builder);
    match std::fs::symlink_metadata(path) {
        Ok(data) if data.is_symlink() => return Err(Error::other("it is a symbolic link")),
        Ok(_) => {}
        Err(_) => builder.create(path)?,
    }
    let path = path.canonicalize()?;
    check_folder(&path)?;
    Ok(path)
}

/// Opens a regular file for reading that is the user's own and that nobody else may write to.
///
/// # Errors
/// It is not there, is no such file, or is a symbolic link.
pub(crate) fn open(path: &Path) -> Result<File> {
    let file = no_follow(OpenOptions::new().read(true)).open(path)?;
    check_file(&file)?;
    Ok(file)
}

/// The file that processes lock against each other, made if it is not there.
///
/// # Errors
/// As [`open`].
pub(crate) fn lock_file(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let file = no_follow(options.read(true).write(true).create(true)).open(path)?;
    check_file(&file)?;
    Ok(file)
}

/// A temporary folder that is removed with this value, or as a leftover by others.
pub(crate) struct Claimed {
    folder: tempfile::TempDir,
    _claim: File,
}

impl Claimed {
    /// A new folder in `parent`, whose name begins with `prefix`; its owner alone has access.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn new(parent: &Path, prefix: &str) -> Result<Claimed> {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        let claim = lock_file(&folder.path().join(CLAIM))?;
        claim.try_lock()?;
        Ok(Claimed { folder, _claim: claim })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes a claimed folder if its process is dead.
pub(crate) fn remove_leftover(path: &Path) {
    let is_leftover = match lock_file_there(&path.join(CLAIM)) {
        Ok(claim) => claim.try_lock().is_ok(),
        Err(_) => age(path).is_some_and(|age| UNCLAIMED_AGE < age),
    };
    if is_leftover {
        // Links in it are removed, not followed.
        let _ = std::fs::remove_dir_all(path);
    }
}

fn lock_file_there(path: &Path) -> Result<File> {
    let file = no_follow(OpenOptions::new().read(true).write(true)).open(path)?;
    check_file(&file)?;
    Ok(file)
}

/// How long ago a file or folder was changed.
pub(crate) fn age(path: &Path) -> Option<Duration> {
    let changed = std::fs::symlink_metadata(path).ok()?.modified().ok()?;
    SystemTime::now().duration_since(changed).ok()
}

/// The folder of this process, the same at each call; it is removed when the process exits, or as
/// a leftover by the next process that needs one.
///
/// # Errors
/// It cannot be made where temporary files lie.
pub(crate) fn private() -> Result<PathBuf> {
    let mut made = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((path, _)) = &*made {
        return Ok(path.clone());
    }
    let parent = std::env::temp_dir();
    for leftover in std::fs::read_dir(&parent)?.flatten() {
        let is_folder = leftover.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && leftover.file_name().to_string_lossy().starts_with(PRIVATE) {
            remove_leftover(&leftover.path());
        }
    }
    let Claimed { folder, _claim: claim } = Claimed::new(&parent, PRIVATE)?;
    let path = trusted(folder.path())?;
    *made = Some((folder.keep(), claim));
    remove_at_exit();
    Ok(path)
}

/// The folder of this process and its claim.
static OWN: Mutex<Option<(PathBuf, File)>> = Mutex::new(None);

/// Registers the removal of the folder of this process.
#[cfg(unix)]
fn remove_at_exit() {
    use std::sync::atomic::{AtomicU32, Ordering};
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn remove() {
        // A child that was forked and not replaced owns nothing.
        if PROCESS.load(Ordering::Relaxed) != std::process::id() {
            return;
        }
        // Whoever holds the lock while the process exits leaves the folder to the next process.
        if let Ok(mut made) = OWN.try_lock()
            && let Some((path, _)) = made.take()
        {
            let _ = std::fs::remove_dir_all(path);
        }
    }
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: the function is of this signature, does not unwind, and stays for ever.
    unsafe { libc::atexit(remove) };
}

#[cfg(not(unix))]
fn remove_at_exit() {}

#[cfg(unix)]
fn owner_only(builder: &mut DirBuilder) {
    use std::os::unix::fs::DirBuilderExt;
    builder.mode(0o700);
}

#[cfg(not(unix))]
fn owner_only(_: &mut DirBuilder) {}

/// Makes an open fail at a symbolic link, and never wait for the other end of a pipe.
#[cfg(unix)]
fn no_follow(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).mode(0o600)
}

#[cfg(not(unix))]
fn no_follow(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// The user whose rights this process has.
#[cfg(unix)]
fn user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(unix)]
fn check_file(file: &File) -> Result<()> {
    let data = file.metadata()?;
    if !data.is_file() {
        return Err(Error::other("it is no regular file"));
    }
    check_own(&data)
}

#[cfg(not(unix))]
fn check_file(_: &File) -> Result<()> {
    Ok(())
}

/// Whether this is the user's own and nobody else may write to it.
#[cfg(unix)]
fn check_own(data: &std::fs::Metadata) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let (owner, mode) = (data.uid(), data.mode() & 0o7777);
    if owner != user() {
        let own = user();
        return Err(Error::other(format!("it belongs to user {owner}, this process to {own}")));
    }
    if mode & 0o022 != 0 {
        return Err(Error::other(format!(
            "others than its owner may write to it (mode {mode:o}; `chmod go-w` forbids it)"
        )));
    }
    Ok(())
}

/// Whether nobody else may write to a folder or exchange it. In the folders above, another user
/// with rights could rename it, unless their sticky bit forbids that; of a group, its members
/// alone could, and a user's primary group is mostly the user alone.
#[cfg(unix)]
fn check_folder(path: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let data = std::fs::symlink_metadata(path)?;
    if !data.is_dir() {
        return Err(Error::other("it is no directory"));
    }
    check_own(&data)?;
    // SAFETY: the call takes nothing and cannot fail.
    let group = unsafe { libc::getegid() };
    for above in path.ancestors().skip(1) {
        let data = std::fs::symlink_metadata(above)?;
        let (owner, mode) = (data.uid(), data.mode() & 0o7777);
        let writers = if data.gid() == group { 0o002 } else { 0o022 };
        let is_shared = mode & writers != 0 && mode & 0o1000 == 0;
        if is_shared || ![0, user()].contains(&owner) {
            return Err(Error::other(format!(
                "another user may exchange it, as {} belongs to user {owner} and has mode {mode:o}",
                above.display()
            )));
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_folder(_: &Path) -> Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .expect("a file of ours");
    }

    fn mode_of(path: &Path) -> u32 {
        std::fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
    }

    fn refused<T>(result: Result<T>) -> String {
        result.err().expect("it is refused").to_string()
    }

    #[test]
    fn folder_is_made_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("one/two");
        assert_eq!(trusted(&inner).unwrap(), inner.canonicalize().unwrap());
        assert_eq!((mode_of(&inner), mode_of(inner.parent().unwrap())), (0o700, 0o700));
    }

    #[test]
    fn folder_that_others_may_change_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("inner");
        trusted(&inner).unwrap();
        for mode in [0o777, 0o770, 0o722, 0o1777] {
            set_mode(&inner, mode);
            let error = refused(trusted(&inner));
            assert!(error.contains(&format!("mode {mode:o}; `chmod go-w`")), "{error}");
        }
        set_mode(&inner, 0o755);
        trusted(&inner).unwrap();
        set_mode(directory.path(), 0o777);
        assert!(refused(trusted(&inner)).contains("another user may exchange it"));
        set_mode(directory.path(), 0o1777);
        trusted(&inner).unwrap();
        set_mode(directory.path(), 0o700);
        let link = directory.path().join("link");
        symlink(&inner, &link).unwrap();
        for link in [link.clone(), link.join("")] {
            assert_eq!(refused(trusted(&link)), "it is a symbolic link");
        }
        trusted(&link.join("below")).unwrap();
        // Only the superuser may give files away.
        if chown(&inner, Some(12345), None).is_ok() {
            assert!(refused(trusted(&inner)).contains("it belongs to user 12345"));
            assert!(refused(trusted(&inner.join("below"))).contains("belongs to user 12345"));
        }
    }

    #[test]
    fn file_that_others_may_change_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| directory.path().join(name));
        std::fs::write(&file, "text").unwrap();
        open(&file).unwrap();
        symlink(&file, &link).unwrap();
        assert!(open(&link).is_err());
        assert!(lock_file(&link).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
        lock_file(&file).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
        let is_made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(is_made.unwrap().success());
        assert_eq!(refused(open(&pipe)), "it is no regular file");
        set_mode(&file, 0o666);
        assert!(refused(open(&file)).contains("mode 666"));
        set_mode(&file, 0o600);
        if chown(&file, Some(12345), None).is_ok() {
            assert!(refused(open(&file)).contains("it belongs to user 12345"));
        }
    }

    #[test]
    fn leftover_is_a_folder_whose_claim_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let claimed = Claimed::new(directory.path(), "build-").unwrap();
        let alive = claimed.path().to_path_buf();
        remove_leftover(&alive);
        assert!(alive.exists(), "its process lives");
        let Claimed { folder, _claim: claim } = claimed;
        drop((folder.keep(), claim));
        remove_leftover(&alive);
        assert!(!alive.exists(), "nobody holds the claim");
        // One of which the claim does not lie there yet, and one that nobody will claim.
        std::fs::create_dir(&alive).unwrap();
        remove_leftover(&alive);
        assert!(alive.exists());
        File::open(&alive).unwrap().set_modified(SystemTime::now() - 2 * UNCLAIMED_AGE).unwrap();
        remove_leftover(&alive);
        assert!(!alive.exists());
    }
}
