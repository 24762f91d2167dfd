//! Reading nginx's configuration: a file, and what it includes at the places that include it.
//!
//! Facts: <https://nginx.org/en/docs/ngx_core_module.html#include>: `include` takes a pattern, relative to the folder of the
//! main file.

use super::Config;
use crate::services::nginx::syntax::{self, Directive};
use crate::visibility::process_view::Root;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How deep includes may nest.
const DEPTH_MAX: usize = 32;

/// Most files that are read.
const FILES_MAX: usize = 20_000;

/// Most problems that are told.
const PROBLEMS_MAX: usize = 20;

/// Contents that files would have, by path.
pub type Overlay = BTreeMap<PathBuf, String>;

/// Reads the configuration that begins with a file.
pub fn read(root: &Root, main_file: &str) -> Config {
    read_with(root, main_file, &Overlay::new())
}

/// The same with contents that files would have.
pub fn read_with(root: &Root, main_file: &str, overlay: &Overlay) -> Config {
    let folder = main_file.rsplit_once('/').map_or("/", |(folder, _)| folder).to_owned();
    let mut reader = Reader {
        root,
        overlay,
        folder,
        known: BTreeMap::new(),
        open: vec![],
        files: BTreeMap::new(),
        folders: BTreeSet::new(),
        problems: vec![],
    };
    let directives = reader.file(main_file);
    reader.problems.truncate(PROBLEMS_MAX);
    let Reader { problems, files, folders, .. } = reader;
    Config { directives, problems, files, folders, main_file: main_file.to_owned() }
}

struct Reader<'a> {
    root: &'a Root,
    overlay: &'a Overlay,
    folder: String,
    /// Files that were read; the same one may be included from many places.
    known: BTreeMap<String, Rc<Vec<Directive>>>,
    /// Those that are being read.
    open: Vec<String>,
    files: BTreeMap<usize, String>,
    folders: BTreeSet<PathBuf>,
    problems: Vec<String>,
}

impl Reader<'_> {
    fn file(&mut self, path: &str) -> Rc<Vec<Directive>> {
        if let Some(known) = self.known.get(path) {
            return Rc::clone(known);
        }
        let planned = self.overlay.get(Path::new(path)).cloned();
        let text = match planned.map_or_else(|| self.root.read_text(path), Ok) {
            Ok(text) => text,
            Err(error) => {
                self.problems.push(webdyno_model::error::io_error("read", path, &error).message);
                return Rc::default();
            }
        };
        if text.contains('\u{fffd}') {
            self.problems.push(format!("{path} is not UTF-8: what is not is shown as \u{fffd}"));
        }
        let (directives, problems) = syntax::parse(&text);
        self.problems.extend(problems.into_iter().map(|(line, shown)| format!("{path}:{line}: {shown}")));
        self.open.push(path.to_owned());
        let directives = Rc::new(self.resolve(directives, path));
        self.open.pop();
        self.known.insert(path.to_owned(), Rc::clone(&directives));
        self.files.insert(address(&directives), path.to_owned());
        directives
    }

    /// Reads what these directives include.
    fn resolve(&mut self, directives: Vec<Directive>, file: &str) -> Vec<Directive> {
        let mut resolved = vec![];
        for directive in directives {
            match (directive.name.as_str(), &directive.block) {
                ("include", None) => resolved.extend(self.include(&directive, file)),
                (_, Some(block)) if !block.is_empty() => {
                    let block = Rc::new(self.resolve(block.to_vec(), file));
                    resolved.push(Directive { block: Some(block), ..directive });
                }
                _ => resolved.push(directive),
            }
        }
        resolved
    }

    fn include(&mut self, directive: &Directive, file: &str) -> Vec<Directive> {
        let pattern = directive.words.first().map_or("", String::as_str);
        let path =
            if pattern.starts_with('/') { pattern.to_owned() } else { format!("{}/{pattern}", self.folder) };
        let at = format!("{file}:{}", directive.line);
        if self.open.len() >= DEPTH_MAX || self.known.len() >= FILES_MAX {
            self.problems.push(format!("{at}: more files than are read, or deeper"));
            return vec![];
        }
        let found = match self.root.glob(&path) {
            Ok(found) => found,
            Err(error) => {
                self.problems.push(format!("{at}: cannot look up {pattern}: {error}"));
                return vec![];
            }
        };
        let folder = Path::new(&path).parent().filter(|_| path.contains(['*', '?', '[']));
        self.folders.extend(folder.map(Path::to_owned));
        let mut included = vec![];
        for path in found {
            if self.open.contains(&path) {
                self.problems.push(format!("{at} includes {path}, which includes it"));
                continue;
            }
            included.push(Directive { block: Some(self.file(&path)), ..directive.clone() });
        }
        included
    }
}

pub(super) fn address(block: &Rc<Vec<Directive>>) -> usize {
    Rc::as_ptr(block) as usize
}
