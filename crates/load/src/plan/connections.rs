//! Connections of a plan: how many there are, what they need of this machine, and how requests share them.

use super::thread_share::ThreadShare;
use super::{Plan, Script};
use crate::io::descriptors;
use crate::io::descriptors::DescriptorNeed;
use crate::io::multiplexed::StreamLimits;
use crate::io::origin::Origin;
use crate::io::ports;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::Range;
use webdyno_model::Result;
use webdyno_model::workload::{Arrival, Workload};

/// Most connections of visitors that wait for the server to close first: theirs are mostly kept.
const VISITORS_PARKED_MAX: u32 = 4096;

impl Plan {
    /// Makes room for the connections, as many as are surely open at once; more than that are open only as far as there
    /// is room for them.
    pub(super) fn reserve_descriptors(&mut self) -> Result<()> {
        if let Some(each) = self.script.as_ref().and_then(|script| script.connections_per_server) {
            self.connections = self.connections.max(each.saturating_mul(self.origins.len() as u32));
        }
        let surely = u64::from(self.on_the_wire(self.share.part(self.connections_required())));
        let surely = surely.min(self.requests.unwrap_or(u64::MAX));
        let resolves = self.transport.resolve_each;
        let need = DescriptorNeed { connections: surely, threads: u64::from(self.share.threads), resolves };
        let fitting = descriptors::raise_limit(need)?;
        let fitting = fitting.map_or(u32::MAX, |fitting| u32::try_from(fitting).unwrap_or(u32::MAX));
        self.open_files_left = lanes(self.share.scaled(fitting), self.lanes_per_connection);
        let spare = self.open_files_left.saturating_sub(self.connections_max());
        let parked_max = if self.script.is_some() { VISITORS_PARKED_MAX } else { u32::MAX };
        // A server of HTTP/2 or HTTP/3 does not close when a response has ended.
        let parked_max = if self.transport.multiplexed_streams().is_some() { 0 } else { parked_max };
        self.parked_max = self.connections.min(spare).min(parked_max);
        Ok(())
    }

    /// Connections that carry so many requests.
    fn on_the_wire(&self, lanes: u32) -> u32 {
        lanes.div_ceil(self.lanes_per_connection)
    }

    /// What a thread gets whole when requests are shared out: those of one connection; visitors are shared out one by
    /// one.
    pub(crate) fn share_unit(&self) -> u32 {
        if self.script.is_some() { 1 } else { self.lanes_per_connection }
    }

    /// How the requests of a thread share connections; `None` for HTTP/1.1, where they do not.
    pub(crate) fn stream_limits(&self, share: &ThreadShare) -> Option<StreamLimits> {
        self.transport.multiplexed_streams()?;
        Some(match &self.script {
            Some(_) => StreamLimits { connections_max: 1, streams_max: u32::MAX },
            None => StreamLimits {
                connections_max: self.on_the_wire(share.part(self.connections)).max(1),
                streams_max: self.lanes_per_connection,
            },
        })
    }

    /// Connections that the load cannot do without: what visitors have more of are kept while they think, or shared.
    fn connections_required(&self) -> u32 {
        match (&self.script, self.arrival) {
            (Some(script), Arrival::Closed) => self.connections.min(script.users),
            _ => self.connections,
        }
    }

    /// The requests of this machine's part in closed arrival, by their numbers; `None` without a bound on them.
    pub(crate) fn closed_requests(&self) -> Option<Range<u64>> {
        self.requests.filter(|_| self.arrival == Arrival::Closed).map(|requests| self.share.numbers(requests))
    }

    /// Connections that could be kept at once: in closed arrival a user may keep one to each server.
    fn connections_wanted(&self) -> u32 {
        match self.arrival {
            // Of all visitors together.
            _ if self.script.is_some() => self.connections,
            Arrival::Closed => self.connections.saturating_mul(self.origins.len() as u32),
            Arrival::Open { .. } => self.connections,
        }
    }

    /// Most connections of all threads at once.
    pub(super) fn connections_max(&self) -> u32 {
        // A user has one request at a time: with a connection for each user none waits for one.
        self.connections_wanted()
            .min(self.open_files_left)
            .min(self.ports_left)
            .max(self.connections_required())
    }

