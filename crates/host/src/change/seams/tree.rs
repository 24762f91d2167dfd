//! Creating the files of a program that runs for a moment: nothing is brought to the disk, and everything is removed soon.
//!
//! mkdir(2), chmod(2) (the umask does not count for it), chown(2) (only root may give files away).

use crate::services::ShadowFolder;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// Directories and files that are created together.
#[derive(Debug, Clone, Copy)]
pub struct Tree<'a> {
    /// The directory that holds all of it; it must not exist.
    pub root: &'a Path,
    /// Directories with modes and owners, each after the one it is in.
    pub folders: &'a [ShadowFolder],
    /// Files, in directories that are created as they are needed, readable by their owner only.
    pub files: &'a [(PathBuf, Vec<u8>)],
    /// Who owns everything; `None` for us, and for the owners of directories as they are given.
    pub owner: Option<(u32, u32)>,
}

/// A directory that others may pass through and not list.
pub const PASSABLE: u32 = 0o711;

/// Creates a tree. What is there when it fails is the caller's to remove.
pub fn plant(tree: &Tree<'_>) -> io::Result<()> {
    fs::create_dir(tree.root)?;
    finish(tree, tree.root, PASSABLE)?;
    for (path, content) in tree.files {
        if let Some(parent) = path.parent() {
            around(tree, parent)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(content)?;
        give(tree, path, None)?;
    }
    for folder in tree.folders {
        if let Some(parent) = folder.path.parent() {
            around(tree, parent)?;
        }
        create_directory(&folder.path)?;
        give(tree, &folder.path, folder.owner)?;
        set_mode(&folder.path, folder.mode)?;
    }
    Ok(())
}

/// Creates the directories between the root and this one.
fn around(tree: &Tree<'_>, path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if !path.starts_with(tree.root) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not in the directory of the tree"));
    }
    path.parent().map_or(Ok(()), |parent| around(tree, parent))?;
    create_directory(path)?;
    finish(tree, path, PASSABLE)
}

fn create_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn finish(tree: &Tree<'_>, path: &Path, mode: u32) -> io::Result<()> {
    give(tree, path, None)?;
    set_mode(path, mode)
}

/// Gives a file to the owner of the tree, else to its own, where that is possible.
fn give(tree: &Tree<'_>, path: &Path, own: Option<(u32, u32)>) -> io::Result<()> {
    match tree.owner.or(own) {
        Some((uid, gid)) if rustix::process::geteuid().is_root() => chown(path, Some(uid), Some(gid)),
        _ => Ok(()),
    }
}

/// Sets permission bits, whatever the umask says.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_tree_stands_with_modes_and_owners() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("shadow");
        let folder =
            |name: &str, mode: u32| ShadowFolder { path: root.join(name), mode, owner: Some((33, 34)) };
        let folders = [folder("files", 0o755), folder("files/run", 0o1777)];
        let files = [(root.join("conf/1/a"), b"secret".to_vec()), (root.join("main"), vec![])];
        plant(&Tree { root: &root, folders: &folders, files: &files, owner: None }).unwrap();
        let mode = |name: &str| fs::metadata(root.join(name)).unwrap().mode() & 0o7777;
        let modes = ["", "conf", "conf/1", "conf/1/a", "main", "files", "files/run"].map(mode);
        assert_eq!(modes, [0o711, 0o711, 0o711, 0o600, 0o600, 0o755, 0o1777]);
        if rustix::process::geteuid().is_root() {
            let owner =
                |name: &str| fs::metadata(root.join(name)).map(|found| (found.uid(), found.gid())).unwrap();
            assert_eq!([owner("files/run"), owner("conf")], [(33, 34), (0, 0)]);
        }
        let again = plant(&Tree { root: &root, folders: &[], files: &[], owner: None }).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        let outside = [(place.path().join("x/y"), vec![])];
        let other = place.path().join("other");
        let refused = plant(&Tree { root: &other, folders: &[], files: &outside, owner: None }).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
