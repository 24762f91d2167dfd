//! Facts of PHP: the pools of PHP-FPM and the opcode cache.
//!
//! Sources: the collectors `php_fpm`, `opcache` and `process` (docs/metrics.md).

use super::{Derivation, FactBuilder, FactId};
use crate::measurement::statistics::mean;
use crate::settings::backends;
use std::collections::{BTreeMap, BTreeSet};
use webdyno_model::fact::Fact;

fact_table! {
    (fpm_queue_mean, "connections", "php_fpm.*.listen_queue_count", Derivation::Mean),
    (fpm_processes_mean, "processes", "php_fpm.*.processes_count", Derivation::Mean),
    (fpm_processes_max, "processes", "php_fpm.*.processes_count", Derivation::Max),
    (fpm_processes_busy_mean, "processes", "php_fpm.*.processes_busy_count", Derivation::Mean),
    (fpm_active_mean, "processes", "php_fpm.*.active_count", Derivation::Mean),
    (fpm_limit_reached, "times", "php_fpm.*.max_children_reached_count", Derivation::Rise),
    (fpm_limit_logged, "messages", "php_fpm.*.log_max_children_count", Derivation::Rise),
    (fpm_process_memory_bytes, "bytes", "php_fpm.*.pss_mean_bytes", Derivation::Latest),
    (fpm_cpu_cores, "cores", "process.php_fpm.cpu_s", Derivation::Rate(1.0)),
    (fpm_program_processes, "processes", "process.php_fpm.count", Derivation::Max),
    (opcache_enabled, "count", "opcache.*.enabled_count", Derivation::Latest),
    (opcache_full, "count", "opcache.*.full_count", Derivation::Latest),
    (opcache_misses_per_s, "scripts/s", "opcache.*.misses_count", Derivation::Rate(1.0)),
    (opcache_misses, "scripts", "opcache.*.misses_count", Derivation::Rise),
    (opcache_hits_per_s, "scripts/s", "opcache.*.hits_count", Derivation::Rate(1.0)),
    (opcache_scripts, "scripts", "opcache.*.scripts_count", Derivation::Latest),
    (opcache_scripts_added, "scripts", "opcache.*.scripts_count", Derivation::Rise),
    (opcache_keys, "keys", "opcache.*.keys_count", Derivation::Latest),
    (opcache_keys_limit, "keys", "opcache.*.keys_max_count", Derivation::Latest),
    (opcache_memory_used_bytes, "bytes", "opcache.*.memory_used_bytes", Derivation::Latest),
    (opcache_memory_free_bytes, "bytes", "opcache.*.memory_free_bytes", Derivation::Latest),
    (opcache_memory_wasted_bytes, "bytes", "opcache.*.memory_wasted_bytes", Derivation::Latest),
    (opcache_oom_restarts, "restarts", "opcache.*.oom_restarts_count", Derivation::Rise),
    (opcache_mapping_bytes, "bytes", "opcache_in_apache.size_bytes", Derivation::Latest),
    (opcache_resident_bytes, "bytes", "opcache_in_apache.resident_bytes", Derivation::Max),
    (opcache_read_bytes_per_s, "bytes/s", "opcache_in_apache.read_bytes", Derivation::Rate(1.0)),
    (opcache_hash_restarts, "restarts", "opcache.*.hash_restarts_count", Derivation::Rise),
    "processes": fpm_children_started, fpm_children_ended;
    "fraction": fpm_waiting_fraction, fpm_full_fraction, fpm_at_most_fraction, backend_waiting_fraction, php_script_fraction,
        php_computing_fraction, php_waiting_fraction;
    "connections": backend_queue_mean, fpm_queue_last;
}

const QUEUE: &str = "php_fpm.*.listen_queue_count";
const PROCESSES: &str = "php_fpm.*.processes_count";
const ALL_QUEUES: &str = "sockets.worst_listen_queue_fraction";
const UNIX_QUEUE: &str = "sockets.unix.*.listen_queue_count";
const TCP_QUEUE: &str = "sockets.*.listen_queue_count";
const BUSY: &str = "php_fpm.*.processes_busy_count";

