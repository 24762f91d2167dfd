//! From a workload to everything that the engine needs, once: names resolved, request bytes built, limits raised.
//!
//! Request syntax: RFC 9112, sections 3 and 5; which methods are idempotent: RFC 9110, section 9.2.2.

use crate::content::Checks;
use crate::descriptors;
use crate::engine::Share;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use url::Url;
use webdyno_model::workload::{Arrival, RequestSpec, Workload};
use webdyno_model::{Result, UserError};

/// Most request names that are reported one by one; the rest share the last place.
const NAMES_MAX: usize = 64;
/// The name of the requests beyond them.
const OTHER_NAMES: &str = "(other)";
/// Highest rate that is believed to be meant.
const RATE_PER_S_MAX: f64 = 10_000_000.0;
/// Most engine threads.
const THREADS_MAX: u32 = 256;
/// What the requests call their sender, unless the workload says otherwise.
pub const USER_AGENT: &str = concat!("webdyno/", env!("CARGO_PKG_VERSION"));
/// Statuses have three digits.
const STATUS_CODES: usize = 1000;

/// A workload that is ready to be run, any number of times.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) plan: Plan,
}

impl Prepared {
    /// The address that the first request goes to.
    pub fn address(&self) -> SocketAddr {
        self.plan.origins[self.plan.templates[0].origin].address()
    }

    /// The addresses that the requests go to, each once.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let mut addresses: Vec<SocketAddr> = self.plan.origins.iter().map(Origin::address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// Engine threads that will run.
    pub fn threads(&self) -> u32 {
        self.plan.threads
    }

    /// The same requests to the same addresses, at the arrival and with the connections of `workload`: at most as many
    /// as before.
    pub fn lower_to(&mut self, workload: &Workload) {
        let plan = &mut self.plan;
        plan.arrival = workload.arrival;
        plan.connections = workload.connections.clamp(1, plan.connections);
        plan.threads = plan.threads.min(plan.connections);
        plan.parked_max = plan.parked_max.min(plan.connections);
    }
}

/// The workload in the engine's terms.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) templates: Vec<Template>,
    pub(crate) origins: Vec<Origin>,
    /// Distinct request names; empty when there is only one, which needs no figures of its own.
    pub(crate) names: Vec<String>,
    pub(crate) arrival: Arrival,
    pub(crate) duration_ns: Option<u64>,
    pub(crate) requests: Option<u64>,
    pub(crate) connections: u32,
    pub(crate) threads: u32,
    pub(crate) timeout_ns: u64,
    pub(crate) keepalive: bool,
    /// What is expected of answers besides their status.
    pub(crate) checks: Checks,
    pub(crate) seed: u64,
    /// Most connections that wait for the server to close first.
    pub(crate) parked_max: u32,
    ok: Vec<bool>,
}

/// One request, ready to be sent.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) bytes: Vec<u8>,
    pub(crate) origin: usize,
    pub(crate) name: usize,
    pub(crate) to_head: bool,
    pub(crate) idempotent: bool,
}

/// A server: connections to it are used for all its requests.
#[derive(Debug)]
pub(crate) struct Origin {
    /// Host and port as the user wrote them.
    pub(crate) authority: String,
    /// Where it may be; never empty.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Which of the addresses is used: the first one, unless a probe found that another one answers.
    chosen: AtomicUsize,
}

impl Origin {
    /// The address in use.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[self.chosen.load(Ordering::Relaxed)]
    }

    /// Uses another one of its addresses.
    pub(crate) fn choose(&self, index: usize) {
        self.chosen.store(index.min(self.addresses.len() - 1), Ordering::Relaxed);
    }
}

impl Plan {
    /// Whether an answer with this status is good.
    #[inline]
    pub(crate) fn is_ok(&self, status: u16) -> bool {
        self.ok.get(usize::from(status)).copied().unwrap_or(false)
    }

    /// Whether anything of an answer is looked at besides its status and its framing.
    #[inline]
    pub(crate) fn listens(&self) -> bool {
        self.checks.may_read_bodies()
    }

