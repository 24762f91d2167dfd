//! A cluster of three NATS servers on this machine: eight workers on it, and who is killed or stopped while they load. Each request of
//! a load asks for a row of its own, so that the server knows which were sent, by which worker, and whether any was sent twice.

use crate::distributed::{Counting, Workers, events};
use crate::extent;
use crate::ports::free_port;
use crate::programs::Program;
use crate::support::{Place, paced_turn, run, signal, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Starts per second of the loads under which somebody goes.
const RATE: u64 = 90;
const SECONDS: u64 = 6;
/// Of these, `make test` runs the first ones: a worker, a server and the command.
const SEEDS: u64 = 50;
const SEEDS_ALWAYS: u64 = 3;
const SEEDS_AT_ONCE: u64 = 3;

struct Cluster {
    nodes: Vec<Program>,
    url: String,
    public_key: String,
}

impl Cluster {
    fn start(place: &Place) -> Self {
        let key = place.path("load.seed");
        let made = run(place.webdyno().args(["worker", "--new-key"]).arg(&key)).with_code(0);
        let public_key = made.stdout.trim().to_owned();
        let ports: Vec<[u16; 3]> = (0..3).map(|_| [(); 3].map(|()| free_port())).collect();
        let routes: Vec<String> = ports.iter().map(|port| format!("nats://127.0.0.1:{}", port[1])).collect();
        let start = |(number, [client, route, monitor]): (usize, &[u16; 3])| {
            let store = place.path(&format!("n{number}"));
            let config = format!(
                "server_name: n{number}\nlisten: \"127.0.0.1:{client}\"\nhttp: \"127.0.0.1:{monitor}\"\n\
                 log_file: \"{store}.log\"\njetstream {{ store_dir: \"{store}\" }}\n\
                 cluster {{ name: test, listen: \"127.0.0.1:{route}\", routes: [{}] }}\n\
                 authorization {{ users: [ {{ nkey: {public_key} }} ] }}\n",
                routes.join(", "),
                store = store.display(),
            );
            let path = place.path(&format!("n{number}.conf"));
            std::fs::write(&path, config).unwrap();
            Program::start(Command::new("nats-server").arg("-c").arg(path))
        };
        let nodes = ports.iter().enumerate().map(start).collect();
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{}", port[0])).collect();
        let is_led = |port: &[u16; 3]| state(port[2]).is_some_and(|text| text.contains("\"leader\": \"n"));
        assert!(wait_until(Duration::from_secs(60), || ports.iter().all(is_led)), "the servers elect nobody");
        Self { nodes, url: format!("nats://{}", hosts.join(",")), public_key }
    }

    fn workers(&self, place: &Place, count: usize) -> Vec<Program> {
        let key = place.path("load.seed");
        (1..=count)
            .map(|number| Workers::program(place, (&self.url, &self.public_key, &key), number, &[]))
            .collect()
    }

    fn load(
        &self,
        place: &Place,
        server: &Counting,
        workers: usize,
        (rate, seconds): (u64, u64),
    ) -> Vec<String> {
        let rows: String = (0..rate * seconds + 100).map(|row| format!("{row}\n")).collect();
        std::fs::write(place.path("rows.csv"), format!("row\n{rows}")).unwrap();
        let workload = format!(
            "rate = {rate}\nduration = \"{seconds}s\"\n[[table]]\nfile = \"rows.csv\"\n[[session]]\n[[session.step]]\n\
             request = {{ name = \"row\", url = \"{}\" }}\n",
            server.url("/row/${row}")
        );
        std::fs::write(place.path("w.toml"), workload).unwrap();
        let count = workers.to_string();
        let words = ["run", "--workload", "w.toml", "--warmup", "0s", "-q", "--out", "r", "--on", &self.url];
        let more = ["--workers", &count, "--nats-creds", "load.seed"];
        words.iter().chain(&more).map(|word| (*word).to_owned()).collect()
    }
}

/// What a server says of its JetStream.
fn state(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET /jsz HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

fn count(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or_else(|| panic!("{key} of {of}"))
}

#[test]
fn eight_workers_on_three_servers_are_exact() {
    let _turn = paced_turn();
    let (place, server) = (Place::new(), Counting::start());
    let cluster = Cluster::start(&place);
    let _workers = cluster.workers(&place, 8);
    let load = cluster.load(&place, &server, 8, (400, 4));
    let json = run(place.webdyno().args(load).args(["--json", "-"])).with_code_in(&[0, 3]).json();
    // What was due at the very end may be in flight when it is over.
    let (completed, in_flight) =
        (count(&json["requests"], "completed"), count(&json["requests"], "in_flight_at_end"));
    assert_eq!((completed + in_flight, count(&json["requests"], "started")), (1600, 1600));
    let of_workers = json["workers"].as_array().unwrap();
    assert_eq!(of_workers.len(), 8);
    assert!(of_workers.iter().all(|worker| count(worker, "completed") <= 200), "{of_workers:?}");
    assert_eq!(completed, of_workers.iter().map(|worker| count(worker, "completed")).sum::<u64>());
    let sum: u64 = of_workers.iter().map(|worker| count(&worker["response_time_us"], "count")).sum();
    assert_eq!(count(&json["response_time_us"], "count"), sum);
    // The first rows are those of looks before the load, too.
    let counts = server.counts();
    let sent: Vec<u64> = (9..1600).map(|row| *counts.get(&format!("/row/{row}")).unwrap_or(&0)).collect();
    assert!(sent.iter().all(|times| *times <= 1), "{sent:?}");
    assert!(sent.iter().sum::<u64>() + in_flight >= 1591 && in_flight < 100, "{sent:?}");
}

/// Who goes in a run, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Victim {
    Worker,
    Node,
    Coordinator,
}

#[test]
fn whoever_is_killed_or_cut_off_no_second_is_lost_and_none_counts_twice() {
    let _turn = paced_turn();
    let seeds = if extent::runs_all() { SEEDS } else { SEEDS_ALWAYS };
    extent::leave_out((SEEDS - seeds) as usize, "runs on a cluster in which somebody is killed or cut off");
    // Some at a time: they wait most of theirs.
    let next = AtomicU64::new(0);
    let run_next = || {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        (seed < seeds).then(|| one_seed(seed)).is_some()
    };
    std::thread::scope(|scope| (0..SEEDS_AT_ONCE).for_each(|_| drop(scope.spawn(|| while run_next() {}))));
}

fn one_seed(seed: u64) {
    let victim = [Victim::Worker, Victim::Node, Victim::Coordinator][seed as usize % 3];
    let is_stopped = seed / 3 % 2 == 1;
    let at = 60 + seed * 7919 % 300;
    eprintln!("seed {seed}: {victim:?} at request {at}, stopped: {is_stopped}");
    one_goes(victim, is_stopped, at);
}

fn one_goes(victim: Victim, is_stopped: bool, at: u64) {
    let (place, server) = (Place::new(), Counting::start());
    let cluster = Cluster::start(&place);
    let workers = cluster.workers(&place, 3);
    let load = cluster.load(&place, &server, 3, (RATE, SECONDS));
    let mut command = place.child(&load.iter().map(String::as_str).collect::<Vec<_>>());
    let requests = || server.counts().values().sum::<u64>();
    assert!(wait_until(Duration::from_secs(60), || requests() > at), "the load does not begin");
    let pid = match victim {
        Victim::Worker => workers[1].pid(),
        Victim::Node => cluster.nodes[at as usize % 3].pid(),
        Victim::Coordinator => command.id(),
    };
    signal(pid, if is_stopped { Signal::STOP } else { Signal::KILL });
    if victim == Victim::Coordinator && is_stopped {
        // Longer than any lease.
        std::thread::sleep(Duration::from_secs(12));
        assert!(server.silent_for() > Duration::from_millis(500), "the load outlived its command");
        signal(pid, Signal::CONT);
    }
    assert!(wait_until(Duration::from_secs(60), || command.try_wait().unwrap().is_some()), "it never ends");
    if is_stopped && victim != Victim::Coordinator {
        let before = requests();
        signal(pid, Signal::CONT);
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(requests(), before, "one that was cut off went on with a load that is over");
    }
    if victim == Victim::Coordinator && !is_stopped {
        let resume = ["resume", "r", "-q", "--json", "resumed.json", "--nats-creds", "load.seed"];
        run(place.webdyno().args(resume)).with_code_in(&[0, 3]);
    }
    check(&place, &server, (victim, is_stopped));
}

/// What the log has against what the server was asked for.
fn check(place: &Place, server: &Counting, (victim, is_stopped): (Victim, bool)) {
    let events = events(place, "r");
    let seconds: Vec<&Value> = events.iter().filter(|event| event["kind"] == "interval").collect();
    let times: Vec<f64> = seconds.iter().map(|event| event["interval"]["t_s"].as_f64().unwrap()).collect();
    assert!(times.iter().enumerate().all(|(index, t_s)| index as f64 == *t_s), "{times:?}");
    let parts = events.iter().rev().find(|event| event["kind"] == "workers").unwrap()["parts"].clone();
    let parts = parts.as_array().unwrap();
    let completed: u64 = seconds.iter().map(|event| count(&event["interval"], "completed")).sum();
    assert_eq!(completed, parts.iter().map(|part| count(part, "completed")).sum::<u64>());
    let sent = server.counts();
    let is_sent = |row: &u64| sent.contains_key(&format!("/row/{row}"));
    assert!((4..RATE * SECONDS).all(|row| sent.get(&format!("/row/{row}")).is_none_or(|times| *times == 1)));
    for part in parts {
        // Each has one thread, and that has each third row.
        let thread = count(&part["share"], "first_thread");
        let rows = (0..RATE * SECONDS).filter(|row| row % 3 == thread).filter(is_sent).count() as u64;
        // What was due when it stopped is in flight, sent or not.
        let (done, in_flight) = (count(part, "completed"), count(part, "in_flight_at_end"));
        if part["lost_at_s"].is_null() {
            assert!((done..=done + in_flight).contains(&rows), "{rows} rows, {part}");
        } else {
            // What it had not given away yet went with it: its last second, and what was under way.
            assert!(done <= rows && (is_stopped || rows - done <= 2 * RATE / 3), "{rows} rows, {part}");
        }
    }
    let lost: Vec<&str> = parts
        .iter()
        .filter(|part| !part["lost_at_s"].is_null())
        .map(|part| part["name"].as_str().unwrap())
        .collect();
    match (victim, is_stopped) {
        (Victim::Worker, _) => assert_eq!(lost, ["w2"]),
        // A server that is killed is replaced at once; one that says nothing any more costs who is connected to it some seconds.
        // What was due at the very end may be in flight when it is over.
        (Victim::Node, false) => {
            let in_flight: u64 = parts.iter().map(|part| count(part, "in_flight_at_end")).sum();
            assert_eq!((completed + in_flight, lost.len()), (RATE * SECONDS, 0));
        }
        (Victim::Coordinator, false) => assert!(lost.is_empty(), "{parts:?}"),
        _ => {}
    }
}
