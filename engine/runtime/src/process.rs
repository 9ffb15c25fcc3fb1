//! Runs programs with a time limit.
//!
//! A program with a limit is the leader of a process group, since a compiler starts other programs.
//! The group is killed when the limit is reached, and also if this process ends before, in whatever
//! way: a shell waits for that.

use std::io::Write;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

#[cfg(unix)]
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, setrlimit};

/// The maximal delay until the end of a program is noticed.
const MAX_PAUSE: Duration = Duration::from_millis(10);

/// A time limit that starts when it is created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    start: Instant,
    duration: Duration,
}

impl Limit {
    pub(crate) fn new(duration: Duration) -> Limit {
        Limit { start: Instant::now(), duration }
    }

    /// The time limit in total.
    pub(crate) fn duration(&self) -> Duration {
        self.duration
    }

    /// The time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn remaining(&self) -> Duration {
        self.duration.saturating_sub(self.elapsed())
    }
}

/// The exit status of a program, or the limit at which it was killed.
pub(crate) type Outcome = Result<ExitStatus, Limit>;

/// Runs a program to its end. If it takes longer than the limit, kills it with all programs that it
/// started, and waits for it. Does not start it if no time remains.
///
/// # Errors
/// The error of the system if the program cannot be run.
pub(crate) fn run(command: &mut Command, limit: Option<Limit>) -> std::io::Result<Outcome> {
    let Some(limit) = limit else { return command.status().map(Ok) };
    if limit.remaining().is_zero() {
        return Ok(Err(limit));
    }
    lead_group(command, limit.duration);
    let mut child = command.spawn()?;
    let _guard = Guard::new(&child);
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ok(status));
        }
        let remaining = limit.remaining();
        if remaining.is_zero() {
            kill_group(&mut child)?;
            child.wait()?;
            return Ok(Err(limit));
        }
        std::thread::sleep(pause.min(remaining));
        pause = (2 * pause).min(MAX_PAUSE);
    }
}

/// Returns whether the program was killed by a signal from outside: from another process, or from
/// the system for lack of memory or time, or for a file beyond the limit of sizes. A crash is a
/// signal that the program causes itself.
#[cfg(unix)]
pub(crate) fn was_killed_from_outside(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    let signals = [
        Signal::KILL,
        Signal::TERM,
        Signal::INT,
        Signal::HUP,
        Signal::QUIT,
        Signal::XCPU,
        Signal::XFSZ,
    ];
    status.signal().is_some_and(|signal| signals.map(Signal::as_raw).contains(&signal))
}

#[cfg(not(unix))]
pub(crate) fn was_killed_from_outside(_: ExitStatus) -> bool {
    false
}

/// A shell that kills the group of a program if this process ends while the program runs. It is in
/// a group of its own, so that a signal to the group of this process does not kill it.
struct Guard(Option<Child>);

impl Guard {
    /// Kills the group if reading fails, because standard input was closed without a line.
    #[cfg(unix)]
    const SCRIPT: &str = r#"read -r _ || kill -s KILL -- "-$1""#;

    /// Starts the guard of a group's leader; there is none without a shell.
    #[cfg(unix)]
    fn new(leader: &Child) -> Guard {
        use std::os::unix::process::CommandExt;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", Guard::SCRIPT, "sh", &leader.id().to_string()]);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Guard(shell.process_group(0).spawn().ok())
    }

    #[cfg(not(unix))]
    fn new(_: &Child) -> Guard {
        Guard(None)
    }
}

impl Drop for Guard {
    /// Ends the shell: the program has ended.
    fn drop(&mut self) {
        let Some(mut shell) = self.0.take() else { return };
        if let Some(mut input) = shell.stdin.take() {
            // Fails if the shell was killed.
            let _ = writeln!(input);
        }
        let _ = shell.wait();
    }
}

