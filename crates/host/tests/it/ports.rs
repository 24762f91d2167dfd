//! Ports for servers of tests that start later.
//!
//! A port of the kernel's choice that is let go of may be given to another test, or to a connection, before the server
//! has it. Those above net.ipv4.ip_local_port_range are given to nobody (ip(7)): these are handed out one by one.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used)]

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 61_000;
/// Not those behind them: there the program itself looks for ports.
const COUNT: u32 = 4_000;
/// The ports of test programs that were started one after the other lie so far apart.
const APART: u32 = 1_237;

/// A port on which nobody listens, and which no other test of this program is given.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    (0..COUNT)
        .map(|_| {
            let step =
                NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id().wrapping_mul(APART));
            (FIRST + step % COUNT) as u16
        })
        .find(|port| TcpListener::bind(("0.0.0.0", *port)).is_ok())
        .unwrap()
}
