//! Limits that make requests wait instead of turning them away: `limit_req` of nginx with a burst.
//!
//! Facts: ngx_http_limit_req_module. Of a burst each request is held until its turn at the zone's rate has come, unless `nodelay`
//! says so or `delay=N` lets the first N pass; the log tells it at a level that `error_log` hides by default.

use super::ceiling::{is_of_address, is_of_all};
use super::finding::{CONFIDENCE_OF_A_PART, RISK};
use super::rejected::{WrittenSetting, configured_rate, rate_of, value, written};
use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::common::alone_words;
use crate::limits::healthy::response_time::slower_than_alone;
use crate::limits::manual_remedy::manual;
use crate::resources::time_breakdown::{keeps_up, noticed_queue};
use crate::resources::{concurrency, worker_waits};
use crate::wording::format_number;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::{ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;

/// So near to the zone's rate comes what is let through: the first second of a burst has some more.
const RATE_FRACTION: (f64, f64) = (0.93, 1.08);
/// Half the 95% interval of the rate: what is let through is even from second to second.
const EVEN_CI95_MAX: f64 = 0.1;
const CONFIDENCE: f64 = 0.9;
/// What is counted with the requests that were given up does not show whether it is even.
const CONFIDENCE_GIVEN_UP: f64 = 0.75;
/// Where fewer turns than these are used something else is slow.
const UNUSED_RATE_FRACTION_MIN: f64 = 0.5;
const CONFIDENCE_UNUSED: f64 = 0.7;
const CONFIDENCE_WATCHED: f64 = 0.6;
/// So many requests, and so large a part of them, must be held by nginx itself, whose threads have so little to do.
const HELD_MIN: f64 = 3.0;
const HELD_FRACTION_MIN: f64 = 0.6;
const BUSY_THREAD_FRACTION_MAX: f64 = 0.5;

/// Fires where requests get through just at the rate of the zone, evenly, and wait for something that is no part of the machine.
pub(super) fn check(facts: &Facts) -> Option<Finding> {
    let service = with_limits(facts)?;
    let (limit, allowed, through, held) = holding(facts, service)?;
    // Clients that wait for answers ask as often as they get them: that they would ask more often shows in what they wait.
    let slower = slower_than_alone(facts).or_else(|| takes_times_alone(facts, allowed));
    let waits =
        keeps_up(facts) == Some(false) || slower.is_some() || !facts.loaded || take_turns(facts, allowed);
    let is_out_of_files = facts.counted_often(FactId::nginx_open_files_messages).is_some();
    let takes_files = is_out_of_files && may_take_all_files(facts, &limit);
    if !waits || worker_waits::machine_is_short(facts) || (!takes_files && noticed_queue(facts).is_some()) {
        return None;
    }
    let waited = alone_words(slower);
    let at = limit.at.map_or(String::new(), |at| format!(", set in {at}"));
    let seen = match (through, held) {
        (Some((per_s, _)), _) => format!("{} req/s get through.{waited}", format_number(per_s)),
        (None, held) => {
            format!(
                "{} requests wait in nginx itself.",
                format_number(held.map_or(0.0, |(requests, _)| requests))
            )
        }
    };
    Some(Finding {
        id: LimitId::RateLimited.into(),
        summary: format!(
            "Rate limited by limit_req {}{at}: requests are held back to {} req/s, and {seen}",
            limit.value,
            format_number(allowed),
        ),
        confidence: match through.or(held) {
            _ if is_out_of_files && !takes_files => CONFIDENCE_OF_A_PART,
            Some((_, certainty)) if facts.loaded || through.is_none() => certainty,
            _ if is_of_all(service) && !is_of_address(service) => CONFIDENCE_WATCHED,
            _ => CONFIDENCE_OF_A_PART,
        },
        explains_fraction: slower.map(|(alone, usual)| 1.0 - alone / usual),
        facts: facts.cite(&fact_ids! {
            rate, rate_ci95_fraction, ended_per_s, offered_rate, response_time_mean_us, response_time_alone_us, cpu_busy_fraction,
            accept_queue_mean, in_flight_mean, busiest_thread_fraction,
        }),
        remedies: vec![Remedy {
            from: Some(SettingValue::Text(limit.value)),
            ..manual(SettingId::of_service("nginx", "limit_req"), RISK, WHY)
        }],
    })
}

/// nginx, where its limits are in force.
fn with_limits(facts: &Facts) -> Option<&ServiceSnapshot> {
    let service = facts.service.as_ref().filter(|service| service.service == "nginx")?;
    let dry_run = value(service, "limit_req_dry_run");
    (!dry_run.is_some_and(|set| set.value.eq_ignore_ascii_case("on"))).then_some(service)
}

/// Whether requests that are held, each for as long as the others, may be so many as there are places for: who gets none fails at once,
/// or when its turn has come, and more places would hold more of them.
pub(crate) fn take_all_places(facts: &Facts, places: f64) -> bool {
    let holding = with_limits(facts).and_then(|service| holding(facts, service));
    holding.is_some_and(|(limit, allowed, ..)| {
        take_turns(facts, allowed) && burst(&limit).is_some_and(|burst| burst >= places)
    })
}

/// Requests a second, or that wait, and how sure that makes.
type RateSeen = Option<(f64, f64)>;

/// The limit that requests get through at, or that holds them: the first of several, each with the rate of its zone.
fn holding<'a>(
    facts: &Facts,
    service: &'a ServiceSnapshot,
) -> Option<(WrittenSetting<'a>, f64, RateSeen, RateSeen)> {
    let holds = |limit: &WrittenSetting<'_>| {
        limit.value.contains("burst=") && !limit.value.split_whitespace().any(|word| word == "nodelay")
    };
    written(service, "limit_req").into_iter().filter(holds).find_map(|limit| {
        let allowed = rate_of(service, &limit.value).or_else(|| configured_rate(service))?;
        let through = let_through(facts, allowed);
        let held = held_in_server(facts, allowed).filter(|_| through.is_none());
        through.or(held).map(|_| (limit, allowed, through, held))
    })
}

