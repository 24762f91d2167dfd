//! All stream sockets of the calling thread's network namespace, with who is at the other end: TCP and unix sockets.
//!
//! Facts: sock_diag(7), netlink(7), net/unix/diag.c (a connected socket is told with the inode of its peer, a listening one
//! with those of who waits to be accepted; an accepted one has the name of the one that listens), net/ipv4/inet_diag.c,
//! Documentation/networking/proc_net_tcp.rst. A closed one (TIME_WAIT) has no inode and no user, and is left out. No rights are needed. Where
//! netlink is refused, `/proc/net/tcp` and `/proc/net/unix` tell the same, without the peers of unix sockets.

use crate::os::{procfs, sockets};
use netlink_packet_core::{
    Emitable, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload, Nla as _,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags};
use netlink_packet_sock_diag::unix::nlas::{Nla, UnixDiagName};
use netlink_packet_sock_diag::unix::{self as unix_diag, ShowFlags, UnixRequest, UnixResponse};
use netlink_sys::{Socket, SocketAddr as NetlinkAddress, protocols::NETLINK_SOCK_DIAG};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// Datagrams of one answer at most: each holds some hundred sockets.
const DATAGRAMS_MAX: usize = 2_000;

/// `TCP_TIME_WAIT` and `TCP_LISTEN` of include/net/tcp_states.h.
const TIME_WAIT: u8 = 6;
const LISTEN: u8 = 10;

/// `SOCK_STREAM` and `SOCK_SEQPACKET`.
const STREAMS: [u8; 2] = [1, 5];

/// `UNIX_DIAG_UID` of include/uapi/linux/unix_diag.h (since Linux 5.3), which the crate does not know.
const UNIX_DIAG_UID: u16 = 7;

/// A TCP socket. Addresses are canonical: `::ffff:a.b.c.d` is `a.b.c.d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tcp {
    /// What it is doing.
    pub state: TcpState,
    /// Its own address and port.
    pub own: SocketAddr,
    /// The other side's; of a listening socket without meaning.
    pub peer: SocketAddr,
    /// Its inode; 0 when no process has it: it waits to be accepted.
    pub inode: u64,
    /// The user who opened it.
    pub uid: u32,
}

/// What a socket is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpState {
    /// Waits for connections.
    Listening,
    /// A connection, whole or half open.
    Connected,
}

/// A unix stream socket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unix {
    /// Its inode.
    pub inode: u64,
    /// Whether it waits for connections.
    pub listening: bool,
    /// Its address: a path, or `@name` of an abstract one. Clients have none.
    pub name: Option<String>,
    /// The other end; 0 when that is not accepted yet, `None` when it has none or that is not told.
    pub peer: Option<u64>,
    /// The clients that wait to be accepted.
    pub waiting: Vec<u64>,
    /// The user who opened it, where that is told.
    pub uid: Option<u32>,
    /// The inode of its file, where it has one.
    pub file: Option<u64>,
}

/// The TCP sockets of this network namespace.
pub fn tcp() -> io::Result<Vec<Tcp>> {
    let socket = connect()?;
    let half_open = StateFlags::SYN_SENT | StateFlags::CLOSE_WAIT | StateFlags::FIN_WAIT1;
    let states = StateFlags::ESTABLISHED | StateFlags::LISTEN | half_open;
    let request = |family, socket_id| {
        SockDiagMessage::InetRequest(InetRequest {
            family,
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::empty(),
            states: states.clone(),
            socket_id,
        })
    };
    let read = |message| match message {
        SockDiagMessage::InetResponse(answer) => of_inet(&answer),
        _ => None,
    };
    let mut found = query(&socket, request(AF_INET, SocketId::new_v4()), &read)?;
    // A kernel without IPv6 refuses the second question.
    found.extend(query(&socket, request(AF_INET6, SocketId::new_v6()), &read).unwrap_or_default());
    Ok(found)
}

/// The unix stream sockets of this network namespace.
pub fn unix() -> io::Result<Vec<Unix>> {
    let socket = connect()?;
    let show = ShowFlags::NAME | ShowFlags::VFS | ShowFlags::PEER | ShowFlags::ICONS;
    let request = SockDiagMessage::UnixRequest(UnixRequest {
        state_flags: unix_diag::StateFlags::ESTABLISHED | unix_diag::StateFlags::LISTEN,
        inode: 0,
        show_flags: show | ShowFlags::from_bits_retain(1 << UNIX_DIAG_UID),
        cookie: [0xff; 8],
    });
    query(&socket, request, &|message| match message {
        SockDiagMessage::UnixResponse(answer) => of_unix(&answer),
        _ => None,
    })
}

fn connect() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&NetlinkAddress::new(0, 0))?;
    // The kernel writes its answer before send and recv return: nothing that has to be waited for ever comes.
    socket.set_non_blocking(true)?;
    Ok(socket)
}

fn query<T>(
    socket: &Socket,
    request: SockDiagMessage,
    read: &impl Fn(SockDiagMessage) -> Option<T>,
) -> io::Result<Vec<T>> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, request.into());
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

