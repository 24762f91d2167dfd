//! The figures of one engine thread and one interval, counted so that every request appears exactly once.
//!
//! Started = completed + failed + in flight holds by construction at every cut. The integral of requests in flight
//! over an interval of length L is `n0 * L + sum(L - start) - sum(L - end)`, whatever the order of events: exact, so
//! that Little's law can be checked. It uses the same ends as the times, also when they are the kernel's.

mod visits;

pub(crate) use visits::{Labels, PageEnd, VisitReport};

use crate::results::failure::Failure;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::{ConnectionCounts, EndReason, ErrorCounts, RxTimestampCounts, TcpCounts};

/// One more than the highest status that has a counter.
const STATUS_CODES: usize = 1000;
pub(crate) const INTERVAL_NS: u64 = 1_000_000_000;

/// The figures of one thread and one interval. Allocated a few times at the start, then handed to and fro.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) index: u64,
    pub(crate) length_ns: u64,
    pub(crate) started: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) in_flight: u64,
    pub(crate) in_flight_ns: u128,
    pub(crate) bytes_received: u64,
    pub(crate) body_bytes: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) status: Vec<u64>,
    pub(crate) errors: ErrorCounts,
    pub(crate) connections: ConnectionCounts,
    pub(crate) response_time: TimeHistogram,
    pub(crate) service_time: TimeHistogram,
    pub(crate) connect_time: TimeHistogram,
    pub(crate) first_byte: TimeHistogram,
    pub(crate) client_delay: TimeHistogram,
    pub(crate) failed_time: TimeHistogram,
    pub(crate) tls_handshake: TimeHistogram,
    pub(crate) receive_delay: TimeHistogram,
    pub(crate) round_trip: TimeHistogram,
    pub(crate) tcp: TcpCounts,
    pub(crate) stamps: RxTimestampCounts,
    pub(crate) redirects: u64,
    pub(crate) cpu_ns: u64,
    /// By name, when there are several.
    pub(crate) named: Vec<NamedReport>,
    /// Pages and what visitors did.
    pub(crate) visits: VisitReport,
    /// In the thread's last report.
    pub(crate) thread_end: Option<ThreadEnd>,
}

/// The share of one request name.
#[derive(Debug, Default)]
pub(crate) struct NamedReport {
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) response_time: TimeHistogram,
}

#[derive(Debug, Clone)]
pub(crate) struct ThreadEnd {
    pub(crate) end_ns: u64,
    pub(crate) waiting: u64,
    pub(crate) censored_time: TimeHistogram,
    pub(crate) cpu_total_ns: u64,
    pub(crate) reason: EndReason,
}

impl Report {
    /// An empty report for figures of these names.
    pub(crate) fn new(labels: &Labels) -> Self {
        Self {
            status: vec![0; STATUS_CODES],
            named: labels.requests.iter().map(|_| NamedReport::default()).collect(),
            visits: VisitReport::new(labels),
            ..Self::default()
        }
    }

    /// As [`Report::new`], with its memory already mapped by the kernel: a page that is
    /// touched first while a request is due delays it. Histograms of names are not, there may be many.
    pub(crate) fn preallocated(labels: &Labels) -> Self {
        let mut report = Self::new(labels);
        for histogram in [
            &mut report.response_time,
            &mut report.service_time,
            &mut report.connect_time,
            &mut report.first_byte,
            &mut report.client_delay,
        ] {
            histogram.record(0);
        }
        report.clear();
        report
    }

    #[inline]
    fn record_service_time(&mut self, times: RequestTimes, end_ns: u64) {
        if let Some(sent_ns) = times.sent_ns {
            self.service_time.record(microseconds(sent_ns, end_ns));
        }
    }

    /// Its histograms, in a fixed order.
    fn histograms(&mut self) -> [&mut TimeHistogram; 9] {
        [
            &mut self.response_time,
            &mut self.service_time,
            &mut self.connect_time,
            &mut self.first_byte,
            &mut self.client_delay,
            &mut self.failed_time,
            &mut self.tls_handshake,
            &mut self.receive_delay,
            &mut self.round_trip,
        ]
    }

    /// Empties it and keeps its memory.
    pub(crate) fn clear(&mut self) {
        (self.index, self.length_ns, self.cpu_ns) = (0, 0, 0);
        (self.started, self.completed, self.failed) = (0, 0, 0);
        (self.in_flight, self.in_flight_ns) = (0, 0);
        (self.bytes_received, self.body_bytes, self.bytes_sent) = (0, 0, 0);
        self.status.fill(0);
        self.errors = ErrorCounts::default();
        self.connections = ConnectionCounts::default();
        (self.tcp, self.redirects) = (TcpCounts::default(), 0);
        self.stamps = RxTimestampCounts::default();
        self.histograms().into_iter().for_each(TimeHistogram::clear);
        self.named.iter_mut().for_each(NamedReport::clear);
        self.visits.clear();
        self.thread_end = None;
    }

