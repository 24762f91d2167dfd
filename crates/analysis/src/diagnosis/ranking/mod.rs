//! The diagnosis: every rule over the facts, ranked; the first finding is the answer.

use crate::diagnosis::forecast;
use crate::facts::{FactId, Facts};
use crate::limits::{self, Limit, LimitId, LimitKind};
use crate::resources::{concurrency, memory_evidence, setting_source};
use webdyno_model::diagnosis::Finding;

mod sampled;

/// What was not seen to the end is believed no more than this.
const CONFIDENCE_MAX_STOPPED: f64 = 0.5;

/// All findings, the answer first: a run that cannot be believed, then what is proven best, then what explains most;
/// the order of the rules decides between equals.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found: Vec<Finding> = limits::ALL
        .iter()
        .filter(|limit| limit.id != LimitId::Unknown)
        .filter_map(|limit| (limit.check)(facts))
        .collect();
    found = sampled::weighed(facts, found);
    // `healthy` demands that nothing else is wrong.
    if found.len() > 1 {
        found.retain(|finding| finding.id != LimitId::Healthy);
    }
    if found.is_empty() {
        found.extend((LimitId::Unknown.limit().check)(facts));
    }
    let of_server = found.iter_mut().filter(|finding| !invalidates_run(finding));
    for finding in of_server.filter(|_| facts.readings_stopped) {
        finding.confidence = finding.confidence.min(CONFIDENCE_MAX_STOPPED);
    }
    let mut ranked = ranked(found, memory_evidence::is_proven(facts));
    errors_first(facts, &mut ranked);
    slow_server_first(facts, &mut ranked);
    lower_symptom_confidence(&mut ranked);
    if let Some(first) = ranked.first_mut().filter(|first| !invalidates_run(first)) {
        forecast::complete_remedy(facts, first);
    }
    setting_source::add_sources(facts, &mut ranked);
    ranked
}

/// A finding that is this sure says why most answers are errors.
const ERRORS_CONFIDENCE_MIN: f64 = 0.6;
/// Where none does, the generator that is busy with errors is no answer that anybody was looking for.
const CONFIDENCE_MAX_ERRORS: f64 = 0.5;

/// Where most answers are errors, as fast as the generator can ask for them, it is no wonder that it is busy: what is wrong is
/// what makes them errors. The figures of the run stay those that cannot be believed.
fn errors_first(facts: &Facts, ranked: &mut [Finding]) {
    let is_cause = |finding: &Finding| {
        limits::by_id(&finding.id).is_some_and(|limit| limit.makes_errors)
            && finding.confidence >= ERRORS_CONFIDENCE_MIN
    };
    let spoiled = ranked.first().is_some_and(|first| first.id == LimitId::GeneratorSaturated);
    if !spoiled || !concurrency::is_mostly_errors(facts) {
        return;
    }
    match ranked.iter().position(is_cause) {
        Some(at) => ranked[..=at].rotate_right(1),
        None => ranked[0].confidence = ranked[0].confidence.min(CONFIDENCE_MAX_ERRORS),
    }
}

/// A finding that is this sure says why connections are in use for so long.
const SLOW_SERVER_CONFIDENCE_MIN: f64 = 0.85;

/// Where the generator's delay is so small a part of the response time, with so little of a core, it spoils the figures of quick
/// answers and takes no part in what slow ones wait for, if a finding explains so much of that.
const DELAY_FRACTION_MAX: f64 = 0.01;
const CLIENT_BUSY_MAX: f64 = 0.3;
const SLOW_SERVER_EXPLAINS_MIN: f64 = 0.5;

/// Where the generator was at none of its own limits, and only all its connections were in use, or where its delay is nothing beside
/// the response time: what the server takes so long for is the answer. What the generator lacked is the second one.
fn slow_server_first(facts: &Facts, ranked: &mut [Finding]) {
    let is_first = ranked.first().is_some_and(|first| first.id == LimitId::GeneratorSaturated);
    let is_fault = facts.generator_fault.is_some();
    if !is_first || (is_fault && !(facts.generator_is_late && is_delay_small(facts))) {
        return;
    }
    let explains =
        |finding: &Finding| finding.explains_fraction.is_some_and(|share| share >= SLOW_SERVER_EXPLAINS_MIN);
    let proven = |finding: &Finding| {
        !invalidates_run(finding)
            && finding.confidence >= SLOW_SERVER_CONFIDENCE_MIN
            && (!is_fault || explains(finding))
    };
    if let Some(at) = ranked.iter().position(proven) {
        ranked[..=at].rotate_right(1);
    }
}

