//! What access logs say of a site, as docs/contract.md fixes it.

use crate::distribution::Dist;
use serde::{Deserialize, Serialize};

/// The schema of [`LogsReport`].
pub const SCHEMA: &str = "webdyno/logs/v1";

/// A log that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSource {
    /// File, or `stdin`.
    pub name: String,
    /// Formats of its lines, most frequent first; empty where none was recognised.
    pub formats: Vec<String>,
    /// Size, decompressed.
    pub size_bytes: u64,
    /// Why it ended early: a compressed file that is cut off or damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_off: Option<String>,
}

/// Lines, by what became of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LineCounts {
    /// All.
    pub total: u64,
    /// Empty ones and comments.
    pub blank: u64,
    /// Of no known format.
    pub not_understood: u64,
    /// The first of these, up to three, without addresses and query strings.
    pub samples: Vec<String>,
}

/// The most within a span of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogPeak {
    /// Its beginning, RFC 3339 in UTC.
    pub at: String,
    /// Requests per second in it.
    pub rate: f64,
}

/// Requests over the whole log, in steps of the clock (UTC).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogTimeline {
    /// The beginning of the first step, RFC 3339.
    pub from: String,
    /// Length of a step.
    pub step_s: u64,
    /// Requests of each step, up to 500 of them.
    pub requests: Vec<u64>,
    /// Bytes of each; empty where they are not known of all hours.
    pub bytes: Vec<u64>,
}

/// Requests over time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LogRates {
    /// First request, RFC 3339 in UTC; `None` without requests.
    pub first: Option<String>,
    /// Last request.
    pub last: Option<String>,
    /// From the first to the last second, both included.
    pub span_s: Option<u64>,
    /// Mean requests per second.
    pub mean: Option<f64>,
    /// Busiest second.
    pub peak_second: Option<LogPeak>,
    /// Busiest minute of the clock.
    pub peak_minute: Option<LogPeak>,
    /// Busiest hour of the clock.
    pub peak_hour: Option<LogPeak>,
    /// Mean bytes per second.
    pub bytes_mean_per_s: Option<f64>,
    /// Bytes per second of the minute with the most bytes.
    pub bytes_peak_minute_per_s: Option<f64>,
    /// Requests by hour of the day, local time of the log, from 0.
    pub by_hour: Vec<u64>,
    /// Requests by weekday, local time of the log, from Monday.
    pub by_weekday: Vec<u64>,
    /// Index of dispersion of the requests in a second: variance over mean within hours; 1 is a Poisson process.
    pub dispersion_1s: Option<f64>,
    /// The same of 10 seconds.
    pub dispersion_10s: Option<f64>,
    /// The same of minutes.
    pub dispersion_60s: Option<f64>,
    /// The timeline of the log; `None` without requests.
    #[serde(default)]
    pub timeline: Option<LogTimeline>,
}

/// Requests of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogShare {
    /// A type, a status, a method, a bot.
    pub name: String,
    /// Requests.
    pub requests: u64,
    /// Bytes of their responses; `None` where not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Static or dynamic requests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LogPart {
    /// Requests.
    pub requests: u64,
    /// Bytes of their responses.
    pub bytes: u64,
    /// Service times; `None` where the log has none.
    pub service_time_us: Option<Dist>,
}

/// A URL without its query (unless asked for).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LogUrl {
    /// Site, where the format has it, and path.
    pub url: String,
    /// What it is, by its ending.
    pub kind: String,
    /// Requests.
    pub requests: u64,
    /// Bytes of all responses.
    pub bytes: u64,
    /// Statuses from 400 to 499.
    pub client_errors: u64,
    /// Statuses from 500.
    pub server_errors: u64,
    /// Mean service time, microseconds; `None` where the log has none.
    pub service_time_mean_us: Option<f64>,
    /// Longest service time, microseconds.
    pub service_time_us_max: Option<u64>,
}

