//! An Apache that stands behind another server, as an application behind nginx or behind another Apache: its workers are all busy.
//!
//! Facts: connections wait in the queue of its listening socket (sock_diag(7)) only while no worker accepts them. Its status page
//! would wait in the same queue, and is not asked for. What one of its workers holds of memory is not read, so that a large
//! worker is assumed.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::concurrency::has_lasting_queue;
use crate::resources::{worker_remedies, worker_waits};
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::setting::SettingId;

/// A queue that is at least so long, and at least this share of what is in flight.
const QUEUE_MIN: f64 = 3.0;
const QUEUE_FRACTION_MIN: f64 = 0.1;
/// One kind of evidence, of a queue that nothing but workers empties.
const CONFIDENCE: f64 = 0.85;
/// Another queue behind this one: its workers may wait there.
const CONFIDENCE_IN_FRONT: f64 = 0.5;
/// Assumed for a worker with a language inside of it.
const WORKER_BYTES: f64 = 64e6;

/// Fires when connections wait for workers of an Apache behind the server under load, and the machine is not short.
pub fn check(facts: &Facts) -> Option<Finding> {
    if facts.service.is_none() || worker_waits::machine_is_short(facts) {
        return None;
    }
    let own = facts.service.as_ref().filter(|front| front.service == "apache").map(|front| front.pid);
    let all: Vec<_> = facts.backends("apache").filter(|apache| Some(apache.pid) != own).collect();
    let queued = all.iter().filter_map(|apache| Some((*apache, queue_of(facts, apache)?)));
    let (apache, (listener, queue)) = queued.max_by(|a, b| a.1.1.total_cmp(&b.1.1))?;
    // Which of those on one port it is nobody knows.
    if all.iter().filter(|other| other.port == apache.port).count() > 1 {
        return None;
    }
    let in_flight = facts.value(FactId::in_flight_mean);
    if in_flight.is_some_and(|in_flight| queue < QUEUE_FRACTION_MIN * in_flight) {
        return None;
    }
    let workers = apache.number("MaxRequestWorkers").filter(|workers| *workers >= 1.0)?;
    let is_in_front = facts
        .each(FactId::backend_queue_mean)
        .any(|(other, queue)| other != listener && queue >= QUEUE_MIN && has_lasting_queue(facts, other));
    let share = in_flight.map(|in_flight| significant((queue / in_flight).min(1.0), 3));
    let cited = fact_ids! { rate, ended_per_s, offered_rate, response_time_mean_us, in_flight_mean, cpu_busy_fraction };
    let mut proof = facts.cite_of(&fact_ids! { backend_queue_mean, backend_waiting_fraction }, listener);
    proof.extend(facts.cite(&cited));
    Some(Finding {
        id: LimitId::ApacheWorkersExhausted.into(),
        summary: format!(
            "All Apache workers of the backend are busy: {} connections wait in the accept queue of {listener} on average, {} workers are allowed.",
            format_number(queue),
            format_number(workers)
        ),
        confidence: if is_in_front { CONFIDENCE_IN_FRONT } else { CONFIDENCE },
        explains_fraction: share,
        facts: proof,
        remedies: match facts.is_service("apache") || all.len() > 1 {
            // What is said of Apache's settings would be taken for those of another one.
            true => vec![manual(SettingId::external("backend", "MaxRequestWorkers"), RISK, WHY)],
            false => worker_remedies::remedies(&as_front(facts, apache, workers), workers, queue),
        },
    })
}

const RISK: &str =
    "each worker takes as much memory as those that run; what is behind it gets more requests at once";
const WHY: &str =
    "busy workers and waiting connections, plus 30%, in the configuration of the Apache that listens there";

/// Its listener and how many wait there, where some always do.
fn queue_of<'a>(facts: &'a Facts, apache: &ServiceSnapshot) -> Option<(&'a str, f64)> {
    let port = format!(":{}", apache.port);
    let of_it = facts.each(FactId::backend_queue_mean).filter(|(at, _)| at.ends_with(&port));
    let longest = of_it.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (longest.1 >= QUEUE_MIN && has_lasting_queue(facts, longest.0)).then_some(longest)
}

