//! One tuner per service, whatever state directory, user or container it works from: beside the lock in the state
//! directory, a session holds a name for each port of the service.
//!
//! The name is an abstract unix socket (unix(7)): it needs no directory that all could write to, and the kernel drops it
//! with its holder. Abstract names belong to a network namespace, as ports do: whoever finds the service by its listening
//! socket sees these names as well, also from another pid or mount namespace (network_namespaces(7)). All ports of the
//! main process are claimed, so that two tuners do not meet through two of them.
//!
//! Anybody may take such a name, as anybody may take a port: then tuning is refused, with the process that holds it.
//! Undoing must not be anybody's to prevent: there a name counts only when its holder is seen to be root's or our own
//! user's.

use crate::change::journal::action::Served;
use crate::change::seams::Tools;
use crate::os::procfs;
use std::collections::BTreeMap;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

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

/// The names that a session holds; they end with this value, and with the process in any case.
#[derive(Default)]
pub struct Claims(BTreeMap<String, Box<dyn Send>>);

impl Claims {
    /// Claims the names of a service that are not held yet. An error when somebody else has one of them.
    pub fn take(&mut self, tools: &Tools, served: &Served) -> Result<()> {
        match self.try_take(tools, served)? {
            None => Ok(()),
            Some(holder) => Err(held_by(served, holder)),
        }
    }

    /// The same to undo something, waiting a while for whoever has them. Who is not seen to be root's or our own user's
    /// keeps nobody from it: he is told, one line for each name.
    pub fn wait_to_undo(&mut self, tools: &Tools, served: &Served, at_most: Duration) -> Result<Vec<String>> {
        let mut ignored = BTreeMap::new();
        let mut last = self.try_take_to_undo(tools, served, &mut ignored)?;
        let mut failed = None;
        tools.world.wait_until(at_most, &mut || {
            if last.is_some() {
                match self.try_take_to_undo(tools, served, &mut ignored) {
                    Ok(holder) => last = holder,
                    Err(error) => failed = Some(error),
                }
            }
            last.is_none() || failed.is_some()
        });
        match (failed, last) {
            (Some(error), _) => Err(error),
            (None, Some(holder)) => Err(held_by(served, Some(holder))),
            (None, None) => Ok(ignored.into_iter().map(|(name, holder)| ignoring(&name, holder)).collect()),
        }
    }

    /// `Some` when somebody who is trusted has one of the names.
    fn try_take_to_undo(
        &mut self,
        tools: &Tools,
        served: &Served,
        ignored: &mut BTreeMap<String, Option<Holder>>,
    ) -> Result<Option<Holder>> {
        ignored.clear();
        for name in tools.programs.claim_names(served) {
            match self.try_name(tools, &name)? {
                None => {}
                Some(Some(holder)) if holder.is_trusted => return Ok(Some(holder)),
                Some(holder) => drop(ignored.insert(name, holder)),
            }
        }
        Ok(None)
    }

    /// `Ok(Some(holder))` when somebody else has one of the names.
    fn try_take(&mut self, tools: &Tools, served: &Served) -> Result<Option<Option<Holder>>> {
        for name in tools.programs.claim_names(served) {
            if let Some(holder) = self.try_name(tools, &name)? {
                return Ok(Some(holder));
            }
        }
        Ok(None)
    }

    /// `Ok(Some(holder))` when somebody else has the name.
    fn try_name(&mut self, tools: &Tools, name: &str) -> Result<Option<Option<Holder>>> {
        if self.0.contains_key(name) {
            return Ok(None);
        }
        match tools.world.claim(name).map_err(|error| io_error("claim", name, &error))? {
            Claimed::Ours(claim) => drop(self.0.insert(name.to_owned(), claim)),
            Claimed::Theirs(holder) => return Ok(Some(holder)),
        }
        Ok(None)
    }
}

/// The names of a service that listens on these ports.
pub fn names(ports: impl IntoIterator<Item = u16>) -> Vec<String> {
    // One order for all: who claims the first one gets the others.
    let ports: std::collections::BTreeSet<u16> = ports.into_iter().collect();
    ports.into_iter().map(|port| format!("webdyno/tcp/{port}")).collect()
}

/// Claims a name on this machine.
pub fn claim(name: &str) -> io::Result<Claimed> {
    match UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?) {
        Ok(socket) => Ok(Claimed::Ours(Box::new(socket))),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(Claimed::Theirs(holder(name))),
        Err(error) => Err(error),
    }
}

/// The process that holds a name; `None` when it has ended meanwhile, or we may not look into it.
fn holder(name: &str) -> Option<Holder> {
    let inode = parse_inode(&procfs::read_text("/proc/self/net/unix").ok()?, name)?;
    let holds = |pid: &u32| procfs::socket_inodes(*pid).is_ok_and(|held| held.contains(&inode));
    let pid = procfs::pids().into_iter().find(holds)?;
    let status = procfs::read_text(format!("/proc/{pid}/status")).unwrap_or_default();
    Some(Holder { pid, is_trusted: is_trusted(&status, rustix::process::geteuid().as_raw()) })
}

/// Whether all user ids of `/proc/PID/status` are root's or our own: the owner of `/proc/PID` is root also for processes
/// of others that may not be dumped, and a set-user-id program belongs to its caller, too (proc_pid(5)).
fn is_trusted(status: &str, own_uid: u32) -> bool {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let mut ids = ids.split_ascii_whitespace().map(str::parse::<u32>).peekable();
    ids.peek().is_some() && ids.all(|id| id.is_ok_and(|id| id == 0 || id == own_uid))
}

fn ignoring(name: &str, holder: Option<Holder>) -> String {
    let who = holder.map_or_else(
        || "a process that cannot be seen".to_owned(),
        |holder| format!("process {}", holder.pid),
    );
    format!(
        "went on although {who} holds the name {name}, as that is not known to be a webdyno of root or of this user"
    )
}

/// The inode of an abstract name in `/proc/net/unix`: the last but one field, before `@` and the name.
fn parse_inode(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(" @"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

fn held_by(served: &Served, holder: Option<Holder>) -> UserError {
    let who = holder.map_or_else(
        || "another webdyno".to_owned(),
        |holder| format!("another webdyno (process {})", holder.pid),
    );
    let Served { service, port, .. } = served;
    UserError::cannot_run(format!("{who} is changing {service} on port {port} already")).hint(
        "wait until it has ended; its journal is in another state directory than this one's (WEBDYNO_STATE)",
    )
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
        drop(first);
        assert!(matches!(claim(&name).unwrap(), Claimed::Ours(_)));
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
