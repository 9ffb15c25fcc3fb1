//! Hunts and replays as a gate: deaths of workers are saved, failures of the machine do not count
//! as the engine's, no process outlives its parent.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use gradiff_skip::or_skip;
use serde_json::Value;

/// Script that does all work of a compiler except to compile kernels.
const WORKS: &str = "case \"$*\" in *--version* | *-dM* | *probe.c*) exec cc \"$@\" ;; esac\n\
                     here=$(dirname \"$0\")\n";

/// Script that compiles an object which aborts when it is loaded. Each process has its own header:
/// several compile at once.
const ABORTS: &str = "crash=\"$here/crash.$$.h\"\n\
    printf '#include <stdlib.h>\\n' > \"$crash\"\n\
    printf '__attribute__((constructor)) static void f(void) { abort(); }\\n' >> \"$crash\"\n\
    exec cc -include \"$crash\" \"$@\"\n";

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

    /// Returns the command in this folder with this script as its compiler.
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

    /// Returns the files in a folder with this extension.
    fn files(&self, folder: &str, extension: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path().join(folder)).into_iter().flatten();
        let paths = entries.flatten().map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
    }

    /// Waits for a file and returns the number in it.
    fn number(&self, name: &str) -> u32 {
        let read = || std::fs::read_to_string(self.path().join(name)).ok()?.trim().parse().ok();
        within(60, read).unwrap_or_else(|| panic!("no {name}"))
    }
}

