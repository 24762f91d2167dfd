//! Process 1 of a host, and the process that starts it.
//!
//! Facts: unshare(2), pid_namespaces(7) (the next child is process 1; it must reap, and /proc must be mounted anew by it),
//! mount_namespaces(7), mount(2) (`MS_REMOUNT | MS_BIND` changes one mount and nothing of its file system; a new bind
//! mount has the flags of the one it is made from), proc_pid_oom_score_adj(5) (-1000: never chosen), capabilities(7)
//! (CAP_SYS_RESOURCE for that), sysfs shows the network namespace of whoever mounts it.

use super::SECOND;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use rustix::process::{WaitOptions, setsid, waitpid};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// Folders that a host has for itself, in its folder of files.
pub const OWN: [&str; 5] = ["etc", "var", "srv", "root", "tmp"];

/// Folders that a host has for itself and that are empty when it starts, with their modes.
const EMPTY: [(&str, &str); 2] = [("/run", "mode=755"), ("/dev/shm", "mode=1777")];

/// Files of the kernel that are the machine's, not a namespace's: only what is below `/proc/sys/net` may be written.
const OF_THE_MACHINE: [&str; 6] =
    ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/pressure"];

/// What process 1 hears on its stdin.
#[derive(Debug, Serialize, Deserialize)]
pub struct HostSpec {
    /// The host's name.
    pub host: String,
    /// Whether it keeps the machine's files, but for `/etc/hosts` and `/etc/resolv.conf`.
    pub keeps_files: bool,
    /// Where its own files are.
    pub files: PathBuf,
    /// Its control groups, below the top of each hierarchy.
    #[serde(default)]
    pub groups: PathBuf,
}

/// What it says on its stdout, in one line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "kebab-case")]
pub enum HostReply {
    /// The host is there.
    Ready,
    /// It is not, and nothing of it stays.
    Failed {
        /// Why.
        why: String,
    },
}

/// The first process: leaves all namespaces and starts the second one, whose number it prints. The host of the clients
/// sees the machine's processes: from there the other hosts are entered, and that goes by the numbers of their processes
/// (setns(2): no way leads from one namespace of processes to another beside it).
pub fn first(sees_processes: bool) -> Result<u8> {
    let mut spaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC;
    spaces.set(CloneFlags::CLONE_NEWPID, !sees_processes);
    unshare(spaces).map_err(|error| {
        UserError::cannot_run(format!("namespaces cannot be made: {}", error.desc()))
            .hint("the kernel needs CONFIG_NAMESPACES; in a container they need its --privileged")
    })?;
    let program = std::env::current_exe().map_err(|error| io_error("find", "this program", &error))?;
    // Nobody waits for what holds their stderr.
    let mut command = Command::new(program);
    let child = command.arg("lab").args(SECOND).stderr(Stdio::null()).spawn();
    let child = child.map_err(|error| io_error("start", "process 1", &error))?;
    print(&child.id().to_string())?;
    Ok(0)
}

/// The second one: process 1. Ends only when the host could not be arranged.
pub fn second() -> Result<u8> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|error| io_error("read", "stdin", &error))?;
    let output = serde_json::from_str(&text)
        .map_err(|error| UserError::usage(format!("this is no host: {error}")))
        .and_then(|spec| set_up_host(&spec));
    let line = match &output {
        Ok(()) => HostReply::Ready,
        Err(error) => HostReply::Failed { why: error.message.clone() },
    };
    // A host whose memory is used up loses a program, not itself. Not everybody who is root may say so.
    let is_spared = std::fs::write("/proc/self/oom_score_adj", "-1000").is_ok();
    // Whoever built it hears it only when it will not be asked again.
    let _ = setsid();
    let text = serde_json::to_string(&line).unwrap_or_default();
    print(&text)?;
    output?;
    if is_spared { reap_children() } else { become_small() }
}

/// The kernel ends the largest process: a shell that only waits is never that one. What it waits for is whoever ends, as it
/// is process 1.
fn become_small() -> Result<u8> {
    let error = Command::new("/bin/sh").args(["-c", "while :; do /bin/sleep 2147483647 & wait; done"]).exec();
    Err(io_error("become", "/bin/sh", &error))
}

fn print(line: &str) -> Result<()> {
    let mut stdout = io::stdout();
    writeln!(stdout, "{line}")
        .and_then(|()| stdout.flush())
        .map_err(|error| io_error("write to", "stdout", &error))
}

/// Takes note of everybody who ends, for ever.
fn reap_children() -> Result<u8> {
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    let failed = |error: nix::errno::Errno| UserError::cannot_run(format!("cannot wait: {}", error.desc()));
    children.thread_block().map_err(failed)?;
    loop {
        while matches!(waitpid(None, WaitOptions::NOHANG), Ok(Some(_))) {}
        children.wait().map_err(failed)?;
    }
}

