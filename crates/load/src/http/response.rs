//! One response as it arrives: head, body, end. Bodies are counted, and passed to an observer if there is one. RFC
//! 9112, section 6.
//!
//! The head is read where it lies when it arrives in one piece; only a head in pieces is copied together, into a buffer
//! that the connection keeps for its life and that is bounded.

use crate::http::chunked::Chunked;
use crate::http::response_head::{Framing, NotHttp, ResponseHead, ResponseHeadCache, parse};

/// Longest head, in bytes; longer is a protocol error.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most interim responses (1xx) before the real one.
const INTERIM_MAX: u8 = 16;
/// Up to here a head in pieces is parsed with each piece, so that what is not HTTP is noticed at its first line.
const EAGER_BYTES: usize = 64;

/// Memory for heads in pieces that a connection keeps; only a hostile server needs more, and many connections of 64 kB
/// each would be felt.
const SPILL_BYTES_KEPT: usize = 4 * 1024;

/// The state of the reader at the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ReadState {
    #[default]
    Head,
    Fixed {
        left: u64,
    },
    Chunked(Chunked),
    UntilClose,
    Done,
}

/// The state after a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeedResult {
    /// The response is incomplete.
    More,
    /// The response is complete; this many bytes of the piece follow it.
    Done { extra_bytes: usize },
}

/// What the end of the connection means for a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseOutcome {
    /// It was framed by the close: complete.
    Complete,
    /// It was cut off.
    Early,
    /// It was cut off, and what came before was not HTTP.
    NotHttp,
}

/// Observes a response: its head, then its body without framing.
pub(crate) trait ResponseObserver {
    /// The head of the response, not of an interim one; it is the whole of `bytes`.
    fn head(&mut self, head: ResponseHead, bytes: &[u8]);
    /// A piece of the body.
    fn body(&mut self, bytes: &[u8]);
}

/// No observer.
impl ResponseObserver for () {
    #[inline]
    fn head(&mut self, _: ResponseHead, _: &[u8]) {}
    #[inline]
    fn body(&mut self, _: &[u8]) {}
}

/// A response that is being received; by default ready for one.
#[derive(Debug, Default)]
pub(crate) struct Response {
    stage: ReadState,
    status: u16,
    keep_alive: bool,
    has_started: bool,
    interim: u8,
    body_bytes: u64,
    spill: Vec<u8>,
}

impl Response {
    /// Ready for the next response; keeps its memory.
    pub(crate) fn reset(&mut self) {
        self.stage = ReadState::Head;
        (self.status, self.keep_alive, self.has_started) = (0, false, false);
        (self.interim, self.body_bytes) = (0, 0);
        self.spill.clear();
        self.spill.shrink_to(SPILL_BYTES_KEPT);
    }

    /// The status, once the head is complete; else 0.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Whether the server leaves the connection open for another request.
    pub(crate) fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Whether any byte has arrived.
    pub(crate) fn has_started(&self) -> bool {
        self.has_started
    }

    /// Decoded bytes of the body so far.
    pub(crate) fn body_bytes(&self) -> u64 {
        match self.stage {
            ReadState::Chunked(chunked) => chunked.body_bytes(),
            _ => self.body_bytes,
        }
    }

    /// Bytes of a body of known length that are still to come: they may be dropped unread.
    pub(crate) fn remaining_fixed_body(&self) -> u64 {
        match self.stage {
            ReadState::Fixed { left } => left,
            _ => 0,
        }
    }

    /// Records that `count` bytes of a body of known length were dropped unread. True at its end.
    pub(crate) fn skip_body(&mut self, count: u64) -> bool {
        if let ReadState::Fixed { left } = self.stage {
            self.consume_fixed(left, count);
        }
        self.stage == ReadState::Done
    }

