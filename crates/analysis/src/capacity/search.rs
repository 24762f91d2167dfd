//! Which load to offer next: up in bounded steps until one misses the objectives, then between the highest that met them and the lowest
//! that missed them, then both ends once more and longer. Where chance decides of a step whether it meets them, the next one is where
//! the fit of all of them ([`chance`](super::chance)) has the capacity. A pure function of the steps so far.

use super::chance::{chance_fit, decides};
use super::{SearchEnd, StepOutcome};
use webdyno_model::capacity::CapacityStep;
use webdyno_model::number::significant;

/// No step is so many times as high as one that met the objectives.
pub const GROWTH_MAX: f64 = 2.0;
/// The same from the rate on at which a single client in turn could load the server: there the knee may be near.
const GROWTH_NEAR: f64 = 1.5;
/// The same where responses take longer than they did at first.
const GROWTH_SLOWED: f64 = 1.25;
/// So many times the 99th percentile of the quickest step, and a millisecond, is longer.
const SLOWED: f64 = 3.0;
const SLOWED_US_MIN: f64 = 1000.0;
/// The two ends are near enough when they differ by this share.
pub const RESOLUTION: f64 = 0.025;
/// Where the first load misses: so much lower is the next one, this often.
const DESCENT: f64 = 4.0;
const DESCENTS_MAX: usize = 4;
/// Lone requests and drained queues between two steps, usually, seconds.
const BETWEEN_S: f64 = 0.5;

/// What a step is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// To find a load that misses: short.
    Ramp,
    /// To narrow the bracket.
    Search,
    /// To see that the answer holds.
    Confirm,
    /// To learn how often responses are slow that are slow by chance: as long as that takes.
    Sample,
}

impl StepKind {
    /// Seconds of it that are not measured.
    pub fn warmup_s(self) -> u32 {
        match self {
            Self::Ramp | Self::Sample => 1,
            Self::Search | Self::Confirm => 2,
        }
    }

    /// The least and the most seconds that it measures.
    pub fn measured_s(self) -> (u32, u32) {
        match self {
            Self::Ramp => (1, 3),
            Self::Search => (2, 6),
            Self::Confirm => (6, 12),
            Self::Sample => (8, 12),
        }
    }

    /// What it takes at most, with what lies between two steps.
    fn seconds_max(self) -> f64 {
        f64::from(self.warmup_s() + self.measured_s().1) + BETWEEN_S
    }
}

/// A load to offer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepSpec {
    /// Requests or pages per second, or users.
    pub offered: f64,
    /// What for.
    pub kind: StepKind,
}

/// A load that was offered.
#[derive(Debug, Clone, PartialEq)]
pub struct StepResult {
    /// What for.
    pub kind: StepKind,
    /// What was seen.
    pub step: CapacityStep,
    /// What the test said.
    pub outcome: StepOutcome,
    /// Why the load generator, and not the server, was the limit.
    pub generator: Option<String>,
}

impl StepResult {
    /// Whether the search goes above it.
    fn is_good(&self) -> bool {
        self.outcome.seems_met
    }
}

/// What the search is bounded by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchOptions {
    /// The first load.
    pub start: f64,
    /// Whether it is also the lowest one.
    pub is_start_lowest: bool,
    /// The highest.
    pub max: Option<f64>,
    /// What one client would reach that sends a request after the other, or how many users that many are; `None` where that is not
    /// known.
    pub lone_rate: Option<f64>,
    /// Whether there are only whole ones: users.
    pub is_whole: bool,
    /// Seconds after which no step begins.
    pub budget_s: f64,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum NextStep {
    /// Offer this.
    Step(StepSpec),
    /// It is known.
    Done(SearchEnd),
}

/// The two ends, as they are known by the steps in their order: a later step at a load replaces what earlier ones said.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Bracket {
    /// The highest that seems to meet the objectives.
    pub(super) good: Option<f64>,
    /// The lowest above it that seems to miss them.
    pub(super) bad: Option<f64>,
}

