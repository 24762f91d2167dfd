//! The other end of a connection, for tests: a server of QUIC in memory whose streams carry what a test writes, a path that may
//! lose datagrams, and a clock that passes when nothing moves.

use super::connection::{Connection, Context};
use super::frames::{kind, stream, write_frame, write_number};
use super::qpack::{Decoder, Encoder};
use crate::io::multiplexed::fields::{FieldDecoder as _, FieldEncoder as _, Indexing};
use crate::io::multiplexed::multiplex::Multiplex;
use crate::io::tls;
use bytes::{Bytes, BytesMut};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event, ServerConfig, Side, StreamEvent,
    StreamId, TransportConfig, VarInt, WriteError,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use webdyno_model::transport::TlsOptions;

/// Rounds after which a conversation that does not end is a fault of the test.
const ROUNDS_MAX: usize = 10_000;

/// How a client of tests speaks QUIC: it accepts any certificate.
pub(super) fn context() -> Context {
    let options = TlsOptions { insecure: true, ..TlsOptions::default() };
    Context::new(&tls::config(&options, tls::HTTP3).unwrap()).unwrap()
}

/// A server, with so many streams at once for requests.
pub(super) fn server(streams: u32) -> Endpoint {
    let made = rcgen::generate_simple_self_signed(vec!["x".into()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    tls.alpn_protocols = vec![tls::HTTP3.to_vec()];
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()));
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(VarInt::from_u32(streams));
    config.transport_config(Arc::new(transport));
    Endpoint::new(Arc::new(EndpointConfig::default()), Some(Arc::new(config)), false, None)
}

/// A client and its server.
pub(super) struct Pair {
    pub(super) client: Connection,
    endpoint: Endpoint,
    server: Option<(ConnectionHandle, quinn_proto::Connection)>,
    /// What came on the streams of the client, and whether they have ended.
    pub(super) received: BTreeMap<StreamId, (Vec<u8>, bool)>,
    /// Of so many datagrams one is lost; 0 is none.
    pub(super) loses_one_of: u64,
    /// The server accepts no connection.
    pub(super) refuses: bool,
    dice: u64,
    base: Instant,
    pub(super) now_ns: u64,
}

impl Pair {
    /// Established, and the server has sent its settings.
    pub(super) fn new() -> Self {
        let mut pair = Self::with(&context(), server(100));
        pair.exchange();
        assert_eq!(pair.client.is_established(), Ok(true));
        pair.open(&[&[0], &settings(&[])[..]].concat());
        pair.exchange();
        pair
    }

    /// Nothing was sent yet.
    pub(super) fn with(context: &Context, endpoint: Endpoint) -> Self {
        let client = Connection::new(context, "x", 0).unwrap();
        let received = BTreeMap::new();
        let base = Instant::now();
        Self {
            client,
            endpoint,
            server: None,
            received,
            loses_one_of: 0,
            refuses: false,
            dice: 7,
            base,
            now_ns: 0,
        }
    }

    /// The server, for another client.
    pub(super) fn into_endpoint(self) -> Endpoint {
        self.endpoint
    }

    fn now(&self) -> Instant {
        self.base + Duration::from_nanos(self.now_ns)
    }

    fn is_lost(&mut self) -> bool {
        // At random, as far as a generator of Knuth's is: what is lost in turn would be the same of each round.
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.loses_one_of > 0 && (self.dice >> 33).is_multiple_of(self.loses_one_of)
    }

