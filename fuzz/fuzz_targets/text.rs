//! Case texts: the parser never panics, and accepted text survives printing and parsing.
#![no_main]
libfuzzer_sys::fuzz_target!(|text: &str| gradiff_check::fuzz::text(text));
