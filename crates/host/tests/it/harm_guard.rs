//! The harm guard against what it is for: real kills in control groups, a real Apache that fails others, a site that is
//! killed, and one that is merely busy.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::agent::Session;
use crate::apache::server::{MODULES, Server, apache_is_installed};
use crate::fake::{FakeServer, PORT};
use crate::skip::{needs, skip};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use webdyno_host::agent::host::Host;
use webdyno_host::agent::protocol::{FromAgent, ToAgent};
use webdyno_host::change::seams::this_machine::ThisMachine;
use webdyno_host::collectors::Target;
use webdyno_host::harm_guard::LoadWatch;
use webdyno_host::harm_guard::reading::MemorySource;
use webdyno_host::logs::AccessLogs;
use webdyno_host::os::clock::clock_us;
use webdyno_host::os::process::{wait_polling, wait_until};
use webdyno_host::services::by_name;
use webdyno_model::harm_guard::{HarmCause, HarmGuardTrip, SiteUnderLoad};

/// One at a time: kills of one test are harm to the other, where the kernel log cannot tell them apart.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const PATIENCE: Duration = Duration::from_secs(30);

/// How a load of ours calls itself.
const AGENT: &str = "webdyno/test";

fn site(port: u16) -> SiteUnderLoad {
    SiteUnderLoad {
        addresses: vec![format!("127.0.0.1:{port}").parse().unwrap()],
        host: format!("127.0.0.1:{port}"),
        user_agents: vec![AGENT.into()],
        generators: vec!["127.0.0.1".parse().unwrap()],
        timeout_us: 10_000_000,
        varies_memory: false,
    }
}

fn watch(pid: Option<u32>, logs: AccessLogs) -> (LoadWatch, Receiver<(u64, HarmGuardTrip)>) {
    let (sender, pulled) = channel();
    let target = Target { service_pid: pid, ..Target::default() };
    let pull = Box::new(move |brake| drop(sender.send((clock_us(), brake))));
    let watch = LoadWatch::start(&target, logs, pull).unwrap();
    // The seconds before.
    std::thread::sleep(Duration::from_millis(700));
    (watch, pulled)
}

/// A control group with little memory, in the hierarchy that has the memory controller here.
struct LimitedGroup {
    folder: PathBuf,
    /// The one with the same members in the unified hierarchy, which tells of stalls; the same one where that has the
    /// memory controller.
    unified: PathBuf,
}

impl LimitedGroup {
    fn new(name: &str) -> Option<Self> {
        let roots = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        let name = format!("webdyno-test-{}-{name}", std::process::id());
        for (root, limit) in roots {
            let folder = Path::new(root).join(&name);
            if std::fs::create_dir(&folder).is_ok() {
                let beside = Path::new("/sys/fs/cgroup/unified").join(&name);
                let unified = if std::fs::create_dir(&beside).is_ok() { beside } else { folder.clone() };
                let group = Self { folder, unified };
                if std::fs::write(group.folder.join(limit), "30M").is_ok() {
                    return Some(group);
                }
            }
        }
        skip("no control group with a limit of memory can be made here");
        None
    }

