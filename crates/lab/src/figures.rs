//! Figures of a load, as signs and gains of scenarios name them: of the measured part, from the report of the run.
//!
//! What each is: [`NAMES`]; where it comes from: [`webdyno_model::run::RunReport`], which docs/contract.md fixes.

use std::collections::BTreeMap;
use webdyno_analysis::measurement::Measurement;
use webdyno_analysis::run_report::run_report;
use webdyno_model::Result;
use webdyno_model::interval::Interval;
use webdyno_model::run::RunReport;

/// What the names of all figures begin with.
pub const PREFIX: &str = "load.";

/// Every figure with what it is. `KIND` stands for a class of failures, `CODE` for a status.
pub const NAMES: &[(&str, &str)] = &[
    ("load.rate", "good answers a second"),
    ("load.all_rate", "answers and failures a second"),
    ("load.failed_fraction", "failures among all that ended"),
    ("load.p50_us", "median response time of good answers, timeouts at their bound"),
    ("load.p99_us", "99th percentile of the same"),
    ("load.mean_us", "mean of the same"),
    ("load.max_us", "largest of the same"),
    ("load.connect_p99_us", "99th percentile of the time until a connection was there"),
    (
        "load.reused_fraction",
        "requests on a connection that had carried one before, among all that had a connection",
    ),
    ("load.connections_count", "connections opened"),
    ("load.received_bytes_per_s", "bytes received a second"),
    ("load.pages_rate", "whole pages a second"),
    ("load.completed_count", "good answers"),
    ("load.errors.KIND_count", "failures of a class, as `timeout`, `connect_refused` or `status`"),
    ("load.status.CODE_count", "answers with a status, as `503`"),
    ("load.client_busy_fraction", "share of a core that the busiest thread of the generator used"),
];

/// A figure.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figure {
    /// Of the whole measured part.
    pub value: f64,
    /// Of its whole seconds, of a rate: then there is an interval of its ratio to another load's. Else empty.
    pub seconds: Vec<f64>,
}

/// The figures of a load by their names. What is not known is not there.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figures(BTreeMap<String, Figure>);

impl Figures {
    /// Those of a measurement. An error when a histogram of the recording is damaged.
    pub fn of(measurement: &Measurement) -> Result<Self> {
        let run = run_report(measurement)?;
        let mut figures = Self::default();
        figures.rates(measurement, &run);
        figures.insert_times(&run);
        figures.counts(&run);
        Ok(figures)
    }

    /// One figure; `None` when it is not known.
    pub fn get(&self, name: &str) -> Option<Figure> {
        let unseen = || {
            // Of a load that was made, a status that no answer had is known: none had it.
            let is_status = status_of(name).is_some() && !self.0.is_empty();
            is_status.then(Figure::default)
        };
        self.0.get(name).cloned().or_else(unseen)
    }

    /// All that are known.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Figure)> {
        self.0.iter().map(|(name, figure)| (name.as_str(), figure))
    }

    fn insert(&mut self, name: &str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.0.insert(format!("{PREFIX}{name}"), Figure { value, seconds: vec![] });
        }
    }

    fn insert_rate(&mut self, name: &str, value: Option<f64>, seconds: Vec<f64>) {
        self.insert(name, value);
        if let Some(figure) = self.0.get_mut(&format!("{PREFIX}{name}")) {
            figure.seconds = seconds;
        }
    }

    fn rates(&mut self, measurement: &Measurement, run: &RunReport) {
        let seconds = |count: fn(&Interval) -> u64| -> Vec<f64> {
            let whole = measurement.measured().filter(|interval| interval.length_us >= 900_000);
            whole.map(|interval| count(interval) as f64 * 1e6 / interval.length_us as f64).collect()
        };
        let per_second = |count: u64| (run.elapsed_s > 0.0).then(|| count as f64 / run.elapsed_s);
        let ended = run.requests.completed + run.requests.failed;
        self.insert_rate("rate", run.rate, measurement.measured_rates());
        self.insert_rate("all_rate", per_second(ended), seconds(|second| second.completed + second.failed));
        let received = seconds(|second| second.bytes_received);
        self.insert_rate("received_bytes_per_s", per_second(run.bytes.received), received);
        let pages = seconds(|second| second.pages.as_ref().map_or(0, |pages| pages.completed));
        self.insert_rate("pages_rate", run.pages.as_ref().and_then(|pages| pages.rate), pages);
    }

    fn insert_times(&mut self, run: &RunReport) {
        let us = |time: Option<u64>| time.map(|us| us as f64);
        let response = &run.response_time_us;
        self.insert("p50_us", us(response.p50));
        self.insert("p99_us", us(response.p99));
        self.insert("mean_us", response.mean);
        self.insert("max_us", us(response.max));
        self.insert("connect_p99_us", us(run.connect_time_us.p99));
    }

    fn counts(&mut self, run: &RunReport) {
        let fraction = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let (requests, connections) = (&run.requests, &run.connections);
        self.insert("failed_fraction", fraction(requests.failed, requests.completed + requests.failed));
        self.insert("reused_fraction", fraction(connections.reused, connections.reused + connections.opened));
        self.insert("connections_count", Some(connections.opened as f64));
        self.insert("completed_count", Some(requests.completed as f64));
        self.insert("client_busy_fraction", run.client.cpu_fraction_max_thread);
        for (kind, count) in run.errors.named() {
            self.insert(&format!("errors.{kind}_count"), Some(count as f64));
        }
        for (status, count) in &run.status {
            self.insert(&format!("status.{status}_count"), Some(*count as f64));
        }
    }
}

