//! The sockets of the port under load: its accept queue, and the counters of what TCP refused, dropped or repeated.
//!
//! Facts: sock_diag(7) (for listening sockets `idiag_rqueue` is the accept queue now and `idiag_wqueue` its limit),
//! proc_pid_net(5), Documentation/networking/proc_net_tcp.rst (listening sockets come first), and
//! Documentation/networking/snmp_counter.rst for netstat and snmp; nf_conntrack-sysctl.rst and ip-sysctl.rst for the sizes
//! of tables.
//!
//! A service in another network namespace is seen through `/proc/PID/net`; no namespace is entered. The queue's limit
//! is then unknown, as only netlink tells it.

use super::{Collector, Metric, Reading, Target, counter, gauge, told};
use crate::procfs;
use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(super) mod netlink;

/// Lines of `/proc/net/tcp` that are read at most: listening sockets come first and are few.
const LINES_MAX: usize = 10_000;

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

/// A listening socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenSocket {
    /// The address it is bound to.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Connections that wait to be accepted.
    pub queue_count: u32,
    /// The most that may wait; `None` where `/proc` does not tell.
    pub queue_max_count: Option<u32>,
    /// Its inode.
    pub inode: u64,
    /// The user who opened it.
    pub uid: u32,
}

/// The listening sockets in a file in the format of `/proc/net/tcp` or `/proc/net/tcp6`.
pub fn listening(path: &str) -> io::Result<Vec<ListenSocket>> {
    parse_listening(io::BufReader::new(std::fs::File::open(path)?))
}

/// Parses listening sockets and stops at the first connection, so that a long list is not generated for nothing.
/// Kernels before 4.4 list half-open connections (`03`) among the listening ones.
fn parse_listening(lines: impl BufRead) -> io::Result<Vec<ListenSocket>> {
    let mut found = vec![];
    for line in lines.split(b'\n').skip(1).take(LINES_MAX) {
        let line = line?;
        match parse_line(&String::from_utf8_lossy(&line)) {
            Some((LISTEN, socket)) => found.push(socket),
            Some((SYN_RECEIVED, _)) | None => {}
            Some(_) => break,
        }
    }
    Ok(found)
}

/// `0A` and `03` of include/net/tcp_states.h.
const LISTEN: u8 = 0x0a;
const SYN_RECEIVED: u8 = 0x03;

/// A line `sl local remote state tx:rx timer retransmits uid timeout inode ...`.
fn parse_line(line: &str) -> Option<(u8, ListenSocket)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    let (_, queue) = fields.get(4)?.split_once(':')?;
    let socket = ListenSocket {
        address: parse_address(address)?,
        port: u16::from_str_radix(port, 16).ok()?,
        queue_count: u32::from_str_radix(queue, 16).ok()?,
        queue_max_count: None,
        inode: fields.get(9)?.parse().ok()?,
        uid: fields.get(7)?.parse().ok()?,
    };
    Some((u8::from_str_radix(fields.get(3)?, 16).ok()?, socket))
}

/// An address as the kernel prints it: 32-bit words of network order, each shown in the machine's order.
fn parse_address(hex: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let digits = hex.get(index * 8..index * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index)?);
            }
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

/// Connections of every state from this network namespace to an address and port.
pub fn connections_to(peer: SocketAddr) -> io::Result<u64> {
    netlink::connections_to(peer)
}

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

/// Parses `/proc/net/sockstat`: `(connections in use, in TIME_WAIT)`.
fn parse_sockstat(text: &str) -> (Option<u64>, Option<u64>) {
    let line = text.lines().find_map(|line| line.strip_prefix("TCP: ")).unwrap_or_default();
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let value = |key: &str| words.chunks_exact(2).find(|pair| pair[0] == key)?[1].parse().ok();
    (value("inuse"), value("tw"))
}

/// A field of the pairs of lines `Group: names..`, `Group: values..` of netstat and snmp. A few are signed.
fn parse_pair(text: &str, group: &str, field: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group)?.strip_prefix(": "));
    let (names, values) = (lines.next()?, lines.next()?);
    let position = names.split(' ').position(|name| name == field)?;
    let value: i64 = values.split(' ').nth(position)?.trim().parse().ok()?;
    Some(value as f64)
}

/// Metric and file of the tables that connections fill; the first two are there only where connections are tracked. The
/// files show the reader's own network namespace (proc_sys(5)).
const TABLES: [(&str, &str); 3] = [
    ("sockets.conntrack_limit_count", "/proc/sys/net/netfilter/nf_conntrack_max"),
    ("sockets.conntrack_count", "/proc/sys/net/netfilter/nf_conntrack_count"),
    ("sockets.time_wait_limit_count", "/proc/sys/net/ipv4/tcp_max_tw_buckets"),
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
    /// The last service seen in another network namespace: once it is gone, ours says nothing about it.
    elsewhere: Option<u32>,
}

