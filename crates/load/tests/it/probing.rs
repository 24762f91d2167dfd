//! The one request before a load.

use crate::refusing::Refusing;
use crate::server::{OK, Server, Step, workload};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::time::Duration;
use webdyno_load::{Probe, prepare, probe, repeated_answers};
use webdyno_model::repeated_answer::RepeatedAnswer;
use webdyno_model::workload::RequestSpec;
use webdyno_model::workload::visit::{CaptureFrom, CaptureSpec, SessionSpec, StepSpec, Visits};
use webdyno_model::{Result, UserError};

fn probe_of(url: &str) -> Result<Probe> {
    let mut load_of = workload(url);
    load_of.timeout_us = 300_000;
    probe(&mut prepare(&load_of)?)
}

fn refused(script: Vec<Step>) -> UserError {
    let server = Server::start(script);
    probe_of(&server.url()).expect_err("it must be refused")
}

#[test]
fn a_server_is_seen_with_its_name() {
    let response = b"HTTP/1.1 404 Not Found\r\nServer: scripted/1\r\nContent-Length: 3\r\n\r\nno!".to_vec();
    let server = Server::start(vec![Step::Request, Step::Send(response)]);
    let seen = probe_of(&server.url()).unwrap();
    assert_eq!((seen.status, seen.body_bytes, seen.timed_out), (Some(404), 3, false));
    assert_eq!(seen.server.as_deref(), Some("scripted/1"));
    assert!(seen.time_us > 0);
}

#[test]
fn nothing_listens_there() {
    let refusing = Refusing::start();
    let address = refusing.address;
    let told = probe_of(&format!("http://{address}/")).unwrap_err();
    assert_eq!(told.message, format!("cannot connect to {address}: connection refused"));
    assert!(told.hint.unwrap().starts_with("nothing listens there; "));
}

#[test]
fn a_server_without_http_is_reported() {
    let told = refused(vec![Step::Request, Step::Send(b"220 mail ready\r\n".to_vec()), Step::Hold]);
    assert!(told.message.ends_with("does not answer in HTTP/1"), "{told}");
    assert_eq!(told.exit_code(), 1);
    assert!(told.hint.is_some());
    // An address that is its own name is reported once.
    assert!(!told.message.contains(" at "), "{told}");
    let told = refused(vec![Step::Request]);
    assert!(told.message.ends_with("closed the connection before its answer was complete"), "{told}");
}

#[test]
fn a_server_that_does_not_answer_in_time_is_a_result() {
    let server = Server::start(vec![Step::Request, Step::Sleep(Duration::from_secs(2))]);
    let seen = probe_of(&server.url()).unwrap();
    assert_eq!((seen.status, seen.timed_out), (None, true));
    assert!(seen.time_us >= 290_000);
}

#[test]
fn a_name_with_several_addresses_settles_for_the_one_that_answers() {
    // localhost is ::1 and 127.0.0.1 on many machines, and the server has only the latter.
    let server = Server::start(vec![Step::Request, Step::Send(OK.to_vec())]);
    let mut prepared = prepare(&workload(&format!("http://localhost:{}/", server.address.port()))).unwrap();
    assert_eq!(probe(&mut prepared).unwrap().status, Some(200));
    assert_eq!(prepared.address(), Some(server.address));
}

#[test]
fn requests_with_variables_are_a_visitors_and_not_tried_before() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (asked, heard) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(|stream| stream.ok()) {
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            let _ = asked.send(line.split(' ').nth(1).unwrap_or_default().to_owned());
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    let mut load = workload(&format!("{base}/first"));
    load.redirects_max = 3;
    let one = load.requests[0].clone();
    for (path, has_variables) in [("/order/${order}", true), ("/user/${user}", true), ("/last", false)] {
        load.requests.push(RequestSpec { url: format!("{base}{path}"), has_variables, ..one.clone() });
    }
    let captures = vec![CaptureSpec { name: "order".into(), from: CaptureFrom::Header("X-Order".into()) }];
    // The session does not begin with the request that is written first.
    let steps = [3, 0, 1, 2].map(|request| StepSpec {
        request,
        captures: if request == 0 { captures.clone() } else { vec![] },
        ..StepSpec::default()
    });
    let session = SessionSpec { name: "s".into(), weight: 1.0, steps: steps.into() };
    load.visits = Some(Box::new(Visits { sessions: vec![session], users: 1, ..Visits::default() }));
    probe(&mut prepare(&load).unwrap()).unwrap();
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), ["/last", "/first"]);
}

/// What the only request of a load showed whose answers have these headers and bodies, in turns; and how often it was sent.
fn repeated(headers: &'static str, bodies: [&'static str; 2], request: RequestSpec) -> (RepeatedAnswer, u64) {
    let server = Server::by_turn(move |turn| {
        let body = bodies[usize::from(turn % 2 == 1)];
        let answer = format!(
            "HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        vec![Step::Request, Step::Send(answer.into_bytes())]
    });
    let mut load = workload(&server.url());
    let url = load.requests[0].url.clone() + &request.url;
    load.requests = vec![RequestSpec { url, ..request }];
    let seen = repeated_answers(&prepare(&load).unwrap(), &load);
    assert_eq!(seen.len(), 1);
    (seen[0].clone(), server.connections.load(std::sync::atomic::Ordering::SeqCst))
}

#[test]
fn answers_are_asked_for_twice_where_the_first_leaves_it_open() {
    let get = RequestSpec::default;
    for (headers, bodies, cacheable, sent) in [
        ("", ["page", "page"], Some(true), 2),
        ("", ["page 1", "page 2"], Some(false), 2),
        ("Set-Cookie: a=b\r\n", ["page", "page"], Some(false), 1),
        ("Cache-Control: max-age=3\r\nCache-Control: private\r\n", ["page", "page"], Some(false), 1),
        ("Expires: Thu, 19 Nov 1981 08:52:00 GMT\r\n", ["page", "page"], Some(false), 1),
        // A file: nothing is gained, and it is not asked for again.
        (
            "Last-Modified: Thu, 19 Nov 2020 08:52:00 GMT\r\nAccept-Ranges: bytes\r\n",
            ["page", "page"],
            None,
            1,
        ),
    ] {
        let (seen, requests) = repeated(headers, bodies, get());
        assert_eq!((seen.is_cacheable(), requests), (cacheable, sent), "{headers} {seen:?}");
        assert_eq!((seen.share_fraction, seen.status), (Some(1.0), Some(200)));
    }
}

#[test]
fn what_is_somebodys_own_is_not_asked_for() {
    let header = |name: &str| vec![(name.to_owned(), "x".to_owned())];
    for request in [
        RequestSpec { method: "POST".into(), ..RequestSpec::default() },
        RequestSpec { headers: header("cookie"), ..RequestSpec::default() },
        RequestSpec { headers: header("Authorization"), ..RequestSpec::default() },
        RequestSpec { url: "?token=s3cret".into(), ..RequestSpec::default() },
    ] {
        let (seen, requests) = repeated("", ["page", "page"], request);
        assert!(requests == 0 && seen.not_sent.is_some() && seen.is_cacheable().is_none(), "{seen:?}");
        assert!(!seen.url.contains("s3cret") && !seen.name.contains("s3cret"), "{seen:?}");
    }
}
