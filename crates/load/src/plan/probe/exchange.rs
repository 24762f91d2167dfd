//! One request of a probe on a connection of its own: what is sent, what comes back, and what is wrong where nothing does.

use super::connecting::{connect, no_tunnel};
use super::exchange_error::{ExchangeError, exchange_error};
use super::{Probe, http3};
use crate::http::content_check::{BodyCheck, BodyHandling, BufferPool, ResponseChecks};
use crate::http::response::{CloseOutcome, FeedResult, HEAD_BYTES_MAX, Response, ResponseObserver};
use crate::http::response_head::{ResponseHead, ResponseHeadCache, header_text, header_value};
use crate::io::blocking_connection::BlockingConnection;
use crate::io::http2::blocking::Http2Stream;
use crate::io::origin::Origin;
use crate::io::tls::HTTP2;
use crate::io::websocket::blocking::WebSocketStream;
use crate::plan::{Plan, Redirect, Template, is_redirect};
use sha2::{Digest, Sha256};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};
use webdyno_model::{Result, UserError};

/// One request and its result.
pub(super) struct Exchange {
    started_at: Instant,
    timeout: Duration,
    response: Response,
    /// The first bytes of the response, for the headers that the engine has no use for.
    pub(super) first: Vec<u8>,
    pub(super) timed_out: bool,
    time: Option<Duration>,
    /// When it was made, and the time until there was a connection, with that of the exchanges before it.
    made_at: Instant,
    pub(super) setup: Duration,
    /// Most streams at once that a server of HTTP/2 or HTTP/3 allows on a connection.
    streams_max: Option<u32>,
    pub(super) capture: ProbeCapture,
}

/// What is recorded of a response.
#[derive(Default)]
pub(super) struct ProbeCapture {
    /// Where it redirects to, if it does.
    location: Vec<u8>,
    /// Whether its content is to be kept.
    keeps: bool,
    pub(super) content: Option<BodyCheck>,
    /// Of the bytes of the body.
    pub(super) digest: Sha256,
}

impl ResponseObserver for ProbeCapture {
    fn head(&mut self, head: ResponseHead, bytes: &[u8]) {
        if is_redirect(head.status) {
            self.location = header_value(bytes, "location").unwrap_or_default().to_vec();
        } else if self.keeps && head.status < 300 {
            let body_handling = BodyHandling { checked: false, kept: true, needed: false };
            self.content =
                ResponseChecks::default().start_body_check(head, body_handling, &mut BufferPool::default());
        }
    }

    fn body(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        if let Some(content) = &mut self.content {
            content.feed(bytes);
        }
    }
}

impl Exchange {
    /// One that keeps the content of the response, or does not.
    pub(super) fn new(started_at: Instant, timeout: Duration, keeps: bool) -> Self {
        Self {
            started_at,
            timeout,
            response: Response::default(),
            first: vec![],
            timed_out: false,
            time: None,
            made_at: Instant::now(),
            setup: Duration::ZERO,
            streams_max: None,
            capture: ProbeCapture { keeps, ..ProbeCapture::default() },
        }
    }

    /// Connects, sends and receives, in the time that is left.
    pub(super) fn run(&mut self, template: &Template, origin: &Origin, plan: &Plan) -> Result<()> {
        if plan.transport.http3_streams.is_some() {
            let done = self.send_over_http3(template, origin, plan);
            return self.conclude(done, origin);
        }
        let connection = match self.time_left() {
            Ok(left) => connect(origin, plan, left)?,
            Err(_) => None,
        };
        match connection {
            None => self.timed_out = true,
            Some(connection) => self.perform(connection, template, origin, plan)?,
        }
        Ok(())
    }

    /// Sends the request and receives until the response ends, the server closes, or the time is over.
    fn perform(
        &mut self,
        connection: BlockingConnection,
        template: &Template,
        origin: &Origin,
        plan: &Plan,
    ) -> Result<()> {
        let done = self.send_and_receive(connection, template, origin, plan);
        self.conclude(done, origin)
    }

    /// A timeout is a result, any other end without a response an error.
    fn conclude(&mut self, done: std::result::Result<(), ExchangeError>, origin: &Origin) -> Result<()> {
        self.time = Some(self.started_at.elapsed());
        match done {
            Ok(()) => Ok(()),
            Err(ExchangeError::TimedOut) => {
                self.timed_out = true;
                Ok(())
            }
            Err(ExchangeError::Protocol(cause)) => {
                let message = format!("{} {cause}", origin.display_name());
                let hint = format!("see what it answers: curl -v {}/", origin.url());
                Err(UserError::cannot_run(message).hint(hint))
            }
            Err(ExchangeError::NotHttp2(cause)) => {
                let message = format!("{} {cause}", origin.display_name());
                Err(UserError::cannot_run(message).hint("leave --http2 out to load it over HTTP/1.1"))
            }
            Err(ExchangeError::Http3(error)) => Err(*error),
            Err(ExchangeError::WebSocket(error)) => {
                let hint = "see whether the path is right, and what the server's log says: it may want a header (-H)";
                Err(UserError::cannot_run(format!("{} {error}", origin.display_name())).hint(hint))
            }
            Err(ExchangeError::Proxy(error)) => Err(no_tunnel(origin, error)),
            Err(ExchangeError::Tls(error)) => {
                let (cause, hint) = crate::io::tls::explain(&error);
                let message = format!("{} {cause}", origin.display_name());
                Err(UserError::cannot_run(message).hint(hint))
            }
        }
    }

