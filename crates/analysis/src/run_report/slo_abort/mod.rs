//! Objectives that can no longer be met, whatever follows: then the rest of a load tells nothing more.
//!
//! A share is judged against the most requests that can still end. In open arrival these are known: what is in flight
//! and what is due until the end of the measured part. Else they are what the best second so far promises, twice over,
//! as a server may get quicker; of visitors who arrive at a rate nothing is promised, since there are more and more of
//! them at first. Requests of a name are at most all requests. What the detection of the warm-up may still cut does not
//! count: no second in which something failed is cut, and never more than the first half of the load.

mod scope;

pub(crate) use scope::ObjectiveScope;
use webdyno_model::Result;
use webdyno_model::interval::Interval;
use webdyno_model::number::significant;
use webdyno_model::objective::{Figure, Objective, Scope, Statistic, TimeKind};
use webdyno_model::workload::stage;
use webdyno_model::workload::stage::{Shape, Stage};
use webdyno_model::workload::{Arrival, Workload};

/// Before so many measured seconds nothing is judged.
const SECONDS_MIN: usize = 5;
/// The best second so far counts so often.
const PROMISE: f64 = 2.0;
/// A Poisson process brings more than its mean by so many standard deviations once in a billion loads.
const DEVIATIONS: f64 = 6.0;
/// A time counts as beyond a bound when its bucket surely is: buckets are a thousandth wide.
const BUCKET: f64 = 1.002;
const S_US: f64 = 1e6;

/// An objective that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissedObjective {
    /// As the user wrote it.
    pub slo: String,
    /// Why it cannot be met any more.
    pub reason: String,
}

/// What a load will do, as far as it is known before.
#[derive(Debug, Clone)]
struct PlannedLoad {
    /// How much of it there is; a level of 1 without stages in closed arrival.
    stages: Vec<Stage>,
    /// The measured part; it has no end with a number of requests.
    from_s: f64,
    to_s: Option<f64>,
    /// Requests in all, if they are counted.
    requests: Option<u64>,
    /// Whether the level is requests a second, and their number follows from it; whether that is a matter of chance.
    is_exact: bool,
    is_random: bool,
    /// Whether a second promises anything for the next ones.
    is_steady: bool,
    /// Whether the warm-up is yet to be detected.
    detects: bool,
}

impl PlannedLoad {
    /// `None` for a load of which nobody knows when it ends.
    fn of(workload: &Workload, warmup_s: Option<f64>) -> Option<Self> {
        let stop = workload.stop;
        let (level, is_random) = match workload.arrival {
            Arrival::Open { rate_per_s, poisson } => (rate_per_s, poisson),
            Arrival::Closed => (1.0, false),
        };
        let constant = |duration_us| Stage { duration_us, shape: Shape::Hold { level }, measured: true };
        let stages = match stop.duration_us {
            _ if !workload.stages.is_empty() => workload.stages.clone(),
            Some(duration_us) => vec![constant(duration_us)],
            None => vec![],
        };
        let (from_s, to_s) = match stage::measured_s(&stages) {
            Some((from_s, to_s)) if !workload.stages.is_empty() => {
                (from_s as f64, to_s.map(|to_s| to_s as f64))
            }
            _ => (warmup_s.unwrap_or(0.0), None),
        };
        let end_s = stop.duration_us.map(|us| us as f64 / S_US);
        let knows_its_end = end_s.is_some() || stop.requests.is_some();
        knows_its_end.then_some(Self {
            from_s,
            to_s: to_s.or(end_s),
            // Of visitors it is sessions that are counted, and nobody knows how many requests those have.
            requests: stop.requests.filter(|_| workload.visits.is_none()),
            is_exact: workload.visits.is_none() && workload.arrival != Arrival::Closed,
            is_random,
            is_steady: workload.visits.is_none() || workload.arrival == Arrival::Closed,
            detects: warmup_s.is_none() && workload.stages.is_empty(),
            stages,
        })
    }

    /// How much of the load lies between two times.
    fn amount(&self, from_s: f64, to_s: f64) -> f64 {
        stage::integral(&self.stages, to_s) - stage::integral(&self.stages, from_s)
    }