/// The URLs that matter, up to ten by each measure.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LogUrls {
    /// Whether the counts are exact; else URLs are left out, and counts may be too small by requests that came before a URL mattered.
    pub exact: bool,
    /// By requests.
    pub by_requests: Vec<LogUrl>,
    /// By bytes.
    pub by_bytes: Vec<LogUrl>,
    /// The most expensive: by the sum of their service times.
    pub by_service_time: Vec<LogUrl>,
    /// The slowest: by mean service time, of those with ten requests or more.
    pub slowest: Vec<LogUrl>,
    /// By server errors, then client errors.
    pub by_errors: Vec<LogUrl>,
}

/// How many different values there are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cardinality {
    /// How many.
    pub count: u64,
    /// Whether they were counted; else estimated, with a standard error of 0.4%.
    pub exact: bool,
}

/// Sessions of clients (address and user agent), bots apart.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LogSessions {
    /// How many.
    pub sessions: f64,
    /// Requests of a session.
    pub requests_mean: f64,
    /// Pages of a session.
    pub pages_mean: f64,
    /// From first to last request.
    pub duration_us: Dist,
    /// From a page to the next one of the session, in whole seconds; 0 is left out.
    pub think_time_us: Dist,
    /// A longer pause ends a session.
    pub pause_s: u64,
    /// Share of the clients that were followed.
    pub sampled_fraction: f64,
}

/// Clients that declare themselves to be programs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogBots {
    /// Requests.
    pub requests: u64,
    /// Bytes of their responses.
    pub bytes: u64,
    /// The busiest ones, up to ten.
    pub names: Vec<LogShare>,
}

/// What a cache of a size does: least recently used goes first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CachePoint {
    /// Size of the cache.
    pub cache_bytes: f64,
    /// Share of the requests that it misses; a first request always misses.
    pub miss_fraction: f64,
    /// Share of the bytes.
    pub byte_miss_fraction: f64,
}

/// Memory for a share of the hits that an endless cache would have.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HitSize {
    /// Share of the requests that can hit, those for something that was requested before.
    pub hit_fraction: f64,
    /// Size of the cache.
    pub cache_bytes: f64,
}

/// The working set: successful GET requests through a cache of whole responses.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LogWorkingSet {
    /// Different objects, URLs with their queries.
    pub objects: f64,
    /// Bytes of all of them.
    pub footprint_bytes: f64,
    /// For 80, 95 and 99% of the hits that are possible.
    pub sizes: Vec<HitSize>,
    /// From here on more memory brings little; `None` where the curve has no knee.
    pub knee: Option<CachePoint>,
    /// The miss-ratio curve, up to 200 points.
    pub curve: Vec<CachePoint>,
    /// Share of the objects that were sampled.
    pub sampled_fraction: f64,
}

/// What access logs say of a site.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LogsReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The logs, in the order in which they were read: by their first time.
    pub logs: Vec<LogSource>,
    /// Lines.
    pub lines: LineCounts,
    /// Requests.
    pub requests: u64,
    /// Bytes of all responses.
    pub bytes: u64,
    /// Requests over time.
    pub rates: LogRates,
    /// By type of content, by the ending of the path.
    pub types: Vec<LogShare>,
    /// By status.
    pub statuses: Vec<LogShare>,
    /// By method.
    pub methods: Vec<LogShare>,
    /// Share of the requests with a status of 500 or more; `None` without requests.
    pub server_error_fraction: Option<f64>,
    /// Share of the requests with a status from 400 to 499.
    pub client_error_fraction: Option<f64>,
    /// Sizes of responses with a body, bytes.
    pub response_size: Dist,
    /// Files: styles, scripts, images, fonts, media, downloads.
    pub static_requests: LogPart,
    /// All others: pages, programs, data.
    pub dynamic_requests: LogPart,
    /// URLs that matter.
    pub urls: LogUrls,
    /// Different URLs, without queries.
    pub urls_distinct: Cardinality,
    /// Different addresses.
    pub clients_distinct: Cardinality,
    /// The busiest clients, up to ten; only with --show-clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<LogShare>,
    /// Sessions; `None` where the format has no client or no request of one.
    pub sessions: Option<LogSessions>,
    /// Bots.
    pub bots: LogBots,
    /// Working set; `None` without successful GET requests.
    pub working_set: Option<LogWorkingSet>,
    /// What cannot be told, and why. Sentences.
    pub notes: Vec<String>,
}
