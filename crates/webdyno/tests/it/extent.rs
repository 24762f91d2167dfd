//! What `make test` leaves to `make test-all`: tests with many cases of one kind run some of them, unless
//! `WEBDYNO_TEST_ALL` is set, and state how many they left out. scripts/test lists and counts them.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used)]

use std::io::Write;

/// Whether every case is wanted.
pub fn runs_all() -> bool {
    std::env::var_os("WEBDYNO_TEST_ALL").is_some_and(|value| !value.is_empty())
}

/// States how many cases of a kind are left out: on stderr, and as a line of the file that `WEBDYNO_LEFT_OUT` names.
pub fn leave_out(count: usize, kind: &str) {
    if count == 0 {
        return;
    }
    let line = format!("{count} {kind}\n");
    eprint!("left to make test-all: {line}");
    if let Some(path) = std::env::var_os("WEBDYNO_LEFT_OUT") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).unwrap();
    }
}
