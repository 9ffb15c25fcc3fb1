//! Folders and files that no other user can change, and folders that are removed with their
//! process.
//!
//! Compiled objects are loaded and run, so whoever can write to their folder can run code as the
//! user. A folder or file is used only if it belongs to the user and nobody else can write to it or
//! replace it. Symbolic links are never followed. On systems other than Unix the system's defaults
//! for the user's folders are trusted.
//!
//! A claimed folder holds a file that is locked while its process lives. If the lock is free, the
//! process is dead and the folder is a leftover.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

#[cfg(unix)]
use rustix::{
    fs::OFlags,
    process::{getegid, geteuid},
};

/// The locked file of a claimed folder.
const CLAIM: &str = "claim";
/// Its name before it is locked.
const UNLOCKED_CLAIM: &str = "unlocked-claim";
/// The prefix of the folder of a process.
const PROCESS_PREFIX: &str = "gradiff-private-";
/// The number of random letters and digits in a temporary name: too many for a name that somebody
/// chose.
pub(crate) const RANDOM_CHARS: usize = 16;
/// The user to whom files of users outside of a user namespace seem to belong.
#[cfg(unix)]
const OVERFLOW_USER: u32 = 65534;
/// The age from which a folder without a claim is a leftover: a folder gets its claim right after
/// it is created.
const UNCLAIMED_AGE: Duration = Duration::from_secs(60);

