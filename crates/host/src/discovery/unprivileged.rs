//! A service whose processes we may not look into: who it probably is, by what anyone may read.
//!
//! Only the user that a process runs as, and root, may see its descriptors (proc_pid_fd(5)), so nobody else sees which
//! process holds a listening socket. The socket's user, the names of processes and their command lines are open to
//! all. A process counts as the listener when it has the socket's user, or that is root, is a program that webdyno knows, and its
//! configuration says that it listens on that port; and when no second one does. Else the service is unknown: the
//! machine and the port's sockets can be observed all the same.

use super::links::addresses;
use crate::os::procfs;
use crate::services::{self, Observe, mariadb};
use crate::visibility::listeners::{Hidden, NEEDS_RIGHTS, NO_PID};
use webdyno_model::UserError;
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::ServiceSnapshot;

/// The most processes whose configuration is looked at.
const CANDIDATES_COUNT_MAX: usize = 64;

/// The snapshot of who probably listens on a port, or of an unknown service.
pub fn snapshot(hidden: &Hidden) -> ServiceSnapshot {
    let port = hidden.port;
    let all = candidates(hidden).map(HiddenServer::of);
    let listeners: Vec<HiddenServer> = all.filter(|server| server.listens_on(port)).collect();
    let [HiddenServer { pid, service, .. }] = listeners[..] else {
        return unknown(hidden, listeners.iter().map(|server| server.pid).collect());
    };
    let Ok(mut snapshot) = service.snapshot(pid, port) else {
        return unknown(hidden, vec![pid]);
    };
    snapshot.warnings.push(guess(service.name(), pid, &format!("on port {port}")));
    snapshot
}

/// The warning that who listens somewhere was read from its configuration.
pub fn guess(service: &str, pid: u32, at: &str) -> String {
    format!(
        "that {service} with process {pid} listens {at} was read from its configuration: webdyno may not see who holds \
         the socket"
    )
}

/// A main process that we may not look into.
#[derive(Debug)]
pub struct HiddenServer {
    pid: u32,
    service: &'static dyn Observe,
    /// Where it listens by its own configuration; `None` where that is told of a port only.
    listens: Option<Vec<String>>,
}

