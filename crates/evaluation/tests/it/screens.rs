//! What a diagnosis of each kept recording prints: it fits on one screen, begins with the answer, and is in the words of operators.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::corpus::CASES;
use webdyno_evaluation::judge::corpus::events;
use webdyno_report::{ResultPaths, TextStyle, text};
use webdyno_session::recording::Recording;
use webdyno_session::view::{Outcome, View};

/// What may not come back, and what is said instead.
#[rustfmt::skip] // a table
const WORDS: &[(&str, &str)] = &[
    ("good answer", "successful"), ("answers a second", "req/s"), ("answers within", "p50, p99"), ("put back", "reverted"),
    ("nobody", "no client, downtime"), ("only a person", "manual change"), ("for you to decide", "manual change"),
    ("binds at", "saturates at"), ("who has got in", "established connections"), ("no answer yet", "in flight"),
    ("an outage", "downtime"), ("explains", "accounts for"), (" sure", "confidence"), ("sent again", "retransmitted"),
    ("is told", "is reported"), ("is said", "is reported"), ("is lent", "is granted"), ("whoever", "the client"), (" dear", "expensive"),
    ("at work on", "busy"), ("readings", "samples"), ("places", "entries"), ("processors", "CPU"),
    ("greeting", "handshake"), ("a stop and a start", "restart"), ("do not read these figures", "not valid"),
];

fn view(file: &std::path::Path) -> View {
    let mut recording = Recording::default();
    events(file).unwrap().into_iter().for_each(|event| recording.add(event));
    let diagnosis = recording.diagnosis().unwrap().unwrap();
    View {
        command: "diagnose".into(),
        outcome: Outcome::Diagnosis(diagnosis),
        ..View::of(&recording).unwrap()
    }
}

fn paths() -> ResultPaths {
    let directory = "webdyno-runs/20261124T101500Z-diagnose".to_owned();
    ResultPaths {
        html: Some(format!("{directory}/report.html")),
        directory: Some(directory),
        ..ResultPaths::default()
    }
}

#[test]
fn every_diagnosis_fits_on_a_screen_and_begins_with_the_answer() {
    let mut wrong = vec![];
    for case in CASES.iter() {
        let view = view(&case.place.file);
        let screen = text(&view, &paths(), TextStyle::default());
        let is_copied =
            |line: &str| line.split_whitespace().any(|word| word.contains('/') && word.len() > 40);
        let wide = screen.lines().filter(|line| line.chars().count() > 80 && !is_copied(line)).count();
        let Outcome::Diagnosis(diagnosis) = &view.outcome else { panic!("no diagnosis") };
        let limit = webdyno_analysis::limits::by_id(&diagnosis.bottleneck).unwrap();
        let has_answer = screen.lines().next().unwrap().contains(limit.title);
        if screen.lines().count() > 40 || wide > 0 || !has_answer {
            wrong.push(format!(
                "{:?}: {} lines, {wide} too wide\n{screen}",
                case.place,
                screen.lines().count()
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), CASES.len(), wrong.join("\n\n"));
}

#[test]
fn no_diagnosis_has_words_that_operators_do_not_use() {
    let mut wrong = std::collections::BTreeMap::<String, usize>::new();
    for case in CASES.iter() {
        let full = text(&view(&case.place.file), &paths(), TextStyle::FULL);
        // Commands and sources are as they are.
        let prose =
            full.lines().filter(|line| !line.trim_start().starts_with('$')).collect::<Vec<_>>().join("\n");
        let prose = prose.split_whitespace().collect::<Vec<_>>().join(" ");
        for (word, instead) in WORDS {
            for (at, _) in prose.to_lowercase().match_indices(word) {
                let near: String = prose.chars().skip(at.saturating_sub(30)).take(80).collect();
                *wrong.entry(format!("`{word}` (say {instead}): {near}")).or_default() += 1;
            }
        }
    }
    let listed: Vec<_> = wrong.iter().map(|(what, times)| format!("{times} x {what}")).collect();
    assert!(wrong.is_empty(), "{}", listed.join("\n"));
}
