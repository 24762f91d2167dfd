//! When `app-workers-exhausted` is found, what proves it, and what to change.

use super::full_application::{FullApplication, cores, full_application};
use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::single_thread_saturated;
use crate::limits::slow_upstream;
use crate::resources::concurrency::WAITING_CORES_MAX;
use crate::resources::time_breakdown::noticed_queue;
use crate::resources::workers::HEADROOM;
use crate::resources::{concurrency, memory_evidence, worker_waits};
use crate::settings::backends;
use crate::wording::{format_number, format_time};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Predicted, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// A queue that is at least so long, and at least this share of what is in flight.
const QUEUE_MIN: f64 = 2.0;
const QUEUE_FRACTION_MIN: f64 = 0.1;
const CONFIDENCE: f64 = 0.9;
/// Another queue behind it: its workers may wait there. Or nobody knows which program it is, and what it computes.
const CONFIDENCE_DOUBTFUL: f64 = 0.5;
const CONFIDENCE_BUSY: f64 = 0.7;
/// Fuller processors have no room for more of them.
const BUSY_FRACTION_MAX: f64 = 0.95;
/// The error of the rate that follows from more workers: what they wait for themselves may not grow with them.
const PREDICTION_ERROR: f64 = 0.25;

/// Fires when connections wait for a worker of an application server, and nothing else is what is short.
pub fn check(facts: &Facts) -> Option<Finding> {
    let is_of_errors = concurrency::is_mostly_refused(facts) && !memory_evidence::is_proven(facts);
    if worker_waits::machine_is_short(facts) && !is_of_errors {
        return None;
    }
    let full = full_application(facts)?;
    let in_flight = concurrency::requests_in_flight(facts);
    // Those that the front has not accepted yet cannot wait behind it.
    let accepted = in_flight.map(|in_flight| in_flight - noticed_queue(facts).unwrap_or(0.0));
    let is_noticed = accepted.is_none_or(|accepted| full.queue >= QUEUE_FRACTION_MIN * accepted);
    if full.queue < QUEUE_MIN || !is_noticed {
        return None;
    }
    let explains = in_flight.map(|in_flight| significant((full.queue / in_flight).min(1.0), 3));
    let mut cited = facts.cite_of(&fact_ids! { backend_queue_mean, backend_waiting_fraction }, full.listener);
    cited.extend(facts.cite_of(&[FactId::upstream_waiting_mean], full.listener));
    if let Some((name, _)) = &full.program {
        cited.extend(facts.cite_of(&OF_PROGRAM, name));
    }
    cited.extend(facts.cite(&OF_ALL));
    Some(Finding {
        id: LimitId::AppWorkersExhausted.into(),
        summary: summary(facts, &full, explains),
        confidence: confidence(facts, &full),
        explains_fraction: explains,
        facts: cited,
        remedies: vec![remedy(facts, &full)],
    })
}

const OF_PROGRAM: [FactId; 4] = fact_ids! {
    backend_processes_mean, backend_threads_mean, backend_cpu_cores, backend_busiest_thread_fraction,
};
const OF_ALL: [FactId; 8] = fact_ids! {
    accept_queue_mean, in_flight_mean, response_time_mean_us, response_time_alone_us, rate, offered_rate,
    cpu_busy_fraction, service_cpu_cores,
};

fn confidence(facts: &Facts, full: &FullApplication<'_>) -> f64 {
    let stands_behind = facts.each(FactId::backend_queue_mean).any(|(other, queue)| {
        let may_be =
            other != full.listener && !full.listener.is_empty() && !is_client_of(facts, other, full.listener);
        may_be && queue >= QUEUE_MIN && concurrency::has_lasting_queue(facts, other)
    });
    let one_thread = single_thread_saturated::finding::check(facts).is_some();
    // Its workers wait for another server, which is known to be slower than it was alone.
    let waits_elsewhere = slow_upstream::finding::check(facts)
        .is_some_and(|upstream| upstream.confidence > CONFIDENCE_DOUBTFUL);
    // Whoever fills the processors may be what the workers wait for.
    let busy = facts.value(FactId::usable_busy_fraction).or(facts.value(FactId::cpu_busy_fraction));
    let is_full = busy.is_some_and(|busy| busy >= BUSY_FRACTION_MAX);
    // Where nobody sees what it computes, its one thread may be what has no time.
    if full.is_doubtful || stands_behind || one_thread || waits_elsewhere || cores(facts, full).is_none() {
        CONFIDENCE_DOUBTFUL
    } else if is_full {
        CONFIDENCE_BUSY
    } else {
        CONFIDENCE
    }
}

