//! The few levels by which a host and its services are followed over time: for the live table, the plots and the text of
//! an observation. A pure function of readings; which metrics they come from is one table.

use crate::measurement::series::SeriesSet;
use std::collections::BTreeMap;
use webdyno_model::sample::Metric;

/// One level that is followed.
#[derive(Debug, Clone, Copy)]
pub struct HostLevel {
    /// What it belongs to: `CPU`, `memory`.
    pub group: &'static str,
    /// What it is called.
    pub name: &'static str,
    /// `fraction`, `bytes`, `requests/s`.
    pub unit: &'static str,
    of: LevelSource,
}

/// How a level follows from readings. A star in the name of a metric means the sum over all that there are of it.
#[derive(Debug, Clone, Copy)]
enum LevelSource {
    /// The share of processor time that was spent in these kinds.
    Processors(&'static [&'static str]),
    Gauge(&'static str),
    /// A counter's rise per second, times a factor.
    Rate(&'static str, f64),
}

const BUSY: &[&str] = &["user", "nice", "system", "irq", "softirq", "steal"];
const ALL_KINDS: [&str; 8] = ["user", "nice", "system", "irq", "softirq", "steal", "idle", "iowait"];
/// Of counters in microseconds: the share of time.
const SHARE: f64 = 1e-6;

/// What is followed, in the order in which it is shown.
#[rustfmt::skip] // a table, one row a line
pub const MAIN: &[HostLevel] = &[
    level("CPU", "busy", "fraction", LevelSource::Processors(BUSY)),
    level("CPU", "softirq", "fraction", LevelSource::Processors(&["softirq"])),
    level("CPU", "stolen", "fraction", LevelSource::Processors(&["steal"])),
    level("CPU", "iowait", "fraction", LevelSource::Processors(&["iowait"])),
    level("CPU", "run queue", "processes", LevelSource::Gauge("cpu.run_queue_count")),
    level("CPU", "used by the service", "cores", LevelSource::Rate("process.cpu_s", 1.0)),
    level("CPU", "used by other programs", "cores", LevelSource::Rate("process.foreign_cpu_s", 1.0)),
    level("memory", "available", "bytes", LevelSource::Gauge("memory.available_bytes")),
    level("memory", "used in the group's limit", "bytes", LevelSource::Gauge("memory.used_in_limit_bytes")),
    level("memory", "swapped in", "pages/s", LevelSource::Rate("memory.swapped_in_pages", 1.0)),
    level("memory", "swapped out", "pages/s", LevelSource::Rate("memory.swapped_out_pages", 1.0)),
    level("pressure", "tasks waiting for CPU", "fraction", LevelSource::Rate("pressure.cpu_some_us", SHARE)),
    level("pressure", "tasks waiting for memory", "fraction", LevelSource::Rate("pressure.memory_some_us", SHARE)),
    level("pressure", "all tasks stalled on memory", "fraction", LevelSource::Rate("pressure.memory_full_us", SHARE)),
    level("pressure", "all tasks stalled on disks", "fraction", LevelSource::Rate("pressure.io_full_us", SHARE)),
    level("accept queue", "waiting", "connections", LevelSource::Gauge("sockets.accept_queue_count")),
    level("accept queue", "dropped", "connections/s", LevelSource::Rate("sockets.listen_overflows_count", 1.0)),
    level("workers", "busy", "workers", LevelSource::Gauge("apache.workers_busy_count")),
    level("workers", "places", "workers", LevelSource::Gauge("apache.slots_count")),
    level("requests", "served", "requests/s", LevelSource::Rate("apache.accesses_count", 1.0)),
    level("requests", "errors (5xx)", "requests/s", LevelSource::Rate("access_log.status_5xx_count", 1.0)),
    level("connections", "open", "connections", LevelSource::Gauge("sockets.established_count")),
    level("connections", "new", "connections/s", LevelSource::Rate("sockets.passive_opens_count", 1.0)),
    level("connections", "in TIME_WAIT", "sockets", LevelSource::Gauge("sockets.time_wait_count")),
    level("network", "received", "bytes/s", LevelSource::Rate("nic.*.received_bytes", 1.0)),
    level("network", "sent", "bytes/s", LevelSource::Rate("nic.*.sent_bytes", 1.0)),
    level("network", "retransmits", "segments/s", LevelSource::Rate("sockets.retransmits_count", 1.0)),
    level("backends", "busy PHP-FPM children", "processes", LevelSource::Gauge("php_fpm.*.processes_busy_count")),
    level("backends", "requests waiting for PHP-FPM", "requests", LevelSource::Gauge("php_fpm.*.listen_queue_count")),
    level("backends", "running database threads", "threads", LevelSource::Gauge("mariadb.threads_running_count")),
    level("backends", "database connections", "connections", LevelSource::Gauge("mariadb.threads_connected_count")),
];

const fn level(group: &'static str, name: &'static str, unit: &'static str, of: LevelSource) -> HostLevel {
    HostLevel { group, name, unit, of }
}

impl HostLevel {
    /// The metrics that it follows from.
    pub fn metrics(&self) -> Vec<String> {
        match self.of {
            LevelSource::Processors(_) => ALL_KINDS.iter().map(|kind| format!("cpu.{kind}_s")).collect(),
            LevelSource::Gauge(metric) | LevelSource::Rate(metric, _) => vec![metric.to_owned()],
        }
    }

    /// Its values over time, `(seconds, value)`; empty when nothing tells them. Those of counters stand at the later of the
    /// two readings that they come from; where a counter was set back, none is told.
    pub fn points(&self, series: &SeriesSet<'_>) -> Vec<(f64, f64)> {
        match self.of {
            LevelSource::Processors(kinds) => processors(series, kinds),
            LevelSource::Gauge(metric) => summed(series, metric, <[(f64, f64)]>::to_vec),
            // Of each apart: one that appears brings all that it counted before.
            LevelSource::Rate(metric, factor) => {
                summed(series, metric, |readings| rates_of_increase(readings, factor))
            }
        }
    }
}

/// The share of processor time between consecutive readings that was spent in these kinds.
fn processors(series: &SeriesSet<'_>, kinds: &[&str]) -> Vec<(f64, f64)> {
    let all = ALL_KINDS.map(|kind| (kinds.contains(&kind), series.all(&format!("cpu.{kind}_s"))));
    let times: Vec<f64> = series.all("cpu.idle_s").iter().map(|(t_s, _)| *t_s).collect();
    let spent = |index: usize, which: bool| -> Option<f64> {
        let rise = |readings: &[(f64, f64)]| Some(readings.get(index)?.1 - readings.get(index - 1)?.1);
        all.iter().filter(|(counts, _)| *counts || !which).map(|(_, readings)| rise(readings)).sum()
    };
    let share = |index: usize| {
        let (part, whole) = (spent(index, true)?, spent(index, false)?);
        (whole > 0.0).then(|| (times[index], (part / whole).clamp(0.0, 1.0)))
    };
    (1..times.len()).filter_map(share).collect()
}

/// What follows from the readings of a metric; with a star in its name the sum over all that there are of it, by the time
/// of reading.
fn summed(
    series: &SeriesSet<'_>,
    metric: &str,
    points: impl Fn(&[(f64, f64)]) -> Vec<(f64, f64)>,
) -> Vec<(f64, f64)> {
    if !metric.contains('*') {
        return points(series.all(metric));
    }
    let template = Metric { name: metric.to_owned(), ..Metric::default() };
    let mut sums: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for (_, name) in series.instances(&template) {
        for (t_s, value) in points(series.all(name)) {
            let us = (t_s * 1e6).round().max(0.0) as u64;
            sums.entry(us).or_insert((t_s, 0.0)).1 += value;
        }
    }
    sums.into_values().collect()
}

fn rates_of_increase(readings: &[(f64, f64)], factor: f64) -> Vec<(f64, f64)> {
    let rise = |pair: &[(f64, f64)]| {
        let (seconds, rise) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        (seconds > 0.0 && rise >= 0.0).then(|| (pair[1].0, rise / seconds * factor))
    };
    readings.windows(2).filter_map(rise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::sample;
    use crate::measurement::Measurement;

    #[test]
    fn levels_follow_from_readings() {
        let kinds = |busy: f64, idle: f64| {
            ALL_KINDS.map(|kind| {
                let value = match kind {
                    "user" => busy,
                    "idle" => idle,
                    _ => 1.0,
                };
                (format!("cpu.{kind}_s"), value)
            })
        };
        let reading = |t_s: f64, busy, idle, rest: &[(&str, f64)]| {
            let cpu = kinds(busy, idle);
            let values: Vec<(&str, f64)> = cpu.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            sample(t_s, "x", &[&values[..], rest].concat())
        };
        let measurement = Measurement {
            samples: vec![
                reading(0.0, 10.0, 20.0, &[("a.x.n_count", 1.0), ("a.y.n_count", 2.0), ("t_us", 0.0)]),
                reading(1.0, 11.5, 20.5, &[("a.x.n_count", 4.0), ("t_us", 250_000.0)]),
                reading(2.0, 11.5, 22.5, &[("t_us", 100.0), ("a.z.n_count", 1e9)]),
            ],
            ..Measurement::default()
        };
        let series = SeriesSet::of(&measurement);
        let points = |of: LevelSource| level("", "", "", of).points(&series);
        assert_eq!(points(LevelSource::Processors(BUSY)), [(1.0, 0.75), (2.0, 0.0)]);
        assert_eq!(points(LevelSource::Gauge("a.*.n_count")), [(0.0, 3.0), (1.0, 4.0), (2.0, 1e9)]);
        assert_eq!(points(LevelSource::Rate("t_us", SHARE)), [(1.0, 0.25)], "what was set back is not told");
        // What appears, and what is gone, is no rise: y counted 2 before.
        assert_eq!(points(LevelSource::Rate("a.*.n_count", 1.0)), [(1.0, 3.0)]);
        assert_eq!(points(LevelSource::Gauge("none")), []);
        assert_eq!(HostLevel::points(&MAIN[0], &SeriesSet::of(&Measurement::default())), []);
    }
}
