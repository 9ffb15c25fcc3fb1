//! Ctrl-C and the system's requests to end: the first one asks for an end, kills nothing and is
//! kept in mind for the exit code; a second one ends the process at once. Commands that compute in
//! this very process, and have nothing to lose, are ended by the first one as well, a little later.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Time for which a command may go on that has nothing to lose: it stops between two kernels or
/// rules, and one of them may take for ever.
const GRACE: Duration = Duration::from_secs(3);

/// The number of the signal that asked for an end; 0 if none did.
static ASKED: AtomicU8 = AtomicU8::new(0);

/// From now on a request to end only sets the flag.
pub(crate) fn install() {
    watch(|signal| {
        if ASKED.swap(signal, Ordering::SeqCst) != 0 {
            end(signal);
        }
    });
}

/// As [`install`], for a command that computes in this process and loses nothing but its counts:
/// it ends within seconds, whatever it does.
pub(crate) fn install_with_grace() {
    watch(|signal| {
        if ASKED.swap(signal, Ordering::SeqCst) != 0 {
            end(signal);
        }
        std::thread::spawn(move || {
            std::thread::sleep(GRACE);
            crate::out::errln!("gradiff: interrupted");
            end(signal);
        });
    });
}

fn end(signal: u8) -> ! {
    std::process::exit(i32::from(code_of(signal)))
}

/// In a worker: Ctrl-C reaches the whole process group, but only the parent decides. The work is
/// done at each signal.
pub(crate) fn ignore(work: impl Fn() + Send + 'static) {
    watch(move |_| work());
}

/// Calls back at each request to end, with the number of its signal, on a thread of its own.
#[cfg(unix)]
fn watch(work: impl Fn(u8) + Send + 'static) {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    // Where the system refuses it, signals end the process as they always do.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
    std::thread::spawn(move || {
        for signal in signals.forever() {
            work(u8::try_from(signal).unwrap_or(u8::MAX));
        }
    });
}

#[cfg(not(unix))]
fn watch(work: impl Fn(u8) + Send + 'static) {
    const INTERRUPT: u8 = 2;
    let _ = ctrlc::set_handler(move || work(INTERRUPT));
}

/// Returns whether an end was asked for.
pub(crate) fn is_asked() -> bool {
    code().is_some()
}

/// The exit code of a run that was asked to end: that of a program which the signal ends.
pub(crate) fn code() -> Option<u8> {
    let signal = ASKED.load(Ordering::SeqCst);
    (signal != 0).then(|| code_of(signal))
}

fn code_of(signal: u8) -> u8 {
    128 + signal.min(127)
}
