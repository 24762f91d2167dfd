//! One connection of HTTP/2, pure: bytes of the peer come in, responses and bytes for the peer go out. RFC 9113.
//!
//! What the peer may make us hold is bounded everywhere: windows, the block of a header, its fields, what waits to be
//! sent. Frames that carry nothing are counted, so that a flood of them ends the connection.

mod incoming;

use super::frames::{self, ErrorCode, PAYLOAD_BYTES_MAX, WINDOW_DEFAULT, flag, kind, setting};
use super::hpack;
use crate::io::multiplexed::lanes::Lanes;
use crate::io::multiplexed::multiplex::Multiplex;
use crate::io::multiplexed::request::RequestEncoder;
use crate::io::multiplexed::response::{LIST_BYTES_MAX, ResponseDecoder};
use crate::io::network_io::SocketError;
use crate::io::origin::Origin;
use rustix::io::Errno;

/// What a peer may send on a stream before it must wait: larger than what a long path holds.
const STREAM_WINDOW: i64 = 1 << 24;
/// The same for all streams of a connection.
const CONNECTION_WINDOW: i64 = 1 << 26;
/// Streams that are begun before the peer has said how many it allows; fewer than 100 should not be allowed (section
/// 6.5.2).
const STREAMS_UNTIL_SETTINGS: u32 = 100;
/// The longest header block, and most frames of one.
const BLOCK_BYTES_MAX: usize = 64 * 1024;
const BLOCK_FRAMES_MAX: u32 = 32;
/// Most frames in a row that carry nothing: no head, no body.
const QUIET_FRAMES_MAX: u32 = 4096;
/// Most bytes that wait to be sent: requests wait then, and answers to frames end the connection.
const OUT_BYTES_MAX: usize = 256 * 1024;
/// The last stream of a client.
const STREAM_LAST: u32 = (1 << 31) - 1;

/// A header block that has not ended.
#[derive(Debug)]
struct OpenBlock {
    stream: u32,
    ends: bool,
    bytes: Vec<u8>,
    frames: u32,
}

/// What the peer has said of itself.
#[derive(Debug)]
struct PeerSettings {
    received: bool,
    window: i64,
    frame_max: usize,
}

/// A connection, from its preface on.
#[derive(Debug)]
pub(crate) struct Connection {
    secure: bool,
    /// Bytes for the peer, from `out_at` on.
    out: Vec<u8>,
    out_at: usize,
    /// A frame of the peer that is not whole.
    input: Vec<u8>,
    responses: ResponseDecoder<hpack::Decoder>,
    requests: RequestEncoder<hpack::Encoder>,
    lanes: Lanes,
    next_id: u32,
    peer: PeerSettings,
    send_window: i64,
    receive_window: i64,
    block: Option<OpenBlock>,
    /// The highest stream that we have cancelled: what still comes for it is not wrong.
    cancelled_max: u32,
    quiet_frames: u32,
    fault: Option<ErrorCode>,
    /// What came first was no frame, but HTTP/1.
    answered_http1: bool,
}

impl Connection {
    /// Before anything was sent.
    pub(crate) fn new(secure: bool) -> Self {
        let mut out = frames::PREFACE.to_vec();
        frames::write_settings(
            &mut out,
            &[
                (setting::ENABLE_PUSH, 0),
                (setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW as u32),
                (setting::MAX_HEADER_LIST_SIZE, LIST_BYTES_MAX as u32),
            ],
        );
        let more = (CONNECTION_WINDOW - WINDOW_DEFAULT) as u32;
        frames::write_number(&mut out, kind::WINDOW_UPDATE, 0, more);
        Self {
            secure,
            out,
            out_at: 0,
            input: vec![],
            responses: ResponseDecoder::default(),
            requests: RequestEncoder::default(),
            lanes: Lanes::new(STREAMS_UNTIL_SETTINGS),
            next_id: 1,
            peer: PeerSettings { received: false, window: WINDOW_DEFAULT, frame_max: PAYLOAD_BYTES_MAX },
            send_window: WINDOW_DEFAULT,
            receive_window: CONNECTION_WINDOW,
            block: None,
            cancelled_max: 0,
            quiet_frames: 0,
            fault: None,
            answered_http1: false,
        }
    }

    /// The rule that the peer broke; the connection is over then.
    pub(crate) fn fault(&self) -> Option<ErrorCode> {
        self.fault
    }

    /// Whether the peer speaks HTTP/1 instead.
    pub(crate) fn answered_http1(&self) -> bool {
        self.answered_http1
    }

    /// Most streams at once that the peer allows; `None` before it has said so.
    pub(crate) fn streams_max(&self) -> Option<u32> {
        self.peer.received.then_some(self.lanes.streams_max)
    }

    /// Begins a stream. Returns how many bytes the head had.
    fn begin(&mut self, at: usize, bytes: &[u8]) -> Result<usize, SocketError> {
        if self.lanes.draining || self.fault.is_some() {
            return Err(SocketError::Refused);
        }
        let may_begin = self.lanes.active < self.lanes.streams_max && self.unsent().len() < OUT_BYTES_MAX;
        if !may_begin {
            self.lanes.wait(at);
            return Err(SocketError::AGAIN);
        }
        let (block, facts) = self.requests.encode(bytes, self.secure)?;
        let flags = if facts.body_bytes == 0 { flag::END_STREAM } else { 0 };
        frames::write_headers(&mut self.out, self.next_id, block, flags, self.peer.frame_max);
        let lane = &mut self.lanes[at];
        lane.begin(facts.is_head_request, self.peer.window, STREAM_WINDOW);
        (lane.body_left, lane.waits) = (facts.body_bytes, false);
        if facts.is_grpc {
            lane.call.begin(true);
        }
        self.lanes.open(at, self.next_id);
        self.next_id += 2;
        self.lanes.draining |= self.next_id > STREAM_LAST;
        Ok(facts.head_bytes)
    }

