//! The files that set the kernel's settings at boot.
//!
//! Facts: sysctl.d(5): of files with one name only that of the first directory counts; all are read in the order of their
//! names, and a later value wins. sysctl(8) of procps reads /etc/sysctl.conf last; systemd only where a link in
//! /etc/sysctl.d names it, as Debian's does. A line is `key = value`, with a `-` before where errors are ignored.

use crate::services::common::edit::{DROP_IN, Document};
use crate::services::common::kept_values::{Lines, ValueFile};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where they lie, what counts most first.
const FOLDERS: [&str; 5] =
    ["etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d"];

/// Read after all of these.
const LAST: &str = "etc/sysctl.conf";

/// Whether there is a folder for files of our own: a system without what reads them at boot has none.
pub fn are_read(root: &Path) -> bool {
    root.join(FOLDERS[0]).is_dir()
}

/// The files that set a setting, in the order in which they are read.
pub fn holders(root: &Path, name: &str) -> Vec<PathBuf> {
    let mut by_name: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    for folder in FOLDERS.iter().rev() {
        let entries = std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        let files = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "conf"));
        by_name.extend(files.map(|entry| (entry.file_name(), entry.path())));
    }
    let sets = |path: &PathBuf| {
        std::fs::read_to_string(path).is_ok_and(|text| text.lines().any(|line| key(line) == Some(name)))
    };
    by_name.into_values().chain([root.join(LAST)]).filter(sets).collect()
}

/// The file in which a value wins: our own, or the one that is read after it and sets it already.
pub fn place(root: &Path, name: &str) -> PathBuf {
    let own = root.join(FOLDERS[0]).join(DROP_IN);
    let is_late = |path: &PathBuf| {
        let is_after_ours = path.file_name() > own.file_name() && path.parent() == own.parent();
        is_after_ours || *path == root.join(LAST)
    };
    holders(root, name).pop().filter(is_late).unwrap_or(own)
}

/// The name that a line sets.
fn key(line: &str) -> Option<&str> {
    let line = line.trim();
    let (key, _) = line.strip_prefix('-').unwrap_or(line).split_once('=')?;
    (!line.starts_with(['#', ';'])).then(|| key.trim())
}

/// A file of them.
#[derive(Debug, Default)]
pub struct SysctlFile(Lines);

impl ValueFile for SysctlFile {
    const OWN: &'static str = DROP_IN;

    fn lines(&mut self) -> &mut Lines {
        &mut self.0
    }

    fn set(&mut self, name: &str, value: &str) {
        let known = self.0.iter().rposition(|line| key(line) == Some(name));
        self.0.put(known, "", format!("{name} = {value}\n"));
    }
}

impl Document for SysctlFile {
    fn parse(text: &str) -> Self {
        Self(Lines::parse(text))
    }

    fn render(&self) -> String {
        self.0.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::common::edit::DROP_IN_HEAD;
    use crate::services::common::kept_values;

    #[test]
    fn a_value_goes_where_it_wins() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let place = |name| place(root.path(), name).strip_prefix(root.path()).unwrap().display().to_string();
        write("etc/sysctl.d/10-net.conf", "# net.b = 1\n-net.a=1\nnet.c = 3\n");
        write("usr/lib/sysctl.d/10-net.conf", "net.b = 1\n");
        write("etc/sysctl.d/zzzz.conf", "net.d = 4\n");
        write("etc/sysctl.d/README", "net.e = 5\n");
        write("etc/sysctl.conf", "net.c = 5\n");
        for (name, expected, holders_count) in [
            ("net.a", "etc/sysctl.d/zzz-webdyno.conf", 1),
            ("net.b", "etc/sysctl.d/zzz-webdyno.conf", 0),
            ("net.c", "etc/sysctl.conf", 2),
            ("net.d", "etc/sysctl.d/zzzz.conf", 1),
            ("net.e", "etc/sysctl.d/zzz-webdyno.conf", 0),
        ] {
            assert_eq!(
                (place(name), holders(root.path(), name).len()),
                (expected.to_owned(), holders_count),
                "{name}"
            );
        }
    }

    #[test]
    fn a_system_that_sets_nothing_at_boot_has_no_folder_for_it() {
        let root = tempfile::tempdir().unwrap();
        assert!(!are_read(root.path()));
        std::fs::create_dir_all(root.path().join("etc/sysctl.d")).unwrap();
        assert!(are_read(root.path()));
    }

    #[test]
    fn values_are_written_once() {
        let own = Path::new("/etc/sysctl.d/zzz-webdyno.conf");
        let first = kept_values::with_values::<SysctlFile>(own, "", [("net.a", "1"), ("net.b", "2 3")]);
        assert_eq!(first, format!("{DROP_IN_HEAD}net.a = 1\nnet.b = 2 3\n"));
        assert_eq!(
            kept_values::with_values::<SysctlFile>(own, &first, [("net.a", "9")]),
            first.replace("a = 1", "a = 9")
        );
        assert_eq!(
            kept_values::with_values::<SysctlFile>(Path::new("/x"), "-net.a=1\n#x", [("net.c", "4")]),
            "-net.a=1\n#x\nnet.c = 4\n"
        );
    }
}
