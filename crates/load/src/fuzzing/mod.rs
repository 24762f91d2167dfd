//! What must hold for every response, whatever its bytes: shared by the fuzz targets in `fuzz/` and by the test that
//! runs them for a short time on stable Rust.
//!
//! The main one: a response means the same however the network cuts it into pieces (RFC 9112, section 2.2: a parser
//! reads a sequence of octets). The rest: no panic, no hang, bounded memory.

mod http2;

pub use http2::http2;

use crate::http::content_check::{BodyHandling, BufferPool, ResponseChecks};
use crate::http::response::{CloseOutcome, FeedResult, HEAD_BYTES_MAX, Response, ResponseObserver};
use crate::http::response_head::{ContentCoding, Framing, ResponseHead, ResponseHeadCache};
use webdyno_model::workload::Expectation;

/// Cuttings that are tried besides the regular ones.
const SPLITS: u64 = 3;
/// Longer inputs are not fed byte by byte: that would be slow and show nothing new.
const BYTEWISE_BYTES_MAX: usize = 4096;
/// More framing than this between two bytes of a body is refused: an extension and a trailer section at their bounds,
/// and what belongs around them.
const FRAMING_BYTES_MAX: u64 = 80 * 1024;
const CHUNKED_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// What came of a response whose connection was closed after its last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseSummary {
    NotHttp,
    /// It ended at this byte.
    Whole {
        status: u16,
        body_bytes: u64,
        keep_alive: bool,
        end: usize,
    },
    CutOff {
        status: u16,
        body_bytes: u64,
    },
}

/// What a listener is shown, as sums that hold for any cutting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ObservedBytes {
    head: u64,
    body: u64,
    body_bytes: u64,
}

fn sum(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |sum, &byte| sum.rotate_left(5).wrapping_add(u64::from(byte) + 1))
}

impl ResponseObserver for ObservedBytes {
    fn head(&mut self, _: ResponseHead, bytes: &[u8]) {
        self.head = sum(0, bytes);
    }

    fn body(&mut self, bytes: &[u8]) {
        self.body = sum(self.body, bytes);
        self.body_bytes += bytes.len() as u64;
    }
}

/// Numbers that only depend on a seed: xorshift64*.
#[derive(Debug, Clone)]
pub struct XorShift(u64);

