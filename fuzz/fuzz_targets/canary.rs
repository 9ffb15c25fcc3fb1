//! Must fail: shows that the fuzzer finds what there is to find.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if data.first() == Some(&b'g') && data.get(1) == Some(&b'r') {
        panic!("the canary sings");
    }
});
