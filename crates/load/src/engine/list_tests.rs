//! Lists and weights in the simulated world: what is sent, in which order, and as which name it counts.

use super::simulation::*;
use crate::workload::urls::{ListContext, parse};
use std::collections::BTreeMap;
use webdyno_model::workload::{Arrival, RequestSpec, Stop, Workload};

const OPEN: Arrival = Arrival::Open { rate_per_s: 1000.0, poisson: false };

/// So many requests of this list.
fn listed(text: &str, random: bool, arrival: Arrival, count: u64) -> Workload {
    let mut load = workload(arrival, 4, 1000);
    load.stop = Stop { duration_us: None, requests: Some(count) };
    let mut files = |_: &std::path::Path| Ok(vec![b'x'; 100_000]);
    let list =
        parse("list", text.as_bytes(), ListContext { method: "GET", variable: &|_| None, read: &mut files });
    list.unwrap().apply_to(&mut load, "list", &[("X-Mine".into(), "1".into())], random);
    load
}

/// What this many threads together sent, each after the other, and what came of it.
fn sent(load: &Workload, threads: usize) -> (Vec<String>, Outcome) {
    let sims: Vec<_> = (0..threads).map(|_| Sim::new(answering(MS))).collect();
    let received: Vec<_> = sims.iter().map(|sim| sim.received.clone()).collect();
    let outcome = simulate_threads(load, sims);
    let texts =
        received.iter().flat_map(|received| received.take().into_iter().map(|(_, text)| text)).collect();
    (texts, outcome)
}

/// Method and target of each.
fn lines(texts: &[String]) -> Vec<&str> {
    texts.iter().map(|text| text.split(" HTTP").next().unwrap()).collect()
}

fn counted<'a>(lines: &[&'a str]) -> BTreeMap<&'a str, u64> {
    let mut counts = BTreeMap::new();
    lines.iter().for_each(|line| *counts.entry(*line).or_default() += 1);
    counts
}

#[test]
fn entries_are_sent_as_requests_of_their_own_are() {
    let text = "127.0.0.1:1/a?b=c\n127.0.0.1:1/p POST x=1\n127.0.0.1:1/e PUT\n127.0.0.1:1/h HEAD\n\
        127.0.0.1:1/f POST -T a/b <big.bin";
    let mut load = listed(text, false, Arrival::Closed, 5);
    load.connections = 1;
    // The same as requests without a list.
    let url = |path: &str| format!("http://127.0.0.1:1{path}");
    let mine = ("X-Mine".to_owned(), "1".to_owned());
    let with = |method: &str, path: &str, body: Vec<u8>, content_type: Option<&str>| RequestSpec {
        method: method.into(),
        url: url(path),
        headers: [mine.clone()]
            .into_iter()
            .chain(content_type.map(|of| ("Content-Type".into(), of.into())))
            .collect(),
        body: body.into(),
        ..RequestSpec::default()
    };
    let form = Some("application/x-www-form-urlencoded");
    let requests = vec![
        with("GET", "/a?b=c", vec![], None),
        with("POST", "/p", b"x=1".to_vec(), form),
        with("PUT", "/e", vec![], None),
        with("HEAD", "/h", vec![], None),
        with("POST", "/f", vec![b'x'; 100_000], Some("a/b")),
    ];
    let plain = Workload { requests, list: None, ..load.clone() };
    let sorted = |text: &String| {
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut lines: Vec<String> = head.split("\r\n").map(str::to_owned).collect();
        lines[1..].sort();
        (lines, body.to_owned())
    };
    let ((listed, outcome), (plain, _)) = (sent(&load, 1), sent(&plain, 1));
    let pairs: Vec<_> = listed.iter().map(sorted).zip(plain.iter().map(sorted)).collect();
    assert_eq!(pairs.len(), 5);
    pairs.iter().for_each(|(listed, plain)| assert_eq!(listed, plain));
    let names = outcome.intervals[0].by_name.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names, ["/a", "HEAD /h", "POST /f", "POST /p", "PUT /e"]);
}

#[test]
fn in_turn_each_entry_has_its_turn_on_any_number_of_threads() {
    let text: String = (0..7).map(|number| format!("127.0.0.1:1/{number}\n")).collect();
    for arrival in [Arrival::Closed, OPEN] {
        for threads in [1, 2, 3] {
            let (texts, _) = sent(&listed(&text, false, arrival, 21), threads);
            let counts = counted(&lines(&texts));
            assert!(counts.len() == 7 && counts.values().all(|&count| count == 3), "{threads}: {counts:?}");
        }
    }
    let mut load = listed(&text, false, OPEN, 9);
    load.connections = 1;
    let paths = [0, 1, 2, 3, 4, 5, 6, 0, 1].map(|number| format!("GET /{number}"));
    assert_eq!(lines(&sent(&load, 1).0), paths);
}

#[test]
fn plain_requests_have_their_turn_on_any_number_of_threads() {
    // Closed, the first thread is busy with two when the load ends, and the second one has the last.
    let slow = |_| Sim::new(answering(700 * MS));
    for (arrival, threads, count) in [(Arrival::Closed, 2, 3), (OPEN, 1, 7), (OPEN, 2, 3), (OPEN, 3, 40)] {
        let mut load = workload(arrival, 4, 1000);
        load.requests = vec![get("/a"), get("/b"), get("/c")];
        load.stop.requests = Some(count);
        let texts: Vec<String> = match arrival {
            Arrival::Closed => {
                load.connections = threads as u32;
                let sims: Vec<_> = (0..threads).map(slow).collect();
                let received: Vec<_> = sims.iter().map(|sim| sim.received.clone()).collect();
                simulate_threads(&load, sims);
                received.iter().flat_map(|sent| sent.take()).map(|(_, text)| text).collect()
            }
            Arrival::Open { .. } => sent(&load, threads).0,
        };
        let counts = counted(&lines(&texts));
        let all = ["/a", "/b", "/c"].map(|path| counts.get(format!("GET {path}").as_str()).copied());
        assert!(all.iter().all(|n| *n == Some(count / 3) || *n == Some(count.div_ceil(3))), "{counts:?}");
    }
}

