//! The TCP sockets of a network namespace, counted by state and by where they go. The kernel walks its whole table for
//! that, so it is asked rarely, and the rarer the longer it takes. Of the two states that there are thousands of it counts
//! the sockets itself, each second; of them only those are asked for that may have taken a local port.
//!
//! Facts: sock_diag(7). A local port is taken by a connection of any state, closed ones in TIME_WAIT included, for its
//! own address towards one address and port (ip(7), `ip_local_port_range`): connections to other ones may have the same.

use super::{Place, thread_cpu};
use crate::os::procfs;
use crate::os::sock_diag::{Query, TCP, connected, each, state, states};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A table is read at most so often, and at least so often. A load may last a few seconds only: each reading of the ports, every
/// five seconds, has a new one where that is cheap.
const EVERY_MIN: Duration = Duration::from_secs(4);
const EVERY_MAX: Duration = Duration::from_secs(120);

/// Time spent between two tables, for each time that reading one took: half a thousandth of a core.
const REST: u32 = 2_500;

/// Where connections go that are counted at most: a bound for clients that connect to everything.
const DESTINATIONS_MAX: usize = 50_000;

/// One count for each state of include/net/tcp_states.h.
const STATES_COUNT: usize = 16;

/// The sockets of one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    states: [u64; STATES_COUNT],
    /// By own address, and address and port of the other side: connections that began here.
    outgoing: HashMap<(IpAddr, SocketAddr), Used>,
}

/// Local ports that are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Used {
    /// By connections of any state.
    pub all: u64,
    /// By those of them that are closed and wait for time to pass.
    pub time_wait: u64,
}

impl Table {
    /// Reads the table of this thread's network namespace.
    fn read() -> io::Result<Self> {
        let mut listening = HashSet::new();
        let query = |states| Query { protocol: TCP, states, ..Query::default() };
        each(query(states([state::LISTEN])), |entry| {
            listening.insert(entry.own_port());
        })?;
        let mut table = Self::default();
        let many = states([state::ESTABLISHED, state::TIME_WAIT]);
        each(query(connected() & !many), |entry| {
            if let Some(count) = table.states.get_mut(usize::from(entry.state())) {
                *count += 1;
            }
            table.count(entry.state(), entry.own(), entry.peer(), &listening);
        })?;
        let text = procfs::read_text(LOCAL_PORTS).unwrap_or_default();
        each(Query { own_ports: range(&text), ..query(many) }, |entry| {
            if !listening.contains(&entry.own_port()) {
                table.count(entry.state(), entry.own(), entry.peer(), &listening);
            }
        })?;
        Ok(table)
    }

    fn count(&mut self, state: u8, own: (IpAddr, u16), peer: (IpAddr, u16), listening: &HashSet<u16>) {
        // What came in has the port of a listener, and takes none of the local ones.
        if listening.contains(&own.1) {
            return;
        }
        let key = (own.0.to_canonical(), SocketAddr::new(peer.0.to_canonical(), peer.1));
        if self.outgoing.len() >= DESTINATIONS_MAX && !self.outgoing.contains_key(&key) {
            return;
        }
        let used = self.outgoing.entry(key).or_default();
        used.all += 1;
        used.time_wait += u64::from(state == state::TIME_WAIT);
    }

    /// How many sockets are in a state that is neither ESTABLISHED nor TIME_WAIT.
    pub fn in_state(&self, state: u8) -> u64 {
        self.states.get(usize::from(state)).copied().unwrap_or_default()
    }

    /// The addresses and ports to which the most local ports are taken, at least `from_count` of them; of several own
    /// addresses the one that has taken the most counts.
    pub fn busiest(&self, from_count: u64, places: usize) -> Vec<(SocketAddr, Used)> {
        let mut by_peer: HashMap<SocketAddr, Used> = HashMap::new();
        for (&(_, peer), &used) in self.outgoing.iter().filter(|(_, used)| used.all >= from_count) {
            let known = by_peer.entry(peer).or_default();
            *known = used.max(*known);
        }
        let mut all: Vec<_> = by_peer.into_iter().collect();
        all.sort_by_key(|&(peer, used)| (std::cmp::Reverse(used), peer));
        all.truncate(places);
        all
    }
}

/// The first and the last of the local ports.
pub(crate) const LOCAL_PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";

pub(crate) fn range(text: &str) -> Option<(u16, u16)> {
    let mut ends = text.split_ascii_whitespace().map(|word| word.parse::<u16>().ok());
    let (first, last) = (ends.next()??, ends.next()??);
    (first <= last).then_some((first, last))
}

/// The latest table, and when the next one is due.
#[derive(Debug, Default)]
pub(crate) struct Recent(Option<Read>);

#[derive(Debug)]
struct Read {
    place: Place,
    table: Arc<Table>,
    due: Instant,
}

impl Recent {
    /// The table of a namespace: the latest one, or a new one when that is due.
    pub fn of(&mut self, place: Place) -> io::Result<Arc<Table>> {
        let begin = Instant::now();
        if let Some(read) = self.0.as_ref().filter(|read| read.place == place && begin < read.due) {
            return Ok(Arc::clone(&read.table));
        }
        let before = thread_cpu();
        let table = Arc::new(place.within(Table::read)?);
        let took = thread_cpu().saturating_sub(before);
        let rest = took.saturating_mul(REST).clamp(EVERY_MIN, EVERY_MAX);
        self.0 = Some(Read { place, table: Arc::clone(&table), due: begin + rest });
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn end(text: &str) -> (IpAddr, u16) {
        let address: SocketAddr = text.parse().unwrap();
        (address.ip(), address.port())
    }

    #[test]
    fn ports_are_counted_for_each_destination_and_own_address() {
        let mut table = Table::default();
        let listening = HashSet::from([80]);
        for (state, own, peer) in [
            (state::ESTABLISHED, "10.0.0.1:80", "10.0.0.9:999"),
            (state::ESTABLISHED, "10.0.0.1:40000", "10.0.0.2:3306"),
            (state::TIME_WAIT, "10.0.0.1:40001", "10.0.0.2:3306"),
            (state::TIME_WAIT, "[::ffff:10.0.0.1]:40002", "[::ffff:10.0.0.2]:3306"),
            // Another own address has ports of its own.
            (state::TIME_WAIT, "10.0.0.3:40001", "10.0.0.2:3306"),
            (state::ESTABLISHED, "10.0.0.1:40003", "10.0.0.2:3307"),
        ] {
            table.count(state, end(own), end(peer), &listening);
        }
        let database = "10.0.0.2:3306".parse().unwrap();
        let other = "10.0.0.2:3307".parse().unwrap();
        let (most, one) = (Used { all: 3, time_wait: 2 }, Used { all: 1, time_wait: 0 });
        assert_eq!(table.busiest(1, 9), [(database, most), (other, one)]);
        assert_eq!(table.busiest(2, 9), [(database, most)]);
        assert_eq!(table.busiest(1, 1), [(database, most)]);
        assert_eq!(table.in_state(99), 0);
    }

    #[test]
    fn a_real_table_is_read_and_kept_for_a_while() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut recent = Recent::default();
        let table = recent.of(Place::Own).unwrap();
        let used = table.busiest(1, usize::MAX).into_iter().find(|(peer, _)| *peer == address);
        assert_eq!(used, Some((address, Used { all: 40, time_wait: 0 })));
        assert!(Arc::ptr_eq(&table, &recent.of(Place::Own).unwrap()));
        assert!(recent.of(Place::Of(u32::MAX)).is_err(), "nobody's namespace is not ours");
        drop(clients);
    }
}
