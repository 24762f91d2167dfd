//! Visitors in the simulated world: page times against exact delays, connections, think times, counts.

use super::simulation::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use webdyno_model::page::{FetchedBy, PageInterval, TraceKind, VisitCounts};
use webdyno_model::workload::body::Body;
use webdyno_model::workload::stage::{Shape, Stage};
use webdyno_model::workload::visit::{
    CaptureFrom, CaptureSpec, PageSpec, Part, Resources, SessionSpec, StepSpec, Think, Visits,
};
use webdyno_model::workload::{Arrival, RequestSpec, Workload};

/// What a test's server answers to a request: after so long, these bytes.
pub(super) type ScriptedResponse = (u64, Vec<u8>);

/// Accepts after 0.1 ms, and answers each request as the function says, which gets the request's text.
fn site<'s>(
    received: &ReceivedRequests,
    mut response: impl FnMut(&str) -> ScriptedResponse + 's,
) -> Server<'s> {
    let received = received.clone();
    Box::new(move |visit| {
        if visit.request == 0 {
            return vec![(100_000, ServerAction::Accept)];
        }
        let (after_ns, bytes) = response(&received.borrow().last().unwrap().1);
        vec![(after_ns, ServerAction::Send(bytes))]
    })
}

/// Runs the load against such a site; returns the outcome and what was asked, with the numbers of the connections.
pub(super) fn run<'s>(
    load: &Workload,
    response: impl FnMut(&str) -> ScriptedResponse + 's,
) -> (Outcome, Vec<(u64, String)>) {
    let mut sim = Sim::new(Box::new(|_| vec![]));
    let received = sim.received.clone();
    sim.serve(site(&received, response));
    let outcome = simulate_on(load, sim);
    (outcome, received.take())
}

pub(super) fn path(request: &str) -> &str {
    request.split(' ').nth(1).unwrap()
}

