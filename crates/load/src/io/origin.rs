//! Origin servers: where the requests of a workload go, and how they are reached.
//!
//! `--connect-to`, `--unix-socket` and `--resolve` follow curl(1), its options `--connect-to` and
//! `--unix-socket`: the request and TLS name the host of the URL, whatever is connected to.

use crate::io::sockets;
use rustix::io::Errno;
use rustls::pki_types::ServerName;
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use url::{Host, Url};
use webdyno_model::transport::{AddressFamily, ConnectTo, Proxy, Transport};
use webdyno_model::{Result, UserError};

/// The longest path of a unix socket; unix(7): 108 bytes with the zero at its end.
const UNIX_PATH_BYTES_MAX: usize = 107;

/// A server: connections to it are used for all its requests.
#[derive(Debug)]
pub(crate) struct Origin {
    /// Host and port as the user wrote them.
    pub(crate) authority: String,
    /// Whom TLS is to speak with; `None` for plain HTTP.
    pub(crate) server_name: Option<ServerName<'static>>,
    /// Where connections go.
    pub(crate) endpoint: Endpoint,
    /// Whether that is a proxy.
    pub(crate) is_proxied: bool,
    /// The request that has it make a tunnel to the server, before anything else is sent.
    pub(crate) tunnel: Option<Arc<[u8]>>,
    /// The request for the upgrade to WebSocket, up to its key.
    pub(crate) websocket: Option<Arc<[u8]>>,
}

/// The endpoint of a server.
#[derive(Debug)]
pub(crate) enum Endpoint {
    /// Behind a unix socket.
    Unix(PathBuf),
    /// In a network.
    Tcp(TcpEndpoint),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(to, "{}", path.display()),
            Self::Tcp(tcp) => write!(to, "{}", tcp.address()),
        }
    }
}

/// A host and a port.
#[derive(Debug)]
pub(crate) struct TcpEndpoint {
    /// Its name or address, for the resolver.
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
    /// Where it may be; never empty.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Whether the name is resolved anew for each connection.
    pub(crate) resolve_each: bool,
    /// Which of the addresses is used: the first one, unless a probe found that another one answers.
    chosen: AtomicUsize,
}

impl Origin {
    /// The address in use; `None` for a unix socket.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &self.endpoint {
            Endpoint::Tcp(tcp) => Some(tcp.address()),
            Endpoint::Unix(_) => None,
        }
    }

    /// Its name, and where it is if that says more.
    pub(crate) fn display_name(&self) -> String {
        let endpoint = self.endpoint.to_string();
        if self.is_proxied {
            return format!("{} through the proxy {endpoint}", self.authority);
        }
        if endpoint == self.authority { endpoint } else { format!("{} at {endpoint}", self.authority) }
    }

    /// Its URL without a path.
    pub(crate) fn url(&self) -> String {
        let scheme = match (self.server_name.is_some(), self.websocket.is_some()) {
            (false, false) => "http",
            (true, false) => "https",
            (false, true) => "ws",
            (true, true) => "wss",
        };
        format!("{scheme}://{}", self.authority)
    }
}

impl TcpEndpoint {
    /// The address in use.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[self.chosen.load(Ordering::Relaxed)]
    }

    /// Uses another one of its addresses.
    pub(crate) fn choose(&self, index: usize) {
        self.chosen.store(index.min(self.addresses.len() - 1), Ordering::Relaxed);
    }
}

/// The servers of a workload, each once.
#[derive(Debug)]
pub(crate) struct Origins<'a> {
    transport: &'a Transport,
    found: Vec<Origin>,
}

impl<'a> Origins<'a> {
    /// None yet. An error when the transport itself cannot be.
    pub(crate) fn new(transport: &'a Transport) -> Result<Self> {
        if let Some(path) = &transport.unix_socket {
            check_unix(path, transport)?;
        }
        if transport.proxy.is_some() && (transport.unix_socket.is_some() || !transport.connect_to.is_empty())
        {
            return Err(UserError::usage(
                "all connections go to the proxy, and --connect-to or --unix-socket sends them elsewhere",
            )
            .hint("leave --proxy out, or the other one"));
        }
        transport.source_ips.iter().try_for_each(|source| check_source(*source))?;
        Ok(Self { transport, found: vec![] })
    }

