//! Incidents: what tells, sample by sample, that something goes wrong on a watched host. A pure machine: what it says
//! follows from the samples that it was shown, in their order.
//!
//! Each kind of incident is a row of a table. A row speaks once when its figure has stood at its threshold for so many
//! readings in a row; it speaks again only after the figure was below the lower threshold for a while, and not before a
//! pause is over: an incident that lasts is one incident.

mod table;

use crate::rules::say;
use std::collections::{BTreeMap, HashMap};
pub use table::{ALL, Kind};
use table::{Row, What};
use webdyno_model::sample::{Metric, MetricKind, Sample};

/// So many readings in a row below the lower threshold end an incident.
const CALM_READINGS: u32 = 10;
/// So long after it spoke a row keeps silent.
const PAUSE_S: f64 = 300.0;
/// The most instances of one row that are followed: disks, pools, queries.
const INSTANCES_MAX: usize = 64;

/// That something goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// The metric that showed it.
    pub metric: String,
    /// What goes wrong, in words, with the figure.
    pub what: String,
}

/// Follows the samples of one host.
#[derive(Debug)]
pub struct Detector {
    /// The last value of each metric that a row needs, with its time.
    last: HashMap<String, (f64, f64)>,
    /// What each row knows of each metric.
    states: BTreeMap<(usize, String), State>,
    templates: Vec<Metric>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// Readings in a row at the threshold.
    high: u32,
    /// Readings in a row below the lower one, since it spoke.
    calm: u32,
    /// Whether it spoke and is not over yet.
    lasts: bool,
    spoke_s: Option<f64>,
}

impl Default for Detector {
    /// One that has seen nothing.
    fn default() -> Self {
        let template = |row: &Row| Metric { name: row.metric.to_owned(), ..EMPTY };
        let templates = ALL.iter().map(template).collect();
        Self { last: HashMap::new(), states: BTreeMap::new(), templates }
    }
}

impl Detector {
    /// Looks at the next sample of the host, read at `t_s`. Gives what goes wrong since then.
    pub fn see(&mut self, t_s: f64, sample: &Sample) -> Vec<Incident> {
        let mut found = vec![];
        for (index, row) in ALL.iter().enumerate() {
            for (name, value) in &sample.values {
                if self.templates[index].describes(name) {
                    found.extend(self.look(index, row, (t_s, name, value.0), sample));
                }
            }
        }
        for (name, value) in &sample.values {
            self.remember(t_s, name, value.0);
        }
        found
    }

    /// Only what a row compares with is remembered.
    fn remember(&mut self, t_s: f64, name: &str, value: f64) {
        match self.last.get_mut(name) {
            Some(known) => *known = (t_s, value),
            None if self.templates.iter().any(|template| template.describes(name)) => {
                self.last.insert(name.to_owned(), (t_s, value));
            }
            None => {}
        }
    }

    fn look(
        &mut self,
        index: usize,
        row: &Row,
        (t_s, name, value): (f64, &str, f64),
        sample: &Sample,
    ) -> Option<Incident> {
        let figure = self.figure(row, (t_s, name, value), sample)?;
        let followed = self.states.keys().filter(|(row, _)| *row == index).count();
        let state = match self.states.get_mut(&(index, name.to_owned())) {
            Some(state) => state,
            None if followed >= INSTANCES_MAX => return None,
            None => self.states.entry((index, name.to_owned())).or_default(),
        };
        state.next(row, figure, t_s).then(|| Incident {
            metric: name.to_owned(),
            what: told(row, self.templates[index].instance(name), figure),
        })
    }

    /// What a row looks at: the level, the rate since the reading before, or the share of another metric.
    fn figure(&self, row: &Row, (t_s, name, value): (f64, &str, f64), sample: &Sample) -> Option<f64> {
        match row.what {
            What::Level => Some(value),
            What::Rise | What::Rate(_) => {
                let (before_s, before) = *self.last.get(name)?;
                let (seconds, rise) = (t_s - before_s, value - before);
                // What was set back says nothing.
                if seconds <= 0.0 || rise < 0.0 {
                    return None;
                }
                Some(match row.what {
                    What::Rate(factor) => rise / seconds * factor,
                    _ => rise,
                })
            }
            What::ShareOf(whole) => {
                let template = Metric { name: row.metric.to_owned(), ..EMPTY };
                let whole = whole.replace('*', template.instance(name).unwrap_or("*"));
                let whole = sample.values.get(&whole)?.0;
                (whole > 0.0).then(|| value / whole)
            }
        }
    }
}

const EMPTY: Metric = Metric {
    name: String::new(),
    unit: String::new(),
    kind: MetricKind::Gauge,
    source: String::new(),
    reproduce: String::new(),
    on_change: false,
};

impl State {
    /// Takes the next figure. Gives whether it is time to speak.
    fn next(&mut self, row: &Row, figure: f64, t_s: f64) -> bool {
        self.high = if figure >= row.from { self.high.saturating_add(1) } else { 0 };
        self.calm = if figure < row.until { self.calm.saturating_add(1) } else { 0 };
        if self.lasts && self.calm >= CALM_READINGS {
            self.lasts = false;
        }
        let pauses = self.spoke_s.is_some_and(|spoke_s| t_s - spoke_s < PAUSE_S);
        let speaks = !self.lasts && self.high >= row.readings && !pauses;
        if speaks {
            (self.lasts, self.spoke_s) = (true, Some(t_s));
        }
        speaks
    }
}

/// `connections turned away, as the accept queue is full: 15 a second (an incident from 1 on)`.
fn told(row: &Row, instance: Option<&str>, figure: f64) -> String {
    let of = instance.map_or(String::new(), |instance| format!(" ({instance})"));
    let percent = |fraction: f64| format!("{}%", say((fraction * 1000.0).round() / 10.0));
    let shown = |value: f64| match row.what {
        What::Level | What::Rise => say(value),
        What::Rate(factor) if factor < 1.0 => format!("{} of the time", percent(value)),
        What::Rate(_) => format!("{} a second", say(value)),
        What::ShareOf(_) => percent(value),
    };
    let lasting = if row.readings > 1 { format!(" for {} readings", row.readings) } else { String::new() };
    format!("{}{of}: {} (an incident from {}{lasting} on)", row.words, shown(figure), shown(row.from))
}

#[cfg(test)]
mod tests;
