//! The head of a response: its status, and how its body is framed. RFC 9112, sections 4, 6.3 and 9.3.

use httparse::{Header, ParserConfig, Response, Status};
use std::mem::MaybeUninit;

/// Most header lines of a response; more is a protocol error.
const HEADERS_MAX: usize = 128;
/// Heads up to this length are remembered; longer ones are parsed each time.
const REMEMBERED_BYTES_MAX: usize = 2048;

/// The response was not HTTP, or not within our bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotHttp;

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is no body, whatever the headers announce (HEAD, 204, 304).
    Empty,
    /// This many bytes.
    Fixed(u64),
    /// Chunked coding.
    Chunked,
    /// All that comes until the server closes.
    UntilClose,
}

/// How the content of a body is coded: RFC 9110, 8.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentCoding {
    Identity,
    Gzip,
    Deflate,
    Brotli,
    /// One that we cannot undo, or several.
    Other,
}

impl ContentCoding {
    /// The coding of a body that has this one and those of one more header line.
    fn combined_with(self, value: &[u8]) -> Self {
        let names = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        names.fold(self, |before, name| match (before, Self::from_name(name)) {
            (before, Self::Identity) => before,
            (Self::Identity, coding) => coding,
            _ => Self::Other,
        })
    }

    fn from_name(name: &[u8]) -> Self {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match () {
            () if name.is_empty() || is(b"identity") => Self::Identity,
            () if is(b"gzip") || is(b"x-gzip") => Self::Gzip,
            () if is(b"deflate") => Self::Deflate,
            () if is(b"br") => Self::Brotli,
            () => Self::Other,
        }
    }
}

/// What the engine needs to know of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    /// 100 to 999.
    pub(crate) status: u16,
    /// How its body ends.
    pub(crate) framing: Framing,
    /// Whether the connection may carry another request.
    pub(crate) keep_alive: bool,
    pub(crate) coding: ContentCoding,
    /// Length of the head, blank line included.
    pub(crate) length_bytes: usize,
}

impl ResponseHead {
    /// An interim response (1xx): the real one follows.
    pub(crate) fn is_interim(&self) -> bool {
        self.status < 200
    }
}

fn config() -> ParserConfig {
    let mut config = ParserConfig::default();
    // RFC 9112, 5.2: a user agent treats a folded line in a response as a blank.
    config.allow_obsolete_multiline_headers_in_responses(true);
    config
}

/// Reads a head at the start of `bytes`; `None` when it is not complete yet. `is_head_request` says that the request
/// was HEAD, whose responses have no body.
pub(crate) fn parse(bytes: &[u8], is_head_request: bool) -> Result<Option<ResponseHead>, NotHttp> {
    let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; HEADERS_MAX];
    let mut response = Response::new(&mut []);
    let parsed = config().parse_response_with_uninit_headers(&mut response, bytes, &mut headers);
    match parsed {
        Ok(Status::Complete(length_bytes)) => {
            interpret_headers(&response, length_bytes, is_head_request).map(Some)
        }
        Ok(Status::Partial) => Ok(None),
        Err(_) => Err(NotHttp),
    }
}

/// The value of a header of the head at the start of `bytes`, as text; `None` when there is none.
pub(crate) fn header_text(bytes: &[u8], name: &str) -> Option<String> {
    header_value(bytes, name).map(|value| String::from_utf8_lossy(value).into_owned())
}

/// The first value of a header of the head at the start of `bytes`.
pub(crate) fn header_value<'a>(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = Response::new(&mut headers);
    config().parse_response(&mut response, bytes).ok()?;
    let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
    Some(header.value)
}

/// Calls `visit` with each value of a header of the head at the start of `bytes`.
pub(crate) fn for_each_value(bytes: &[u8], name: &str, mut visit: impl FnMut(&[u8])) {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = Response::new(&mut headers);
    if config().parse_response(&mut response, bytes).is_ok() {
        let from_name = response.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        from_name.for_each(|header| visit(header.value));
    }
}

/// Whether a line of a head begins with this name: a quick look, before it is read again.
pub(crate) fn has_line(bytes: &[u8], name: &str) -> bool {
    let begins =
        |line: &[u8]| line.get(..name.len()).is_some_and(|b| b.eq_ignore_ascii_case(name.as_bytes()));
    bytes.split(|&byte| byte == b'\n').any(begins)
}

