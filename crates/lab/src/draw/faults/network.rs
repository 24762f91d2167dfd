//! Faults of the network, and of what the kernel keeps of connections.

use super::Fault;
use crate::draw::server::{Extra, Front, Pages};

/// How long a load lasts with its warm-up, seconds.
const LOAD_S: f64 = 8.0;

pub const FAULTS: &[Fault] = &[Fault {
    id: "local-ports",
    findings: &["ephemeral-ports-exhausted"],
    // With more the usual range would not suffice for all loads of a run: a port comes back after a minute.
    applies: |server| {
        server.pages == Pages::Proxy
            && server.front != Front::Lighttpd
            && (20.0..400.0).contains(&server.rate())
    },
    prepare: |server| {
        server.extras.insert(Extra::LocalPorts);
    },
    set: |server, random| {
        let ports = (server.rate() * LOAD_S * random.log(0.1, 0.4)).max(40.0) as u32;
        server.settings.local_ports = Some(ports);
        format!("{ports} local ports for {:.0} connections a second", server.rate())
    },
}];
