//! Flags of ab, wrk, siege, curl, hey and k6, and what to type instead. The table is the page docs/flags.md itself.

/// The page with the table.
const PAGE: &str = include_str!("../../../../docs/flags.md");

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
struct ToolFlag {
    tool: &'static str,
    /// As it may be written, the most usual first.
    spellings: Vec<&'static str>,
    /// An example of its value; empty where it takes none.
    value: &'static str,
    /// What to type; empty where there is nothing to type.
    here: &'static str,
    /// Why.
    note: &'static str,
}

fn table() -> impl Iterator<Item = ToolFlag> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    rows.filter_map(|line| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let (tool, flags, here, note) = (cells.next()?, cells.next()?, cells.next()?, cells.next()?);
        let parts = flags.split(", ").map(|flag| {
            let flag = flag.trim_matches('`');
            flag.split_once(' ').unwrap_or((flag, ""))
        });
        let (spellings, values): (Vec<_>, Vec<_>) = parts.unzip();
        Some(ToolFlag {
            tool,
            spellings,
            value: values.first().copied()?,
            here: here.trim_matches('`'),
            note,
        })
    })
}

impl ToolFlag {
    /// `-z 10s of hey is -d 10s here`, with the value that was typed where it can be carried over.
    fn hint(&self, flag: &str, typed: &str) -> String {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@%=,+-".contains(&byte);
        let can_be_shown =
            self.takes(typed) && !self.value.contains("PASSWORD") && typed.bytes().all(is_plain);
        // siege writes the units of times in capitals.
        let as_is = (self.value.to_owned(), typed.to_owned());
        let in_lower_case = (self.value.to_lowercase(), typed.to_lowercase());
        let pairs =
            [as_is, in_lower_case].into_iter().filter(|(example, _)| !example.is_empty() && can_be_shown);
        let carried = pairs.into_iter().find(|(example, _)| self.here.contains(example.as_str()));
        let (value, here) = match carried {
            Some((example, given)) => (typed, self.here.replace(&example, &given)),
            None => (self.value, self.here.to_owned()),
        };
        let typed = format!("{flag} {value}");
        match here.is_empty() {
            true => format!("{} of {}: {}", typed.trim_end(), self.tool, self.note),
            false => format!("{} of {} is {here} here", typed.trim_end(), self.tool),
        }
    }

    /// Whether a word behind the flag looks like its value: a number, with a unit, with a colon, or another word.
    fn takes(&self, word: &str) -> bool {
        let shape = |text: &str| {
            let is_digit = |letter: char| letter.is_ascii_digit();
            let is_number = text.starts_with(is_digit) && text.ends_with(is_digit);
            (text.starts_with(is_digit), is_number, text.contains(':'))
        };
        match self.value {
            "" => word.is_empty() || word.contains("://"),
            example => !word.is_empty() && shape(word) == shape(example),
        }
    }
}

/// What to type for a flag that webdyno does not have, with the word behind it, which may be its value.
pub fn unknown_flag_hint(flag: &str, word: &str) -> Option<String> {
    refused_value_hint(flag, word)
        .or_else(|| join(table().filter(|row| row.spellings.contains(&flag)).map(|row| row.hint(flag, word))))
}

/// What to type for a flag that has another meaning here, which refused this word.
pub fn refused_value_hint(flag: &str, word: &str) -> Option<String> {
    let rows = table().filter(|row| row.spellings.contains(&flag) && row.takes(word));
    join(rows.map(|row| row.hint(flag, word)))
}

fn join(hints: impl Iterator<Item = String>) -> Option<String> {
    let all: Vec<String> = hints.collect();
    (!all.is_empty()).then(|| all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::help;

    #[test]
    fn every_row_of_the_page_is_a_flag() {
        let rows = PAGE.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| tool")).count();
        assert_eq!(table().count(), rows, "a row without code, or with too few cells");
        for row in table() {
            assert!(row.spellings.iter().all(|one| one.starts_with('-')), "{row:?}");
            assert!(!row.here.is_empty() || !row.note.is_empty(), "{row:?}");
        }
    }

    /// What the table says to type can be typed.
    #[test]
    fn what_to_type_instead_is_read() {
        for row in table().filter(|row| row.here.starts_with('-')) {
            let flags = webdyno_lab::scenario::split_flags(row.here).unwrap();
            let words = ["webdyno", "run"].map(str::to_owned).into_iter().chain(flags);
            if let Err(error) = help::command(false).try_get_matches_from(words) {
                panic!("{row:?}: {error}");
            }
        }
    }

    #[test]
    fn values_are_carried_over() {
        for (flag, word, hint) in [
            ("-z", "30s", "-z 30s of hey is -d 30s here"),
            ("-z", "http://h/", "-z 10s of hey is -d 10s here"),
            ("--time", "2M", "--time 2M of siege is -d 2m here"),
            ("-u", "me:secret", "-u NAME:PASSWORD of curl is --auth NAME:PASSWORD here"),
            ("-k", "", "kept open by default; -k of curl is --insecure here"),
            ("-T", "5s", "-T 5s of wrk is --timeout 5s here"),
            ("--compressed", "http://h/", "-H 'Accept-Encoding: gzip' here"),
        ] {
            let found = unknown_flag_hint(flag, word).unwrap();
            assert!(found.contains(hint) && !found.contains("secret"), "{flag}: {found}");
        }
        assert_eq!(unknown_flag_hint("--nothing", ""), None);
        for (flag, word, hint) in [
            ("-t", "30S", Some("-t 30S of siege is -d 30s here")),
            ("-m", "5", Some("-m 5 of curl is --timeout 5s here")),
            ("-t", "ten", None),
            ("-d", "name=me", Some("-d name=me of curl is -b name=me here")),
            ("-r", "http://h/", Some("-r of ab: ")),
            ("-c", "ten", None),
        ] {
            let found = refused_value_hint(flag, word);
            assert_eq!(found.is_some(), hint.is_some(), "{flag} {word}: {found:?}");
            assert!(found.unwrap_or_default().contains(hint.unwrap_or_default()), "{flag} {word}");
        }
    }
}
