//! From a port to the processes that listen on it, as far as they may be seen.
//!
//! Listening socket (`/proc/net/tcp`, `/proc/net/tcp6`: Documentation/networking/proc_net_tcp.rst) -> its inode ->
//! the processes that hold it (`/proc/PID/fd`, `proc_pid_fd(5)`) -> the main one, whose parent does not hold it.
//! A port that nobody listens on in our network namespace is looked for in the others of this machine, as containers have
//! them: `/proc/PID/net` shows that of a process (network_namespaces(7)), and socket inodes are of the whole machine.

mod spaces;

use crate::os::procfs;
use crate::os::sockets::{ListenSocket, listening};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::IpAddr;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// Generations of processes that are climbed at most.
const GENERATIONS_MAX: usize = 16;

/// Our network namespace.
const OWN_NET: &str = "/proc/self/net";

/// The process id in the snapshot of a service of which no process is known.
pub const NO_PID: u32 = 0;

/// What helps who may not look into a process.
pub const NEEDS_RIGHTS: &str = "run webdyno with sudo, or as the user that the service was started by";

/// What helps when a program was not found: for root there is none.
pub fn to_find_it() -> &'static str {
    match rustix::process::geteuid().is_root() {
        true => "nothing: it is read as soon as there is one",
        false => NEEDS_RIGHTS,
    }
}

/// Who listens on a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The port.
    pub port: u16,
    /// The addresses it is bound to; the unspecified address means all of its family.
    pub addresses: Vec<IpAddr>,
    /// The process whose end would end the service.
    pub main_pid: u32,
    /// Name of the main process as the kernel keeps it: at most 15 bytes.
    pub name: String,
    /// The file that the main process runs; `None` when we may not see it.
    pub executable: Option<String>,
    /// The arguments of the main process, the program's name first.
    pub arguments: Vec<String>,
}

/// The sockets of a port whose processes we may not see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hidden {
    /// The port.
    pub port: u16,
    /// The users who opened them.
    pub uids: BTreeSet<u32>,
}

/// Who listens on a port, as far as we may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A process.
    Process(Listener),
    /// Somebody: only the user that a process runs as, and root, may look at its descriptors.
    Hidden(Hidden),
}

/// Looks for who listens on a port of this machine: in our network namespace, else in another one. An error when nobody
/// does, and when it is served in several other ones.
pub fn find(port: u16) -> Result<Found> {
    let sockets = listening_on(OWN_NET, port)?;
    if !sockets.is_empty() {
        return found(port, &sockets);
    }
    let mut elsewhere = spaces::listening(port);
    match elsewhere.len() {
        0 => Err(nothing_listens(port)),
        1 => elsewhere.remove(0),
        _ => Err(spaces::several(port, elsewhere)),
    }
}

/// The same in our network namespace alone.
fn find_here(port: u16) -> Result<Found> {
    let sockets = listening_on(OWN_NET, port)?;
    if sockets.is_empty() {
        return Err(nothing_listens(port));
    }
    found(port, &sockets)
}

fn nothing_listens(port: u16) -> UserError {
    UserError::cannot_run(format!("nothing listens on port {port} on this machine"))
        .hint("`ss -ltnp` shows what listens; start the service, or name its port with --port")
}

/// Who holds these sockets of a port.
fn found(port: u16, sockets: &[ListenSocket]) -> Result<Found> {
    let inodes = sockets.iter().map(|socket| socket.inode).collect();
    let parents = holders(&inodes);
    let Some(main_pid) = main_process(&parents).map(climb) else {
        let uids = sockets.iter().map(|socket| socket.uid).collect();
        return Ok(Found::Hidden(Hidden { port, uids }));
    };
    let main = procfs::process(main_pid)?;
    let addresses: BTreeSet<IpAddr> = sockets.iter().map(|socket| socket.address).collect();
    Ok(Found::Process(Listener {
        port,
        addresses: addresses.into_iter().collect(),
        main_pid,
        name: main.name,
        executable: main.exe,
        arguments: main.argv,
    }))
}

