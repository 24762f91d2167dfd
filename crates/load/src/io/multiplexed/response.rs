//! A response of HTTP/2 or HTTP/3 as the engine reads it: the head of HTTP/1.1, made of a header block. RFC 9113, sections
//! 8.1 to 8.3.2; RFC 9114, sections 4.1 to 4.3.2.
//!
//! A body whose length was announced is framed by that, another one by chunks: its end is the stream's.

use super::fields::FieldDecoder;
use super::grpc::read_status;

/// The fields of a response, counted as HPACK and QPACK do; announced in SETTINGS.
pub(crate) const LIST_BYTES_MAX: usize = 60 * 1024;
/// Blocks up to this length are remembered.
const REMEMBERED_BYTES_MAX: usize = 2048;

/// How the engine finds the end of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    /// So many bytes are to come.
    Fixed(u64),
    /// Each piece is a chunk.
    Chunked,
}

/// The meaning of a header block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseBlock {
    /// An interim response; the real one follows.
    Interim,
    /// The head of the response.
    Head(BodyFraming),
    /// It breaks the rules for responses: an error of its stream alone.
    Malformed,
}

/// Reads the header blocks of the responses of one connection.
#[derive(Debug, Default)]
pub(crate) struct ResponseDecoder<D> {
    decoder: D,
    head: HeadText,
    /// The last block that did not change the table: servers send the same bytes again until their clock's second
    /// changes.
    known: Option<Known>,
    known_block: Vec<u8>,
}

/// What the last block was, besides its bytes; its text is still that of `head`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    version: u64,
    is_head_request: bool,
    ends: bool,
    meaning: ResponseBlock,
}

impl<D: FieldDecoder> ResponseDecoder<D> {
    /// Reads a block, and appends the head that it means to `into`. `ends` says that nothing follows it.
    pub(crate) fn head(
        &mut self,
        block: &[u8],
        is_head_request: bool,
        ends: bool,
        into: &mut Vec<u8>,
    ) -> Result<ResponseBlock, D::Error> {
        let version = self.decoder.version();
        if let Some(known) = self.known
            && (known.version, known.is_head_request, known.ends) == (version, is_head_request, ends)
            && self.known_block == block
        {
            self.head.append_to(known.meaning, into);
            return Ok(known.meaning);
        }
        self.known = None;
        self.head.clear();
        self.decoder.decode(block, LIST_BYTES_MAX, |name, value| self.head.field(name, value))?;
        let meaning = self.head.end(is_head_request, ends);
        if self.decoder.version() == version && block.len() <= REMEMBERED_BYTES_MAX {
            self.known = Some(Known { version, is_head_request, ends, meaning });
            self.known_block.clear();
            self.known_block.extend_from_slice(block);
        }
        self.head.append_to(meaning, into);
        Ok(meaning)
    }

    /// Reads a block of which only its effect on the table is wanted: trailers, or what came for a stream that is gone.
    /// Whether it may be trailers (without pseudo headers), and the status of gRPC in them.
    pub(crate) fn skip(&mut self, block: &[u8]) -> Result<(bool, Option<u16>), D::Error> {
        let (mut regular, mut grpc_status) = (true, None);
        self.decoder.decode(block, LIST_BYTES_MAX, |name, value| {
            regular &= !name.starts_with(b":");
            if name == b"grpc-status" {
                grpc_status = Some(read_status(value));
            }
        })?;
        Ok((regular, grpc_status))
    }
}

/// The head being written.
#[derive(Debug, Default)]
struct HeadText {
    text: Vec<u8>,
    status: Option<u16>,
    length: Option<u64>,
    malformed: bool,
}

impl HeadText {
    fn clear(&mut self) {
        self.text.clear();
        (self.status, self.length, self.malformed) = (None, None, false);
    }

    fn append_to(&self, meaning: ResponseBlock, into: &mut Vec<u8>) {
        if meaning != ResponseBlock::Malformed {
            into.extend_from_slice(&self.text);
        }
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        if name == b":status" {
            let digits = value.iter().all(u8::is_ascii_digit) && value.len() == 3;
            let status = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            self.malformed |= !digits || self.status.is_some() || !self.text.is_empty();
            self.status = status.filter(|&status| status >= 100 && status != 101);
            self.text.extend_from_slice(b"HTTP/1.1 ");
            self.text.extend_from_slice(value);
            self.text.extend_from_slice(b" \r\n");
            return;
        }
        let names_connection = matches!(
            name,
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade"
        );
        // Pseudo headers come first, and there is no other than the status.
        self.malformed |= self.status.is_none() || names_connection || !is_name(name) || !is_value(value);
        if name == b"content-length" {
            let length = std::str::from_utf8(value).ok().filter(|_| value.iter().all(u8::is_ascii_digit));
            let length = length.and_then(|text| text.parse().ok());
            self.malformed |= length.is_none() || self.length.is_some_and(|before| Some(before) != length);
            self.length = length;
        }
        if !self.malformed {
            self.text.extend_from_slice(name);
            self.text.extend_from_slice(b": ");
            self.text.extend_from_slice(value);
            self.text.extend_from_slice(b"\r\n");
        }
    }

    fn end(&mut self, is_head_request: bool, ends: bool) -> ResponseBlock {
        let Some(status) = self.status.filter(|_| !self.malformed) else {
            return ResponseBlock::Malformed;
        };
        if status < 200 {
            self.text.extend_from_slice(b"\r\n");
            return if ends { ResponseBlock::Malformed } else { ResponseBlock::Interim };
        }
        let empty = is_head_request || matches!(status, 204 | 304);
        let framing = match (empty, self.length) {
            (true, _) => BodyFraming::Fixed(0),
            (false, Some(length)) if ends && length > 0 => return ResponseBlock::Malformed,
            (false, Some(length)) => BodyFraming::Fixed(length),
            (false, None) if ends => {
                self.text.extend_from_slice(b"content-length: 0\r\n");
                BodyFraming::Fixed(0)
            }
            (false, None) => {
                self.text.extend_from_slice(b"transfer-encoding: chunked\r\n");
                BodyFraming::Chunked
            }
        };
        self.text.extend_from_slice(b"\r\n");
        ResponseBlock::Head(framing)
    }
}

/// Section 8.2.1: visible octets, none of them in upper case or a colon.
fn is_name(name: &[u8]) -> bool {
    let allowed = |octet: &u8| octet.is_ascii_graphic() && !octet.is_ascii_uppercase() && *octet != b':';
    !name.is_empty() && name.iter().all(allowed)
}

/// Section 8.2.1: no line end, and no zero.
fn is_value(value: &[u8]) -> bool {
    memchr::memchr3(0, b'\r', b'\n', value).is_none()
}
