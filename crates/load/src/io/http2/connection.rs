//! One connection of HTTP/2, pure: bytes of the peer come in, responses and bytes for the peer go out. RFC 9113.
//!
//! What the peer may make us hold is bounded everywhere: windows, the block of a header, its fields, what waits to be
//! sent. Frames that carry nothing are counted, so that a flood of them ends the connection.

use super::frames::{self, ErrorCode, FrameHead, PAYLOAD_BYTES_MAX, WINDOW_DEFAULT, WINDOW_MAX, flag, kind, setting};
use super::lane::Lane;
use super::request::RequestEncoder;
use super::response::{LIST_BYTES_MAX, ResponseBlock, ResponseDecoder};
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
    pub(crate) fn read(&mut self, lane: u32, buffer: Option<&mut [u8]>, room: usize) -> Result<usize, SocketError> {
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

    fn receive_frames(&mut self, mut bytes: &[u8]) -> Result<(), ErrorCode> {
        if !self.input.is_empty() {
            let mut input = std::mem::take(&mut self.input);
            bytes = top_up(&mut input, bytes, frames::HEAD_BYTES);
            if let Some(head) = FrameHead::read(&input) {
                check_length(head)?;
                bytes = top_up(&mut input, bytes, frames::HEAD_BYTES + head.length);
                if input.len() == frames::HEAD_BYTES + head.length {
                    self.frame(head, &input[frames::HEAD_BYTES..])?;
                    input.clear();
                }
            }
            // Kept, so that its memory is used again.
            self.input = input;
            if !self.input.is_empty() {
                return Ok(());
            }
        }
        while let Some(head) = FrameHead::read(bytes) {
            check_length(head)?;
            let Some((frame, rest)) = bytes.split_at_checked(frames::HEAD_BYTES + head.length) else { break };
            self.frame(head, &frame[frames::HEAD_BYTES..])?;
            bytes = rest;
        }
        self.input.extend_from_slice(bytes);
        Ok(())
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        if let Some(block) = &self.block
            && (head.kind, head.stream) != (kind::CONTINUATION, block.stream)
        {
            return Err(ErrorCode::Protocol);
        }
        if !self.peer.received && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(ErrorCode::Protocol);
        }
        self.quiet_frames += 1;
        if self.quiet_frames > QUIET_FRAMES_MAX {
            return Err(ErrorCode::EnhanceYourCalm);
        }
        match head.kind {
            kind::DATA => self.data(head, payload),
            kind::HEADERS => self.headers(head, payload),
            kind::CONTINUATION => self.continuation(head, payload),
            kind::SETTINGS => self.settings(head, payload),
            kind::WINDOW_UPDATE => self.window_update(head, payload),
            kind::RST_STREAM => self.reset(head, payload),
            kind::PING => self.ping(head, payload),
            kind::GOAWAY => self.goaway(head, payload),
            kind::PUSH_PROMISE => Err(ErrorCode::Protocol),
            kind::PRIORITY if head.stream == 0 => Err(ErrorCode::Protocol),
            kind::PRIORITY if head.length != 5 => Err(ErrorCode::FrameSize),
            // Ignored: priorities, and what is not known (section 4.1).
            _ => Ok(()),
        }
    }

    /// The lane of a stream; `None` for one that is gone. An error for one that never was, or that its peer has ended.
    #[inline]
    fn lane_of(&self, stream: u32) -> Result<Option<usize>, ErrorCode> {
        if let Some(at) = self.ids.iter().position(|&id| id == stream).filter(|_| stream != 0) {
            return Ok(Some(at));
        }
        match stream.is_multiple_of(2) || stream >= self.next_id {
            true => Err(ErrorCode::Protocol),
            false => Ok(None),
        }
    }

    /// What comes for a stream that is gone: not wrong after we have cancelled one as late as this.
    fn check_gone(&self, stream: u32) -> Result<(), ErrorCode> {
        if stream <= self.cancelled_max { Ok(()) } else { Err(ErrorCode::StreamClosed) }
    }

    fn data(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        let lane = self.lane_of(head.stream)?;
        let body = frames::without_padding(head, payload).ok_or(ErrorCode::Protocol)?;
        let length = head.length as i64;
        self.receive_window -= length;
        if self.receive_window < 0 {
            return Err(ErrorCode::FlowControl);
        }
        if self.receive_window < CONNECTION_WINDOW / 2 {
            let more = (CONNECTION_WINDOW - self.receive_window) as u32;
            frames::write_number(&mut self.out, kind::WINDOW_UPDATE, 0, more);
            self.receive_window = CONNECTION_WINDOW;
        }
        let Some(at) = lane else { return self.check_gone(head.stream) };
        if !body.is_empty() {
            self.quiet_frames = 0;
        }
        let lane = &mut self.lanes[at];
        if lane.ended {
            return Err(ErrorCode::StreamClosed);
        }
        lane.receive_window -= length;
        if lane.receive_window < 0 {
            return Err(ErrorCode::FlowControl);
        }
        let ends = head.has(flag::END_STREAM);
        if lane.receive_window < STREAM_WINDOW / 2 && !ends {
            let more = (STREAM_WINDOW - lane.receive_window) as u32;
            frames::write_number(&mut self.out, kind::WINDOW_UPDATE, head.stream, more);
            lane.receive_window = STREAM_WINDOW;
        }
        if !lane.add_body(body) {
            self.malformed(at);
            return Ok(());
        }
        self.touch(at);
        if ends {
            self.end(at);
        }
        Ok(())
    }

    fn headers(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        self.lane_of(head.stream)?;
        let mut block = frames::without_padding(head, payload).ok_or(ErrorCode::Protocol)?;
        if head.has(flag::PRIORITY) {
            block = block.get(5..).ok_or(ErrorCode::FrameSize)?;
        }
        let ends = head.has(flag::END_STREAM);
        match head.has(flag::END_HEADERS) {
            true => self.whole_block(head.stream, ends, block),
            false => {
                self.block = Some(OpenBlock { stream: head.stream, ends, bytes: block.to_vec(), frames: 1 });
                Ok(())
            }
        }
    }

    fn continuation(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        let block = self.block.as_mut().ok_or(ErrorCode::Protocol)?;
        block.bytes.extend_from_slice(payload);
        block.frames += 1;
        if block.frames > BLOCK_FRAMES_MAX || block.bytes.len() > BLOCK_BYTES_MAX {
            return Err(ErrorCode::EnhanceYourCalm);
        }
        match self.block.take_if(|_| head.has(flag::END_HEADERS)) {
            Some(block) => self.whole_block(block.stream, block.ends, &block.bytes),
            None => Ok(()),
        }
    }

    fn whole_block(&mut self, stream: u32, ends: bool, block: &[u8]) -> Result<(), ErrorCode> {
        let wrong = |_| ErrorCode::Compression;
        let Some(at) = self.lane_of(stream)? else {
            self.responses.skip(block).map_err(wrong)?;
            return self.check_gone(stream);
        };
        let lane = &mut self.lanes[at];
        if lane.ended {
            return Err(ErrorCode::StreamClosed);
        }
        self.quiet_frames = 0;
        if lane.framing.is_some() {
            // Trailers end the stream; what they say has no use here.
            match self.responses.skip(block).map_err(wrong)? && ends {
                true => self.end(at),
                false => self.malformed(at),
            }
            return Ok(());
        }
        let is_head_request = lane.is_head_request;
        match self.responses.head(block, is_head_request, ends, lane.inbox()).map_err(wrong)? {
            ResponseBlock::Malformed => self.malformed(at),
            ResponseBlock::Interim => self.touch(at),
            ResponseBlock::Head(framing) => {
                lane.framing = Some(framing);
                self.touch(at);
                if ends {
                    self.end(at);
                }
            }
        }
        Ok(())
    }

    fn settings(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        if head.stream != 0 {
            return Err(ErrorCode::Protocol);
        }
        if head.has(flag::ACK) {
            return if head.length == 0 { Ok(()) } else { Err(ErrorCode::FrameSize) };
        }
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(ErrorCode::FrameSize);
        }
        if !self.peer.received {
            // Without a word of it there is no limit.
            (self.peer.received, self.peer.streams_max) = (true, u32::MAX);
        }
        for [name_high, name_low, value @ ..] in settings {
            let name = u16::from_be_bytes([*name_high, *name_low]);
            self.setting(name, u32::from_be_bytes(*value))?;
        }
        self.answer(0, kind::SETTINGS, &[])?;
        self.touch_waiting();
        Ok(())
    }

    fn setting(&mut self, name: u16, value: u32) -> Result<(), ErrorCode> {
        match name {
            setting::HEADER_TABLE_SIZE => self.requests.limit_table(value as usize),
            setting::ENABLE_PUSH if value != 0 => return Err(ErrorCode::Protocol),
            setting::MAX_CONCURRENT_STREAMS => self.peer.streams_max = value,
            setting::INITIAL_WINDOW_SIZE => {
                if i64::from(value) > WINDOW_MAX {
                    return Err(ErrorCode::FlowControl);
                }
                let change = i64::from(value) - self.peer.window;
                self.peer.window = i64::from(value);
                for (lane, id) in self.lanes.iter_mut().zip(&self.ids) {
                    if *id != 0 {
                        lane.send_window += change;
                        if lane.send_window > WINDOW_MAX {
                            return Err(ErrorCode::FlowControl);
                        }
                    }
                }
            }
            setting::MAX_FRAME_SIZE => {
                if !(PAYLOAD_BYTES_MAX..1 << 24).contains(&(value as usize)) {
                    return Err(ErrorCode::Protocol);
                }
                // Longer frames than by default would only hold others up.
            }
            _ => {}
        }
        Ok(())
    }

    fn window_update(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        if head.length != 4 {
            return Err(ErrorCode::FrameSize);
        }
        let more = i64::from(frames::number(payload) & 0x7fff_ffff);
        if head.stream == 0 {
            self.send_window += more;
            if more == 0 {
                return Err(ErrorCode::Protocol);
            }
            if self.send_window > WINDOW_MAX {
                return Err(ErrorCode::FlowControl);
            }
            self.touch_waiting();
            return Ok(());
        }
        let Some(at) = self.lane_of(head.stream)? else { return Ok(()) };
        let lane = &mut self.lanes[at];
        lane.send_window += more;
        if more == 0 || lane.send_window > WINDOW_MAX {
            self.malformed(at);
        } else if std::mem::take(&mut lane.waits) {
            self.touch(at);
        }
        Ok(())
    }

    fn reset(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        if head.length != 4 {
            return Err(ErrorCode::FrameSize);
        }
        let Some(at) = self.lane_of(head.stream)? else { return Ok(()) };
        self.quiet_frames = 0;
        // After the end of the response it only says that no more of the request is wanted.
        match frames::number(payload) {
            _ if self.lanes[at].ended => self.release(at),
            code if code == ErrorCode::RefusedStream as u32 => self.fail(at, Err(SocketError::Refused)),
            _ => self.fail(at, Err(Errno::CONNRESET.into())),
        }
        Ok(())
    }

    fn ping(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        match () {
            () if head.stream != 0 => Err(ErrorCode::Protocol),
            () if head.length != 8 => Err(ErrorCode::FrameSize),
            () if head.has(flag::ACK) => Ok(()),
            () => self.answer(head.length, kind::PING, payload),
        }
    }

    fn goaway(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        if head.stream != 0 {
            return Err(ErrorCode::Protocol);
        }
        if head.length < 8 {
            return Err(ErrorCode::FrameSize);
        }
        let last = frames::number(payload) & 0x7fff_ffff;
        self.draining = true;
        for at in 0..self.lanes.len() {
            match self.ids[at] {
                0 => self.touch(at),
                // It was not processed, and will not be: section 6.8.
                id if id > last => self.fail(at, Err(SocketError::Refused)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Answers a frame with an acknowledgement.
    fn answer(&mut self, length: usize, kind: u8, payload: &[u8]) -> Result<(), ErrorCode> {
        if self.unsent().len() > OUT_BYTES_MAX {
            // A peer that asks and does not read.
            return Err(ErrorCode::EnhanceYourCalm);
        }
        frames::write_head(&mut self.out, length, kind, flag::ACK, 0);
        self.out.extend_from_slice(payload);
        Ok(())
    }

    /// The peer has ended a stream.
    fn end(&mut self, at: usize) {
        let lane = &mut self.lanes[at];
        if !lane.end() {
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

/// Frames longer than we allow are refused before they have come.
fn check_length(head: FrameHead) -> Result<(), ErrorCode> {
    if head.length > PAYLOAD_BYTES_MAX { Err(ErrorCode::FrameSize) } else { Ok(()) }
}

/// Adds to `input` until it has `wanted` bytes. Returns what is left.
fn top_up<'a>(input: &mut Vec<u8>, bytes: &'a [u8], wanted: usize) -> &'a [u8] {
    let (more, rest) = bytes.split_at(wanted.saturating_sub(input.len()).min(bytes.len()));
    input.extend_from_slice(more);
    rest
}
