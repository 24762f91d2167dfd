//! The memory of a process of PHP, and where its executor keeps what it does.
//!
//! Facts: proc_pid_mem(5): who may trace a process may read its memory (ptrace(2): root, or its own user where nothing forbids it);
//! proc_pid_maps(5); elf(5). PHP exports `executor_globals` for its extensions, so it is there in stripped programs, too. A PHP for
//! threads has one for each thread and does not export it.

use super::frames::Memory;
use crate::collectors::processes::profile::maps::{Region, base_name, regions};
use crate::os::object_file::read_object;
use crate::os::procfs;
use object::read::{Object, ObjectSegment, ObjectSymbol};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A process whose memory can be read. It stays the same process, whoever takes its number later.
#[derive(Debug)]
pub(super) struct ProcessMemory(File);

impl ProcessMemory {
    /// An error where its memory is not for us, or it has ended.
    pub(super) fn open(pid: u32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/mem")).map(Self)
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        self.0.read_exact_at(into, address).is_ok()
    }
}

/// Whether a process could not be read as it has ended.
pub(super) fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::SRCH)
}

/// The parts with code of PHP's program or library, as they are mapped into a process; none where it has no PHP.
pub(super) fn php_regions(pid: u32) -> io::Result<Vec<Region>> {
    let text = procfs::read_text(format!("/proc/{pid}/maps"))?;
    let is_php = |region: &Region| {
        let name = base_name(&region.path);
        region.path.starts_with('/') && (name.starts_with("php") || name.starts_with("libphp"))
    };
    Ok(regions(&text).into_iter().filter(is_php).collect())
}

/// Where `executor_globals` is in a process that has PHP in these parts; `None` where they do not tell. Its children, which are
/// forked, have it there, too.
pub(super) fn executor_globals(pid: u32, php: &[Region]) -> io::Result<Option<u64>> {
    let mut failed = None;
    for region in php {
        match address_in(pid, region) {
            Ok(None) => {}
            Ok(found) => return Ok(found),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(None), Err)
}

/// Where it is, if it is in the object of this part.
fn address_in(pid: u32, region: &Region) -> io::Result<Option<u64>> {
    let found = read_object(region.open(pid)?, |object| address_in_object(object, region));
    Ok(found.map_err(|error| io::Error::other(format!("{}: {error}", region.path)))?.flatten())
}

fn address_in_object<'a>(object: &impl Object<'a>, region: &Region) -> Option<u64> {
    if !object.is_64() {
        return None;
    }
    let symbol = object.dynamic_symbols().find(|symbol| symbol.name() == Ok("executor_globals"))?;
    let from = object.segments().find_map(|segment| {
        let (offset, length) = segment.file_range();
        let into = region.offset.checked_sub(offset).filter(|into| *into < length)?;
        segment.address().checked_add(into)
    })?;
    // How far the object is moved, and the variable with it.
    symbol.address().checked_add(region.begin.wrapping_sub(from)).filter(|_| symbol.is_definition())
}
