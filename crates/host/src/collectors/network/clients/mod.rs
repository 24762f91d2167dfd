//! Whose the connections of the port under load are: the load generator's, the service's own, or those of others.
//!
//! Facts: sock_diag(7), proc_pid_fd(5). When the generator runs on this machine both ends of its connections are
//! sockets here, and the client's end has an inode that is among the generator's descriptors. The same holds for this
//! program's own requests (status page, probes) and for a service that is its own client (a proxy to itself, Apache's
//! `internal dummy connection`). A connection counts when both ends were open before the descriptors were read and
//! still are after that: its descriptor was there all the time, so ours is never taken for somebody else's, whatever
//! the rate of new connections. What opens and closes within these few milliseconds is not seen.
//!
//! Of each connection the kernel tells what was sent and not yet confirmed (`idiag_wqueue`): of slow clients that is never
//! nothing while an answer lasts, and a worker waits for it once the connection's send buffer is full.
//!
//! And it tells when something was sent and received last: a connection on which nothing was asked since the last answer is idle,
//! and whoever holds it waits for its client. Where both were within one tick of the kernel's clock (1 to 10 ms) the order is not
//! known: an answer that took less, or a client that asked again that quickly. A server of TLS sends its session tickets after the
//! request has come: what waits for its first answer looks idle then. One that was used again was idle.
//!
//! How long packets take to a client and back tells a path on which they queue ([`round_trips`]).
//!
//! A request of which more has come within the last seconds, and which is not answered, is one whose client sends it slowly ([`uploads`]).
//!
//! Connections that the client has closed already are told apart: they are what a load that ended has left behind.
//! Where there are thousands of connections a reading takes tens of milliseconds, and is made now and then only: the
//! readings in between are empty. As long as there are a few hundred they have what the server's ends alone tell: all of it, where
//! the clients are on other machines, else slow uploads.
//!
//! A generator on another machine cannot be told from other clients; then only the sum is known, and it is that of
//! others as long as no load of ours runs.

mod round_trips;
mod uploads;

use self::round_trips::{RoundTrip, RoundTrips};
use self::uploads::Uploads;
use crate::collectors::network::{Place, Whereabouts, rest_after, thread_cpu};
use crate::collectors::{Collector, Metric, Reading, Target, gauge, io_error_text};
use crate::os::procfs;
use crate::os::sockets::netlink::{self, End};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

/// Processes of the service whose descriptors are read at most, should one of them be a client of its own port.
const SERVICE_PROCESSES_MAX: usize = 512;

/// So many connections are listed in a fraction of a millisecond.
const FEW: f64 = 500.0;
/// No longer is the rest after these, for two thousandths of a core: a load of a few seconds shall see them at least once.
const FEW_REST_MAX: Duration = Duration::from_secs(3);
const FEW_REST: u32 = 500;

/// This program asks one thing at a time: more clients here are somebody else's, who came since they were last looked for.
const OWN_MAX: usize = 1;

/// The collector.
#[derive(Debug, Default)]
pub struct Clients {
    whereabouts: Whereabouts,
    /// The port that was read last, and until when nothing is read of it.
    rests: Option<(u16, Instant)>,
    uploads: Uploads,
    round_trips: RoundTrips,
    /// The bytes that had come in on those that were idle at the last reading, by their cookies.
    idle_bytes: HashMap<[u8; 8], u64>,
    are_few: bool,
    /// Whether no client but this program was on this machine.
    are_remote: bool,
}

impl Clients {
    /// Reads, unless there are so many connections that this takes long: then now and then.
    fn read_port(&mut self, port: u16, target: &Target) -> Reading {
        let (begin, before) = (Instant::now(), thread_cpu());
        if self.rests.is_some_and(|(known, until)| known == port && begin < until) {
            return self.read_between(port);
        }
        let reading = self.read_all(port, target).unwrap_or_else(Reading::failed);
        self.are_few = reading.value("clients.connections_count").is_some_and(|count| count <= FEW);
        let rest = pause_after(thread_cpu().saturating_sub(before), self.are_few);
        self.rests = rest.map(|rest| (port, begin + rest));
        reading
    }

    /// Reads whose connections there are. What this program asks of the service is nobody's traffic.
    fn read_all(&mut self, port: u16, target: &Target) -> Result<Reading, String> {
        let agent_pid = std::process::id();
        let mut seen = PortConnections::at(port, agent_pid, target.client_pid, None)?;
        // It rarely comes to that, and reading the descriptors of hundreds of workers takes its time.
        if target.service_pid.is_some() && seen.has_other_local_clients() {
            seen = PortConnections::at(port, agent_pid, target.client_pid, target.service_pid)?;
        }
        let is_here = |connection: &Connection| connection.client_inode.is_some();
        self.are_remote = !matches!(seen.others, Some(Err(_))) && !seen.all.iter().any(is_here);
        Ok(self.reading_of(seen))
    }

