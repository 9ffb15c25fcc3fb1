//! The environment variables `BEAM` and `BEAM_TIMEOUT_SEC`, read by an engine in a process of its
//! own.

// Helpers of tests are tests, too; the lint does not see it in this kind of crate.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use gradiff::{Engine, Tensor};

/// Names in the process of its own the device.
const ALONE: &str = "GRADIFF_SEARCH_TEST";

/// What an engine does under the environment of [`run`], told on stdout and stderr.
#[test]
fn alone() {
    let Ok(device) = std::env::var(ALONE) else { return };
    let engine = match Engine::new(&device) {
        Ok(engine) => engine,
        Err(error) => return println!("error: {error}"),
    };
    let numbers: Vec<i32> = (0..64).collect();
    let sum = Tensor::from_slice(&[8, 8], &numbers).unwrap().sum(&[1]).unwrap();
    let sum = sum.reshape(&[8]).unwrap();
    let text = sum.to_text(&engine).unwrap();
    println!("beam {}, {} searches, {text}", engine.beam, engine.search_count());
}

/// stdout and stderr of [`alone`] under these variables.
fn run(device: &str, directory: &Path, variables: &[(&str, &str)]) -> (String, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "alone", "--nocapture", "--test-threads=1"]);
    command.env(ALONE, device).env("GRADIFF_CACHE_DIR", directory);
    command.env_remove("BEAM").env_remove("BEAM_TIMEOUT_SEC");
    command.envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

const SUMS: &str = "[28, 92, 156, 220, 284, 348, 412, 476]";

#[test]
fn beam_is_read_kept_and_told_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let check = |beam: Option<&str>, debug: &str, expected: &str, told: &str| {
        let variables = [Some(("DEBUG", debug)), beam.map(|beam| ("BEAM", beam))];
        let variables: Vec<_> = variables.into_iter().flatten().collect();
        let (said, progress) = run("jit", directory.path(), &variables);
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
        let expected = format!("error: BEAM={nonsense}: it must be the number of candidates");
        check(Some(nonsense), "0", &expected, "");
    }
}

#[test]
fn limit_of_a_search_is_read_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let said = |limit| {
        let variables = [("BEAM", "2"), ("BEAM_TIMEOUT_SEC", limit)];
        run("jit", directory.path(), &variables).0
    };
    assert!(said("60").contains(&format!("beam 2, 1 searches, {SUMS}")));
    for nonsense in ["soon", "-2", "", "0", "3601"] {
        let expected = format!("error: BEAM_TIMEOUT_SEC={nonsense}: it is how many seconds");
        assert!(said(nonsense).contains(&expected), "{}", said(nonsense));
    }
}

/// A compiler that needs longer than a search gives it.
#[cfg(unix)]
#[test]
fn search_with_a_slow_compiler_ends_and_leaves_the_kernel_to_the_heuristic() {
    let directory = tempfile::tempdir().unwrap();
    let (cache, script) = (directory.path().join("cache"), directory.path().join("slow.sh"));
    let text = "case \"$*\" in *--version*|*-dM*) ;; *) sleep 4;; esac\nexec cc \"$@\"\n";
    std::fs::write(&script, text).unwrap();
    let compiler = format!("sh {}", script.display());
    let variables = [("BEAM", "2"), ("BEAM_TIMEOUT_SEC", "1"), ("CC", &compiler), ("DEBUG", "1")];
    let (said, told) = run("c", &cache, &variables);
    assert!(said.contains(&format!("beam 2, 1 searches, {SUMS}")), "{said}");
    assert!(told.contains("is dropped: ") && told.contains("slow.sh was ended after 1."), "{told}");
    let left = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path());
    let left: Vec<_> = left.filter(|path| path.is_dir()).collect();
    assert!(left.is_empty(), "{left:?}");
}