impl HiddenServer {
    fn of((pid, service): (u32, &'static dyn Observe)) -> Self {
        let listens = service.backend(pid).map(|read| read.map_or(vec![], |backend| backend.listens));
        Self { pid, service, listens }
    }

    fn listens_on(&self, port: u16) -> bool {
        match &self.listens {
            Some(listens) => listens.iter().flat_map(|at| addresses(at)).any(|one| one.port() == port),
            None => self.service.listens_on(self.pid, port) == Some(true),
        }
    }
}

/// All of them. Reading a configuration may start a program, so that it is done once.
pub fn hidden_servers() -> Vec<HiddenServer> {
    unseen_programs(|_| true).map(HiddenServer::of).collect()
}

/// The database that is the only one of this machine, containers included, if we may not look into it; and where it listens.
pub fn only_database(among: &[HiddenServer]) -> Option<(u32, &str)> {
    let named = procfs::pids().into_iter().filter_map(|pid| {
        let stat = procfs::stat(pid).ok()?;
        let parent = procfs::stat(stat.ppid).ok().map(|parent| parent.name);
        Some((pid, stat.name, parent))
    });
    let pid = only(databases(named))?;
    let server = among.iter().find(|server| server.pid == pid)?;
    Some((pid, server.listens.as_ref()?.first()?))
}

/// The main processes of databases among these with their names, and their parents'.
fn databases(named: impl Iterator<Item = (u32, String, Option<String>)>) -> impl Iterator<Item = u32> {
    let is_database = |name: &str| name == POSTGRES || mariadb::Mariadb.recognises(name, &[]);
    let mains = named.filter(move |(_, name, parent)| is_database(name) && parent.as_ref() != Some(name));
    mains.map(|(pid, ..)| pid)
}

fn only(mut all: impl Iterator<Item = u32>) -> Option<u32> {
    all.next().filter(|_| all.next().is_none())
}

const POSTGRES: &str = "postgres";

/// The process that probably listens at an address that another's configuration names (`unix:/run/php/fpm.sock`, `127.0.0.1:9000`): the
/// one whose own configuration says so.
pub fn server_at(by: &str, among: &[HiddenServer]) -> Option<u32> {
    let wanted = addresses(by);
    let listens = |server: &&HiddenServer| match &server.listens {
        Some(listens) => listens.iter().any(|at| is_same(at, by)),
        None => wanted.iter().any(|one| server.listens_on(one.port())),
    };
    only(among.iter().filter(listens).map(|server| server.pid))
}

/// Whether who listens at one address is reached by the other.
fn is_same(listens: &str, by: &str) -> bool {
    let (bound, wanted) = (addresses(listens), addresses(by));
    let takes = |bound: &std::net::SocketAddr| {
        let is_of = |one: &std::net::SocketAddr| one.port() == bound.port();
        wanted.iter().any(|one| bound == one || (bound.ip().is_unspecified() && is_of(one)))
    };
    listens == by || bound.iter().any(takes)
}

/// The main processes of known programs that we may not look into and that run as the user of the sockets.
fn candidates(hidden: &Hidden) -> impl Iterator<Item = (u32, &'static dyn Observe)> {
    // Who gave up root's rights after that keeps the socket.
    unseen_programs(|uid| hidden.uids.contains(&uid) || hidden.uids.contains(&0))
}

/// The main processes of known programs that we may not look into, of these users.
fn unseen_programs(is_theirs: impl Fn(u32) -> bool) -> impl Iterator<Item = (u32, &'static dyn Observe)> {
    let candidate = move |pid: u32| {
        let process = procfs::process(pid).ok()?;
        let service = services::recognise(&process.name, &process.argv)?;
        let is_worker = procfs::stat(process.ppid).is_ok_and(|parent| parent.name == process.name);
        let is_theirs = process.uid.is_some_and(&is_theirs);
        let is_open = procfs::may_inspect(pid) || procfs::is_in_a_container(pid);
        (is_theirs && !is_worker && !is_open).then_some((pid, service))
    };
    procfs::pids().into_iter().filter_map(candidate).take(CANDIDATES_COUNT_MAX)
}

fn unknown(hidden: &Hidden, perhaps: Vec<u32>) -> ServiceSnapshot {
    let error = hidden.error();
    let mut snapshot = services::snapshot_unknown(NO_PID, hidden.port, None);
    let mut warning = format!(
        "{}: only the machine and the sockets of the port are observed; {NEEDS_RIGHTS}",
        error.message
    );
    if !perhaps.is_empty() {
        let pids: Vec<String> = perhaps.iter().map(u32::to_string).collect();
        warning.push_str(&format!(" (it may be one of the processes {})", pids.join(", ")));
    }
    snapshot.warnings = vec![warning];
    snapshot.missing = vec![MissingSignal::new("service", error.message, error.hint.unwrap_or_default())];
    snapshot
}

/// Why nothing of a service can be changed of which no process is known.
pub fn refusal(snapshot: &ServiceSnapshot) -> UserError {
    Hidden { port: snapshot.port, uids: Default::default() }.error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_that_of_who_is_bound_to_it() {
        for (listens, by, is_it) in [
            ("unix:/run/php/a.sock", "unix:/run/php/a.sock", true),
            ("unix:/run/php/a.sock", "unix:/run/php/b.sock", false),
            ("127.0.0.1:9000", "localhost:9000", true),
            ("0.0.0.0:9000", "127.0.0.1:9000", true),
            ("127.0.0.1:9000", "127.0.0.1:9001", false),
            ("127.0.0.2:9000", "127.0.0.1:9000", false),
        ] {
            assert_eq!(is_same(listens, by), is_it, "{listens} {by}");
        }
        assert_eq!(server_at("unix:/run/nobody-has-this.sock", &hidden_servers()), None);
    }

    #[test]
    fn a_database_is_the_only_one_if_no_other_runs_anywhere() {
        for (processes, expected) in [
            (&[(1, "systemd", ""), (7, "mariadbd", "systemd"), (8, "apache2", "systemd")][..], Some(7)),
            (&[(7, "mysqld", "mysqld_safe")], Some(7)),
            (&[(7, "mariadbd", "systemd"), (9, "mysqld", "containerd-shim")], None),
            (&[(7, "mariadbd", "systemd"), (9, "postgres", "systemd"), (10, "postgres", "postgres")], None),
            (&[(9, "postgres", "systemd"), (10, "postgres", "postgres")], Some(9)),
            (&[(8, "apache2", "systemd")], None),
        ] {
            let named = processes.iter().map(|(pid, name, parent)| {
                (*pid, (*name).to_owned(), Some((*parent).to_owned()).filter(|parent| !parent.is_empty()))
            });
            assert_eq!(only(databases(named)), expected, "{processes:?}");
        }
    }

    #[test]
    fn nobody_known_is_an_unknown_service_that_says_what_helps() {
        // No process runs as this user.
        let hidden = Hidden { port: 80, uids: [u32::MAX - 7].into() };
        let found = snapshot(&hidden);
        assert_eq!((found.service.as_str(), found.pid, found.port), ("unknown", NO_PID, 80));
        assert_eq!(found.control, None);
        let message = "cannot see which process listens on port 80: permission denied";
        assert!(found.warnings[0].starts_with(message) && found.warnings[0].contains("sudo"), "{found:?}");
        assert_eq!(found.missing[0].why, message);
        assert_eq!(refusal(&found), hidden.error());
        let ambiguous = unknown(&hidden, vec![5, 6]);
        assert!(ambiguous.warnings[0].contains("one of the processes 5, 6"), "{ambiguous:?}");
    }
}
