//! `webdyno explain ID`: the manual's chapter on a finding, or on a word of the reports.

use crate::cli::ExplainArgs;
use crate::terminal;
use webdyno_analysis::limits;
use webdyno_model::{Result, UserError};
use webdyno_report::CHAPTERS;

/// Prints a chapter, or the list of all.
pub fn explain(arguments: &ExplainArgs) -> Result<u8> {
    let text = match &arguments.id {
        None => list(),
        Some(id) => chapter(id).ok_or_else(|| unknown_finding(id))?,
    };
    terminal::print(&text)?;
    Ok(0)
}

fn chapter(id: &str) -> Option<String> {
    let word = || CHAPTERS.iter().find(|(word, _)| *word == id).map(|(_, text)| (*text).to_owned());
    limits::by_id(id).map(limits::Limit::manual).or_else(word)
}

/// The findings, and after an empty line the words.
fn list() -> String {
    let line = |id: &str, text: &str| {
        let says = text.lines().next().and_then(|first| first.split_once(": ")).map_or("", |(_, says)| says);
        format!("{id:26} {says}\n")
    };
    let findings: String = limits::ALL.iter().map(|limit| line(limit.id.as_str(), &limit.manual())).collect();
    let words: String = CHAPTERS.iter().map(|(word, text)| line(word, text)).collect();
    format!("{findings}\n{words}")
}

fn unknown_finding(id: &str) -> UserError {
    let ids = limits::ALL.iter().map(|limit| limit.id.as_str()).chain(CHAPTERS.iter().map(|(word, _)| *word));
    let distance = |known: &&str| strsim::damerau_levenshtein(id, known);
    let nearest = ids.min_by_key(distance).filter(|known| distance(known) <= known.len() / 2);
    let error = UserError::usage(format!("there is no finding and no word `{id}`"));
    match nearest {
        Some(known) => error.hint(format!("did you mean `{known}`? `webdyno explain` lists all")),
        None => error.hint("`webdyno explain` lists all"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_id_suggests_the_right_one() {
        for (typed, meant) in [
            ("apache-worker-exhausted", "apache-workers-exhausted"),
            ("cpu-saturation", "cpu-saturated"),
            ("heathly", "healthy"),
            ("pagetime", "page-time"),
        ] {
            assert!(unknown_finding(typed).hint.unwrap().contains(meant), "{typed}");
        }
        assert!(!unknown_finding("zzzzzzzzzzzz").hint.unwrap().contains("did you mean"));
    }

    #[test]
    fn every_finding_and_word_is_explained() {
        let words = CHAPTERS.iter().map(|(word, _)| *word);
        for id in limits::ALL.iter().map(|limit| limit.id.as_str()).chain(words) {
            assert!(chapter(id).is_some_and(|text| text.starts_with(&format!("`{id}`"))), "{id}");
        }
    }

    #[test]
    fn the_list_names_every_rule_and_every_word() {
        assert!(limits::ALL.iter().all(|limit| list().contains(limit.id.as_str())));
        for (word, text) in CHAPTERS {
            assert!(list().contains(word) && text.starts_with(&format!("`{word}`: ")), "{word}");
            assert!(limits::by_id(word).is_none(), "{word} is a finding too");
            assert_eq!(chapter(word).as_deref(), Some(*text));
        }
    }
}
