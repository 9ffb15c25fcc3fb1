//! Canary: must fail, which shows that the fuzzer finds failures.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if data.first() == Some(&b'g') && data.get(1) == Some(&b'r') {
        panic!("the canary sings");
    }
});