    /// From when on slow answers surely count.
    fn counts_from_s(&self) -> f64 {
        match self.to_s.filter(|_| self.detects) {
            Some(to_s) => to_s / 2.0,
            None => self.from_s,
        }
    }
}

/// Decides second by second whether the objectives of a load can still be met.
#[derive(Debug, Clone)]
pub struct SloAbort {
    planned: PlannedLoad,
    watches: Vec<ObjectiveState>,
    /// Requests that ended since the load began.
    ended: u64,
    /// The most that ended in a second, for each unit of the level.
    best: f64,
    seconds: usize,
}

/// What is known of one objective.
#[derive(Debug, Clone)]
struct ObjectiveState {
    of: ObjectiveScope,
    completed: u64,
    failed: u64,
    /// The most of its scope that ended in a second, for each unit of the level.
    best: f64,
    /// Times that surely count: how many lie surely beyond the bound, their sum, and the longest.
    slow: u64,
    sum_us: f64,
    longest_us: u64,
    /// Good ones of each second.
    good: Vec<u64>,
}

impl SloAbort {
    /// For a load of this workload; `warmup_s` is what is cut from its start, `None` when that is detected at its end.
    /// `None` when there is nothing to watch.
    pub fn of(workload: &Workload, warmup_s: Option<f64>, objectives: &[Objective]) -> Option<Self> {
        let planned = PlannedLoad::of(workload, warmup_s).filter(|_| !objectives.is_empty())?;
        let watch = |objective: &Objective| ObjectiveState {
            of: ObjectiveScope::of(objective, workload),
            completed: 0,
            failed: 0,
            best: 0.0,
            slow: 0,
            sum_us: 0.0,
            longest_us: 0,
            good: vec![],
        };
        let watches = objectives.iter().map(watch).collect();
        Some(Self { planned, watches, ended: 0, best: 0.0, seconds: 0 })
    }

    /// Takes in the next second of the load. Gives the first objective that is lost. An error when a histogram is damaged.
    pub fn add_second(&mut self, interval: &Interval) -> Result<Option<MissedObjective>> {
        self.ended += interval.completed + interval.failed;
        let ends_s = interval.t_s + interval.length_us as f64 / S_US;
        let planned = &self.planned;
        let within = interval.t_s >= planned.from_s - 0.0005
            && planned.to_s.is_none_or(|to_s| ends_s <= to_s + 0.0005);
        if !within || interval.length_us < 900_000 {
            return Ok(None);
        }
        self.seconds += 1;
        let amount = planned.amount(interval.t_s, ends_s);
        if amount > 0.0 {
            self.best = self.best.max((interval.completed + interval.failed) as f64 / amount);
        }
        for watch in &mut self.watches {
            watch.add_second(interval, planned, amount)?;
        }
        if self.seconds < SECONDS_MIN {
            return Ok(None);
        }
        let of = |watch: &ObjectiveState| {
            let rest = self.remaining_max(watch, ends_s, interval.in_flight);
            let why = watch.lost(rest, &self.planned)?;
            Some(MissedObjective { slo: watch.of.objective.text().to_owned(), reason: why })
        };
        Ok(self.watches.iter().find_map(of))
    }

    /// How many of its scope can still end within the measured part, at most; infinite when nobody knows.
    fn remaining_max(&self, watch: &ObjectiveState, now_s: f64, in_flight: u64) -> f64 {
        let left = self.planned.requests.map_or(f64::INFINITY, |all| all.saturating_sub(self.ended) as f64);
        let Some(to_s) = self.planned.to_s else { return left };
        let amount = self.planned.amount(now_s, to_s);
        let is_of_pages = matches!(watch.of.objective.scope(), Scope::Pages | Scope::Page(_));
        let best = if is_of_pages && watch.of.has_all() { watch.best } else { self.best };
        if self.planned.is_exact {
            // What has still to come is known, however slow it was so far.
            let chance = if self.planned.is_random { DEVIATIONS * amount.max(1.0).sqrt() } else { 0.0 };
            return left.min(in_flight as f64 + amount + chance + 1.0);
        }
        match self.planned.is_steady && best > 0.0 {
            true => left.min(PROMISE * best * amount),
            false => left,
        }
    }
}

