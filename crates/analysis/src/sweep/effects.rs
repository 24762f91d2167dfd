//! What each axis of a study does: the points are compared in pairs that differ in one axis alone.
//!
//! Everything here is a contrast: a sum of means of logarithms of rates, each with a weight. An effect is +1/n at n points and -1/n at
//! those beside them, an interaction the difference of two effects; its exponential is the ratio (Box, Hunter and Hunter, Statistics
//! for Experimenters, chapter 5, on a logarithmic scale, where effects of capacity are factors).
//!
//! The interval comes from how far repeats lie apart. A few repeats of one point say next to nothing of that, and points of different
//! contents spread differently (a disk more than a processor). So the variance of a point is that of its own repeats mixed with that of
//! all points of its content, which counts as [`PRIOR`] degrees of freedom (after Smyth 2004, moderated t), and never less than that of
//! its own repeats. Degrees of freedom of a contrast are put together as by Welch and Satterthwaite, and are never more than its
//! contents have in all.

use super::planner::combinations;
use crate::measurement::statistics::{mean, t_95};
use std::collections::{BTreeMap, BTreeSet};
use webdyno_model::number::significant;
use webdyno_model::sweep::{
    AxisLevel, CONTENT, Effect, Interaction, KnobValue, NOT_FOLLOWED, StudyAxis, StudyPlan, StudyReport,
    SweepPlan, SweepPoint,
};

/// What all points of a content say of the spread of one counts as so many degrees of freedom.
const PRIOR: f64 = 4.0;
/// Fewer of them in all say nothing.
const FREEDOM_MIN: f64 = 2.0;
/// More effects than these are not enumerated: a study of many axes keeps those over all other axes and at one level of one.
const EFFECTS_MAX: usize = 2000;

/// What a study came to. Its points are put into the order of its levels.
pub(super) fn study_report(plan: &SweepPlan, study: &StudyPlan, points: &mut [SweepPoint]) -> StudyReport {
    let rank = |point: &SweepPoint| -> Vec<Option<usize>> {
        let of_axis =
            |(levels, value): (&Vec<KnobValue>, &KnobValue)| levels.iter().position(|one| one == value);
        study.levels.iter().zip(&point.values).map(of_axis).collect()
    };
    points.sort_by_key(rank);
    let axis = |(knob, levels): (&webdyno_model::sweep::Knob, &Vec<KnobValue>)| StudyAxis {
        name: knob.name.clone(),
        levels: levels.clone(),
    };
    let axes: Vec<StudyAxis> = plan.knobs.iter().zip(&study.levels).map(axis).collect();
    let cells = Cells::of(&axes, points);
    let (effects, interactions) = (cells.effects(), cells.interactions());
    StudyReport { axes, effects, interactions }
}

/// A point with a figure.
struct Cell {
    values: Vec<KnobValue>,
    /// Mean of the logarithms of its rates, of how many.
    mean: f64,
    count: f64,
    /// Of one load; `None` where nothing is known of it.
    variance: Option<f64>,
    /// Degrees of freedom of that.
    freedom: f64,
    /// Which content it is of.
    group: usize,
}

/// Places of points in pairs: the one above the line, and the one below it.
type Pairs = BTreeSet<(usize, usize)>;
/// The level of each axis, `None` for one that is averaged over.
type Condition = Vec<Option<KnobValue>>;

struct Cells<'a> {
    axes: &'a [StudyAxis],
    content: Option<usize>,
    cells: Vec<Cell>,
    /// Degrees of freedom of all repeats of each content.
    freedom: Vec<f64>,
}

