//! What the user expects of an answer besides its status, checked while the body streams by.
//!
//! A body is kept only when a pattern is to be found in it, and decoded only when a condition is about its content:
//! RFC 9110, 8.4 (content codings gzip, deflate and br; RFC 1952, RFC 1950 and RFC 7932). What is measured does not
//! depend on it: bytes are counted as they were received.
//!
//! Length, pattern and hash are those of the decoded content. A coding that is broken, cut off, unknown, one of
//! several, or that swells beyond a bound leaves the expectation unmet: it shows only when something is expected, so
//! it is no failure of the protocol.

use crate::http::response_head::{Coding, Framing, Head};
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
/// Buffers for kept bodies that are put by for the next answers, and how large they may be.
const SPARE_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 1 << 20;
/// What brotli decodes at a time.
const BROTLI_BYTES: usize = 16 * 1024;
const SHA256_BYTES: usize = 32;

/// What is wanted of an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    /// The conditions are to be checked.
    pub(crate) checked: bool,
    /// The decoded content is to be kept.
    pub(crate) kept: bool,
    /// An answer whose content cannot be read is no good one.
    pub(crate) needed: bool,
}

impl Default for Wish {
    /// As for a request that has nothing to do with others.
    fn default() -> Self {
        Self { checked: true, kept: false, needed: false }
    }
}

/// The conditions on an answer, ready to be checked.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    status: Vec<u16>,
    lengths: Vec<u64>,
    patterns: Vec<Regex>,
    hashes: Vec<[u8; SHA256_BYTES]>,
}

impl Checks {
    /// Reads the conditions. A usage error for a pattern or a hash that is none.
    pub(crate) fn of(expect: &[Expectation]) -> Result<Self> {
        let mut checks = Self::default();
        for expectation in expect {
            match expectation {
                Expectation::Status(status) => checks.status.push(*status),
                Expectation::Length(length) => checks.lengths.push(*length),
                Expectation::Regex(pattern) => checks.patterns.push(compiled(pattern)?),
                Expectation::Sha256(digits) => checks.hashes.push(hash_of(digits)?),
            }
        }
        Ok(checks)
    }

    /// Whether each body is needed, byte by byte.
    pub(crate) fn read_bodies(&self) -> bool {
        !self.patterns.is_empty() || !self.hashes.is_empty()
    }

    /// Whether a body may be needed: for its length only when it is coded.
    pub(crate) fn may_read_bodies(&self) -> bool {
        self.read_bodies() || !self.lengths.is_empty()
    }

    /// What takes the body of an answer with this head; `None` when nobody needs to see it.
    pub(crate) fn content(&self, head: Head, wish: Wish, spare: &mut Spare) -> Option<Content> {
        let empty = matches!(head.framing, Framing::Empty | Framing::Fixed(0));
        let coded = head.coding != Coding::Identity;
        let checked = wish.checked && (self.read_bodies() || coded && self.may_read_bodies());
        let wanted = checked || wish.kept;
        if empty || !wanted {
            return None;
        }
        let keeps = wish.kept || !self.patterns.is_empty();
        let seen = Seen {
            length_bytes: 0,
            length_bytes_max: match (keeps, coded) {
                (true, _) => KEPT_BYTES_MAX,
                (false, true) => DECODED_BYTES_MAX,
                (false, false) => u64::MAX,
            },
            hash: (wish.checked && !self.hashes.is_empty()).then(Sha256::new),
            kept: keeps.then(|| spare.take()),
        };
        Some(Content(match coded {
            true => State::Awaiting(seen, head.coding),
            false => State::Plain(seen),
        }))
    }

    /// Whether an answer that has ended meets all of them.
    #[cfg(test)]
    pub(crate) fn are_met(
        &self,
        status: u16,
        body_bytes: u64,
        content: Option<Content>,
        spare: &mut Spare,
    ) -> bool {
        let (met, body) = self.judge(Wish::default(), status, body_bytes, content);
        spare.give(body);
        met
    }

    /// Whether an answer that has ended meets what is wanted of it, and its content, if it was to be kept: empty without a
    /// body, `None` when it could not be read to its end. Without content, its body counts as it was framed.
    pub(crate) fn judge(
        &self,
        wish: Wish,
        status: u16,
        body_bytes: u64,
        content: Option<Content>,
    ) -> (bool, Option<Vec<u8>>) {
        let status_is_met = !wish.checked || self.status.iter().all(|&expected| expected == status);
        if !(wish.kept || wish.checked && self.may_read_bodies()) {
            return (status_is_met, None);
        }
        let seen = match content.map(|content| content.finish()) {
            None => Some(Seen::unread(body_bytes)),
            Some(seen) => seen,
        };
        let Some(seen) = seen else {
            return (!(wish.needed || wish.checked && self.may_read_bodies()), None);
        };
        let body = seen.kept.as_deref().unwrap_or_default();
        let is_hash = |expected: &[u8; SHA256_BYTES]| {
            let hash = seen.hash.clone().unwrap_or_default().finalize();
            expected[..] == hash[..]
        };
        let met = !wish.checked
            || status_is_met
                && self.lengths.iter().all(|&expected| expected == seen.length_bytes)
                && self.hashes.iter().all(is_hash)
                && self.patterns.iter().all(|pattern| pattern.is_match(body));
        (met, Some(seen.kept.unwrap_or_default()))
    }
}

