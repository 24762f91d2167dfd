//! Expectations on a response besides its status, checked while the body is received.
//!
//! A body is kept only when a pattern is to be found in it, and decoded only when a condition is about its content:
//! RFC 9110, 8.4 (content codings gzip, deflate and br; RFC 1952, RFC 1950 and RFC 7932). What is measured does not
//! depend on it: bytes are counted as they were received.
//!
//! Length, pattern and hash are those of the decoded content. A coding that is broken, cut off, unknown, one of
//! several, or that swells beyond a bound leaves the expectation unmet: it shows only when something is expected, so
//! it is no failure of the protocol.

use crate::http::response_head::{ContentCoding, Framing, ResponseHead};
use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use regex::bytes::Regex;
use sha2::{Digest, Sha256};
use std::io::{Error, ErrorKind, Result as IoResult, Write};
use webdyno_model::workload::Expectation;
use webdyno_model::{Result, UserError};

/// Longest body in which a pattern is looked for.
const KEPT_BYTES_MAX: u64 = 16 << 20;
/// Longest content that is decoded. A few kilobytes can decode to gigabytes.
const DECODED_BYTES_MAX: u64 = 64 << 20;
/// Buffers for kept bodies that are put by for the next responses, and how large they may be.
const POOL_BUFFERS_MAX: usize = 64;
const POOL_BUFFER_BYTES_MAX: usize = 1 << 20;
/// What brotli decodes at a time.
const BROTLI_BYTES: usize = 16 * 1024;
const SHA256_BYTES: usize = 32;

/// How a response's body is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BodyHandling {
    /// The conditions are to be checked.
    pub(crate) checked: bool,
    /// The decoded content is to be kept.
    pub(crate) kept: bool,
    /// A response whose content cannot be read is a failure.
    pub(crate) needed: bool,
}

impl Default for BodyHandling {
    /// As for a request that has nothing to do with others.
    fn default() -> Self {
        Self { checked: true, kept: false, needed: false }
    }
}

/// The conditions on a response, ready to be checked.
#[derive(Debug, Default)]
pub(crate) struct ResponseChecks {
    status: Vec<u16>,
    lengths: Vec<u64>,
    /// The length as it was framed, whatever the coding.
    framed_bytes: Option<u64>,
    patterns: Vec<Regex>,
    hashes: Vec<[u8; SHA256_BYTES]>,
}

impl ResponseChecks {
    /// Parses the conditions. A usage error for an invalid pattern or hash.
    pub(crate) fn compile(expect: &[Expectation]) -> Result<Self> {
        let mut checks = Self::default();
        for expectation in expect {
            match expectation {
                Expectation::Status(status) => checks.status.push(*status),
                Expectation::Length(length) => checks.lengths.push(*length),
                Expectation::Regex(pattern) => checks.patterns.push(compile_regex(pattern)?),
                Expectation::Sha256(digits) => checks.hashes.push(parse_sha256(digits)?),
            }
        }
        Ok(checks)
    }

    /// One more condition: so many bytes, coded as they come. No body is read for it.
    pub(crate) fn expect_framed_bytes(&mut self, bytes: u64) {
        self.framed_bytes = Some(bytes);
    }

    /// Whether each body is needed, byte by byte.
    pub(crate) fn read_bodies(&self) -> bool {
        !self.patterns.is_empty() || !self.hashes.is_empty()
    }

    /// Whether a body may be needed: for its length only when it is coded.
    pub(crate) fn may_read_bodies(&self) -> bool {
        self.read_bodies() || !self.lengths.is_empty()
    }

    /// The check for the body of a response with this head; `None` when the body need not be read.
    pub(crate) fn start_body_check(
        &self,
        head: ResponseHead,
        body_handling: BodyHandling,
        buffers: &mut BufferPool,
    ) -> Option<BodyCheck> {
        let empty = matches!(head.framing, Framing::Empty | Framing::Fixed(0));
        let coded = head.coding != ContentCoding::Identity;
        let checked = body_handling.checked && (self.read_bodies() || coded && self.may_read_bodies());
        let wanted = checked || body_handling.kept;
        if empty || !wanted {
            return None;
        }
        let keeps = body_handling.kept || !self.patterns.is_empty();
        let decoded = DecodedBody {
            length_bytes: 0,
            length_bytes_max: match (keeps, coded) {
                (true, _) => KEPT_BYTES_MAX,
                (false, true) => DECODED_BYTES_MAX,
                (false, false) => u64::MAX,
            },
            hash: (body_handling.checked && !self.hashes.is_empty()).then(Sha256::new),
            kept: keeps.then(|| buffers.acquire()),
        };
        Some(BodyCheck(match coded {
            true => State::Awaiting(decoded, head.coding),
            false => State::Plain(decoded),
        }))
    }

