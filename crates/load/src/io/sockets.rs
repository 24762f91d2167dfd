//! Opening sockets, shared by the load and its probe. connect(2), ip(7), unix(7).

use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, ipproto, sockopt};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// What of datagrams is held until it is read.
const UDP_BUFFER_BYTES: usize = 2 << 20;

/// A non-blocking connection to an address, from one of our own if one is given; it may not be established yet.
pub(crate) fn tcp(address: &SocketAddr, source: Option<IpAddr>) -> Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(family(address.ip()), SocketType::STREAM, FLAGS, Some(ipproto::TCP))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    if let Some(source) = source {
        bind(&socket, source)?;
    }
    match rustix::net::connect(&socket, address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// A non-blocking socket for datagrams to and from an address, from one of our own if one is given: it receives from nobody
/// else, and is told when nobody is there (udp(7): ECONNREFUSED).
pub(crate) fn udp(address: &SocketAddr, source: Option<IpAddr>) -> Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(family(address.ip()), SocketType::DGRAM, FLAGS, Some(ipproto::UDP))?;
    // What does not fit is lost, and sent again late. Where less is allowed, less it is.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, UDP_BUFFER_BYTES);
    if let Some(source) = source {
        bind(&socket, source)?;
    }
    rustix::net::connect(&socket, address)?;
    Ok(socket)
}

/// A non-blocking connection to a unix socket. It succeeds at once or not at all: `AGAIN` says that the server's
/// queue is full.
pub(crate) fn unix(path: &Path) -> Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Whether connections can begin from this address of ours.
pub(crate) fn try_source(source: IpAddr) -> Result<()> {
    let socket = rustix::net::socket_with(family(source), SocketType::STREAM, FLAGS, Some(ipproto::TCP))?;
    bind(&socket, source)
}

/// Has a connection begin from this address. Its port is chosen when the destination is known: then each source has all
/// ports towards each destination, and none is taken that is in use towards another one.
fn bind(socket: &OwnedFd, source: IpAddr) -> Result<()> {
    let to_errno = |errno: nix::errno::Errno| Errno::from_raw_os_error(errno as i32);
    setsockopt(socket, IpBindAddressNoPort, &true).map_err(to_errno)?;
    rustix::net::bind(socket, &SocketAddr::new(source, 0))
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    }
}
