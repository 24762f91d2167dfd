//! A real Apache of the operator's: diagnosed, planned for, tuned by reload, and rolled back to the byte.

use crate::disturbance::measured;
use crate::ports::free_port;
use crate::skip::needs;
use crate::support::{Apache, Place, can_mount, is_alive, run, shared_turn, signal, snapshot};
use rustix::process::Signal;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Sixty users on twenty workers: a reload suffices to lift the limit, and it is found within seconds.
const LOAD: [&str; 6] = ["-c", "60", "--no-keepalive", "-d", "5s", "-q"];

#[test]
fn exhausted_workers_are_named_and_nothing_is_touched() {
    let _turn = shared_turn();
    measured(|place| {
        let (apache, before) = Apache::placed_at(place);
        let ended = run(place.webdyno().args(["diagnose", &apache.url()]).args(LOAD).args(["--json", "-"]))
            .with_code(0);
        let json = ended.json();
        assert_eq!(json["bottleneck"], "apache-workers-exhausted", "{json:#}");
        let finding = &json["findings"][0];
        assert!(finding["confidence"].as_f64().unwrap() >= 0.8);
        for fact in finding["facts"].as_array().unwrap() {
            assert!(fact["unit"].as_str().is_some_and(|unit| !unit.is_empty()), "{fact}");
            assert!(fact["reproduce"].as_str().is_some_and(|command| !command.is_empty()), "{fact}");
        }
        assert_eq!(finding["remedies"][0]["setting"], "MaxRequestWorkers");
        assert_eq!(apache.configuration(), before);
        let fault = run(place.webdyno().args(["diagnose", &apache.url(), "--fail-on-fault"]).args(LOAD));
        fault.with_code(3);
    });
}

#[test]
fn a_plan_is_a_diff_and_changes_nothing() {
    let _turn = shared_turn();
    let (place, apache, before) = Apache::placed();
    let ended = run(place.webdyno().args(["tune", &apache.url()]).args(LOAD)).with_code(0);
    assert!(
        ended.stdout.contains("+MaxRequestWorkers") || ended.stdout.contains("+    MaxRequestWorkers"),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.contains("--apply"), "{}", ended.stdout);
    apache.assert_unchanged(&before);
}

#[test]
fn tuning_by_reload_is_proven_kept_and_rolled_back() {
    let _turn = shared_turn();
    measured(|place| {
        let (apache, before) = Apache::placed_at(place);
        let pid = apache.pid();
        let arguments = ["--apply", "--goal", "200 req/s", "--out", "tuned", "--json", "-"];
        let json =
            run(place.webdyno().args(["tune", &apache.url()]).args(LOAD).args(arguments)).with_code(0).json();
        assert_eq!(
            (json["state"].as_str(), json["goal_met"].as_bool()),
            (Some("applied"), Some(true)),
            "{json:#}"
        );
        let round = &json["rounds"][0];
        assert_eq!(
            (round["finding"].as_str(), round["verdict"].as_str()),
            (Some("apache-workers-exhausted"), Some("better"))
        );
        assert_eq!(round["changes"][0]["class"], "reload");
        assert!(json["improvement"]["ci95"][0].as_f64().unwrap() > 1.5, "{json:#}");
        assert_eq!(apache.pid(), pid, "a reload must not replace the parent");
        assert!(apache.scoreboard().len() >= 60, "{}", apache.scoreboard());
        let report = run(place.webdyno().args(["report", "tuned", "--json", "-"])).with_code(0).json();
        assert_eq!(report, json);
        let undone = run(place.webdyno().arg("rollback")).with_code(0);
        assert!(undone.stdout.contains("zzz-webdyno.conf"), "{}", undone.stdout);
        apache.assert_unchanged(&before);
        assert!(run(place.webdyno().arg("rollback")).with_code(0).stdout.contains("Nothing to roll back"));
        // The same again: what is left of the old generation in the scoreboard must not be taken for workers, and only a restart makes room
        // for more of them (AH00167).
        let plan = run(place.webdyno().args(["tune", &apache.url()]).args(LOAD).args(["--json", "-"]))
            .with_code(0)
            .json();
        let change = &plan["rounds"][0]["changes"][0];
        assert_eq!(
            (change["from"].as_i64(), change["class"].as_str()),
            (Some(20), Some("restart")),
            "{plan:#}"
        );
    });
}

