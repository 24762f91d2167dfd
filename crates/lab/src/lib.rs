//! Servers of our own to load: the private Apache of the quickstart, and scenarios: faulty servers in network namespaces
//! and control groups, on one machine.

pub mod build;
pub mod cgroups;
pub mod draw;
pub mod evidence;
pub mod figures;
pub mod hosts;
pub mod journal;
mod lab;
mod machine;
pub mod packages;
pub mod page;
pub mod preconditions;
pub mod quickstart;
pub mod remove;
pub mod run;
pub mod scenario;
pub mod services;
pub mod units;
pub mod users;

pub use lab::Lab;
pub use scenario::{CLIENT, SERVER};
