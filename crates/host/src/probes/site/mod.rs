//! Whether a site answers as before: what it answered is learnt from several answers, and later ones are compared.
//!
//! An answer is its status and the length of its body. A later one is as before when its status was seen before, and
//! its length lies within those that were seen, widened by a tenth and at least [`LENGTH_MARGIN_BYTES`]: pages hold
//! dates, ports and counters. Over TLS the certificate is the same, too.
//!
//! The question is HTTP/1.0 (RFC 1945) with a `Host` header, so that the body ends with the connection.

mod tls;

use crate::os::cancellation::Cancellation;
use crate::os::timeouts;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tls::{Connection, Fingerprint};
use webdyno_model::change::SiteProbe;
use webdyno_model::number::human::count;
use webdyno_model::{Result, UserError};

/// The least that a length may differ.
const LENGTH_MARGIN_BYTES: u64 = 64;

/// The most that is read of a body: a longer one counts as so long.
const BODY_BYTES_MAX: usize = 4 << 20;

/// The longest head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The most header lines of an answer.
const HEADERS_COUNT_MAX: usize = 128;

/// How often a site is asked to learn how it answers.
const LEARNING_COUNT: usize = 3;

/// How often a site is asked before it counts as changed: workers of before a reload may answer for a moment.
const TRIES_COUNT: usize = 5;

/// The pause between two of these.
const PAUSE: Duration = Duration::from_millis(300);

/// The most requests that are asked.
pub const PROBES_COUNT_MAX: usize = 5;

/// One answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// The length of its body, at most 4 MiB.
    pub length_bytes: u64,
    /// The certificate that came with it; `None` without TLS.
    pub certificate: Option<Fingerprint>,
}

/// Asks an address something within a time.
type SiteRequest<'a> = Box<dyn Fn(SocketAddr, &SiteProbe, Duration) -> io::Result<Answer> + 'a>;

/// Who asks: the network and a clock.
pub struct SiteClient<'a> {
    request: SiteRequest<'a>,
    clock: Box<dyn Fn() -> Duration + 'a>,
    pause: Box<dyn Fn(Duration) + 'a>,
}

impl<'a> SiteClient<'a> {
    /// Through this network, and by this clock.
    pub fn new(
        request: impl Fn(SocketAddr, &SiteProbe, Duration) -> io::Result<Answer> + 'a,
        clock: impl Fn() -> Duration + 'a,
        pause: impl Fn(Duration) + 'a,
    ) -> Self {
        Self { request: Box::new(request), clock: Box::new(clock), pause: Box::new(pause) }
    }

    /// The same until the tool is gone: from then on nothing answers, and nothing is waited for.
    pub fn until(self, cancellation: &'a Cancellation) -> Self {
        let Self { request, clock, pause } = self;
        let gone = || io::Error::new(io::ErrorKind::Interrupted, "the tool is gone");
        Self {
            request: Box::new(move |address, probe, at_most| match cancellation.is_set() {
                true => Err(gone()),
                false => request(address, probe, at_most),
            }),
            clock,
            pause: Box::new(move |time| {
                if !cancellation.is_set() {
                    pause(time)
                }
            }),
        }
    }

    /// Asks before a deadline, and for at most as long as one answer may take.
    fn request(&self, address: SocketAddr, probe: &SiteProbe, deadline: Duration) -> io::Result<Answer> {
        let left = deadline.saturating_sub((self.clock)()).min(timeouts::SITE_ANSWER);
        if left.is_zero() {
            return Err(too_slow());
        }
        (self.request)(address, probe, left)
    }

    /// The same as long as the site was not silent for too long in all: one that hangs does so whatever it is asked, and
    /// what made it hang is to be undone soon.
    fn request_within_silence(
        &self,
        address: SocketAddr,
        probe: &SiteProbe,
        deadline: Duration,
        silence: &Cell<Duration>,
    ) -> io::Result<Answer> {
        let began = (self.clock)();
        let patience = timeouts::SITE_SILENCE.saturating_sub(silence.get());
        let answer = self.request(address, probe, deadline.min(began + patience));
        if answer.is_err() {
            silence.set(silence.get() + (self.clock)().saturating_sub(began));
        }
        answer
    }
}

/// How a site answers one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Baseline {
    probe: SiteProbe,
    statuses: BTreeSet<u16>,
    length_min_bytes: u64,
    length_max_bytes: u64,
    certificates: BTreeSet<Option<Fingerprint>>,
}

/// How a site answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    address: SocketAddr,
    usual: Vec<Baseline>,
}

/// What was learnt of a site, and what could not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedSite {
    /// `None` when it answered nothing.
    pub site: Option<Site>,
    /// In words.
    pub warnings: Vec<String>,
}

