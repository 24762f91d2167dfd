//! What to do about exhausted workers: how many are wanted, what memory and a reload allow, and what that should give.

use crate::facts::{FactId, Facts};
use crate::resources::processors::rate_at_cpu;
use crate::resources::workers::HEADROOM;
use crate::resources::{concurrency, database_connections};
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::{Predicted, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// A step up to the running ServerLimit is worth a reload if it gives at least this many times the workers there are.
const STEP_MIN: f64 = 1.1;
/// Above this share of busy processors more workers only queue for a core.
pub(crate) const CPU_FRACTION_MAX: f64 = 0.95;
/// Published errors of such predictions stay below a tenth where the workers bind, a fifth across a CPU limit.
pub(crate) const PREDICTION_ERROR: f64 = 0.10;
pub(crate) const PREDICTION_ERROR_CPU: f64 = 0.20;

/// The number that is wanted; and, where that needs a restart, the most that a reload gives.
pub(crate) fn remedies(facts: &Facts, workers: f64, queue: f64) -> Vec<Remedy> {
    let demand = demand(facts, workers, queue);
    let threads = facts.threads_per_process();
    // A value that is no multiple of the threads per process is clamped by Apache.
    let wanted = (HEADROOM * demand / threads).ceil() * threads;
    // What fits are whole processes already.
    let fits = database_connections::apache_workers_that_fit(facts);
    let to = fits.map_or(wanted, |fits| wanted.min(fits));
    if to <= workers {
        return vec![];
    }
    let bound = if to < wanted { ", bounded by memory" } else { "" };
    let why = format!("{} requests need a worker at once, plus 30% headroom{bound}", format_number(demand));
    let most = facts.setting("ServerLimit").map(|limit| limit * threads);
    let mut all = vec![remedy(facts, (workers, to), most.is_some_and(|most| to > most), why)];
    if let Some(most) = most.filter(|most| to > *most && *most >= STEP_MIN * workers) {
        let why = format!(
            "the running ServerLimit, reached without a restart; {} requests need a worker at once",
            format_number(demand)
        );
        all.push(remedy(facts, (workers, most), false, why));
    }
    all
}

pub(crate) fn remedy(facts: &Facts, (from, to): (f64, f64), restart: bool, why: String) -> Remedy {
    let processes = SettingValue::Integer((to / facts.threads_per_process()) as i64);
    let server_limit =
        SettingChange { setting: SettingId::of_service("apache", "ServerLimit"), to: processes };
    Remedy {
        setting: SettingId::of_service("apache", "MaxRequestWorkers"),
        from: Some(SettingValue::Integer(from as i64)),
        to: Some(SettingValue::Integer(to as i64)),
        class: if restart { ApplyClass::Restart } else { ApplyClass::Reload },
        risk: risk_text(facts, to, restart),
        why,
        predicted: predict(facts, from, to),
        together_with: restart
            .then_some(server_limit)
            .into_iter()
            .chain(database_connections::needed_with_workers(facts, to))
            .collect(),
    }
}

/// From this share of them on, workers are at work on requests (W), and not held by connections.
const AT_WORK_MIN: f64 = 0.9;

/// How many workers are wanted at once. At saturation rate x time only equals the workers there are: what queues and
/// what the clients have in flight is the demand.
///
/// In open arrival the offered rate x the time a request holds a worker is the demand: what queues there only tells
/// for how long the server has been too slow. Where that many workers would do, and yet all are taken, connections
/// hold them between requests, and what is connected counts. Never more than the connections there are.
pub(crate) fn demand(facts: &Facts, workers: f64, queue: f64) -> f64 {
    let hold_s = hold_s(facts, workers);
    let at = |rate: f64| hold_s.map_or(0.0, |hold_s| rate * hold_s);
    let at_goal = concurrency::goal_rate(facts).map_or(0.0, at);
    // Dead places behind a lowered limit show as busy.
    let busy = facts.value(FactId::workers_busy_mean).map_or(workers, |busy| busy.min(workers));
    let now = (busy + queue).max(facts.value(FactId::in_flight_mean).unwrap_or(0.0));
    let now = match (facts.value(FactId::offered_rate), facts.value(FactId::connections_cap)) {
        (Some(offered), Some(cap)) => {
            Some(at(offered)).filter(|most| *most > workers).unwrap_or(now).min(cap)
        }
        _ => now,
    };
    // The parts of a page are asked for over several connections at once, and wait for each other's workers: a worker for
    // each visitor serves all of them at once.
    let users = facts.value(FactId::users).filter(|users| *users > workers);
    users.map_or(now, |users| now.min(users)).max(at_goal)
}

/// For how long a request holds a worker: the longer one of what the status page tells, and, while all workers are at work on
/// requests, of so many of them over the rate. A page that waits in the same queue tells too few moments for its own measure.
fn hold_s(facts: &Facts, workers: f64) -> Option<f64> {
    let told_s = facts.value(FactId::worker_time_mean_us).map(|us| us / 1e6);
    let writing = facts.value(FactId::workers_writing_mean).map(|writing| writing / workers);
    let is_at_work = writing.is_some_and(|share| share >= AT_WORK_MIN);
    let taken_s = facts.ended_per_s().map(|rate| workers / rate).filter(|_| is_at_work || told_s.is_none());
    told_s.into_iter().chain(taken_s).reduce(f64::max)
}

fn risk_text(facts: &Facts, to: f64, restart: bool) -> String {
    let each = facts.value(FactId::worker_private_mean_bytes);
    let memory = each.map_or("memory of a worker not known: check that all of them fit".into(), |each| {
        let all = each * to / facts.threads_per_process();
        format!("up to {} of memory for all workers", format_bytes(all))
    });
    let mut parts = vec![memory, "more backend connections".to_owned()];
    if restart {
        parts.push("restart: brief downtime".to_owned());
    }
    parts.join("; ")
}

/// The rate with `to` workers: as many as are in flight can be served at once; CPU time per request stays; and no more
/// is answered than is asked for. Answers that came too late cost a worker as well, so all that ended is what grows.
///
/// The 95% interval has two parts, combined in quadrature as they are independent: the error of the model (a tenth
/// where workers bind, a fifth across a CPU limit), and the interval of the measured rate that it starts from.
pub(crate) fn predict(facts: &Facts, workers: f64, to: f64) -> Option<Predicted> {
    let ended_per_s = facts.ended_per_s()?;
    // With fewer requests than workers something else holds these: how many would be free for requests is not known.
    let in_flight = facts.value(FactId::in_flight_mean).filter(|in_flight| *in_flight > workers)?;
    let by_workers = ended_per_s * (to.min(in_flight) / workers);
    let by_users = rate_by_users(facts, ended_per_s, in_flight)?;
    let by_workers = by_workers.min(by_users);
    let by_cpu = rate_at_cpu(facts, CPU_FRACTION_MAX).filter(|_| uses_processors(facts));
    let (rate, error) = match by_cpu {
        Some(by_cpu) if by_cpu < by_workers => (by_cpu, PREDICTION_ERROR_CPU),
        _ => (by_workers, PREDICTION_ERROR),
    };
    Some(concurrency::predicted(facts, rate, error))
}

/// The interactive response time law: visitors who think come back only as fast as they do. What they can ask for is
/// their number over what is left of their cycle when nobody waits for a worker. `None` where it cannot be told: visitors
/// with several requests at once.
fn rate_by_users(facts: &Facts, ended_per_s: f64, in_flight: f64) -> Option<f64> {
    let Some(users) = facts.value(FactId::users) else { return Some(f64::INFINITY) };
    let in_workers = facts.value(FactId::requests_in_workers_mean).filter(|in_workers| *in_workers > 0.0);
    let thinking = users - in_flight;
    // Rounding and the ends of the window: a request more than there are users is none too many.
    if thinking < -1.0 - 0.02 * users {
        return None;
    }
    Some(
        in_workers.map_or(f64::INFINITY, |in_workers| ended_per_s * users / (thinking.max(0.0) + in_workers)),
    )
}

/// Whether the requests use so much of the processors that it can be told how much more they will.
fn uses_processors(facts: &Facts) -> bool {
    let cores = facts.value(FactId::service_cpu_cores).zip(facts.value(FactId::cores));
    cores.is_none_or(|(used, cores)| {
        used + facts.value(FactId::client_cpu_cores).unwrap_or(0.0) > 0.01 * cores
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;
    use crate::limits::apache_workers_exhausted::finding::check;
    use crate::limits::apache_workers_exhausted::finding::tests::{EXHAUSTED, with};
    use proptest::prelude::*;

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
        // What nobody read bounds nothing.
        assert!(remedy.risk.starts_with("memory of a worker not known"), "{}", remedy.risk);
    }

    #[test]
    fn up_to_server_limit_a_reload_does() {
        let remedy =
            &with(&[(FactId::in_flight_mean, 180.0), (FactId::accept_queue_mean, 30.0)]).unwrap().remedies[0];
        assert_eq!((remedy.to.clone(), remedy.class), (Some(SettingValue::Integer(234)), ApplyClass::Reload));
        assert!(remedy.together_with.is_empty());
    }

    #[test]
    fn memory_bounds_it_and_cpu_bounds_the_prediction() {
        let remedy = &with(&[
            (FactId::memory_available_min_bytes, 400e6),
            (FactId::memory_limit_bytes, 1000e6),
            (FactId::worker_private_mean_bytes, 2e6),
            (FactId::worker_memory_sum_bytes, 500e6),
            (FactId::cpu_busy_fraction, 0.7),
        ])
        .unwrap()
        .remedies[0];
        // (400 available + 500 held - 100 reserve) MB / 2 MB
        assert_eq!(remedy.to, Some(SettingValue::Integer(400)));
        assert!(remedy.why.contains("bounded by memory"));
        assert_eq!(remedy.predicted.as_ref().unwrap().rate, 1020.0);
    }

    fn event(values: &[(FactId, f64)], threads: i64) -> Vec<Remedy> {
        let settings = [("MaxRequestWorkers", 150), ("ServerLimit", 16), ("ThreadsPerChild", threads)];
        let mut facts = facts(values, &settings);
        facts.service.as_mut().unwrap().mode = Some("event".into());
        check(&facts).unwrap().remedies
    }

    #[test]
    fn threads_come_in_whole_processes() {
        let remedies = event(EXHAUSTED, 25);
        assert_eq!(remedies[0].to, Some(SettingValue::Integer(600)));
        assert_eq!(remedies[0].together_with[0].to, SettingValue::Integer(24));
        // Sixteen processes of 25 threads need no restart.
        assert_eq!(remedies[1].to, Some(SettingValue::Integer(400)));
    }

    #[test]
    fn the_bound_of_memory_holds_after_rounding() {
        let memory = [
            (FactId::memory_available_min_bytes, 400e6),
            (FactId::memory_limit_bytes, 1000e6),
            (FactId::worker_memory_sum_bytes, 500e6),
            (FactId::worker_private_mean_bytes, 90e6),
        ];
        // 800 MB hold 8 processes of 90 MB: 200 threads, where 225 would be the nearest to 8.9 of them.
        let remedies = event(&[EXHAUSTED, &memory[..]].concat(), 25);
        assert_eq!(remedies[0].to, Some(SettingValue::Integer(200)));
        assert_eq!((remedies.len(), remedies[0].class), (1, ApplyClass::Reload));
        assert!(remedies[0].risk.contains("720 MB"), "{}", remedies[0].risk);
    }

    #[test]
    fn where_the_full_value_needs_a_restart_a_reload_goes_up_to_the_running_limit() {
        let remedies = with(&[]).unwrap().remedies;
        let observed: Vec<_> = remedies.iter().map(|remedy| (remedy.to.clone(), remedy.class)).collect();
        let to = |to| Some(SettingValue::Integer(to));
        assert_eq!(observed, [(to(585), ApplyClass::Restart), (to(256), ApplyClass::Reload)]);
        assert!(remedies[1].together_with.is_empty());
        assert_eq!(remedies[1].predicted.as_ref().unwrap().rate, 1280.0);
        let tight = facts(EXHAUSTED, &[("MaxRequestWorkers", 150), ("ServerLimit", 160)]);
        assert_eq!(check(&tight).unwrap().remedies.len(), 1);
    }

    #[test]
    fn open_arrival_wants_what_is_offered() {
        // 20 workers of 200 ms give 100/s; 300/s are offered over up to 200 connections.
        let open = |changes: &[(FactId, f64)]| {
            let values = [
                (FactId::workers_when_full, 20.0),
                (FactId::workers_busy_mean, 20.0),
                (FactId::accept_queue_mean, 180.0),
                (FactId::in_flight_mean, 200.0),
                (FactId::rate, 100.0),
                (FactId::offered_rate, 300.0),
                (FactId::connections_cap, 200.0),
            ];
            with(&[&values[..], changes].concat()).unwrap().remedies.remove(0)
        };
        let remedy = open(&[]);
        assert_eq!(remedy.to, Some(SettingValue::Integer(78)));
        assert_eq!(remedy.predicted.unwrap().rate, 300.0);
        assert_eq!(open(&[(FactId::worker_time_mean_us, f64::NAN)]).to, Some(SettingValue::Integer(78)));
        // The status page came through twice, and tells a third of the time; all the workers were at work.
        let rarely = [(FactId::worker_time_mean_us, 65_000.0), (FactId::workers_writing_mean, 20.0)];
        assert_eq!(open(&rarely).to, Some(SettingValue::Integer(78)));
    }

    #[test]
    fn a_disturbed_machine_does_not_make_it_fewer_than_rate_times_hold_time() {
        // 20 workers of 200 ms, all at work; the status page tells less than that, and more than there are workers for.
        for told_us in [65_000.0, 139_000.0, 200_000.0, f64::NAN] {
            let values = [
                (FactId::workers_when_full, 20.0),
                (FactId::workers_busy_mean, 20.0),
                (FactId::workers_writing_mean, 19.5),
                (FactId::accept_queue_mean, 180.0),
                (FactId::in_flight_mean, 200.0),
                (FactId::rate, 100.0),
                (FactId::offered_rate, 150.0),
                (FactId::connections_cap, 200.0),
                (FactId::worker_time_mean_us, told_us),
            ];
            let remedy = with(&values).unwrap().remedies.remove(0);
            assert_eq!(remedy.to, Some(SettingValue::Integer(39)), "{told_us}");
        }
    }

    proptest! {
        /// Whatever is measured of an open load: 1.3 times rate x hold time, unless memory or the connections of the load are less.
        #[test]
        fn sizes_come_from_the_demand(
            workers in 2u32..400, hold_ms in 5u32..3000, times in 1.1f64..6.0, told in 0.2f64..1.2, cap in 200.0f64..20_000.0,
        ) {
            let (workers, hold_s) = (f64::from(workers), f64::from(hold_ms) / 1e3);
            let (rate, offered) = (workers / hold_s, times * workers / hold_s);
            let facts = facts(
                &[
                    (FactId::workers_busy_mean, workers),
                    (FactId::workers_writing_mean, workers),
                    (FactId::ended_per_s, rate),
                    (FactId::offered_rate, offered),
                    (FactId::connections_cap, cap),
                    (FactId::worker_time_mean_us, told * hold_s * 1e6),
                ],
                &[],
            );
            let to = remedies(&facts, workers, 10.0).first().and_then(|remedy| remedy.to.clone()?.number());
            let least = HEADROOM * (offered * hold_s).min(cap);
            prop_assert!(to.unwrap_or(workers) + 0.001 >= least, "{:?} of {}", to, least);
        }

        /// Whatever memory there is: workers and the connections that go along with them stay within it, or nothing grows.
        #[test]
        fn what_is_admitted_fits_in_memory(
            workers in 2u32..300, queue in 0.0f64..2000.0, threads in 1u32..65, each_mb in 1.0f64..200.0, held in 0.1f64..1.0,
            free_mb in 0.0f64..4000.0, limit_mb in 100.0f64..8000.0, connections in 1u32..200, connection_mb in 0.1f64..64.0,
        ) {
            let [workers, threads, connections] = [workers, threads, connections].map(f64::from);
            let (each, limit) = (each_mb * 1e6, limit_mb * 1e6);
            let sum = (held * each * workers / threads).min(limit);
            let values = [
                (FactId::workers_busy_mean, workers),
                (FactId::worker_private_mean_bytes, each),
                (FactId::worker_memory_sum_bytes, sum),
                (FactId::memory_available_min_bytes, free_mb * 1e6),
                (FactId::memory_limit_bytes, limit),
                (FactId::db_connection_memory_bytes, connection_mb * 1e6),
                (FactId::db_connections_limit, connections),
                (FactId::ahead_database_connected_mean, 5.0),
            ];
            let mut facts = facts(&values, &[("ThreadsPerChild", threads as i64)]);
            facts.service.as_mut().unwrap().mode = Some("event".into());
            for remedy in remedies(&facts, workers, queue) {
                let to = remedy.to.as_ref().and_then(SettingValue::number).unwrap();
                prop_assert!(to > workers);
                let along = remedy.together_with.iter().find(|change| change.setting.name == "max_connections");
                let along = along.map_or(0.0, |change| change.to.number().unwrap() - connections);
                let admitted = each * to / threads + along * connection_mb * 1e6;
                let there = (free_mb * 1e6 + sum).min(limit) - 0.1 * limit;
                prop_assert!(admitted <= there * (1.0 + 1e-9), "{} of {}", admitted, there);
            }
        }
    }

    #[test]
    fn kept_connections_hold_more_workers_than_their_requests_need() {
        let held = [
            (FactId::offered_rate, 500.0),
            (FactId::connections_cap, 200.0),
            (FactId::in_flight_mean, 200.0),
        ];
        assert_eq!(with(&held).unwrap().remedies[0].to, Some(SettingValue::Integer(260)));
    }

    #[test]
    fn visitors_who_think_ask_for_no_more_than_they_can() {
        // 100 users who think 0.3 s over 12 workers of 0.2 s: 60/s, 82 under way, of which 70 wait.
        let think = |in_flight: f64| {
            let values = [
                (FactId::workers_limit, 12.0),
                (FactId::workers_busy_mean, 12.0),
                (FactId::rate, 60.0),
                (FactId::worker_time_mean_us, 200_000.0),
                (FactId::accept_queue_mean, 70.0),
                (FactId::requests_in_workers_mean, 12.0),
                (FactId::users, 100.0),
                (FactId::cpu_busy_fraction, 0.05),
                (FactId::in_flight_mean, in_flight),
            ];
            with(&values).unwrap().remedies.remove(0)
        };
        let remedy = think(82.0);
        assert_eq!((remedy.to, remedy.predicted.unwrap().rate), (Some(SettingValue::Integer(107)), 200.0));
        // Pages: more requests than visitors.
        let remedy = think(900.0);
        assert_eq!((remedy.to, remedy.predicted), (Some(SettingValue::Integer(130)), None));
    }

    #[test]
    fn the_interval_has_the_noise_of_the_rate_in_it() {
        for (noise, ci95) in [(f64::NAN, [2030.0, 2480.0]), (0.1, [1930.0, 2570.0])] {
            let predicted =
                with(&[(FactId::rate_ci95_fraction, noise)]).unwrap().remedies.remove(0).predicted;
            assert_eq!(predicted.unwrap().ci95, ci95, "{noise}");
        }
    }

    #[test]
    fn late_answers_and_others_processor_time_count_for_what_they_are() {
        let rate =
            |changes: &[(FactId, f64)]| with(changes).unwrap().remedies.remove(0).predicted.unwrap().rate;
        assert_eq!(rate(&[(FactId::ended_per_s, 800.0)]), 2400.0);
        // 0.7 of two cores busy, of them 0.5 by other processes: 0.25 of the machine for 750/s.
        let others =
            [(FactId::cpu_busy_fraction, 0.7), (FactId::cores, 2.0), (FactId::service_cpu_cores, 0.5)];
        assert_eq!(rate(&others), 1500.0);
    }
}
