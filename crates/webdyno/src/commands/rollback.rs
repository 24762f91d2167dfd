//! `webdyno rollback`: restore the original configuration; and what every other command does about sessions that were
//! cut off.

use crate::cli::{Command, Helper, RollbackArgs};
use crate::terminal;
use webdyno_host::agent::{
    AgentClient, ServerAddress, only_starts_an_agent, run_on_server, tools_that_enter,
};
use webdyno_host::change::seams::helper::RollbackOutcome;
use webdyno_host::change::seams::state_dir::StateDir;
use webdyno_host::change::undo::rollback::{notice_with, rollback_with, undo_interrupted_with};
use webdyno_model::{Result, UserError};

/// Restores everything that any session changed on this machine, or on those that are given, the web server first. Each is
/// tried, also where another one fails.
pub fn rollback(arguments: &RollbackArgs) -> Result<u8> {
    let list = arguments.server.list()?;
    let mut outcome = Ok(0);
    for (_, address) in list.iter() {
        outcome = match (outcome, roll_back(arguments, address)) {
            (Ok(code), Ok(next)) => Ok(code.max(next)),
            (Err(first), Err(other)) => {
                terminal::print_error(&first);
                Err(other)
            }
            (first, other) => first.and(other),
        };
    }
    outcome
}

fn roll_back(arguments: &RollbackArgs, address: &ServerAddress) -> Result<u8> {
    if *address != ServerAddress::Local {
        let start = arguments.server.start(address)?;
        if only_starts_an_agent(address) {
            let there = AgentClient::start(&start)?.roll_back(None, arguments.interrupted)?;
            return print_outcome(there, arguments.interrupted);
        }
        let words = if arguments.interrupted { "rollback --interrupted" } else { "rollback" };
        return run_on_server(&start, words, std::io::stdout());
    }
    let tools = tools_that_enter(&StateDir::of_environment()?);
    let done = match arguments.interrupted {
        // At boot, or by hand: what a guardian would have done.
        true => undo_interrupted_with(&tools)?,
        false => RollbackOutcome { lines: rollback_with(&tools)?, ..RollbackOutcome::default() },
    };
    print_outcome(done, arguments.interrupted)
}

fn print_outcome(RollbackOutcome { lines, problem, .. }: RollbackOutcome, only_unkept: bool) -> Result<u8> {
    if lines.is_empty() && problem.is_none() {
        let what = if only_unkept { "was cut off" } else { "left a change on this machine" };
        terminal::print(&format!("Nothing to roll back: no session {what}.\n"))?;
    }
    for line in lines {
        terminal::print(&format!("{line}\n"))?;
    }
    problem.map_or(Ok(0), Err)
}

/// Before any command that loads or changes a server: what a session that was cut off left is put back, and told.
/// Commands that only read tell that a rollback is pending. Everyone hears, once, that a guardian put everything back.
/// An error when a tuning would begin with a server that is not as it was.
pub fn revert_interrupted_before(command: &Command) -> Result<()> {
    if matches!(
        command,
        Command::Helper(Helper::Agent(_)) | Command::Rollback(_) | Command::Workload(_) | Command::Lab(_)
    ) {
        return Ok(());
    }
    // Without a state directory there is no journal, and so nothing to do.
    let Ok(state) = StateDir::of_environment() else { return Ok(()) };
    let done = match command.needs_reverted_server() {
        true => revert_interrupted(&state),
        false => RollbackOutcome::default(),
    };
    if done.unfinished && matches!(command, Command::Tune(_)) {
        return Err(UserError::cannot_run("a session that was cut off is not undone yet")
            .hint("remove the cause, then run `webdyno rollback`"));
    }
    // What was told a moment ago need not be told again.
    let is_told = done.problem.is_some() || !done.lines.is_empty();
    if let Some(line) = notice_with(&tools_that_enter(&state)).filter(|_| !is_told) {
        terminal::print_status(&format!("webdyno: {line}"));
    }
    Ok(())
}

/// After a command that did not do what it was to do: its guardian may have been killed beneath it.
pub fn revert_interrupted_after() {
    if let Ok(state) = StateDir::of_environment() {
        revert_interrupted(&state);
    }
}

fn revert_interrupted(state: &StateDir) -> RollbackOutcome {
    let done = undo_interrupted_with(&tools_that_enter(state))
        .unwrap_or_else(|error| RollbackOutcome { problem: Some(error), ..RollbackOutcome::default() });
    if !done.lines.is_empty() {
        terminal::print_status("webdyno: a session was interrupted: its changes are reverted");
    }
    for line in &done.lines {
        terminal::print_status(&format!("  {line}"));
    }
    if let Some(problem) = &done.problem {
        terminal::print_error(problem);
    }
    done
}
