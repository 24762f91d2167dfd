//! Wrong descriptions, each with what is told of it: `wrong_files.txt`, renewed with `WEBDYNO_UPDATE_GOLDEN=1`. And no
//! text, however wrong, ends in anything but an error.

use crate::scenario::Catalogue;
use proptest::prelude::*;
use std::path::Path;

/// Cases stand one after the other: the file behind `=== file`, what is told behind `--- told`. A case that does not
/// begin with a title is what replaces a line of [`GOOD`]: `LINE -> OTHER`, or what is added at its end.
const CASES: &str = include_str!("wrong_files.txt");

/// A description that is right.
const GOOD: &str = include_str!("good_file.toml");

/// A folder for descriptions, with the files that they name.
struct DescriptionFolder(tempfile::TempDir);

impl DescriptionFolder {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        for path in ["server/etc/nft.conf", "db/srv/data.sql", "shop.toml"] {
            let path = place.path().join("a-test").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        Self(place)
    }

    /// What is told of a description; `nothing` when it is right.
    fn error_text(&self, text: &str) -> String {
        let place = self.0.path();
        std::fs::write(place.join("a-test/scenario.toml"), text).unwrap();
        match Catalogue::Directory(place.to_owned()).open("a-test") {
            Ok(_) => "nothing\n".into(),
            Err(error) => {
                assert_eq!(error.exit_code(), 2, "{text}");
                let message = error.message.replace(&format!("{}/", place.display()), "");
                format!("{message}\nhint: {}\n", error.hint.unwrap_or_default())
            }
        }
    }
}

thread_local! {
    static DESCRIPTIONS: DescriptionFolder = DescriptionFolder::new();
}

fn error_text(text: &str) -> String {
    DESCRIPTIONS.with(|desk| desk.error_text(text))
}

/// The description that a case means.
fn described(case: &str) -> String {
    let mut text = GOOD.to_owned();
    for line in case.lines() {
        match line.split_once(" -> ") {
            Some((old, new)) => {
                assert!(text.contains(old), "`{old}` is not in the good file");
                text = text.replacen(old, &new.replace("\\n", "\n"), 1);
            }
            None => text.push_str(&format!("{line}\n")),
        }
    }
    text
}

#[test]
fn the_good_file_is_good() {
    assert_eq!(error_text(GOOD), "nothing\n");
}

#[test]
fn each_wrong_file_is_told_where_and_why() {
    let mut renewed = String::new();
    let mut wrong = vec![];
    for case in CASES.split("=== file\n").skip(1) {
        let (text, expected) = case.split_once("--- told\n").unwrap();
        let reported = error_text(&described(text));
        let is_told = reported.contains("scenario.toml:") && !reported.ends_with("hint: \n");
        if reported.trim_end() != expected.trim_end() || !is_told {
            wrong.push(format!("{text}\n{reported}"));
        }
        renewed.push_str(&format!("=== file\n{text}--- told\n{reported}\n"));
    }
    if std::env::var_os("WEBDYNO_UPDATE_GOLDEN").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/scenario/check/wrong_files.txt");
        std::fs::write(path, renewed).unwrap();
        return;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_scenario_that_is_not_there_is_told_with_what_is_like_it() {
    let open = |name: &str| Catalogue::BuiltIn.open(name).unwrap_err();
    let reported = open("worker-exhausted-prefork");
    assert_eq!(reported.hint.as_deref(), Some("did you mean `workers-exhausted-prefork`?"));
    for name in ["", "..", "a/b", "../x", "a\0b", "zzzz"] {
        assert!(open(name).message.starts_with("there is no scenario"), "{name}");
    }
    let nowhere = Catalogue::Directory("/nonexistent".into()).open("a").unwrap_err();
    assert!(nowhere.message.contains("/nonexistent"), "{nowhere}");
}

#[test]
fn the_scenarios_of_the_program_are_right() {
    let names = Catalogue::BuiltIn.names().unwrap();
    assert!(!names.is_empty());
    names.iter().for_each(|name| drop(Catalogue::BuiltIn.open(name).unwrap()));
}

proptest! {
    // Invariant: any text is a scenario or an error with its place; never a panic.
    #[test]
    fn any_text_never_panics(text in "\\PC{0,200}") {
        prop_assert!(!error_text(&text).is_empty());
    }

    // The same with what is nearly right: a piece of the good file replaced by something else.
    #[test]
    fn any_change_of_a_good_file_never_panics(from in 0..GOOD.len(), length in 0..40usize, by in "[\\[\\]{}\"'=.,a-zé0-9\\n -]{0,20}") {
        let cut = |at: usize| (0..=at.min(GOOD.len())).rev().find(|at| GOOD.is_char_boundary(*at)).unwrap();
        let text = format!("{}{by}{}", &GOOD[..cut(from)], &GOOD[cut(from + length)..]);
        prop_assert!(!error_text(&text).is_empty());
    }
}
