//! Blocks of whole lines, from one log after the other.

use super::decompress::{Reader, plain};
use super::{Input, ReadLog};
use crate::format::{Format, recognise};
use crate::timestamp::{Stamp, TimeReader};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Cursor, ErrorKind, Read};
use std::sync::Arc;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// A block fits the cache of a core. A longer line is not looked at.
const BLOCK: usize = 1 << 18;
/// What of a line that is too long is shown.
const SHOWN: usize = 200;
/// So much of a log says what its format is.
const HEAD: usize = 1 << 16;

/// Lines that were read, in the buffer of who wanted them.
pub(super) struct Block {
    pub number: u64,
    pub length: usize,
    pub formats: Arc<[Format]>,
    /// Beginnings of lines that are too long, and not in it.
    pub too_long: Vec<Vec<u8>>,
}

/// A log that is to be read.
struct Log {
    input: Input,
    /// Of stdin, which is read once.
    reader: Option<Reader>,
    formats: Arc<[Format]>,
    first: Option<Stamp>,
}

/// The log that is being read.
struct Current {
    reader: Reader,
    is_compressed: bool,
    formats: Arc<[Format]>,
}

/// The blocks of several logs.
pub(super) struct Blocks {
    open: VecDeque<Log>,
    current: Option<Current>,
    /// The line whose end is not read yet.
    carry: Vec<u8>,
    /// Within a line that is too long.
    is_skipping: bool,
    number: u64,
    done: Vec<ReadLog>,
}

impl Blocks {
    /// Looks into each log: its format and its first time.
    pub fn open(inputs: &[Input], formats: &[Format]) -> Result<Self> {
        let mut logs = inputs.iter().map(|input| opened(input, formats)).collect::<Result<Vec<Log>>>()?;
        // A log without any time is empty, or not understood: where it is does not matter.
        logs.sort_by_key(|log| log.first.map_or(i64::MAX, |stamp| stamp.utc_s));
        Ok(Self {
            open: logs.into(),
            current: None,
            carry: vec![],
            is_skipping: false,
            number: 0,
            done: vec![],
        })
    }

    /// What was read of each log.
    pub fn logs(self) -> Vec<ReadLog> {
        self.done
    }

    /// The next block, in `buffer`; `None` at the end of all.
    pub fn next(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Block>> {
        buffer.resize(BLOCK, 0);
        let mut too_long = vec![];
        loop {
            if self.current.is_none() && !self.begin()? {
                return Ok(None);
            }
            let (filled, is_end) = self.fill(buffer)?;
            let cut = memchr::memrchr(b'\n', &buffer[..filled]).map(|at| at + 1);
            let length = match cut {
                _ if is_end => filled,
                Some(cut) => cut,
                None => 0,
            };
            let mut begin = 0;
            if self.is_skipping {
                begin = memchr::memchr(b'\n', &buffer[..filled]).map_or(filled, |at| at + 1);
                self.is_skipping = begin == filled && cut.is_none() && !is_end;
            } else if length == 0 && filled == BLOCK {
                too_long.push(buffer[..SHOWN].to_vec());
                self.is_skipping = true;
                begin = filled;
            }
            self.carry.clear();
            self.carry.extend_from_slice(&buffer[length.max(begin)..filled]);
            let formats =
                self.current.as_ref().map_or_else(|| Arc::from([]), |current| Arc::clone(&current.formats));
            if is_end {
                (self.current, self.is_skipping) = (None, false);
                self.carry.clear();
            }
            let length = length.saturating_sub(begin);
            if length > 0 || !too_long.is_empty() {
                buffer.copy_within(begin..begin + length, 0);
                self.number += 1;
                return Ok(Some(Block { number: self.number - 1, length, formats, too_long }));
            }
        }
    }

    /// Opens the next log; false when there is none.
    fn begin(&mut self) -> Result<bool> {
        let Some(log) = self.open.pop_front() else { return Ok(false) };
        let name = log.input.name();
        let reader = match log.reader {
            Some(reader) => reader,
            None => open(&log.input)?,
        };
        let (reader, is_compressed) = plain(reader).map_err(|error| io_error("read", &name, &error))?;
        let formats = log.formats.iter().map(|format| format.name().to_owned()).collect();
        self.done.push(ReadLog { name, formats, size_bytes: 0, cut_off: None });
        self.current = Some(Current { reader, is_compressed, formats: log.formats });
        Ok(true)
    }

    /// Fills the buffer from the carried line on; gives how far, and whether the log ended.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(usize, bool)> {
        let mut filled = self.carry.len();
        buffer[..filled].copy_from_slice(&self.carry);
        let (Some(current), Some(log)) = (&mut self.current, self.done.last_mut()) else {
            return Ok((filled, true));
        };
        while filled < buffer.len() {
            match current.reader.read(&mut buffer[filled..]) {
                Ok(0) => return Ok((filled, true)),
                Ok(count) => {
                    filled += count;
                    log.size_bytes += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // What was read of a compressed log that is cut off or damaged counts.
                Err(error) if current.is_compressed => {
                    log.cut_off = Some(error.to_string());
                    return Ok((filled, true));
                }
                Err(error) => return Err(io_error("read", &log.name, &error)),
            }
        }
        Ok((filled, false))
    }
}

fn open(input: &Input) -> Result<Reader> {
    Ok(match input {
        Input::Stdin => Box::new(std::io::stdin()),
        Input::File(path) => {
            let file = File::open(path).map_err(|error| io_error("read", path.display(), &error))?;
            if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
                return Err(UserError::cannot_run(format!(
                    "cannot read {}: it is a directory",
                    path.display()
                ))
                .hint(format!("give its files: {}/access.log*", path.display())));
            }
            Box::new(file)
        }
    })
}

fn opened(input: &Input, formats: &[Format]) -> Result<Log> {
    let name = input.name();
    let wrong = |error: std::io::Error| io_error("read", &name, &error);
    let (mut reader, _) = plain(open(input)?).map_err(wrong)?;
    let mut head = vec![];
    let read = reader.by_ref().take(HEAD as u64).read_to_end(&mut head);
    if let Err(error) = read
        && head.is_empty()
        && !matches!(
            error.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::InvalidInput
        )
    {
        return Err(wrong(error));
    }
    // The last line may not be whole.
    let whole = if head.len() < HEAD { head.len() } else { memchr::memrchr(b'\n', &head).unwrap_or(0) };
    let lines =
        || head[..whole].split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let formats: Arc<[Format]> = if formats.is_empty() { recognise(lines()).into() } else { formats.into() };
    let mut times = TimeReader::default();
    let first =
        lines().find_map(|line| formats.iter().find_map(|format| format.entry(line, &mut times)?.time));
    let reader: Option<Reader> = match input {
        Input::File(_) if is_regular(input) => None,
        _ => Some(Box::new(Cursor::new(head).chain(reader))),
    };
    Ok(Log { input: input.clone(), reader, formats, first })
}

/// Whether a file can be read twice: a pipe cannot.
fn is_regular(input: &Input) -> bool {
    matches!(input, Input::File(path) if std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()))
}
