//! `webdyno rollback`: restore the original configuration; and what every other command does about sessions that were
//! cut off.

use crate::cli::{Command, RollbackArgs};
use crate::terminal;
use webdyno_host::agent::{ServerAddress, run_elsewhere};
use webdyno_host::change::journal::state::StateDir;
use webdyno_host::change::undo::rollback::{Interrupted, notice, rollback_all, undo_interrupted};
use webdyno_model::{Result, UserError};

/// Restores everything that any session changed on this machine, or on the one that is given.
pub fn rollback(arguments: &RollbackArgs) -> Result<u8> {
    let list = arguments.server.list()?;
    let address = list.web()?;
    if *address != ServerAddress::Local {
        let words = if arguments.interrupted { "rollback --interrupted" } else { "rollback" };
        return run_elsewhere(&arguments.server.start(address)?, words, std::io::stdout());
    }
    let state = StateDir::of_environment()?;
    if arguments.interrupted {
        return interrupted(&state);
    }
    let done = rollback_all(&state)?;
    if done.is_empty() {
        terminal::print("Nothing to roll back: no session left a change on this machine.\n")?;
    }
    print(&done)
}

/// At boot, or by hand: what a guardian would have done.
fn interrupted(state: &StateDir) -> Result<u8> {
    let Interrupted { lines, problem, .. } = undo_interrupted(state)?;
    if lines.is_empty() && problem.is_none() {
        terminal::print("Nothing to roll back: no session was cut off.\n")?;
    }
    print(&lines)?;
    problem.map_or(Ok(0), Err)
}

fn print(lines: &[String]) -> Result<u8> {
    for line in lines {
        terminal::print(&format!("{line}\n"))?;
    }
    Ok(0)
}

/// Before any command that loads or changes a server: what a session that was cut off left is put back, and told.
/// Commands that only read tell that a rollback is pending. Everyone hears, once, that a guardian put everything back.
/// An error when a tuning would begin with a server that is not as it was.
pub fn put_back_first(command: &Command) -> Result<()> {
    if matches!(command, Command::Agent(_) | Command::Rollback(_) | Command::Workload(_) | Command::Lab(_)) {
        return Ok(());
    }
    // Without a state directory there is no journal, and so nothing to do.
    let Ok(state) = StateDir::of_environment() else { return Ok(()) };
    let done = match command.needs_the_original() {
        true => put_back(&state),
        false => Interrupted::default(),
    };
    if done.unfinished && matches!(command, Command::Tune(_)) {
        return Err(UserError::cannot_run("a session that was cut off is not undone yet")
            .hint("remove the cause, then run `webdyno rollback`"));
    }
    // What was told a moment ago need not be told again.
    let is_told = done.problem.is_some() || !done.lines.is_empty();
    if let Some(line) = notice(&state).filter(|_| !is_told) {
        terminal::tell(&format!("webdyno: {line}"));
    }
    Ok(())
}

/// After a command that did not do what it was to do: its guardian may have been killed beneath it.
pub fn put_back_after() {
    if let Ok(state) = StateDir::of_environment() {
        put_back(&state);
    }
}

fn put_back(state: &StateDir) -> Interrupted {
    let done = undo_interrupted(state)
        .unwrap_or_else(|error| Interrupted { problem: Some(error), ..Interrupted::default() });
    if !done.lines.is_empty() {
        terminal::tell("webdyno: a session was cut off; what it had changed is put back");
    }
    for line in &done.lines {
        terminal::tell(&format!("  {line}"));
    }
    if let Some(problem) = &done.problem {
        terminal::tell_error(problem);
    }
    done
}
