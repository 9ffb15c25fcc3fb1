//! Output: a file that is replaced at once, or not at all. Refuses to replace anything but a
//! regular file that may be written.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::error::{Problem, broken};

/// The maximal length of a chain of symbolic links, that of Linux.
const MAX_LINKS: usize = 40;

/// Writes a temporary file in the folder of `path`, then renames it to `path`. A file that is there
/// keeps its mode; a symbolic link stays, and the file that it refers to is replaced. After an
/// error the file at `path` is as it was, unless the folder could not be synchronised.
pub(crate) fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&mut File>) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let path = target_of(path)?;
    check_writable(&path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut temporary = create_in(folder, &path)?;
    let mut writer = BufWriter::new(temporary.as_file_mut());
    write(&mut writer)?;
    writer.flush()?;
    drop(writer);
    temporary.as_file().sync_all()?;
    temporary.persist(&path).map_err(|error| error.error)?;
    sync_folder(folder)
}

/// The path of the file that is written: that at the end of a chain of symbolic links, which may
/// not exist yet.
fn target_of(path: &Path) -> Result<PathBuf, Problem> {
    // The links in /proc to pipes are followed by the system alone.
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return broken("this is no regular file, and is not replaced; save to another path");
    }
    let mut target = path.to_path_buf();
    for _ in 0..=MAX_LINKS {
        match std::fs::symlink_metadata(&target) {
            Ok(metadata) if metadata.is_symlink() => {}
            Ok(_) => return Ok(target),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(target),
            Err(error) => return Err(error.into()),
        }
        let link = std::fs::read_link(&target)?;
        target = target.parent().unwrap_or(Path::new("")).join(link);
    }
    broken(format!("a chain of more than {MAX_LINKS} symbolic links; save to another path"))
}

/// Refuses a file that may not be written: a rename asks for no permission of the file.
fn check_writable(path: &Path) -> Result<(), Problem> {
    match File::options().write(true).open(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Creates a temporary file in `folder`, with the mode of the file at `path`, if there is one.
#[cfg(unix)]
fn create_in(folder: &Path, path: &Path) -> Result<tempfile::NamedTempFile, Problem> {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    let replaced = std::fs::metadata(path).ok();
    let mode = replaced.map(|metadata| metadata.permissions().mode() & 0o777);
    let mut builder = tempfile::Builder::new();
    // Else as a file that is created in the usual way. The umask applies to both.
    builder.prefix(".gradiff-").permissions(Permissions::from_mode(mode.unwrap_or(0o666)));
    let temporary = builder.tempfile_in(folder)?;
    let created = temporary.as_file().metadata()?.permissions().mode() & 0o777;
    if let Some(mode) = mode.filter(|mode| *mode != created) {
        // Some file systems have no modes.
        let _ = temporary.as_file().set_permissions(Permissions::from_mode(mode));
    }
    Ok(temporary)
}

/// Creates a temporary file in `folder`.
#[cfg(not(unix))]
fn create_in(folder: &Path, _path: &Path) -> Result<tempfile::NamedTempFile, Problem> {
    Ok(tempfile::Builder::new().prefix(".gradiff-").tempfile_in(folder)?)
}

/// Writes the names in a folder to the disk, so that a crash does not undo a rename.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> Result<(), Problem> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Ok(()) => Ok(()),
        Err(error) => match error.kind() {
            // A folder that may not be read, or a file system that does not synchronise folders.
            ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported => {
                Ok(())
            }
            _ => Err(error.into()),
        },
    }
}

/// Does nothing: the names in a folder are the system's to write.
#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> Result<(), Problem> {
    Ok(())
}
