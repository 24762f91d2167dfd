//! Where directives and blocks stand, as somebody needs it who edits them.

use super::{Config, Placed};
use crate::services::nginx::syntax::Directive;
use std::ops::Range;

/// A directive that has a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    /// `listen`.
    pub name: String,
    /// Its words.
    pub words: Vec<String>,
    /// The same, divided by blanks.
    pub value: String,
    /// Its file.
    pub file: String,
    /// Its line, from 1.
    pub line: u32,
    /// Its bytes in the file.
    pub span: Range<usize>,
    /// The blocks around it, from the outside.
    pub blocks: Vec<Opening>,
}

/// Where a block begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// `location`.
    pub name: String,
    /// What stands between its name and its brace.
    pub words: Vec<String>,
    /// The file.
    pub file: String,
    /// From its name to behind its brace, in bytes of the file.
    pub span: Range<usize>,
    /// Its last directive, in bytes of the same file; `None` for one that holds a block, whose end is not known.
    pub last: Option<Range<usize>>,
}

impl Opening {
    fn of(directive: &Directive, file: &str) -> Self {
        let is_short = |one: &&Directive| one.block.is_none() || one.name == "include";
        let last = directive.block.as_ref().and_then(|block| block.last());
        Self {
            name: directive.name.clone(),
            words: directive.words.clone(),
            file: file.to_owned(),
            span: directive.span.clone(),
            last: last.map_or(Some(directive.span.clone()), |last| {
                Some(last).filter(is_short).map(|last| last.span.clone())
            }),
        }
    }
}

impl Occurrence {
    fn of(placed: &Placed<'_>) -> Self {
        Self {
            name: placed.directive.name.clone(),
            words: placed.directive.words.clone(),
            value: placed.value(),
            file: placed.file.to_owned(),
            line: placed.directive.line,
            span: placed.directive.span.clone(),
            blocks: placed.scope.iter().map(|(block, file)| Opening::of(block, file)).collect(),
        }
    }

    /// `/etc/nginx/nginx.conf:12`.
    pub fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

/// Those that are written: a file that is included twice has its directives once.
pub fn distinct(found: Vec<Occurrence>) -> Vec<Occurrence> {
    let mut all: Vec<Occurrence> = vec![];
    for one in found {
        let is_same = |known: &Occurrence| known.span == one.span && known.file == one.file;
        if !all.iter().any(is_same) {
            all.push(one);
        }
    }
    all
}

impl Config {
    /// Where a directive stands, in its order; that of a file which is included twice counts twice.
    pub fn occurrences(&self, name: &str) -> Vec<Occurrence> {
        let mut found = vec![];
        self.each(|placed| {
            if placed.directive.name == name && placed.directive.block.is_none() {
                found.push(Occurrence::of(placed));
            }
        });
        found
    }

    /// The blocks of a name, with those around them.
    pub fn openings(&self, name: &str) -> Vec<(Opening, Vec<Opening>)> {
        let mut found = vec![];
        self.each(|placed| {
            if placed.directive.name == name && placed.directive.block.is_some() {
                let around = placed.scope.iter().map(|(block, file)| Opening::of(block, file)).collect();
                found.push((Opening::of(placed.directive, placed.file), around));
            }
        });
        found
    }

    /// The first block of a name that stands outside of all others.
    pub fn outermost(&self, name: &str) -> Option<Opening> {
        self.openings(name).into_iter().find(|(_, around)| around.is_empty()).map(|(opening, _)| opening)
    }
}
