//! The diagnosis against recordings of every round of every scenario (`fixtures/corpus`, made by `webdyno lab run` and
//! kept by `webdyno lab judge --keep`): each change of a rule meets all of them.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use webdyno_lab::judge::tally;
use webdyno_lab::judge::{self, Case, Judged};
use webdyno_lab::scenario::Catalogue;

/// Rounds whose first finding is not the answer: what the diagnosis still has to learn.
const WRONG: &[(&str, usize)] = &[];

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/corpus");
    judge::cases(&Catalogue::BuiltIn, &judge::places(&[folder]).unwrap()).unwrap()
});

fn judged() -> Vec<Judged> {
    judge::judge(&CASES).unwrap()
}

#[test]
fn every_round_of_every_scenario_was_recorded() {
    let catalogue = Catalogue::BuiltIn;
    let rounds = catalogue.names().unwrap().into_iter().flat_map(|name| {
        let count = catalogue.open(&name).unwrap().scenario.rounds.len();
        (1..=count).map(move |number| (name.clone(), number))
    });
    let recorded: BTreeSet<(String, usize)> =
        CASES.iter().map(|case| (case.place.scenario.clone(), case.place.number)).collect();
    let lacking: Vec<_> = rounds.filter(|round| !recorded.contains(round)).collect();
    assert!(lacking.is_empty(), "without a recording: {lacking:?}");
}

#[test]
fn the_first_finding_is_the_answer() {
    let judged = judged();
    let wrong: BTreeSet<(&str, usize)> =
        judged.iter().filter(|one| !one.is_right()).map(|one| (one.scenario.as_str(), one.number)).collect();
    let known: BTreeSet<(&str, usize)> = WRONG.iter().copied().collect();
    let told: Vec<String> = judged
        .iter()
        .filter(|one| wrong.contains(&(one.scenario.as_str(), one.number)))
        .map(Judged::line)
        .collect();
    let learnt: Vec<_> = known.difference(&wrong).collect();
    assert!(wrong.is_subset(&known), "{}", told.join("\n"));
    assert!(learnt.is_empty(), "these are right now, and have to leave the list: {learnt:?}");
}

#[test]
fn what_is_stated_at_nine_tenths_is_right_nine_times_in_ten() {
    let judged = judged();
    let sure: Vec<&Judged> = judged.iter().filter(|one| one.first().1 >= 0.9).collect();
    let right = sure.iter().filter(|one| one.is_right()).count();
    assert!(sure.len() >= 50, "{} findings say something", sure.len());
    assert!(right * 10 >= sure.len() * 9, "{right} of {}", sure.len());
}

#[test]
fn without_some_signals_no_finding_misleads() {
    let blinded = tally::blinded(&CASES).unwrap();
    let names =
        |one: &tally::Blinded| one.hidden.iter().map(|source| source.name()).collect::<Vec<_>>().join(", ");
    let told: Vec<String> = blinded
        .iter()
        .flat_map(|one| one.misleading().map(move |judged| format!("{}: {}", names(one), judged.line())))
        .collect();
    assert!(told.is_empty(), "{} mislead:\n{}", told.len(), told.join("\n"));
}

#[test]
fn a_corpus_is_small() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/corpus");
    let size = |file: PathBuf| std::fs::metadata(file).unwrap().len();
    let all: u64 = judge::places(&[folder]).unwrap().into_iter().map(|place| size(place.file)).sum();
    assert!(all < 16_000_000, "{all} bytes");
}
