//! The decisions of a tuning session: what to try next, whether it helped, when to stop.

pub mod drift;
pub mod planner;
pub mod search;
pub mod stop_loss;
pub mod verdict;
