//! Facts of the time that requests spend in what stands behind the workers: PHP-FPM, a database.
//!
//! By Little's law: requests that are there at once / requests per second. Where PHP-FPM is, the database's time is within
//! its own.

use super::{Derivation, FactBuilder, FactId};

const POOL_BUSY: &str = "php_fpm.*.processes_busy_count";
const POOL_ACTIVE: &str = "php_fpm.*.active_count";
const POOL_QUEUE: &str = "php_fpm.*.listen_queue_count";
const DATABASE: &str = "mariadb.threads_running_count";

fact_table! {
    "requests": requests_behind_workers_mean;
    "us": backend_time_mean_us;
}

impl FactBuilder<'_> {
    /// How many requests were with a backend at once, and how long each request of the load was there on average. It comes
    /// after the facts of the load.
    pub(super) fn backend_concurrency(&mut self) {
        let Some((count, metric)) = self.fpm_concurrency().or_else(|| self.database_concurrency()) else {
            return;
        };
        self.add_from(FactId::requests_behind_workers_mean, Some(count), (&metric, Derivation::Mean));
        let ended = [FactId::ended_per_s, FactId::rate].iter().find_map(|name| self.facts.get(name));
        let ended_per_s = ended.map(|fact| fact.value).filter(|rate| *rate > 0.0);
        let time_us = ended_per_s.map(|rate| count / rate * 1e6);
        self.add_from(FactId::backend_time_mean_us, time_us, (&metric, Derivation::Mean));
    }

    /// In the children of all pools, and in their queues.
    fn fpm_concurrency(&self) -> Option<(f64, String)> {
        let busy = self.sum(POOL_BUSY).or_else(|| {
            // The request for the status page is one of those that are active.
            self.sum(POOL_ACTIVE).map(|(active, metric)| ((active - 1.0).max(0.0), metric))
        });
        let queue = self.sum(POOL_QUEUE).map_or(0.0, |(queue, _)| queue);
        // A pool that nobody used is not where the requests were.
        busy.map(|(busy, metric)| (busy + queue, metric)).filter(|(count, _)| *count > 0.0)
    }

    /// In the database's threads, without the one that answers us.
    fn database_concurrency(&self) -> Option<(f64, String)> {
        let running = self.series.mean(DATABASE)?;
        Some(((running - 1.0).max(0.0), DATABASE.to_owned()))
    }

    /// The means of a level of several things together, and the name of the largest one's metric.
    fn sum(&self, template: &str) -> Option<(f64, String)> {
        let means = self.instances(template).into_iter();
        let means: Vec<_> =
            means.filter_map(|(_, metric)| Some((self.series.mean(metric)?, metric))).collect();
        let largest = means.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some((means.iter().map(|(mean, _)| mean).sum(), largest.1.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::facts;
    use crate::facts::testing::{apache, sample};
    use crate::measurement::Measurement;
    use webdyno_model::sample::{CollectorInfo, Metric};

    #[test]
    fn time_behind_the_workers_is_what_is_there_by_the_rate() {
        let metric = |name: &str| Metric { name: name.into(), ..Metric::default() };
        let metrics = [POOL_BUSY, POOL_ACTIVE, POOL_QUEUE, DATABASE].map(metric).to_vec();
        let collectors = vec![CollectorInfo { name: "x".into(), metrics }];
        let of = |levels: &[(&str, f64)]| {
            let reading = |t_s: f64| {
                let count = ("access_log.requests_count", 50.0 * t_s);
                sample(t_s, "x", &[levels, &[count]].concat())
            };
            let measurement = Measurement {
                samples: vec![reading(0.0), reading(10.0)],
                collectors: collectors.clone(),
                service: Some(apache(&[])),
                measured_to_s: 10.0,
                ..Measurement::default()
            };
            facts(&measurement, None).unwrap().value(FactId::backend_time_mean_us)
        };
        let (busy, queue) =
            (("php_fpm.www.processes_busy_count", 5.0), ("php_fpm.www.listen_queue_count", 20.0));
        let (running, active) = ((DATABASE, 6.0), ("php_fpm.www.active_count", 6.0));
        for (levels, time_us) in [
            (vec![busy, queue, running, ("php_fpm.api.processes_busy_count", 5.0)], Some(600_000.0)),
            (vec![active, queue], Some(500_000.0)),
            (vec![running], Some(100_000.0)),
            (vec![("php_fpm.www.processes_busy_count", 0.0), running], Some(100_000.0)),
            (vec![], None),
        ] {
            assert_eq!(of(&levels), time_us, "{levels:?}");
        }
    }
}
