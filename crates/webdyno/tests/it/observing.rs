//! Observing without load, as its users meet it: one look, a recording, and a ring that keeps what went wrong.

use crate::support::{Apache, Place, Server, can_mount, run, shared_turn, signal, skip, wait_until};
use rustix::process::Signal;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use webdyno_model::event::EventBody;
use webdyno_session::log::writer::EventLog;
use webdyno_session::recording::Recording;

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

/// Runs a test again, alone on its machine: with networks, processes and mounts of its own. False where that is not
/// possible; inside it is true.
fn is_alone(test: &str) -> bool {
    const INSIDE: &str = "WEBDYNO_TEST_ALONE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if !can_mount() {
        skip("needs root and mount(8)");
        return false;
    }
    let mut command = std::process::Command::new("unshare");
    command.args(["--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]);
    command.arg("ip link set lo up && exec \"$0\" \"$@\"").arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    let output = command.output().unwrap();
    let reported = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{}", reported.concat());
    false
}

/// Without a port the host is observed, and what takes a service says so; where there is one web server, that one is meant.
#[test]
fn without_a_port_the_host_is_observed_with_the_only_web_server_in_front() {
    if !is_alone("observing::without_a_port_the_host_is_observed_with_the_only_web_server_in_front") {
        return;
    }
    let place = Place::new();
    let look = || run(place.webdyno().args(["observe", "--once", "--json", "-"])).with_code(0).json();
    let fact = |json: &serde_json::Value, name: &str| -> serde_json::Value {
        let facts = json["facts"].as_array().unwrap();
        facts.iter().find(|fact| fact["name"] == name).unwrap().clone()
    };
    let failed = |json: &serde_json::Value, names: &[&str]| -> Vec<String> {
        let all = json["collectors"].as_array().unwrap().iter().filter(|state| state["success"] == false);
        all.map(|state| state["name"].as_str().unwrap().to_owned())
            .filter(|name| names.contains(&name.as_str()))
            .collect()
    };
    let of_a_service =
        ["workers", "worker_memory", "cgroup", "clients", "process", "sockets", "apache_status"];
    let asks_for_a_port = |json: &serde_json::Value| {
        assert!(json["services"]["front"].is_null());
        let queue = fact(json, "sockets.accept_queue_count");
        assert!(queue["value"].is_null(), "{queue:#}");
        assert!(queue["how_to_enable"].as_str().unwrap().contains("--port"), "{queue:#}");
        assert_eq!(failed(json, &of_a_service), Vec::<String>::new());
        let memory = fact(json, "memory.available_bytes");
        assert!(memory["value"].as_f64().unwrap() > 1e6 && memory["mean"].is_number(), "{memory:#}");
    };
    asks_for_a_port(&look());

    let apache = Apache::start(&place.path("server"), 20);
    let json = look();
    assert_eq!(json["services"]["front"]["port"], apache.files.port, "{:#}", json["services"]);
    assert_eq!(failed(&json, &of_a_service), Vec::<String>::new());
    for name in ["sockets.accept_queue_count", "workers.count", "process.cpu_s", "apache.slots_count"] {
        assert!(fact(&json, name)["value"].is_number(), "{:#}", fact(&json, name));
    }

    let other = Place::new();
    let _second = Apache::start(&other.path("server"), 20);
    let json = look();
    assert_eq!(json["services"]["backends"].as_array().unwrap().len(), 2);
    assert!(json["services"]["front"].is_null());
    assert!(fact(&json, "workers.count")["how_to_enable"].as_str().unwrap().contains("--port"));
}

/// The disk is full: what is oldest goes, what is newest stays, and the session goes on, wherever it was noticed.
#[test]
fn a_ring_on_a_full_disk_makes_room_for_what_is_newest() {
    if !is_alone("observing::a_ring_on_a_full_disk_makes_room_for_what_is_newest") {
        return;
    }
    let place = Place::new();
    let disk = place.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(&disk);
    assert!(mount.status().unwrap().success());
    let note =
        |second: u64, bytes: usize| EventBody::Note { text: format!("{second} {}", "x".repeat(bytes)) };
    // A segment of a ring of an hour is five minutes long: some 50 kB in each case.
    for (every_s, bytes) in [(1, 100), (10, 1_000), (100, 20_000)] {
        let directory = disk.join(format!("of-{bytes}"));
        let mut log = EventLog::ring(&directory, 3_600_000_000).unwrap();
        for n in 0..5400 / every_s {
            log.append(n * every_s * 1_000_000, note(n, bytes)).unwrap();
            log.flush().unwrap();
        }
        drop(log);
        let notes = Recording::read(&directory).unwrap().notes;
        let seconds: Vec<u64> =
            notes.iter().map(|note| note.split(' ').next().unwrap().parse().unwrap()).collect();
        assert!(seconds.windows(2).all(|pair| pair[1] == pair[0] + 1), "{bytes}: {seconds:?}");
        assert!(seconds.len() >= 3, "{bytes}: {seconds:?}");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}

#[test]
fn what_is_wrong_is_told_before_anything_is_recorded() {
    let _turn = shared_turn();
    let place = Place::new();
    for (arguments, code, message, hint) in [
        (&["--once", "--for", "1s"][..], 2, "--for", "--help"),
        (&["--once", "--ring", "1h"], 2, "--ring", "--help"),
        (&["--for", "1s", "--csv", "-"], 2, "--csv is for a load", "--json"),
        (&["--for", "1s", "--port", "1"], 1, "nothing listens on port 1", "ss -ltnp"),
        (&["--ring", "5", "--for", "1s"], 2, "unit", "--ring 5s"),
    ] {
        let ended = run(place.webdyno().arg("observe").args(arguments)).with_code(code);
        ended.assert_error(message, hint);
    }
    assert!(!place.path("webdyno-runs").exists());
    std::fs::write(place.path("file"), "").unwrap();
    // Without a port all servers are asked: to other tests that would be somebody else's requests.
    let apache = Apache::start(&place.path("server"), 20);
    let port = apache.files.port.to_string();
    run(place.webdyno().args(["observe", "--ring", "1m", "--for", "1s", "--port", &port, "--out", "file/x"]))
        .with_code(1)
        .assert_error("a part of its path is no directory", "");
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
    assert!(text.contains("connections dropped"), "{text}");
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
    assert!(text.contains("webdyno explain"), "{text}");
}

/// A moment of the ring can be asked for; one that is not in it is told with those that are.
fn moments_can_be_asked_for(place: &Place, ring: &Path) {
    let now = jiff_now();
    run(place.webdyno().args(["diagnose", "--at", &now, "--from"]).arg(ring)).with_code(0);
    run(place.webdyno().args(["diagnose", "--at", "2001-01-01T00:00:00Z", "--from"]).arg(ring))
        .with_code(2)
        .assert_error("nothing was recorded at", "the recording is from");
    run(place.webdyno().args(["diagnose", "--at", "noon", "--from"]).arg(ring))
        .with_code(2)
        .assert_error("no time", "03:12");
}

/// Now, RFC 3339.
fn jiff_now() -> String {
    let output = std::process::Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