/// The facts as they are for it: what is of the processes of the server in front says nothing of its own.
fn as_front(facts: &Facts, apache: &ServiceSnapshot, workers: f64) -> Facts {
    let mut seen = facts.of_another(apache);
    seen.assume(FactId::worker_private_mean_bytes, WORKER_BYTES);
    seen.assume(FactId::worker_memory_sum_bytes, WORKER_BYTES * workers);
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{apache, facts_of_several};
    use webdyno_model::service::SettingValue;
    use webdyno_model::topology::Topology;

    fn check_with(
        changes: &[(FactId, f64)],
        queues: &[(&str, f64, f64)],
        backends: usize,
    ) -> Option<Finding> {
        let base = [
            (FactId::in_flight_mean, 85.0),
            (FactId::rate, 58.0),
            (FactId::users, 100.0),
            (FactId::cpu_busy_fraction, 0.3),
            (FactId::memory_available_min_bytes, 8e9),
            (FactId::memory_limit_bytes, 16e9),
            // Of nginx.
            (FactId::worker_private_mean_bytes, 1e6),
            (FactId::worker_memory_sum_bytes, 4e6),
        ];
        let several: Vec<_> = queues
            .iter()
            .flat_map(|(at, mean, share)| {
                [(FactId::backend_queue_mean, *at, *mean), (FactId::backend_waiting_fraction, *at, *share)]
            })
            .collect();
        let values = crate::facts::testing::with_changes(&base, changes);
        let mut facts = facts_of_several(&values, &several);
        facts.service.as_mut().unwrap().service = "nginx".into();
        let behind =
            ServiceSnapshot { port: 8080, ..apache(&[("MaxRequestWorkers", 12), ("ServerLimit", 256)]) };
        facts.topology = Some(Topology { backends: vec![behind; backends], ..Topology::default() });
        check(&facts)
    }

    #[test]
    fn a_queue_before_a_backend_apache_is_one_of_workers() {
        let found = check_with(&[], &[("127.0.0.1:8080", 70.8, 1.0)], 1).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (0.85, Some(0.833)));
        // 85 in flight, a third more; and no more than large workers leave room for.
        assert_eq!(found.remedies[0].to, Some(SettingValue::Integer(111)));
        let tight = [(FactId::memory_available_min_bytes, 3e9)];
        let tight = check_with(&tight, &[("127.0.0.1:8080", 70.8, 1.0)], 1).unwrap();
        assert_eq!(tight.remedies[0].to, Some(SettingValue::Integer(33)));
        for (what, queues, backends) in [
            ("of another port", &[("127.0.0.1:8081", 70.0, 1.0)][..], 1),
            ("a burst", &[("127.0.0.1:8080", 70.0, 0.2)], 1),
            ("short", &[("127.0.0.1:8080", 5.0, 1.0)], 1),
            ("which of two", &[("127.0.0.1:8080", 70.0, 1.0)], 2),
            ("none", &[], 1),
        ] {
            assert!(check_with(&[], queues, backends).is_none(), "{what}");
        }
        let two = [("127.0.0.1:8080", 70.0, 1.0), ("unix:/run/x.sock", 10.0, 1.0)];
        assert_eq!(check_with(&[], &two, 1).unwrap().confidence, 0.5);
    }
    #[test]
    fn behind_another_apache_and_of_several_it_is_a_change_by_hand() {
        let behind = |pid: u32, port: u16| ServiceSnapshot {
            pid,
            port,
            ..apache(&[("MaxRequestWorkers", 12), ("ServerLimit", 256)])
        };
        let with = |front: &str, backends: &[(u32, u16)]| {
            let queues = [
                (FactId::backend_queue_mean, "127.0.0.1:8081", 70.0),
                (FactId::backend_waiting_fraction, "127.0.0.1:8081", 1.0),
            ];
            let mut facts = facts_of_several(&[(FactId::in_flight_mean, 85.0)], &queues);
            let service = facts.service.as_mut().unwrap();
            (service.service, service.pid) = (front.into(), 1);
            let backends = backends.iter().map(|(pid, port)| behind(*pid, *port)).collect();
            facts.topology = Some(Topology { backends, ..Topology::default() });
            let finding = check(&facts)?;
            Some((finding.confidence, finding.remedies[0].setting.full_name()))
        };
        let by_hand = Some((0.85, "backend MaxRequestWorkers".to_owned()));
        assert_eq!(with("apache", &[(2, 8081)]), by_hand);
        assert_eq!(with("nginx", &[(2, 8080), (3, 8081)]), by_hand);
        let of_it = Some((0.85, "apache MaxRequestWorkers".to_owned()));
        assert_eq!(with("nginx", &[(2, 8081)]), of_it);
        assert_eq!(with("nginx", &[(2, 8080)]), None);
        assert_eq!(with("apache", &[(1, 8081)]), None, "that is the front itself");
    }
}
