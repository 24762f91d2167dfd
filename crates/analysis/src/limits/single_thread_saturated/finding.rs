//! When `single-thread-saturated` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::time_breakdown::{keeps_up, noticed_queue};
use crate::resources::{concurrency, memory_evidence, processors};
use crate::settings::backends;
use crate::wording::format_number;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// A thread that never waits is seen a little below a whole core.
const SATURATED_FRACTION: f64 = 0.88;
/// The same where connections wait until the program accepts them: then it had something to do all the time, and what interrupted
/// it is the rest.
const SATURATED_FRACTION_QUEUED: f64 = 0.75;
const QUEUE_MIN: f64 = 2.0;
/// Where no core is idle, others interrupt it: then it is its requests that wait, for so much longer than one that is alone.
const SQUEEZED_TIMES_MIN: f64 = 2.0;
/// What the other threads of the program use together at most.
const OTHERS_CORES_MAX: f64 = 0.4;
/// Cores that must be idle for another thread to have something to run on.
const IDLE_CORES_MIN: f64 = 0.35;
/// Cores that the chain leaves where other programs fill them.
const LEFT_CORES_MIN: f64 = 0.7;
const CONFIDENCE_BESIDE_OTHERS: f64 = 0.6;
/// Clients who are refused come again at once: what makes errors is busy with that.
const CONFIDENCE_OF_ERRORS: f64 = 0.4;
/// A group that is stopped in more of its periods has used up its quota, and not just in a burst (`cpu-throttled`).
const STOPPED_FRACTION_MIN: f64 = 0.1;
/// In so much of the samples some thread was saturated.
const SATURATED_THREADS_MIN: f64 = 0.7;
/// With fewer requests at once no second thread has anything to do.
const IN_FLIGHT_MIN: f64 = 2.0;

/// Threads that share one core behind a lock: their process uses one, never much more.
const ONE_CORE_MIN: f64 = 0.88;
const ONE_CORE_MAX: f64 = 1.15;
/// So many are at work on it.
const RUNNING_PER_CORE_MIN: f64 = 2.0;

/// The program whose thread it is.
struct Saturated {
    /// The name of its facts; `None` for the service in front.
    instance: Option<String>,
    /// What it is called.
    program: String,
    /// Of a core, that the thread uses, or all threads of the process together.
    fraction: f64,
    threads: f64,
    /// Whether it is several threads of one process that share a core.
    is_shared: bool,
    /// Processes that are all as busy, and all that may serve.
    processes: f64,
}

/// Fires when one thread of the chain has a core to itself, and others are idle.
pub fn check(facts: &Facts) -> Option<Finding> {
    let usable = facts.value(FactId::usable_cores).or(facts.value(FactId::cores))?;
    let busy = facts.value(FactId::usable_busy_fraction).or(facts.value(FactId::cpu_busy_fraction))?;
    // Of idle cores a quota may leave nothing: another thread would be stopped with the first one.
    let of_quota = left_of_quota(facts).unwrap_or(f64::INFINITY);
    let idle = (usable * (1.0 - busy)).min(of_quota);
    let in_flight = in_flight(facts)?;
    // Others may fill what it leaves: it would be no faster without them, as long as it does not wait for a core.
    let left = (usable - processors::own_cores(facts).unwrap_or(usable)).min(of_quota);
    let is_left = left >= LEFT_CORES_MIN && processors::cpu_shortage(facts).is_none();
    if usable < 2.0
        || (idle < IDLE_CORES_MIN && !is_left)
        || in_flight < IN_FLIGHT_MIN
        || keeps_up(facts) == Some(true)
        || memory_evidence::is_proven(facts)
        || has_few_nginx_workers(facts, usable)
    {
        return None;
    }
    let found = saturated(facts, usable, idle < IDLE_CORES_MIN)?;
    let (who, uses, what) = match found.is_shared {
        true => ("The threads of one process", "use", "that process, whose threads run one at a time"),
        false if found.processes > 1.0 => ("Each worker", "uses", "them"),
        false => ("One thread", "uses", "that thread"),
    };
    let others = match idle >= IDLE_CORES_MIN {
        true => {
            format!("{} of the {} cores are idle", format_number(significant(idle, 2)), format_number(usable))
        }
        false if facts.value(FactId::client_cpu_cores).is_some_and(|cores| cores >= IDLE_CORES_MIN) => {
            "the load generator uses the other cores".to_owned()
        }
        false => "other programs use the other cores".to_owned(),
    };
    let mut cited = match &found.instance {
        Some(name) => facts.cite_of(&OF_BACKEND, name),
        None => facts.cite(&OF_SERVICE),
    };
    cited.extend(facts.cite(&OF_ALL));
    Some(Finding {
        id: LimitId::SingleThreadSaturated.into(),
        summary: format!(
            "{who} of {} {uses} {:.0}% of a core, while {others}: {} requests in flight wait for {what}.",
            backends::display_name(&found.program),
            found.fraction * 100.0,
            format_number(significant(in_flight, 3)),
        ),
        // Programs that the workers started may be among what is busy.
        confidence: match found.is_shared || found.processes > 1.0 {
            _ if concurrency::is_mostly_errors(facts) => CONFIDENCE_OF_ERRORS,
            _ if idle < IDLE_CORES_MIN => CONFIDENCE_BESIDE_OTHERS,
            true => 0.75,
            false => 0.9,
        },
        explains_fraction: explained_share(facts, &found),
        facts: cited,
        remedies: vec![remedy(facts, &found, usable)],
    })
}

