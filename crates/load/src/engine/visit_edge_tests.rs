//! Visitors at the edges: what may not go along to other servers, pages that never end by themselves, odd servers.

use super::simulation::*;
use super::visit_tests::*;
use webdyno_model::workload::RequestSpec;
use webdyno_model::workload::visit::Auth;
use webdyno_model::workload::visit::{CaptureFrom, PageSpec, Part, Resources, SessionSpec, StepSpec, Think};

const ELSEWHERE: &str = "http://127.0.0.2:1";

fn found() -> Option<PageSpec> {
    Some(PageSpec { resources: Resources::Found })
}

/// What was asked of a host, by path, with a field of it.
fn asked_of(received: &[(u64, String)], host: &str, name: &str) -> Vec<(String, Option<String>)> {
    let there = received
        .iter()
        .filter(|(_, request)| field(request, "Host").is_some_and(|named| named.starts_with(host)));
    there.map(|(_, request)| (path(request).to_owned(), field(request, name).map(str::to_owned))).collect()
}

#[test]
fn secrets_of_a_page_that_is_redirected_stay_with_its_server() {
    for has_variables in [false, true] {
        let mut document = get("/in?${user}");
        document.has_variables = has_variables;
        if !has_variables {
            document.url = document.url.replace("${user}", "1");
        }
        document.auth = Some(Auth::Bearer { token: "secret".into() });
        document.headers = vec![("Cookie".into(), "own=1".into())];
        let other = RequestSpec { url: format!("{ELSEWHERE}/other"), ..get("/other") };
        let steps = vec![StepSpec { page: found(), ..step(0) }, step(1)];
        let mut load = sessions(session(steps, vec![document, other], 1, 1000), 2);
        load.redirects_max = 3;
        let to = format!("Location: {ELSEWHERE}/there\r\nSet-Cookie: mine=1\r\n");
        let (outcome, received) = run(&load, move |request| match path(request) {
            "/in?1" | "/in?2" => response("302 Found", &to, ""),
            "/there" => ok("<img src=/i.png><img src=http://127.0.0.1:1/home.png>"),
            _ => ok("x"),
        });
        assert_eq!(page_counts(&outcome), (2, 0, 0));
        for name in ["Authorization", "Cookie"] {
            let there = asked_of(&received, "127.0.0.2", name);
            assert_eq!(there.len(), 6, "{there:?}");
            assert!(there.iter().all(|(_, value)| value.is_none()), "{name}: {there:?}");
        }
        let here = asked_of(&received, "127.0.0.1", "Authorization");
        assert!(here.iter().all(|(path, value)| path == "/home.png" || value.is_some()), "{here:?}");
    }
}

#[test]
fn parts_are_requested_with_the_header_fields_of_their_page() {
    // The same document for everybody, asked for by two kinds of visitors.
    let with = |value: &str| RequestSpec { headers: vec![("X-Kind".into(), value.into())], ..get("/") };
    let page = |request| StepSpec { page: found(), ..step(request) };
    let mut load = sessions(session(vec![page(0), page(1)], vec![with("a"), with("b")], 1, 1000), 3);
    visits(&mut load).think = Think::Fixed { time_us: 1000 };
    let (_, received) = run(&load, |request| ok(if path(request) == "/" { "<img src=/i.png>" } else { "x" }));
    let kinds: Vec<_> =
        received.iter().map(|(_, request)| (path(request), field(request, "X-Kind").unwrap())).collect();
    let each = [("/", "a"), ("/i.png", "a"), ("/", "b"), ("/i.png", "b")];
    assert_eq!(kinds, [each; 3].concat());
}

#[test]
fn a_user_defined_cookie_header_is_sent_once() {
    let given =
        RequestSpec { headers: vec![("Cookie".into(), "own=${user}".into())], ..with_variables(get("/b")) };
    let load = sessions(session(vec![step(0), step(1)], vec![get("/a"), given], 1, 1000), 1);
    let (_, received) = run(&load, |_| response("200 OK", "Set-Cookie: mine=1\r\n", ""));
    let lines: Vec<_> = received[1].1.lines().filter(|line| line.starts_with("Cookie")).collect();
    assert_eq!(lines, ["Cookie: own=1"]);
}