    /// A shell in it that does what it is told, line by line.
    fn shell(&self) -> Child {
        let script = format!(
            "echo $$ > {}/cgroup.procs; echo $$ > {}/cgroup.procs; while read -r line; do eval \"$line\"; done",
            self.folder.display(),
            self.unified.display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let inside = || {
            let procs = std::fs::read_to_string(self.folder.join("cgroup.procs")).unwrap();
            procs.lines().any(|pid| pid == child.id().to_string())
        };
        assert!(wait_until(PATIENCE, inside));
        child
    }
}

impl Drop for LimitedGroup {
    fn drop(&mut self) {
        // Only an empty group can be removed.
        for folder in [&self.folder, &self.unified] {
            wait_until(Duration::from_secs(5), || !folder.exists() || std::fs::remove_dir(folder).is_ok());
        }
    }
}

/// Holds in memory all that it reads, as it waits for the end of the first line.
const TAKE_ALL_MEMORY: &str = "tail /dev/zero";

fn write_line(shell: &mut Child, line: &str) {
    writeln!(shell.stdin.as_mut().unwrap(), "{line}").unwrap();
}

fn end(mut shell: Child) {
    drop(shell.stdin.take());
    shell.wait().unwrap();
}

/// How often a time is measured: a machine that is busy with other tests may be late once.
const ATTEMPTS_COUNT: u32 = 3;

/// Tries until what it measures is below a second; the last time in microseconds.
fn best_of(mut measure_us: impl FnMut() -> u64) -> u64 {
    let mut took_us = u64::MAX;
    for _ in 0..ATTEMPTS_COUNT {
        took_us = measure_us();
        println!("told after {} ms", took_us / 1000);
        if took_us < 1_000_000 {
            break;
        }
    }
    took_us
}

#[test]
fn a_kill_in_the_services_group_is_told_within_a_second() {
    let _turn = turn();
    let Some(group) = LimitedGroup::new("own") else { return };
    let mut shell = group.shell();
    let (watch, pulled) = watch(Some(shell.id()), AccessLogs::default());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let site = site(listener.local_addr().unwrap().port());
    let killed_count = || {
        let texts = ["memory.oom_control", "memory.events"]
            .map(|file| std::fs::read_to_string(group.folder.join(file)));
        let lines = texts.iter().flatten().flat_map(|text| text.lines());
        lines.filter_map(|line| line.strip_prefix("oom_kill ")?.parse::<u64>().ok()).sum::<u64>()
    };
    let took_us = best_of(|| {
        let before = killed_count();
        watch.begin(&site);
        write_line(&mut shell, TAKE_ALL_MEMORY);
        let look = || killed_count() > before;
        assert!(wait_polling(Duration::from_millis(1), PATIENCE, look));
        let killed_us = clock_us();
        let (told_us, brake) = pulled.recv_timeout(PATIENCE).unwrap();
        let message = (brake.cause, brake.metric.as_str());
        assert_eq!(message, (HarmCause::OutOfMemory, "memory.group_oom_kills_count"));
        std::thread::sleep(Duration::from_millis(500));
        assert!(pulled.try_recv().is_err(), "once a load");
        watch.end();
        assert!(watch.disturbance().is_some(), "it was not watched yet");
        told_us.saturating_sub(killed_us)
    });
    end(shell);
    assert!(took_us < 1_000_000, "{took_us} us");
}

#[test]
fn a_kill_within_the_limit_of_a_stranger_is_not_ours() {
    let _turn = turn();
    let Some(group) = LimitedGroup::new("other") else { return };
    let mut source = MemorySource::of(Some(std::process::id()));
    let before = source.read().0.oom_kills_count;
    let vmstat = || {
        let text = std::fs::read_to_string("/proc/vmstat").unwrap();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse::<u64>().ok()).unwrap()
    };
    let counted = vmstat();
    let mut shell = group.shell();
    write_line(&mut shell, TAKE_ALL_MEMORY);
    assert!(wait_until(PATIENCE, || vmstat() > counted));
    end(shell);
    let message = std::fs::read_link("/proc/self/ns/cgroup").unwrap().as_os_str() == "cgroup:[4026531835]"
        && std::fs::File::open("/dev/kmsg").is_ok();
    needs!(message, "the kernel log cannot be read here");
    assert_eq!(source.read().0.oom_kills_count, before);
}

/// Files that do not fit are read again and again: everything waits for that, and the group says so.
#[test]
fn stalls_of_the_services_group_are_read() {
    let _turn = turn();
    let Some(group) = LimitedGroup::new("stalled") else { return };
    needs!(group.unified.join("memory.pressure").exists(), "this kernel tells no pressure of groups");
    let mut shell = group.shell();
    let mut source = MemorySource::of(Some(shell.id()));
    let before = source.read().1.memory_full_us.unwrap();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stalled-{}", std::process::id()));
    write_line(
        &mut shell,
        &format!("dd if=/dev/zero of={0} bs=1M count=60; while [ -e {0} ]; do cat {0}; done", file.display()),
    );
    let stalled = wait_until(PATIENCE, || source.read().1.memory_full_us.unwrap() > before + 10_000);
    std::fs::remove_file(&file).unwrap();
    end(shell);
    assert!(stalled);
}

