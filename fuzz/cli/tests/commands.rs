//! Tests of the command line as a user sees it: exit codes, messages, files, interrupts.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{both, gradiff};
use serde_json::{Value, json};

/// Runs a command, and checks its exit code and that its output contains all the words. Returns the
/// output.
fn check(arguments: &[&str], code: i32, words: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = gradiff(arguments, folder.path());
    let text = both(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?} printed {text}");
    for word in words {
        assert!(text.contains(word), "{arguments:?} does not say {word:?}: {text}");
    }
    assert!(!text.contains("panicked"), "{arguments:?} panicked: {text}");
    text
}

/// The path of a case of the corpus.
fn case(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../corpus/cases");
    root.join(format!("{name}.case")).to_string_lossy().into_owned()
}

/// Writes a case to a file in a temporary folder; returns the folder, which must live as long, and
/// the path.
fn case_file(text: &[u8]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a.case");
    std::fs::write(&path, text).expect("a file in the temporary folder");
    let path = path.to_string_lossy().into_owned();
    (folder, path)
}

#[test]
fn variables_of_the_environment_are_checked() {
    let wrong = [("GRADIFF_THREADS", "x"), ("GRADIFF_POOL_MIB", "-3"), ("BEAM", "99999")];
    for (name, value) in wrong.into_iter().chain([("BEAM_TIMEOUT_SEC", "0")]) {
        let output = Command::new(env!("CARGO_BIN_EXE_gradiff"))
            .args(["replay", &case("softmax"), "--backends", "interp"])
            .env(name, value)
            .output()
            .expect("the command starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{name}: {text}");
        assert!(text.contains(&format!("{name}={value}")), "{name}: {text}");
    }
}

/// The device is `c`, with three threads and a compiler that does not use AVX-512.
#[cfg(target_arch = "x86_64")]
#[test]
fn device_is_listed_and_shown_with_one_target() {
    let (_folder, path) =
        case_file(b"a = input f32[786432] seeded(0, unit)\nb = add a a\noutput b\n");
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_gradiff"))
            .args(arguments)
            .envs([("CC", "cc -mno-avx512f -mavx2"), ("GRADIFF_THREADS", "3")])
            .output()
            .expect("the command starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?} printed {text}");
        text
    };
    let listed = run(&["backends"]);
    let row = listed.lines().find(|line| line.starts_with("c/heuristic ")).expect("it is there");
    assert!(row.ends_with("; no groups, vectors of 32 bytes, 3 threads"), "{row}");
    let shown = run(&["show", &path, "--target", "c"]);
    assert!(shown.contains("f32x8") && !shown.contains("f32x16"), "{shown}");
    // This loop is divided among the threads.
    assert!(shown.contains("ridx0 < 3;"), "{shown}");
}

