//! The parser never panics, and what it accepts prints and parses back to itself.
#![no_main]
libfuzzer_sys::fuzz_target!(|text: &str| gradiff_check::fuzz::text(text));
