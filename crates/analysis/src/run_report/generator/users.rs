//! The interactive response time law: users = rate x (response time + think time). Denning and Buzen, "The Operational
//! Analysis of Queueing Network Models", ACM Computing Surveys 10 (1978); it is Little's law of visitors who think.
//!
//! The visitors are counted by the engine, each second; rate and response time are those of the steps that ended, the
//! think time is the mean of what the workload draws. They agree up to what lies across the edges of the measured part
//! (at most one step for each visitor) and what chance does to the mean of the think times. Where that is much, or the
//! number of visitors changes, nothing is said.

use crate::measurement::Measurement;
use webdyno_model::client::UsersReport;
use webdyno_model::histogram::EncodedHistogram;
use webdyno_model::interval::{ErrorCounts, Interval};
use webdyno_model::number::significant;
use webdyno_model::workload::Arrival;
use webdyno_model::workload::visit::{Think, Visits};

/// By so much both counts may differ, besides what edges and chance explain.
const TOLERANCE: f64 = 0.03;
/// The measured part must hold so many steps of each visitor: with fewer, the edges say more than the law.
const STEPS_EACH_MIN: f64 = 10.0;
/// So many standard errors are not taken for chance: one run in 15,000 lies beyond them.
const STANDARD_ERRORS: f64 = 4.0;
/// With more failed pages than this share, whose times are not kept, the mean time is not known.
const FAILED_FRACTION_MAX: f64 = 0.01;

/// Nor with more visitors than this share who wait for what never ends.
const UNENDED_FRACTION_MAX: f64 = 0.015;

/// Both counts of the visitors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StepCounts {
    users: f64,
    by_law: f64,
    response_us: f64,
    think_us: f64,
    slack: f64,
}

/// The times of steps.
#[derive(Debug, Clone, Copy, PartialEq)]
struct StepTimes {
    count: f64,
    sum_us: f64,
    variance: f64,
}

/// Both counts; `None` where one is not known, or known too badly.
pub(super) fn step_counts(measurement: &Measurement) -> Option<StepCounts> {
    let workload = measurement.workload.as_ref().filter(|workload| workload.arrival == Arrival::Closed)?;
    let visits = workload.visits.as_deref()?;
    // What is due at a time of its session waits for that, and not for a think time.
    if visits.sessions.iter().flat_map(|session| &session.steps).any(|step| step.at_us.is_some()) {
        return None;
    }
    let users = steady_users(measurement)?;
    let steps = steps(measurement, visits)?;
    let (think_us, think_variance) = think(visits)?;
    let length_us: u64 = measurement.measured().map(|interval| interval.length_us).sum();
    let response_us = steps.sum_us / steps.count;
    let step_us = response_us + think_us;
    let each = length_us as f64 / step_us;
    let by_law = steps.count / length_us as f64 * step_us;
    let spread = (steps.variance + think_variance).max(0.0).sqrt() / step_us;
    let slack = TOLERANCE + 1.0 / each + STANDARD_ERRORS * spread / steps.count.sqrt();
    // Steps that do not end have no time yet: where visitors wait in vain the mean is that of the lucky ones.
    let unended = steps_in_flight(measurement, visits)? - steps.sum_us / length_us as f64;
    let reported = each.min(steps.count / users) >= STEPS_EACH_MIN
        && unended <= UNENDED_FRACTION_MAX * users
        && by_law.is_finite()
        && slack.is_finite();
    reported.then_some(StepCounts { users, by_law, response_us, think_us, slack })
}

/// The number of visitors, when it was the same all the time. The last second may be the one in which they left.
fn steady_users(measurement: &Measurement) -> Option<f64> {
    let counts: Vec<u64> = measurement.measured().map(|interval| interval.visits.visitors).collect();
    let counts = match counts.split_last() {
        Some((last, before)) if !before.is_empty() && *last < before[0] => before,
        _ => &counts,
    };
    let first = *counts.first().filter(|first| **first > 0)?;
    counts.iter().all(|count| *count == first).then_some(first as f64)
}

/// The steps that ended: pages where all steps are pages, requests where none is. Where both occur, the requests of the
/// steps cannot be told from those of the pages.
fn steps(measurement: &Measurement, visits: &Visits) -> Option<StepTimes> {
    let mut all = visits.sessions.iter().flat_map(|session| &session.steps).map(|step| step.page.is_some());
    let paged = all.next()?;
    // What a step does that was skipped is not in any time.
    let skipped = measurement.measured().any(|interval| interval.visits.steps_skipped > 0);
    // Nor is the pause of whoever got no connection.
    let paused = measurement.measured().any(|interval| has_refused(&interval.errors));
    let same = all.all(|page| page == paged) && !skipped && !paused;
    let times = if paged { pages(measurement) } else { requests(measurement) };
    times.filter(|_| same)
}

