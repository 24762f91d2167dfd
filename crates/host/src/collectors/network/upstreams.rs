//! The servers that the service and what is behind it have connections to, by address: how many are open, and on how many of
//! them something was asked that is not answered, and how long ago. A server on another machine has no queue that could be seen; how many
//! requests are there at once, by the rate, is how long each of them takes (Little's law). On kept connections the next question may
//! follow an answer within one tick of the kernel's clock, as a quick answer follows a question: these are told apart, as unsure.
//! So are connections that were begun and that nobody confirmed yet (SYN-SENT): a server that is gone answers none.
//!
//! Facts: sock_diag(7), ip(7) (`ip_local_port_range`): a connection that began here has a port of that range. Those of all
//! programs in the service's network namespace are counted: which of them are in its chain, the topology tells. Where there are
//! thousands of connections a reading takes tens of milliseconds and is made now and then only: the readings in between are
//! empty.

use crate::collectors::network::socket_table::{LOCAL_PORTS, range};
use crate::collectors::network::{Place, Whereabouts, rest_after, thread_cpu};
use crate::collectors::{Collector, Metric, Reading, Target, gauge};
use crate::os::machine;
use crate::os::procfs;
use crate::os::sock_diag::{Query, TCP, each, state, states};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

/// Servers that are told one by one: those that most is asked of.
const SERVERS_MAX: usize = 6;
/// Servers that are told in all, as others come to be asked most: those of before a load are not those of its requests.
const TOLD_MAX: usize = 24;
/// Servers that are counted at most: a bound for clients that connect to everything.
const COUNTED_MAX: usize = 10_000;

const ALL: &str = "upstreams.connections_count";

/// Connections to one server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Open {
    all: u64,
    waiting: u64,
    unsure: u64,
    /// Begun, and not confirmed by the server; not among `all`.
    connecting: u64,
    /// The time for which those have waited so far, together.
    waited_ms: u64,
}

/// The collector.
#[derive(Debug, Default)]
pub struct Upstreams {
    whereabouts: Whereabouts,
    rests_until: Option<Instant>,
    /// Servers that were told: as zero when there are no connections any more.
    known: BTreeSet<SocketAddr>,
}

/// The connections that began in this thread's network namespace, by server. Those to the port under load are its clients'. A
/// server may listen on a port of the range that clients have: its ends of connections were connected to, and did not connect.
fn connections(port: Option<u16>) -> io::Result<HashMap<SocketAddr, Open>> {
    let own_ports = range(&procfs::read_text(LOCAL_PORTS).unwrap_or_default());
    let mut listened: HashSet<u16> = HashSet::new();
    let listening = Query { protocol: TCP, states: states([state::LISTEN]), own_ports, ..Query::default() };
    each(listening, |entry| {
        listened.insert(entry.own().1);
    })?;
    let states = states([state::ESTABLISHED, state::SYN_SENT]);
    let mut found: HashMap<SocketAddr, Open> = HashMap::new();
    each(Query { protocol: TCP, states, own_ports, with_info: true, ..Query::default() }, |entry| {
        let (address, peer_port) = entry.peer();
        let is_client = port == Some(peer_port) && (address == entry.own().0 || address.is_loopback());
        let server = SocketAddr::new(address.to_canonical(), peer_port);
        let is_accepted = listened.contains(&entry.own().1);
        if is_client || is_accepted || (found.len() >= COUNTED_MAX && !found.contains_key(&server)) {
            return;
        }
        let open = found.entry(server).or_default();
        if entry.state() == state::SYN_SENT {
            open.connecting += 1;
            return;
        }
        open.all += 1;
        open.waiting += u64::from(entry.awaits_answer() == Some(true));
        open.unsure += u64::from(entry.awaits_answer().is_none());
        open.waited_ms += u64::from(entry.waited_ms().unwrap_or(0));
    })?;
    Ok(found)
}

/// Whether the port is one of a client: then this end was connected to, and has such a port by chance.
fn is_client_port(server: &SocketAddr, own: Option<(u16, u16)>) -> bool {
    own.is_some_and(|(first, last)| (first..=last).contains(&server.port())) && !machine::owns(server.ip())
}

impl Upstreams {
    /// The servers to tell: those told before, and those that most is asked of.
    fn reported_servers(&mut self, found: &HashMap<SocketAddr, Open>) -> Vec<(SocketAddr, Open)> {
        let own = range(&procfs::read_text(LOCAL_PORTS).unwrap_or_default());
        let mut all: Vec<_> = found.iter().filter(|(server, _)| !is_client_port(server, own)).collect();
        all.sort_by_key(|(server, open)| (std::cmp::Reverse((open.all + open.connecting, **open)), **server));
        for (server, _) in all.into_iter().take(SERVERS_MAX) {
            if self.known.len() < TOLD_MAX {
                self.known.insert(*server);
            }
        }
        self.known.iter().map(|server| (*server, found.get(server).copied().unwrap_or_default())).collect()
    }
}

