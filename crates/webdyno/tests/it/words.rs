//! Words that operators do not search for, with what they say instead: none of them is in the help of a command, in README.md
//! or in the guide.

use crate::tidy::helps;

/// The word, and what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("good answers", "successful requests"),
    ("put back", "reverted"),
    ("puts back", "reverts"),
    ("nobody", "downtime, no client, or leave it out"),
    ("binds at", "saturates at"),
    ("who has got in", "established connections"),
    ("no answer yet", "in flight at the end"),
    ("half of the answers", "p50"),
    ("answered within", "p50 or p99"),
    ("only a person", "manual change"),
    ("is told", "is reported"),
    ("is said", "is reported"),
    ("is lent", "is granted"),
    ("whoever", "leave it out"),
    ("dear", "expensive"),
];

/// Whether these words are in a text, whole, on one line or over several.
fn has(text: &str, words: &str) -> bool {
    let alone = text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    alone.match_indices(words).any(|(at, _)| {
        let is_letter = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
        !is_letter(alone[..at].chars().next_back()) && !is_letter(alone[at + words.len()..].chars().next())
    })
}

#[test]
fn helps_use_the_words_of_the_field() {
    assert!(has("Nobody", "nobody") && has("is\n   told", "is told") && !has("endear", "dear"));
    let helps = helps();
    for (word, instead) in WORDS {
        assert!(!has(&helps, word), "`{word}` in a help: write {instead}");
    }
}

#[test]
fn the_readme_and_the_guide_use_the_words_of_the_field() {
    let pages = crate::guide::for_newcomers();
    assert!(pages.len() > 7, "{pages:?}");
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for (word, instead) in WORDS {
            assert!(!has(&text, word), "`{word}` in {}: write {instead}", page.display());
        }
    }
}
