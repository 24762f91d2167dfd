//! Follows an event log while it is written, a file or a ring: each look reads what was added since the last one, and nothing
//! twice. It begins with the first event; of a ring, with the segment that is written.

use super::lines::parse_line;
use super::{FILE_NAME, ring};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use webdyno_model::Result;
use webdyno_model::error::io_error;
use webdyno_model::event::Event;

/// What one look reads at most.
const LOOK_BYTES_MAX: u64 = 1 << 20;

/// A reader of a log that grows.
#[derive(Debug)]
pub struct LogFollower {
    directory: PathBuf,
    current: Option<(PathBuf, File)>,
    /// The beginning of a line whose end is not written yet.
    begun: Vec<u8>,
}

impl LogFollower {
    /// Of the log in a run directory, which may still have to be created.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), current: None, begun: vec![] }
    }

    /// The next events; none where nothing was added. Lines that cannot be read are left out: the report names them.
    pub fn next_events(&mut self) -> Result<Vec<Event>> {
        loop {
            if self.current.is_none() && !self.open()? {
                return Ok(vec![]);
            }
            let Some((path, file)) = &mut self.current else { return Ok(vec![]) };
            let before = self.begun.len();
            let read = file.by_ref().take(LOOK_BYTES_MAX).read_to_end(&mut self.begun);
            let count = read.map_err(|error| io_error("read", path.display(), &error))?;
            if count > 0 || !self.has_successor() {
                return Ok(self.whole_lines(before));
            }
            // What a segment ends with that is no whole line is torn.
            (self.current, self.begun) = (None, vec![]);
        }
    }

    /// Takes the lines whose end was read behind `before`.
    fn whole_lines(&mut self, before: usize) -> Vec<Event> {
        let Some(at) = self.begun[before..].iter().rposition(|byte| *byte == b'\n') else { return vec![] };
        let rest = self.begun.split_off(before + at + 1);
        let whole = std::mem::replace(&mut self.begun, rest);
        let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.filter_map(|line| parse_line(line).ok().flatten()).collect()
    }

    /// Opens the log, or the last segment of the ring. Gives whether there is one.
    fn open(&mut self) -> Result<bool> {
        let log = self.directory.join(FILE_NAME);
        let segment = || ring::segments(&self.directory)?.pop();
        let Some(path) = Some(log).filter(|log| log.exists()).or_else(segment) else { return Ok(false) };
        match File::open(&path) {
            Ok(file) => self.current = Some((path, file)),
            // The ring went on meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(io_error("read", path.display(), &error)),
        }
        Ok(true)
    }

    /// Whether the ring has a later segment than the one that is read.
    fn has_successor(&self) -> bool {
        let Some((path, _)) = &self.current else { return false };
        let last = || ring::segments(&self.directory)?.pop();
        !path.ends_with(FILE_NAME) && last().is_some_and(|last| last != *path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::writer::EventLog;
    use std::io::Write;
    use webdyno_model::event::EventBody;

    fn texts(follower: &mut LogFollower) -> Vec<String> {
        let text = |event: Event| match event.body {
            EventBody::Note { text } => text,
            other => panic!("{other:?}"),
        };
        follower.next_events().unwrap().into_iter().map(text).collect()
    }

    fn note(text: &str) -> EventBody {
        EventBody::Note { text: text.into() }
    }

    #[test]
    fn a_growing_log_is_read_once_and_in_whole_lines() {
        let place = tempfile::tempdir().unwrap();
        let mut follower = LogFollower::new(place.path());
        assert!(texts(&mut follower).is_empty(), "it does not have to exist yet");
        let mut file = File::create(place.path().join(FILE_NAME)).unwrap();
        let line = |text: &str| format!(r#"{{"v":1,"seq":0,"t_us":5,"kind":"note","text":"{text}"}}"#);
        let (first, second) = (line("a") + "\n", line("b"));
        file.write_all((first + "garbage\n" + &second[..20]).as_bytes()).unwrap();
        assert_eq!(texts(&mut follower), ["a"]);
        assert!(texts(&mut follower).is_empty());
        file.write_all(&second.as_bytes()[20..]).unwrap();
        assert!(texts(&mut follower).is_empty(), "the line has no end yet");
        file.write_all(b"\n").unwrap();
        assert_eq!(texts(&mut follower), ["b"]);
        assert!(texts(&mut follower).is_empty());
    }

    #[test]
    fn a_ring_is_followed_from_segment_to_segment() {
        let place = tempfile::tempdir().unwrap();
        let mut log = EventLog::ring(place.path(), 60_000_000).unwrap();
        let mut follower = LogFollower::new(place.path());
        let mut seen = vec![];
        for second in 0..30_u64 {
            log.append(second * 1_000_000, note(&second.to_string())).unwrap();
            seen.extend(texts(&mut follower));
        }
        // Notes are what a segment's head repeats nothing of.
        seen.extend(texts(&mut follower));
        assert!(ring::segments(place.path()).unwrap().len() > 2);
        assert_eq!(seen, (0..30).map(|second| second.to_string()).collect::<Vec<_>>());
    }
}
