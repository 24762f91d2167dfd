//! The machines of a load that several made: each beside the others, and the verdict on each, since one that does not keep up
//! spoils the figures of its part.

use super::CPU_FRACTION_MAX;
use crate::measurement::Measurement;
use crate::measurement::histograms::merged;
use webdyno_model::Result;
use webdyno_model::number::significant;
use webdyno_model::worker::{WorkerPart, WorkerReport};

/// The workers of a load, over the whole of it; none of one that this machine made. An error when a histogram is damaged.
pub fn reports(measurement: &Measurement) -> Result<Vec<WorkerReport>> {
    measurement.workers.iter().map(report).collect()
}

fn report(part: &WorkerPart) -> Result<WorkerReport> {
    let per_second = |count: u64| significant(count as f64 * 1e6 / part.elapsed_us as f64, 6);
    let ended = part.completed + part.failed;
    let fraction = cpu_fraction(part);
    Ok(WorkerReport {
        name: part.name.clone(),
        threads: part.share.threads,
        share: significant(share(part), 4),
        rate: (part.elapsed_us > 0).then(|| per_second(part.completed)),
        completed: part.completed,
        failed: part.failed,
        response_time_us: merged(part.response_time.iter())?.dist(),
        cpu_fraction_max_thread: fraction.map(|fraction| significant(fraction, 4)),
        client_delay_mean_us: (ended > 0).then(|| significant(part.client_delay_sum_us / ended as f64, 4)),
        saturated: fraction.is_some_and(|fraction| fraction > CPU_FRACTION_MAX),
        start_late_us: part.start_late_us,
        round_trip_us: part.round_trip_us,
        lost_at_s: part.lost_at_s,
        from_s: part.from_s,
        taken_over_at_s: part.taken_over_at_s,
    })
}

fn share(part: &WorkerPart) -> f64 {
    f64::from(part.share.threads) / f64::from(part.share.total_threads.max(1))
}

fn cpu_fraction(part: &WorkerPart) -> Option<f64> {
    let busiest = part.thread_cpu_us.iter().max();
    busiest.filter(|_| part.elapsed_us > 0).map(|us| *us as f64 / part.elapsed_us as f64)
}

/// Which workers were the bottleneck of their own parts.
pub(super) fn overload(measurement: &Measurement) -> Option<String> {
    let is_over = |part: &&WorkerPart| cpu_fraction(part).is_some_and(|fraction| fraction > CPU_FRACTION_MAX);
    let over: Vec<&WorkerPart> = measurement.workers.iter().filter(is_over).collect();
    let text = |part: &&WorkerPart| {
        let percent = 100.0 * cpu_fraction(part).unwrap_or_default();
        format!("{} ({percent:.0}%)", part.name)
    };
    let names: Vec<String> = over.iter().map(text).collect();
    let percent = 100.0 * over.iter().map(|part| share(part)).sum::<f64>();
    (!over.is_empty()).then(|| {
        format!(
            "the busiest engine thread used more than {:.0}% of a core on {}: their {percent:.0}% of the load measured the \
             generator, not the server",
            CPU_FRACTION_MAX * 100.0,
            names.join(", ")
        )
    })
}

/// Which workers were lost: from then on their parts of the load are missing.
pub(super) fn loss(measurement: &Measurement) -> Option<String> {
    // The gap of one whose part went to others is in the rate of its seconds, and noted.
    let missing = measurement.workers.iter().filter(|part| part.taken_over_at_s.is_none());
    let lost = missing.filter_map(|part| Some((part, part.lost_at_s?)));
    let text = |(part, at_s): (&WorkerPart, u64)| {
        format!(
            "worker {} was lost: {:.0}% of the load are missing from {at_s} s on",
            part.name,
            100.0 * share(part)
        )
    };
    lost.map(text).reduce(|all, one| format!("{all}; {one}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::worker::LoadShare;

    fn part(name: &str, cpu_us: u64, lost_at_s: Option<u64>) -> WorkerPart {
        WorkerPart {
            name: name.into(),
            instance: name.into(),
            share: LoadShare { first_thread: 0, threads: 1, total_threads: 4 },
            round_trip_us: 100,
            start_late_us: Some(3),
            started: 10,
            completed: 8,
            failed: 2,
            in_flight_at_end: 0,
            elapsed_us: 2_000_000,
            response_time: None,
            thread_cpu_us: vec![cpu_us, 1],
            client_delay_sum_us: 50.0,
            lost_at_s,
            late_seconds: 0,
            seconds: 2,
            from_s: 0,
            taken_over_at_s: None,
        }
    }

    #[test]
    fn the_worker_that_did_not_keep_up_is_named() {
        let workers = vec![part("east", 1_600_000, None), part("west", 200_000, Some(7))];
        let measurement = Measurement { workers, ..Measurement::default() };
        let reports = reports(&measurement).unwrap();
        assert_eq!(reports[0].rate, Some(4.0));
        assert_eq!((reports[0].saturated, reports[1].saturated), (true, false));
        assert_eq!((reports[0].client_delay_mean_us, reports[0].share), (Some(5.0), 0.25));
        let overload = overload(&measurement).unwrap();
        assert!(overload.contains("east (80%)") && !overload.contains("west"), "{overload}");
        let loss = loss(&measurement).unwrap();
        assert!(loss.contains("west") && loss.contains("25%") && loss.contains("7 s"), "{loss}");
        let mut moved = measurement.clone();
        moved.workers[1].taken_over_at_s = Some(12);
        assert!(super::loss(&moved).is_none(), "others have it");
        let alone = Measurement::default();
        assert!(super::overload(&alone).is_none() && super::loss(&alone).is_none());
    }
}
