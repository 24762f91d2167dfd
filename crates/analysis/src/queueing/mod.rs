//! Queueing models: what a network of queues and pools serves, and how long a request is in it. Numbers in, numbers out; what of a
//! server the stations are is known by `diagnosis/prediction`.

mod flow;
mod network;

pub use flow::Flow;
pub use network::{Load, Network, Pool, Solution};