/// The bracket by steps that pass, with whether they met.
pub(super) fn bracket(steps: impl Iterator<Item = (f64, bool)>) -> Bracket {
    bracket_of_sure(steps.map(|(offered, met)| (offered, met, true)))
}

/// The same by steps of which only those that are sure are an end; the others replace what earlier ones said all the same.
pub(super) fn bracket_of_sure(steps: impl Iterator<Item = (f64, bool, bool)>) -> Bracket {
    let (mut good, mut bad): (Vec<f64>, Vec<f64>) = (vec![], vec![]);
    for (offered, met, is_sure) in steps {
        if met {
            bad.retain(|load| *load > offered);
            good.extend(is_sure.then_some(offered));
        } else {
            good.retain(|load| *load < offered);
            bad.extend(is_sure.then_some(offered));
        }
    }
    Bracket { good: good.into_iter().reduce(f64::max), bad: bad.into_iter().reduce(f64::min) }
}

/// What to do after these steps, the last of which ended so many seconds after the search began.
pub fn next_step(steps: &[StepResult], elapsed_s: f64, options: &SearchOptions) -> NextStep {
    match wanted(steps, options) {
        NextStep::Step(StepSpec { kind, .. })
            if !steps.is_empty() && elapsed_s + kind.seconds_max() > options.budget_s =>
        {
            NextStep::Done(SearchEnd::Budget)
        }
        next => next,
    }
}

/// The same with all the time there is.
fn wanted(steps: &[StepResult], options: &SearchOptions) -> NextStep {
    let Some(last) = steps.last() else {
        return step(options.start, StepKind::Ramp, options);
    };
    if last.generator.is_some() {
        // Once may be chance: others used its machine.
        let again = steps.iter().rev().nth(1).is_none_or(|before| before.generator.is_none());
        return match again {
            true => step(last.step.offered, StepKind::Search, options),
            false => NextStep::Done(SearchEnd::Generator),
        };
    }
    let known = steps.iter().filter(|one| one.generator.is_none());
    let ends = bracket(known.map(|one| (one.step.offered, one.is_good())));
    let kinds = |load: f64| steps.iter().filter(move |one| one.step.offered == load).map(|one| one.kind);
    match ends {
        Bracket { good: Some(good), bad: None } => upwards(good, steps, options),
        Bracket { good: None, bad: Some(bad) } => {
            let descents = steps.iter().filter(|one| one.kind == StepKind::Ramp).count();
            if options.is_start_lowest || descents > DESCENTS_MAX || (options.is_whole && bad <= 1.0) {
                // The short step may have seen what comes once.
                match kinds(bad).any(|kind| kind == StepKind::Search) {
                    true => NextStep::Done(SearchEnd::LowestMissed),
                    false => step(bad, StepKind::Search, options),
                }
            } else {
                step((bad / DESCENT).max(0.01), StepKind::Ramp, options)
            }
        }
        Bracket { good: Some(_), bad: Some(_) } if decides(steps) => match chance_fit(steps) {
            Some(fit) if !fit.is_narrow() => step(fit.rate, StepKind::Sample, options),
            _ => NextStep::Done(SearchEnd::Found),
        },
        Bracket { good: Some(good), bad: Some(bad) } => {
            let between = rounded((good * bad).sqrt(), options);
            // Where the time of a step does not tell whether a load meets the objectives, the next one would not either.
            let is_unsure = |one: &StepResult| {
                one.kind != StepKind::Ramp && one.outcome.met.is_none() && one.generator.is_none()
            };
            let at_end = |one: &&StepResult| one.step.offered == good || one.step.offered == bad;
            let resolution = RESOLUTION * if steps.iter().filter(at_end).any(is_unsure) { 2.0 } else { 1.0 };
            let is_near = bad / good <= 1.0 + resolution || between <= good || between >= bad;
            match is_near {
                false => step(between, StepKind::Search, options),
                true if kinds(bad).all(|kind| kind == StepKind::Ramp) => step(bad, StepKind::Search, options),
                true if kinds(good).all(|kind| kind != StepKind::Confirm) => {
                    step(good, StepKind::Confirm, options)
                }
                true => NextStep::Done(SearchEnd::Found),
            }
        }
        Bracket { good: None, bad: None } => NextStep::Done(SearchEnd::Budget),
    }
}

