//! The report of a load: the JSON of `webdyno run`, as docs/contract.md fixes it.

pub use crate::client::ClientReport;
use crate::distribution::{Dist, PercentileNeed};
use crate::environment::Environment;
use crate::harm_guard::HarmGuardTrip;
use crate::interval::{ConnectionCounts, ErrorCounts};
pub use crate::page::PageReport;
use crate::page::{Ablation, VisitCounts};
use crate::repeats::Repeats;
use crate::worker::WorkerReport;
use crate::workload::{Clock, Workload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema of [`RunReport`].
pub const SCHEMA: &str = "webdyno/run/v1";

/// How near a load came to what it was to send again.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Replay {
    /// Requests of the list.
    pub planned_requests: u64,
    /// Requests that were started.
    pub started_requests: u64,
    /// Starts of the busiest second that was planned.
    pub planned_peak_rate: f64,
    /// Starts of the busiest second of the load; `None` of less than a second.
    pub peak_rate: Option<f64>,
    /// The largest difference of a name's share of the requests from its share of the list, 0 to 1.
    pub mix_difference: Option<f64>,
    /// The name that has it.
    pub mix_name: Option<String>,
    /// Sessions that were planned; `None` of a list of requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned_sessions: Option<u64>,
    /// Sessions that were begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_sessions: Option<u64>,
    /// The most sessions that were planned to be active, begun and not ended, at the end of a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned_active_sessions: Option<u64>,
    /// The most that were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_sessions: Option<u64>,
}

/// The report of one load, over its measured part (after the warm-up).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was sent, secrets replaced.
    pub workload: Option<Workload>,
    /// The machine of the generator.
    pub environment: Environment,
    /// Length of the measured part.
    pub elapsed_s: f64,
    /// Seconds cut from the start as warm-up.
    pub warmup_s: f64,
    /// Why they were cut; `None` when none were, and in recordings of before it was kept.
    #[serde(default)]
    pub warmup_why: Option<String>,
    /// Seconds cut from the end as ramp-down.
    #[serde(default)]
    pub ramp_down_s: f64,
    /// Sent against planned, of a list or of sessions that are sent in turn and in stages (`workload from-log`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// started = completed + failed + in_flight_at_end.
    pub requests: RequestCounts,
    /// Page loads; `None` when the workload has no pages.
    pub pages: Option<PageReport>,
    /// What visitors did; `None` when the workload has no visits.
    #[serde(default)]
    pub visits: Option<VisitCounts>,
    /// The same load without something; `None` when it was not made.
    #[serde(default)]
    pub ablation: Option<Ablation>,
    /// Successful requests per second.
    pub rate: Option<f64>,
    /// Bytes of HTTP, before encryption.
    pub bytes: ByteCounts,
    /// Answers by status.
    pub status: BTreeMap<String, u64>,
    /// Failures by class.
    pub errors: ErrorCounts,
    /// Connections.
    pub connections: ConnectionCounts,
    /// From the intended start: successful requests, and timeouts at their bound.
    pub response_time_us: Dist,
    /// Percentiles of the response time that the run is too short for, by name (`p999`); their values stay.
    #[serde(default)]
    pub unsupported_percentiles: Vec<String>,
    /// What each of those takes.
    #[serde(default)]
    pub percentiles_need: BTreeMap<String, PercentileNeed>,
    /// From the first byte sent, of the same requests; one of which nothing was sent has none.
    pub service_time_us: Dist,
    /// From the start of a connection until it can carry TLS or a request.
    pub connect_time_us: Dist,
    /// Of these connections, those that took as long as lost SYNs cost.
    #[serde(default)]
    pub connect_peaks: Vec<ConnectPeak>,
    /// From the first byte sent to the first read of the answer.
    pub first_byte_us: Dist,
    /// Added by the generator before it sent: from when it could have until it did.
    pub client_delay_us: Dist,
    /// TLS handshakes, from when the connection could carry them until the request could be sent.
    #[serde(default)]
    pub tls_handshake_us: Dist,
    /// How long the last bytes of answers lay in the kernel before the engine read them, on stamped connections.
    #[serde(default)]
    pub receive_delay_us: Dist,
    /// Whose clock ended the times.
    #[serde(default)]
    pub clock: ClockReport,
    /// Smoothed round trips of sampled connections; up to 40 ms of them may be a delayed acknowledgement.
    #[serde(default)]
    pub round_trip_us: Dist,
    /// What TCP did on the sampled connections.
    #[serde(default)]
    pub tcp: TcpReport,
    /// Redirects that were followed.
    #[serde(default)]
    pub redirects: u64,
    /// Failed requests that are not timeouts.
    pub failed_time_us: Dist,
    /// Requests in flight at the end: how long they had been waiting (censored: they would have taken longer).
    pub censored_time_us: Dist,
    /// Whether the generator kept up.
    pub client: ClientReport,
    /// The machines that made it, each over the whole load; none when it was this one alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerReport>,
    /// Why the load was stopped before its end; `None` when it did no harm that was seen.
    pub brake: Option<HarmGuardTrip>,
    /// Objectives and whether they were met.
    pub objectives: Vec<ObjectiveResult>,
    /// The other runs of the same load; `None` when it was made once.
    #[serde(default)]
    pub repeats: Option<Repeats>,
    /// Figures by request name, when there are several.
    pub requests_by_name: BTreeMap<String, NamedReport>,
    /// The measured part, second by second.
    pub intervals: Vec<IntervalReport>,
}