pub(super) fn field<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    let head = request.split("\r\n\r\n").next().unwrap();
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// A response of a millisecond with this head and body.
pub(super) fn response(status: &str, fields: &str, body: &str) -> ScriptedResponse {
    let length =
        if status.starts_with("304") { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    (MS, format!("HTTP/1.1 {status}\r\n{fields}{length}\r\n{body}").into_bytes())
}

pub(super) fn ok(body: &str) -> ScriptedResponse {
    response("200 OK", "", body)
}

/// A load of one session with these steps, by this many users.
pub(super) fn session(
    steps: Vec<StepSpec>,
    requests: Vec<RequestSpec>,
    users: u32,
    duration_ms: u64,
) -> Workload {
    let mut load = workload(Arrival::Closed, 1000, duration_ms);
    load.requests = requests;
    let session = SessionSpec { name: "session".into(), weight: 1.0, steps };
    load.visits = Some(Box::new(Visits { sessions: vec![session], users, ..Visits::default() }));
    load
}

/// A page whose document is request 0 and whose parts are all others, loaded by this many users.
pub(super) fn page(parts: usize, users: u32, duration_ms: u64) -> Workload {
    let mut requests = vec![get("/")];
    requests.extend((0..parts).map(|number| get(&format!("/{number}"))));
    let parts = (1..=parts).map(|request| Part { request, required: true }).collect();
    let page = PageSpec { resources: Resources::Listed(parts) };
    session(vec![StepSpec { page: Some(page), ..StepSpec::default() }], requests, users, duration_ms)
}

/// A page that is searched for what it embeds.
pub(super) fn found_page(users: u32, duration_ms: u64) -> Workload {
    let step = StepSpec { page: Some(PageSpec { resources: Resources::Found }), ..StepSpec::default() };
    session(vec![step], vec![get("/")], users, duration_ms)
}

pub(super) fn visits(load: &mut Workload) -> &mut Visits {
    load.visits.as_mut().unwrap()
}

/// So many sessions, and nothing else ends the load.
pub(super) fn sessions(mut load: Workload, count: u64) -> Workload {
    (load.stop.duration_us, load.stop.requests) = (None, Some(count));
    load
}

pub(super) fn step(request: usize) -> StepSpec {
    StepSpec { request, ..StepSpec::default() }
}

pub(super) fn with_variables(request: RequestSpec) -> RequestSpec {
    RequestSpec { has_variables: true, ..request }
}

pub(super) fn pages(outcome: &Outcome) -> impl Iterator<Item = &PageInterval> {
    outcome.intervals.iter().filter_map(|interval| interval.pages.as_deref())
}

/// Completed and failed pages, and those in flight at the end.
pub(super) fn page_counts(outcome: &Outcome) -> (u64, u64, u64) {
    let sum = |of: fn(&PageInterval) -> u64| pages(outcome).map(of).sum::<u64>();
    let in_flight = pages(outcome).last().map_or(0, |pages| pages.in_flight);
    assert_eq!(sum(|p| p.started), sum(|p| p.completed) + sum(|p| p.failed) + in_flight);
    (sum(|p| p.completed), sum(|p| p.failed), in_flight)
}

pub(super) fn counts(outcome: &Outcome) -> VisitCounts {
    let mut counts = VisitCounts::default();
    outcome.intervals.iter().for_each(|interval| counts.add(&interval.visits));
    counts
}

fn page_time(outcome: &Outcome) -> webdyno_model::distribution::Dist {
    outcome.merged(|interval| &interval.pages.as_ref().unwrap().time).dist()
}

/// When the last of these parts ends, of a document that came at 0: each goes, in order, to the connection that is free
/// first; all but the first open one of their own as long as there are fewer than `most`.
fn makespan_us(parts_us: &[u64], connect_us: u64, most: usize) -> u64 {
    let mut free_at_us = vec![0];
    for &part_us in parts_us {
        let first = (0..free_at_us.len()).min_by_key(|&at| free_at_us[at]).unwrap();
        match free_at_us.len() < most && free_at_us[first] > 0 {
            true => free_at_us.push(connect_us + part_us),
            false => free_at_us[first] += part_us,
        }
    }
    free_at_us.into_iter().max().unwrap()
}

#[test]
fn a_page_is_its_document_and_then_its_parts_six_at_a_time() {
    // 0.1 ms to connect, 1 ms a response: the document, then 19 parts in waves of six, of which five connect anew.
    let mut load = page(19, 1, 1000);
    visits(&mut load).think = Think::Fixed { time_us: 50_000 };
    let outcome = simulate(&load, answering(MS));
    // One each 50 + 5.1 ms, from some moment in the first 50 ms on.
    let (loaded, failed, _) = page_counts(&outcome);
    assert!((18..=19).contains(&loaded) && failed == 0, "{loaded} pages");
    let time = page_time(&outcome);
    // The first part goes where the document came; it is that connection's fourth part that ends the page.
    assert_eq!((time.count, time.min, time.max), (loaded, Some(5100), Some(5100)));
    // Each session is made by a new visitor.
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 6 * loaded);
    assert_eq!(counts(&outcome).sessions_completed, loaded);
}

proptest! {
    // Page time = document + makespan of its parts over the connections, computed without the engine.
    #[test]
    fn page_times_are_those_of_the_parts_on_six_connections(
        parts_us in prop::collection::vec(1_000u64..50_000, 0..40), most in 1u32..8,
    ) {
        let mut load = sessions(page(parts_us.len(), 1, 1000), 1);
        visits(&mut load).connections_per_host = most;
        let delays = parts_us.clone();
        let (outcome, received) = run(&load, move |request| match path(request)[1..].parse::<usize>() {
            Ok(number) => (delays[number] * 1000, OK.to_vec()),
            Err(_) => (7 * MS, OK.to_vec()),
        });
        let expected_us = 100 + 7000 + makespan_us(&parts_us, 100, most as usize);
        prop_assert_eq!(page_time(&outcome).max, Some(expected_us));
        let connections: BTreeSet<u64> = received.iter().map(|(connection, _)| *connection).collect();
        prop_assert!(connections.len() <= most as usize);
        // Every part is a request of its own, due when the document has come.
        prop_assert_eq!(outcome.counts(), (parts_us.len() as u64 + 1, 0, 0));
        let parts = &pages(&outcome).flat_map(|pages| &pages.traces).next().unwrap().parts;
        prop_assert!(parts[1..].iter().all(|part| part.known_us == 7100));
    }
}

