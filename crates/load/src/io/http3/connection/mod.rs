//! One connection of HTTP/3, pure: datagrams of the peer come in, responses and datagrams for the peer go out. RFC 9114.
//!
//! What the peer may make us hold is bounded everywhere: windows, the block of a header, its fields, its streams. Frames that
//! carry nothing are counted, so that a flood of them ends the connection.

mod context;
mod incoming;

pub(crate) use context::Context;

use super::frames::{self, ErrorCode, FrameReader, kind, setting, stream};
use super::qpack;
use crate::io::multiplexed::lanes::Lanes;
use crate::io::multiplexed::multiplex::Multiplex;
use crate::io::multiplexed::request::RequestEncoder;
use crate::io::multiplexed::response::{LIST_BYTES_MAX, ResponseDecoder};
use crate::io::network_io::{Handshake, SocketError};
use crate::io::origin::Origin;
use crate::io::tls;
use bytes::{Bytes, BytesMut};
use quinn_proto::{
    ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, Side, StreamId, TransportErrorCode,
    VarInt, WriteError,
};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// The last stream that is counted; 2^62 would be allowed.
const STREAM_LAST: u32 = u32::MAX - 1;
/// The peer is not reminded more often that a response is awaited.
const KEEP_ALIVE_MIN: Duration = Duration::from_secs(1);
/// The alerts of TLS among the codes of QUIC: RFC 9001, section 4.8.
const CRYPTO_CODES: std::ops::Range<u64> = 0x100..0x200;

/// The stream of a lane, beyond what the lane knows.
#[derive(Debug, Default)]
struct LaneStream {
    reader: FrameReader,
    /// Bytes of the request's head that found no room yet.
    unwritten: Vec<u8>,
    trailers_came: bool,
    /// The peer wants no more of the request.
    stopped: bool,
}

/// A stream that the peer has begun.
#[derive(Debug)]
struct PeerStream {
    id: StreamId,
    /// What it is for, once that has come.
    kind: Option<u64>,
    /// What came of its type.
    head: Vec<u8>,
    reader: FrameReader,
    /// Bytes of a number are awaited that begins an instruction of QPACK.
    in_number: bool,
}

/// A connection.
pub(crate) struct Connection {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    quic: quinn_proto::Connection,
    /// What nanoseconds are counted from.
    base: Instant,
    now: Instant,
    /// When something came last, or a request was begun, or the peer was reminded.
    heard: Instant,
    /// When its first datagram was made.
    begun_ns: Option<u64>,
    handshake: Handshake,
    /// A certificate was checked: the handshake resumed no earlier session.
    checked_certificate: bool,
    lost: Option<ConnectionError>,
    lanes: Lanes,
    /// By lane.
    streams: Vec<LaneStream>,
    peer_streams: Vec<PeerStream>,
    next_id: u32,
    responses: ResponseDecoder<qpack::Decoder>,
    requests: RequestEncoder<qpack::Encoder>,
    frame: Vec<u8>,
    chunks: Vec<Bytes>,
    /// The next datagram, and what quinn-proto answers by itself, which is nothing for a client.
    out: Vec<u8>,
    answer: Vec<u8>,
    /// There may be something to send, and so many bytes of requests among it.
    is_dirty: bool,
    written_bytes: usize,
    settings_came: bool,
    goaway: Option<u64>,
    quiet_frames: u32,
    fault: Option<ErrorCode>,
}

impl Connection {
    /// Before anything was sent, to the server of this name.
    pub(crate) fn new(context: &Context, name: &str, now_ns: u64) -> Result<Self, SocketError> {
        let mut endpoint = Endpoint::new(context.endpoint.clone(), None, false, None);
        let now = context.base + Duration::from_nanos(now_ns);
        let (handle, quic) = endpoint
            .connect(now, context.client.clone(), context::PEER, name)
            .map_err(|_| SocketError::Tls)?;
        Ok(Self {
            endpoint,
            handle,
            quic,
            base: context.base,
            now,
            heard: now,
            begun_ns: None,
            handshake: Handshake::None,
            checked_certificate: false,
            lost: None,
            // The peer's limit is known to QUIC, which tells when there is room.
            lanes: Lanes::new(0),
            streams: vec![],
            peer_streams: vec![],
            next_id: 1,
            responses: ResponseDecoder::default(),
            requests: RequestEncoder::default(),
            frame: vec![],
            chunks: vec![],
            out: vec![],
            answer: vec![],
            is_dirty: true,
            written_bytes: 0,
            settings_came: false,
            goaway: None,
            quiet_frames: 0,
            fault: None,
        })
    }

