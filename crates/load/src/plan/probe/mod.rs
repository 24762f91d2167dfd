//! One request before the load: whether a server listens, whether it speaks HTTP, and what its `Server` header is.
//!
//! It also settles which address of a name is used: `localhost` is often `::1` first, where no server listens. And
//! where redirects are followed, it learns to which servers they lead: the load goes to no server that was not seen
//! before, as its name would have to be resolved meanwhile.

mod alone;
mod http3;
mod pages;

pub use alone::{measure_alone, repeated_answers};

use crate::http::content_check::{BodyCheck, BodyHandling, BufferPool, ResponseChecks};
use crate::http::response::{CloseOutcome, FeedResult, HEAD_BYTES_MAX, Response, ResponseObserver};
use crate::http::response_head::{ResponseHead, ResponseHeadCache, header_text, header_value};
use crate::io::blocking_connection::{BlockingConnection, connect as dial};
use crate::io::http2::blocking::{Http2Error, Http2Stream};
use crate::io::http3::blocking::Http3Error;
use crate::io::origin::{Endpoint, Origin};
use crate::io::tls::HTTP2;
use crate::io::tunnel::TunnelError;
use crate::io::websocket::blocking::{WebSocketError, WebSocketStream};
use crate::plan::{Plan, Prepared, Redirect, Template, is_redirect};
use crate::results::failure::Failure;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use url::Url;
use webdyno_model::{Result, UserError};

/// What one request showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Status of the response; `None` when none came in time.
    pub status: Option<u16>,
    /// Decoded bytes of its body, as far as they came.
    pub body_bytes: u64,
    /// From the start of the connection to the end of the response, or to the timeout.
    pub time_us: u64,
    /// Value of the `Server` header.
    pub server: Option<String>,
    /// Whether the timeout ended it.
    pub timed_out: bool,
}

/// Requests whose redirects are followed before the load, besides the first one.
const EXPLORED_MAX: usize = 64;

/// Sends the first request of the workload once, on a connection made as those of the load, and follows its redirects
/// if the load does. A server that is not there, or that does not speak HTTP, or no TLS that can be trusted, is an
/// error with a hint; a timeout or any status is a result.
///
/// Where redirects are followed, the other requests are sent once too, if they are safe (GET and HEAD, at most 64 of
/// them, in the time of one timeout): the servers that they lead to are those that the load may go to.
pub fn probe(prepared: &mut Prepared) -> Result<Probe> {
    let plan = &prepared.plan;
    let timeout = Duration::from_nanos(plan.timeout_ns);
    for (number, origin) in plan.origins.iter().enumerate() {
        let tcp = matches!(&origin.endpoint, Endpoint::Tcp(tcp) if tcp.addresses.len() > 1);
        if number != plan.templates[0].origin && tcp {
            // A missing server is reported by the load; here it only matters which address to use.
            let _ = match plan.transport.http3_streams {
                Some(_) => http3::connect(origin, plan, Instant::now() + timeout).is_ok(),
                None => connect(origin, plan, timeout).is_ok(),
            };
        }
    }
    let (first, first_template) = prepared.plan.first_request();
    let (capture, _) = follow_chain(prepared, first, first_template, Instant::now(), timeout)
        .map_err(ChainError::into_user_error)?;
    if prepared.plan.redirects_max > 0 {
        let started_at = Instant::now();
        let others = (0..prepared.plan.distinct()).filter(|number| *number != first);
        for number in others.take(EXPLORED_MAX) {
            let plan = &prepared.plan;
            // A request with variables depends on earlier steps of a visitor.
            let is_safe = match plan.entry(number) {
                Some(entry) => entry.is_safe(),
                None => !plan.is_dynamic(number) && plan.templates[number].is_safe(),
            };
            if is_safe {
                match follow_chain(prepared, number, None, started_at, timeout) {
                    Err(ChainError::Local(error)) => return Err(error),
                    // What is wrong with the servers, the load will report.
                    Ok(_) | Err(ChainError::Server(_)) => {}
                }
            }
        }
    }
    pages::explore(prepared, timeout)?;
    prepared.add_connection_warnings();
    Ok(capture)
}

/// Whether a chain of requests failed on this machine or on a server.
enum ChainError {
    /// This machine cannot do what the load needs.
    Local(UserError),
    /// A server is not there, or is no server.
    Server(UserError),
}

impl ChainError {
    fn into_user_error(self) -> UserError {
        match self {
            Self::Local(error) | Self::Server(error) => error,
        }
    }
}

