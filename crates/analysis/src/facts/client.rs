//! Facts of the load engine: what was asked of the server, and what came back.

use super::{FactBuilder, FactId, repro_command};
use crate::measurement::Measurement;
use crate::measurement::statistics;
use webdyno_model::Result;
use webdyno_model::run::RunReport;
use webdyno_model::workload::{Arrival, Workload};

fact_table! {
    "requests/s": rate, ended_per_s, offered_rate;
    "fraction": rate_ci95_fraction, failed_fraction, failed_early_fraction, bad_gateway_fraction, forbidden_fraction,
        request_timeout_fraction, too_many_requests_fraction, unavailable_fraction, server_error_fraction,
        client_cpu_fraction_max_thread;
    "us": response_time_mean_us, response_time_p99_us, response_time_excess_us, service_time_mean_us,
        connect_time_mean_us, connect_time_max_us, client_delay_mean_us, client_delay_p90_us, failed_time_mean_us,
        first_byte_mean_us, round_trip_min_us;
    "ratio": response_time_inflation, response_time_drift_ratio;
    "connections/s": connections_opened_per_s;
    "connections": connections_opened_total, kernel_limit, connections_cap;
    "cores": generator_cpu_cores;
    "pages/s": pages_failed_per_s;
    "requests": connect_timeouts, in_flight_mean, waiting_in_generator_mean;
    "bytes/s": served_bytes_per_s;
    "bytes": received_bytes_per_request;
}

impl FactBuilder<'_> {
    pub(super) fn client(&mut self, measurement: &Measurement, run: &RunReport) -> Result<()> {
        let queueing = queueing(measurement)?;
        let ended = (run.requests.completed + run.requests.failed) as f64;
        let per_s = |count: f64| (run.elapsed_s > 0.0).then(|| count / run.elapsed_s);
        let total = run.client.kernel_limit_total.as_ref();
        let late = run.errors.timeout + run.errors.connect_timeout;
        let status_share = |status: &[&str]| (ended > 0.0).then(|| response_count(run, status) / ended);
        let facts = [
            (FactId::rate, run.rate),
            (FactId::ended_per_s, per_s(ended)),
            (FactId::rate_ci95_fraction, relative_ci95(&measurement.measured_rates())),
            (FactId::failed_fraction, (ended > 0.0).then(|| run.requests.failed as f64 / ended)),
            (
                FactId::failed_early_fraction,
                (ended > 0.0).then(|| run.requests.failed.saturating_sub(late) as f64 / ended),
            ),
            (FactId::bad_gateway_fraction, status_share(&BAD_GATEWAY)),
            (FactId::forbidden_fraction, status_share(&["403"])),
            (FactId::request_timeout_fraction, status_share(&["408"])),
            (FactId::too_many_requests_fraction, status_share(&["429"])),
            (FactId::unavailable_fraction, status_share(&["503"])),
            (FactId::server_error_fraction, status_share(&["500"])),
            (FactId::response_time_mean_us, run.response_time_us.mean),
            (FactId::response_time_p99_us, run.response_time_us.p99.map(|us| us as f64)),
            (FactId::response_time_inflation, queueing.map(|queueing| queueing.ratio)),
            (FactId::response_time_excess_us, queueing.map(|queueing| queueing.excess_us)),
            (FactId::response_time_drift_ratio, drift(measurement)?),
            (FactId::service_time_mean_us, run.service_time_us.mean),
            (FactId::connect_time_mean_us, run.connect_time_us.mean),
            (FactId::connect_time_max_us, run.connect_time_us.max.map(|us| us as f64)),
            (FactId::client_delay_mean_us, run.client_delay_us.mean),
            (FactId::client_delay_p90_us, run.client_delay_us.p90.map(|us| us as f64)),
            (FactId::connections_opened_per_s, per_s(run.connections.opened as f64)),
            (FactId::connections_opened_total, total.map(|total| total.connections as f64)),
            (FactId::kernel_limit, total.map(|total| total.value as f64)),
            (FactId::client_cpu_fraction_max_thread, run.client.cpu_fraction_max_thread),
            (FactId::generator_cpu_cores, generator_cores(measurement, run)),
            (FactId::pages_failed_per_s, run.pages.as_ref().and_then(|pages| per_s(pages.failed as f64))),
            (FactId::failed_time_mean_us, run.failed_time_us.mean),
            (FactId::connect_timeouts, Some(run.errors.connect_timeout as f64)),
            (FactId::served_bytes_per_s, per_s(run.bytes.received as f64)),
            (FactId::first_byte_mean_us, run.first_byte_us.mean),
            (FactId::round_trip_min_us, run.tcp.round_trip_min_us.map(|us| us as f64)),
            (FactId::received_bytes_per_request, (ended > 0.0).then(|| run.bytes.received as f64 / ended)),
        ];
        for (name, value) in facts.into_iter().chain(requested_load(measurement)) {
            self.add_client(measurement, name, value);
        }
        self.connections(measurement, run);
        Ok(())
    }

    /// Whether no request that was due waited for one of the generator's own connections.
    pub(super) fn has_no_generator_queue(&self) -> bool {
        let waiting = self.facts.get(&FactId::waiting_in_generator_mean);
        waiting.is_none_or(|fact| fact.value < WAITING_MIN)
    }

    pub(super) fn add_client(&mut self, measurement: &Measurement, name: FactId, value: Option<f64>) {
        let Some(value) = value else { return };
        let window = self.series.window();
        self.add_within(name, value, window, ("load engine".into(), repro_command::load(measurement)));
    }
}