#[test]
fn each_server_has_connections_of_its_own() {
    let mut load = sessions(page(24, 1, 1000), 1);
    for request in load.requests.iter_mut().skip(13) {
        request.url = request.url.replace("127.0.0.1", "127.0.0.2");
    }
    let (outcome, received) = run(&load, |_| ok("x"));
    let mut used: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for (connection, request) in &received {
        used.entry(field(request, "Host").unwrap()).or_default().insert(*connection);
    }
    let used: Vec<_> = used.values().map(BTreeSet::len).collect();
    assert_eq!(used, [6, 6]);
    // 12 parts on each in two waves; on the other server all connections are new.
    assert_eq!(page_time(&outcome).max, Some(100 + 1000 + 100 + 2000));
    let parts = &pages(&outcome).next().unwrap().traces[0].parts;
    assert!(parts[24].name.starts_with("http://127.0.0.2") && parts[1].name == "/0", "{parts:?}");
}

#[test]
fn a_failed_document_has_no_parts_and_a_failed_part_fails_its_page_if_it_is_required() {
    for (bad, required, expected) in
        [("/", true, (0, 1, 0)), ("/1", true, (0, 1, 0)), ("/1", false, (1, 0, 0))]
    {
        let mut load = sessions(page(3, 1, 1000), 1);
        if let Some(PageSpec { resources: Resources::Listed(parts) }) =
            &mut visits(&mut load).sessions[0].steps[0].page
        {
            parts[1].required = required;
        }
        let (outcome, received) = run(&load, |request| match path(request) == bad {
            true => response("500 Broken", "", ""),
            false => ok("x"),
        });
        assert_eq!(page_counts(&outcome), expected, "{bad} {required}");
        assert_eq!(received.len(), if bad == "/" { 1 } else { 4 });
        let trace = &pages(&outcome).next().unwrap().traces[0];
        assert_eq!((trace.kind, trace.failed), (TraceKind::Slowest, expected.1 == 1));
        let failures: Vec<_> = trace.parts.iter().filter_map(|part| part.failure.as_deref()).collect();
        assert_eq!(failures, ["status"]);
    }
}

const HTML: &str = "<!doctype html><html><head><link rel=stylesheet href=/s.css><script src=/j.js></script></head>\
    <body><img src=/i.png><img src=http://elsewhere.example/x.png><img src=/i.png></body></html>";

/// A page with a style sheet that names two more parts.
fn found_site(request: &str) -> ScriptedResponse {
    match path(request) {
        "/" => ok(HTML),
        "/s.css" => ok("@import '/t.css'; body { background: url(/b.png) }"),
        "/t.css" => ok("p { background: url(/i.png) }"),
        _ => ok("x"),
    }
}

#[test]
fn what_a_document_and_its_style_sheets_embed_is_found_once() {
    let (outcome, received) = run(&sessions(found_page(1, 1000), 3), found_site);
    let mut paths: Vec<_> = received.iter().map(|(_, request)| path(request)).collect();
    assert_eq!(paths[0], "/");
    paths.sort_unstable();
    let each = ["/", "/b.png", "/i.png", "/j.js", "/s.css", "/t.css"];
    assert_eq!(paths, each.map(|path| [path; 3]).concat());
    assert_eq!(page_counts(&outcome), (3, 0, 0));
    let parts = &pages(&outcome).next().unwrap().traces[0].parts;
    let css = parts.iter().find(|part| part.name == "/s.css").unwrap();
    let image = parts.iter().find(|part| part.name == "/b.png").unwrap();
    assert_eq!(image.known_us, css.ended_us);
    assert!(
        received.iter().all(|(_, request)| field(request, "Accept-Encoding") == Some("gzip, deflate, br"))
    );
}

