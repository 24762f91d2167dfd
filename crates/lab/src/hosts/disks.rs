//! Disks of hosts: an ext4 file system in a file, by a loop device that nobody else uses.
//!
//! Facts: mke2fs(8) (`-d` fills it from a folder; without lazy initialisation nothing is written later), losetup(8)
//! (detached while mounted, a device goes with its last mount), loop(4), `/sys/block/loopN/loop/backing_file`.

use super::ToolRunner;
use crate::Lab;
use crate::cgroups::{DiskLimits, host_group, write_all};
use crate::journal::{Act, ScenarioLock};
use crate::packages;
use crate::scenario::Disk;
use crate::units;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// Where block devices are.
const DEVICES: &str = "/sys/block";

/// How fast it may be.
pub fn limits(disk: &Disk) -> Result<DiskLimits> {
    Ok(DiskLimits {
        reads_per_s: disk.reads_per_s,
        writes_per_s: disk.writes_per_s,
        read_bytes_per_s: disk.read_bytes_per_s.as_deref().map(units::bytes).transpose()?,
        write_bytes_per_s: disk.write_bytes_per_s.as_deref().map(units::bytes).transpose()?,
    })
}

/// Makes a disk of a host and mounts it there, with the files that the host has in that place.
pub fn attach(lab: &Lab, claimed: &mut ScenarioLock, host: &str, number: usize, disk: &Disk) -> Result<()> {
    let tools = lab.tools();
    let file = lab.place.path().join(format!("disk-{host}-{number}"));
    let content = content(&lab.root(host), &disk.path)?;
    make(&tools, &file, units::bytes(&disk.size)?, &content)?;
    claimed.append(&Act::Loop { file: file.clone() })?;
    let device = device(&tools, &file)?;
    let mounted = mount(lab, host, disk, &device);
    // While it is mounted this only says that it goes with its mount; else it goes now.
    let detached = tools.run(packages::LOSETUP, &["-d", &device]);
    mounted?;
    detached?;
    let numbers = Path::new(DEVICES).join(device.trim_start_matches("/dev/")).join("dev");
    let numbers =
        std::fs::read_to_string(&numbers).map_err(|error| io_error("read", numbers.display(), &error))?;
    let (limits, group) = (limits(disk)?, host_group(lab.place.name(), host));
    lab.tree.hierarchies.iter().try_for_each(|one| write_all(&limits.writes(one, &group, numbers.trim())))
}

/// The folder of a host whose place a disk takes, made if it is not there. A usage error where a host has no files of its
/// own.
fn content(root: &Path, place: &str) -> Result<PathBuf> {
    let inner = place.strip_prefix('/').unwrap_or(place);
    let is_own =
        super::host_init::OWN.iter().any(|own| *own != "tmp" && inner.starts_with(&format!("{own}/")));
    if !is_own || inner.split('/').any(|part| part == "..") {
        return Err(UserError::usage(format!("no disk can be mounted at `{place}`"))
            .hint("choose a folder in /etc, /root, /srv or /var, which each host has for itself"));
    }
    let folder = root.join(inner.trim_end_matches('/'));
    std::fs::create_dir_all(&folder).map_err(|error| io_error("create", folder.display(), &error))?;
    Ok(folder)
}

/// Makes the file with its file system.
fn make(tools: &ToolRunner, file: &Path, bytes: u64, content: &Path) -> Result<()> {
    let made = File::options().write(true).create_new(true).mode(0o600).open(file);
    made.and_then(|file| file.set_len(bytes)).map_err(|error| io_error("create", file.display(), &error))?;
    let extended = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
    let words = ["-q", "-F", "-m", "0", "-E", extended, "-d", &display_path(content), &display_path(file)];
    tools.run(packages::MKFS, &words).map(drop)
}

/// A loop device on a file. What is read is cached once, in the host's own group, not in the machine's memory as well:
/// a disk must be slow where the cache ends. Not all file systems can do that.
fn device(tools: &ToolRunner, file: &Path) -> Result<String> {
    let path = display_path(file);
    let device = tools.run(packages::LOSETUP, &["-f", "--show", "--direct-io=on", &path]).or_else(|_| {
        detach(tools, file)?;
        tools.run(packages::LOSETUP, &["-f", "--show", &path])
    })?;
    Ok(device.trim().to_owned())
}

fn mount(lab: &Lab, host: &str, disk: &Disk, device: &str) -> Result<()> {
    let options = if disk.sync { "sync,noatime" } else { "noatime" };
    let output = lab
        .enter_host(host)?
        .arg(packages::MOUNT.find()?)
        .args(["-t", "ext4", "-o", options, device, &disk.path])
        .output()
        .map_err(|error| io_error("run", "mount", &error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(UserError::cannot_run(format!(
            "the disk of `{host}` cannot be mounted at {}: {}",
            disk.path,
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

fn display_path(path: &Path) -> String {
    path.display().to_string()
}

/// Frees all loop devices whose files are below a folder.
pub fn detach(tools: &ToolRunner, folder: &Path) -> Result<()> {
    let Ok(devices) = std::fs::read_dir(DEVICES) else { return Ok(()) };
    for device in devices.flatten() {
        let file = std::fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(file.trim_end_matches('\n')).starts_with(folder) {
            let name = Path::new("/dev").join(device.file_name());
            match tools.run(packages::LOSETUP, &["-d", &display_path(&name)]) {
                // It goes with its last mount, which ends with its host: it may have gone meanwhile.
                Err(error) if device.path().join("loop/backing_file").exists() => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}