/// Cores of the generator where they may be the server's: one whose clock may be off is another machine (an error of 0 means the same
/// clock). Of several machines that load nobody knows which ones they are.
fn generator_cores(measurement: &Measurement, run: &RunReport) -> Option<f64> {
    let error_us = measurement.server.as_ref().and_then(|server| server.clock_error_us);
    let is_elsewhere = error_us.is_some_and(|us| us > 0) && measurement.workers.is_empty();
    run.client.cpu_s.filter(|_| !is_elsewhere && run.elapsed_s > 0.0).map(|cpu_s| cpu_s / run.elapsed_s)
}

/// Fewer than this wait because of the moment in which they are handed out.
const WAITING_MIN: f64 = 0.5;

/// What a proxy answers when what stands behind it does not.
const BAD_GATEWAY: [&str; 2] = ["502", "503"];

fn response_count(run: &RunReport, status: &[&str]) -> f64 {
    status.iter().filter_map(|status| run.status.get(*status)).sum::<u64>() as f64
}

type ClientRow = (FactId, Option<f64>);

/// What the load asked for. In open arrival requests that are due wait in the generator while all its connections are
/// in use; the engine counts them as in flight, without bound. They are told apart here, so that what is in flight is
/// what the server could have: never more than one request per connection.
fn requested_load(measurement: &Measurement) -> Vec<ClientRow> {
    let sums = measurement.measured().fold((0u64, 0u64, 0u64), |sums, interval| {
        (sums.0 + interval.length_us, sums.1 + interval.in_flight_us, sums.2 + interval.started)
    });
    let (length_us, in_flight_us, started) = sums;
    let per_length = |count: u64| (length_us > 0).then(|| count as f64 / length_us as f64);
    let observed = per_length(in_flight_us);
    let open = measurement.workload.as_ref().filter(|workload| workload.arrival != Arrival::Closed);
    let Some((workload, offered)) = open.map(|open| (open, offered_rate(open, per_length(started)))) else {
        return vec![(FactId::in_flight_mean, observed)];
    };
    let cap = f64::from(workload.concurrency());
    vec![
        (FactId::in_flight_mean, observed.map(|observed| observed.min(cap))),
        (FactId::waiting_in_generator_mean, observed.map(|observed| (observed - cap).max(0.0))),
        (FactId::offered_rate, offered),
        (FactId::connections_cap, Some(cap)),
    ]
}

