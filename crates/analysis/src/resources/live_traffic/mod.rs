//! Live traffic: what other clients send to the server besides us. What matters is whether a change that hurts would
//! hurt somebody.
//!
//! Two signals, and each has its blind spot:
//! - *Requests*: what the service counts, less what we sent. Before the first load that is only the status page, one
//!   request a reading; then every single request of others shows. During a load our own are taken off. They are known
//!   second by second while the readings lie in between, so all of the first and the last second is taken off: what is
//!   left is the least that others sent, and a few of them are hidden. Apache sends requests to itself, too (`internal dummy connection`:
//!   prefork ends idle workers that way, one a second, for minutes after a load; seen with 2.4), and a load that was
//!   cut off leaves requests behind that are served later (39 a second were seen after one with 150 workers).
//! - *Connections*: those that are open at a reading and not ours. Exact, also during a load of ours, where the
//!   generator runs on the server's machine; what comes and goes between two readings is not seen.
//!
//! What no signal tells is unknown, and unknown is not `nobody`.

use crate::facts::repro_command;
use crate::measurement::Measurement;
use crate::measurement::series::SeriesSet;
use webdyno_model::fact::Fact;
use webdyno_model::live_traffic::LiveTraffic;
use webdyno_model::number::significant;

const ACCESSES: &str = "apache.accesses_count";
/// Pages that the agent was given; recordings of before it was counted have one for each reading.
const OWN_PAGES: &str = "apache.own_requests_count";
const GENERATION: &str = "apache.config_generation_count";
const BUSY: &str = "apache.workers_busy_count";
const PROCESSES: &str = "process.count";
const CONNECTIONS: &str = "clients.connections_count";
const OTHERS: &str = "clients.others_count";
const LEFT: &str = "clients.left_count";

/// Requests that may be counted on the wrong side of a reading: the service counts a request after it was answered.
const COUNTED_LATE: f64 = 1.0;
/// The engine begins up to so long after the beginning of its load was noted.
const BEGINS_LATE_S: f64 = 0.5;
/// Requests per second that may be ours during a load beside the load itself: probes whether the site still answers.
const PROBES_PER_S: f64 = 5.0;

/// What others sent around and during a measurement; `None` when nothing of that could be read.
pub fn live_traffic(measurement: &Measurement) -> Option<LiveTraffic> {
    let look = TrafficSignals { measurement, series: SeriesSet::of(measurement) };
    let quiet = look.quiet_window();
    let mut observed =
        quiet.map(|window| (look.requests_in(window, 0.0), look.connections_in(window, CONNECTIONS)));
    if measurement.workload.is_some() {
        let window = (0.0, measurement.measured_to_s);
        let loaded = (look.requests_beside_load(window), look.connections_in(window, OTHERS));
        observed = Some(observed.map_or(loaded.clone(), |(requests, connections)| {
            (stronger_signal(requests, loaded.0), stronger_signal(connections, loaded.1))
        }));
    }
    let (requests, connections) = observed?;
    if requests.is_none() && connections.is_none() {
        return None;
    }
    let is_present = |signal: &Option<TrafficSignal>| signal.as_ref().is_some_and(|signal| signal.present);
    let value = |signal: &Option<TrafficSignal>| signal.as_ref().map(|signal| signal.fact.value);
    Some(LiveTraffic {
        present: is_present(&requests) || is_present(&connections),
        requests_per_s: value(&requests),
        connections_count: value(&connections),
        evidence: [requests, connections].into_iter().flatten().map(|signal| signal.fact).collect(),
    })
}

/// What several measurements say together: who was seen once is there.
pub fn merged(all: impl IntoIterator<Item = LiveTraffic>) -> Option<LiveTraffic> {
    all.into_iter().reduce(|first, second| match (first.present, second.present) {
        (false, true) => second,
        (true, true) if second.requests_per_s > first.requests_per_s => second,
        _ => first,
    })
}

/// One signal: its figure, and whether that proves that somebody else is there.
#[derive(Debug, Clone)]
struct TrafficSignal {
    present: bool,
    fact: Fact,
}

/// Of two looks at the same signal the one that saw somebody; else the first one, which disturbed less.
fn stronger_signal(first: Option<TrafficSignal>, second: Option<TrafficSignal>) -> Option<TrafficSignal> {
    match (first, second) {
        (Some(first), Some(second)) if second.present && !first.present => Some(second),
        (first, second) => first.or(second),
    }
}

struct TrafficSignals<'a> {
    measurement: &'a Measurement,
    series: SeriesSet<'a>,
}

type TimeWindow = (f64, f64);

