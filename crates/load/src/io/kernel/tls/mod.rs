//! TLS on one connection: rustls between the engine's bytes and a non-blocking socket. RFC 8446; the unbuffered API of
//! rustls (<https://docs.rs/rustls/0.23/rustls/unbuffered/>), which leaves all buffers to the caller: what is received
//! lies in memory of the thread, so that an idle connection holds no buffer of its own.
//!
//! To the engine it behaves like a plain socket. A short read means that the socket is drained, as epoll(7) has it;
//! what the kernel will not signal again (a close that came with the last bytes) is reported by
//! [`TlsStream::take_unreported_readiness`].

mod buffers;

pub(super) use buffers::TlsInput;

use crate::io::network_io::{Handshake, SocketError};
use buffers::{INPUT_BYTES, PlaintextBuffer, append, has_whole_record};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, HandshakeKind};
use std::sync::Arc;

/// Received bytes that may wait for the rest of a message.
const WAITING_BYTES_MAX: usize = 96 * 1024;
/// Bytes of a request that are encrypted before each send.
const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks, or reads, of one connection before others have their turn.
const TURNS_MAX: usize = 16;
/// What a record adds to its content, at most: header, type, tag, and the nonce of TLS 1.2.
const RECORD_OVERHEAD_BYTES: usize = 64;
/// What our part of a handshake mostly fits in.
const FLIGHT_BYTES: usize = 600;
/// A connection keeps at most this much for what it sends.
const OUTGOING_BYTES_KEPT: usize = 4096;
/// What is read of a connection before it is closed: with bytes unread the kernel would send a reset instead of a FIN.
const DRAIN_BYTES_MAX: usize = 64 * 1024;

/// How far processing the received records has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TlsProgress {
    /// The handshake waits for the peer.
    Blocked,
    /// The connection can carry data, and all that came is decrypted.
    Open,
    /// There is more, and no room for it.
    Full,
}

/// TLS of one connection.
pub(super) struct TlsStream {
    /// Names the connection to the engine.
    pub(super) token: u64,
    connection: UnbufferedClientConnection,
    handshake: Handshake,
    /// Received and not decrypted: a record that is not complete, or for which there was no room.
    waiting: Vec<u8>,
    /// Decrypted, and not read by the engine yet.
    decrypted: Vec<u8>,
    decrypted_at: usize,
    /// Encrypted, and not accepted by the kernel yet.
    outgoing: Vec<u8>,
    outgoing_at: usize,
    /// Bytes of the request that stand in `outgoing` and of which the engine does not know yet.
    buffered_request_bytes: usize,
    /// What comes when all that was decrypted is read; `Ok` is the peer's word that it sends no more.
    ended: Option<Result<(), SocketError>>,
    /// The engine must be notified that there is something to read: the kernel will not do so.
    unreported: bool,
}

impl TlsStream {
    /// For a connection to this server. Its handshake begins with the first `send`.
    pub(super) fn new(
        config: &Arc<ClientConfig>,
        name: &ServerName<'static>,
        token: u64,
    ) -> Result<Self, SocketError> {
        let connection =
            UnbufferedClientConnection::new(config.clone(), name.clone()).map_err(|_| SocketError::Tls)?;
        Ok(Self {
            token,
            connection,
            handshake: Handshake::None,
            waiting: vec![],
            decrypted: vec![],
            decrypted_at: 0,
            outgoing: vec![],
            outgoing_at: 0,
            buffered_request_bytes: 0,
            ended: None,
            unreported: false,
        })
    }

    /// How far its handshake is.
    pub(super) fn handshake(&self) -> Handshake {
        self.handshake
    }

    /// Whether the engine must be notified that there is something to read, and whether that is the end.
    pub(super) fn take_unreported_readiness(&mut self) -> Option<bool> {
        std::mem::take(&mut self.unreported).then_some(self.ended.is_some())
    }

