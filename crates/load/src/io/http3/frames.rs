//! Frames and streams of HTTP/3: RFC 9114, sections 6.2, 7 and 8.1. Numbers: RFC 9000, section 16.

/// Types of frames.
pub(super) mod kind {
    pub(in super::super) const DATA: u64 = 0;
    pub(in super::super) const HEADERS: u64 = 1;
    pub(in super::super) const CANCEL_PUSH: u64 = 3;
    pub(in super::super) const SETTINGS: u64 = 4;
    pub(in super::super) const PUSH_PROMISE: u64 = 5;
    pub(in super::super) const GOAWAY: u64 = 7;
    pub(in super::super) const MAX_PUSH_ID: u64 = 0xd;
    /// Those of HTTP/2 that HTTP/3 has not: section 7.2.8.
    pub(in super::super) const OF_HTTP2: [u64; 4] = [2, 6, 8, 9];
}

/// Types of streams in one direction.
pub(super) mod stream {
    pub(in super::super) const CONTROL: u64 = 0;
    pub(in super::super) const PUSH: u64 = 1;
    pub(in super::super) const ENCODER: u64 = 2;
    pub(in super::super) const DECODER: u64 = 3;
}

/// Names of settings: section 7.2.4.1.
pub(super) mod setting {
    pub(in super::super) const MAX_FIELD_SECTION_SIZE: u64 = 6;
    /// Those of HTTP/2 that HTTP/3 has not.
    pub(in super::super) const OF_HTTP2: [u64; 4] = [2, 3, 4, 5];
}

/// Why a stream or a connection ends: section 8.1; RFC 9204, section 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    NoError = 0x100,
    StreamCreation = 0x103,
    ClosedCriticalStream = 0x104,
    FrameUnexpected = 0x105,
    Frame = 0x106,
    ExcessiveLoad = 0x107,
    Id = 0x108,
    Settings = 0x109,
    MissingSettings = 0x10a,
    RequestRejected = 0x10b,
    RequestCancelled = 0x10c,
    Message = 0x10e,
    QpackDecompression = 0x200,
    QpackEncoderStream = 0x201,
    QpackDecoderStream = 0x202,
}

/// The longest payload that is held as a whole.
pub(super) const PAYLOAD_BYTES_MAX: u64 = 64 * 1024;
/// A type and a length.
const HEAD_BYTES_MAX: usize = 16;

/// Reads a number. Returns it and the rest; `None` when it is not whole.
pub(super) fn read_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let length = 1 << (bytes.first()? >> 6);
    let (number, rest) = bytes.split_at_checked(length)?;
    let value = number.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some((value & (u64::MAX >> (66 - 8 * length as u32)), rest))
}

/// Appends a number, which is below 2^62.
pub(super) fn write_number(value: u64, into: &mut Vec<u8>) {
    let bytes = value.to_be_bytes();
    match value {
        0..0x40 => into.push(value as u8),
        0x40..0x4000 => into.extend_from_slice(&[bytes[6] | 0x40, bytes[7]]),
        0x4000..0x4000_0000 => into.extend_from_slice(&[bytes[4] | 0x80, bytes[5], bytes[6], bytes[7]]),
        _ => {
            into.push(bytes[0] | 0xc0);
            into.extend_from_slice(&bytes[1..]);
        }
    }
}

/// Appends a frame.
pub(super) fn write_frame(kind: u64, payload: &[u8], into: &mut Vec<u8>) {
    write_number(kind, into);
    write_number(payload.len() as u64, into);
    into.extend_from_slice(payload);
}

/// Where a frame comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Request,
    Control,
}

/// A part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Of a body; at most one of a frame is empty.
    Body(&'a [u8]),
    /// A whole frame, by its type.
    Frame(u64, &'a [u8]),
    /// A frame whose type is not known has begun.
    Unknown,
    /// A head that is longer than we take has begun: nothing more of its stream can be read.
    TooLong,
}

/// What is to be done with a frame.
enum Use {
    Body,
    Whole,
    Skip,
}

/// Reads the frames of a stream, however they are cut.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    /// The frame that has begun: its type, and what is left of it.
    open: Option<(u64, u64)>,
    payload: Vec<u8>,
}

impl FrameReader {
    /// Whether no frame has begun.
    pub(super) fn is_between(&self) -> bool {
        self.open.is_none() && self.head_bytes == 0
    }

    /// Makes it ready for another stream.
    pub(super) fn clear(&mut self) {
        (self.head_bytes, self.open) = (0, None);
        self.payload = vec![];
    }

