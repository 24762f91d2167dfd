//! When `accept-queue-overflow` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::slow_responses::{self, SlowPlace, SlowResponses};
use crate::resources::workers;
use crate::wording::{format_number, format_time};
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// Dropped connections per second that cost something: below one per ten seconds the effect is negligible.
const OVERFLOWS_PER_S_MIN: f64 = 0.1;

/// Where fewer connections of ours were begun again, it was not our port that dropped them.
const LOST_FRACTION_MIN: f64 = 0.002;
/// What limits the rate is something else, and the queue makes the slow responses of it.
const CONFIDENCE_BESIDE: f64 = 0.4;
/// So many late connections are in the p99.
const FELT_FRACTION_MIN: f64 = 0.01;
/// No connection is late, but responses are, as many at most as packets were dropped.
const CONFIDENCE_LATE: f64 = 0.8;
/// What is dropped is sent again after this time, twice it, four times it (RFC 6298 as Linux has it, TCP_RTO_MIN).
const RETRANSMIT_US: f64 = 200_000.0;
/// Responses that are slow by this many times the longest wait in the queue were not in it.
const QUEUE_WAITS_MIN: f64 = 2.0;
/// From this share of its limit on a queue was seen to be near it.
const FILLED_FRACTION: f64 = 0.5;

/// Fires when connections are dropped and it is not for lack of workers.
pub fn check(facts: &Facts) -> Option<Finding> {
    let per_s = facts.value(FactId::listen_overflows_per_s).filter(|per_s| *per_s >= OVERFLOWS_PER_S_MIN)?;
    let dropped = facts.value(FactId::listen_overflows)?;
    let limit = facts.value(FactId::accept_queue_limit);
    let slow = slow_by_drops(facts, dropped, limit);
    let lost = facts.value(FactId::lost_syn_fraction);
    let is_felt = slow.is_some() || lost.is_some_and(|lost| lost >= FELT_FRACTION_MIN);
    let confidence = confidence(facts, slow.is_some())?.min(confidence_by_workers(facts, is_felt)?);
    let queue = limit.map_or(String::new(), |limit| format!(" (limit {})", format_number(limit)));
    let requested = requested_backlog(facts).zip(limit).filter(|_| is_clipped(facts, limit));
    let clipped = requested.map_or(String::new(), |(requested, limit)| {
        format!(
            " {} requests {}, but net.core.somaxconn grants {}.",
            if facts.is_service("nginx") { "nginx" } else { "Apache" },
            format_number(requested),
            format_number(limit)
        )
    });
    let in_bursts = if confidence <= CONFIDENCE_BESIDE { "" } else { " in bursts" };
    Some(Finding {
        id: LimitId::AcceptQueueOverflow.into(),
        summary: format!(
            "Accept queue overflows{in_bursts}{queue}: {} new connections dropped in this window. Clients retry after 1 s or more.{clipped}{}",
            format_number(dropped),
            slow.map_or(String::new(), |slow| format!(" {}", slow_text(facts, &slow, limit)))
        ),
        confidence,
        explains_fraction: crate::limits::common::connect_time_share(facts),
        facts: cited_facts(facts, slow.is_some()),
        remedies: remedies(facts, per_s, limit),
    })
}

fn cited_facts(facts: &Facts, slow: bool) -> Vec<webdyno_model::fact::Fact> {
    let mut all = facts.cite(&fact_ids! {
            listen_overflows, listen_overflows_per_s, accept_queue_max, accept_queue_limit,
            new_connections_per_s, lost_syn_connections, lost_syn_fraction, connecting_fraction,
            connect_time_max_us, response_time_p99_us, connect_timeouts,
    });
    if slow {
        all.extend(facts.cite(&slow_responses::FACTS));
    }
    all
}

/// Responses that are slow because packets of their connections were dropped: the first one, so that connecting takes seconds; or the
/// last of the handshake, so that the client sends its request on a connection that the server does not have yet. Each of them took a drop,
/// a retransmission at least, and longer than who stands in the queue.
fn slow_by_drops(facts: &Facts, dropped: f64, limit: Option<f64>) -> Option<SlowResponses> {
    let slow = slow_responses::noticed(facts).filter(|slow| slow.place != Some(SlowPlace::Transfer))?;
    let usual_us = facts.value(FactId::usual_time_max_us)?;
    let queued_us = limit.zip(facts.ended_per_s()).map_or(0.0, |(limit, per_s)| limit / per_s * 1e6);
    let is_enough = facts.value(FactId::slow_requests).is_some_and(|count| dropped >= count);
    let is_late = slow.mean_us >= (usual_us + RETRANSMIT_US).max(QUEUE_WAITS_MIN * queued_us);
    (is_enough && is_late).then_some(slow)
}

