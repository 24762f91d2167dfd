//! A recording for other programs: seconds as CSV, times as HdrHistogram text or log, verdicts as JUnit XML.
//!
//! Like all views they are functions of the recording alone, so that they can be made again from it.

mod csv;
mod hdr;
mod junit;

pub use csv::csv;
pub use hdr::{HdrFormat, hdr};
pub use junit::junit;

use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;

/// What cannot be told of a session without any load.
fn no_load_error(what: &str, recording: &Recording) -> UserError {
    UserError::cannot_run(format!(
        "the `{}` of {} made no load, so that there is nothing for {what}",
        recording.command, recording.started_at
    ))
    .hint("`webdyno report DIR` shows what was recorded")
}

/// The text of what was written into memory.
fn utf8_text(bytes: Vec<u8>, what: &str) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| UserError::cannot_run(format!("cannot write the results as {what}")))
}
