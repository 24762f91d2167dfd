//! The change record of a real session: its commands do what it says, and it can be written again to the byte.

use crate::debian::{Debian, Layout, can_run};
use crate::skip::needs;
use crate::support::{Place, run, run_json, shared_turn};

#[test]
fn a_change_record_can_be_followed() {
    let _turn = shared_turn();
    needs!(can_run());
    let place = Place::new();
    let debian = Debian::start(&place, "server", Layout::InPlace);
    let before = debian.tree();
    let (directory, state) = (place.path("run"), place.path("state"));
    let load =
        ["--apply", "--goal", "150 req/s", "-c", "30", "--no-keepalive", "-d", "4s", "-q", "--json", "-"];
    let mut command = debian.webdyno();
    let session = run_json(
        command
            .env("WEBDYNO_STATE", &state)
            .arg("tune")
            .arg(debian.url())
            .args(load)
            .arg("--out")
            .arg(&directory),
    );
    assert_eq!(session["state"], "applied", "{session:#}");
    assert!(session["rounds"][0]["risk"].as_str().is_some_and(|risk| !risk.is_empty()), "{session:#}");

    let path = directory.join("change-record.md");
    let record = std::fs::read_to_string(&path).unwrap();
    let diff = record.split("```diff\n").nth(1).unwrap().trim_end_matches("```\n");
    assert_eq!(diff, session["rounds"][0]["diff"].as_str().unwrap());
    std::fs::remove_file(&path).unwrap();
    let report = run(place.webdyno().arg("report").arg(&directory)).with_code(0).stdout;
    assert!(report.contains(&format!("Record:  {}", path.display())), "{report}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), record);

    let by_hand = block(&record, "How to verify");
    assert_eq!(by_hand.len(), 2, "{record}");
    for line in by_hand {
        let (command, expected) = line.split_once("  # ").unwrap();
        let displayed = debian.typed(command).split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = expected.split(',').next().unwrap();
        assert!(
            displayed == expected || displayed.ends_with(&format!(":{expected}")),
            "{line} shows: {displayed}"
        );
    }
    let undo = block(&record, "Rollback");
    assert_eq!(undo, [format!("WEBDYNO_STATE={} webdyno rollback", state.display())]);
    debian.typed(undo[0]);
    assert_eq!(before.differences(&debian.tree()), Vec::<String>::new());
}

/// The commands under a heading.
fn block<'a>(record: &'a str, heading: &str) -> Vec<&'a str> {
    let section = record.split(heading).nth(1).unwrap();
    section.split("```\n").nth(1).unwrap().lines().collect()
}