/// How slow they are, and how long those wait who find a place in the queue: by Little's law.
fn slow_text(facts: &Facts, slow: &SlowResponses, limit: Option<f64>) -> String {
    let wait_us = limit.zip(facts.ended_per_s()).map(|(limit, per_s)| limit / per_s * 1e6);
    let queued = wait_us.map_or(String::new(), |us| {
        format!(" Who finds a place in the queue waits {} at most.", format_time(us))
    });
    format!("{}{queued}", slow_responses::text(facts, slow))
}

/// What may be believed in view of the workers; while all of them are busy they are what limits, and the queue is told for the late
/// connections and slow responses that it makes (`is_felt`), or not at all. That as many processes run as may does not say that
/// they are busy: where the accept queue is empty, they are not.
fn confidence_by_workers(facts: &Facts, is_felt: bool) -> Option<f64> {
    const UNSEEN: f64 = 0.6;
    match workers::is_limit_reached(facts) {
        false => Some(1.0),
        true if is_felt => Some(CONFIDENCE_BESIDE),
        true if facts.value(FactId::scoreboard_full_fraction).is_some() => None,
        true => crate::resources::time_breakdown::noticed_queue(facts).is_none().then_some(UNSEEN),
    }
}

/// How sure it is that the queue of this port overflowed, and that it is too short; `None` when it is another one's.
fn confidence(facts: &Facts, is_slow: bool) -> Option<f64> {
    let limit = facts.value(FactId::accept_queue_limit);
    let share = |name: FactId| facts.value(name).zip(limit).map(|(queue, limit)| queue / limit.max(1.0));
    let filled = share(FactId::accept_queue_max).is_some_and(|share| share >= FILLED_FRACTION);
    // A queue that stands is not emptied: a longer one would only make the wait longer.
    if share(FactId::accept_queue_mean).is_some_and(|share| share >= FILLED_FRACTION) {
        return Some(0.4);
    }
    match facts.value(FactId::lost_syn_fraction) {
        Some(lost) if lost >= LOST_FRACTION_MIN => Some(if limit.is_some() { 0.9 } else { 0.75 }),
        // No connection of ours was late: those that were dropped last of all seem to be there, and their requests are late; or it
        // was another port, or connections of other clients.
        Some(_) => filled.then_some(if is_slow { CONFIDENCE_LATE } else { 0.5 }),
        None if filled => Some(0.9),
        // It is unknown whose queue it was. If another one is seen near its limit, it is that one's.
        None => {
            let other = facts
                .value(FactId::listen_queue_worst_fraction)
                .is_some_and(|worst| worst >= FILLED_FRACTION);
            (!other).then_some(0.6)
        }
    }
}

fn remedies(facts: &Facts, overflows_per_s: f64, limit: Option<f64>) -> Vec<Remedy> {
    let attempts_per_s = facts.value(FactId::new_connections_per_s).unwrap_or(0.0) + overflows_per_s;
    let (backlog, clipped) = (requested_backlog(facts), is_clipped(facts, limit));
    let wanted = wanted_length(attempts_per_s.max(2.0 * limit.or(backlog).unwrap_or(0.0)))
        .max(backlog.filter(|_| !clipped).unwrap_or(0.0));
    let to = Some(SettingValue::Integer(wanted as i64));
    let why = format!(
        "holds one second of new connections ({}), and at least twice the queue that overflowed",
        format_number(attempts_per_s)
    );
    let remedy = |setting: SettingId, from: Option<f64>, class, risk: &str| Remedy {
        from: from.map(|value| SettingValue::Integer(value as i64)),
        to: to.clone(),
        class,
        ..manual(setting, risk, why.clone())
    };
    let mut all: Vec<Remedy> = vec![];
    // The queue that is smaller than ListenBacklog is clipped by somaxconn: only that one helps then.
    let granted = facts.value(FactId::ahead_accept_queue_allowed).or(limit.filter(|_| clipped));
    let is_short = !clipped && backlog.is_none_or(|backlog| backlog < wanted);
    if facts.is_service("apache") {
        let setting = SettingId::of_service("apache", "ListenBacklog");
        let longer = || remedy(setting, backlog, ApplyClass::Restart, "restart: brief downtime");
        all.extend(is_short.then(longer));
    } else if facts.is_service("nginx") {
        let by_reload = SettingId::of_service("nginx", "listen backlog");
        let longer = || Remedy {
            together_with: granted_along(granted, wanted),
            ..remedy(by_reload, backlog, ApplyClass::Reload, "none known")
        };
        all.extend(is_short.then(longer));
    } else if granted.is_some_and(|granted| limit.is_none_or(|limit| limit < granted)) {
        // The kernel would give more than this program asks for.
        all.push(manual(backlog_of_program(facts), "a restart of the program", why.clone()));
    }
    let is_enough = granted.is_some_and(|granted| granted >= wanted);
    if !is_enough {
        // The sockets that are there get it without a restart, as far as the server asks for it.
        let asked = backlog.filter(|asked| *asked < wanted && clipped);
        let grown = remedy(
            SettingId::sysctl("net.core.somaxconn"),
            granted,
            ApplyClass::Manual,
            "none known; set manually, it takes effect at the next server start; `tune --apply` applies it to the running one",
        );
        all.push(Remedy { together_with: live_backlog(facts, asked.unwrap_or(wanted)), ..grown });
    } else if limit.is_none_or(|limit| limit < wanted) {
        let risk = "none known; lasts until the next server start";
        let live = live_backlog(facts, wanted).into_iter();
        all.extend(live.map(|live| remedy(live.setting, limit, ApplyClass::Live, risk)));
    }
    all
}

