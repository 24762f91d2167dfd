//! Receiving a response: read, counted, passed to its checks, and what the end of its connection means.

use super::conn::{KeepHead, Phase, Request, token};
use super::{BUFFER_BYTES, Engine};
use crate::http::content_check::{BodyCheck, BufferPool};
use crate::http::response::{CloseOutcome, FeedResult, ResponseObserver};
use crate::http::response_head::{ResponseHead, has_line, header_value};
use crate::io::network_io::{NetworkIo, SocketError};
use crate::plan::{LOCATION_BYTES_MAX, Plan, is_redirect};
use crate::results::failure::Failure;
use crate::results::recorder::{Report, microseconds};
use webdyno_model::workload::Clock;

/// Bodies with this much left are dropped in the kernel instead of being copied.
const DISCARD_BYTES_MIN: u64 = 8 * 1024;
/// When a large body is expected, only so much is read at first: the head, and little of the body.
const FIRST_READ_BYTES: usize = 2048;
/// The status of a server that has waited too long for a request.
const REQUEST_TIMEOUT: u16 = 408;
/// Reads of one connection before others have their turn.
const READS_MAX: usize = 16;

impl<N: NetworkIo, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, N, X> {
    /// Reads the connections that had more to read than their turn allowed.
    pub(super) fn read_again(&mut self) {
        for index in (0..self.unread.len()).rev() {
            let unread = self.unread.swap_remove(index);
            let conn = &mut self.conns[unread as u32 as usize];
            if token(unread as u32, conn.generation) == unread {
                conn.has_unread_data = false;
            }
            if self.load_end.is_none()
                && let Some(slot) = self.slot_of(unread, Phase::Receiving)
            {
                self.receive(slot);
            }
        }
    }

    /// Reads until the response ends or nothing is there. A short read of a stream says that it is drained (epoll(7)),
    /// unless the server's close is to be read too.
    pub(super) fn receive(&mut self, slot: u32) {
        let may_drop =
            !self.plan.checks.read_bodies() && !self.conns[slot as usize].request.body_handling.kept;
        for _ in 0..READS_MAX {
            let conn = &mut self.conns[slot as usize];
            let left = conn.response.remaining_fixed_body();
            let dropping = left >= DISCARD_BYTES_MIN && conn.may_skip_body();
            let head_cache = &mut self.head_cache[conn.request.template];
            let requested = match dropping {
                true => left.min(BUFFER_BYTES as u64) as usize,
                false
                    if !conn.response.has_started()
                        && may_drop
                        && head_cache.expects_body(DISCARD_BYTES_MIN) =>
                {
                    FIRST_READ_BYTES
                }
                false => BUFFER_BYTES,
            };
            let result = match dropping {
                true => self.io.discard(slot, &mut self.buffer[..requested]),
                false => self.io.recv(slot, &mut self.buffer[..requested]),
            };
            match result {
                Ok(0) => return self.on_close(slot),
                Ok(count) => {
                    self.update_clock();
                    self.record_rx_time(slot);
                    if self.load_end.is_some() || self.consume(slot, count, dropping) {
                        return;
                    }
                    if count < requested && !self.conns[slot as usize].hangup {
                        return;
                    }
                }
                Err(SocketError::INTERRUPTED) => {}
                Err(SocketError::AGAIN) if conn.send_failed => {
                    return self.connection_broken(slot, Failure::Reset);
                }
                Err(SocketError::AGAIN) => return,
                Err(error) => {
                    self.update_clock();
                    if self.load_end.is_none() {
                        let failure = Failure::from_transfer(error);
                        match error {
                            SocketError::Refused if self.may_send_refused(slot) => self.send_again(slot),
                            // No close that crossed the request: its connection goes on.
                            SocketError::StreamReset => self.fail(slot, failure, self.now_ns),
                            _ => self.connection_broken(slot, failure),
                        }
                    }
                    return;
                }
            }
        }
        let conn = &mut self.conns[slot as usize];
        if !std::mem::replace(&mut conn.has_unread_data, true) {
            self.unread.push(token(slot, conn.generation));
        }
    }

    /// After a read: when the kernel had received what it gave, on connections that are timestamped.
    #[inline]
    fn record_rx_time(&mut self, slot: u32) {
        let conn = &self.conns[slot as usize];
        self.received_ns = match conn.rx_timestamped {
            true => self.io.received_ns(slot, conn.sent_ns, self.now_ns),
            false => None,
        };
    }

    /// Processes received bytes of a response. True when the request has ended.
    fn consume(&mut self, slot: u32, count: usize, dropped: bool) -> bool {
        let conn = &mut self.conns[slot as usize];
        self.recorder.report.bytes_received += count as u64;
        conn.received_bytes += count as u64;
        if !conn.response.has_started() {
            let arrival_ns = arrival_ns(self.plan.clock, self.received_ns, conn.sent_ns, self.now_ns);
            self.recorder.report.first_byte.record(microseconds(conn.sent_ns, arrival_ns));
            conn.first_byte_ns = arrival_ns;
        }
        let is_head_request = self.targets.get(conn.request.template).is_head_request;
        let head_cache = &mut self.head_cache[conn.request.template];
        let fed = match dropped {
            true if conn.response.skip_body(count as u64) => Ok(FeedResult::Done { extra_bytes: 0 }),
            true => Ok(FeedResult::More),
            false if self.plan.inspects_responses() => {
                let mut capture = ResponseCapture {
                    plan: self.plan,
                    body_buffers: &mut self.body_buffers,
                    content: &mut conn.content,
                    request: &conn.request,
                    location: &mut conn.location,
                    head: &mut conn.head,
                };
                conn.response.feed_observed(&mut capture, &self.buffer[..count], head_cache, is_head_request)
            }
            false => conn.response.feed(&self.buffer[..count], head_cache, is_head_request),
        };
        match fed {
            Ok(FeedResult::More) => return false,
            Ok(FeedResult::Done { extra_bytes }) => self.response_complete(slot, extra_bytes),
            Err(_) => self.fail(slot, Failure::Protocol, self.now_ns),
        }
        true
    }

