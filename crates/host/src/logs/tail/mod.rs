//! Follows a file that another program appends to, from its present end on: what was added since the last look.
//!
//! As tail(1) with `--follow=name` does it: when the name stands for another file (rotation by renaming), the rest of the
//! old one is read, then the new one from its beginning, and the old one is kept for a minute: workers that finish after a
//! reload still write to it. When the file became shorter, or what stood before the place that was reached is not there any
//! more (rotation by copying), it is read from its beginning. A look takes bounded time and memory: where more was added
//! than it may read, it says how much it left out.

use memchr::memchr;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Most bytes that one look reads: 50,000 lines of 100 bytes a second.
pub const READ_BYTES_MAX: u64 = 1 << 20;

/// Of a longer line only so much is kept and given.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Room that is kept for the begin of a line; more is given back.
const BEGUN_BYTES_KEPT: usize = 4 << 10;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// How much of what stands before the place that was reached is compared: more than a line of an access log, whose time
/// tells it from others.
const MARK_BYTES: usize = 256;

/// How long a file is read on after its name went to another one.
const FORMER_KEPT: Duration = Duration::from_secs(60);

/// Pieces that are read of what was added, when only samples of it are.
const PIECES_COUNT: u64 = 8;

/// Which part is read when more was added than a look may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The last part.
    Last,
    /// Pieces from all of it, evenly spread.
    Spread,
}

/// What a look found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TailRead {
    /// Bytes that were added since the last look, as far as it can be told.
    pub grown_bytes: u64,
    /// Of these, those that were not read.
    pub unread_bytes: u64,
    /// Lines that were given.
    pub lines_count: u64,
    /// Their length, with their ends and all that was cut from them.
    pub lines_bytes: u64,
    /// The file was cut: lines that were written to it since the last look may be lost.
    pub is_cut: bool,
    /// Another file has the name now.
    pub is_replaced: bool,
    /// No file has the name: it was deleted or renamed, and what is still written to it is read.
    pub is_gone: bool,
    /// The file that has the name now cannot be read.
    pub is_refused: bool,
}

impl TailRead {
    /// Adds what another look found.
    pub fn add(&mut self, other: Self) {
        self.grown_bytes += other.grown_bytes;
        self.unread_bytes += other.unread_bytes;
        self.lines_count += other.lines_count;
        self.lines_bytes += other.lines_bytes;
        self.is_cut |= other.is_cut;
        self.is_replaced |= other.is_replaced;
        self.is_gone |= other.is_gone;
        self.is_refused |= other.is_refused;
    }
}

/// A file that is followed.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    current: Stream,
    /// The file that had the name before, and when it was replaced.
    former: Option<(Stream, Instant)>,
}

/// What has a name.
enum Named {
    /// The same file as before.
    Same,
    /// Another file.
    Other(Stream),
    Gone,
    Refused,
}

impl Tail {
    /// Begins at the present end. An error when it is no plain file or may not be read.
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut current = Stream::open(path)?;
        current.skip_to_end()?;
        Ok(Self { path: path.to_owned(), current, former: None })
    }

    /// Begins at the beginning, for a file that was not there before.
    pub fn from_begin(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), current: Stream::open(path)?, former: None })
    }

    /// Up to where the file that has the name was read, in bytes from its beginning.
    pub fn position(&self) -> u64 {
        self.current.offset
    }

    /// Gives each line that was added since, without its end; of a flood the last part.
    pub fn read(&mut self, see: impl FnMut(&[u8])) -> TailRead {
        self.read_within(READ_BYTES_MAX, Part::Last, see)
    }

    /// The same with a bound on what is read of each file.
    pub fn read_within(&mut self, bytes_max: u64, part: Part, mut see: impl FnMut(&[u8])) -> TailRead {
        let mut looked = TailRead::default();
        if let Some((former, since)) = &mut self.former {
            looked.add(former.read_on(bytes_max, part, &mut see));
            if since.elapsed() > FORMER_KEPT {
                self.former = None;
            }
        }
        looked.add(self.current.read_on(bytes_max, part, &mut see));
        match self.named() {
            Named::Same => {}
            Named::Gone => looked.is_gone = true,
            Named::Refused => looked.is_refused = true,
            Named::Other(other) => {
                looked.is_replaced = true;
                self.former = Some((std::mem::replace(&mut self.current, other), Instant::now()));
                looked.add(self.current.read_on(bytes_max, part, &mut see));
            }
        }
        looked
    }

    fn named(&self) -> Named {
        match std::fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.current.identity => Named::Same,
            Ok(_) => Stream::open(&self.path).map_or(Named::Refused, Named::Other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Named::Gone,
            Err(_) => Named::Refused,
        }
    }
}

/// An open file and the place in it that was reached.
#[derive(Debug)]
struct Stream {
    file: File,
    /// Device and inode.
    identity: (u64, u64),
    offset: u64,
    /// What stands before that place.
    mark: Vec<u8>,
    /// The begin of a line whose end was not written yet, and how long it is in all.
    begun: Vec<u8>,
    begun_bytes: u64,
    /// Whether the next line is torn: the bytes before it were not read.
    torn: bool,
}

