//! What others are given of a session while it goes on: scrapes for Prometheus, and pushes to an OpenTelemetry collector.

use crate::ports::free_port;
use crate::refusing::Refusing;
use crate::support::{Ended, Place, Server, run, shared_turn};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, number_data_point};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// A scrape: its samples by name and labels.
type Samples = BTreeMap<String, f64>;

/// What is served at the port now; `None` where nothing is.
fn scrape(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("openmetrics-text"), "{head}");
    Some(body.to_owned())
}

/// Reads the text as a scraper does: each sample belongs to the family that was described before it, by its type.
fn parsed(text: &str) -> Samples {
    assert!(text.ends_with("# EOF\n"), "{text}");
    let (mut family, mut kind, mut known) = (String::new(), String::new(), BTreeSet::new());
    let mut samples = Samples::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] => {
                assert!(known.insert(name.to_owned()), "{name} is described twice");
                assert!(name.starts_with("webdyno_") && help.ends_with('.'), "{line}");
                family = name.to_owned();
            }
            ["#", "TYPE", name, of] => {
                assert!(name == family && ["counter", "gauge", "histogram"].contains(&of), "{line}");
                kind = of.to_owned();
            }
            ["#", "UNIT", name, unit] => assert!(name == family && name.ends_with(unit), "{line}"),
            _ => {
                let (name, value) = line.rsplit_once(' ').unwrap();
                let suffix = name.split('{').next().unwrap().strip_prefix(&family);
                let suffix = suffix.unwrap_or_else(|| panic!("{line} in {family}"));
                let suffixes: &[&str] = match kind.as_str() {
                    "counter" => &["_total"],
                    "gauge" => &[""],
                    _ => &["_bucket", "_sum", "_count"],
                };
                assert!(suffixes.contains(&suffix), "{line} of a {kind}");
                assert!(samples.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{line} twice");
            }
        }
    }
    samples
}

/// What rises in a session never falls, and the buckets of the times add up to the requests that ended in time.
fn assert_consistent(scrapes: &[Samples]) {
    for pair in scrapes.windows(2) {
        let rising = |(name, _): &(&String, &f64)| name.contains("_total") || name.contains("_bucket");
        for (name, before) in pair[0].iter().filter(rising) {
            assert!(pair[1][name] >= *before, "{name} fell from {before} to {}", pair[1][name]);
        }
    }
    for samples in scrapes {
        let infinite = samples["webdyno_response_time_seconds_bucket{le=\"+Inf\"}"];
        assert_eq!(infinite, samples["webdyno_response_time_seconds_count"]);
        assert_eq!(infinite, samples["webdyno_requests_completed_total"], "none timed out");
    }
}

#[test]
fn a_scrape_has_what_the_report_has() {
    let _turn = shared_turn();
    let (place, server, port) = (Place::new(), Server::answering(OK), free_port());
    let load = ["run", &server.url(), "-n", "600", "-r", "300", "-t", "1", "--repeat", "2", "--json", "-"];
    let address = format!(":{port}");
    let (ended, scrapes) = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(place.webdyno().args(load).args(["--prometheus", &address])));
        let mut scrapes = vec![];
        while !running.is_finished() {
            scrapes.extend(scrape(port).map(|text| parsed(&text)));
            std::thread::sleep(Duration::from_millis(50));
        }
        (running.join().unwrap().with_code_in(&[0, 3]), scrapes)
    });
    assert!(ended.stderr.contains(&format!("metrics: http://127.0.0.1:{port}/metrics")), "{}", ended.stderr);
    assert_consistent(&scrapes);
    // Between the two loads a second passes in which the first one has come to its end.
    let requests = &ended.json()["requests"];
    let first = scrapes.iter().rfind(|samples| {
        samples.contains_key("webdyno_load_number{purpose=\"run\"}")
            && samples["webdyno_load_number{purpose=\"run\"}"] == 1.0
    });
    let first = first.expect("a scrape of the first load");
    for (name, of) in [("started", "started"), ("completed", "completed")] {
        let count = first[&format!("webdyno_requests_{name}_total")];
        assert_eq!(Some(count), requests[of].as_f64(), "{name}");
    }
    assert_eq!(first["webdyno_responses_total{code=\"200\"}"], 600.0);
    assert!(!first.contains_key("webdyno_requests_in_flight"), "the load is over");
    assert!(first["webdyno_generator_cpu_seconds_total"] > 0.0);
    let info = first.keys().find(|name| name.starts_with("webdyno_session_info")).unwrap();
    assert!(
        info.contains("command=\"run\"") && info.contains(&format!("127.0.0.1:{}", server.port)),
        "{info}"
    );
    let last = scrapes.last().unwrap();
    assert_eq!(last["webdyno_requests_completed_total"], 1_200.0, "the end waits for one more scrape");
    assert!(scrape(port).is_none(), "it ends with the session");
}

#[test]
fn a_port_that_is_taken_is_reported_before_the_load() {
    let place = Place::new();
    let server = Server::answering(OK);
    let taken = format!(":{}", server.port);
    let load = ["run", &server.url(), "-d", "60s", "--prometheus", &taken];
    run(place.webdyno().args(load))
        .with_code(1)
        .assert_error("another program listens there", "--prometheus :");
    assert!(!place.path("webdyno-runs").exists());
    let check = ["check", "--port", "1", "--prometheus", ":0"];
    run(place.webdyno().args(check)).with_code(2).assert_error("--prometheus is of what goes on", "observe");
}

