//! Where the warm-up ends: of a load of fixed length by a change-point test, of one that still runs by its drift.
//!
//! A head of seconds is warm-up when the rate was lower in it, or answers took longer, than afterwards: more than chance
//! would have it ([`crate::measurement::change_point`]), and by enough to matter. What failed, or was faster, is no warm-up but a
//! result.

use crate::measurement::change_point::lower_head;
use crate::measurement::histograms::merged;
use crate::measurement::statistics::{mean, median};
use webdyno_model::Result;
use webdyno_model::interval::Interval;
use webdyno_model::number::significant;

/// A head that differs from the rest by less than this is no warm-up.
const DIFFERENCE_MIN: f64 = 0.10;

/// A later second is on the head's level when it is no further from its median than this share of the difference.
const HEAD_LEVEL: f64 = 0.25;
/// So many such seconds, and such a share of the rest, are no chance.
const RECURS_MIN: usize = 2;
const RECURS_FRACTION_MIN: f64 = 0.05;

/// The warm-up of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct WarmUp {
    /// Whole seconds that are cut.
    pub seconds: usize,
    /// What was different in them.
    pub reason: String,
}

/// The warm-up of a load that has ended, from its whole seconds; `None` when it needed none. Never more than half of
/// them. An error when a histogram is damaged.
pub fn detect(seconds: &[Interval]) -> Result<Option<WarmUp>> {
    let rates: Vec<f64> = seconds.iter().map(rate).collect();
    let medians = medians_us(seconds)?;
    let by_rate = slower(&rates, lower_head(&rates)).filter(|(head, _)| !recurs(&rates, *head));
    // Slower answers are higher times.
    let negated: Vec<f64> = medians.iter().map(|us| -us).collect();
    let by_time = longer(&medians, lower_head(&negated)).filter(|(head, _)| !recurs(&negated, *head));
    let cut = by_rate.map_or(0, |(head, _)| head).max(by_time.map_or(0, |(head, _)| head));
    let failed = seconds[..cut].iter().any(|second| second.failed > 0);
    if cut == 0 || failed || is_faster(&rates, cut) {
        return Ok(None);
    }
    let rate =
        by_rate.map(|(_, part)| format!("the rate was {}% of the later one", significant(100.0 * part, 2)));
    let time = by_time
        .map(|(_, times)| format!("the p50 response time was {} times as long", significant(times, 2)));
    let why = rate.into_iter().chain(time).collect::<Vec<_>>().join(" and ");
    Ok(Some(WarmUp { seconds: cut, reason: format!("{why} (change-point test)") }))
}

/// The median response time of each second; none when a second has no answer.
fn medians_us(seconds: &[Interval]) -> Result<Vec<f64>> {
    let median =
        |second: &Interval| Ok(merged(second.response_time.iter())?.quantile_us(0.5).map(|us| us as f64));
    let medians: Vec<Option<f64>> = seconds.iter().map(median).collect::<Result<_>>()?;
    Ok(medians.into_iter().collect::<Option<Vec<f64>>>().unwrap_or_default())
}

fn rate(interval: &Interval) -> f64 {
    interval.completed as f64 * 1e6 / interval.length_us.max(1) as f64
}

/// Head and rest: the mean of the first as a share of that of the second.
fn share(values: &[f64], head: usize) -> Option<f64> {
    let (head, rest) = (mean(&values[..head])?, mean(&values[head..])?);
    (rest > 0.0).then(|| head / rest)
}

fn slower(rates: &[f64], head: usize) -> Option<(usize, f64)> {
    share(rates, head).filter(|share| *share <= 1.0 - DIFFERENCE_MIN).map(|share| (head, share))
}

fn longer(times: &[f64], head: usize) -> Option<(usize, f64)> {
    share(times, head).filter(|share| *share >= 1.0 + DIFFERENCE_MIN).map(|share| (head, share))
}

/// Whether the level of the head comes back after the rest has once been better: then it is how the server is, and no
/// warm-up. Noise and a stall do not count: it takes two seconds, and one in twenty of the rest.
fn recurs(values: &[f64], head: usize) -> bool {
    let (first, rest) = values.split_at(head);
    let (Some(low), Some(usual)) = (median(first), median(rest)) else { return false };
    let bound = low + (usual - low) * HEAD_LEVEL;
    let again = rest.iter().skip_while(|value| **value <= bound).filter(|value| **value <= bound).count();
    again >= RECURS_MIN && again as f64 >= RECURS_FRACTION_MIN * rest.len() as f64
}

fn is_faster(rates: &[f64], head: usize) -> bool {
    share(rates, head).is_some_and(|share| share > 1.0 + DIFFERENCE_MIN)
}

/// Whether the last `wanted` values are settled: over them the regression line rises or falls by less than a tenth of
/// their mean, or no more than chance would have it (t below 2). Gives where they begin.
///
/// This is the question while a load still runs; the truncation point cannot answer it, since on a steep ramp it
/// prefers many values to flat ones.
pub fn settled(values: &[f64], wanted: usize) -> Option<usize> {
    let begin = values.len().checked_sub(wanted).filter(|_| wanted >= 4)?;
    let tail = &values[begin..];
    let count = wanted as f64;
    let mean = tail.iter().sum::<f64>() / count;
    let middle = (count - 1.0) / 2.0;
    let centred = |i: usize| i as f64 - middle;
    let spread: f64 = (0..wanted).map(|i| centred(i).powi(2)).sum();
    let slope = tail.iter().enumerate().map(|(i, value)| centred(i) * (value - mean)).sum::<f64>() / spread;
    let rest: f64 =
        tail.iter().enumerate().map(|(i, value)| (value - mean - slope * centred(i)).powi(2)).sum();
    let slope_error = (rest / (count - 2.0) / spread).sqrt();
    let drift = (slope * (count - 1.0)).abs();
    (drift <= DRIFT_MAX * mean || slope.abs() < T_MAX * slope_error).then_some(begin)
}

