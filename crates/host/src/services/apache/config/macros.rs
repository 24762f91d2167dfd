//! Macros of mod_macro: what `<Macro>` defines and `Use` puts in its place.
//!
//! modules/core/mod_macro.c of httpd: names are in any case; the lines up to `</Macro>` are kept as they are read, without
//! comments; in each, the first parameter that is found is replaced, of several at one place the longest, then it goes on
//! behind what was put there. A parameter that begins with `@` is put in quotes.

use super::syntax::{Line, next_word, words};
use std::path::Path;
use std::sync::Arc;

/// Longest line that a macro may give (MAX_STRING_LEN).
const LINE_BYTES_MAX: usize = 8192;

/// A macro.
#[derive(Debug, Clone)]
pub struct Macro {
    /// In lower case.
    pub name: String,
    /// The names of its parameters.
    pub parameters: Vec<String>,
    /// Its lines.
    pub lines: Vec<Line>,
    /// The file that it is written in.
    pub file: Option<Arc<Path>>,
}

impl Macro {
    /// Reads the arguments of `<Macro name parameters>`; `None` without a name.
    pub fn new(arguments: &str, lines: &[Line], file: Option<&Arc<Path>>) -> Option<Self> {
        let (name, rest) = next_word(arguments);
        let flags = |word: &String| word.starts_with("/Ignore");
        let lines = lines.iter().filter(|line| !line.text.starts_with('#'));
        (!name.is_empty()).then(|| Self {
            name: name.to_ascii_lowercase(),
            parameters: words(rest).into_iter().skip_while(flags).filter(|word| !word.is_empty()).collect(),
            lines: lines.cloned().collect(),
            file: file.cloned(),
        })
    }

    /// Its lines with values in the place of parameters; an error says why Apache would refuse it.
    pub fn expand(&self, values: &[String]) -> Result<Vec<Line>, String> {
        if values.len() != self.parameters.len() {
            return Err(format!(
                "macro {} is used with {} arguments instead of {}",
                self.name,
                values.len(),
                self.parameters.len()
            ));
        }
        let expanded = |line: &Line| {
            let text = self.substituted(&line.text, values);
            let is_short = text.len() < LINE_BYTES_MAX;
            is_short
                .then(|| Line { text, ..line.clone() })
                .ok_or_else(|| format!("macro {} gives a line longer than {LINE_BYTES_MAX} bytes", self.name))
        };
        self.lines.iter().map(expanded).collect()
    }

    fn substituted(&self, text: &str, values: &[String]) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((at, name, value)) = self.next(rest, values) {
            out.push_str(&rest[..at]);
            rest = &rest[at + name.len()..];
            if !name.starts_with('@') || name == value {
                out.push_str(value);
                continue;
            }
            // httpd goes on behind as many bytes as the value has, which the quotes and escapes are not among: what is
            // left of it may be replaced, too. No value that is of use has a parameter in it.
            out.push('"');
            for character in value.chars() {
                if matches!(character, '"' | '\\') {
                    out.push('\\');
                }
                out.push(character);
            }
            out.push('"');
        }
        out.push_str(rest);
        out.trim().to_owned()
    }

    /// The first parameter in a text; of several at one place the longest.
    fn next<'t>(&'t self, text: &str, values: &'t [String]) -> Option<(usize, &'t str, &'t str)> {
        let found = self.parameters.iter().zip(values).filter_map(|(name, value)| {
            text.find(name.as_str()).map(|at| (at, name.as_str(), value.as_str()))
        });
        found.min_by_key(|(at, name, _)| (*at, std::cmp::Reverse(name.len())))
    }
}

/// How many of the lines after `<Macro>` are its own; `None` when its end is missing.
pub fn length(lines: &[Line]) -> Option<usize> {
    let mut depth = 1_usize;
    lines.iter().position(|line| {
        let (first, _) = next_word(&line.text);
        if first.eq_ignore_ascii_case("</Macro>") {
            depth -= 1;
        } else if first.eq_ignore_ascii_case("<Macro") {
            depth += 1;
        }
        depth == 0
    })
}

#[cfg(test)]
mod tests {
    use super::super::Document;
    use super::*;
    use proptest::prelude::*;

    fn expand(parameters: &str, line: &str, values: &[&str]) -> Result<Vec<String>, String> {
        let lines = Document::parse(line.as_bytes()).lines;
        let defined = Macro::new(&format!("M {parameters}"), &lines, None).unwrap();
        let values: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
        Ok(defined.expand(&values)?.into_iter().map(|line| line.text).collect())
    }

    #[test]
    fn parameters_are_replaced_as_in_mod_macro() {
        for (parameters, line, values, expected) in [
            ("$a $b", "X $a$b $a", &["1", "2"][..], "X 12 1"),
            ("$a $ab", "X $ab $a", &["1", "2"], "X 2 1"),
            ("@q", "X @q", &["a \"b\\"], "X \"a \\\"b\\\\\""),
            ("$a", "X $a", &["$a"], "X $a"),
            ("$a", "X $a", &[""], "X"),
            ("/IgnoreEmptyArgs $a", "X $a", &["1"], "X 1"),
            ("$a $b", "X $a", &["$b", "2"], "X $b"),
        ] {
            assert_eq!(expand(parameters, line, values).unwrap(), [expected], "{line}");
        }
        assert!(expand("$a", "X", &[]).unwrap_err().contains("0 arguments instead of 1"));
        assert!(expand("$a", "X $a", &["y".repeat(9000).as_str()]).is_err());
    }

    #[test]
    fn the_end_of_a_macro_is_its_own() {
        let length = |text: &str| length(&Document::parse(text.as_bytes()).lines);
        assert_eq!(length("a\n</macro>\nb\n"), Some(1));
        assert_eq!(length("<Macro x>\n</Macro>\n</Macro>\n"), Some(2));
        assert_eq!(length("a\n"), None);
    }

    proptest! {
        // Whatever names and values are, expansion ends and does not panic.
        #[test]
        fn any_macro_ends(parameters in "[$@%a ]{0,12}", line in "[$@%a\"\\\\é ]{0,40}", values in prop::collection::vec("[$@%aé\"\\\\]{0,8}", 0..6)) {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            let _ = expand(&parameters, &line, &values);
        }
    }
}
