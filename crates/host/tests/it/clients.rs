//! Whose connections are whose: real connections of several processes to a real listener. The test itself stands for
//! the agent.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used)]

use crate::skip::skip;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use webdyno_host::collectors::network::clients::Clients;
use webdyno_host::collectors::{Collector, Reading, Target};

/// How long the machine may take to do what it was told.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process that may hold a connection and does nothing with it.
struct Holder(Child);

impl Holder {
    fn of(stream: Option<TcpStream>) -> Self {
        let held = stream.map_or_else(Stdio::null, |stream| Stdio::from(OwnedFd::from(stream)));
        Self(Command::new("sleep").arg("600").stdin(held).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn values(reading: &Reading) -> [Option<f64>; 3] {
    ["connections", "others", "left"].map(|what| reading.value(&format!("clients.{what}_count")))
}

/// Reads until it is as expected: on a busy machine the kernel passes on a moment later what it was told, and another
/// test that starts a program holds copies of our sockets until that runs.
fn comes_to(target: &Target, expected: [Option<f64>; 3]) {
    let begun = Instant::now();
    let look = || Clients::default().read(target);
    while values(&look()) != expected && begun.elapsed() < PATIENCE {}
    let reading = look();
    assert_eq!(values(&reading), expected, "{reading:?}");
}

#[test]
fn connections_are_told_apart_by_who_holds_them() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap();
    let mut server_ends = vec![];
    let mut held = || {
        let client = TcpStream::connect(local).unwrap();
        server_ends.push(listener.accept().unwrap());
        client
    };
    let _of_agent = held();
    let generator = Holder::of(Some(held()));
    let service = Holder::of(Some(held()));
    let target = |client_pid: Option<u32>| Target {
        port: Some(local.port()),
        service_pid: Some(service.pid()),
        client_pid,
        ..Target::default()
    };
    let ours = target(Some(generator.pid()));
    comes_to(&ours, [Some(1.0), Some(0.0), Some(0.0)]);
    // A generator elsewhere cannot be told from others.
    comes_to(&target(None), [Some(1.0), None, Some(0.0)]);
    let left = held();
    let others = [Holder::of(Some(held())), Holder::of(Some(held()))];
    drop(left);
    // Not accepted yet: it waits in the accept queue, and is somebody's all the same.
    let waiting = Holder::of(Some(TcpStream::connect(local).unwrap()));
    comes_to(&ours, [Some(4.0), Some(3.0), Some(1.0)]);
    drop((others, waiting));
    comes_to(&ours, [Some(1.0), Some(0.0), Some(4.0)]);
}

/// A listener of both families shows IPv4 clients in another form than the clients' own ends have.
#[test]
fn both_families_are_matched() {
    let Ok(listener) = TcpListener::bind("[::]:0") else {
        return skip("this machine has no IPv6");
    };
    let port = listener.local_addr().unwrap().port();
    let generator = Holder::of(None);
    let target = Target { port: Some(port), client_pid: Some(generator.pid()), ..Target::default() };
    let connect =
        |to: &str| TcpStream::connect(format!("{to}:{port}").parse::<SocketAddr>().unwrap()).unwrap();
    let clients = ["127.0.0.1", "[::1]"].map(connect);
    // The test's own ones are the agent's.
    comes_to(&target, [Some(0.0), Some(0.0), Some(0.0)]);
    let others = clients.map(|client| Holder::of(Some(client)));
    comes_to(&target, [Some(2.0), Some(2.0), Some(0.0)]);
    drop(others);
}

/// Ends the thread that accepts, also when a check fails.
struct Ending<'a>(&'a AtomicBool, SocketAddr);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.1));
    }
}

/// However fast the generator opens and closes connections, none of them is taken for somebody else's.
#[test]
fn a_load_of_fresh_connections_is_ours() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap();
    // Some stay open for a moment, the others for no longer than it takes.
    let script = format!(
        "while :; do for fd in 11 12 13 14 15 16; do eval \"exec $fd<>/dev/tcp/127.0.0.1/{0}\"; done; \
         for turn in 1 2 3 4 5 6; do exec 20<>/dev/tcp/127.0.0.1/{0}; exec 20>&-; done; \
         for fd in 11 12 13 14 15 16; do eval \"exec $fd>&-\"; done; done",
        local.port()
    );
    let Ok(generator) = Command::new("bash").args(["-c", &script]).stderr(Stdio::null()).spawn() else {
        return skip("there is no bash to make connections with");
    };
    let generator = Holder(generator);
    let target = Target { port: Some(local.port()), client_pid: Some(generator.pid()), ..Target::default() };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut held = VecDeque::new();
            while !stop.load(Ordering::Relaxed) {
                held.push_back(listener.accept());
                held.drain(..held.len().saturating_sub(20));
            }
        });
        let _ending = Ending(&stop, local);
        let (begun, mut seen) = (Instant::now(), 0.0);
        for turn in 0.. {
            let reading = Clients::default().read(&target);
            let [connections, others, _] = values(&reading);
            assert_eq!(others, Some(0.0), "{reading:?}");
            seen += connections.unwrap_or(0.0);
            if turn >= 300 && (seen > 0.0 || begun.elapsed() > PATIENCE) {
                break;
            }
        }
        assert!(seen > 0.0, "no connection was seen: the test shows nothing");
    });
}