/// Requests per second that were due. With exponential gaps chance makes them more or fewer than was asked for.
fn offered_rate(workload: &Workload, started_per_us: Option<f64>) -> Option<f64> {
    match workload.arrival {
        Arrival::Open { poisson: true, rate_per_s } => {
            started_per_us.map(|rate| rate * 1e6).filter(|rate| *rate > 0.0).or(Some(rate_per_s))
        }
        Arrival::Open { rate_per_s, .. } => Some(rate_per_s),
        Arrival::Closed => None,
    }
}

/// Half the width of the 95% interval of a mean rate, as a share of it.
pub(super) fn relative_ci95(rates: &[f64]) -> Option<f64> {
    let series = statistics::describe(rates).filter(|series| series.mean > 0.0)?;
    Some(series.half_width_95() / series.mean)
}

/// How much longer answers took than they can.
#[derive(Clone, Copy)]
struct QueueingDelay {
    /// The mean response time as a multiple of the fast tenth of each request's own answers: about one to two where
    /// nothing queues, more where requests wait for something.
    ratio: f64,
    /// The difference of the two: a multiple of next to nothing is next to nothing.
    excess_us: f64,
}

/// A second with fewer answers has no mean to speak of.
const DRIFT_ANSWERS_MIN: u64 = 8;
const DRIFT_SECONDS_MIN: usize = 4;

/// How much more the means of seconds differ than those of answers would that have nothing to do with each other: the ratio of
/// variances between and within (F). Who waits in a queue waits about as long as the one before, and a queue that costs time
/// grows and shrinks over seconds.
fn drift(measurement: &Measurement) -> Result<Option<f64>> {
    let (mut means, mut within, mut counts) = (vec![], 0.0, 0.0);
    for interval in measurement.measured() {
        let times = crate::measurement::histograms::merged(interval.response_time.iter())?.dist();
        if let (Some(mean), Some(stdev)) = (times.mean, times.stdev)
            && times.count >= DRIFT_ANSWERS_MIN
        {
            means.push(mean);
            within += stdev * stdev;
            counts += times.count as f64;
        }
    }
    let seconds = means.len() as f64;
    let described = statistics::describe(&means).filter(|_| means.len() >= DRIFT_SECONDS_MIN && within > 0.0);
    Ok(described.map(|described| described.variance * (counts / seconds) / (within / seconds)))
}

