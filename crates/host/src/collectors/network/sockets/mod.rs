//! The sockets of the port under load: its accept queue, and the counters of what TCP refused, dropped or repeated.
//!
//! Facts: sock_diag(7) (for listening sockets `idiag_rqueue` is the accept queue now and `idiag_wqueue` its limit),
//! proc_pid_net(5), Documentation/networking/proc_net_tcp.rst (listening sockets come first), and
//! Documentation/networking/snmp_counter.rst for netstat and snmp; nf_conntrack-sysctl.rst and ip-sysctl.rst for the sizes
//! of tables.
//!
//! A service in another network namespace is seen through `/proc/PID/net`, and through netlink from inside of it. Who may
//! not enter it does not know the limit of the queue, as only netlink tells it.

use crate::collectors::network::socket_table::Table;
use crate::collectors::network::{Place, Shared, Whereabouts};
use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge, io_error_text};
use crate::os::procfs;
use crate::os::sock_diag::{self, Query};
use crate::os::sockets::{ListenSocket, listening};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

mod queues;

/// Metric, group of lines, field of `/proc/net/netstat` and `/proc/net/snmp`.
const COUNTERS: [(&str, &str, &str); 8] = [
    ("sockets.listen_overflows_count", "TcpExt", "ListenOverflows"),
    ("sockets.listen_drops_count", "TcpExt", "ListenDrops"),
    ("sockets.syn_queue_drops_count", "TcpExt", "TCPReqQFullDrop"),
    ("sockets.syn_cookies_count", "TcpExt", "TCPReqQFullDoCookies"),
    ("sockets.time_wait_overflows_count", "TcpExt", "TCPTimeWaitOverflow"),
    ("sockets.aborts_on_memory_count", "TcpExt", "TCPAbortOnMemory"),
    ("sockets.retransmits_count", "Tcp", "RetransSegs"),
    ("sockets.passive_opens_count", "Tcp", "PassiveOpens"),
];

/// The accept queue of a port: connections waiting, and the most that may wait.
///
/// Sockets that share an address (SO_REUSEPORT) are one queue: they are summed. Of several addresses the one with the
/// most waiting counts, so that an unused address does not make a full queue look half empty.
pub fn accept_queue(sockets: &[ListenSocket], port: u16) -> Option<(u64, Option<u64>)> {
    let mut by_address: BTreeMap<IpAddr, (u64, Option<u64>)> = BTreeMap::new();
    for socket in sockets.iter().filter(|socket| socket.port == port) {
        let (queue, limit) = by_address.entry(socket.address).or_insert((0, Some(0)));
        *queue += u64::from(socket.queue_count);
        *limit = limit.zip(socket.queue_max_count).map(|(sum, own)| sum + u64::from(own));
    }
    by_address.into_values().max()
}

/// Metric and key of the line `TCP:` of `/proc/net/sockstat`. The last three are those of the whole machine.
const SOCKSTAT: [(&str, &str); 5] = [
    ("sockets.in_use_count", "inuse"),
    ("sockets.time_wait_count", "tw"),
    ("sockets.orphans_count", "orphan"),
    ("sockets.allocated_count", "alloc"),
    ("sockets.memory_pages", "mem"),
];

/// The value of a key in the lines `TCP:` of `/proc/net/sockstat` and `TCP6:` of `/proc/net/sockstat6`, which has sockets
/// in use alone: those that listen for both versions, and all connections that they took, count there.
fn parse_sockstat(text: &str, key: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("TCP: ").or(line.strip_prefix("TCP6: ")));
    lines.filter_map(|line| value_of(line, key)).reduce(|all, more| all + more)
}

fn value_of(line: &str, key: &str) -> Option<u64> {
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == key)?;
    words.next()?.parse().ok()
}

/// Metric, state and its name in `ss` of what the table of all sockets is counted for.
const STATES: [(&str, u8, &str); 7] = [
    ("sockets.syn_sent_count", 2, "syn-sent"),
    ("sockets.syn_received_count", 3, "syn-recv"),
    ("sockets.fin_wait_1_count", 4, "fin-wait-1"),
    ("sockets.fin_wait_2_count", 5, "fin-wait-2"),
    ("sockets.close_wait_count", 8, "close-wait"),
    ("sockets.last_ack_count", 9, "last-ack"),
    ("sockets.closing_count", 11, "closing"),
];