/// Decides framing and reuse from the header lines.
fn interpret_headers(
    response: &Response<'_, '_>,
    length_bytes: usize,
    is_head_request: bool,
) -> Result<ResponseHead, NotHttp> {
    let status = response.code.filter(|&code| code >= 100).ok_or(NotHttp)?;
    let is_http_1_1 = response.version == Some(1);
    let mut length = None;
    let mut coding = None;
    let mut content = ContentCoding::Identity;
    let (mut has_close, mut has_keep_alive) = (false, false);
    for header in response.headers.iter() {
        match header.name.len() {
            14 if header.name.eq_ignore_ascii_case("content-length") => {
                let value = content_length(header.value).ok_or(NotHttp)?;
                if length.is_some_and(|before| before != value) {
                    return Err(NotHttp);
                }
                length = Some(value);
            }
            16 if header.name.eq_ignore_ascii_case("content-encoding") => {
                content = content.combined_with(header.value)
            }
            17 if header.name.eq_ignore_ascii_case("transfer-encoding") => coding = Some(header.value),
            10 if header.name.eq_ignore_ascii_case("connection") => {
                has_close |= has_token(header.value, b"close");
                has_keep_alive |= has_token(header.value, b"keep-alive");
            }
            _ => {}
        }
    }
    // We never request another protocol, so 101 cannot be a response to our request.
    if status == 101 {
        return Err(NotHttp);
    }
    let framing = match (coding, length) {
        _ if is_head_request || status < 200 || status == 204 || status == 304 => Framing::Empty,
        (Some(coding), _) if ends_in_chunked(coding) => Framing::Chunked,
        (Some(_), _) | (None, None) => Framing::UntilClose,
        (None, Some(length)) => Framing::Fixed(length),
    };
    // Both framings at once, or chunked in HTTP/1.0, is faulty: read it, and do not trust the connection again.
    let faulty = coding.is_some() && (length.is_some() || !is_http_1_1);
    let keep_alive =
        !has_close && (is_http_1_1 || has_keep_alive) && framing != Framing::UntilClose && !faulty;
    // A transfer coding below the chunks is not undone either.
    if coding.is_some_and(|coding| !coding.trim_ascii().eq_ignore_ascii_case(b"chunked")) {
        content = ContentCoding::Other;
    }
    Ok(ResponseHead { status, framing, keep_alive, coding: content, length_bytes })
}

/// A content length: digits, or the same number repeated in a list, which RFC 9112, 6.3 lets us accept.
fn content_length(value: &[u8]) -> Option<u64> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    let add = |sum: u64, &byte: &u8| sum.checked_mul(10)?.checked_add(digit(byte)?);
    let number = |part: &[u8]| (!part.is_empty()).then(|| part.iter().try_fold(0, add)).flatten();
    let mut lengths = value.split(|&byte| byte == b',').map(|part| number(part.trim_ascii()));
    let first = lengths.next()??;
    lengths.all(|other| other == Some(first)).then_some(first)
}

fn has_token(value: &[u8], token: &[u8]) -> bool {
    value.split(|&byte| byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(token))
}

fn ends_in_chunked(coding: &[u8]) -> bool {
    let last = coding.rsplit(|&byte| byte == b',').next().unwrap_or(coding);
    last.trim_ascii().eq_ignore_ascii_case(b"chunked")
}

/// The last head of a request's responses. Servers send the same bytes again until their clock's second changes, and
/// equal bytes have an equal meaning: comparing costs a tenth of parsing.
#[derive(Debug, Default)]
pub(crate) struct ResponseHeadCache {
    bytes: Vec<u8>,
    head: Option<ResponseHead>,
}

impl ResponseHeadCache {
    /// Whether the last response announced a body of at least this many bytes.
    #[inline]
    pub(crate) fn expects_body(&self, bytes_min: u64) -> bool {
        let framing = self.head.map(|head| head.framing);
        matches!(framing, Some(Framing::Fixed(length)) if length >= bytes_min)
    }

