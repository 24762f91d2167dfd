//! Sessions that change two hosts: a server in a network of its own and the machine that it runs on, which share a state
//! directory. Another network stands for the machine, so that the real one is left alone. Whoever is killed at whatever record,
//! tool, an agent, or all of them: each of the two has its original in the end, or what was kept.

use crate::extent::{leave_out, runs_all};
use crate::support::{Place, children, is_alive, run, shared_turn, signal, skip, wait_until};
use crate::transport::program;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use webdyno_host::agent::{ServerList, Start};
use webdyno_host::change::{StateDir, pending};
use webdyno_model::Result;
use webdyno_model::change::{ApplyOptions, Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;
use webdyno_session::live::Servers;

const QUEUE: &str = "net.ipv4.tcp_max_syn_backlog";
const VICTIM: &str = "WD_SEVERAL_HOSTS";
const PORT: u16 = 8080;

/// A network namespace.
struct Network(String);

impl Network {
    fn new(name: &str) -> Self {
        let network = Self(format!("wd{name}{}", std::process::id()));
        sh(&format!("ip netns add {0} && ip -n {0} link set lo up", network.0));
        network
    }

    fn sysctl(&self, words: &str) -> String {
        sh(&format!("ip netns exec {} sysctl -n {words}", self.0)).trim().to_owned()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).stderr(Stdio::null()).status();
    }
}

fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The two hosts, and a server in the first.
struct Hosts {
    place: Place,
    networks: [Network; 2],
    server: Child,
}

impl Hosts {
    fn new() -> Self {
        let (place, networks) = (Place::new(), [Network::new("web"), Network::new("machine")]);
        fs::write(place.path("index.html"), "hello").unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &networks[0].0, "python3", "-m", "http.server", &PORT.to_string()]);
        command.current_dir(place.path("")).stdout(Stdio::null()).stderr(Stdio::null());
        let server = command.spawn().unwrap();
        let answers =
            || sh(&format!("ip netns exec {} ss -ltnH", networks[0].0)).contains(&format!(":{PORT} "));
        assert!(wait_until(Duration::from_secs(20), answers));
        let hosts = Self { place, networks, server };
        hosts.set_up();
        hosts
    }

    fn set_up(&self) {
        self.networks.iter().for_each(|network| drop(network.sysctl(&format!("-w {QUEUE}=300"))));
        let _ = fs::remove_dir_all(self.place.path("state"));
    }

    /// The value on each.
    fn values(&self) -> [String; 2] {
        self.networks.each_ref().map(|network| network.sysctl(QUEUE))
    }

    /// Starts a session in a process of its own.
    fn session(&self, keep: bool) -> Child {
        let [web, machine] = self.networks.each_ref().map(|network| network.0.as_str());
        let order = format!("{web}|{machine}|{}|{keep}", self.place.path("state").display());
        let name = "several_hosts::a_kill_at_any_record_leaves_both_hosts_as_before_or_kept";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([name, "--exact"]).env(VICTIM, order).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// How many records there are.
    fn records(&self) -> usize {
        self.journals().iter().map(|(_, text)| text.lines().count()).sum()
    }

    /// The journals with their agents.
    fn journals(&self) -> Vec<(u32, String)> {
        let entries = fs::read_dir(self.place.path("state/journals")).into_iter().flatten().flatten();
        let journal = |entry: fs::DirEntry| {
            let path = entry.path();
            let pid = path.file_stem()?.to_str()?.rsplit('-').next()?.parse().ok()?;
            Some((pid, fs::read_to_string(&path).ok()?))
        };
        entries.filter_map(journal).collect()
    }

    fn webdyno(&self, words: &[&str]) -> String {
        run(self.place.webdyno().args(words)).with_code(0).stdout
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = self.server.kill().and_then(|()| self.server.wait());
    }
}

fn to(value: i64) -> SettingChange {
    SettingChange { setting: SettingId::sysctl(QUEUE), to: SettingValue::Integer(value) }
}

/// Steps on both hosts, one taken back, one more that is not kept; on an error everything is put back, as a tuning does.
fn session([web, machine, state, keep]: [&str; 4]) -> Result<()> {
    let agent = program().display();
    let server = |role: &str, network: &str| {
        format!("{role}=exec:env WEBDYNO_STATE={state} nsenter --net=/run/netns/{network} {agent} agent")
    };
    let list = ServerList::parse(&[server("web", web), server("host", machine)])?;
    let how = Start::at(list.web()?.clone(), program());
    let mut servers = Servers::connect(&list, &how)?;
    servers.connect_machine(&list, &how)?;
    servers.front_mut().discover(PORT)?;
    let done = steps(&mut servers, keep == "true");
    if done.is_err() {
        let _ = servers.revert(0, false);
    }
    done.and(servers.close().1)
}

fn steps(servers: &mut Servers, keep: bool) -> Result<()> {
    let on_machine = |servers: &Servers, value: i64| -> Result<RenderedPlan> {
        let machine = servers.all().nth(1).unwrap().agent();
        Ok(machine.prepare_behind(&[to(value)]).and_then(Preparation::into_plan)?.on(Some("host")))
    };
    let options = ApplyOptions::default();
    let plan = on_machine(servers, 600)?;
    servers.apply(&plan, &options)?;
    let plan = servers.prepare(&[to(600)]).and_then(Preparation::into_plan)?;
    servers.apply(&plan, &options)?;
    let plan = on_machine(servers, 900)?;
    let mark = servers.apply(&plan, &options)?.answer.0.mark;
    servers.revert(mark, false).1?;
    if keep {
        servers.keep()?;
    }
    let plan = servers.prepare(&[to(1200)]).and_then(Preparation::into_plan)?;
    servers.apply(&plan, &options).map(|_| ())
}

