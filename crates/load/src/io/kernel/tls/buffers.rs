//! The bytes around rustls: what a thread receives, where decrypted bytes go, how encrypted ones are appended.

use crate::io::network_io::SocketError;
use crate::io::rx_timestamps::{OutOfOrder, RxTimestampReader};
use rustix::fd::OwnedFd;
use rustix::net::RecvFlags;
use rustls::unbuffered::InsufficientSizeError;

/// Received bytes of the connection that is read now. A handshake message has at most 64 kB, a record 18 kB.
pub(super) const INPUT_BYTES: usize = 192 * 1024;
/// The smallest read from the socket: a whole record.
const READ_BYTES_MIN: usize = 17 * 1024;

/// The receive buffer of a thread, shared by its connections.
pub(in crate::io::kernel) struct TlsInput {
    bytes: Vec<u8>,
    pub(super) start: usize,
    end: usize,
    reader: RxTimestampReader,
    /// Whether the connection is timestamped.
    pub(in crate::io::kernel) timestamped: bool,
    /// The timestamp of its last read, 0 when that had none; `None` when nothing was read.
    pub(in crate::io::kernel) timestamp_ns: Option<u64>,
    /// The connection's segments that came out of order.
    pub(in crate::io::kernel) out_of_order: OutOfOrder,
}

impl TlsInput {
    pub(in crate::io::kernel) fn new() -> Self {
        Self {
            bytes: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            reader: RxTimestampReader::new(),
            timestamped: false,
            timestamp_ns: None,
            out_of_order: OutOfOrder::default(),
        }
    }

    /// Begins with what a connection had received before.
    pub(super) fn load(&mut self, waiting: &mut Vec<u8>) {
        (self.start, self.end) = (0, waiting.len());
        self.bytes[..waiting.len()].copy_from_slice(waiting);
        *waiting = vec![];
    }

    pub(super) fn filled(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Receives up to `requested` bytes. Returns how many came, and how many there was room for.
    pub(super) fn read(&mut self, socket: &OwnedFd, requested: usize) -> rustix::io::Result<(usize, usize)> {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        } else if self.bytes.len() - self.end < READ_BYTES_MIN {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let requested = requested.max(READ_BYTES_MIN).min(self.bytes.len() - self.end);
        let room = &mut self.bytes[self.end..self.end + requested];
        let count = match self.timestamped {
            false => rustix::net::recv(socket, room, RecvFlags::empty())?.1,
            true => {
                let (count, timestamp_ns) =
                    self.reader.recv(socket, room, RecvFlags::empty(), &mut self.out_of_order)?;
                if count > 0 {
                    self.timestamp_ns = Some(timestamp_ns);
                }
                count
            }
        };
        self.end += count;
        Ok((count, requested))
    }
}

/// Where decrypted bytes go.
pub(super) struct PlaintextBuffer<'a> {
    /// `None` drops them.
    pub(super) buffer: Option<&'a mut [u8]>,
    pub(super) room: usize,
    pub(super) filled: usize,
}

impl PlaintextBuffer<'_> {
    /// For what is no data of the connection.
    pub(super) fn none() -> Self {
        Self { buffer: None, room: 0, filled: 0 }
    }

    /// Copies what there is room for. Returns how much that was.
    pub(super) fn push(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room - self.filled);
        if let Some(buffer) = &mut self.buffer {
            buffer[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
        }
        self.filled += count;
        count
    }

    pub(super) fn is_full(&self) -> bool {
        self.filled == self.room
    }
}

/// Whether a whole record stands there. RFC 8446, section 5.1: type, version, length.
pub(super) fn has_whole_record(bytes: &[u8]) -> bool {
    bytes
        .get(3..5)
        .is_some_and(|length| bytes.len() >= 5 + usize::from(u16::from_be_bytes([length[0], length[1]])))
}

/// Appends what `write` puts into the room it is given; it says so when that is too small.
pub(super) fn append(
    bytes: &mut Vec<u8>,
    mut room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<InsufficientSizeError>>,
) -> Result<(), SocketError> {
    let at = bytes.len();
    for _ in 0..2 {
        bytes.resize(at + room, 0);
        match write(&mut bytes[at..]) {
            Ok(count) => {
                bytes.truncate(at + count);
                return Ok(());
            }
            Err(Some(size)) => room = size.required_size,
            Err(None) => break,
        }
    }
    bytes.truncate(at);
    Err(SocketError::Tls)
}