#[cfg(unix)]
#[test]
fn output_that_is_not_read_ends_a_command_quietly() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gradiff"))
        .args(["rules", "--markdown"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the command starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the command ends");
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn usage_errors_exit_1_and_say_what_is_allowed() {
    check(&[], 1, &["Usage"]);
    check(&["hunt", "--seconds", "soon"], 1, &["--seconds"]);
    check(&["hunt", "--jobs", "0"], 1, &["--jobs"]);
    check(&["hunt", "--backends", "gpu"], 1, &["no backend is called gpu", "interp"]);
    check(&["hunt", "--lanes", "fast"], 1, &["no lane is called fast", "exact"]);
    check(&["hunt", "--fault", "typo"], 1, &["no fault is called typo", "view-flip-offset"]);
    check(&["replay", "nothing.case"], 1, &["nothing.case"]);
    check(
        &["show", &case("softmax"), "--stage", "fortran"],
        1,
        &["no stage is called fortran", "uops", "ptx"],
    );
    check(
        &["show", &case("softmax"), "--target", "gpu"],
        1,
        &["no target is called gpu", "cuda-tf32", "device:opencl"],
    );
    check(&["hunt", "--findings", "/dev/null/here", "--programs", "1"], 1, &["--findings"]);
    check(&["hunt", "--backends", "numpy:0"], 1, &["a number of at least 1 must follow the colon"]);
    for command in ["replay", "reduce", "blame"] {
        let words = ["only hunts", "this command takes interp"];
        check(&[command, &case("softmax"), "--backends", "interp:2"], 1, &words);
    }
    for flag in [
        "--programs=5",
        "--lanes=exact",
        "--jobs=1",
        "--known=a.case",
        "--max-findings=1",
        "--timeout=1",
        "--wall-timeout=1",
        "--require=c",
    ] {
        check(&["hunt", "--faults", flag], 1, &["cannot be used with"]);
    }
}

/// A mistake in a flag is one whatever devices there are.
#[test]
fn flags_are_checked_before_devices_are_opened() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (flag, word) in [
        ("--require=gpu", "--require gpu: no such device"),
        ("--known=nothing.case", "nothing.case"),
        ("--findings=/dev/null/here", "choose a folder with --findings"),
        ("--lanes=fast", "no lane is called fast"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_gradiff"))
            .args(["hunt", "--backends", "c", "--programs", "1", flag])
            .env("CC", "/nonexistent/cc")
            .current_dir(folder.path())
            .output()
            .expect("the command starts");
        let text = both(&output);
        assert_eq!(output.status.code(), Some(1), "{flag}: {text}");
        assert!(text.contains(word), "{flag} does not say {word:?}: {text}");
    }
}

#[test]
fn limits_may_be_as_long_as_can_be() {
    // With the seconds that 64 programs add, it is beyond 64 bits.
    let limit = ["--timeout", "18446744073709551600"];
    let hunt = ["hunt", "--json", "--programs", "64", "--backends", "interp"];
    let text = check(&[&hunt[..], &limit].concat(), 0, &[]);
    let summary: Value = serde_json::from_str(text.trim()).expect("a summary");
    assert_eq!((&summary["programs"], &summary["slow"]), (&64.into(), &json!([])), "{summary}");
}

/// Folders of findings hold more than one command can take.
#[test]
fn folders_of_findings_can_be_given_to_commands() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in [
        ("death-1.sequence", "# crash on c: died\nseed 1\nbackends c\nrun 0-7\n"),
        ("views.case", "# element 0 is 1, expected 0\nview [2]\nflip axes=[0]\n"),
        ("expr.case", "var a 0..9\nexpr a + 1\n"),
    ] {
        std::fs::write(folder.path().join(name), text).expect("a file in the temporary folder");
    }
    let path = folder.path().to_string_lossy().into_owned();
    let hunt = ["hunt", "--programs", "1", "--backends", "interp", "--known", &path];
    check(&hunt, 0, &["findings          0"]);
    check(&["coverage", &path], 2, &["rules over 2 cases"]);
}

#[test]
fn bad_files_exit_1_and_say_where() {
    for (text, words) in [
        (b"".as_slice(), "expected"),
        (b"a = input f32[4,4", "line 1"),
        (b"a = input f32[1099511627776] iota\noutput a\n", "line 1"),
        (b"a = input f32[2] iota\nb = add a c\noutput b\n", "line 2"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"a = input f32[2] iota\nb = reshape a [3]\noutput b\n", "line 2"),
    ] {
        let (_folder, path) = case_file(text);
        for command in ["replay", "reduce", "blame", "show"] {
            check(&[command, &path], 1, &[words]);
        }
    }
}

#[test]
fn missing_compiler_exits_3_and_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = Command::new(env!("CARGO_BIN_EXE_gradiff"))
        .args(["hunt", "--backends", "c", "--programs", "10"])
        .env("CC", "/nonexistent/cc")
        .current_dir(folder.path())
        .output()
        .expect("the command starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("CC"), "{text}");
}

#[test]
fn clean_hunts_exit_0_and_repeat_themselves() {
    let arguments =
        ["hunt", "--programs", "300", "--seed", "7", "--backends", "interp,jit", "--json"];
    let counts = || {
        let text = check(&arguments, 0, &[]);
        let summary: Value = serde_json::from_str(text.trim()).expect("one JSON object");
        for key in ["programs_per_second", "unspecified_fraction", "crashes", "timeouts"] {
            assert!(summary[key].is_number(), "{key} in {summary}");
        }
        assert_eq!(summary["seed"], 7);
        assert_eq!(summary["backends"], serde_json::json!(["interp", "jit"]));
        (
            summary["programs"].clone(),
            summary["checked_elements"].clone(),
            summary["mismatches"].clone(),
        )
    };
    let first = counts();
    assert_eq!(first.0, 300);
    assert_eq!(first.2, 0);
    assert_eq!(counts(), first);
}

#[test]
fn findings_exit_2_and_fail_again_from_their_files() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let fault = "--fault=tensor-cat-order";
    let hunt = ["hunt", "--seconds", "60", "--max-findings", "1", "--backends", "interp", fault];
    let output = gradiff(&hunt, folder.path());
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    let entries = std::fs::read_dir(folder.path().join("findings")).expect("the findings");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a finding").path()).collect();
    files.sort();
    let extensions: Vec<_> = files.iter().filter_map(|file| file.extension()).collect();
    assert_eq!(extensions, ["case", "rs"], "{files:?}");
    let path = files[0].to_string_lossy().into_owned();
    check(&["replay", &path, fault, "--backends", "interp"], 2, &["FAIL", "mismatch"]);
    check(&["replay", &path, "--backends", "interp"], 0, &["ok"]);
    check(&["blame", &path, fault, "--backends", "interp"], 2, &["engine/tensor"]);
    check(&["blame", &path, "--backends", "interp"], 0, &["nothing to blame"]);
    check(&["reduce", &path, fault, "--backends", "interp"], 2, &["mismatch", "output"]);
    check(&["reduce", &path, "--backends", "interp"], 0, &["nothing to reduce"]);
}

