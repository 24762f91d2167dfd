//! Which point is measured next. A function of the loads so far: whoever goes on with an interrupted sweep plans what that would have.

use super::axis::AxisValues;
use super::harm::is_beyond_harm;
use super::points::{counts, merged_points};
use super::refine::{More, REFINED_MAX, more};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::VecDeque;
use webdyno_model::sweep::{KnobValue, SweepPoint};

/// So many more loads a point gets for those that do not count.
const DISCARDED_MAX: usize = 2;
/// After so many points in a row at which the server failed, none is tried any more.
const FAILED_MAX: usize = 3;

/// What a sweep measures, and how long.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SweepOptions {
    /// The values of each knob.
    pub axes: Vec<AxisValues>,
    /// Whether a knob is of the load, of which more does more harm; of those that are missing here it is not known.
    pub load_axes: Vec<bool>,
    /// The points of a study, not all of which are combinations of all axes; empty: all combinations.
    pub points: Vec<Vec<KnobValue>>,
    /// Loads of each point.
    pub repeat: u32,
    /// Decides the order.
    pub seed: u64,
    /// Seconds after which no load begins.
    pub budget_s: f64,
}

/// A point to be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct PointSpec {
    /// A value of each knob.
    pub values: Vec<KnobValue>,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// Which load of the sweep, from 1.
    pub n: u32,
    /// How many loads there will be, as it looks now.
    pub expected: u32,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum NextPoint {
    /// Measure this.
    Measure(PointSpec),
    /// Nothing more.
    Done(SweepEnd),
}

/// Why a sweep ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SweepEnd {
    /// All was measured, or what was tells enough.
    Measured,
    /// The same, but for so many loads that would have done more harm than one that did.
    BeyondHarm(usize),
    /// The time was over.
    Budget,
    /// The server failed at one point after the other, or did not come back.
    ServerFailed(String),
    /// An error: what is known so far.
    Failed(String),
}

/// The plan of a sweep under way.
#[derive(Debug)]
pub struct Planner {
    options: SweepOptions,
    loads: Vec<SweepPoint>,
    /// Points that are still to be measured, in order.
    queue: VecDeque<Vec<KnobValue>>,
    /// Values that were added to those of the first look.
    refined: usize,
    /// Loads that were added with them, or to values that were known.
    added: usize,
    /// Loads that were left out, as one before did harm.
    left_out: usize,
}

impl Planner {
    /// The plan of a sweep that begins.
    pub fn new(options: SweepOptions) -> Self {
        let (loads, queue) = (vec![], VecDeque::new());
        let mut planner = Self { options, loads, queue, refined: 0, added: 0, left_out: 0 };
        let first = match planner.options.points.is_empty() {
            true => combinations(planner.options.axes.iter().map(AxisValues::first_values)),
            false => planner.options.points.clone(),
        };
        planner.add_passes(&first, planner.options.repeat);
        planner
    }

    /// The points that it begins with.
    pub fn first_points(options: &SweepOptions) -> usize {
        match options.points.len() {
            0 => options.axes.iter().map(|axis| axis.first_values().len()).product(),
            points => points,
        }
    }

    /// All loads so far.
    pub fn loads(&self) -> &[SweepPoint] {
        &self.loads
    }

    /// Takes in what a load came to, whoever measured it.
    pub fn add(&mut self, load: SweepPoint) {
        let values = load.values.clone();
        if let Some(at) = self.queue.iter().position(|one| *one == values) {
            self.queue.remove(at);
        }
        let (has_failed, is_counted) = (load.failed.is_some(), counts(&load));
        self.loads.push(load);
        if has_failed {
            // Once is enough.
            self.queue.retain(|one| *one != values);
        } else if !is_counted {
            let of_point = self.loads.iter().filter(|one| one.values == values && !counts(one));
            if of_point.count() <= DISCARDED_MAX {
                // Behind the next ones: what others did a moment ago they may still do.
                self.queue.insert(self.queue.len().min(2), values);
            }
        }
        self.leave_out_harm();
        if self.queue.is_empty() {
            self.refine();
            self.leave_out_harm();
        }
    }