/// A push as a collector reads it.
struct Push {
    head: String,
    metrics: Vec<Metric>,
}

/// A collector that takes what is pushed until the test ends.
fn collector() -> (String, Receiver<Push>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, pushes) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, sender) = (stream.unwrap(), sender.clone());
            std::thread::spawn(move || while take(&stream).is_some_and(|push| sender.send(push).is_ok()) {});
        }
    });
    (url, pushes)
}

fn take(mut stream: &TcpStream) -> Option<Push> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line).ok()? > 2 {
        head += &std::mem::take(&mut line).to_lowercase();
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"))?.trim().parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").ok()?;
    let request = ExportMetricsServiceRequest::decode(&body[..]).unwrap();
    let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
    Some(Push { head, metrics: scopes.flat_map(|scope| scope.metrics).collect() })
}

/// The total of a metric over its labels.
fn total(push: &Push, name: &str) -> f64 {
    let metric =
        push.metrics.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("no {name}"));
    let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
    assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "a cumulative counter: {sum:?}");
    let value = |value: &Option<number_data_point::Value>| match value {
        Some(number_data_point::Value::AsDouble(value)) => *value,
        other => panic!("{other:?}"),
    };
    sum.data_points.iter().map(|point| value(&point.value)).sum()
}

#[test]
fn a_collector_gets_the_totals_of_the_report() {
    let _turn = shared_turn();
    let (place, server, (url, pushes)) = (Place::new(), Server::answering(OK), collector());
    let load = ["run", &server.url(), "-n", "500", "-r", "250", "-t", "1", "--json", "-", "--otlp", &url];
    let mut command = place.webdyno();
    command.args(load).env("OTEL_METRIC_EXPORT_INTERVAL", "400");
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "x-scope=team%20a");
    let ended = run(&mut command).with_code_in(&[0, 3]);
    assert!(!ended.stderr.contains("OTLP"), "{}", ended.stderr);
    let pushes: Vec<Push> = pushes.try_iter().collect();
    assert!(pushes.len() > 3, "{} pushes in two seconds", pushes.len());
    let last = pushes.last().unwrap();
    assert!(last.head.starts_with("post /v1/metrics http/1.1"), "{}", last.head);
    assert!(
        last.head.contains("application/x-protobuf") && last.head.contains("x-scope: team a"),
        "{}",
        last.head
    );
    let json = ended.json();
    for (name, reported) in [
        ("webdyno.requests_started", &json["requests"]["started"]),
        ("webdyno.requests_completed", &json["requests"]["completed"]),
        ("webdyno.requests_failed", &json["requests"]["failed"]),
        ("webdyno.received", &json["bytes"]["received"]),
        ("webdyno.responses", &json["status"]["200"]),
    ] {
        assert_eq!(Some(total(last, name)), reported.as_f64(), "{name}");
    }
    let times = last.metrics.iter().find(|metric| metric.name == "webdyno.response_time").unwrap();
    let Some(Data::Histogram(histogram)) = &times.data else { panic!("{times:?}") };
    let point = &histogram.data_points[0];
    assert_eq!((times.unit.as_str(), point.count), ("s", 500));
    assert_eq!((point.bucket_counts.iter().sum::<u64>(), point.explicit_bounds.len()), (500, 16));
    let mean_us = point.sum.unwrap() / 500.0 * 1e6;
    let reported_us = json["response_time_us"]["mean"].as_f64().unwrap();
    assert!((mean_us / reported_us - 1.0).abs() < 0.01, "{mean_us} and {reported_us}");
}

/// A run with a collector that does not do its part: as one without.
fn with_collector(url: &str, flags: &[&str]) -> (Ended, Duration) {
    let (place, server) = (Place::new(), Server::answering(OK));
    let load = ["run", &server.url(), "-n", "200", "-r", "200", "-t", "1", "--otlp", url];
    let began = Instant::now();
    let ended = run(place.webdyno().args(load).args(flags).env("OTEL_METRIC_EXPORT_INTERVAL", "200"));
    (ended.with_code_in(&[0, 3]), began.elapsed())
}

#[test]
fn a_collector_that_is_away_costs_one_warning() {
    let _turn = shared_turn();
    let away = Refusing::start();
    for flags in [&[][..], &["-q"]] {
        let (ended, took) = with_collector(&format!("http://{}", away.address), flags);
        assert_eq!(ended.stderr.matches("does not take metrics").count(), 1, "{}", ended.stderr);
        assert!(ended.stdout.contains("Throughput") && took < Duration::from_secs(10), "{took:?}");
    }
}

#[test]
fn a_collector_that_never_answers_holds_up_the_end_for_two_seconds() {
    let _turn = shared_turn();
    // Connections wait in its accept queue.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (ended, took) = with_collector(&format!("http://{}", silent.local_addr().unwrap()), &[]);
    assert_eq!(ended.stderr.matches("no answer within 2 s").count(), 1, "{}", ended.stderr);
    assert!(took < Duration::from_secs(9), "{took:?}");
}
