//! Local ports: a connection to one address and port needs one of its own for each source address, and the kernel has
//! so many of them to give.
//!
//! Facts: ip(7) and Documentation/networking/ip-sysctl.rst (`ip_local_port_range`, `ip_local_reserved_ports`,
//! `tcp_tw_reuse`), which hold for IPv6 too; net/ipv4/inet_hashtables.c, `__inet_hash_connect`: an odd number of ports
//! is rounded down to an even one, so that the usual range of 32768 to 60999 gives 28,232. The side that closes first
//! keeps the port for a minute (`TCP_TIMEWAIT_LEN` of include/net/tcp.h).

use std::net::{IpAddr, SocketAddr};
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
    let sources = transport.source_ips.iter().filter(fits).count().max(1) as u64;
    usable().map(|ports| ports.saturating_mul(sources))
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

/// What a load asks of the local ports.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Demand {
    /// Connections at once to the destination that gets most; `None` when they are only a cap.
    at_once: Option<u64>,
    /// Connections that may be opened at once at most.
    cap: u64,
    /// New connections a second, where each request makes one at a known rate, and for how many seconds at most.
    opened: Option<(f64, f64)>,
}

/// Refuses a load that surely runs out of local ports. Gives a warning for one that may.
///
/// `destinations` is where each origin's connections go.
pub(crate) fn check(workload: &Workload, destinations: &[SocketAddr]) -> Result<Option<String>> {
    let Some(ports) = available(&workload.transport, destinations) else { return Ok(None) };
    let demand = demand(workload, destinations);
    refuse(&demand, ports)?;
    Ok(warning(&demand, ports, is_reused(destinations)))
}

/// Whether the kernel gives ports out again a second after their connections were closed, towards all of these: 1 in
/// `tcp_tw_reuse` is everywhere, 2 (the default) towards this machine.
pub fn is_reused(destinations: &[SocketAddr]) -> bool {
    let reuse = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_tw_reuse").unwrap_or_default();
    match reuse.trim() {
        "1" => true,
        "2" => destinations.iter().all(|destination| destination.ip().to_canonical().is_loopback()),
        _ => false,
    }
}

fn demand(workload: &Workload, destinations: &[SocketAddr]) -> Demand {
    let same = |address: &SocketAddr| destinations.iter().filter(|other| *other == address).count() as u64;
    let most = destinations.iter().map(same).max().unwrap_or(1);
    let connections = u64::from(workload.connections);
    let requests = workload.stop.requests.unwrap_or(u64::MAX);
    match workload.arrival {
        Arrival::Closed => {
            // A user keeps one to each origin, or has one at a time.
            let each = if workload.keepalive { most } else { 1 };
            let at_once = (connections * each).min(requests);
            Demand { at_once: Some(at_once), cap: at_once, opened: None }
        }
        Arrival::Open { rate_per_s, .. } => {
            let lasts_s = workload.stop.duration_us.map_or(f64::MAX, |us| us as f64 / 1e6);
            let lasts_s = lasts_s.min(requests as f64 / rate_per_s);
            let opened = (!workload.keepalive).then_some((rate_per_s, lasts_s));
            Demand { at_once: None, cap: connections.min(requests), opened }
        }
    }
}

fn refuse(demand: &Demand, ports: u64) -> Result<()> {
    let Some(at_once) = demand.at_once.filter(|at_once| *at_once > ports) else { return Ok(()) };
    Err(UserError::cannot_run(format!(
        "{at_once} connections to one address need as many local ports, this machine has {ports}"
    ))
    .hint(format!(
        "use -c {ports} or fewer, give further addresses of this machine with --source-ip, or widen the range: sysctl net.ipv4.ip_local_port_range=\"1024 65535\""
    )))
}

fn warning(demand: &Demand, ports: u64, reused: bool) -> Option<String> {
    if demand.cap > ports {
        return Some(format!(
            "up to {} connections to one address may be opened, this machine has {ports} local ports towards it: beyond \
             them requests fail. Widen the range (sysctl net.ipv4.ip_local_port_range) or allow fewer with -c",
            demand.cap
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
    fn told(workload: &Workload, ports: &[u16], reused: bool) -> (bool, bool) {
        let address = |port: &u16| SocketAddr::from(([192, 0, 2, 1], *port));
        let demand = demand(workload, &ports.iter().map(address).collect::<Vec<_>>());
        (refuse(&demand, 1000).is_err(), warning(&demand, 1000, reused).is_some())
    }

    #[test]
    fn only_what_surely_fails_is_refused() {
        let open = |rate_per_s| Arrival::Open { rate_per_s, poisson: false };
        let (closed, for_10_s) = (Arrival::Closed, (Some(10), None));
        for (load, ports, expected) in [
            (workload(closed, 1000, true, for_10_s), &[80][..], (false, false)),
            (workload(closed, 1001, true, for_10_s), &[80], (true, true)),
            // So many are never at work at once.
            (workload(closed, 1001, true, (None, Some(1000))), &[80], (false, false)),
            // Two names of one server share its ports, two servers do not; without kept connections a user has one.
            (workload(closed, 600, true, for_10_s), &[80, 80], (true, true)),
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
            assert_eq!(told(&load, ports, false), expected, "{load:?} to {ports:?}");
        }
        assert_eq!(told(&workload(open(500.0), 50, false, for_10_s), &[80], true), (false, false));
    }

    #[test]
    fn a_refusal_has_both_numbers_and_what_helps() {
        let demand = Demand { at_once: Some(30_000), cap: 30_000, opened: None };
        let told = refuse(&demand, 28_232).unwrap_err();
        assert_eq!(
            told.message,
            "30000 connections to one address need as many local ports, this machine has 28232"
        );
        assert!(told.hint.unwrap().contains("-c 28232 or fewer"));
        let said = warning(&Demand { at_once: None, cap: 50, opened: Some((1000.0, 600.0)) }, 28_232, false)
            .unwrap();
        assert!(said.contains("60000 local ports") && said.contains("28232"), "{said}");
    }
}