impl XorShift {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`, which is above 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound.max(1)
    }
}

/// How the bytes are handed over.
#[derive(Debug, Clone)]
enum Split {
    Whole,
    Every(usize),
    Random(XorShift),
}

impl Split {
    fn next(&mut self, left: usize) -> usize {
        let size = match self {
            Self::Whole => left,
            Self::Every(size) => *size,
            // Small pieces and large ones, so that cuts fall into heads and into long bodies.
            Self::Random(dice) => {
                let scale = 1 << dice.below(14);
                1 + dice.below(scale)
            }
        };
        size.clamp(1, left)
    }
}

/// Checks the reader of responses with these bytes. An error describes the violated property.
pub fn response(bytes: &[u8]) -> Result<(), String> {
    for is_head_request in [false, true] {
        let mut observed = ObservedBytes::default();
        let whole = receive(
            &mut observed,
            bytes,
            Split::Whole,
            is_head_request,
            &mut ResponseHeadCache::default(),
            false,
        )?;
        for (split, dropping) in splits(bytes) {
            // A memory that knows the head already, as it does from the second answer on.
            let mut memory = ResponseHeadCache::default();
            for again in [false, true] {
                let mut shown_now = ObservedBytes::default();
                let summary =
                    receive(&mut shown_now, bytes, split.clone(), is_head_request, &mut memory, dropping)?;
                // What is dropped is not shown, and of what breaks off the last piece may be.
                let alike = dropping || summary == ResponseSummary::NotHttp || shown_now == observed;
                if summary != whole || !alike {
                    return Err(format!(
                        "{whole:?} as a whole, {summary:?} as {split:?}; to HEAD {is_head_request}, dropping {dropping}, again {again}"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Checks the reader of chunks with these bytes, which come after the head of a chunked answer.
pub fn chunked(bytes: &[u8]) -> Result<(), String> {
    response(&[CHUNKED_HEAD, bytes].concat())?;
    let (mut reader, mut memory) = (Response::default(), ResponseHeadCache::default());
    // Complete, so it cannot fail.
    let _ = reader.feed(CHUNKED_HEAD, &mut memory, false);
    let (mut body_bytes, mut framing_bytes) = (0, 0);
    for (at, byte) in bytes.iter().enumerate() {
        match reader.feed(std::slice::from_ref(byte), &mut memory, false) {
            Ok(FeedResult::More) => {}
            Ok(FeedResult::Done { .. }) | Err(_) => return Ok(()),
        }
        framing_bytes = if reader.body_bytes() > body_bytes { 0 } else { framing_bytes + 1 };
        body_bytes = reader.body_bytes();
        if framing_bytes > FRAMING_BYTES_MAX || body_bytes > at as u64 {
            return Err(format!("{framing_bytes} bytes of framing, {body_bytes} of a body, after {at}"));
        }
    }
    Ok(())
}

/// Checks the reader of coded bodies: the first byte names the coding, the rest is the body.
pub fn content(bytes: &[u8]) -> Result<(), String> {
    let (&first, body) = bytes.split_first().unwrap_or((&0, &[]));
    let coding = match first {
        b'g' => ContentCoding::Gzip,
        b'd' => ContentCoding::Deflate,
        b'b' => ContentCoding::Brotli,
        _ => ContentCoding::Identity,
    };
    let expect = [Expectation::Regex("dyno".into()), Expectation::Sha256("0".repeat(64))];
    let checks = [&expect[..1], &expect[1..]].map(ResponseChecks::compile);
    for checks in checks.into_iter().flatten() {
        let whole = decoded(&checks, coding, body, Split::Whole);
        for (split, _) in splits(body) {
            let summary = decoded(&checks, coding, body, split.clone());
            if summary != whole {
                return Err(format!("{whole:?} as a whole, {summary:?} as {split:?}, {coding:?}"));
            }
        }
    }
    Ok(())
}

/// Length and sum of what is in a body, as far as it was kept; `None` when it cannot be read.
fn decoded(
    checks: &ResponseChecks,
    coding: ContentCoding,
    body: &[u8],
    mut split: Split,
) -> Option<(u64, u64)> {
    let head = ResponseHead {
        status: 200,
        framing: Framing::UntilClose,
        keep_alive: false,
        coding,
        length_bytes: 0,
    };
    let mut content = checks.start_body_check(head, BodyHandling::default(), &mut BufferPool::default())?;
    let mut at = 0;
    while at < body.len() {
        let size = split.next(body.len() - at);
        content.feed(&body[at..at + size]);
        at += size;
    }
    content.ended().map(|(length_bytes, kept)| (length_bytes, sum(0, &kept)))
}

fn splits(bytes: &[u8]) -> Vec<(Split, bool)> {
    // The cuts depend on the bytes alone, so that what was found is found again.
    let seed = bytes.iter().fold(bytes.len() as u64, |sum, &byte| sum.rotate_left(5) ^ u64::from(byte));
    let random = |number| (Split::Random(XorShift::new(seed ^ number)), number % 2 == 1);
    let mut splits: Vec<_> = (1..=SPLITS).map(random).collect();
    splits.push((Split::Whole, false));
    let size = if bytes.len() <= BYTEWISE_BYTES_MAX { 1 } else { 1021 };
    splits.push((Split::Every(size), false));
    splits
}

/// Feeds the bytes piece by piece, then closes. Bodies of a known length may be dropped unread, as the engine does.
fn receive(
    observed: &mut ObservedBytes,
    bytes: &[u8],
    mut split: Split,
    is_head_request: bool,
    memory: &mut ResponseHeadCache,
    dropping: bool,
) -> Result<ResponseSummary, String> {
    let mut reader = Response::default();
    let mut at = 0;
    while at < bytes.len() {
        let mut size = split.next(bytes.len() - at);
        let left = reader.remaining_fixed_body();
        let fed = if dropping && left > 0 {
            size = size.min(usize::try_from(left).unwrap_or(usize::MAX));
            Ok(match reader.skip_body(size as u64) {
                true => FeedResult::Done { extra_bytes: 0 },
                false => FeedResult::More,
            })
        } else {
            reader.feed_observed(observed, &bytes[at..at + size], memory, is_head_request)
        };
        at += size;
        let (status, body_bytes, keep_alive) = (reader.status(), reader.body_bytes(), reader.keep_alive());
        match fed {
            Ok(FeedResult::More) => {}
            Ok(FeedResult::Done { extra_bytes }) if extra_bytes > size => {
                return Err(format!("{extra_bytes} bytes of {size} lie behind the answer"));
            }
            Ok(FeedResult::Done { extra_bytes }) => {
                return Ok(ResponseSummary::Whole { status, body_bytes, keep_alive, end: at - extra_bytes });
            }
            Err(_) => return Ok(ResponseSummary::NotHttp),
        }
        if reader.memory_bytes() > 2 * HEAD_BYTES_MAX || body_bytes > at as u64 {
            return Err(format!("{} bytes of memory, {body_bytes} of a body", reader.memory_bytes()));
        }
    }
    let (status, body_bytes, keep_alive) = (reader.status(), reader.body_bytes(), reader.keep_alive());
    Ok(match reader.at_close() {
        CloseOutcome::Complete => ResponseSummary::Whole { status, body_bytes, keep_alive, end: at },
        CloseOutcome::Early => ResponseSummary::CutOff { status, body_bytes },
        CloseOutcome::NotHttp => ResponseSummary::NotHttp,
    })
}

#[cfg(test)]
mod tests;
