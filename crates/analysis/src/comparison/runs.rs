//! Two loads that were each made several times (`run --repeat N`): the interval of a figure from how far its runs lie apart. It contains
//! what changes from one run to the next and not within one (the memory layout of a process, its threads' cores, the state of caches), so that
//! it is the wider one as a rule. Runs are independent of each other: Welch's interval of the ratio of their means, on the log scale
//! ([`ratio_with_errors`]), without the correlation that seconds have.

use super::{Side, cpu_us, failures, judged, metric};
use crate::measurement::statistics::{Ratio, describe, mean, ratio_with_errors, t_95};
use crate::tuning::verdict::{Failed, failed, fraction};
use webdyno_model::Result;
use webdyno_model::compare::ComparedMetric;
use webdyno_model::distribution::Dist;
use webdyno_model::number::significant;
use webdyno_model::tune::Verdict;

/// Fewer runs do not tell how far runs lie apart: of two the 95% interval is ten times as wide as they differ.
pub const RUNS_MIN: usize = 3;

/// The same figures as of one run each, from all runs.
pub(super) fn by_runs(of_one: Vec<ComparedMetric>, a: &[Side], b: &[Side]) -> Result<Vec<ComparedMetric>> {
    let of = |one: ComparedMetric| {
        if one.name == "failed_fraction" {
            return Ok(all_failures(a, b));
        }
        let (a, b) = (values(&one.name, a)?, values(&one.name, b)?);
        if a.len().min(b.len()) < RUNS_MIN {
            return Ok(ComparedMetric { ci95: None, verdict: Verdict::Inconclusive, ..one });
        }
        let ratio = ratio_of_runs(&a, &b);
        Ok(judged(metric(&one.name, (mean(&a), mean(&b)), ratio), ratio, (&a, &b)))
    };
    of_one.into_iter().map(of).collect()
}

/// A figure of each run that has it and is long enough for it.
fn values(name: &str, runs: &[Side]) -> Result<Vec<f64>> {
    let time = |dist: &Dist, unsupported: &[String], name: &str| {
        let percentile = name.strip_suffix("_us")?;
        let value = match percentile {
            "p50" => dist.p50,
            "p90" => dist.p90,
            _ => dist.p99,
        };
        value.filter(|_| !unsupported.iter().any(|one| one == percentile)).map(|us| us as f64)
    };
    let value = |side: &Side| -> Result<Option<f64>> {
        let (run, pages) = (&side.run, side.run.pages.as_ref());
        Ok(match (name, name.strip_prefix("page_")) {
            ("rate", _) => run.rate,
            ("cpu_per_request_us", _) => cpu_us(side)?.map(|(value, _)| value),
            (_, Some("rate")) => pages.and_then(|pages| pages.rate),
            (_, Some(name)) => {
                pages.and_then(|pages| time(&pages.time_us, &pages.unsupported_percentiles, name))
            }
            (name, None) => time(&run.response_time_us, &run.unsupported_percentiles, name),
        })
    };
    let found = runs.iter().map(value).collect::<Result<Vec<_>>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// The ratio of the means of independent runs; `None` with fewer than [`RUNS_MIN`] on a side, or a mean that is not positive.
pub(super) fn ratio_of_runs(a: &[f64], b: &[f64]) -> Option<Ratio> {
    let error = |runs: &[f64]| {
        let series = describe(runs).filter(|series| runs.len() >= RUNS_MIN && series.mean > 0.0)?;
        let count = runs.len() as f64;
        Some((series.variance / count / series.mean.powi(2), count - 1.0))
    };
    let (a_error, b_error) = (error(a)?, error(b)?);
    Some(ratio_with_errors(mean(b)? / mean(a)?, a_error, b_error))
}

/// Failures of all runs together; what differs by less than from run to run is no change.
fn all_failures(a: &[Side], b: &[Side]) -> ComparedMetric {
    let add = |all: Failed, one: Failed| (all.0 + one.0, all.1 + one.1);
    let together = |runs: &[Side]| runs.iter().map(|side| failed(&side.run)).fold((0, 0), add);
    let shares = |runs: &[Side]| runs.iter().map(|side| fraction(failed(&side.run))).collect::<Vec<_>>();
    let counted = failures(together(a), together(b));
    let (a, b) = (shares(a), shares(b));
    let scaled = |all: f64| {
        let by_run = ratio_of_runs(&a, &b)?;
        Some(by_run.ci95.map(|bound| significant(bound / by_run.ratio * all, 6)))
    };
    let is_chance = counted.verdict != Verdict::Same && !differ(&a, &b);
    ComparedMetric {
        ci95: counted.ratio.and_then(scaled),
        verdict: if is_chance { Verdict::Inconclusive } else { counted.verdict },
        ..counted
    }
}

/// Whether the means of runs differ by more than runs do: also where one of them is 0 and there is no ratio.
fn differ(a: &[f64], b: &[f64]) -> bool {
    let Some((one, other)) = describe(a).zip(describe(b)) else { return false };
    let error = (one.variance / a.len() as f64 + other.variance / b.len() as f64).sqrt();
    (one.mean - other.mean).abs() > t_95(a.len().min(b.len()) as f64 - 1.0) * error
}
