//! One second of load results, and what the generator says of itself.

use crate::histogram::EncodedHistogram;
use crate::page::{PageInterval, VisitCounts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The results of one second of load, of all threads together. A request counts in the interval in which it ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Interval {
    /// Start, seconds since the load began.
    pub t_s: f64,
    /// Length; one second except for the last one.
    pub length_us: u64,
    /// Requests whose intended start fell into it.
    pub started: u64,
    /// Successful requests.
    pub completed: u64,
    /// Everything that was not successful.
    pub failed: u64,
    /// Requests started and not ended, at its end.
    pub in_flight: u64,
    /// The integral of requests in flight over its time, in request-microseconds: divided by the length, the mean.
    pub in_flight_us: u64,
    /// Bytes of answers, headers included.
    pub bytes_received: u64,
    /// Of these, bytes of bodies as they were sent, codings of the transfer taken off; 0 in recordings of before it was kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub body_bytes: u64,
    /// Bytes of requests.
    pub bytes_sent: u64,
    /// Answers by status code, good or not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub status: BTreeMap<String, u64>,
    /// Failures by class.
    #[serde(default)]
    pub errors: ErrorCounts,
    /// What happened to connections.
    #[serde(default)]
    pub connections: ConnectionCounts,
    /// From the intended start to the last byte: successful requests, and timeouts at their bound.
    pub response_time: Option<EncodedHistogram>,
    /// From the actual send to the last byte, of the same requests.
    pub service_time: Option<EncodedHistogram>,
    /// From the start of a connection until it was established.
    pub connect_time: Option<EncodedHistogram>,
    /// From the actual send to the first byte of the answer.
    pub first_byte: Option<EncodedHistogram>,
    /// What the generator itself added between when it could have sent a request and when it did.
    pub client_delay: Option<EncodedHistogram>,
    /// From the intended start to the failure, of failed requests that are not timeouts.
    pub failed_time: Option<EncodedHistogram>,
    /// TLS handshakes of new connections, from when the connection could carry them to the last byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_handshake: Option<EncodedHistogram>,
    /// On connections that the kernel stamps: from the arrival of an answer's last byte until the engine read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_delay: Option<EncodedHistogram>,
    /// Smoothed round trips of sampled connections, as the kernel's TCP sees them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<EncodedHistogram>,
    /// What TCP did on the sampled connections.
    #[serde(default, skip_serializing_if = "TcpCounts::is_empty")]
    pub tcp: TcpCounts,
    /// What the kernel stamped.
    #[serde(default, skip_serializing_if = "RxTimestampCounts::is_empty")]
    pub stamps: RxTimestampCounts,
    /// Redirects that were followed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub redirects: u64,
    /// CPU of all engine threads.
    pub cpu_us: u64,
    /// CPU of the busiest engine thread.
    pub cpu_us_max_thread: u64,
    /// CPU of each engine thread; empty in recordings of before it was kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thread_cpu_us: Vec<u64>,
    /// By name of the request, when the workload has more than one name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_name: BTreeMap<String, NamedInterval>,
    /// Pages, when the workload has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<Box<PageInterval>>,
    /// What visitors did.
    #[serde(default, skip_serializing_if = "VisitCounts::is_empty")]
    pub visits: VisitCounts,
}

/// One request's share of an interval.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NamedInterval {
    /// Successful requests.
    pub completed: u64,
    /// Everything that was not.
    pub failed: u64,
    /// As in [`Interval::response_time`].
    pub response_time: Option<EncodedHistogram>,
}

/// Failures by the class that a user can act on. Each failed request counts in exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorCounts {
    /// The name did not resolve.
    pub dns: u64,
    /// Nothing listens there.
    pub connect_refused: u64,
    /// No answer to the connection attempt.
    pub connect_timeout: u64,
    /// No route, or the network refused.
    pub unreachable: u64,
    /// This machine has no free local port towards the server.
    pub local_ports_exhausted: u64,
    /// This process may open no more files.
    pub no_descriptors: u64,
    /// The server reset the connection.
    pub reset: u64,
    /// The connection closed before the answer was complete.
    pub closed_early: u64,
    /// No complete answer within the timeout.
    pub timeout: u64,
    /// TLS failed.
    pub tls: u64,
    /// The proxy made no tunnel: it refused, closed, or did not answer in HTTP.
    pub proxy: u64,
    /// The answer was not HTTP.
    pub protocol: u64,
    /// The HTTP/2 stream was reset.
    pub h2_reset: u64,
    /// A status that does not count as good.
    pub status: u64,
    /// A call of gRPC ended with another status than OK.
    pub grpc: u64,
    /// An expectation was not met.
    pub expect: u64,
}

