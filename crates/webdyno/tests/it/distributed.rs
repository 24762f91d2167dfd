//! Loads that several workers make: real processes, a real nats-server of the test's own, and who is killed while they load.

use crate::programs::Program;
use crate::support::{Place, paced_turn, run, shared_turn, signal, wait_until};
use rustix::process::Signal;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use webdyno_distributed::nats::PrivateServer;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: text/plain\r\n\r\nhello";

/// A server that remembers what it was asked for, and when last.
pub struct Counting {
    port: u16,
    state: Arc<Mutex<Counted>>,
}

#[derive(Default)]
struct Counted {
    by_path: HashMap<String, u64>,
    last: Option<Instant>,
}

impl Counting {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(Counted::default()));
        let counted = state.clone();
        // It lives as long as the test program, and nobody connects any more.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = counted.clone();
                std::thread::spawn(move || answer(stream, &counted));
            }
        });
        Self { port, state }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn counts(&self) -> HashMap<String, u64> {
        self.state.lock().unwrap().by_path.clone()
    }

    pub fn silent_for(&self) -> Duration {
        self.state.lock().unwrap().last.map_or(Duration::ZERO, |last| last.elapsed())
    }
}

fn answer(mut stream: TcpStream, counted: &Mutex<Counted>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|count| count > 0) {
        if let Some(rest) = line.strip_prefix("GET ") {
            let path = rest.split(' ').next().unwrap().to_owned();
            let mut counted = counted.lock().unwrap();
            *counted.by_path.entry(path).or_default() += 1;
            counted.last = Some(Instant::now());
        }
        if line == "\r\n" && stream.write_all(OK.as_bytes()).is_err() {
            return;
        }
        line.clear();
    }
}

/// A nats-server of the test's own, with workers.
pub struct Workers {
    programs: Vec<Program>,
    server: PrivateServer,
}

impl Workers {
    fn start(place: &Place, count: usize, flags: &[&str]) -> Self {
        let server = PrivateServer::start().unwrap();
        let (seed, at) = (server.seed_file(), server.url());
        let start = |number| Self::program(place, (at, &server.public_key, &seed), number, flags);
        let programs = (1..=count).map(start).collect();
        Self { programs, server }
    }

    /// One worker with one thread, at these servers, which trusts this key and has that seed.
    pub fn program(
        place: &Place,
        (on, trusted, seed): (&str, &str, &Path),
        number: usize,
        flags: &[&str],
    ) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 2>\"$LOG\""]).arg(assert_cmd::cargo::cargo_bin("webdyno"));
        command.args(["worker", "--on", on, "--trust", trusted, "--threads", "1"]);
        command.args(["--name", &format!("w{number}")]).args(flags).arg("--nats-creds").arg(seed);
        command.env("WEBDYNO_STATE", place.path("state"));
        Program::start(command.env("LOG", place.path(&format!("w{number}.log"))))
    }

    fn on(&self) -> Vec<String> {
        let (count, seed) = (self.programs.len().to_string(), self.server.seed_file());
        let flags = ["--on", self.server.url(), "--workers", &count, "--nats-creds", seed.to_str().unwrap()];
        flags.map(str::to_owned).to_vec()
    }
}

