//! What is refused, and the bytes that go over the wire.

use super::*;
use crate::plan::thread_share::ThreadShare;
use webdyno_model::transport::Io;
use webdyno_model::workload::{Expectation, RequestSpec, Stop};

fn spec(method: &str, url: &str) -> RequestSpec {
    RequestSpec { name: "/".into(), method: method.into(), url: url.into(), ..RequestSpec::default() }
}

fn workload(requests: Vec<RequestSpec>) -> Workload {
    Workload {
        requests,
        stop: Stop { duration_us: Some(1_000_000), requests: None },
        connections: 4,
        threads: Some(9),
        timeout_us: 1_000_000,
        ..Workload::default()
    }
}

fn refused(workload: &Workload) -> UserError {
    prepare(workload).expect_err("it must be refused")
}

#[test]
fn urls_that_cannot_be_loaded_are_usage_errors_with_a_hint() {
    for (url, part) in [
        ("ftp://localhost/", "has the scheme ftp"),
        ("localhost/x", "does not say http://"),
        ("127.0.0.1:80", "does not say http://"),
        ("localhost:80/", "does not say http://"),
        ("www.site.example/a?b", "does not say http://"),
        ("[::1]:80", "does not say http://"),
        ("[::1]", "is not a URL"),
        ("http://127.0.0.1:0/", "has the port 0"),
        ("mailto:me@site.example", "has the scheme mailto"),
        ("not a url", "is not a URL"),
        ("", "is not a URL"),
        ("http://", "is not a URL"),
        ("http://a:b@localhost/", "credentials"),
        ("http://localhost:99999/", "is not a URL"),
    ] {
        let error = refused(&workload(vec![spec("GET", url)]));
        assert!(error.message.contains(part), "{url}: {error}");
        assert_eq!(error.exit_code(), 2, "{url}");
        assert!(error.hint.is_some(), "{url}");
        assert!(!error.message.contains("a:b"), "{error}");
    }
}

#[test]
fn a_name_that_does_not_resolve_is_reported_with_its_name() {
    let error = refused(&workload(vec![spec("GET", "http://no-such-host.invalid/")]));
    assert!(error.message.starts_with("cannot resolve no-such-host.invalid: "), "{error}");
    assert_eq!(error.exit_code(), 1);
    assert_eq!(error.hint.as_deref(), Some("check the name: getent hosts no-such-host.invalid"));
}

#[test]
fn numbers_that_make_no_load_are_usage_errors() {
    let good = || workload(vec![spec("GET", "http://127.0.0.1/")]);
    let changes: [fn(&mut Workload); 9] = [
        |load| load.requests.clear(),
        |load| load.connections = 0,
        |load| load.threads = Some(0),
        |load| load.timeout_us = 0,
        |load| load.stop.duration_us = Some(0),
        |load| load.stop.requests = Some(0),
        |load| load.requests[0].method = "GE T".into(),
        |load| load.requests[0].headers = vec![("A".into(), "b\r\nC: d".into())],
        |load| load.requests[0].headers = vec![("Transfer-Encoding".into(), "chunked".into())],
    ];
    assert!(prepare(&good()).is_ok());
    for (number, change) in changes.iter().enumerate() {
        let mut load = good();
        change(&mut load);
        assert_eq!(refused(&load).exit_code(), 2, "change {number}");
    }
    for rate_per_s in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
        let mut load = good();
        load.arrival = Arrival::Open { rate_per_s, poisson: false };
        assert_eq!(refused(&load).exit_code(), 2, "{rate_per_s}");
    }
}

fn check_bytes(spec: &RequestSpec, keepalive: bool, expected: &str) {
    let url = request_template::parse_url(&spec.url).unwrap();
    let source =
        request_template::Source::from_spec(spec, url, RequestForm { keepalive, proxy: None }).unwrap();
    let bytes = Template::new(source, 0, 0).unsent(0).to_vec();
    let agent = concat!("webdyno/", env!("CARGO_PKG_VERSION"));
    let text = String::from_utf8(bytes).unwrap().replace(agent, "AGENT");
    assert_eq!(text.replace("\r\n", "\n"), expected);
}