/// Cores that a quota which stops the service's group leaves beside what the group uses; `None` where none does, or it is not known.
fn left_of_quota(facts: &Facts) -> Option<f64> {
    let stopped = facts.value(FactId::throttled_fraction)?;
    let (quota, used) = facts.value(FactId::cpu_quota_cores).zip(facts.value(FactId::group_cpu_cores))?;
    (stopped >= STOPPED_FRACTION_MIN).then(|| (quota - used).max(0.0))
}

/// Whether nginx has fewer workers than cores: then more of them are what is missing (`nginx-workers-saturated`).
fn has_few_nginx_workers(facts: &Facts, usable: f64) -> bool {
    let workers = facts.setting("worker_processes").filter(|workers| *workers >= 1.0);
    facts.is_service("nginx") && workers.is_some_and(|workers| workers < usable.floor())
}

/// Processes of lighttpd that serve, each in one thread.
pub(super) fn lighttpd_workers(facts: &Facts) -> f64 {
    let workers = facts.setting(LIGHTTPD_WORKERS).filter(|_| facts.is_service("lighttpd"));
    workers.map_or(1.0, |workers| workers.max(1.0))
}

/// Requests at once; of a server that was only watched those that wait for an answer of what is behind it, or connections on which
/// something is asked.
fn in_flight(facts: &Facts) -> Option<f64> {
    let asked = || {
        let (all, idle) =
            (facts.value(FactId::client_connections_mean)?, facts.value(FactId::idle_connections_mean)?);
        Some((all - idle).max(0.0))
    };
    concurrency::requests_in_flight(facts)
        .or_else(|| facts.value(FactId::upstream_waiting_mean).filter(|waiting| *waiting >= IN_FLIGHT_MIN))
        .or_else(asked)
}

const LIGHTTPD_WORKERS: &str = "server.max-worker";

const OF_SERVICE: [FactId; 4] =
    fact_ids! { busiest_thread_fraction, saturated_threads_mean, busiest_process_cores, service_cpu_cores };
const OF_BACKEND: [FactId; 4] = fact_ids! {
    backend_busiest_thread_fraction, backend_saturated_threads_mean, backend_busiest_process_cores, backend_cpu_cores,
};
const OF_ALL: [FactId; 8] = fact_ids! {
    usable_busy_fraction, usable_cores, cpu_busy_fraction, cores, in_flight_mean, response_time_mean_us,
    response_time_alone_us, rate,
};

/// What is known of the threads of a program: the busiest one, how many are saturated, and the busiest process.
#[derive(Clone, Copy)]
struct ThreadUse {
    fraction: f64,
    threads: f64,
    process: Option<(f64, f64)>,
    /// Cores that the whole program uses.
    cores: Option<f64>,
    /// Whether connections wait until it accepts them, or others take a core from it at times.
    is_queued: bool,
    /// Processes of one thread that share its work, fewer than cores; else one.
    processes: f64,
}

