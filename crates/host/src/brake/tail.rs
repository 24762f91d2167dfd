//! Follows a file that another program appends to, from its present end on: what was added since the last look.
//!
//! As tail(1) with `--follow=name` does it: when the name stands for another file (rotation by renaming), the rest of the
//! old one is read, then the new one from its beginning; when the file became shorter (rotation by copying), it is read
//! from its beginning. Of what was added only the last part is read where it is more than a look may take.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Most bytes that one look reads: 50,000 lines of 100 bytes a second.
pub const LOOK_BYTES_MAX: u64 = 1 << 20;

/// A line of more is none.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A file that is followed.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    file: File,
    /// Device and inode.
    identity: (u64, u64),
    offset: u64,
    /// The begin of a line whose end was not written yet.
    begun: Vec<u8>,
    /// Whether the next line is torn: the bytes before it were not read.
    torn: bool,
}

impl Tail {
    /// Begins at the present end. An error when it is no plain file or may not be read.
    pub fn of(path: &Path) -> io::Result<Self> {
        let kind = std::fs::metadata(path)?.file_type();
        if !kind.is_file() {
            let what = if kind.is_fifo() || kind.is_socket() || kind.is_char_device() {
                "a stream"
            } else {
                "no file"
            };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}")));
        }
        let file = File::open(path)?;
        let found = file.metadata()?;
        let mut last = [0];
        // A line that is being written at this moment is not ours to read.
        let torn = found.len() > 0 && file.read_at(&mut last, found.len() - 1).is_ok_and(|_| last != *b"\n");
        Ok(Self {
            path: path.to_owned(),
            identity: (found.dev(), found.ino()),
            offset: found.len(),
            file,
            begun: vec![],
            torn,
        })
    }

    /// Gives each line that was added since, without its end.
    pub fn look(&mut self, mut see: impl FnMut(&[u8])) {
        self.read_on(&mut see);
        let Some(other) = self.replaced() else { return };
        let Ok(found) = other.metadata() else { return };
        (self.identity, self.file, self.offset) = ((found.dev(), found.ino()), other, 0);
        self.begun.clear();
        self.torn = false;
        self.read_on(&mut see);
    }

    /// The file that has the name now, if it is another one.
    fn replaced(&self) -> Option<File> {
        let found = std::fs::metadata(&self.path).ok().filter(std::fs::Metadata::is_file)?;
        if (found.dev(), found.ino()) == self.identity {
            return None;
        }
        File::open(&self.path).ok()
    }

    fn read_on(&mut self, see: &mut impl FnMut(&[u8])) {
        let Ok(length) = self.file.metadata().map(|found| found.len()) else { return };
        if length < self.offset {
            self.offset = 0;
            self.begun.clear();
            self.torn = false;
        }
        if length - self.offset > LOOK_BYTES_MAX {
            self.offset = length - LOOK_BYTES_MAX;
            self.begun.clear();
            self.torn = true;
        }
        let mut buffer = vec![0; usize::try_from(length - self.offset).unwrap_or(0)];
        let Ok(count) = self.file.read_at(&mut buffer, self.offset) else { return };
        self.offset += count as u64;
        self.lines(&buffer[..count], see);
    }

    fn lines(&mut self, bytes: &[u8], see: &mut impl FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(end) = piece.strip_suffix(b"\n") else {
                self.begun.extend(piece);
                if self.begun.len() > LINE_BYTES_MAX {
                    self.begun.clear();
                    self.torn = true;
                }
                return;
            };
            if std::mem::take(&mut self.torn) {
                self.begun.clear();
            } else if self.begun.is_empty() {
                see(end);
            } else {
                self.begun.extend(end);
                see(&std::mem::take(&mut self.begun));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    struct Log {
        folder: tempfile::TempDir,
        file: File,
    }

    impl Log {
        fn with(text: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let file = Self::file(&folder.path().join("log"));
            let mut log = Self { folder, file };
            log.add(text);
            log
        }

        fn file(path: &Path) -> File {
            File::options().create(true).append(true).open(path).unwrap()
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join("log")
        }

        fn add(&mut self, text: &str) {
            self.file.write_all(text.as_bytes()).unwrap();
        }
    }

    fn look(tail: &mut Tail) -> Vec<String> {
        let mut lines = vec![];
        tail.look(|line| lines.push(String::from_utf8_lossy(line).into_owned()));
        lines
    }

    #[test]
    fn whole_lines_come_once_and_nothing_from_before() {
        let mut log = Log::with("old\nbeing writ");
        let mut tail = Tail::of(&log.path()).unwrap();
        assert_eq!(look(&mut tail), Vec::<String>::new());
        log.add("ten\na\nb");
        assert_eq!(look(&mut tail), ["a"]);
        log.add("c");
        assert_eq!(look(&mut tail), Vec::<String>::new());
        log.add("d\n\ne\n");
        assert_eq!(look(&mut tail), ["bcd", "", "e"]);
    }

    #[test]
    fn a_log_that_is_rotated_loses_no_line() {
        let mut log = Log::with("");
        let mut tail = Tail::of(&log.path()).unwrap();
        log.add("a\n");
        std::fs::rename(log.path(), log.folder.path().join("log.1")).unwrap();
        // Apache goes on writing to the old file until it is reloaded.
        log.add("b\n");
        assert_eq!(look(&mut tail), ["a", "b"]);
        log.add("c\n");
        log.file = Log::file(&log.path());
        log.add("d\nd\n");
        assert_eq!(look(&mut tail), ["c", "d", "d"]);
        // Copied and cut.
        log.file.set_len(0).unwrap();
        log.add("e\n");
        assert_eq!(look(&mut tail), ["e"]);
    }

    #[test]
    fn of_a_flood_the_last_part_is_read() {
        let mut log = Log::with("");
        let mut tail = Tail::of(&log.path()).unwrap();
        let lines = (0..100_000).map(|number| format!("line {number}\n")).collect::<String>();
        log.add(&lines);
        let seen = look(&mut tail);
        assert_eq!(seen.last().unwrap(), "line 99999");
        assert!(seen.iter().map(|line| line.len() as u64 + 1).sum::<u64>() < LOOK_BYTES_MAX);
        assert!(lines.ends_with(&format!("\n{}\n", seen.join("\n"))), "a torn line: {}", seen[0]);
    }

    #[test]
    fn only_plain_files_are_followed() {
        for (path, why) in [("/dev/null", "it is a stream"), ("/tmp", "it is no file")] {
            assert_eq!(Tail::of(Path::new(path)).unwrap_err().to_string(), why);
        }
        assert!(Tail::of(Path::new("/no/such/log")).is_err());
    }
}
