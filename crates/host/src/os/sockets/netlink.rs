//! The TCP sockets that collectors ask for: those that listen, and the connections of one port.

use super::ListenSocket;
use crate::os::sock_diag::{Entry, Query, TCP, connected, each, state, states};
use std::io;
use std::net::{self, IpAddr};

/// The listening sockets of both families.
pub fn listening() -> io::Result<Vec<ListenSocket>> {
    collect(states([state::LISTEN]), 0, 0, listen_socket)
}

/// An end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Names the socket as long as the machine runs.
    pub cookie: [u8; 8],
    /// Whether both sides are open; else the other side has closed it.
    pub open: bool,
    /// Whether bytes that were handed over are not confirmed by the other side.
    pub sending: bool,
    /// Whether the other side has asked for something and waits; `None` where that is not known.
    pub owes_answer: Option<bool>,
    /// The bytes that came in so far, and those that went out and were confirmed; `None` where that is not known.
    pub bytes: Option<(u64, u64)>,
    /// How long a packet to the other side and its confirmation take, and took at the shortest, in microseconds; `None` where nothing
    /// was sent lately, or that is not known.
    pub round_trip_us: Option<(u32, u32)>,
    /// Its own address and port.
    pub own: (IpAddr, u16),
    /// Address and port of the other side.
    pub peer: (IpAddr, u16),
    /// The inode of the socket; 0 when no process has it (not accepted yet).
    pub inode: u64,
}

/// The server's ends of all connections of a port that are not closed from this side.
pub fn server_ends(port: u16) -> io::Result<Vec<End>> {
    let mut found = vec![];
    let states = states([state::ESTABLISHED, state::CLOSE_WAIT]);
    let query = Query { protocol: TCP, states, own_port: port, with_info: true, ..Query::default() };
    each(query, |entry| found.push(end(entry)))?;
    Ok(found)
}

/// The clients' ends of all open connections to a port (on any machine) from this network namespace.
pub fn client_ends(port: u16) -> io::Result<Vec<End>> {
    collect(states([state::ESTABLISHED]), 0, port, end)
}

/// How many connections of every state, closed ones that wait included, go from this network namespace to an address
/// and port.
pub fn connections_to(peer: net::SocketAddr) -> io::Result<u64> {
    let mut count = 0;
    let query = Query { protocol: TCP, states: connected(), peer_port: peer.port(), ..Query::default() };
    each(query, |entry| {
        count += u64::from(entry.peer().0.to_canonical() == peer.ip().to_canonical());
    })?;
    Ok(count)
}

/// The sockets of both families in one of these states; a port of 0 is any.
fn collect<T>(
    states: u32,
    own_port: u16,
    peer_port: u16,
    read: impl Fn(Entry<'_>) -> T,
) -> io::Result<Vec<T>> {
    let mut found = vec![];
    each(Query { protocol: TCP, states, own_port, peer_port, ..Query::default() }, |entry| {
        found.push(read(entry))
    })?;
    Ok(found)
}

fn end(entry: Entry<'_>) -> End {
    let (own, peer) = (entry.own(), entry.peer());
    End {
        cookie: entry.cookie(),
        open: entry.state() == state::ESTABLISHED,
        sending: entry.send_queue() > 0,
        owes_answer: entry.owes_answer(),
        bytes: entry.bytes(),
        round_trip_us: entry.round_trip_us(),
        // A socket of both families shows IPv4 as `::ffff:a.b.c.d`; its other end does not.
        own: (own.0.to_canonical(), own.1),
        peer: (peer.0.to_canonical(), peer.1),
        inode: u64::from(entry.inode()),
    }
}

fn listen_socket(entry: Entry<'_>) -> ListenSocket {
    let (address, port) = entry.own();
    ListenSocket {
        address,
        port,
        queue_count: entry.receive_queue(),
        queue_max_count: Some(entry.send_queue()),
        inode: u64::from(entry.inode()),
        uid: entry.uid(),
    }
}
