//! `webdyno compare` and `webdyno history` on recordings of the program's own.

use crate::support::{Ended, Place, Server, read_json, run, shared_turn};
use std::path::Path;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const ERROR: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";

fn record(place: &Place, server: &Server, flags: &[&str], out: &str) {
    let load = ["run", &server.url(), "-t", "1", "-q", "--out", out];
    run(place.webdyno().args(load).args(flags)).with_code_in(&[0, 3]);
}

fn compare(place: &Place, words: &[&str]) -> Ended {
    run(place.webdyno().arg("compare").args(words))
}

fn verdict<'a>(json: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let metrics = json["metrics"].as_array().unwrap();
    metrics.iter().find(|metric| metric["name"] == name).unwrap_or(&serde_json::Value::Null)
}

#[test]
fn recordings_are_compared_and_listed() {
    let _turn = shared_turn();
    let place = Place::new();
    let (good, bad) = (Server::answering(OK), Server::answering(ERROR));
    let paced = ["-r", "100", "-d", "3s", "--warmup", "0s"];
    record(&place, &good, &paced, "webdyno-runs/a");
    record(&place, &bad, &paced, "webdyno-runs/b");
    let (a, b) = ("webdyno-runs/a", "webdyno-runs/b");

    let same = compare(&place, &[a, a, "--max-regression", "0%", "--json", "-"]).with_code(0).json();
    assert_eq!((&same["schema"], &same["a"]), (&"webdyno/compare/v1".into(), &a.into()));
    assert_eq!(verdict(&same, "rate")["verdict"], "same", "{same:#}");
    assert_eq!(verdict(&same, "p99_us")["ratio"], 1.0, "{same:#}");

    let failing = compare(&place, &[a, b, "--max-regression", "5%"]).with_code(3);
    assert!(failing.stdout.starts_with("B serves no requests; A served "), "{}", failing.stdout);
    assert!(
        failing.stdout.contains("REGRESSION beyond 5%: successful requests, failed requests"),
        "{}",
        failing.stdout
    );
    assert!(failing.stdout.contains("- url: A http://127.0.0.1:"), "{}", failing.stdout);
    let json = compare(&place, &[a, b, "--json", "c.json"]).with_code(0);
    assert!(
        json.stdout.starts_with("B serves no requests"),
        "a file leaves the text where it is: {}",
        json.stdout
    );
    let json = read_json(place.path("c.json"));
    assert_eq!((&json["comparable"], &json["regressions"]), (&false.into(), &serde_json::json!([])));
    assert_eq!(verdict(&json, "failed_fraction")["b"], 1.0, "{json:#}");

    std::fs::create_dir(place.path("webdyno-runs/broken")).unwrap();
    std::fs::write(place.path("webdyno-runs/broken/events.jsonl"), "garbage\n").unwrap();
    for _ in 0..2 {
        let listed = run(place.webdyno().arg("history")).with_code(0).stdout;
        let lines: Vec<&str> = listed.lines().collect();
        assert_eq!(lines.len(), 4, "{listed}");
        assert!(lines[1].contains(" run ") && lines[1].ends_with(b), "{listed}");
        assert!(lines[2].contains(&good.url()) && lines[2].ends_with(a), "{listed}");
        assert!(lines[3].contains("damaged") && lines[3].contains("line 1"), "{listed}");
    }
    assert!(place.path("webdyno-runs/.webdyno-index").exists());
    let json = run(place.webdyno().args(["history", "webdyno-runs", "--json", "-"])).with_code(0).json();
    assert_eq!(
        (&json["schema"], json["sessions"].as_array().unwrap().len()),
        (&"webdyno/history/v1".into(), 3)
    );
}

#[test]
fn a_tuning_alone_is_its_baseline_against_its_best_load() {
    let place = Place::new();
    let tune = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/recordings/v0.1.0-tune");
    let tune = tune.to_str().unwrap();
    let text = compare(&place, &[tune]).with_code(0).stdout;
    assert!(text.starts_with("B serves 3.0x the rate of A"), "{text}");
    assert!(text.contains(", load 1, the baseline") && text.contains(", the best"), "{text}");
    let json = compare(&place, &[tune, "--json", "-"]).with_code(0).json();
    assert_eq!(
        (&verdict(&json, "rate")["verdict"], &json["comparable"]),
        (&"better".into(), &true.into()),
        "{json:#}"
    );
    // With another one it is its best load.
    let both = compare(&place, &[tune, tune, "--json", "-"]).with_code(0).json();
    assert_eq!((&both["a_load"], &both["b_load"]), (&json["b_load"], &json["b_load"]));
}

#[test]
fn directories_that_cannot_be_compared_or_listed_are_told() {
    let _turn = shared_turn();
    let place = Place::new();
    let server = Server::answering(OK);
    record(&place, &server, &["-n", "20", "-c", "2"], "a");
    compare(&place, &["a", "missing"])
        .with_code(1)
        .assert_error("missing/events.jsonl", "directory of a run");
    compare(&place, &["a"])
        .with_code(2)
        .assert_error("a is no tuning that came to its end", "webdyno compare A B");
    compare(&place, &["a", "a", "--max-regression", "5"])
        .with_code(2)
        .assert_error("as 5%", "--max-regression");
    compare(&place, &["a", "a", "--json", "missing/x"])
        .with_code(1)
        .assert_error("missing/x", "--json takes a file");
    std::fs::create_dir(place.path("broken")).unwrap();
    std::fs::write(place.path("broken/events.jsonl"), "garbage\n").unwrap();
    compare(&place, &["a", "broken"]).with_code(2).assert_error("line 1", "damaged");
    run(place.webdyno().args(["history", "a"]))
        .with_code(2)
        .assert_error("a is one session", "webdyno report DIR");
    run(place.webdyno().args(["history", "none"]))
        .with_code(1)
        .assert_error("cannot read none", "webdyno run URL");
}
