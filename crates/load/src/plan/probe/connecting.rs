//! The connection of a probe, and what helps where there is none.

use crate::io::blocking_connection::{BlockingConnection, connect as dial};
use crate::io::origin::{Endpoint, Origin};
use crate::io::tunnel::TunnelError;
use crate::plan::Plan;
use crate::results::failure::Failure;
use rustix::io::Errno;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;
use webdyno_model::{Result, UserError};

/// Connects to the first address that accepts, and remembers which one that was. `None` is a timeout.
pub(super) fn connect(origin: &Origin, plan: &Plan, timeout: Duration) -> Result<Option<BlockingConnection>> {
    let tcp = match &origin.endpoint {
        Endpoint::Tcp(tcp) => tcp,
        Endpoint::Unix(path) => {
            let display_name = path.display().to_string();
            let on_unix_error = |error| match error {
                // Its server is there, and busy.
                Errno::AGAIN => Ok(None),
                errno => Err(no_connection(&display_name, None, &errno.into())),
            };
            return dial::unix(path).map(Some).or_else(on_unix_error);
        }
    };
    let mut refused = None;
    for (index, address) in tcp.addresses.iter().enumerate() {
        let source =
            plan.transport.source_ips.iter().find(|source| source.is_ipv4() == address.is_ipv4()).copied();
        match dial::tcp(address, source, timeout) {
            Ok(connection) => {
                tcp.choose(index);
                return Ok(Some(connection));
            }
            Err(error) => {
                refused.get_or_insert((*address, error));
            }
        }
    }
    match refused {
        Some((address, error)) if error.kind() != ErrorKind::TimedOut => {
            let proxy = if origin.is_proxied { "the proxy " } else { "" };
            Err(no_connection(&format!("{proxy}{address}"), Some(address), &error))
        }
        _ => Ok(None),
    }
}

/// Why there is no connection, and what helps. There is no address to a unix socket.
pub(super) fn no_connection(
    display_name: &str,
    address: Option<SocketAddr>,
    error: &std::io::Error,
) -> UserError {
    let class = Errno::from_io_error(error).map(|errno| Failure::from_connect(errno.into()));
    let (cause, hint) = match (class, address) {
        (Some(Failure::ConnectRefused), Some(address)) => (
            "connection refused".to_owned(),
            format!("nothing listens there; see what does: ss -ltn 'sport = :{}'", address.port()),
        ),
        (Some(Failure::NoDescriptors), _) => {
            ("too many open files".to_owned(), "raise the limit: ulimit -n 65536".to_owned())
        }
        (Some(Failure::LocalPortsExhausted), Some(_)) => (
            "no free local port".to_owned(),
            "wait a minute, or widen the range: sysctl net.ipv4.ip_local_port_range".to_owned(),
        ),
        (_, Some(address)) => (
            plain(error),
            format!("no way leads there; see which one is tried: ip route get {}", address.ip()),
        ),
        (_, None) => (plain(error), "nothing listens there; see what does: ss -lx".to_owned()),
    };
    UserError::cannot_run(format!("cannot connect to {display_name}: {cause}")).hint(hint)
}

/// What a proxy did instead of a tunnel, and what helps.
pub(super) fn no_tunnel(origin: &Origin, error: TunnelError) -> UserError {
    let message =
        format!("no tunnel to {} through the proxy {}: it {error}", origin.authority, origin.endpoint);
    UserError::cannot_run(message).hint(match error.0 {
        Some(407) => "it wants a user and a password: --proxy http://USER:PASSWORD@HOST:PORT".to_owned(),
        Some(403 | 405) => {
            "its rules must allow CONNECT to that host and port, as AllowCONNECT of Apache does".into()
        }
        Some(_) => "see whether it reaches the server: read its log".into(),
        None => {
            format!("see what listens there: curl -v --proxy http://{} {}/", origin.endpoint, origin.url())
        }
    })
}

/// An error of the system in lower case and without its number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    text.to_lowercase()
}
