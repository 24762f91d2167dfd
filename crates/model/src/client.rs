//! The generator about itself: whether it kept up, and how full the tables of its machine were.
//!
//! What the tables are: getrlimit(2) (RLIMIT_NOFILE), Documentation/networking/ip-sysctl.rst (`ip_local_port_range`,
//! `tcp_max_tw_buckets`), nf_conntrack-sysctl.rst (`nf_conntrack_max`), Documentation/admin-guide/sysctl/fs.rst
//! (`file-max`).

use serde::{Deserialize, Serialize};

/// The verdict on the generator.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ClientReport {
    /// CPU of all engine threads.
    pub cpu_s: Option<f64>,
    /// Share of a core that the busiest engine thread used.
    pub cpu_fraction_max_thread: Option<f64>,
    /// Each engine thread.
    #[serde(default)]
    pub threads: Vec<ThreadReport>,
    /// Whether the generator was the bottleneck.
    pub saturated: bool,
    /// Whether the figures may be believed: the rate and the counts; latency has a verdict of its own.
    pub valid: bool,
    /// What of them may be believed.
    #[serde(default)]
    pub valid_for: ValidFor,
    /// Why not all of it.
    pub why: Option<String>,
    /// Requests in flight, counted in two ways.
    #[serde(default)]
    pub in_flight: InFlightReport,
    /// Visitors of a closed load, counted in two ways; `None` where one of these is not known.
    #[serde(default)]
    pub users: Option<UsersReport>,
    /// Open files of this process; `None` where that was not read.
    #[serde(default)]
    pub descriptors: Option<TableReport>,
    /// Local ports towards the destination that takes most of them; `None` where that was not read.
    #[serde(default)]
    pub local_ports: Option<TableReport>,
    /// The table that the run measured instead of the server.
    #[serde(default)]
    pub kernel_limit_total: Option<KernelLimitTotal>,
}

/// Which figures may be believed: a generator that was late sends as many requests, and measures its own delay with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ValidFor {
    /// Requests per second.
    pub rate: bool,
    /// Response and service times.
    pub latency: bool,
    /// How many succeeded and failed.
    pub counts: bool,
}

/// One engine thread.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ThreadReport {
    /// CPU that it used.
    pub cpu_s: f64,
    /// As a share of a core.
    pub cpu_fraction: f64,
}

/// Mean requests in flight, counted in several ways that must agree (Little's law).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct InFlightReport {
    /// The integral over time, divided by its length.
    pub mean: Option<f64>,
    /// The times of the requests, added up and divided by the same length: rate times mean time, with what was in
    /// flight at both ends counted as far as it lies within.
    pub by_law: Option<f64>,
    /// What the server had at the same time: workers that answer, and connections that wait for one. `None` where
    /// nobody looked.
    pub server: Option<f64>,
}

/// The visitors of a closed load, counted and by Little's law, as which it is called the interactive response time law:
/// users = rate x (response time + think time).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct UsersReport {
    /// Visitors that were there, the same number all the time.
    pub mean: f64,
    /// Steps per second times what a step takes with its think time.
    pub by_law: f64,
    /// Mean time of a step: of its page, or of its request.
    pub response_us: f64,
    /// Mean think time of a step, as the workload draws it.
    pub think_us: f64,
}

/// How full a table was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TableReport {
    /// Places that there are; `None` is no limit.
    pub limit: Option<u64>,
    /// Most in use at once.
    pub used_peak: u64,
    /// In use when the load ended.
    pub used_at_end: u64,
    /// Free at the peak; `None` without a limit.
    pub left_at_peak: Option<u64>,
}

impl TableReport {
    /// A table of so many places.
    pub fn new(limit: Option<u64>, used_peak: u64, used_at_end: u64) -> Self {
        let left_at_peak = limit.map(|limit| limit.saturating_sub(used_peak));
        Self { limit, used_peak, used_at_end, left_at_peak }
    }
}

/// A total of connections that is the size of a table of the kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelLimitTotal {
    /// How the kernel calls the limit: `net.ipv4.ip_local_port_range`.
    pub limit: String,
    /// Its size: entries that were free when the load began.
    pub value: u64,
    /// Connections that were opened.
    pub connections: u64,
}

/// The tables of a machine that connections fill, and how full they were during a load. What could not be read is
/// `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientTables {
    /// Open files that this process may have (the soft limit).
    pub descriptors_limit: Option<u64>,
    /// Most that it had.
    pub descriptors_used_peak: Option<u64>,
    /// What it had when the load ended.
    pub descriptors_used_at_end: Option<u64>,
    /// Local ports towards one destination, from all source addresses together. `None` also where none are used.
    pub local_ports_limit: Option<u64>,
    /// Addresses that connections go to.
    pub destinations: Option<u64>,
    /// Ports in use when the load began, by connections of every state to the destination that has most.
    pub local_ports_used_at_start: Option<u64>,
    /// Most of them in use.
    pub local_ports_used_peak: Option<u64>,
    /// In use when the load ended.
    pub local_ports_used_at_end: Option<u64>,
    /// `net.netfilter.nf_conntrack_max`.
    pub conntrack_limit: Option<u64>,
    /// Entries of that table when the load began.
    pub conntrack_used_at_start: Option<u64>,
    /// `net.ipv4.tcp_max_tw_buckets`.
    pub time_wait_limit: Option<u64>,
    /// `fs.file-max`.
    pub files_limit: Option<u64>,
}
