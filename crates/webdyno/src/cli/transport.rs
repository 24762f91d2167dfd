//! The flags that say how connections come about. Their names and meanings are those of curl(1) where it has them.

use super::ParseResult;
use clap::{Args, ValueEnum};
use std::net::IpAddr;
use std::path::PathBuf;
use webdyno_model::transport::{AddressFamily, ConnectTo, Io, Proxy, TlsOptions, Transport};

/// Most concurrent requests on a connection; servers allow 100 or so.
const STREAMS_MAX: u64 = 10_000;

/// How connections come about.
#[derive(Debug, Clone, Default, Args)]
pub struct TransportArgs {
    /// Trust the certificates in FILE (PEM) instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub cacert: Option<PathBuf>,
    /// Accept any certificate of the server
    #[arg(long)]
    pub insecure: bool,
    /// Client certificate (PEM, with its chain)
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// Private key of --cert (PEM) [default: in the same file]
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Full TLS handshake for each connection, no session resumption
    #[arg(long)]
    pub no_tls_resumption: bool,
    /// Speak HTTP/2: over TLS by ALPN, else with prior knowledge
    #[arg(long)]
    pub http2: bool,
    /// Speak HTTP/3: over QUIC, on the UDP port of the URL
    ///
    /// Nothing is tried over TCP: a server that does not answer there is an error. For https:// URLs
    #[arg(long, conflicts_with_all = ["http2", "proxy", "unix_socket"])]
    pub http3: bool,
    /// Concurrent requests on each connection of --http2 or --http3 [default: 1]
    ///
    /// -c stays the number of connections: connections x streams requests are in flight. A visitor has one connection to
    /// each host, and this is the maximum of its concurrent requests there
    #[arg(long, value_name = "N", value_parser = super::whole::<u32>(1..=STREAMS_MAX, "10"), allow_negative_numbers = true)]
    pub streams: Option<u32>,
    /// Send all requests through this proxy of HTTP
    ///
    /// As curl does: `https://` (and HTTP/2) by a tunnel (CONNECT), `http://` by a request with the whole URL. The proxy
    /// looks up the names. Variables such as http_proxy are not read
    #[arg(short = 'x', long, value_name = "http://[USER:PASSWORD@]HOST:PORT", value_parser = Proxy::parse, conflicts_with_all = ["unix_socket", "connect_to"])]
    pub proxy: Option<Proxy>,
    /// Connect to the unix socket PATH instead of the host of the URL
    #[arg(long, value_name = "PATH", conflicts_with_all = ["source_ip", "connect_to", "resolve", "ipv4", "ipv6"])]
    pub unix_socket: Option<PathBuf>,
    /// Connect from this address of this machine (repeatable: in turn)
    #[arg(long, value_name = "IP", value_parser = source_ip)]
    pub source_ip: Vec<IpAddr>,
    /// Connect to TO_HOST:TO_PORT instead of HOST:PORT (repeatable)
    ///
    /// An empty part means any, or the same
    #[arg(long, value_name = "HOST:PORT:TO_HOST:TO_PORT", value_parser = connect_to)]
    pub connect_to: Vec<ConnectTo>,
    /// Look up names once before the load, or for each connection
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Resolve::Once)]
    pub resolve: Resolve,
    /// Use IPv4 addresses only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    pub ipv4: bool,
    /// Use IPv6 addresses only
    #[arg(short = '6', long)]
    pub ipv6: bool,
    /// Learn by epoll, or by io_uring, which connections are ready
    ///
    /// io_uring closes connections, too, and saves a little CPU for each new one. Where the kernel has none for us, epoll
    /// is used and a note says why
    #[arg(long, value_name = "HOW", value_enum, default_value_t = IoChoice::Epoll)]
    pub io: IoChoice,
}

/// How the engine learns which connections are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum IoChoice {
    /// By epoll
    #[default]
    Epoll,
    /// By io_uring (Linux 6.1)
    Uring,
}

