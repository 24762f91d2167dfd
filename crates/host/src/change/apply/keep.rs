//! What was verified stays when the session ends, with the machine that it was verified on.

use super::Changer;
use crate::change::journal::history::Record;
use crate::change::tuned_machine::TunedMachine;
use crate::change::undo::remove_boot_hook;
use webdyno_model::Result;

impl Changer {
    /// Says on which machine the changes are verified; before they are kept.
    pub fn set_machine(&mut self, machine: TunedMachine) {
        self.made_for = Some(machine);
    }

    /// What is applied now stays when the session ends. It can still be rolled back later.
    pub fn keep(&mut self) -> Result<()> {
        self.finish_undoing()?;
        self.write_kept_values()?;
        let Some(session) = &mut self.session else { return Ok(()) };
        let through = session.journal.history().last_n();
        let kept = |made_for| Record::Kept { through, made_for };
        // What a later look compares with is no reason to keep nothing, where the disk has no room for it.
        let told =
            self.made_for.clone().is_some_and(|machine| session.journal.append(kept(Some(machine))).is_ok());
        if !told {
            session.journal.append(kept(None))?;
        }
        // What is kept stays at a boot too. A hook that cannot be removed now is removed at the end.
        remove_boot_hook(&mut session.journal, &self.tools);
        Ok(())
    }
}