    /// Continues with the origins found before.
    pub(crate) fn resumed(transport: &'a Transport, found: Vec<Origin>) -> Self {
        Self { transport, found }
    }

    /// The number of the server that a URL names. An error when its name does not resolve, or not to an address that
    /// can be reached from the sources given.
    pub(crate) fn index_of(&mut self, url: &Url) -> Result<usize> {
        self.index_of_upgraded(url, None)
    }

    /// The same of one whose connections change to WebSocket with this request first.
    pub(crate) fn index_of_upgraded(&mut self, url: &Url, upgrade: Option<Vec<u8>>) -> Result<usize> {
        if let Some(known) = position(url, &self.found) {
            let before = self.found[known].websocket.as_deref();
            if before.is_some() && before != upgrade.as_deref() {
                return Err(UserError::usage(format!("messages to {url} have different headers"))
                    .hint("headers belong to the upgrade of the connection, which all messages share"));
            }
            return Ok(known);
        }
        let authority = authority(url);
        let server_name = if is_secure(url) { Some(server_name(url)?) } else { None };
        if server_name.is_none() && self.transport.http3_streams.is_some() {
            return Err(not_secure(url));
        }
        let endpoint = match &self.transport.unix_socket {
            Some(path) => Endpoint::Unix(path.clone()),
            None => Endpoint::Tcp(self.resolve(url)?),
        };
        let proxy = self.transport.proxy.as_ref();
        let tunnel = proxy
            .filter(|_| server_name.is_some() || upgrade.is_some() || self.transport.http2_streams.is_some())
            .map(|proxy| connect_request(url, proxy));
        let websocket = upgrade.map(Arc::from);
        self.found.push(Origin {
            authority,
            server_name,
            endpoint,
            is_proxied: proxy.is_some(),
            tunnel,
            websocket,
        });
        Ok(self.found.len() - 1)
    }

    /// All origins found.
    pub(crate) fn into_vec(self) -> Vec<Origin> {
        self.found
    }

    fn resolve(&self, url: &Url) -> Result<TcpEndpoint> {
        let (host, port) = match &self.transport.proxy {
            Some(proxy) => (proxy.host.clone(), proxy.port),
            None => connect_target(url, &self.transport.connect_to),
        };
        let cannot = |cause: String| {
            UserError::cannot_run(format!("cannot resolve {host}: {cause}"))
                .hint(format!("check the name: getent hosts {host}"))
        };
        let mut addresses: Vec<_> = (host.as_str(), port)
            .to_socket_addrs()
            .map_err(|error| cannot(resolver_cause(&error)))?
            .collect();
        if addresses.is_empty() {
            return Err(cannot("no address".into()));
        }
        addresses.retain(|address| fits(*address, self.transport));
        if addresses.is_empty() {
            return Err(no_suitable_address(&host, self.transport));
        }
        // An address is its own name.
        let resolve_each = self.transport.resolve_each && host.parse::<IpAddr>().is_err();
        Ok(TcpEndpoint { host: host.into(), port, addresses, resolve_each, chosen: AtomicUsize::new(0) })
    }
}

/// Whether connections may go to this address: it has the requested family, and one that a source address has.
fn fits(address: SocketAddr, transport: &Transport) -> bool {
    let sources = &transport.source_ips;
    let family = match transport.address_family {
        AddressFamily::Any => true,
        AddressFamily::Ipv4 => address.is_ipv4(),
        AddressFamily::Ipv6 => address.is_ipv6(),
    };
    family && (sources.is_empty() || sources.iter().any(|source| source.is_ipv4() == address.is_ipv4()))
}

fn no_suitable_address(host: &str, transport: &Transport) -> UserError {
    let wanted = match transport.address_family {
        AddressFamily::Ipv4 => "IPv4 address".to_owned(),
        AddressFamily::Ipv6 => "IPv6 address".to_owned(),
        AddressFamily::Any => {
            let sources: Vec<_> = transport.source_ips.iter().map(ToString::to_string).collect();
            format!("address that can be reached from {}", sources.join(" or "))
        }
    };
    UserError::usage(format!("{host} has no {wanted}"))
        .hint(format!("see which addresses it has: getent ahosts {host}"))
}

/// HTTP/3 has TLS in it.
fn not_secure(url: &Url) -> UserError {
    UserError::usage(format!("{url} is no https:// URL, and HTTP/3 has TLS in it"))
        .hint("load the https:// address of the server, or leave --http3 out")
}

