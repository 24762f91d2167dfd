//! What follows on a session: boots, the next commands, and the operator who repairs what is broken.

use crate::simulated::faults::Faults;
use crate::simulated::machine::{Machine, Process};
use crate::simulated::target::{error_text, live, tools};
use std::path::Path;
use webdyno_host::change::Tools;
use webdyno_host::change::journal::lock;
use webdyno_host::change::seams::helper::RollbackOutcome;
use webdyno_host::change::undo::rollback::{notice_with, pending_with, rollback_with, undo_interrupted_with};
use webdyno_host::os::process::ProcessName;

/// How many commands may be struck before the operator repairs everything.
const FAULTY_COMMANDS_COUNT: u32 = 3;

/// Where units are.
const UNITS: &str = "/etc/systemd/system";

/// What this operator does.
#[derive(Debug, Clone, Copy)]
pub struct OperatorHabits {
    /// Whether he asks for a rollback at once, and does not begin with the next tuning.
    pub rolls_back: bool,
    /// Whether he rolls back what was kept, too.
    pub rolls_back_kept: bool,
}

/// What the next commands do, until nothing is left to do. Things go on going wrong for a while. Gives all that a person
/// was told.
pub fn recover(
    machine: &Machine,
    mut reported: Vec<String>,
    agent: Option<ProcessName>,
    habits: OperatorHabits,
) -> Vec<String> {
    for attempt in 0..=FAULTY_COMMANDS_COUNT {
        while machine.state().is_down {
            boot(machine);
        }
        let is_last = attempt == FAULTY_COMMANDS_COUNT;
        if is_last {
            repair_machine(machine, agent);
        }
        let process = machine.start();
        machine.state().worker = Some(process.name);
        let is_over = live(|| {
            let tools = tools(&process);
            let tunes = is_last || attempt < 2 && !habits.rolls_back;
            let is_begun = tunes && start_next_tuning(&tools, &mut reported);
            if tunes && !is_last {
                is_begun && !habits.rolls_back_kept
            } else {
                roll_back(&tools, habits, &mut reported)
            }
        });
        machine.state().end(process.name);
        if is_over == Some(true) {
            return reported;
        }
    }
    machine.state().violations.push("a rollback without any trouble does not come to an end".into());
    reported
}

/// The next tuning begins when nothing goes wrong any more: whatever was left to do is done now.
pub fn recover_without_faults(machine: &Machine, mut reported: Vec<String>) -> Vec<String> {
    {
        let mut state = machine.state();
        state.faults = Faults::none();
        state.files.repair();
        state.end_hanging(None);
    }
    let process = machine.start();
    let is_begun = start_next_tuning(&tools(&process), &mut reported);
    let mut state = machine.state();
    state.end(process.name);
    if !is_begun {
        state.violations.push("the next tuning could not begin".into());
    }
    drop(state);
    reported
}

/// The machine boots: what was hooked there puts everything back, then the service starts.
fn boot(machine: &Machine) {
    machine.state().boot();
    let is_hooked = has_boot_unit(machine);
    let faults_count = machine.state().faults_count;
    if is_hooked {
        let process: Process = machine.start();
        machine.state().worker = Some(process.name);
        live(|| drop(undo_interrupted_with(&tools(&process))));
        machine.state().end(process.name);
    }
    let mut state = machine.state();
    if !state.is_down {
        state.trace(|| "the service is started".into());
        state.restart_server();
        let is_struck = !is_hooked || state.faults_count > faults_count;
        state.is_dead_since_boot |= is_struck && !state.server.is_running();
    }
}

/// Whether the unit and what makes the boot want it are there.
fn has_boot_unit(machine: &Machine) -> bool {
    let state = machine.state();
    let has = |folder: &Path| {
        let names = state.files.list(folder).unwrap_or_default();
        names.iter().any(|name| name.starts_with("webdyno-rollback-"))
    };
    has(Path::new(UNITS)) && has(&Path::new(UNITS).join("multi-user.target.d"))
}

/// The operator makes room on his disks, mends his own files, and ends what stands still; not the agent, if a rollback
/// has to do that: one that the lock does not name, as its disk failed just then, is ended by nobody but him.
fn repair_machine(machine: &Machine, agent: Option<ProcessName>) {
    {
        let mut state = machine.state();
        state.trace(|| "the operator repairs everything".into());
        state.faults = Faults::none();
        state.files.repair();
        state.repair_config();
    }
    let look = machine.start();
    let tools = tools(&look);
    let is_pending = pending_with(&tools).is_ok_and(|all| all.iter().any(|journal| !journal.kept));
    let named = lock::holder(&tools).map(|holder| holder.process).filter(|_| is_pending);
    let mut state = machine.state();
    state.end(look.name);
    state.end_hanging(agent.filter(|agent| named == Some(*agent)));
}

/// The next tuning begins: it puts back what was cut off. Whether it could go on.
fn start_next_tuning(tools: &Tools, reported: &mut Vec<String>) -> bool {
    let done = undo_interrupted_with(tools)
        .unwrap_or_else(|error| RollbackOutcome { problem: Some(error), ..RollbackOutcome::default() });
    reported.extend(done.problem.as_ref().map(error_text));
    // As the command does: what was told a moment ago is not told again.
    let is_told = done.problem.is_some() || !done.lines.is_empty();
    reported.extend(notice_with(tools).filter(|_| !is_told));
    let again = undo_interrupted_with(tools).unwrap_or_default();
    reported.extend(again.problem.as_ref().map(error_text));
    let is_quiet = again.lines.is_empty() && again.problem.is_none();
    is_quiet && pending_with(tools).is_ok_and(|all| all.iter().all(|journal| journal.kept))
}

/// `webdyno rollback`, if there is anything that he wants to be rolled back. Whether nothing is left to do.
fn roll_back(tools: &Tools, habits: OperatorHabits, reported: &mut Vec<String>) -> bool {
    reported.extend(notice_with(tools));
    let Ok(pending) = pending_with(tools) else { return false };
    let is_wanted =
        pending.is_empty() || habits.rolls_back_kept || pending.iter().any(|journal| !journal.kept);
    if !is_wanted {
        return undo_interrupted_with(tools).is_ok_and(|done| done.problem.is_none());
    }
    reported.extend(rollback_with(tools).err().map(|error| error_text(&error)));
    reported.extend(notice_with(tools));
    let again = rollback_with(tools);
    reported.extend(again.as_ref().err().map(error_text));
    again.is_ok_and(|lines| lines.is_empty())
}