/// Steps under way on the average, as the ends of the seconds show them; `None` when there are none.
fn steps_in_flight(measurement: &Measurement, visits: &Visits) -> Option<f64> {
    let paged = visits.sessions.iter().flat_map(|session| &session.steps).any(|step| step.page.is_some());
    let under_way = |interval: &Interval| match &interval.pages {
        Some(pages) if paged => pages.in_flight,
        _ => interval.in_flight,
    };
    let (sum, seconds) =
        measurement.measured().fold((0, 0), |(sum, seconds), second| (sum + under_way(second), seconds + 1));
    (seconds > 0).then(|| sum as f64 / f64::from(seconds))
}

/// Whether a connection did not come about, which visitors pause after.
fn has_refused(errors: &ErrorCounts) -> bool {
    let refused = [
        errors.dns,
        errors.tls,
        errors.connect_refused,
        errors.unreachable,
        errors.local_ports_exhausted,
        errors.no_descriptors,
    ];
    refused.iter().any(|count| *count > 0)
}

fn pages(measurement: &Measurement) -> Option<StepTimes> {
    let pages = || measurement.measured().filter_map(|interval| interval.pages.as_deref());
    let (completed, failed) =
        pages().fold((0, 0), |(good, bad), page| (good + page.completed, bad + page.failed));
    if failed as f64 > FAILED_FRACTION_MAX * (completed + failed) as f64 {
        return None;
    }
    let mut times = StepTimes::of(completed, pages().filter_map(|page| page.time.as_ref()))?;
    // The failed ones took about as long as the others, for all that is known.
    let all = (completed + failed) as f64;
    (times.count, times.sum_us) = (all, times.sum_us * all / times.count);
    Some(times)
}

fn requests(measurement: &Measurement) -> Option<StepTimes> {
    let ended = measurement.measured().map(|interval| interval.completed + interval.failed).sum();
    let of = |interval: &'_ Interval| [interval.response_time.clone(), interval.failed_time.clone()];
    let times: Vec<_> = measurement.measured().flat_map(of).flatten().collect();
    let mut times = StepTimes::of(ended, times.iter())?;
    // Steps that the cache answered take no time.
    times.count += measurement.measured().map(|interval| interval.visits.cache_hits).sum::<u64>() as f64;
    Some(times)
}

impl StepTimes {
    fn of<'a>(count: u64, histograms: impl Iterator<Item = &'a EncodedHistogram>) -> Option<Self> {
        let (mut sum_us, mut squares) = (0.0, 0.0);
        for histogram in histograms {
            sum_us += histogram.sum_us;
            squares += histogram.sum_squares_us2;
        }
        let (count, mean) = (count as f64, sum_us / count as f64);
        (count > 0.0).then(|| Self { count, sum_us, variance: squares / count - mean * mean })
    }
}