#[test]
fn parts_of_a_server_that_refuses_are_one_failure_of_their_step() {
    let mut load = page(12, 1, 3000);
    for request in load.requests.iter_mut().skip(1) {
        request.url = request.url.replace("http://127.0.0.1:1", ELSEWHERE);
    }
    let mut refused = std::collections::BTreeSet::new();
    // The first connection of each page is that of the document.
    let mut next = 0;
    let outcome = simulate(
        &load,
        Box::new(move |visit| match visit.request {
            0 => {
                next += 1;
                if next % 13 == 1 {
                    vec![(0, ServerAction::Accept)]
                } else {
                    refused.insert(visit.connection);
                    vec![(0, ServerAction::Refuse)]
                }
            }
            _ => vec![(MS, ServerAction::Send(OK.to_vec()))],
        }),
    );
    let (completed, failed, _) = page_counts(&outcome);
    assert_eq!(completed, 0);
    // The document comes each time: there is nothing to wait for but the one pause.
    assert!(failed > 200, "{failed} pages");
}

#[test]
fn style_sheets_that_name_ever_new_ones_end() {
    let load = sessions(found_page(1, 1000), 2);
    let (outcome, received) =
        run(&load, |request| match path(request).strip_prefix("/s").map(|n| n.parse::<u64>().unwrap()) {
            None => ok("<link rel=stylesheet href=/s1>"),
            Some(number) => ok(&format!("@import '/s{}';", number + 1)),
        });
    assert!(received.len() < 10_000, "{}", received.len());
    assert_eq!(page_counts(&outcome), (0, 2, 0));
}

#[test]
fn pages_that_name_each_other_end() {
    let load = sessions(found_page(2, 1000), 4);
    let (outcome, received) = run(&load, |request| match path(request) {
        "/" => ok("<iframe src=/a></iframe><img src=/><img src=''>"),
        "/a" => ok("<iframe src=/b></iframe><link rel=stylesheet href=/c>"),
        "/b" => ok("<iframe src=/a></iframe><iframe src=/></iframe>"),
        _ => ok("@import '/c'; @import '/d';"),
    });
    assert_eq!(page_counts(&outcome), (4, 0, 0));
    assert!(received.len() <= 4 * 6, "{received:?}");
}

#[test]
fn a_hundred_thousand_images_are_bounded_and_reported() {
    let html: String = (0..100_000).map(|number| format!("<img src=/{number}>")).collect();
    let load = sessions(found_page(1, 60_000), 1);
    let (outcome, received) = run(&load, |request| if path(request) == "/" { ok(&html) } else { ok("") });
    assert!(received.len() < 10_000, "{}", received.len());
    // Not all of it was asked for.
    assert_eq!(page_counts(&outcome), (0, 1, 0));
}

#[test]
fn a_post_after_a_think_time_goes_over_a_connection_that_is_there() {
    let post = RequestSpec { method: "POST".into(), body: "x".into(), ..get("/post") };
    let mut load = sessions(session(vec![step(0), step(1)], vec![get("/a"), post], 2, 1000), 8);
    visits(&mut load).think = Think::Fixed { time_us: 20_000 };
    let server: Server<'_> = Box::new(|visit| match visit.request {
        0 => vec![(100_000, ServerAction::Accept)],
        _ => vec![(MS, ServerAction::Send(OK.to_vec())), (10 * MS, ServerAction::Close)],
    });
    assert_eq!(simulate(&load, server).counts(), (16, 0, 0));
}

#[test]
fn not_modified_is_valid_only_for_conditional_requests() {
    let mut load = sessions(found_page(1, 1000), 3);
    visits(&mut load).cache = true;
    let (outcome, _) = run(&load, |_| response("304 Not Modified", "ETag: \"a\"\r\n", ""));
    assert_eq!((page_counts(&outcome), outcome.counts()), ((0, 3, 0), (0, 3, 0)));
}

