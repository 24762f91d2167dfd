//! What the peer sends: frames, each by its kind. RFC 9113, sections 5.1 and 6.

use super::{
    BLOCK_BYTES_MAX, BLOCK_FRAMES_MAX, CONNECTION_WINDOW, Connection, OUT_BYTES_MAX, OpenBlock,
    QUIET_FRAMES_MAX, STREAM_WINDOW,
};
use crate::io::http2::frames::{
    self, ErrorCode, FrameHead, PAYLOAD_BYTES_MAX, WINDOW_MAX, flag, kind, setting,
};
use crate::io::multiplexed::multiplex::Multiplex as _;
use crate::io::multiplexed::response::ResponseBlock;
use crate::io::network_io::SocketError;

impl Connection {
    pub(super) fn receive_frames(&mut self, mut bytes: &[u8]) -> Result<(), ErrorCode> {
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
        if let Some(at) = self.lanes.position(stream) {
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
        // Given back as it comes, and not as it is read: the engine reads all that is there in each pass.
        self.receive_window -= length;
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
        self.lanes.touch(at);
        if ends {
            self.end(at, None);
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
            // Trailers end the stream.
            match self.responses.skip(block).map_err(wrong)? {
                (true, grpc_status) if ends => self.end(at, grpc_status),
                _ => self.malformed(at),
            }
            return Ok(());
        }
        let is_head_request = lane.is_head_request;
        match self.responses.head(block, is_head_request, ends, lane.inbox()).map_err(wrong)? {
            ResponseBlock::Malformed => self.malformed(at),
            ResponseBlock::Interim => {
                lane.call.head.clear();
                self.lanes.touch(at);
            }
            ResponseBlock::Head(framing) => {
                lane.framing = Some(framing);
                self.lanes.touch(at);
                if ends {
                    self.end(at, None);
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
            (self.peer.received, self.lanes.streams_max) = (true, u32::MAX);
        }
        for [name_high, name_low, value @ ..] in settings {
            let name = u16::from_be_bytes([*name_high, *name_low]);
            self.setting(name, u32::from_be_bytes(*value))?;
        }
        self.answer(0, kind::SETTINGS, &[])?;
        self.lanes.touch_waiting();
        Ok(())
    }

    fn setting(&mut self, name: u16, value: u32) -> Result<(), ErrorCode> {
        match name {
            setting::HEADER_TABLE_SIZE => self.requests.encoder_mut().limit_table(value as usize),
            setting::ENABLE_PUSH if value != 0 => return Err(ErrorCode::Protocol),
            setting::MAX_CONCURRENT_STREAMS => self.lanes.streams_max = value,
            setting::INITIAL_WINDOW_SIZE => {
                if i64::from(value) > WINDOW_MAX {
                    return Err(ErrorCode::FlowControl);
                }
                let change = i64::from(value) - self.peer.window;
                self.peer.window = i64::from(value);
                for lane in self.lanes.open_mut() {
                    lane.send_window += change;
                    if lane.send_window > WINDOW_MAX {
                        return Err(ErrorCode::FlowControl);
                    }
                }
            }
            // Longer frames than by default would only hold others up.
            setting::MAX_FRAME_SIZE if !(PAYLOAD_BYTES_MAX..1 << 24).contains(&(value as usize)) => {
                return Err(ErrorCode::Protocol);
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
            self.lanes.touch_waiting();
            return Ok(());
        }
        let Some(at) = self.lane_of(head.stream)? else { return Ok(()) };
        let lane = &mut self.lanes[at];
        lane.send_window += more;
        if more == 0 || lane.send_window > WINDOW_MAX {
            self.malformed(at);
        } else if std::mem::take(&mut lane.waits) {
            self.lanes.touch(at);
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
            _ if self.lanes[at].ended => self.lanes.release(at),
            code if code == ErrorCode::RefusedStream as u32 => self.lanes.fail(at, Err(SocketError::Refused)),
            _ => self.lanes.fail(at, Err(SocketError::StreamReset)),
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
        // What lies behind it was not processed, and will not be: section 6.8.
        self.lanes.refuse_after(last);
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
