//! How the load changes over time: stages, each a shape with a length.

use serde::{Deserialize, Serialize};

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
}
