//! Recordings by hand, as browsers write them.

use super::*;
use crate::workload::file::to_toml;
use serde_json::{Value, json};
use webdyno_model::workload::visit::{Resources, Think};

/// An entry of Chrome: page, second, kind, method, URL, MIME type of the response.
fn entry((page, second, kind): (&str, f64, &str), method: &str, url: &str, mime: &str) -> Value {
    json!({
        "pageref": page,
        "startedDateTime": format!("2026-11-26T03:00:{second:06.3}Z"),
        "time": 100.0,
        "_resourceType": kind,
        "request": {
            "method": method, "url": url,
            "headers": [
                {"name": "Cookie", "value": "sid=secret"},
                {"name": "authorization", "value": "Bearer secret"},
                {"name": "accept", "value": "*/*"},
            ],
        },
        "response": {"status": 200, "content": {"mimeType": mime}},
    })
}

fn har(entries: &[Value]) -> String {
    json!({"log": {"version": "1.2", "pages": [{"id": "p1"}, {"id": "p2"}], "entries": entries}}).to_string()
}

fn shop() -> Vec<Value> {
    let mut order = entry(("p2", 8.0, "xhr"), "POST", "http://shop.example/api/order", "application/json");
    order["request"]["postData"] = json!({"mimeType": "application/json", "text": "{\"article\":\"${1}\"}"});
    vec![
        entry(("p1", 1.0, "document"), "GET", "http://shop.example/#top", "text/html"),
        entry(("p1", 1.2, "stylesheet"), "GET", "http://shop.example/a.css", "text/css"),
        entry(("p1", 1.3, "image"), "GET", "http://cdn.example/i.png", "image/png"),
        entry(("p1", 1.3, "image"), "GET", "http://shop.example/i.png", "image/png"),
        entry(("p1", 1.4, "image"), "GET", "http://shop.example/i.png", "image/png"),
        entry(("p2", 6.5, "document"), "GET", "http://shop.example/article?n=1", "text/html"),
        entry(("p2", 6.7, "stylesheet"), "GET", "http://shop.example/a.css", "text/css"),
        order,
        entry(("p2", 9.0, "image"), "GET", "data:image/png;base64,AA==", "image/png"),
    ]
}

#[test]
fn a_recording_is_a_session_of_pages_scripts_and_pauses() {
    let found = read(&har(&shop()), "shop.har", &[]).unwrap();
    assert_eq!((found.pages_count, found.requests_count, found.unanswered_count), (2, 7, 1));
    assert_eq!(found.other_hosts, BTreeMap::from([("cdn.example".to_owned(), 1)]));
    let requests = &found.workload.requests;
    let names: Vec<&str> = requests.iter().map(|request| request.name.as_str()).collect();
    assert_eq!(names, ["/", "/a.css", "/i.png", "/article?n=1", "POST /api/order"]);
    let steps = &found.workload.visits.as_ref().unwrap().sessions[0].steps;
    let parts = |step: usize| match &steps[step].page.as_ref().unwrap().resources {
        Resources::Listed(parts) => parts.iter().map(|part| part.request).collect(),
        _ => vec![],
    };
    assert_eq!((parts(0), parts(1)), (vec![1, 2], vec![1]));
    assert!(steps[2].page.is_none() && steps.len() == 3);
    // From the end of the last image to the next page, and from its style sheet to what its script sends.
    let pauses: Vec<_> = steps.iter().map(|step| step.think).collect();
    let fixed = |time_us| Some(Think::Fixed { time_us });
    assert_eq!(pauses, [fixed(5_000_000), fixed(1_200_000), None]);
    // What was sent says so, and nothing tells who sent it.
    assert!(
        found.has_bodies && requests[4].headers.contains(&("Content-Type".into(), "application/json".into()))
    );
    let text = to_toml(&found.workload).unwrap();
    assert!(!text.contains("secret") && text.contains("$${1}"), "{text}");
    let with_cdn = read(&har(&shop()), "shop.har", &["CDN.example".into()]).unwrap();
    assert!(with_cdn.other_hosts.is_empty() && with_cdn.requests_count == 8);
}

#[test]
fn a_redirect_is_followed_and_not_sent_twice() {
    let mut first = entry(("p1", 1.0, "document"), "POST", "http://h/login", "text/html");
    first["response"] = json!({"status": 302, "redirectURL": "/welcome"});
    first["request"]["postData"] =
        json!({"params": [{"name": "user", "value": "a b"}, {"name": "password", "value": "c&d"}]});
    let second = entry(("p1", 1.2, "document"), "GET", "http://h/welcome", "text/html");
    let again = entry(("p2", 4.0, "document"), "GET", "http://h/welcome", "text/html");
    let found = read(&har(&[first, second, again]), "x.har", &[]).unwrap();
    let steps = &found.workload.visits.as_ref().unwrap().sessions[0].steps;
    assert_eq!((steps.len(), found.requests_count), (2, 2));
    assert_eq!(found.workload.requests[0].body.bytes(), b"user=a+b&password=c%26d");
    assert_eq!(found.workload.redirects_max, crate::workload::file::VISITOR_REDIRECTS_DEFAULT);
}

/// Firefox tells no kinds, Safari no pages, and some tools neither times.
#[test]
fn what_other_browsers_leave_out_is_not_needed() {
    let bare = |method: &str, url: &str, mime: &str| {
        json!({"request": {"method": method, "url": url},
            "response": {"status": 200, "content": {"mimeType": mime}}})
    };
    let entries = [
        bare("GET", "https://h:8443/", "text/html; charset=utf-8"),
        bare("get", "https://h:8443/a.js", "text/javascript"),
        bare("GET", "https://h:8443/api", "application/json"),
        bare("GET", "https://h:8443/next", "text/html"),
    ];
    let text = json!({"log": {"entries": entries}}).to_string();
    let found = read(&format!("\u{feff}{text}"), "x.har", &[]).unwrap();
    let steps = &found.workload.visits.as_ref().unwrap().sessions[0].steps;
    let kinds: Vec<bool> = steps.iter().map(|step| step.page.is_some()).collect();
    assert_eq!((kinds, found.pages_count), (vec![true, false, true], 2));
}

#[test]
fn what_is_no_recording_is_refused() {
    for (text, expected) in [
        ("", "x.har:1:0: it is no HAR file"),
        ("{\"log\": {\"pages\": []}}", "missing field `entries`"),
        ("{\n \"log\": 7}", "x.har:2:"),
        ("{\"log\": {\"entries\": []}}", "has no request that was answered"),
        ("<html>", "x.har:1:1"),
    ] {
        let error = read(text, "x.har", &[]).unwrap_err();
        assert!(error.message.contains(expected) && error.hint.is_some(), "{}", error.message);
    }
}
