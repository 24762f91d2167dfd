//! What commands that change a server share: changes of others that wait for a reload, consent, and what is put back at the end.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use webdyno_host::agent::RevertedChange;
use webdyno_host::change::apply::pending_reload;
use webdyno_model::{Result, UserError};
use webdyno_session::live::{LiveSession, Server};

/// Writes into the log what the agents put back at the end.
pub fn record_reverted(session: &mut LiveSession, done: RevertedChange) -> Result<()> {
    if done.actions.is_empty() {
        return Ok(());
    }
    session.reverted(0, done)
}

/// What of others waits for a reload, as a note. Where it would be refused in the end, it is before the server is loaded
/// for minutes.
pub fn waiting_note(server: &Server, is_applied: bool, is_accepted: bool) -> Result<Option<String>> {
    let Some(snapshot) = server.snapshot().filter(|snapshot| !snapshot.pending.is_empty()) else {
        return Ok(None);
    };
    let count = snapshot.pending.len();
    match (is_applied, is_accepted) {
        (true, false) => Err(pending_reload::refusal(&snapshot.service, &snapshot.pending)),
        (true, true) => {
            Ok(Some(format!("changes of others ({count}) will take effect with the first one of ours")))
        }
        (false, true) => Ok(None),
        (false, false) => Ok(Some(format!(
            "changes of others ({count}) wait for a reload: until then --apply is refused, unless --accept-pending accepts them"
        ))),
    }
}

/// Whether somebody is there to be asked, who did not say yes before.
pub fn needs_consent(yes: bool) -> bool {
    !yes && std::io::stdin().is_terminal()
}

/// Asks on the terminal; an error when interrupted meanwhile.
pub fn confirm(question: &str, interrupted: &AtomicBool) -> Result<bool> {
    let _ = write!(std::io::stderr(), "{question} [y/N] ");
    let stdin = std::io::stdin();
    // Reading would sleep through Ctrl-C.
    let tick = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    loop {
        let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
        let ready = poll(&mut waiting, Some(&tick)).is_ok_and(|count| count > 0);
        if interrupted.load(Ordering::Relaxed) {
            return Err(UserError::interrupted());
        }
        if ready {
            break;
        }
    }
    let mut answer = String::new();
    Ok(stdin.read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes"))
}
