//! Places in a description, and errors that show them: file, line and column, and the line with the place underlined.

use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use webdyno_model::UserError;

/// Characters of a line that are shown, so that the error fits a terminal.
const SHOWN_MAX: usize = 70;
/// What helps with every mistake that has no better hint.
pub const SCHEMA_HINT: &str = "docs/scenarios.md says what a scenario holds";

/// One step on the way to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathStep<'a> {
    /// A key of a table.
    Key(&'a str),
    /// A place in an array, from 0.
    At(usize),
}

impl<'a> From<&'a str> for PathStep<'a> {
    fn from(key: &'a str) -> Self {
        Self::Key(key)
    }
}

impl From<usize> for PathStep<'_> {
    fn from(at: usize) -> Self {
        Self::At(at)
    }
}

/// A description with the places of its values.
#[derive(Debug)]
pub struct Description<'a> {
    path: &'a Path,
    text: &'a str,
    document: Option<Spanned<DeTable<'a>>>,
}

impl<'a> Description<'a> {
    /// Of a description that could be read.
    pub fn of(path: &'a Path, text: &'a str) -> Self {
        Self { path, text, document: DeTable::parse(text).ok() }
    }

    /// A usage error at a value, or where that is not written at what it would be part of.
    pub fn wrong(&self, steps: &[PathStep<'_>], message: impl AsRef<str>) -> UserError {
        wrong_at(self.path, self.text, &self.span(steps), message.as_ref())
    }

    fn span(&self, steps: &[PathStep<'_>]) -> Range<usize> {
        let Some(document) = &self.document else { return 0..0 };
        let mut span = 0..0;
        let mut here: Option<&DeValue<'_>> = None;
        for step in steps {
            let table = match here {
                None => Some(document.get_ref()),
                Some(value) => value.as_table(),
            };
            let next = match step {
                PathStep::Key(key) => table.and_then(|table| table.get(*key)),
                PathStep::At(at) => here.and_then(DeValue::as_array).and_then(|array| array.get(*at)),
            };
            let Some(next) = next else { break };
            (span, here) = (next.span(), Some(next.get_ref()));
        }
        span
    }
}

/// A usage error at a place of a file.
pub fn wrong_at(path: &Path, text: &str, span: &Range<usize>, message: &str) -> UserError {
    let start = floor(text, span.start);
    let line = text[..start].matches('\n').count() + 1;
    let begin = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let whole = text[begin..].lines().next().unwrap_or_default();
    let column = text[begin..start].chars().count();
    let mut reported = format!("{}:{line}:{}: {message}", path.display(), column + 1);
    if column < SHOWN_MAX {
        let displayed: String =
            whole.chars().take(SHOWN_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let end = floor(text, span.end.max(start));
        let marked = text[start..end].lines().next().unwrap_or_default().chars().count();
        let marks = "^".repeat(marked.clamp(1, SHOWN_MAX - column));
        reported
            .push_str(format!("\n{line:4} | {displayed}\n     | {}{marks}", " ".repeat(column)).trim_end());
    }
    UserError::usage(reported).hint(SCHEMA_HINT)
}

/// The boundary of a character at or before a byte.
fn floor(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

/// A hint with the word that was probably meant, if one is near; else with what there is.
pub fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>, all: &str) -> String {
    let likeness = |word: &str| strsim::jaro_winkler(&written.to_lowercase(), &word.to_lowercase());
    let best = known.into_iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    match best.filter(|word| likeness(word) > 0.8) {
        Some(word) => format!("did you mean `{word}`?"),
        None => all.to_owned(),
    }
}
