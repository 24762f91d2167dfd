//! The main process of a service while a change takes effect: signals to it and to no other one, and whether it lives.
//!
//! A configuration that passes the program's own test may still end the main process when it is read, so it is watched.

use crate::os::process::{ProcessName, wait_polling};
use crate::os::timeouts;
use rustix::process::Signal;
use std::time::Duration;
use webdyno_model::service::Control;
use webdyno_model::{Result, UserError};

/// Pause between looks.
pub const PAUSE: Duration = Duration::from_millis(10);

/// The main process of a service.
#[derive(Debug, Clone, Copy)]
pub struct MainProcess {
    /// `Apache`, as people write it.
    pub service: &'static str,
    /// It.
    pub name: ProcessName,
}

impl MainProcess {
    /// Of a service that is controlled so.
    pub fn of(service: &'static str, control: &Control) -> Self {
        Self { service, name: ProcessName::from(control) }
    }

    /// Sends a signal to the main process, and to no other one.
    pub fn signal(self, signal: Signal) -> Result<()> {
        if self.name.signal(signal)? {
            return Ok(());
        }
        Err(UserError::cannot_run(format!(
            "process {} is not the {} that was found: it ended, or another one has its id",
            self.name.pid, self.service
        ))
        .hint("run the command again: webdyno looks for the server anew"))
    }

    /// An error when it ended.
    pub fn alive(self) -> Result<()> {
        if self.name.is_alive() {
            return Ok(());
        }
        Err(UserError::cannot_run(format!(
            "{} (process {}) ended when it reloaded its configuration",
            self.service.to_lowercase(),
            self.name.pid
        ))
        .hint("its error log says why; webdyno rollback restores the configuration and starts it again"))
    }

    /// Watches it for a moment: it may end while it sets up what it read.
    pub fn watch(self) -> Result<()> {
        wait_polling(PAUSE, timeouts::WATCH, || !self.name.is_alive());
        self.alive()
    }

    /// Waits for a child that was not there before, and a moment more.
    pub fn wait_for_children(self, old: &[ProcessName]) -> Result<()> {
        let is_new = |child: &ProcessName| !old.contains(child);
        wait_polling(PAUSE, timeouts::CHILDREN, || {
            !self.name.is_alive() || self.name.children().iter().any(is_new)
        });
        self.alive()
    }

    /// Stops it with TERM and waits. It is never killed: a worker in the middle of a write would leave half of it.
    pub fn stop(self) -> Result<()> {
        self.signal(Signal::TERM)?;
        if wait_polling(PAUSE, timeouts::STOP, || !self.name.is_alive()) {
            return Ok(());
        }
        Err(UserError::cannot_run(format!(
            "{} (process {}) did not stop within {} s, and webdyno does not kill it",
            self.service.to_lowercase(),
            self.name.pid,
            timeouts::STOP.as_secs()
        ))
        .hint("look for requests that hang; the configuration on disk takes effect at its next start"))
    }
}
