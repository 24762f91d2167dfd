//! Writing texts into nginx's configuration: in place of a directive, behind it or behind the brace that opens a block, or as
//! parameters of it.
//!
//! All places are those of the text as it was read, whatever else is written into it.

use super::config::{self, Occurrence, Opening};
use super::syntax;
use crate::services::common::edit::{Document, Edit};
use std::ops::Range;
use std::path::{Path, PathBuf};
use webdyno_model::workload::is_secret_name;
use webdyno_model::{Result, UserError};

/// One text to be written to one file.
#[derive(Debug, Clone)]
pub struct TextEdit {
    /// The file.
    pub file: PathBuf,
    /// What stands there: the name of a directive or block; none at the begin of the file.
    name: String,
    /// Where, in bytes of the file.
    span: Range<usize>,
    write: Write,
}

#[derive(Debug, Clone)]
enum Write {
    Instead(String),
    /// On a line of its own.
    Behind(String),
    /// In place of parameters of the same name, else at the end.
    Parameters(Vec<String>),
    /// The value of this parameter, which is there; every other byte stays.
    Value(String, String),
}

impl TextEdit {
    /// A text in place of a directive.
    pub fn instead(of: &Occurrence, text: String) -> Self {
        Self { name: of.name.clone(), ..Self::at(&of.file, of.span.clone(), Write::Instead(text)) }
    }

    /// A directive with these parameters.
    pub fn with_parameters(of: &Occurrence, parameters: Vec<String>) -> Self {
        Self { name: of.name.clone(), ..Self::at(&of.file, of.span.clone(), Write::Parameters(parameters)) }
    }

    /// A directive whose parameter, which is there, has this value; every other byte stays.
    pub fn with_value(of: &Occurrence, name: &str, value: &str) -> Self {
        let write = Write::Value(name.to_owned(), value.to_owned());
        Self { name: of.name.clone(), ..Self::at(&of.file, of.span.clone(), write) }
    }

    /// A line that comes first in a block.
    pub fn first_in(block: &Opening, text: String) -> Self {
        Self { name: block.name.clone(), ..Self::at(&block.file, block.span.clone(), Write::Behind(text)) }
    }

    /// A line that comes last in a block; `None` where that ends with a block of its own.
    pub fn last_in(block: &Opening, text: String) -> Option<Self> {
        let last = block.last.clone()?;
        Some(Self::at(&block.file, last, Write::Behind(text)))
    }

    /// A line that comes first in a file.
    pub fn at_begin(file: &str, text: String) -> Self {
        Self::at(file, 0..0, Write::Behind(text))
    }

    fn at(file: &str, span: Range<usize>, write: Write) -> Self {
        Self { file: file.into(), name: String::new(), span, write }
    }
}

/// A file of nginx.
#[derive(Debug, Default)]
pub struct NginxFile {
    text: String,
    /// What comes in place of which bytes.
    edits: Vec<(Range<usize>, String)>,
}

/// Directives beside the known settings whose lines hold no secrets.
const HARMLESS: [&str; 12] = [
    "charset",
    "daemon",
    "events",
    "http",
    "include",
    "index",
    "pid",
    "root",
    "server",
    "server_name",
    "upstream",
    "user",
];

/// What lets a connection to a backend be kept.
pub const NO_CLOSE: &str = "proxy_set_header Connection \"\"";

impl Document for NginxFile {
    fn parse(text: &str) -> Self {
        Self { text: text.to_owned(), edits: vec![] }
    }

    fn render(&self) -> String {
        let mut text = self.text.clone();
        let mut edits: Vec<_> = self.edits.iter().collect();
        // From the end on, so that what comes before keeps its place; of several at one place the first one comes first.
        edits.sort_by_key(|(span, _)| span.start);
        for (span, new) in edits.into_iter().rev() {
            text.replace_range(span.clone(), new);
        }
        text
    }

    /// Headers hand passwords to backends.
    fn displayed(text: &str) -> String {
        text.split_inclusive('\n').map(displayed_line).collect()
    }
}

fn displayed_line(line: &str) -> String {
    let begin = line.len() - line.trim_start().len();
    let begins_comment = |at: &usize| {
        let before = line[..*at].trim_end();
        before.is_empty() || before.ends_with(|last: char| ";{}".contains(last))
    };
    let comment_at = line.match_indices('#').map(|(at, _)| at).find(begins_comment);
    let (code, comment) = line.split_at(comment_at.unwrap_or(line.len()));
    let comment = comment.trim_start_matches(['#', ' ', '\t']).trim();
    // An old directive may stand in a comment, with all that it held.
    let is_prose = !comment.contains(';') && !comment.split_ascii_whitespace().any(is_secret_name);
    if are_harmless(code) && (is_prose || are_harmless(comment)) {
        return line.to_owned();
    }
    let end = if line.ends_with('\n') { "\n" } else { "" };
    let name = if code.trim().is_empty() { "#" } else { first(line) };
    format!("{}{name} ...{end}", &line[..begin])
}