impl Sockets {
    /// The directory whose files show the service's namespace, and whether that is ours; an error when the service
    /// was elsewhere and is gone.
    pub(super) fn place(&mut self, target: &Target) -> Result<(String, bool), String> {
        let own = || Ok(("/proc/self/net".to_owned(), true));
        let Some(pid) = target.service_pid else {
            return own();
        };
        // Who may not see the namespace of the service found its port in the own one.
        let namespaces = procfs::net_namespace(pid).ok().zip(procfs::net_namespace(std::process::id()).ok());
        match namespaces {
            Some((theirs, ours)) if theirs != ours => {
                self.elsewhere = Some(pid);
                Ok((format!("/proc/{pid}/net"), false))
            }
            None if self.elsewhere == Some(pid) => {
                Err(format!("process {pid} is gone, and its network namespace with it"))
            }
            _ => own(),
        }
    }

    fn queue(port: u16, net: &str, own: bool, reading: &mut Reading) {
        let mut sockets = Err(io::Error::from(io::ErrorKind::Unsupported));
        if own {
            sockets = netlink::listening();
            if let Err(error) = &sockets {
                reading.problem(format!("netlink does not tell the limit of the accept queue: {error}"));
            }
        }
        if sockets.is_err() {
            // A kernel without IPv6 has no tcp6.
            let six = listening(&format!("{net}/tcp6")).unwrap_or_default();
            sockets = listening(&format!("{net}/tcp")).map(|four| [four, six].concat());
        }
        match sockets.map(|sockets| accept_queue(&sockets, port)) {
            Ok(Some((queue, limit))) => {
                reading.push("sockets.accept_queue_count", queue as f64);
                reading.push_some("sockets.accept_queue_max_count", limit.map(|limit| limit as f64));
            }
            Ok(None) => reading.problem(format!("nothing listens on port {port}")),
            Err(error) => reading.problem(told("read", &format!("{net}/tcp"), &error)),
        }
    }
}

fn counters(text: &str, group_wanted: &str, reading: &mut Reading) {
    for (name, group, field) in COUNTERS.iter().filter(|(_, group, _)| *group == group_wanted) {
        reading.push_some(*name, parse_pair(text, group, field));
    }
}

impl Collector for Sockets {
    fn name(&self) -> &'static str {
        "sockets"
    }

    fn metrics(&self) -> Vec<Metric> {
        let queue = |name: &str, source: &str, column: u8| {
            gauge(name, source, format!("ss -ltnH 'sport = :PORT' | awk '{{print ${column}}}'"))
        };
        let sockstat = |name: &str, key: &str| {
            let show = format!("sed -n 's/^TCP:.* {key} \\([0-9]*\\).*/\\1/p' /proc/net/sockstat");
            gauge(name, "/proc/net/sockstat", show)
        };
        let mut metrics = vec![
            queue("sockets.accept_queue_count", "sock_diag(7), else /proc/net/tcp", 2),
            queue("sockets.accept_queue_max_count", "sock_diag(7)", 3),
            sockstat("sockets.in_use_count", "inuse"),
            sockstat("sockets.time_wait_count", "tw"),
        ];
        metrics.extend(COUNTERS.iter().map(|(name, group, field)| {
            let file = if *group == "Tcp" { "/proc/net/snmp" } else { "/proc/net/netstat" };
            // nstat prints the same counters as group and field in one word.
            counter(*name, file, format!("nstat -asz {group}{field} | awk '!/^#/ {{print $2}}'"))
        }));
        metrics.extend(TABLES.map(|(name, file)| gauge(name, file, format!("cat {file}"))));
        metrics
    }

    fn read(&mut self, target: &Target) -> Reading {
        let (net, own) = match self.place(target) {
            Ok(place) => place,
            Err(why) => return Reading::failed(why),
        };
        let mut reading = Reading::default();
        match target.port {
            Some(port) => Self::queue(port, &net, own, &mut reading),
            None => reading.problem("no port is under load: no accept queue to read"),
        }
        if own {
            tables(&mut reading);
        }
        reading.take(&format!("{net}/sockstat"), |text, reading| {
            let (in_use, time_wait) = parse_sockstat(text);
            reading.push_some("sockets.in_use_count", in_use.map(|count| count as f64));
            reading.push_some("sockets.time_wait_count", time_wait.map(|count| count as f64));
        });
        reading.take(&format!("{net}/netstat"), |text, reading| counters(text, "TcpExt", reading));
        reading.take(&format!("{net}/snmp"), |text, reading| counters(text, "Tcp", reading));
        reading
    }
}

#[cfg(test)]
mod tests;
