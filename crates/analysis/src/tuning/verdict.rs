//! The verdict on a change: better, same, worse or inconclusive, from the interval and the noise floor.

use crate::facts::facts;
use crate::measurement::Measurement;
use crate::measurement::histograms::merged;
use crate::measurement::statistics::{Ratio, mean, ratio_of_means, trend};
use crate::resources::memory_evidence::memory_of_others;
use crate::run_report::run_report;
use webdyno_model::Result;
use webdyno_model::interval::EndReason;
use webdyno_model::objective::{Figure, Scope, TimeKind};
use webdyno_model::run::RunReport;
use webdyno_model::tune::Verdict;
use webdyno_model::workload::Arrival;

/// The smallest change that is believed to be one: runs of the same thing on a quiet machine differ by this much.
/// The gains of ten quickstarts on two otherwise idle cores lay within 0.6% of each other (3.027 to 3.043 times); the
/// floor leaves room for machines that are less quiet.
pub const NOISE_FLOOR: f64 = 0.03;

/// An interval wider than this on either side of the ratio cannot tell `same` from a change worth having.
const CONCLUSIVE_SPREAD: f64 = 0.10;

/// A comparison of two measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// `None` when there is too little to compare.
    pub ratio: Option<Ratio>,
    /// What it says.
    pub verdict: Verdict,
}

/// By this much more of the requests must fail for a change to be called worse, whatever the rate says.
const FAILED_FRACTION_TOLERANCE: f64 = 0.005;

/// Where so many fewer of the requests fail, a change is better also at the same rate of good answers, or one that is too unsteady
/// to compare: those who were turned away are served now, if later.
const FAILURES_CUT_MIN: f64 = 0.1;

/// The verdict on a change from the measurements before and after it: the rate of good answers decides, also where
/// visitors ask for pages, as each page is many answers and pages alone would be few a second; where requests arrive at
/// a given rate, which no change can raise, the response time does, and of pages the page time. A change by which more requests or pages fail, or by which
/// an objective is missed that was met, is worse; one by which the missed objectives are met, or the time falls that one of them
/// is about, is better if the rate does not suffer. A change after which the same load had to be stopped is worse, whatever it brought until then, and
/// so is one whose load the stop-loss ended. It says nothing where others filled the memory for which it was stopped, or the load before was
/// stopped for memory as well: what that one left in memory and in swap may be the reason.
pub fn judge(before: &Measurement, after: &Measurement) -> Result<Comparison> {
    if after.harm_guard_trip.is_some() {
        let says_nothing = both_for_memory(before, after) || stopped_for_others(after)?.is_some();
        let verdict = if says_nothing { Verdict::Inconclusive } else { Verdict::Worse };
        return Ok(Comparison { ratio: None, verdict });
    }
    let (run_before, run_after) = (run_report(before)?, run_report(after)?);
    if before.harm_guard_trip.is_some() {
        // The same load does no harm any more: its figures were of a server that was about to break down.
        let is_served = run_after.rate.is_some_and(|rate| rate > 0.0);
        let fails = fails_more(failed(&run_before), failed(&run_after));
        let verdict = if is_served && !fails { Verdict::Better } else { Verdict::Worse };
        return Ok(Comparison { ratio: None, verdict });
    }
    let rates = compare(&before.measured_rates(), &after.measured_rates());
    let mut verdict = rates.verdict;
    let open = matches!(after.workload.as_ref().map(|workload| workload.arrival), Some(Arrival::Open { .. }));
    if verdict == Verdict::Same && open {
        // Times are better when they fall.
        verdict = compare(&mean_times_us(after), &mean_times_us(before)).verdict;
    }
    if verdict == Verdict::Same && objectives_met(&run_after) > objectives_met(&run_before) {
        verdict = Verdict::Better;
    }
    if verdict == Verdict::Same && cuts_missed_tail(before, after, &run_before)? {
        verdict = Verdict::Better;
    }
    let fails_less = fraction(failed(&run_before)) - fraction(failed(&run_after)) >= FAILURES_CUT_MIN;
    if fails_less && verdict != Verdict::Worse && verdict != Verdict::Better {
        verdict = Verdict::Better;
    }
    let fails_more = fails_more(failed(&run_before), failed(&run_after))
        || fails_more(failed_pages(&run_before), failed_pages(&run_after));
    let stopped = after.end.as_ref().is_some_and(|end| end.reason == EndReason::StopLoss);
    if verdict != Verdict::Worse && (stopped || fails_more || misses_more(&run_before, &run_after)) {
        verdict = Verdict::Worse;
    }
    Ok(Comparison { ratio: rates.ratio, verdict })
}