fn compiled(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| {
        let text = error.to_string();
        // The last line says what is wrong; those above point at it.
        let cause = text.lines().last().unwrap_or(&text).trim_start_matches("error: ");
        UserError::usage(format!("`{pattern}` is not a regular expression: {cause}"))
            .hint("see which ones are understood: https://docs.rs/regex/latest/regex/#syntax")
    })
}

/// The bytes of 64 hexadecimal digits.
fn hash_of(digits: &str) -> Result<[u8; SHA256_BYTES]> {
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
pub(crate) struct Spare(Vec<Vec<u8>>);

impl Spare {
    fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: Option<Vec<u8>>) {
        let worth = |buffer: &Vec<u8>| (1..=SPARE_BYTES_MAX).contains(&buffer.capacity());
        if let Some(mut buffer) = buffer.filter(worth)
            && self.0.len() < SPARE_MAX
        {
            buffer.clear();
            self.0.push(buffer);
        }
    }
}

/// What was seen of the decoded content.
#[derive(Debug)]
struct Seen {
    length_bytes: u64,
    length_bytes_max: u64,
    hash: Option<Sha256>,
    kept: Option<Vec<u8>>,
}

impl Seen {
    /// A body that nobody needed to see.
    fn unread(length_bytes: u64) -> Self {
        Self { length_bytes, length_bytes_max: u64::MAX, hash: None, kept: None }
    }
}

impl Write for Seen {
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
pub(crate) struct Content(State);

#[derive(Debug)]
enum State {
    Plain(Seen),
    /// Coded, and nothing came yet: an empty body is an empty content in every coding.
    Awaiting(Seen, Coding),
    Gzip(Box<MultiGzDecoder<Seen>>),
    Zlib(Box<ZlibDecoder<Seen>>),
    Deflate(Box<DeflateDecoder<Seen>>),
    Brotli(Box<Brotli>),
    /// Broken, or beyond a bound: no condition on the body can be met.
    Failed,
}

impl Content {
    /// Whether the rest of the body is still needed.
    pub(crate) fn is_wanted(&self) -> bool {
        !matches!(self.0, State::Failed)
    }

    /// Takes a piece of the body as it was framed.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let Some(&first) = bytes.first() else { return };
        if let State::Awaiting(..) = self.0
            && let State::Awaiting(seen, coding) = std::mem::replace(&mut self.0, State::Failed)
        {
            self.0 = begun(seen, coding, first);
        }
        let fed = match &mut self.0 {
            State::Plain(seen) => seen.write_all(bytes),
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
        self.finish().and_then(|seen| seen.kept)
    }

    /// Its length and what was kept of it; `None` when it could not be read to its end.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn ended(self) -> Option<(u64, Vec<u8>)> {
        self.finish().map(|seen| (seen.length_bytes, seen.kept.unwrap_or_default()))
    }

    /// What was in it; `None` when it could not be read to its end.
    fn finish(self) -> Option<Seen> {
        match self.0 {
            State::Plain(seen) | State::Awaiting(seen, _) => Some(seen),
            State::Gzip(decoder) => decoder.finish().ok(),
            State::Zlib(decoder) => decoder.finish().ok(),
            State::Deflate(decoder) => decoder.finish().ok(),
            State::Brotli(decoder) => decoder.done.then_some(decoder.seen),
            State::Failed => None,
        }
    }
}

/// The decoder for a body that begins with this byte.
fn begun(seen: Seen, coding: Coding, first: u8) -> State {
    match coding {
        Coding::Identity => State::Plain(seen),
        Coding::Gzip => State::Gzip(Box::new(MultiGzDecoder::new(seen))),
        // `deflate` is the zlib format; some servers send bare deflate, whose first byte is never this (RFC 9110,
        // 8.4.1.2; RFC 1950, 2.2).
        Coding::Deflate if first & 0x0f == 8 && first >> 4 <= 7 => {
            State::Zlib(Box::new(ZlibDecoder::new(seen)))
        }
        Coding::Deflate => State::Deflate(Box::new(DeflateDecoder::new(seen))),
        Coding::Brotli => State::Brotli(Box::new(Brotli::new(seen))),
        Coding::Other => State::Failed,
    }
}

/// Brotli to whoever wants what is in it.
struct Brotli {
    state: BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    decoded: Vec<u8>,
    seen: Seen,
    done: bool,
}

impl std::fmt::Debug for Brotli {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Brotli").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Brotli {
    fn new(seen: Seen) -> Self {
        let alloc = StandardAlloc::default;
        Self {
            state: BrotliState::new(alloc(), alloc(), alloc()),
            decoded: vec![0; BROTLI_BYTES],
            seen,
            done: false,
        }
    }

    fn feed(&mut self, mut bytes: &[u8]) -> IoResult<()> {
        let broken = || Err(Error::from(ErrorKind::InvalidData));
        while !self.done {
            let (mut left, mut taken) = (bytes.len(), 0);
            let (mut room, mut given, mut total) = (self.decoded.len(), 0, 0);
            let result = BrotliDecompressStream(
                &mut left,
                &mut taken,
                bytes,
                &mut room,
                &mut given,
                &mut self.decoded,
                &mut total,
                &mut self.state,
            );
            self.seen.write_all(&self.decoded[..given])?;
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
