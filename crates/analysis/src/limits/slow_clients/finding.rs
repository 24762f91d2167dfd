//! When `slow-clients` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::limits::{apache_async_cap, keepalive_holds_workers};
use crate::resources::time_breakdown::noticed_queue;
use crate::resources::{worker_waits, workers};
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// From this share of the workers on they are what is missing.
pub(crate) const HELD_FRACTION_MIN: f64 = 0.3;
/// Responses below this size fit into a send buffer as the kernel makes it: no worker waits for them.
const ANSWER_BYTES_MIN: f64 = 262_144.0;
/// What is sent to each slow client a second: less is nothing at all, more is no slow line.
pub(crate) const PACE_BYTES_PER_S: (f64, f64) = (100.0, 1e6);

/// What is sent beside our own answers must be more than what the network adds to these.
const OTHERS_BYTES_RATIO_MIN: f64 = 1.0;
/// Headers and other traffic of a host may be this much: less says nothing of answers.
const SENT_BYTES_PER_S_MIN: f64 = 200_000.0;
const CONFIDENCE_UNSURE: f64 = 0.5;
/// Where they have fewer than half of the workers, and so many times as many requests wait as they hold workers, freeing these would
/// not serve the queue: there are too few workers, too.
const HELD_FRACTION_OF_MOST: f64 = 0.5;
const WAITING_PER_HELD_MIN: f64 = 2.0;
const CONFIDENCE_MINOR: f64 = 0.25;
/// From so many requests on each connection is kept.
const KEPT_REQUESTS_MIN: f64 = 1.1;

/// Fires when clients that take their responses slowly hold the workers that others wait for.
pub fn check(facts: &Facts) -> Option<Finding> {
    let proof = workers::limit_proof(facts)?;
    let queue = noticed_queue(facts)?;
    let writes =
        worker_waits::dominant_state(facts).is_none_or(|(fact, _, _)| fact == FactId::workers_writing_mean);
    if !writes
        || worker_waits::machine_is_short(facts)
        || keepalive_holds_workers::finding::is_proven(facts)
        || apache_async_cap::finding::is_proven(facts)
    {
        return None;
    }
    let slow = slow_by_send_queues(facts, proof.workers)
        .or_else(|| slow_by_throughput(facts, proof.workers))
        .or_else(|| slow_by_completions(facts, proof.workers))?;
    let is_minor = keepalive_holds_workers::finding::are_too_few_for_requests(facts, proof.workers)
        || (slow.held < HELD_FRACTION_OF_MOST * proof.workers && queue >= WAITING_PER_HELD_MIN * slow.held);
    Some(Finding {
        id: LimitId::SlowClients.into(),
        summary: format!(
            "Slow clients hold the workers: all {} busy{}, {} connections wait in the accept queue. {}.",
            format_number(proof.workers),
            facts
                .value(FactId::service_cpu_cores)
                .map_or(String::new(), |cores| { format!(" but using only {} cores", format_number(cores)) }),
            format_number(queue),
            slow.words
        ),
        confidence: if is_minor { slow.confidence.min(CONFIDENCE_MINOR) } else { slow.confidence },
        explains_fraction: workers::accept_queue_share(facts, queue),
        facts: facts.cite(&fact_ids! {
            sending_connections_mean, workers_writing_mean, workers_busy_mean, requests_at_server_mean,
            client_round_trip_min_us, in_flight_mean, requests_in_workers_mean, other_connections_mean, network_sent_bytes_per_s,
            received_bytes_per_s, server_requests_per_s, workers_of_ended_mean, answer_bytes_mean,
            ended_per_s, scoreboard_full_fraction, processes_at_limit_fraction, accept_queue_mean,
            service_cpu_cores, cpu_busy_fraction, response_time_mean_us, rate,
        }),
        remedies: remedies(facts),
    })
}

struct SlowClients {
    /// Workers that they have.
    held: f64,
    words: String,
    confidence: f64,
}

