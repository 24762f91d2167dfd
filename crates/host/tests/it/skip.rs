//! Tests that cannot run here say so where it is seen: the test harness hides what passing tests print.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used)]

use std::io::Write;

/// Ends a test where this machine lacks what it needs: the reason is given here, or told by what finds that out.
macro_rules! needs {
    ($present:expr) => {
        if !$present {
            return;
        }
    };
    ($present:expr, $why:expr) => {
        if !$present {
            return $crate::skip::skip($why);
        }
    };
}
pub(crate) use needs;

/// Says that the current test is skipped, and why: on stderr, and as a line of the file that `WEBDYNO_SKIPS` names, from
/// which scripts/test tells and counts them.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    eprint!("skipped: {line}");
    if let Some(path) = std::env::var_os("WEBDYNO_SKIPS") {
        // One write each, so that lines of tests that run at the same time stay whole.
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).unwrap();
    }
}
