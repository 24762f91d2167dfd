//! How connections come about, in words: nothing where it is as without any flag.

use crate::human::{count, plural};
use webdyno_model::run::RunReport;
use webdyno_model::transport::{AddressFamily, Io, Transport};

/// A line for each thing that is not as usual.
pub(crate) fn transport(transport: &Transport) -> Vec<String> {
    let mut lines = vec![];
    let version = if transport.http3_streams.is_some() { "HTTP/3" } else { "HTTP/2" };
    match transport.multiplexed_streams() {
        None => {}
        Some(1) => lines.push(format!("{version}, one request at a time on each connection")),
        Some(streams) => {
            let most = plural(streams.into(), "concurrent request");
            lines.push(format!("{version}, up to {most} on each connection"));
        }
    }
    if let Some(proxy) = &transport.proxy {
        let auth = if proxy.auth.is_some() { ", with user and password" } else { "" };
        lines.push(format!("through the proxy {proxy}{auth}"));
    }
    if let Some(path) = &transport.unix_socket {
        lines.push(format!("all connections go to the unix socket {}", path.display()));
    }
    if !transport.connect_to.is_empty() {
        let rules = plural(transport.connect_to.len() as u64, "rule");
        lines.push(format!("connections redirected by {rules} (--connect-to)"));
    }
    match transport.source_ips.as_slice() {
        [] => {}
        [only] => lines.push(format!("source address {only}")),
        [first, .., last] => {
            let sources = count(transport.source_ips.len() as u64);
            lines.push(format!("{sources} source addresses in turn, {first} to {last}"));
        }
    }
    if transport.resolve_each {
        lines.push("DNS lookup per connection, included in the connect time".into());
    }
    match transport.address_family {
        AddressFamily::Any => {}
        AddressFamily::Ipv4 => lines.push("only IPv4 addresses are used".into()),
        AddressFamily::Ipv6 => lines.push("only IPv6 addresses are used".into()),
    }
    if transport.tls.insecure {
        lines.push("TLS: any certificate is accepted".into());
    }
    if transport.tls.no_resumption {
        lines.push("TLS: full handshake per connection, no session resumption".into());
    }
    if transport.io == Io::Uring {
        lines.push("io_uring asked for (--io uring)".into());
    }
    lines
}

/// What became of the handshakes of TLS; `None` without any.
pub(crate) fn handshakes(run: &RunReport) -> Option<String> {
    let handshakes = run.tls_handshake_us.count;
    let resumed = count(run.connections.tls_resumed);
    (handshakes > 0).then(|| format!("{} of TLS, {resumed} of them resumed", plural(handshakes, "handshake")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_unusual_is_said() {
        assert!(transport(&Transport::default()).is_empty());
        let unusual = Transport {
            source_ips: vec!["127.0.0.2".parse().unwrap(), "127.0.0.3".parse().unwrap()],
            unix_socket: Some("/run/x".into()),
            resolve_each: true,
            address_family: AddressFamily::Ipv6,
            http2_streams: Some(10),
            ..Transport::default()
        };
        let lines = transport(&unusual);
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert_eq!(lines[0], "HTTP/2, up to 10 concurrent requests on each connection");
        assert_eq!(lines[2], "2 source addresses in turn, 127.0.0.2 to 127.0.0.3");
        let quic = Transport { http3_streams: Some(1), ..Transport::default() };
        assert_eq!(transport(&quic), ["HTTP/3, one request at a time on each connection"]);
    }
}