#[test]
fn a_cache_asks_for_nothing_that_is_fresh_and_confirms_what_is_stale() {
    let mut load = sessions(found_page(1, 1000), 3);
    visits(&mut load).cache = true;
    visits(&mut load).returning_fraction = 1.0;
    let (outcome, received) = run(&load, |request| {
        let stale = field(request, "If-None-Match") == Some("\"v1\"");
        match path(request) {
            "/" if stale => response("304 Not Modified", "ETag: \"v1\"\r\n", ""),
            "/" => response("200 OK", "ETag: \"v1\"\r\nCache-Control: no-cache\r\n", HTML),
            "/j.js" => response("200 OK", "Cache-Control: no-store\r\n", "x"),
            other => {
                response("200 OK", "Cache-Control: max-age=60\r\n", if other == "/s.css" { "" } else { "x" })
            }
        }
    });
    let paths: Vec<_> = received.iter().map(|(_, request)| path(request)).collect();
    assert_eq!(paths, ["/", "/s.css", "/j.js", "/i.png", "/", "/j.js", "/", "/j.js"]);
    let counts = counts(&outcome);
    assert_eq!((counts.cache_hits, counts.cache_confirmed), (4, 2));
    assert_eq!((page_counts(&outcome), outcome.counts()), ((3, 0, 0), (8, 0, 0)));
    // Another visitor has an empty cache.
    visits(&mut load).returning_fraction = 0.0;
    let (_, received) = run(&load, found_site);
    assert_eq!(received.len(), 18);
}

#[test]
fn a_fully_cached_page_takes_no_time_and_sends_nothing() {
    let mut load = found_page(1, 1000);
    visits(&mut load).cache = true;
    visits(&mut load).returning_fraction = 1.0;
    visits(&mut load).think = Think::Fixed { time_us: 100_000 };
    let (outcome, received) = run(&load, |request| {
        let body = if path(request) == "/" { HTML } else { "" };
        response("200 OK", "Cache-Control: max-age=60\r\n", body)
    });
    assert_eq!(received.len(), 4);
    let (completed, _, _) = page_counts(&outcome);
    assert_eq!((completed, counts(&outcome).cache_hits), (10, 9 * 4));
    let traces = &pages(&outcome).next().unwrap().traces;
    let typical = traces.iter().find(|trace| trace.kind == TraceKind::Typical).unwrap();
    assert_eq!(typical.time_us, 0);
    assert!(typical.parts.iter().all(|part| part.by == FetchedBy::Cache && part.sent_us.is_none()));
}

pub(super) fn capture(name: &str, from: CaptureFrom) -> CaptureSpec {
    CaptureSpec { name: name.into(), from }
}

/// Fetches a form, logs in with what it says, and goes where the response points.
fn log_in(users: u32, count: u64) -> Workload {
    let form = StepSpec {
        captures: vec![capture("csrf", CaptureFrom::Regex("name=csrf value=(\\w+)".into()))],
        ..step(0)
    };
    let login = StepSpec { captures: vec![capture("next", CaptureFrom::Header("X-Next".into()))], ..step(1) };
    let post = RequestSpec {
        method: "POST".into(),
        body: Body::from("user=u${user}&csrf=${csrf|form}"),
        ..with_variables(get("/login"))
    };
    let link = RequestSpec { name: "next".into(), url: "${next}".into(), ..with_variables(get("/")) };
    let requests = vec![get("/form/a"), post, link];
    sessions(session(vec![form, login, step(2)], requests, users, 1000), count)
}

#[test]
fn values_are_captured_and_sent() {
    let mut tokens = 0;
    let (outcome, received) = run(&log_in(2, 4), |request| match path(request) {
        "/form/a" => {
            tokens += 1;
            ok(&format!("<input name=csrf value=t{tokens}>"))
        }
        "/login" => response("200 OK", "X-Next: ../home?x=1#y\r\n", ""),
        _ => ok("x"),
    });
    assert_eq!(outcome.counts(), (12, 0, 0));
    let sent: BTreeSet<_> = received
        .iter()
        .filter(|(_, request)| path(request) == "/login")
        .map(|(_, request)| request.rsplit("\r\n\r\n").next().unwrap())
        .collect();
    assert_eq!(sent.len(), 4);
    let all: Vec<_> = sent.into_iter().collect();
    assert!(all[0].starts_with("user=u1&csrf=t") && all[3].starts_with("user=u2&csrf=t"), "{all:?}");
    assert!(received.iter().all(|(_, request)| field(request, "Content-Length").is_none_or(|n| n == "15")));
    // Read as a link on the page that answered the login.
    assert_eq!(received.iter().filter(|(_, request)| path(request) == "/home?x=1").count(), 4);
    let counts = counts(&outcome);
    assert_eq!((counts.sessions_completed, counts.sessions_broken, counts.steps_skipped), (4, 0, 0));
}