impl<'a> Cells<'a> {
    fn of(axes: &'a [StudyAxis], points: &[SweepPoint]) -> Self {
        let content = axes.iter().position(|axis| axis.name == CONTENT);
        let group = |point: &SweepPoint| {
            let level =
                content.and_then(|at| axes[at].levels.iter().position(|one| *one == point.values[at]));
            level.unwrap_or(0)
        };
        let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        let mut cells = vec![];
        for point in points.iter().filter(|point| point.failed.is_none()) {
            let counted = point.loads.iter().filter(|load| load.discarded.is_none());
            let logs: Vec<f64> =
                counted.filter_map(|load| load.rate).filter(|rate| *rate > 0.0).map(f64::ln).collect();
            let Some(mean) = mean(&logs) else { continue };
            let squares: f64 = logs.iter().map(|one| (one - mean).powi(2)).sum();
            let (group, freedom) = (group(point), logs.len() as f64 - 1.0);
            let sum = sums.entry(group).or_default();
            (sum.0, sum.1) = (sum.0 + squares, sum.1 + freedom);
            let (values, count) = (point.values.clone(), logs.len() as f64);
            // The squares for now, as all of a content come to be known with its last point.
            cells.push(Cell { values, mean, count, variance: Some(squares), freedom, group });
        }
        for cell in &mut cells {
            let (squares, freedom) = sums[&cell.group];
            let own = cell.variance.unwrap_or(0.0);
            let mixed = (PRIOR * squares / freedom + own) / (PRIOR + cell.freedom);
            cell.variance = (freedom >= FREEDOM_MIN).then(|| mixed.max(own / cell.freedom.max(1.0)));
            cell.freedom += PRIOR;
        }
        let groups = content.map_or(1, |at| axes[at].levels.len());
        let freedom = (0..groups).map(|group| sums.get(&group).map_or(0.0, |sum| sum.1)).collect();
        Self { axes, content, cells, freedom }
    }

    /// The point of these levels. A content that does not follow an axis is the same at all levels of it.
    fn find(&self, values: &[KnobValue]) -> Option<usize> {
        let is_it = |cell: &Cell| {
            cell.values.iter().zip(values).all(|(own, wanted)| own == wanted || *own == not_followed())
        };
        self.cells.iter().position(is_it)
    }

    /// All pairs of points at `to` and `from` of an axis that differ in nothing else, where the condition holds.
    fn pairs(&self, axis: usize, (from, to): (&KnobValue, &KnobValue), condition: &Condition) -> Pairs {
        let levels =
            self.axes.iter().zip(condition).enumerate().map(|(at, (axis_there, fixed))| match fixed {
                _ if at == axis => vec![to.clone()],
                Some(level) => vec![level.clone()],
                None => axis_there.levels.clone(),
            });
        let mut pairs = Pairs::new();
        for mut values in combinations(levels) {
            let above = self.find(&values);
            values[axis] = from.clone();
            let found = above.zip(self.find(&values)).filter(|(above, below)| above != below);
            let is_followed = |(above, below): &(usize, usize)| {
                // A condition on an axis that neither of them follows says nothing new.
                let differs = |at: usize, cell: usize| self.cells[cell].values[at] != not_followed();
                let fixed = (0..condition.len()).filter(|at| condition[*at].is_some());
                fixed.into_iter().all(|at| differs(at, *above) || differs(at, *below))
            };
            pairs.extend(found.filter(is_followed));
        }
        pairs
    }

    /// The conditions at which some axes are looked at: each content by itself, and levels of as many of the other axes as are
    /// kept, by how many there are fixed and how many could be.
    fn conditions(&self, axes: &[usize], is_kept: impl Fn(usize, usize) -> bool) -> Vec<Condition> {
        let is_free =
            |at: &usize| !axes.contains(at) && Some(*at) != self.content && self.axes[*at].levels.len() > 1;
        let choices = self.axes.iter().enumerate().map(|(at, axis)| {
            let levels = axis.levels.iter().cloned().map(Some);
            match axes.contains(&at) {
                true => vec![None],
                false if is_free(&at) => std::iter::once(None).chain(levels).collect(),
                false => levels.collect(),
            }
        });
        let free: Vec<usize> = (0..self.axes.len()).filter(is_free).collect();
        let fixed = |condition: &Condition| free.iter().filter(|at| condition[**at].is_some()).count();
        combinations(choices).into_iter().filter(|condition| is_kept(fixed(condition), free.len())).collect()
    }

    fn effects(&self) -> Vec<Effect> {
        let mut found = vec![];
        for (axis, described) in self.axes.iter().enumerate() {
            let is_content = Some(axis) == self.content;
            let is_kept = |fixed, all| fixed <= 1 || fixed == all || (fixed == 2 && is_content);
            for condition in self.conditions(&[axis], is_kept) {
                for (from, to) in steps(described, is_content) {
                    let pairs = self.pairs(axis, (from, to), &condition);
                    let Some((ratio, ci95)) = self.ratio(&[(&pairs, 1.0)]) else { continue };
                    found.push(Effect {
                        axis: described.name.clone(),
                        from: from.clone(),
                        to: to.clone(),
                        at: self.at(&condition),
                        ratio,
                        ci95,
                        pairs: pairs.len() as u32,
                    });
                }
            }
        }
        if found.len() > EFFECTS_MAX {
            let fixed = |effect: &Effect| effect.at.iter().filter(|level| level.axis != CONTENT).count();
            found.retain(|effect| fixed(effect) <= 1);
        }
        found
    }

