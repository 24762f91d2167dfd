//! Loads that change over time, from the command line to the report; and loads that end as an objective is lost. What is
//! asserted follows from the command alone: starts are counted by when they are due, whatever keeps the processors.

use crate::support::{Place, Server, run, shared_turn};
use serde_json::Value;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const ERROR: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

/// The events of a kind, in order.
fn events(place: &Place, kind: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(place.path("out").join("events.jsonl")).unwrap();
    let all = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|event| event["kind"] == kind).collect()
}

/// Runs `webdyno run URL ...` into `out`; the exit code is one of these.
fn load(place: &Place, server: &Server, arguments: &[&str], codes: &[i32]) -> Value {
    let (url, out) = (server.url(), place.path("out").display().to_string());
    let common = ["run", &url, "-t", "1", "-q", "--json", "-", "--out", &out];
    run(place.webdyno().args(common.iter().chain(arguments))).with_code_in(codes).json()
}

#[test]
fn stages_are_kept_and_only_the_middle_is_measured() {
    let _turn = shared_turn();
    let (place, server) = (Place::new(), Server::answering(OK));
    let stages = ["--stage", "1s@0..40/s", "--stage", "2s@40/s", "--stage", "1s@40..0/s", "-c", "8"];
    let json = load(&place, &server, &stages, &[0, 3]);
    let started: Vec<u64> = events(&place, "interval")
        .iter()
        .map(|event| event["interval"]["started"].as_u64().unwrap())
        .collect();
    assert_eq!(started, [20, 40, 40, 20]);
    assert_eq!(json["workload"]["arrival"]["rate_per_s"], 40.0);
    assert_eq!((&json["warmup_s"], &json["warmup_why"]), (&1.0.into(), &"ramp-up".into()));
    assert_eq!((&json["elapsed_s"], &json["ramp_down_s"]), (&2.0.into(), &1.0.into()));
    let seconds: Vec<f64> =
        json["intervals"].as_array().unwrap().iter().map(|second| second["t_s"].as_f64().unwrap()).collect();
    assert_eq!(seconds, [1.0, 2.0]);
    // What was in flight when the measured part ended is not known to have waited for any time.
    assert_eq!(json["censored_time_us"]["count"], 0);
    let text = run(place.webdyno().args(["report"]).arg(place.path("out"))).with_code(0).stdout;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("ramp-up 1 s, measured 2 s, ramp-down 1 s"), "{text}");
}

#[test]
fn each_run_of_several_has_its_ramps() {
    let _turn = shared_turn();
    let (place, server) = (Place::new(), Server::answering(OK));
    let ramps = ["-c", "2", "--ramp", "1s", "-d", "1s", "--ramp-down", "1s", "--repeat", "2"];
    let json = load(&place, &server, &ramps, &[0, 3]);
    let runs = json["repeats"]["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(|run| &run["warmup_s"]).collect::<Vec<_>>(), [1.0, 1.0]);
    assert_eq!((&json["elapsed_s"], &json["ramp_down_s"]), (&1.0.into(), &1.0.into()));
    for end in events(&place, "load_end") {
        assert_eq!((&end["measured_from_s"], &end["measured_to_s"]), (&1.0.into(), &2.0.into()));
        assert_eq!(
            (&end["end"]["reason"], &end["end"]["elapsed_us"]),
            (&"duration".into(), &3_000_000.into())
        );
    }
}

#[test]
fn a_run_ends_when_an_objective_is_lost() {
    let _turn = shared_turn();
    let (place, server) = (Place::new(), Server::answering(ERROR));
    let lost = ["-r", "20", "-d", "10m", "--repeat", "3", "--slo", "errors<1%"];
    let json = load(&place, &server, &lost, &[3]);
    let ends = events(&place, "load_end");
    assert_eq!(ends.len(), 1, "no further run is made");
    assert_eq!(ends[0]["end"]["reason"], "objective_lost");
    let noted = events(&place, "note").into_iter().any(|note| {
        note["text"].as_str().unwrap().contains("errors<1% cannot be met any more, whatever follows: 1")
    });
    assert!(noted, "{:?}", events(&place, "note"));
    assert_eq!(json["objectives"][0]["met"], false);
}

#[test]
fn a_run_goes_to_the_end_when_it_is_told_to() {
    let _turn = shared_turn();
    let (place, server) = (Place::new(), Server::answering(ERROR));
    let reported = ["-r", "20", "-d", "6500ms", "--no-early-stop", "--slo", "errors<1%"];
    let json = load(&place, &server, &reported, &[3]);
    assert_eq!(events(&place, "load_end")[0]["end"]["reason"], "duration");
    assert_eq!(json["objectives"][0]["met"], false);
}
