//! How the load changes over time: stages, each a shape with a length; how they are written, and which of them are
//! measured.
//!
//! Levels are right-continuous: a stage holds from its beginning up to, but not at, its end. The integral of the level
//! over time is in closed form for each shape; in open arrival it is the number of starts.

mod checked;
mod draft;

pub use checked::{CheckedStages, check_stages, measured_s, ramped};
pub use draft::{StageDraft, Unit, parse};

use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// A part of the load. Levels are starts per second in open arrival, and users or connections in closed arrival.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Its length.
    pub duration_us: u64,
    /// Its levels.
    #[serde(flatten)]
    pub shape: Shape,
    /// Whether it belongs to the measured part, which is one stretch of the load.
    pub measured: bool,
}

/// The levels of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "shape")]
pub enum Shape {
    /// The same all the time.
    Hold {
        /// The level.
        level: f64,
    },
    /// In a straight line.
    Ramp {
        /// At its beginning.
        from: f64,
        /// At its end.
        to: f64,
    },
    /// Up in a straight line to the middle, and down again.
    Spike {
        /// At its beginning and end.
        from: f64,
        /// In the middle.
        peak: f64,
    },
    /// A sine wave that begins in its middle, rising.
    Sine {
        /// Its lowest level.
        low: f64,
        /// Its highest level.
        high: f64,
        /// From one wave to the next.
        period_us: u64,
    },
}

impl Shape {
    /// The highest level of a stage.
    pub fn highest(&self) -> f64 {
        match *self {
            Self::Hold { level } => level,
            Self::Ramp { from, to } => from.max(to),
            Self::Spike { from, peak } => from.max(peak),
            Self::Sine { low, high, .. } => low.max(high),
        }
    }

    /// The same shape with all its levels multiplied.
    #[must_use]
    pub fn scaled(&self, by: f64) -> Self {
        match *self {
            Self::Hold { level } => Self::Hold { level: level * by },
            Self::Ramp { from, to } => Self::Ramp { from: from * by, to: to * by },
            Self::Spike { from, peak } => Self::Spike { from: from * by, peak: peak * by },
            Self::Sine { low, high, period_us } => Self::Sine { low: low * by, high: high * by, period_us },
        }
    }
}

impl Stage {
    /// Its length in seconds.
    pub fn duration_s(&self) -> f64 {
        self.duration_us as f64 / 1e6
    }

    /// The level so many seconds after its beginning, within it.
    pub fn level_at(&self, t_s: f64) -> f64 {
        let share = (t_s / self.duration_s()).clamp(0.0, 1.0);
        match self.shape {
            Shape::Hold { level } => level,
            Shape::Ramp { from, to } => from + (to - from) * share,
            Shape::Spike { from, peak } => from + (peak - from) * (1.0 - (2.0 * share - 1.0).abs()),
            Shape::Sine { low, high, period_us } => {
                let phase = TAU * (t_s * 1e6 / period_us as f64);
                (low + high) / 2.0 + (high - low) / 2.0 * phase.sin()
            }
        }
    }

    /// The integral of its level from its beginning to so many seconds after that, within it.
    pub fn integral(&self, t_s: f64) -> f64 {
        let whole_s = self.duration_s();
        let t_s = t_s.clamp(0.0, whole_s);
        match self.shape {
            Shape::Hold { level } => level * t_s,
            Shape::Ramp { .. } => (self.level_at(0.0) + self.level_at(t_s)) / 2.0 * t_s,
            Shape::Spike { from, .. } => {
                let half_s = whole_s / 2.0;
                let (first_s, second_s) = (t_s.min(half_s), (t_s - half_s).max(0.0));
                let first = (from + self.level_at(first_s)) / 2.0 * first_s;
                first + (self.level_at(half_s) + self.level_at(t_s)) / 2.0 * second_s
            }
            Shape::Sine { low, high, period_us } => {
                let omega = TAU * 1e6 / period_us as f64;
                (low + high) / 2.0 * t_s + (high - low) / 2.0 / omega * (1.0 - (omega * t_s).cos())
            }
        }
    }
}

/// The length of all stages together.
pub fn duration_us(stages: &[Stage]) -> u64 {
    stages.iter().fold(0, |sum, stage| sum.saturating_add(stage.duration_us))
}

/// The highest level of all stages.
pub fn highest(stages: &[Stage]) -> f64 {
    stages.iter().map(|stage| stage.shape.highest()).fold(0.0, f64::max)
}

/// The integral of the level from the beginning of the load to a time of it.
pub fn integral(stages: &[Stage], to_s: f64) -> f64 {
    let (mut begin_s, mut sum) = (0.0, 0.0);
    for stage in stages {
        sum += stage.integral(to_s - begin_s);
        begin_s += stage.duration_s();
    }
    sum
}

/// Beginning and end of the measured part, microseconds since the load began; `None` when nothing is measured.
pub fn measured_us(stages: &[Stage]) -> Option<(u64, u64)> {
    let first = stages.iter().position(|stage| stage.measured)?;
    let last = stages.iter().rposition(|stage| stage.measured)?;
    Some((duration_us(&stages[..first]), duration_us(&stages[..=last])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(seconds: f64, shape: Shape) -> Stage {
        Stage { duration_us: (seconds * 1e6) as u64, shape, measured: true }
    }

    fn all() -> Vec<Stage> {
        vec![
            stage(10.0, Shape::Hold { level: 100.0 }),
            stage(4.0, Shape::Ramp { from: 0.0, to: 100.0 }),
            stage(4.0, Shape::Ramp { from: 70.0, to: 30.0 }),
            stage(6.0, Shape::Spike { from: 10.0, peak: 50.0 }),
            stage(7.0, Shape::Sine { low: 10.0, high: 30.0, period_us: 2_000_000 }),
        ]
    }

    #[test]
    fn integrals_are_those_of_the_levels() {
        for stage in all() {
            let steps = 20_000;
            let step_s = stage.duration_s() / f64::from(steps);
            let mut sum = 0.0;
            for step in 0..steps {
                let t_s = f64::from(step) * step_s;
                let exact = stage.integral(t_s);
                assert!((exact - sum).abs() < 1e-3, "{stage:?} at {t_s}: {exact}, {sum}");
                sum += stage.level_at(t_s + step_s / 2.0) * step_s;
            }
        }
        assert_eq!(integral(&all()[..2], 12.0), 1000.0 + 50.0);
        assert_eq!(integral(&all()[..2], 99.0), 1200.0);
        assert_eq!(highest(&all()), 100.0);
    }

    #[test]
    fn a_scaled_shape_has_all_its_levels_scaled() {
        for whole in all() {
            let half = Stage { shape: whole.shape.scaled(0.5), ..whole };
            for t_s in [0.0, 1.3, 2.0, 3.9] {
                assert!((half.level_at(t_s) - whole.level_at(t_s) / 2.0).abs() < 1e-9, "{whole:?} {t_s}");
            }
        }
    }
}
