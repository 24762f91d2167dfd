//! The machines of a load that several made, side by side.

use crate::human::{UNKNOWN, count, percent, plural, rate_or_unknown, time, time_us};
use webdyno_model::run::RunReport;
use webdyno_model::worker::WorkerReport;

/// What the table means.
pub(crate) const WORKERS_MEAN: &str = "Each worker over the whole load, warm-up included. Start: how much later it began than the common instant.";

/// Titles, and a row for each worker; nothing for a load of one machine.
pub(crate) fn workers_table(run: &RunReport) -> Option<Vec<Vec<String>>> {
    let titles = [
        "worker",
        "share",
        "per second",
        "total",
        "failed",
        "p50",
        "p99",
        "busiest thread",
        "start",
        "round trip",
        "",
    ];
    let rows = run.workers.iter().map(row);
    (!run.workers.is_empty()).then(|| [titles.map(str::to_owned).to_vec()].into_iter().chain(rows).collect())
}

/// Who made the load, in a line: the quickest and the slowest.
pub(crate) fn workers_line(run: &RunReport) -> Option<String> {
    let p99 = |worker: &&WorkerReport| worker.response_time_us.p99;
    let slowest = run.workers.iter().max_by_key(p99)?;
    let quickest = run.workers.iter().min_by_key(p99)?;
    let of = |worker: &WorkerReport| format!("{} (p99 {})", worker.name, time(worker.response_time_us.p99));
    let ends = match run.workers.len() {
        1 => of(slowest),
        _ => format!("from {} to {}", of(quickest), of(slowest)),
    };
    // Who took over a part has a row for it, besides its own.
    let is_moved = run.workers.iter().any(|worker| worker.taken_over_at_s.is_some());
    let (made, what) = if is_moved { ("in", "part") } else { ("by", "worker") };
    Some(format!("Made {made} {}: {ends}.", plural(run.workers.len() as u64, what)))
}

fn row(worker: &WorkerReport) -> Vec<String> {
    let state = match (worker.lost_at_s, worker.saturated) {
        (Some(at_s), _) => match worker.taken_over_at_s {
            Some(from_s) => format!("lost at {at_s} s, moved at {from_s} s"),
            None => format!("lost at {at_s} s"),
        },
        (None, true) => "SATURATED".into(),
        (None, false) => String::new(),
    };
    let start = |us: i64| format!("{}{}", if us < 0 { "-" } else { "+" }, time_us(us.unsigned_abs() as f64));
    vec![
        worker.name.clone(),
        percent(worker.share),
        rate_or_unknown(worker.rate),
        count(worker.completed),
        count(worker.failed),
        time(worker.response_time_us.p50),
        time(worker.response_time_us.p99),
        worker.cpu_fraction_max_thread.map_or(UNKNOWN.into(), percent),
        worker.start_late_us.map_or(UNKNOWN.into(), start),
        time(Some(worker.round_trip_us)),
        state,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_moved_is_no_worker_more() {
        let of = |name: &str, taken_over_at_s: Option<u64>| WorkerReport {
            name: name.into(),
            taken_over_at_s,
            ..WorkerReport::default()
        };
        let line = |workers: Vec<WorkerReport>| workers_line(&RunReport { workers, ..RunReport::default() });
        let two = line(vec![of("a", None), of("b", None)]).unwrap();
        assert!(two.starts_with("Made by 2 workers: from "), "{two}");
        let moved = line(vec![of("a", Some(8)), of("b", None), of("b for a", None)]).unwrap();
        assert!(moved.starts_with("Made in 3 parts: from "), "{moved}");
        assert_eq!(line(vec![]), None);
    }
}
