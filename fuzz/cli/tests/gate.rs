//! Hunts and replays as a gate: what kills workers is kept, what the machine does wrong is not held
//! against the engine, nothing outlives its parent.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// What is done for all that is asked but to compile kernels.
const WORKS: &str = "case \"$*\" in *--version* | *-dM* | *probe.c*) exec cc \"$@\" ;; esac\n\
                     here=$(dirname \"$0\")\n";

/// Compiles into an object that aborts when it is loaded.
const ABORTS: &str = "crash=\"$here/crash.h\"\n\
    printf '#include <stdlib.h>\\n__attribute__((constructor)) static void f(void) { abort(); }\\n' \
    > \"$crash\"\nexec cc -include \"$crash\" \"$@\"\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("a file in the temporary folder");
        path
    }

    fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.write(name, format!("#!/bin/sh\n{script}").as_bytes());
        let may_run = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, may_run).expect("the script may run");
        path
    }

    /// The command in this folder, its compiler this script.
    fn gradiff(&self, script: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradiff"));
        command
            .args(arguments)
            .env("CC", self.program("cc", &format!("{WORKS}{script}")))
            .env("GRADIFF_CACHE_DIR", self.path().join("cache"))
            .current_dir(self.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The files below a folder that end so.
    fn files(&self, folder: &str, ending: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path().join(folder)).into_iter().flatten();
        let paths = entries.flatten().map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|all| all == ending)).collect()
    }

    /// Waits for a file and reads the number in it.
    fn number(&self, name: &str) -> u32 {
        let read = || std::fs::read_to_string(self.path().join(name)).ok()?.trim().parse().ok();
        within(60, read).unwrap_or_else(|| panic!("no {name}"))
    }
}

/// What is there within so many seconds.
fn within<T>(seconds: u64, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let found = look();
        if found.is_some() || Duration::from_secs(seconds) < start.elapsed() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

const HUNT: [&str; 6] = ["hunt", "--json", "--jobs", "1", "--backends", "c"];

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The summary of a hunt that ends with this code.
fn summary(output: &Output, code: i32) -> Value {
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{}", text(output));
    serde_json::from_str(said.trim()).expect("a summary")
}

fn output(mut command: Command) -> Output {
    command.output().expect("the command starts")
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.expect("kill starts").success(), "{name} {pid}");
}

/// Whether a process runs: not one that has ended and that nobody has waited for.
fn is_running(pid: u32) -> bool {
    let state = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output();
    let state = String::from_utf8(state.expect("ps starts").stdout).expect("text");
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}

