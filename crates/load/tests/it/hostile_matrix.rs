//! Every hostile server beside a healthy one, in the same load: each request ends in its class and in its time, no
//! socket is left, and the healthy server is loaded as if nothing were wrong.

use crate::hostile_cases::{Case, GOOD, Host, all};
use crate::refusing::Refusing;
use crate::server::{OK, Outcome, Server, Step, load, workload};
use std::collections::{BTreeSet, VecDeque};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;
use webdyno_model::interval::ErrorCounts;
use webdyno_model::workload::{Arrival, Workload};

/// Requests of each load, one every 2.5 ms.
const REQUESTS: u64 = 40;
const RATE_PER_S: f64 = 400.0;
/// Of what ends in a timeout: long enough for a successful response of a machine that is busy with other tests.
const SHORT_TIMEOUT_US: u64 = 2_500_000;
/// Of what ends before.
const LONG_TIMEOUT_US: u64 = 20_000_000;
/// What a machine that is busy with other tests may add to a load.
const NOISE_US: u64 = 5_000_000;
/// Cases at a time: most of them only wait, and those that wait longest come first.
const AT_ONCE: usize = 16;

/// A host that lives as long as this value.
struct Standing {
    address: SocketAddr,
    _server: Option<Server>,
    _listener: Option<TcpListener>,
    _refusing: Option<Refusing>,
    _fillers: Vec<TcpStream>,
}

fn stand(host: Host) -> Standing {
    let mut standing = Standing {
        address: ([127, 0, 0, 1], 0).into(),
        _server: None,
        _listener: None,
        _refusing: None,
        _fillers: vec![],
    };
    match host {
        Host::Script(script) => {
            let server = Server::start(script);
            standing.address = server.address;
            standing._server = Some(server);
        }
        Host::NeverAccepts => {
            let listener = TcpListener::bind(standing.address).unwrap();
            standing.address = listener.local_addr().unwrap();
            standing._listener = Some(listener);
        }
        Host::FullQueue => {
            let (listener, fillers) = full_queue();
            standing.address = listener.local_addr().unwrap();
            (standing._listener, standing._fillers) = (Some(listener), fillers);
        }
        Host::Gone => {
            let refusing = Refusing::start();
            standing.address = refusing.address;
            standing._refusing = Some(refusing);
        }
    }
    standing
}

/// A listener whose queue of one is full: listen(2) with a backlog of 0 lets one connection wait.
fn full_queue() -> (TcpListener, Vec<TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    let mut fillers = vec![];
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        fillers.push(stream);
    }
    (listener, fillers)
}

fn timeout_us(case: &Case) -> u64 {
    match case.ends.iter().any(|end| end.ends_with("timeout")) {
        true => SHORT_TIMEOUT_US,
        false => LONG_TIMEOUT_US,
    }
}

/// The hostile server and the healthy one in turn; of those that flood, one in ten.
fn mixed(case: &Case, hostile: SocketAddr, healthy: SocketAddr) -> (Workload, u64) {
    let scheme = if case.secure { "https" } else { "http" };
    let mut load_of = workload(&format!("{scheme}://{hostile}/"));
    let mut friendly = load_of.requests[0].clone();
    load_of.requests[0].name = "hostile".into();
    load_of.requests[0].method = case.method.into();
    load_of.requests[0].body = "x".repeat(case.body_bytes).as_str().into();
    (friendly.name, friendly.url) = ("healthy".into(), format!("http://{healthy}/"));
    let each = if case.floods { 9 } else { 1 };
    load_of.requests.extend(std::iter::repeat_n(friendly, each));
    load_of.arrival = Arrival::Open { rate_per_s: RATE_PER_S, poisson: false };
    load_of.connections = 2 * REQUESTS as u32;
    load_of.stop.requests = Some(REQUESTS);
    load_of.stop.duration_us = None;
    load_of.timeout_us = timeout_us(case);
    (load_of, REQUESTS / (1 + each as u64))
}

