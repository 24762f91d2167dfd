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
    /// What a cache in front could answer; `None` where no request was sent twice, or all that was are files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<SiteCache>,
}

/// What a cache in front could answer that keeps each answer for a second.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SiteCache {
    /// Each URL that was looked at, the largest share first.
    pub urls: Vec<SiteCacheUrl>,
    /// The share of the requests that it could answer: their answers were seen to repeat, and a program makes them.
    pub cacheable_fraction: f64,
    /// The share of the requests of which that is known, either way.
    pub known_fraction: f64,
    /// Successful requests per second with it; `None` where that cannot be predicted.
    pub predicted_rate: Option<f64>,
    /// Its 95% interval.
    pub predicted_ci95: Option<[f64; 2]>,
    /// Requests per second that would reach the application at that rate.
    pub application_rate: Option<f64>,
    /// Why there is no prediction.
    pub not_predicted: Option<String>,
}

/// A URL that was asked for twice.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SiteCacheUrl {
    /// The URL, the values of secret parameters replaced.
    pub url: String,
    /// Its share of the requests.
    pub share_fraction: Option<f64>,
    /// Whether a cache could answer it, and would take work off a program; `None` where that was not seen.
    pub cacheable: Option<bool>,
    /// How that was recognised, in words.
    pub how: String,
    /// What it took when it was sent alone, microseconds.
    pub alone_us: Option<u64>,
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
