//! The accept queues of listening sockets, unix and TCP, as the kernel tells them.
//!
//! Facts: sock_diag(7): of a listening unix socket `udiag_rqueue` is what waits to be accepted and `udiag_wqueue` the most
//! that may wait (net/unix/diag.c); `/proc/net/unix` tells neither. The kernel must have unix_diag.

use crate::os::netlink::{attribute, dump, text, u32_at};
use crate::os::sock_diag::{state, states};
use crate::os::sockets::{ListenSocket, netlink};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use std::collections::BTreeMap;
use std::io;

/// `SOCK_DIAG_BY_FAMILY` of include/uapi/linux/sock_diag.h.
const BY_FAMILY: u16 = 20;

const AF_UNIX: u8 = 1;

/// Attributes of include/uapi/linux/unix_diag.h, and the bits that ask for them.
const NAME: u16 = 0;
const QUEUE: u16 = 4;

/// The length of `struct unix_diag_msg`.
const HEADER_LEN: usize = 16;

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

/// The listening unix sockets that have a path. `struct unix_diag_req`: family, protocol, padding, states, inode, what to
/// show, cookie.
fn unix_listening() -> io::Result<Vec<(String, Queue)>> {
    let mut request = vec![AF_UNIX, 0, 0, 0];
    request.extend(states([state::LISTEN]).to_ne_bytes());
    request.extend([0, 1 << NAME | 1 << QUEUE, u32::MAX, u32::MAX].map(u32::to_ne_bytes).concat());
    let mut found = vec![];
    dump(NETLINK_SOCK_DIAG, BY_FAMILY, &request, |body| found.extend(queue(body)))?;
    Ok(found)
}

/// Path and queue of one message; `None` of a socket without a path.
fn queue(body: &[u8]) -> Option<(String, Queue)> {
    let attributes = body.get(HEADER_LEN..)?;
    // A name that begins with a zero byte is no path.
    let path = attribute(attributes, NAME).filter(|name| !name.starts_with(&[0]))?;
    let queue = attribute(attributes, QUEUE)?;
    Some((format!("unix:{}", text(path)), (u32_at(queue, 0)?.into(), u32_at(queue, 4).map(u64::from))))
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
            queue(&bytes);
        }
    }
}
