//! The seam to the machine: what the agent reads of it. Tests bring a simulated machine.

use crate::change::seams::services::Programs;
use crate::change::seams::this_machine::ThisMachine;
use crate::collectors::observer::Observer;
use crate::collectors::{self, Target};
use crate::discovery::survey::{SurveyBudget, survey};
use crate::discovery::unprivileged;
use crate::harm_guard::LoadWatch;
use crate::harm_guard::watch::HarmHandler;
use crate::logs::AccessLogs;
use crate::os::machine;
use crate::os::process::ProcessName;
use crate::services::{self, resource_control};
use crate::visibility::listeners::{self, Found};
use crate::visibility::{foreign_namespace, network_namespace};
use std::net::IpAddr;
use std::sync::mpsc::Sender;
use webdyno_model::Result;
use webdyno_model::environment::Environment;
use webdyno_model::harm_guard::SiteUnderLoad;
use webdyno_model::sample::{CollectorInfo, MissingSignal, Sample};
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::{Access, Topology};

/// The machine that the agent runs on.
pub trait Host: Programs {
    /// What it is.
    fn environment(&self) -> Environment;

    /// What is read of it.
    fn collectors(&self) -> Vec<CollectorInfo>;

    /// The service that listens on a port; one that is not known has `unknown` for its name.
    fn discover(&self, port: u16) -> Result<ServiceSnapshot>;

    /// The service that listens on a port with its backends, or all known services of the machine: then the one web server
    /// among them is in front, where there is just one. Reads only.
    fn topology(&self, port: Option<u16>, access: &Access) -> Result<Topology> {
        let _ = access;
        let front = port.map(|port| self.discover(port)).transpose()?;
        Ok(Topology { front, ..Topology::default() })
    }

    /// The same with less effort, or more. What is known of services of `before` need not be read again where their
    /// processes are the same.
    fn refresh_topology(
        &self,
        port: Option<u16>,
        access: &Access,
        before: &Topology,
        effort: SurveyBudget,
    ) -> Result<Topology> {
        let _ = (before, effort);
        self.topology(port, access)
    }

    /// Reads it from now on until the watch is dropped. Samples come with CLOCK_MONOTONIC in microseconds.
    fn observe(&self, target: Target, sink: Sender<(u64, Sample)>) -> Result<Box<dyn Watch>>;

    /// Watches from now on that loads do no harm, until the watch is dropped.
    fn watch_loads(
        &self,
        target: &Target,
        snapshot: Option<&ServiceSnapshot>,
        pull: HarmHandler,
    ) -> Result<Box<dyn HarmGuard>>;

    /// Whether an address belongs to this machine (or container).
    fn owns(&self, address: IpAddr) -> bool;
}

/// Readings that go on while this lives.
pub trait Watch: Send {
    /// Reads something else from the next reading on: a restart changes the main process.
    fn set_target(&self, target: Target);
}

/// Readings that tell whether a load does harm.
pub trait HarmGuard: Send {
    /// The service may have another main process now.
    fn set_target(&self, target: &Target);

    /// A load begins. Gives what cannot be watched of the harm that it may do.
    fn begin(&self, site: &SiteUnderLoad) -> Vec<MissingSignal>;

    /// The load has ended. Nothing is said of it once this returns.
    fn end(&self);

    /// Why the server is not quiet yet; `None` when it is.
    fn disturbance(&self) -> Option<String>;
}

impl Host for ThisMachine {
    fn environment(&self) -> Environment {
        machine::environment()
    }

    fn collectors(&self) -> Vec<CollectorInfo> {
        collectors::catalogue()
    }

    fn discover(&self, port: u16) -> Result<ServiceSnapshot> {
        let listener = match listeners::find(port)? {
            Found::Process(listener) => listener,
            Found::Hidden(hidden) => return Ok(unprivileged::snapshot(&hidden)),
        };
        let program = listener.executable.unwrap_or(listener.name);
        let pid = listener.main_pid;
        let mut snapshot = match services::recognise(&program, &listener.arguments) {
            Some(service) => network_namespace::inside(pid, || service.snapshot(pid, port))?,
            None => services::snapshot_unknown(pid, port, Some(program)),
        };
        foreign_namespace::note(&mut snapshot);
        resource_control::note(&mut snapshot);
        Ok(snapshot)
    }

    fn topology(&self, port: Option<u16>, access: &Access) -> Result<Topology> {
        self.refresh_topology(port, access, &Topology::default(), SurveyBudget::FIRST)
    }

