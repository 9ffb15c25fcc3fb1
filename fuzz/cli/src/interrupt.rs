//! Ctrl-C and the system's termination signals: the first one only sets a flag, which also decides
//! the exit code; a second one ends the process at once. Commands that compute in this process and
//! have nothing to lose are ended by the first one as well, a little later.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Time in which a command that has nothing to lose may end by itself: it stops between two kernels
/// or rules, and one of them may take for ever.
const GRACE: Duration = Duration::from_secs(3);

/// Time in which further signals count as the first one: `timeout` signals the process, and then
/// its group.
const TOGETHER: Duration = Duration::from_millis(500);

/// Number of the signal that requested an end; 0 if none did.
static REQUESTED: AtomicU8 = AtomicU8::new(0);

/// Makes the first termination signal set the flag only, and end what waits for peers.
pub(crate) fn install() {
    watch(request());
}

/// As [`install`], for a command that computes in this process and loses only its counts: it ends
/// within seconds, whatever it is doing.
pub(crate) fn install_with_grace() {
    let mut request = request();
    watch(move |signal| {
        request(signal);
        std::thread::spawn(move || {
            std::thread::sleep(GRACE);
            crate::out::errln!("gradiff: interrupted");
            end(signal);
        });
    });
}

/// Returns what the first signal and a later one do.
fn request() -> impl FnMut(u8) + Send + 'static {
    let mut first: Option<Instant> = None;
    move |signal| {
        REQUESTED.store(signal, Ordering::SeqCst);
        gradiff_check::cancel_peers();
        if TOGETHER <= first.get_or_insert_with(Instant::now).elapsed() {
            end(signal);
        }
    }
}

fn end(signal: u8) -> ! {
    std::process::exit(i32::from(code_of(signal)))
}

/// Ignores the signals in a worker, since Ctrl-C reaches the whole process group, but only the
/// parent decides; does `work` at each signal.
pub(crate) fn ignore(work: impl Fn() + Send + 'static) {
    watch(move |_| work());
}

/// Calls `work` at each termination signal, with the signal's number, on a separate thread.
#[cfg(unix)]
fn watch(mut work: impl FnMut(u8) + Send + 'static) {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    let mut heard = vec![SIGINT, SIGTERM];
    if !ignores(SIGHUP) {
        heard.push(SIGHUP);
    }
    // If the system refuses this, signals end the process as usual.
    let Ok(mut signals) = Signals::new(heard) else { return };
    std::thread::spawn(move || {
        for signal in signals.forever() {
            work(u8::try_from(signal).unwrap_or(u8::MAX));
        }
    });
}

/// Returns whether this process was started so that it ignores a signal, as `nohup` does with that
/// of a hangup. Where the system does not say so, it is not.
#[cfg(unix)]
fn ignores(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (mask >> (signal - 1)) & 1 == 1
}

#[cfg(not(unix))]
fn watch(mut work: impl FnMut(u8) + Send + 'static) {
    const INTERRUPT: u8 = 2;
    let _ = ctrlc::set_handler(move || work(INTERRUPT));
}

/// Returns whether an end was requested.
pub(crate) fn is_requested() -> bool {
    code().is_some()
}

/// Returns the exit code of an interrupted run: that of a program which the signal ends.
pub(crate) fn code() -> Option<u8> {
    let signal = REQUESTED.load(Ordering::SeqCst);
    (signal != 0).then(|| code_of(signal))
}

fn code_of(signal: u8) -> u8 {
    128 + signal.min(127)
}
