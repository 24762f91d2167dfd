//! The flags that give the figures of a session to other programs while it goes on.

use super::values::ParseResult;
use clap::Args;
use std::net::{Ipv4Addr, SocketAddr};
use url::Url;

/// Who is given the figures.
#[derive(Debug, Clone, Default, Args)]
pub struct LiveMetricsArgs {
    /// Serve metrics for Prometheus at ADDR, as :9095
    ///
    /// At http://ADDR/metrics while the command runs. :9095 is 127.0.0.1:9095; 0.0.0.0:9095 lets other machines read them
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub prometheus: Option<SocketAddr>,
    /// Push metrics to an OpenTelemetry collector, as http://127.0.0.1:4318
    ///
    /// OTLP over HTTP, every 5 s and at the end. OTEL_METRIC_EXPORT_INTERVAL, OTEL_EXPORTER_OTLP_HEADERS,
    /// OTEL_EXPORTER_OTLP_TIMEOUT and OTEL_RESOURCE_ATTRIBUTES are respected
    #[arg(long, value_name = "URL", value_parser = collector)]
    pub otlp: Option<Url>,
}

impl LiveMetricsArgs {
    /// The first of them that was given.
    pub fn given(&self) -> Option<&'static str> {
        let prometheus = self.prometheus.map(|_| "--prometheus");
        prometheus.or(self.otlp.as_ref().map(|_| "--otlp"))
    }
}

/// An address of this machine; of a port alone that of its loopback.
fn listen_address(text: &str) -> ParseResult<SocketAddr> {
    let port = text.strip_prefix(':').and_then(|port| port.parse::<u16>().ok());
    let loopback = port.map(|port| (Ipv4Addr::LOCALHOST, port).into());
    loopback
        .or_else(|| text.parse().ok())
        .ok_or_else(|| "an address and port, as :9095 or 0.0.0.0:9095".into())
}

fn collector(text: &str) -> ParseResult<Url> {
    let url = Url::parse(text).ok().filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
    url.ok_or_else(|| "the URL of a collector, as http://127.0.0.1:4318".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_loopback() {
        for (text, expected) in [
            (":9095", Some("127.0.0.1:9095")),
            ("0.0.0.0:9095", Some("0.0.0.0:9095")),
            ("[::1]:9095", Some("[::1]:9095")),
            ("9095", None),
            ("localhost", None),
            (":x", None),
        ] {
            assert_eq!(listen_address(text).ok().map(|address| address.to_string()).as_deref(), expected);
        }
        for (text, good) in
            [("http://h:4318", true), ("https://h", true), ("h:4318", false), ("ftp://h", false), ("", false)]
        {
            assert_eq!(collector(text).is_ok(), good, "{text}");
        }
    }
}
