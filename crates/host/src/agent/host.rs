//! The seam to the machine: what the agent reads of it. Tests bring a pretended machine.

use crate::change::programs::{Programs, ThisMachine};
use crate::collectors::{self, Target};
use crate::discover::{self, Found};
use crate::observer::Observer;
use crate::{machine, outside, services};
use std::sync::mpsc::Sender;
use webdyno_model::Result;
use webdyno_model::environment::Environment;
use webdyno_model::sample::{CollectorInfo, Sample};
use webdyno_model::service::ServiceSnapshot;

/// The machine that the agent runs on.
pub trait Host: Programs {
    /// What it is.
    fn environment(&self) -> Environment;

    /// What is read of it.
    fn collectors(&self) -> Vec<CollectorInfo>;

    /// The service that listens on a port; one that is not known has `unknown` for its name.
    fn discover(&self, port: u16) -> Result<ServiceSnapshot>;

    /// Reads it from now on until the watch is dropped. Samples come with CLOCK_MONOTONIC in microseconds.
    fn observe(&self, target: Target, sink: Sender<(u64, Sample)>) -> Result<Box<dyn Watch>>;
}

/// Readings that go on while this lives.
pub trait Watch: Send {
    /// Reads something else from the next reading on: a restart changes the main process.
    fn set_target(&self, target: Target);
}

impl Host for ThisMachine {
    fn environment(&self) -> Environment {
        machine::environment()
    }

    fn collectors(&self) -> Vec<CollectorInfo> {
        collectors::catalogue()
    }

    fn discover(&self, port: u16) -> Result<ServiceSnapshot> {
        let listener = match discover::find(port)? {
            Found::Seen(listener) => listener,
            Found::Hidden(hidden) => return Ok(outside::snapshot(&hidden)),
        };
        let program = listener.executable.unwrap_or(listener.name);
        match services::recognise(&program, &listener.arguments) {
            Some(service) => service.snapshot(listener.main_pid, port),
            None => Ok(services::snapshot_unknown(listener.main_pid, port, Some(program))),
        }
    }

    fn observe(&self, target: Target, sink: Sender<(u64, Sample)>) -> Result<Box<dyn Watch>> {
        Ok(Box::new(Observer::start(target, sink)?))
    }
}

impl Watch for Observer {
    fn set_target(&self, target: Target) {
        Observer::set_target(self, target);
    }
}