/// A child that is just starting has let go of what it inherited by then.
const CHILD_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(3);

/// Sockets of this process that are connected to this port: on the whole machine others may use the same number.
/// proc_pid_net(5), `/proc/net/tcp`; proc_pid_fd(5).
pub fn sockets_to(port: u16) -> usize {
    let remote = format!(":{port:04X}");
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let held: BTreeSet<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // A machine that is loaded has very many lines here.
    let lines = table.lines().filter(|line| line.contains(&remote));
    let fields = lines.map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let is_held = |fields: &Vec<&str>| {
        fields[2].ends_with(&remote) && held.contains(&format!("socket:[{}]", fields[9]))
    };
    fields.filter(is_held).count()
}

fn check(mut case: Case) {
    let host = std::mem::replace(&mut case.host, Host::Gone);
    let standing = stand(host);
    let fillers = standing._fillers.len();
    let friendly = Server::start(vec![Step::Request, Step::Send(OK.to_vec()), Step::Again]);
    let (load_of, hostile) = mixed(&case, standing.address, friendly.address);
    let outcome = load(&load_of);
    let left = || sockets_to(standing.address.port()) - fillers + sockets_to(friendly.address.port());
    // A child of another test holds them too, from its fork to its exec.
    let begun = std::time::Instant::now();
    while left() > 0 && begun.elapsed() < CHILD_TIME_MAX {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(left(), 0, "sockets are left");
    assert_ended(&outcome, &case, hostile);
    let healthy = (of_name(&outcome, "healthy"), errors(&outcome));
    assert_eq!(healthy.0, (REQUESTS - hostile, 0), "the healthy server's requests; {:?}", healthy.1);
}

/// The classes that occurred.
fn errors(outcome: &Outcome) -> Vec<(&'static str, u64)> {
    let sum = |name| outcome.sum(|interval| class(&interval.errors, name));
    let names = ErrorCounts::default().named().map(|(name, _)| (name, sum(name)));
    names.into_iter().filter(|&(_, count)| count > 0).collect()
}

fn class(errors: &ErrorCounts, name: &str) -> u64 {
    errors.named().iter().find_map(|&(class, count)| (class == name).then_some(count)).unwrap()
}

/// Completed and failed requests of this name.
fn of_name(outcome: &Outcome, name: &str) -> (u64, u64) {
    let named = outcome.intervals.iter().filter_map(|interval| interval.by_name.get(name));
    named.fold((0, 0), |sum, named| (sum.0 + named.completed, sum.1 + named.failed))
}

fn assert_ended(outcome: &Outcome, case: &Case, hostile: u64) {
    let good = of_name(outcome, "hostile").0;
    let of = |name: &str| outcome.sum(|interval| class(&interval.errors, name));
    let expected: u64 = case.ends.iter().map(|&name| if name == GOOD { good } else { of(name) }).sum();
    assert_eq!(expected, hostile, "in {:?}, but good {good} and {:?}", case.ends, errors(outcome));
    let max_us = outcome.merged(|interval| &interval.response_time).dist().max.unwrap_or(0);
    // A wait for the machine counts in a successful response's time; a timeout is at its bound.
    assert!(max_us <= timeout_us(case) + NOISE_US, "{max_us}");
    let sending_us = (REQUESTS as f64 / RATE_PER_S * 1e6) as u64;
    assert!(outcome.end.elapsed_us <= sending_us + timeout_us(case) + NOISE_US, "{}", outcome.end.elapsed_us);
    assert_eq!(outcome.end.in_flight_at_end, 0);
}

#[test]
fn hostile_servers_end_in_their_class_and_spoil_nothing_else() {
    let mut cases = all();
    cases.sort_by_key(timeout_us);
    let cases = Mutex::new(VecDeque::from(cases));
    let broken = Mutex::new(vec![]);
    let next = || cases.lock().unwrap().pop_front();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = next() {
                    let name = case.name;
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(case))) {
                        let told = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                        broken.lock().unwrap().push(format!("{name}: {told}"));
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}
