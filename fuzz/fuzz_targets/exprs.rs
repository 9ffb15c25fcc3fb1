//! Index expressions: simplification must keep their values and their bounds.
#![no_main]
use gradiff_gen::ExprsCase;
libfuzzer_sys::fuzz_target!(|case: ExprsCase| {
    gradiff_fuzz::count_rules();
    gradiff_check::fuzz::expr(&case.0)
});