/// Sends a request of the plan, or `first_template` instead of it, and follows its redirects. Returns with what it
/// showed the page that the response is.
fn follow_chain(
    prepared: &mut Prepared,
    number: usize,
    first_template: Option<Template>,
    started_at: Instant,
    timeout: Duration,
) -> std::result::Result<(Probe, Document), ChainError> {
    let mut next: Option<Template> = first_template.or_else(|| prepared.plan.entry(number));
    // The server that redirected to the current one.
    let mut redirected_by: Option<usize> = None;
    let mut hops = 0;
    loop {
        let plan = &prepared.plan;
        let template = next.as_ref().unwrap_or_else(|| &plan.templates[number]);
        let origin = &plan.origins[template.origin];
        let discovers = plan.script.as_ref().is_some_and(|script| script.discovers);
        let mut exchange = Exchange::new(started_at, timeout, discovers);
        exchange.run(template, origin, plan).map_err(|error| {
            ChainError::Server(match redirected_by {
                Some(other) => with_redirect_source(error, &plan.origins[other]),
                None => error,
            })
        })?;
        let few_streams = exchange.few_streams_warning(origin, plan.lanes_per_connection);
        let followed = match hops < plan.redirects_max && !exchange.timed_out {
            true => exchange.redirected(template),
            false => None,
        };
        let document = |exchange: &mut Exchange, template: &Template| Document {
            url: template.url().clone(),
            body: exchange.capture.content.take().and_then(BodyCheck::kept),
        };
        if let Some(text) = few_streams {
            prepared.warn(text);
        }
        let plan = &prepared.plan;
        let template = next.as_ref().unwrap_or_else(|| &plan.templates[number]);
        let Some(redirect) = followed else {
            let document = document(&mut exchange, template);
            return Ok((exchange.result(), document));
        };
        let here = document(&mut exchange, template);
        let (same, name) = (template.origin, template.name);
        let origin = match redirect.same_origin {
            true => Some(same),
            false => prepared.add_origin(redirect.source.url()).map_err(ChainError::Local)?,
        };
        // A server that cannot be found is one that the load will not go to either.
        let Some(origin) = origin else {
            return Ok((exchange.result(), here));
        };
        if origin != same {
            redirected_by = Some(same);
        }
        next = Some(Template::new(redirect.source, origin, name));
        hops += 1;
    }
}

/// A response that may be a page.
struct Document {
    /// Where it came from.
    url: Url,
    /// Its decoded content, if it was to be kept and could be read.
    body: Option<Vec<u8>>,
}

/// An error of a server that the user did not name, with the one that led there.
fn with_redirect_source(error: UserError, by: &Origin) -> UserError {
    UserError { message: format!("{} ({} redirects there)", error.message, by.url()), ..error }
}

/// Connects to the first address that accepts, and remembers which one that was. `None` is a timeout.
fn connect(origin: &Origin, plan: &Plan, timeout: Duration) -> Result<Option<BlockingConnection>> {
    let tcp = match &origin.endpoint {
        Endpoint::Tcp(tcp) => tcp,
        Endpoint::Unix(path) => {
            let display_name = path.display().to_string();
            let on_unix_error = |error| match error {
                // Its server is there, and busy.
                Errno::AGAIN => Ok(None),
                errno => Err(no_connection(&display_name, None, &errno.into())),
            };
            return dial::unix(path).map(Some).or_else(on_unix_error);
        }
    };
    let mut refused = None;
    for (index, address) in tcp.addresses.iter().enumerate() {
        let source =
            plan.transport.source_ips.iter().find(|source| source.is_ipv4() == address.is_ipv4()).copied();
        match dial::tcp(address, source, timeout) {
            Ok(connection) => {
                tcp.choose(index);
                return Ok(Some(connection));
            }
            Err(error) => {
                refused.get_or_insert((*address, error));
            }
        }
    }
    match refused {
        Some((address, error)) if error.kind() != ErrorKind::TimedOut => {
            let proxy = if origin.is_proxied { "the proxy " } else { "" };
            Err(no_connection(&format!("{proxy}{address}"), Some(address), &error))
        }
        _ => Ok(None),
    }
}

/// Why there is no connection, and what helps. There is no address to a unix socket.
fn no_connection(display_name: &str, address: Option<SocketAddr>, error: &std::io::Error) -> UserError {
    let class = Errno::from_io_error(error).map(|errno| Failure::from_connect(errno.into()));
    let (cause, hint) = match (class, address) {
        (Some(Failure::ConnectRefused), Some(address)) => (
            "connection refused".to_owned(),
            format!("nothing listens there; see what does: ss -ltn 'sport = :{}'", address.port()),
        ),
        (Some(Failure::NoDescriptors), _) => {
            ("too many open files".to_owned(), "raise the limit: ulimit -n 65536".to_owned())
        }
        (Some(Failure::LocalPortsExhausted), Some(_)) => (
            "no free local port".to_owned(),
            "wait a minute, or widen the range: sysctl net.ipv4.ip_local_port_range".to_owned(),
        ),
        (_, Some(address)) => (
            plain(error),
            format!("no way leads there; see which one is tried: ip route get {}", address.ip()),
        ),
        (_, None) => (plain(error), "nothing listens there; see what does: ss -lx".to_owned()),
    };
    UserError::cannot_run(format!("cannot connect to {display_name}: {cause}")).hint(hint)
}

