//! What changing and undoing work with: the state directory and the seams to disk, services, processes and clocks.

pub mod claim;
pub mod disk;
pub mod helper;
pub mod init_system;
pub mod launch;
mod new_file;
pub mod processes;
pub mod services;
pub mod session_location;
pub mod state_dir;
pub mod this_machine;
pub mod tree;

use crate::change::seams::disk::{Disk, RealDisk};
use crate::change::seams::helper::Helper;
use crate::change::seams::processes::System;
use crate::change::seams::services::Programs;
use crate::change::seams::state_dir::StateDir;
use crate::change::seams::this_machine::ThisMachine;
use std::sync::Arc;

/// The state directory and the seams. Nothing in [`crate::change`] reaches a disk or a process but through these.
#[derive(Clone)]
pub struct Tools {
    /// Where journals and saved copies are.
    pub state: StateDir,
    /// The seam to the disk.
    pub disk: Arc<dyn Disk>,
    /// The seam to the services.
    pub programs: Arc<dyn Programs>,
    /// The seam to processes and clocks.
    pub system: Arc<dyn System>,
    /// Undoes what belongs to other namespaces; `None` where these are not entered.
    pub helper: Option<Arc<dyn Helper>>,
    /// With which words of `--server` this agent was reached; `None` when nobody said so.
    pub server: Option<String>,
}

impl Tools {
    /// This machine's own, with its services.
    pub fn of_this_machine(state: StateDir) -> Self {
        Self::with_programs(state, Arc::new(ThisMachine))
    }

    /// This machine's own, with given services.
    pub fn with_programs(state: StateDir, programs: Arc<dyn Programs>) -> Self {
        Self {
            state,
            disk: Arc::new(RealDisk),
            programs,
            system: Arc::new(ThisMachine),
            helper: None,
            server: None,
        }
    }
}