/// Files of hunts name the rule that is wrong, and it makes later failures known.
#[test]
fn findings_are_known_to_the_next_hunt() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let hunt = ["hunt", "--json", "--programs", "400", "--jobs", "1", "--backends", "interp"];
    let hunt = [&hunt[..], &["--fault", "rule-cdiv-as-floordiv"]].concat();
    let run = |more: &[&str], code: i32| {
        let output = gradiff(&[&hunt[..], more].concat(), folder.path());
        assert_eq!(output.status.code(), Some(code), "{}", both(&output));
        serde_json::from_slice::<Value>(&output.stdout).expect("a summary")
    };
    let found = run(&[], 2);
    assert!(found["details"][0]["rule"].is_string(), "{found}");
    let again = run(&["--known", "findings", "--findings", "again"], 0);
    let known = again["known"].as_object().expect("counts by file");
    assert_eq!(known.len(), found["details"].as_array().expect("a list").len(), "{again}");
    assert!(known.values().all(|count| count.as_u64() >= Some(1)), "{again}");
}

/// A file that cannot run here hides neither a failure before it nor the files after it.
#[test]
fn replays_go_on_after_a_file_that_cannot_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("a file in the temporary folder");
    };
    write("a.case", "view [2]\nflip axes=[0]\nexpect views 7\n");
    write("b.sequence", "backends numpy@0.0.0\nrun 0\n");
    write("c.case", "view [2]\nflip axes=[0]\n");
    let output = gradiff(&["replay", "a.case", "b.sequence", "c.case"], folder.path());
    let text = both(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for line in ["FAIL  a.case", "SICK  b.sequence", "ok    c.case", "3 of 3 cases replayed, 1 f"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // A mistake in a file is seen before any of them runs.
    for (line, word) in [("lanes nolane", "no lane is called"), ("backends gpu", "no backend is")] {
        write("b.sequence", &format!("{line}\nrun 0\n"));
        let output = gradiff(&["replay", "a.case", "b.sequence"], folder.path());
        let text = both(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(word) && !text.contains("FAIL"), "{text}");
    }
}

#[test]
fn show_prints_every_stage() {
    for (stage, word) in [
        ("program", "output"),
        ("graph", "reduce_axis"),
        ("schedule", "store"),
        ("kernel", "## lower"),
        ("uops", "define_global"),
        ("c", "void"),
    ] {
        check(&["show", &case("softmax"), "--stage", stage], 0, &[word]);
    }
    check(&["show", &case("s04-reshape-needs-two-views"), "--stage", "graph"], 0, &["View("]);
    check(&["show", &case("s18-mod-drops-multiple"), "--stage", "graph"], 0, &["(a%10)"]);
}

#[test]
fn sweeps_find_planted_faults_and_nothing_else() {
    check(&["views", "--cases", "2000", "--random-only"], 0, &["nothing found"]);
    check(&["exprs", "--cases", "2000", "--random-only"], 0, &["nothing found"]);
    check(&["views", "--random-only", "--fault", "view-flip-offset"], 2, &["FOUND", "flip"]);
    check(&["exprs", "--random-only", "--fault", "rule-add-fold-constant"], 2, &["FOUND"]);
}

/// The command of a hunt on device `c`, whose compiler is this script. The script and the hunt's
/// files are in the folder.
#[cfg(unix)]
fn hunting_with_compiler(folder: &Path, script: &str, arguments: &[&str]) -> Command {
    use std::os::unix::fs::PermissionsExt;
    let compiler = folder.join("cc");
    std::fs::write(&compiler, script).expect("a script");
    let may_run = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&compiler, may_run).expect("the script may run");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradiff"));
    command
        .args(["hunt", "--json", "--jobs", "1", "--max-findings", "1", "--backends", "c"])
        .args(arguments)
        .env("CC", &compiler)
        .env("GRADIFF_CACHE_DIR", folder.join("cache"))
        .current_dir(folder)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    command
}

