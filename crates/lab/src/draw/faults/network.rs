//! Faults of the network, and of what the kernel keeps of connections.

use super::{Fault, too_few, waits};
use crate::draw::random::Random;
use crate::draw::server::{Extra, Front, Pages, Server};

/// How long a load lasts with its warm-up, seconds.
const LOAD_S: f64 = 8.0;
/// How long a connection that was closed stays in the table of the packet filter, seconds.
const TRACKED_S: f64 = 3.0;
/// Workers that slow clients, each a process, may hold.
const SLOW_WORKERS_MAX: u32 = 110;
/// The smallest table, which the machine itself has as well, and the highest rate that a guess is believed.
const TRACKED_MIN: f64 = 500.0;
const TRACKED_RATE_MAX: f64 = 2000.0;

/// Whether its responses are enough to fill a link.
fn fills_a_link(server: &Server) -> bool {
    server.rate() * server.bytes() > 200_000.0
}

/// The rate of a link below what its responses take.
fn too_narrow_mbit(server: &Server, random: &mut Random) -> u32 {
    let used = server.rate().min(4000.0) * server.bytes() * 8.0 / 1e6;
    (used * random.log(0.15, 0.5)).clamp(1.0, 300.0) as u32
}

/// So many slow clients that too few workers are left for the others.
fn slow(server: &Server, random: &mut Random) -> u32 {
    let others = server.settings.downloads + server.settings.uploads;
    server.settings.workers.saturating_sub(too_few(server, random) + others)
}

pub const FAULTS: &[Fault] = &[
    Fault {
        id: "network",
        findings: &["network-saturated"],
        applies: fills_a_link,
        prepare: |server| server.extras.extend([Extra::ShapedLink]),
        set: |server, random| {
            server.settings.mbit = too_narrow_mbit(server, random);
            format!("a link of {} Mbit/s", server.settings.mbit)
        },
    },
    Fault {
        id: "upstream",
        findings: &["upstream-bandwidth"],
        applies: fills_a_link,
        prepare: |server| server.extras.extend([Extra::Router]),
        set: |server, random| {
            server.settings.upstream_mbit = too_narrow_mbit(server, random);
            format!("a line of {} Mbit/s behind a router", server.settings.upstream_mbit)
        },
    },
    Fault {
        id: "slow-clients",
        findings: &["slow-clients"],
        applies: |server| {
            waits(server)
                && server.holds_workers()
                && matches!(server.front, Front::Prefork | Front::Worker)
                && !server.tls
                && server.settings.workers <= SLOW_WORKERS_MAX
        },
        prepare: |server| server.extras.extend([Extra::SlowLine]),
        set: |server, random| {
            server.settings.downloads = slow(server, random);
            format!(
                "{} downloads over a slow line, and {} workers",
                server.settings.downloads, server.settings.workers
            )
        },
    },
    Fault {
        id: "slow-uploads",
        findings: &["slow-uploads"],
        // PHP inside of Apache begins when all of a request is there.
        applies: |server| {
            waits(server)
                && server.pages == Pages::ModPhp
                && !server.tls
                && server.settings.workers <= SLOW_WORKERS_MAX
        },
        prepare: |server| server.extras.extend([Extra::SlowLine]),
        set: |server, random| {
            server.settings.uploads = slow(server, random);
            format!(
                "{} uploads over a slow line, and {} workers",
                server.settings.uploads, server.settings.workers
            )
        },
    },
    Fault {
        id: "local-ports",
        findings: &["ephemeral-ports-exhausted"],
        // With more the usual range would not suffice for all loads of a run: a port comes back after a minute.
        applies: |server| {
            server.pages == Pages::Proxy
                && server.front != Front::Lighttpd
                && (20.0..400.0).contains(&server.rate())
        },
        prepare: |server| server.extras.extend([Extra::LocalPorts]),
        set: |server, random| {
            let ports = (server.rate() * LOAD_S * random.log(0.1, 0.4)).max(40.0) as u32;
            server.settings.local_ports = Some(ports);
            format!("{ports} local ports for {:.0} connections a second", server.rate())
        },
    },
    Fault {
        id: "conntrack",
        // Who sees the load alone sees that its connections came to a standstill at the size of the table.
        findings: &["conntrack-full", "kernel-limit-total"],
        applies: |server| !server.kept && server.rate() > 2.0 * TRACKED_MIN / TRACKED_S,
        prepare: |server| server.extras.extend([Extra::Tracking]),
        set: |server, random| {
            let lived = server.rate().min(TRACKED_RATE_MAX) * TRACKED_S;
            server.settings.tracked = (lived * random.log(0.15, 0.5)).max(TRACKED_MIN) as u32;
            format!(
                "a table of {} connections that stay there for 3 s, {:.0} a second",
                server.settings.tracked,
                server.rate()
            )
        },
    },
];