/// Where a second instance answers.
pub fn own_address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// The requests that are asked: those given, or the root of the site.
pub fn probes(given: &[SiteProbe]) -> Vec<SiteProbe> {
    match given {
        [] => vec![SiteProbe { host: "localhost".into(), target: "/".into(), tls: false }],
        given => given.iter().take(PROBES_COUNT_MAX).cloned().collect(),
    }
}

/// Learns how a site answers at the first of the addresses that answers.
pub fn learn(client: &SiteClient<'_>, addresses: &[SocketAddr], given: &[SiteProbe]) -> LearnedSite {
    let probes = probes(given);
    let deadline = (client.clock)() + timeouts::SITE_LEARN;
    for &address in addresses {
        let answers = answers(client, address, &probes, deadline);
        let known = probes.iter().zip(&answers);
        let usual: Vec<Baseline> =
            known.clone().filter_map(|(probe, answers)| Baseline::of(probe, answers)).collect();
        if usual.is_empty() {
            continue;
        }
        let silent = known.filter(|(_, answers)| answers.is_empty()).map(|(probe, _)| {
            format!("{} was not answered before the change, so it is not compared", probe_text(probe))
        });
        return LearnedSite { warnings: silent.collect(), site: Some(Site { address, usual }) };
    }
    let warning = "the site did not answer before the change, so its answers are not compared";
    LearnedSite { site: None, warnings: vec![warning.to_owned()] }
}

/// Several answers to each request, in turns. A request that is not answered at first is not asked again, as that would
/// take its whole time again.
fn answers(
    client: &SiteClient<'_>,
    address: SocketAddr,
    probes: &[SiteProbe],
    deadline: Duration,
) -> Vec<Vec<Answer>> {
    let mut answers: Vec<Vec<Answer>> = vec![vec![]; probes.len()];
    for round in 0..LEARNING_COUNT {
        for (probe, answers) in probes.iter().zip(&mut answers) {
            if answers.len() == round {
                answers.extend(client.request(address, probe, deadline).ok());
            }
        }
    }
    answers
}

impl Site {
    /// Looks a few times whether all answers are as before. The error tells what differs.
    pub fn answers_as_before(&self, client: &SiteClient<'_>) -> Result<()> {
        self.compare(client, self.address, &|probe| vec![probe.clone()])
    }

    /// The same of a second instance on another port of 127.0.0.1. Its virtual hosts have that port: where the site goes
    /// by its port, the `Host` header tells it the one of the original.
    pub fn is_answered_alike(&self, client: &SiteClient<'_>, port: u16) -> Result<()> {
        let forms = |probe: &SiteProbe| {
            let message = SiteProbe { host: with_port(&probe.host, self.address.port()), ..probe.clone() };
            let mut forms = vec![probe.clone(), message];
            forms.dedup();
            forms
        };
        self.compare(client, own_address(port), &forms)
    }

    fn compare(
        &self,
        client: &SiteClient<'_>,
        address: SocketAddr,
        forms: &dyn Fn(&SiteProbe) -> Vec<SiteProbe>,
    ) -> Result<()> {
        let deadline = (client.clock)() + timeouts::SITE_CHECK;
        let silence = Cell::new(Duration::ZERO);
        let mut left: Vec<&Baseline> = self.usual.iter().collect();
        for round in 0..TRIES_COUNT {
            let mut first = None;
            left.retain(|usual| {
                let difference_of = |form: SiteProbe| {
                    usual.difference(&client.request_within_silence(address, &form, deadline, &silence))
                };
                let mut forms = forms(&usual.probe).into_iter();
                let difference = forms.next().and_then(difference_of);
                let differs = difference.is_some() && forms.all(|form| difference_of(form).is_some());
                first = first.take().or(difference.filter(|_| differs));
                differs
            });
            match first {
                None => return Ok(()),
                Some(message)
                    if round + 1 == TRIES_COUNT
                        || (client.clock)() >= deadline
                        || silence.get() >= timeouts::SITE_SILENCE =>
                {
                    return Err(UserError::cannot_run(message));
                }
                Some(_) => (client.pause)(PAUSE),
            }
        }
        Ok(())
    }
}

impl Baseline {
    /// `None` without an answer.
    fn of(probe: &SiteProbe, answers: &[Answer]) -> Option<Self> {
        let lengths = answers.iter().map(|answer| answer.length_bytes);
        Some(Self {
            probe: probe.clone(),
            statuses: answers.iter().map(|answer| answer.status).collect(),
            length_min_bytes: lengths.clone().min()?,
            length_max_bytes: lengths.max()?,
            certificates: answers.iter().map(|answer| answer.certificate).collect(),
        })
    }

    fn is(&self, answer: Answer) -> bool {
        if !self.certificates.contains(&answer.certificate) {
            return false;
        }
        // A limit may have been what it failed of: that it succeeds now is what a change is for.
        let failed = self.statuses.iter().any(|status| *status >= 500);
        if failed && (200..400).contains(&answer.status) {
            return true;
        }
        let margin_bytes = LENGTH_MARGIN_BYTES.max(self.length_max_bytes / 10);
        let from_bytes = self.length_min_bytes.saturating_sub(margin_bytes);
        let lengths = from_bytes..=self.length_max_bytes.saturating_add(margin_bytes);
        self.statuses.contains(&answer.status) && lengths.contains(&answer.length_bytes)
    }