impl ObjectiveState {
    fn add_second(&mut self, interval: &Interval, planned: &PlannedLoad, amount: f64) -> Result<()> {
        let observed = self.of.share(interval);
        let (completed, failed) =
            observed.as_ref().map_or((0, 0), |observed| (observed.completed, observed.failed));
        self.completed += completed;
        self.failed += failed;
        self.good.push(completed);
        if amount > 0.0 {
            self.best = self.best.max((completed + failed) as f64 / amount);
        }
        let times = observed.and_then(|observed| observed.times);
        let Some(times) = times.filter(|_| interval.t_s >= planned.counts_from_s() - 0.0005) else {
            return Ok(());
        };
        self.sum_us += times.sum_us;
        self.longest_us = self.longest_us.max(times.max_us);
        self.slow += self.of.slow_count(times)?;
        Ok(())
    }

    /// Why the objective cannot be met any more, when at most `rest` can still end.
    fn lost(&self, rest: f64, planned: &PlannedLoad) -> Option<String> {
        let missed = |best: f64| !self.of.objective.is_met_by(best);
        let figure = self.of.objective.figure();
        match (figure, self.of.objective.is_upper_bound()) {
            (Figure::Rate, false) => self.lost_rate(rest, planned),
            (Figure::Rate, true) | (_, false) => None,
            (Figure::Failed, true) => missed(self.failed as f64).then(|| format!("{} failed", self.failed)),
            (Figure::Time(_, Statistic::Max), true) => (self.longest_us > 0
                && missed(self.longest_us as f64))
            .then(|| format!("one took {} ms", significant(self.longest_us as f64 / 1e3, 4))),
            // Of connections and first bytes there may be more than requests.
            (Figure::Time(TimeKind::Connect | TimeKind::FirstByte | TimeKind::ClientDelay, _), true) => None,
            (Figure::Time(..) | Figure::ErrorFraction, true) => {
                self.lost_share((self.completed + self.failed) as f64 + rest)
            }
        }
    }

    /// Shares and means, when at most so many end in all.
    fn lost_share(&self, ended_max: f64) -> Option<String> {
        if !ended_max.is_finite() || ended_max <= 0.0 {
            return None;
        }
        let missed = |best: f64| !self.of.objective.is_met_by(best);
        let (is_lost, what) = match self.of.objective.figure() {
            Figure::ErrorFraction => {
                let is_lost = self.failed > 0 && missed(self.failed as f64 / ended_max);
                (is_lost, format!("{} failed", self.failed))
            }
            Figure::Time(_, Statistic::Mean) => {
                let is_lost = self.sum_us > 0.0 && missed(self.sum_us / ended_max);
                (is_lost, format!("they took {} s in total", significant(self.sum_us / S_US, 4)))
            }
            Figure::Time(_, statistic) => {
                let allowed = (statistic.beyond()? * ended_max + 1e-6).floor();
                (self.slow as f64 > allowed, format!("{} took longer", self.slow))
            }
            Figure::Failed | Figure::Rate => return None,
        };
        is_lost.then(|| {
            format!("{what}, and at most {} can complete in total", significant(ended_max.ceil(), 6))
        })
    }

    /// The rate that can still be reached, with whatever may yet be cut as warm-up.
    fn lost_rate(&self, rest: f64, planned: &PlannedLoad) -> Option<String> {
        let whole_s = planned.to_s? - planned.from_s;
        let cut_max = if planned.detects { (whole_s / 2.0) as usize } else { 0 };
        let (mut good, mut observed) = (self.completed as f64, self.good.len() as f64);
        let mut reachable = (good + rest) / whole_s;
        let mut now = good / observed;
        for cut in 1..=cut_max {
            // Also seconds that have still to come may be cut.
            if let Some(second) = self.good.get(cut - 1) {
                (good, observed) = (good - *second as f64, observed - 1.0);
            }
            reachable = reachable.max((good + rest) / (whole_s - cut as f64));
            now = if observed > 0.0 { now.max(good / observed) } else { now };
        }
        // What was reached so far is what will be reported when the load ends here.
        let is_lost = !self.of.objective.is_met_by(reachable) && !self.of.objective.is_met_by(now);
        is_lost.then(|| format!("at most {}/s can still be reached", significant(reachable, 4)))
    }
}

#[cfg(test)]
mod tests;