    fn send_and_receive(
        &mut self,
        connection: BlockingConnection,
        template: &Template,
        origin: &Origin,
        plan: &Plan,
    ) -> std::result::Result<(), ExchangeError> {
        connection.set_timeouts(self.time_left()?).map_err(exchange_error)?;
        let secure = origin.server_name.is_some();
        let connection = connection
            .with_tunnel(origin.tunnel.as_ref(), self.started_at + self.timeout)
            .map_err(exchange_error)?;
        connection.set_timeouts(self.time_left()?).map_err(exchange_error)?;
        let stream =
            connection.with_tls(plan.tls.as_ref(), origin.server_name.as_ref()).map_err(exchange_error)?;
        if let Some(upgrade) = &origin.websocket {
            let mut stream = WebSocketStream::new(stream, upgrade, plan.seed);
            return self.converse(&mut stream, |stream, left| stream.stream().set_timeouts(left), template);
        }
        if plan.transport.http2_streams.is_none() {
            return self.converse(&mut { stream }, |stream, left| stream.set_timeouts(left), template);
        }
        if secure && stream.chosen_protocol() != Some(HTTP2) {
            return Err(ExchangeError::NotHttp2("does not choose HTTP/2 in the TLS handshake (ALPN)"));
        }
        let mut stream = Http2Stream::new(stream, secure);
        let done = self.converse(&mut stream, |stream, left| stream.stream().set_timeouts(left), template);
        self.streams_max = stream.streams_max();
        done
    }

    /// Sends and receives over HTTP/3.
    fn send_over_http3(
        &mut self,
        template: &Template,
        origin: &Origin,
        plan: &Plan,
    ) -> std::result::Result<(), ExchangeError> {
        let until = self.started_at + self.timeout;
        let mut stream = http3::connect(origin, plan, until)?;
        let done = self.converse(
            &mut stream,
            |stream, left| {
                stream.set_deadline(Instant::now() + left);
                Ok(())
            },
            template,
        );
        // Beside the stream of this request, which the server may have given back already.
        self.streams_max = stream.take_streams(plan.lanes_per_connection).map(|more| more.saturating_add(1));
        done
    }

    /// Sends and receives on a connection that is established; `set_time` gives it a timeout.
    fn converse<S: Read + Write>(
        &mut self,
        stream: &mut S,
        set_time: impl Fn(&mut S, Duration) -> std::io::Result<()>,
        template: &Template,
    ) -> std::result::Result<(), ExchangeError> {
        self.setup += self.made_at.elapsed();
        let mut memory = ResponseHeadCache::default();
        let mut buffer = vec![0; HEAD_BYTES_MAX];
        for part in template.parts() {
            match stream.write_all(part) {
                // The server may have answered before it was done: what can be read decides.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
                done => done.map_err(exchange_error)?,
            }
        }
        loop {
            set_time(stream, self.time_left()?).map_err(exchange_error)?;
            let count = match stream.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                got => got.map_err(exchange_error)?,
            };
            if count == 0 {
                return match self.response.at_close() {
                    CloseOutcome::Complete => Ok(()),
                    CloseOutcome::NotHttp => Err(ExchangeError::Protocol("does not answer in HTTP/1")),
                    CloseOutcome::Early => {
                        Err(ExchangeError::Protocol("closed the connection before its answer was complete"))
                    }
                };
            }
            let room = HEAD_BYTES_MAX - self.first.len();
            self.first.extend_from_slice(&buffer[..count.min(room)]);
            let bytes = &buffer[..count];
            match self.response.feed_observed(&mut self.capture, bytes, &mut memory, template.is_head_request)
            {
                Ok(FeedResult::More) => {}
                Ok(FeedResult::Done { .. }) => return Ok(()),
                Err(_) => return Err(ExchangeError::Protocol("does not answer in HTTP/1")),
            }
        }
    }

    /// That requests will wait for streams, where the server allows fewer than are asked for.
    pub(super) fn few_streams_warning(&self, origin: &Origin, streams: u32) -> Option<String> {
        let most = self.streams_max.filter(|most| *most < streams)?;
        Some(format!(
            "{} allows {most} concurrent streams on a connection, and {streams} are asked for: requests beyond them wait \
             in the generator. Give more connections (-c), or --streams {most}",
            origin.display_name()
        ))
    }

    /// The time that is left, which the system wants to be above zero.
    fn time_left(&self) -> std::result::Result<Duration, ExchangeError> {
        match self.timeout.checked_sub(self.started_at.elapsed()) {
            Some(left) if left > Duration::ZERO => Ok(left),
            _ => Err(ExchangeError::TimedOut),
        }
    }

    /// The request that the response leads to.
    pub(super) fn redirected(&self, template: &Template) -> Option<Redirect> {
        let location = &self.capture.location;
        (!location.is_empty()).then(|| template.redirected(self.response.status(), location))?
    }

    pub(super) fn result(self) -> Probe {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let setup = if self.response.keep_alive() { self.setup } else { Duration::ZERO };
        Probe {
            status: Some(self.response.status()).filter(|&status| status > 0),
            body_bytes: self.response.body_bytes(),
            time_us: us(self.time.unwrap_or(self.timeout)),
            setup_us: us(setup),
            server: header_text(&self.first, "server"),
            timed_out: self.timed_out,
        }
    }
}
