//! Tests that run in a process of their own, whose environment, libraries or limits they change.

use std::process::Command;

/// The environment variable that such a process has.
const VARIABLE: &str = "GRADIFF_TEST_CHILD";

/// Returns whether this is the process of a test, which is given with its modules. If not, runs the
/// test in such a process, which `prepare` may change, and asserts that it passes there.
pub(crate) fn is_child(test: &str, prepare: impl FnOnce(&mut Command)) -> bool {
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).env(VARIABLE, "");
    prepare(&mut child);
    let output = child.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}
