//! CPU time of this process and of the processes that it waited for.

use std::sync::OnceLock;
use std::time::Instant;

/// Returns the seconds of CPU time so far. On systems without `/proc` it returns the seconds since
/// the first call.
pub(crate) fn cpu_seconds() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    std::fs::read_to_string("/proc/self/stat")
        .ok()
        .and_then(|stat| ticks(&stat))
        .map_or_else(|| start.elapsed().as_secs_f64(), |ticks| ticks as f64 / TICKS_PER_SECOND)
}

/// The unit of CPU times in `/proc`. It is the same on every machine on which Rust has Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Sums the user and system times of the process and of its children, which are fields 14 to 17 of
/// the line. The second field is a name in brackets, which may contain spaces and brackets.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum()
}

#[test]
fn ticks_are_the_four_times() {
    let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 20 5 3 2 20 0 1";
    assert_eq!(ticks(stat), Some(30));
    assert_eq!(ticks("7 (a) S 1"), None);
}
