//! What becomes of Apache's files when values are written to places.

use super::config::Document;
use super::config::syntax::Statement;
use super::place::Place;
use super::redact;
use super::settings::{Mpm, Setting};
use crate::services::common::edit::{self, DROP_IN_HEAD};
use std::path::Path;
use webdyno_model::service::SettingValue;
use webdyno_model::{Result, UserError};

/// What stands before a line that was appended.
pub const APPENDED_HEAD: &str = "\n# Added by webdyno. Undo with: webdyno rollback\n";

/// One value to be written to one place.
#[derive(Debug, Clone)]
pub struct Edit {
    /// Where.
    pub place: Place,
    /// Which setting.
    pub setting: &'static Setting,
    /// Its new value.
    pub to: SettingValue,
    /// Under which MPM.
    pub mpm: Mpm,
}

impl edit::Document for Document {
    fn parse(text: &str) -> Self {
        Self::parse(text.as_bytes())
    }

    fn render(&self) -> String {
        String::from_utf8_lossy(&Self::render(self)).into_owned()
    }

    fn displayed(text: &str) -> String {
        redact::redacted(text)
    }
}

impl edit::Edit for Edit {
    type Document = Document;

    fn file(&self) -> &Path {
        self.place.file()
    }

    fn is_drop_in(&self) -> bool {
        matches!(self.place, Place::DropIn(_))
    }

    fn change(&self, document: &mut Document, path: &Path) -> Result<()> {
        let value = self.to.to_string();
        match self.place {
            Place::Line { line, .. } => {
                if document.set_arguments(line, &value) {
                    return Ok(());
                }
                let place = format!("{}:{line}", path.display());
                Err(UserError::cannot_run(format!("{place} no longer sets {}", self.setting.name))
                    .hint("somebody else edits the configuration; run the command again"))
            }
            Place::DropIn(_) => {
                if document.lines.is_empty() {
                    document.append(DROP_IN_HEAD);
                }
                let known =
                    |name: &str| self.setting.names.iter().any(|known| known.eq_ignore_ascii_case(name));
                let is_set =
                    |statement| matches!(statement, Statement::Directive { name, .. } if known(&name));
                let line = document
                    .lines
                    .iter()
                    .rev()
                    .find(|line| is_set(line.statement()))
                    .map(|line| line.number_last);
                if !line.is_some_and(|line| document.set_arguments(line, &value)) {
                    document.append(&lines(self.setting, &value, self.mpm));
                }
                Ok(())
            }
            Place::Append(_) => {
                document.append(&format!("{APPENDED_HEAD}{}", lines(self.setting, &value, self.mpm)));
                Ok(())
            }
        }
    }
}

/// The lines that set a value. Settings of an MPM are skipped when another MPM is loaded one day: it may not know
/// them, and refuse to start.
fn lines(setting: &Setting, value: &str, mpm: Mpm) -> String {
    let name = setting.name;
    let of_mpm = (setting.of_mpm && name != "ListenBacklog").then(|| mpm.module());
    let modules = of_mpm.into_iter().chain(setting.modules.iter().copied());
    modules.fold(format!("{name} {value}\n"), |lines, module| {
        let inner: String = lines.split_inclusive('\n').map(|line| format!("    {line}")).collect();
        format!("<IfModule {module}>\n{inner}</IfModule>\n")
    })
}

#[cfg(test)]
mod tests {
    use super::super::settings::find;
    use super::*;
    use crate::config_management::Managers;
    use crate::services::common::edit::{Edited, sha256_hex};
    use std::fs;
    use std::time::SystemTime;

    /// On a machine without configuration management.
    fn apply(edits: &[Edit]) -> Result<Edited> {
        edit::apply(edits, &Managers::of(Path::new("/no/such/root"), vec![], SystemTime::now()))
    }

    fn value(place: Place, name: &str, to: i64) -> Edit {
        Edit { place, setting: find(name).unwrap(), to: SettingValue::Integer(to), mpm: Mpm::Prefork }
    }

    #[test]
    fn a_drop_in_is_made_and_merged() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().canonicalize().unwrap().join("zzz-webdyno.conf");
        let at = || Place::DropIn(path.clone());
        let made = apply(&[value(at(), "MaxRequestWorkers", 50), value(at(), "Timeout", 9)]).unwrap();
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
        let merged = apply(&[value(at(), "MaxRequestWorkers", 70), value(at(), "ServerLimit", 300)]).unwrap();
        let [file] = merged.files.as_slice() else { panic!("{merged:?}") };
        assert_eq!(file.before_sha256, Some(sha256_hex(expected.as_bytes())));
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
        let edited = apply(&[value(Place::Line { file: link.clone(), line: 2 }, "Timeout", 5)]).unwrap();
        assert_eq!(edited.files[0].path, real.to_str().unwrap());
        assert_eq!(edited.files[0].after, "A 1\r\n  Timeout 5\r\n");
        let gone = apply(&[value(Place::Line { file: link, line: 9 }, "Timeout", 5)]).unwrap_err();
        assert!(gone.message.ends_with("real.conf:9 no longer sets Timeout"), "{gone}");
        let appended = apply(&[value(Place::Append(real), "Timeout", 5)]).unwrap();
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
            let error = apply(&[value(Place::Append(path), "Timeout", 5)]).unwrap_err();
            assert!(error.message.contains(part), "{error}");
            assert!(error.hint.is_some());
        };
        refuse(b"# caf\xe9\n", "is not UTF-8");
        let nowhere = apply(&[value(Place::Append("/no/such/dir/x".into()), "Timeout", 5)]).unwrap_err();
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
            let edited = edit::apply(&[value(place.clone(), "Timeout", 5)], &managers).unwrap();
            let message = edited.managed.first().map(|managed| managed.by.as_str());
            assert_eq!((message, edited.managed.len()), (by, usize::from(by.is_some())), "{place:?}");
            assert!(
                edited.files[0].after.ends_with(after) && edited.diff.contains("+Timeout 5"),
                "{place:?}"
            );
        }
    }
}