    /// What several servers mean for the connections, where there are too few of them to be kept.
    pub(super) fn connection_shortage_warning(&self) -> Option<String> {
        let servers = self.origins.len();
        if self.script.is_some() {
            return (self.connections_max() < self.connections).then(|| {
                format!(
                    "visitors would have up to {} connections at once, and open files or half of the local ports (more \
                     are searched for slowly) allow {}: beyond them idle ones are closed, and requests wait. To allow more \
                     raise the limit (ulimit -n), or give further addresses of this machine (--source-ip)",
                    self.on_the_wire(self.connections),
                    self.on_the_wire(self.connections_max())
                )
            });
        }
        if servers < 2 || !self.keepalive {
            return None;
        }
        if self.connections_max() < self.connections_wanted() {
            return Some(format!(
                "{servers} servers are loaded: up to {} connections would be kept, and open files allow {}. Beyond them a \
                 connection is closed for each that is opened; to keep them all raise the limit (ulimit -n)",
                self.on_the_wire(self.connections_wanted()),
                self.on_the_wire(self.connections_max())
            ));
        }
        let rate_is_set = matches!(self.arrival, Arrival::Open { .. });
        let worthwhile_min = (servers as u32).saturating_mul(self.share.total_threads);
        let connections = self.on_the_wire(self.connections);
        (rate_is_set && connections < worthwhile_min.saturating_mul(2)).then(|| {
            format!(
                "-c {} is the most connections to all {servers} servers together, on {} engine threads: where no kept one \
                 leads to a request's server, one to another server is closed and a new one opened. Allow more with -c",
                connections, self.share.total_threads
            )
        })
    }

    /// Most connections of a thread at once.
    pub(crate) fn open_max(&self, share: &ThreadShare) -> u32 {
        let connections_max = self.connections_max();
        match &self.script {
            // A thread with more users than another has more connections too.
            Some(script) if self.arrival == Arrival::Closed && script.users > 0 => {
                let (seats, users) = (u64::from(share.part(script.users)), u64::from(script.users));
                u32::try_from((u64::from(connections_max) * seats).div_ceil(users)).unwrap_or(u32::MAX)
            }
            _ => share.part(connections_max),
        }
    }

    /// Connection slots of a thread: those in use and those that are parked.
    pub(crate) fn slots(&self, share: &ThreadShare) -> usize {
        self.open_max(share) as usize + share.part(self.parked_max) as usize
    }
}

/// The requests that so many connections carry.
pub(super) fn lanes(connections: u32, lanes_per_connection: u32) -> u32 {
    connections.saturating_mul(lanes_per_connection)
}

/// How many requests share a connection: those of a visitor to a server, or as many as are asked for.
pub(super) fn lanes_per_connection(workload: &Workload, script: Option<&Script>) -> u32 {
    match (workload.transport.multiplexed_streams(), script) {
        (None, _) => 1,
        (Some(_), Some(script)) => script.connections_per_host.max(1),
        (Some(streams), None) => streams.max(1),
    }
}

/// Whether there are local ports for the load: what may go wrong. An error when there are too few.
pub(super) fn check_ports(plan: &mut Plan, workload: &Workload) -> Result<Option<String>> {
    let destinations: Vec<SocketAddr> = plan.origins.iter().filter_map(Origin::address).collect();
    if plan.script.is_some() {
        let ports = ports::available(&plan.transport, &destinations);
        // connect(2) looks through the ports of one parity first (__inet_hash_connect in net/ipv4/inet_hashtables.c):
        // when that half is taken each connection costs a search through all of it, milliseconds in which nothing else
        // is done. Towards each server there are as many.
        let servers = destinations.iter().collect::<BTreeSet<_>>().len() as u64;
        let half = ports.map(|ports| (ports / 2).saturating_mul(servers));
        let half = half.map_or(u32::MAX, |half| u32::try_from(half).unwrap_or(u32::MAX));
        plan.ports_left = lanes(plan.share.scaled(half), plan.lanes_per_connection);
    }
    let connections = plan.on_the_wire(plan.share.part(plan.connections_required()));
    let surely = Workload { connections, ..workload.clone() };
    ports::check(&surely, &destinations)
}

/// The requests of the whole load that can be in flight.
pub(super) fn all_lanes(workload: &Workload, script: Option<&Script>) -> u32 {
    match script {
        Some(script) => script.lanes(workload),
        None => lanes(workload.connections, lanes_per_connection(workload, None)),
    }
}
