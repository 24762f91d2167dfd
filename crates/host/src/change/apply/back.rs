//! The way back within a session: what a failed apply did, one round, and all that is not kept at the end.

use super::{Changer, Reverted, reverted};
use crate::change::action::Action;
use crate::change::journal::history::{ClosedBy, Record};
use crate::change::undo::{Report, Scope, undo};
use crate::os::timeouts;
use crate::probes::site::Site;
use std::panic::{AssertUnwindSafe, catch_unwind};
use webdyno_model::{Result, UserError};

/// What an undo that nobody asked for has left, and what it cost those who use the service.
fn costs(report: &Report) -> Vec<String> {
    let outage = report
        .outage_us
        .filter(|us| *us > 0)
        .map(|us| format!("while a failed change was reverted: downtime {}.{} ms", us / 1000, us / 100 % 10));
    report.left.iter().cloned().chain(outage).collect()
}

impl Changer {
    /// Takes back what an apply that failed has done, and gives the error to tell.
    pub(super) fn undo_failed(&mut self, mark: u64, error: UserError, site: Option<&Site>) -> UserError {
        let shadows = self.stop_shadows();
        let mut report = self.undo(mark, false);
        report.failures.extend(shadows.failures);
        self.notes.extend(costs(&report));
        let (has_written, is_cancelled) = (self.has_written(mark), self.cancellation.is_set());
        if let Some(session) = &mut self.session {
            session.has_undone_unheard |= has_written && is_cancelled;
        }
        match report.error() {
            // Who is gone needs no answer, and the site is asked no more than the undo itself needs.
            None => {
                match site.filter(|_| has_written && !is_cancelled).and_then(|site| self.difference(site)) {
                    None => error,
                    // Who sees the site answer otherwise must know whether it still does.
                    Some(still) => {
                        let still =
                            format!("the original configuration is in force again, and still {still}");
                        let hint = error.hint.iter().cloned().chain([still]).collect::<Vec<_>>().join("\n");
                        error.hint(hint)
                    }
                }
            }
            Some(undoing) => {
                let hint = error.hint.iter().chain(undoing.hint.iter()).cloned().collect::<Vec<_>>();
                let more = format!("undoing it failed too: {}", undoing.message);
                let last = "when the cause is removed: `webdyno rollback`".to_owned();
                let hint = std::iter::once(more).chain(hint).chain([last]).collect::<Vec<_>>().join("\n");
                error.hint(hint)
            }
        }
    }

    /// Whether something was to be written from an action on.
    fn has_written(&self, from_n: u64) -> bool {
        let mut entries = self.session.iter().flat_map(|session| &session.journal.history().entries);
        entries.any(|entry| {
            entry.n >= from_n && matches!(entry.action, Action::WriteFile(_) | Action::WriteValue(_))
        })
    }

    /// Undoes the applied plans from the last back to a mark (0: all). Launched programs go on. With live traffic nothing
    /// is restarted for it.
    pub fn revert(&mut self, mark: u64, live_traffic: bool) -> Result<Reverted> {
        self.live_traffic |= live_traffic;
        let report = self.undo(mark, false);
        reverted(report)
    }

    /// Ends the session: what is not kept is undone, what was launched is stopped, the journal is closed. When
    /// something failed the journal stays open ([`Changer::has_session`]), and this can be called again.
    pub fn end(&mut self, by: ClosedBy) -> Result<Reverted> {
        let Some(session) = &self.session else { return Ok(Reverted::default()) };
        let kept = session.journal.history().kept_through;
        let history = session.journal.history();
        let has_news = history.has_unkept() || !history.conflicts.is_empty() || session.has_undone_unheard;
        let mut report = self.undo(kept + 1, true);
        let stopping = self.stop_launched();
        report.lines.extend(stopping.lines);
        report.failures.extend(stopping.failures);
        if report.failures.is_empty() {
            // Only who put something back, or left something alone, has something to tell.
            let by = if has_news { by } else { ClosedBy::Tool };
            self.journal()?.append(Record::Closed { by })?;
            self.session = None;
        }
        reverted(report)
    }

    /// [`Changer::end`], tried again when it fails: a disk may be full for a moment only. A panic ends one attempt.
    pub fn revert_all(&mut self, by: ClosedBy) -> Result<Reverted> {
        let mut attempt = 1;
        loop {
            let ended = catch_unwind(AssertUnwindSafe(|| self.end(by)));
            match ended.unwrap_or_else(|_| Err(UserError::cannot_run("ending failed within webdyno itself")))
            {
                Err(_) if self.has_session() && attempt < timeouts::PUT_BACK_ATTEMPTS_COUNT => attempt += 1,
                ended => return ended,
            }
            self.tools.system.pause(timeouts::PUT_BACK_PAUSE);
        }
    }

    pub(super) fn undo(&mut self, from_n: u64, launched: bool) -> Report {
        let Some(session) = &mut self.session else { return Report::default() };
        let scope = Scope { from_n, launched, live_traffic: self.live_traffic, services: true };
        let report = undo(&mut session.journal, &self.tools, scope, &mut session.running);
        let earlier = session.half_undone_from;
        session.half_undone_from = match report.failures.is_empty() {
            true => earlier.filter(|earlier| *earlier < from_n),
            false => Some(earlier.map_or(from_n, |earlier| earlier.min(from_n))),
        };
        report
    }

    /// Undoes what could not be undone before. While that fails nothing is built on it, and nothing is kept: it was
    /// never verified.
    pub(super) fn finish_undoing(&mut self) -> Result<()> {
        let Some(from_n) = self.session.as_ref().and_then(|session| session.half_undone_from) else {
            return Ok(());
        };
        let report = self.undo(from_n, false);
        self.notes.extend(report.conflicts);
        report.failures.first().map_or(Ok(()), |failure| {
            Err(UserError::cannot_run(format!("an earlier change is not undone yet: {}", failure.message))
                .hint("remove the cause, then run `webdyno rollback`"))
        })
    }
}
