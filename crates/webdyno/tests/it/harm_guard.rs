//! The load brake from end to end: a site that dies, other clients that get errors, and URLs of another machine.

use crate::support::{Apache, Place, end, run, shared_turn, skip, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const LOAD: [&str; 5] = ["-c", "60", "--no-keepalive", "-d", "5s"];

/// Every event of a kind in a recording.
fn events(place: &Place, run: &str, kind: &str) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(place.path(run).join("events.jsonl")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    lines.filter(|event: &serde_json::Value| event["kind"] == kind).collect()
}

#[test]
fn a_site_that_dies_ends_the_load_and_the_diagnosis_says_so() {
    let _turn = shared_turn();
    let (place, apache, _) = Apache::placed();
    let mut tool = place.child(&[&["diagnose", &apache.url(), "--out", "d", "-q"], &LOAD[..]].concat());
    assert!(wait_until(Duration::from_secs(30), || events(&place, "d", "interval").len() >= 2));
    end(apache.pid().unwrap());
    tool.wait().unwrap();
    let trip = &events(&place, "d", "brake")[0];
    assert_eq!(
        (trip["brake"]["cause"].as_str(), trip["load"].as_u64()),
        (Some("unreachable"), Some(1)),
        "{trip}"
    );
    assert_eq!(events(&place, "d", "load_end")[0]["end"]["reason"], "braked");
    let report = run(place.webdyno().args(["report", "d", "--json", "-"])).with_code_in(&[0, 3]).json();
    assert_eq!(report["run"]["brake"]["cause"], "unreachable", "{report:#}");
    let text = run(place.webdyno().args(["report", "d"])).with_code_in(&[0, 3]).stdout;
    assert!(text.contains("unreachable site"), "{text}");
    assert!(std::fs::read_to_string(place.path("d/report.html")).unwrap().contains("unreachable site"));
}

/// Somebody else gets errors while we load: half of the load, and the plan is for that.
#[test]
fn errors_of_other_clients_halve_the_load() {
    let _turn = shared_turn();
    let (place, apache, _) = Apache::placed();
    let root = &apache.files.root;
    std::fs::write(
        root.join("bad.lua"),
        "function handle(r)\nr.status = 503\nr:puts('x')\nreturn apache2.OK\nend\n",
    )
    .unwrap();
    let conf = format!(
        "LuaMapHandler ^/bad$ {}\nLogFormat \"%h %t \\\"%r\\\" %>s \\\"%{{User-Agent}}i\\\"\" ua\n\
         CustomLog log/access.log ua\n",
        root.join("bad.lua").display()
    );
    std::fs::write(root.join("conf-enabled/bad.conf"), conf).unwrap();
    let command = &apache.files.command;
    run(assert_cmd::Command::new(&command[0]).args(&command[1..3]).args(["-k", "graceful"])).with_code(0);
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", apache.files.port)).unwrap();
        stream.write_all(b"GET /bad HTTP/1.0\r\nUser-Agent: somebody\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(wait_until(Duration::from_secs(10), || ask().starts_with("HTTP/1.1 503")), "{}", ask());
    std::thread::sleep(Duration::from_secs(1));
    let tool = place.child(&[&["tune", &apache.url(), "--out", "t", "-q"], &LOAD[..]].concat());
    assert!(wait_until(Duration::from_secs(30), || events(&place, "t", "interval").len() >= 2));
    // At once: they wait behind the load like everybody else.
    let others: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..12).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert!(others.iter().all(|answer| answer.starts_with("HTTP/1.1 503")), "{others:?}");
    let output = tool.wait_with_output().unwrap();
    // What limits then, and whether the generator kept up, is for machines that do nothing else.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let connections: Vec<_> = events(&place, "t", "load_start")
        .iter()
        .map(|event| event["workload"]["connections"].as_u64().unwrap())
        .collect();
    assert_eq!(connections, [60, 30]);
    assert_eq!(events(&place, "t", "brake")[0]["brake"]["cause"], "others_fail");
    let notes = events(&place, "t", "note");
    let is_halving = |note: &serde_json::Value| {
        let text = note["text"].as_str().unwrap_or_default();
        text.starts_with("the load was halved from 60 to 30 connections: errors of other clients: ")
    };
    assert!(notes.iter().any(is_halving), "{notes:?}");
    let report = run(place.webdyno().args(["report", "t", "--json", "-"])).with_code_in(&[0, 3]).json();
    let baseline = &report["baseline"];
    assert_eq!(baseline["workload"]["connections"], 30, "{report:#}");
    assert_eq!((&baseline["brake"], &report["state"]), (&serde_json::Value::Null, &"planned".into()));
}

#[test]
fn only_the_servers_own_addresses_are_loaded() {
    let place = Place::new();
    let apache = Apache::start(&place.path("server"), 20);
    let program = assert_cmd::cargo::cargo_bin("webdyno");
    let own = format!("exec:{} agent", program.display());
    let load = ["-d", "4s", "-c", "5", "-q", "--json", "-"];
    run(place.webdyno().args(["diagnose", &apache.url(), "--server", &own]).args(load)).with_code_in(&[0, 3]);
    if !std::process::Command::new("unshare")
        .args(["-n", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        return skip("no network namespace can be made here");
    }
    let elsewhere = format!("exec:unshare -n {} agent", program.display());
    for command in ["diagnose", "tune"] {
        let ended = run(place.webdyno().args([command, &apache.url(), "--server", &elsewhere]).args(load));
        let reported =
            format!("127.0.0.1 means another machine there than here, and --server is `{elsewhere}`");
        ended.with_code(2).assert_error(&reported, "hint: `webdyno run` loads any server");
    }
}
