//! Incidents: what tells, sample by sample, that something goes wrong on a watched host. A pure machine: what it says
//! follows from the samples that it was shown, in their order.
//!
//! Each kind of incident is a row of a table. A row speaks once when its figure has stood at its threshold for so many
//! readings in a row; it speaks again only after the figure was below the lower threshold for a while, and not before a
//! pause is over: an incident that lasts is one incident.

mod table;

use crate::limits::incident::{IncidentFigure, IncidentRule};
use crate::wording::format_number;
use std::collections::{BTreeMap, HashMap};
pub use table::ALL;
use webdyno_model::sample::{CollectorInfo, FORWARD_FILL_READINGS_MAX, Metric, Sample};

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
    states: BTreeMap<(usize, String), DetectorState>,
    templates: Vec<Metric>,
    /// What rows compare their metrics with.
    wholes: Vec<Metric>,
    /// What the samples mean.
    catalogue: Vec<Metric>,
    /// The values that readings may leave out while they are as they were.
    held: BTreeMap<String, HeldValue>,
}

/// A value that holds until its collector tells another one.
#[derive(Debug)]
struct HeldValue {
    source: String,
    value: f64,
    readings_since: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct DetectorState {
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
        let named = |name: &str| Metric { name: name.to_owned(), ..Metric::default() };
        Self {
            last: HashMap::new(),
            states: BTreeMap::new(),
            templates: ALL.iter().map(|row| named(row.metric)).collect(),
            wholes: ALL.iter().filter_map(IncidentRule::whole).map(named).collect(),
            catalogue: vec![],
            held: BTreeMap::new(),
        }
    }
}

impl Detector {
    /// One that has seen nothing of a host that is read by these collectors.
    pub fn of(collectors: &[CollectorInfo]) -> Self {
        let all = Self::default();
        let metrics = collectors.iter().flat_map(|info| &info.metrics);
        Self { catalogue: metrics.filter(|metric| all.may_be_needed(metric)).cloned().collect(), ..all }
    }

    /// Whether values of a metric of the catalogue may be what a row is about.
    fn may_be_needed(&self, metric: &Metric) -> bool {
        let first = |metric: &Metric| metric.name.split('.').next().map(str::to_owned);
        self.templates.iter().chain(&self.wholes).any(|needed| first(needed) == first(metric))
    }

    /// Looks at the next sample of the host, read at `t_s`. Gives what goes wrong since then.
    pub fn new_incidents(&mut self, t_s: f64, sample: &Sample) -> Vec<Incident> {
        let values = self.complete_values(sample);
        let mut found = vec![];
        for (index, row) in ALL.iter().enumerate() {
            for (name, value) in &values {
                if self.templates[index].describes(name) {
                    found.extend(self.new_incident(index, row, (t_s, name, *value), &values));
                }
            }
        }
        for (name, value) in &values {
            self.store(t_s, name, *value);
        }
        found
    }

    /// The values of a reading that rows are about, with those that it left out as they were unchanged.
    fn complete_values(&mut self, sample: &Sample) -> BTreeMap<String, f64> {
        let is_needed =
            |name: &str| self.templates.iter().chain(&self.wholes).any(|needed| needed.describes(name));
        let reported = sample.values.iter().filter(|(name, _)| is_needed(name));
        let mut values: BTreeMap<String, f64> =
            reported.map(|(name, value)| (name.clone(), value.0)).collect();
        let may_be_held: Vec<String> =
            values.keys().filter(|name| self.is_on_change(name)).cloned().collect();
        let mut left_out = vec![];
        self.held.retain(|name, held| {
            if held.source != sample.source || values.contains_key(name) {
                return held.source != sample.source;
            }
            held.readings_since += 1;
            let holds = sample.error.is_none() && held.readings_since < FORWARD_FILL_READINGS_MAX;
            left_out.extend(holds.then(|| (name.clone(), held.value)));
            holds
        });
        for name in may_be_held {
            let held = HeldValue { source: sample.source.clone(), value: values[&name], readings_since: 0 };
            self.held.insert(name, held);
        }
        values.extend(left_out);
        values
    }

