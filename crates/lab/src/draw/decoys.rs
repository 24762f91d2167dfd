//! Settings that look wrong and are harmless where they are set.

use super::server::{Extra, Front, Server, Status};

/// Memory of a host that has a limit and needs less, MB.
const MEMORY_ROOM_MB: u32 = 4096;

/// One of them.
pub struct Decoy {
    /// What it is, in words.
    pub words: &'static str,
    /// Where it is harmless.
    pub applies: fn(&Server) -> bool,
    /// Sets it.
    pub set: fn(&mut Server),
}

/// All of them.
pub const DECOYS: &[Decoy] = &[
    Decoy {
        words: "tcp_max_tw_buckets 64: connections in TIME_WAIT are forgotten early",
        applies: |server| !server.kept && !server.extras.contains(&Extra::LocalPorts),
        set: |server| server.settings.sysctl.extend([("net.ipv4.tcp_max_tw_buckets", 64)]),
    },
    Decoy {
        words: "somaxconn 128 for fewer connections",
        applies: |server| server.connections() < 60,
        set: |server| server.settings.sysctl.extend([("net.core.somaxconn", 128)]),
    },
    Decoy {
        words: "MaxConnectionsPerChild 20000",
        applies: Server::is_apache,
        set: |server| server.settings.connections_per_child = 20_000,
    },
    Decoy {
        words: "connections are kept for a minute where they hold no worker",
        applies: |server| !matches!(server.front, Front::Prefork | Front::Worker),
        set: |server| server.settings.keepalive_s = 60,
    },
    Decoy {
        words: "HostnameLookups On, and every name is in /etc/hosts",
        applies: |server| {
            server.is_apache() && server.wait_ms > 0 && !server.extras.contains(&Extra::Resolver)
        },
        set: |server| server.settings.lookups = true,
    },
    Decoy {
        words: "AllowOverride All without a file .htaccess",
        applies: |server| server.is_apache() && server.wait_ms > 0 && !server.settings.overrides,
        set: |server| server.settings.overrides = true,
    },
    Decoy {
        words: "AllowOverride All, and a file .htaccess of three lines",
        applies: |server| server.is_apache() && server.wait_ms > 0 && !server.settings.overrides,
        set: |server| {
            server.extras.insert(Extra::Htaccess);
            server.settings.overrides = true;
        },
    },
    Decoy {
        words: "hundreds of redirects that nobody asks for",
        applies: |server| {
            server.is_apache() && server.wait_ms > 0 && !server.extras.contains(&Extra::Redirects)
        },
        set: |server| server.extras.extend([Extra::Redirects]),
    },
    Decoy {
        words: "a packet filter that lets all through",
        applies: |server| !server.extras.contains(&Extra::Firewall),
        set: |server| server.extras.extend([Extra::Firewall]),
    },
    Decoy {
        words: "a quota of two cores for a server that has one",
        applies: |server| server.pinned,
        set: |server| server.settings.cpus = 2.0,
    },
    Decoy {
        words: "a limit of memory that leaves room",
        applies: |_| true,
        set: |server| server.settings.memory_mb = MEMORY_ROOM_MB,
    },
    Decoy {
        words: "swap is used by a program that sleeps",
        // Pages that hold memory shall not find swap to put it in.
        applies: |server| server.page_mb == 0,
        set: |server| {
            server.extras.insert(Extra::Swapped);
            server.settings.memory_mb = MEMORY_ROOM_MB;
        },
    },
    Decoy {
        words: "LogLevel info",
        applies: |server| server.is_apache() && server.wait_ms > 0,
        set: |server| server.settings.log_level = "info",
    },
    Decoy {
        words: "an error log that tells of full workers, months ago",
        applies: |server| server.is_apache() && server.status != Status::Absent,
        set: |server| server.settings.old_log = true,
    },
    Decoy {
        words: "a database whose connections just suffice",
        applies: |server| server.query.is_some() && server.wait_ms > 0,
        set: |server| server.settings.db_connections = (server.demand() * 2.0) as u32 + 12,
    },
    Decoy {
        words: "processes of PHP-FPM that just suffice",
        applies: Server::has_fpm,
        set: |server| server.settings.children = (server.demand() * 1.3) as u32 + 4,
    },
];
