//! What an evaluated configuration is made of.

use super::condition::Version;
use super::syntax::{Document, words};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// What evaluation starts from: the command line, the environment and the compiled defaults.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// The main file, absolute.
    pub main_file: PathBuf,
    /// ServerRoot before any directive sets it.
    pub server_root: PathBuf,
    /// Names given as `-D`.
    pub defines: Vec<String>,
    /// The environment of the server.
    pub environment: BTreeMap<String, String>,
    /// Modules that are compiled in.
    pub static_modules: Vec<Module>,
    /// For `<IfVersion>`.
    pub version: Option<Version>,
    /// Directives given as `-C`, which come before the file.
    pub before: Vec<String>,
    /// Directives given as `-c`, which come after it.
    pub after: Vec<String>,
    /// Contents that files would have, by path without links: what a plan would make of the configuration.
    pub overlay: BTreeMap<PathBuf, String>,
    /// Whether nothing but the overlay is read.
    pub is_isolated: bool,
    /// Whether what was read is kept in [`Evaluation::sources`].
    pub keeps_sources: bool,
}

/// A module by its two names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// `status_module`.
    pub symbol: String,
    /// `mod_status.c`.
    pub source: String,
    /// The file it was loaded from; `None` when it is compiled in.
    pub file: Option<PathBuf>,
}

/// A section that is not a condition: what is in it does not hold for the whole server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// `VirtualHost`, as it is written.
    pub name: String,
    /// Its arguments.
    pub words: Vec<String>,
    /// Numbers sections of the whole configuration, so that two with the same arguments are told apart.
    pub id: usize,
}

/// Where a section begins.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The section.
    pub section: Section,
    /// The number of the section around it; `None` at server scope.
    pub parent: Option<usize>,
    /// Its file; `None` on the command line.
    pub file: Option<Arc<Path>>,
    /// The line of its `<Name`, as Apache counts it.
    pub line: u32,
    /// How many directives came before it.
    pub order: usize,
    /// The macro that it is written in, and where that is used.
    pub via: Option<Arc<str>>,
}

impl Opened {
    /// Whether it is one of these sections, in any case.
    pub fn is(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.section.name.eq_ignore_ascii_case(name))
    }

    /// `/etc/apache2/apache2.conf:12`.
    pub fn place(&self) -> String {
        place(self.file.as_ref(), self.line) + &through(self.via.as_deref())
    }
}

/// A directive at its place.
#[derive(Debug, Clone)]
pub struct Placed {
    /// As it is written.
    pub name: String,
    /// With variables resolved.
    pub arguments: String,
    /// Where it is written; `None` on the command line.
    pub file: Option<Arc<Path>>,
    /// The line as Apache counts it, from 1: of a continued line the last.
    pub line: u32,
    /// Its place in the order of evaluation.
    pub order: usize,
    /// The sections around it from the outside; none at server scope.
    pub scope: Arc<[Section]>,
    /// The macro that it is written in, and where that is used: its line is one of the macro's.
    pub via: Option<Arc<str>>,
}

impl Placed {
    /// Its arguments as words.
    pub fn words(&self) -> Vec<String> {
        words(&self.arguments)
    }

    /// Whether it holds for the whole server.
    pub fn is_global(&self) -> bool {
        self.scope.is_empty()
    }

    /// `/etc/apache2/apache2.conf:12`.
    pub fn place(&self) -> String {
        place(self.file.as_ref(), self.line) + &through(self.via.as_deref())
    }
}

/// An `Include` or `IncludeOptional` that was read.
#[derive(Debug, Clone)]
pub struct Included {
    /// Absolute.
    pub pattern: PathBuf,
    /// The file that includes.
    pub file: Option<Arc<Path>>,
    /// Whether it stands at server scope.
    pub is_global: bool,
    /// The order before its first file.
    pub order: usize,
    /// Its files with the order after each.
    pub files: Vec<(PathBuf, usize)>,
}

/// A file as it was read, for who renders a changed copy of it. One that is included twice is there twice, as its
/// variables may have other values each time.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// The file; `None` for a directive of the command line.
    pub path: Option<PathBuf>,
    /// Its lines.
    pub document: Document,
    /// The index of the include that read it; `None` for the main file.
    pub included: Option<usize>,
    /// The lines that count, by the number of their last physical line. Those of skipped sections are not there.
    pub lines: BTreeMap<u32, Counted>,
}

/// A line that counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// With variables resolved.
    pub text: String,
    /// How many directives came before it.
    pub order: usize,
    /// The index of the include that it is.
    pub include: Option<usize>,
}

/// The configuration as it would be in force.
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    /// Every directive outside of skipped sections, in order.
    pub directives: Vec<Placed>,
    /// Every section that makes a scope, in order: the one with the number `id` is at `id - 1`.
    pub sections: Vec<Opened>,
    /// Modules, compiled in and loaded, in order.
    pub modules: Vec<Module>,
    /// Includes, in order.
    pub includes: Vec<Included>,
    /// Files that were read, in order; one that is included twice is there twice.
    pub files: Vec<PathBuf>,
    /// Directories that includes were looked up in: their entries decide which files are read.
    pub directories: BTreeSet<PathBuf>,
    /// What was read, in order: first what the command line says before the files, last what it says after them. Empty
    /// unless it was asked for.
    pub sources: Vec<Source>,
    /// ServerRoot in force.
    pub server_root: PathBuf,
    /// Variables that the files ask for.
    pub variables: BTreeSet<String>,
    /// What could not be read or understood.
    pub warnings: Vec<String>,
}

impl Evaluation {
    /// All directives of these names (in any case), in order, in every context.
    pub fn all<'a>(&'a self, names: &'a [&'a str]) -> impl DoubleEndedIterator<Item = &'a Placed> {
        let named = |placed: &&Placed| names.iter().any(|name| placed.name.eq_ignore_ascii_case(name));
        self.directives.iter().filter(named)
    }

    /// The directive of these names that wins at server scope.
    pub fn global<'a>(&'a self, names: &'a [&'a str]) -> Option<&'a Placed> {
        self.all(names).rfind(|placed| placed.is_global())
    }

    /// Whether a module is there, by symbol or source name.
    pub fn has_module(&self, name: &str) -> bool {
        self.modules.iter().any(|module| module.symbol == name || module.source == name)
    }

    /// A path as directives give it: relative to ServerRoot.
    pub fn path(&self, path: &str) -> PathBuf {
        absolute(&self.server_root, path)
    }
}

/// Joins a path to a base and removes `.` and `..` as `apr_filepath_merge` does, without looking at the disk.
pub fn absolute(base: &Path, path: &str) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in base.join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    clean
}

/// `/etc/apache2/apache2.conf:12`.
pub fn place(file: Option<&Arc<Path>>, line: u32) -> String {
    match file {
        Some(file) => format!("{}:{line}", file.display()),
        None => "the command line".into(),
    }
}

/// ` (macro host, used at /etc/apache2/sites-enabled/a.conf:3)`.
fn through(via: Option<&str>) -> String {
    via.map(|via| format!(" ({via})")).unwrap_or_default()
}