/// Whether as many requests may be held as have all files of a process of nginx, with one for the visitor and one for the backend each:
/// others wait to be accepted then.
fn may_take_all_files(facts: &Facts, limit: &WrittenSetting<'_>) -> bool {
    burst(limit).zip(facts.value(FactId::open_files_limit)).is_some_and(|(burst, files)| 2.0 * burst >= files)
}

/// How many requests are held at most.
fn burst(limit: &WrittenSetting<'_>) -> Option<f64> {
    limit.value.split_whitespace().find_map(|word| word.strip_prefix("burst=")?.parse().ok())
}

/// At just the zone's rate, evenly, and with processors free, requests that take so many times as long as one alone are held, however
/// short that is.
const TIMES_ALONE_MIN: f64 = 2.0;
/// The same where the rate is the zone's to a hundredth, and evenly: no chance meets that, where nobody asks at that rate.
const TIMES_ALONE_MIN_OF_EXACT: f64 = 1.3;
const EXACT_FRACTION: f64 = 0.01;
/// The slowest in a hundred take hardly longer than the others.
const EVEN_TIMES_MAX: f64 = 1.05;

fn takes_times_alone(facts: &Facts, allowed: f64) -> Option<(f64, f64)> {
    let is_exact = keeps_up(facts) != Some(true)
        && facts.value(FactId::rate).is_some_and(|rate| (rate / allowed - 1.0).abs() <= EXACT_FRACTION)
        && facts.value(FactId::rate_ci95_fraction).is_some_and(|half| half <= EXACT_FRACTION);
    let times_min = if is_exact { TIMES_ALONE_MIN_OF_EXACT } else { TIMES_ALONE_MIN };
    let times = facts.value(FactId::response_time_alone_us).zip(facts.value(FactId::response_time_mean_us));
    times.filter(|(alone, usual)| *usual >= times_min * alone)
}

