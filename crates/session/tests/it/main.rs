//! The integration tests of this crate: one binary.

mod harm_guard;
mod incidents;
mod pretended;
mod samples;
