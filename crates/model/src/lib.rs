//! The nouns of webdyno as plain data: what every other crate speaks in.
//!
//! No I/O, no clock, no threads. Words have the one meaning that ARCHITECTURE.md gives them; the shapes of the
//! reports are the ones that scripts depend on (see docs/contract.md). Numbers carry their unit in their name;
//! what is unknown is `None` and becomes `null`, never zero.

pub mod auth;
pub mod capacity;
pub mod change;
pub mod client;
pub mod compare;
pub mod diagnosis;
pub mod distribution;
pub mod duration;
pub mod environment;
pub mod error;
pub mod event;
pub mod fact;
pub mod harm_guard;
pub mod histogram;
pub mod interval;
pub mod live_traffic;
pub mod logs;
pub mod number;
pub mod objective;
pub mod observation;
pub mod page;
pub mod prediction;
pub mod processor_time;
pub mod purpose;
pub mod repeated_answer;
pub mod repeats;
pub mod run;
pub mod sample;
pub mod service;
pub mod setting;
pub mod site;
pub mod sizing;
pub mod sweep;
pub mod topology;
pub mod transport;
pub mod tune;
pub mod worker;
pub mod workload;

pub use error::{ErrorKind, Result, UserError};
