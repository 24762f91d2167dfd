//! `webdyno fit`: the published sweep, and what is no curve.

use crate::support::{Ended, Place, read_json, run};

const PUBLISHED: &str = "value,rate\n100,755\n125,780\n150,791\n175,783\n200,785\n225,760\n250,741\n";

fn fit(place: &Place, words: &[&str]) -> Ended {
    run(place.webdyno().arg("fit").args(words))
}

#[test]
fn the_published_sweep_is_fitted() {
    let place = Place::new();
    std::fs::write(place.path("points.csv"), PUBLISHED).unwrap();
    let shown = fit(&place, &["points.csv", "--json", "fit.json"]).with_code(0);
    assert!(shown.stdout.starts_with("value: choose 150\n"), "{}", shown.stdout);
    assert!(shown.stdout.contains("from 126 to 187 (the plateau)"), "{}", shown.stdout);
    let lines: Vec<&str> = shown.stdout.lines().collect();
    assert!(lines.len() <= 40 && lines.iter().all(|line| line.chars().count() <= 80), "{}", shown.stdout);
    let json = read_json(place.path("fit.json"));
    let n_star = json["usl"]["n_star"].as_f64().unwrap();
    assert!((n_star - 153.6).abs() < 1.0, "{json:#}");
    assert_eq!((&json["schema"], &json["choice"]), (&"webdyno/sweep/v1".into(), &150.0.into()));
}

#[test]
fn a_curve_that_cannot_tell_says_so_first() {
    let place = Place::new();
    std::fs::write(place.path("few.csv"), "1,100\n2,190\n4,350\n").unwrap();
    let shown = fit(&place, &["few.csv"]).with_code(0).stdout;
    assert!(
        shown.starts_with("value: no choice, the points cannot tell\n  No scaling law: 6 values are needed"),
        "{shown}"
    );
}

#[test]
fn what_is_no_curve_is_refused_with_a_hint() {
    let place = Place::new();
    std::fs::create_dir(place.path("empty")).unwrap();
    std::fs::write(place.path("one.csv"), "100,755\n100,750\n").unwrap();
    std::fs::write(place.path("nothing.csv"), "").unwrap();
    std::fs::write(place.path("words.csv"), "100,755\n125,many\n").unwrap();
    for (source, code, message) in [
        ("one.csv", 2, "one.csv holds one value only with a rate, which is no curve"),
        ("nothing.csv", 2, "nothing.csv holds no points"),
        ("words.csv", 2, "words.csv:2: column 2: `many` is no number"),
        ("missing.csv", 1, "missing.csv: no such file or directory"),
        ("empty", 1, "empty holds no sweep"),
    ] {
        let ended = fit(&place, &[source]).with_code(code);
        assert!(
            ended.stderr.contains(message) && ended.stderr.contains("hint: "),
            "{source}: {}",
            ended.stderr
        );
    }
}