/// Checks the exit code of a hunt, and returns its summary.
#[cfg(unix)]
fn summary(output: &Output, code: i32) -> Value {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text} {errors}");
    serde_json::from_str(text.trim()).expect("a summary")
}

/// Runs a hunt on device `c` whose compiler is this script, checks its exit code, and returns its
/// summary.
#[cfg(unix)]
fn hunt_with_compiler(script: &str, arguments: &[&str], code: i32) -> Value {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut hunt = hunting_with_compiler(folder.path(), script, arguments);
    summary(&hunt.output().expect("the command starts"), code)
}

#[cfg(unix)]
#[test]
fn a_backend_that_dies_is_a_finding_not_the_end() {
    let script = "#!/bin/sh\n\
        case \"$*\" in *--version* | *-dM*) exec cc \"$@\" ;; esac\n\
        crash=$(dirname \"$0\")/crash.h\n\
        printf '#include <stdlib.h>\\n' > \"$crash\"\n\
        printf '__attribute__((constructor)) static void f(void) { abort(); }\\n' >> \"$crash\"\n\
        exec cc -include \"$crash\" \"$@\"\n";
    let summary = hunt_with_compiler(script, &["--programs", "4"], 2);
    assert!(summary["crashes"].as_u64() >= Some(1), "{summary}");
    assert_eq!(summary["details"][0]["crate"], "runtime", "{summary}");
    assert!(summary["details"][0]["story"].to_string().contains("signal"), "{summary}");
}

#[cfg(unix)]
#[test]
fn a_backend_that_hangs_is_a_finding_not_the_end() {
    let script = |body: &str| {
        format!("#!/bin/sh\ncase \"$*\" in *--version* | *-dM*) exec cc \"$@\" ;; esac\n{body}\n")
    };
    // An idiom always has a kernel to compile.
    let flags = ["--programs", "1", "--lanes", "idioms", "--timeout", "1"];
    let summary = hunt_with_compiler(&script("while :; do :; done"), &flags, 2);
    assert_eq!((&summary["timeouts"], &summary["slow"]), (&1.into(), &json!([])), "{summary}");
    let story = summary["details"][0]["story"].to_string();
    assert!(story.contains("timeout on c: no answer within 1 s of processor time"), "{summary}");
    assert_eq!(summary["details"][0]["stage"], "compile", "{summary}");
    assert_eq!(summary["details"][0]["crate"], "runtime", "{summary}");
    // A compiler that sleeps uses no processor time, so it is a finding only when the wall time is
    // up, which is far later.
    let walled = [&flags[..], &["--wall-timeout", "2"]].concat();
    let summary = hunt_with_compiler(&script("sleep 60"), &walled, 2);
    assert_eq!(summary["timeouts"], 1, "{summary}");
    let story = summary["details"][0]["story"].to_string();
    assert!(story.contains("timeout on c: no answer within 2 s"), "{summary}");
    let summary = hunt_with_compiler(&script("sleep 3; exec cc \"$@\""), &flags, 0);
    assert_eq!((&summary["timeouts"], &summary["slow"]), (&0.into(), &json!([])), "{summary}");
    // Slow once, but not when it is run again alone.
    let once =
        "mkdir \"$(dirname \"$0\")/again\" 2>/dev/null && while :; do :; done\nexec cc \"$@\"";
    let summary = hunt_with_compiler(&script(once), &flags, 0);
    assert_eq!((&summary["timeouts"], &summary["slow"]), (&0.into(), &json!(["0"])), "{summary}");
}

