//! Gets one page over plain HTTP on a fresh connection, within a time limit, reading no more than a bound.
//!
//! Facts: RFC 9112. The request says HTTP/1.0, so that the answer ends with the connection and is never chunked; Host
//! goes along for virtual hosts. Written by hand around httparse, which the workspace needs anyway: of the clients
//! without TLS, minreq counts its timeout in whole seconds and starts a thread for each request, and ureq brings a
//! dozen packages for redirects, proxies and pools that must not happen here.

use crate::probes::status_page::is_whole;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The longest answer in bytes: a scoreboard has one byte for each worker.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The most header lines.
const HEADERS_MAX: usize = 64;

/// Answers that this process was given, by URL.
static ANSWERS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// How often a page answered this process, whoever of it asked: a look at the topology asks beside the collector, and the
/// server counts every request.
pub(crate) fn answers_count(url: &str) -> u64 {
    ANSWERS.lock().unwrap_or_else(PoisonError::into_inner).get(url).copied().unwrap_or(0)
}

fn count_answer(url: &str) {
    *ANSWERS.lock().unwrap_or_else(PoisonError::into_inner).entry(url.to_owned()).or_default() += 1;
}

/// The parts of `http://authority/path`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// As it goes into the Host header.
    pub authority: String,
    /// Name or address, without the brackets of IPv6.
    pub host: String,
    pub port: u16,
    /// Without query.
    pub path: String,
}

/// A request that was sent and whose answer is being waited for.
#[derive(Debug)]
pub(crate) struct Request {
    url: String,
    begun: Instant,
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Request {
    /// Connects and sends `GET url?auto`.
    pub fn begin(url: &str, timeout: Duration) -> Result<Self> {
        Self::begin_with(url, "auto", timeout)
    }

    fn begin_with(url: &str, query: &str, timeout: Duration) -> Result<Self> {
        let address = parse_url(url)?;
        let begun = Instant::now();
        let stream = send(&address, query, begun + timeout).map_err(|error| match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => unanswered(url, timeout),
            ErrorKind::ConnectionRefused => {
                let message = format!("cannot connect to the status page {url}: connection refused");
                UserError::cannot_run(message).hint("`ss -ltn` shows on which addresses the server listens")
            }
            _ => io_error("connect to", format!("the status page {url}"), &error),
        })?;
        Ok(Self { url: url.to_owned(), begun, stream, answer: vec![] })
    }

    /// What is asked for.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// For how long it has been waited.
    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Waits for the answer until `deadline`; the body of a 200 answer, or `None` when it has not come yet.
    pub fn wait(&mut self, deadline: Instant) -> Result<Option<String>> {
        match receive(&mut self.stream, &mut self.answer, deadline) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
                return Ok(None);
            }
            Err(error) => return Err(io_error("read", format!("the status page {}", self.url), &error)),
        }
        let answer = parse_answer(&self.answer);
        if answer.is_some() {
            count_answer(&self.url);
        }
        match answer {
            Some((200, body)) => Ok(Some(body)),
            Some((status, body)) => Err(refused(&self.url, status, &body)),
            None => {
                let message = format!("the status page {} does not answer in HTTP", self.url);
                Err(UserError::cannot_run(message))
            }
        }
    }
}

/// Gets `url?auto` and gives the body of a 200 answer.
pub(crate) fn get(url: &str, timeout: Duration) -> Result<String> {
    let deadline = Instant::now() + timeout;
    Request::begin(url, timeout)?.wait(deadline)?.ok_or_else(|| unanswered(url, timeout))
}

/// Gets `url?query`, the page for people: with `notable` without what each worker does.
pub(crate) fn get_page(url: &str, query: &str, timeout: Duration) -> Result<String> {
    let deadline = Instant::now() + timeout;
    Request::begin_with(url, query, timeout)?.wait(deadline)?.ok_or_else(|| unanswered(url, timeout))
}

/// The error of a page that does not come.
pub(crate) fn unanswered(url: &str, waited: Duration) -> UserError {
    let waited_s = (waited.as_secs_f64() * 10.0).round() / 10.0;
    UserError::cannot_run(format!("the status page {url} did not answer within {waited_s} s"))
        .hint("every worker may be busy: the page needs one itself")
}