/// With kept connections the status page starves behind them: the view from outside must do.
#[test]
fn kept_connections_hide_nothing() {
    let _turn = shared_turn();
    measured(|place| {
        for (name, apache) in [
            ("prefork", Apache::start(&place.path("prefork"), 20)),
            ("event", Apache::start_event(&place.path("event"), 20)),
        ] {
            for extra in [&[][..], &["--no-keepalive"]] {
                let load = ["-c", "60", "-d", "6s", "-q", "--json", "-"];
                let json = run(place.webdyno().args(["diagnose", &apache.url()]).args(load).args(extra))
                    .with_code(0)
                    .json();
                assert_eq!(json["bottleneck"], "apache-workers-exhausted", "{name} {extra:?}: {json:#}");
            }
        }
    });
}

#[test]
fn threads_are_tuned_in_whole_processes() {
    let _turn = shared_turn();
    measured(|place| {
        let apache = Apache::start_event(&place.path("server"), 20);
        let before = apache.configuration();
        let arguments = ["--apply", "--goal", "200 req/s", "--json", "-"];
        let json =
            run(place.webdyno().args(["tune", &apache.url()]).args(LOAD).args(arguments)).with_code(0).json();
        assert_eq!(
            (json["state"].as_str(), json["goal_met"].as_bool()),
            (Some("applied"), Some(true)),
            "{json:#}"
        );
        let change = &json["rounds"][0]["changes"][0];
        assert_eq!(
            (change["setting"].as_str(), change["class"].as_str()),
            (Some("MaxRequestWorkers"), Some("reload"))
        );
        assert_eq!(change["to"].as_i64().unwrap() % 10, 0);
        run(place.webdyno().arg("rollback")).with_code(0);
        assert_eq!(apache.configuration(), before);
    });
}

/// At a rate that the server cannot keep, the plan is for that rate, not for what piled up in the generator.
#[test]
fn an_overload_at_a_given_rate_is_planned_for_that_rate() {
    let _turn = shared_turn();
    measured(|place| {
        let (apache, _) = Apache::placed_at(place);
        let load = ["-r", "150", "-c", "200", "--no-keepalive", "-d", "8s", "-q", "--json", "-"];
        let json = run(place.webdyno().args(["tune", &apache.url()]).args(load)).with_code(0).json();
        let round = &json["rounds"][0];
        assert_eq!(round["finding"], "apache-workers-exhausted", "{json:#}");
        // 150/s x 0.2 s = 30 workers, plus headroom.
        let to = round["changes"][0]["to"].as_i64().unwrap();
        assert!((32..=60).contains(&to), "{json:#}");
        assert!(round["predicted"]["rate"].as_f64().unwrap() <= 151.0, "{json:#}");
    });
}

#[test]
fn a_restart_needs_leave() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let apache = Apache::start_bounded(&place.path("server"), 20);
    let before = apache.configuration();
    let ended = run(place.webdyno().args(["tune", &apache.url(), "--apply"]).args(LOAD));
    let ended = ended.with_code_in(&[0, 3]);
    assert!(ended.stdout.contains("--allow-restart"), "{}", ended.stdout);
    assert_eq!(apache.configuration(), before);
}

#[test]
fn files_that_may_not_be_written_are_told_and_nothing_stays() {
    let _turn = shared_turn();
    let place = Place::shielded();
    needs!(can_mount(), "a read-only directory cannot be mounted here");
    let apache = Apache::start(&place.path("server"), 20);
    let before = apache.configuration();
    // Read-only for the program alone, in a mount namespace of its own: root may write everywhere else.
    let script = format!(
        "cat /proc/stat > stat && mount --bind stat /proc/stat && mount --bind {0} {0} \
         && mount -o remount,bind,ro {0} && exec {1} tune {2} --apply {3}",
        apache.files.root.display(),
        assert_cmd::cargo::cargo_bin("webdyno").display(),
        apache.url(),
        LOAD.join(" ")
    );
    let mut command = assert_cmd::Command::new("unshare");
    command
        .args(["-m", "sh", "-c", &script])
        .env("WEBDYNO_STATE", place.path("state"))
        .current_dir(place.path(""));
    let ended = run(&mut command).with_code(0);
    for part in ["not done: cannot write", "file system is read-only", "No change was kept"] {
        assert!(ended.stdout.replace("\n    ", " ").contains(part), "{part}: {}", ended.stdout);
    }
    apache.assert_unchanged(&before);
}