/// A power of two, as such queues are usually given.
fn wanted_length(at_least: f64) -> f64 {
    at_least.max(1.0).log2().ceil().exp2().min(65_535.0)
}

/// Whether the kernel gives the socket less than the server asks for. Where it would give that much by now, the socket has its length
/// from an earlier start.
fn is_clipped(facts: &Facts, limit: Option<f64>) -> bool {
    let allowed = facts.value(FactId::ahead_accept_queue_allowed);
    limit
        .zip(requested_backlog(facts))
        .is_some_and(|(limit, backlog)| limit < backlog && allowed.is_none_or(|allowed| allowed < backlog))
}

/// Where a program other than Apache and nginx says how long its queue may be.
fn backlog_of_program(facts: &Facts) -> SettingId {
    match facts.is_service("lighttpd") {
        true => SettingId::of_service("lighttpd", "server.listen-backlog"),
        false => SettingId::application("listen backlog"),
    }
}

/// nginx gives its sockets another backlog when it reads its configuration again; the kernel has to grant it then.
fn granted_along(granted: Option<f64>, wanted: f64) -> Vec<SettingChange> {
    let somaxconn = SettingChange {
        setting: SettingId::sysctl("net.core.somaxconn"),
        to: SettingValue::Integer(wanted as i64),
    };
    granted.filter(|granted| *granted < wanted).map(|_| somaxconn).into_iter().collect()
}

/// The backlog that the server asks for.
fn requested_backlog(facts: &Facts) -> Option<f64> {
    facts.service.as_ref()?.requested_backlog()
}