#[test]
fn what_was_never_captured_skips_the_steps_that_need_it() {
    let mut load = log_in(1, 3);
    visits(&mut load).think = Think::Fixed { time_us: 1000 };
    let (outcome, received) = run(&load, |request| match path(request) {
        "/form/a" => ok("nothing here"),
        other => panic!("{other}"),
    });
    assert_eq!((outcome.counts(), received.len()), ((3, 0, 0), 3));
    let counts = counts(&outcome);
    assert_eq!((counts.sessions_started, counts.sessions_completed, counts.sessions_broken), (3, 0, 3));
    // The link needs what the login would have captured.
    assert_eq!(counts.steps_skipped, 6);
    assert_eq!(counts.captures_missed, [("/form/a: csrf".to_owned(), 3)].into());
    // A link to a server that the load does not know is not followed.
    let (outcome, _) = run(&log_in(1, 2), |request| match path(request) {
        "/form/a" => ok("name=csrf value=x"),
        _ => response("200 OK", "X-Next: http://elsewhere.example/\r\n", ""),
    });
    let counts = self::counts(&outcome);
    assert_eq!((counts.steps_skipped, counts.sessions_broken), (2, 2));
    assert_eq!(counts.links_not_loaded, [("elsewhere.example".to_owned(), 2)].into());
}

#[test]
fn cookies_are_each_visitors_own_also_over_redirects() {
    let requests = vec![get("/in"), get("/home")];
    let mut load = sessions(session(vec![step(0), step(1)], requests, 3, 1000), 9);
    load.redirects_max = 3;
    let mut given = 0;
    let (outcome, received) = run(&load, |request| match path(request) {
        "/in" => {
            given += 1;
            let fields =
                format!("Set-Cookie: id={given}\r\nSet-Cookie: b=2; Path=/nowhere\r\nLocation: /set\r\n");
            response("302 Found", &fields, "")
        }
        "/set" => response("200 OK", "set-cookie: more=1\r\n", ""),
        _ => ok("x"),
    });
    assert_eq!((outcome.counts(), outcome.sum(|interval| interval.redirects)), ((18, 0, 0), 9));
    let cookies = |wanted: &str| -> BTreeSet<String> {
        let those = received.iter().filter(|(_, request)| path(request) == wanted);
        those.map(|(_, request)| field(request, "Cookie").unwrap_or_default().to_owned()).collect()
    };
    // No visitor comes back, so none begins with cookies.
    assert_eq!(cookies("/in"), [String::new()].into());
    assert_eq!(cookies("/set"), (1..=9).map(|id| format!("id={id}")).collect());
    assert_eq!(cookies("/home"), (1..=9).map(|id| format!("id={id}; more=1")).collect());
}

/// What the visitors of a load with draws ask for, and when they think: each session's requests in order.
fn drawn(threads: usize, after_ns: u64) -> BTreeMap<String, Vec<String>> {
    let names = ["a", "b", "c"];
    let request = |name: &&str| with_variables(get(&format!("/{name}/${{user}}/${{session}}/${{row}}")));
    let mut load = session(vec![step(0)], names.iter().map(request).collect(), 5, 1000);
    let think = Think::Exponential { mean_us: 3000 };
    let visits = visits(&mut load);
    visits.think = think;
    visits.sessions = vec![
        SessionSpec { name: "x".into(), weight: 2.0, steps: vec![step(0), step(1)] },
        SessionSpec { name: "y".into(), weight: 1.0, steps: vec![step(2)] },
    ];
    let rows = (0..7).map(|row| vec![row.to_string()]).collect::<Vec<_>>();
    visits.tables = vec![webdyno_model::workload::visit::Table {
        columns: vec!["row".into()],
        rows: std::sync::Arc::new(rows),
        order: webdyno_model::workload::visit::RowOrder::Random,
        ..Default::default()
    }];
    let received_lists: Vec<ReceivedRequests> = (0..threads).map(|_| ReceivedRequests::default()).collect();
    let sims = received_lists.iter().map(|received| {
        let mut sim = Sim::new(answering(after_ns));
        sim.received = received.clone();
        sim
    });
    simulate_threads(&load, sims.collect());
    let mut by_session: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, request) in received_lists.iter().flat_map(|received| received.take()) {
        let path = path(&request).to_owned();
        let words: Vec<_> = path.split('/').collect();
        by_session.entry(format!("{} {}", words[2], words[3])).or_default().push(path.clone());
    }
    by_session
}