/// Host and port that a connection really goes to: the first rule that fits decides, as with curl.
fn connect_target(url: &Url, rules: &[ConnectTo]) -> (String, u16) {
    // std takes IPv6 addresses without the brackets of a URL.
    let bare = |host: &str| host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let host = bare(url.host_str().unwrap_or_default());
    let port = url.port_or_known_default().unwrap_or(80);
    let fits = |rule: &&ConnectTo| {
        rule.host.as_ref().is_none_or(|wanted| bare(wanted).eq_ignore_ascii_case(&host))
            && rule.port.is_none_or(|wanted| wanted == port)
    };
    match rules.iter().find(fits) {
        None => (host, port),
        Some(rule) => {
            (rule.to_host.as_ref().map_or(host, |to_host| bare(to_host)), rule.to_port.unwrap_or(port))
        }
    }
}

/// The request for a tunnel to the server of a URL.
fn connect_request(url: &Url, proxy: &Proxy) -> Arc<[u8]> {
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(80));
    let target = format!("{host}:{port}");
    let lines = proxy_lines(proxy);
    format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{lines}\r\n").into_bytes().into()
}

/// The header lines for a proxy.
pub(crate) fn proxy_lines(proxy: &Proxy) -> String {
    let auth = proxy.auth.as_ref();
    auth.map(|auth| format!("Proxy-Authorization: {}\r\n", auth.header_value())).unwrap_or_default()
}

/// Which of these servers a URL names.
pub(crate) fn position(url: &Url, origins: &[Origin]) -> Option<usize> {
    let (authority, secure) = (authority(url), is_secure(url));
    origins.iter().position(|origin| {
        let upgrade = origin.websocket.as_deref();
        let same_kind = match is_websocket(url) {
            true => upgrade.is_some_and(|request| request.starts_with(upgrade_line(url).as_bytes())),
            false => upgrade.is_none(),
        };
        origin.authority == authority && origin.server_name.is_some() == secure && same_kind
    })
}

fn is_secure(url: &Url) -> bool {
    matches!(url.scheme(), "https" | "wss")
}

/// Whether messages of WebSocket are sent there.
pub(crate) fn is_websocket(url: &Url) -> bool {
    matches!(url.scheme(), "ws" | "wss")
}

/// The first line of the request for the upgrade.
pub(crate) fn upgrade_line(url: &Url) -> String {
    format!("GET {} HTTP/1.1\r\n", &url[url::Position::BeforePath..url::Position::AfterQuery])
}

/// Host and port as a URL has them.
pub(crate) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// The name that the certificate must have, and that is sent to the server (SNI) unless it is an address.
fn server_name(url: &Url) -> Result<ServerName<'static>> {
    match url.host() {
        Some(Host::Ipv4(address)) => Ok(IpAddr::V4(address).into()),
        Some(Host::Ipv6(address)) => Ok(IpAddr::V6(address).into()),
        host => {
            let name = host.map(|host| host.to_string()).unwrap_or_default();
            ServerName::try_from(name.trim_end_matches('.').to_owned()).map_err(|_| {
                UserError::usage(format!("`{name}` is not a name that a certificate can have"))
                    .hint("load the server by a DNS name or an address")
            })
        }
    }
}

fn check_unix(path: &Path, transport: &Transport) -> Result<()> {
    let display_name = path.display();
    let length = path.as_os_str().len();
    if length == 0 || length > UNIX_PATH_BYTES_MAX {
        return Err(UserError::usage(format!(
            "`{display_name}` has {length} bytes, the path of a unix socket has 1 to {UNIX_PATH_BYTES_MAX}"
        ))
        .hint("link to it from a shorter path: ln -s"));
    }
    if !transport.source_ips.is_empty() || !transport.connect_to.is_empty() || transport.resolve_each {
        return Err(UserError::usage(format!(
            "connections to the unix socket {display_name} have no addresses"
        ))
        .hint("leave out --source-ip, --connect-to and --resolve, or --unix-socket"));
    }
    Ok(())
}