impl ErrorCounts {
    /// Every class with its name, in the order of the contract.
    pub fn named(&self) -> [(&'static str, u64); 16] {
        [
            ("dns", self.dns),
            ("connect_refused", self.connect_refused),
            ("connect_timeout", self.connect_timeout),
            ("unreachable", self.unreachable),
            ("local_ports_exhausted", self.local_ports_exhausted),
            ("no_descriptors", self.no_descriptors),
            ("reset", self.reset),
            ("closed_early", self.closed_early),
            ("timeout", self.timeout),
            ("tls", self.tls),
            ("proxy", self.proxy),
            ("protocol", self.protocol),
            ("h2_reset", self.h2_reset),
            ("status", self.status),
            ("grpc", self.grpc),
            ("expect", self.expect),
        ]
    }

    /// All failures.
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.dns += other.dns;
        self.connect_refused += other.connect_refused;
        self.connect_timeout += other.connect_timeout;
        self.unreachable += other.unreachable;
        self.local_ports_exhausted += other.local_ports_exhausted;
        self.no_descriptors += other.no_descriptors;
        self.reset += other.reset;
        self.closed_early += other.closed_early;
        self.timeout += other.timeout;
        self.tls += other.tls;
        self.proxy += other.proxy;
        self.protocol += other.protocol;
        self.h2_reset += other.h2_reset;
        self.status += other.status;
        self.grpc += other.grpc;
        self.expect += other.expect;
    }
}

/// What happened to connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionCounts {
    /// Established.
    pub opened: u64,
    /// Requests sent on a connection that had carried one before.
    pub reused: u64,
    /// Most open at once (within the interval; in reports, within the run).
    pub peak: u64,
    /// Kept connections that the server closed between requests, also with a 408 as its last word: normal, not a failure.
    pub quiet_closes: u64,
    /// Requests that were sent again on a fresh connection, as such a close had crossed them.
    pub resent: u64,
    /// Of the connections opened, those that resumed a TLS session.
    pub tls_resumed: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What the kernel's TCP counted on the connections that were sampled (TCP_INFO of tcp(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpCounts {
    /// Readings of a connection.
    pub readings: u64,
    /// Segments that were sent on them, acknowledgements left out: SYNs and data, those sent again included.
    pub segments_sent: u64,
    /// Of these, those that were sent again.
    pub segments_retransmitted: u64,
    /// The shortest round trip.
    pub round_trip_min_us: Option<u64>,
}

impl TcpCounts {
    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.readings == 0
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.readings += other.readings;
        self.segments_sent += other.segments_sent;
        self.segments_retransmitted += other.segments_retransmitted;
        let shortest = [self.round_trip_min_us, other.round_trip_min_us];
        self.round_trip_min_us = shortest.into_iter().flatten().min();
    }
}

/// What the kernel stamped when it received it (SO_TIMESTAMPING), on the connections that had it stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RxTimestampCounts {
    /// Connections opened that are stamped.
    pub connections: u64,
    /// Answers on them whose end has a stamp.
    pub answers: u64,
    /// Answers on them whose end has none that can be believed: they ended with a close, stamping was not switched on
    /// yet, or somebody set the clock. The engine's clock ended their times.
    pub answers_without: u64,
}

impl RxTimestampCounts {
    /// Whether nothing was to be stamped.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.answers += other.answers;
        self.answers_without += other.answers_without;
    }
}

impl ConnectionCounts {
    /// Adds counts of a later time: sums, and the larger peak.
    pub fn add(&mut self, other: &Self) {
        self.opened += other.opened;
        self.reused += other.reused;
        self.peak = self.peak.max(other.peak);
        self.quiet_closes += other.quiet_closes;
        self.resent += other.resent;
        self.tls_resumed += other.tls_resumed;
    }
}

/// How a load ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LoadEnd {
    /// From the start to the end.
    pub elapsed_us: u64,
    /// Requests sent and not answered at the end.
    pub in_flight_at_end: u64,
    /// Of these, the ones that were due but still waited for a connection (open arrival, all connections busy).
    pub waiting_at_end: u64,
    /// The same time for the requests in flight at the end: from the intended start to the end (censored samples).
    pub censored_time: Option<EncodedHistogram>,
    /// CPU of each engine thread over the whole load.
    pub thread_cpu_us: Vec<u64>,
    /// Why it ended.
    pub reason: EndReason,
}

/// Why a load ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The duration was over.
    #[default]
    Duration,
    /// All requests had an outcome.
    Requests,
    /// The session had seen enough.
    Enough,
    /// The user interrupted it.
    Interrupted,
    /// For a long time no connection came about, and requests that were still to be sent would have failed too.
    Hopeless,
    /// It began to do harm: see [`crate::harm_guard`].
    Braked,
    /// It verified a change, and it became clear that the change is worse.
    StopLoss,
    /// An objective could no longer be met, whatever followed.
    ObjectiveLost,
    /// One of the machines that made it was lost, and with it its part.
    WorkerLost,
}
