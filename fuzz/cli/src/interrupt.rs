//! Ctrl-C: asks for an end, kills nothing. A second one ends the process at once.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C (and the system's request to end) only sets the flag.
pub(crate) fn install() {
    // A second handler in one process is refused; the first one serves as well.
    let _ = ctrlc::set_handler(|| {
        if IS_ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    });
}

/// In a worker: Ctrl-C reaches the whole process group, but only the parent decides.
pub(crate) fn ignore() {
    let _ = ctrlc::set_handler(|| {});
}

/// Whether an end was asked for.
pub(crate) fn is_asked() -> bool {
    IS_ASKED.load(Ordering::SeqCst)
}