    /// Processes a piece of the response.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        memory: &mut ResponseHeadCache,
        is_head_request: bool,
    ) -> Result<FeedResult, NotHttp> {
        self.feed_observed(&mut (), bytes, memory, is_head_request)
    }

    /// Processes a piece of the response and shows it to a listener.
    #[inline]
    pub(crate) fn feed_observed(
        &mut self,
        listener: &mut impl ResponseObserver,
        bytes: &[u8],
        memory: &mut ResponseHeadCache,
        is_head_request: bool,
    ) -> Result<FeedResult, NotHttp> {
        self.has_started |= !bytes.is_empty();
        let mut at = 0;
        while self.stage == ReadState::Head {
            let Some((head, used)) = self.feed_head(&bytes[at..], memory, is_head_request)? else {
                return Ok(FeedResult::More);
            };
            if !head.is_interim() {
                match self.spill.is_empty() {
                    true => listener.head(head, &bytes[at..at + used]),
                    false => listener.head(head, &self.spill[..head.length_bytes]),
                }
            }
            self.spill.clear();
            at += used;
            self.begin_body(head)?;
        }
        at += self.feed_body(listener, &bytes[at..])?;
        Ok(match self.stage {
            ReadState::Done => FeedResult::Done { extra_bytes: bytes.len() - at },
            _ => FeedResult::More,
        })
    }

    /// What it means that the server closed now.
    pub(crate) fn at_close(&mut self) -> CloseOutcome {
        match self.stage {
            ReadState::UntilClose | ReadState::Done => {
                self.stage = ReadState::Done;
                CloseOutcome::Complete
            }
            // A head in pieces may not have been parsed yet.
            ReadState::Head if parse(&self.spill, false).is_err() => CloseOutcome::NotHttp,
            _ => CloseOutcome::Early,
        }
    }

    /// Memory that it keeps.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.spill.capacity()
    }

    /// Reads the head, in place if it can; returns it with the bytes of this piece that belong to it. A head that came
    /// in pieces lies in `spill` then.
    fn feed_head(
        &mut self,
        bytes: &[u8],
        memory: &mut ResponseHeadCache,
        is_head_request: bool,
    ) -> Result<Option<(ResponseHead, usize)>, NotHttp> {
        if self.spill.is_empty()
            && let Some(head) = memory.parse(bytes, is_head_request)?
        {
            let bounded = head.length_bytes <= HEAD_BYTES_MAX;
            return bounded.then_some(Some((head, head.length_bytes))).ok_or(NotHttp);
        }
        let before = self.spill.len();
        let room = HEAD_BYTES_MAX - before;
        self.spill.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let worth_parsing = before < EAGER_BYTES || has_blank_line(&self.spill[before.saturating_sub(3)..]);
        let parsed = match worth_parsing && before > 0 {
            true => memory.parse(&self.spill, is_head_request)?,
            false => None,
        };
        match parsed {
            Some(head) => Ok(Some((head, head.length_bytes - before))),
            None if self.spill.len() >= HEAD_BYTES_MAX => Err(NotHttp),
            None => Ok(None),
        }
    }

    fn begin_body(&mut self, head: ResponseHead) -> Result<(), NotHttp> {
        if head.is_interim() {
            self.interim += 1;
            return if self.interim > INTERIM_MAX { Err(NotHttp) } else { Ok(()) };
        }
        self.status = head.status;
        self.keep_alive = head.keep_alive;
        self.stage = match head.framing {
            Framing::Empty | Framing::Fixed(0) => ReadState::Done,
            Framing::Fixed(left) => ReadState::Fixed { left },
            Framing::Chunked => ReadState::Chunked(Chunked::new()),
            Framing::UntilClose => ReadState::UntilClose,
        };
        Ok(())
    }

    /// Counts what belongs to the body and returns how much that was.
    fn feed_body(&mut self, listener: &mut impl ResponseObserver, bytes: &[u8]) -> Result<usize, NotHttp> {
        match &mut self.stage {
            ReadState::Head | ReadState::Done => Ok(0),
            ReadState::Fixed { left } => {
                let left = *left;
                let take = left.min(bytes.len() as u64);
                listener.body(&bytes[..take as usize]);
                self.consume_fixed(left, take);
                Ok(take as usize)
            }
            ReadState::Chunked(chunked) => {
                let used = chunked.feed_into(bytes, |data| listener.body(data)).map_err(|_| NotHttp)?;
                if chunked.is_done() {
                    self.body_bytes = chunked.body_bytes();
                    self.stage = ReadState::Done;
                }
                Ok(used)
            }
            ReadState::UntilClose => {
                listener.body(bytes);
                self.body_bytes += bytes.len() as u64;
                Ok(bytes.len())
            }
        }
    }

    fn consume_fixed(&mut self, left: u64, take: u64) {
        self.body_bytes += take;
        self.stage = match left.saturating_sub(take) {
            0 => ReadState::Done,
            left => ReadState::Fixed { left },
        };
    }
}

