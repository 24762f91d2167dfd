//! Files as another process sees them: a container has files of its own, and a path means one of those there.
//!
//! Facts: proc_pid_root(5) (`/proc/PID/root` is a link that leads to where the paths of the process begin, mounts of its
//! namespace included; it takes the rights to inspect the process), chroot(2), unshare(2) (`CLONE_FS` gives a thread a root
//! of its own), openat2(2) (`RESOLVE_IN_ROOT`), path_resolution(7), mount_namespaces(7).
//!
//! A link in there may be absolute, or lead up: `/proc/PID/root` joined with a path would leave the container by it. So a
//! path is always resolved inside: by the kernel ([`within`], and [`crate::visibility::process_view`] for one file), or link by link
//! ([`in_root`]).

use crate::os::procfs;
use nix::sched::{CloneFlags, unshare};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Links that one path may lead over (path_resolution(7)).
const LINKS_COUNT_MAX: usize = 40;

/// Directories that tell whether a process has files of its own: a container brings all of them, and a test or a unit
/// with a configuration of its own at least one.
pub(crate) const TELLING: [&str; 4] = ["/", "/etc", "/usr", "/var"];

/// Where the files of a process begin, as we see them: `/` when it has ours, else its `/proc/PID/root`. Also `/` when
/// that cannot be seen.
pub fn root_of(pid: u32) -> PathBuf {
    match has_other_root(pid) {
        true => PathBuf::from(format!("/proc/{pid}/root")),
        false => PathBuf::from("/"),
    }
}

/// Whether a process has other files than we have. A mount namespace of its own does not make it so: systemd gives many
/// services one that shows the same files. False when it cannot be seen.
pub fn has_other_root(pid: u32) -> bool {
    if same_space(pid) {
        return false;
    }
    TELLING.iter().any(|path| differs(pid, Path::new(path)))
}

/// Whether a path means another file or directory to a process than to us; false when that cannot be seen.
pub fn differs(pid: u32, path: &Path) -> bool {
    let theirs = in_root(&PathBuf::from(format!("/proc/{pid}/root")), path);
    match (identity(&theirs), identity(path)) {
        (Ok(theirs), Ok(ours)) => theirs != ours,
        (Ok(_), Err(error)) => error.kind() == io::ErrorKind::NotFound,
        (Err(error), Ok(_)) => error.kind() == io::ErrorKind::NotFound && procfs::stat(pid).is_ok(),
        _ => false,
    }
}

/// Whether a process is in our mount namespace and has its root there: then nothing else need be compared.
fn same_space(pid: u32) -> bool {
    let link = |name: &str| std::fs::read_link(format!("/proc/{name}"));
    let space = link(&format!("{pid}/ns/mnt")).ok().zip(link("self/ns/mnt").ok());
    let root = link(&format!("{pid}/root")).ok().zip(link("self/root").ok());
    [space, root].iter().all(|pair| pair.as_ref().is_none_or(|(theirs, ours)| theirs == ours))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

/// A path of a process as we see it: below `root`, with every link on the way resolved inside of it. What does not exist
/// is named all the same. Good for looking, for the path of a socket, for a log that is followed; who must be sure that
/// nothing is moved meanwhile uses [`crate::visibility::process_view::Root::open`].
pub fn in_root(root: &Path, path: &Path) -> PathBuf {
    if root == Path::new("/") {
        return path.to_path_buf();
    }
    let mut inside = PathBuf::from("/");
    let mut rest: VecDeque<OsString> = names(path);
    let mut links_count = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            inside.pop();
            continue;
        }
        let next = inside.join(&name);
        let link = std::fs::read_link(below(root, &next)).ok().filter(|_| links_count < LINKS_COUNT_MAX);
        match link {
            Some(target) => {
                links_count += 1;
                if target.is_absolute() {
                    inside = PathBuf::from("/");
                }
                names(&target).into_iter().rev().for_each(|part| rest.push_front(part));
            }
            None => inside = next,
        }
    }
    below(root, &inside)
}

/// The names in a path, and the steps up.
fn names(path: &Path) -> VecDeque<OsString> {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    parts.map(|part| part.as_os_str().to_owned()).collect()
}

fn below(root: &Path, inside: &Path) -> PathBuf {
    root.join(inside.strip_prefix("/").unwrap_or(inside))
}

/// Runs `look` with the files that a process sees: on a thread of its own, whose root is that of the process, so that paths
/// mean to it what they mean there. `/proc` is theirs, too, or none: pids are looked up before. An error when its root may
/// not be entered.
pub fn within<T: Send>(pid: u32, look: impl FnOnce() -> T + Send) -> io::Result<T> {
    if !has_other_root(pid) {
        return Ok(look());
    }
    let enter = move || -> io::Result<T> {
        // First a root of its own: it is one for all threads of a process otherwise.
        unshare(CloneFlags::CLONE_FS)?;
        rustix::process::chroot(format!("/proc/{pid}/root"))?;
        rustix::process::chdir("/")?;
        Ok(look())
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, enter)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("reading the files of another root failed")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A root with files, links that stay inside, and links that try to leave it.
    fn root() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("etc/apache2/mods")).unwrap();
        fs::write(at("etc/apache2/a.conf"), "inside").unwrap();
        fs::write(at("etc/passwd"), "theirs").unwrap();
        symlink("/etc/apache2", at("conf")).unwrap();
        symlink("../a.conf", at("etc/apache2/mods/up.conf")).unwrap();
        symlink("../../../../../../etc/passwd", at("etc/apache2/far.conf")).unwrap();
        symlink("/etc/passwd", at("etc/apache2/absolute.conf")).unwrap();
        symlink("loop", at("loop")).unwrap();
        folder
    }

    #[test]
    fn links_are_resolved_inside() {
        let folder = root();
        for (path, inside, content) in [
            ("/etc/apache2/a.conf", "etc/apache2/a.conf", Some("inside")),
            ("/conf/a.conf", "etc/apache2/a.conf", Some("inside")),
            ("/conf/mods/up.conf", "etc/apache2/a.conf", Some("inside")),
            ("/conf/far.conf", "etc/passwd", Some("theirs")),
            ("/conf/absolute.conf", "etc/passwd", Some("theirs")),
            ("/../../etc/passwd", "etc/passwd", Some("theirs")),
            ("/conf/../passwd", "etc/passwd", Some("theirs")),
            ("/none/x", "none/x", None),
        ] {
            assert_eq!(in_root(folder.path(), Path::new(path)), folder.path().join(inside), "{path}");
            let read = fs::read_to_string(in_root(folder.path(), Path::new(path))).ok();
            assert_eq!(read.as_deref(), content, "{path}");
        }
        assert!(in_root(folder.path(), Path::new("/loop/x")).starts_with(folder.path()));
        assert_eq!(in_root(Path::new("/"), Path::new("/etc/x")), Path::new("/etc/x"));
    }

    #[test]
    fn our_own_processes_have_our_files() {
        let own = std::process::id();
        assert_eq!(root_of(own), Path::new("/"));
        assert!(!differs(own, Path::new("/etc")) && !has_other_root(u32::MAX));
        assert_eq!(within(own, || 7).unwrap(), 7);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        // Whatever the path, what it is resolved to lies inside.
        #[test]
        fn no_path_leaves(path in "(/|\\.\\.|conf|etc|far\\.conf|absolute\\.conf|loop|mods|x){0,12}") {
            let folder = root();
            let found = in_root(folder.path(), Path::new(&path));
            prop_assert!(found.starts_with(folder.path()));
            prop_assert!(!found.components().any(|part| part == Component::ParentDir));
        }
    }
}
