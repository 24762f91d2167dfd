//! Local ports: a connection to one address and port needs one of its own for each source address, and the kernel has
//! so many of them to give.
//!
//! Facts: ip(7) and Documentation/networking/ip-sysctl.rst (`ip_local_port_range`, `ip_local_reserved_ports`,
//! `tcp_tw_reuse`), which hold for IPv6 too; net/ipv4/inet_hashtables.c, `__inet_hash_connect`: an odd number of ports
//! is rounded down to an even one, so that the usual range of 32768 to 60999 gives 28,232. The side that closes first
//! keeps the port for a minute (`TCP_TIMEWAIT_LEN` of include/net/tcp.h). Ports in use: proc_net_tcp.rst.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use webdyno_model::transport::Transport;
use webdyno_model::workload::{Arrival, Workload};
use webdyno_model::{Result, UserError};

/// Seconds for which the side that closes first keeps a port.
const TIME_WAIT_S: f64 = 60.0;

/// Ports towards one destination from one source address; `None` where that cannot be read.
pub fn usable() -> Option<u64> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let reserved = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_reserved_ports").unwrap_or_default();
    parse(&range, &reserved)
}

/// Ports towards one of these destinations from all source addresses of a workload; `None` where none are used (unix
/// sockets) and where it cannot be read.
pub fn available(transport: &Transport, destinations: &[SocketAddr]) -> Option<u64> {
    let destination = destinations.first()?;
    // A connection begins from an address of its destination's family.
    let fits = |source: &&IpAddr| source.is_ipv4() == destination.is_ipv4();
    // An address that is given twice has its ports once.
    let sources: BTreeSet<&IpAddr> = transport.source_ips.iter().filter(fits).collect();
    let sources = sources.len().max(1) as u64;
    usable().map(|ports| ports.saturating_mul(sources))
}

/// The state TIME_WAIT in /proc/net/tcp.
const TIME_WAIT: &str = "06";

/// Ports that connections of every state hold towards one of these, the one to which there are most. Those of closed
/// connections are left out where the kernel reuses them.
fn in_use(destinations: &[SocketAddr], reused: bool) -> u64 {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (ipv4, ipv6) = (read("/proc/net/tcp"), read("/proc/net/tcp6"));
    let towards = |to: &SocketAddr| count_to(&ipv4, to, reused) + count_to(&ipv6, to, reused);
    destinations.iter().map(towards).max().unwrap_or(0)
}

/// Counts the lines of /proc/net/tcp or tcp6 whose remote end is this.
fn count_to(table: &str, destination: &SocketAddr, reused: bool) -> u64 {
    // The address stands there in words as they lie in memory.
    let hex_word = |bytes: &[u8]| {
        format!("{:08X}", bytes.iter().rev().fold(0u32, |hex_word, byte| hex_word << 8 | u32::from(*byte)))
    };
    let hex_words = |address: Ipv6Addr| -> String { address.octets().chunks(4).map(hex_word).collect() };
    let port = destination.port();
    let encoded = match destination.ip() {
        IpAddr::V4(address) => [
            format!("{}:{port:04X}", hex_word(&address.octets())),
            format!("{}:{port:04X}", hex_words(address.to_ipv6_mapped())),
        ],
        IpAddr::V6(address) => [format!("{}:{port:04X}", hex_words(address)), String::new()],
    };
    let counts = |line: &&str| {
        let mut fields = line.split_ascii_whitespace().skip(2);
        fields.next().is_some_and(|at| encoded.iter().any(|one| one == at))
            && !(reused && fields.next() == Some(TIME_WAIT))
    };
    table.lines().filter(counts).count() as u64
}

/// Reads `32768 60999` and `8080,9000-9010`.
fn parse(range: &str, reserved: &str) -> Option<u64> {
    let mut bounds = range.split_ascii_whitespace().map(|bound| bound.parse::<u64>().ok());
    let (first, last) = (bounds.next()??, bounds.next()??);
    let all = (last + 1).checked_sub(first).filter(|count| *count > 0)?;
    let taken = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) =
            (from.trim().parse::<u64>().ok()?.max(first), to.trim().parse::<u64>().ok()?.min(last));
        (to + 1).checked_sub(from)
    };
    let taken: u64 = reserved.trim().split(',').filter_map(taken).sum();
    // A single port is not rounded.
    let all = if all > 1 { all & !1 } else { all };
    Some(all.saturating_sub(taken))
}

