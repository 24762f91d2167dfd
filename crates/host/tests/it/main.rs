//! The integration tests of this crate: one binary.

mod agent;
mod apache;
mod change;
mod fake;
