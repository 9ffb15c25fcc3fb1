//! The counts of rewrite rules as libFuzzer's extra counters: an input that fires a rule for the
//! first time, or far more often than before, is new ground, as if it had reached new code.
//!
//! On Linux alone; elsewhere, and without libFuzzer, the counters are bytes that nobody reads.

use std::sync::atomic::{AtomicU8, Ordering};

use gradiff_check::fuzz::RULES;

/// libFuzzer finds them by the name of the section, and clears them before each input.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = "__libfuzzer_extra_counters"))]
static COUNTERS: [AtomicU8; RULES] = [const { AtomicU8::new(0) }; RULES];

/// From now on the targets count rules. May be called again.
pub fn count_rules() {
    gradiff_check::fuzz::feed_back(|counts| {
        for (counter, count) in COUNTERS.iter().zip(counts) {
            counter.store(*count, Ordering::Relaxed);
        }
    });
}