#[test]
fn a_server_that_closes_each_time_shares_few_connections_among_all() {
    let mut load = page(12, 6, 4000);
    load.connections = 2;
    for request in &mut load.requests {
        request.url.push_str("?${user}");
        request.has_variables = true;
    }
    let mut by_user = std::collections::BTreeMap::new();
    let (outcome, received) = run(&load, |_| response("200 OK", "Connection: close\r\n", "x"));
    for (_, request) in &received {
        *by_user.entry(path(request).split('?').nth(1).unwrap().to_owned()).or_insert(0u32) += 1;
    }
    let (least, most) = (by_user.values().min().unwrap(), by_user.values().max().unwrap());
    assert!(by_user.len() == 6 && most - least <= 26, "{by_user:?}");
    assert_eq!(outcome.merged(|interval| &interval.client_delay).dist().max, Some(0));
}

#[test]
fn sessions_of_which_the_first_kind_cannot_begin_do_not_spin() {
    let link = RequestSpec { name: "l".into(), url: "${x}".into(), ..with_variables(get("/")) };
    let takes = StepSpec { captures: vec![capture("x", CaptureFrom::Header("X".into()))], ..step(0) };
    let mut load = session(vec![takes], vec![get("/"), link], 3, 500);
    visits(&mut load).sessions.push(SessionSpec { name: "never".into(), weight: 50.0, steps: vec![step(1)] });
    let (outcome, _) = run(&load, |_| ok(""));
    let counts = counts(&outcome);
    assert!(counts.sessions_broken < 2000 && counts.sessions_broken > 100, "{counts:?}");
}

#[test]
fn parts_that_are_new_for_each_visitor_find_room() {
    let mut load = found_page(500, 600);
    load.connections = 3000;
    let mut pages = 0;
    let (outcome, _) = run(&load, |request| match path(request) {
        "/" => {
            pages += 1;
            ok(&(0..20).map(|number| format!("<img src=/{pages}/{number}>")).collect::<String>())
        }
        _ => (100 * MS, OK.to_vec()),
    });
    let (completed, failed, _) = page_counts(&outcome);
    assert!(completed > 400 && failed == 0, "{completed} {failed}");
}

#[test]
fn visitors_of_a_refusing_server_pause() {
    let load = page(3, 2, 3000);
    let outcome = simulate(&load, Box::new(|_| vec![(0, ServerAction::Refuse)]));
    let (completed, failed, _) = page_counts(&outcome);
    // 10, 20, 40, ... ms: eight tries in three seconds.
    assert_eq!((completed, failed), (0, 2 * 9));
    assert_eq!(outcome.counts().1, 2 * 9);
}

#[test]
fn a_page_without_a_document_is_refused() {
    let mut load = found_page(1, 1000);
    load.requests[0].method = "HEAD".into();
    let told = crate::plan::prepare(&load).unwrap_err();
    assert!(told.message.contains("HEAD") && told.exit_code() == 2, "{told:?}");
}

#[test]
fn a_part_with_variables_is_shown_by_its_name() {
    let part = RequestSpec { name: "opt".into(), ..get("/nope.png?x=${user}") };
    let part = RequestSpec { has_variables: true, ..part };
    let listed = PageSpec { resources: Resources::Listed(vec![Part { request: 1, required: true }]) };
    let page = StepSpec { page: Some(listed), ..step(0) };
    let load = sessions(session(vec![page], vec![get("/"), part], 1, 1000), 1);
    let (outcome, received) = run(&load, |_| ok("x"));
    assert_eq!(path(&received[1].1), "/nope.png?x=1");
    let parts = &pages(&outcome).next().unwrap().traces[0].parts;
    assert_eq!((parts[0].name.as_str(), parts[1].name.as_str()), ("/", "opt"));
}

#[test]
fn a_part_whose_header_lacks_its_value_is_not_sent() {
    let headers = vec![("X-Token".into(), "${token}".into())];
    let part = RequestSpec { headers, ..with_variables(get("/part")) };
    let listed = PageSpec { resources: Resources::Listed(vec![Part { request: 1, required: true }]) };
    let token = capture("token", CaptureFrom::Header("Token".into()));
    let page = StepSpec { page: Some(listed), captures: vec![token], ..step(0) };
    let load = sessions(session(vec![page], vec![get("/"), part], 1, 1000), 1);
    for (fields, pages, requests) in [("Token: t\r\n", (1, 0, 0), (2, 0, 0)), ("", (0, 1, 0), (1, 0, 0))] {
        let (outcome, _) = run(&load, |_| response("200 OK", fields, ""));
        assert_eq!((page_counts(&outcome), outcome.counts()), (pages, requests), "{fields}");
    }
}
