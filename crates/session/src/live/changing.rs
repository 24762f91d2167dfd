//! Changing the hosts of a session: who prepares a change, and its way through the agents of all of them.

use super::{Server, Servers};
use crate::several_hosts::{both, roles_for};
use crate::tuning_target::AppliedChange;
use webdyno_host::agent::{RevertedChange, Role, ServerAddress, ServerList, Start};
use webdyno_model::change::{
    ApplyOptions, ChangedHost, JournalPlace, Preparation, RenderedPlan, SettingChange,
};
use webdyno_model::{Result, UserError};

/// What a host did, and which one; `None` for the one under load.
pub struct HostAnswer<T> {
    /// The host.
    pub host: Option<ChangedHost>,
    /// What it did.
    pub answer: T,
}

impl Servers {
    /// Starts the agent of the machine that the web server's container or namespace runs on, if one was given. It is not
    /// observed: its samples would be those of everything that runs there.
    pub fn connect_machine(&mut self, list: &ServerList, how: &Start) -> Result<()> {
        for (role, address) in list.iter().filter(|(role, _)| *role == Role::Host) {
            let start = Start { address: address.clone(), ..how.clone() };
            self.others.push(Server::start(start, Some(role.name().to_owned()))?);
        }
        Ok(())
    }

    /// Lets the host under load render changes; what it cannot prepare, the host whose they are.
    pub fn prepare(&self, changes: &[SettingChange]) -> Result<Preparation> {
        let first = self.front.agent().prepare(changes)?;
        let roles = roles_for(changes);
        let other = self.others.iter().find(|server| server.role().is_some_and(|role| roles.contains(&role)));
        let Some(server) = other.filter(|_| matches!(first, Preparation::NotPreparable { .. })) else {
            return Ok(first);
        };
        let role = server.role().unwrap_or_default();
        Ok(match server.agent().prepare_behind(changes)? {
            Preparation::Plan(plan) => Preparation::Plan(Box::new(plan.on(Some(role)))),
            Preparation::NotPreparable { why, hint } => {
                Preparation::NotPreparable { why: format!("on the host {role}: {why}"), hint }
            }
        })
    }

    /// Makes a plan take effect on its host. The mark is the session's.
    pub fn apply(
        &mut self,
        plan: &RenderedPlan,
        options: &ApplyOptions,
    ) -> Result<HostAnswer<(AppliedChange, Option<JournalPlace>)>> {
        let wanted = plan.server();
        let host =
            (0..=self.others.len()).find(|host| self.host(*host).is_some_and(|it| it.role() == wanted));
        let host = host.ok_or_else(|| {
            UserError::cannot_run(format!("no host has the role {}", wanted.unwrap_or_default()))
        })?;
        self.marks.require_whole()?;
        self.marks.record_request(host);
        // An agent knows nothing of roles, nor one behind of the site.
        let (plan, mut options) = (plan.clone().on(None), options.clone());
        if host > 0 {
            options.probes = vec![];
        }
        let server = self.host_mut(host)?;
        let (applied, journal) = server.apply(&plan, &options)?;
        let changed = server.changed_host();
        let mark = self.marks.applied(host, applied.mark);
        Ok(HostAnswer { host: changed, answer: (AppliedChange { mark, ..applied }, journal) })
    }

    /// Takes all hosts back to the state of a mark, as far as it goes.
    pub fn revert(&mut self, mark: u64, live_traffic: bool) -> (RevertedChange, Result<()>) {
        let mut whole = RevertedChange::default();
        let mut marks = std::mem::take(&mut self.marks);
        let outcome = marks.revert(mark, |host, mark_there| {
            let server = self.host_mut(host)?;
            let done = server.revert(mark_there, live_traffic)?;
            add(&mut whole, done, server.role());
            Ok(())
        });
        self.marks = marks;
        (whole, outcome)
    }

    /// Has all hosts keep what is in force, the one under load last. On an error [`Servers::revert`] puts back what some of them
    /// have kept already.
    pub fn keep(&mut self) -> Result<()> {
        let mut marks = std::mem::take(&mut self.marks);
        let kept = marks.keep(|host| self.host_mut(host)?.agent().keep());
        self.marks = marks;
        kept
    }

    /// Ends the session on all hosts, the one under load first: what is not kept is put back.
    pub fn close(&self) -> (RevertedChange, Result<()>) {
        let mut whole = RevertedChange::default();
        let mut outcome = Ok(());
        for server in self.all() {
            match server.agent().close() {
                Ok(done) => add(&mut whole, done, server.role()),
                Err(error) => outcome = both(outcome, Err(error)),
            }
        }
        (whole, outcome)
    }

    fn host(&self, host: usize) -> Option<&Server> {
        self.all().nth(host)
    }

    fn host_mut(&mut self, host: usize) -> Result<&mut Server> {
        let mut all = std::iter::once(&mut self.front).chain(&mut self.others);
        all.nth(host).ok_or_else(|| UserError::cannot_run("a host of the session is gone"))
    }
}

impl Server {
    /// What the log calls it where it is changed; `None` for the host under load.
    fn changed_host(&self) -> Option<ChangedHost> {
        let address = self.address();
        // What an `exec:` runs may hold secrets.
        let server = matches!(address, ServerAddress::Ssh(_)).then(|| address.to_string());
        self.role().map(|role| ChangedHost { role: role.to_owned(), server })
    }
}

/// What one more host did. Only that of the one under load was measured.
fn add(whole: &mut RevertedChange, done: RevertedChange, role: Option<&str>) {
    let on = |line: String| role.map_or(line.clone(), |role| format!("on the host {role}: {line}"));
    whole.actions.extend(done.actions.into_iter().map(on));
    whole.left.extend(done.left.into_iter().map(on));
    let sum = |(first, other): (u64, u64)| first.saturating_add(other);
    whole.outage_us = whole.outage_us.zip(done.outage_us).map(sum).or(whole.outage_us).or(done.outage_us);
}
