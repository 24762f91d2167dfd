//! Asks the kernel for all listening TCP sockets of this network namespace through netlink.
//!
//! Facts: sock_diag(7) and netlink(7). Only listening sockets are asked for: a server has few of them, whatever the
//! number of its connections. No rights are needed; a sandbox may refuse it.

use super::ListenSocket;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};
use std::io;

/// Datagrams of one answer at most: each holds some hundred sockets.
const DATAGRAMS_MAX: usize = 1_000;

/// The listening sockets of both families.
pub fn listening() -> io::Result<Vec<ListenSocket>> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    // The kernel writes its answer before send and recv return: nothing that has to be waited for ever comes.
    socket.set_non_blocking(true)?;
    let mut found = ask(&socket, AF_INET, SocketId::new_v4())?;
    // A kernel without IPv6 refuses the second question.
    found.extend(ask(&socket, AF_INET6, SocketId::new_v6()).unwrap_or_default());
    Ok(found)
}

fn ask(socket: &Socket, family: u8, socket_id: SocketId) -> io::Result<Vec<ListenSocket>> {
    let request = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::LISTEN,
        socket_id,
    };
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
        if parse(&datagram, &mut found)? {
            return Ok(found);
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the answer of the kernel has no end"))
}

/// Parses one datagram of an answer; true when it was the last one.
pub(super) fn parse(datagram: &[u8], found: &mut Vec<ListenSocket>) -> io::Result<bool> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        match message.payload {
            NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(answer)) => {
                found.push(listen_socket(&answer));
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

fn listen_socket(answer: &InetResponse) -> ListenSocket {
    ListenSocket {
        address: answer.header.socket_id.source_address,
        port: answer.header.socket_id.source_port,
        queue_count: answer.header.recv_queue,
        queue_max_count: Some(answer.header.send_queue),
        inode: u64::from(answer.header.inode),
        uid: answer.header.uid,
    }
}
