//! Two loads side by side, figure by figure: each with its ratio, 95% interval and verdict, and what differs besides the server.
//!
//! Rates and the processor time of a request are compared second by second ([`ratio_of_means`]), percentiles by a bootstrap of the
//! seconds ([`percentiles`]), shares of failures by their counts (Katz et al., Biometrics 34, 1978); loads that were made several times run
//! by run ([`runs`]). The verdicts are those of
//! [`crate::tuning::verdict`], made the same from either side: who swaps A and B gets the inverse ratio and the opposite verdict.

mod differences;
pub mod percentiles;
pub mod runs;

use crate::facts::{FactId, facts};
use crate::measurement::Measurement;
use crate::measurement::series::SeriesSet;
use crate::measurement::statistics::{Ratio, mean, ratio_of_means, ratio_with_errors};
use crate::run_report::run_report;
use crate::tuning::verdict::{
    CONCLUSIVE_SPREAD, Failed, NOISE_FLOOR, P99_TOLERANCE, failed, fails_more, fraction, noise_floor,
    separation, total_loss,
};
use percentiles::{QUANTILES, Spread, spreads};
use runs::{RUNS_MIN, by_runs};
use webdyno_model::Result;
use webdyno_model::compare::{ComparedMetric, Difference, IntervalBasis};
use webdyno_model::distribution::Dist;
use webdyno_model::histogram::EncodedHistogram;
use webdyno_model::interval::Interval;
use webdyno_model::number::significant;
use webdyno_model::run::RunReport;
use webdyno_model::tune::Verdict;

/// A second of a load is one that is not torn.
const SECOND_US_MIN: u64 = 900_000;
/// Of a share that is counted, not estimated from a few seconds.
const MANY: f64 = 1e9;

/// One of the two loads.
struct Side<'a> {
    measurement: &'a Measurement,
    run: RunReport,
}

impl Side<'_> {
    fn seconds(&self) -> impl Iterator<Item = &Interval> {
        self.measurement.measured().filter(|interval| interval.length_us >= SECOND_US_MIN)
    }

    fn page_rates(&self) -> Vec<f64> {
        let rate =
            |second: &Interval| Some(second.pages.as_ref()?.completed as f64 * 1e6 / second.length_us as f64);
        self.seconds().filter_map(rate).collect()
    }
}

/// A load: the run that stands for it, and all its runs where it was made several times.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedRuns {
    /// The run that the report is of.
    pub chosen: Measurement,
    /// Those that came to their end, the chosen one among them; empty for a load that was made once.
    pub runs: Vec<Measurement>,
}

/// What two loads come to beside each other.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadComparison {
    /// What differs besides the server.
    pub differences: Vec<Difference>,
    /// The figures, the rate first.
    pub metrics: Vec<ComparedMetric>,
    /// The valid runs of each.
    pub runs: [u32; 2],
    /// What the intervals rest on.
    pub intervals_from: IntervalBasis,
}

/// Compares two loads by their runs, where both have [`RUNS_MIN`] of them that are valid, else by the seconds of one run each. An error
/// when a histogram is damaged.
pub fn compare_runs(a: &ComparedRuns, b: &ComparedRuns) -> Result<LoadComparison> {
    let (differences, mut metrics) = compare_loads(&a.chosen, &b.chosen)?;
    let (a_runs, b_runs) = (valid_runs(&a.runs)?, valid_runs(&b.runs)?);
    let mut intervals_from = IntervalBasis::Seconds;
    if a_runs.len().min(b_runs.len()) >= RUNS_MIN {
        (metrics, intervals_from) = (by_runs(metrics, &a_runs, &b_runs)?, IntervalBasis::Runs);
        if a == b {
            metrics.iter_mut().for_each(call_same);
        }
    }
    let runs = [a_runs, b_runs].map(|runs| runs.len().max(1) as u32);
    Ok(LoadComparison { differences, metrics, runs, intervals_from })
}

fn side(measurement: &Measurement) -> Result<Side<'_>> {
    Ok(Side { measurement, run: run_report(measurement)? })
}

fn valid_runs(runs: &[Measurement]) -> Result<Vec<Side<'_>>> {
    let mut sides = runs.iter().map(side).collect::<Result<Vec<_>>>()?;
    sides.retain(|side| side.run.client.valid);
    Ok(sides)
}

/// However unsteady a load was: it does not differ from itself.
fn call_same(metric: &mut ComparedMetric) {
    if metric.a.is_some() {
        metric.verdict = Verdict::Same;
    }
}

