//! A connection of HTTP/2 from the server's first byte. What must hold is in `crates/load/src/fuzzing/http2.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(told) = webdyno_load::fuzzing::http2(bytes) {
        panic!("{told}");
    }
});
