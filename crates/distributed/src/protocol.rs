//! The messages between a coordinator and its workers, and the times that both keep to.
//!
//! All times are CLOCK_MONOTONIC in nanoseconds, of the machine that a field names: no wall clock is read, so nobody who sets one
//! moves a load. A worker says its state again and again, and orders are given again until that state shows them: a lost,
//! repeated or overtaken message changes nothing. Only the results of a load must not be lost: they go through a stream that
//! keeps them (JetStream), until they are in the event log.

use crate::packed_workload::PackedWorkload;
use serde::{Deserialize, Serialize};
use webdyno_model::interval::{EndReason, Interval, LoadEnd};
use webdyno_model::worker::LoadShare;

/// The version of these messages.
pub const VERSION: u32 = 3;
/// Largest message with a plan, bytes: servers take 1 MiB (max_payload of nats-server).
pub const ORDER_BYTES_MAX: usize = 900_000;

const MS: u64 = 1_000_000;
/// One second.
pub const S: u64 = 1_000 * MS;

/// How often a worker says its state.
pub const ANNOUNCE_EVERY_NS: u64 = 500 * MS;
/// How often a state machine is to be woken.
pub const TICK_NS: u64 = 100 * MS;
/// How often an order is given again whose effect does not show.
pub const REPEAT_EVERY_NS: u64 = 500 * MS;
/// A worker that was not heard for so long is lost.
pub const LOST_AFTER_NS: u64 = 3 * S;
/// An order counts for so long after it was sent. As long as one counts, its worker has an owner: a load is stopped before 10 s
/// without, also when clocks were compared over slow links.
pub const LEASE_NS: u64 = 8 * S;
/// Where a lost worker's part goes to others, that is to be within 5 s: it is lost sooner, and it may load only as long as this after it
/// was heard last.
pub const MOVE_LOST_AFTER_NS: u64 = 2500 * MS;
/// See [`MOVE_LOST_AFTER_NS`].
pub const MOVE_LEASE_NS: u64 = 3500 * MS;
/// From the loss until others begin: they make the plan ready.
pub const MOVE_LEAD_NS: u64 = 1200 * MS;
/// Clocks are compared to half of a round trip, and drift.
pub const MOVE_MARGIN_NS: u64 = 50 * MS;
/// Workers whose round trips are never shorter cannot begin with the others, nor keep the lease.
pub const ROUND_TRIP_NS_MAX: u64 = S;
/// After the end of its lease a lost worker's results are awaited for so long.
pub const LATE_RESULTS_NS: u64 = 2 * S;
/// From the decision to start until the start.
pub const START_LEAD_NS: u64 = 1500 * MS;
/// How long workers may take to make a plan ready.
pub const PREPARE_NS_MAX: u64 = 60 * S;
/// Round trips that are measured before a load.
pub const CLOCK_SAMPLES_MIN: u32 = 8;

/// What a coordinator wants of one worker. It is signed as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// [`VERSION`] of the sender.
    pub version: u32,
    /// The coordinator's session.
    pub session: String,
    /// The worker's instance: another process must not take it.
    pub worker: String,
    /// Rises with each order of the session to that worker.
    pub sequence: u64,
    /// Until when it counts, on the worker's clock.
    pub expires_ns: u64,
    /// What is to be done.
    pub body: OrderBody,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OrderBody {
    /// Make a part of a load ready.
    Prepare(Box<Plan>),
    /// Begin it.
    Start {
        /// Which one.
        load: u32,
        /// When, on the worker's clock.
        at_ns: u64,
    },
    /// End it, or never begin it.
    Stop {
        /// Which one.
        load: u32,
        /// Why.
        reason: EndReason,
    },
    /// The owner is there.
    Lease,
}

/// A part of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The load of the session, from 1.
    pub load: u32,
    /// The part of the worker.
    pub share: LoadShare,
    /// The second of the load from which it is the worker's: what was due before was another one's.
    pub from_s: u64,
    /// What is sent.
    pub workload: PackedWorkload,
}

/// What a worker says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Announce {
    /// [`VERSION`].
    pub version: u32,
    /// The build of its program.
    pub build: String,
    /// Which process it is: random, of this process alone.
    pub instance: String,
    /// The name that people know.
    pub name: String,
    /// Engine threads that it can run.
    pub threads: u32,
    /// What each of them can send, as it measured; `None` where it did not.
    pub requests_per_s: Option<u32>,
    /// Whether it takes only parts of workers that were lost, beside the part that its machine has.
    pub spare: bool,
    /// The session that it works for.
    pub session: Option<String>,
    /// The load that it has of that.
    pub load: Option<LoadStatus>,
}

/// The load that a worker has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadStatus {
    /// Its number.
    pub load: u32,
    /// How far it is.
    pub phase: Phase,
    /// Why it was refused or failed.
    pub why: Option<String>,
    /// When it began, on the worker's clock.
    pub began_ns: Option<u64>,
}

/// How far a load is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It is being made ready.
    Preparing,
    /// It can begin.
    Ready,
    /// It will begin, or has begun.
    Started,
    /// It is over, or will never begin.
    Over,
}

/// A result of a worker: it goes through the stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Whose load it is.
    pub session: String,
    /// Its number.
    pub load: u32,
    /// Who made it.
    pub worker: String,
    /// From 0, without gaps; the last one is the end.
    pub index: u64,
    /// What it has.
    pub body: ReportBody,
}

/// What a report has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReportBody {
    /// A second of load.
    Interval(Box<Interval>),
    /// The end of it.
    End {
        /// `None` when the engine failed.
        end: Option<LoadEnd>,
        /// Why it failed.
        why: Option<String>,
    },
}

/// Names a report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReportKey {
    /// Whose load it is.
    pub session: String,
    /// Its number.
    pub load: u32,
    /// Who made it.
    pub worker: String,
    /// Which one.
    pub index: u64,
}

impl Report {
    /// Its name.
    pub fn key(&self) -> ReportKey {
        let (session, worker) = (self.session.clone(), self.worker.clone());
        ReportKey { session, load: self.load, worker, index: self.index }
    }
}

impl std::fmt::Display for ReportKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}.{}.{}", self.session, self.load, self.worker, self.index)
    }
}
