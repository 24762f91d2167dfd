//! How this machine boots: which init system starts its services, and what of its disk outlives a boot.
//!
//! Facts: sd_booted(3), hier(7), statfs(2).

use crate::change::seams::disk::folder_of;
use rustix::fs::StatVfsMountFlags;
use std::path::{Path, PathBuf};

/// Directories that are emptied at boot (Filesystem Hierarchy Standard 3.0, 3.15 and 3.18; tmpfiles.d(5)).
const EMPTIED_AT_BOOT: [&str; 4] = ["/tmp", "/run", "/var/run", "/dev/shm"];

/// File systems in memory (statfs(2)): tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// What starts this machine's services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Init {
    /// systemd.
    Systemd,
    /// OpenRC.
    OpenRc,
    /// init and rc scripts of System V, with links in these directories.
    SysV(&'static [&'static str]),
}

/// How this machine boots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booting {
    /// Who starts services.
    pub init: Init,
    /// Where its directories are: `/`.
    pub root: PathBuf,
    /// The program that is to revert everything.
    pub program: PathBuf,
    /// Where its bytes are, when nothing of that name is there after a boot: then a copy in the state directory stands for
    /// it.
    pub copy_of: Option<PathBuf>,
}

impl Booting {
    /// This machine; `None` when nothing of it can or need be hooked: not root, no init system (a container), or a
    /// state directory that a boot empties.
    pub fn of_this_machine(state: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !outlives_a_boot(state) {
            return None;
        }
        let program = std::env::current_exe().ok()?;
        // What an update replaced meanwhile has its name still, with a newer program behind it.
        let program = PathBuf::from(program.to_str()?.trim_end_matches(" (deleted)"));
        let stays = program.is_file() && outlives_a_boot(folder_of(&program));
        let copy_of = (!stays).then(|| PathBuf::from("/proc/self/exe"));
        Some(Self { init: detect(Path::new("/"))?, root: "/".into(), program, copy_of })
    }
}

/// Which init system runs; `None` for none that is known.
pub fn detect(root: &Path) -> Option<Init> {
    let is_there = |path: &str| root.join(path).exists();
    // sd_booted(3).
    if is_there("run/systemd/system") {
        return Some(Init::Systemd);
    }
    if is_there("run/openrc/softlevel") && is_there("etc/runlevels/default") && is_there("sbin/openrc-run") {
        return Some(Init::OpenRc);
    }
    // Images of containers have the directories of SysV too, and nobody who runs them.
    let first = std::fs::read_to_string(root.join("proc/1/comm")).ok()?;
    if first.trim() != "init" || !is_there("etc/init.d") {
        return None;
    }
    const RED_HAT: &[&str] = &["etc/rc.d/rc2.d", "etc/rc.d/rc3.d", "etc/rc.d/rc4.d", "etc/rc.d/rc5.d"];
    const DEBIAN: &[&str] = &["etc/rc2.d", "etc/rc3.d", "etc/rc4.d", "etc/rc5.d"];
    [RED_HAT, DEBIAN]
        .into_iter()
        .find(|folders| folders.iter().all(|folder| is_there(folder)))
        .map(Init::SysV)
}

/// Whether what is in a directory is there after a boot. The directory itself need not exist yet.
fn outlives_a_boot(folder: &Path) -> bool {
    let existing = folder.ancestors().find_map(|path| path.canonicalize().ok());
    let Some(existing) = existing else { return false };
    let in_memory =
        rustix::fs::statfs(&existing).is_ok_and(|found| IN_MEMORY.contains(&(found.f_type as u64)));
    let read_only =
        rustix::fs::statvfs(&existing).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY));
    !in_memory && !read_only && !EMPTIED_AT_BOOT.iter().any(|emptied| existing.starts_with(emptied))
}
