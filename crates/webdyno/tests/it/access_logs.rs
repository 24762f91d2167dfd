//! `webdyno logs`: what it counts against a plain count of the same lines, logs of all kinds, what is private, what is refused, and a
//! log that grows.

use crate::support::{Ended, Place, read_json, run};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

/// A line of the combined format.
fn line(second: u64, client: u64, path: &str, status: u16, bytes: u64) -> String {
    let (hour, minute) = (second / 3600 % 24, second / 60 % 60);
    format!(
        "10.0.0.{client} - - [10/Oct/2026:{hour:02}:{minute:02}:{:02} +0200] \"GET {path} HTTP/1.1\" {status} {bytes} \"-\" \"Mozilla/5.0 (X11)\"\n",
        second % 60
    )
}

/// 1,000 lines from a second on: two a second.
fn log(from: u64) -> String {
    (0..1000u64)
        .map(|n| {
            line(
                from + n / 2,
                n % 50,
                &format!("/p/{}?token=secret{n}", n % 20),
                if n.is_multiple_of(10) { 404 } else { 200 },
                100 + n,
            )
        })
        .collect()
}

fn logs(place: &Place, words: &[&str]) -> Ended {
    run(place.webdyno().arg("logs").args(words))
}

fn json_of(place: &Place, words: &[&str]) -> Value {
    logs(place, &[words, &["--json", "out.json"]].concat()).with_code(0);
    read_json(place.path("out.json"))
}

#[test]
fn what_is_counted_is_what_is_there() {
    let place = Place::new();
    fs::write(place.path("access.log"), log(36_000)).unwrap();
    let words = ["access.log", "--json", "out.json", "--html", "page.html"];
    let shown = logs(&place, &words).with_code(0).stdout;
    assert!(shown.starts_with("1,000 requests, 2/s; busiest minute 2/s"), "{shown}");
    assert!(shown.lines().count() <= 40 && shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let report = read_json(place.path("out.json"));
    let bytes: u64 = (100..1100).sum();
    for (key, value) in [
        ("/requests", 1000u64),
        ("/bytes", bytes),
        ("/lines/total", 1000),
        ("/clients_distinct/count", 50),
        ("/urls_distinct/count", 20),
        ("/rates/span_s", 500),
        ("/rates/by_hour/10", 1000),
        ("/rates/by_weekday/5", 1000),
        ("/statuses/0/requests", 900),
        ("/urls/by_requests/0/requests", 50),
        ("/working_set/objects", 900),
    ] {
        assert_eq!(report.pointer(key).and_then(Value::as_f64), Some(value as f64), "{key}");
    }
    let course = report.pointer("/rates/timeline/requests").and_then(Value::as_array).unwrap();
    assert_eq!(course.iter().filter_map(Value::as_u64).sum::<u64>(), 1000);
    let page = fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.contains("1,000 requests, 2/s") && page.contains("\"id\":\"log-rate\""));
    let texts = [shown, report.to_string(), page];
    assert!(texts.iter().all(|text| !text.contains("10.0.0.") && !text.contains("secret")), "{texts:?}");
    let open = json_of(&place, &["access.log", "--show-clients", "--keep-query"]).to_string();
    assert!(open.contains("10.0.0.") && open.contains("?token=secret"), "{open}");
}

#[test]
fn a_rotated_set_is_one_log_whatever_its_order_and_packing() {
    let place = Place::new();
    let [first, second, third] = [36_000, 36_500, 37_000].map(log);
    fs::write(place.path("whole"), [first.as_str(), &second, &third].concat()).unwrap();
    let mut packed = flate2::write::GzEncoder::new(
        fs::File::create(place.path("access.log.2.gz")).unwrap(),
        Default::default(),
    );
    packed.write_all(first.as_bytes()).unwrap();
    packed.finish().unwrap();
    fs::write(place.path("access.log.1"), &second).unwrap();
    fs::write(place.path("access.log"), &third).unwrap();
    let mut whole = json_of(&place, &["whole"]);
    for words in
        [["access.log", "access.log.1", "access.log.2.gz"], ["access.log.2.gz", "access.log", "access.log.1"]]
    {
        let mut set = json_of(&place, &words);
        assert_eq!(set["logs"][0]["name"], "access.log.2.gz");
        set["logs"] = Value::Null;
        whole["logs"] = Value::Null;
        assert_eq!(set, whole);
    }
    let gzip = fs::read(place.path("access.log.2.gz")).unwrap();
    fs::write(place.path("cut.gz"), &gzip[..gzip.len() / 2]).unwrap();
    let cut = json_of(&place, &["cut.gz"]);
    assert!(
        cut["requests"].as_u64().unwrap() > 50 && cut["notes"][0].as_str().unwrap().contains("cut off"),
        "{cut:#}"
    );
}

