//! Agents elsewhere: over ssh, and by commands that lead into namespaces and other roots. Our program is copied there and
//! nothing of it stays, whatever is killed and whenever.

mod anywhere;
mod killed;
mod same;
mod sshd;
mod workers;
mod wrong;

use crate::skip::needs;
use crate::support::{Place, Server, can_mount, run, shared_turn, signal, skip, turn, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use sshd::Sshd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use webdyno_host::agent::{AgentClient, ServerAddress, Start};
use webdyno_model::Result;

/// The program as it would be installed, without what debuggers want: a fifth to be copied.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        webdyno_host::agent::name_build(env!("WEBDYNO_BUILD"));
        let stripped = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("webdyno-{}", std::process::id()));
        let from = assert_cmd::cargo::cargo_bin("webdyno");
        let done = Command::new("strip").arg("--strip-debug").arg("-o").args([&stripped, &from]).status();
        assert!(done.unwrap().success());
        stripped
    })
}

fn exec(command: &str) -> Result<AgentClient> {
    start(command, false, program())
}

fn start(command: &str, sudo: bool, own_executable: &Path) -> Result<AgentClient> {
    let address = ServerAddress::parse(&format!("exec:{command}"))?;
    program();
    AgentClient::start(&Start { sudo, reads_only: true, ..Start::at(address, own_executable) })
}

/// Whether anything can be tested here, which is said where it cannot.
fn can_run() -> bool {
    let why = match (Path::new("/usr/sbin/sshd").exists(), can_mount()) {
        (false, _) => "needs openssh-server",
        (_, false) => "needs root and mount(8)",
        _ => return true,
    };
    skip(why);
    false
}

/// `webdyno diagnose --for` of a small server of ours, by these flags more; where it writes.
fn diagnose(place: &Place, sshd: &Sshd, port: u16, flags: &[&str]) -> assert_cmd::Command {
    let mut command = assert_cmd::Command::from_std(diagnosis(place, sshd, port, flags));
    command.timeout(Duration::from_secs(100));
    command
}

/// The same as a command that can be started and then signalled.
fn diagnosis(place: &Place, sshd: &Sshd, port: u16, flags: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.env("WEBDYNO_STATE", place.path("state")).env("PATH", sshd.search_path());
    command.current_dir(place.path(""));
    command.args(["diagnose", "--port", &port.to_string(), "--out", "run", "-q"]).args(flags);
    command
}

fn events(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.path("run/events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn notes(place: &Place) -> Vec<String> {
    let notes = events(place).into_iter().filter(|event| event["kind"] == "note");
    notes.map(|note| note["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_server_is_observed_over_ssh_and_another_one_by_its_role() {
    // Of the host behind it all servers are asked: to other tests that would be somebody else's requests.
    let _turn = turn();
    needs!(can_run());
    let (place, sshd, site) = (Place::new(), Sshd::start(), Server::answering("hi"));
    let flags = ["--for", "2s", "--server", "ssh://web1", "--server", "db=exec:sh -c 'exec dash'", "--sudo"];
    run(&mut diagnose(&place, &sshd, site.port, &flags)).with_code(0);
    let events = events(&place);
    let of = |kind: &str, host: Option<&str>| {
        events.iter().filter(|event| event["kind"] == kind && event["host"].as_str() == host).count()
    };
    assert_eq!((of("server", None), of("server", Some("db"))), (1, 1));
    assert!(of("sample", None) > 5 && of("sample", Some("db")) > 5, "{} samples", of("sample", Some("db")));
    // On one machine it is one clock, and this is known.
    let server = events.iter().find(|event| event["kind"] == "server").unwrap();
    assert_eq!(server["environment"]["clock_error_us"], 0);
    assert!(wait_until(Duration::from_secs(10), || sshd.is_clean()), "{:?}", sshd.there());
}

/// A session that only reads goes on after its connection was cut, and says what it missed.
#[test]
fn a_lost_connection_is_made_again_and_the_gap_is_noted() {
    let _turn = shared_turn();
    needs!(can_run());
    let (place, sshd, site) = (Place::new(), Sshd::start(), Server::answering("hi"));
    let flags = ["--for", "300s", "--server", "ssh://web1"];
    let mut running = diagnosis(&place, &sshd, site.port, &flags).spawn().unwrap();
    let log = || std::fs::read_to_string(place.path("run/events.jsonl")).unwrap_or_default();
    let waited = |done: &dyn Fn() -> bool| wait_until(Duration::from_secs(60), done);
    // Where the log is, the agent is observed.
    assert!(waited(&|| sshd.agents().len() == 1 && !log().is_empty()), "{:?}", sshd.agents());
    signal(sshd.agents()[0], Signal::KILL);
    let has_samples = |log: &str| log.contains(r#""kind":"sample""#);
    let is_back =
        || log().split_once("connected to ssh://web1 again").is_some_and(|(_, rest)| has_samples(rest));
    assert!(waited(&is_back), "{}", log());
    signal(running.id(), Signal::INT);
    assert_eq!(running.wait().unwrap().code(), Some(130));
    let notes = notes(&place);
    let has = |text: &str| notes.iter().filter(|note| note.contains(text)).count();
    assert_eq!(
        (has("the connection to ssh://web1 was lost"), has("connected to ssh://web1 again")),
        (1, 1),
        "{notes:?}"
    );
    assert!(wait_until(Duration::from_secs(10), || sshd.is_clean()), "{:?}", sshd.there());
}

/// The shells that servers have, the ways that lead to them, and what they say before they are asked.
#[test]
fn commands_lead_to_an_agent() {
    let _turn = shared_turn();
    needs!(can_run());
    let sshd = Sshd::start();
    let login = sshd.login();
    for command in [
        "webdyno agent",
        "sh -c 'exec dash'",
        "sh -c 'exec bash'",
        "sh -c 'exec bash --posix'",
        "sh -c 'exec busybox sh'",
        "unshare --net webdyno agent",
        "unshare --pid --fork --mount-proc --uts webdyno agent",
        "sh -c 'echo Welcome; echo; printf \"no end of line\"; exec sh'",
        &format!("{login} webdyno agent"),
        &format!("{login} nice env LANG=C webdyno agent"),
    ] {
        let begun = Instant::now();
        let client = exec(command).unwrap_or_else(|error| panic!("{command}: {error:?}"));
        assert!(client.hello().environment.cores.is_some());
        client.close().unwrap();
        eprintln!("{:?} {command}", begun.elapsed());
    }
    // An agent that is there is started as it is.
    let there = format!("{} agent", program().display());
    exec(&there).unwrap().close().unwrap();
    exec(&format!("{login} {there}")).unwrap().close().unwrap();
    let error = start(&there, true, program()).err().unwrap();
    assert_eq!((error.exit_code(), error.message.contains("this starts an agent")), (2, true));
    assert!(wait_until(Duration::from_secs(10), || sshd.is_clean()), "{:?}", sshd.there());
}
