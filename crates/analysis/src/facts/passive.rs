//! Facts of a server that was only watched: what the load engine would tell, from the server's own counts.
//!
//! They have the names of the engine's facts ([`super::client`]), so that rules need not ask whose the requests are; their
//! source says where they come from. What only a client sees stays unknown: connect times, packets that never came
//! here, answers that never came, and how much more was asked for than was given.

use super::{Derivation, FactBuilder, FactId, client};
use crate::settings::effective;
use webdyno_model::fact::Fact;
use webdyno_model::number::significant;

const LOG: &str = "access_log.requests_count";
const LOG_FAILED: &str = "access_log.status_5xx_count";
const LOG_TIME: &str = "access_log.time_us";
const LOG_TIMED: &str = "access_log.timed_count";
const LOG_BYTES: &str = "access_log.sent_bytes";
const LOG_PATHS: &str = "access_log.paths_count";
const LOG_PARTS: &str = "access_log.path_parts_count";
const APACHE_BYTES: &str = "apache.bytes_served_bytes";
const APACHE_COUNT: &str = "apache.accesses_count";
const OPENS: &str = "sockets.passive_opens_count";
const QUEUE: &str = "sockets.accept_queue_count";
const WRITING: &str = "apache.workers_writing_count";
const NGINX_WRITING: &str = "nginx.connections_writing_count";
const CONNECTIONS: &str = "clients.connections_count";
const SYNS: &str = "syns.connections_count";
const SYNS_RETRANSMITTED: &str = "syns.retransmitted_count";
/// Pages that the agent asked for: requests, and connections, that are nobody's traffic.
const OWN_PAGES: &str = "apache.own_requests_count";
/// Counts of requests that the programs keep themselves, in front or not.
const COUNTS: [(&str, &str); 3] = [
    ("apache", "apache.accesses_count"),
    ("nginx", "nginx.requests_count"),
    ("lighttpd", "lighttpd.accesses_count"),
];
/// The log is the better count, as it is read to the end also while no worker is free to show the status page, unless it
/// knows fewer requests than the service: then not every site writes one.
const LOG_SHARE_MIN: f64 = 0.9;
/// With more requests per connection than this, connections are kept, and may be idle: they are no requests in flight.
const KEPT_SHARE_MAX: f64 = 1.25;
/// Where so many are idle, they are kept however many are opened: the kernel counts those to a backend on this machine, too. Unless, over
/// TLS, fewer than this part of the idle ones are used again until the next reading: those that wait for their first answer look idle.
const IDLE_FRACTION_MIN: f64 = 0.25;
const USED_AGAIN_FRACTION_MIN: f64 = 0.02;
const USED_AGAIN: &str = "clients.used_again_count";

fact_table! {
    "bytes": answer_bytes_mean;
    "bytes/s": request_bytes_per_s;
    "parts": path_parts_mean;
}

