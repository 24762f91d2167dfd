//! One tuner per service, whatever state directory, user or container it works from: beside the lock in the state
//! directory, a session holds a name for each port of the service.
//!
//! The name is an abstract unix socket (unix(7)): it needs no directory that all could write to, and the kernel drops it
//! with its holder. Abstract names belong to a network namespace, as ports do: whoever finds the service by its listening
//! socket sees these names as well, also from another pid or mount namespace (network_namespaces(7)). All ports of the
//! main process are claimed, so that two tuners do not meet through two of them.
//!
//! Anybody may take such a name, as anybody may take a port: then tuning is refused, with the process that holds it.
//! Undoing must not be anybody's to prevent: there a name counts only when its holder is seen to be root's or our own
//! user's.

use crate::change::action::Served;
use crate::change::seams::Tools;
use crate::change::seams::claim::{Claimed, Holder};
use std::collections::BTreeMap;
use std::time::Duration;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The names that a session holds; they end with this value, and with the process in any case.
#[derive(Default)]
pub struct Claims(BTreeMap<String, Box<dyn Send>>);

impl Claims {
    /// Claims the names of a service that are not held yet. An error when somebody else has one of them.
    pub fn take(&mut self, tools: &Tools, served: &Served) -> Result<()> {
        match self.try_take(tools, served)? {
            None => Ok(()),
            Some(holder) => Err(held_by(served, holder)),
        }
    }

    /// The same to undo something, waiting a while for whoever has them. Who is not seen to be root's or our own user's
    /// keeps nobody from it: he is told, one line for each name.
    pub fn wait_to_undo(&mut self, tools: &Tools, served: &Served, at_most: Duration) -> Result<Vec<String>> {
        let mut ignored = BTreeMap::new();
        let mut last = self.try_take_to_undo(tools, served, &mut ignored)?;
        let mut failed = None;
        tools.system.wait_until(at_most, &mut || {
            if last.is_some() {
                match self.try_take_to_undo(tools, served, &mut ignored) {
                    Ok(holder) => last = holder,
                    Err(error) => failed = Some(error),
                }
            }
            last.is_none() || failed.is_some()
        });
        match (failed, last) {
            (Some(error), _) => Err(error),
            (None, Some(holder)) => Err(held_by(served, Some(holder))),
            (None, None) => Ok(ignored.into_iter().map(|(name, holder)| ignoring(&name, holder)).collect()),
        }
    }

    /// `Some` when somebody who is trusted has one of the names.
    fn try_take_to_undo(
        &mut self,
        tools: &Tools,
        served: &Served,
        ignored: &mut BTreeMap<String, Option<Holder>>,
    ) -> Result<Option<Holder>> {
        ignored.clear();
        for name in tools.programs.claim_names(served) {
            match self.try_name(tools, &name)? {
                None => {}
                Some(Some(holder)) if holder.is_trusted => return Ok(Some(holder)),
                Some(holder) => drop(ignored.insert(name, holder)),
            }
        }
        Ok(None)
    }

    /// `Ok(Some(holder))` when somebody else has one of the names.
    fn try_take(&mut self, tools: &Tools, served: &Served) -> Result<Option<Option<Holder>>> {
        for name in tools.programs.claim_names(served) {
            if let Some(holder) = self.try_name(tools, &name)? {
                return Ok(Some(holder));
            }
        }
        Ok(None)
    }

    /// `Ok(Some(holder))` when somebody else has the name.
    fn try_name(&mut self, tools: &Tools, name: &str) -> Result<Option<Option<Holder>>> {
        if self.0.contains_key(name) {
            return Ok(None);
        }
        match tools.system.claim(name).map_err(|error| io_error("claim", name, &error))? {
            Claimed::Ours(claim) => drop(self.0.insert(name.to_owned(), claim)),
            Claimed::Theirs(holder) => return Ok(Some(holder)),
        }
        Ok(None)
    }
}

fn ignoring(name: &str, holder: Option<Holder>) -> String {
    let who = holder.map_or_else(
        || "a process that cannot be seen".to_owned(),
        |holder| format!("process {}", holder.pid),
    );
    format!(
        "went on although {who} holds the name {name}, as that is not known to be a webdyno of root or of this user"
    )
}

fn held_by(served: &Served, holder: Option<Holder>) -> UserError {
    let who = holder.map_or_else(
        || "another webdyno".to_owned(),
        |holder| format!("another webdyno (process {})", holder.pid),
    );
    let Served { service, port, .. } = served;
    UserError::cannot_run(format!("{who} is changing {service} on port {port} already")).hint(
        "wait until it has ended; its journal is in another state directory than this one's (WEBDYNO_STATE)",
    )
}
