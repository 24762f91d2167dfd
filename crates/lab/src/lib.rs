//! Servers of our own to load: the private Apache of the quickstart, and scenarios: faulty servers in network namespaces
//! and control groups, on one machine.

pub mod down;
pub mod figures;
pub mod groups;
pub mod hosts;
pub mod journal;
mod lab;
mod machine;
pub mod packages;
pub mod page;
pub mod preconditions;
pub mod proof;
pub mod quickstart;
pub mod run;
pub mod scenario;
pub mod services;
pub mod sizes;
pub mod up;
pub mod users;

pub use lab::Lab;
pub use scenario::{CLIENT, SERVER};
