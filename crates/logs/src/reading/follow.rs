//! A log that grows: what is added to it, also when it is rotated (another file has its name) or truncated.

use super::{Options, ReadLog};
use crate::format::recognise;
use crate::ordered::{BlockEvents, Ordered, Sampled};
use crate::report::report;
use crate::scan::Counts;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use webdyno_model::Result;
use webdyno_model::error::io_error;
use webdyno_model::logs::LogsReport;

/// A line that does not end is given up at this length.
const LINE_MAX: usize = 1 << 18;

/// A file that is followed.
#[derive(Debug)]
pub struct Follow {
    path: PathBuf,
    file: Option<File>,
    position: u64,
    carry: Vec<u8>,
}

impl Follow {
    /// Follows a file from its beginning. It need not be there yet once it is followed, but now.
    pub fn new(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| io_error("read", path.display(), &error))?;
        Ok(Self { path: path.to_owned(), file: Some(file), position: 0, carry: vec![] })
    }

    /// Whole lines that were added since the last call, at most about `most` bytes of them; empty when there are none now.
    pub fn read(&mut self, most: usize) -> Result<Vec<u8>> {
        let mut lines = std::mem::take(&mut self.carry);
        loop {
            let count = self.append(&mut lines, most)?;
            if count > 0 || !self.renew(&mut lines)? {
                break;
            }
        }
        match memchr::memrchr(b'\n', &lines) {
            Some(end) => self.carry = lines.split_off(end + 1),
            None if lines.len() > LINE_MAX => {}
            None => self.carry = std::mem::take(&mut lines),
        }
        Ok(lines)
    }

    fn append(&mut self, lines: &mut Vec<u8>, most: usize) -> Result<usize> {
        let Some(file) = &mut self.file else { return Ok(0) };
        let wrong = |error: std::io::Error| io_error("read", self.path.display(), &error);
        // A file that became shorter was truncated: what is in it now is new.
        if file.metadata().map_err(wrong)?.len() < self.position {
            self.position = file.seek(SeekFrom::Start(0)).map_err(wrong)?;
            lines.clear();
        }
        let count = file.take(most as u64).read_to_end(lines).map_err(wrong)?;
        self.position += count as u64;
        Ok(count)
    }

    /// Opens the file that has the name now, when it is another one and the old one is read to its end.
    fn renew(&mut self, lines: &mut Vec<u8>) -> Result<bool> {
        let new = match File::open(&self.path) {
            Ok(new) => new,
            // Between two files there may be none.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(io_error("read", self.path.display(), &error)),
        };
        let wrong = |error: std::io::Error| io_error("read", self.path.display(), &error);
        let id = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
        if let Some(old) = &self.file
            && id(old).map_err(wrong)? == id(&new).map_err(wrong)?
        {
            return Ok(false);
        }
        // The last line of the old one may have no end.
        if !lines.is_empty() && !lines.ends_with(b"\n") {
            lines.push(b'\n');
        }
        (self.file, self.position) = (Some(new), 0);
        Ok(true)
    }
}

/// So much is read at once.
const PIECE: usize = 1 << 20;

/// A log that is followed, with what was counted of it until now.
pub struct Followed {
    follow: Follow,
    options: Options,
    counts: Counts,
    ordered: Ordered,
    sampled: Sampled,
    bytes: u64,
}

impl Followed {
    /// Follows a log from its beginning.
    pub fn new(path: &Path, options: Options) -> Result<Self> {
        Ok(Self {
            follow: Follow::new(path)?,
            counts: Counts::new(options.privacy),
            options,
            ordered: Ordered::default(),
            sampled: Sampled::default(),
            bytes: 0,
        })
    }

    /// Counts lines that were added; whether there were any.
    pub fn read(&mut self) -> Result<bool> {
        let lines = self.follow.read(PIECE)?;
        // As soon as there are lines that say what the format is.
        if self.options.formats.is_empty() {
            self.options.formats = recognise(lines.split(|byte| *byte == b'\n').take(1000));
        }
        let mut events = BlockEvents::default();
        self.counts.block(&lines, &self.options.formats, &self.sampled, &mut events);
        self.sampled = self.ordered.add(&events);
        self.bytes += lines.len() as u64;
        Ok(!lines.is_empty())
    }

    /// What was counted until now.
    pub fn report(&mut self) -> LogsReport {
        self.counts.settle();
        let formats = self.options.formats.iter().map(|format| format.name().to_owned()).collect();
        let name = self.follow.path.display().to_string();
        report(
            &self.counts,
            &self.ordered,
            vec![ReadLog { name, formats, size_bytes: self.bytes, cut_off: None }],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    #[test]
    fn a_log_is_followed_through_rotation_and_truncation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let append = |text: &str| {
            fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(&path)
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
        };
        append("1\n2");
        let mut follow = Follow::new(&path).unwrap();
        let mut next = || String::from_utf8(follow.read(1 << 20).unwrap()).unwrap();
        assert_eq!((next().as_str(), next().as_str()), ("1\n", ""));
        append("a\n3");
        assert_eq!(next(), "2a\n");
        // Rotated: what the old file still gets is read before the new one.
        let mut old = fs::OpenOptions::new().append(true).open(&path).unwrap();
        fs::rename(&path, folder.path().join("access.log.1")).unwrap();
        assert_eq!(next(), "");
        old.write_all(b"b\n4").unwrap();
        append("5\n");
        assert_eq!(next(), "3b\n");
        assert_eq!(next(), "4\n5\n");
        // Truncated, as copytruncate does.
        append("6");
        assert_eq!(next(), "");
        fs::write(&path, "").unwrap();
        assert_eq!(next(), "");
        append("7\n");
        assert_eq!(next(), "7\n");
        fs::remove_file(&path).unwrap();
        assert_eq!(next(), "");
    }
}
