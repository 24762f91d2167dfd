//! When `slow-upstream` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::{concurrency, worker_waits};
use crate::settings::backends;
use crate::wording::{format_number, format_time};
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;
use webdyno_model::setting::SettingId;
use webdyno_model::topology::{Link, Topology};

/// Of the requests that are worked on, those that wait there, and how many at least.
const WAITING_FRACTION_MIN: f64 = 0.5;
const WAITING_MIN: f64 = 2.0;
/// Under load it takes so many times as long as a whole request that was alone, and this much more.
const SLOWER_TIMES_MIN: f64 = 2.0;
const SLOWER_US_MIN: f64 = 20_000.0;
/// Where nearly all are seen to wait there, nothing else makes them slower: less tells it.
const SLOWER_TIMES_MIN_OF_ALL: f64 = 1.5;
const NEARLY_ALL_FRACTION: f64 = 0.9;
const CONFIDENCE: f64 = 0.85;
/// Its connections are open while requests are under way, and which of them wait is not told.
const CONFIDENCE_UNSURE: f64 = 0.75;
const SEEN_FRACTION_MIN: f64 = 0.1;
const SUSPECTED_US_MIN: f64 = 200_000.0;
const SUSPECTED_OF_FULL_US_MIN: f64 = 1_000_000.0;
const ALL_FRACTION_MIN: f64 = 0.8;
const CONFIDENCE_SUSPECTED: f64 = 0.5;

/// A server that requests wait for.
pub(crate) struct Upstream<'a> {
    pub(crate) address: &'a str,
    /// Requests that wait for its answer.
    pub(crate) waiting: f64,
    /// Of how many that are worked on: what queues for a worker or a process waits for those.
    pub(crate) of: f64,
    /// How long each of them does.
    pub(crate) time_us: f64,
    /// Those of them that are seen to wait: of the others only the connection is open.
    pub(crate) seen: f64,
    /// Whether these are most.
    pub(crate) is_seen: bool,
    /// Whether nobody may see who talks to it: it is taken for one of the chain as so many wait there.
    pub(crate) is_guessed: bool,
    /// Whether hardly any was seen to wait: kept connections of which nobody asks anything look like that, too.
    pub(crate) may_be_idle: bool,
    /// The program, where it is on this machine and known.
    pub(crate) program: Option<String>,
}

/// The server that most of the requests in flight wait for, wherever it is, the last one of a chain; `None` where there is none.
pub(crate) fn awaited(facts: &Facts) -> Option<Upstream<'_>> {
    let worked_on = concurrency::requests_in_flight(facts)? - concurrency::requests_queued(facts);
    let worked_on = worked_on.max(WAITING_MIN);
    let topology = facts.topology.as_ref()?;
    let service = facts.service.as_ref()?;
    let may_be_linked = |at: &str| backends::are_unseen(Some(topology)) && !is_here(at);
    let is_linked = |at: &str| backends::is_behind(service, Some(topology), at);
    let all: Vec<(&str, f64, f64)> = facts
        .each(FactId::upstream_waiting_mean)
        .filter(|(at, _)| is_linked(at) || may_be_linked(at))
        .map(|(at, seen)| (at, seen, at_most_waiting(facts, at, seen)))
        .filter(|(_, _, waiting)| *waiting >= WAITING_MIN.max(WAITING_FRACTION_MIN * worked_on))
        .collect();
    // All that wait at the last server of a chain wait at those before it, too, and more with them that queue there.
    let is_last = |at: &str| {
        topology.links.iter().any(|link| link.by == at && is_backend(topology, link)) || !is_linked(at)
    };
    let (address, seen, waiting) =
        *all.iter().max_by(|a, b| is_last(a.0).cmp(&is_last(b.0)).then(a.2.total_cmp(&b.2)))?;
    // What its client gave up is not in flight, and waits on another machine all the same; on this one it may queue.
    let worked_on = if is_here(address) { worked_on } else { worked_on.max(seen) };
    let waiting = waiting.min(worked_on);
    let time_us = time_us(facts, address, waiting)?;
    let program = backends::listening_at(topology, address);
    let program = program.map(|(_, service)| backends::program_name(service).to_owned());
    Some(Upstream {
        address,
        waiting,
        of: worked_on,
        time_us,
        seen,
        is_seen: seen >= WAITING_FRACTION_MIN * waiting,
        is_guessed: !is_linked(address),
        may_be_idle: seen < SEEN_FRACTION_MIN * waiting,
        program,
    })
}