/// The port of name servers.
const DNS: u16 = 53;

/// UDP sockets that are connected to a name server: look-ups under way.
fn dns_lookups_count() -> io::Result<u64> {
    let mut count = 0;
    let states = sock_diag::states([sock_diag::state::ESTABLISHED]);
    let query = Query { protocol: sock_diag::UDP, states, peer_port: DNS, ..Query::default() };
    sock_diag::each(query, |_| count += 1)?;
    Ok(count)
}

/// Metric and file of the limits that connections meet; the first two are there only where connections are tracked. The
/// files show the reader's own network namespace (proc_sys(5)).
const TABLES: [(&str, &str); 6] = [
    ("sockets.conntrack_limit_count", "/proc/sys/net/netfilter/nf_conntrack_max"),
    ("sockets.conntrack_count", "/proc/sys/net/netfilter/nf_conntrack_count"),
    ("sockets.time_wait_limit_count", "/proc/sys/net/ipv4/tcp_max_tw_buckets"),
    ("sockets.somaxconn_count", "/proc/sys/net/core/somaxconn"),
    ("sockets.syn_cookies_mode", "/proc/sys/net/ipv4/tcp_syncookies"),
    ("sockets.syn_backlog_limit_count", "/proc/sys/net/ipv4/tcp_max_syn_backlog"),
];

fn tables(reading: &mut Reading) {
    for (name, file) in TABLES {
        let number = procfs::read_text(file).ok().and_then(|text| text.trim().parse::<u64>().ok());
        reading.push_some(name, number.map(|number| number as f64));
    }
}

/// The collector.
#[derive(Debug, Default)]
pub struct Sockets {
    whereabouts: Whereabouts,
    shared: Shared,
    /// The table that was told last.
    reported: Option<Arc<Table>>,
}

impl Sockets {
    pub(crate) fn sharing(shared: Shared) -> Self {
        Self { shared, ..Self::default() }
    }

    /// The accept queue of the port, and how full all queues are.
    fn queues(target: &Target, place: Place, reading: &mut Reading) {
        let net = place.net();
        let mut sockets = place.within(crate::os::sockets::netlink::listening);
        match &sockets {
            Ok(sockets) => queues::read(sockets, place, reading),
            Err(error) => {
                let why = format!("netlink does not tell the limit of the accept queue: {error}");
                match place {
                    Place::Own => reading.problem(why),
                    Place::Of(_) => {
                        reading.lacks("sockets.accept_queue_max_count", why, "run webdyno as root")
                    }
                }
                // A kernel without IPv6 has no tcp6.
                let six = listening(&format!("{net}/tcp6")).unwrap_or_default();
                sockets = listening(&format!("{net}/tcp")).map(|four| [four, six].concat());
            }
        }
        let Some(port) = target.port else {
            return reading.lacks_service("sockets.accept_queue", target);
        };
        match sockets.map(|sockets| accept_queue(&sockets, port)) {
            Ok(Some((queue, limit))) => {
                reading.push("sockets.accept_queue_count", queue as f64);
                reading.push_some("sockets.accept_queue_max_count", limit.map(|limit| limit as f64));
            }
            Ok(None) => reading.problem(format!("nothing listens on port {port}")),
            Err(error) => reading.problem(io_error_text("read", &format!("{net}/tcp"), &error)),
        }
    }

    /// The counters that rules name, from the same reading as all others.
    fn counters(&self, net: &str, reading: &mut Reading) {
        let counters = self.shared.lock().counters.of(net);
        counters.problems.iter().for_each(|why| reading.problem(why));
        for (name, group, field) in COUNTERS {
            reading.push_some(name, counters.value(group, field));
        }
        reading.push_some(OPEN, counters.value("Tcp", "CurrEstab"));
    }