/// Send queues that stay full, of clients each of which gets little: those of fast ones are not empty either while a response
/// is on its way.
fn slow_by_send_queues(facts: &Facts, workers: f64) -> Option<SlowClients> {
    let full =
        facts.value(FactId::sending_connections_mean).filter(|full| *full >= HELD_FRACTION_MIN * workers)?;
    let pace = facts.value(FactId::network_sent_bytes_per_s).map(|sent| sent / full);
    // Each of our own requests has one connection, and no more.
    let own = facts.value(FactId::in_flight_mean).filter(|_| facts.loaded);
    let are_others = own.is_some_and(|own| full - own >= HELD_FRACTION_MIN * workers);
    let do_not_end = held_by_unended(facts, workers).is_some_and(|held| held >= HELD_FRACTION_MIN * workers);
    // Of answers that end, those that are on their way, at the least: on slow lines packets wait, which is what is looked for.
    let round_trip_us = facts.value(FactId::client_round_trip_min_us);
    let on_their_way = facts.ended_per_s().zip(round_trip_us).map(|(per_s, us)| per_s * us / 1e6);
    let are_unended = on_their_way.is_none_or(|count| full - count >= HELD_FRACTION_MIN * workers);
    let are_small = !are_others && is_of_small_answers(facts);
    if pace.is_some_and(|pace| pace > PACE_BYTES_PER_S.1) || (are_small && !(do_not_end && are_unended)) {
        return None;
    }
    // Workers that wait for a backend do not end either.
    let confidence = if are_small && on_their_way.is_none() { CONFIDENCE_UNSURE } else { 0.9 };
    let each = pace.map_or(String::new(), |pace| format!(", {}/s each", format_bytes(pace)));
    let words = format!("{} connections have full send queues{each}", format_number(full));
    Some(SlowClients { held: full, words, confidence })
}

/// Where the server is only watched: the workers that write, without those that requests which end take.
fn held_by_unended(facts: &Facts, workers: f64) -> Option<f64> {
    let writing = facts.value(FactId::workers_writing_mean).filter(|_| !facts.loaded)?.min(workers);
    Some((writing - facts.value(FactId::workers_of_ended_mean)?).max(0.0))
}

/// Whether nearly all that is sent are answers, of our load or as they end in the access log, that each fit into a send buffer:
/// those that were seen there were on their way.
fn is_of_small_answers(facts: &Facts) -> bool {
    let answer = facts.value(FactId::answer_bytes_mean);
    let logged = || answer.zip(facts.ended_per_s()).map(|(bytes, per_s)| bytes * per_s);
    let sent = facts.value(FactId::network_sent_bytes_per_s);
    let are_known = sent
        .zip(facts.value(FactId::received_bytes_per_s).or_else(logged))
        .is_some_and(|(sent, known)| sent - known < OTHERS_BYTES_RATIO_MIN * known);
    are_known && answer.is_some_and(|bytes| bytes < ANSWER_BYTES_MIN)
}

/// What others get, and how many of their requests end: what our load has at the server is known.
fn slow_by_throughput(facts: &Facts, workers: f64) -> Option<SlowClients> {
    let own = facts.value(FactId::requests_in_workers_mean).filter(|_| facts.loaded)?;
    let taken = facts.value(FactId::workers_writing_mean).map_or(workers, |writing| writing.min(workers));
    let held = (taken - own).max(0.0);
    // Who takes a response slowly leaves it in the queue of his connection.
    let is_taken =
        facts.value(FactId::sending_connections_mean).is_some_and(|full| full < HELD_FRACTION_MIN * held);
    if held < HELD_FRACTION_MIN * workers || is_taken {
        return None;
    }
    let sent = (facts.value(FactId::network_sent_bytes_per_s)?
        - facts.value(FactId::received_bytes_per_s)?)
    .max(0.0);
    let pace = sent / held;
    // Without the page's count there is that of connections, where each of our own brings one request and no more.
    let counted = facts.value(FactId::server_requests_per_s);
    let kept =
        facts.value(FactId::requests_per_connection).is_none_or(|requests| requests >= KEPT_REQUESTS_MIN);
    if (counted.is_none() && kept)
        || sent < OTHERS_BYTES_RATIO_MIN * facts.value(FactId::received_bytes_per_s)?
    {
        return None;
    }
    let ended = (counted.or(facts.value(FactId::new_connections_per_s))? - facts.ended_per_s()?).max(0.0);
    let is_long = sent >= ANSWER_BYTES_MIN * ended;
    let is_slow = (PACE_BYTES_PER_S.0..=PACE_BYTES_PER_S.1).contains(&pace);
    (is_long && is_slow).then(|| SlowClients {
        held,
        words: format!(
            "{} workers write to other clients than this load, {}/s each, and hardly any of these responses ends",
            format_number(held),
            format_bytes(pace)
        ),
        // Without the page nobody knows whether they hold workers, or places of processes that take nobody in any more.
        confidence: if counted.is_some() { 0.85 } else { CONFIDENCE_UNSURE },
    })
}