#[test]
fn requests_look_like_this_on_the_wire() {
    check_bytes(
        &spec("GET", "http://h:8080/a b?q=1#frag"),
        true,
        "GET /a%20b?q=1 HTTP/1.1\nHost: h:8080\nUser-Agent: AGENT\nAccept: */*\n\n",
    );
    check_bytes(
        &spec("GET", "http://[::1]:81"),
        false,
        "GET / HTTP/1.1\nHost: [::1]:81\nUser-Agent: AGENT\nAccept: */*\nConnection: close\n\n",
    );
    let mut post = spec("POST", "http://h/");
    post.headers = vec![("host".into(), "other".into()), ("X-A".into(), "1".into())];
    post.body = "a=1".into();
    check_bytes(
        &post,
        true,
        "POST / HTTP/1.1\nUser-Agent: AGENT\nAccept: */*\nContent-Length: 3\nhost: other\nX-A: 1\n\na=1",
    );
}

#[test]
fn servers_names_and_threads_are_counted() {
    let mut load = workload(vec![
        spec("GET", "http://127.0.0.1:8001/a"),
        spec("POST", "http://127.0.0.1:8001/b"),
        spec("HEAD", "http://127.0.0.1:8002/a"),
    ]);
    load.requests[1].name = "b".into();
    let plan = prepare(&load).unwrap().plan;
    assert_eq!(plan.origins.len(), 2);
    assert_eq!(plan.names, ["/", "b"]);
    assert_eq!(plan.share.threads, 4, "never more than connections");
    let flags: Vec<_> = plan.templates.iter().map(|one| (one.is_head_request, one.idempotent)).collect();
    assert_eq!(flags, [(false, true), (false, false), (true, true)]);
    load.requests = (0..100)
        .map(|number| RequestSpec { name: number.to_string(), ..spec("GET", "http://127.0.0.1/") })
        .collect();
    let plan = prepare(&load).unwrap().plan;
    assert_eq!(plan.names.len(), 64);
    assert_eq!(plan.names[plan.templates[99].name], "(other)");
}

#[test]
fn ipv6_and_names_resolve() {
    let prepared = prepare(&workload(vec![spec("GET", "http://[::1]:81/")])).unwrap();
    assert_eq!(prepared.address().unwrap().to_string(), "[::1]:81");
    let prepared = prepare(&workload(vec![spec("GET", "http://localhost:82/")])).unwrap();
    assert!(prepared.address().unwrap().ip().is_loopback());
}

#[test]
fn a_lower_load_goes_to_the_same_addresses() {
    let two = ["http://127.0.0.1:81/a", "http://127.0.0.1:82/b", "http://127.0.0.1:81/c"];
    let mut load = workload(two.into_iter().map(|url| spec("GET", url)).collect());
    let mut prepared = prepare(&load).unwrap();
    let addresses = prepared.addresses();
    assert_eq!(addresses, ["127.0.0.1:81".parse().unwrap(), "127.0.0.1:82".parse().unwrap()]);
    (load.connections, load.arrival) = (2, Arrival::Open { rate_per_s: 5.0, poisson: false });
    prepared.lower_to(&load);
    assert_eq!((prepared.plan.connections, prepared.threads(), prepared.plan.arrival), (2, 2, load.arrival));
    assert!(prepared.plan.parked_max <= 2);
    // Never more than was prepared for.
    load.connections = 50;
    prepared.lower_to(&load);
    assert_eq!((prepared.plan.connections, prepared.addresses()), (2, addresses));
}

#[test]
fn users_need_a_connection_each_and_keep_more_where_there_is_room() {
    let two = ["http://127.0.0.1:81/a", "http://127.0.0.1:82/b"];
    let mut load = workload(two.into_iter().map(|url| spec("GET", url)).collect());
    (load.connections, load.threads) = (70, Some(2));
    let mut prepared = prepare(&load).unwrap();
    prepared.add_connection_warnings();
    assert_eq!((prepared.plan.connections_max(), prepared.warnings()), (140, &[][..]));
    // Room for each user, not for one to each server of each.
    prepared.plan.open_files_left = 100;
    prepared.add_connection_warnings();
    prepared.add_connection_warnings();
    assert_eq!(prepared.plan.connections_max(), 100);
    let [note] = prepared.warnings() else { panic!("{:?}", prepared.warnings()) };
    assert!(note.contains("up to 140 connections") && note.contains("open files allow 100"), "{note}");
    let open_max =
        |thread| prepared.plan.open_max(&ThreadShare { thread, threads: 2, unit: 1, budget: None });
    assert_eq!((open_max(0), open_max(1)), (50, 50));
    // However low the limit, no user waits for a connection in closed arrival.
    prepared.plan.open_files_left = 10;
    assert_eq!(prepared.plan.connections_max(), 70);
}

