//! The decisions of a tuning session: what to try next, whether it helped, when to stop.

pub mod planner;
pub mod stop_loss;
pub mod verdict;
