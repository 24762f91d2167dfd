//! How near a load came to the stretch of a log that it sends again: a list that is sent in turn, in stages of its seconds.

use crate::measurement::Measurement;
use webdyno_model::number::significant;
use webdyno_model::run::{NamedReport, Replay};
use webdyno_model::workload::{Arrival, Workload, stage};

/// Sent against planned; `None` of any other load.
pub fn replay(
    measurement: &Measurement,
    by_name: &std::collections::BTreeMap<String, NamedReport>,
) -> Option<Replay> {
    let workload = measurement.workload.as_ref()?;
    let list = workload.list.as_ref().filter(|list| !list.random && !list.weighted)?;
    let is_open = matches!(workload.arrival, Arrival::Open { poisson: false, .. });
    if !is_open || workload.stages.is_empty() || list.by_name.is_empty() {
        return None;
    }
    let planned = planned(workload);
    let whole = |interval: &&webdyno_model::interval::Interval| interval.length_us >= 999_000;
    let sent = measurement.intervals.iter().filter(whole).map(|interval| interval.started);
    let ended = |named: &NamedReport| (named.completed + named.failed) as f64;
    let all: f64 = by_name.values().map(ended).sum();
    let of_list: u64 = list.by_name.values().sum();
    let shares = list.by_name.iter().map(|(name, count)| {
        let share = by_name.get(name).map_or(0.0, |named| ended(named) / all.max(1.0));
        (share - *count as f64 / of_list.max(1) as f64, name)
    });
    // Requests of one name are counted by none.
    let widest = shares.filter(|_| list.by_name.len() > 1).max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
    Some(Replay {
        planned_requests: list.count,
        started_requests: measurement.intervals.iter().map(|interval| interval.started).sum(),
        planned_peak_rate: significant(planned.into_iter().fold(0.0, f64::max), 6),
        peak_rate: sent.max().map(|most| most as f64),
        mix_difference: widest.map(|(difference, _)| significant(difference.abs(), 3)),
        mix_name: widest.map(|(_, name)| name.clone()),
    })
}

/// Starts in each whole second of the load.
fn planned(workload: &Workload) -> Vec<f64> {
    let seconds = stage::duration_us(&workload.stages) / 1_000_000;
    let up_to = |second: u64| stage::integral(&workload.stages, second as f64);
    (0..seconds).map(|second| (up_to(second + 1) - up_to(second)).round()).collect()
}