    /// The sockets by state, when the table was read since.
    fn states(&mut self, place: Place, reading: &mut Reading) {
        let table = self.shared.lock().table.of(place);
        match table {
            Ok(table) if self.reported.as_ref().is_some_and(|message| Arc::ptr_eq(message, &table)) => {}
            Ok(table) => {
                for (name, state, _) in STATES {
                    reading.push(name, table.in_state(state) as f64);
                }
                // The kernel counts both states in one (RFC 4022, tcpCurrEstab).
                let close_wait = table.in_state(sock_diag::state::CLOSE_WAIT) as f64;
                reading.push_some(ESTABLISHED, reading.value(OPEN).map(|open| (open - close_wait).max(0.0)));
                self.reported = Some(table);
            }
            Err(error) => {
                let why = format!("the kernel does not list the sockets of the service: {error}");
                reading.lacks(ESTABLISHED, why, "run webdyno as root");
            }
        }
        match place.within(dns_lookups_count) {
            Ok(count) => reading.push(DNS_LOOKUPS, count as f64),
            Err(error) => {
                let why = format!("the kernel does not list UDP sockets: {error}");
                reading.lacks(DNS_LOOKUPS, why, "modprobe udp_diag, and run webdyno as root");
            }
        }
    }
}

const OPEN: &str = "sockets.open_count";
const ESTABLISHED: &str = "sockets.established_count";
const DNS_LOOKUPS: &str = "sockets.look_ups_count";

impl Collector for Sockets {
    fn name(&self) -> &'static str {
        "sockets"
    }

    fn metrics(&self) -> Vec<Metric> {
        let queue = |name: &str, source: &str, column: u8| {
            gauge(name, source, format!("ss -ltnH 'sport = :PORT' | awk '{{print ${column}}}'"))
        };
        let mut metrics = vec![
            queue("sockets.accept_queue_count", "sock_diag(7), else /proc/net/tcp", 2),
            queue("sockets.accept_queue_max_count", "sock_diag(7)", 3),
        ];
        metrics.extend(queues::metrics());
        metrics.extend(SOCKSTAT.map(|(name, key)| {
            if key == "inuse" {
                let show =
                    "cat /proc/net/sockstat /proc/net/sockstat6 | awk '/^TCP/ {n += $3} END {print n}'";
                return gauge(name, "/proc/net/sockstat, /proc/net/sockstat6", show);
            }
            let show = format!("sed -n 's/^TCP:.* {key} \\([0-9]*\\).*/\\1/p' /proc/net/sockstat");
            gauge(name, "/proc/net/sockstat", show)
        }));
        metrics.extend(COUNTERS.map(|(name, group, field)| {
            let file = if group == "Tcp" { "/proc/net/snmp" } else { "/proc/net/netstat" };
            counter(name, file, by_nstat(&format!("{group}{field}")))
        }));
        // nstat leaves levels out.
        let open = "awk '$1==\"Tcp:\" && $2 ~ /^[0-9]/ {print $10}' /proc/net/snmp";
        metrics.push(gauge(OPEN, "/proc/net/snmp", open));
        // Told when the table of all sockets is read: every ten seconds, and more rarely where it is long.
        let in_state = |state: &str| format!("ss -tanH state {state} | wc -l");
        metrics.push(gauge(ESTABLISHED, "/proc/net/snmp, sock_diag(7)", in_state("established")));
        metrics.extend(STATES.map(|(name, _, state)| gauge(name, "sock_diag(7)", in_state(state))));
        metrics.push(gauge(DNS_LOOKUPS, "sock_diag(7)", "ss -uanH state established 'dport = :53' | wc -l"));
        metrics.extend(TABLES.map(|(name, file)| gauge(name, file, format!("cat {file}"))));
        metrics
    }

    fn read(&mut self, target: &Target) -> Reading {
        let place = match self.whereabouts.place(target) {
            Ok(place) => place,
            Err(why) => return Reading::failed(why),
        };
        let mut reading = Reading::default();
        Self::queues(target, place, &mut reading);
        if place == Place::Own {
            tables(&mut reading);
        }
        // Without IPv6 the second file is not there, and nothing is missing.
        let of_ipv6 = std::fs::read_to_string(format!("{}/sockstat6", place.net())).unwrap_or_default();
        reading.take(&format!("{}/sockstat", place.net()), |text, reading| {
            let text = format!("{text}\n{of_ipv6}");
            for (name, key) in SOCKSTAT {
                reading.push_some(name, parse_sockstat(&text, key).map(|count| count as f64));
            }
        });
        self.counters(&place.net(), &mut reading);
        self.states(place, &mut reading);
        reading
    }

    fn mark_undelivered(&mut self) {
        self.reported = None;
    }
}

/// The command that prints one counter: nstat names them as group and field in one word.
pub(crate) fn by_nstat(name: &str) -> String {
    format!("nstat -asz {name} | awk '!/^#/ {{print $2}}'")
}

#[cfg(test)]
mod tests;
