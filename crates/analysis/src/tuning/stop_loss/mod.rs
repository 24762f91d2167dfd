//! The stop-loss: while a change is verified, its results are held against the best so far second by second, and the
//! load ends as soon as it is clear that the change is worse. Nobody has to live with it for longer than that.
//!
//! A false stop costs an improvement, so it must be rarer than what it saves. What is compared is bounded three times:
//! by a share of the lower end of the best's 95% interval, by what chance does to a single second of it (three
//! standard deviations), and by the same second of the best's own load, as both begin with a server that warms up. All
//! of several seconds in a row must lie beyond, and must not be on their way back: a new generation of workers fills up
//! slowly (prefork starts at most 32 a second), and a rate that rises has not arrived yet.

use crate::measurement::Measurement;
use crate::measurement::statistics::{describe, mean};
use webdyno_model::interval::Interval;
use webdyno_model::workload::Arrival;

/// A rate below this share of the best's lower bound is clearly worse.
pub const RATE_FRACTION: f64 = 0.8;
/// So many seconds in a row must be worse.
const SECONDS: usize = 5;
/// Failures need no long look: they are not what warming up looks like.
const FAILED_SECONDS: usize = 3;
/// This share of requests must fail in excess of the best's,
const FAILED_FRACTION_MORE: f64 = 0.05;
/// in so many requests a second at least.
const FAILED_COUNT_MIN: u64 = 3;
/// Answers that take this many times the best's mean are clearly slower,
const TIME_RATIO: f64 = 2.0;
/// if that is more than a blink.
const TIME_EXCESS_US: f64 = 10_000.0;
/// What chance does to a single second lies within so many standard deviations.
const DEVIATIONS: f64 = 3.0;
/// The best must be known from so many seconds at least.
const KNOWN_SECONDS: usize = 4;
/// What rises (or falls) by more than this over the seconds that are looked at has not arrived yet.
const DRIFT_MAX: f64 = 0.10;
/// An interval that is shorter was cut off.
const WHOLE_US: u64 = 900_000;

/// What a load is held against.
#[derive(Debug, Clone, PartialEq)]
pub struct StopLoss {
    /// Good answers in each second of the best's load, warm-up included.
    rates: Vec<f64>,
    /// A second below this is clearly worse; `None` when the best is too uneven to tell.
    rate_min: Option<f64>,
    failed_fraction: f64,
    /// Mean response time in each second of the best's load.
    times_us: Vec<Option<f64>>,
    /// A second above this is clearly worse; only where requests arrive at a given rate, as the rate tells it else.
    time_max_us: Option<f64>,
}

impl StopLoss {
    /// Against the best so far.
    pub fn new(best: &Measurement) -> Self {
        let all = whole_seconds(&best.intervals);
        let measured: Vec<&Interval> =
            best.measured().filter(|interval| interval.length_us >= WHOLE_US).collect();
        let open = matches!(best.workload.as_ref().map(|load| load.arrival), Some(Arrival::Open { .. }));
        let times: Vec<f64> = measured.iter().filter_map(|interval| mean_time_us(interval)).collect();
        let sum = |count: fn(&Interval) -> u64| measured.iter().map(|interval| count(interval)).sum::<u64>();
        let ended = sum(|interval| interval.completed + interval.failed);
        let failed = sum(|interval| interval.failed);
        Self {
            rates: all.iter().map(|interval| rate(interval)).collect(),
            rate_min: rate_min(&measured.iter().map(|interval| rate(interval)).collect::<Vec<_>>()),
            failed_fraction: if ended > 0 { failed as f64 / ended as f64 } else { 0.0 },
            times_us: all.iter().map(|interval| mean_time_us(interval)).collect(),
            time_max_us: time_max_us(&times).filter(|_| open),
        }
    }

    /// Why a load that runs must end now, in words; `None` as long as it is not clear that it is worse.
    pub fn check(&self, intervals: &[Interval]) -> Option<String> {
        let seconds = whole_seconds(intervals);
        self.fails_more(&seconds)
            .or_else(|| self.is_rate_worse(&seconds))
            .or_else(|| self.is_page_time_worse(&seconds))
    }

