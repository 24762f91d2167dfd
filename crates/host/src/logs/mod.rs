//! Log files of services: followed while they grow, and their lines read by their format.

pub mod followed;
pub mod line;
pub mod tail;
