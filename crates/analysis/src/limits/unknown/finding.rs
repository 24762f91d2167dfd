//! When `unknown` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::apache_workers_exhausted::backend_wait;
use crate::limits::healthy::response_time::slower_than_alone;
use crate::limits::slow_upstream::finding::awaited;
use crate::resources::processors::own_cores;
use crate::resources::slow_responses;
use crate::resources::time_breakdown::breakdown;
use crate::resources::workers;
use crate::wording::{format_number, format_time};
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;

/// Workers that are on a processor for less than this share of their time wait for something.
const WORKING_FRACTION_MAX: f64 = 0.5;

/// What would have said most, by the fact that there would be: `(fact, what it needs)`.
const TELLING_COLLECTORS: [(FactId, &str); 5] = [
    (FactId::scoreboard_full_fraction, "Apache's status page (mod_status), for the state of its workers"),
    (FactId::accept_queue_mean, "the sockets of the port, for the accept queue"),
    (FactId::service_cpu_cores, "the service's processes, for their CPU use"),
    (FactId::cpu_busy_fraction, "the machine's CPU"),
    (FactId::memory_available_min_bytes, "the machine's memory"),
];

/// Fires always: [`crate::diagnosis::ranking`] asks it only when no other rule fired.
pub fn check(facts: &Facts) -> Option<Finding> {
    let stopped = facts
        .harm_guard_trip
        .as_ref()
        .map_or(String::new(), |trip| format!(" The load was stopped: {}.", trip.text));
    let failed = facts.value(FactId::failed_fraction).filter(|failed| *failed > 0.001);
    let errors =
        failed.map_or(String::new(), |failed| format!(" {:.1}% of the requests failed.", failed * 100.0));
    Some(Finding {
        id: LimitId::Unknown.into(),
        summary: format!(
            "The limit could not be proven.{stopped}{errors}{}{}{}{}{}{}",
            time(facts),
            slow_text(facts),
            locks_text(facts),
            disk_text(facts),
            serialized_text(facts),
            unobserved_text(facts)
        ),
        confidence: 0.3,
        explains_fraction: None,
        facts: cited_facts(facts),
        remedies: vec![],
    })
}

fn cited_facts(facts: &Facts) -> Vec<webdyno_model::fact::Fact> {
    let mut all = facts.cite(&fact_ids! {
            rate, offered_rate, failed_fraction, response_time_mean_us, response_time_alone_us, response_time_first_us,
            response_time_inflation, connect_time_max_us, usable_busy_fraction, cpu_busy_fraction,
            service_cpu_cores, accept_queue_mean, scoreboard_full_fraction, workers_busy_mean,
            workers_idle_mean, worker_time_mean_us, backend_time_mean_us, backend_queue_mean,
            worker_time_first_us, lock_waiting_mean, upstream_waiting_mean, busiest_thread_fraction,
            pressure_group_io_full_fraction, pressure_io_full_fraction, worker_processes_blocked_mean,
    });
    if slow_responses::noticed(facts).is_some() {
        all.extend(facts.cite(&slow_responses::FACTS));
    }
    all
}

/// How many responses are much slower than the others, and where their time goes.
fn slow_text(facts: &Facts) -> String {
    slow_responses::noticed(facts)
        .map_or(String::new(), |slow| format!(" {}", slow_responses::text(facts, &slow)))
}

/// Where most of the response time is spent, what that points to, and whether a worker works there or waits.
fn time(facts: &Facts) -> String {
    let parts = breakdown(facts);
    // The place, and what spending much time there points to.
    let named = [
        ("the accept queue", parts.accept_queue, "busy workers, or a service slow to accept"),
        ("a worker", parts.worker, "the program itself, or what it waits for"),
        ("the backend", parts.backend, "PHP-FPM or the database"),
        ("connecting", parts.connect, "lost SYNs, full queues, or a long path"),
        ("the network", parts.network, "a long path, or a saturated link"),
        ("the load generator", parts.client, "requests that waited for one of its connections"),
        ("no known part", parts.unexplained, "something that no signal shows"),
    ];
    let largest = named
        .into_iter()
        .filter_map(|(place, us, points_to)| us.map(|us| (place, us, points_to)))
        .filter(|(_, us, _)| *us > 0.0)
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((place, us, points_to)) = largest else { return String::new() };
    let work_us = own_cores(facts).zip(facts.ended_per_s()).map(|(cores, rate)| cores / rate * 1e6);
    let waits = match work_us.filter(|work| place == "a worker" && *work < WORKING_FRACTION_MAX * us) {
        Some(work) => {
            format!(": {} of it CPU time, so it waits for a backend or within the program", format_time(work))
        }
        None => format!(", which points to {points_to}"),
    };
    format!(" Most of the response time is spent in {place} ({}){waits}.", format_time(us))
}

