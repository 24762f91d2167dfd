//! The sequential test of a step: second by second, whether a load surely meets the objectives, surely misses one, or neither yet.
//!
//! Beside the objectives, a load in open arrival has to be kept up with: where requests queue up second by second, no objective of
//! a short step tells what a longer one would come to.

use super::share_test::{ShareEvidence, ShareSecond, share_met, share_seems_met};
use crate::run_report::slo_abort::ObjectiveScope;
use webdyno_model::Result;
use webdyno_model::interval::Interval;
use webdyno_model::objective::{Figure, Objective, Statistic};
use webdyno_model::workload::{Arrival, Workload};

/// What is said to be missed where the server falls behind the load.
pub const FALLS_BEHIND: &str = "rate of responses below the offered one";

/// This share of the started requests may stay behind, for good and for a step that is sure.
const BEHIND_SURE: f64 = 0.02;
const BEHIND_SEEMING: f64 = 0.01;
/// Queues change by chance, about as the root of the number of requests: this many times that is none.
const CHANCE: f64 = 3.0;
/// Requests that are no queue.
const FEW: f64 = 3.0;
/// Standard errors by which a mean has to differ from its bound.
const MEAN_ERRORS: f64 = 3.0;
/// Seconds before a mean is known, or that a server falls behind.
const SECONDS_MIN: usize = 3;

/// What a step came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepOutcome {
    /// Whether all objectives are surely met, or one is surely missed; `None` where neither is sure.
    pub met: Option<bool>,
    /// Whether they seem to be met: the same where it is sure.
    pub seems_met: bool,
    /// The objective that is missed, or seems to be: the first of them.
    pub missed: Option<String>,
    /// Seconds that were measured.
    pub measured_s: u32,
    /// Of the objective of a share that speaks most against the load, where one has no sure miss beside it.
    pub share: Option<ShareEvidence>,
    /// Mean response time, microseconds.
    pub mean_us: Option<f64>,
}

/// Judges a step second by second.
#[derive(Debug, Clone)]
pub struct StepTest {
    objectives: Vec<ObjectiveTest>,
    /// `None` in closed arrival: there the load waits for the server.
    queue: Option<QueueTest>,
    warmup_s: f64,
    least_s: u32,
    most_s: u32,
    measured_s: u32,
    is_random: bool,
    lone_mean_us: Option<f64>,
    /// Sum of the response times, microseconds, and their number.
    times: (f64, f64),
}

impl StepTest {
    /// For a load of this workload, which begins with seconds that are not measured; it ends no sooner than after `least_s` measured
    /// seconds where all is well, and after `most_s` in any case.
    pub fn new(
        objectives: &[Objective],
        workload: &Workload,
        warmup_s: u32,
        (least_s, most_s): (u32, u32),
    ) -> Self {
        let is_open = workload.arrival != Arrival::Closed;
        Self {
            objectives: objectives.iter().map(|one| ObjectiveTest::new(one, workload)).collect(),
            queue: is_open.then(QueueTest::default),
            warmup_s: f64::from(warmup_s),
            least_s,
            most_s,
            measured_s: 0,
            is_random: matches!(workload.arrival, Arrival::Open { poisson: true, .. }),
            lone_mean_us: None,
            times: (0.0, 0.0),
        }
    }

    /// With the mean response time of a load without queues, microseconds: what exceeds it is taken for waiting.
    #[must_use]
    pub fn with_lone_mean(self, lone_mean_us: Option<f64>) -> Self {
        Self { lone_mean_us, ..self }
    }

    /// Requests that wait, on average (Little's law).
    fn queue(&self) -> f64 {
        let (sum_us, count) = self.times;
        // Users, and requests in equal distances, make no queues by chance.
        let lone_mean_us = self.lone_mean_us.filter(|_| self.is_random);
        let waited_us = lone_mean_us.map_or(0.0, |lone_us| (sum_us - count * lone_us).max(0.0));
        waited_us / 1e6 / f64::from(self.measured_s.max(1))
    }