fn both_for_memory(before: &Measurement, after: &Measurement) -> bool {
    let is_for_memory =
        |of: &Measurement| of.harm_guard_trip.as_ref().is_some_and(|trip| trip.cause.is_memory());
    is_for_memory(before) && is_for_memory(after)
}

/// Why a load that was stopped says nothing of the change before it: what stopped it is not the service's doing.
pub fn stopped_for_others(after: &Measurement) -> Result<Option<String>> {
    let Some(trip) = &after.harm_guard_trip else { return Ok(None) };
    let others = memory_of_others(&facts(after, None)?);
    Ok(others.map(|why| format!("the load was stopped because {}, but {why}", trip.text)))
}

/// Beyond so many standard deviations six seconds that rise one after the other are no chance, nor are ten of which nine do.
const SETTLING_DEVIATIONS_MIN: f64 = 2.2;

/// Whether a server still gets faster from second to second, so that what was measured is not yet what a change comes to: prefork
/// adds a worker a second for the first ten seconds after a reload (hold_off_on_exponential_spawning of its prefork.c), caches fill.
pub fn is_settling(after: &Measurement) -> bool {
    let open = matches!(after.workload.as_ref().map(|workload| workload.arrival), Some(Arrival::Open { .. }));
    let speeds = match open {
        true => mean_times_us(after).into_iter().map(|time_us| 1.0 / time_us.max(1.0)).collect(),
        false => after.measured_rates(),
    };
    let half = speeds.len() / 2;
    let gain = mean(&speeds[half..])
        .zip(mean(&speeds[..half]))
        .map_or(0.0, |(late, early)| late - early * (1.0 + CONCLUSIVE_SPREAD));
    gain > 0.0 && trend(&speeds).is_some_and(|trend| trend >= SETTLING_DEVIATIONS_MIN)
}

/// Whether a time falls, second by second, that an objective is about and that is too long before.
fn cuts_missed_tail(before: &Measurement, after: &Measurement, run: &RunReport) -> Result<bool> {
    let missed = before.objectives.iter().zip(&run.objectives).filter(|(_, result)| !result.met);
    for (objective, _) in
        missed.filter(|(objective, _)| objective.is_upper_bound() && *objective.scope() == Scope::All)
    {
        let Figure::Time(TimeKind::Response, statistic) = objective.figure() else { continue };
        let Some(quantile) = statistic.beyond().map(|beyond| 1.0 - beyond) else { continue };
        let times = |of: &Measurement| -> Result<Vec<f64>> {
            let mut seconds = vec![];
            for interval in of.measured().filter(|interval| interval.length_us >= 900_000) {
                seconds.extend(merged(interval.response_time.iter())?.quantile_us(quantile));
            }
            Ok(seconds.into_iter().map(|us| us as f64).collect())
        };
        // Times are better when they fall.
        if compare(&times(after)?, &times(before)?).verdict == Verdict::Better {
            return Ok(true);
        }
    }
    Ok(false)
}

fn mean_times_us(measurement: &Measurement) -> Vec<f64> {
    let mean = |interval: &webdyno_model::interval::Interval| {
        if let Some(pages) = &interval.pages {
            let completed = pages.completed as f64;
            return (pages.completed > 0).then_some(pages.time.as_ref()?.sum_us / completed);
        }
        let times = interval.response_time.as_ref()?;
        let count = interval.completed + interval.errors.timeout + interval.errors.connect_timeout;
        (count > 0).then(|| times.sum_us / count as f64)
    };
    measurement.measured().filter(|interval| interval.length_us >= 900_000).filter_map(mean).collect()
}

fn objectives_met(run: &RunReport) -> usize {
    run.objectives.iter().filter(|objective| objective.met).count()
}

/// How many failed, of how many.
type Failed = (u64, u64);

/// Two shares differ by chance alone by less than this many standard deviations in nineteen of twenty cases.
const CHANCE_DEVIATIONS: f64 = 1.96;

/// Whether more of them fail than before, by more than what is tolerated and what chance does to so few.
fn fails_more(before: Failed, after: Failed) -> bool {
    let all = (before.1 + after.1) as f64;
    if before.1 == 0 || after.1 == 0 {
        return fraction(after) > fraction(before) + FAILED_FRACTION_TOLERANCE;
    }
    let share = (before.0 + after.0) as f64 / all;
    let deviation = (share * (1.0 - share) * (1.0 / before.1 as f64 + 1.0 / after.1 as f64)).sqrt();
    fraction(after) > fraction(before) + FAILED_FRACTION_TOLERANCE + CHANCE_DEVIATIONS * deviation
}

