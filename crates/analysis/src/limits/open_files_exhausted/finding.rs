//! When `open-files-exhausted` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::concurrency::has_lasting_queue;
use crate::resources::php_fpm;
use crate::resources::time_breakdown::noticed_queue;
use crate::settings::backends;
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// Descriptors come and go within milliseconds: a process that is read once a second is seen near its limit, not at it.
const NEAR_LIMIT_FRACTION: f64 = 0.85;

/// At its limit a process is, that has none left but for a moment.
const AT_LIMIT_FRACTION: f64 = 0.98;

/// A process that has none left accepts nobody: connections wait, and nothing fails.
const CONFIDENCE_QUEUED: f64 = 0.8;
/// Behind it all children of PHP-FPM are busy: with more files more would wait for them, and no more be answered.
const CONFIDENCE_BEFORE_POOL: f64 = 0.5;
const QUEUE_MIN: f64 = 2.0;

/// Requests that fail at all.
const FAILED_FRACTION_MIN: f64 = 0.001;

/// Descriptors of a request: the visitor's connection and that of the backend, or a file.
const FILES_PER_CONNECTION: f64 = 2.0;

/// Logs, sockets, modules, and the pipes of programs.
const OTHER_FILES: f64 = 100.0;

/// What Debian gives Apache.
const USUAL_LIMIT: f64 = 8192.0;

/// What the kernel grants a process unless that is raised, too (fs.nr_open, proc_sys_fs(5)).
const FILES_MAX: f64 = 1_048_576.0;

/// Whose files have run out.
enum FilesOwner<'a> {
    Service,
    Backend(&'a str),
    Machine,
}

/// Fires when a log says so, or when a process stands at its limit while requests fail.
pub fn check(facts: &Facts) -> Option<Finding> {
    let at_least_one = |name: &FactId| facts.counted_often(*name).is_some();
    let fraction = facts.value(FactId::open_files_fraction);
    let (backend, backend_fraction) =
        facts.each(FactId::backend_open_files_fraction).max_by(|a, b| a.1.total_cmp(&b.1)).unzip();
    let failing = facts.value(FactId::failed_fraction).is_some_and(|failed| failed >= FAILED_FRACTION_MIN);
    let of_machine =
        [FactId::open_files_system_messages, FactId::kernel_file_max_messages].into_iter().find(at_least_one);
    let output =
        [FactId::open_files_messages, FactId::nginx_open_files_messages, FactId::open_files_program_messages]
            .into_iter()
            .find(at_least_one);
    let near = |fraction: Option<f64>, least: f64| fraction.is_some_and(|fraction| fraction >= least);
    let (owner, confidence) = match (output, of_machine) {
        (None, Some(_)) => (FilesOwner::Machine, 0.9),
        (Some(_), _) if near(fraction, NEAR_LIMIT_FRACTION) => (FilesOwner::Service, 0.95),
        (Some(_), _) => match backend.filter(|_| near(backend_fraction, NEAR_LIMIT_FRACTION)) {
            Some(backend) => (FilesOwner::Backend(backend), 0.9),
            // A descriptor that was refused is a request that failed, if the load is ours: else some other thing did.
            None => (FilesOwner::Service, if failing || !facts.loaded { 0.85 } else { 0.5 }),
        },
        (None, None) if failing && near(fraction, AT_LIMIT_FRACTION) => (FilesOwner::Service, 0.7),
        (None, None) if near(fraction, AT_LIMIT_FRACTION) && noticed_queue(facts).is_some() => {
            (FilesOwner::Service, CONFIDENCE_QUEUED)
        }
        (None, None) if near(backend_fraction, AT_LIMIT_FRACTION) && is_queued_for(facts, backend) => {
            (FilesOwner::Backend(backend?), CONFIDENCE_QUEUED)
        }
        (None, None) if failing && near(backend_fraction, AT_LIMIT_FRACTION) => {
            (FilesOwner::Backend(backend?), 0.7)
        }
        (None, None) => return None,
    };
    let is_behind = matches!(owner, FilesOwner::Service) && php_fpm::is_any_full_behind_errors(facts);
    let confidence = if is_behind { CONFIDENCE_BEFORE_POOL.min(confidence) } else { confidence };
    Some(Finding {
        id: LimitId::OpenFilesExhausted.into(),
        summary: summary(facts, &owner, output.or(of_machine)),
        confidence,
        explains_fraction: facts.value(FactId::failed_fraction).map(|failed| significant(failed.min(1.0), 3)),
        facts: cited_facts(facts, &owner),
        remedies: vec![remedy(facts, &owner)],
    })
}

