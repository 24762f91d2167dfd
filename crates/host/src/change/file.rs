//! Writing one file, and putting one back: a temporary file in the same directory, then a rename.
//!
//! rename(2) replaces atomically: whoever opens the path finds the old file or the new one, whole. The temporary file is
//! whole, too, before it has a name, where the file system has files without one: a service may read a directory with all
//! that is in it. It carries the session's id in its name, so that a rollback finds what a killed session left behind.

use crate::change::action::OldFile;
use crate::change::seams::disk::{Disk, Kind, folder_of, sha256_hex};
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use webdyno_model::change::FileEdit;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// How many lines of a difference are shown.
const DIFF_LINES_MAX: usize = 20;

/// How a replacement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// The new content is there, and on the disk.
    Done,
    /// Somebody changed the file meanwhile: it was left alone.
    Changed,
}

/// Checks that a planned edit may be written, and gives what is there now. `planned` is the text that the plan was
/// made from, where it is known: the difference is shown.
pub fn check(disk: &dyn Disk, edit: &FileEdit, planned: Option<&str>) -> Result<Option<OldFile>> {
    let path = Path::new(&edit.path);
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(plain) || path.file_name().is_none() {
        return Err(UserError::cannot_run(format!("`{}` is not the absolute path of a file", edit.path)));
    }
    refuse_links(disk, path)?;
    let found = disk.read(path).map_err(|error| io_error("read", path.display(), &error))?;
    let found_sha256 = found.as_ref().map(|file| file.sha256.as_str());
    if found_sha256 == edit.before_sha256.as_deref() {
        return Ok(found);
    }
    let error = UserError::cannot_run(format!("{} changed since the plan was made", path.display()));
    let now = found.as_ref().map(|file| String::from_utf8_lossy(&file.content));
    Err(error.hint(match (planned, now) {
        (Some(planned), Some(now)) => {
            format!("make the plan again; the difference:\n{}", short_diff(planned, &now))
        }
        (_, None) => "make the plan again: the file is gone".to_owned(),
        (None, Some(_)) if edit.before_sha256.is_none() => "make the plan again: the file is new".to_owned(),
        (None, Some(_)) => "make the plan again, it starts from what the file holds now".to_owned(),
    }))
}

/// A symbolic link would be replaced by a file, and a second hard link would keep the old content.
fn refuse_links(disk: &dyn Disk, path: &Path) -> Result<()> {
    let seen = disk.path_info(path).map_err(|error| io_error("read", path.display(), &error))?;
    let Some(seen) = seen else { return Ok(()) };
    if seen.kind == Kind::SymbolicLink {
        return Err(UserError::cannot_run(format!(
            "{} has become a symbolic link since the plan was made",
            path.display()
        ))
        .hint("make the plan again"));
    }
    if seen.kind == Kind::File && seen.links_count > 1 {
        let links = seen.links_count;
        return Err(UserError::cannot_run(format!(
            "{} has {links} hard links, and replacing it would part them",
            path.display()
        ))
        .hint(format!("make it a file of its own: cp -p {0} {0}.new && mv {0}.new {0}", path.display())));
    }
    Ok(())
}

/// The new file of an edit: the mode, owner and attributes of the old one; for a new file those of its directory's
/// owner, readable by all, as configuration is.
pub fn with_content(disk: &dyn Disk, path: &Path, old: Option<&OldFile>, content: &str) -> Result<OldFile> {
    let (content, sha256) = (content.as_bytes().to_vec(), sha256_hex(content.as_bytes()));
    if let Some(old) = old {
        return Ok(OldFile { content, sha256, modified: None, ..old.clone() });
    }
    let folder = folder_of(path);
    let owner = disk.owner_of_new(folder);
    let (uid, gid) = owner.map_err(|error| io_error("write to", folder.display(), &error))?;
    Ok(OldFile { content, sha256, mode: 0o644, uid, gid, modified: None, attributes: BTreeMap::new() })
}

/// The original with the mode, owner and attributes that our version of it has now: whoever changed those since meant the file,
/// whatever it holds.
pub fn with_rights_of(original: &OldFile, there: OldFile) -> OldFile {
    let OldFile { content, sha256, modified, .. } = original.clone();
    OldFile { content, sha256, modified, ..there }
}

/// Replaces what is at `path` by `new`, if what is there has the content `expected` (`None`: no file).
pub fn replace(
    disk: &dyn Disk,
    path: &Path,
    new: &OldFile,
    expected: Option<&str>,
    temporary: &Path,
) -> io::Result<Replaced> {
    let result = disk.create(temporary, new).and_then(|()| {
        // As late as can be: an operator's editor may have been at work while we wrote.
        if sha256_of(disk, path)?.as_deref() != expected {
            return Ok(Replaced::Changed);
        }
        disk.rename(temporary, path, expected.is_some())?;
        disk.sync_directory(folder_of(path))?;
        Ok(Replaced::Done)
    });
    if !matches!(result, Ok(Replaced::Done)) {
        // What went wrong is told; a temporary file that stays is removed by the rollback.
        let _ = disk.remove(temporary).and_then(|()| disk.sync_directory(folder_of(path)));
    }
    result
}

