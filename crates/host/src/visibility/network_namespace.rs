//! Looks at another network namespace: the calling thread enters it for the length of a closure.
//!
//! Facts: setns(2) moves only the thread that calls it, and needs CAP_SYS_ADMIN; network_namespaces(7). Files below
//! `/proc/PID/net` show the namespace of that process without entering it; netlink and `/proc/sys/net` show the one of the
//! reader.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::thread;

/// Runs `look` in the network namespace of a process. An error when that cannot be entered, or when the own one cannot be
/// entered again: then this thread must end.
pub fn within<T>(pid: u32, look: impl FnOnce() -> T) -> io::Result<T> {
    within_file(&File::open(format!("/proc/{pid}/ns/net"))?, look)
}

/// The same with the file of a namespace.
fn within_file<T>(theirs: &File, look: impl FnOnce() -> T) -> io::Result<T> {
    let own = File::open("/proc/thread-self/ns/net")?;
    let enter = |space: &File| move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network));
    enter(theirs)?;
    let seen = look();
    enter(&own)?;
    Ok(seen)
}

/// Runs `look` in the network namespace of a process, on a thread of its own: whatever happens to it there, the calling
/// thread stays where it is.
pub fn on_own_thread<T: Send>(pid: u32, look: impl FnOnce() -> T + Send) -> io::Result<T> {
    on_own_thread_in(&File::open(format!("/proc/{pid}/ns/net"))?, look)
}

/// The same with the file of a namespace.
pub fn on_own_thread_in<T: Send>(space: &File, look: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, || within_file(space, look))?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("looking at another network failed")))
    })
}

/// Runs `look` where a process has its network: here when that is the same, or may not be entered.
pub fn inside<T: Send>(pid: u32, mut look: impl FnMut() -> T + Send) -> T {
    let is_own =
        match (crate::os::procfs::net_namespace(pid), crate::os::procfs::net_namespace(std::process::id())) {
            (Ok(theirs), Ok(ours)) => theirs == ours,
            _ => true,
        };
    let seen = if is_own { None } else { on_own_thread(pid, &mut look).ok() };
    seen.unwrap_or_else(look)
}

/// The inode of the network namespace of a process; `None` when we may not see it.
pub fn space_of(pid: u32) -> Option<u64> {
    let link = crate::os::procfs::net_namespace(pid).ok()?;
    link.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}
