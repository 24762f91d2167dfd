//! The seam to the services: what changing and undoing need to know of them. Tests bring a pretended service.

use crate::discover;
use crate::process::ProcessName;
use crate::services::{self, Service};
use webdyno_model::service::Control;

/// Which services there are, and what runs.
pub trait Programs: Send + Sync {
    /// A service by its name; `None` when this version does not know it.
    fn service(&self, name: &str) -> Option<&dyn Service>;

    /// How the service of that name is controlled that answers on a port now; `None` when there is none.
    fn on_port(&self, name: &str, port: u16) -> Option<Control>;

    /// Whether the main process still runs.
    fn is_alive(&self, control: &Control) -> bool {
        ProcessName::from(control).is_alive()
    }
}

/// The services of [`crate::services`] on this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThisMachine;

impl Programs for ThisMachine {
    fn service(&self, name: &str) -> Option<&dyn Service> {
        let found: &dyn Service = services::by_name(name)?;
        Some(found)
    }

    fn on_port(&self, name: &str, port: u16) -> Option<Control> {
        let listener = discover::listener(port).ok()?;
        let service = services::recognise(listener.executable.as_deref()?, &listener.arguments)?;
        (service.name() == name).then(|| service.snapshot(listener.main_pid, port).ok()?.control)?
    }
}
