//! The seam to the services: what changing and undoing need to know of them. Tests bring a pretended service.

use crate::change::journal::action::Served;
use crate::change::journal::claim;
use crate::os::process::ProcessName;
use crate::services::{self, Tunable};
use crate::visibility::listeners;
use webdyno_model::service::Control;

/// Which services there are, and what runs.
pub trait Programs: Send + Sync {
    /// A service by its name; `None` when this version does not know how to change it.
    fn tunable(&self, name: &str) -> Option<&dyn Tunable>;

    /// How the service of that name is controlled that answers on a port now; `None` when there is none.
    fn on_port(&self, name: &str, port: u16) -> Option<Control>;

    /// The program that answers on a port now and is not the service of that name; `None` when there is none.
    fn other_on_port(&self, name: &str, port: u16) -> Option<String> {
        let _ = (name, port);
        None
    }

    /// The names that only one tuner of this service may hold at a time.
    fn claim_names(&self, served: &Served) -> Vec<String> {
        let _ = served;
        vec![]
    }

    /// Whether the main process still runs.
    fn is_alive(&self, control: &Control) -> bool {
        ProcessName::from(control).is_alive()
    }
}

/// The services of [`crate::services`] on this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThisMachine;

impl Programs for ThisMachine {
    fn tunable(&self, name: &str) -> Option<&dyn Tunable> {
        let found: &dyn Tunable = services::tunable(name)?;
        Some(found)
    }

    fn on_port(&self, name: &str, port: u16) -> Option<Control> {
        let listener = listeners::listener(port).ok()?;
        let service = services::recognise(listener.executable.as_deref()?, &listener.arguments)?;
        (service.name() == name).then(|| service.snapshot(listener.main_pid, port).ok()?.control)?
    }

    fn other_on_port(&self, name: &str, port: u16) -> Option<String> {
        let listener = listeners::listener(port).ok()?;
        let executable = listener.executable.unwrap_or_else(|| format!("process {}", listener.main_pid));
        let known = services::recognise(&executable, &listener.arguments);
        known.is_none_or(|known| known.name() != name).then_some(executable)
    }

    fn claim_names(&self, served: &Served) -> Vec<String> {
        // Who serves the port now: after a restart it has another process, and may have other ports.
        let now = listeners::listener(served.port).ok().map(|listener| listener.main_pid);
        let ports = now.map(listeners::ports_of).unwrap_or_default();
        claim::names(ports.into_iter().chain([served.port]))
    }
}