/// Whether a head ends in here. A bare LF ends a line too (RFC 9112, 2.2).
fn has_blank_line(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair == b"\n\n") || bytes.windows(3).any(|three| three == b"\n\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds the pieces and gives status, body bytes, keep, and the bytes that followed the response.
    fn receive(pieces: &[&[u8]], closes: bool) -> Result<Option<Seen>, NotHttp> {
        let (mut response, mut memory) = (Response::default(), ResponseHeadCache::default());
        let mut behind = None;
        for piece in pieces {
            match behind {
                Some(extra) => behind = Some(extra + piece.len()),
                None => {
                    if let FeedResult::Done { extra_bytes } = response.feed(piece, &mut memory, false)? {
                        behind = Some(extra_bytes);
                    }
                }
            }
        }
        if closes && behind.is_none() && response.at_close() == CloseOutcome::Complete {
            behind = Some(0);
        }
        Ok(behind.map(|extra| (response.status(), response.body_bytes(), response.keep_alive(), extra)))
    }

    /// Status, body bytes, whether the connection is kept, and bytes behind the response.
    type Seen = (u16, u64, bool, usize);

    const ANSWERS: [(&str, Seen); 8] = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", (200, 5, true, 0)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP", (200, 5, true, 4)),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", (404, 0, false, 0)),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx",
            (201, 1, true, 0),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nT: x\r\n\r\n",
            (200, 5, true, 0),
        ),
        ("HTTP/1.0 200 OK\r\nX: y\r\n\r\nall that comes", (200, 14, false, 0)),
        ("HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n", (204, 0, true, 0)),
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", (200, 2, true, 0)),
    ];

    // Invariant: how a response is cut into pieces does not change its meaning, at every single position.
    #[test]
    fn every_segmentation_gives_the_same_response() {
        for (text, expected) in ANSWERS {
            let bytes = text.as_bytes();
            for cut in 0..=bytes.len() {
                let (first, rest) = bytes.split_at(cut);
                assert_eq!(receive(&[first, rest], true), Ok(Some(expected)), "{text:?} cut at {cut}");
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(receive(&single, true), Ok(Some(expected)), "{text:?} byte by byte");
        }
    }

    proptest! {
        // Invariant: the same for any number of cuts.
        #[test]
        fn any_segmentation_gives_the_same_response(which in 0..ANSWERS.len(), mut cuts in prop::collection::vec(0..200usize, 0..6)) {
            let (text, expected) = ANSWERS[which];
            cuts.sort_unstable();
            let (mut pieces, mut from) = (vec![], 0);
            for cut in cuts {
                let cut = cut.clamp(from, text.len());
                pieces.push(&text.as_bytes()[from..cut]);
                from = cut;
            }
            pieces.push(&text.as_bytes()[from..]);
            prop_assert_eq!(receive(&pieces, true), Ok(Some(expected)));
        }

        // Invariant: no bytes make it panic.
        #[test]
        fn any_bytes_are_survived(start in 0..ANSWERS.len(), at in 0..60usize, bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let text = ANSWERS[start].0.as_bytes();
            let _ = receive(&[&text[..at.min(text.len())], &bytes], true);
        }
    }

    #[test]
    fn a_truncated_response_is_not_complete() {
        assert_eq!(receive(&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"], true), Ok(None));
        assert_eq!(receive(&[b"HTTP/1.1 200 O"], true), Ok(None));
        assert_eq!(
            receive(&[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"], true),
            Ok(None)
        );
    }

    #[test]
    fn heads_and_interim_responses_are_bounded() {
        let line = format!("X: {}\r\n", "y".repeat(1000));
        let mut pieces: Vec<&[u8]> = vec![b"HTTP/1.1 200 OK\r\n"];
        pieces.extend(std::iter::repeat_n(line.as_bytes(), 70));
        assert_eq!(receive(&pieces, false), Err(NotHttp));
        let interims = "HTTP/1.1 100 Continue\r\n\r\n".repeat(20);
        assert_eq!(receive(&[interims.as_bytes()], false), Err(NotHttp));
    }

    #[test]
    fn a_large_head_in_pieces_leaves_little_memory() {
        let (mut response, mut memory) = (Response::default(), ResponseHeadCache::default());
        for piece in [b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'y'; 30_000], vec![b'z'; 30_000]] {
            assert_eq!(response.feed(&piece, &mut memory, false), Ok(FeedResult::More));
        }
        assert!(response.memory_bytes() >= 60_000);
        response.reset();
        assert!(response.memory_bytes() <= SPILL_BYTES_KEPT);
    }

    #[test]
    fn dropped_bytes_count_like_read_ones() {
        let (mut response, mut memory) = (Response::default(), ResponseHeadCache::default());
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc";
        assert_eq!(response.feed(head, &mut memory, false), Ok(FeedResult::More));
        assert_eq!(response.remaining_fixed_body(), 97);
        assert!(!response.skip_body(90));
        assert!(response.skip_body(7));
        assert_eq!((response.body_bytes(), response.remaining_fixed_body()), (100, 0));
    }
}
