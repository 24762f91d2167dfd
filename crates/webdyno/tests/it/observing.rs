//! Observing without load, as its users meet it: one look, a recording, and a ring that keeps what went wrong.

use crate::support::{Apache, Place, Server, run, shared_turn, signal, turn, wait_until};
use rustix::process::Signal;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// All files below a directory.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

#[test]
fn one_look_has_every_metric_with_its_value_or_the_reason_why_not() {
    let _turn = shared_turn();
    let place = Place::new();
    let apache = Apache::start(&place.path("server"), 20);
    let port = apache.files.port.to_string();
    let before = apache.configuration();
    let ended = run(place.webdyno().args(["observe", "--once", "--port", &port, "--json", "-"])).with_code(0);
    let json = ended.json();
    assert_eq!(json["schema"], "webdyno/observe/v1");
    assert_eq!(json["services"]["front"]["service"], "apache");
    let limit = &json["services"]["front"]["settings"]["MaxRequestWorkers"];
    assert!(limit["file"].is_string() && limit["line"].is_u64(), "{limit:#}");
    let facts = json["facts"].as_array().unwrap();
    assert!(facts.len() > 100, "{} facts", facts.len());
    let pid = apache.pid().unwrap().to_string();
    for fact in facts {
        let name = fact["name"].as_str().unwrap();
        let known = fact["value"].is_number();
        assert_eq!(known, fact["why"].is_null(), "{fact:#}");
        assert_eq!(known, fact["how_to_enable"].is_null(), "{fact:#}");
        let command = fact["reproduce"].as_str().unwrap();
        assert!(!command.is_empty(), "{name} has no command");
        let words: Vec<&str> = command.split(|letter: char| !letter.is_alphanumeric()).collect();
        let blank = words.iter().any(|word| matches!(*word, "PID" | "PORT" | "URL"));
        assert!(!(known && blank), "{name}: {command}");
    }
    let fact =
        |name: &str| facts.iter().find(|fact| fact["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    assert!(fact("cpu.idle_s")["rate_per_s"].is_number(), "{:#}", fact("cpu.idle_s"));
    assert_eq!(fact("apache.slots_count")["value"], 20);
    assert!(fact("process.cpu_s")["reproduce"].as_str().unwrap().contains(&pid));
    for collector in json["collectors"].as_array().unwrap() {
        assert!(collector["readings"].as_u64().unwrap() >= 2, "{collector:#}");
    }
    assert_eq!(apache.configuration(), before);
}

#[test]
fn without_a_port_the_host_is_observed_and_what_takes_one_says_so() {
    // It asks all servers of the machine: to other tests that would be somebody else's requests.
    let _turn = turn();
    let place = Place::new();
    let ended = run(place.webdyno().args(["observe", "--for", "1s", "--json", "-"])).with_code(0);
    let json = ended.json();
    let facts = json["facts"].as_array().unwrap();
    let queue = facts.iter().find(|fact| fact["name"] == "sockets.accept_queue_count").unwrap();
    assert!(
        queue["value"].is_null() && queue["how_to_enable"].as_str().unwrap().contains("--port"),
        "{queue:#}"
    );
    let memory = facts.iter().find(|fact| fact["name"] == "memory.available_bytes").unwrap();
    assert!(memory["value"].as_f64().unwrap() > 1e6 && memory["mean"].is_number(), "{memory:#}");
}

#[test]
fn what_is_wrong_is_told_before_anything_is_recorded() {
    let _turn = shared_turn();
    let place = Place::new();
    for (arguments, code, message, hint) in [
        (&["--once", "--for", "1s"][..], 2, "--for", "--help"),
        (&["--once", "--ring", "1h"], 2, "--ring", "--help"),
        (&["--for", "1s", "--csv", "-"], 2, "--csv is of a load", "--json"),
        (&["--for", "1s", "--port", "1"], 1, "nothing listens on port 1", "ss -ltnp"),
        (&["--ring", "5", "--for", "1s"], 2, "unit", "--help"),
    ] {
        let ended = run(place.webdyno().arg("observe").args(arguments)).with_code(code);
        ended.told(message, hint);
    }
    assert!(!place.path("webdyno-runs").exists());
    std::fs::write(place.path("file"), "").unwrap();
    run(place.webdyno().args(["observe", "--ring", "1m", "--for", "1s", "--out", "file/x"]))
        .with_code(1)
        .told("a part of its path is no directory", "");
}

#[test]
fn who_ends_an_observation_has_what_was_recorded() {
    let _turn = shared_turn();
    let place = Place::new();
    let server = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    for (arguments, code) in [(&["--out", "a"][..], 0), (&["--for", "100s", "--out", "b"], 130)] {
        let port = server.port.to_string();
        let arguments = [&["observe", "--port", &port][..], arguments].concat();
        let mut child = place.child(&arguments);
        let log = place.path(arguments[arguments.len() - 1]).join("events.jsonl");
        let has_samples =
            || std::fs::read_to_string(&log).is_ok_and(|text| text.contains(r#""source":"cpu""#));
        assert!(wait_until(Duration::from_secs(60), has_samples));
        signal(child.id(), Signal::INT);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        let text = run(place.webdyno().arg("report").arg(log.parent().unwrap())).with_code(0).stdout;
        assert!(text.contains("The host and its services") || text.contains("one look"), "{text}");
        assert!(log.with_file_name("report.html").exists());
    }
}

/// Connections that nobody accepts: the queue of a listener overflows.
fn overflow(port: u16) -> Vec<TcpStream> {
    let address = ([127, 0, 0, 1], port).into();
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok();
    (0..20).filter_map(connect).collect()
}

#[test]
fn a_ring_freezes_and_diagnoses_what_goes_wrong_and_survives_being_killed() {
    let _turn = shared_turn();
    let place = Place::new();
    // A listener with a queue of one that nobody accepts from.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    socket.listen(1).unwrap();
    let port = socket.local_addr().unwrap().as_socket().unwrap().port();
    let ring = place.path("ring");
    let arguments =
        ["observe", "--ring", "1m", "--out", "ring", "--port", &port.to_string()].map(str::to_owned);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let read = |what: &str| {
        files(&ring).iter().any(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains(what)))
    };

    // Killed in the middle of an incident: what is on disk is whole.
    let mut child = place.child(&arguments);
    assert!(wait_until(Duration::from_secs(60), || read(r#""source":"sockets""#)));
    let held = overflow(port);
    assert!(wait_until(Duration::from_secs(60), || read(r#""kind":"incident""#)));
    signal(child.id(), Signal::KILL);
    child.wait().unwrap();
    let text = run(place.webdyno().arg("report").arg(&ring)).with_code(0).stdout;
    assert!(text.contains("connections turned away"), "{text}");
    run(place.webdyno().args(["diagnose", "--from"]).arg(&ring)).with_code(0);
    drop(held);

    // The next session goes on with it, and freezes what happens at its end.
    let mut child = place.child(&arguments);
    assert!(wait_until(Duration::from_secs(60), || files(&ring.join("ring")).len() > 2));
    let incidents = || {
        files(&ring.join("ring"))
            .iter()
            .filter_map(|path| std::fs::read_to_string(path).ok())
            .map(|text| text.matches(r#""kind":"incident""#).count())
            .sum::<usize>()
    };
    let before = incidents();
    std::thread::sleep(Duration::from_millis(1500));
    let held = overflow(port);
    assert!(wait_until(Duration::from_secs(60), || incidents() > before));
    signal(child.id(), Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(held);
    is_frozen_whole(&place, &ring);
    moments_can_be_asked_for(&place, &ring);
}

/// There is one frozen incident, with its reports, and it can be diagnosed and shown again.
fn is_frozen_whole(place: &Place, ring: &Path) {
    let frozen: Vec<PathBuf> =
        std::fs::read_dir(ring.join("incidents")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(frozen.len(), 1, "{frozen:?}");
    for name in ["events.jsonl", "report.html", "report.txt"] {
        assert!(frozen[0].join(name).exists(), "{name}");
    }
    let ended = run(place.webdyno().args(["diagnose", "--json", "-", "--from"]).arg(&frozen[0])).with_code(0);
    assert!(!ended.json()["findings"].as_array().unwrap().is_empty(), "{}", ended.stdout);
    let text = run(place.webdyno().arg("report").arg(&frozen[0])).with_code(0).stdout;
    assert!(text.contains("Diagnosis"), "{text}");
}

/// A moment of the ring can be asked for; one that is not in it is told with those that are.
fn moments_can_be_asked_for(place: &Place, ring: &Path) {
    let now = jiff_now();
    run(place.webdyno().args(["diagnose", "--at", &now, "--from"]).arg(ring)).with_code(0);
    run(place.webdyno().args(["diagnose", "--at", "2001-01-01T00:00:00Z", "--from"]).arg(ring))
        .with_code(2)
        .told("nothing was recorded at", "the recording is from");
    run(place.webdyno().args(["diagnose", "--at", "noon", "--from"]).arg(ring))
        .with_code(2)
        .told("no time", "03:12");
}

/// Now, RFC 3339.
fn jiff_now() -> String {
    let output = std::process::Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
