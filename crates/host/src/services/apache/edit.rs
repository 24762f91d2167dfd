//! Makes the new contents of files from places and values, and refuses files that must not be edited.

use super::config::Document;
use super::config::syntax::Statement;
use super::diff;
use super::place::Place;
use super::settings::{Mpm, Setting};
use crate::config_management::Managers;
use rustix::fs::{Access, access};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use webdyno_model::change::{FileEdit, Managed};
use webdyno_model::error::io_error;
use webdyno_model::service::SettingValue;
use webdyno_model::{Result, UserError};

/// What our own file says of itself.
const DROP_IN_HEAD: &str = "# Written by webdyno: settings that its tuning changed. This file is read late, so its values win.\n\
                            # Undo all of it with: webdyno rollback\n";

/// What stands before a line that was appended.
const APPENDED_HEAD: &str = "\n# Added by webdyno. Undo with: webdyno rollback\n";

/// Longest file that is edited.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// One value to be written to one place.
#[derive(Debug, Clone)]
pub struct Edit {
    /// Where.
    pub place: Place,
    /// Which setting.
    pub setting: &'static Setting,
    /// Its new value.
    pub to: SettingValue,
}

/// The edited files and their diff.
#[derive(Debug, Default)]
pub struct Edited {
    /// In the order in which they were first touched.
    pub files: Vec<FileEdit>,
    /// Unified, of all files.
    pub diff: String,
    /// Those that belong to a configuration management.
    pub managed: Vec<Managed>,
}

/// A file that is being edited.
struct Open {
    before: Option<String>,
    document: Document,
    managed: Option<Managed>,
}

/// Applies edits to the files as they are on disk now. Writes nothing.
pub fn apply(edits: &[Edit], mpm: Mpm, managers: &Managers) -> Result<Edited> {
    let mut order: Vec<PathBuf> = Vec::new();
    let mut open: BTreeMap<PathBuf, Open> = BTreeMap::new();
    for edit in edits {
        let path = resolved(edit.place.file())?;
        if !open.contains_key(&path) {
            order.push(path.clone());
            open.insert(path.clone(), read(&path, &edit.place, managers)?);
        }
        if let Some(file) = open.get_mut(&path) {
            change(&mut file.document, edit, mpm, &path)?;
        }
    }
    let mut edited = Edited::default();
    for path in order {
        let Some(file) = open.remove(&path) else { continue };
        let name = path.to_string_lossy().into_owned();
        let after = String::from_utf8_lossy(&file.document.render()).into_owned();
        edited.diff.push_str(&diff::unified(&name, file.before.as_deref(), &after));
        edited.files.push(FileEdit {
            path: name,
            before_sha256: file.before.as_ref().map(|text| sha256(text.as_bytes())),
            before: file.before,
            after,
        });
        edited.managed.extend(file.managed);
    }
    Ok(edited)
}

/// Hexadecimal SHA-256.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Changes one document.
fn change(document: &mut Document, edit: &Edit, mpm: Mpm, path: &Path) -> Result<()> {
    let value = edit.to.to_string();
    match edit.place {
        Place::Line { line, .. } => {
            if document.set_arguments(line, &value) {
                return Ok(());
            }
            let place = format!("{}:{line}", path.display());
            Err(UserError::cannot_run(format!("{place} no longer sets {}", edit.setting.name))
                .hint("somebody else edits the configuration; run the command again"))
        }
        Place::DropIn(_) => {
            if document.lines.is_empty() {
                document.append(DROP_IN_HEAD);
            }
            let known = |name: &str| edit.setting.names.iter().any(|known| known.eq_ignore_ascii_case(name));
            let is_set = |statement| matches!(statement, Statement::Directive { name, .. } if known(&name));
            let line = document
                .lines
                .iter()
                .rev()
                .find(|line| is_set(line.statement()))
                .map(|line| line.number_last);
            if !line.is_some_and(|line| document.set_arguments(line, &value)) {
                document.append(&lines(edit.setting, &value, mpm));
            }
            Ok(())
        }
        Place::Append(_) => {
            document.append(&format!("{APPENDED_HEAD}{}", lines(edit.setting, &value, mpm)));
            Ok(())
        }
    }
}

