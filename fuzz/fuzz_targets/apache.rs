//! A configuration of Apache: read, changed, evaluated, told. What must hold is in `crates/host/src/fuzzing/mod.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(told) = webdyno_host::fuzzing::configuration(bytes) {
        panic!("{told}");
    }
});