    fn reading_of(&mut self, seen: PortConnections) -> Reading {
        let mut reading = Reading::default();
        reading.push("clients.connections_count", seen.all.len() as f64);
        let sending = seen.all.iter().filter(|connection| connection.sending).count();
        reading.push("clients.sending_count", sending as f64);
        let count = |state| seen.all.iter().filter(|connection| connection.request == state).count() as f64;
        reading.push("clients.idle_count", count(RequestState::Idle));
        reading.push("clients.owed_count", count(RequestState::Owed));
        reading.push("clients.unsure_count", count(RequestState::Unsure));
        reading.push_some("clients.used_again_count", self.used_again(&seen.all).map(|count| count as f64));
        let progress = seen.all.iter().filter_map(|connection| Some((connection.cookie, connection.bytes?)));
        reading.push_some(
            "clients.receiving_count",
            self.uploads.count(progress, Instant::now()).map(|count| count as f64),
        );
        let round_trips = self.round_trips.median_us(seen.all.iter().filter_map(|one| one.round_trip));
        reading.push_some("clients.round_trip_us", round_trips.map(|(now_us, _)| now_us));
        reading.push_some("clients.round_trip_min_us", round_trips.map(|(_, shortest_us)| shortest_us));
        reading.push("clients.left_count", seen.left_count as f64);
        match seen.others {
            Some(Ok(others)) => reading.push("clients.others_count", others.len() as f64),
            Some(Err(why)) => reading.problem(why),
            None => {}
        }
        reading
    }

    /// How many of those that were idle at the last reading have been asked on since; `None` where none was.
    fn used_again(&mut self, all: &[Connection]) -> Option<usize> {
        let idle = all.iter().filter(|connection| connection.request == RequestState::Idle);
        let idle = idle.filter_map(|connection| Some((connection.cookie, connection.received_bytes?)));
        let before = std::mem::replace(&mut self.idle_bytes, idle.collect());
        let has_more = |connection: &&Connection| {
            let bytes = before.get(&connection.cookie).zip(connection.received_bytes);
            bytes.is_some_and(|(then, now)| now > *then)
        };
        (!before.is_empty()).then(|| all.iter().filter(has_more).count())
    }

    /// What changes from second to second and is cheap, as long as there are few connections: the server's ends, and nobody's descriptors.
    fn read_between(&mut self, port: u16) -> Reading {
        let ends = self.are_few.then(|| netlink::server_ends(port).ok()).flatten();
        ends.map_or_else(Reading::default, |ends| self.reading_between(ends))
    }

    fn reading_between(&mut self, servers: Vec<End>) -> Reading {
        let here_count = servers.iter().filter(|end| end.open && is_here(end)).count();
        if self.are_remote && here_count <= OWN_MAX {
            return self.reading_of(PortConnections::of_remote(servers));
        }
        let mut reading = Reading::default();
        let unanswered = servers
            .iter()
            .filter(|end| end.open)
            .filter_map(|end| Some((end.cookie, unanswered_bytes(end)?)));
        reading.push_some(
            "clients.receiving_count",
            self.uploads.count(unanswered, Instant::now()).map(|count| count as f64),
        );
        reading
    }
}

/// For how long nothing is read after a reading that took so long, of few connections or of many.
fn pause_after(took: Duration, are_few: bool) -> Option<Duration> {
    let longest = if are_few { FEW_REST_MAX.max(took * FEW_REST) } else { Duration::MAX };
    rest_after(took).map(|rest| rest.min(longest))
}

/// The bytes of a connection that was accepted, and on which a request is not answered.
fn unanswered_bytes(end: &End) -> Option<(u64, u64)> {
    end.bytes.filter(|_| end.inode != 0 && end.owes_answer == Some(true))
}

/// The ends of all connections at one time.
struct ConnectionEnds {
    servers: Vec<End>,
    clients: Vec<End>,
}

impl ConnectionEnds {
    fn at(port: u16) -> Result<Self, String> {
        let refused = |error: io::Error| format!("netlink does not tell the connections: {error}");
        Ok(Self {
            servers: netlink::server_ends(port).map_err(refused)?,
            clients: netlink::client_ends(port).map_err(refused)?,
        })
    }
}

/// Whether a request waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestState {
    Idle,
    Owed,
    /// The last that came and the last that was sent were within one tick of the kernel's clock.
    Unsure,
    /// It was not accepted, or its client takes an answer, or the kernel does not tell.
    Unknown,
}

impl RequestState {
    fn of(end: &End) -> Self {
        match end.owes_answer {
            _ if end.inode == 0 || end.sending => Self::Unknown,
            Some(true) => Self::Owed,
            Some(false) => Self::Idle,
            None => Self::Unsure,
        }
    }
}

