//! Request bytes as they are sent, and the request that a redirect leads to.
//!
//! Request syntax: RFC 9112, sections 3 and 5; which methods are idempotent: RFC 9110, section 9.2.2; redirects: RFC
//! 9110, section 15.4.

use super::{USER_AGENT, authority};
use crate::io::origin::{is_websocket, proxy_lines, upgrade_line};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use url::Url;
use webdyno_model::workload::body::Body;
use webdyno_model::workload::{RequestSpec, Workload, is_secret_name};
use webdyno_model::{Result, UserError};

/// Bodies up to this length follow the head, so that one send takes both. Larger ones are shared by all requests
/// that carry them.
pub(super) const JOINED_BYTES_MAX: u64 = 64 * 1024;
/// Longest `Location` that is followed.
pub(crate) const LOCATION_BYTES_MAX: usize = 8 * 1024;

/// One request, ready to be sent.
#[derive(Debug)]
pub(crate) struct Template {
    /// The head, and the body if it is small.
    head: Vec<u8>,
    /// The body if it is large, else empty.
    body: Body,
    /// Where the header lines end: before the blank line.
    fields_end: usize,
    pub(crate) origin: usize,
    pub(crate) name: usize,
    pub(crate) is_head_request: bool,
    pub(crate) idempotent: bool,
    /// Its header has `Connection: close`.
    pub(crate) closes: bool,
    /// The user sets its `Cookie` header.
    pub(crate) sends_own_cookies: bool,
    /// Distinguishes requests for the same URL that are sent with other header fields.
    propagation_hash: u64,
    source: Source,
}

impl Template {
    /// The request to this server, counted under this name.
    pub(crate) fn new(source: Source, origin: usize, name: usize) -> Self {
        let mut head = source.head();
        let fields_end = head.len() - 2;
        let joined = source.body.length_bytes() <= JOINED_BYTES_MAX;
        if joined {
            head.extend_from_slice(source.body.bytes());
        }
        let sends_own_cookies = source.user_header("Cookie").next().is_some();
        let method = source.method.as_str();
        Self {
            head,
            fields_end,
            body: if joined { Body::default() } else { source.body.clone() },
            origin,
            name,
            is_head_request: method == "HEAD",
            idempotent: matches!(method, "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE" | "TRACE"),
            closes: source.has_connection_close(),
            sends_own_cookies,
            propagation_hash: source.propagation_hash(),
            source,
        }
    }

    /// Its length on the wire.
    #[inline]
    pub(crate) fn length_bytes(&self) -> usize {
        self.head.len() + self.body.bytes().len()
    }

    /// The unsent bytes after this many sent ones; empty at the end.
    #[inline]
    pub(crate) fn unsent(&self, written_bytes: usize) -> &[u8] {
        match self.head.get(written_bytes..) {
            Some(left) if !left.is_empty() => left,
            _ => self.body.bytes().get(written_bytes - self.head.len()..).unwrap_or_default(),
        }
    }

    /// All of it, in two parts: head and body.
    pub(crate) fn parts(&self) -> [&[u8]; 2] {
        [&self.head, self.body.bytes()]
    }

    /// The text before and after the targets of a list's entries of this kind (the end of the head and the length
    /// of the body left out), and whether `Content-Length: 0` is sent. An error when the user sets a length.
    pub(super) fn frame_around_target(&self) -> Result<(Vec<u8>, Vec<u8>, bool)> {
        let source = &self.source;
        if source.user_header("Content-Length").next().is_some() {
            return Err(UserError::usage("the bodies of a list have no Content-Length in common")
                .hint("leave the header out: the right one is sent with every body"));
        }
        let after = format!(" HTTP/1.1\r\n{}{}", source.default_headers(), source.user_headers());
        let before = format!("{} {}", source.method, source.form.before_path(&source.url));
        Ok((before.into_bytes(), after.into_bytes(), source.sends_content_length()))
    }

    /// The request of this kind with this target and this body.
    pub(super) fn for_list_entry(&self, target: &[u8], body: Body) -> Option<Self> {
        let source = &self.source;
        let target = std::str::from_utf8(target).ok()?;
        let url = Url::parse(&format!("{}{target}", source.url.origin().ascii_serialization())).ok()?;
        let (method, headers) = (source.method.clone(), source.headers.clone());
        let source = Source { method, url, headers, body, form: source.form.clone() };
        Some(Self::new(source, self.origin, self.name))
    }