/// The busiest program that has a saturated thread in most of the samples, or a process whose threads share one core.
fn saturated(facts: &Facts, usable: f64, is_squeezed: bool) -> Option<Saturated> {
    let alone = facts.value(FactId::response_time_alone_us);
    let waits = alone
        .zip(facts.value(FactId::response_time_mean_us))
        .is_some_and(|(alone, usual)| usual >= SQUEEZED_TIMES_MIN * alone);
    let is_squeezed = is_squeezed && waits;
    let name = facts.service.as_ref().map_or("the service", backends::program_name);
    let value = |name: FactId| facts.value(name);
    let front = value(FactId::busiest_thread_fraction).map(|fraction| ThreadUse {
        fraction,
        threads: value(FactId::saturated_threads_mean).unwrap_or(0.0),
        // A process of lighttpd has one thread, and no lock between several.
        process: value(FactId::busiest_process_cores)
            .zip(value(FactId::busiest_process_max_cores))
            .filter(|_| !facts.is_service("lighttpd")),
        cores: value(FactId::service_cpu_cores),
        is_queued: is_squeezed || noticed_queue(facts).is_some(),
        processes: Some(lighttpd_workers(facts)).filter(|workers| *workers < usable.floor()).unwrap_or(1.0),
    });
    let front = front.and_then(|seen| of_threads(seen, None, name));
    let topology = facts.topology.as_ref();
    let behind = facts.each(FactId::backend_busiest_thread_fraction).filter_map(|(name, fraction)| {
        let service =
            topology.and_then(|topology| backends::named(topology).find(|(known, _)| known == name));
        let of = |fact: FactId| facts.value_of(fact, name);
        let seen = ThreadUse {
            fraction,
            threads: of(FactId::backend_saturated_threads_mean).unwrap_or(0.0),
            process: of(FactId::backend_busiest_process_cores)
                .zip(of(FactId::backend_busiest_process_max_cores))
                .filter(|(cores, _)| name != "mariadb" || wait_for_each_other(facts, *cores)),
            cores: of(FactId::backend_cpu_cores),
            is_queued: is_squeezed || is_queued(facts, name),
            processes: 1.0,
        };
        of_threads(seen, Some(name), service.map_or(name, |(_, service)| backends::program_name(service)))
    });
    front.into_iter().chain(behind).max_by(|a, b| a.fraction.total_cmp(&b.fraction))
}

/// Whether more statements run than cores work on them: else their threads use one core by chance.
fn wait_for_each_other(facts: &Facts, cores: f64) -> bool {
    concurrency::statements_running(facts).is_none_or(|running| running >= RUNNING_PER_CORE_MIN * cores)
}

/// Whether connections wait in front of this program.
fn is_queued(facts: &Facts, name: &str) -> bool {
    let Some(topology) = &facts.topology else { return false };
    let mut queues = facts.each(FactId::backend_queue_mean).filter(|(_, queue)| *queue >= QUEUE_MIN);
    queues.any(|(at, _)| backends::listening_at(topology, at).is_some_and(|(known, _)| known == name))
}

fn of_threads(seen: ThreadUse, instance: Option<&str>, program: &str) -> Option<Saturated> {
    // Several that are as busy are workers that compute, and others like them would help: unless there may be no more.
    let is_alone = seen.cores.is_none_or(|cores| cores <= seen.fraction + OTHERS_CORES_MAX);
    let are_all = seen.processes > 1.0
        && seen.threads >= SATURATED_THREADS_MIN * seen.processes
        && seen.cores.is_some_and(|cores| {
            (SATURATED_FRACTION * seen.processes..=seen.processes + OTHERS_CORES_MAX).contains(&cores)
        });
    let each = seen.cores.filter(|_| are_all).map(|cores| cores / seen.processes);
    let of = |fraction: f64, is_shared: bool| Saturated {
        instance: instance.map(str::to_owned),
        program: program.to_owned(),
        fraction,
        threads: seen.threads.max(1.0),
        is_shared,
        processes: if are_all && !is_shared { seen.processes } else { 1.0 },
    };
    let is_one = match seen.is_queued {
        _ if !is_alone && !are_all => false,
        true => seen.fraction >= SATURATED_FRACTION_QUEUED,
        false => seen.fraction >= SATURATED_FRACTION && seen.threads >= SATURATED_THREADS_MIN,
    };
    let least = if seen.is_queued { SATURATED_FRACTION_QUEUED } else { ONE_CORE_MIN };
    let shared = seen.process.filter(|(mean, max)| *mean >= least && *max <= ONE_CORE_MAX);
    is_one
        .then(|| of(each.unwrap_or(seen.fraction).min(seen.fraction), false))
        .or_else(|| shared.map(|(mean, _)| of(mean.min(1.0), true)))
}

