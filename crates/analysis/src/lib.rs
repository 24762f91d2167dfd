//! Pure functions of recordings: the run's report, facts, rules, ranking, planner, verdict.
//!
//! No I/O, no clock, no randomness: the same recording gives the same findings, byte for byte. What depends on the
//! server's machine comes in through [`measurement::Measurement`].
pub mod capacity;
pub mod comparison;
pub mod diagnosis;
pub mod facts;
pub mod limits;
pub mod measurement;
pub mod queueing;
pub mod resources;
pub mod run_report;
pub mod scaling;
pub mod settings;
pub mod sizing;
pub mod sweep;
pub mod tuning;

pub(crate) use webdyno_model::number::prose as wording;
