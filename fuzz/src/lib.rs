//! Feedback for libFuzzer: the counts of rewrite rules and of pairs of features as its extra
//! counters. An input that fires a rule or combines two features for the first time, or far more
//! often than before, counts as new coverage, as if it had reached new code.
//!
//! This works on Linux only; elsewhere, and without libFuzzer, nothing reads the counters.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use gradiff_check::fuzz::RULES;
use gradiff_corpus::Program;
use gradiff_gen::Pairs;

/// A counter for each rule. libFuzzer finds them by the name of the section, and clears them before
/// each input.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = "__libfuzzer_extra_counters"))]
static COUNTERS: [AtomicU8; RULES] = [const { AtomicU8::new(0) }; RULES];

/// A counter for each pair of features; the linker puts both tables into the one section.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = "__libfuzzer_extra_counters"))]
static PAIRS: [AtomicU8; Pairs::POSSIBLE] = [const { AtomicU8::new(0) }; Pairs::POSSIBLE];

/// Counts the pairs of features of a program.
pub fn count_pairs(program: &Program) {
    let mut pairs = Pairs::default();
    pairs.add(program);
    for (counter, count) in PAIRS.iter().zip(pairs.counts()) {
        counter.store(u8::try_from(*count).unwrap_or(u8::MAX), Ordering::Relaxed);
    }
}

/// Makes the targets count rules from now on. May be called again.
pub fn count_rules() {
    gradiff_check::fuzz::feed_back(|counts| {
        for (counter, count) in COUNTERS.iter().zip(counts) {
            counter.store(*count, Ordering::Relaxed);
        }
    });
}

/// Returns the bytes to draw a case from: those of the fuzzer or, for comparison, random ones that
/// do not depend on its feedback, if the environment variable `GRADIFF_FUZZ_BLIND` holds their
/// seed.
pub fn bytes(input: &[u8]) -> Cow<'_, [u8]> {
    /// Number of random bytes: the `-max_len` that the README gives to the fuzzer.
    const COUNT: usize = 512;
    static SEED: OnceLock<Option<u64>> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let seed = SEED.get_or_init(|| std::env::var("GRADIFF_FUZZ_BLIND").ok()?.parse().ok());
    let Some(seed) = seed else { return Cow::Borrowed(input) };
    let case = gradiff_gen::case_seed(*seed, NEXT.fetch_add(1, Ordering::Relaxed));
    let words = (0..COUNT as u64 / 8).map(|word| gradiff_gen::case_seed(case, word));
    Cow::Owned(words.flat_map(u64::to_le_bytes).collect())
}
