//! Chains of calls of the library: what is legal gives what it must, what is not is refused, nothing
//! panics, and no kernel that is taken for safe leaves its arrays.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gradiff_check::fuzz::calls(bytes));