/// The lines that set a value. Settings of an MPM are skipped when another MPM is loaded one day: it may not know
/// them, and refuse to start.
fn lines(setting: &Setting, value: &str, mpm: Mpm) -> String {
    let name = setting.name;
    if setting.of_mpm && name != "ListenBacklog" {
        format!("<IfModule {}>\n    {name} {value}\n</IfModule>\n", mpm.module())
    } else {
        format!("{name} {value}\n")
    }
}

/// The path behind symbolic links; of a file that does not exist yet, of its directory.
fn resolved(path: &Path) -> Result<PathBuf> {
    let failed = |error: std::io::Error| io_error("find", path.display(), &error);
    if fs::symlink_metadata(path).is_ok() {
        return fs::canonicalize(path).map_err(failed);
    }
    match (path.parent(), path.file_name()) {
        (Some(directory), Some(name)) => Ok(fs::canonicalize(directory).map_err(failed)?.join(name)),
        _ => Err(UserError::cannot_run(format!("{} is no file", path.display()))),
    }
}

/// Reads a file for editing, or refuses it. `place` has the name by which the configuration knows it.
fn read(path: &Path, place: &Place, managers: &Managers) -> Result<Open> {
    let before = text(path)?;
    // Our own file says of itself whose it is.
    let known = before.as_deref().filter(|_| !matches!(place, Place::DropIn(_)));
    let managed = managers.owner(path, known).or_else(|| managers.owner(place.file(), known));
    if managed.is_none() {
        // A change is written beside the file and renamed over it, so the directory must allow writing, too.
        writable(path.parent().unwrap_or(Path::new("/")))?;
        before.is_some().then(|| writable(path)).transpose()?;
    }
    let document = before.as_ref().map(|text| Document::parse(text.as_bytes())).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::super::settings::find;
    use super::*;
    use std::time::SystemTime;

    /// On a machine without configuration management.
    fn apply(edits: &[Edit], mpm: Mpm) -> Result<Edited> {
        super::apply(edits, mpm, &Managers::of(Path::new("/no/such/root"), vec![], SystemTime::now()))
    }

    fn edit(place: Place, name: &str, to: i64) -> Edit {
        Edit { place, setting: find(name).unwrap(), to: SettingValue::Integer(to) }
    }

    #[test]
    fn a_drop_in_is_made_and_merged() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().canonicalize().unwrap().join("zzz-webdyno.conf");
        let at = || Place::DropIn(path.clone());
        let made =
            apply(&[edit(at(), "MaxRequestWorkers", 50), edit(at(), "Timeout", 9)], Mpm::Prefork).unwrap();
        let [file] = made.files.as_slice() else { panic!("{made:?}") };
        assert_eq!(file.path, path.to_str().unwrap());
        assert_eq!(file.before_sha256, None);
        let expected = format!(
            "{DROP_IN_HEAD}<IfModule mpm_prefork_module>\n    MaxRequestWorkers 50\n</IfModule>\nTimeout 9\n"
        );
        assert_eq!(file.after, expected);
        assert!(file.after.contains("webdyno rollback"));
        assert!(!path.exists());

        fs::write(&path, &file.after).unwrap();
        let merged =
            apply(&[edit(at(), "MaxRequestWorkers", 70), edit(at(), "ServerLimit", 300)], Mpm::Prefork)
                .unwrap();
        let [file] = merged.files.as_slice() else { panic!("{merged:?}") };
        assert_eq!(file.before_sha256, Some(sha256(expected.as_bytes())));
        let limit = "<IfModule mpm_prefork_module>\n    ServerLimit 300\n</IfModule>\n";
        assert_eq!(file.after, format!("{}{limit}", expected.replace("Workers 50", "Workers 70")));
        assert!(
            merged.diff.contains("-    MaxRequestWorkers 50\n+    MaxRequestWorkers 70\n"),
            "{}",
            merged.diff
        );
    }

    #[test]
    fn links_are_resolved_and_lines_edited_in_place() {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().canonicalize().unwrap().join("real.conf");
        fs::write(&real, "A 1\r\n  Timeout 60\r\n").unwrap();
        let link = root.path().join("link.conf");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let edited =
            apply(&[edit(Place::Line { file: link.clone(), line: 2 }, "Timeout", 5)], Mpm::Event).unwrap();
        assert_eq!(edited.files[0].path, real.to_str().unwrap());
        assert_eq!(edited.files[0].after, "A 1\r\n  Timeout 5\r\n");
        let gone = apply(&[edit(Place::Line { file: link, line: 9 }, "Timeout", 5)], Mpm::Event).unwrap_err();
        assert!(gone.message.ends_with("real.conf:9 no longer sets Timeout"), "{gone}");
        let appended = apply(&[edit(Place::Append(real), "Timeout", 5)], Mpm::Event).unwrap();
        assert!(
            appended.files[0].after.ends_with("rollback\r\nTimeout 5\r\n"),
            "{:?}",
            appended.files[0].after
        );
    }

    #[test]
    fn files_that_must_not_be_edited_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let refuse = |bytes: &[u8], part: &str| {
            let path = root.path().join("x.conf");
            fs::write(&path, bytes).unwrap();
            let error = apply(&[edit(Place::Append(path), "Timeout", 5)], Mpm::Event).unwrap_err();
            assert!(error.message.contains(part), "{error}");
            assert!(error.hint.is_some());
        };
        refuse(b"# caf\xe9\n", "is not UTF-8");
        let nowhere =
            apply(&[edit(Place::Append("/no/such/dir/x".into()), "Timeout", 5)], Mpm::Event).unwrap_err();
        assert_eq!(nowhere.message, "cannot find /no/such/dir/x: no such file or directory");
    }

    #[test]
    fn managed_files_are_rendered_and_told() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().canonicalize().unwrap().join(name);
        let list = at("var/lib/puppet/state/resources.txt");
        fs::create_dir_all(list.parent().unwrap()).unwrap();
        fs::create_dir_all(at("purged")).unwrap();
        fs::write(&list, format!("file[{}]\nfile[{}]\n", at("link.conf").display(), at("purged").display()))
            .unwrap();
        fs::write(at("marked.conf"), "# Managed by Ansible\nTimeout 60\n").unwrap();
        fs::write(at("real.conf"), "Timeout 60\n").unwrap();
        std::os::unix::fs::symlink("real.conf", at("link.conf")).unwrap();
        let managers = Managers::of(root.path(), vec![], SystemTime::now());
        let line = |name: &str, line| Place::Line { file: at(name), line };
        for (place, by, after) in [
            (line("marked.conf", 2), Some("Ansible"), "# Managed by Ansible\nTimeout 5\n"),
            // The list knows the link, which the configuration includes.
            (line("link.conf", 1), Some("Puppet"), "Timeout 5\n"),
            (Place::DropIn(at("purged/zzz-webdyno.conf")), Some("Puppet"), ""),
            (line("real.conf", 1), None, "Timeout 5\n"),
            (Place::DropIn(at("zzz-webdyno.conf")), None, ""),
        ] {
            let edited = super::apply(&[edit(place.clone(), "Timeout", 5)], Mpm::Event, &managers).unwrap();
            let told = edited.managed.first().map(|managed| managed.by.as_str());
            assert_eq!((told, edited.managed.len()), (by, usize::from(by.is_some())), "{place:?}");
            assert!(
                edited.files[0].after.ends_with(after) && edited.diff.contains("+Timeout 5"),
                "{place:?}"
            );
        }
    }
}