/// Returns the canonical path of a folder. If it does not exist, creates it with access for its
/// owner alone.
///
/// # Errors
/// The folder cannot be created or is a symbolic link; it or a parent folder belongs to another
/// user or can be written by others.
pub(crate) fn open_trusted(path: &Path) -> Result<PathBuf> {
    // A link with a trailing slash would be followed.
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

/// Opens a regular file for reading that belongs to the user and that nobody else can write to.
///
/// # Errors
/// The file does not exist, is not such a file, or is a symbolic link.
pub(crate) fn open(path: &Path) -> Result<File> {
    let file = no_follow(OpenOptions::new().read(true)).open(path)?;
    check_file(&file)?;
    Ok(file)
}

/// Returns whether [`open`] refused what is there: a symbolic link, no regular file, or a file that
/// others can change. Other errors say nothing about the file, such as a lack of file descriptors.
pub(crate) fn is_refusal(error: &Error) -> bool {
    // The checks give errors of this kind, and the system gives none.
    error.kind() == ErrorKind::Other || error.raw_os_error() == Some(libc::ELOOP)
}

/// Opens the file that processes lock against each other, and creates it if it does not exist.
///
/// # Errors
/// As [`open`].
pub(crate) fn lock_file(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let file = no_follow(options.read(true).write(true).create(true)).open(path)?;
    check_file(&file)?;
    Ok(file)
}

/// A temporary folder that is removed when this value is dropped, or as a leftover by another
/// process.
pub(crate) struct ClaimedFolder {
    folder: tempfile::TempDir,
    _claim: File,
}

impl ClaimedFolder {
    /// Creates a folder in `parent` whose name begins with `prefix`, with access for its owner
    /// alone.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub(crate) fn new(parent: &Path, prefix: &str) -> Result<ClaimedFolder> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(prefix).rand_bytes(RANDOM_CHARS);
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let folder = builder.tempdir_in(parent)?;
        // Another process takes a folder whose claim is not locked for a leftover, so the file gets
        // that name when it is locked.
        let unlocked = folder.path().join(UNLOCKED_CLAIM);
        let claim = lock_file(&unlocked)?;
        claim.try_lock()?;
        std::fs::rename(unlocked, folder.path().join(CLAIM))?;
        Ok(ClaimedFolder { folder, _claim: claim })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Returns whether a name is this prefix and as many random letters and digits as temporary names
/// have. What has another name is no leftover: nothing of the user's is removed.
pub(crate) fn is_temporary(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|random| {
        random.len() == RANDOM_CHARS && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Removes a claimed folder of this user if its process is dead.
pub(crate) fn remove_leftover(path: &Path) {
    if !belongs_to_user(path) {
        return;
    }
    // The claim stays locked until the folder is removed.
    let claim = open_existing_lock(&path.join(CLAIM));
    let is_leftover = match &claim {
        Ok(claim) => claim.try_lock().is_ok(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            age(path).is_some_and(|age| UNCLAIMED_AGE < age)
        }
        // There may be a claim, which cannot be opened now: without file descriptors, for example.
        Err(_) => false,
    };
    if is_leftover {
        // Links in the folder are removed, not followed.
        let _ = std::fs::remove_dir_all(path);
    }
}

fn open_existing_lock(path: &Path) -> Result<File> {
    let file = no_follow(OpenOptions::new().read(true).write(true)).open(path)?;
    check_file(&file)?;
    Ok(file)
}

/// The time since a file or folder was changed.
pub(crate) fn age(path: &Path) -> Option<Duration> {
    let changed = std::fs::symlink_metadata(path).ok()?.modified().ok()?;
    SystemTime::now().duration_since(changed).ok()
}

/// Returns the folder of this process, the same at each call. It is removed when the process exits,
/// or as a leftover by the next process that needs such a folder.
///
/// # Errors
/// The folder cannot be created in the directory of temporary files.
pub(crate) fn process_folder() -> Result<PathBuf> {
    let mut created = PROCESS_FOLDER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((path, _)) = &*created {
        return Ok(path.clone());
    }
    let parent = std::env::temp_dir();
    for leftover in std::fs::read_dir(&parent)?.flatten() {
        let is_folder = leftover.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && is_temporary(&leftover.file_name().to_string_lossy(), PROCESS_PREFIX) {
            remove_leftover(&leftover.path());
        }
    }
    let ClaimedFolder { folder, _claim: claim } = ClaimedFolder::new(&parent, PROCESS_PREFIX)?;
    let path = open_trusted(folder.path())?;
    *created = Some((folder.keep(), claim));
    remove_at_exit();
    Ok(path)
}

/// The folder of this process and its claim.
static PROCESS_FOLDER: Mutex<Option<(PathBuf, File)>> = Mutex::new(None);

/// Registers the removal of the folder of this process.
#[cfg(unix)]
fn remove_at_exit() {
    use std::sync::atomic::{AtomicU32, Ordering};
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn remove() {
        // A forked child without `exec` does not own the folder.
        if PROCESS.load(Ordering::Relaxed) != std::process::id() {
            return;
        }
        // If another thread holds the lock now, the folder is left to the next process.
        if let Ok(mut created) = PROCESS_FOLDER.try_lock()
            && let Some((path, _)) = created.take()
        {
            let _ = std::fs::remove_dir_all(path);
        }
    }
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: the function has this signature, does not unwind, and exists until the process ends.
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

/// Makes `open` fail for a symbolic link, and not wait for the other end of a pipe.
#[cfg(unix)]
fn no_follow(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.custom_flags(flags.bits().cast_signed()).mode(0o600)
}

#[cfg(not(unix))]
fn no_follow(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

#[cfg(unix)]
fn check_file(file: &File) -> Result<()> {
    let data = file.metadata()?;
    if !data.is_file() {
        return Err(Error::other("it is not a regular file"));
    }
    check_owner(&data)
}

#[cfg(not(unix))]
fn check_file(_: &File) -> Result<()> {
    Ok(())
}

/// Returns whether a file or folder belongs to the user.
#[cfg(unix)]
fn belongs_to_user(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).is_ok_and(|data| data.uid() == geteuid().as_raw())
}

#[cfg(not(unix))]
fn belongs_to_user(_: &Path) -> bool {
    true
}

/// Checks that a file or folder belongs to the user and nobody else can write to it.
#[cfg(unix)]
fn check_owner(data: &std::fs::Metadata) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let (owner, mode) = (data.uid(), data.mode() & 0o7777);
    let user = geteuid().as_raw();
    if owner != user {
        return Err(Error::other(format!("it belongs to user {owner}, this process to {user}")));
    }
    if mode & 0o022 != 0 {
        return Err(Error::other(format!(
            "users other than its owner can write to it (mode {mode:o}; `chmod go-w` prevents that)"
        )));
    }
    Ok(())
}

/// Checks that nobody else can write to a folder or replace it. A user who can write to a parent
/// folder could rename it, unless the sticky bit prevents that. Write access for the user's primary
/// group is accepted in parent folders, since usually the user is its only member.
#[cfg(unix)]
fn check_folder(path: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let data = std::fs::symlink_metadata(path)?;
    if !data.is_dir() {
        return Err(Error::other("it is not a directory"));
    }
    check_owner(&data)?;
    for parent in path.ancestors().skip(1) {
        let data = std::fs::symlink_metadata(parent)?;
        let (owner, mode) = (data.uid(), data.mode() & 0o7777);
        if is_changeable(parent, owner, data.gid(), mode) {
            let is_unknown = owner == OVERFLOW_USER;
            let hint =
                if is_unknown { " (or in a user namespace any user outside of it)" } else { "" };
            return Err(Error::other(format!(
                "another user can replace it, as {} belongs to user {owner}{hint} and has mode \
                 {mode:o}",
                parent.display()
            )));
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_folder(_: &Path) -> Result<()> {
    Ok(())
}

/// Returns whether a user other than root and this one can replace what is in a folder with this
/// owner, group and mode.
#[cfg(unix)]
fn is_changeable(folder: &Path, owner: u32, group: u32, mode: u32) -> bool {
    let writers = if group == getegid().as_raw() { 0o002 } else { 0o022 };
    let is_shared = mode & writers != 0 && mode & 0o1000 == 0;
    // The owner of the root folder, who may be unknown in a user namespace, can replace all
    // programs and libraries anyway.
    let is_root_folder = folder.parent().is_none();
    is_shared || !is_root_folder && ![0, geteuid().as_raw()].contains(&owner)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .expect("a file of the test");
    }

    fn mode_of(path: &Path) -> u32 {
        std::fs::metadata(path).expect("the file exists").permissions().mode() & 0o7777
    }

    fn refused<T>(result: Result<T>) -> String {
        result.err().expect("it is refused").to_string()
    }

    #[test]
    fn folder_is_created_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("one/two");
        assert_eq!(open_trusted(&inner).unwrap(), inner.canonicalize().unwrap());
        assert_eq!((mode_of(&inner), mode_of(inner.parent().unwrap())), (0o700, 0o700));
    }

    /// With the umask 002 of many systems, the group could replace objects before they are loaded.
    #[test]
    fn claimed_folder_is_created_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let claimed = ClaimedFolder::new(directory.path(), "build-").unwrap();
        assert_eq!(mode_of(claimed.path()), 0o700);
        open_trusted(claimed.path()).unwrap();
    }

    #[test]
    fn folder_that_others_can_change_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("inner");
        open_trusted(&inner).unwrap();
        for mode in [0o777, 0o770, 0o722, 0o1777] {
            set_mode(&inner, mode);
            let error = refused(open_trusted(&inner));
            assert!(error.contains(&format!("mode {mode:o}; `chmod go-w`")), "{error}");
        }
        set_mode(&inner, 0o755);
        open_trusted(&inner).unwrap();
        set_mode(directory.path(), 0o777);
        assert!(refused(open_trusted(&inner)).contains("another user can replace it"));
        set_mode(directory.path(), 0o1777);
        open_trusted(&inner).unwrap();
        set_mode(directory.path(), 0o700);
        let link = directory.path().join("link");
        symlink(&inner, &link).unwrap();
        for link in [link.clone(), link.join("")] {
            assert_eq!(refused(open_trusted(&link)), "it is a symbolic link");
        }
        open_trusted(&link.join("below")).unwrap();
        // Only the superuser may give files away.
        if chown(&inner, Some(12345), None).is_ok() {
            assert!(refused(open_trusted(&inner)).contains("it belongs to user 12345"));
            assert!(refused(open_trusted(&inner.join("below"))).contains("belongs to user 12345"));
        }
    }

    /// The device `c` was not available in user namespaces in which root has no number.
    #[test]
    fn root_folder_may_belong_to_any_user() {
        let stranger = geteuid().as_raw().wrapping_add(1).max(1);
        let group = getegid().as_raw().wrapping_add(1);
        for (folder, owner, mode, expected) in [
            ("/", stranger, 0o755, false),
            ("/", stranger, 0o777, true),
            ("/", 0, 0o775, true),
            // In a user namespace the folders of root look like those of any user outside of it.
            ("/tmp", stranger, 0o1777, true),
            ("/home", stranger, 0o755, true),
            ("/home", 0, 0o755, false),
        ] {
            let found = is_changeable(Path::new(folder), owner, group, mode);
            assert_eq!(found, expected, "{folder} of user {owner}, mode {mode:o}");
        }
    }

    #[test]
    fn file_that_others_can_change_is_refused() {
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
        let mkfifo = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(mkfifo.unwrap().success());
        assert_eq!(refused(open(&pipe)), "it is not a regular file");
        set_mode(&file, 0o666);
        assert!(refused(open(&file)).contains("mode 666"));
        set_mode(&file, 0o600);
        if chown(&file, Some(12345), None).is_ok() {
            assert!(refused(open(&file)).contains("it belongs to user 12345"));
        }
    }

    /// A process that removed leftovers could take a folder whose claim was not locked yet, and it
    /// released the lock before it removed the folder.
    #[test]
    fn new_folders_are_not_taken_for_leftovers() {
        let directory = tempfile::tempdir().unwrap();
        let is_done = std::sync::atomic::AtomicBool::new(false);
        let created: Result<()> = std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                        let entries = std::fs::read_dir(directory.path()).unwrap().flatten();
                        entries.for_each(|entry| remove_leftover(&entry.path()));
                    }
                });
            }
            let created = (0..600).try_for_each(|_| {
                let claimed = ClaimedFolder::new(directory.path(), "build-")?;
                std::fs::write(claimed.path().join("kernels.c"), "text")
            });
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
            created
        });
        created.unwrap();
    }

    #[test]
    fn leftover_is_a_folder_whose_claim_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let claimed = ClaimedFolder::new(directory.path(), "build-").unwrap();
        let path = claimed.path().to_path_buf();
        remove_leftover(&path);
        assert!(path.exists(), "its process is alive");
        let ClaimedFolder { folder, _claim: claim } = claimed;
        drop((folder.keep(), claim));
        remove_leftover(&path);
        assert!(!path.exists(), "nobody holds the claim");
        // A folder whose claim does not exist yet, and then one that is too old for that.
        std::fs::create_dir(&path).unwrap();
        remove_leftover(&path);
        assert!(path.exists());
        make_old(&path);
        remove_leftover(&path);
        assert!(!path.exists());
    }

    fn make_old(folder: &Path) {
        let time = SystemTime::now() - 2 * UNCLAIMED_AGE;
        let opened = File::open(folder).expect("the folder is there");
        opened.set_modified(time).expect("the folder is of this user");
    }

    #[test]
    fn folder_whose_claim_cannot_be_opened_is_no_leftover() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("build-x");
        std::fs::create_dir(&path).unwrap();
        // A link, which is never followed, stands for any error but the absence of the claim.
        symlink("absent", path.join(CLAIM)).unwrap();
        make_old(&path);
        remove_leftover(&path);
        assert!(path.exists());
    }

    #[test]
    fn folder_of_another_user_is_no_leftover() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("build-x");
        std::fs::create_dir(&path).unwrap();
        make_old(&path);
        // Only the superuser may give folders away.
        if chown(&path, Some(12345), None).is_ok() {
            remove_leftover(&path);
            assert!(path.exists());
        }
    }
}