/// Whether the generator added nothing to speak of to the response time, and had room.
fn is_delay_small(facts: &Facts) -> bool {
    let times = [FactId::service_time_mean_us, FactId::response_time_mean_us].map(|name| facts.value(name));
    let delay = facts.value(FactId::client_delay_mean_us).zip(times.into_iter().flatten().reduce(f64::min));
    delay.is_some_and(|(delay_us, response_us)| delay_us <= DELAY_FRACTION_MAX * response_us)
        && facts.value(FactId::client_cpu_fraction_max_thread).is_some_and(|busy| busy <= CLIENT_BUSY_MAX)
}

/// Whether the figures of the run cannot be believed by it.
fn invalidates_run(finding: &Finding) -> bool {
    limits::by_id(&finding.id).is_some_and(|limit| limit.invalidates_run)
}

/// What decides the place of a finding: how sure it is, and how much of the lost time it explains.
pub(crate) fn weight(finding: &Finding) -> f64 {
    match finding.explains_fraction {
        _ if invalidates_run(finding) => f64::INFINITY,
        Some(share) => finding.confidence * (0.5 + share / 2.0),
        // What cannot tell its share is taken at its word: half of it.
        None => finding.confidence * 0.75,
    }
}

/// The answer first. `memory_is_short`: whether that is proven.
pub(crate) fn ranked(mut found: Vec<Finding>, memory_is_short: bool) -> Vec<Finding> {
    found.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    causes_first(found, memory_is_short)
}

/// A finding that is this sure and brings others about comes before them, however much of the lost time they explain: they
/// go with it.
pub const CAUSE_CONFIDENCE_MIN: f64 = 0.6;

/// Of findings, the best first, each one behind those that bring it about. That memory is short may be proven where it is not
/// sure who holds it: whatever waits may be waiting for it all the same.
fn causes_first(found: Vec<Finding>, memory_is_short: bool) -> Vec<Finding> {
    let causes = |cause: &Finding, other: &Finding| {
        let limit = limits::by_id(&cause.id);
        let proven = memory_is_short && cause.id == LimitId::MemoryExhausted;
        (proven || cause.confidence >= CAUSE_CONFIDENCE_MIN)
            && limit.is_some_and(|limit| limit.causes.iter().any(|id| other.id == *id))
    };
    let mut left = found;
    let mut ordered = vec![];
    while !left.is_empty() {
        // Of those that bring each other about the best one goes first.
        let is_free = |finding: &Finding| {
            let mut others = left.iter().filter(|cause| cause.id != finding.id && causes(cause, finding));
            others.all(|cause| causes(finding, cause))
        };
        let next = left.iter().position(is_free).unwrap_or(0);
        ordered.push(left.remove(next));
    }
    ordered
}

/// From this on a cause is suspected.
const SUSPECTED_MIN: f64 = 0.3;
/// What may be the work of another finding is a limit of its own no more surely than this.
const CONFIDENCE_MAX_SYMPTOM: f64 = 0.5;

/// A finding in front of one that would bring it about, if only that were proven, is half sure, and comes after it where that
/// weighs more then, or is as sure and stands behind it (`waits_behind`); so is one that stands behind a proven one that does:
/// what is left of it shows when that is mended.
fn lower_symptom_confidence(found: &mut [Finding]) {
    let causes: Vec<(usize, &Limit, bool)> = found
        .iter()
        .enumerate()
        .filter(|(_, finding)| finding.confidence >= SUSPECTED_MIN)
        .filter_map(|(at, cause)| {
            Some((at, limits::by_id(&cause.id)?, cause.confidence >= CAUSE_CONFIDENCE_MIN))
        })
        .collect();
    let mut cause_of_first_at = 0;
    for (place, finding) in found.iter_mut().enumerate() {
        let explains = |(at, cause, is_proven): &&(usize, &Limit, bool)| {
            // Of two that bring each other about the first one is the cause.
            (*at < place || !is_proven) && cause.causes.iter().any(|id| finding.id == *id)
        };
        let Some((at, cause, is_proven)) = causes.iter().find(explains) else { continue };
        if *is_proven {
            finding.summary += &format!(" {} also causes this: fix that first.", cause.id);
        }
        finding.confidence = finding.confidence.min(CONFIDENCE_MAX_SYMPTOM);
        if place == 0 {
            cause_of_first_at = *at;
        }
    }
    if cause_of_first_at > 0 {
        let (first, cause) = (&found[0], &found[cause_of_first_at]);
        let is_as_sure = cause.confidence >= first.confidence && waits_behind(first, cause);
        if is_as_sure || weight(cause) > weight(first) {
            found[..=cause_of_first_at].rotate_right(1);
        }
    }
}

