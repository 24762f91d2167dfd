//! Scenarios are run: an Apache of Debian's is built, loaded, mended by hand and judged; and what is wrong is told before
//! anything is built.

use crate::skip::needs;
use crate::support::{Place, can_mount, read_json, run, shared_turn};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Few workers, then more. Its figures are not judged: other tests run meanwhile.
const SCENARIO: &str = r#"
title = "Too few workers"
group = "fault"
story = "Visitors wait."

[[services]]
program = "apache"
mpm = "prefork"

[load]
urls = ["http://server/", "http://server/index.html"]
flags = "-r 50 -c 4 -d 2s --warmup 0s"

[[rounds]]
name = "as found"
finding = "healthy"
binds = [
    { metric = "load.completed_count", at_least = 1 },
    { metric = "sockets.allocated_count", at_least = 1 },
]

[[rounds]]
name = "Mended: less is logged"
by_hand = ["echo 'LogLevel error' > /etc/apache2/conf-enabled/less.conf", "apache2 -k graceful"]
by_hand_on = { client = ["getent hosts server > typed"] }
finding = "healthy"
gains = [{ at_least = 0.00001 }]
"#;

/// A place with a scenario whose name nobody else has: control groups are everybody's.
fn place(text: &str) -> (Place, String) {
    let place = Place::new();
    let name = format!("run-{}", std::fs::metadata(place.path(".")).unwrap().ino());
    std::fs::create_dir_all(place.path("scenarios").join(&name)).unwrap();
    std::fs::write(place.path("scenarios").join(&name).join("scenario.toml"), text).unwrap();
    (place, name)
}

fn lab(place: &Place, words: &[&str]) -> assert_cmd::Command {
    let mut command = place.webdyno();
    command.args(["lab", "--scenarios", "scenarios"]).args(words).timeout(Duration::from_secs(120));
    command
}

