//! Frames of HTTP/2: RFC 9113, sections 4, 6 and 7.

/// What a client sends first: section 3.4.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The head of a frame: length, type, flags, stream.
pub(super) const HEAD_BYTES: usize = 9;
/// The longest payload that every peer accepts, and that is accepted here.
pub(super) const PAYLOAD_BYTES_MAX: usize = 16_384;
/// The largest window: section 6.9.1.
pub(super) const WINDOW_MAX: i64 = (1 << 31) - 1;
/// Windows begin with so much, until SETTINGS say otherwise.
pub(super) const WINDOW_DEFAULT: i64 = 65_535;

/// Types of frames.
pub(super) mod kind {
    pub(in super::super) const DATA: u8 = 0;
    pub(in super::super) const HEADERS: u8 = 1;
    pub(in super::super) const PRIORITY: u8 = 2;
    pub(in super::super) const RST_STREAM: u8 = 3;
    pub(in super::super) const SETTINGS: u8 = 4;
    pub(in super::super) const PUSH_PROMISE: u8 = 5;
    pub(in super::super) const PING: u8 = 6;
    pub(in super::super) const GOAWAY: u8 = 7;
    pub(in super::super) const WINDOW_UPDATE: u8 = 8;
    pub(in super::super) const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub(super) mod flag {
    /// Of SETTINGS and PING.
    pub(in super::super) const ACK: u8 = 0x1;
    pub(in super::super) const END_STREAM: u8 = 0x1;
    pub(in super::super) const END_HEADERS: u8 = 0x4;
    pub(in super::super) const PADDED: u8 = 0x8;
    pub(in super::super) const PRIORITY: u8 = 0x20;
}

/// Parameters of SETTINGS.
pub(super) mod setting {
    pub(in super::super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(in super::super) const ENABLE_PUSH: u16 = 2;
    pub(in super::super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(in super::super) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(in super::super) const MAX_FRAME_SIZE: u16 = 5;
    pub(in super::super) const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// Error codes: section 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    NoError = 0,
    Protocol = 1,
    FlowControl = 3,
    StreamClosed = 5,
    FrameSize = 6,
    RefusedStream = 7,
    Cancel = 8,
    Compression = 9,
    EnhanceYourCalm = 11,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHead {
    /// Reads one that stands whole at the start of `bytes`.
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<HEAD_BYTES>()?;
        Some(Self {
            length: usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]),
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]),
        })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends the head of a frame.
#[inline]
pub(super) fn write_head(into: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let length = (length as u32).to_be_bytes();
    let stream = stream.to_be_bytes();
    into.extend_from_slice(&[
        length[1], length[2], length[3], kind, flags, stream[0], stream[1], stream[2], stream[3],
    ]);
}

/// Appends a frame whose payload is one number.
pub(super) fn write_number(into: &mut Vec<u8>, kind: u8, stream: u32, number: u32) {
    write_head(into, 4, kind, 0, stream);
    into.extend_from_slice(&number.to_be_bytes());
}

/// Appends SETTINGS.
pub(super) fn write_settings(into: &mut Vec<u8>, settings: &[(u16, u32)]) {
    write_head(into, settings.len() * 6, kind::SETTINGS, 0, 0);
    for (name, value) in settings {
        into.extend_from_slice(&name.to_be_bytes());
        into.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends GOAWAY.
pub(super) fn write_goaway(into: &mut Vec<u8>, code: ErrorCode) {
    write_head(into, 8, kind::GOAWAY, 0, 0);
    into.extend_from_slice(&0_u32.to_be_bytes());
    into.extend_from_slice(&(code as u32).to_be_bytes());
}

/// Appends a header block: HEADERS, and CONTINUATION for what is longer than a frame may be.
pub(super) fn write_headers(into: &mut Vec<u8>, stream: u32, block: &[u8], flags: u8, frame_max: usize) {
    let (first, mut rest) = block.split_at(block.len().min(frame_max));
    let end = |rest: &[u8]| if rest.is_empty() { flag::END_HEADERS } else { 0 };
    write_head(into, first.len(), kind::HEADERS, flags | end(rest), stream);
    into.extend_from_slice(first);
    while !rest.is_empty() {
        let part;
        (part, rest) = rest.split_at(rest.len().min(frame_max));
        write_head(into, part.len(), kind::CONTINUATION, end(rest), stream);
        into.extend_from_slice(part);
    }
}

/// The payload of a frame without its padding: section 6.1. `None` when the padding is longer than the frame.
pub(super) fn without_padding(head: FrameHead, payload: &[u8]) -> Option<&[u8]> {
    if !head.has(flag::PADDED) {
        return Some(payload);
    }
    let (&padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(padding))?)
}

/// The number at the start of a payload.
pub(super) fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
