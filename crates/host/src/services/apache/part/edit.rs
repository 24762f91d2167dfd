//! How the value of a folder is written: in a `<Directory>` of our own, or on the line where it stands.

use crate::services::apache::config::Document;
use crate::services::apache::config::known;
use crate::services::apache::config::syntax::{Statement, words};
use crate::services::apache::edit::APPENDED_HEAD;
use crate::services::apache::place::Place;
use crate::services::common::edit::{DROP_IN_HEAD, Edit};
use std::path::{Path, PathBuf};
use webdyno_model::{Result, UserError};

/// What is written for a part of a site.
#[derive(Debug, Clone)]
pub enum PartEdit<'a> {
    /// A value.
    Value(SectionEdit<'a>),
    /// A file of our own, which is not there yet: its path and its text.
    NewFile(PathBuf, String),
}

/// A value to be written for a folder.
#[derive(Debug, Clone, Copy)]
pub struct SectionEdit<'a> {
    /// Where.
    pub place: &'a Place,
    /// `Options`.
    pub name: &'a str,
    /// Its new value.
    pub to: &'a str,
    /// Without a slash at its end.
    pub folder: &'a Path,
}

impl Edit for PartEdit<'_> {
    type Document = Document;

    fn file(&self) -> &Path {
        match self {
            Self::Value(edit) => edit.place.file(),
            Self::NewFile(path, _) => path,
        }
    }

    fn is_drop_in(&self) -> bool {
        match self {
            Self::Value(edit) => matches!(edit.place, Place::DropIn(_)),
            Self::NewFile(..) => true,
        }
    }

    fn change(&self, document: &mut Document, path: &Path) -> Result<()> {
        match self {
            Self::Value(edit) => edit.change(document, path),
            Self::NewFile(_, text) if document.lines.is_empty() => {
                document.append(text);
                Ok(())
            }
            Self::NewFile(..) => Err(UserError::cannot_run(format!("{} is there already", path.display()))),
        }
    }
}

impl SectionEdit<'_> {
    fn change(&self, document: &mut Document, path: &Path) -> Result<()> {
        match self.place {
            Place::Line { line, .. } if document.set_arguments(*line, self.to) => {}
            Place::Line { line, .. } => {
                let place = format!("{}:{line}", path.display());
                return Err(UserError::cannot_run(format!("{place} no longer sets {}", self.name))
                    .hint("somebody else edits the configuration; run the command again"));
            }
            Place::DropIn(_) => {
                if document.lines.is_empty() {
                    document.append(DROP_IN_HEAD);
                }
                let line = self.own_line(document);
                if !line.is_some_and(|line| document.set_arguments(line, self.to)) {
                    document.append(&self.section());
                }
            }
            Place::Append(_) => document.append(&format!("{APPENDED_HEAD}{}", self.section())),
        }
        Ok(())
    }

    /// The line that sets it already, in a section for this folder.
    fn own_line(&self, document: &Document) -> Option<u32> {
        let mut is_inside = false;
        let mut found = None;
        for line in &document.lines {
            match line.statement() {
                Statement::Open { name, arguments, .. } if name.eq_ignore_ascii_case("Directory") => {
                    is_inside = words(&arguments).first().is_some_and(|path| Path::new(path) == self.folder);
                }
                Statement::Close { name } if name.eq_ignore_ascii_case("Directory") => is_inside = false,
                Statement::Directive { name, .. } if is_inside && name.eq_ignore_ascii_case(self.name) => {
                    found = Some(line.number_last);
                }
                _ => {}
            }
        }
        found
    }

    /// What is not there one day must not keep Apache from starting: a directive of a module asks for it.
    fn section(&self) -> String {
        let module = known::find(self.name).map_or("core_module", |known| known.module);
        let line = match module {
            "core_module" => format!("    {} {}\n", self.name, self.to),
            module => {
                format!("    <IfModule {module}>\n        {} {}\n    </IfModule>\n", self.name, self.to)
            }
        };
        format!("<Directory \"{}\">\n{line}</Directory>\n", self.folder.display())
    }
}