    /// The rule that the peer broke; the connection is over then.
    pub(crate) fn fault(&self) -> Option<ErrorCode> {
        self.fault
    }

    /// Why it is over, as QUIC tells it.
    pub(crate) fn lost(&self) -> Option<&ConnectionError> {
        self.lost.as_ref()
    }

    /// Counts the streams that the peer allows besides those that were begun, up to a bound, and takes them: no request is
    /// sent after this. `None` once the connection is over, which has none left.
    pub(crate) fn take_streams(&mut self, most: u32) -> Option<u32> {
        let is_over = self.fault.is_some() || self.lost.is_some();
        let mut open = || self.quic.streams().open(Dir::Bi).is_some();
        (!is_over).then(|| (0..most).take_while(|_| open()).count() as u32)
    }

    /// The control stream, with what is to be known of us: section 3.2.
    fn greet(&mut self) -> Result<(), ErrorCode> {
        let mut settings = vec![];
        frames::write_number(setting::MAX_FIELD_SECTION_SIZE, &mut settings);
        frames::write_number(LIST_BYTES_MAX as u64, &mut settings);
        let mut bytes = vec![];
        frames::write_number(stream::CONTROL, &mut bytes);
        frames::write_frame(kind::SETTINGS, &settings, &mut bytes);
        // Every server must allow it, and these few bytes: section 6.2.
        let control = self.quic.streams().open(Dir::Uni).ok_or(ErrorCode::StreamCreation)?;
        match self.quic.send_stream(control).write(&bytes) {
            Ok(count) if count == bytes.len() => Ok(()),
            _ => Err(ErrorCode::StreamCreation),
        }
    }

    /// Begins a stream. Returns how many bytes the head had.
    fn begin(&mut self, at: usize, bytes: &[u8]) -> Result<usize, SocketError> {
        if self.lanes.draining || self.fault.is_some() {
            return Err(SocketError::Refused);
        }
        // Before a stream is taken: one that carries no request would stay open.
        let (block, facts) = self.requests.encode(bytes, true)?;
        self.frame.clear();
        frames::write_frame(kind::HEADERS, block, &mut self.frame);
        if facts.body_bytes > 0 {
            frames::write_number(kind::DATA, &mut self.frame);
            frames::write_number(facts.body_bytes, &mut self.frame);
        }
        if self.quic.streams().open(Dir::Bi).is_none() {
            self.lanes.wait(at);
            return Err(SocketError::AGAIN);
        }
        let lane = &mut self.lanes[at];
        lane.begin(facts.is_head_request, 0, 0);
        (lane.body_left, lane.waits) = (facts.body_bytes, false);
        self.streams.resize_with(self.streams.len().max(at + 1), LaneStream::default);
        let stream = &mut self.streams[at];
        stream.reader.clear();
        (stream.trailers_came, stream.stopped) = (false, false);
        self.lanes.open(at, self.next_id);
        self.heard = self.now;
        self.next_id += 1;
        self.lanes.draining |= self.next_id > STREAM_LAST;
        std::mem::swap(&mut self.streams[at].unwritten, &mut self.frame);
        self.write_head(at);
        Ok(facts.head_bytes)
    }

    /// Sends of a request's head what there is room for. Whether that is all.
    fn write_head(&mut self, at: usize) -> bool {
        let unwritten = std::mem::take(&mut self.streams[at].unwritten);
        let count = if unwritten.is_empty() { 0 } else { self.write(at, &unwritten) };
        let stream = &mut self.streams[at];
        stream.unwritten = unwritten;
        stream.unwritten.drain(..count);
        let whole = stream.unwritten.is_empty();
        if whole && self.lanes[at].body_left == 0 {
            self.finish(at);
        }
        whole
    }