const SCRIPTS: [&str; 2] = ["php_scripts.*.running_count", "apache_scripts.*.running_count"];
/// Functions in which PHP computed, and waited.
const FUNCTIONS: [&str; 2] = ["php_functions.*.running_count", "php_functions.*.waiting_count"];
/// Fewer looks at processes say nothing of shares; and smaller shares are not worth a fact.
const LOOKS_MIN: f64 = 20.0;
const SHARE_MIN: f64 = 0.05;
/// Functions have to be met in so many readings, or in all of a shorter window: one process may be in one function for a second.
const READINGS_MIN: usize = 5;
/// What functions are told as that the collector does not tell apart: a part of the whole that says nothing.
const OTHERS: &str = "others";

/// The pool and the function of an instance of `php_functions`: `www/Shop::prices;md5`. No name of a function has a slash.
pub(super) fn pool_and_function(instance: &str) -> (Option<&str>, &str) {
    instance.rsplit_once('/').map_or((None, instance), |(pool, function)| (Some(pool), function))
}

/// The pool and the script of an instance of `php_scripts`: `www:/srv/shop/index.php`. Older recordings tell no pool.
pub(super) fn pool_and_script(instance: &str) -> (Option<&str>, &str) {
    let named = instance.split_once(':').filter(|(pool, _)| !pool.contains('/'));
    named.map_or((None, instance), |(pool, script)| (Some(pool), script))
}

