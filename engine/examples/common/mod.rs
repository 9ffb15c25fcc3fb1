//! The flags of the examples, their end, and the loss of those that classify.

use std::process::ExitCode;

use gradiff::{DType, Error, Tensor};

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

/// The mean of the negative logarithms of the probabilities of the labels [n], for scores
/// [n, classes].
pub(crate) fn cross_entropy(scores: &Tensor, labels: &Tensor) -> Result<Tensor, Error> {
    let hits = labels.one_hot(scores.shape()[1])?.cast(DType::F32)?;
    scores.log_softmax(1)?.mul(hits)?.sum(1)?.mean(..)?.neg()
}