/// Polls until there is a value, for so many seconds at most.
fn within<T>(seconds: u64, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let value = poll();
        if value.is_some() || Duration::from_secs(seconds) < start.elapsed() {
            return value;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A hunt of idioms, which always have kernels to compile.
const HUNT: [&str; 8] = ["hunt", "--json", "--jobs", "1", "--backends", "c", "--lanes", "idioms"];

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Returns the summary of a hunt that must end with this exit code.
fn summary(output: &Output, code: i32) -> Value {
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{}", text(output));
    serde_json::from_str(stdout.trim()).expect("a summary")
}

fn output(mut command: Command) -> Output {
    command.output().expect("the command starts")
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.expect("kill starts").success(), "{name} {pid}");
}

/// Returns whether a process runs; a zombie does not.
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

/// Returns the children of a process, their children, and so on.
fn descendants(pid: u32) -> Vec<u32> {
    let children = children(pid);
    let further = children.iter().flat_map(|child| descendants(*child)).collect::<Vec<_>>();
    [children, further].concat()
}

/// Returns the path and the text of the only sequence that was saved.
fn sequence(folder: &Folder) -> (PathBuf, String) {
    let files = folder.files("findings", "sequence");
    assert_eq!(files.len(), 1, "{files:?}");
    let text = std::fs::read_to_string(&files[0]).expect("it is text");
    (files[0].clone(), text)
}

#[test]
fn a_death_that_no_program_causes_alone_is_minimised_as_a_sequence() {
    // A file with many kernels, more than one program has, makes an object that aborts.
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
    assert!(text.contains("seed 1\nlanes idioms\nbackends c\nrun "), "{text}");
    let path = path.to_string_lossy();
    let again = output(folder.gradiff(&script, &["replay", &path]));
    assert_eq!(again.status.code(), Some(2), "{}", self::text(&again));
    // With a correct compiler nothing fails.
    let clean_folder = Folder::new();
    let clean = output(clean_folder.gradiff("exec cc \"$@\"\n", &["replay", &path]));
    assert_eq!(clean.status.code(), Some(0), "{}", self::text(&clean));
}

#[test]
fn a_compiler_whose_first_object_aborts_is_a_finding() {
    // Only the first object aborts, and the cache has lost it when the programs are run again.
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
    for part in ["signal: 6", "not reproduced", "seed 3\nlanes idioms\nbackends c\nrun 0-63\n"] {
        assert!(text.contains(part), "{text}");
    }
}

/// The caches of a worker, and the programs to run again if it dies, are bounded.
#[test]
fn a_fresh_worker_replaces_one_that_has_run_many_programs() {
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

/// However often another process kills the worker, this is not a crash of the program that ran.
#[test]
fn a_worker_that_another_process_kills_says_nothing_about_its_program() {
    let folder = Folder::new();
    let hunt = [&HUNT[..], &["--programs", "1"]].concat();
    let summary = summary(&output(folder.gradiff("kill -KILL $PPID\n", &hunt)), 2);
    assert_eq!(summary["not_reproduced"], 1, "{summary}");
    assert!(folder.files("findings", "case").is_empty());
    let (_, text) = sequence(&folder);
    assert!(text.contains("the process was ended from outside: signal: 9"), "{text}");
}

/// Starts a hunt that sees a crash and is minimising it, but waits for a compiler; `aborts` makes
/// the objects that crash, of which the program may have several. Returns the hunt and the number
/// of the compiler's process.
fn stuck_hunt(folder: &Folder, aborts: &str) -> (Child, u32) {
    let script = format!(
        "if ls \"$here\"/findings/raw/*.case; then sleep 600 & echo $$ > \"$here/part.$$\"; \
         mv \"$here/part.$$\" \"$here/compiler\"; wait; fi\n{aborts}"
    );
    let hunt = [&HUNT[..], &["--programs", "1", "--timeout", "600"]].concat();
    let child = folder.gradiff(&script, &hunt).spawn().expect("the command starts");
    // While the compiler waits for the second object, the first may crash again and end it.
    let stays = || {
        let compiler = folder.number("compiler");
        std::thread::sleep(Duration::from_millis(500));
        descendants(child.id()).contains(&compiler).then_some(compiler)
    };
    let compiler = within(60, stays).expect("a compiler that waits");
    (child, compiler)
}

#[test]
fn a_failure_under_minimisation_survives_a_kill_and_no_process_does() {
    let folder = Folder::new();
    let (mut hunt, compiler) = stuck_hunt(&folder, ABORTS);
    let started = descendants(hunt.id());
    assert!(started.contains(&compiler) && !children(compiler).is_empty(), "{started:?}");
    signal(hunt.id(), "-KILL");
    hunt.wait().expect("it ends");
    let running = || started.iter().copied().filter(|pid| is_running(*pid)).collect::<Vec<_>>();
    let gone = within(2, || running().is_empty().then_some(()));
    assert!(gone.is_some(), "{:?} run on", running());
    let raw = folder.files("findings/raw", "case");
    assert_eq!(raw.len(), 1, "{raw:?}");
    let text = std::fs::read_to_string(&raw[0]).expect("it is text");
    for part in ["crash on c", "signal: 6", "from: gradiff gen --seed 1 --first 0", "output "] {
        assert!(text.contains(part), "{text}");
    }
}

/// It is not known whether the program killed the worker or another process did.
#[test]
fn a_death_that_an_interrupt_leaves_unconfirmed_is_a_sequence() {
    let folder = Folder::new();
    // The object removes itself from the cache, so that seeing the crash again needs the compiler.
    let once = ABORTS.replace("abort()", r#"system("rm -f cache/*.so"); abort()"#);
    let (hunt, _) = stuck_hunt(&folder, &once);
    signal(hunt.id(), "-TERM");
    let summary = summary(&hunt.wait_with_output().expect("the hunt ends"), 2);
    assert_eq!(summary["not_reproduced"], 1, "{summary}");
    assert!(folder.files("findings", "case").is_empty());
    let (_, text) = sequence(&folder);
    for part in ["signal: 6", "not reproduced in the available time", "backends c\nrun 0\n"] {
        assert!(text.contains(part), "{text}");
    }
}

/// While the programs of a dead worker run one by one, the death is in a file, and an end does not
/// lose it.
#[test]
fn the_death_of_a_batch_survives_an_interrupt() {
    let folder = Folder::new();
    let aborts = ABORTS.replace("abort()", r#"system("rm -f cache/*.so"); abort()"#);
    let script = format!(
        "if ls \"$here\"/findings/raw/*.sequence; then echo $$ > \"$here/part.$$\"; \
         mv \"$here/part.$$\" \"$here/compiler\"; sleep 600; fi\n{aborts}"
    );
    let hunt = [&HUNT[..], &["--programs", "8", "--timeout", "600"]].concat();
    let hunt = folder.gradiff(&script, &hunt).spawn().expect("the command starts");
    folder.number("compiler");
    signal(hunt.id(), "-INT");
    let summary = summary(&hunt.wait_with_output().expect("the hunt ends"), 2);
    assert_eq!((&summary["crashes"], &summary["not_reproduced"]), (&1.into(), &1.into()));
    let (_, text) = sequence(&folder);
    for part in ["signal: 6", "not reproduced", "backends c\nrun 0-7\n"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn an_interrupted_hunt_ends_soon_with_all_its_processes() {
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

/// A peer that a request to end has ended is neither wrong nor missing.
#[test]
fn an_interrupt_reaches_a_command_that_waits_for_a_peer() {
    let folder = Folder::new();
    let greeting = r#"{"gradiff": 1, "requests": ["run", "views", "kernels", "script"]}"#;
    let waits = "echo $$ > part\nmv part asked\nexec sleep 600\n";
    folder.program("engine", &format!("read line\necho '{greeting}'\nread line\n{waits}"));
    folder.program("silent", waits);
    folder.write("flip.case", b"view [2,3]\nflip axes=[0]\n");
    folder.write("neg.case", b"a = input i32[4] iota\nb = neg a\noutput b\n");
    for arguments in [
        &["replay", "flip.case", "--backends", "exec:./engine"][..],
        &["compare", "neg.case", "--with", "exec:./engine"],
        &["peers", "script", "exec:./engine", "neg.case"],
        &["hunt", "--programs", "1", "--backends", "exec:./silent"],
    ] {
        let command = folder.gradiff("", arguments).spawn().expect("the command starts");
        folder.number("asked");
        signal(command.id(), "-INT");
        let output = command.wait_with_output().expect("the command ends");
        assert_eq!(output.status.code(), Some(130), "{arguments:?}: {}", text(&output));
        std::fs::remove_file(folder.path().join("asked")).expect("it is there");
    }
}

/// Under `nohup`, the end of a terminal is no request to end.
#[test]
fn a_hunt_that_is_to_ignore_hangups_goes_on() {
    let folder = Folder::new();
    let script = "echo $$ > \"$here/part.$$\"; mv \"$here/part.$$\" \"$here/compiler\"\n\
                  while ! test -e \"$here/go\"; do sleep 0.05; done\nexec cc \"$@\"\n";
    let plain = folder.gradiff(script, &[&HUNT[..], &["--programs", "1"]].concat());
    let mut hunt = Command::new("sh");
    hunt.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(plain.get_program());
    hunt.args(plain.get_args()).current_dir(folder.path());
    hunt.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    hunt.stdout(Stdio::piped()).stderr(Stdio::piped());
    let hunt = hunt.spawn().expect("the command starts");
    folder.number("compiler");
    signal(hunt.id(), "-HUP");
    // The request to end would be noticed by then.
    std::thread::sleep(Duration::from_millis(200));
    folder.write("go", b"");
    let summary = summary(&hunt.wait_with_output().expect("the hunt ends"), 0);
    assert_eq!(summary["programs"], 1, "{summary}");
}

/// A message of several lines is one comment.
#[test]
fn reduced_programs_are_files_whatever_the_message_is() {
    let folder = Folder::new();
    folder.write("a.case", b"a = input i32[4] iota\nb = neg a\noutput b\n");
    let script = "printf 'out of licences\\nand of time\\n' >&2\nexit 1\n";
    let reduced = output(folder.gradiff(script, &["reduce", "a.case", "--backends", "c"]));
    assert_eq!(reduced.status.code(), Some(2), "{}", text(&reduced));
    assert!(text(&reduced).contains("out of licences and of time"), "{}", text(&reduced));
    folder.write("small.case", &reduced.stdout);
    let replay = ["replay", "small.case", "--backends", "interp"];
    let replayed = output(folder.gradiff("exec cc \"$@\"\n", &replay));
    assert_eq!(replayed.status.code(), Some(0), "{}", text(&replayed));
}

#[test]
fn an_interrupt_reaches_a_kernel_that_a_command_runs_in_its_own_process() {
    let folder = Folder::new();
    // The interpreter takes minutes for each sequence.
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
fn failures_of_the_machine_are_not_the_engines() {
    for (script, words) in [
        // Nothing compiles, not even the probe that is certainly right.
        ("echo 'out of licences' >&2\nexit 1\n", "out of licences"),
        ("kill -KILL $$\n", "signal: 9"),
        ("rm -rf \"$here/cache\"\nexec cc \"$@\"\n", "No such file"),
    ] {
        let folder = Folder::new();
        let works = "case \"$*\" in *--version* | *-dM*) exec cc \"$@\" ;; esac\n\
                     here=$(dirname \"$0\")\n";
        let compiler = folder.program("sick-cc", &format!("{works}{script}"));
        // Each of these programs has a kernel.
        let hunt = [&HUNT[..], &["--programs", "4", "--seed", "2"]].concat();
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
fn a_compiler_that_vanishes_during_a_hunt_is_the_machines_fault() {
    let folder = Folder::new();
    // The first worker finds the compiler, which then removes itself.
    let script = "rm \"$0\"\nexec cc \"$@\"\n";
    let hunt = [&HUNT[..], &["--programs", "200"]].concat();
    let summary = summary(&output(folder.gradiff(script, &hunt)), 3);
    assert!(summary["environment"].as_u64() >= Some(1), "{summary}");
    assert_eq!((&summary["mismatches"], &summary["crashes"]), (&0.into(), &0.into()), "{summary}");
}

#[test]
fn a_compiler_that_fails_a_few_times_is_run_again() {
    let folder = Folder::new();
    let script = "for n in 1 2 3 4 5 6; do mkdir \"$here/again$n\" 2>/dev/null && exit 1; done\n\
                  exec cc \"$@\"\n";
    let hunt = [&HUNT[..], &["--programs", "4"]].concat();
    let summary = summary(&output(folder.gradiff(script, &hunt)), 0);
    assert_eq!((&summary["programs"], &summary["environment"]), (&4.into(), &0.into()));
    assert!(summary["checked_elements"].as_u64() >= Some(1), "{summary}");
}

/// A clang that no longer compiles anything says nothing about a text.
#[test]
fn failures_of_clang_are_not_the_texts() {
    let folder = Folder::new();
    let real = ["clang", "clang-16", "clang-17", "clang-18", "clang-19"].into_iter().find(|name| {
        Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    });
    let Some(real) = or_skip("clang", real.ok_or("not found")) else { return };
    // A working clang compiles the host of the texts.
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

/// Runs a command. Returns its exit code and all output.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let folder = Folder::new();
    let output = output(folder.gradiff("exec cc \"$@\"\n", arguments));
    (output.status.code(), text(&output))
}

#[test]
fn an_empty_run_is_a_usage_error() {
    for arguments in [
        &["hunt", "--programs", "0", "--backends", "interp"][..],
        &["hunt", "--seconds", "0", "--backends", "interp"],
        &["views", "--random-only", "--cases", "0"],
        &["exprs", "--random-only", "--cases", "0"],
        &["gen", "--count", "0"],
        &["coverage", "--pairs", "0"],
        &["replay", ".", "--backends", "interp"],
    ] {
        let (code, text) = run(arguments);
        assert_eq!(code, Some(1), "{arguments:?} {text}");
        assert!(text.contains("--allow-empty"), "{arguments:?} {text}");
        let (code, text) = run(&[arguments, &["--allow-empty"]].concat());
        assert_eq!(code, Some(0), "{arguments:?} {text}");
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
    let (code, text) = run(&hunt);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("gradiff: without c: ") && text.contains("\"missing\":{\"c\":"),
        "{text}"
    );
    let (code, text) = run(&[&hunt[..], &["--require", "interp, c"]].concat());
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("c is required") && text.contains(nowhere), "{text}");
    let (code, text) = run(&[&hunt[..], &["--backends", "interp", "--require", "interp"]].concat());
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = run(&[&hunt[..], &["--backends", "interp", "--require", "jit"]].concat());
    assert_eq!(code, Some(1), "{text}");
    let (code, text) = run(&[&hunt[..], &["--require", "gpu"]].concat());
    assert!(code == Some(1) && text.contains("gpu") && text.contains("opencl"), "{text}");
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
        let errors = text(&output);
        assert_eq!(output.status.code(), Some(74), "{arguments:?} {errors}");
        assert!(errors.contains("No space left") && !errors.contains("panicked"), "{errors}");
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
fn numbers_of_programs_are_64_bit() {
    let last = u64::MAX.to_string();
    let (code, text) = run(&["gen", "--first", &last, "--count", "1"]);
    assert!(code == Some(0) && text.contains(&format!("number {last}")), "{text}");
    let (code, text) = run(&["gen", "--first", &last, "--count", "2"]);
    assert!(code == Some(1) && text.contains("numbers end at"), "{text}");
}

#[test]
fn repeated_backends_run_once_and_blanks_are_ignored() {
    let hunt = |list| run(&["hunt", "--programs", "8", "--json", "--backends", list]);
    let (code, text) = hunt("interp, jit ,interp");
    assert!(code == Some(0) && text.contains("\"backends\":[\"interp\",\"jit\"]"), "{text}");
    for (list, words) in [("interp,interp:2", "named twice"), ("interp,,jit", "a name is missing")]
    {
        let (code, text) = hunt(list);
        assert!(code == Some(1) && text.contains(words), "{text}");
    }
}

#[test]
fn only_text_files_are_read_and_byte_order_marks_are_skipped() {
    let folder = Folder::new();
    let case = b"a = input i32[4] iota\nb = neg a\noutput b\n";
    folder.write("mark.case", &[b"\xef\xbb\xbf", &case[..]].concat());
    let status = Command::new("mkfifo").arg(folder.path().join("pipe.case")).status();
    assert!(status.expect("mkfifo starts").success());
    folder.write("escape.case", b"a = input i32[4] \x1b]0;owned\x07 iota\noutput a\n");
    let run = |name: &str| {
        let output = output(folder.gradiff("", &["replay", name, "--backends", "interp"]));
        (output.status.code(), text(&output))
    };
    assert_eq!(run("mark.case").0, Some(0), "{}", run("mark.case").1);
    for name in ["pipe.case", "/dev/zero", "/dev/null"] {
        let (code, text) = run(name);
        assert!(code == Some(1) && text.contains("not a file"), "{name}: {text}");
    }
    let (code, text) = run("escape.case");
    assert!(code == Some(1) && !text.contains('\x1b') && !text.contains('\x07'), "{text:?}");
}

#[test]
fn escape_sequences_of_a_compiler_are_shown_as_text() {
    let folder = Folder::new();
    let script = "printf '\\033]0;owned\\007 \\033[31mred' >&2\nexit 1\n";
    let hunt = ["hunt", "--jobs", "1", "--backends", "c", "--lanes", "idioms", "--programs", "1"];
    let output = output(folder.gradiff(script, &hunt));
    let text = text(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("<1b>]0;owned<07> <1b>[31mred") && !text.contains('\x1b'), "{text:?}");
    let file = &folder.files("findings", "case")[0];
    assert!(!std::fs::read(file).expect("it is there").contains(&0x1b), "{file:?}");
}

#[test]
fn missing_devices_come_with_the_command_that_installs_them() {
    let folder = Folder::new();
    let mut command = folder.gradiff("", &["backends"]);
    command.env("CC", "/nonexistent/cc");
    let listing = text(&output(command));
    let line = listing.lines().find(|line| line.starts_with("c ")).expect("a line of c");
    assert!(line.contains("on Debian: apt-get install gcc"), "{line}");
    for line in listing.lines().filter(|line| line.contains(" not found ")) {
        let commands = ["apt-get install", "gradiff peers install"];
        assert!(commands.iter().any(|command| line.contains(command)), "{line}");
    }
}