impl FactBuilder<'_> {
    /// Of the processes of PHP that executed a script, the share that each script had; of those that computed, the share of
    /// each function; and of all, the share that waited in each.
    pub(super) fn php_scripts(&mut self) {
        self.shares_of(&SCRIPTS, &SCRIPTS, FactId::php_script_fraction);
        for (part, whole, fact) in [
            (0, &FUNCTIONS[..1], FactId::php_computing_fraction),
            (1, &FUNCTIONS[..], FactId::php_waiting_fraction),
        ] {
            if self.are_met_often(whole) {
                self.shares_of(&FUNCTIONS[part..=part], whole, fact);
            }
        }
    }

    fn are_met_often(&self, functions: &[&str]) -> bool {
        let metrics = functions.iter().flat_map(|template| self.instances(template));
        let metrics: BTreeSet<&str> = metrics.map(|(_, metric)| metric).collect();
        let readings = || self.series.samples_of("php_functions");
        let met =
            readings().filter(|one| one.sample.values.keys().any(|name| metrics.contains(name.as_str())));
        met.count() >= readings().count().min(READINGS_MIN)
    }

    /// What each instance of these metrics is of the whole that others sum up to. A reading tells none that was not met. What
    /// several pools execute is one function.
    fn shares_of(&mut self, parts: &[&str], whole: &[&str], fact: FactId) {
        let counted = |templates: &[&str]| {
            let mut counted: BTreeMap<&str, (&str, f64)> = BTreeMap::new();
            for template in templates {
                for (at, metric) in self.instances(template) {
                    let at = match () {
                        () if FUNCTIONS.contains(template) => pool_and_function(at).1,
                        () if *template == SCRIPTS[0] => pool_and_script(at).1,
                        () => at,
                    };
                    counted.entry(at).or_insert((metric, 0.0)).1 +=
                        self.series.levels(metric).iter().sum::<f64>();
                }
            }
            counted
        };
        let sum: f64 = counted(whole).values().map(|(_, count)| count).sum();
        let mut told = counted(parts);
        told.retain(|at, (_, count)| *at != OTHERS && sum >= LOOKS_MIN && *count >= SHARE_MIN * sum);
        for (at, (metric, count)) in told {
            let fraction = Some(webdyno_model::number::significant(count / sum, 3));
            self.add_instance(at, (fact, fraction), (metric, Derivation::Mean));
        }
    }

    /// Of each pool, in which share of the readings connections waited for a process, no process was free, and there were
    /// as many processes as there ever were: a pool that still grows has not reached its limit.
    pub(super) fn pools(&mut self) {
        let is = |holds: bool| f64::from(u8::from(holds));
        let share = |of: Vec<f64>| (of.len() >= 2).then(|| mean(&of)).flatten();
        let waiting = |queue: &[f64]| share(queue.iter().map(|waiting| is(*waiting >= 1.0)).collect());
        self.derive_for_pools(FactId::fpm_waiting_fraction, QUEUE, |builder, pool| {
            waiting(&builder.series.levels(&QUEUE.replace('*', pool)))
        });
        self.derive_for_pools(FactId::fpm_full_fraction, BUSY, |builder, pool| {
            let busy = builder.series.levels(&BUSY.replace('*', pool));
            let all = builder.series.levels(&PROCESSES.replace('*', pool));
            let pairs = busy.iter().zip(&all).filter(|_| busy.len() == all.len());
            share(pairs.map(|(busy, all)| is(busy >= all)).collect())
        });
        self.derive_for_pools(FactId::fpm_at_most_fraction, PROCESSES, |builder, pool| {
            let all = builder.series.levels(&PROCESSES.replace('*', pool));
            let most = all.iter().copied().fold(0.0, f64::max);
            share(all.iter().map(|count| is(*count >= most)).collect())
        });
        self.spawning();
    }

    /// Of each pool, how many children came and went at least, from one reading to the next, and how many requests waited at the end.
    fn spawning(&mut self) {
        for (name, sign) in [(FactId::fpm_children_started, 1.0), (FactId::fpm_children_ended, -1.0)] {
            self.derive_for_pools(name, PROCESSES, |builder, pool| {
                let all = builder.series.levels(&PROCESSES.replace('*', pool));
                let changes = all.windows(2).map(|pair| (sign * (pair[1] - pair[0])).max(0.0));
                (all.len() >= 2).then(|| changes.sum())
            });
        }
        self.derive_for_pools(FactId::fpm_queue_last, QUEUE, |builder, pool| {
            builder.series.levels(&QUEUE.replace('*', pool)).last().copied()
        });
    }

    /// Of each socket to which the service hands requests over, or to which its connections go, how many connections wait there:
    /// the view from outside, which takes no rights. It is only told while there are any. Other programs of the machine have
    /// queues that are none of its business.
    pub(super) fn backend_queues(&mut self) {
        let (service, topology) = (self.service, self.topology);
        let is_behind = |at: &str| service.is_none_or(|service| backends::is_behind(service, topology, at));
        let readings = self.series.levels(ALL_QUEUES).len() as f64;
        for (template, prefix) in [(UNIX_QUEUE, "unix:"), (TCP_QUEUE, "")] {
            let Some(known) = self.series.template(template) else { continue };
            let found: Vec<_> = self.series.instances(known).collect();
            for (name, metric) in found.into_iter().filter(|(name, _)| is_behind(&format!("{prefix}{name}")))
            {
                let waiting = self.series.levels(metric);
                let mean = (readings >= 1.0).then(|| waiting.iter().sum::<f64>() / readings);
                let share = waiting.iter().filter(|count| **count >= 1.0).count() as f64 / readings.max(1.0);
                let share = (readings >= 2.0).then_some(share.min(1.0));
                for (fact, value) in
                    [(FactId::backend_queue_mean, mean), (FactId::backend_waiting_fraction, share)]
                {
                    self.add_instance(&format!("{prefix}{name}"), (fact, value), (metric, Derivation::Mean));
                }
            }
        }
    }

    /// Adds a fact of one of several things.
    pub(super) fn add_instance(
        &mut self,
        instance: &str,
        (name, value): (FactId, Option<f64>),
        from: (&str, Derivation),
    ) {
        let former = self.facts.remove(&name);
        self.add_from(name, value, from);
        match self.facts.remove(&name) {
            Some(fact) => {
                self.facts.insert(name, larger(former, fact.clone()));
                self.each.entry(name).or_default().insert(instance.to_owned(), fact);
            }
            None => self.facts.extend(former.map(|fact| (name, fact))),
        }
    }

    fn derive_for_pools(
        &mut self,
        name: FactId,
        template: &str,
        value: impl Fn(&FactBuilder<'_>, &str) -> Option<f64>,
    ) {
        for (pool, metric) in self.instances(template) {
            let found = value(self, pool);
            self.add_instance(pool, (name, found), (metric, Derivation::Mean));
        }
    }
}

fn larger(former: Option<Fact>, fact: Fact) -> Fact {
    former.filter(|former| former.value > fact.value).unwrap_or(fact)
}

#[cfg(test)]
mod tests {
    use crate::facts::testing::{sample, scoped_setting};
    use crate::facts::{FactId, Facts, facts};
    use crate::measurement::Measurement;
    use webdyno_model::sample::{CollectorInfo, Metric};
    use webdyno_model::service::{Endpoint, ServiceSnapshot};
    use webdyno_model::topology::{Link, Topology};

    fn metric(name: &str) -> Metric {
        Metric { name: name.into(), ..Metric::default() }
    }

