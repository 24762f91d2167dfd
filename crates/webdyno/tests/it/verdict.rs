//! What a run says of itself: tables of this machine that it fills, before and after it; and the same load several times.

use crate::support::{Place, Server, read_json, run, shared_turn, skip};
use std::process::Command;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: text/plain\r\n\r\nhello";

/// Says to the program of the tests, begun once more, that it is in a network of its own.
const OTHER_NETWORK: &str = "WEBDYNO_TEST_NETWORK";

/// A network with 400 local ports, in which closed connections keep theirs for a minute.
const NETWORK: &str = "ip link set lo up && echo 40000 40399 > /proc/sys/net/ipv4/ip_local_port_range && \
     echo 0 > /proc/sys/net/ipv4/tcp_tw_reuse";

/// Runs the test of this name once more in such a network; whether this is the run there.
fn in_a_small_network(test: &str) -> bool {
    if std::env::var_os(OTHER_NETWORK).is_some() {
        return true;
    }
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-n", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
        // Its turn is ours.
        command.env(OTHER_NETWORK, "1").env_remove("WEBDYNO_TEST_LOCK").output()
    };
    if !unshare(NETWORK).is_ok_and(|output| output.status.success()) {
        skip("no network of its own can be made here");
        return false;
    }
    let output = unshare(&format!("{NETWORK} && exec \"$0\" --exact {test} --nocapture")).unwrap();
    let reported = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && reported.contains("1 passed"), "{reported}");
    false
}

#[test]
fn a_run_that_fills_the_local_ports_has_measured_them() {
    let _turn = shared_turn();
    if !in_a_small_network("verdict::a_run_that_fills_the_local_ports_has_measured_them") {
        return;
    }
    let place = Place::new();
    // It leaves the close to the client, who then holds the port.
    let server = Server::answering(OK);
    let webdyno = |arguments: &[&str]| {
        run(place.webdyno().args(["run", &server.url(), "-t", "1", "-q"]).args(arguments))
    };
    // Before: more connections than ports are refused, a rate that may need more is warned of.
    webdyno(&["-c", "401", "-d", "1s"]).with_code(1).assert_error(
        "401 connections to one address need as many local ports, this machine has 400",
        "use -c 392 or fewer",
    );
    let warned = webdyno(&["-r", "50", "-d", "10s", "-n", "1", "--no-keepalive"]);
    assert!(
        !warned.stdout.contains("local ports, this machine"),
        "one request needs one port: {}",
        warned.stdout
    );
    // After: the load stops where the ports end.
    let ended = webdyno(&["-c", "4", "-d", "4s", "--no-keepalive", "--out", "run", "--json", "run.json"])
        .with_code(3);
    let json = read_json(place.path("run.json"));
    let client = &json["client"];
    assert_eq!(client["valid"], false);
    assert_eq!(client["kernel_limit_total"]["limit"], "net.ipv4.ip_local_port_range");
    let opened = client["kernel_limit_total"]["connections"].as_u64().unwrap();
    assert!((390..=400).contains(&opened), "{opened}");
    assert_eq!(client["local_ports"]["limit"], 400);
    assert!(client["local_ports"]["left_at_peak"].as_u64().unwrap() < 10, "{client}");
    assert!(json["errors"]["local_ports_exhausted"].as_u64().unwrap() > 0);
    assert!(ended.stdout.contains("the run measured a kernel table, not the server"), "{}", ended.stdout);
    let html = std::fs::read_to_string(place.path("run/report.html")).unwrap();
    assert!(html.contains("the run measured a kernel table, not the server"));
}

#[test]
fn a_rate_that_may_run_out_of_ports_is_warned_of() {
    if !in_a_small_network("verdict::a_rate_that_may_run_out_of_ports_is_warned_of") {
        return;
    }
    let place = Place::new();
    let server = Server::answering(OK);
    let load = ["run", &server.url(), "-r", "100", "-n", "401", "--no-keepalive", "-t", "1"];
    let ended = run(place.webdyno().args(load).args(["--out", "run"]));
    let warning = "100 new connections a second may need 401 local ports, this machine has 400";
    let log = std::fs::read_to_string(place.path("run/events.jsonl")).unwrap();
    let line =
        |kind: &str| log.lines().position(|line| line.contains(&format!("\"kind\":\"{kind}\""))).unwrap();
    assert!(ended.stderr.contains(warning), "{}", ended.stderr);
    assert!(log.contains(warning) && line("note") < line("interval"), "{log}");
}

#[test]
fn a_load_made_several_times_tells_how_far_the_runs_lie_apart() {
    let _turn = shared_turn();
    let place = Place::new();
    let server = Server::answering(OK);
    let load = ["run", &server.url(), "-r", "50", "-n", "50", "-c", "2", "-t", "1", "-q", "--repeat", "3"];
    let ended = run(place.webdyno().args(load).args(["--out", "run", "--json", "run.json"]));
    ended.with_code_in(&[0, 3]);
    let json = read_json(place.path("run.json"));
    let runs = json["repeats"]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    let rates: Vec<f64> = runs.iter().map(|run| run["rate"].as_f64().unwrap()).collect();
    let rate = &json["repeats"]["rate"];
    assert_eq!(rate["max"].as_f64(), rates.iter().copied().reduce(f64::max));
    assert!(rate["ci95"][0].as_f64().unwrap() <= rate["mean"].as_f64().unwrap());
    let compared = run(place.webdyno().args(["compare", "run", "run", "--json", "-"])).with_code(0).json();
    let valid = runs.iter().filter(|run| run["valid"] == true).count();
    assert_eq!(compared["a_runs"], valid.max(1));
    assert_eq!(compared["intervals_from"], if valid >= 3 { "runs" } else { "seconds" }, "{compared:#}");
    // The report is of one of them, as it was.
    let chosen = json["repeats"]["chosen"].as_u64().unwrap() as usize;
    assert_eq!(json["rate"].as_f64(), Some(rates[chosen - 1]));
    assert_eq!(json["requests"]["completed"], 50);
    let again = run(place.webdyno().args(["report", "run", "--json", "-"])).with_code(0);
    assert_eq!(again.stdout, std::fs::read_to_string(place.path("run.json")).unwrap());
    let once = run(place.webdyno().args(["run", &server.url(), "-n", "5", "-q", "--json", "-"]));
    assert_eq!(once.with_code_in(&[0, 3]).json()["repeats"], serde_json::Value::Null);
    run(place.webdyno().args(["run", &server.url(), "--repeat", "0"])).with_code(2);
}
