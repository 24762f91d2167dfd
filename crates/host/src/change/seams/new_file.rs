//! Creating one file with all that it is to have: it has a name only when it is whole, where the file system has files without one
//! (ext4, XFS, btrfs, tmpfs). Apache's `Include` of a directory reads hidden files, too.
//!
//! Facts: open(2) (O_TMPFILE, and how such a file gets a name), acl(5), xattr(7), chown(2) (it clears set-id bits, so the mode comes
//! after it).

use crate::change::action::{OldFile, in_base64};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

/// The access list of a file.
pub(super) const ACCESS_LIST: &str = "system.posix_acl_access";

/// The most bytes of extended attributes of one file (VFS limit of a name list: 64 KiB).
pub(super) const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;

/// Creates a file that must not exist yet, and brings it to the disk.
pub(super) fn create(path: &Path, file: &OldFile) -> io::Result<()> {
    if let Some(target) = nameless(path.parent().unwrap_or(Path::new("/"))) {
        fill(&target, file)?;
        match give_name(&target, path) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => {}
        }
    }
    // Nobody else may look into it before it has its owner.
    fill(&OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?, file)
}

/// A file in a directory that has no name yet; `None` where the file system, or the kernel, has no such files.
pub(super) fn nameless(folder: &Path) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR).ok().map(File::from)
}

/// Gives a file without a name one that must not exist yet.
fn give_name(file: &File, path: &Path) -> rustix::io::Result<()> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, link, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

/// Gives a new file its content, owner, mode, attributes and time, and brings it to the disk.
fn fill(mut target: &File, file: &OldFile) -> io::Result<()> {
    target.write_all(&file.content)?;
    let found = target.metadata()?;
    if (found.uid(), found.gid()) != (file.uid, file.gid) {
        fchown(target, Some(file.uid), Some(file.gid))?;
    }
    if !file.attributes.contains_key(ACCESS_LIST) {
        // It began with the list that its directory has for new files, and the mode would be a mask of that.
        match rustix::fs::fremovexattr(target, ACCESS_LIST) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    target.set_permissions(Permissions::from_mode(file.mode))?;
    write_attributes(target, &file.attributes)?;
    if let Some((seconds, nanoseconds)) = file.modified {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
        rustix::fs::futimens(target, &Timestamps { last_access: time, last_modification: time })?;
    }
    target.sync_all()
}

/// An attribute of a file; `None` where it has none of that name, or it cannot be read.
pub(super) fn read_attribute(file: &File, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0_u8; ATTRIBUTES_BYTES_MAX];
    let length = rustix::fs::fgetxattr(file, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

fn write_attributes(file: &File, attributes: &BTreeMap<String, String>) -> io::Result<()> {
    for (name, value) in attributes {
        let value = in_base64::decode(value)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an attribute is not base64"))?;
        // A new file often has the right label already, and setting one may need a right that we lack.
        if read_attribute(file, name).as_ref() != Some(&value) {
            rustix::fs::fsetxattr(file, name.as_str(), &value, XattrFlags::empty())?;
        }
    }
    Ok(())
}