#[test]
fn a_scenario_is_run_and_judged() {
    needs!(can_mount(), "needs root and mount(8)");
    let _turn = shared_turn();
    let (place, name) = place(SCENARIO);
    let ended = run(&mut lab(&place, &["run", &name, "--json", "-", "--out", "runs"])).with_code_in(&[0, 3]);
    let json = ended.json();
    assert_eq!(
        (&json["schema"], &json["proved"]),
        (&"webdyno/lab/v1".into(), &(ended.code == 0).into()),
        "{json}"
    );
    let rounds = json["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 2);
    let rate = |round: usize| rounds[round]["figures"]["load.rate"].as_f64().unwrap();
    assert!(rate(0) > 0.0 && rate(1) > 0.0, "{json}");
    // On a machine that is busy with other tests two seconds may pass without a reading; then that is told.
    let sign = &rounds[0]["signs"][1];
    let unread = sign["why"].as_str().is_some_and(|why| why.contains("not read"));
    assert!(sign["value"].as_f64().is_some_and(|value| value >= 1.0) || unread, "{json}");
    assert_eq!((ended.code, &sign["take"]), (if unread { 3 } else { 0 }, &"max".into()), "{json}");
    let gain = &rounds[1]["gains"][0];
    assert_eq!((&gain["over"], &gain["held"]), (&"as found".into(), &true.into()));
    let typed = std::fs::read_to_string(place.path("typed")).unwrap();
    assert!(typed.contains("10.80.0.2"), "{typed}");
    // A recording is one as any other, and nobody watched for harm.
    let recording = place.path("runs/02-mended-less-is-logged");
    let log = std::fs::read_to_string(recording.join("events.jsonl")).unwrap();
    assert!(!log.contains("\"kind\":\"unwatched\""));
    run(place.webdyno().args(["diagnose", "--from"]).arg(recording)).with_code(0);
    // It is gone, and its directory is not written again.
    assert!(!run(&mut lab(&place, &["list"])).with_code(0).stdout.contains(" up "));
    run(&mut lab(&place, &["run", &name, "--out", "runs"]))
        .with_code(2)
        .assert_error("exists already", "--out DIR");
}

#[test]
fn what_is_not_proved_is_told_and_the_others_go_on() {
    needs!(can_mount(), "needs root and mount(8)");
    let _turn = shared_turn();
    let unproved = SCENARIO.replace("at_least = 1 },\n    {", "at_most = 0 },\n    {");
    let (place, name) = place(&unproved);
    let ended = run(&mut lab(&place, &["run", &name, "--rounds", "1", "--repeat", "2", "-q"])).with_code(3);
    assert!(ended.stdout.contains("NOT SEEN: load.completed_count"), "{}", ended.stdout);
    assert!(ended.stdout.ends_with(&format!("{name}: proved in 0 of 2\n")), "{}", ended.stdout);
    // One that fails does not keep the next one from running, and is told.
    let broken = SCENARIO.replace("apache2 -k graceful", "echo no luck; false");
    let other = format!("{name}-b");
    std::fs::create_dir_all(place.path("scenarios").join(&other)).unwrap();
    std::fs::write(place.path("scenarios").join(&other).join("scenario.toml"), broken).unwrap();
    let ended =
        run(&mut lab(&place, &["run", "all", "--json", "out.jsonl", "-q", "--rounds", "2"])).with_code(1);
    assert!(ended.stderr.contains("no luck"), "{}", ended.stderr);
    // What docs/lab.md is made of.
    let only = read_json(place.path("out.jsonl"));
    let outcome: webdyno_lab::run::outcome::ScenarioOutcome = serde_json::from_value(only).unwrap();
    assert_eq!((outcome.scenario.as_str(), outcome.proved), (name.as_str(), false));
}

#[test]
fn what_is_wrong_is_told_before_anything_is_built() {
    let wrong_flag = SCENARIO.replace("-c 4", "--conections 4");
    for (text, words, message, hint) in [
        (SCENARIO, &["run", "nobody"][..], "there is no scenario `nobody`", "webdyno lab list"),
        (SCENARIO, &["show", "nobody"], "there is no scenario `nobody`", "webdyno lab list"),
        (&wrong_flag, &["run", "all"], "has no flag `--conections`", "webdyno diagnose --help"),
        ("title = 1", &["run", "all"], "scenario.toml:1:9", "docs/scenarios.md"),
    ] {
        let (place, _) = place(text);
        run(&mut lab(&place, words)).with_code(2).assert_error(message, hint);
        assert!(!place.path("webdyno-runs").exists());
    }
    let place = Place::new();
    run(&mut lab(&place, &["run", "all"]))
        .with_code(2)
        .assert_error("scenarios", "--scenarios takes a folder");
}

#[test]
fn a_server_drawn_at_random_is_written_built_and_removed() {
    let place = Place::new();
    let drawn = |words: &[&str]| run(place.webdyno().args(["lab", "draw"]).args(words));
    let written = drawn(&["--seed", "17", "--write", "out", "--show-truth"]).with_code(0);
    assert!(written.stdout.contains("out/draw-17 is written") && written.stdout.contains("Wrong:"));
    assert!(place.path("out/draw-17/scenario.toml").exists());
    run(place.webdyno().args(["lab", "show", "draw-17", "--scenarios", "out"])).with_code(0);
    drawn(&["--seed", "17", "--write", "out"]).with_code(2).assert_error("exists already", "--write DIR");
    drawn(&["--seed", "-3"]).with_code(2).assert_error("--seed", "17");
    drawn(&[]).with_code(2).assert_error("--seed", "webdyno lab draw");
    needs!(can_mount(), "needs root and mount(8)");
    let _turn = shared_turn();
    let built = drawn(&["--seed", "17"]).with_code(0);
    assert!(built.stdout.contains("is up after") && built.stdout.contains("webdyno lab down draw-"));
    assert!(!built.stdout.contains("Wrong:"), "{}", built.stdout);
    // Apache listens on IPv6 for both.
    let sockets = ["cat", "/proc/net/tcp", "/proc/net/tcp6"];
    let listening = run(place.webdyno().args(["lab", "exec", "draw-17"]).args(sockets)).with_code(0);
    assert!(listening.stdout.contains(" 0A "), "{}", listening.stdout);
    run(place.webdyno().args(["lab", "down", "draw-17"])).with_code(0);
}