/// An open connection, from the server's end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Connection {
    cookie: [u8; 8],
    /// The inode of the client's end, when that is a socket of this machine.
    client_inode: Option<u64>,
    /// Whether its client has not taken all that was sent.
    sending: bool,
    /// Of one that was accepted: whether nothing is asked on it.
    request: RequestState,
    /// The bytes that came in and that were sent and confirmed, while it was accepted and a request on it is not answered.
    bytes: Option<(u64, u64)>,
    /// All that came in.
    received_bytes: Option<u64>,
    /// Of a client on another machine: the others have no path to it.
    round_trip: Option<RoundTrip>,
}

/// Whether its client is on this machine.
fn is_here(end: &End) -> bool {
    end.peer.0.is_loopback() || end.peer.0 == end.own.0
}

/// The connections that were open from the first look to the second one.
fn open_throughout(first: &ConnectionEnds, second: &ConnectionEnds) -> Vec<Connection> {
    let cookies = |ends: &[End]| -> HashSet<[u8; 8]> {
        ends.iter().filter(|end| end.open).map(|end| end.cookie).collect()
    };
    let (servers_then, clients_then) = (cookies(&second.servers), cookies(&second.clients));
    let clients = first.clients.iter().filter(|end| clients_then.contains(&end.cookie));
    let inodes: HashMap<_, u64> = clients.map(|end| ((end.peer, end.own), end.inode)).collect();
    let servers = first.servers.iter().filter(|end| servers_then.contains(&end.cookie));
    let connection = |end: &End| {
        let client_inode = inodes.get(&(end.own, end.peer)).copied();
        // A client here whose end is gone has closed it, and the server's end has not heard of it yet.
        let is_here = is_here(end);
        (client_inode.is_some() || !is_here).then_some(Connection {
            cookie: end.cookie,
            client_inode,
            sending: end.sending,
            request: RequestState::of(end),
            bytes: unanswered_bytes(end),
            received_bytes: end.bytes.map(|(received, _)| received),
            round_trip: end
                .round_trip_us
                .filter(|_| !is_here)
                .map(|(smoothed, shortest)| (end.peer.0, smoothed, shortest)),
        })
    };
    servers.filter(|end| end.open).filter_map(connection).collect()
}

/// Leaves out the connections whose client's end is one of these sockets.
fn without(connections: &[Connection], inodes: &BTreeSet<u64>) -> Vec<Connection> {
    let is_other =
        |connection: &&Connection| connection.client_inode.is_none_or(|inode| !inodes.contains(&inode));
    connections.iter().filter(is_other).cloned().collect()
}

fn inodes(pid: u32) -> Result<BTreeSet<u64>, String> {
    let inodes = procfs::socket_inodes(pid);
    inodes.map(BTreeSet::from_iter).map_err(|error| io_error_text("read", &format!("/proc/{pid}/fd"), &error))
}

/// The sockets of a service's processes, as far as they may be looked into.
fn service_inodes(main_pid: u32) -> BTreeSet<u64> {
    let processes = procfs::tree_of(main_pid).into_iter().take(SERVICE_PROCESSES_MAX);
    processes.filter_map(|pid| inodes(pid).ok()).flatten().collect()
}

/// What was seen of a port.
struct PortConnections {
    /// The connections that are not the agent's nor, if it was asked, the service's own.
    all: Vec<Connection>,
    /// Those of them that are not the generator's either; an error when its descriptors cannot be read, `None` when it
    /// is not on this machine.
    others: Option<Result<Vec<Connection>, String>>,
    left_count: usize,
}

impl PortConnections {
    /// A look, then whose sockets are whose, then a second look if need be. `service_pid` is given when the service's are asked for.
    fn at(
        port: u16,
        agent_pid: u32,
        client_pid: Option<u32>,
        service_pid: Option<u32>,
    ) -> Result<Self, String> {
        let first = ConnectionEnds::at(port)?;
        let mut own = inodes(agent_pid)?;
        own.extend(service_pid.into_iter().flat_map(service_inodes));
        let generator = client_pid.map(inodes);
        let mut connections = open_throughout(&first, &first);
        let ours = match &generator {
            Some(Ok(generator)) => own.union(generator).copied().collect(),
            _ => own.clone(),
        };
        // Whose descriptor was there after the first look was open until then: only of the others it has to be seen.
        if !without(&connections, &ours).is_empty() {
            connections = open_throughout(&first, &ConnectionEnds::at(port)?);
        }
        let all = without(&connections, &own);
        let others = generator.map(|known| known.map(|generator| without(&all, &generator)));
        let left_count = first.servers.iter().filter(|end| !end.open).count();
        Ok(Self { all, others, left_count })
    }

