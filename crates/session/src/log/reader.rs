//! Reads an event log: the file of a session, or the segments of a ring.

pub use super::lines::parse;
use super::lines::{EMPTY, damage_error};
use super::{FILE_NAME, merge, ring};
use std::path::Path;
use webdyno_model::Result;
use webdyno_model::error::io_error;
use webdyno_model::event::Event;

/// All events of the run directory `directory`, in order. Of a ring, all that it has now.
pub fn read(directory: &Path) -> Result<Vec<Event>> {
    let path = directory.join(FILE_NAME);
    if let Some(segments) = ring::segments(directory).filter(|_| !path.exists()) {
        let events = merge::merged(&segments)?.events;
        return match events.is_empty() {
            true => Err(damage_error(directory, 1, EMPTY)),
            false => Ok(events),
        };
    }
    let text = std::fs::read(&path).map_err(|error| {
        io_error("read", path.display(), &error)
            .hint("give the directory of a run, as `webdyno run` and `webdyno tune` print it at their end")
    })?;
    parse(&text).map_err(|(line, why)| damage_error(&path, line, &why))
}
