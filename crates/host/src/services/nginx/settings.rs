//! The settings of nginx that webdyno changes: where each stands, and which values it takes.
//!
//! Facts: <https://nginx.org/en/docs/ngx_core_module.html>, <https://nginx.org/en/docs/http/ngx_http_core_module.html>,
//! <https://nginx.org/en/docs/http/ngx_http_ssl_module.html>. nginx starts its workers anew for every reload, so that all of
//! these are read again. What protects a site (limits of rates, TLS versions) or decides what it answers is not here.

use crate::services::common::shape::Shape;

/// The block that a setting stands in when it is written for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    /// Outside of all blocks.
    Main,
    /// `events`.
    Events,
    /// `http`.
    Http,
}

impl Block {
    /// Its name; `None` for none.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Main => None,
            Self::Events => Some("events"),
            Self::Http => Some("http"),
        }
    }
}

/// A setting that webdyno changes.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// As the configuration names it.
    pub name: &'static str,
    /// Where it stands.
    pub block: Block,
    /// Its values.
    pub shape: Shape,
}

/// Sessions of some 40,000 visitors, shared by all workers.
pub const SSL_SESSION_CACHE: &str = "shared:webdyno:10m";

/// All of them.
#[rustfmt::skip] // a table, one setting a line
pub const SETTINGS: [Setting; 11] = [
    Setting { name: "worker_processes",     block: Block::Main,   shape: Shape::Integer(1, 1_024) },
    Setting { name: "worker_rlimit_nofile", block: Block::Main,   shape: Shape::Integer(64, 1_048_576) },
    Setting { name: "worker_connections",   block: Block::Events, shape: Shape::Integer(16, 1_048_576) },
    Setting { name: "keepalive_timeout",    block: Block::Http,   shape: Shape::Time },
    Setting { name: "keepalive_requests",   block: Block::Http,   shape: Shape::Integer(1, 10_000_000) },
    Setting { name: "sendfile",             block: Block::Http,   shape: Shape::Word(&["on", "off"]) },
    Setting { name: "tcp_nopush",           block: Block::Http,   shape: Shape::Word(&["on", "off"]) },
    Setting { name: "gzip_comp_level",      block: Block::Http,   shape: Shape::Integer(1, 9) },
    Setting { name: "ssl_session_cache",    block: Block::Http,   shape: Shape::Word(&[SSL_SESSION_CACHE]) },
    Setting { name: "ssl_session_tickets",  block: Block::Http,   shape: Shape::Word(&["on"]) },
    Setting { name: "ssl_session_timeout",  block: Block::Http,   shape: Shape::Time },
];

/// A setting by its name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}
