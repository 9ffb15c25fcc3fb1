//! The environment variables that an engine reads, in child processes.

// Clippy does not recognise helpers of integration tests as test code.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use gradiff::{Engine, Tensor};
use gradiff_skip::or_skip;

/// The variable that names the device in the child process.
const DEVICE: &str = "GRADIFF_ENVIRONMENT_TEST";

/// The test that [`run`] runs in a child process. It reports on stdout and stderr.
#[test]
fn child() {
    let Ok(device) = std::env::var(DEVICE) else { return };
    let engine = match Engine::new(&device) {
        Ok(engine) => engine,
        Err(error) => return println!("error: {error}"),
    };
    let numbers: Vec<i32> = (0..64).collect();
    let sum = Tensor::from_slice(&[8, 8], &numbers).unwrap().sum(1).unwrap();
    engine.realize(&[&sum]).unwrap();
    let text = sum.to_text().unwrap();
    println!("beam {}, {} searches, {text}", engine.beam, engine.search_count());
}

/// Runs [`child`] in a process with these variables, and returns its stdout and stderr.
fn run(device: &str, directory: &Path, variables: &[(&str, &str)]) -> (String, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command.env(DEVICE, device).env("GRADIFF_CACHE_DIR", directory);
    for name in ["DEBUG", "BEAM", "BEAM_TIMEOUT_SEC", "IGNORE_BEAM_CACHE", "NOOPT"] {
        command.env_remove(name);
    }
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

/// Each level prints what the lower ones print, and more. S26 "if `DEBUG` > 1, a message is printed
/// informing which device was initialized": here from 1 on. S25 "linearized graph in DEBUG=4": the
/// source from 4 on, the tree from 5, the uops from 6.
#[test]
fn debug_levels_print_more_and_more() {
    let directory = tempfile::tempdir().unwrap();
    for (device, source, code) in [
        ("jit", "void r_8_8(", "ret"),
        ("c", "void r_8_8(", "ret"),
        ("interp", "void r_8_8(", "device interp does not show machine code"),
    ] {
        let Some(_) = or_skip(device, Engine::new(device)) else { continue };
        let words = [
            format!("opened device {device}: "),
            format!("*** {device} "),
            "data1: i32[64])  opts: ".to_string(),
            source.to_string(),
            "define_global  i32".to_string(),
            code.to_string(),
        ];
        for level in 0..=words.len() {
            let output = run(device, directory.path(), &[("DEBUG", &level.to_string())]).1;
            for (number, word) in words.iter().enumerate() {
                let is_expected = number < level;
                assert_eq!(output.contains(word), is_expected, "{device} {level} {word}: {output}");
            }
        }
    }
    let line = run("jit", directory.path(), &[("DEBUG", "2")]).1;
    assert!(line.contains("GFLOP/s") && line.contains("GB/s"), "{line}");
    for level in ["7", "-1", "yes", ""] {
        let output = run("jit", directory.path(), &[("DEBUG", level)]).0;
        let expected =
            format!("error: DEBUG={level}: it must be the level of debug output, from 0");
        assert!(output.contains(&expected), "{output}");
    }
}

#[test]
fn opts_are_switched_off() {
    let directory = tempfile::tempdir().unwrap();
    let opts = |noopt: &str, beam: &str, searches: &str| {
        let variables = [("DEBUG", "3"), ("NOOPT", noopt), ("BEAM", beam)];
        let (output, progress) = run("jit", directory.path(), &variables);
        assert!(output.contains(SUMS), "{output}");
        assert!(output.contains(searches), "{output}");
        let line = progress.lines().find(|line| line.contains("opts: ")).unwrap();
        line.split_once("opts: ").unwrap().1.to_string()
    };
    assert_eq!(opts("1", "2", "0 searches"), "");
    // A search may find that a kernel without optimisations is the fastest, if others are busy.
    opts("0", "2", "1 searches");
    assert_ne!(opts("0", "0", "0 searches"), "");
    for name in ["NOOPT", "TC", "MERGE_VIEW", "IGNORE_BEAM_CACHE"] {
        for value in ["2", "no", ""] {
            let output = run("jit", directory.path(), &[(name, value)]).0;
            let expected = format!("error: {name}={value}: it must be ");
            assert!(output.contains(&expected), "{output}");
        }
        let (output, _) = run("jit", directory.path(), &[(name, "0")]);
        assert!(output.contains(SUMS), "{output}");
    }
}

#[test]
fn saved_searches_are_repeated_on_demand() {
    let directory = tempfile::tempdir().unwrap();
    for (ignores, searches) in [("0", 1), ("0", 0), ("1", 1), ("0", 0)] {
        let variables = [("BEAM", "2"), ("IGNORE_BEAM_CACHE", ignores)];
        let (output, _) = run("jit", directory.path(), &variables);
        assert!(output.contains(&format!("beam 2, {searches} searches")), "{output}");
    }
}
