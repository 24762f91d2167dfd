//! How full the tables of the generator's machine are during a load: limits once, what is in use while it runs.

use super::LiveSession;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;
use webdyno_host::os::kernel_tables;
use webdyno_load::io::ports;
use webdyno_load::{Interval, Prepared};
use webdyno_model::client::ClientTables;
use webdyno_model::event::EventBody;
use webdyno_model::workload::Workload;
use webdyno_model::{Result, UserError};

/// Seconds between readings of the local ports: one takes milliseconds when tens of thousands are in use.
const PORTS_EVERY_S: u32 = 5;

/// Between two loads of the same kind: what the first one left unfinished at the server has a moment to end.
const REST_US: u64 = 1_000_000;
/// Ports that closed connections hold are free again after this time (TCP_TIMEWAIT_LEN of include/net/tcp.h, and a
/// little).
const PORTS_FREE_AFTER_US: u64 = 62_000_000;
/// How often it is looked whether they are.
const CHECK_EVERY: Duration = Duration::from_millis(200);

impl LiveSession {
    /// The quiet time between two loads of the same kind: a second, and as long as the local ports that the first one
    /// left are too few for another one like it. An error when interrupted.
    pub fn pause_between_loads(&mut self, prepared: &Prepared, workload: &Workload) -> Result<()> {
        let begun_us = self.elapsed_us();
        let opened =
            self.recording.loads.last().map_or(0, |load| {
                load.intervals.iter().map(|interval| interval.connections.opened).sum::<u64>()
            });
        let mut waits = false;
        loop {
            if self.is_interrupted() {
                return Err(UserError::interrupted());
            }
            let rested_us = self.elapsed_us().saturating_sub(begun_us);
            let few = (REST_US..PORTS_FREE_AFTER_US).contains(&rested_us)
                && is_short_of_ports(prepared, workload, opened);
            if rested_us >= REST_US && !few {
                return Ok(());
            }
            if few && !waits {
                waits = true;
                let text = "waited for the local ports that the load before had left closed connections on";
                self.append(EventBody::Note { text: text.into() })?;
            }
            // Asking for tens of thousands of ports costs milliseconds: seldom, once it is known to take long.
            thread::sleep(if few { 5 * CHECK_EVERY } else { CHECK_EVERY });
        }
    }
}

/// Whether fewer ports are free towards a destination than a load opened. A load that takes more than all of them does
/// not get more by waiting until nearly all are free.
fn is_short_of_ports(prepared: &Prepared, workload: &Workload, opened: u64) -> bool {
    let destinations = prepared.addresses();
    let limit = ports::available(&workload.transport, &destinations);
    let Some(limit) = limit.filter(|_| !ports::is_reused(&destinations)) else {
        return false;
    };
    let used = destinations.into_iter().filter_map(kernel_tables::local_ports_used).max().unwrap_or(0);
    limit.saturating_sub(used) < opened.min(limit - limit / 20)
}

/// Watches the tables during one load.
pub(super) struct TableUsage {
    tables: ClientTables,
    destinations: Vec<SocketAddr>,
    /// Seconds since the local ports were read.
    unread_s: u32,
    /// Connections opened since then.
    unread_opened: u64,
}

impl TableUsage {
    /// Before the load: the limits, and what is in use without it.
    pub(super) fn begin(prepared: &Prepared, workload: &Workload) -> Self {
        let destinations = prepared.addresses();
        let local_ports_limit = ports::available(&workload.transport, &destinations);
        let mut watch = Self { tables: kernel_tables::limits(), destinations, unread_s: 0, unread_opened: 0 };
        watch.tables.local_ports_limit = local_ports_limit;
        watch.tables.destinations = local_ports_limit.map(|_| watch.destinations.len() as u64);
        watch.tables.local_ports_used_at_start = watch.read_ports();
        watch
    }

    /// A second of the load is over.
    pub(super) fn record_second(&mut self, interval: &Interval) {
        let descriptors = kernel_tables::descriptors_used();
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
        self.tables.descriptors_used_at_end = kernel_tables::descriptors_used();
        self.tables.descriptors_used_peak =
            self.tables.descriptors_used_peak.max(self.tables.descriptors_used_at_end);
        self.tables.local_ports_used_at_end = self.read_ports();
        self.tables
    }

    /// Ports in use towards the destination that has most; the peak is kept.
    fn read_ports(&mut self) -> Option<u64> {
        (self.unread_s, self.unread_opened) = (0, 0);
        let used = self.destinations.iter().map(|destination| kernel_tables::local_ports_used(*destination));
        let most = used.reduce(|most, used| most.zip(used).map(|(most, used)| most.max(used)))??;
        self.tables.local_ports_used_peak = self.tables.local_ports_used_peak.max(Some(most));
        Some(most)
    }
}
