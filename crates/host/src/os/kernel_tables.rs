//! The tables of this machine that connections fill: their sizes, and how full they are.
//!
//! Facts: getrlimit(2) and proc_pid_limits(5) for open files, Documentation/networking/ip-sysctl.rst
//! (`tcp_max_tw_buckets`), nf_conntrack-sysctl.rst (there only once connection tracking is in use),
//! Documentation/admin-guide/sysctl/fs.rst (`file-max`).

use crate::os::{procfs, sockets};
use std::net::SocketAddr;
use webdyno_model::client::ClientTables;

/// The sizes of the tables of this process, its network namespace and its machine. What cannot be read is `None`; local
/// ports are not read here, as they depend on where connections go.
pub fn limits() -> ClientTables {
    let number = |path: &str| procfs::read_text(path).ok()?.trim().parse().ok();
    ClientTables {
        descriptors_limit: procfs::open_files_limit(std::process::id()).ok().flatten(),
        conntrack_limit: number("/proc/sys/net/netfilter/nf_conntrack_max"),
        conntrack_used_at_start: number("/proc/sys/net/netfilter/nf_conntrack_count"),
        time_wait_limit: number("/proc/sys/net/ipv4/tcp_max_tw_buckets"),
        files_limit: number("/proc/sys/fs/file-max"),
        ..ClientTables::default()
    }
}

/// Open files of this process.
pub fn descriptors_used() -> Option<u64> {
    procfs::open_files_count(std::process::id()).ok()
}

/// Local ports of this network namespace that connections of every state, TIME_WAIT included, hold towards an address
/// and port. `None` where the kernel does not tell.
pub fn local_ports_used(destination: SocketAddr) -> Option<u64> {
    sockets::connections_to(destination).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_connections_take_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(local_ports_used(address), Some(0));
        let mut kept: Vec<_> = (0..5).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert_eq!(local_ports_used(address), Some(5));
        assert!(descriptors_used().unwrap() >= 6);
        assert!(limits().descriptors_limit.is_none_or(|limit| limit >= descriptors_used().unwrap()));
        // Who closes first holds the port: here that is us, and the connection waits for the other side, then for time.
        let accepted: Vec<_> = (0..5).map(|_| listener.accept().unwrap()).collect();
        kept.clear();
        drop(accepted);
        assert_eq!(local_ports_used(address), Some(5));
    }
}
