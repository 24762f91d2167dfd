//! Reading for a survey: one service in its own network, and the sockets of one network namespace.
//!
//! Facts: network_namespaces(7), sock_diag(7), and `/proc/PID/net` (proc_pid_net(5)) where netlink gives nothing.

use crate::discovery::diag;
use crate::discovery::links::Space;
use crate::services::{Observe, UNKNOWN};
use crate::visibility::network_namespace::{self, space_of};
use std::collections::BTreeMap;
use std::path::Path;
use webdyno_model::Result;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::Access;

/// The namespaces with a process in each, those that matter most first: of very many not all are read.
pub(super) fn nearest_first(spaces: BTreeMap<u64, u32>, near: [Option<u64>; 2]) -> Vec<(u64, u32)> {
    let mut all: Vec<(u64, u32)> = spaces.into_iter().collect();
    all.sort_by_key(|(id, _)| !near.contains(&Some(*id)));
    all
}

/// The port that stands for all on which a service listens: those that browsers take by themselves, else the first one.
pub(super) fn main_port(listens: &[String]) -> Option<u16> {
    let ports = listens.iter().filter_map(|at| Some(at.parse::<std::net::SocketAddr>().ok()?.port()));
    ports.min_by_key(|port| match port {
        80 => 0,
        443 => 1,
        _ => 2,
    })
}

/// Reads a service in its own network; `None` when that takes a port and it has none.
pub(super) fn read(
    service: &'static dyn Observe,
    pid: u32,
    port: u16,
    access: &Access,
) -> Option<Result<ServiceSnapshot>> {
    let look = || {
        let read = match service.backend(pid) {
            None if port != 0 => Some(service.snapshot(pid, port)),
            read => read,
        };
        read.map(|read| {
            read.map(|mut snapshot| {
                service.with_access(&mut snapshot, access);
                snapshot
            })
        })
    };
    network_namespace::inside(pid, look)
}

/// A program that is not known, or cannot be read.
pub(super) fn unknown(pid: u32, port: u16, program: String) -> ServiceSnapshot {
    let warning = format!(
        "webdyno does not know {program}: it sees its processes and sockets, and none of its settings"
    );
    ServiceSnapshot {
        service: UNKNOWN.into(),
        pid,
        port,
        executable: Some(program),
        warnings: vec![warning],
        ..ServiceSnapshot::default()
    }
}

/// The sockets of a network namespace, by netlink or else from the files of a process in it.
pub(super) fn read_space(id: u64, pid: u32) -> Space {
    let by_netlink = || (diag::tcp().ok(), diag::unix().ok());
    let (tcp, unix) = match space_of(std::process::id()) == Some(id) {
        true => by_netlink(),
        false => network_namespace::on_own_thread(pid, by_netlink).unwrap_or_default(),
    };
    let net = format!("/proc/{pid}/net");
    let net = Path::new(&net);
    Space {
        id,
        tcp: tcp.unwrap_or_else(|| diag::tcp_of_files(net).unwrap_or_default()),
        unix: unix.unwrap_or_else(|| diag::unix_of_files(net).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_namespaces_the_own_one_and_the_front_s_are_read() {
        let spaces = BTreeMap::from([(1, 10), (2, 20), (3, 30), (4, 40)]);
        let order = nearest_first(spaces, [Some(4), Some(2)]).into_iter().map(|(id, _)| id);
        assert_eq!(order.collect::<Vec<_>>(), [2, 4, 1, 3]);
    }

    #[test]
    fn one_port_stands_for_all() {
        for (listens, port) in [
            (&["0.0.0.0:443", "127.0.0.1:8080", "[::]:80"][..], Some(80)),
            (&["127.0.0.1:8080", "[::]:443"], Some(443)),
            (&["127.0.0.1:8080", "127.0.0.1:9000"], Some(8080)),
            (&["unix:/run/x.sock"], None),
            (&[], None),
        ] {
            let listens: Vec<String> = listens.iter().map(|at| (*at).to_owned()).collect();
            assert_eq!(main_port(&listens), port, "{listens:?}");
        }
    }
}
