//! A server as files, programs and limits: what an administrator would have written. No name tells a fault.

mod apache;
mod database;
mod lighttpd;
mod load;
mod nginx;
mod php;
mod programs;
mod site;

use super::server::{Extra, Front, Server};
use std::collections::BTreeMap;

pub use apache::{modules, mpm};
pub use lighttpd::{COMMAND as LIGHTTPD, RESTART as LIGHTTPD_RESTART};
pub use load::{flags, urls};
pub use programs::{APPLICATION as PARTNER_PROGRAM, PARTNER};

/// The only address that may read a status page which is protected: nobody's.
const PROTECTED_FOR: &str = "10.99.0.7";

/// A program of the server's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Its name, which its file of the process id has.
    pub name: String,
    /// Its command line.
    pub command: String,
    /// When it is ready: a port or a path.
    pub ready: String,
}

/// A server as it is built.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rendered {
    /// Files of the host `server` by their paths on it.
    pub files: BTreeMap<String, String>,
    /// Programs that prepare something or run beside.
    pub programs: Vec<Program>,
    /// The service that pages ask, on its own host.
    pub partner: Option<Program>,
    /// The clients on a slow line, on theirs.
    pub travellers: Option<Program>,
    /// Rules of the packet filter.
    pub firewall: Option<String>,
    /// What the database is filled with.
    pub sql: Option<String>,
    /// A statement that makes the database as it is in this state, however it was.
    pub sql_state: Option<String>,
    /// The same of kernel settings.
    pub sysctl: BTreeMap<&'static str, String>,
    /// Processors' time.
    pub cpus: f64,
    /// Memory, MB.
    pub memory_mb: u32,
    /// nf_conntrack_max, where connections are tracked.
    pub tracked: Option<u32>,
    /// Rate of the link, where it is set.
    pub mbit: Option<u32>,
    /// The same of the line of a router, where there is one.
    pub upstream_mbit: Option<u32>,
}

/// Renders a state of a server.
pub fn render(server: &Server) -> Rendered {
    let mut rendered = Rendered {
        sysctl: sysctl(server),
        cpus: server.settings.cpus,
        memory_mb: server.settings.memory_mb,
        firewall: server.extras.contains(&Extra::Firewall).then(|| firewall(server)),
        travellers: programs::travellers(server),
        tracked: server.extras.contains(&Extra::Tracking).then_some(server.settings.tracked),
        mbit: server.extras.contains(&Extra::ShapedLink).then_some(server.settings.mbit),
        upstream_mbit: server.extras.contains(&Extra::Router).then_some(server.settings.upstream_mbit),
        ..Rendered::default()
    };
    match server.front {
        Front::Nginx => nginx::render(server, &mut rendered),
        Front::Lighttpd => lighttpd::render(server, &mut rendered),
        _ => apache::render(server, &mut rendered),
    }
    site::render(server, &mut rendered);
    php::render(server, &mut rendered);
    database::render(server, &mut rendered);
    programs::render(server, &mut rendered);
    rendered
}

fn sysctl(server: &Server) -> BTreeMap<&'static str, String> {
    let mut all: BTreeMap<&'static str, String> =
        server.settings.sysctl.iter().map(|(name, value)| (*name, value.to_string())).collect();
    if server.extras.contains(&Extra::LocalPorts) {
        let ports = server.settings.local_ports;
        let range = ports.map_or("32768 60999".into(), |ports| format!("40000 {}", 40_000 + ports - 1));
        all.insert("net.ipv4.ip_local_port_range", range);
        // On one machine a port would else be given anew after a second.
        all.insert("net.ipv4.tcp_tw_reuse", "0".into());
    }
    if server.extras.contains(&Extra::Tracking) {
        // For two minutes nobody waits.
        all.insert("net.netfilter.nf_conntrack_tcp_timeout_time_wait", "3".into());
    }
    all
}

/// What stands behind, as the front names it.
fn inner_socket(server: &Server) -> String {
    format!("/run/php/{}.sock", server.names.site)
}

/// The packet filter's rules: they replace what is there.
fn firewall(server: &Server) -> String {
    let port = server.names.port;
    let lost = server.settings.lost_one_in.map_or(String::new(), |one_in| {
        format!(
            "        tcp dport {port} tcp flags & (syn | ack) == syn numgen random mod {one_in} == 0 drop\n"
        )
    });
    format!(
        "add table inet site\ndelete table inet site\ntable inet site {{\n    chain input {{\n        \
         type filter hook input priority 0; policy accept;\n{lost}        tcp dport {port} accept\n    }}\n}}\n"
    )
}

/// The address of the service that pages ask: hosts beside the clients' have one link each, in the order of `rounds`.
pub fn partner_address(server: &Server) -> String {
    format!("10.80.{}.2", if server.extras.contains(&Extra::Resolver) { 2 } else { 1 })
}

/// The file of the key that is in force, without its ending.
fn key(server: &Server) -> String {
    let letter = match server.settings.rsa_bits {
        0 => "a",
        2048 => "b",
        _ => "c",
    };
    format!("/etc/ssl/private/{}-{letter}", server.names.site)
}

impl Rendered {
    fn file(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.files.insert(path.into(), text.into());
    }
}