/// Finds who listens on a port in our network namespace. An error when nobody does, and when we may not see who.
pub fn listener(port: u16) -> Result<Listener> {
    match find_here(port)? {
        Found::Process(listener) => Ok(listener),
        Found::Hidden(hidden) => Err(hidden.error()),
    }
}

/// The ports that a process listens on, in its network namespace. None of a process that we may not look into.
pub fn ports_of(pid: u32) -> Vec<u16> {
    let held = procfs::socket_inodes(pid).unwrap_or_default();
    let files = ["tcp", "tcp6"].map(|name| format!("/proc/{pid}/net/{name}"));
    let sockets = files.iter().flat_map(|file| listening(file)).flatten();
    sockets.filter(|socket| held.contains(&socket.inode)).map(|socket| socket.port).collect()
}

impl Hidden {
    /// The error that says what cannot be seen, and how it can.
    pub fn error(&self) -> UserError {
        let port = self.port;
        UserError::cannot_run(format!("cannot see which process listens on port {port}: permission denied"))
            .hint(format!("{NEEDS_RIGHTS}; `sudo ss -ltnp 'sport = :{port}'` shows the process"))
    }
}

/// The listening sockets on a port in a network namespace, of both families.
fn listening_on(net: &str, port: u16) -> Result<Vec<ListenSocket>> {
    let mut found = vec![];
    let mut first_error = None;
    let mut read_any = false;
    for file in ["tcp", "tcp6"].map(|name| format!("{net}/{name}")) {
        match listening(&file) {
            Ok(sockets) => {
                read_any = true;
                found.extend(sockets.into_iter().filter(|socket| socket.port == port));
            }
            // A kernel without IPv6 has no tcp6.
            Err(error) => first_error = first_error.or_else(|| Some(io_error("read", &file, &error))),
        }
    }
    match first_error {
        Some(error) if !read_any => Err(error),
        _ => Ok(found),
    }
}

/// Whether a process listens on a port, in its network namespace. False as well when we may not look at its descriptors.
pub fn listens(pid: u32, port: u16) -> bool {
    let sockets = listening_on(&format!("/proc/{pid}/net"), port).unwrap_or_default();
    holds(pid, &sockets.iter().map(|socket| socket.inode).collect())
}

fn holds(pid: u32, inodes: &BTreeSet<u64>) -> bool {
    procfs::socket_inodes(pid).is_ok_and(|held| held.iter().any(|inode| inodes.contains(inode)))
}

/// The processes that hold one of these sockets, with their parents.
fn holders(inodes: &BTreeSet<u64>) -> BTreeMap<u32, u32> {
    let pids = procfs::pids().into_iter().filter(|pid| holds(*pid, inodes));
    pids.filter_map(|pid| Some((pid, procfs::stat(pid).ok()?.ppid))).collect()
}

/// From a process that we may look into up to those of the same name that we may not: workers run as another user than
/// their main process, and who is that user sees only them.
pub(crate) fn climb(pid: u32) -> u32 {
    let hidden_parent = |pid: u32| {
        let stat = procfs::stat(pid).ok()?;
        let parent = procfs::stat(stat.ppid).ok().filter(|parent| parent.name == stat.name)?;
        let refused = procfs::socket_inodes(parent.pid).err()?.kind() == ErrorKind::PermissionDenied;
        refused.then_some(parent.pid)
    };
    let chain = std::iter::successors(Some(pid), |&pid| hidden_parent(pid));
    chain.take(GENERATIONS_MAX).last().unwrap_or(pid)
}

