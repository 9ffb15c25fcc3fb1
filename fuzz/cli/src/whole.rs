//! Atomic file writes: a file is written completely or not at all.

use std::io::Write;
use std::path::Path;

/// Writes a file. If that fails, or the process ends meanwhile, the old content stays.
///
/// # Errors
/// The folder cannot be written to, or no space is left.
pub(crate) fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The usual mode of created files, from which the process's mask removes bits.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use super::*;

    /// Folder in which the test below runs itself again, with a file size limit of 0.
    const CHILD: &str = "GRADIFF_TEST_WRITE_WHOLE";

    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        if let Some(folder) = std::env::var_os(CHILD) {
            let path = Path::new(&folder).join("a.case");
            write_whole(&path, "output a\n").expect_err("no file may grow");
            return;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let names = || {
            let entries = std::fs::read_dir(folder.path()).expect("a folder");
            entries.map(|entry| entry.expect("an entry").file_name()).collect::<Vec<_>>()
        };
        let again = std::env::current_exe().expect("this test");
        let run = || {
            let mut command = Command::new("sh");
            command.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" what_cannot --nocapture"]);
            let output = command.arg(&again).env(CHILD, folder.path()).output().expect("it runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains(" 1 passed"), "{text}");
        };
        run();
        assert!(names().is_empty(), "{:?}", names());
        // The old content stays.
        let path = folder.path().join("a.case");
        write_whole(&path, "before\n").expect("there is space");
        run();
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "before\n");
        assert_eq!(names(), ["a.case"]);
        write_whole(&path, "after\n").expect("there is space");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "after\n");
    }
}
