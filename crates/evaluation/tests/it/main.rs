//! What was recorded and kept, judged by the diagnosis as it is now.

mod corpus;
#[allow(clippy::unwrap_used)] // a helper of tests
#[path = "../../../webdyno/tests/it/extent.rs"]
mod extent;
mod profile;
mod rivals;
mod schemas;
mod screens;
mod valid;
