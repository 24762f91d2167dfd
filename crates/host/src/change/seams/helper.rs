//! The seam to where sessions were that is not here: another process of ours enters it and undoes their journals there.

use crate::os::process_location::{file_id, namespace};
use webdyno_model::service::FileId;
use webdyno_model::{Result, UserError};

/// The way to a session's location. Each part with what it must be when it is entered: a process may have ended by then,
/// and its id be another one's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entrance {
    /// A process in its namespaces and with its root, with its pid namespace; `None` when only the network is another one.
    pub process: Option<(u32, FileId)>,
    /// The namespace of its network as a file, where that is not ours.
    pub network: Option<(String, FileId)>,
    /// The state directory, as it is called there.
    pub state: String,
}

/// Undoes journals from where their sessions were.
pub trait Helper: Send + Sync {
    /// Undoes one journal there: all of it, or what was never kept. The caller does not hold the lock.
    fn undo(&self, entrance: &Entrance, journal: &str, only_unkept: bool) -> Result<RollbackOutcome>;
}

impl Entrance {
    /// Whether its parts still are what they were when it was found.
    pub fn is_still_there(&self) -> bool {
        let process = self.process.is_none_or(|(pid, id)| namespace(pid, "pid") == Some(id));
        process && self.network.as_ref().is_none_or(|(path, id)| file_id(path) == Some(*id))
    }
}

/// What became of sessions that were cut off.
#[derive(Debug, Default)]
pub struct RollbackOutcome {
    /// One line for each thing that was done.
    pub lines: Vec<String>,
    /// What could not be done, or was left alone.
    pub problem: Option<UserError>,
    /// Whether changes that were never kept are still in force: nothing may be changed or measured before they are gone.
    pub unfinished: bool,
}