    /// Most connections of a thread at once. In closed arrival a user may keep one to each server.
    pub(crate) fn open_max(&self, share: &Share) -> u32 {
        let part = share.part(self.connections);
        match self.arrival {
            Arrival::Closed => part.saturating_mul(self.origins.len() as u32),
            Arrival::Open { .. } => part,
        }
    }

    /// Connection slots of a thread: those in use and those that are parked.
    pub(crate) fn slots(&self, share: &Share) -> usize {
        self.open_max(share) as usize + share.part(self.parked_max) as usize
    }
}

/// Checks a workload and makes it ready: resolves names, builds the requests, and raises this process's limit of open
/// files to its maximum. A wrong workload is a usage error; a name that does not resolve, or a limit that is too
/// low, is an error of the machine.
pub fn prepare(workload: &Workload) -> Result<Prepared> {
    check(workload)?;
    let checks = Checks::of(&workload.expect)?;
    let (mut origins, mut names) = (vec![], vec![]);
    let mut templates = Vec::with_capacity(workload.requests.len());
    for spec in &workload.requests {
        templates.push(template(spec, workload.keepalive, &mut origins, &mut names)?);
    }
    if names.len() <= 1 {
        names.clear();
    }
    let at_once = match workload.arrival {
        Arrival::Closed => u64::from(workload.connections) * origins.len() as u64,
        Arrival::Open { .. } => u64::from(workload.connections),
    };
    let spare = descriptors::ensure(at_once)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let threads = workload.threads.unwrap_or(cores);
    let plan = Plan {
        templates,
        origins,
        names,
        arrival: workload.arrival,
        duration_ns: workload.stop.duration_us.map(|us| us.saturating_mul(1000)),
        requests: workload.stop.requests,
        connections: workload.connections,
        threads: threads.clamp(1, workload.connections.min(THREADS_MAX)),
        timeout_ns: workload.timeout_us.saturating_mul(1000),
        keepalive: workload.keepalive,
        checks,
        seed: workload.seed,
        parked_max: workload.connections.min(u32::try_from(spare).unwrap_or(u32::MAX)),
        ok: (0..STATUS_CODES as u16).map(|status| workload.ok_status.contains(status)).collect(),
    };
    Ok(Prepared { plan })
}

/// Refuses what cannot be meant.
fn check(workload: &Workload) -> Result<()> {
    let wrong = |message: &str, hint: &str| Err(UserError::usage(message).hint(hint));
    if workload.requests.is_empty() {
        return wrong("there is no URL to load", "give at least one, as in webdyno run http://localhost/");
    }
    if workload.connections == 0 {
        return wrong("0 connections cannot carry a request", "give at least one with -c");
    }
    if workload.threads == Some(0) {
        return wrong("0 threads cannot send a request", "give at least one with -t");
    }
    if workload.timeout_us == 0 {
        return wrong("a timeout of 0 ends every request", "give a longer one, as in --timeout 10s");
    }
    if workload.stop.duration_us == Some(0) || workload.stop.requests == Some(0) {
        return wrong("the load would end before it begins", "give a duration with -d or requests with -n");
    }
    if !workload.transport.is_plain() || workload.redirects_max > 0 {
        return wrong("redirects and other ways to the server are not built", "leave them out");
    }
    if let Arrival::Open { rate_per_s, .. } = workload.arrival
        && !(rate_per_s > 0.0 && rate_per_s <= RATE_PER_S_MAX)
    {
        let message = format!("{rate_per_s} requests per second is not a rate that can be sent");
        return wrong(&message, "give a rate above 0 and up to 10 million with -r");
    }
    Ok(())
}