/// Whether directives hold no secrets.
fn are_harmless(text: &str) -> bool {
    let mut parts = text.split([';', '{', '}']).map(str::trim);
    parts.all(|part| part.is_empty() || part == NO_CLOSE || is_harmless(first(part)))
}

fn first(text: &str) -> &str {
    text.split_ascii_whitespace().next().unwrap_or_default()
}

fn is_harmless(name: &str) -> bool {
    HARMLESS.contains(&name) || config::is_known(name)
}

impl Edit for TextEdit {
    type Document = NginxFile;

    fn file(&self) -> &Path {
        &self.file
    }

    fn is_drop_in(&self) -> bool {
        false
    }

    fn change(&self, document: &mut NginxFile, path: &Path) -> Result<()> {
        let text = &document.text;
        let found = text.get(self.span.clone());
        let Some(found) = found.filter(|found| found.trim_start_matches(['"', '\'']).starts_with(&self.name))
        else {
            let why = format!("{} was changed while it was read", path.display());
            return Err(UserError::cannot_run(why).hint("make the plan again"));
        };
        let edit = match &self.write {
            Write::Instead(new) => (self.span.clone(), new.clone()),
            Write::Parameters(parameters) => (self.span.clone(), with_parameters(found, parameters)),
            Write::Value(name, value) => {
                let new = with_value(found, name, value).ok_or_else(|| {
                    let why = format!("{} does not say {name}= in one piece", path.display());
                    UserError::cannot_run(why).hint(format!("write {name}={value} there by hand"))
                })?;
                (self.span.clone(), new)
            }
            Write::Behind(line) if self.span.end == 0 => (0..0, format!("{line}\n")),
            Write::Behind(line) => {
                let at = line_end(text, self.span.end);
                let deeper = if found.ends_with('{') { "    " } else { "" };
                (at..at, format!("\n{}{deeper}{line}", indent(text, self.span.start)))
            }
        };
        // A file may be known by several names.
        if !document.edits.contains(&edit) {
            document.edits.push(edit);
        }
        Ok(())
    }
}

/// The end of a line of which nothing but a comment is left; else where it is.
fn line_end(text: &str, at: usize) -> usize {
    let rest = text[at..].split(['\r', '\n']).next().unwrap_or_default();
    let is_over = rest.trim_start().is_empty() || rest.trim_start().starts_with('#');
    if is_over { at + rest.len() } else { at }
}

