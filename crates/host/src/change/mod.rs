//! The only way to write to a server: actions, the journal that holds their undo, and rollback.
//!
//! The order is always the same: what is there now is read, the intent with all that its undo needs is written to the
//! journal and reaches the disk, then the act happens. A session may therefore end at any instant, and its journal
//! tells how to revert everything. Undoing is idempotent: it compares what is there with what was before and with
//! what we wrote, and leaves alone what somebody else changed since.
//!
//! Everything reaches the machine through the seams in [`seams::Tools`]; only [`seams::disk::RealDisk`] with
//! [`seams::tree`], [`seams::this_machine::ThisMachine`] and [`seams::launch`] touch the machine itself.

pub mod action;
pub mod apply;
pub mod boot;
pub mod file;
pub mod journal;
pub mod live_traffic_policy;
pub mod location;
pub mod seams;
pub mod tuned_machine;
pub mod undo;

pub use crate::change::seams::Tools;
pub use crate::change::seams::state_dir::StateDir;
pub use crate::change::undo::rollback::{PendingJournal, notice, pending, pending_with};
pub use apply::{Applied, Changer, Reverted};

#[cfg(test)]
mod tidy_tests {
    /// The rule of the house for this folder: a file that nobody lists is not compiled.
    #[test]
    fn every_file_is_listed() {
        let listed = include_str!("mod.rs");
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/change");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let module = name.trim_end_matches(".rs");
            assert!(module == "mod" || listed.contains(&format!("pub mod {module};")), "{name}");
        }
    }
}