    fn interactions(&self) -> Vec<Interaction> {
        let mut found = vec![];
        for axis in (0..self.axes.len()).filter(|axis| Some(*axis) != self.content) {
            // Of two axes the one is enough: their ratio of ratios is the same from either side.
            for second in
                (0..self.axes.len()).filter(|second| Some(*second) == self.content || *second > axis)
            {
                for condition in self.conditions(&[axis, second], |fixed, _| fixed == 0) {
                    found.extend(self.interactions_at(axis, second, &condition));
                }
            }
        }
        found
    }

    fn interactions_at(&self, axis: usize, second: usize, condition: &Condition) -> Vec<Interaction> {
        let mut found = vec![];
        for (from, to) in steps(&self.axes[axis], false) {
            for (second_from, second_to) in steps(&self.axes[second], Some(second) == self.content) {
                let at = |level: &KnobValue| {
                    let mut there = condition.clone();
                    there[second] = Some(level.clone());
                    self.pairs(axis, (from, to), &there)
                };
                let (above, below) = (at(second_to), at(second_from));
                let Some((ratio, ci95)) = self.ratio(&[(&above, 1.0), (&below, -1.0)]) else { continue };
                found.push(Interaction {
                    axis: self.axes[axis].name.clone(),
                    from: from.clone(),
                    to: to.clone(),
                    second: self.axes[second].name.clone(),
                    second_from: second_from.clone(),
                    second_to: second_to.clone(),
                    at: self.at(condition),
                    ratio,
                    ci95,
                });
            }
        }
        found
    }

    /// The levels of a condition that say something: of axes with several.
    fn at(&self, condition: &Condition) -> Vec<AxisLevel> {
        let level = |(axis, level): (&StudyAxis, &Option<KnobValue>)| {
            let value = level.clone().filter(|_| axis.levels.len() > 1)?;
            Some(AxisLevel { axis: axis.name.clone(), value })
        };
        self.axes.iter().zip(condition).filter_map(level).collect()
    }

    /// The exponential of a sum of mean differences, each with its sign, and its 95% interval. `None` where one has no pair.
    fn ratio(&self, parts: &[(&Pairs, f64)]) -> Option<(f64, Option<[f64; 2]>)> {
        let mut weights: BTreeMap<usize, f64> = BTreeMap::new();
        for (pairs, sign) in parts {
            if pairs.is_empty() {
                return None;
            }
            for (above, below) in pairs.iter() {
                *weights.entry(*above).or_default() += sign / pairs.len() as f64;
                *weights.entry(*below).or_default() -= sign / pairs.len() as f64;
            }
        }
        let log: f64 = weights.iter().map(|(cell, weight)| weight * self.cells[*cell].mean).sum();
        let interval = || {
            let (mut variance, mut by_freedom) = (0.0, 0.0);
            let mut groups = BTreeSet::new();
            for (cell, weight) in &weights {
                let cell = &self.cells[*cell];
                let part = weight.powi(2) * cell.variance? / cell.count;
                variance += part;
                by_freedom += part.powi(2) / cell.freedom;
                groups.insert(cell.group);
            }
            let most: f64 = groups.into_iter().map(|group| self.freedom[group]).sum();
            let freedom = if by_freedom > 0.0 { (variance.powi(2) / by_freedom).min(most) } else { most };
            let half = t_95(freedom) * variance.sqrt();
            Some([log - half, log + half].map(|end| significant(end.exp(), 5)))
        };
        Some((significant(log.exp(), 5), interval()))
    }
}

fn not_followed() -> KnobValue {
    KnobValue::Word(NOT_FOLLOWED.into())
}

/// From which level to which: each to the next one, and the first to the last; of contents the others to each.
fn steps(axis: &StudyAxis, is_content: bool) -> Vec<(&KnobValue, &KnobValue)> {
    let levels = &axis.levels;
    if is_content {
        let others = |to: usize| levels[to + 1..].iter().map(move |from| (from, &levels[to]));
        return (0..levels.len()).flat_map(others).collect();
    }
    let ends = levels.first().zip(levels.last()).filter(|_| levels.len() > 2);
    levels.windows(2).map(|pair| (&pair[0], &pair[1])).chain(ends).collect()
}