fn failed(run: &RunReport) -> Failed {
    (run.requests.failed, run.requests.completed + run.requests.failed)
}

/// A page fails for one of its parts: of 20 requests one is little, and still no page is whole.
fn failed_pages(run: &RunReport) -> Failed {
    run.pages.as_ref().map_or((0, 0), |pages| (pages.failed, pages.completed + pages.failed))
}

fn fraction((failed, all): Failed) -> f64 {
    if all == 0 { 0.0 } else { failed as f64 / all as f64 }
}

fn misses_more(before: &RunReport, after: &RunReport) -> bool {
    before.objectives.iter().zip(&after.objectives).any(|(before, after)| before.met && !after.met)
}

/// Compares good answers per second, second by second, before and after a change.
pub fn compare(before: &[f64], after: &[f64]) -> Comparison {
    if let Some(total_loss) = total_loss(before, after) {
        return total_loss;
    }
    let Some(ratio) = ratio_of_means(before, after) else {
        return Comparison { ratio: None, verdict: Verdict::Inconclusive };
    };
    let [low, high] = ratio.ci95;
    let verdict = if low > 1.0 + NOISE_FLOOR {
        Verdict::Better
    } else if high < 1.0 - NOISE_FLOOR {
        Verdict::Worse
    } else if low > 1.0 - CONCLUSIVE_SPREAD && high < 1.0 + CONCLUSIVE_SPREAD {
        Verdict::Same
    } else {
        separation(before, after)
    };
    Comparison { ratio: Some(ratio), verdict }
}

/// So many seconds on either side at least.
const RANKED_COUNT_MIN: usize = 5;
/// Beyond so many standard deviations chance comes once in two hundred times, in both directions together.
const RANKED_DEVIATIONS_MIN: f64 = 2.58;

/// The verdict by the order of the seconds alone, where their means are too unsteady for an interval: a server that answers in
/// bursts, with seconds of nothing between them. Of all pairs of a second before and one after it counts in how many the latter is
/// better beyond the noise (the rank-sum test of Mann and Whitney, Annals of Mathematical Statistics 18, 1947, with its normal
/// approximation).
fn separation(before: &[f64], after: &[f64]) -> Verdict {
    let (n, m) = (before.len() as f64, after.len() as f64);
    if before.len().min(after.len()) < RANKED_COUNT_MIN {
        return Verdict::Inconclusive;
    }
    let wins = |high: &[f64], low: &[f64]| {
        let beaten = |rate: f64| low.iter().filter(|other| rate > **other * (1.0 + NOISE_FLOOR)).count();
        high.iter().map(|rate| beaten(*rate)).sum::<usize>() as f64
    };
    let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
    let is_above = |wins: f64| (wins - n * m / 2.0) / deviation >= RANKED_DEVIATIONS_MIN;
    if is_above(wins(after, before)) {
        Verdict::Better
    } else if is_above(wins(before, after)) {
        Verdict::Worse
    } else {
        Verdict::Inconclusive
    }
}

