//! The accept queues of listening sockets, unix and TCP, as the kernel tells them.
//!
//! Facts: sock_diag(7): of a listening unix socket `udiag_rqueue` is what waits to be accepted and `udiag_wqueue` the most
//! that may wait (net/unix/diag.c); `/proc/net/unix` tells neither. The kernel must have unix_diag.

use crate::collectors::sockets::{ListenSocket, netlink};
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::unix::nlas::UnixDiagName;
use netlink_packet_sock_diag::unix::{ShowFlags, StateFlags, UnixRequest, UnixResponse};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};
use std::collections::BTreeMap;
use std::io;

/// Datagrams of one answer at most: each holds some hundred sockets.
const DATAGRAMS_MAX: usize = 100;

/// An accept queue: how many wait, and how many may.
pub type Queue = (u64, Option<u64>);

/// The queues of a network namespace by address; what could not be read is empty, and why.
#[derive(Debug, Default)]
pub struct Queues {
    by_address: BTreeMap<String, Queue>,
    /// Why there are none of unix sockets.
    pub unix_error: Option<String>,
    /// Why there are none of TCP.
    pub tcp_error: Option<String>,
}

impl Queues {
    /// Reads those of the namespace of the calling thread.
    pub fn read(unix: bool, tcp: bool) -> Self {
        let mut queues = Self::default();
        if unix {
            match unix_listening() {
                Ok(found) => queues.by_address.extend(found),
                Err(error) => queues.unix_error = Some(error.to_string()),
            }
        }
        if tcp {
            match netlink::listening() {
                Ok(found) => found.iter().for_each(|socket| queues.add_tcp(socket)),
                Err(error) => queues.tcp_error = Some(error.to_string()),
            }
        }
        queues
    }

    /// None, for a reason.
    pub fn unread(error: &io::Error) -> Self {
        let why = Some(error.to_string());
        Self { by_address: BTreeMap::new(), unix_error: why.clone(), tcp_error: why }
    }

    /// Sockets that share an address are one queue.
    fn add_tcp(&mut self, socket: &ListenSocket) {
        let address = std::net::SocketAddr::from((socket.address, socket.port)).to_string();
        let queue = self.by_address.entry(address).or_insert((0, Some(0)));
        queue.0 += u64::from(socket.queue_count);
        queue.1 = queue.1.zip(socket.queue_max_count).map(|(sum, own)| sum + u64::from(own));
    }

    /// The queue of an address: `127.0.0.1:9000`, `unix:/run/x.sock`.
    pub fn get(&self, address: &str) -> Option<Queue> {
        let numeric = address.replace("localhost:", "127.0.0.1:");
        // Where there is no IPv6, a port without address is one of IPv4.
        let instead = || Some(format!("0.0.0.0:{}", numeric.strip_prefix("[::]:")?));
        let found = self.by_address.get(&numeric);
        found.or_else(|| self.by_address.get(&instead()?)).copied()
    }
}

/// The listening unix sockets that have a path.
fn unix_listening() -> io::Result<Vec<(String, Queue)>> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    // The kernel writes its answer before send and recv return: nothing that has to be waited for ever comes.
    socket.set_non_blocking(true)?;
    let request = UnixRequest {
        state_flags: StateFlags::LISTEN,
        inode: 0,
        show_flags: ShowFlags::NAME | ShowFlags::RQLEN,
        cookie: [0xff; 8],
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::UnixRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut found = vec![];
    for _ in 0..DATAGRAMS_MAX {
        let (datagram, _) = socket.recv_from_full()?;
        if parse(&datagram, &mut found)? {
            break;
        }
    }
    Ok(found)
}

/// Parses one datagram of an answer; true when it was the last one.
fn parse(datagram: &[u8], found: &mut Vec<(String, Queue)>) -> io::Result<bool> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        match message.payload {
            NetlinkPayload::InnerMessage(SockDiagMessage::UnixResponse(answer)) => {
                found.extend(queue(&answer))
            }
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            _ => {}
        }
        let length = (message.header.length as usize).max(1).next_multiple_of(4);
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(false)
}

fn queue(answer: &UnixResponse) -> Option<(String, Queue)> {
    let UnixDiagName::Pathname(path) = answer.name()? else { return None };
    let waiting = u64::from(answer.number_of_pending_connection()?);
    let limit = answer.max_number_of_pending_connection().map(u64::from);
    Some((format!("unix:{}", path.to_string_lossy()), (waiting, limit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn what_waits_on_a_unix_socket_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let waiting: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let queues = Queues::read(true, false);
        let (count, limit) = queues.get(&format!("unix:{}", path.display())).unwrap();
        assert_eq!(count, waiting.len() as u64);
        assert!(limit.unwrap() > 0);
        assert_eq!(queues.get("unix:/no/such/socket"), None);
    }

    #[test]
    fn what_waits_on_a_port_is_counted() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let _waiting = std::net::TcpStream::connect(&address).unwrap();
        let queues = Queues::read(false, true);
        assert_eq!(queues.get(&address).unwrap().0, 1);
        assert_eq!(queues.get(&address.replace("127.0.0.1", "localhost")).unwrap().0, 1);
        let mut queues = Queues::default();
        queues.by_address.insert("0.0.0.0:9".into(), (1, None));
        assert_eq!(queues.get("[::]:9"), Some((1, None)));
    }

    proptest! {
        #[test]
        fn any_datagram_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse(&bytes, &mut vec![]);
        }
    }
}
