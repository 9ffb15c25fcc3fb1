//! Must fail: shows that the fuzzer finds what there is to find.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    assert!(!data.windows(2).any(|pair| pair == b"gr"));
});
