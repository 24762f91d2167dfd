//! The connection of a probe over HTTP/3, and what helps where there is none.

use super::connecting::no_connection;
use super::exchange_error::{ExchangeError, exchange_error, http3_ended};
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
    let sources = &plan.transport.source_ips;
    let connected = first_answering(&endpoint.addresses, until, |address, until| {
        let source = sources.iter().find(|source| source.is_ipv4() == address.is_ipv4()).copied();
        Http3Stream::connect((address, source), config, name, until)
    });
    match connected {
        Ok((index, mut stream)) => {
            endpoint.choose(index);
            stream.set_deadline(until);
            Ok(stream)
        }
        Err(Some((address, error))) => Err(no_quic(origin, address, error)),
        Err(None) => Err(ExchangeError::TimedOut),
    }
}

/// The first address that `connect` succeeds with, and what that gave; else the first error. Each has its share of the time, as
/// one may be silent.
fn first_answering<T>(
    addresses: &[SocketAddr],
    until: Instant,
    mut connect: impl FnMut(&SocketAddr, Instant) -> io::Result<T>,
) -> Result<(usize, T), Option<(SocketAddr, io::Error)>> {
    let mut first = None;
    for (index, address) in addresses.iter().enumerate() {
        let now = Instant::now();
        let share = until.saturating_duration_since(now) / (addresses.len() - index) as u32;
        match connect(address, now + share) {
            Ok(connected) => return Ok((index, connected)),
            Err(error) => {
                first.get_or_insert((*address, error));
            }
        }
    }
    Err(first)
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
            return ExchangeError::Http3(Box::new(http3_ended(&format!("{} {why}", origin.display_name()))));
        }
        _ => return exchange_error(error),
    };
    ExchangeError::Http3(Box::new(UserError::cannot_run(message).hint(hint)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_silent_address_leaves_time_for_the_others() {
        let addresses = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let until = Instant::now() + Duration::from_secs(3600);
        let mut minutes_left = vec![];
        let connected = first_answering(&addresses, until, |address, share_until| {
            minutes_left.push(((until - share_until).as_secs_f64() / 60.0).round());
            if address.port() == 3 { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
        });
        assert_eq!((connected.unwrap(), minutes_left), ((2, ()), vec![40.0, 30.0, 0.0]));
    }
}
