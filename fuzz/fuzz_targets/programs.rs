//! Programs: the interpreter and the just-in-time compiler must agree with the oracle.
#![no_main]
use gradiff_gen::ProgramCase;
libfuzzer_sys::fuzz_target!(|case: ProgramCase| {
    gradiff_fuzz::count_rules();
    gradiff_fuzz::count_pairs(&case.program);
    gradiff_check::fuzz::program(&case.program)
});
