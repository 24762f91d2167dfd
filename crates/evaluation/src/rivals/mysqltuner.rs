//! MySQLTuner's recommendations, read from what it prints.
//!
//! Facts: mysqltuner(1), and what it prints: at the end a section with "General recommendations:" and "Variables to
//! adjust:", each followed by indented lines.

use super::advice::{Advice, Direction};
use serde::{Deserialize, Serialize};

const GENERAL: &str = "General recommendations:";
const ADJUST: &str = "Variables to adjust:";
/// What stands there when it has nothing to say.
const NOTHING: &str = "No additional performance recommendations are available.";
/// A longer line is cut after a word when it is shown.
const SHOWN_CHARS_MAX: usize = 60;

/// What it recommends, line by line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recommendations {
    /// Its version.
    pub version: Option<String>,
    /// Variables to adjust.
    pub adjust: Vec<String>,
    /// The rest.
    pub general: Vec<String>,
}

impl Recommendations {
    /// Of what it printed; `None` when it did not get as far as its recommendations.
    pub fn of(printed: &str) -> Option<Self> {
        let version = printed.lines().find_map(|line| {
            let rest = line.trim().strip_prefix(">>")?.trim().strip_prefix("MySQLTuner ")?;
            Some(rest.split_whitespace().next()?.to_owned())
        });
        let mut read = Self { version, ..Self::default() };
        let (mut is_there, mut part) = (false, None);
        for line in printed.lines() {
            match line.trim() {
                NOTHING => is_there = true,
                GENERAL => part = Some(GENERAL),
                ADJUST => part = Some(ADJUST),
                text if line.starts_with("  ") && !text.is_empty() => match part {
                    Some(GENERAL) => read.general.push(text.to_owned()),
                    Some(_) => read.adjust.push(text.to_owned()),
                    None => {}
                },
                _ => part = None,
            }
            is_there |= part.is_some();
        }
        is_there.then_some(read)
    }

    /// What of it is advice on a setting, on indexes, or on memory as a whole.
    pub fn advice(&self) -> Vec<Advice> {
        let mut advice: Vec<Advice> = self.adjust.iter().filter_map(|line| adjustment(line)).collect();
        for line in &self.adjust {
            if line.contains("use indexes") {
                advice.push(Advice::new("index", Direction::Look, line.as_str()));
            }
        }
        for line in &self.general {
            if line.contains("memory footprint") {
                advice.push(Advice::new("memory", Direction::Lower, line.as_str()));
            }
        }
        advice
    }

    /// Its lines, short.
    pub fn short(&self) -> Vec<String> {
        let of_memory = self.general.iter().filter(|line| line.contains("memory footprint"));
        let lines = self.adjust.iter().filter(|line| !line.starts_with('*')).chain(of_memory);
        let cut = |line: &String| match line.char_indices().nth(SHOWN_CHARS_MAX) {
            Some((at, _)) => {
                let end = if line[at..].starts_with(' ') { at } else { line[..at].rfind(' ').unwrap_or(at) };
                format!("{}...", &line[..end])
            }
            None => line.clone(),
        };
        lines.map(cut).collect()
    }
}

/// A variable with what it is to be: `max_connections (> 20)`, `skip-name-resolve=1`, `thread_cache_size (start at 4)`.
fn adjustment(line: &str) -> Option<Advice> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let end = line.find(|c| !is_name(c)).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if name.is_empty() {
        return None;
    }
    let way = match rest.trim_start_matches([' ', '(']).chars().next() {
        Some('>') => Direction::Raise,
        Some('<') => Direction::Lower,
        _ if rest.contains("start at") => Direction::Raise,
        _ => Direction::Set,
    };
    Some(Advice::new(&name.replace('-', "_"), way, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = include_str!("../../fixtures/mysqltuner.txt");

    #[test]
    fn recommendations_are_read_from_what_it_printed() {
        let read = Recommendations::of(PRINTED).unwrap();
        assert_eq!(read.version.as_deref(), Some("1.9.9"));
        assert_eq!(
            read.adjust,
            [
                "skip-name-resolve=1",
                "thread_cache_size (start at 4)",
                "innodb_log_file_size should be (=32M) if possible, so InnoDB total log files size equals 25% of buffer \
                 pool size.",
            ]
        );
        assert_eq!(read.general.len(), 6);
        let advice: Vec<_> = read.advice().into_iter().map(|one| (one.setting, one.way)).collect();
        let expected = [
            ("skip_name_resolve", Direction::Set),
            ("thread_cache_size", Direction::Raise),
            ("innodb_log_file_size", Direction::Set),
        ];
        assert_eq!(advice, expected.map(|(name, way)| (name.to_owned(), way)));
        assert_eq!(read.short()[2], "innodb_log_file_size should be (=32M) if possible, so InnoDB...");
        let long = Recommendations { adjust: vec![format!("{} {}", "a".repeat(58), "b".repeat(9))], ..read };
        assert_eq!(long.short(), [format!("{}...", "a".repeat(58))]);
    }

    #[test]
    fn one_that_died_recommends_nothing_and_one_that_is_content_does() {
        let died = PRINTED.split("-------- Recommendations").next().unwrap();
        assert_eq!(Recommendations::of(died), None);
        let content = format!("{died}-------- Recommendations ---\n{NOTHING}\n");
        assert_eq!(Recommendations::of(&content).unwrap().adjust, Vec::<String>::new());
    }

    #[test]
    fn variables_are_read_with_their_way() {
        for (line, expected) in [
            ("max_connections (> 20)", Some(("max_connections", Direction::Raise))),
            ("wait_timeout (< 28800)", Some(("wait_timeout", Direction::Lower))),
            (
                "innodb_buffer_pool_size (>= 1.2G) if possible.",
                Some(("innodb_buffer_pool_size", Direction::Raise)),
            ),
            ("key_buffer_size=0", Some(("key_buffer_size", Direction::Set))),
            ("query_cache_size (=0)", Some(("query_cache_size", Direction::Set))),
            ("*** Add RAM before increasing MySQL buffer variables ***", None),
        ] {
            let read = adjustment(line).map(|one| (one.setting, one.way));
            assert_eq!(read, expected.map(|(name, way)| (name.to_owned(), way)), "{line}");
        }
        let joins = ["join_buffer_size (> 256.0K, or always use indexes with JOINs)".to_owned()];
        let general = ["Reduce your overall MySQL memory footprint for system stability".to_owned()];
        let read = Recommendations { version: None, adjust: joins.into(), general: general.into() };
        let settings: Vec<_> = read.advice().into_iter().map(|one| (one.setting, one.way)).collect();
        let expected = [
            ("join_buffer_size", Direction::Raise),
            ("index", Direction::Look),
            ("memory", Direction::Lower),
        ];
        assert_eq!(settings, expected.map(|(name, way)| (name.to_owned(), way)));
    }
}