    /// Until nobody has anything to send.
    pub(super) fn exchange(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if !self.client_sends() & !self.server_sends() {
                return;
            }
        }
        panic!("the conversation does not end");
    }

    /// Goes on, time included, until `is_done`.
    pub(super) fn until(&mut self, mut is_done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..ROUNDS_MAX {
            self.exchange();
            if is_done(self) {
                return;
            }
            let now = self.now();
            let server = self.server.as_mut().and_then(|(_, quic)| quic.poll_timeout());
            let server_ns =
                server.map(|due| due.saturating_duration_since(now).as_nanos() as u64 + self.now_ns);
            let due_ns = [self.client.due_ns(), server_ns].into_iter().flatten().min();
            // Time goes on: the pacer of a server to which the way takes no time lets nothing go in the same instant.
            let due_ns = due_ns.unwrap_or_else(|| panic!("nobody has a timer: {:?}", self.client.lost()));
            self.now_ns = due_ns.max(self.now_ns + 1_000);
            let now = self.now();
            if let Some((_, quic)) = &mut self.server {
                quic.handle_timeout(now);
            }
        }
        panic!("what is awaited does not come");
    }

    fn client_sends(&mut self) -> bool {
        self.client.tick(self.now_ns);
        self.client.prepare();
        let mut sent = false;
        while !self.client.unsent().is_empty() {
            let datagram = BytesMut::from(self.client.unsent());
            self.client.sent(datagram.len());
            sent = true;
            if !self.is_lost() {
                self.server_receives(datagram);
            }
        }
        sent
    }

    fn server_receives(&mut self, datagram: BytesMut) {
        let (now, from) = (self.now(), SocketAddr::from(([127, 0, 0, 1], 9)));
        let mut answer = vec![];
        match self.endpoint.handle(now, from, None, None, datagram, &mut answer) {
            Some(DatagramEvent::NewConnection(incoming)) if self.refuses => {
                let _ = self.endpoint.refuse(incoming, &mut answer);
                self.client.receive(&answer);
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted = self.endpoint.accept(incoming, now, &mut answer, None);
                self.server = accepted.ok();
            }
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, quic)) = &mut self.server {
                    quic.handle_event(event);
                }
            }
            _ => {}
        }
        self.server_reads();
    }

    fn server_reads(&mut self) {
        let Some((handle, quic)) = &mut self.server else { return };
        while let Some(event) = quic.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                quic.handle_event(event);
            }
        }
        let mut readable = vec![];
        while let Some(event) = quic.poll() {
            match event {
                Event::Stream(StreamEvent::Opened { dir }) => {
                    readable.extend(std::iter::from_fn(|| quic.streams().accept(dir)));
                }
                Event::Stream(StreamEvent::Readable { id }) => readable.push(id),
                _ => {}
            }
        }
        for id in readable {
            let (bytes, ended) = self.received.entry(id).or_default();
            let mut stream = quic.recv_stream(id);
            let Ok(mut chunks) = stream.read(true) else { continue };
            loop {
                match chunks.next(usize::MAX) {
                    Ok(Some(chunk)) => bytes.extend_from_slice(&chunk.bytes),
                    Ok(None) => break *ended = true,
                    Err(_) => break,
                }
            }
        }
    }

    fn server_sends(&mut self) -> bool {
        let mut sent = false;
        loop {
            let now = self.now();
            let Some((_, quic)) = &mut self.server else { return sent };
            let mut datagram = vec![];
            if quic.poll_transmit(now, 1, &mut datagram).is_none() {
                return sent;
            }
            sent = true;
            if !self.is_lost() {
                self.client.tick(self.now_ns);
                self.client.receive(&datagram);
            }
        }
    }

    fn quic(&mut self) -> &mut quinn_proto::Connection {
        &mut self.server.as_mut().expect("a connection").1
    }

    /// Sends a request. Its lane.
    pub(super) fn request(&mut self, text: &[u8]) -> u32 {
        let lane = self.client.attach(7);
        assert_eq!(self.client.send(lane, text), Ok(text.len()));
        self.exchange();
        lane
    }

    /// The server sends this on the stream of a request, in pieces of so many bytes.
    pub(super) fn answer(&mut self, number: u64, bytes: &[u8], piece: usize, ends: bool) {
        for bytes in bytes.chunks(piece) {
            let mut stream = self.quic().send_stream(request(number));
            let written = stream.write(bytes);
            if self.client.fault().is_some() || matches!(written, Err(WriteError::Stopped(_))) {
                return;
            }
            assert_eq!(written.ok(), Some(bytes.len()));
            if piece < usize::MAX {
                self.exchange();
            }
        }
        if ends {
            // One that the client has stopped has no end.
            let _ = self.quic().send_stream(request(number)).finish();
        }
        self.exchange();
    }

    /// The server sends of this what there is room for, and its end with the last of it. Returns how much that was.
    pub(super) fn write_some(&mut self, number: u64, bytes: &[u8]) -> usize {
        let mut stream = self.quic().send_stream(request(number));
        let count = if bytes.is_empty() { 0 } else { stream.write(bytes).unwrap_or(0) };
        if count > 0 && count == bytes.len() {
            stream.finish().unwrap();
        }
        count
    }

    /// The server opens a stream in one direction, and sends this.
    pub(super) fn open(&mut self, bytes: &[u8]) -> StreamId {
        let id = self.quic().streams().open(Dir::Uni).unwrap();
        assert_eq!(self.quic().send_stream(id).write(bytes).ok(), Some(bytes.len()));
        id
    }

    /// The server ends a stream.
    pub(super) fn finish(&mut self, id: StreamId) {
        self.quic().send_stream(id).finish().unwrap();
        self.exchange();
    }

    /// The server gives up what it sends for a request.
    pub(super) fn reset(&mut self, number: u64, code: u32) {
        self.quic().send_stream(request(number)).reset(VarInt::from_u32(code)).unwrap();
        self.exchange();
    }

    /// The server wants no more of a request.
    pub(super) fn stop(&mut self, number: u64, code: u32) {
        self.quic().recv_stream(request(number)).stop(VarInt::from_u32(code)).unwrap();
        self.exchange();
    }

    /// The server ends the connection.
    pub(super) fn close(&mut self, code: u32) {
        let now = self.now();
        self.quic().close(now, VarInt::from_u32(code), Bytes::new());
        self.exchange();
    }

    /// What the server got of a request: its fields a line each, the bytes behind them, and whether it has ended.
    pub(super) fn got(&self, number: u64) -> (String, Vec<u8>, bool) {
        let (bytes, ended) = &self.received[&request(number)];
        let (kind, rest) = super::frames::read_number(bytes).unwrap();
        let (length, rest) = super::frames::read_number(rest).unwrap();
        assert_eq!(kind, kind::HEADERS);
        let (block, rest) = rest.split_at(length as usize);
        let mut text = String::new();
        let add = |name: &[u8], value: &[u8]| {
            text.push_str(&format!("{}={}|", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
        };
        Decoder::default().decode(block, 65_536, add).unwrap();
        (text, rest.to_vec(), *ended)
    }
}

/// The stream of a request, counted from 0.
fn request(number: u64) -> StreamId {
    StreamId::new(Side::Client, Dir::Bi, number)
}

/// A frame.
pub(super) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![];
    write_frame(kind, payload, &mut bytes);
    bytes
}

/// HEADERS of these fields, `name: value` each.
pub(super) fn headers(fields: &[&str]) -> Vec<u8> {
    let mut block = vec![];
    Encoder.begin(&mut block);
    for field in fields {
        let at = field[1..].find(": ").unwrap() + 1;
        let (name, value) = field.as_bytes().split_at(at);
        Encoder.field(name, &value[2..], Indexing::No, &mut block);
    }
    frame(kind::HEADERS, &block)
}

/// DATA.
pub(super) fn data(body: &[u8]) -> Vec<u8> {
    frame(kind::DATA, body)
}

/// SETTINGS.
pub(super) fn settings(settings: &[(u64, u64)]) -> Vec<u8> {
    let mut payload = vec![];
    for (name, value) in settings {
        write_number(*name, &mut payload);
        write_number(*value, &mut payload);
    }
    frame(kind::SETTINGS, &payload)
}

/// The control stream of a server up to this.
pub(super) fn control(bytes: &[u8]) -> Vec<u8> {
    [&[stream::CONTROL as u8], bytes].concat()
}