/// When names are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Resolve {
    /// Once, before the load
    #[default]
    Once,
    /// Anew for each connection
    Each,
}

impl TransportArgs {
    /// The same in the words of the model.
    pub fn transport(&self) -> Transport {
        Transport {
            tls: TlsOptions {
                ca_file: self.cacert.clone(),
                insecure: self.insecure,
                certificate_file: self.cert.clone(),
                key_file: self.key.clone(),
                no_resumption: self.no_tls_resumption,
            },
            source_ips: self.source_ip.clone(),
            connect_to: self.connect_to.clone(),
            unix_socket: self.unix_socket.clone(),
            resolve_each: self.resolve == Resolve::Each,
            address_family: match (self.ipv4, self.ipv6) {
                (true, _) => AddressFamily::Ipv4,
                (_, true) => AddressFamily::Ipv6,
                _ => AddressFamily::Any,
            },
            proxy: self.proxy.clone(),
            io: match self.io {
                IoChoice::Epoll => Io::Epoll,
                IoChoice::Uring => Io::Uring,
            },
            // What flags and file say together.
            http2_streams: None,
            http3_streams: None,
        }
    }
}

fn source_ip(text: &str) -> ParseResult<IpAddr> {
    text.parse().map_err(|_| "an address of this machine, as 192.0.2.1 or 2001:db8::1".to_owned())
}

/// Four parts between colons; an IPv6 address stands in brackets.
fn connect_to(text: &str) -> ParseResult<ConnectTo> {
    let wrong = || "HOST:PORT:TO_HOST:TO_PORT, with IPv6 addresses in brackets".to_owned();
    let (host, rest) = split_host(text).ok_or_else(wrong)?;
    let (port, rest) = rest.split_once(':').ok_or_else(wrong)?;
    let (to_host, to_port) = split_host(rest).ok_or_else(wrong)?;
    Ok(ConnectTo { host, port: parse_port(port)?, to_host, to_port: parse_port(to_port)? })
}

/// A host up to its colon, and what stands behind that.
fn split_host(text: &str) -> Option<(Option<String>, &str)> {
    let (host, rest) = match text.strip_prefix('[') {
        None => text.split_once(':')?,
        Some(inside) => {
            let (address, rest) = inside.split_once("]:")?;
            address.parse::<std::net::Ipv6Addr>().ok()?;
            (address, rest)
        }
    };
    Some((Some(host.to_owned()).filter(|host| !host.is_empty()), rest))
}

fn parse_port(text: &str) -> ParseResult<Option<u16>> {
    if text.is_empty() {
        return Ok(None);
    }
    let port = text.parse().ok().filter(|port| *port > 0);
    port.map(Some).ok_or_else(|| "HOST:PORT:TO_HOST:TO_PORT, with ports from 1 to 65535".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_connect_to_is_read_as_curl_does() {
        let of = |text: &str| {
            connect_to(text).map(|rule| {
                let port = |port: Option<u16>| port.map_or(String::new(), |port| port.to_string());
                let host = |host: Option<String>| host.unwrap_or_default();
                [host(rule.host), port(rule.port), host(rule.to_host), port(rule.to_port)].join("|")
            })
        };
        for (text, read) in [
            ("a.example:443:127.0.0.1:8443", "a.example|443|127.0.0.1|8443"),
            ("::b:", "||b|"),
            (":80:b:81", "|80|b|81"),
            (":::9", "|||9"),
            ("[::1]:80:[2001:db8::1]:81", "::1|80|2001:db8::1|81"),
        ] {
            assert_eq!(of(text).as_deref(), Ok(read), "{text}");
        }
        for wrong in
            ["", "a", "a:80", "a:80:b", "a:x:b:80", "a:0:b:80", "a:80:b:65536", "[::1:80:b:81", "[x]:1:b:2"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sources_are_addresses() {
        assert!(source_ip("127.0.0.2").is_ok() && source_ip("::1").is_ok());
        assert!(source_ip("localhost").unwrap_err().contains("192.0.2.1"));
    }
}