    /// Writes it with further header lines; returns the body that is to follow.
    pub(crate) fn write_with(&self, lines: &[u8], into: &mut Vec<u8>) -> Body {
        into.extend_from_slice(&self.head[..self.fields_end]);
        into.extend_from_slice(lines);
        into.extend_from_slice(&self.head[self.fields_end..]);
        self.body.clone()
    }

    /// Where it goes.
    pub(crate) fn url(&self) -> &Url {
        self.source.url()
    }

    /// Whether a private cache may answer it: RFC 9111, 3.
    pub(crate) fn is_cacheable(&self) -> bool {
        self.source.method == "GET"
    }

    /// A hash of the header fields that requests for the parts of a page inherit.
    pub(crate) fn propagation_hash(&self) -> u64 {
        self.propagation_hash
    }

    /// The request for a part of the page that this one is the document of, as a browser makes it: its own header
    /// fields go along, secrets only to its own server.
    pub(crate) fn part(&self, url: Url) -> Source {
        let same_origin = url.origin() == self.source.url.origin();
        let is_propagated = |name: &str| {
            (same_origin || !(name.eq_ignore_ascii_case("Host") || is_secret_name(name)))
                && !is_content_header(name)
        };
        let headers = self.source.headers.iter().filter(|(name, _)| is_propagated(name)).cloned().collect();
        Source::from_parts("GET".into(), url, headers, Body::default(), self.source.form.clone())
    }

    /// Whether sending it changes nothing on the server: RFC 9110, 9.2.1.
    pub(crate) fn is_safe(&self) -> bool {
        matches!(self.source.method.as_str(), "GET" | "HEAD")
    }

    /// Whether it says nothing of who sends it.
    pub(crate) fn is_anonymous(&self) -> bool {
        ["Cookie", "Authorization"].iter().all(|name| self.source.user_header(name).next().is_none())
    }

    /// The request that a redirect to `location` makes of this one; `None` when it cannot be followed.
    pub(crate) fn redirected(&self, status: u16, location: &[u8]) -> Option<Redirect> {
        if location.len() > LOCATION_BYTES_MAX {
            return None;
        }
        let source = &self.source;
        let url =
            source.url.join(std::str::from_utf8(location).ok()?).ok().filter(|url| !is_websocket(url))?;
        check_url(&url, url.as_str()).ok()?;
        // With a `Host` header of another host the request counts as one to that host.
        let named = source.user_header("Host").any(|host| host.eq_ignore_ascii_case(&authority(&url)));
        let same_origin = url.origin() == source.url.origin() || named && url.scheme() == source.url.scheme();
        let becomes_get = match status {
            301 | 302 => source.method == "POST",
            303 => source.method != "HEAD",
            _ => false,
        };
        let is_propagated = |name: &str| {
            (same_origin || !(name.eq_ignore_ascii_case("Host") || is_secret_name(name)))
                && !(becomes_get && is_content_header(name))
        };
        let headers = source.headers.iter().filter(|(name, _)| is_propagated(name)).cloned().collect();
        let source = Source {
            method: if becomes_get { "GET".into() } else { source.method.clone() },
            url,
            headers,
            body: if becomes_get { Body::default() } else { source.body.clone() },
            form: source.form.clone(),
        };
        Some(Redirect { source, same_origin })
    }
}

/// Whether a response with this status and a `Location` sends the client elsewhere: RFC 9110, 15.4.
pub(crate) fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Header fields that go with the content that a redirect drops: RFC 9110, 15.4, and what announces content.
fn is_content_header(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.starts_with("content-")
        || matches!(lower.as_str(), "digest" | "expect" | "last-modified" | "trailer")
}

/// Where a redirect leads.
#[derive(Debug)]
pub(crate) struct Redirect {
    pub(crate) source: Source,
    /// Whether it leads to the same server; else the URL names the server.
    pub(crate) same_origin: bool,
}

/// What a request is made from.
#[derive(Debug)]
pub(crate) struct Source {
    method: String,
    url: Url,
    headers: Vec<(String, String)>,
    body: Body,
    form: RequestForm,
}

/// What all requests of a load have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestForm {
    /// Connections are used again.
    pub(crate) keepalive: bool,
    /// They are written for a proxy, with these header lines: `http://` by the whole URL (RFC 9112, section 3.2.2). What is
    /// sent through a tunnel is written as for its server.
    pub(crate) proxy: Option<Arc<str>>,
}