/// How long each of so many questions waits: by Little's law, or where nobody counts them, by those that wait. What was met on its
/// way had half of it behind it where all take equally long, and all of it where they end by chance. Of a mixed load not each request
/// asks there, so that the law tells too little; what has waited for longer than requests take is not of the load. Of what only others
/// ask nobody knows the kinds: then what waits longer than clients do is no request's.
fn time_us(facts: &Facts, address: &str, waiting: f64) -> Option<f64> {
    const OF_THOSE_MET: f64 = 1.5;
    let waited = facts.value_of(FactId::upstream_waited_us, address);
    let Some(per_s) = facts.ended_per_s() else { return waited.map(|us| OF_THOSE_MET * us) };
    let by_law = waiting / per_s * 1e6;
    if !facts.loaded {
        return Some(waited.filter(|us| *us <= PATIENCE_US_MAX).map_or(by_law, |us| by_law.max(us)));
    }
    let is_mixed = (2..=KINDS_MAX).contains(&facts.request_targets.len());
    let slowest_us = facts.value(FactId::response_time_p99_us).filter(|_| is_mixed);
    let of_the_load = waited.zip(slowest_us).filter(|(us, slowest_us)| us <= slowest_us);
    Some(of_the_load.map_or(by_law, |(us, _)| by_law.max(us)))
}

/// Clients wait no longer for a page.
const PATIENCE_US_MAX: f64 = 10e6;

/// Of no more kinds of requests each one is sent alone before the load.
const KINDS_MAX: usize = 3;

/// Whether it is a program behind the service that made this connection.
fn is_backend(topology: &Topology, link: &Link) -> bool {
    topology.backends.iter().any(|backend| backend.pid == link.from_pid)
}

/// Whether the address is of this machine alone: who listens there is not told to everybody.
fn is_here(at: &str) -> bool {
    ["127.", "[::1]", "unix:"].iter().any(|here| at.starts_with(here))
}

/// Whether questions that anybody may have asked are those of the load: its requests are slower than one alone, and none of these has
/// waited for longer than they take, as what is sent to a collector of logs does, which never answers.
fn may_be_of_the_load(facts: &Facts, address: &str) -> bool {
    let times = facts.value(FactId::response_time_alone_us).zip(facts.value(FactId::response_time_mean_us));
    times.is_some_and(|(alone_us, usual_us)| {
        usual_us >= SLOWER_TIMES_MIN * alone_us + SLOWER_US_MIN
            && facts.value_of(FactId::upstream_waited_us, address).is_none_or(|waited| waited <= usual_us)
    })
}

/// The most requests that may wait at a server: on kept connections the kernel's clock does not always tell.
pub(crate) fn at_most_waiting(facts: &Facts, address: &str, seen: f64) -> f64 {
    seen + facts.value_of(FactId::upstream_unsure_mean, address).unwrap_or(0.0)
}

/// Whether what takes so long is suspected without load of our own. Where a pool is full in front of it, it may be that which is too
/// small: then all of the pool must wait there, and for so long that hardly a page is meant to.
fn is_suspected(facts: &Facts, upstream: &Upstream<'_>) -> bool {
    let all_wait = upstream.is_seen
        && upstream.waiting >= ALL_FRACTION_MIN * upstream.of
        && upstream.time_us >= SUSPECTED_OF_FULL_US_MIN;
    let is_queued = concurrency::requests_queued(facts) >= WAITING_MIN;
    !facts.loaded && if is_queued { all_wait } else { upstream.time_us >= SUSPECTED_US_MIN }
}

/// The server on another machine that may be slow only under load, where nothing tells: without load of our own nobody knows what it
/// takes for one.
pub(crate) fn may_be_slow(facts: &Facts) -> Option<Upstream<'_>> {
    let is_unknown = !facts.loaded && facts.value(FactId::response_time_alone_us).is_none();
    let upstream = awaited(facts).filter(|_| is_unknown)?;
    let is_elsewhere = upstream.program.is_none() && !is_here(upstream.address);
    (is_elsewhere && upstream.is_seen && upstream.time_us >= SUSPECTED_US_MIN).then_some(upstream)
}

