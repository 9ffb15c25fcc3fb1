//! Programs: the interpreter and the just-in-time compiler must agree with the oracle.
#![no_main]
use gradiff_gen::ProgramCase;
use libfuzzer_sys::arbitrary::{Arbitrary, Unstructured};
libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let bytes = gradiff_fuzz::bytes(input);
    let Ok(case) = ProgramCase::arbitrary(&mut Unstructured::new(&bytes)) else { return };
    gradiff_fuzz::count_rules();
    gradiff_fuzz::count_pairs(&case.program);
    gradiff_check::fuzz::program(&case.program)
});