/// The event log of a run directory, line by line.
pub fn events(place: &Place, out: &str) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(place.path(out).join("events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn three_workers_make_the_load_of_one_machine() {
    let _turn = paced_turn();
    let (place, server) = (Place::new(), Counting::start());
    let rows: String = (0..2000).map(|row| format!("{row}\n")).collect();
    std::fs::write(place.path("rows.csv"), format!("row\n{rows}")).unwrap();
    let workload = format!(
        "rate = 300\nduration = \"4s\"\n[[table]]\nfile = \"rows.csv\"\n[[session]]\n[[session.step]]\n\
         request = {{ name = \"row\", url = \"{}\" }}\n",
        server.url("/row/${row}")
    );
    std::fs::write(place.path("w.toml"), workload).unwrap();
    let workers = Workers::start(&place, 3, &[]);
    let load = ["run", "--workload", "w.toml", "--warmup", "0s", "-q", "--json", "-", "--out", "r"];
    let ended = run(place.webdyno().args(load).args(workers.on()));
    let json = ended.with_code_in(&[0, 3]).json();
    // Each arrival of the rate once, each row once, whoever sent it.
    let counts = server.counts();
    let sent: Vec<u64> =
        (0..1200).map(|row| counts.get(&format!("/row/{row}")).copied().unwrap_or(0)).collect();
    // The first request of each worker's look before the load asks for a row, too.
    // What was due at the very end may be in flight when it is over, sent or not.
    let (completed, in_flight) =
        (&json["requests"]["completed"], json["requests"]["in_flight_at_end"].as_u64().unwrap());
    assert!(sent.iter().skip(3).all(|count| *count <= 1), "{sent:?}");
    assert!(sent.iter().skip(3).sum::<u64>() + in_flight >= 1197 && in_flight < 100, "{sent:?}");
    assert_eq!(json["requests"]["started"], 1200);
    assert_eq!(completed.as_u64().unwrap() + in_flight, 1200);
    // Merged is the sum of the workers' own, to the last sample.
    let of_workers = json["workers"].as_array().unwrap();
    let names: Vec<&str> = of_workers.iter().map(|worker| worker["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["w1", "w2", "w3"]);
    let sum = |key: &str| of_workers.iter().map(|worker| worker[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("completed") + in_flight, sum("failed")), (1200, 0));
    let samples: u64 =
        of_workers.iter().map(|worker| worker["response_time_us"]["count"].as_u64().unwrap()).sum();
    assert_eq!(json["response_time_us"]["count"], samples);
    for extreme in [("min", true), ("max", false)] {
        let all = of_workers.iter().map(|worker| worker["response_time_us"][extreme.0].as_u64().unwrap());
        let expected = if extreme.1 { all.min() } else { all.max() };
        assert_eq!(json["response_time_us"][extreme.0].as_u64(), expected);
    }
    let starts: Vec<i64> =
        of_workers.iter().map(|worker| worker["start_late_us"].as_i64().unwrap()).collect();
    let spread_us = starts.iter().max().unwrap() - starts.iter().min().unwrap();
    assert!(spread_us < 20_000, "{starts:?}");
    // One machine writes the same log: a second each, in order.
    let seconds = events(&place, "r").into_iter().filter(|event| event["kind"] == "interval");
    let times: Vec<f64> = seconds.map(|event| event["interval"]["t_s"].as_f64().unwrap()).collect();
    assert_eq!(times, [0.0, 1.0, 2.0, 3.0]);
}

#[test]
fn local_workers_need_no_setup_and_a_number_of_requests_is_exact() {
    let _turn = shared_turn();
    let (place, server) = (Place::new(), Counting::start());
    let load = ["run", "--on", "local:2", "-n", "301", "-c", "5", "-q", "--json", "-"];
    let json = run(place.webdyno().args(load).arg(server.url("/"))).with_code_in(&[0, 3]).json();
    assert_eq!(json["requests"]["completed"], 301);
    assert_eq!(json["connections"]["opened"], 5);
    assert_eq!(json["workers"].as_array().unwrap().len(), 2);
}

#[test]
fn a_killed_worker_ends_the_load_and_is_named() {
    let _turn = paced_turn();
    let (place, server) = (Place::new(), Counting::start());
    let workers = Workers::start(&place, 2, &[]);
    let victim = workers.programs[0].pid();
    let state = server.state.clone();
    let killer = std::thread::spawn(move || {
        // Well within the load.
        assert!(
            wait_until(Duration::from_secs(60), || state.lock().unwrap().by_path.values().sum::<u64>() > 250)
        );
        signal(victim, Signal::KILL);
    });
    let begun = Instant::now();
    let load = ["run", "-r", "100", "-d", "60s", "-c", "4", "-q", "--json", "-", "--out", "r"];
    let ended = run(place.webdyno().args(load).args(workers.on()).arg(server.url("/")));
    killer.join().unwrap();
    let json = ended.with_code(3).json();
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    assert_eq!(json["client"]["valid"], false);
    assert!(
        json["client"]["why"].as_str().unwrap().contains("worker w1 was lost"),
        "{}",
        json["client"]["why"]
    );
    assert!(json["workers"][0]["lost_at_s"].as_u64().is_some_and(|at_s| at_s >= 1), "{}", json["workers"]);
    assert_eq!(json["workers"][1]["lost_at_s"], serde_json::Value::Null);
    let noted = events(&place, "r").into_iter().filter(|event| event["kind"] == "note");
    let noted: Vec<String> = noted.map(|event| event["text"].as_str().unwrap().to_owned()).collect();
    assert!(noted.iter().any(|text| text.contains("worker w1") && text.contains("50%")), "{noted:?}");
}

#[test]
fn workers_stop_when_their_coordinator_is_killed_and_take_orders_again() {
    let _turn = paced_turn();
    let (place, server) = (Place::new(), Counting::start());
    let workers = Workers::start(&place, 2, &[]);
    let url = server.url("/");
    let on = workers.on();
    let load = ["run", "-r", "100", "-d", "120s", "-c", "4", "-q", "--out", "r", &url];
    let arguments: Vec<&str> = load.into_iter().chain(on.iter().map(String::as_str)).collect();
    let mut coordinator = place.child(&arguments);
    let requests = || server.counts().values().sum::<u64>();
    assert!(wait_until(Duration::from_secs(60), || requests() > 200), "the load does not begin");
    coordinator.kill().unwrap();
    coordinator.wait().unwrap();
    let killed = Instant::now();
    // Not at once: what would stop them then is not that nobody is there.
    std::thread::sleep(Duration::from_secs(2));
    assert!(server.silent_for() < Duration::from_secs(1), "they stopped too early to prove anything");
    assert!(wait_until(Duration::from_secs(12), || server.silent_for() > Duration::from_millis(500)));
    let orphaned = killed.elapsed() - server.silent_for();
    assert!(orphaned < Duration::from_secs(10), "the load went on for {orphaned:?}");
    // They are there for the next one.
    let again = ["run", "-n", "20", "-c", "2", "-q", "--json", "-", "--out", "again", &url];
    let json = run(place.webdyno().args(again).args(&on)).with_code_in(&[0, 3]).json();
    assert_eq!(json["requests"]["completed"], 20);
}

#[test]
fn nothing_stays_of_local_workers_whose_owner_is_killed() {
    let _turn = shared_turn();
    let (place, server) = (Place::new(), Counting::start());
    let url = server.url("/");
    let folder = tempfile::tempdir().unwrap();
    let left = || std::fs::read_dir(folder.path()).unwrap().count();
    let local = ["run", "--on", "local:2", "-c", "4", "-q", &url];
    let mut owner = Command::new(assert_cmd::cargo::cargo_bin("webdyno"));
    owner.args(local).args(["-r", "100", "-d", "60s"]).env("TMPDIR", folder.path());
    owner.env("WEBDYNO_STATE", place.path("state")).current_dir(place.path(""));
    let mut owner = owner.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = || server.counts().values().sum::<u64>() > 50;
    assert!(wait_until(Duration::from_secs(60), started), "the load does not begin");
    let children = format!("/proc/{0}/task/{0}/children", owner.id());
    let children = std::fs::read_to_string(children).unwrap();
    let children: Vec<&str> = children.split_whitespace().collect();
    assert_eq!(children.len(), 3, "two workers and their server");
    owner.kill().unwrap();
    owner.wait().unwrap();
    // Whoever nobody waits for is still listed, without a program.
    let is_gone =
        |pid: &&str| std::fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |command| command.is_empty());
    assert!(wait_until(Duration::from_secs(20), || children.iter().all(is_gone)), "{children:?}");
    // Its folder goes with that of the next one.
    assert_eq!(left(), 1);
    let next = run(place.webdyno().args(local).args(["-n", "10"]).env("TMPDIR", folder.path()));
    next.with_code_in(&[0, 3]);
    assert_eq!(left(), 0);
}

#[test]
fn what_a_worker_may_not_do_and_what_is_missing_is_an_error_with_a_hint() {
    let _turn = shared_turn();
    let (place, server) = (Place::new(), Counting::start());
    let workers = Workers::start(&place, 1, &["--allow-target", "shop.example"]);
    let load = |arguments: &[&str]| run(place.webdyno().args(["run", "-d", "1s", "-q"]).args(arguments));
    let url = server.url("/");
    let on = workers.on();
    let on: Vec<&str> = on.iter().map(String::as_str).chain([url.as_str()]).collect();
    load(&on).with_code(1).assert_error("is not a target that this worker may load", "--allow-target");
    let log = std::fs::read_to_string(place.path("w1.log")).unwrap();
    assert!(log.contains("refused: a plan:") && log.contains("shop.example"), "{log}");
    assert_eq!(server.counts().values().sum::<u64>(), 1, "the coordinator's own look alone");
    // A key that the worker does not know.
    let key = place.path("other.seed");
    let printed = run(place.webdyno().args(["worker", "--new-key"]).arg(&key)).with_code(0).stdout;
    assert!(printed.starts_with('U'), "{printed}");
    run(place.webdyno().args(["worker", "--new-key"]).arg(&key)).with_code(1).assert_error("other.seed", "");
    let other = ["--on", workers.server.url(), "--nats-creds", key.to_str().unwrap(), &url];
    load(&other).with_code(1).assert_error("cannot connect", "--nats-creds");
    for (arguments, message, hint) in [
        (&["--on", "nats://h", &url][..], "signed", "--new-key"),
        (&["--on", "http://h", &url], "does not name servers of NATS", "nats://"),
        (&["--on", "local:x", &url], "local:N takes", "local:2"),
        (&["--on", "local:2", "--workers", "2", &url], "themselves", "local:N"),
        (&["--nats-creds", "x", &url], "--on", "nats://HOST"),
    ] {
        load(arguments).with_code(2).assert_error(message, hint);
    }
    // Only so many seconds.
    let listed = ["--on", "nats://127.0.0.1:1", "--nats-creds", key.to_str().unwrap(), &url];
    load(&listed).with_code(1).assert_error("cannot connect to nats://127.0.0.1:1", "nats-server -js");
}

/// Starts a load that is killed when so many requests of it came.
fn cut_off(place: &Place, server: &Counting, load: &[&str], at: u64) {
    let mut coordinator = place.child(load);
    let requests = || server.counts().values().sum::<u64>();
    assert!(wait_until(Duration::from_secs(60), || requests() > at), "the load does not begin");
    // A recording that is still written is not gone on with.
    let out = load[load.iter().position(|word| *word == "--out").unwrap() + 1];
    run(place.webdyno().args(["resume", out, "--nats-creds", "none"]))
        .with_code(1)
        .assert_error("still runs", "wait for its end");
    coordinator.kill().unwrap();
    coordinator.wait().unwrap();
}

#[test]
fn a_load_whose_command_was_killed_is_finished_by_resume() {
    let _turn = paced_turn();
    // Both wait most of their time, for seconds and for leases.
    std::thread::scope(|scope| {
        for (seconds, code) in [("6", 0), ("60", 3)] {
            scope.spawn(move || killed_and_resumed(seconds, code));
        }
    });
}

fn killed_and_resumed(seconds: &str, code: i32) {
    let (place, server) = (Place::new(), Counting::start());
    let workers = Workers::start(&place, 2, &[]);
    let (url, on) = (server.url("/"), workers.on());
    let length = format!("{seconds}s");
    let load = ["run", "-r", "100", "-d", &length, "-c", "4", "-q", "--warmup", "0s", "--out", seconds, &url];
    let load: Vec<&str> = load.into_iter().chain(on.iter().map(String::as_str)).collect();
    cut_off(&place, &server, &load, 250);
    let creds = workers.server.seed_file();
    let resume = || {
        let mut command = place.webdyno();
        command.args(["resume", seconds, "-q", "--json", "-", "--nats-creds"]).arg(&creds);
        command
    };
    let begun = Instant::now();
    let json = run(&mut resume()).with_code(code).json();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?} {json}", begun.elapsed());
    assert!(place.path(seconds).join("report.html").exists());
    // All that was sent is in it, once; each worker and the command looked before.
    let counted = server.counts()["/"] - 3;
    let count = |of: &serde_json::Value, key: &str| of[key].as_u64().unwrap();
    let (done, in_flight) =
        (count(&json["requests"], "completed"), count(&json["requests"], "in_flight_at_end"));
    assert!((done..=done + in_flight).contains(&counted), "{counted} {done} {in_flight}");
    let of_workers = json["workers"].as_array().unwrap();
    let sum = of_workers.iter().map(|worker| count(worker, "completed")).sum::<u64>();
    assert_eq!(sum, count(&json["requests"], "completed"));
    assert!(of_workers.iter().all(|worker| worker["lost_at_s"].is_null()), "{of_workers:?}");
    let events = events(&place, seconds);
    let times: Vec<f64> = events
        .iter()
        .filter(|event| event["kind"] == "interval")
        .map(|event| event["interval"]["t_s"].as_f64().unwrap())
        .collect();
    assert!(times.windows(2).all(|pair| pair[1] == pair[0] + 1.0) && times[0] == 0.0, "{times:?}");
    if code == 0 {
        // The lease had not ended: the load is whole.
        assert!((600 - in_flight..=600).contains(&counted) && times.len() == 6, "{counted} {times:?}");
    } else {
        let before = server.counts()["/"];
        std::thread::sleep(Duration::from_millis(700));
        assert_eq!(server.counts()["/"], before, "the load outlived its command");
        let stopped = events.iter().filter_map(|event| event["text"].as_str());
        assert!(stopped.clone().any(|text| text.contains("stopped it by themselves")));
    }
    run(&mut resume()).with_code(2).assert_error("is finished", "webdyno report");
    // Nothing of it is kept any more.
    let text = std::fs::read_to_string(place.path(seconds).join("events.jsonl")).unwrap();
    let until = text.find("\"kind\":\"clock\"").unwrap();
    let until = text[..until].rfind('\n').unwrap() + 1;
    std::fs::write(place.path(seconds).join("events.jsonl"), &text[..until]).unwrap();
    run(&mut resume()).with_code(1).assert_error("keeps no results of session", "kept for a day");
}

#[test]
fn what_cannot_be_resumed_says_why() {
    let _turn = shared_turn();
    let (place, server) = (Place::new(), Counting::start());
    let url = server.url("/");
    for (name, on) in [("alone", &[][..]), ("local", &["--on", "local:1"])] {
        let load = ["run", "-r", "100", "-d", "30s", "-c", "2", "-q", "--out", name, &url];
        let load: Vec<&str> = load.iter().chain(on).copied().collect();
        let before = server.counts().values().sum::<u64>();
        cut_off(&place, &server, &load, before + 50);
    }
    for (name, message) in [
        ("alone", "that its own process made"),
        ("local", "had its own nats-server"),
        ("missing", "cannot read"),
    ] {
        let resume = run(place.webdyno().args(["resume", name, "--nats-creds", "none"]));
        resume.with_code_in(&[1, 2]).assert_error(message, "webdyno");
    }
}

#[test]
fn the_part_of_a_killed_worker_moves_to_the_others() {
    let _turn = paced_turn();
    let (place, server) = (Place::new(), Counting::start());
    let rows: String = (0..2000).map(|row| format!("{row}\n")).collect();
    std::fs::write(place.path("rows.csv"), format!("row\n{rows}")).unwrap();
    let workload = format!(
        "rate = 90\nduration = \"12s\"\n[[table]]\nfile = \"rows.csv\"\n[[session]]\n[[session.step]]\n\
         request = {{ name = \"row\", url = \"{}\" }}\n",
        server.url("/row/${row}")
    );
    std::fs::write(place.path("w.toml"), workload).unwrap();
    let workers = Workers::start(&place, 3, &[]);
    let (victim, state) = (workers.programs[1].pid(), server.state.clone());
    let killer = std::thread::spawn(move || {
        let requests = || state.lock().unwrap().by_path.values().sum::<u64>();
        assert!(wait_until(Duration::from_secs(60), || requests() > 150));
        signal(victim, Signal::KILL);
    });
    let load = ["run", "--workload", "w.toml", "--warmup", "0s", "-q", "--json", "-", "--out", "r"];
    let moved = place
        .webdyno()
        .args(load)
        .args(workers.on())
        .args(["--on-worker-loss", "move"])
        .timeout(Duration::from_secs(120))
        .output()
        .unwrap();
    killer.join().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&moved.stdout).unwrap();
    let of_workers = json["workers"].as_array().unwrap();
    let lost = &of_workers[1];
    let (at_s, from_s) = (lost["lost_at_s"].as_u64().unwrap(), lost["taken_over_at_s"].as_u64().unwrap());
    // Its last whole second is up to one older than its death.
    assert!(from_s <= at_s + 6, "{lost}");
    let takers: Vec<&serde_json::Value> = of_workers[3..].iter().collect();
    assert!(!takers.is_empty() && takers.iter().all(|taker| taker["from_s"] == from_s), "{of_workers:?}");
    assert!(takers[0]["name"].as_str().unwrap().ends_with(" for w2"), "{takers:?}");
    // Nothing twice, nothing missing but what was due in the gap: each third row is that of the lost one.
    let counts = server.counts();
    let sent = |row: u64| counts.get(&format!("/row/{row}")).copied().unwrap_or(0);
    assert!((4..1080).all(|row| sent(row) <= 1));
    assert!((4..1080).filter(|row| row % 3 != 1).all(|row| sent(row) == 1));
    let missing: Vec<u64> = (4..1080).filter(|row| row % 3 == 1 && sent(*row) == 0).collect();
    assert!(missing.last().is_some_and(|last| *last < from_s * 90) && missing[0] >= at_s * 90, "{missing:?}");
    assert_eq!(json["client"]["valid"], true, "{}", json["client"]["why"]);
    let noted = events(&place, "r").into_iter().filter(|event| event["kind"] == "note");
    let noted: Vec<String> = noted.map(|event| event["text"].as_str().unwrap().to_owned()).collect();
    assert!(noted.iter().any(|text| text.contains("33% of the load are made by")), "{noted:?}");
    // Of a closed loop nobody knows what was sent.
    let closed = ["run", "-c", "2", "-d", "1s", "-q", "--on-worker-loss", "move", "--out", "c"];
    let url = server.url("/");
    let on = ["--on", workers.server.url(), "--nats-creds", workers.server.seed_file().to_str().unwrap()]
        .map(str::to_owned);
    run(place.webdyno().args(closed).args(on).arg(&url))
        .with_code(2)
        .assert_error("without a rate", "--on-worker-loss end");
}
