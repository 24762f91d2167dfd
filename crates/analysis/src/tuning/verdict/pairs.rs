//! A change judged by pairs: the same load without it and with it, in turn, as often as it takes to tell.
//!
//! What is slower than a load (a machine that gets warm, a neighbour) is in both halves of a pair, and goes from their ratio. The
//! ratio of several pairs is the geometric mean of theirs. It is looked at after each pair, and ends as soon as it is clear; as each
//! look is one more chance to be wrong, its interval is as wide as makes all looks at several pairs together wrong in no more than one
//! of twenty cases (the bound of Bonferroni). The look at a single pair, before them, has an interval of 95% of its own.
//!
//! Where seconds go up or down within each load (a pool that is started anew), and in the same way in each, their interval is far too
//! wide: how much the ratios of the pairs differ from each other is one more look. As the change comes second in each pair, a server
//! that gets faster by itself favours it: by how much, the originals tell, and the interval is as much wider.

use super::{
    Comparison, FAILURES_CUT_MIN, Failed, NOISE_FLOOR, P99_TOLERANCE, by_interval, compare, cuts_missed_tail,
    failed, failed_pages, fails_more, fraction, is_open_question, mean_times_us, noise_floor, separation,
};
use crate::measurement::Measurement;
use crate::measurement::statistics::{mean, mean_of_ratios, pooled_ratio};
use crate::run_report::run_report;
use webdyno_model::Result;
use webdyno_model::interval::EndReason;
use webdyno_model::run::RunReport;
use webdyno_model::tune::Verdict;
use webdyno_model::workload::Arrival;

/// So many pairs at most.
pub const PAIRS_MAX: usize = 4;

/// The seconds are looked at after each pair, and the ratios of the pairs after the third and after each further one.
const LOOKS_MAX: usize = 2 * PAIRS_MAX - 2;

/// On either side of the interval of each look.
const TAIL: f64 = 0.05 / 2.0 / LOOKS_MAX as f64;

/// The verdict on a change from pairs of measurements before and after it, as [`super::judge`] says it of one. None at all are
/// inconclusive.
pub fn judge_pairs(pairs: &[(&Measurement, &Measurement)]) -> Result<Comparison> {
    let without_ratio = |verdict| Ok(Comparison { ratio: None, verdict, noise_floor: NOISE_FLOOR });
    let stopped: Vec<_> = pairs.iter().filter(|(_, after)| after.harm_guard_trip.is_some()).collect();
    if !stopped.is_empty() {
        for (before, after) in stopped {
            if !is_open_question(before, after)? {
                return without_ratio(Verdict::Worse);
            }
        }
        return without_ratio(Verdict::Inconclusive);
    }
    let runs: Vec<(RunReport, RunReport)> = pairs
        .iter()
        .map(|(before, after)| Ok((run_report(before)?, run_report(after)?)))
        .collect::<Result<_>>()?;
    let failed_before = sum(runs.iter().map(|(before, _)| failed(before)));
    let failed_after = sum(runs.iter().map(|(_, after)| failed(after)));
    let fails = fails_more(failed_before, failed_after);
    if pairs.iter().any(|(before, _)| before.harm_guard_trip.is_some()) {
        // The same load does no harm any more: its figures were of a server that was about to break down.
        let is_served = runs.iter().all(|(_, after)| after.rate.is_some_and(|rate| rate > 0.0));
        return without_ratio(if is_served && !fails { Verdict::Better } else { Verdict::Worse });
    }
    let rates: Vec<_> =
        pairs.iter().map(|(before, after)| (before.measured_rates(), after.measured_rates())).collect();
    let rates = compare_pairs(&rates, |(before, _)| *before);
    let mut verdict = rates.verdict;
    if verdict == Verdict::Same && pairs.iter().all(|(_, after)| is_open(after)) {
        // Times are better when they fall.
        let times: Vec<_> =
            pairs.iter().map(|(before, after)| (mean_times_us(after), mean_times_us(before))).collect();
        verdict = compare_pairs(&times, |(_, before)| 1.0 / before).verdict;
    }
    if verdict == Verdict::Same && (meets_more(&runs) || cut_missed_tails(pairs, &runs)?) {
        verdict = Verdict::Better;
    }
    let fails_less = fraction(failed_before) - fraction(failed_after) >= FAILURES_CUT_MIN
        && fails_more(failed_after, failed_before);
    if fails_less && verdict != Verdict::Worse {
        verdict = Verdict::Better;
    }
    let pages = (
        sum(runs.iter().map(|(before, _)| failed_pages(before))),
        sum(runs.iter().map(|(_, after)| failed_pages(after))),
    );
    let missed = newly_missed(&runs);
    let is_missed = missed.iter().any(|place| !is_chance(&runs, *place));
    if fails || fails_more(pages.0, pages.1) || was_stopped(pairs) || is_missed {
        verdict = Verdict::Worse;
    } else if !missed.is_empty() && verdict != Verdict::Worse {
        verdict = Verdict::Inconclusive;
    }
    let is_proven = was_stopped(pairs) || (verdict == Verdict::Better && rates.verdict == verdict);
    if !is_proven && is_of_generator(&runs) {
        verdict = Verdict::Inconclusive;
    }
    Ok(Comparison { verdict, ..rates })
}

