//! Workers that ssh starts for a load: there is no server of NATS to set up, and nothing of them stays.

use super::can_run;
use super::program;
use super::sshd::Sshd;
use crate::distributed::Counting;
use crate::skip::needs;
use crate::support::{Place, run, shared_turn, wait_until};
use std::process::{Command, Stdio};
use std::time::Duration;

fn load(place: &Place, sshd: &Sshd, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.env("WEBDYNO_STATE", place.path("state")).env("PATH", sshd.search_path());
    command.current_dir(place.path("")).args(["run", "-q", "--warmup", "0s"]).args(arguments);
    command
}

#[test]
fn workers_over_ssh_share_a_load_and_nothing_of_them_stays() {
    let _turn = shared_turn();
    needs!(can_run());
    let (place, sshd, server) = (Place::new(), Sshd::start(), Counting::start());
    let url = server.url("/");
    let both = ["--on", "ssh://web1,web2", "-n", "301", "-c", "64", "--json", "-", &url];
    let ended = run(&mut assert_cmd::Command::from_std(load(&place, &sshd, &both)));
    let json = ended.with_code_in(&[0, 3]).json();
    assert_eq!(json["requests"]["completed"], 301);
    // Each looks before its load, and so does the command.
    assert_eq!(server.counts()["/"], 304);
    let names: Vec<&str> =
        json["workers"].as_array().unwrap().iter().map(|worker| worker["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["web1", "web2"]);
    assert!(wait_until(Duration::from_secs(10), || sshd.is_clean()), "{:?}", sshd.there());
    // Nor when its command is killed.
    let before = server.counts()["/"];
    let long = ["--on", "ssh://web1", "-r", "50", "-d", "60s", "-c", "64", "--out", "r", &url];
    let mut command = load(&place, &sshd, &long).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begins = wait_until(Duration::from_secs(60), || server.counts()["/"] > before + 30);
    command.kill().unwrap();
    command.wait().unwrap();
    assert!(begins, "the load does not begin");
    assert!(wait_until(Duration::from_secs(15), || sshd.is_clean()), "{:?}", sshd.there());
    let resume = run(place.webdyno().args(["resume", "r", "--nats-creds", "none"]));
    resume.with_code_in(&[1, 2]).assert_error("had its own nats-server", "webdyno");
}

#[test]
fn why_there_is_no_worker_over_ssh_is_told_with_what_helps() {
    let _turn = shared_turn();
    needs!(can_run());
    let (place, sshd, server) = (Place::new(), Sshd::start(), Counting::start());
    let url = server.url("/");
    for (on, code, message, hint) in [
        (&["--on", "ssh://web1,refused"][..], 1, "ssh://refused", "ssh"),
        (&["--on", "ssh://web1,web1"], 2, "`ssh://web1` is given twice", "local:2"),
        (&["--on", "ssh://web1", "--workers", "2"], 2, "themselves", "one on each host"),
        (&["--on", "ssh://"], 2, "it names no host", "--on ssh://"),
    ] {
        let arguments: Vec<&str> = on.iter().copied().chain(["-n", "10", &url]).collect();
        let ended = run(&mut assert_cmd::Command::from_std(load(&place, &sshd, &arguments)));
        ended.with_code(code).assert_error(message, hint);
    }
    assert!(wait_until(Duration::from_secs(10), || sshd.is_clean()), "{:?}", sshd.there());
    // Who calls it by hand is told what it is for.
    let by_hand = run(place.webdyno().args(["worker", "--on", "stdin", "--trust", "UX"]).write_stdin("x\n"));
    by_hand.with_code(2).assert_error("is not the key of a NATS server", "--on ssh://HOST");
}