#[test]
fn draws_repeat_by_their_seed_on_any_number_of_threads() {
    let text: String = (0..50).map(|number| format!("127.0.0.1:1/{number}\n")).collect();
    let weighted: String =
        (0..50).map(|number| format!("127.0.0.1:1/{number}#weight={}\n", number + 1)).collect();
    for (text, random) in [(&text, true), (&weighted, false)] {
        for arrival in [Arrival::Closed, OPEN] {
            let load = listed(text, random, arrival, 400);
            let of = |load: &Workload, threads| {
                let (texts, _) = sent(load, threads);
                counted(&lines(&texts))
                    .into_iter()
                    .map(|(line, count)| (line.to_owned(), count))
                    .collect::<Vec<_>>()
            };
            let one = of(&load, 1);
            assert_eq!(one, of(&load, 3));
            assert_ne!(one, of(&Workload { seed: 2, ..load }, 1));
        }
    }
}

#[test]
fn plain_requests_are_drawn_by_their_weights() {
    let mut load = workload(OPEN, 4, 1000);
    load.stop = Stop { duration_us: None, requests: Some(4000) };
    load.requests = vec![
        RequestSpec { weight: 3.0, name: "a".into(), ..get("/a") },
        RequestSpec { weight: 1.0, name: "b".into(), ..get("/b") },
    ];
    let (texts, outcome) = sent(&load, 2);
    let counts = counted(&lines(&texts));
    // Four standard deviations of 4000 draws are 110.
    assert!(counts["GET /a"].abs_diff(3000) < 110, "{counts:?}");
    let named: u64 = outcome.sum(|interval| interval.by_name["a"].completed);
    assert_eq!(named, counts["GET /a"]);
    assert_eq!(sent(&load, 3).0.len(), 4000);
    load.requests[0].weight = 0.0;
    let told = crate::plan::prepare(&load).unwrap_err();
    assert!(told.message.contains("the weight of a is 0"), "{}", told.message);
}

#[test]
fn what_an_entry_is_redirected_to_is_its_own() {
    let mut load =
        listed("127.0.0.1:1/a/x\n127.0.0.1:1/b/x\n127.0.0.1:1/c/x POST v=1", false, Arrival::Closed, 6);
    (load.connections, load.redirects_max) = (1, 2);
    let mut sim = Sim::new(Box::new(|_| vec![]));
    let received = sim.received.clone();
    let last = received.clone();
    sim.serve(Box::new(move |visit| {
        let response = match last.borrow().last() {
            Some((_, text)) if visit.request > 0 && text.contains("/x ") => {
                b"HTTP/1.1 307 x\r\nLocation: y\r\nContent-Length: 0\r\n\r\n".to_vec()
            }
            _ => OK.to_vec(),
        };
        match visit.request {
            0 => vec![(0, ServerAction::Accept)],
            _ => vec![(MS, ServerAction::Send(response))],
        }
    }));
    let outcome = simulate_on(&load, sim);
    assert_eq!(outcome.counts(), (6, 0, 0));
    let texts: Vec<String> = received.take().into_iter().map(|(_, text)| text).collect();
    let chain = ["GET /a/x", "GET /a/y", "GET /b/x", "GET /b/y", "POST /c/x", "POST /c/y"];
    assert_eq!(lines(&texts), chain.repeat(2));
    assert!(texts[5].ends_with("\r\n\r\nv=1"), "{}", texts[5]);
    let named = &outcome.intervals[0].by_name;
    assert_eq!((named["/a/*"].completed, named["POST /c/*"].completed), (2, 2));
}

#[test]
fn an_entry_is_retried_as_a_whole() {
    let mut load = listed("127.0.0.1:1/a\n127.0.0.1:1/b\n127.0.0.1:1/c", false, Arrival::Closed, 6);
    load.connections = 1;
    // Each connection carries one response; the next request finds it closed.
    let closing = |visit: ServerRequest| match visit.request {
        0 => vec![(0, ServerAction::Accept)],
        1 => vec![(MS, ServerAction::Send(OK.to_vec()))],
        _ => vec![(0, ServerAction::Close)],
    };
    let sim = Sim::new(Box::new(closing));
    let received = sim.received.clone();
    let outcome = simulate_on(&load, sim);
    assert_eq!(outcome.counts(), (6, 0, 0));
    let texts: Vec<String> = received.take().into_iter().map(|(_, text)| text).collect();
    let paths = ["/a", "/b", "/b", "/c", "/c", "/a", "/a", "/b", "/b", "/c", "/c"];
    assert_eq!(lines(&texts), paths.map(|path| format!("GET {path}")));
}

#[test]
fn a_list_that_cannot_be_sent_is_refused() {
    let mut load = listed("127.0.0.1:1/a", false, Arrival::Closed, 1);
    load.requests[0].headers.push(("Content-Length".into(), "0".into()));
    let told = crate::plan::prepare(&load).unwrap_err();
    assert!(told.message.contains("no Content-Length in common"), "{}", told.message);
    let read: Workload = serde_json::from_str(&serde_json::to_string(&load).unwrap()).unwrap();
    let list = read.list.as_ref().unwrap();
    assert!(list.entries.is_none() && list.count == 1 && !list.weighted);
    assert!(crate::plan::prepare(&read).unwrap_err().message.contains("are not there"));
}
