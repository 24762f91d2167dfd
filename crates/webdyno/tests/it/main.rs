//! The program as its users meet it: one binary with all end-to-end tests, and the checks on the source itself.

mod apache;
mod command_line;
mod interrupted;
mod loading;
mod quickstart;
mod recordings;
mod support;
mod tidy;
