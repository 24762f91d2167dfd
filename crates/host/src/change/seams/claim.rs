//! Names that one process of a network namespace can hold at a time: abstract sockets, which go with their process.
//!
//! Facts: unix(7), proc_pid_net(5), proc_pid_status(5).

use crate::os::process::ProcessName;
use crate::os::procfs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// An attempt at a name.
pub enum Claimed {
    /// It is held as long as this lives.
    Ours(Box<dyn Send>),
    /// Somebody else holds it: his process, where it can be seen.
    Theirs(Option<Holder>),
}

/// A process that holds a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its pid.
    pub pid: u32,
    /// Whether it is root's or our own user's.
    pub is_trusted: bool,
}

/// The names of a service that listens on these ports.
pub fn names(ports: impl IntoIterator<Item = u16>) -> Vec<String> {
    // One order for all: who claims the first one gets the others.
    let ports: std::collections::BTreeSet<u16> = ports.into_iter().collect();
    ports.into_iter().map(|port| format!("webdyno/tcp/{port}")).collect()
}

/// The name of a service without ports, by its command line.
pub fn name_of(service: &str, arguments: &[String]) -> String {
    let digest = crate::change::seams::disk::sha256_hex(arguments.join("\0").as_bytes());
    // Abstract names have at most 107 bytes (unix(7)).
    format!("webdyno/{service}/{}", &digest[..32])
}

/// Whoever let a name go may just have started a program, which holds it until it runs.
const LET_GO_MAX: Duration = Duration::from_millis(300);
const POLL: Duration = Duration::from_millis(10);

/// Claims a name on this machine.
pub fn claim(name: &str) -> io::Result<Claimed> {
    let address = SocketAddr::from_abstract_name(name)?;
    let deadline = Instant::now() + LET_GO_MAX;
    let mut seen = None;
    loop {
        match UnixDatagram::bind_addr(&address) {
            Ok(socket) => return Ok(Claimed::Ours(Box::new(socket))),
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
            Err(_) => seen = holder(name).or(seen),
        }
        if Instant::now() > deadline {
            return Ok(Claimed::Theirs(seen));
        }
        std::thread::sleep(POLL);
    }
}

/// The process that holds a name; `None` when it has ended meanwhile, or we may not look into it.
fn holder(name: &str) -> Option<Holder> {
    let inode = parse_inode(&procfs::read_text("/proc/self/net/unix").ok()?, name)?;
    let holds = |pid: &u32| procfs::socket_inodes(*pid).is_ok_and(|held| held.contains(&inode));
    let seen = procfs::pids().into_iter().filter(holds).filter_map(|pid| {
        let process = ProcessName::of(pid)?;
        let status = procfs::read_text(format!("/proc/{pid}/status")).ok()?;
        Some((process, is_trusted(&status, rustix::process::geteuid().as_raw())))
    });
    claimant(seen)
}

/// Who claimed a name, of those that hold it: a program that he is just starting holds it, too, until it runs, and may have
/// a lower pid. Who is trusted counts first, as nobody may be kept from seeing him.
fn claimant(holders: impl Iterator<Item = (ProcessName, bool)>) -> Option<Holder> {
    let first = holders.min_by_key(|(process, is_trusted)| (!is_trusted, process.start_ticks))?;
    Some(Holder { pid: first.0.pid, is_trusted: first.1 })
}

/// Whether all user ids of `/proc/PID/status` are root's or our own: the owner of `/proc/PID` is root also for processes
/// of others that may not be dumped, and a set-user-id program belongs to its caller, too (proc_pid(5)).
fn is_trusted(status: &str, own_uid: u32) -> bool {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let mut ids = ids.split_ascii_whitespace().map(str::parse::<u32>).peekable();
    ids.peek().is_some() && ids.all(|id| id.is_ok_and(|id| id == 0 || id == own_uid))
}

/// The inode of an abstract name in `/proc/net/unix`: the last but one field, before `@` and the name.
fn parse_inode(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(" @"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Num       RefCount Protocol Flags    Type St Inode Path\n\
        0000000000000000: 00000002 00000000 00000000 0002 01 11803 @webdyno/tcp/8080\n\
        0000000000000000: 00000002 00000000 00000000 0002 01 11804 @webdyno/tcp/80\n\
        0000000000000000: 00000003 00000000 00000000 0001 03 9 /run/webdyno/tcp/443\n";

    #[test]
    fn the_inode_of_a_name_is_found() {
        for (port, expected) in [(80, Some(11_804)), (8080, Some(11_803)), (443, None), (0, None)] {
            assert_eq!(parse_inode(TEXT, &format!("webdyno/tcp/{port}")), expected, "{port}");
        }
    }

    #[test]
    fn a_name_is_held_once_and_says_by_whom() {
        let name = format!("webdyno/test/{}", std::process::id());
        let Claimed::Ours(first) = claim(&name).unwrap() else { panic!("it was free") };
        let Claimed::Theirs(holder) = claim(&name).unwrap() else { panic!("it was held") };
        assert_eq!(holder, Some(Holder { pid: std::process::id(), is_trusted: true }));
        // A program that is being started holds it a little longer.
        let later = std::thread::spawn(move || {
            std::thread::sleep(LET_GO_MAX / 4);
            drop(first);
        });
        assert!(matches!(claim(&name).unwrap(), Claimed::Ours(_)));
        later.join().unwrap();
    }

    #[test]
    fn a_program_that_is_just_started_is_not_taken_for_who_claimed_the_name() {
        let process = |pid, start_ticks| ProcessName { pid, start_ticks };
        let (tuner, child, stranger) = (process(32_000, 5), process(300, 9), process(200, 1));
        for (holders, expected) in [
            (vec![], None),
            (vec![(child, true), (tuner, true)], Some((32_000, true))),
            (vec![(stranger, false), (tuner, true)], Some((32_000, true))),
            (vec![(stranger, false)], Some((200, false))),
        ] {
            let found = claimant(holders.into_iter()).map(|holder| (holder.pid, holder.is_trusted));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn only_root_and_our_own_user_are_trusted() {
        for (ids, expected) in [
            ("0\t0\t0\t0", true),
            ("1000\t1000\t1000\t1000", true),
            ("33\t33\t33\t33", false),
            // A set-user-id program that somebody else runs.
            ("33\t0\t0\t0", false),
            ("", false),
            ("x", false),
        ] {
            assert_eq!(is_trusted(&format!("Name:\tx\nUid:\t{ids}\nGid:\t0\n"), 1000), expected, "{ids}");
        }
        assert!(!is_trusted("", 1000), "it has ended");
    }

    #[test]
    fn ports_are_claimed_in_one_order() {
        assert_eq!(names([443, 80, 443]), ["webdyno/tcp/80", "webdyno/tcp/443"]);
    }
}
