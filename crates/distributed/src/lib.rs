//! One load on many machines: the same workload, dealt out to workers, and their results put together as if one machine had made it.
//!
//! Inside are two state machines without I/O and clock, `coordinator` and `worker`, which are simulated together (`simulation`) under
//! loss, delay, repetition, partition and death; around them is `nats`, which carries their messages: membership and orders as plain
//! messages, results through JetStream, which keeps them until they are in the event log. What is promised: no second of a worker is
//! lost or counted twice, no number of a load is sent by two workers, and no load outlives its owner by 10 s.

pub mod admission;
pub mod calibration;
pub mod coordinator;
pub mod merge;
pub mod nats;
pub mod packed_workload;
pub mod protocol;
pub mod shares;
pub mod signing;
#[cfg(test)]
mod simulation;
pub mod worker;