#[test]
fn the_same_seed_gives_the_same_steps_with_any_threads_and_any_server() {
    let one = drawn(1, MS);
    assert!(one.len() > 200, "{} sessions", one.len());
    for other in [drawn(3, MS), drawn(2, 5 * MS)] {
        let common: Vec<_> = one.keys().filter(|session| other.contains_key(*session)).collect();
        assert!(common.len() > 100, "{} sessions", common.len());
        // The last session of each user may be cut off by the end.
        let differing = common.iter().filter(|session| one[**session] != other[**session]).count();
        assert!(differing <= 10, "{differing} sessions differ");
    }
}

#[test]
fn users_come_and_go_with_the_stages() {
    let mut load = page(2, 4, 3000);
    let retain = |level| Stage { duration_us: 1_000_000, shape: Shape::Hold { level }, measured: true };
    load.stages = vec![retain(1.0), retain(4.0), retain(2.0)];
    visits(&mut load).think = Think::Fixed { time_us: 100_000 };
    let outcome = simulate_threads(&load, (0..2).map(|_| Sim::new(answering(MS))).collect());
    let visitors: Vec<_> = outcome.intervals.iter().map(|interval| interval.visits.visitors).collect();
    assert_eq!(visitors, [1, 4, 2]);
    let started: Vec<_> = pages(&outcome).map(|pages| pages.started).collect();
    // One each 102 ms and a bit.
    assert_eq!(started, [10, 40, 20]);
    let counts = counts(&outcome);
    assert_eq!(counts.sessions_started, counts.sessions_completed + page_counts(&outcome).2);
}

#[test]
fn an_open_load_of_pages_starts_visitors_at_its_rate() {
    let mut load = page(5, 1, 2000);
    load.arrival = Arrival::Open { rate_per_s: 100.0, poisson: false };
    let outcome = simulate(&load, answering(MS));
    assert_eq!(pages(&outcome).map(|pages| pages.started).collect::<Vec<_>>(), [100, 100]);
    let (completed, failed, in_flight) = page_counts(&outcome);
    assert_eq!((completed + in_flight, failed), (200, 0));
    assert_eq!(page_time(&outcome).max, Some(100 + 1000 + 100 + 1000));
    assert!(counts(&outcome).visitors <= 1);
    let delay = outcome.merged(|interval| &interval.client_delay).dist();
    assert_eq!(delay.max, Some(0));
}

#[test]
fn a_number_of_starts_of_an_open_load_is_one_of_sessions() {
    let mut load = sessions(page(5, 1, 1), 37);
    load.arrival = Arrival::Open { rate_per_s: 1000.0, poisson: true };
    let outcome = simulate_threads(&load, (0..3).map(|_| Sim::new(answering(MS))).collect());
    assert_eq!((page_counts(&outcome), outcome.counts()), ((37, 0, 0), (37 * 6, 0, 0)));
}

#[test]
fn when_all_connections_are_in_use_visitors_share_them() {
    // Eight users, three connections: none starves, no more are open, and the wait is not counted as our own delay.
    let mut load = page(6, 8, 5000);
    load.connections = 3;
    let mut by_user = BTreeMap::new();
    for request in &mut load.requests {
        request.url.push_str("?${user}");
        request.has_variables = true;
    }
    let (outcome, received) = run(&load, |_| ok("x"));
    for (_, request) in &received {
        *by_user.entry(path(request).split('?').nth(1).unwrap().to_owned()).or_insert(0u32) += 1;
    }
    let (least, most) = (by_user.values().min().unwrap(), by_user.values().max().unwrap());
    assert_eq!(by_user.len(), 8);
    assert!(most - least <= 14, "{by_user:?}");
    assert!(outcome.intervals.iter().all(|interval| interval.connections.peak <= 3));
    assert_eq!(outcome.merged(|interval| &interval.client_delay).dist().max, Some(0));
    let service = outcome.merged(|interval| &interval.service_time).dist();
    assert_eq!(service.max, Some(1000));
    assert!(outcome.merged(|interval| &interval.response_time).dist().p50 > Some(2000));
}