/// Clients that ask again and again, each on connections of its own.
struct Clients {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Clients {
    fn start(count: usize, port: u16, path: &str, agent: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nUser-Agent: {agent}\r\n\r\n");
        let client = |_| {
            let (stop, request) = (Arc::clone(&stop), request.clone());
            std::thread::spawn(move || {
                let mut answers = 0;
                while !stop.load(Ordering::Relaxed) {
                    answers += u64::from(send_request(port, &request));
                    std::thread::sleep(Duration::from_millis(1));
                }
                answers
            })
        };
        let threads = (0..count).map(client).collect();
        Self { stop, threads }
    }

    /// Ends them; how many answers they had.
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    }
}

fn send_request(port: u16, request: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
    let mut answer = vec![];
    stream.write_all(request.as_bytes()).is_ok()
        && stream.read_to_end(&mut answer).is_ok()
        && !answer.is_empty()
}

/// A prefork Apache of 8 workers with a page that waits 200 ms and one that fails, and its access log.
fn apache(log_format: &str) -> Server {
    let server = Server::debian("prefork", "StartServers 8\nMaxRequestWorkers 8\nServerLimit 8\n");
    let page = |name: &str, body: &str| {
        server.write(&format!("run/{name}.lua"), &format!("function handle(r)\n{body}\nend\n"));
        format!("LuaMapHandler /{name} \"{}\"\n", server.path(&format!("run/{name}.lua")).display())
    };
    let slow = page("slow", "r.usleep(200000)\nr:puts('x')\nreturn apache2.OK");
    let bad = page("bad", "r.status = 503\nr:puts('x')\nreturn apache2.OK");
    let site = format!(
        "LoadModule lua_module {MODULES}/mod_lua.so\nLogFormat \"{log_format}\" chosen\n\
         <VirtualHost *:{}>\nDocumentRoot ${{RUN}}\n{slow}{bad}CustomLog ${{RUN}}/access.log chosen\n</VirtualHost>\n",
        server.port
    );
    server.write("sites-enabled/000-default.conf", &site);
    server.start();
    server
}

const COMBINED: &str = r#"%h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\""#;

fn logs_of(server: &Server) -> AccessLogs {
    let control = server.snapshot().control.unwrap();
    let logs = by_name("apache").unwrap().access_logs(&control, server.port).unwrap();
    assert_eq!((logs.files.len(), &logs.unread), (1, &vec![]));
    assert_eq!(logs.files[0].path, server.path("run/access.log"));
    logs
}

#[test]
fn errors_of_other_clients_pull_it_and_our_own_do_not() {
    let _turn = turn();
    needs!(apache_is_installed());
    let server = apache(COMBINED);
    let (watch, pulled) = watch(server.pid(), logs_of(&server));
    assert_eq!(watch.begin(&site(server.port)), []);
    let ours = Clients::start(2, server.port, "/bad", AGENT);
    assert!(pulled.recv_timeout(Duration::from_millis(1500)).is_err(), "our own errors are a result");
    let began = Instant::now();
    let others = Clients::start(1, server.port, "/bad", "Mozilla/5.0");
    let (_, brake) = pulled.recv_timeout(PATIENCE).unwrap();
    println!("told {} ms after others began to fail", began.elapsed().as_millis());
    assert!(others.stop() + ours.stop() > 0);
    assert_eq!((brake.cause, brake.limit.0), (HarmCause::OthersFail, 3.0), "{brake:?}");
}