    /// The server closed.
    fn on_close(&mut self, slot: u32) {
        self.update_clock();
        if self.load_end.is_some() {
            return;
        }
        // The kernel timestamps bytes, not the close.
        self.received_ns = None;
        let conn = &mut self.conns[slot as usize];
        conn.hangup = true;
        match conn.response.at_close() {
            CloseOutcome::Complete => self.response_complete(slot, 0),
            CloseOutcome::NotHttp => self.fail(slot, Failure::Protocol, self.now_ns),
            CloseOutcome::Early if conn.send_failed => self.connection_broken(slot, Failure::Reset),
            CloseOutcome::Early => self.connection_broken(slot, Failure::ClosedEarly),
        }
    }

    /// An established connection broke. If it was a kept one and the server cannot have begun to answer, that is a
    /// close that crossed the request: an idempotent one is sent again, once, on a fresh connection (RFC 9110, 9.2.2).
    pub(super) fn connection_broken(&mut self, slot: u32, failure: Failure) {
        let has_started = self.conns[slot as usize].response.has_started();
        // A connection whose TLS broke was not closed between requests.
        let closed = !matches!(failure, Failure::Tls | Failure::Protocol);
        match closed && !has_started && self.may_resend(slot) {
            true => self.resend(slot),
            false => self.fail(slot, failure, self.now_ns),
        }
    }

    /// Whether the response does not answer the request: a server whose wait for a request timed out sends 408 and
    /// closes (RFC 9110, 15.5.9), and that may cross the request as a close without a word does.
    pub(super) fn is_server_timeout(&self, slot: u32) -> bool {
        let response = &self.conns[slot as usize].response;
        let server_timed_out = response.status() == REQUEST_TIMEOUT && !response.keep_alive();
        server_timed_out && !self.plan.is_ok(REQUEST_TIMEOUT) && self.may_resend(slot)
    }

    /// Whether a request may be sent again, provided that it was not answered.
    fn may_resend(&self, slot: u32) -> bool {
        let conn = &self.conns[slot as usize];
        conn.responses_served > 0
            && !conn.request.retried
            && self.targets.get(conn.request.template).idempotent
    }

    /// Whether a request may be sent again that the server has refused to process (RFC 9113, section 8.7): once.
    pub(super) fn may_send_refused(&self, slot: u32) -> bool {
        let conn = &self.conns[slot as usize];
        !conn.request.retried && !conn.response.has_started()
    }

    /// Sends the request of a slot again, on a fresh connection: the server had closed the one so far.
    pub(super) fn resend(&mut self, slot: u32) {
        self.count_quiet_close(slot);
        self.send_again(slot);
    }

    /// Sends the request of a slot again, on another connection.
    pub(super) fn send_again(&mut self, slot: u32) {
        self.recorder.report.connections.resent += 1;
        let conn = &mut self.conns[slot as usize];
        let mut request = conn.request;
        let origin = conn.origin;
        request.retried = true;
        self.disconnect(slot);
        let conn = &mut self.conns[slot as usize];
        conn.renew(origin);
        conn.assign(request);
        self.connect(slot);
    }
}

/// When bytes that were read just now came, by the clock that is to count. Bytes may have come before the request was
/// sent (a response that does not wait for it); no time ends before it begins.
pub(super) fn arrival_ns(clock: Clock, received_ns: Option<u64>, sent_ns: u64, read_ns: u64) -> u64 {
    match (clock, received_ns) {
        (Clock::Kernel, Some(received_ns)) => received_ns.max(sent_ns).min(read_ns),
        _ => read_ns,
    }
}

/// What is recorded of a response.
struct ResponseCapture<'a> {
    plan: &'a Plan,
    body_buffers: &'a mut BufferPool,
    content: &'a mut Option<BodyCheck>,
    request: &'a Request,
    location: &'a mut Vec<u8>,
    head: &'a mut Vec<u8>,
}

impl ResponseObserver for ResponseCapture<'_> {
    fn head(&mut self, head: ResponseHead, bytes: &[u8]) {
        let keeps_head = match self.request.keep_head {
            KeepHead::Never => false,
            KeepHead::IfSetsCookies => has_line(bytes, "set-cookie:"),
            KeepHead::Always => true,
        };
        if keeps_head {
            self.head.extend_from_slice(bytes);
        }
        if self.plan.redirects_max > 0
            && is_redirect(head.status)
            && let Some(location) = header_value(bytes, "location").filter(|location| !location.is_empty())
        {
            // One byte too many shows that it is too long.
            self.location.extend_from_slice(&location[..location.len().min(LOCATION_BYTES_MAX + 1)]);
            return;
        }
        // A response that fails by its status is not examined.
        if self.plan.is_ok(head.status) {
            *self.content =
                self.plan.checks.start_body_check(head, self.request.body_handling, self.body_buffers);
        }
    }

    fn body(&mut self, bytes: &[u8]) {
        if let Some(content) = self.content {
            content.feed(bytes);
        }
    }
}