/// Each kind of rubbish beside good lines: these are counted, the rubbish is counted too and shown, and nothing breaks.
#[test]
fn rubbish_is_counted_and_shown() {
    let place = Place::new();
    let good = log(36_000);
    let common = |offset: &str| format!("::1 - - [25/Oct/2026:02:30:00 {offset}] \"GET / HTTP/1.1\" 200 5\n");
    for (name, added, requests, not_understood) in [
        ("broken lines", "10.1.1.1 - - [10/Oct/2026:10:00:00 +02\n".repeat(5), 1000, 5),
        ("binary", format!("{}\n\u{1}\u{2}\0\n", "\u{16}\u{3}".repeat(500)), 1000, 2),
        ("a line of a megabyte", format!("{}\n{}", "x".repeat(1 << 20), line(1, 1, "/", 200, 1)), 1001, 1),
        (
            "a request of a megabyte",
            format!("{}{}", line(1, 1, &"/y".repeat(1 << 19), 200, 1), line(1, 1, "/", 200, 1)),
            1001,
            1,
        ),
        ("no end", line(1, 1, "/", 200, 1).trim_end().to_owned(), 1001, 0),
        ("blank lines and comments", "\n\r\n# comment\n".into(), 1000, 0),
        (
            "times out of order",
            line(1, 1, "/", 200, 1) + &line(7200, 1, "/", 200, 1) + &line(2, 1, "/", 200, 1),
            1003,
            0,
        ),
        ("another format, IPv6, daylight saving", (common("+0200") + &common("+0100")).repeat(50), 1100, 0),
    ] {
        // The format is recognised by the first lines.
        let text = if added.starts_with("::1") { format!("{added}{good}") } else { format!("{good}{added}") };
        fs::write(place.path("access.log"), text).unwrap();
        let report = json_of(&place, &["access.log"]);
        let counted =
            [&report["requests"], &report["lines"]["not_understood"]].map(|figure| figure.as_u64().unwrap());
        assert_eq!(counted, [requests, not_understood], "{name}: {:#}", report["lines"]);
        assert_eq!(
            report["lines"]["samples"].as_array().unwrap().len() as u64,
            not_understood.min(3),
            "{name}"
        );
        assert!(!report.to_string().contains("10.1.1.1"), "{name}");
    }
}

#[test]
fn what_is_no_access_log_is_refused_with_a_hint() {
    let place = Place::new();
    fs::write(place.path("rubbish"), "this is no access log\n".repeat(3)).unwrap();
    fs::write(place.path("empty"), "").unwrap();
    fs::create_dir(place.path("folder")).unwrap();
    for (words, code, message) in [
        (vec!["rubbish"], 2, "none of the 3 lines of rubbish is of a known format"),
        (vec!["missing"], 1, "missing: no such file or directory"),
        (vec!["folder"], 1, "folder: it is a directory"),
        (vec!["rubbish", "--format", "combinde"], 2, "is no format of an access log"),
        (vec!["rubbish", "empty", "--follow"], 2, "--follow takes one log"),
        (vec!["-", "-"], 2, "stdin is given twice"),
        (vec!["rubbish", "--html", "-"], 2, "--html takes a file"),
    ] {
        let ended = logs(&place, &words).with_code(code);
        assert!(ended.stderr.contains(message), "{words:?}: {}", ended.stderr);
    }
    let shown = logs(&place, &["empty"]).with_code(0).stdout;
    assert!(shown.starts_with("No request was found in 0 lines"), "{shown}");
}

#[test]
fn a_log_is_followed_until_it_is_interrupted() {
    let place = Place::new();
    fs::write(place.path("access.log"), log(36_000)).unwrap();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("webdyno"))
        .args(["logs", "--follow", "--interval", "200ms", "access.log"])
        .env("WEBDYNO_STATE", place.path("state"))
        .current_dir(place.path(""))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut wait_for = |text: &str| {
        let end = Instant::now() + Duration::from_secs(20);
        let mut line = String::new();
        while !line.contains(text) {
            assert!(Instant::now() < end, "no {text}: {line}");
            line.clear();
            std::io::BufRead::read_line(&mut errors, &mut line).unwrap();
        }
    };
    wait_for(": 1,000 requests");
    fs::rename(place.path("access.log"), place.path("access.log.1")).unwrap();
    fs::write(place.path("access.log"), log(37_000)).unwrap();
    wait_for(": 2,000 requests");
    let id = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&ended.stdout).starts_with("2,000 requests"), "{ended:?}");
}