#[test]
fn without_a_user_agent_in_the_log_the_address_tells_or_the_signal_is_missing() {
    let _turn = turn();
    needs!(apache_is_installed());
    let server = apache(r#"%h %l %u %t \"%r\" %>s %O"#);
    let (watch, pulled) = watch(server.pid(), logs_of(&server));
    // Elsewhere nobody knows which address the load comes from.
    let remote = SiteUnderLoad { generators: vec![], ..site(server.port) };
    let missing = watch.begin(&remote);
    assert_eq!((missing.len(), missing[0].signal.as_str()), (1, "errors of other clients"));
    watch.end();
    assert_eq!(watch.begin(&site(server.port)), []);
    let ours = Clients::start(2, server.port, "/bad", AGENT);
    assert!(pulled.recv_timeout(Duration::from_millis(1500)).is_err());
    assert!(ours.stop() > 0);
}

#[test]
fn a_site_that_is_killed_under_load_is_unreachable_within_a_second() {
    let _turn = turn();
    needs!(apache_is_installed());
    let server = apache(COMBINED);
    let (watch, pulled) = watch(server.pid(), logs_of(&server));
    assert_eq!(watch.begin(&site(server.port)), []);
    let load = Clients::start(20, server.port, "/slow", AGENT);
    std::thread::sleep(Duration::from_millis(800));
    assert!(pulled.try_recv().is_err());
    server.stop();
    let stopped_us = clock_us();
    let (told_us, brake) = pulled.recv_timeout(PATIENCE).unwrap();
    load.stop();
    println!("told {} ms after the site had ended", told_us.saturating_sub(stopped_us) / 1000);
    assert_eq!((brake.cause, brake.value.0 >= 2.0), (HarmCause::Unreachable, true), "{brake:?}");
    watch.end();
    std::thread::sleep(Duration::from_millis(2500));
    assert!(watch.disturbance().unwrap().contains("answered nothing"));
}

/// Eight workers, a hundred clients at once, answers after two and a half seconds: that is what is to be measured.
#[test]
fn a_saturated_site_is_not_harmed() {
    let _turn = turn();
    needs!(apache_is_installed());
    let server = apache(COMBINED);
    let (watch, pulled) = watch(server.pid(), logs_of(&server));
    assert_eq!(watch.begin(&site(server.port)), []);
    let load = Clients::start(100, server.port, "/slow", AGENT);
    let message = pulled.recv_timeout(Duration::from_secs(10));
    let answers = load.stop();
    assert!(message.is_err(), "{message:?}");
    assert!(answers > 100, "{answers} answers: it was not loaded");
    watch.end();
    let quiet = || watch.disturbance().is_none();
    assert!(wait_until(PATIENCE, quiet), "{:?}", watch.disturbance());
}

#[test]
fn the_agent_tells_of_harm_before_it_answers_that_the_load_has_ended() {
    let (folder, server) = FakeServer::fresh();
    let mut session = Session::welcomed(&server, PATIENCE);
    let answer = session.request(ToAgent::LoadBegins { site: site(PORT) });
    assert!(matches!(&answer, FromAgent::Failed { error } if error.message == "nothing is observed yet"));
    session.send(ToAgent::Observe {
        port: Some(PORT),
        client_pid: None,
        access: Default::default(),
        in_full: false,
    });
    let heard: Vec<_> = (0..2).map(|_| session.receive().unwrap().body).collect();
    assert!(heard.contains(&FromAgent::Done), "{heard:?}");
    let begins = || ToAgent::LoadBegins { site: site(PORT) };
    assert_eq!(session.request(begins()), FromAgent::Watched { missing: vec![] });
    assert_eq!(session.request(ToAgent::LoadEnds), FromAgent::Done);
    std::fs::write(folder.path().join("harm"), "").unwrap();
    session.send(begins());
    let brake = session.receive().unwrap();
    assert!(
        matches!(&brake.body, FromAgent::Brake { brake } if brake.cause == HarmCause::Swapping),
        "{brake:?}"
    );
    assert_eq!((brake.id, session.receive().unwrap().body), (0, FromAgent::Watched { missing: vec![] }));
    assert_eq!(session.request(ToAgent::LoadEnds), FromAgent::Done);
    assert_eq!(session.request(ToAgent::Unrest), FromAgent::Unrest { why: Some("it swaps".into()) });
    session.ended().unwrap();
}

#[test]
fn a_loopback_address_is_the_servers_only_in_its_own_network() {
    let (_folder, server) = FakeServer::fresh();
    let mut session = Session::welcomed(&server, PATIENCE);
    let addresses: Vec<std::net::IpAddr> =
        ["127.0.0.1", "192.0.2.1"].map(|text| text.parse().unwrap()).into();
    let here = webdyno_host::os::machine::net_space();
    for (net_space, ours) in [(here.clone(), 1), (Some("another".into()), 0), (None, 0)] {
        let same_network = net_space == here;
        let answer = session.request(ToAgent::Owns { addresses: addresses.clone(), net_space });
        assert_eq!(answer, FromAgent::Owned { addresses: addresses[..ours].to_vec(), same_network });
    }
    assert!(!ThisMachine.owns(addresses[1]));
    session.ended().unwrap();
}