/// Whether exactly as many requests a second as the zone allows had their turn, and all took as long, as they do in a queue that moves
/// on at a fixed pace. One that gets no connection to the backend then, as those that are held have them all, is answered with 500.
/// One that was alone may have waited as well, behind the one before it.
fn take_turns(facts: &Facts, allowed: f64) -> bool {
    let value = |name: FactId| facts.value(name);
    let are_alike = value(FactId::response_time_p50_us)
        .zip(value(FactId::response_time_p99_us))
        .is_some_and(|(p50, p99)| p99 <= EVEN_TIMES_MAX * p50);
    let failed = value(FactId::server_error_fraction).filter(|share| *share > 0.0).zip(facts.ended_per_s());
    let per_s = value(FactId::rate).zip(failed).map(|(rate, (share, ended))| rate + share * ended);
    are_alike
        && value(FactId::in_flight_mean).is_some_and(|requests| requests >= HELD_MIN)
        && keeps_up(facts) != Some(true)
        && per_s.is_some_and(|per_s| (per_s / allowed - 1.0).abs() <= EXACT_FRACTION)
}

/// How many requests a second get through where that is the zone's rate, and how sure that makes. One that its client gave up
/// while it was held had its turn all the same; where more end than may pass, some were given up before their turn, which passed unused.
fn let_through(facts: &Facts, allowed: f64) -> Option<(f64, f64)> {
    let is_near = |per_s: &f64| (RATE_FRACTION.0..=RATE_FRACTION.1).contains(&(per_s / allowed));
    let is_even = facts.value(FactId::rate_ci95_fraction).is_some_and(|half| half <= EVEN_CI95_MAX);
    let answered = facts.value(FactId::rate).filter(|_| is_even).map(|per_s| (per_s, CONFIDENCE));
    let given_up = || facts.value(FactId::ended_per_s).map(|per_s| (per_s, CONFIDENCE_GIVEN_UP));
    let unused = || {
        let (rate, (ended, _)) = facts.value(FactId::rate).zip(given_up())?;
        let may_be = UNUSED_RATE_FRACTION_MIN * allowed..=RATE_FRACTION.1 * allowed;
        let is_between = may_be.contains(&rate) && ended >= RATE_FRACTION.0 * allowed;
        is_between.then_some((rate, CONFIDENCE_UNUSED))
    };
    let in_turn = || {
        let rate = facts.value(FactId::rate).filter(|_| take_turns(facts, allowed))?;
        Some((rate, CONFIDENCE_GIVEN_UP))
    };
    let near = |found: &(f64, f64)| is_near(&found.0);
    answered.filter(near).or_else(|| given_up().filter(near)).or_else(in_turn).or_else(unused)
}

/// Requests in nginx that nothing works on, where nobody counts those that end: of what may make them wait, `limit_req` is what is set.
/// How sure that makes comes with it.
fn held_in_server(facts: &Facts, allowed: f64) -> Option<(f64, f64)> {
    let count = |name: FactId| facts.value(name);
    let busy = [FactId::sending_connections_mean, FactId::receiving_connections_mean];
    let busy: f64 = busy.into_iter().filter_map(count).sum::<f64>() + concurrency::worked_on_behind(facts);
    let all = count(FactId::in_flight_mean).filter(|_| !facts.loaded)?;
    let sleeps = count(FactId::busiest_thread_fraction).is_some_and(|busy| busy <= BUSY_THREAD_FRACTION_MAX);
    let is_slower = facts.ended_per_s().is_some_and(|per_s| per_s < RATE_FRACTION.0 * allowed);
    let held = all - busy;
    (sleeps && !is_slower && held >= HELD_MIN && held >= HELD_FRACTION_MIN * all)
        .then_some((significant(held, 2), CONFIDENCE_WATCHED))
}

