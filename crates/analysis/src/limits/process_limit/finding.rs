//! When `process-limit` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::time_breakdown::noticed_queue;
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// At this share of a limit the next process is refused: processes come and go between samples.
const AT_LIMIT_FRACTION: f64 = 0.97;

/// What the settings can need is exceeded by what they do not tell of: loggers, programs that pages start.
const SPARE: f64 = 1.5;

/// Tasks beside the workers: the main process, loggers, a few programs.
const OTHER_TASKS: f64 = 10.0;

/// A limit that counts tasks.
struct TaskLimit {
    /// What is counted, and who is limited, in words.
    words: &'static str,
    setting: &'static str,
    now: f64,
    most: f64,
}

/// Fires when tasks are refused, or when they stand at a limit while connections wait.
pub fn check(facts: &Facts) -> Option<Finding> {
    let reached = reached_limit(facts);
    let refused = facts.counted_often(FactId::tasks_refused);
    let messages = fact_ids! {
        fork_failed_messages, no_processes_left_messages, kernel_process_limit_messages,
    };
    let output = messages.into_iter().find(|name| facts.counted_often(*name).is_some());
    let confidence = match (&reached, refused, output) {
        (Some(_), Some(_), _) => 0.95,
        (Some(_), None, Some(_)) => 0.9,
        // A failed fork may also be for lack of memory: AH00159 alone does not say which.
        (None, Some(_), _) => 0.7,
        (None, None, Some(FactId::fork_failed_messages)) => 0.5,
        (Some(_), None, None) if has_waiting_connections(facts) => 0.7,
        _ => return None,
    };
    let at = reached.as_ref().map_or(String::new(), |limit| {
        format!(" {} {} of {}.", limit.words, format_number(limit.now), format_number(limit.most))
    });
    let evidence = match (refused, output) {
        (Some(count), _) => format!("the kernel refused {}", count_of(count, "new one")),
        (None, Some(name)) => {
            let count = facts.value(name).unwrap_or(0.0);
            format!("failed start logged {}", count_of(count, "time"))
        }
        (None, None) => "connections wait for a worker".into(),
    };
    let allowed = if allows_more(facts) { " The service's own settings allow more workers." } else { "" };
    Some(Finding {
        id: LimitId::ProcessLimit.into(),
        summary: format!("Process limit reached: {evidence}.{at}{allowed}"),
        confidence,
        explains_fraction: lost_fraction(facts),
        facts: facts.cite(&fact_ids! {
            tasks_refused, tasks_max, tasks_limit, user_tasks_max, user_tasks_limit, machine_threads_max,
            machine_threads_limit, fork_failed_messages, no_processes_left_messages,
            kernel_process_limit_messages, workers_startable_mean, workers_busy_mean, accept_queue_mean,
            failed_fraction, rate,
        }),
        remedies: vec![remedy(facts, reached.as_ref())],
    })
}

fn count_of(count: f64, what: &str) -> String {
    format!("{} {what}{}", format_number(count), if count == 1.0 { "" } else { "s" })
}

/// The limit that is reached; the group's first, as it is the one that is meant for the service.
fn reached_limit(facts: &Facts) -> Option<TaskLimit> {
    let limits = [
        (FactId::tasks_max, FactId::tasks_limit, "Its control group has", "TasksMax"),
        (FactId::user_tasks_max, FactId::user_tasks_limit, "Its user has", "LimitNPROC"),
        (
            FactId::machine_threads_max,
            FactId::machine_threads_limit,
            "The whole machine has",
            "kernel.threads-max",
        ),
    ];
    limits.into_iter().find_map(|(now, most, words, setting)| {
        let now = facts.value(now)?;
        let most = facts.value(most).filter(|most| *most > 0.0)?;
        // Of a small limit one task is a large share.
        (now >= AT_LIMIT_FRACTION * most || now + 1.0 >= most).then_some(TaskLimit {
            words,
            setting,
            now,
            most,
        })
    })
}

/// Whether connections wait for workers that the service's own settings would allow.
fn has_waiting_connections(facts: &Facts) -> bool {
    noticed_queue(facts).is_some() && allows_more(facts)
}

/// Whether the service's own settings allow more workers than there are.
fn allows_more(facts: &Facts) -> bool {
    let may_start = facts.value(FactId::workers_startable_mean).is_some_and(|open| open >= 1.0);
    let allowed = facts.setting("MaxRequestWorkers");
    let of_processes = || Some(facts.value(FactId::service_processes_mean)? * facts.threads_per_process());
    let tasks = facts.value(FactId::tasks_max).or_else(of_processes);
    may_start || tasks.zip(allowed).is_some_and(|(tasks, allowed)| tasks < allowed)
}

/// The share of requests that wait for a worker, by what waits and what is at work.
fn lost_fraction(facts: &Facts) -> Option<f64> {
    let queue = facts.value(FactId::accept_queue_mean)?;
    let busy = facts.value(FactId::workers_busy_mean).or(facts.value(FactId::service_processes_mean))?;
    (queue + busy > 0.0).then(|| significant(queue / (queue + busy), 3))
}

/// The tasks that the service's own settings can need.
fn needed_tasks(facts: &Facts) -> Option<f64> {
    let workers = facts.setting("MaxRequestWorkers").or_else(|| facts.value(FactId::workers_limit))?;
    let threads = facts.threads_per_process();
    // Beside its workers a threaded process has a main thread and a listener.
    let others = if threads > 1.0 { 2.0 * (workers / threads).ceil() } else { 0.0 };
    Some(workers + others + OTHER_TASKS)
}