    fn fails_more(&self, seconds: &[&Interval]) -> Option<String> {
        let last = tail(seconds, FAILED_SECONDS)?;
        let fails = |interval: &&Interval| {
            let ended = (interval.completed + interval.failed) as f64;
            let known = self.failed_fraction;
            let chance = DEVIATIONS * (known * (1.0 - known) / ended.max(1.0)).sqrt();
            let most = known + FAILED_FRACTION_MORE + chance;
            interval.failed >= FAILED_COUNT_MIN && interval.failed as f64 / ended.max(1.0) > most
        };
        if !last.iter().all(fails) {
            return None;
        }
        let failed: u64 = last.iter().map(|interval| interval.failed).sum();
        let ended: u64 = last.iter().map(|interval| interval.completed + interval.failed).sum();
        Some(format!(
            "{failed} of {ended} requests failed in {FAILED_SECONDS} s ({:.1}% before)",
            self.failed_fraction * 100.0
        ))
    }

    fn is_rate_worse(&self, seconds: &[&Interval]) -> Option<String> {
        let rate_min = self.rate_min?;
        let begin = seconds.len().checked_sub(SECONDS)?;
        let rates: Vec<f64> = seconds[begin..].iter().map(|interval| rate(interval)).collect();
        let least = |index: usize| {
            let then = self.rates.get(begin + index).map(|then| then * RATE_FRACTION);
            then.map_or(rate_min, |then| then.min(rate_min))
        };
        let all_below = rates.iter().enumerate().all(|(index, rate)| *rate < least(index));
        if !all_below || drift(&rates)? > DRIFT_MAX {
            return None;
        }
        Some(format!(
            "{} successful req/s for {SECONDS} s, below the {} that chance explains",
            crate::wording::format_number(mean(&rates)?),
            crate::wording::format_number(rate_min)
        ))
    }

    fn is_page_time_worse(&self, seconds: &[&Interval]) -> Option<String> {
        let most = self.time_max_us?;
        let begin = seconds.len().checked_sub(SECONDS)?;
        let times: Vec<f64> =
            seconds[begin..].iter().map(|interval| mean_time_us(interval)).collect::<Option<_>>()?;
        // Beyond the best's own seconds there is nothing to hold it against: behind too high a rate times rise for
        // ever, whatever the settings.
        let slower = |(index, time_us): (usize, &f64)| {
            let then = self.times_us.get(begin + index).copied().flatten();
            then.is_some_and(|then| *time_us > most.max(then * TIME_RATIO))
        };
        if !times.iter().enumerate().all(slower) || drift(&times)? < -DRIFT_MAX {
            return None;
        }
        let (now, most) = (crate::wording::format_time(mean(&times)?), crate::wording::format_time(most));
        Some(format!("response time {now} for {SECONDS} s, above the {most} that chance explains"))
    }
}

fn whole_seconds(intervals: &[Interval]) -> Vec<&Interval> {
    intervals.iter().filter(|interval| interval.length_us >= WHOLE_US).collect()
}

fn rate(interval: &Interval) -> f64 {
    interval.completed as f64 * 1e6 / interval.length_us as f64
}

/// Good answers, and timeouts at their bound.
fn mean_time_us(interval: &Interval) -> Option<f64> {
    let times = interval.response_time.as_ref()?;
    let count = interval.completed + interval.errors.timeout + interval.errors.connect_timeout;
    (count > 0).then(|| times.sum_us / count as f64)
}

fn rate_min(rates: &[f64]) -> Option<f64> {
    let best = describe(rates).filter(|_| rates.len() >= KNOWN_SECONDS)?;
    let lower = best.mean - best.half_width_95();
    let least = (RATE_FRACTION * lower).min(best.mean - DEVIATIONS * best.variance.sqrt());
    (least > 0.0).then_some(least)
}

fn time_max_us(times_us: &[f64]) -> Option<f64> {
    let best = describe(times_us).filter(|_| times_us.len() >= KNOWN_SECONDS)?;
    let upper = best.mean + best.half_width_95();
    let most = (TIME_RATIO * upper).max(best.mean + DEVIATIONS * best.variance.sqrt());
    Some(most.max(best.mean + TIME_EXCESS_US))
}

fn tail<'a, 'b>(seconds: &'a [&'b Interval], count: usize) -> Option<&'a [&'b Interval]> {
    seconds.get(seconds.len().checked_sub(count)?..)
}

/// By how much the last two values are above the first two, as a share of these.
fn drift(values: &[f64]) -> Option<f64> {
    let (first, last) = (mean(values.get(..2)?)?, mean(values.get(values.len().checked_sub(2)?..)?)?);
    if first > 0.0 { Some(last / first - 1.0) } else { Some(if last > 0.0 { f64::INFINITY } else { 0.0 }) }
}

#[cfg(test)]
mod tests;