impl Stream {
    fn open(path: &Path) -> io::Result<Self> {
        let kind = std::fs::metadata(path)?.file_type();
        if !kind.is_file() {
            let what = if kind.is_fifo() || kind.is_socket() || kind.is_char_device() {
                "a stream"
            } else {
                "no file"
            };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}")));
        }
        // Opening a pipe that came in between would wait for somebody to write to it.
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
        let found = file.metadata()?;
        Ok(Self {
            file,
            identity: (found.dev(), found.ino()),
            offset: 0,
            mark: vec![],
            begun: vec![],
            begun_bytes: 0,
            torn: false,
        })
    }

    /// Goes to the present end.
    fn skip_to_end(&mut self) -> io::Result<()> {
        self.offset = self.file.metadata()?.len();
        self.set_mark();
        // A line that is being written at this moment is not ours to read.
        self.torn = self.mark.last().is_some_and(|last| *last != b'\n');
        Ok(())
    }

    fn set_mark(&mut self) {
        let from = self.offset.saturating_sub(MARK_BYTES as u64);
        self.mark.resize(usize::try_from(self.offset - from).unwrap_or(0), 0);
        if self.file.read_exact_at(&mut self.mark, from).is_err() {
            self.mark.clear();
        }
    }

    /// Whether what stood before the place that was reached still does.
    fn is_marked(&self) -> bool {
        let mut found = [0; MARK_BYTES];
        let found = &mut found[..self.mark.len()];
        let from = self.offset.saturating_sub(self.mark.len() as u64);
        self.file.read_exact_at(found, from).is_ok() && found == self.mark
    }

    fn read_on(&mut self, bytes_max: u64, part: Part, see: &mut impl FnMut(&[u8])) -> TailRead {
        let mut looked = TailRead::default();
        let Ok(length) = self.file.metadata().map(|found| found.len()) else { return looked };
        if length < self.offset || (length > self.offset && !self.is_marked()) {
            self.offset = 0;
            self.jump(false);
            looked.is_cut = true;
        }
        looked.grown_bytes = length - self.offset;
        if looked.grown_bytes == 0 {
            return looked;
        }
        let begin = self.offset;
        for (from, to) in pieces(looked.grown_bytes, bytes_max, part) {
            if begin + from != self.offset {
                self.offset = begin + from;
                self.jump(true);
            }
            looked.unread_bytes += to - from;
            self.read_to(begin + to, &mut looked, see);
        }
        // So far what was to be read; what was not is the rest.
        looked.unread_bytes = looked.grown_bytes - looked.unread_bytes;
        self.set_mark();
        looked
    }

    /// The next line does not go on where the last one ended.
    fn jump(&mut self, torn: bool) {
        self.begun.clear();
        self.begun_bytes = 0;
        self.torn = torn;
    }

    fn read_to(&mut self, end: u64, looked: &mut TailRead, see: &mut impl FnMut(&[u8])) {
        let mut chunk = vec![0; usize::try_from(end - self.offset).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)];
        while self.offset < end {
            let wanted = usize::try_from(end - self.offset).unwrap_or(CHUNK_BYTES).min(chunk.len());
            match self.file.read_at(&mut chunk[..wanted], self.offset) {
                Ok(count) if count > 0 => {
                    self.offset += count as u64;
                    self.lines(&chunk[..count], looked, see);
                }
                // It is being cut at this moment: the next look sees that.
                _ => break,
            }
        }
    }

    fn lines(&mut self, bytes: &[u8], looked: &mut TailRead, see: &mut impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some(end) = memchr(b'\n', rest) {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            if std::mem::take(&mut self.torn) {
                continue;
            }
            looked.lines_count += 1;
            looked.lines_bytes += self.begun_bytes + line.len() as u64 + 1;
            if self.begun.is_empty() {
                see(&line[..line.len().min(LINE_BYTES_MAX)]);
            } else {
                self.keep(line);
                see(&self.begun);
                self.jump(false);
                self.begun.shrink_to(BEGUN_BYTES_KEPT);
            }
        }
        if !self.torn {
            self.keep(rest);
            self.begun_bytes += rest.len() as u64;
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX - self.begun.len();
        self.begun.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

/// What is read of so many bytes that were added: from and to, in order.
fn pieces(grown_bytes: u64, bytes_max: u64, part: Part) -> Vec<(u64, u64)> {
    if grown_bytes <= bytes_max {
        return vec![(0, grown_bytes)];
    }
    match part {
        Part::Last => vec![(grown_bytes - bytes_max, grown_bytes)],
        Part::Spread => {
            let length = (bytes_max / PIECES_COUNT).max(1);
            let apart = |piece: u64| {
                let between = u128::from(grown_bytes - length) * u128::from(piece);
                u64::try_from(between / u128::from(PIECES_COUNT - 1)).unwrap_or(0)
            };
            (0..PIECES_COUNT).map(|piece| (apart(piece), apart(piece) + length)).collect()
        }
    }
}

#[cfg(test)]
mod tests;