/// What a proxy did instead of a tunnel, and what helps.
fn no_tunnel(origin: &Origin, error: TunnelError) -> UserError {
    let message =
        format!("no tunnel to {} through the proxy {}: it {error}", origin.authority, origin.endpoint);
    UserError::cannot_run(message).hint(match error.0 {
        Some(407) => "it wants a user and a password: --proxy http://USER:PASSWORD@HOST:PORT".to_owned(),
        Some(403 | 405) => {
            "its rules must allow CONNECT to that host and port, as AllowCONNECT of Apache does".into()
        }
        Some(_) => "see whether it reaches the server: read its log".into(),
        None => {
            format!("see what listens there: curl -v --proxy http://{} {}/", origin.endpoint, origin.url())
        }
    })
}

/// An error of the system in lower case and without its number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    text.to_lowercase()
}

/// One request and its result.
struct Exchange {
    started_at: Instant,
    timeout: Duration,
    response: Response,
    /// The first bytes of the response, for the headers that the engine has no use for.
    first: Vec<u8>,
    timed_out: bool,
    time: Option<Duration>,
    /// Most streams at once that a server of HTTP/2 or HTTP/3 allows on a connection.
    streams_max: Option<u32>,
    capture: ProbeCapture,
}

/// What is recorded of a response.
#[derive(Default)]
struct ProbeCapture {
    /// Where it redirects to, if it does.
    location: Vec<u8>,
    /// Whether its content is to be kept.
    keeps: bool,
    content: Option<BodyCheck>,
    /// Of the bytes of the body.
    digest: Sha256,
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
    fn new(started_at: Instant, timeout: Duration, keeps: bool) -> Self {
        Self {
            started_at,
            timeout,
            response: Response::default(),
            first: vec![],
            timed_out: false,
            time: None,
            streams_max: None,
            capture: ProbeCapture { keeps, ..ProbeCapture::default() },
        }
    }

    /// Connects, sends and receives, in the time that is left.
    fn run(&mut self, template: &Template, origin: &Origin, plan: &Plan) -> Result<()> {
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
    fn few_streams_warning(&self, origin: &Origin, streams: u32) -> Option<String> {
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
    fn redirected(&self, template: &Template) -> Option<Redirect> {
        let location = &self.capture.location;
        (!location.is_empty()).then(|| template.redirected(self.response.status(), location))?
    }

    fn result(self) -> Probe {
        let time = self.time.unwrap_or(self.timeout);
        Probe {
            status: Some(self.response.status()).filter(|&status| status > 0),
            body_bytes: self.response.body_bytes(),
            time_us: u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
            server: header_text(&self.first, "server"),
            timed_out: self.timed_out,
        }
    }
}

/// Why a probe got no complete response.
enum ExchangeError {
    TimedOut,
    /// What the server did, worded to follow its name.
    Protocol(&'static str),
    /// It was to speak HTTP/2: what it did instead, worded to follow its name.
    NotHttp2(&'static str),
    /// It was to speak HTTP/3.
    Http3(Box<UserError>),
    /// There is no WebSocket.
    WebSocket(WebSocketError),
    /// The proxy made no tunnel.
    Proxy(TunnelError),
    /// TLS failed.
    Tls(Box<rustls::Error>),
}

fn exchange_error(error: std::io::Error) -> ExchangeError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => return ExchangeError::TimedOut,
        ErrorKind::UnexpectedEof => return ExchangeError::Protocol("closed the connection within TLS"),
        _ => {}
    }
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Http2Error>()) {
        Some(Http2Error::Http1) => return ExchangeError::NotHttp2("answers HTTP/2 in HTTP/1"),
        Some(Http2Error::Rules) => return ExchangeError::Protocol("breaks the rules of HTTP/2"),
        None => {}
    }
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Http3Error>()) {
        return match error {
            Http3Error::NoAnswer => ExchangeError::TimedOut,
            Http3Error::Ended(why) => ExchangeError::Http3(Box::new(http3::ended(why))),
        };
    }
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<WebSocketError>()) {
        return ExchangeError::WebSocket(*error);
    }
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<TunnelError>()) {
        return ExchangeError::Proxy(*error);
    }
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => ExchangeError::Tls(Box::new(error.clone())),
        None => ExchangeError::Protocol("reset the connection"),
    }
}
