//! Putting values back that the kernel or a running server holds. As with files, what a value is now decides: that of before
//! means that nothing is to do, ours is replaced, and anything else is somebody's work that is left alone.

use crate::change::action::{Action, WriteValue};
use crate::change::journal::history::Record;
use crate::change::undo::Undo;
use crate::services::sysctl;
use crate::services::value_holder::ValueHolder;
use std::path::Path;
use std::sync::Arc;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The outstanding writes of one value, the last one first.
type Chain = Vec<(u64, WriteValue)>;

impl Undo<'_> {
    pub(super) fn values(&mut self) {
        let mut chains: Vec<Chain> = vec![];
        for entry in self.outstanding().into_iter().rev() {
            let Action::WriteValue(write) = entry.action else { continue };
            let is_its = |chain: &&mut Chain| {
                chain.iter().all(|(_, other)| (&other.name, &other.holder) == (&write.name, &write.holder))
            };
            match chains.iter_mut().find(is_its) {
                Some(chain) => chain.push((entry.n, write)),
                None => chains.push(vec![(entry.n, write)]),
            }
        }
        for chain in chains {
            if let Err(error) = self.value(&chain) {
                self.report.failures.push(error);
            }
        }
    }

    /// Puts one value back, through all its writes at once.
    fn value(&mut self, chain: &Chain) -> Result<()> {
        let Some((_, WriteValue { name, before, holder, .. })) = chain.last() else { return Ok(()) };
        if self.is_gone_with_boot(chain) {
            return self.value_undone(chain);
        }
        let system = Arc::clone(&self.tools.system);
        let message =
            |error| io_error("restore", name, &error).hint("remove the cause, then run `webdyno rollback`");
        let Some(now) = system.read_value(name, holder).map_err(message)? else {
            self.report.lines.push(format!("{name} is gone with {}", holder.place()));
            return self.value_undone(chain);
        };
        let target =
            chain.iter().fold(&now, |at, (_, write)| if *at == write.after { &write.before } else { at });
        if *target != now {
            if let Some(why) = self.drops(name, target, holder) {
                let why = format!("{name} stays {now} for now: with {target} {why}");
                return Err(
                    UserError::cannot_run(why).hint("run `webdyno rollback` when less of it is in use")
                );
            }
            system.write_value(name, holder, target).map_err(message)?;
            self.report.lines.push(format!("restored {name} to {target}"));
        }
        if target == before {
            return self.value_undone(chain);
        }
        let what = format!("was set to {target} by someone else meanwhile");
        self.report.conflicts.push(left_alone(name, &what, before));
        for (n, _) in chain {
            self.note(Record::Conflict { n: *n, saved: None, what: Some(what.clone()) });
        }
        Ok(())
    }

    /// Whether a boot has undone it already: it was never kept, or its network namespace does not outlive one.
    fn is_gone_with_boot(&self, chain: &Chain) -> bool {
        let verified_through = self.journal.history().verified_through;
        let lasts = |(n, write): &(u64, WriteValue)| {
            let keep_in = write.keep_in.as_deref();
            let is_kept = keep_in.is_some_and(|file| *n <= verified_through || self.may_be_in(file, *n));
            !write.holder.ends_with_boot() || is_kept
        };
        !self.is_same_boot() && !chain.iter().any(lasts)
    }

    /// Whether the file that keeps a value may have been written after it. The machine may have lost power before the journal said
    /// that it was kept, and booted with that file.
    fn may_be_in(&self, file: &str, n: u64) -> bool {
        let target = self.tools.disk.resolve(Path::new(file)).ok().flatten();
        let is_it = |path: &str| path == file || target.as_deref() == Some(Path::new(path));
        let mut later = self.journal.history().entries.iter().filter(|entry| entry.n > n);
        later.any(|entry| matches!(&entry.action, Action::WriteFile(write) if is_it(&write.path)))
    }

    /// Why reverting it would drop what others use now.
    fn drops(&self, name: &str, back: &str, holder: &ValueHolder) -> Option<String> {
        let (used, words) = sysctl::in_use(name).filter(|_| self.scope.live_traffic)?;
        let used: f64 = self.tools.system.read_value(used, holder).ok()??.parse().ok()?;
        (back.parse::<f64>().ok()? < used).then(|| format!("{used} {words}"))
    }

    fn value_undone(&mut self, chain: &Chain) -> Result<()> {
        for (n, _) in chain {
            self.note(Record::Undone { n: *n, control: None });
        }
        Ok(())
    }
}

/// The line that tells of a setting that was left to the operator.
pub fn left_alone(name: &str, what: &str, before: &str) -> String {
    format!("{name} {what} and is left alone; it was {before} before")
}
