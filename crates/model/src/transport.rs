//! How connections to the server come about: TLS, addresses, sockets. What the flags of the same names mean is that of
//! curl(1), whose users know them.

use serde::{Deserialize, Serialize};
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
    /// HTTP/2, with so many requests in flight on each connection; `None` is HTTP/1.1, with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http2_streams: Option<u32>,
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
        self.http2_streams.unwrap_or(1)
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
