//! On which disk a file is.
//!
//! Facts: Documentation/ABI/testing/sysfs-block and sysfs-dev (`/sys/dev/block/MAJOR:MINOR` leads to the device, whose
//! folder has a file `partition` when it is one, within that of its disk; `/sys/block` has the whole disks, with `!` for
//! each `/` of their names), proc_pid_mountinfo(5). File systems over several disks (btrfs), and those that are laid over
//! others (overlay), have a device number of no disk: then the source of the mount tells, where it is a device.

use crate::collectors::{Reading, Target};
use crate::logs::followed::place;
use crate::os::control_group::unescape;
use crate::os::procfs;
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use webdyno_model::service::ServiceSnapshot;

/// Logs that are looked for at most.
const LOGS_MAX: usize = 256;

/// After so many readings it is looked again where the logs are: they are rotated, and disks mounted.
const READINGS: u64 = 60;

/// Where the logs were found.
#[derive(Debug, Default)]
pub struct Places {
    readings_count: u64,
    target: Option<Target>,
    /// Logs by disk.
    by_disk: BTreeMap<String, u64>,
    /// Logs whose disk is not known.
    unknown_count: u64,
}

impl Places {
    /// How many logs of the services are on each disk.
    pub fn of_logs(&mut self, target: &Target, reading: &mut Reading) -> BTreeMap<String, u64> {
        let changed = self.target.as_ref() != Some(target);
        if changed || self.readings_count.is_multiple_of(READINGS) {
            self.target = Some(target.clone());
            self.refresh(target);
        }
        self.readings_count += 1;
        if self.by_disk.is_empty() && self.unknown_count == 0 {
            let how = "nothing is missing when the service writes none, or writes them to a program";
            reading.lacks("disk.*.logs", "no log file of the service is known", how);
        } else if self.unknown_count > 0 {
            let why = format!(
                "the disk of {} log files is not known (memory, network, or layered)",
                self.unknown_count
            );
            reading.lacks("disk.*.logs", why, "`df` on the folder of the logs shows where they are");
        }
        self.by_disk.clone()
    }

    fn refresh(&mut self, target: &Target) {
        self.by_disk.clear();
        self.unknown_count = 0;
        let mounts = procfs::read_text("/proc/self/mountinfo").unwrap_or_default();
        let services = target.service.as_deref().into_iter().chain(target.backends.iter());
        let logs =
            services.flat_map(|service| service.logs.iter().map(move |log| (service, log.path.as_str())));
        for (service, path) in logs.take(LOGS_MAX) {
            let Some(device) = device_of_log(service, path) else { continue };
            match disk_of(device, &mounts) {
                Some(disk) => *self.by_disk.entry(disk).or_default() += 1,
                None => self.unknown_count += 1,
            }
        }
    }
}

/// The device number of a log's file system; `None` for what is no file (a pipe, a terminal) or not there.
fn device_of_log(service: &ServiceSnapshot, path: &str) -> Option<u64> {
    if !path.starts_with('/') {
        return None;
    }
    // As the service sees it: it may be in a container.
    let metadata = std::fs::metadata(place(service.pid, path)).ok()?;
    metadata.is_file().then(|| metadata.dev())
}

/// The name of the disk with the file system of that number.
fn disk_of(device: u64, mountinfo: &str) -> Option<String> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    if major != 0 {
        return disk_of_number(major, minor);
    }
    let source = source_of(mountinfo, major, minor)?;
    let metadata =
        std::fs::metadata(source).ok().filter(|metadata| metadata.file_type().is_block_device())?;
    disk_of_number(rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()))
}

fn disk_of_number(major: u32, minor: u32) -> Option<String> {
    let folder = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let disk = if folder.join("partition").exists() { folder.parent()? } else { &folder };
    Some(disk.file_name()?.to_str()?.replace('!', "/"))
}

/// The device that a mount of that number says it is from.
fn source_of(mountinfo: &str, major: u32, minor: u32) -> Option<String> {
    let wanted = format!("{major}:{minor}");
    let source = mountinfo.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let is = left.split(' ').nth(2) == Some(wanted.as_str());
        right.split(' ').nth(1).filter(|source| is && source.starts_with("/dev/"))
    });
    source.map(unescape)
}

/// Whether a disk is no part of another one.
pub fn is_whole_disk(name: &str) -> bool {
    Path::new("/sys/block").join(name.replace('/', "!")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOUNTS: &str = "\
25 1 0:22 /@ / rw - btrfs /dev/sda2 rw,subvol=/@
26 1 0:30 / /merged rw - overlay overlay rw,lowerdir=/a
27 1 254:0 / /data rw - ext4 /dev/vda rw
";

    #[test]
    fn the_source_of_a_mount_is_a_device_or_nothing() {
        for (number, expected) in
            [((0, 22), Some("/dev/sda2")), ((0, 30), None), ((254, 0), Some("/dev/vda")), ((9, 9), None)]
        {
            assert_eq!(source_of(MOUNTS, number.0, number.1).as_deref(), expected, "{number:?}");
        }
    }

    #[test]
    fn files_that_are_no_logs_have_no_disk() {
        let service = ServiceSnapshot { pid: std::process::id(), ..ServiceSnapshot::default() };
        for path in ["/dev/null", "relative", "/nowhere/at/all", "|/usr/bin/rotatelogs"] {
            assert_eq!(device_of_log(&service, path), None, "{path}");
        }
        assert!(device_of_log(&service, "/proc/self/exe").is_some());
        let gone = ServiceSnapshot { pid: u32::MAX, ..service };
        assert!(
            device_of_log(&gone, "/proc/self/exe").is_some(),
            "where nothing is seen of it, ours is meant"
        );
    }

    proptest! {
        // Any text is survived.
        #[test]
        fn any_text_is_survived(text in ".{0,80}", cut in 0..MOUNTS.len()) {
            source_of(&format!("{}{text}", &MOUNTS[..cut]), 0, 22);
        }
    }
}