/// Fewer wait for a lock by chance.
const LOCK_WAITING_MIN: f64 = 1.0;

/// The files whose locks requests wait for.
fn locks_text(facts: &Facts) -> String {
    let Some(waiting) = facts.value(FactId::lock_waiting_mean).filter(|waiting| *waiting >= LOCK_WAITING_MIN)
    else {
        return String::new();
    };
    let files = facts.each(FactId::file_lock_waiting_mean).filter(|(_, count)| *count >= LOCK_WAITING_MIN);
    let file = files.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(file, _)| file);
    format!(
        " {} processes on average wait for a lock on {}: what holds it is served one after the other.",
        format_number(waiting),
        file.map_or("a file".to_owned(), |file| format!("the file {file}"))
    )
}

/// In so much of the time nothing runs because all wait for a disk.
const DISK_FRACTION_MIN: f64 = 0.2;

/// That what runs is a disk, where the service stands still for it.
fn disk_text(facts: &Facts) -> String {
    let full = facts
        .value(FactId::pressure_group_io_full_fraction)
        .or(facts.value(FactId::pressure_io_full_fraction));
    let Some(full) = full.filter(|full| *full >= DISK_FRACTION_MIN) else { return String::new() };
    let blocked = facts.value(FactId::worker_processes_blocked_mean).filter(|blocked| *blocked >= 1.0);
    let blocked = blocked.map_or(String::new(), |blocked| {
        format!(", and {} of the service's processes on average are blocked by it", format_number(blocked))
    });
    format!(
        " All tasks waited for a disk {:.0}% of the time (PSI){blocked}: `iostat -x 1` shows which.",
        full * 100.0
    )
}

/// Where on this machine or another one most requests wait for an answer.
fn awaited_text(facts: &Facts) -> Option<String> {
    let upstream = awaited(facts).filter(|upstream| !upstream.is_guessed)?;
    let name = upstream.program.unwrap_or_else(|| "the server".to_owned());
    Some(format!(
        "{} of them wait for an answer of {name} at {}, {} each",
        format_number(upstream.waiting),
        upstream.address,
        format_time(upstream.time_us)
    ))
}

/// Whether requests wait for each other.
fn serialized_text(facts: &Facts) -> String {
    let workers = workers::limit_proof(facts).map(|proof| proof.workers);
    if let Some(reported) = workers.and_then(|workers| backend_wait::serialized_wait(facts, workers)) {
        return reported;
    }
    if let Some((alone, usual)) = slower_than_alone(facts) {
        let queue = facts.value(FactId::backend_queue_mean).filter(|queue| *queue >= 1.0);
        let unseen = || awaited_text(facts).unwrap_or_else(|| "in something that no signal shows".to_owned());
        let place = queue.map_or_else(unseen, |queue| {
            format!("{} connections on average wait in the backend's accept queue", format_number(queue))
        });
        let at_once = facts.value(FactId::rate).filter(|_| facts.value(FactId::failed_fraction) == Some(0.0));
        let at_once = at_once.map_or(String::new(), |rate| {
            let count = format_number(significant(rate * alone / 1e6, 2));
            format!(", about {count} are served at once (rate times the time alone)")
        });
        return format!(
            " A request alone takes {}, under this load {}: requests wait for each other{at_once}; {place}.",
            format_time(alone),
            format_time(usual)
        );
    }
    let times = facts.value(FactId::response_time_first_us).zip(facts.value(FactId::response_time_mean_us));
    times.zip(facts.value(FactId::rate)).map_or(String::new(), |((first, usual), rate)| {
        format!(
            " The first responses took {}, later ones {}: requests wait for each other, in something that allows {} req/s.",
            format_time(first),
            format_time(usual),
            format_number(rate)
        )
    })
}