/// The status that a figure counts, of such a figure.
fn status_of(name: &str) -> Option<&str> {
    let status = name.strip_prefix("load.status.")?.strip_suffix("_count")?;
    let is_status = status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
    is_status.then_some(status)
}

/// Whether a figure of this name may be known.
pub fn exists(name: &str) -> bool {
    let kinds = webdyno_model::interval::ErrorCounts::default().named();
    let is_kind = |kind: &str| kinds.iter().any(|(known, _)| *known == kind);
    let kind = name.strip_prefix("load.errors.").and_then(|rest| rest.strip_suffix("_count"));
    NAMES.iter().any(|(known, _)| *known == name && !known.contains(char::is_uppercase))
        || kind.is_some_and(is_kind)
        || status_of(name).is_some()
}

/// Whether a figure is a rate, of which each second is known.
pub fn is_rate(name: &str) -> bool {
    name.starts_with(PREFIX) && (name.ends_with("rate") || name.ends_with("_per_s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::testing::measured;

    #[test]
    fn every_figure_of_a_load_is_one_of_the_list() {
        let figures = Figures::of(&measured(&[100, 102, 98], 3, 20_000)).unwrap();
        for (name, _) in figures.all() {
            assert!(exists(name), "{name} is not in the list");
        }
        for (name, _) in NAMES.iter().filter(|(name, _)| !name.contains(char::is_uppercase)) {
            let pages = *name == "load.pages_rate";
            // Nobody looked at the connections of this load.
            let unseen = ["load.connect_p99_us", "load.reused_fraction"];
            assert_eq!(figures.get(name).is_some(), !pages && !unseen.contains(name), "{name}");
        }
        assert!(!exists("load.errors.KIND_count") && exists("load.errors.timeout_count"));
        assert!(!exists("load.errors.other_count") && !exists("load.status.99_count") && !exists("load.x"));
    }

    #[test]
    fn figures_are_of_the_measured_part() {
        let figures = Figures::of(&measured(&[100, 102, 98], 3, 20_000)).unwrap();
        let value = |name: &str| figures.get(name).map(|figure| figure.value);
        assert_eq!(value("load.rate"), Some(100.0));
        assert_eq!(value("load.all_rate"), Some(103.0));
        assert!((value("load.failed_fraction").unwrap() - 9.0 / 309.0).abs() < 1e-9);
        assert_eq!(value("load.status.503_count"), Some(0.0));
        assert_eq!(value("load.completed_count"), Some(300.0));
        assert_eq!(figures.get("load.rate").unwrap().seconds, [100.0, 102.0, 98.0]);
        assert!((value("load.p99_us").unwrap() - 20_000.0).abs() < 100.0);
    }

    #[test]
    fn of_a_load_without_any_good_answer_times_are_not_known() {
        let figures = Figures::of(&measured(&[0, 0, 0], 50, 20_000)).unwrap();
        assert_eq!(figures.get("load.p99_us"), None);
        assert_eq!(figures.get("load.rate").map(|figure| figure.value), Some(0.0));
        assert_eq!(figures.get("load.failed_fraction").map(|figure| figure.value), Some(1.0));
        // Without a load nothing is known, not even that no answer had a status.
        assert_eq!(Figures::default().get("load.status.503_count"), None);
    }
}