    /// Sends on the stream of a lane what there is room for. Returns how much.
    fn write(&mut self, at: usize, bytes: &[u8]) -> usize {
        let id = request_stream(self.lanes.ids[at]);
        let mut taken = 0;
        while taken < bytes.len() {
            match self.quic.send_stream(id).write(&bytes[taken..]) {
                Ok(count) => taken += count,
                Err(WriteError::Blocked) => {
                    self.lanes[at].waits = true;
                    break;
                }
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
                    self.streams[at].stopped = true;
                    break;
                }
            }
        }
        self.is_dirty = true;
        self.written_bytes += taken;
        taken
    }

    /// When the peer is to be reminded that a response is awaited, lest it takes the connection for idle: RFC 9114, section 5.1.
    /// The next timer of QUIC is that of an idle connection where nothing else is under way; a third of it may pass.
    fn keep_alive_at(&mut self) -> Option<Instant> {
        let due = self.quic.poll_timeout().filter(|_| self.lanes.active > 0)?;
        Some(self.heard + (due.saturating_duration_since(self.heard) / 3).max(KEEP_ALIVE_MIN))
    }

    /// All of a request was sent.
    fn finish(&mut self, at: usize) {
        // One that was stopped has no end.
        let _ = self.quic.send_stream(request_stream(self.lanes.ids[at])).finish();
        self.is_dirty = true;
    }

    /// A response that breaks the rules: an error of its stream.
    fn malformed(&mut self, at: usize) {
        self.cancel(at, ErrorCode::Message);
        self.lanes[at].failed = Some(Err(SocketError::Protocol));
        self.lanes.touch(at);
    }

    /// Ends the stream of a lane in both directions, if one is open.
    fn cancel(&mut self, at: usize, code: ErrorCode) {
        if self.lanes.ids[at] == 0 {
            return;
        }
        let id = request_stream(self.lanes.ids[at]);
        // Of a direction that has ended already nothing is left to be told.
        let _ = self.quic.recv_stream(id).stop(var_int(code));
        let _ = self.quic.send_stream(id).reset(var_int(code));
        self.is_dirty = true;
        self.lanes.release(at);
    }

    /// The peer broke a rule of the connection.
    fn break_off(&mut self, code: ErrorCode) {
        self.fault = Some(code);
        self.quic.close(self.now, var_int(code), Bytes::new());
        self.is_dirty = true;
        self.lanes.hang_up(Err(SocketError::Protocol));
    }

    /// Memory that it holds for the peer, besides QUIC's windows.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        let streams: usize = self.streams.iter().map(|stream| stream.reader.memory_bytes()).sum();
        let peers: usize = self.peer_streams.iter().map(|stream| stream.reader.memory_bytes()).sum();
        self.lanes.memory_bytes() + streams + peers + self.out.capacity()
    }
}

/// The stream of a request, by its number on the connection, which is from 1 on.
fn request_stream(id: u32) -> StreamId {
    StreamId::new(Side::Client, Dir::Bi, u64::from(id) - 1)
}

fn var_int(code: ErrorCode) -> VarInt {
    VarInt::from_u32(code as u32)
}

/// What an end of the connection is to those who wait for it to be established.
fn not_established(error: &ConnectionError) -> SocketError {
    match error {
        ConnectionError::TimedOut => Errno::TIMEDOUT.into(),
        ConnectionError::TransportError(error) if CRYPTO_CODES.contains(&error.code.into()) => {
            SocketError::Tls
        }
        ConnectionError::ConnectionClosed(close) if CRYPTO_CODES.contains(&close.error_code.into()) => {
            SocketError::Tls
        }
        ConnectionError::ConnectionClosed(close)
            if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
        {
            Errno::CONNREFUSED.into()
        }
        ConnectionError::ConnectionClosed(_)
        | ConnectionError::ApplicationClosed(_)
        | ConnectionError::Reset => Errno::CONNRESET.into(),
        _ => SocketError::Protocol,
    }
}

impl Multiplex for Connection {
    type Context = Context;
    const DATAGRAMS: bool = true;

    fn open(context: &mut Context, origin: &Origin, now_ns: u64) -> Result<Self, SocketError> {
        let name = origin.server_name.as_ref().ok_or(SocketError::Tls)?;
        Self::new(context, &name.to_str(), now_ns)
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
        self.cancel(lane as usize, ErrorCode::RequestCancelled);
        self.lanes.vacate(lane as usize);
    }

