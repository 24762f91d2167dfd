//! `apache-workers-exhausted`: every worker of Apache is busy, and connections wait to be accepted.
//!
//! A worker (a process under prefork, a thread under worker and event) serves one request at a time. When all
//! `MaxRequestWorkers` of them are busy, new connections wait in the kernel's accept queue, although the machine
//! may have nothing to do: the workers may only be waiting themselves, for a database or a slow client.
//!
//! ## How it is recognised
//! In most readings the scoreboard of mod_status has neither an idle worker (`_`) nor a slot for one more (`.`),
//! while the accept queue of the port is not empty and the processors are not all busy. Without mod_status: as many
//! server processes as `MaxRequestWorkers` allows, the same number all the time, and the same queue.
//!
//! ## What to do
//! Raise `MaxRequestWorkers` (and `ServerLimit` with it) to 1.3 times what is wanted at once: the larger of the goal
//! rate times the time a request holds a worker (Little's law), and what is busy, queued or in flight now. Never
//! above what memory holds: swapping costs more than queueing. Above the running `ServerLimit` this needs a restart,
//! up to it a graceful reload. More workers also means more connections to a database behind them.
//!
//! ## By hand
//! `curl -s http://localhost/server-status?auto | grep Scoreboard` and `ss -ltn` (Recv-Q of the port) under load;
//! the error log says once in a parent's life `server reached MaxRequestWorkers setting` (AH00161, AH00286, AH00484).