fn is_open(measurement: &Measurement) -> bool {
    matches!(measurement.workload.as_ref().map(|workload| workload.arrival), Some(Arrival::Open { .. }))
}

/// Whether a generator was the limit of a load with the change: it shows less than the server gives. That nobody is answered is the
/// server's all the same, and so is a rate that rises in spite of it.
fn is_of_generator(runs: &[(RunReport, RunReport)]) -> bool {
    runs.iter().any(|(_, after)| after.client.saturated)
        && runs.iter().any(|(_, after)| after.requests.completed > 0)
}

fn was_stopped(pairs: &[(&Measurement, &Measurement)]) -> bool {
    let is_stopped =
        |after: &Measurement| after.end.as_ref().is_some_and(|end| end.reason == EndReason::StopLoss);
    pairs.iter().any(|(_, after)| is_stopped(after))
}

fn sum(all: impl Iterator<Item = Failed>) -> Failed {
    all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

fn cut_missed_tails(pairs: &[(&Measurement, &Measurement)], runs: &[(RunReport, RunReport)]) -> Result<bool> {
    for ((before, after), (run, _)) in pairs.iter().zip(runs) {
        if !cuts_missed_tail(before, after, run)? {
            return Ok(false);
        }
    }
    Ok(!pairs.is_empty())
}

/// In how many of the pairs each objective was met, before and after.
fn objectives_met(runs: &[(RunReport, RunReport)]) -> Vec<(usize, usize)> {
    let objectives_count = runs.first().map_or(0, |(before, _)| before.objectives.len());
    let met = |run: &RunReport, place: usize| run.objectives.get(place).is_some_and(|result| result.met);
    let count = |place: usize| {
        let of = |which: fn(&(RunReport, RunReport)) -> &RunReport| {
            runs.iter().filter(|pair| met(which(pair), place)).count()
        };
        (of(|pair| &pair.0), of(|pair| &pair.1))
    };
    (0..objectives_count).map(count).collect()
}

/// Whether objectives are met that were missed, and one of them by a figure that moved, or as nothing hangs any more: on the verge
/// chance misses and meets them in turn.
fn meets_more(runs: &[(RunReport, RunReport)]) -> bool {
    let met = objectives_met(runs);
    let mean_of = |which: fn(&(RunReport, RunReport)) -> &RunReport, place: usize| {
        let values = runs.iter().filter_map(|pair| which(pair).objectives.get(place)?.value);
        mean(&values.collect::<Vec<_>>())
    };
    let hung = |place: usize| {
        runs.iter().any(|(before, _)| before.objectives.get(place).is_some_and(|it| it.in_flight_beyond > 0))
    };
    let has_moved = |place: usize| {
        let values = mean_of(|pair| &pair.0, place).zip(mean_of(|pair| &pair.1, place));
        values.is_none_or(|(before, after)| (after - before).abs() > P99_TOLERANCE * before)
    };
    met.iter().map(|met| met.1).sum::<usize>() > met.iter().map(|met| met.0).sum()
        && met.iter().enumerate().any(|(place, met)| met.1 > met.0 && (hung(place) || has_moved(place)))
}

/// Whether chance decided an objective: its percentile is one that a single load is too short for. Several of them tell it.
fn is_chance(runs: &[(RunReport, RunReport)], place: usize) -> bool {
    let is_unsupported = |run: &RunReport| {
        run.objectives.get(place).is_some_and(|result| result.unsupported && result.in_flight_beyond == 0)
    };
    matches!(runs, [(_, after)] if is_unsupported(after))
}

/// The places of the objectives that are missed now, as often as not, and that were met as a rule.
fn newly_missed(runs: &[(RunReport, RunReport)]) -> Vec<usize> {
    let is_missed = |(before, after): (usize, usize)| 2 * before > runs.len() && 2 * after <= runs.len();
    let met = objectives_met(runs).into_iter().enumerate();
    met.filter(|(_, met)| is_missed(*met)).map(|(place, _)| place).collect()
}

/// A figure second by second, without a change and with it.
type Seconds = (Vec<f64>, Vec<f64>);

/// How fast the original of a pair was, from the means of the figure that is compared.
type Speed = fn(&(f64, f64)) -> f64;

/// Compares a figure, second by second, of each pair.
fn compare_pairs(pairs: &[Seconds], speed_of_original: Speed) -> Comparison {
    if let [(before, after)] = pairs {
        return compare(before, after);
    }
    let all = |of: fn(&Seconds) -> &Vec<f64>| pairs.iter().flat_map(of).copied().collect();
    let (before, after): Seconds = (all(|pair| &pair.0), all(|pair| &pair.1));
    let noise_floor = pairs.iter().map(|(before, _)| noise_floor(before)).fold(NOISE_FLOOR, f64::max);
    let Some(ratio) = pooled_ratio(pairs, TAIL) else { return compare(&before, &after) };
    let verdict = by_interval(ratio, noise_floor).unwrap_or_else(|| separation(&before, &after, noise_floor));
    let means: Vec<(f64, f64)> =
        pairs.iter().filter_map(|(before, after)| mean(before).zip(mean(after))).collect();
    let is_contradicted = match verdict {
        Verdict::Better => means.iter().any(|(before, after)| after <= before),
        Verdict::Worse => means.iter().any(|(before, after)| after >= before),
        _ => false,
    };
    let by_seconds = |verdict| Comparison { ratio: Some(ratio), verdict, noise_floor };
    match verdict {
        _ if is_contradicted => by_seconds(Verdict::Inconclusive),
        Verdict::Inconclusive => by_ratios(&means, speed_of_original).unwrap_or(by_seconds(verdict)),
        _ => by_seconds(verdict),
    }
}

/// The verdict by the ratio of each pair, if they agree. What goes up and down within a load is in both halves: it is not their noise.
fn by_ratios(means: &[(f64, f64)], speed_of_original: Speed) -> Option<Comparison> {
    let ratios: Vec<f64> = means.iter().map(|(before, after)| after / before).collect();
    let mut ratio = mean_of_ratios(&ratios, TAIL)?;
    let [first, .., last] = means else { return None };
    // From an original to the next one there are two loads: half of its growth is the change's.
    let growth = speed_of_original(last) / speed_of_original(first);
    let drift = growth.powf(0.5 / (means.len() - 1) as f64);
    ratio.ci95 = [ratio.ci95[0] / drift.max(1.0), ratio.ci95[1] / drift.min(1.0)];
    let verdict = by_interval(ratio, NOISE_FLOOR)?;
    Some(Comparison { ratio: Some(ratio), verdict, noise_floor: NOISE_FLOOR })
}
