//! An answer from its first byte: head, framing, body. What must hold is in `crates/load/src/fuzzing/mod.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(told) = webdyno_load::fuzzing::response(bytes) {
        panic!("{told}");
    }
});