/// The next one above a load that met the objectives, as none has missed them.
fn upwards(good: f64, steps: &[StepResult], options: &SearchOptions) -> NextStep {
    if good >= highest(options) {
        let is_confirmed = steps.iter().any(|one| one.step.offered == good && one.kind == StepKind::Confirm);
        return match is_confirmed {
            true => NextStep::Done(SearchEnd::Max),
            false => step(good, StepKind::Confirm, options),
        };
    }
    let next = rounded(good * growth(good, steps, options), options).max(good + f64::from(options.is_whole));
    step(next, StepKind::Ramp, options)
}

/// By how much the load may grow from one that met the objectives.
fn growth(good: f64, steps: &[StepResult], options: &SearchOptions) -> f64 {
    let quickest = steps.iter().filter_map(|one| one.step.p99_us).min().map_or(0.0, |us| us as f64);
    let last_us = steps.last().and_then(|last| last.step.p99_us).map_or(0.0, |us| us as f64);
    let is_far = options.lone_rate.is_some_and(|rate| good * GROWTH_MAX <= rate);
    match last_us > (quickest * SLOWED).max(quickest + SLOWED_US_MIN) {
        true => GROWTH_SLOWED,
        false if is_far => GROWTH_MAX,
        false => GROWTH_NEAR,
    }
}

fn step(offered: f64, kind: StepKind, options: &SearchOptions) -> NextStep {
    let highest = highest(options);
    // The highest one is offered as it was given: rounded it would be above, or below and never reached.
    let offered = if offered >= highest { highest } else { rounded(offered, options).min(highest) };
    NextStep::Step(StepSpec { offered, kind })
}

/// The highest load that may be offered.
fn highest(options: &SearchOptions) -> f64 {
    let max = options.max.unwrap_or(f64::MAX);
    if options.is_whole { max.floor().max(1.0) } else { max }
}