    /// Takes the next piece off `bytes`; `None` when more has to come for one.
    pub(super) fn next<'piece, 'bytes: 'piece>(
        &'piece mut self,
        bytes: &mut &'bytes [u8],
        place: Place,
    ) -> Result<Option<Piece<'piece>>, ErrorCode> {
        loop {
            let Some((kind, left)) = self.open else {
                let Some((kind, length)) = self.read_head(bytes) else { return Ok(None) };
                self.payload.clear();
                match use_of(kind, place)? {
                    Use::Whole if length > PAYLOAD_BYTES_MAX => match place {
                        Place::Request => return Ok(Some(Piece::TooLong)),
                        Place::Control => return Err(ErrorCode::ExcessiveLoad),
                    },
                    Use::Skip => {
                        self.open = Some((kind, length)).filter(|_| length > 0);
                        return Ok(Some(Piece::Unknown));
                    }
                    Use::Body if length == 0 => return Ok(Some(Piece::Body(&[]))),
                    _ => self.open = Some((kind, length)),
                }
                continue;
            };
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
            let (piece, rest) = bytes.split_at(count);
            *bytes = rest;
            let left = left - count as u64;
            self.open = Some((kind, left)).filter(|_| left > 0);
            match use_of(kind, place)? {
                Use::Body => return Ok((count > 0).then_some(Piece::Body(piece))),
                Use::Whole if left == 0 && self.payload.is_empty() => {
                    return Ok(Some(Piece::Frame(kind, piece)));
                }
                Use::Whole => {
                    self.payload.extend_from_slice(piece);
                    return Ok((left == 0).then_some(Piece::Frame(kind, &self.payload)));
                }
                Use::Skip if left > 0 => return Ok(None),
                Use::Skip => {}
            }
        }
    }

    fn read_head(&mut self, bytes: &mut &[u8]) -> Option<(u64, u64)> {
        while let Some((byte, rest)) = bytes.split_first() {
            *bytes = rest;
            self.head[self.head_bytes] = *byte;
            self.head_bytes += 1;
            let read = read_number(&self.head[..self.head_bytes]);
            if let Some((kind, rest)) = read
                && let Some((length, _)) = read_number(rest)
            {
                self.head_bytes = 0;
                return Some((kind, length));
            }
        }
        None
    }

    /// Memory that it holds.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.payload.capacity()
    }
}

/// What is done with a frame: sections 7.1 and 7.2. Pushes are an error, as none was allowed.
fn use_of(kind: u64, place: Place) -> Result<Use, ErrorCode> {
    match (kind, place) {
        (kind::DATA, Place::Request) => Ok(Use::Body),
        (kind::HEADERS, Place::Request) | (kind::SETTINGS | kind::GOAWAY, Place::Control) => Ok(Use::Whole),
        (kind::PUSH_PROMISE, Place::Request) | (kind::CANCEL_PUSH, Place::Control) => Err(ErrorCode::Id),
        (
            kind::DATA
            | kind::HEADERS
            | kind::CANCEL_PUSH
            | kind::SETTINGS
            | kind::PUSH_PROMISE
            | kind::GOAWAY
            | kind::MAX_PUSH_ID,
            _,
        ) => Err(ErrorCode::FrameUnexpected),
        (other, _) if kind::OF_HTTP2.contains(&other) => Err(ErrorCode::FrameUnexpected),
        _ => Ok(Use::Skip),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_rfc() {
        // RFC 9000, appendix A.1.
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            let mut written = vec![];
            write_number(value, &mut written);
            assert_eq!((written.as_slice(), read_number(bytes)), (bytes, Some((value, &[][..]))));
            assert_eq!(read_number(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn frames_are_read_however_they_are_cut() {
        let mut stream = vec![];
        write_frame(kind::HEADERS, b"block", &mut stream);
        write_frame(0x21, &[7; 100], &mut stream);
        write_frame(kind::DATA, b"", &mut stream);
        write_frame(kind::DATA, b"body", &mut stream);
        for size in [1, 2, 3, 7, stream.len()] {
            let (mut reader, mut seen) = (FrameReader::default(), String::new());
            for mut piece in stream.chunks(size) {
                while let Some(piece) = reader.next(&mut piece, Place::Request).unwrap() {
                    match piece {
                        Piece::Body(bytes) => seen.push_str(&String::from_utf8_lossy(bytes)),
                        Piece::Frame(kind, bytes) => {
                            seen.push_str(&format!("{kind}={}|", String::from_utf8_lossy(bytes)));
                        }
                        Piece::Unknown => seen.push('?'),
                        Piece::TooLong => seen.push('!'),
                    }
                }
            }
            assert_eq!((seen.as_str(), reader.is_between()), ("1=block|?body", true), "in pieces of {size}");
        }
    }
}