/// Whether the one is a limit of workers, connections or files, which requests take while they wait, and the other one of what
/// documents wait for: a database, an application.
fn waits_behind(places: &Finding, other: &Finding) -> bool {
    let kind = limits::by_id(&other.id).and_then(|limit| limit.kind);
    limits::by_id(&places.id).is_some_and(|limit| limit.keeps_hold_times)
        && matches!(kind, Some(LimitKind::Documents | LimitKind::DocumentCost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    const EXHAUSTED: [(FactId, f64); 5] = [
        (FactId::scoreboard_full_fraction, 1.0),
        (FactId::workers_limit, 150.0),
        (FactId::accept_queue_mean, 300.0),
        (FactId::cpu_busy_fraction, 0.3),
        (FactId::rate, 750.0),
    ];

    #[test]
    fn a_proven_limit_is_the_answer() {
        assert_eq!(findings(&facts(&EXHAUSTED, &[]))[0].id, "apache-workers-exhausted");
    }

    #[test]
    fn a_saturated_generator_comes_before_everything() {
        let mut facts = facts(&EXHAUSTED, &[]);
        facts.generator_fault = Some("it was slow".into());
        let ids: Vec<_> = findings(&facts).into_iter().map(|finding| finding.id).collect();
        assert_eq!(ids, ["generator-saturated", "apache-workers-exhausted"]);
    }

    #[test]
    fn a_delay_of_the_generator_that_is_nothing_beside_the_response_time_spoils_quick_answers_only() {
        for (delay_us, busy, is_late, first) in [
            (212.0, 0.011, true, "apache-workers-exhausted"),
            (60_000.0, 0.011, true, "generator-saturated"),
            (212.0, 0.9, true, "generator-saturated"),
            (f64::NAN, 0.011, true, "generator-saturated"),
            // It had no ports left.
            (212.0, 0.011, false, "generator-saturated"),
        ] {
            let measured = [
                (FactId::response_time_mean_us, 600_000.0),
                (FactId::in_flight_mean, 450.0),
                (FactId::client_delay_mean_us, delay_us),
                (FactId::client_cpu_fraction_max_thread, busy),
            ];
            let mut facts = facts(&with_changes(&EXHAUSTED, &measured), &[]);
            (facts.generator_fault, facts.generator_is_late) = (Some("it was slow".into()), is_late);
            assert_eq!(findings(&facts)[0].id, first, "{delay_us} {busy} {is_late}");
        }
    }

    #[test]
    fn errors_come_before_the_generator_that_asks_for_them_fast() {
        let refused = [(FactId::db_refusals_logged_per_s, 900.0), (FactId::failed_fraction, 0.98)];
        for (errors, first) in [(0.98, "db-connections-exhausted"), (0.1, "generator-saturated")] {
            let observed = [refused[0], refused[1], (FactId::server_error_fraction, errors)];
            let mut facts = facts(&observed, &[]);
            facts.generator_fault = Some("it was slow".into());
            assert_eq!(findings(&facts)[0].id, first, "{errors}");
        }
        let mut facts = facts(&[(FactId::bad_gateway_fraction, 0.9)], &[]);
        facts.generator_fault = Some("it was slow".into());
        assert_eq!(findings(&facts)[0].confidence, CONFIDENCE_MAX_ERRORS, "nobody knows why");
    }

    #[test]
    fn what_was_not_seen_to_the_end_is_half_believed() {
        let mut facts = facts(&EXHAUSTED, &[]);
        (facts.generator_fault, facts.readings_stopped) = (Some("it was slow".into()), true);
        let all: Vec<_> = findings(&facts).into_iter().map(|finding| finding.confidence).collect();
        assert_eq!(all, [0.95, 0.5]);
    }

    #[test]
    fn thrashing_comes_before_the_workers_that_wait_for_memory() {
        let thrashing =
            [(FactId::pressure_memory_full_fraction, 0.4), (FactId::swapped_in_pages_per_s, 5000.0)];
        let all = findings(&facts(&[&EXHAUSTED[..], &thrashing[..]].concat(), &[]));
        assert_eq!((all.len(), all[0].id.as_str()), (1, "memory-exhausted"));
    }

    #[test]
    fn a_pool_that_is_full_comes_before_the_files_and_places_of_its_front() {
        let front = [(FactId::failed_fraction, 0.29), (FactId::in_flight_mean, 8.0), (FactId::rate, 5.0)];
        let first = |full: f64, message: FactId| {
            let mut facts = facts(&[&front[..], &[(message, 24.0)]].concat(), &[]);
            facts.service.as_mut().unwrap().service = "nginx".into();
            let pool = [
                (FactId::fpm_queue_mean, 0.7),
                (FactId::fpm_full_fraction, full),
                (FactId::fpm_processes_max, 2.0),
                (FactId::fpm_at_most_fraction, 1.0),
            ];
            crate::facts::testing::of_pool(&mut facts, "www", &pool);
            findings(&facts)[0].id.clone()
        };
        let (files, places) = (FactId::nginx_open_files_messages, FactId::nginx_connections_messages);
        assert_eq!([first(1.0, files), first(1.0, places)], ["php-fpm-workers-exhausted"; 2]);
        assert_eq!(first(0.5, files), "open-files-exhausted");
        assert_eq!(first(0.5, places), "nginx-connections-exhausted");
    }

    #[test]
    fn a_lock_that_requests_wait_for_comes_before_the_places_that_they_take_meanwhile() {
        let lock = |waiting: f64| {
            [
                (FactId::db_row_lock_waiting_mean, waiting),
                (FactId::db_row_lock_time_fraction, waiting),
                (FactId::db_row_lock_waits_per_s, 2.5),
                (FactId::in_flight_mean, 10.0),
                (FactId::cpu_busy_fraction, 0.05),
                (FactId::failed_fraction, 0.3),
            ]
        };
        let first = |waiting: f64, message: FactId| {
            let mut facts = facts(&[&lock(waiting)[..], &[(message, 24.0)]].concat(), &[]);
            facts.service.as_mut().unwrap().service = "nginx".into();
            findings(&facts)[0].id.clone()
        };
        for (message, place) in [
            (FactId::nginx_open_files_messages, "open-files-exhausted"),
            (FactId::nginx_connections_messages, "nginx-connections-exhausted"),
        ] {
            assert_eq!([first(9.5, message), first(0.5, message)], ["db-lock-contention", place]);
        }
    }

    #[test]
    fn descriptors_come_before_the_places_that_each_takes_one_of() {
        let full = [
            (FactId::open_files_fraction, 0.99),
            (FactId::ahead_open_files_max, 1014.0),
            (FactId::failed_fraction, 0.2),
        ];
        for (fraction, first) in [(0.99, "open-files-exhausted"), (0.5, "nginx-connections-exhausted")] {
            let mut facts = facts(&full, &[("worker_connections", 1024)]);
            crate::facts::testing::set(&mut facts, FactId::open_files_fraction, fraction);
            facts.service.as_mut().unwrap().service = "nginx".into();
            assert_eq!(findings(&facts)[0].id, first);
        }
    }

    // lighttpd holds its places for those who wait for PHP, and nobody else gets one.
    #[test]
    fn a_full_pool_comes_before_the_places_in_front_of_it() {
        use crate::facts::testing::of_pool;
        use crate::limits::php_fpm_workers_exhausted::finding::tests::FULL;
        let known = [
            (FactId::in_flight_mean, 200.0),
            (FactId::accept_queue_mean, 170.0),
            (FactId::connections_held_mean, 30.0),
            (FactId::busiest_thread_fraction, 0.05),
            (FactId::cpu_busy_fraction, 0.1),
            (FactId::rate, 50.0),
        ];
        let mut facts = facts(&known, &[("server.max-connections", 30)]);
        facts.service.as_mut().unwrap().service = "lighttpd".into();
        assert_eq!(findings(&facts)[0].id, "lighttpd-connections-exhausted");
        of_pool(&mut facts, "www", FULL);
        assert_eq!(findings(&facts)[0].id, "php-fpm-workers-exhausted");
    }

    #[test]
    fn a_kill_somewhere_on_the_machine_hides_no_limit() {
        let all = findings(&facts(&[&EXHAUSTED[..], &[(FactId::oom_kills, 1.0)][..]].concat(), &[]));
        assert_eq!(all[0].id, "apache-workers-exhausted");
    }

    #[test]
    fn kept_connections_starve_the_status_page_and_the_processes_still_tell() {
        let observed = [
            (FactId::processes_at_limit_fraction, 0.9),
            (FactId::status_unanswered_fraction, 1.0),
            (FactId::accept_queue_mean, 300.0),
            (FactId::accept_queue_max, 511.0),
            (FactId::accept_queue_limit, 511.0),
            (FactId::listen_overflows, 50.0),
            (FactId::listen_overflows_per_s, 5.0),
            (FactId::in_flight_mean, 450.0),
            (FactId::cpu_busy_fraction, 0.3),
            (FactId::rate, 750.0),
            (FactId::connections_opened_per_s, 0.0),
        ];
        let all = findings(&facts(&observed, &[("MaxRequestWorkers", 150)]));
        assert_eq!((all.len(), all[0].id.as_str()), (1, "apache-workers-exhausted"));
    }

    #[test]
    fn without_proof_it_is_unknown() {
        let all = findings(&facts(&[(FactId::rate, 10.0)], &[]));
        assert_eq!((all.len(), all[0].id.as_str()), (1, "unknown"));
    }

    #[test]
    fn what_brings_others_about_comes_before_them() {
        let finding = |id: &str, confidence| {
            let known = findings(&Facts::default()).remove(0);
            Finding { id: id.into(), confidence, ..known }
        };
        let order = |of: &[(&str, f64)]| {
            let found = of.iter().map(|(id, confidence)| finding(id, *confidence)).collect();
            causes_first(found, false).into_iter().map(|finding| finding.id).collect::<Vec<_>>()
        };
        let workers = "apache-workers-exhausted";
        assert_eq!(
            order(&[("accept-queue-overflow", 0.9), ("x", 0.9), (workers, 0.7)]),
            ["x", workers, "accept-queue-overflow"]
        );
        assert_eq!(
            order(&[("accept-queue-overflow", 0.9), (workers, 0.4)]),
            ["accept-queue-overflow", workers],
            "a mere suspicion is nobody's cause"
        );
        for (cause, symptom) in [
            ("opcache-off", "cpu-throttled"),
            ("opcache-full", "cpu-throttled"),
            ("log-io", "apache-setting-clamped"),
            ("rate-limited", "keepalive-holds-workers"),
        ] {
            assert_eq!(order(&[(symptom, 0.95), (cause, 0.75)]), [cause, symptom]);
        }
        let (handshakes, kept) = ("tls-handshakes", "keepalive-ineffective");
        assert_eq!(
            order(&[("cpu-saturated", 0.9), (handshakes, 0.7), (kept, 0.7)]),
            [handshakes, kept, "cpu-saturated"],
            "two that bring each other about still come before what they do"
        );
    }

    #[test]
    fn what_a_mere_suspicion_would_explain_is_half_sure() {
        let finding = |id: &str, confidence| {
            let known = findings(&Facts::default()).remove(0);
            Finding { id: id.into(), confidence, ..known }
        };
        for (cause, observed, first) in [
            (0.2, 0.9, "cpu-saturated"),
            (0.4, 0.5, "cpu-saturated"),
            (0.55, 0.5, "log-verbosity"),
            (0.7, 0.5, "log-verbosity"),
        ] {
            let found = vec![finding("cpu-saturated", 0.9), finding("log-verbosity", cause)];
            let mut ranked = ranked(found, false);
            lower_symptom_confidence(&mut ranked);
            assert_eq!(ranked[0].id, first, "{cause}");
            let symptom = ranked.iter().find(|finding| finding.id == "cpu-saturated").unwrap();
            assert_eq!(symptom.confidence, observed, "{cause}");
            let names_it = symptom.summary.ends_with(" log-verbosity also causes this: fix that first.");
            assert_eq!(names_it, cause >= CAUSE_CONFIDENCE_MIN, "{}", symptom.summary);
            let other = ranked.iter().find(|finding| finding.id == "log-verbosity").unwrap();
            assert_eq!(other.confidence, cause);
        }
    }

    #[test]
    fn where_neither_is_proven_the_cause_comes_before_the_places_that_waiting_takes() {
        let finding = |id: &str, confidence, share| {
            let known = findings(&Facts::default()).remove(0);
            Finding { id: id.into(), confidence, explains_fraction: share, ..known }
        };
        for (symptom, cause, confidence, is_cause_first) in [
            ("php-fpm-workers-exhausted", "db-cache-too-small", 0.5, true),
            ("php-fpm-workers-exhausted", "db-cache-too-small", 0.4, false),
            // That others use the CPU, too, is no reason for what it does for the service.
            ("cpu-saturated", "foreign-load", 0.5, false),
        ] {
            let mut found = vec![finding(symptom, 0.9, Some(0.9)), finding(cause, confidence, None)];
            lower_symptom_confidence(&mut found);
            assert_eq!(found[0].id == cause, is_cause_first, "{symptom} {cause} {confidence}");
        }
    }
}
