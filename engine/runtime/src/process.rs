//! Programs that are run to their end, or ended where they take too long.
//!
//! A program with a limit leads a group of processes, since a compiler is several programs. The
//! group is killed when the limit is reached, and also when this process ends before it, in
//! whatever way: a shell beside it waits for that.

use std::io::Write;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long it takes at most until an end is noticed.
const PAUSE_MOST: Duration = Duration::from_millis(10);

/// Time that may be taken, from when this was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    start: Instant,
    most: Duration,
}

impl Limit {
    pub(crate) fn new(most: Duration) -> Limit {
        Limit { start: Instant::now(), most }
    }

    /// How much may be taken in all.
    pub(crate) fn most(&self) -> Duration {
        self.most
    }

    /// How much was taken.
    pub(crate) fn taken(&self) -> Duration {
        self.start.elapsed()
    }

    fn left(&self) -> Duration {
        self.most.saturating_sub(self.taken())
    }
}

/// How a program ended, or the limit that ended it.
pub(crate) type End = Result<ExitStatus, Limit>;

/// Runs a program to its end. If it takes longer than the limit it is killed, with all programs
/// that it started, and waited for; where no time is left it is not started.
///
/// # Errors
/// What the system says if the program cannot be run.
pub(crate) fn run(command: &mut Command, limit: Option<Limit>) -> std::io::Result<End> {
    let Some(limit) = limit else { return command.status().map(Ok) };
    if limit.left().is_zero() {
        return Ok(Err(limit));
    }
    lead(command, limit.most);
    let mut child = command.spawn()?;
    let _guard = Guard::of(&child);
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ok(status));
        }
        let left = limit.left();
        if left.is_zero() {
            end(&mut child)?;
            child.wait()?;
            return Ok(Err(limit));
        }
        std::thread::sleep(pause.min(left));
        pause = (2 * pause).min(PAUSE_MOST);
    }
}

/// Returns whether a signal has ended the program that says nothing of what it was given: somebody
/// sent it, or the system for want of memory or time. A crash is a signal of its own doing.
#[cfg(unix)]
pub(crate) fn is_ended_from_outside(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    let signals =
        [libc::SIGKILL, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGXCPU];
    status.signal().is_some_and(|signal| signals.contains(&signal))
}

#[cfg(not(unix))]
pub(crate) fn is_ended_from_outside(_: ExitStatus) -> bool {
    false
}

/// A shell that kills the group of a program if this process ends while the program runs. It leads
/// a group of its own, so that a signal to all of this process's group does not end it.
struct Guard(Option<Child>);

impl Guard {
    /// Fails to read, and kills, when the other end of its standard input is closed unwritten.
    #[cfg(unix)]
    const SCRIPT: &str = r#"read -r _ || kill -s KILL -- "-$1""#;

    /// The guard of a group's leader; without a shell there is none.
    #[cfg(unix)]
    fn of(leader: &Child) -> Guard {
        use std::os::unix::process::CommandExt;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", Guard::SCRIPT, "sh", &leader.id().to_string()]);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Guard(shell.process_group(0).spawn().ok())
    }

    #[cfg(not(unix))]
    fn of(_: &Child) -> Guard {
        Guard(None)
    }
}

impl Drop for Guard {
    /// Dismisses it: the program has ended.
    fn drop(&mut self) {
        let Some(mut shell) = self.0.take() else { return };
        if let Some(mut input) = shell.stdin.take() {
            // A guard that was killed need not be told.
            let _ = writeln!(input);
        }
        let _ = shell.wait();
    }
}

/// Makes the program the leader of a group, to be ended with it.
#[cfg(unix)]
fn lead(command: &mut Command, most: Duration) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
    // Where there is no shell to be its guard, a program that goes on for ever ends like this.
    let seconds = most.as_secs().saturating_add(2);
    let limit_cpu = move || {
        let limit = libc::rlimit { rlim_cur: seconds, rlim_max: seconds };
        // SAFETY: the limit is a struct of its own. Where a stricter one is set, that one stays.
        unsafe { libc::setrlimit(libc::RLIMIT_CPU, &limit) };
        Ok(())
    };
    // SAFETY: between fork and exec it makes system calls and allocates nothing.
    unsafe { command.pre_exec(limit_cpu) };
}

#[cfg(unix)]
fn end(child: &mut Child) -> std::io::Result<()> {
    let Ok(group) = i32::try_from(child.id()) else { return child.kill() };
    // SAFETY: the child leads this group, and until it is waited for nobody else has its number.
    match unsafe { libc::kill(-group, libc::SIGKILL) } {
        0 => Ok(()),
        _ => child.kill(),
    }
}

#[cfg(not(unix))]
fn lead(_: &mut Command, _: Duration) {}

#[cfg(not(unix))]
fn end(child: &mut Child) -> std::io::Result<()> {
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
    fn program_within_the_limit_says_its_status() {
        for limit in [None, Some(Limit::new(Duration::from_secs(60)))] {
            let status = run(&mut shell("exit 3"), limit).unwrap();
            assert_eq!(status.ok().and_then(|status| status.code()), Some(3));
            assert!(run(&mut Command::new("/nonexistent/program"), limit).is_err());
        }
    }

    #[test]
    fn program_beyond_the_limit_is_ended_with_what_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let (started, ended) = (directory.path().join("started"), directory.path().join("ended"));
        // What it starts would write a file, and the program waits for it.
        let later = format!("(sleep 1; touch {}) & wait", ended.display());
        let script = format!("touch {}; {later}", started.display());
        let limit = Limit::new(Duration::from_millis(300));
        assert!(run(&mut shell(&script), Some(limit)).unwrap().is_err());
        assert!(limit.taken() < Duration::from_secs(1), "{:?}", limit.taken());
        assert!(started.exists());
        std::thread::sleep(Duration::from_millis(1500));
        assert!(!ended.exists(), "what it started went on");
    }

    /// Where the child of the test below leaves its files; it does nothing in other processes.
    const FOLDER: &str = "GRADIFF_TEST_FOLDER";

    #[test]
    fn starter_that_will_be_killed() {
        let Some(folder) = std::env::var_os(FOLDER) else { return };
        let later = "(sleep 2; touch ended) & wait";
        let mut command = shell(&format!("touch started; {later}"));
        let _ = run(command.current_dir(folder), Some(Limit::new(Duration::from_secs(60))));
    }

    #[test]
    fn program_is_ended_with_what_it_started_when_its_starter_is_killed() {
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
        // Its guard starts right after it.
        std::thread::sleep(Duration::from_millis(200));
        starter.kill().unwrap();
        starter.wait().unwrap();
        std::thread::sleep(Duration::from_millis(3000));
        assert!(!ended.exists(), "what it started went on");
    }

    #[test]
    fn program_is_not_started_where_no_time_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let started = directory.path().join("started");
        let limit = Some(Limit::new(Duration::ZERO));
        let script = format!("touch {}", started.display());
        assert!(run(&mut shell(&script), limit).unwrap().is_err());
        assert!(!started.exists());
    }
}
