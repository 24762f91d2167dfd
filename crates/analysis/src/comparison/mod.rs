//! Two loads side by side, figure by figure: each with its ratio, 95% interval and verdict, and what differs besides the server.
//!
//! Rates and the processor time of a request are compared second by second ([`ratio_of_means`]), percentiles by a bootstrap of the
//! seconds ([`percentiles`]), shares of failures by their counts (Katz et al., Biometrics 34, 1978). The verdicts are those of
//! [`crate::tuning::verdict`], made the same from either side: who swaps A and B gets the inverse ratio and the opposite verdict.

mod differences;
pub mod percentiles;

use crate::facts::{FactId, facts};
use crate::measurement::Measurement;
use crate::measurement::series::SeriesSet;
use crate::measurement::statistics::{Ratio, mean, ratio_of_means, ratio_with_errors};
use crate::run_report::run_report;
use crate::tuning::verdict::{
    CONCLUSIVE_SPREAD, NOISE_FLOOR, P99_TOLERANCE, failed, fails_more, fraction, noise_floor, separation,
    total_loss,
};
use percentiles::{QUANTILES, Spread, spreads};
use webdyno_model::Result;
use webdyno_model::compare::{ComparedMetric, Difference};
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

/// Compares two loads: what differs besides the server, and the figures, the rate first. An error when a histogram is damaged.
pub fn compare_loads(a: &Measurement, b: &Measurement) -> Result<(Vec<Difference>, Vec<ComparedMetric>)> {
    let side = |measurement| Ok(Side { measurement, run: run_report(measurement)? });
    let is_same_load = a == b;
    let (a, b): (Side, Side) = (side(a)?, side(b)?);
    let mut metrics = page_rate(&a, &b).into_iter().collect::<Vec<_>>();
    let rates = (a.run.rate, b.run.rate);
    metrics.push(by_seconds("rate", rates, &a.measurement.measured_rates(), &b.measurement.measured_rates()));
    metrics.extend(response_times(&a, &b)?);
    metrics.extend(page_times(&a, &b)?);
    metrics.push(failures(&a.run, &b.run));
    metrics.extend(cpu_per_request(&a, &b)?);
    if is_same_load {
        // However unsteady it was: it does not differ from itself.
        metrics
            .iter_mut()
            .filter(|metric| metric.a.is_some())
            .for_each(|metric| metric.verdict = Verdict::Same);
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
    let compared = ComparedMetric { noise_floor, ..metric(name, values, ratio) };
    // By their order alone, where the interval is too wide: of what is better when it falls, the other way round.
    let (low, high) = if compared.is_lower_better() { (b, a) } else { (a, b) };
    let judged = |ratio: Ratio| {
        let verdict = by_interval(ratio.ci95, noise_floor, compared.is_lower_better());
        verdict.unwrap_or_else(|| separation(low, high, noise_floor))
    };
    let verdict = total_loss(low, high).or(ratio.map(judged)).unwrap_or(Verdict::Inconclusive);
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
fn failures(a: &RunReport, b: &RunReport) -> ComparedMetric {
    let (from, to) = (failed(a), failed(b));
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
mod tests;