/// Where the server is only watched: requests that end take few of the workers and little of what is sent, and the others,
/// which do not end, get the rest.
fn slow_by_completions(facts: &Facts, workers: f64) -> Option<SlowClients> {
    let held = held_by_unended(facts, workers)?;
    let ended_bytes = facts.value(FactId::answer_bytes_mean)? * facts.ended_per_s()?;
    let sent = facts.value(FactId::network_sent_bytes_per_s)? - ended_bytes;
    let is_enough = held >= HELD_FRACTION_MIN * workers && sent >= OTHERS_BYTES_RATIO_MIN * ended_bytes;
    let pace = sent / held;
    // Of a backend's answers nothing is sent before they are there; these are sent all the time.
    let is_slow = (PACE_BYTES_PER_S.0..=PACE_BYTES_PER_S.1).contains(&pace);
    (is_enough && is_slow && sent >= SENT_BYTES_PER_S_MIN).then(|| SlowClients {
        held,
        words: format!(
            "{} workers write responses that do not end, {}/s each, while completed ones need few workers and {}/s",
            format_number(held),
            format_bytes(pace),
            format_bytes(ended_bytes)
        ),
        confidence: 0.75,
    })
}

fn remedies(facts: &Facts) -> Vec<Remedy> {
    let remedy = |setting: &str, from: Option<&str>, to: Option<&str>, class, risk: &str, why: &str| Remedy {
        from: from.map(|from| SettingValue::Text(from.into())),
        to: to.map(|to| SettingValue::Text(to.into())),
        class,
        ..manual(SettingId::of_service("apache", setting), risk, why)
    };
    let mode = facts.service.as_ref().and_then(|service| service.mode.as_deref());
    let sendfile = remedy(
        "EnableSendfile",
        None,
        Some("On"),
        ApplyClass::Reload,
        "wrong on some network file systems: not if the files are on one",
        "files sent by the kernel hold no thread of the event MPM while a client is slow",
    );
    let event = remedy(
        "mpm",
        mode,
        Some("event"),
        ApplyClass::Manual,
        "a restart; your own modules must be thread-safe",
        "the event MPM holds no thread for a connection that waits for room in its buffer (with EnableSendfile On, for files)",
    );
    let proxy = remedy(
        "proxy",
        None,
        None,
        ApplyClass::Manual,
        "one more program in front of the site",
        "a proxy in front reads a response at once and frees the worker, however slow the client is",
    );
    match mode {
        Some("event") if may_send_by_kernel(facts) => vec![sendfile, proxy],
        Some("event") => vec![proxy],
        _ => vec![event, proxy],
    }
}

