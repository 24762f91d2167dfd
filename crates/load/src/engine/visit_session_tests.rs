//! What visitors carry through a session in the simulated world: captured values, cookies, and the draws of a seed.

use super::simulation::*;
use super::visit_tests::{
    capture, counts, field, ok, path, response, run, session, sessions, step, visits, with_variables,
};
use std::collections::{BTreeMap, BTreeSet};
use webdyno_model::workload::body::Body;
use webdyno_model::workload::visit::{CaptureFrom, SessionSpec, StepSpec, Think};
use webdyno_model::workload::{RequestSpec, Workload};

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
