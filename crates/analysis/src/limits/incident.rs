//! What is an incident on a watched host: a metric, its threshold, and the reason for it. Each limit has rules of its own;
//! those that are of none are in [`crate::diagnosis::incidents`].

/// What of a metric is looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum IncidentFigure {
    /// The level as it is.
    Level,
    /// By how much a counter rose since the reading before.
    Rise,
    /// A counter's rise per second, times a factor: 1e-6 makes a share of the time from microseconds.
    Rate(f64),
    /// The share of another metric of the same reading.
    ShareOf(&'static str),
}

/// One kind of incident.
#[derive(Debug, Clone, Copy)]
pub struct IncidentRule {
    /// The metric; a star for what there are several of.
    pub metric: &'static str,
    /// What of it.
    pub figure: IncidentFigure,
    /// From here on,
    pub from: f64,
    /// for so many readings in a row, it is an incident.
    pub readings: u32,
    /// It is over only below this.
    pub until: f64,
    /// What goes wrong.
    pub words: &'static str,
    /// Why this threshold.
    pub explanation: &'static str,
}

impl IncidentRule {
    /// The metric that it is compared with, if it is a share of one.
    pub fn whole(&self) -> Option<&'static str> {
        match self.figure {
            IncidentFigure::ShareOf(whole) => Some(whole),
            _ => None,
        }
    }
}

/// A share of the time, of a counter of microseconds.
pub const SHARE: IncidentFigure = IncidentFigure::Rate(1e-6);
/// Why one suffices.
pub const EACH: &str = "each one is a failed client or request";
/// Why one suffices.
pub const LOGGED: &str = "logged once for many occurrences";
/// Why one suffices.
pub const KILLED: &str = "a process was killed during its work: one is enough";

/// A rule: from which figure on for how many readings in a row, and below which it is over.
pub const fn row(
    metric: &'static str,
    figure: IncidentFigure,
    (from, readings): (f64, u32),
    until: f64,
    words: &'static str,
    explanation: &'static str,
) -> IncidentRule {
    IncidentRule { metric, figure, from, readings, until, words, explanation }
}
