//! The environment variables `BEAM` and `BEAM_TIMEOUT_SEC`, read by an engine in a child process.

// Clippy does not recognise helpers of integration tests as test code.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use gradiff::{Engine, Tensor, keepdim};

/// The variable that names the device in the child process.
const DEVICE: &str = "GRADIFF_SEARCH_TEST";

/// The test that [`run`] runs in a child process. It reports on stdout and stderr.
#[test]
fn child() {
    let Ok(device) = std::env::var(DEVICE) else { return };
    let engine = match Engine::new(&device) {
        Ok(engine) => engine,
        Err(error) => return println!("error: {error}"),
    };
    let numbers: Vec<i32> = (0..64).collect();
    let sum = Tensor::from_slice(&[8, 8], &numbers).unwrap().sum(keepdim(1)).unwrap();
    let sum = sum.reshape(&[8]).unwrap();
    engine.realize(&[&sum]).unwrap();
    let text = sum.to_text().unwrap();
    println!("beam {}, {} searches, {text}", engine.beam, engine.search_count());
}

/// Runs [`child`] in a process with these variables, and returns its stdout and stderr.
fn run(device: &str, directory: &Path, variables: &[(&str, &str)]) -> (String, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command.env(DEVICE, device).env("GRADIFF_CACHE_DIR", directory);
    command.env_remove("BEAM").env_remove("BEAM_TIMEOUT_SEC");
    command.envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

const SUMS: &str = "[28, 92, 156, 220, 284, 348, 412, 476]";

#[test]
fn beam_is_read_and_invalid_values_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let check = |beam: Option<&str>, debug: &str, expected: &str, expected_progress: &str| {
        let variables = [Some(("DEBUG", debug)), beam.map(|beam| ("BEAM", beam))];
        let variables: Vec<_> = variables.into_iter().flatten().collect();
        let (output, progress) = run("jit", directory.path(), &variables);
        assert!(output.contains(expected), "{output}");
        let has_progress = !expected_progress.is_empty();
        assert_eq!(progress.contains("beam r_"), has_progress, "{progress}");
        assert!(progress.contains(expected_progress), "{progress}");
    };
    check(None, "1", &format!("beam 0, 0 searches, {SUMS}"), "");
    check(Some("0"), "1", &format!("beam 0, 0 searches, {SUMS}"), "");
    check(Some("2"), "0", &format!("beam 2, 1 searches, {SUMS}"), "");
    check(Some("2"), "1", &format!("beam 2, 0 searches, {SUMS}"), "");
    check(Some("3"), "1", &format!("beam 3, 1 searches, {SUMS}"), "round 1: ");
    for invalid in ["many", "-2", "", "1000"] {
        let expected = format!("error: BEAM={invalid}: it must be the number of candidates");
        check(Some(invalid), "0", &expected, "");
    }
}

#[test]
fn limit_is_read_and_invalid_values_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let output = |limit| {
        let variables = [("BEAM", "2"), ("BEAM_TIMEOUT_SEC", limit)];
        run("jit", directory.path(), &variables).0
    };
    assert!(output("60").contains(&format!("beam 2, 1 searches, {SUMS}")));
    for invalid in ["soon", "-2", "", "0", "3601"] {
        let expected =
            format!("error: BEAM_TIMEOUT_SEC={invalid}: it must be the number of seconds");
        assert!(output(invalid).contains(&expected), "{}", output(invalid));
    }
}

/// The compiler exceeds the limit of the search.
#[cfg(unix)]
#[test]
fn search_with_a_slow_compiler_falls_back_to_the_heuristic() {
    let directory = tempfile::tempdir().unwrap();
    let (cache, script) = (directory.path().join("cache"), directory.path().join("slow.sh"));
    let text = "case \"$*\" in *--version*|*-dM*) ;; *) sleep 4;; esac\nexec cc \"$@\"\n";
    std::fs::write(&script, text).unwrap();
    let compiler = format!("sh {}", script.display());
    let variables = [("BEAM", "2"), ("BEAM_TIMEOUT_SEC", "1"), ("CC", &compiler), ("DEBUG", "1")];
    let (output, progress) = run("c", &cache, &variables);
    assert!(output.contains(&format!("beam 2, 1 searches, {SUMS}")), "{output}");
    assert!(progress.contains("is dropped: "), "{progress}");
    assert!(progress.contains("slow.sh was ended after 1."), "{progress}");
    let left = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path());
    let left: Vec<_> = left.filter(|path| path.is_dir()).collect();
    assert!(left.is_empty(), "{left:?}");
}
