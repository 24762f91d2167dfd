//! The verdict on a change: better, same, worse or inconclusive, from the interval and the noise floor.

mod pairs;

pub use pairs::{PAIRS_MAX, judge_pairs};

use crate::facts::{FactId, facts};
use crate::measurement::Measurement;
use crate::measurement::histograms::merged;
use crate::measurement::statistics::{Ratio, describe, mean, ratio_of_means, trend};
use crate::resources::memory_evidence::memory_of_others;
use crate::run_report::run_report;
use webdyno_model::Result;
use webdyno_model::objective::{Figure, Scope, TimeKind};
use webdyno_model::run::RunReport;
use webdyno_model::tune::Verdict;
use webdyno_model::workload::Arrival;

/// The smallest change that is believed to be one: runs of the same thing on a quiet machine differ by this much.
/// The gains of ten quickstarts on two otherwise idle cores lay within 0.6% of each other (3.027 to 3.043 times); the
/// floor leaves room for machines that are less quiet.
pub const NOISE_FLOOR: f64 = 0.03;

/// No noise asks for more than this: a change whose interval lies beyond it is one on any server, and what is noisier than that
/// has a wide interval as well.
const NOISE_FLOOR_MAX: f64 = 0.10;

/// So many seconds are taken together: their mean shows what goes up and down more slowly than from one second to the next.
const BATCH_SECONDS: usize = 3;

/// Two runs of the same thing differ by so many standard deviations of their batches in one of twenty cases.
const BATCH_DEVIATIONS: f64 = 2.0;

/// An interval wider than this on either side of the ratio cannot tell `same` from a change worth having.
pub(crate) const CONCLUSIVE_SPREAD: f64 = 0.10;

/// A comparison of two measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// `None` when there is too little to compare.
    pub ratio: Option<Ratio>,
    /// What it says.
    pub verdict: Verdict,
    /// The smallest change that was believed to be one, as a share.
    pub noise_floor: f64,
}

/// The smallest change of this figure that is believed to be one, by how much it goes up and down by itself, a few seconds together
/// at a time. [`NOISE_FLOOR`] at least, also where there is too little to tell.
pub fn noise_floor(values: &[f64]) -> f64 {
    let batches: Vec<f64> = values.chunks_exact(BATCH_SECONDS).filter_map(mean).collect();
    let spread = describe(&batches).filter(|series| series.mean > 0.0);
    let spread = spread.map_or(0.0, |series| BATCH_DEVIATIONS * series.variance.sqrt() / series.mean);
    spread.clamp(NOISE_FLOOR, NOISE_FLOOR_MAX)
}

/// By this much more of the requests must fail for a change to be called worse, whatever the rate says.
pub(crate) const FAILED_FRACTION_TOLERANCE: f64 = 0.005;

/// Where so many fewer of the requests fail, a change is better also at the same rate of good answers, or one that is too unsteady
/// to compare: those who were turned away are served now, if later.
const FAILURES_CUT_MIN: f64 = 0.1;

/// The verdict on a change from the measurements before and after it: the rate of good answers decides, also where
/// visitors ask for pages, as each page is many answers and pages alone would be few a second; where requests arrive at
/// a given rate, which no change can raise, the response time does, and of pages the page time. A change by which more requests or pages
/// fail, or by which an objective is missed that was met, is worse (inconclusive, where one load is too short for its percentile); one by
/// which the missed objectives are met, by more than a run differs from the next one, or the time falls that one of them is about, is
/// better if the rate does not suffer. A change after which the same load had to be stopped is worse, whatever it brought until then, and
/// so is one whose load the stop-loss ended. It says nothing where others filled the memory for which it was stopped, or the load before
/// was stopped for memory as well: what that one left in memory and in swap may be the reason. Nor where the generator was the limit with
/// the change, unless the rate rose in spite of it.
pub fn judge(before: &Measurement, after: &Measurement) -> Result<Comparison> {
    judge_pairs(&[(before, after)])
}

