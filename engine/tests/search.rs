//! The environment variable `BEAM`, read by an engine in a process of its own.

// Helpers of tests are tests, too; the lint does not see it in this kind of crate.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use gradiff::{Engine, Tensor};

/// Says in the process of its own that it is one.
const ALONE: &str = "GRADIFF_SEARCH_TEST";

/// What an engine does under the environment of [`run`], told on stdout and stderr.
#[test]
fn alone() {
    if std::env::var_os(ALONE).is_none() {
        return;
    }
    let engine = match Engine::new("jit") {
        Ok(engine) => engine,
        Err(error) => return println!("error: {error}"),
    };
    let numbers: Vec<i32> = (0..64).collect();
    let sum = Tensor::from_slice(&[8, 8], &numbers).unwrap().sum(&[1]).unwrap();
    let sum = sum.reshape(&[8]).unwrap();
    let text = sum.to_text(&engine).unwrap();
    println!("beam {}, {} searches, {text}", engine.beam, engine.search_count());
}

/// stdout and stderr of [`alone`].
fn run(directory: &Path, beam: Option<&str>, debug: &str) -> (String, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "alone", "--nocapture", "--test-threads=1"]);
    command.env(ALONE, "1").env("GRADIFF_CACHE_DIR", directory).env("DEBUG", debug);
    command.env_remove("BEAM").envs(beam.map(|beam| ("BEAM", beam)));
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn beam_is_read_kept_and_told_or_refused() {
    const SUMS: &str = "[28, 92, 156, 220, 284, 348, 412, 476]";
    let directory = tempfile::tempdir().unwrap();
    let check = |beam, debug, expected: &str, told: &str| {
        let (said, progress) = run(directory.path(), beam, debug);
        assert!(said.contains(expected), "{said}");
        assert_eq!(progress.contains("beam r_"), !told.is_empty(), "{progress}");
        assert!(progress.contains(told), "{progress}");
    };
    check(None, "1", &format!("beam 0, 0 searches, {SUMS}"), "");
    check(Some("0"), "1", &format!("beam 0, 0 searches, {SUMS}"), "");
    check(Some("2"), "0", &format!("beam 2, 1 searches, {SUMS}"), "");
    check(Some("2"), "1", &format!("beam 2, 0 searches, {SUMS}"), "");
    check(Some("3"), "1", &format!("beam 3, 1 searches, {SUMS}"), "round 1: ");
    for nonsense in ["many", "-2", "", "1000"] {
        let expected = format!("error: BEAM={nonsense}: it is how many candidates");
        check(Some(nonsense), "0", &expected, "");
    }
}