    /// Takes in the next second. Gives whether the step is over. An error when a histogram is damaged.
    pub fn add_second(&mut self, interval: &Interval) -> Result<bool> {
        if let Some(queue) = &mut self.queue {
            queue.add_second(interval, interval.t_s >= self.warmup_s - 0.0005);
        }
        if interval.t_s < self.warmup_s - 0.0005 || interval.length_us < 900_000 {
            return Ok(false);
        }
        self.measured_s += 1;
        if let Some(times) = &interval.response_time {
            self.times = (self.times.0 + times.sum_us, self.times.1 + interval.completed as f64);
        }
        for one in &mut self.objectives {
            one.add_second(interval)?;
        }
        Ok(match self.outcome().met {
            Some(false) => true,
            Some(true) => self.measured_s >= self.least_s,
            None => self.measured_s >= self.most_s || self.is_short_and_far(),
        })
    }

    /// Whether a look is enough: nothing came near a bound, and the step is only to find a load where something does.
    fn is_short_and_far(&self) -> bool {
        self.least_s <= 1
            && self.queue.as_ref().is_none_or(QueueTest::seems_met)
            && self.objectives.iter().all(ObjectiveTest::is_far)
    }

    /// What is known by now.
    pub fn outcome(&self) -> StepOutcome {
        let is_last = self.measured_s >= self.most_s;
        let queue = self.queue();
        let mut verdicts: Vec<(Option<bool>, bool, &str)> = self
            .objectives
            .iter()
            .map(|one| (one.met(is_last, queue), one.seems_met(), one.of.objective.text()))
            .collect();
        verdicts.extend(self.queue.as_ref().map(|queue| (queue.met(), queue.seems_met(), FALLS_BEHIND)));
        let surely = verdicts.iter().find(|(met, ..)| *met == Some(false));
        let seeming = verdicts.iter().find(|(met, seems, _)| *met != Some(true) && !seems);
        let all_met = self.measured_s > 0 && verdicts.iter().all(|(met, ..)| *met == Some(true));
        StepOutcome {
            met: if surely.is_some() { Some(false) } else { all_met.then_some(true) },
            seems_met: surely.or(seeming).is_none() && self.measured_s > 0,
            missed: surely.or(seeming).map(|(.., text)| (*text).to_owned()),
            measured_s: self.measured_s,
            share: self.share(queue),
            mean_us: (self.times.1 > 0.0).then(|| self.times.0 / self.times.1),
        }
    }

    fn share(&self, queue: f64) -> Option<ShareEvidence> {
        let evidences = self.objectives.iter().filter_map(|one| one.share(queue));
        evidences.max_by(|a, b| a.strength().total_cmp(&b.strength()))
    }
}

/// What is known of an objective.
#[derive(Debug, Clone)]
struct ObjectiveTest {
    of: ObjectiveScope,
    seconds: Vec<ShareSecond>,
    /// Sum of the times and their number, of each second.
    sums: Vec<(f64, f64)>,
    longest_us: u64,
}

impl ObjectiveTest {
    fn new(objective: &Objective, workload: &Workload) -> Self {
        let of = ObjectiveScope::of(objective, workload);
        Self { of, seconds: vec![], sums: vec![], longest_us: 0 }
    }

    /// The share that may be slow or fail, of objectives that allow one.
    fn allowed(&self) -> Option<f64> {
        match self.of.objective.figure() {
            Figure::ErrorFraction => Some(self.of.objective.bound()),
            Figure::Time(_, statistic) => statistic.beyond(),
            Figure::Failed | Figure::Rate => None,
        }
    }