    fn refresh_topology(
        &self,
        port: Option<u16>,
        access: &Access,
        before: &Topology,
        effort: SurveyBudget,
    ) -> Result<Topology> {
        let is_still = |front: &&ServiceSnapshot| {
            let started = front.control.as_ref().map(ProcessName::from);
            Some(front.port) == port && started.is_some_and(ProcessName::is_alive)
        };
        let known =
            before.front.as_ref().filter(is_still).filter(|front| listeners::listens(front.pid, front.port));
        let front = match (port, known) {
            (_, Some(front)) => Some(front.clone()),
            (Some(port), None) => Some(self.discover(port)?),
            (None, None) => None,
        };
        let mut seen = survey(front, services::all(), (before, access), effort);
        seen.front.iter_mut().chain(&mut seen.backends).for_each(resource_control::note);
        Ok(if port.is_none() { with_front(seen, before) } else { seen })
    }

    fn observe(&self, target: Target, sink: Sender<(u64, Sample)>) -> Result<Box<dyn Watch>> {
        Ok(Box::new(Observer::start(target, sink)?))
    }

    fn watch_loads(
        &self,
        target: &Target,
        snapshot: Option<&ServiceSnapshot>,
        pull: HarmHandler,
    ) -> Result<Box<dyn HarmGuard>> {
        Ok(Box::new(LoadWatch::start(target, access_logs(snapshot), pull)?))
    }

    fn owns(&self, address: IpAddr) -> bool {
        machine::owns(address)
    }
}

/// Where no port was named: the web server that was in front before, as long as it is there, else the only one that there
/// is. Of two nobody knows which one is meant.
fn with_front(mut seen: Topology, before: &Topology) -> Topology {
    let former = before.front.as_ref().map(|front| front.pid);
    let is_web = |service: &&ServiceSnapshot| service.role.as_deref() == Some("web");
    let mut web = seen.backends.iter().filter(is_web).map(|service| service.pid);
    let only = web.next().filter(|_| web.next().is_none());
    let again = former.filter(|former| seen.backends.iter().filter(is_web).any(|one| one.pid == *former));
    if let Some(pid) = again.or(only)
        && let Some(at) = seen.backends.iter().position(|service| service.pid == pid)
    {
        seen.front = Some(seen.backends.remove(at));
    }
    seen
}

/// The access logs of a service, or why there are none to be read.
fn access_logs(snapshot: Option<&ServiceSnapshot>) -> AccessLogs {
    let unread = |why: String| AccessLogs { files: vec![], unread: vec![why] };
    let Some(snapshot) = snapshot else { return unread("the service is not known".into()) };
    match (services::by_name(&snapshot.service), &snapshot.control) {
        (Some(service), Some(control)) => {
            service.access_logs(control, snapshot.port).unwrap_or_else(|error| unread(error.message))
        }
        (Some(service), None) => unread(format!("how {} was started cannot be read", service.name())),
        (None, _) => unread(format!(
            "webdyno does not know {}",
            snapshot.executable.as_deref().unwrap_or("the service")
        )),
    }
}

impl HarmGuard for LoadWatch {
    fn set_target(&self, target: &Target) {
        Self::set_target(self, target);
    }

    fn begin(&self, site: &SiteUnderLoad) -> Vec<MissingSignal> {
        Self::begin(self, site)
    }

    fn end(&self) {
        Self::end(self);
    }

    fn disturbance(&self) -> Option<String> {
        Self::disturbance(self)
    }
}

impl Watch for Observer {
    fn set_target(&self, target: Target) {
        Observer::set_target(self, target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology_of(services: &[(u32, &str)]) -> Topology {
        let service = |(pid, role): &(u32, &str)| ServiceSnapshot {
            pid: *pid,
            role: Some((*role).to_owned()),
            ..ServiceSnapshot::default()
        };
        Topology { backends: services.iter().map(service).collect(), ..Topology::default() }
    }

    /// Without a port the only web server is meant, and it stays the one that is meant as long as it is there.
    #[test]
    fn the_only_web_server_is_in_front() {
        let before = |pid: u32| Topology {
            front: Some(ServiceSnapshot { pid, ..ServiceSnapshot::default() }),
            ..Topology::default()
        };
        for (services, former, front) in [
            (&[(7, "db"), (8, "web"), (9, "php")][..], None, Some(8)),
            (&[(7, "db")], None, None),
            (&[(7, "web"), (8, "web")], None, None),
            (&[(7, "web"), (8, "web")], Some(8), Some(8)),
            (&[(7, "web"), (8, "web")], Some(9), None),
            (&[(7, "web")], Some(9), Some(7)),
            (&[(7, "db")], Some(7), None),
        ] {
            let found = with_front(topology_of(services), &former.map(before).unwrap_or_default());
            assert_eq!(found.front.as_ref().map(|front| front.pid), front, "{services:?} {former:?}");
            assert_eq!(found.services().count(), services.len(), "none is lost");
        }
    }
}
