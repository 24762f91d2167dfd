//! Workload files: TOML in, a workload out. The format is documented in docs/workload.md; TOML is that of toml.io, 1.1.
//!
//! A file is read in four steps: it and those that it includes are loaded, their tables are read key by key with the
//! places where they stand, names and variables are resolved, and what came out, a [`Draft`], gets its defaults. Flags
//! may change the draft before that.

mod bodies;
mod captures;
mod describe;
mod draft;
mod keys;
mod reader;
mod requests;
mod scope;
mod sessions;
mod settings;
mod source_span;
mod study;
mod tables;
mod texts;
mod write;

pub use describe::describe;
pub use draft::{Draft, Entry, Settings, VISITOR_REDIRECTS_DEFAULT};
pub use requests::request_name;
pub use study::{StoreLevel, Study, StudyAxis, StudyContent, parse_study};
pub use write::to_toml;

use keys::TableKeys;
use reader::Reader;
use scope::Scope;
use source_span::{FileError, FileResult, Files, SourceSpan};
use std::cell::RefCell;
use std::io;
use std::path::{Component, Path, PathBuf};
use toml::de::DeTable;
use webdyno_model::error::io_error;
use webdyno_model::workload::Workload;
use webdyno_model::{ErrorKind, Result, UserError};

/// Files that include each other deeper than this do so in a circle that their names hide.
const DEPTH_MAX: usize = 32;

/// Reads a file that a workload names.
pub type ReadFile<'a> = &'a mut dyn FnMut(&Path) -> io::Result<Vec<u8>>;

/// A shared [`ReadFile`].
type ReadShared<'a> = dyn Fn(&Path) -> io::Result<Vec<u8>> + 'a;

/// Reads a workload file and the files that it names. A usage error for one that cannot be read or is wrong.
pub fn read(path: &Path) -> Result<Draft> {
    draft(&read_text(path)?, path, &mut |file| std::fs::read(file))
}

/// Reads a study file and the files that it names; errors as of [`read`].
pub fn read_study(path: &Path) -> Result<Study> {
    parse_study(&read_text(path)?, path, &mut |file| std::fs::read(file))
}

fn read_text(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|error| {
        let error = io_error("read the workload", path.display(), &error);
        let hint = error.hint.clone().unwrap_or_else(|| "give a file that can be read: ls -l FILE".into());
        UserError { kind: ErrorKind::Usage, hint: Some(hint), ..error }
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        UserError::usage(format!("{}: it is not UTF-8 from byte {at} on", path.display()))
            .hint("a workload file is a text in TOML: docs/workload.md")
    })
}

/// What the text of a workload file means. `path` is where it was read from, `read` reads the files that it names.
pub fn parse(text: &str, path: &Path, read: ReadFile<'_>) -> Result<Workload> {
    draft(text, path, read)?.workload_as_written()
}

/// The same before its defaults.
pub fn draft(text: &str, path: &Path, read: ReadFile<'_>) -> Result<Draft> {
    draft_over(text, path, read, &Settings::default())
}

/// The same over settings that count where the file has none.
fn draft_over(text: &str, path: &Path, read: ReadFile<'_>, base: &Settings) -> Result<Draft> {
    let mut loader = Loader { files: Files::default(), outer: vec![], finished: vec![], read };
    if let Err(error) = loader.load(path.to_owned(), text.to_owned(), &mut vec![]) {
        return Err(loader.files.user_error(*error));
    }
    let Loader { files, outer, finished, read } = loader;
    let read = RefCell::new(read);
    let fetch = |path: &Path| (read.borrow_mut())(path);
    read_tables(&files, &outer, &finished, &fetch, base).map_err(|error| files.user_error(*error))
}

/// The files, being loaded.
struct Loader<'a> {
    files: Files,
    /// The file that includes each one.
    outer: Vec<Option<usize>>,
    /// The files in the order in which they are read: included ones first.
    finished: Vec<usize>,
    read: ReadFile<'a>,
}