use super::{memory_exhausted, say, say_us};
use crate::breakdown::{accept_queue_wait_us, noticed_queue};
use crate::facts::Facts;
use webdyno_model::change::{ApplyClass, Wish};
use webdyno_model::diagnosis::{Finding, Predicted, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::tune::Goal;

/// Stable id.
pub const ID: &str = "apache-workers-exhausted";

/// Room above the measured demand.
const HEADROOM: f64 = 1.3;
/// The scoreboard must be full in at least this share of its readings.
const FULL_FRACTION_MIN: f64 = 0.5;
/// Above this share of busy processors more workers would only queue for a core.
const CPU_FRACTION_MAX: f64 = 0.95;
/// Published errors of such predictions stay below a tenth where the workers bind, a fifth across a CPU limit.
const PREDICTION_ERROR: f64 = 0.10;
const PREDICTION_ERROR_CPU: f64 = 0.20;

/// Fires when no worker is free, connections wait, and the processors could do more.
pub fn check(facts: &Facts) -> Option<Finding> {
    if !facts.is_service("apache")
        || facts.value("cpu_busy_fraction").is_some_and(|busy| busy >= CPU_FRACTION_MAX)
    {
        return None;
    }
    let proof = scoreboard_proof(facts).or_else(|| process_proof(facts))?;
    let queue = noticed_queue(facts)?;
    let wait_us = accept_queue_wait_us(facts);
    let explains =
        wait_us.zip(facts.value("response_time_mean_us")).map(|(wait, response)| (wait / response).min(1.0));
    let wait = wait_us.map_or(String::new(), |us| format!(", each for about {}", say_us(us)));
    let summary = format!(
        "Apache has no free worker: {}, while {} connections on average wait to be accepted{wait}.",
        proof.words,
        say(queue)
    );
    Some(Finding {
        id: ID.into(),
        summary,
        confidence: proof.confidence,
        explains_fraction: explains.map(|share| webdyno_model::number::significant(share, 3)),
        facts: facts.cite(&[
            "scoreboard_full_fraction",
            "workers_when_full",
            "workers_limit",
            "workers_busy_mean",
            "service_processes_mean",
            "accept_queue_mean",
            "accept_queue_max",
            "worker_time_mean_us",
            "cpu_busy_fraction",
            "status_unanswered_fraction",
            "rate",
            "response_time_mean_us",
            "in_flight_mean",
        ]),
        remedies: remedy(facts, proof.workers, queue).into_iter().collect(),
    })
}

struct Proof {
    words: String,
    confidence: f64,
    workers: f64,
}

fn scoreboard_proof(facts: &Facts) -> Option<Proof> {
    let full = facts.value("scoreboard_full_fraction").filter(|full| *full >= FULL_FRACTION_MIN)?;
    let workers = facts.value("workers_when_full").or_else(|| facts.value("workers_limit"))?;
    let words =
        format!("all {} are busy in {:.0}% of the readings of its scoreboard", say(workers), full * 100.0);
    Some(Proof { words, confidence: if full >= 0.8 { 0.95 } else { 0.8 }, workers })
}

/// The view from outside, when the status page is missing or cannot answer: as many server processes as hold all the
/// workers that are allowed, all the time, say that no more can be started. They do not say that all are busy; the
/// accept queue does, and a status page that waits in it.
fn process_proof(facts: &Facts) -> Option<Proof> {
    if facts.value("scoreboard_full_fraction").is_some() {
        return None;
    }
    let workers = facts.service.as_ref()?.configured_number("MaxRequestWorkers")?;
    // The parent is a process too, and not a worker.
    let least = facts.value("service_processes_min")? - 1.0;
    let threads = threads_per_process(facts);
    (least * threads >= workers).then(|| Proof {
        words: format!("all the {} workers that MaxRequestWorkers allows are running", say(workers)),
        confidence: 0.7,
        workers,
    })
}

fn remedy(facts: &Facts, workers: f64, queue: f64) -> Option<Remedy> {
    let demand = demand(facts, workers, queue);
    let wanted = (HEADROOM * demand).ceil();
    let fits = memory_exhausted::workers_that_fit(facts);
    let bounded = fits.map_or(wanted, |fits| wanted.min(fits.floor()));
    let threads = threads_per_process(facts);
    // A value that is no multiple of the threads per process is clamped by Apache.
    let to = (bounded / threads).ceil() * threads;
    if to <= workers {
        return None;
    }
    let server_limit = facts.setting("ServerLimit");
    let processes = to / threads;
    let over = server_limit.is_some_and(|limit| processes > limit);
    let bound = if bounded < wanted { ", bounded by the memory there is" } else { "" };
    let wish = |setting: &str, to: f64| Wish {
        service: "apache".into(),
        setting: setting.into(),
        to: SettingValue::Integer(to as i64),
    };
    Some(Remedy {
        service: "apache".into(),
        setting: "MaxRequestWorkers".into(),
        from: Some(SettingValue::Integer(workers as i64)),
        to: Some(SettingValue::Integer(to as i64)),
        class: if over { ApplyClass::Restart } else { ApplyClass::Reload },
        risk: risk(facts, to, over),
        why: format!("{} requests want a worker at once, plus 30% headroom{bound}", say(demand)),
        predicted: predict(facts, workers, to),
        together_with: if over { vec![wish("ServerLimit", processes)] } else { vec![] },
    })
}

/// How many workers are wanted at once. At saturation rate x time only equals the workers there are: what queues and
/// what the clients have in flight is the demand.
fn demand(facts: &Facts, workers: f64, queue: f64) -> f64 {
    let busy = facts.value("workers_busy_mean").unwrap_or(workers);
    let now = (busy + queue).max(facts.value("in_flight_mean").unwrap_or(0.0));
    let at_goal = match (facts.goal, facts.value("worker_time_mean_us")) {
        (Some(Goal::Rate(rate)), Some(time_us)) => rate * time_us / 1e6,
        _ => 0.0,
    };
    now.max(at_goal)
}

fn threads_per_process(facts: &Facts) -> f64 {
    let threaded = facts.service.as_ref().and_then(|service| service.mode.as_deref()) != Some("prefork");
    if threaded {
        facts.setting("ThreadsPerChild").filter(|threads| *threads >= 1.0).unwrap_or(1.0)
    } else {
        1.0
    }
}

fn risk(facts: &Facts, to: f64, restart: bool) -> String {
    let mut parts = vec![];
    if let Some(each) = facts.value("worker_private_mean_bytes") {
        parts.push(format!("up to {} of memory for all workers", super::say_bytes(each * to)));
    }
    parts.push("more connections to what stands behind them".to_owned());
    if restart {
        parts.push("a restart: no answer for a moment".to_owned());
    }
    parts.join("; ")
}

/// The rate with `to` workers: as many as are in flight can be served at once; CPU time per request stays.
fn predict(facts: &Facts, workers: f64, to: f64) -> Option<Predicted> {
    let rate = facts.value("rate").filter(|rate| *rate > 0.0)?;
    let in_flight = facts.value("in_flight_mean")?;
    let by_workers = rate * (to.min(in_flight) / workers);
    let by_cpu = facts
        .value("cpu_busy_fraction")
        .filter(|busy| *busy > 0.01)
        .map(|busy| rate * CPU_FRACTION_MAX / busy);
    let (predicted, error) = match by_cpu {
        Some(by_cpu) if by_cpu < by_workers => (by_cpu, PREDICTION_ERROR_CPU),
        _ => (by_workers, PREDICTION_ERROR),
    };
    let round = |value: f64| webdyno_model::number::significant(value, 3);
    Some(Predicted {
        rate: round(predicted),
        ci95: [round(predicted * (1.0 - error)), round(predicted * (1.0 + error))],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    const EXHAUSTED: &[(&str, f64)] = &[
        ("scoreboard_full_fraction", 1.0),
        ("workers_limit", 150.0),
        ("workers_busy_mean", 149.0),
        ("accept_queue_mean", 300.0),
        ("in_flight_mean", 450.0),
        ("cpu_busy_fraction", 0.3),
        ("rate", 750.0),
        ("response_time_mean_us", 600_000.0),
        ("worker_time_mean_us", 200_000.0),
    ];
    const PREFORK: &[(&str, i64)] = &[("MaxRequestWorkers", 150), ("ServerLimit", 256)];

    fn with(changes: &[(&str, f64)]) -> Option<Finding> {
        let mut values: Vec<_> = EXHAUSTED
            .iter()
            .filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name))
            .copied()
            .collect();
        values.extend(changes.iter().filter(|(_, value)| value.is_finite()));
        check(&facts(&values, PREFORK))
    }

    #[test]
    fn the_value_follows_the_demand_and_takes_server_limit_along() {
        let finding = with(&[]).unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.95, Some(0.667)));
        let remedy = &finding.remedies[0];
        assert_eq!(
            (remedy.to.clone(), remedy.class),
            (Some(SettingValue::Integer(585)), ApplyClass::Restart)
        );
        assert_eq!(remedy.together_with[0].to, SettingValue::Integer(585));
        assert_eq!(remedy.predicted.as_ref().unwrap().rate, 2250.0);
    }

    #[test]
    fn up_to_server_limit_a_reload_does() {
        let remedy = &with(&[("in_flight_mean", 180.0), ("accept_queue_mean", 30.0)]).unwrap().remedies[0];
        assert_eq!((remedy.to.clone(), remedy.class), (Some(SettingValue::Integer(234)), ApplyClass::Reload));
        assert!(remedy.together_with.is_empty());
    }

    #[test]
    fn memory_bounds_it_and_cpu_bounds_the_prediction() {
        let remedy = &with(&[
            ("memory_available_min_bytes", 400e6),
            ("memory_limit_bytes", 1000e6),
            ("worker_private_mean_bytes", 2e6),
            ("worker_memory_sum_bytes", 500e6),
            ("cpu_busy_fraction", 0.7),
        ])
        .unwrap()
        .remedies[0];
        // (400 available + 500 held - 100 reserve) MB / 2 MB
        assert_eq!(remedy.to, Some(SettingValue::Integer(400)));
        assert!(remedy.why.contains("bounded by the memory"));
        assert_eq!(remedy.predicted.as_ref().unwrap().rate, 1020.0);
    }

    #[test]
    fn it_stays_silent_without_proof() {
        for (name, value) in [
            ("accept_queue_mean", 0.2),
            ("scoreboard_full_fraction", 0.2),
            ("cpu_busy_fraction", 0.97),
            ("accept_queue_mean", f64::NAN),
        ] {
            assert!(with(&[(name, value)]).is_none(), "{name} = {value}");
        }
    }

    #[test]
    fn without_a_status_page_the_processes_tell() {
        let outside = [
            ("scoreboard_full_fraction", f64::NAN),
            ("workers_limit", f64::NAN),
            ("workers_busy_mean", f64::NAN),
            ("worker_time_mean_us", f64::NAN),
        ];
        let full = with(&[&outside[..], &[("service_processes_min", 151.0)]].concat()).unwrap();
        assert_eq!(full.confidence, 0.7);
        assert!(with(&[&outside[..], &[("service_processes_min", 120.0)]].concat()).is_none());
    }

    #[test]
    fn threads_come_in_whole_processes() {
        let mut event =
            facts(EXHAUSTED, &[("MaxRequestWorkers", 150), ("ServerLimit", 16), ("ThreadsPerChild", 25)]);
        event.service.as_mut().unwrap().mode = Some("event".into());
        let seen = [("service_processes_min", 7.0), ("accept_queue_mean", 40.0), ("cpu_busy_fraction", 0.1)];
        let mut outside = facts(&seen, &[]);
        outside.service = event.service.clone();
        assert_eq!(check(&outside).unwrap().confidence, 0.7);
        let remedy = &check(&event).unwrap().remedies[0];
        assert_eq!(remedy.to, Some(SettingValue::Integer(600)));
        assert_eq!(remedy.together_with[0].to, SettingValue::Integer(24));
    }
}