    /// Reads the head at the start of `bytes`, as [`parse`] does.
    pub(crate) fn parse(
        &mut self,
        bytes: &[u8],
        is_head_request: bool,
    ) -> Result<Option<ResponseHead>, NotHttp> {
        if let Some(head) = self.head
            && bytes.get(..head.length_bytes) == Some(&self.bytes)
        {
            return Ok(Some(head));
        }
        let parsed = parse(bytes, is_head_request)?;
        if let Some(head) = parsed.filter(|head| head.length_bytes <= REMEMBERED_BYTES_MAX) {
            self.bytes.clear();
            self.bytes.extend_from_slice(&bytes[..head.length_bytes]);
            self.head = Some(head);
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, is_head_request: bool, expected: Result<Option<(u16, Framing, bool)>, NotHttp>) {
        let bytes = text.replace('\n', "\r\n");
        for _ in 0..2 {
            let mut memory = ResponseHeadCache::default();
            let first = memory.parse(bytes.as_bytes(), is_head_request);
            let again = memory.parse(bytes.as_bytes(), is_head_request);
            assert_eq!(first, again, "{text}");
            let got = first.map(|head| head.map(|head| (head.status, head.framing, head.keep_alive)));
            assert_eq!(got, expected, "{text}");
        }
    }

    #[test]
    fn framing_follows_the_rfc() {
        use Framing::*;
        for (text, expected) in [
            ("HTTP/1.1 200 OK\nContent-Length: 5\n\n", (200, Fixed(5), true)),
            ("HTTP/1.1 200 OK\ncontent-length: 5, 5\n\n", (200, Fixed(5), true)),
            ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", (200, Chunked, true)),
            ("HTTP/1.1 200 OK\nTransfer-Encoding: gzip, chunked\n\n", (200, Chunked, true)),
            ("HTTP/1.1 200 OK\nTransfer-Encoding: gzip\n\n", (200, UntilClose, false)),
            ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nContent-Length: 3\n\n", (200, Chunked, false)),
            ("HTTP/1.1 200 OK\n\n", (200, UntilClose, false)),
            ("HTTP/1.1 204 No Content\n\n", (204, Empty, true)),
            ("HTTP/1.1 304 Not Modified\nContent-Length: 9\n\n", (304, Empty, true)),
            ("HTTP/1.0 200 OK\nContent-Length: 5\n\n", (200, Fixed(5), false)),
            ("HTTP/1.0 200 OK\nContent-Length: 5\nConnection: Keep-Alive\n\n", (200, Fixed(5), true)),
            ("HTTP/1.1 200 OK\nContent-Length: 5\nConnection: foo, Close\n\n", (200, Fixed(5), false)),
            ("HTTP/1.1 100 Continue\n\n", (100, Empty, true)),
        ] {
            check(text, false, Ok(Some(expected)));
        }
        check("HTTP/1.1 200 OK\nContent-Length: 5\n\n", true, Ok(Some((200, Empty, true))));
        check("HTTP/1.1 200 OK\nContent-Le", false, Ok(None));
    }

    #[test]
    fn content_codings_are_known_by_their_names() {
        use ContentCoding::*;
        for (lines, expected) in [
            ("", Identity),
            ("Content-Encoding: identity\n", Identity),
            ("Content-Encoding: gzip\n", Gzip),
            ("content-encoding: X-GZIP\n", Gzip),
            ("Content-Encoding: identity, deflate\n", Deflate),
            ("Content-Encoding:br\n", Brotli),
            ("Content-Encoding: zstd\n", Other),
            ("Content-Encoding: gzip, br\n", Other),
            ("Content-Encoding: gzip\nContent-Encoding: gzip\n", Other),
            ("Transfer-Encoding: chunked\nContent-Encoding: gzip\n", Gzip),
            ("Transfer-Encoding: gzip, chunked\n", Other),
        ] {
            let text = format!("HTTP/1.1 200 OK\n{lines}\n").replace('\n', "\r\n");
            assert_eq!(parse(text.as_bytes(), false).unwrap().unwrap().coding, expected, "{lines}");
        }
    }

    #[test]
    fn what_is_not_http_is_an_error() {
        let many = format!("HTTP/1.1 200 OK\n{}\n", "A: b\n".repeat(200));
        for text in [
            "SSH-2.0-OpenSSH_9.2\n",
            "HTTP/2 200\n\n",
            "HTTP/1.1 099 x\n\n",
            "HTTP/1.1 200 OK\nContent-Length: five\n\n",
            "HTTP/1.1 200 OK\nContent-Length: -5\n\n",
            "HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 6\n\n",
            "HTTP/1.1 200 OK\nContent-Length: 99999999999999999999\n\n",
            "HTTP/1.1 101 Switching\n\n",
            many.as_str(),
        ] {
            check(text, false, Err(NotHttp));
        }
    }

    #[test]
    fn a_cached_head_does_not_match_another() {
        let mut memory = ResponseHeadCache::default();
        let status = |memory: &mut ResponseHeadCache, text: &str| {
            let text = text.replace('\n', "\r\n");
            memory.parse(text.as_bytes(), false).unwrap().map(|head| head.status)
        };
        assert_eq!(status(&mut memory, "HTTP/1.1 200 OK\nDate: 1\n\nbody"), Some(200));
        assert_eq!(status(&mut memory, "HTTP/1.1 503 OK\nDate: 1\n\nbody"), Some(503));
        assert_eq!(status(&mut memory, "HTTP/1.1 503 OK\nDate"), None);
        assert_eq!(status(&mut memory, "HTTP/1.1 503 OK\nDate: 1\n\n"), Some(503));
    }

    #[test]
    fn a_header_is_found_by_any_case() {
        let head = b"HTTP/1.1 200 OK\r\nServer: nginx/1.22\r\n\r\n";
        assert_eq!(header_text(head, "server").as_deref(), Some("nginx/1.22"));
        assert_eq!(header_text(head, "date"), None);
    }
}
