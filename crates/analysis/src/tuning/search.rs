//! The search beyond faults: where the processors are full of the site's own work, and a number bounds how much is served at once,
//! fewer at once may be served faster (the curve of rate over concurrency falls past its peak: Gunther's universal scalability law).
//!
//! It goes from the value there is in halves, as the largest step tells most: a curve that is flat there has no peak to be found, and
//! nothing is changed. Where half is better, it goes on in halves to the first value that is not as good, and tries once between
//! that one and the last good one (by the square root of two). Where half is worse, the peak may lie above: then in doubles, as far
//! as memory and a reload allow. The smallest value stays whose rate is within 1% of the best, or within the noise where that is more.

use crate::diagnosis::ranking;
use crate::facts::facts;
use crate::limits::search_range::SearchRange;
use crate::limits::{ALL, Limit, by_id};
use crate::measurement::Measurement;
use crate::resources::processors;
use crate::run_report::run_report;
use webdyno_model::Result;
use webdyno_model::tune::Verdict;

/// So many values at most.
pub const VALUES_MAX: usize = 5;

/// Rates within this share of the best one are on its plateau.
pub const PLATEAU_FRACTION: f64 = 0.01;

/// Below this share of the processors it is not the site that fills them.
const OWN_FRACTION_MIN: f64 = 0.5;

/// A value that was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchStep {
    /// Which.
    pub value: i64,
    /// Against the one in force.
    pub verdict: Verdict,
    /// Whether it stayed.
    pub is_kept: bool,
}

/// What a search may vary on a server that was measured so; `None` where there is no reason for one.
pub fn range(measurement: &Measurement) -> Result<Option<SearchRange>> {
    if measurement.workload.is_none() {
        return Ok(None);
    }
    let facts = facts(measurement, Some(&run_report(measurement)?))?;
    let first = ranking::findings(&facts).into_iter().next();
    let is_past_peak =
        first.is_some_and(|first| by_id(&first.id).is_some_and(|limit: &Limit| limit.is_past_peak));
    let own = processors::own_cores(&facts).zip(processors::cpu_shortage(&facts));
    if !is_past_peak || !own.is_some_and(|(own, shortage)| own >= OWN_FRACTION_MIN * shortage.usable) {
        return Ok(None);
    }
    Ok(ALL.iter().filter_map(|limit| limit.search).find_map(|range| range(&facts)))
}

/// The value to be tried next; `None` when the search is over.
pub fn next_value(range: &SearchRange, tried: &[SearchStep]) -> Option<i64> {
    let values: Vec<i64> = tried.iter().map(|step| step.value).collect();
    let value = |wanted: f64| range.value(wanted, &values).filter(|_| tried.len() < VALUES_MAX);
    let kept: Vec<f64> = tried.iter().filter(|step| step.is_kept).map(|step| step.value as f64).collect();
    let Some(last) = tried.last() else { return value(range.now / 2.0) };
    let Some(best) = kept.last() else {
        // Half was no better: above it lies more only where it was worse.
        return value(range.now * 2.0).filter(|_| tried.len() == 1 && last.verdict == Verdict::Worse);
    };
    let factor = if *best < range.now { 0.5 } else { 2.0 };
    let rejected_after = tried.iter().rev().take_while(|step| !step.is_kept).count();
    match rejected_after {
        0 if is_between(&values, *best, range.now, factor) => None,
        0 => value(best * factor),
        1 => value((best * last.value as f64).sqrt()),
        _ => None,
    }
}

/// Whether the best value was itself found between two others: there is nothing finer.
fn is_between(values: &[i64], best: f64, now: f64, factor: f64) -> bool {
    let steps = (best / now).ln() / factor.ln();
    values.len() > 1 && (steps - steps.round()).abs() > 0.2
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::setting::SettingId;

    /// The values that a search tries on a server whose rate is a function of them, and the one that stays.
    fn values(now: f64, (least, most): (f64, Option<f64>), rate: impl Fn(f64) -> f64) -> (Vec<i64>, f64) {
        let setting = SettingId::of_service("apache", "MaxRequestWorkers");
        let range = SearchRange { setting, now, most, least, step: 1.0 };
        let (mut tried, mut in_force, mut best_rate) = (vec![], now, rate(now));
        while let Some(value) = next_value(&range, &tried) {
            let ratio = rate(value as f64) / rate(in_force);
            let verdict = match ratio {
                _ if ratio > 1.03 => Verdict::Better,
                _ if ratio < 0.97 => Verdict::Worse,
                _ => Verdict::Same,
            };
            let has_gained = tried.iter().any(|step: &SearchStep| step.is_kept);
            let as_good = (value as f64) < in_force && rate(value as f64) >= 0.99 * best_rate && has_gained;
            let is_kept = verdict == Verdict::Better || as_good;
            if is_kept {
                in_force = value as f64;
            }
            best_rate = best_rate.max(rate(value as f64));
            tried.push(SearchStep { value, verdict, is_kept });
        }
        (tried.iter().map(|step| step.value).collect(), in_force)
    }

    /// The curve of the source (a chapter on tuning Apache for mod_perl): a peak near 154.
    fn usl(n: f64) -> f64 {
        19.19 * n / (1.0 + 0.01143 * (n - 1.0) + 4.19e-5 * n * (n - 1.0))
    }

    #[test]
    fn the_smallest_value_on_the_plateau_stays() {
        assert_eq!(values(250.0, (8.0, None), usl), (vec![125, 63, 89], 125.0));
        // Far beyond the peak.
        assert_eq!(values(1000.0, (8.0, None), usl), (vec![500, 250, 125, 63, 89], 125.0));
    }

    #[test]
    fn a_flat_curve_and_one_that_cannot_be_varied_change_nothing() {
        assert_eq!(values(400.0, (8.0, Some(800.0)), |_| 500.0), (vec![200], 400.0));
        assert_eq!(values(12.0, (8.0, Some(12.0)), usl), (vec![], 12.0));
    }

    #[test]
    fn below_the_peak_it_goes_up_as_far_as_is_allowed() {
        assert_eq!(values(40.0, (8.0, Some(1000.0)), usl), (vec![20, 80, 160, 320, 226], 160.0));
        // Memory holds no more, or nobody knows how much it holds.
        assert_eq!(values(40.0, (8.0, Some(100.0)), usl), (vec![20, 80], 80.0));
        assert_eq!(values(40.0, (8.0, None), usl), (vec![20], 40.0));
    }
}
