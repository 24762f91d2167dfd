//! Merges the threads' reports into the intervals of the load, and into its end.

use crate::io::multiplexed::grpc::status_name;
use crate::results::recorder::{INTERVAL_NS, Labels, Report, ThreadEnd};
use std::collections::VecDeque;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::{EndReason, Interval, LoadEnd};

/// Puts the threads' reports of each interval together, in order.
pub(crate) struct Merger {
    labels: Labels,
    threads: Vec<Thread>,
    sum: Report,
    /// The number of the next interval.
    index: u64,
    end_ns: u64,
}

#[derive(Default)]
struct Thread {
    queue: VecDeque<Box<Report>>,
    /// Its end, when its last report was merged, and what it left in flight.
    end: Option<(ThreadEnd, InFlightAtEnd)>,
}

/// What was in flight in a thread at its end.
#[derive(Default)]
struct InFlightAtEnd {
    requests: u64,
    pages: u64,
    visitors: u64,
}

impl InFlightAtEnd {
    fn from_report(report: &Report) -> Self {
        Self {
            requests: report.in_flight,
            pages: report.visits.pages.as_ref().map_or(0, |pages| pages.in_flight),
            visitors: report.visits.counts.visitors,
        }
    }
}

impl Merger {
    /// For this many threads and figures of these names.
    pub(crate) fn new(labels: Labels, threads: usize) -> Self {
        Self {
            sum: Report::new(&labels),
            labels,
            threads: (0..threads).map(|_| Thread::default()).collect(),
            index: 0,
            end_ns: 0,
        }
    }

    /// Adds a thread's next report.
    pub(crate) fn add(&mut self, thread: usize, report: Box<Report>) {
        self.threads[thread].queue.push_back(report);
    }

    /// The next interval, once all threads have reported theirs. Used reports go to `recycle`, emptied.
    pub(crate) fn next_interval(&mut self, recycle: &mut dyn FnMut(usize, Box<Report>)) -> Option<Interval> {
        let complete = |thread: &Thread| thread.end.is_some() || !thread.queue.is_empty();
        if !self.threads.iter().all(complete) || self.threads.iter().all(|thread| thread.queue.is_empty()) {
            return None;
        }
        self.sum.clear();
        let reports: Vec<_> = self.threads.iter_mut().map(|thread| thread.queue.pop_front()).collect();
        let length_ns = reports.iter().flatten().map(|report| report.length_ns).max()?;
        let mut thread_cpu_us = vec![0; self.threads.len()];
        for (number, report) in reports.into_iter().enumerate() {
            let Some(mut report) = report else {
                self.add_ended_thread(number, length_ns);
                continue;
            };
            thread_cpu_us[number] = report.cpu_ns / 1000;
            self.sum.merge(&mut report);
            self.sum.cpu_ns += report.cpu_ns;
            if let Some(last) = report.thread_end.take() {
                // What is in flight at its end stays so until the others end.
                let rest_ns = length_ns.saturating_sub(report.length_ns);
                self.sum.in_flight_ns += u128::from(report.in_flight) * u128::from(rest_ns);
                self.end_ns = self.end_ns.max(last.end_ns);
                self.threads[number].end = Some((last, InFlightAtEnd::from_report(&report)));
            }
            report.clear();
            recycle(number, report);
        }
        self.sum.length_ns = length_ns;
        let interval = self.interval(thread_cpu_us);
        self.index += 1;
        Some(interval)
    }

    /// How the load ended; `None` when a thread sent no last report.
    pub(crate) fn end(&self) -> Option<LoadEnd> {
        let mut end = LoadEnd {
            elapsed_us: self.end_ns / 1000,
            in_flight_at_end: 0,
            waiting_at_end: 0,
            censored_time: None,
            thread_cpu_us: vec![],
            reason: EndReason::Requests,
        };
        let mut censored_time = TimeHistogram::new();
        for thread in &self.threads {
            let (last, in_flight) = thread.end.as_ref()?;
            end.in_flight_at_end += in_flight.requests;
            end.waiting_at_end += last.waiting;
            censored_time.merge(&last.censored_time);
            end.thread_cpu_us.push(last.cpu_total_ns / 1000);
            // The reason of a thread that was stopped outweighs that of one that ran out of requests.
            if end.reason == EndReason::Requests {
                end.reason = last.reason;
            }
        }
        end.censored_time = censored_time.encode();
        Some(end)
    }

    /// A thread that ended in an earlier interval still has requests in flight.
    fn add_ended_thread(&mut self, thread: usize, length_ns: u64) {
        if let Some((_, in_flight)) = &self.threads[thread].end {
            self.sum.in_flight += in_flight.requests;
            self.sum.in_flight_ns += u128::from(in_flight.requests) * u128::from(length_ns);
            self.sum.visits.counts.visitors += in_flight.visitors;
            if let Some(pages) = &mut self.sum.visits.pages {
                pages.in_flight += in_flight.pages;
            }
        }
    }

