//! Puts facts together: from the series of a measurement, with window, source and the command that reproduces them.

use super::{Derivation, FAMILIES, FactId, metric_command, php};
use crate::measurement::series::SeriesSet;
use crate::settings::backends;
use std::collections::BTreeMap;
use webdyno_model::fact::Fact;
use webdyno_model::harm_guard::HarmGuardTrip;
use webdyno_model::number::significant;
use webdyno_model::sample::Metric;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::Topology;

/// Facts so far, and what they are made of.
pub(super) struct FactBuilder<'a> {
    pub(super) series: SeriesSet<'a>,
    pub(super) service: Option<&'a ServiceSnapshot>,
    pub(super) topology: Option<&'a Topology>,
    pub(super) facts: BTreeMap<FactId, Fact>,
    pub(super) each: BTreeMap<FactId, BTreeMap<String, Fact>>,
}

impl<'a> FactBuilder<'a> {
    /// What the server alone tells.
    pub(super) fn server_facts(&mut self) {
        for &(fact, metric, how) in FAMILIES.iter().copied().flatten() {
            match metric.contains('*') {
                true => self.derive_each(fact, metric, how),
                false => self.derive(fact, metric, how),
            }
        }
        self.cpu();
        self.late_named_programs();
        self.scoreboard();
        self.worker_time();
        self.processes();
        self.pools();
        self.php_scripts();
        self.backend_queues();
        self.database();
        self.page_cache();
        self.steady_refaults();
        self.held_by_group();
        self.largest_worker();
        self.open_files();
        self.idle_connections();
        self.connection_attempts();
        self.conntrack();
        self.links();
        self.retransmissions();
        self.intervals_of_levels();
    }

    pub(super) fn add(&mut self, name: FactId, fact: Fact) {
        if fact.value.is_finite() {
            self.facts.insert(name, fact);
        }
    }

    pub(super) fn add_within(
        &mut self,
        name: FactId,
        value: f64,
        (from_s, to_s): (f64, f64),
        (source, reproduce): (String, String),
    ) {
        let fact = Fact {
            name: name.as_str().into(),
            value: significant(value, 6),
            unit: name.unit().into(),
            from_s: significant(from_s, 6),
            to_s: significant(to_s, 6),
            source,
            reproduce,
        };
        self.add(name, fact);
    }

    pub(super) fn derive(&mut self, name: FactId, metric: &str, how: Derivation) {
        let value = match how {
            Derivation::Mean => self.series.mean(metric),
            Derivation::Max => self.series.max(metric),
            Derivation::Min => self.series.min(metric),
            Derivation::Latest => self.series.latest(metric),
            Derivation::Rise => self.series.increase(metric).map(|(rise, _)| rise),
            Derivation::Rate(factor) => self.series.rate(metric).map(|rate| rate * factor),
        };
        self.add_from(name, value, (metric, how));
    }

    /// What there are readings of, of a metric of several; pools only as far as the service's requests come to them.
    pub(super) fn instances(&self, template: &str) -> Vec<(&'a str, &'a str)> {
        let Some(known) = self.series.template(template) else { return vec![] };
        let pool_of = |instance: &'a str| match template.split_once(".*").map_or("", |(source, _)| source) {
            "php_fpm" | "opcache" => Some(instance),
            "php_functions" => php::pool_and_function(instance).0,
            "php_scripts" => php::pool_and_script(instance).0,
            _ => None,
        };
        let counts = |instance: &'a str| {
            let pool = pool_of(instance).zip(self.service.zip(self.topology));
            pool.is_none_or(|(pool, (service, topology))| backends::leads_to_pool(service, topology, pool))
        };
        self.series.instances(known).filter(|(instance, _)| counts(instance)).collect()
    }

    /// The same of a metric that there are several of.
    pub(super) fn derive_each(&mut self, name: FactId, template: &str, how: Derivation) {
        let mut largest: Option<Fact> = None;
        for (instance, metric) in self.instances(template) {
            self.facts.remove(&name);
            self.derive(name, metric, how);
            let Some(fact) = self.facts.remove(&name) else { continue };
            if largest.as_ref().is_none_or(|largest| fact.value > largest.value) {
                largest = Some(fact.clone());
            }
            self.each.entry(name).or_default().insert(instance.to_owned(), fact);
        }
        self.facts.extend(largest.map(|fact| (name, fact)));
    }

    /// A fact that follows from a metric: source and command are the metric's, the window is that of the readings.
    pub(super) fn add_from(&mut self, name: FactId, value: Option<f64>, (metric, how): (&str, Derivation)) {
        let Some(value) = value else { return };
        let window = match how {
            Derivation::Mean | Derivation::Max | Derivation::Min => self.series.extent(metric),
            Derivation::Latest => self.series.latest_at(metric).map(|time| (time, time)),
            Derivation::Rise | Derivation::Rate(_) => {
                self.series.span(metric).map(|(first, last)| (first.0, last.0))
            }
        };
        let known = self.series.metric(metric);
        let reproduce = known.map_or(String::new(), |known| self.repro_command(metric, known));
        let is_total = matches!(how, Derivation::Rise | Derivation::Rate(_));
        let (from_s, to_s) = window.unwrap_or(self.series.window());
        let source = known.map_or(String::new(), |metric| metric.source.clone());
        let reproduce = if is_total { metric_command::repeated(reproduce) } else { reproduce };
        self.add_within(name, value, (from_s, to_s), (source, reproduce));
    }

    /// The command that shows a metric, about the service that it is of.
    pub(super) fn repro_command(&self, name: &str, metric: &Metric) -> String {
        metric_command::command((name, metric.instance(name)), &metric.reproduce, self.service, self.topology)
    }

    /// [`FactBuilder::add_from`] of one of several things; the fact itself is that of the largest value.
    pub(super) fn add_of(
        &mut self,
        name: FactId,
        value: Option<f64>,
        from: (&str, Derivation),
        instance: &str,
    ) {
        let before = self.facts.remove(&name);
        self.add_from(name, value, from);
        let Some(fact) = self.facts.remove(&name) else {
            self.facts.extend(before.map(|fact| (name, fact)));
            return;
        };
        let largest = before.filter(|before| before.value >= fact.value).unwrap_or_else(|| fact.clone());
        self.facts.insert(name, largest);
        self.each.entry(name).or_default().insert(instance.to_owned(), fact);
    }

    /// What stopped the load, and from which value on it is stopped. The brake reads more often than the collectors, so
    /// that its reading may be in no sample.
    pub(super) fn harm_guard(&mut self, trip: &HarmGuardTrip) {
        let Some(metric) = self.series.metric(&trip.metric) else { return };
        let at_s = significant(self.series.window().1, 6);
        let reproduce = self.repro_command(&trip.metric, metric);
        for (name, value) in [(FactId::brake_reading, trip.value), (FactId::brake_limit, trip.limit)] {
            let fact = Fact {
                name: name.as_str().into(),
                value: significant(value.0, 6),
                unit: metric.unit.clone(),
                from_s: significant((at_s - 1.0).max(0.0), 6),
                to_s: at_s,
                source: format!("{} of {}", metric.name, metric.source),
                reproduce: reproduce.clone(),
            };
            self.add(name, fact);
        }
    }
}
