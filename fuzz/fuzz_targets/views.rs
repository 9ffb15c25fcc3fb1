//! View sequences: every shape tracker must point to the elements that the sequence keeps.
#![no_main]
use gradiff_gen::ViewsCase;
libfuzzer_sys::fuzz_target!(|case: ViewsCase| {
    gradiff_fuzz::count_rules();
    gradiff_check::fuzz::views(&case.0)
});
