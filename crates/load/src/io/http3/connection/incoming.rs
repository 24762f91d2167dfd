//! What the peer sends: what QUIC tells of its streams, and their frames. RFC 9114, sections 4.1, 6.2 and 7.2.

use super::{Connection, PeerStream, request_stream};
use crate::io::http3::frames::{self, ErrorCode, FrameReader, Piece, Place, kind, setting, stream};
use crate::io::http3::qpack::QpackError;
use crate::io::multiplexed::response::ResponseBlock;
use crate::io::network_io::{Handshake, SocketError};
use quinn_proto::{ConnectionError, Dir, Event, ReadError, Side, StreamEvent, StreamId, VarInt};
use rustix::io::Errno;
use std::time::Instant;

/// Most frames in a row that carry nothing: no head, no body.
const QUIET_FRAMES_MAX: u32 = 4096;

/// How the reading of a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadEnd {
    /// More may come.
    Open,
    /// It is whole.
    Whole,
    /// The peer gave it up.
    Reset(VarInt),
}

impl Connection {
    pub(super) fn nanoseconds(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.base).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Handles all that QUIC has to tell.
    pub(super) fn drive(&mut self) {
        if self.fault.is_none()
            && let Err(code) = self.handle_events()
        {
            self.break_off(code);
        }
    }