impl Collector for Upstreams {
    fn name(&self) -> &'static str {
        "upstreams"
    }

    fn metrics(&self) -> Vec<Metric> {
        const SOURCE: &str = "sock_diag(7), tcp_info";
        let open = "ss -tnH state established dst INSTANCE";
        // In milliseconds since something was sent and received.
        let each = |awk: &str| {
            format!(
                "ss -tniH state established dst INSTANCE | tr '\\n' ' ' | sed 's/ESTAB/\\n/g' | grep -o 'lastsnd:[0-9]* lastrcv:[0-9]*' | tr ':' ' ' | awk '{awk}'"
            )
        };
        let waiting = |sent: &str| each(&format!("$2 {sent} $4 {{n++}} END {{print n + 0}}"));
        let waited = each("$2 < $4 {n++; t += $2} END {if (n) print 1000 * t / n}");
        vec![
            gauge(ALL, SOURCE, "ss -tnH state established '( sport >= :32768 )' | wc -l"),
            gauge("upstreams.*.connections_count", SOURCE, format!("{open} | wc -l")),
            gauge("upstreams.*.waiting_count", SOURCE, waiting("<")),
            gauge("upstreams.*.unsure_count", SOURCE, waiting("==")),
            gauge("upstreams.*.connecting_count", SOURCE, "ss -tnH state syn-sent dst INSTANCE | wc -l"),
            gauge("upstreams.*.waited_us", SOURCE, waited),
        ]
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let (begin, before) = (Instant::now(), thread_cpu());
        if self.rests_until.is_some_and(|until| begin < until) {
            return reading;
        }
        let place: Place = match self.whereabouts.place(target) {
            Ok(place) => place,
            Err(why) => return Reading::failed(why),
        };
        let found = match place.within(|| connections(target.port)) {
            Ok(found) => found,
            Err(error) => {
                let why = format!("the kernel does not list the connections of the service: {error}");
                reading.lacks("upstreams", why, "run webdyno as root");
                return reading;
            }
        };
        reading.push(ALL, found.values().map(|open| open.all).sum::<u64>() as f64);
        for (server, open) in self.reported_servers(&found) {
            reading.push(format!("upstreams.{server}.connections_count"), open.all as f64);
            reading.push(format!("upstreams.{server}.waiting_count"), open.waiting as f64);
            reading.push(format!("upstreams.{server}.unsure_count"), open.unsure as f64);
            reading.push(format!("upstreams.{server}.connecting_count"), open.connecting as f64);
            if open.waiting > 0 {
                let waited_us = 1e3 * open.waited_ms as f64 / open.waiting as f64;
                reading.push(format!("upstreams.{server}.waited_us"), waited_us);
            }
        }
        self.rests_until = rest_after(thread_cpu().saturating_sub(before)).map(|rest| begin + rest);
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn connections_that_nobody_confirms_are_told_apart() {
        // Of a listener that accepts nobody the kernel takes in one more than its queue has room for, and drops what comes then.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let server = listener.local_addr().unwrap();
        let connect = || {
            let client =
                rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None)
                    .unwrap();
            rustix::io::ioctl_fionbio(&client, true).unwrap();
            let _ = rustix::net::connect(&client, &server);
            client
        };
        let clients: Vec<_> = (0..4).map(|_| connect()).collect();
        let found = connections(None).unwrap()[&server];
        assert_eq!((found.all, found.connecting), (1, 3), "of {}", clients.len());
    }

    #[test]
    fn connections_that_wait_for_an_answer_are_told_by_server_and_none_later() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let mut clients: Vec<_> = (0..40).map(|_| TcpStream::connect(server).unwrap()).collect();
        let (accepted, client) = listener.accept().unwrap();
        for client in clients.iter_mut().take(30) {
            client.write_all(b"?").unwrap();
        }
        std::thread::sleep(Duration::from_millis(30));
        let mut upstreams = Upstreams { known: BTreeSet::from([server]), ..Upstreams::default() };
        let mut read = || {
            upstreams.rests_until = None;
            upstreams.read(&Target::default())
        };
        let told = |reading: &Reading| {
            ["connections", "waiting"].map(|what| reading.value(&format!("upstreams.{server}.{what}_count")))
        };
        let waited_us = |reading: &Reading| reading.value(&format!("upstreams.{server}.waited_us"));
        let waiting = read();
        assert_eq!(told(&waiting), [Some(40.0), Some(30.0)]);
        assert!(waited_us(&waiting).is_some_and(|us| (20_000.0..5e6).contains(&us)), "{waiting:?}");
        let found = connections(None).unwrap();
        assert!(!found.contains_key(&client), "a server on a port that clients have connects to nobody");
        drop((clients, accepted));
        let later = read();
        assert_eq!((told(&later), waited_us(&later)), ([Some(0.0), Some(0.0)], None));
        let found = connections(Some(server.port())).unwrap();
        assert!(!found.contains_key(&server), "clients of the port are no upstreams");
    }

    #[test]
    fn a_server_that_is_asked_later_is_told_too() {
        let server = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let open = |all| Open { all, ..Open::default() };
        let mut upstreams = Upstreams::default();
        let mut found: HashMap<_, _> = (1..=9).map(|port| (server(port), open(1))).collect();
        assert_eq!(upstreams.reported_servers(&found).len(), SERVERS_MAX);
        found.insert(server(3306), open(40));
        let told = upstreams.reported_servers(&found);
        assert!(told.contains(&(server(3306), open(40))), "{told:?}");
        for port in 10_000..10_100 {
            upstreams.reported_servers(&HashMap::from([(server(port), open(1))]));
        }
        assert_eq!(upstreams.known.len(), TOLD_MAX);
    }

    #[test]
    fn who_connected_from_another_machine_is_no_server() {
        let own = Some((32_768, 60_999));
        for (server, is_client) in
            [("203.0.113.9:40000", true), ("203.0.113.9:3306", false), ("127.0.0.1:40000", false)]
        {
            assert_eq!(is_client_port(&server.parse().unwrap(), own), is_client, "{server}");
        }
    }
}