    /// Continues the handshake, then sends as much as the kernel accepts. What the kernel did not accept of the last
    /// bytes is not counted until it has: the same bytes are passed again then. A handshake that begins now began at
    /// `called_ns`.
    pub(super) fn send(
        &mut self,
        socket: &OwnedFd,
        input: &mut TlsInput,
        bytes: &[u8],
        called_ns: u64,
        now_ns: impl Fn() -> u64,
    ) -> Result<usize, SocketError> {
        if !matches!(self.handshake, Handshake::Done { .. }) {
            self.do_handshake(socket, input, called_ns)?;
            if let Handshake::InProgress { started_ns } = self.handshake {
                let resumed = self.connection.handshake_kind() == Some(HandshakeKind::Resumed);
                self.handshake = Handshake::Done { started_ns, ended_ns: now_ns(), resumed };
            }
        } else if self.buffered_request_bytes > 0 {
            self.flush(socket)?;
        }
        // These are sent; the kernel may take more, and reports no edge before a send has failed.
        let mut sent = std::mem::take(&mut self.buffered_request_bytes);
        for chunk in bytes.get(sent..).unwrap_or_default().chunks(CHUNK_BYTES).take(TURNS_MAX) {
            self.encrypt(chunk)?;
            match self.flush(socket) {
                Ok(()) => sent += chunk.len(),
                Err(error) => {
                    self.buffered_request_bytes = chunk.len();
                    return if sent > 0 { Ok(sent) } else { Err(error) };
                }
            }
        }
        // The kernel would take more, and so will not report it when it can.
        self.unreported |= sent < bytes.len();
        Ok(sent)
    }

    /// The handshake, as far as it goes now.
    fn do_handshake(
        &mut self,
        socket: &OwnedFd,
        input: &mut TlsInput,
        called_ns: u64,
    ) -> Result<(), SocketError> {
        input.load(&mut self.waiting);
        let done = self.drive_handshake(socket, input, called_ns);
        self.keep(input);
        done?;
        // What came right behind the handshake was taken from the socket with it.
        self.unreported |= !self.waiting.is_empty() || !self.decrypted.is_empty() || self.ended.is_some();
        Ok(())
    }

