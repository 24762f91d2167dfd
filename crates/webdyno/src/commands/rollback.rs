//! `webdyno rollback`: restore the original configuration.

use crate::cli::RollbackArgs;
use crate::terminal;
use webdyno_host::agent::ServerAddress;
use webdyno_host::change::rollback::{notice, rollback_all};
use webdyno_host::change::state::StateDir;
use webdyno_model::{Result, UserError};

/// Restores everything that any session changed on this machine.
pub fn rollback(arguments: &RollbackArgs) -> Result<u8> {
    let address = ServerAddress::parse(&arguments.server.server)?;
    if address != ServerAddress::Local {
        return Err(UserError::usage(format!("`{address}`: a rollback runs on the server's own host"))
            .hint("run `webdyno rollback` there"));
    }
    let done = rollback_all(&StateDir::of_environment()?)?;
    if done.is_empty() {
        terminal::print("Nothing to roll back: no session left a change on this machine.\n")?;
    }
    for line in done {
        terminal::print(&format!("{line}\n"))?;
    }
    Ok(0)
}

/// Tells the user of any command that a rollback is pending, or that one was made.
pub fn tell_if_pending() {
    // Without a state directory there is no journal, and so nothing to tell.
    if let Some(line) = StateDir::of_environment().ok().and_then(|state| notice(&state)) {
        terminal::tell(&format!("webdyno: {line}"));
    }
}