    /// Of clients on other machines: those here are this program's own requests. Whether the generator came in since its sockets were
    /// looked for is not asked.
    fn of_remote(servers: Vec<End>) -> Self {
        let left_count = servers.iter().filter(|end| !end.open).count();
        let look = ConnectionEnds { servers, clients: vec![] };
        Self { all: open_throughout(&look, &look), others: None, left_count }
    }

    /// Whether a client on this machine is not known.
    fn has_other_local_clients(&self) -> bool {
        let strangers = match &self.others {
            Some(Ok(others)) => others,
            _ => &self.all,
        };
        strangers.iter().any(|connection| connection.client_inode.is_some())
    }
}

impl Collector for Clients {
    fn name(&self) -> &'static str {
        "clients"
    }

    fn metrics(&self) -> Vec<Metric> {
        const SOURCE: &str = "sock_diag(7)";
        const INFO: &str = "sock_diag(7), tcp_info";
        let server_ends = |state: &str| format!("ss -tnH state {state} 'sport = :PORT' | wc -l");
        let all = server_ends("established");
        // Milliseconds since something was sent, and since something came.
        let last = |sent: &str| {
            format!(
                "ss -tniH state established 'sport = :PORT' | grep -o 'lastsnd:[0-9]* lastrcv:[0-9]*' | tr ':' ' ' | awk '$2 {sent} $4 {{n++}} END {{print n + 0}}'"
            )
        };
        // In milliseconds, of what sent something lately. Of each connection its own shortest one is told, and those of clients here count.
        let median = |place: u32| {
            format!(
                "ss -tniH state established 'sport = :PORT' | awk '{{r = m = l = 0; for (i = 1; i <= NF; i++) {{split($i, f, \":\"); if (f[1] == \"rtt\") r = f[2] + 0; if (f[1] == \"minrtt\") m = f[2] + 0; if (f[1] == \"lastsnd\") l = f[2] + 0}} if (r && m && l <= 5000) print r / m, 1000 * r, 1000 * m}}' | sort -n | awk '{{v[NR] = ${place}}} END {{if (NR) print v[int((NR + 1) / 2)]}}'"
            )
        };
        // Without those that a webdyno on this machine holds.
        let ours = "ss -tnpH state established 'dport = :PORT' | grep -c '\"webdyno\"'";
        let others = format!("echo $(( $({all}) - $({ours}) ))");
        vec![
            gauge("clients.connections_count", SOURCE, all),
            gauge(
                "clients.sending_count",
                SOURCE,
                // Without the column of states the second one is Send-Q.
                "ss -tnH state established 'sport = :PORT' | awk '$2>0' | wc -l",
            ),
            gauge("clients.idle_count", INFO, last("<")),
            gauge("clients.owed_count", INFO, last(">")),
            gauge("clients.unsure_count", INFO, last("==")),
            gauge(
                "clients.used_again_count",
                INFO,
                "idle() { ss -tniH state established 'sport = :PORT' | awk '/^[^ \\t]/ {peer = $4} /lastsnd/ {split($0, s, \"lastsnd:\"); split($0, r, \"lastrcv:\"); split($0, b, \"bytes_received:\"); if (all || s[2] + 0 < r[2] + 0) print peer, b[2] + 0}' all=$1; }; a=$(idle 0 | tr '\\n' ' '); sleep 1; idle 1 | awk -v a=\"$a\" 'BEGIN {n = split(a, f); for (i = 1; i < n; i += 2) was[f[i]] = f[i + 1]} ($1 in was) && $2 > was[$1] {c++} END {print c + 0}'",
            ),
            gauge(
                "clients.receiving_count",
                INFO,
                "a=$(ss -tniH state established 'sport = :PORT' | grep -o 'bytes_received:[0-9]*' | sort); sleep 4; ss -tniH state established 'sport = :PORT' | grep -o 'bytes_received:[0-9]*' | grep -vxcF \"$a\"",
            ),
            gauge("clients.round_trip_us", INFO, median(2)),
            gauge("clients.round_trip_min_us", INFO, median(3)),
            gauge("clients.left_count", SOURCE, server_ends("close-wait")),
            gauge("clients.others_count", "sock_diag(7), /proc/PID/fd", others),
        ]
    }

    fn read(&mut self, target: &Target) -> Reading {
        let Some(port) = target.port else {
            return Reading::without_service(self.name(), target);
        };
        match self.whereabouts.place(target) {
            Ok(Place::Own) => self.read_port(port, target),
            Ok(Place::Of(_)) => {
                // Seen from in there the load generator's connections are anybody's.
                let mut reading = Reading::default();
                let why = "the service is in another network namespace, where clients cannot be told apart";
                reading.lacks(
                    "clients",
                    why,
                    "run the agent in there: --server exec:'ip netns exec NAME webdyno agent'",
                );
                reading
            }
            Err(why) => Reading::failed(why),
        }
    }
}

#[cfg(test)]
mod tests;