fn unobserved_text(facts: &Facts) -> String {
    let apache = |fact: FactId| fact != FactId::scoreboard_full_fraction || facts.is_service("apache");
    let missing = TELLING_COLLECTORS.iter().filter(|(fact, _)| facts.value(*fact).is_none() && apache(*fact));
    let missing: Vec<&str> = missing.map(|(_, what)| *what).collect();
    if missing.is_empty() { String::new() } else { format!(" Not seen: {}.", missing.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    const SLOW: [(FactId, f64); 5] = [
        (FactId::response_time_mean_us, 900_000.0),
        (FactId::worker_time_mean_us, 880_000.0),
        (FactId::rate, 10.0),
        (FactId::failed_fraction, 0.05),
        (FactId::service_cpu_cores, 0.02),
    ];

    #[test]
    fn what_is_slower_than_alone_waits_and_where_is_told_if_it_is_seen() {
        let summary = |more: &[(FactId, f64)]| {
            let alone = [(FactId::response_time_alone_us, 100_000.0)];
            check(&facts(&[&SLOW[..], &alone, more].concat(), &[])).unwrap().summary
        };
        let unseen = summary(&[]);
        assert!(unseen.contains("alone takes 100 ms, under this load 900 ms"), "{unseen}");
        assert!(unseen.contains("no signal shows"), "{unseen}");
        let seen = summary(&[(FactId::backend_queue_mean, 38.0)]);
        assert!(seen.contains("38 connections on average wait in the backend's accept queue"), "{seen}");
    }

    #[test]
    fn a_lock_on_a_file_is_told() {
        let values = [&SLOW[..], &[(FactId::lock_waiting_mean, 25.0)]].concat();
        let file = [(FactId::file_lock_waiting_mean, "/srv/counter", 25.0)];
        let summary = check(&crate::facts::testing::facts_of_several(&values, &file)).unwrap().summary;
        assert!(
            summary.contains("25 processes on average wait for a lock on the file /srv/counter"),
            "{summary}"
        );
    }

    #[test]
    fn a_disk_that_all_wait_for_is_told() {
        let waits =
            [(FactId::pressure_group_io_full_fraction, 0.83), (FactId::worker_processes_blocked_mean, 2.0)];
        let summary = check(&facts(&[&SLOW[..], &waits].concat(), &[])).unwrap().summary;
        let told = "All tasks waited for a disk 83% of the time (PSI), and 2 of the service's processes";
        assert!(summary.contains(told), "{summary}");
    }

    #[test]
    fn it_says_where_the_time_goes() {
        let finding = check(&facts(&SLOW, &[])).unwrap();
        assert!(finding.summary.contains("5.0% of the requests failed"));
        let worker = "spent in a worker (880 ms): 2 ms of it CPU time, so it waits";
        assert!(finding.summary.contains(worker), "{}", finding.summary);
        assert!(finding.confidence < 0.5);
        let busy =
            SLOW.map(|(name, value)| (name, if name == FactId::service_cpu_cores { 8.0 } else { value }));
        assert!(check(&facts(&busy, &[])).unwrap().summary.contains("(880 ms), which points"));
    }

    #[test]
    fn requests_that_wait_for_each_other_are_told() {
        let observed = [&SLOW[..], &[(FactId::response_time_first_us, 50_000.0)]].concat();
        let summary = check(&facts(&observed, &[])).unwrap().summary;
        let reported =
            "took 50 ms, later ones 900 ms: requests wait for each other, in something that allows 10 req/s";
        assert!(summary.contains(reported), "{summary}");
    }

    #[test]
    fn what_would_have_helped_is_named() {
        let summary = check(&facts(&SLOW, &[])).unwrap().summary;
        assert!(summary.contains("Not seen: Apache's status page (mod_status)"), "{summary}");
        assert!(!summary.contains("the service's processes"));
        let all = TELLING_COLLECTORS.map(|(fact, _)| (fact, 0.0));
        assert!(!check(&facts(&all, &[])).unwrap().summary.contains("Not seen"));
    }
}
