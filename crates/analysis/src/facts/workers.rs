//! Facts on what workers are held by: requests, connections that are kept, or nothing that this load asked for.

use super::{Derivation, FactBuilder, FactId};
use crate::measurement::{Measurement, statistics};
use webdyno_model::run::RunReport;
use webdyno_model::workload::Arrival;

/// What Apache logs when it takes less than the files say: prefork, worker and event, at a start and at a reload.
const CLAMPS: [&str; 10] = [
    "AH00180", "AH00181", "AH00316", "AH00317", "AH00318", "AH00319", "AH00513", "AH00514", "AH00515",
    "AH00516",
];

/// Of fewer readings nobody can say how often there was something in them.
const READINGS_MIN: usize = 4;

/// So many connections must be known to be idle or not for those that cannot be told to be counted as they are.
const TOLD_MIN: f64 = 1.0;

/// A queue that is so full on average has no room for those who come, except for moments.
const QUEUE_FULL_MIN: f64 = 0.9;

/// Readings of two collectors that are no further apart are of one moment: the queue is read each second.
const SAME_MOMENT_S: f64 = 1.0;

fact_table! {
    "connections": connections_held_mean, idle_connections_mean, accept_queue_last;
    "requests": requests_in_workers_mean, requests_per_connection;
    "processes": service_processes_grew;
    "messages": clamp_messages;
    "fraction": plain_requests_reused_fraction, resumed_fraction, accept_queue_waiting_fraction;
    "users": users;
    "pages": pages_in_flight_mean;
    "us": response_time_p50_us, handshake_mean_us, page_time_mean_us, think_time_mean_us;
}