    /// What would do more harm than a load that did is not measured.
    fn leave_out_harm(&mut self) {
        let planned = self.queue.len();
        self.queue.retain(|values| !is_beyond_harm(values, &self.loads, &self.options.load_axes));
        self.left_out += planned - self.queue.len();
    }

    /// What comes next, so many seconds after the sweep began.
    pub fn next(&self, elapsed_s: f64) -> NextPoint {
        if let Some(end) = self.failure() {
            return NextPoint::Done(end);
        }
        let Some(values) = self.queue.front() else {
            return NextPoint::Done(match self.left_out {
                0 => SweepEnd::Measured,
                count => SweepEnd::BeyondHarm(count),
            });
        };
        let made = self.loads.iter().filter(|load| load.loads.iter().any(|one| one.load.is_some())).count();
        let load_s = elapsed_s / made.max(1) as f64;
        if made > 0 && elapsed_s + load_s > self.options.budget_s {
            return NextPoint::Done(SweepEnd::Budget);
        }
        let of_point = self.loads.iter().filter(|one| one.values == *values && counts(one)).count();
        let n = self.loads.len() as u32 + 1;
        NextPoint::Measure(PointSpec {
            values: values.clone(),
            repeat: of_point as u32 + 1,
            n,
            expected: n - 1 + (self.queue.len() + self.addable()) as u32,
        })
    }

    /// Where the server fails at one point after the other, it fails for another reason.
    fn failure(&self) -> Option<SweepEnd> {
        let last: Vec<&String> = self.loads.iter().rev().map_while(|load| load.failed.as_ref()).collect();
        (last.len() >= FAILED_MAX).then(|| SweepEnd::ServerFailed(last[0].clone()))
    }

    fn range(&self) -> Option<super::NumberRange> {
        match &self.options.axes[..] {
            [AxisValues::Range(range)] => Some(*range),
            _ => None,
        }
    }

    /// How many loads may still be added.
    fn addable(&self) -> usize {
        self.range().map_or(0, |_| (REFINED_MAX * self.options.repeat as usize).saturating_sub(self.added))
    }

    /// Adds the loads that tell most, if the choice is not sure.
    fn refine(&mut self) {
        let Some(range) = self.range() else { return };
        let (mut values, repeat) = match more(&merged_points(&self.loads), range, self.refined) {
            More::Values(values) => {
                self.refined += values.len();
                (values, self.options.repeat)
            }
            More::Again(values) => (values, 1),
        };
        values.truncate(self.addable() / repeat as usize);
        self.added += values.len() * repeat as usize;
        let points: Vec<Vec<KnobValue>> =
            values.into_iter().map(|value| vec![KnobValue::Number(value)]).collect();
        self.add_passes(&points, repeat);
    }

    /// Queues these points so often: in an order that is drawn, and every other time backwards.
    fn add_passes(&mut self, points: &[Vec<KnobValue>], repeat: u32) {
        let mut random = ChaCha8Rng::seed_from_u64(self.options.seed ^ ((self.loads.len() as u64) << 32));
        let mut order = points.to_vec();
        for pass in 0..repeat {
            if pass % 2 == 0 {
                for at in (1..order.len()).rev() {
                    order.swap(at, (random.next_u64() % (at as u64 + 1)) as usize);
                }
            } else {
                order.reverse();
            }
            self.queue.extend(order.iter().cloned());
        }
    }
}

/// All combinations of the values of each knob.
pub fn combinations<T: Clone>(axes: impl IntoIterator<Item = Vec<T>>) -> Vec<Vec<T>> {
    axes.into_iter().fold(vec![vec![]], |points, values| {
        let with = |point: &Vec<T>| {
            let point = point.clone();
            values.iter().map(move |value| [point.clone(), vec![value.clone()]].concat()).collect::<Vec<_>>()
        };
        points.iter().flat_map(with).collect()
    })
}
