//! Where a second instance writes: below a folder of its own, at the same path. What cannot be written there cannot be
//! written here either, as a directory exists below the folder only if the original one does: a log in a directory that
//! is not there ends the start of both.

use crate::services::ShadowFolder;
use crate::services::apache::config::model::absolute;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The paths of a second instance.
#[derive(Debug)]
pub struct Mirror {
    root: PathBuf,
    /// What relative paths may be relative to.
    bases: Vec<PathBuf>,
    folders: BTreeMap<PathBuf, ShadowFolder>,
}

impl Mirror {
    /// Below `root`; relative paths are looked for below each of `bases`.
    pub fn new(root: PathBuf, bases: Vec<PathBuf>) -> Self {
        Self { root, bases, folders: BTreeMap::new() }
    }

    /// Where a file is written that the original writes at `path`.
    pub fn file(&mut self, path: &str) -> PathBuf {
        let path = self.absolute(path);
        match std::fs::metadata(&path).is_ok_and(|found| found.is_dir()) {
            // A directory is where no file can be.
            true => self.keep(&path),
            false => path.parent().into_iter().for_each(|parent| self.keep(parent)),
        }
        self.inside(&path)
    }

    /// The directory that stands for one of the original.
    pub fn folder(&mut self, path: &str) -> PathBuf {
        let path = self.absolute(path);
        self.keep(&path);
        self.inside(&path)
    }

    /// All directories that exist, each after the one it is in.
    pub fn into_folders(self) -> Vec<ShadowFolder> {
        self.folders.into_values().collect()
    }

    /// The first place where the file could be; else the first of all.
    fn absolute(&self, path: &str) -> PathBuf {
        let mut all = self.bases.iter().map(|base| absolute(base, path));
        let exists = |path: &PathBuf| path.parent().is_some_and(Path::is_dir);
        let first = all.clone().next();
        all.find(exists).or(first).unwrap_or_else(|| absolute(Path::new("/"), path))
    }

    fn inside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Makes a directory exist, with those around it, if it exists for the original.
    fn keep(&mut self, path: &Path) {
        let exists = std::fs::metadata(path).is_ok_and(|found| found.is_dir());
        if !exists {
            return;
        }
        for path in path.ancestors() {
            let (Ok(found), copy) = (std::fs::metadata(path), self.inside(path)) else { continue };
            self.folders.entry(copy.clone()).or_insert_with(|| folder(copy, &found));
        }
    }
}

/// The owner must be able to remove it again, whatever the original allows.
fn folder(path: PathBuf, found: &Metadata) -> ShadowFolder {
    ShadowFolder { path, mode: found.mode() & 0o7777 | 0o700, owner: Some((found.uid(), found.gid())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_exists_there_exists_here_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("server/logs")).unwrap();
        fs::create_dir_all(root.join("run/lock")).unwrap();
        fs::set_permissions(root.join("run/lock"), fs::Permissions::from_mode(0o1057)).unwrap();
        let mut mirror = Mirror::new("/shadow".into(), vec![root.join("server"), root.join("run")]);
        let at = |name: &str| PathBuf::from(format!("/shadow{}/{name}", root.display()));
        assert_eq!(mirror.file("logs/./error_log"), at("server/logs/error_log"));
        assert_eq!(mirror.file("lock/x"), at("run/lock/x"), "relative to the runtime directory");
        assert_eq!(mirror.file(&format!("{}/none/x", root.display())), at("none/x"));
        assert_eq!(mirror.folder("none"), at("server/none"));
        assert_eq!(mirror.file("../server/logs"), at("server/logs"), "a directory, where no file can be");
        let folders = mirror.into_folders();
        let paths: Vec<_> = folders.iter().map(|folder| &folder.path).collect();
        assert!(paths.is_sorted() && paths.contains(&&at("server/logs")) && paths.contains(&&at("run/lock")));
        assert!(!paths.contains(&&at("none")) && !paths.contains(&&at("server/none")));
        let lock = folders.iter().find(|folder| folder.path == at("run/lock")).unwrap();
        assert_eq!(lock.mode, 0o1757);
    }
}