/// Compares two loads: what differs besides the server, and the figures, the rate first. An error when a histogram is damaged.
pub fn compare_loads(a: &Measurement, b: &Measurement) -> Result<(Vec<Difference>, Vec<ComparedMetric>)> {
    let is_same_load = a == b;
    let (a, b): (Side, Side) = (side(a)?, side(b)?);
    let mut metrics = page_rate(&a, &b).into_iter().collect::<Vec<_>>();
    let rates = (a.run.rate, b.run.rate);
    metrics.push(by_seconds("rate", rates, &a.measurement.measured_rates(), &b.measurement.measured_rates()));
    metrics.extend(response_times(&a, &b)?);
    metrics.extend(page_times(&a, &b)?);
    metrics.push(failures(failed(&a.run), failed(&b.run)));
    metrics.extend(cpu_per_request(&a, &b)?);
    if is_same_load {
        metrics.iter_mut().for_each(call_same);
    }
    Ok((differences::differences(&a, &b), metrics))
}

/// A figure from its two values and what is known of their ratio.
fn metric(name: &str, (a, b): (Option<f64>, Option<f64>), ratio: Option<Ratio>) -> ComparedMetric {
    ComparedMetric {
        name: name.into(),
        a: a.map(|value| significant(value, 6)),
        b: b.map(|value| significant(value, 6)),
        ratio: ratio.map(|ratio| significant(ratio.ratio, 6)),
        ci95: ratio.map(|ratio| ratio.ci95.map(|bound| significant(bound, 6))),
        verdict: Verdict::Inconclusive,
        noise_floor: NOISE_FLOOR,
    }
}

/// What the interval of B / A says of B; `None` when it is too wide to say anything. Bounds are ratios, so that the inverse of the
/// interval gives the opposite.
fn by_interval([low, high]: [f64; 2], noise_floor: f64, is_lower_better: bool) -> Option<Verdict> {
    let (more, less) = match is_lower_better {
        true => (Verdict::Worse, Verdict::Better),
        false => (Verdict::Better, Verdict::Worse),
    };
    let wide = 1.0 + CONCLUSIVE_SPREAD;
    if low > 1.0 + noise_floor {
        Some(more)
    } else if high < 1.0 / (1.0 + noise_floor) {
        Some(less)
    } else {
        (low > 1.0 / wide && high < wide).then_some(Verdict::Same)
    }
}

/// A figure that there is one of in each second.
fn by_seconds(name: &str, values: (Option<f64>, Option<f64>), a: &[f64], b: &[f64]) -> ComparedMetric {
    let noise_floor = noise_floor(a).max(noise_floor(b));
    let ratio = ratio_of_means(a, b);
    judged(ComparedMetric { noise_floor, ..metric(name, values, ratio) }, ratio, (a, b))
}

/// With the verdict on a figure that there are several values of on either side.
fn judged(compared: ComparedMetric, ratio: Option<Ratio>, (a, b): (&[f64], &[f64])) -> ComparedMetric {
    let noise_floor = compared.noise_floor;
    // By their order alone, where the interval is too wide: of what is better when it falls, the other way round.
    let (low, high) = if compared.is_lower_better() { (b, a) } else { (a, b) };
    let by_ratio = |ratio: Ratio| {
        let verdict = by_interval(ratio.ci95, noise_floor, compared.is_lower_better());
        verdict.unwrap_or_else(|| separation(low, high, noise_floor))
    };
    let verdict = total_loss(low, high).or(ratio.map(by_ratio)).unwrap_or(Verdict::Inconclusive);
    ComparedMetric { verdict, ..compared }
}

fn page_rate(a: &Side, b: &Side) -> Option<ComparedMetric> {
    let rates = (a.run.pages.as_ref()?.rate, b.run.pages.as_ref()?.rate);
    Some(by_seconds("page_rate", rates, &a.page_rates(), &b.page_rates()))
}

/// Percentiles of one kind of time in one load.
struct Times {
    values_us: [Option<u64>; 3],
    /// Those that it was too short for.
    unsupported: Vec<String>,
    spreads: Option<[Spread; 3]>,
}

impl Times {
    fn of<'a>(
        dist: &Dist,
        unsupported: &[String],
        seconds: impl Iterator<Item = &'a EncodedHistogram>,
    ) -> Result<Self> {
        let spreads = spreads(&seconds.collect::<Vec<_>>())?;
        Ok(Self { values_us: [dist.p50, dist.p90, dist.p99], unsupported: unsupported.to_vec(), spreads })
    }
}

fn response_times(a: &Side, b: &Side) -> Result<Vec<ComparedMetric>> {
    let times = |of: &Side| {
        let seconds = of.seconds().filter_map(|second| second.response_time.as_ref());
        Times::of(&of.run.response_time_us, &of.run.unsupported_percentiles, seconds)
    };
    Ok(compared_times("", &times(a)?, &times(b)?))
}