    /// Whether a response that has ended meets all of them.
    #[cfg(test)]
    pub(crate) fn are_met(
        &self,
        status: u16,
        body_bytes: u64,
        content: Option<BodyCheck>,
        buffers: &mut BufferPool,
    ) -> bool {
        let (met, body) = self.evaluate(BodyHandling::default(), status, body_bytes, content);
        buffers.release(body);
        met
    }

    /// Whether a response that has ended meets what is wanted of it, and its content, if it was to be kept: empty
    /// without a body, `None` when it could not be read to its end. Without content, its body counts as it was framed.
    pub(crate) fn evaluate(
        &self,
        body_handling: BodyHandling,
        status: u16,
        body_bytes: u64,
        content: Option<BodyCheck>,
    ) -> (bool, Option<Vec<u8>>) {
        let status_is_met = !body_handling.checked
            || self.status.iter().all(|&expected| expected == status)
                && self.framed_bytes.is_none_or(|expected| expected == body_bytes);
        if !(body_handling.kept || body_handling.checked && self.may_read_bodies()) {
            return (status_is_met, None);
        }
        let decoded = match content.map(|content| content.finish()) {
            None => Some(DecodedBody::length_only(body_bytes)),
            Some(decoded) => decoded,
        };
        let Some(decoded) = decoded else {
            return (!(body_handling.needed || body_handling.checked && self.may_read_bodies()), None);
        };
        let body = decoded.kept.as_deref().unwrap_or_default();
        let is_hash = |expected: &[u8; SHA256_BYTES]| {
            let hash = decoded.hash.clone().unwrap_or_default().finalize();
            expected[..] == hash[..]
        };
        let met = !body_handling.checked
            || status_is_met
                && self.lengths.iter().all(|&expected| expected == decoded.length_bytes)
                && self.hashes.iter().all(is_hash)
                && self.patterns.iter().all(|pattern| pattern.is_match(body));
        (met, Some(decoded.kept.unwrap_or_default()))
    }
}

fn compile_regex(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| {
        let text = error.to_string();
        // The last line is the cause; those above point at it.
        let cause = text.lines().last().unwrap_or(&text).trim_start_matches("error: ");
        UserError::usage(format!("`{pattern}` is not a regular expression: {cause}"))
            .hint("see which ones are understood: https://docs.rs/regex/latest/regex/#syntax")
    })
}

/// The bytes of 64 hexadecimal digits.
fn parse_sha256(digits: &str) -> Result<[u8; SHA256_BYTES]> {
    let wrong = || {
        UserError::usage(format!("`{digits}` is not a SHA-256, which has 64 hexadecimal digits"))
            .hint("take the one of a good answer: curl -s URL | sha256sum")
    };
    let mut hash = [0; SHA256_BYTES];
    if digits.len() != 2 * SHA256_BYTES || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).map_err(|_| wrong())?;
    }
    Ok(hash)
}

/// Buffers that kept a body and may keep another.
#[derive(Debug, Default)]
pub(crate) struct BufferPool(Vec<Vec<u8>>);

impl BufferPool {
    fn acquire(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    /// Returns a buffer to the pool.
    pub(crate) fn release(&mut self, buffer: Option<Vec<u8>>) {
        let worth = |buffer: &Vec<u8>| (1..=POOL_BUFFER_BYTES_MAX).contains(&buffer.capacity());
        if let Some(mut buffer) = buffer.filter(worth)
            && self.0.len() < POOL_BUFFERS_MAX
        {
            buffer.clear();
            self.0.push(buffer);
        }
    }
}

/// The decoded content, as far as the checks need it.
#[derive(Debug)]
struct DecodedBody {
    length_bytes: u64,
    length_bytes_max: u64,
    hash: Option<Sha256>,
    kept: Option<Vec<u8>>,
}

impl DecodedBody {
    /// A body of which only the length is known.
    fn length_only(length_bytes: u64) -> Self {
        Self { length_bytes, length_bytes_max: u64::MAX, hash: None, kept: None }
    }
}

impl Write for DecodedBody {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        self.length_bytes += bytes.len() as u64;
        if self.length_bytes > self.length_bytes_max {
            return Err(ErrorKind::FileTooLarge.into());
        }
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> IoResult<()> {
        Ok(())
    }
}

/// A body that is being checked.
#[derive(Debug)]
pub(crate) struct BodyCheck(State);

#[derive(Debug)]
enum State {
    Plain(DecodedBody),
    /// Coded, and nothing came yet: an empty body is an empty content in every coding.
    Awaiting(DecodedBody, ContentCoding),
    Gzip(Box<MultiGzDecoder<DecodedBody>>),
    Zlib(Box<ZlibDecoder<DecodedBody>>),
    Deflate(Box<DeflateDecoder<DecodedBody>>),
    Brotli(Box<BrotliDecoder>),
    /// Broken, or beyond a bound: no condition on the body can be met.
    Failed,
}

impl BodyCheck {
    /// Whether the rest of the body is still needed.
    pub(crate) fn needs_more(&self) -> bool {
        !matches!(self.0, State::Failed)
    }

