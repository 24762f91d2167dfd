//! `webdyno explain WORD`: the manual's chapter on a finding or on a word of the reports, or those that are about a word.

use crate::cli::ExplainArgs;
use crate::cli::usage::nearest;
use crate::terminal;
use std::cmp::Reverse;
use webdyno_analysis::limits;
use webdyno_model::{Result, UserError};
use webdyno_report::CHAPTERS;

/// At most this many are listed for a word.
const MATCHES_MAX: usize = 8;

/// Units that belong to the number before them.
const TIME_UNITS: [&str; 3] = ["s", "ms", "us"];
/// Words that say nothing of what somebody looks for.
const COMMON_WORDS: [&str; 17] = [
    "an", "and", "are", "at", "exactly", "in", "is", "it", "my", "no", "not", "of", "or", "than", "the",
    "to", "why",
];

/// A chapter of the manual.
struct Topic {
    id: &'static str,
    title: String,
    text: String,
}

impl Topic {
    fn line(&self) -> String {
        format!("{:28} {}\n", self.id, self.title)
    }

    /// How much it is about these words: those in id and title count most.
    fn score(&self, words: &[String]) -> usize {
        let (name, text) = (words_of(&format!("{} {}", self.id, self.title)), words_of(&self.text));
        let count = |text: &[String], word: &str| text.iter().filter(|one| one.starts_with(word)).count();
        words.iter().map(|word| 50 * count(&name, word).min(1) + count(&text, word).min(5)).sum()
    }
}

/// The findings in the order of their ids, which groups them by what they are of.
fn findings() -> Vec<Topic> {
    let topic = |limit: &limits::Limit| Topic {
        id: limit.id.as_str(),
        title: limit.title.to_owned(),
        text: limit.manual(),
    };
    let mut all: Vec<Topic> = limits::ALL.iter().map(topic).collect();
    all.sort_by_key(|topic| topic.id);
    all
}

/// The words of the reports that have a chapter.
fn report_words() -> Vec<Topic> {
    let title = |text: &str| text.lines().next()?.split_once(": ").map(|(_, title)| title.to_owned());
    let topic = |(id, text): &(&'static str, &'static str)| Topic {
        id,
        title: title(text).unwrap_or_default(),
        text: (*text).to_owned(),
    };
    CHAPTERS.iter().map(topic).collect()
}

/// Prints a chapter, those that are about a word, or the list of all.
pub fn explain(arguments: &ExplainArgs) -> Result<u8> {
    let word = arguments.words.join(" ");
    let topics: Vec<Topic> = findings().into_iter().chain(report_words()).collect();
    if word.is_empty() {
        return terminal::print(&list()).map(|()| 0);
    }
    if let Some(topic) = topics.iter().find(|topic| topic.id == word) {
        return terminal::print(&topic.text).map(|()| 0);
    }
    let unknown = UserError::usage(format!("there is no finding and no word `{word}`"));
    if let Some(id) = nearest(&word, topics.iter().map(|topic| topic.id)) {
        return Err(unknown.hint(format!("did you mean `{id}`? `webdyno explain` lists all")));
    }
    match about(&word, &topics) {
        found if found.is_empty() => {
            terminal::print(&list())?;
            Err(unknown.hint("the list above has all of them: webdyno explain ID"))
        }
        found => {
            let lines: String = found.into_iter().map(Topic::line).collect();
            terminal::print(&format!(
                "About `{word}`:\n\n{lines}\nThe chapter on one: webdyno explain ID\n"
            ))?;
            Ok(0)
        }
    }
}

/// The findings, and after an empty line the words.
fn list() -> String {
    let lines = |topics: Vec<Topic>| topics.iter().map(Topic::line).collect::<String>();
    format!("{}\n{}", lines(findings()), lines(report_words()))
}

/// The words of a text in lower case: without single letters and those that every text has, a number with its unit of time.
fn words_of(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let follows = |at: usize, number: &str| {
        is_number(number) && words.get(at + 1).is_some_and(|unit| TIME_UNITS.contains(unit))
    };
    let with_unit = |(at, word): (usize, &&str)| match follows(at, word) {
        true => format!("{word}{}", words[at + 1]),
        false => word.to_lowercase(),
    };
    let all = words.iter().enumerate().map(with_unit);
    all.filter(|word| word.len() > 1 && !COMMON_WORDS.contains(&word.as_str())).collect()
}

/// The chapters that are most about these words, the best first.
fn about<'a>(text: &str, topics: &'a [Topic]) -> Vec<&'a Topic> {
    let words = words_of(text);
    let mut scored: Vec<_> = topics.iter().map(|topic| (topic.score(&words), topic)).collect();
    scored.sort_by_key(|(score, _)| Reverse(*score));
    let best = scored.first().map_or(0, |(score, _)| *score).max(1);
    let near = scored.into_iter().take_while(|(score, _)| *score * 3 >= best);
    near.take(MATCHES_MAX).map(|(_, topic)| topic).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(word: &str) -> Result<u8> {
        explain(&ExplainArgs { words: vec![word.to_owned()] })
    }

    #[test]
    fn a_mistyped_id_suggests_the_right_one() {
        for (typed, meant) in [
            ("apache-worker-exhausted", "apache-workers-exhausted"),
            ("cpu-saturation", "cpu-saturated"),
            ("heathly", "healthy"),
            ("pagetime", "page-time"),
        ] {
            assert!(explained(typed).unwrap_err().hint.unwrap().contains(meant), "{typed}");
        }
    }

    #[test]
    fn words_find_the_chapters_about_them() {
        let topics: Vec<Topic> = findings().into_iter().chain(report_words()).collect();
        for (words, id) in [
            ("slow database", "db-slow-queries"),
            ("slow", "slow-clients"),
            ("DNS", "hostname-lookups"),
            ("nf_conntrack", "conntrack-full"),
            ("memory", "memory-exhausted"),
            ("waterfall chart", "waterfall"),
            ("my p99 is exactly 1 s", "accept-queue-overflow"),
        ] {
            let found: Vec<&str> = about(words, &topics).iter().map(|topic| topic.id).collect();
            assert!(found.contains(&id) && found.len() <= MATCHES_MAX, "{words}: {found:?}");
        }
        assert!(about("zzzzzzzzzzzz", &topics).is_empty());
    }

    #[test]
    fn the_list_names_every_rule_and_every_word() {
        for topic in findings().into_iter().chain(report_words()) {
            assert!(list().contains(&topic.line()) && !topic.title.is_empty(), "{}", topic.id);
            assert!(topic.text.starts_with(&format!("`{}`", topic.id)), "{}", topic.id);
        }
        assert!(CHAPTERS.iter().all(|(word, _)| limits::by_id(word).is_none()), "a word is a finding too");
    }
}