/// Fires when most requests wait for a server on another machine, much longer than one that is alone takes. Without load of our own
/// nobody knows that: then what takes longer than most pages do is suspected.
pub fn check(facts: &Facts) -> Option<Finding> {
    of_another_machine(facts).or_else(|| super::name_server::check(facts))
}

fn of_another_machine(facts: &Facts) -> Option<Finding> {
    let upstream =
        awaited(facts).filter(|upstream| upstream.program.is_none() && !is_here(upstream.address))?;
    let alone_us = facts.value(FactId::response_time_alone_us);
    let is_slower = match alone_us {
        Some(alone_us) => {
            let all_wait = upstream.seen >= NEARLY_ALL_FRACTION * upstream.of;
            let times = if all_wait { SLOWER_TIMES_MIN_OF_ALL } else { SLOWER_TIMES_MIN };
            upstream.time_us >= times * alone_us + SLOWER_US_MIN
        }
        None => is_suspected(facts, &upstream),
    };
    if !is_slower
        || (upstream.is_guessed && !may_be_of_the_load(facts, upstream.address))
        || worker_waits::machine_is_short(facts)
        || concurrency::is_mostly_errors(facts)
        || worker_waits::are_most_held_otherwise(facts, upstream.waiting)
    {
        return None;
    }
    let busy = facts
        .value(FactId::cpu_busy_fraction)
        .map_or(String::new(), |busy| format!(" This machine's CPU is {:.0}% busy.", busy * 100.0));
    let alone = alone_us.map_or("whether it takes as long for one is not known".to_owned(), |us| {
        format!("a request alone took {} in all", format_time(us))
    });
    let mut cited = facts.cite_of(
        &fact_ids! { upstream_waiting_mean, upstream_unsure_mean, upstream_connections_mean, upstream_waited_us },
        upstream.address,
    );
    cited.extend(facts.cite(&fact_ids! {
        in_flight_mean, response_time_mean_us, response_time_alone_us, rate, offered_rate, accept_queue_mean, cpu_busy_fraction,
    }));
    Some(Finding {
        id: LimitId::SlowUpstream.into(),
        summary: format!(
            "Requests wait for the server at {}: {} of {} in progress at once, {} each by its sockets; {alone}.{busy}",
            upstream.address,
            format_number(significant(upstream.waiting, 3)),
            format_number(significant(upstream.of, 3)),
            format_time(upstream.time_us),
        ),
        confidence: match alone_us {
            _ if upstream.is_guessed => CONFIDENCE_SUSPECTED,
            Some(_) if upstream.is_seen => CONFIDENCE,
            Some(_) if !upstream.may_be_idle => CONFIDENCE_UNSURE,
            _ => CONFIDENCE_SUSPECTED,
        },
        explains_fraction: Some(significant((upstream.waiting / upstream.of).min(1.0), 3)),
        facts: cited,
        remedies: vec![manual(
            SettingId::external("backend", "response time"),
            "none for this machine",
            format!(
                "find what limits {}: observe it as well (--server NAME=ssh://HOST); until then keep its answers in a cache, or ask it outside of the page",
                upstream.address
            ),
        )],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts_of_several, scoped_setting, with_changes};
    use webdyno_model::sample::MissingSignal;
    use webdyno_model::service::ServiceSnapshot;

    const AT: &str = "10.0.0.9:8080";

    fn with(changes: &[(FactId, f64)], waiting: f64, is_here: bool, linked: &str) -> Option<Finding> {
        with_unsure(changes, (waiting, 0.0), is_here, linked)
    }

    fn with_unsure(
        changes: &[(FactId, f64)],
        of: (f64, f64),
        is_here: bool,
        linked: &str,
    ) -> Option<Finding> {
        at(AT, changes, of, is_here, linked)
    }

    const BASE: [(FactId, f64); 5] = [
        (FactId::in_flight_mean, 40.0),
        (FactId::rate, 50.0),
        (FactId::response_time_mean_us, 800_000.0),
        (FactId::response_time_alone_us, 60_000.0),
        (FactId::cpu_busy_fraction, 0.1),
    ];

    fn at(
        address: &str,
        changes: &[(FactId, f64)],
        (waiting, unsure): (f64, f64),
        is_here: bool,
        linked: &str,
    ) -> Option<Finding> {
        let several = [
            (FactId::upstream_waiting_mean, address, waiting),
            (FactId::upstream_unsure_mean, address, unsure),
        ];
        let mut facts = facts_of_several(&with_changes(&BASE, changes), &several);
        facts.service.as_mut().unwrap().service = "nginx".into();
        let backend = ServiceSnapshot {
            service: "unknown".into(),
            pid: 3,
            listens: vec![address.into()],
            ..Default::default()
        };
        let link = Link { by: linked.into(), ..Link::default() };
        let backends = if is_here { vec![backend] } else { vec![] };
        facts.topology = Some(Topology { backends, links: vec![link], ..Topology::default() });
        check(&facts)
    }

    #[test]
    fn a_server_that_slows_down_under_load_is_named_with_its_time() {
        let found = with(&[], 36.0, false, AT).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE, Some(0.9)));
        let begins = "Requests wait for the server at 10.0.0.9:8080: 36 of 40 in progress at once, 720 ms each by its sockets; a request alone took 60 ms in all.";
        assert!(found.summary.starts_with(begins), "{}", found.summary);
        let kept = with_unsure(&[], (8.0, 32.0), false, AT).unwrap();
        assert_eq!(kept.confidence, CONFIDENCE_UNSURE);
        let idle = with_unsure(&[], (1.0, 39.0), false, AT).unwrap();
        assert_eq!(idle.confidence, CONFIDENCE_SUSPECTED);
        assert!(kept.summary.contains("40 of 40 in progress"), "{}", kept.summary);
        let queued = with(&[(FactId::accept_queue_mean, 30.0)], 9.0, false, AT).unwrap();
        assert!(queued.summary.contains("9 of 10 in progress at once, 180 ms"), "{}", queued.summary);
        for (what, changes, waiting, is_here, linked) in [
            ("as slow when alone", vec![(FactId::response_time_alone_us, 600_000.0)], 36.0, false, AT),
            ("few wait there", vec![], 10.0, false, AT),
            ("it is on this machine", vec![], 36.0, true, AT),
            ("nobody of the chain talks to it", vec![], 36.0, false, "10.0.0.8:8080"),
            ("cores are short", vec![(FactId::pressure_group_cpu_some_fraction, 0.9)], 36.0, false, AT),
            ("nobody knows", vec![(FactId::response_time_alone_us, f64::NAN)], 36.0, false, AT),
        ] {
            assert!(with(&changes, waiting, is_here, linked).is_none(), "{what}");
        }
        // 1.8 times as slow as alone, where all wait there, or three in four.
        let alone = |us| [(FactId::response_time_alone_us, us)];
        assert_eq!(
            with(&alone(420_000.0), 38.0, false, AT).map(|finding| finding.confidence),
            Some(CONFIDENCE)
        );
        assert!(with(&alone(333_000.0), 30.0, false, AT).is_none());
        for seen in [8.0, 20.0] {
            let found = with_unsure(&alone(420_000.0), (seen, 38.0 - seen), false, AT);
            assert!(found.is_none(), "of most of them it is not told: {seen}");
        }
        let here = "127.0.0.1:8080";
        assert!(at(here, &[], (36.0, 0.0), false, here).is_none(), "who listens here may not be told");
    }

    #[test]
    fn where_others_have_most_of_apaches_workers_the_few_that_wait_are_not_what_limits() {
        for (workers, proxy, found) in
            [(80.0, None, false), (14.0, None, true), (80.0, Some("http://app:80/"), true)]
        {
            let full = [
                (FactId::accept_queue_mean, 30.0),
                (FactId::scoreboard_full_fraction, 1.0),
                (FactId::workers_limit, workers),
            ];
            let mut facts =
                facts_of_several(&with_changes(&BASE, &full), &[(FactId::upstream_waiting_mean, AT, 9.0)]);
            let link = Link { by: AT.into(), ..Link::default() };
            facts.topology = Some(Topology { links: vec![link], ..Topology::default() });
            let handed_over = proxy.map(|to| scoped_setting("ProxyPass", to, &[]));
            facts.service.as_mut().unwrap().scoped.extend(handed_over);
            assert_eq!(check(&facts).is_some(), found, "{workers} workers, {proxy:?}");
        }
    }

    #[test]
    fn of_a_chain_the_last_server_is_what_holds_all() {
        const FPM: &str = "127.0.0.1:9362";
        let waiting = [(FactId::upstream_waiting_mean, AT, 36.0), (FactId::upstream_waiting_mean, FPM, 36.0)];
        let found = |topology: Topology| {
            let mut facts = facts_of_several(&BASE, &waiting);
            facts.service.as_mut().unwrap().service = "lighttpd".into();
            facts.topology = Some(topology);
            check(&facts).map(|finding| finding.confidence)
        };
        let fpm = ServiceSnapshot {
            service: "php_fpm".into(),
            pid: 3,
            listens: vec![FPM.into()],
            ..Default::default()
        };
        let link = |from_pid, by: &str| Link { from_pid, by: by.into(), ..Link::default() };
        let links = vec![link(3, AT), link(1, FPM)];
        let whole = Topology { backends: vec![fpm.clone()], links, ..Topology::default() };
        assert_eq!(found(whole.clone()), Some(CONFIDENCE));
        // The pool is full: more wait for it, of which some were given up by their clients.
        let full = [
            (FactId::upstream_waiting_mean, AT, 22.0),
            (FactId::upstream_waiting_mean, FPM, 48.0),
            (FactId::fpm_queue_mean, "www", 31.0),
        ];
        let mut facts = facts_of_several(&with_changes(&BASE, &[(FactId::rate, 12.0)]), &full);
        facts.service.as_mut().unwrap().service = "lighttpd".into();
        facts.topology = Some(whole);
        let summary = check(&facts).unwrap().summary;
        assert!(summary.contains("22 of 22 in progress at once, 1.83 s each"), "{summary}");
        // What PHP-FPM asks is not told to everybody.
        let links = vec![link(1, FPM)];
        let seen = Topology { backends: vec![fpm], links, ..Topology::default() };
        assert_eq!(found(seen.clone()), None);
        let unknown = String::new;
        let missing =
            vec![MissingSignal { signal: "topology".into(), why: unknown(), how_to_enable: unknown() }];
        let unseen = Topology { missing, ..seen };
        assert_eq!(found(unseen.clone()), Some(CONFIDENCE_SUSPECTED));
        // A collector of logs on that machine never answers, and a load that is as quick as one alone waits for nobody.
        let waited = |us: f64, usual_us: f64| {
            let several = [waiting[0], (FactId::upstream_waited_us, AT, us)];
            let usual = [(FactId::response_time_mean_us, usual_us)];
            let mut facts = facts_of_several(&with_changes(&BASE, &usual), &several);
            facts.topology = Some(unseen.clone());
            check(&facts).is_some()
        };
        assert_eq!([waited(4e5, 8e5), waited(6e7, 8e5), waited(1e4, 6.1e4)], [true, false, false]);
    }

    #[test]
    fn of_a_mixed_load_only_some_requests_ask_there() {
        use crate::settings::effective::RequestTarget;
        let found = |kinds: usize, waited_us: f64| {
            // One in ten asks, for 500 ms: by all requests that is 50 ms.
            let several =
                [(FactId::upstream_waiting_mean, AT, 36.0), (FactId::upstream_waited_us, AT, waited_us)];
            let mixed = [
                (FactId::rate, 720.0),
                (FactId::response_time_mean_us, 56_000.0),
                (FactId::response_time_p99_us, 700_000.0),
            ];
            let mut facts = facts_of_several(&with_changes(&BASE, &mixed), &several);
            let links = vec![Link { by: AT.into(), ..Link::default() }];
            facts.topology = Some(Topology { links, ..Topology::default() });
            facts.request_targets = vec![RequestTarget::of("http://h/a").unwrap(); kinds];
            check(&facts).map(|finding| finding.confidence)
        };
        assert_eq!(found(2, 250_000.0), Some(CONFIDENCE));
        for (what, kinds, waited_us) in [
            ("all requests are the same", 1, 250_000.0),
            ("it takes as long alone", 2, 55_000.0),
            ("no request of the load waits for so long", 2, 9e6),
            ("not all kinds were sent alone", 9, 250_000.0),
        ] {
            assert_eq!(found(kinds, waited_us), None, "{what}");
        }
    }

    #[test]
    fn it_is_named_behind_an_application_server_whose_workers_are_full() {
        let app = "127.0.0.1:8000";
        let several = [
            (FactId::upstream_waiting_mean, AT, 4.0),
            (FactId::upstream_waiting_mean, app, 40.0),
            (FactId::backend_queue_mean, app, 36.0),
        ];
        let mut facts = facts_of_several(&with_changes(&BASE, &[(FactId::rate, 10.0)]), &several);
        facts.service.as_mut().unwrap().service = "nginx".into();
        let backend = ServiceSnapshot {
            service: "unknown".into(),
            pid: 3,
            listens: vec![app.into()],
            ..ServiceSnapshot::default()
        };
        let link = |from_pid, by: &str| Link { from_pid, by: by.into(), ..Link::default() };
        let links = vec![link(1, app), link(3, AT)];
        facts.topology = Some(Topology { backends: vec![backend], links, ..Topology::default() });
        let found = check(&facts).unwrap();
        assert!(found.summary.contains("4 of 4 in progress at once, 400 ms each"), "{}", found.summary);
    }

    #[test]
    fn where_nobody_counts_the_questions_those_that_wait_tell_how_long() {
        let found = |waited_us: f64, loaded: bool| {
            let unknown = [FactId::rate, FactId::response_time_alone_us].map(|fact| (fact, f64::NAN));
            let several =
                [(FactId::upstream_waiting_mean, AT, 36.0), (FactId::upstream_waited_us, AT, waited_us)];
            let mut facts = facts_of_several(&with_changes(&BASE, &unknown), &several);
            facts.loaded = loaded;
            let links = vec![Link { by: AT.into(), ..Link::default() }];
            facts.topology = Some(Topology { links, ..Topology::default() });
            check(&facts).map(|finding| finding.confidence)
        };
        assert_eq!(found(600_000.0, false), Some(CONFIDENCE_SUSPECTED));
        assert_eq!(found(50_000.0, false), None, "that is soon enough");
        assert_eq!(found(600_000.0, true), None, "a load tells what one alone takes");
    }

    #[test]
    fn only_watched_those_that_wait_tell_how_long_where_most_requests_are_for_files() {
        let found = |waited_us: f64| {
            let changes = [(FactId::response_time_alone_us, f64::NAN), (FactId::rate, 750.0)];
            let several =
                [(FactId::upstream_waiting_mean, AT, 39.0), (FactId::upstream_waited_us, AT, waited_us)];
            let mut facts = facts_of_several(&with_changes(&BASE, &changes), &several);
            facts.loaded = false;
            let links = vec![Link { by: AT.into(), ..Link::default() }];
            facts.topology = Some(Topology { links, ..Topology::default() });
            check(&facts).map(|finding| finding.confidence)
        };
        assert_eq!(found(400_000.0), Some(CONFIDENCE_SUSPECTED));
        assert_eq!(found(60_000.0), None, "soon enough");
        assert_eq!(found(90e6), None, "a connection that nobody waits for");
    }

    #[test]
    fn only_watched_a_full_pool_that_all_waits_there_for_seconds_is_suspected_too() {
        let found = |waiting: f64, rate: f64, unsure: f64| {
            let changes = [
                (FactId::response_time_alone_us, f64::NAN),
                (FactId::in_flight_mean, 117.0),
                (FactId::accept_queue_mean, 91.0),
                (FactId::rate, rate),
            ];
            let several =
                [(FactId::upstream_waiting_mean, AT, waiting), (FactId::upstream_unsure_mean, AT, unsure)];
            let mut facts = facts_of_several(&with_changes(&BASE, &changes), &several);
            facts.loaded = false;
            let links = vec![Link { by: AT.into(), ..Link::default() }];
            facts.topology = Some(Topology { links, ..Topology::default() });
            check(&facts).map(|finding| finding.confidence)
        };
        assert_eq!(found(26.0, 5.0, 0.0), Some(CONFIDENCE_SUSPECTED));
        for (what, waiting, rate, unsure) in [
            ("they may be too few for what takes 0.5 s", 26.0, 50.0, 0.0),
            ("most of the pool does something else", 14.0, 5.0, 0.0),
            ("kept connections", 2.0, 5.0, 24.0),
        ] {
            assert_eq!(found(waiting, rate, unsure), None, "{what}");
        }
    }
}