/// All of the response time but that thread's own time per request: the rest is the wait for it.
fn explained_share(facts: &Facts, found: &Saturated) -> Option<f64> {
    let work_us = found.fraction * found.threads / facts.ended_per_s()? * 1e6;
    let response_us = facts.value(FactId::response_time_mean_us).filter(|us| *us > 0.0)?;
    Some(significant((1.0 - work_us / response_us).clamp(0.0, 1.0), 3))
}

/// Programs that keep values in memory and execute commands in one thread: another process would not have their values.
const STORES: [&str; 3] = ["redis", "valkey", "keydb"];

fn remedy(facts: &Facts, found: &Saturated, usable: f64) -> Remedy {
    let to = Some(SettingValue::Integer(usable.floor() as i64));
    let is_front_nginx = found.instance.is_none() && facts.is_service("nginx");
    let is_front_lighttpd = found.instance.is_none() && facts.is_service("lighttpd");
    let is_of = |names: &[&str]| names.iter().any(|name| found.program.starts_with(name));
    match found.instance.as_deref() {
        _ if is_front_nginx => manual(
            SettingId::of_service("nginx", "listen"),
            "none for the site",
            "one worker has nearly all connections: `listen .. reuseport` spreads new ones over all workers; and less work for each response (gzip_comp_level)",
        ),
        _ if is_front_lighttpd && lighttpd_workers(facts) > found.processes => manual(
            SettingId::of_service("lighttpd", "server.max-keep-alive-requests"),
            "more connections are begun, each with its handshakes",
            "one of several workers has nearly all the work: a connection stays with the worker that accepted it, and one that ends earlier is spread anew; and less work for each response (what it compresses, and how)",
        ),
        _ if is_front_lighttpd => Remedy {
            from: facts.setting(LIGHTTPD_WORKERS).map(|workers| SettingValue::Integer(workers as i64)),
            to,
            ..manual(
                SettingId::of_service("lighttpd", LIGHTTPD_WORKERS),
                "a restart; each worker has its own counts of mod_status, its own server.max-connections and rate limits",
                "each process serves its connections in one thread: one for each core; before that less work for each response (what it compresses, and how)",
            )
        },
        Some(_) if is_of(&["mariadb"]) || is_of(&processors::DATABASES) => manual(
            SettingId::application("statements"),
            "none",
            "a statement uses one core: find the longest one (SHOW FULL PROCESSLIST, or pg_stat_activity, under load), and give it an index or split it",
        ),
        Some(_) if is_of(&STORES) => manual(
            SettingId::application("commands"),
            "none",
            "it executes one command after the other: find those that cost most (SLOWLOG GET, INFO commandstats), none that goes over all keys (KEYS), and many values by one (MGET)",
        ),
        _ => Remedy {
            to,
            ..manual(
                SettingId::application("workers"),
                "each process takes as much memory as the one that runs, and shares no state in memory with it",
                "one process for each core (workers of gunicorn, cluster mode of Node and Puma): a thread uses one core at most",
            )
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts_of_several, with_changes};
    use webdyno_model::service::ServiceSnapshot;
    use webdyno_model::topology::Topology;

    const BASE: [(FactId, f64); 6] = [
        (FactId::usable_cores, 4.0),
        (FactId::usable_busy_fraction, 0.3),
        (FactId::in_flight_mean, 30.0),
        (FactId::ended_per_s, 100.0),
        (FactId::rate, 100.0),
        (FactId::response_time_mean_us, 300_000.0),
    ];

    fn with(changes: &[(FactId, f64)], several: &[(FactId, &str, f64)]) -> Option<Finding> {
        let mut facts = facts_of_several(&with_changes(&BASE, changes), several);
        facts.service.as_mut().unwrap().service = "nginx".into();
        let backend = ServiceSnapshot {
            service: backends::UNKNOWN.into(),
            pid: 3,
            executable: Some("/usr/bin/node".into()),
            listens: vec!["127.0.0.1:3000".into()],
            ..ServiceSnapshot::default()
        };
        facts.topology = Some(Topology { backends: vec![backend], ..Topology::default() });
        check(&facts)
    }

    #[test]
    fn a_thread_with_a_core_of_its_own_beside_idle_ones_is_proof() {
        let front = [(FactId::busiest_thread_fraction, 0.98), (FactId::saturated_threads_mean, 1.0)];
        let found = with(&front, &[]).unwrap();
        assert!(
            found
                .summary
                .starts_with("One thread of nginx uses 98% of a core, while 2.8 of the 4 cores are idle: 30"),
            "{}",
            found.summary
        );
        // 9.8 ms of each 300 are its work.
        assert_eq!((found.confidence, found.explains_fraction), (0.9, Some(0.967)));
        let quota = [
            (FactId::throttled_fraction, 0.0),
            (FactId::cpu_quota_cores, 1.0),
            (FactId::group_cpu_cores, 1.0),
        ];
        assert!(with(&[&front[..], &quota].concat(), &[]).is_some(), "nothing is stopped");
        let beside =
            [&front[..], &[(FactId::usable_busy_fraction, 0.99), (FactId::service_cpu_cores, 1.0)]].concat();
        let found = with(&beside, &[]).unwrap();
        assert_eq!(found.confidence, CONFIDENCE_BESIDE_OTHERS);
        assert!(found.summary.contains("while other programs use the other cores"), "{}", found.summary);
    }

    #[test]
    fn a_program_behind_is_told_by_its_name_and_threads_may_share_a_core() {
        let app = [
            (FactId::backend_busiest_thread_fraction, "unknown", 0.99),
            (FactId::backend_saturated_threads_mean, "unknown", 1.0),
        ];
        let found = with(&[], &app).unwrap();
        assert!(found.summary.starts_with("One thread of node uses 99%"), "{}", found.summary);
        assert_eq!(found.remedies[0].to, Some(SettingValue::Integer(4)));
        // Twelve threads of Python that share one core.
        let lock = |max: f64| {
            let shared = [
                (FactId::backend_busiest_thread_fraction, "unknown", 0.2),
                (FactId::backend_saturated_threads_mean, "unknown", 0.0),
                (FactId::backend_busiest_process_cores, "unknown", 1.0),
                (FactId::backend_busiest_process_max_cores, "unknown", max),
            ];
            with(&[], &shared)
        };
        assert_eq!(lock(1.02).map(|finding| finding.confidence), Some(0.75));
        assert!(
            lock(1.02).unwrap().summary.contains("wait for that process, whose threads run one at a time")
        );
        assert!(lock(1.6).is_none(), "it used more at times");
        // Of a database the statements are counted: those of five children of PHP that use a core between them do not wait.
        let statements = |running: f64| {
            let shared = [
                (FactId::backend_busiest_thread_fraction, "mariadb", 0.3),
                (FactId::backend_saturated_threads_mean, "mariadb", 0.0),
                (FactId::backend_busiest_process_cores, "mariadb", 1.0),
                (FactId::backend_busiest_process_max_cores, "mariadb", 1.07),
            ];
            with(&[(FactId::db_threads_running_mean, running)], &shared).is_some()
        };
        assert!(statements(9.0) && !statements(2.3));
        // A queue before it shows that it had something to do all the time.
        let node = |queue: f64| {
            let busy = [
                (FactId::backend_busiest_thread_fraction, "unknown", 0.82),
                (FactId::backend_saturated_threads_mean, "unknown", 0.4),
                (FactId::backend_queue_mean, "127.0.0.1:3000", queue),
            ];
            with(&[], &busy).is_some()
        };
        assert!(node(18.0) && !node(0.5));
    }

    #[test]
    fn what_to_do_is_told_of_the_program_that_it_is() {
        let app = [
            (FactId::backend_busiest_thread_fraction, "unknown", 0.99),
            (FactId::backend_saturated_threads_mean, "unknown", 1.0),
        ];
        for (executable, setting) in [
            ("/usr/bin/node", "workers"),
            ("/usr/bin/redis-check-rdb", "commands"),
            ("/usr/lib/postgresql/15/bin/postgres", "statements"),
        ] {
            let mut facts = facts_of_several(&BASE, &app);
            let backend = ServiceSnapshot {
                service: backends::UNKNOWN.into(),
                pid: 3,
                executable: Some(executable.into()),
                ..ServiceSnapshot::default()
            };
            facts.topology = Some(Topology { backends: vec![backend], ..Topology::default() });
            assert_eq!(check(&facts).unwrap().remedies[0].setting.name, setting);
        }
    }

    #[test]
    fn a_front_that_is_one_process_gets_others_by_its_own_setting() {
        let front = [(FactId::busiest_thread_fraction, 0.98), (FactId::saturated_threads_mean, 1.0)];
        for (program, setting) in [
            ("lighttpd", "lighttpd server.max-worker"),
            ("nginx", "nginx listen"),
            ("haproxy", "application workers"),
        ] {
            let mut facts = facts_of_several(&[&BASE[..], &front].concat(), &[]);
            facts.service.as_mut().unwrap().service = program.into();
            assert_eq!(check(&facts).unwrap().remedies[0].setting.full_name(), setting);
        }
    }

    #[test]
    fn workers_of_lighttpd_are_full_together_or_one_of_them_has_the_work() {
        let with = |workers: i64, threads: f64, cores: f64| {
            let values = [
                (FactId::busiest_thread_fraction, 0.98),
                (FactId::busiest_process_cores, 0.98),
                (FactId::busiest_process_max_cores, 1.0),
                (FactId::saturated_threads_mean, threads),
                (FactId::service_cpu_cores, cores),
            ];
            let settings = [(LIGHTTPD_WORKERS, workers)];
            let mut facts = crate::facts::testing::facts(&[&BASE[..], &values].concat(), &settings);
            facts.service.as_mut().unwrap().service = "lighttpd".into();
            let found = check(&facts)?;
            Some((found.summary[..11].to_owned(), found.remedies[0].setting.name.clone(), found.confidence))
        };
        let found =
            |words: &str, setting: &str, sure: f64| Some((words.to_owned(), setting.to_owned(), sure));
        assert_eq!(with(0, 1.0, 0.98), found("One thread ", LIGHTTPD_WORKERS, 0.9));
        assert_eq!(with(2, 2.0, 1.88), found("Each worker", LIGHTTPD_WORKERS, 0.75));
        assert_eq!(with(3, 1.0, 1.0), found("One thread ", "server.max-keep-alive-requests", 0.9));
        assert_eq!(with(4, 1.0, 1.0), found("One thread ", "server.max-keep-alive-requests", 0.9));
        assert_eq!(with(3, 2.0, 1.9), None, "the third one would take more");
    }

    #[test]
    fn it_stays_silent_where_another_thread_would_not_help() {
        let front = [(FactId::busiest_thread_fraction, 0.98), (FactId::saturated_threads_mean, 1.0)];
        for (what, changes) in [
            ("a burst", vec![(FactId::saturated_threads_mean, 0.3)]),
            ("it waits", vec![(FactId::busiest_thread_fraction, 0.7)]),
            ("no core is idle", vec![(FactId::usable_busy_fraction, 0.95)]),
            ("there is one core", vec![(FactId::usable_cores, 1.0)]),
            ("others are as busy", vec![(FactId::service_cpu_cores, 1.9)]),
            ("one user", vec![(FactId::in_flight_mean, 1.0)]),
            ("it keeps up", vec![(FactId::offered_rate, 100.0)]),
            (
                "its quota is used up",
                vec![
                    (FactId::throttled_fraction, 0.8),
                    (FactId::cpu_quota_cores, 1.0),
                    (FactId::group_cpu_cores, 1.0),
                ],
            ),
            ("there are fewer workers than cores", vec![(FactId::cores, 4.0)]),
        ] {
            let mut facts = facts_of_several(&with_changes(&BASE, &[&front[..], &changes].concat()), &[]);
            let service = facts.service.as_mut().unwrap();
            service.service = "nginx".into();
            if what.contains("fewer workers") {
                *service = crate::facts::testing::apache(&[("worker_processes", 1)]);
                service.service = "nginx".into();
                crate::facts::testing::set(&mut facts, FactId::service_cpu_cores, 0.98);
                crate::facts::testing::set(&mut facts, FactId::cpu_busy_fraction, 0.3);
            }
            assert!(check(&facts).is_none(), "{what}");
        }
    }
}