/// Drift over the measured values, as a share of their mean, that spoils no comparison.
const DRIFT_MAX: f64 = 0.10;
/// A slope of fewer standard errors than this may be chance.
const T_MAX: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::histogram::TimeHistogram;

    fn ramp_then_flat(ramp: usize, flat: usize) -> Vec<f64> {
        let noise = |i: usize| [0.0, 6.0, -5.0, 3.0, -4.0][i % 5];
        let increasing = (0..ramp).map(|i| 100.0 + 1000.0 * i as f64 / ramp as f64);
        increasing.chain((0..flat).map(|i| 1100.0 + noise(i))).collect()
    }

    /// Whole seconds of so many answers, each of which took so long.
    fn seconds(all: &[(u64, u64)]) -> Vec<Interval> {
        let second = |&(completed, us): &(u64, u64)| {
            let mut times = TimeHistogram::new();
            (0..completed).for_each(|_| times.record(us));
            Interval { length_us: 1_000_000, completed, response_time: times.encode(), ..Interval::default() }
        };
        all.iter().map(second).collect()
    }

    fn cut(all: &[(u64, u64)]) -> usize {
        detect(&seconds(all)).unwrap().map_or(0, |warm_up| warm_up.seconds)
    }

    /// Rates with times that follow from them, as with ten users.
    fn closed(rates: &[u64]) -> Vec<(u64, u64)> {
        rates.iter().map(|&rate| (rate, 10_000_000 / rate.max(1))).collect()
    }

    #[test]
    fn only_a_slow_start_is_cut() {
        for (rates, expected) in [
            (&[100, 101, 99, 100, 102, 100, 98, 101][..], 0),
            (&[10, 50, 100, 101, 99, 100, 102, 100], 2),
            (&[10, 101, 99, 100, 102, 100, 98, 101, 99], 1),
            // It is faster at first, or slower by next to nothing.
            (&[300, 250, 100, 101, 99, 100, 102, 100], 0),
            (&[930, 931, 1000, 1001, 999, 1000, 1002, 1000], 0),
            // Never more than half.
            (&[10, 20, 30, 40, 50, 60, 100, 101, 99, 102], 5),
            (&[10, 100, 100], 0),
            (&[], 0),
        ] {
            let found = cut(&closed(rates));
            assert!(found.abs_diff(expected) <= usize::from(expected == 5), "{rates:?}: {found}");
        }
    }

    #[test]
    fn at_a_given_rate_the_times_tell() {
        let mut all: Vec<(u64, u64)> = (0..12).map(|index| (200, 5_000 + 37 * (index % 3))).collect();
        assert_eq!(cut(&all), 0);
        (all[0].1, all[1].1, all[2].1) = (90_000, 40_000, 9_000);
        assert_eq!(cut(&all), 3);
        let why = detect(&seconds(&all)).unwrap().unwrap().reason;
        assert!(
            why.contains("the p50 response time was 9.2 times as long") && !why.contains("rate"),
            "{why}"
        );
        // A second without an answer has no time; the rate still tells.
        all[0] = (0, 1);
        assert_eq!(cut(&all), 1);
    }

    #[test]
    fn a_stall_that_recurs_is_no_warm_up() {
        let stalled = |every: usize, count: usize| -> Vec<u64> {
            (0..count)
                .map(|i| if i % every == 0 { 500 + 7 * (i as u64 % 5) } else { 1000 + i as u64 % 3 })
                .collect()
        };
        for (every, count) in [(3, 12), (3, 60), (10, 60), (5, 11)] {
            assert_eq!(cut(&closed(&stalled(every, count))), 0, "{every} {count}");
        }
        // Once more in a long run is a stall, and the start was slow.
        assert_eq!(cut(&closed(&stalled(30, 60))), 1);
    }

    #[test]
    fn failures_are_a_result() {
        let mut all = seconds(&closed(&[10, 50, 100, 101, 99, 100, 102, 100]));
        assert!(detect(&all).unwrap().is_some());
        all[1].failed = 1;
        assert_eq!(detect(&all).unwrap(), None);
        (all[1].failed, all[2].failed) = (0, 1);
        assert!(detect(&all).unwrap().is_some());
    }

    #[test]
    fn a_rising_series_is_not_settled() {
        let linear = ramp_then_flat(18, 12);
        // As Apache's prefork fills up: a power of two more each second, then 32 a second (measured).
        let measured =
            [22.0, 34.0, 45.0, 67.0, 110.0, 182.0, 347.0, 515.0, 709.0, 877.0, 1030.0, 1190.0, 1350.0];
        let plateau = [1350.0, 1380.0, 1340.0, 1360.0, 1290.0, 1400.0, 1370.0, 1350.0, 1330.0, 1360.0];
        let prefork = [&measured[..], &plateau[..]].concat();
        for (values, ramp) in [(linear, 18), (prefork, 12)] {
            let first = (1..=values.len()).find(|&n| settled(&values[..n], 10).is_some()).unwrap();
            assert!(
                (ramp + 8..=ramp + 12).contains(&first),
                "settled after {first} values, the ramp has {ramp}"
            );
        }
    }

    #[test]
    fn noise_is_no_drift() {
        let noisy = [100.0, 140.0, 90.0, 120.0, 70.0, 130.0, 110.0, 80.0, 125.0, 115.0];
        assert_eq!(settled(&noisy, 10), Some(0));
    }

    #[test]
    fn even_values_have_settled() {
        assert_eq!(settled(&[0.0; 10], 8), Some(2));
        assert_eq!(settled(&[5.0; 3], 8), None);
    }
}