    /// What was and what is, in words; `None` when it is as before.
    fn difference(&self, answer: &io::Result<Answer>) -> Option<String> {
        let now = match answer {
            Ok(answer) if self.is(*answer) => return None,
            Ok(answer) if !self.certificates.contains(&answer.certificate) => {
                "with another certificate now".to_owned()
            }
            Ok(answer) => format!("{} with {} bytes now", answer.status, count(answer.length_bytes)),
            Err(error) => format!("not at all now ({})", reason(error)),
        };
        Some(format!("{} answered {self} before, and {now}", probe_text(&self.probe)))
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statuses: Vec<String> = self.statuses.iter().map(u16::to_string).collect();
        let (min, max) = (count(self.length_min_bytes), count(self.length_max_bytes));
        let lengths = if min == max { max } else { format!("{min} to {max}") };
        write!(f, "{} with {lengths} bytes", statuses.join(" or "))
    }
}

/// Why there was no answer.
fn reason(error: &io::Error) -> String {
    if error.raw_os_error().is_some() { error.kind().to_string() } else { error.to_string() }
}

/// A request as it may be shown: queries may hold secrets.
fn probe_text(probe: &SiteProbe) -> String {
    match probe.target.split_once('?') {
        Some((path, _)) => format!("GET {path}?.."),
        None => format!("GET {}", probe.target),
    }
}

/// The host with a port, if it has none.
fn with_port(host: &str, port: u16) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port && !host.ends_with(']') { host.to_owned() } else { format!("{host}:{port}") }
}

/// Asks through the network, within a time.
pub fn request(address: SocketAddr, probe: &SiteProbe, at_most: Duration) -> io::Result<Answer> {
    let deadline = Instant::now() + at_most;
    let (target, host) = (plain(&probe.target)?, plain(&probe.host)?);
    let stream = TcpStream::connect_timeout(&address, at_most)?;
    stream.set_write_timeout(Some(left(deadline)?))?;
    // A handshake reads, too.
    stream.set_read_timeout(Some(left(deadline)?))?;
    let mut stream = if probe.tls { Connection::tls(stream, host)? } else { Connection::Plain(stream) };
    let question = format!(
        "GET {target} HTTP/1.0\r\nHost: {host}\r\nUser-Agent: webdyno\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(question.as_bytes())?;
    let (status, mut length_bytes) = head(&mut stream, deadline)?;
    let mut buffer = [0; 16 << 10];
    while length_bytes < BODY_BYTES_MAX {
        match read(&mut stream, &mut buffer, deadline) {
            Ok(0) => break,
            Ok(count) => length_bytes += count,
            // Some servers reset a connection that they have answered.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error),
        }
    }
    let length_bytes = length_bytes.min(BODY_BYTES_MAX) as u64;
    Ok(Answer { status, length_bytes, certificate: stream.certificate() })
}

/// Reads until the head is whole: the status, and how much of the body came with it.
fn head(stream: &mut Connection, deadline: Instant) -> io::Result<(u16, usize)> {
    let mut bytes = vec![];
    let mut buffer = [0; 4 << 10];
    loop {
        if let Some((status, length)) = parse(&bytes)? {
            return Ok((status, bytes.len() - length));
        }
        match read(stream, &mut buffer, deadline)? {
            0 => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the connection ended before an answer",
                ));
            }
            count => bytes.extend_from_slice(buffer.get(..count).unwrap_or_default()),
        }
    }
}

fn read(stream: &mut Connection, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
    loop {
        stream.tcp().set_read_timeout(Some(left(deadline)?))?;
        match stream.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(too_slow()),
            other => return other,
        }
    }
}

/// The time until a deadline, never zero, which would mean no limit.
fn left(deadline: Instant) -> io::Result<Duration> {
    deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()).ok_or_else(too_slow)
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no whole answer in time")
}

/// A text that is no second header.
fn plain(text: &str) -> io::Result<&str> {
    match text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        true => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "a space or control character in the request"))
        }
        false => Ok(text),
    }
}

/// Status and length of a head; `None` when it is not whole yet.
fn parse(bytes: &[u8]) -> io::Result<Option<(u16, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_COUNT_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => {
            Ok(Some((response.code.ok_or_else(|| invalid("no status"))?, length)))
        }
        Ok(httparse::Status::Partial) if bytes.len() <= HEAD_BYTES_MAX => Ok(None),
        Ok(httparse::Status::Partial) => Err(invalid("an endless head")),
        Err(error) => Err(invalid(&format!("no HTTP: {error}"))),
    }
}

#[cfg(test)]
mod tests;