    /// Adds what another thread saw of the same interval. Peaks add up: threads do not see each other's connections.
    pub(crate) fn merge(&mut self, other: &mut Self) {
        self.length_ns = self.length_ns.max(other.length_ns);
        self.started += other.started;
        self.completed += other.completed;
        self.failed += other.failed;
        self.in_flight += other.in_flight;
        self.in_flight_ns += other.in_flight_ns;
        self.bytes_received += other.bytes_received;
        self.body_bytes += other.body_bytes;
        self.bytes_sent += other.bytes_sent;
        for (sum, count) in self.status.iter_mut().zip(&other.status) {
            *sum += count;
        }
        self.errors.add(&other.errors);
        let peak = self.connections.peak + other.connections.peak;
        self.connections.add(&other.connections);
        self.connections.peak = peak;
        self.tcp.add(&other.tcp);
        self.stamps.add(&other.stamps);
        self.redirects += other.redirects;
        for (sum, histogram) in self.histograms().into_iter().zip(other.histograms()) {
            sum.merge(histogram);
        }
        self.named.iter_mut().zip(&other.named).for_each(|(sum, named)| sum.merge(named));
        self.visits.merge(&mut other.visits);
    }
}

/// When a request was intended and sent, and the name it counts under.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestTimes {
    pub(crate) intended_ns: u64,
    /// `None` for one that was never sent: it has no service time.
    pub(crate) sent_ns: Option<u64>,
    pub(crate) name: usize,
}

/// Counts into the report of the current interval.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) report: Box<Report>,
    interval_start_ns: u64,
    index: u64,
    in_flight: u64,
    in_flight_at_start: u64,
    /// Sum of `start - interval start` over the starts of this interval.
    starts_ns: u128,
    /// Sum of `end - interval start` over its ends.
    ends_ns: u128,
    /// Sum of `interval start - end` over the ends that lie before it: the kernel had the response when the earlier
    /// interval ended, which counted the request in flight to its end. This one subtracts that time.
    early_ns: u128,
    /// Sum of `interval start - start` over the starts that lie before it: of visitors who come back, whose first
    /// request shows only when they are admitted.
    late_ns: u128,
    open_connections: u64,
    cpu_before_ns: u64,
}

impl Recorder {
    /// At the start of a load; `cpu_ns` is what the thread has used so far.
    pub(crate) fn new(report: Box<Report>) -> Self {
        Self {
            report,
            interval_start_ns: 0,
            index: 0,
            in_flight: 0,
            in_flight_at_start: 0,
            starts_ns: 0,
            ends_ns: 0,
            early_ns: 0,
            late_ns: 0,
            open_connections: 0,
            cpu_before_ns: 0,
        }
    }

    /// When the current interval began.
    pub(crate) fn interval_start_ns(&self) -> u64 {
        self.interval_start_ns
    }

    /// When the current interval is to end.
    pub(crate) fn boundary_ns(&self) -> u64 {
        (self.index + 1) * INTERVAL_NS
    }

    /// Requests started and not ended.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Sets what the thread's CPU clock showed when the load began.
    pub(crate) fn set_cpu_start(&mut self, cpu_ns: u64) {
        self.cpu_before_ns = cpu_ns;
    }

    /// A request is due.
    #[inline]
    pub(crate) fn start(&mut self, intended_ns: u64) {
        self.report.started += 1;
        self.in_flight += 1;
        self.starts_ns += u128::from(intended_ns.saturating_sub(self.interval_start_ns));
        self.late_ns += u128::from(self.interval_start_ns.saturating_sub(intended_ns));
    }

    fn end(&mut self, end_ns: u64) {
        self.in_flight -= 1;
        self.ends_ns += u128::from(end_ns.saturating_sub(self.interval_start_ns));
        self.early_ns += u128::from(self.interval_start_ns.saturating_sub(end_ns));
    }

    /// A successful response.
    #[inline]
    pub(crate) fn complete(&mut self, times: RequestTimes, end_ns: u64) {
        self.end(end_ns);
        let report = &mut *self.report;
        report.completed += 1;
        let response_us = microseconds(times.intended_ns, end_ns);
        report.response_time.record(response_us);
        report.record_service_time(times, end_ns);
        if let Some(named) = report.named.get_mut(times.name) {
            named.completed += 1;
            named.response_time.record(response_us);
        }
    }

    /// Anything that was not a successful response. Timeouts count at `end_ns`, their bound.
    pub(crate) fn fail(&mut self, failure: Failure, times: RequestTimes, end_ns: u64) {
        self.end(end_ns);
        let report = &mut *self.report;
        report.failed += 1;
        failure.add_to(&mut report.errors);
        let response_us = microseconds(times.intended_ns, end_ns);
        if failure.is_timeout() {
            report.response_time.record(response_us);
            report.record_service_time(times, end_ns);
        } else {
            report.failed_time.record(response_us);
        }
        if let Some(named) = report.named.get_mut(times.name) {
            named.failed += 1;
            if failure.is_timeout() {
                named.response_time.record(response_us);
            }
        }
    }