/// Whether connections stand in an accept queue of this program nearly all the time.
fn is_queued_for(facts: &Facts, program: Option<&str>) -> bool {
    let is_its = |listener: &str| {
        let at = facts.topology.as_ref().and_then(|topology| backends::listening_at(topology, listener));
        at.is_some_and(|(name, _)| Some(name.as_str()) == program)
    };
    let mut queues = facts.each(FactId::backend_queue_mean);
    queues.any(|(at, queue)| queue >= QUEUE_MIN && has_lasting_queue(facts, at) && is_its(at))
}

fn summary(facts: &Facts, owner: &FilesOwner<'_>, message: Option<FactId>) -> String {
    let count = message.and_then(|name| facts.value(name));
    let fails = facts.value(FactId::failed_fraction).is_some_and(|failed| failed >= FAILED_FRACTION_MIN);
    let without_log = if fails { "requests fail" } else { "connections wait in its accept queue" };
    let output = count.map_or(without_log.into(), |count| {
        let times = if count == 1.0 { "once".into() } else { format!("{} times", format_number(count)) };
        format!("logged {times}: too many open files")
    });
    let failed = facts.value(FactId::failed_fraction).filter(|failed| *failed >= FAILED_FRACTION_MIN);
    let failed =
        failed.map_or(String::new(), |failed| format!(" {:.1}% of the requests failed.", failed * 100.0));
    let of = |open: Option<f64>, limit: Option<f64>| match (open, limit) {
        (Some(open), Some(limit)) => {
            format!(" Maximum seen in a process: {} of {}.", format_number(open), format_number(limit))
        }
        _ => String::new(),
    };
    let (who, observed) = match owner {
        FilesOwner::Service => (
            "the service's processes".to_owned(),
            of(facts.value(FactId::open_files_max), facts.value(FactId::open_files_limit)),
        ),
        FilesOwner::Backend(name) => {
            let value = |fact: FactId| facts.value_of(fact, name);
            let program = backends::program_of(facts.topology.as_ref(), name);
            (
                format!("the processes of {}", backends::display_name(program)),
                of(value(FactId::backend_open_files_max), value(FactId::backend_open_files_limit)),
            )
        }
        FilesOwner::Machine => ("all processes of the machine together".to_owned(), String::new()),
    };
    format!("Open files limit reached by {who}: {output}.{observed}{failed}")
}

fn cited_facts(facts: &Facts, owner: &FilesOwner<'_>) -> Vec<webdyno_model::fact::Fact> {
    let mut cited = facts.cite(&fact_ids! {
        open_files_messages, nginx_open_files_messages, open_files_program_messages, open_files_system_messages,
        kernel_file_max_messages, resource_short_exits, failed_fraction, rate,
    });
    cited.extend(match owner {
        FilesOwner::Service => {
            facts.cite(&[FactId::open_files_max, FactId::open_files_limit, FactId::open_files_fraction])
        }
        FilesOwner::Backend(name) => facts.cite_of(
            &fact_ids! {
                backend_open_files_max, backend_open_files_limit, backend_open_files_fraction,
            },
            name,
        ),
        FilesOwner::Machine => facts.cite(&[FactId::system_open_files_max, FactId::system_open_files_limit]),
    });
    cited
}

/// Twice what the connections of a process can need, and what is usual at least. More than each worker has one at a time
/// are held by the event MPM: those that wait for their next request.
fn needed_files(facts: &Facts, limit: Option<f64>) -> f64 {
    let factor = facts.setting("AsyncRequestWorkerFactor").filter(|_| is_event(facts)).unwrap_or(0.0);
    let connections = facts.threads_per_process() * (1.0 + factor);
    let needed = 2.0 * (FILES_PER_CONNECTION * connections + OTHER_FILES);
    [needed, USUAL_LIMIT, 2.0 * limit.unwrap_or(0.0)].into_iter().fold(0.0, f64::max)
}

