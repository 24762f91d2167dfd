//! Makes the new contents of configuration files, and refuses files that must not be edited. What a file's lines mean is
//! the target's matter; that files are read once, and by their real names, and who else writes them, is everybody's.

use super::{diff, unit};
use crate::config_management::Managers;
use rustix::fs::{Access, access};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use webdyno_model::change::{ApplyClass, Change, FileEdit, ManagedFile, RenderedPlan};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The name of a file of our own: it sorts after what people usually have.
pub const DROP_IN: &str = "zzz-webdyno.conf";

/// What our own file says of itself.
pub const DROP_IN_HEAD: &str = "# Written by webdyno: settings that its tuning changed. This file is read late, so its values win.\n\
                                # Undo all of it with: webdyno rollback\n";

/// Longest file that is edited.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A file as its target reads it.
pub trait Document: Default {
    /// Reads a whole file. Never fails: what makes no sense is still a line.
    fn parse(text: &str) -> Self;

    /// Exactly what was parsed, but for what was changed since.
    fn render(&self) -> String;

    /// What of a text may be shown in a diff, with as many lines.
    fn displayed(text: &str) -> String {
        text.to_owned()
    }
}

/// One value to be written to one place.
pub trait Edit {
    /// What its file is.
    type Document: Document;

    /// The file, by the name that the configuration knows it by.
    fn file(&self) -> &Path;

    /// Whether that is a file of our own ([`DROP_IN`]), which may not exist yet.
    fn is_drop_in(&self) -> bool;

    /// Changes the file, whose real name is `path`.
    fn change(&self, document: &mut Self::Document, path: &Path) -> Result<()>;
}

/// The edited files and their diff.
#[derive(Debug, Default)]
pub struct Edited {
    /// In the order in which they were first touched.
    pub files: Vec<FileEdit>,
    /// Unified, of all files.
    pub diff: String,
    /// Those that belong to a configuration management.
    pub managed: Vec<ManagedFile>,
}

impl Edited {
    /// What the configuration is read with as if they were written.
    pub fn overlay(&self) -> BTreeMap<PathBuf, String> {
        self.files.iter().map(|file| (PathBuf::from(&file.path), file.after.clone())).collect()
    }

    /// The plan of these changes: a person's, where a configuration management writes the files.
    pub fn plan(self, changes: Vec<Change>, class: ApplyClass) -> RenderedPlan {
        let Self { files, diff, managed } = self;
        let class = if managed.is_empty() { class } else { ApplyClass::Manual };
        RenderedPlan { changes, files, class, diff, managed, to_decide: vec![] }
    }
}

/// A file that is being edited.
struct Open<D> {
    before: Option<String>,
    document: D,
    managed: Option<ManagedFile>,
}

/// Applies edits to the files as they are on disk now. Writes nothing.
pub fn apply<E: Edit>(edits: &[E], managers: &Managers) -> Result<Edited> {
    let mut order: Vec<PathBuf> = Vec::new();
    let mut open: BTreeMap<PathBuf, Open<E::Document>> = BTreeMap::new();
    for edit in edits {
        let path = resolved(edit.file())?;
        if !open.contains_key(&path) {
            order.push(path.clone());
            open.insert(path.clone(), read(&path, edit, managers)?);
        }
        if let Some(file) = open.get_mut(&path) {
            edit.change(&mut file.document, &path)?;
        }
    }
    let mut edited = Edited::default();
    for path in order {
        let Some(file) = open.remove(&path) else { continue };
        let (name, after) = (path.to_string_lossy().into_owned(), file.document.render());
        edited.diff.push_str(&diff::unified(&name, file.before.as_deref(), &after, E::Document::displayed));
        edited.files.push(FileEdit {
            path: name,
            before_sha256: file.before.as_ref().map(|text| sha256_hex(text.as_bytes())),
            before: file.before,
            after,
        });
        edited.managed.extend(file.managed);
    }
    Ok(edited)
}

/// Hexadecimal SHA-256.
pub fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The path behind symbolic links; of a file that does not exist yet, of its directory, or of where that will be made.
fn resolved(path: &Path) -> Result<PathBuf> {
    let failed = |error: std::io::Error| io_error("find", path.display(), &error);
    if fs::symlink_metadata(path).is_ok() {
        return fs::canonicalize(path).map_err(failed);
    }
    match (path.parent(), path.file_name()) {
        (Some(directory), Some(name)) if unit::is_drop_in(path) && !directory.exists() => {
            Ok(resolved(directory)?.join(name))
        }
        (Some(directory), Some(name)) => Ok(fs::canonicalize(directory).map_err(failed)?.join(name)),
        _ => Err(UserError::cannot_run(format!("{} is no file", path.display()))),
    }
}

/// Reads a file for editing, or refuses it.
fn read<E: Edit>(path: &Path, edit: &E, managers: &Managers) -> Result<Open<E::Document>> {
    let before = text(path)?;
    // Our own file says of itself whose it is.
    let known = before.as_deref().filter(|_| !edit.is_drop_in());
    let managed = managers.owner(path, known).or_else(|| managers.owner(edit.file(), known));
    if managed.is_none() {
        // A change is written beside the file and renamed over it, so the directory must allow writing, too.
        let folder = path.ancestors().skip(1).find(|folder| folder.exists());
        writable(folder.unwrap_or(Path::new("/")))?;
        before.is_some().then(|| writable(path)).transpose()?;
    }
    let document = before.as_deref().map(E::Document::parse).unwrap_or_default();
    Ok(Open { before, document, managed })
}

/// The text of a file that can be edited; `None` when there is no such file.
fn text(path: &Path) -> Result<Option<String>> {
    if !path.exists() {
        return Ok(None);
    }
    let metadata = fs::metadata(path).map_err(|error| io_error("read", path.display(), &error))?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(UserError::cannot_run(format!(
            "{} is no file of at most {FILE_BYTES_MAX} bytes",
            path.display()
        )));
    }
    let bytes = fs::read(path).map_err(|error| io_error("read", path.display(), &error))?;
    String::from_utf8(bytes).map(Some).map_err(|_| {
        UserError::cannot_run(format!("{} is not UTF-8, so it is not edited", path.display()))
            .hint(format!("convert it, for example with: iconv -f latin1 -t utf-8 {}", path.display()))
    })
}

/// access(2) for writing: also a read-only file system refuses.
fn writable(path: &Path) -> Result<()> {
    access(path, Access::WRITE_OK).map_err(|error| io_error("write", path.display(), &error.into()))
}
