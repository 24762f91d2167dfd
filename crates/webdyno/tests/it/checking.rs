//! Checking a server without traffic, as its users meet it: a real Apache whose settings contradict each other.

use crate::skip::needs;
use crate::support::{Apache, Place, run, shared_turn};
use crate::traced::{changes, has_strace};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
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
        ["Check: ", "(apache-setting-clamped)", "Limits ahead", "apache workers", "diagnose --for 60s"]
    {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    assert!(place.path("seen/report.html").exists());

    // The same over a connection, with the exit code for those who watch with it.
    let server = format!("exec:{program} agent");
    let elsewhere = ["check", "--server", &server, "--url", &format!("http://127.0.0.1:{port}/")];
    let failing = ["--fail-on-fault", "--out", "all/fault", "--json", "-"];
    let ended = run(place.webdyno().args(elsewhere).args(failing)).with_code(3);
    assert_eq!(ids(&ended.json()), ids(&json));
    let listed = run(place.webdyno().args(["history", "all", "--json", "-"])).with_code(0).json();
    assert_eq!(listed["sessions"][0]["state"], "not met", "{listed:#}");
    assert_eq!(apache.configuration(), before);
}

/// What fails comes before what is slow, and that by how sure it is; text and JSON have one order.
#[test]
fn the_worst_comes_first() {
    let _turn = shared_turn();
    let place = Place::new();
    let folder = place.path("server");
    let apache = Apache::event_files(&folder, WORKERS);
    std::fs::write(
        apache.files.root.join("conf-enabled/more.conf"),
        "ListenBacklog 1000000\nLogLevel debug\n",
    )
    .unwrap();
    let apache = apache.started();
    let port = apache.files.port.to_string();
    let check = ["check", "--port", &port, "--out", "seen", "--json", "-"];
    let json = run(place.webdyno().args(check)).with_code(0).json();
    assert_eq!(ids(&json), ["accept-queue-overflow", "apache-setting-clamped", "log-verbosity"], "{json:#}");
    assert_eq!(json["bottleneck"], "accept-queue-overflow");
    let text = run(place.webdyno().args(["report", "seen"])).with_code(0).stdout;
    assert!(text.starts_with("Check: 3 settings contradict others, worst first\n"), "{text}");
    let places: Vec<usize> = ids(&json).iter().map(|id| text.find(&format!("({id})")).unwrap()).collect();
    assert!(places.is_sorted(), "{text}");
}

/// That there is nothing to mend is an answer of its own, and no fault.
#[test]
fn a_sound_server_is_called_sound() {
    let _turn = shared_turn();
    let place = Place::new();
    let apache = Apache::start_event(&place.path("server"), 150);
    let port = apache.files.port.to_string();
    let check = ["check", "--port", &port, "--fail-on-fault"];
    let json = run(place.webdyno().args(check).args(["--json", "-", "--out", "seen"])).with_code(0).json();
    assert_eq!(ids(&json), ["healthy"], "{json:#}");
    assert_eq!(json["bottleneck"], "healthy");
    let text = run(place.webdyno().args(check).arg("-v")).with_code(0).stdout;
    assert!(text.starts_with("Check: no contradictions between settings\n"), "{text}");
    assert!(!text.contains("Change:"), "{text}");
    // What nobody has to do anything about is told in one place.
    assert_eq!(text.matches("no action needed: ").count(), 1, "{text}");
    assert!(!text.contains("To enable: nothing"), "{text}");
}

/// Of all that runs for a check only what is asked for is written: the run directory, and a folder of its own meanwhile.
#[test]
fn nothing_is_written_on_the_server() {
    let _turn = shared_turn();
    needs!(has_strace());
    let place = Place::new();
    let apache = Apache::start_event(&place.path("server"), WORKERS);
    let port = apache.files.port.to_string();
    let words =
        [env!("CARGO_BIN_EXE_webdyno"), "check", "--port", &port, "--out", "seen", "--json", "told.json"];
    let prepare = |command: &mut Command| {
        command.env("WEBDYNO_STATE", place.path("state")).current_dir(place.path(""));
    };
    let ours = ["seen", "told.json"].map(|name| place.path(name));
    // As they are named where the working directory is the place.
    let relative = [Path::new("seen"), Path::new("told.json")];
    let places: Vec<&Path> = ours.iter().map(PathBuf::as_path).chain(relative).collect();
    let (output, written) = changes(words, prepare, &places);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(written.is_empty(), "{}", written.join("\n"));
    let reported = std::fs::read_to_string(place.path("told.json")).unwrap();
    assert!(reported.contains("apache-setting-clamped"), "{reported}");
    assert!(!place.path("state").exists());
}

#[test]
fn what_is_wrong_is_told_before_anything_is_recorded() {
    let place = Place::new();
    for (arguments, code, message, hint) in [
        (&["--port", "1", "--url", "http://127.0.0.1/"][..], 2, "--url", "--help"),
        (&["--port", "1", "--csv", "-"], 2, "--csv is for a load, and check makes none", "--json"),
        (&["--url", "127.0.0.1"], 2, "is not a URL", "as in http://"),
        (&["--port", "1"], 1, "nothing listens on port 1", "ss -ltnp"),
        (&["--server", "exec:"], 2, "without a command", ""),
        (&["http://127.0.0.1/"], 2, "takes no `http://127.0.0.1/`", "check --url http://127.0.0.1/"),
        (&["web1"], 2, "takes no `web1`", "--server ssh://HOST"),
        (&["--port", "70000"], 2, "--port wants a whole number from 1 to 65535", "--help"),
        (&["--url", "ftp://127.0.0.1/"], 2, "speaks http and https, not ftp", "as in http://"),
        (&["--url", "http://127.0.0.1:1/"], 1, "nothing listens on port 1", "ss -ltnp"),
        // Nobody's name (RFC 6761), and nobody's address (RFC 5737).
        (&["--url", "http://nobody.invalid/"], 1, "cannot resolve nobody.invalid", "--port N"),
        (&["--url", "http://192.0.2.1/"], 2, "192.0.2.1 is not this machine", "--server ssh://192.0.2.1"),
        (&["--server", "nobody"], 2, "`nobody` is not a server", "ssh://HOST"),
        (&["--server", "exec:false"], 1, "no agent could be started there", "`webdyno agent`"),
        (&["--port", "1", "--json", "absent/x"], 1, "cannot write absent/x", "--json"),
    ] {
        run(place.webdyno().arg("check").args(arguments)).with_code(code).assert_error(message, hint);
    }
    assert!(!place.path("webdyno-runs").exists());
}
