//! The settings of nginx that webdyno changes: where each stands, and which values it takes.
//!
//! Facts: <https://nginx.org/en/docs/ngx_core_module.html>, <https://nginx.org/en/docs/http/ngx_http_core_module.html>,
//! <https://nginx.org/en/docs/http/ngx_http_ssl_module.html>, <https://nginx.org/en/docs/http/ngx_http_log_module.html>,
//! <https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive>, and `max_conns` of its `server`. nginx starts its workers anew for every reload, so
//! that all of these are read again; and it calls listen(2) again for a socket whose backlog has changed (ngx_init_cycle in
//! src/core/ngx_cycle.c). What protects a site (limits of rates, TLS versions) or decides what it answers is not here.

use crate::services::common::shape::{self, Shape};

/// Where a setting stands, and how it is written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Outside of all blocks.
    Main,
    /// `events`.
    Events,
    /// `http`.
    Http,
    /// A parameter of each log that is a file and has none.
    Logs,
    /// A parameter of one `listen` for each address of the port.
    Listeners,
    /// An `upstream`, with what keeps its connections in the locations that pass requests to it.
    Upstream,
    /// A parameter of one `server` of an `upstream`.
    UpstreamServer,
}

impl Place {
    /// The block that a directive is written into that is nowhere yet; `None` for none.
    pub fn block(self) -> Option<&'static str> {
        match self {
            Self::Events => Some("events"),
            Self::Http => Some("http"),
            Self::Upstream => Some("upstream"),
            Self::Main | Self::Logs | Self::Listeners | Self::UpstreamServer => None,
        }
    }
}

/// A setting that webdyno changes.
pub type Setting = shape::Setting<Place>;

/// Sessions of some 40,000 visitors, shared by all workers.
pub const SSL_SESSION_CACHE: &str = "shared:webdyno:10m";

/// What a line of the log waits for: other lines, or a second. Workers write a block at a time.
pub const LOG_BUFFER: &str = "64k flush=1s";

/// All of them.
#[rustfmt::skip] // a table, one setting a line
pub const SETTINGS: [Setting; 15] = [
    Setting { name: "worker_processes",     place: Place::Main,   shape: Shape::Integer(1, 1_024) },
    Setting { name: "worker_rlimit_nofile", place: Place::Main,   shape: Shape::Integer(64, 1_048_576) },
    Setting { name: "worker_connections",   place: Place::Events, shape: Shape::Integer(16, 1_048_576) },
    Setting { name: "listen backlog",       place: Place::Listeners, shape: Shape::Integer(1, 65_535) },
    Setting { name: "access_log buffer",    place: Place::Logs,   shape: Shape::Word(&[LOG_BUFFER]) },
    Setting { name: "server max_conns",     place: Place::UpstreamServer, shape: Shape::Integer(1, 1_000_000) },
    Setting { name: "keepalive",            place: Place::Upstream, shape: Shape::Integer(1, 1_024) },
    Setting { name: "keepalive_timeout",    place: Place::Http,   shape: Shape::Time },
    Setting { name: "keepalive_requests",   place: Place::Http,   shape: Shape::Integer(1, 10_000_000) },
    Setting { name: "sendfile",             place: Place::Http,   shape: Shape::Word(&["on", "off"]) },
    Setting { name: "tcp_nopush",           place: Place::Http,   shape: Shape::Word(&["on", "off"]) },
    Setting { name: "gzip_comp_level",      place: Place::Http,   shape: Shape::Integer(1, 9) },
    Setting { name: "ssl_session_cache",    place: Place::Http,   shape: Shape::Word(&[SSL_SESSION_CACHE]) },
    Setting { name: "ssl_session_tickets",  place: Place::Http,   shape: Shape::Word(&["on"]) },
    Setting { name: "ssl_session_timeout",  place: Place::Http,   shape: Shape::Time },
];

/// A setting by its name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}
