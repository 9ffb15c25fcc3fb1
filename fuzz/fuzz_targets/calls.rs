//! Chains of library calls: legal calls give the right results, illegal ones are refused, nothing
//! panics, and no kernel accepted as safe accesses memory outside its arrays.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gradiff_check::fuzz::calls(bytes));
