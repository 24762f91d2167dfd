//! Values that are kept in files of lines, one line each: what the files of all targets have in common.

use super::edit::{DROP_IN_HEAD, Document, Edit};
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use webdyno_model::Result;
use webdyno_model::change::Change;

/// A file of lines that set values, as its target reads it.
pub trait ValueFile: Document {
    /// The name of our own file.
    const OWN: &'static str;

    /// Its lines.
    fn lines(&mut self) -> &mut Lines;

    /// Sets a value: in place of the last line that sets it, else at the end.
    fn set(&mut self, name: &str, value: &str);

    /// What our own file says of itself.
    fn head(path: &Path) -> String {
        let _ = path;
        DROP_IN_HEAD.to_owned()
    }
}

/// Lines, each with its end.
#[derive(Debug, Default)]
pub struct Lines(Vec<String>);

impl Lines {
    /// Those of a text.
    pub fn parse(text: &str) -> Self {
        Self(text.split_inclusive('\n').map(str::to_owned).collect())
    }

    /// The text again.
    pub fn render(&self) -> String {
        self.0.concat()
    }

    /// All of them, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, String> {
        self.0.iter()
    }

    /// Puts text after a line.
    pub fn insert_after(&mut self, at: usize, text: String) {
        if let Some(line) = self.0.get_mut(at).filter(|line| !line.ends_with('\n')) {
            line.push('\n');
        }
        self.0.insert((at + 1).min(self.0.len()), text);
    }

    /// Puts text in place of a line, or at the end, where `before` comes first.
    pub fn put(&mut self, at: Option<usize>, before: &str, text: String) {
        if let Some(line) = at.and_then(|at| self.0.get_mut(at)) {
            *line = text;
            return;
        }
        if let Some(last) = self.0.last_mut().filter(|last| !last.ends_with('\n')) {
            last.push('\n');
        }
        self.0.push(format!("{before}{text}"));
    }
}

/// A text of a file with these values.
pub fn with_values<'a, F: ValueFile>(
    path: &Path,
    text: &str,
    values: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut file = F::parse(text);
    for (name, value) in values {
        set(&mut file, path, name, value);
    }
    file.render()
}

fn set<F: ValueFile>(file: &mut F, path: &Path, name: &str, value: &str) {
    if is_own::<F>(path) && file.lines().0.is_empty() {
        file.lines().0.push(F::head(path));
    }
    file.set(name, value);
}

fn is_own<F: ValueFile>(path: &Path) -> bool {
    path.file_name().is_some_and(|file| file == F::OWN)
}

/// A value that is kept.
#[derive(Debug)]
pub struct KeptValue<F> {
    file: PathBuf,
    name: String,
    value: String,
    format: PhantomData<F>,
}

impl<F> KeptValue<F> {
    /// By the file of a change.
    pub fn of(change: &Change) -> Self {
        Self {
            file: PathBuf::from(&change.file),
            name: change.setting.name.clone(),
            value: change.to.to_string(),
            format: PhantomData,
        }
    }

    /// The same with a value as its file has it.
    pub fn written(self, value: String) -> Self {
        Self { value, ..self }
    }
}

impl<F: ValueFile> Edit for KeptValue<F> {
    type Document = F;

    fn file(&self) -> &Path {
        &self.file
    }

    fn is_drop_in(&self) -> bool {
        is_own::<F>(&self.file)
    }

    fn change(&self, document: &mut F, _: &Path) -> Result<()> {
        set(document, &self.file, &self.name, &self.value);
        Ok(())
    }
}
/// An error unless a name is that of the value that is held: of any other it tells what that is.
pub(in crate::services) fn check_name(name: &str, held: &str, other: &str) -> io::Result<()> {
    if name == held { Ok(()) } else { Err(io::Error::other(format!("{name} is {other}"))) }
}
