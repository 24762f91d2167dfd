//! Asks the kernel for TCP sockets of this network namespace through netlink: those that listen, and the connections
//! of one port.
//!
//! Facts: sock_diag(7) and netlink(7); net/ipv4/inet_diag.c, whose `inet_diag_dump_icsk` leaves out what has another
//! port than the one that is asked for. No rights are needed; a sandbox may refuse it.

use super::ListenSocket;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};
use std::io;
use std::net::{self, IpAddr};

/// Datagrams of one answer at most: each holds some hundred sockets.
const DATAGRAMS_MAX: usize = 1_000;

/// The listening sockets of both families.
pub fn listening() -> io::Result<Vec<ListenSocket>> {
    both_families(StateFlags::LISTEN, 0, 0, listen_socket)
}

/// An end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Names the socket as long as the machine runs.
    pub cookie: [u8; 8],
    /// Whether both sides are open; else the other side has closed it.
    pub open: bool,
    /// Its own address and port.
    pub own: (IpAddr, u16),
    /// Address and port of the other side.
    pub peer: (IpAddr, u16),
    /// The inode of the socket; 0 when no process has it (not accepted yet).
    pub inode: u64,
}

/// The server's ends of all connections of a port that are not closed from this side.
pub fn server_ends(port: u16) -> io::Result<Vec<End>> {
    both_families(StateFlags::ESTABLISHED | StateFlags::CLOSE_WAIT, port, 0, end)
}

/// The clients' ends of all open connections to a port (on any machine) from this network namespace.
pub fn client_ends(port: u16) -> io::Result<Vec<End>> {
    both_families(StateFlags::ESTABLISHED, 0, port, end)
}

/// How many connections of every state, closed ones that wait included, go from this network namespace to an address
/// and port.
pub fn connections_to(peer: net::SocketAddr) -> io::Result<u64> {
    let states = StateFlags::all() & !(StateFlags::LISTEN | StateFlags::CLOSE);
    let goes_there = |answer: &InetResponse| {
        answer.header.socket_id.destination_address.to_canonical() == peer.ip().to_canonical()
    };
    let all = both_families(states, 0, peer.port(), goes_there)?;
    Ok(all.into_iter().filter(|goes_there| *goes_there).count() as u64)
}

/// Asks for the sockets of both families in one of these states; a port of 0 is any.
fn both_families<T>(
    states: StateFlags,
    own_port: u16,
    peer_port: u16,
    read: impl Fn(&InetResponse) -> T,
) -> io::Result<Vec<T>> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    // The kernel writes its answer before send and recv return: nothing that has to be waited for ever comes.
    socket.set_non_blocking(true)?;
    let of = |socket_id| SocketId { source_port: own_port, destination_port: peer_port, ..socket_id };
    let request = |family, socket_id| InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: states.clone(),
        socket_id: of(socket_id),
    };
    let mut found = ask(&socket, request(AF_INET, SocketId::new_v4()), &read)?;
    // A kernel without IPv6 refuses the second question.
    found.extend(ask(&socket, request(AF_INET6, SocketId::new_v6()), &read).unwrap_or_default());
    Ok(found)
}

fn ask<T>(socket: &Socket, request: InetRequest, read: &impl Fn(&InetResponse) -> T) -> io::Result<Vec<T>> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut found = vec![];
    for _ in 0..DATAGRAMS_MAX {
        let (datagram, _) = socket.recv_from_full()?;
        if parse(&datagram, &mut found, read)? {
            return Ok(found);
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the answer of the kernel has no end"))
}

/// Parses one datagram of an answer; true when it was the last one.
pub(super) fn parse<T>(
    datagram: &[u8],
    found: &mut Vec<T>,
    read: &impl Fn(&InetResponse) -> T,
) -> io::Result<bool> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        match message.payload {
            NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(answer)) => {
                found.push(read(&answer));
            }
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            _ => {}
        }
        // Messages are aligned to four bytes; a length of zero would not end.
        let length = (message.header.length as usize).max(1).next_multiple_of(4);
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(false)
}

/// `TCP_ESTABLISHED` of include/net/tcp_states.h.
const ESTABLISHED: u8 = 1;

fn end(answer: &InetResponse) -> End {
    let (header, id) = (&answer.header, &answer.header.socket_id);
    End {
        cookie: id.cookie,
        open: header.state == ESTABLISHED,
        // A socket of both families shows IPv4 as `::ffff:a.b.c.d`; its other end does not.
        own: (id.source_address.to_canonical(), id.source_port),
        peer: (id.destination_address.to_canonical(), id.destination_port),
        inode: u64::from(header.inode),
    }
}

pub(super) fn listen_socket(answer: &InetResponse) -> ListenSocket {
    ListenSocket {
        address: answer.header.socket_id.source_address,
        port: answer.header.socket_id.source_port,
        queue_count: answer.header.recv_queue,
        queue_max_count: Some(answer.header.send_queue),
        inode: u64::from(answer.header.inode),
        uid: answer.header.uid,
    }
}
