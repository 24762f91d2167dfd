//! Checking a server without traffic, as its users meet it: a real Apache whose settings contradict each other.

use crate::support::{Apache, Place, run, shared_turn};
use serde_json::Value;
use std::time::{Duration, Instant};

/// 155 workers in processes of ten threads: 150 of them run.
const WORKERS: u32 = 155;

fn ids(check: &Value) -> Vec<&str> {
    check["findings"].as_array().unwrap().iter().map(|finding| finding["id"].as_str().unwrap()).collect()
}

#[test]
fn settings_that_contradict_each_other_are_told_and_nothing_is_touched() {
    let _turn = shared_turn();
    let place = Place::new();
    let apache = Apache::start_event(&place.path("server"), WORKERS);
    let before = apache.configuration();
    let port = apache.files.port.to_string();
    let program = env!("CARGO_BIN_EXE_webdyno");

    let began = Instant::now();
    let ended =
        run(place.webdyno().args(["check", "--port", &port, "--out", "seen", "--json", "-"])).with_code(0);
    let took = began.elapsed();
    let json = ended.json();
    assert_eq!(json["schema"], "webdyno/check/v1");
    assert!(json.get("run").is_none(), "{json:#}");
    assert!(ids(&json).contains(&"apache-setting-clamped"), "{json:#}");
    let all = json["findings"].as_array().unwrap();
    let clamped = all.iter().find(|finding| finding["id"] == "apache-setting-clamped").unwrap();
    let file = apache.mpm_conf.display().to_string();
    let summary = clamped["summary"].as_str().unwrap();
    assert!(summary.contains(&format!("155 ({file}:6)")) && summary.contains("150 workers"), "{summary}");
    assert_eq!(clamped["remedies"][0]["to"], 150);
    let ceilings = json["ceilings"].as_array().unwrap();
    let workers = ceilings.iter().find(|ceiling| ceiling["limit"] == "apache workers").unwrap();
    assert!(workers["max"].as_f64().unwrap() <= 160.0, "{workers:#}");
    assert!(workers["binds_at_rate"].is_null(), "nobody asks for anything: {workers:#}");
    // A look is five seconds; starting the agent and finding the service is the rest, on a machine with other work.
    assert!(took < Duration::from_secs(30), "{took:?}");

    let text = run(place.webdyno().args(["report", "seen"])).with_code(0).stdout;
    for part in
        ["Check: ", "(apache-setting-clamped, ", "Limits ahead", "apache workers", "diagnose --for 60s"]
    {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    assert!(place.path("seen/report.html").exists());

    // The same over a connection, with the exit code for those who watch with it.
    let server = format!("exec:{program} agent");
    let elsewhere = ["check", "--server", &server, "--url", &format!("http://127.0.0.1:{port}/")];
    let ended = run(place.webdyno().args(elsewhere).args(["--fail-on-fault", "--json", "-"])).with_code(3);
    assert_eq!(ids(&ended.json()), ids(&json));
    assert_eq!(apache.configuration(), before);
}

#[test]
fn what_is_wrong_is_told_before_anything_is_recorded() {
    let place = Place::new();
    for (arguments, code, message, hint) in [
        (&["--port", "1", "--url", "http://127.0.0.1/"][..], 2, "--url", "--help"),
        (&["--port", "1", "--csv", "-"], 2, "--csv is of a load, and check makes none", "--json"),
        (&["--url", "127.0.0.1"], 2, "is not a URL", "as in http://"),
        (&["--port", "1"], 1, "nothing listens on port 1", "ss -ltnp"),
        (&["--server", "exec:"], 2, "without a command", ""),
        (&["http://127.0.0.1/"], 2, "http://127.0.0.1/", "--help"),
    ] {
        run(place.webdyno().arg("check").args(arguments)).with_code(code).told(message, hint);
    }
    assert!(!place.path("webdyno-runs").exists());
}
