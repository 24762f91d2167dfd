//! Reading and writing a setting of the kernel, in the network namespace that it belongs to.
//!
//! Facts: below `/proc/sys/net` the kernel shows the namespace of the thread that reads (net/sysctl_net.c). What is the
//! machine's below net/core is only shown in the initial one. A namespace lives as long as a process, a mount of its file
//! (`ip netns`, containers), or an open file is in it: network_namespaces(7).

use crate::os::{machine, process, procfs};
use crate::visibility::network_namespace;
use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetSpace {
    /// As [`machine::net_space`] names it, within a boot.
    pub id: String,
    /// Whether it is the initial one, which there is at every boot.
    pub is_initial: bool,
}

/// The namespace of a whole machine's pids (PROC_PID_INIT_INO in include/linux/proc_ns.h): there every process is seen.
const INITIAL_PIDS: &str = "pid:[4026531836]";

/// The file of a setting.
pub fn path(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name.replace('.', "/"))
}

/// The network namespace that a setting belongs to, of this process; `None` for what is no network's.
pub fn of(name: &str) -> Option<NetSpace> {
    let id = machine::net_space().filter(|_| name.starts_with("net."))?;
    Some(NetSpace { id, is_initial: is_initial_here() })
}

/// Whether this thread is in the initial network namespace.
pub fn is_initial_here() -> bool {
    path("net.core.netdev_max_backlog").exists()
}

/// Whether what is set at boot is set in the network namespace of this process: the initial one, or that of process 1.
pub fn is_set_at_boot() -> bool {
    let own = procfs::net_namespace(std::process::id());
    is_initial_here() || matches!((own, procfs::net_namespace(1)), (Ok(own), Ok(first)) if own == first)
}

/// A value as it is here, with one blank between its parts.
pub fn read_here(name: &str) -> io::Result<String> {
    let text = procfs::read_text(path(name))?;
    Ok(text.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

/// Whether it may be written here: access(2).
pub fn writable_here(name: &str) -> io::Result<()> {
    Ok(access(path(name), Access::WRITE_OK)?)
}

/// A value where it belongs; `None` when its namespace is gone.
pub fn read(name: &str, space: Option<&NetSpace>) -> io::Result<Option<String>> {
    within(space, || read_here(name))?.transpose()
}

/// Writes a value where it belongs. An error when its namespace is gone.
pub fn write(name: &str, space: Option<&NetSpace>, value: &str) -> io::Result<()> {
    let written = within(space, || std::fs::write(path(name), value))?;
    written.unwrap_or_else(|| Err(io::Error::other("its network namespace is gone")))
}

/// Runs `work` in a network namespace; `None` when that is gone. An error when it cannot be known, or not be entered.
fn within<T: Send>(space: Option<&NetSpace>, work: impl FnOnce() -> T + Send) -> io::Result<Option<T>> {
    let Some(space) = space.filter(|space| !is_here(space)) else { return Ok(Some(work())) };
    match find(space)? {
        Some(file) => network_namespace::on_own_thread_in(&file, work).map(Some),
        None => Ok(None),
    }
}

fn is_here(space: &NetSpace) -> bool {
    machine::net_space().as_ref() == Some(&space.id) || (space.is_initial && is_initial_here())
}

/// The file of a namespace: of a process that is in it, or where it is mounted.
fn find(space: &NetSpace) -> io::Result<Option<File>> {
    if space.is_initial {
        let first = File::open("/proc/1/ns/net")?;
        let is_it = network_namespace::on_own_thread_in(&first, is_initial_here)?;
        let elsewhere = "it belongs to the machine's own network: run the command there";
        return if is_it { Ok(Some(first)) } else { Err(io::Error::other(elsewhere)) };
    }
    let (boot, link) = space.id.split_once(' ').unwrap_or_default();
    if process::boot_id().is_some_and(|now| now != boot) {
        return Ok(None);
    }
    let is_in_it = |pid: &u32| procfs::net_namespace(*pid).is_ok_and(|its| its == link);
    let process =
        procfs::pids().into_iter().find(is_in_it).map(|pid| PathBuf::from(format!("/proc/{pid}/ns/net")));
    match process.or_else(|| mounted(&procfs::read_text("/proc/self/mountinfo").ok()?, link)) {
        Some(path) => File::open(path).map(Some),
        None if has_full_view() => Ok(None),
        None => Err(io::Error::other(format!("its network namespace ({link}) is not seen from here"))),
    }
}

/// Where the file of a namespace is mounted, by /proc/self/mountinfo (proc(5)).
fn mounted(mounts: &str, link: &str) -> Option<PathBuf> {
    let place = |line: &str| {
        let mut fields = line.split(' ').skip(3);
        (fields.next()? == link).then(|| fields.next().map(PathBuf::from))?
    };
    mounts.lines().find_map(place)
}

/// Whether no process is hidden from us.
fn has_full_view() -> bool {
    let pids = std::fs::read_link("/proc/self/ns/pid");
    rustix::process::geteuid().is_root() && pids.is_ok_and(|pids| pids == Path::new(INITIAL_PIDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_found_where_it_is_mounted() {
        let mounts = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
                      161 26 0:4 net:[4026532177] /run/netns/web rw shared:99 - nsfs nsfs rw\n";
        assert_eq!(mounted(mounts, "net:[4026532177]"), Some("/run/netns/web".into()));
        assert_eq!(mounted(mounts, "net:[4026532178]"), None);
    }

    #[test]
    fn values_are_read_here_and_of_no_namespace_that_is_gone() {
        let gone = NetSpace { id: "another-boot net:[1]".into(), is_initial: false };
        assert_eq!(read("net.core.somaxconn", Some(&gone)).unwrap(), None);
        assert!(write("net.core.somaxconn", Some(&gone), "1").is_err());
        assert!(read("net.ipv4.ip_local_port_range", None).unwrap().unwrap().contains(' '));
        assert_eq!(of("fs.file-max"), None);
    }
}