#[test]
fn a_small_cap_over_several_servers_is_reported() {
    let two = ["http://127.0.0.1:81/a", "http://127.0.0.1:82/b"];
    let mut load = workload(two.into_iter().map(|url| spec("GET", url)).collect());
    load.arrival = Arrival::Open { rate_per_s: 2000.0, poisson: false };
    load.threads = Some(2);
    for (connections, keepalive, is_told) in [(2, true, true), (2, false, false), (50, true, false)] {
        (load.connections, load.keepalive) = (connections, keepalive);
        let mut prepared = prepare(&load).unwrap();
        prepared.add_connection_warnings();
        let error = prepared.warnings().iter().any(|note| note.contains("-c 2 is the most connections"));
        assert_eq!(error, is_told, "{connections} {keepalive}: {:?}", prepared.warnings());
    }
    load.requests.truncate(1);
    (load.connections, load.keepalive) = (2, true);
    let mut prepared = prepare(&load).unwrap();
    prepared.add_connection_warnings();
    assert_eq!(prepared.warnings(), &[][..] as &[String]);
}

#[test]
fn unmeetable_expectations_are_refused() {
    use Expectation::{Length, Status};
    for (method, expect, error) in [
        ("GET", vec![Status(200), Status(404)], Some("status 200 and status 404")),
        ("GET", vec![Length(1), Length(2)], Some("length 1 and length 2")),
        ("GET", vec![Status(200), Length(1), Status(200)], None),
        ("HEAD", vec![Length(6)], Some("HEAD has no body")),
        ("HEAD", vec![Length(0), Status(204)], None),
    ] {
        let mut load = workload(vec![spec(method, "http://127.0.0.1/")]);
        load.expect = expect;
        match (prepare(&load), error) {
            (Ok(_), None) => {}
            (Err(error), Some(part)) => {
                assert!(error.message.contains(part) && error.exit_code() == 2, "{error}");
                assert!(error.hint.is_some());
            }
            (result, error) => panic!("{:?}: {error:?} against {}", load.expect, result.is_ok()),
        }
    }
}

#[test]
fn flags_without_effect_are_reported() {
    let mut load = workload(vec![spec("GET", "http://127.0.0.1:81/")]);
    load.transport.source_ips = vec!["127.0.0.1".parse().unwrap()];
    let notes = |load: &Workload| {
        let mut prepared = prepare(load).unwrap();
        prepared.add_connection_warnings();
        prepared.warnings().join(" ")
    };
    assert_eq!(notes(&load), "");
    load.transport.tls.insecure = true;
    assert!(notes(&load).contains("no https:// URL is loaded"));
    load.requests[0].url = "https://127.0.0.1:81/".into();
    assert_eq!(notes(&load), "");
    // Where this machine has no IPv6 at all, the address is refused before.
    load.transport.source_ips.push("::1".parse().unwrap());
    if prepare(&load).is_ok() {
        let said = notes(&load);
        assert!(said.contains("no connection begins from ::1") && said.contains("over IPv4"), "{said}");
    }
    load.transport.source_ips = vec!["0.0.0.0".parse().unwrap()];
    assert!(refused(&load).message.contains("0.0.0.0 is every address"));
}

#[test]
fn a_load_goes_by_epoll_where_io_uring_is_refused_and_says_why() {
    let url = "http://127.0.0.1:1/".into();
    let mut load =
        Workload { requests: vec![RequestSpec { url, ..RequestSpec::default() }], ..Workload::default() };
    let refused = |_| Some("io_uring is forbidden here".to_owned());
    assert_eq!(prepare(&load).unwrap().plan.choose_io(refused), None, "nobody asked for it");
    load.transport.io = Io::Uring;
    let mut plan = prepare(&load).unwrap().plan;
    plan.transport.io = Io::Uring;
    let note = plan.choose_io(refused).unwrap();
    assert!(note.contains("epoll") && note.ends_with("io_uring is forbidden here"), "{note}");
    assert_eq!((plan.transport.io, plan.choose_io(refused)), (Io::Epoll, None));
}
