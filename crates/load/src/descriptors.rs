//! Open files: each connection is one. The soft limit of this process is raised to the hard one. getrlimit(2).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use webdyno_model::{Result, UserError};

/// Descriptors for everything that is not a connection: logs, event loops, collectors, the live page.
const RESERVE: u64 = 64;

/// Makes room for so many connections, or says how to. Returns how many more there is room for.
pub(crate) fn ensure(connections: u64) -> Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    let spare = room(connections, limit.maximum)?;
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // A process may always raise its soft limit; if a sandbox forbids even that, the soft limit is what counts.
        if setrlimit(Resource::Nofile, raised).is_err() {
            return room(connections, limit.current);
        }
    }
    Ok(spare)
}

/// What is left of a limit after the connections and the reserve; `None` is no limit.
fn room(connections: u64, limit: Option<u64>) -> Result<u64> {
    let needed = connections.saturating_add(RESERVE);
    let Some(limit) = limit else {
        return Ok(connections);
    };
    limit.checked_sub(needed).ok_or_else(|| {
        let fitting = limit.saturating_sub(RESERVE);
        UserError::cannot_run(format!(
            "{connections} connections need {needed} open files, this process may have {limit}"
        ))
        .hint(format!("raise the limit first: ulimit -n {needed}; or use -c {fitting} or fewer"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_too_low_is_told_with_both_numbers() {
        assert_eq!(room(100, None), Ok(100));
        assert_eq!(room(100, Some(1024)), Ok(860));
        assert_eq!(room(960, Some(1024)), Ok(0));
        let told = room(5000, Some(1024)).unwrap_err();
        assert_eq!(told.message, "5000 connections need 5064 open files, this process may have 1024");
        assert_eq!(
            told.hint.as_deref(),
            Some("raise the limit first: ulimit -n 5064; or use -c 960 or fewer")
        );
        assert_eq!(told.exit_code(), 1);
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        ensure(1).unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
