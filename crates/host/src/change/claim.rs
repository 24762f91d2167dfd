//! One tuner per service, whatever state directory, user or container it works from: beside the lock in the state
//! directory, a session holds a name for each port of the service.
//!
//! The name is an abstract unix socket (unix(7)): it needs no directory that all could write to, and the kernel drops it
//! with its holder. Abstract names belong to a network namespace, as ports do: whoever finds the service by its listening
//! socket sees these names as well, also from another pid or mount namespace (network_namespaces(7)). All ports of the
//! main process are claimed, so that two tuners do not meet through two of them.
//!
//! Anybody may take such a name, as anybody may take a port: then tuning is refused, with the process that holds it.

use crate::change::action::Served;
use crate::change::tools::Tools;
use crate::procfs;
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
    Theirs(Option<u32>),
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

    /// The same, waiting a while for whoever has them.
    pub fn wait(&mut self, tools: &Tools, served: &Served, at_most: Duration) -> Result<()> {
        let mut last = self.try_take(tools, served)?;
        let mut failed = None;
        tools.world.wait_until(at_most, &mut || {
            if last.is_some() {
                match self.try_take(tools, served) {
                    Ok(holder) => last = holder,
                    Err(error) => failed = Some(error),
                }
            }
            last.is_none() || failed.is_some()
        });
        match (failed, last) {
            (Some(error), _) => Err(error),
            (None, Some(holder)) => Err(held_by(served, holder)),
            (None, None) => Ok(()),
        }
    }

    /// `Ok(Some(holder))` when somebody else has one of the names.
    fn try_take(&mut self, tools: &Tools, served: &Served) -> Result<Option<Option<u32>>> {
        for name in tools.programs.claim_names(served) {
            if self.0.contains_key(&name) {
                continue;
            }
            match tools.world.claim(&name).map_err(|error| io_error("claim", &name, &error))? {
                Claimed::Ours(claim) => drop(self.0.insert(name, claim)),
                Claimed::Theirs(holder) => return Ok(Some(holder)),
            }
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
fn holder(name: &str) -> Option<u32> {
    let inode = parse_inode(&procfs::read_text("/proc/self/net/unix").ok()?, name)?;
    let holds = |pid: &u32| procfs::socket_inodes(*pid).is_ok_and(|held| held.contains(&inode));
    procfs::pids().into_iter().find(holds)
}

/// The inode of an abstract name in `/proc/net/unix`: the last but one field, before `@` and the name.
fn parse_inode(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(" @"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

fn held_by(served: &Served, holder: Option<u32>) -> UserError {
    let who =
        holder.map_or_else(|| "another webdyno".to_owned(), |pid| format!("another webdyno (process {pid})"));
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
        assert_eq!(holder, Some(std::process::id()));
        drop(first);
        assert!(matches!(claim(&name).unwrap(), Claimed::Ours(_)));
    }

    #[test]
    fn ports_are_claimed_in_one_order() {
        assert_eq!(names([443, 80, 443]), ["webdyno/tcp/80", "webdyno/tcp/443"]);
    }
}