/// Gives the host its name and its files.
fn set_up_host(spec: &HostSpec) -> Result<()> {
    nix::unistd::sethostname(&spec.host)
        .map_err(|error| UserError::cannot_run(format!("no name can be given: {}", error.desc())))?;
    // What is mounted here is seen nowhere else; what the machine unmounts, this host does not hold.
    remount("/", MsFlags::MS_REC | MsFlags::MS_SLAVE)?;
    release_mounts(spec)?;
    // Before /sys is covered.
    let groups = File::options().read(true).custom_flags(PATH_ONLY).open("/sys/fs/cgroup").ok();
    match spec.keeps_files {
        true => mount_own_names(&spec.files)?,
        false => mount_own_files(&spec.files)?,
    }
    if !spec.keeps_files {
        new("proc", "/proc", MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC, "")?;
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    new("sysfs", "/sys", flags, "")?;
    if let Some(groups) = groups {
        bind(descriptor_path(&groups), "/sys/fs/cgroup", MsFlags::MS_REC)?;
    }
    if !spec.keeps_files {
        make_read_only(|place| place == "/sys" || place.starts_with("/sys/"))?;
        open_groups(spec)?;
        for place in OF_THE_MACHINE.iter().filter(|place| Path::new(place).exists()) {
            bind(place, place, MsFlags::empty())?;
            remount(place, MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY)?;
        }
        bind("/proc/sys/net", "/proc/sys/net", MsFlags::empty())?;
        remount("/proc/sys/net", MsFlags::MS_REMOUNT | MsFlags::MS_BIND)?;
    }
    Ok(())
}

/// Lets the host write its own control groups, as the root of a machine may, and nobody else's.
fn open_groups(spec: &HostSpec) -> Result<()> {
    let hierarchies = crate::cgroups::parse_hierarchies(&mountinfo()?, |_| String::new());
    let own = hierarchies.into_iter().map(|hierarchy| hierarchy.top.join(&spec.groups));
    for group in own.filter(|group| group.is_dir() && group.starts_with("/sys/fs/cgroup")) {
        bind(&group, &group, MsFlags::empty())?;
        remount(&group.to_string_lossy(), MsFlags::MS_REMOUNT | MsFlags::MS_BIND)?;
    }
    Ok(())
}

/// Lets go of mounts that would keep something of the machine alive: namespaces that have names, and whatever the host
/// covers.
fn release_mounts(spec: &HostSpec) -> Result<()> {
    for mounted in mounts(&mountinfo()?).iter().rev().filter(|one| must_be_released(one, spec)) {
        // One that is covered, or went with another.
        let _ = umount2(mounted.place.as_str(), MntFlags::MNT_DETACH);
    }
    Ok(())
}

/// Not what the host's own files are on: /var/lib may be a file system of its own.
fn must_be_released(mounted: &MountEntry, spec: &HostSpec) -> bool {
    let place = Path::new(&mounted.place);
    let is_below = |folder: &Path| place.starts_with(folder) && place != folder;
    let is_covered = OWN.iter().any(|own| is_below(&Path::new("/").join(own))) || is_below(Path::new("/run"));
    mounted.kind == "nsfs" || (!spec.keeps_files && is_covered && !spec.files.starts_with(place))
}

/// open(2): a descriptor that names a place and opens nothing.
const PATH_ONLY: i32 = rustix::fs::OFlags::PATH.bits().cast_signed();

/// The machine's files, but for the names of hosts.
fn mount_own_names(files: &Path) -> Result<()> {
    for name in ["hosts", "resolv.conf"] {
        let (own, place) = (files.join("etc").join(name), Path::new("/etc").join(name));
        if own.exists() && place.exists() {
            bind(&own, &place, MsFlags::empty())?;
        }
    }
    Ok(())
}

/// The machine's programs, which cannot be written, and everything else its own.
fn mount_own_files(files: &Path) -> Result<()> {
    let open = |name: &str| {
        let path = files.join(name);
        let opened = File::options().read(true).custom_flags(PATH_ONLY).open(&path);
        opened
            .map(|file| (format!("/{name}"), file))
            .map_err(|error| io_error("open", path.display(), &error))
    };
    // Before any of them covers where the others are.
    let own = OWN.iter().map(|name| open(name)).collect::<Result<Vec<_>>>()?;
    make_read_only(|place| !(place == "/dev" || place.starts_with("/dev/") || place.starts_with("/proc")))?;
    for (place, folder) in &own {
        bind(descriptor_path(folder), place, MsFlags::empty())?;
        remount(place, MsFlags::MS_REMOUNT | MsFlags::MS_BIND)?;
    }
    for (place, options) in EMPTY {
        new("tmpfs", place, MsFlags::MS_NOSUID | MsFlags::MS_NODEV, options)?;
    }
    let lock = Path::new("/run/lock");
    std::fs::create_dir(lock).map_err(|error| io_error("create", lock.display(), &error))?;
    let sticky = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(lock, sticky).map_err(|error| io_error("change", lock.display(), &error))
}

fn descriptor_path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Makes mounts read-only: those that `which` picks.
fn make_read_only(which: impl Fn(&str) -> bool) -> Result<()> {
    for MountEntry { place, flags, .. } in mounts(&mountinfo()?).into_iter().filter(|one| which(&one.place)) {
        let flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
        match mount(None::<&str>, place.as_str(), None::<&str>, flags, None::<&str>) {
            // What is covered by another mount cannot be reached by anybody.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(error) => return Err(failed("make read-only", &place, error)),
        }
    }
    Ok(())
}

fn mountinfo() -> Result<String> {
    let path = "/proc/self/mountinfo";
    std::fs::read_to_string(path).map_err(|error| io_error("read", path, &error))
}

/// A mount: where it is, the flags that must not be lost, and the kind of its file system.
#[derive(Debug, PartialEq)]
struct MountEntry {
    place: String,
    flags: MsFlags,
    kind: String,
}

/// The mounts of `/proc/self/mountinfo`.
fn mounts(text: &str) -> Vec<MountEntry> {
    let flag = |name: &str| match name {
        "nosuid" => MsFlags::MS_NOSUID,
        "nodev" => MsFlags::MS_NODEV,
        "noexec" => MsFlags::MS_NOEXEC,
        "noatime" => MsFlags::MS_NOATIME,
        "nodiratime" => MsFlags::MS_NODIRATIME,
        "relatime" => MsFlags::MS_RELATIME,
        _ => MsFlags::empty(),
    };
    let read = |line: &str| {
        let (place, system) = line.split_once(" - ")?;
        let mut words = place.split(' ');
        let place = crate::cgroups::unescaped(words.nth(4)?);
        let flags = words.next()?.split(',').map(flag).collect();
        Some(MountEntry { place, flags, kind: system.split(' ').next()?.to_owned() })
    };
    text.lines().filter_map(read).collect()
}

fn failed(action: &str, place: &str, error: Errno) -> UserError {
    io_error(action, place, &io::Error::from_raw_os_error(error as i32))
}

/// Changes a mount.
fn remount(place: &str, flags: MsFlags) -> Result<()> {
    mount(None::<&str>, place, None::<&str>, flags, None::<&str>)
        .map_err(|error| failed("change the mount", place, error))
}

/// Mounts a new file system of the kernel.
fn new(kind: &str, place: &str, flags: MsFlags, options: &str) -> Result<()> {
    mount(Some(kind), place, Some(kind), flags, Some(options)).map_err(|error| failed("mount", place, error))
}

/// Shows a file or folder in another place.
fn bind(what: impl AsRef<Path>, place: impl AsRef<Path>, more: MsFlags) -> Result<()> {
    let place = place.as_ref();
    mount(Some(what.as_ref()), place, None::<&str>, MsFlags::MS_BIND | more, None::<&str>)
        .map_err(|error| failed("mount", &place.display().to_string(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_mounts_are_kept() {
        let text =
            "24 27 0:6 / /a\\040b rw,nosuid,nodev,relatime shared:3 - devtmpfs devtmpfs rw\nnonsense\n";
        let expected = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_RELATIME;
        let expected = MountEntry { place: "/a b".into(), flags: expected, kind: "devtmpfs".into() };
        assert_eq!(mounts(text), [expected]);
    }

    #[test]
    fn what_the_own_files_are_on_is_kept() {
        let spec = |keeps_files| HostSpec {
            host: "server".into(),
            keeps_files,
            files: "/var/lib/webdyno/lab/x/hosts/server".into(),
            groups: PathBuf::new(),
        };
        let one = |place: &str, kind: &str| MountEntry {
            place: place.into(),
            flags: MsFlags::empty(),
            kind: kind.into(),
        };
        for (place, kind, on_server, on_client) in [
            ("/var/lib", "ext4", false, false),
            ("/var/lib/webdyno", "ext4", false, false),
            ("/var", "ext4", false, false),
            ("/var/lib/web", "ext4", true, false),
            ("/run/user/0", "tmpfs", true, false),
            ("/run/netns/a", "nsfs", true, true),
            ("/home", "ext4", false, false),
        ] {
            let is_let_go = |keeps_files| must_be_released(&one(place, kind), &spec(keeps_files));
            assert_eq!((is_let_go(false), is_let_go(true)), (on_server, on_client), "{place}");
        }
    }

    proptest::proptest! {
        /// Any text: never a panic.
        #[test]
        fn any_text_is_a_list_of_mounts(text: String) {
            mounts(&text);
        }
    }
}
