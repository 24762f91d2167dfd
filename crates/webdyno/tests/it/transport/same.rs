//! One server with one fault, watched in three ways at once: the diagnosis is the same, wherever the agent is started from.

use super::sshd::Sshd;
use super::{can_run, diagnose};
use crate::skip::needs;
use crate::support::{Apache, Place, run, shared_turn, signal, turn};
use rustix::process::Signal;
use serde_json::Value;

/// Workers of the Apache, and who wants one: more than it has, and more than its queue of the kernel is noticed for.
const WORKERS: u32 = 4;
const CLIENTS: &str = "40";

/// The answer, the ids of all findings, and whether a rate was read.
fn summary(diagnosis: &Value) -> (String, Vec<String>, bool) {
    let findings = diagnosis["findings"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let facts = findings.iter().flat_map(|finding| finding["facts"].as_array().unwrap());
    let has_rate = facts.clone().any(|fact| fact["name"] == "rate" && fact["value"].as_f64() > Some(1.0));
    let mut ids: Vec<String> = findings.iter().map(|finding| text(&finding["id"])).collect();
    ids.sort();
    (text(&diagnosis["bottleneck"]), ids, has_rate)
}

#[test]
fn the_same_is_diagnosed_locally_by_a_command_and_over_ssh() {
    let _turn = turn();
    needs!(can_run());
    let (place, sshd) = (Place::new(), Sshd::start());
    let folder = place.path("apache");
    std::fs::create_dir(&folder).unwrap();
    let apache = Apache::start(&folder, WORKERS);
    // The users.
    let load = ["run", &apache.url(), "-c", CLIENTS, "--no-keepalive", "-d", "60s", "--out", "users", "-q"];
    let mut users = place.child(&load);
    let port = apache.files.port;
    let servers = ["local", "exec:sh -c 'exec dash'", "ssh://web1"];
    let diagnoses: Vec<Value> = std::thread::scope(|scope| {
        let watch = |server: &'static str| {
            let sshd = &sshd;
            scope.spawn(move || {
                let place = Place::new();
                let flags = ["--for", "4s", "--server", server, "--json", "-"];
                run(&mut diagnose(&place, sshd, port, &flags)).with_code(0).json()
            })
        };
        let running: Vec<_> = servers.into_iter().map(watch).collect();
        running.into_iter().map(|watch| watch.join().unwrap()).collect()
    });
    signal(users.id(), Signal::INT);
    users.wait().unwrap();
    let all: Vec<_> = diagnoses.iter().map(summary).collect();
    for (server, observed) in servers.iter().zip(&all) {
        assert_eq!(observed.0, "apache-workers-exhausted", "{server}: {all:?}");
        assert_eq!(observed, &all[0], "{server}");
        assert!(observed.2, "{server} has no rate: {all:?}");
    }
}

/// A check needs no traffic, and says the same wherever it is started from.
#[test]
fn the_same_is_checked_locally_by_a_command_and_over_ssh() {
    let _turn = shared_turn();
    needs!(can_run());
    let (place, sshd) = (Place::new(), Sshd::start());
    let apache = Apache::start_event(&place.path("server"), 155);
    let before = apache.configuration();
    let port = apache.files.port.to_string();
    let check = |server: &str| {
        let mut command = assert_cmd::Command::new(super::program());
        command.env("WEBDYNO_STATE", place.path("state")).env("PATH", sshd.search_path());
        command.current_dir(place.path("")).timeout(std::time::Duration::from_secs(100));
        command.args(["check", "--port", &port, "--server", server, "--fail-on-fault", "-q", "--json", "-"]);
        let json = run(&mut command).with_code(3).json();
        json["findings"].clone()
    };
    let findings = check("local");
    assert_eq!(findings[0]["id"], "apache-setting-clamped", "{findings:#}");
    for server in ["exec:sh -c 'exec dash'", "ssh://web1"] {
        let observed = check(server);
        let reported = |all: &Value| -> Vec<[Value; 3]> {
            let parts = |one: &Value| ["id", "summary", "remedies"].map(|part| one[part].clone());
            all.as_array().unwrap().iter().map(parts).collect()
        };
        assert_eq!(reported(&observed), reported(&findings), "{server}");
    }
    assert_eq!(apache.configuration(), before);
    assert!(
        crate::support::wait_until(std::time::Duration::from_secs(10), || sshd.is_clean()),
        "{:?}",
        sshd.there()
    );
}