/// As it is shown and repeated: whole users, rates of four digits.
fn rounded(load: f64, options: &SearchOptions) -> f64 {
    if options.is_whole { load.round().max(1.0) } else { significant(load, 4) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: SearchOptions = SearchOptions {
        start: 10.0,
        is_start_lowest: false,
        max: None,
        lone_rate: Some(100.0),
        is_whole: false,
        budget_s: 1e9,
    };

    /// Walks to the end against a server that meets the objectives up to a load. Gives the end, the bracket and what was offered.
    fn walk(limit: f64, options: SearchOptions) -> (SearchEnd, Bracket, Vec<f64>) {
        let mut steps: Vec<StepResult> = vec![];
        loop {
            match next_step(&steps, steps.len() as f64 * 5.0, &options) {
                NextStep::Done(end) => {
                    let known = steps.iter().map(|one| (one.step.offered, one.is_good()));
                    return (end, bracket(known), steps.iter().map(|one| one.step.offered).collect());
                }
                NextStep::Step(next) => steps.push(result(next, next.offered <= limit)),
            }
            assert!(steps.len() < 80, "no end");
        }
    }

    fn result(spec: StepSpec, met: bool) -> StepResult {
        StepResult {
            kind: spec.kind,
            step: CapacityStep {
                load: 1,
                offered: spec.offered,
                met: Some(met),
                measured_s: 3.0,
                ..CapacityStep::default()
            },
            outcome: StepOutcome { met: Some(met), seems_met: met, ..StepOutcome::default() },
            generator: None,
        }
    }

    /// Invariant: the answer is the highest load within the resolution, and nothing was offered beyond one step above it.
    #[test]
    fn the_bracket_closes_on_any_limit_without_going_beyond() {
        for n in 0..400 {
            let limit = 0.5 * 1.03f64.powi(n);
            let (end, ends, offered) = walk(limit, OPTIONS);
            let (good, bad) = (ends.good.unwrap(), ends.bad.unwrap());
            assert_eq!(end, SearchEnd::Found);
            assert!(good <= limit && limit < bad && bad / good <= 1.0 + RESOLUTION + 1e-3, "{limit}");
            let highest = offered.iter().copied().fold(0.0, f64::max);
            // A lone client reaches 100.
            let step = if highest <= 100.0 { GROWTH_MAX } else { GROWTH_NEAR };
            assert!(highest <= (limit * step).max(OPTIONS.start) * 1.001, "{limit}: {highest}");
            assert!(offered.len() <= 32, "{limit}: {} steps", offered.len());
        }
    }

    #[test]
    fn users_are_whole() {
        let options = SearchOptions { start: 1.0, lone_rate: None, is_whole: true, ..OPTIONS };
        for limit in [1.0, 2.0, 7.0, 150.0, 1000.0] {
            let (end, ends, offered) = walk(limit, options);
            let good = ends.good.unwrap();
            assert!(end == SearchEnd::Found && good <= limit && good * (1.0 + RESOLUTION) + 1.0 > limit);
            assert!(offered.iter().all(|users| users.fract() == 0.0 && *users >= 1.0));
        }
        assert_eq!(walk(0.0, options).0, SearchEnd::LowestMissed);
    }

    #[test]
    fn a_search_ends_where_it_is_bounded() {
        let at = |options: SearchOptions, limit: f64| {
            let (end, ends, offered) = walk(limit, options);
            (end, ends.good, offered.len())
        };
        let lowest = SearchOptions { is_start_lowest: true, ..OPTIONS };
        assert_eq!(at(lowest, 5.0), (SearchEnd::LowestMissed, None, 2));
        assert_eq!(at(SearchOptions { max: Some(70.0), ..OPTIONS }, 500.0).0, SearchEnd::Max);
        assert_eq!(at(SearchOptions { max: Some(70.0), ..OPTIONS }, 500.0).1, Some(70.0));
        assert_eq!(at(SearchOptions { budget_s: 27.0, ..OPTIONS }, 500.0).0, SearchEnd::Budget);
        // Of more digits than steps have.
        for max in [16_384.0, 65_536.0, 12_345.6] {
            let (end, ends, offered) = walk(1e9, SearchOptions { max: Some(max), ..OPTIONS });
            assert_eq!((end, ends.good), (SearchEnd::Max, Some(max)));
            assert!(offered.iter().all(|load| *load <= max), "{offered:?}");
        }
        let users = SearchOptions { start: 1.0, max: Some(2.5), is_whole: true, ..OPTIONS };
        assert_eq!(walk(1e9, users).1.good, Some(2.0));
        // The default start is too much.
        assert_eq!(at(OPTIONS, 1e-9).0, SearchEnd::LowestMissed);
    }

    #[test]
    fn a_generator_that_limits_twice_ends_it() {
        let spec = StepSpec { offered: 10.0, kind: StepKind::Ramp };
        let limited = |met| StepResult { generator: Some("busy".into()), ..result(spec, met) };
        let met = result(spec, true);
        let again = StepSpec { offered: 10.0, kind: StepKind::Search };
        assert_eq!(next_step(&[met.clone(), limited(false)], 9.0, &OPTIONS), NextStep::Step(again));
        let twice = [met, limited(false), limited(true)];
        assert_eq!(next_step(&twice, 9.0, &OPTIONS), NextStep::Done(SearchEnd::Generator));
    }

    #[test]
    fn a_later_step_replaces_what_earlier_ones_said() {
        let of = |steps: &[(f64, bool)]| {
            let ends = bracket(steps.iter().copied());
            (ends.good, ends.bad)
        };
        let steps = [(10.0, true), (15.0, true), (22.0, false), (22.0, true), (33.0, false)];
        for (count, ends) in [
            (0, (None, None)),
            (3, (Some(15.0), Some(22.0))),
            (4, (Some(22.0), None)),
            (5, (Some(22.0), Some(33.0))),
        ] {
            assert_eq!(of(&steps[..count]), ends);
        }
        assert_eq!(of(&[(10.0, true), (15.0, true), (15.0, false)]), (Some(10.0), Some(15.0)));
    }
}