/// One request in bytes; its server and its name are added to the lists if they are new.
fn template(
    spec: &RequestSpec,
    keepalive: bool,
    origins: &mut Vec<Origin>,
    names: &mut Vec<String>,
) -> Result<Template> {
    let url = parse_url(&spec.url)?;
    Ok(Template {
        bytes: request_bytes(spec, &url, keepalive)?,
        origin: origin_of(&url, origins)?,
        name: name_of(&spec.name, names),
        to_head: spec.method == "HEAD",
        idempotent: matches!(spec.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE" | "TRACE"),
    })
}

fn name_of(name: &str, names: &mut Vec<String>) -> usize {
    let known = |names: &[String], name: &str| names.iter().position(|known| known == name);
    let full = names.len() >= NAMES_MAX - 1 && known(names, name).is_none();
    let name = if full { OTHER_NAMES } else { name };
    known(names, name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

fn parse_url(text: &str) -> Result<Url> {
    let url = Url::parse(text).map_err(|error| {
        UserError::usage(format!("`{text}` is not a URL: {error}"))
            .hint("write it in full, as in http://localhost:8080/path")
    })?;
    match url.scheme() {
        "http" => {}
        "https" => {
            let told = UserError::usage(format!("`{text}` needs TLS, which is not in this version"));
            return Err(told.hint("load the http:// address of the same server"));
        }
        other => {
            let told = UserError::usage(format!("`{text}` has the scheme {other}, only http can be loaded"));
            return Err(told.hint("write it as in http://localhost:8080/path"));
        }
    }
    if !url.username().is_empty() || url.password().is_some() {
        let told = UserError::usage("a URL with credentials in it would end up in logs");
        return Err(told.hint(
            "leave them out of the URL and give them as a header: -H \"Authorization: Basic $(printf NAME:PASSWORD | base64)\"",
        ));
    }
    match url.host() {
        Some(_) => Ok(url),
        None => Err(UserError::usage(format!("`{text}` names no host"))),
    }
}

fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn origin_of(url: &Url, origins: &mut Vec<Origin>) -> Result<usize> {
    let authority = authority(url);
    if let Some(known) = origins.iter().position(|origin| origin.authority == authority) {
        return Ok(known);
    }
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or(80);
    // std takes IPv6 addresses without the brackets of a URL.
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let cannot = |cause: String| {
        UserError::cannot_run(format!("cannot resolve {host}: {cause}"))
            .hint(format!("check the name: getent hosts {host}"))
    };
    let addresses: Vec<_> =
        (bare, port).to_socket_addrs().map_err(|error| cannot(resolver_cause(&error)))?.collect();
    if addresses.is_empty() {
        return Err(cannot("no address".into()));
    }
    origins.push(Origin { authority, addresses, chosen: AtomicUsize::new(0) });
    Ok(origins.len() - 1)
}

/// What the resolver said, without the words that std puts before it.
fn resolver_cause(error: &std::io::Error) -> String {
    let text = error.to_string();
    let cause = text.rsplit(": ").next().unwrap_or(&text);
    cause.to_lowercase()
}

/// The request as it goes over the wire. Headers that the user gives replace our own.
fn request_bytes(spec: &RequestSpec, url: &Url, keepalive: bool) -> Result<Vec<u8>> {
    check_fields(spec)?;
    let given = |name: &str| spec.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut text = format!("{} {}{query} HTTP/1.1\r\n", spec.method, url.path());
    for (name, value) in [("Host", authority(url).as_str()), ("User-Agent", USER_AGENT), ("Accept", "*/*")] {
        if !given(name) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    if !keepalive && !given("Connection") {
        text.push_str("Connection: close\r\n");
    }
    let has_body = !spec.body.is_empty() || matches!(spec.method.as_str(), "POST" | "PUT" | "PATCH");
    if has_body && !given("Content-Length") {
        text.push_str(&format!("Content-Length: {}\r\n", spec.body.length_bytes()));
    }
    for (name, value) in &spec.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(spec.body.bytes());
    Ok(bytes)
}

/// A line end inside of a method or a header would make two requests of one.
fn check_fields(spec: &RequestSpec) -> Result<()> {
    let is_token = |text: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        !text.is_empty() && text.bytes().all(allowed)
    };
    if !is_token(&spec.method) || spec.method == "CONNECT" {
        return Err(UserError::usage(format!("`{}` is not a method that can be sent", spec.method))
            .hint("write one such as GET, HEAD, POST, PUT or DELETE with -m"));
    }
    for (name, value) in &spec.headers {
        let bad_value = value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
        if !is_token(name) || bad_value {
            return Err(UserError::usage(format!("`{name}` is not a header line that can be sent"))
                .hint("write it as in -H 'Name: value', on one line"));
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(UserError::usage("a request body with Transfer-Encoding is not in this version")
                .hint("leave the header out: the body is sent with its length"));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "prepare_tests.rs"]
mod tests;
