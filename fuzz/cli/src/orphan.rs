//! Ends orphaned workers, whose parent has ended in whatever way, and all processes that they
//! started.
//!
//! A worker leads a process group. It ends the whole group at the end of its standard input, a pipe
//! from the parent, which a separate thread reads, so that work cannot delay this. On Linux the
//! system also sends a signal when the parent's thread ends; it counts only if the parent is gone.

use std::io::{BufRead, BufReader};
use std::sync::mpsc::{Receiver, channel};

/// Returns the lines of standard input. If `parent`, the number of the process that started this
/// one, is given, this process ends with standard input.
pub(crate) fn requests(parent: Option<u32>) -> Receiver<String> {
    let (sender, lines) = channel();
    follow(parent);
    std::thread::spawn(move || {
        for line in BufReader::new(std::io::stdin()).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
        if parent.is_some() {
            end();
        }
    });
    lines
}

/// Ends this process, which is not a worker, when its parent has ended. Its workers end with it.
pub(crate) fn end_with(parent: u32) {
    #[cfg(unix)]
    std::thread::spawn(move || {
        while !is_orphan(parent) {
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
        std::process::exit(143);
    });
    #[cfg(not(unix))]
    let _ = parent;
}

/// Returns whether this process has another parent by now.
#[cfg(unix)]
fn is_orphan(parent: u32) -> bool {
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    now.and_then(|pid| u32::try_from(pid).ok()) != Some(parent)
}

#[cfg(unix)]
fn follow(parent: Option<u32>) {
    let Some(parent) = parent else { return crate::interrupt::ignore(|| {}) };
    crate::interrupt::ignore(move || {
        if is_orphan(parent) {
            end();
        }
    });
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        // If the system refuses this, the end of standard input is noticed all the same.
        let _ = set_parent_process_death_signal(Some(Signal::TERM));
    }
    // The parent may have ended before.
    if is_orphan(parent) {
        end();
    }
}

#[cfg(not(unix))]
fn follow(_: Option<u32>) {
    crate::interrupt::ignore(|| {});
}

/// Ends this process, and its group if it leads one, to which compilers belong.
fn end() -> ! {
    #[cfg(unix)]
    {
        use rustix::process::{Signal, getpgrp, getpid, kill_current_process_group};
        if getpgrp() == getpid() {
            let _ = kill_current_process_group(Signal::KILL);
        }
    }
    std::process::exit(0);
}