fn remedy(facts: &Facts, reached: Option<&TaskLimit>) -> Remedy {
    let needed = needed_tasks(facts).filter(|_| facts.is_service("apache"));
    let wanted = needed.map(|needed| (SPARE * needed).ceil());
    // A limit that is larger already is not the one that is needed, and one that is not known may be larger.
    let most = reached.map(|limit| limit.most).or(facts.value(FactId::tasks_limit));
    let to = wanted.filter(|to| most.is_some_and(|most| *to > most));
    let why = match needed {
        Some(needed) => format!(
            "its settings allow {} workers, up to {} tasks with the others; 50% more for programs \
             that pages start",
            format_number(
                facts.setting("MaxRequestWorkers").or(facts.value(FactId::workers_limit)).unwrap_or(0.0)
            ),
            format_number(needed)
        ),
        None => "the number of workers that its settings allow, plus 50%".into(),
    };
    let setting = reached.map_or("TasksMax", |limit| limit.setting);
    let service = facts.service.as_ref().map_or("apache", |service| &service.service);
    Remedy {
        setting: match setting.starts_with("kernel.") {
            true => SettingId::sysctl(setting),
            false => SettingId::of_service(service, setting),
        },
        from: most.map(|most| SettingValue::Integer(most as i64)),
        to: to.map(|to| SettingValue::Integer(to as i64)),
        class: ApplyClass::Manual,
        risk: "more processes take more memory; by hand it takes a restart, `tune --apply` raises it in running processes".into(),
        why,
        predicted: None,
        together_with: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, set, with_changes};

    const AT_LIMIT: [(FactId, f64); 6] = [
        (FactId::tasks_max, 32.0),
        (FactId::tasks_limit, 32.0),
        (FactId::tasks_refused, 2.0),
        (FactId::workers_startable_mean, 119.0),
        (FactId::workers_busy_mean, 31.0),
        (FactId::accept_queue_mean, 69.0),
    ];

    fn with(changes: &[(FactId, f64)]) -> Option<Finding> {
        let values = with_changes(&AT_LIMIT, changes);
        check(&facts(&values, &[("MaxRequestWorkers", 150)]))
    }

    #[test]
    fn what_is_refused_at_a_limit_is_proven() {
        let finding = with(&[]).unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.95, Some(0.69)));
        assert!(finding.summary.contains("refused 2 new ones") && finding.summary.contains("has 32 of 32"));
        let remedy = &finding.remedies[0];
        assert_eq!(
            (remedy.setting.name.as_str(), &remedy.to),
            ("TasksMax", &Some(SettingValue::Integer(240)))
        );
        // Who could make it is asked, and says why not.
        assert_eq!(remedy.setting_changes().len(), 1);
    }

    #[test]
    fn a_limit_that_is_larger_or_not_known_is_not_lowered() {
        let value = |most: f64, now: f64| {
            let changes = [(FactId::tasks_limit, most), (FactId::tasks_max, now)];
            let remedy = with(&changes).unwrap().remedies.remove(0);
            (remedy.from.and_then(|from| from.number()), remedy.to.and_then(|to| to.number()))
        };
        assert_eq!(value(4915.0, 4000.0), (Some(4915.0), None), "refused between two readings");
        assert_eq!(value(f64::NAN, f64::NAN), (None, None));
        assert_eq!(value(100.0, 90.0), (Some(100.0), Some(240.0)));
    }

    #[test]
    fn it_is_the_limit_of_whoever_is_in_front() {
        let mut facts = facts(&AT_LIMIT, &[]);
        facts.service.as_mut().unwrap().service = "nginx".into();
        let remedy = check(&facts).unwrap().remedies.remove(0);
        assert_eq!((remedy.setting.target.name(), remedy.to), ("nginx", None));
        // What its settings allow is not known: nothing is said of it.
        set(&mut facts, FactId::workers_startable_mean, 0.0);
        let summary = check(&facts).unwrap().summary;
        assert!(summary.ends_with("has 32 of 32."), "{summary}");
    }

    #[test]
    fn each_signal_can_be_missed() {
        let unseen = f64::NAN;
        for (changes, confidence) in [
            (vec![(FactId::tasks_refused, 0.0)], Some(0.7)),
            (vec![(FactId::tasks_refused, unseen), (FactId::fork_failed_messages, 1.0)], Some(0.9)),
            (vec![(FactId::tasks_refused, 0.0), (FactId::accept_queue_mean, 0.0)], None),
            (vec![(FactId::tasks_max, 20.0), (FactId::tasks_refused, 0.0)], None),
            (
                vec![
                    (FactId::tasks_max, unseen),
                    (FactId::tasks_refused, unseen),
                    (FactId::fork_failed_messages, 1.0),
                ],
                Some(0.5),
            ),
            // How many workers there are is not known: they may be all that are allowed.
            (
                vec![
                    (FactId::tasks_refused, 0.0),
                    (FactId::tasks_max, unseen),
                    (FactId::workers_startable_mean, 0.0),
                    (FactId::user_tasks_max, 160.0),
                    (FactId::user_tasks_limit, 160.0),
                ],
                None,
            ),
            // Workers at their own limit are not kept from starting.
            (
                vec![
                    (FactId::tasks_refused, 0.0),
                    (FactId::workers_startable_mean, 0.0),
                    (FactId::tasks_max, 160.0),
                    (FactId::tasks_limit, 160.0),
                ],
                None,
            ),
            (
                vec![
                    (FactId::tasks_max, 40.0),
                    (FactId::tasks_limit, 4000.0),
                    (FactId::tasks_refused, 0.0),
                    (FactId::user_tasks_max, 35.0),
                    (FactId::user_tasks_limit, 35.0),
                    (FactId::no_processes_left_messages, 1.0),
                ],
                Some(0.9),
            ),
        ] {
            assert_eq!(with(&changes).map(|finding| finding.confidence), confidence, "{changes:?}");
        }
    }
}
