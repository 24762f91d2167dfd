//! One connection slot and the request that it carries.

use crate::http::content_check::{BodyCheck, BodyHandling};
use crate::http::response::Response;
use crate::io::tcp_info::TcpReading;
use crate::plan::request_message::RequestMessage;

/// A request in progress.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Request {
    /// Whose it is, in closed arrival; the place of the visitor, if there are visitors.
    pub(crate) user: u32,
    /// Which of the thread's targets.
    pub(crate) template: usize,
    /// The entry of the list, or the fetch of its visitor, that it sends.
    pub(crate) item: u32,
    /// When it was to start.
    pub(crate) intended_ns: u64,
    /// When this process could have sent it: from then on, waiting is our own delay.
    pub(crate) sendable_ns: u64,
    /// When it times out.
    pub(crate) deadline_ns: u64,
    /// It was sent before, on a kept connection that the server had closed.
    pub(crate) retried: bool,
    /// Redirects that it has followed.
    pub(crate) hops: u32,
    /// It is conditional: it revalidates a cached response.
    pub(crate) confirms: bool,
    /// What is wanted of the response.
    pub(crate) body_handling: BodyHandling,
    /// The head of the response is to be kept, in any case or when it sets cookies.
    pub(crate) keep_head: KeepHead,
    /// When the first request of the chain was sent, once it has followed one.
    pub(crate) sent_ns: u64,
}

/// Whether the head of a response is kept for the sender of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum KeepHead {
    #[default]
    Never,
    IfSetsCookies,
    Always,
}

/// What a slot is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    /// No socket.
    #[default]
    Free,
    /// The connection is not established yet, as far as we know.
    Connecting,
    /// The kernel has not accepted the whole request yet.
    Sending,
    /// The request is sent.
    Receiving,
    /// Kept open for the next request.
    Idle,
    /// Done; waits shortly for the server to close first.
    Parked,
}

/// A slot; by default one without a socket.
#[derive(Debug, Default)]
pub(crate) struct Conn {
    pub(crate) phase: Phase,
    /// Changes with every use of the slot, so that events of its previous socket are recognised.
    pub(crate) generation: u32,
    pub(crate) origin: usize,
    pub(crate) request: Request,
    /// The bytes to send, where they differ from the template's.
    pub(crate) message: RequestMessage,
    /// Bytes of the request that the kernel has accepted.
    pub(crate) written_bytes: usize,
    /// When the connection was begun.
    pub(crate) started_ns: u64,
    /// When the first byte of the request was sent.
    pub(crate) sent_ns: u64,
    /// When the first byte of the response came.
    pub(crate) first_byte_ns: u64,
    /// Bytes of the response so far, head and framing included.
    pub(crate) received_bytes: u64,
    /// Our own delay before the connection was begun.
    pub(crate) connect_delay_ns: u64,
    /// Responses that it has carried.
    pub(crate) responses_served: u32,
    pub(crate) established: bool,
    /// The kernel timestamps what comes on it.
    pub(crate) rx_timestamped: bool,
    /// The server's close was signalled.
    pub(crate) hangup: bool,
    /// A send failed: what can still be read is all there is.
    pub(crate) send_failed: bool,
    /// It had more to read than its turn allowed.
    pub(crate) has_unread_data: bool,
    /// The last reading of its TCP, when it is in the sample.
    pub(crate) tcp: Option<TcpReading>,
    pub(crate) response: Response,
    /// The response's body, when it is to be checked.
    pub(crate) content: Option<BodyCheck>,
    /// Where the response redirects to; empty for one that does not, or when redirects are not followed.
    pub(crate) location: Vec<u8>,
    /// The head of the response, if it was to be kept; else empty.
    pub(crate) head: Vec<u8>,
}

impl Conn {
    /// Makes it ready for a new socket.
    pub(crate) fn renew(&mut self, origin: usize) {
        self.phase = Phase::Connecting;
        self.origin = origin;
        self.responses_served = 0;
        (self.established, self.rx_timestamped, self.hangup, self.send_failed) = (false, false, false, false);
        self.has_unread_data = false;
        (self.started_ns, self.connect_delay_ns) = (0, 0);
    }

    #[inline]
    pub(crate) fn assign(&mut self, request: Request) {
        self.request = request;
        self.written_bytes = 0;
        (self.sent_ns, self.first_byte_ns, self.received_bytes) = (0, 0, 0);
        self.response.reset();
        self.content = None;
        self.location.clear();
        self.head.clear();
    }

    /// Whether the rest of the body may be dropped unread.
    #[inline]
    pub(crate) fn may_skip_body(&self) -> bool {
        !self.content.as_ref().is_some_and(BodyCheck::needs_more)
    }

    /// Whether a request is in progress on it.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.phase, Phase::Connecting | Phase::Sending | Phase::Receiving)
    }
}

/// The token of a slot in its present use.
pub(crate) fn token(slot: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(slot)
}
