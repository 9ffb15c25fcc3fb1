//! The flags of the examples, and their end.

use std::process::ExitCode;

/// The number of steps: that of the flag `--steps N`, if it is there.
pub(crate) fn steps(default: u64) -> Result<u64, String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(default),
        ["--steps", count] => match count.parse() {
            Ok(count) if 0 < count => Ok(count),
            _ => Err(format!("--steps {count}: it must be a number, 1 or more")),
        },
        _ => Err(format!("{}: the only flag is --steps N", arguments.join(" "))),
    }
}

/// Prints an error, and returns the exit code.
pub(crate) fn finish(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
