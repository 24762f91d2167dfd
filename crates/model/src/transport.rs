//! How connections to the server come about: TLS, addresses, sockets. What the flags of the same names mean is that of
//! curl(1), whose users know them.

use crate::auth::{Auth, percent_decoded};
use crate::error::{Result, UserError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// How connections come about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Transport {
    /// For `https://` URLs.
    pub tls: TlsOptions,
    /// Addresses of this machine that connections begin from, in turn; none leaves it to the kernel.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_ips: Vec<IpAddr>,
    /// Where connections really go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connect_to: Vec<ConnectTo>,
    /// The unix socket that all connections go to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix_socket: Option<PathBuf>,
    /// Whether names are resolved anew for each connection, not once before the load.
    pub resolve_each: bool,
    /// Which addresses of a name are used.
    #[serde(skip_serializing_if = "AddressFamily::is_any")]
    pub address_family: AddressFamily,
    /// HTTP/2, with so many requests in flight on each connection; `None` is HTTP/1.1, with one, or HTTP/3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http2_streams: Option<u32>,
    /// HTTP/3 over QUIC, with so many requests in flight on each connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http3_streams: Option<u32>,
    /// The proxy that all connections go to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// How the kernel tells the engine which connections are ready.
    #[serde(skip_serializing_if = "Io::is_epoll")]
    pub io: Io,
}

/// How the kernel tells the engine which connections are ready. The figures mean the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Io {
    /// By epoll(7).
    #[default]
    Epoll,
    /// By io_uring(7), which closes connections, too; by epoll where there is none.
    Uring,
}

impl Io {
    /// Whether nothing else was asked for.
    fn is_epoll(&self) -> bool {
        *self == Self::Epoll
    }
}

/// A proxy of HTTP. Who it is for is told by `Proxy-Authorization` (RFC 9110, section 11.7.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proxy {
    /// Its name or address, IPv6 without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Who uses it, when it wants to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
}

impl Proxy {
    /// Reads `http://[USER:PASSWORD@]HOST:PORT`, user and password percent-encoded where they have `@`, `:`, `/` or `%`. An
    /// error never repeats what was given: it may hold a password.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            UserError::usage(
                "it wants http://HOST:PORT or http://USER:PASSWORD@HOST:PORT, as http://127.0.0.1:3128",
            )
            .hint("a proxy is spoken with in HTTP/1.1, without TLS; SOCKS is not in this version")
        };
        let rest = match text.split_once("://") {
            Some((scheme, rest)) => scheme.eq_ignore_ascii_case("http").then_some(rest).ok_or_else(wrong)?,
            None => text,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, place) = rest.rsplit_once('@').map_or((None, rest), |(user, place)| (Some(user), place));
        let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
        let host = match host.strip_prefix('[').map(|inside| inside.strip_suffix(']')) {
            Some(inside) => inside.filter(|inside| inside.parse::<std::net::Ipv6Addr>().is_ok()),
            None => Some(host).filter(|host| !host.is_empty() && !host.contains([':', '/', '?', '#', ' '])),
        };
        let auth = user.map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            Auth::Basic { name: percent_decoded(name), password: percent_decoded(password) }
        });
        let port = port.parse().ok().filter(|port| *port > 0);
        Ok(Self { host: host.ok_or_else(wrong)?.to_owned(), port: port.ok_or_else(wrong)?, auth })
    }
}

impl fmt::Display for Proxy {
    /// Its URL, without user and password.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(to, "http://[{}]:{}", self.host, self.port),
            false => write!(to, "http://{}:{}", self.host, self.port),
        }
    }
}

/// Which addresses of a name are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressFamily {
    /// The first one that answers.
    #[default]
    Any,
    /// IPv4 alone.
    Ipv4,
    /// IPv6 alone.
    Ipv6,
}

impl AddressFamily {
    /// Whether nothing else was asked for.
    fn is_any(&self) -> bool {
        *self == Self::Any
    }
}

impl Transport {
    /// Most requests in flight on each connection.
    pub fn streams(&self) -> u32 {
        self.multiplexed_streams().unwrap_or(1)
    }

    /// The same where requests share a connection, over HTTP/2 or HTTP/3.
    pub fn multiplexed_streams(&self) -> Option<u32> {
        self.http2_streams.or(self.http3_streams)
    }

    /// Whether everything is as without any flag.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// How TLS is spoken.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TlsOptions {
    /// Certificates (PEM) that are trusted instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether any certificate is accepted.
    pub insecure: bool,
    /// The client's certificate chain (PEM).
    pub certificate_file: Option<PathBuf>,
    /// Its private key (PEM).
    pub key_file: Option<PathBuf>,
    /// Whether each connection makes a full handshake, even if the server would resume a session.
    pub no_resumption: bool,
}

/// Connections to one host and port go to another one; the request and TLS name the first. Written as
/// `HOST:PORT:TO_HOST:TO_PORT`, an empty part means any or the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectTo {
    /// The host of the URL; `None` for any.
    pub host: Option<String>,
    /// The port of the URL; `None` for any.
    pub port: Option<u16>,
    /// Where to instead; `None` for the same.
    pub to_host: Option<String>,
    /// Where to instead; `None` for the same.
    pub to_port: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_read_as_curl_does_and_written_without_their_password() {
        let basic = |name: &str, password: &str| Auth::Basic { name: name.into(), password: password.into() };
        for (text, shown, auth) in [
            ("http://h:3128", "http://h:3128", None),
            ("h:3128", "http://h:3128", None),
            ("HTTP://[::1]:1/", "http://[::1]:1", None),
            ("http://me:s3cret@h:8080", "http://h:8080", Some(basic("me", "s3cret"))),
            ("http://a%40b:p%3a:q@r@h:1", "http://h:1", Some(basic("a@b", "p::q@r"))),
            ("http://me@h:1", "http://h:1", Some(basic("me", ""))),
        ] {
            let proxy = Proxy::parse(text).unwrap();
            assert_eq!((proxy.to_string().as_str(), &proxy.auth), (shown, &auth), "{text}");
        }
        for text in [
            "",
            "h",
            "http://h",
            "http://me:s3cret@h",
            "https://me:s3cret@h:1",
            "socks5://h:1",
            "h:0",
            "h:x",
            ":1",
            "::1:1",
            "http://h:1/s3cret",
            "http://[x]:1",
        ] {
            let error = Proxy::parse(text).unwrap_err();
            assert!(error.exit_code() == 2 && !format!("{error:?}").contains("s3cret"), "{text}: {error}");
        }
    }
}