/// Whether a load that was stopped says nothing of the change before it.
fn is_open_question(before: &Measurement, after: &Measurement) -> Result<bool> {
    Ok(both_for_memory(before, after) || stopped_for_others(after)?.is_some())
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

/// Why the figures of a load are those of its generator; `None` where they are the server's.
pub fn generator_limit(measurement: &Measurement) -> Result<Option<String>> {
    let client = run_report(measurement)?.client;
    Ok(client.why.filter(|_| client.saturated))
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

/// Whether connections wait for workers that the service is still starting, and none of those it may start was missing before: a
/// second each, for the first ten after a reload.
pub fn is_starting_workers(after: &Measurement) -> Result<bool> {
    let facts = facts(after, None)?;
    let at_least = |name: FactId, least: f64| facts.value(name).is_some_and(|value| value >= least);
    let is_full = at_least(FactId::scoreboard_full_fraction, f64::MIN_POSITIVE);
    let waits = at_least(FactId::accept_queue_mean, 1.0) && at_least(FactId::accept_queue_last, 1.0);
    Ok(waits && !is_full && at_least(FactId::service_processes_grew, STARTED_MIN))
}

/// Fewer processes than this come and go by themselves.
const STARTED_MIN: f64 = 3.0;

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

/// Mean response time in each second, or page time where pages are asked for.
pub(crate) fn mean_times_us(measurement: &Measurement) -> Vec<f64> {
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

/// How many failed, of how many.
pub(crate) type Failed = (u64, u64);

/// Two shares differ by chance alone by less than this many standard deviations in nineteen of twenty cases.
const CHANCE_DEVIATIONS: f64 = 1.96;

/// Whether more of them fail than before, by more than what is tolerated and what chance does to so few.
pub(crate) fn fails_more(before: Failed, after: Failed) -> bool {
    let all = (before.1 + after.1) as f64;
    if before.1 == 0 || after.1 == 0 {
        return fraction(after) > fraction(before) + FAILED_FRACTION_TOLERANCE;
    }
    let share = (before.0 + after.0) as f64 / all;
    let deviation = (share * (1.0 - share) * (1.0 / before.1 as f64 + 1.0 / after.1 as f64)).sqrt();
    fraction(after) > fraction(before) + FAILED_FRACTION_TOLERANCE + CHANCE_DEVIATIONS * deviation
}

pub(crate) fn failed(run: &RunReport) -> Failed {
    (run.requests.failed, run.requests.completed + run.requests.failed)
}

/// A page fails for one of its parts: of 20 requests one is little, and still no page is whole.
fn failed_pages(run: &RunReport) -> Failed {
    run.pages.as_ref().map_or((0, 0), |pages| (pages.failed, pages.completed + pages.failed))
}

pub(crate) fn fraction((failed, all): Failed) -> f64 {
    if all == 0 { 0.0 } else { failed as f64 / all as f64 }
}

/// Compares good answers per second, second by second, before and after a change.
pub fn compare(before: &[f64], after: &[f64]) -> Comparison {
    let noise_floor = noise_floor(before);
    if let Some(verdict) = total_loss(before, after) {
        return Comparison { ratio: None, verdict, noise_floor };
    }
    let Some(ratio) = ratio_of_means(before, after) else {
        return Comparison { ratio: None, verdict: Verdict::Inconclusive, noise_floor };
    };
    let verdict = by_interval(ratio, noise_floor);
    let verdict = verdict.unwrap_or_else(|| separation(before, after, noise_floor));
    Comparison { ratio: Some(ratio), verdict, noise_floor }
}

/// What an interval says; `None` when it is too wide to say anything.
fn by_interval(ratio: Ratio, noise_floor: f64) -> Option<Verdict> {
    let [low, high] = ratio.ci95;
    if low > 1.0 + noise_floor {
        Some(Verdict::Better)
    } else if high < 1.0 - noise_floor {
        Some(Verdict::Worse)
    } else {
        (low > 1.0 - CONCLUSIVE_SPREAD && high < 1.0 + CONCLUSIVE_SPREAD).then_some(Verdict::Same)
    }
}

/// So many seconds on either side at least.
const RANKED_COUNT_MIN: usize = 5;
/// Beyond so many standard deviations chance comes once in two hundred times, in both directions together.
const RANKED_DEVIATIONS_MIN: f64 = 2.58;

/// The verdict by the order of the seconds alone, where their means are too unsteady for an interval: a server that answers in
/// bursts, with seconds of nothing between them. Of all pairs of a second before and one after it counts in how many the latter is
/// better beyond the noise (the rank-sum test of Mann and Whitney, Annals of Mathematical Statistics 18, 1947, with its normal
/// approximation).
pub(crate) fn separation(before: &[f64], after: &[f64], noise_floor: f64) -> Verdict {
    let (n, m) = (before.len() as f64, after.len() as f64);
    if before.len().min(after.len()) < RANKED_COUNT_MIN {
        return Verdict::Inconclusive;
    }
    let wins = |high: &[f64], low: &[f64]| {
        let beaten = |rate: f64| low.iter().filter(|other| rate > **other * (1.0 + noise_floor)).count();
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
pub(crate) fn total_loss(before: &[f64], after: &[f64]) -> Option<Verdict> {
    let dead = |rates: &[f64]| rates.len() >= 2 && rates.iter().all(|rate| *rate == 0.0);
    match (dead(before), dead(after)) {
        (false, true) if before.len() >= 2 => Some(Verdict::Worse),
        (true, false) if after.len() >= 2 => Some(Verdict::Better),
        (true, true) => Some(Verdict::Same),
        _ => None,
    }
}

/// A quantile of one run moves by so much from one run to the next of the same thing.
pub(crate) const P99_TOLERANCE: f64 = 0.10;

/// Whether a smaller setting serves as well as a larger one: at this rate at least, and nothing else worse than before it, the slowest
/// answers included.
pub fn is_as_good(
    rate_min: f64,
    (before, after): (&Measurement, &Measurement),
    comparison: &Comparison,
) -> Result<bool> {
    let rate = mean(&after.measured_rates()).unwrap_or(0.0);
    let (p99_before, p99_after) =
        (run_report(before)?.response_time_us.p99, run_report(after)?.response_time_us.p99);
    let is_slower = p99_before
        .zip(p99_after)
        .is_none_or(|(before, after)| after as f64 > before as f64 * (1.0 + P99_TOLERANCE));
    Ok(matches!(comparison.verdict, Verdict::Better | Verdict::Same) && rate >= rate_min && !is_slower)
}

#[cfg(test)]
mod tests;