    fn status_text(&self, status: u16) -> String {
        let name = status_name(status).filter(|_| self.labels.speaks_grpc);
        name.map_or_else(|| status.to_string(), str::to_owned)
    }

    fn interval(&self, thread_cpu_us: Vec<u64>) -> Interval {
        let sum = &self.sum;
        let status = sum.status.iter().enumerate().filter(|&(_, &count)| count > 0);
        let named = self.labels.requests.iter().zip(&sum.named);
        let named = named.filter(|(_, named)| named.completed + named.failed > 0);
        Interval {
            t_s: (self.index * INTERVAL_NS) as f64 / 1e9,
            length_us: sum.length_ns / 1000,
            started: sum.started,
            completed: sum.completed,
            failed: sum.failed,
            in_flight: sum.in_flight,
            in_flight_us: (sum.in_flight_ns / 1000) as u64,
            bytes_received: sum.bytes_received,
            body_bytes: sum.body_bytes,
            bytes_sent: sum.bytes_sent,
            status: status.map(|(status, &count)| (self.status_text(status as u16), count)).collect(),
            errors: sum.errors,
            connections: sum.connections,
            response_time: sum.response_time.encode(),
            service_time: sum.service_time.encode(),
            connect_time: sum.connect_time.encode(),
            first_byte: sum.first_byte.encode(),
            client_delay: sum.client_delay.encode(),
            tls_handshake: sum.tls_handshake.encode(),
            receive_delay: sum.receive_delay.encode(),
            round_trip: sum.round_trip.encode(),
            tcp: sum.tcp,
            stamps: sum.stamps,
            redirects: sum.redirects,
            failed_time: sum.failed_time.encode(),
            cpu_us: sum.cpu_ns / 1000,
            cpu_us_max_thread: thread_cpu_us.iter().copied().max().unwrap_or(0),
            thread_cpu_us,
            pages: sum.visits.page_interval(&self.labels),
            visits: sum.visits.counts(&self.labels),
            by_name: named.map(|(name, named)| (name.clone(), named.interval())).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(
        index: u64,
        length_ms: u64,
        started: u64,
        in_flight: u64,
        end: Option<EndReason>,
    ) -> Box<Report> {
        let mut report = Report::new(&Labels::default());
        (report.index, report.length_ns) = (index, length_ms * 1_000_000);
        (report.started, report.in_flight, report.cpu_ns) = (started, in_flight, 5000 * started);
        report.thread_end = end.map(|reason| ThreadEnd {
            end_ns: index * INTERVAL_NS + report.length_ns,
            waiting: 0,
            censored_time: TimeHistogram::new(),
            cpu_total_ns: 7000,
            reason,
        });
        Box::new(report)
    }

    #[test]
    fn intervals_come_in_order_when_all_threads_have_reported() {
        let mut merger = Merger::new(Labels::default(), 2);
        let mut given = vec![];
        let mut next = |merger: &mut Merger| merger.next_interval(&mut |thread, _| given.push(thread));
        merger.add(0, report(0, 1000, 3, 1, None));
        merger.add(0, report(1, 1000, 4, 1, None));
        assert!(next(&mut merger).is_none(), "thread 1 has not reported");
        merger.add(1, report(0, 1000, 5, 2, None));
        let first = next(&mut merger).unwrap();
        assert_eq!((first.t_s, first.started, first.in_flight), (0.0, 8, 3));
        assert_eq!((first.cpu_us, first.cpu_us_max_thread, first.thread_cpu_us), (40, 25, vec![15, 25]));
        assert!(next(&mut merger).is_none());
        assert!(merger.end().is_none());
        assert_eq!(given, [0, 1]);
    }

    #[test]
    fn requests_in_flight_of_an_ended_thread_stay_in_flight() {
        let mut merger = Merger::new(Labels::default(), 2);
        let next = |merger: &mut Merger| merger.next_interval(&mut |_, _| {});
        merger.add(0, report(0, 990, 3, 3, Some(EndReason::Enough)));
        merger.add(1, report(0, 1000, 2, 2, None));
        let first = next(&mut merger).unwrap();
        assert_eq!((first.length_us, first.in_flight, first.in_flight_us), (1_000_000, 5, 30_000));
        merger.add(1, report(1, 10, 1, 3, Some(EndReason::Enough)));
        let second = next(&mut merger).unwrap();
        assert_eq!((second.length_us, second.in_flight, second.in_flight_us), (10_000, 6, 30_000));
        let end = merger.end().unwrap();
        assert_eq!((end.elapsed_us, end.in_flight_at_end), (1_010_000, 6));
        assert_eq!((end.reason, end.thread_cpu_us), (EndReason::Enough, vec![7, 7]));
    }
}