fn all_children(pid: u32) -> Vec<u32> {
    let own = children(pid);
    let further: Vec<u32> = own.iter().flat_map(|child| all_children(*child)).collect();
    [own, further].concat()
}

/// Whom a kill hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Tool,
    /// The one that wrote last.
    Agent,
    All,
}

/// Kills at a record; false when the session came to its end before that.
fn kill_at(hosts: &Hosts, record: usize, victim: Victim, keep: bool) -> bool {
    let mut tool = hosts.session(keep);
    let mut count_before = vec![];
    while tool.try_wait().unwrap().is_none() {
        let journals = hosts.journals();
        let count: usize = journals.iter().map(|(_, text)| text.lines().count()).sum();
        if count < record {
            count_before = journals;
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let grown = |(pid, text): &&(u32, String)| {
            let before = count_before.iter().find(|(known, _)| known == pid);
            before.is_none_or(|(_, before)| before.len() < text.len())
        };
        let last = journals.iter().find(grown).map(|(pid, _)| *pid);
        let of_session = all_children(tool.id());
        let mut struck = match victim {
            Victim::Tool => vec![tool.id()],
            Victim::Agent => last.into_iter().collect(),
            Victim::All => [vec![tool.id()], of_session.clone()].concat(),
        };
        struck.retain(|pid| is_alive(*pid));
        // One may just have ended.
        struck.into_iter().filter(|pid| is_alive(*pid)).for_each(|pid| signal(pid, Signal::KILL));
        tool.wait().unwrap();
        let ended = || of_session.iter().all(|pid| !is_alive(*pid));
        assert!(wait_until(Duration::from_secs(30), ended), "guardians do not end");
        return true;
    }
    false
}

#[test]
fn a_kill_at_any_record_leaves_both_hosts_as_before_or_kept() {
    if let Ok(order) = std::env::var(VICTIM) {
        let order: Vec<&str> = order.split('|').collect();
        session(order.try_into().unwrap()).unwrap();
        return;
    }
    let _turn = shared_turn();
    if !rustix::process::geteuid().is_root() || Command::new("ip").args(["netns", "list"]).output().is_err() {
        return skip("needs root and ip(8)");
    }
    let hosts = Hosts::new();
    let original = ["300", "300"].map(str::to_owned);
    assert!(hosts.session(true).wait().unwrap().success());
    let records = hosts.records();
    assert_eq!(hosts.values(), ["600", "600"].map(str::to_owned), "both kept");
    let state = StateDir::at(hosts.place.path("state"));
    assert!(pending(&state).unwrap().iter().filter(|journal| journal.kept).count() == 2);
    hosts.webdyno(&["rollback"]);
    assert_eq!(hosts.values(), original);
    hosts.set_up();
    assert!(hosts.session(false).wait().unwrap().success());
    assert_eq!((hosts.values(), pending(&state).unwrap()), (original.clone(), vec![]));

    let mut seen = BTreeSet::new();
    let (mut kills, mut left_out) = (0, 0);
    for record in 1..=records {
        for victim in [Victim::Tool, Victim::Agent, Victim::All] {
            for keep in [true, false] {
                if !runs_all() && !(record + victim as usize + usize::from(keep)).is_multiple_of(3) {
                    left_out += 1;
                    continue;
                }
                hosts.set_up();
                let was_struck = kill_at(&hosts, record, victim, keep);
                let context = format!("record {record}, {victim:?}, keep {keep}");
                let interrupted = hosts.webdyno(&["rollback", "--interrupted"]);
                let values = hosts.values();
                // Each may have kept without the other one, which was killed before it did.
                let is_sound = |value: &String| value == "300" || (keep && value == "600");
                assert!(values.iter().all(is_sound), "{context}: {values:?} {interrupted}");
                let open = pending(&state).unwrap();
                assert!(open.iter().all(|journal| journal.kept), "{context}: {open:?}");
                hosts.webdyno(&["rollback"]);
                assert_eq!(
                    (hosts.values(), pending(&state).unwrap()),
                    (original.clone(), vec![]),
                    "{context}"
                );
                kills += u32::from(was_struck);
                seen.insert(values);
            }
        }
    }
    leave_out(left_out, "kills of sessions on two hosts");
    assert!(kills > 15, "{kills} kills of {records} records");
    // Never the server without its machine: what it admits needs the room there.
    assert!(!seen.contains(&["600", "300"].map(str::to_owned)), "{seen:?}");
    assert!(seen.len() >= 2, "{seen:?}");
}

#[test]
fn a_machine_without_its_server_is_wrong_usage() {
    let place = Place::new();
    for (servers, message) in [
        (&["host=local"][..], "no web server was given"),
        (&["web=local", "host=exec:a agent", "host=exec:b agent"], "two servers with the role host"),
        (&["web=local", "host=local"], "`local` is given as web and as host"),
    ] {
        let mut command = place.webdyno();
        command.args(["tune", "http://127.0.0.1:1/", "-q"]);
        command.args(servers.iter().flat_map(|server| ["--server", server]));
        run(&mut command).assert_error(message, "");
    }
}