/// The blanks that a line begins with.
fn indent(text: &str, at: usize) -> &str {
    let begin = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line = &text[begin..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// A directive with parameters at its end, in place of those of the same name.
fn with_parameters(directive: &str, parameters: &[String]) -> String {
    let mut text = directive.trim_end_matches(';').trim_end().to_owned();
    for parameter in parameters {
        let name = parameter.split_inclusive('=').next().filter(|name| name.ends_with('='));
        let is_word = |at: usize| text[..at].ends_with(|before: char| before.is_ascii_whitespace());
        let old = name.and_then(|name| text.match_indices(name).map(|(at, _)| at).find(|at| is_word(*at)));
        match old {
            Some(at) => {
                let behind =
                    text[at..].find(|c: char| c.is_ascii_whitespace()).map_or(text.len(), |end| at + end);
                text.replace_range(at..behind, parameter);
            }
            None => text = format!("{text} {parameter}"),
        }
    }
    text + ";"
}

/// A directive with another value of a parameter: at the place that makes of its words what is wanted, however it is quoted.
fn with_value(directive: &str, name: &str, value: &str) -> Option<String> {
    let words = |text: &str| match &syntax::parse(text) {
        (found, problems) if problems.is_empty() && found.len() == 1 => Some(found[0].words.clone()),
        _ => None,
    };
    let mut wanted = words(directive)?;
    let word = wanted.iter_mut().find(|word| word.split_once('=').is_some_and(|(known, _)| known == name))?;
    let now = word.split_off(name.len() + 1);
    word.push_str(value);
    let places = directive.match_indices('=').map(|(at, _)| at + 1);
    let changed = places
        .filter(|at| directive[*at..].starts_with(&now))
        .map(|at| format!("{}{value}{}", &directive[..at], &directive[at + now.len()..]));
    changed.into_iter().find(|text| words(text).as_ref() == Some(&wanted))
}

#[cfg(test)]
mod tests {
    use super::super::config::{self, read};
    use super::*;
    use crate::visibility::process_view::Root;

    fn changed(text: &str, edit: impl Fn(&config::Config) -> TextEdit) -> Result<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nginx.conf");
        std::fs::write(&path, text).unwrap();
        let edit = edit(&read(&Root::ours(), &path.to_string_lossy()));
        let mut document = NginxFile::parse(text);
        edit.change(&mut document, &edit.file)?;
        // Somebody who does the same again.
        edit.change(&mut document, &edit.file)?;
        Ok(document.render())
    }

    #[test]
    fn a_text_is_written_where_it_belongs_and_nothing_else_changes() {
        let instead = |text: &str, name: &str| {
            changed(text, |config| TextEdit::instead(&config.occurrences(name)[0], format!("{name} 4096;")))
        };
        assert_eq!(
            instead(
                "user x; # worker_connections 1;\nevents { worker_connections\n 768 ; } # a\nhttp {}",
                "worker_connections"
            )
            .unwrap(),
            "user x; # worker_connections 1;\nevents { worker_connections 4096; } # a\nhttp {}"
        );
        let first = |text: &str, block: &str| {
            changed(text, |config| TextEdit::first_in(&config.openings(block)[0].0, "a b;".into())).unwrap()
        };
        assert_eq!(first("events {}\n", "events"), "events {\n    a b;}\n");
        assert_eq!(first("x;\nhttp { # why\n  c d;\n}\n", "http"), "x;\nhttp { # why\n    a b;\n  c d;\n}\n");
        assert_eq!(
            first("http {\n  server {\r\n    c d;\n}}\n", "server"),
            "http {\n  server {\n      a b;\r\n    c d;\n}}\n"
        );
        let last = |text: &str| {
            changed(text, |config| {
                TextEdit::last_in(&config.openings("upstream")[0].0, "a b;".into()).unwrap()
            })
        };
        let upstream = "http { upstream u {\n\tserver a;\n\tserver b; # spare\n} }";
        assert_eq!(
            last(upstream).unwrap(),
            "http { upstream u {\n\tserver a;\n\tserver b; # spare\n\ta b;\n} }"
        );
        assert_eq!(last("upstream u { server a; }").unwrap(), "upstream u { server a;\na b; }");
        let begin = changed("events {}\n", |config| TextEdit::at_begin(config.main_file(), "a b;".into()));
        assert_eq!(begin.unwrap(), "a b;\nevents {}\n");
    }

    #[test]
    fn a_file_that_was_changed_meanwhile_is_refused() {
        let config = "events { worker_connections 5; }";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nginx.conf");
        std::fs::write(&path, config).unwrap();
        let config = read(&Root::ours(), &path.to_string_lossy());
        let edit = TextEdit::instead(&config.occurrences("worker_connections")[0], "x;".into());
        for text in ["user x;\nevents { worker_connections 5; }", "é", ""] {
            let error = edit.change(&mut NginxFile::parse(text), &edit.file).unwrap_err();
            assert!(error.message.contains("was changed while it was read"), "{error}");
        }
    }

    #[test]
    fn parameters_take_the_place_of_those_of_the_same_name() {
        for (before, after) in [
            ("listen 80;", "listen 80 backlog=9;"),
            ("listen\n  80 backlog=511 ;", "listen\n  80 backlog=9;"),
            ("listen 80 backlog=1 ssl;", "listen 80 backlog=9 ssl;"),
            ("listen 80 xbacklog=1;", "listen 80 xbacklog=1 backlog=9;"),
        ] {
            assert_eq!(with_parameters(before, &["backlog=9".into()]), after);
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let text = "http {\n  proxy_set_header X-Token s3cret;\n  worker_connections 5;\n  # why\n  sendfile on; }\n\n\
                    proxy_set_header Connection \"\";\nsendfile on; proxy_set_header X s3cret; }\n\
                    #proxy_set_header X s3cret;\n  # the token is s3cret\n# gzip on;\nsendfile on; # password=s3cret\n";
        assert_eq!(
            NginxFile::displayed(text),
            "http {\n  proxy_set_header ...\n  worker_connections 5;\n  # why\n  sendfile on; }\n\n\
             proxy_set_header Connection \"\";\nsendfile ...\n# ...\n  # ...\n# gzip on;\nsendfile ...\n"
        );
    }
}
