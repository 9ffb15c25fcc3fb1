//! Programs that are run to their end, or ended where they take too long.

use std::process::{Child, Command, ExitStatus};
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

/// Makes the program the leader of a group, to be ended with it: a compiler is several programs.
#[cfg(unix)]
fn lead(command: &mut Command, most: Duration) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
    // Should this process be ended first, nobody ends the group: the system then does, not before.
    let seconds = most.as_secs().saturating_add(2);
    let limit_cpu = move || {
        let limit = libc::rlimit { rlim_cur: seconds, rlim_max: seconds };
        // SAFETY: the limit is a struct of its own. Where a stricter one is set, that one stays.
        unsafe { libc::setrlimit(libc::RLIMIT_CPU, &limit) };
        // SAFETY: the call takes numbers alone. The thread that starts the program waits for it.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL)
        };
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