    /// Whether readings leave a value out while it is as it was: the metric with the longest name before the star tells.
    fn is_on_change(&self, name: &str) -> bool {
        let describing = self.catalogue.iter().filter(|metric| metric.describes(name));
        describing
            .max_by_key(|metric| (metric.name == name, metric.name.find('*')))
            .is_some_and(|metric| metric.on_change)
    }

    /// Only what a row compares with is remembered.
    fn store(&mut self, t_s: f64, name: &str, value: f64) {
        match self.last.get_mut(name) {
            Some(known) => *known = (t_s, value),
            None if self.templates.iter().any(|template| template.describes(name)) => {
                self.last.insert(name.to_owned(), (t_s, value));
            }
            None => {}
        }
    }

    fn new_incident(
        &mut self,
        index: usize,
        row: &IncidentRule,
        (t_s, name, value): (f64, &str, f64),
        values: &BTreeMap<String, f64>,
    ) -> Option<Incident> {
        let figure = self.figure(row, (t_s, name, value), values)?;
        let followed = self.states.keys().filter(|(row, _)| *row == index).count();
        let state = match self.states.get_mut(&(index, name.to_owned())) {
            Some(state) => state,
            None if followed >= INSTANCES_MAX => return None,
            None => self.states.entry((index, name.to_owned())).or_default(),
        };
        state.next(row, figure, t_s).then(|| Incident {
            metric: name.to_owned(),
            what: description(row, self.templates[index].instance(name), figure),
        })
    }

    /// What a row looks at: the level, the rate since the reading before, or the share of another metric.
    fn figure(
        &self,
        row: &IncidentRule,
        (t_s, name, value): (f64, &str, f64),
        values: &BTreeMap<String, f64>,
    ) -> Option<f64> {
        match row.figure {
            IncidentFigure::Level => Some(value),
            IncidentFigure::Rise | IncidentFigure::Rate(_) => {
                let (before_s, before) = *self.last.get(name)?;
                let (seconds, rise) = (t_s - before_s, value - before);
                // What was set back says nothing.
                if seconds <= 0.0 || rise < 0.0 {
                    return None;
                }
                Some(match row.figure {
                    IncidentFigure::Rate(factor) => rise / seconds * factor,
                    _ => rise,
                })
            }
            IncidentFigure::ShareOf(whole) => {
                let template = Metric { name: row.metric.to_owned(), ..Metric::default() };
                let whole = whole.replace('*', template.instance(name).unwrap_or("*"));
                let whole = *values.get(&whole)?;
                (whole > 0.0).then(|| value / whole)
            }
        }
    }
}

impl DetectorState {
    /// Takes the next figure. Gives whether it is time to speak.
    fn next(&mut self, row: &IncidentRule, figure: f64, t_s: f64) -> bool {
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

/// `connections dropped, accept queue full: 15 a second (an incident from 1 on)`.
fn description(row: &IncidentRule, instance: Option<&str>, figure: f64) -> String {
    let of = instance.map_or(String::new(), |instance| format!(" ({instance})"));
    let percent = |fraction: f64| format!("{}%", format_number((fraction * 1000.0).round() / 10.0));
    let displayed = |value: f64| match row.figure {
        IncidentFigure::Level | IncidentFigure::Rise => format_number(value),
        IncidentFigure::Rate(factor) if factor < 1.0 => format!("{} of the time", percent(value)),
        IncidentFigure::Rate(_) => format!("{}/s", format_number(value)),
        IncidentFigure::ShareOf(_) => percent(value),
    };
    let lasting = if row.readings > 1 { format!(" for {} samples", row.readings) } else { String::new() };
    format!("{}{of}: {} (threshold {}{lasting})", row.words, displayed(figure), displayed(row.from))
}

#[cfg(test)]
mod tests;
