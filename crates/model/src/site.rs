//! What kind of site a load met: advice depends on it. What could not be told is `None`.

use serde::{Deserialize, Serialize};

/// A site as a load, or a watch, met it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Site {
    /// What was asked for, the largest share first; empty without load of our own.
    pub urls: Vec<SiteUrl>,
    /// Whether connections are kept.
    pub keep_alive: KeepAlive,
    /// Mean size of an answer, with its head, as it came.
    pub answer_bytes_mean: Option<f64>,
    /// Encryption.
    pub tls: SiteTls,
    /// What answers behind the server, or is there to.
    pub backends: Vec<SiteBackend>,
}

/// How answers come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SiteKind {
    /// Files.
    Static,
    /// A program makes each answer.
    Dynamic,
}

/// A URL that was asked for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SiteUrl {
    /// Its path, without the query.
    pub path: String,
    /// Its share of the requests.
    pub share_fraction: Option<f64>,
    /// How its answer comes about.
    pub kind: Option<SiteKind>,
    /// How that was recognised, in words; why not, where it was not.
    pub how: String,
}

/// Whether connections are used again.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeepAlive {
    /// By the clients.
    pub wanted: Option<bool>,
    /// By the settings of the server.
    pub allowed: Option<bool>,
    /// The share of the requests that came on a connection that was there.
    pub reused_fraction: Option<f64>,
}

/// Encryption of the connections.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SiteTls {
    /// Whether there is any.
    pub used: Option<bool>,
    /// Handshakes for each request.
    pub handshakes_per_request: Option<f64>,
    /// The share of them that resumed a session.
    pub resumed_fraction: Option<f64>,
    /// The kind of the server's key: `RSA 2048`.
    pub key: Option<String>,
}

/// A program behind the server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SiteBackend {
    /// `php_fpm`, `mariadb`.
    pub service: String,
    /// The socket it is reached by.
    pub by: Option<String>,
    /// Connections when it was looked.
    pub connections_count: Option<u64>,
    /// Processor time that it took, in cores.
    pub cpu_cores: Option<f64>,
}