/// The local ports that a load needs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PortDemand {
    /// Connections that are surely at once towards one destination; `None` when that depends on the load.
    at_once: Option<u64>,
    /// Connections that may be open at once towards the destination that gets most.
    cap: u64,
    /// Origins whose connections share that destination.
    sharing: u64,
    /// New connections a second, where each request makes one at a known rate, and for how many seconds at most.
    opened: Option<(f64, f64)>,
}

/// The local ports that there are.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PortSupply {
    ports: u64,
    /// Those that are in use already towards the destination that takes most.
    used: u64,
}

impl PortSupply {
    /// The number for a hint: the kernel does not find the very last ports, and the first attempt of a load uses some.
    fn recommended_max(&self) -> u64 {
        let free = self.ports.saturating_sub(self.used);
        free.saturating_sub((self.ports / 100).max(8))
    }

    /// What helps at once, for a load of which this many connections share a user.
    fn advice(&self, sharing: u64) -> String {
        match self.recommended_max() / sharing {
            0 => "wait a minute, until closed connections give theirs back".to_owned(),
            fitting => format!("use -c {fitting} or fewer"),
        }
    }
}

/// Refuses a load that surely runs out of local ports. Returns a warning for one that may.
///
/// `destinations` is where each origin's connections go.
pub(crate) fn check(workload: &Workload, destinations: &[SocketAddr]) -> Result<Option<String>> {
    let Some(ports) = available(&workload.transport, destinations) else { return Ok(None) };
    let demand = demand(workload, destinations);
    // Reading what is in use costs milliseconds where tens of thousands are: only where it matters.
    let reused = is_reused(destinations);
    let used = if demand.cap > ports / 2 { in_use(destinations, reused) } else { 0 };
    let supply = PortSupply { ports, used };
    refuse(&demand, supply)?;
    Ok(warning(&demand, supply, reused))
}

/// Whether the kernel reuses ports a second after their connections were closed, towards all of these: 1 in
/// `tcp_tw_reuse` is everywhere, 2 (the default) towards this machine.
pub fn is_reused(destinations: &[SocketAddr]) -> bool {
    let reuse = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_tw_reuse").unwrap_or_default();
    match reuse.trim() {
        "1" => true,
        "2" => destinations.iter().all(|destination| destination.ip().to_canonical().is_loopback()),
        _ => false,
    }
}

fn demand(workload: &Workload, destinations: &[SocketAddr]) -> PortDemand {
    let same = |address: &SocketAddr| destinations.iter().filter(|other| *other == address).count() as u64;
    let most = destinations.iter().map(same).max().unwrap_or(1);
    let connections = u64::from(workload.connections);
    let requests = workload.stop.requests.unwrap_or(u64::MAX);
    match workload.arrival {
        Arrival::Closed => {
            // A user keeps one to each origin at most, or has one at a time.
            let each = if workload.keepalive { most } else { 1 };
            let users = connections.min(requests);
            // Where there are several destinations, users are seldom all at one of them.
            let at_once = (most == destinations.len() as u64).then_some(users);
            PortDemand { at_once, cap: (connections * each).min(requests), sharing: each, opened: None }
        }
        Arrival::Open { rate_per_s, .. } => {
            let lasts_s = workload.stop.duration_us.map_or(f64::MAX, |us| us as f64 / 1e6);
            let lasts_s = lasts_s.min(requests as f64 / rate_per_s);
            // A closed socket of UDP leaves nothing behind that holds its port.
            let leaves = !workload.keepalive && workload.transport.http3_streams.is_none();
            let opened = leaves.then_some((rate_per_s, lasts_s));
            PortDemand { at_once: None, cap: connections.min(requests), sharing: 1, opened }
        }
    }
}

fn refuse(demand: &PortDemand, supply: PortSupply) -> Result<()> {
    let ports = supply.ports;
    let Some(at_once) = demand.at_once.filter(|at_once| *at_once > ports) else { return Ok(()) };
    Err(UserError::cannot_run(format!(
        "{at_once} connections to one address need as many local ports, this machine has {ports}"
    ))
    .hint(format!(
        "{}, give further addresses of this machine with --source-ip, or widen the range: sysctl net.ipv4.ip_local_port_range=\"1024 65535\"",
        supply.advice(1)
    )))
}