/// Of processes with their parents, the one whose parent is not among them. Where there are several (the sockets of
/// two services, or a socket that was handed down by systemd), the one with the most holders below it, then the
/// oldest pid; never init or systemd itself as long as another one holds it.
pub(crate) fn main_process(parents: &BTreeMap<u32, u32>) -> Option<u32> {
    let keeper = |pid: u32| pid == 1 && parents.len() > 1;
    let is_root = |pid: u32| {
        let parent = parents.get(&pid).copied().unwrap_or(0);
        !keeper(pid) && (parent == pid || keeper(parent) || !parents.contains_key(&parent))
    };
    let root_of = |mut pid: u32| {
        // The bound ends it also when pids were reused while they were read and form a ring.
        for _ in 0..parents.len() {
            if is_root(pid) {
                break;
            }
            pid = parents.get(&pid).copied().unwrap_or(pid);
        }
        pid
    };
    let mut family: BTreeMap<u32, usize> = BTreeMap::new();
    for pid in parents.keys().copied().filter(|pid| !keeper(*pid)) {
        *family.entry(root_of(pid)).or_default() += 1;
    }
    family.into_iter().max_by_key(|&(pid, members)| (members, std::cmp::Reverse(pid))).map(|(pid, _)| pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketType};
    use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
    use std::os::fd::OwnedFd;

    /// A port that stays taken, though nobody listens: one that is let go of may be given to another test's listener.
    fn silent_port() -> (u16, OwnedFd) {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = SocketAddrV4::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap();
        (address.port(), socket)
    }

    fn check(parents: &[(u32, u32)], expected: Option<u32>) {
        assert_eq!(main_process(&parents.iter().copied().collect()), expected, "{parents:?}");
    }

    #[test]
    fn the_main_process_is_the_one_whose_parent_does_not_hold_the_socket() {
        check(&[], None);
        check(&[(10, 1)], Some(10));
        check(&[(10, 1), (11, 10), (12, 10), (13, 12)], Some(10));
        // pids wrap: the parent may have the larger one.
        check(&[(900, 1), (11, 900), (12, 900)], Some(900));
        // Socket activation: systemd holds it as well.
        check(&[(1, 0), (10, 1), (11, 10)], Some(10));
        check(&[(1, 0)], Some(1));
        // A container whose main process is pid 1 of its own, seen from inside.
        check(&[(1, 0), (7, 1), (8, 1)], Some(7));
        // Two services share the port: the one with more processes.
        check(&[(10, 1), (20, 1), (21, 20)], Some(20));
        // pids that were reused while they were read.
        check(&[(10, 11), (11, 10)], Some(10));
    }

    #[test]
    fn a_listener_of_this_process_is_found() {
        let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let found = listener(address.port()).unwrap();
        assert_eq!((found.main_pid, found.port), (std::process::id(), address.port()));
        assert_eq!(found.addresses, [address.ip()]);
        assert!(found.executable.is_some() && !found.arguments.is_empty(), "{found:?}");
        let (other, _silent) = silent_port();
        assert!(listens(std::process::id(), address.port()) && !listens(std::process::id(), other));
        assert!(!listens(u32::MAX, address.port()), "a process that is not there");
    }

    // The parent of the tests is another program (or may be looked into): it is not taken for the main process.
    #[test]
    fn a_visible_main_process_stays() {
        assert_eq!(climb(std::process::id()), std::process::id());
        assert_eq!(climb(u32::MAX), u32::MAX);
    }

    #[test]
    fn a_port_without_listener_is_told() {
        let (port, _silent) = silent_port();
        let error = listener(port).unwrap_err();
        assert_eq!(error.message, format!("nothing listens on port {port} on this machine"));
        assert!(error.hint.unwrap().contains("ss -ltnp"));
    }

    proptest! {
        // Whatever holds the socket: one of the holders is the main process.
        #[test]
        fn a_holder_is_chosen(parents in prop::collection::btree_map(1u32..20, 0u32..20, 1..12)) {
            let main = main_process(&parents);
            prop_assert!(main.is_some_and(|pid| parents.contains_key(&pid)));
        }
    }
}
