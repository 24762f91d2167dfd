//! One connection of HTTP/2, pure: bytes of the peer come in, responses and bytes for the peer go out. RFC 9113.
//!
//! What the peer may make us hold is bounded everywhere: windows, the block of a header, its fields, what waits to be
//! sent. Frames that carry nothing are counted, so that a flood of them ends the connection.

mod incoming;

use super::frames::{self, ErrorCode, PAYLOAD_BYTES_MAX, WINDOW_DEFAULT, flag, kind, setting};
use super::lane::Lane;
use super::request::RequestEncoder;
use super::response::{LIST_BYTES_MAX, ResponseDecoder};
use crate::io::network_io::SocketError;
use rustix::io::Errno;
use std::collections::VecDeque;

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
    streams_max: u32,
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
    responses: ResponseDecoder,
    requests: RequestEncoder,
    lanes: Vec<Lane>,
    /// By lane: the stream that is open on it, 0 for none.
    ids: Vec<u32>,
    next_id: u32,
    active: u32,
    peer: PeerSettings,
    send_window: i64,
    receive_window: i64,
    block: Option<OpenBlock>,
    /// Lanes of which the engine is to be told.
    touched: Vec<u32>,
    /// Lanes that wait for a stream.
    waiting: VecDeque<u32>,
    /// The lane that is the first to try again when several may.
    turn: usize,
    /// The highest stream that we have cancelled: what still comes for it is not wrong.
    cancelled_max: u32,
    quiet_frames: u32,
    /// No further stream is begun.
    draining: bool,
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
            lanes: vec![],
            ids: vec![],
            next_id: 1,
            active: 0,
            peer: PeerSettings {
                received: false,
                streams_max: STREAMS_UNTIL_SETTINGS,
                window: WINDOW_DEFAULT,
                frame_max: PAYLOAD_BYTES_MAX,
            },
            send_window: WINDOW_DEFAULT,
            receive_window: CONNECTION_WINDOW,
            block: None,
            touched: vec![],
            waiting: VecDeque::new(),
            turn: 0,
            cancelled_max: 0,
            quiet_frames: 0,
            draining: false,
            fault: None,
            answered_http1: false,
        }
    }

    /// A lane for the engine's slot of this token.
    pub(crate) fn attach(&mut self, token: u64) -> u32 {
        let index = self.lanes.iter().position(|lane| !lane.taken).unwrap_or_else(|| {
            self.lanes.push(Lane::default());
            self.ids.push(0);
            self.lanes.len() - 1
        });
        let lane = &mut self.lanes[index];
        lane.begin(false, 0, 0);
        (lane.token, lane.taken, lane.waits) = (token, true, false);
        index as u32
    }

    /// Gives a lane up; its stream, if one is open, is cancelled.
    pub(crate) fn detach(&mut self, lane: u32) {
        self.cancel(lane as usize, ErrorCode::Cancel);
        let lane = &mut self.lanes[lane as usize];
        lane.begin(false, 0, 0);
        (lane.taken, lane.waits) = (false, false);
    }

    /// Whether a request is in progress on a lane.
    pub(crate) fn is_active(&self, lane: u32) -> bool {
        self.ids[lane as usize] != 0
    }

    /// No further request is begun here: the peer has said so, or there are no numbers left for streams.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining
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
        self.peer.received.then_some(self.peer.streams_max)
    }

    /// Bytes for the peer.
    #[inline]
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.out[self.out_at..]
    }

    /// So many of them were sent.
    pub(crate) fn sent(&mut self, count: usize) {
        self.out_at += count;
        if self.out_at == self.out.len() {
            let was_full = self.out.len() >= OUT_BYTES_MAX;
            self.out.clear();
            self.out_at = 0;
            if was_full {
                self.out.shrink_to(OUT_BYTES_MAX);
                self.touch_waiting();
            }
        }
    }

    /// Ends the connection from our side.
    pub(crate) fn close(&mut self) {
        if self.fault.is_none() {
            frames::write_goaway(&mut self.out, ErrorCode::NoError);
        }
    }

    /// The lanes that have something new since the last call, each with its token and whether a read gives anything.
    pub(crate) fn take_touched(&mut self, mut tell: impl FnMut(u64, bool, bool)) {
        for index in 0..self.touched.len() {
            let at = self.touched[index] as usize;
            let gone = self.draining && self.ids[at] == 0;
            let lane = &mut self.lanes[at];
            lane.touched = false;
            if lane.taken {
                tell(lane.token, gone || lane.is_readable(), gone);
            }
        }
        self.touched.clear();
    }

    /// The token of a lane.
    pub(crate) fn token(&self, lane: u32) -> u64 {
        self.lanes[lane as usize].token
    }

    /// The tokens of the lanes that are taken.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = u64> {
        self.lanes.iter().filter(|lane| lane.taken).map(|lane| lane.token)
    }

    /// Takes bytes of a request (a whole head, as the engine has it for HTTP/1.1, or more of a body). `AGAIN` when there
    /// is no stream or no window for it yet: the lane is touched when there is.
    pub(crate) fn send(&mut self, lane: u32, bytes: &[u8]) -> Result<usize, SocketError> {
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

    /// Begins a stream. Returns how many bytes the head had.
    fn begin(&mut self, at: usize, bytes: &[u8]) -> Result<usize, SocketError> {
        if self.draining || self.fault.is_some() {
            return Err(SocketError::Refused);
        }
        // One that waits longer has its turn first.
        let may_begin = self.active < self.peer.streams_max && self.unsent().len() < OUT_BYTES_MAX;
        if !may_begin {
            let lane = &mut self.lanes[at];
            if !std::mem::replace(&mut lane.waits, true) {
                self.waiting.push_back(at as u32);
            }
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
        self.ids[at] = self.next_id;
        self.active += 1;
        self.next_id += 2;
        self.draining |= self.next_id > STREAM_LAST;
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
            frames::write_head(&mut self.out, count, kind::DATA, flags, self.ids[at]);
            self.out.extend_from_slice(&bytes[taken..taken + count]);
            taken += count;
            self.quiet_frames = 0;
        }
    }

    /// Reads of a response into `buffer`, or drops up to `room` bytes of it.
    #[inline]
    pub(crate) fn read(
        &mut self,
        lane: u32,
        buffer: Option<&mut [u8]>,
        room: usize,
    ) -> Result<usize, SocketError> {
        let at = lane as usize;
        match self.lanes[at].read(buffer, room) {
            Err(SocketError::AGAIN) if self.draining && self.ids[at] == 0 => Ok(0),
            done => done,
        }
    }

    /// The connection is over: closed by the peer between frames, or broken. What came before can still be read.
    pub(crate) fn hang_up(&mut self, end: Result<(), SocketError>) {
        self.draining = true;
        for at in 0..self.lanes.len() {
            match self.ids[at] {
                0 => self.touch(at),
                _ => self.fail(at, end),
            }
        }
    }

    /// Takes bytes of the peer.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
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

    /// The peer has ended a stream.
    fn end(&mut self, at: usize, grpc_status: Option<u16>) {
        let lane = &mut self.lanes[at];
        if !lane.end(grpc_status) {
            return self.malformed(at);
        }
        let sent = lane.body_left == 0;
        self.touch(at);
        if sent {
            self.release(at);
        }
    }

    /// A response that breaks the rules: an error of its stream.
    fn malformed(&mut self, at: usize) {
        self.cancel(at, ErrorCode::Protocol);
        self.lanes[at].failed = Some(Err(SocketError::Protocol));
        self.touch(at);
    }

    /// The stream of a lane failed.
    fn fail(&mut self, at: usize, end: Result<(), SocketError>) {
        // One that has its whole response has not failed.
        if !self.lanes[at].ended {
            self.lanes[at].failed = Some(end);
        }
        self.release(at);
        self.touch(at);
    }

    /// Resets the stream of a lane, if one is open.
    fn cancel(&mut self, at: usize, code: ErrorCode) {
        let id = self.ids[at];
        if id != 0 {
            if self.fault.is_none() {
                frames::write_number(&mut self.out, kind::RST_STREAM, id, code as u32);
            }
            self.cancelled_max = self.cancelled_max.max(id);
            self.release(at);
        }
    }

    /// The stream of a lane is over: another one may begin.
    fn release(&mut self, at: usize) {
        self.ids[at] = 0;
        self.active -= 1;
        while self.active < self.peer.streams_max
            && let Some(next) = self.waiting.pop_front()
        {
            if std::mem::take(&mut self.lanes[next as usize].waits) {
                self.touch(next as usize);
                break;
            }
        }
        if self.draining {
            self.touch(at);
        }
    }

    /// Lets all that wait try again.
    fn touch_waiting(&mut self) {
        self.waiting.clear();
        // Another one is the first each time, as the first may take all that there is.
        let (count, first) = (self.lanes.len(), self.turn);
        self.turn = if first + 1 < count { first + 1 } else { 0 };
        for at in (first..count).chain(0..first.min(count)) {
            if std::mem::take(&mut self.lanes[at].waits) {
                self.touch(at);
            }
        }
    }

    #[inline]
    fn touch(&mut self, at: usize) {
        let lane = &mut self.lanes[at];
        if lane.taken && !std::mem::replace(&mut lane.touched, true) {
            self.touched.push(at as u32);
        }
    }

    /// Memory that it holds for the peer.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn memory_bytes(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |block| block.bytes.capacity());
        let lanes: usize = self.lanes.iter().map(Lane::memory_bytes).sum();
        self.out.capacity() + self.input.capacity() + block + lanes
    }
}
