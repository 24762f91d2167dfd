//! Servers of our own to load: the private Apache of the quickstart, and scenarios: faulty servers in network namespaces
//! and control groups, on one machine.

pub mod figures;
pub mod proof;
pub mod quickstart;
pub mod scenario;
pub mod services;
