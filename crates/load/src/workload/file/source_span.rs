//! Places in files, and errors that show them: file, line and column, and the line with the place underlined.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use webdyno_model::UserError;

/// Characters of a line that are shown, so that the error fits a terminal.
const SHOWN_MAX: usize = 70;
/// Characters that are shown before the place, where the line is longer.
const CONTEXT_BEFORE: usize = 20;

/// A range of bytes in one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SourceSpan {
    /// Its place among the files.
    pub(super) file: usize,
    start: usize,
    end: usize,
}

impl SourceSpan {
    pub(super) fn new(file: usize, span: Range<usize>) -> Self {
        Self { file, start: span.start, end: span.end }
    }

    /// Where it begins, to put things into the order in which they were written.
    pub(super) fn start(self) -> usize {
        self.start
    }
}

/// An error in a workload file.
#[derive(Debug)]
pub(super) struct FileError {
    /// Where; `None` where the message names the file itself.
    at: Option<SourceSpan>,
    message: String,
    hint: Option<String>,
}

/// The result of reading a part of a file.
pub(super) type FileResult<T> = Result<T, Box<FileError>>;

impl FileError {
    /// Something wrong at a place.
    pub(super) fn new(at: SourceSpan, message: impl Into<String>) -> Box<Self> {
        Box::new(Self { at: Some(at), message: message.into(), hint: None })
    }

    /// An error of another reader, at the place of what it read. A file has no flags: where its hint names one, `hint`
    /// takes its place.
    pub(super) fn from_user_error(at: SourceSpan, error: UserError, hint: &str) -> Box<Self> {
        let original_hint = error.hint.filter(|original_hint| !original_hint.contains(" -"));
        Self::new(at, error.message).hint(original_hint.unwrap_or_else(|| hint.to_owned()))
    }

    /// Something wrong with the whole of a file.
    pub(super) fn without_place(message: String) -> Box<Self> {
        Box::new(Self { at: None, message, hint: None })
    }

    /// The same with what helps.
    pub(super) fn hint(mut self: Box<Self>, hint: impl Into<String>) -> Box<Self> {
        self.hint = Some(hint.into());
        self
    }

    /// The same with the word that was probably meant, if one is near; else with all of them.
    pub(super) fn did_you_mean<'a>(
        self: Box<Self>,
        written: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Box<Self> {
        let known: Vec<&str> = known.into_iter().collect();
        let hint = match nearest(written, &known) {
            Some(word) => format!("did you mean `{word}`?"),
            None if known.is_empty() => return self,
            None => format!("there is {}", join_limited(&known)),
        };
        self.hint(hint)
    }
}

/// The word that is most like the one that was written, if any is like it.
fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |word: &str| strsim::jaro_winkler(&written.to_lowercase(), &word.to_lowercase());
    let best = known.iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)))?;
    (likeness(best) > 0.8).then_some(*best)
}

/// The first words of a list, in one line.
fn join_limited(known: &[&str]) -> String {
    const LISTED_MAX: usize = 40;
    let shown = known.iter().take(LISTED_MAX).copied().collect::<Vec<_>>().join(", ");
    if known.len() > LISTED_MAX { format!("{shown}, and {} more", known.len() - LISTED_MAX) } else { shown }
}

/// The files of a workload with their texts.
#[derive(Debug, Default)]
pub(super) struct Files {
    files: Vec<(PathBuf, String)>,
}

impl Files {
    /// Adds a file and returns its index.
    pub(super) fn add(&mut self, path: PathBuf, text: String) -> usize {
        self.files.push((path, text));
        self.files.len() - 1
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Its path, as it was written, after the directory of the file that names it.
    pub(super) fn path(&self, file: usize) -> &Path {
        &self.files[file].0
    }

    pub(super) fn text(&self, file: usize) -> &str {
        &self.files[file].1
    }

    /// The path of a file that another one names: from that one's directory.
    pub(super) fn resolve_relative(&self, file: usize, path: &str) -> PathBuf {
        self.path(file).parent().unwrap_or(Path::new("")).join(path)
    }

    /// `FILE:LINE:COLUMN` of a place; columns are counted in characters.
    pub(super) fn position(&self, at: SourceSpan) -> String {
        let (line, _, before) = self.line(at);
        format!("{}:{line}:{}", self.path(at.file).display(), before.chars().count() + 1)
    }

    /// The number of its first line, that line, and its text before the place.
    fn line(&self, at: SourceSpan) -> (usize, &str, &str) {
        let text = self.text(at.file);
        // A place may lie behind the end, or within an invalid character.
        let mut start = at.start.min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let begin = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let end = text[begin..].find('\n').map_or(text.len(), |length| begin + length);
        let number = text[..begin].matches('\n').count() + 1;
        (number, text[begin..end].trim_end_matches('\r'), &text[begin..start])
    }

    /// The error with its place, as the user sees it.
    pub(super) fn user_error(&self, error: FileError) -> UserError {
        let mut message = error.message;
        if let Some(at) = error.at {
            message = format!("{}: {message}{}", self.position(at), self.source_excerpt(at));
        }
        let user_error = UserError::usage(message);
        match error.hint {
            Some(hint) => user_error.hint(hint),
            None => user_error,
        }
    }

    /// The line of a place, and the place underlined.
    fn source_excerpt(&self, at: SourceSpan) -> String {
        let (number, line, before) = self.line(at);
        let written: Vec<char> = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let column = before.chars().count().min(written.len());
        let begin = if written.len() > SHOWN_MAX { column.saturating_sub(CONTEXT_BEFORE) } else { 0 };
        let end = written.len().min(begin + SHOWN_MAX);
        let length = self
            .text(at.file)
            .get(at.start..at.end)
            .map_or(1, |text| text.split('\n').next().unwrap_or("").trim_end().chars().count());
        let (dots, more) = (if begin > 0 { "..." } else { "" }, if end < written.len() { "..." } else { "" });
        let gutter = number.to_string().len().max(2);
        let under = length.clamp(1, (end - column.min(end)).max(1));
        let mut shown = String::new();
        let piece: String = written[begin..end].iter().collect();
        let _ = write!(shown, "\n  {number:>gutter$} | {dots}{}", piece.trim_end());
        if !more.is_empty() {
            shown.push_str(more);
        }
        let space = " ".repeat(dots.len() + column - begin);
        let _ = write!(shown, "\n  {:>gutter$} | {space}{}", "", "^".repeat(under));
        shown
    }
}
