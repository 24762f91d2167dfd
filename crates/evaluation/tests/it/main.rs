//! What was recorded and kept, judged by the diagnosis as it is now.

mod corpus;
mod profile;
mod rivals;
mod schemas;
mod screens;
mod valid;