/// The error of an answer that is no page, with what helps.
fn refused(url: &str, status: u16, body: &str) -> UserError {
    let message = |what: &str| UserError::cannot_run(format!("the status page {url} {what}"));
    let answers = format!("answers {status}");
    match status {
        // The text of ap_http_filter's error page (server/protocol.c) for requests without TLS.
        400 if body.contains("plain HTTP to an SSL-enabled") => message("is served over TLS only (answers 400)").hint(
            "webdyno asks without TLS: give the page a listener of its own, `Listen 127.0.0.1:8099` and a \
             <VirtualHost 127.0.0.1:8099> with the <Location>",
        ),
        300..=399 => message(&format!("{answers}: a redirect")).hint(
            "leave its path out of the redirect (`RewriteRule ^/server-status$ - [END]` before it), or give the page a \
             listener of its own",
        ),
        401 => message(&format!("{answers}: it asks for a password"))
            .hint("let this machine in without one: `Require local` beside `Require valid-user` in its <Location>"),
        403 => message(&answers).hint("allow it for this machine: `Require local` in its <Location>"),
        404 => message(&answers).hint("switch mod_status on (`a2enmod status`) and give it a <Location>"),
        500..=599 => message(&answers).hint("the error log of the server says why"),
        _ => message(&answers),
    }
}

/// Splits a URL; a query is left off. An error when it is not plain HTTP.
pub(crate) fn parse_url(url: &str) -> Result<Address> {
    let wrong = || {
        UserError::usage(format!("`{url}` is not the URL of a status page"))
            .hint("write it as http://127.0.0.1:80/server-status")
    };
    // Anything else would be another request than the one that is meant.
    if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(wrong());
    }
    let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, port) = match authority.strip_prefix('[') {
        Some(six) => {
            let (host, port) = six.split_once(']').ok_or_else(wrong)?;
            (host, port.strip_prefix(':').or_else(|| port.is_empty().then_some("80")))
        }
        None => authority.split_once(':').map_or((authority, Some("80")), |(host, port)| (host, Some(port))),
    };
    let port: u16 = port.and_then(|port| port.parse().ok()).filter(|&port| port > 0).ok_or_else(wrong)?;
    if host.is_empty() || host.contains('@') {
        return Err(wrong());
    }
    let path = if path.is_empty() { "/" } else { path };
    Ok(Address { authority: authority.to_owned(), host: host.to_owned(), port, path: path.to_owned() })
}

/// The time that is left, or an error when there is none: a timeout of zero would mean none at all.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn connect(address: &Address, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::from(ErrorKind::NotFound);
    let candidates: Vec<SocketAddr> = (address.host.as_str(), address.port).to_socket_addrs()?.collect();
    for candidate in candidates {
        match TcpStream::connect_timeout(&candidate, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects and sends the request.
fn send(address: &Address, query: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut stream = connect(address, deadline)?;
    let request = format!(
        "GET {}?{query} HTTP/1.0\r\nHost: {}\r\nUser-Agent: webdyno/{}\r\n\
         Accept: text/plain\r\nConnection: close\r\n\r\n",
        address.path,
        address.authority,
        env!("CARGO_PKG_VERSION"),
    );
    stream.set_write_timeout(Some(left(deadline)?))?;
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

/// Reads until the connection ends. When the time is up before, what came is kept and reading can go on later.
fn receive(stream: &mut TcpStream, answer: &mut Vec<u8>, deadline: Instant) -> io::Result<()> {
    let mut buffer = [0; 16 << 10];
    while answer.len() < ANSWER_BYTES_MAX {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                answer.extend_from_slice(buffer.get(..count).unwrap_or_default());
                if is_whole(answer) {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(ErrorKind::InvalidData, format!("longer than {ANSWER_BYTES_MAX} bytes")))
}

/// Status and body of a complete answer; `None` when it is not one, also when less came than was announced.
pub(crate) fn parse_answer(answer: &[u8]) -> Option<(u16, String)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(answer).ok()? else {
        return None;
    };
    let header = |name: &str| {
        let mut values = head.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        values.next().and_then(|header| std::str::from_utf8(header.value).ok())
    };
    let mut body = answer.get(length..)?;
    if let Some(announced) = header("content-length") {
        body = body.get(..announced.trim().parse().ok()?)?;
    }
    // Not allowed in an answer to HTTP/1.0: the sizes would stand in the middle of the scoreboard.
    if header("transfer-encoding").is_some() {
        return None;
    }
    Some((head.code?, String::from_utf8_lossy(body).into_owned()))
}