/// A rate of zero has no logarithm, yet says enough: nothing answered any more, or at last something does.
fn total_loss(before: &[f64], after: &[f64]) -> Option<Comparison> {
    let dead = |rates: &[f64]| rates.len() >= 2 && rates.iter().all(|rate| *rate == 0.0);
    let verdict = match (dead(before), dead(after)) {
        (false, true) if before.len() >= 2 => Verdict::Worse,
        (true, false) if after.len() >= 2 => Verdict::Better,
        (true, true) => Verdict::Same,
        _ => return None,
    };
    Some(Comparison { ratio: None, verdict })
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::histogram::TimeHistogram;
    use webdyno_model::interval::Interval;
    use webdyno_model::objective::Objective;
    use webdyno_model::workload::Workload;

    fn measured(rate: u64, failed: u64, time_us: u64, arrival: Arrival) -> Measurement {
        let second = |i: u64| {
            let mut times = TimeHistogram::new();
            let completed = rate + i % 2;
            (0..completed).for_each(|_| times.record(time_us + i % 3));
            let response_time = times.encode();
            Interval {
                t_s: i as f64,
                length_us: 1_000_000,
                completed,
                failed,
                response_time,
                ..Interval::default()
            }
        };
        let workload = Workload { arrival, connections: 10, timeout_us: 1_000_000, ..Workload::default() };
        Measurement {
            intervals: (0..8).map(second).collect(),
            workload: Some(workload),
            objectives: vec![Objective::parse("max<100ms").unwrap()],
            ..Measurement::default()
        }
    }

    #[test]
    fn a_server_that_gets_faster_from_second_to_second_is_still_settling() {
        for (rates, expected) in [
            (&[37, 40, 47, 52, 57, 62][..], true),
            (&[77, 84, 98, 125, 175, 200], true),
            (&[84, 77, 98, 125, 120, 175, 170, 200], true),
            (&[198, 200, 196, 198, 200, 197], false),
            // Rising, and by less than what matters.
            (&[100, 101, 102, 103, 104, 105], false),
            (&[200, 175, 125, 98, 84, 77], false),
            (&[10, 90, 20, 80, 60, 50, 70], false),
            (&[10, 20, 30], false),
        ] {
            let closed = measured_seconds(rates, 1000, Arrival::Closed);
            assert_eq!(is_settling(&closed), expected, "{rates:?}");
            // At a given rate the times tell it.
            let mut open = measured_seconds(
                &vec![100; rates.len()],
                1000,
                Arrival::Open { rate_per_s: 100.0, poisson: false },
            );
            for (interval, rate) in open.intervals.iter_mut().zip(rates) {
                let mut times = TimeHistogram::new();
                (0..100).for_each(|_| times.record(1_000_000 / rate));
                interval.response_time = times.encode();
            }
            assert_eq!(is_settling(&open), expected, "{rates:?}");
        }
    }

    fn measured_seconds(rates: &[u64], time_us: u64, arrival: Arrival) -> Measurement {
        let mut all = measured(100, 0, time_us, arrival);
        all.intervals.truncate(rates.len());
        all.intervals.iter_mut().zip(rates).for_each(|(interval, rate)| interval.completed = *rate);
        all
    }

    #[test]
    fn seconds_that_all_lie_above_the_others_are_better_however_unsteady_they_are() {
        let bursts = [0.0, 44.0, 0.0, 0.0, 0.0, 1.0];
        for (before, after, expected) in [
            (&bursts[..], &[90.0, 100.0, 110.0, 100.0, 100.0, 99.0][..], Verdict::Better),
            (&[90.0, 100.0, 110.0, 100.0, 100.0], &bursts, Verdict::Worse),
            // One second of many is as good as before.
            (&bursts, &[90.0, 100.0, 44.0, 100.0, 100.0, 99.0], Verdict::Better),
            // Half of them are, or there are too few.
            (&bursts, &[90.0, 0.0, 44.0, 0.0, 100.0, 0.0], Verdict::Inconclusive),
            (&bursts[..4], &[90.0, 100.0, 110.0, 100.0, 100.0, 99.0], Verdict::Inconclusive),
        ] {
            assert_eq!(compare(before, after).verdict, expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn more_failures_are_no_chance_among_many() {
        for (before, after, expected) in [
            ((35, 128), (35, 124), false),
            ((0, 1000), (4, 1000), false),
            ((0, 1000), (30, 1000), true),
            ((10, 100), (13, 100), false),
            ((1000, 10_000), (1300, 10_000), true),
            ((0, 0), (5, 10), true),
        ] {
            assert_eq!(fails_more(before, after), expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn far_fewer_failures_are_better_at_the_same_rate() {
        let closed = Arrival::Closed;
        for (rates, failed, expected) in [
            ((100, 100), (900, 0), Verdict::Better),
            ((100, 100), (900, 850), Verdict::Same),
            ((100, 60), (900, 0), Verdict::Worse),
        ] {
            let before = measured(rates.0, failed.0, 1000, closed);
            let after = measured(rates.1, failed.1, 1000, closed);
            assert_eq!(judge(&before, &after).unwrap().verdict, expected, "{rates:?} {failed:?}");
        }
    }

    #[test]
    fn failures_and_objectives_count_as_the_rate_does() {
        let open = Arrival::Open { rate_per_s: 100.0, poisson: false };
        let closed = Arrival::Closed;
        for (before, after, verdict) in [
            (measured(100, 0, 50_000, closed), measured(200, 0, 50_000, closed), Verdict::Better),
            // Fast error pages are no gain.
            (measured(100, 0, 50_000, closed), measured(200, 40, 50_000, closed), Verdict::Worse),
            // An objective that was met is missed.
            (measured(100, 0, 50_000, closed), measured(200, 0, 150_000, closed), Verdict::Worse),
            // At a given rate the times decide.
            (measured(100, 0, 90_000, open), measured(100, 0, 30_000, open), Verdict::Better),
            (measured(100, 0, 30_000, open), measured(100, 0, 90_000, open), Verdict::Worse),
            (measured(100, 0, 50_000, open), measured(100, 0, 50_000, open), Verdict::Same),
        ] {
            assert_eq!(judge(&before, &after).unwrap().verdict, verdict);
        }
    }

    /// The same with so many whole pages of 20 requests a second, and failed ones.
    fn with_pages(mut measurement: Measurement, failed: u64, page_us: u64) -> Measurement {
        for interval in &mut measurement.intervals {
            let (mut times, completed) = (TimeHistogram::new(), interval.completed / 20);
            (0..completed).for_each(|page| times.record(page_us + page % 7));
            let started = completed + failed;
            let time = times.encode();
            let pages =
                webdyno_model::page::PageInterval { started, completed, failed, time, ..Default::default() };
            interval.pages = Some(Box::new(pages));
        }
        measurement
    }

    #[test]
    fn pages_that_fail_or_come_later_are_worse() {
        let closed = |failed, page_us| with_pages(measured(1000, 0, 5_000, Arrival::Closed), failed, page_us);
        let rate = Arrival::Open { rate_per_s: 50.0, poisson: false };
        let open = |page_us| with_pages(measured(1000, 0, 5_000, rate), 0, page_us);
        assert_eq!(judge(&closed(0, 90_000), &closed(1, 90_000)).unwrap().verdict, Verdict::Worse);
        assert_eq!(judge(&closed(0, 90_000), &closed(0, 90_000)).unwrap().verdict, Verdict::Same);
        assert_eq!(judge(&open(90_000), &open(200_000)).unwrap().verdict, Verdict::Worse);
        assert_eq!(judge(&open(90_000), &open(50_000)).unwrap().verdict, Verdict::Better);
    }

    #[test]
    fn a_change_after_which_the_load_had_to_be_stopped_is_worse() {
        let before = measured(100, 0, 50_000, Arrival::Closed);
        let trip = Some(crate::facts::testing::with_harm_guard_trip("memory.group_oom_kills_count"));
        let braked = Measurement { harm_guard_trip: trip, ..measured(300, 0, 10_000, Arrival::Closed) };
        let comparison = judge(&before, &braked).unwrap();
        assert_eq!((comparison.verdict, comparison.ratio), (Verdict::Worse, None));
        // A machine that another program fills.
        let memory =
            [("memory.total_bytes", 16e9), ("memory.limit_bytes", 16e9), ("memory.available_bytes", 0.4e9)];
        for (held, verdict) in [(200e6, Verdict::Inconclusive), (12e9, Verdict::Worse)] {
            let held = [("worker_memory.pss_sum_bytes", held)];
            let samples =
                vec![crate::facts::testing::sample(3.0, "memory", &[&memory[..], &held[..]].concat())];
            let trip = Some(crate::facts::testing::with_harm_guard_trip("memory.swapped_out_pages"));
            let stopped =
                Measurement { harm_guard_trip: trip, samples, measured_to_s: 8.0, ..braked.clone() };
            assert_eq!(judge(&before, &stopped).unwrap().verdict, verdict, "{held:?}");
        }
        // The same load after one that had to be stopped: that it runs to its end is what matters.
        assert_eq!(judge(&braked, &before).unwrap().verdict, Verdict::Better);
        let failing = measured(100, 40, 50_000, Arrival::Closed);
        assert_eq!(judge(&braked, &failing).unwrap().verdict, Verdict::Worse);
        assert_eq!(judge(&braked, &braked).unwrap().verdict, Verdict::Inconclusive);
    }

    #[test]
    fn verdicts() {
        let steady = |rate: f64| [rate, rate * 1.01, rate * 0.99, rate * 1.005, rate * 0.995, rate];
        let wild = |rate: f64| [rate, rate * 2.0, rate * 0.3, rate * 1.5, rate * 0.5, rate];
        for (before, after, verdict) in [
            (steady(100.0), steady(200.0), Verdict::Better),
            (steady(100.0), steady(101.0), Verdict::Same),
            (steady(100.0), steady(80.0), Verdict::Worse),
            (wild(100.0), wild(110.0), Verdict::Inconclusive),
            (steady(100.0), [0.0; 6], Verdict::Worse),
            ([0.0; 6], steady(100.0), Verdict::Better),
            ([0.0; 6], [0.0; 6], Verdict::Same),
        ] {
            assert_eq!(compare(&before, &after).verdict, verdict, "{before:?} {after:?}");
        }
        assert_eq!(compare(&[], &steady(1.0)).verdict, Verdict::Inconclusive);
    }
}