impl RequestForm {
    /// That of a workload.
    pub(super) fn of(workload: &Workload) -> Self {
        let transport = &workload.transport;
        let proxy = transport.proxy.as_ref().filter(|_| transport.http2_streams.is_none());
        Self { keepalive: workload.keepalive, proxy: proxy.map(|proxy| proxy_lines(proxy).into()) }
    }

    /// The header lines for the proxy that reads a request for this URL; `None` where the server reads it.
    pub(super) fn proxy_lines(&self, url: &Url) -> Option<&str> {
        self.proxy.as_deref().filter(|_| url.scheme() == "http")
    }

    /// What stands before the path of a request for this URL.
    pub(super) fn before_path(&self, url: &Url) -> String {
        self.proxy_lines(url).map(|_| format!("http://{}", authority(url))).unwrap_or_default()
    }
}

impl Source {
    /// The request of a workload. An error when it cannot be sent.
    pub(crate) fn from_spec(spec: &RequestSpec, url: Url, form: RequestForm) -> Result<Self> {
        check_fields(spec)?;
        let mut headers = spec.headers.clone();
        let given = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("Authorization"));
        if let Some(auth) = spec.auth.as_ref().filter(|_| !given && !spec.has_variables) {
            let value = auth.header_value();
            if value.bytes().any(|byte| byte.is_ascii_control()) {
                return Err(UserError::usage("a token with a line end in it is none that can be sent")
                    .hint("read it without the line end: $(cat FILE)"));
            }
            headers.push(("Authorization".to_owned(), value));
        }
        Ok(Self::from_parts(spec.method.clone(), url, headers, spec.body.clone(), form))
    }

    pub(super) fn from_parts(
        method: String,
        url: Url,
        headers: Vec<(String, String)>,
        body: Body,
        form: RequestForm,
    ) -> Self {
        Self { method, url, headers, body, form }
    }

    /// A number for the header fields that go along with the parts of a page, and for its server.
    fn propagation_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.url.origin().hash(&mut hasher);
        self.headers.hash(&mut hasher);
        hasher.finish()
    }

    /// Where it goes.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// The request for the upgrade of a connection to WebSocket, up to its key (RFC 6455, section 4.1); `None` for what is
    /// sent as HTTP.
    pub(super) fn upgrade(&self) -> Option<Vec<u8>> {
        let lines = format!(
            "{}{}{}Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ",
            upgrade_line(&self.url),
            self.default_headers(),
            self.user_headers()
        );
        is_websocket(&self.url).then(|| lines.into_bytes())
    }

    /// The values of a header that the user sets.
    fn user_header(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.headers.iter().filter(move |(given, _)| given.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str())
    }

    /// Whether its headers have `Connection: close`: RFC 9112, 9.6.
    fn has_connection_close(&self) -> bool {
        let mut options = self.user_header("Connection").flat_map(|value| value.split(','));
        options.any(|option| option.trim().eq_ignore_ascii_case("close"))
    }

    /// The request up to its body. The user's headers replace the defaults.
    fn head(&self) -> Vec<u8> {
        let url = &self.url;
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let before = self.form.before_path(url);
        let mut text =
            format!("{} {before}{}{query} HTTP/1.1\r\n{}", self.method, url.path(), self.default_headers());
        let has_body = !self.body.is_empty() || self.sends_content_length();
        if has_body && self.user_header("Content-Length").next().is_none() {
            text.push_str(&format!("Content-Length: {}\r\n", self.body.length_bytes()));
        }
        text.push_str(&self.user_headers());
        text.push_str("\r\n");
        text.into_bytes()
    }

    /// Whether `Content-Length: 0` is sent for an empty body: RFC 9110, 8.6.
    fn sends_content_length(&self) -> bool {
        matches!(self.method.as_str(), "POST" | "PUT" | "PATCH")
    }

    /// The default headers, without those that the user sets.
    fn default_headers(&self) -> String {
        let is_set = |name: &str| self.user_header(name).next().is_some();
        let mut text = String::new();
        let host = authority(&self.url);
        for (name, value) in [("Host", host.as_str()), ("User-Agent", USER_AGENT), ("Accept", "*/*")] {
            if !is_set(name) {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        text.push_str(self.form.proxy_lines(&self.url).unwrap_or_default());
        if !self.form.keepalive && !is_set("Connection") && !is_websocket(&self.url) {
            text.push_str("Connection: close\r\n");
        }
        text
    }

    /// The user's headers.
    fn user_headers(&self) -> String {
        self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
    }
}

/// Reads the URL of a request. A usage error for one that cannot be loaded.
pub(crate) fn parse_url(text: &str) -> Result<Url> {
    let parsed = Url::parse(text);
    // `localhost:80/` is a URL of the scheme localhost, and `127.0.0.1:80` is none.
    if !text.contains("://")
        && Url::parse(&format!("http://{text}")).is_ok_and(|meant| check_url(&meant, text).is_ok())
        && looks_like_host(text)
    {
        return Err(UserError::usage(format!("`{text}` does not say http:// or https://"))
            .hint(format!("put http:// before it: http://{text}")));
    }
    let url = parsed.map_err(|error| {
        UserError::usage(format!("`{text}` is not a URL: {error}"))
            .hint("write it in full, as in http://localhost:8080/path")
    })?;
    check_url(&url, text)?;
    Ok(url)
}

/// Whether this may be a host with or without a port and a path: no scheme such as mailto, and no path of a file.
fn looks_like_host(text: &str) -> bool {
    let authority = text.split(['/', '?', '#']).next().unwrap_or(text);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let has_port = port.is_some_and(|port| port.parse::<u16>().is_ok());
    let is_scheme = matches!(host, "http" | "https");
    !host.is_empty()
        && !is_scheme
        && (has_port || port.is_none() && (host.contains('.') || host == "localhost"))
}

/// Refuses what cannot be loaded. `text` is what the user wrote.
fn check_url(url: &Url, text: &str) -> Result<()> {
    match url.scheme() {
        "http" | "https" | "ws" | "wss" => {}
        other => {
            let error = UserError::usage(format!(
                "`{text}` has the scheme {other}, only http and https can be loaded"
            ));
            return Err(error.hint("write it as in http://localhost:8080/path"));
        }
    }
    if !url.username().is_empty() || url.password().is_some() {
        let error = UserError::usage("a URL with credentials in it would end up in logs");
        return Err(error.hint(
            "leave them out of the URL and give them as a header: -H \"Authorization: Basic $(printf NAME:PASSWORD | base64)\"",
        ));
    }
    match url.host() {
        Some(_) if url.port() == Some(0) => {
            let error = UserError::usage(format!("`{text}` has the port 0, and no server listens there"));
            Err(error.hint("see which ports servers listen on: ss -ltn"))
        }
        Some(_) => Ok(()),
        None => Err(UserError::usage(format!("`{text}` names no host"))),
    }
}

/// Header fields of the upgrade that are ours, and of extensions, which are not spoken.
fn is_of_upgrade(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_ours = matches!(lower.as_str(), "upgrade" | "connection" | "content-length");
    is_ours || lower.starts_with("sec-websocket-") && lower != "sec-websocket-protocol"
}

/// A line end inside of a method or a header would make two requests of one, and so would a wrong length.
pub(crate) fn check_fields(spec: &RequestSpec) -> Result<()> {
    let is_token = |text: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        !text.is_empty() && text.bytes().all(allowed)
    };
    if !is_token(&spec.method) || spec.method == "CONNECT" {
        return Err(UserError::usage(format!("`{}` is not a method that can be sent", spec.method))
            .hint("write one such as GET, HEAD, POST, PUT or DELETE with -m"));
    }
    let length_bytes = spec.body.length_bytes();
    let is_websocket = spec.url.starts_with("ws://") || spec.url.starts_with("wss://");
    if is_websocket && !matches!(spec.method.as_str(), "TEXT" | "BINARY") {
        return Err(UserError::usage(format!("`{}` is no kind of message of WebSocket", spec.method))
            .hint("a message is sent as TEXT or BINARY"));
    }
    for (name, value) in &spec.headers {
        if is_websocket && is_of_upgrade(name) {
            return Err(UserError::usage(format!(
                "`{name}` is a header that the upgrade to WebSocket has itself"
            ))
            .hint("leave it out"));
        }
        let bad_value = value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
        if !is_token(name) || bad_value {
            return Err(UserError::usage(format!("`{name}` is not a header line that can be sent"))
                .hint("write it as in -H 'Name: value', on one line"));
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(UserError::usage("a request body with Transfer-Encoding is not in this version")
                .hint("leave the header out: the body is sent with its length"));
        }
        if name.eq_ignore_ascii_case("content-length") && value.trim() != length_bytes.to_string() {
            let message = format!("Content-Length says `{value}`, and the body has {length_bytes} bytes");
            return Err(
                UserError::usage(message).hint("leave the header out: the right one is sent with every body")
            );
        }
    }
    Ok(())
}