/// Mean and variance of the think time after a step, over all steps as often as they are taken.
fn think(visits: &Visits) -> Option<(f64, f64)> {
    let (mut weights, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for session in &visits.sessions {
        for step in &session.steps {
            let (one, variance) = mean_and_variance(step.think.unwrap_or(visits.think));
            weights += session.weight;
            mean += session.weight * one;
            squares += session.weight * (variance + one * one);
        }
    }
    let mean = mean / weights;
    (weights > 0.0).then(|| (mean, squares / weights - mean * mean))
}

/// Mean and variance of a distribution.
fn mean_and_variance(think: Think) -> (f64, f64) {
    match think {
        Think::None => (0.0, 0.0),
        Think::Fixed { time_us } => (time_us as f64, 0.0),
        Think::Uniform { min_us, max_us } => {
            let (min, max) = (min_us as f64, max_us as f64);
            ((min + max) / 2.0, (max - min).powi(2) / 12.0)
        }
        Think::Exponential { mean_us } => (mean_us as f64, (mean_us as f64).powi(2)),
        Think::LogNormal { median_us, sigma } => {
            let mean = median_us as f64 * (sigma * sigma / 2.0).exp();
            (mean, mean * mean * (sigma * sigma).exp_m1())
        }
    }
}

impl StepCounts {
    pub(super) fn report(&self) -> UsersReport {
        let rounded = |value: f64| significant(value, 6);
        UsersReport {
            mean: rounded(self.users),
            by_law: rounded(self.by_law),
            response_us: rounded(self.response_us),
            think_us: rounded(self.think_us),
        }
    }

    /// Why the counts cannot be believed; `None` when they agree.
    pub(super) fn fault(&self) -> Option<String> {
        ((self.by_law / self.users - 1.0).abs() > self.slack).then(|| {
            format!(
                "the interactive response time law does not hold: {} visitors, but rate times response and think time \
                 is {}",
                significant(self.users, 4),
                significant(self.by_law, 4)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::histogram::TimeHistogram;
    use webdyno_model::page::PageInterval;
    use webdyno_model::workload::Workload;
    use webdyno_model::workload::visit::{PageSpec, SessionSpec, StepSpec};

    const THINK: Think = Think::Uniform { min_us: 200_000, max_us: 600_000 };

    fn workload(steps: Vec<StepSpec>, think: Think) -> Option<Workload> {
        let sessions = vec![SessionSpec { name: "s".into(), weight: 1.0, steps }];
        let visits = Visits { sessions, users: 100, think, ..Visits::default() };
        Some(Workload { visits: Some(Box::new(visits)), ..Workload::default() })
    }

    fn page() -> StepSpec {
        StepSpec { page: Some(PageSpec::default()), ..StepSpec::default() }
    }

    /// Seconds with so many visitors each, of whom each step takes 100 ms.
    fn seconds(visitors: &[u64], steps_per_s: u64) -> Vec<Interval> {
        let second = |(index, &visitors): (usize, &u64)| {
            let mut times = TimeHistogram::new();
            (0..steps_per_s).for_each(|_| times.record(100_000));
            let (completed, time) = (steps_per_s, times.encode());
            let pages =
                PageInterval { started: completed, completed, time: time.clone(), ..PageInterval::default() };
            let mut interval = Interval { t_s: index as f64, length_us: 1_000_000, ..Interval::default() };
            (interval.completed, interval.response_time) = (completed, time);
            (interval.visits.visitors, interval.pages) = (visitors, Some(Box::new(pages)));
            interval
        };
        visitors.iter().enumerate().map(second).collect()
    }

    fn check(steps: Vec<StepSpec>, think: Think, intervals: Vec<Interval>) -> Option<(f64, bool)> {
        let measurement =
            Measurement { workload: workload(steps, think), intervals, ..Measurement::default() };
        step_counts(&measurement).map(|law| (law.report().by_law, law.fault().is_some()))
    }

    #[test]
    fn visitors_that_are_lost_show() {
        // 100 visitors, 100 ms and 400 ms of think time: 200 steps a second.
        for (steps_per_s, by_law, broken) in
            [(200, 100.0, false), (195, 97.5, false), (160, 80.0, true), (260, 130.0, true)]
        {
            for step in [StepSpec::default(), page()] {
                let reported = check(vec![step], THINK, seconds(&[100; 40], steps_per_s));
                assert_eq!(reported, Some((by_law, broken)), "{steps_per_s}");
            }
        }
        // A second of its own in which they left does not count as a change of their number.
        let mut leaving = [100; 40];
        leaving[39] = 0;
        assert!(check(vec![page()], THINK, seconds(&leaving, 200)).is_some());
    }

    #[test]
    fn a_step_has_its_own_think_time() {
        let slow = StepSpec { think: Some(Think::Fixed { time_us: 800_000 }), ..page() };
        let reported = check(vec![slow, page()], Think::None, seconds(&[100; 60], 200));
        assert_eq!(reported, Some((100.0, false)));
        let log_normal = Think::LogNormal { median_us: 400_000, sigma: 0.5 };
        let (mean_us, _) = mean_and_variance(log_normal);
        assert!((mean_us - 453_259.0).abs() < 1.0, "{mean_us}");
    }

    #[test]
    fn nothing_is_said_of_what_is_not_known() {
        let whole = || seconds(&[100; 40], 200);
        let mut ramp = whole();
        ramp[0].visits.visitors = 90;
        let mut skipped = whole();
        skipped[7].visits.steps_skipped = 1;
        let mut refused = whole();
        refused[5].errors.connect_refused = 1;
        let mut failed = whole();
        failed[3].pages.as_mut().unwrap().failed = 100;
        // A tenth of them got an answer never.
        let mut hanging = seconds(&[100; 40], 180);
        for second in &mut hanging {
            second.pages.as_mut().unwrap().in_flight = 18 + 10;
        }
        let long = Think::Exponential { mean_us: 30_000_000 };
        for (steps, think, intervals) in [
            (vec![page()], THINK, ramp),
            (vec![page()], THINK, skipped),
            (vec![StepSpec::default()], THINK, refused),
            (vec![page()], THINK, failed),
            (vec![page()], THINK, hanging),
            (vec![page()], Think::None, seconds(&[100; 40], 5)),
            (vec![page(), StepSpec::default()], THINK, whole()),
            (vec![page()], long, whole()),
            (vec![], THINK, whole()),
            (vec![page()], THINK, seconds(&[0; 40], 200)),
        ] {
            assert_eq!(check(steps, think, intervals), None);
        }
    }
}