/// As far as the kernel grants it; `None` where the limit is there already.
fn granted_files(needed: f64, limit: Option<f64>) -> Option<f64> {
    Some(needed.min(FILES_MAX)).filter(|to| limit.is_none_or(|limit| *to > limit))
}

fn is_event(facts: &Facts) -> bool {
    facts.service.as_ref().is_some_and(|service| service.mode.as_deref() == Some("event"))
}

fn remedy(facts: &Facts, owner: &FilesOwner<'_>) -> Remedy {
    if matches!(owner, FilesOwner::Service) && facts.is_service("nginx") {
        return of_nginx(facts);
    }
    let of = |service: &str| SettingId::of_service(service, "LimitNOFILE");
    let (setting, limit) = match owner {
        FilesOwner::Service => {
            let service = facts.service.as_ref().map_or("apache", |known| &known.service);
            (of(service), facts.value(FactId::open_files_limit))
        }
        FilesOwner::Backend(name) => (of(name), facts.value_of(FactId::backend_open_files_limit, name)),
        FilesOwner::Machine => {
            (SettingId::sysctl("fs.file-max"), facts.value(FactId::system_open_files_limit))
        }
    };
    let to = match owner {
        FilesOwner::Machine => limit.map(|limit| 2.0 * limit),
        _ => granted_files(needed_files(facts, limit), limit),
    };
    Remedy {
        setting,
        from: limit.map(|limit| SettingValue::Integer(limit as i64)),
        to: to.map(|to| SettingValue::Integer(to.ceil() as i64)),
        class: ApplyClass::Manual,
        risk: "by hand it takes a restart, as a process inherits its limit; `tune --apply` raises it in running processes".into(),
        why: "twice what the connections of a process need, plus logs, modules and programs; at least the usual value"
            .into(),
        predicted: None,
        together_with: vec![],
    }
}