/// Whether who listens at the one address asks who listens at the other: its queue stands in front of that one's, as that of PHP-FPM
/// whose pages ask an application server.
fn is_client_of(facts: &Facts, at: &str, asked: &str) -> bool {
    let Some(topology) = &facts.topology else { return false };
    let pid = |at: &str| backends::listening_at(topology, at).map(|(_, service)| service.pid);
    let (Some(from), Some(to)) = (pid(at), pid(asked)) else { return false };
    let leads = |from: u32, to: u32| {
        topology.links.iter().any(|link| link.from_pid == from && link.to_pid == Some(to))
    };
    leads(from, to) && !leads(to, from)
}

fn summary(facts: &Facts, full: &FullApplication<'_>, explains: Option<f64>) -> String {
    let name = full.program.as_ref().map_or("the application server", |(_, program)| *program);
    let at = if full.listener.is_empty() { String::new() } else { format!(" at {}", full.listener) };
    let all = match full.workers {
        Some(workers) if full.is_doubtful => format!(
            "{name}{at} serves {} at a time, by the time of one request alone: that is all it may, or they wait for each other",
            format_number(workers)
        ),
        Some(1.0) => format!("The one worker of {name}{at} is busy"),
        Some(workers) => format!("All {} workers of {name}{at} busy", format_number(workers)),
        None => format!("All workers of {name}{at} busy"),
    };
    let wait =
        facts.value(FactId::response_time_mean_us).zip(explains).map_or(String::new(), |(us, share)| {
            format!(", {} of the {} response time", format_time(us * share), format_time(us))
        });
    let alone = facts
        .value(FactId::response_time_alone_us)
        .map_or(String::new(), |us| format!(" A request alone takes {}.", format_time(us)));
    let waiting = match full.is_inside {
        true => "requests wait inside of it",
        false => "connections wait in its accept queue",
    };
    format!(
        "{all}: {} {waiting} on average{wait}.{alone}{}",
        format_number(significant(full.queue, 3)),
        waiting_text(facts, full)
    )
}

/// What the workers do meanwhile.
fn waiting_text(facts: &Facts, full: &FullApplication<'_>) -> String {
    let Some((workers, cores)) = full.workers.zip(cores(facts, full)) else { return String::new() };
    if cores > WAITING_CORES_MAX * workers {
        return format!(" Together they use {} cores.", format_number(significant(cores, 2)));
    }
    let what = concurrency::wait_cause_text(facts, workers)
        .filter(|what| full.listener.is_empty() || !what.ends_with(full.listener));
    let what = what.map_or(String::new(), |what| format!(" ({what})"));
    format!(
        " Together they use only {} cores: they wait themselves{what}.",
        format_number(significant(cores, 2))
    )
}

/// As many workers as requests come at once, and if they compute no more than the cores can run.
fn remedy(facts: &Facts, full: &FullApplication<'_>) -> Remedy {
    let workers = full.workers;
    let each = workers.zip(cores(facts, full)).map(|(workers, cores)| cores / workers);
    let usable = facts.value(FactId::usable_cores);
    let busy =
        each.zip(usable).filter(|(each, _)| *each >= 0.01).map(|(each, usable)| (usable / each).floor());
    let demand = workers.map(|workers| workers + full.queue);
    let wanted = demand.map(|demand| (HEADROOM * demand).ceil());
    let to = wanted.map(|wanted| busy.map_or(wanted, |most| wanted.min(most)));
    let to = to.zip(workers).filter(|(to, workers)| to > workers).map(|(to, _)| to);
    let bound = if to.zip(wanted).is_some_and(|(to, wanted)| to < wanted) {
        "; more than that would only wait for a core"
    } else {
        ""
    };
    let why = match demand {
        Some(demand) => format!(
            "{} requests need a worker at once, plus 30% headroom{bound}. In its own settings: workers or threads (gunicorn), processes (uWSGI), workers and threads (Puma), maxThreads (Tomcat)",
            format_number(significant(demand, 3))
        ),
        None => "more processes or threads in its own settings, until none of its connections waits".into(),
    };
    Remedy {
        setting: SettingId::application("workers"),
        from: workers.map(|workers| SettingValue::Integer(workers as i64)),
        to: to.map(|to| SettingValue::Integer(to as i64)),
        class: ApplyClass::Manual,
        risk:
            "each worker takes as much memory as those that run; what is behind it gets more requests at once"
                .into(),
        why,
        predicted: predicted(facts, workers, to),
        together_with: vec![],
    }
}

