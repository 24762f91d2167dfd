//! Local ports that connections to the same place take: a proxy that opens one for each request runs out of them.
//!
//! Facts: ip(7) and Documentation/networking/ip-sysctl.rst (`ip_local_port_range`, `ip_local_reserved_ports`,
//! `tcp_tw_reuse`: 0 off, 1 on, 2 on the loopback interface only); net/ipv4/inet_hashtables.c: a port may serve for many
//! connections, but for one only towards the same address and port. Closed connections keep theirs for a minute.
//!
//! All are of the network namespace of the service, from the table of sockets that is read rarely.

use crate::collectors::network::socket_table::{LOCAL_PORTS as RANGE, Table, range as local_ports};
use crate::collectors::network::{Place, Shared, Whereabouts};
use crate::collectors::on_change::{Changes, on_change};
use crate::collectors::{Collector, Metric, Reading, Target, gauge, io_error_text};
use crate::os::procfs;
use std::io;
use std::sync::Arc;

/// Destinations that are told, and the least connections to one that are worth it.
const DESTINATIONS_MAX: usize = 4;
const CONNECTIONS_MIN: u64 = 16;

const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";
const REUSE: &str = "/proc/sys/net/ipv4/tcp_tw_reuse";

const AVAILABLE: &str = "ports.available_count";
const REUSED: &str = "ports.time_wait_reuse_mode";

/// How many ports a range has, less those that are reserved: a range `first last`, and ranges `a,b-c,..`.
fn available(range: &str, reserved: &str) -> Option<u64> {
    let (first, last) = local_ports(range).map(|(first, last)| (u64::from(first), u64::from(last)))?;
    let mut taken = 0;
    for part in reserved.trim().split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.parse::<u64>().ok()?.max(first), to.parse::<u64>().ok()?.min(last));
        taken += (to + 1).saturating_sub(from);
    }
    (last + 1).checked_sub(first)?.checked_sub(taken)
}

/// The ports there are, and whether those of closed connections are used again, as this thread's namespace has it.
fn settings() -> io::Result<(Option<u64>, Option<u64>)> {
    // Kernels before 2.6.35 reserve none.
    let reserved = procfs::read_text(RESERVED).unwrap_or_default();
    let available = available(&procfs::read_text(RANGE)?, &reserved);
    let reuse = procfs::read_text(REUSE).ok().and_then(|text| text.trim().parse().ok());
    Ok((available, reuse))
}

/// The collector.
#[derive(Debug, Default)]
pub struct Ports {
    whereabouts: Whereabouts,
    shared: Shared,
    changes: Changes,
    /// The table that was told last.
    reported: Option<Arc<Table>>,
}

impl Ports {
    pub(crate) fn sharing(shared: Shared) -> Self {
        Self { shared, ..Self::default() }
    }

    fn used(&mut self, place: Place, reading: &mut Reading) -> io::Result<()> {
        let table = self.shared.lock().table.of(place)?;
        if self.reported.as_ref().is_some_and(|message| Arc::ptr_eq(message, &table)) {
            return Ok(());
        }
        for (peer, used) in table.busiest(CONNECTIONS_MIN, DESTINATIONS_MAX) {
            reading.push(format!("ports.{peer}.used_count"), used.all as f64);
            reading.push(format!("ports.{peer}.time_wait_count"), used.time_wait as f64);
        }
        self.reported = Some(table);
        Ok(())
    }
}

impl Collector for Ports {
    fn name(&self) -> &'static str {
        "ports"
    }

    fn every_s(&self) -> u32 {
        5
    }

    fn metrics(&self) -> Vec<Metric> {
        // Of several own addresses the one that has taken the most.
        let most = |states: &str| {
            let by_own = "{sub(/:[0-9]+$/, \"\", $COLUMN); n[$COLUMN]++} END {for (a in n) if (n[a] > m) m = n[a]; print m+0}";
            // With one state given ss leaves out its column.
            let column = if states.contains("time-wait") { "3" } else { "4" };
            format!("ss -tanH {states} dst INSTANCE | awk '{}'", by_own.replace("COLUMN", column))
        };
        let range = format!(
            "seq $(tr '\\t' ' ' < {RANGE}) | awk -v r=\"$(cat {RESERVED})\" 'BEGIN {{k = split(r, p, \",\"); for (i = 1; i \
             <= k; i++) {{split(p[i], e, \"-\"); if (e[2] == \"\") e[2] = e[1]; for (j = e[1]; j <= e[2]; j++) x[j]}}}} !($1 \
             in x)' | wc -l"
        );
        vec![
            on_change(gauge(AVAILABLE, RANGE, range)),
            on_change(gauge(REUSED, REUSE, format!("cat {REUSE}"))),
            gauge("ports.*.used_count", "sock_diag(7)", most("state connected")),
            gauge("ports.*.time_wait_count", "sock_diag(7)", most("state time-wait")),
        ]
    }

    fn read(&mut self, target: &Target) -> Reading {
        let place = match self.whereabouts.place(target) {
            Ok(place) => place,
            Err(why) => return Reading::failed(why),
        };
        let mut reading = Reading::default();
        match place.within(settings) {
            Ok((available, reuse)) => {
                reading.push_some(AVAILABLE, available.map(|count| count as f64));
                reading.push_some(REUSED, reuse.map(|mode| mode as f64));
            }
            Err(error) => {
                reading.lacks(AVAILABLE, io_error_text("read", RANGE, &error), "run webdyno as root")
            }
        }
        if let Err(error) = self.used(place, &mut reading) {
            let why = format!("the kernel does not list the sockets of the service: {error}");
            reading.lacks("ports.*.used_count", why, "run webdyno as root");
        }
        self.changes.only(reading, |name| [AVAILABLE, REUSED].contains(&name))
    }

    fn mark_undelivered(&mut self) {
        (self.changes, self.reported) = (Changes::default(), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn reserved_ports_are_not_available() {
        for (range, reserved, expected) in [
            ("32768\t60999\n", "\n", Some(28_232)),
            ("1000 1009", "1001,1005-1020", Some(4)),
            ("1000 1009", "1-5", Some(10)),
            ("1000 1009", "900-2000", Some(0)),
            ("1000", "", None),
            ("9 1", "", None),
            ("1000 1009", "x", None),
        ] {
            assert_eq!(available(range, reserved), expected, "{range} {reserved}");
        }
    }

    #[test]
    fn ports_to_one_place_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // More than any other test of this program has to one place.
        let clients: Vec<_> = (0..120).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut ports = Ports::default();
        let reading = ports.read(&Target::default());
        assert_eq!(reading.value(&format!("ports.{address}.used_count")), Some(120.0), "{reading:?}");
        assert_eq!(reading.value(&format!("ports.{address}.time_wait_count")), Some(0.0));
        assert!(reading.value(AVAILABLE).is_some_and(|count| count > 0.0));
        assert!(ports.read(&Target::default()).values.is_empty(), "nothing is new");
        drop(clients);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(range in "[0-9 x-]{0,30}", reserved in "[0-9,x-]{0,30}") {
            available(&range, &reserved);
        }
    }
}