/// Whether the kernel would send files that it does not send now: what is encrypted is read by the program, whatever is set.
fn may_send_by_kernel(facts: &Facts) -> bool {
    let is_on = facts.text("EnableSendfile").is_some_and(|value| value.eq_ignore_ascii_case("on"));
    let targets = &facts.request_targets;
    !is_on && (targets.is_empty() || targets.iter().any(|target| !target.tls))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};
    use crate::settings::effective::RequestTarget;
    use webdyno_model::service::SettingInForce;

    /// Fifty processes, forty of which write to travellers; our load has ten.
    const SLOW: &[(FactId, f64)] = &[
        (FactId::scoreboard_full_fraction, 1.0),
        (FactId::workers_limit, 50.0),
        (FactId::workers_busy_mean, 50.0),
        (FactId::workers_writing_mean, 50.0),
        (FactId::accept_queue_mean, 20.0),
        (FactId::in_flight_mean, 30.0),
        (FactId::requests_in_workers_mean, 10.0),
        (FactId::network_sent_bytes_per_s, 1.1e6),
        (FactId::received_bytes_per_s, 25e3),
        (FactId::server_requests_per_s, 100.5),
        (FactId::ended_per_s, 100.0),
        (FactId::cpu_busy_fraction, 0.1),
    ];

    fn with(changes: &[(FactId, f64)], mode: &str) -> Option<Finding> {
        check(&of(changes, mode))
    }

    fn of(changes: &[(FactId, f64)], mode: &str) -> Facts {
        let values = with_changes(SLOW, changes);
        let mut facts = facts(&values, &[("MaxRequestWorkers", 50)]);
        facts.service.as_mut().unwrap().mode = Some(mode.into());
        facts
    }

    #[test]
    fn long_answers_that_are_taken_slowly_are_seen_by_their_queues_or_their_bytes() {
        let queues = (FactId::sending_connections_mean, 40.0);
        for (name, changes, confidence) in [
            ("queues", vec![queues], Some(0.9)),
            ("queues of fast lines", vec![queues, (FactId::network_sent_bytes_per_s, 9e7)], None),
            (
                "our own short answers on their way",
                vec![queues, (FactId::network_sent_bytes_per_s, 40e3), (FactId::answer_bytes_mean, 8_000.0)],
                None,
            ),
            (
                "more than our own",
                vec![
                    queues,
                    (FactId::in_flight_mean, 19.0),
                    (FactId::received_bytes_per_s, 1e6),
                    (FactId::answer_bytes_mean, 8_000.0),
                ],
                Some(0.9),
            ),
            ("no load of ours", vec![queues, (FactId::requests_in_workers_mean, f64::NAN)], Some(0.9)),
            ("bytes", vec![], Some(0.85)),
            (
                "no page",
                vec![
                    (FactId::server_requests_per_s, f64::NAN),
                    (FactId::new_connections_per_s, 101.0),
                    (FactId::requests_per_connection, 1.0),
                ],
                Some(0.5),
            ),
            (
                "no page, and our own connections are kept",
                vec![
                    (FactId::server_requests_per_s, f64::NAN),
                    (FactId::new_connections_per_s, 50.0),
                    (FactId::requests_per_connection, 2.0),
                ],
                None,
            ),
            ("their queues are empty", vec![(FactId::sending_connections_mean, 1.0)], None),
            ("what the network adds", vec![(FactId::network_sent_bytes_per_s, 40e3)], None),
            ("others wait for a backend", vec![(FactId::network_sent_bytes_per_s, 26e3)], None),
            ("others ask much", vec![(FactId::server_requests_per_s, 160.0)], None),
            ("fast lines", vec![(FactId::network_sent_bytes_per_s, 9e7)], None),
            ("our own requests", vec![(FactId::requests_in_workers_mean, 48.0)], None),
            (
                "they wait for other requests",
                vec![queues, (FactId::workers_writing_mean, 5.0), (FactId::workers_keepalive_mean, 45.0)],
                None,
            ),
            ("no processor is free", vec![queues, (FactId::pressure_group_cpu_some_fraction, 0.9)], None),
            ("no queue", vec![queues, (FactId::accept_queue_mean, 0.0)], None),
        ] {
            assert_eq!(with(&changes, "prefork").map(|finding| finding.confidence), confidence, "{name}");
        }
    }

    #[test]
    fn where_they_have_fewer_than_half_of_the_workers_a_long_queue_needs_more() {
        for (held, queue, confidence) in [(20.0, 60.0, 0.25), (20.0, 30.0, 0.9), (40.0, 90.0, 0.9)] {
            let changes = [
                (FactId::sending_connections_mean, held),
                (FactId::accept_queue_mean, queue),
                (FactId::in_flight_mean, queue + 10.0),
            ];
            assert_eq!(with(&changes, "prefork").unwrap().confidence, confidence, "{held} {queue}");
        }
    }

    #[test]
    fn workers_that_are_too_few_for_the_requests_alone_are_so_without_slow_clients() {
        for (alone_us, confidence) in [(400_000.0, 0.9), (900_000.0, 0.25)] {
            let changes = [
                (FactId::sending_connections_mean, 40.0),
                (FactId::offered_rate, 100.0),
                (FactId::response_time_alone_us, alone_us),
            ];
            assert_eq!(with(&changes, "prefork").unwrap().confidence, confidence, "{alone_us}");
        }
    }

    #[test]
    fn by_watching_alone_what_does_not_end_is_told_from_what_does() {
        let ours =
            [FactId::requests_in_workers_mean, FactId::received_bytes_per_s].map(|name| (name, f64::NAN));
        let observed = [(FactId::workers_of_ended_mean, 19.5), (FactId::answer_bytes_mean, 350.0)];
        for (name, change, confidence) in [
            ("as they are", (FactId::cpu_busy_fraction, 0.1), Some(0.75)),
            ("all of them end", (FactId::workers_of_ended_mean, 48.0), None),
            ("what is sent is sent to those that end", (FactId::answer_bytes_mean, 9_000.0), None),
            ("nothing is sent to the others", (FactId::network_sent_bytes_per_s, 120e3), None),
            ("not known", (FactId::workers_of_ended_mean, f64::NAN), None),
        ] {
            let changes: Vec<_> = ours
                .into_iter()
                .chain(observed.into_iter().filter(|(other, _)| *other != change.0))
                .chain([change])
                .collect();
            let mut facts = of(&changes, "prefork");
            facts.loaded = false;
            assert_eq!(check(&facts).map(|finding| finding.confidence), confidence, "{name}");
        }
        // All that is sent may be the short ones that end: full queues are theirs only as far as they take the workers.
        for (of_ended, round_trip_us, confidence) in [
            (10.0, 20_000.0, Some(0.9)),
            (10.0, f64::NAN, Some(0.5)),
            (48.0, 20_000.0, None),
            // Behind a backend that does not answer, 30 of the 40 are on their way.
            (10.0, 300_000.0, None),
        ] {
            let short = [
                (FactId::client_round_trip_min_us, round_trip_us),
                (FactId::sending_connections_mean, 40.0),
                (FactId::workers_of_ended_mean, of_ended),
                (FactId::answer_bytes_mean, 9_000.0),
            ];
            let mut facts = of(&[&ours[..], &short].concat(), "prefork");
            facts.loaded = false;
            assert_eq!(
                check(&facts).map(|finding| finding.confidence),
                confidence,
                "{of_ended} {round_trip_us}"
            );
        }
    }

    #[test]
    fn short_answers_that_end_are_nobodys_slow_line() {
        let passive = |answer_bytes: f64| {
            let mut facts = of(
                &[
                    (FactId::received_bytes_per_s, f64::NAN),
                    (FactId::requests_in_workers_mean, f64::NAN),
                    (FactId::sending_connections_mean, 25.0),
                    (FactId::answer_bytes_mean, answer_bytes),
                ],
                "prefork",
            );
            facts.loaded = false;
            check(&facts).is_some()
        };
        assert!(!passive(9_000.0), "900 of 1100 kB/s are of answers that ended");
        assert!(passive(350.0));
    }

    #[test]
    fn the_event_mpm_needs_the_kernels_help() {
        let first = |mode| with(&[], mode).unwrap().remedies.remove(0);
        assert_eq!(
            (first("prefork").setting.name.as_str(), first("prefork").setting_changes().len()),
            ("mpm", 0)
        );
        assert_eq!(
            (first("event").setting.name.as_str(), first("event").class),
            ("EnableSendfile", ApplyClass::Reload)
        );
        let first = |facts: &Facts| check(facts).unwrap().remedies.remove(0).setting.name;
        let mut facts = of(&[], "event");
        facts.request_targets = vec![RequestTarget::of("https://h/film.mp4").unwrap()];
        assert_eq!(first(&facts), "proxy", "what is encrypted is read by the program");
        facts.request_targets = vec![RequestTarget::of("http://h/film.mp4").unwrap()];
        assert_eq!(first(&facts), "EnableSendfile");
        let configured = Some(SettingValue::Text("On".into()));
        let on = SettingInForce { configured, ..SettingInForce::default() };
        facts.service.as_mut().unwrap().settings.insert("EnableSendfile".into(), on);
        assert_eq!(first(&facts), "proxy", "it is on");
    }
}