impl FactBuilder<'_> {
    /// Adds what the server itself tells of its clients' requests.
    pub(super) fn passive(&mut self) {
        let counted = self.counted();
        if let Some((metric, per_s)) = counted {
            self.add_observed(FactId::ended_per_s, Some(per_s), (metric, Derivation::Rate(1.0)));
            let failed = self.failed_fraction();
            let good = per_s * (1.0 - failed.unwrap_or(0.0));
            self.add_observed(FactId::rate, Some(good), (metric, Derivation::Rate(1.0)));
            self.add_observed(FactId::failed_fraction, failed, (LOG_FAILED, Derivation::Rate(1.0)));
            let spread = client::relative_ci95(&self.increments(metric));
            self.add_observed(FactId::rate_ci95_fraction, spread, (metric, Derivation::Rate(1.0)));
        }
        let own_per_s = self.own_requests_per_s();
        let opened = self.series.rate(OPENS).map(|per_s| (per_s - own_per_s).max(0.0));
        self.add_observed(FactId::connections_opened_per_s, opened, (OPENS, Derivation::Rate(1.0)));
        let connections = self.series.mean(CONNECTIONS);
        self.add_observed(FactId::client_connections_mean, connections, (CONNECTIONS, Derivation::Mean));
        self.requests_in_server(counted.map(|(_, per_s)| per_s), opened);
        self.logged_responses();
        self.connections_begun_again();
    }

    /// Connections whose clients had to begin them again, of those that got through.
    fn connections_begun_again(&mut self) {
        let rise = |metric: &str| self.series.increase(metric).map(|(rise, _)| rise);
        let again = rise(SYNS_RETRANSMITTED);
        let all = rise(SYNS).filter(|all| *all > 0.0);
        let share = again.zip(all).map(|(again, all)| again / all);
        self.add_observed(FactId::lost_syn_connections, again, (SYNS_RETRANSMITTED, Derivation::Rise));
        self.add_observed(FactId::lost_syn_fraction, share, (SYNS_RETRANSMITTED, Derivation::Rise));
    }

    /// What an answer is like: its size and the parts of its path by the log, and the pace at which those arrive that are under
    /// way.
    fn logged_responses(&mut self) {
        let logged = |metric: &str, of: &str| {
            let (rise, _) = self.series.increase(metric)?;
            self.series.increase(of).filter(|(count, _)| *count >= 1.0).map(|(count, _)| rise / count)
        };
        let own = (APACHE_BYTES, APACHE_COUNT);
        let (size, metric) = match logged(LOG_BYTES, LOG) {
            Some(size) => (Some(size), LOG_BYTES),
            None => (logged(own.0, own.1), own.0),
        };
        let parts = logged(LOG_PARTS, LOG_PATHS);
        let pace = size.zip(self.facts.get(&FactId::service_time_mean_us).map(|fact| fact.value));
        let pace = pace.filter(|(_, us)| *us > 0.0).map(|(bytes, us)| bytes / us * 1e6);
        self.add_observed(FactId::answer_bytes_mean, size, (metric, Derivation::Mean));
        self.add_observed(FactId::request_bytes_per_s, pace, (metric, Derivation::Mean));
        self.add_observed(FactId::path_parts_mean, parts, (LOG_PARTS, Derivation::Mean));
    }

    /// Whether connections that look idle wait for the answer to their first request, over TLS.
    fn are_first_requests(&self, idle: Option<f64>) -> bool {
        let again = self.series.mean(USED_AGAIN).zip(idle);
        again.is_some_and(|(again, idle)| again < USED_AGAIN_FRACTION_MIN * idle)
            && self.service.and_then(effective::encrypts) == Some(true)
    }

    /// Requests in the server at once, and by Little's law how long each was in it.
    fn requests_in_server(&mut self, per_s: Option<f64>, opened: Option<f64>) {
        let log_us = self.logged_time_us();
        let queue = self.series.mean(QUEUE).unwrap_or(0.0);
        let reported = self.facts.get(&FactId::requests_at_server_mean).map(|fact| (fact.value, WRITING));
        // A connection that is used once is a request.
        let once =
            per_s.zip(opened).is_some_and(|(per_s, opened)| per_s > 1.0 && per_s <= KEPT_SHARE_MAX * opened);
        // nginx counts who asks for the count; of connections those have a request that are not idle.
        let writing = self.series.mean(NGINX_WRITING).map(|count| ((count - 1.0).max(0.0), NGINX_WRITING));
        let idle = self.facts.get(&FactId::idle_connections_mean).map(|fact| fact.value);
        let all = self.series.mean(CONNECTIONS);
        let asked = all.zip(idle);
        let are_idle = asked.is_some_and(|(all, idle)| idle >= IDLE_FRACTION_MIN * all.max(1.0));
        let are_kept = are_idle && !self.are_first_requests(idle);
        let used_once = all.filter(|_| once && !are_kept).map(|mean| (mean, CONNECTIONS));
        let asked = asked.map(|(all, idle)| ((all - idle).max(0.0), CONNECTIONS));
        let writing_if_idle = writing.filter(|_| are_idle);
        if let Some((in_server, metric)) = reported.or(writing_if_idle).or(used_once).or(writing).or(asked) {
            self.add_observed(FactId::in_flight_mean, Some(in_server), (metric, Derivation::Mean));
        }
        let worker_us = self.facts.get(&FactId::worker_time_mean_us).map(|fact| (fact.value, WRITING));
        let by_law = used_once
            .zip(per_s)
            .map(|((connections, metric), per_s)| (((connections - queue) / per_s * 1e6).max(0.0), metric));
        let Some((service_us, metric)) = log_us.map(|us| (us, LOG_TIME)).or(worker_us).or(by_law) else {
            return;
        };
        self.add_observed(FactId::service_time_mean_us, Some(service_us), (metric, Derivation::Mean));
        // The service's clock begins when a worker has the connection: before, it waits in the kernel's queue.
        let queue_us = per_s.map_or(0.0, |per_s| queue / per_s * 1e6);
        let response = Some(service_us + queue_us);
        self.add_observed(FactId::response_time_mean_us, response, (metric, Derivation::Mean));
    }

    /// Requests per second of the clients, and the metric that they are counted by.
    fn counted(&self) -> Option<(&'static str, f64)> {
        let own = self.own_requests_per_s();
        let rate = |metric: &'static str| Some((metric, (self.series.rate(metric)? - own).max(0.0)));
        let is_front = |program: &str| self.service.is_none_or(|service| service.service == program);
        let program = COUNTS.iter().find(|(program, _)| is_front(program)).and_then(|(_, count)| rate(count));
        let log = rate(LOG).filter(|_| self.series.latest("access_log.logs_count") != Some(0.0));
        match (log, program) {
            (Some(log), Some(program)) if log.1 < LOG_SHARE_MIN * program.1 => Some(program),
            (log, program) => log.or(program),
        }
    }

    /// Our own requests for status pages per second: each of them needs a connection of its own.
    fn own_requests_per_s(&self) -> f64 {
        let readings = || {
            let (from_s, to_s) = self.series.window();
            let read = self.series.samples_of("apache_status");
            let answered = read.filter(|timed| !timed.sample.values.is_empty()).count();
            (to_s > from_s).then(|| answered as f64 / (to_s - from_s))
        };
        self.series.rate(OWN_PAGES).or_else(readings).unwrap_or(0.0)
    }

    /// The share that the server itself says it could not answer (5xx): what others ask wrongly (4xx) is not its failure.
    fn failed_fraction(&self) -> Option<f64> {
        let total =
            self.series.rate(LOG).map(|rate| rate - self.own_requests_per_s()).filter(|rate| *rate > 0.0)?;
        self.series.rate(LOG_FAILED).map(|failed| (failed / total).min(1.0))
    }

    /// The mean time of a request by the log, where its format has it.
    fn logged_time_us(&self) -> Option<f64> {
        let (timed, _) = self.series.increase(LOG_TIMED).filter(|(timed, _)| *timed >= 1.0)?;
        self.series.increase(LOG_TIME).map(|(time_us, _)| time_us / timed)
    }

    /// A counter's rise per second from each reading in the window to the next.
    pub(super) fn increments(&self, metric: &str) -> Vec<f64> {
        let (from_s, to_s) = self.series.window();
        let readings = self.series.all(metric).iter().filter(|(time, _)| (from_s..=to_s).contains(time));
        let readings: Vec<_> = readings.collect();
        let pairs = readings.windows(2).filter(|pair| pair[1].0 > pair[0].0);
        pairs.map(|pair| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0)).collect()
    }

    /// A fact of the server's side in place of the engine's.
    fn add_observed(&mut self, name: FactId, value: Option<f64>, from: (&str, Derivation)) {
        // What a measurement knows better stays.
        if value.is_none() || self.facts.contains_key(&name) {
            return;
        }
        self.add_from(name, value.map(|value| significant(value, 6)), from);
        if let Some(Fact { source, .. }) = self.facts.get_mut(&name) {
            *source = format!("{source}, on the server's side");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::facts::testing::{apache, of, sample, scoped_setting};
    use crate::facts::{FactId, Facts, facts};
    use crate::measurement::TimedSample;
    use webdyno_model::service::ServiceSnapshot;

    const SECONDS: [f64; 2] = [0.0, 10.0];

    /// Two readings, ten seconds apart: what counts, at so much a second, and levels.
    fn watched(counts: &[(&str, f64)], levels: &[(&str, f64)]) -> Facts {
        watched_of(apache(&[]), counts, levels)
    }

    fn watched_of(service: ServiceSnapshot, counts: &[(&str, f64)], levels: &[(&str, f64)]) -> Facts {
        let readings = SECONDS.map(|t_s| {
            let values: Vec<(&str, f64)> = counts
                .iter()
                .map(|(name, per_s)| (*name, 1000.0 + per_s * t_s))
                .chain(levels.iter().copied())
                .collect();
            sample(t_s, "x", &values)
        });
        of(readings.into(), Some(service))
    }

    #[test]
    fn requests_are_the_services_or_the_logs_less_our_own() {
        let (accesses, log, own) = ("apache.accesses_count", super::LOG, (super::OWN_PAGES, 1.0));
        for (counts, rate, source) in [
            (vec![(accesses, 101.0), own], Some(100.0), accesses),
            (vec![(accesses, 101.0), (log, 99.0), own], Some(98.0), log),
            (vec![(accesses, 101.0), (log, 51.0), own], Some(100.0), accesses),
            (vec![(log, 51.0), own], Some(50.0), log),
            (vec![("nginx.requests_count", 51.0)], None, ""),
            (vec![], None, ""),
        ] {
            let facts = watched(&counts, &[]);
            assert_eq!(facts.value(FactId::rate), rate, "{counts:?}");
            assert_eq!(facts.value(FactId::ended_per_s), rate, "{source}");
            assert!(!facts.loaded && facts.value(FactId::failed_fraction).is_none());
        }
    }

    #[test]
    fn failures_and_times_are_the_logs() {
        let counts = [
            (super::LOG, 100.0),
            (super::LOG_FAILED, 25.0),
            (super::LOG_TIME, 5e6),
            (super::LOG_TIMED, 100.0),
        ];
        let facts = watched(&counts, &[(super::QUEUE, 20.0)]);
        assert_eq!(
            (facts.value(FactId::failed_fraction), facts.value(FactId::rate)),
            (Some(0.25), Some(75.0))
        );
        assert_eq!(facts.value(FactId::service_time_mean_us), Some(50_000.0));
        assert_eq!(facts.value(FactId::response_time_mean_us), Some(250_000.0), "with the wait in the queue");
        assert_eq!(facts.value(FactId::connect_time_mean_us), None);
    }

    #[test]
    fn connections_begun_again_are_a_share_of_those_that_got_through() {
        let facts = watched(&[(super::SYNS, 50.0), (super::SYNS_RETRANSMITTED, 4.0)], &[]);
        let lost = [FactId::lost_syn_connections, FactId::lost_syn_fraction].map(|fact| facts.value(fact));
        assert_eq!(lost, [Some(40.0), Some(0.08)]);
        let facts = watched(&[(super::SYNS, 0.0), (super::SYNS_RETRANSMITTED, 0.0)], &[]);
        assert_eq!(facts.value(FactId::lost_syn_fraction), None, "there were none");
    }

    #[test]
    fn what_opens_connections_is_no_data_that_is_sent_again() {
        let sent = [("tcp.TcpOutSegs.count", 100.0), ("tcp.TcpRetransSegs.count", 30.0)];
        for (syns, share) in [(None, 0.3), (Some(10.0), 0.2), (Some(31.0), 0.0)] {
            let syns = syns.map(|per_s| ("tcp.TcpExtTCPSynRetrans.count", per_s));
            let facts = watched(&sent.into_iter().chain(syns).collect::<Vec<_>>(), &[]);
            assert_eq!(facts.value(FactId::retransmitted_fraction), Some(share), "{syns:?}");
        }
    }

    #[test]
    fn answers_are_as_the_log_tells_them_else_as_the_service_does() {
        let (accesses, writing) = (("apache.accesses_count", 100.0), (super::WRITING, 11.0));
        let own = (super::APACHE_BYTES, 200_000.0);
        let logged = [(super::LOG, 100.0), (super::LOG_BYTES, 500_000.0)];
        let paths = [(super::LOG_PATHS, 100.0), (super::LOG_PARTS, 350.0)];
        let queue = (super::QUEUE, 0.0);
        let by_log = watched(&[&logged[..], &paths, &[accesses, own]].concat(), &[writing, queue]);
        assert_eq!(
            (by_log.value(FactId::answer_bytes_mean), by_log.value(FactId::path_parts_mean)),
            (Some(5000.0), Some(3.5))
        );
        // Ten workers send 500 kB a second.
        assert!((by_log.value(FactId::request_bytes_per_s).unwrap() / 50_000.0 - 1.0).abs() < 0.01);
        let by_service = watched(&[accesses, own], &[writing, queue]);
        assert_eq!(
            (by_service.value(FactId::answer_bytes_mean), by_service.value(FactId::path_parts_mean)),
            (Some(2000.0), None)
        );
        assert_eq!(watched(&[accesses], &[writing, queue]).value(FactId::request_bytes_per_s), None);
    }

    #[test]
    fn over_tls_what_is_never_used_again_waits_for_its_answer() {
        for (listen, used_again, writing, in_flight) in [
            ("443 ssl", 0.0, None, 30.0),
            ("443 ssl", 3.0, None, 10.0),
            ("443", 0.0, None, 10.0),
            ("443 ssl", 0.0, Some(7.0), 6.0),
        ] {
            let mut nginx = apache(&[]);
            (nginx.service, nginx.port) = ("nginx".into(), 443);
            nginx.scoped = vec![scoped_setting("listen", listen, &["server a"])];
            let levels = [(super::QUEUE, 0.0), (super::CONNECTIONS, 30.0), ("clients.idle_count", 20.0)];
            let writing = writing.map(|count| (super::NGINX_WRITING, count));
            let levels = levels.into_iter().chain([(super::USED_AGAIN, used_again)]).chain(writing);
            let counts = [(super::LOG, 100.0), (super::OPENS, 100.0)];
            let seen = watched_of(nginx, &counts, &levels.collect::<Vec<_>>());
            assert_eq!(
                seen.value(FactId::in_flight_mean),
                Some(in_flight),
                "{listen} {used_again} {writing:?}"
            );
        }
    }

    #[test]
    fn requests_in_the_server_are_told_by_workers_or_by_connections_that_are_used_once() {
        let (accesses, writing, queue) =
            (("apache.accesses_count", 100.0), (super::WRITING, 6.0), (super::QUEUE, 5.0));
        let connections = (super::CONNECTIONS, 30.0);
        let inside = watched(&[accesses], &[writing, queue, connections]);
        assert_eq!(inside.value(FactId::in_flight_mean), Some(10.0), "the page's own worker is taken off");
        // 5 workers and 5 in the queue, at 100 (less the readings of the page) a second.
        assert!((inside.value(FactId::response_time_mean_us).unwrap() - 1e5).abs() < 1e3);
        for (opened, in_flight) in [(100.0, Some(30.0)), (20.0, None)] {
            let outside = watched(&[(super::LOG, 100.0), (super::OPENS, opened)], &[queue, connections]);
            assert_eq!(outside.value(FactId::in_flight_mean), in_flight, "{opened}");
            // 30 less 5 in the queue, at 100 a second.
            let service_us = in_flight.map(|_| 250_000.0);
            assert_eq!(outside.value(FactId::service_time_mean_us), service_us, "{opened}");
        }
        // Of a backend on the same machine each request opens one, too.
        let idle = ("clients.idle_count", 20.0);
        let kept = watched(&[(super::LOG, 100.0), (super::OPENS, 100.0)], &[queue, connections, idle]);
        assert_eq!(kept.value(FactId::in_flight_mean), Some(10.0));
        assert_eq!(kept.value(FactId::service_time_mean_us), None);
        let counts = [("nginx.requests_count", 100.0)];
        const IDLE: (&str, f64) = ("clients.idle_count", 22.0);
        let owed = |count| ("clients.owed_count", count);
        let unsure = |count| ("clients.unsure_count", count);
        for (levels, in_flight) in [
            (vec![connections, IDLE], 8.0),
            (vec![connections, IDLE, (super::NGINX_WRITING, 7.0)], 6.0),
            // Quick answers: where nobody waits for longer than a tick of the clock, those that cannot be told do not either.
            (vec![connections, ("clients.idle_count", 4.0), owed(0.0), unsure(26.0)], 0.0),
            (vec![connections, ("clients.idle_count", 4.0), owed(2.0), unsure(24.0)], 10.0),
            (vec![connections, ("clients.idle_count", 0.0), owed(2.0), unsure(28.0)], 30.0),
            (vec![connections, ("clients.idle_count", 0.0), owed(0.0), unsure(30.0)], 30.0),
        ] {
            assert_eq!(watched(&counts, &levels).value(FactId::in_flight_mean), Some(in_flight));
        }
    }

    #[test]
    fn a_server_that_tells_nothing_has_no_rate_and_no_zero() {
        let silent: Vec<TimedSample> = vec![sample(1.0, "apache_status", &[])];
        let measurement = crate::measurement::Measurement {
            samples: silent,
            service: Some(apache(&[])),
            measured_to_s: 10.0,
            ..Default::default()
        };
        let facts = facts(&measurement, None).unwrap();
        for name in fact_ids! {
            rate, ended_per_s, in_flight_mean, response_time_mean_us, failed_fraction,
        } {
            assert_eq!(facts.value(name), None, "{name}");
        }
    }
}
