//! Clients that are connected to a database, by the sockets of its network namespace: who is not let in sees them, too.
//!
//! Facts: proc_pid_net(5), `unix_seq_show` of net/unix/af_unix.c (a socket that was accepted has its listener's path, and the state
//! 3), sock_diag(7); where that is refused, Documentation/networking/proc_net_tcp.rst (the state 1 is ESTABLISHED). That table has the
//! connections of all programs, which the kernel writes out each time: of tens of thousands not all are read.

use crate::collectors::network::Place;
use crate::os::procfs;
use crate::os::sock_diag::{Query, TCP, each, state, states};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use webdyno_model::service::ServiceSnapshot;

/// Where a database listens for others than its clients: for nodes of Galera, and MySQL's X protocol.
const OTHER_PORTS: [u16; 2] = [4567, 33060];

/// How many there are, on all sockets that it listens on; `None` where these cannot be read.
pub fn count(service: &ServiceSnapshot) -> Option<u64> {
    let table = |name: &str| procfs::read_text(format!("/proc/{}/net/{name}", service.pid)).ok();
    let at_path = |path: &str| table("unix").map(|text| on_path(&text, path));
    let at_port = |port: u16| {
        connected_to(service.pid, port).ok().or_else(|| {
            // A kernel without IPv6 has no tcp6.
            let six = table("tcp6").map_or(0, |text| on_port(&text, port));
            table("tcp").map(|text| on_port(&text, port) + six)
        })
    };
    let paths = service.listens.iter().filter_map(|address| address.strip_prefix("unix:"));
    let ports = service.listens.iter().filter_map(|address| Some(address.parse::<SocketAddr>().ok()?.port()));
    // It may listen on a port at several addresses.
    let ports: BTreeSet<u16> = ports.filter(|port| !OTHER_PORTS.contains(port)).collect();
    let known: Option<Vec<u64>> = paths.map(at_path).chain(ports.into_iter().map(at_port)).collect();
    known.filter(|counts| !counts.is_empty()).map(|counts| counts.iter().sum())
}

/// Connections to a port in the network of a process. An error where that may not be seen.
fn connected_to(pid: u32, port: u16) -> io::Result<u64> {
    let is_own = procfs::net_namespace(pid)? == procfs::net_namespace(std::process::id())?;
    let place = if is_own { Place::Own } else { Place::Of(pid) };
    place.within(|| {
        let (mut count, states) = (0, states([state::ESTABLISHED]));
        each(Query { protocol: TCP, states, own_port: port, ..Query::default() }, |_| count += 1)?;
        Ok(count)
    })
}

fn on_path(text: &str, path: &str) -> u64 {
    let is_accepted = |line: &&str| {
        let mut fields = line.split_ascii_whitespace().skip(5);
        fields.next() == Some("03") && fields.nth(1) == Some(path)
    };
    text.lines().skip(1).filter(is_accepted).count() as u64
}

fn on_port(text: &str, port: u16) -> u64 {
    let ending = format!(":{port:04X}");
    let is_established = |line: &&str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        fields.next().is_some_and(|local| local.ends_with(&ending)) && fields.nth(1) == Some("01")
    };
    text.lines().skip(1).filter(is_established).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn those_are_counted_that_were_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db.sock");
        let (unix, tcp) = (UnixListener::bind(&path).unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = tcp.local_addr().unwrap();
        let mut service = ServiceSnapshot {
            pid: std::process::id(),
            listens: vec![
                format!("unix:{}", path.display()),
                address.to_string(),
                format!("[::1]:{}", address.port()),
            ],
            ..ServiceSnapshot::default()
        };
        assert_eq!(count(&service), Some(0));
        let local: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        assert_eq!(count(&service), Some(0), "they wait to be accepted");
        let accepted: Vec<_> = local.iter().map(|_| unix.accept().unwrap()).collect();
        let client = TcpStream::connect(address).unwrap();
        assert_eq!(count(&service), Some(4));
        assert_eq!(
            connected_to(service.pid, address.port()).ok(),
            Some(1),
            "without reading all connections"
        );
        drop((local, accepted, client));
        service.pid = u32::MAX;
        assert_eq!(count(&service), None);
    }
}
