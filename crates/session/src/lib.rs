//! Sessions: the event log (writer, reader), recordings, the rounds of tuning, plans as files, the live target,
//! and the simulated server that tests the rounds.

pub mod capacity;
pub mod export;
pub mod heat_map;
pub mod history;
pub mod live;
mod live_traffic_policy;
pub mod log;
pub mod observation;
pub mod recording;
pub mod rounds;
mod several_hosts;
#[cfg(test)]
mod simulated;
pub mod sweep;
pub mod tuning_target;
pub mod view;