/// Requests are told apart by name, so that a mix of quick and slow pages is not taken for queueing.
fn queueing(measurement: &Measurement) -> Result<Option<QueueingDelay>> {
    let named = crate::run_report::named_times(measurement)?;
    let mut groups: Vec<_> = named.into_values().map(|(_, _, times)| times).collect();
    if groups.is_empty() {
        groups.push(crate::run_report::response_times(measurement)?);
    }
    let (mut all, mut quickest, mut count) = (0.0, 0.0, 0.0);
    for times in &groups {
        if let (Some(mean), Some(quick)) = (times.mean_us(), times.quantile_us(0.1)) {
            all += mean * times.count() as f64;
            quickest += quick as f64 * times.count() as f64;
            count += times.count() as f64;
        }
    }
    let queueing = QueueingDelay { ratio: all / quickest, excess_us: (all - quickest) / count };
    Ok((quickest > 0.0).then_some(queueing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Facts, facts};
    use crate::run_report::run_report;
    use webdyno_model::environment::Environment;
    use webdyno_model::histogram::TimeHistogram;
    use webdyno_model::interval::Interval;

    fn workload(arrival: Arrival, connections: u32) -> Workload {
        Workload { arrival, connections, timeout_us: 1, keepalive: false, ..Workload::default() }
    }

    fn of(arrival: Arrival, interval: Interval) -> Facts {
        let intervals = vec![Interval { length_us: 1_000_000, ..interval }];
        let workload = Some(workload(arrival, 200));
        let measurement = Measurement { workload, intervals, measured_to_s: 1.0, ..Measurement::default() };
        facts(&measurement, Some(&run_report(&measurement).unwrap())).unwrap()
    }

    #[test]
    fn what_waits_in_the_generator_is_not_at_the_server() {
        let interval = Interval { in_flight_us: 1_851_000_000, started: 290, ..Interval::default() };
        let open = |poisson| of(Arrival::Open { rate_per_s: 300.0, poisson }, interval.clone());
        let even = open(false);
        assert_eq!(even.value(FactId::in_flight_mean), Some(200.0));
        assert_eq!(even.value(FactId::waiting_in_generator_mean), Some(1651.0));
        assert_eq!(
            (even.value(FactId::offered_rate), even.value(FactId::connections_cap)),
            (Some(300.0), Some(200.0))
        );
        assert_eq!(open(true).value(FactId::offered_rate), Some(290.0));
        assert_eq!(of(Arrival::Closed, interval).value(FactId::offered_rate), None);
    }

    #[test]
    fn failures_end_too_and_excess_is_a_time() {
        let mut times = TimeHistogram::new();
        [100, 100, 100, 100, 600].iter().for_each(|us| times.record(*us));
        let interval =
            Interval { completed: 5, failed: 15, response_time: times.encode(), ..Interval::default() };
        let facts = of(Arrival::Closed, interval);
        assert_eq!((facts.value(FactId::rate), facts.value(FactId::ended_per_s)), (Some(5.0), Some(20.0)));
        assert_eq!(facts.value(FactId::response_time_inflation), Some(2.0));
        assert_eq!(facts.value(FactId::response_time_excess_us), Some(100.0));
    }

    #[test]
    fn a_generator_on_another_machine_takes_none_of_the_server_s_cores() {
        for (clock_error_us, cores) in [(None, Some(0.3)), (Some(0), Some(0.3)), (Some(180), None)] {
            let interval = Interval { length_us: 1_000_000, cpu_us: 300_000, ..Interval::default() };
            let measurement = Measurement {
                workload: Some(workload(Arrival::Closed, 8)),
                intervals: vec![interval],
                measured_to_s: 1.0,
                server: Some(Environment { clock_error_us, ..Environment::default() }),
                ..Measurement::default()
            };
            let facts = facts(&measurement, Some(&run_report(&measurement).unwrap())).unwrap();
            assert_eq!(facts.value(FactId::generator_cpu_cores), cores, "{clock_error_us:?}");
        }
    }

    #[test]
    fn answers_that_differ_are_told_from_seconds_that_do() {
        let drift_of = |seconds: [u64; 5]| {
            let intervals = seconds.map(|mean_us| {
                let mut times = TimeHistogram::new();
                (1..=20).for_each(|part| times.record(mean_us * part / 10));
                Interval { length_us: 1_000_000, response_time: times.encode(), ..Interval::default() }
            });
            let intervals = intervals.into_iter().enumerate();
            let intervals = intervals.map(|(index, one)| Interval { t_s: index as f64, ..one }).collect();
            drift(&Measurement { intervals, measured_to_s: 5.0, ..Measurement::default() }).unwrap()
        };
        assert!(drift_of([100_000, 104_000, 97_000, 101_000, 99_000]).unwrap() < 1.0);
        assert!(drift_of([60_000, 90_000, 130_000, 170_000, 110_000]).unwrap() > 5.0);
    }

    #[test]
    fn the_interval_of_the_rate_is_students() {
        // Mean 10, standard error 0.632 with five values: t is 2.776.
        let spread = relative_ci95(&[8.0, 12.0, 9.0, 11.0, 10.0]).unwrap();
        assert!((spread - 2.776 * 0.0707).abs() < 0.001, "{spread}");
        assert_eq!((relative_ci95(&[5.0]), relative_ci95(&[0.0, 0.0])), (None, None));
    }
}