#[test]
fn kept_connections_that_the_server_closes_meanwhile_are_no_failure() {
    let mut load = session(vec![step(0)], vec![get("/")], 1, 1000);
    visits(&mut load).think = Think::Fixed { time_us: 50_000 };
    visits(&mut load).returning_fraction = 1.0;
    let server: Server<'_> = Box::new(|visit| match visit.request {
        0 => vec![(100_000, ServerAction::Accept)],
        _ => vec![(MS, ServerAction::Send(OK.to_vec())), (10 * MS, ServerAction::Close)],
    });
    let outcome = simulate(&load, server);
    assert_eq!(outcome.counts(), (20, 0, 0));
    assert_eq!(outcome.sum(|interval| interval.connections.quiet_closes), 20);
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 20);
}

/// What a moody server does, by a number that was drawn.
fn mood(number: u64, visit: &super::simulation::ServerRequest) -> Vec<(u64, ServerAction)> {
    let draw =
        (number ^ visit.connection.wrapping_mul(0x9E37_79B9) ^ visit.request.wrapping_mul(0x85EB_CA6B)) % 23;
    match (visit.request, draw) {
        (0, 0) => vec![(0, ServerAction::Refuse)],
        (0, 1) => vec![],
        (0, _) => vec![(100_000, ServerAction::Accept)],
        (_, 2) => vec![(MS, ServerAction::Reset)],
        (_, 3) => vec![(MS, ServerAction::Close)],
        (_, 4) => vec![(MS, ServerAction::Send(b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n".to_vec()))],
        (_, 5) => vec![(MS, ServerAction::Send(OK[..30].to_vec())), (2 * MS, ServerAction::Close)],
        (_, 6) => vec![],
        (_, 7) => {
            vec![(
                MS,
                ServerAction::Send(b"HTTP/1.1 302 x\r\nLocation: /1\r\nContent-Length: 0\r\n\r\n".to_vec()),
            )]
        }
        (_, 8) => vec![(MS, ServerAction::Send(OK.to_vec())), (MS, ServerAction::Close)],
        (_, 9) => vec![(MS, ServerAction::Send(b"nonsense".to_vec()))],
        _ => vec![(MS, ServerAction::Send(OK.to_vec()))],
    }
}

proptest! {
    // Whatever the server does: every request, page and session has one outcome or is in flight, limits hold, and the
    // load ends.
    #[test]
    fn no_server_makes_a_page_vanish(
        seed in any::<u64>(), users in 1u32..6, parts in 0usize..9, most in 1u32..8, connections in 1u32..12,
        shape in (any::<bool>(), any::<bool>(), any::<bool>(), 0u64..20), stop in prop::option::of(1u64..40),
    ) {
        let (open, cache, returning, think_ms) = shape;
        let mut load = page(parts, users, 700);
        load.timeout_us = 50_000;
        load.connections = connections;
        load.redirects_max = 2;
        load.seed = seed;
        if let Some(count) = stop {
            load.stop.requests = Some(count);
        }
        if open {
            load.arrival = Arrival::Open { rate_per_s: 90.0, poisson: true };
        }
        let visits = visits(&mut load);
        (visits.cache, visits.connections_per_host) = (cache, most);
        visits.returning_fraction = if returning { 0.5 } else { 0.0 };
        visits.think = Think::Exponential { mean_us: think_ms * 1000 };
        let outcome = simulate(&load, Box::new(move |visit| mood(seed, &visit)));
        let (completed, failed, in_flight) = page_counts(&outcome);
        let counts = counts(&outcome);
        prop_assert_eq!(counts.sessions_completed, completed + failed);
        prop_assert_eq!(counts.sessions_started, completed + failed + in_flight);
        prop_assert!(stop.is_none_or(|count| counts.sessions_started <= count));
        prop_assert!(outcome.intervals.iter().all(|interval| interval.connections.peak <= u64::from(connections)));
        let time = outcome.merged(|interval| &interval.pages.as_ref().unwrap().time);
        prop_assert_eq!(time.count(), completed);
    }
}
