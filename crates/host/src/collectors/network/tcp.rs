//! All counters that the kernel keeps of TCP, IP and UDP, by the names that `nstat` has for them: what a rule of today
//! does not ask for may be what explains a run.
//!
//! Facts: Documentation/networking/snmp_counter.rst, proc_pid_net(5). They are of the service's network namespace, and
//! most of them never move: readings leave out what is unchanged.

use super::sockets::by_nstat;
use crate::collectors::network::{Shared, Whereabouts};
use crate::collectors::on_change::{Changes, on_change};
use crate::collectors::{Collector, Metric, Reading, Target, counter};

/// The collector.
#[derive(Debug, Default)]
pub struct Tcp {
    whereabouts: Whereabouts,
    shared: Shared,
    changes: Changes,
}

impl Tcp {
    pub(crate) fn sharing(shared: Shared) -> Self {
        Self { shared, ..Self::default() }
    }
}

impl Collector for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn metrics(&self) -> Vec<Metric> {
        let source = "/proc/net/netstat and /proc/net/snmp";
        vec![on_change(counter("tcp.*.count", source, by_nstat("INSTANCE")))]
    }

    fn read(&mut self, target: &Target) -> Reading {
        let place = match self.whereabouts.place(target) {
            Ok(place) => place,
            Err(why) => return Reading::failed(why),
        };
        let counters = self.shared.lock().counters.of(&place.net());
        let mut reading = Reading::default();
        counters.problems.iter().for_each(|why| reading.problem(why));
        for counter in counters.all.iter().filter(|counter| !counter.is_level) {
            // A total below zero is none.
            let total = u64::try_from(counter.value).ok();
            reading.push_some(format!("tcp.{}.count", counter.name), total.map(|total| total as f64));
        }
        self.changes.only(reading, |_| true)
    }

    fn mark_undelivered(&mut self) {
        self.changes = Changes::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_moves_is_told_and_the_rest_is_left_out() {
        let mut tcp = Tcp::default();
        let first = tcp.read(&Target::default());
        let opens = first.value("tcp.TcpPassiveOpens.count").unwrap();
        assert!(first.values.len() > 100 && first.error.is_none(), "{first:?}");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // The reading of the turn before serves for half a second.
        std::thread::sleep(std::time::Duration::from_millis(550));
        let second = tcp.read(&Target::default());
        assert!(second.value("tcp.TcpPassiveOpens.count").unwrap() > opens);
        assert!(second.values.len() < first.values.len() / 2, "{second:?}");
    }
}
