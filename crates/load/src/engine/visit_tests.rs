//! Visitors in the simulated world: the time of a page against exact delays, what it embeds, and what a cache spares it. And what
//! the other tests of visitors share: loads, sites, and what was counted.

use super::simulation::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use webdyno_model::page::{FetchedBy, PageInterval, TraceKind, VisitCounts};
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

pub(super) fn capture(name: &str, from: CaptureFrom) -> CaptureSpec {
    CaptureSpec { name: name.into(), from }
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

pub(super) fn page_time(outcome: &Outcome) -> webdyno_model::distribution::Dist {
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