    fn add_second(&mut self, interval: &Interval) -> Result<()> {
        let Some(share) = self.of.share(interval) else { return Ok(()) };
        let (completed, failed, times) = (share.completed, share.failed, share.times);
        let second = match self.of.objective.figure() {
            // Nothing at all came back: what waits is slow, however slow it will be in the end.
            Figure::Time(..) if completed + failed == 0 && interval.in_flight > 0 => {
                ShareSecond { ended: interval.in_flight, beyond: interval.in_flight }
            }
            Figure::Time(..) => {
                let beyond = times.map_or(Ok(0), |times| self.of.slow_count(times))?;
                ShareSecond { ended: completed.max(beyond), beyond }
            }
            Figure::ErrorFraction | Figure::Failed | Figure::Rate => {
                ShareSecond { ended: completed + failed, beyond: failed }
            }
        };
        self.seconds.push(second);
        if let Some(times) = times {
            self.longest_us = self.longest_us.max(times.max_us);
            self.sums.push((times.sum_us, completed as f64));
        }
        Ok(())
    }

    /// Whether nothing came near the bound: no response took half as long, and none failed.
    fn is_far(&self) -> bool {
        let beyond: u64 = self.seconds.iter().map(|second| second.beyond).sum();
        beyond == 0 && !self.seconds.is_empty() && !self.is_near()
    }

    fn is_near(&self) -> bool {
        let objective = &self.of.objective;
        matches!(objective.figure(), Figure::Time(..)) && self.longest_us as f64 > objective.bound() / 2.0
    }

    fn queue_near(&self, queue: f64) -> f64 {
        if self.is_near() { queue } else { 0.0 }
    }

    fn share(&self, queue: f64) -> Option<ShareEvidence> {
        let allowed = self.allowed().filter(|allowed| *allowed > 0.0)?;
        Some(ShareEvidence::of(&self.seconds, allowed, self.queue_near(queue)))
    }

    fn met(&self, is_last: bool, queue: f64) -> Option<bool> {
        if let Some(allowed) = self.allowed() {
            let met = share_met(&self.seconds, allowed, self.queue_near(queue));
            // Of what may never happen nothing proves that it will not: it has not as long as anybody looked.
            return met.or((allowed <= 0.0 && is_last).then_some(true));
        }
        match self.of.objective.figure() {
            Figure::Time(_, Statistic::Mean) => self.mean_met(),
            _ if !self.seems_met() => Some(false),
            _ => is_last.then_some(true),
        }
    }

    fn seems_met(&self) -> bool {
        if let Some(allowed) = self.allowed() {
            return share_seems_met(&self.seconds, allowed);
        }
        let objective = &self.of.objective;
        match objective.figure() {
            Figure::Time(_, Statistic::Mean) => self.mean_us().is_some_and(|mean| objective.is_met_by(mean)),
            Figure::Time(..) => objective.is_met_by(self.longest_us as f64),
            _ => objective.is_met_by(self.seconds.iter().map(|second| second.beyond).sum::<u64>() as f64),
        }
    }

    fn mean_us(&self) -> Option<f64> {
        let (sum, count) = self.sums.iter().fold((0.0, 0.0), |(a, b), (sum, n)| (a + sum, b + n));
        (count > 0.0).then(|| sum / count)
    }

    /// A ratio of sums, with its error from the seconds.
    fn mean_met(&self) -> Option<bool> {
        let (mean, seconds) = (self.mean_us()?, self.sums.len() as f64);
        if self.sums.len() < SECONDS_MIN {
            return None;
        }
        let per_second = self.sums.iter().map(|(_, n)| n).sum::<f64>() / seconds;
        let squares: f64 = self.sums.iter().map(|(sum, n)| (sum - mean * n).powi(2)).sum();
        let error = (squares / (seconds - 1.0) / seconds).sqrt() / per_second.max(1.0);
        let off = (mean - self.of.objective.bound()).abs();
        (off > MEAN_ERRORS * error).then(|| self.of.objective.is_met_by(mean))
    }
}

/// Whether the server keeps up with what is offered: of pages where there are some, else of requests.
#[derive(Debug, Clone, Default)]
struct QueueTest {
    /// Under way when the measured part began, and now.
    before: u64,
    now: u64,
    started: u64,
    seconds: usize,
}

impl QueueTest {
    fn add_second(&mut self, interval: &Interval, is_measured: bool) {
        let (started, in_flight) = match &interval.pages {
            Some(pages) => (pages.started, pages.in_flight),
            None => (interval.started, interval.in_flight),
        };
        self.now = in_flight;
        if is_measured {
            self.started += started;
            self.seconds += 1;
        } else {
            self.before = in_flight;
        }
    }