    /// A response came to its end.
    #[inline]
    pub(crate) fn record_response(&mut self, status: u16, body_bytes: u64) {
        self.report.body_bytes += body_bytes;
        if let Some(count) = self.report.status.get_mut(usize::from(status)) {
            *count += 1;
        }
    }

    /// A read of a response's end on a timestamped connection: when the kernel had received it, if that is known.
    pub(crate) fn record_rx_timestamp(&mut self, received_ns: Option<u64>, read_ns: u64) {
        let report = &mut *self.report;
        match received_ns {
            Some(received_ns) => {
                report.stamps.answers += 1;
                report.receive_delay.record(microseconds(received_ns, read_ns));
            }
            None => report.stamps.answers_without += 1,
        }
    }

    /// A connection was established.
    pub(crate) fn connection_opened(&mut self, started_ns: u64, now_ns: u64) {
        self.open_connections += 1;
        let connections = &mut self.report.connections;
        connections.opened += 1;
        connections.peak = connections.peak.max(self.open_connections);
        self.report.connect_time.record(microseconds(started_ns, now_ns));
    }

    /// The TLS handshake of a new connection is done.
    pub(crate) fn handshake_done(&mut self, started_ns: u64, ended_ns: u64, resumed: bool) {
        self.report.tls_handshake.record(microseconds(started_ns, ended_ns));
        self.report.connections.tls_resumed += u64::from(resumed);
    }

    /// An established connection was closed.
    pub(crate) fn connection_closed(&mut self) {
        self.open_connections -= 1;
    }

    /// Ends the interval at `end_ns`, puts an empty report in its place and returns the full one.
    pub(crate) fn finish_interval(&mut self, end_ns: u64, cpu_ns: u64, empty: Box<Report>) -> Box<Report> {
        let length_ns = end_ns.saturating_sub(self.interval_start_ns);
        let mut full = std::mem::replace(&mut self.report, empty);
        let length = u128::from(length_ns);
        let begun = u128::from(self.in_flight_at_start + full.started) * length;
        let ended = u128::from(full.completed + full.failed) * length;
        let in_flight_ns = (begun + self.ends_ns).saturating_sub(self.starts_ns + ended);
        let corrected_ns = self.early_ns.min(in_flight_ns);
        self.early_ns -= corrected_ns;
        full.in_flight_ns = in_flight_ns - corrected_ns + std::mem::take(&mut self.late_ns);
        full.index = self.index;
        full.length_ns = length_ns;
        full.in_flight = self.in_flight;
        full.cpu_ns = cpu_ns.saturating_sub(self.cpu_before_ns);
        self.cpu_before_ns = cpu_ns;
        (self.starts_ns, self.ends_ns) = (0, 0);
        self.in_flight_at_start = self.in_flight;
        self.interval_start_ns = end_ns;
        self.index += 1;
        self.report.connections.peak = self.open_connections;
        full
    }
}

/// Microseconds between two moments, rounded to the nearest, as rounding down would make every mean half a microsecond
/// too short; 0 when they are out of order.
#[inline]
pub(crate) fn microseconds(from_ns: u64, to_ns: u64) -> u64 {
    to_ns.saturating_sub(from_ns).saturating_add(500) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Invariants, for requests that start and end anywhere: counts are conserved at every cut; the integral of
        // requests in flight equals the sum of their times, cut to the interval; every end is in one histogram.
        #[test]
        fn nothing_is_lost_or_doubled(requests in prop::collection::vec((0u64..3_500, 0u64..3_500, any::<bool>()), 0..40)) {
            let requests: Vec<_> = requests.into_iter()
                .map(|(start, length, good)| (start * 1_000_000, (start + length) * 1_000_000, good)).collect();
            let mut recorder = Recorder::new(Box::new(Report::new(&Labels::default())));
            let (mut started, mut ended) = (0, 0);
            for second in 0..8u64 {
                let (from, to) = (second * INTERVAL_NS, (second + 1) * INTERVAL_NS);
                for &(start, _, _) in requests.iter().filter(|r| (from..to).contains(&r.0)) {
                    recorder.start(start);
                }
                for &(start, end, good) in requests.iter().filter(|r| (from..to).contains(&r.1)) {
                    let times = RequestTimes { intended_ns: start, sent_ns: Some(start), name: 0 };
                    if good { recorder.complete(times, end) } else { recorder.fail(Failure::Reset, times, end) }
                }
                let report = recorder.finish_interval(to, 0, Box::new(Report::new(&Labels::default())));
                started += report.started;
                ended += report.completed + report.failed;
                prop_assert_eq!(started, ended + report.in_flight);
                prop_assert_eq!(report.response_time.count() + report.failed_time.count(), report.completed + report.failed);
                let integral: u64 = requests.iter().map(|&(start, end, _)| end.clamp(from, to) - start.clamp(from, to)).sum();
                prop_assert_eq!(report.in_flight_ns, u128::from(integral));
            }
            prop_assert_eq!(started, requests.len() as u64);
        }
    }
}