/// A machine that is busy with other work costs the worker wall time, but no processor time.
#[cfg(target_os = "linux")]
#[test]
fn a_worker_that_is_stopped_for_long_is_no_finding() {
    let script = "#!/bin/sh\n\
        case \"$*\" in *--version* | *-dM*) exec cc \"$@\" ;; esac\n\
        here=$(dirname \"$0\")\n\
        touch \"$here/started\"\n\
        until test -e \"$here/go\"; do sleep 0.1; done\n\
        exec cc \"$@\"\n";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let arguments = ["--programs", "1", "--lanes", "idioms", "--timeout", "1"];
    let mut hunt = hunting_with_compiler(folder.path(), script, &arguments);
    let hunt = hunt.spawn().expect("the command starts");
    let pause = |tenths: u64| std::thread::sleep(std::time::Duration::from_millis(100 * tenths));
    (0..300).take_while(|_| !folder.path().join("started").exists()).for_each(|_| pause(1));
    let children = Command::new("pgrep").args(["-P", &hunt.id().to_string()]).output();
    let children = String::from_utf8(children.expect("pgrep starts").stdout).expect("numbers");
    let worker = children.trim();
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, worker]).status().expect("kill starts");
        assert!(sent.success(), "{name} {worker:?}");
    };
    signal("-STOP");
    pause(30);
    signal("-CONT");
    std::fs::write(folder.path().join("go"), "").expect("a file in the temporary folder");
    let summary = summary(&hunt.wait_with_output().expect("the hunt ends"), 0);
    assert_eq!((&summary["timeouts"], &summary["slow"]), (&0.into(), &json!([])), "{summary}");
    assert_eq!(summary["programs"], 1, "{summary}");
}

#[cfg(unix)]
#[test]
fn a_compiler_that_fails_is_reported_with_its_message() {
    let script = "#!/bin/sh\n\
        case \"$*\" in *--version* | *-dM* | *probe.c*) exec cc \"$@\" ;; esac\n\
        echo 'out of licences' >&2\nexit 1\n";
    let summary = hunt_with_compiler(script, &["--programs", "4"], 2);
    assert!(summary["details"][0]["story"].to_string().contains("out of licences"), "{summary}");
}

#[cfg(unix)]
#[test]
fn an_interrupted_hunt_ends_cleanly_and_keeps_its_findings() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let fault = ["--fault", "view-pad-mask-wide"];
    // The engine with the fault is built before the hunt that is interrupted.
    let mut built = Command::new(env!("CARGO_BIN_EXE_gradiff"));
    built.args(["backends"]).args(fault).stdout(std::process::Stdio::null());
    assert!(built.status().expect("the command starts").success());
    let child = Command::new(env!("CARGO_BIN_EXE_gradiff"))
        .args(["hunt", "--json", "--seconds", "600", "--backends", "interp"])
        .args(fault)
        .args(["--max-findings", "1000000"])
        .current_dir(folder.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the command starts");
    let findings = folder.path().join("findings");
    let file_count = || std::fs::read_dir(&findings).map_or(0, |entries| entries.count());
    for _ in 0..600 {
        if file_count() >= 3 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status().expect("kill starts");
    assert!(killed.success());
    let output = child.wait_with_output().expect("the hunt ends");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stdout);
    let summary: Value = serde_json::from_str(text.trim()).expect("a summary");
    assert!(summary["findings"].as_array().is_some_and(|files| !files.is_empty()), "{summary}");
    assert!(file_count() >= 3);
}

#[test]
fn coverage_lists_rules_devices_and_what_never_occurred() {
    let (_folder, path) = case_file(b"a = input u8[4] iota\nb = neg a\noutput b");
    let text = check(&["coverage", &path, "--holes"], 2, &["never fired: ", "divmod/floordiv-sel"]);
    let line =
        text.lines().find(|line| line.starts_with("late/neg ")).expect("a line for each rule");
    assert_eq!(line.split_whitespace().last(), Some("u8"), "{line}");
    assert!(text.lines().any(|line| line.starts_with("neg ") && line.contains(" - ")), "{text}");
    let json = check(&["coverage", &path, "--json"], 2, &[]);
    let json: Value = serde_json::from_str(json.trim()).expect("one JSON object");
    assert_eq!(json["rules"]["late/neg"][0]["op"], "mul");
    assert_eq!(json["cases"], 1);
    check(&["coverage", "nothing.case"], 1, &["nothing.case"]);
}

#[test]
fn page_of_rules_is_as_reviewed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../snapshots/rules/rules.md");
    let reviewed = std::fs::read_to_string(&path).expect("the page");
    let page = check(&["rules", "--markdown"], 0, &["# Rewrite rules", "| floordiv-nested |"]);
    let changed = page.lines().filter(|line| !reviewed.lines().any(|known| known == *line));
    let changed: Vec<&str> = changed.collect();
    assert!(
        page == reviewed,
        "read these lines, then: gradiff rules --markdown > snapshots/rules/rules.md\n{}",
        changed.join("\n")
    );
}