    fn drive_handshake(
        &mut self,
        socket: &OwnedFd,
        input: &mut TlsInput,
        called_ns: u64,
    ) -> Result<(), SocketError> {
        let mut nothing = PlaintextBuffer::none();
        loop {
            let progress =
                self.process(input, &mut nothing).inspect_err(|_| self.send_alert(socket, input))?;
            if progress != TlsProgress::Blocked {
                // The last flight goes out with the request.
                return Ok(());
            }
            self.flush(socket)?;
            if self.handshake == Handshake::None {
                self.handshake = Handshake::InProgress { started_ns: called_ns };
            }
            match input.read(socket, INPUT_BYTES) {
                Ok((0, _)) => return Err(SocketError::Tls),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Receives decrypted bytes into `buffer`, or drops up to `room` of them without one. As recv(2): 0 is the end.
    pub(super) fn receive(
        &mut self,
        socket: &OwnedFd,
        input: &mut TlsInput,
        buffer: Option<&mut [u8]>,
        room: usize,
    ) -> Result<usize, SocketError> {
        let mut plaintext = PlaintextBuffer { buffer, room, filled: 0 };
        self.drain_decrypted(&mut plaintext);
        if !plaintext.is_full() && self.ended.is_none() {
            input.load(&mut self.waiting);
            self.receive_records(socket, input, &mut plaintext);
            self.keep(input);
        }
        match (plaintext.filled, self.ended) {
            (0, None) => Err(SocketError::AGAIN),
            (0, Some(ended)) => ended.map(|()| 0),
            (filled, ended) => {
                let more = !self.decrypted.is_empty() || has_whole_record(&self.waiting);
                self.unreported |= more || ended.is_some();
                Ok(filled)
            }
        }
    }

    /// Until there is no room, nothing is left, or the end has come.
    fn receive_records(
        &mut self,
        socket: &OwnedFd,
        input: &mut TlsInput,
        plaintext: &mut PlaintextBuffer<'_>,
    ) {
        let mut drained = false;
        for _ in 0..TURNS_MAX {
            if !input.is_empty() {
                if let Err(error) = self.process(input, plaintext) {
                    self.send_alert(socket, input);
                    self.ended.get_or_insert(Err(error));
                }
                // A response to what came, such as to a new key.
                let _ = self.flush(socket);
            }
            if self.ended.is_some() || plaintext.is_full() || (drained && plaintext.filled > 0) {
                return;
            }
            match input.read(socket, plaintext.room - plaintext.filled) {
                Ok((0, _)) => self.ended = Some(Err(SocketError::Truncated)),
                Ok((count, requested)) => drained = count < requested,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) => self.ended = Some(Err(errno.into())),
            }
        }
        // Others have their turn; what is left is reported again.
        self.unreported = true;
    }

    /// Whether the peer has ended the connection, as far as what was received says: the response may have left no room
    /// for the record that does.
    pub(super) fn has_ended(&mut self, input: &mut TlsInput) -> bool {
        if self.ended.is_none() && has_whole_record(&self.waiting) {
            let mut nothing = PlaintextBuffer::none();
            input.load(&mut self.waiting);
            if let Err(error) = self.process(input, &mut nothing) {
                self.ended.get_or_insert(Err(error));
            }
            self.keep(input);
        }
        self.ended.is_some()
    }

    fn drain_decrypted(&mut self, plaintext: &mut PlaintextBuffer<'_>) {
        if self.decrypted.is_empty() {
            return;
        }
        self.decrypted_at += plaintext.push(&self.decrypted[self.decrypted_at..]);
        if self.decrypted_at == self.decrypted.len() {
            (self.decrypted, self.decrypted_at) = (vec![], 0);
        }
    }

    /// Keeps what is left of the input until more comes.
    fn keep(&mut self, input: &mut TlsInput) {
        // After the end nothing is read any more.
        if self.ended.is_none() && !input.is_empty() {
            self.waiting = input.filled().to_vec();
            if self.waiting.len() > WAITING_BYTES_MAX {
                self.ended = Some(Err(SocketError::Tls));
            }
        }
    }

    /// Passes received bytes to rustls and processes the result.
    fn process(
        &mut self,
        input: &mut TlsInput,
        plaintext: &mut PlaintextBuffer<'_>,
    ) -> Result<TlsProgress, SocketError> {
        loop {
            let (used, step) = self.step(input.filled(), plaintext, None)?;
            input.start += used;
            match step {
                Some(progress) => return Ok(progress),
                None if plaintext.room > 0 && plaintext.is_full() => return Ok(TlsProgress::Full),
                None => {}
            }
        }
    }

    /// Encrypts bytes of a request behind what stands in `outgoing`.
    fn encrypt(&mut self, bytes: &[u8]) -> Result<(), SocketError> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut nothing = PlaintextBuffer::none();
        loop {
            let (used, step) = self.step(&mut waiting, &mut nothing, Some(TlsWrite::Data(bytes)))?;
            waiting.drain(..used);
            match step {
                None => {}
                Some(TlsProgress::Blocked) => return Err(SocketError::Tls),
                Some(_) => {
                    self.waiting = waiting;
                    return Ok(());
                }
            }
        }
    }

    /// One step of rustls: how many bytes it has used, and how far that led if there is nothing more to do.
    fn step(
        &mut self,
        received: &mut [u8],
        plaintext: &mut PlaintextBuffer<'_>,
        write: Option<TlsWrite<'_>>,
    ) -> Result<(usize, Option<TlsProgress>), SocketError> {
        let UnbufferedStatus { mut discard, state, .. } = self.connection.process_tls_records(received);
        let step = match state.map_err(|_| SocketError::Tls)? {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.map_err(|_| SocketError::Tls)?;
                    discard += record.discard;
                    let copied = plaintext.push(record.payload);
                    self.decrypted.extend_from_slice(&record.payload[copied..]);
                }
                None
            }
            ConnectionState::EncodeTlsData(mut data) => {
                append(&mut self.outgoing, FLIGHT_BYTES, |room| {
                    data.encode(room).map_err(|error| match error {
                        EncodeError::InsufficientSize(size) => Some(size),
                        EncodeError::AlreadyEncoded => None,
                    })
                })?;
                None
            }
            // It stands in `outgoing`, from where it is sent before anything else.
            ConnectionState::TransmitTlsData(data) => {
                data.done();
                None
            }
            ConnectionState::PeerClosed => {
                self.ended.get_or_insert(Ok(()));
                None
            }
            ConnectionState::WriteTraffic(traffic) => {
                if let Some(write) = write {
                    write.write(traffic, &mut self.outgoing)?;
                }
                Some(TlsProgress::Open)
            }
            ConnectionState::BlockedHandshake => Some(TlsProgress::Blocked),
            ConnectionState::Closed => Some(TlsProgress::Open),
            _ => return Err(SocketError::Tls),
        };
        Ok((discard, step))
    }

    /// Sends what is encrypted. `AGAIN` when the kernel does not accept all of it.
    fn flush(&mut self, socket: &OwnedFd) -> Result<(), SocketError> {
        while self.outgoing_at < self.outgoing.len() {
            let left = &self.outgoing[self.outgoing_at..];
            match rustix::net::send(socket, left, SendFlags::NOSIGNAL) {
                Ok(count) => self.outgoing_at += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.outgoing.clear();
        self.outgoing_at = 0;
        self.outgoing.shrink_to(OUTGOING_BYTES_KEPT);
        Ok(())
    }

    /// After an error: sends the alert with its reason, as far as the kernel takes it at once.
    fn send_alert(&mut self, socket: &OwnedFd, input: &mut TlsInput) {
        let mut nothing = PlaintextBuffer::none();
        let alert = self.step(input.filled(), &mut nothing, None);
        if alert.is_ok() {
            let _ = self.flush(socket);
        }
    }

    /// Ends the connection as clients do: reads what has come, sends close_notify, and leaves the rest to
    /// the caller, who closes the socket.
    pub(super) fn close(&mut self, socket: &OwnedFd, input: &mut TlsInput) {
        if !matches!(self.handshake, Handshake::Done { .. }) || matches!(self.ended, Some(Err(_))) {
            return;
        }
        let _ = self.receive(socket, input, None, DRAIN_BYTES_MAX);
        if self.outgoing.is_empty() && !matches!(self.ended, Some(Err(_))) {
            let mut nothing = PlaintextBuffer::none();
            let mut waiting = std::mem::take(&mut self.waiting);
            if self.step(&mut waiting, &mut nothing, Some(TlsWrite::Close)).is_ok() {
                let _ = self.flush(socket);
            }
        }
    }
}

/// What is encrypted on an open connection.
#[derive(Clone, Copy)]
enum TlsWrite<'a> {
    Data(&'a [u8]),
    /// Nothing more is sent.
    Close,
}

impl TlsWrite<'_> {
    fn write(
        self,
        mut traffic: rustls::unbuffered::WriteTraffic<'_, ClientConnectionData>,
        outgoing: &mut Vec<u8>,
    ) -> Result<(), SocketError> {
        let bytes = if let Self::Data(bytes) = self { bytes } else { &[] };
        let records = bytes.len() / 16_384 + 1;
        append(outgoing, bytes.len() + records * RECORD_OVERHEAD_BYTES, |room| {
            let written = match self {
                Self::Data(bytes) => traffic.encrypt(bytes, room),
                Self::Close => traffic.queue_close_notify(room),
            };
            written.map_err(|error| match error {
                EncryptError::InsufficientSize(size) => Some(size),
                EncryptError::EncryptExhausted => None,
            })
        })
    }
}
