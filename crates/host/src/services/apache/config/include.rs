//! Which files an `Include` reads, and in which order.
//!
//! `ap_dir_fnmatch` and `ap_dir_nofnmatch` of httpd: wildcards may stand in any component of the path, matches are
//! sorted by their bytes, directories are read recursively, hidden files match only a pattern that starts with a
//! dot, and a match in the middle of a path must be a directory and no link to one (seen with 2.4.71).

use crate::os::wildcard::{is_pattern, matches};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Most files that one configuration may consist of.
pub const FILES_MAX: usize = 65_536;

/// Longest configuration file that is read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// How deep directories and includes may nest.
pub const DEPTH_MAX: usize = 64;

/// The beginning of what is told once.
const TOO_MANY: &str = "too many files or directories";

/// What a pattern stands for on the disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expansion {
    /// In the order in which Apache reads them. Of a directory, the files below it.
    pub files: Vec<PathBuf>,
    /// The directories whose entries decide which files these are.
    pub directories: Vec<PathBuf>,
    /// What could not be read or does not exist, in words.
    pub problems: Vec<String>,
}

/// The files behind an absolute path or pattern.
pub fn expand(pattern: &Path, optional: bool) -> Expansion {
    let mut expansion = Expansion::default();
    let components: Vec<_> = pattern.components().filter(|part| *part != Component::RootDir).collect();
    if is_pattern(&pattern.to_string_lossy()) {
        walk(PathBuf::from("/"), &components, optional, &mut expansion);
    } else {
        take(pattern, optional, 0, &mut expansion);
    }
    expansion
}

/// Follows the components of a pattern below `base`.
fn walk(base: PathBuf, rest: &[Component<'_>], optional: bool, into: &mut Expansion) {
    let Some((first, rest)) = rest.split_first() else {
        return take(&base, optional, 0, into);
    };
    let name = first.as_os_str().to_string_lossy();
    if !is_pattern(&name) {
        return walk(base.join(first), rest, optional, into);
    }
    into.directories.push(base.clone());
    let found = match entries(&base) {
        Ok(found) => found,
        Err(error) if optional && error.kind() == std::io::ErrorKind::NotFound => return,
        Err(error) => {
            into.problems.push(format!("cannot open directory {}: {error}", base.display()));
            return;
        }
    };
    let fits = |path: &PathBuf| {
        let fits = path.file_name().is_some_and(|file| matches(&name, &file.to_string_lossy()));
        // Apache takes the type of the directory entry itself: a link to a directory is none.
        fits && (rest.is_empty() || fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()))
    };
    let found: Vec<_> = found.into_iter().filter(fits).collect();
    if found.is_empty() && !optional {
        into.problems.push(format!("nothing matches {name} in {}", base.display()));
    }
    for path in found {
        walk(path, rest, optional, into);
    }
}

/// Takes a file, or all files below a directory.
fn take(path: &Path, optional: bool, depth: usize, into: &mut Expansion) {
    if into.files.len() >= FILES_MAX || depth > DEPTH_MAX {
        if into.problems.last().is_none_or(|last| !last.starts_with(TOO_MANY)) {
            into.problems.push(format!("{TOO_MANY} at {}", path.display()));
        }
        return;
    }
    if path.is_dir() {
        into.directories.push(path.to_path_buf());
        match entries(path) {
            Ok(found) => found.iter().for_each(|entry| take(entry, optional, depth + 1, into)),
            Err(error) => into.problems.push(format!("cannot open directory {}: {error}", path.display())),
        }
    } else if !(optional && fs::metadata(path).is_err()) {
        into.files.push(path.to_path_buf());
    }
}

/// The entries of a directory, sorted by their bytes.
fn entries(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        if found.len() >= FILES_MAX {
            return Err(std::io::Error::other(format!("more than {FILES_MAX} entries")));
        }
        found.push(entry?.path());
    }
    found.sort_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    Ok(found)
}

/// The path without links; of a file that is not there, in the directory without links.
pub fn real(path: &Path) -> PathBuf {
    let in_directory = || Some(fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?));
    fs::canonicalize(path).ok().or_else(in_directory).unwrap_or_else(|| path.to_path_buf())
}

/// Whether an include would read a file that does not exist yet.
pub fn would_match(pattern: &Path, path: &Path) -> bool {
    let (Some(directory), Some(name)) = (pattern.parent(), pattern.file_name()) else {
        return false;
    };
    let (Some(parent), Some(file)) = (path.parent(), path.file_name()) else {
        return false;
    };
    real(pattern) == parent
        || (real(directory) == parent && matches(&name.to_string_lossy(), &file.to_string_lossy()))
}

/// Reads a regular file, up to its bound.
pub fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() && path != Path::new("/dev/null") {
        return Err(std::io::Error::other("not a regular file"));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(std::io::Error::other(format!("longer than {FILE_BYTES_MAX} bytes")));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_expand_sorted_and_recursively() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for file in [
            "d/b.conf",
            "d/a.conf",
            "d/Z.conf",
            "d/.h.conf",
            "d/x.txt",
            "e/f/1",
            "e/0",
            "s1/c/v.conf",
            "s2/c/w.conf",
        ] {
            fs::create_dir_all(at(file).parent().unwrap()).unwrap();
            fs::write(at(file), "").unwrap();
        }
        let check = |pattern: &str, optional: bool, expected: &[&str], problems: usize| {
            let expansion = expand(&at(pattern), optional);
            let expected: Vec<_> = expected.iter().map(|name| at(name)).collect();
            assert_eq!(expansion.files, expected, "{pattern}");
            assert_eq!(expansion.problems.len(), problems, "{pattern}: {:?}", expansion.problems);
        };
        check("d/*.conf", false, &["d/Z.conf", "d/a.conf", "d/b.conf"], 0);
        check("e", false, &["e/0", "e/f/1"], 0);
        check("s?/c/*.conf", false, &["s1/c/v.conf", "s2/c/w.conf"], 0);
        check("d/*.none", false, &[], 1);
        check("d/*.none", true, &[], 0);
        check("none/*.conf", true, &[], 0);
        check("none/*.conf", false, &[], 1);
        check("d/none", true, &[], 0);
        check("d/none", false, &["d/none"], 0);
        for (pattern, expected) in [
            ("d/*.conf", vec!["d"]),
            ("e", vec!["e", "e/f"]),
            ("s?/c/*.conf", vec!["", "s1/c", "s2/c"]),
            ("d/a.conf", vec![]),
            // One that is not there may come.
            ("none/*.conf", vec!["none"]),
        ] {
            let expected: Vec<_> = expected.into_iter().map(&at).collect();
            assert_eq!(expand(&at(pattern), true).directories, expected, "{pattern}");
        }
    }
}