    fn handle_events(&mut self) -> Result<(), ErrorCode> {
        loop {
            while let Some(event) = self.quic.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                    self.quic.handle_event(event);
                }
            }
            let Some(event) = self.quic.poll() else { return Ok(()) };
            match event {
                Event::Connected => self.connected()?,
                Event::ConnectionLost { reason } => self.connection_lost(reason),
                Event::Stream(event) => self.stream_event(event)?,
                Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => {}
            }
        }
    }

    fn connected(&mut self) -> Result<(), ErrorCode> {
        if let Handshake::InProgress { started_ns } = self.handshake {
            let ended_ns = self.nanoseconds(self.now);
            self.handshake = Handshake::Done { started_ns, ended_ns, resumed: !self.checked_certificate };
        }
        self.greet()
    }

    fn connection_lost(&mut self, reason: ConnectionError) {
        let no_error = |code: u64| code == ErrorCode::NoError as u64;
        let end = match &reason {
            ConnectionError::ApplicationClosed(close) if no_error(close.error_code.into()) => Ok(()),
            ConnectionError::ConnectionClosed(close) if u64::from(close.error_code) == 0 => Ok(()),
            // As with a connection of TCP that a server closes when it is idle.
            ConnectionError::TimedOut | ConnectionError::LocallyClosed => Ok(()),
            ConnectionError::TransportError(_) | ConnectionError::VersionMismatch => {
                Err(SocketError::Protocol)
            }
            _ => Err(Errno::CONNRESET.into()),
        };
        self.lost = Some(reason);
        self.lanes.hang_up(end);
    }

    fn stream_event(&mut self, event: StreamEvent) -> Result<(), ErrorCode> {
        match event {
            StreamEvent::Opened { dir: Dir::Uni } => {
                while let Some(id) = self.quic.streams().accept(Dir::Uni) {
                    let reader = FrameReader::default();
                    self.peer_streams.push(PeerStream {
                        id,
                        kind: None,
                        head: vec![],
                        reader,
                        in_number: false,
                    });
                    self.read_peer_stream(id)?;
                }
                Ok(())
            }
            StreamEvent::Readable { id } if id.initiator() == Side::Client => self.read_response(id),
            StreamEvent::Readable { id } => self.read_peer_stream(id),
            StreamEvent::Writable { id } => {
                self.with_room(id);
                Ok(())
            }
            StreamEvent::Stopped { id, error_code } => self.stopped(id, error_code),
            StreamEvent::Available { dir: Dir::Bi } => {
                self.lanes.touch_waiting();
                Ok(())
            }
            StreamEvent::Opened { .. } | StreamEvent::Finished { .. } | StreamEvent::Available { .. } => {
                Ok(())
            }
        }
    }

    /// The lane of a stream that is open.
    fn lane_of(&self, id: StreamId) -> Option<usize> {
        let is_request = id.initiator() == Side::Client && id.dir() == Dir::Bi;
        is_request.then(|| self.lanes.position(u32::try_from(id.index() + 1).ok()?))?
    }

    /// There is room for more of a request.
    fn with_room(&mut self, id: StreamId) {
        let Some(at) = self.lane_of(id) else { return };
        if self.write_head(at) && std::mem::take(&mut self.lanes[at].waits) {
            self.lanes.touch(at);
        }
    }

    /// The peer wants no more of a request: it has answered already, will not, or did not look at it.
    fn stopped(&mut self, id: StreamId, code: VarInt) -> Result<(), ErrorCode> {
        let Some(at) = self.lane_of(id) else {
            // It was our control stream, unless its request has ended.
            return if id.dir() == Dir::Uni { Err(ErrorCode::ClosedCriticalStream) } else { Ok(()) };
        };
        let _ = self.quic.send_stream(id).reset(code);
        self.is_dirty = true;
        self.streams[at].stopped = true;
        self.lanes[at].waits = false;
        if u64::from(code) == ErrorCode::RequestRejected as u64 {
            self.lanes.fail(at, Err(SocketError::Refused));
        }
        self.lanes.touch(at);
        Ok(())
    }

    /// Takes what has come on a stream, piece by piece.
    fn read_stream(
        &mut self,
        id: StreamId,
        mut take: impl FnMut(&mut Self, &[u8]) -> Result<bool, ErrorCode>,
    ) -> Result<ReadEnd, ErrorCode> {
        let mut chunks = std::mem::take(&mut self.chunks);
        let end = match self.quic.recv_stream(id).read(true) {
            // It was given up.
            Err(_) => ReadEnd::Open,
            Ok(mut read) => loop {
                match read.next(usize::MAX) {
                    Ok(Some(chunk)) => chunks.push(chunk.bytes),
                    Ok(None) => break ReadEnd::Whole,
                    Err(ReadError::Blocked) => break ReadEnd::Open,
                    Err(ReadError::Reset(code)) => break ReadEnd::Reset(code),
                }
            },
        };
        let mut goes_on = Ok(true);
        for chunk in chunks.drain(..) {
            if goes_on == Ok(true) {
                goes_on = take(self, &chunk);
            }
        }
        self.chunks = chunks;
        Ok(if goes_on? { end } else { ReadEnd::Open })
    }

    fn read_response(&mut self, id: StreamId) -> Result<(), ErrorCode> {
        let Some(at) = self.lane_of(id) else { return Ok(()) };
        match self.read_stream(id, |connection, bytes| connection.response_bytes(id, at, bytes))? {
            ReadEnd::Open => {}
            ReadEnd::Whole if !self.streams[at].reader.is_between() => return Err(ErrorCode::Frame),
            ReadEnd::Whole => self.end(at),
            ReadEnd::Reset(code) => {
                let rejected = u64::from(code) == ErrorCode::RequestRejected as u64;
                let error = if rejected { SocketError::Refused } else { SocketError::StreamReset };
                // Nothing of the request is wanted any more either.
                let _ = self.quic.send_stream(id).reset(code);
                self.lanes.fail(at, Err(error));
            }
        }
        Ok(())
    }

    /// Takes bytes of a response. Whether more of them are wanted.
    fn response_bytes(&mut self, id: StreamId, at: usize, mut bytes: &[u8]) -> Result<bool, ErrorCode> {
        let mut reader = std::mem::take(&mut self.streams[at].reader);
        let done = loop {
            if self.lanes.ids[at] == 0 || request_stream(self.lanes.ids[at]) != id {
                // It was malformed.
                break Ok(false);
            }
            match reader.next(&mut bytes, Place::Request) {
                Err(code) => break Err(code),
                Ok(None) => break Ok(true),
                Ok(Some(piece)) => {
                    if let Err(code) = self.piece(at, &piece) {
                        break Err(code);
                    }
                }
            }
        };
        self.streams[at].reader = reader;
        done
    }

    fn piece(&mut self, at: usize, piece: &Piece<'_>) -> Result<(), ErrorCode> {
        self.quiet_frames += 1;
        if self.quiet_frames > QUIET_FRAMES_MAX {
            return Err(ErrorCode::ExcessiveLoad);
        }
        match piece {
            Piece::Body(_) if self.lanes[at].framing.is_none() || self.streams[at].trailers_came => {
                Err(ErrorCode::FrameUnexpected)
            }
            Piece::Body(bytes) => {
                if !bytes.is_empty() {
                    self.quiet_frames = 0;
                }
                match self.lanes[at].add_body(bytes) {
                    true => self.lanes.touch(at),
                    false => self.malformed(at),
                }
                Ok(())
            }
            Piece::Frame(_, block) => self.headers(at, block),
            Piece::Unknown => Ok(()),
            Piece::TooLong => {
                self.malformed(at);
                Ok(())
            }
        }
    }

    fn headers(&mut self, at: usize, block: &[u8]) -> Result<(), ErrorCode> {
        self.quiet_frames = 0;
        let lane = &mut self.lanes[at];
        if lane.framing.is_some() {
            if std::mem::replace(&mut self.streams[at].trailers_came, true) {
                return Err(ErrorCode::FrameUnexpected);
            }
            match self.responses.skip(block) {
                Ok((true, _)) => {}
                Ok((false, _)) | Err(QpackError::TooLong) => self.malformed(at),
                Err(QpackError::Wrong) => return Err(ErrorCode::QpackDecompression),
            }
            return Ok(());
        }
        let is_head_request = lane.is_head_request;
        // Whether anything follows it is not known here.
        match self.responses.head(block, is_head_request, false, lane.inbox()) {
            Ok(ResponseBlock::Malformed) | Err(QpackError::TooLong) => self.malformed(at),
            Ok(ResponseBlock::Interim) => self.lanes.touch(at),
            Ok(ResponseBlock::Head(framing)) => {
                lane.framing = Some(framing);
                self.lanes.touch(at);
            }
            Err(QpackError::Wrong) => return Err(ErrorCode::QpackDecompression),
        }
        Ok(())
    }

    /// The peer has ended a response.
    fn end(&mut self, at: usize) {
        if !self.lanes[at].end(None) {
            return self.malformed(at);
        }
        self.lanes.touch(at);
        if self.lanes[at].body_left == 0 && self.streams[at].unwritten.is_empty() {
            self.lanes.release(at);
        }
    }

    fn read_peer_stream(&mut self, id: StreamId) -> Result<(), ErrorCode> {
        let Some(at) = self.peer_streams.iter().position(|stream| stream.id == id) else { return Ok(()) };
        let end =
            self.read_stream(id, |connection, bytes| connection.peer_bytes(at, bytes).map(|()| true))?;
        let kind = self.peer_streams[at].kind;
        let is_critical = matches!(kind, Some(stream::CONTROL | stream::ENCODER | stream::DECODER));
        match end {
            ReadEnd::Open if is_critical || kind.is_none() => Ok(()),
            _ if is_critical => Err(ErrorCode::ClosedCriticalStream),
            _ => {
                self.peer_streams.swap_remove(at);
                Ok(())
            }
        }
    }

    fn peer_bytes(&mut self, at: usize, mut bytes: &[u8]) -> Result<(), ErrorCode> {
        if self.peer_streams[at].kind.is_none() {
            let Some(rest) = self.stream_kind(at, bytes)? else { return Ok(()) };
            bytes = rest;
        }
        match self.peer_streams[at].kind {
            Some(stream::CONTROL) => self.control_bytes(at, bytes),
            // We keep no table: its size may be set to 0, and nothing else (RFC 9204, section 4.3.1).
            Some(stream::ENCODER) if bytes.iter().all(|byte| *byte == 0x20) => Ok(()),
            Some(stream::ENCODER) => Err(ErrorCode::QpackEncoderStream),
            Some(stream::DECODER) => self.decoder_bytes(at, bytes),
            _ => Ok(()),
        }
    }

    /// Reads what a stream of the peer is for: section 6.2. The rest, once that is known.
    fn stream_kind<'a>(&mut self, at: usize, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, ErrorCode> {
        let head = &mut self.peer_streams[at].head;
        let before = head.len();
        head.extend_from_slice(&bytes[..bytes.len().min(8 - before.min(8))]);
        let Some((kind, rest)) = frames::read_number(head) else { return Ok(None) };
        let used = head.len() - rest.len() - before;
        match kind {
            stream::CONTROL | stream::ENCODER | stream::DECODER => {
                if self.peer_streams.iter().any(|other| other.kind == Some(kind)) {
                    return Err(ErrorCode::StreamCreation);
                }
            }
            // None was allowed: section 4.6.
            stream::PUSH => return Err(ErrorCode::Id),
            _ => {
                let _ = self
                    .quic
                    .recv_stream(self.peer_streams[at].id)
                    .stop(VarInt::from_u32(ErrorCode::StreamCreation as u32));
                self.is_dirty = true;
            }
        }
        self.peer_streams[at].kind = Some(kind);
        Ok(Some(&bytes[used..]))
    }

    fn control_bytes(&mut self, at: usize, mut bytes: &[u8]) -> Result<(), ErrorCode> {
        let mut reader = std::mem::take(&mut self.peer_streams[at].reader);
        let done = loop {
            match reader.next(&mut bytes, Place::Control) {
                Err(code) if !self.settings_came && code == ErrorCode::FrameUnexpected => {
                    break Err(ErrorCode::MissingSettings);
                }
                Err(code) => break Err(code),
                Ok(None) => break Ok(()),
                Ok(Some(piece)) => {
                    if let Err(code) = self.control_frame(&piece) {
                        break Err(code);
                    }
                }
            }
        };
        self.peer_streams[at].reader = reader;
        done
    }

    fn control_frame(&mut self, piece: &Piece<'_>) -> Result<(), ErrorCode> {
        self.quiet_frames += 1;
        if self.quiet_frames > QUIET_FRAMES_MAX {
            return Err(ErrorCode::ExcessiveLoad);
        }
        match piece {
            Piece::Frame(kind::SETTINGS, _) if self.settings_came => Err(ErrorCode::FrameUnexpected),
            Piece::Frame(kind::SETTINGS, payload) => {
                self.settings_came = true;
                check_settings(payload)
            }
            _ if !self.settings_came => Err(ErrorCode::MissingSettings),
            Piece::Frame(kind::GOAWAY, payload) => self.goaway(payload),
            _ => Ok(()),
        }
    }

    /// Section 5.2: requests from this stream on were not processed, and will not be.
    fn goaway(&mut self, payload: &[u8]) -> Result<(), ErrorCode> {
        let Some((id, [])) = frames::read_number(payload) else { return Err(ErrorCode::Frame) };
        if !id.is_multiple_of(4) || self.goaway.is_some_and(|before| id > before) {
            return Err(ErrorCode::Id);
        }
        self.goaway = Some(id);
        self.lanes.refuse_after(u32::try_from(id / 4).unwrap_or(u32::MAX));
        Ok(())
    }

    /// We use no table of the peer, which has nothing to acknowledge: RFC 9204, section 4.4. That it gives up a stream it may
    /// say all the same.
    fn decoder_bytes(&mut self, at: usize, bytes: &[u8]) -> Result<(), ErrorCode> {
        for byte in bytes {
            let in_number = &mut self.peer_streams[at].in_number;
            *in_number = match *in_number {
                true => byte & 0x80 != 0,
                false if byte & 0xc0 == 0x40 => byte & 0x3f == 0x3f,
                false => return Err(ErrorCode::QpackDecoderStream),
            };
        }
        Ok(())
    }
}

/// Checks what the peer says of itself: nothing of it changes what is sent here.
fn check_settings(mut payload: &[u8]) -> Result<(), ErrorCode> {
    while !payload.is_empty() {
        let (name, rest) = frames::read_number(payload).ok_or(ErrorCode::Frame)?;
        (_, payload) = frames::read_number(rest).ok_or(ErrorCode::Frame)?;
        if setting::OF_HTTP2.contains(&name) {
            return Err(ErrorCode::Settings);
        }
    }
    Ok(())
}