impl FactBuilder<'_> {
    /// How far requests and connections explain that workers are taken.
    pub(super) fn worker_holders(&mut self, loaded: bool) {
        const QUEUE: &str = "sockets.accept_queue_count";
        let queue = self.series.mean(QUEUE);
        let less_queue = |all: Option<f64>| all.zip(queue).map(|(all, queue)| (all - queue).max(0.0));
        // More in the queue than there are requests were given up by their clients: how many of them is not known.
        let is_stale = |all: f64| queue.is_some_and(|queue| queue > all);
        self.connections_held();
        // A request that is under way and not in the queue is with a worker, or on its way.
        let in_flight = self.facts.get(&FactId::in_flight_mean).map(|fact| fact.value).filter(|_| loaded);
        let in_workers = match self.requests_beyond_full_queue(queue) {
            Some(most) => less_queue(in_flight).map(|requests| requests.min(most)),
            None => less_queue(in_flight.filter(|all| !is_stale(*all))),
        };
        self.add_from(FactId::requests_in_workers_mean, in_workers, (QUEUE, Derivation::Mean));
        self.process_growth();
        self.clamps();
    }

    /// Connections that the server accepted: those that wait for it are connections of the port, too. Clients that gave up wait on,
    /// and are no longer counted as open. Connections are read more rarely than the queue: each reading goes with the queue of
    /// its moment, as a queue that grew later would hide them.
    fn connections_held(&mut self) {
        const OPEN: &str = "clients.connections_count";
        let (from_s, to_s) = self.series.window();
        let readings = self.series.all(OPEN).iter().filter(|(time, _)| (from_s..=to_s).contains(time));
        let held = readings.filter_map(|(time, open)| {
            let at = |metric: &str| self.series.nearest(metric, *time, SAME_MOMENT_S);
            let left = at("clients.left_count").unwrap_or(0.0);
            Some((open + left - at("sockets.accept_queue_count")?).max(0.0))
        });
        let held = statistics::mean(&held.collect::<Vec<f64>>());
        self.add_from(FactId::connections_held_mean, held, (OPEN, Derivation::Mean));
    }

    /// Connections on which nothing is asked. Where the kernel's clock is too coarse to tell, they are as the others: clients that
    /// think before they ask again are never unsure while they wait, and those that ask again at once hardly ever idle.
    pub(super) fn idle_connections(&mut self) {
        const IDLE: &str = "clients.idle_count";
        let mean = |metric: &str| self.series.mean(metric);
        let idle = mean(IDLE).map(|idle| {
            let told = mean("clients.owed_count").map(|owed| idle + owed).filter(|told| *told >= TOLD_MIN);
            let as_others = |(told, unsure): (f64, f64)| unsure * idle / told;
            idle + told.zip(mean("clients.unsure_count")).map_or(0.0, as_others)
        });
        self.add_from(FactId::idle_connections_mean, idle, (IDLE, Derivation::Mean));
    }

    /// Where the queue is full all the time, requests are also under way outside of the server: they try to connect again and
    /// again. With workers there are then at most those that were answered, and those that had been sent and were given up,
    /// less the ones in the queue.
    fn requests_beyond_full_queue(&self, queue: Option<f64>) -> Option<f64> {
        let (queue, limit) = queue.zip(self.series.latest("sockets.accept_queue_max_count"))?;
        let known = |name: FactId| self.facts.get(&name).map(|fact| fact.value);
        let (answered, given_up) =
            known(FactId::answered_in_flight_mean).zip(known(FactId::given_up_in_flight_mean))?;
        let is_full = limit >= 1.0 && queue >= QUEUE_FULL_MIN * limit;
        is_full.then(|| answered + (given_up - queue).max(0.0))
    }

    /// How the number of processes and the queue went on: from the first reading of the window to the last.
    fn process_growth(&mut self) {
        let processes = self.series.levels("process.count");
        let grew = processes.first().zip(processes.last()).map(|(first, last)| last - first);
        self.add_from(FactId::service_processes_grew, grew, ("process.count", Derivation::Max));
        let queue = self.series.levels("sockets.accept_queue_count");
        let last = queue.last().copied();
        self.add_from(FactId::accept_queue_last, last, ("sockets.accept_queue_count", Derivation::Latest));
        let waiting = queue.iter().filter(|waiting| **waiting >= 1.0).count() as f64 / queue.len() as f64;
        let waiting = Some(waiting).filter(|_| queue.len() >= READINGS_MIN);
        let source = ("sockets.accept_queue_count", Derivation::Mean);
        self.add_from(FactId::accept_queue_waiting_fraction, waiting, source);
    }

    /// How often the log says that a setting was taken for less, since it was begun.
    fn clamps(&mut self) {
        let count = |kind: &str| {
            let names = CLAMPS.iter().map(|id| format!("apache_log.{id}.{kind}_count"));
            names.filter_map(|name| self.series.latest(&name)).reduce(|sum, count| sum + count)
        };
        let output = count("before").into_iter().chain(count("messages")).reduce(|sum, count| sum + count);
        let named = CLAMPS.iter().map(|id| format!("apache_log.{id}.before_count"));
        let mut named = named.filter(|name| self.series.latest(name).is_some_and(|count| count > 0.0));
        let metric = named.next().unwrap_or_else(|| "apache_log.AH00516.messages_count".into());
        self.add_from(FactId::clamp_messages, output, (&metric, Derivation::Latest));
    }

    /// What the load engine saw of connections and of the parts of its answers.
    pub(super) fn kept_connections(&mut self, measurement: &Measurement, run: &RunReport) {
        let workload = measurement.workload.as_ref();
        let requested = workload.is_some_and(|workload| workload.keepalive);
        // Of visitors who go it depends on what they came for how often their connections can be used.
        let plain = workload.is_some_and(|workload| workload.visits.is_none());
        let sent = (run.requests.completed + run.requests.failed) as f64;
        let reused = (sent > 0.0).then(|| (run.connections.reused as f64 / sent).min(1.0));
        let opened = run.connections.opened as f64;
        let per_connection = (opened >= 1.0).then(|| sent / opened);
        let in_flight_s: f64 =
            measurement.measured().map(|interval| interval.in_flight_us as f64 / 1e6).sum::<f64>();
        let pace = (in_flight_s > 0.0).then(|| run.bytes.received as f64 / in_flight_s);
        let closed = workload.filter(|workload| workload.arrival == Arrival::Closed);
        let users = closed
            .map(|workload| workload.visits.as_ref().map_or(workload.concurrency(), |visits| visits.users));
        let per_s = |count: f64| (run.elapsed_s > 0.0).then(|| count / run.elapsed_s);
        let page_us = run.pages.as_ref().and_then(|pages| pages.time_us.mean);
        let think_us =
            closed.and_then(|workload| workload.visits.as_ref()).map(|visits| visits.think.mean_us());
        let pages = page_us.and_then(|us| Some(run.pages.as_ref()?.rate? * us / 1e6));
        let resumed = (opened >= 1.0).then(|| run.connections.tls_resumed as f64 / opened);
        for (name, value) in [
            (FactId::connections_reused_fraction, reused.filter(|_| requested)),
            (FactId::plain_requests_reused_fraction, reused.filter(|_| requested && plain)),
            (FactId::users, users.map(f64::from)),
            (FactId::pages_in_flight_mean, pages),
            (FactId::page_time_mean_us, page_us),
            (FactId::think_time_mean_us, think_us.filter(|_| page_us.is_some())),
            (FactId::requests_per_connection, per_connection),
            (FactId::received_bytes_per_s, per_s(run.bytes.received as f64)),
            (FactId::request_bytes_per_s, pace),
            (FactId::first_byte_mean_us, run.first_byte_us.mean),
            (FactId::response_time_p50_us, run.response_time_us.p50.map(|us| us as f64)),
            (FactId::handshake_mean_us, run.tls_handshake_us.mean),
            (FactId::resumed_fraction, resumed.filter(|_| run.tls_handshake_us.mean.is_some())),
        ] {
            self.add_client(measurement, name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::facts::testing::{of, sample};
    use crate::facts::{FactId, facts};
    use crate::measurement::Measurement;
    use crate::run_report::run_report;
    use webdyno_model::histogram::TimeHistogram;
    use webdyno_model::interval::Interval;
    use webdyno_model::workload::Workload;

    #[test]
    fn clients_that_gave_up_in_the_queue_are_not_taken_off_the_others() {
        let held = |left: f64| {
            // 31 connections are in the server, and 16 wait with those that were given up.
            let clients = [("clients.connections_count", 47.0), ("clients.left_count", left)];
            let queue = [("sockets.accept_queue_count", 16.0 + left)];
            let at = |t_s: f64| [sample(t_s, "clients", &clients), sample(t_s, "sockets", &queue)];
            of([1.0, 2.0].into_iter().flat_map(at).collect(), None).value(FactId::connections_held_mean)
        };
        assert_eq!(held(0.0), Some(31.0));
        assert_eq!(held(100.0), Some(31.0));
    }

    #[test]
    fn a_queue_that_grows_hides_no_connection() {
        let queue =
            |t_s: f64, waiting: f64| sample(t_s, "sockets", &[("sockets.accept_queue_count", waiting)]);
        let clients = |t_s: f64, open: f64, left: f64| {
            sample(t_s, "clients", &[("clients.connections_count", open), ("clients.left_count", left)])
        };
        // 64 are in the server all the time; connections are read twice, the queue each second.
        let mut samples: Vec<_> = (1..8).map(|t_s| queue(f64::from(t_s), 336.0)).collect();
        samples.extend([queue(8.0, 512.0), clients(1.05, 400.0, 0.0), clients(8.05, 240.0, 336.0)]);
        assert_eq!(of(samples, None).value(FactId::connections_held_mean), Some(64.0));
    }

    #[test]
    fn who_tries_to_connect_to_a_full_queue_is_not_with_a_worker() {
        let in_workers = |limit: f64| {
            // Ten seconds: 80 requests in flight; 23 a second are answered in 20 ms, and 5 a second given up after 10 s.
            let mut times = TimeHistogram::new();
            times.record_many(20_000, 23);
            times.record_many(10_000_000, 5);
            let mut second = Interval {
                length_us: 1_000_000,
                completed: 23,
                failed: 5,
                in_flight_us: 80_000_000,
                response_time: times.encode(),
                ..Interval::default()
            };
            (second.errors.timeout, second.errors.connect_timeout) = (2, 3);
            let queue = [("sockets.accept_queue_count", 17.0), ("sockets.accept_queue_max_count", limit)];
            let measurement = Measurement {
                intervals: (0..10).map(|t_s| Interval { t_s: f64::from(t_s), ..second.clone() }).collect(),
                samples: (1..10).map(|t_s| sample(f64::from(t_s), "sockets", &queue)).collect(),
                workload: Some(Workload { timeout_us: 10_000_000, ..Workload::default() }),
                measured_to_s: 10.0,
                ..Measurement::default()
            };
            let run = run_report(&measurement).unwrap();
            facts(&measurement, Some(&run)).unwrap().value(FactId::requests_in_workers_mean).unwrap()
        };
        assert_eq!(in_workers(511.0), 63.0);
        // By Little's law 0.46 that are answered, and 20 that are given up, of which 17 stand in the queue.
        assert!((in_workers(16.0) - 3.5).abs() < 0.1, "{}", in_workers(16.0));
    }
}
