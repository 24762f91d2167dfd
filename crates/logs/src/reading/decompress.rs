//! Compressed logs, known by their first bytes whatever their name: gzip (RFC 1952) and zstd (RFC 8878), members and frames one behind the
//! other as `cat` makes them.

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::io::{BufRead, BufReader, Error, ErrorKind, Read};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// How much of a compressed file is read at once.
const BUFFER: usize = 1 << 17;

/// What can be read from another thread.
pub(super) type Reader = Box<dyn Read + Send>;

/// The plain bytes of a reader, and whether it was compressed.
pub(super) fn plain(mut reader: Reader) -> std::io::Result<(Reader, bool)> {
    let mut first = Vec::with_capacity(4);
    reader.by_ref().take(4).read_to_end(&mut first)?;
    let (is_gzip, is_zstd) = (first.starts_with(&GZIP), first == ZSTD);
    let whole: Reader = Box::new(std::io::Cursor::new(first).chain(reader));
    if !is_gzip && !is_zstd {
        return Ok((whole, false));
    }
    let buffered = BufReader::with_capacity(BUFFER, whole);
    let plain: Reader =
        if is_gzip { Box::new(MultiGzDecoder::new(buffered)) } else { Box::new(Frames::new(buffered)) };
    Ok((plain, true))
}

/// Frames of zstd, one behind the other.
struct Frames {
    source: Option<BufReader<Reader>>,
    frame: Option<StreamingDecoder<BufReader<Reader>, FrameDecoder>>,
}

impl Frames {
    fn new(source: BufReader<Reader>) -> Self {
        Self { source: Some(source), frame: None }
    }
}

impl Read for Frames {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let count = frame.read(out)?;
                if count > 0 || out.is_empty() {
                    return Ok(count);
                }
                self.source = self.frame.take().map(StreamingDecoder::into_inner);
            }
            let Some(mut source) = self.source.take() else { return Ok(0) };
            if source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            let frame = StreamingDecoder::new(source);
            self.frame = Some(frame.map_err(|error| Error::new(ErrorKind::InvalidData, error.to_string()))?);
        }
    }
}