    /// Processes a piece of the body as it was framed.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let Some(&first) = bytes.first() else { return };
        if let State::Awaiting(..) = self.0
            && let State::Awaiting(decoded, coding) = std::mem::replace(&mut self.0, State::Failed)
        {
            self.0 = start_decoder(decoded, coding, first);
        }
        let fed = match &mut self.0 {
            State::Plain(decoded) => decoded.write_all(bytes),
            State::Gzip(decoder) => decoder.write_all(bytes),
            State::Zlib(decoder) => decoder.write_all(bytes),
            State::Deflate(decoder) => decoder.write_all(bytes),
            State::Brotli(decoder) => decoder.feed(bytes),
            State::Awaiting(..) | State::Failed => Ok(()),
        };
        if fed.is_err() {
            self.0 = State::Failed;
        }
    }

    /// What was kept of it; `None` when it could not be read to its end.
    pub(crate) fn kept(self) -> Option<Vec<u8>> {
        self.finish().and_then(|decoded| decoded.kept)
    }

    /// Its length and what was kept of it; `None` when it could not be read to its end.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn ended(self) -> Option<(u64, Vec<u8>)> {
        self.finish().map(|decoded| (decoded.length_bytes, decoded.kept.unwrap_or_default()))
    }

    /// What was in it; `None` when it could not be read to its end.
    fn finish(self) -> Option<DecodedBody> {
        match self.0 {
            State::Plain(decoded) | State::Awaiting(decoded, _) => Some(decoded),
            State::Gzip(decoder) => decoder.finish().ok(),
            State::Zlib(decoder) => decoder.finish().ok(),
            State::Deflate(decoder) => decoder.finish().ok(),
            State::Brotli(decoder) => decoder.done.then_some(decoder.decoded),
            State::Failed => None,
        }
    }
}

/// The decoder for a body that begins with this byte.
fn start_decoder(decoded: DecodedBody, coding: ContentCoding, first: u8) -> State {
    match coding {
        ContentCoding::Identity => State::Plain(decoded),
        ContentCoding::Gzip => State::Gzip(Box::new(MultiGzDecoder::new(decoded))),
        // `deflate` is the zlib format; some servers send bare deflate, whose first byte is never this (RFC 9110,
        // 8.4.1.2; RFC 1950, 2.2).
        ContentCoding::Deflate if first & 0x0f == 8 && first >> 4 <= 7 => {
            State::Zlib(Box::new(ZlibDecoder::new(decoded)))
        }
        ContentCoding::Deflate => State::Deflate(Box::new(DeflateDecoder::new(decoded))),
        ContentCoding::Brotli => State::Brotli(Box::new(BrotliDecoder::new(decoded))),
        ContentCoding::Other => State::Failed,
    }
}

/// A brotli decoder that writes to the check.
struct BrotliDecoder {
    state: BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    output: Vec<u8>,
    decoded: DecodedBody,
    done: bool,
}

impl std::fmt::Debug for BrotliDecoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Brotli").field("seen", &self.decoded).finish_non_exhaustive()
    }
}

impl BrotliDecoder {
    fn new(decoded: DecodedBody) -> Self {
        let alloc = StandardAlloc::default;
        Self {
            state: BrotliState::new(alloc(), alloc(), alloc()),
            output: vec![0; BROTLI_BYTES],
            decoded,
            done: false,
        }
    }

    fn feed(&mut self, mut bytes: &[u8]) -> IoResult<()> {
        let broken = || Err(Error::from(ErrorKind::InvalidData));
        while !self.done {
            let (mut left, mut taken) = (bytes.len(), 0);
            let (mut room, mut given, mut total) = (self.output.len(), 0, 0);
            let result = BrotliDecompressStream(
                &mut left,
                &mut taken,
                bytes,
                &mut room,
                &mut given,
                &mut self.output,
                &mut total,
                &mut self.state,
            );
            self.decoded.write_all(&self.output[..given])?;
            bytes = bytes.get(taken..).unwrap_or_default();
            match result {
                BrotliResult::NeedsMoreInput if bytes.is_empty() => return Ok(()),
                BrotliResult::NeedsMoreOutput => {}
                BrotliResult::ResultSuccess => self.done = true,
                BrotliResult::NeedsMoreInput | BrotliResult::ResultFailure => return broken(),
            }
        }
        if bytes.is_empty() { Ok(()) } else { broken() }
    }
}

#[cfg(test)]
mod tests;
