//! A recording for other programs: tables as CSV and Parquet, times as HdrHistogram text or log, verdicts as JUnit XML.
//!
//! Like all views they are functions of the recording alone, so that they can be made again from it.

mod cache;
mod csv;
mod hdr;
mod junit;
mod parquet;
mod points;
mod samples;
mod seconds;
mod table;

pub use cache::{CacheProgram, cache_config};
pub use csv::csv;
pub use hdr::{HdrFormat, hdr};
pub use junit::junit;
pub use parquet::parquet;

use table::{Column, RowSink};
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;

/// Which table of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Each second of each load.
    Seconds,
    /// Each reading of each metric of the observed hosts.
    Samples,
    /// Each point of a curve.
    Points,
}

impl Table {
    /// The one that a recording has, the first of them when it has both.
    pub fn of(recording: &Recording) -> Self {
        if recording.loads.is_empty() { Self::Samples } else { Self::Seconds }
    }

    /// `seconds`, `samples`, `points`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Samples => "samples",
            Self::Points => "points",
        }
    }

    fn columns(self, recording: &Recording) -> Vec<Column> {
        match self {
            Self::Seconds => seconds::columns(),
            Self::Samples => samples::columns(),
            Self::Points => points::columns(recording),
        }
    }

    /// Gives every row to `sink`. An error when there are none, for what they are `wanted`.
    fn rows(self, recording: &Recording, wanted: &str, sink: RowSink<'_>) -> Result<()> {
        match self {
            Self::Seconds if recording.loads.is_empty() => Err(no_load_error(wanted, recording)),
            Self::Seconds => seconds::rows(recording, sink),
            Self::Samples => samples::rows(recording, wanted, sink),
            Self::Points => points::rows(recording, wanted, sink),
        }
    }
}

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