fn check_source(source: IpAddr) -> Result<()> {
    if source.is_unspecified() {
        return Err(UserError::usage(format!("{source} is every address of this machine, not one of them"))
            .hint("leave --source-ip out and the kernel chooses; `ip address` lists those it can name"));
    }
    sockets::try_source(source).map_err(|errno| {
        let why = match errno {
            Errno::ADDRNOTAVAIL => format!("{source} is no address of this machine"),
            other => format!("cannot connect from {source}: {}", std::io::Error::from(other)),
        };
        UserError::usage(why).hint("`ip address` lists the addresses that --source-ip can name")
    })
}

/// The resolver's error, without the prefix of std.
fn resolver_cause(error: &std::io::Error) -> String {
    let text = error.to_string();
    let cause = text.rsplit(": ").next().unwrap_or(&text);
    cause.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> ConnectTo {
        let parts: Vec<_> = text.split('|').collect();
        let word = |at: usize| Some(parts[at].to_owned()).filter(|text| !text.is_empty());
        ConnectTo {
            host: word(0),
            port: word(1).map(|port| port.parse().unwrap()),
            to_host: word(2),
            to_port: word(3).map(|port| port.parse().unwrap()),
        }
    }

    #[test]
    fn the_first_rule_that_fits_decides_where_to() {
        for (url, rules, expected) in [
            ("http://a/", &[][..], ("a", 80)),
            ("https://a/", &[], ("a", 443)),
            ("http://a/", &["a|80|b|81"], ("b", 81)),
            ("http://A.example/", &["a.EXAMPLE||b|"], ("b", 80)),
            ("http://a:8080/", &["a|80|b|81"], ("a", 8080)),
            ("http://a/", &["x||b|", "||c|1", "a||d|"], ("c", 1)),
            ("http://[::1]:7/", &["[::1]|7|[::2]|8"], ("::2", 8)),
            ("http://a:7/", &["|||9"], ("a", 9)),
        ] {
            let rules: Vec<_> = rules.iter().map(|text| rule(text)).collect();
            let (host, port) = connect_target(&Url::parse(url).unwrap(), &rules);
            assert_eq!((host.as_str(), port), expected, "{url} {rules:?}");
        }
    }

    #[test]
    fn only_addresses_that_can_be_reached_are_used() {
        let of = |transport: &Transport, url: &str| {
            let mut origins = Origins::new(transport)?;
            origins.index_of(&Url::parse(url).unwrap())?;
            Ok::<_, UserError>(origins.into_vec())
        };
        let v4_only = Transport { source_ips: vec!["127.0.0.2".parse().unwrap()], ..Transport::default() };
        assert!(of(&v4_only, "http://127.0.0.1/").is_ok());
        let error = of(&v4_only, "http://[::1]/").unwrap_err();
        assert_eq!(error.message, "::1 has no address that can be reached from 127.0.0.2");
        let family = Transport { address_family: AddressFamily::Ipv6, ..Transport::default() };
        assert_eq!(of(&family, "http://127.0.0.1/").unwrap_err().message, "127.0.0.1 has no IPv6 address");
        // TEST-NET-1 (RFC 5737) is not assigned.
        let strange = Transport { source_ips: vec!["192.0.2.1".parse().unwrap()], ..Transport::default() };
        let error = of(&strange, "http://127.0.0.1/").unwrap_err();
        assert_eq!(error.message, "192.0.2.1 is no address of this machine");
        assert_eq!(error.exit_code(), 2);
        let long = Transport { unix_socket: Some("x".repeat(108).into()), ..Transport::default() };
        assert!(of(&long, "http://a/").unwrap_err().message.contains("108 bytes"));
        let both = Transport { unix_socket: Some("/run/x".into()), ..v4_only };
        assert!(of(&both, "http://a/").unwrap_err().message.contains("have no addresses"));
    }

    #[test]
    fn plain_and_tls_of_one_name_are_two_servers() {
        let transport = Transport { unix_socket: Some("/run/x".into()), ..Transport::default() };
        let mut origins = Origins::new(&transport).unwrap();
        let urls = ["http://a/1", "https://a/1", "http://a/2", "https://a:443/2", "http://b/"];
        let numbers = urls.map(|url| origins.index_of(&Url::parse(url).unwrap()).unwrap());
        assert_eq!(numbers, [0, 1, 0, 1, 2]);
        let found = origins.into_vec();
        assert!(found[0].server_name.is_none() && found[1].server_name.is_some());
        assert_eq!(found[1].url(), "https://a");
    }
}