    fn of(readings: &[(&str, f64, f64, f64)], topology: Option<Topology>) -> Facts {
        let pools = readings.iter().zip(1..).map(|((pool, queue, busy, all), t_s)| {
            let name = |end: &str| format!("php_fpm.{pool}.{end}");
            let names = [name("listen_queue_count"), name("processes_busy_count"), name("processes_count")];
            let values: Vec<_> = names.iter().map(String::as_str).zip([*queue, *busy, *all]).collect();
            sample(f64::from(t_s), "php_fpm", &values)
        });
        let metrics = [super::QUEUE, super::PROCESSES, super::BUSY].map(metric).to_vec();
        let collectors = vec![CollectorInfo { name: "php_fpm".into(), metrics }];
        let (samples, service) = (pools.collect(), Some(ServiceSnapshot::default()));
        let measurement = Measurement {
            samples,
            collectors,
            service,
            topology,
            measured_to_s: 10.0,
            ..Measurement::default()
        };
        facts(&measurement, None).unwrap()
    }

    #[test]
    fn each_pool_tells_how_long_it_was_full() {
        let full = [("a", 9.0, 5.0, 5.0), ("a", 9.0, 4.0, 4.0), ("a", 0.0, 5.0, 5.0), ("a", 1.0, 4.0, 5.0)];
        let idle = [("b", 0.0, 0.0, 5.0), ("b", 0.0, 1.0, 5.0)];
        let all = [&full[..], &idle[..]].concat();
        let facts = of(&all, None);
        // A full one that is none of the service's is none of its facts.
        let pool = |name: &str| Endpoint { name: name.into(), address: name.into(), path: None };
        let endpoints = vec![pool("a"), pool("b")];
        let fpm = ServiceSnapshot { service: "php_fpm".into(), endpoints, ..ServiceSnapshot::default() };
        let links = vec![Link { by: "b".into(), ..Link::default() }];
        let behind = of(&all, Some(Topology { backends: vec![fpm], links, ..Topology::default() }));
        let found: Vec<_> = behind.each(FactId::fpm_queue_mean).collect();
        assert_eq!((found, behind.value(FactId::fpm_waiting_fraction)), (vec![("b", 0.0)], Some(0.0)));
        let of = |name: FactId| ["a", "b"].map(|pool| facts.value_of(name, pool));
        assert_eq!(of(FactId::fpm_waiting_fraction), [Some(0.75), Some(0.0)]);
        assert_eq!(of(FactId::fpm_full_fraction), [Some(0.75), Some(0.0)]);
        assert_eq!(of(FactId::fpm_at_most_fraction), [Some(0.75), Some(1.0)]);
        assert_eq!(facts.value(FactId::fpm_waiting_fraction), Some(0.75));
        assert_eq!(of(FactId::fpm_children_started), [Some(1.0), Some(0.0)]);
        assert_eq!(of(FactId::fpm_children_ended), [Some(1.0), Some(0.0)]);
        assert_eq!(of(FactId::fpm_queue_last), [Some(1.0), Some(0.0)]);
    }

    /// The shares of functions that compute, and that wait, of readings of these values, behind this front.
    fn shares(readings: &[&[(&str, f64)]], topology: Option<Topology>) -> [Vec<(String, f64)>; 2] {
        let computing_and_waiting = [FactId::php_computing_fraction, FactId::php_waiting_fraction];
        computing_and_waiting.map(|fact| shares_of(fact, "php_functions", readings, topology.clone()))
    }

    fn shares_of(
        fact: FactId,
        source: &str,
        readings: &[&[(&str, f64)]],
        topology: Option<Topology>,
    ) -> Vec<(String, f64)> {
        let reading = |(t_s, values): (f64, &&[(&str, f64)])| {
            let named: Vec<_> =
                values.iter().map(|(name, count)| (format!("{source}.{name}_count"), *count)).collect();
            let values: Vec<_> = named.iter().map(|(name, count)| (name.as_str(), *count)).collect();
            sample(t_s, source, &values)
        };
        let metrics = [super::FUNCTIONS, super::SCRIPTS].concat().into_iter().map(metric).collect();
        let measurement = Measurement {
            samples: (1..).map(f64::from).zip(readings).map(reading).collect(),
            collectors: vec![CollectorInfo { name: source.into(), metrics }],
            service: Some(ServiceSnapshot::default()),
            topology,
            measured_to_s: 10.0,
            ..Measurement::default()
        };
        let facts = facts(&measurement, None).unwrap();
        facts.each(fact).map(|(at, share)| (at.to_owned(), share)).collect()
    }

    fn named(shares: &[(&str, f64)]) -> Vec<(String, f64)> {
        shares.iter().map(|(at, share)| ((*at).to_owned(), *share)).collect()
    }