    /// Sends of a body what the windows allow. Returns how much.
    fn send_body(&mut self, at: usize, bytes: &[u8]) -> usize {
        let mut taken = 0;
        loop {
            let lane = &mut self.lanes[at];
            let left = (bytes.len() - taken).min(usize::try_from(lane.body_left).unwrap_or(usize::MAX));
            if left == 0 {
                return taken;
            }
            let window = usize::try_from(lane.send_window.min(self.send_window)).unwrap_or(0);
            let count = left.min(window).min(self.peer.frame_max);
            if count == 0 || self.out.len() - self.out_at >= OUT_BYTES_MAX {
                lane.waits = true;
                return taken;
            }
            lane.body_left -= count as u64;
            lane.send_window -= count as i64;
            self.send_window -= count as i64;
            let flags = if lane.body_left == 0 { flag::END_STREAM } else { 0 };
            frames::write_head(&mut self.out, count, kind::DATA, flags, self.lanes.ids[at]);
            self.out.extend_from_slice(&bytes[taken..taken + count]);
            taken += count;
            self.quiet_frames = 0;
        }
    }

    /// The peer has ended a stream.
    fn end(&mut self, at: usize, grpc_status: Option<u16>) {
        let lane = &mut self.lanes[at];
        if !lane.end(grpc_status) {
            return self.malformed(at);
        }
        let sent = lane.body_left == 0;
        self.lanes.touch(at);
        if sent {
            self.lanes.release(at);
        }
    }

    /// A response that breaks the rules: an error of its stream.
    fn malformed(&mut self, at: usize) {
        self.cancel(at, ErrorCode::Protocol);
        self.lanes[at].failed = Some(Err(SocketError::Protocol));
        self.lanes.touch(at);
    }

    /// Resets the stream of a lane, if one is open.
    fn cancel(&mut self, at: usize, code: ErrorCode) {
        let id = self.lanes.ids[at];
        if id != 0 {
            if self.fault.is_none() {
                frames::write_number(&mut self.out, kind::RST_STREAM, id, code as u32);
            }
            self.cancelled_max = self.cancelled_max.max(id);
            self.lanes.release(at);
        }
    }

    /// Memory that it holds for the peer.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn memory_bytes(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |block| block.bytes.capacity());
        self.out.capacity() + self.input.capacity() + block + self.lanes.memory_bytes()
    }
}

impl Multiplex for Connection {
    type Context = ();

    fn open((): &mut (), origin: &Origin, _: u64) -> Result<Self, SocketError> {
        Ok(Self::new(origin.server_name.is_some()))
    }

    #[inline]
    fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    #[inline]
    fn lanes_mut(&mut self) -> &mut Lanes {
        &mut self.lanes
    }

    fn detach(&mut self, lane: u32) {
        self.cancel(lane as usize, ErrorCode::Cancel);
        self.lanes.vacate(lane as usize);
    }

    fn send(&mut self, lane: u32, bytes: &[u8]) -> Result<usize, SocketError> {
        let at = lane as usize;
        let mut taken = 0;
        if self.lanes[at].body_left == 0 {
            taken = self.begin(at, bytes)?;
        }
        let body_left = self.lanes[at].body_left;
        if body_left == 0 {
            return Ok(bytes.len());
        }
        let lane = &self.lanes[at];
        if lane.ended || lane.failed.is_some() {
            // As on a socket whose peer has closed: what can be read decides.
            return if taken > 0 { Ok(taken) } else { Err(Errno::PIPE.into()) };
        }
        taken += self.send_body(at, &bytes[taken..]);
        match taken {
            0 => Err(SocketError::AGAIN),
            _ => Ok(taken),
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        if self.fault.is_some() {
            return;
        }
        self.answered_http1 |= !self.peer.received && self.input.is_empty() && bytes.starts_with(b"HTTP/1");
        if let Err(code) = self.receive_frames(bytes) {
            self.fault = Some(code);
            self.input = vec![];
            self.block = None;
            frames::write_goaway(&mut self.out, code);
            self.hang_up(Err(SocketError::Protocol));
        }
    }

    fn close(&mut self) {
        if self.fault.is_none() {
            frames::write_goaway(&mut self.out, ErrorCode::NoError);
        }
    }

    #[inline]
    fn is_faulty(&self) -> bool {
        self.fault.is_some()
    }

    #[inline]
    fn unsent(&self) -> &[u8] {
        &self.out[self.out_at..]
    }

    fn sent(&mut self, count: usize) {
        self.out_at += count;
        if self.out_at == self.out.len() {
            let was_full = self.out.len() >= OUT_BYTES_MAX;
            self.out.clear();
            self.out_at = 0;
            if was_full {
                self.out.shrink_to(OUT_BYTES_MAX);
                self.lanes.touch_waiting();
            }
        }
    }
}