impl TrafficSignals<'_> {
    /// The time without a load of ours: before the first load, or the whole of a watch.
    fn quiet_window(&self) -> Option<TimeWindow> {
        match (self.measurement.quiet_from_s, &self.measurement.workload) {
            (_, None) => Some((self.measurement.measured_from_s, self.measurement.measured_to_s)),
            (Some(from_s), Some(_)) => Some((from_s, 0.0)),
            (None, Some(_)) => None,
        }
    }

    /// Requests of others in a window, of which `own_count` are the load's. Unknown with fewer than two readings, and
    /// when the service was reloaded meanwhile, as it sends many requests to itself then.
    fn requests_in(&self, window: TimeWindow, own_count: f64) -> Option<TrafficSignal> {
        let readings = self.readings(ACCESSES, window);
        let (first, last) = (readings.first()?, readings.last()?);
        let (seconds, rise) = (last.0 - first.0, last.1 - first.1);
        let generations = self.readings(GENERATION, window);
        let reloaded = generations.windows(2).any(|pair| pair[0].1 != pair[1].1);
        if seconds <= 0.0 || rise < 0.0 || reloaded {
            return None;
        }
        // The answer to a reading does not count the request for it.
        let own_pages = self.readings(OWN_PAGES, window);
        let own_pages = own_pages.first().zip(own_pages.last()).map(|(first, last)| last.1 - first.1);
        let own_readings = own_pages.unwrap_or(readings.len() as f64 - 1.0);
        let others = rise - own_readings - own_count - self.self_made_requests(window, seconds);
        let tolerance = match self.is_loaded(window) {
            false => COUNTED_LATE,
            true => COUNTED_LATE + PROBES_PER_S * seconds,
        };
        let command = "a=$(COUNT); sleep 3; b=$(COUNT); echo $(( (b - a - 1) / 3 ))";
        let count = self.series.metric(ACCESSES).map_or("", |metric| metric.reproduce.as_str());
        let fact = self.fact(
            ("others_requests_per_s", "requests/s"),
            others.max(0.0) / seconds,
            (first.0, last.0),
            (ACCESSES, &command.replace("COUNT", count)),
        );
        Some(TrafficSignal { present: others > tolerance, fact })
    }

    /// Requests that nobody sends: an idle worker that prefork ends is woken by one, and a load that was cut off has
    /// left some behind.
    fn self_made_requests(&self, window: TimeWindow, seconds: f64) -> f64 {
        let processes = self.readings(PROCESSES, window);
        let ended: f64 = processes.windows(2).map(|pair| (pair[0].1 - pair[1].1).max(0.0)).sum();
        // Where the processes are not seen: as many as it can be.
        let ended = if processes.len() < 2 { seconds } else { ended };
        ended + self.orphaned_requests(window)
    }

    /// The most requests that may be served still though their client has gone: as many as connections that were closed
    /// from the other side, and as many as workers that have no connection any more (it was reset), at the first reading; or as
    /// our load before left behind, which no reading may have seen.
    fn orphaned_requests(&self, window: TimeWindow) -> f64 {
        let first = |metric: &str| self.readings(metric, window).first().map_or(0.0, |(_, count)| *count);
        // The request for the page itself keeps one busy.
        let without_client = (first(BUSY) - 1.0 - first(CONNECTIONS)).max(0.0);
        (first(LEFT) + without_client).max(self.measurement.left_behind_count as f64)
    }

    /// The service's count against the most that can be the load's own.
    fn requests_beside_load(&self, window: TimeWindow) -> Option<TrafficSignal> {
        let readings = self.readings(ACCESSES, window);
        let (from_s, to_s) = (readings.first()?.0, readings.last()?.0);
        let intervals = self.measurement.intervals.iter().filter(|interval| {
            let ends_s = interval.t_s + interval.length_us as f64 / 1e6;
            interval.t_s < to_s && ends_s + BEGINS_LATE_S > from_s
        });
        let own: u64 = intervals.map(|interval| interval.completed + interval.failed).sum();
        // That none are left over proves nothing: so many could hide.
        self.requests_in((from_s, to_s), own as f64).filter(|signal| signal.present)
    }

    fn is_loaded(&self, window: TimeWindow) -> bool {
        self.measurement.workload.is_some() && window.1 > 0.0
    }

    /// The most connections of others at one reading.
    fn connections_in(&self, window: TimeWindow, metric: &str) -> Option<TrafficSignal> {
        // Where the generator can be told from others, its probe before the load is none of them.
        let told_apart = self.readings(OTHERS, window);
        let (metric, readings) = match told_apart.is_empty() {
            false => (OTHERS, told_apart),
            true => (metric, self.readings(metric, window)),
        };
        let most = readings.iter().map(|(_, count)| *count).reduce(f64::max)?;
        let window = (readings.first()?.0, readings.last()?.0);
        let command = self.series.metric(metric).map_or("", |metric| metric.reproduce.as_str());
        let fact = self.fact(("others_connections_max", "connections"), most, window, (metric, command));
        Some(TrafficSignal { present: most >= 1.0, fact })
    }

    /// The readings of a metric in a window, at the time when they were answered: a page that every worker's
    /// request goes before takes its time.
    fn readings(&self, metric: &str, window: TimeWindow) -> Vec<(f64, f64)> {
        let within = |time_s: &f64| (window.0 - 0.0005..=window.1 + 0.0005).contains(time_s);
        let samples = self.measurement.samples.iter();
        let read = samples.filter_map(|timed| {
            let value = timed.sample.values.get(metric)?.0;
            Some((timed.t_s + timed.sample.duration_us as f64 / 1e6, value))
        });
        let mut readings: Vec<(f64, f64)> = read.filter(|(time_s, _)| within(time_s)).collect();
        readings.sort_by(|a, b| a.0.total_cmp(&b.0));
        readings
    }

    fn fact(&self, what: (&str, &str), value: f64, window: TimeWindow, from: (&str, &str)) -> Fact {
        let source = self.series.metric(from.0).map_or_else(String::new, |metric| metric.source.clone());
        Fact {
            name: what.0.into(),
            value: significant(value, 6),
            unit: what.1.into(),
            from_s: significant(window.0, 6),
            to_s: significant(window.1, 6),
            source,
            reproduce: repro_command::with_service_values(from.1, self.measurement.service.as_ref(), None),
        }
    }
}

#[cfg(test)]
mod tests;