    fn send(&mut self, lane: u32, bytes: &[u8]) -> Result<usize, SocketError> {
        let at = lane as usize;
        let mut taken = 0;
        if self.lanes[at].body_left == 0 {
            taken = self.begin(at, bytes)?;
        }
        if self.lanes[at].body_left == 0 {
            return Ok(bytes.len());
        }
        let lane = &self.lanes[at];
        if lane.ended || lane.failed.is_some() {
            // As on a socket whose peer has closed: what can be read decides.
            return if taken > 0 { Ok(taken) } else { Err(Errno::PIPE.into()) };
        }
        // Of one that was stopped the response is awaited: what says so may come before it.
        if self.streams[at].unwritten.is_empty() && !self.streams[at].stopped {
            let left = usize::try_from(lane.body_left).unwrap_or(usize::MAX);
            let body = &bytes[taken..][..left.min(bytes.len() - taken)];
            let count = self.write(at, body);
            taken += count;
            let lane = &mut self.lanes[at];
            lane.body_left -= count as u64;
            if lane.body_left == 0 {
                self.finish(at);
            }
        }
        match taken {
            0 => Err(SocketError::AGAIN),
            _ => Ok(taken),
        }
    }

    fn receive(&mut self, datagram: &[u8]) {
        let bytes = BytesMut::from(datagram);
        let event = self.endpoint.handle(self.now, context::PEER, None, None, bytes, &mut self.answer);
        self.answer.clear();
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            if self.handshake == Handshake::None {
                // Until then nobody was reached.
                self.handshake = Handshake::InProgress { started_ns: self.begun_ns.unwrap_or_default() };
            }
            let checked_before = tls::certificates_checked();
            self.quic.handle_event(event);
            self.checked_certificate |= tls::certificates_checked() != checked_before;
            self.heard = self.now;
            self.is_dirty = true;
            self.drive();
        }
    }

    fn close(&mut self) {
        if self.fault.is_none() && self.lost.is_none() {
            self.quic.close(self.now, var_int(ErrorCode::NoError), Bytes::new());
            self.is_dirty = true;
        }
    }

    #[inline]
    fn is_faulty(&self) -> bool {
        self.fault.is_some()
    }

    #[inline]
    fn unsent(&self) -> &[u8] {
        &self.out
    }

    fn sent(&mut self, _: usize) {
        self.out.clear();
        if self.begun_ns.is_none() {
            self.begun_ns = Some(self.nanoseconds(self.now));
        }
        if self.quic.poll_transmit(self.now, 1, &mut self.out).is_none() {
            self.out.clear();
            (self.is_dirty, self.written_bytes) = (false, 0);
        }
    }

    #[inline]
    fn gathered_bytes(&self) -> usize {
        if self.is_dirty { self.written_bytes.max(1) } else { self.out.len() }
    }

    fn prepare(&mut self) {
        if self.out.is_empty() {
            self.sent(0);
        }
    }

    fn tick(&mut self, now_ns: u64) {
        self.now = self.now.max(self.base + Duration::from_nanos(now_ns));
        if self.quic.poll_timeout().is_some_and(|due| due <= self.now) {
            self.quic.handle_timeout(self.now);
            self.is_dirty = true;
            self.drive();
        }
        if self.keep_alive_at().is_some_and(|due| due <= self.now) {
            self.heard = self.now;
            self.quic.ping();
            self.is_dirty = true;
        }
    }

    fn due_ns(&mut self) -> Option<u64> {
        let due = [self.quic.poll_timeout(), self.keep_alive_at()].into_iter().flatten().min();
        due.map(|due| self.nanoseconds(due))
    }

    fn is_established(&self) -> Result<bool, SocketError> {
        match (&self.lost, self.fault) {
            (Some(error), _) => Err(not_established(error)),
            (None, Some(_)) => Err(SocketError::Protocol),
            (None, None) => Ok(matches!(self.handshake, Handshake::Done { .. })),
        }
    }

    fn handshake(&self) -> Option<Handshake> {
        Some(self.handshake)
    }
}