/// [`replace`] with the original. Where its attributes are refused it is restored without them, as a label may be one that
/// nobody knows any more: the bytes count for more. The second value says so.
pub fn restore(
    disk: &dyn Disk,
    path: &Path,
    original: &OldFile,
    expected: Option<&str>,
    temporary: &Path,
) -> io::Result<(Replaced, String)> {
    match replace(disk, path, original, expected, temporary) {
        Err(error) if !original.attributes.is_empty() && is_refused(&error) => {
            let names: Vec<&str> = original.attributes.keys().map(String::as_str).collect();
            let plain = OldFile { attributes: BTreeMap::new(), ..original.clone() };
            let without = format!(" without {}: {error}", names.join(", "));
            replace(disk, path, &plain, expected, temporary).map(|replaced| (replaced, without))
        }
        other => other.map(|replaced| (replaced, String::new())),
    }
}

/// Whether a file system or a policy refuses, not a full or broken disk.
pub fn is_refused(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported)
}

/// The SHA-256 of what is at a path; `None` when there is no file.
pub fn sha256_of(disk: &dyn Disk, path: &Path) -> io::Result<Option<String>> {
    Ok(disk.read(path)?.map(|file| file.sha256))
}

/// The temporary file of an action. It begins with a dot and ends in `.tmp`, so that no `Include *.conf` reads it.
pub fn temporary(path: &Path, id: &str, n: u64) -> PathBuf {
    folder_of(path).join(format!("{}{n}.tmp", temporary_prefix(id)))
}

/// Removes what a session left behind in a directory.
pub fn remove_temporaries(disk: &dyn Disk, folder: &Path, id: &str) -> io::Result<u32> {
    let prefix = temporary_prefix(id);
    let mut removed_count = 0;
    for name in disk.list(folder)?.into_iter().flatten() {
        let text = name.to_string_lossy();
        if text.starts_with(&prefix) && text.ends_with(".tmp") {
            disk.remove(&folder.join(&name))?;
            removed_count += 1;
        }
    }
    if removed_count > 0 {
        disk.sync_directory(folder)?;
    }
    Ok(removed_count)
}

fn temporary_prefix(id: &str) -> String {
    format!(".webdyno-{id}-")
}

/// The first lines of a unified difference.
fn short_diff(old: &str, new: &str) -> String {
    let diff = similar::TextDiff::from_lines(old, new);
    let text = diff.unified_diff().context_radius(1).to_string();
    let mut lines: Vec<&str> = text.lines().take(DIFF_LINES_MAX + 1).collect();
    if lines.len() > DIFF_LINES_MAX {
        lines.truncate(DIFF_LINES_MAX);
        lines.push("...");
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::seams::disk::RealDisk;

    fn edit(path: &Path, before: Option<&str>) -> FileEdit {
        let before_sha256 = before.map(|text| sha256_hex(text.as_bytes()));
        FileEdit {
            path: path.to_str().unwrap().to_owned(),
            before_sha256,
            before: None,
            after: "new\n".into(),
        }
    }

    #[test]
    fn an_edit_is_refused_when_the_file_is_not_what_the_plan_saw() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "Listen 80\nTimeout 5\n").unwrap();
        std::fs::write(at("linked"), "x").unwrap();
        std::fs::hard_link(at("linked"), at("second")).unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        let check = |name: &str, before: Option<&str>, message: &str, hint: &str| {
            let error = super::check(&RealDisk, &edit(&at(name), before), before).unwrap_err();
            assert!(error.message.contains(message), "{name}: {error}");
            assert!(error.hint.clone().unwrap_or_default().contains(hint), "{name}: {error:?}");
        };
        check(
            "file",
            Some("Listen 80\nTimeout 9\n"),
            "file changed since the plan was made",
            "-Timeout 9\n+Timeout 5",
        );
        check("file", None, "changed since the plan was made", "the file is new");
        check("gone", Some("x"), "changed since the plan was made", "the file is gone");
        check("link", Some("Listen 80\nTimeout 5\n"), "has become a symbolic link", "make the plan again");
        check("second", Some("x"), "2 hard links", "cp -p");
        let relative = super::check(&RealDisk, &edit(Path::new("etc/x"), None), None).unwrap_err();
        assert_eq!(relative.message, "`etc/x` is not the absolute path of a file");
        let dotted = super::check(&RealDisk, &edit(Path::new("/etc/../x"), None), None).unwrap_err();
        assert!(dotted.message.contains("is not the absolute path"), "{dotted}");
        assert!(super::check(&RealDisk, &edit(&at("none"), None), None).unwrap().is_none());
    }

    #[test]
    fn an_edit_that_came_in_between_survives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "operator\n").unwrap();
        let new = with_content(&RealDisk, &path, None, "ours\n").unwrap();
        let temporary = temporary(&path, "id", 1);
        let replaced = replace(&RealDisk, &path, &new, Some(&sha256_hex(b"planned\n")), &temporary).unwrap();
        assert_eq!(replaced, Replaced::Changed);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "operator\n");
        assert!(!temporary.exists());
    }
}