fn warning(demand: &PortDemand, supply: PortSupply, reused: bool) -> Option<String> {
    let PortSupply { ports, used } = supply;
    // One that the first try leaves behind.
    if demand.cap > ports.saturating_sub(used + 1) {
        let in_use = if used > 0 { format!(", of which {used} are in use") } else { String::new() };
        return Some(format!(
            "up to {} connections to one address may be opened, this machine has {ports} local ports towards it{in_use}: \
             beyond them requests fail. Widen the range (sysctl net.ipv4.ip_local_port_range), or {}",
            demand.cap,
            supply.advice(demand.sharing)
        ));
    }
    let (rate_per_s, lasts_s) = demand.opened.filter(|_| !reused)?;
    let waiting = (rate_per_s * lasts_s.min(TIME_WAIT_S)).ceil();
    (waiting > ports as f64).then(|| {
        format!(
            "{rate_per_s} new connections a second may need {waiting} local ports, this machine has {ports} towards one \
             address: where the server leaves the close to this machine, each port is held for {TIME_WAIT_S} s and they \
             run out. Keep connections (without --no-keepalive), give further addresses of this machine (--source-ip), or widen the \
             range (sysctl net.ipv4.ip_local_port_range)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::workload::Stop;

    #[test]
    fn a_range_without_what_is_reserved() {
        for (range, reserved, ports) in [
            ("32768\t60999\n", "\n", Some(28_232)),
            ("1024 65535", "", Some(64_512)),
            ("40000 40000", "", Some(1)),
            ("40000 40002", "", Some(2)),
            ("40000 40999", "8080,40000-40009,40999,50000-50009", Some(989)),
            ("40000 40001", "30000-50000", Some(0)),
            ("50000 40000", "", None),
            ("", "", None),
            ("x y", "", None),
        ] {
            assert_eq!(parse(range, reserved), ports, "{range} without {reserved}");
        }
    }

    fn workload(
        arrival: Arrival,
        connections: u32,
        keepalive: bool,
        stop: (Option<u64>, Option<u64>),
    ) -> Workload {
        let stop = Stop { duration_us: stop.0.map(|s| s * 1_000_000), requests: stop.1 };
        Workload { arrival, connections, keepalive, stop, ..Workload::default() }
    }

    /// Whether it is refused, and whether it is warned about, with 1000 ports.
    fn check_outcome(workload: &Workload, ports: &[u16], reused: bool) -> (bool, bool) {
        let address = |port: &u16| SocketAddr::from(([192, 0, 2, 1], *port));
        let demand = demand(workload, &ports.iter().map(address).collect::<Vec<_>>());
        let supply = PortSupply { ports: 1000, used: 0 };
        (refuse(&demand, supply).is_err(), warning(&demand, supply, reused).is_some())
    }

    #[test]
    fn only_what_surely_fails_is_refused() {
        let open = |rate_per_s| Arrival::Open { rate_per_s, poisson: false };
        let (closed, for_10_s) = (Arrival::Closed, (Some(10), None));
        for (load, ports, expected) in [
            (workload(closed, 999, true, for_10_s), &[80][..], (false, false)),
            // The first try takes one.
            (workload(closed, 1000, true, for_10_s), &[80], (false, true)),
            (workload(closed, 1001, true, for_10_s), &[80], (true, true)),
            // So many are never at work at once.
            (workload(closed, 1001, true, (None, Some(999))), &[80], (false, false)),
            // Two names of one server share its ports, two servers do not; without kept connections a user has one.
            // Users find kept connections of others: that each has its own to both is not sure.
            (workload(closed, 600, true, for_10_s), &[80, 80], (false, true)),
            (workload(closed, 1001, true, for_10_s), &[80, 80], (true, true)),
            (workload(closed, 1001, true, for_10_s), &[80, 81], (false, true)),
            (workload(closed, 600, true, for_10_s), &[80, 81], (false, false)),
            (workload(closed, 600, false, for_10_s), &[80, 80], (false, false)),
            // A rate fills no more connections than it needs.
            (workload(open(10.0), 2000, true, for_10_s), &[80], (false, true)),
            (workload(open(500.0), 50, true, for_10_s), &[80], (false, false)),
            (workload(open(101.0), 50, false, for_10_s), &[80], (false, true)),
            (workload(open(100.0), 50, false, for_10_s), &[80], (false, false)),
            (workload(open(17.0), 50, false, (Some(3600), None)), &[80], (false, true)),
            (workload(open(16.0), 50, false, (Some(3600), None)), &[80], (false, false)),
            (workload(open(5000.0), 50, false, (None, Some(900))), &[80], (false, false)),
        ] {
            assert_eq!(check_outcome(&load, ports, false), expected, "{load:?} to {ports:?}");
        }
        assert_eq!(check_outcome(&workload(open(500.0), 50, false, for_10_s), &[80], true), (false, false));
    }

    #[test]
    fn a_refusal_has_both_numbers_and_what_helps() {
        let demand = PortDemand { at_once: Some(30_000), cap: 30_000, sharing: 1, opened: None };
        let error = refuse(&demand, PortSupply { ports: 28_232, used: 232 }).unwrap_err();
        assert_eq!(
            error.message,
            "30000 connections to one address need as many local ports, this machine has 28232"
        );
        // What is in use is not there, and the very last ones are not found.
        assert!(error.hint.unwrap().contains("-c 27718 or fewer"));
        let opens = PortDemand { at_once: None, cap: 50, sharing: 1, opened: Some((1000.0, 600.0)) };
        let said = warning(&opens, PortSupply { ports: 28_232, used: 0 }, false).unwrap();
        assert!(said.contains("60000 local ports") && said.contains("28232"), "{said}");
        // Two names of one server: the number is that of users, not of connections.
        let shared = PortDemand { at_once: Some(200), cap: 400, sharing: 2, opened: None };
        let supply = PortSupply { ports: 300, used: 12 };
        assert!(refuse(&shared, supply).is_ok());
        let said = warning(&shared, supply, false).unwrap();
        assert!(said.contains("300 local ports") && said.contains("of which 12 are in use"), "{said}");
        assert!(said.ends_with("use -c 140 or fewer"), "{said}");
        // No connection at all is no advice.
        let error = refuse(&demand, PortSupply { ports: 1000, used: 1000 }).unwrap_err();
        assert!(error.hint.unwrap().starts_with("wait a minute"));
    }

    #[test]
    fn an_address_given_twice_has_its_ports_once() {
        let from = |sources: &[&str]| {
            let source_ips = sources.iter().map(|source| source.parse().unwrap()).collect();
            available(&Transport { source_ips, ..Transport::default() }, &["127.0.0.1:80".parse().unwrap()])
        };
        let once = from(&["127.0.0.1"]).unwrap();
        assert_eq!(from(&["127.0.0.1", "127.0.0.1", "::1"]), Some(once));
        assert_eq!(from(&["127.0.0.1", "127.0.0.2"]), Some(2 * once));
    }

    #[test]
    fn ports_in_use_are_counted_towards_their_destination() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 0100007F:0050 01 x\n   \
                     1: 0100007F:1F91 0100007F:0050 06 x\n   2: 0100007F:0050 0100007F:1F90 01 x\n   \
                     3: 0000000000000000FFFF00000100007F:1F92 0000000000000000FFFF00000100007F:0050 01 x\n   \
                     4: 00000000000000000000000001000000:1F93 00000000000000000000000001000000:0050 01 x\n";
        for (destination, count) in [("127.0.0.1:80", 3), ("[::1]:80", 1), ("127.0.0.1:81", 0)] {
            assert_eq!(count_to(table, &destination.parse().unwrap(), false), count, "{destination}");
        }
        // One of them is closed, and given out again where the kernel does that.
        assert_eq!(count_to(table, &"127.0.0.1:80".parse().unwrap(), true), 2);
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(address) else { continue };
            let there = listener.local_addr().unwrap();
            assert_eq!(in_use(&[there], true), 0);
            let _kept = [(); 3].map(|()| std::net::TcpStream::connect(there).unwrap());
            assert_eq!(in_use(&[there], true), 3, "{there}");
        }
    }
}
