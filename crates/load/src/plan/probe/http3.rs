//! The connection of a probe over HTTP/3, and what helps where there is none.

use super::{ExchangeError, exchange_error, no_connection};
use crate::io::http3::blocking::{Http3Error, Http3Stream};
use crate::io::origin::{Endpoint, Origin};
use crate::plan::Plan;
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;
use webdyno_model::UserError;

/// Connects to the first address that answers over QUIC, by then, and remembers which one that was.
pub(super) fn connect(origin: &Origin, plan: &Plan, until: Instant) -> Result<Http3Stream, ExchangeError> {
    let (Endpoint::Tcp(endpoint), Some(config), Some(name)) =
        (&origin.endpoint, &plan.tls, &origin.server_name)
    else {
        // Origins are made with both.
        return Err(ExchangeError::Protocol("has no address for HTTP/3"));
    };
    let mut first = None;
    for (index, address) in endpoint.addresses.iter().enumerate() {
        let sources = &plan.transport.source_ips;
        let source = sources.iter().find(|source| source.is_ipv4() == address.is_ipv4()).copied();
        match Http3Stream::connect((address, source), config, name, until) {
            Ok(stream) => {
                endpoint.choose(index);
                return Ok(stream);
            }
            Err(error) => {
                first.get_or_insert((*address, error));
            }
        }
    }
    Err(match first {
        Some((address, error)) => no_quic(origin, address, error),
        None => ExchangeError::TimedOut,
    })
}

/// Why there is no connection.
fn no_quic(origin: &Origin, address: SocketAddr, error: io::Error) -> ExchangeError {
    let port = address.port();
    let (message, hint) = match (
        Errno::from_io_error(&error),
        error.get_ref().and_then(|inner| inner.downcast_ref::<Http3Error>()),
    ) {
        (Some(Errno::CONNREFUSED), _) => (
            format!("{address} speaks no HTTP/3: nothing listens on UDP port {port}"),
            format!("leave --http3 out to load it over TCP; what listens: ss -lun 'sport = :{port}'"),
        ),
        (Some(_), _) => {
            let error = no_connection(&format!("{address} over UDP"), Some(address), &error);
            return ExchangeError::Http3(Box::new(error));
        }
        (None, Some(Http3Error::NoAnswer)) => (
            format!("{} does not answer over QUIC, on UDP port {port}", origin.display_name()),
            format!(
                "leave --http3 out to load it over TCP, or let UDP port {port} through the firewalls; what listens: \
                 ss -lun 'sport = :{port}'"
            ),
        ),
        (None, Some(Http3Error::Ended(why))) => {
            return ExchangeError::Http3(Box::new(ended(&format!("{} {why}", origin.display_name()))));
        }
        _ => return exchange_error(error),
    };
    ExchangeError::Http3(Box::new(UserError::cannot_run(message).hint(hint)))
}

/// A connection that was there ended so.
pub(super) fn ended(why: &str) -> UserError {
    UserError::cannot_run(why.to_owned())
        .hint("leave --http3 out to load it over TCP; the server's error log may say more")
}
