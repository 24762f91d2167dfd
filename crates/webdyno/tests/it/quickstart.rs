//! The main job: `webdyno quickstart` from start to end.

use crate::disturbance::{measured, measured_unshielded};
use crate::support::{Place, read_json, run, shared_turn, turn};

#[test]
fn the_main_job_finds_lifts_and_proves() {
    let _turn = turn();
    // The promise is for a machine that does nothing else.
    measured_unshielded(the_main_job);
}

fn the_main_job(place: &Place) {
    let began = std::time::Instant::now();
    let ended = run(place.webdyno().args(["quickstart", "--out", "q", "--json", "q.json"])).with_code(0);
    assert!(began.elapsed().as_secs() < 90, "it is promised to be over within 90 s: {:?}", began.elapsed());
    let json = read_json(place.path("q.json"));
    assert_eq!(json["schema"], "webdyno/tune/v1");
    assert_eq!(json["rounds"][0]["finding"], "apache-workers-exhausted", "{json:#}");
    assert_eq!(json["rounds"][0]["kept"], true);
    assert!(json["improvement"]["ratio"].as_f64().unwrap() >= 1.8, "{json:#}");
    assert!(json["improvement"]["ci95"][0].as_f64().unwrap() > 1.5, "{json:#}");
    assert!(ended.stderr.contains("s left"), "no progress with time left:\n{}", ended.stderr);
    assert!(ended.stdout.contains("report.html"), "{}", ended.stdout);
    let html = std::fs::read_to_string(place.path("q/report.html")).unwrap();
    assert!(html.contains("\"kind\":\"plots\"") && html.contains("MaxRequestWorkers"));
    assert!(!place.path("q/apache/run/apache2.pid").exists(), "the private Apache still runs");
    let again: Vec<_> = (0..2)
        .map(|_| run(place.webdyno().args(["report", "q", "--json", "-"])).with_code(0).stdout)
        .collect();
    assert_eq!(again[0], again[1]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&again[0]).unwrap(), json);
    assert!(run(place.webdyno().arg("rollback")).with_code(0).stdout.contains("Nothing to roll back"));
}

#[test]
fn a_goal_that_is_met_at_once_ends_it_without_a_change() {
    let _turn = shared_turn();
    measured(|place| {
        let ended = run(place.webdyno().args([
            "quickstart",
            "--goal",
            // A tenth of what it serves: slow machines meet it, too.
            "10 req/s",
            "-q",
            "--out",
            "q",
            "--json",
            "-",
        ]));
        let json = ended.with_code(0).json();
        assert_eq!(
            (json["goal_met"].as_bool(), json["rounds"].as_array().map(Vec::len)),
            (Some(true), Some(0)),
            "{json:#}"
        );
        assert_eq!(json["state"], "reverted");
    });
}