#[test]
fn opts_try_sequences_and_find_planted_faults() {
    let text = b"a = input i32[3,6] iota\nb = neg a\nc = sub b 1\nd = sum c axes=[1]\n\
                 e = max c axes=[0]\noutput d\noutput e";
    let (_folder, path) = case_file(text);
    let text = check(&["opts", &path, "--random", "20"], 0, &["sequences", "wrong             0"]);
    let count = |name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name)).expect("a line for each count");
        line.split_whitespace().last().and_then(|count| count.parse().ok()).expect("a count")
    };
    assert!(count("sequences") > 100 && count("kernels") == 2, "{text}");
    assert!(
        ["upcast", "unroll", "thread", "padto", "overlap"].iter().all(|op| count(op) > 5),
        "{text}"
    );
    for fault in [
        "opt-split-stride",
        "opt-overlap-short",
        "opt-pad-gate-lost",
        "opt-pad-fold-wrong",
        "expand-remainder-lost",
        "expand-accumulator-shared",
    ] {
        check(
            &["opts", &path, "--random", "0", "--fault", fault],
            2,
            &["wrong             1", "opts \""],
        );
    }
    check(&["opts", &path, "--opts", "padto 0 4, upcast 0 4"], 0, &["sequences         2"]);
    let (_flat_folder, flat) = case_file(b"a = input i32[6] iota\nb = add a 1\noutput b");
    check(
        &["opts", &flat, "--opts", "upcast 0 4"],
        1,
        &["6 iterations are not a multiple of 4; see padto and overlap"],
    );
    check(&["opts", &flat, "--opts", "overlap 0 4, upcast 0 4"], 0, &["sequences         1"]);
    let twice = ["opts", &flat, "--opts", "overlap 0 4, thread 0 2"];
    check(&twice, 1, &["thread 0 2: two threads would store the same element"]);
    check(
        &["opts", &flat, "--opts", "overlap 0 3"],
        1,
        &["6 iterations are not more than 3, or a multiple of it"],
    );
    check(&["opts", &flat, "--opts", "upcast 7 4"], 1, &["the kernel has loops 0 to 0"]);
    check(&["opts", &flat, "--opts", "melt 0 4"], 1, &["no opt is called melt: upcast"]);
    check(&["opts", &flat, "--opts", "upcast 0"], 1, &["an opt is OP AXIS AMOUNT"]);
    let (_expr_folder, expr) = case_file(b"var a 0..9\nexpr a + 1\n");
    check(&["opts", &expr], 1, &["only programs have kernels"]);
    let (_empty_folder, empty) = case_file(b"a = input f32[2] iota\noutput a\n");
    check(&["opts", &empty], 1, &["the program has no kernel to try opts on"]);
}

#[test]
fn threads_wait_before_a_tile_of_an_outer_loop_is_stored() {
    let case = case("../regressions/tile-before-inner-loop");
    let opts = "padto 0 7, swap 0 1, local 1 7, local 0 3, stage 0 4";
    check(&["opts", &case, "--opts", opts], 0, &["stage             1", "wrong             0"]);
}

#[test]
fn opts_try_tensor_cores_and_find_planted_faults() {
    let text = b"a = input f16[8,1,6] iota\nb = input f16[1,3,6] iota\nc = mul a b\n\
                 d = sum c axes=[2]\noutput d";
    let (_folder, path) = case_file(text);
    let text = check(&["opts", &path, "--random", "60"], 0, &["wrong             0"]);
    let count = text.lines().find_map(|line| line.strip_prefix("tc ")).expect("a line of tc");
    assert!(5 < count.trim().parse::<u64>().expect("a count"), "{text}");
    let opts = "padto 1 2, tc 2 4, upcast 0 2";
    check(&["opts", &path, "--opts", opts], 0, &["tc                1", "wrong             0"]);
    for fault in
        ["tc-fragment-turned", "tc-element-wrong", "tc-last-step-lost", "tc-accumulator-lost"]
    {
        let arguments = ["opts", &path, "--opts", opts, "--fault", fault];
        check(&arguments, 2, &["wrong             1", "in groups"]);
    }
    check(
        &["opts", &path, "--opts", "padto 1 2, tc 2 3"],
        1,
        &["m4n2k2_f32 multiplies f32, not f16"],
    );
    check(
        &["opts", &path, "--opts", "padto 1 2, tc 2 0"],
        1,
        &["a loop of 8 iterations is not a multiple of 16"],
    );
    check(
        &["opts", &path, "--opts", "nolocals 0 0, tc 0 4"],
        1,
        &["the loop has no matrix product"],
    );
}