#[test]
fn without_a_status_page_the_sockets_and_processes_tell() {
    let _turn = shared_turn();
    measured(|place| {
        let (apache, _) = Apache::placed_at(place);
        std::fs::write(apache.files.root.join("mods-enabled/status.conf"), "").unwrap();
        run(assert_cmd::Command::new(&apache.files.command[0])
            .args(&apache.files.command[1..3])
            .args(["-k", "restart"]))
        .with_code(0);
        std::thread::sleep(Duration::from_secs(1));
        let ended = run(place.webdyno().args(["diagnose", &apache.url()]).args(LOAD).args(["--json", "-"]))
            .with_code(0);
        let json = ended.json();
        assert_eq!(json["bottleneck"], "apache-workers-exhausted", "{json:#}");
        let missing = json["missing"]
            .as_array()
            .unwrap()
            .iter()
            .find(|missing| missing["signal"] == "mod_status")
            .unwrap();
        assert!(missing["how_to_enable"].as_str().unwrap().contains("server-status"), "{missing}");
    });
}

#[test]
fn a_server_that_is_not_apache_is_observed_and_left_alone() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let server = OtherServer::start(&place);
    let url = format!("http://127.0.0.1:{}/", server.port);
    // So few that a machine whose processors others hold answers them in time: at fifty a second a server of one thread that gets half
    // a processor has a queue, and that is a finding of its own.
    let load = ["-r", "5", "-d", "4s", "-t", "1", "-q", "--json", "-"];
    let json = run(place.webdyno().args(["diagnose", &url]).args(load)).with_code_in(&[0, 3]).json();
    // Other tests are at work on the same processors; and this server ends every connection, which then takes most of the time.
    let of_any_machine = [
        "healthy",
        "unknown",
        "cpu-saturated",
        "cpu-stolen",
        "foreign-load",
        "generator-saturated",
        "keepalive-ineffective",
    ];
    assert!(of_any_machine.contains(&json["bottleneck"].as_str().unwrap()), "{json:#}");
    let json = run(place.webdyno().args(["tune", &url, "--apply"]).args(load)).with_code_in(&[0, 3]).json();
    assert_eq!(json["state"], "reverted", "{json:#}");
    assert_eq!(json["rounds"].as_array().unwrap().len(), 0);
}

/// A program of its own: a thread of this one would have behind it whatever other tests are connected to.
struct OtherServer {
    process: Child,
    port: u16,
}

impl OtherServer {
    fn start(place: &Place) -> Self {
        std::fs::write(place.path("index.html"), "hi").unwrap();
        let port = free_port();
        let mut command = Command::new("python3");
        // Its own queue holds five connections, which a moment without a processor fills: dropped ones are a finding, too.
        let server = format!(
            "import http.server as s; s.ThreadingHTTPServer.request_queue_size = 511; \
             s.ThreadingHTTPServer(('127.0.0.1', {port}), s.SimpleHTTPRequestHandler).serve_forever()"
        );
        command.args(["-c", &server]);
        command.current_dir(place.path("")).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { process: command.spawn().unwrap(), port };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "the server does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }
}

impl Drop for OtherServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_traffic_that_is_there_is_diagnosed_without_load() {
    let _turn = shared_turn();
    measured(|place| {
        let (apache, _) = Apache::placed_at(place);
        let port = apache.files.port.to_string();
        let before = snapshot(&apache.files.root);
        // Longer than the busiest machine takes to look: they are sent home then.
        let users = place.child(&["run", &apache.url(), "-c", "60", "--no-keepalive", "-d", "60s", "-q"]);
        std::thread::sleep(Duration::from_secs(6));
        let json =
            run(place.webdyno().args(["diagnose", "--for", "5s", "--port", &port, "-q", "--json", "-"]))
                .with_code(0)
                .json();
        assert_eq!(json["bottleneck"], "apache-workers-exhausted", "{json:#}");
        assert_eq!(json["run"], serde_json::Value::Null);
        assert_eq!(snapshot(&apache.files.root), before);
        let users_pid = users.id();
        assert!(is_alive(users_pid), "nobody looked at their traffic to the end");
        signal(users_pid, Signal::INT);
        drop(users.wait_with_output());
        assert!(!is_alive(users_pid));
    });
}