    fn growth(&self) -> f64 {
        self.now as f64 - self.before as f64
    }

    fn met(&self) -> Option<bool> {
        let chance = CHANCE * (self.started as f64).sqrt();
        let is_behind = self.growth() > (BEHIND_SURE * self.started as f64).max(chance);
        if is_behind && self.seconds >= SECONDS_MIN.min(2) {
            return Some(false);
        }
        self.seems_met().then_some(true)
    }

    fn seems_met(&self) -> bool {
        self.growth() <= BEHIND_SEEMING * self.started as f64 + FEW
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::histogram::TimeHistogram;

    fn second(number: u32, fast: u64, slow: u64, failed: u64, in_flight: u64) -> Interval {
        let mut times = TimeHistogram::new();
        times.record_many(10_000, fast);
        times.record_many(900_000, slow);
        Interval {
            t_s: f64::from(number),
            length_us: 1_000_000,
            started: 1000,
            completed: fast + slow,
            failed,
            in_flight,
            response_time: times.encode(),
            ..Interval::default()
        }
    }

    fn judged(
        slo: &str,
        arrival: Arrival,
        seconds: impl Iterator<Item = (u64, u64, u64, u64)>,
    ) -> StepOutcome {
        let workload = Workload { arrival, ..Workload::default() };
        let mut test = StepTest::new(&[Objective::parse(slo).unwrap()], &workload, 1, (2, 6));
        for (number, (fast, slow, failed, in_flight)) in seconds.enumerate() {
            if test.add_second(&second(number as u32, fast, slow, failed, in_flight)).unwrap() {
                return test.outcome();
            }
        }
        panic!("{slo}: no end")
    }

    #[test]
    fn a_step_lasts_as_long_as_it_takes_to_be_sure() {
        let open = Arrival::Open { rate_per_s: 1000.0, poisson: false };
        type Seconds = Vec<(u64, u64, u64, u64)>;
        let same = |second| -> Seconds { vec![second; 9] };
        let queue: Seconds = (1..9).map(|n| (900, 0, 0, n * 100)).collect();
        let slow_start: Seconds = [vec![(0, 900, 99, 5)], same((1000, 0, 0, 5))].concat();
        for (slo, arrival, seconds, met, lasted_s) in [
            ("p99<500ms", open, same((1000, 0, 0, 5)), Some(true), 2),
            ("p99<500ms", open, slow_start, Some(true), 2),
            ("p99<500ms", open, same((500, 500, 0, 5)), Some(false), 2),
            ("p99<500ms", open, same((990, 10, 0, 5)), None, 6),
            ("errors<1%", open, same((900, 0, 100, 5)), Some(false), 3),
            ("errors<0%", open, same((1000, 0, 0, 5)), Some(true), 6),
            ("failed<5", open, same((1000, 0, 2, 5)), Some(false), 3),
            ("max<500ms", open, same((1000, 0, 0, 5)), Some(true), 6),
            ("max<500ms", open, same((999, 1, 0, 5)), Some(false), 1),
            ("mean<500ms", open, same((900, 100, 0, 5)), Some(true), 3),
            ("mean<50ms", open, same((900, 100, 0, 5)), Some(false), 3),
            // Fast answers, and ever more that wait.
            ("p99<500ms", open, queue.clone(), Some(false), 2),
            ("p99<500ms", Arrival::Closed, queue, Some(true), 2),
            // Nothing comes back at all.
            ("p99<500ms", Arrival::Closed, same((0, 0, 0, 9)), Some(false), 2),
        ] {
            let outcome = judged(slo, arrival, seconds.into_iter());
            assert_eq!((outcome.met, outcome.measured_s), (met, lasted_s), "{slo} {arrival:?}");
            assert_eq!(outcome.missed.is_some(), outcome.met == Some(false), "{slo}");
        }
    }
}
