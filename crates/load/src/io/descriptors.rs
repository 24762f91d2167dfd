//! Open files: each connection is one. The soft limit of this process is raised to the hard one. getrlimit(2); what is
//! open now: proc_pid_fd(5).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use webdyno_model::{Result, UserError};

/// What is opened after this check and is no connection: the log, netlink sockets, the pipes to an agent,
/// and some more that are open for a moment.
const RESERVE: u64 = 12;
/// What each engine thread has besides its connections: epoll, timer, and what wakes it.
const PER_THREAD: u64 = 3;
/// What a thread's resolver has: its signal, twice, and files that are read for a moment. A lookup has a socket while
/// its connection has none yet.
const PER_RESOLVER: u64 = 4;
/// The assumed number of open files where that cannot be read: more than was ever seen.
const OPEN_UNKNOWN: u64 = 32;

/// What a load opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DescriptorNeed {
    /// Connections that are surely open at once.
    pub(crate) connections: u64,
    /// Engine threads.
    pub(crate) threads: u64,
    /// Whether names are resolved during the load.
    pub(crate) resolves: bool,
}

impl DescriptorNeed {
    /// Files that are no connection, with so many open now.
    fn others(&self, open: u64) -> u64 {
        let each = PER_THREAD + if self.resolves { PER_RESOLVER } else { 0 };
        open + self.threads * each + RESERVE
    }
}

/// Connections that the limit of open files has room for, beside those of so many engine threads; `None` is no limit.
pub fn connections_allowed(threads: u32) -> Option<u64> {
    let need = DescriptorNeed { connections: 0, threads: u64::from(threads), resolves: true };
    raise_limit(need).ok().flatten()
}

/// Raises the limit for a load, or fails with a hint how to. Returns how many connections there is room for; `None` is
/// no limit.
pub(crate) fn raise_limit(need: DescriptorNeed) -> Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    let others = need.others(open_now());
    let fitting = room(need.connections, others, limit.maximum)?;
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // A process may always raise its soft limit; if a sandbox forbids even that, the soft limit is what counts.
        if setrlimit(Resource::Nofile, raised).is_err() {
            return room(need.connections, others, limit.current);
        }
    }
    Ok(fitting)
}

/// Open files of this process; reading them is one of them.
fn open_now() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(OPEN_UNKNOWN, |files| files.count() as u64)
}

/// How many connections fit into a limit beside the other files; `None` is no limit.
fn room(connections: u64, others: u64, limit: Option<u64>) -> Result<Option<u64>> {
    let Some(limit) = limit else { return Ok(None) };
    let fitting = limit.saturating_sub(others);
    if connections <= fitting {
        return Ok(Some(fitting));
    }
    let needed = connections.saturating_add(others);
    let noun = if connections == 1 { "connection" } else { "connections" };
    let fewer = if fitting > 0 { format!("; or use -c {fitting} or fewer") } else { String::new() };
    Err(UserError::cannot_run(format!(
        "{connections} {noun} and {others} other open files are needed, this process may have {limit}"
    ))
    .hint(format!("raise the limit first: ulimit -n {needed}{fewer}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_too_low_is_reported_with_both_numbers() {
        assert_eq!(room(100, 24, None), Ok(None));
        assert_eq!(room(100, 24, Some(1024)), Ok(Some(1000)));
        assert_eq!(room(1000, 24, Some(1024)), Ok(Some(1000)));
        let error = room(5000, 24, Some(1024)).unwrap_err();
        assert_eq!(
            error.message,
            "5000 connections and 24 other open files are needed, this process may have 1024"
        );
        assert_eq!(
            error.hint.as_deref(),
            Some("raise the limit first: ulimit -n 5024; or use -c 1000 or fewer")
        );
        assert_eq!(error.exit_code(), 1);
        // No connection at all is no advice.
        let error = room(1, 24, Some(24)).unwrap_err();
        assert_eq!(error.hint.as_deref(), Some("raise the limit first: ulimit -n 25"));
        assert!(error.message.starts_with("1 connection and"), "{error}");
    }

    #[test]
    fn what_is_needed_besides_connections_is_what_is_there() {
        let need = DescriptorNeed { connections: 40, threads: 2, resolves: false };
        // 40 connections fit into 64 open files.
        assert_eq!(need.others(5), 23);
        assert_eq!(DescriptorNeed { resolves: true, ..need }.others(5), 31);
        assert!((4..10_000).contains(&open_now()));
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        raise_limit(DescriptorNeed { connections: 1, threads: 1, resolves: false }).unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
