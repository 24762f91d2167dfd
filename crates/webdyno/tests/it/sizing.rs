//! `webdyno size` on kept recordings of the lab: a recommendation, what is refused, and predictions across sizes.

use crate::support::{Ended, Place, run};
use crate::valid::assert_valid;
use std::io::Read;
use std::path::Path;

/// A kept round as a run directory.
fn recorded(place: &Place, name: &str, scenario: &str, round: u32) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../evaluation/fixtures/corpus");
    let packed = std::fs::File::open(corpus.join(format!("{scenario}/{round:02}.jsonl.gz"))).unwrap();
    let mut events = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut events).unwrap();
    std::fs::create_dir(place.path(name)).unwrap();
    std::fs::write(place.path(name).join("events.jsonl"), events).unwrap();
}

fn size(place: &Place, words: &[&str]) -> Ended {
    run(place.webdyno().arg("size").args(words))
}

#[test]
fn a_recording_becomes_machines() {
    let place = Place::new();
    recorded(&place, "a", "s4-mod-perl", 1);
    recorded(&place, "b", "s4-mod-perl", 2);
    let words = ["a", "b", "--goal", "2000/s", "--spare", "1"];
    let shown = size(&place, &words).with_code(0).stdout;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines.len() <= 40 && lines.iter().all(|line| line.chars().count() <= 80),
        "{}\n{shown}",
        lines.len()
    );
    let json = size(&place, &[&words[..], &["--json", "-"]].concat()).with_code(0).json();
    assert_valid(&json);
    let best = &json["choices"][0];
    assert_eq!((&json["schema"], &json["recommended"]), (&"webdyno/size/v1".into(), &best["name"]));
    let rate = |name: &str| best["rate"][name].as_f64().unwrap();
    assert!(rate("p10") >= 2000.0 && rate("p50") * 0.7 >= 1999.0 && rate("p50") <= rate("p90"), "{json:#}");
    assert!(
        shown.starts_with(&format!(
            "{} servers with {} core",
            best["count"],
            best["cores"].as_f64().unwrap()
        )),
        "{shown}"
    );
    // The same recordings say the same, byte for byte.
    assert_eq!(size(&place, &words).with_code(0).stdout, shown);
    std::fs::write(place.path("m.csv"), "name,cores,memory,price\nsmall,2,4G,10\nlarge,8,16G,90\n").unwrap();
    let priced =
        size(&place, &[&words[..4], &["--catalogue", "m.csv", "--json", "-"]].concat()).with_code(0).json();
    assert_eq!(
        (&priced["recommended"], &priced["choices"][0]["cost"]),
        (&"small".into(), &{ 10.0 * priced["choices"][0]["count"].as_f64().unwrap() }.into())
    );
}

#[test]
fn what_cannot_be_said_is_refused() {
    let place = Place::new();
    recorded(&place, "a", "s4-mod-perl", 1);
    std::fs::create_dir(place.path("empty")).unwrap();
    std::fs::write(place.path("m.toml"), "[[machine]]\nname = \"a\"\ncores = 2\nram = 4\n").unwrap();
    let far = size(&place, &["a", "--goal", "100000/s", "--json", "-"]).with_code(3).json();
    assert_valid(&far);
    assert!(far["refused"].as_str().unwrap().contains("more than four times what was measured"), "{far:#}");
    assert!(
        size(&place, &["a", "--goal", "100000/s"])
            .with_code(3)
            .stdout
            .starts_with("Nothing is recommended\n")
    );
    for (words, code, message, hint) in [
        (&["a"][..], 2, "no goal is given", "--goal 500/s"),
        (&["--goal", "5/s"], 2, "no recording is given", "webdyno diagnose"),
        (&["a", "--goal", "fast"], 2, "--goal", "--goal"),
        (
            &["a", "--goal", "9/s", "--catalogue", "m.toml"],
            2,
            "m.toml:4: unknown field `ram`",
            "name and cores",
        ),
        (
            &["a", "--goal", "9/s", "--mix", "8,2"],
            2,
            "--mix has 2 shares, and there are 1 recordings",
            "--mix 80,20",
        ),
        (&["a", "--goal", "9/s", "--think", "3s"], 2, "--think is of users", "leave --think out"),
        (&["a", "--goal", "9/s", "--years", "3"], 2, "--years is of a growth", "--growth 20%/year"),
        (&["a", "--validate"], 2, "no two loads of one site at other sizes", "--knob cpus=1,2"),
        (&["missing", "--goal", "9/s"], 1, "missing", ""),
    ] {
        let ended = size(&place, words).with_code(code);
        assert!(ended.stderr.contains(message) && ended.stderr.contains(hint), "{words:?}: {}", ended.stderr);
    }
}

/// Twice the line and twice the visitors, from the recording before and the other way round.
#[test]
fn a_line_of_250_mbit_is_predicted_from_one_of_120() {
    let place = Place::new();
    recorded(&place, "at120", "s5-lamp", 4);
    recorded(&place, "at250", "s5-lamp", 5);
    let json = size(&place, &["--validate", "at120", "at250", "--json", "-"]).with_code(0).json();
    assert_valid(&json);
    let all = json["validation"].as_array().unwrap();
    let near = |one: &serde_json::Value| one["error"].as_f64().is_some_and(|error| error.abs() <= 0.10);
    assert!(all.len() == 2 && near(&all[0]), "{json:#}");
}
