//! Ports for servers of our own that start in a moment.
//!
//! Facts: ip(7). What the kernel chooses by itself it may give to any connection as soon as we let go of it. The ports above
//! `ip_local_port_range` it gives to nobody.

use super::procfs;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// So many ports from the last one down are tried.
const COUNT_MAX: u32 = 512;

/// Spreads processes evenly, however their ids follow one another (Fibonacci hashing: 2^32 by the golden ratio).
const SPREAD: u32 = 0x9E37_79B1;

/// A listener on a port of the loopback interface that nobody else is likely to take once it is closed.
pub fn hold_free_port() -> std::io::Result<TcpListener> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let range = procfs::read_text("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    // Not those that other processes or threads of ours try at the same time.
    let of_process = std::process::id().wrapping_mul(SPREAD) >> 16;
    let turn = of_process.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
    let held = candidates(&range, turn).find_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
    held.map_or_else(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)), Ok)
}

/// The ports that the kernel gives to nobody, beginning with another one at each turn; none where the range is unknown.
fn candidates(range: &str, turn: u32) -> impl Iterator<Item = u16> {
    let last = range.split_whitespace().nth(1).and_then(|last| last.parse::<u16>().ok()).unwrap_or(u16::MAX);
    let count = u32::from(u16::MAX - last).min(COUNT_MAX);
    (0..count).map(move |step| u16::MAX - ((turn % count + step) % count) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ports_are_those_that_no_connection_is_given() {
        for (range, count) in [("32768\t60999\n", 512), ("1024 65500", 35), ("1024 65535", 0), ("", 0)] {
            let all: Vec<u16> = candidates(range, 7_000_001).collect();
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), count, "{range}");
            let last = range.split_whitespace().nth(1).map_or(0, |last| last.parse().unwrap());
            assert!(all.iter().all(|port| *port > last), "{range}");
        }
        assert_ne!(candidates("1 60999", 1).next(), candidates("1 60999", 2).next());
    }

    #[test]
    fn no_port_is_found_twice_at_a_time() {
        let held: Vec<TcpListener> = (0..20).map(|_| hold_free_port().unwrap()).collect();
        let ports: BTreeSet<u16> = held.iter().map(|held| held.local_addr().unwrap().port()).collect();
        assert_eq!(ports.len(), held.len());
    }
}