/// An objective with what was measured: times in microseconds, errors as a fraction, rates per second.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ObjectiveResult {
    /// As the user wrote it.
    pub slo: String,
    /// `None` when nothing was measured; then it is not met.
    pub value: Option<f64>,
    /// Whether it was met.
    pub met: bool,
    /// Whether the value is a percentile that the run is too short for: chance decided it.
    #[serde(default)]
    pub unsupported: bool,
    /// Of a bound on a time: requests in flight at the end that have taken longer already, at least. Enough of them miss it,
    /// whatever those took that ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub in_flight_beyond: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// started = completed + failed + in_flight_at_end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Intended starts.
    pub started: u64,
    /// Successful requests.
    pub completed: u64,
    /// Everything else that ended.
    pub failed: u64,
    /// Neither, when the load ended.
    pub in_flight_at_end: u64,
}

/// Bytes of HTTP, before encryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ByteCounts {
    /// Answers, headers included.
    pub received: u64,
    /// Requests.
    pub sent: u64,
}

/// Whose clock ended the times of answers, and what the kernel stamped when it received it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClockReport {
    /// The engine's or the kernel's; `None` when nothing was sent.
    pub ended_by: Option<Clock>,
    /// Connections that were stamped, since the load began.
    pub connections_stamped: u64,
    /// Answers whose end has a stamp.
    pub answers_stamped: u64,
    /// Answers on stamped connections whose end has none that can be believed: the engine's clock ended their times.
    pub answers_without_stamp: u64,
}

/// What the kernel's TCP counted on the connections that were sampled; `None` is unknown, as when none was.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct TcpReport {
    /// Readings of a connection.
    pub readings: u64,
    /// Segments sent (SYNs and data), acknowledgements left out.
    pub segments_sent: Option<u64>,
    /// Of these, those that were sent again.
    pub segments_retransmitted: Option<u64>,
    /// Their share.
    pub retransmitted_fraction: Option<f64>,
    /// The shortest round trip.
    pub round_trip_min_us: Option<u64>,
}

/// Connections that took as long as it takes when a number of SYNs is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectPeak {
    /// When the SYN that came through was sent, after the first one.
    pub after_s: u64,
    /// SYNs (or answers to them) that were lost before.
    pub lost_syns: u32,
    /// How many connections.
    pub count: u64,
}

/// One request's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedReport {
    /// Successful requests.
    pub completed: u64,
    /// The others.
    pub failed: u64,
    /// From the intended start.
    pub response_time_us: Dist,
}

/// One second as reports show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IntervalReport {
    /// Start, seconds since the load began.
    pub t_s: f64,
    /// Successful requests per second.
    pub rate: f64,
    /// Completed pages per second; `None` when the workload has no pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_rate: Option<f64>,
    /// Median response time.
    pub p50_us: Option<u64>,
    /// 99th percentile.
    pub p99_us: Option<u64>,
    /// Failures.
    pub failed: u64,
    /// Requests in flight at its end.
    pub in_flight: u64,
}
