//! The seam to the disk: every read and write of changing and undoing passes through [`Disk`], so that tests can fill
//! it up, pretend one, or end the program between any two acts.
//!
//! Facts: open(2), flock(2), fallocate(2), fsync(2) (a new or renamed entry is durable after fsync of its directory), rename(2), xattr(7).

use crate::change::action::{OldFile, in_base64};
use crate::change::seams::new_file::{self, ACCESS_LIST, ATTRIBUTES_BYTES_MAX, read_attribute};
use crate::change::seams::tree::{self, PASSABLE, Tree, set_mode};
pub use crate::services::common::edit::sha256_hex;
use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, OFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The largest configuration file that is changed.
pub const FILE_BYTES_MAX: u64 = 4 << 20;

/// What a copy of our program leaves free: journals come first.
const SPARE_BYTES: u64 = 16 << 20;

/// What is done to files. All paths are absolute.
pub trait Disk: Send + Sync {
    /// Reads a regular file with all that is needed to revert it; `None` when there is none. Symbolic links are
    /// not followed: one is an error.
    fn read(&self, path: &Path) -> io::Result<Option<OldFile>>;
    /// Creates a file that must not exist yet, with mode, owner, attributes and time, and brings it to the disk.
    fn create(&self, path: &Path, file: &OldFile) -> io::Result<()>;
    /// Creates a file that must not exist yet as a copy of a program, for its owner only, and brings it to the disk. A disk
    /// that holds no programs need not know how.
    fn copy_program(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Gives a file another name in the same directory; an existing one of that name is replaced only if it may be.
    fn rename(&self, from: &Path, to: &Path, may_replace: bool) -> io::Result<()>;
    /// Removes a file. That it is gone already is no error.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Brings the entries of a directory to the disk.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory if nothing is in it. False when something is, or when it is gone already.
    fn remove_empty_directory(&self, path: &Path) -> io::Result<bool> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// What is at a path, symbolic links not followed; `None` when nothing is.
    fn path_info(&self, path: &Path) -> io::Result<Option<PathInfo>>;
    /// Where a path leads with all symbolic links followed; `None` when that is nowhere.
    fn resolve(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let _ = path;
        Ok(None)
    }
    /// When something was changed last, be it content, entries, owner or mode (inode(7)); `None` when nothing is there, or
    /// that cannot be told.
    fn changed_at(&self, path: &Path) -> io::Result<Option<SystemTime>> {
        let _ = path;
        Ok(None)
    }
    /// The names in a directory, in no order; `None` when there is no such directory.
    fn list(&self, folder: &Path) -> io::Result<Option<Vec<OsString>>>;
    /// User and group that a new file in a directory is to have: those of the directory where files can be given away.
    fn owner_of_new(&self, folder: &Path) -> io::Result<(u32, u32)>;
    /// Creates a directory, readable by its owner only. One that exists is left as it is.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Creates an empty file that must not exist yet, readable by its owner only.
    fn create_private(&self, path: &Path) -> io::Result<()>;
    /// The first bytes of a file, at most so many.
    fn read_start(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>>;
    /// Writes into an existing file at an offset and brings it to the disk.
    fn append(&self, path: &Path, offset_bytes: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes sure that there is room for so many bytes from an offset on; the file stays as long as it is. File systems
    /// that cannot promise that do nothing.
    fn reserve(&self, path: &Path, offset_bytes: u64, length_bytes: u64) -> io::Result<()>;
    /// Cuts a file off after a failed append; room that was reserved behind it is given back.
    fn truncate(&self, path: &Path, length_bytes: u64) -> io::Result<()>;

    /// Takes the lock on a file, which is created if need be; `None` when somebody has it. It ends with the process.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockedFile>>>;

    /// Takes the lock of a file beside those who share it; `None` when somebody has it alone.
    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn LockedFile>>> {
        let _ = path;
        Ok(None)
    }

    /// Creates a directory that others may pass through and not list, if it is not there; its parents are.
    fn passable_directory(&self, path: &Path) -> io::Result<()> {
        self.create_directory(path)
    }
    /// Creates a tree in an existing directory, for a program that runs for a moment: nothing of it needs to survive a
    /// loss of power. A disk that holds no such programs need not know how.
    fn plant(&self, tree: &Tree<'_>) -> io::Result<()> {
        let _ = tree;
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes a directory with all that is in it; symbolic links are not followed. That it is gone is no error.
    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A file whose lock is held as long as this lives.
pub trait LockedFile: Send {
    /// Gives the file another content, for whoever wants to know who holds the lock.
    fn write(&mut self, content: &[u8]) -> io::Result<()>;

    /// Lets others share the lock. Whether it is still held: the change is not atomic (flock(2)).
    fn share(&self) -> io::Result<bool> {
        Ok(true)
    }
}

/// What was seen at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathInfo {
    /// What it is.
    pub kind: Kind,
    /// How many names it has.
    pub links_count: u64,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    SymbolicLink,
    /// A device, a socket, a pipe.
    Other,
}

/// The machine's own file systems.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn read(&self, path: &Path) -> io::Result<Option<OldFile>> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        let custom = i32::try_from(flags).map_err(io::Error::other)?;
        let file = match OpenOptions::new().read(true).custom_flags(custom).open(path) {
            Ok(file) => file,
            Err(error) if is_nothing(&error) => return Ok(None),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a symbolic link"));
            }
            Err(error) => return Err(error),
        };
        image_of(file).map(Some)
    }

    fn create(&self, path: &Path, file: &OldFile) -> io::Result<()> {
        new_file::create(path, file)
    }

    fn copy_program(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut source = File::open(from)?;
        let mut target = OpenOptions::new().write(true).create_new(true).mode(0o700).open(to)?;
        let found = rustix::fs::fstatvfs(&target)?;
        if found.f_bavail.saturating_mul(found.f_frsize) < source.metadata()?.len() + SPARE_BYTES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        io::copy(&mut source, &mut target)?;
        set_mode(to, 0o700)?;
        target.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path, may_replace: bool) -> io::Result<()> {
        if may_replace {
            return std::fs::rename(from, to);
        }
        match rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, RenameFlags::NOREPLACE) {
            // File systems without RENAME_NOREPLACE: a second name that must not exist, then the first one goes.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(rustix::fs::CWD, from, rustix::fs::CWD, to, AtFlags::empty())?;
                std::fs::remove_file(from)
            }
            other => Ok(other?),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if is_nothing(&error) => Ok(()),
            other => other,
        }
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn remove_empty_directory(&self, path: &Path) -> io::Result<bool> {
        match std::fs::remove_dir(path) {
            Ok(()) => Ok(true),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty => Ok(false),
                _ => Err(error),
            },
        }
    }

    fn path_info(&self, path: &Path) -> io::Result<Option<PathInfo>> {
        let found = match std::fs::symlink_metadata(path) {
            Ok(found) => found,
            Err(error) if is_nothing(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let kind = match found.file_type() {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_symlink() => Kind::SymbolicLink,
            _ => Kind::Other,
        };
        Ok(Some(PathInfo { kind, links_count: found.nlink() }))
    }

    fn resolve(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        match path.canonicalize() {
            Ok(target) => Ok(Some(target)),
            Err(error) if is_nothing(&error) || Errno::from_io_error(&error) == Some(Errno::LOOP) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn changed_at(&self, path: &Path) -> io::Result<Option<SystemTime>> {
        let found = match std::fs::symlink_metadata(path) {
            Ok(found) => found,
            Err(error) if is_nothing(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let since = |seconds: i64, nanoseconds: i64| {
            let whole = Duration::from_secs(u64::try_from(seconds).ok()?);
            let part = Duration::from_nanos(u64::try_from(nanoseconds).ok()?);
            SystemTime::UNIX_EPOCH.checked_add(whole + part)
        };
        let times = [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())];
        Ok(times.into_iter().filter_map(|(seconds, nanoseconds)| since(seconds, nanoseconds)).max())
    }

    fn list(&self, folder: &Path) -> io::Result<Option<Vec<OsString>>> {
        match std::fs::read_dir(folder) {
            Ok(entries) => Ok(Some(entries.flatten().map(|entry| entry.file_name()).collect())),
            Err(error) if is_nothing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn owner_of_new(&self, folder: &Path) -> io::Result<(u32, u32)> {
        let found = std::fs::metadata(folder)?;
        // Only root can give files away; anybody else owns what he creates.
        Ok(match rustix::process::geteuid() {
            root if root.is_root() => (found.uid(), found.gid()),
            user => (user.as_raw(), rustix::process::getegid().as_raw()),
        })
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    fn create_private(&self, path: &Path) -> io::Result<()> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(|_| ())
    }

    fn read_start(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![];
        File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn append(&self, path: &Path, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        let file = writable(path)?;
        file.write_all_at(bytes, offset_bytes)?;
        file.sync_all()
    }

    fn reserve(&self, path: &Path, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        let reserved =
            rustix::fs::fallocate(writable(path)?, FallocateFlags::KEEP_SIZE, offset_bytes, length_bytes);
        match reserved {
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            other => Ok(other?),
        }
    }

    fn truncate(&self, path: &Path, length_bytes: u64) -> io::Result<()> {
        writable(path)?.set_len(length_bytes)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockedFile>>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let is_held = try_flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(is_held.then(|| Box::new(Flock(file)) as Box<dyn LockedFile>))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn LockedFile>>> {
        let file = OpenOptions::new().read(true).open(path)?;
        let is_held = try_flock(&file, FlockOperation::NonBlockingLockShared)?;
        Ok(is_held.then(|| Box::new(Flock(file)) as Box<dyn LockedFile>))
    }

    fn passable_directory(&self, path: &Path) -> io::Result<()> {
        match std::fs::create_dir(path) {
            Ok(()) => set_mode(path, PASSABLE),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn plant(&self, tree: &Tree<'_>) -> io::Result<()> {
        tree::plant(tree)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

/// Nothing is at a path, also when what should be a directory on the way is a file.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// flock(2): the kernel drops it with its holder.
struct Flock(File);

impl LockedFile for Flock {
    fn write(&mut self, content: &[u8]) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.write_all_at(content, 0)
    }

    fn share(&self) -> io::Result<bool> {
        try_flock(&self.0, FlockOperation::NonBlockingLockShared)
    }
}

/// Whether the lock was to be had.
fn try_flock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match rustix::fs::flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// An existing file, to be written to.
fn writable(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// The directory of a file.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

fn image_of(file: File) -> io::Result<OldFile> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut content = vec![];
    (&file).take(FILE_BYTES_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 4 MiB"));
    }
    Ok(OldFile {
        sha256: sha256_hex(&content),
        content,
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        modified: Some((found.mtime(), found.mtime_nsec())),
        attributes: read_attributes(&file)?,
    })
}

/// Attributes that belong to the file's content and rights. Signatures (IMA, EVM) are over other bytes or another
/// inode, and `trusted.*` belongs to the file system: they are not carried over.
fn is_carried(name: &str) -> bool {
    let signed = matches!(name, "security.ima" | "security.evm");
    name == ACCESS_LIST || name.starts_with("user.") || name.starts_with("security.") && !signed
}

fn read_attributes(file: &File) -> io::Result<BTreeMap<String, String>> {
    let mut names = vec![0_u8; ATTRIBUTES_BYTES_MAX];
    let length = match rustix::fs::flistxattr(file, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::NOTSUP | Errno::NOSYS) => 0,
        Err(error) => return Err(error.into()),
    };
    names.truncate(length);
    let names = names.split(|&byte| byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    let mut found = BTreeMap::new();
    for name in names.filter(|name| is_carried(name)) {
        // One that may be listed and not read stays out: it cannot be carried over by us.
        if let Some(value) = read_attribute(file, name) {
            found.insert(name.to_owned(), in_base64::encode(&value));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::XattrFlags;

    fn file(content: &[u8], mode: u32) -> OldFile {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        OldFile {
            content: content.to_vec(),
            sha256: sha256_hex(content),
            mode,
            uid,
            gid,
            modified: Some((1_600_000_000, 123_000_000)),
            attributes: BTreeMap::new(),
        }
    }

    /// What is created reads back as the same: bytes, mode, owner, time, attributes.
    #[test]
    fn create_then_read_is_identity() {
        let folder = tempfile::tempdir().unwrap();
        for (name, mode) in [("a", 0o644), ("b", 0o600), ("c", 0o444), ("d", 0o4755), ("e", 0o000)] {
            let path = folder.path().join(name);
            let wanted = file(b"Listen 80\n\xff", mode);
            RealDisk.create(&path, &wanted).unwrap();
            if rustix::process::geteuid().is_root() || mode & 0o400 != 0 {
                assert_eq!(RealDisk.read(&path).unwrap(), Some(wanted), "{name}");
            }
        }
    }

    /// Nobody ever sees a part of a file: what fails half-way leaves no name.
    #[test]
    fn a_file_has_a_name_only_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut broken = file(b"half", 0o644);
        broken.attributes.insert("user.note".into(), "no base64".into());
        RealDisk.create(&path, &broken).unwrap_err();
        assert_eq!(path.exists(), new_file::nameless(folder.path()).is_none());
        RealDisk.remove(&path).unwrap();
        RealDisk.create(&path, &file(b"whole", 0o644)).unwrap();
        let error = RealDisk.create(&path, &file(b"another", 0o644)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
    }

    /// In a directory that gives each new file a list with another user in it.
    #[test]
    fn a_file_has_no_access_list_but_its_own() {
        let folder = tempfile::tempdir().unwrap();
        // Version 2; owner, user 65534, group, mask, others: a tag, its rights, and whose they are.
        let entries =
            [(1, 6, u32::MAX), (2, 6, 65_534), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)];
        let entry = |(tag, rights, id): (u16, u16, u32)| {
            [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let list = [2_u32.to_le_bytes().to_vec(), entries.into_iter().flat_map(entry).collect()].concat();
        let set = rustix::fs::setxattr(folder.path(), "system.posix_acl_default", &list, XattrFlags::empty());
        if set == Err(Errno::NOTSUP) {
            return;
        }
        set.unwrap();
        let mut own = file(b"own", 0o660);
        own.attributes.insert(ACCESS_LIST.into(), in_base64::encode(&list));
        for (name, wanted) in [("plain", file(b"plain", 0o640)), ("own", own)] {
            let path = folder.path().join(name);
            RealDisk.create(&path, &wanted).unwrap();
            assert_eq!(RealDisk.read(&path).unwrap(), Some(wanted), "{name}");
        }
    }

    #[test]
    fn attributes_are_carried_over() {
        let folder = tempfile::tempdir().unwrap();
        let mut wanted = file(b"x", 0o640);
        wanted.attributes.insert("user.note".into(), in_base64::encode(b"\0kept"));
        let path = folder.path().join("x");
        match RealDisk.create(&path, &wanted) {
            Ok(()) => assert_eq!(RealDisk.read(&path).unwrap().unwrap().attributes, wanted.attributes),
            // A file system without user attributes refuses: then nothing may be written at all.
            Err(error) => assert_eq!(Errno::from_io_error(&error), Some(Errno::NOTSUP)),
        }
    }

    #[test]
    fn links_and_directories_are_not_files() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        assert_eq!(RealDisk.read(&link).unwrap_err().to_string(), "it is a symbolic link");
        assert_eq!(RealDisk.read(folder.path()).unwrap_err().to_string(), "it is not a regular file");
        assert_eq!(RealDisk.read(&folder.path().join("none")).unwrap(), None);
    }

    #[test]
    fn a_new_file_never_replaces_one_that_appeared() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        std::fs::write(&ours, "ours").unwrap();
        std::fs::write(&theirs, "theirs").unwrap();
        let error = RealDisk.rename(&ours, &theirs, false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "theirs");
    }
}