impl Loader<'_> {
    /// Adds a file and those that it includes. `open` are the files on the way to it.
    fn load(&mut self, path: PathBuf, text: String, open: &mut Vec<usize>) -> FileResult<()> {
        let file = self.files.add(path, text);
        self.outer.push(open.last().copied());
        open.push(file);
        let tree = tree(&self.files, file)?;
        let included = reader::includes(&TableKeys::new(tree.0, &tree.1, "the file", settings::TOP_KEYS)?)?;
        drop(tree);
        for (at, written) in included {
            let path = self.files.resolve_relative(file, &written);
            let is_it = |index: &usize| plain(self.files.path(*index)) == plain(&path);
            if let Some(first) = open.iter().position(is_it) {
                let circle: Vec<String> =
                    open[first..].iter().map(|&index| self.files.path(index).display().to_string()).collect();
                let message = format!(
                    "the files include each other in a circle: {} -> {}",
                    circle.join(" -> "),
                    circle[0]
                );
                return Err(FileError::new(at, message).hint("leave one of the includes out"));
            }
            // What two files include is there once.
            if (0..self.files.len()).any(|index| is_it(&index)) {
                continue;
            }
            if open.len() >= DEPTH_MAX {
                return Err(FileError::new(at, format!("files include each other {DEPTH_MAX} deep"))
                    .hint("is a directory a link to one that it lies in?"));
            }
            let bytes = (self.read)(&path).map_err(|error| {
                let error = io_error("read", path.display(), &error);
                FileError::from_user_error(at, error, "paths are relative to the file that names them")
            })?;
            let text = String::from_utf8(bytes).map_err(|_| {
                FileError::new(at, format!("{} is not UTF-8", path.display()))
                    .hint("a workload file is a text in TOML")
            })?;
            self.load(path, text, open)?;
        }
        open.pop();
        self.finished.push(file);
        Ok(())
    }
}

/// A path without `.` and, as far as it can be resolved lexically, `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(plain.components().next_back(), Some(Component::Normal(_))) => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// The tables of a file.
fn tree(files: &Files, file: usize) -> FileResult<(SourceSpan, DeTable<'_>)> {
    let text = files.text(file);
    match DeTable::parse(text) {
        Ok(table) => Ok((SourceSpan::new(file, 0..0), table.into_inner())),
        Err(error) => {
            let span = error.span().unwrap_or(text.len()..text.len());
            let message = error.message().replace('\n', " ");
            Err(FileError::new(SourceSpan::new(file, span), message)
                .hint("the file is written in TOML: key = value, texts between quotes, [[request]] before each request"))
        }
    }
}

/// Reads all tables of all files.
fn read_tables(
    files: &Files,
    outer: &[Option<usize>],
    order: &[usize],
    fetch: &ReadShared<'_>,
    base: &Settings,
) -> FileResult<Draft> {
    let trees = (0..files.len()).map(|file| tree(files, file)).collect::<FileResult<Vec<_>>>()?;
    let mut tops = vec![];
    for (at, table) in &trees {
        tops.push(TableKeys::new(*at, table, "the file", settings::TOP_KEYS)?);
    }
    // A file comes behind the one that includes it.
    let mut scopes: Vec<Scope<'_>> = vec![];
    for (top, outer) in tops.iter().zip(outer) {
        let scope = Scope::new(files, fetch, top, outer.map(|outer| &scopes[outer]))?;
        scopes.push(scope);
    }
    let mut reader = Reader::new(files);
    reader.draft.settings = base.clone();
    for &file in order {
        reader.definitions(&scopes[file], &tops[file])?;
    }
    for &file in order {
        reader.read_sessions(&scopes[file], &tops[file])?;
    }
    for &file in order {
        reader.list(&scopes[file], &tops[file])?;
    }
    let draft = reader.finish()?;
    if draft.entries.is_empty() && draft.list.is_none() {
        let path = files.path(0).display();
        return Err(FileError::without_place(format!("{path}: there is nothing to load"))
            .hint("write a [[request]], a [[page]] or a [[session]]; docs/workload.md has examples"));
    }
    Ok(draft)
}

#[cfg(test)]
mod document_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod wrong_tests;
