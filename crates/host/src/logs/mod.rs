//! Log files of services: followed while they grow, and their lines read by their format.

pub mod followed;
pub mod line;
pub mod tail;

use line::LineFormat;
use std::path::PathBuf;

/// An access log of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    /// A file, absolute.
    pub path: PathBuf,
    /// How its lines are written.
    pub format: LineFormat,
}

/// The access logs of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessLogs {
    /// Those that can be followed, the ones of the port under load first.
    pub files: Vec<AccessLog>,
    /// Why others cannot, in words: `|/usr/bin/rotatelogs: it is written to a program`.
    pub unread: Vec<String>,
}