/// Little's law: as many as are in flight can be served at once, and each takes as long as now.
fn predicted(facts: &Facts, workers: Option<f64>, to: Option<f64>) -> Option<Predicted> {
    let (workers, to) = workers.zip(to)?;
    let rate = facts.value(FactId::rate).filter(|_| facts.loaded)?;
    let at_once = facts.value(FactId::in_flight_mean)?;
    let expected = rate * (to.min(at_once) / workers).max(1.0);
    Some(concurrency::predicted(facts, expected, PREDICTION_ERROR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts_of_several, scoped_setting, with_changes};
    use crate::settings::backends::UNKNOWN;
    use webdyno_model::service::ServiceSnapshot;
    use webdyno_model::topology::{Link, Topology};

    const APP: &str = "127.0.0.1:8000";

    /// nginx before four workers of 80 ms each, and fifty users.
    fn check_with(
        changes: &[(FactId, f64)],
        several: &[(FactId, &str, f64)],
        program: Option<&str>,
    ) -> Option<Finding> {
        check(&of(changes, several, program))
    }

    fn of(changes: &[(FactId, f64)], several: &[(FactId, &str, f64)], program: Option<&str>) -> Facts {
        let base = [
            (FactId::in_flight_mean, 50.0),
            (FactId::rate, 50.0),
            (FactId::cpu_busy_fraction, 0.06),
            (FactId::usable_cores, 2.0),
            (FactId::response_time_mean_us, 1_000_000.0),
            (FactId::response_time_alone_us, 80_000.0),
        ];
        let behind = [
            (FactId::backend_queue_mean, APP, 46.0),
            (FactId::backend_waiting_fraction, APP, 1.0),
            (FactId::backend_processes_mean, "unknown", 5.0),
            (FactId::backend_threads_mean, "unknown", 5.0),
            (FactId::backend_cpu_cores, "unknown", 0.04),
        ];
        let is_changed = |(name, of, _): &&(FactId, &str, f64)| {
            several.iter().any(|(changed, changed_of, _)| changed == name && changed_of == of)
        };
        let kept = behind.iter().filter(|one| !is_changed(one)).chain(several).copied();
        let several: Vec<_> = kept.filter(|(_, _, value)| value.is_finite()).collect();
        let mut facts = facts_of_several(&with_changes(&base, changes), &several);
        facts.service.as_mut().unwrap().service = "nginx".into();
        let backend = program.map(|program| ServiceSnapshot {
            service: program.into(),
            pid: 7,
            executable: Some("/usr/bin/python3.11".into()),
            listens: vec![APP.into()],
            ..ServiceSnapshot::default()
        });
        facts.topology = Some(Topology { backends: backend.into_iter().collect(), ..Topology::default() });
        facts
    }

    #[test]
    fn before_they_are_all_busy_it_is_known_at_which_rate_they_will_be() {
        let at = |waiting: f64, queue: f64, program: &str| {
            let several =
                [(FactId::upstream_waiting_mean, APP, waiting), (FactId::backend_queue_mean, APP, queue)];
            let ceiling = super::super::ceiling::ceiling(&of(&[], &several, Some(program)))?.ceiling;
            Some((ceiling.limit, ceiling.now, ceiling.max, ceiling.binds_at_rate))
        };
        let of_python = |now: f64, rate: f64| {
            Some(("workers of python3.11".to_owned(), Some(now), Some(4.0), Some(rate)))
        };
        assert_eq!(at(1.0, 0.0, "unknown"), of_python(1.0, 200.0));
        assert_eq!(at(50.0, 46.0, "unknown"), of_python(4.0, 50.0));
        assert_eq!(at(1.0, 0.0, "php_fpm"), None);
    }

    #[test]
    fn a_lasting_queue_of_an_application_server_is_one_of_workers() {
        let found = check_with(&[], &[], Some("unknown")).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (0.9, Some(0.92)));
        let begins = "All 4 workers of python3.11 at 127.0.0.1:8000 busy: 46 connections wait in its accept queue on average, 920 ms of the 1 s response time. A request alone takes 80 ms. Together they use only 0.04 cores: they wait themselves.";
        assert_eq!(found.summary, begins);
        let remedy = &found.remedies[0];
        assert_eq!(
            (&remedy.from, &remedy.to),
            (&Some(SettingValue::Integer(4)), &Some(SettingValue::Integer(65)))
        );
        assert_eq!(remedy.predicted.as_ref().map(|one| one.rate), Some(625.0));
        let nan = f64::NAN;
        for (what, changes, several, program, confidence) in [
            ("nobody knows who listens", vec![], vec![], None, Some(0.5)),
            ("PHP-FPM has a rule", vec![], vec![], Some("php_fpm"), None),
            ("a burst", vec![], vec![(FactId::backend_waiting_fraction, APP, 0.2)], Some("unknown"), None),
            ("short", vec![], vec![(FactId::backend_queue_mean, APP, 3.0)], Some("unknown"), None),
            (
                "short, and the front accepts no more",
                vec![(FactId::accept_queue_mean, 39.0)],
                vec![(FactId::backend_queue_mean, APP, 7.0)],
                Some("unknown"),
                Some(0.9),
            ),
            ("none", vec![], vec![(FactId::backend_queue_mean, APP, nan)], Some("unknown"), None),
            (
                "the processors are what is short",
                vec![(FactId::pressure_group_cpu_some_fraction, 0.9)],
                vec![],
                Some("unknown"),
                None,
            ),
            (
                "others fill the processors",
                vec![(FactId::cpu_busy_fraction, 0.98)],
                vec![],
                Some("unknown"),
                Some(0.7),
            ),
            (
                "another one behind it",
                vec![],
                vec![
                    (FactId::backend_queue_mean, "127.0.0.1:9000", 4.0),
                    (FactId::backend_waiting_fraction, "127.0.0.1:9000", 1.0),
                ],
                Some("unknown"),
                Some(0.5),
            ),
        ] {
            let found = check_with(&changes, &several, program);
            assert_eq!(found.map(|finding| finding.confidence), confidence, "{what}");
        }
    }

    #[test]
    fn what_takes_in_all_connections_has_its_queue_inside() {
        let with = |changes: &[(FactId, f64)], busiest: f64, queue: f64, setting: &str| {
            let several = [
                (FactId::backend_queue_mean, APP, queue),
                (FactId::upstream_waiting_mean, APP, 50.0),
                (FactId::backend_busiest_thread_fraction, "unknown", busiest),
            ];
            let mut facts =
                of(&with_changes(&[(FactId::failed_fraction, 0.0)], changes), &several, Some("unknown"));
            facts.service.as_mut().unwrap().scoped = vec![scoped_setting(setting, APP, &[])];
            check(&facts)
        };
        let found = with(&[], 0.1, f64::NAN, "proxy_pass").unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (0.5, Some(0.92)));
        for part in
            ["python3.11 at 127.0.0.1:8000 serves 4 at a time", "46 requests wait inside of it on average"]
        {
            assert!(found.summary.contains(part), "{}", found.summary);
        }
        for (what, changes, busiest, setting) in [
            ("as quick as alone", vec![(FactId::response_time_mean_us, 90_000.0)], 0.1, "proxy_pass"),
            ("requests fail", vec![(FactId::failed_fraction, 0.2)], 0.1, "proxy_pass"),
            ("as many as are there are served", vec![(FactId::rate, 500.0)], 0.1, "proxy_pass"),
            ("it computes", vec![], 0.7, "proxy_pass"),
            ("nobody passes requests to it", vec![], 0.1, "listen"),
        ] {
            assert!(with(&changes, busiest, f64::NAN, setting).is_none(), "{what}");
        }
    }

    #[test]
    fn what_queues_in_front_of_it_is_not_what_its_workers_wait_for() {
        let (fpm, partner) = ("127.0.0.1:9000", "10.0.0.9:80");
        let queue = [(FactId::backend_queue_mean, fpm, 4.0), (FactId::backend_waiting_fraction, fpm, 1.0)];
        let slow =
            [(FactId::upstream_waiting_mean, partner, 4.0), (FactId::upstream_waiting_mean, APP, 50.0)];
        let with = |several: &[(FactId, &str, f64)], links: &[(u32, Option<u32>, &str)]| {
            let mut facts = of(&[(FactId::failed_fraction, 0.0)], several, Some("unknown"));
            let topology = facts.topology.as_mut().unwrap();
            topology.backends.push(ServiceSnapshot {
                service: "php_fpm".into(),
                pid: 9,
                listens: vec![fpm.into()],
                ..ServiceSnapshot::default()
            });
            let link = |(from_pid, to_pid, by): &(u32, Option<u32>, &str)| {
                let (from_pid, to_pid) = (*from_pid, *to_pid);
                Link { from_pid, to_pid, by: (*by).into(), ..Link::default() }
            };
            topology.links = links.iter().map(link).collect();
            check(&facts).map(|finding| finding.confidence)
        };
        assert_eq!(with(&queue, &[]), Some(0.5), "nobody knows which is in front");
        assert_eq!(with(&queue, &[(9, Some(7), APP)]), Some(0.9), "pages of PHP ask it");
        assert_eq!(with(&queue, &[(7, Some(9), fpm)]), Some(0.5), "it asks PHP-FPM");
        assert_eq!(with(&slow, &[(1, Some(7), APP)]), Some(0.9), "who asks that server is not known");
        // 64 ms for each of those that end, where one alone takes a millisecond in all.
        let alone = |alone_us: f64| {
            let mut facts = of(
                &[(FactId::failed_fraction, 0.2), (FactId::response_time_alone_us, alone_us)],
                &slow,
                Some("unknown"),
            );
            let link = Link { from_pid: 7, by: partner.into(), ..Link::default() };
            facts.topology.as_mut().unwrap().links = vec![link];
            check(&facts).map(|finding| finding.confidence)
        };
        assert_eq!([alone(1_000.0), alone(80_000.0)], [Some(0.5), Some(0.9)]);
    }

    #[test]
    fn workers_that_wait_for_each_other_are_not_what_is_short() {
        let at = |rate: f64, processes: f64, threads: f64| {
            let seen = (FactId::upstream_waiting_mean, APP, 50.0);
            let of = [
                (FactId::backend_processes_mean, "unknown", processes),
                (FactId::backend_threads_mean, "unknown", threads),
                seen,
            ];
            check_with(&[(FactId::rate, rate), (FactId::failed_fraction, 0.0)], &of, Some("unknown")).map(
                |found| (found.confidence, found.remedies[0].from.as_ref().and_then(SettingValue::number)),
            )
        };
        assert_eq!(at(50.0, 5.0, 5.0), Some((0.9, Some(4.0))), "four that are alone would do as much");
        assert_eq!(at(20.0, 5.0, 5.0), None, "four processes do the work of 1.6");
        assert_eq!(at(12.5, 5.0, 5.0), Some((0.5, Some(1.0))), "a lock, or one of them");
        // Nobody counted its workers: four connections that it took in are no four workers.
        assert_eq!(at(20.0, 1.0, 12.0), Some((0.5, Some(2.0))));
    }

    #[test]
    fn workers_are_those_that_are_seen_to_serve_and_no_more_than_cores_can_run() {
        let seen = |several: &[(FactId, &str, f64)]| {
            let remedy = check_with(&[], several, Some("unknown")).unwrap().remedies.remove(0);
            [remedy.from, remedy.to].map(|value| value.and_then(|value| value.number()))
        };
        // Threads: eight are served of 54 that wait for an answer.
        let threads = [(FactId::backend_threads_mean, "unknown", 12.0)];
        let served = [threads[0], (FactId::upstream_waiting_mean, APP, 54.0)];
        assert_eq!(seen(&served), [Some(8.0), Some(71.0)]);
        assert_eq!(seen(&threads), [None, None]);
        // Each takes 0.4 of a core: two cores run five.
        assert_eq!(seen(&[(FactId::backend_cpu_cores, "unknown", 1.6)]), [Some(4.0), Some(5.0)]);
    }

    #[test]
    fn an_application_server_without_a_proxy_has_its_queue_at_the_port() {
        let values =
            [(FactId::in_flight_mean, 50.0), (FactId::accept_queue_mean, 46.0), (FactId::rate, 50.0)];
        let of = |name: &str| {
            let mut facts = facts_of_several(&values, &[]);
            facts.service.as_mut().unwrap().service = name.into();
            check(&facts).map(|finding| finding.summary)
        };
        assert!(of(UNKNOWN).unwrap().starts_with("All 4 workers of unknown busy: 46 connections wait"));
        assert_eq!(of("apache"), None);
    }
}