/// Makes the program the leader of a process group, and limits its CPU time.
#[cfg(unix)]
fn lead_group(command: &mut Command, duration: Duration) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
    // Ends a program that loops for ever if there is no shell for a guard.
    let seconds = duration.as_secs().saturating_add(2);
    let limit_cpu = move || {
        // Fails if a stricter limit is set.
        let _ = setrlimit(Resource::Cpu, Rlimit { current: Some(seconds), maximum: Some(seconds) });
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes a system call; it does not allocate.
    unsafe { command.pre_exec(limit_cpu) };
}

#[cfg(unix)]
fn kill_group(child: &mut Child) -> std::io::Result<()> {
    // The child leads this group, whose number is not reused before the child is waited for.
    match kill_process_group(Pid::from_child(child), Signal::KILL) {
        Ok(()) => Ok(()),
        Err(_) => child.kill(),
    }
}

#[cfg(not(unix))]
fn lead_group(_: &mut Command, _: Duration) {}

#[cfg(not(unix))]
fn kill_group(child: &mut Child) -> std::io::Result<()> {
    child.kill()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn program_within_the_limit_returns_its_status() {
        for limit in [None, Some(Limit::new(Duration::from_secs(60)))] {
            let status = run(&mut shell("exit 3"), limit).unwrap();
            assert_eq!(status.ok().and_then(|status| status.code()), Some(3));
            assert!(run(&mut Command::new("/nonexistent/program"), limit).is_err());
        }
    }

    #[test]
    fn limits_kill_from_outside_and_crashes_do_not() {
        use std::os::unix::process::ExitStatusExt;
        let is_outside =
            |signal: Signal| was_killed_from_outside(ExitStatus::from_raw(signal.as_raw()));
        assert_eq!([Signal::KILL, Signal::XCPU, Signal::XFSZ].map(is_outside), [true; 3]);
        assert_eq!([Signal::SEGV, Signal::ABORT].map(is_outside), [false; 2]);
    }

    #[test]
    fn program_beyond_the_limit_is_killed_with_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let (started, ended) = (directory.path().join("started"), directory.path().join("ended"));
        // The program waits for a child that would write a file.
        let later = format!("(sleep 1; touch {}) & wait", ended.display());
        let script = format!("touch {}; {later}", started.display());
        let limit = Limit::new(Duration::from_millis(300));
        assert!(run(&mut shell(&script), Some(limit)).unwrap().is_err());
        assert!(limit.elapsed() < Duration::from_secs(1), "{:?}", limit.elapsed());
        assert!(started.exists());
        std::thread::sleep(Duration::from_millis(1500));
        assert!(!ended.exists(), "a child was not killed");
    }

    /// The folder of the child process of the test below. Without it, `starter_that_will_be_killed`
    /// does nothing.
    const FOLDER: &str = "GRADIFF_TEST_FOLDER";

    #[test]
    fn starter_that_will_be_killed() {
        let Some(folder) = std::env::var_os(FOLDER) else { return };
        let later = "(sleep 2; touch ended) & wait";
        let mut command = shell(&format!("touch started; {later}"));
        let _ = run(command.current_dir(folder), Some(Limit::new(Duration::from_secs(60))));
    }

    #[test]
    fn program_and_children_are_killed_when_the_starter_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let (started, ended) = (directory.path().join("started"), directory.path().join("ended"));
        let mut starter = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process::tests::starter_that_will_be_killed"])
            .env(FOLDER, directory.path())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while !started.exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "the program was never started");
            std::thread::sleep(Duration::from_millis(5));
        }
        // The guard starts right after the program.
        std::thread::sleep(Duration::from_millis(200));
        starter.kill().unwrap();
        starter.wait().unwrap();
        std::thread::sleep(Duration::from_millis(3000));
        assert!(!ended.exists(), "a child was not killed");
    }

    #[test]
    fn program_is_not_started_if_no_time_remains() {
        let directory = tempfile::tempdir().unwrap();
        let started = directory.path().join("started");
        let limit = Some(Limit::new(Duration::ZERO));
        let script = format!("touch {}", started.display());
        assert!(run(&mut shell(&script), limit).unwrap().is_err());
        assert!(!started.exists());
    }
}