fn page_times(a: &Side, b: &Side) -> Result<Vec<ComparedMetric>> {
    let times = |of: &Side| {
        let Some(pages) = &of.run.pages else { return Ok(None) };
        let seconds = of.seconds().filter_map(|second| second.pages.as_ref()?.time.as_ref());
        Times::of(&pages.time_us, &pages.unsupported_percentiles, seconds).map(Some)
    };
    let both = times(a)?.zip(times(b)?);
    Ok(both.map_or(vec![], |(a, b)| compared_times("page_", &a, &b)))
}

fn compared_times(prefix: &str, a: &Times, b: &Times) -> Vec<ComparedMetric> {
    let of = |(at, percentile): (usize, &&str)| {
        let (from, to) = (a.values_us[at].map(|us| us as f64), b.values_us[at].map(|us| us as f64));
        let ratio = from.zip(to).filter(|(a, b)| *a > 0.0 && *b > 0.0).map(|(a, b)| b / a);
        let spreads = a.spreads.as_ref().zip(b.spreads.as_ref()).map(|(a, b)| (&a[at], &b[at]));
        // Of what a load was too short for there is no interval to be believed.
        let is_supported = [a, b].iter().all(|of| !of.unsupported.iter().any(|name| name == percentile));
        let estimate = ratio
            .zip(spreads.filter(|_| is_supported))
            .map(|(ratio, (a, b))| ratio_with_errors(ratio, a.log_error, b.log_error));
        // From one run to the next of the same thing the slowest answers differ by more than within a run.
        let least = if QUANTILES[at] >= 0.99 { P99_TOLERANCE } else { NOISE_FLOOR };
        let floor =
            spreads.map_or(least, |(a, b)| noise_floor(&a.batches_us).max(noise_floor(&b.batches_us)));
        let noise_floor = floor.max(least);
        let verdict = estimate.and_then(|ratio| by_interval(ratio.ci95, noise_floor, true));
        ComparedMetric {
            ratio: ratio.map(|ratio| significant(ratio, 6)),
            verdict: verdict.unwrap_or(Verdict::Inconclusive),
            noise_floor,
            ..metric(&format!("{prefix}{percentile}_us"), (from, to), estimate)
        }
    };
    ["p50", "p90", "p99"].iter().enumerate().map(of).collect()
}

/// The share of the requests that failed: worse or better beyond what is tolerated and what chance does.
fn failures(from: Failed, to: Failed) -> ComparedMetric {
    let share = |of: (u64, u64)| (of.1 > 0).then(|| fraction(of));
    let error = |(failed, ended): (u64, u64)| (1.0 / failed as f64 - 1.0 / ended as f64, MANY);
    let has_ratio = from.0 > 0 && to.0 > 0;
    let ratio = has_ratio.then(|| ratio_with_errors(fraction(to) / fraction(from), error(from), error(to)));
    let verdict = match (fails_more(from, to), fails_more(to, from)) {
        _ if from.1 == 0 || to.1 == 0 => Verdict::Inconclusive,
        (true, _) => Verdict::Worse,
        (_, true) => Verdict::Better,
        _ => Verdict::Same,
    };
    let noise_floor = crate::tuning::verdict::FAILED_FRACTION_TOLERANCE;
    ComparedMetric { verdict, noise_floor, ..metric("failed_fraction", (share(from), share(to)), ratio) }
}

/// Where the service's own processor time was read in both.
fn cpu_per_request(a: &Side, b: &Side) -> Result<Option<ComparedMetric>> {
    Ok(cpu_us(a)?.zip(cpu_us(b)?).map(|((a_us, a_series), (b_us, b_series))| {
        by_seconds("cpu_per_request_us", (Some(a_us), Some(b_us)), &a_series, &b_series)
    }))
}

/// Processor time of a request, and the same from reading to reading at the mean rate of requests.
fn cpu_us(of: &Side) -> Result<Option<(f64, Vec<f64>)>> {
    let Some(value) = facts(of.measurement, Some(&of.run))?.value(FactId::cpu_per_request_us) else {
        return Ok(None);
    };
    let series = SeriesSet::of(of.measurement);
    let Some(((from_s, _), (to_s, _))) = series.span("process.cpu_s") else { return Ok(None) };
    let readings: Vec<&(f64, f64)> =
        series.all("process.cpu_s").iter().filter(|(t_s, _)| (from_s..=to_s).contains(t_s)).collect();
    let steps = readings.windows(2).map(|pair| (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1));
    let cores: Vec<f64> =
        steps.filter(|(s, cpu_s)| *s > 0.0 && *cpu_s >= 0.0).map(|(s, cpu_s)| cpu_s / s).collect();
    let scale = mean(&cores).filter(|mean| *mean > 0.0).map(|mean| value / mean);
    Ok(scale.map(|scale| (value, cores.iter().map(|cores| cores * scale).collect())))
}

#[cfg(test)]
mod runs_tests;
#[cfg(test)]
mod tests;