const WHY: &str = "requests beyond this rate are held until their turn; the operator decides whether it may be higher, or the load generator's address exempt for a measurement";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, scoped_setting, with_changes};

    const BASE: [(FactId, f64); 6] = [
        (FactId::rate, 58.0),
        (FactId::rate_ci95_fraction, 0.01),
        (FactId::response_time_mean_us, 172_000.0),
        (FactId::response_time_alone_us, 94_000.0),
        (FactId::cpu_busy_fraction, 0.12),
        (FactId::accept_queue_mean, 0.0),
    ];

    fn with(changes: &[(FactId, f64)], limit: &str, loaded: bool) -> Option<f64> {
        let mut facts = facts(&with_changes(&BASE, changes), &[]);
        facts.loaded = loaded;
        let (limit, scope) = limit.split_once(" in ").unwrap_or((limit, "server"));
        let one = |setting: &str, value: &str| scoped_setting(setting, value, &[scope]);
        let service = facts.service.as_mut().unwrap();
        service.service = "nginx".into();
        service.scoped = vec![
            one("limit_req_zone", "$server_name zone=all:1m rate=58r/s"),
            one("limit_req", &format!("zone=all {limit}")),
        ];
        check(&facts).map(|finding| finding.confidence)
    }

    #[test]
    fn each_limit_has_the_rate_of_its_own_zone() {
        let found = |limits: &[&str]| {
            let mut facts = facts(&BASE, &[]);
            let one = |setting: &str, value: &str| scoped_setting(setting, value, &["server"]);
            let service = facts.service.as_mut().unwrap();
            service.service = "nginx".into();
            service.scoped = vec![
                one("limit_req_zone", "$binary_remote_addr zone=login:1m rate=6r/m"),
                one("limit_req_zone", "$server_name zone=site:1m rate=58r/s"),
            ];
            service.scoped.extend(limits.iter().map(|limit| one("limit_req", limit)));
            check(&facts).map(|finding| finding.summary)
        };
        let login = "zone=login";
        for limits in [&["zone=site burst=400"][..], &[login, "zone=site burst=400"]] {
            let said = found(limits).unwrap();
            assert!(
                said.contains("limit_req zone=site burst=400: requests are held back to 58 req/s"),
                "{said}"
            );
        }
        assert_eq!(found(&[login, "zone=login burst=9"]), None);
        assert_eq!(found(&[login, "zone=site burst=400 nodelay"]), None);
    }

    #[test]
    fn what_waits_in_nginx_itself_is_held_where_nobody_counts_requests() {
        let held = "burst=400";
        let uncounted = (FactId::rate, f64::NAN);
        let in_nginx = [
            uncounted,
            (FactId::in_flight_mean, 59.0),
            (FactId::busiest_thread_fraction, 0.04),
            (FactId::requests_behind_workers_mean, 2.0),
        ];
        assert_eq!(with(&in_nginx, held, false), Some(CONFIDENCE_WATCHED));
        for (what, change) in [
            ("it is worked on behind", (FactId::requests_behind_workers_mean, 30.0)),
            ("it computes", (FactId::busiest_thread_fraction, 0.9)),
            ("clients take answers", (FactId::sending_connections_mean, 40.0)),
            ("fewer end", (FactId::ended_per_s, 30.0)),
        ] {
            assert_eq!(with(&[&in_nginx[..], &[change]].concat(), held, false), None, "{what}");
        }
    }

    #[test]
    fn held_requests_that_have_all_connections_or_files_come_before_these() {
        // As many as are held have all connections: some fail at once, and some when their turn has come.
        let in_turn = |errors: f64, p99_us: f64| {
            let changes = [
                (FactId::rate, 46.0),
                (FactId::rate_ci95_fraction, 0.3),
                (FactId::ended_per_s, 80.0),
                (FactId::server_error_fraction, errors),
                (FactId::in_flight_mean, 12.0),
                (FactId::response_time_alone_us, 170_000.0),
                (FactId::response_time_p50_us, 172_000.0),
                (FactId::response_time_p99_us, p99_us),
            ];
            with(&changes, "burst=400", true)
        };
        assert_eq!(in_turn(0.15, 173_000.0), Some(CONFIDENCE_GIVEN_UP));
        assert_eq!(in_turn(0.15, 400_000.0), None, "some wait longer");
        assert_eq!(in_turn(0.25, 173_000.0), None, "another rate");
        let out_of_files = |limit: f64, queue: f64| {
            let files = [(FactId::nginx_open_files_messages, 16.0), (FactId::open_files_limit, limit)];
            with(&[&files[..], &[(FactId::accept_queue_mean, queue)]].concat(), "burst=400", true)
        };
        assert_eq!(out_of_files(800.0, 9.0), Some(CONFIDENCE));
        assert_eq!(out_of_files(1_024.0, 9.0), None, "400 requests do not take them all");
        assert_eq!(out_of_files(1_024.0, 0.0), Some(CONFIDENCE_OF_A_PART));
    }

    #[test]
    fn an_even_rate_that_is_the_zone_s_is_its_work() {
        let held = "burst=400";
        assert_eq!(with(&[], held, true), Some(CONFIDENCE));
        assert_eq!(
            with(&[(FactId::response_time_alone_us, f64::NAN)], held, false),
            Some(CONFIDENCE_WATCHED)
        );
        let quick = [(FactId::response_time_mean_us, 10_400.0), (FactId::response_time_alone_us, 1_740.0)];
        assert_eq!(with(&quick, held, true), Some(CONFIDENCE));
        // Twice as long as alone, or half as long again at the zone's rate to a hundredth.
        let slower = |us: f64, rate: f64, half: f64| {
            [
                (FactId::response_time_mean_us, us),
                (FactId::response_time_alone_us, 30_400.0),
                (FactId::rate, rate),
                (FactId::rate_ci95_fraction, half),
            ]
        };
        assert_eq!(with(&slower(46_400.0, 58.0, 0.004), held, true), Some(CONFIDENCE));
        let as_asked = [&slower(46_400.0, 58.0, 0.004)[..], &[(FactId::offered_rate, 58.0)]].concat();
        assert_eq!(with(&as_asked, held, true), None, "at the rate that is asked for");
        for other in
            [slower(46_400.0, 56.0, 0.004), slower(46_400.0, 58.0, 0.03), slower(36_000.0, 58.0, 0.004)]
        {
            assert_eq!(with(&other, held, true), None, "{other:?}");
        }
        let watched = [(FactId::response_time_alone_us, f64::NAN)];
        assert_eq!(with(&watched, "burst=400 in location /login", false), Some(CONFIDENCE_OF_A_PART));
        let given_up = [(FactId::rate, 45.0), (FactId::ended_per_s, 58.5)];
        assert_eq!(with(&given_up, held, true), Some(CONFIDENCE_GIVEN_UP));
        let unused = [(FactId::rate, 45.0), (FactId::rate_ci95_fraction, 0.3), (FactId::ended_per_s, 70.0)];
        assert_eq!(with(&unused, held, true), Some(CONFIDENCE_UNUSED));
        for (what, changes, limit) in [
            ("nothing is held", vec![], "burst=400 nodelay"),
            ("no burst", vec![], ""),
            ("another rate", vec![(FactId::rate, 40.0)], held),
            ("an uneven rate", vec![(FactId::rate_ci95_fraction, 0.3)], held),
            ("fewer end", vec![(FactId::rate, 40.0), (FactId::ended_per_s, 50.0)], held),
            ("few are answered", vec![(FactId::rate, 10.0), (FactId::ended_per_s, 70.0)], held),
            ("as quick as alone", vec![(FactId::response_time_mean_us, 96_000.0)], held),
            ("no processor is free", vec![(FactId::pressure_group_cpu_some_fraction, 0.9)], held),
            ("a queue", vec![(FactId::accept_queue_mean, 9.0)], held),
        ] {
            assert_eq!(with(&changes, limit, true), None, "{what}");
        }
    }
}