/// nginx raises the limit of its workers itself.
fn of_nginx(facts: &Facts) -> Remedy {
    let limit = facts.value(FactId::open_files_limit);
    let places = facts.setting("worker_connections").unwrap_or(0.0);
    let needed =
        [2.0 * (FILES_PER_CONNECTION * places + OTHER_FILES), USUAL_LIMIT, 2.0 * limit.unwrap_or(0.0)];
    Remedy {
        setting: SettingId::of_service("nginx", "worker_rlimit_nofile"),
        from: limit.map(|limit| SettingValue::Integer(limit as i64)),
        to: granted_files(needed.into_iter().fold(0.0, f64::max), limit)
            .map(|to| SettingValue::Integer(to.ceil() as i64)),
        class: ApplyClass::Reload,
        risk: "none known; workers in a container may not be allowed to raise it".into(),
        why: "twice what the connections of a worker need, plus files for logs and responses".into(),
        predicted: None,
        together_with: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, facts_of_several, of_pool, with_changes};

    const EXHAUSTED: [(FactId, f64); 5] = [
        (FactId::open_files_messages, 40.0),
        (FactId::open_files_max, 158.0),
        (FactId::open_files_limit, 160.0),
        (FactId::open_files_fraction, 0.9875),
        (FactId::failed_fraction, 0.3),
    ];

    fn with(changes: &[(FactId, f64)]) -> Facts {
        let values = with_changes(&EXHAUSTED, changes);
        facts(&values, &[("ThreadsPerChild", 150)])
    }

    #[test]
    fn logs_and_descriptors_are_two_ways_to_see_it() {
        let unseen = f64::NAN;
        for (changes, confidence) in [
            (vec![], Some(0.95)),
            (vec![(FactId::open_files_messages, unseen)], Some(0.7)),
            (vec![(FactId::open_files_fraction, unseen)], Some(0.85)),
            (vec![(FactId::open_files_fraction, 0.1), (FactId::failed_fraction, 0.0)], Some(0.5)),
            (vec![(FactId::open_files_messages, 0.0), (FactId::open_files_fraction, 0.9)], None),
            // Many are open, and nothing fails for it.
            (vec![(FactId::open_files_messages, 0.0), (FactId::failed_fraction, 0.0)], None),
            (
                vec![
                    (FactId::open_files_messages, 0.0),
                    (FactId::open_files_fraction, 0.1),
                    (FactId::kernel_file_max_messages, 3.0),
                ],
                Some(0.9),
            ),
        ] {
            let found = check(&with(&changes)).map(|finding| finding.confidence);
            assert_eq!(found, confidence, "{changes:?}");
        }
    }

    #[test]
    fn the_value_is_enough_for_the_connections_of_a_process() {
        let to = |facts: &Facts| check(facts).unwrap().remedies[0].to.clone();
        assert_eq!(to(&with(&[])), Some(SettingValue::Integer(8192)));
        let mut large = with(&[(FactId::open_files_limit, 20_000.0)]);
        assert_eq!(to(&large), Some(SettingValue::Integer(40_000)));
        assert_eq!(to(&with(&[(FactId::open_files_limit, 1_048_576.0)])), None, "a leak, perhaps");
        let service = large.service.as_mut().unwrap();
        service.mode = Some("worker".into());
        service.settings.get_mut("ThreadsPerChild").unwrap().configured = Some(SettingValue::Integer(20_000));
        assert_eq!(to(&large), Some(SettingValue::Integer(80_200)));
    }

    #[test]
    fn nginx_raises_the_limit_of_its_workers_itself() {
        let mut facts = with(&[
            (FactId::open_files_messages, f64::NAN),
            (FactId::nginx_open_files_messages, 5.0),
            (FactId::open_files_fraction, 0.99),
        ]);
        let service = facts.service.as_mut().unwrap();
        service.service = "nginx".into();
        let places = service.settings.entry("worker_connections".into()).or_default();
        places.configured = Some(SettingValue::Integer(4096));
        let finding = check(&facts).unwrap();
        let remedy = &finding.remedies[0];
        assert_eq!(
            (finding.confidence, remedy.setting.full_name().as_str()),
            (0.95, "nginx worker_rlimit_nofile")
        );
        assert_eq!((&remedy.to, remedy.class), (&Some(SettingValue::Integer(16_584)), ApplyClass::Reload));
        let places = facts.service.as_mut().unwrap().settings.get_mut("worker_connections").unwrap();
        places.configured = Some(SettingValue::Integer(400_000));
        let most = check(&facts).unwrap().remedies.remove(0).to;
        assert_eq!(most, Some(SettingValue::Integer(1_048_576)), "the kernel grants no more");
    }

    #[test]
    fn a_backend_at_its_limit_is_named() {
        let mut facts = with(&[(FactId::open_files_fraction, 0.1)]);
        let values = [
            (FactId::backend_open_files_max, 1020.0),
            (FactId::backend_open_files_limit, 1024.0),
            (FactId::backend_open_files_fraction, 0.996),
        ];
        of_pool(&mut facts, "php_fpm", &values);
        let finding = check(&facts).unwrap();
        assert!(finding.summary.contains("processes of PHP-FPM") && finding.summary.contains("1020 of 1024"));
        assert_eq!((finding.remedies[0].setting.target.name(), finding.confidence), ("php_fpm", 0.9));
    }

    #[test]
    fn who_has_no_file_left_accepts_nobody_and_nothing_fails() {
        const AT: &str = "127.0.0.1:8000";
        let with = |fraction: f64, queue: f64| {
            let several = [
                (FactId::backend_open_files_fraction, "unknown", fraction),
                (FactId::backend_queue_mean, AT, queue),
                (FactId::backend_waiting_fraction, AT, 1.0),
            ];
            let mut facts = facts_of_several(&[(FactId::failed_fraction, 0.0)], &several);
            let backend = webdyno_model::service::ServiceSnapshot {
                service: "unknown".into(),
                pid: 7,
                executable: Some("/usr/bin/python3.11".into()),
                listens: vec![AT.into()],
                ..Default::default()
            };
            facts.topology =
                Some(webdyno_model::topology::Topology { backends: vec![backend], ..Default::default() });
            check(&facts).map(|finding| (finding.confidence, finding.summary))
        };
        let (confidence, summary) = with(1.0, 50.0).unwrap();
        assert_eq!(confidence, CONFIDENCE_QUEUED);
        assert!(summary.contains("python3.11: connections wait in its accept queue"), "{summary}");
        assert_eq!([with(0.6, 50.0), with(1.0, 0.3)], [None, None]);
    }
}
