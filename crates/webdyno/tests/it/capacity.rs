//! `webdyno capacity` on a real Apache with one worker whose page holds it for a fixed time: the capacity is known.

use crate::support::{Apache, Place, run, shared_turn};
use serde_json::Value;

/// The page of the private Apache holds its worker for 200 ms, and each tenth of a second of that is ten times as long as what a busy
/// machine adds. One worker serves 5 requests a second.
const SERVICE_S: f64 = 0.2;

fn apache(place: &Place) -> Apache {
    Apache::start(&place.path("server"), 1)
}

fn found(place: &Place, apache: &Apache, flags: &[&str], code: i32) -> Value {
    let url = apache.url();
    let capacity = ["capacity", &url, "--no-keepalive", "-q", "--json", "-", "--budget", "12s"];
    run(place.webdyno().args([&capacity[..], flags].concat())).with_code(code).json()
}

/// The interval contains a load, give or take a quarter: what a loaded machine adds makes the server slower.
fn assert_near(json: &Value, truth: f64) {
    let rate = json["rate"].as_f64().unwrap();
    assert!((0.5 * truth..=1.25 * truth).contains(&rate), "{truth}: {json:#}");
    let highest = json["steps"].as_array().unwrap().iter().filter_map(|step| step["offered"].as_f64());
    assert!(highest.fold(0.0, f64::max) <= 2.0 * truth, "{json:#}");
}

#[test]
fn one_worker_of_a_fixed_time_has_a_known_capacity() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let apache = apache(&place);
    let before = apache.configuration();
    let json = found(&place, &apache, &["--slo", "p95<900ms", "--start", "3.5"], 0);
    assert_near(&json, 1.0 / SERVICE_S);
    assert_eq!(
        (&json["schema"], &json["unit"]),
        (&"webdyno/capacity/v1".into(), &"requests_per_second".into())
    );
    assert_eq!(apache.configuration(), before);
}

/// N users who think Z wait N S - Z: with Z = 1 s and 900 ms at most, that are 9 of them.
#[test]
fn users_who_think_are_counted() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let apache = apache(&place);
    let users = ["--users", "5", "--think", "1s", "--slo", "p95<900ms"];
    let json = found(&place, &apache, &users, 0);
    assert_near(&json, (0.9 + 1.0) / SERVICE_S);
    assert_eq!(json["unit"], "users");
}

#[test]
fn pages_are_counted_as_pages() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let apache = apache(&place);
    let json = found(&place, &apache, &["--page", "--slo", "page: p95<900ms", "--start", "3.5"], 0);
    assert_near(&json, 1.0 / SERVICE_S);
    assert_eq!(json["unit"], "pages_per_second");
}

#[test]
fn an_objective_that_the_lowest_rate_misses_is_said() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let apache = apache(&place);
    let url = apache.url();
    let capacity =
        ["capacity", &url, "--no-keepalive", "-q", "--slo", "p50<20ms", "--start", "2", "--budget", "12s"];
    let ended = run(place.webdyno().args(capacity)).with_code(3);
    assert!(ended.stdout.contains("no capacity: the lowest load misses the objectives"), "{}", ended.stdout);
    assert!(ended.stdout.contains("p50<20ms"), "{}", ended.stdout);
}
