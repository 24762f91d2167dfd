//! Sessions as long as real ones: a load of so many seconds with readings of the server, and its latency by moment.

use super::{load, machine, quantile_us, run, service, view};
use webdyno_model::purpose::Purpose;
use webdyno_session::heat_map::HeatMap;
use webdyno_session::view::{LoadView, Outcome, Series, View};

/// What a server's agent reads of it, with the level around which it goes.
const LEVELS: [(&str, &str, f64); 14] = [
    ("CPU: busy", "fraction", 0.62),
    ("CPU: softirq", "fraction", 0.06),
    ("CPU: stolen", "fraction", 0.0),
    ("CPU: run queue", "processes", 5.0),
    ("memory: available", "bytes", 2.1e9),
    ("pressure: tasks waiting for CPU", "fraction", 0.21),
    ("accept queue: waiting", "connections", 12.0),
    ("workers: busy", "workers", 46.0),
    ("workers: places", "workers", 64.0),
    ("connections: open", "connections", 55.0),
    ("network: received", "bytes/s", 210e3),
    ("network: sent", "bytes/s", 27e6),
    ("backends: busy PHP-FPM children", "processes", 11.0),
    ("backends: database connections", "connections", 20.0),
];

/// A run of so many seconds, with a burst of failures and a slow minute in it.
pub fn long(seconds: u32) -> View {
    let report = run(2190.4, 22_000.0);
    let mut long = load(1, Purpose::Run, None, 2.0, report.clone());
    let second = long.intervals[4].clone();
    long.intervals = (0..seconds)
        .map(|t| {
            let wave = 1.0 + 0.06 * (f64::from(t) * 0.13).sin() + 0.03 * (f64::from(t) * 1.7).sin();
            let slow = if (seconds / 3..seconds / 3 + 40).contains(&t) { 2.5 } else { 1.0 };
            let mut second = second.clone();
            (second.t_s, second.rate) = (f64::from(t), 2190.4 * wave / slow);
            second.p50_us = Some((22_000.0 * wave * slow) as u64);
            second.p99_us = Some((70_000.0 * wave * slow * slow) as u64);
            second.failed = if t % 97 == 5 || slow > 1.0 { u64::from(t % 19) } else { 0 };
            second
        })
        .collect();
    let mut view = view("run", Outcome::Run(report));
    view.heat_map = heat_map(std::slice::from_ref(&long));
    view.loads = vec![long];
    view.series = series(f64::from(seconds) + 4.0);
    (view.service, view.server) = (Some(service()), Some(machine()));
    view
}

/// Readings of a server once a second.
pub fn series(until_s: f64) -> Vec<Series> {
    let of = |(index, (name, unit, level)): (usize, &(&str, &str, f64))| Series {
        name: (*name).into(),
        unit: (*unit).into(),
        points: (0..until_s as u32)
            .map(|t| {
                let t = f64::from(t) + 0.013 * index as f64;
                (t, level * (1.0 + 0.2 * (t * (0.11 + 0.03 * index as f64)).sin()))
            })
            .collect(),
    };
    LEVELS.iter().enumerate().map(of).collect()
}

/// Latency by moment, each second spread around its median as [`quantile_us`] spreads.
pub fn heat_map(loads: &[LoadView]) -> Option<HeatMap> {
    let seconds =
        || loads.iter().flat_map(|load| load.intervals.iter().map(move |one| (load.begins_s + one.t_s, one)));
    let from_s = seconds().next()?.0.floor();
    let to_s = seconds().last()?.0.floor() + 1.0;
    let step_s = ((to_s - from_s) / 300.0).ceil();
    let medians = || seconds().filter_map(|(_, second)| second.p50_us).map(|us| us as f64);
    let low = (quantile_us(medians().fold(f64::INFINITY, f64::min), 0.0005).log10() * 12.0).floor() as i32;
    let high = (quantile_us(medians().fold(1.0, f64::max), 0.9995).log10() * 12.0).ceil() as i32;
    let edges: Vec<f64> = (low..=high).map(|step| 10f64.powf(f64::from(step) / 12.0)).collect();
    let mut counts = vec![vec![0; edges.len() - 1]; ((to_s - from_s) / step_s) as usize + 1];
    for (start_s, second) in seconds() {
        let below = |us: f64| 1.0 / (1.0 + (us / second.p50_us.unwrap_or(1) as f64).powf(-4.0));
        let column = ((start_s - from_s) / step_s) as usize;
        for (row, pair) in edges.windows(2).enumerate() {
            counts[column][row] += (second.rate * (below(pair[1]) - below(pair[0]))) as u64;
        }
    }
    Some(HeatMap { from_s, step_s, edges_us: edges.iter().map(|edge| *edge as u64).collect(), counts })
}
