//! The collectors of the network, on links, queues, sockets and tracked connections of namespaces made for the test: what
//! they tell is what the commands of the catalogue show.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used)]

use crate::skip::skip;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use webdyno_host::collectors::{self, Collector, Target};
use webdyno_host::visibility::network_namespace::within;

/// How long the machine may take to do what it was told.
const PATIENCE: Duration = Duration::from_secs(30);

fn run(command: &str) -> bool {
    let output = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}

/// What a command prints, as a number.
fn shown(command: &str) -> Option<f64> {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

/// A network namespace with a process in it; gone when it is dropped.
struct Space {
    name: String,
    process: Child,
}

impl Space {
    /// `None`, and said, where that cannot be had.
    fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("webdyno-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        if !run(&format!("ip netns add {name} && ip -n {name} link set lo up")) {
            run(&format!("ip netns del {name}"));
            skip("needs root, and network namespaces");
            return None;
        }
        let process = Command::new("ip").args(["netns", "exec", &name, "sleep", "600"]).spawn().unwrap();
        let space = Self { name, process };
        let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
        let begun = Instant::now();
        // ip enters it, then becomes sleep.
        while std::fs::read_link(format!("/proc/{}/ns/net", space.pid())).unwrap() == ours {
            assert!(begun.elapsed() < PATIENCE, "ip does not enter the namespace");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Or the kernel sends of itself, and looks for routers. Without IPv6 there is nothing to switch off.
        for which in ["all", "default"] {
            let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
            let _ = space.within(|| std::fs::write(path, "1"));
        }
        Some(space)
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Runs a command of `ip` or `tc` in it.
    fn tool(&self, command: &str) {
        let (tool, rest) = command.split_once(' ').unwrap();
        assert!(run(&format!("{tool} -n {} {rest}", self.name)), "{command}");
    }

    fn within<T>(&self, act: impl FnOnce() -> T) -> T {
        within(self.pid(), act).unwrap()
    }

    fn target(&self, port: Option<u16>) -> Target {
        Target { port, service_pid: Some(self.pid()), ..Target::default() }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        run(&format!("ip netns del {}", self.name));
    }
}

/// Two namespaces with a link between them: `a0`, 192.0.2.1, and `b0`, 192.0.2.2.
fn linked() -> Option<(Space, Space)> {
    let (a, b) = (Space::new()?, Space::new()?);
    a.tool(&format!("ip link add a0 type veth peer name b0 netns {}", b.name));
    for (space, link, address) in [(&a, "a0", "192.0.2.1/24"), (&b, "b0", "192.0.2.2/24")] {
        space.tool(&format!("ip address add {address} dev {link}"));
        space.tool(&format!("ip link set {link} up"));
    }
    // Kernels may be built without them.
    for kind in ["tbf rate 1mbit burst 5kb limit 50kb", "htb"] {
        if !run(&format!("tc -n {0} qdisc add dev a0 root {kind} && tc -n {0} qdisc del dev a0 root", a.name))
        {
            skip(&format!("needs the kernel's {kind}"));
            return None;
        }
    }
    Some((a, b))
}

/// A collector by its name, as it is when all are made anew.
fn collector(name: &str) -> Box<dyn Collector> {
    collectors::all().into_iter().find(|collector| collector.name() == name).unwrap()
}

/// The first reading of a collector, which tells all.
fn read(name: &str, target: &Target) -> (BTreeMap<String, f64>, Vec<String>) {
    let reading = collector(name).read(target);
    assert_eq!(reading.error, None);
    let lacks = reading.missing.into_iter().map(|missing| format!("{}: {}", missing.signal, missing.why));
    (reading.values.into_iter().collect(), lacks.collect())
}

/// The command of the catalogue for a value, filled in.
fn command(name: &str, value: &str, target: &Target) -> String {
    let metrics = collector(name).metrics().into_iter().filter(|metric| metric.describes(value));
    let metric = metrics.max_by_key(|metric| metric.name.find('*').unwrap_or(usize::MAX)).unwrap();
    let filled = metric.reproduce.replace("INSTANCE", metric.instance(value).unwrap_or("INSTANCE"));
    let filled = filled.replace("PORT", &target.port.unwrap_or(0).to_string());
    filled.replace("PID", &target.service_pid.unwrap().to_string())
}

/// The commands show what was read, in a namespace where nothing moves meanwhile.
fn commands_agree(name: &str, target: &Target, values: &BTreeMap<String, f64>, part: &str) {
    let mine: Vec<_> = values.iter().filter(|(value, _)| value.contains(part)).collect();
    assert!(!mine.is_empty(), "{values:?}");
    for (value, expected) in mine {
        let command = command(name, value, target);
        assert_eq!(shown(&command), Some(*expected), "{value}: {command}");
    }
}

/// Sends so much from `a` to `b` without waiting for it to go.
fn send(a: &Space, b: &Space, bytes: usize) -> (TcpStream, TcpStream) {
    let listener = b.within(|| TcpListener::bind("192.0.2.2:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = a.within(|| TcpStream::connect(address)).unwrap();
    client.set_nonblocking(true).unwrap();
    let server = listener.accept().unwrap().0;
    let mut sent = 0;
    while let Ok(count) = client.write(&vec![0; bytes - sent]) {
        sent += count;
        if sent == bytes {
            break;
        }
    }
    assert!(sent > 0);
    (client, server)
}

#[test]
fn a_link_that_is_shaped_is_seen_with_its_rate_and_what_waits() {
    let Some((a, b)) = linked() else {
        return;
    };
    a.tool("tc qdisc add dev a0 root handle 8: tbf rate 4mbit burst 5kb limit 500kb");
    let target = a.target(None);
    let mut qdisc = collector("qdisc");
    let first = qdisc.read(&target);
    assert_eq!(first.value("qdisc.service.a0.rate_bits_per_s"), Some(4e6), "{first:?}");
    let before = first.value("qdisc.service.a0.sent_bytes").unwrap();
    let sent = send(&a, &b, 300_000);
    // What was sent needs half a second on this link, and TCP keeps the queue filled until then.
    let begun = Instant::now();
    let (mut most_waiting, mut bytes) = (0.0, before);
    while bytes < before + 50_000.0 && begun.elapsed() < PATIENCE {
        let reading = qdisc.read(&target);
        let waiting = reading.value("qdisc.service.a0.backlog_bytes").unwrap_or(0.0);
        most_waiting = f64::max(most_waiting, waiting);
        bytes = reading.value("qdisc.service.a0.sent_bytes").unwrap_or(bytes);
    }
    assert!(most_waiting > 0.0 && bytes >= before + 50_000.0, "{most_waiting} {bytes}");
    drop(sent);
    a.tool("ip link set a0 down");
    let (values, _) = read("qdisc", &target);
    commands_agree("qdisc", &target, &values, ".service.a0");
    assert!(values["qdisc.service.a0.overlimits_count"] > 0.0, "{values:?}");
}

#[test]
fn classes_of_htb_and_rates_below_the_root_are_seen() {
    let Some((a, b)) = linked() else {
        return;
    };
    a.tool("tc qdisc add dev a0 root handle 1: htb default 10");
    a.tool("tc class add dev a0 parent 1: classid 1:1 htb rate 10mbit");
    a.tool("tc class add dev a0 parent 1:1 classid 1:10 htb rate 2mbit ceil 6mbit");
    a.tool("tc qdisc add dev a0 parent 1:10 handle 20: tbf rate 1gbit burst 100kb limit 1mb");
    b.tool("tc qdisc add dev b0 root handle 1: tbf rate 8mbit burst 5kb limit 50kb");
    b.tool("tc qdisc add dev b0 parent 1:1 handle 30: tbf rate 1500kbit burst 5kb limit 50kb");
    for (space, expected) in [
        (&a, vec![("a0", 1e7), ("part.a0.1:1", 1e7), ("part.a0.1:10", 6e6), ("part.a0.20:", 1e9)]),
        (&b, vec![("b0", 8e6), ("part.b0.30:", 15e5)]),
    ] {
        let target = space.target(None);
        let (values, _) = read("qdisc", &target);
        let rates = values.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix("qdisc.service.")?.strip_suffix(".rate_bits_per_s")?;
            Some((name, *value))
        });
        assert_eq!(rates.collect::<Vec<_>>(), expected, "{values:?}");
        commands_agree("qdisc", &target, &values, ".service.");
    }
}

#[test]
fn interfaces_of_a_namespace_are_seen_from_outside() {
    let Some((a, b)) = linked() else {
        return;
    };
    drop(send(&a, &b, 10_000));
    a.tool("ip link set a0 down");
    let target = a.target(None);
    let (values, lacks) = read("nic", &target);
    assert!(values["nic.service.a0.sent_bytes"] > 10_000.0, "{values:?}");
    assert_eq!(values["nic.service.a0.link_up_bool"], 0.0);
    assert_eq!(values["nic.service.lo.link_up_bool"], 1.0);
    assert!(values.keys().any(|name| name.starts_with("nic.lo.")), "the own ones are there, too");
    assert!(!values.contains_key("nic.service.a0.speed_bits_per_s"), "a veth has no line speed: {values:?}");
    assert!(lacks.iter().any(|why| why.contains("a0 is virtual (veth)")), "{lacks:?}");
    let (values, _) = read("nic", &target);
    commands_agree("nic", &target, &values, ".service.");
}

#[test]
fn the_queue_of_a_service_in_a_namespace_has_its_limit() {
    let Some(space) = Space::new() else {
        return;
    };
    // A listener of the standard library asks for a queue of 128 at most; the namespace allows seven.
    space.within(|| std::fs::write("/proc/sys/net/core/somaxconn", "7")).unwrap();
    let listener = space.within(|| TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let waiting: Vec<_> = (0..4).map(|_| space.within(|| TcpStream::connect(address)).unwrap()).collect();
    let target = space.target(Some(address.port()));
    let (values, lacks) = read("sockets", &target);
    assert_eq!(values["sockets.accept_queue_count"], 4.0, "{lacks:?}");
    assert_eq!(values["sockets.accept_queue_max_count"], 7.0);
    assert_eq!(values[&format!("sockets.{address}.listen_queue_count")], 4.0);
    assert!(values["sockets.worst_listen_queue_fraction"] >= 4.0 / 7.0);
    // Both ends of each connection are in this namespace.
    assert_eq!(values["sockets.established_count"], 8.0);
    assert_eq!(values["sockets.open_count"], 8.0);
    let enter = format!("nsenter -t {} -n", space.pid());
    for value in [
        "sockets.accept_queue_count",
        "sockets.accept_queue_max_count",
        "sockets.established_count",
        "sockets.close_wait_count",
        "sockets.look_ups_count",
        &format!("sockets.{address}.listen_queue_count"),
        &format!("sockets.{address}.listen_queue_max_count"),
    ] {
        let command = command("sockets", value, &target).replace("ss -", &format!("{enter} ss -"));
        assert_eq!(shown(&command), Some(values[value]), "{value}: {command}");
    }
    drop(waiting);
}

#[test]
fn ports_that_closed_connections_hold_are_counted_for_each_destination() {
    let Some(space) = Space::new() else {
        return;
    };
    space.within(|| std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40999")).unwrap();
    space.within(|| std::fs::write("/proc/sys/net/ipv4/ip_local_reserved_ports", "40900-41000,5")).unwrap();
    // A port that waits for longer than a second is else given to the next connection of the loopback (tcp(7)).
    space.within(|| std::fs::write("/proc/sys/net/ipv4/tcp_tw_reuse", "0")).unwrap();
    let listener = space.within(|| TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = || {
        let client = space.within(|| TcpStream::connect(address)).unwrap();
        (client, listener.accept().unwrap().0)
    };
    let _open = connect();
    for _ in 0..30 {
        let (client, server) = connect();
        // Who closes first holds the port.
        drop(client);
        drop(server);
    }
    let target = space.target(None);
    let begun = Instant::now();
    let used = format!("ports.{address}.used_count");
    let closed = format!("ports.{address}.time_wait_count");
    let values = loop {
        let (values, _) = read("ports", &target);
        // A connection is in TIME_WAIT when the other side's end has come, too.
        if values.get(&closed) == Some(&30.0) || begun.elapsed() > PATIENCE {
            break values;
        }
    };
    assert_eq!((values[&used], values[&closed]), (31.0, 30.0), "{values:?}");
    assert_eq!(values["ports.available_count"], 900.0);
    let enter = format!("nsenter -t {} -n sh -c", space.pid());
    for (value, expected) in &values {
        let command = command("ports", value, &target).replace('\'', "'\\''");
        assert_eq!(shown(&format!("{enter} '{command}'")), Some(*expected), "{value}: {command}");
    }
}

#[test]
fn tracked_connections_of_a_namespace_are_counted() {
    let Some(space) = Space::new() else {
        return;
    };
    let count = |number: u32| {
        format!(
            "ip netns exec {} conntrack -I -p tcp -s 192.0.2.1 -d 192.0.2.2 --sport {} --dport 80 --state ESTABLISHED -t 300",
            space.name,
            1_000 + number
        )
    };
    if !(0..3).all(|number| run(&count(number))) {
        return skip("needs nf_conntrack and conntrack(8)");
    }
    let target = space.target(None);
    let (values, lacks) = read("conntrack", &target);
    assert_eq!(values["conntrack.service.entries_count"], 3.0, "{lacks:?}");
    // The limit is that of the first namespace, and holds here.
    let limit = shown("cat /proc/sys/net/netfilter/nf_conntrack_max");
    assert_eq!(values.get("conntrack.service.max_count").copied(), limit);
    commands_agree("conntrack", &target, &values, ".service.");
}

#[test]
fn counters_are_those_of_the_service() {
    let Some(space) = Space::new() else {
        return;
    };
    let listener = space.within(|| TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let _clients: Vec<_> = (0..3).map(|_| space.within(|| TcpStream::connect(address)).unwrap()).collect();
    let (values, _) = read("tcp", &space.target(None));
    assert_eq!(values["tcp.TcpPassiveOpens.count"], 3.0);
    for value in ["tcp.TcpPassiveOpens.count", "tcp.TcpExtListenOverflows.count", "tcp.IpInReceives.count"] {
        let command = command("tcp", value, &space.target(None));
        let command = command.replace("nstat", &format!("nsenter -t {} -n nstat", space.pid()));
        assert_eq!(shown(&command), Some(values[value]), "{command}");
    }
}

/// A service that ends, and its namespace with it, while it is observed: what is ours is told, and the rest is missing
/// with a reason.
#[test]
fn a_namespace_may_vanish_at_any_time() {
    let Some(space) = Space::new() else {
        return;
    };
    let target = space.target(Some(80));
    let mut all: Vec<_> =
        ["nic", "qdisc", "conntrack", "tcp", "sockets", "ports", "syns"].map(collector).into();
    for collector in &mut all {
        collector.read(&target);
    }
    drop(space);
    for collector in &mut all {
        let reading = collector.read(&target);
        let why = reading.error.unwrap_or_default();
        assert!(why.contains("is gone, and its network namespace with it"), "{}: {why}", collector.name());
        assert!(reading.values.iter().all(|(name, _)| !name.contains(".service.")), "{}", collector.name());
    }
}

/// A port of `b`, and what is observed then.
fn listening(b: &Space) -> (TcpListener, SocketAddr, Target) {
    let listener = b.within(|| TcpListener::bind("192.0.2.2:0")).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address, b.target(Some(address.port())))
}

/// Opens connections from `a` to a port of `b`, all at once; whoever is not let in keeps trying.
fn connect(a: &Space, address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let connect = || a.within(|| TcpStream::connect_timeout(&address, PATIENCE)).unwrap();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..count).map(|_| scope.spawn(connect)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

#[test]
fn connections_that_a_packet_filter_makes_begin_again_are_counted() {
    let Some((a, b)) = linked() else {
        return;
    };
    let (_listener, address, target) = listening(&b);
    let mut syns = collector("syns");
    let mut counted = || {
        let reading = syns.read(&target);
        assert_eq!((reading.error.as_ref(), reading.missing.len()), (None, 0), "{reading:?}");
        ["syns.connections_count", "syns.retransmitted_count"].map(|name| reading.value(name).unwrap())
    };
    assert_eq!(counted(), [0.0, 0.0]);
    let first = connect(&a, address, 40);
    let until_all_count = Duration::from_millis(1_700);
    std::thread::sleep(until_all_count);
    assert_eq!(counted(), [40.0, 0.0]);
    let rule = "tcp flags & (syn | ack) == syn numgen inc mod 4 == 0 drop";
    let filter = format!("table inet t {{ chain c {{ type filter hook input priority 0; {rule}; }}; }}");
    assert!(run(&format!("ip netns exec {} nft '{filter}'", b.name)), "{filter}");
    let second = connect(&a, address, 40);
    std::thread::sleep(until_all_count);
    // Ten first packets were dropped, and a few of those that came again.
    assert_eq!(counted(), [80.0, 10.0]);
    drop((first, second));
}

#[test]
fn of_very_many_connections_a_share_is_read() {
    let Some((a, b)) = linked() else {
        return;
    };
    let (listener, address, target) = listening(&b);
    let mut syns = collector("syns");
    let mut connections = || syns.read(&target).value("syns.connections_count").unwrap();
    assert_eq!(connections(), 0.0);
    let one_by_one = |count: usize| -> Vec<u16> {
        let connected = (0..count).map(|_| {
            let client = a.within(|| TcpStream::connect(address)).unwrap();
            drop(listener.accept().unwrap());
            client.local_addr().unwrap().port()
        });
        connected.collect()
    };
    one_by_one(1_100);
    let before = connections();
    let ports = one_by_one(200);
    std::thread::sleep(Duration::from_millis(1_700));
    let chosen = ports.iter().filter(|port| (*port >> 1) % 2 == 0).count();
    assert_eq!(connections() - before, 2.0 * chosen as f64, "{ports:?}");
}
