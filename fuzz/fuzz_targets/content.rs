//! A coded body: its coding by one byte, then gzip, deflate or brotli. What must hold is in
//! `crates/load/src/fuzzing/mod.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(told) = webdyno_load::fuzzing::content(bytes) {
        panic!("{told}");
    }
});
