//! An access log: its format, lines, figures. What must hold is in `crates/logs/src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(told) = webdyno_logs::fuzzing::access_log(bytes) {
        panic!("{told}");
    }
});