    #[test]
    fn of_functions_the_share_that_computes_and_the_share_that_waits_are_told() {
        let first: &[_] = &[("page.php.running", 10.0), ("db;mysqli_query.waiting", 40.0)];
        let second: &[_] =
            &[("Shop::x;md5.running", 30.0), ("db;mysqli_query.waiting", 18.0), ("y.waiting", 2.0)];
        let [computing, waiting] = shares(&[first, second], None);
        assert_eq!(computing, named(&[("Shop::x;md5", 0.75), ("page.php", 0.25)]));
        assert_eq!(waiting, named(&[("db;mysqli_query", 0.58)]));
    }

    // The others of a pool are a part of the whole; a pool that is none of the service's is not.
    #[test]
    fn functions_of_the_pools_that_requests_come_to_are_told_together() {
        let pool = |name: &str| Endpoint { name: name.into(), address: name.into(), path: None };
        let endpoints = ["a", "b", "foreign"].map(pool).to_vec();
        let fpm = ServiceSnapshot { service: "php_fpm".into(), endpoints, ..ServiceSnapshot::default() };
        let links = ["a", "b"].map(|by| Link { by: by.into(), ..Link::default() }).to_vec();
        let topology = Topology { backends: vec![fpm], links, ..Topology::default() };
        let all: &[_] = &[
            ("a/Shop::x;md5.running", 10.0),
            ("b/Shop::x;md5.running", 5.0),
            ("a/others.running", 15.0),
            ("foreign/cron.php.running", 70.0),
        ];
        assert_eq!(shares(&[all], Some(topology.clone()))[0], named(&[("Shop::x;md5", 0.5)]));
        let all: &[_] = &[
            ("a:/srv/x.php.running", 20.0),
            ("b:/srv/x.php.running", 10.0),
            ("b:/srv/y.php.running", 10.0),
            ("foreign:/home/z.php.running", 60.0),
        ];
        let scripts = shares_of(FactId::php_script_fraction, "php_scripts", &[all], Some(topology));
        assert_eq!(scripts, named(&[("/srv/x.php", 0.75), ("/srv/y.php", 0.25)]));
    }

    #[test]
    fn one_reading_of_many_is_no_evidence() {
        let (met, none): (&[_], &[_]) = (&[("page.php.running", 40.0)], &[]);
        for (readings, is_told) in [
            (vec![met, none, none, none, none, none], false),
            (vec![met, met, met, met, none, none], false),
            (vec![met, met, met, met, met, none], true),
            (vec![met, met], true),
            (vec![met, none], false),
        ] {
            assert_eq!(!shares(&readings, None)[0].is_empty(), is_told, "{readings:?}");
        }
    }

    #[test]
    fn queues_of_others_are_seen_from_outside() {
        let all = |t_s, mut values: Vec<(&str, f64)>| {
            values.push((super::ALL_QUEUES, 0.1));
            sample(t_s, "sockets", &values)
        };
        let waiting = |count| {
            vec![
                ("sockets.unix./run/x.sock.listen_queue_count", count),
                ("sockets.*:80.listen_queue_count", 9.0),
                ("sockets.127.0.0.1:8080.listen_queue_count", 7.0),
            ]
        };
        let samples =
            vec![all(1.0, waiting(30.0)), all(2.0, vec![]), all(3.0, waiting(10.0)), all(4.0, waiting(0.0))];
        let metrics = [super::UNIX_QUEUE, super::TCP_QUEUE].map(metric).to_vec();
        let collectors = vec![CollectorInfo { name: "sockets".into(), metrics }];
        let handler = scoped_setting("SetHandler", "proxy:unix:/run/x.sock|fcgi://localhost", &[]);
        let service = Some(ServiceSnapshot { port: 80, scoped: vec![handler], ..ServiceSnapshot::default() });
        let measurement =
            Measurement { samples, collectors, service, measured_to_s: 10.0, ..Measurement::default() };
        let facts = facts(&measurement, None).unwrap();
        let of =
            |name: FactId| facts.each(name).map(|(at, value)| (at.to_owned(), value)).collect::<Vec<_>>();
        assert_eq!(of(FactId::backend_queue_mean), [("unix:/run/x.sock".to_owned(), 10.0)]);
        assert_eq!(of(FactId::backend_waiting_fraction), [("unix:/run/x.sock".to_owned(), 0.5)]);
    }
}
