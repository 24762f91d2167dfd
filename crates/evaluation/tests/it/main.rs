//! What was recorded and kept, judged by the diagnosis as it is now.

mod corpus;
#[path = "../../../webdyno/tests/it/extent.rs"]
mod extent;
mod profile;
mod rivals;
mod schemas;
mod screens;
mod valid;