fn children(pid: u32) -> Vec<u32> {
    let found = Command::new("pgrep").args(["-P", &pid.to_string()]).output();
    let text = String::from_utf8(found.expect("pgrep starts").stdout).expect("numbers");
    text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

/// The one sequence that was kept.
fn sequence(folder: &Folder) -> (PathBuf, String) {
    let files = folder.files("findings", "sequence");
    assert_eq!(files.len(), 1, "{files:?}");
    let text = std::fs::read_to_string(&files[0]).expect("it is text");
    (files[0].clone(), text)
}

#[test]
fn a_death_that_no_program_causes_alone_is_minimised_as_a_sequence() {
    // Many kernels in one file, more than a program has, make an object that aborts.
    let script = format!(
        "for file; do case \"$file\" in *kernels.c) source=$file ;; esac; done\n\
         test \"$(grep -c '^void run_' \"$source\")\" -ge 12 || exec cc \"$@\"\n{ABORTS}"
    );
    let folder = Folder::new();
    let hunt = [&HUNT[..], &["--programs", "64"]].concat();
    let summary = summary(&output(folder.gradiff(&script, &hunt)), 2);
    assert_eq!(summary["crashes"], 1, "{summary}");
    assert_eq!(summary["not_reproduced"], 0, "{summary}");
    let programs = summary["details"][0]["programs"].as_u64().expect("a count");
    assert!((2..32).contains(&programs), "{summary}");
    let (path, text) = sequence(&folder);
    assert!(text.contains("crash on c: the process ended with signal: 6"), "{text}");
    assert!(text.contains("seed 1\nbackends c\nrun "), "{text}");
    let path = path.to_string_lossy();
    let again = output(folder.gradiff(&script, &["replay", &path]));
    assert_eq!(again.status.code(), Some(2), "{}", self::text(&again));
    // Nothing is wrong where the compiler is not.
    let other = Folder::new();
    let well = output(other.gradiff("exec cc \"$@\"\n", &["replay", &path]));
    assert_eq!(well.status.code(), Some(0), "{}", self::text(&well));
}

#[test]
fn a_compiler_whose_first_object_aborts_is_a_finding() {
    // Only the first, which the cache has lost when the programs are run again.
    let script = format!(
        "mkdir \"$here/again\" 2>/dev/null || {{ rm -f \"$here\"/cache/*.so; exec cc \"$@\"; }}\n\
         {ABORTS}"
    );
    let folder = Folder::new();
    let hunt = [&HUNT[..], &["--programs", "8"]].concat();
    let summary = summary(&output(folder.gradiff(&script, &hunt)), 2);
    assert_eq!((&summary["crashes"], &summary["not_reproduced"]), (&1.into(), &1.into()));
    assert!(summary["details"][0]["story"].to_string().contains("signal: 6"), "{summary}");
    let (_, text) = sequence(&folder);
    assert!(text.contains("backends c\nrun 0-7\n"), "{text}");
}

#[test]
fn a_worker_that_is_killed_is_a_finding_that_was_not_reproduced() {
    let folder = Folder::new();
    let script = "test -e \"$here/go\" || { echo $PPID > \"$here/part\"; \
                  mv \"$here/part\" \"$here/worker\"; while ! test -e \"$here/go\"; \
                  do sleep 0.05; done; }\nexec cc \"$@\"\n";
    let hunt = [&HUNT[..], &["--programs", "70", "--seed", "3"]].concat();
    let hunt = folder.gradiff(script, &hunt).spawn().expect("the command starts");
    let worker = folder.number("worker");
    assert_eq!(children(hunt.id()), [worker]);
    signal(worker, "-ABRT");
    folder.write("go", b"");
    let summary = summary(&hunt.wait_with_output().expect("the hunt ends"), 2);
    assert_eq!((&summary["not_reproduced"], &summary["programs"]), (&1.into(), &70.into()));
    let (_, text) = sequence(&folder);
    for part in ["signal: 6", "not reproduced", "seed 3\nbackends c\nrun 0-63\n"] {
        assert!(text.contains(part), "{text}");
    }
}

/// What a worker keeps, and what would have to be run again if it died, is bounded.
#[test]
fn a_worker_gives_way_to_a_fresh_one() {
    let folder = Folder::new();
    let hunt = ["hunt", "--json", "--jobs", "1", "--backends", "interp", "--programs", "8000"];
    let mut hunt = folder.gradiff("", &hunt).spawn().expect("the command starts");
    let mut workers = std::collections::BTreeSet::new();
    while hunt.try_wait().expect("it is a child").is_none() {
        workers.extend(children(hunt.id()));
    }
    assert_eq!(workers.len(), 4, "{workers:?}");
    let summary = summary(&hunt.wait_with_output().expect("the hunt ends"), 0);
    assert_eq!(summary["programs"], 8000);
}

/// However often another process kills the worker, it is no crash of the program that ran.
#[test]
fn a_worker_that_another_process_kills_says_nothing_of_its_program() {
    let folder = Folder::new();
    let hunt = [&HUNT[..], &["--programs", "1"]].concat();
    let summary = summary(&output(folder.gradiff("kill -KILL $PPID\n", &hunt)), 2);
    assert_eq!(summary["not_reproduced"], 1, "{summary}");
    assert!(folder.files("findings", "case").is_empty());
    let (_, text) = sequence(&folder);
    assert!(text.contains("the process was ended from outside: signal: 9"), "{text}");
}

/// A hunt that has seen a crash and makes it smaller, which a compiler keeps it from; `aborts` makes
/// the object that crashes.
fn stuck(folder: &Folder, aborts: &str) -> (Child, u32) {
    let script = format!(
        "mkdir \"$here/again\" 2>/dev/null || {{ echo $$ > \"$here/part\"; \
         mv \"$here/part\" \"$here/compiler\"; sleep 600; }}\n{aborts}"
    );
    let hunt = [&HUNT[..], &["--programs", "1", "--timeout", "600"]].concat();
    let child = folder.gradiff(&script, &hunt).spawn().expect("the command starts");
    let compiler = folder.number("compiler");
    (child, compiler)
}

#[test]
fn what_is_minimised_survives_a_kill_and_nothing_else_does() {
    let folder = Folder::new();
    let (mut hunt, compiler) = stuck(&folder, ABORTS);
    let workers = children(hunt.id());
    let sleepers = children(compiler);
    assert!(!workers.is_empty() && sleepers.len() == 1, "{workers:?} {sleepers:?}");
    signal(hunt.id(), "-KILL");
    hunt.wait().expect("it ends");
    let all = || workers.iter().chain(&sleepers).chain([&compiler]).copied();
    let gone = within(2, || (!all().any(is_running)).then_some(()));
    assert!(
        gone.is_some(),
        "{:?} run on",
        all().filter(|pid| is_running(*pid)).collect::<Vec<_>>()
    );
    let raw = folder.files("findings/raw", "case");
    assert_eq!(raw.len(), 1, "{raw:?}");
    let text = std::fs::read_to_string(&raw[0]).expect("it is text");
    for part in ["crash on c", "signal: 6", "from: gradiff gen --seed 1 --first 0", "output "] {
        assert!(text.contains(part), "{text}");
    }
}

/// Nobody knows whether the program killed the worker or somebody else did.
#[test]
fn a_death_that_an_interrupt_leaves_unconfirmed_is_a_sequence() {
    let folder = Folder::new();
    // It is gone from the cache, so that it has to be compiled to be seen again.
    let once = ABORTS.replace("abort()", r#"system("rm -f cache/*.so"); abort()"#);
    let (hunt, _) = stuck(&folder, &once);
    signal(hunt.id(), "-TERM");
    let summary = summary(&hunt.wait_with_output().expect("the hunt ends"), 2);
    assert_eq!(summary["not_reproduced"], 1, "{summary}");
    assert!(folder.files("findings", "case").is_empty());
    let (_, text) = sequence(&folder);
    for part in ["signal: 6", "not reproduced in the time there was", "backends c\nrun 0\n"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn an_interrupted_hunt_ends_soon_with_all_that_it_started() {
    let folder = Folder::new();
    let script = "echo $$ > \"$here/part\"; mv \"$here/part\" \"$here/compiler\"; sleep 600\n";
    let hunt = [&HUNT[..], &["--programs", "1", "--timeout", "600"]].concat();
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let hunt = folder.gradiff(script, &hunt).spawn().expect("the command starts");
        let compiler = folder.number("compiler");
        signal(hunt.id(), name);
        let start = Instant::now();
        let summary = summary(&hunt.wait_with_output().expect("the hunt ends"), code);
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
        assert_eq!(summary["programs"], 0, "{summary}");
        assert!(within(2, || (!is_running(compiler)).then_some(())).is_some());
        std::fs::remove_file(folder.path().join("compiler")).expect("it is there");
    }
}

#[test]
fn an_interrupt_reaches_the_case_that_a_replay_runs() {
    let folder = Folder::new();
    folder.write("a.case", b"a = input i32[4] iota\nb = neg a\noutput b\n");
    let script = "echo $$ > \"$here/part\"; mv \"$here/part\" \"$here/compiler\"; sleep 600\n";
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let arguments = ["replay", "a.case", "--backends", "c", "--timeout", "600"];
        let replay = folder.gradiff(script, &arguments).spawn().expect("the command starts");
        let compiler = folder.number("compiler");
        signal(replay.id(), name);
        let start = Instant::now();
        let output = replay.wait_with_output().expect("the replay ends");
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        assert!(text(&output).contains("0 of 1 cases replayed"), "{}", text(&output));
        assert!(within(2, || (!is_running(compiler)).then_some(())).is_some());
        std::fs::remove_file(folder.path().join("compiler")).expect("it is there");
    }
}

#[test]
fn an_interrupt_reaches_a_kernel_that_a_command_runs_in_its_own_process() {
    let folder = Folder::new();
    // Each of its sequences takes the interpreter minutes.
    folder.write(
        "a.case",
        b"a = input f32[4096] seeded(0, unit)\nb = reshape a [4096,1]\n\
          c = expand b [4096,4096]\nd = mul c a\ne = sum d axes=[1]\noutput e\n",
    );
    for arguments in [["opts", "a.case"].as_slice(), &["sabotage", "--jobs", "1"]] {
        let mut command = folder.gradiff("", arguments).spawn().expect("the command starts");
        std::thread::sleep(Duration::from_secs(2));
        assert!(command.try_wait().expect("it is a child").is_none(), "{arguments:?} was short");
        signal(command.id(), "-INT");
        let ended = within(20, || command.try_wait().expect("it is a child"));
        let _ = command.kill();
        let output = command.wait_with_output().expect("it has ended");
        assert_eq!(ended.and_then(|status| status.code()), Some(130), "{}", text(&output));
        assert!(text(&output).contains("interrupted"), "{}", text(&output));
    }
}

#[test]
fn a_sick_machine_is_no_sick_engine() {
    for (script, words) in [
        // Nothing at all is compiled, the source that is beyond doubt no more than the others.
        ("echo 'out of licences' >&2\nexit 1\n", "out of licences"),
        ("kill -KILL $$\n", "signal: 9"),
        ("rm -rf \"$here/cache\"\nexec cc \"$@\"\n", "cannot"),
    ] {
        let folder = Folder::new();
        let works = "case \"$*\" in *--version* | *-dM*) exec cc \"$@\" ;; esac\n\
                     here=$(dirname \"$0\")\n";
        let compiler = folder.program("sick-cc", &format!("{works}{script}"));
        let hunt = [&HUNT[..], &["--programs", "4"]].concat();
        let mut command = folder.gradiff("", &hunt);
        command.env("CC", &compiler);
        let summary = summary(&output(command), 3);
        assert_eq!(summary["environment"], 4, "{summary}");
        assert_eq!((&summary["mismatches"], &summary["crashes"]), (&0.into(), &0.into()));
        assert!(summary["environment_reasons"].to_string().contains(words), "{summary}");
        assert!(folder.files("findings", "case").is_empty());
        folder.write("a.case", b"a = input i32[4] iota\nb = neg a\noutput b\n");
        let mut command = folder.gradiff("", &["replay", "a.case", "--backends", "c,interp"]);
        command.env("CC", &compiler);
        let replayed = output(command);
        assert_eq!(replayed.status.code(), Some(3), "{}", text(&replayed));
        assert!(text(&replayed).contains("SICK"), "{}", text(&replayed));
    }
}

#[test]
fn a_compiler_that_is_gone_in_the_middle_is_the_machines_fault() {
    let folder = Folder::new();
    // The first worker finds it, then it is no more.
    let script = "rm \"$0\"\nexec cc \"$@\"\n";
    let hunt = [&HUNT[..], &["--programs", "200"]].concat();
    let summary = summary(&output(folder.gradiff(script, &hunt)), 3);
    assert!(summary["environment"].as_u64() >= Some(1), "{summary}");
    assert_eq!((&summary["mismatches"], &summary["crashes"]), (&0.into(), &0.into()), "{summary}");
}

#[test]
fn a_compiler_that_fails_some_times_is_asked_again() {
    let folder = Folder::new();
    let script = "for n in 1 2 3 4 5 6; do mkdir \"$here/again$n\" 2>/dev/null && exit 1; done\n\
                  exec cc \"$@\"\n";
    let hunt = [&HUNT[..], &["--programs", "4"]].concat();
    let summary = summary(&output(folder.gradiff(script, &hunt)), 0);
    assert_eq!((&summary["programs"], &summary["environment"]), (&4.into(), &0.into()));
    assert!(summary["checked_elements"].as_u64() >= Some(1), "{summary}");
}

/// Texts that clang compiles: one that compiles no text any more says nothing of the text.
#[test]
fn a_sick_clang_is_no_sick_text() {
    let folder = Folder::new();
    let real = ["clang", "clang-16", "clang-17", "clang-18", "clang-19"].into_iter().find(|name| {
        Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    });
    let Some(real) = real else { return println!("skipped: no clang") };
    // The host of texts is compiled by one that works.
    folder.program(
        "clang",
        &format!(
            "case \"$*\" in *--version* | *host.c*) exec {real} \"$@\" ;; esac\n\
             echo 'no space left' >&2\nexit 1\n"
        ),
    );
    let path = std::env::var("PATH").expect("a path");
    let path = format!("{}:{path}", folder.path().display());
    let arguments = ["hunt", "--json", "--programs", "2", "--backends", "text/cuda"];
    let mut command = folder.gradiff("exec cc \"$@\"\n", &arguments);
    command.env("PATH", path);
    let summary = summary(&output(command), 3);
    assert!(summary["environment"].as_u64() >= Some(1), "{summary}");
    assert_eq!(summary["mismatches"], 0, "{summary}");
}

#[test]
fn links_in_circles_end() {
    let folder = Folder::new();
    let inner = folder.path().join("cases/inner");
    std::fs::create_dir_all(&inner).expect("a folder");
    std::os::unix::fs::symlink("..", inner.join("again")).expect("a link");
    std::os::unix::fs::symlink("nowhere", inner.join("nothing")).expect("a link");
    folder.write("cases/inner/a.case", b"a = input i32[4] iota\nb = neg a\noutput b\n");
    let output = output(folder.gradiff("", &["replay", "cases", "--backends", "interp"]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("1 of 1 cases replayed"), "{}", text(&output));
}

/// Runs and gives the exit code and all that was said.
fn said(arguments: &[&str]) -> (Option<i32>, String) {
    let folder = Folder::new();
    let output = output(folder.gradiff("exec cc \"$@\"\n", arguments));
    (output.status.code(), text(&output))
}

#[test]
fn a_run_of_nothing_is_a_usage_error() {
    for arguments in [
        &["hunt", "--programs", "0", "--backends", "interp"][..],
        &["hunt", "--seconds", "0", "--backends", "interp"],
        &["views", "--random-only", "--cases", "0"],
        &["exprs", "--random-only", "--cases", "0"],
        &["gen", "--count", "0"],
        &["coverage", "--pairs", "0"],
        &["replay", ".", "--backends", "interp"],
    ] {
        let (code, said_of) = said(arguments);
        assert_eq!(code, Some(1), "{arguments:?} {said_of}");
        assert!(said_of.contains("--allow-empty"), "{arguments:?} {said_of}");
        let (code, said_of) = said(&[arguments, &["--allow-empty"]].concat());
        assert_eq!(code, Some(0), "{arguments:?} {said_of}");
    }
}

#[test]
fn devices_that_are_required_and_missing_fail() {
    let nowhere = "/nonexistent/cc";
    let run = |arguments: &[&str]| {
        let folder = Folder::new();
        let mut command = folder.gradiff("", arguments);
        command.env("CC", nowhere);
        let output = output(command);
        (output.status.code(), text(&output))
    };
    let hunt = ["hunt", "--programs", "1", "--json"];
    let (code, said) = run(&hunt);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("gradiff: without c: ") && said.contains("\"missing\":{\"c\":"),
        "{said}"
    );
    let (code, said) = run(&[&hunt[..], &["--require", "interp, c"]].concat());
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("c is required") && said.contains(nowhere), "{said}");
    let (code, said) = run(&[&hunt[..], &["--backends", "interp", "--require", "interp"]].concat());
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = run(&[&hunt[..], &["--backends", "interp", "--require", "jit"]].concat());
    assert_eq!(code, Some(1), "{said}");
    let (code, said) = run(&[&hunt[..], &["--require", "gpu"]].concat());
    assert!(code == Some(1) && said.contains("gpu") && said.contains("opencl"), "{said}");
}

#[test]
fn output_that_cannot_be_written_has_an_exit_code_of_its_own() {
    for arguments in [
        &["backends"][..],
        &["rules", "divmod"],
        &["gen", "--count", "2"],
        &["--help"],
        &["hunt", "--programs", "8", "--backends", "interp"],
        &["coverage", "--pairs", "5"],
    ] {
        let folder = Folder::new();
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let mut command = folder.gradiff("exec cc \"$@\"\n", arguments);
        let output = output_with(&mut command, full.into());
        let said = text(&output);
        assert_eq!(output.status.code(), Some(74), "{arguments:?} {said}");
        assert!(said.contains("No space left") && !said.contains("panicked"), "{said}");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = output_with(&mut folder.gradiff("exec cc \"$@\"\n", arguments), writer.into());
        assert_eq!(output.status.code(), Some(141), "{arguments:?} {}", text(&output));
        assert!(!text(&output).contains("gradiff: "), "{}", text(&output));
    }
}

fn output_with(command: &mut Command, stdout: Stdio) -> Output {
    let child = command.stdout(stdout).stderr(Stdio::piped()).spawn();
    child.expect("the command starts").wait_with_output().expect("it ends")
}

#[test]
fn numbers_of_programs_end_where_they_end() {
    let last = u64::MAX.to_string();
    let (code, said_of) = said(&["gen", "--first", &last, "--count", "1"]);
    assert!(code == Some(0) && said_of.contains(&format!("number {last}")), "{said_of}");
    let (code, said_of) = said(&["gen", "--first", &last, "--count", "2"]);
    assert!(code == Some(1) && said_of.contains("numbers end at"), "{said_of}");
}

#[test]
fn backends_are_run_once_and_blanks_do_not_count() {
    let hunt = |list| said(&["hunt", "--programs", "8", "--json", "--backends", list]);
    let (code, said_of) = hunt("interp, jit ,interp");
    assert!(code == Some(0) && said_of.contains("\"backends\":[\"interp\",\"jit\"]"), "{said_of}");
    for (list, words) in [("interp,interp:2", "named twice"), ("interp,,jit", "a name is missing")]
    {
        let (code, said_of) = hunt(list);
        assert!(code == Some(1) && said_of.contains(words), "{said_of}");
    }
}

#[test]
fn files_that_are_no_text_files_are_refused_and_marks_are_read_over() {
    let folder = Folder::new();
    let case = b"a = input i32[4] iota\nb = neg a\noutput b\n";
    folder.write("mark.case", &[b"\xef\xbb\xbf", &case[..]].concat());
    let made = Command::new("mkfifo").arg(folder.path().join("pipe.case")).status();
    assert!(made.expect("mkfifo starts").success());
    folder.write("escape.case", b"a = input i32[4] \x1b]0;owned\x07 iota\noutput a\n");
    let run = |name: &str| {
        let output = output(folder.gradiff("", &["replay", name, "--backends", "interp"]));
        (output.status.code(), text(&output))
    };
    assert_eq!(run("mark.case").0, Some(0), "{}", run("mark.case").1);
    for name in ["pipe.case", "/dev/zero", "/dev/null"] {
        let (code, said) = run(name);
        assert!(code == Some(1) && said.contains("not a file"), "{name}: {said}");
    }
    let (code, said) = run("escape.case");
    assert!(code == Some(1) && !said.contains('\x1b') && !said.contains('\x07'), "{said:?}");
}

#[test]
fn escape_sequences_of_a_compiler_are_shown_not_obeyed() {
    let folder = Folder::new();
    let script = "printf '\\033]0;owned\\007 \\033[31mred' >&2\nexit 1\n";
    let hunt = ["hunt", "--jobs", "1", "--backends", "c", "--programs", "1"];
    let output = output(folder.gradiff(script, &hunt));
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("<1b>]0;owned<07> <1b>[31mred") && !said.contains('\x1b'), "{said:?}");
    let file = &folder.files("findings", "case")[0];
    assert!(!std::fs::read(file).expect("it is there").contains(&0x1b), "{file:?}");
}

#[test]
fn missing_devices_come_with_the_command_that_installs_them() {
    let folder = Folder::new();
    let mut command = folder.gradiff("", &["backends"]);
    command.env("CC", "/nonexistent/cc");
    let said = text(&output(command));
    let line = said.lines().find(|line| line.starts_with("c ")).expect("a line of c");
    assert!(line.contains("on Debian: apt-get install gcc"), "{line}");
    for line in said.lines().filter(|line| line.contains(" not found ")) {
        assert!(line.contains("apt-get install"), "{line}");
    }
}