/// The backlog of the sockets that listen now.
fn live_backlog(facts: &Facts, to: f64) -> Vec<SettingChange> {
    let service = facts.service.as_ref().map(|service| service.service.clone());
    let change = |service: String| SettingChange {
        setting: SettingId::of_service(service, "backlog"),
        to: SettingValue::Integer(to as i64),
    };
    service.map(change).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, scoped_setting};

    const OVERFLOW: [(FactId, f64); 5] = [
        (FactId::listen_overflows, 120.0),
        (FactId::listen_overflows_per_s, 12.0),
        (FactId::accept_queue_max, 511.0),
        (FactId::accept_queue_limit, 511.0),
        (FactId::new_connections_per_s, 900.0),
    ];

    #[test]
    fn both_limits_are_named() {
        let finding = check(&facts(&OVERFLOW, &[("ListenBacklog", 511)])).unwrap();
        let settings: Vec<_> = finding.remedies.iter().map(|remedy| remedy.setting.name.as_str()).collect();
        assert_eq!(settings, ["ListenBacklog", "net.core.somaxconn"]);
        assert_eq!(finding.remedies[0].to, Some(SettingValue::Integer(1024)));
        // Without a restart the sockets that are there get it: with what the kernel grants, where that is less.
        for (granted, second, together) in [(512.0, "net.core.somaxconn", 1), (4096.0, "backlog", 0)] {
            let known = [&OVERFLOW[..], &[(FactId::ahead_accept_queue_allowed, granted)]].concat();
            let remedies = check(&facts(&known, &[("ListenBacklog", 511)])).unwrap().remedies;
            assert_eq!(remedies.len(), 2, "the kernel grants {granted}");
            let live = &remedies[1];
            assert_eq!(
                (live.setting.name.as_str(), live.together_with.len()),
                (second, together),
                "{granted}"
            );
            assert_eq!(live.setting_changes().last().unwrap().to, SettingValue::Integer(1024));
        }
    }

    #[test]
    fn a_clipped_backlog_points_at_the_kernel() {
        let clipped = OVERFLOW.map(|(name, value)| (name, if value == 511.0 { 128.0 } else { value }));
        let finding = check(&facts(&clipped, &[("ListenBacklog", 511)])).unwrap();
        assert_eq!(finding.remedies.len(), 1);
        assert_eq!(finding.remedies[0].setting.name, "net.core.somaxconn");
        // No more than the server asks for, which is what its next start gives it.
        assert_eq!(finding.remedies[0].together_with[0].to, SettingValue::Integer(511));
    }

    #[test]
    fn nothing_is_lowered_and_who_asks_for_less_than_the_kernel_gives_is_named() {
        let of = |service: &str, limit: f64, somaxconn: f64, backlog: &[(&str, i64)]| {
            let known = [
                (FactId::accept_queue_max, limit),
                (FactId::accept_queue_limit, limit),
                (FactId::ahead_accept_queue_allowed, somaxconn),
            ];
            let mut facts = facts(&crate::facts::testing::with_changes(&OVERFLOW, &known), backlog);
            facts.service.as_mut().unwrap().service = service.into();
            let finding = check(&facts).unwrap();
            assert!(!finding.summary.contains("grants"), "{}", finding.summary);
            let to = |one: &Remedy| one.to.as_ref().and_then(SettingValue::number);
            finding.remedies.iter().map(|one| (one.setting.full_name(), to(one))).collect::<Vec<_>>()
        };
        let shown = |found: &[(&str, Option<f64>)]| {
            found.iter().map(|(name, to)| ((*name).to_owned(), *to)).collect::<Vec<_>>()
        };
        let both = [("apache ListenBacklog", Some(16_384.0)), ("sysctl net.core.somaxconn", Some(16_384.0))];
        for (what, found, expected) in [
            ("length unknown", of("apache", f64::NAN, 4096.0, &[("ListenBacklog", 5000)]), &both[..]),
            (
                "of an earlier start",
                of("apache", 128.0, 4096.0, &[("ListenBacklog", 2048)]),
                &[("apache backlog", Some(2048.0))],
            ),
            (
                "a program of its own",
                of("unknown", 128.0, 4096.0, &[]),
                &[("application listen backlog", None), ("unknown backlog", Some(1024.0))],
            ),
            (
                "lighttpd",
                of("lighttpd", 128.0, 4096.0, &[]),
                &[("lighttpd server.listen-backlog", None), ("lighttpd backlog", Some(1024.0))],
            ),
            ("as long as may be", of("apache", 65_535.0, 65_535.0, &[("ListenBacklog", 65_535)]), &[]),
        ] {
            assert_eq!(found, shown(expected), "{what}");
        }
    }

    #[test]
    fn bursts_are_never_seen_and_late_connections_tell() {
        let empty =
            OVERFLOW.map(|(name, value)| (name, if name == FactId::accept_queue_max { 0.0 } else { value }));
        let sure = |more: &[(FactId, f64)]| {
            let values = [&empty[..], more].concat();
            check(&facts(&values, &[])).map(|finding| finding.confidence)
        };
        assert_eq!(sure(&[(FactId::lost_syn_fraction, 0.4)]), Some(0.9));
        // No connection of ours was late, or another port's queue was full: it is not ours. Without either it may be.
        assert_eq!(sure(&[(FactId::lost_syn_fraction, 0.0)]), None);
        assert_eq!(sure(&[(FactId::listen_queue_worst_fraction, 1.0)]), None);
        assert_eq!(sure(&[]), Some(0.6));
        // A queue that stands has another cause.
        assert_eq!(sure(&[(FactId::lost_syn_fraction, 0.4), (FactId::accept_queue_mean, 400.0)]), Some(0.4));
        assert!(
            check(&facts(&[(FactId::listen_overflows_per_s, 0.0), (FactId::listen_overflows, 0.0)], &[]))
                .is_none()
        );
    }

    #[test]
    fn nginx_takes_a_backlog_with_a_reload() {
        let of_nginx = |granted: f64, listen: &str| {
            let known = [&OVERFLOW[..], &[(FactId::ahead_accept_queue_allowed, granted)]].concat();
            let mut facts = facts(&known, &[]);
            let service = facts.service.as_mut().unwrap();
            service.service = "nginx".into();
            service.scoped = vec![scoped_setting("listen", listen, &["server _"])];
            let remedies = check(&facts).unwrap().remedies;
            remedies
                .iter()
                .map(|one| (one.setting.full_name(), one.setting_changes().len()))
                .collect::<Vec<_>>()
        };
        let shown =
            |found: &[(&str, usize)]| found.iter().map(|(name, n)| ((*name).into(), *n)).collect::<Vec<_>>();
        assert_eq!(
            of_nginx(4096.0, "80 default_server"),
            shown(&[("nginx listen backlog", 1), ("nginx backlog", 1)])
        );
        assert_eq!(
            of_nginx(512.0, "80"),
            shown(&[("nginx listen backlog", 2), ("sysctl net.core.somaxconn", 2)])
        );
        // It asks for more than the kernel grants: that one has to grant it.
        assert_eq!(of_nginx(511.0, "80 backlog=4096"), shown(&[("sysctl net.core.somaxconn", 2)]));
    }

    #[test]
    fn beside_exhausted_workers_it_is_told_for_the_slow_responses_that_it_makes() {
        let exhausted = [
            (FactId::scoreboard_full_fraction, 1.0),
            (FactId::workers_limit, 6.0),
            (FactId::rate, 60.0),
            (FactId::lost_syn_fraction, 0.1),
            (FactId::accept_queue_limit, 16.0),
            (FactId::slow_in_server_fraction, 0.1),
            (FactId::slow_in_connect_fraction, 0.9),
        ];
        let slow = crate::facts::testing::with_changes(&slow_responses::tests::SLOW, &exhausted);
        let base = crate::facts::testing::with_changes(&OVERFLOW, &slow);
        let with = |changes: &[(FactId, f64)]| {
            let values = crate::facts::testing::with_changes(&base, changes);
            check(&facts(&values, &[("MaxRequestWorkers", 6)]))
        };
        let found = with(&[]).unwrap();
        assert_eq!(found.confidence, CONFIDENCE_BESIDE);
        assert!(found.summary.contains("before the connection is established"), "{}", found.summary);
        assert!(
            found.summary.ends_with("Who finds a place in the queue waits 267 ms at most."),
            "{}",
            found.summary
        );
        let handshake = [(FactId::slow_in_server_fraction, 1.0), (FactId::slow_in_connect_fraction, 0.0)];
        assert!(with(&handshake).is_some(), "the last packet of the handshake was dropped");
        for (what, name, value) in [
            ("fewer drops", FactId::listen_overflows, 5.0),
            ("no retransmission", FactId::slow_time_mean_us, 190_000.0),
            ("a long queue", FactId::accept_queue_limit, 60.0),
        ] {
            let in_time = (FactId::lost_syn_fraction, 0.004);
            assert!(with(&[(name, value), in_time]).is_none(), "{what}");
        }
        assert!(
            with(&[(FactId::slow_fraction, 0.0), (FactId::slow_time_fraction, 0.0)]).is_some(),
            "a tenth connects late"
        );
        // Where workers are free it is the answer, though no connection was late.
        let free =
            [&handshake[..], &[(FactId::lost_syn_fraction, 0.0), (FactId::scoreboard_full_fraction, 0.0)]];
        assert_eq!(with(&free.concat()).unwrap().confidence, CONFIDENCE_LATE);
    }

    #[test]
    fn exhausted_workers_come_first() {
        let exhausted = [
            (FactId::scoreboard_full_fraction, 1.0),
            (FactId::workers_limit, 150.0),
            (FactId::accept_queue_mean, 500.0),
            (FactId::cpu_busy_fraction, 0.2),
        ];
        let of = |values: &[(FactId, f64)]| check(&facts(values, &[("MaxRequestWorkers", 150)]));
        assert!(of(&[&OVERFLOW[..], &exhausted[..]].concat()).is_none());
        // All processes run, and connections wait for them; or none does, and they may be idle.
        let sure = |values: &[(FactId, f64)]| of(values).map(|finding| finding.confidence);
        let limit = [(FactId::processes_at_limit_fraction, 0.6)];
        for (queue, with_limit) in [(40.0, None), (0.1, Some(0.6))] {
            let observed = [(FactId::cpu_busy_fraction, 0.99), (FactId::accept_queue_mean, queue)];
            assert_eq!(sure(&[&OVERFLOW[..], &limit[..], &observed[..]].concat()), with_limit, "{queue}");
            assert_eq!(sure(&[&OVERFLOW[..], &observed[..]].concat()), Some(0.9), "{queue}");
        }
    }
}