/// Parses one datagram of an answer; true when it was the last one. A socket that cannot be read is left out: its name may
/// be any bytes.
fn parse<T>(
    datagram: &[u8],
    found: &mut Vec<T>,
    read: &impl Fn(SockDiagMessage) -> Option<T>,
) -> io::Result<bool> {
    let mut rest = datagram;
    while let Some(&length) = rest.first_chunk::<4>() {
        // Messages are aligned to four bytes; a length of zero would not end.
        let length = (u32::from_ne_bytes(length) as usize).max(1).next_multiple_of(4);
        if let Ok(message) = NetlinkMessage::<SockDiagMessage>::deserialize(rest) {
            match message.payload {
                NetlinkPayload::InnerMessage(answer) => found.extend(read(answer)),
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => {}
            }
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(false)
}

fn of_inet(answer: &InetResponse) -> Option<Tcp> {
    let (header, id) = (&answer.header, &answer.header.socket_id);
    Some(Tcp {
        state: state(header.state)?,
        own: SocketAddr::new(id.source_address.to_canonical(), id.source_port),
        peer: SocketAddr::new(id.destination_address.to_canonical(), id.destination_port),
        inode: u64::from(header.inode),
        uid: header.uid,
    })
}

fn state(number: u8) -> Option<TcpState> {
    match number {
        LISTEN => Some(TcpState::Listening),
        TIME_WAIT => None,
        _ => Some(TcpState::Connected),
    }
}

fn of_unix(answer: &UnixResponse) -> Option<Unix> {
    if !STREAMS.contains(&answer.header.kind) {
        return None;
    }
    let name = answer.name().map(|name| match name {
        UnixDiagName::Pathname(path) => path.to_string_lossy().into_owned(),
        UnixDiagName::Abstract(name) => format!("@{}", String::from_utf8_lossy(name)),
    });
    let number_of = |nla: &Nla| -> Option<u32> {
        let mut bytes = vec![0; nla.value_len()];
        nla.emit_value(&mut bytes);
        bytes.first_chunk().map(|word| u32::from_ne_bytes(*word))
    };
    let uid =
        answer.nlas.iter().find(|nla| matches!(nla, Nla::Other(other) if other.kind() == UNIX_DIAG_UID));
    let file = answer.nlas.iter().find_map(|nla| match nla {
        Nla::Vfs(file) => {
            let mut bytes = vec![0; file.buffer_len()];
            file.emit(&mut bytes);
            bytes.first_chunk().map(|word| u64::from(u32::from_ne_bytes(*word)))
        }
        _ => None,
    });
    Some(Unix {
        inode: u64::from(answer.header.inode),
        listening: answer.header.state == LISTEN,
        name,
        peer: answer.peer().map(u64::from),
        waiting: answer.pending_connections().unwrap_or_default().iter().copied().map(u64::from).collect(),
        uid: uid.and_then(number_of),
        file,
    })
}

/// The TCP sockets of the namespace whose `net` directory this is, from its files.
pub fn tcp_of_files(net: &Path) -> io::Result<Vec<Tcp>> {
    let four = procfs::read_text(net.join("tcp"))?;
    // A kernel without IPv6 has no tcp6.
    let six = procfs::read_text(net.join("tcp6")).unwrap_or_default();
    Ok(four.lines().chain(six.lines()).filter_map(parse_tcp).collect())
}

/// The unix stream sockets of the namespace whose `net` directory this is: without their peers.
pub fn unix_of_files(net: &Path) -> io::Result<Vec<Unix>> {
    Ok(procfs::read_text(net.join("unix"))?.lines().filter_map(parse_unix).collect())
}

/// A line `sl local remote state tx:rx timer retransmits uid timeout inode ...`.
fn parse_tcp(line: &str) -> Option<Tcp> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let state = state(u8::from_str_radix(fields.get(3)?, 16).ok()?)?;
    Some(Tcp {
        state,
        own: parse_address(fields.get(1)?)?,
        peer: parse_address(fields.get(2)?)?,
        inode: fields.get(9)?.parse().ok()?,
        uid: fields.get(7)?.parse().ok()?,
    })
}

/// `0100007F:1F90`: an address as the kernel prints it, and the port.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (hex, port) = text.split_once(':')?;
    let address = sockets::parse_address(hex)?;
    Some(SocketAddr::new(address.to_canonical(), u16::from_str_radix(port, 16).ok()?))
}

/// A line `number: references protocol flags type state inode path` (proc_pid_net(5)).
fn parse_unix(line: &str) -> Option<Unix> {
    // `__SO_ACCEPTCON` of include/uapi/linux/net.h: it listens.
    const ACCEPTS: u32 = 1 << 16;
    let mut fields = line.split_ascii_whitespace().skip(3);
    let flags = u32::from_str_radix(fields.next()?, 16).ok()?;
    let kind = u8::from_str_radix(fields.next()?, 16).ok().filter(|kind| STREAMS.contains(kind))?;
    let (_, inode) = ((kind, fields.next()?), fields.next()?.parse().ok()?);
    let name = fields.next().map(str::to_owned);
    Some(Unix { inode, listening: flags & ACCEPTS != 0, name, ..Unix::default() })
}

#[cfg(test)]
mod tests;
