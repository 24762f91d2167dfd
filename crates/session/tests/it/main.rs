//! The integration tests of this crate: one binary.

mod braking;
mod incidents;
mod pretended;
mod samples;
