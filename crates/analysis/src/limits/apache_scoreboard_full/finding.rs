//! When `apache-scoreboard-full` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::time_breakdown::noticed_queue;
use crate::resources::{worker_waits, workers};
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// Room above the places that the workers in force need, as a share of them; and of those that are stopping.
const HEADROOM: f64 = 1.5;
/// Half a process is less than what a sample may miss.
const STOPPING_MIN: f64 = 0.5;

/// Fires when places are held by processes that are ending, and connections wait for those that are left.
pub fn check(facts: &Facts) -> Option<Finding> {
    let full = full_scoreboard(facts)?;
    let queue = noticed_queue(facts)?;
    if worker_waits::machine_is_short(facts) {
        return None;
    }
    let stopping = full.stopping.map_or("some".to_owned(), format_number);
    let logged = full.messages.filter(|count| *count >= 1.0);
    let logged = logged.map_or(String::new(), |count| format!(" Logged {} times.", format_number(count)));
    Some(Finding {
        id: LimitId::ApacheScoreboardFull.into(),
        summary: format!(
            "Apache scoreboard full: {stopping} of {} slots (ServerLimit) held by stopping processes until done; {} connections wait in the accept queue.{logged}",
            format_number(full.places),
            format_number(queue)
        ),
        confidence: if full.stopping.is_some() { 0.95 } else { 0.75 },
        explains_fraction: workers::accept_queue_share(facts, queue),
        facts: facts.cite(&fact_ids! {
            processes_stopping_mean, workers_finishing_mean, scoreboard_full_messages,
            scoreboard_full_messages_worker, apache_processes_mean, service_processes_mean, workers_busy_mean,
            workers_idle_mean, workers_limit, config_generation, accept_queue_mean, in_flight_mean,
            response_time_mean_us, rate,
        }),
        remedies: vec![remedy(facts, &full)],
    })
}

struct FullScoreboard {
    /// All places.
    places: f64,
    /// Processes that keep one and accept no more; `None` when only the log and the number of processes tell.
    stopping: Option<f64>,
    /// How often the log said it.
    messages: Option<f64>,
}

fn full_scoreboard(facts: &Facts) -> Option<FullScoreboard> {
    let places =
        facts.is_service("apache").then(|| facts.setting("ServerLimit"))?.filter(|places| *places >= 1.0)?;
    let threads = facts.threads_per_process();
    let wanted = facts.setting("MaxRequestWorkers")?;
    let both = [FactId::scoreboard_full_messages, FactId::scoreboard_full_messages_worker];
    let messages = both.into_iter().filter_map(|name| facts.value(name)).reduce(|sum, count| sum + count);
    // With fewer places than MaxRequestWorkers needs the log says so of any server that is busy: that is a clamp.
    let output = messages.is_some_and(|count| count >= 1.0) && wanted <= places * threads;
    let processes = facts.value(FactId::service_processes_mean).map(|count| count - 1.0);
    // A process that ended within the window leaves the mean a little lower.
    let all_taken = processes.is_none_or(|count| count >= places - STOPPING_MIN);
    let stopping = stopping_processes(facts, threads).filter(|count| *count >= STOPPING_MIN);
    let left = stopping.map(|count| (places - count) * threads);
    match left {
        Some(left) if left < wanted && (output || (processes.is_some() && all_taken)) => {
            Some(FullScoreboard { places, stopping, messages })
        }
        // A page that shows none says that it is full of others.
        _ => (output
            && processes.is_some()
            && all_taken
            && facts.value(FactId::processes_stopping_mean).is_none())
        .then_some(FullScoreboard { places, stopping: None, messages }),
    }
}

/// Processes that are ending: by the page's count, or by the workers that finish.
fn stopping_processes(facts: &Facts, threads: f64) -> Option<f64> {
    let counted = facts.value(FactId::processes_stopping_mean);
    counted.or_else(|| facts.value(FactId::workers_finishing_mean).filter(|_| threads == 1.0))
}

fn remedy(facts: &Facts, full: &FullScoreboard) -> Remedy {
    let needed =
        (facts.setting("MaxRequestWorkers").unwrap_or(1.0) / facts.threads_per_process()).ceil().max(1.0);
    let for_stopping = full.stopping.map_or(0.0, |stopping| needed + HEADROOM * stopping);
    let to = (HEADROOM * needed).max(for_stopping).max(full.places + 1.0).ceil();
    let room = match full.stopping {
        Some(stopping) => {
            format!(
                "50% more, or 1.5 times the stopping ones ({}), whichever is more",
                format_number(stopping)
            )
        }
        None => "50% more, and more than there are, for those that are stopping: how many could not be read"
            .to_owned(),
    };
    Remedy {
        setting: SettingId::of_service("apache", "ServerLimit"),
        from: Some(SettingValue::Integer(full.places as i64)),
        to: Some(SettingValue::Integer(to as i64)),
        class: ApplyClass::Restart,
        risk: "a restart aborts requests in the stopping processes; more processes after each reload need memory"
            .into(),
        why: format!("MaxRequestWorkers needs {} processes; {room}", format_number(needed)),
        predicted: None,
        together_with: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    const FULL: &[(FactId, f64)] = &[
        (FactId::processes_stopping_mean, 3.0),
        (FactId::service_processes_mean, 5.0),
        (FactId::scoreboard_full_messages, 4.0),
        (FactId::accept_queue_mean, 70.0),
        (FactId::in_flight_mean, 100.0),
    ];

    fn with(changes: &[(FactId, f64)]) -> Option<Finding> {
        let values = with_changes(FULL, changes);
        let mut facts =
            facts(&values, &[("MaxRequestWorkers", 100), ("ServerLimit", 4), ("ThreadsPerChild", 25)]);
        facts.service.as_mut().unwrap().mode = Some("event".into());
        check(&facts)
    }

    #[test]
    fn places_that_are_kept_by_what_ends_are_told() {
        let none = f64::NAN;
        for (name, changes, confidence) in [
            ("both", vec![], Some(0.95)),
            ("no log", vec![(FactId::scoreboard_full_messages, none)], Some(0.95)),
            ("no page", vec![(FactId::processes_stopping_mean, none)], Some(0.75)),
            ("nothing ends", vec![(FactId::processes_stopping_mean, 0.0)], None),
            (
                "places are free",
                vec![(FactId::service_processes_mean, 3.0), (FactId::scoreboard_full_messages, 0.0)],
                None,
            ),
            ("nobody waits", vec![(FactId::accept_queue_mean, 0.0)], None),
        ] {
            assert_eq!(with(&changes).map(|finding| finding.confidence), confidence, "{name}");
        }
    }

    #[test]
    fn there_is_room_for_those_that_end_slowly() {
        for (stopping, to, why) in [
            (1.0, 6, "the stopping ones (1)"),
            (3.0, 9, "the stopping ones (3)"),
            (f64::NAN, 6, "how many could not be read"),
        ] {
            let remedy = with(&[(FactId::processes_stopping_mean, stopping)]).unwrap().remedies.remove(0);
            assert_eq!(remedy.to, Some(SettingValue::Integer(to)), "{stopping}");
            assert!(remedy.why.contains(why), "{}", remedy.why);
        }
    }
}
