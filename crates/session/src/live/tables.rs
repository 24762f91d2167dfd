//! How full the tables of the generator's machine are during a load: limits once, what is in use while it runs.

use std::net::SocketAddr;
use webdyno_host::tables;
use webdyno_load::{Interval, Prepared, ports};
use webdyno_model::client::ClientTables;
use webdyno_model::workload::Workload;

/// Seconds between readings of the local ports: one takes milliseconds when tens of thousands are in use.
const PORTS_EVERY_S: u32 = 5;

/// Watches the tables during one load.
pub(super) struct TableWatch {
    tables: ClientTables,
    destinations: Vec<SocketAddr>,
    /// Seconds since the local ports were read.
    unread_s: u32,
    /// Connections opened since then.
    unread_opened: u64,
}

impl TableWatch {
    /// Before the load: the limits, and what is in use without it.
    pub(super) fn begin(prepared: &Prepared, workload: &Workload) -> Self {
        let local_ports_limit = ports::available(&workload.transport);
        let destinations = if local_ports_limit.is_some() { prepared.addresses() } else { vec![] };
        let mut watch = Self { tables: tables::limits(), destinations, unread_s: 0, unread_opened: 0 };
        watch.tables.local_ports_limit = local_ports_limit;
        watch.tables.destinations = local_ports_limit.map(|_| watch.destinations.len() as u64);
        watch.tables.local_ports_used_at_start = watch.read_ports();
        watch
    }

    /// A second of the load is over.
    pub(super) fn see(&mut self, interval: &Interval) {
        let descriptors = tables::descriptors_used();
        self.tables.descriptors_used_peak = self.tables.descriptors_used_peak.max(descriptors);
        self.unread_s += 1;
        self.unread_opened += interval.connections.opened;
        // Ports are taken by opening connections: without that there is nothing new to see.
        if self.unread_opened > 0 && self.unread_s >= PORTS_EVERY_S {
            self.read_ports();
        }
    }

    /// After the load.
    pub(super) fn end(mut self) -> ClientTables {
        self.tables.descriptors_used_at_end = tables::descriptors_used();
        self.tables.descriptors_used_peak =
            self.tables.descriptors_used_peak.max(self.tables.descriptors_used_at_end);
        self.tables.local_ports_used_at_end = self.read_ports();
        self.tables
    }

    /// Ports in use towards the destination that has most; the peak is kept.
    fn read_ports(&mut self) -> Option<u64> {
        (self.unread_s, self.unread_opened) = (0, 0);
        let used = self.destinations.iter().map(|destination| tables::local_ports_used(*destination));
        let most = used.reduce(|most, used| most.zip(used).map(|(most, used)| most.max(used)))??;
        self.tables.local_ports_used_peak = self.tables.local_ports_used_peak.max(Some(most));
        Some(most)
    }
}
