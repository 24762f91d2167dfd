//! `webdyno ab`, `wrk` and `siege` beside the real ones: the same fields in the same order, and the same counts.

use crate::skip::needs;
use crate::support::{Apache, Ended, Place, run, shared_turn, skip};
use std::path::Path;

/// What ends a value's label.
const COLON: char = ':';

fn real(place: &Place, path: &str, words: &[&str]) -> Option<Ended> {
    if !Path::new(path).exists() {
        skip(&format!("{path} is not installed"));
        return None;
    }
    // siege writes a resource file of its own where there is none.
    Some(run(assert_cmd::Command::new(path)
        .args(words)
        .env("HOME", place.path("home"))
        .timeout(std::time::Duration::from_secs(60))))
}

/// Labels of a report in their order: what stands before the colon, and lines without one.
fn labels(report: &str) -> Vec<String> {
    let after = report.split("Server Software").nth(1).unwrap_or(report);
    let lines = after.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let label = |line: &str| {
        line.split_once(COLON).map_or_else(
            || line.replace(|letter: char| letter.is_ascii_digit(), ""),
            |(label, _)| label.into(),
        )
    };
    lines.map(label).map(|label| label.trim().to_owned()).collect()
}

fn value<'a>(report: &'a str, label: &str) -> &'a str {
    let line = report.lines().find(|line| line.trim_start().starts_with(label));
    line.and_then(|line| line.split_once(COLON)).map_or("", |(_, value)| value.trim())
}

#[test]
fn ab_reports_the_same_fields_and_counts() {
    let _turn = shared_turn();
    let place = Place::new();
    let apache = Apache::start_event(&place.path("server"), 40);
    let url = apache.url();
    let gone = format!("{}-gone", apache.url());
    for words in [
        vec!["-n", "40", "-c", "4", &url],
        vec!["-n", "40", "-c", "4", "-k", "-l", &url],
        vec!["-n", "12", "-c", "2", "-S", "-d", &gone],
    ] {
        let ours = run(place.webdyno().arg("ab").args(&words)).with_code(0);
        let Some(theirs) = real(&place, "/usr/bin/ab", &words) else { return };
        assert_eq!(labels(&ours.stdout), labels(&theirs.stdout), "{words:?}\n{}", ours.stdout);
        for label in [
            "Complete requests",
            "Failed requests",
            "Non-2xx",
            "HTML transferred",
            "Document",
            "Server Port",
            "Keep-Alive requests",
        ] {
            assert_eq!(value(&ours.stdout, label), value(&theirs.stdout, label), "{words:?}: {label}");
        }
    }
}

#[test]
fn ab_writes_its_files_and_tells_what_is_wrong() {
    let _turn = shared_turn();
    let place = Place::new();
    let apache = Apache::start_event(&place.path("server"), 40);
    let ours = place.path("ours.csv").display().to_string();
    run(place.webdyno().args(["ab", "-n", "200", "-c", "4", "-e", &ours, &apache.url()])).with_code(0);
    let rows = std::fs::read_to_string(&ours).unwrap();
    assert!(rows.starts_with("Percentage served,Time in ms\n0,") && rows.lines().count() == 102, "{rows}");
    run(place.webdyno().args(["ab", "-n", "1", "-c", "2", &apache.url()]))
        .with_code(2)
        .assert_error("more than the 1 requests", "webdyno ab -h");
    let html = run(place.webdyno().args(["ab", "-w", "-n", "4", &apache.url()])).with_code(0).stdout;
    assert!(
        html.contains("<table")
            && html.contains("Complete requests:")
            && html.trim_end().ends_with("</table>"),
        "{html}"
    );
}

#[test]
fn wrk_reports_the_same_fields() {
    let _turn = shared_turn();
    let place = Place::new();
    let apache = Apache::start_event(&place.path("server"), 40);
    let words = ["-t", "2", "-c", "4", "-d", "2s", "--latency", &apache.url()];
    let ours = run(place.webdyno().arg("wrk").args(words)).with_code(0);
    let Some(theirs) = real(&place, "/usr/bin/wrk", &words) else { return };
    // Figures and their units differ, the words do not.
    let words_of = |report: &str| -> Vec<String> {
        let is_word = |word: &&str| !word.starts_with(|letter: char| letter.is_ascii_digit());
        report
            .lines()
            .map(|line| line.split_whitespace().filter(is_word).collect::<Vec<_>>().join(" "))
            .collect()
    };
    assert_eq!(words_of(&ours.stdout), words_of(&theirs.stdout), "{}\n{}", ours.stdout, theirs.stdout);
}

#[test]
fn siege_reports_the_same_fields_and_counts() {
    let _turn = shared_turn();
    let place = Place::new();
    let apache = Apache::start_event(&place.path("server"), 40);
    // Without it siege makes one, and ends.
    std::fs::create_dir_all(place.path("home/.siege")).unwrap();
    std::fs::write(place.path("home/.siege/siege.conf"), "").unwrap();
    let rc = place.path("siegerc").display().to_string();
    std::fs::write(
        place.path("siegerc"),
        "verbose = false\nquiet = false\njson_output = false\nlogging = false\nparser = false\n",
    )
    .unwrap();
    // Without variables: at one of them siege 4.0.7 ends by a segmentation fault.
    let list = place.path("urls.txt").display().to_string();
    std::fs::write(place.path("urls.txt"), format!("# pages\n{0}\n{0} POST a=1\n", apache.url())).unwrap();
    let words = ["-R", &rc, "-b", "-c", "3", "-r", "4", "-f", &list];
    let ours = run(place.webdyno().arg("siege").args(words)).with_code(0);
    let json = run(place.webdyno().arg("siege").args(words).arg("-j")).with_code(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json["transactions"].as_u64(), json["failed_transactions"].as_u64()), (Some(12), Some(0)));
    let Some(theirs) = real(&place, "/usr/bin/siege", &words) else { return };
    let fields = |ended: &Ended| -> Vec<String> {
        let all = format!("{}{}", ended.stderr, ended.stdout);
        let from = all.find("Transactions:").unwrap_or(0);
        labels(&all[from..])
    };
    assert_eq!(fields(&ours), fields(&theirs), "{}", ours.stderr);
    for label in ["Transactions", "Successful", "Failed"] {
        let number = |ended: &Ended| {
            value(&format!("{}{}", ended.stderr, ended.stdout), label).split(' ').next().map(str::to_owned)
        };
        assert_eq!(number(&ours), number(&theirs), "{label}");
    }
}

#[test]
fn a_link_named_like_a_tool_is_that_tool() {
    let _turn = shared_turn();
    let place = Place::new();
    let program = place.webdyno().get_program().to_owned();
    needs!(program == env!("CARGO_BIN_EXE_webdyno"), "the program is run by another one");
    std::os::unix::fs::symlink(program, place.path("ab")).unwrap();
    let ended =
        run(assert_cmd::Command::new(place.path("ab")).arg("-V").timeout(std::time::Duration::from_secs(20)));
    assert!(ended.stdout.contains("as ab"), "{}", ended.stdout);
    let unknown = run(place.webdyno().args(["ab", "-Q", "http://127.0.0.1/"]));
    unknown.with_code(2).assert_error("-Q is no flag of ab", "webdyno ab -h");
}
