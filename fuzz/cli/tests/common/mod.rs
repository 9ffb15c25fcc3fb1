//! Runs of the command, which the tests share.

use std::path::Path;
use std::process::{Command, Output};

/// Runs a command in a folder.
pub(crate) fn gradiff(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gradiff"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the command starts")
}

/// Standard output and error of a command.
pub(crate) fn both(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
